// What must hold of every request to write that was read, and of every refusal, whatever its API. Aborts where it does not.
#pragma once

#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "engine/types.h"
#include "openai/generation_params.h"

namespace pocketfleet {

inline void check_refusal(const Error& error) {
  if (error.message.empty() || error.param.empty() || map_error(error.code).http_status != 400) std::abort();
}

inline void check_writing(const ChatInput& input, const GenerationParams& generation, int top_logprobs, int vocabulary) {
  const SamplingParams& sampling = generation.sampling;
  for (const float value : {sampling.temperature, sampling.top_p, sampling.min_p, sampling.frequency_penalty,
                            sampling.presence_penalty, sampling.repeat_penalty}) {
    if (!std::isfinite(value) || std::abs(value) > 10) std::abort();
  }
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < 0 || token >= vocabulary || !(std::abs(bias) <= 100)) std::abort();
  }
  if (generation.n < 1 || generation.n > kMostChoices || generation.stop.size() > kMostStops) std::abort();
  if (generation.max_tokens && *generation.max_tokens < 1) std::abort();
  if (top_logprobs < -1 || top_logprobs > 20) std::abort();
  const auto& messages = input.messages;
  if (messages.empty()) std::abort();
  for (size_t index = 1; index < messages.size(); ++index) {
    if (messages[index].role == "system" || messages[index].role == "developer") std::abort();
  }
}

}  // namespace pocketfleet
