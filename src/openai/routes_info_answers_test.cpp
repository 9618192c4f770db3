#include "openai/routes_info_answers.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/fake_engine.h"

namespace pocketfleet {
namespace {

TEST(Info, AModelIsDescribedForClientsOfAllKinds) {
  FakeEngine engine;
  const Json model = model_answer(engine, "guard", 7, {"a", "b"});
  EXPECT_EQ(model["id"], "guard");
  EXPECT_EQ(model["object"], "model");
  EXPECT_EQ(model["created"], 7);
  EXPECT_EQ(model["max_model_len"], 4096);
  EXPECT_EQ(model["meta"]["n_vocab"], 256);
  EXPECT_EQ(model["profiles"], Json({"a", "b"}));
}

TEST(Info, HealthIs503WithProgressWhileTheModelLoads) {
  FakeEngine engine;
  EXPECT_EQ(health_answer(engine, nullptr).first, 200);
  EXPECT_EQ(health_answer(engine, nullptr).second["status"], "ok");
  EngineStatus status;
  status.state = EngineState::kLoading;
  status.progress = 0.25;
  status.phase = "reading weights";
  engine.set_status(status);
  const auto [code, body] = health_answer(engine, nullptr);
  EXPECT_EQ(code, 503);
  EXPECT_EQ(body["status"], "loading");
  EXPECT_EQ(body["progress"], 0.25);
  EXPECT_EQ(body["phase"], "reading weights");
  EXPECT_EQ(body["error"]["code"], "model_loading");
}

TEST(Info, HealthIs503WithProgressWhileProfilesAreRead) {
  FakeEngine engine;
  const auto [code, body] = health_answer(engine, Json{{"progress", 0.5}, {"phase", "reading profile b"}});
  EXPECT_EQ(code, 503);
  EXPECT_EQ(body["status"], "warming");
  EXPECT_EQ(body["progress"], 0.5);
  EXPECT_EQ(body["phase"], "reading profile b");
}

TEST(Info, HealthSaysWhyTheModelFailed) {
  FakeEngine engine;
  EngineStatus status;
  status.state = EngineState::kFailed;
  status.error = {ErrorCode::kInvalidModel, "the file is cut off", {}, 0};
  engine.set_status(status);
  const auto [code, body] = health_answer(engine, nullptr);
  EXPECT_EQ(code, 503);
  EXPECT_EQ(body["status"], "failed");
  EXPECT_NE(body["error"]["message"].get<std::string>().find("the file is cut off"), std::string::npos);
}

TEST(Info, TextBecomesTokensAndBack) {
  FakeEngine engine;
  const auto tokens = tokenize_answer(engine, Json{{"content", "ab"}});
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ((*tokens)["tokens"], Json({97, 98}));
  const auto text = detokenize_answer(engine, Json{{"tokens", {97, 98}}});
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ((*text)["content"], "ab");
}

TEST(Info, APieceThatIsNotUtf8IsGivenAsBytes) {
  FakeEngine engine;
  const auto tokens = tokenize_answer(engine, Json{{"content", "a\xC3\xA9"}, {"with_pieces", true}});
  ASSERT_TRUE(tokens);
  EXPECT_EQ((*tokens)["tokens"][0], Json({{"id", 97}, {"piece", "a"}}));
  EXPECT_EQ((*tokens)["tokens"][1], Json({{"id", 195}, {"piece", {195}}}));
}

TEST(Info, WhatIsWrongIsNamed) {
  FakeEngine engine;
  const auto param = [](const Result<Json>& answer) { return answer ? std::string("accepted") : answer.error().param; };
  EXPECT_EQ(param(tokenize_answer(engine, Json{{"text", "a"}})), "text");
  EXPECT_EQ(param(tokenize_answer(engine, Json::object())), "content");
  EXPECT_EQ(param(tokenize_answer(engine, Json{{"content", 7}})), "content");
  EXPECT_EQ(param(tokenize_answer(engine, Json{{"content", "a"}, {"add_special", 1}})), "add_special");
  EXPECT_EQ(param(detokenize_answer(engine, Json::object())), "tokens");
  EXPECT_EQ(param(detokenize_answer(engine, Json{{"tokens", "a"}})), "tokens");
  EXPECT_EQ(param(detokenize_answer(engine, Json{{"tokens", {1, -1}}})), "tokens[1]");
  EXPECT_EQ(param(detokenize_answer(engine, Json{{"tokens", {4294967393ull}}})), "tokens[0]");
  EXPECT_EQ(param(detokenize_answer(engine, Json{{"tokens", {1.5}}})), "tokens[0]");
  EXPECT_EQ(param(detokenize_answer(engine, Json{{"tokens", {300}}})), "tokens");
}

}  // namespace
}  // namespace pocketfleet
