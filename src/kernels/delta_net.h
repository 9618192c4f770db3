// The gated delta rule (Yang et al., "Gated Delta Networks", 2024): per head a state S of size x size floats, and per token
//   S <- e^g S;  d = beta (v - S^T k);  S <- S + k d^T;  out = S^T q / sqrt(size).
// The columns of S never meet, so they are spread over threads and lanes. For prompts a panel of columns stays in the first
// level cache; one pass per pair of tokens updates it, computes both outputs, and S^T k of the next pair: three multiply-adds per
// element and token, and only half as many stores as with single tokens, which were the limit. For a few tokens that does not
// pay for reordering S (memory holds it column by column): then lanes run along a column, and S is read and written once.
#pragma once

#include <math.h>

#include <utility>

#include "kernels/op.h"

namespace pocketfleet::kernels {

template <class S>
struct DeltaNet {
  static bool supports(const ggml_tensor* dst) {
    const ggml_tensor *q = dst->src[0], *k = dst->src[1], *v = dst->src[2], *g = dst->src[3], *beta = dst->src[4],
                      *state = dst->src[5];
    if (!q || !k || !v || !g || !beta || !state || dst->op != GGML_OP_GATED_DELTA_NET || !f32(dst) || !ggml_is_contiguous(dst)) {
      return false;
    }
    const int64_t size = v->ne[0], heads = v->ne[1], tokens = v->ne[2], seqs = v->ne[3], slots = dst->op_params[0];
    if (size < 16 || size > kMaxSize || size % 16 != 0 || heads < 1 || tokens < 1 || seqs < 1 || slots < 1) return false;
    for (const ggml_tensor* x : {q, k, v}) {
      if (!f32(x) || x->nb[0] != 4 || x->nb[1] % 4 != 0 || x->nb[2] % 4 != 0 || x->nb[3] % 4 != 0) return false;
      if (x->ne[0] != size || x->ne[1] < 1 || x->ne[2] != tokens || x->ne[3] < 1 || seqs % x->ne[3] != 0) return false;
    }
    for (const ggml_tensor* x : {g, beta}) {
      if (!f32(x) || !ggml_is_contiguous(x) || !shaped(x, 1, heads, tokens, seqs)) return false;
    }
    if (!f32(state) || !ggml_is_contiguous(state) || !shaped(state, size, size, heads, seqs)) return false;
    return shaped(dst, size * heads, tokens * seqs + slots * size * seqs, 1, 1);
  }

  static size_t scratch_bytes(const ggml_tensor* dst, int threads) {
    const ggml_tensor* v = dst->src[2];
    return v->ne[2] < kManyTokens ? 0 : static_cast<size_t>(threads) * Scratch::floats(v->ne[0]) * sizeof(float);
  }

  static void run(const OpCall& call) {
    const ggml_tensor* v = call.tensor->src[2];
    const int64_t size = v->ne[0], heads = v->ne[1] * v->ne[3];
    const bool many = v->ne[2] >= kManyTokens;
    const int64_t blocks = many ? (size + kColumns - 1) / kColumns : size / kRows;
    const int64_t end = heads * blocks * (call.thread + 1) / call.threads;
    for (int64_t i = heads * blocks * call.thread / call.threads; i < end;) {
      const int64_t head = i / blocks, stop = (head + 1) * blocks < end ? (head + 1) * blocks : end;
      if (many) {
        Scratch scratch(reinterpret_cast<float*>(call.scratch), size, call.thread);
        many_tokens(head_at(call, head), i - head * blocks, stop - head * blocks, scratch);
      } else {
        few_tokens(head_at(call, head), i - head * blocks, stop - head * blocks);
      }
      i = stop;
    }
  }

  static constexpr Op op{"delta_net", GGML_OP_GATED_DELTA_NET, supports, scratch_bytes, run};

 private:
  using F = typename S::F32;
  static constexpr int64_t kMaxSize = 256;
  static constexpr int64_t kManyTokens = 8;
  static constexpr int kRows = 8;  // columns of the state that few tokens pass through together: rows in memory
  // A panel: 16 columns, or two vectors where that is more, so that there are enough sums in flight.
  static constexpr int kVectors = S::kLanes < 8 ? 16 / S::kLanes : 2;
  static constexpr int kColumns = kVectors * S::kLanes;
  // What so many tokens read and write is copied together: at its own place, a multiple of 4 KiB apart from token to token, it
  // would evict itself from the caches, and every store to an output would wait for memory.
  static constexpr int64_t kChunk = 64;
  static constexpr int64_t kAhead = 4;  // rows to fetch ahead: no prefetcher sees a pattern in rows of 512 bytes
  // The decay is kept as one factor beside the panel, and multiplied in before it leaves this range. What one token leaves less
  // of than e^kLeastGate, 1e-12, has vanished: with that much left two tokens cannot overflow.
  static constexpr float kLeastDecay = 0x1p-80f, kMostDecay = 0x1p40f, kLeastGate = -27.0f;

  // What one head of one sequence reads and writes. Steps lead to the next token, in floats.
  struct Head {
    const float *q, *k, *v, *g, *beta, *state;
    int64_t q_step, k_step, v_step, gate_step, out_step, size, tokens;
    float* out;
    float* states;  // snapshot 0, the newest; one token older every `slot_step` floats
    int64_t slots, slot_step;

    bool wanted(int64_t t) const { return tokens - 1 - t < slots; }
    // Where the state after token t goes. One that nobody wants goes to the oldest slot, which is overwritten later.
    float* slot(int64_t t) const { return states + (wanted(t) ? tokens - 1 - t : slots - 1) * slot_step; }
  };

  // What one thread needs for many tokens.
  struct Scratch {
    float *panels, *decay;    // all panels of a head, and what each is to be multiplied by
    float *k, *q, *v;         // rows of a chunk; v turns into the outputs
    float *gate, *beta, *kk;  // of each token: e^g, beta, product of its key and the next one

    static int64_t floats(int64_t size) { return size * size + kMaxSize + 3 * kChunk * size + 3 * kChunk; }
    Scratch(float* all, int64_t size, int thread) {
      panels = all + thread * floats(size);
      decay = panels + size * size;
      k = decay + kMaxSize;
      q = k + kChunk * size;
      v = q + kChunk * size;
      gate = v + kChunk * size;
      beta = gate + kChunk;
      kk = beta + kChunk;
    }
  };

  static bool f32(const ggml_tensor* x) { return x->type == GGML_TYPE_F32; }
  static bool shaped(const ggml_tensor* x, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return x->ne[0] == n0 && x->ne[1] == n1 && x->ne[2] == n2 && x->ne[3] == n3;
  }

  template <class Body, int... I>
  [[gnu::always_inline]] static void unroll(std::integer_sequence<int, I...>, const Body& body) {
    (body(std::integral_constant<int, I>{}), ...);
  }
  template <int kTimes, class Body>
  [[gnu::always_inline]] static void unroll(const Body& body) {
    unroll(std::make_integer_sequence<int, kTimes>{}, body);
  }

  static const float* at(const ggml_tensor* x, int64_t head, int64_t seq, int64_t seqs) {
    const size_t offset = head % x->ne[1] * x->nb[1] + seq / (seqs / x->ne[3]) * x->nb[3];
    return reinterpret_cast<const float*>(static_cast<const char*>(x->data) + offset);
  }

  static Head head_at(const OpCall& call, int64_t index) {
    const ggml_tensor *dst = call.tensor, *q = dst->src[0], *k = dst->src[1], *v = dst->src[2];
    const int64_t size = v->ne[0], heads = v->ne[1], tokens = v->ne[2], seqs = v->ne[3];
    const int64_t head = index % heads, seq = index / heads, gate = seq * tokens * heads + head;
    float* out = static_cast<float*>(dst->data);
    Head h;
    h.q = at(q, head, seq, seqs);
    h.k = at(k, head, seq, seqs);
    h.v = at(v, head, seq, seqs);
    h.g = static_cast<const float*>(dst->src[3]->data) + gate;
    h.beta = static_cast<const float*>(dst->src[4]->data) + gate;
    h.state = static_cast<const float*>(dst->src[5]->data) + index * size * size;
    h.q_step = q->nb[2] / sizeof(float);
    h.k_step = k->nb[2] / sizeof(float);
    h.v_step = v->nb[2] / sizeof(float);
    h.gate_step = heads;
    h.out_step = heads * size;
    h.size = size;
    h.tokens = tokens;
    h.out = out + gate * size;
    h.states = out + size * heads * tokens * seqs + index * size * size;
    h.slots = call.params[0];
    h.slot_step = size * size * heads * seqs;
    return h;
  }

  // Blocks first .. last-1 of eight columns, one after the other, through all tokens where they lie in memory.
  static void few_tokens(const Head& h, int64_t first, int64_t last) {
    const int64_t size = h.size;
    const float scale = 1.0f / sqrtf(static_cast<float>(size));
    float decay[kManyTokens];
    for (int64_t t = 0; t < h.tokens; t++) decay[t] = expf(h.g[t * h.gate_step]);
    for (int64_t column = first * kRows; column < last * kRows; column += kRows) {
      const float* from = h.state + column * size;
      // While these columns are computed the next ones are on their way.
      const int64_t ahead = column + kRows < last * kRows ? kRows * size : 0;
      for (int64_t t = 0; t < h.tokens; t++) {
        const float *q = h.q + t * h.q_step, *k = h.k + t * h.k_step, *v = h.v + t * h.v_step + column;
        float* to = h.slot(t) + column * size;
        float* out = h.out + t * h.out_step + column;

        F sk[kRows];
        unroll<kRows>([&](auto r) __attribute__((always_inline)) { sk[r] = S::zero(); });
        for (int64_t i = 0; i < size; i += S::kLanes) {
          for (int64_t line = i * kRows; t == 0 && line < (i + S::kLanes) * kRows; line += 16) {
            __builtin_prefetch(from + ahead + line);
            __builtin_prefetch(to + ahead + line, 1);
          }
          const F ki = S::load(k + i);
          unroll<kRows>([&](auto r) __attribute__((always_inline)) { sk[r] = S::fma(S::load(from + r * size + i), ki, sk[r]); });
        }
        float d[kRows];
        unroll<kRows>([&](auto r) __attribute__((always_inline)) {
          d[r] = (v[r] - decay[t] * S::reduce_add(sk[r])) * h.beta[t * h.gate_step];
        });
        // All eight at once would need more registers than there are.
        update<0>(size, from, to, decay[t], d, k, q, scale, out);
        update<kRows / 2>(size, from, to, decay[t], d, k, q, scale, out);
        from = to;
      }
    }
  }

  template <int kFirst>
  [[gnu::always_inline]] static void update(int64_t size, const float* from, float* to, float decay, const float* d,
                                            const float* k, const float* q, float scale, float* out) {
    constexpr int kHalf = kRows / 2;
    const F g = S::set1(decay);
    F dr[kHalf], sq[kHalf];
    unroll<kHalf>([&](auto r) __attribute__((always_inline)) {
      dr[r] = S::set1(d[kFirst + r]);
      sq[r] = S::zero();
    });
    for (int64_t i = 0; i < size; i += S::kLanes) {
      const F ki = S::load(k + i), qi = S::load(q + i);
      unroll<kHalf>([&](auto r) __attribute__((always_inline)) {
        const F s = S::fma(dr[r], ki, S::mul(g, S::load(from + (kFirst + r) * size + i)));
        S::store(to + (kFirst + r) * size + i, s);
        sq[r] = S::fma(s, qi, sq[r]);
      });
    }
    unroll<kHalf>([&](auto r) __attribute__((always_inline)) { out[kFirst + r] = scale * S::reduce_add(sq[r]); });
  }

  // Panels first .. last-1 of one head through all tokens.
  static void many_tokens(const Head& h, int64_t first, int64_t last, const Scratch& scratch) {
    for (int64_t t = 0; t < h.tokens; t += kChunk) {
      const int64_t count = h.tokens - t < kChunk ? h.tokens - t : kChunk;
      const int64_t column = first * kColumns, width = (last * kColumns < h.size ? last * kColumns : h.size) - column;
      copy_rows(h.k + t * h.k_step, h.k_step, scratch.k, h.size, h.size, count);
      copy_rows(h.q + t * h.q_step, h.q_step, scratch.q, h.size, h.size, count);
      copy_rows(h.v + t * h.v_step + column, h.v_step, scratch.v + column, h.size, width, count);
      prepare(h, t, count, scratch);
      for (int64_t p = first; p < last; p++) {
        if (kColumns <= 16 || h.size - p * kColumns >= kColumns) {
          chunk<kVectors>(h, t, count, p, scratch);
        } else {
          chunk<16 / S::kLanes>(h, t, count, p, scratch);
        }
      }
      copy_rows(scratch.v + column, h.size, h.out + t * h.out_step + column, h.out_step, width, count);
    }
  }

  static void copy_rows(const float* from, int64_t from_step, float* to, int64_t to_step, int64_t width, int64_t count) {
    for (int64_t n = 0; n < count; n++, from += from_step, to += to_step) {
      const int64_t ahead = n + kAhead < count ? kAhead : 0;
      for (int64_t i = 0; i < width; i += 16) {
        __builtin_prefetch(from + ahead * from_step + i);
        __builtin_prefetch(to + ahead * to_step + i, 1);
        for (int64_t j = i; j < i + 16; j += S::kLanes) S::store(to + j, S::load(from + j));
      }
    }
  }

  static void prepare(const Head& h, int64_t t, int64_t count, const Scratch& scratch) {
    for (int64_t n = 0; n < count; n++) {
      const float g = h.g[(t + n) * h.gate_step];
      scratch.gate[n] = expf(g < kLeastGate ? kLeastGate : g);
      scratch.beta[n] = h.beta[(t + n) * h.gate_step];
    }
    for (int64_t n = 0; n + 1 < count; n++) {
      const float* k = scratch.k + n * h.size;
      F sum = S::zero();
      for (int64_t i = 0; i < h.size; i += S::kLanes) sum = S::fma(S::load(k + i), S::load(k + h.size + i), sum);
      scratch.kk[n] = S::reduce_add(sum);
    }
  }

  // `count` tokens from t0 on through panel p, of kVectors vectors.
  template <int kVectors>
  static void chunk(const Head& h, int64_t t0, int64_t count, int64_t p, const Scratch& scratch) {
    constexpr int kWidth = kVectors * S::kLanes;
    const int64_t size = h.size, column = p * kColumns;
    float* panel = scratch.panels + column * size;
    const float scale = 1.0f / sqrtf(static_cast<float>(size));
    if (t0 == 0) {
      load_panel<kVectors>(h.state + column * size, size, panel);
      scratch.decay[p] = 1.0f;
    }
    float decay = scratch.decay[p];  // the state is so many times the panel

    F sk1[kVectors], sk2[kVectors];  // the panel times the keys of the two tokens to come
    unroll<kVectors>([&](auto c) __attribute__((always_inline)) { sk1[c] = sk2[c] = S::zero(); });
    const float *first_k = scratch.k, *second_k = count > 1 ? first_k + size : first_k;
    for (int64_t i = 0; i < size; i++) {
      const F k1 = S::set1(first_k[i]), k2 = S::set1(second_k[i]);
      unroll<kVectors>([&](auto c) __attribute__((always_inline)) {
        const F s = S::load(panel + i * kWidth + c * S::kLanes);
        sk1[c] = S::fma(s, k1, sk1[c]);
        sk2[c] = S::fma(s, k2, sk2[c]);
      });
    }

    for (int64_t n = 0; n < count;) {
      // Tokens go alone where the state between them is asked for, and at the end: a second one that changes nothing follows.
      const bool pair = n + 1 < count && !h.wanted(t0 + n);
      const int64_t second = n + pair, next = n + 1 + pair;
      const float gate1 = scratch.gate[n], gate2 = pair ? scratch.gate[second] : 1.0f;
      if (!(decay * gate1 * gate2 >= kLeastDecay && decay * gate1 * gate2 <= kMostDecay)) {
        const F factor = S::set1(decay);
        unroll<kVectors>([&](auto c) __attribute__((always_inline)) {
          sk1[c] = S::mul(sk1[c], factor);
          sk2[c] = S::mul(sk2[c], factor);
        });
        for (int64_t i = 0; i < size * kWidth; i += S::kLanes) S::store(panel + i, S::mul(S::load(panel + i), factor));
        decay = 1.0f;
      }
      const float decay1 = decay * gate1, decay2 = decay1 * gate2;
      decay = decay2;

      // d of both tokens, divided by the decay that the panel lacks.
      F d1[kVectors], d2[kVectors];
      float *v1 = scratch.v + n * size + column, *v2 = v1 + pair * size;
      const F beta1 = S::set1(scratch.beta[n] / decay1), beta2 = S::set1(pair ? scratch.beta[second] / decay2 : 0.0f);
      unroll<kVectors>([&](auto c) __attribute__((always_inline)) {
        d1[c] = S::mul(beta1, S::fnma(S::set1(decay1), sk1[c], S::load(v1 + c * S::kLanes)));
      });
      unroll<kVectors>([&](auto c) __attribute__((always_inline)) {
        const F sk = S::fma(S::set1(pair ? scratch.kk[n] : 0.0f), d1[c], sk2[c]);
        d2[c] = S::mul(beta2, S::fnma(S::set1(decay2), sk, S::load(v2 + c * S::kLanes)));
      });

      F out1[kVectors], out2[kVectors];
      const int64_t last = count - 1;
      pass<kVectors>(size, panel, scratch.k + n * size, scratch.k + second * size, scratch.q + n * size,
                     scratch.q + second * size, scratch.k + (next < last ? next : last) * size,
                     scratch.k + (next < last ? next + 1 : last) * size, d1, d2, out1, out2, sk1, sk2);
      unroll<kVectors>([&](auto c) __attribute__((always_inline)) {
        S::store(v1 + c * S::kLanes, S::mul(S::set1(decay1 * scale), out1[c]));
      });
      if (pair) {
        unroll<kVectors>([&](auto c) __attribute__((always_inline)) {
          S::store(v2 + c * S::kLanes, S::mul(S::set1(decay2 * scale), out2[c]));
        });
      }
      n = next;
      if (h.wanted(t0 + n - 1)) store_panel<kVectors>(panel, size, decay, h.slot(t0 + n - 1) + column * size);
    }
    scratch.decay[p] = decay;
  }

  // The panel takes up d1 and d2. Along the way its products with q1 (before d2), q2 and the next two keys are formed.
  template <int kVectors>
  [[gnu::always_inline]] static void pass(int64_t size, float* panel, const float* k1, const float* k2, const float* q1,
                                          const float* q2, const float* next1, const float* next2, const F (&d1)[kVectors],
                                          const F (&d2)[kVectors], F (&out1)[kVectors], F (&out2)[kVectors], F (&sk1)[kVectors],
                                          F (&sk2)[kVectors]) {
    constexpr int kWidth = kVectors * S::kLanes;
    F u1[kVectors], u2[kVectors], sums[4][kVectors];
    unroll<kVectors>([&](auto c) __attribute__((always_inline)) {
      u1[c] = d1[c];
      u2[c] = d2[c];
      sums[0][c] = sums[1][c] = sums[2][c] = sums[3][c] = S::zero();
    });
#pragma GCC unroll 2
    for (int64_t i = 0; i < size; i++, panel += kWidth) {
      F s[kVectors];
      F x = S::set1(k1[i]);
      unroll<kVectors>([&](auto c) __attribute__((always_inline)) { s[c] = S::fma(x, u1[c], S::load(panel + c * S::kLanes)); });
      x = S::set1(q1[i]);
      unroll<kVectors>([&](auto c) __attribute__((always_inline)) { sums[0][c] = S::fma(x, s[c], sums[0][c]); });
      x = S::set1(k2[i]);
      unroll<kVectors>([&](auto c) __attribute__((always_inline)) {
        s[c] = S::fma(x, u2[c], s[c]);
        S::store(panel + c * S::kLanes, s[c]);
      });
      x = S::set1(q2[i]);
      unroll<kVectors>([&](auto c) __attribute__((always_inline)) { sums[1][c] = S::fma(x, s[c], sums[1][c]); });
      x = S::set1(next1[i]);
      unroll<kVectors>([&](auto c) __attribute__((always_inline)) { sums[2][c] = S::fma(x, s[c], sums[2][c]); });
      x = S::set1(next2[i]);
      unroll<kVectors>([&](auto c) __attribute__((always_inline)) { sums[3][c] = S::fma(x, s[c], sums[3][c]); });
    }
    unroll<kVectors>([&](auto c) __attribute__((always_inline)) {
      out1[c] = sums[0][c];
      out2[c] = sums[1][c];
      sk1[c] = sums[2][c];
      sk2[c] = sums[3][c];
    });
  }

  template <int kVectors>
  static void load_panel(const float* state, int64_t size, float* panel) {
    for (int c = 0; c < kVectors; c++) {
      for (int64_t i = 0; i < size; i += S::kLanes) {
        F block[S::kLanes];
        for (int j = 0; j < S::kLanes; j++) block[j] = S::load(state + (c * S::kLanes + j) * size + i);
        S::transpose(block);
        for (int j = 0; j < S::kLanes; j++) S::store(panel + ((i + j) * kVectors + c) * S::kLanes, block[j]);
      }
    }
  }

  template <int kVectors>
  static void store_panel(const float* panel, int64_t size, float factor, float* state) {
    for (int c = 0; c < kVectors; c++) {
      for (int64_t i = 0; i < size; i += S::kLanes) {
        F block[S::kLanes];
        for (int j = 0; j < S::kLanes; j++) {
          block[j] = S::mul(S::set1(factor), S::load(panel + ((i + j) * kVectors + c) * S::kLanes));
        }
        S::transpose(block);
        for (int j = 0; j < S::kLanes; j++) S::store(state + (c * S::kLanes + j) * size + i, block[j]);
      }
    }
  }
};

}  // namespace pocketfleet::kernels
