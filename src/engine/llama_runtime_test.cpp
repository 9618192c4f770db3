#include "engine/llama_runtime.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

class LlamaRuntimeTest : public testing::Test {
 protected:
  void SetUp() override {
    RuntimeOptions options;
    options.model_path = std::string(POCKETFLEET_SOURCE_DIR) + "/models/scam-guard/scam-guard-q4_0.gguf";
    options.context_tokens = 512;
    options.threads = 1;
    auto loaded = LlamaRuntime::load(options, [](float) { return true; });
    ASSERT_TRUE(loaded) << loaded.error().message;
    runtime_ = *std::move(loaded);
  }

  // Reads tokens 300, 301, ... into the sequence; the last one's logits are wanted.
  Result<void> read(int sequence, int first, int count, const std::function<bool()>& give_up = {}) {
    runtime_->batch_clear();
    for (int index = 0; index < count; ++index)
      row_ = runtime_->batch_add(300 + first + index, first + index, sequence, index + 1 == count);
    return runtime_->decode(give_up);
  }
  std::vector<float> last_logits() {
    const float* row = runtime_->logits(row_);
    return {row, row + runtime_->info().vocabulary};
  }

  std::unique_ptr<LlamaRuntime> runtime_;
  int row_ = 0;
};

TEST_F(LlamaRuntimeTest, ABatchThatNobodyWaitsForEndsBetweenTwoOperations) {
  ASSERT_TRUE(read(0, 0, 64));
  runtime_->fork(0, 1);
  ASSERT_TRUE(read(1, 64, 32));
  const std::vector<float> expected = last_logits();
  runtime_->drop(1);

  int asked = 0;
  runtime_->fork(0, 2);
  const auto given_up = read(2, 64, 32, [&] { return ++asked == 40; });
  ASSERT_FALSE(given_up);
  EXPECT_EQ(given_up.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(asked, 40) << "nothing is computed after the answer was yes";
  runtime_->drop(2);

  // The prefix that the batch was forked from is what it was.
  runtime_->fork(0, 1);
  ASSERT_TRUE(read(1, 64, 32, [] { return false; }));
  EXPECT_EQ(last_logits(), expected);
}

}  // namespace
}  // namespace pocketfleet
