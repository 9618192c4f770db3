#include "model/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/utf8.h"
#include "model/gguf_meta.h"
#include "model/mapped_file.h"
#include "model/sha256.h"

namespace pocketfleet {

namespace {

constexpr uint64_t kMostParts = 1024;

// What llama.cpp has no graph for that writes text.
constexpr std::string_view kNotWriters[] = {"clip",         "bert",         "nomic-bert", "nomic-bert-moe", "modern-bert",
                                            "jina-bert-v2", "jina-bert-v3", "t5",         "t5encoder",      "wavtokenizer-dec"};

tl::unexpected<Error> about(const std::string& path, Error error) {
  error.message = path + ": " + error.message;
  return fail(std::move(error));
}

// "blk.24.attn_q.weight" of a model of 24 layers and a draft head.
bool is_of_draft_head(std::string_view name, const ModelSummary& summary) {
  if (summary.draft_layers.empty() || !name.starts_with("blk.")) return false;
  uint64_t layer = 0;
  const char* end = name.data() + name.size();
  return std::from_chars(name.data() + 4, end, layer).ec == std::errc() && layer >= summary.layers.size();
}

void count_tensors(const GgufFile& file, ModelSummary& summary, std::map<std::string, TypeShare>& shares) {
  for (const GgufTensor& tensor : file.tensors) {
    TypeShare& share = shares[std::string(tensor_type(tensor.type)->name)];
    ++share.tensors;
    share.bytes += tensor.bytes;
    ++summary.tensors;
    summary.tensor_bytes += tensor.bytes;
    if (is_of_draft_head(tensor.name, summary)) summary.draft_bytes += tensor.bytes;
    summary.parameters += tensor.elements;
  }
}

void sort_types(const std::map<std::string, TypeShare>& shares, ModelSummary& summary) {
  for (const auto& [type, share] : shares) summary.types.push_back({type, share.tensors, share.bytes});
  std::sort(summary.types.begin(), summary.types.end(), [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
  if (!summary.types.empty()) summary.quantisation = summary.types.front().type;
}

// A key of a split model; 0 when the file is whole. llama.cpp takes its type for granted.
Result<uint64_t> split_key(const GgufFile& file, std::string_view key, uint64_t most) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return 0;
  if (value->type != GgufType::kU16)
    return fail(ErrorCode::kInvalidModel, fmt::format("{} has the type {}; it must be u16", key, gguf_type_name(value->type)));
  const uint64_t number = *value->as_unsigned();
  if (number > most) return fail(ErrorCode::kInvalidModel, fmt::format("{} is {}; at most {} is possible", key, number, most));
  return number;
}

struct Inspected {
  ModelSummary summary;
  std::map<std::string, TypeShare> shares;
  uint64_t parts = 1;
};

Result<Inspected> inspect_first(std::string_view bytes) {
  PF_TRY(const GgufFile file, read_gguf(bytes, bytes.size()));
  Inspected out;
  ModelSummary& summary = out.summary;
  summary.file_bytes = bytes.size();
  const GgufMeta general(file, "general");
  PF_TRY(const std::string_view architecture, general.string("general.architecture"));
  PF_TRY(const std::string_view name, general.string("general.name"));
  PF_TRY(const std::string_view tokenizer, general.string("tokenizer.ggml.model"));
  summary.architecture = sanitize_utf8(architecture.substr(0, 64));
  summary.name = sanitize_utf8(name.substr(0, 256));
  summary.tokenizer = sanitize_utf8(tokenizer.substr(0, 64));
  PF_TRY(summary.vocabulary, check_tokenizer(file));
  PF_TRY(const std::string_view chat_template, general.string("tokenizer.chat_template"));
  summary.chat_template = chat_template;

  PF_TRY(const uint64_t number, split_key(file, "split.no", kMostParts));
  PF_TRY(const uint64_t parts, split_key(file, "split.count", kMostParts));
  if (parts > 1 && number > 0) {
    return fail(
        ErrorCode::kInvalidModel,
        fmt::format("this is part {} of {}: name the first part, which ends in -00001-of-{:05}.gguf", number + 1, parts, parts));
  }
  out.parts = std::max<uint64_t>(parts, 1);
  // A projector, an adapter or a bare tokenizer has no layers to look at.
  if (!architecture.empty() && !file.tensors.empty() && architecture != "clip") {
    PF_CHECK_OK(check_shape(GgufMeta(file, std::string(architecture)), summary));
  }
  count_tensors(file, summary, out.shares);
  return out;
}

// "model-00001-of-00003.gguf" and 2: "model-00002-of-00003.gguf".
Result<std::string> part_path(const std::string& first, uint64_t part, uint64_t parts) {
  const std::string ending = fmt::format("-00001-of-{:05}.gguf", parts);
  if (!first.ends_with(ending)) {
    return fail(ErrorCode::kInvalidModel,
                fmt::format("the model is split over {} files, so the name of this one must end in {}", parts, ending));
  }
  return fmt::format("{}-{:05}-of-{:05}.gguf", first.substr(0, first.size() - ending.size()), part, parts);
}

Result<void> add_part(const std::string& path, uint64_t part, Inspected& whole) {
  PF_TRY(const MappedFile mapped, MappedFile::open(path));
  const auto file = read_gguf(mapped.bytes(), mapped.bytes().size());
  if (!file) return about(path, file.error());
  const auto number = split_key(*file, "split.no", kMostParts);
  if (!number) return about(path, number.error());
  if (file->find("split.no") == nullptr || *number != part) {
    return fail(ErrorCode::kInvalidModel, fmt::format("{}: this is not part {} of the model", path, part + 1));
  }
  whole.summary.file_bytes += mapped.bytes().size();
  count_tensors(*file, whole.summary, whole.shares);
  return {};
}

}  // namespace

Result<ModelSummary> inspect_gguf_bytes(std::string_view bytes, const std::string& path) {
  auto inspected = inspect_first(bytes);
  if (!inspected) return about(path, inspected.error());
  inspected->summary.path = path;
  sort_types(inspected->shares, inspected->summary);
  return std::move(inspected->summary);
}

Result<ModelSummary> inspect_gguf(const std::string& path) {
  PF_TRY(const MappedFile mapped, MappedFile::open(path));
  auto inspected = inspect_first(mapped.bytes());
  if (!inspected) return about(path, inspected.error());
  ModelSummary& summary = inspected->summary;
  summary.path = path;
  summary.parts = static_cast<int>(inspected->parts);
  for (uint64_t part = 1; part < inspected->parts; ++part) {
    auto name = part_path(path, part + 1, inspected->parts);
    if (!name) return about(path, name.error());
    PF_CHECK_OK(add_part(*name, part, *inspected));
  }
  sort_types(inspected->shares, summary);
  return std::move(summary);
}

Result<void> check_servable(const ModelSummary& summary) {
  const auto refuse = [&summary](std::string_view why) {
    return fail(ErrorCode::kInvalidModel, fmt::format("{}: {}", summary.path, why));
  };
  if (summary.architecture.empty())
    return refuse("general.architecture is missing, so it is not known what kind of model this is");
  const auto* end = std::end(kNotWriters);
  if (std::find(std::begin(kNotWriters), end, summary.architecture) != end) {
    return refuse(fmt::format("a model of the kind \"{}\" does not write text", summary.architecture));
  }
  if (summary.tensors == 0) return refuse("the file holds no weights, only keys");
  if (summary.vocabulary == 0 || summary.tokenizer.empty())
    return refuse("the file holds no tokenizer (tokenizer.ggml.model and .tokens)");
  if (summary.tokenizer == "bert" || summary.tokenizer == "t5") {
    return refuse(fmt::format("a tokenizer of the kind \"{}\" belongs to models that do not write text", summary.tokenizer));
  }
  return {};
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format(fmt::runtime(unit > 0 && value < 10 ? "{:.1f} {}" : "{:.0f} {}"), value, kUnits[unit]);
}

std::string describe(const ModelSummary& summary) {
  const double parameters = static_cast<double>(summary.parameters);
  const std::string size =
      parameters >= 1e9 ? fmt::format("{:.1f}B", parameters / 1e9) : fmt::format("{:.0f}M", parameters / 1e6);
  return fmt::format("{} {} {}, {} layers, trained on {} tokens, {}", summary.architecture, size, summary.quantisation,
                     summary.layers.size(), summary.context_tokens, format_bytes(summary.file_bytes));
}

std::string template_digest(const ModelSummary& summary) {
  return summary.chat_template.empty() ? std::string() : sha256_of_text(summary.chat_template);
}

}  // namespace pocketfleet
