#include "engine/grammar.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/json.h"
#include "engine/sampler.h"
#include "engine/vocab_test_util.h"

namespace pocketfleet {
namespace {

class GrammarTest : public ShippedVocab {
 protected:
  static Result<std::shared_ptr<const OutputFormat>> compile(ConstraintKind kind, const std::string& text) {
    return compile_constraint(*vocab_, {kind, text});
  }

  // Writes with random logits under the constraint; the text so far when it ends or after `most` tokens.
  static std::string write(const std::shared_ptr<const OutputFormat>& format, uint32_t seed, int most, bool* ended) {
    SamplingParams params;
    params.temperature = 1;
    params.seed = seed;
    Sampler sampler(*vocab_, params, std::dynamic_pointer_cast<const LlamaFormat>(format), {});
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> logits(static_cast<size_t>(vocab_->size()));
    std::string text;
    *ended = false;
    for (int index = 0; index < most; ++index) {
      for (float& logit : logits) logit = normal(random);
      // Ends are likely, so that texts stay short.
      for (const Token end : vocab_->end_tokens()) logits[static_cast<size_t>(end)] = 12;
      const auto token = sampler.sample(logits.data());
      if (!token) {
        ADD_FAILURE() << token.error().message;
        return text;
      }
      if (vocab_->is_end_of_generation(*token)) {
        *ended = true;
        return text;
      }
      text += vocab_->token_bytes(*token);
    }
    return text;
  }
};

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int index = 0; index < times; ++index) out += text;
  return out;
}

// C-21, C-30: refused before llama.cpp's recursive parsers see them, and never replaced by free text.
TEST_F(GrammarTest, HostileConstraintsAreRefusedQuickly) {
  const std::pair<ConstraintKind, std::string> hostile[] = {
      {ConstraintKind::kGrammar, ""},
      {ConstraintKind::kGrammar, "root ::= " + repeat("(", 60'000) + repeat(")", 60'000)},
      {ConstraintKind::kGrammar, "root ::= \"a\"{1,1000000}"},
      {ConstraintKind::kGrammar, "root ::= ((\"a\"{1,1000}){1,1000}){1,1000}"},
      {ConstraintKind::kGrammar, "root ::= root \"a\""},
      {ConstraintKind::kGrammar, "root ::= missing"},
      {ConstraintKind::kGrammar, "root ::= \"a"},
      {ConstraintKind::kGrammar, "root ::= [a"},
      {ConstraintKind::kGrammar, "other ::= \"a\""},
      {ConstraintKind::kGrammar, repeat("x", 100'000)},
      {ConstraintKind::kRegex, "(?<=x)*"},
      {ConstraintKind::kRegex, "(?=x)"},
      {ConstraintKind::kRegex, "a\\1"},
      {ConstraintKind::kRegex, "\\bword\\b"},
      {ConstraintKind::kRegex, "a^b"},
      {ConstraintKind::kRegex, repeat("(", 60'000) + repeat(")", 60'000)},
      {ConstraintKind::kRegex, "((a{1000}){1000}){1000}"},
      {ConstraintKind::kRegex, "(a"},
      {ConstraintKind::kRegex, "a)"},
      {ConstraintKind::kRegex, "[a"},
      {ConstraintKind::kRegex, "[z-a]"},
      {ConstraintKind::kRegex, "[\xD1\x8F-\xD0\xB0]"},
      {ConstraintKind::kRegex, "[\\]-\\[]"},
      {ConstraintKind::kRegex, "a**"},
      {ConstraintKind::kRegex, "*"},
      {ConstraintKind::kRegex, "a\\"},
      {ConstraintKind::kJsonSchema, repeat("[", 60'000) + repeat("]", 60'000)},
      {ConstraintKind::kJsonSchema, "[]"},
      {ConstraintKind::kJsonSchema, "{"},
      {ConstraintKind::kJsonSchema, R"({"type":"string","pattern":"(?<=x)*"})"},
      {ConstraintKind::kJsonSchema, R"({"type":"string","maxLength":100000000})"},
      {ConstraintKind::kJsonSchema, R"({"$ref":"https://example.org/schema"})"},
      {ConstraintKind::kJsonSchema, R"({"type":"nonsense"})"},
  };
  for (const auto& [kind, text] : hostile) {
    const auto start = std::chrono::steady_clock::now();
    const auto refused = compile(kind, text);
    const auto took = std::chrono::steady_clock::now() - start;
    ASSERT_FALSE(refused) << text.substr(0, 80);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_FALSE(refused.error().param.empty());
    EXPECT_LT(took, std::chrono::milliseconds(50)) << text.substr(0, 80);
  }
}

TEST_F(GrammarTest, ARegularExpressionHoldsForTheWholeText) {
  const std::pair<std::string, std::string> cases[] = {{"RISK_LEVEL: [1-5]", "RISK_LEVEL: "},
                                                       {"^(yes|no)$", ""},
                                                       {"[A-F0-9]{4}", ""},
                                                       {"a+\\.b?", "a"},
                                                       {"\"quoted\\\\\"", "\"quoted\\\""}};
  for (const auto& [regex, beginning] : cases) {
    const auto format = compile(ConstraintKind::kRegex, regex);
    ASSERT_TRUE(format) << regex << ": " << format.error().message;
    for (uint32_t seed = 0; seed < 5; ++seed) {
      bool ended = false;
      const std::string text = write(*format, seed, 64, &ended);
      EXPECT_TRUE(ended) << regex << " -> " << text;
      EXPECT_TRUE(text.starts_with(beginning)) << regex << " -> " << text;
    }
  }
}

TEST_F(GrammarTest, AHyphenBesideASetStandsForItself) {
  for (const std::string regex : {"[\\d-x]{6}", "[x-\\d]{6}", "[x\\d-]{6}", "[-x\\d]{6}"}) {
    const auto format = compile(ConstraintKind::kRegex, regex);
    ASSERT_TRUE(format) << regex << ": " << format.error().message;
    for (uint32_t seed = 0; seed < 10; ++seed) {
      bool ended = false;
      const std::string text = write(*format, seed, 64, &ended);
      EXPECT_TRUE(ended && text.size() == 6) << regex << " -> " << text;
      EXPECT_EQ(text.find_first_not_of("0123456789-x"), std::string::npos) << regex << " -> " << text;
    }
  }
}

TEST_F(GrammarTest, EveryTextUnderASchemaIsJsonThatFits) {
  const auto format =
      compile(ConstraintKind::kJsonSchema,
              R"({"type":"object","properties":{"level":{"type":"integer","minimum":1,"maximum":5},)"
              R"("label":{"type":"string","enum":["safe","scam"]}},"required":["level","label"],"additionalProperties":false})");
  ASSERT_TRUE(format) << format.error().message;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    bool ended = false;
    const std::string text = write(*format, seed, 200, &ended);
    ASSERT_TRUE(ended) << text;
    const auto value = parse_json(text);
    ASSERT_TRUE(value) << text;
    EXPECT_GE((*value)["level"].get<int>(), 1);
    EXPECT_LE((*value)["level"].get<int>(), 5);
    EXPECT_TRUE((*value)["label"] == "safe" || (*value)["label"] == "scam");
  }
}

// C-30: a mere change of a description must not bring the grammar to a stop.
TEST_F(GrammarTest, DescriptionsOfAnyKindChangeNothing) {
  std::mt19937 random(7);
  const std::string alphabet = "abc \"\\{}[]()|*+?^$.:=<>\n\t\xC3\xA9";
  for (int round = 0; round < 100; ++round) {
    std::string description;
    for (int index = 0; index < 40; ++index) description += alphabet[random() % (alphabet.size() - 2)];
    Json schema = {{"type", "object"},
                   {"description", description},
                   {"properties", {{"a", {{"type", "boolean"}, {"description", description}}}}},
                   {"required", {"a"}},
                   {"additionalProperties", false}};
    const auto format = compile(ConstraintKind::kJsonSchema, dump_json(schema));
    ASSERT_TRUE(format) << format.error().message;
    bool ended = false;
    const std::string text = write(*format, static_cast<uint32_t>(round), 60, &ended);
    ASSERT_TRUE(ended) << text;
    EXPECT_TRUE(parse_json(text)) << text;
  }
}

TEST_F(GrammarTest, GreedyChoiceUnderAGrammarIsTheBestAllowedToken) {
  const auto format = compile(ConstraintKind::kGrammar, "root ::= [1-5]");
  ASSERT_TRUE(format);
  SamplingParams params;
  params.temperature = 0;
  Sampler sampler(*vocab_, params, std::dynamic_pointer_cast<const LlamaFormat>(*format), {});
  std::vector<float> logits(static_cast<size_t>(vocab_->size()), 0.0f);
  logits[static_cast<size_t>((*vocab_->tokenize("free", false, false))[0])] = 50;
  const Token three = (*vocab_->tokenize("3", false, false))[0];
  logits[static_cast<size_t>(three)] = 5;
  EXPECT_EQ(*sampler.sample(logits.data()), three);
  EXPECT_TRUE(vocab_->is_end_of_generation(*sampler.sample(logits.data())));
}

TEST_F(GrammarTest, BiasesPenaltiesAndSeedsWork) {
  std::vector<float> logits(static_cast<size_t>(vocab_->size()), 0.0f);
  logits[100] = 10;
  logits[200] = 9;
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{100, -100.0f}};
  Sampler banned(*vocab_, params, nullptr, {});
  EXPECT_EQ(*banned.sample(logits.data()), 200);
  params.logit_bias.clear();
  params.presence_penalty = 2;
  Sampler penalised(*vocab_, params, nullptr, {100});
  EXPECT_EQ(*penalised.sample(logits.data()), 200);
  params = {};
  params.seed = 11;
  Sampler one(*vocab_, params, nullptr, {});
  Sampler two(*vocab_, params, nullptr, {});
  std::vector<float> flat(logits.size(), 0.0f);
  for (int index = 0; index < 8; ++index) EXPECT_EQ(*one.sample(flat.data()), *two.sample(flat.data()));
}

TEST_F(GrammarTest, WhatIsForbiddenIsNotWrittenEvenWhereNothingElseIsLikely) {
  std::vector<float> logits(static_cast<size_t>(vocab_->size()), -INFINITY);
  logits[100] = 10;
  for (const Token end : vocab_->end_tokens()) logits[static_cast<size_t>(end)] = 20;
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams params;
    params.temperature = temperature;
    Sampler goes_on(*vocab_, params, nullptr, {}, true);
    EXPECT_EQ(*goes_on.sample(logits.data()), 100);
    Sampler ends(*vocab_, params, nullptr, {});
    EXPECT_TRUE(vocab_->is_end_of_generation(*ends.sample(logits.data())));
    params.logit_bias = {{100, -100.0f}};
    Sampler stuck(*vocab_, params, nullptr, {}, true);
    EXPECT_FALSE(stuck.sample(logits.data()));
  }
}

TEST_F(GrammarTest, TopPWithoutTopKNeverWritesWhatLiesOutsideTheNucleus) {
  std::vector<float> logits(static_cast<size_t>(vocab_->size()), 0.0f);
  logits[100] = 12;  // 87 % and 12 %; all others together have the rest
  logits[200] = 10;
  SamplingParams params;
  params.top_p = 0.95f;
  params.seed = 3;
  Sampler sampler(*vocab_, params, nullptr, {});
  int seen[2] = {0, 0};
  for (int index = 0; index < 200; ++index) {
    const Token token = *sampler.sample(logits.data());
    ASSERT_TRUE(token == 100 || token == 200) << token;
    ++seen[token == 100 ? 0 : 1];
  }
  EXPECT_GT(seen[0], seen[1]);
  EXPECT_GT(seen[1], 5);
}

TEST_F(GrammarTest, LogprobsAreThoseOfTheWholeVocabularyAndSumToOne) {
  std::vector<float> logits(static_cast<size_t>(vocab_->size()), 0.0f);
  logits[100] = 3;
  logits[200] = 2;
  Sampler sampler(*vocab_, {}, nullptr, {});
  const TokenLogprob logprob = sampler.logprob(logits.data(), 200, vocab_->size());
  double sum = 0;
  for (const TokenScore& score : logprob.top) sum += std::exp(static_cast<double>(score.logprob));
  EXPECT_NEAR(sum, 1.0, 1e-4);
  EXPECT_EQ(logprob.top[0].token, 100);
  EXPECT_EQ(logprob.top[1].token, 200);
  EXPECT_FLOAT_EQ(logprob.chosen.logprob, logprob.top[1].logprob);
}

}  // namespace
}  // namespace pocketfleet
