#include "openai/cors.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

net::HttpRequest from(const std::string& origin) {
  net::HttpRequest request;
  request.method = "OPTIONS";
  request.headers.add("Origin", origin);
  request.headers.add("Access-Control-Request-Headers", "authorization, x-stainless-os");
  return request;
}

// C-51.
TEST(Cors, NoOriginIsEchoedByDefault) {
  const net::HttpResponse response = CorsPolicy().preflight(from("https://evil.example"));
  EXPECT_EQ(response.status, 204);
  EXPECT_TRUE(response.headers.items().empty());
}

// C-51.
TEST(Cors, OnlyNamedOriginsAreEchoedAndNeverWithCredentials) {
  const auto policy = CorsPolicy::of({"https://app.example", "http://localhost:5173"});
  ASSERT_TRUE(policy);
  for (const char* other :
       {"https://evil.example", "https://app.example.evil", "http://app.example", "https://app.example:444", "null"}) {
    EXPECT_FALSE(policy->preflight(from(other)).headers.contains("access-control-allow-origin")) << other;
  }
  const net::HttpResponse response = policy->preflight(from("http://localhost:5173"));
  EXPECT_EQ(response.headers.get("access-control-allow-origin"), "http://localhost:5173");
  EXPECT_EQ(response.headers.get("access-control-allow-headers"), "authorization, x-stainless-os");
  EXPECT_EQ(response.headers.get("vary"), "Origin");
  EXPECT_FALSE(response.headers.contains("access-control-allow-credentials"));
}

// C-49.
TEST(Cors, APreflightIsAnswered204) {
  EXPECT_EQ(CorsPolicy::of({"https://app.example"})->preflight(from("https://app.example")).status, 204);
}

TEST(Cors, WhatIsNotAnOriginIsRefused) {
  for (const char* text :
       {"app.example", "https://", "https://app.example/", "https://app.example/path", "", "://x", "https://a,b"}) {
    EXPECT_FALSE(CorsPolicy::of({text})) << text;
  }
  EXPECT_EQ(CorsPolicy::of({"*"})->preflight(from("https://any.example")).headers.get("access-control-allow-origin"), "*");
}

}  // namespace
}  // namespace pocketfleet
