#include "openai/request_log.h"

#include <algorithm>

#include "base/ids.h"
#include "base/log.h"

namespace pocketfleet {

void log_request(const RequestRecord& record) {
  // A server's own mistakes stand out; a caller's do not.
  const bool ours = record.status >= 500 && record.status != 503;
  const Usage usage = record.usage.value_or(Usage{});
  log(ours ? LogLevel::kError : LogLevel::kInfo, "request",
      {{"id", record.id},
       {"method", record.method},
       {"route", record.route},
       {"status", record.status},
       {"key", record.key},
       {"error", record.error},
       {"tokens_read", usage.prompt_tokens - usage.cached_tokens},
       {"tokens_reused", usage.cached_tokens},
       {"tokens_written", usage.written_tokens},
       {"predicted_wait_ms", static_cast<long long>(usage.predicted_wait_ms)},
       {"wait_ms", static_cast<long long>(usage.wait_ms)},
       {"read_ms", static_cast<long long>(usage.read_ms)},
       {"write_ms", static_cast<long long>(usage.write_ms)},
       {"total_ms", static_cast<long long>(record.total_ms)}});
}

std::string choose_request_id(std::optional<std::string_view> given) {
  const auto sane = [](std::string_view id) {
    return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    });
  };
  return given && sane(*given) ? std::string(*given) : make_id("req_");
}

}  // namespace pocketfleet
