// Makes llama.cpp's grammar for tool calls stricter where its template handler leaves room: a required call comes at once instead
// of after any amount of text, and string arguments keep to their enum. What has another form is left as it is. Pure.
#pragma once

#include <string>
#include <vector>

#include "engine/types.h"

namespace pocketfleet {

struct ToolGrammar {
  std::string text;
  bool starts_at_call = false;  // covers the call alone, not the end of the prompt
};

ToolGrammar tighten_tool_grammar(const std::string& grammar, const std::vector<ToolDefinition>& tools, bool required);

}  // namespace pocketfleet
