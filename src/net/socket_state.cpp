#include "net/socket_state.h"

#include <algorithm>
#include <boost/asio/error.hpp>

namespace pocketfleet::net {

void SocketDeadlines::start(Side side, int64_t timeout_ms) {
  expired_[side] = false;
  // A day is for ever to a socket, and cannot overflow.
  until_[side] = timeout_ms < 0 ? Clock::time_point::max()
                                : Clock::now() + std::chrono::milliseconds(std::min<int64_t>(timeout_ms, 86'400'000));
  if (until_[side] < armed_) arm();
}

bool SocketDeadlines::finish(Side side) {
  until_[side] = Clock::time_point::max();
  return expired_[side];
}

void SocketDeadlines::cancel(Side side) {
  signals_[side].emit(asio::cancellation_type::terminal);
}

void SocketDeadlines::arm() {
  armed_ = std::min(until_[kRead], until_[kWrite]);
  if (armed_ == Clock::time_point::max()) return;
  timer_.expires_at(armed_);
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& ec) {
    const auto self = weak.lock();
    if (!self || ec) return;
    const auto now = Clock::now();
    self->armed_ = Clock::time_point::max();
    for (const Side side : {kRead, kWrite}) {
      if (self->until_[side] > now) continue;
      self->until_[side] = Clock::time_point::max();
      self->expired_[side] = true;
      self->cancel(side);
    }
    self->arm();
  });
}

tl::unexpected<Error> socket_error(const boost::system::error_code& ec, bool timed_out, std::string_view doing) {
  const std::string what(doing);
  if (ec == asio::error::operation_aborted) {
    if (timed_out) return fail(ErrorCode::kDeadlineExceeded, what + ": the deadline passed");
    return fail(ErrorCode::kCancelled, what + ": cancelled");
  }
  if (ec == asio::error::connection_reset || ec == asio::error::broken_pipe || ec == asio::error::eof ||
      ec == asio::error::bad_descriptor || ec == asio::error::not_connected || ec == asio::error::connection_aborted) {
    return fail(ErrorCode::kConnectionClosed, what + ": the connection is closed");
  }
  return fail(ErrorCode::kIo, what + ": " + ec.message());
}

}  // namespace pocketfleet::net
