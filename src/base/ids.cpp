#include "base/ids.h"

#include <sys/random.h>

#include <array>
#include <cstdint>

namespace pocketfleet {

std::string make_id(std::string_view prefix) {
  static constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  static constexpr size_t kLength = 24;
  std::string id(prefix);
  id.reserve(prefix.size() + kLength);
  std::array<uint8_t, 64> bytes{};
  while (id.size() < prefix.size() + kLength) {
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) continue;
    for (uint8_t b : bytes) {
      // Values past the largest multiple of 62 would favour some letters.
      if (b >= 248 || id.size() == prefix.size() + kLength) continue;
      id.push_back(kAlphabet[b % kAlphabet.size()]);
    }
  }
  return id;
}

}  // namespace pocketfleet
