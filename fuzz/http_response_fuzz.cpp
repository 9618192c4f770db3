// The response parser must give the same result for every split of the bytes, stay within its bounds and never crash. The first
// byte chooses the split and whether the answer is one to HEAD.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "net/http_parser.h"

namespace {

using pocketfleet::net::ResponseParser;

constexpr size_t kMaxHeader = 2'048;
constexpr size_t kMaxBody = 4'096;

std::string parse(std::string_view bytes, size_t piece, bool head) {
  ResponseParser parser({kMaxHeader, kMaxBody}, head);
  std::string held;
  std::string body;
  for (size_t i = 0; i < bytes.size() && !parser.done() && !parser.failed(); i += piece) {
    held += bytes.substr(i, piece);
    const size_t taken = parser.put(held);
    if (taken > held.size()) std::abort();
    held.erase(0, taken);
    body += parser.take_body();
    if (body.size() > kMaxBody) std::abort();
  }
  if (!parser.done()) parser.put_end();
  if (parser.done() == parser.failed()) std::abort();
  if (parser.failed()) return "failed";
  std::string out = std::to_string(parser.status()) + "|" + body + parser.take_body();
  for (const auto& [name, value] : parser.headers().items()) out += "|" + name + ":" + value;
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool head = data[0] & 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (parse(bytes, bytes.size() + 1, head) != parse(bytes, 1 + data[0] / 2 % 32, head)) std::abort();
  return 0;
}
