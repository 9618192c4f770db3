// Carries values from any thread into one coroutine. push() never blocks; pop() waits until there is a value, the mailbox is
// closed (after the values that are left) or the time is up. One reader; any number of writers; values keep their order.
// Ownership: hold it in a shared_ptr that writers share; a writer may outlive the reader, but not the executor's context.
#pragma once

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

namespace pocketfleet::net {

template <typename T>
class Mailbox : public std::enable_shared_from_this<Mailbox<T>> {
 public:
  // `executor`: the reader's, a strand when its context has several threads.
  explicit Mailbox(boost::asio::any_io_executor executor) : executor_(executor), timer_(executor) {}

  void push(T value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      values_.push_back(std::move(value));
    }
    wake();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    wake();
  }

  // Empty when closed or when wait_ms have passed (negative: wait for ever); closed() tells which.
  boost::asio::awaitable<std::optional<T>> pop(int64_t wait_ms) {
    namespace asio = boost::asio;
    // A month is for ever here, and cannot overflow.
    const auto until = wait_ms < 0 ? asio::steady_timer::time_point::max()
                                   : asio::steady_timer::clock_type::now() +
                                         std::chrono::milliseconds(std::min<int64_t>(wait_ms, 30ll * 86'400'000));
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (!values_.empty()) {
          std::optional<T> value(std::move(values_.front()));
          values_.pop_front();
          co_return value;
        }
        if (closed_) co_return std::nullopt;
        if (asio::steady_timer::clock_type::now() >= until) co_return std::nullopt;
        // Armed under the lock: a push after this one posts its wake-up behind the wait that starts below.
        timer_.expires_at(until);
        waiting_ = true;
      }
      boost::system::error_code ignored;
      co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_ && values_.empty();
  }

 private:
  void wake() {
    {
      const std::lock_guard lock(mutex_);
      if (!waiting_) return;
      waiting_ = false;
    }
    boost::asio::post(executor_, [self = this->shared_from_this()] { self->timer_.cancel(); });
  }

  boost::asio::any_io_executor executor_;
  boost::asio::steady_timer timer_;
  mutable std::mutex mutex_;
  std::deque<T> values_;
  bool closed_ = false;
  bool waiting_ = false;
};

}  // namespace pocketfleet::net
