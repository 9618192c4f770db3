#include <sys/resource.h>

#include <atomic>

#include "net/http_connection.h"
#include "net/http_server.h"
#include "net/net_test_util.h"

namespace pocketfleet::net {
namespace {

TEST(HttpServerLimits, AReaderThatIsSlowMakesTheWriterWait) {
  std::atomic<size_t> written{0};
  TestServer server([&](HttpRequest&, ResponseWriter& writer) -> asio::awaitable<void> {
    co_await writer.begin(200, {});
    const std::string piece(64u << 10, 'x');
    for (int i = 0; i < 1'024 && (co_await writer.write(piece)).has_value(); ++i) written += piece.size();
    co_await writer.end();
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/")));
  EXPECT_TRUE(eventually([&] { return written > 0; }));
  // Nothing signals that a writer has stopped: it is given time to run away instead.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const size_t held = written;
  EXPECT_LT(held, 48u << 20) << "64 MiB went into memory";
  client.read_until("\r\n0\r\n\r\n");
  EXPECT_EQ(written, 64u << 20);
}

TEST(HttpServerLimits, AReaderThatStopsCountsAsGoneAfterTheWriteTimeout) {
  ServerOptions options;
  options.write_timeout_ms = 100;
  Event noticed;
  TestServer server(
      [&](HttpRequest& request, ResponseWriter& writer) -> asio::awaitable<void> {
        co_await writer.begin(200, {});
        const std::string piece(1u << 20, 'x');
        while ((co_await writer.write(piece)).has_value()) {
        }
        if (request.gone.cancelled()) noticed.set();
      },
      options);
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/")));
  EXPECT_TRUE(noticed.wait());
}

// C-88
TEST(HttpServerLimits, ASlowSenderMeetsTheTotalDeadlineOfTheHeader) {
  ServerOptions options;
  options.header_timeout_ms = 200;
  TestServer server(echo, options);
  RawClient client(server.port());
  const auto begin = std::chrono::steady_clock::now();
  // Each byte comes well within the deadline; all together do not.
  ASSERT_TRUE(client.send("G"));
  while (client.read_until("\r\n\r\n", 20).empty() && !client.closed()) client.send("x");
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took, std::chrono::milliseconds(2'000));
  EXPECT_TRUE(eventually([&] { return server.server().connections() == 0; }));
}

// C-88
TEST(HttpServerLimits, HundredsOfSlowSendersNeitherGrowMemoryNorKeepOthersOut) {
  ServerOptions options;
  options.header_timeout_ms = 600;
  TestServer server(echo, options);
  constexpr size_t kSenders = 400;
  std::vector<std::unique_ptr<RawClient>> senders;
  for (size_t i = 0; i < kSenders; ++i) {
    senders.push_back(std::make_unique<RawClient>(server.port()));
    ASSERT_TRUE(senders.back()->connected());
    senders.back()->send("GET / HTTP/1.1\r\nx: ");
  }
  ASSERT_TRUE(eventually([&] { return server.server().connections() == kSenders; }));
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < until) {
    for (auto& sender : senders) sender->send("x");
    RawClient other(server.port());
    ASSERT_TRUE(other.send(get("/")));
    EXPECT_EQ(status_of(other.read_answer()), 200);
  }
  EXPECT_TRUE(eventually([&] { return server.server().connections() == 0; }));
  EXPECT_EQ(status_of(senders.front()->read_answer()), 408);
}

TEST(HttpServerLimits, AcceptGoesOnOnceThereAreFileDescriptorsAgain) {
  TestServer server(echo);
  const int socket = RawClient::open_socket();
  ASSERT_GE(socket, 0);
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  // No descriptor above 0 can be opened from here on; those that are open go on. (A limit of just what is in use would race with
  // accept, which takes a descriptor before it looks for a connection.)
  rlimit none = usual;
  none.rlim_cur = 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  RawClient client(server.port(), socket);
  const bool sent = client.send(get("/"));
  const std::string early = client.read_until("\r\n\r\n", 150);
  ::setrlimit(RLIMIT_NOFILE, &usual);
  ASSERT_TRUE(client.connected() && sent);
  EXPECT_EQ(early, "") << "there was still a file descriptor";
  EXPECT_EQ(status_of(client.read_answer()), 200);
}

TEST(HttpServerLimits, AnAddressGetsNoMoreThanItsShareOfTheConnections) {
  ServerCore core;
  core.options.max_connections_per_ip = 2;
  core.options.max_connections = 4;
  EXPECT_TRUE(core.admit("192.0.2.1"));
  EXPECT_TRUE(core.admit("192.0.2.1"));
  EXPECT_FALSE(core.admit("192.0.2.1"));
  EXPECT_TRUE(core.admit("192.0.2.2"));
  core.release("192.0.2.1");
  EXPECT_TRUE(core.admit("192.0.2.1"));
  EXPECT_TRUE(core.admit(""));
  EXPECT_FALSE(core.admit("192.0.2.3")) << "the server is full";
  EXPECT_EQ(core.connections(), 4u);
}

TEST(HttpServerLimits, ABodyThatDoesNotComeInTimeGets408) {
  ServerOptions options;
  options.body_timeout_ms = 50;
  TestServer server(echo, options);
  RawClient client(server.port());
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab"));
  EXPECT_EQ(status_of(client.read_answer()), 408);
}

TEST(HttpServerLimits, AnIdleConnectionIsClosedWithoutAWord) {
  ServerOptions options;
  options.idle_timeout_ms = 50;
  TestServer server(echo, options);
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/")));
  EXPECT_EQ(status_of(client.read_answer()), 200);
  EXPECT_EQ(client.read_all(), "");
  EXPECT_TRUE(client.closed());
}

TEST(HttpServerLimits, ConnectionsBeyondTheLimitAreClosedAndTheOthersGoOn) {
  ServerOptions options;
  options.max_connections = 2;
  TestServer server(echo, options);
  RawClient first(server.port());
  RawClient second(server.port());
  ASSERT_TRUE(eventually([&] { return server.server().connections() == 2; }));
  RawClient third(server.port());
  EXPECT_EQ(third.read_all(), "");
  EXPECT_TRUE(third.closed());
  ASSERT_TRUE(first.send(get("/")));
  EXPECT_EQ(status_of(first.read_answer()), 200);
  first.close();
  ASSERT_TRUE(eventually([&] { return server.server().connections() == 1; }));
  RawClient fourth(server.port());
  ASSERT_TRUE(fourth.send(get("/")));
  EXPECT_EQ(status_of(fourth.read_answer()), 200);
}

TEST(HttpServerLimits, DrainLetsARunningRequestEndAndClosesIdleConnections) {
  Event running;
  Event release;
  TestServer server([&](HttpRequest&, ResponseWriter& writer) -> asio::awaitable<void> {
    running.set();
    while (!release.wait(0)) co_await wait_ms(2);
    co_await writer.send({});
  });
  RawClient idle(server.port());
  RawClient busy(server.port());
  ASSERT_TRUE(busy.send(get("/")));
  ASSERT_TRUE(running.wait());
  auto drained = asio::co_spawn(server.loop().context(), server.server().drain(5'000), asio::use_future);
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(idle.closed());
  release.set();
  const std::string answer = busy.read_answer();
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_NE(answer.find("connection: close"), std::string::npos);
  drained.get();
  EXPECT_EQ(server.server().connections(), 0u);
  EXPECT_FALSE(RawClient(server.port()).connected());
}

TEST(HttpServerLimits, DrainCutsWhatDoesNotEndInTime) {
  Event running;
  std::atomic<bool> gone{false};
  TestServer server([&](HttpRequest& request, ResponseWriter&) -> asio::awaitable<void> {
    running.set();
    gone = co_await wait_until_gone(request);
  });
  RawClient busy(server.port());
  ASSERT_TRUE(busy.send(get("/")));
  ASSERT_TRUE(running.wait());
  server.loop().wait(server.server().drain(50));
  EXPECT_TRUE(gone);
  EXPECT_EQ(server.server().connections(), 0u);
}

}  // namespace
}  // namespace pocketfleet::net
