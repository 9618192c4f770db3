// Response objects in OpenAI's shapes. Pure: values in, JSON out. No errors, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/types.h"

namespace pocketfleet {

// What all objects of one answer share.
struct AnswerHead {
  std::string id;
  std::string model;
  int64_t created = 0;  // unix seconds
};

// An assistant's message put together from its deltas.
struct AssistantMessage {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  std::vector<TokenLogprob> logprobs;
  bool wants_logprobs = false;
  int reasoning_tokens = 0;

  void apply(const ChatDelta& delta);
};

const char* finish_reason_name(FinishReason reason, bool tool_calls);

Json usage_json(const Usage& usage, int reasoning_tokens);
// llama-server's timings, for people who look at speed.
Json timings_json(const Usage& usage);
// {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}; null without logprobs.
Json chat_logprobs_json(const std::vector<TokenLogprob>& logprobs);
// The legacy arrays; `offset`: characters before the first token.
Json completion_logprobs_json(const std::vector<TokenLogprob>& logprobs, size_t offset);

Json chat_choice_json(size_t index, const AssistantMessage& message, FinishReason reason);
Json chat_answer_json(const AnswerHead& head, Json choices, const Usage& usage, int reasoning_tokens);

Json chat_chunk_json(const AnswerHead& head, size_t index, Json delta, Json finish_reason, Json logprobs);
// The delta object of one piece.
Json chat_delta_json(const ChatDelta& delta);

Json completion_choice_json(size_t index, std::string text, Json logprobs, Json finish_reason);
Json completion_json(const AnswerHead& head, Json choices);

}  // namespace pocketfleet
