#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "net/socket_state.h"
#include "net/sockets.h"

namespace pocketfleet::net {

namespace {

using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;

class SocketStream final : public Stream {
 public:
  SocketStream(Socket socket, std::string peer)
      : socket_(std::move(socket)),
        peer_(std::move(peer)),
        deadlines_(std::make_shared<SocketDeadlines>(socket_.get_executor())) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
  }

  asio::awaitable<Result<size_t>> read_some(char* data, size_t size, int64_t timeout_ms) override {
    error_code ec;
    deadlines_->start(SocketDeadlines::kRead, timeout_ms);
    const size_t count = co_await socket_.async_read_some(
        asio::buffer(data, size),
        asio::bind_cancellation_slot(deadlines_->slot(SocketDeadlines::kRead), asio::redirect_error(asio::use_awaitable, ec)));
    const bool timed_out = deadlines_->finish(SocketDeadlines::kRead);
    if (!ec) co_return count;
    if (ec == asio::error::eof) co_return size_t{0};
    co_return socket_error(ec, timed_out, "reading from " + peer_);
  }

  asio::awaitable<Result<void>> write(std::string_view bytes, int64_t stall_ms) override {
    while (!bytes.empty()) {
      error_code ec;
      // Nearly always there is room, and then nothing has to wait for the event loop.
      const size_t count = socket_.write_some(asio::buffer(bytes.data(), bytes.size()), ec);
      bytes.remove_prefix(count);
      if (!ec) continue;
      bool timed_out = false;
      if (ec == asio::error::would_block || ec == asio::error::try_again) {
        deadlines_->start(SocketDeadlines::kWrite, stall_ms);
        co_await socket_.async_wait(Socket::wait_write,
                                    asio::bind_cancellation_slot(deadlines_->slot(SocketDeadlines::kWrite),
                                                                 asio::redirect_error(asio::use_awaitable, ec)));
        timed_out = deadlines_->finish(SocketDeadlines::kWrite);
      }
      if (ec) co_return socket_error(ec, timed_out, "writing to " + peer_);
    }
    co_return Result<void>();
  }

  asio::awaitable<void> shutdown(int64_t) override {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    co_return;
  }

  void cancel_read() override { deadlines_->cancel(SocketDeadlines::kRead); }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
    deadlines_->stop();
  }
  const std::string& peer() const override { return peer_; }
  asio::any_io_executor executor() const override { return const_cast<Socket&>(socket_).get_executor(); }

 private:
  Socket socket_;
  std::string peer_;
  std::shared_ptr<SocketDeadlines> deadlines_;
};

}  // namespace

std::unique_ptr<Stream> make_socket_stream(Socket socket, std::string peer) {
  return std::make_unique<SocketStream>(std::move(socket), std::move(peer));
}

}  // namespace pocketfleet::net
