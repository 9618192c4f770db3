#include "openai/wire.h"

#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace pocketfleet {

namespace {

Json bytes_json(const std::string& bytes) {
  Json out = Json::array();
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

Json token_json(const TokenScore& score) {
  return {{"token", sanitize_utf8(score.bytes)}, {"logprob", score.logprob}, {"bytes", bytes_json(score.bytes)}};
}

}  // namespace

void AssistantMessage::apply(const ChatDelta& delta) {
  switch (delta.kind) {
    case ChatDelta::Kind::kContent:
      content += delta.text;
      break;
    case ChatDelta::Kind::kReasoning:
      reasoning += delta.text;
      break;
    case ChatDelta::Kind::kToolCall: {
      if (tool_calls.size() <= delta.tool_index) tool_calls.resize(delta.tool_index + 1);
      ToolCall& call = tool_calls[delta.tool_index];
      if (!delta.tool_id.empty()) call.id = delta.tool_id;
      if (!delta.tool_name.empty()) call.name = delta.tool_name;
      call.arguments += delta.arguments;
      break;
    }
  }
}

const char* finish_reason_name(FinishReason reason, bool tool_calls) {
  if (reason == FinishReason::kLength) return "length";
  return tool_calls ? "tool_calls" : "stop";
}

Json usage_json(const Usage& usage, int reasoning_tokens) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.written_tokens},
          {"total_tokens", usage.prompt_tokens + usage.written_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning_tokens}}}};
}

Json timings_json(const Usage& usage) {
  return {{"cache_n", usage.cached_tokens}, {"prompt_n", usage.prompt_tokens - usage.cached_tokens},
          {"prompt_ms", usage.read_ms},     {"predicted_n", usage.written_tokens},
          {"predicted_ms", usage.write_ms}, {"wait_ms", usage.wait_ms}};
}

Json chat_logprobs_json(const std::vector<TokenLogprob>& logprobs) {
  Json content = Json::array();
  for (const TokenLogprob& logprob : logprobs) {
    Json item = token_json(logprob.chosen);
    item["top_logprobs"] = Json::array();
    for (const TokenScore& top : logprob.top) item["top_logprobs"].push_back(token_json(top));
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs_json(const std::vector<TokenLogprob>& logprobs, size_t offset) {
  Json tokens = Json::array();
  Json values = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const TokenLogprob& logprob : logprobs) {
    const std::string text = sanitize_utf8(logprob.chosen.bytes);
    tokens.push_back(text);
    values.push_back(logprob.chosen.logprob);
    Json top = Json::object();
    for (const TokenScore& score : logprob.top) top[sanitize_utf8(score.bytes)] = score.logprob;
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    for (const char c : text) offset += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json chat_choice_json(size_t index, const AssistantMessage& message, FinishReason reason) {
  Json out = {{"role", "assistant"}, {"content", message.content}, {"refusal", nullptr}};
  if (!message.reasoning.empty()) out["reasoning_content"] = message.reasoning;
  if (!message.tool_calls.empty()) {
    if (message.content.empty()) out["content"] = nullptr;
    Json calls = Json::array();
    for (const ToolCall& call : message.tool_calls) {
      calls.push_back(
          {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    out["tool_calls"] = std::move(calls);
  }
  return {{"index", index},
          {"message", std::move(out)},
          {"logprobs", message.wants_logprobs ? chat_logprobs_json(message.logprobs) : Json(nullptr)},
          {"finish_reason", finish_reason_name(reason, !message.tool_calls.empty())}};
}

Json chat_answer_json(const AnswerHead& head, Json choices, const Usage& usage, int reasoning_tokens) {
  return {{"id", head.id},
          {"object", "chat.completion"},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", "pocketfleet"},
          {"choices", std::move(choices)},
          {"usage", usage_json(usage, reasoning_tokens)},
          {"timings", timings_json(usage)}};
}

Json chat_chunk_json(const AnswerHead& head, size_t index, Json delta, Json finish_reason, Json logprobs) {
  Json choice = {{"index", index},
                 {"delta", std::move(delta)},
                 {"logprobs", std::move(logprobs)},
                 {"finish_reason", std::move(finish_reason)}};
  Json choices = Json::array();
  choices.push_back(std::move(choice));
  return {{"id", head.id},       {"object", "chat.completion.chunk"},   {"created", head.created},
          {"model", head.model}, {"system_fingerprint", "pocketfleet"}, {"choices", std::move(choices)}};
}

Json chat_delta_json(const ChatDelta& delta) {
  switch (delta.kind) {
    case ChatDelta::Kind::kContent:
      return {{"content", delta.text}};
    case ChatDelta::Kind::kReasoning:
      return {{"reasoning_content", delta.text}};
    case ChatDelta::Kind::kToolCall:
      break;
  }
  Json call = {{"index", delta.tool_index}, {"function", {{"arguments", delta.arguments}}}};
  if (!delta.tool_id.empty()) {
    call["id"] = delta.tool_id;
    call["type"] = "function";
  }
  if (!delta.tool_name.empty()) call["function"]["name"] = delta.tool_name;
  Json calls = Json::array();
  calls.push_back(std::move(call));
  return {{"tool_calls", std::move(calls)}};
}

Json completion_choice_json(size_t index, std::string text, Json logprobs, Json finish_reason) {
  return {{"index", index},
          {"text", std::move(text)},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish_reason)}};
}

Json completion_json(const AnswerHead& head, Json choices) {
  return {{"id", head.id},       {"object", "text_completion"},         {"created", head.created},
          {"model", head.model}, {"system_fingerprint", "pocketfleet"}, {"choices", std::move(choices)}};
}

}  // namespace pocketfleet
