#include "crypto/base64.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

// The test vectors of RFC 4648, section 10.
TEST(Base64, TheVectorsOfTheStandard) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foo"), "Zm9v");
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(to_base64(std::string_view("\xff\xfe\x00", 3)), "//4A");
}

TEST(Base64, WhatWasEncodedComesBack) {
  std::string bytes;
  for (int length = 0; length < 300; ++length) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    bytes += static_cast<char>(length * 7);
  }
}

TEST(Base64, WhatIsNoBase64IsRefused) {
  for (const char* text :
       {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z g=", "Zg==\n", "====", "Zm9v=", "Zm9v====", "Zm-v", "Z===", " Zg=", "Zg== "})
    EXPECT_FALSE(from_base64(text)) << text;
}

TEST(Base64Url, HasTheLettersOfUrlsAndNoPadding) {
  EXPECT_EQ(to_base64url(""), "");
  EXPECT_EQ(to_base64url("f"), "Zg");
  EXPECT_EQ(to_base64url("fo"), "Zm8");
  EXPECT_EQ(to_base64url("foobar"), "Zm9vYmFy");
  EXPECT_EQ(to_base64url(std::string_view("\xff\xfe\x00", 3)), "__4A");
  EXPECT_EQ(to_base64url("\xfb\xef"), "--8");
}

TEST(Base64Url, WhatWasEncodedComesBack) {
  std::string bytes;
  for (int length = 0; length < 300; ++length) {
    EXPECT_EQ(from_base64url(to_base64url(bytes)), bytes);
    bytes += static_cast<char>(length * 11);
  }
}

TEST(Base64Url, WhatIsNoBase64UrlIsRefused) {
  for (const char* text : {"Z", "Zg==", "Zh", "Zm9", "Z g", "Zg\n", "=", "//4A", "++8", "Zm9vY", " Zg", "Zg ", "Zm9v==="})
    EXPECT_FALSE(from_base64url(text)) << text;
}

}  // namespace
}  // namespace pocketfleet
