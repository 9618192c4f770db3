#include "tunnel/acme.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "crypto/base64.h"
#include "crypto/certificate.h"
#include "crypto/digest.h"
#include "net/net_test_util.h"
#include "tunnel/acme_test_util.h"

namespace pocketfleet::tunnel {
namespace {

constexpr int64_t kTimeoutMs = 10'000;

class AcmeTest : public ::testing::Test {
 protected:
  using State = FakeAuthority::State;

  AcmeOptions options() const {
    AcmeOptions out;
    out.directory_url = authority_.url("/directory");
    out.contact = "someone@example.org";
    out.agree = true;
    out.poll_ms = 2;
    return out;
  }
  Result<AcmeOrder> begin(AcmeClient& client, int64_t timeout_ms = kTimeoutMs) {
    return loop_.wait(client.begin({kDomain}, timeout_ms));
  }
  Result<std::string> finish(AcmeClient& client, const AcmeOrder& order, int64_t timeout_ms = kTimeoutMs) {
    return loop_.wait(client.finish(order, csr_, timeout_ms));
  }
  Result<std::string> issue(AcmeClient& client, int64_t timeout_ms = kTimeoutMs) {
    PF_TRY(const AcmeOrder order, begin(client, timeout_ms));
    return finish(client, order, timeout_ms);
  }
  void expect_no_faults() {
    authority_.with([](State& state) {
      for (const std::string& fault : state.faults) ADD_FAILURE() << fault;
    });
  }
  void can(const std::string& path, Reply reply) {
    authority_.with([&](State& state) { state.canned[path].push_back(std::move(reply)); });
  }
  int calls(const std::string& path) {
    return authority_.with([&](State& state) { return state.calls[path]; });
  }

  FakeAuthority authority_;
  net::TestLoop loop_{1};
  const P256PrivateKey key_ = *P256PrivateKey::generate();
  const std::string csr_ = *make_certificate_request(*P256PrivateKey::generate(), {kDomain});
};

TEST_F(AcmeTest, AnOrderEndsInItsCertificate) {
  AcmeClient client(options(), key_, "");
  EXPECT_EQ(client.account_url(), "");
  const auto order = begin(client);
  ASSERT_TRUE(order) << order.error().message;
  EXPECT_EQ(order->domain, kDomain);
  EXPECT_EQ(order->url, authority_.url("/order/1"));
  EXPECT_EQ(client.account_url(), authority_.url("/account/1"));
  // The key authorization from what the authority was told of the key.
  const Json jwk = authority_.with([](State& state) { return state.accounts.begin()->second; });
  const Sha256 digest = sha256(
      fmt::format(R"({{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}})", jwk["x"].get<std::string>(), jwk["y"].get<std::string>()));
  EXPECT_EQ(order->key_authorization,
            "the-token_1." + to_base64url(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size())));
  EXPECT_EQ(authority_.with([](State& state) { return state.challenges; }), 0);

  const auto chain = finish(client, *order);
  ASSERT_TRUE(chain) << chain.error().message;
  authority_.with([&](State& state) {
    EXPECT_EQ(*chain, state.chain);
    EXPECT_EQ(state.payloads["/finalize/1"], std::vector<std::string>{"{\"csr\":\"" + to_base64url(csr_) + "\"}"});
    EXPECT_EQ(*parse_json(state.payloads["/account"].front()),
              (Json{{"termsOfServiceAgreed", true}, {"contact", Json::array({"mailto:someone@example.org"})}}));
    EXPECT_EQ(state.calls["/nonce"], 1);
    EXPECT_EQ(state.challenges, 1);
  });
  expect_no_faults();
}

// C-90, C-91.
TEST_F(AcmeTest, ANonceThatIsRefusedAtAnyStepMeansTheSameRequestAgain) {
  for (const char* path : {"/account", "/order", "/authz/1", "/challenge/1", "/order/1", "/finalize/1", "/cert/1"}) {
    for (const bool bring : {true, false}) {
      const auto before = authority_.with([&](State& state) {
        state.payloads.clear();
        state.accounts.clear();
        state.challenged = false;
        state.refused_nonces[path] = 3;
        state.refusals_bring_nonces = bring;
        return state;
      });
      AcmeClient client(options(), key_, "");
      const auto chain = issue(client);
      ASSERT_TRUE(chain) << path << ": " << chain.error().message;
      authority_.with([&](State& state) {
        const auto& sent = state.payloads[path];
        ASSERT_GE(sent.size(), 4u) << path;
        for (int i = 1; i < 4; ++i) EXPECT_EQ(sent[i], sent[0]) << path;
        EXPECT_EQ(state.refused_nonces[path], 0);
        EXPECT_EQ(state.made_accounts, before.made_accounts + 1);
        EXPECT_EQ(state.orders, before.orders + 1);
        EXPECT_EQ(state.challenges, before.challenges + 1);
        EXPECT_EQ(state.certificates, before.certificates + 1);
      });
    }
  }
  expect_no_faults();
}

TEST_F(AcmeTest, NoncesThatAreRefusedForEverAreGivenUp) {
  authority_.with([](State& state) { state.refused_nonces["/order"] = 1'000; });
  AcmeClient client(options(), key_, "");
  const auto order = begin(client);
  ASSERT_FALSE(order);
  EXPECT_EQ(order.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(calls("/order"), 10);
}

TEST_F(AcmeTest, ANonceFromLongAgoIsReplaced) {
  AcmeClient client(options(), key_, "");
  ASSERT_TRUE(issue(client));
  authority_.with([](State& state) {
    state.nonces.clear();
    state.challenged = false;
  });
  const auto chain = issue(client);
  ASSERT_TRUE(chain) << chain.error().message;
  EXPECT_EQ(authority_.with([](State& state) { return state.orders; }), 2);
  expect_no_faults();
}

TEST_F(AcmeTest, WhenToComeBackIsTheCallersToKnow) {
  struct Case {
    int status;
    const char* kind;
    const char* retry_after;
    int expected_s;
  };
  for (const char* path : {"/account", "/order", "/challenge/1", "/finalize/1", "/cert/1", "/authz/1"}) {
    for (const Case& one :
         {Case{429, "rateLimited", "3600", 3'600}, Case{403, "rateLimited", "7", 7}, Case{503, "serverInternal", "120", 120},
          Case{429, "rateLimited", "", 0}, Case{500, "serverInternal", "soon", 0}}) {
      authority_.with([](State& state) {
        state.accounts.clear();
        state.challenged = false;
      });
      Reply reply = reply_problem(one.status, one.kind, "too many certificates already");
      if (*one.retry_after != '\0') reply.response.headers.add("retry-after", one.retry_after);
      can(path, reply);
      AcmeClient client(options(), key_, "");
      const auto chain = issue(client);
      ASSERT_FALSE(chain) << path;
      EXPECT_EQ(chain.error().code, ErrorCode::kUnavailable) << path << one.status;
      EXPECT_EQ(chain.error().retry_after_s, one.expected_s) << path << one.status;
      EXPECT_NE(chain.error().message.find("urn:ietf:params:acme:error:" + std::string(one.kind)), std::string::npos);
      EXPECT_NE(chain.error().message.find("too many certificates already"), std::string::npos) << chain.error().message;
    }
  }
  expect_no_faults();
}

TEST_F(AcmeTest, AProofThatFailsSaysWhatTheAuthoritySaw) {
  authority_.with([](State& state) {
    state.proof_fault = "Cannot negotiate ALPN protocol \"acme-tls/1\"";
    state.authorization_looks = 3;
  });
  AcmeClient client(options(), key_, "");
  const auto chain = issue(client);
  ASSERT_FALSE(chain);
  EXPECT_EQ(chain.error().code, ErrorCode::kPermissionDenied);
  EXPECT_NE(chain.error().message.find("urn:ietf:params:acme:error:tls: Cannot negotiate ALPN protocol"), std::string::npos)
      << chain.error().message;
  EXPECT_NE(chain.error().message.find(kDomain), std::string::npos);
  EXPECT_EQ(calls("/finalize/1"), 0);
  // A later order finds a proof that failed already.
  authority_.with([](State& state) { state.challenged = true; });
  const auto again = begin(client);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kPermissionDenied);
  expect_no_faults();
}

TEST_F(AcmeTest, AnOrderThatGoesBadIsGivenUp) {
  AcmeClient client(options(), key_, "");
  const auto order = begin(client);
  ASSERT_TRUE(order) << order.error().message;
  can("/order/1", reply_json(200, {{"status", "invalid"}, {"error", {{"type", "urn:x"}, {"detail", "the order has gone bad"}}}}));
  const auto chain = finish(client, *order);
  ASSERT_FALSE(chain);
  EXPECT_EQ(chain.error().code, ErrorCode::kPermissionDenied);
  EXPECT_NE(chain.error().message.find("urn:x: the order has gone bad"), std::string::npos) << chain.error().message;
}

TEST_F(AcmeTest, SlowAuthoritiesAreWaitedFor) {
  authority_.with([](State& state) {
    state.authorization_looks = 3;
    state.order_looks = 3;
    state.not_ready = 2;
  });
  AcmeClient client(options(), key_, "");
  const auto chain = issue(client);
  ASSERT_TRUE(chain) << chain.error().message;
  authority_.with([](State& state) {
    EXPECT_EQ(state.challenges, 1);
    EXPECT_EQ(state.payloads["/finalize/1"].size(), 3u);
    EXPECT_EQ(state.certificates, 1);
  });
  expect_no_faults();
}

TEST_F(AcmeTest, WaitingEndsAtTheDeadline) {
  authority_.with([](State& state) { state.authorization_looks = 1'000'000; });
  AcmeClient client(options(), key_, "");
  const auto order = begin(client);
  ASSERT_TRUE(order) << order.error().message;
  const int64_t start_ms = SystemClock::instance().now_ms();
  const auto chain = finish(client, *order, 150);
  ASSERT_FALSE(chain);
  EXPECT_EQ(chain.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_LT(SystemClock::instance().now_ms() - start_ms, 5'000);
  EXPECT_GT(calls("/authz/1"), 2);
  // Where it asks for more time than there is, there is no use in waiting.
  authority_.with([](State& state) { state.authorization_looks = 1; });
  Reply patient = reply_json(200, {{"status", "pending"}, {"identifier", {{"type", "dns"}, {"value", kDomain}}}});
  patient.response.headers.add("retry-after", "120");
  can("/authz/1", patient);
  const auto later = finish(client, *order, 60'000);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(later.error().retry_after_s, 120);
  EXPECT_LT(SystemClock::instance().now_ms() - start_ms, 30'000);
}

TEST_F(AcmeTest, ALostAnswerIsAskedForAgain) {
  for (const char* path : {"/authz/1", "/challenge/1", "/order/1", "/finalize/1", "/cert/1"}) {
    authority_.with([](State& state) { state.challenged = false; });
    can(path, cut_reply());
    AcmeClient client(options(), key_, "");
    const auto chain = issue(client);
    ASSERT_TRUE(chain) << path << ": " << chain.error().message;
  }
  expect_no_faults();
  // A lost order is not made twice behind the caller's back.
  can("/order", cut_reply());
  AcmeClient client(options(), key_, "");
  EXPECT_FALSE(begin(client));
}

TEST_F(AcmeTest, AnAccountThatTheAuthorityForgotIsMadeAnew) {
  AcmeClient client(options(), key_, authority_.url("/account/of-old"));
  const auto chain = issue(client);
  ASSERT_TRUE(chain) << chain.error().message;
  EXPECT_EQ(client.account_url(), authority_.url("/account/1"));
  EXPECT_EQ(calls("/account"), 1);
  authority_.with([](State& state) {
    state.accounts.clear();
    state.challenged = false;
  });
  ASSERT_TRUE(issue(client));
  EXPECT_EQ(client.account_url(), authority_.url("/account/2"));
  expect_no_faults();
}

TEST_F(AcmeTest, AnAccountThatIsKnownIsUsed) {
  std::string url;
  {
    AcmeClient client(options(), key_, "");
    ASSERT_TRUE(issue(client));
    url = client.account_url();
  }
  authority_.with([](State& state) { state.challenged = false; });
  AcmeClient known(options(), key_, url);
  ASSERT_TRUE(issue(known));
  EXPECT_EQ(calls("/account"), 1);
  // Without its URL it is found by its key.
  authority_.with([](State& state) { state.challenged = false; });
  AcmeClient forgetful(options(), key_, "");
  ASSERT_TRUE(issue(forgetful));
  EXPECT_EQ(forgetful.account_url(), url);
  EXPECT_EQ(authority_.with([](State& state) { return state.made_accounts; }), 1);
  expect_no_faults();
}

TEST_F(AcmeTest, WithoutAgreementThereIsNoAccount) {
  authority_.with([](State& state) { state.meta["termsOfService"] = "https://ca.example/terms"; });
  AcmeOptions reserved = options();
  reserved.agree = false;
  AcmeClient client(reserved, key_, "");
  const auto order = begin(client);
  ASSERT_FALSE(order);
  EXPECT_EQ(order.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(order.error().message.find("https://ca.example/terms"), std::string::npos);
  EXPECT_EQ(calls("/account"), 0);

  authority_.with([](State& state) { state.meta["externalAccountRequired"] = true; });
  AcmeClient bound(options(), key_, "");
  EXPECT_EQ(begin(bound).error().code, ErrorCode::kUnsupportedParameter);
}

TEST_F(AcmeTest, AProofThatIsRememberedIsNotAskedForAgain) {
  authority_.with([](State& state) { state.proven = true; });
  AcmeClient client(options(), key_, "");
  const auto order = begin(client);
  ASSERT_TRUE(order) << order.error().message;
  EXPECT_EQ(order->key_authorization, "");
  EXPECT_EQ(order->domain, kDomain);
  ASSERT_TRUE(finish(client, *order));
  EXPECT_EQ(calls("/challenge/1"), 0);
  expect_no_faults();
}

TEST_F(AcmeTest, ChallengesOfOtherKindsAreNoUse) {
  authority_.with([](State& state) { state.challenge_type = "dns-01"; });
  AcmeClient client(options(), key_, "");
  const auto order = begin(client);
  ASSERT_FALSE(order);
  EXPECT_EQ(order.error().code, ErrorCode::kUnsupportedParameter);
}

TEST_F(AcmeTest, AnswersThatMakeNoSenseAreErrors) {
  const std::string chain = authority_.with([](State& state) { return state.chain; });
  Reply elsewhere = reply_json(201, {{"status", "pending"}, {"finalize", authority_.url("/finalize/1")}});
  elsewhere.response.headers.add("location", "http://ca.example/order/1");
  const std::vector<std::pair<std::string, Reply>> cases = {
      {"/directory", reply_text("")},
      {"/directory", reply_text("[]")},
      {"/directory", reply_text("{\"newNonce\":7}")},
      {"/directory", reply_text(std::string(100'000, '['))},
      {"/directory", reply_text(std::string(300'000, ' ') + "{}")},
      {"/account", reply_json(201, {{"status", "valid"}})},
      {"/order", reply_json(201, {{"status", "pending"}})},
      {"/order", reply_text("{")},
      {"/order", elsewhere},
      {"/authz/1", reply_text("\xff")},
      {"/authz/1", reply_json(200, Json::array())},
      {"/authz/1", reply_json(200, {{"status", "pending"}, {"identifier", {{"type", "dns"}, {"value", "other.example"}}}})},
      {"/authz/1", reply_json(200, {{"status", "pending"},
                                    {"identifier", {{"type", "dns"}, {"value", kDomain}}},
                                    {"challenges", Json::array({{{"type", "tls-alpn-01"}, {"url", "x"}, {"token", "../x"}}})}})},
      {"/challenge/1", reply_json(302, Json::object())},
      {"/order/1", reply_json(200, {{"status", "odd"}})},
      {"/order/1", reply_json(200, {{"status", "valid"}})},
      {"/order/1", reply_json(200, {{"status", "valid"}, {"certificate", "ftp://127.0.0.1/cert"}})},
      {"/finalize/1", reply_problem(400, "badCSR", "the request is no good")},
      {"/finalize/1", reply_text("null")},
      {"/cert/1", reply_text("no certificate")},
      {"/cert/1", reply_text(chain + *key_.to_pem())},
      {"/cert/1", reply_text(chain + std::string(300'000, '\n'))},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    authority_.with([](State& state) {
      state.accounts.clear();
      state.challenged = false;
    });
    can(cases[i].first, cases[i].second);
    AcmeClient client(options(), key_, "");
    const auto got = issue(client);
    ASSERT_FALSE(got) << i;
    EXPECT_EQ(got.error().code, ErrorCode::kProtocol) << i << ": " << got.error().message;
    EXPECT_LT(got.error().message.size(), 2'000u);
  }
  expect_no_faults();
}

TEST_F(AcmeTest, OnlyHttpsLeavesTheMachine) {
  for (const char* url :
       {"http://ca.example/directory", "http://192.0.2.1/directory", "unix:/run/ca:/directory", "ftp://x/", ""}) {
    AcmeOptions wrong = options();
    wrong.directory_url = url;
    AcmeClient client(wrong, key_, "");
    const auto order = begin(client);
    ASSERT_FALSE(order) << url;
    EXPECT_EQ(order.error().code, ErrorCode::kInvalidArgument) << url;
  }
  authority_.with([](State& state) { state.new_order_url = "http://ca.example/order"; });
  AcmeClient client(options(), key_, "");
  const auto order = begin(client);
  ASSERT_FALSE(order);
  EXPECT_EQ(order.error().code, ErrorCode::kProtocol) << order.error().message;

  AcmeOptions lost = options();
  lost.directory_url = "https://ca.example/directory";
  lost.ca_file = "/no/such/file.pem";
  AcmeClient without(lost, key_, "");
  EXPECT_FALSE(begin(without));
}

TEST_F(AcmeTest, WhatIsNoNameIsNotOrdered) {
  AcmeClient client(options(), key_, "");
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{}, std::vector<std::string>{""}, std::vector<std::string>{"*.example.org"},
        std::vector<std::string>{"a.example", "B.example"}, std::vector<std::string>(101, "a.example")}) {
    const auto order = loop_.wait(client.begin(names, kTimeoutMs));
    ASSERT_FALSE(order);
    EXPECT_EQ(order.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(calls("/directory"), 0);
}

TEST_F(AcmeTest, AnAuthorityThatIsNotThereIsAnErrorOfTheNetwork) {
  AcmeOptions nowhere = options();
  nowhere.directory_url = "http://127.0.0.1:1/directory";
  AcmeClient client(nowhere, key_, "");
  const auto order = begin(client);
  ASSERT_FALSE(order);
  EXPECT_NE(order.error().message.find("http://127.0.0.1:1/directory"), std::string::npos);
}

TEST_F(AcmeTest, RenewalInformationIsReadWhereThereIsSome) {
  AcmeClient client(options(), key_, "");
  auto window = loop_.wait(client.renewal_window(kRfcExample));
  ASSERT_TRUE(window) << window.error().message;
  EXPECT_FALSE(window->has_value());

  authority_.with([](State& state) { state.tells_renewal = true; });
  const std::string path = std::string("/renewal/") + kRfcExampleId;
  AcmeClient asking(options(), key_, "");
  window = loop_.wait(asking.renewal_window(kRfcExample));
  ASSERT_TRUE(window) << window.error().message;
  ASSERT_TRUE(window->has_value());
  EXPECT_EQ((*window)->start_ms, 1'767'312'000'000);
  EXPECT_EQ((*window)->end_ms, 1'767'312'000'000 + 86'400'000);
  EXPECT_EQ(calls(path), 1);

  // A certificate that does not name its authority's key cannot be asked about.
  const std::string plain = *make_agent_certificate(key_, "");
  window = loop_.wait(asking.renewal_window(plain));
  ASSERT_TRUE(window);
  EXPECT_FALSE(window->has_value());

  for (const char* body : {"{}", "{\"suggestedWindow\":{\"start\":\"2026-01-02T00:00:00Z\"}}",
                           "{\"suggestedWindow\":{\"start\":\"2026-01-02T00:00:00Z\",\"end\":\"2026-01-01T00:00:00Z\"}}"}) {
    can(path, reply_text(body));
    window = loop_.wait(asking.renewal_window(kRfcExample));
    ASSERT_FALSE(window) << body;
    EXPECT_EQ(window.error().code, ErrorCode::kProtocol);
  }
  EXPECT_EQ(loop_.wait(asking.renewal_window("x")).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(AcmeTest, ACallThatRunsOutlivesItsClient) {
  auto client = std::make_unique<AcmeClient>(options(), key_, "");
  authority_.with([](State& state) { state.authorization_looks = 10; });
  const auto order = begin(*client);
  ASSERT_TRUE(order) << order.error().message;
  auto running = asio::co_spawn(loop_.context(), client->finish(*order, csr_, kTimeoutMs), asio::use_future);
  ASSERT_TRUE(net::eventually([&] { return calls("/authz/1") > 2; }));
  client.reset();
  const auto chain = running.get();
  EXPECT_TRUE(chain) << chain.error().message;
}

// C-91: renewal by ARI, and by two thirds of life.
TEST(RenewalTime, IsInTheWindowOrAtTwoThirdsOfTheLife) {
  CertificateInfo info;
  info.not_before_ms = 1'000'000;
  info.not_after_ms = 1'000'000 + 90 * 86'400'000ll;
  const int64_t life_ms = info.not_after_ms - info.not_before_ms;
  EXPECT_EQ(renewal_time_ms(info, std::nullopt, 0), info.not_before_ms + life_ms / 3 * 2);
  for (const uint32_t jitter : {1u, 77u, 0x8000'0000u, 0xffff'ffffu}) {
    const int64_t at_ms = renewal_time_ms(info, std::nullopt, jitter);
    EXPECT_LE(at_ms, info.not_before_ms + life_ms / 3 * 2);
    EXPECT_GE(at_ms, info.not_before_ms + life_ms / 3 * 2 - life_ms / 50);
    EXPECT_EQ(renewal_time_ms(info, std::nullopt, jitter), at_ms);
  }
  RenewalWindow window;
  window.start_ms = info.not_before_ms + life_ms / 2;
  window.end_ms = window.start_ms + 1'000'000;
  EXPECT_EQ(renewal_time_ms(info, window, 0), window.start_ms);
  EXPECT_EQ(renewal_time_ms(info, window, 0x8000'0000u), window.start_ms + 500'000);
  EXPECT_LT(renewal_time_ms(info, window, 0xffff'ffffu), window.end_ms);
  // Revoked: at once.
  window.start_ms = 5;
  window.end_ms = 5;
  EXPECT_EQ(renewal_time_ms(info, window, 9), 5);
  // A window after the end is not waited for.
  window.start_ms = info.not_after_ms + 1;
  window.end_ms = window.start_ms;
  EXPECT_EQ(renewal_time_ms(info, window, 9), info.not_after_ms - life_ms / 10);
}

}  // namespace
}  // namespace pocketfleet::tunnel
