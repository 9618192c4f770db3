#include "openai/windows.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace pocketfleet {
namespace {

TEST(Windows, AShortTextIsOneWindow) {
  EXPECT_EQ(cut_windows("hello", 5, 3).size(), 1u);
  EXPECT_EQ(cut_windows("", 5, 3).size(), 1u);
  EXPECT_EQ(cut_windows("hello", 0, 0).at(0).text, "hello");
}

TEST(Windows, WindowsOverlapAndTheLastOneReachesTheEnd) {
  const auto windows = cut_windows("abcdefgh", 4, 3);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].text, "abcd");
  EXPECT_EQ(windows[1].text, "defg");
  EXPECT_EQ(windows[2].text, "gh");
  EXPECT_EQ(windows[2].first_character, 6u);
  EXPECT_EQ(windows[2].characters, 2u);
}

TEST(Windows, ACharacterIsNeverCut) {
  std::string text;
  for (int index = 0; index < 50; ++index) text += "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  for (size_t size = 1; size < 9; ++size) {
    for (size_t stride = 1; stride <= size; ++stride) {
      const auto windows = cut_windows(text, size, stride);
      EXPECT_EQ(windows.size(), count_windows(text, size, stride));
      size_t covered = 0;
      for (const TextWindow& window : windows) {
        EXPECT_TRUE(is_valid_utf8(window.text));
        EXPECT_EQ(count_characters(window.text), window.characters);
        EXPECT_LE(window.characters, size);
        EXPECT_LE(window.first_character, covered);
        covered = window.first_character + window.characters;
      }
      EXPECT_EQ(covered, 200u);
      EXPECT_EQ(windows.back().text.data() + windows.back().text.size(), text.data() + text.size());
    }
  }
}

TEST(Windows, BytesThatAreNotUtf8AreKept) {
  const std::string text(100, '\x80');
  const auto windows = cut_windows(text, 10, 10);
  ASSERT_EQ(windows.size(), 10u);
  for (const TextWindow& window : windows) EXPECT_EQ(window.text.size(), 10u);
}

}  // namespace
}  // namespace pocketfleet
