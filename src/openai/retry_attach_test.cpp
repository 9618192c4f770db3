#include "openai/retry_attach.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace pocketfleet {
namespace {

namespace asio = boost::asio;

// Callers on one loop; the work goes on until it is told to end, or until nobody waits for it.
class RunningAnswersTest : public testing::Test {
 protected:
  struct Caller {
    net::HttpRequest request;
    std::optional<std::optional<RunningAnswers::Given>> got;
  };

  std::unique_ptr<Caller> call(int tries, const std::string& body, const std::string& key = "key", int64_t patience_ms = 0) {
    auto caller = std::make_unique<Caller>();
    caller->request.method = "POST";
    caller->request.path = "/v1/classify";
    caller->request.body = body;
    caller->request.headers.set("x-stainless-retry-count", std::to_string(tries));
    asio::co_spawn(context_, wait(*caller, key, patience_ms), [](std::exception_ptr) {});
    context_.poll();
    return caller;
  }

  asio::awaitable<void> wait(Caller& caller, std::string key, int64_t patience_ms) {
    RunningAnswers::Work work = [this](net::HttpRequest& request) { return do_work(request); };
    caller.got = co_await answers_.answer(caller.request, key, patience_ms, std::move(work));
  }

  asio::awaitable<RunningAnswers::Answer> do_work(net::HttpRequest& request) {
    ++begun_;
    RunningAnswers::Answer answer;
    asio::steady_timer timer(context_);
    while (!finish_ && !request.gone.cancelled()) {
      timer.expires_after(std::chrono::milliseconds(1));
      co_await timer.async_wait(asio::use_awaitable);
    }
    if (request.gone.cancelled()) ++ended_for_nobody_;
    answer.response.body = "answer to " + request.body;
    co_return answer;
  }

  void run_until(const std::function<bool()>& done) {
    while (!done()) ASSERT_GT(context_.run_one_for(std::chrono::seconds(20)), 0u);
  }

  FakeClock clock_;
  asio::io_context context_;
  RunningAnswers answers_{clock_, 50};
  bool finish_ = false;
  int begun_ = 0;
  int ended_for_nobody_ = 0;
};

TEST_F(RunningAnswersTest, ARetryGetsTheAnswerOfTheFirstTryAndNothingIsReadTwice) {
  const auto first = call(0, "a");
  const auto second = call(1, "a");
  EXPECT_EQ(begun_, 1);
  finish_ = true;
  run_until([&] { return first->got && second->got; });
  EXPECT_EQ(begun_, 1);
  EXPECT_FALSE((*first->got)->attached);
  EXPECT_TRUE((*second->got)->attached);
  EXPECT_EQ((*second->got)->answer.response.body, "answer to a");
  EXPECT_EQ(answers_.running(), 0u);
}

TEST_F(RunningAnswersTest, OnlyTheSameBodyOfTheSameCallerIsARetry) {
  const auto first = call(0, "a");
  const auto other_body = call(1, "b");
  const auto other_key = call(1, "a", "another");
  const auto meant_twice = call(0, "a");
  EXPECT_EQ(begun_, 4);
  finish_ = true;
  run_until([&] { return first->got && other_body->got && other_key->got && meant_twice->got; });
  EXPECT_FALSE((*meant_twice->got)->attached);
}

TEST_F(RunningAnswersTest, WorkThatACallerLeftBeforeHisTimeEndsAtOnce) {
  const auto caller = call(0, "a", "key", 60'000);
  caller->request.gone.cancel();
  run_until([&] { return caller->got && ended_for_nobody_ == 1; });
  EXPECT_FALSE(caller->got->has_value());
  run_until([&] { return answers_.running() == 0; });
}

TEST_F(RunningAnswersTest, WorkWhoseCallersTimeWasUpWaitsForHimToComeAgain) {
  const auto first = call(0, "a", "key", 60'000);
  clock_.advance_ms(59'500);
  first->request.gone.cancel();
  run_until([&] { return first->got.has_value(); });
  EXPECT_EQ(ended_for_nobody_, 0);
  const auto second = call(1, "a", "key", 60'000);
  finish_ = true;
  run_until([&] { return second->got.has_value(); });
  EXPECT_TRUE((*second->got)->attached);
  EXPECT_EQ(begun_, 1);
  EXPECT_EQ(ended_for_nobody_, 0);
}

TEST_F(RunningAnswersTest, AnAnswerThatCameBetweenTwoTriesIsKeptForTheNextOne) {
  const auto first = call(0, "a", "key", 1'000);
  first->request.gone.cancel();
  run_until([&] { return first->got.has_value(); });
  finish_ = true;
  const auto other = call(0, "b");
  run_until([&] { return other->got.has_value(); });
  const auto second = call(1, "a");
  run_until([&] { return second->got.has_value(); });
  EXPECT_TRUE((*second->got)->attached);
  EXPECT_EQ((*second->got)->answer.response.body, "answer to a");
  EXPECT_EQ(begun_, 2);
  // It is given out once, and forgotten when nobody comes.
  EXPECT_EQ(answers_.running(), 0u);
  finish_ = false;
  const auto third = call(0, "c", "key", 1'000);
  third->request.gone.cancel();
  run_until([&] { return third->got.has_value(); });
  finish_ = true;
  run_until([&] { return answers_.running() == 0; });
}

TEST_F(RunningAnswersTest, WorkForWhichNobodyComesAgainEnds) {
  const auto first = call(0, "a", "key", 60'000);
  clock_.advance_ms(60'000);
  first->request.gone.cancel();
  run_until([&] { return ended_for_nobody_ == 1; });
}

TEST(RunningAnswers, ACallerWhoLeavesWhenHisTimeIsUpOrAtAWholeSecondComesAgain) {
  EXPECT_TRUE(RunningAnswers::time_was_up(30'010, 30'999));
  EXPECT_FALSE(RunningAnswers::time_was_up(12'000, 30'000));
  EXPECT_TRUE(RunningAnswers::time_was_up(1'003, 0));
  EXPECT_TRUE(RunningAnswers::time_was_up(29'960, 0));
  EXPECT_TRUE(RunningAnswers::time_was_up(30'120, 0));
  EXPECT_FALSE(RunningAnswers::time_was_up(40, 0));
  EXPECT_FALSE(RunningAnswers::time_was_up(1'400, 0));
}

TEST(RunningAnswers, OnlyClientsThatCountTheirTriesAndDoNotStreamAreConcerned) {
  net::HttpRequest request;
  request.method = "POST";
  request.body = R"({"input": "a"})";
  EXPECT_FALSE(RunningAnswers::concerns(request));
  request.headers.set("x-stainless-retry-count", "soon");
  EXPECT_FALSE(RunningAnswers::concerns(request));
  request.headers.set("x-stainless-retry-count", "0");
  EXPECT_TRUE(RunningAnswers::concerns(request));
  request.body = R"({"stream" : true})";
  EXPECT_FALSE(RunningAnswers::concerns(request));
}

}  // namespace
}  // namespace pocketfleet
