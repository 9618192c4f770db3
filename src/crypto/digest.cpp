#include "crypto/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cstdlib>

namespace pocketfleet {

namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Sha256 sha256(std::string_view bytes) {
  Sha256 digest{};
  unsigned int size = 0;
  // Fails only when OpenSSL itself cannot be set up; going on with a digest of zeros would let a wrong key in.
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1 || size != digest.size())
    std::abort();
  return digest;
}

std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

std::optional<Sha256> sha256_from_hex(std::string_view hex) {
  Sha256 digest{};
  if (hex.size() != digest.size() * 2) return std::nullopt;
  for (size_t index = 0; index < digest.size(); ++index) {
    const int high = hex_value(hex[2 * index]);
    const int low = hex_value(hex[2 * index + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[index] = static_cast<uint8_t>(high << 4 | low);
  }
  return digest;
}

bool equal_constant_time(const Sha256& a, const Sha256& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

int find_constant_time(std::span<const Sha256> known, const Sha256& wanted) {
  int found = -1;
  for (size_t index = 0; index < known.size(); ++index) {
    const int equal = CRYPTO_memcmp(known[index].data(), wanted.data(), wanted.size()) == 0;
    // All ones when equal: chosen without a branch, so that the place of the match does not show.
    const int mask = -equal;
    found = (found & ~mask) | (static_cast<int>(index) & mask);
  }
  return found;
}

}  // namespace pocketfleet
