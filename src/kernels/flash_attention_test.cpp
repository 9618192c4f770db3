#include "kernels/flash_attention.h"

#include <cstdlib>
#include <functional>
#include <limits>
#include <string>

#include "kernels/op_test_util.h"

namespace pocketfleet::kernels {
namespace {

using testing::OpBench;

template <int kWidth>
struct Plain : testing::PlainVectors<kWidth> {
  static constexpr int kRegisters = kWidth == 4 ? 32 : 16;  // both sizes of tiles
  using Base = testing::PlainVectors<kWidth>;
  using F32 = typename Base::F32;
  static F32 max(F32 a, F32 b) {
    return Base::each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F32 min(F32 a, F32 b) {
    return Base::each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F32 round(F32 x) {
    return Base::each([&](int i) { return std::nearbyint(x.lane[i]); });
  }
  static F32 exp2_whole(F32 n) {
    return Base::each([&](int i) { return std::ldexp(1.0f, static_cast<int>(n.lane[i])); });
  }
  static F32 load_f16(const uint16_t* from) {
    return Base::each([&](int i) { return ggml_fp16_to_fp32(from[i]); });
  }
  static float reduce_max(F32 x) { return *std::max_element(x.lane, x.lane + kWidth); }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What to add to the score of a token and a position in a stream.
using Mask = std::function<float(int64_t stream, int64_t token, int64_t position)>;

struct Shape {
  int64_t depth, width, tokens, kv, kv_heads, group;
  int64_t streams = 1;
  int64_t mask_gap = 0;   // positions of the mask beyond the last
  int64_t cache_gap = 0;  // rows of the cache beyond the last, and elements between rows
  float spread = 1;       // of the queries: how unequal the weights are

  std::string text() const {
    std::string s;
    for (const int64_t x : {depth, width, tokens, kv, kv_heads, group, streams, mask_gap, cache_gap})
      s += std::to_string(x) + " ";
    return s;
  }
};

float causal(const Shape& s, int64_t token, int64_t position) {
  return position <= s.kv - s.tokens + token ? 0 : -kInfinity;
}

ggml_tensor* halves(OpBench& bench, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
  ggml_tensor* t = ggml_new_tensor_4d(bench.context(), GGML_TYPE_F16, n0, n1, n2, n3);
  bench.allocate(t);
  std::uniform_real_distribution<float> numbers(-1, 1);
  for (int64_t i = 0; i < ggml_nelements(t); i++)
    static_cast<ggml_fp16_t*>(t->data)[i] = ggml_fp32_to_fp16(numbers(bench.random()));
  return t;
}

// Queries as a projection leaves them, keys or values as they lie in the cache of llama.cpp.
ggml_tensor* queries(OpBench& bench, const Shape& s) {
  ggml_tensor* q = bench.tensor(s.depth, s.kv_heads * s.group, s.tokens * s.streams, 1, -s.spread, s.spread);
  q = ggml_view_4d(bench.context(), q, q->ne[0], q->ne[1], s.tokens, s.streams, q->nb[1], q->nb[2], q->nb[2] * s.tokens, 0);
  return ggml_permute(bench.context(), q, 0, 2, 1, 3);
}

ggml_tensor* cache(OpBench& bench, const Shape& s, int64_t size) {
  ggml_tensor* all = halves(bench, size * s.kv_heads + s.cache_gap, s.kv + s.cache_gap, s.streams, 1);
  ggml_tensor* x = ggml_view_4d(bench.context(), all, size, s.kv_heads, s.kv, s.streams, size * 2, all->nb[1], all->nb[2], 0);
  return ggml_permute(bench.context(), x, 0, 2, 1, 3);
}

ggml_tensor* mask_of(OpBench& bench, const Shape& s, const Mask& mask) {
  ggml_tensor* m = halves(bench, s.kv + s.mask_gap, s.tokens, 1, s.streams);
  auto* to = static_cast<ggml_fp16_t*>(m->data);
  for (int64_t stream = 0; stream < s.streams; stream++) {
    for (int64_t token = 0; token < s.tokens; token++) {
      for (int64_t i = 0; i < s.kv + s.mask_gap; i++) *to++ = ggml_fp32_to_fp16(i < s.kv ? mask(stream, token, i) : 0.0f);
    }
  }
  return m;
}

ggml_tensor* attention(OpBench& bench, const Shape& s, const Mask& mask) {
  ggml_tensor *q = queries(bench, s), *k = cache(bench, s, s.depth), *v = cache(bench, s, s.width);
  ggml_tensor* m = mask ? mask_of(bench, s, mask) : nullptr;
  ggml_tensor* t = ggml_flash_attn_ext(bench.context(), q, k, v, m, 1 / std::sqrt(static_cast<float>(s.depth)), 0, 0);
  ggml_flash_attn_ext_set_prec(t, GGML_PREC_F32);
  return t;
}

double half(const ggml_tensor* t, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
  return ggml_fp16_to_fp32(*reinterpret_cast<const ggml_fp16_t*>(static_cast<const char*>(t->data) + i0 * t->nb[0] +
                                                                 i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3]));
}

std::vector<double> reference(const ggml_tensor* t) {
  const ggml_tensor *q = t->src[0], *k = t->src[1], *v = t->src[2], *mask = t->src[3];
  float scale;
  std::memcpy(&scale, t->op_params, sizeof(scale));
  std::vector<double> result(ggml_nelements(t));
  double* out = result.data();
  for (int64_t stream = 0; stream < q->ne[3]; stream++) {
    for (int64_t token = 0; token < q->ne[1]; token++) {
      for (int64_t head = 0; head < q->ne[2]; head++, out += v->ne[0]) {
        const int64_t kv_head = head / (q->ne[2] / k->ne[2]);
        std::vector<double> scores(k->ne[1], -INFINITY);
        double max = -INFINITY, sum = 0;
        for (int64_t i = 0; i < k->ne[1]; i++) {
          const double added = mask ? half(mask, i, token, 0, stream % mask->ne[3]) : 0;
          if (added == -INFINITY) continue;
          double dot = 0;
          for (int64_t d = 0; d < k->ne[0]; d++)
            dot += OpBench::element(q, d, token, head, stream) * half(k, d, i, kv_head, stream);
          scores[i] = scale * dot + added;
          max = std::max(max, scores[i]);
        }
        for (int64_t i = 0; i < k->ne[1]; i++) {
          if (scores[i] == -INFINITY) continue;
          const double weight = std::exp(scores[i] - max);
          sum += weight;
          for (int64_t d = 0; d < v->ne[0]; d++) out[d] += weight * half(v, d, i, kv_head, stream);
        }
        for (int64_t d = 0; sum > 0 && d < v->ne[0]; d++) out[d] /= sum;
      }
    }
  }
  return result;
}

void check(const Op& op, const Shape& s, const Mask& mask, uint32_t seed) {
  SCOPED_TRACE(s.text() + "seed " + std::to_string(seed));
  OpBench bench(seed);
  ggml_tensor* t = attention(bench, s, mask);
  const std::vector<float> ours = bench.run(op, t, 1);
  const std::vector<double> exact = reference(t);
  for (size_t i = 0; i < ours.size(); i++) ASSERT_NEAR(ours[i], exact[i], 2e-6 * (1 + s.spread)) << i;
  for (const int threads : {2, 3, 8}) {
    ASSERT_TRUE(OpBench::same_bits(ours, bench.run(op, t, threads))) << threads << " threads";
  }
}

void check_shapes(const Op& op) {
  for (const int64_t depth : {64, 80, 96, 128, 256}) {
    const Shape s = {depth, depth, 5, 150, 2, 4};
    check(
        op, s, [&](int64_t, int64_t token, int64_t i) { return causal(s, token, i); }, 1);
  }
  for (const int64_t group : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const Shape s = {64, 64, 3, 70, 2, group};
    check(
        op, s, [&](int64_t, int64_t token, int64_t i) { return causal(s, token, i); }, 2);
    check(op, {64, 64, 1, 70, 1, group}, nullptr, 3);
  }
  for (const int64_t kv : {1, 7, 15, 16, 17, 31, 63, 64, 65, 100, 511, 512, 513, 1100}) {
    const Shape s = {32, 32, 2, kv, 1, 3, 1, kv % 3, kv % 4};
    check(
        op, s, [&](int64_t, int64_t token, int64_t i) { return i == 0 ? 0 : causal(s, token, i); }, 4);
    check(op, s, nullptr, 5);
  }
  check(op, {64, 16, 9, 200, 2, 3}, nullptr, 6);
  check(op, {16, 80, 9, 200, 2, 3}, nullptr, 7);
  check(op, {32, 48, 1, 200, 2, 1, 3}, nullptr, 8);
  check(
      op, {32, 32, 7, 200, 2, 2, 3, 5, 7, 20.0f},
      [](int64_t stream, int64_t token, int64_t i) { return (i + token) % (stream + 2) == 0 ? -kInfinity : 0.125f * (i % 5); },
      9);
}

// Sequences in turns of 40 positions; each token sees the past of its own.
float sequences(int64_t count, int64_t token, int64_t position) {
  return position / 40 % count == token % count && position < 300 + token ? 0 : -kInfinity;
}

TEST(FlashAttention, IsExactOnVectorsOfFour) {
  check_shapes(FlashAttention<Plain<4>>::op);
}

TEST(FlashAttention, IsExactOnVectorsOfSixteen) {
  check_shapes(FlashAttention<Plain<16>>::op);
}

// That of the best instruction set of the processor that the test runs on.
const Op& fastest() {
  for (const Op* op : usable_isas().front()->ops) {
    if (op->kind == GGML_OP_FLASH_ATTN_EXT) return *op;
  }
  std::abort();
}

TEST(FlashAttention, IsExactOnThisProcessor) {
  PF_NEEDS_KERNELS();
  const Op& op = fastest();
  check_shapes(op);
  check(op, {24, 40, 9, 130, 2, 3}, nullptr, 10);  // half a register tile
}

TEST(FlashAttention, IsExactForManyTokensAndLongCaches) {
  PF_NEEDS_KERNELS();
  const Op& op = fastest();
  const Shape prompt = {128, 128, 130, 700, 2, 4, 1, 0, 3, 3.0f};
  check(
      op, prompt, [&](int64_t, int64_t token, int64_t i) { return causal(prompt, token, i); }, 1);
  const Shape generating = {256, 256, 1, 3000, 2, 4, 1, 72, 0, 3.0f};
  check(
      op, generating, [&](int64_t, int64_t token, int64_t i) { return causal(generating, token, i); }, 2);
  const Shape several = {64, 64, 7, 1300, 2, 4};
  check(
      op, several, [&](int64_t, int64_t token, int64_t i) { return sequences(3, token, i); }, 3);
}

TEST(FlashAttention, IsExactForRandomShapes) {
  PF_NEEDS_KERNELS();
  const Op& op = fastest();
  for (uint32_t seed = 100; seed < 160; seed++) {
    std::mt19937 random(seed);
    const auto pick = [&](int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random); };
    const Shape s = {8 * pick(1, 18), 8 * pick(1, 18), pick(1, 45), pick(1, 1200), pick(1, 3),
                     pick(1, 8),      pick(1, 2),      pick(0, 70), pick(0, 3),    pick(0, 1) ? 1.0f : 10.0f};
    const int64_t count = pick(1, 4), hidden = pick(0, 3);
    check(
        op, s,
        [&](int64_t stream, int64_t token, int64_t i) {
          if (hidden && token % 4 == hidden) return -kInfinity;
          return count == 1 ? causal(s, token, i) : sequences(count, token + stream, i);
        },
        seed);
  }
}

TEST(FlashAttention, GivesZerosForATokenThatSeesNothing) {
  PF_NEEDS_KERNELS();
  const Op& op = fastest();
  OpBench bench(1);
  const Shape s = {64, 64, 6, 200, 2, 4};
  ggml_tensor* t =
      attention(bench, s, [&](int64_t, int64_t token, int64_t i) { return token == 2 ? -kInfinity : causal(s, token, i); });
  const std::vector<float> ours = bench.run(op, t, 2);
  for (int64_t i = 0; i < ggml_nelements(t); i++) {
    ASSERT_EQ(ours[i] == 0, i / (8 * 64) == 2) << i;
  }
}

TEST(FlashAttention, DoesNotReadBlocksThatNobodySees) {
  PF_NEEDS_KERNELS();
  const Op& op = fastest();
  const Shape s = {64, 64, 10, 640, 2, 2};
  const auto mask = [](int64_t, int64_t, int64_t i) { return i / 64 % 3 == 1 ? 0 : -kInfinity; };
  OpBench bench(1);
  ggml_tensor* t = attention(bench, s, mask);
  for (int64_t tokens : {10, 1}) {
    t->src[0]->ne[1] = t->ne[2] = tokens;
    const std::vector<float> before = bench.run(op, t, 2);
    for (const float x : before) ASSERT_TRUE(std::isfinite(x));
    for (const ggml_tensor* x : {t->src[1], t->src[2]}) {
      for (int64_t i = 0; i < s.kv; i++) {
        if (i / 64 % 3 != 1) std::memset(static_cast<char*>(x->data) + i * x->nb[1], 0xff, x->nb[1]);
      }
    }
    EXPECT_TRUE(OpBench::same_bits(before, bench.run(op, t, 2)));
  }
}

TEST(FlashAttention, GivesATokenTheSameBitsAloneAndInAnyBatch) {
  PF_NEEDS_KERNELS();
  const Op& op = fastest();
  for (const int64_t depth : {64, 80, 256}) {
    const Shape s = {depth, depth, 40, 1100, 2, 4, 1, 0, 0, 4.0f};
    OpBench bench(static_cast<uint32_t>(depth));
    ggml_tensor* t = attention(
        bench, s, [&](int64_t, int64_t token, int64_t i) { return token % 2 ? causal(s, token, i) : sequences(3, token, i); });
    const std::vector<float> all = bench.run(op, t, 2);
    const size_t row = s.kv_heads * s.group * s.width;
    for (int64_t first = 0; first < s.tokens; first++) {
      const int64_t count = std::min<int64_t>(1 + first % 4, s.tokens - first);
      ggml_tensor q = *t->src[0], mask = *t->src[3], part = *t;
      q.data = static_cast<char*>(q.data) + first * q.nb[1];
      mask.data = static_cast<char*>(mask.data) + first * mask.nb[1];
      q.ne[1] = mask.ne[1] = part.ne[2] = count;
      part.src[0] = &q;
      part.src[3] = &mask;
      const std::vector<float> alone = bench.run(op, &part, 1 + static_cast<int>(first % 3));
      ASSERT_TRUE(std::memcmp(alone.data(), all.data() + first * row, count * row * sizeof(float)) == 0) << first << " " << count;
    }
  }
}

TEST(FlashAttention, GivesTheSameBitsHoweverFarTheCacheReaches) {
  PF_NEEDS_KERNELS();
  const Op& op = fastest();
  const Shape s = {64, 64, 9, 1000, 2, 4};
  OpBench bench(1);
  ggml_tensor* t = attention(bench, s, [](int64_t, int64_t token, int64_t i) { return i < 300 + token ? 0 : -kInfinity; });
  const std::vector<float> far = bench.run(op, t, 2);
  for (const int64_t kv : {309, 310, 320, 500, 512, 513}) {
    t->src[1]->ne[1] = t->src[2]->ne[1] = kv;
    EXPECT_TRUE(OpBench::same_bits(far, bench.run(op, t, 2))) << kv;
  }
}

TEST(FlashAttention, AgreesWithGgmlCpu) {
  PF_NEEDS_KERNELS();
  const Op& op = fastest();
  for (const int64_t tokens : {1, 3, 70}) {
    const Shape s = {128, 128, tokens, 700, 2, 4};
    OpBench bench(1);
    ggml_tensor* t =
        attention(bench, s, [&](int64_t, int64_t token, int64_t i) { return token == 1 ? -kInfinity : causal(s, token, i); });
    const std::vector<float> ours = bench.run(op, t, 2), theirs = bench.run_on_ggml_cpu(t);
    // With few tokens they add up in half precision.
    const double bound = tokens < 64 ? 2e-3 : 1e-6;
    for (size_t i = 0; i < ours.size(); i++) ASSERT_NEAR(ours[i], theirs[i], bound) << i;
  }
}

TEST(FlashAttention, TakesOnlyWhatItComputes) {
  PF_NEEDS_KERNELS();
  const Op& op = fastest();
  const Shape s = {64, 64, 4, 100, 2, 2};
  const auto zero = [](int64_t, int64_t, int64_t) { return 0.0f; };
  OpBench bench(1);
  ggml_context* c = bench.context();
  ggml_tensor *q = queries(bench, s), *k = cache(bench, s, 64), *v = cache(bench, s, 64), *mask = mask_of(bench, s, zero);
  const auto takes = [&](ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask, float alibi = 0, float cap = 0) {
    return op.supports(ggml_flash_attn_ext(c, q, k, v, mask, 1, alibi, cap));
  };
  EXPECT_TRUE(takes(q, k, v, mask));
  EXPECT_TRUE(takes(q, k, v, nullptr));
  EXPECT_FALSE(takes(q, k, v, mask, 8));
  EXPECT_FALSE(takes(q, k, v, mask, 0, 30));

  ggml_tensor* sinks = ggml_flash_attn_ext(c, q, k, v, mask, 1, 0, 0);
  ggml_flash_attn_ext_add_sinks(sinks, bench.tensor(4, 1, 1, 1));
  EXPECT_FALSE(op.supports(sinks));

  ggml_tensor* quantised = ggml_new_tensor_3d(c, GGML_TYPE_Q8_0, 64, 100, 2);
  EXPECT_FALSE(takes(q, quantised, v, mask));
  EXPECT_FALSE(takes(q, k, quantised, mask));
  EXPECT_FALSE(takes(q, k, bench.tensor(64, 100, 2, 1), mask));
  EXPECT_FALSE(takes(bench.tensor(60, 4, 4, 1), halves(bench, 60, 100, 2, 1), v, mask));
  EXPECT_FALSE(takes(q, k, halves(bench, 60, 100, 2, 1), mask));
  EXPECT_FALSE(takes(q, k, ggml_transpose(c, halves(bench, 100, 64, 2, 1)), mask));
  EXPECT_FALSE(takes(q, k, v, halves(bench, 99, 4, 1, 1)));
  EXPECT_FALSE(takes(q, k, v, halves(bench, 100, 3, 1, 1)));
  EXPECT_FALSE(takes(q, k, v, halves(bench, 100, 4, 4, 1)));
}

}  // namespace
}  // namespace pocketfleet::kernels
