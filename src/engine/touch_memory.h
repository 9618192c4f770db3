// Gives every page of the large buffers of this process a place in memory now, so that it is not the first long request that
// finds there is none. Does nothing where the kernel cannot (before Linux 5.14) and under sanitizers, whose own mappings are
// endless.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pocketfleet {

struct MemoryRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Of the text of /proc/self/smaps: private anonymous ranges that may be written, of at least `least_bytes`, for which the kernel
// keeps count (not MAP_NORESERVE). Pure.
std::vector<MemoryRange> large_buffers(std::string_view smaps, uint64_t least_bytes);

// The bytes that were looked after.
uint64_t touch_large_buffers();

}  // namespace pocketfleet
