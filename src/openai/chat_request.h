// The body of POST /v1/chat/completions as values. Strict, bounded, pure. Errors name the parameter ("messages[2].content").
#pragma once

#include <string>

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

Result<ChatRequest> read_chat_request(const Json& body, const ChatDefaults& defaults);

}  // namespace pocketfleet
