#include "model/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

namespace pocketfleet {

Sha256Stream::Sha256Stream() : context_(EVP_MD_CTX_new()) {
  reset();
}

Sha256Stream::~Sha256Stream() {
  EVP_MD_CTX_free(context_);
}

void Sha256Stream::reset() {
  EVP_DigestInit_ex(context_, EVP_sha256(), nullptr);
}

void Sha256Stream::add(std::string_view bytes) {
  EVP_DigestUpdate(context_, bytes.data(), bytes.size());
}

std::string Sha256Stream::finish() {
  std::array<unsigned char, 32> digest{};
  EVP_DigestFinal_ex(context_, digest.data(), nullptr);
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

std::string sha256_of_text(std::string_view text) {
  Sha256Stream hash;
  hash.add(text);
  return hash.finish();
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace pocketfleet
