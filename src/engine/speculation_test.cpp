// Guessing ahead changes how fast a text is written and not what is written.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/llama_engine_test_util.h"

namespace pocketfleet {
namespace {

// It makes a model go on as the text began.
const std::string kRepeating =
    "one two three four five six seven, one two three four five six seven, one two three four five six seven, one two three";

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

std::unique_ptr<Engine> engine_with(int draft_tokens, const std::string& model = kShipped + "scam-guard-q4_0.gguf") {
  LlamaEngineOptions options = guard_options(model);
  options.draft_tokens = draft_tokens;
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

void expect_same(const std::string& model, uint64_t least_accepted) {
  const std::vector<std::string> texts = {kRepeating, "I am going to", kRepeating + " four five", "Free entry in"};
  const auto plain = engine_with(0, model);
  const auto guessing = engine_with(8, model);
  for (const std::string& text : texts) {
    const auto expected = write(*plain, {text}, 48, greedy());
    const auto guessed = write(*guessing, {text}, 48, greedy());
    EXPECT_EQ(guessed[0].text, expected[0].text) << text;
    EXPECT_EQ(guessed[0].usage.written_tokens, expected[0].usage.written_tokens);
  }
  EXPECT_EQ(plain->counters().tokens_drafted, 0u);
  const EngineCounters counters = counters_after(*guessing);
  EXPECT_GE(counters.tokens_draft_accepted, least_accepted);
  EXPECT_LT(counters.tokens_draft_accepted, counters.tokens_drafted) << "no guess was wrong, so going back was not tried";
  EXPECT_LT(counters.batches, plain->counters().batches);
}

TEST(Speculation, AModelWithARecurrentStateWritesTheSame) {
  expect_same(kShipped + "scam-guard-q4_0.gguf", 20);
}

TEST(Speculation, AModelOfPlainAttentionWritesTheSame) {
  const std::string model = kShared + "data/models/stories260K_f32.gguf";
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "needs " << model;
  expect_same(model, 1);
}

TEST(Speculation, SeveralStreamsGuessBesideOneAnother) {
  const std::vector<std::string> texts = {kRepeating, kRepeating + " four", "I am going to", kRepeating};
  const auto engine = engine_with(8);
  const auto together = write(*engine, texts, 32, greedy());
  for (size_t index = 0; index < texts.size(); ++index) EXPECT_EQ(together[index].usage.written_tokens, 32);
  EXPECT_EQ(together[0].text, together[3].text);
}

// C-2: what a guess reads in vain must not cost the prompt its checkpoints.
TEST(Speculation, CheckpointsAreUsedAsBefore) {
  const auto engine = engine_with(8);
  write(*engine, {kRepeating}, 32, greedy());
  EXPECT_GT(write(*engine, {kRepeating}, 32, greedy())[0].usage.cached_tokens, 16);
}

TEST(Speculation, TheContextAndTheNumberOfTokensEndATextWithinAGuess) {
  const auto engine = engine_with(8);
  for (const int tokens : {1, 2, 3, 5, 9})
    EXPECT_EQ(write(*engine, {kRepeating}, tokens, greedy())[0].usage.written_tokens, tokens);
  const auto full = write(*engine, {kRepeating}, -1, greedy());
  EXPECT_EQ(full[0].usage.prompt_tokens + full[0].usage.written_tokens, 512);
}

TEST(Speculation, ASeedGivesTheSameTextWithAndWithoutGuessing) {
  SamplingParams sampling;
  sampling.temperature = 0.3f;
  sampling.seed = 7;
  EXPECT_EQ(write(*engine_with(8), {kRepeating}, 32, sampling)[0].text,
            write(*engine_with(0), {kRepeating}, 32, sampling)[0].text);
}

}  // namespace
}  // namespace pocketfleet
