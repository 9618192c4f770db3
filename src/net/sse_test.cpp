#include "net/sse.h"

#include <gtest/gtest.h>

namespace pocketfleet::net {
namespace {

std::vector<SseEvent> decode_in_pieces(std::string_view bytes, size_t piece) {
  SseDecoder decoder;
  std::vector<SseEvent> out;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    auto events = decoder.push(bytes.substr(i, piece));
    EXPECT_TRUE(events.has_value());
    for (auto& event : *events) out.push_back(std::move(event));
  }
  return out;
}

std::vector<SseEvent> decode(std::string_view bytes) {
  const auto whole = decode_in_pieces(bytes, bytes.size() + 1);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}}) {
    EXPECT_EQ(decode_in_pieces(bytes, piece), whole) << "in pieces of " << piece;
  }
  return whole;
}

std::vector<std::string> data_of(std::string_view bytes) {
  std::vector<std::string> out;
  for (const auto& event : decode(bytes)) out.push_back(event.data);
  return out;
}

TEST(Sse, ADataLineIsEncodedWithAnEmptyLineBehindIt) {
  EXPECT_EQ(encode_sse_data("{\"a\":1}"), "data: {\"a\":1}\n\n");
}

TEST(Sse, DataOfSeveralLinesBecomesSeveralDataLinesWhateverTheLineEnd) {
  EXPECT_EQ(encode_sse_data("a\nb\r\nc\rd"), "data: a\ndata: b\ndata: c\ndata: d\n\n");
}

TEST(Sse, AnEventNameAndAnIdCannotBreakOutOfTheirLine) {
  EXPECT_EQ(encode_sse(SseEvent("x", "name\ndata: evil", "1\r\n2")), "event: namedata: evil\nid: 12\ndata: x\n\n");
}

TEST(Sse, ACommentIsSeenByNobody) {
  EXPECT_EQ(encode_sse_comment("ping"), ": ping\n\n");
  EXPECT_TRUE(decode(encode_sse_comment("ping")).empty());
  EXPECT_EQ(data_of(": ping\n\ndata: a\n: ping\ndata: b\n\n"), (std::vector<std::string>{"a\nb"}));
}

TEST(Sse, WhatIsEncodedIsDecodedTheSame) {
  for (const std::string data : {"plain", "", "\n", "a\n\nb", " leading space", "trailing\n", "colon: here", "\xE2\x82\xAC"}) {
    EXPECT_EQ(decode(encode_sse(SseEvent(data, "delta", "7"))), (std::vector<SseEvent>{SseEvent(data, "delta", "7")})) << data;
  }
}

TEST(Sse, AllThreeLineEndsAreUnderstood) {
  EXPECT_EQ(data_of("data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\n"), (std::vector<std::string>{"a", "b", "c", "d"}));
}

TEST(Sse, AByteOrderMarkIsSkippedOnceAtTheBeginning) {
  EXPECT_EQ(data_of("\xEF\xBB\xBF"
                    "data: a\n\n"),
            (std::vector<std::string>{"a"}));
  EXPECT_TRUE(data_of("\n\xEF\xBB\xBF"
                      "data: a\n\n")
                  .empty());
}

TEST(Sse, TheExamplesOfTheStandardGiveWhatItSays) {
  EXPECT_EQ(data_of("data: YHOO\ndata: +2\ndata: 10\n\n"), (std::vector<std::string>{"YHOO\n+2\n10"}));
  EXPECT_EQ(data_of("data\n\ndata\ndata\n\ndata:"), (std::vector<std::string>{"", "\n"}));
  EXPECT_EQ(data_of("data:test\n\ndata: test\n\n"), (std::vector<std::string>{"test", "test"}));
}

TEST(Sse, TheIdStaysForLaterEventsAndAnIdWithNulIsIgnored) {
  const auto events = decode("id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\nid: x" + std::string(1, '\0') + "y\ndata: d\n\n");
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].id, "1");
  EXPECT_EQ(events[1].id, "1");
  EXPECT_EQ(events[2].id, "");
  EXPECT_EQ(events[3].id, "");
}

TEST(Sse, AnEventThatTheEndOfTheStreamCutsIsNone) {
  EXPECT_TRUE(decode("data: half\n").empty());
}

TEST(Sse, RetryIsTakenOnlyWhenItIsANumber) {
  SseDecoder decoder;
  ASSERT_TRUE(decoder.push("retry: 1500\nretry: 2s\nretry: 99999999999999999999\n"));
  EXPECT_EQ(decoder.retry_ms(), 1500);
}

TEST(Sse, AnEventThatNeverEndsIsCutAtTheBound) {
  SseDecoder decoder(1'000);
  EXPECT_TRUE(decoder.push("data: small\n\n").has_value());
  bool failed = false;
  for (int i = 0; i < 2'000 && !failed; ++i) failed = !decoder.push(i % 2 ? "data: xxxx\n" : "data: y").has_value();
  EXPECT_TRUE(failed);
  EXPECT_FALSE(decoder.push("data: a\n\n").has_value()) << "a failed decoder stays failed";
}

}  // namespace
}  // namespace pocketfleet::net
