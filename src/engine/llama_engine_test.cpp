#include "engine/llama_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "base/json.h"
#include "engine/llama_engine_test_util.h"

namespace pocketfleet {
namespace {

using namespace std::chrono_literals;

// One engine for the tests that do not need settings of their own.
class LlamaEngine : public testing::Test {
 protected:
  static void SetUpTestSuite() { engine_ = start(guard_options()); }
  static void TearDownTestSuite() { engine_.reset(); }
  void SetUp() override { ASSERT_EQ(engine_->status().state, EngineState::kReady) << engine_->status().error.message; }

  static GenerateRequest request(const std::string& text, int max_tokens) {
    GenerateRequest made;
    made.prompt.tokens = *engine_->tokenize(text, true, true);
    made.max_tokens = max_tokens;
    made.sampling.temperature = 0;
    return made;
  }
  static std::string complete(const std::string& text, int max_tokens) {
    auto sink = std::make_shared<Collector>();
    EXPECT_TRUE(engine_->generate(request(text, max_tokens), sink));
    EXPECT_TRUE(sink->wait()) << sink->done->error().message;
    return sink->text;
  }
  static ChatInput review(const std::string& message) {
    ChatInput input;
    std::ifstream file(kShipped + "prompt.txt");
    std::string system((std::istreambuf_iterator<char>(file)), {});
    input.messages.push_back({"system", system, {}, {}, {}, {}});
    input.messages.push_back({"user", message, {}, {}, {}, {}});
    input.enable_thinking = false;
    return input;
  }

  static inline std::unique_ptr<Engine> engine_;
};

struct Sample {
  std::string text;
  bool scam;
};

std::vector<Sample> test_split() {
  std::vector<Sample> samples;
  std::ifstream file(kShipped + "test.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = *parse_json(line);
    samples.push_back({json["text"], json["label"] == "spam"});
  }
  return samples;
}

// The verdicts of the whole test split; counts are caught, missed, false alarms, right.
std::array<int, 4> confusion(Engine& engine, const std::function<ChatInput(const std::string&)>& review) {
  const auto samples = test_split();
  const std::vector<std::string> labels{"1", "2", "3", "4", "5"};
  auto set = std::make_shared<LabelSet>(*engine.prepare_labels("RISK_LEVEL: ", labels));
  ScoreRequest request;
  request.labels = set;
  for (const Sample& sample : samples) {
    Prompt prompt = engine.render_chat(review(sample.text))->prompt;
    prompt.tokens.insert(prompt.tokens.end(), set->forced.begin(), set->forced.end());
    request.inputs.push_back(std::move(prompt));
  }
  auto sink = std::make_shared<ScoreCollector>();
  EXPECT_TRUE(engine.score(std::move(request), sink));
  EXPECT_TRUE(sink->wait());
  std::array<int, 4> counts{};
  for (size_t index = 0; index < samples.size(); ++index) {
    const auto& p = sink->items.at(index);
    EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1.0, 1e-9);
    const auto best = std::max_element(p.begin(), p.end()) - p.begin();
    const bool flagged = best >= 3;
    ++counts[samples[index].scam ? (flagged ? 0 : 1) : (flagged ? 2 : 3)];
  }
  return counts;
}

TEST_F(LlamaEngine, TheTestSplitGivesTheVerdictsOfItsResultsFile) {
  EXPECT_EQ(confusion(*engine_, review), (std::array<int, 4>{57, 5, 0, 444}));
}

TEST_F(LlamaEngine, TheSecondInputDoesNotReadTheFixedPartAgain) {
  confusion(*engine_, review);
  const EngineCounters before = engine_->counters();
  const std::vector<std::string> labels{"1", "5"};
  auto set = std::make_shared<LabelSet>(*engine_->prepare_labels("RISK_LEVEL: ", labels));
  ScoreRequest request;
  request.labels = set;
  request.inputs.push_back(engine_->render_chat(review("call me back when you are home"))->prompt);
  request.inputs[0].tokens.insert(request.inputs[0].tokens.end(), set->forced.begin(), set->forced.end());
  auto sink = std::make_shared<ScoreCollector>();
  ASSERT_TRUE(engine_->score(std::move(request), sink));
  ASSERT_TRUE(sink->wait());
  EXPECT_GT(sink->wait()->cached_tokens, 20);
  // The counters are published after the answer is out.
  for (int tries = 0; tries < 1000 && engine_->counters().tokens_reused == before.tokens_reused; ++tries)
    std::this_thread::sleep_for(1ms);
  EXPECT_GT(engine_->counters().tokens_reused, before.tokens_reused);
}

TEST_F(LlamaEngine, AScoreIsTheSameAloneAndAmongOthers) {
  const auto samples = test_split();
  const std::vector<std::string> labels{"1", "2", "3", "4", "5"};
  auto set = std::make_shared<LabelSet>(*engine_->prepare_labels("RISK_LEVEL: ", labels));
  const auto ask = [&](size_t first, size_t count) {
    ScoreRequest request;
    request.labels = set;
    for (size_t index = first; index < first + count; ++index) {
      Prompt prompt = engine_->render_chat(review(samples[index].text))->prompt;
      prompt.tokens.insert(prompt.tokens.end(), set->forced.begin(), set->forced.end());
      request.inputs.push_back(std::move(prompt));
    }
    auto sink = std::make_shared<ScoreCollector>();
    EXPECT_TRUE(engine_->score(std::move(request), sink));
    EXPECT_TRUE(sink->wait());
    return sink->items;
  };
  const auto together = ask(0, 16);
  for (size_t index = 0; index < 16; ++index) {
    const auto alone = ask(index, 1);
    for (size_t label = 0; label < 5; ++label) EXPECT_NEAR(alone[0][label], together[index][label], 0.02);
  }
}

TEST_F(LlamaEngine, LabelsOfSeveralTokensAndLabelsThatBeginOthersGetProbabilities) {
  const std::vector<std::string> labels{"RISK_LEVEL: 1", "RISK_LEVEL: 5", "RISK_LEVEL: 5 and more", "free", "free prize"};
  auto set = std::make_shared<LabelSet>(*engine_->prepare_labels("", labels));
  ScoreRequest request;
  request.labels = set;
  for (const char* text : {"WINNER! Claim your prize, call 09061701461 now, code KL341", "see you at lunch then"}) {
    request.inputs.push_back(engine_->render_chat(review(text))->prompt);
    request.inputs.back().tokens.insert(request.inputs.back().tokens.end(), set->forced.begin(), set->forced.end());
  }
  auto sink = std::make_shared<ScoreCollector>();
  ASSERT_TRUE(engine_->score(std::move(request), sink));
  ASSERT_TRUE(sink->wait()) << sink->done->error().message;
  for (const auto& p : sink->items) EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1.0, 1e-9);
  EXPECT_GT(sink->items[0][1], 0.9) << sink->items[0][0] << " " << sink->items[0][2] << " " << sink->items[0][3];
  EXPECT_GT(sink->items[1][0], 0.9);
}

TEST_F(LlamaEngine, GreedyAnswersAreTheSameWhetherThePrefixWasReadOrReused) {
  const std::string prompt =
      "<|im_start|>system\nReview the SMS and say what it is about, in a few words please, and then "
      "stop.<|im_end|>\n<|im_start|>user\nI will be late tonight";
  const std::string first = complete(prompt, 24);
  EXPECT_EQ(complete(prompt, 24), first);
  EXPECT_EQ(complete(prompt, 24), first);
}

TEST_F(LlamaEngine, SeveralStreamsWriteWhatEachWouldWriteAlone) {
  std::vector<std::string> prompts{"I am going to", "Free entry in", "Sorry I will call", "What time do you"};
  std::vector<std::string> alone;
  for (const auto& prompt : prompts) alone.push_back(complete(prompt, 12));
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const auto& prompt : prompts) {
    sinks.push_back(std::make_shared<Collector>());
    ASSERT_TRUE(engine_->generate(request(prompt, 12), sinks.back()));
  }
  int same = 0;
  for (size_t index = 0; index < prompts.size(); ++index) {
    ASSERT_TRUE(sinks[index]->wait());
    same += sinks[index]->text == alone[index] ? 1 : 0;
  }
  // Sums in another order may turn a close call; four different texts would mean mixed-up sequences.
  EXPECT_GE(same, 3);
}

TEST_F(LlamaEngine, MaxTokensEndsWithLength) {
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine_->generate(request("I am going to", 5), sink));
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->wait()->reason, FinishReason::kLength);
  EXPECT_EQ(sink->wait()->usage.written_tokens, 5);
}

TEST_F(LlamaEngine, AStreamEndsAtTheEndOfItsContext) {
  auto made = request("I am going to", -1);
  made.ignore_eos = true;
  auto sink = std::make_shared<Collector>();
  const auto prompt_tokens = static_cast<int>(made.prompt.tokens.size());
  ASSERT_TRUE(engine_->generate(std::move(made), sink));
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->wait()->reason, FinishReason::kLength);
  EXPECT_EQ(sink->wait()->usage.written_tokens + prompt_tokens, 512);
}

// C-31, C-32: never cut short in silence.
TEST_F(LlamaEngine, APromptLongerThanTheContextIsRefusedWithBothCounts) {
  std::string text;
  for (int index = 0; index < 600; ++index) text += " word";
  const auto refused = engine_->generate(request(text, 5), std::make_shared<Collector>());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kContextLengthExceeded);
  EXPECT_NE(refused.error().message.find("512"), std::string::npos);
}

// C-31: what a caller pays nothing for costs us little: only as much is read as shows that the text cannot fit.
TEST_F(LlamaEngine, ATextOfAMegabyteIsRefusedWithoutReadingAllOfIt) {
  for (const std::string& text : {std::string(1 << 20, 'x'), std::string(1 << 20, '\xff')}) {
    const auto refused = engine_->check_length(text);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kContextLengthExceeded);
    EXPECT_NE(refused.error().message.find("more than"), std::string::npos);
    ChatInput input;
    input.messages.push_back({"user", text, {}, {}, {}, {}});
    const auto chat = engine_->render_chat(input);
    ASSERT_FALSE(chat);
    EXPECT_EQ(chat.error().param, "messages");
  }
  EXPECT_TRUE(engine_->check_length("short"));
}

// C-37: the work of a caller who has gone stops at once.
TEST_F(LlamaEngine, ACallerWhoGoesStopsItsStream) {
  auto made = request("I am going to", -1);
  made.ignore_eos = true;
  const CancelToken cancel = made.cancel;
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine_->generate(std::move(made), sink));
  sink->wait_for_chunk();
  cancel.cancel();
  ASSERT_FALSE(sink->wait());
  EXPECT_EQ(sink->wait().error().code, ErrorCode::kCancelled);
}

TEST_F(LlamaEngine, ADeadlineEndsARequestWithItsOwnError) {
  auto made = request("I am going to", -1);
  made.deadline_ms = SystemClock::instance().now_ms() - 1;
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine_->generate(std::move(made), sink));
  ASSERT_FALSE(sink->wait());
  EXPECT_EQ(sink->wait().error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(LlamaEngine, LogprobsComeWithEachTokenAndTheirBytesMakeTheText) {
  auto made = request("I am going to", 8);
  made.top_logprobs = 3;
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine_->generate(std::move(made), sink));
  ASSERT_TRUE(sink->wait());
  std::string bytes;
  for (const TokenLogprob& logprob : sink->logprobs) {
    bytes += logprob.chosen.bytes;
    ASSERT_EQ(logprob.top.size(), 3u);
    EXPECT_GE(logprob.top[0].logprob, logprob.top[1].logprob);
    EXPECT_EQ(logprob.top[0].token, logprob.chosen.token);
    EXPECT_LE(logprob.chosen.logprob, 0.0f);
  }
  EXPECT_EQ(bytes, sink->text);
}

TEST_F(LlamaEngine, AStopStringEndsTheTextBeforeIt) {
  const std::string whole = complete("I am going to", 16);
  ASSERT_GT(whole.size(), 8u);
  auto made = request("I am going to", 16);
  made.stop = {whole.substr(4, 4)};
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine_->generate(std::move(made), sink));
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->text, whole.substr(0, whole.find(whole.substr(4, 4))));
  EXPECT_EQ(sink->wait()->reason, FinishReason::kStop);
}

TEST_F(LlamaEngine, AGrammarHolds) {
  auto made = request("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n", 32);
  made.format = *engine_->compile({ConstraintKind::kGrammar, "root ::= \"RISK_LEVEL: \" [1-5]"});
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine_->generate(std::move(made), sink));
  ASSERT_TRUE(sink->wait()) << sink->done->error().message;
  ASSERT_EQ(sink->text.size(), 13u) << sink->text;
  EXPECT_EQ(sink->text.substr(0, 12), "RISK_LEVEL: ");
}

// C-39, C-43: the queue is bounded, and queued requests of gone callers are never run.
TEST(LlamaEngineQueue, AFullQueueRefusesAndAGoneCallerInTheQueueIsNotRun) {
  LlamaEngineOptions options = guard_options();
  options.slots = 1;
  options.queue_limit = 3;
  const auto engine = start(options);
  ASSERT_EQ(engine->status().state, EngineState::kReady);
  const auto made = [&] {
    GenerateRequest request;
    request.prompt.tokens = *engine->tokenize("I am going to", true, true);
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    return request;
  };
  auto running = std::make_shared<Collector>();
  GenerateRequest first = made();
  const CancelToken stop_first = first.cancel;
  ASSERT_TRUE(engine->generate(std::move(first), running));
  running->wait_for_chunk();
  std::vector<std::shared_ptr<Collector>> queued;
  std::vector<CancelToken> cancels;
  for (int index = 0; index < 3; ++index) {
    queued.push_back(std::make_shared<Collector>());
    GenerateRequest request = made();
    request.max_tokens = 2;
    cancels.push_back(request.cancel);
    ASSERT_TRUE(engine->generate(std::move(request), queued.back()));
  }
  const auto refused = engine->generate(made(), std::make_shared<Collector>());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kQueueFull);
  EXPECT_GE(refused.error().retry_after_s, 1);
  EXPECT_LE(refused.error().retry_after_s, 120);
  cancels[0].cancel();
  cancels[1].cancel();
  stop_first.cancel();
  EXPECT_FALSE(queued[0]->wait());
  EXPECT_FALSE(queued[1]->wait());
  ASSERT_TRUE(queued[2]->wait());
  EXPECT_EQ(queued[0]->chunks, 0);
  EXPECT_EQ(queued[1]->chunks, 0);
}

TEST(LlamaEngineQueue, StoppingEndsWhatRunsAndRefusesWhatComes) {
  const auto engine = start(guard_options());
  GenerateRequest request;
  request.prompt.tokens = *engine->tokenize("I am going to", true, true);
  request.ignore_eos = true;
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine->generate(request, sink));
  sink->wait_for_chunk();
  engine->stop();
  ASSERT_TRUE(sink->finished());
  const auto refused = engine->generate(request, std::make_shared<Collector>());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
}

// C-14: a typed error, and the process lives.
TEST(LlamaEngineLoading, ATruncatedFileIsAnErrorAndNotACrash) {
  std::ifstream whole(kShipped + "scam-guard-q4_0.gguf", std::ios::binary);
  std::string bytes(200'000, '\0');
  whole.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const std::string path = testing::TempDir() + "truncated.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  const auto engine = start(guard_options(path));
  EXPECT_EQ(engine->status().state, EngineState::kFailed);
  EXPECT_EQ(engine->status().error.code, ErrorCode::kInvalidModel);
  EXPECT_FALSE(engine->tokenize("x", false, false));
  std::filesystem::remove(path);
}

// A plain attention model goes on from any earlier token.
TEST(LlamaEngineAttention, APromptGoesOnFromWhereItLeavesAnEarlierOne) {
  const std::string path = kShared + "data/models/stories260K_f32.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << path;
  LlamaEngineOptions options = guard_options(path);
  const auto engine = start(options);
  ASSERT_EQ(engine->status().state, EngineState::kReady) << engine->status().error.message;
  const auto run = [&](const std::string& text) {
    GenerateRequest request;
    request.prompt.tokens = *engine->tokenize(text, true, true);
    request.prompt.checkpoints = {request.prompt.tokens.size() - 1};
    request.max_tokens = 16;
    request.sampling.temperature = 0;
    auto sink = std::make_shared<Collector>();
    EXPECT_TRUE(engine->generate(std::move(request), sink));
    EXPECT_TRUE(sink->wait());
    return std::make_pair(sink->text, sink->wait()->usage.cached_tokens);
  };
  const auto story = run("Once upon a time");
  EXPECT_EQ(story.first.substr(0, 27), ", there was a little girl n");
  std::string longer =
      "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day she saw a big red "
      "ball and she wanted";
  const auto cold = run(longer + " to play");
  EXPECT_EQ(cold.second, 0);
  const auto warm = run(longer + " to eat it");
  EXPECT_GT(warm.second, 30);
}

std::string of_words(int seed) {
  std::string text;
  for (int index = 0; index < 75; ++index) text += std::to_string((index * 7919 + seed * 104'729) % 9'973) + " ";
  return text;
}

// C-41 and the like: whoever will have left before the answer comes is told at once, and nothing is read for him.
TEST_F(LlamaEngine, ARequestThatCannotBeReadInTimeIsRefusedAtOnceAndNotToBeSentAgain) {
  GenerateRequest made = request(of_words(1), 2);
  ASSERT_GT(made.prompt.tokens.size(), 300u);
  made.deadline_ms = SystemClock::instance().now_ms() + 2;
  const uint64_t read_before = engine_->counters().tokens_read;
  const auto refused = engine_->generate(std::move(made), std::make_shared<Collector>());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTooLate);
  EXPECT_EQ(refused.error().retry_after_s, 0);
  EXPECT_EQ(engine_->counters().tokens_read, read_before);
}

TEST_F(LlamaEngine, ARequestThatWouldWaitTooLongBehindOthersIsToldWhenToComeAgain) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int index = 0; index < 60; ++index) {
    sinks.push_back(std::make_shared<Collector>());
    const auto accepted = engine_->generate(request(of_words(index), 1), sinks.back());
    ASSERT_TRUE(accepted) << accepted.error().message;
  }
  GenerateRequest made = request(of_words(100), 1);
  made.deadline_ms = SystemClock::instance().now_ms() + 400;
  const auto refused = engine_->generate(std::move(made), std::make_shared<Collector>());
  ASSERT_FALSE(refused) << "60 prompts before it are read in less than 400 ms";
  EXPECT_EQ(refused.error().code, ErrorCode::kTooLate) << refused.error().message;
  EXPECT_GE(refused.error().retry_after_s, 1);
  // A short one goes before the long ones, so it would be in time.
  GenerateRequest small = request("hi", 1);
  small.deadline_ms = SystemClock::instance().now_ms() + 5'000;
  auto small_sink = std::make_shared<Collector>();
  EXPECT_TRUE(engine_->generate(std::move(small), small_sink));
  EXPECT_TRUE(small_sink->wait());
  double predicted_ms = 0;
  double real_ms = 0;
  for (const auto& sink : sinks) {
    const auto& done = sink->wait();
    ASSERT_TRUE(done) << done.error().message;
    predicted_ms += static_cast<double>(done->usage.predicted_wait_ms);
    real_ms += static_cast<double>(done->usage.wait_ms);
  }
  // Only their order of size: the machine may be busy with other things.
  EXPECT_GT(predicted_ms, real_ms / 5);
  EXPECT_LT(predicted_ms, real_ms * 5);
}

}  // namespace
}  // namespace pocketfleet
