// One chat being written: asks the engine for n answers, tells content, reasoning and calls apart, and hands them on. What they
// are shown as is a subclass's: chat completions or responses. One request's strand. An error before the first event has an HTTP
// status of its own; later ones are an event of the stream.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <vector>

#include "openai/event_stream.h"
#include "openai/generation_params.h"
#include "openai/held_logprobs.h"
#include "openai/route.h"
#include "openai/wire.h"

namespace pocketfleet {

class ChatRun {
 public:
  // All must outlive run(). `top_logprobs`: -1 for none.
  ChatRun(RouteContext& context, const GenerationParams& generation, int top_logprobs, RenderedChat rendered);
  virtual ~ChatRun() = default;
  ChatRun(const ChatRun&) = delete;
  ChatRun& operator=(const ChatRun&) = delete;

  boost::asio::awaitable<void> run();

 protected:
  // One of the n answers while it is being written.
  struct Choice {
    std::unique_ptr<ChatOutputParser> parser;
    AssistantMessage message;
    HeldLogprobs held_logprobs;
    int held_tokens = 0;  // of text that the parser holds back
    FinishReason reason = FinishReason::kStop;
  };

  // The delta is in the choice's message already.
  virtual boost::asio::awaitable<void> show_delta(size_t index, const ChatDelta& delta, std::vector<TokenLogprob> logprobs) = 0;
  // The choice is complete but for `logprobs`, which stand behind its last delta.
  virtual boost::asio::awaitable<void> show_end(size_t index, std::vector<TokenLogprob> logprobs) = 0;
  // Only when the stream is open.
  virtual boost::asio::awaitable<void> show_error(const Error& error) = 0;
  virtual boost::asio::awaitable<void> show_finish() = 0;
  // Of an error that the request is to blame for.
  virtual const char* prompt_param() const = 0;

  bool streaming() const { return generation_.stream; }
  int reasoning_tokens() const;

  RouteContext& context_;
  const GenerationParams& generation_;
  EventStream events_;
  std::vector<Choice> choices_;
  Usage usage_;

 private:
  GenerateRequest make_request(size_t index) const;
  boost::asio::awaitable<void> take_chunk(size_t index, GenerateChunk& chunk);
  boost::asio::awaitable<void> take_deltas(size_t index, const std::vector<ChatDelta>& deltas);
  boost::asio::awaitable<void> end_choice(size_t index);
  boost::asio::awaitable<void> give_error(const Error& error);

  const int top_logprobs_;
  RenderedChat rendered_;
  // Set by the connection when the client goes, and here when one of n answers fails and the others are of no use.
  CancelToken cancel_ = context_.request.gone;
};

// How long the caller can be sure to hear something: a stream says something at least so often, an answer in one piece does not.
Patience chat_patience(const RouteContext& context, bool stream);
// An overlong prompt is the fault of `param`.
Error blame_prompt(Error error, const char* param);

}  // namespace pocketfleet
