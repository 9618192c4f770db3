#include "tunnel/quic_link.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <optional>
#include <set>

#include "base/files.h"
#include "tunnel/link_test_util.h"
#include "tunnel/quic_routes.h"
#include "tunnel/quic_streams.h"

namespace pocketfleet::tunnel {
namespace {

// Bytes that show when they are out of order.
std::string pattern(size_t size, unsigned seed) {
  std::string out(size, '\0');
  uint32_t state = seed * 2'654'435'761u + 1;
  for (char& c : out) {
    state = state * 1'664'525u + 1'013'904'223u;
    c = static_cast<char>(state >> 24);
  }
  return out;
}

template <typename T>
std::optional<ErrorCode> code_of(const Result<T>& result) {
  return result ? std::nullopt : std::optional<ErrorCode>(result.error().code);
}

template <typename T>
std::string message_of(const Result<T>& result) {
  return result ? std::string("no error") : result.error().message;
}

// A net between one agent and the relay, which can be cut and can lose datagrams.
class BadNet : public std::enable_shared_from_this<BadNet> {
 public:
  using udp = asio::ip::udp;
  BadNet(asio::io_context& context, uint16_t relay_port)
      : front_(context, udp::endpoint(asio::ip::address_v4::loopback(), 0)),
        back_(context, udp::endpoint(asio::ip::address_v4::loopback(), 0)),
        relay_(asio::ip::address_v4::loopback(), relay_port) {}
  void start() {
    pass(front_, back_, true);
    pass(back_, front_, false);
  }
  void stop() {
    boost::system::error_code ignored;
    front_.close(ignored);
    back_.close(ignored);
  }
  uint16_t port() const { return front_.local_endpoint().port(); }

  bool cut = false;
  unsigned lose_one_in = 0;
  std::set<udp::endpoint> agents;  // all addresses that the agent has sent from

 private:
  struct Buffer {
    std::array<char, 2'048> bytes;
    udp::endpoint from;
  };
  void pass(udp::socket& in, udp::socket& out, bool from_agent) {
    auto buffer = std::make_shared<Buffer>();
    in.async_receive_from(asio::buffer(buffer->bytes), buffer->from,
                          [self = shared_from_this(), &in, &out, from_agent, buffer](boost::system::error_code ec, size_t size) {
                            if (ec == asio::error::operation_aborted || !in.is_open()) return;
                            if (!ec) {
                              if (from_agent) self->agents.insert(self->agent_ = buffer->from);
                              const bool lost = self->lose_one_in > 0 && ++self->count_ * 2'654'435'761u % self->lose_one_in == 0;
                              boost::system::error_code ignored;
                              if (!self->cut && !lost) {
                                out.send_to(asio::buffer(buffer->bytes.data(), size), from_agent ? self->relay_ : self->agent_, 0,
                                            ignored);
                              }
                            }
                            self->pass(in, out, from_agent);
                          });
  }

  udp::socket front_;
  udp::socket back_;
  udp::endpoint relay_;
  udp::endpoint agent_;
  uint32_t count_ = 0;
};

// A listener, agents that dial it, and the loop that all of it runs on.
class QuicLinkTest : public LinkTest {
 protected:
  QuicLinkTest() {
    std::string name = ::testing::TempDir() + "quic_XXXXXX";
    folder_ = ::mkdtemp(name.data());
    trusted_ = folder_ + "/trusted.pem";
    EXPECT_TRUE(write_file_atomic(trusted_, certificate_));
    server_.certificate_chain_pem = certificate_;
    server_.private_key_pem = key_pem_;
    dial_.certificate_chain_pem = certificate_;
    dial_.private_key_pem = key_pem_;
    dial_.trusted_file = trusted_;
  }
  ~QuicLinkTest() override { std::filesystem::remove_all(folder_); }

  void listen() {
    auto listener =
        QuicListener::open(context_.get_executor(), "127.0.0.1", port_, server_, [this](std::shared_ptr<RelayLink> link) {
          links_.push_back(std::move(link));
          came_.raise();
        });
    ASSERT_TRUE(listener) << listener.error().message;
    listener_ = *listener;
    port_ = listener_->port();
  }

  asio::awaitable<Result<std::shared_ptr<AgentLink>>> dial() {
    QuicDialOptions options = dial_;
    return dial_quic("127.0.0.1", port_, "agent", std::move(options), 5'000);
  }
  asio::awaitable<Result<void>> dial_briefly(uint16_t port) {
    QuicDialOptions options = dial_;
    const auto agent = co_await dial_quic("127.0.0.1", port, "agent", std::move(options), 10);
    if (!agent) co_return fail(agent.error());
    co_return Result<void>();
  }
  asio::awaitable<std::shared_ptr<RelayLink>> next_link() {
    while (links_.empty()) {
      const bool woken = co_await came_.wait(5'000);
      if (!woken) break;
    }
    if (links_.empty()) co_return nullptr;
    auto link = links_.front();
    links_.pop_front();
    co_return link;
  }
  asio::awaitable<Pair> connect() {
    if (!listener_) listen();
    auto agent = co_await dial();
    if (!agent) throw std::runtime_error(agent.error().message);
    auto relay = co_await next_link();
    if (!relay) throw std::runtime_error("no link came");
    co_return Pair(relay, *agent);
  }
  // With the control exchange done.
  asio::awaitable<Pair> meet() {
    Pair pair = co_await connect();
    auto introduced = introduce(pair.second);
    const auto hello = co_await pair.first->receive_hello(5'000);
    if (!hello) throw std::runtime_error(hello.error().message);
    const auto confirmed = co_await pair.first->confirm(5'000);
    const auto end = co_await end_of(introduced);
    if (!confirmed || !end) throw std::runtime_error("the control exchange failed");
    co_return pair;
  }

  // Sends back what comes on each stream, and its end, until the link ends.
  std::shared_ptr<Task> echo_all(std::shared_ptr<AgentLink> agent) { return start(accept_and_echo(std::move(agent))); }
  asio::awaitable<Result<void>> accept_and_echo(std::shared_ptr<AgentLink> agent) {
    for (;;) {
      auto next = co_await agent->accept();
      if (!next) co_return Result<void>();
      start(echo(std::move(next->stream)));
    }
  }
  static asio::awaitable<Result<void>> echo(std::unique_ptr<net::Stream> stream) {
    std::string buffer(16'384, '\0');
    for (;;) {
      PF_CO_TRY(const size_t count, co_await stream->read_some(buffer.data(), buffer.size(), 20'000));
      if (count == 0) break;
      PF_CO_CHECK_OK(co_await stream->write(std::string_view(buffer).substr(0, count), 20'000));
    }
    co_await stream->shutdown(1'000);
    co_return Result<void>();
  }
  static asio::awaitable<Result<std::string>> read_to_end(net::Stream& stream) {
    std::string all;
    std::string buffer(16'384, '\0');
    for (;;) {
      PF_CO_TRY(const size_t count, co_await stream.read_some(buffer.data(), buffer.size(), 20'000));
      if (count == 0) co_return all;
      all.append(buffer, 0, count);
    }
  }
  static asio::awaitable<Result<void>> send_all(net::Stream& stream, const std::string& bytes) {
    PF_CO_CHECK_OK(co_await stream.write(bytes, 20'000));
    co_await stream.shutdown(1'000);
    co_return Result<void>();
  }
  // There and back; fails when other bytes come back.
  asio::awaitable<Result<void>> round_trip(std::shared_ptr<RelayLink> relay, std::string bytes) {
    PF_CO_TRY(const auto stream, co_await relay->open(StreamKind::kUser, 20'000));
    auto sent = start(send_all(*stream, bytes));
    auto back = co_await read_to_end(*stream);
    PF_CO_CHECK_OK(co_await end_of(sent));
    if (!back) co_return fail(back.error());
    if (*back != bytes) co_return fail(ErrorCode::kInternal, "other bytes came back");
    co_return Result<void>();
  }
  asio::awaitable<void> pause(int64_t ms) {
    asio::steady_timer timer(context_, std::chrono::milliseconds(ms));
    co_await timer.async_wait(asio::use_awaitable);
  }

  // Waits until a condition that nobody signals holds.
  template <typename Condition>
  asio::awaitable<bool> settles(Condition condition) {
    for (int i = 0; i < 1'000; ++i) {
      if (condition()) co_return true;
      co_await pause(5);
    }
    co_return false;
  }

  std::string folder_, trusted_;
  QuicServerOptions server_;
  QuicDialOptions dial_;
  uint16_t port_ = 0;
  std::deque<std::shared_ptr<RelayLink>> links_;
  net::Signal came_{context_.get_executor()};
  std::shared_ptr<QuicListener> listener_;
};

TEST_F(QuicLinkTest, AnAgentProvesItsDomainOnThisConnection) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    EXPECT_EQ(relay->facts().carrier, "quic");
    EXPECT_EQ(relay->facts().binding.size(), 32u);
    EXPECT_EQ(relay->facts().binding, agent->facts().binding);
    EXPECT_TRUE(relay->facts().peer.starts_with("127.0.0.1:")) << relay->facts().peer;
    EXPECT_EQ(agent->facts().peer, "127.0.0.1:" + std::to_string(port_));
    EXPECT_EQ(agent->facts().peer_certificate, "");
    auto introduced = introduce(agent);
    const auto hello = co_await relay->receive_hello(5'000);
    EXPECT_TRUE(hello) << hello.error().message;
    if (!hello) co_return;
    EXPECT_EQ(hello->domain, domain_);
    EXPECT_TRUE(hello->bound);
    EXPECT_EQ(hello->key_auth, "");
    EXPECT_TRUE(check_proof(hello->domain, hello->proof, relay->facts().binding));
    EXPECT_EQ(inspect_certificate_der(relay->facts().peer_certificate)->tunnel_extension, "twelve bytes");
    co_await pause(50);
    EXPECT_FALSE(introduced->result) << "not before the relay confirms";
    EXPECT_TRUE(co_await relay->confirm(5'000));
    EXPECT_TRUE(co_await end_of(introduced));
    auto [other, other_agent] = co_await connect();
    EXPECT_NE(other->facts().binding, relay->facts().binding);
    EXPECT_EQ(listener_->connections(), 2u);
  }());
}

TEST_F(QuicLinkTest, OldAgentsProveTheirDomainAlone) {
  server_.accept_legacy = true;
  dial_.legacy = true;
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    auto introduced = introduce(agent);
    const auto hello = co_await relay->receive_hello(5'000);
    EXPECT_TRUE(hello) << hello.error().message;
    if (!hello) co_return;
    EXPECT_FALSE(hello->bound);
    EXPECT_TRUE(co_await end_of(introduced));
    EXPECT_TRUE(co_await relay->confirm(5'000));
    auto echoes = echo_all(agent);
    EXPECT_TRUE(co_await round_trip(relay, pattern(100'000, 1)));
    RelayLink& link = *relay;
    EXPECT_TRUE(co_await settles([&link] { return link.open_streams() == 0; }));
    relay->retire();
    EXPECT_EQ((co_await relay->wait_closed()).code, ErrorCode::kConnectionClosed);
    EXPECT_TRUE(co_await end_of(echoes));
  }());
}

TEST_F(QuicLinkTest, OldAgentsAreNotLetInUnlessThatIsAskedFor) {
  dial_.legacy = true;
  run([this]() -> asio::awaitable<void> {
    listen();
    const auto agent = co_await dial();
    EXPECT_EQ(code_of(agent), ErrorCode::kUnsupportedParameter) << message_of(agent);
    EXPECT_TRUE(co_await settles([this] { return listener_->connections() == 0; }));
    EXPECT_TRUE(links_.empty());
  }());
}

TEST_F(QuicLinkTest, NewAgentsGetIntoARelayThatTakesOldOnesToo) {
  server_.accept_legacy = true;
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    auto introduced = introduce(agent);
    const auto hello = co_await relay->receive_hello(5'000);
    EXPECT_TRUE(hello && hello->bound);
    EXPECT_TRUE(co_await relay->confirm(5'000));
    EXPECT_TRUE(co_await end_of(introduced));
  }());
}

TEST_F(QuicLinkTest, ARelayThatIsNotTrustedIsNotDialled) {
  dial_.trusted_file = folder_ + "/other.pem";
  const P256PrivateKey other = *P256PrivateKey::generate();
  ASSERT_TRUE(write_file_atomic(dial_.trusted_file, *make_agent_certificate(other, "")));
  run([this]() -> asio::awaitable<void> {
    listen();
    auto agent = co_await dial();
    EXPECT_FALSE(agent);
    if (!agent) {
      EXPECT_EQ(agent.error().code, ErrorCode::kProtocol);
      EXPECT_NE(agent.error().message.find("certificate"), std::string::npos) << agent.error().message;
    }
    // The right authority, the wrong name.
    dial_.trusted_file = trusted_;
    QuicDialOptions options = dial_;
    agent = co_await dial_quic("127.0.0.1", port_, "relay.test", std::move(options), 5'000);
    EXPECT_FALSE(agent);
    dial_.verify = false;
    options = dial_;
    agent = co_await dial_quic("127.0.0.1", port_, "relay.test", std::move(options), 5'000);
    EXPECT_TRUE(agent) << agent.error().message;
  }());
}

TEST_F(QuicLinkTest, WhereNobodyListensDiallingEndsSoon) {
  run([this]() -> asio::awaitable<void> {
    listen();
    listener_->close();
    const auto begin = std::chrono::steady_clock::now();
    const auto agent = co_await dial();
    EXPECT_FALSE(agent);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  }());
}

TEST_F(QuicLinkTest, CertificatesThatAreNoneAreRefused) {
  server_.private_key_pem = "nonsense";
  const auto listener = QuicListener::open(context_.get_executor(), "127.0.0.1", 0, server_, nullptr);
  EXPECT_EQ(code_of(listener), ErrorCode::kInvalidArgument) << message_of(listener);
  server_.private_key_pem = key_pem_;
  EXPECT_FALSE(QuicListener::open(context_.get_executor(), "localhost:1", 0, server_, nullptr));
}

TEST_F(QuicLinkTest, AnotherCertificateHoldsForThoseWhoComeLater) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    const P256PrivateKey other = *P256PrivateKey::generate();
    EXPECT_FALSE(listener_->set_certificate("no", "certificate"));
    EXPECT_TRUE(listener_->set_certificate(*make_agent_certificate(other, ""), *other.to_pem()));
    const auto refused = co_await dial();
    EXPECT_FALSE(refused);
    EXPECT_TRUE(co_await relay->probe(2'000));
  }());
}

TEST_F(QuicLinkTest, TheReasonOfARefusalArrives) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    auto introduced = introduce(agent);
    EXPECT_TRUE(co_await relay->receive_hello(5'000));
    relay->close("unauthorized: domain suffix not allowed", true);
    const auto end = co_await end_of(introduced);
    EXPECT_FALSE(end);
    if (!end) {
      EXPECT_EQ(end.error().code, ErrorCode::kPermissionDenied);
      EXPECT_NE(end.error().message.find("unauthorized: domain suffix not allowed"), std::string::npos) << end.error().message;
    }
    const auto next = co_await agent->accept();
    EXPECT_EQ(code_of(next), ErrorCode::kPermissionDenied) << message_of(next);
  }());
}

TEST_F(QuicLinkTest, AChallengeIsAnsweredBeforeUsersCome) {
  for (const bool legacy : {false, true}) {
    SCOPED_TRACE(legacy);
    server_.accept_legacy = dial_.legacy = legacy;
    listener_.reset();
    port_ = 0;
    run([this]() -> asio::awaitable<void> {
      auto [relay, agent] = co_await connect();
      auto introduced = introduce(agent, "token.thumbprint");
      const auto hello = co_await relay->receive_hello(5'000);
      EXPECT_TRUE(hello && hello->key_auth == "token.thumbprint");
      EXPECT_TRUE(co_await relay->begin_challenge(5'000));
      EXPECT_TRUE(co_await end_of(introduced));
      auto challenge = co_await relay->open(StreamKind::kChallenge, 5'000);
      EXPECT_TRUE(challenge && co_await (*challenge)->write("hello", 5'000));
      auto arrived = co_await agent->accept();
      EXPECT_TRUE(arrived && arrived->kind == StreamKind::kChallenge);
      auto done = start(agent->challenge_done(5'000));
      EXPECT_TRUE(co_await relay->wait_challenge_done(5'000));
      EXPECT_TRUE(co_await relay->confirm(5'000));
      EXPECT_TRUE(co_await end_of(done));
      auto user = co_await relay->open(StreamKind::kUser, 5'000);
      EXPECT_TRUE(user && co_await (*user)->write("hello", 5'000));
      arrived = co_await agent->accept();
      EXPECT_TRUE(arrived && arrived->kind == StreamKind::kUser);
    }());
  }
}

TEST_F(QuicLinkTest, AnItemThatIsTooLongIsRefused) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    AgentLink::Introduction said = introduction(agent);
    said.domain = std::string(kMostItemBytes + 1, 'a');
    auto introduced = start(agent->introduce(std::move(said), 5'000));
    const auto hello = co_await relay->receive_hello(5'000);
    EXPECT_EQ(code_of(hello), ErrorCode::kProtocol) << message_of(hello);
    relay->close("broken", false);
    EXPECT_FALSE(co_await end_of(introduced));
  }());
}

TEST_F(QuicLinkTest, AnAgentThatSaysNothingIsNotWaitedForForEver) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await connect();
    const auto hello = co_await relay->receive_hello(100);
    EXPECT_EQ(code_of(hello), ErrorCode::kDeadlineExceeded) << message_of(hello);
  }());
}

TEST_F(QuicLinkTest, TwoHundredStreamsAtOnceKeepTheirBytes) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    auto echoes = echo_all(agent);
    std::vector<std::shared_ptr<Task>> trips;
    for (unsigned i = 0; i < 200; ++i) trips.push_back(start(round_trip(relay, pattern(100'000 + i, i))));
    for (auto& trip : trips) {
      const auto end = co_await end_of(trip);
      EXPECT_TRUE(end) << end.error().message;
    }
    RelayLink& near_end = *relay;
    AgentLink& far_end = *agent;
    EXPECT_TRUE(co_await settles([&] { return near_end.open_streams() == 0 && far_end.open_streams() == 0; }));
    relay->close("done", false);
    EXPECT_TRUE(co_await end_of(echoes));
  }());
}

TEST_F(QuicLinkTest, MoreStreamsThanAreAllowedAtOnceWaitForTheirTurn) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    std::vector<std::unique_ptr<net::Stream>> open;
    for (int i = 0; i < 1'000; ++i) {
      auto stream = co_await relay->open(StreamKind::kUser, 1'000);
      EXPECT_TRUE(stream);
      if (!stream) co_return;
      EXPECT_TRUE(co_await (*stream)->write("x", 1'000));
      open.push_back(std::move(*stream));
    }
    const auto refused = co_await relay->open(StreamKind::kUser, 100);
    EXPECT_EQ(code_of(refused), ErrorCode::kDeadlineExceeded) << message_of(refused);
    auto echoes = echo_all(agent);
    auto waiting = start(round_trip(relay, "one more"));
    co_await pause(50);
    EXPECT_FALSE(waiting->result);
    open.pop_back();
    EXPECT_TRUE(co_await end_of(waiting));
    relay->close("done", false);
    EXPECT_TRUE(co_await end_of(echoes));
  }());
}

TEST_F(QuicLinkTest, AStreamEndsOneWayAtATime) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    auto user = co_await relay->open(StreamKind::kUser, 5'000);
    EXPECT_TRUE(co_await send_all(**user, "question"));
    EXPECT_FALSE(co_await (*user)->write("more", 1'000)) << "after the end";
    auto arrived = co_await agent->accept();
    EXPECT_EQ((co_await read_to_end(*arrived->stream)).value_or("?"), "question");
    EXPECT_TRUE(co_await send_all(*arrived->stream, "answer"));
    // What was written before the end arrives, though nobody holds the stream any more.
    arrived->stream.reset();
    EXPECT_EQ((co_await read_to_end(**user)).value_or("?"), "answer");
    char byte = 0;
    EXPECT_EQ((co_await (*user)->read_some(&byte, 1, 1'000)).value_or(9), 0u) << "and again";
  }());
}

TEST_F(QuicLinkTest, AStreamThatIsDroppedIsBrokenOff) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    auto user = co_await relay->open(StreamKind::kUser, 5'000);
    EXPECT_TRUE(co_await (*user)->write("question", 1'000));
    auto arrived = co_await agent->accept();
    arrived->stream.reset();
    char byte = 0;
    const auto read = co_await (*user)->read_some(&byte, 1, 5'000);
    EXPECT_EQ(code_of(read), ErrorCode::kConnectionClosed) << message_of(read);
    // The writer learns it as soon as it has something to send.
    Result<void> written;
    for (int i = 0; i < 50 && written; ++i) {
      written = co_await (*user)->write("more", 1'000);
      co_await pause(5);
    }
    EXPECT_FALSE(written);
    user->reset();
    RelayLink& link = *relay;
    EXPECT_TRUE(co_await settles([&link] { return link.open_streams() == 0; }));
  }());
}

TEST_F(QuicLinkTest, ASlowReaderStallsNobodyElse) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    std::vector<std::unique_ptr<net::Stream>> slow;
    std::vector<std::shared_ptr<Task>> floods;
    const std::string much = pattern(4u << 20, 7);
    std::vector<std::unique_ptr<net::Stream>> unread;
    // Twenty windows full, which is more than the window of the connection.
    for (int i = 0; i < 20; ++i) {
      auto stream = co_await relay->open(StreamKind::kUser, 5'000);
      floods.push_back(start(send_all(**stream, much)));
      slow.push_back(std::move(*stream));
      auto arrived = co_await agent->accept();
      unread.push_back(std::move(arrived->stream));
    }
    co_await pause(300);
    EXPECT_FALSE(floods.front()->result) << "nobody has read";
    auto echoes = echo_all(agent);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(co_await round_trip(relay, pattern(1u << 20, 3)));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    // And once they read, all of it comes.
    EXPECT_TRUE((co_await read_to_end(*unread[3])).value_or("") == much);
    EXPECT_TRUE(co_await end_of(floods[3]));
    relay->close("done", false);
    for (auto& flood : floods) co_await end_of(flood);
    co_await end_of(echoes);
  }());
}

TEST_F(QuicLinkTest, AReadThatTimedOutOrWasCancelledLosesNothing) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    auto user = co_await relay->open(StreamKind::kUser, 5'000);
    EXPECT_TRUE(co_await (*user)->write("a", 1'000));
    auto arrived = co_await agent->accept();
    char byte = 0;
    EXPECT_EQ((co_await arrived->stream->read_some(&byte, 1, 1'000)).value_or(9), 1u);
    auto read = co_await arrived->stream->read_some(&byte, 1, 30);
    EXPECT_EQ(code_of(read), ErrorCode::kDeadlineExceeded) << message_of(read);
    net::Stream& stream = *arrived->stream;
    auto cancelled = start([](net::Stream& from) -> asio::awaitable<Result<void>> {
      char ignored = 0;
      PF_CO_TRY(const size_t count, co_await from.read_some(&ignored, 1, 5'000));
      (void)count;
      co_return Result<void>();
    }(stream));
    co_await pause(20);
    stream.cancel_read();
    const auto end = co_await end_of(cancelled);
    EXPECT_EQ(code_of(end), ErrorCode::kCancelled) << message_of(end);
    EXPECT_TRUE(co_await (*user)->write("b", 1'000));
    EXPECT_EQ((co_await stream.read_some(&byte, 1, 1'000)).value_or(9), 1u);
    EXPECT_EQ(byte, 'b');
  }());
}

TEST_F(QuicLinkTest, AWriterThatNobodyReadsGivesUp) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    auto user = co_await relay->open(StreamKind::kUser, 5'000);
    const auto written = co_await (*user)->write(std::string(8u << 20, 'x'), 300);
    EXPECT_EQ(code_of(written), ErrorCode::kDeadlineExceeded) << message_of(written);
  }());
}

TEST_F(QuicLinkTest, ALinkSurvivesAChangeOfAddress) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    auto echoes = echo_all(agent);
    EXPECT_TRUE(co_await round_trip(relay, "before"));
    std::vector<std::shared_ptr<Task>> trips;
    for (unsigned i = 0; i < 4; ++i) trips.push_back(start(round_trip(relay, pattern(6u << 20, i))));
    for (int i = 0; i < 5; ++i) {
      co_await pause(30);
      migrate_quic(*agent);
    }
    for (auto& trip : trips) {
      const auto end = co_await end_of(trip);
      EXPECT_TRUE(end) << end.error().message;
    }
    EXPECT_TRUE(co_await round_trip(relay, "after"));
    EXPECT_EQ(listener_->connections(), 1u);
    relay->close("done", false);
    EXPECT_TRUE(co_await end_of(echoes));
  }());
}

TEST_F(QuicLinkTest, AfterAChangeOfAddressTheOldOneIsSilent) {
  run([this]() -> asio::awaitable<void> {
    listen();
    const auto net = std::make_shared<BadNet>(context_, port_);
    net->start();
    port_ = net->port();
    auto [relay, agent] = co_await meet();
    auto echoes = echo_all(agent);
    EXPECT_TRUE(co_await round_trip(relay, "before"));
    EXPECT_EQ(net->agents.size(), 1u);
    migrate_quic(*agent);
    EXPECT_TRUE(co_await round_trip(relay, "after"));
    EXPECT_EQ(net->agents.size(), 2u);
    EXPECT_TRUE(co_await relay->probe(1'000));
    relay->close("done", false);
    EXPECT_TRUE(co_await end_of(echoes));
    net->stop();
  }());
}

TEST_F(QuicLinkTest, TheEndOfALinkWakesEverybody) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    auto user = co_await relay->open(StreamKind::kUser, 5'000);
    EXPECT_TRUE(co_await (*user)->write("x", 1'000));
    auto arrived = co_await agent->accept();
    const auto waits = [](std::shared_ptr<RelayLink> link) -> asio::awaitable<Result<void>> {
      co_return fail(co_await link->wait_closed());
    };
    const auto accepts = [](std::shared_ptr<AgentLink> link) -> asio::awaitable<Result<void>> {
      const auto next = co_await link->accept();
      if (!next) co_return fail(next.error());
      co_return Result<void>();
    };
    const auto reads = [](net::Stream& stream) -> asio::awaitable<Result<void>> {
      const auto all = co_await read_to_end(stream);
      if (!all) co_return fail(all.error());
      co_return Result<void>();
    };
    const std::string much(16u << 20, 'x');
    std::vector<std::shared_ptr<Task>> tasks = {start(waits(relay)),
                                                start(waits(relay)),
                                                start(accepts(agent)),
                                                start(reads(**user)),
                                                start(send_all(**user, much)),
                                                start(reads(*arrived->stream)),
                                                start(send_all(*arrived->stream, much))};
    co_await pause(50);
    for (auto& task : tasks) EXPECT_FALSE(task->result);
    relay->close("enough", false);
    for (auto& task : tasks) {
      const auto end = co_await end_of(task);
      EXPECT_EQ(code_of(end), ErrorCode::kConnectionClosed) << message_of(end);
    }
    EXPECT_FALSE(co_await relay->open(StreamKind::kUser, 100));
    EXPECT_FALSE(co_await relay->probe(100));
    EXPECT_EQ(listener_->connections(), 0u);
  }());
}

TEST_F(QuicLinkTest, IdleLinksStayAliveAndDeadOnesEnd) {
  server_.idle_timeout_ms = dial_.idle_timeout_ms = 1'000;
  server_.keep_alive_ms = 0;
  dial_.keep_alive_ms = 150;
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    dial_.keep_alive_ms = 0;
    auto [silent_relay, silent_agent] = co_await meet();
    EXPECT_EQ((co_await silent_relay->wait_closed()).code, ErrorCode::kConnectionClosed);
    co_await pause(1'500);
    auto echoes = echo_all(agent);
    EXPECT_TRUE(co_await round_trip(relay, "still there"));
    EXPECT_TRUE(co_await relay->probe(1'000));
    relay->close("done", false);
    EXPECT_TRUE(co_await end_of(echoes));
  }());
}

TEST_F(QuicLinkTest, ARelayThatGoesLetsOpenStreamsEnd) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    auto echoes = echo_all(agent);
    auto user = co_await relay->open(StreamKind::kUser, 5'000);
    EXPECT_TRUE(co_await (*user)->write("question", 1'000));
    relay->retire();
    EXPECT_FALSE(co_await relay->open(StreamKind::kUser, 100));
    AgentLink& link = *agent;
    EXPECT_TRUE(co_await settles([&link] { return link.retiring(); }));
    EXPECT_FALSE(echoes->result) << "a stream is still open";
    co_await (*user)->shutdown(1'000);
    EXPECT_EQ((co_await read_to_end(**user)).value_or("?"), "question");
    EXPECT_EQ((co_await relay->wait_closed()).code, ErrorCode::kConnectionClosed);
    EXPECT_TRUE(co_await end_of(echoes));
  }());
}

TEST_F(QuicLinkTest, ARelayThatHasForgottenALinkSaysSo) {
  dial_.keep_alive_ms = 50;
  run([this]() -> asio::awaitable<void> {
    listen();
    const auto net = std::make_shared<BadNet>(context_, port_);
    net->start();
    const uint16_t relay_port = std::exchange(port_, net->port());
    auto [relay, agent] = co_await meet();
    // The relay falls silent and is started anew, with the same key.
    net->cut = true;
    relay->close("a crash says nothing", false);
    listener_.reset();
    port_ = relay_port;
    listen();
    co_await pause(20);
    net->cut = false;
    const auto next = co_await agent->accept();
    EXPECT_NE(message_of(next).find("knows nothing"), std::string::npos) << message_of(next);
    net->stop();
  }());
}

TEST_F(QuicLinkTest, WhatTheNetLosesIsSentAgain) {
  run([this]() -> asio::awaitable<void> {
    listen();
    const auto net = std::make_shared<BadNet>(context_, port_);
    net->start();
    port_ = net->port();
    auto [relay, agent] = co_await meet();
    net->lose_one_in = 25;
    auto echoes = echo_all(agent);
    std::vector<std::shared_ptr<Task>> trips;
    for (unsigned i = 0; i < 10; ++i) trips.push_back(start(round_trip(relay, pattern(200'000, i))));
    for (auto& trip : trips) {
      const auto end = co_await end_of(trip);
      EXPECT_TRUE(end) << end.error().message;
    }
    net->lose_one_in = 0;
    relay->close("done", false);
    EXPECT_TRUE(co_await end_of(echoes));
    net->stop();
  }());
}

TEST_F(QuicLinkTest, AListenerTakesNoMoreThanItIsAllowed) {
  server_.most_connections_per_ip = 2;
  run([this]() -> asio::awaitable<void> {
    auto first = co_await connect();
    auto second = co_await connect();
    const auto third = co_await dial();
    EXPECT_NE(message_of(third).find("no more"), std::string::npos) << message_of(third);
    first.first->close("room", false);
    co_await pause(20);
    EXPECT_TRUE(co_await dial());
  }());
}

TEST_F(QuicLinkTest, WhenManyHandshakesHangNewcomersMustShowTheirAddress) {
  run([this]() -> asio::awaitable<void> {
    listen();
    // Hellos of agents that never go on.
    using udp = asio::ip::udp;
    udp::socket sink(context_, udp::endpoint(asio::ip::address_v4::loopback(), 0));
    const udp::endpoint to(asio::ip::address_v4::loopback(), port_);
    std::deque<udp::socket> mute;
    for (int i = 0; i < 70; ++i) {
      auto lost = start(dial_briefly(sink.local_endpoint().port()));
      std::array<char, 2'048> hello;
      udp::endpoint from;
      const size_t size = co_await sink.async_receive_from(asio::buffer(hello), from, asio::use_awaitable);
      mute.emplace_back(context_, udp::endpoint(asio::ip::address_v4::loopback(), 0));
      mute.back().send_to(asio::buffer(hello.data(), size), to);
      EXPECT_FALSE(co_await end_of(lost));
    }
    co_await pause(100);
    auto [relay, agent] = co_await connect();
    EXPECT_EQ(relay->facts().binding, agent->facts().binding);
    EXPECT_GT(listener_->connections(), 60u) << "or nothing was shown";
  }());
}

TEST_F(QuicLinkTest, GarbageIsIgnored) {
  run([this]() -> asio::awaitable<void> {
    auto [relay, agent] = co_await meet();
    asio::ip::udp::socket socket(context_, asio::ip::udp::endpoint(asio::ip::address_v4::loopback(), 0));
    const asio::ip::udp::endpoint to(asio::ip::address_v4::loopback(), port_);
    for (unsigned i = 0; i < 300; ++i) {
      std::string packet = pattern(i * 5 % 1'500 + 1, i);
      if (i % 3 == 0) packet.replace(0, 1, "\xc3");
      socket.send_to(asio::buffer(packet), to);
      if (i % 50 == 0) co_await pause(5);
    }
    // A version that nobody knows is answered with ours.
    std::string strange = std::string("\xc0\xfa\xce\xb0\x0c\x08", 6) + "12345678" + std::string("\x05", 1) + "abcde";
    strange.resize(1'200, '\0');
    asio::ip::udp::socket asking(context_, asio::ip::udp::endpoint(asio::ip::address_v4::loopback(), 0));
    asking.send_to(asio::buffer(strange), to);
    std::array<char, 2'000> answer{};
    asio::ip::udp::endpoint from;
    const size_t size = co_await asking.async_receive_from(asio::buffer(answer), from, asio::use_awaitable);
    const std::string_view said(answer.data(), size);
    EXPECT_EQ(said.substr(1, 4), std::string_view("\0\0\0\0", 4));
    EXPECT_NE(said.find(std::string_view("\0\0\0\1", 4)), std::string_view::npos);
    auto echoes = echo_all(agent);
    EXPECT_TRUE(co_await round_trip(relay, "unharmed"));
    relay->close("done", false);
    EXPECT_TRUE(co_await end_of(echoes));
  }());
}

TEST(QuicSendBuffer, BytesStayWhereTheyAreUntilTheyAreAcknowledged) {
  SendBuffer buffer;
  std::string all;
  std::string sent;
  uint64_t acked = 0;
  for (unsigned round = 0; round < 500; ++round) {
    const std::string more = pattern(round * 37 % 5'000, round);
    buffer.append(more);
    all += more;
    std::array<SendBuffer::Piece, SendBuffer::kMostPieces> pieces;
    const size_t count = buffer.pending(pieces);
    size_t budget = round * 53 % 4'000;
    for (size_t i = 0; i < count && budget > 0; ++i) {
      const size_t size = std::min(budget, pieces[i].size);
      sent.append(pieces[i].data, size);
      buffer.sent(size);
      budget -= size;
    }
    acked = std::min<uint64_t>(sent.size(), acked + round * 41 % 3'000);
    buffer.acked(acked);
    ASSERT_EQ(buffer.held(), all.size() - acked);
    ASSERT_EQ(buffer.unsent(), all.size() - sent.size());
  }
  EXPECT_EQ(sent, all.substr(0, sent.size()));
}

TEST(QuicRoutes, AClosedConnectionAnswersEverMoreRarely) {
  QuicRoutes<int> routes({1, 2, 3, 4, 5, 6});
  const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const QuicCid cid(bytes, sizeof bytes);
  const QuicCid shorter(bytes, sizeof bytes - 1);
  const auto start = std::chrono::steady_clock::time_point();
  routes.add(cid, std::make_shared<int>(1));
  EXPECT_TRUE(routes.find(cid));
  EXPECT_FALSE(routes.find(shorter));
  routes.close({cid}, "bye", start + std::chrono::seconds(3));
  EXPECT_FALSE(routes.find(cid));
  int answers = 0;
  bool known = false;
  for (int i = 0; i < 64; ++i) answers += routes.last_word(cid, known) == "bye" ? 1 : 0;
  EXPECT_TRUE(known);
  EXPECT_EQ(answers, 7);
  routes.expire(start + std::chrono::seconds(2));
  EXPECT_EQ(routes.last_word(cid, known), "");
  EXPECT_TRUE(known);
  routes.expire(start + std::chrono::seconds(3));
  EXPECT_EQ(routes.last_word(cid, known), "");
  EXPECT_FALSE(known);
}

}  // namespace
}  // namespace pocketfleet::tunnel
