#include "kernels/backend.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kernels/isa.h"
#include "kernels/op_test_util.h"
#include "kernels/weights.h"

namespace pocketfleet::kernels {
namespace {

using Backend = std::unique_ptr<ggml_backend, void (*)(ggml_backend_t)>;
using Buffer = std::unique_ptr<ggml_backend_buffer, void (*)(ggml_backend_buffer_t)>;
using GgmlContext = std::unique_ptr<ggml_context, void (*)(ggml_context*)>;

ggml_backend_dev_t our_device() {
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    if (std::string(ggml_backend_dev_name(device)) == "Pocketfleet") return device;
  }
  return nullptr;
}

std::vector<std::byte> random_file(ggml_type type, int64_t columns, int64_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(columns * rows));
  for (float& value : values) value = normal(random);
  std::vector<std::byte> file(ggml_row_size(type, columns) * static_cast<size_t>(rows));
  ggml_quantize_chunk(type, values.data(), file.data(), 0, rows, columns, nullptr);
  return file;
}

// rms_norm(embedding rows) times two weights, the second product reading the first's output: products, rows and an operation that
// is not ours in one graph.
struct Model {
  Model(ggml_backend_buffer_type_t type, unsigned seed)
      : context(ggml_init({8 * ggml_tensor_overhead(), nullptr, true}), ggml_free) {
    embedding = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q6_K, 256, 100);
    first = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q4_0, 256, 512);
    second = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q4_K, 512, 40);
    buffer = ggml_backend_alloc_ctx_tensors_from_buft(context.get(), type);
    unsigned number = seed;
    for (ggml_tensor* tensor : {embedding, first, second}) {
      const auto file = random_file(tensor->type, tensor->ne[0], tensor->ne[1], ++number);
      ggml_backend_tensor_set(tensor, file.data(), 0, file.size());
    }
  }
  ~Model() { ggml_backend_buffer_free(buffer); }
  GgmlContext context;
  ggml_backend_buffer_t buffer = nullptr;
  ggml_tensor *embedding = nullptr, *first = nullptr, *second = nullptr;
};

std::vector<float> compute(ggml_backend_t backend, const Model& model, const std::vector<int32_t>& ids) {
  const GgmlContext context(ggml_init({32 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true}), ggml_free);
  ggml_tensor* tokens = ggml_new_tensor_1d(context.get(), GGML_TYPE_I32, static_cast<int64_t>(ids.size()));
  ggml_tensor* x = ggml_rms_norm(context.get(), ggml_get_rows(context.get(), model.embedding, tokens), 1e-6f);
  ggml_tensor* out = ggml_mul_mat(context.get(), model.second, ggml_mul_mat(context.get(), model.first, x));
  ggml_cgraph* graph = ggml_new_graph(context.get());
  ggml_build_forward_expand(graph, out);
  const Buffer buffer(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), ggml_backend_cpu_buffer_type()),
                      ggml_backend_buffer_free);
  ggml_backend_tensor_set(tokens, ids.data(), 0, ids.size() * sizeof(int32_t));
  EXPECT_EQ(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
  std::vector<float> y(static_cast<size_t>(ggml_nelements(out)));
  ggml_backend_tensor_get(out, y.data(), 0, y.size() * sizeof(float));
  // The graph is as it was: its operations are no longer ours.
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) EXPECT_NE(ggml_graph_node(graph, i)->op, GGML_OP_CUSTOM);
  return y;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double wrong = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    wrong += static_cast<double>(a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
    all += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(wrong / all);
}

class KernelsBackend : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::load_ggml_cpu();
    if (!register_kernels()) GTEST_SKIP() << "this processor has none of the instruction sets that there are kernels for";
  }
  static Backend ours() { return Backend(ggml_backend_dev_init(our_device(), nullptr), ggml_backend_free); }
  static Backend plain() { return Backend(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr), ggml_backend_free); }
};

TEST_F(KernelsBackend, IsRegisteredOnceHoweverOftenItIsAskedFor) {
  const size_t before = ggml_backend_dev_count();
  EXPECT_TRUE(register_kernels());
  EXPECT_EQ(ggml_backend_dev_count(), before);
  EXPECT_NE(our_device(), nullptr);
  EXPECT_NE(instruction_set(), "none");
}

TEST_F(KernelsBackend, ComputesAWholeGraphAsGgmlDoesWithinRounding) {
  const Backend our_backend = ours(), cpu = plain();
  const Model packed(packed_buffer_type(), 1), file(ggml_backend_cpu_buffer_type(), 1);
  for (const std::vector<int32_t>& ids : {std::vector<int32_t>{3}, {99, 0, 1, 98}, {5, 4, 3, 2, 1, 0, 7, 7, 7, 50, 51}}) {
    EXPECT_LT(distance(compute(our_backend.get(), packed, ids), compute(cpu.get(), file, ids)), 0.015) << ids.size();
  }
}

TEST_F(KernelsBackend, GivesRowsOfAPackedWeightExactly) {
  const Backend our_backend = ours();
  const Model packed(packed_buffer_type(), 2), file(ggml_backend_cpu_buffer_type(), 2);
  std::vector<std::byte> bytes(ggml_nbytes(file.embedding)), back(bytes.size());
  ggml_backend_tensor_get(file.embedding, bytes.data(), 0, bytes.size());
  ggml_backend_tensor_get(packed.embedding, back.data(), 0, back.size());
  EXPECT_EQ(bytes, back);
}

TEST_F(KernelsBackend, WritesAPartOfAPackedWeight) {
  const Model packed(packed_buffer_type(), 3);
  const auto other = random_file(GGML_TYPE_Q4_0, 256, 512, 77);
  const size_t from = 7 * ggml_row_size(GGML_TYPE_Q4_0, 256), size = 3 * ggml_row_size(GGML_TYPE_Q4_0, 256);
  std::vector<std::byte> before(ggml_nbytes(packed.first)), after(before.size());
  ggml_backend_tensor_get(packed.first, before.data(), 0, before.size());
  ggml_backend_tensor_set(packed.first, other.data() + from, from, size);
  ggml_backend_tensor_get(packed.first, after.data(), 0, after.size());
  std::memcpy(before.data() + from, other.data() + from, size);
  EXPECT_EQ(before, after);
}

TEST_F(KernelsBackend, ServesSeveralContextsAtOnce) {
  const Model packed(packed_buffer_type(), 4);
  const std::vector<int32_t> few = {1, 2}, many(60, 5);
  const Backend first = ours();
  const auto expected_few = compute(first.get(), packed, few), expected_many = compute(first.get(), packed, many);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const Backend backend = ours();
      for (int round = 0; round < 10; ++round) {
        if (compute(backend.get(), packed, i % 2 == 0 ? few : many) != (i % 2 == 0 ? expected_few : expected_many)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(KernelsBackend, TakesNothingWhileSwitchedOff) {
  const Model packed(packed_buffer_type(), 5);
  const GgmlContext context(ggml_init({8 * ggml_tensor_overhead(), nullptr, true}), ggml_free);
  ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 256, 3);
  ggml_tensor* product = ggml_mul_mat(context.get(), packed.first, x);
  EXPECT_TRUE(ggml_backend_dev_supports_op(our_device(), product));
  const KernelsOff off;
  EXPECT_FALSE(ggml_backend_dev_supports_op(our_device(), product));
  const Backend backend = ours();
  EXPECT_FALSE(ggml_backend_supports_op(backend.get(), ggml_rms_norm(context.get(), x, 1e-6f)));
}

TEST_F(KernelsBackend, RefusesWhatWouldReadPackedBytesAsAFile) {
  const Model packed(packed_buffer_type(), 6);
  const GgmlContext context(ggml_init({16 * ggml_tensor_overhead(), nullptr, true}), ggml_free);
  ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 256, 3);
  ggml_tensor* view = ggml_view_2d(context.get(), packed.first, 256, 16, packed.first->nb[1], 0);
  EXPECT_FALSE(ggml_backend_dev_supports_op(our_device(), ggml_mul_mat(context.get(), view, x)));
  EXPECT_FALSE(ggml_backend_dev_supports_op(our_device(), ggml_cont(context.get(), packed.first)));
  ggml_tensor* half = ggml_new_tensor_2d(context.get(), GGML_TYPE_F16, 256, 3);
  EXPECT_FALSE(ggml_backend_dev_supports_op(our_device(), ggml_mul_mat(context.get(), packed.first, half)));
}

TEST_F(KernelsBackend, TellsAnObserverWhatItComputed) {
  const Model packed(packed_buffer_type(), 7);
  std::vector<ggml_op> seen;
  observe_kernels([&](const Computed& computed) { seen.push_back(computed.op); });
  const Backend backend = ours();
  observe_kernels({});
  compute(backend.get(), packed, {1, 2, 3});
  EXPECT_EQ(seen, (std::vector<ggml_op>{GGML_OP_GET_ROWS, GGML_OP_MUL_MAT, GGML_OP_MUL_MAT}));
}

}  // namespace
}  // namespace pocketfleet::kernels
