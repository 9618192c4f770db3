// What is written down of a request: one structured line, never its text. Also the request's id. Pure but for the log; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/types.h"

namespace pocketfleet {

struct RequestRecord {
  std::string id;
  std::string method;
  std::string route;  // the route's pattern, "none" when there is none: a bounded set, as it becomes a metric's label
  int status = 0;     // 499: the caller had gone
  std::string key;    // the name of the caller's key
  std::string error;  // error_name() of what went wrong
  std::optional<Usage> usage;
  int64_t total_ms = 0;
};

void log_request(const RequestRecord& record);

// The caller's x-request-id when it is sane (1 to 128 of A-Z a-z 0-9 . _ -), else a new one.
std::string choose_request_id(std::optional<std::string_view> given);

}  // namespace pocketfleet
