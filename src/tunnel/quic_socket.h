// UDP for QUIC: one socket that never blocks. A bound one (relay) tells at which of its addresses each datagram came and answers
// from there; a connected one (agent) has one peer. What the kernel has no room for waits in a short queue; past that it is
// dropped, as the net would. On one executor; hold it in a shared_ptr. After close() no handler is called. Errors:
// kInvalidArgument for a host that is no address, kIo, kUnavailable when there is no way to the peer.
#pragma once

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/udp.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace pocketfleet::tunnel {

namespace asio = boost::asio;

using UdpEndpoint = asio::ip::udp::endpoint;

class UdpSocket : public std::enable_shared_from_this<UdpSocket> {
 public:
  static constexpr size_t kMostBytes = 1'500;  // of a datagram that is sent

  struct Handlers {
    std::function<void(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size)> on_datagram;
    std::function<void(const boost::system::error_code& ec)> on_error;  // the net says that datagrams do not arrive
    std::function<void()> on_room;                                      // congested() has passed
  };

  // An empty host: all addresses of the machine.
  static Result<std::shared_ptr<UdpSocket>> bind(const asio::any_io_executor& executor, const std::string& host, uint16_t port);
  static Result<std::shared_ptr<UdpSocket>> connect(const asio::any_io_executor& executor, const UdpEndpoint& remote);
  // The address that this machine would send from to get there now; nothing is sent.
  static Result<asio::ip::address> source_address(const UdpEndpoint& remote);

  UdpSocket(asio::ip::udp::socket socket, UdpEndpoint remote);
  ~UdpSocket();
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  void start(Handlers handlers);
  // An error means that the machine cannot send like this now. A datagram that is too long for the way is just lost. `segment`:
  // all of these bytes are datagrams of so many, but for the last, which may be shorter; 0: they are one.
  boost::system::error_code send(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size,
                                 size_t segment = 0);
  bool congested() const { return !waiting_.empty(); }
  const UdpEndpoint& local() const { return local_; }
  void close();

 private:
  struct Datagram {
    UdpEndpoint local;
    UdpEndpoint remote;
    std::string bytes;
  };

  void wait_readable();
  void wait_writable();
  void receive();
  int send_now(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size, size_t segment);

  asio::ip::udp::socket socket_;
  UdpEndpoint local_;
  UdpEndpoint remote_;  // of a connected socket
  bool connected_ = false;
  bool closed_ = false;
  Handlers handlers_;
  std::deque<Datagram> waiting_;
  bool segments_ = true;  // the system cuts what it is given into datagrams
  std::array<uint8_t, 65'536> buffer_;
};

// Collects datagrams that can be given to the system together, which costs far less than one by one.
class UdpBatch {
 public:
  explicit UdpBatch(UdpSocket& socket) : socket_(socket) {}
  // Where to write the next datagram, UdpSocket::kMostBytes at most.
  uint8_t* room() { return buffer_.data() + used_; }
  // It has been written there.
  void add(const UdpEndpoint& local, const UdpEndpoint& remote, size_t size);
  void send();
  // The first error.
  const boost::system::error_code& error() const { return error_; }

 private:
  static constexpr size_t kMostDatagrams = 40;

  UdpSocket& socket_;
  UdpEndpoint local_;
  UdpEndpoint remote_;
  size_t used_ = 0;
  size_t segment_ = 0;
  size_t count_ = 0;
  boost::system::error_code error_;
  std::array<uint8_t, (kMostDatagrams + 1) * UdpSocket::kMostBytes> buffer_;
};

// "192.0.2.7:4711" or "[2001:db8::1]:4711".
std::string to_text(const UdpEndpoint& endpoint);

// The addresses of a host, a few at most; of an address, itself. `deadline` as of deadline_after(). kUnavailable when there are
// none.
asio::awaitable<Result<std::vector<UdpEndpoint>>> resolve_udp(std::string host, uint16_t port, int64_t deadline);

}  // namespace pocketfleet::tunnel
