// POST /v1/completions against the scripted engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "openai/testing.h"

namespace pocketfleet {
namespace {

class Completions : public ::testing::Test {
 protected:
  Json ask(const Json& body, int status = 200) {
    const RecordingWriter answer = api_.post("/v1/completions", body);
    EXPECT_EQ(answer.status, status) << answer.body;
    return answer.json();
  }
  Json param(const Json& body) { return ask(body, 400)["error"]["param"]; }

  ApiHarness api_;
};

TEST_F(Completions, AnAnswerHasTheLegacyShape) {
  const Json json = ask({{"prompt", "Say"}});
  EXPECT_THAT(json["id"].get<std::string>(), ::testing::StartsWith("cmpl-"));
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "fake");
  EXPECT_EQ(json["choices"],
            Json::array({{{"index", 0}, {"text", "Hello there!"}, {"logprobs", nullptr}, {"finish_reason", "stop"}}}));
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(json["usage"]["completion_tokens"], 3);
  EXPECT_EQ(api_.engine.last_generate().max_tokens, 16);
}

TEST_F(Completions, PromptsMayBeTextTextsTokensOrListsOfTokens) {
  EXPECT_EQ(ask({{"prompt", {"a", "b"}}, {"n", 2}})["choices"].size(), 4u);
  EXPECT_EQ(ask({{"prompt", {97, 98}}})["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(api_.engine.last_generate().prompt.tokens, (Tokens{97, 98}));
  const Json lists = Json::array({Json::array({97}), Json::array({98, 99})});
  const Json json = ask({{"prompt", lists}, {"echo", true}});
  EXPECT_EQ(json["choices"][0]["text"], "aHello there!");
  EXPECT_EQ(json["choices"][1]["text"], "bcHello there!");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
}

TEST_F(Completions, PromptsThatAreNoneAreRefused) {
  for (const Json& prompt : {Json(5), Json::array(), Json(""), Json({256}), Json({-1}), Json({1.5}), Json({"a", nullptr}),
                             Json::array({Json::array()}), Json(std::vector<std::string>(65, "a"))}) {
    EXPECT_EQ(param({{"prompt", prompt}}), "prompt") << prompt;
  }
  EXPECT_EQ(param(Json::object()), "prompt");
}

TEST_F(Completions, AStreamHasPiecesAReasonAndDone) {
  const RecordingWriter answer = api_.post(
      "/v1/completions", {{"prompt", "a"}, {"stream", true}, {"echo", true}, {"stream_options", {{"include_usage", true}}}});
  const std::vector<Json> events = answer.events();
  std::string text;
  for (const Json& event : events) {
    EXPECT_EQ(event["object"], "text_completion");
    EXPECT_EQ(event["id"], events[0]["id"]);
    for (const Json& choice : event["choices"]) text += choice["text"];
  }
  EXPECT_EQ(text, "aHello there!");
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 3);
  EXPECT_TRUE(answer.done());
}

// C-27.
TEST_F(Completions, LogprobsAreTheLegacyArrays) {
  const Json logprobs = ask({{"prompt", "a"}, {"logprobs", 1}})["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({"Hello", " there", "!"}));
  EXPECT_EQ(logprobs["text_offset"], Json({0, 5, 11}));
  ASSERT_EQ(logprobs["token_logprobs"].size(), 3u);
  EXPECT_FLOAT_EQ(logprobs["token_logprobs"][0].get<float>(), -0.25f);
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 1u);
  EXPECT_TRUE(logprobs["top_logprobs"][1].contains(" there"));
}

TEST_F(Completions, StreamedOffsetsGoOn) {
  Json offsets = Json::array();
  for (const Json& event : api_.post("/v1/completions", {{"prompt", "a"}, {"logprobs", 0}, {"stream", true}}).events()) {
    for (const Json& offset : event["choices"][0]["logprobs"]["text_offset"]) offsets.push_back(offset);
  }
  EXPECT_EQ(offsets, Json({0, 5, 11}));
}

TEST_F(Completions, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_EQ(param({{"prompt", "a"}, {"suffix", "b"}}), "suffix");
  EXPECT_EQ(param({{"prompt", "a"}, {"best_of", 3}}), "best_of");
  EXPECT_EQ(param({{"prompt", "a"}, {"logprobs", 6}}), "logprobs");
  EXPECT_EQ(param({{"prompt", "a"}, {"logprobs", true}}), "logprobs");
  EXPECT_EQ(param({{"prompt", "a"}, {"grammar", "bad"}}), "grammar");
  EXPECT_EQ(param({{"prompt", "a"}, {"guided_choice", {"a", "b"}}}), "guided_choice");
  EXPECT_EQ(param({{"prompt", "a"}, {"structured_outputs", {{"choice", {"a", "b"}}}}}), "structured_outputs.choice");
  EXPECT_EQ(param({{"prompt", "a"}, {"messages", Json::array()}}), "messages");
  EXPECT_EQ(param({{"prompt", std::string(5'000, 'x')}}), "prompt");
  EXPECT_EQ(ask({{"prompt", "a"}, {"best_of", 2}, {"n", 2}})["choices"].size(), 2u);
  EXPECT_EQ(ask({{"prompt", "a"}, {"model", "x"}}, 404)["error"]["code"], "model_not_found");
}

}  // namespace
}  // namespace pocketfleet
