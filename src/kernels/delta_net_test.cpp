#include "kernels/delta_net.h"

#include "kernels/op_test_util.h"

namespace pocketfleet::kernels {
namespace {

using testing::op_of;
using testing::OpBench;
using testing::PlainVectors;
using testing::ThisProcessor;

struct Shape {
  int64_t size, heads, key_heads, tokens, seqs, slots;
  int64_t key_seqs;
  float least_gate, most_gate;
  int64_t gap;  // elements between the rows of q, k and v

  friend void PrintTo(const Shape& s, std::ostream* out) {
    *out << "size " << s.size << " heads " << s.heads << "/" << s.key_heads << " tokens " << s.tokens << " seqs " << s.seqs << "/"
         << s.key_seqs << " slots " << s.slots << " gates " << s.least_gate << ".." << s.most_gate << " gap " << s.gap;
  }
};

// Rows like those of the model: views of a wider tensor, keys and queries of length one.
ggml_tensor* rows(OpBench& bench, const Shape& s, int64_t heads, int64_t seqs, bool unit) {
  const int64_t wide = s.size * heads + s.gap;
  ggml_tensor* all = bench.tensor(wide, s.tokens, seqs, 1);
  ggml_tensor* view =
      ggml_view_4d(bench.context(), all, s.size, heads, s.tokens, seqs, 4 * s.size, all->nb[1], all->nb[2], 4 * s.gap);
  for (int64_t row = 0; unit && row < heads * s.tokens * seqs; row++) {
    float* x = OpBench::data(view) + row / heads * wide + row % heads * s.size;
    double sum = 0;
    for (int64_t i = 0; i < s.size; i++) sum += x[i] * x[i];
    for (int64_t i = 0; i < s.size; i++) x[i] = static_cast<float>(x[i] / std::sqrt(sum));
  }
  return view;
}

ggml_tensor* build(OpBench& bench, const Shape& s) {
  ggml_tensor* q = rows(bench, s, s.key_heads, s.key_seqs, true);
  ggml_tensor* k = rows(bench, s, s.key_heads, s.key_seqs, true);
  ggml_tensor* v = rows(bench, s, s.heads, s.seqs, false);
  ggml_tensor* g = bench.tensor(1, s.heads, s.tokens, s.seqs, s.least_gate, s.most_gate);
  ggml_tensor* beta = bench.tensor(1, s.heads, s.tokens, s.seqs, 0, 1);
  ggml_tensor* state = bench.tensor(s.size, s.size, s.heads, s.seqs);
  return ggml_gated_delta_net(bench.context(), q, k, v, g, beta, state, s.slots);
}

std::vector<double> reference(const ggml_tensor* dst, const Shape& s) {
  const ggml_tensor *q = dst->src[0], *k = dst->src[1], *v = dst->src[2], *g = dst->src[3], *beta = dst->src[4],
                    *state = dst->src[5];
  std::vector<double> result(ggml_nelements(dst), OpBench::kUntouched);
  double* states = result.data() + s.size * s.heads * s.tokens * s.seqs;
  for (int64_t seq = 0; seq < s.seqs; seq++) {
    for (int64_t head = 0; head < s.heads; head++) {
      for (int64_t column = 0; column < s.size; column++) {
        std::vector<double> x(s.size);
        for (int64_t i = 0; i < s.size; i++) x[i] = OpBench::element(state, i, column, head, seq);
        for (int64_t t = 0; t < s.tokens; t++) {
          const int64_t key_head = head % s.key_heads, key_seq = seq / (s.seqs / s.key_seqs);
          double product = 0, out = 0;
          for (int64_t i = 0; i < s.size; i++) {
            x[i] *= std::exp(static_cast<double>(OpBench::element(g, 0, head, t, seq)));
            product += x[i] * OpBench::element(k, i, key_head, t, key_seq);
          }
          const double d = (OpBench::element(v, column, head, t, seq) - product) * OpBench::element(beta, 0, head, t, seq);
          for (int64_t i = 0; i < s.size; i++) {
            x[i] += d * OpBench::element(k, i, key_head, t, key_seq);
            out += x[i] * OpBench::element(q, i, key_head, t, key_seq);
          }
          result[((seq * s.tokens + t) * s.heads + head) * s.size + column] = out / std::sqrt(static_cast<double>(s.size));
          const int64_t age = s.tokens - 1 - t;
          for (int64_t i = 0; age < s.slots && i < s.size; i++) {
            states[(((age * s.seqs + seq) * s.heads + head) * s.size + column) * s.size + i] = x[i];
          }
        }
      }
    }
  }
  return result;
}

// The elements' errors against the largest element, outputs and states by themselves.
void expect_close(const std::vector<float>& ours, const std::vector<double>& right, size_t outputs, double tolerance) {
  ASSERT_EQ(ours.size(), right.size());
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, outputs}, {outputs, right.size()}}) {
    double largest = 0, error = 0;
    for (size_t i = from; i < to; i++) {
      if (right[i] == OpBench::kUntouched) {
        ASSERT_EQ(ours[i], OpBench::kUntouched) << "element " << i << " is not ours to write";
      } else {
        ASSERT_TRUE(std::isfinite(ours[i])) << "element " << i;
        largest = std::max(largest, std::fabs(right[i]));
        error = std::max(error, std::fabs(ours[i] - right[i]));
      }
    }
    EXPECT_LE(error, tolerance * largest) << (from ? "states" : "outputs");
  }
}

template <class S>
void check(const Shape& s, uint32_t seed) {
  SCOPED_TRACE(::testing::PrintToString(s) + " seed " + std::to_string(seed) + " lanes " + std::to_string(S::kLanes));
  OpBench bench(seed);
  ggml_tensor* dst = build(bench, s);
  const Op& op = op_of<DeltaNet, S>();
  const std::vector<float> one = bench.run(op, dst, 1);
  expect_close(one, reference(dst, s), s.size * s.heads * s.tokens * s.seqs, 1e-5);
  for (const int threads : {2, 3, 7}) EXPECT_TRUE(OpBench::same_bits(one, bench.run(op, dst, threads))) << threads << " threads";
}

template <class S>
void check_shapes() {
  const float kMin = -2;
  check<S>({128, 5, 5, 1, 1, 1, 1, kMin, 0, 0}, 1);
  check<S>({128, 4, 2, 70, 2, 1, 2, kMin, 0, 64}, 2);
  for (const int64_t tokens : {1, 2, 3, 7, 8, 9, 10, 64, 65, 66, 129}) {
    for (const int64_t slots : {1, 3, 12}) check<S>({32, 3, 3, tokens, 1, slots, 1, kMin, 0, 0}, 3);
  }
  for (int64_t size = 16; size <= 256; size += 16) {
    for (const int64_t tokens : {1, 5, 11}) check<S>({size, 2, 1, tokens, 1, 1, 1, kMin, 0, 4}, 4);
  }
}

TEST(DeltaNet, FollowsTheRuleOnVectorsOfFour) {
  check_shapes<PlainVectors<4>>();
}

TEST(DeltaNet, FollowsTheRuleOnVectorsOfSixteen) {
  check_shapes<PlainVectors<16>>();
}

TEST(DeltaNet, FollowsTheRuleInEveryShape) {
  PF_NEEDS_KERNELS();
  check_shapes<ThisProcessor>();
}

TEST(DeltaNet, FollowsTheRuleWhateverTheGates) {
  PF_NEEDS_KERNELS();
  for (const int64_t tokens : {1, 4, 9, 150}) {
    check<ThisProcessor>({32, 2, 2, tokens, 1, 1, 1, 0, 0, 0}, 5);            // nothing is forgotten
    check<ThisProcessor>({32, 2, 2, tokens, 1, 3, 1, -0.001f, 0, 0}, 6);      // hardly anything
    check<ThisProcessor>({32, 2, 2, tokens, 1, 1, 1, -1000, -1000, 0}, 7);    // everything, every time
    check<ThisProcessor>({32, 2, 2, tokens, 1, 3, 1, -40, 0, 0}, 8);          // on both sides of the bounds
    check<ThisProcessor>({32, 2, 2, tokens, 1, 1, 1, -27.5f, -26.5f, 0}, 9);  // about the bound itself
    check<ThisProcessor>({32, 2, 2, tokens, 1, 1, 1, 0, 0.05f, 0}, 10);       // growing
    check<ThisProcessor>({32, 2, 2, tokens, 1, 1, 1, -1e30f, -1e30f, 0}, 11);
  }
}

TEST(DeltaNet, FollowsTheRuleInRandomShapes) {
  PF_NEEDS_KERNELS();
  std::mt19937 random(1234);
  const auto pick = [&](int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random); };
  for (uint32_t round = 0; round < 40; round++) {
    Shape s{};
    s.size = 16 * pick(1, 9);
    s.heads = pick(1, 5);
    s.key_heads = pick(1, s.heads);
    s.tokens = pick(0, 1) ? pick(1, 12) : pick(1, 150);
    s.key_seqs = pick(1, 2);
    s.seqs = s.key_seqs * pick(1, 3);
    s.slots = pick(0, 1) ? 1 : pick(1, 6);
    s.least_gate = pick(0, 1) ? -1.0f : -60.0f;
    s.gap = 4 * pick(0, 5) + pick(0, 1);
    check<ThisProcessor>(s, 100 + round);
  }
}

TEST(DeltaNet, NumbersThatAreNoneComeOutAsSuch) {
  PF_NEEDS_KERNELS();
  for (const int64_t tokens : {1, 20}) {
    const Shape s{32, 1, 1, tokens, 1, 1, 1, -1, 0, 0};
    OpBench bench(12);
    ggml_tensor* dst = build(bench, s);
    OpBench::data(dst->src[3])[tokens / 2] = NAN;
    const std::vector<float> ours = bench.run(op_of<DeltaNet, ThisProcessor>(), dst, 1);
    EXPECT_TRUE(std::isnan(ours.back()));
  }
}

TEST(DeltaNet, AgreesWithGgml) {
  PF_NEEDS_KERNELS();
  for (const int64_t tokens : {1, 5, 100}) {
    for (const int64_t slots : {1, 4}) {
      const Shape s{128, 16, 8, tokens, 3, slots, 3, -3, 0, 128};
      SCOPED_TRACE(::testing::PrintToString(s));
      OpBench bench(13);
      ggml_tensor* dst = build(bench, s);
      const std::vector<float> ours = bench.run(op_of<DeltaNet, ThisProcessor>(), dst, 2), theirs = bench.run_on_ggml_cpu(dst);
      expect_close(ours, {theirs.begin(), theirs.end()}, s.size * s.heads * s.tokens * s.seqs, 1e-5);
    }
  }
}

TEST(DeltaNet, RefusesWhatItCannotDo) {
  PF_NEEDS_KERNELS();
  const Op& op = op_of<DeltaNet, ThisProcessor>();
  const Shape s{32, 2, 2, 4, 2, 1, 2, -1, 0, 0};
  OpBench bench(14);
  EXPECT_TRUE(op.supports(build(bench, s)));
  Shape odd = s;
  odd.size = 24;
  EXPECT_FALSE(op.supports(build(bench, odd)));
  odd.size = 272;
  EXPECT_FALSE(op.supports(build(bench, odd)));

  ggml_tensor* dst = build(bench, s);
  dst->src[3] = bench.tensor(s.size, s.heads, s.tokens, s.seqs);  // a gate for every row of the state
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, s);
  dst->src[5]->nb[3] += 4;
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, s);
  dst->src[2]->nb[0] = 8;
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, s);
  dst->src[1]->type = GGML_TYPE_F16;
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, s);
  dst->src[0] = nullptr;
  EXPECT_FALSE(op.supports(dst));
}

}  // namespace
}  // namespace pocketfleet::kernels
