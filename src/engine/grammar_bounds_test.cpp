#include <gtest/gtest.h>

#include <chrono>

#include "engine/grammar.h"

namespace pocketfleet {
namespace {

std::string numbered_rules(int count, const std::string& body, const std::string& last) {
  std::string text = "root ::= r0\n";
  const auto name = [](int index) { return "r" + std::to_string(index); };
  for (int index = 0; index < count; ++index) {
    std::string line = name(index) + " ::= " + body + "\n";
    for (size_t at; (at = line.find('@')) != std::string::npos;) line.replace(at, 1, name(index + 1));
    text += line;
  }
  return text + name(count) + " ::= " + last + "\n";
}

// What a constraint says about itself; empty when it is accepted. Never slow.
std::string refusal(ConstraintKind kind, const std::string& text) {
  const auto start = std::chrono::steady_clock::now();
  const auto result = constraint_to_gbnf({kind, text});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(500)) << text.substr(0, 80);
  if (result) return {};
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(result.error().param.empty());
  return result.error().message;
}

// C-21: llama.cpp's converter takes "any string" for a pattern that it does not know.
TEST(GrammarBounds, APatternThatCannotBeEnforcedIsRefusedAndNotOpened) {
  const auto schema = [](const std::string& pattern) { return R"({"type":"string","pattern":")" + pattern + "\"}"; };
  EXPECT_NE(refusal(ConstraintKind::kJsonSchema, schema("^hello there indeed\\\\!$")).find("pattern"), std::string::npos);
  EXPECT_NE(refusal(ConstraintKind::kJsonSchema, schema("abc")).find("begin with ^"), std::string::npos);
  EXPECT_EQ(refusal(ConstraintKind::kJsonSchema, schema("^[A-Z]{2}[0-9]+$")), "");
}

TEST(GrammarBounds, KeywordsThatWouldBePassedOverAreNamed) {
  for (const char* schema :
       {R"({"not":{"type":"string"}})", R"({"type":"number","minimum":0})", R"({"type":"array","uniqueItems":true})",
        R"({"type":"object","patternProperties":{}})", R"({"type":"integer","multipleOf":2})"}) {
    EXPECT_NE(refusal(ConstraintKind::kJsonSchema, schema).find("enforced"), std::string::npos) << schema;
  }
  // Names of properties are no keywords, and data is no schema.
  EXPECT_EQ(
      refusal(ConstraintKind::kJsonSchema,
              R"({"type":"object","properties":{"not":{"type":"string"},"pattern":{"type":"string"},"if":{"const":{"not":1}}}})"),
      "");
}

// Each of these held a thread for ever, or ended the process.
TEST(GrammarBounds, WhatLlamaCppWouldFollowForEverIsRefused) {
  EXPECT_NE(refusal(ConstraintKind::kJsonSchema,
                    R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"allOf":[{"$ref":"#/$defs/a"}]})")
                .find("leads back"),
            std::string::npos);
  EXPECT_NE(refusal(ConstraintKind::kJsonSchema, R"({"type":"string","minLength":5,"maxLength":2})"), "");
  std::string doubled = R"({"type":"string"})";
  for (int level = 0; level < 25; ++level) doubled = R"({"type":["array","array"],"items":)" + doubled + "}";
  EXPECT_NE(refusal(ConstraintKind::kJsonSchema, doubled), "");
  EXPECT_NE(refusal(ConstraintKind::kGrammar, "root ::= \"a\"{5,2}"), "");
  EXPECT_NE(refusal(ConstraintKind::kGrammar, numbered_rules(30, "@ | @", "\"a\"")), "");
  EXPECT_NE(refusal(ConstraintKind::kGrammar, numbered_rules(40, "@ @", "\"a\" | \"\"")), "");
  EXPECT_NE(refusal(ConstraintKind::kGrammar, numbered_rules(4000, "@", "\"a\"")), "");
  std::string choices = "\"a\"";
  for (int index = 0; index < 5'000; ++index) choices += " | \"a\"";
  EXPECT_NE(refusal(ConstraintKind::kGrammar, "root ::= \"b\" (" + choices + ")"), "");
}

TEST(GrammarBounds, OrdinaryGrammarsAreLetThrough) {
  EXPECT_EQ(refusal(ConstraintKind::kGrammar,
                    "root ::= object # a comment with ( and \"\n"
                    "object ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\" ws\n"
                    "pair ::= \"\\\"\" [a-z\\]\"]+ \"\\\":\" ws value\n"
                    "value ::=\n  object |\n  [0-9]{1,3} ws |\n  . \nws ::= [ \\t\\n]*\n"),
            "");
  EXPECT_EQ(refusal(ConstraintKind::kJsonObject, ""), "");
  EXPECT_EQ(
      refusal(ConstraintKind::kJsonSchema,
              R"({"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#/$defs/n"},"minItems":1,"maxItems":9},)"
              R"("b":{"anyOf":[{"type":"null"},{"type":"string","maxLength":99}]},"c":{"type":"integer","minimum":-5}},)"
              R"("$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}}}}})"),
      "");
  std::string words = R"({"enum":["w0")";
  for (int index = 1; index < 500; ++index) words += ",\"w" + std::to_string(index) + "\"";
  EXPECT_EQ(refusal(ConstraintKind::kJsonSchema, words + "]}"), "");
}

}  // namespace
}  // namespace pocketfleet
