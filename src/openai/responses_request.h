// The body of POST /v1/responses as values: the subset that needs nothing to be kept between requests. Strict, bounded, pure.
// Errors name the parameter ("input[2].content[0]").
#pragma once

#include <string>

#include "base/json.h"
#include "engine/types.h"
#include "openai/chat_request.h"
#include "openai/generation_params.h"

namespace pocketfleet {

struct ResponsesRequest {
  ChatInput input;  // the constraint included
  GenerationParams generation;
  int top_logprobs = -1;  // -1: no logprobs
};

Result<ResponsesRequest> read_responses_request(const Json& body, const ChatDefaults& defaults);

}  // namespace pocketfleet
