#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "cli/tally.h"

namespace pocketfleet::cli {

Progress::Progress(size_t total, bool quiet) : total_(total), quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {
  // Elsewhere a short run says nothing until its end.
  if (!terminal_) next_ = begin_ + std::chrono::seconds(5);
}

void Progress::show(size_t done, size_t failed) {
  if (quiet_ || Clock::now() < next_) return;
  next_ = Clock::now() + (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000));
  draw(done, failed);
}

void Progress::finish(size_t done, size_t failed) {
  if (quiet_ || !terminal_) return;
  draw(done, failed);
  std::fputc('\n', stderr);
}

void Progress::draw(size_t done, size_t failed) {
  const double seconds = std::max(1e-3, std::chrono::duration<double>(Clock::now() - begin_).count());
  const double rate = static_cast<double>(done) / seconds;
  const double share = total_ == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total_);
  const std::string left = rate > 0 ? clock_text(static_cast<double>(total_ - done) / rate) : "-:--";
  const std::string failures = failed > 0 ? ", " + std::to_string(failed) + " failed" : "";
  if (terminal_) {
    std::fprintf(stderr, "\r[%s] %3.0f%%  %zu/%zu  %.1f/s  %s left%s\x1b[K", progress_bar(share, 30).c_str(), share * 100, done,
                 total_, rate, left.c_str(), failures.c_str());
  } else {
    std::fprintf(stderr, "%zu of %zu done, %.1f/s, %s left%s\n", done, total_, rate, left.c_str(), failures.c_str());
  }
  std::fflush(stderr);
}

}  // namespace pocketfleet::cli
