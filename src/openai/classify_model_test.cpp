// The shipped profiles on the shipped model: exactly the verdicts that were published with it. Skipped where the model is not.
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/files.h"
#include "engine/llama_engine.h"
#include "openai/classify.h"

namespace pocketfleet {
namespace {

namespace asio = boost::asio;

constexpr const char* kModel = POCKETFLEET_SOURCE_DIR "/../shared/models/scam-guard/scam-guard-q8_0.gguf";
constexpr const char* kTest = POCKETFLEET_SOURCE_DIR "/../shared/models/scam-guard/test.jsonl";

struct Matrix {
  int caught = 0, missed = 0, false_alarms = 0, right = 0;
  bool operator==(const Matrix&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Matrix& m) {
  return out << m.caught << "/" << m.missed << "/" << m.false_alarms << "/" << m.right;
}

class ScamGuard : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModel)) GTEST_SKIP() << "the scam-guard model is not beside the project";
    LlamaEngineOptions options;
    options.model_path = kModel;
    // One thread: ThreadSanitizer takes OpenMP's for races, and looks each up.
    options.threads = 1;
    engine_ = make_llama_engine(options);
    while (engine_->status().state == EngineState::kLoading) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_EQ(engine_->status().state, EngineState::kReady) << engine_->status().error.message;
    for (const char* name : {"profile.json", "profile-windowed.json"}) {
      auto profile = load_profile(std::string(POCKETFLEET_SOURCE_DIR "/models/scam-guard/") + name);
      ASSERT_TRUE(profile);
      ASSERT_TRUE(profiles_.add(*std::move(profile)));
    }
    const std::string text = read_file(kTest, 1 << 20).value();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const Json line = Json::parse(text.substr(begin, end - begin));
      texts_.push_back(line["text"]);
      spam_.push_back(line["label"] == "spam");
      begin = end + 1;
    }
    ASSERT_EQ(texts_.size(), 506u);
  }

  Result<ClassifyResult> ask(const std::string& profile, std::vector<std::string> inputs) {
    ClassifyRequest request;
    request.profile = profile;
    request.inputs = std::move(inputs);
    return run(request);
  }

  Result<ClassifyResult> run(const ClassifyRequest& request) {
    asio::io_context context;
    Result<ClassifyResult> result = fail(ErrorCode::kInternal, "did not end");
    asio::co_spawn(
        context, [&]() -> asio::awaitable<void> { result = co_await classify(*engine_, profiles_, request, "id", {}); },
        [](std::exception_ptr) {});
    context.run();
    return result;
  }

  Matrix matrix(const std::string& profile) {
    const auto result = ask(profile, texts_);
    Matrix matrix;
    EXPECT_TRUE(result) << result.error().message;
    if (!result) return matrix;
    for (size_t index = 0; index < texts_.size(); ++index) {
      const bool flagged = result->verdicts[index].flagged;
      ++(spam_[index] ? flagged ? matrix.caught : matrix.missed : flagged ? matrix.false_alarms : matrix.right);
    }
    return matrix;
  }

  std::unique_ptr<Engine> engine_;
  ProfileSet profiles_;
  std::vector<std::string> texts_;
  std::vector<bool> spam_;
};

TEST_F(ScamGuard, TheTestSplitGivesExactlyThePublishedConfusionMatrix) {
  EXPECT_EQ(matrix("scam-guard"), (Matrix{57, 5, 0, 444}));
  // The instructions were read once, not 506 times.
  EXPECT_GT(engine_->counters().tokens_reused, 506u * 20);
}

TEST_F(ScamGuard, WindowsLoseNoScamThatWholeMessagesCatch) {
  const Matrix windowed = matrix("scam-guard-windowed");
  EXPECT_GE(windowed.caught, 57) << windowed;
  EXPECT_LE(windowed.false_alarms, 1) << windowed;
}

TEST_F(ScamGuard, HarmlessTextAroundAScamHidesItFromWholeMessagesButNotFromWindows) {
  const auto plain = ask("scam-guard", texts_);
  ASSERT_TRUE(plain);
  std::string harmless;
  while (harmless.size() < 1200) harmless += " See you at home later, I will bring milk and bread for dinner.";
  std::vector<std::string> padded;
  for (size_t index = 0; index < texts_.size() && padded.size() < 30; ++index) {
    if (plain->verdicts[index].flagged) padded.push_back(texts_[index] + harmless);
  }
  const auto flagged = [&](const char* profile) {
    const auto result = ask(profile, padded);
    int count = 0;
    if (result)
      count = static_cast<int>(std::ranges::count_if(result->verdicts, [](const Verdict& verdict) { return verdict.flagged; }));
    return count;
  };
  EXPECT_LE(flagged("scam-guard"), 5);
  EXPECT_GE(flagged("scam-guard-windowed"), 26);
}

// C-74, C-75: labels that contain or begin one another are scored as what they are.
TEST_F(ScamGuard, LabelsThatBeginOneAnotherAreToldApart) {
  for (const char* labels : {R"(["1","10"])", R"(["10","1"])", R"(["FRAUD","NOT_FRAUD"])", R"(["5","51","512","1"])"}) {
    ClassifyRequest request;
    const Json task = {{"labels", Json::parse(labels)}, {"instructions", "Review the SMS."}, {"answer_prefix", "RISK_LEVEL: "}};
    request.inline_profile = profile_from_json(task, ProfileOrigin::kInline).value();
    request.inline_key = labels;
    request.inputs = {"5 reasons for a RISK_LEVEL: 10, score of 85", ""};
    const auto result = run(request);
    ASSERT_TRUE(result) << result.error().message;
    for (const Verdict& verdict : result->verdicts) {
      double sum = 0;
      for (const double probability : verdict.probabilities) {
        EXPECT_GE(probability, 0);
        sum += probability;
      }
      EXPECT_NEAR(sum, 1, 1e-6) << labels;
      EXPECT_GE(verdict.margin, 0);
    }
  }
}

}  // namespace
}  // namespace pocketfleet
