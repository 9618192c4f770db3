#include "tunnel/h2_link.h"

#include <gtest/gtest.h>

#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "net/sockets.h"
#include "tunnel/link_test_util.h"

namespace pocketfleet::tunnel {
namespace {

// Both ends of a link over a pair of sockets, and the loop that they run on.
class H2LinkTest : public LinkTest {
 protected:
  H2LinkTest() {
    net::TlsOptions server;
    server.certificate_chain_pem = certificate_;
    server.private_key_pem = key_pem_;
    server.client_certificate = net::TlsOptions::ClientCertificate::kAny;
    server_ = *net::TlsContext::server(server);
    net::TlsOptions client = server;
    client.verify_server = false;
    client_ = *net::TlsContext::client(client);
  }

  asio::awaitable<Pair> connect(H2Options options = {}) {
    asio::local::stream_protocol::socket a(context_), b(context_);
    asio::local::connect_pair(a, b);
    auto relay_side = net::make_socket_stream(std::move(a), "agent");
    auto agent_side = net::make_socket_stream(std::move(b), "relay");
    std::shared_ptr<AgentLink> agent;
    std::shared_ptr<RelayLink> relay;
    asio::steady_timer both(context_, std::chrono::seconds(10));
    asio::co_spawn(
        context_,
        [&]() -> asio::awaitable<void> {
          auto tls = co_await net::TlsContext::connect(client_, std::move(agent_side), "agent", 5'000);
          EXPECT_TRUE(tls) << tls.error().message;
          if (tls) agent = *make_h2_agent_link(std::move(*tls), options);
          both.cancel();
        },
        asio::detached);
    auto tls = co_await net::TlsContext::accept(server_, std::move(relay_side), 5'000);
    EXPECT_TRUE(tls) << tls.error().message;
    relay = *make_h2_relay_link(std::move(*tls), options);
    boost::system::error_code ignored;
    if (!agent) co_await both.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    co_return Pair(relay, agent);
  }

  std::shared_ptr<net::TlsContext> server_, client_;
};

TEST_F(H2LinkTest, AnAgentProvesItsDomainOnThisConnection) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    EXPECT_EQ(relay->facts().binding, agent->facts().binding);
    auto introduced = introduce(agent);
    const auto hello = co_await relay->receive_hello(5'000);
    EXPECT_TRUE(hello) << hello.error().message;
    if (!hello) co_return;
    EXPECT_EQ(hello->domain, domain_);
    EXPECT_TRUE(hello->bound);
    EXPECT_EQ(hello->key_auth, "");
    EXPECT_TRUE(check_proof(hello->domain, hello->proof, relay->facts().binding));
    EXPECT_FALSE(check_proof(hello->domain, hello->proof, std::string(32, 'x'))) << "a proof of another connection";
    EXPECT_EQ(inspect_certificate_der(relay->facts().peer_certificate)->tunnel_extension, "twelve bytes");
    EXPECT_FALSE(introduced->result) << "not before the relay confirms";
    EXPECT_TRUE(co_await relay->confirm(5'000));
    EXPECT_TRUE(co_await end_of(introduced));
  }());
}

TEST_F(H2LinkTest, StreamsCarryBytesBothWaysAndEndOneWayAtATime) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    auto opened = co_await relay->open(StreamKind::kUser, 5'000);
    EXPECT_TRUE(opened);
    std::unique_ptr<net::Stream> user = std::move(*opened);
    EXPECT_TRUE(co_await user->write("question", 5'000));
    co_await user->shutdown(1'000);
    auto taken = co_await agent->accept();
    EXPECT_TRUE(taken);
    EXPECT_EQ(taken->kind, StreamKind::kUser);
    char buffer[64];
    std::string text;
    for (;;) {
      const auto count = co_await taken->stream->read_some(buffer, sizeof buffer, 5'000);
      if (!count || *count == 0) break;
      text.append(buffer, *count);
    }
    EXPECT_EQ(text, "question");
    EXPECT_TRUE(co_await taken->stream->write("answer", 5'000));
    co_await taken->stream->shutdown(1'000);
    taken->stream.reset();  // what was written before still arrives
    text.clear();
    for (;;) {
      const auto count = co_await user->read_some(buffer, sizeof buffer, 5'000);
      EXPECT_TRUE(count) << count.error().message;
      if (!count || *count == 0) break;
      text.append(buffer, *count);
    }
    EXPECT_EQ(text, "answer");
  }());
}

TEST_F(H2LinkTest, ASlowReaderStallsNobodyElse) {
  run([this]() -> asio::awaitable<void> {
    H2Options options;
    options.stream_window_bytes = 64u << 10;
    auto [relay, agent] = co_await connect(options);
    auto slow = co_await relay->open(StreamKind::kUser, 5'000);
    auto slow_end = co_await agent->accept();
    const std::string much(1u << 20, 'x');
    // Far more than the window: this write can end only when somebody reads.
    const auto stalled = co_await (*slow)->write(much, 200);
    EXPECT_FALSE(stalled);
    if (!stalled) {
      EXPECT_EQ(stalled.error().code, ErrorCode::kDeadlineExceeded);
    }
    auto quick = co_await relay->open(StreamKind::kUser, 5'000);
    auto quick_end = co_await agent->accept();
    EXPECT_TRUE(co_await (*quick)->write("now", 5'000));
    char buffer[8];
    const auto count = co_await quick_end->stream->read_some(buffer, sizeof buffer, 5'000);
    EXPECT_TRUE(count);
    EXPECT_EQ(std::string(buffer, count.value_or(0)), "now");
  }());
}

TEST_F(H2LinkTest, ReadersTogetherHoldNoMoreThanTheLimitAndTheWindow) {
  run([this]() -> asio::awaitable<void> {
    H2Options options;
    options.most_unread_bytes = 1u << 20;
    auto [relay, agent] = co_await connect(options);
    constexpr size_t kWindows = 17;  // the limit, and what the connection's own window lets through, in MiB
    const std::string much(1u << 20, 'x');
    std::vector<std::unique_ptr<net::Stream>> ends, taken;
    size_t written = 0;
    while (ends.size() < 2 * kWindows && written == ends.size()) {
      auto end = co_await relay->open(StreamKind::kUser, 5'000);
      ends.push_back(std::move(*end));
      auto incoming = co_await agent->accept();
      taken.push_back(std::move(incoming->stream));
      if (co_await ends.back()->write(much, 300)) ++written;
    }
    EXPECT_GE(written, kWindows - 1);
    EXPECT_LE(written, kWindows + 1);  // 64 KiB of each wait at the writer's end
    // What is read or let go of makes room for others.
    std::string buffer(much.size(), '\0');
    size_t got = 0;
    while (got < much.size()) got += *co_await taken[0]->read_some(buffer.data() + got, buffer.size() - got, 5'000);
    EXPECT_EQ(buffer, much);
    for (size_t i = 1; i < taken.size(); ++i) taken[i].reset();
    auto quick = co_await relay->open(StreamKind::kUser, 5'000);
    auto quick_end = co_await agent->accept();
    EXPECT_TRUE(co_await (*quick)->write(much, 5'000));
    got = 0;
    while (got < much.size()) got += *co_await quick_end->stream->read_some(buffer.data(), buffer.size(), 5'000);
    EXPECT_EQ(got, much.size());
  }());
}

TEST_F(H2LinkTest, AReadThatTimesOutLosesNothing) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    auto user = co_await relay->open(StreamKind::kUser, 5'000);
    auto end = co_await agent->accept();
    char buffer[8];
    const auto none = co_await end->stream->read_some(buffer, sizeof buffer, 20);
    EXPECT_FALSE(none);
    if (!none) {
      EXPECT_EQ(none.error().code, ErrorCode::kDeadlineExceeded);
    }
    EXPECT_TRUE(co_await (*user)->write("late", 5'000));
    const auto count = co_await end->stream->read_some(buffer, sizeof buffer, 5'000);
    EXPECT_EQ(std::string(buffer, count.value_or(0)), "late");
  }());
}

TEST_F(H2LinkTest, ARefusalArrivesWithItsReason) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    auto introduced = introduce(agent);
    EXPECT_TRUE(co_await relay->receive_hello(5'000));
    relay->close("unauthorized: domain suffix not allowed", true);
    co_await relay->wait_closed();
    const auto incoming = co_await agent->accept();
    EXPECT_FALSE(incoming);
    const auto result = co_await end_of(introduced);
    EXPECT_FALSE(result);
    if (result) co_return;
    EXPECT_EQ(result.error().code, ErrorCode::kPermissionDenied);
    EXPECT_EQ(result.error().message, "unauthorized: domain suffix not allowed");
  }());
}

TEST_F(H2LinkTest, ChallengesComeBeforeTheCertificateAndUsersAfterIt) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    auto introduced = introduce(agent, "token.thumbprint");
    const auto hello = co_await relay->receive_hello(5'000);
    EXPECT_EQ(hello->key_auth, "token.thumbprint");
    EXPECT_TRUE(co_await relay->begin_challenge(5'000));
    auto challenge = co_await relay->open(StreamKind::kChallenge, 5'000);
    auto incoming = co_await agent->accept();
    EXPECT_EQ(incoming->kind, StreamKind::kChallenge);
    EXPECT_TRUE(co_await end_of(introduced));
    auto done = start(agent->challenge_done(5'000));
    EXPECT_TRUE(co_await relay->wait_challenge_done(5'000));
    EXPECT_TRUE(co_await relay->confirm(5'000));
    EXPECT_TRUE(co_await end_of(done));
  }());
}

TEST_F(H2LinkTest, AnItemThatIsTooLongIsRefused) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    auto hello = introduction(agent);
    hello.domain = std::string(kMostItemBytes + 1, 'a');
    auto introduced = start(agent->introduce(std::move(hello), 5'000));
    const auto received = co_await relay->receive_hello(5'000);
    EXPECT_FALSE(received);
    if (!received) {
      EXPECT_EQ(received.error().code, ErrorCode::kProtocol);
    }
    relay->close("too long", false);
    co_await relay->wait_closed();
    EXPECT_FALSE(co_await agent->accept());
    EXPECT_FALSE(co_await end_of(introduced));
  }());
}

TEST_F(H2LinkTest, SilenceIsProbedAndADeadPeerIsNoticed) {
  run([this]() -> asio::awaitable<void> {
    H2Options options;
    options.keep_alive_ms = 20;
    options.idle_timeout_ms = 200;
    auto [relay, agent] = co_await connect(options);
    asio::steady_timer later(context_, std::chrono::milliseconds(500));
    co_await later.async_wait(asio::use_awaitable);
    // Both have lived on pings alone for longer than the limit.
    EXPECT_TRUE(co_await relay->probe(1'000));
    EXPECT_TRUE(co_await relay->open(StreamKind::kUser, 1'000));
  }());
}

TEST_F(H2LinkTest, ARetiringLinkEndsWithItsLastStream) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    auto user = co_await relay->open(StreamKind::kUser, 5'000);
    auto end = co_await agent->accept();
    relay->retire();
    EXPECT_TRUE(co_await (*user)->write("still here", 1'000));
    char buffer[16];
    const auto count = co_await end->stream->read_some(buffer, sizeof buffer, 5'000);
    EXPECT_EQ(std::string(buffer, count.value_or(0)), "still here");
    EXPECT_TRUE(agent->retiring());
    user->reset();
    end->stream.reset();
    const auto last = co_await agent->accept();
    EXPECT_FALSE(last);
  }());
}

}  // namespace
}  // namespace pocketfleet::tunnel
