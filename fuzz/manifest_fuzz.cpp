// Any bytes as a model manifest: what is taken is printed and read back as the same, and the signed bytes stay.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto manifest = pocketfleet::parse_manifest({reinterpret_cast<const char*>(data), size});
  if (!manifest) return 0;
  const auto again = pocketfleet::parse_manifest(pocketfleet::print_manifest(*manifest));
  if (!again || pocketfleet::signed_bytes(*again) != pocketfleet::signed_bytes(*manifest)) std::abort();
  return 0;
}
