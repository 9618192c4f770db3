#include "net/http_server.h"

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <stdexcept>

#include "net/net_test_util.h"

namespace pocketfleet::net {
namespace {

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
  client.send("GET / HTTP/1.1\r\nhost: x\r\nx: a" + std::string(1, '\0') + "b\r\n\r\n");
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
