// Progress of a download on standard error: bytes, rate, time left; a bar that is drawn over itself on a terminal, a line every
// few seconds elsewhere. One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace pocketfleet::cli {

class ByteProgress {
 public:
  explicit ByteProgress(bool quiet);
  // `done` counts what was there before, too; the rate counts `fetched` alone. `note`: why nothing comes, or empty.
  void show(const std::string& name, uint64_t done, uint64_t size, uint64_t fetched, const std::string& note);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
};

}  // namespace pocketfleet::cli
