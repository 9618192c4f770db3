#include "crypto/base64.h"

#include <openssl/evp.h>

#include <algorithm>

namespace pocketfleet {

std::string to_base64(std::string_view bytes) {
  // Room for the zero that OpenSSL writes at the end.
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(length));
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out(text.size() / 4 * 3, '\0');
  const int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (length < 0) return std::nullopt;
  // OpenSSL counts the padding as bytes, and is lenient; what comes out the same way again was right.
  out.resize(static_cast<size_t>(length) - (text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0));
  if (to_base64(out) != text) return std::nullopt;
  return out;
}

std::string to_base64url(std::string_view bytes) {
  std::string out = to_base64(bytes);
  out.resize(std::min(out.find('='), out.size()));
  std::replace(out.begin(), out.end(), '+', '-');
  std::replace(out.begin(), out.end(), '/', '_');
  return out;
}

std::optional<std::string> from_base64url(std::string_view text) {
  if (text.find_first_of("+/=") != std::string_view::npos) return std::nullopt;
  std::string padded(text);
  std::replace(padded.begin(), padded.end(), '-', '+');
  std::replace(padded.begin(), padded.end(), '_', '/');
  padded.append((4 - padded.size() % 4) % 4, '=');
  return from_base64(padded);
}

}  // namespace pocketfleet
