// SHA-256 of what comes in pieces, as lower-case hex. This room stands beside crypto/ and not above it, so it asks OpenSSL
// itself. Not thread-safe; does not fail.
#pragma once

#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace pocketfleet {

class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;

  void reset();
  void add(std::string_view bytes);
  // To be followed by reset() before more is added.
  std::string finish();

 private:
  evp_md_ctx_st* context_;
};

std::string sha256_of_text(std::string_view text);
// 64 digits of lower-case hex.
bool is_sha256(std::string_view text);

}  // namespace pocketfleet
