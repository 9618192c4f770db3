// Many labels at once under the real engine: what their probabilities must be follows from fewer labels.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/llama_engine_test_util.h"

namespace pocketfleet {
namespace {

class Labels : public testing::Test {
 protected:
  static void SetUpTestSuite() { engine_ = start(guard_options()); }
  static void TearDownTestSuite() { engine_.reset(); }

  static std::vector<std::vector<double>> score(const std::vector<std::string>& labels, const std::vector<std::string>& texts) {
    ScoreRequest request;
    request.labels = std::make_shared<LabelSet>(*engine_->prepare_labels("", labels));
    for (const std::string& text : texts) {
      Prompt prompt;
      prompt.tokens = *engine_->tokenize(text, true, true);
      const Tokens& forced = request.labels->forced;
      prompt.tokens.insert(prompt.tokens.end(), forced.begin(), forced.end());
      request.inputs.push_back(std::move(prompt));
    }
    auto sink = std::make_shared<ScoreCollector>();
    EXPECT_TRUE(engine_->score(std::move(request), sink));
    EXPECT_TRUE(sink->wait());
    return sink->items;
  }

  static std::unique_ptr<Engine> engine_;
};

std::unique_ptr<Engine> Labels::engine_;

TEST_F(Labels, Of512ThatContainOneAnotherEachGetsItsPartOfWhatItsFirstDigitHas) {
  std::vector<std::string> digits;
  for (int digit = 1; digit <= 9; ++digit) digits.push_back(std::to_string(digit));
  std::vector<std::string> numbers;
  for (int number = 1; number <= 512; ++number) numbers.push_back(std::to_string(number));
  const std::vector<std::string> texts = {"The message number is ", "RISK_LEVEL: ", "Call 0906 and get "};
  const auto by_digit = score(digits, texts);
  const auto by_number = score(numbers, texts);
  for (size_t text = 0; text < texts.size(); ++text) {
    ASSERT_EQ(by_number[text].size(), 512u);
    EXPECT_NEAR(std::accumulate(by_number[text].begin(), by_number[text].end(), 0.0), 1, 1e-9);
    std::vector<double> sums(9, 0);
    for (int number = 1; number <= 512; ++number)
      sums[static_cast<size_t>(numbers[static_cast<size_t>(number) - 1][0] - '1')] +=
          by_number[text][static_cast<size_t>(number) - 1];
    for (size_t digit = 0; digit < 9; ++digit) EXPECT_NEAR(sums[digit], by_digit[text][digit], 0.02) << digit;
  }
}

TEST_F(Labels, MoreThan512OrTheSameTwiceAreRefused) {
  std::vector<std::string> numbers;
  for (int number = 1; number <= 513; ++number) numbers.push_back(std::to_string(number));
  EXPECT_FALSE(engine_->prepare_labels("", numbers));
  EXPECT_FALSE(engine_->prepare_labels("", std::vector<std::string>{"a", "b", "a"}));
}

}  // namespace
}  // namespace pocketfleet
