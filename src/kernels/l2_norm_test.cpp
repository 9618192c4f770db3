#include "kernels/l2_norm.h"

#include "kernels/op_test_util.h"

namespace pocketfleet::kernels {
namespace {

using testing::op_of;
using testing::OpBench;
using testing::PlainVectors;
using testing::ThisProcessor;

constexpr float kEps = 1e-6f;

// Rows that are a part of wider ones, like the keys in the result of the convolution.
ggml_tensor* build(OpBench& bench, int64_t width, int64_t rows, int64_t tokens, int64_t seqs, int64_t gap) {
  ggml_tensor* all = bench.tensor(width * rows + gap, tokens, seqs, 1);
  return ggml_l2_norm(bench.context(),
                      ggml_view_4d(bench.context(), all, width, rows, tokens, seqs, 4 * width, all->nb[1], all->nb[2], 4 * gap),
                      kEps);
}

template <class S>
void check(int64_t width, int64_t rows, int64_t tokens, int64_t seqs, int64_t gap, uint32_t seed) {
  SCOPED_TRACE("width " + std::to_string(width) + " rows " + std::to_string(rows) + " tokens " + std::to_string(tokens) +
               " seqs " + std::to_string(seqs) + " gap " + std::to_string(gap) + " seed " + std::to_string(seed));
  OpBench bench(seed);
  ggml_tensor* dst = build(bench, width, rows, tokens, seqs, gap);
  const std::vector<float> one = bench.run(op_of<L2Norm, S>(), dst, 1);
  for (int64_t i = 0; i < ggml_nrows(dst); i++) {
    const auto x = [&](int64_t j) { return OpBench::element(dst->src[0], j, i % rows, i / rows % tokens, i / rows / tokens); };
    double sum = 0;
    for (int64_t j = 0; j < width; j++) sum += static_cast<double>(x(j)) * x(j);
    for (int64_t j = 0; j < width; j++) ASSERT_NEAR(one[i * width + j], x(j) / std::sqrt(sum), 1e-6) << "row " << i;
  }
  for (const int threads : {2, 3, 7}) {
    EXPECT_TRUE(OpBench::same_bits(one, bench.run(op_of<L2Norm, S>(), dst, threads))) << threads << " threads";
  }
}

template <class S>
void check_shapes() {
  for (const int64_t width : {32, 64, 128, 256}) {
    for (const int64_t tokens : {1, 2, 5, 17}) check<S>(width, 1 + tokens % 4, tokens, 1 + tokens % 3, tokens % 6, 1);
  }
}

TEST(L2Norm, RowsGetTheLengthOneOnVectorsOfFour) {
  check_shapes<PlainVectors<4>>();
}

TEST(L2Norm, RowsGetTheLengthOneOnVectorsOfSixteen) {
  check_shapes<PlainVectors<16>>();
}

TEST(L2Norm, RowsGetTheLengthOneInEveryShape) {
  PF_NEEDS_KERNELS();
  check_shapes<ThisProcessor>();
}

TEST(L2Norm, ShortRowsAreDividedByEpsilon) {
  PF_NEEDS_KERNELS();
  OpBench bench(2);
  ggml_tensor* dst = build(bench, 32, 2, 1, 1, 0);
  std::fill_n(OpBench::data(dst->src[0]), 32, 0.0f);
  std::fill_n(OpBench::data(dst->src[0]) + 32, 32, 1e-9f);
  const std::vector<float> ours = bench.run(op_of<L2Norm, ThisProcessor>(), dst, 1);
  for (int i = 0; i < 32; i++) {
    EXPECT_EQ(ours[i], 0.0f);
    EXPECT_NEAR(ours[32 + i], 1e-3, 1e-9);
  }
}

TEST(L2Norm, AgreesWithGgml) {
  PF_NEEDS_KERNELS();
  OpBench bench(3);
  ggml_tensor* dst = build(bench, 128, 16, 40, 2, 2048);
  const std::vector<float> ours = bench.run(op_of<L2Norm, ThisProcessor>(), dst, 2), theirs = bench.run_on_ggml_cpu(dst);
  for (size_t i = 0; i < ours.size(); i++) ASSERT_NEAR(ours[i], theirs[i], 1e-6) << i;
}

TEST(L2Norm, RefusesWhatItCannotDo) {
  PF_NEEDS_KERNELS();
  const Op& op = op_of<L2Norm, ThisProcessor>();
  OpBench bench(4);
  EXPECT_TRUE(op.supports(build(bench, 32, 2, 2, 1, 0)));
  EXPECT_FALSE(op.supports(build(bench, 48, 2, 2, 1, 0)));
  ggml_tensor* dst = build(bench, 32, 2, 2, 1, 0);
  dst->src[0]->nb[0] = 8;
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, 32, 2, 2, 1, 0);
  dst->src[0]->type = GGML_TYPE_F16;
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, 32, 2, 2, 1, 0);
  dst->nb[2] += 4;
  EXPECT_FALSE(op.supports(dst));
}

}  // namespace
}  // namespace pocketfleet::kernels
