#include "openai/keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/files.h"
#include "base/ids.h"

namespace pocketfleet {
namespace {

TEST(Keys, PlainAndHashedKeysAreBothKnown) {
  const auto store = KeyStore::parse("# ours\nplain-key-1\n\n" + key_file_line("hashed-key-2", "phone"), "keys");
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->size(), 2u);
  EXPECT_EQ(store->check("Bearer plain-key-1").value(), "key 1");
  EXPECT_EQ(store->check("bearer  hashed-key-2 ").value(), "phone");
}

TEST(Keys, AKeyThatIsNotKnownIsRefused) {
  const auto store = KeyStore::parse("plain-key-1\n", "keys");
  ASSERT_TRUE(store);
  for (const char* header : {"Bearer plain-key-2", "Bearer plain-key-", "Bearer plain-key-11", "Bearer", "Bearer ", "",
                             "Basic plain-key-1", "plain-key-1", "Bearerplain-key-1"}) {
    const auto checked = store->check(header);
    ASSERT_FALSE(checked) << header;
    EXPECT_EQ(checked.error().code, ErrorCode::kUnauthenticated);
    EXPECT_EQ(checked.error().message.find("plain"), std::string::npos) << "the key is not repeated";
  }
  EXPECT_FALSE(store->check(std::nullopt));
  EXPECT_FALSE(store->check("Bearer " + std::string(100'000, 'x')));
}

TEST(Keys, TheDigestOfAKeyIsNotAKey) {
  const std::string line = key_file_line("hashed-key-2", "");
  const auto store = KeyStore::parse(line, "keys");
  ASSERT_TRUE(store);
  EXPECT_FALSE(store->check("Bearer " + line.substr(0, line.size() - 1)));
}

TEST(Keys, AFileThatWouldLetEverybodyInIsAnError) {
  EXPECT_FALSE(KeyStore::parse("", "keys"));
  EXPECT_FALSE(KeyStore::parse("# nothing yet\n", "keys"));
  EXPECT_TRUE(KeyStore().check(std::nullopt));
}

TEST(Keys, AWrongLineIsNamedByNumberAndTheKeyIsNotRepeated) {
  for (const char* text :
       {"good-key-1\nsha256:abc\n", "good-key-1\ntwo words\n", "good-key-1\ngood-key-1\n", "good-key-1\nshort\n"}) {
    const auto store = KeyStore::parse(text, "keys.txt");
    ASSERT_FALSE(store) << text;
    EXPECT_NE(store.error().message.find("keys.txt, line 2"), std::string::npos) << store.error().message;
    EXPECT_EQ(store.error().message.find("good-key"), std::string::npos);
  }
}

TEST(Keys, AMadeKeyIsStoredAsADigestInAPrivateFile) {
  const std::string path = (std::filesystem::temp_directory_path() / make_id("pf-keys-")).string();
  const auto first = add_key(path, "laptop");
  const auto second = add_key(path, "");
  ASSERT_TRUE(first && second);
  const std::string text = read_file(path, 10'000).value();
  EXPECT_EQ(text.find(*first), std::string::npos);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  const auto store = KeyStore::load(path);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->check("Bearer " + *first).value(), "laptop");
  EXPECT_TRUE(store->check("Bearer " + *second));
  EXPECT_FALSE(add_key(path, "two words"));
  std::filesystem::remove(path);
}

// C-48. A smoke check of the path that requests take: a wrong key costs the same whether it shares a beginning with a real one or
// not.
TEST(Keys, TheTimeOfACheckDoesNotTellHowMuchOfAKeyIsRight) {
  std::string text;
  for (int index = 0; index < 100; ++index) text += "key-number-" + std::to_string(1000 + index) + "\n";
  const auto store = KeyStore::parse(text, "keys");
  ASSERT_TRUE(store);
  const auto time_ns = [&store](const std::string& header) {
    const auto begin = std::chrono::steady_clock::now();
    for (int sample = 0; sample < 1'000; ++sample) (void)store->check(header).has_value();
    return static_cast<double>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
  };
  // In turn, so that whatever else the machine does falls on both.
  double none = 1e18;
  double near = 1e18;
  for (int round = 0; round < 50; ++round) {
    none = std::min(none, time_ns("Bearer xxxxxxxxxxxxxxx"));
    near = std::min(near, time_ns("Bearer key-number-109x"));
  }
  EXPECT_LT(std::max(none, near) / std::min(none, near), 1.5) << none << " " << near;
}

}  // namespace
}  // namespace pocketfleet
