#include "engine/touch_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "base/files.h"

namespace pocketfleet {

namespace {

// Above the stack of a thread, which nobody fills.
constexpr uint64_t kLeastBytes = 10u << 20;
constexpr size_t kMostSmapsBytes = 16u << 20;

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

// "7f302d6ed000-7f302d700000 rw-p 00000000 00:00 0 ": a private range without a file that may be written.
std::optional<MemoryRange> anonymous_range(std::string_view line) {
  MemoryRange range;
  const char* end = line.data() + line.size();
  auto parsed = std::from_chars(line.data(), end, range.begin, 16);
  if (parsed.ec != std::errc() || parsed.ptr == end || *parsed.ptr != '-') return std::nullopt;
  parsed = std::from_chars(parsed.ptr + 1, end, range.end, 16);
  if (parsed.ec != std::errc()) return std::nullopt;
  std::string_view rest(parsed.ptr, static_cast<size_t>(end - parsed.ptr));
  if (!rest.starts_with(" rw-p 00000000 00:00 0")) return std::nullopt;
  rest.remove_prefix(std::string_view(" rw-p 00000000 00:00 0").size());
  // Behind it a name, if any: [heap] is one of ours, a file is not.
  const size_t name = rest.find_first_not_of(' ');
  if (name != std::string_view::npos && rest.substr(name) != "[heap]") return std::nullopt;
  return range;
}

}  // namespace

std::vector<MemoryRange> large_buffers(std::string_view smaps, uint64_t least_bytes) {
  std::vector<MemoryRange> out;
  std::optional<MemoryRange> current;
  while (!smaps.empty()) {
    const std::string_view line = next_line(smaps);
    if (line.starts_with("VmFlags:")) {
      const bool kept = (std::string(line) + " ").find(" nr ") == std::string::npos;
      if (current && kept && current->end - current->begin >= least_bytes) out.push_back(*current);
      current.reset();
    } else if (const auto range = anonymous_range(line)) {
      current = range;
    } else if (!line.empty() && line.find(':') != std::string_view::npos && line.find('-') < line.find(':')) {
      current.reset();  // the head of a range that is not wanted
    }
  }
  return out;
}

uint64_t touch_large_buffers() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(MADV_POPULATE_WRITE)
  return 0;
#else
  const auto smaps = read_file("/proc/self/smaps", kMostSmapsBytes);
  if (!smaps) return 0;
  uint64_t bytes = 0;
  for (const MemoryRange& range : large_buffers(*smaps, kLeastBytes)) {
    if (::madvise(reinterpret_cast<void*>(range.begin), range.end - range.begin, MADV_POPULATE_WRITE) == 0)
      bytes += range.end - range.begin;
  }
  return bytes;
#endif
}

}  // namespace pocketfleet
