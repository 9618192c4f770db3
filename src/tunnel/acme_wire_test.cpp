#include "tunnel/acme_wire.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "crypto/base64.h"

namespace pocketfleet::tunnel {
namespace {

TEST(AcmeWire, AKeyAsJsonIsThatOfTheRfc) {
  // RFC 7515, A.3.
  const std::string x = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
  const std::string y = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
  const std::string last = *from_base64url(y);
  const auto key = P256PublicKey::from_compressed(std::string(1, static_cast<char>(2 + (last.back() & 1))) + *from_base64url(x));
  ASSERT_TRUE(key) << key.error().message;
  EXPECT_EQ(*public_jwk(*key), R"({"crv":"P-256","kty":"EC","x":")" + x + R"(","y":")" + y + "\"}");
  EXPECT_EQ(jwk_thumbprint(*key)->size(), 43u);
}

TEST(AcmeWire, TimesToComeBackAreReadInBothForms) {
  const int64_t now_ms = 784'111'777'000;  // Sun, 06 Nov 1994 08:49:37 GMT
  EXPECT_EQ(parse_retry_after("0", now_ms), 0);
  EXPECT_EQ(parse_retry_after("120", now_ms), 120);
  EXPECT_EQ(parse_retry_after("999999999", now_ms), 31 * 86'400);
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:50:37 GMT", now_ms), 60);
  EXPECT_EQ(parse_retry_after("Mon, 07 Nov 1994 08:49:37 GMT", now_ms), 86'400);
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:36 GMT", now_ms), 0);
  EXPECT_EQ(parse_retry_after("Fri, 01 Jan 9999 00:00:00 GMT", now_ms), 31 * 86'400);
  for (const char* text : {"", "-1", "1.5", " 1", "1 ", "9999999999", "soon", "Sun, 06 Nov 1994 08:49:37 UTC",
                           "Sun, 31 Feb 1995 08:49:37 GMT", "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, xx Nov 1994 08:49:37 GMT"})
    EXPECT_EQ(parse_retry_after(text, now_ms), 0) << text;
}

TEST(AcmeWire, TimestampsAreReadWithFractionsAndZones) {
  EXPECT_EQ(parse_timestamp_ms("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(parse_timestamp_ms("2026-01-02T00:00:00Z"), 1'767'312'000'000);
  EXPECT_EQ(parse_timestamp_ms("2026-01-02t00:00:00.5z"), 1'767'312'000'500);
  EXPECT_EQ(parse_timestamp_ms("2026-01-02T00:00:00.1239999999Z"), 1'767'312'000'123);
  EXPECT_EQ(parse_timestamp_ms("2026-01-02T01:30:00+01:30"), 1'767'312'000'000);
  EXPECT_EQ(parse_timestamp_ms("2026-01-01T19:00:00-05:00"), 1'767'312'000'000);
  for (const char* text :
       {"", "2026-01-02", "2026-01-02T00:00:00", "2026-01-02 00:00:00Z", "2026-13-02T00:00:00Z", "2026-02-30T00:00:00Z",
        "2026-01-02T24:00:00Z", "2026-01-02T00:00:00.Z", "2026-01-02T00:00:00+1:00", "2026-01-02T00:00:00+01:00x",
        "2026-01-02T00:00:00ZZ", "x026-01-02T00:00:00Z", "2026-01-02T00:00:00+24:00"})
    EXPECT_EQ(parse_timestamp_ms(text), std::nullopt) << text;
}

TEST(AcmeWire, WhatAnAuthorityWritesFitsALine) {
  const Json part = {{"detail", "second"}, {"identifier", {{"type", "dns"}, {"value", "b.example"}}}};
  const Json document = {{"type", std::string(5'000, 't')},
                         {"detail", "line\none\x7f" + std::string(1'000, 'd')},
                         {"status", 99'999},
                         {"subproblems", Json::array({Json::object(), 7, part})}};
  const AcmeProblem problem = problem_in(document);
  EXPECT_EQ(problem.type, "");  // no type is as long as that
  EXPECT_EQ(problem.detail.substr(0, 10), "line one d");
  EXPECT_LT(problem.detail.size(), 800u);
  EXPECT_TRUE(problem.detail.ends_with("; b.example: second"));
  EXPECT_EQ(problem.status, 999);
  EXPECT_FALSE(problem.is("badNonce"));
  const AcmeProblem none = read_problem(502, "<html>");
  EXPECT_EQ(none.status, 502);
  EXPECT_EQ(describe(none), "");
  EXPECT_EQ(error_of(none, "x", 0).code, ErrorCode::kUnavailable);
  const AcmeProblem odd = problem_in(Json(7));
  EXPECT_EQ(describe(odd), "");
}

}  // namespace
}  // namespace pocketfleet::tunnel
