#include "engine/vocab.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>

#include "engine/vocab_test_util.h"

namespace pocketfleet {
namespace {

class VocabTest : public ShippedVocab {};

// C-20: without parse_special no special token of any kind comes out, the user-defined ones included.
TEST_F(VocabTest, NoSpecialTokenComesOutOfPlainText) {
  ASSERT_FALSE(vocab_->specials().empty());
  for (const Vocab::Special& special : vocab_->specials()) {
    const std::string text = "a " + special.text + special.text + " b";
    const Tokens tokens = *vocab_->tokenize(text, false, false);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), special.token), special.text.size() == 1 ? 2 : 0) << special.text;
    EXPECT_EQ(*vocab_->detokenize(tokens, true), text);
    const Tokens parsed = *vocab_->tokenize(special.text, false, true);
    EXPECT_EQ(parsed, (Tokens{special.token})) << special.text;
  }
}

// C-29: " there" keeps its space, as bytes of the text.
TEST_F(VocabTest, TheBytesOfTheTokensMakeTheText) {
  const std::string text = "Hello there, \xF0\x9F\x98\x80 caf\xC3\xA9!";
  std::string bytes;
  const Tokens tokens = *vocab_->tokenize(text, false, false);
  for (const Token token : tokens) bytes += vocab_->token_bytes(token);
  EXPECT_EQ(bytes, text);
}

// llama.cpp's splitter uses stack for every character of a word in many vocabularies, and others take quadratic time.
TEST_F(VocabTest, AnEndlessWordIsCutAndNothingOfItIsLost) {
  for (const std::string part : {"a", " ", "\n", "!", "\xE4\xBD\xA0"}) {
    std::string text;
    for (int index = 0; index < 60'000; ++index) text += part;
    const auto tokens = vocab_->tokenize(text, false, false);
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_TRUE(*vocab_->detokenize(*tokens, true) == text) << part;
    // Control tokens beside it are still found where they are asked for.
    const auto parsed = vocab_->tokenize("<|im_start|>" + text + "<|im_end|>", false, true);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->front(), vocab_->special_token("<|im_start|>"));
    EXPECT_EQ(parsed->back(), vocab_->special_token("<|im_end|>"));
    EXPECT_EQ(Tokens(parsed->begin() + 1, parsed->end() - 1), *tokens);
  }
}

TEST_F(VocabTest, ATokenOutsideTheVocabularyIsNamed) {
  const Tokens tokens{5, 99'999};
  const auto refused = vocab_->detokenize(tokens, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("99999"), std::string::npos);
}

TEST_F(VocabTest, ControlTokensAreEmptyUnlessShown) {
  const Token end = vocab_->special_token("<|im_end|>");
  ASSERT_GE(end, 0);
  EXPECT_TRUE(vocab_->is_end_of_generation(end));
  EXPECT_EQ(vocab_->token_bytes(end), "");
  EXPECT_EQ(vocab_->token_bytes(end, true), "<|im_end|>");
}

}  // namespace
}  // namespace pocketfleet
