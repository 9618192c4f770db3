#include "openai/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/files.h"
#include "openai/suggest.h"

namespace pocketfleet {

namespace {

constexpr size_t kMaxFileBytes = 4u << 20;
constexpr size_t kMaxTextBytes = 2u << 20;
constexpr size_t kMaxLabelBytes = 256;
constexpr size_t kMaxWindowCharacters = 10'000'000;
constexpr std::string_view kInputMark = "{input}";
constexpr std::string_view kInstructionsMark = "{instructions}";

using Keys = std::span<const std::string_view>;
constexpr std::array<std::string_view, 11> kProfileKeys = {"name",          "description", "instructions", "input",
                                                           "answer_prefix", "labels",      "positive",     "threshold",
                                                           "window",        "thinking",    "calibration"};
constexpr std::array<std::string_view, 2> kInputKeys = {"role", "template"};
constexpr std::array<std::string_view, 2> kLabelKeys = {"label", "name"};
constexpr std::array<std::string_view, 2> kWindowKeys = {"characters", "stride"};
constexpr std::array<std::string_view, 2> kCalibrationKeys = {"temperature", "platt"};
constexpr std::array<std::string_view, 2> kPlattKeys = {"slope", "offset"};

tl::unexpected<Error> wrong(const std::string& key, std::string_view what) {
  return fail(ErrorCode::kInvalidArgument, "\"" + key + "\" " + std::string(what), key);
}

Result<void> check_keys(const Json& object, Keys known, const std::string& inside) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string param = inside.empty() ? shown_key(key) : inside + "." + shown_key(key);
    return fail(ErrorCode::kInvalidArgument, "\"" + param + "\" is not a key of a profile" + did_you_mean(key, known), param);
  }
  return {};
}

Result<std::string> read_text(const Json& object, const char* key, const std::string& param, size_t max_bytes,
                              std::string fallback) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  if (!found->is_string()) return wrong(param, "must be a string");
  const auto& text = found->get_ref<const std::string&>();
  if (text.size() > max_bytes)
    return wrong(param, "has " + std::to_string(text.size()) + " bytes; at most " + std::to_string(max_bytes));
  return text;
}

// A whole number from 1 to `max`.
Result<size_t> read_count(const Json& object, const char* key, const std::string& param, size_t max) {
  const auto found = object.find(key);
  if (found == object.end()) return wrong(param, "is missing");
  if (!found->is_number_integer()) return wrong(param, "must be a whole number");
  const auto value = found->is_number_unsigned() ? found->get<uint64_t>() : 0;
  if (value < 1 || value > max) return wrong(param, "must be from 1 to " + std::to_string(max));
  return static_cast<size_t>(value);
}

size_t count_marks(std::string_view text, std::string_view mark) {
  size_t count = 0;
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + mark.size())) ++count;
  return count;
}

bool sane_name(std::string_view name) {
  if (name.empty() || name.size() > 64) return false;
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == std::string_view::npos;
}

Result<void> read_input(const Json& object, Profile& profile) {
  const auto found = object.find("input");
  if (found == object.end()) return {};
  if (!found->is_object()) return wrong("input", R"(must be an object such as {"role":"user","template":"{input}"})");
  PF_CHECK_OK(check_keys(*found, kInputKeys, "input"));
  PF_TRY(profile.input_role, read_text(*found, "role", "input.role", 16, profile.input_role));
  if (profile.input_role != "user" && profile.input_role != "system")
    return wrong("input.role", "must be \"user\" or \"system\"");
  PF_TRY(profile.input_template, read_text(*found, "template", "input.template", kMaxTextBytes, profile.input_template));
  if (count_marks(profile.input_template, kInputMark) != 1) return wrong("input.template", "must hold {input} exactly once");
  if (count_marks(profile.input_template, kInstructionsMark) > 1) return wrong("input.template", "may hold {instructions} once");
  return {};
}

Result<void> read_labels(const Json& object, Profile& profile) {
  const auto found = object.find("labels");
  if (found == object.end()) return wrong("labels", "is missing: list the allowed answers, at least two");
  if (!found->is_array()) return wrong("labels", "must be an array");
  if (found->size() < 2 || found->size() > kMaxLabels) {
    return wrong("labels",
                 "holds " + std::to_string(found->size()) + "; from 2 to " + std::to_string(kMaxLabels) + " are allowed");
  }
  std::set<std::string> seen;
  for (size_t index = 0; index < found->size(); ++index) {
    const Json& item = (*found)[index];
    const std::string param = "labels[" + std::to_string(index) + "]";
    ProfileLabel label;
    if (item.is_string()) {
      label.label = item.get<std::string>();
    } else if (item.is_object()) {
      PF_CHECK_OK(check_keys(item, kLabelKeys, param));
      if (!item.contains("label")) return wrong(param + ".label", "is missing");
      PF_TRY(label.label, read_text(item, "label", param + ".label", kMaxLabelBytes, {}));
      PF_TRY(label.name, read_text(item, "name", param + ".name", kMaxLabelBytes, {}));
    } else {
      return wrong(param, R"(must be a string or {"label":"5","name":"scam"})");
    }
    if (label.label.empty()) return wrong(param, "is empty");
    if (label.label.size() > kMaxLabelBytes) return wrong(param, "has more than 256 bytes");
    if (!seen.insert(label.label).second) return wrong(param, "stands in the list twice");
    profile.labels.push_back(std::move(label));
  }
  return {};
}

Result<void> read_positive(const Json& object, Profile& profile) {
  if (const auto found = object.find("positive"); found != object.end()) {
    if (!found->is_array()) return wrong("positive", "must be an array of labels");
    if (found->empty()) return wrong("positive", "is empty; leave it out when nothing is to be flagged");
    for (size_t index = 0; index < found->size(); ++index) {
      const std::string param = "positive[" + std::to_string(index) + "]";
      if (!(*found)[index].is_string()) return wrong(param, "must be a string");
      const auto& text = (*found)[index].get_ref<const std::string&>();
      size_t place = 0;
      while (place < profile.labels.size() && profile.labels[place].label != text) ++place;
      if (place == profile.labels.size()) {
        std::vector<std::string_view> known;
        for (const ProfileLabel& label : profile.labels) known.emplace_back(label.label);
        return wrong(param, "is not one of the labels" + did_you_mean(text, known));
      }
      if (std::find(profile.positive.begin(), profile.positive.end(), place) != profile.positive.end()) {
        return wrong(param, "stands in the list twice");
      }
      profile.positive.push_back(place);
    }
    if (profile.positive.size() == profile.labels.size())
      return wrong("positive", "holds every label, so everything would be flagged");
  }
  if (const auto found = object.find("threshold"); found != object.end()) {
    if (profile.positive.empty()) return wrong("threshold", "has no meaning without \"positive\"");
    if (!found->is_number()) return wrong("threshold", "must be a number from 0 to 1");
    profile.threshold = found->get<double>();
    if (!(profile.threshold >= 0 && profile.threshold <= 1)) return wrong("threshold", "must be a number from 0 to 1");
  }
  return {};
}

Result<void> read_window(const Json& object, Profile& profile) {
  const auto found = object.find("window");
  if (found == object.end()) return {};
  if (!found->is_object()) return wrong("window", R"(must be an object such as {"characters":240,"stride":160})");
  PF_CHECK_OK(check_keys(*found, kWindowKeys, "window"));
  PF_TRY(profile.window.characters, read_count(*found, "characters", "window.characters", kMaxWindowCharacters));
  PF_TRY(profile.window.stride, read_count(*found, "stride", "window.stride", profile.window.characters));
  return {};
}

Result<double> read_number(const Json& object, const char* key, const std::string& param, double least, double most) {
  const auto found = object.find(key);
  if (found == object.end()) return wrong(param, "is missing");
  const double value = found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
  // NaN is in no range.
  if (!(value >= least && value <= most)) return wrong(param, fmt::format("must be a number from {} to {}", least, most));
  return value;
}

Result<void> read_calibration(const Json& object, Profile& profile) {
  const auto found = object.find("calibration");
  if (found == object.end()) return {};
  if (!found->is_object() || found->empty()) return wrong("calibration", R"(must be an object such as {"temperature":1.5})");
  PF_CHECK_OK(check_keys(*found, kCalibrationKeys, "calibration"));
  if (found->contains("temperature")) {
    PF_TRY(profile.calibration.temperature, read_number(*found, "temperature", "calibration.temperature", 0.05, 20));
  }
  const auto platt = found->find("platt");
  if (platt == found->end()) return {};
  if (!platt->is_object()) return wrong("calibration.platt", R"(must be an object such as {"slope":0.8,"offset":-0.2})");
  if (profile.positive.empty()) return wrong("calibration.platt", "has no meaning without \"positive\"");
  PF_CHECK_OK(check_keys(*platt, kPlattKeys, "calibration.platt"));
  PlattLine line;
  // A line that falls would turn the verdicts round.
  PF_TRY(line.slope, read_number(*platt, "slope", "calibration.platt.slope", 0, 100));
  PF_TRY(line.offset, read_number(*platt, "offset", "calibration.platt.offset", -100, 100));
  profile.calibration.platt = line;
  return {};
}

}  // namespace

std::vector<std::string> Profile::label_texts() const {
  std::vector<std::string> texts;
  texts.reserve(labels.size());
  for (const ProfileLabel& label : labels) texts.push_back(label.label);
  return texts;
}

Result<Profile> profile_from_json(const Json& value, ProfileOrigin origin) {
  if (!value.is_object()) return fail(ErrorCode::kInvalidArgument, "a profile is a JSON object");
  PF_CHECK_OK(check_keys(value, kProfileKeys, {}));

  Profile profile;
  if (origin == ProfileOrigin::kFile) {
    if (!value.contains("name")) return wrong("name", "is missing");
    PF_TRY(profile.name, read_text(value, "name", "name", 1024, {}));
    if (!sane_name(profile.name)) return wrong("name", "must be 1 to 64 of the characters A-Z a-z 0-9 . _ -");
  }
  PF_TRY(profile.description, read_text(value, "description", "description", kMaxTextBytes, {}));
  PF_TRY(profile.instructions, read_text(value, "instructions", "instructions", kMaxTextBytes, {}));
  PF_CHECK_OK(read_input(value, profile));
  PF_TRY(profile.answer_prefix, read_text(value, "answer_prefix", "answer_prefix", 4096, {}));
  PF_CHECK_OK(read_labels(value, profile));
  PF_CHECK_OK(read_positive(value, profile));
  PF_CHECK_OK(read_window(value, profile));
  PF_CHECK_OK(read_calibration(value, profile));
  if (const auto found = value.find("thinking"); found != value.end()) {
    if (!found->is_boolean()) return wrong("thinking", "must be true or false");
    profile.thinking = found->get<bool>();
  }
  if (profile.input_template.find(kInstructionsMark) != std::string::npos && profile.instructions.empty()) {
    return wrong("instructions", "is missing, but \"input.template\" wants to place it");
  }
  if (profile.input_role == "system" && !profile.instructions.empty() &&
      profile.input_template.find(kInstructionsMark) == std::string::npos) {
    return wrong("input.role", "\"system\" would give two system messages; place {instructions} in \"input.template\" too");
  }
  return profile;
}

Result<Profile> parse_profile(std::string_view text) {
  JsonLimits limits;
  limits.max_depth = 8;
  limits.max_bytes = kMaxFileBytes;
  PF_TRY(const Json value, parse_json(text, limits));
  return profile_from_json(value, ProfileOrigin::kFile);
}

Result<Profile> load_profile(const std::string& path) {
  auto text = read_file(path, kMaxFileBytes);
  if (!text) return fail(text.error());
  auto profile = parse_profile(*text);
  if (!profile) {
    Error error = profile.error();
    error.message = path + ": " + error.message;
    return fail(std::move(error));
  }
  return profile;
}

ChatInput profile_chat(const Profile& profile, std::string_view input) {
  // The marks are looked for in the template alone: "{instructions}" inside somebody's input is only text.
  const std::string_view pattern = profile.input_template;
  const size_t instructions = pattern.find(kInstructionsMark);
  const size_t place = pattern.find(kInputMark);
  const auto fill = [&](std::string_view part) {
    if (instructions == std::string_view::npos) return std::string(part);
    const size_t at = part.find(kInstructionsMark);
    if (at == std::string_view::npos) return std::string(part);
    return std::string(part.substr(0, at)) + profile.instructions + std::string(part.substr(at + kInstructionsMark.size()));
  };

  ChatInput chat;
  chat.enable_thinking = profile.thinking;
  if (instructions == std::string_view::npos && !profile.instructions.empty()) {
    chat.messages.push_back({.role = "system", .content = profile.instructions});
  }
  ChatMessage message;
  message.role = profile.input_role;
  message.content = fill(pattern.substr(0, place)) + std::string(input) + fill(pattern.substr(place + kInputMark.size()));
  chat.messages.push_back(std::move(message));
  return chat;
}

std::string profile_tail(const Profile& profile) {
  const size_t place = profile.input_template.find(kInputMark);
  std::string tail = profile.input_template.substr(place + kInputMark.size());
  if (const size_t at = tail.find(kInstructionsMark); at != std::string::npos)
    tail.replace(at, kInstructionsMark.size(), profile.instructions);
  return tail;
}

}  // namespace pocketfleet
