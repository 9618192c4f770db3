#include "net/http_client.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>
#include <list>
#include <thread>

#include "base/clock.h"
#include "net/http_parser.h"

namespace pocketfleet::net {

namespace {

constexpr size_t kReadBytes = 16u << 10;
constexpr int64_t kCancelPollMs = 50;

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

Result<std::string> serialize(const ClientRequest& request, const Url& url) {
  if (!is_token(request.method))
    return fail(ErrorCode::kInvalidArgument, "the method \"" + request.method + "\" is not a word", "method");
  std::string out = request.method + " " + url.target + " HTTP/1.1\r\n";
  if (!request.headers.contains("host")) out += "host: " + url.authority() + "\r\n";
  for (const auto& [name, value] : request.headers.items()) {
    if (equals_ignoring_case(name, "content-length") || equals_ignoring_case(name, "transfer-encoding")) continue;
    if (!is_token(name) || value.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
      return fail(ErrorCode::kInvalidArgument, "the header \"" + name + "\" holds a character that headers cannot hold", name);
    }
    out.append(name).append(": ").append(value).append("\r\n");
  }
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT" || request.method == "PATCH") {
    out += "content-length: " + std::to_string(request.body.size()) + "\r\n";
  }
  return out + "\r\n" + request.body;
}

}  // namespace

struct HttpClient::Impl {
  struct Idle {
    std::string origin;
    std::unique_ptr<Stream> stream;
  };
  // What one attempt came to.
  struct Attempt {
    Result<void> result;
    bool any_byte = false;  // of the answer: a second attempt could do the work twice
    bool keep = false;
  };

  ClientOptions options;
  std::list<Idle> idle;

  std::unique_ptr<Stream> take_idle(const std::string& origin) {
    const auto found = std::find_if(idle.begin(), idle.end(), [&](const Idle& entry) { return entry.origin == origin; });
    if (found == idle.end()) return nullptr;
    auto stream = std::move(found->stream);
    idle.erase(found);
    return stream;
  }

  void keep(const std::string& origin, std::unique_ptr<Stream> stream) {
    if (options.max_idle_connections == 0) return;
    if (idle.size() >= options.max_idle_connections) idle.pop_back();
    Idle entry;
    entry.origin = origin;
    entry.stream = std::move(stream);
    idle.push_front(std::move(entry));
  }

  asio::awaitable<Result<std::unique_ptr<Stream>>> open(const Url& url, int64_t timeout_ms) {
    if (url.scheme == Url::Scheme::kUnix) co_return co_await connect_unix(url.host, timeout_ms);
    if (url.scheme == Url::Scheme::kHttp) co_return co_await connect_tcp(url.host, url.port, timeout_ms);
    if (!options.tls) {
      PF_CO_TRY(options.tls, TlsContext::client(TlsOptions()));
    }
    co_return co_await connect_tls(options.tls, url.host, url.port, timeout_ms);
  }

  asio::awaitable<Attempt> attempt(Stream& stream, const ClientRequest& request, const std::string& bytes, int64_t until,
                                   const OnHeader& on_header, const OnBody& on_body);
  asio::awaitable<Result<void>> run(ClientRequest request, OnHeader on_header, OnBody on_body);
};

asio::awaitable<HttpClient::Impl::Attempt> HttpClient::Impl::attempt(Stream& stream, const ClientRequest& request,
                                                                     const std::string& bytes, int64_t until,
                                                                     const OnHeader& on_header, const OnBody& on_body) {
  Attempt out;
  const ParserLimits limits{options.max_header_bytes, options.max_body_bytes};
  auto parser = std::make_unique<ResponseParser>(limits, request.method == "HEAD");
  out.result = co_await stream.write(bytes, std::max<int64_t>(until - now_ms(), 0));
  // A server may refuse before it has read everything and close; its answer can still be there.
  std::string input;
  bool header_told = false;
  int64_t last_byte = now_ms();
  for (;;) {
    const size_t before = input.size();
    const int64_t now = now_ms();
    const int64_t left = std::min(until - now, options.stall_timeout_ms - (now - last_byte));
    if (request.cancel.cancelled()) {
      out.result = fail(ErrorCode::kCancelled, "the request was cancelled");
      co_return out;
    }
    if (left <= 0) {
      out.result = fail(ErrorCode::kDeadlineExceeded, "no complete answer from " + stream.peer() + " in time");
      co_return out;
    }
    input.resize(before + kReadBytes);
    const auto count = co_await stream.read_some(input.data() + before, kReadBytes, std::min(left, kCancelPollMs));
    input.resize(before + count.value_or(0));
    if (!count) {
      if (count.error().code == ErrorCode::kDeadlineExceeded) continue;
      if (out.result) out.result = fail(count.error());
      co_return out;
    }
    out.any_byte = out.any_byte || *count > 0;
    last_byte = now_ms();
    const bool ended = *count == 0;
    for (;;) {
      const size_t taken = parser->put(input);
      input.erase(0, taken);
      if (ended && !parser->done()) parser->put_end();
      if (parser->failed()) {
        out.result = fail(ended ? ErrorCode::kConnectionClosed : ErrorCode::kProtocol,
                          "the answer of " + stream.peer() + " is broken: " + std::string(parser->error_message()));
        co_return out;
      }
      // Interim answers come before the real one.
      if (parser->done() && parser->status() / 100 == 1 && parser->status() != 101) {
        parser = std::make_unique<ResponseParser>(limits, request.method == "HEAD");
        if (!input.empty() || ended) continue;
      }
      break;
    }
    if (parser->header_done() && !header_told) {
      header_told = true;
      if (on_header && !on_header(parser->status(), parser->headers())) {
        out.result = fail(ErrorCode::kCancelled, "the request was ended by its caller");
        co_return out;
      }
    }
    const std::string body = parser->take_body();
    if (!body.empty() && on_body && !on_body(body)) {
      out.result = fail(ErrorCode::kCancelled, "the request was ended by its caller");
      co_return out;
    }
    if (parser->done()) {
      // Bytes after the answer belong to no request: such a connection is not used again.
      out.keep = out.result.has_value() && parser->keep_alive() && input.empty() && !ended;
      out.result = Result<void>();
      co_return out;
    }
  }
}

asio::awaitable<Result<void>> HttpClient::Impl::run(ClientRequest request, OnHeader on_header, OnBody on_body) {
  PF_CO_TRY(const Url url, parse_url(request.url));
  PF_CO_TRY(const std::string bytes, serialize(request, url));
  const std::string origin = url.origin();
  const int64_t total = request.total_timeout_ms > 0 ? request.total_timeout_ms : options.total_timeout_ms;
  const int64_t until = now_ms() + total;
  while (auto stream = take_idle(origin)) {
    Attempt tried = co_await attempt(*stream, request, bytes, until, on_header, on_body);
    if (tried.keep) keep(origin, std::move(stream));
    const bool dead = !tried.result && !tried.any_byte &&
                      (tried.result.error().code == ErrorCode::kConnectionClosed || tried.result.error().code == ErrorCode::kIo);
    if (!dead) co_return std::move(tried.result);
  }
  auto opened = co_await open(url, std::max<int64_t>(std::min(options.connect_timeout_ms, until - now_ms()), 0));
  if (!opened) co_return fail(std::move(opened).error());
  Attempt tried = co_await attempt(**opened, request, bytes, until, on_header, on_body);
  if (tried.keep) keep(origin, std::move(*opened));
  co_return std::move(tried.result);
}

HttpClient::HttpClient(ClientOptions options) : impl_(std::make_shared<Impl>()) {
  impl_->options = std::move(options);
}
HttpClient::~HttpClient() = default;

asio::awaitable<Result<void>> HttpClient::stream(ClientRequest request, OnHeader on_header, OnBody on_body) {
  const auto impl = impl_;
  co_return co_await impl->run(std::move(request), std::move(on_header), std::move(on_body));
}

asio::awaitable<Result<HttpResponse>> HttpClient::request(ClientRequest request) {
  const auto impl = impl_;
  const auto response = std::make_shared<HttpResponse>();
  const OnHeader on_header = [response](int status, const Headers& headers) {
    response->status = status;
    response->headers = headers;
    return true;
  };
  const OnBody on_body = [response](std::string_view bytes) {
    response->body.append(bytes);
    return true;
  };
  auto result = co_await impl->run(std::move(request), on_header, on_body);
  if (!result) co_return fail(std::move(result).error());
  co_return std::move(*response);
}

void HttpClient::close_idle() {
  impl_->idle.clear();
}

struct BlockingHttpClient::Impl {
  explicit Impl(ClientOptions options)
      : client(std::move(options)), work(context.get_executor()), thread([this] { context.run(); }) {}
  ~Impl() {
    work.reset();
    context.stop();
    thread.join();
  }
  asio::io_context context{1};
  HttpClient client;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::thread thread;
};

BlockingHttpClient::BlockingHttpClient(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
BlockingHttpClient::~BlockingHttpClient() = default;

Result<HttpResponse> BlockingHttpClient::request(ClientRequest request) {
  return asio::co_spawn(impl_->context, impl_->client.request(std::move(request)), asio::use_future).get();
}

Result<void> BlockingHttpClient::stream(ClientRequest request, OnHeader on_header, OnBody on_body) {
  return asio::co_spawn(impl_->context, impl_->client.stream(std::move(request), std::move(on_header), std::move(on_body)),
                        asio::use_future)
      .get();
}

}  // namespace pocketfleet::net
