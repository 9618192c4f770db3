#include "kernels/concat.h"

#include "kernels/op_test_util.h"

namespace pocketfleet::kernels {
namespace {

using testing::op_of;
using testing::OpBench;
using testing::PlainVectors;
using testing::ThisProcessor;

struct Shape {
  int64_t rows, before, tokens, seqs;
  int64_t gap;  // elements between the tokens, and between the rows of what comes before
};

ggml_tensor* build(OpBench& bench, const Shape& s) {
  ggml_tensor* a_all = bench.tensor(s.before + s.gap, s.rows, s.seqs, 1);
  ggml_tensor* a = ggml_view_3d(bench.context(), a_all, s.before, s.rows, s.seqs, a_all->nb[1], a_all->nb[2], 4 * s.gap);
  ggml_tensor* b_all = bench.tensor(s.rows + s.gap, s.tokens, s.seqs, 1);
  ggml_tensor* b = ggml_view_3d(bench.context(), b_all, s.rows, s.tokens, s.seqs, b_all->nb[1], b_all->nb[2], 4 * s.gap);
  return ggml_concat(bench.context(), a, ggml_transpose(bench.context(), b), 0);
}

template <class S>
void check(const Shape& s, uint32_t seed) {
  SCOPED_TRACE("rows " + std::to_string(s.rows) + " before " + std::to_string(s.before) + " tokens " + std::to_string(s.tokens) +
               " seqs " + std::to_string(s.seqs) + " gap " + std::to_string(s.gap) + " seed " + std::to_string(seed) + " lanes " +
               std::to_string(S::kLanes));
  OpBench bench(seed);
  ggml_tensor* dst = build(bench, s);
  for (const int threads : {1, 2, 3, 7}) {
    const std::vector<float> ours = bench.run(op_of<Concat, S>(), dst, threads);
    for (int64_t i = 0; i < ggml_nelements(dst); i++) {
      const int64_t column = i % dst->ne[0], row = i / dst->ne[0] % s.rows, seq = i / dst->ne[0] / s.rows;
      ASSERT_EQ(ours[i], column < s.before ? OpBench::element(dst->src[0], column, row, seq, 0)
                                           : OpBench::element(dst->src[1], column - s.before, row, seq, 0))
          << "column " << column << " row " << row << " seq " << seq << " threads " << threads;
    }
  }
}

template <class S>
void check_shapes() {
  for (const int64_t rows : {1, 2, 7, 8, 9, 16, 63, 64, 65, 72, 130}) {
    for (const int64_t tokens : {1, 2, 7, 8, 9, 15, 16, 17, 33, 70}) check<S>({rows, 3, tokens, 1 + tokens % 3, rows % 3}, 1);
  }
  for (const int64_t before : {1, 2, 4, 9}) check<S>({20, before, 12, 2, 1}, 2);
  check<S>({6144, 3, 1, 3, 0}, 3);
  check<S>({6144, 3, 19, 1, 0}, 4);
}

TEST(Concat, PutsEveryElementInItsPlaceOnVectorsOfFour) {
  check_shapes<PlainVectors<4>>();
}

TEST(Concat, PutsEveryElementInItsPlaceOnVectorsOfSixteen) {
  check_shapes<PlainVectors<16>>();
}

TEST(Concat, PutsEveryElementInItsPlaceInEveryShape) {
  PF_NEEDS_KERNELS();
  check_shapes<ThisProcessor>();
}

TEST(Concat, PutsEveryElementInItsPlaceInRandomShapes) {
  PF_NEEDS_KERNELS();
  std::mt19937 random(5678);
  const auto pick = [&](int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random); };
  for (uint32_t round = 0; round < 100; round++) {
    check<ThisProcessor>({pick(1, 300), pick(0, 1) ? 3 : pick(1, 10), pick(1, 100), pick(1, 3), pick(0, 5)}, 100 + round);
  }
}

TEST(Concat, AgreesWithGgml) {
  PF_NEEDS_KERNELS();
  for (const int64_t tokens : {1, 3, 100}) {
    OpBench bench(5);
    ggml_tensor* dst = build(bench, {6144, 3, tokens, 2, 0});
    const std::vector<float> ours = bench.run(op_of<Concat, ThisProcessor>(), dst, 2);
    EXPECT_TRUE(OpBench::same_bits(ours, bench.run_on_ggml_cpu(dst)));
  }
}

TEST(Concat, RefusesWhatItCannotDo) {
  PF_NEEDS_KERNELS();
  const Op& op = op_of<Concat, ThisProcessor>();
  OpBench bench(6);
  EXPECT_TRUE(op.supports(build(bench, {16, 3, 8, 2, 0})));
  EXPECT_FALSE(
      op.supports(ggml_concat(bench.context(), bench.tensor(3, 8, 1, 1), bench.tensor(5, 8, 1, 1), 0)));  // not transposed
  EXPECT_FALSE(op.supports(ggml_concat(bench.context(), bench.tensor(8, 3, 1, 1), bench.tensor(8, 5, 1, 1), 1)));
  EXPECT_FALSE(op.supports(
      ggml_concat(bench.context(), bench.tensor(3, 8, 1, 2), ggml_transpose(bench.context(), bench.tensor(8, 5, 1, 2)), 0)));
  ggml_tensor* dst = build(bench, {16, 3, 8, 2, 0});
  dst->type = dst->src[0]->type = dst->src[1]->type = GGML_TYPE_F16;
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, {16, 3, 8, 2, 0});
  dst->nb[1] += 4;
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, {16, 3, 8, 2, 0});
  dst->src[0]->nb[0] = 8;
  EXPECT_FALSE(op.supports(dst));
}

}  // namespace
}  // namespace pocketfleet::kernels
