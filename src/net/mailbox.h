// Carries values from any thread into one coroutine. push() never blocks; pop() waits until there is a value, the mailbox is
// closed (after the values that are left) or the time is up. One reader at a time, on a strand when its context has several
// threads; any number of writers; values keep their order. Ownership: hold it in a shared_ptr that writers share; a writer may
// outlive the reader and the reader's context.
#pragma once

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
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
    const asio::any_io_executor executor = co_await asio::this_coro::executor;
    Waiter waiter(*this, executor);
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        waiter_ = nullptr;
        if (!values_.empty()) {
          std::optional<T> value(std::move(values_.front()));
          values_.pop_front();
          co_return value;
        }
        if (closed_) co_return std::nullopt;
        if (asio::steady_timer::clock_type::now() >= until) co_return std::nullopt;
        // Armed under the lock: a push after this one posts its wake-up behind the wait that starts below.
        waiter.timer.expires_at(until);
        waiter_ = &waiter;
        woken_ = false;
        ++ticket_;
      }
      boost::system::error_code ignored;
      co_await waiter.timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_ && values_.empty();
  }

 private:
  // All that belongs to the reader's context lives in the reader's frame, so that the last writer can let go of the mailbox when
  // that context is no more.
  struct Waiter {
    Waiter(Mailbox& owner, const boost::asio::any_io_executor& the_executor)
        : mailbox(owner), executor(the_executor), timer(the_executor) {}
    ~Waiter() {
      const std::lock_guard lock(mailbox.mutex_);
      if (mailbox.waiter_ == this) mailbox.waiter_ = nullptr;
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    Mailbox& mailbox;
    boost::asio::any_io_executor executor;
    boost::asio::steady_timer timer;
  };

  void wake() {
    const std::lock_guard lock(mutex_);
    if (waiter_ == nullptr || woken_) return;
    woken_ = true;
    // Under the lock, which the waiter takes before it goes: its executor is there for as long.
    boost::asio::post(waiter_->executor, [self = this->shared_from_this(), ticket = ticket_] {
      const std::lock_guard again(self->mutex_);
      if (self->waiter_ != nullptr && self->ticket_ == ticket) self->waiter_->timer.cancel();
    });
  }

  mutable std::mutex mutex_;
  std::deque<T> values_;
  bool closed_ = false;
  Waiter* waiter_ = nullptr;  // the reader that sleeps
  uint64_t ticket_ = 0;       // of its sleep
  bool woken_ = false;        // a wake-up is on its way
};

}  // namespace pocketfleet::net
