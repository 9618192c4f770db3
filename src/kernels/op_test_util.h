// For tests of single operations: tensors whose data ends where the tensor ends, so that the address sanitizer sees every
// element read beyond it, the operation run on any number of threads, and vectors of any length without any instruction set.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/isa.h"
#include "kernels/op.h"
#include "kernels/simd_math.h"

namespace pocketfleet::kernels::testing {

template <int kWidth>
struct PlainVectors {
  static constexpr int kLanes = kWidth;
  static constexpr int kRegisters = 32;
  struct F32 {
    float lane[kWidth];
  };
  template <class Function>
  static F32 each(const Function& function) {
    F32 result;
    for (int i = 0; i < kWidth; i++) result.lane[i] = function(i);
    return result;
  }
  static F32 zero() { return set1(0.0f); }
  static F32 set1(float x) {
    return each([&](int) { return x; });
  }
  static F32 load(const float* from) {
    return each([&](int i) { return from[i]; });
  }
  static void store(float* to, F32 x) { std::copy(x.lane, x.lane + kWidth, to); }
  static F32 add(F32 a, F32 b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F32 sub(F32 a, F32 b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F32 mul(F32 a, F32 b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F32 fma(F32 a, F32 b, F32 c) {
    return each([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static F32 fnma(F32 a, F32 b, F32 c) {
    return each([&](int i) { return std::fma(-a.lane[i], b.lane[i], c.lane[i]); });
  }
  static float reduce_add(F32 x) {
    float sum = 0;
    for (const float lane : x.lane) sum += lane;
    return sum;
  }
  static void transpose(F32 (&rows)[kWidth]) {
    for (int i = 0; i < kWidth; i++) {
      for (int j = 0; j < i; j++) std::swap(rows[i].lane[j], rows[j].lane[i]);
    }
  }
};

// Builds for many processors load ggml-cpu as a library.
inline void load_ggml_cpu() {
  static const bool loaded = [] {
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr) ggml_backend_load_all();
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != nullptr;
  }();
  ASSERT_TRUE(loaded) << "there is no ggml-cpu beside this program";
}

// In the place of vectors: the best instruction set of the processor that the test runs on.
struct ThisProcessor {
  static constexpr int kLanes = 0;  // not known here
};

template <template <class> class X, class S>
const Op& op_of() {
  if constexpr (std::is_same_v<S, ThisProcessor>) {
    for (const Op* op : usable_isas().front()->ops) {
      if (op->kind == X<PlainVectors<4>>::op.kind) return *op;
    }
    std::abort();  // an instruction set lacks this operation
  } else {
    return X<S>::op;
  }
}

#define PF_NEEDS_KERNELS() \
  if (usable_isas().empty()) GTEST_SKIP() << "this processor has none of the instruction sets that there are kernels for"

class OpBench {
 public:
  explicit OpBench(uint32_t seed) : random_(seed), context_(ggml_init({1 << 20, nullptr, true})) {}
  ~OpBench() { ggml_free(context_); }
  OpBench(const OpBench&) = delete;
  OpBench& operator=(const OpBench&) = delete;

  ggml_context* context() { return context_; }
  std::mt19937& random() { return random_; }
  int64_t pick(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }

  // A contiguous tensor of numbers from `least` to `most`.
  ggml_tensor* tensor(int64_t n0, int64_t n1, int64_t n2, int64_t n3, float least = -1, float most = 1) {
    ggml_tensor* t = ggml_new_tensor_4d(context_, GGML_TYPE_F32, n0, n1, n2, n3);
    allocate(t);
    std::uniform_real_distribution<float> numbers(least, most);
    for (float* x = data(t); x != data(t) + ggml_nelements(t); x++) *x = numbers(random_);
    return t;
  }

  void allocate(ggml_tensor* t) {
    // Aligned like the buffers of llama.cpp, but ending with the tensor.
    blocks_.emplace_back(std::malloc(ggml_nbytes(t)), &std::free);
    t->data = blocks_.back().get();
  }

  static float* data(const ggml_tensor* t) { return static_cast<float*>(t->data); }
  static float element(const ggml_tensor* t, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return *reinterpret_cast<const float*>(static_cast<const char*>(t->data) + i0 * t->nb[0] + i1 * t->nb[1] + i2 * t->nb[2] +
                                           i3 * t->nb[3]);
  }

  // What the operation leaves in dst; elements that it does not write keep the value `untouched`.
  static constexpr float kUntouched = -12345.0f;
  std::vector<float> run(const Op& op, ggml_tensor* dst, int threads) {
    EXPECT_TRUE(op.supports(dst)) << op.name;
    if (!dst->data) allocate(dst);
    std::fill_n(data(dst), ggml_nelements(dst), kUntouched);
    const size_t bytes = op.scratch_bytes(dst, threads);
    const std::unique_ptr<void, void (*)(void*)> scratch(bytes ? std::aligned_alloc(kCacheLine, align_up(bytes)) : nullptr,
                                                         &std::free);
    if (bytes) std::memset(scratch.get(), 0xff, bytes);
    int32_t params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
    std::memcpy(params, dst->op_params, sizeof(params));
    ggml_tensor running = *dst;
    running.op = GGML_OP_CUSTOM;
    std::memset(running.op_params, 0x55, sizeof(running.op_params));
    Team team;
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads; thread++) {
      all.emplace_back([&, thread] {
        op.run({&running, params, thread, threads, static_cast<std::byte*>(scratch.get()), &team});
      });
    }
    for (std::thread& thread : all) thread.join();
    return {data(dst), data(dst) + ggml_nelements(dst)};
  }

  // The same from ggml's own kernels.
  std::vector<float> run_on_ggml_cpu(ggml_tensor* dst) {
    if (!dst->data) allocate(dst);
    std::fill_n(data(dst), ggml_nelements(dst), kUntouched);
    ggml_cgraph* graph = ggml_new_graph_custom(context_, 16, false);
    ggml_build_forward_expand(graph, dst);
    load_ggml_cpu();
    const std::unique_ptr<ggml_backend, void (*)(ggml_backend_t)> cpu(
        ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr), ggml_backend_free);
    EXPECT_EQ(ggml_backend_graph_compute(cpu.get(), graph), GGML_STATUS_SUCCESS);
    return {data(dst), data(dst) + ggml_nelements(dst)};
  }

  static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

 private:
  std::mt19937 random_;
  ggml_context* context_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> blocks_;
};

}  // namespace pocketfleet::kernels::testing
