// What plain and TLS streams share: deadlines of a read and a write over one lazily armed timer, and error translation. Internal
// to net/. Each Operation object lives for one read or write. On the stream's executor only.
#pragma once

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <memory>

#include "net/stream.h"

namespace pocketfleet::net {

// Arming a timer for each read would cost more than the read. The timer stands until the earliest deadline that was ever asked
// for; when it fires too early it is set again, so a connection that answers quickly almost never touches it.
class SocketDeadlines : public std::enable_shared_from_this<SocketDeadlines> {
 public:
  using Clock = std::chrono::steady_clock;
  explicit SocketDeadlines(asio::any_io_executor executor) : timer_(std::move(executor)) {}

  enum Side { kRead = 0, kWrite = 1 };

  void start(Side side, int64_t timeout_ms);
  // True when the deadline has passed and ended the operation.
  bool finish(Side side);
  void cancel(Side side);
  asio::cancellation_slot slot(Side side) { return signals_[side].slot(); }
  void stop() { timer_.cancel(); }

 private:
  void arm();

  asio::steady_timer timer_;
  asio::cancellation_signal signals_[2];
  Clock::time_point until_[2] = {Clock::time_point::max(), Clock::time_point::max()};
  Clock::time_point armed_ = Clock::time_point::max();
  bool expired_[2] = {false, false};
};

tl::unexpected<Error> socket_error(const boost::system::error_code& ec, bool timed_out, std::string_view doing);

}  // namespace pocketfleet::net
