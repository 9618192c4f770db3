// Requests for responses: whatever the body is, it is read within its bounds or refused with an error that names what is wrong.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "openai/responses_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pocketfleet;
  const auto body = parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!body || !body->is_object()) return 0;
  constexpr int kVocabulary = 1'000;
  const auto request = read_responses_request(*body, {true, kVocabulary});
  if (!request) {
    const Error& error = request.error();
    if (error.message.empty() || error.param.empty() || map_error(error.code).http_status != 400) std::abort();
    return 0;
  }
  const GenerationParams& generation = request->generation;
  const SamplingParams& sampling = generation.sampling;
  for (const float value : {sampling.temperature, sampling.top_p, sampling.min_p, sampling.frequency_penalty,
                            sampling.presence_penalty, sampling.repeat_penalty}) {
    if (!std::isfinite(value) || std::abs(value) > 10) std::abort();
  }
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < 0 || token >= kVocabulary || !(std::abs(bias) <= 100)) std::abort();
  }
  if (generation.n < 1 || generation.n > kMostChoices || generation.stop.size() > kMostStops) std::abort();
  if (generation.max_tokens && *generation.max_tokens < 1) std::abort();
  if (request->top_logprobs < -1 || request->top_logprobs > 20) std::abort();
  const auto& messages = request->input.messages;
  if (messages.empty()) std::abort();
  for (size_t index = 1; index < messages.size(); ++index) {
    if (messages[index].role == "system" || messages[index].role == "developer") std::abort();
  }
  return 0;
}
