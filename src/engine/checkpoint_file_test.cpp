#include "engine/checkpoint_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace pocketfleet {
namespace {

CheckpointIdentity identity() {
  return {hash128("model"), hash128("build"), 1, 1};
}

const Tokens kTokens = {5, 0, 248'319, 7};
const std::string kPayload("state\0of\xFFthe model", 18);

TEST(CheckpointFile, WhatIsWrittenIsReadBack) {
  const std::string file = encode_checkpoint(identity(), kTokens, kPayload);
  EXPECT_EQ(file.size(), kCheckpointHeaderBytes + 16 + kPayload.size());
  const auto head = read_checkpoint_head(file, file.size(), identity());
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->tokens, 4u);
  EXPECT_EQ(head->payload_bytes, kPayload.size());
  const auto read = read_checkpoint(file, identity());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->tokens, kTokens);
  EXPECT_EQ(read->payload, kPayload);
}

TEST(CheckpointFile, TheLayoutIsTheOneThatIsSpecified) {
  const std::string file = encode_checkpoint(identity(), kTokens, kPayload);
  EXPECT_EQ(file.substr(0, 8), "PFCKPT\r\n");
  EXPECT_EQ(file.substr(8, 8), std::string("\x01\0\0\0\x04\0\0\0", 8));
  // XXH3 of no bytes, as its authors give it.
  EXPECT_EQ(to_hex(hash128("")), "99aa06d3014798d86001c324468d497f");
}

// C-13 and the issue: a damaged file is never restored.
TEST(CheckpointFile, OneFlippedBitAnywhereIsRefused) {
  const std::string file = encode_checkpoint(identity(), kTokens, kPayload);
  for (size_t byte = 0; byte < file.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = file;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      const auto read = read_checkpoint(damaged, identity());
      ASSERT_FALSE(read) << "byte " << byte << " bit " << bit;
      EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
    }
  }
}

TEST(CheckpointFile, EveryOtherLengthIsRefused) {
  const std::string file = encode_checkpoint(identity(), kTokens, kPayload);
  for (size_t size = 0; size < file.size(); ++size) ASSERT_FALSE(read_checkpoint(file.substr(0, size), identity())) << size;
  EXPECT_FALSE(read_checkpoint(file + '\0', identity()));
}

TEST(CheckpointFile, AnotherModelBuildOrCacheTypeIsRefusedWithTheReason) {
  const std::string file = encode_checkpoint(identity(), kTokens, kPayload);
  CheckpointIdentity other = identity();
  other.model = hash128("another");
  EXPECT_NE(read_checkpoint(file, other).error().message.find("another model"), std::string::npos);
  other = identity();
  other.build = hash128("another");
  EXPECT_NE(read_checkpoint(file, other).error().message.find("another build"), std::string::npos);
  other = identity();
  other.value_type = 8;
  EXPECT_NE(read_checkpoint(file, other).error().message.find("KV cache"), std::string::npos);
}

TEST(CheckpointFile, NegativeTokensAndEmptyStatesAreRefused) {
  const Tokens negative = {1, -2};
  EXPECT_FALSE(read_checkpoint(encode_checkpoint(identity(), negative, kPayload), identity()));
  EXPECT_FALSE(read_checkpoint(encode_checkpoint(identity(), kTokens, ""), identity()));
  EXPECT_FALSE(read_checkpoint(encode_checkpoint(identity(), {}, kPayload), identity()));
}

TEST(CheckpointFile, TheDigestOfAFileIsThatOfItsBytes) {
  const std::string path = testing::TempDir() + "checkpoint_file_test_digest";
  const std::string bytes(3'000'000, 'x');
  std::ofstream(path, std::ios::binary) << bytes;
  const auto digest = hash_file(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(digest) << digest.error().message;
  EXPECT_EQ(*digest, hash128(bytes));
  EXPECT_EQ(hash_file(path).error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace pocketfleet
