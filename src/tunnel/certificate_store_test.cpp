#include "tunnel/certificate_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/files.h"
#include "base/ids.h"
#include "crypto/certificate.h"
#include "crypto/digest.h"

namespace pocketfleet::tunnel {
namespace {

constexpr const char* kDirectory = "https://ca.example/directory";
constexpr int64_t kNowMs = 1'800'000'000'000;
constexpr int64_t kMinuteMs = 60'000;

class CertificateStoreTest : public ::testing::Test {
 protected:
  ~CertificateStoreTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(std::filesystem::path(folder_).parent_path(), ignored);
  }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(folder_);
    ASSERT_TRUE(write_file_atomic(file(name), text));
  }
  static unsigned mode_of(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 0777u : 0;
  }

  const std::string folder_ = (std::filesystem::temp_directory_path() / make_id("pf-certificates-")).string() + "/deep";
  const CertificateStore store_{folder_};
  const P256PrivateKey key_ = *P256PrivateKey::generate();
};

TEST_F(CertificateStoreTest, TheAccountsKeyIsMadeOnceAndForItsOwnerAlone) {
  const auto made = store_.account_key();
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(mode_of(file("account.key")), 0600u);
  EXPECT_EQ(mode_of(folder_), 0700u);
  const auto again = CertificateStore(folder_).account_key();
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->public_key().compressed(), made->public_key().compressed());
}

// C-91: a lost account's key.
TEST_F(CertificateStoreTest, ADamagedKeyOfTheAccountMeansANewAccount) {
  const P256PrivateKey first = *store_.account_key();
  ASSERT_TRUE(store_.keep_account_url(first, kDirectory, "https://ca.example/account/1"));
  EXPECT_EQ(store_.account_url(first, kDirectory), "https://ca.example/account/1");
  for (const char* damage : {"", "no key"}) {
    write("account.key", damage);
    const auto second = store_.account_key();
    ASSERT_TRUE(second) << second.error().message;
    EXPECT_NE(second->public_key().compressed(), first.public_key().compressed());
    EXPECT_EQ(store_.account_url(*second, kDirectory), "");
    EXPECT_EQ(*read_file(file("account.key.damaged"), 100), damage);
  }
}

TEST_F(CertificateStoreTest, AccountsAreKeptForEachAuthority) {
  EXPECT_EQ(store_.account_url(key_, kDirectory), "");
  ASSERT_TRUE(store_.keep_account_url(key_, kDirectory, "https://ca.example/account/1"));
  ASSERT_TRUE(store_.keep_account_url(key_, "https://other.example/dir", "https://other.example/7"));
  ASSERT_TRUE(store_.keep_account_url(key_, kDirectory, "https://ca.example/account/2"));
  EXPECT_EQ(store_.account_url(key_, kDirectory), "https://ca.example/account/2");
  EXPECT_EQ(store_.account_url(key_, "https://other.example/dir"), "https://other.example/7");
  EXPECT_EQ(store_.account_url(key_, "https://third.example/dir"), "");
  EXPECT_EQ(store_.account_url(*P256PrivateKey::generate(), kDirectory), "");
}

TEST_F(CertificateStoreTest, DamagedStateCountsAsNone) {
  for (const char* text : {"", "{", "[]", "{}", "{\"version\":2}", "{\"version\":1}", "{\"version\":1,\"key\":1,\"accounts\":[]}",
                           "{\"version\":1,\"next_ms\":\"soon\",\"failures\":{}}", "{\"version\":\"1\"}"}) {
    write("account.json", text);
    EXPECT_EQ(store_.account_url(key_, kDirectory), "") << text;
    write("a.example.attempt.json", text);
    EXPECT_EQ(store_.next_attempt_ms("a.example", kNowMs), 0) << text;
    write("a.example.pem", text);
    EXPECT_FALSE(store_.chain("a.example", key_, kNowMs)) << text;
  }
  ASSERT_TRUE(store_.keep_account_url(key_, kDirectory, "https://ca.example/account/1"));
  EXPECT_EQ(store_.account_url(key_, kDirectory), "https://ca.example/account/1");
}

TEST_F(CertificateStoreTest, AChainComesBackForItsNameAndItsKeyUntilItExpires) {
  const std::string pem = *make_challenge_certificate(key_, "a.example", sha256("x"));
  const int64_t until_ms = inspect_certificate(pem)->not_after_ms;
  EXPECT_FALSE(store_.chain("a.example", key_, until_ms - 1));
  ASSERT_TRUE(store_.keep_chain("a.example", pem));
  EXPECT_EQ(store_.chain("a.example", key_, until_ms - 1), pem);
  EXPECT_EQ(mode_of(file("a.example.pem")), 0600u);
  // A clock that is behind.
  EXPECT_EQ(store_.chain("a.example", key_, 0), pem);
  EXPECT_FALSE(store_.chain("a.example", key_, until_ms));
  EXPECT_FALSE(store_.chain("a.example", *P256PrivateKey::generate(), until_ms - 1));
  EXPECT_FALSE(store_.chain("b.example", key_, until_ms - 1));
  ASSERT_TRUE(store_.keep_chain("b.example", pem));
  EXPECT_FALSE(store_.chain("b.example", key_, until_ms - 1));
}

TEST_F(CertificateStoreTest, WhatIsNoNameTouchesNoFile) {
  for (const char* name : {"", "..", "../a", "a/b", "A.example", ".a", "*.a"}) {
    EXPECT_FALSE(store_.keep_chain(name, "x")) << name;
    EXPECT_FALSE(store_.chain(name, key_, kNowMs)) << name;
    EXPECT_EQ(store_.next_attempt_ms(name, kNowMs), 0) << name;
    const auto noted = store_.note_failure(name, kNowMs, 0, 0);
    ASSERT_FALSE(noted) << name;
    EXPECT_EQ(noted.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(CertificateStoreTest, FailuresPutTheNextOrderOffLongerAndLonger) {
  EXPECT_EQ(store_.next_attempt_ms("a.example", kNowMs), 0);
  int64_t now_ms = kNowMs;
  for (const int64_t minutes : {5, 10, 20, 40, 80, 160, 320, 360, 360}) {
    const auto next_ms = store_.note_failure("a.example", now_ms, 0, 0);
    ASSERT_TRUE(next_ms) << next_ms.error().message;
    EXPECT_EQ(*next_ms, now_ms + minutes * kMinuteMs);
    EXPECT_EQ(store_.next_attempt_ms("a.example", now_ms), *next_ms);
    EXPECT_EQ(CertificateStore(folder_).next_attempt_ms("a.example", *next_ms - 1), *next_ms);
    EXPECT_EQ(store_.next_attempt_ms("a.example", *next_ms), 0);
    EXPECT_EQ(store_.next_attempt_ms("b.example", now_ms), 0);
    now_ms = *next_ms;
  }
  const std::string pem = *make_challenge_certificate(key_, "a.example", sha256("x"));
  ASSERT_TRUE(store_.keep_chain("a.example", pem));
  EXPECT_EQ(*store_.note_failure("a.example", now_ms, 0, 0), now_ms + 5 * kMinuteMs);
}

TEST_F(CertificateStoreTest, WhatTheAuthorityAskedForIsKeptTo) {
  EXPECT_EQ(*store_.note_failure("a.example", kNowMs, 86'400, 7), kNowMs + 86'400'000);
  EXPECT_EQ(*store_.note_failure("b.example", kNowMs, 1, 0), kNowMs + 5 * kMinuteMs);
  EXPECT_EQ(*store_.note_failure("c.example", kNowMs, -5, 0), kNowMs + 5 * kMinuteMs);
}

// C-91: a clock that was wrong.
TEST_F(CertificateStoreTest, ATimeFromAClockThatWasWrongDoesNotCount) {
  ASSERT_TRUE(store_.note_failure("a.example", kNowMs + 365 * 86'400'000ll, 0, 0));
  EXPECT_EQ(store_.next_attempt_ms("a.example", kNowMs), 0);
}

TEST(RetryPause, IsSpreadByAQuarter) {
  EXPECT_EQ(retry_pause_ms(1, 0), 5 * kMinuteMs);
  EXPECT_EQ(retry_pause_ms(0, 0), 5 * kMinuteMs);
  EXPECT_EQ(retry_pause_ms(1'000'000, 0), 360 * kMinuteMs);
  for (const uint32_t jitter : {1u, 12'345u, 0x7fff'ffffu, 0xffff'ffffu}) {
    EXPECT_GE(retry_pause_ms(3, jitter), 20 * kMinuteMs);
    EXPECT_LE(retry_pause_ms(3, jitter), 25 * kMinuteMs);
  }
}

}  // namespace
}  // namespace pocketfleet::tunnel
