// POST /v1/classify.
#include <nlohmann/json.hpp>

#include "base/ids.h"
#include "openai/classify.h"
#include "openai/route.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

asio::awaitable<Result<Json>> answer_classify(RouteContext& context) {
  PF_CO_TRY(const Json body, read_body(context.request));
  PF_CO_TRY(const ClassifyRequest request, read_classify_request(body));
  PF_CO_CHECK_OK(check_model(context.options, body));
  const Patience patience = caller_patience(context);
  auto result = co_await classify(context.engine, context.profiles, request, context.record.id, context.request.gone, patience);
  if (!result) co_return fail(result.error());
  context.record.usage = result->usage;
  co_return classify_answer(*result, make_id("classify-"), context.options.model_name, context.clock.unix_ms() / 1000);
}

asio::awaitable<void> classify_route(RouteContext& context) {
  const auto answer = co_await answer_classify(context);
  if (answer) {
    co_await send_json(context, 200, *answer);
  } else {
    co_await send_error(context, answer.error());
  }
}

}  // namespace

void add_classify_routes(Router& router) {
  router.add_v1("POST", "/classify", classify_route);
}

}  // namespace pocketfleet
