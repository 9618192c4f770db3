// Requests for responses: whatever the body is, it is read within its bounds or refused with an error that names what is wrong.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"
#include "openai/responses_request.h"
#include "writing_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pocketfleet;
  const auto body = parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!body || !body->is_object()) return 0;
  constexpr int kVocabulary = 1'000;
  const auto request = read_responses_request(*body, {true, kVocabulary});
  if (!request) {
    check_refusal(request.error());
    return 0;
  }
  check_writing(request->input, request->generation, request->top_logprobs, kVocabulary);
  return 0;
}
