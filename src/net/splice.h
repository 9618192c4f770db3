// Carries bytes between two streams, both ways at once, as they come and without holding them back. An end on one side is passed
// on as an end, and the other direction goes on. Both streams must run on one executor, which is the caller's; they are not
// closed. Deadlines end it: no byte either way for idle_ms, or a reader that takes nothing for stall_ms.
#pragma once

#include <cstdint>

#include "net/stream.h"

namespace pocketfleet::net {

struct SpliceOptions {
  int64_t idle_ms = 3'600'000;
  int64_t stall_ms = 60'000;
  int64_t half_closed_idle_ms = 60'000;  // when one direction has ended, silence in the other for so long ends it
};

struct SpliceCount {
  uint64_t forth_bytes = 0;  // from a to b
  uint64_t back_bytes = 0;
};

// Counts while it runs. The error is the first of either direction; none when both have ended.
asio::awaitable<Result<void>> splice(Stream& a, Stream& b, SpliceOptions options, SpliceCount& count);

}  // namespace pocketfleet::net
