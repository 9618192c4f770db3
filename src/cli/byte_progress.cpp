#include "cli/byte_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/tally.h"
#include "model/gguf.h"

namespace pocketfleet::cli {

ByteProgress::ByteProgress(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {
  // Elsewhere a short download says nothing until its end.
  if (!terminal_) next_ = begin_ + std::chrono::seconds(5);
}

void ByteProgress::show(const std::string& name, uint64_t done, uint64_t size, uint64_t fetched, const std::string& note) {
  if (quiet_ || (Clock::now() < next_ && note.empty())) return;
  next_ = Clock::now() + (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000));
  const double seconds = std::max(1e-3, std::chrono::duration<double>(Clock::now() - begin_).count());
  const double rate = static_cast<double>(fetched) / seconds;
  const double share = size == 0 ? 0 : static_cast<double>(done) / static_cast<double>(size);
  const std::string left = rate > 0 && size >= done ? clock_text(static_cast<double>(size - done) / rate) : "-:--";
  const std::string speed = format_bytes(static_cast<uint64_t>(rate)) + "/s";
  const std::string tail = note.empty() ? left + " left" : note;
  if (terminal_) {
    std::fprintf(stderr, "\r%s [%s] %3.0f%%  %s of %s  %s  %s\x1b[K", name.c_str(), progress_bar(share, 24).c_str(), share * 100,
                 format_bytes(done).c_str(), format_bytes(size).c_str(), speed.c_str(), tail.c_str());
  } else {
    std::fprintf(stderr, "%s: %s of %s, %s, %s\n", name.c_str(), format_bytes(done).c_str(), format_bytes(size).c_str(),
                 speed.c_str(), tail.c_str());
  }
  std::fflush(stderr);
  drawn_ = true;
}

void ByteProgress::finish() {
  if (drawn_ && terminal_) std::fputc('\n', stderr);
}

}  // namespace pocketfleet::cli
