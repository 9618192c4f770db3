#include "crypto/random.h"

#include <openssl/rand.h>

#include <cstdint>
#include <string_view>

namespace pocketfleet {

Result<std::string> random_bytes(size_t count) {
  std::string bytes(count, '\0');
  if (count > 0 && RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    return fail(ErrorCode::kInternal, "the system gives no random bytes");
  }
  return bytes;
}

Result<std::string> make_api_key() {
  static constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  PF_TRY(const std::string bytes, random_bytes(32));
  std::string key = "pf_";
  uint32_t bits = 0;
  int held = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<uint8_t>(c);
    for (held += 8; held >= 6; held -= 6) key.push_back(kAlphabet[bits >> (held - 6) & 63]);
  }
  key.push_back(kAlphabet[bits << (6 - held) & 63]);
  return key;
}

}  // namespace pocketfleet
