// Whether a model fits, computed before it is loaded: weights, KV cache, recurrent states, compute buffers, saved states. The
// numbers follow llama.cpp's own allocation. Pure but for read_available_memory(). Any thread. Errors: kOutOfMemory with every
// number and with what to change; kInvalidArgument for a KV type that is not known.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/gguf.h"

namespace pocketfleet {

// As the engine will be started. 0 stands for the engine's own choice where there is one.
struct MemorySettings {
  uint64_t context_tokens = 0;  // of one request; 0: the trained length, at most 8,192
  uint64_t slots = 4;
  uint64_t sequences = 0;  // 0: slots, and those that the engine adds for prefixes and labels
  uint64_t batch_tokens = 512;
  std::string kv_type = "f16";  // f32, f16, q8_0
  uint64_t checkpoint_bytes = 256u << 20;
  uint64_t packing_bytes = 0;  // what the weights take more in memory than in the file
  bool embeddings = false;     // a context of its own for them
  bool draft_head = false;     // likewise, and its weights
};

struct MemoryPlan {
  uint64_t context_tokens = 0;  // of one request
  uint64_t sequences = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t recurrent_bytes = 0;
  uint64_t compute_bytes = 0;
  uint64_t vocabulary_bytes = 0;  // tokenizer tables and logits
  uint64_t checkpoint_bytes = 0;
  uint64_t embedding_bytes = 0;  // the context for embeddings
  uint64_t draft_bytes = 0;      // the draft head
  uint64_t program_bytes = 0;    // the server itself
  uint64_t available_bytes = 0;

  uint64_t total_bytes() const {
    return weight_bytes + kv_bytes + recurrent_bytes + compute_bytes + vocabulary_bytes + checkpoint_bytes + embedding_bytes +
           draft_bytes + program_bytes;
  }
};

// What it takes, whether it fits or not.
Result<MemoryPlan> compute_memory(const ModelSummary& summary, const MemorySettings& settings);

// The same, refused when it is more than `available_bytes`.
Result<MemoryPlan> plan_memory(const ModelSummary& summary, const MemorySettings& settings, uint64_t available_bytes);

// The most tokens of one request, in steps of 256 and at most what the model was trained on, that leave a tenth of the memory
// free; `settings.context_tokens` is not looked at. Refused as plan_memory() would when even the least does not fit.
Result<uint64_t> largest_context(const ModelSummary& summary, MemorySettings settings, uint64_t available_bytes);

// "weights 461 MiB + KV cache 96 MiB (8192 tokens x 4 slots, f16) + ..."
std::string describe(const MemoryPlan& plan);

struct AvailableMemory {
  uint64_t bytes = 0;
  std::string limited_by;  // "this machine" or "the memory limit of cgroup /x"
};

// The least of MemAvailable and of what the cgroups (v2) that this process is in leave over. `root` is put before /proc and /sys,
// for tests. kIo when there is no /proc/meminfo.
Result<AvailableMemory> read_available_memory(const std::string& root = "");

}  // namespace pocketfleet
