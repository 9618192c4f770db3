#include "engine/tool_grammar.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

const std::string kGrammar =
    "root ::= \"<|im_start|>assistant\\n\" until-1 tool-call-root\n"
    "tool-call-root ::= tool-call\n"
    "tool-get-weather-arg-city ::= (\"<parameter=\" \"city\" \">\\n\") xml-arg-string\n"
    "tool-get-weather-arg-note ::= (\"<parameter=\" \"note\" \">\\n\") xml-arg-string\n"
    "xml-arg-string ::= [a-z]*\n";

const std::vector<ToolDefinition> kTools{
    {"get_weather", "",
     R"({"type":"object","properties":{"city":{"type":"string","enum":["Berne","Zu\"g"]},"note":{"type":"string"}}})"}};

TEST(ToolGrammar, ARequiredCallComesAtOnce) {
  const ToolGrammar tight = tighten_tool_grammar(kGrammar, kTools, true);
  EXPECT_TRUE(tight.starts_at_call);
  EXPECT_TRUE(tight.text.starts_with("root ::= tool-call-root\n"));
}

TEST(ToolGrammar, AStringKeepsToItsEnumAndFreeStringsStayFree) {
  const ToolGrammar tight = tighten_tool_grammar(kGrammar, kTools, false);
  EXPECT_FALSE(tight.starts_at_call);
  EXPECT_NE(tight.text.find("(\"Berne\" | \"Zu\\\"g\") \"\\n</parameter>\\n\""), std::string::npos) << tight.text;
  EXPECT_NE(tight.text.find("\"note\" \">\\n\") xml-arg-string"), std::string::npos);
}

TEST(ToolGrammar, AGrammarOfAnotherFormIsLeftAlone) {
  const std::string other = "root ::= \"x\"\n";
  const ToolGrammar same = tighten_tool_grammar(other, kTools, true);
  EXPECT_EQ(same.text, other);
  EXPECT_FALSE(same.starts_at_call);
}

}  // namespace
}  // namespace pocketfleet
