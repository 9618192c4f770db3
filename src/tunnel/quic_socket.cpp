#include "tunnel/quic_socket.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>
#include <cstring>

#include "net/signal.h"
#include "tunnel/quic_streams.h"

namespace pocketfleet::tunnel {

namespace {

using boost::system::error_code;
using udp = asio::ip::udp;

constexpr size_t kMostWaiting = 64;    // datagrams that the kernel did not take
constexpr int kMostAtOnce = 16;        // reads before others on the executor have their turn
constexpr int kKernelBytes = 4 << 20;  // wished for; the system has a limit of its own
constexpr size_t kMostAddresses = 4;   // of a host

error_code system_error(int number) {
  return error_code(number, boost::system::system_category());
}

void set_flag(int fd, int level, int name, int value) {
  // Where the system lacks one of these, QUIC still works.
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

void configure(udp::socket& socket, bool v6) {
  error_code ignored;
  socket.set_option(asio::socket_base::receive_buffer_size(kKernelBytes), ignored);
  socket.set_option(asio::socket_base::send_buffer_size(kKernelBytes), ignored);
  const int fd = socket.native_handle();
  // QUIC finds out by itself how long a datagram may be, and needs long ones to be dropped and not cut.
  set_flag(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  if (v6) set_flag(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
  // Datagrams of one peer that come together are read together.
  set_flag(fd, SOL_UDP, UDP_GRO, 1);
}

Result<udp::socket> open_bound(const asio::any_io_executor& executor, const UdpEndpoint& endpoint, bool both) {
  udp::socket socket(executor);
  error_code ec;
  socket.open(endpoint.protocol(), ec);
  if (!ec && both) socket.set_option(asio::ip::v6_only(false), ec);
  if (!ec) socket.non_blocking(true, ec);
  if (!ec) socket.bind(endpoint, ec);
  if (ec) return fail(ErrorCode::kIo, "cannot listen on UDP " + to_text(endpoint) + ": " + ec.message());
  const bool v6 = endpoint.address().is_v6();
  configure(socket, v6);
  set_flag(socket.native_handle(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVPKTINFO : IP_PKTINFO, 1);
  return socket;
}

UdpEndpoint endpoint_of(const sockaddr_storage& address, socklen_t size) {
  UdpEndpoint endpoint;
  if (size > endpoint.capacity()) return endpoint;
  std::memcpy(endpoint.data(), &address, size);
  endpoint.resize(size);
  return endpoint;
}

// What the system says of a datagram.
struct Arrival {
  UdpEndpoint local;   // which of our addresses it was sent to
  size_t segment = 0;  // it is several, of so many bytes each
};

Arrival arrival_of(msghdr& message, const UdpEndpoint& bound) {
  Arrival out;
  out.local = bound;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level == IPPROTO_IP && part->cmsg_type == IP_PKTINFO) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(part), sizeof info);
      out.local.address(asio::ip::address_v4(ntohl(info.ipi_addr.s_addr)));
    } else if (part->cmsg_level == IPPROTO_IPV6 && part->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(part), sizeof info);
      asio::ip::address_v6::bytes_type bytes;
      std::memcpy(bytes.data(), &info.ipi6_addr, bytes.size());
      out.local.address(asio::ip::address_v6(bytes));
    } else if (part->cmsg_level == SOL_UDP && part->cmsg_type == UDP_GRO) {
      int segment = 0;
      std::memcpy(&segment, CMSG_DATA(part), sizeof segment);
      out.segment = static_cast<size_t>(std::max(segment, 0));
    }
  }
  return out;
}

// What the system is told of a datagram.
class Control {
 public:
  explicit Control(msghdr& message) : message_(message) {}

  template <typename T>
  void add(int level, int type, const T& value) {
    auto* const part = reinterpret_cast<cmsghdr*>(bytes_ + used_);
    part->cmsg_level = level;
    part->cmsg_type = type;
    part->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(part), &value, sizeof value);
    used_ += CMSG_SPACE(sizeof value);
    message_.msg_control = bytes_;
    message_.msg_controllen = used_;
  }

  void send_from(const asio::ip::address& source) {
    if (source.is_v4()) {
      in_pktinfo info{};
      info.ipi_spec_dst.s_addr = htonl(source.to_v4().to_uint());
      add(IPPROTO_IP, IP_PKTINFO, info);
    } else {
      in6_pktinfo info{};
      const auto bytes = source.to_v6().to_bytes();
      std::memcpy(&info.ipi6_addr, bytes.data(), bytes.size());
      add(IPPROTO_IPV6, IPV6_PKTINFO, info);
    }
  }

 private:
  msghdr& message_;
  size_t used_ = 0;
  alignas(cmsghdr) char bytes_[CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(uint16_t))] = {};
};

// The system's resolver cannot be hurried; whoever waits no longer leaves it to itself.
struct Lookup {
  explicit Lookup(const asio::any_io_executor& executor) : resolver(executor), done(executor) {}
  udp::resolver resolver;
  net::Signal done;
  error_code ec;
  std::vector<UdpEndpoint> found;
};

}  // namespace

std::string to_text(const UdpEndpoint& endpoint) {
  const asio::ip::address address = endpoint.address();
  const std::string port = ":" + std::to_string(endpoint.port());
  if (address.is_v4()) return address.to_string() + port;
  const asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_string() + port;
  return "[" + v6.to_string() + "]" + port;
}

asio::awaitable<Result<std::vector<UdpEndpoint>>> resolve_udp(std::string host, uint16_t port, int64_t deadline) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  std::vector<UdpEndpoint> found;
  error_code ec;
  const asio::ip::address address = asio::ip::make_address(host, ec);
  if (!ec) {
    found.emplace_back(address, port);
    co_return found;
  }
  const auto lookup = std::make_shared<Lookup>(executor);
  lookup->resolver.async_resolve(host, std::to_string(port),
                                 [lookup](const error_code& failed, const udp::resolver::results_type& results) {
                                   lookup->ec = failed;
                                   for (const auto& entry : results) lookup->found.push_back(entry.endpoint());
                                   lookup->done.raise();
                                 });
  if (!co_await lookup->done.wait(time_left(deadline))) {
    co_return fail(ErrorCode::kDeadlineExceeded, "looking up " + host + ": the deadline passed");
  }
  if (lookup->found.empty()) {
    co_return fail(ErrorCode::kUnavailable, "no address is known for the host \"" + host + "\": " + lookup->ec.message());
  }
  found = lookup->found;
  if (found.size() > kMostAddresses) found.resize(kMostAddresses);
  co_return found;
}

Result<std::shared_ptr<UdpSocket>> UdpSocket::bind(const asio::any_io_executor& executor, const std::string& host,
                                                   uint16_t port) {
  if (host.empty()) {
    auto both = open_bound(executor, UdpEndpoint(asio::ip::address_v6::any(), port), true);
    // A machine may have no IPv6 at all.
    if (!both) both = open_bound(executor, UdpEndpoint(asio::ip::address_v4::any(), port), false);
    if (!both) return fail(both.error());
    return std::make_shared<UdpSocket>(std::move(*both), UdpEndpoint());
  }
  error_code ec;
  const asio::ip::address address = asio::ip::make_address(host, ec);
  if (ec) return fail(ErrorCode::kInvalidArgument, "cannot listen on \"" + host + "\": give an IP address", "host");
  const bool both = address.is_v6() && address.is_unspecified();
  PF_TRY(udp::socket socket, open_bound(executor, UdpEndpoint(address, port), both));
  return std::make_shared<UdpSocket>(std::move(socket), UdpEndpoint());
}

Result<std::shared_ptr<UdpSocket>> UdpSocket::connect(const asio::any_io_executor& executor, const UdpEndpoint& remote) {
  udp::socket socket(executor);
  error_code ec;
  socket.open(remote.protocol(), ec);
  if (!ec) socket.non_blocking(true, ec);
  if (!ec) socket.connect(remote, ec);
  if (ec) return fail(ErrorCode::kUnavailable, "there is no way to " + to_text(remote) + ": " + ec.message());
  configure(socket, remote.address().is_v6());
  return std::make_shared<UdpSocket>(std::move(socket), remote);
}

Result<asio::ip::address> UdpSocket::source_address(const UdpEndpoint& remote) {
  const int fd = ::socket(remote.protocol().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail(ErrorCode::kIo, "cannot make a UDP socket: " + system_error(errno).message());
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const bool found = ::connect(fd, remote.data(), static_cast<socklen_t>(remote.size())) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int number = errno;
  ::close(fd);
  if (!found) {
    return fail(ErrorCode::kUnavailable, "there is no way to " + to_text(remote) + ": " + system_error(number).message());
  }
  return endpoint_of(address, size).address();
}

UdpSocket::UdpSocket(udp::socket socket, UdpEndpoint remote) : socket_(std::move(socket)), remote_(std::move(remote)) {
  connected_ = remote_.port() != 0;
  error_code ignored;
  local_ = socket_.local_endpoint(ignored);
}

UdpSocket::~UdpSocket() {
  close();
}

void UdpSocket::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  wait_readable();
}

void UdpSocket::close() {
  if (closed_) return;
  closed_ = true;
  waiting_.clear();
  error_code ignored;
  socket_.close(ignored);
}

void UdpSocket::wait_readable() {
  socket_.async_wait(udp::socket::wait_read, [weak = weak_from_this()](const error_code& ec) {
    const auto self = weak.lock();
    if (!self || self->closed_ || ec == asio::error::operation_aborted) return;
    self->receive();
    if (!self->closed_) self->wait_readable();
  });
}

void UdpSocket::receive() {
  for (int i = 0; i < kMostAtOnce && !closed_; ++i) {
    sockaddr_storage from{};
    alignas(cmsghdr) char control[256];
    iovec part{buffer_.data(), buffer_.size()};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t count = ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (handlers_.on_error) handlers_.on_error(system_error(errno));
      continue;
    }
    if (count == 0 || (message.msg_flags & MSG_TRUNC) != 0) continue;
    const UdpEndpoint remote = connected_ ? remote_ : endpoint_of(from, message.msg_namelen);
    const Arrival arrival = arrival_of(message, local_);
    const auto size = static_cast<size_t>(count);
    const size_t step = arrival.segment > 0 ? arrival.segment : size;
    for (size_t at = 0; at < size && !closed_; at += step) {
      handlers_.on_datagram(connected_ ? local_ : arrival.local, remote, buffer_.data() + at, std::min(step, size - at));
    }
  }
}

int UdpSocket::send_now(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size, size_t segment) {
  iovec part{const_cast<uint8_t*>(data), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control(message);
  if (!connected_) {
    message.msg_name = const_cast<sockaddr*>(remote.data());
    message.msg_namelen = static_cast<socklen_t>(remote.size());
    if (!local.address().is_unspecified()) control.send_from(local.address());
  }
  const bool many = segment > 0 && segment < size;
  if (many) control.add(SOL_UDP, UDP_SEGMENT, static_cast<uint16_t>(segment));
  // On a connected socket the call may report what became of earlier datagrams, and has then not sent this one.
  int number = 0;
  for (int tries = 0; tries < 3; ++tries) {
    if (::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
    number = errno;
    if (number == EINTR) continue;
    if (number != ECONNREFUSED) break;
    number = 0;
  }
  // Some devices and old systems cannot cut datagrams.
  if (many && (number == EIO || number == EINVAL || number == ENOPROTOOPT)) segments_ = false;
  return number;
}

error_code UdpSocket::send(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size,
                           size_t segment) {
  if (closed_) return system_error(EBADF);
  const bool many = segment > 0 && segment < size;
  if (many && segments_ && waiting_.empty()) {
    const int number = send_now(local, remote, data, size, segment);
    if (number == 0 || number == EMSGSIZE || number == ENOBUFS) return {};
    if (segments_ && number != EAGAIN && number != EWOULDBLOCK) return system_error(number);
  }
  const size_t step = many ? segment : size;
  for (size_t at = 0; at < size; at += step) {
    const size_t length = std::min(step, size - at);
    if (waiting_.empty()) {
      const int number = send_now(local, remote, data + at, length, 0);
      if (number == 0 || number == EMSGSIZE || number == ENOBUFS) continue;
      if (number != EAGAIN && number != EWOULDBLOCK) return system_error(number);
      wait_writable();
    }
    if (waiting_.size() >= kMostWaiting) return {};
    waiting_.push_back(Datagram{local, remote, std::string(reinterpret_cast<const char*>(data + at), length)});
  }
  return {};
}

void UdpBatch::add(const UdpEndpoint& local, const UdpEndpoint& remote, size_t size) {
  if (count_ > 0 && (size > segment_ || local != local_ || remote != remote_)) {
    // It cannot go with the others.
    const size_t before = used_;
    send();
    std::memmove(buffer_.data(), buffer_.data() + before, size);
  }
  if (count_ == 0) {
    local_ = local;
    remote_ = remote;
    segment_ = size;
  }
  ++count_;
  used_ += size;
  // Only the last may be shorter.
  if (size < segment_ || count_ == kMostDatagrams) send();
}

void UdpBatch::send() {
  if (count_ == 0) return;
  const error_code ec = socket_.send(local_, remote_, buffer_.data(), used_, segment_);
  if (ec && !error_) error_ = ec;
  count_ = used_ = 0;
}

void UdpSocket::wait_writable() {
  socket_.async_wait(udp::socket::wait_write, [weak = weak_from_this()](const error_code& ec) {
    const auto self = weak.lock();
    if (!self || self->closed_ || ec == asio::error::operation_aborted) return;
    while (!self->waiting_.empty()) {
      const Datagram& next = self->waiting_.front();
      const auto* data = reinterpret_cast<const uint8_t*>(next.bytes.data());
      const int number = self->send_now(next.local, next.remote, data, next.bytes.size(), 0);
      if (number == EAGAIN || number == EWOULDBLOCK) return self->wait_writable();
      self->waiting_.pop_front();
    }
    if (self->handlers_.on_room) self->handlers_.on_room();
  });
}

}  // namespace pocketfleet::tunnel
