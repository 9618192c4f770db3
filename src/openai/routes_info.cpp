// GET /v1/models, /models, /v1/models/{id}, /health and /metrics; POST /tokenize and /detokenize.
#include <nlohmann/json.hpp>

#include "openai/route.h"
#include "openai/routes_info_answers.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

constexpr std::string_view kModelPath = "/models/";

Json this_model(const RouteContext& context) {
  return model_answer(context.engine, context.options.model_name, context.options.created, context.profiles.names());
}

asio::awaitable<void> list_models(RouteContext& context) {
  Json list = {{"object", "list"}, {"data", Json::array()}};
  list["data"].push_back(this_model(context));
  co_await send_json(context, 200, list);
}

asio::awaitable<void> show_model(RouteContext& context) {
  const std::string& path = context.request.path;
  const Json asked = {{"model", path.substr(path.find(kModelPath) + kModelPath.size())}};
  if (const auto known = check_model(context.options, asked); !known) {
    co_await send_error(context, known.error());
    co_return;
  }
  const Json answer = this_model(context);
  co_await send_json(context, 200, answer);
}

asio::awaitable<void> health(RouteContext& context) {
  const auto [status, body] = health_answer(context.engine, context.warm_up.progress());
  net::HttpResponse response;
  response.status = status;
  response.headers.set("content-type", "application/json");
  if (status != 200) response.headers.set("retry-after", "1");
  response.body = dump_json(body);
  static_cast<void>(co_await context.writer.send(std::move(response)));
}

asio::awaitable<void> metrics(RouteContext& context) {
  net::HttpResponse response;
  response.headers.set("content-type", Metrics::kContentType);
  response.body = context.metrics.render(context.engine);
  static_cast<void>(co_await context.writer.send(std::move(response)));
}

using TokenAnswer = Result<Json> (*)(const Engine&, const Json&);

asio::awaitable<void> answer_tokens(RouteContext& context, TokenAnswer make) {
  const auto body = read_body(context.request);
  const Result<Json> answer = body ? make(context.engine, *body) : fail(body.error());
  if (answer) {
    co_await send_json(context, 200, *answer);
  } else {
    co_await send_error(context, answer.error());
  }
}

}  // namespace

void add_info_routes(Router& router) {
  router.add_v1("GET", "/models", list_models);
  router.add_v1("GET", "/models/*", show_model);
  router.add("GET", "/health", health, false);
  router.add("GET", "/metrics", metrics);
  router.add("POST", "/tokenize", [](RouteContext& context) { return answer_tokens(context, tokenize_answer); });
  router.add("POST", "/detokenize", [](RouteContext& context) { return answer_tokens(context, detokenize_answer); });
}

}  // namespace pocketfleet
