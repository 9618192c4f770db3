#include "net/http_server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <list>

#include "base/clock.h"
#include "base/log.h"
#include "net/http_connection.h"
#include "net/sockets.h"

namespace pocketfleet::net {

namespace {

using boost::system::error_code;
using tcp = asio::ip::tcp;
using unix_protocol = asio::local::stream_protocol;

constexpr int kBacklog = 1'024;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// A strand directly over the context's executor: one layer of type erasure less on the path of each event.
asio::any_io_executor connection_strand(const asio::any_io_executor& executor) {
  if (const auto* context = executor.target<asio::io_context::executor_type>()) return asio::make_strand(*context);
  return asio::make_strand(executor);
}

template <typename Protocol>
struct Listener : std::enable_shared_from_this<Listener<Protocol>> {
  Listener(asio::any_io_executor all, std::shared_ptr<ServerCore> the_core)
      : executor(std::move(all)), strand(asio::make_strand(executor)), acceptor(strand), core(std::move(the_core)) {}

  asio::any_io_executor executor;
  asio::strand<asio::any_io_executor> strand;
  asio::basic_socket_acceptor<Protocol> acceptor;
  std::shared_ptr<ServerCore> core;
};

std::string describe(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(endpoint.port());
}

void take(const std::shared_ptr<ServerCore>& core, tcp::socket socket, const tcp::endpoint& endpoint) {
  const bool limited = core->options.max_connections_per_ip > 0 && !endpoint.address().is_loopback();
  std::string address = limited ? endpoint.address().to_string() : std::string();
  if (!core->admit(address)) return;
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  Connection::start(core, make_socket_stream(std::move(socket), describe(endpoint)), std::move(address));
}

void take(const std::shared_ptr<ServerCore>& core, unix_protocol::socket socket, const unix_protocol::endpoint&) {
  if (core->admit({})) Connection::start(core, make_socket_stream(std::move(socket), "unix"), {});
}

template <typename Protocol>
asio::awaitable<void> accept_all(std::shared_ptr<Listener<Protocol>> listener) {
  asio::steady_timer pause(listener->strand);
  while (listener->acceptor.is_open()) {
    error_code ec;
    typename Protocol::socket socket(connection_strand(listener->executor));
    typename Protocol::endpoint endpoint;
    co_await listener->acceptor.async_accept(socket, endpoint, asio::redirect_error(asio::use_awaitable, ec));
    if (!ec) {
      take(listener->core, std::move(socket), endpoint);
      continue;
    }
    if (!listener->acceptor.is_open() || ec == asio::error::operation_aborted) break;
    if (ec == asio::error::connection_aborted) continue;
    // Out of file descriptors or of memory: what is waiting stays in the kernel's queue until something is closed.
    log_warn("accept_failed", {{"reason", ec.message()}});
    pause.expires_after(kAcceptPause);
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

template <typename Protocol>
Result<std::shared_ptr<Listener<Protocol>>> open_listener(const asio::any_io_executor& executor,
                                                          const std::shared_ptr<ServerCore>& core,
                                                          const typename Protocol::endpoint& endpoint, const std::string& name) {
  auto listener = std::make_shared<Listener<Protocol>>(executor, core);
  error_code ec;
  const auto refuse = [&] {
    return fail(ErrorCode::kIo,
                "cannot listen on " + name + ": " + ec.message() + "; choose another address or end the program that holds it");
  };
  listener->acceptor.open(endpoint.protocol(), ec);
  if (ec) return refuse();
  if constexpr (std::is_same_v<Protocol, tcp>) listener->acceptor.set_option(asio::socket_base::reuse_address(true), ec);
  listener->acceptor.bind(endpoint, ec);
  if (ec) return refuse();
  return listener;
}

template <typename Protocol>
Result<void> start_listener(const std::shared_ptr<Listener<Protocol>>& listener, const std::string& name) {
  error_code ec;
  listener->acceptor.listen(kBacklog, ec);
  if (ec) return fail(ErrorCode::kIo, "cannot listen on " + name + ": " + ec.message());
  asio::co_spawn(listener->strand, accept_all(listener), asio::detached);
  return {};
}

// A socket file that nobody listens on any more is left by a process that was killed.
Result<void> remove_stale_socket(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) return fail(ErrorCode::kIo, path + " exists and is not a socket; choose another path");
  asio::io_context context;
  unix_protocol::socket probe(context);
  error_code ec;
  probe.connect(unix_protocol::endpoint(path), ec);
  if (!ec) return fail(ErrorCode::kIo, "another process listens on " + path + "; end it or choose another path");
  ::unlink(path.c_str());
  return {};
}

}  // namespace

struct HttpServer::Impl {
  asio::any_io_executor executor;
  std::shared_ptr<ServerCore> core = std::make_shared<ServerCore>();
  std::mutex mutex;
  std::vector<std::shared_ptr<Listener<tcp>>> tcp_listeners;
  std::vector<std::shared_ptr<Listener<unix_protocol>>> unix_listeners;
  std::vector<std::string> socket_files;

  void stop_accepting() {
    core->draining = true;
    const std::lock_guard lock(mutex);
    const auto close = [](auto& listeners) {
      for (auto& listener : listeners) {
        asio::post(listener->strand, [listener] {
          error_code ignored;
          listener->acceptor.close(ignored);
        });
      }
      listeners.clear();
    };
    close(tcp_listeners);
    close(unix_listeners);
    for (const auto& path : socket_files) ::unlink(path.c_str());
    socket_files.clear();
  }
};

HttpServer::HttpServer(asio::any_io_executor executor, ServerOptions options, HttpHandler handler,
                       std::function<std::string(int status, std::string_view message)> error_body)
    : impl_(std::make_shared<Impl>()) {
  impl_->executor = std::move(executor);
  impl_->core->options = options;
  impl_->core->handler = std::move(handler);
  impl_->core->error_body = std::move(error_body);
}

HttpServer::~HttpServer() {
  impl_->stop_accepting();
  for (const auto& connection : impl_->core->all()) connection->abort();
}

Result<uint16_t> HttpServer::listen_tcp(const std::string& host, uint16_t port) {
  const std::string name = host + ":" + std::to_string(port);
  error_code ec;
  tcp::endpoint endpoint(asio::ip::make_address(host, ec), port);
  if (ec) {
    asio::io_context context;
    tcp::resolver resolver(context);
    const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, ec);
    if (ec || found.empty()) return fail(ErrorCode::kInvalidArgument, "cannot find the address \"" + host + "\"", "host");
    endpoint = found.begin()->endpoint();
  }
  PF_TRY(auto listener, open_listener<tcp>(impl_->executor, impl_->core, endpoint, name));
  const uint16_t bound = listener->acceptor.local_endpoint(ec).port();
  PF_CHECK_OK(start_listener(listener, name));
  const std::lock_guard lock(impl_->mutex);
  impl_->tcp_listeners.push_back(std::move(listener));
  return bound;
}

Result<void> HttpServer::listen_unix(const std::string& path) {
  if (path.empty() || path.size() > 107) {
    return fail(ErrorCode::kInvalidArgument, "the path of a Unix socket has 1 to 107 bytes; \"" + path + "\" does not",
                "unix_socket");
  }
  PF_CHECK_OK(remove_stale_socket(path));
  PF_TRY(auto listener, open_listener<unix_protocol>(impl_->executor, impl_->core, unix_protocol::endpoint(path), path));
  // Before listen(), so that nobody can connect under wider permissions.
  if (::chmod(path.c_str(), 0600) != 0) return fail(ErrorCode::kIo, "cannot set the permissions of " + path);
  PF_CHECK_OK(start_listener(listener, path));
  const std::lock_guard lock(impl_->mutex);
  impl_->unix_listeners.push_back(std::move(listener));
  impl_->socket_files.push_back(path);
  return {};
}

void HttpServer::serve_stream(std::unique_ptr<Stream> stream) {
  if (impl_->core->admit({})) Connection::start(impl_->core, std::move(stream), {});
}

asio::awaitable<void> HttpServer::drain(int64_t timeout_ms) {
  const auto impl = impl_;
  impl->stop_accepting();
  for (const auto& connection : impl->core->all()) connection->drain();
  const Clock& clock = SystemClock::instance();
  asio::steady_timer timer(co_await asio::this_coro::executor);
  const auto wait_until_empty = [&](int64_t until) -> asio::awaitable<void> {
    while (impl->core->connections() > 0 && clock.now_ms() < until) {
      error_code ignored;
      timer.expires_after(std::chrono::milliseconds(5));
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  };
  co_await wait_until_empty(clock.now_ms() + timeout_ms);
  if (impl->core->connections() == 0) co_return;
  for (const auto& connection : impl->core->all()) connection->abort();
  // What is cut off still has to unwind.
  co_await wait_until_empty(clock.now_ms() + 1'000);
}

size_t HttpServer::connections() const {
  return impl_->core->connections();
}

}  // namespace pocketfleet::net
