// Reads written text as an assistant's message. Three kinds: plain content; reasoning and content, told apart by their marks; and
// templates with tool calls, read by llama.cpp's parser. None of them ever fails: what does not fit is content.
#pragma once

#include <memory>

#include "engine/output_format.h"

namespace pocketfleet {

std::unique_ptr<ChatOutputParser> make_chat_parser(const ReadingSpec& spec);

}  // namespace pocketfleet
