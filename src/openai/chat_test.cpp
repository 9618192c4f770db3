// POST /v1/chat/completions against the scripted engine: shapes, streams, thinking, logprobs, tools, choices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "openai/testing.h"

namespace pocketfleet {
namespace {

// The content of a stream put together, by choice.
std::string joined(const std::vector<Json>& events, const char* field, int index = 0) {
  std::string text;
  for (const Json& event : events) {
    for (const Json& choice : event["choices"]) {
      if (choice["index"] == index && choice["delta"].contains(field)) text += choice["delta"][field].get<std::string>();
    }
  }
  return text;
}

TEST(Chat, AnAnswerHasTheShapeThatOfficialClientsRead) {
  ApiHarness api;
  const RecordingWriter answer = api.chat({{"model", "fake"}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("content-type"), "application/json");
  const Json json = answer.json();
  EXPECT_THAT(json["id"].get<std::string>(), ::testing::StartsWith("chatcmpl-"));
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["created"], api.clock.unix_ms() / 1000);
  EXPECT_EQ(json["model"], "fake");
  EXPECT_TRUE(json["system_fingerprint"].is_string());
  ASSERT_EQ(json["choices"].size(), 1u);
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(choice["message"], Json({{"role", "assistant"}, {"content", "Hello there!"}, {"refusal", nullptr}}));
  EXPECT_EQ(json["usage"]["prompt_tokens"], 20);  // "<user>hi\n<assistant>"
  EXPECT_EQ(json["usage"]["completion_tokens"], 3);
  EXPECT_EQ(json["usage"]["total_tokens"], 23);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(json["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(json["timings"]["predicted_n"], 3);
}

TEST(Chat, AStreamBeginsWithTheRoleKeepsOneIdAndEndsWithTheReasonTheUsageAndDone) {
  ApiHarness api;
  const RecordingWriter answer = api.chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("content-type"), "text/event-stream");
  EXPECT_EQ(answer.header("cache-control"), "no-cache");
  EXPECT_EQ(answer.header("x-accel-buffering"), "no");
  EXPECT_TRUE(answer.done());
  const std::vector<Json> events = answer.events();
  ASSERT_EQ(events.size(), 6u);  // role, three pieces, reason, usage
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  for (const Json& event : events) {
    EXPECT_EQ(event["id"], events[0]["id"]);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["created"], events[0]["created"]);
  }
  for (size_t index = 0; index < 4; ++index) EXPECT_TRUE(events[index]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(joined(events, "content"), "Hello there!");
  EXPECT_EQ(events[4]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[4]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(events[5]["choices"], Json::array());
  EXPECT_EQ(events[5]["usage"]["completion_tokens"], 3);
}

TEST(Chat, WithoutIncludeUsageAStreamHasNoUsageChunk) {
  ApiHarness api;
  for (const Json& event : api.chat({{"stream", true}}).events()) EXPECT_EQ(event["choices"].size(), 1u);
}

TEST(Chat, AnAnswerThatIsCutSaysLength) {
  ApiHarness api;
  const Json json = api.chat({{"max_completion_tokens", 2}, {"max_tokens", 1}}).json();
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "Hello there");
}

TEST(Chat, SeveralChoicesEachHaveAnIndexAndShareOnePrompt) {
  ApiHarness api;
  const Json json = api.chat({{"n", 3}, {"seed", 5}}).json();
  ASSERT_EQ(json["choices"].size(), 3u);
  for (int index = 0; index < 3; ++index) EXPECT_EQ(json["choices"][static_cast<size_t>(index)]["index"], index);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 20);
  EXPECT_EQ(json["usage"]["completion_tokens"], 9);
  EXPECT_EQ(api.engine.last_generate().sampling.seed, 7u) << "the third answer has a seed of its own";
  const std::vector<Json> events = api.chat({{"n", 2}, {"stream", true}}).events();
  EXPECT_EQ(joined(events, "content", 0), "Hello there!");
  EXPECT_EQ(joined(events, "content", 1), "Hello there!");
}

TEST(Chat, ParametersArriveAtTheEngine) {
  ApiHarness api;
  EXPECT_EQ(api.chat({{"temperature", 0.5},
                      {"top_p", 0.9},
                      {"top_k", 40},
                      {"min_p", 0.05},
                      {"frequency_penalty", -1},
                      {"presence_penalty", 1},
                      {"repetition_penalty", 1.1},
                      {"seed", 42},
                      {"logit_bias", {{"65", -100}}},
                      {"stop", {"a", "b"}},
                      {"ignore_eos", true}})
                .status,
            200);
  const GenerateRequest request = api.engine.last_generate();
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(request.sampling.top_p, 0.9f);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_FLOAT_EQ(request.sampling.min_p, 0.05f);
  EXPECT_FLOAT_EQ(request.sampling.frequency_penalty, -1.0f);
  EXPECT_FLOAT_EQ(request.sampling.presence_penalty, 1.0f);
  EXPECT_FLOAT_EQ(request.sampling.repeat_penalty, 1.1f);
  EXPECT_EQ(request.sampling.seed, 42u);
  ASSERT_EQ(request.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(request.sampling.logit_bias[0].first, 65);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.max_tokens, -1);
}

// C-15.
TEST(Chat, ThinkingIsTurnedOnAndOffByTheRequestWhateverTheServersDefault) {
  const auto thinks = [](bool by_default, const Json& body) {
    ApiOptions options;
    options.thinking = by_default;
    ApiHarness api(script_of({"I think", "</think>", "Yes"}), std::move(options));
    const Json message = api.chat(body).json()["choices"][0]["message"];
    EXPECT_EQ(message.contains("reasoning_content"), api.engine.last_chat().enable_thinking);
    return api.engine.last_chat().enable_thinking;
  };
  const Json on = {{"chat_template_kwargs", {{"enable_thinking", true}}}};
  const Json off = {{"chat_template_kwargs", {{"enable_thinking", false}}}};
  EXPECT_TRUE(thinks(true, Json::object()));
  EXPECT_FALSE(thinks(false, Json::object()));
  EXPECT_TRUE(thinks(false, on));
  EXPECT_FALSE(thinks(true, off));
  EXPECT_FALSE(thinks(true, {{"reasoning_effort", "none"}}));
  EXPECT_FALSE(thinks(true, {{"reasoning_effort", "minimal"}}));
  EXPECT_TRUE(thinks(false, {{"reasoning_effort", "low"}}));
}

// C-16.
TEST(Chat, WithThinkingOffAStreamPutsAllTextIntoContent) {
  ApiHarness api;
  const std::vector<Json> events = api.chat({{"stream", true}, {"chat_template_kwargs", {{"enable_thinking", false}}}}).events();
  EXPECT_EQ(joined(events, "content"), "Hello there!");
  EXPECT_EQ(joined(events, "reasoning_content"), "");
}

TEST(Chat, ReasoningIsKeptApartFromContentAndCounted) {
  ApiHarness api(script_of({"I ", "think", "</think>", "Yes"}), {});
  const Json json = api.chat(Json::object()).json();
  EXPECT_EQ(json["choices"][0]["message"]["reasoning_content"], "I think");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "Yes");
  EXPECT_EQ(json["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
  const std::vector<Json> events = api.chat({{"stream", true}}).events();
  EXPECT_EQ(joined(events, "reasoning_content"), "I think");
  EXPECT_EQ(joined(events, "content"), "Yes");
}

// C-18.
TEST(Chat, SystemAndDeveloperMessagesBecomeOneLeadingSystemMessage) {
  ApiHarness api;
  const Json messages = {{{"role", "developer"}, {"content", "one"}},
                         {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}}}},
                         {{"role", "developer"}, {"content", "two"}},
                         {{"role", "system"}, {"content", "three"}}};
  EXPECT_EQ(api.chat({{"messages", messages}}).status, 200);
  const auto sent = api.engine.last_chat().messages;
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].role, "system");
  EXPECT_EQ(sent[0].content, "one\n\ntwo\n\nthree");
  EXPECT_EQ(sent[1].content, "ab");
}

TEST(Chat, EarlierToolCallsAndTheirResultsReachTheTemplate) {
  ApiHarness api;
  const Json call = {{"id", "call_1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{\"a\":1}"}}}};
  const Json messages = {
      {{"role", "user"}, {"content", "hi"}},
      {{"role", "assistant"}, {"content", nullptr}, {"reasoning_content", "hm"}, {"tool_calls", Json::array({call})}},
      {{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "42"}}};
  EXPECT_EQ(api.chat({{"messages", messages}}).status, 200);
  const auto sent = api.engine.last_chat().messages;
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[1].reasoning, "hm");
  ASSERT_EQ(sent[1].tool_calls.size(), 1u);
  EXPECT_EQ(sent[1].tool_calls[0].arguments, "{\"a\":1}");
  EXPECT_EQ(sent[2].tool_call_id, "call_1");
}

// C-25, C-29.
TEST(Chat, LogprobsWithoutTopLogprobsHaveBytesPlainTextAndAnEmptyList) {
  ApiHarness api;
  const Json logprobs = api.chat({{"logprobs", true}}).json()["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["content"].size(), 3u);
  const Json& token = logprobs["content"][1];
  EXPECT_EQ(token["token"], " there");
  EXPECT_EQ(token["bytes"], Json({32, 116, 104, 101, 114, 101}));
  EXPECT_EQ(token["top_logprobs"], Json::array());
  EXPECT_FLOAT_EQ(token["logprob"].get<float>(), -0.25f);
  EXPECT_TRUE(logprobs["refusal"].is_null());
}

// C-26.
TEST(Chat, StreamedLogprobsAreThoseOfTheAnswerInOnePiece) {
  ApiHarness api;
  const Json whole = api.chat({{"logprobs", true}, {"top_logprobs", 2}}).json()["choices"][0]["logprobs"]["content"];
  Json pieces = Json::array();
  for (const Json& event : api.chat({{"logprobs", true}, {"top_logprobs", 2}, {"stream", true}}).events()) {
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const Json& item : logprobs["content"]) pieces.push_back(item);
  }
  EXPECT_EQ(pieces, whole);
  EXPECT_EQ(whole[0]["top_logprobs"].size(), 2u);
}

TEST(Chat, LogprobsGoWithContentAndNotWithReasoning) {
  ApiHarness api(script_of({"I think", "</think>", "Yes", "."}), {});
  const Json logprobs = api.chat({{"logprobs", true}}).json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(logprobs.size(), 2u);
  EXPECT_EQ(logprobs[0]["token"], "Yes");
}

Json one_tool(const std::string& name) {
  return {{"type", "function"},
          {"function", {{"name", name}, {"description", "d"}, {"parameters", {{"type", "object"}}}, {"strict", true}}}};
}

TEST(Chat, AToolCallHasAnIdANameAndArgumentsAndEndsWithToolCalls) {
  ApiHarness api(script_of({"CALL weather {\"city\":\"Zug\"}"}));
  const Json choice = api.chat({{"tools", Json::array({one_tool("weather")})}}).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  const Json expected = {
      {"id", "call_0"}, {"type", "function"}, {"function", {{"name", "weather"}, {"arguments", "{\"city\":\"Zug\"}"}}}};
  EXPECT_EQ(choice["message"]["tool_calls"], Json::array({expected}));
}

TEST(Chat, StreamedToolCallsCarryTheirIndex) {
  ApiHarness api(script_of({"CALL a {}", "CALL b {}"}));
  const auto events = api.chat({{"tools", {one_tool("a"), one_tool("b")}}, {"stream", true}}).events();
  ASSERT_EQ(events.size(), 4u);
  for (size_t index = 0; index < 2; ++index) {
    const Json& call = events[index + 1]["choices"][0]["delta"]["tool_calls"][0];
    EXPECT_EQ(call["index"], index);
    EXPECT_EQ(call["type"], "function");
    EXPECT_EQ(call["function"]["name"], index == 0 ? "a" : "b");
  }
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "tool_calls");
}

TEST(Chat, ANamedToolIsTheOnlyOneAndRequired) {
  ApiHarness api;
  const Json choice = {{"type", "function"}, {"function", {{"name", "b"}}}};
  api.chat({{"tools", {one_tool("a"), one_tool("b")}}, {"tool_choice", choice}, {"parallel_tool_calls", false}});
  const ChatInput input = api.engine.last_chat();
  ASSERT_EQ(input.tools.size(), 1u);
  EXPECT_EQ(input.tools[0].name, "b");
  EXPECT_EQ(input.tool_choice, ToolChoice::kRequired);
  EXPECT_FALSE(input.parallel_tool_calls);
}

TEST(Chat, EveryFormOfAConstraintReachesTheEngine) {
  ApiHarness api;
  const auto constraint = [&](const Json& body) {
    EXPECT_EQ(api.chat(body).status, 200) << body;
    return api.engine.last_chat().constraint;
  };
  const Json schema = {{"type", "object"}};
  EXPECT_EQ(constraint({{"response_format", {{"type", "text"}}}}).kind, ConstraintKind::kNone);
  EXPECT_EQ(constraint({{"response_format", {{"type", "json_object"}}}}).kind, ConstraintKind::kJsonObject);
  const Json named = {{"name", "n"}, {"strict", true}, {"schema", schema}};
  EXPECT_EQ(constraint({{"response_format", {{"type", "json_schema"}, {"json_schema", named}}}}).text, schema.dump());
  EXPECT_EQ(constraint({{"structured_outputs", {{"json", schema}}}}).kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(constraint({{"structured_outputs", {{"regex", "a+"}}}}).kind, ConstraintKind::kRegex);
  EXPECT_EQ(constraint({{"guided_regex", "a+"}}).text, "a+");
  EXPECT_EQ(constraint({{"guided_json", schema}}).kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(constraint({{"guided_grammar", "root ::= \"a\""}}).kind, ConstraintKind::kGrammar);
  EXPECT_EQ(constraint({{"grammar", "root ::= \"a\""}}).kind, ConstraintKind::kGrammar);
  EXPECT_EQ(constraint({{"json_schema", schema}}).kind, ConstraintKind::kJsonSchema);
}

TEST(Chat, AChoiceIsScoredAndTheBestLabelIsTheContent) {
  FakeScript script;
  script.score = [](const std::string&, size_t) { return std::vector<double>{0.2, 0.7, 0.1}; };
  ApiHarness api(script, {});
  for (const Json& body :
       {Json{{"structured_outputs", {{"choice", {"a", "bb", "c"}}}}}, Json{{"guided_choice", {"a", "bb", "c"}}}}) {
    const Json json = api.chat(body).json();
    EXPECT_EQ(json["choices"][0]["message"]["content"], "bb");
    EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(json["usage"]["completion_tokens"], 2);
    EXPECT_FALSE(api.engine.last_chat().enable_thinking);
  }
  const RecordingWriter stream = api.chat({{"guided_choice", {"a", "bb"}}, {"stream", true}, {"n", 2}});
  EXPECT_EQ(joined(stream.events(), "content", 1), "bb");
  EXPECT_TRUE(stream.done());
}

TEST(Chat, SilenceOnAStreamIsFilledWithPings) {
  FakeScript script;
  script.read_tokens_per_s = 200;  // 20 tokens: 100 ms
  ApiOptions options = ApiHarness::quiet();
  options.ping_interval_ms = 10;
  ApiHarness api(script, std::move(options));
  const RecordingWriter answer = api.chat({{"stream", true}});
  EXPECT_TRUE(answer.body.starts_with(": ping\n\n")) << answer.body;
  EXPECT_EQ(joined(answer.events(), "content"), "Hello there!");
}

TEST(Chat, TheCallersPatienceIsTheDeadlineUnlessPingsKeepItAwake) {
  ApiHarness api;
  const net::Headers header = {{"x-stainless-read-timeout", "30"}};
  api.chat(Json::object(), header);
  EXPECT_EQ(api.engine.last_generate().deadline_ms, api.clock.now_ms() + 30'000);
  api.chat({{"stream", true}}, header);
  EXPECT_EQ(api.engine.last_generate().deadline_ms, 0);
  api.chat({{"stream", true}}, {{"x-stainless-read-timeout", "2.5"}});
  EXPECT_EQ(api.engine.last_generate().deadline_ms, api.clock.now_ms() + 2'500);
  // The client for JavaScript cuts its timeout to whole seconds.
  api.chat(Json::object(), {{"x-stainless-timeout", "2"}});
  EXPECT_EQ(api.engine.last_generate().deadline_ms, api.clock.now_ms() + 2'999);
  api.chat(Json::object(), {{"x-stainless-timeout", "0"}});
  EXPECT_EQ(api.engine.last_generate().deadline_ms, 0);
  api.chat(Json::object(), {{"x-stainless-read-timeout", "soon"}});
  EXPECT_EQ(api.engine.last_generate().deadline_ms, 0);
}

}  // namespace
}  // namespace pocketfleet
