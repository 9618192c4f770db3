// What a ChatTemplate is made of; private to chat_template*.cpp.
#pragma once

#include <chat-auto-parser.h>
#include <chat.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/chat_template.h"

namespace pocketfleet {

struct ChatTemplate::Impl {
  common_chat_templates_ptr templates;
  // The same template once more, to render it once a request where the library would render it three times.
  std::unique_ptr<common_chat_template> direct;
  mutable std::mutex mutex;
  mutable std::unordered_map<std::string, std::string> generation_prompts;  // by thinking and kwargs
  bool thinking = false;
  std::string reasoning_start = "<think>";
  std::string reasoning_end = "</think>";

  std::string generation_prompt(const std::string& key, const autoparser::generation_params& params) const;
};

// Puts the texts back that were taken out before rendering.
std::string unmask(std::string_view text, const std::vector<std::string>& masked);

struct ChatTemplate::Rendered {
  common_chat_params params;
  std::vector<std::string> masked;
};

}  // namespace pocketfleet
