#include "openai/classify_request.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "openai/suggest.h"

namespace pocketfleet {

namespace {

constexpr std::array<std::string_view, 11> kKeys = {"model",        "profile",       "input",    "labels",
                                                    "instructions", "answer_prefix", "positive", "threshold",
                                                    "window",       "calibration",   "user"};
constexpr std::array<std::string_view, 7> kInlineKeys = {"labels",    "instructions", "answer_prefix", "positive",
                                                         "threshold", "window",       "calibration"};

tl::unexpected<Error> wrong(std::string param, std::string_view what) {
  std::string message = "\"" + param + "\" " + std::string(what);
  return fail(ErrorCode::kInvalidArgument, std::move(message), std::move(param));
}

Result<std::optional<std::string>> read_string(const Json& body, const char* key) {
  const auto found = body.find(key);
  if (found == body.end() || found->is_null()) return std::optional<std::string>();
  if (!found->is_string()) return wrong(key, "must be a string");
  return std::optional<std::string>(found->get<std::string>());
}

Result<std::vector<std::string>> read_inputs(const Json& body) {
  const auto found = body.find("input");
  if (found == body.end()) return wrong("input", "is missing: send a text or an array of texts");
  if (found->is_string()) return std::vector<std::string>{found->get<std::string>()};
  if (!found->is_array()) return wrong("input", "must be a string or an array of strings");
  if (found->empty()) return wrong("input", "is an empty array");
  if (found->size() > kMaxClassifyInputs) {
    return wrong("input", "holds " + std::to_string(found->size()) + " texts; at most " + std::to_string(kMaxClassifyInputs) +
                              " are accepted in a request");
  }
  std::vector<std::string> inputs;
  inputs.reserve(found->size());
  for (size_t index = 0; index < found->size(); ++index) {
    if (!(*found)[index].is_string()) return wrong("input[" + std::to_string(index) + "]", "must be a string");
    inputs.push_back((*found)[index].get<std::string>());
  }
  return inputs;
}

}  // namespace

Result<ClassifyRequest> read_classify_request(const Json& body) {
  if (!body.is_object()) return fail(ErrorCode::kInvalidArgument, "the body must be a JSON object");
  for (const auto& [key, value] : body.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end()) continue;
    std::string name = shown_key(key);
    std::string message = "\"" + name + "\" is not a parameter of /v1/classify" + did_you_mean(name, kKeys);
    return fail(ErrorCode::kUnsupportedParameter, std::move(message), std::move(name));
  }

  ClassifyRequest request;
  PF_TRY(request.model, read_string(body, "model"));
  PF_TRY(request.profile, read_string(body, "profile"));
  PF_TRY(const std::optional<std::string> user, read_string(body, "user"));

  Json task = Json::object();
  for (const std::string_view key : kInlineKeys) {
    if (const auto found = body.find(key); found != body.end() && !found->is_null()) task[std::string(key)] = *found;
  }
  // A truth value says whether to use the profile's; an object is that of a task in the request.
  if (const auto found = task.find("calibration"); found != task.end() && found->is_boolean()) {
    request.calibrate = found->get<bool>();
    task.erase(found);
  }
  if (request.profile && !task.empty()) {
    return wrong(task.begin().key(), "cannot be sent together with \"profile\", which says it already");
  }
  if (!task.empty()) {
    PF_TRY(request.inline_profile, profile_from_json(task, ProfileOrigin::kInline));
    request.inline_key = dump_json(task);
  }
  PF_TRY(request.inputs, read_inputs(body));
  return request;
}

}  // namespace pocketfleet
