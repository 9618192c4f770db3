// Which prompt tokens go into the next batch. Pure: takes the state of the requests that are being read and gives chunk sizes.
// Short prompts go before long ones, interactive before batch, with ageing so that none starves; a running stream never waits
// longer than a target gap; inputs of like length go together, because a recurrent model's batch is cut into pieces of equal
// length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/types.h"

namespace pocketfleet {

struct Reading {
  size_t remaining = 0;    // prompt tokens that are still to be read
  size_t until_stop = 0;   // at most this many in one batch (a checkpoint stands there); 1 to remaining
  int64_t waiting_ms = 0;  // since the request came
  Priority priority = Priority::kInteractive;
};

struct BatchLimits {
  size_t batch_tokens = 512;     // room for prompt tokens in this batch
  size_t minimum_chunk = 32;     // smaller chunks waste the machine
  double read_tokens_per_s = 0;  // measured; 0 when not known
  int64_t stream_gap_ms = 250;   // a running stream may wait so long for a chunk
  int64_t chunk_ms = 2'000;      // no chunk takes longer, so that a caller who has gone costs little
  int64_t ageing_ms = 10'000;    // waiting so long doubles a request's claim
  bool streams_running = false;
};

struct Chunk {
  size_t index;  // into the readings
  size_t tokens;
};

// Who goes first: lower is sooner. A prompt's length counts, divided by how long it has waited, so a long one that has waited
// goes before short newcomers.
double claim(const Reading& reading, const BatchLimits& limits);

// Never empty when there is a reading; the sum of tokens is at most batch_tokens; no index twice.
std::vector<Chunk> plan_chunks(const std::vector<Reading>& readings, const BatchLimits& limits);

}  // namespace pocketfleet
