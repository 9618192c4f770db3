// POST /v1/responses against the scripted engine: what is read, the items, the events of a stream, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "openai/testing.h"

namespace pocketfleet {
namespace {

RecordingWriter respond(ApiHarness& api, Json body) {
  if (!body.contains("input")) body["input"] = "hi";
  return api.post("/v1/responses", body);
}

std::vector<std::string> types_of(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) types.push_back(event["type"]);
  return types;
}

TEST(Responses, AnAnswerHasTheShapeThatOfficialClientsRead) {
  ApiHarness api;
  const RecordingWriter answer = respond(api, {{"model", "fake"}, {"instructions", "Be short."}, {"metadata", {{"a", "b"}}}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_THAT(json["id"].get<std::string>(), ::testing::StartsWith("resp_"));
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["created_at"], api.clock.unix_ms() / 1000);
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["model"], "fake");
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_TRUE(json["incomplete_details"].is_null());
  EXPECT_EQ(json["instructions"], "Be short.");
  EXPECT_EQ(json["metadata"], Json({{"a", "b"}}));
  EXPECT_EQ(json["store"], false);
  ASSERT_EQ(json["output"].size(), 1u);
  const Json& item = json["output"][0];
  EXPECT_EQ(item["type"], "message");
  EXPECT_EQ(item["role"], "assistant");
  EXPECT_EQ(item["status"], "completed");
  ASSERT_EQ(item["content"].size(), 1u);
  EXPECT_EQ(item["content"][0]["type"], "output_text");
  EXPECT_EQ(item["content"][0]["text"], "Hello there!");
  EXPECT_EQ(item["content"][0]["annotations"], Json::array());
  const int64_t read = json["usage"]["input_tokens"];
  EXPECT_GT(read, 0);
  EXPECT_EQ(json["usage"]["output_tokens"], 3);
  EXPECT_EQ(json["usage"]["total_tokens"], read + 3);
  EXPECT_EQ(json["usage"]["input_tokens_details"]["cached_tokens"], 0);
  const auto sent = api.engine.last_chat().messages;
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].role, "system");
  EXPECT_EQ(sent[0].content, "Be short.");
  EXPECT_EQ(sent[1].content, "hi");
}

TEST(Responses, AStreamTellsOfEveryItemInOrderAndEndsWithTheWhole) {
  ApiHarness api;
  const RecordingWriter answer = respond(api, {{"stream", true}});
  EXPECT_EQ(answer.header("content-type"), "text/event-stream");
  EXPECT_FALSE(answer.done()) << "the last event says it; there is no [DONE]";
  EXPECT_TRUE(answer.ended);
  const std::vector<Json> events = answer.events();
  EXPECT_EQ(types_of(events),
            (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                      "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
                                      "response.output_text.delta", "response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.completed"}));
  std::string text;
  for (size_t index = 0; index < events.size(); ++index) {
    EXPECT_EQ(events[index]["sequence_number"], index);
    if (events[index]["type"] == "response.output_text.delta") {
      text += events[index]["delta"];
      EXPECT_EQ(events[index]["item_id"], events[2]["item"]["id"]);
      EXPECT_EQ(events[index]["output_index"], 0);
      EXPECT_EQ(events[index]["content_index"], 0);
    }
  }
  EXPECT_EQ(text, "Hello there!");
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[2]["item"]["content"], Json::array());
  EXPECT_EQ(events[7]["text"], "Hello there!");
  const Json& last = events.back()["response"];
  EXPECT_EQ(last["status"], "completed");
  EXPECT_EQ(last["id"], events[0]["response"]["id"]);
  EXPECT_EQ(last["output"], Json::array({events[9]["item"]}));
  EXPECT_EQ(last["usage"]["output_tokens"], 3);
  EXPECT_THAT(answer.body, ::testing::StartsWith("event: response.created\ndata: {"));
}

TEST(Responses, ThoughtsAreAnItemOfTheirOwnBeforeTheMessage) {
  ApiHarness api(script_of({"I ", "think", "</think>", "Yes"}), {});
  const Json json = respond(api, Json::object()).json();
  ASSERT_EQ(json["output"].size(), 2u);
  EXPECT_EQ(json["output"][0]["type"], "reasoning");
  EXPECT_EQ(json["output"][0]["content"][0], Json({{"type", "reasoning_text"}, {"text", "I think"}}));
  EXPECT_EQ(json["output"][1]["content"][0]["text"], "Yes");
  EXPECT_EQ(json["usage"]["output_tokens_details"]["reasoning_tokens"], 2);
  const auto types = types_of(respond(api, {{"stream", true}}).events());
  EXPECT_EQ(std::count(types.begin(), types.end(), "response.reasoning_text.delta"), 2);
  EXPECT_EQ(std::count(types.begin(), types.end(), "response.output_item.done"), 2);
  EXPECT_EQ(respond(api, {{"reasoning", {{"effort", "none"}}}}).status, 200);
  EXPECT_FALSE(api.engine.last_chat().enable_thinking);
}

Json one_tool(const std::string& name) {
  return {{"type", "function"}, {"name", name}, {"description", "d"}, {"parameters", {{"type", "object"}}}, {"strict", true}};
}

TEST(Responses, ACallIsAnItemWithItsArguments) {
  ApiHarness api(script_of({"CALL weather {\"city\":\"Zug\"}"}));
  const Json body = {{"tools", Json::array({one_tool("weather"), one_tool("time")})},
                     {"tool_choice", {{"type", "function"}, {"name", "weather"}}}};
  const Json item = respond(api, body).json()["output"][0];
  EXPECT_EQ(item["type"], "function_call");
  EXPECT_EQ(item["name"], "weather");
  EXPECT_EQ(item["arguments"], "{\"city\":\"Zug\"}");
  EXPECT_EQ(item["call_id"], "call_0");
  EXPECT_EQ(api.engine.last_chat().tools.size(), 1u);
  EXPECT_EQ(api.engine.last_chat().tool_choice, ToolChoice::kRequired);
  Json streamed = body;
  streamed["stream"] = true;
  EXPECT_EQ(types_of(respond(api, streamed).events()),
            (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                      "response.function_call_arguments.delta", "response.function_call_arguments.done",
                                      "response.output_item.done", "response.completed"}));
}

TEST(Responses, WhatAnAssistantThoughtSaidAndCalledIsOneMessageOfTheConversation) {
  ApiHarness api;
  const Json input = {
      {{"role", "developer"}, {"content", "one"}},
      {{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "a"}}, {{"type", "input_text"}, {"text", "b"}}}}},
      {{"type", "reasoning"},
       {"id", "rs_1"},
       {"summary", Json::array()},
       {"content", {{{"type", "reasoning_text"}, {"text", "hm"}}}}},
      {{"type", "message"},
       {"id", "msg_1"},
       {"role", "assistant"},
       {"status", "completed"},
       {"content",
        {{{"type", "output_text"}, {"text", "let me see"}, {"annotations", Json::array()}, {"logprobs", Json::array()}}}}},
      {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{\"a\":1}"}, {"status", "completed"}},
      {{"type", "function_call"}, {"call_id", "c2"}, {"name", "g"}, {"arguments", "{}"}},
      {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "42"}},
      {{"type", "function_call_output"}, {"call_id", "c2"}, {"output", {{{"type", "input_text"}, {"text", "43"}}}}}};
  ASSERT_EQ(respond(api, {{"input", input}, {"instructions", "zero"}}).status, 200);
  const auto sent = api.engine.last_chat().messages;
  ASSERT_EQ(sent.size(), 5u);
  EXPECT_EQ(sent[0].content, "zero\n\none");
  EXPECT_EQ(sent[1].content, "ab");
  EXPECT_EQ(sent[2].reasoning, "hm");
  EXPECT_EQ(sent[2].content, "let me see");
  ASSERT_EQ(sent[2].tool_calls.size(), 2u);
  EXPECT_EQ(sent[2].tool_calls[1].name, "g");
  EXPECT_EQ(sent[3].tool_call_id, "c1");
  EXPECT_EQ(sent[3].content, "42");
  EXPECT_EQ(sent[4].content, "43");
}

TEST(Responses, TheParametersArriveAtTheEngine) {
  ApiHarness api;
  const Json schema = {{"type", "object"}};
  const Json format = {{"type", "json_schema"}, {"name", "n"}, {"strict", true}, {"schema", schema}};
  const RecordingWriter answer = respond(api, {{"temperature", 0.5},
                                               {"top_p", 0.9},
                                               {"max_output_tokens", 2},
                                               {"text", {{"format", format}}},
                                               {"include", {"message.output_text.logprobs"}},
                                               {"top_logprobs", 2},
                                               {"store", false}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  const GenerateRequest sent = api.engine.last_generate();
  EXPECT_FLOAT_EQ(sent.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(sent.sampling.top_p, 0.9f);
  EXPECT_EQ(sent.max_tokens, 2);
  EXPECT_EQ(sent.top_logprobs, 2);
  EXPECT_EQ(api.engine.last_chat().constraint.kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(api.engine.last_chat().constraint.text, schema.dump());
  const Json json = answer.json();
  EXPECT_EQ(json["status"], "incomplete");
  EXPECT_EQ(json["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(json["output"][0]["status"], "incomplete");
  EXPECT_EQ(json["output"][0]["content"][0]["logprobs"].size(), 2u);
  EXPECT_EQ(respond(api, {{"max_output_tokens", 2}, {"stream", true}}).events().back()["type"], "response.incomplete");
}

TEST(Responses, AnAnswerWithoutTextIsAnEmptyMessage) {
  ApiHarness api(script_of({}));
  const Json json = respond(api, Json::object()).json();
  ASSERT_EQ(json["output"].size(), 1u);
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "");
  EXPECT_EQ(respond(api, {{"stream", true}}).events().back()["response"]["output"].size(), 1u);
}

TEST(Responses, WhatIsNotSupportedIsRefusedByName) {
  ApiHarness api;
  const auto refused = [&](const Json& body, const std::string& param) {
    const RecordingWriter answer = respond(api, body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.json()["error"]["param"], param) << answer.body;
  };
  refused({{"previous_response_id", "resp_1"}}, "previous_response_id");
  refused({{"conversation", "c"}}, "conversation");
  refused({{"background", true}}, "background");
  refused({{"store", true}}, "store");
  refused({{"truncation", "auto"}}, "truncation");
  refused({{"n", 2}}, "n");
  refused({{"max_tokens", 2}}, "max_tokens");
  refused({{"response_format", {{"type", "text"}}}}, "response_format");
  refused({{"input", Json::array()}}, "input");
  refused({{"input", 5}}, "input");
  refused({{"input", {{{"role", "nobody"}, {"content", "a"}}}}}, "input[0].role");
  refused({{"input", {{{"role", "user"}, {"content", {{{"type", "input_image"}}}}}}}}, "input[0].content[0]");
  refused({{"input", {{{"role", "user"}, {"content", {{{"type", "input_text"}}}}}}}}, "input[0].content[0].text");
  refused({{"input", {{{"role", "user"}, {"content", "a"}, {"colour", "red"}}}}}, "input[0].colour");
  refused({{"input", {{{"type", "item_reference"}, {"id", "x"}}}}}, "input[0].type");
  refused({{"input", {{{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "no"}}}}}, "input[0].arguments");
  refused({{"tools", {{{"type", "web_search"}}}}}, "tools[0]");
  refused({{"tools", {{{"type", "function"}}}}}, "tools[0].name");
  refused({{"tool_choice", "required"}}, "tool_choice");
  refused({{"text", {{"format", {{"type", "xml"}}}}}}, "text.format.type");
  refused({{"text", {{"format", {{"type", "json_schema"}}}}}}, "text.format.schema");
  refused({{"include", {"file_search_call.results"}}}, "include[0]");
  refused({{"top_logprobs", 3}}, "top_logprobs");
  refused({{"reasoning", {{"effort", "vast"}}}}, "reasoning.effort");
  refused({{"reasoning", {{"speed", 1}}}}, "reasoning.speed");
  refused({{"colour", "red"}}, "colour");
  EXPECT_EQ(api.call("POST", "/v1/responses", "{}").json()["error"]["param"], "input");
}

TEST(Responses, AnInputLongerThanTheContextIsTheInputsFault) {
  FakeScript script;
  script.context_tokens = 16;
  ApiHarness api(script);
  const RecordingWriter answer = respond(api, {{"input", "twenty and some more bytes"}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(answer.json()["error"]["param"], "input");
}

}  // namespace
}  // namespace pocketfleet
