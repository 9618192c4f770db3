// Guessing ahead changes how fast a text is written and not what is written.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/grafted_model.h"
#include "engine/llama_engine_test_util.h"

namespace pocketfleet {
namespace {

// It makes a model go on as the text began.
const std::string kRepeating =
    "one two three four five six seven, one two three four five six seven, one two three four five six seven, one two three";
// After it the shipped model writes the same token over and over.
const std::string kOneWord = "x x x x x x x x x x x x x";

struct Written {
  std::string text;
  Usage usage;
};

std::vector<Written> write(Engine& engine, const std::vector<std::string>& texts, int tokens, const SamplingParams& sampling) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const std::string& text : texts) {
    GenerateRequest request;
    request.prompt.tokens = *engine.tokenize(text, true, true);
    request.prompt.checkpoints = {request.prompt.tokens.size() / 2};
    request.max_tokens = tokens;
    request.sampling = sampling;
    request.ignore_eos = true;
    sinks.push_back(std::make_shared<Collector>());
    EXPECT_TRUE(engine.generate(std::move(request), sinks.back()));
  }
  std::vector<Written> out;
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->wait()) << sink->done->error().message;
    out.push_back({sink->text, sink->wait()->usage});
  }
  return out;
}

std::unique_ptr<Engine> engine_with(Speculation speculation, const std::string& model = grafted_model()) {
  LlamaEngineOptions options = guard_options(model);
  options.speculation = speculation;
  auto engine = start(options);
  EXPECT_EQ(engine->status().state, EngineState::kReady) << engine->status().error.message;
  return engine;
}

SamplingParams greedy() {
  SamplingParams sampling;
  sampling.temperature = 0;
  return sampling;
}

EngineCounters counters_after(const Engine& engine) {
  // They are published after the answer is out.
  EngineCounters counters = engine.counters();
  for (int tries = 0; tries < 1000 && counters.tokens_drafted == 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    counters = engine.counters();
  }
  return counters;
}

void expect_same(Speculation speculation, const std::string& model, uint64_t least_accepted) {
  const std::vector<std::string> texts = {kRepeating, "I am going to", kRepeating + " four five", "Free entry in", kOneWord};
  const auto plain = engine_with(Speculation::kNone, model);
  const auto guessing = engine_with(speculation, model);
  for (const std::string& text : texts) {
    const auto expected = write(*plain, {text}, 48, greedy());
    const auto guessed = write(*guessing, {text}, 48, greedy());
    EXPECT_EQ(guessed[0].text, expected[0].text) << text;
    EXPECT_EQ(guessed[0].usage.written_tokens, expected[0].usage.written_tokens);
  }
  EXPECT_EQ(plain->counters().tokens_drafted, 0u);
  const EngineCounters counters = counters_after(*guessing);
  EXPECT_GE(counters.tokens_draft_accepted, least_accepted) << "of " << counters.tokens_drafted;
  EXPECT_LT(counters.tokens_draft_accepted, counters.tokens_drafted) << "no guess was wrong, so going back was not tried";
  EXPECT_LT(counters.batches, plain->counters().batches);
}

TEST(Speculation, TheTextItselfAsGuesserChangesNothingInARecurrentModel) {
  expect_same(Speculation::kNgram, grafted_model(), 20);
}

TEST(Speculation, TheTextItselfAsGuesserChangesNothingInAModelOfPlainAttention) {
  const std::string model = kShared + "data/models/stories260K_f32.gguf";
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "needs " << model;
  expect_same(Speculation::kNgram, model, 1);
}

TEST(Speculation, ADraftHeadChangesNothing) {
  expect_same(Speculation::kMtp, grafted_model(), 20);
}

TEST(Speculation, AModelWithoutADraftHeadIsRefusedWithWhatToDo) {
  LlamaEngineOptions options = guard_options();
  options.speculation = Speculation::kMtp;
  const EngineStatus status = start(options)->status();
  EXPECT_EQ(status.state, EngineState::kFailed);
  EXPECT_EQ(status.error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error.message.find("--speculate ngram"), std::string::npos) << status.error.message;
}

class Guessers : public ::testing::TestWithParam<Speculation> {};

TEST_P(Guessers, StreamsGuessBesideOneAnother) {
  const std::vector<std::string> texts = {kRepeating, kOneWord, "I am going to", kRepeating};
  const auto engine = engine_with(GetParam());
  const auto together = write(*engine, texts, 32, greedy());
  for (size_t index = 0; index < texts.size(); ++index) EXPECT_EQ(together[index].usage.written_tokens, 32);
  EXPECT_EQ(together[0].text, together[3].text);
}

// C-2: what a guess reads in vain must not cost the prompt its checkpoints.
TEST_P(Guessers, CheckpointsAreUsedAsBefore) {
  const auto engine = engine_with(GetParam());
  write(*engine, {kRepeating}, 32, greedy());
  EXPECT_GT(write(*engine, {kRepeating}, 32, greedy())[0].usage.cached_tokens, 16);
}

TEST_P(Guessers, TheContextAndTheNumberOfTokensEndATextWithinAGuess) {
  const auto engine = engine_with(GetParam());
  for (const int tokens : {1, 2, 3, 5, 9})
    EXPECT_EQ(write(*engine, {kOneWord}, tokens, greedy())[0].usage.written_tokens, tokens);
  const auto full = write(*engine, {kOneWord}, -1, greedy());
  EXPECT_EQ(full[0].usage.prompt_tokens + full[0].usage.written_tokens, 512);
}

TEST_P(Guessers, ASeedGivesTheSameTextWithAndWithoutGuessing) {
  SamplingParams sampling;
  sampling.temperature = 0.3f;
  sampling.seed = 7;
  EXPECT_EQ(write(*engine_with(GetParam()), {kOneWord}, 32, sampling)[0].text,
            write(*engine_with(Speculation::kNone), {kOneWord}, 32, sampling)[0].text);
}

INSTANTIATE_TEST_SUITE_P(Both, Guessers, ::testing::Values(Speculation::kNgram, Speculation::kMtp),
                         [](const auto& guesser) { return guesser.param == Speculation::kNgram ? "Ngram" : "Mtp"; });

}  // namespace
}  // namespace pocketfleet
