#include "openai/warm_up.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "engine/fake_engine.h"

namespace pocketfleet {
namespace {

Profile profile(const std::string& name) {
  auto parsed = parse_profile(Json{{"name", name}, {"instructions", "Say yes or no."}, {"labels", {"yes", "no"}}}.dump());
  EXPECT_TRUE(parsed) << parsed.error().message;
  return *parsed;
}

void run(WarmUp& warm_up) {
  boost::asio::io_context context;
  bool ended = false;
  boost::asio::co_spawn(context, warm_up.run(), [&](std::exception_ptr) { ended = true; });
  // The engine reports from a thread of its own.
  const auto guard = boost::asio::make_work_guard(context);
  while (!ended) context.run_one();
}

TEST(WarmUp, EveryProfileIsReadOnceBeforeItIsDone) {
  FakeEngine engine;
  ProfileSet profiles;
  ASSERT_TRUE(profiles.add(profile("first")));
  ASSERT_TRUE(profiles.add(profile("second")));
  WarmUp warm_up(engine, profiles, true);
  EXPECT_EQ(warm_up.progress()["progress"], 0.0);
  EXPECT_EQ(warm_up.progress()["phase"], "reading profile first");
  run(warm_up);
  EXPECT_TRUE(warm_up.progress().is_null());
}

TEST(WarmUp, AnEngineThatRefusesKeepsNothingBack) {
  FakeEngine engine;
  ProfileSet profiles;
  ASSERT_TRUE(profiles.add(profile("first")));
  engine.stop();
  WarmUp warm_up(engine, profiles, true);
  run(warm_up);
  EXPECT_TRUE(warm_up.progress().is_null());
}

TEST(WarmUp, WithoutProfilesThereIsNothingToWaitFor) {
  FakeEngine engine;
  ProfileSet profiles;
  EXPECT_TRUE(WarmUp(engine, profiles, true).progress().is_null());
  ASSERT_TRUE(profiles.add(profile("first")));
  EXPECT_TRUE(WarmUp(engine, profiles, false).progress().is_null());
}

}  // namespace
}  // namespace pocketfleet
