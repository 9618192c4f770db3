// The short convolution before a recurrent layer: every channel has four weights of its own, slid over its tokens. A channel's
// tokens lie together in the input, but a token's channels lie together in the output; so a block of lanes x lanes results is
// computed with the lanes along the tokens and transposed in registers. The work is bound by memory, not arithmetic: a thread
// stays within some channels, and fetches ahead, since so many streams at once are more than the hardware follows.
#pragma once

#include <utility>

#include "kernels/op.h"

namespace pocketfleet::kernels {

template <class S>
struct SsmConv {
  static bool supports(const ggml_tensor* dst) {
    const ggml_tensor *x = dst->src[0], *weights = dst->src[1];
    if (dst->op != GGML_OP_SSM_CONV || !x || !weights) return false;
    for (const ggml_tensor* t : {dst, x, weights}) {
      if (t->type != GGML_TYPE_F32 || t->ne[3] != 1) return false;
    }
    const int64_t channels = dst->ne[0], tokens = dst->ne[1], seqs = dst->ne[2];
    if (channels < 1 || tokens < 1 || seqs < 1 || !ggml_is_contiguous(dst) || !ggml_is_contiguous(weights)) return false;
    if (weights->ne[0] != kWidth || weights->ne[1] != channels || weights->ne[2] != 1) return false;
    if (x->ne[0] != tokens + kWidth - 1 || x->ne[1] != channels || x->ne[2] != seqs) return false;
    return x->nb[0] == 4 && x->nb[1] == 4 * static_cast<size_t>(x->ne[0]) && x->nb[2] % 4 == 0;
  }

  static size_t scratch_bytes(const ggml_tensor*, int) { return 0; }

  static void run(const OpCall& call) {
    const ggml_tensor *dst = call.tensor, *x = dst->src[0];
    const int64_t channels = dst->ne[0], tokens = dst->ne[1], tiles = (channels + kTile - 1) / kTile, all = tiles * dst->ne[2];
    for (int64_t i = all * call.thread / call.threads; i < all * (call.thread + 1) / call.threads; i++) {
      const int64_t seq = i / tiles, first = i % tiles * kTile, end = first + kTile < channels ? first + kTile : channels;
      const Sequence s{reinterpret_cast<const float*>(static_cast<const char*>(x->data) + seq * x->nb[2]),
                       static_cast<const float*>(dst->src[1]->data), static_cast<float*>(dst->data) + seq * channels * tokens,
                       channels, tokens};
      if (tokens == 1) {
        one_token(s, first, end);
      } else {
        tile(s, first, end);
      }
    }
  }

  static constexpr Op op{"ssm_conv", GGML_OP_SSM_CONV, supports, scratch_bytes, run};

 private:
  using F = typename S::F32;
  static constexpr int64_t kWidth = 4;
  static constexpr int64_t kTile = 64;   // channels
  static constexpr int64_t kAhead = 32;  // tokens; past the last one, those of the next tile

  struct Sequence {
    const float *x, *weights;
    float* out;
    int64_t channels, tokens;
  };

  template <class Body, int... I>
  [[gnu::always_inline]] static void unroll(std::integer_sequence<int, I...>, const Body& body) {
    (body(std::integral_constant<int, I>{}), ...);
  }
  template <int kTimes, class Body>
  [[gnu::always_inline]] static void unroll(const Body& body) {
    unroll(std::make_integer_sequence<int, kTimes>{}, body);
  }

  static float one(const float* x, const float* w) { return x[0] * w[0] + x[1] * w[1] + x[2] * w[2] + x[3] * w[3]; }

  // Four products of a channel lie together. The vector that begins with them reaches into the next channels, which is
  // harmless: of the transposed block only the first four rows count.
  static void one_token(const Sequence& s, int64_t first, int64_t end) {
    int64_t c = first;
    for (; c + S::kLanes <= end && (c + S::kLanes - 1) * kWidth + S::kLanes <= s.channels * kWidth; c += S::kLanes) {
      F p[S::kLanes];
      unroll<S::kLanes>([&](auto j) __attribute__((always_inline)) {
        p[j] = S::mul(S::load(s.x + (c + j) * kWidth), S::load(s.weights + (c + j) * kWidth));
      });
      S::transpose(p);
      S::store(s.out + c, S::add(S::add(p[0], p[1]), S::add(p[2], p[3])));
    }
    for (; c < end; c++) s.out[c] = one(s.x + c * kWidth, s.weights + c * kWidth);
  }

  static void tile(const Sequence& s, int64_t first, int64_t end) {
    const int64_t row = s.tokens + kWidth - 1, all = s.channels * row;
    for (int64_t t = 0; t < s.tokens; t += S::kLanes) {
      const int64_t count = s.tokens - t < S::kLanes ? s.tokens - t : S::kLanes;
      int64_t ahead = t + kAhead < s.tokens ? kAhead : kTile * row + kAhead - s.tokens;
      if (end + kTile > s.channels) ahead = 0;
      for (int64_t c = first; c < end; c += S::kLanes) {
        // Lanes past the last token read the next channel's tokens; behind the last channel there are none.
        if (c + S::kLanes <= end && (c + S::kLanes - 1) * row + t + kWidth - 1 + S::kLanes <= all) {
          block(s, c, t, count, ahead);
        } else {
          for (int64_t j = c; j < end && j < c + S::kLanes; j++) {
            for (int64_t n = t; n < t + count; n++) s.out[n * s.channels + j] = one(s.x + j * row + n, s.weights + j * kWidth);
          }
        }
      }
    }
  }

  [[gnu::always_inline]] static void block(const Sequence& s, int64_t channel, int64_t token, int64_t count, int64_t ahead) {
    const int64_t row = s.tokens + kWidth - 1;
    const float *x = s.x + channel * row + token, *w = s.weights + channel * kWidth;
    F sums[S::kLanes];
    unroll<S::kLanes>([&](auto j) __attribute__((always_inline)) {
      const float *xj = x + j * row, *wj = w + j * kWidth;
      __builtin_prefetch(xj + ahead);
      F sum = S::mul(S::load(xj), S::set1(wj[0]));
      sum = S::fma(S::load(xj + 1), S::set1(wj[1]), sum);
      sum = S::fma(S::load(xj + 2), S::set1(wj[2]), sum);
      sums[j] = S::fma(S::load(xj + 3), S::set1(wj[3]), sum);
    });
    S::transpose(sums);
    float* out = s.out + token * s.channels + channel;
    unroll<S::kLanes>([&](auto j) __attribute__((always_inline)) {
      if (j < count) S::store(out + j * s.channels, sums[j]);
    });
  }
};

}  // namespace pocketfleet::kernels
