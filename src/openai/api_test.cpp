// What all routes share: errors and their statuses, limits, callers that go away, keys on preflights.
#include "openai/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "openai/testing.h"

namespace pocketfleet {
namespace {

// Sanitizers make every byte slower.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::chrono::milliseconds kSoon(1'000);
#else
constexpr std::chrono::milliseconds kSoon(50);
#endif

using ::testing::HasSubstr;

// C-31, C-32.
TEST(Api, AnOverlongPromptIsA400WithBothCountsStreamedOrNotAndNothingIsWritten) {
  ApiHarness api;
  const Json messages = {{{"role", "user"}, {"content", std::string(7'100, 'x')}}};
  for (const bool stream : {false, true}) {
    const RecordingWriter answer = api.chat({{"messages", messages}, {"stream", stream}});
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.header("content-type"), "application/json");
    const Json error = answer.json()["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["param"], "messages");
    EXPECT_THAT(error["message"].get<std::string>(), ::testing::AllOf(HasSubstr("7118"), HasSubstr("4096")));
  }
  EXPECT_EQ(api.engine.finished(), 0);
}

// C-34.
TEST(Api, TheStatusLineSaysWhatTheBodySays) {
  const auto check = [](ApiHarness& api, const Json& body, int status, const Json& type, const Json& code) {
    for (const bool stream : {false, true}) {
      Json sent = body;
      sent["stream"] = stream;
      const RecordingWriter answer = api.chat(sent);
      EXPECT_EQ(answer.status, status);
      EXPECT_EQ(answer.json()["error"]["type"], type);
      EXPECT_EQ(answer.json()["error"]["code"], code);
    }
  };
  ApiHarness api;
  check(api, {{"temperature", 9}}, 400, "invalid_request_error", nullptr);
  check(api, {{"audio", Json::object()}}, 400, "invalid_request_error", "unsupported_parameter");
  check(api, {{"model", "gpt-x"}}, 404, "invalid_request_error", "model_not_found");
  FakeScript full;
  full.queue_limit = 0;
  ApiHarness busy(full);
  check(busy, Json::object(), 429, "rate_limit_error", "queue_full");
  EngineStatus loading;
  loading.state = EngineState::kLoading;
  api.engine.set_status(loading);
  check(api, Json::object(), 503, "service_unavailable_error", "model_loading");
  EXPECT_EQ(api.chat(Json::object()).header("retry-after"), "1");
}

TEST(Api, AModelIsServedUnderItsNameItsAliasesAndNone) {
  ApiHarness api;
  EXPECT_EQ(api.chat({{"model", "fake"}}).status, 200);
  EXPECT_EQ(api.chat({{"model", "other-name"}}).status, 200);
  EXPECT_EQ(api.chat({{"model", nullptr}}).status, 200);
  EXPECT_EQ(api.chat({{"model", 5}}).json()["error"]["param"], "model");
}

TEST(Api, RoutesAnswerWithAndWithoutV1) {
  ApiHarness api;
  EXPECT_EQ(api.post("/chat/completions", {{"messages", ApiHarness::hello()}}).status, 200);
  EXPECT_EQ(api.post("/completions", {{"prompt", "a"}}).status, 200);
  EXPECT_EQ(api.call("POST", "/v1/nothing").status, 404);
  EXPECT_EQ(api.call("POST", "/v1/nothing").header("content-type"), "application/json");
  const RecordingWriter wrong = api.call("GET", "/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_THAT(wrong.header("allow"), HasSubstr("POST"));
  EXPECT_EQ(api.call("HEAD", "/v1/models").status, 200);
}

// C-49.
TEST(Api, APreflightNeedsNoKeyAndARefusedChatStillCarriesCorsHeaders) {
  ApiOptions options = ApiHarness::quiet();
  options.keys = *KeyStore::parse("the-right-key-of-many\n", "keys");
  options.cors = *CorsPolicy::of({"https://app.example"});
  ApiHarness api({}, std::move(options));
  const net::Headers origin = {{"origin", "https://app.example"}};
  EXPECT_EQ(api.call("OPTIONS", "/v1/chat/completions", {}, origin).status, 204);
  const RecordingWriter refused = api.chat(Json::object(), origin);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.header("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(api.chat(Json::object(), {{"authorization", "Bearer the-right-key-of-many"}}).status, 200);
}

TEST(Api, BadInputIsRefusedInUnder50MillisecondsAndTheServerGoesOn) {
  ApiHarness api;
  const std::string deep = std::string(60'000, '[') + std::string(60'000, ']');
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}],)";
  const std::vector<std::string> bodies = {
      "",
      "{",
      "[]",
      "null",
      "{\"messages\":\"\xFF\xFE\"}",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\xED\xA0\x80\"}]}",
      deep,
      chat + "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":" + deep + "}}}",
      chat + "\"temperature\":1e999}",
      std::string(9u << 20, 'x'),
      R"({"messages":[]})",
      R"({"messages":{}})",
      R"({"messages":[1]})",
      R"({"messages":[null]})",
      R"({"messages":[{"role":"user","content":[[]]}]})",
      R"({"messages":[{"role":"robot","content":"a"}]})",
  };
  for (const std::string& body : bodies) {
    // The fastest of a few, since others may be busy on this machine.
    RecordingWriter answer;
    auto took = std::chrono::steady_clock::duration::max();
    for (int round = 0; round < 3; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      answer = api.call("POST", "/v1/chat/completions", body);
      took = std::min(took, std::chrono::steady_clock::now() - begin);
    }
    EXPECT_TRUE(answer.status == 400 || answer.status == 413) << answer.status << " for " << body.substr(0, 80);
    EXPECT_TRUE(answer.json().contains("error")) << body.substr(0, 80);
    EXPECT_LT(took, kSoon) << body.substr(0, 80);
  }
  EXPECT_EQ(api.chat(Json::object()).status, 200);
}

// C-43.
TEST(Api, AFloodIsAnsweredWith429AndRetryAfterOfAtMostTwoMinutes) {
  std::promise<void> released;
  auto release = released.get_future().share();
  FakeScript script;
  script.queue_limit = 2;
  script.answer = [release](const std::string&) {
    release.wait();
    return std::vector<std::string>{"a"};
  };
  ApiHarness api(script);
  std::vector<std::unique_ptr<RecordedCall>> calls;
  for (int index = 0; index < 500; ++index) calls.push_back(api.start_chat({{"messages", ApiHarness::hello()}}));
  boost::asio::post(api.context, [&] { released.set_value(); });
  api.run();
  int refused = 0;
  for (const auto& call : calls) {
    if (call->writer.status == 200) continue;
    ++refused;
    EXPECT_EQ(call->writer.status, 429);
    const int wait = std::stoi(call->writer.header("retry-after"));
    EXPECT_GE(wait, 1);
    EXPECT_LE(wait, 120);
  }
  EXPECT_GE(refused, 497);
  EXPECT_LE(refused, 498);
}

// C-37.
TEST(Api, ACallerThatLeavesWhileTextIsWrittenEndsTheWork) {
  FakeScript script;
  script.write_tokens_per_s = 100;
  script.answer = [](const std::string&) { return std::vector<std::string>(4'000, "word "); };
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    for (const bool write_fails : {false, true}) {
      ApiHarness api(script);
      const Json body = {{"messages", ApiHarness::hello()}, {"stream", true}, {"max_tokens", 4'000}};
      const Json plain = {{"prompt", "a"}, {"stream", true}, {"max_tokens", 4'000}};
      auto call = api.start("POST", path, (std::string_view(path) == "/v1/completions" ? plain : body).dump());
      call->writer.on_write = [&, write_fails] {
        if (write_fails) {
          call->writer.broken = true;
        } else {
          call->request.gone.cancel();
        }
      };
      api.run();
      EXPECT_EQ(api.engine.cancelled(), 1) << path;
      EXPECT_LT(api.engine.counters().tokens_written, 100u);
    }
  }
}

// C-37, C-38.
TEST(Api, ACallerThatLeavesWhileItsPromptIsReadEndsTheWork) {
  FakeScript script;
  script.read_tokens_per_s = 1;  // 20 tokens: 20 s
  ApiHarness api(script);
  for (const Json& body : {Json::object(), Json{{"stream", true}}, Json{{"n", 3}}, Json{{"guided_choice", {"a", "b"}}}}) {
    Json sent = body;
    sent["messages"] = ApiHarness::hello();
    auto call = api.start_chat(sent);
    boost::asio::post(api.context, [&] { call->request.gone.cancel(); });
    const auto begin = std::chrono::steady_clock::now();
    api.run();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << body;
  }
  EXPECT_EQ(api.engine.counters().tokens_written, 0u);
  EXPECT_EQ(api.engine.cancelled(), 6);
}

// C-39.
TEST(Api, QueuedRequestsOfCallersThatHaveGoneAreNotRun) {
  std::promise<void> released;
  auto release = released.get_future().share();
  std::atomic<int> written{0};
  FakeScript script;
  script.answer = [&written, release](const std::string&) {
    release.wait();
    ++written;
    return std::vector<std::string>{"a"};
  };
  ApiHarness api(script);
  std::vector<std::unique_ptr<RecordedCall>> calls;
  for (int index = 0; index < 4; ++index) calls.push_back(api.start_chat({{"messages", ApiHarness::hello()}}));
  boost::asio::post(api.context, [&] {
    calls[1]->request.gone.cancel();
    calls[2]->request.gone.cancel();
    released.set_value();
  });
  api.run();
  EXPECT_EQ(written, 2) << "the one that was running and the one that waited on";
  EXPECT_EQ(calls[0]->writer.status, 200);
  EXPECT_EQ(calls[3]->writer.status, 200);
}

TEST(Api, AnErrorAfterTheFirstByteIsAnEventOfTheStream) {
  FakeScript script;
  ApiOptions options = ApiHarness::quiet();
  options.ping_interval_ms = 5;
  script.read_tokens_per_s = 1;
  ApiHarness api(script, std::move(options));
  auto call = api.start_chat({{"messages", ApiHarness::hello()}, {"stream", true}});
  call->writer.on_write = [&] { call->request.gone.cancel(); };  // the engine gives up; the stream is open by then
  api.run();
  EXPECT_EQ(call->writer.status, 200);
  const std::vector<Json> events = call->writer.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["error"]["code"], "cancelled");
}

}  // namespace
}  // namespace pocketfleet
