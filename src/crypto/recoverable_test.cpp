#include "crypto/recoverable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace pocketfleet {
namespace {

std::string from_hex(std::string_view hex) {
  std::string out;
  for (size_t at = 0; at + 1 < hex.size(); at += 2)
    out += static_cast<char>(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16));
  return out;
}

std::string hex_of(std::string_view bytes) {
  return to_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

// RFC 6979, A.2.5.
constexpr char kPem[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgya+p2EW6dRZrXCFX\n"
    "Z7HWk05Qw9s26JsSe4piKxIPZyGhRANCAARg/tS6JVqdMclh63TGNW1owEm4kjth\n"
    "+mzmaWIuYPKftnkD/hAIuLyZpBrp6VYovGTy8bIMLX6fUXejwpTURiKZ\n"
    "-----END PRIVATE KEY-----\n";
constexpr char kOrder[] = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";
constexpr char kHalf[] = "7fffffff800000007fffffffffffffffde737d56d38bcf4279dce5617e3192a8";
constexpr char kHalfAndOne[] = "7fffffff800000007fffffffffffffffde737d56d38bcf4279dce5617e3192a9";

P256PrivateKey rfc_key() {
  return P256PrivateKey::from_pem(kPem).value();
}

// Of "sample"; the RFC's own s lies in the upper half: this is the order less it.
const std::string kR = "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716";
const std::string kS = "0834e36ad29a83bf2bc9385e491d6099c8fdf9d1ed67aa7ea5f51f93782857a9";
const std::string kHighS = "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8";

TEST(Recoverable, GivesTheSignaturesOfTheRfcWithSInTheLowerHalf) {
  const auto sample = sign_recoverable(rfc_key(), sha256("sample"));
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_EQ(hex_of(*sample), kR + kS + "01");
  const auto test = sign_recoverable(rfc_key(), sha256("test"));
  ASSERT_TRUE(test) << test.error().message;
  EXPECT_EQ(hex_of(*test),
            "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367"
            "019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f008300");
}

TEST(Recoverable, TheFirstSixtyFourBytesAreAnOrdinarySignature) {
  const auto key = P256PrivateKey::generate();
  ASSERT_TRUE(key);
  for (const std::string& text : {std::string(), std::string("x"), std::string(10'000, 'y')}) {
    const auto signature = sign_recoverable(*key, sha256(text));
    ASSERT_TRUE(signature) << signature.error().message;
    EXPECT_TRUE(key->public_key().verify(text, signature->substr(0, 64)));
  }
}

TEST(Recoverable, TheKeyComesBackWhateverTheParities) {
  std::set<char> parities;
  std::set<char> points;
  for (int round = 0; round < 40; ++round) {
    const auto key = P256PrivateKey::generate();
    ASSERT_TRUE(key);
    const Sha256 digest = sha256(std::to_string(round));
    const auto signature = sign_recoverable(*key, digest);
    ASSERT_TRUE(signature) << signature.error().message;
    ASSERT_EQ(signature->size(), kRecoverableBytes);
    EXPECT_LE(signature->substr(32, 32), from_hex(kHalf));
    EXPECT_EQ(*signature, *sign_recoverable(*key, digest)) << "a key has one signature for a digest";
    const auto recovered = recover_key(digest, *signature);
    ASSERT_TRUE(recovered) << recovered.error().message;
    EXPECT_EQ(recovered->compressed(), key->public_key().compressed());
    parities.insert(signature->back());
    points.insert(recovered->compressed().front());
  }
  EXPECT_EQ(parities, (std::set<char>{0, 1}));
  EXPECT_EQ(points, (std::set<char>{2, 3}));
}

TEST(Recoverable, DigestsAtTheEndsOfTheRangeAreSigned) {
  Sha256 zero{};
  Sha256 ones{};
  ones.fill(0xff);
  Sha256 order{};
  const std::string bytes = from_hex(kOrder);
  std::copy(bytes.begin(), bytes.end(), order.begin());
  for (const Sha256& digest : {zero, ones, order}) {
    const auto signature = sign_recoverable(rfc_key(), digest);
    ASSERT_TRUE(signature) << signature.error().message;
    const auto recovered = recover_key(digest, *signature);
    ASSERT_TRUE(recovered) << recovered.error().message;
    EXPECT_EQ(recovered->compressed(), rfc_key().public_key().compressed());
  }
}

TEST(Recoverable, AChangedByteNeverGivesTheSameKey) {
  const std::string own = rfc_key().public_key().compressed();
  const Sha256 digest = sha256("sample");
  const std::string signature = *sign_recoverable(rfc_key(), digest);
  for (size_t at = 0; at < signature.size(); ++at) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string changed = signature;
      changed[at] = static_cast<char>(changed[at] ^ change);
      const auto recovered = recover_key(digest, changed);
      if (recovered) {
        EXPECT_NE(recovered->compressed(), own) << at;
      } else {
        EXPECT_EQ(recovered.error().code, ErrorCode::kInvalidArgument) << recovered.error().message;
      }
    }
  }
  for (size_t at = 0; at < digest.size(); ++at) {
    Sha256 changed = digest;
    changed[at] ^= 1;
    const auto recovered = recover_key(changed, signature);
    if (recovered) {
      EXPECT_NE(recovered->compressed(), own) << at;
    }
  }
}

TEST(Recoverable, WhatIsNoSignatureIsRefused) {
  const Sha256 digest = sha256("sample");
  ASSERT_TRUE(recover_key(digest, from_hex(kR + kS + "01")));
  const std::string zero(64, '0');
  const std::string one = std::string(63, '0') + "1";
  const std::string most(64, 'f');
  for (const std::string& wrong : {
           // Another length.
           std::string(),
           kR + kS,
           kR + kS + "0100",
           // Another v.
           kR + kS + "02",
           kR + kS + "1b",
           kR + kS + "ff",
           // s in the upper half.
           kR + kHighS + "00",
           kR + kHighS + "01",
           kR + kHalfAndOne + "01",
           // Numbers out of range.
           zero + kS + "01",
           kR + zero + "01",
           kOrder + kS + "01",
           kR + kOrder + "01",
           most + kS + "01",
           // No point of the curve has this x.
           one + kS + "01",
       }) {
    const auto recovered = recover_key(digest, from_hex(wrong));
    ASSERT_FALSE(recovered) << wrong;
    EXPECT_EQ(recovered.error().code, ErrorCode::kInvalidArgument) << recovered.error().message;
  }
  EXPECT_TRUE(recover_key(digest, from_hex(kR + kHalf + "01"))) << "the largest s of the lower half";
}

}  // namespace
}  // namespace pocketfleet
