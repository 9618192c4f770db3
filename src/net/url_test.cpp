#include "net/url.h"

#include <gtest/gtest.h>

#include "net/http.h"

namespace pocketfleet::net {
namespace {

TEST(Url, PercentDecodingTakesOnlyWholeEscapes) {
  EXPECT_EQ(percent_decode("/a%20b%2Fc%e2%82%ac"), "/a b/c\xE2\x82\xAC");
  EXPECT_EQ(percent_decode("a+b"), "a+b");
  EXPECT_EQ(percent_decode("a+b", true), "a b");
  for (const std::string_view bad : {"%", "%1", "%zz", "a%2", "%00", "%-1"}) EXPECT_EQ(percent_decode(bad), std::nullopt) << bad;
}

TEST(Url, AQueryBecomesPairsInOrder) {
  const auto pairs = parse_query("a=1&b=x%26y+z&&c&a=2&=v&bad=%zz");
  const std::vector<std::pair<std::string, std::string>> expected = {{"a", "1"}, {"b", "x&y z"}, {"c", ""},
                                                                     {"a", "2"}, {"", "v"},      {"bad", "%zz"}};
  EXPECT_EQ(pairs, expected);
}

TEST(Url, TheThreeKindsOfAddressAreUnderstood) {
  const auto plain = parse_url("http://example.test:8080/v1/models?x=1#frag");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->host, "example.test");
  EXPECT_EQ(plain->port, 8080);
  EXPECT_EQ(plain->target, "/v1/models?x=1");
  EXPECT_EQ(plain->authority(), "example.test:8080");
  const auto secure = parse_url("https://[::1]");
  ASSERT_TRUE(secure.has_value());
  EXPECT_EQ(secure->host, "::1");
  EXPECT_EQ(secure->port, 443);
  EXPECT_EQ(secure->target, "/");
  EXPECT_EQ(secure->authority(), "[::1]");
  const auto local = parse_url("unix:/run/pf.sock:/v1/classify");
  ASSERT_TRUE(local.has_value());
  EXPECT_EQ(local->host, "/run/pf.sock");
  EXPECT_EQ(local->target, "/v1/classify");
  EXPECT_EQ(parse_url("http://h?x")->target, "/?x");
}

TEST(Url, WhatIsNoAddressIsRefusedInWords) {
  for (const std::string bad :
       {"", "example.test", "ftp://x", "http://", "http://:80", "http://h:0", "http://h:65536", "http://h:8x", "http://[::1",
        "http://[::1]8", "http://user:pw@h", "http://h/a b", "http://h/\r\nx: y", "unix:"}) {
    const auto url = parse_url(bad);
    ASSERT_FALSE(url.has_value()) << bad;
    EXPECT_NE(url.error().message.find("write http://"), std::string::npos) << bad;
  }
}

TEST(Headers, NamesCompareWithoutCaseAndKeepTheirOrder) {
  Headers headers{{"Content-Type", "a"}, {"X-One", "1"}, {"content-type", "b"}};
  EXPECT_EQ(headers.get("CONTENT-TYPE"), "a");
  EXPECT_EQ(headers.get("x-two"), std::nullopt);
  headers.set("content-TYPE", "c");
  ASSERT_EQ(headers.items().size(), 2u);
  EXPECT_EQ(headers.items()[0].first, "X-One");
  EXPECT_EQ(headers.get("content-type"), "c");
}

}  // namespace
}  // namespace pocketfleet::net
