#include "net/http_connection.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <ctime>

#include "base/clock.h"
#include "base/log.h"
#include "net/url.h"

namespace pocketfleet::net {

namespace {

constexpr size_t kReadBytes = 16u << 10;
// Bytes of later requests that are kept while an answer is being made. Beyond it the connection is not read, and so not watched.
constexpr size_t kMaxPipelinedBytes = 64u << 10;
// After a refusal, what the client still sends is read and dropped for a while: closing at once would destroy the answer.
constexpr size_t kLingerBytes = 1u << 20;
constexpr int64_t kLingerMs = 1'000;

// Formatting a date costs more than the rest of a small answer, so each thread keeps the last second's.
std::string_view http_date() {
  thread_local std::time_t last = 0;
  thread_local char text[40];
  thread_local size_t length = 0;
  const std::time_t now = std::time(nullptr);
  if (now != last) {
    static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::tm utc{};
    gmtime_r(&now, &utc);
    const int count = std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[utc.tm_wday], utc.tm_mday,
                                    kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
    length = static_cast<size_t>(count);
    last = now;
  }
  return {text, length};
}

void append_number(std::string& out, size_t value, int base = 10) {
  char digits[24];
  const auto result = std::to_chars(digits, digits + sizeof digits, value, base);
  out.append(digits, result.ptr);
}

// A header whose value came from outside must not become two headers.
void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  const size_t at = out.size();
  out.append(value);
  std::replace_if(
      out.begin() + static_cast<std::ptrdiff_t>(at), out.end(), [](char c) { return c == '\r' || c == '\n' || c == '\0'; }, ' ');
  out.append("\r\n");
}

bool is_name(std::string_view name) {
  return !name.empty() &&
         std::none_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) <= 32 || c == ':'; });
}

}  // namespace

bool ServerCore::admit(const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (count_ >= options.max_connections) return false;
  if (!address.empty()) {
    size_t& count = per_address_[address];
    if (count >= options.max_connections_per_ip) return false;
    ++count;
  }
  ++count_;
  return true;
}

void ServerCore::release(const std::string& address) {
  const std::lock_guard lock(mutex_);
  --count_;
  if (address.empty()) return;
  const auto found = per_address_.find(address);
  if (found != per_address_.end() && --found->second == 0) per_address_.erase(found);
}

void ServerCore::enter(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  connections_.emplace(connection.get(), connection);
}

void ServerCore::leave(Connection* connection) {
  const std::lock_guard lock(mutex_);
  connections_.erase(connection);
}

std::vector<std::shared_ptr<Connection>> ServerCore::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Connection>> out;
  for (const auto& [pointer, weak] : connections_) {
    if (auto connection = weak.lock()) out.push_back(std::move(connection));
  }
  return out;
}

Connection::Connection(std::shared_ptr<ServerCore> core, std::unique_ptr<Stream> stream, std::string address)
    : core_(std::move(core)), stream_(std::move(stream)), address_(std::move(address)) {}

Connection::~Connection() {
  stream_.reset();
  core_->leave(this);
  core_->release(address_);
}

void Connection::start(std::shared_ptr<ServerCore> core, std::unique_ptr<Stream> stream, std::string address) {
  auto connection = std::make_shared<Connection>(core, std::move(stream), std::move(address));
  core->enter(connection);
  const auto executor = connection->stream_->executor();
  asio::co_spawn(
      executor, [connection]() -> asio::awaitable<void> { return connection->run(); }, asio::detached);
}

void Connection::drain() {
  asio::post(stream_->executor(), [self = shared_from_this()] {
    if (self->idle_) self->stream_->cancel_read();
  });
}

void Connection::abort() {
  asio::post(stream_->executor(), [self = shared_from_this()] {
    self->closed_ = true;
    if (self->request_) self->request_->gone.cancel();
    self->stream_->close();
  });
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  for (;;) {
    if (input_.empty()) {
      idle_ = true;
      if (core_->draining) break;
      input_.shrink_to_fit();
      const auto count = co_await stream_->read_some(small_, sizeof small_, core_->options.idle_timeout_ms);
      idle_ = false;
      if (!count || *count == 0) break;
      input_.assign(small_, *count);
    }
    if (!co_await serve_one()) break;
  }
  idle_ = false;
  if (!closed_) co_await stream_->shutdown(kLingerMs);
  stream_->close();
}

asio::awaitable<bool> Connection::serve_one() {
  RequestParser parser({core_->options.max_header_bytes, core_->options.max_body_bytes});
  state_ = State::kWaiting;
  head_only_ = bodiless_ = false;
  keep_alive_ = http_1_0_ = false;
  if (!co_await read_request(parser)) co_return false;
  HttpRequest& request = parser.request();
  request.remote = stream_->peer();
  keep_alive_ = parser.keep_alive();
  http_1_0_ = parser.http_1_0();
  head_only_ = request.method == "HEAD";
  co_await handle(request);
  co_return state_ == State::kEnded&& keep_alive_ && !closed_;
}

asio::awaitable<bool> Connection::read_request(RequestParser& parser) {
  const ServerOptions& options = core_->options;
  int64_t until = now_ms() + options.header_timeout_ms;
  bool header_seen = false;
  for (;;) {
    const size_t taken = parser.put(input_);
    if (taken == input_.size()) {
      input_.clear();
    } else {
      input_.erase(0, taken);
    }
    if (parser.error_status()) {
      co_await refuse(parser.error_status(), parser.error_message());
      co_return false;
    }
    if (parser.header_done() && !header_seen) {
      header_seen = true;
      const int64_t now = now_ms();
      parser.request().received_ms = now;
      until = now + options.body_timeout_ms;
      if (!parser.done() && parser.expects_continue()) {
        const auto sent = co_await stream_->write("HTTP/1.1 100 Continue\r\n\r\n", options.write_timeout_ms);
        if (!sent) co_return false;
      }
    }
    if (parser.done()) co_return true;
    const size_t before = input_.size();
    // While only a header is coming in, an address with thousands of slow connections must not hold a large buffer for each.
    const size_t room = header_seen || before >= sizeof small_ ? kReadBytes : sizeof small_;
    input_.resize(before + room);
    const auto count = co_await stream_->read_some(input_.data() + before, room, std::max<int64_t>(until - now_ms(), 0));
    input_.resize(before + count.value_or(0));
    if (!count && count.error().code == ErrorCode::kDeadlineExceeded) {
      co_await refuse(408, header_seen ? "the body did not come in time" : "the header did not come in time");
      co_return false;
    }
    if (!count || *count == 0) co_return false;
  }
}

asio::awaitable<void> Connection::handle(HttpRequest& request) {
  request_ = &request;
  handling_ = true;
  const uint64_t serial = ++serial_;
  // Runs only once the handler waits for something: an answer that is made at once needs nobody to watch the client.
  asio::post(stream_->executor(), [self = shared_from_this(), serial] {
    if (!self->handling_ || self->serial_ != serial || self->watching_) return;
    self->watching_ = true;
    asio::co_spawn(
        self->stream_->executor(), [self]() -> asio::awaitable<void> { return self->watch(); }, asio::detached);
  });
  std::string problem;
  try {
    co_await core_->handler(request, *this);
    if (state_ == State::kWaiting) problem = "the handler gave no answer";
    if (state_ == State::kStreaming) problem = "the handler did not end its answer";
  } catch (const std::exception& error) {
    problem = error.what();
  } catch (...) {
    problem = "an exception of unknown type";
  }
  if (!problem.empty() && !closed_) {
    log_error("http_handler_failed", {{"method", request.method}, {"path", request.path}, {"reason", problem}});
    if (state_ == State::kWaiting) {
      HttpResponse response;
      response.status = 500;
      if (core_->error_body) {
        response.body = core_->error_body(500, "the server failed to answer; the reason is in its log");
        response.headers.add("content-type", "application/json");
      }
      co_await send(std::move(response));
    }
  }
  handling_ = false;
  co_await stop_watching();
  request_ = nullptr;
}

asio::awaitable<void> Connection::stop_watching() {
  if (!watching_) co_return;
  stream_->cancel_read();
  if (!watch_ended_) watch_ended_.emplace(stream_->executor());
  while (watching_) {
    boost::system::error_code ignored;
    watch_ended_->expires_at(asio::steady_timer::time_point::max());
    co_await watch_ended_->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

asio::awaitable<void> Connection::watch() {
  const auto self = shared_from_this();
  while (handling_ && !closed_ && input_.size() < kMaxPipelinedBytes) {
    const auto count = co_await stream_->read_some(small_, sizeof small_, kNoDeadline);
    if (count && *count > 0) {
      input_.append(small_, *count);
      continue;
    }
    if (!count && count.error().code == ErrorCode::kCancelled) break;
    closed_ = true;
    if (handling_ && state_ != State::kEnded && request_) request_->gone.cancel();
  }
  watching_ = false;
  if (watch_ended_) watch_ended_->cancel();
}

asio::awaitable<void> Connection::refuse(int status, std::string_view message) {
  keep_alive_ = false;
  HttpResponse response;
  response.status = status;
  if (core_->error_body) {
    response.body = core_->error_body(status, message);
    response.headers.add("content-type", "application/json");
  } else {
    response.body = std::string(message) + "\n";
    response.headers.add("content-type", "text/plain; charset=utf-8");
  }
  const auto sent = co_await send(std::move(response));
  if (sent) co_await linger();
}

asio::awaitable<void> Connection::linger() {
  co_await stream_->shutdown(kLingerMs);
  input_.clear();
  const int64_t until = now_ms() + kLingerMs;
  for (size_t dropped = 0; dropped < kLingerBytes && !core_->draining;) {
    const int64_t left = until - now_ms();
    if (left <= 0) break;
    input_.resize(kReadBytes);
    const auto count = co_await stream_->read_some(input_.data(), input_.size(), left);
    if (!count || *count == 0) break;
    dropped += *count;
  }
  closed_ = true;
}

std::string Connection::head(int status, const Headers& headers, std::optional<size_t> length) {
  std::string out;
  out.reserve(256 + length.value_or(0));
  out.append(http_1_0_ ? "HTTP/1.0 " : "HTTP/1.1 ");
  append_number(out, static_cast<size_t>(std::clamp(status, 100, 999)));
  out.append(" ").append(reason_phrase(status)).append("\r\ndate: ").append(http_date()).append("\r\n");
  for (const auto& [name, value] : headers.items()) {
    if (!is_name(name)) continue;
    // How the message is framed is decided here alone.
    if (equals_ignoring_case(name, "content-length") || equals_ignoring_case(name, "transfer-encoding")) continue;
    if (equals_ignoring_case(name, "connection")) {
      if (equals_ignoring_case(value, "close")) keep_alive_ = false;
      continue;
    }
    append_header(out, name, value);
  }
  bodiless_ = head_only_ || status == 204 || status == 304 || status < 200;
  if (core_->draining) keep_alive_ = false;
  if (length) {
    if (status != 204 && status != 304 && status >= 200) {
      out.append("content-length: ");
      append_number(out, *length);
      out.append("\r\n");
    }
  } else if (http_1_0_) {
    keep_alive_ = false;  // the end of the connection is the end of the body
  } else if (status != 204 && status != 304) {
    out.append("transfer-encoding: chunked\r\n");
  }
  if (!keep_alive_) {
    out.append("connection: close\r\n");
  } else if (http_1_0_) {
    out.append("connection: keep-alive\r\n");
  }
  out.append("\r\n");
  return out;
}

asio::awaitable<Result<void>> Connection::put(std::string_view bytes) {
  if (closed_) co_return fail(ErrorCode::kConnectionClosed, "the client has closed its connection");
  auto result = co_await stream_->write(bytes, core_->options.write_timeout_ms);
  if (!result) {
    closed_ = true;
    if (request_) request_->gone.cancel();
  }
  co_return result;
}

asio::awaitable<Result<void>> Connection::send(HttpResponse response) {
  if (state_ != State::kWaiting) co_return fail(ErrorCode::kInternal, "the request is answered already");
  std::string out = head(response.status, response.headers, response.body.size());
  if (!bodiless_) out.append(response.body);
  state_ = State::kStreaming;
  auto result = co_await put(out);
  if (result) state_ = State::kEnded;
  co_return result;
}

asio::awaitable<Result<void>> Connection::begin(int status, Headers headers) {
  if (state_ != State::kWaiting) co_return fail(ErrorCode::kInternal, "the request is answered already");
  const std::string out = head(status, headers, std::nullopt);
  state_ = State::kStreaming;
  auto result = co_await put(out);
  co_return result;
}

asio::awaitable<Result<void>> Connection::write(std::string_view bytes) {
  if (state_ != State::kStreaming) co_return fail(ErrorCode::kInternal, "no streamed answer is open");
  if (bytes.empty() || bodiless_) co_return Result<void>();  // an empty chunk would end the body
  std::string out;
  if (http_1_0_) {
    out = bytes;
  } else {
    out.reserve(bytes.size() + 24);
    append_number(out, bytes.size(), 16);
    out.append("\r\n").append(bytes).append("\r\n");
  }
  auto result = co_await put(out);
  co_return result;
}

asio::awaitable<Result<void>> Connection::end() {
  if (state_ != State::kStreaming) co_return fail(ErrorCode::kInternal, "no streamed answer is open");
  Result<void> result;
  if (!bodiless_ && !http_1_0_) result = co_await put("0\r\n\r\n");
  if (result) state_ = State::kEnded;
  co_return result;
}

}  // namespace pocketfleet::net
