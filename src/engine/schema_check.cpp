// What must be true of a JSON schema before llama.cpp's converter sees it: the converter follows references without an end,
// copies a schema for each of its types, and lets any text through where it does not understand a keyword.

#include <fmt/format.h>
#include <json-schema-to-grammar.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/schema_check.h"

namespace pocketfleet {

namespace {

constexpr int kMostReferenceHops = 64;
constexpr const char* kLengthPairs[][2] = {{"minLength", "maxLength"}, {"minItems", "maxItems"}};
// Children that are data, not schemas.
constexpr std::string_view kData[] = {"const", "enum", "default", "examples", "example", "required"};
// Children that are maps from names to schemas.
constexpr std::string_view kMaps[] = {"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"};
constexpr std::string_view kNotEnforced[] = {"not",
                                             "if",
                                             "then",
                                             "else",
                                             "patternProperties",
                                             "propertyNames",
                                             "contains",
                                             "minContains",
                                             "maxContains",
                                             "multipleOf",
                                             "dependentRequired",
                                             "dependentSchemas",
                                             "dependencies",
                                             "minProperties",
                                             "maxProperties",
                                             "unevaluatedItems"};

template <size_t N>
bool among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

tl::unexpected<Error> refuse(std::string message) {
  return fail(ErrorCode::kInvalidArgument, "json_schema: " + std::move(message), "json_schema");
}

class Checker {
 public:
  Checker(const Json& root, bool strict, const GrammarLimits& limits) : root_(root), strict_(strict), limits_(limits) {}

  Result<void> check(const Json& schema) {
    if (schema.is_array()) {
      for (const Json& item : schema) PF_CHECK_OK(check(item));
      return {};
    }
    if (!schema.is_object()) return {};
    PF_CHECK_OK(check_lengths(schema));
    PF_CHECK_OK(check_reference(schema));
    PF_CHECK_OK(check_lists(schema));
    PF_CHECK_OK(check_properties(schema));
    if (strict_) PF_CHECK_OK(check_enforced(schema));
    for (const auto& item : schema.items()) {
      if (among(kData, item.key())) continue;
      if (among(kMaps, item.key()) && item.value().is_object()) {
        for (const auto& named : item.value().items()) PF_CHECK_OK(check(named.value()));
      } else {
        PF_CHECK_OK(check(item.value()));
      }
    }
    return {};
  }

 private:
  Result<void> check_lengths(const Json& schema) const {
    for (const auto& [least_key, most_key] : kLengthPairs) {
      int64_t least = 0;
      int64_t most = static_cast<int64_t>(limits_.repeat);
      for (const char* key : {least_key, most_key}) {
        const auto found = schema.find(key);
        if (found == schema.end()) continue;
        if (!found->is_number_integer() || found->get<int64_t>() < 0 ||
            found->get<int64_t>() > static_cast<int64_t>(limits_.repeat)) {
          return refuse(fmt::format("{} must be a whole number from 0 to {} to be enforced", key, limits_.repeat));
        }
        (key == least_key ? least : most) = found->get<int64_t>();
      }
      if (least > most) return refuse(fmt::format("{} is {}, which is more than {}, {}", least_key, least, most_key, most));
    }
    return {};
  }

  Result<void> check_reference(const Json& schema) const {
    const Json* at = &schema;
    for (int hops = 0;; ++hops) {
      const auto ref = at->is_object() ? at->find("$ref") : at->end();
      if (!at->is_object() || ref == at->end()) return {};
      if (!ref->is_string() || !ref->get_ref<const std::string&>().starts_with("#/"))
        return refuse("only references inside the schema (\"#/...\") are followed");
      const std::string& text = ref->get_ref<const std::string&>();
      if (hops >= kMostReferenceHops) return refuse(fmt::format("$ref \"{}\" leads back to itself", text.substr(0, 80)));
      at = &root_;
      for (size_t start = 2; start <= text.size();) {
        const size_t end = std::min(text.find('/', start), text.size());
        const std::string name = text.substr(start, end - start);
        start = end + 1;
        const Json* next = nullptr;
        if (at->is_object()) {
          if (const auto found = at->find(name); found != at->end()) next = &*found;
        } else if (at->is_array() && !name.empty() && name.size() < 7 &&
                   name.find_first_not_of("0123456789") == std::string::npos) {
          if (const size_t index = std::stoul(name); index < at->size()) next = &(*at)[index];
        }
        if (next == nullptr) return refuse(fmt::format("$ref \"{}\" leads nowhere", text.substr(0, 80)));
        at = next;
      }
    }
  }

  Result<void> check_lists(const Json& schema) const {
    for (const char* key : {"enum", "anyOf", "oneOf", "allOf"}) {
      const auto found = schema.find(key);
      if (found != schema.end() && (!found->is_array() || found->empty()))
        return refuse(fmt::format("{} must be a list that is not empty", key));
    }
    const auto types = schema.find("type");
    if (types == schema.end() || !types->is_array()) return {};
    for (size_t index = 0; index < types->size(); ++index) {
      if (std::find(types->begin(), types->begin() + static_cast<std::ptrdiff_t>(index), (*types)[index]) !=
          types->begin() + static_cast<std::ptrdiff_t>(index))
        return refuse("type names one type twice");
    }
    if (types->empty() || schema.contains("allOf")) return refuse("type must name one type beside allOf, and never none");
    return {};
  }

  Result<void> check_properties(const Json& schema) const {
    const auto properties = schema.find("properties");
    if (properties == schema.end()) return {};
    if (!properties->is_object()) return refuse("properties must be an object");
    const auto required = schema.find("required");
    const size_t needed = required != schema.end() && required->is_array() ? required->size() : 0;
    if (properties->size() > limits_.properties + needed)
      return refuse(
          fmt::format("an object has more than {} optional properties; require some, or leave some out", limits_.properties));
    return {};
  }

  // Only what the converter really turns into rules: everything else would be free text that looks enforced.
  Result<void> check_enforced(const Json& schema) const {
    for (const std::string_view key : kNotEnforced) {
      if (schema.contains(key)) return refuse(fmt::format("{} cannot be enforced; leave it out", key));
    }
    if (const auto unique = schema.find("uniqueItems"); unique != schema.end() && *unique != false)
      return refuse("uniqueItems cannot be enforced; leave it out");
    const bool integer = schema.value("type", Json()) == "integer";
    const int64_t smallest = std::numeric_limits<int64_t>::min() / 4;
    int64_t least = smallest;
    int64_t most = -smallest;
    for (const char* key : {"exclusiveMinimum", "minimum", "exclusiveMaximum", "maximum"}) {
      const auto found = schema.find(key);
      if (found == schema.end()) continue;
      if (!integer || !found->is_number_integer() || found->get<int64_t>() < smallest || found->get<int64_t>() > -smallest)
        return refuse(fmt::format("{} can only be enforced as a whole number beside \"type\": \"integer\"; leave it out", key));
      const bool lower = std::string_view(key).ends_with("inimum");
      const bool exclusive = key[0] == 'e';
      (lower ? least : most) = found->get<int64_t>() + (exclusive ? (lower ? 1 : -1) : 0);
    }
    if (least > most) return refuse("no whole number lies between the minimum and the maximum");
    const auto pattern = schema.find("pattern");
    return pattern == schema.end() ? Result<void>() : check_pattern(*pattern);
  }

  Result<void> check_pattern(const Json& pattern) const {
    if (!pattern.is_string()) return refuse("pattern must be a text");
    const std::string& text = pattern.get_ref<const std::string&>();
    if (text.size() < 2 || text.front() != '^' || text.back() != '$')
      return refuse("pattern must begin with ^ and end with $ to be enforced");
    if (const auto converted = regex_to_gbnf(text, limits_); !converted) return refuse("pattern: " + converted.error().message);
    // Where the converter gives up on a pattern it says "any string".
    try {
      const Json alone = {{"type", "string"}, {"pattern", text}};
      const std::string grammar = json_schema_to_grammar(common_json::parse(dump_json(alone)), true);
      if (grammar.starts_with("root ::= string\n") || grammar.find("\nroot ::= string\n") != std::string::npos)
        return refuse(fmt::format("pattern \"{}\" uses something that cannot be enforced", text.substr(0, 80)));
    } catch (const std::exception& e) {
      return refuse(fmt::format("pattern: {}", e.what()));
    }
    return {};
  }

  const Json& root_;
  bool strict_;
  const GrammarLimits& limits_;
};

}  // namespace

Result<void> check_schema(const Json& schema, bool strict, const GrammarLimits& limits) {
  return Checker(schema, strict, limits).check(schema);
}

Result<void> check_tool_schema(const std::string& schema, const GrammarLimits& limits) {
  auto parsed = parse_json(schema, {limits.depth, limits.text_bytes});
  if (parsed) {
    auto checked = check_schema(*parsed, false, limits);
    if (checked) return {};
    return fail(ErrorCode::kInvalidArgument, "a tool's parameters: " + checked.error().message, "tools");
  }
  return fail(ErrorCode::kInvalidArgument, "a tool's parameters: " + parsed.error().message, "tools");
}

}  // namespace pocketfleet
