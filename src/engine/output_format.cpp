#include "engine/output_format.h"

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>

#include "engine/chat_output.h"

namespace pocketfleet {

void SamplerDeleter::operator()(llama_sampler* sampler) const {
  llama_sampler_free(sampler);
}

Result<std::shared_ptr<const LlamaFormat>> LlamaFormat::create(const Vocab& vocab, GrammarSpec grammar, ReadingSpec reading,
                                                               const std::string& param) {
  auto format = std::make_shared<LlamaFormat>();
  if (!grammar.text.empty()) {
    try {
      if (grammar.lazy) {
        std::vector<const char*> patterns;
        for (const std::string& pattern : grammar.trigger_patterns) patterns.push_back(pattern.c_str());
        format->prototype_.reset(
            llama_sampler_init_grammar_lazy_patterns(vocab.raw(), grammar.text.c_str(), "root", patterns.data(), patterns.size(),
                                                     grammar.trigger_tokens.data(), grammar.trigger_tokens.size()));
      } else {
        format->prototype_.reset(llama_sampler_init_grammar(vocab.raw(), grammar.text.c_str(), "root"));
        if (format->prototype_) {
          for (const Token token : grammar.prefill) llama_sampler_accept(format->prototype_.get(), token);
        }
      }
    } catch (const std::exception& e) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("the grammar cannot be used: {}", e.what()), param);
    }
    if (!format->prototype_) return fail(ErrorCode::kInvalidArgument, "the grammar cannot be parsed", param);
    if (!grammar.lazy && grammar.prefill.empty() && reading.reasoning && reading.reasoning_open) {
      format->grammar_after_ = reading.reasoning_end;
    }
  }
  format->reading_ = std::move(reading);
  return format;
}

std::unique_ptr<ChatOutputParser> LlamaFormat::make_parser() const {
  return make_chat_parser(reading_);
}

bool LlamaFormat::shows(Token token) const {
  return std::find(reading_.shown.begin(), reading_.shown.end(), token) != reading_.shown.end();
}

SamplerPtr LlamaFormat::make_grammar() const {
  return prototype_ ? SamplerPtr(llama_sampler_clone(prototype_.get())) : nullptr;
}

}  // namespace pocketfleet
