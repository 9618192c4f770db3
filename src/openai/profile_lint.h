// How a profile's prompt is laid out, in tokens of one model: what is read once for all inputs, and what again with every one.
// Pure but for the engine's own calls; any thread.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "openai/profile.h"

namespace pocketfleet {

struct ProfileLint {
  size_t fixed_tokens = 0;         // read once, and then taken from a checkpoint
  size_t per_input_tokens = 0;     // read with every input, beside the input itself
  size_t behind_input_tokens = 0;  // of these: the profile's own words behind the input, which could stand before it
  size_t answer_tokens = 0;        // of these: what every answer begins with
  size_t longest_label_tokens = 0;
  std::vector<std::string> warnings;
};

// `read_tokens_per_s`: for the seconds in warnings.
Result<ProfileLint> lint_profile(const Engine& engine, const Profile& profile, double read_tokens_per_s);

}  // namespace pocketfleet
