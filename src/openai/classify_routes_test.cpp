// /v1/classify and the routes around it over real sockets, with the scripted engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/fake_engine.h"
#include "net/http_client.h"
#include "net/net_test_util.h"
#include "openai/api.h"

namespace pocketfleet {
namespace {

using ::testing::HasSubstr;

class Routes : public ::testing::Test {
 protected:
  void start(ApiOptions options = {}, FakeScript script = {}) {
    auto profile = parse_profile(R"({"name":"guard","instructions":"Judge.","labels":["1","5"],"positive":["5"]})");
    ASSERT_TRUE(profiles_.add(*std::move(profile)));
    engine_ = std::make_unique<FakeEngine>(std::move(script));
    options.model_name = "fake";
    api_ = std::make_unique<Api>(*engine_, profiles_, std::move(options));
    server_ = std::make_unique<net::TestServer>(api_->handler(), net::ServerOptions{}, Api::server_error_body);
  }
  net::HttpResponse call(const std::string& method, const std::string& path, std::string body = {}, net::Headers headers = {}) {
    const std::string url = "http://127.0.0.1:" + std::to_string(server_->port()) + path;
    auto response = client_.request(net::ClientRequest(method, url, std::move(headers), std::move(body)));
    EXPECT_TRUE(response) << response.error().message;
    return response ? *response : net::HttpResponse{};
  }
  Json ask(const std::string& path, const Json& body, int status = 200) {
    const net::HttpResponse response = call("POST", path, dump_json(body));
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body);
  }

  ProfileSet profiles_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<net::TestServer> server_;
  net::BlockingHttpClient client_;
};

ApiOptions with_key() {
  ApiOptions options;
  options.keys = *KeyStore::parse("the-right-key\nanother-key-1\n", "keys");
  return options;
}

TEST_F(Routes, ATextIsClassifiedByAProfile) {
  start();
  const Json answer = ask("/v1/classify", {{"model", "fake"}, {"profile", "guard"}, {"input", {"a", "b"}}});
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "fake");
  ASSERT_EQ(answer["data"].size(), 2u);
  EXPECT_EQ(answer["data"][1]["label"], "1");
  EXPECT_EQ(ask("/classify", {{"input", "a"}})["data"].size(), 1u);
}

TEST_F(Routes, WhatIsWrongWithARequestIsA400ThatNamesIt) {
  start();
  const auto param = [&](const Json& body) { return ask("/v1/classify", body, 400)["error"]["param"]; };
  EXPECT_EQ(param({{"profile", "guard"}}), "input");
  EXPECT_EQ(param({{"profile", "guard"}, {"input", "a"}, {"temperature", 1}}), "temperature");
  EXPECT_EQ(param({{"labels", {"a"}}, {"input", "a"}}), "labels");
  EXPECT_EQ(ask("/v1/classify", {{"profile", "gurd"}, {"input", "a"}}, 404)["error"]["param"], "profile");
  EXPECT_EQ(ask("/v1/classify", {{"model", "other"}, {"input", "a"}}, 404)["error"]["code"], "model_not_found");
  EXPECT_EQ(ask("/v1/classify", {{"profile", "guard"}, {"input", std::string(5000, 'x')}}, 400)["error"]["code"],
            "context_length_exceeded");
  EXPECT_EQ(call("POST", "/v1/classify", "{\"input\":\"\xFF\"}").status, 400);
  EXPECT_EQ(call("POST", "/v1/classify", std::string(60'000, '[')).status, 400);
  EXPECT_EQ(call("POST", "/v1/classify").status, 400);
  EXPECT_EQ(ask("/v1/classify", {{"profile", "guard"}, {"input", "a"}})["data"].size(), 1u) << "and the server goes on";
}

TEST_F(Routes, AFullQueueIs429WithRetryAfter) {
  FakeScript script;
  script.queue_limit = 0;
  start({}, script);
  const net::HttpResponse response = call("POST", "/v1/classify", R"({"profile":"guard","input":"a"})");
  EXPECT_EQ(response.status, 429);
  EXPECT_TRUE(response.headers.contains("retry-after"));
}

TEST_F(Routes, ACallerWhoHasGoneEndsItsWorkAlsoInTheQueue) {
  FakeScript script;
  script.read_tokens_per_s = 1;
  start({}, script);
  const std::string body = R"({"profile":"guard","input":"a"})";
  const std::string bytes =
      "POST /v1/classify HTTP/1.1\r\nhost: x\r\ncontent-length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  const auto until = [&](auto condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return condition();
  };
  {
    net::RawClient running(server_->port());
    net::RawClient waiting(server_->port());
    ASSERT_TRUE(running.send(bytes));
    ASSERT_TRUE(waiting.send(bytes));
    ASSERT_TRUE(until([&] { return engine_->status().running == 1 && engine_->status().queued == 1; }));
  }
  EXPECT_TRUE(until([&] { return engine_->cancelled() == 2; }));
  EXPECT_TRUE(until([&] {
    return call("GET", "/metrics").body.find("pocketfleet_gone_callers_total{route=\"/v1/classify\"} 2") != std::string::npos;
  }));
}

// C-48.
TEST_F(Routes, OnlyAKnownKeyIsLetIn) {
  start(with_key());
  const auto status = [&](const std::string& authorization) {
    return call("GET", "/v1/models", {}, {{"authorization", authorization}}).status;
  };
  EXPECT_EQ(status("Bearer the-right-key"), 200);
  EXPECT_EQ(status("Bearer another-key-1"), 200);
  EXPECT_EQ(status("Bearer the-right-ke"), 401);
  EXPECT_EQ(status("Bearer the-right-keyy"), 401);
  EXPECT_EQ(status("the-right-key"), 401);
  const net::HttpResponse response = call("GET", "/v1/models");
  EXPECT_EQ(response.status, 401);
  EXPECT_EQ(Json::parse(response.body)["error"]["code"], "invalid_api_key");
  EXPECT_EQ(call("GET", "/no/such/route").status, 401) << "who has no key does not learn what there is";
  EXPECT_EQ(call("GET", "/metrics").status, 401);
  EXPECT_EQ(call("GET", "/health").status, 200);
}

// C-49.
TEST_F(Routes, APreflightNeedsNoKeyAndARefusalCarriesCorsHeaders) {
  ApiOptions options = with_key();
  options.cors = *CorsPolicy::of({"https://app.example"});
  start(std::move(options));
  const net::Headers origin = {{"origin", "https://app.example"}, {"access-control-request-headers", "authorization"}};
  const net::HttpResponse preflight = call("OPTIONS", "/v1/classify", {}, origin);
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.get("access-control-allow-origin"), "https://app.example");
  const net::HttpResponse refused = call("POST", "/v1/classify", "{}", origin);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.get("access-control-allow-origin"), "https://app.example");
}

// C-51.
TEST_F(Routes, AnOriginThatWasNotNamedIsNotEchoed) {
  start();
  const net::Headers evil = {{"origin", "https://evil.example"}};
  for (const net::HttpResponse& response : {call("OPTIONS", "/v1/models", {}, evil), call("GET", "/v1/models", {}, evil)}) {
    for (const auto& [name, value] : response.headers.items()) EXPECT_EQ(value.find("evil"), std::string::npos) << name;
    EXPECT_FALSE(response.headers.contains("access-control-allow-credentials"));
  }
}

TEST_F(Routes, TheRequestIdComesBack) {
  start();
  EXPECT_EQ(call("GET", "/health", {}, {{"x-request-id", "job-7"}}).headers.get("x-request-id"), "job-7");
  EXPECT_THAT(std::string(call("GET", "/health", {}, {{"x-request-id", "a b"}}).headers.get("x-request-id").value_or("")),
              ::testing::StartsWith("req_"));
}

TEST_F(Routes, TheModelIsListedAndFoundByName) {
  start();
  for (const char* path : {"/v1/models", "/models"}) {
    const Json list = Json::parse(call("GET", path).body);
    EXPECT_EQ(list["object"], "list");
    EXPECT_EQ(list["data"][0]["id"], "fake");
    EXPECT_EQ(list["data"][0]["profiles"], Json({"guard"}));
  }
  EXPECT_EQ(Json::parse(call("GET", "/v1/models/fake").body)["id"], "fake");
  EXPECT_EQ(call("GET", "/v1/models/other").status, 404);
  EXPECT_EQ(call("GET", "/v1/nothing").status, 404);
  EXPECT_EQ(call("DELETE", "/v1/models").status, 405);
}

TEST_F(Routes, WhileTheModelLoadsWorkIs503AndHealthTellsTheProgress) {
  start();
  EngineStatus status;
  status.state = EngineState::kLoading;
  status.progress = 0.5;
  engine_->set_status(status);
  const net::HttpResponse health = call("GET", "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(Json::parse(health.body)["progress"], 0.5);
  EXPECT_TRUE(health.headers.contains("retry-after"));
  EXPECT_EQ(call("POST", "/v1/classify", R"({"profile":"guard","input":"a"})").status, 503);
  EXPECT_EQ(call("POST", "/tokenize", R"({"content":"a"})").status, 503);
}

TEST_F(Routes, TokensAndTextGoBothWays) {
  start();
  EXPECT_EQ(ask("/tokenize", {{"content", "ab"}})["tokens"], Json({97, 98}));
  EXPECT_EQ(ask("/detokenize", {{"tokens", {97, 98}}})["content"], "ab");
  EXPECT_EQ(ask("/tokenize", {{"contents", "ab"}}, 400)["error"]["param"], "contents");
}

TEST_F(Routes, MetricsCountWhatWasServed) {
  start();
  ask("/v1/classify", {{"profile", "guard"}, {"input", "a"}});
  const net::HttpResponse response = call("GET", "/metrics");
  EXPECT_THAT(std::string(response.headers.get("content-type").value_or("")), HasSubstr("text/plain"));
  EXPECT_THAT(response.body, HasSubstr("pocketfleet_requests_total{route=\"/v1/classify\",status=\"200\"} 1"));
  EXPECT_THAT(response.body, HasSubstr("pocketfleet_read_seconds_count{route=\"/v1/classify\"} 1"));
}

}  // namespace
}  // namespace pocketfleet
