// What the files here share about OpenSSL: owners of its objects, views of bytes as it wants them, and its errors as ours.
// Internal to crypto/. A reason that OpenSSL leaves in its queue would look like that of the thread's next TLS operation:
// QuietErrors takes away what was put there while it lives.
#pragma once

#include <fmt/format.h>
#include <openssl/err.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pocketfleet {

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
template <typename T, auto kFree>
using Owned = std::unique_ptr<T, Freed<kFree>>;

inline const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
inline unsigned char* bytes_of(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

inline tl::unexpected<Error> broken(const char* what) {
  return fail(ErrorCode::kInternal, fmt::format("OpenSSL could not {}", what));
}

struct QuietErrors {
  QuietErrors() = default;
  ~QuietErrors() { ERR_clear_error(); }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;
};

}  // namespace pocketfleet
