// Constraints as GBNF grammars. Hostile input is refused before llama.cpp's recursive parsers see it: size, nesting and what
// repetitions expand to are bounded. It never fails open: what cannot be converted is kInvalidArgument. Pure but for llama.cpp's
// parsers; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/output_format.h"
#include "engine/types.h"
#include "engine/vocab.h"

namespace pocketfleet {

struct GrammarLimits {
  size_t text_bytes = 64u << 10;
  size_t depth = 64;
  size_t repeat = 2'000;      // one {m,n}
  size_t expansion = 50'000;  // elements after all repetitions are written out
  size_t beginnings = 1'024;  // ways in which one place can go on; each is followed for every token
  size_t properties = 256;    // optional ones of one object in a schema
};

// The GBNF text of a constraint; empty for kNone. The error's param names the field of the request's constraint.
Result<std::string> constraint_to_gbnf(const Constraint& constraint, const GrammarLimits& limits = {});

// The field of a request that a constraint of this kind comes from, for errors.
const char* constraint_param(ConstraintKind kind);

// A regular expression that must match the whole text: literals, classes, groups, alternation, * + ? {m,n}, \d \w \s and escapes.
// Lookaround, back references, word boundaries and anchors inside are refused.
Result<std::string> regex_to_gbnf(std::string_view regex, const GrammarLimits& limits = {});

// The schema of a tool's parameters, which llama.cpp is about to convert: bounds only. Keywords that it passes over are no error,
// since tools are described and not enforced.
Result<void> check_tool_schema(const std::string& schema, const GrammarLimits& limits = {});

// Whether rules can be followed without an explosion: what begins in more than `limits.beginnings` ways, what can be empty in
// several ways or repeats something that can be empty, and left recursion are refused. For texts that check_gbnf() let through.
Result<void> check_gbnf_cost(std::string_view grammar, const GrammarLimits& limits = {});

// Bounds of a GBNF text that llama.cpp is about to parse.
Result<void> check_gbnf(std::string_view grammar, const GrammarLimits& limits = {});

Result<std::shared_ptr<const OutputFormat>> compile_constraint(const Vocab& vocab, const Constraint& constraint);

}  // namespace pocketfleet
