// The body of POST /v1/classify: strict, bounded, pure. Errors name the parameter ("input[7]").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "openai/profile.h"

namespace pocketfleet {

inline constexpr size_t kMaxClassifyInputs = 2048;
inline constexpr size_t kMaxClassifyWindows = 8192;  // over all inputs of a request

struct ClassifyRequest {
  std::optional<std::string> model;
  std::optional<std::string> profile;     // by name
  std::optional<Profile> inline_profile;  // "labels" stood in the request
  std::string inline_key;                 // equal for equal inline profiles
  std::vector<std::string> inputs;
  bool calibrate = true;  // by the profile's calibration
};

Result<ClassifyRequest> read_classify_request(const Json& body);

}  // namespace pocketfleet
