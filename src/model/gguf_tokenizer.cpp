// The tokenizer's arrays. llama.cpp reads scores and kinds by the tokens' number, and aborts where two tokens have the same text.
#include <algorithm>
#include <set>

#include "base/utf8.h"
#include "model/gguf_meta.h"

namespace pocketfleet {

namespace {

constexpr uint64_t kMostTokens = 1u << 22;

Result<const GgufValue*> array_of(const GgufFile& file, std::string_view key, std::initializer_list<GgufType> allowed) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return nullptr;
  const bool fits = value->type == GgufType::kArray && std::find(allowed.begin(), allowed.end(), value->element) != allowed.end();
  if (fits) return value;
  std::string wanted;
  for (const GgufType type : allowed) wanted += (wanted.empty() ? "" : " or ") + std::string(gguf_type_name(type));
  const std::string is = value->type == GgufType::kArray ? fmt::format("an array of {}", gguf_type_name(value->element))
                                                         : std::string(gguf_type_name(value->type));
  return fail(ErrorCode::kInvalidModel, fmt::format("{} is {}; it must be an array of {}", key, is, wanted));
}

// Sorting and not hashing: the texts are a stranger's, and their hashes may have been chosen to collide.
Result<void> check_distinct(const std::vector<std::string_view>& tokens) {
  std::vector<std::string_view> sorted = tokens;
  std::vector<std::string> stand_ins;  // what llama.cpp calls an empty token
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i].empty()) stand_ins.push_back(fmt::format("[EMPTY_{}]", i));
  }
  std::erase_if(sorted, [](std::string_view token) { return token.empty(); });
  sorted.insert(sorted.end(), stand_ins.begin(), stand_ins.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return {};
  return fail(ErrorCode::kInvalidModel,
              fmt::format("the token \"{}\" appears twice in tokenizer.ggml.tokens", sanitize_utf8(twice->substr(0, 80))));
}

// A SentencePiece vocabulary spells unknown characters byte by byte; llama.cpp throws where a byte has no token.
Result<void> check_byte_tokens(const std::vector<std::string_view>& tokens) {
  const std::set<std::string_view> known(tokens.begin(), tokens.end());
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(byte);
    if (!known.contains(fmt::format("<0x{:02X}>", byte)) && !known.contains(std::string_view(&raw, 1))) {
      return fail(ErrorCode::kInvalidModel, fmt::format("tokenizer.ggml.tokens has no token for the byte 0x{:02X}", byte));
    }
  }
  return {};
}

}  // namespace

Result<uint64_t> check_tokenizer(const GgufFile& file) {
  const GgufMeta meta(file, "tokenizer.ggml");
  PF_TRY(const std::string_view model, meta.string("tokenizer.ggml.model"));
  PF_CHECK_OK(meta.string("tokenizer.ggml.pre"));
  PF_CHECK_OK(meta.string("tokenizer.chat_template"));
  PF_TRY(const GgufValue* list, array_of(file, "tokenizer.ggml.tokens", {GgufType::kString}));
  PF_TRY(const GgufValue* scores, array_of(file, "tokenizer.ggml.scores", {GgufType::kF32, GgufType::kI32}));
  PF_TRY(const GgufValue* kinds, array_of(file, "tokenizer.ggml.token_type", {GgufType::kI32}));
  PF_CHECK_OK(array_of(file, "tokenizer.ggml.merges", {GgufType::kString}));
  PF_CHECK_OK(array_of(file, "tokenizer.ggml.suppress_tokens", {GgufType::kI32}));
  PF_CHECK_OK(array_of(file, "tokenizer.ggml.precompiled_charsmap", {GgufType::kI8, GgufType::kU8}));
  if (list == nullptr) return 0;

  if (list->count == 0 || list->count > kMostTokens) {
    return fail(ErrorCode::kInvalidModel,
                fmt::format("the tokenizer has {} tokens; 1 to {} are possible", list->count, kMostTokens));
  }
  for (const auto& [key, value] : {std::pair("scores", scores), std::pair("token_type", kinds)}) {
    if (value != nullptr && value->count < list->count) {
      return fail(ErrorCode::kInvalidModel,
                  fmt::format("tokenizer.ggml.{} has {} elements for {} tokens", key, value->count, list->count));
    }
  }
  const std::vector<std::string_view> tokens = list->strings();
  PF_CHECK_OK(check_distinct(tokens));
  if (model == "llama") PF_CHECK_OK(check_byte_tokens(tokens));
  for (const std::string_view name : {"bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask"}) {
    PF_CHECK_OK(meta.number(fmt::format("{}_token_id", name), 0, UINT32_MAX, 0));
  }
  return list->count;
}

}  // namespace pocketfleet
