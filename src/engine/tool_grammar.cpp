#include "engine/tool_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json.h"

namespace pocketfleet {

namespace {

constexpr std::string_view kCallRule = "tool-call-root ::= ";
constexpr std::string_view kFreeString = " xml-arg-string";
constexpr size_t kMostEnumValues = 512;

// As llama.cpp names its rules.
std::string rule_name(std::string text) {
  for (char& c : text) {
    if (isalnum(static_cast<unsigned char>(c)) == 0 && c != '-') c = '-';
  }
  return text;
}

std::string literal(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + '"';
}

// The values of a string property with an enum, as alternatives; empty when it has none.
std::string enum_alternatives(const Json& schema) {
  const auto values = schema.is_object() ? schema.find("enum") : schema.end();
  if (!schema.is_object() || values == schema.end() || !values->is_array() || values->empty() || values->size() > kMostEnumValues)
    return {};
  std::string out;
  for (const Json& value : *values) {
    if (!value.is_string()) return {};
    if (!out.empty()) out += " | ";
    out += literal(value.get<std::string>());
  }
  return "(" + out + ")";
}

}  // namespace

ToolGrammar tighten_tool_grammar(const std::string& grammar, const std::vector<ToolDefinition>& tools, bool required) {
  std::vector<std::pair<std::string, std::string>> enums;  // rule, alternatives
  for (const ToolDefinition& tool : tools) {
    const auto schema = parse_json(tool.parameters);
    if (!schema || !schema->is_object()) continue;
    const auto properties = schema->find("properties");
    if (properties == schema->end() || !properties->is_object()) continue;
    for (const auto& property : properties->items()) {
      std::string alternatives = enum_alternatives(property.value());
      if (!alternatives.empty())
        enums.emplace_back(rule_name("tool-" + tool.name + "-arg-" + property.key()) + " ::= ", std::move(alternatives));
    }
  }
  ToolGrammar out;
  const bool has_call = grammar.starts_with(kCallRule) || grammar.find("\n" + std::string(kCallRule)) != std::string::npos;
  std::istringstream lines(grammar);
  for (std::string line; std::getline(lines, line);) {
    if (required && has_call && line.starts_with("root ::= ")) {
      line = "root ::= tool-call-root";
      out.starts_at_call = true;
    } else if (line.ends_with(kFreeString)) {
      const auto found = std::find_if(enums.begin(), enums.end(), [&](const auto& one) { return line.starts_with(one.first); });
      if (found != enums.end())
        line = line.substr(0, line.size() - kFreeString.size()) + " " + found->second + " \"\\n</parameter>\\n\"";
    }
    out.text += line + "\n";
  }
  return out;
}

}  // namespace pocketfleet
