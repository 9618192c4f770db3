#include "tunnel/certificate_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>

#include "base/clock.h"
#include "base/ids.h"
#include "crypto/certificate.h"
#include "net/net_test_util.h"
#include "tunnel/acme_test_util.h"

namespace pocketfleet::tunnel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int64_t kFiveMinutesMs = 5 * 60'000;

// A keeper on a thread of its own, and what it has told its owner.
class CertificateKeeperTest : public ::testing::Test {
 protected:
  using State = FakeAuthority::State;

  CertificateKeeperTest() {
    authority_.with([this](State& state) { state.chain = *make_self_signed_certificate(key_, kDomain, 90); });
  }
  ~CertificateKeeperTest() override {
    stop();
    // Before the loop that its timer belongs to.
    keeper_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void start() {
    AcmeOptions acme;
    acme.directory_url = authority_.url("/directory");
    acme.agree = true;
    acme.poll_ms = 2;
    CertificateHooks hooks;
    hooks.find = [this]() -> asio::awaitable<std::optional<std::string>> { co_return found_; };
    hooks.present = [this](std::shared_ptr<net::TlsContext> challenge, std::string key_auth) -> asio::awaitable<Result<void>> {
      tell((challenge ? "present " : "nothing ") + key_auth.substr(0, key_auth.find('.')));
      if (present_fails_) co_return fail(ErrorCode::kUnavailable, "nobody can be reached");
      co_return Result<void>();
    };
    hooks.withdraw = [this](bool certified) -> asio::awaitable<void> {
      tell(certified ? "withdraw, certified" : "withdraw");
      co_return;
    };
    hooks.on_chain = [this](const std::string& chain) -> Result<void> {
      tell(chain == authority_.with([](State& state) { return state.chain; }) ? "chain" : "another chain");
      if (chain_fails_) return fail(ErrorCode::kInvalidArgument, "the chain cannot be used");
      return {};
    };
    hooks.on_failure = [this](const Error& error, int64_t again_ms) {
      again_ms_ = again_ms;
      tell("failure: " + error.message);
    };
    keeper_ = std::make_unique<CertificateKeeper>(loop_.context().get_executor(), std::move(acme), store_, kDomain, key_,
                                                  std::move(hooks));
    running_ = asio::co_spawn(loop_.context(), keeper_->run(), asio::use_future);
  }
  void stop() {
    if (!running_.valid()) return;
    loop_.wait([this]() -> asio::awaitable<void> {
      keeper_->stop();
      co_return;
    }());
    running_.get();
  }
  void tell(std::string what) {
    const std::lock_guard lock(mutex_);
    told_.push_back(std::move(what));
  }
  std::vector<std::string> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  // Until so much has been told.
  std::vector<std::string> wait_for(size_t count) {
    EXPECT_TRUE(net::eventually([&] { return told().size() >= count; }));
    return told();
  }
  int calls(const std::string& path) {
    return authority_.with([&](State& state) { return state.calls[path]; });
  }
  static int64_t now_ms() { return SystemClock::instance().unix_ms(); }

  const std::string folder_ = (std::filesystem::temp_directory_path() / make_id("pf-keeper-")).string();
  const CertificateStore store_{folder_};
  const P256PrivateKey key_ = *P256PrivateKey::generate();
  std::optional<std::string> found_;  // with the others
  std::atomic<bool> present_fails_{false}, chain_fails_{false};
  std::atomic<int64_t> again_ms_{0};
  std::mutex mutex_;
  std::vector<std::string> told_;
  FakeAuthority authority_;
  std::unique_ptr<CertificateKeeper> keeper_;
  std::future<void> running_;
  net::TestLoop loop_{1};
};

TEST_F(CertificateKeeperTest, OrdersWhatIsMissingWhileTheChallengeIsShown) {
  start();
  EXPECT_THAT(wait_for(3), ElementsAre("present the-token_1", "chain", "withdraw, certified"));
  stop();
  EXPECT_TRUE(store_.chain(kDomain, key_, now_ms()));
  EXPECT_EQ(store_.account_url(*store_.account_key(), authority_.url("/directory")), authority_.url("/account/1"));
  EXPECT_EQ(authority_.with([](State& state) { return state.orders; }), 1);
}

TEST_F(CertificateKeeperTest, OrdersNothingWhileThereIsAChainThatLasts) {
  ASSERT_TRUE(store_.keep_chain(kDomain, *make_self_signed_certificate(key_, kDomain, 90)));
  start();
  EXPECT_TRUE(net::eventually([&] { return calls("/directory") > 0; }));
  stop();
  EXPECT_EQ(calls("/order"), 0);
  EXPECT_THAT(told(), IsEmpty());
}

TEST_F(CertificateKeeperTest, TakesTheChainOfOthersWithTheSameKeyAndOrdersNone) {
  found_ = *make_self_signed_certificate(key_, kDomain, 90);
  start();
  EXPECT_THAT(wait_for(1), ElementsAre("another chain"));
  EXPECT_TRUE(net::eventually([&] { return calls("/directory") > 0; }));
  stop();
  EXPECT_EQ(store_.chain(kDomain, key_, now_ms()), found_);
  EXPECT_EQ(calls("/order"), 0);
}

TEST_F(CertificateKeeperTest, TheChainOfAnotherKeyOrNameIsNoHelp) {
  for (const auto& chain : {*make_self_signed_certificate(*P256PrivateKey::generate(), kDomain, 90),
                            *make_self_signed_certificate(key_, "other.fleet.example", 90), std::string("no chain")}) {
    found_ = chain;
    const int before = authority_.with([](State& state) { return state.orders; });
    start();
    EXPECT_TRUE(net::eventually([&] { return store_.chain(kDomain, key_, now_ms()).has_value(); }));
    stop();
    EXPECT_EQ(authority_.with([](State& state) { return state.orders; }), before + 1);
    EXPECT_NE(store_.chain(kDomain, key_, now_ms()), found_);
    keeper_.reset();
    std::filesystem::remove_all(folder_);
  }
}

TEST_F(CertificateKeeperTest, WithAProofThatTheAuthorityRemembersNothingIsShown) {
  authority_.with([](State& state) { state.proven = true; });
  start();
  EXPECT_THAT(wait_for(1), ElementsAre("chain"));
}

TEST_F(CertificateKeeperTest, WhereNobodyCanShowTheChallengeItIsTriedAgainSoon) {
  present_fails_ = true;
  start();
  EXPECT_THAT(wait_for(2), ElementsAre("present the-token_1", "failure: nobody can be reached"));
  EXPECT_GE(again_ms_.load(), 5'000);
  EXPECT_LE(again_ms_.load(), 15'000);
  EXPECT_EQ(store_.next_attempt_ms(kDomain, now_ms()), 0);
}

TEST_F(CertificateKeeperTest, WhatTheAuthorityRefusesIsRememberedOverARestart) {
  authority_.with([](State& state) { state.proof_fault = "nobody was there"; });
  start();
  const auto first = wait_for(3);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[1], "withdraw");
  EXPECT_THAT(first[2], StartsWith("failure: "));
  EXPECT_GE(again_ms_.load(), kFiveMinutesMs);
  EXPECT_GT(store_.next_attempt_ms(kDomain, now_ms()), now_ms() + kFiveMinutesMs / 2);
  stop();
  const int asked = calls("/directory");
  start();
  stop();
  EXPECT_EQ(calls("/directory"), asked);
}

TEST_F(CertificateKeeperTest, AChainThatCannotBeUsedIsAFailure) {
  chain_fails_ = true;
  start();
  EXPECT_THAT(wait_for(4), ElementsAre("present the-token_1", "chain", "withdraw", "failure: the chain cannot be used"));
}

TEST_F(CertificateKeeperTest, AStateFolderThatCannotBeIsAFailureAndNotTheEnd) {
  std::filesystem::create_directories(folder_ + "/account.key");
  start();
  EXPECT_THAT(wait_for(1).front(), StartsWith("failure: "));
  EXPECT_EQ(running_.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(calls("/directory"), 0);
}

}  // namespace
}  // namespace pocketfleet::tunnel
