// Listening sockets of one worker. Several workers listen on the same port (SO_REUSEPORT) and the kernel spreads what comes. When
// no file descriptor is left, what is new is taken and closed at once, so that it does not wait for nothing; what is open stays.
// On the worker's executor. Errors: kIo names the address.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace pocketfleet::relay {

namespace asio = boost::asio;

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  using OnSocket = std::function<void(asio::ip::tcp::socket socket, std::string address, std::string peer)>;

  // port 0 takes a free one; see port().
  static Result<std::shared_ptr<Listener>> open(const asio::any_io_executor& executor, const std::string& host, uint16_t port,
                                                OnSocket on_socket, std::function<void()> on_shed);
  ~Listener();
  uint16_t port() const { return port_; }
  void start();
  void close();

 private:
  Listener(const asio::any_io_executor& executor, OnSocket on_socket, std::function<void()> on_shed);
  asio::awaitable<void> accept_all();
  // Takes the next one with the file descriptor that is kept for this, and closes it.
  void shed();

  asio::ip::tcp::acceptor acceptor_;
  OnSocket on_socket_;
  std::function<void()> on_shed_;
  uint16_t port_ = 0;
  int spare_ = -1;
};

}  // namespace pocketfleet::relay
