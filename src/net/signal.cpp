#include "net/signal.h"

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

namespace pocketfleet::net {

namespace asio = boost::asio;

void Signal::raise() {
  raised_ = true;
  if (waiting_) timer_.cancel();
}

asio::awaitable<bool> Signal::wait(int64_t timeout_ms) {
  using Clock = asio::steady_timer::clock_type;
  // A day is for ever here, and cannot overflow.
  const auto until = timeout_ms < 0 ? Clock::time_point::max()
                                    : Clock::now() + std::chrono::milliseconds(std::min<int64_t>(timeout_ms, 86'400'000));
  while (!raised_) {
    if (Clock::now() >= until) co_return false;
    timer_.expires_at(until);
    waiting_ = true;
    boost::system::error_code ignored;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    waiting_ = false;
  }
  raised_ = false;
  co_return true;
}

}  // namespace pocketfleet::net
