// Records of a JSON Lines file. A record ends at a line feed and nowhere else: U+2028, U+0085 and carriage returns inside a
// record are text. Pure but for read_jsonl(). Errors name the line by number, never by content.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pocketfleet::cli {

struct Record {
  size_t line = 0;  // from 1
  std::string text;
  std::string expected;  // empty when no field was asked for
};

// Views of the lines that are not blank, with their numbers from 1.
std::vector<std::pair<size_t, std::string_view>> split_lines(std::string_view text);

// `expect_field` may be empty. A number or a truth value as the expected answer is taken as it is written.
Result<std::vector<Record>> parse_records(std::string_view text, const std::string& text_field, const std::string& expect_field);

// "-": standard input. At most 1 GiB.
Result<std::string> read_input(const std::string& path);

}  // namespace pocketfleet::cli
