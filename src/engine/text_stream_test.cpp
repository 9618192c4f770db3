#include "engine/text_stream.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

std::string by_bytes(TextStream& stream, std::string_view bytes, size_t step) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += step) {
    GenerateChunk chunk;
    stream.push(bytes.substr(at, step), nullptr, chunk);
    EXPECT_TRUE(is_valid_utf8(chunk.text));
    text += chunk.text;
  }
  GenerateChunk chunk;
  stream.finish(chunk);
  return text + chunk.text;
}

// C-35
TEST(TextStream, EveryPairOfBytesComesOutTheSameWholeAndByteByByte) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string pair{static_cast<char>(first), static_cast<char>(second)};
      TextStream whole({});
      TextStream split({});
      ASSERT_EQ(by_bytes(whole, pair, 2), by_bytes(split, pair, 1)) << first << " " << second;
    }
  }
}

// C-35: the replacement that the Unicode Standard prescribes, one mark for each maximal part.
TEST(TextStream, IllFormedBytesBecomeReplacementMarksTheUnicodeWay) {
  const std::string mark = "\xEF\xBF\xBD";
  TextStream first({});
  EXPECT_EQ(by_bytes(first, "\xF0\x80\x80\x41", 1), mark + mark + mark + "A");
  TextStream second({});
  EXPECT_EQ(by_bytes(second, "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", 1), mark + mark + mark + mark + "A");
}

TEST(TextStream, ACharacterSplitOverTokensWaitsForItsLastByte) {
  TextStream stream({});
  GenerateChunk chunk;
  stream.push("\xF0\x9F", nullptr, chunk);
  EXPECT_EQ(chunk.text, "");
  EXPECT_EQ(chunk.tokens, 0);
  stream.push("\x98\x80", nullptr, chunk);
  EXPECT_EQ(chunk.text, "\xF0\x9F\x98\x80");
  EXPECT_EQ(chunk.tokens, 2);
}

TEST(TextStream, AStopStringIsFoundAtEverySplit) {
  const std::string text = "the answer is 5 END and more";
  for (size_t step = 1; step < text.size(); ++step) {
    TextStream stream({"END"});
    EXPECT_EQ(by_bytes(stream, text, step), "the answer is 5 ") << step;
    EXPECT_TRUE(stream.stopped());
    EXPECT_EQ(stream.matched_stop(), "END");
  }
}

TEST(TextStream, WhatOnlyLooksLikeAStopStringGoesOut) {
  TextStream stream({"END", "ENOUGH"});
  EXPECT_EQ(by_bytes(stream, "ENENEN ENO", 1), "ENENEN ENO");
  EXPECT_FALSE(stream.stopped());
}

TEST(TextStream, TheEarliestOfSeveralStopStringsCounts) {
  TextStream stream({"late", "ear"});
  EXPECT_EQ(by_bytes(stream, "an early bird, late", 3), "an ");
}

// C-26: a chunk of several tokens gives each token its own alternatives.
TEST(TextStream, TokensGoOutWithTheTextTheyMade) {
  TextStream stream({"STOP"});
  GenerateChunk held;
  const TokenLogprob a{{1, "S", -1.0f}, {}};
  const TokenLogprob b{{2, "T", -2.0f}, {}};
  const TokenLogprob c{{3, "x", -3.0f}, {}};
  stream.push("S", &a, held);
  stream.push("T", &b, held);
  EXPECT_TRUE(held.logprobs.empty());
  GenerateChunk out;
  stream.push("x", &c, out);
  EXPECT_EQ(out.text, "STx");
  ASSERT_EQ(out.logprobs.size(), 3u);
  EXPECT_EQ(out.logprobs[1].chosen.bytes, "T");
  EXPECT_EQ(out.logprobs[2].chosen.logprob, -3.0f);
}

}  // namespace
}  // namespace pocketfleet
