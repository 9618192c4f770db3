#include "net/http_client.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <filesystem>

#include "net/net_test_util.h"

namespace pocketfleet::net {
namespace {

asio::awaitable<void> describe(HttpRequest& request, ResponseWriter& writer) {
  HttpResponse response(request.path == "/teapot" ? 418 : 200);
  response.headers.add("x-remote", request.remote);
  response.body = request.method + " " + request.target + " " + request.body;
  if (request.path == "/slow") co_await wait_ms(150);
  co_await writer.send(std::move(response));
}

std::string url_of(const TestServer& server, std::string_view path) {
  return "http://127.0.0.1:" + std::to_string(server.port()) + std::string(path);
}

// A server that says exactly what it is told to each connection in turn, then closes it.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> answers) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 16), 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answers = std::move(answers)] {
      for (const auto& answer : answers) {
        const int client = ::accept(fd_, nullptr, nullptr);
        if (client < 0) return;
        char buffer[4096];
        if (::recv(client, buffer, sizeof buffer, 0) > 0) ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
        ::close(client);
      }
    });
  }
  ~ScriptedServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/"; }

 private:
  int fd_;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST(HttpClient, ARequestGetsItsAnswerAndTheConnectionIsReused) {
  TestServer server(describe);
  BlockingHttpClient client;
  std::string remote;
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.request(ClientRequest("POST", url_of(server, "/a?b"), {}, "body"));
    ASSERT_TRUE(answer.has_value()) << answer.error().message;
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "POST /a?b body");
    if (i > 0) {
      EXPECT_EQ(answer->headers.get("x-remote"), remote);
    }
    remote = *answer->headers.get("x-remote");
  }
  EXPECT_EQ(server.server().connections(), 1u);
}

TEST(HttpClient, AnyStatusIsAValue) {
  TestServer server(describe);
  BlockingHttpClient client;
  EXPECT_EQ(client.request(ClientRequest("GET", url_of(server, "/teapot")))->status, 418);
  const auto head = client.request(ClientRequest("HEAD", url_of(server, "/x")));
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->body, "");
}

TEST(HttpClient, SeveralThreadsShareOneClient) {
  TestServer server(describe);
  BlockingHttpClient client;
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string path = "/" + std::to_string(t * 100 + i);
        const auto answer = client.request(ClientRequest("GET", url_of(server, path)));
        if (answer && answer->body == "GET " + path + " ") ++right;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 120);
  EXPECT_LE(server.server().connections(), 6u);
}

TEST(HttpClient, AStreamedAnswerComesPieceByPiece) {
  Event first_seen;
  TestServer server([&](HttpRequest&, ResponseWriter& writer) -> asio::awaitable<void> {
    Headers headers;
    headers.add("content-type", "text/event-stream");
    co_await writer.begin(200, std::move(headers));
    co_await writer.write("one");
    // The second piece is only made once the client has the first.
    while (!first_seen.wait(0)) co_await wait_ms(2);
    co_await writer.write("two");
    co_await writer.end();
  });
  BlockingHttpClient client;
  std::string body;
  std::string type;
  const auto result = client.stream(
      ClientRequest("GET", url_of(server, "/")),
      [&](int status, const Headers& headers) {
        type = headers.get("content-type").value_or("");
        return status == 200;
      },
      [&](std::string_view bytes) {
        body += bytes;
        first_seen.set();
        return true;
      });
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(type, "text/event-stream");
  EXPECT_EQ(body, "onetwo");
}

TEST(HttpClient, ACallerWhoStopsTheStreamEndsTheServersWork) {
  Event noticed;
  TestServer server([&](HttpRequest& request, ResponseWriter& writer) -> asio::awaitable<void> {
    co_await writer.begin(200, {});
    while ((co_await writer.write("x")).has_value() && !request.gone.cancelled()) co_await wait_ms(1);
    noticed.set();
  });
  BlockingHttpClient client;
  const auto result = client.stream(ClientRequest("GET", url_of(server, "/")), {}, [](std::string_view) { return false; });
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(noticed.wait());
}

TEST(HttpClient, ACancelledRequestEndsAtOnceAndSoDoesOneThatIsTooLate) {
  Event noticed;
  TestServer server([&](HttpRequest& request, ResponseWriter&) -> asio::awaitable<void> {
    while (!request.gone.cancelled()) co_await wait_ms(2);
    noticed.set();
  });
  BlockingHttpClient client;
  ClientRequest request("GET", url_of(server, "/"));
  std::thread canceller([token = request.cancel] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    token.cancel();
  });
  const auto cancelled = client.request(request);
  canceller.join();
  ASSERT_FALSE(cancelled.has_value());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(noticed.wait());
  ClientRequest late("GET", url_of(server, "/"));
  late.total_timeout_ms = 50;
  const auto timed_out = client.request(late);
  ASSERT_FALSE(timed_out.has_value());
  EXPECT_EQ(timed_out.error().code, ErrorCode::kDeadlineExceeded);
}

TEST(HttpClient, AKeptConnectionThatTheServerClosedIsReplacedSilently) {
  ServerOptions options;
  options.idle_timeout_ms = 20;
  TestServer server(describe, options);
  BlockingHttpClient client;
  ASSERT_TRUE(client.request(ClientRequest("GET", url_of(server, "/1"))).has_value());
  ASSERT_TRUE(eventually([&] { return server.server().connections() == 0; }));
  const auto again = client.request(ClientRequest("POST", url_of(server, "/2"), {}, "x"));
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(again->body, "POST /2 x");
}

TEST(HttpClient, BodiesEndByLengthByChunksOrWithTheConnection) {
  ScriptedServer server({"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
                         "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
                         "1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
                         "HTTP/1.0 200 OK\r\n\r\nok"});
  BlockingHttpClient client;
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.request(ClientRequest("GET", server.url()));
    ASSERT_TRUE(answer.has_value()) << i << answer.error().message;
    EXPECT_EQ(answer->body, "ok") << i;
  }
}

TEST(HttpClient, AnAnswerThatIsCutOrBrokenIsAnError) {
  ScriptedServer server({"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", "", "SSH-2.0-OpenSSH\r\n\r\n",
                         "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok"});
  BlockingHttpClient client;
  EXPECT_EQ(client.request(ClientRequest("GET", server.url())).error().code, ErrorCode::kConnectionClosed);
  EXPECT_EQ(client.request(ClientRequest("GET", server.url())).error().code, ErrorCode::kConnectionClosed);
  EXPECT_EQ(client.request(ClientRequest("GET", server.url())).error().code, ErrorCode::kProtocol);
  EXPECT_EQ(client.request(ClientRequest("GET", server.url())).error().code, ErrorCode::kProtocol);
}

TEST(HttpClient, AnAnswerBeyondTheBoundIsAnError) {
  TestServer server([](HttpRequest&, ResponseWriter& writer) -> asio::awaitable<void> {
    co_await writer.send(HttpResponse(200, {}, std::string(2'000, 'x')));
  });
  ClientOptions options;
  options.max_body_bytes = 1'000;
  BlockingHttpClient client(options);
  EXPECT_EQ(client.request(ClientRequest("GET", url_of(server, "/"))).error().code, ErrorCode::kProtocol);
}

TEST(HttpClient, AddressesThatCannotBeReachedAreErrorsInWords) {
  uint16_t free_port = 0;
  {
    TestServer server(describe);
    free_port = server.port();
  }
  BlockingHttpClient client;
  const auto refused = client.request(ClientRequest("GET", "http://127.0.0.1:" + std::to_string(free_port) + "/"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(refused.error().message.find("cannot connect to 127.0.0.1:"), std::string::npos);
  EXPECT_EQ(client.request(ClientRequest("GET", "unix:/does/not/exist")).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client.request(ClientRequest("GET", "nonsense")).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client.request(ClientRequest("G ET", "http://127.0.0.1:1/")).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client.request(ClientRequest("GET", "http://127.0.0.1:1/", {{"x", "a\r\nb: c"}})).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(HttpClient, AUnixSocketIsCalledLikeAnyOtherAddress) {
  const std::string path = std::filesystem::temp_directory_path() / ("pf-client-" + std::to_string(::getpid()) + ".sock");
  TestServer server(describe);
  ASSERT_TRUE(server.server().listen_unix(path).has_value());
  BlockingHttpClient client;
  const auto answer = client.request(ClientRequest("GET", "unix:" + path + ":/v1/models"));
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_EQ(answer->body, "GET /v1/models ");
  EXPECT_EQ(answer->headers.get("x-remote"), "unix");
}

// A certificate for 127.0.0.1 and localhost, made for this run.
struct Certificate {
  std::filesystem::path folder;
  std::string certificate;
  std::string key;

  Certificate() {
    std::string name = std::filesystem::temp_directory_path() / "pf-tls-XXXXXX";
    folder = ::mkdtemp(name.data());
    certificate = folder / "cert.pem";
    key = folder / "key.pem";
    EVP_PKEY* pair = EVP_EC_gen("P-256");
    X509* x509 = X509_new();
    X509_set_version(x509, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509), -60);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3'600);
    X509_set_pubkey(x509, pair);
    X509_NAME* subject = X509_get_subject_name(x509);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(x509, subject);
    X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    X509_add_ext(x509, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(x509, pair, EVP_sha256());
    FILE* file = std::fopen(certificate.c_str(), "w");
    PEM_write_X509(file, x509);
    std::fclose(file);
    file = std::fopen(key.c_str(), "w");
    PEM_write_PrivateKey(file, pair, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    X509_free(x509);
    EVP_PKEY_free(pair);
  }
  ~Certificate() { std::filesystem::remove_all(folder); }
};

// Accepts TLS and hands the streams to the HTTP server, as a tunnel will.
class TlsFront {
 public:
  TlsFront(TestServer& server, const Certificate& certificate) : acceptor_(asio::make_strand(server.loop().context())) {
    TlsOptions options;
    options.certificate_chain_file = certificate.certificate;
    options.private_key_file = certificate.key;
    auto context = TlsContext::server(options);
    EXPECT_TRUE(context.has_value()) << context.error().message;
    acceptor_.open(asio::ip::tcp::v4());
    acceptor_.bind({asio::ip::address_v4::loopback(), 0});
    acceptor_.listen();
    port_ = acceptor_.local_endpoint().port();
    done_ = asio::co_spawn(acceptor_.get_executor(), run(server, *context), asio::use_future);
  }
  ~TlsFront() {
    asio::post(acceptor_.get_executor(), [this] { acceptor_.close(); });
    done_.get();
  }
  std::string url(std::string_view host, std::string_view path) const {
    return "https://" + std::string(host) + ":" + std::to_string(port_) + std::string(path);
  }

 private:
  asio::awaitable<void> run(TestServer& server, std::shared_ptr<TlsContext> context) {
    while (acceptor_.is_open()) {
      boost::system::error_code ec;
      const asio::any_io_executor strand = asio::make_strand(server.loop().context());
      asio::ip::tcp::socket socket(strand);
      co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, ec));
      if (ec) break;
      asio::co_spawn(strand, serve(server, context, std::move(socket)), asio::detached);
    }
  }
  static asio::awaitable<void> serve(TestServer& server, std::shared_ptr<TlsContext> context, asio::ip::tcp::socket socket) {
    auto stream = co_await TlsContext::accept(context, make_socket_stream(std::move(socket), "tls"), 5'000);
    if (stream) server.server().serve_stream(std::move(*stream));
  }

  asio::ip::tcp::acceptor acceptor_;
  uint16_t port_ = 0;
  std::future<void> done_;
};

TEST(Tls, TheServerAndTheClientSpeakOverTls) {
  const Certificate certificate;
  TestServer server(describe);
  TlsFront front(server, certificate);
  TlsOptions trust;
  trust.trusted_file = certificate.certificate;
  ClientOptions options;
  options.tls = *TlsContext::client(trust);
  BlockingHttpClient client(options);
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    const auto answer = client.request(ClientRequest("POST", front.url(host, "/t"), {}, std::string(300'000, 'b')));
    ASSERT_TRUE(answer.has_value()) << answer.error().message;
    EXPECT_EQ(answer->body, "POST /t " + std::string(300'000, 'b'));
  }
  // Longer than the client's own polling, so reads are cancelled and taken up again in the middle of the connection.
  const auto slow = client.request(ClientRequest("GET", front.url("localhost", "/slow")));
  ASSERT_TRUE(slow.has_value()) << slow.error().message;
  EXPECT_EQ(slow->body, "GET /slow ");
  EXPECT_EQ(server.server().connections(), 2u) << "the slow request used a kept connection";
}

TEST(Tls, ACertificateThatIsNotTrustedOrForAnotherNameIsRefused) {
  const Certificate certificate;
  const Certificate other;
  TestServer server(describe);
  TlsFront front(server, certificate);
  TlsOptions trust;
  trust.trusted_file = other.certificate;
  ClientOptions options;
  options.tls = *TlsContext::client(trust);
  BlockingHttpClient stranger(options);
  const auto untrusted = stranger.request(ClientRequest("GET", front.url("localhost", "/")));
  ASSERT_FALSE(untrusted.has_value());
  EXPECT_NE(untrusted.error().message.find("not trusted"), std::string::npos) << untrusted.error().message;
  trust.trusted_file = certificate.certificate;
  options.tls = *TlsContext::client(trust);
  BlockingHttpClient client(options);
  const auto wrong_name = client.request(ClientRequest("GET", front.url("127.0.0.2", "/")));
  ASSERT_FALSE(wrong_name.has_value());
}

TEST(Tls, AClientThatGoesIsNoticedOverTlsToo) {
  const Certificate certificate;
  Event noticed;
  TestServer server([&](HttpRequest& request, ResponseWriter&) -> asio::awaitable<void> {
    while (!request.gone.cancelled()) co_await wait_ms(2);
    noticed.set();
  });
  TlsFront front(server, certificate);
  TlsOptions trust;
  trust.trusted_file = certificate.certificate;
  ClientOptions options;
  options.tls = *TlsContext::client(trust);
  BlockingHttpClient client(options);
  ClientRequest request("GET", front.url("localhost", "/"));
  request.total_timeout_ms = 100;
  EXPECT_EQ(client.request(request).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(noticed.wait());
}

TEST(Tls, AMissingCertificateIsNamed) {
  TlsOptions options;
  options.certificate_chain_file = "/does/not/exist.pem";
  const auto context = TlsContext::server(options);
  ASSERT_FALSE(context.has_value());
  EXPECT_NE(context.error().message.find("/does/not/exist.pem"), std::string::npos);
}

}  // namespace
}  // namespace pocketfleet::net
