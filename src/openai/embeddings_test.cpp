// POST /v1/embeddings against the scripted engine: what is read, both encodings, what is refused.
#include <gtest/gtest.h>

#include "openai/testing.h"

namespace pocketfleet {
namespace {

TEST(Embeddings, EachTextGetsAVectorInTheOrderOfTheRequest) {
  ApiHarness api;
  const RecordingWriter answer = api.post("/v1/embeddings", {{"model", "fake"}, {"input", {"bb", "a", "bb"}}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["model"], "fake");
  ASSERT_EQ(json["data"].size(), 3u);
  for (size_t index = 0; index < 3; ++index) {
    EXPECT_EQ(json["data"][index]["index"], index);
    EXPECT_EQ(json["data"][index]["object"], "embedding");
    EXPECT_EQ(json["data"][index]["embedding"].size(), 4u);
  }
  EXPECT_EQ(json["data"][0]["embedding"], json["data"][2]["embedding"]);
  EXPECT_NE(json["data"][0]["embedding"], json["data"][1]["embedding"]);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(json["usage"]["total_tokens"], 5);
}

TEST(Embeddings, Base64HoldsTheSameNumbersAsLittleEndianFloats) {
  ApiHarness api;
  // The scripted engine: the first byte of the text, its length, 0 and 1, at length 1.
  const Json floats = api.post("/v1/embeddings", {{"input", "a"}}).json()["data"][0]["embedding"];
  const std::string text =
      api.post("/v1/embeddings", {{"input", "a"}, {"encoding_format", "base64"}}).json()["data"][0]["embedding"];
  EXPECT_EQ(text.size(), 24u);
  float first = 0;
  const float expected = floats[0].get<float>();
  // Decoded by hand: 4 letters are 3 bytes.
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint64_t bits = 0;
  for (size_t index = 0; index < 8; ++index) bits = bits << 6 | alphabet.find(text[index]);
  const uint32_t big = static_cast<uint32_t>(bits >> 16);
  const uint32_t little = __builtin_bswap32(big);
  std::memcpy(&first, &little, sizeof first);
  EXPECT_EQ(first, expected);
}

TEST(Embeddings, TokenIdsMayBeSentInsteadOfText) {
  ApiHarness api;
  const Json text = api.post("/v1/embeddings", {{"input", "ab"}}).json()["data"];
  EXPECT_EQ(api.post("/v1/embeddings", {{"input", {97, 98}}}).json()["data"], text);
  const Json two = api.post("/v1/embeddings", {{"input", {{97, 98}, {97}}}}).json()["data"];
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0]["embedding"], text[0]["embedding"]);
}

TEST(Embeddings, WhatIsWrongIsNamed) {
  FakeScript script;
  script.context_tokens = 8;
  ApiHarness api(script);
  const auto refused = [&](const Json& body, const std::string& param) {
    const RecordingWriter answer = api.post("/v1/embeddings", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.json()["error"]["param"], param) << answer.body;
  };
  refused({{"model", "fake"}}, "input");
  refused({{"input", ""}}, "input");
  refused({{"input", 5}}, "input");
  refused({{"input", Json::array()}}, "input");
  refused({{"input", {"a", ""}}}, "input[1]");
  refused({{"input", {"a", 5}}}, "input[1]");
  refused({{"input", {-1}}}, "input");
  refused({{"input", "longer than the context"}}, "input[0]");
  refused({{"input", "a"}, {"encoding_format", "hex"}}, "encoding_format");
  refused({{"input", "a"}, {"dimensions", 3}}, "dimensions");
  refused({{"input", "a"}, {"truncate", true}}, "truncate");
  EXPECT_EQ(api.post("/v1/embeddings", {{"input", "a"}, {"dimensions", 4}}).status, 200);
}

TEST(Embeddings, AModelThatDoesNotPoolSaysSo) {
  FakeScript script;
  script.embedding_dimensions = 0;
  ApiHarness api(script);
  const RecordingWriter answer = api.post("/v1/embeddings", {{"input", "a"}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["param"], "model");
}

}  // namespace
}  // namespace pocketfleet
