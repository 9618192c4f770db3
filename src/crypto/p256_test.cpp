#include "crypto/p256.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace pocketfleet {
namespace {

std::string from_hex(std::string_view hex) {
  std::string out;
  for (size_t at = 0; at + 1 < hex.size(); at += 2)
    out += static_cast<char>(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16));
  return out;
}

// RFC 6979, A.2.5: P-256, SHA-256, "sample".
const std::string kKey = from_hex("0360fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6");
const std::string kSignature = from_hex(
    "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"
    "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8");

TEST(P256, TheSignatureOfTheRfcVerifies) {
  const auto key = P256PublicKey::from_compressed(kKey);
  ASSERT_TRUE(key) << key.error().message;
  EXPECT_TRUE(key->verify("sample", kSignature));
  EXPECT_FALSE(key->verify("Sample", kSignature));
  EXPECT_EQ(key->compressed(), kKey);
}

TEST(P256, EveryFlippedBitOfASignatureIsNoticed) {
  const auto key = P256PublicKey::from_compressed(kKey);
  for (size_t bit = 0; bit < kSignature.size() * 8; bit += 7) {
    std::string flipped = kSignature;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(key->verify("sample", flipped)) << bit;
  }
  for (const std::string& wrong :
       {std::string(), kSignature.substr(1), kSignature + "x", std::string(64, '\0'), std::string(64, '\xff')})
    EXPECT_FALSE(key->verify("sample", wrong));
}

TEST(P256, WhatIsSignedVerifiesWithTheSameKeyAndNoOther) {
  const auto key = P256PrivateKey::generate();
  const auto other = P256PrivateKey::generate();
  ASSERT_TRUE(key && other);
  for (const std::string& text : {std::string(), std::string("x"), std::string(100'000, 'y')}) {
    const auto signature = key->sign(text);
    ASSERT_TRUE(signature) << signature.error().message;
    EXPECT_EQ(signature->size(), 64u);
    const auto told = P256PublicKey::from_compressed(key->public_key().compressed());
    ASSERT_TRUE(told);
    EXPECT_TRUE(told->verify(text, *signature));
    EXPECT_FALSE(other->public_key().verify(text, *signature));
  }
}

TEST(P256, AKeyComesBackFromItsPemAndItsPoint) {
  for (int time = 0; time < 20; ++time) {
    const auto key = P256PrivateKey::generate();
    const auto again = P256PrivateKey::from_pem(*key->to_pem());
    ASSERT_TRUE(again) << again.error().message;
    const std::string point = key->public_key().compressed();
    EXPECT_EQ(point.size(), 33u);
    EXPECT_EQ(again->public_key().compressed(), point);
    EXPECT_EQ(P256PublicKey::from_compressed(point)->compressed(), point);
  }
}

TEST(P256, WhatIsNoKeyIsRefused) {
  for (const std::string& bytes :
       {std::string(), std::string(33, '\0'), "\x02" + std::string(32, '\xff'), kKey.substr(1), "\x04" + kKey.substr(1)})
    EXPECT_FALSE(P256PublicKey::from_compressed(bytes));
  for (const char* pem : {"", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}) {
    const auto key = P256PrivateKey::from_pem(pem);
    ASSERT_FALSE(key);
    EXPECT_EQ(key.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(P256, AKeyFileIsMadeOnceAndForItsOwnerAlone) {
  const std::string path = (std::filesystem::temp_directory_path() / ("pf-key-" + std::to_string(::getpid()))).string();
  std::filesystem::remove(path);
  const auto made = load_or_make_key(path);
  ASSERT_TRUE(made) << made.error().message;
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(load_or_make_key(path)->public_key().compressed(), made->public_key().compressed());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace pocketfleet
