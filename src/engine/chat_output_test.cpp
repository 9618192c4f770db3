#include "engine/chat_output.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

struct Read {
  std::string content;
  std::string reasoning;
};

Read read(const ReadingSpec& spec, std::string_view text, size_t step) {
  const auto parser = make_chat_parser(spec);
  Read out;
  const auto take = [&](const std::vector<ChatDelta>& deltas) {
    for (const ChatDelta& delta : deltas) {
      EXPECT_NE(delta.kind, ChatDelta::Kind::kToolCall);
      (delta.kind == ChatDelta::Kind::kReasoning ? out.reasoning : out.content) += delta.text;
    }
  };
  for (size_t at = 0; at < text.size(); at += step) take(parser->push(text.substr(at, step)));
  take(parser->finish());
  return out;
}

// C-16: with thinking off everything is content, at once.
TEST(ChatOutput, WithThinkingOffAllTextIsContentAndNothingIsHeldBack) {
  const auto parser = make_chat_parser({});
  const auto deltas = parser->push("<thi");
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].kind, ChatDelta::Kind::kContent);
  EXPECT_EQ(deltas[0].text, "<thi");
  EXPECT_TRUE(parser->finish().empty());
}

// C-23: content behind the reasoning is content, wherever the text is cut.
TEST(ChatOutput, ReasoningAndContentPartAtTheMarkAtEverySplit) {
  for (const bool open : {true, false}) {
    ReadingSpec spec;
    spec.reasoning = true;
    spec.reasoning_open = open;
    const std::string text = std::string(open ? "" : "<think>\n") + "is 1 < 2?\n</think>\n\n{\"level\": 5}";
    for (size_t step = 1; step <= text.size(); ++step) {
      const Read got = read(spec, text, step);
      EXPECT_EQ(got.reasoning, "is 1 < 2?") << step;
      EXPECT_EQ(got.content, "{\"level\": 5}") << step;
    }
  }
}

TEST(ChatOutput, AnAnswerWithoutReasoningIsContent) {
  ReadingSpec spec;
  spec.reasoning = true;
  EXPECT_EQ(read(spec, "<tha is no mark", 1).content, "<tha is no mark");
  EXPECT_EQ(read(spec, "<thi", 1).content, "<thi");
}

TEST(ChatOutput, ReasoningThatNeverEndsIsReasoning) {
  ReadingSpec spec;
  spec.reasoning = true;
  spec.reasoning_open = true;
  const Read got = read(spec, "and so on </thi", 1);
  EXPECT_EQ(got.reasoning, "and so on </thi");
  EXPECT_EQ(got.content, "");
}

// A parser that cannot be loaded must not lose text.
TEST(ChatOutput, TextThatTheTemplatesParserCannotReadIsContent) {
  ReadingSpec spec;
  spec.tools = true;
  spec.parser = "this is no parser";
  for (const size_t step : {1u, 5u, 100u}) EXPECT_EQ(read(spec, "<tool_call>\n{broken", step).content, "<tool_call>\n{broken");
}

}  // namespace
}  // namespace pocketfleet
