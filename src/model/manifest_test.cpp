#include "model/manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace pocketfleet {
namespace {

const std::string kDigest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

Manifest example() {
  Manifest manifest;
  manifest.name = "scam-guard";
  manifest.source = "hf:example/scam-guard-GGUF:Q4_0";
  manifest.files = {{"scam-guard-q4_0.gguf", 2'875'328, kDigest}};
  manifest.licence = "Apache-2.0";
  manifest.chat_template_sha256 = kDigest;
  manifest.engine_name = "llama.cpp";
  manifest.engine_from = "0.4.0";
  manifest.engine_to = "0.5.12";
  manifest.golden = {{"<|im_start|>user\nhi \"é\" \x01<|im_end|>\n", {72, 105}, {31, 2}}};
  return manifest;
}

TEST(Manifest, WhatIsWrittenIsReadBackAsTheSame) {
  Manifest manifest = example();
  for (const bool is_signed : {false, true}) {
    if (is_signed) {
      manifest.signature_key = "a2V5";
      manifest.signature_value = "c2lnbmF0dXJl";
    }
    const auto again = parse_manifest(print_manifest(manifest));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(print_manifest(*again), print_manifest(manifest));
    EXPECT_EQ(again->golden[0].prompt, manifest.golden[0].prompt);
    EXPECT_EQ(again->signature_value, manifest.signature_value);
    EXPECT_EQ(signed_bytes(*again), signed_bytes(example())) << "the signature is not over itself";
  }
}

TEST(Manifest, TheSignedBytesAreCanonical) {
  const std::string bytes = signed_bytes(example());
  EXPECT_TRUE(
      bytes.starts_with("{\"chat_template_sha256\":\"" + kDigest + "\",\"engine\":{\"from\":\"0.4.0\",\"name\":\"llama.cpp\""))
      << bytes;
  EXPECT_NE(bytes.find(R"(hi \"é\" \u0001<|im_end|>\n)"), std::string::npos) << bytes;
  // Neither the order of fields nor white space counts.
  Json root = *parse_json(print_manifest(example()));
  EXPECT_EQ(signed_bytes(*parse_manifest(root.dump(7))), bytes);
}

TEST(Manifest, EveryFieldThatIsWrongIsNamed) {
  const auto field_of = [](auto change) {
    Json root = *parse_json(print_manifest(example()));
    change(root);
    const auto parsed = parse_manifest(root.dump());
    EXPECT_TRUE(parsed || parsed.error().code == ErrorCode::kInvalidArgument);
    return parsed ? std::string("none") : parsed.error().param;
  };
  EXPECT_EQ(field_of([](Json&) {}), "none");
  EXPECT_EQ(field_of([](Json& root) { root["golden"] = Json::array(); }), "none");
  EXPECT_EQ(field_of([](Json& root) { root["licence"] = ""; }), "none");
  EXPECT_EQ(field_of([](Json& root) { root["format"] = "x"; }), "format");
  EXPECT_EQ(field_of([](Json& root) { root["version"] = 2; }), "version");
  EXPECT_EQ(field_of([](Json& root) { root.erase("name"); }), "name");
  EXPECT_EQ(field_of([](Json& root) { root["name"] = "a b"; }), "name");
  EXPECT_EQ(field_of([](Json& root) { root["source"] = ""; }), "source");
  EXPECT_EQ(field_of([](Json& root) { root["files"] = Json::array(); }), "files");
  EXPECT_EQ(field_of([](Json& root) { root["files"][0]["name"] = "../x"; }), "files[0].name");
  EXPECT_EQ(field_of([](Json& root) { root["files"][0]["size_bytes"] = -1; }), "files[0].size_bytes");
  EXPECT_EQ(field_of([](Json& root) { root["files"][0]["size_bytes"] = 1.5; }), "files[0].size_bytes");
  EXPECT_EQ(field_of([](Json& root) { root["files"][0]["sha256"] = "AB"; }), "files[0].sha256");
  EXPECT_EQ(field_of([](Json& root) { root["files"][0]["more"] = 1; }), "files[0].more");
  EXPECT_EQ(field_of([](Json& root) { root["licence"] = std::string(300, 'x'); }), "licence");
  EXPECT_EQ(field_of([](Json& root) { root["chat_template_sha256"] = "x"; }), "chat_template_sha256");
  EXPECT_EQ(field_of([](Json& root) { root["engine"]["from"] = "4"; }), "engine.from");
  EXPECT_EQ(field_of([](Json& root) { root["engine"]["to"] = "0.3.9"; }), "engine.to");
  EXPECT_EQ(field_of([](Json& root) { root["golden"][0]["tokens"] = Json::array(); }), "golden[0].tokens");
  EXPECT_EQ(field_of([](Json& root) { root["golden"][0]["tokens"] = {-1}; }), "golden[0].tokens");
  EXPECT_EQ(field_of([](Json& root) { root["golden"][0]["prompt_tokens"] = {3'000'000'000u}; }), "golden[0].prompt_tokens");
  EXPECT_EQ(field_of([](Json& root) { root["signature"] = {{"key", "x"}}; }), "signature.value");
  EXPECT_EQ(field_of([](Json& root) { root["extra"] = 1; }), "extra");
  EXPECT_EQ(field_of([](Json& root) { root = Json::array(); }), "manifest");
}

TEST(Manifest, AnEngineOutsideTheRangeIsRefusedWithBothVersions) {
  for (const char* version : {"0.4.0", "0.4.0-dev", "0.4.99", "0.5.0", "0.5.12"})
    EXPECT_TRUE(check_engine(example(), "llama.cpp", version)) << version;
  for (const char* version : {"0.3.9", "0.5.13", "1.0.0", "", "x", "0.5"})
    EXPECT_FALSE(check_engine(example(), "llama.cpp", version)) << version;
  const auto other = check_engine(example(), "mnn", "0.4.0");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("llama.cpp 0.4.0 to 0.5.12"), std::string::npos) << other.error().message;
  EXPECT_NE(other.error().message.find("mnn 0.4.0"), std::string::npos);
}

}  // namespace
}  // namespace pocketfleet
