#include "model/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "model/sha256.h"

namespace pocketfleet {

namespace {

constexpr std::string_view kFormat = "pocketfleet-model-manifest";
constexpr uint64_t kVersion = 1;
constexpr size_t kMostFiles = 1024;
constexpr uint64_t kMostFileBytes = uint64_t{1} << 50;
constexpr size_t kMostGolden = 64;
constexpr size_t kMostPromptBytes = 1u << 20;
constexpr size_t kMostPromptTokens = 65'536;
constexpr size_t kMostTokens = 64;

tl::unexpected<Error> wrong(const std::string& field, std::string_view what) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("the manifest's \"{}\" {}", field, what), field);
}

Result<const Json*> member(const Json& object, const char* key, const std::string& field) {
  const auto found = object.find(key);
  if (found == object.end()) return wrong(field, "is missing");
  return &*found;
}

Result<void> check_object(const Json& object, std::initializer_list<std::string_view> known, const std::string& field) {
  if (!object.is_object()) return wrong(field, "must be an object");
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return wrong((field == "manifest" ? "" : field + ".") + key.substr(0, 64), "is not a field of a manifest");
  }
  return {};
}

Result<std::string> text(const Json& object, const char* key, const std::string& field, size_t most) {
  PF_TRY(const Json* value, member(object, key, field));
  if (!value->is_string()) return wrong(field, "must be a string");
  if (value->get_ref<const std::string&>().size() > most) return wrong(field, fmt::format("has more than {} bytes", most));
  return value->get<std::string>();
}

Result<uint64_t> number(const Json& object, const char* key, const std::string& field, uint64_t most) {
  PF_TRY(const Json* value, member(object, key, field));
  if (!value->is_number_unsigned() || value->get<uint64_t>() > most)
    return wrong(field, fmt::format("must be a whole number from 0 to {}", most));
  return value->get<uint64_t>();
}

Result<const Json*> list(const Json& object, const char* key, const std::string& field, size_t least, size_t most) {
  PF_TRY(const Json* value, member(object, key, field));
  if (!value->is_array() || value->size() < least || value->size() > most)
    return wrong(field, fmt::format("must be a list of {} to {}", least, most));
  return value;
}

Result<std::vector<int32_t>> tokens(const Json& object, const char* key, const std::string& field, size_t most) {
  PF_TRY(const Json* values, list(object, key, field, 1, most));
  std::vector<int32_t> out;
  for (const Json& value : *values) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > std::numeric_limits<int32_t>::max())
      return wrong(field, "must hold token ids");
    out.push_back(value.get<int32_t>());
  }
  return out;
}

Result<void> read_files(const Json& root, Manifest& manifest) {
  PF_TRY(const Json* files, list(root, "files", "files", 1, kMostFiles));
  for (size_t index = 0; index < files->size(); ++index) {
    const Json& item = (*files)[index];
    const std::string field = fmt::format("files[{}]", index);
    PF_CHECK_OK(check_object(item, {"name", "size_bytes", "sha256"}, field));
    ManifestFile file;
    PF_TRY(file.name, text(item, "name", field + ".name", 255));
    if (file.name.empty() || file.name.front() == '.' || file.name.find_first_of(std::string("/\\\0", 3)) != std::string::npos)
      return wrong(field + ".name", "must be the name of a file, without folders");
    PF_TRY(file.size_bytes, number(item, "size_bytes", field + ".size_bytes", kMostFileBytes));
    PF_TRY(file.sha256, text(item, "sha256", field + ".sha256", 64));
    if (!is_sha256(file.sha256)) return wrong(field + ".sha256", "must be 64 digits of lower-case hex");
    manifest.files.push_back(std::move(file));
  }
  return {};
}

Result<void> read_golden(const Json& root, Manifest& manifest) {
  PF_TRY(const Json* prompts, list(root, "golden", "golden", 0, kMostGolden));
  for (size_t index = 0; index < prompts->size(); ++index) {
    const Json& item = (*prompts)[index];
    const std::string field = fmt::format("golden[{}]", index);
    PF_CHECK_OK(check_object(item, {"prompt", "prompt_tokens", "tokens"}, field));
    ManifestPrompt prompt;
    PF_TRY(prompt.prompt, text(item, "prompt", field + ".prompt", kMostPromptBytes));
    PF_TRY(prompt.prompt_tokens, tokens(item, "prompt_tokens", field + ".prompt_tokens", kMostPromptTokens));
    PF_TRY(prompt.tokens, tokens(item, "tokens", field + ".tokens", kMostTokens));
    manifest.golden.push_back(std::move(prompt));
  }
  return {};
}

// "0.4.0" and "0.4.0-dev": three numbers, each at most 999,999.
std::optional<std::array<uint32_t, 3>> version_of(std::string_view text) {
  text = text.substr(0, text.find('-'));
  std::array<uint32_t, 3> out{};
  const char* at = text.data();
  const char* end = text.data() + text.size();
  for (size_t place = 0; place < out.size(); ++place) {
    if (place > 0 && (at == end || *at++ != '.')) return std::nullopt;
    const auto parsed = std::from_chars(at, end, out[place]);
    if (parsed.ec != std::errc() || out[place] > 999'999) return std::nullopt;
    at = parsed.ptr;
  }
  if (at != end) return std::nullopt;
  return out;
}

Result<void> read_engine(const Json& root, Manifest& manifest) {
  PF_TRY(const Json* engine, member(root, "engine", "engine"));
  PF_CHECK_OK(check_object(*engine, {"name", "from", "to"}, "engine"));
  PF_TRY(manifest.engine_name, text(*engine, "name", "engine.name", 64));
  PF_TRY(manifest.engine_from, text(*engine, "from", "engine.from", 64));
  PF_TRY(manifest.engine_to, text(*engine, "to", "engine.to", 64));
  if (!version_of(manifest.engine_from)) return wrong("engine.from", "must be a version like 0.4.0");
  if (!version_of(manifest.engine_to)) return wrong("engine.to", "must be a version like 0.4.0");
  if (*version_of(manifest.engine_to) < *version_of(manifest.engine_from)) return wrong("engine.to", "is before engine.from");
  return {};
}

Json body_of(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files)
    files.push_back({{"name", file.name}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
  Json golden = Json::array();
  for (const ManifestPrompt& prompt : manifest.golden)
    golden.push_back({{"prompt", prompt.prompt}, {"prompt_tokens", prompt.prompt_tokens}, {"tokens", prompt.tokens}});
  return {{"format", kFormat},
          {"version", kVersion},
          {"name", manifest.name},
          {"source", manifest.source},
          {"files", std::move(files)},
          {"licence", manifest.licence},
          {"chat_template_sha256", manifest.chat_template_sha256},
          {"engine", {{"name", manifest.engine_name}, {"from", manifest.engine_from}, {"to", manifest.engine_to}}},
          {"golden", std::move(golden)}};
}

}  // namespace

Result<Manifest> parse_manifest(std::string_view input) {
  JsonLimits limits;
  limits.max_depth = 8;
  limits.max_bytes = kMostManifestBytes;
  PF_TRY(const Json root, parse_json(input, limits));
  PF_CHECK_OK(check_object(
      root, {"format", "version", "name", "source", "files", "licence", "chat_template_sha256", "engine", "golden", "signature"},
      "manifest"));
  PF_TRY(const std::string format, text(root, "format", "format", 64));
  if (format != kFormat) return wrong("format", fmt::format("must be \"{}\"", kFormat));
  PF_TRY(const uint64_t version, number(root, "version", "version", 1'000'000));
  if (version != kVersion)
    return wrong("version", fmt::format("is {}, and this program reads {}: it may be too old", version, kVersion));
  Manifest manifest;
  PF_TRY(manifest.name, text(root, "name", "name", 128));
  if (manifest.name.empty() ||
      manifest.name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != std::string::npos)
    return wrong("name", "must be 1 to 128 letters, digits, '.', '_', '-'");
  PF_TRY(manifest.source, text(root, "source", "source", 4096));
  if (manifest.source.empty()) return wrong("source", "must not be empty");
  PF_CHECK_OK(read_files(root, manifest));
  PF_TRY(manifest.licence, text(root, "licence", "licence", 256));
  PF_TRY(manifest.chat_template_sha256, text(root, "chat_template_sha256", "chat_template_sha256", 64));
  if (!manifest.chat_template_sha256.empty() && !is_sha256(manifest.chat_template_sha256))
    return wrong("chat_template_sha256", "must be 64 digits of lower-case hex, or empty");
  PF_CHECK_OK(read_engine(root, manifest));
  PF_CHECK_OK(read_golden(root, manifest));
  if (const auto signature = root.find("signature"); signature != root.end()) {
    PF_CHECK_OK(check_object(*signature, {"key", "value"}, "signature"));
    PF_TRY(manifest.signature_key, text(*signature, "key", "signature.key", 64));
    PF_TRY(manifest.signature_value, text(*signature, "value", "signature.value", 128));
    if (manifest.signature_key.empty() || manifest.signature_value.empty()) return wrong("signature", "must not be empty");
  }
  return manifest;
}

std::string print_manifest(const Manifest& manifest) {
  Json root = body_of(manifest);
  if (!manifest.signature_key.empty()) root["signature"] = {{"key", manifest.signature_key}, {"value", manifest.signature_value}};
  // One line a field; token ids do not get a line each.
  std::string out = "{\n";
  size_t left = root.size();
  for (const auto& [key, value] : root.items())
    out += fmt::format("  \"{}\": {}{}\n", key, dump_json(value), --left > 0 ? "," : "");
  return out + "}\n";
}

std::string signed_bytes(const Manifest& manifest) {
  return dump_json(body_of(manifest));
}

Result<void> check_engine(const Manifest& manifest, std::string_view engine, std::string_view version) {
  const auto ours = version_of(version);
  if (manifest.engine_name == engine && ours && *version_of(manifest.engine_from) <= *ours &&
      *ours <= *version_of(manifest.engine_to))
    return {};
  return fail(ErrorCode::kUnsupportedParameter,
              fmt::format("the manifest of {} was made for {} {} to {}, and this is {} {}: try the model here and make a new "
                          "manifest, or use another build",
                          manifest.name, manifest.engine_name, manifest.engine_from, manifest.engine_to, engine, version),
              "engine");
}

}  // namespace pocketfleet
