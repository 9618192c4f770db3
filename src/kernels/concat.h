// Two matrices put together along their rows, where the second is the transposed view of another: what a recurrent layer does
// to put the tokens before a batch in front of it. Blocks of lanes x lanes elements are transposed in registers.
#pragma once

#include <utility>

#include "kernels/op.h"

namespace pocketfleet::kernels {

template <class S>
struct Concat {
  static bool supports(const ggml_tensor* dst) {
    const ggml_tensor *a = dst->src[0], *b = dst->src[1];
    if (dst->op != GGML_OP_CONCAT || dst->op_params[0] != 0 || !a || !b) return false;
    for (const ggml_tensor* t : {dst, a, b}) {
      if (t->type != GGML_TYPE_F32 || t->ne[3] != 1 || t->ne[1] != dst->ne[1] || t->ne[2] != dst->ne[2]) return false;
      if (t->nb[0] % 4 != 0 || t->nb[1] % 4 != 0 || t->nb[2] % 4 != 0 || ggml_is_empty(t)) return false;
    }
    if (dst->ne[0] != a->ne[0] + b->ne[0] || !ggml_is_contiguous(dst)) return false;
    return a->nb[0] == 4 && b->nb[1] == 4 && b->nb[0] >= 4 * static_cast<size_t>(b->ne[1]);
  }

  static size_t scratch_bytes(const ggml_tensor*, int) { return 0; }

  static void run(const OpCall& call) {
    const ggml_tensor* dst = call.tensor;
    const int64_t rows = dst->ne[1], tiles = (rows + kTile - 1) / kTile, all = tiles * dst->ne[2];
    for (int64_t i = all * call.thread / call.threads; i < all * (call.thread + 1) / call.threads; i++) {
      const int64_t first = i % tiles * kTile;
      tile(dst, i / tiles, first, first + kTile < rows ? kTile : rows - first);
    }
  }

  static constexpr Op op{"concat", GGML_OP_CONCAT, supports, scratch_bytes, run};

 private:
  using F = typename S::F32;
  static constexpr int64_t kTile = 64;

  template <class Body, int... I>
  [[gnu::always_inline]] static void unroll(std::integer_sequence<int, I...>, const Body& body) {
    (body(std::integral_constant<int, I>{}), ...);
  }
  template <int kTimes, class Body>
  [[gnu::always_inline]] static void unroll(const Body& body) {
    unroll(std::make_integer_sequence<int, kTimes>{}, body);
  }

  // `rows` rows from `first` on.
  static void tile(const ggml_tensor* dst, int64_t matrix, int64_t first, int64_t rows) {
    const ggml_tensor *a = dst->src[0], *b = dst->src[1];
    const char* a_data = static_cast<const char*>(a->data) + matrix * a->nb[2] + first * a->nb[1];
    const float* from = reinterpret_cast<const float*>(static_cast<const char*>(b->data) + matrix * b->nb[2]) + first;
    const int64_t width = dst->ne[0], a_width = a->ne[0], b_width = b->ne[0], step = b->nb[0] / sizeof(float);
    float* to = static_cast<float*>(dst->data) + (matrix * dst->ne[1] + first) * width;
    for (int64_t r = 0; r < rows; r++) {
      const float* x = reinterpret_cast<const float*>(a_data + r * a->nb[1]);
      float* y = to + r * width;
      // The usual width by itself: a loop costs more than three elements do.
      if (a_width == 3) {
        y[0] = x[0], y[1] = x[1], y[2] = x[2];
      } else {
        for (int64_t i = 0; i < a_width; i++) y[i] = x[i];
      }
    }
    to += a_width;

    const int64_t block_rows = b_width < S::kLanes ? 0 : rows / S::kLanes * S::kLanes;
    for (int64_t t = 0; t < b_width && block_rows > 0; t += S::kLanes) {
      // The last block reaches back over elements already there.
      const int64_t column = t + S::kLanes <= b_width ? t : b_width - S::kLanes;
      for (int64_t r = 0; r < block_rows; r += S::kLanes) block(from + column * step + r, step, to + r * width + column, width);
    }
    for (int64_t t = 0; t < b_width; t++) {
      for (int64_t r = block_rows; r < rows; r++) to[r * width + t] = from[t * step + r];
    }
  }

  [[gnu::always_inline]] static void block(const float* from, int64_t from_step, float* to, int64_t to_step) {
    F x[S::kLanes];
    unroll<S::kLanes>([&](auto j) __attribute__((always_inline)) { x[j] = S::load(from + j * from_step); });
    S::transpose(x);
    unroll<S::kLanes>([&](auto j) __attribute__((always_inline)) { S::store(to + j * to_step, x[j]); });
  }
};

}  // namespace pocketfleet::kernels
