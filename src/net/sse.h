// Server-sent events (the HTML standard, 9.2): a pure encoder, and an incremental decoder that takes any split of the bytes, all
// three line ends and a byte order mark. The decoder's memory is bounded; past the bound it fails and stays failed. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pocketfleet::net {

struct SseEvent {
  SseEvent() = default;
  explicit SseEvent(std::string the_data, std::string the_event = {}, std::string the_id = {})
      : event(std::move(the_event)), data(std::move(the_data)), id(std::move(the_id)) {}
  std::string event;  // empty: "message"
  std::string data;   // may have several lines
  std::string id;     // when decoded: the last id that was seen, which holds for later events too
  bool operator==(const SseEvent&) const = default;
};

// "data: ...\n\n"; data of several lines becomes several data lines.
std::string encode_sse(const SseEvent& event);
std::string encode_sse_data(std::string_view data);
// A comment, which keeps a connection alive and is seen by no client.
std::string encode_sse_comment(std::string_view text);

class SseDecoder {
 public:
  explicit SseDecoder(size_t max_event_bytes = 16u << 20) : max_event_bytes_(max_event_bytes) {}

  // The events that these bytes complete. An event that the end of the stream cuts off is none, as the standard says.
  Result<std::vector<SseEvent>> push(std::string_view bytes);
  // The last `retry` field, or -1.
  int64_t retry_ms() const { return retry_ms_; }

 private:
  void take_line(std::string_view line, std::vector<SseEvent>& out);

  size_t max_event_bytes_;
  std::string line_;  // a line that has not ended
  std::string data_;
  std::string event_;
  std::string id_;
  int64_t retry_ms_ = -1;
  bool has_data_ = false;
  bool first_line_ = true;
  bool after_cr_ = false;
  bool failed_ = false;
};

}  // namespace pocketfleet::net
