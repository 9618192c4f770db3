#include "net/http_server.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <filesystem>
#include <stdexcept>

#include "net/http_connection.h"
#include "net/net_test_util.h"

namespace pocketfleet::net {
namespace {

asio::awaitable<void> wait_ms(int64_t ms) {
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(ms));
  co_await timer.async_wait(asio::use_awaitable);
}

// Waits in small steps, so that a handler ends soon after its client went.
asio::awaitable<bool> wait_until_gone(const HttpRequest& request, int64_t limit_ms = 5'000) {
  for (int64_t waited = 0; waited < limit_ms && !request.gone.cancelled(); waited += 5) co_await wait_ms(5);
  co_return request.gone.cancelled();
}

asio::awaitable<void> echo(HttpRequest& request, ResponseWriter& writer) {
  HttpResponse response;
  response.headers.add("content-type", "text/plain");
  response.body = request.method + " " + request.path + "?" + request.query + " " + request.body;
  co_await writer.send(std::move(response));
}

std::string get(std::string_view path) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nhost: x\r\n\r\n";
}

TEST(HttpServer, AnswersARequestAndKeepsTheConnection) {
  TestServer server(echo);
  RawClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(get("/a%20b?q=1")));
    const std::string answer = client.read_answer();
    EXPECT_EQ(status_of(answer), 200);
    EXPECT_NE(answer.find("GET /a b?q=1 "), std::string::npos) << answer;
    EXPECT_NE(answer.find("\r\ndate: "), std::string::npos);
    EXPECT_EQ(answer.find("connection: close"), std::string::npos);
  }
}

TEST(HttpServer, ARequestThatComesOneByteAtATimeIsAnsweredTheSame) {
  TestServer server(echo);
  RawClient client(server.port());
  const std::string request =
      "POST /x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;n=v\r\nde\r\n0\r\n\r\n";
  for (const char byte : request) ASSERT_TRUE(client.send({&byte, 1}));
  EXPECT_NE(client.read_answer().find("POST /x? abcde"), std::string::npos);
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  TestServer server([](HttpRequest& request, ResponseWriter& writer) -> asio::awaitable<void> {
    if (request.path == "/slow") co_await wait_ms(50);
    HttpResponse response;
    response.body = request.path;
    co_await writer.send(std::move(response));
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/slow") + get("/1") + get("/slow") + get("/2")));
  for (const std::string path : {"/slow", "/1", "/slow", "/2"}) {
    EXPECT_TRUE(client.read_answer().ends_with("\r\n\r\n" + path));
  }
}

TEST(HttpServer, RequestsThatComeWhileAHandlerRunsAreKeptForLater) {
  Event running;
  TestServer server([&](HttpRequest& request, ResponseWriter& writer) -> asio::awaitable<void> {
    running.set();
    if (request.path == "/slow") co_await wait_ms(50);
    HttpResponse response;
    response.body = request.path + (request.gone.cancelled() ? " gone" : " here");
    co_await writer.send(std::move(response));
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/slow")));
  ASSERT_TRUE(running.wait());
  ASSERT_TRUE(client.send(get("/next")));
  EXPECT_TRUE(client.read_answer().ends_with("/slow here"));
  EXPECT_TRUE(client.read_answer().ends_with("/next here"));
}

TEST(HttpServer, AFloodOfPipelinedRequestsIsNotReadWhileAHandlerRuns) {
  Event release;
  std::atomic<int> served{0};
  TestServer server([&](HttpRequest&, ResponseWriter& writer) -> asio::awaitable<void> {
    while (!release.wait(0)) co_await wait_ms(2);
    ++served;
    co_await writer.send({});
  });
  RawClient client(server.port());
  const timeval limit{0, 300'000};
  ::setsockopt(client.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  std::string flood;
  for (int i = 0; i < 1'000; ++i) flood += get("/flood-with-a-path-that-is-somewhat-longer");
  size_t sent = 0;
  while (sent < (64u << 20) && client.send(flood)) sent += flood.size();
  EXPECT_LT(sent, 64u << 20) << "the server took everything";
  release.set();
  EXPECT_EQ(status_of(client.read_answer()), 200);
}

TEST(HttpServer, AStreamedAnswerIsChunkedAndComesAsItIsWritten) {
  Event go_on;
  TestServer server([&](HttpRequest&, ResponseWriter& writer) -> asio::awaitable<void> {
    Headers headers;
    headers.add("content-type", "text/event-stream");
    co_await writer.begin(200, std::move(headers));
    co_await writer.write("first");
    while (!go_on.wait(0)) co_await wait_ms(2);
    co_await writer.write("");
    co_await writer.write("second piece");
    co_await writer.end();
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/")));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("transfer-encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(client.read_until("first\r\n"), "5\r\nfirst\r\n");
  go_on.set();
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "c\r\nsecond piece\r\n0\r\n\r\n");
  ASSERT_TRUE(client.send(get("/")));
  EXPECT_EQ(status_of(client.read_until("\r\n\r\n")), 200);
}

TEST(HttpServer, AnHttp10ClientGetsAnAnswerThatEndsWithTheConnection) {
  TestServer server([](HttpRequest&, ResponseWriter& writer) -> asio::awaitable<void> {
    co_await writer.begin(200, {});
    co_await writer.write("plain");
    co_await writer.end();
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send("GET / HTTP/1.0\r\n\r\n"));
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.ends_with("\r\n\r\nplain")) << answer;
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
  EXPECT_TRUE(client.closed());
}

TEST(HttpServer, AHeadRequestGetsTheHeadersWithoutTheBody) {
  TestServer server(echo);
  RawClient client(server.port());
  ASSERT_TRUE(client.send("HEAD /abc HTTP/1.1\r\nhost: x\r\n\r\n"));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("content-length: 11\r\n"), std::string::npos) << head;
  ASSERT_TRUE(client.send(get("/z")));
  EXPECT_TRUE(client.read_answer().ends_with("GET /z? "));
}

TEST(HttpServer, ExpectContinueIsAnsweredBeforeTheBodyIsRead) {
  TestServer server(echo);
  RawClient client(server.port());
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.send("hi"));
  EXPECT_TRUE(client.read_answer().ends_with("POST /? hi"));
}

TEST(HttpServer, ABodyThatIsTooLargeIsRefusedBeforeItIsSent) {
  ServerOptions options;
  options.max_body_bytes = 100;
  TestServer server(echo, options);
  RawClient client(server.port());
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 101\r\nexpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(status_of(client.read_answer()), 413);
  client.read_all();
  EXPECT_TRUE(client.closed());
}

TEST(HttpServer, AClientThatSendsItsLargeBodyAnywayStillReadsTheRefusal) {
  ServerOptions options;
  options.max_body_bytes = 1'000;
  TestServer server(echo, options);
  RawClient client(server.port());
  client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 500000\r\n\r\n" + std::string(500'000, 'x'));
  EXPECT_EQ(status_of(client.read_answer()), 413);
}

TEST(HttpServer, AChunkedBodyThatGrowsTooLargeIsRefused) {
  ServerOptions options;
  options.max_body_bytes = 100;
  TestServer server(echo, options);
  RawClient client(server.port());
  std::string body = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i) body += "a\r\n0123456789\r\n";
  client.send(body);
  EXPECT_EQ(status_of(client.read_answer()), 413);
}

TEST(HttpServer, AHeaderBlockThatIsTooLargeGets431WithTheErrorBodyOfTheApi) {
  ServerOptions options;
  options.max_header_bytes = 1'000;
  TestServer server(echo, options, [](int status, std::string_view message) {
    return "{\"status\":" + std::to_string(status) + ",\"message\":\"" + std::string(message) + "\"}";
  });
  RawClient client(server.port());
  client.send("GET / HTTP/1.1\r\nhost: x\r\nx: " + std::string(2'000, 'a'));
  const std::string answer = client.read_answer();
  EXPECT_EQ(status_of(answer), 431);
  EXPECT_NE(answer.find("content-type: application/json\r\n"), std::string::npos);
  EXPECT_NE(answer.find("{\"status\":431,"), std::string::npos);
}

TEST(HttpServer, RequestsThatTwoServersCouldReadDifferentlyAreRefused) {
  TestServer server(echo);
  const std::string hidden = "GET /hidden HTTP/1.1\r\nhost: x\r\n\r\n";
  for (const std::string headers : {"content-length: 5\r\ncontent-length: 6",
                                    "content-length: 5\r\ncontent-length: 5",
                                    "content-length: 5, 5",
                                    "content-length: 5\r\ntransfer-encoding: chunked",
                                    "transfer-encoding: chunked\r\ncontent-length: 5",
                                    "content-length: +5",
                                    "content-length: 0x5",
                                    "content-length: ",
                                    "content-length : 5",
                                    "content-length: 99999999999999999999",
                                    "x: a\r\n folded",
                                    "x: a\nb: c",
                                    "x: a\rb",
                                    "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
                                    "transfer-encoding: gzip, chunked",
                                    "transfer-encoding: xchunked",
                                    "transfer-encoding: chunked, identity",
                                    " x: leading",
                                    "host: y",
                                    "no-colon",
                                    ": empty"}) {
    RawClient client(server.port());
    client.send("POST / HTTP/1.1\r\nhost: x\r\n" + headers + "\r\n\r\n" + hidden);
    const std::string answer = client.read_all();
    EXPECT_GE(status_of(answer), 400) << headers;
    EXPECT_EQ(answer.find("/hidden"), std::string::npos) << headers;
    EXPECT_TRUE(client.closed()) << headers;
  }
  RawClient client(server.port());
  client.send(std::string("GET / HTTP/1.1\r\nhost: x\r\nx: a\0b\r\n\r\n", 38));
  EXPECT_EQ(status_of(client.read_all()), 400);
}

TEST(HttpServer, BadChunkSizesAreRefused) {
  TestServer server(echo);
  for (const std::string chunk :
       {"g\r\n", "-1\r\n", "ffffffffffffffffff\r\n", "\r\n", "1\r\nabc\r\n", " 1\r\na\r\n", "0x1\r\na\r\n"}) {
    RawClient client(server.port());
    client.send("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunk + "0\r\n\r\n" + "0\r\n\r\n");
    const int status = status_of(client.read_answer());
    EXPECT_TRUE(status == 400 || status == 413) << chunk << " gave " << status;
  }
}

TEST(HttpServer, AHandlerThatThrowsGives500AndTheServerGoesOn) {
  TestServer server([](HttpRequest& request, ResponseWriter& writer) -> asio::awaitable<void> {
    if (request.path == "/throw") throw std::runtime_error("broken");
    if (request.path == "/silent") co_return;
    co_await writer.send({});
  });
  RawClient client(server.port());
  for (const auto& [path, status] : {std::pair("/throw", 500), std::pair("/silent", 500), std::pair("/fine", 200)}) {
    ASSERT_TRUE(client.send(get(path)));
    EXPECT_EQ(status_of(client.read_answer()), status) << path;
  }
}

TEST(HttpServer, AHandlerThatThrowsInsideAStreamCutsTheAnswerVisibly) {
  TestServer server([](HttpRequest&, ResponseWriter& writer) -> asio::awaitable<void> {
    co_await writer.begin(200, {});
    co_await writer.write("half");
    throw std::runtime_error("broken");
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/")));
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.ends_with("4\r\nhalf\r\n")) << answer;
  EXPECT_TRUE(client.closed());
}

TEST(HttpServer, AHeaderValueCannotSmuggleALineBreakIntoTheAnswer) {
  TestServer server([](HttpRequest&, ResponseWriter& writer) -> asio::awaitable<void> {
    HttpResponse response;
    response.headers.add("x-note", "a\r\nset-cookie: evil");
    response.headers.add("content-length", "99");
    co_await writer.send(std::move(response));
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/")));
  const std::string answer = client.read_until("\r\n\r\n");
  EXPECT_EQ(answer.find("\r\nset-cookie"), std::string::npos);
  EXPECT_NE(answer.find("content-length: 0\r\n"), std::string::npos);
}

// C-37, C-38
TEST(HttpServer, AClientThatGoesIsNoticedWhileItsHandlerWaits) {
  Event running;
  Event noticed;
  TestServer server([&](HttpRequest& request, ResponseWriter& writer) -> asio::awaitable<void> {
    running.set();
    if (co_await wait_until_gone(request)) noticed.set();
    const auto sent = co_await writer.send({});
    EXPECT_FALSE(sent.has_value());
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/")));
  ASSERT_TRUE(running.wait());
  client.close();
  EXPECT_TRUE(noticed.wait());
  EXPECT_TRUE(eventually([&] { return server.server().connections() == 0; }));
}

TEST(HttpServer, AClientThatGoesWhileItIsStreamedToIsNoticed) {
  Event noticed;
  TestServer server([&](HttpRequest& request, ResponseWriter& writer) -> asio::awaitable<void> {
    co_await writer.begin(200, {});
    while ((co_await writer.write("x")).has_value()) co_await wait_ms(1);
    EXPECT_TRUE(request.gone.cancelled());
    noticed.set();
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/")));
  client.read_until("x\r\n");
  client.close();
  EXPECT_TRUE(noticed.wait());
}

TEST(HttpServer, ARequestThatWasAnsweredIsNeverReportedAsGone) {
  Event ended;
  CancelToken gone;
  TestServer server([&](HttpRequest& request, ResponseWriter& writer) -> asio::awaitable<void> {
    gone = request.gone;
    co_await wait_ms(5);
    co_await writer.send({});
    ended.set();
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/")));
  EXPECT_EQ(status_of(client.read_answer()), 200);
  client.close();
  ASSERT_TRUE(ended.wait());
  EXPECT_TRUE(eventually([&] { return server.server().connections() == 0; }));
  EXPECT_FALSE(gone.cancelled());
}

TEST(HttpServer, AReaderThatIsSlowMakesTheWriterWait) {
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

TEST(HttpServer, AReaderThatStopsCountsAsGoneAfterTheWriteTimeout) {
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
TEST(HttpServer, ASlowSenderMeetsTheTotalDeadlineOfTheHeader) {
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
TEST(HttpServer, HundredsOfSlowSendersNeitherGrowMemoryNorKeepOthersOut) {
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

TEST(HttpServer, AcceptGoesOnOnceThereAreFileDescriptorsAgain) {
  TestServer server(echo);
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const int spare = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(spare, 0);
  rlimit none = usual;
  none.rlim_cur = static_cast<rlim_t>(spare) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  ::close(spare);
  RawClient client(server.port());  // takes the last one
  const bool sent = client.send(get("/"));
  const std::string early = client.read_until("\r\n\r\n", 150);
  ::setrlimit(RLIMIT_NOFILE, &usual);
  ASSERT_TRUE(client.connected() && sent);
  EXPECT_EQ(early, "") << "there was still a file descriptor";
  EXPECT_EQ(status_of(client.read_answer()), 200);
}

TEST(HttpServer, AnAddressGetsNoMoreThanItsShareOfTheConnections) {
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

TEST(HttpServer, ABodyThatDoesNotComeInTimeGets408) {
  ServerOptions options;
  options.body_timeout_ms = 50;
  TestServer server(echo, options);
  RawClient client(server.port());
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab"));
  EXPECT_EQ(status_of(client.read_answer()), 408);
}

TEST(HttpServer, AnIdleConnectionIsClosedWithoutAWord) {
  ServerOptions options;
  options.idle_timeout_ms = 50;
  TestServer server(echo, options);
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/")));
  EXPECT_EQ(status_of(client.read_answer()), 200);
  EXPECT_EQ(client.read_all(), "");
  EXPECT_TRUE(client.closed());
}

TEST(HttpServer, ConnectionsBeyondTheLimitAreClosedAndTheOthersGoOn) {
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

TEST(HttpServer, DrainLetsARunningRequestEndAndClosesIdleConnections) {
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

TEST(HttpServer, DrainCutsWhatDoesNotEndInTime) {
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

TEST(HttpServer, AUnixSocketServesAndReplacesAStaleFile) {
  const std::string path = std::filesystem::temp_directory_path() / ("pf-net-" + std::to_string(::getpid()) + ".sock");
  {
    // A socket file whose owner was killed.
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::close(fd);
  }
  {
    TestServer server(echo);
    const auto listening = server.server().listen_unix(path);
    ASSERT_TRUE(listening.has_value()) << listening.error().message;
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_FALSE(server.server().listen_unix(path).has_value()) << "a living socket must not be taken over";
    RawClient client(path);
    ASSERT_TRUE(client.send(get("/u")));
    EXPECT_TRUE(client.read_answer().ends_with("GET /u? "));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(HttpServer, AnAddressThatIsTakenIsRefusedInWords) {
  TestServer server(echo);
  const auto again = server.server().listen_tcp("127.0.0.1", server.port());
  ASSERT_FALSE(again.has_value());
  EXPECT_NE(again.error().message.find("cannot listen on 127.0.0.1:"), std::string::npos);
}

TEST(HttpServer, ManyClientsOnSeveralThreadsGetTheirOwnAnswers) {
  TestServer server([](HttpRequest& request, ResponseWriter& writer) -> asio::awaitable<void> {
    if (request.path.back() % 2) co_await wait_ms(1);
    co_await echo(request, writer);
  });
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      RawClient client(server.port());
      for (int i = 0; i < 50; ++i) {
        const std::string path = "/" + std::to_string(t) + "-" + std::to_string(i);
        client.send(get(path));
        if (client.read_answer().ends_with("GET " + path + "? ")) ++right;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 400);
}

}  // namespace
}  // namespace pocketfleet::net
