// Attention over the KV cache in one pass, with the softmax kept up to date on the way (Milakov and Gimelshein, arXiv:1805.02867;
// Dao et al., arXiv:2205.14135). The cache is cut at fixed places: blocks of kBlock positions, whose scores are computed before
// their softmax, and chunks of kChunk positions, which start from nothing and are merged from first to last. Cuts and order of
// operations do not depend on the batch, the threads or how work is shared out, and a block that the mask hides from a token is
// left out for that token alone. So a row's result has the same bits in every batch: reading a prompt and generating agree.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/op.h"
#include "kernels/simd_math.h"

namespace pocketfleet::kernels {

template <class S>
class FlashAttention {
 public:
  // Queries f32; keys and values f16, with contiguous rows and any other strides; a mask f16 shared by all heads, or none.
  static bool supports(const ggml_tensor* t) {
    const ggml_tensor *q = t->src[0], *k = t->src[1], *v = t->src[2], *mask = t->src[3], *sinks = t->src[4];
    if (t->op != GGML_OP_FLASH_ATTN_EXT || t->type != GGML_TYPE_F32 || !q || !k || !v || sinks) return false;
    float params[3];  // scale, ALiBi, soft cap
    std::memcpy(params, t->op_params, sizeof params);
    if (params[1] != 0.0f || params[2] != 0.0f) return false;

    if (q->type != GGML_TYPE_F32 || k->type != GGML_TYPE_F16 || v->type != GGML_TYPE_F16) return false;
    if (!has_vector_rows(q) || !has_vector_rows(k) || !has_vector_rows(v)) return false;
    if (ggml_nelements(q) == 0 || ggml_nelements(k) == 0 || ggml_nelements(v) == 0) return false;
    if (k->ne[0] != q->ne[0] || k->ne[1] != v->ne[1] || k->ne[2] != v->ne[2] || q->ne[2] % k->ne[2] != 0) return false;
    if (k->ne[3] != q->ne[3] || v->ne[3] != q->ne[3]) return false;
    if (t->ne[0] != v->ne[0] || t->ne[1] != q->ne[2] || t->ne[2] != q->ne[1] || t->ne[3] != q->ne[3]) return false;
    if (!ggml_is_contiguous(t)) return false;
    if (!mask) return true;
    return mask->type == GGML_TYPE_F16 && mask->nb[0] == 2 && mask->nb[1] % 2 == 0 && mask->nb[3] % 2 == 0 &&
           mask->ne[0] >= k->ne[1] && mask->ne[1] >= q->ne[1] && mask->ne[2] == 1 &&
           (mask->ne[3] == 1 || mask->ne[3] == q->ne[3]);
  }

  static size_t scratch_bytes(const ggml_tensor* t, int threads) {
    const Shape s = shape_of(t, threads);
    return lay_out(s, nullptr, nullptr) * threads + (s.split ? s.pieces * state_bytes(s) : 0);
  }

  static void run(const OpCall& call) {
    const ggml_tensor* t = call.tensor;
    const Shape s = shape_of(t, call.threads);
    float scale;
    std::memcpy(&scale, call.params, sizeof scale);
    const size_t bytes = lay_out(s, nullptr, nullptr);
    Work w;
    lay_out(s, call.scratch + bytes * call.thread, &w);
    std::byte* const parts = call.scratch + bytes * call.threads;
    const auto part = [&](int64_t set, int64_t chunk) { return state_at(s, parts + (set * s.chunks + chunk) * state_bytes(s)); };

    call.team->barrier(call.threads);
    if (call.thread == 0) call.team->restart();
    call.team->barrier(call.threads);
    for (int64_t piece = call.team->take(); piece < s.pieces; piece = call.team->take()) {
      // The last sets first: under a causal mask they are the longest.
      const Set set = set_at(s, s.sets - 1 - (s.split ? piece / s.chunks : piece));
      load_queries(t, s, set, scale, w);
      if (s.split) {
        run_chunk(t, s, set, piece % s.chunks, part(set.index, piece % s.chunks), w);
        continue;
      }
      for (int64_t r = 0; r < set.rows; ++r) start(s, w.max[r], w.sum[r], out_row(t, s, set, r));
      for (int64_t chunk = 0; chunk < s.chunks; ++chunk) {
        run_chunk(t, s, set, chunk, w.state, w);
        for (int64_t r = 0; r < set.rows; ++r) merge(s, w.state, r, w.max[r], w.sum[r], out_row(t, s, set, r));
      }
      for (int64_t r = 0; r < set.rows; ++r) finish(s, w.sum[r], out_row(t, s, set, r));
    }
    if (!s.split) return;

    call.team->barrier(call.threads);
    for (int64_t i = call.thread; i < s.sets * s.rows_per_set; i += call.threads) {
      const Set set = set_at(s, i / s.rows_per_set);
      const int64_t r = i % s.rows_per_set;
      if (r >= set.rows) continue;
      float* const out = out_row(t, s, set, r);
      float max, sum;
      start(s, max, sum, out);
      for (int64_t chunk = 0; chunk < s.chunks; ++chunk) merge(s, part(set.index, chunk), r, max, sum, out);
      finish(s, sum, out);
    }
  }

  static constexpr Op op{"flash_attention", GGML_OP_FLASH_ATTN_EXT, &supports, &scratch_bytes, &run};

 private:
  using F = typename S::F32;
  static constexpr int kLanes = S::kLanes;
  static constexpr int kPanel = 2 * kLanes;                   // columns of a register tile
  static constexpr int kTile = S::kRegisters >= 32 ? 12 : 6;  // rows of a register tile
  static constexpr int kBlock = 64;
  static constexpr int kChunk = 512;
  static_assert(kBlock % kPanel == 0 && kChunk % kBlock == 0);
  // Rows of a set. The queries and outputs of so many stay in the second level cache, and the more rows there are, the less each
  // of them pays for converting keys and values.
  static constexpr int64_t kMostRows = 128;
  static constexpr int64_t kLeastRows = 32;
  static constexpr int kFewRows = kTile;
  static constexpr size_t kMostPartBytes = 32 << 20;
  static constexpr int kLineHalves = kCacheLine / sizeof(uint16_t);
  static constexpr uint16_t kHalfMinusInfinity = 0xfc00;

  // A row is a token in one query head. A set is the rows of up to `tokens_per_set` tokens in the query heads of one KV head, or,
  // when there are few tokens, of all KV heads: then the time goes to reading the cache, which is fastest from end to end.
  struct Shape {
    int64_t depth, width;  // of a key, of a value
    int64_t tokens, heads, kv, kv_heads, group;
    int64_t chunks, tokens_per_set, heads_per_set, rows_per_set, sets_per_token, sets_per_stream, sets;
    bool split;  // the chunks of a set are pieces of work of their own
    int64_t pieces;
  };

  struct Set {
    int64_t index, stream, kv_head, token, tokens, rows_per_head, rows;
  };

  // The softmax of each row so far: greatest score, sum of the exponentials relative to it, sum of the values weighted with them.
  struct State {
    float* max;
    float* sum;
    float* out;  // rows x width
  };

  // The memory of one thread. "Seeing" rows are those that a block is not hidden from, in order; the others are not computed.
  struct Work {
    float* queries;  // rows x depth, times the scale
    State state;     // of one chunk
    float* max;      // of all chunks so far
    float* sum;
    float* scores;     // seeing rows x kBlock
    float* fade;       // of each seeing row: what its sums so far are multiplied with
    int32_t* rows;     // seeing rows: where they are in the set
    int32_t* mask_of;  // seeing rows: which of the masks is added, or -1
    float* masks;      // tokens x kBlock
    float* ones;       // what to fade with when that is done
    float* panel;      // of keys or values
  };

  template <int N, class Body>
  [[gnu::always_inline]] static void unroll(const Body& body) {
    unroll(std::make_integer_sequence<int, N>{}, body);
  }
  template <int... I, class Body>
  [[gnu::always_inline]] static void unroll(std::integer_sequence<int, I...>, const Body& body) {
    (body(std::integral_constant<int, I>{}), ...);
  }

  static bool has_vector_rows(const ggml_tensor* x) {
    const size_t size = ggml_type_size(x->type);
    return x->ne[0] % kLanes == 0 && x->nb[0] == size && x->nb[1] % size == 0 && x->nb[2] % size == 0 && x->nb[3] % size == 0;
  }

  static Shape shape_of(const ggml_tensor* t, int threads) {
    const ggml_tensor *q = t->src[0], *k = t->src[1], *v = t->src[2];
    Shape s;
    s.depth = k->ne[0];
    s.width = v->ne[0];
    s.tokens = q->ne[1];
    s.heads = q->ne[2];
    s.kv = k->ne[1];
    s.kv_heads = k->ne[2];
    s.group = s.heads / s.kv_heads;
    s.chunks = (s.kv + kChunk - 1) / kChunk;

    // Several sets for each thread, since a causal mask makes them unequal. Where that leaves too few rows in a set, there are
    // fewer sets and their chunks are shared out.
    const int64_t streams = q->ne[3];
    const int64_t wanted = threads == 1 ? 1 : int64_t{4} * threads;
    const int64_t most = s.group < kMostRows ? kMostRows / s.group : 1;
    const int64_t least = s.group < kLeastRows ? kLeastRows / s.group : 1;
    const int64_t fair = (s.tokens * s.kv_heads * streams + wanted - 1) / wanted;
    const int64_t tokens = fair > most ? most : fair < least ? least : fair;
    s.tokens_per_set = tokens < s.tokens ? tokens : s.tokens;
    s.heads_per_set = 1;
    if (s.tokens * s.heads <= kMostRows && (threads == 1 || streams * s.chunks >= 2 * threads)) {
      s.tokens_per_set = s.tokens;
      s.heads_per_set = s.kv_heads;
    }
    s.rows_per_set = s.tokens_per_set * s.heads_per_set * s.group;
    s.sets_per_token = s.kv_heads / s.heads_per_set;
    s.sets_per_stream = (s.tokens + s.tokens_per_set - 1) / s.tokens_per_set * s.sets_per_token;
    s.sets = s.sets_per_stream * streams;
    s.split = s.sets < wanted && s.chunks > 1 && s.sets * s.chunks * state_bytes(s) <= kMostPartBytes;
    s.pieces = s.split ? s.sets * s.chunks : s.sets;
    return s;
  }

  // KV heads change fastest, so that sets that are worked on at the same time see the same part of the mask.
  static Set set_at(const Shape& s, int64_t index) {
    Set set;
    set.index = index;
    set.stream = index / s.sets_per_stream;
    set.kv_head = index % s.sets_per_token;
    set.token = index % s.sets_per_stream / s.sets_per_token * s.tokens_per_set;
    const int64_t left = s.tokens - set.token;
    set.tokens = left < s.tokens_per_set ? left : s.tokens_per_set;
    set.rows_per_head = set.tokens * s.group;
    set.rows = set.rows_per_head * s.heads_per_set;
    return set;
  }

  static size_t state_bytes(const Shape& s) { return align_up(s.rows_per_set * (s.width + 2) * sizeof(float)); }
  static State state_at(const Shape& s, std::byte* at) {
    float* const out = reinterpret_cast<float*>(at);
    float* const max = out + s.rows_per_set * s.width;
    return {max, max + s.rows_per_set, out};
  }

  // The bytes that one thread needs; `work` may be null.
  static size_t lay_out(const Shape& s, std::byte* at, Work* work) {
    size_t used = 0;
    const auto take = [&](size_t bytes) {
      std::byte* const here = work ? at + used : nullptr;
      used += align_up(bytes);
      return here;
    };
    const auto floats = [&](size_t count) { return reinterpret_cast<float*>(take(count * sizeof(float))); };
    float* const queries = floats(s.rows_per_set * s.depth);
    std::byte* const state = take(state_bytes(s));
    float* const max = floats(s.rows_per_set);
    float* const sum = floats(s.rows_per_set);
    float* const scores = floats(s.rows_per_set * kBlock);
    float* const fade = floats(s.rows_per_set);
    int32_t* const rows = reinterpret_cast<int32_t*>(take(s.rows_per_set * sizeof(int32_t)));
    int32_t* const mask_of = reinterpret_cast<int32_t*>(take(s.rows_per_set * sizeof(int32_t)));
    float* const masks = floats(s.tokens_per_set * kBlock);
    float* const ones = floats(kTile);
    const int64_t keys = s.depth * kPanel, values = int64_t{2} * kBlock * kPanel;
    float* const panel = floats(keys > values ? keys : values);
    if (work) *work = {queries, state_at(s, state), max, sum, scores, fade, rows, mask_of, masks, ones, panel};
    for (int i = 0; work && i < kTile; ++i) ones[i] = 1.0f;
    return used;
  }

  // Rows of a set are ordered by KV head, then by token, then by query head.
  static void load_queries(const ggml_tensor* t, const Shape& s, const Set& set, float scale, const Work& w) {
    const ggml_tensor* q = t->src[0];
    const F factor = S::set1(scale);
    for (int64_t r = 0; r < set.rows; ++r) {
      const char* from = static_cast<const char*>(q->data) + token_of(s, set, r) * q->nb[1] + head_of(s, set, r) * q->nb[2] +
                         set.stream * q->nb[3];
      float* const to = w.queries + r * s.depth;
      for (int64_t d = 0; d < s.depth; d += kLanes) {
        S::store(to + d, S::mul(factor, S::load(reinterpret_cast<const float*>(from) + d)));
      }
    }
  }

  static int64_t token_of(const Shape& s, const Set& set, int64_t row) { return set.token + row % set.rows_per_head / s.group; }
  static int64_t head_of(const Shape& s, const Set& set, int64_t row) {
    return (set.kv_head + row / set.rows_per_head) * s.group + row % s.group;
  }
  static float* out_row(const ggml_tensor* t, const Shape& s, const Set& set, int64_t row) {
    const int64_t token = set.stream * s.tokens + token_of(s, set, row);
    return static_cast<float*>(t->data) + (token * s.heads + head_of(s, set, row)) * s.width;
  }

  static void run_chunk(const ggml_tensor* t, const Shape& s, const Set& set, int64_t chunk, const State& state, const Work& w) {
    for (int64_t r = 0; r < set.rows; ++r) start(s, state.max[r], state.sum[r], state.out + r * s.width);
    const int64_t end = (chunk + 1) * kChunk < s.kv ? (chunk + 1) * kChunk : s.kv;
    for (int64_t at = chunk * kChunk; at < end; at += kBlock) {
      const int n = end - at < kBlock ? static_cast<int>(end - at) : kBlock;
      const int count = find_seeing(t, s, set, at, n, w);
      if (count == 0) continue;
      Fetch keys = fetch_after(t->src[1], s, set, at), values = fetch_after(t->src[2], s, set, at);
      for (int64_t h = 0; h < s.heads_per_set; ++h) {
        const int64_t r = h * set.rows_per_head;
        const State part = {state.max + r, state.sum + r, state.out + r * s.width};
        const Block b = {rows_at(t->src[1], set, set.kv_head + h, at),
                         rows_at(t->src[2], set, set.kv_head + h, at),
                         t->src[1]->nb[1],
                         t->src[2]->nb[1],
                         n,
                         count};
        run_block(s, b, w.queries + r * s.depth, part, w, keys, values);
      }
    }
  }

  static const char* rows_at(const ggml_tensor* x, const Set& set, int64_t head, int64_t at) {
    return static_cast<const char*>(x->data) + at * x->nb[1] + head * x->nb[2] + set.stream * x->nb[3];
  }

  // Positions of one KV head.
  struct Block {
    const char *keys, *values;
    size_t key_stride, value_stride;
    int n;
    int count;  // of rows that see it
  };

  // Brings the next block to the second level cache while this one is worked on. The processor does not foresee by itself that
  // rows go on where those of the other heads end.
  struct Fetch {
    const char* row;
    size_t stride;
    int64_t bytes, at, rows;

    void next(int lines) {
      for (; lines > 0 && rows > 0; --lines) {
        __builtin_prefetch(row + at, 0, 2);
        at += kCacheLine;
        if (at < bytes) continue;
        at = 0;
        row += stride;
        --rows;
      }
    }
    // How many lines to bring at each of `times` occasions.
    int share(int64_t times) const {
      return static_cast<int>((rows * ((bytes + kCacheLine - 1) / kCacheLine) + times - 1) / times);
    }
  };

  static Fetch fetch_after(const ggml_tensor* x, const Shape& s, const Set& set, int64_t at) {
    const int64_t left = s.kv - at - kBlock;
    const int64_t bytes = x->ne[0] * sizeof(uint16_t);
    const bool adjacent = x->nb[2] == static_cast<size_t>(bytes);
    return {rows_at(x, set, set.kv_head, at + (left > 0 ? kBlock : 0)), x->nb[1], adjacent ? bytes * s.heads_per_set : bytes, 0,
            left > kBlock ? kBlock
            : left > 0    ? left
                          : 0};
  }

  // Which rows see positions at .. at+n. Returns their number.
  static int find_seeing(const ggml_tensor* t, const Shape& s, const Set& set, int64_t at, int n, const Work& w) {
    const ggml_tensor* m = t->src[3];
    int count = 0;
    for (int64_t token = 0; token < set.tokens; ++token) {
      int32_t mask_of = -1;
      if (m) {
        const char* row = static_cast<const char*>(m->data) + (set.token + token) * m->nb[1] + set.stream % m->ne[3] * m->nb[3];
        float* const mask = w.masks + token * kBlock;
        F low = S::zero(), high = S::set1(-INFINITY);
        for (int i = 0; i < n; i += kLanes) {
          const F x = load_mask(reinterpret_cast<const uint16_t*>(row) + at + i, n - i);
          S::store(mask + i, x);
          low = S::min(low, x);
          high = S::max(high, x);
        }
        const float highest = S::reduce_max(high);
        if (highest == -INFINITY) continue;
        if (highest != 0.0f || S::reduce_max(S::sub(S::zero(), low)) != 0.0f) mask_of = static_cast<int32_t>(token);
      }
      for (int64_t g = 0; g < s.group; ++g, ++count) {
        w.rows[count] = static_cast<int32_t>(token * s.group + g);
        w.mask_of[count] = mask_of;
      }
    }
    return count;
  }

  static F load_mask(const uint16_t* from, int n) {
    if (n >= kLanes) return S::load_f16(from);
    uint16_t halves[kLanes];
    for (int i = 0; i < kLanes; ++i) halves[i] = i < n ? from[i] : kHalfMinusInfinity;
    return S::load_f16(halves);
  }

  // Panels of keys and values are converted into the first level cache, and all rows that see the block pass by them.
  static void run_block(const Shape& s, const Block& b, const float* queries, const State& state, const Work& w, Fetch& next_keys,
                        Fetch& next_values) {
    // With few rows the next block is fetched as fast as this one is read, with many rows while they are computed.
    const bool few = b.count <= kFewRows;
    const int tiles = (b.count + kTile - 1) / kTile;
    const int key_lines = few ? 0 : next_keys.share(tiles * (kBlock / kPanel));
    int columns = 0;
    for (; columns < b.n; columns += kPanel) {
      pack_keys(b.keys + columns * b.key_stride, b.key_stride, b.n - columns, s.depth, w.panel, few, next_keys);
      for_tiles(b.count, [&](int first, auto rows) {
        next_keys.next(key_lines);
        score_tile<rows>(queries, s.depth, w.rows + first, w.panel, w.scores + first * kBlock + columns);
      });
    }
    for (int i = 0; i < b.count; ++i) {
      float* const scores = w.scores + i * kBlock;
      for (int c = b.n; c < columns; ++c) scores[c] = -INFINITY;
      const float* mask = w.mask_of[i] < 0 ? nullptr : w.masks + w.mask_of[i] * kBlock;
      if (mask) {
        for (int c = 0; c < b.n; c += kLanes) S::store(scores + c, S::add(S::load(scores + c), S::load(mask + c)));
      }
      w.fade[i] = soften(scores, columns, state.max[w.rows[i]], state.sum[w.rows[i]]);
    }
    if (few) {
      // Not worth converting into memory. So few positions at a time are still in the first level cache for the next columns.
      for (int i = 0; i < b.n; i += kPanel) {
        const int n = b.n - i < kPanel ? b.n - i : kPanel;
        const char* values = b.values + i * b.value_stride;
        for (int64_t c = 0; c < s.width; c += kPanel) {
          add_values<true>(s, w.scores + i, i == 0 ? w.fade : w.ones, values + c * sizeof(uint16_t), b.value_stride, n, b.count,
                           c, state.out, w.rows, (n * kPanel + kLineHalves - 1) / kLineHalves, next_values);
        }
      }
      return;
    }
    const int value_lines = next_values.share(tiles * ((s.width + kPanel - 1) / kPanel));
    for (int64_t c = 0; c < s.width; c += kPanel) {
      const char* values = b.values + c * sizeof(uint16_t);
      float* panel = w.panel;
      if (s.width - c < kPanel) {
        pack_values<1>(values, b.value_stride, b.n, panel);
      } else if (c % (2 * kPanel) != 0) {
        panel += kBlock * kPanel;  // came with the one before
      } else if (s.width - c < 2 * kPanel) {
        pack_values<2>(values, b.value_stride, b.n, panel);
      } else {
        pack_values<4>(values, b.value_stride, b.n, panel);  // often the width of a cache line
      }
      add_values<false>(s, w.scores, w.fade, reinterpret_cast<const char*>(panel), kPanel * sizeof(float), b.n, b.count, c,
                        state.out, w.rows, value_lines, next_values);
    }
  }

  template <bool kHalf>
  static void add_values(const Shape& s, const float* scores, const float* fade, const char* values, size_t stride, int n,
                         int count, int64_t column, float* out, const int32_t* rows, int lines, Fetch& next) {
    const bool whole = s.width - column >= kPanel;
    for_tiles(count, [&](int first, auto size) {
      next.next(lines);
      if (whole) {
        value_tile<kHalf, size, 2>(scores + first * kBlock, values, stride, n, fade + first, rows + first, out + column, s.width);
      } else {
        value_tile<kHalf, size, 1>(scores + first * kBlock, values, stride, n, fade + first, rows + first, out + column, s.width);
      }
    });
  }

  // Tiles of nearly equal size: those of one or two rows cannot hide the latency of the additions.
  template <class Body>
  [[gnu::always_inline]] static void for_tiles(int count, const Body& body) {
    const int tiles = (count + kTile - 1) / kTile;
    for (int i = 0, first = 0; i < tiles; ++i) {
      const int rows = (count - first) / (tiles - i);
      unroll<kTile>([&](auto r) __attribute__((always_inline)) {
        if (rows == r + 1) body(first, std::integral_constant<int, r + 1>{});
      });
      first += rows;
    }
  }

  // Keys first .. first+n become the columns of a panel, panel[d][key]. Columns past n repeat the last key.
  static void pack_keys(const char* first, size_t stride, int n, int64_t depth, float* panel, bool fetch, Fetch& next) {
    const char* row[kPanel];
    for (int i = 0; i < kPanel; ++i) row[i] = first + (i < n ? i : n - 1) * stride;
    for (int64_t d = 0; d < depth; d += kLanes, panel += kLanes * kPanel) {
      for (int half = 0; half < kPanel; half += kLanes) {
        F x[kLanes];
        unroll<kLanes>([&](auto i) __attribute__((always_inline)) { x[i] = load_half(row[half + i], d); });
        S::transpose(x);
        unroll<kLanes>([&](auto i) __attribute__((always_inline)) { S::store(panel + i * kPanel + half, x[i]); });
      }
      if (fetch) next.next(kPanel * kLanes / kLineHalves);
    }
  }

  // Values first .. first+n become V / 2 panels, panel[value][column].
  template <int V>
  static void pack_values(const char* first, size_t stride, int n, float* panel) {
    for (int i = 0; i < n; ++i, first += stride, panel += kPanel) {
      unroll<V>([&](auto c) __attribute__((always_inline)) {
        S::store(panel + c / 2 * kBlock * kPanel + c % 2 * kLanes, load_half(first, c * kLanes));
      });
    }
  }

  static F load_half(const char* row, int64_t i) { return S::load_f16(reinterpret_cast<const uint16_t*>(row) + i); }

  template <int R>
  [[gnu::noinline]] static void score_tile(const float* queries, int64_t depth, const int32_t* rows, const float* panel,
                                           float* scores) {
    const float* q[R];
    F sum[R][2];
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      q[r] = queries + rows[r] * depth;
      sum[r][0] = sum[r][1] = S::zero();
    });
    for (int64_t d = 0; d < depth; ++d, panel += kPanel) {
      const F k0 = S::load(panel), k1 = S::load(panel + kLanes);
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        const F x = S::set1(q[r][d]);
        sum[r][0] = S::fma(x, k0, sum[r][0]);
        sum[r][1] = S::fma(x, k1, sum[r][1]);
      });
    }
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      S::store(scores + r * kBlock, sum[r][0]);
      S::store(scores + r * kBlock + kLanes, sum[r][1]);
    });
  }

  template <bool kHalf, int R, int V>
  [[gnu::noinline]] static void value_tile(const float* scores, const char* values, size_t stride, int n, const float* fade,
                                           const int32_t* rows, float* out, int64_t width) {
    F sum[R][V];
    float* to[R];
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      to[r] = out + rows[r] * width;
      const F f = S::set1(fade[r]);
      unroll<V>([&](auto c) __attribute__((always_inline)) { sum[r][c] = S::mul(f, S::load(to[r] + c * kLanes)); });
    });
    for (int i = 0; i < n; ++i, values += stride) {
      F v[V];
      unroll<V>([&](auto c) __attribute__((always_inline)) {
        v[c] = kHalf ? load_half(values, c * kLanes) : S::load(reinterpret_cast<const float*>(values) + c * kLanes);
      });
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        const F p = S::set1(scores[r * kBlock + i]);
        unroll<V>([&](auto c) __attribute__((always_inline)) { sum[r][c] = S::fma(p, v[c], sum[r][c]); });
      });
    }
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      unroll<V>([&](auto c) __attribute__((always_inline)) { S::store(to[r] + c * kLanes, sum[r][c]); });
    });
  }

  // e^x, but 0 where exp() stops falling: what the mask hides must weigh nothing.
  static F exp0(F x) { return S::sub(exp<S>(x), exp<S>(S::set1(-87.0f))); }
  static float exp0(float x) { return S::reduce_max(exp0(S::set1(x))); }

  // Scores become weights relative to the greatest so far. Returns what the sums so far are multiplied with.
  static float soften(float* scores, int n, float& max, float& sum) {
    F top = S::set1(max);
    for (int i = 0; i < n; i += kLanes) top = S::max(top, S::load(scores + i));
    const float new_max = S::reduce_max(top);
    const float fade = new_max == max ? 1.0f : exp0(max - new_max);
    F total = S::zero();
    for (int i = 0; i < n; i += kLanes) {
      const F weight = exp0(S::sub(S::load(scores + i), S::set1(new_max)));
      S::store(scores + i, weight);
      total = S::add(total, weight);
    }
    max = new_max;
    sum = __builtin_fmaf(sum, fade, S::reduce_add(total));
    return fade;
  }

  static void start(const Shape& s, float& max, float& sum, float* out) {
    max = -INFINITY;
    sum = 0.0f;
    for (int64_t c = 0; c < s.width; c += kLanes) S::store(out + c, S::zero());
  }

  static void merge(const Shape& s, const State& state, int64_t row, float& max, float& sum, float* out) {
    if (state.sum[row] == 0.0f) return;
    const float new_max = max > state.max[row] ? max : state.max[row];
    const float fade = exp0(max - new_max), weight = exp0(state.max[row] - new_max);
    const float* from = state.out + row * s.width;
    for (int64_t c = 0; c < s.width; c += kLanes) {
      S::store(out + c, S::fma(S::set1(fade), S::load(out + c), S::mul(S::set1(weight), S::load(from + c))));
    }
    max = new_max;
    sum = __builtin_fmaf(fade, sum, weight * state.sum[row]);
  }

  // A row that sees nothing is zero.
  static void finish(const Shape& s, float sum, float* out) {
    const F factor = S::set1(sum == 0.0f ? 0.0f : 1.0f / sum);
    for (int64_t c = 0; c < s.width; c += kLanes) S::store(out + c, S::mul(factor, S::load(out + c)));
  }
};

}  // namespace pocketfleet::kernels
