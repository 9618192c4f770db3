#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/clock.h"
#include "net/socket_state.h"
#include "net/sockets.h"

namespace pocketfleet::net {

namespace {

using boost::system::error_code;
using tcp = asio::ip::tcp;
using Socket = asio::generic::stream_protocol::socket;

asio::awaitable<Result<Socket>> connect_socket(std::string host, uint16_t port, int64_t timeout_ms) {
  const auto executor = co_await asio::this_coro::executor;
  const auto deadlines = std::make_shared<SocketDeadlines>(executor);
  const std::string name = host + ":" + std::to_string(port);
  const int64_t until = SystemClock::instance().now_ms() + timeout_ms;
  const auto left = [&] { return timeout_ms < 0 ? kNoDeadline : std::max<int64_t>(until - SystemClock::instance().now_ms(), 0); };
  std::vector<tcp::endpoint> endpoints;
  error_code ec;
  const auto address = asio::ip::make_address(host, ec);
  if (!ec) {
    endpoints.emplace_back(address, port);
  } else {
    tcp::resolver resolver(executor);
    deadlines->start(SocketDeadlines::kRead, left());
    const auto found = co_await resolver.async_resolve(
        host, std::to_string(port),
        asio::bind_cancellation_slot(deadlines->slot(SocketDeadlines::kRead), asio::redirect_error(asio::use_awaitable, ec)));
    const bool timed_out = deadlines->finish(SocketDeadlines::kRead);
    if (ec == asio::error::operation_aborted) co_return socket_error(ec, timed_out, "looking up " + host);
    if (ec) co_return fail(ErrorCode::kUnavailable, "no address is known for the host \"" + host + "\": " + ec.message());
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  }
  for (const auto& endpoint : endpoints) {
    tcp::socket socket(executor);
    deadlines->start(SocketDeadlines::kRead, left());
    co_await socket.async_connect(endpoint, asio::bind_cancellation_slot(deadlines->slot(SocketDeadlines::kRead),
                                                                         asio::redirect_error(asio::use_awaitable, ec)));
    const bool timed_out = deadlines->finish(SocketDeadlines::kRead);
    if (!ec) {
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      co_return Result<Socket>(Socket(std::move(socket)));
    }
    if (ec == asio::error::operation_aborted) co_return socket_error(ec, timed_out, "connecting to " + name);
  }
  co_return fail(ErrorCode::kUnavailable,
                 "cannot connect to " + name + ": " + ec.message() + "; check that a server listens there");
}

}  // namespace

asio::awaitable<Result<std::unique_ptr<Stream>>> connect_tcp(std::string host, uint16_t port, int64_t timeout_ms) {
  std::string name = host + ":" + std::to_string(port);
  PF_CO_TRY(Socket socket, co_await connect_socket(std::move(host), port, timeout_ms));
  co_return make_socket_stream(std::move(socket), std::move(name));
}

asio::awaitable<Result<std::unique_ptr<Stream>>> connect_unix(std::string path, int64_t timeout_ms) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(executor);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    co_return fail(ErrorCode::kInvalidArgument, "the path of a Unix socket has 1 to 107 bytes");
  }
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int64_t until = SystemClock::instance().now_ms() + timeout_ms;
  for (;;) {
    asio::local::stream_protocol::socket socket(executor);
    error_code ec;
    socket.open(asio::local::stream_protocol(), ec);
    if (!ec) socket.non_blocking(true, ec);
    if (!ec && ::connect(socket.native_handle(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      co_return make_socket_stream(std::move(socket), path);
    }
    if (!ec) ec.assign(errno, boost::system::system_category());
    // A full backlog is the one thing to wait for, and the kernel has no event for it.
    const bool full = ec.value() == EAGAIN;
    if (!full || (timeout_ms >= 0 && SystemClock::instance().now_ms() >= until)) {
      co_return fail(full ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
                     "cannot connect to " + path + ": " + ec.message());
    }
    error_code ignored;
    timer.expires_after(std::chrono::milliseconds(10));
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

asio::awaitable<Result<std::unique_ptr<Stream>>> connect_tls(std::shared_ptr<TlsContext> context, std::string host, uint16_t port,
                                                             int64_t timeout_ms) {
  const int64_t begin = SystemClock::instance().now_ms();
  std::string name = host;
  PF_CO_TRY(std::unique_ptr<Stream> plain, co_await connect_tcp(std::move(host), port, timeout_ms));
  const int64_t left =
      timeout_ms < 0 ? kNoDeadline : std::max<int64_t>(timeout_ms - (SystemClock::instance().now_ms() - begin), 0);
  PF_CO_TRY(std::unique_ptr<Stream> stream,
            co_await TlsContext::connect(std::move(context), std::move(plain), std::move(name), left));
  co_return Result<std::unique_ptr<Stream>>(std::move(stream));
}

}  // namespace pocketfleet::net
