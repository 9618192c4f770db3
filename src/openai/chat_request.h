// The body of POST /v1/chat/completions as values. Strict, bounded, pure. Errors name the parameter ("messages[2].content").
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/types.h"
#include "openai/generation_params.h"

namespace pocketfleet {

struct ChatRequest {
  ChatInput input;  // the constraint included
  GenerationParams generation;
  int top_logprobs = -1;  // -1: no logprobs
};

struct ChatDefaults {
  bool thinking = true;
  int vocabulary = 0;
};

// What the Responses API says in the same words. `key`: the parameter, or its part, that holds the effort.
void read_effort(ParamReader& reader, std::string_view key, ChatInput& input);
inline constexpr size_t kMostTools = 128;
// tool_choice as a word: auto, none or required. False when it is another one.
bool choose_tools(std::string_view word, ChatInput& input);
// Leaves the named tool alone, which then has to be called.
void choose_tool(ParamReader& reader, const std::string& name, ChatInput& input);
// Refuses a choice that no tool can fulfil.
void check_tool_choice(ParamReader& reader, const ChatInput& input);

Result<ChatRequest> read_chat_request(const Json& body, const ChatDefaults& defaults);

}  // namespace pocketfleet
