// The clock port. now_ms() never goes back and has no meaning across processes; unix_ms() is wall time. Both in milliseconds.
// SystemClock is the real one; FakeClock, for tests, stands until it is told to move. Both may be used from any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace pocketfleet {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ms() const = 0;
  virtual int64_t unix_ms() const = 0;
};

class SystemClock final : public Clock {
 public:
  int64_t now_ms() const override;
  int64_t unix_ms() const override;
  // One for the whole process; it has no state.
  static const SystemClock& instance();
};

// The system's clock, where no other can be given.
inline int64_t now_ms() {
  return SystemClock::instance().now_ms();
}
inline int64_t unix_ms() {
  return SystemClock::instance().unix_ms();
}

class FakeClock final : public Clock {
 public:
  explicit FakeClock(int64_t start_ms = 1'000'000) : now_(start_ms) {}
  int64_t now_ms() const override { return now_.load(); }
  int64_t unix_ms() const override { return now_.load() + 1'700'000'000'000; }
  void advance_ms(int64_t by_ms) { now_ += by_ms; }

 private:
  std::atomic<int64_t> now_;
};

}  // namespace pocketfleet
