#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "cli/options.h"
#include "openai/profile.h"

namespace pocketfleet::cli {

namespace {

std::string in_words(const Profile& profile) {
  std::string text = std::to_string(profile.labels.size()) + " labels";
  if (!profile.positive.empty()) {
    text += ", flagged when";
    for (const size_t place : profile.positive) {
      text += (place == profile.positive.front() ? " " : " + ") + profile.labels[place].label;
    }
    char threshold[32];
    std::snprintf(threshold, sizeof threshold, "%g", profile.threshold);
    text += std::string(" >= ") + threshold;
  }
  if (profile.window.characters > 0) {
    text += ", windows of " + std::to_string(profile.window.characters) + " characters every " +
            std::to_string(profile.window.stride);
  }
  return text;
}

}  // namespace

int run_profile_check(const ProfileCheckOptions& options) {
  int wrong = 0;
  for (const std::string& file : options.files) {
    const auto profile = load_profile(file);
    if (!profile) ++wrong;
    if (options.json) {
      Json line = {{"file", file}, {"valid", profile.has_value()}};
      if (profile) {
        line["name"] = profile->name;
        line["labels"] = profile->label_texts();
      } else {
        line["error"] = {{"message", profile.error().message}, {"param", profile.error().param}};
      }
      std::printf("%s\n", dump_json(line).c_str());
    } else if (profile) {
      std::printf("%s: profile \"%s\" is valid: %s\n", file.c_str(), profile->name.c_str(), in_words(*profile).c_str());
    } else {
      std::fprintf(stderr, "%s\n", profile.error().message.c_str());
    }
  }
  return wrong == 0 ? 0 : 2;
}

}  // namespace pocketfleet::cli
