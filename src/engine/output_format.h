// The concrete OutputFormat of the llama.cpp engine: which grammar holds, from when on, and how the text is read. Immutable and
// shared; make_grammar() and make_parser() give each request its own. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/types.h"
#include "engine/vocab.h"

struct llama_sampler;

namespace pocketfleet {

struct SamplerDeleter {
  void operator()(llama_sampler* sampler) const;
};
using SamplerPtr = std::unique_ptr<llama_sampler, SamplerDeleter>;

struct GrammarSpec {
  std::string text;   // GBNF with the start symbol "root"; empty: none
  bool lazy = false;  // begins only where a trigger is written
  std::vector<std::string> trigger_patterns;
  Tokens trigger_tokens;
  Tokens prefill;  // tokens of the prompt's end that the grammar covers too
};

// How a message is read: reasoning marks, and llama.cpp's parser for templates with tools.
struct ReadingSpec {
  bool reasoning = false;       // split reasoning from content
  bool reasoning_open = false;  // the prompt ends inside the reasoning
  std::string reasoning_start = "<think>";
  std::string reasoning_end = "</think>";
  bool tools = false;
  int chat_format = 0;            // common_chat_format
  std::string generation_prompt;  // what the prompt ends with
  std::string parser;             // serialised
  Tokens shown;                   // control tokens that are part of the text for the parser
};

class LlamaFormat final : public OutputFormat {
 public:
  // kInvalidArgument when the grammar cannot be parsed.
  static Result<std::shared_ptr<const LlamaFormat>> create(const Vocab& vocab, GrammarSpec grammar, ReadingSpec reading,
                                                           const std::string& param);

  std::unique_ptr<ChatOutputParser> make_parser() const override;
  // Null when there is no grammar.
  SamplerPtr make_grammar() const;
  // The text after which the grammar begins; empty: from the first token on.
  const std::string& grammar_after() const { return grammar_after_; }
  // True for control tokens whose text the parser has to see.
  bool shows(Token token) const;

 private:
  ReadingSpec reading_;
  SamplerPtr prototype_;
  std::string grammar_after_;
};

}  // namespace pocketfleet
