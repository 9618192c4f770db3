#include "engine/grammar.h"

#include <fmt/format.h>
#include <json-schema-to-grammar.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json.h"
#include "engine/schema_check.h"

namespace pocketfleet {

namespace {

constexpr std::string_view kJsonObjectSchema = R"({"type":"object"})";

tl::unexpected<Error> too_deep(const char* what, const char* param, size_t depth) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("the {} is nested deeper than {} levels", what, depth), param);
}

Result<std::string> schema_to_gbnf(const std::string& text, const GrammarLimits& limits) {
  auto parsed = parse_json(text, {limits.depth, limits.text_bytes});
  if (!parsed) return fail(ErrorCode::kInvalidArgument, parsed.error().message, "json_schema");
  if (!parsed->is_object() && !parsed->is_boolean())
    return fail(ErrorCode::kInvalidArgument, "a JSON schema must be an object", "json_schema");
  PF_CHECK_OK(check_schema(*parsed, true, limits));
  try {
    return json_schema_to_grammar(common_json::parse(text), true);
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("the schema cannot be enforced: {}", e.what()), "json_schema");
  }
}

}  // namespace

Result<void> check_gbnf(std::string_view grammar, const GrammarLimits& limits) {
  if (grammar.size() > limits.text_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the grammar has {} bytes; at most {} are accepted", grammar.size(), limits.text_bytes), "grammar");
  }
  // What each open group holds so far, and the cost of the element that a repetition would multiply.
  std::vector<size_t> group{0};
  std::vector<size_t> last{0};
  const auto element = [&](size_t cost) {
    last.back() = cost;
    group.back() += cost;
  };
  for (size_t at = 0; at < grammar.size(); ++at) {
    const char c = grammar[at];
    if (c == '#') {
      while (at < grammar.size() && grammar[at] != '\n') ++at;
    } else if (c == '"' || c == '[') {
      const char closing = c == '"' ? '"' : ']';
      size_t length = 0;
      for (++at; at < grammar.size() && grammar[at] != closing; ++at) {
        if (grammar[at] == '\\') ++at;
        ++length;
      }
      element(c == '"' ? std::max<size_t>(length, 1) : 1);
    } else if (c == '(') {
      if (group.size() > limits.depth) return too_deep("grammar", "grammar", limits.depth);
      group.push_back(0);
      last.push_back(0);
    } else if (c == ')') {
      if (group.size() == 1) return fail(ErrorCode::kInvalidArgument, "the grammar closes a group that is not open", "grammar");
      const size_t cost = group.back();
      group.pop_back();
      last.pop_back();
      element(cost + 1);
    } else if (c == '{') {
      size_t most = 0;
      size_t number = 0;
      size_t least = 0;
      bool second = false;
      for (++at; at < grammar.size() && grammar[at] != '}'; ++at) {
        if (grammar[at] >= '0' && grammar[at] <= '9') {
          number = number * 10 + static_cast<size_t>(grammar[at] - '0');
          if (number > limits.repeat) {
            return fail(ErrorCode::kInvalidArgument, fmt::format("a repetition of more than {} is not accepted", limits.repeat),
                        "grammar");
          }
          most = std::max(most, number);
        } else {
          if (grammar[at] == ',') {
            least = number;
            second = true;
          }
          number = 0;
        }
      }
      // llama.cpp would count from the larger one to the smaller one for ever.
      if (second && at > 0 && grammar[at - 1] != ',' && number < least) {
        return fail(ErrorCode::kInvalidArgument, fmt::format("a repetition has a minimum of {}, above its maximum", least),
                    "grammar");
      }
      group.back() += last.back() * most;
      last.back() *= std::max<size_t>(most, 1);
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      while (at + 1 < grammar.size() &&
             (isalnum(static_cast<unsigned char>(grammar[at + 1])) != 0 || grammar[at + 1] == '-' || grammar[at + 1] == '_'))
        ++at;
      element(1);
    }
    if (group.back() > limits.expansion) {
      return fail(ErrorCode::kInvalidArgument, "the grammar's repetitions expand to too much; make them smaller", "grammar");
    }
  }
  if (group.size() != 1) return fail(ErrorCode::kInvalidArgument, "the grammar leaves a group open", "grammar");
  return {};
}

const char* constraint_param(ConstraintKind kind) {
  switch (kind) {
    case ConstraintKind::kGrammar:
      return "grammar";
    case ConstraintKind::kRegex:
      return "regex";
    case ConstraintKind::kJsonSchema:
      return "json_schema";
    case ConstraintKind::kJsonObject:
    case ConstraintKind::kNone:
      break;
  }
  return "response_format";
}

Result<std::string> constraint_to_gbnf(const Constraint& constraint, const GrammarLimits& limits) {
  std::string grammar;
  switch (constraint.kind) {
    case ConstraintKind::kNone:
      return grammar;
    case ConstraintKind::kJsonObject: {
      PF_TRY(grammar, schema_to_gbnf(std::string(kJsonObjectSchema), limits));
      break;
    }
    case ConstraintKind::kJsonSchema: {
      PF_TRY(grammar, schema_to_gbnf(constraint.text, limits));
      break;
    }
    case ConstraintKind::kRegex: {
      PF_TRY(grammar, regex_to_gbnf(constraint.text, limits));
      break;
    }
    case ConstraintKind::kGrammar: {
      grammar = constraint.text;
      if (grammar.find_first_not_of(" \t\r\n") == std::string::npos) {
        return fail(ErrorCode::kInvalidArgument, "the grammar is empty", "grammar");
      }
      break;
    }
  }
  // A grammar that came out of a schema is larger than the schema.
  GrammarLimits produced = limits;
  if (constraint.kind != ConstraintKind::kGrammar) produced.text_bytes *= 16;
  auto checked = check_gbnf(grammar, produced);
  if (checked) checked = check_gbnf_cost(grammar, produced);
  if (!checked) return fail(ErrorCode::kInvalidArgument, checked.error().message, constraint_param(constraint.kind));
  return grammar;
}

Result<std::shared_ptr<const OutputFormat>> compile_constraint(const Vocab& vocab, const Constraint& constraint) {
  PF_TRY(std::string grammar, constraint_to_gbnf(constraint));
  GrammarSpec spec;
  spec.text = std::move(grammar);
  PF_TRY(auto format, LlamaFormat::create(vocab, std::move(spec), {}, constraint_param(constraint.kind)));
  return std::shared_ptr<const OutputFormat>(std::move(format));
}

}  // namespace pocketfleet
