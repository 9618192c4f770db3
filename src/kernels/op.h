// One operation of a graph as the kernels see it: whether it is ours, how much scratch memory it needs, and how it is run.
// Threads: run() is called once on each of `threads` threads of ggml's own pool, at the same time; parts are shared out through
// Team or by thread number. Results must not depend on the number of threads.
#pragma once

#include <ggml.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pocketfleet::kernels {

// What the threads of one context share while they compute one operation. One per context: no state is global.
class Team {
 public:
  // All `threads` threads meet here. Spins: whoever waits has nothing else to do, and waits are short.
  void barrier(int threads);

  // The next piece of work, from 0 up. restart() before use by one thread, with a barrier before and after it.
  int64_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }
  void restart() { next_.store(0, std::memory_order_relaxed); }

 private:
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> round_{0};
  alignas(64) std::atomic<int64_t> next_{0};
};

struct OpCall {
  const ggml_tensor* tensor;  // dst; its op and op_params are not the original ones while it runs
  const int32_t* params;      // the original op_params, GGML_MAX_OP_PARAMS bytes
  int thread;                 // 0 .. threads-1
  int threads;
  std::byte* scratch;  // scratch_bytes() bytes shared by all threads, aligned to 64, contents undefined
  Team* team;
};

struct Op {
  const char* name;
  ggml_op kind;
  // Whether this very tensor, with its types, shapes and strides, can be run. Looks at no data. What is refused goes to ggml-cpu.
  bool (*supports)(const ggml_tensor* tensor);
  // Bytes that run() needs for all threads together.
  size_t (*scratch_bytes)(const ggml_tensor* tensor, int threads);
  void (*run)(const OpCall& call);
};

inline constexpr size_t kCacheLine = 64;
inline constexpr size_t align_up(size_t bytes, size_t to = kCacheLine) {
  return (bytes + to - 1) / to * to;
}

}  // namespace pocketfleet::kernels
