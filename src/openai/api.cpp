#include "openai/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "openai/metrics.h"
#include "openai/retry_attach.h"
#include "openai/route.h"
#include "openai/warm_up.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

constexpr int kClientGone = 499;
// Official clients try again after at most 8 s.
constexpr int64_t kLinger_ms = 12'000;

// Puts the headers that every answer has on it, and remembers the status.
class TaggedWriter final : public net::ResponseWriter {
 public:
  TaggedWriter(net::ResponseWriter& inner, const net::HttpRequest& request, const CorsPolicy& cors, const std::string& id)
      : inner_(inner), request_(request), cors_(cors), id_(id) {}

  asio::awaitable<Result<void>> send(net::HttpResponse response) override {
    tag(response.headers);
    status_ = response.status;
    co_return note(co_await inner_.send(std::move(response)));
  }
  asio::awaitable<Result<void>> begin(int status, net::Headers headers) override {
    tag(headers);
    status_ = status;
    co_return note(co_await inner_.begin(status, std::move(headers)));
  }
  asio::awaitable<Result<void>> write(std::string_view bytes) override { co_return note(co_await inner_.write(bytes)); }
  asio::awaitable<Result<void>> end() override { co_return note(co_await inner_.end()); }
  bool started() const override { return inner_.started(); }

  int status() const { return gone_ ? kClientGone : status_; }

 private:
  void tag(net::Headers& headers) const {
    headers.set("x-request-id", id_);
    cors_.add_headers(request_, headers);
  }
  Result<void> note(Result<void> result) {
    gone_ = gone_ || !result;
    return result;
  }

  net::ResponseWriter& inner_;
  const net::HttpRequest& request_;
  const CorsPolicy& cors_;
  const std::string& id_;
  int status_ = 0;
  bool gone_ = false;
};

}  // namespace

void Router::add(std::string method, std::string path, RouteHandler handler, bool needs_key) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler), needs_key});
}

void Router::add_v1(const std::string& method, const std::string& path, const RouteHandler& handler, bool needs_key) {
  add(method, "/v1" + path, handler, needs_key);
  add(method, path, handler, needs_key);
}

namespace {

bool matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with("/*")) return route.path == path;
  const std::string_view stem = std::string_view(route.path).substr(0, route.path.size() - 1);
  return path.size() > stem.size() && path.starts_with(stem);
}

}  // namespace

const Route* Router::find(std::string_view method, std::string_view path) const {
  for (const Route& route : routes_) {
    if (route.method == method && matches(route, path)) return &route;
  }
  return nullptr;
}

std::vector<std::string> Router::methods(std::string_view path) const {
  std::vector<std::string> out;
  for (const Route& route : routes_) {
    if (matches(route, path) && std::find(out.begin(), out.end(), route.method) == out.end()) out.push_back(route.method);
  }
  return out;
}

Json error_json(const Error& error) {
  const ErrorMapping mapping = map_error(error.code);
  Json body;
  body["error"] = {{"message", error.message},
                   {"type", mapping.openai_type},
                   {"param", error.param.empty() ? Json(nullptr) : Json(error.param)},
                   {"code", mapping.openai_code.empty() ? Json(nullptr) : Json(mapping.openai_code)}};
  return body;
}

std::string error_body(const Error& error) {
  return dump_json(error_json(error));
}

asio::awaitable<void> send_json(RouteContext& context, int status, const Json& body) {
  net::HttpResponse response;
  response.status = status;
  response.headers.add("content-type", "application/json");
  response.body = dump_json(body);
  static_cast<void>(co_await context.writer.send(std::move(response)));
}

asio::awaitable<void> send_error(RouteContext& context, const Error& error) {
  context.record.error = error_name(error.code);
  net::HttpResponse response;
  response.status = map_error(error.code).http_status;
  response.headers.add("content-type", "application/json");
  const bool passes = error.code == ErrorCode::kQueueFull || error.code == ErrorCode::kLoading;
  // Official clients heed this one before the status.
  if (error.code == ErrorCode::kTooLate && error.retry_after_s == 0) response.headers.add("x-should-retry", "false");
  if (passes || error.retry_after_s > 0) {
    // Clients take a wait of more than two minutes for a mistake and choose their own.
    response.headers.add("retry-after", std::to_string(std::clamp(error.retry_after_s, 1, 120)));
  }
  if (error.code == ErrorCode::kUnauthenticated) response.headers.add("www-authenticate", "Bearer");
  response.body = error_body(error);
  static_cast<void>(co_await context.writer.send(std::move(response)));
}

Result<Json> read_body(const net::HttpRequest& request) {
  if (request.body.empty()) return fail(ErrorCode::kInvalidArgument, "the request has no body; a JSON object is expected");
  PF_TRY(Json body, parse_json(request.body));
  if (!body.is_object())
    return fail(ErrorCode::kInvalidArgument, fmt::format("the body must be a JSON object, not {}", body.type_name()));
  return body;
}

Result<void> check_model(const ApiOptions& options, const Json& body) {
  const auto found = body.find("model");
  if (found == body.end() || found->is_null()) return {};
  if (!found->is_string()) return fail(ErrorCode::kInvalidArgument, "model must be a string", "model");
  const std::string& name = found->get_ref<const std::string&>();
  if (name == options.model_name ||
      std::find(options.model_aliases.begin(), options.model_aliases.end(), name) != options.model_aliases.end()) {
    return {};
  }
  return fail(ErrorCode::kModelNotFound,
              fmt::format("The model '{}' does not exist here. Served: '{}'.", name.substr(0, 200), options.model_name), "model");
}

Result<Json> read_model_body(const RouteContext& context) {
  PF_TRY(Json body, read_body(context.request));
  PF_CHECK_OK(context.engine.tokenize("", false, false));
  PF_CHECK_OK(check_model(context.options, body));
  return body;
}

int64_t caller_deadline_ms(const net::HttpRequest& request, const Clock& clock, int64_t silence_ms) {
  auto header = request.headers.get("x-stainless-read-timeout");
  // The client for Python says that one; that for JavaScript says another, cut to whole seconds.
  int64_t cut_ms = 0;
  if (!header) {
    header = request.headers.get("x-stainless-timeout");
    cut_ms = 999;
  }
  if (!header) return 0;
  double seconds = 0;
  const auto [end, error] = std::from_chars(header->data(), header->data() + header->size(), seconds);
  if (error != std::errc() || end != header->data() + header->size() || !(seconds > 0) || seconds > 86'400) return 0;
  const auto patience_ms = static_cast<int64_t>(seconds * 1000) + cut_ms;
  return silence_ms > 0 && patience_ms > silence_ms ? 0 : clock.now_ms() + patience_ms;
}

Patience caller_patience(const RouteContext& context, int64_t silence_ms) {
  const int64_t by_ms = caller_deadline_ms(context.request, context.clock, silence_ms);
  return {context.outlives_caller ? 0 : by_ms, by_ms};
}

namespace {

// Keeps an answer in one piece.
class KeepingWriter final : public net::ResponseWriter {
 public:
  asio::awaitable<Result<void>> send(net::HttpResponse response) override {
    answer = std::move(response);
    started_ = true;
    co_return Result<void>{};
  }
  asio::awaitable<Result<void>> begin(int, net::Headers) override { return refuse(); }
  asio::awaitable<Result<void>> write(std::string_view) override { return refuse(); }
  asio::awaitable<Result<void>> end() override { return refuse(); }
  bool started() const override { return started_; }

  net::HttpResponse answer{500};

 private:
  asio::awaitable<Result<void>> refuse() { co_return fail(ErrorCode::kInternal, "this answer is not streamed"); }
  bool started_ = false;
};

}  // namespace

struct Api::Impl {
  Engine& engine;
  ProfileSet& profiles;
  ApiOptions options;
  const Clock& clock;
  WarmUp warm_up;
  RunningAnswers tries;
  Metrics metrics;
  Router router;

  asio::awaitable<void> handle(net::HttpRequest& request, net::ResponseWriter& writer) {
    RequestRecord record;
    record.id = choose_request_id(request.headers.get("x-request-id"));
    record.method = request.method;
    record.route = "none";
    const int64_t start_ms = clock.now_ms();
    TaggedWriter tagged(writer, request, options.cors, record.id);
    RouteContext context{engine, profiles, options, warm_up, metrics, clock, request, tagged, record};
    co_await dispatch(context);
    record.status = tagged.status();
    record.total_ms = clock.now_ms() - start_ms;
    log_request(record);
    metrics.observe(record);
  }

  // Through the answers that run, as this may be another try of one of them.
  asio::awaitable<void> share(RouteContext& context, const Route& route) {
    const int64_t by_ms = caller_deadline_ms(context.request, context.clock);
    RunningAnswers::Work work = [this, &route, id = context.record.id](net::HttpRequest& request) {
      return run_shared(route, request, id);
    };
    auto given =
        co_await tries.answer(context.request, context.record.key, by_ms > 0 ? by_ms - clock.now_ms() : 0, std::move(work));
    if (!given) {
      // The caller has gone; writing to it tells the record so.
      net::HttpResponse nobody(kClientGone);
      static_cast<void>(co_await context.writer.send(std::move(nobody)));
      co_return;
    }
    context.record.error = given->answer.error;
    // What was read is counted once.
    if (!given->attached) context.record.usage = given->answer.usage;
    if (given->attached) log_info("attached", {{"id", context.record.id}, {"route", route.path}});
    static_cast<void>(co_await context.writer.send(std::move(given->answer.response)));
  }

  asio::awaitable<RunningAnswers::Answer> run_shared(const Route& route, net::HttpRequest& request, std::string id) {
    KeepingWriter writer;
    RequestRecord record;
    record.id = std::move(id);
    RouteContext context{engine, profiles, options, warm_up, metrics, clock, request, writer, record, true};
    co_await route.handler(context);
    RunningAnswers::Answer answer;
    answer.response = std::move(writer.answer);
    answer.usage = record.usage;
    answer.error = record.error;
    co_return answer;
  }

  asio::awaitable<void> dispatch(RouteContext& context) {
    const net::HttpRequest& request = context.request;
    // A browser asks first, and without a key.
    if (request.method == "OPTIONS") {
      static_cast<void>(co_await context.writer.send(options.cors.preflight(request)));
      co_return;
    }
    const std::string_view method = request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
    const Route* route = router.find(method, request.path);
    if (route != nullptr) context.record.route = route->path;
    if (route == nullptr || route->needs_key) {
      auto key = options.keys.check(request.headers.get("authorization"));
      if (!key) {
        co_await send_error(context, key.error());
        co_return;
      }
      context.record.key = *key;
    }
    if (route != nullptr) {
      if (route->needs_key && RunningAnswers::concerns(request)) {
        co_await share(context, *route);
      } else {
        co_await route->handler(context);
      }
      co_return;
    }
    const auto methods = router.methods(request.path);
    if (methods.empty()) {
      const Error missing{
          ErrorCode::kNotFound,
          fmt::format("There is no {} {}. The routes are listed in docs/api.md.", request.method, request.path.substr(0, 200)),
          {},
          0};
      co_await send_error(context, missing);
      co_return;
    }
    const Error error{ErrorCode::kMethodNotAllowed, fmt::format("{} takes {}", request.path, fmt::join(methods, ", ")), {}, 0};
    context.record.error = error_name(error.code);
    net::HttpResponse response;
    response.status = map_error(error.code).http_status;
    response.headers = {{"content-type", "application/json"}, {"allow", fmt::format("{}", fmt::join(methods, ", "))}};
    response.body = error_body(error);
    static_cast<void>(co_await context.writer.send(std::move(response)));
  }
};

Api::Api(Engine& engine, ProfileSet& profiles, ApiOptions options, const Clock& clock)
    : impl_(new Impl{
          engine, profiles, std::move(options), clock, {engine, profiles, options.warm_up}, {clock, kLinger_ms}, {}, {}}) {
  add_chat_routes(impl_->router);
  add_completion_routes(impl_->router);
  add_responses_routes(impl_->router);
  add_classify_routes(impl_->router);
  add_embeddings_routes(impl_->router);
  add_info_routes(impl_->router);
}

Api::~Api() = default;

net::HttpHandler Api::handler() {
  return [impl = impl_.get()](net::HttpRequest& request, net::ResponseWriter& writer) { return impl->handle(request, writer); };
}

asio::awaitable<void> Api::warm_up() {
  return impl_->warm_up.run();
}

std::string Api::server_error_body(int status, std::string_view message) {
  Error error{ErrorCode::kInvalidArgument, std::string(message), {}, 0};
  switch (status) {
    case 408:
      error.code = ErrorCode::kRequestTimeout;
      break;
    case 413:
      error.code = ErrorCode::kPayloadTooLarge;
      break;
    case 431:
      error.code = ErrorCode::kHeaderTooLarge;
      break;
    case 500:
      error.code = ErrorCode::kInternal;
      break;
    case 503:
      error.code = ErrorCode::kUnavailable;
      break;
    default:
      break;
  }
  return error_body(error);
}

}  // namespace pocketfleet
