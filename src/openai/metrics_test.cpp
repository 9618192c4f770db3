#include "openai/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/fake_engine.h"

namespace pocketfleet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, RequestsAreCountedByRouteAndStatusAndTimesAreKept) {
  Metrics metrics;
  RequestRecord record;
  record.route = "/v1/classify";
  record.status = 200;
  record.usage = Usage{.prompt_tokens = 30, .cached_tokens = 20, .written_tokens = 0, .wait_ms = 3, .read_ms = 40, .write_ms = 0};
  record.total_ms = 45;
  metrics.observe(record);
  metrics.observe(record);
  record.status = 499;
  record.usage.reset();
  metrics.observe(record);

  FakeEngine engine;
  const std::string text = metrics.render(engine);
  EXPECT_THAT(text, HasSubstr("pocketfleet_requests_total{route=\"/v1/classify\",status=\"200\"} 2"));
  EXPECT_THAT(text, HasSubstr("pocketfleet_requests_total{route=\"/v1/classify\",status=\"499\"} 1"));
  EXPECT_THAT(text, HasSubstr("pocketfleet_gone_callers_total{route=\"/v1/classify\"} 1"));
  EXPECT_THAT(text, HasSubstr("pocketfleet_request_seconds_count{route=\"/v1/classify\"} 3"));
  EXPECT_THAT(text, HasSubstr("pocketfleet_read_seconds_bucket{route=\"/v1/classify\",le=\"0.025\"} 0"));
  EXPECT_THAT(text, HasSubstr("pocketfleet_read_seconds_bucket{route=\"/v1/classify\",le=\"0.05\"} 2"));
  EXPECT_THAT(text, HasSubstr("pocketfleet_ready 1"));
  for (const char* name :
       {"pocketfleet_tokens_read_total", "pocketfleet_tokens_reused_total", "pocketfleet_tokens_written_total",
        "pocketfleet_running", "pocketfleet_queued", "pocketfleet_checkpoints", "pocketfleet_rejected_total"}) {
    EXPECT_THAT(text, HasSubstr(std::string("# HELP ") + name + " ")) << name;
  }
}

TEST(RequestLog, ASaneRequestIdOfTheCallerIsKeptAndAnyOtherReplaced) {
  EXPECT_EQ(choose_request_id("job-7.line_12"), "job-7.line_12");
  EXPECT_EQ(choose_request_id(std::string(128, 'a')), std::string(128, 'a'));
  for (const std::string& id :
       {std::string(), std::string(129, 'a'), std::string("a b"), std::string("a\r\nx: y"), std::string("\xC3\xA9")}) {
    EXPECT_THAT(choose_request_id(id), ::testing::StartsWith("req_"));
  }
  EXPECT_NE(choose_request_id(std::nullopt), choose_request_id(std::nullopt));
}

}  // namespace
}  // namespace pocketfleet
