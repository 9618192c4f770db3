#include "kernels/ssm_conv.h"

#include "kernels/op_test_util.h"

namespace pocketfleet::kernels {
namespace {

using testing::op_of;
using testing::OpBench;
using testing::PlainVectors;
using testing::ThisProcessor;

ggml_tensor* build(OpBench& bench, int64_t channels, int64_t tokens, int64_t seqs, int64_t width = 4) {
  ggml_tensor* x = bench.tensor(tokens + width - 1, channels, seqs, 1);
  return ggml_ssm_conv(bench.context(), x, bench.tensor(width, channels, 1, 1));
}

template <class S>
void check(int64_t channels, int64_t tokens, int64_t seqs, uint32_t seed) {
  SCOPED_TRACE("channels " + std::to_string(channels) + " tokens " + std::to_string(tokens) + " seqs " + std::to_string(seqs) +
               " seed " + std::to_string(seed) + " lanes " + std::to_string(S::kLanes));
  OpBench bench(seed);
  ggml_tensor* dst = build(bench, channels, tokens, seqs);
  const Op& op = op_of<SsmConv, S>();
  const std::vector<float> one = bench.run(op, dst, 1);
  for (int64_t i = 0; i < ggml_nelements(dst); i++) {
    const int64_t channel = i % channels, token = i / channels % tokens, seq = i / channels / tokens;
    double right = 0;
    for (int64_t w = 0; w < 4; w++) {
      right += static_cast<double>(OpBench::element(dst->src[0], token + w, channel, seq, 0)) *
               OpBench::element(dst->src[1], w, channel, 0, 0);
    }
    ASSERT_NEAR(one[i], right, 1e-6) << "channel " << channel << " token " << token << " seq " << seq;
  }
  for (const int threads : {2, 3, 7}) EXPECT_TRUE(OpBench::same_bits(one, bench.run(op, dst, threads))) << threads << " threads";
}

template <class S>
void check_shapes() {
  for (const int64_t channels : {1, 2, 3, 4, 7, 8, 9, 15, 16, 63, 64, 65, 72, 130}) {
    for (const int64_t tokens : {1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 70}) check<S>(channels, tokens, 1 + tokens % 3, 1);
  }
  check<S>(6144, 1, 3, 2);
  check<S>(6144, 19, 1, 3);
}

TEST(SsmConv, IsTheConvolutionOnVectorsOfFour) {
  check_shapes<PlainVectors<4>>();
}

TEST(SsmConv, IsTheConvolutionOnVectorsOfSixteen) {
  check_shapes<PlainVectors<16>>();
}

TEST(SsmConv, IsTheConvolutionInEveryShape) {
  PF_NEEDS_KERNELS();
  check_shapes<ThisProcessor>();
}

TEST(SsmConv, IsTheConvolutionInRandomShapes) {
  PF_NEEDS_KERNELS();
  std::mt19937 random(4321);
  const auto pick = [&](int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random); };
  for (uint32_t round = 0; round < 100; round++) check<ThisProcessor>(pick(1, 300), pick(1, 100), pick(1, 3), 100 + round);
}

TEST(SsmConv, SequencesMayLieApart) {
  PF_NEEDS_KERNELS();
  OpBench bench(4);
  const int64_t channels = 40, tokens = 10;
  ggml_tensor* all = bench.tensor((tokens + 3) * channels + 5, 2, 1, 1);
  ggml_tensor* x = ggml_view_3d(bench.context(), all, tokens + 3, channels, 2, 4 * (tokens + 3), all->nb[1], 0);
  ggml_tensor* dst = ggml_ssm_conv(bench.context(), x, bench.tensor(4, channels, 1, 1));
  const std::vector<float> ours = bench.run(op_of<SsmConv, ThisProcessor>(), dst, 2), theirs = bench.run_on_ggml_cpu(dst);
  for (size_t i = 0; i < ours.size(); i++) ASSERT_NEAR(ours[i], theirs[i], 1e-6) << i;
}

TEST(SsmConv, AgreesWithGgml) {
  PF_NEEDS_KERNELS();
  for (const int64_t tokens : {1, 3, 100}) {
    OpBench bench(5);
    ggml_tensor* dst = build(bench, 6144, tokens, 2);
    const std::vector<float> ours = bench.run(op_of<SsmConv, ThisProcessor>(), dst, 2), theirs = bench.run_on_ggml_cpu(dst);
    for (size_t i = 0; i < ours.size(); i++) ASSERT_NEAR(ours[i], theirs[i], 1e-6) << i;
  }
}

TEST(SsmConv, RefusesWhatItCannotDo) {
  PF_NEEDS_KERNELS();
  const Op& op = op_of<SsmConv, ThisProcessor>();
  OpBench bench(6);
  EXPECT_TRUE(op.supports(build(bench, 8, 8, 1)));
  EXPECT_FALSE(op.supports(build(bench, 8, 8, 1, 3)));
  ggml_tensor* dst = build(bench, 8, 8, 1);
  dst->src[0]->nb[1] += 4;
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, 8, 8, 1);
  dst->src[1]->type = GGML_TYPE_F16;
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, 8, 8, 1);
  dst->nb[1] += 4;
  EXPECT_FALSE(op.supports(dst));
  dst = build(bench, 8, 8, 1);
  dst->src[1] = nullptr;
  EXPECT_FALSE(op.supports(dst));
}

}  // namespace
}  // namespace pocketfleet::kernels
