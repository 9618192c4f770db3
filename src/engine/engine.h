// The engine port: what turns tokens into tokens. Every function may be called from any thread; the ones that give Result are
// kLoading until the model is there and kUnavailable once it has failed or stopped. generate(), score() and embed() return at
// once and report through their sink; a request that was accepted always ends in exactly one on_done(). Destroying an engine
// stops it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/types.h"

namespace pocketfleet {

class Engine {
 public:
  virtual ~Engine() = default;

  virtual EngineStatus status() const = 0;
  virtual EngineCounters counters() const = 0;
  // Empty values until the engine is ready.
  virtual ModelInfo model() const = 0;

  // add_special: put the model's BOS/EOS where it wants them. parse_special: text such as <|im_end|> becomes a control token;
  // without it no special token of any kind ever comes out of the text.
  virtual Result<Tokens> tokenize(std::string_view text, bool add_special, bool parse_special) const = 0;
  // kContextLengthExceeded for a text that certainly has more tokens than the context, found without reading all of a long one;
  // success says nothing.
  virtual Result<void> check_length(std::string_view) const { return {}; }
  // The bytes of the tokens; not always whole characters. kInvalidArgument for an id outside the vocabulary.
  virtual Result<std::string> detokenize(std::span<const Token> tokens, bool show_special) const = 0;

  // Applies the chat template. Text from messages, tools and kwargs never becomes a control token. Errors name the parameter.
  virtual Result<RenderedChat> render_chat(const ChatInput& input) const = 0;
  // A constraint for plain completions. kInvalidArgument when it cannot be compiled: it never falls back to free text.
  virtual Result<std::shared_ptr<const OutputFormat>> compile(const Constraint& constraint) const = 0;
  // At least two labels, all different. kInvalidArgument when two labels come out as the same tokens.
  virtual Result<LabelSet> prepare_labels(std::string_view answer_prefix, std::span<const std::string> labels) const = 0;

  // kQueueFull with retry_after_s, kTooLate when the deadline would pass before the prompt is read (with retry_after_s only if it
  // could be in time later), kContextLengthExceeded with both counts, kInvalidArgument for an empty prompt.
  virtual Result<void> generate(GenerateRequest request, std::shared_ptr<GenerateSink> sink) = 0;
  virtual Result<void> score(ScoreRequest request, std::shared_ptr<ScoreSink> sink) = 0;
  // kUnsupportedParameter when the model does not pool; else as generate().
  virtual Result<void> embed(EmbedRequest request, std::shared_ptr<EmbedSink> sink) = 0;

  // Refuses new work, ends what runs with kUnavailable, and waits for the engine's thread. Safe to call twice.
  virtual void stop() = 0;
};

}  // namespace pocketfleet
