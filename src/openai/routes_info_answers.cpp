#include "openai/routes_info_answers.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/utf8.h"
#include "openai/suggest.h"

namespace pocketfleet {

namespace {

constexpr size_t kMostTokenizeBytes = 1u << 20;

tl::unexpected<Error> wrong(std::string param, std::string_view what) {
  std::string message = "\"" + param + "\" " + std::string(what);
  return fail(ErrorCode::kInvalidArgument, std::move(message), std::move(param));
}

Result<void> check_body(const Json& body, std::span<const std::string_view> known, std::string_view route) {
  if (!body.is_object()) return fail(ErrorCode::kInvalidArgument, "the body must be a JSON object");
  for (const auto& [key, value] : body.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string name = shown_key(key);
    std::string message = "\"" + name + "\" is not a parameter of " + std::string(route) + did_you_mean(name, known);
    return fail(ErrorCode::kUnsupportedParameter, std::move(message), std::move(name));
  }
  return {};
}

Result<bool> read_flag(const Json& body, const char* key) {
  const auto found = body.find(key);
  if (found == body.end() || found->is_null()) return false;
  if (!found->is_boolean()) return wrong(key, "must be true or false");
  return found->get<bool>();
}

// As llama-server writes it: a string where the bytes are UTF-8, else the bytes as numbers.
Json piece_of(const std::string& bytes) {
  if (is_valid_utf8(bytes)) return bytes;
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

}  // namespace

Json model_answer(const Engine& engine, const std::string& name, int64_t created, const std::vector<std::string>& profiles) {
  const ModelInfo info = engine.model();
  Json answer = {{"id", name}, {"object", "model"}, {"created", created}, {"owned_by", "pocketfleet"}, {"profiles", profiles}};
  // Nothing is known of the model until it is loaded; a zero would be read as a fact.
  if (info.context_tokens > 0) {
    answer["max_model_len"] = info.context_tokens;
    answer["meta"] = {{"description", info.description},
                      {"architecture", info.architecture},
                      {"n_vocab", info.vocabulary},
                      {"n_ctx", info.context_tokens},
                      {"n_ctx_train", info.trained_context_tokens},
                      {"n_params", info.parameters},
                      {"size", info.size_bytes},
                      {"slots", info.slots},
                      {"thinking", info.supports_thinking}};
    if (info.embedding_dimensions > 0) answer["meta"]["n_embd_out"] = info.embedding_dimensions;
  }
  return answer;
}

std::pair<int, Json> health_answer(const Engine& engine, const Json& warming) {
  const EngineStatus status = engine.status();
  const auto unavailable = [](const char* name, std::string message) {
    const bool passes = std::string_view(name) == "loading" || std::string_view(name) == "warming";
    const ErrorMapping mapping = map_error(passes ? ErrorCode::kLoading : ErrorCode::kUnavailable);
    return Json{
        {"status", name},
        {"error",
         {{"message", std::move(message)}, {"type", mapping.openai_type}, {"param", nullptr}, {"code", mapping.openai_code}}}};
  };
  switch (status.state) {
    case EngineState::kReady:
      if (!warming.is_null()) {
        Json body = unavailable("warming", "the fixed parts of the profiles are still being read; requests are served");
        body.update(warming);
        return {503, std::move(body)};
      }
      return {200, {{"status", "ok"}, {"running", status.running}, {"queued", status.queued}}};
    case EngineState::kLoading: {
      Json body = unavailable("loading", "the model is still being loaded");
      body["progress"] = status.progress;
      body["phase"] = status.phase;
      return {503, std::move(body)};
    }
    case EngineState::kFailed:
      return {503, unavailable("failed", "the model could not be loaded: " + status.error.message)};
    case EngineState::kStopped:
      break;
  }
  return {503, unavailable("stopping", "the server is going away")};
}

Result<Json> tokenize_answer(const Engine& engine, const Json& body) {
  static constexpr std::array<std::string_view, 5> kKeys = {"content", "add_special", "parse_special", "with_pieces", "model"};
  PF_CHECK_OK(check_body(body, kKeys, "/tokenize"));
  const auto content = body.find("content");
  if (content == body.end()) return wrong("content", "is missing");
  if (!content->is_string()) return wrong("content", "must be a string");
  if (const size_t bytes = content->get_ref<const std::string&>().size(); bytes > kMostTokenizeBytes) {
    return wrong("content", "has " + std::to_string(bytes) + " bytes; at most " + std::to_string(kMostTokenizeBytes) +
                                " are turned into tokens in one request");
  }
  PF_TRY(const bool add_special, read_flag(body, "add_special"));
  PF_TRY(const bool parse_special, read_flag(body, "parse_special"));
  PF_TRY(const bool with_pieces, read_flag(body, "with_pieces"));

  PF_TRY(const Tokens tokens, engine.tokenize(content->get_ref<const std::string&>(), add_special, parse_special));
  if (!with_pieces) return Json{{"tokens", tokens}};
  Json list = Json::array();
  for (const Token token : tokens) {
    PF_TRY(const std::string bytes, engine.detokenize(std::span(&token, 1), true));
    list.push_back({{"id", token}, {"piece", piece_of(bytes)}});
  }
  return Json{{"tokens", std::move(list)}};
}

Result<Json> detokenize_answer(const Engine& engine, const Json& body) {
  static constexpr std::array<std::string_view, 2> kKeys = {"tokens", "model"};
  PF_CHECK_OK(check_body(body, kKeys, "/detokenize"));
  const auto found = body.find("tokens");
  if (found == body.end()) return wrong("tokens", "is missing");
  if (!found->is_array()) return wrong("tokens", "must be an array of whole numbers");
  if (found->size() > kMaxDetokenizeTokens) return wrong("tokens", "holds more than 1,048,576 tokens");
  Tokens tokens;
  tokens.reserve(found->size());
  for (size_t index = 0; index < found->size(); ++index) {
    const Json& item = (*found)[index];
    // Negative and huge numbers are not in any vocabulary; the check keeps them from wrapping into one.
    const int64_t value = item.is_number_integer() ? item.get<int64_t>() : -1;
    const bool fits = value >= 0 && value <= std::numeric_limits<Token>::max();
    if (!fits) return wrong("tokens[" + std::to_string(index) + "]", "is not a token");
    tokens.push_back(static_cast<Token>(value));
  }
  auto text = engine.detokenize(tokens, true);
  if (!text) {
    Error error = text.error();
    if (error.code == ErrorCode::kInvalidArgument) error.param = "tokens";
    return fail(std::move(error));
  }
  return Json{{"content", sanitize_utf8(*text)}};
}

}  // namespace pocketfleet
