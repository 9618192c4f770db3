// Progress on standard error: a bar that is drawn over itself on a terminal, a line every few seconds elsewhere. One thread.
#pragma once

#include <chrono>
#include <cstddef>

namespace pocketfleet::cli {

class Progress {
 public:
  explicit Progress(size_t total, bool quiet);
  // Draws when it is time to.
  void show(size_t done, size_t failed);
  // The last state; ends the line that is drawn over.
  void finish(size_t done, size_t failed);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(size_t done, size_t failed);

  size_t total_;
  bool quiet_;
  bool terminal_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
};

}  // namespace pocketfleet::cli
