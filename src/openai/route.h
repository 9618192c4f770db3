// One route a function: it gets the request, what the server is made of, and a writer. Each file adds its routes to the Router.
// Handlers run on the connection's strand, several at once; everything here may be used from any thread. Errors are answered with
// send_error(), which gives OpenAI's error body.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "engine/engine.h"
#include "net/http_server.h"
#include "openai/api.h"
#include "openai/metrics.h"
#include "openai/patience.h"
#include "openai/profile_prompt.h"
#include "openai/request_log.h"
#include "openai/warm_up.h"

namespace pocketfleet {

struct RouteContext {
  Engine& engine;
  ProfileSet& profiles;
  const ApiOptions& options;
  const WarmUp& warm_up;
  Metrics& metrics;
  const Clock& clock;
  net::HttpRequest& request;
  net::ResponseWriter& writer;
  RequestRecord& record;         // id is set; handlers fill in usage and error
  bool outlives_caller = false;  // another try may wait for the answer when this caller's time is up
};

using RouteHandler = std::function<boost::asio::awaitable<void>(RouteContext& context)>;

struct Route {
  std::string method;
  std::string path;  // exact; one ending in "/*" matches what is below it
  RouteHandler handler;
  bool needs_key = true;
};

class Router {
 public:
  void add(std::string method, std::string path, RouteHandler handler, bool needs_key = true);
  // Under /v1 and without it.
  void add_v1(const std::string& method, const std::string& path, const RouteHandler& handler, bool needs_key = true);

  const Route* find(std::string_view method, std::string_view path) const;
  // The methods of a path, for Allow; empty when there is no such path.
  std::vector<std::string> methods(std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

void add_chat_routes(Router& router);
void add_completion_routes(Router& router);
void add_responses_routes(Router& router);
void add_classify_routes(Router& router);
void add_embeddings_routes(Router& router);
void add_info_routes(Router& router);

boost::asio::awaitable<void> send_json(RouteContext& context, int status, const Json& body);
// Status, body, retry-after and record.error from the error.
boost::asio::awaitable<void> send_error(RouteContext& context, const Error& error);

// {"error": {message, type, param, code}}
Json error_json(const Error& error);
std::string error_body(const Error& error);
// The body of the request as a JSON object, or an error that says what it is instead.
Result<Json> read_body(const net::HttpRequest& request);
// The same for a route that needs the model: kLoading before anything else is looked at, then as check_model().
Result<Json> read_model_body(const RouteContext& context);
// kModelNotFound unless `model` is absent (null), the served name or an alias of it.
Result<void> check_model(const ApiOptions& options, const Json& body);
// When the caller's own patience ends, from x-stainless-read-timeout or x-stainless-timeout (seconds between two reads); 0 when
// it is not said. On a stream that is never silent for longer than `silence_ms` a more patient caller sets no deadline.
int64_t caller_deadline_ms(const net::HttpRequest& request, const Clock& clock, int64_t silence_ms = 0);

// The same for the engine.
Patience caller_patience(const RouteContext& context, int64_t silence_ms = 0);

}  // namespace pocketfleet
