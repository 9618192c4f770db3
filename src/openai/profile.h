// Profiles: named classification tasks. A JSON file gives the instructions, where the input goes, the labels and how long inputs
// are read; docs/profiles.md describes every key. Parsing is strict (an unknown key is an error with a suggestion) and pure; a
// Profile is a plain value. Errors carry the key in `param`, as "labels[3].name".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/types.h"
#include "openai/calibration.h"

namespace pocketfleet {

struct ProfileLabel {
  std::string label;  // what the model writes
  std::string name;   // what it means to people; empty when not given
};

struct ProfileWindow {
  size_t characters = 0;  // 0: inputs are read whole
  size_t stride = 0;
};

struct Profile {
  std::string name;
  std::string description;
  std::string instructions;
  std::string input_role = "user";
  std::string input_template = "{input}";
  std::string answer_prefix;
  std::vector<ProfileLabel> labels;
  std::vector<size_t> positive;  // places in `labels`
  double threshold = 0.5;
  ProfileWindow window;
  bool thinking = false;
  Calibration calibration;

  std::vector<std::string> label_texts() const;
};

inline constexpr size_t kMaxLabels = 512;

// For tasks that stand in a request, where `name` is not asked for, there is kInline.
enum class ProfileOrigin { kFile, kInline };

Result<Profile> parse_profile(std::string_view text);
Result<Profile> profile_from_json(const Json& value, ProfileOrigin origin);
// Errors begin with the path.
Result<Profile> load_profile(const std::string& path);

// The conversation that asks the profile's question about one input.
ChatInput profile_chat(const Profile& profile, std::string_view input);

// What the profile itself says behind the input, in the message that holds it.
std::string profile_tail(const Profile& profile);

}  // namespace pocketfleet
