// Reading of chat requests: what is wrong is named.
#include "openai/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pocketfleet {
namespace {

using ::testing::HasSubstr;

Json with(const std::string& key, Json value) {
  Json body;
  body["messages"] = Json::array({{{"role", "user"}, {"content", "hi"}}});
  body[key] = std::move(value);
  return body;
}

Result<ChatRequest> read(const Json& body) {
  return read_chat_request(body, {true, 1'000});
}

Error error_of(const Json& body) {
  auto request = read(body);
  EXPECT_FALSE(request) << body << " was accepted";
  return request ? Error{} : request.error();
}

Error error_of_message(Json message) {
  return error_of({{"messages", Json::array({std::move(message)})}});
}

TEST(ChatRequest, AWrongTypeOrRangeNamesTheParameterAndSaysWhatIsAccepted) {
  const std::vector<std::pair<std::string, Json>> wrong = {
      {"temperature", 2.1},
      {"temperature", "1"},
      {"temperature", -0.1},
      {"top_p", 1.5},
      {"top_p", true},
      {"top_k", 1.5},
      {"min_p", -1},
      {"frequency_penalty", 3},
      {"presence_penalty", -2.5},
      {"repeat_penalty", 0},
      {"repetition_penalty", 0},
      {"seed", "x"},
      {"seed", 1e19},
      {"logit_bias", {1}},
      {"logit_bias", {{"x", 1}}},
      {"logit_bias", {{"1000", 1}}},
      {"logit_bias", {{"1", 101}}},
      {"logit_bias", {{"1", "a"}}},
      {"stop", 5},
      {"stop", {1}},
      {"stop", ""},
      {"stop", std::vector<std::string>(17, "a")},
      {"n", 0},
      {"n", 9},
      {"n", "2"},
      {"stream", "yes"},
      {"max_tokens", 0},
      {"max_tokens", -1},
      {"max_completion_tokens", 0},
      {"max_completion_tokens", 1.5},
      {"logprobs", 3},
      {"top_logprobs", 21},
      {"top_logprobs", 2},
      {"tools", {{"a", 1}}},
      {"tools", Json::object()},
      {"tool_choice", "some"},
      {"tool_choice", "required"},
      {"parallel_tool_calls", 1},
      {"response_format", "json"},
      {"ignore_eos", 1},
      {"reasoning_effort", "huge"},
      {"chat_template_kwargs", 1},
      {"guided_choice", {"a"}},
      {"guided_choice", {"a", 1}},
      {"grammar", 5},
      {"stream_options", true},
      {"store", true},
      {"modalities", {"audio"}},
  };
  for (const auto& [key, value] : wrong) {
    const Error error = error_of(with(key, value));
    EXPECT_THAT(error.param, ::testing::StartsWith(key)) << value;
    EXPECT_THAT(error.message, HasSubstr(key)) << value;
    EXPECT_EQ(map_error(error.code).http_status, 400);
  }
  EXPECT_EQ(error_of(with("temperature", 3)).message, "temperature must be between 0 and 2");
}

TEST(ChatRequest, WhatIsInsideAnObjectIsNamedWithItsPath) {
  const auto param = [](const std::string& key, Json value) { return error_of(with(key, std::move(value))).param; };
  EXPECT_EQ(param("chat_template_kwargs", {{"enable_thinking", "false"}}), "chat_template_kwargs.enable_thinking");
  EXPECT_EQ(param("chat_template_kwargs", {{"enable_thinking", 0}}), "chat_template_kwargs.enable_thinking");
  EXPECT_EQ(param("chat_template_kwargs", {{"messages", Json::array()}}), "chat_template_kwargs.messages");
  EXPECT_EQ(param("response_format", {{"type", "yaml"}}), "response_format.type");
  EXPECT_EQ(param("response_format", Json::object()), "response_format.type");
  EXPECT_EQ(param("response_format", {{"type", "json_schema"}}), "response_format.json_schema.schema");
  EXPECT_EQ(param("response_format", {{"type", "text"}, {"extra", 1}}), "response_format.extra");
  EXPECT_EQ(param("structured_outputs", {{"regex", 5}}), "structured_outputs.regex");
  EXPECT_EQ(param("structured_outputs", {{"lark", "x"}}), "structured_outputs.lark");
  EXPECT_EQ(param("structured_outputs", {{"choice", "a"}}), "structured_outputs.choice");
  const Json function = {{"type", "function"}, {"function", {{"name", "f"}, {"colour", 1}}}};
  EXPECT_EQ(param("tools", Json::array({function})), "tools[0].function.colour");
}

TEST(ChatRequest, WhatIsUnknownIsRefusedAndNeverIgnored) {
  for (const char* key :
       {"audio", "functions", "function_call", "prediction", "web_search_options", "best_of", "prompt", "input"}) {
    const Error error = error_of(with(key, 1));
    EXPECT_EQ(error.code, ErrorCode::kUnsupportedParameter) << key;
    EXPECT_EQ(error.param, key);
  }
}

TEST(ChatRequest, AParameterWithoutANameIsNamedAsSuch) {
  const Error error = error_of(with("", 1));
  EXPECT_EQ(error.code, ErrorCode::kUnsupportedParameter);
  EXPECT_EQ(error.param, "\"\"");
}

TEST(ChatRequest, AMisspelledParameterIsAnsweredWithTheOneThatWasMeant) {
  EXPECT_THAT(error_of(with("temprature", 1)).message, HasSubstr("did you mean \"temperature\"?"));
}

TEST(ChatRequest, FieldsWithoutEffectHereAndNullsAreAccepted) {
  Json body = with("user", "u");
  for (const char* key : {"metadata", "service_tier", "prompt_cache_key", "safety_identifier", "verbosity", "cache_prompt"})
    body[key] = "x";
  for (const char* key : {"temperature", "stop", "tools", "logit_bias", "response_format", "unknown"}) body[key] = nullptr;
  body["store"] = false;
  EXPECT_TRUE(read(body));
}

TEST(ChatRequest, MessagesAreReadStrictly) {
  EXPECT_EQ(error_of(Json::object()).param, "messages");
  EXPECT_EQ(error_of({{"messages", Json::array()}}).param, "messages");
  EXPECT_EQ(error_of({{"messages", "hi"}}).param, "messages");
  EXPECT_EQ(error_of_message("hi").param, "messages[0]");
  EXPECT_EQ(error_of_message({{"content", "a"}}).param, "messages[0].role");
  EXPECT_EQ(error_of_message({{"role", "user"}}).param, "messages[0].content");
  EXPECT_EQ(error_of_message({{"role", "user"}, {"content", 5}}).param, "messages[0].content");
  EXPECT_EQ(error_of_message({{"role", "user"}, {"content", "a"}, {"colour", 1}}).param, "messages[0].colour");
  EXPECT_EQ(error_of_message({{"role", "assistant"}}).param, "messages[0].content");
  const Json call = {{"id", "1"}, {"function", {{"name", "f"}, {"arguments", "not json"}}}};
  EXPECT_EQ(error_of_message({{"role", "assistant"}, {"tool_calls", Json::array({call})}}).param, "messages[0].tool_calls[0]");
}

TEST(ChatRequest, PicturesAndSoundAreRefusedAtTheirPlace) {
  const Json text = {{"type", "text"}, {"text", "look"}};
  for (const char* type : {"image_url", "input_audio", "file"}) {
    const Error error = error_of_message({{"role", "user"}, {"content", {text, {{"type", type}, {type, Json::object()}}}}});
    EXPECT_EQ(error.param, "messages[0].content[1]");
    EXPECT_EQ(error.code, ErrorCode::kUnsupportedParameter);
  }
}

TEST(ChatRequest, TwoConstraintsAreRefusedAndBothAreNamed) {
  Json body = with("grammar", "root ::= \"a\"");
  body["guided_regex"] = "a+";
  EXPECT_THAT(error_of(body).message, ::testing::AllOf(HasSubstr("grammar"), HasSubstr("guided_regex")));
}

TEST(ChatRequest, AChoiceGoesWithNeitherLogprobsNorTools) {
  Json body = with("guided_choice", {"a", "b"});
  body["logprobs"] = true;
  EXPECT_EQ(error_of(body).param, "logprobs");
}

TEST(ChatRequest, ANamedToolMustBeAmongTheTools) {
  Json body = with("tool_choice", {{"type", "function"}, {"function", {{"name", "g"}}}});
  body["tools"] = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  EXPECT_EQ(error_of(body).param, "tool_choice");
  for (const Json& choice : {Json(5), Json::array(), Json::object(), Json{{"function", 1}}, Json{{"function", Json::object()}}}) {
    body["tool_choice"] = choice;
    EXPECT_EQ(error_of(body).param, "tool_choice") << choice;
  }
}

}  // namespace
}  // namespace pocketfleet
