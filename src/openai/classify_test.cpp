#include "openai/classify.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "engine/fake_engine.h"
#include "openai/windows.h"

namespace pocketfleet {
namespace {

namespace asio = boost::asio;

Result<ClassifyResult> run(Engine& engine, ProfileSet& profiles, const ClassifyRequest& request, CancelToken gone = {}) {
  asio::io_context context;
  Result<ClassifyResult> result = fail(ErrorCode::kInternal, "did not end");
  asio::co_spawn(
      context, [&]() -> asio::awaitable<void> { result = co_await classify(engine, profiles, request, "id", gone); },
      [](std::exception_ptr) {});
  context.run();
  return result;
}

ClassifyRequest ask(std::vector<std::string> inputs, std::optional<std::string> profile = {}) {
  ClassifyRequest request;
  request.inputs = std::move(inputs);
  request.profile = std::move(profile);
  return request;
}

// "scam" in the prompt is worth 0.8 on the last label.
FakeScript scam_script() {
  FakeScript script;
  script.score = [](const std::string& prompt, size_t labels) {
    std::vector<double> out(labels, 0.0);
    const bool scam = prompt.find("scam") != std::string::npos;
    out.front() = scam ? 0.2 : 0.9;
    out.back() = scam ? 0.8 : 0.1;
    return out;
  };
  return script;
}

class Classify : public ::testing::Test {
 protected:
  void add(const std::string& json) {
    auto profile = parse_profile(json);
    ASSERT_TRUE(profile) << profile.error().message;
    ASSERT_TRUE(profiles_.add(*std::move(profile)));
  }
  void add_guard() {
    add(R"({"name":"guard","instructions":"Judge.","answer_prefix":"RISK: ",
            "labels":["1",{"label":"5","name":"bad"}],"positive":["5"]})");
  }
  ProfileSet profiles_;
};

TEST_F(Classify, EveryInputGetsItsVerdictInOrder) {
  add_guard();
  FakeEngine engine(scam_script());
  const auto result = run(engine, profiles_, ask({"hello", "a scam", "bye"}, "guard"));
  ASSERT_TRUE(result) << result.error().message;
  const Json answer = classify_answer(*result, "id", "m", 7);
  ASSERT_EQ(answer["data"].size(), 3u);
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["created"], 7);
  EXPECT_EQ(answer["data"][0]["label"], "1");
  EXPECT_EQ(answer["data"][1]["label"], "5");
  EXPECT_EQ(answer["data"][1]["name"], "bad");
  EXPECT_EQ(answer["data"][1]["index"], 1);
  EXPECT_EQ(answer["data"][1]["num_classes"], 2);
  EXPECT_EQ(answer["data"][1]["labels"], Json({"1", "5"}));
  EXPECT_TRUE(answer["data"][1]["flagged"]);
  EXPECT_FALSE(answer["data"][2]["flagged"]);
  EXPECT_NEAR(answer["data"][1]["margin"].get<double>(), 0.6, 1e-9);
  EXPECT_FALSE(answer["data"][1].contains("windows"));
  EXPECT_GT(answer["usage"]["prompt_tokens"], 0);
}

TEST_F(Classify, TheFixedBeginningIsAPinnedCheckpointAndTheAnswerPrefixIsForced) {
  add_guard();
  FakeEngine engine(scam_script());
  ASSERT_TRUE(run(engine, profiles_, ask({"hello"}, "guard")));
  const ScoreRequest score = engine.last_score();
  ASSERT_EQ(score.inputs.size(), 1u);
  const Prompt& prompt = score.inputs[0];
  const std::string fixed = "<system>Judge.\n<user>";
  EXPECT_EQ(prompt.checkpoints, std::vector<size_t>{fixed.size()});
  EXPECT_TRUE(prompt.pinned);
  EXPECT_EQ(std::string(prompt.tokens.begin(), prompt.tokens.end()), fixed + "hello\n<assistant>RISK: ");
  EXPECT_FALSE(engine.last_chat().enable_thinking);
}

TEST_F(Classify, AnInlineTaskIsNotPinned) {
  FakeEngine engine(scam_script());
  ClassifyRequest request = ask({"hello"});
  request.inline_profile =
      *profile_from_json(Json::parse(R"({"labels":["a","b"],"instructions":"Judge."})"), ProfileOrigin::kInline);
  ASSERT_TRUE(run(engine, profiles_, request));
  EXPECT_FALSE(engine.last_score().inputs.at(0).pinned);
  EXPECT_EQ(engine.last_score().inputs.at(0).checkpoints.size(), 1u);
}

TEST_F(Classify, TheOnlyProfileNeedNotBeNamed) {
  add_guard();
  FakeEngine engine(scam_script());
  EXPECT_TRUE(run(engine, profiles_, ask({"hello"})));
  add(R"({"name":"other","labels":["1","2"]})");
  const auto result = run(engine, profiles_, ask({"hello"}));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(result.error().message.find("guard, other"), std::string::npos);
}

TEST_F(Classify, AnUnknownProfileIsNotFoundAndTheAnswerNamesWhatThereIs) {
  add_guard();
  FakeEngine engine(scam_script());
  const auto result = run(engine, profiles_, ask({"hello"}, "gard"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(result.error().param, "profile");
  EXPECT_NE(result.error().message.find("there is: guard"), std::string::npos);
}

TEST_F(Classify, TheRiskiestWindowOfALongTextCounts) {
  add(R"({"name":"w","labels":["1","5"],"positive":["5"],"window":{"characters":20,"stride":10}})");
  FakeEngine engine(scam_script());
  const std::string text = std::string(35, 'x') + "scam" + std::string(40, 'y');
  const auto result = run(engine, profiles_, ask({"short", text, "short"}, "w"));
  ASSERT_TRUE(result) << result.error().message;
  const Json answer = classify_answer(*result, "id", "m", 7);
  EXPECT_EQ(answer["data"][0]["windows"]["count"], 1);
  EXPECT_EQ(answer["data"][1]["windows"]["count"], count_windows(text, 20, 10));
  EXPECT_EQ(answer["data"][1]["windows"]["riskiest"], 2);
  EXPECT_TRUE(answer["data"][1]["flagged"]);
  EXPECT_FALSE(answer["data"][2]["flagged"]);
}

TEST_F(Classify, AnInputThatDoesNotFitIsRefusedWithBothCountsAndNamed) {
  add_guard();
  FakeScript script = scam_script();
  script.context_tokens = 100;
  FakeEngine engine(script);
  const auto result = run(engine, profiles_, ask({"short", std::string(200, 'x')}, "guard"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kContextLengthExceeded);
  EXPECT_EQ(result.error().param, "input[1]");
  EXPECT_NE(result.error().message.find("239"), std::string::npos) << result.error().message;
  EXPECT_NE(result.error().message.find("100"), std::string::npos);
}

TEST_F(Classify, MoreWindowsThanTheLimitAreRefused) {
  add(R"({"name":"w","labels":["1","5"],"window":{"characters":2,"stride":1}})");
  FakeEngine engine(scam_script());
  const auto result = run(engine, profiles_, ask({std::string(10'000, 'x')}, "w"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().param, "input[0]");
}

TEST_F(Classify, ACallerWhoHasGoneEndsItsWork) {
  add_guard();
  FakeScript script = scam_script();
  script.read_tokens_per_s = 1;
  FakeEngine engine(script);
  CancelToken gone;
  gone.cancel();
  const auto result = run(engine, profiles_, ask({"hello"}, "guard"), gone);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
}

TEST_F(Classify, AnEngineThatIsLoadingSaysSo) {
  add_guard();
  FakeEngine engine(scam_script());
  EngineStatus status;
  status.state = EngineState::kLoading;
  engine.set_status(status);
  const auto result = run(engine, profiles_, ask({"hello"}, "guard"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kLoading);
}

// C-74 to C-77: verdicts come from probabilities of the allowed labels; what the text quotes, or labels that contain one another,
// or "10" beside "1", cannot be mistaken, since no text is read back.
TEST_F(Classify, LabelsThatContainOneAnotherAreNotMixedUp) {
  add(R"({"name":"fraud","labels":["FRAUD","NOT_FRAUD"]})");
  add(R"({"name":"digits","answer_prefix":"RISK_LEVEL: ","labels":["1","10","8","85"]})");
  FakeScript script;
  script.score = [](const std::string&, size_t labels) {
    std::vector<double> out(labels, 0.05);
    out[1] = 1 - 0.05 * static_cast<double>(labels - 1);
    return out;
  };
  FakeEngine engine(script);
  const auto fraud = run(engine, profiles_, ask({"the verdict is FRAUD. Final: FRAUD"}, "fraud"));
  ASSERT_TRUE(fraud);
  EXPECT_EQ(fraud->verdicts[0].label, 1u);
  const auto digits = run(engine, profiles_, ask({"5 reasons for RISK_LEVEL: 1, score of 85", ""}, "digits"));
  ASSERT_TRUE(digits);
  EXPECT_EQ(classify_answer(*digits, "i", "m", 0)["data"][0]["label"], "10");
  EXPECT_EQ(classify_answer(*digits, "i", "m", 0)["data"][1]["label"], "10");
}

}  // namespace
}  // namespace pocketfleet
