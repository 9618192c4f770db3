// POST /v1/embeddings: one vector a text, as numbers or as base64 of little-endian 32-bit floats.

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "crypto/base64.h"
#include "openai/engine_events.h"
#include "openai/params.h"
#include "openai/route.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

constexpr size_t kMostInputs = 2048;

struct EmbeddingsRequest {
  std::vector<Tokens> inputs;
  bool base64 = false;
};

// A text or token ids.
Result<Tokens> read_input(const Engine& engine, const Json& item, const std::string& param, int vocabulary) {
  if (item.is_array() && !item.empty()) return read_token_ids(item, param, vocabulary);
  if (!item.is_string() || item.get_ref<const std::string&>().empty())
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} must be a text or token ids, and not empty", param), param);
  const auto blame = [&](Error error) {
    error.param = param;
    return fail(std::move(error));
  };
  const std::string& text = item.get_ref<const std::string&>();
  if (const auto fits = engine.check_length(text); !fits) return blame(fits.error());
  auto tokens = engine.tokenize(text, true, false);
  if (!tokens) return blame(tokens.error());
  return tokens;
}

Result<EmbeddingsRequest> read_request(RouteContext& context) {
  PF_TRY(const Json body, read_model_body(context));
  const ModelInfo model = context.engine.model();
  ParamReader reader(body);
  EmbeddingsRequest request;
  reader.accept({"model", "user"});
  if (const auto format = reader.string("encoding_format", 64)) {
    request.base64 = *format == "base64";
    if (!request.base64 && *format != "float") reader.refuse("encoding_format", "encoding_format must be float or base64");
  }
  if (const auto dimensions = reader.integer("dimensions", 1, 1'000'000);
      dimensions && model.embedding_dimensions > 0 && *dimensions != model.embedding_dimensions) {
    reader.refuse("dimensions", fmt::format("dimensions must be {}, which is what this model gives", model.embedding_dimensions),
                  ErrorCode::kUnsupportedParameter);
  }
  const Json* input = reader.any("input");
  if (input == nullptr) reader.refuse("input", "input is missing: send a text or an array of texts");
  PF_CHECK_OK(reader.finish());
  const bool several = input->is_array() && !input->empty() && !input->front().is_number();
  if (!several) {
    PF_TRY(Tokens tokens, read_input(context.engine, *input, "input", model.vocabulary));
    request.inputs.push_back(std::move(tokens));
    return request;
  }
  if (input->size() > kMostInputs) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("input holds {} texts; at most {} are accepted in a request", input->size(), kMostInputs), "input");
  }
  for (size_t index = 0; index < input->size(); ++index) {
    PF_TRY(Tokens tokens, read_input(context.engine, (*input)[index], fmt::format("input[{}]", index), model.vocabulary));
    request.inputs.push_back(std::move(tokens));
  }
  return request;
}

std::string little_endian(const std::vector<float>& vector) {
  static_assert(std::endian::native == std::endian::little, "phones and PCs are");
  std::string bytes(vector.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), vector.data(), bytes.size());
  return bytes;
}

asio::awaitable<void> embed(RouteContext& context) {
  auto request = read_request(context);
  if (!request) {
    co_await send_error(context, request.error());
    co_return;
  }
  EmbedRequest work;
  work.id = context.record.id;
  work.inputs = std::move(request->inputs);
  work.deadline_ms = caller_patience(context).deadline_ms;
  work.cancel = context.request.gone;
  const auto mailbox = std::make_shared<EmbedMailbox>();
  const auto sink = std::make_shared<EmbedMailboxSink>(mailbox, work.inputs.size());
  if (const auto accepted = context.engine.embed(std::move(work), sink); !accepted) {
    co_await send_error(context, accepted.error());
    co_return;
  }
  const std::optional<EmbedAnswer> answered = co_await mailbox->pop(-1);
  if (!answered || !answered->done) {
    const Error error =
        answered ? answered->done.error() : Error{ErrorCode::kInternal, "the engine ended without an answer", {}, 0};
    co_await send_error(context, error);
    co_return;
  }
  const Usage& usage = *answered->done;
  context.record.usage = usage;
  Json data = Json::array();
  for (size_t index = 0; index < answered->vectors.size(); ++index) {
    const std::vector<float>& vector = answered->vectors[index];
    Json item = {{"object", "embedding"}, {"index", index}};
    item["embedding"] = request->base64 ? Json(to_base64(little_endian(vector))) : Json(vector);
    data.push_back(std::move(item));
  }
  const Json answer = {{"object", "list"},
                       {"model", context.options.model_name},
                       {"data", std::move(data)},
                       {"usage", {{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}}}};
  co_await send_json(context, 200, answer);
}

}  // namespace

void add_embeddings_routes(Router& router) {
  router.add_v1("POST", "/embeddings", embed);
}

}  // namespace pocketfleet
