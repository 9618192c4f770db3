#include "net/sse.h"

#include <algorithm>

namespace pocketfleet::net {

namespace {

// Calls take(line) for each line of `text`; at least once.
template <typename Take>
void for_each_line(std::string_view text, Take take) {
  for (;;) {
    const size_t end = text.find_first_of("\r\n");
    take(text.substr(0, end));
    if (end == std::string_view::npos) return;
    const bool pair = text[end] == '\r' && end + 1 < text.size() && text[end + 1] == '\n';
    text.remove_prefix(end + (pair ? 2 : 1));
  }
}

std::string one_line(std::string_view text) {
  std::string out(text);
  std::erase_if(out, [](char c) { return c == '\r' || c == '\n'; });
  return out;
}

void append_data(std::string& out, std::string_view data) {
  for_each_line(data, [&](std::string_view line) { out.append("data: ").append(line).append("\n"); });
}

}  // namespace

std::string encode_sse(const SseEvent& event) {
  std::string out;
  out.reserve(event.data.size() + event.event.size() + event.id.size() + 32);
  if (!event.event.empty()) out.append("event: ").append(one_line(event.event)).append("\n");
  if (!event.id.empty()) out.append("id: ").append(one_line(event.id)).append("\n");
  append_data(out, event.data);
  return out.append("\n");
}

std::string encode_sse_data(std::string_view data) {
  std::string out;
  out.reserve(data.size() + 8);
  append_data(out, data);
  return out.append("\n");
}

std::string encode_sse_comment(std::string_view text) {
  std::string out;
  for_each_line(text, [&](std::string_view line) { out.append(": ").append(line).append("\n"); });
  return out.append("\n");
}

Result<std::vector<SseEvent>> SseDecoder::push(std::string_view bytes) {
  std::vector<SseEvent> out;
  while (!bytes.empty() && !failed_) {
    if (after_cr_) {
      after_cr_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view piece = bytes.substr(0, end);
    if (line_.size() + data_.size() + piece.size() > max_event_bytes_) {
      failed_ = true;
      break;
    }
    if (end == std::string_view::npos) {
      line_.append(piece);
      break;
    }
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      take_line(piece, out);
    } else {
      line_.append(piece);
      take_line(line_, out);
      line_.clear();
    }
  }
  if (failed_) {
    return fail(ErrorCode::kProtocol, "an event of the stream is larger than " + std::to_string(max_event_bytes_) + " bytes");
  }
  return out;
}

void SseDecoder::take_line(std::string_view line, std::vector<SseEvent>& out) {
  if (std::exchange(first_line_, false) && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  if (line.empty()) {
    if (has_data_) {
      data_.pop_back();  // the line feed after the last line
      out.emplace_back(std::move(data_), std::move(event_), id_);
    }
    data_.clear();
    event_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    data_.append(value).append("\n");
    has_data_ = true;
  } else if (field == "event") {
    event_ = value;
  } else if (field == "id") {
    if (value.find('\0') == std::string_view::npos) id_ = value;
  } else if (field == "retry") {
    const bool digits = !value.empty() && value.size() <= 15 &&
                        std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits) retry_ms_ = std::stoll(std::string(value));
  }
}

}  // namespace pocketfleet::net
