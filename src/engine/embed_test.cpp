// Embeddings of the real engine, from the shipped model told how to pool.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/llama_engine_test_util.h"

namespace pocketfleet {
namespace {

class VectorCollector final : public EmbedSink, public Awaited<Usage> {
 public:
  void on_item(size_t index, std::vector<float> vector) override { keep(vectors, index, std::move(vector)); }
  void on_done(Result<Usage> result) override { end(std::move(result)); }

  std::vector<std::vector<float>> vectors;
};

std::unique_ptr<Engine> pooled(const std::string& pooling, int batch_tokens = 512) {
  LlamaEngineOptions options = guard_options();
  options.pooling = pooling;
  options.batch_tokens = batch_tokens;
  auto engine = start(options);
  EXPECT_EQ(engine->status().state, EngineState::kReady) << engine->status().error.message;
  return engine;
}

EmbedRequest request_for(const Engine& engine, const std::vector<std::string>& texts) {
  EmbedRequest request;
  for (const std::string& text : texts) request.inputs.push_back(*engine.tokenize(text, true, false));
  return request;
}

std::vector<std::vector<float>> embed(Engine& engine, const std::vector<std::string>& texts) {
  auto sink = std::make_shared<VectorCollector>();
  EXPECT_TRUE(engine.embed(request_for(engine, texts), sink));
  EXPECT_TRUE(sink->wait());
  return sink->vectors;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t index = 0; index < a.size(); ++index) sum += static_cast<double>(a[index]) * b[index];
  return sum;
}

std::string words(size_t count) {
  std::string text;
  for (size_t index = 0; index < count; ++index) text += std::to_string((index * 7919) % 9'973) + " see you ";
  return text;
}

TEST(Embed, VectorsHaveLengthOneAndTheSameTextHasTheSameOne) {
  const auto engine = pooled("last");
  const auto vectors = embed(*engine, {"see you at lunch", "WINNER! call now", "see you at lunch"});
  ASSERT_EQ(vectors.size(), 3u);
  for (const auto& vector : vectors) {
    EXPECT_EQ(vector.size(), static_cast<size_t>(engine->model().embedding_dimensions));
    EXPECT_NEAR(dot(vector, vector), 1, 1e-5);
  }
  EXPECT_NEAR(dot(vectors[0], vectors[2]), 1, 1e-4);
  EXPECT_LT(dot(vectors[0], vectors[1]), 0.99);
}

TEST(Embed, AVectorIsTheSameAloneAndAmongOthers) {
  const auto engine = pooled("mean");
  std::vector<std::string> texts;
  for (size_t count = 1; count <= 20; ++count) texts.push_back(words(count));
  const auto together = embed(*engine, texts);
  for (const size_t index : {0u, 7u, 19u}) EXPECT_GT(dot(embed(*engine, {texts[index]})[0], together[index]), 0.999);
}

TEST(Embed, ATextReadInPiecesGivesTheVectorOfTheWhole) {
  const std::string text = words(60);
  for (const char* pooling : {"mean", "first", "last"}) {
    const auto whole = embed(*pooled(pooling), {text});
    const auto pieces = embed(*pooled(pooling, 48), {text});
    EXPECT_GT(dot(whole[0], pieces[0]), 0.999) << pooling;
  }
}

TEST(Embed, ChatsGoOnBesideEmbeddings) {
  const auto engine = pooled("last");
  GenerateRequest chat;
  chat.prompt.tokens = *engine->tokenize("I am going to", true, true);
  chat.max_tokens = 40;
  chat.ignore_eos = true;
  auto written = std::make_shared<Collector>();
  ASSERT_TRUE(engine->generate(std::move(chat), written));
  auto sink = std::make_shared<VectorCollector>();
  ASSERT_TRUE(engine->embed(request_for(*engine, std::vector<std::string>(100, words(10))), sink));
  EXPECT_TRUE(sink->wait());
  EXPECT_TRUE(written->wait());
  EXPECT_EQ(sink->vectors.size(), 100u);
}

TEST(Embed, WhatCannotBeDoneIsSaid) {
  const auto engine = pooled("last");
  auto sink = std::make_shared<VectorCollector>();
  const auto longer = engine->embed(request_for(*engine, {words(1000)}), sink);
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, ErrorCode::kContextLengthExceeded);
  EXPECT_FALSE(engine->embed(EmbedRequest{}, sink));
  const auto plain = pooled("model");
  EXPECT_EQ(plain->model().embedding_dimensions, 0);
  EXPECT_EQ(plain->embed(request_for(*plain, {"a"}), sink).error().code, ErrorCode::kUnsupportedParameter);
}

TEST(Embed, ACallerWhoGoesAndAnEngineThatStopsEndTheWork) {
  auto engine = pooled("last");
  EmbedRequest request = request_for(*engine, std::vector<std::string>(500, words(20)));
  const CancelToken cancel = request.cancel;
  auto gone = std::make_shared<VectorCollector>();
  ASSERT_TRUE(engine->embed(std::move(request), gone));
  cancel.cancel();
  EXPECT_EQ(gone->wait().error().code, ErrorCode::kCancelled);
  auto stopped = std::make_shared<VectorCollector>();
  ASSERT_TRUE(engine->embed(request_for(*engine, std::vector<std::string>(500, words(20))), stopped));
  engine->stop();
  EXPECT_EQ(stopped->wait().error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace pocketfleet
