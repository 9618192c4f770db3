#include "kernels/matmul.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kernels/isa.h"

namespace pocketfleet::kernels {
namespace {

constexpr ggml_type kTypes[] = {GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K};

// Memory that ends where its contents end, so that the address sanitizer sees every byte read beyond.
struct Memory {
  explicit Memory(size_t bytes)
      : at(static_cast<std::byte*>(std::aligned_alloc(kCacheLine, align_up(std::max<size_t>(bytes, 1)))), std::free) {}
  std::unique_ptr<std::byte, void (*)(void*)> at;
};

struct Case {
  ggml_type type;
  int64_t k, rows, columns;
  size_t x_gap = 0;  // floats between columns beyond k
};

// One product: weights in the file's form, packed, and as floats; activations; the outputs of a run.
class Product {
 public:
  Product(const Case& shape, unsigned seed)
      : shape_(shape),
        layout_(layout_for(shape.type, shape.k, shape.rows)),
        context_(ggml_init({16 * ggml_tensor_overhead(), nullptr, true}), ggml_free),
        packed_(packed_bytes(layout_, shape.k, shape.rows)),
        x_(static_cast<size_t>(shape.columns) * (static_cast<size_t>(shape.k) + shape.x_gap)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> w(static_cast<size_t>(shape.k * shape.rows));
    for (float& value : w) value = normal(random);
    for (float& value : x_) value = normal(random) * (random() % 50 == 0 ? 30.0f : 1.0f);
    std::vector<std::byte> file(ggml_row_size(shape.type, shape.k) * static_cast<size_t>(shape.rows));
    ggml_quantize_chunk(shape.type, w.data(), file.data(), 0, shape.rows, shape.k, nullptr);
    for (int64_t panel = 0; panel < (shape.rows + kUnitRows - 1) / kUnitRows * 2; ++panel) {
      pack_panel(layout_, file.data(), shape.k, shape.rows, panel, packed_.at.get());
    }
    weights_.resize(w.size());
    ggml_get_type_traits(shape.type)->to_float(file.data(), weights_.data(), static_cast<int64_t>(w.size()));
    ggml_tensor* weight = ggml_new_tensor_2d(context_.get(), shape.type, shape.k, shape.rows);
    ggml_tensor* x = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, shape.k, shape.columns);
    x->nb[1] = (static_cast<size_t>(shape.k) + shape.x_gap) * sizeof(float);
    x->nb[2] = x->nb[3] = x->nb[1] * static_cast<size_t>(shape.columns);
    tensor_ = ggml_mul_mat(context_.get(), weight, x);
    weight->data = packed_.at.get();
    x->data = x_.data();
  }

  std::vector<float> run(const MatmulKernels& kernels, int threads) {
    std::vector<float> y(static_cast<size_t>(shape_.rows * shape_.columns), NAN);
    tensor_->data = y.data();
    EXPECT_TRUE(matmul_supports(tensor_));
    const Memory rounded(matmul_activation_bytes(tensor_)), scratch(matmul_scratch_bytes(tensor_, kernels, threads));
    Activations activations;
    activations.memory = rounded.at.get();
    Team team;
    std::vector<std::thread> others;
    const auto part = [&](int thread) {
      run_matmul({tensor_, nullptr, thread, threads, scratch.at.get(), &team}, kernels, activations);
    };
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(part, thread);
    part(0);
    for (std::thread& other : others) other.join();
    return y;
  }

  // Root of the squared error over the squared values, against double precision.
  double error(const std::vector<float>& y) const {
    double wrong = 0, all = 0;
    for (int64_t c = 0; c < shape_.columns; ++c) {
      for (int64_t r = 0; r < shape_.rows; ++r) {
        double sum = 0;
        for (int64_t k = 0; k < shape_.k; ++k) {
          sum += static_cast<double>(weights_[static_cast<size_t>(r * shape_.k + k)]) *
                 static_cast<double>(
                     x_[static_cast<size_t>(c) * (static_cast<size_t>(shape_.k) + shape_.x_gap) + static_cast<size_t>(k)]);
        }
        const double is = static_cast<double>(y[static_cast<size_t>(c * shape_.rows + r)]);
        wrong += (is - sum) * (is - sum);
        all += sum * sum;
      }
    }
    return std::sqrt(wrong / all);
  }

 private:
  Case shape_;
  Layout layout_;
  std::unique_ptr<ggml_context, void (*)(ggml_context*)> context_;
  Memory packed_;
  std::vector<float> weights_, x_;
  ggml_tensor* tensor_ = nullptr;
};

class Matmul : public ::testing::Test {
 protected:
  void SetUp() override {
    if (usable_isas().empty()) GTEST_SKIP() << "this processor has none of the instruction sets that there are kernels for";
  }
};

TEST_F(Matmul, IsAsExactAsRoundingActivationsToEightBitsAllows) {
  for (const Isa* isa : usable_isas()) {
    for (const ggml_type type : kTypes) {
      for (const Case& shape :
           {Case{type, 256, 64, 33}, Case{type, 1024, 16, 6}, Case{type, 768, 40, 1}, Case{type, 512, 24, 3}}) {
        SCOPED_TRACE(std::string(isa->name) + " " + ggml_type_name(type) + " columns " + std::to_string(shape.columns));
        Product product(shape, 1);
        EXPECT_LT(product.error(product.run(*isa->matmul, 1)), 0.015);
      }
    }
  }
}

TEST_F(Matmul, TakesAnyNumberOfRowsAndColumnsAtAnyDistance) {
  std::mt19937 random(7);
  for (const Isa* isa : usable_isas()) {
    for (int round = 0; round < 60; ++round) {
      const Case shape{kTypes[random() % 5], 256 * (1 + static_cast<int64_t>(random() % 3)),
                       1 + static_cast<int64_t>(random() % 70), 1 + static_cast<int64_t>(random() % 20), random() % 3 * 8};
      SCOPED_TRACE(std::string(isa->name) + " " + ggml_type_name(shape.type) + " k " + std::to_string(shape.k) + " rows " +
                   std::to_string(shape.rows) + " columns " + std::to_string(shape.columns) + " gap " +
                   std::to_string(shape.x_gap));
      Product product(shape, static_cast<unsigned>(round));
      EXPECT_LT(product.error(product.run(*isa->matmul, 1)), 0.03);
    }
  }
}

TEST_F(Matmul, GivesTheSameBitsWithAnyNumberOfThreads) {
  for (const Isa* isa : usable_isas()) {
    for (const ggml_type type : kTypes) {
      for (const int64_t columns : {1, 5, 29}) {
        Product product({type, 512, 100, columns}, 3);
        const auto alone = product.run(*isa->matmul, 1);
        for (const int threads : {2, 3, 5}) {
          const auto together = product.run(*isa->matmul, threads);
          EXPECT_EQ(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)), 0)
              << isa->name << " " << ggml_type_name(type) << " columns " << columns << " threads " << threads;
        }
      }
    }
  }
}

TEST_F(Matmul, GivesAColumnTheSameBitsAloneAndInABatch) {
  for (const Isa* isa : usable_isas()) {
    for (const ggml_type type : kTypes) {
      // The same seed gives the same weights and, from the first column on, the same activations.
      const auto batch = Product({type, 512, 72, 23}, 11).run(*isa->matmul, 2);
      for (const int64_t columns : {1, 2, 3, 4, 5, 6, 7}) {
        const auto few = Product({type, 512, 72, columns}, 11).run(*isa->matmul, 1);
        EXPECT_EQ(std::memcmp(batch.data(), few.data(), few.size() * sizeof(float)), 0)
            << isa->name << " " << ggml_type_name(type) << " columns " << columns;
      }
    }
  }
}

TEST_F(Matmul, KeepsSumsThatFillSixteenBits) {
  // Every weight at its extreme against every activation at its extreme, with both signs: the largest sums there can be.
  for (const Isa* isa : usable_isas()) {
    for (const float sign : {1.0f, -1.0f}) {
      constexpr int64_t k = 256, rows = 16;
      std::vector<float> x(k, 127.0f * sign);
      std::vector<std::byte> file(ggml_row_size(GGML_TYPE_Q6_K, k) * rows, std::byte{0});
      for (int64_t row = 0; row < rows; ++row) {
        auto* block = reinterpret_cast<uint8_t*>(file.data()) + static_cast<size_t>(row) * 210;
        // Quants 0 mean -32 in Q6_K: all bytes zero. Scales 1 and a super scale of 1.
        for (int part = 0; part < 16; ++part) block[192 + part] = 1;
        block[208] = 0x00;
        block[209] = 0x3c;
      }
      const Memory packed(packed_bytes(Layout::kQ6_K, k, rows));
      for (int panel = 0; panel < 2; ++panel) pack_panel(Layout::kQ6_K, file.data(), k, rows, panel, packed.at.get());
      const std::unique_ptr<ggml_context, void (*)(ggml_context*)> context(ggml_init({8 * ggml_tensor_overhead(), nullptr, true}),
                                                                           ggml_free);
      for (const int64_t columns : {1, 6}) {
        std::vector<float> many, y(static_cast<size_t>(rows * columns));
        for (int64_t c = 0; c < columns; ++c) many.insert(many.end(), x.begin(), x.end());
        ggml_tensor* weight = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q6_K, k, rows);
        ggml_tensor* input = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, k, columns);
        ggml_tensor* tensor = ggml_mul_mat(context.get(), weight, input);
        weight->data = packed.at.get();
        input->data = many.data();
        tensor->data = y.data();
        const Memory rounded(matmul_activation_bytes(tensor)), scratch(matmul_scratch_bytes(tensor, *isa->matmul, 1));
        Activations activations;
        activations.memory = rounded.at.get();
        Team team;
        run_matmul({tensor, nullptr, 0, 1, scratch.at.get(), &team}, *isa->matmul, activations);
        for (const float value : y) EXPECT_FLOAT_EQ(value, -32.0f * 127.0f * sign * k) << isa->name << " columns " << columns;
      }
    }
  }
}

}  // namespace
}  // namespace pocketfleet::kernels
