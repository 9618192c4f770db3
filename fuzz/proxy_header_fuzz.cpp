// The reader of PROXY headers: never more than is there, and the same result for every longer input.
#include <cstdlib>
#include <string_view>

#include "tunnel/proxy_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pocketfleet::tunnel;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto whole = read_proxy_header(bytes);
  if (whole && whole->size > size) std::abort();
  if (whole && whole->size > 0) {
    const auto alone = read_proxy_header(bytes.substr(0, whole->size));
    if (!alone || alone->size != whole->size || !(alone->from == whole->from)) std::abort();
  }
  return 0;
}
