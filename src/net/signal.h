// What a sleeping coroutine waits for: raise() wakes it. Raised while nobody waits, it lets the next one through at once. One
// waiter at a time; all on one executor. The signal must outlive its waiter.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>

namespace pocketfleet::net {

class Signal {
 public:
  explicit Signal(const boost::asio::any_io_executor& executor) : timer_(executor) {}
  void raise();
  // True when it was raised, false when the time (negative: for ever) has passed.
  boost::asio::awaitable<bool> wait(int64_t timeout_ms);

 private:
  boost::asio::steady_timer timer_;
  bool raised_ = false;
  bool waiting_ = false;
};

}  // namespace pocketfleet::net
