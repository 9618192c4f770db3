// The request parser must give the same result for every split of the bytes, stay within its bounds and never crash. The first
// byte chooses the split.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "net/http_parser.h"

namespace {

using pocketfleet::net::RequestParser;

constexpr size_t kMaxHeader = 2'048;
constexpr size_t kMaxBody = 4'096;

struct Outcome {
  int status = 0;
  bool done = false;
  std::string all;
};

Outcome parse(std::string_view bytes, size_t piece) {
  RequestParser parser({kMaxHeader, kMaxBody});
  std::string held;
  for (size_t i = 0; i < bytes.size() && !parser.done() && !parser.error_status(); i += piece) {
    held += bytes.substr(i, piece);
    const size_t taken = parser.put(held);
    if (taken > held.size()) std::abort();
    held.erase(0, taken);
  }
  Outcome out{parser.error_status(), parser.done(), {}};
  if (out.done && out.status) std::abort();
  if (out.done) {
    auto& request = parser.request();
    if (request.body.size() > kMaxBody) std::abort();
    if (request.headers.contains("content-length") && request.headers.contains("transfer-encoding")) std::abort();
    out.all = request.method + "|" + request.target + "|" + request.path + "|" + request.query + "|" + request.body;
    for (const auto& [name, value] : request.headers.items()) {
      if ((name + value).find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) std::abort();
      out.all += "|" + name + ":" + value;
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = parse(bytes, bytes.size() + 1);
  const Outcome split = parse(bytes, 1 + data[0] % 32);
  // Which of several faults is met first may depend on the split; whether the request is taken may not.
  if (whole.done != split.done || whole.all != split.all || (whole.status == 0) != (split.status == 0)) std::abort();
  return 0;
}
