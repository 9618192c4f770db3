#include "model/gguf.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/files.h"
#include "model/gguf_test_util.h"

namespace pocketfleet {
namespace {

using test::GgufWriter;
using test::small_model;

const std::string kShipped = POCKETFLEET_SOURCE_DIR "/models/scam-guard/scam-guard-q4_0.gguf";
const std::string kSamples = POCKETFLEET_SOURCE_DIR "/../shared/data/models";

std::string refusal(const std::string& bytes) {
  const auto summary = inspect_gguf_bytes(bytes, "x.gguf");
  if (summary) return "accepted";
  EXPECT_EQ(summary.error().code, ErrorCode::kInvalidModel);
  return summary.error().message;
}

std::string temporary_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "pocketfleet-gguf-XXXXXX").string();
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return path;
}

#define EXPECT_REFUSED(bytes, words) EXPECT_NE(refusal(bytes).find(words), std::string::npos) << refusal(bytes)

TEST(Gguf, TheShippedModelIsUnderstood) {
  const auto summary = inspect_gguf(kShipped);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary->architecture, "qwen35");
  EXPECT_EQ(summary->parameters, 3'160'664u);
  EXPECT_EQ(summary->layers.size(), 4u);
  EXPECT_EQ(summary->vocabulary, 2048u);
  EXPECT_EQ(summary->embedding, 256u);
  EXPECT_EQ(summary->feed_forward, 512u);
  EXPECT_TRUE(summary->recurrent);
  EXPECT_EQ(summary->layers[0].key_numbers, 0u);
  // conv: 3 x (256 + 2 x 2 x 64), delta net: 64 x 256
  EXPECT_EQ(summary->layers[0].recurrent_numbers, 3u * 512 + 64 * 256);
  EXPECT_EQ(summary->layers[3].key_numbers, 128u);
  EXPECT_EQ(summary->layers[3].value_numbers, 128u);
  EXPECT_EQ(summary->layers[3].recurrent_numbers, 0u);
  EXPECT_EQ(summary->types.front().type, "q4_0");
  EXPECT_NE(summary->chat_template.find("enable_thinking"), std::string::npos);
  EXPECT_TRUE(check_servable(*summary));
  EXPECT_NE(describe(*summary).find("qwen35 3M q4_0, 4 layers"), std::string::npos) << describe(*summary);
}

TEST(Gguf, ASmallModelMadeByHandIsAccepted) {
  const auto summary = inspect_gguf_bytes(small_model().bytes(), "x.gguf");
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary->layers[0].key_numbers, 16u);
  EXPECT_FALSE(summary->recurrent);
}

TEST(Gguf, WhatIsNoModelFileIsNamed) {
  EXPECT_REFUSED("", "empty");
  EXPECT_REFUSED("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull");
  EXPECT_REFUSED("PK\x03\x04zip", "not a GGUF file");
  EXPECT_REFUSED("GG", "not a GGUF file");
  EXPECT_REFUSED("GGUF", "cut short");
  EXPECT_REFUSED("FUGG", "big-endian");
  GgufWriter old = small_model();
  old.version = 1;
  EXPECT_REFUSED(old.bytes(), "version 1");
  old.version = 4;
  EXPECT_REFUSED(old.bytes(), "version 4");
}

TEST(Gguf, AFolderAPipeAndAMissingFileAreRefusedBeforeReading) {
  const std::string folder = temporary_folder();
  EXPECT_NE(inspect_gguf(folder).error().message.find("folder"), std::string::npos);
  EXPECT_EQ(inspect_gguf(folder + "/none.gguf").error().code, ErrorCode::kIo);
  ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_NE(inspect_gguf(folder + "/pipe").error().message.find("pipe"), std::string::npos);
  ASSERT_TRUE(write_file_atomic(folder + "/empty.gguf", ""));
  EXPECT_NE(inspect_gguf(folder + "/empty.gguf").error().message.find("empty"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Gguf, CountsThatCannotBeTrueAreRefusedWithoutMemoryForThem) {
  const auto head = [](uint64_t tensors, uint64_t pairs) {
    return "GGUF" + GgufWriter::raw<uint32_t>(3) + GgufWriter::raw(tensors) + GgufWriter::raw(pairs);
  };
  EXPECT_REFUSED(head(uint64_t{1} << 60, 0), "tensors");
  EXPECT_REFUSED(head(0, uint64_t{1} << 60), "keys");
  EXPECT_REFUSED(head(0, 1) + GgufWriter::raw<uint64_t>(uint64_t{1} << 62), "length");
  EXPECT_REFUSED(small_model().array("x", GgufType::kU64, uint64_t{1} << 61, "").bytes(), "cut short");
  EXPECT_REFUSED(small_model().array("x", GgufType::kString, uint64_t{1} << 61, "").bytes(), "cut short");
  EXPECT_REFUSED(small_model().array("x", GgufType::kArray, 1, "").bytes(), "array of arrays");
  EXPECT_REFUSED(small_model().pair("x", static_cast<GgufType>(77), "").bytes(), "type 77");
}

TEST(Gguf, KeysAndTensorsThatAppearTwiceAreRefused) {
  EXPECT_REFUSED(small_model().u32("llama.block_count", 1).bytes(), "appears twice");
  EXPECT_REFUSED(small_model().tensor("token_embd.weight", {32, 3}, 0, 384).bytes(), "appears twice");
  EXPECT_REFUSED(small_model().u32("", 1).bytes(), "empty");
  EXPECT_REFUSED(small_model().u32(std::string_view("a\0b", 3), 1).bytes(), "control characters");
}

// C-57
TEST(Gguf, ADimensionWhoseSizeOverflowsIsRefused) {
  EXPECT_REFUSED(small_model().tensor("x", {32, (uint64_t{1} << 42) + 1}, 0, 0).bytes(), "cut short");
  EXPECT_REFUSED(small_model().tensor("x", {32, uint64_t{1} << 63}, 0, 0).bytes(), "no memory");
  EXPECT_REFUSED(small_model().tensor("x", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0).bytes(), "no memory");
  EXPECT_REFUSED(small_model().tensor("x", {0}, 0, 0).bytes(), "dimension of 0");
  EXPECT_REFUSED(small_model().tensor("x", {1, 1, 1, 1, 1}, 0, 0).bytes(), "5 dimensions");
  EXPECT_REFUSED(small_model().tensor("x", {33}, 2, 18).bytes(), "q4_0");
  EXPECT_REFUSED(small_model().tensor("x", {32}, 4, 18).bytes(), "type 4");
}

TEST(Gguf, TensorsThatOverlapOrReachBeyondTheFileAreRefused) {
  EXPECT_REFUSED(small_model().tensor("x", {8}, 0, 32, 0).bytes(), "overlap");
  EXPECT_REFUSED(small_model().tensor("x", {8}, 0, 32, 384 + 4).bytes(), "overlap");
  EXPECT_REFUSED(small_model().tensor("x", {8}, 0, 32, 1 << 30).bytes(), "overlap");
  EXPECT_REFUSED(small_model().tensor("x", {4096}, 0, 32).bytes(), "download it again");
}

// C-58
TEST(Gguf, MoreThan512BlocksAreRefused) {
  GgufWriter file;
  file.string("general.architecture", "llama").u32("llama.block_count", 4096).tensor("x", {8}, 0, 32);
  EXPECT_REFUSED(file.bytes(), "llama.block_count is 4096; it must be from 1 to 512");
}

// C-59
TEST(Gguf, TokenizerArraysOfAnotherTypeAreRefused) {
  EXPECT_REFUSED(small_model().array("tokenizer.ggml.scores", GgufType::kU8, 3, "abc").bytes(),
                 "tokenizer.ggml.scores is an array of u8");
  EXPECT_REFUSED(small_model().u32("tokenizer.ggml.scores", 3).bytes(), "tokenizer.ggml.scores is u32");
  EXPECT_REFUSED(small_model().array("tokenizer.ggml.token_type", GgufType::kU8, 3, "abc").bytes(),
                 "tokenizer.ggml.token_type is an array of u8");
  EXPECT_REFUSED(small_model().array("tokenizer.ggml.scores", GgufType::kF32, 2, std::string(8, '\0')).bytes(),
                 "2 elements for 3 tokens");
  GgufWriter file;
  file.array("tokenizer.ggml.tokens", GgufType::kU8, 3, "abc");
  EXPECT_REFUSED(file.bytes(), "must be an array of string");
}

TEST(Gguf, TwoTokensOfTheSameTextAreRefused) {
  EXPECT_REFUSED(GgufWriter().strings("tokenizer.ggml.tokens", {"a", "b", "a"}).bytes(), "appears twice");
  EXPECT_REFUSED(GgufWriter().strings("tokenizer.ggml.tokens", {"", "[EMPTY_0]"}).bytes(), "appears twice");
}

// C-60
TEST(Gguf, AnAlignmentThatIsNoPowerOfTwoOrNoU32IsRefused) {
  EXPECT_REFUSED(small_model().pair("general.alignment", GgufType::kI32, GgufWriter::raw<int32_t>(32)).bytes(), "must be u32");
  for (const uint32_t alignment : {0u, 1u, 33u, 0xFFFFFFFFu, 0x80000000u}) {
    EXPECT_REFUSED(small_model().u32("general.alignment", alignment).bytes(), "power of two");
  }
  GgufWriter wide = small_model();
  EXPECT_EQ(refusal(wide.u32("general.alignment", 32).bytes()), "accepted");
}

TEST(Gguf, WhatMakesLlamaCppAbortIsRefused) {
  EXPECT_REFUSED(small_model().u32("llama.nextn_predict_layers", 1).bytes(), "nextn_predict_layers");
  EXPECT_REFUSED(small_model().u32("llama.expert_count", 2000).bytes(), "expert_count");
  EXPECT_REFUSED(small_model().u32("llama.expert_used_count", 2).bytes(), "of 0 experts");
  EXPECT_REFUSED(small_model().string("llama.rope.scaling.type", "cubic").bytes(), "cubic");
  EXPECT_REFUSED(small_model().f32("llama.rope.freq_base", std::nanf("")).bytes(), "rope.freq_base");
  EXPECT_REFUSED(small_model().u32("llama.attention.key_length", 16).bytes(), "dimensions");
  EXPECT_REFUSED(small_model().tensor("blk.0.attn_norm.weight", {32}, 26, 128).bytes(), "i32");
  EXPECT_REFUSED(small_model().tensor("blk.0.attn_norm.weight", {32}, 2, 18).bytes(), "vectors are floats");
}

TEST(Gguf, APartOfASplitModelIsRefusedWithTheNameToGive) {
  const auto part = [](uint16_t number) {
    return small_model()
        .pair("split.no", GgufType::kU16, GgufWriter::raw(number))
        .pair("split.count", GgufType::kU16, GgufWriter::raw<uint16_t>(2))
        .bytes();
  };
  EXPECT_REFUSED(part(1), "-00001-of-00002.gguf");
  const std::string folder = temporary_folder();
  ASSERT_TRUE(write_file_atomic(folder + "/m.gguf", part(0)));
  EXPECT_NE(inspect_gguf(folder + "/m.gguf").error().message.find("must end in -00001-of-00002.gguf"), std::string::npos);
  ASSERT_TRUE(write_file_atomic(folder + "/m-00001-of-00002.gguf", part(0)));
  EXPECT_EQ(inspect_gguf(folder + "/m-00001-of-00002.gguf").error().code, ErrorCode::kIo);
  GgufWriter second;
  second.pair("split.no", GgufType::kU16, GgufWriter::raw<uint16_t>(1)).tensor("x", {8}, 0, 32);
  ASSERT_TRUE(write_file_atomic(folder + "/m-00002-of-00002.gguf", second.bytes()));
  const auto whole = inspect_gguf(folder + "/m-00001-of-00002.gguf");
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->tensors, 2u);
  EXPECT_EQ(whole->parts, 2);
  std::filesystem::remove_all(folder);
}

TEST(Gguf, FilesThatCannotWriteTextAreSoundButNotServable) {
  const auto why = [](const GgufWriter& file) {
    const auto summary = inspect_gguf_bytes(file.bytes(), "x.gguf");
    if (!summary) return summary.error().message;
    const auto servable = check_servable(*summary);
    return servable ? std::string("servable") : servable.error().message;
  };
  EXPECT_EQ(why(small_model()), "servable");
  EXPECT_NE(why(GgufWriter()).find("general.architecture is missing"), std::string::npos);
  EXPECT_NE(why(GgufWriter().string("general.architecture", "llama")).find("no weights"), std::string::npos);
  EXPECT_NE(why(GgufWriter().string("general.architecture", "clip").tensor("x", {8}, 0, 32)).find("does not write text"),
            std::string::npos);
}

TEST(Gguf, PublicSamplesAreAcceptedOrRefusedForTheRightReason) {
  if (!std::filesystem::exists(kSamples)) GTEST_SKIP() << "../shared/data/models is not here";
  for (const char* good : {"stories260K_f32.gguf", "stories260K_q8_0.gguf"}) {
    const auto summary = inspect_gguf(kSamples + "/" + good);
    ASSERT_TRUE(summary) << summary.error().message;
    EXPECT_TRUE(check_servable(*summary));
  }
  for (const char* keys_only :
       {"ggml-vocab-llama-spm.gguf", "empty_no_tensors.gguf", "all_kv_types.gguf", "tiny_4tensors.gguf"}) {
    const auto summary = inspect_gguf(kSamples + "/" + keys_only);
    if (summary)
      EXPECT_FALSE(check_servable(*summary)) << keys_only;
    else
      EXPECT_EQ(summary.error().code, ErrorCode::kInvalidModel);
  }
  EXPECT_NE(inspect_gguf(kSamples + "/bad_lfs_pointer.gguf").error().message.find("git lfs pull"), std::string::npos);
  EXPECT_NE(inspect_gguf(kSamples + "/bad_invalid_text.gguf").error().message.find("not a GGUF file"), std::string::npos);
  EXPECT_FALSE(inspect_gguf(kSamples + "/bad_tensor_data_missing.gguf"));
}

// C-14
TEST(Gguf, ACutFileIsRefusedWhereverItIsCut) {
  const auto whole = read_file(kShipped, 16u << 20);
  ASSERT_TRUE(whole);
  for (size_t length = 0; length < whole->size(); length += 997) {
    ASSERT_FALSE(inspect_gguf_bytes(std::string_view(*whole).substr(0, length), "x.gguf")) << length;
  }
}

TEST(Gguf, NoFlippedByteInTheHeadIsFatal) {
  const auto whole = read_file(kShipped, 16u << 20);
  ASSERT_TRUE(whole);
  std::string bytes = *whole;
  std::mt19937 random(7);
  size_t refused = 0;
  const size_t head = 100'000;
  for (int round = 0; round < 3000; ++round) {
    // Half of them where the keys with meaning lie, before the tokenizer's thousands of strings.
    const size_t at = random() % (round % 2 == 0 ? 2'000 : head);
    const char before = bytes[at];
    bytes[at] = static_cast<char>(random());
    const auto summary = inspect_gguf_bytes(bytes, "x.gguf");
    refused += summary ? 0 : 1;
    if (!summary) {
      ASSERT_FALSE(summary.error().message.empty());
    }
    bytes[at] = before;
  }
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace pocketfleet
