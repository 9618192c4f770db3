#include "crypto/base64.h"

#include <openssl/evp.h>

namespace pocketfleet {

std::string to_base64(std::string_view bytes) {
  // Room for the zero that OpenSSL writes at the end.
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(length));
  return out;
}

}  // namespace pocketfleet
