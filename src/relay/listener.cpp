#include "relay/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

#include "base/log.h"

namespace pocketfleet::relay {

namespace {

using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr int kBacklog = 4'096;
constexpr auto kPause = std::chrono::milliseconds(20);

std::string describe(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(endpoint.port());
}

// What a user of IPv4 looks like on a socket of IPv6 is still an address of IPv4.
std::string plain_address(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  return address.to_string();
}

}  // namespace

Listener::Listener(const asio::any_io_executor& executor, OnSocket on_socket, std::function<void()> on_shed)
    : acceptor_(executor),
      on_socket_(std::move(on_socket)),
      on_shed_(std::move(on_shed)),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

Listener::~Listener() {
  if (spare_ >= 0) ::close(spare_);
}

Result<std::shared_ptr<Listener>> Listener::open(const asio::any_io_executor& executor, const std::string& host, uint16_t port,
                                                 OnSocket on_socket, std::function<void()> on_shed) {
  std::shared_ptr<Listener> self(new Listener(executor, std::move(on_socket), std::move(on_shed)));
  const std::string name = host + ":" + std::to_string(port);
  error_code ec;
  const auto address = asio::ip::make_address(host, ec);
  if (ec) return fail(ErrorCode::kInvalidArgument, "\"" + host + "\" is no address to listen on; give one, like 0.0.0.0", "host");
  const auto refuse = [&] {
    return fail(ErrorCode::kIo, "cannot listen on " + name + ": " + ec.message() +
                                    (port != 0 && port < 1024 ? "; ports below 1024 need the right to bind them" : ""));
  };
  const tcp::endpoint endpoint(address, port);
  self->acceptor_.open(endpoint.protocol(), ec);
  if (ec) return refuse();
  self->acceptor_.set_option(asio::socket_base::reuse_address(true), ec);
  const int on = 1;
  if (::setsockopt(self->acceptor_.native_handle(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) {
    ec.assign(errno, boost::system::system_category());
    return refuse();
  }
  self->acceptor_.bind(endpoint, ec);
  if (!ec) self->acceptor_.listen(kBacklog, ec);
  if (ec) return refuse();
  self->port_ = self->acceptor_.local_endpoint(ec).port();
  return self;
}

void Listener::start() {
  asio::co_spawn(
      acceptor_.get_executor(), [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->accept_all(); },
      asio::detached);
}

void Listener::close() {
  error_code ignored;
  acceptor_.close(ignored);
}

void Listener::shed() {
  if (spare_ < 0) return;
  ::close(spare_);
  const int taken = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (taken >= 0) {
    // A reset, not a farewell: the other side learns at once.
    const linger now{1, 0};
    ::setsockopt(taken, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(taken);
    on_shed_();
  }
  spare_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

asio::awaitable<void> Listener::accept_all() {
  asio::steady_timer pause(acceptor_.get_executor());
  bool told = false;
  while (acceptor_.is_open()) {
    error_code ec;
    tcp::socket socket(acceptor_.get_executor());
    tcp::endpoint from;
    co_await acceptor_.async_accept(socket, from, asio::redirect_error(asio::use_awaitable, ec));
    if (!ec) {
      told = false;
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      on_socket_(std::move(socket), plain_address(from.address()), describe(from));
      continue;
    }
    if (!acceptor_.is_open() || ec == asio::error::operation_aborted) break;
    if (ec == asio::error::connection_aborted) continue;
    if (!std::exchange(told, true)) log_warn("accept_failed", {{"reason", ec.message()}, {"port", static_cast<int>(port_)}});
    const bool full = ec == asio::error::no_descriptors || ec.value() == ENFILE;
    if (full && spare_ >= 0) {
      shed();
      continue;
    }
    pause.expires_after(kPause);
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    if (spare_ < 0) spare_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
}

}  // namespace pocketfleet::relay
