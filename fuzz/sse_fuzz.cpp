// The decoder of server-sent events must give the same events for every split of the bytes, and what is encoded must come back.
// The first byte chooses the split.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "net/sse.h"

namespace {

using pocketfleet::net::SseDecoder;
using pocketfleet::net::SseEvent;

constexpr size_t kMaxEvent = 512;

std::vector<SseEvent> decode(std::string_view bytes, size_t piece, size_t max_event, bool& failed) {
  SseDecoder decoder(max_event);
  std::vector<SseEvent> out;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    auto events = decoder.push(bytes.substr(i, piece));
    if (!events) {
      failed = true;
      break;
    }
    for (auto& event : *events) {
      if (event.data.size() > max_event) std::abort();
      out.push_back(std::move(event));
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  bool whole_failed = false;
  bool split_failed = false;
  const auto whole = decode(bytes, bytes.size() + 1, kMaxEvent, whole_failed);
  const auto split = decode(bytes, 1 + data[0] % 32, kMaxEvent, split_failed);
  if (whole_failed != split_failed) std::abort();
  if (whole_failed) return 0;
  if (whole != split) std::abort();
  std::string encoded;
  for (const SseEvent& event : whole) encoded += encode_sse(event);
  bool failed = false;
  const auto again = decode(encoded, 7, 1u << 20, failed);
  if (failed || again.size() != whole.size()) std::abort();
  for (size_t i = 0; i < whole.size(); ++i) {
    if (again[i].data != whole[i].data || again[i].event != whole[i].event) std::abort();
  }
  return 0;
}
