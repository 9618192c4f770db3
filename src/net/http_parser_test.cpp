#include "net/http_parser.h"

#include <gtest/gtest.h>

namespace pocketfleet::net {
namespace {

// Feeds `bytes` in pieces, as a connection does: what is not taken is offered again with what follows.
template <typename Parser>
std::string feed(Parser& parser, std::string_view bytes, size_t piece) {
  std::string held;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    held += bytes.substr(i, piece);
    held.erase(0, parser.put(held));
  }
  return held;
}

TEST(RequestParser, EverySplitOfTheBytesGivesTheSameRequest) {
  const std::string bytes =
      "\r\nPOST /a%2Fb?x=%20 HTTP/1.1\r\nHost: h\r\nX-Empty:\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "5;ext=\"v\"\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: t\r\n\r\nNEXT";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    RequestParser parser({});
    const std::string rest = feed(parser, bytes, piece);
    ASSERT_TRUE(parser.done()) << piece << parser.error_message();
    EXPECT_EQ(rest, "NEXT") << piece;
    EXPECT_EQ(parser.request().method, "POST");
    EXPECT_EQ(parser.request().path, "/a/b");
    EXPECT_EQ(parser.request().query, "x=%20");
    EXPECT_EQ(parser.request().target, "/a%2Fb?x=%20");
    EXPECT_EQ(parser.request().body, "hello world");
    EXPECT_EQ(parser.request().headers.get("x-empty"), "");
    EXPECT_EQ(parser.request().headers.get("trailer"), std::nullopt);
    EXPECT_TRUE(parser.keep_alive());
  }
}

TEST(RequestParser, AnEmptyChunkedBodyIsUnderstoodInEverySplit) {
  const std::string bytes = "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    RequestParser parser({});
    EXPECT_EQ(feed(parser, bytes, piece), "");
    EXPECT_TRUE(parser.done()) << piece << parser.error_message();
  }
}

TEST(RequestParser, KeepAliveFollowsTheVersionAndTheConnectionHeader) {
  for (const auto& [bytes, keep] :
       std::vector<std::pair<std::string, bool>>{{"GET / HTTP/1.1\r\nhost: h\r\n\r\n", true},
                                                 {"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n", false},
                                                 {"GET / HTTP/1.0\r\n\r\n", false},
                                                 {"GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n", true}}) {
    RequestParser parser({});
    parser.put(bytes);
    ASSERT_TRUE(parser.done()) << bytes << parser.error_message();
    EXPECT_EQ(parser.keep_alive(), keep) << bytes;
  }
}

TEST(RequestParser, WrongRequestsAreRefusedWithTheRightStatus) {
  for (const auto& [bytes, status] :
       std::vector<std::pair<std::string, int>>{{"GET / HTTP/2.0\r\nhost: h\r\n\r\n", 505},
                                                {"GET / HTTP/1.1\r\n\r\n", 400},
                                                {"GET / HTTP/1.1\r\nhost: h\r\nexpect: miracles\r\n\r\n", 417},
                                                {"GET x HTTP/1.1\r\nhost: h\r\n\r\n", 400},
                                                {"GET /%zz HTTP/1.1\r\nhost: h\r\n\r\n", 400},
                                                {"GET /%00 HTTP/1.1\r\nhost: h\r\n\r\n", 400},
                                                {"GET /\r\n\r\n", 400},
                                                {"\x16\x03\x01\x02\n", 400},
                                                {"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip\r\n\r\n", 501},
                                                {"POST / HTTP/1.0\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n", 400},
                                                {"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 8388609\r\n\r\n", 413}}) {
    for (const size_t piece : {size_t{1}, bytes.size()}) {
      RequestParser parser({});
      feed(parser, bytes, piece);
      EXPECT_EQ(parser.error_status(), status) << bytes;
      EXPECT_FALSE(parser.error_message().empty()) << bytes;
      EXPECT_FALSE(parser.done()) << bytes;
    }
  }
}

TEST(RequestParser, TheAbsoluteFormAndTheAsteriskAreUnderstood) {
  RequestParser absolute({});
  absolute.put("GET http://h:1/p?q HTTP/1.1\r\nhost: h\r\n\r\n");
  ASSERT_TRUE(absolute.done()) << absolute.error_message();
  EXPECT_EQ(absolute.request().path, "/p");
  RequestParser asterisk({});
  asterisk.put("OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n");
  EXPECT_TRUE(asterisk.done()) << asterisk.error_message();
}

TEST(RequestParser, AChunkLineThatNeverEndsIsRefused) {
  RequestParser parser({});
  std::string held = "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n1;";
  for (int i = 0; i < 100'000 && !parser.error_status(); ++i) {
    held.erase(0, parser.put(held));
    held += "x";
  }
  EXPECT_EQ(parser.error_status(), 400);
  EXPECT_LT(held.size(), 20'000u);
}

TEST(RequestParser, TheLimitOfTheHeaderIsExact) {
  const std::string head = "GET / HTTP/1.1\r\nhost: h\r\nx: ";
  for (const auto& [total, status] : {std::pair<size_t, int>{1'000, 0}, {1'001, 431}}) {
    RequestParser parser({1'000, 0});
    const std::string bytes = head + std::string(total - head.size() - 4, 'a') + "\r\n\r\n";
    feed(parser, bytes, 100);
    EXPECT_EQ(parser.error_status(), status) << total << parser.error_message();
    EXPECT_EQ(parser.done(), status == 0);
  }
}

TEST(ResponseParser, LengthChunksAndTheEndOfTheConnectionEndABody) {
  for (const auto& [bytes, keep] : std::vector<std::pair<std::string, bool>>{
           {"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", true},
           {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", true},
           {"HTTP/1.1 200 OK\r\n\r\nhello", false},
           {"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", false}}) {
    for (const size_t piece : {size_t{1}, size_t{4}, bytes.size()}) {
      ResponseParser parser({}, false);
      feed(parser, bytes, piece);
      if (!parser.done()) parser.put_end();
      ASSERT_TRUE(parser.done()) << bytes << parser.error_message();
      EXPECT_EQ(parser.take_body(), "hello");
      EXPECT_EQ(parser.status(), 200);
      EXPECT_EQ(parser.keep_alive(), keep) << bytes;
    }
  }
}

TEST(ResponseParser, AnAnswerThatIsCutIsNoAnswer) {
  for (const std::string bytes : {"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\ncontent-le",
                                  "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", ""}) {
    ResponseParser parser({}, false);
    feed(parser, bytes, 3);
    parser.put_end();
    EXPECT_TRUE(parser.failed()) << bytes;
    EXPECT_FALSE(parser.done()) << bytes;
  }
}

TEST(ResponseParser, AnswersWithoutABodyEndAtTheirHeader) {
  for (const std::string bytes : {"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
                                  "HTTP/1.1 100 Continue\r\n\r\n"}) {
    ResponseParser parser({}, false);
    parser.put(bytes);
    EXPECT_TRUE(parser.done()) << bytes;
  }
  ResponseParser head({}, true);
  head.put("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n");
  EXPECT_TRUE(head.done());
}

TEST(ResponseParser, ABodyBeyondTheBoundFails) {
  for (const std::string& bytes :
       {std::string("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n"), "HTTP/1.1 200 OK\r\n\r\n" + std::string(11, 'x'),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb\r\n" + std::string(11, 'x')}) {
    ResponseParser parser({1'000, 10}, false);
    parser.put(bytes);
    EXPECT_TRUE(parser.failed()) << bytes;
  }
}

}  // namespace
}  // namespace pocketfleet::net
