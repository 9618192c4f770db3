#include "cli/classify_job.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

namespace pocketfleet::cli {
namespace {

namespace asio = boost::asio;
using Answer = Result<net::HttpResponse>;

net::HttpResponse refuse(int status, const std::string& message) {
  net::HttpResponse response;
  response.status = status;
  response.body = dump_json({{"error", {{"message", message}, {"code", "some_code"}}}});
  return response;
}

// Labels like a server: "bad" when the text holds "bad".
net::HttpResponse label_all(const Json& inputs) {
  net::HttpResponse response;
  Json data = Json::array();
  for (size_t index = 0; index < inputs.size(); ++index) {
    const bool bad = inputs[index].get<std::string>().find("bad") != std::string::npos;
    data.push_back({{"index", index}, {"label", bad ? "bad" : "good"}, {"flagged", bad}});
  }
  response.body =
      dump_json({{"data", data}, {"usage", {{"prompt_tokens", 10}, {"prompt_tokens_details", {{"cached_tokens", 4}}}}}});
  return response;
}

struct Scene {
  std::vector<Record> records;
  JobOptions options;
  std::function<Answer(const Json& inputs, int call)> server = [](const Json& inputs, int) { return label_all(inputs); };
  std::vector<size_t> sizes;  // of the requests that were sent
  Result<void> result;
  std::unique_ptr<Job> job;

  explicit Scene(size_t count) {
    for (size_t index = 0; index < count; ++index) records.push_back({index + 1, index % 3 == 0 ? "bad" : "fine", ""});
    options.first_pause_ms = 1;
    options.batch = 4;
    options.concurrency = 1;
  }
  void go() {
    asio::io_context context;
    job = std::make_unique<Job>(options, records, [this](std::string body) -> asio::awaitable<Answer> {
      const Json inputs = Json::parse(body)["input"];
      sizes.push_back(inputs.size());
      co_return server(inputs, static_cast<int>(sizes.size()));
    });
    asio::co_spawn(
        context, [this]() -> asio::awaitable<void> { result = co_await job->run(); }, [](std::exception_ptr) {});
    context.run();
  }
};

TEST(ClassifyJob, EveryRecordGetsItsOwnLabel) {
  for (const size_t concurrency : {1u, 3u, 50u}) {
    Scene run(10);
    run.options.concurrency = concurrency;
    run.go();
    ASSERT_TRUE(run.result);
    EXPECT_EQ(run.sizes.size(), 3u);
    EXPECT_EQ(run.job->done(), 10u);
    for (size_t index = 0; index < 10; ++index) {
      EXPECT_EQ(run.job->items()[index].label, index % 3 == 0 ? "bad" : "good");
      EXPECT_EQ(Json::parse(run.job->items()[index].line)["index"], index);
    }
    EXPECT_EQ(run.job->tokens_read(), 18u);
    EXPECT_EQ(run.job->tokens_reused(), 12u);
  }
}

TEST(ClassifyJob, ABusyServerIsAskedAgain) {
  Scene run(4);
  run.server = [](const Json& inputs, int call) -> Answer {
    if (call == 1) return refuse(429, "full");
    if (call == 2) return refuse(503, "loading");
    if (call == 3) return fail(ErrorCode::kConnectionClosed, "closed");
    return label_all(inputs);
  };
  run.options.batch = 4;
  run.go();
  // The third answer came while nothing had ever been answered, so a closed connection ends it.
  EXPECT_FALSE(run.result);
  Scene again(8);
  again.server = [](const Json& inputs, int call) -> Answer {
    if (call == 2) return refuse(429, "full");
    if (call == 3) return fail(ErrorCode::kConnectionClosed, "closed");
    return label_all(inputs);
  };
  again.go();
  EXPECT_TRUE(again.result);
  EXPECT_EQ(again.job->done(), 8u);
  EXPECT_EQ(again.job->failed(), 0u);
  EXPECT_EQ(again.job->retries(), 2u);
}

TEST(ClassifyJob, OneInputThatIsRefusedDoesNotTakeItsNeighboursWithIt) {
  Scene run(8);
  run.records[5].text = "too long";
  run.server = [](const Json& inputs, int) -> Answer {
    for (const Json& input : inputs) {
      if (input == "too long") return refuse(400, "too many tokens");
    }
    return label_all(inputs);
  };
  run.go();
  ASSERT_TRUE(run.result);
  EXPECT_EQ(run.job->done(), 8u);
  EXPECT_EQ(run.job->failed(), 1u);
  EXPECT_TRUE(run.job->items()[5].failed);
  EXPECT_NE(run.job->items()[5].line.find("too many tokens"), std::string::npos);
  EXPECT_EQ(run.job->items()[4].label, "good");
}

TEST(ClassifyJob, NobodyThereEndsTheJobAfterASecondTry) {
  Scene scene(100);
  scene.options.concurrency = 4;
  scene.server = [](const Json&, int) -> Answer { return fail(ErrorCode::kConnectionClosed, "refused"); };
  scene.go();
  ASSERT_FALSE(scene.result);
  EXPECT_EQ(scene.result.error().message, "refused");
  EXPECT_EQ(scene.sizes.size(), 8u);
  EXPECT_EQ(scene.job->done(), 0u);
  EXPECT_EQ(scene.job->failed(), 0u);
}

TEST(ClassifyJob, AWrongKeyEndsTheJobAtOnce) {
  Scene run(100);
  run.server = [](const Json&, int) -> Answer { return refuse(401, "the key is not known"); };
  run.go();
  ASSERT_FALSE(run.result);
  EXPECT_NE(run.result.error().message.find("the key is not known"), std::string::npos);
  EXPECT_EQ(run.sizes.size(), 1u);
}

TEST(ClassifyJob, AnAnswerThatIsNotOneIsAnErrorAndNothingElse) {
  for (const char* body :
       {"", "[]", "{}", R"({"data":[]})", R"({"data":[1,2,3,4]})", R"({"data":[{},{},{},{}]})",
        R"({"data":[{"index":9,"label":"a"},{"index":1,"label":"a"},{"index":2,"label":"a"},{"index":3,"label":"a"}]})",
        R"({"data":[{"index":0,"label":"a"},{"index":0,"label":"a"},{"index":2,"label":"a"},{"index":3,"label":"a"}]})",
        R"({"data":[{"index":0,"label":7},{"index":1,"label":"a"},{"index":2,"label":"a"},{"index":3,"label":"a"}]})"}) {
    Scene run(4);
    run.server = [body](const Json&, int) -> Answer {
      net::HttpResponse response;
      response.body = body;
      return response;
    };
    run.go();
    ASSERT_FALSE(run.result) << body;
    EXPECT_EQ(run.result.error().code, ErrorCode::kProtocol);
  }
}

}  // namespace
}  // namespace pocketfleet::cli
