#include "relay/registry.h"

#include <gtest/gtest.h>

#include "relay/sources.h"
#include "tunnel/fake_link.h"

namespace pocketfleet::relay {
namespace {

class RegistryTest : public ::testing::Test {
 protected:
  std::shared_ptr<Member> member(const std::string& id) {
    return std::make_shared<Member>(id, std::make_shared<tunnel::FakeRelayLink>(context_.get_executor()));
  }
  boost::asio::io_context context_;
  RegistryLimits limits_;
};

TEST_F(RegistryTest, AnIdThatNobodyHasIsUnknown) {
  Registry registry(limits_);
  const auto choice = registry.choose("a", 0);
  EXPECT_EQ(choice.member, nullptr);
  EXPECT_EQ(choice.miss, Registry::Miss::kUnknown);
}

TEST_F(RegistryTest, TheLinkWithTheFewestUsersIsChosen) {
  Registry registry(limits_);
  const auto first = member("a");
  const auto second = member("a");
  ASSERT_TRUE(registry.join(first));
  ASSERT_TRUE(registry.join(second));
  first->ill = false;
  EXPECT_EQ(registry.choose("a", 0).member, second);  // the newest among equals
  EXPECT_EQ(registry.choose("a", 0).member, first);
  first->open = 0;
  EXPECT_EQ(registry.choose("a", 0).member, first);
  EXPECT_EQ(first->open, 1u);
}

TEST_F(RegistryTest, TheNewestProvenLinkWinsUntilTheOthersShowThatTheyLive) {
  Registry registry(limits_);
  const auto half_open = member("a");
  ASSERT_TRUE(registry.join(half_open));
  const auto fresh = member("a");
  const auto before = registry.join(fresh);
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(*before, std::vector{half_open});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(registry.choose("a", 0).member, fresh);
  half_open->ill = false;
  EXPECT_EQ(registry.choose("a", 0).member, half_open);
}

TEST_F(RegistryTest, ARetiredLinkTakesNobody) {
  Registry registry(limits_);
  const auto only = member("a");
  ASSERT_TRUE(registry.join(only));
  only->retired = true;
  EXPECT_EQ(registry.choose("a", 0).miss, Registry::Miss::kAway);
}

TEST_F(RegistryTest, AnIdWhoseLinksAreGoneIsAwayForAWhileAndThenUnknown) {
  limits_.remember_ms = 100'000;
  Registry registry(limits_);
  const auto only = member("a");
  ASSERT_TRUE(registry.join(only));
  registry.leave(only, 1'000);
  EXPECT_EQ(registry.choose("a", 90'000).miss, Registry::Miss::kAway);
  registry.choose("a", 200'000);  // forgets
  EXPECT_EQ(registry.choose("a", 200'000).miss, Registry::Miss::kUnknown);
  EXPECT_EQ(registry.links(), 0u);
}

TEST_F(RegistryTest, LimitsAreKept) {
  limits_.most_ids = 1;
  limits_.most_links_per_id = 2;
  limits_.most_users_per_id = 2;
  Registry registry(limits_);
  ASSERT_TRUE(registry.join(member("a")));
  ASSERT_TRUE(registry.join(member("a")));
  EXPECT_EQ(registry.join(member("a")).error().code, ErrorCode::kQueueFull);
  EXPECT_EQ(registry.join(member("b")).error().code, ErrorCode::kQueueFull);
  EXPECT_EQ(registry.expect_challenge(member("b"), "answer").error().code, ErrorCode::kQueueFull);
  EXPECT_NE(registry.choose("a", 0).member, nullptr);
  EXPECT_NE(registry.choose("a", 0).member, nullptr);
  EXPECT_EQ(registry.choose("a", 0).miss, Registry::Miss::kFull);
}

TEST_F(RegistryTest, WhileOneAgentOrdersACertificateOthersOfTheAddressAreTurnedAway) {
  Registry registry(limits_);
  const auto first = member("a");
  const auto second = member("a");
  ASSERT_TRUE(registry.expect_challenge(first, "answer"));
  const auto turned = registry.expect_challenge(second, "another answer");
  ASSERT_FALSE(turned);
  EXPECT_EQ(turned.error().message, tunnel::kOrderedElsewhere);
  EXPECT_EQ(registry.challenged("a"), first);
  EXPECT_TRUE(registry.expect_challenge(member("b"), "another answer"));
  registry.end_challenge(first);
  EXPECT_TRUE(registry.expect_challenge(second, "another answer"));
}

TEST_F(RegistryTest, TheNewestLinkThatWaitsForAChallengeGetsIt) {
  Registry registry(limits_);
  const auto first = member("a");
  const auto second = member("a");
  EXPECT_EQ(registry.challenged("a"), nullptr);
  ASSERT_TRUE(registry.expect_challenge(first, "answer"));
  ASSERT_TRUE(registry.expect_challenge(second, "answer"));
  EXPECT_EQ(registry.challenged("a"), second);
  registry.end_challenge(first);  // too late to matter
  EXPECT_EQ(registry.challenged("a"), second);
  registry.end_challenge(second);
  EXPECT_EQ(registry.challenged("a"), nullptr);
}

TEST(Sources, ConnectionsAtOnceAreLimitedForEachAddress) {
  Sources sources({.most_open = 2, .new_per_s = 0, .most_at_once = 0});
  EXPECT_TRUE(sources.admit("192.0.2.1", 0));
  EXPECT_TRUE(sources.admit("192.0.2.1", 0));
  EXPECT_FALSE(sources.admit("192.0.2.1", 0));
  EXPECT_TRUE(sources.admit("192.0.2.2", 0));
  sources.release("192.0.2.1");
  EXPECT_TRUE(sources.admit("192.0.2.1", 0));
}

TEST(Sources, NewConnectionsAreLimitedInTime) {
  Sources sources({.most_open = 0, .new_per_s = 10, .most_at_once = 3});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(sources.admit("192.0.2.1", 1'000));
  EXPECT_FALSE(sources.admit("192.0.2.1", 1'000));
  EXPECT_TRUE(sources.admit("192.0.2.1", 1'100));
  EXPECT_FALSE(sources.admit("192.0.2.1", 1'100));
}

TEST(Sources, OneNetworkOfIpv6IsOneSource) {
  EXPECT_EQ(source_of("2001:db8:1:2:3::4"), source_of("2001:db8:1:2:ffff::"));
  EXPECT_NE(source_of("2001:db8:1:2::"), source_of("2001:db8:1:3::"));
  EXPECT_EQ(source_of("192.0.2.1"), "192.0.2.1");
}

TEST(Sources, AddressesThatHaveGoneAreForgotten) {
  Sources sources({.most_open = 5, .new_per_s = 1, .most_at_once = 5});
  for (int i = 0; i < 100; ++i) {
    const std::string address = "192.0.2." + std::to_string(i);
    ASSERT_TRUE(sources.admit(address, 20'000));
    sources.release(address);
  }
  EXPECT_EQ(sources.known(), 100u);
  ASSERT_TRUE(sources.admit("198.51.100.1", 60'000));
  EXPECT_EQ(sources.known(), 1u);
}

}  // namespace
}  // namespace pocketfleet::relay
