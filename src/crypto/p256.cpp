#include "crypto/p256.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>

#include <filesystem>

#include "base/files.h"
#include "crypto/openssl.h"

namespace pocketfleet {

namespace {

constexpr size_t kCompressedBytes = 33;
constexpr size_t kNumberBytes = 32;
constexpr size_t kMostPemBytes = 64u << 10;

bool is_p256(const EVP_PKEY* key) {
  char group[32] = "";
  size_t length = 0;
  return EVP_PKEY_is_a(key, "EC") == 1 && EVP_PKEY_get_group_name(key, group, sizeof group, &length) == 1 &&
         std::string_view(group, length) == "prime256v1";
}

std::shared_ptr<EVP_PKEY> shared(EVP_PKEY* key) {
  return {key, EVP_PKEY_free};
}

}  // namespace

Result<P256PublicKey> P256PublicKey::from_compressed(std::string_view bytes) {
  if (bytes.size() != kCompressedBytes)
    return fail(ErrorCode::kInvalidArgument, fmt::format("a P-256 key has {} bytes, not {}", kCompressedBytes, bytes.size()));
  const Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free> builder(OSSL_PARAM_BLD_new());
  if (!builder || OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) != 1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, bytes.data(), bytes.size()) != 1)
    return broken("describe a key");
  const Owned<OSSL_PARAM, OSSL_PARAM_free> parameters(OSSL_PARAM_BLD_to_param(builder.get()));
  const Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free> context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  if (!parameters || !context || EVP_PKEY_fromdata_init(context.get()) != 1) return broken("take in a key");
  if (EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, parameters.get()) != 1)
    return fail(ErrorCode::kInvalidArgument, "these bytes are no point of the curve P-256");
  return P256PublicKey(shared(key));
}

std::string P256PublicKey::compressed() const {
  std::string point(2 * kNumberBytes + 1, '\0');
  size_t length = 0;
  EVP_PKEY_get_octet_string_param(key_.get(), OSSL_PKEY_PARAM_PUB_KEY, bytes_of(point), point.size(), &length);
  point.resize(length);
  // The key gives the point as it was made: both numbers, or the first and the parity of the second.
  if (length == kCompressedBytes) return point;
  const bool odd = (static_cast<unsigned char>(point.back()) & 1) != 0;
  point.resize(kCompressedBytes);
  point.front() = odd ? 3 : 2;
  return point;
}

bool P256PublicKey::verify(std::string_view bytes, std::string_view signature) const {
  if (signature.size() != 2 * kNumberBytes) return false;
  const Owned<ECDSA_SIG, ECDSA_SIG_free> numbers(ECDSA_SIG_new());
  BIGNUM* r = BN_bin2bn(bytes_of(signature), kNumberBytes, nullptr);
  BIGNUM* s = BN_bin2bn(bytes_of(signature) + kNumberBytes, kNumberBytes, nullptr);
  if (!numbers || ECDSA_SIG_set0(numbers.get(), r, s) != 1) {
    BN_free(r);
    BN_free(s);
    return false;
  }
  unsigned char* der = nullptr;
  const int length = i2d_ECDSA_SIG(numbers.get(), &der);
  if (length <= 0) return false;
  const std::string encoded(reinterpret_cast<char*>(der), static_cast<size_t>(length));
  OPENSSL_free(der);
  const Owned<EVP_MD_CTX, EVP_MD_CTX_free> context(EVP_MD_CTX_new());
  return context && EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key_.get()) == 1 &&
         EVP_DigestVerify(context.get(), bytes_of(encoded), encoded.size(), bytes_of(bytes), bytes.size()) == 1;
}

Result<P256PrivateKey> P256PrivateKey::generate() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  if (key == nullptr) return broken("make a key");
  return P256PrivateKey(shared(key));
}

Result<P256PrivateKey> P256PrivateKey::from_pem(std::string_view pem) {
  const Owned<BIO, BIO_free> input(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  if (!input) return broken("read a key");
  // Without a callback OpenSSL asks the terminal for the password.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  auto key = shared(PEM_read_bio_PrivateKey(input.get(), nullptr, no_password, nullptr));
  if (!key || !is_p256(key.get()))
    return fail(ErrorCode::kInvalidArgument, "this is no P-256 private key in PEM (PKCS #8, without a password)");
  return P256PrivateKey(std::move(key));
}

Result<std::string> P256PrivateKey::to_pem() const {
  const Owned<BIO, BIO_free> output(BIO_new(BIO_s_mem()));
  if (!output || PEM_write_bio_PKCS8PrivateKey(output.get(), key_.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return broken("write a key");
  char* text = nullptr;
  const long length = BIO_get_mem_data(output.get(), &text);
  return std::string(text, static_cast<size_t>(length));
}

Result<std::string> P256PrivateKey::sign(std::string_view bytes) const {
  const Owned<EVP_MD_CTX, EVP_MD_CTX_free> context(EVP_MD_CTX_new());
  size_t length = 0;
  if (!context || EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key_.get()) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &length, bytes_of(bytes), bytes.size()) != 1)
    return broken("sign");
  std::string der(length, '\0');
  if (EVP_DigestSign(context.get(), bytes_of(der), &length, bytes_of(bytes), bytes.size()) != 1) return broken("sign");
  const unsigned char* at = bytes_of(std::string_view(der));
  const Owned<ECDSA_SIG, ECDSA_SIG_free> numbers(d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(length)));
  std::string out(2 * kNumberBytes, '\0');
  if (!numbers || BN_bn2binpad(ECDSA_SIG_get0_r(numbers.get()), bytes_of(out), kNumberBytes) < 0 ||
      BN_bn2binpad(ECDSA_SIG_get0_s(numbers.get()), bytes_of(out) + kNumberBytes, kNumberBytes) < 0)
    return broken("write a signature");
  return out;
}

Result<P256PrivateKey> load_or_make_key(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    PF_TRY(P256PrivateKey key, P256PrivateKey::generate());
    PF_TRY(const std::string pem, key.to_pem());
    PF_CHECK_OK(write_file_atomic(path, pem, 0600));
    return key;
  }
  PF_TRY(const std::string pem, read_file(path, kMostPemBytes));
  auto key = P256PrivateKey::from_pem(pem);
  if (!key) return fail(key.error().code, path + ": " + key.error().message);
  return key;
}

}  // namespace pocketfleet
