#include <sched.h>

#include "kernels/op.h"

namespace pocketfleet::kernels {

namespace {

// A thread that waits this long has probably lost its processor to somebody, who gets it back sooner if we let go too.
constexpr int kSpinsBeforeYield = 2000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Team::barrier(int threads) {
  if (threads == 1) return;
  const int round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    return;
  }
  for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
    if (spins < kSpinsBeforeYield) {
      relax();
    } else {
      sched_yield();
    }
  }
}

}  // namespace pocketfleet::kernels
