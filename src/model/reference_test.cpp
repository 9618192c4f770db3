#include "model/reference.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

std::vector<HubFile> files(std::initializer_list<const char*> names) {
  std::vector<HubFile> out;
  for (const char* name : names) out.push_back({name, 1, {}});
  return out;
}

TEST(Reference, APathAnAddressAndAHubNameAreToldApart) {
  EXPECT_EQ(parse_reference("models/a.gguf")->kind, ReferenceKind::kPath);
  EXPECT_EQ(parse_reference("C:/a.gguf")->kind, ReferenceKind::kPath);
  EXPECT_EQ(parse_reference("https://example.org/a.gguf?x=1")->url, "https://example.org/a.gguf?x=1");
  EXPECT_EQ(parse_reference("http://127.0.0.1:8000/a.gguf")->kind, ReferenceKind::kUrl);
  const auto hub = parse_reference("hf:acme/guard-0.8B-GGUF@v1.2:Q4_K_M");
  ASSERT_TRUE(hub) << hub.error().message;
  EXPECT_EQ(hub->owner, "acme");
  EXPECT_EQ(hub->repository, "guard-0.8B-GGUF");
  EXPECT_EQ(hub->revision, "v1.2");
  EXPECT_EQ(hub->selector, "Q4_K_M");
  EXPECT_EQ(parse_reference("hf:acme/guard")->revision, "main");
  EXPECT_EQ(parse_reference("hf:acme/guard:sub/file.gguf")->selector, "sub/file.gguf");
}

TEST(Reference, WhatCannotBeOneIsRefusedWithTheForms) {
  for (const char* text : {"", "hf:", "hf:acme", "hf:/guard", "hf:acme/", "hf:acme/guard:", "hf:acme/guard@", "hf:../guard",
                           "hf:acme/..", "hf:acme/a/b", "hf:acme/guard:../x.gguf", "hf:acme/guard:/etc/x", "hf:acme/gu ard",
                           "http://example.org/a.gguf", "http://127.0.0.1.evil.example/a.gguf", "https://", "ftp://x/a.gguf"}) {
    const auto reference = parse_reference(text);
    ASSERT_FALSE(reference) << text;
    EXPECT_EQ(reference.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(reference.error().message.find("hf:owner/repository"), std::string::npos);
  }
}

TEST(Reference, TheQuantisationIsReadFromTheName) {
  EXPECT_EQ(quantisation_of("guard-q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(quantisation_of("dir/Qwen3.5-0.8B-Q8_0.gguf"), "Q8_0");
  EXPECT_EQ(quantisation_of("x-IQ2_XXS.gguf"), "IQ2_XXS");
  EXPECT_EQ(quantisation_of("x-f16.gguf"), "F16");
  EXPECT_EQ(quantisation_of("Qwen3-Quick.gguf"), "");
}

TEST(Reference, AFileIsChosenByNameByQuantisationOrAsTheOnlyOne) {
  const auto all = files({"README.md", "a-Q4_0.gguf", "a-Q8_0.gguf", "mmproj-a-F16.gguf", "sub/a-BF16.gguf"});
  EXPECT_EQ(choose_files(all, "a-Q8_0.gguf")->front().path, "a-Q8_0.gguf");
  EXPECT_EQ(choose_files(all, "q8_0")->front().path, "a-Q8_0.gguf");
  EXPECT_EQ(choose_files(all, "bf16")->front().path, "sub/a-BF16.gguf");
  EXPECT_EQ(choose_files(all, "")->front().path, "a-Q4_0.gguf") << "no Q4_K_M there";
  EXPECT_EQ(choose_files(files({"only.gguf"}), "")->front().path, "only.gguf");
  const auto none = choose_files(all, "Q5_K_M");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("a-Q4_0.gguf"), std::string::npos);
  EXPECT_FALSE(choose_files(files({"a-Q4_0.gguf", "b-Q4_0.gguf"}), "Q4_0"));
  EXPECT_FALSE(choose_files(files({"a-Q5_0.gguf", "b-Q6_K.gguf"}), ""));
  EXPECT_EQ(choose_files(files({"model.safetensors"}), "").error().code, ErrorCode::kNotFound);
}

TEST(Reference, AModelInPartsIsTakenWholeOrNotAtAll) {
  const auto whole =
      files({"a-Q8_0-00002-of-00003.gguf", "a-Q8_0-00001-of-00003.gguf", "a-Q8_0-00003-of-00003.gguf", "a-Q4_0.gguf"});
  const auto chosen = choose_files(whole, "Q8_0");
  ASSERT_TRUE(chosen) << chosen.error().message;
  ASSERT_EQ(chosen->size(), 3u);
  EXPECT_EQ((*chosen)[0].path, "a-Q8_0-00001-of-00003.gguf");
  EXPECT_EQ(choose_files(whole, "a-Q8_0-00002-of-00003.gguf")->size(), 3u);
  EXPECT_FALSE(choose_files(files({"a-Q8_0-00001-of-00002.gguf"}), ""));
}

}  // namespace
}  // namespace pocketfleet
