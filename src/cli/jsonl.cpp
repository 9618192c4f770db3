#include "cli/jsonl.h"

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"

namespace pocketfleet::cli {

namespace {

constexpr size_t kMaxBytes = 1u << 30;

}  // namespace

std::vector<std::pair<size_t, std::string_view>> split_lines(std::string_view text) {
  std::vector<std::pair<size_t, std::string_view>> lines;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) lines.emplace_back(number, line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

Result<std::vector<Record>> parse_records(std::string_view text, const std::string& text_field, const std::string& expect_field) {
  std::vector<Record> records;
  for (const auto& [number, line] : split_lines(text)) {
    const auto wrong = [&, number = number](const std::string& what) {
      return fail(ErrorCode::kInvalidArgument, "line " + std::to_string(number) + " " + what);
    };
    const auto value = parse_json(line);
    if (!value) return wrong("is not JSON: " + value.error().message);
    if (!value->is_object()) return wrong("is not a JSON object");
    Record record;
    record.line = number;
    const auto found = value->find(text_field);
    if (found == value->end())
      return wrong("has no field \"" + text_field + "\"; name the field that holds the text with --text-field");
    if (!found->is_string()) return wrong("has a field \"" + text_field + "\" that is not a string");
    record.text = found->get<std::string>();
    if (!expect_field.empty()) {
      const auto expected = value->find(expect_field);
      if (expected == value->end() || expected->is_structured() || expected->is_null()) {
        return wrong("has no field \"" + expect_field + "\" with a plain value, which --expect-field asks for");
      }
      record.expected = expected->is_string() ? expected->get<std::string>() : dump_json(*expected);
    }
    records.push_back(std::move(record));
  }
  if (records.empty()) return fail(ErrorCode::kInvalidArgument, "there is no record in it");
  return records;
}

Result<std::string> read_input(const std::string& path) {
  if (path != "-") return read_file(path, kMaxBytes);
  std::string text;
  char buffer[65536];
  while (std::cin.read(buffer, sizeof buffer) || std::cin.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(std::cin.gcount()));
    if (text.size() > kMaxBytes) return fail(ErrorCode::kPayloadTooLarge, "standard input has more than 1 GiB");
  }
  return text;
}

}  // namespace pocketfleet::cli
