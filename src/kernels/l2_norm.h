// Rows divided by their length, as the delta net wants its keys and queries: y = x / max(|x|, eps). The rows are short and may
// lie apart; what this saves is the sum of the squares one after the other.
#pragma once

#include <math.h>

#include <cstring>

#include "kernels/op.h"

namespace pocketfleet::kernels {

template <class S>
struct L2Norm {
  static bool supports(const ggml_tensor* dst) {
    const ggml_tensor* x = dst->src[0];
    if (dst->op != GGML_OP_L2_NORM || !x || dst->type != GGML_TYPE_F32 || x->type != GGML_TYPE_F32) return false;
    if (!ggml_are_same_shape(dst, x) || !ggml_is_contiguous(dst) || ggml_is_empty(dst) || dst->ne[0] % kStep != 0) return false;
    return x->nb[0] == 4 && x->nb[1] % 4 == 0 && x->nb[2] % 4 == 0 && x->nb[3] % 4 == 0;
  }

  static size_t scratch_bytes(const ggml_tensor*, int) { return 0; }

  static void run(const OpCall& call) {
    const ggml_tensor *dst = call.tensor, *x = dst->src[0];
    float eps;
    memcpy(&eps, call.params, sizeof(eps));
    const int64_t width = x->ne[0], n1 = x->ne[1], n2 = x->ne[2], all = n1 * n2 * x->ne[3];
    for (int64_t i = all * call.thread / call.threads; i < all * (call.thread + 1) / call.threads; i++) {
      const size_t offset = i % n1 * x->nb[1] + i / n1 % n2 * x->nb[2] + i / n1 / n2 * x->nb[3];
      row(reinterpret_cast<const float*>(static_cast<const char*>(x->data) + offset), static_cast<float*>(dst->data) + i * width,
          width, eps);
    }
  }

  static constexpr Op op{"l2_norm", GGML_OP_L2_NORM, supports, scratch_bytes, run};

 private:
  using F = typename S::F32;
  static constexpr int64_t kStep = 32;

  static void row(const float* from, float* to, int64_t width, float eps) {
    F even = S::zero(), odd = S::zero();
    for (int64_t i = 0; i < width; i += 2 * S::kLanes) {
      const F a = S::load(from + i), b = S::load(from + i + S::kLanes);
      even = S::fma(a, a, even);
      odd = S::fma(b, b, odd);
    }
    const float length = sqrtf(S::reduce_add(S::add(even, odd)));
    const F scale = S::set1(1.0f / (length < eps ? eps : length));
    for (int64_t i = 0; i < width; i += S::kLanes) S::store(to + i, S::mul(S::load(from + i), scale));
  }
};

}  // namespace pocketfleet::kernels
