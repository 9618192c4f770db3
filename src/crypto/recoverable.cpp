#include "crypto/recoverable.h"

#include <fmt/format.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/obj_mac.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "crypto/openssl.h"

namespace pocketfleet {

namespace {

constexpr size_t kNumberBytes = 32;
constexpr size_t kCompressedBytes = 33;
// A candidate for the nonce fails about once in 2^32 times: this many failures in a row are a mistake.
constexpr int kMostAttempts = 16;

using Block = std::array<uint8_t, kNumberBytes>;

using Number = Owned<BIGNUM, BN_clear_free>;
using Point = Owned<EC_POINT, EC_POINT_clear_free>;

tl::unexpected<Error> no_signature(std::string why) {
  return fail(ErrorCode::kInvalidArgument, std::move(why));
}

Number number_from(const uint8_t* bytes) {
  return Number(BN_bin2bn(bytes, kNumberBytes, nullptr));
}

struct Curve {
  Owned<EC_GROUP, EC_GROUP_free> group{EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1)};
  Owned<BN_CTX, BN_CTX_free> context{BN_CTX_new()};
  const BIGNUM* order = group ? EC_GROUP_get0_order(group.get()) : nullptr;
  Number half{BN_new()};  // the largest s that is taken

  bool ready() const { return group && context && order && half && BN_rshift1(half.get(), order) == 1; }
  bool in_range(const BIGNUM* number) const { return !BN_is_zero(number) && BN_cmp(number, order) < 0; }
};

// The candidates for a nonce, RFC 6979, 3.2, with HMAC-SHA-256.
class Nonces {
 public:
  Nonces(const Block& secret, const Block& digest) {
    std::array<uint8_t, 2 * kNumberBytes> seed;
    std::copy(digest.begin(), digest.end(), std::copy(secret.begin(), secret.end(), seed.begin()));
    key_.fill(0);
    value_.fill(1);
    stir(0, seed);
    stir(1, seed);
    OPENSSL_cleanse(seed.data(), seed.size());
  }
  ~Nonces() {
    OPENSSL_cleanse(key_.data(), key_.size());
    OPENSSL_cleanse(value_.data(), value_.size());
  }
  Nonces(const Nonces&) = delete;
  Nonces& operator=(const Nonces&) = delete;

  const Block& next() {
    if (begun_) stir(0, {});
    begun_ = true;
    authenticate(value_, value_);
    return value_;
  }
  bool ok() const { return ok_; }

 private:
  void stir(uint8_t mark, std::span<const uint8_t> seed) {
    std::array<uint8_t, 3 * kNumberBytes + 1> input;
    auto end = std::copy(value_.begin(), value_.end(), input.begin());
    *end++ = mark;
    end = std::copy(seed.begin(), seed.end(), end);
    authenticate({input.begin(), end}, key_);
    authenticate(value_, value_);
    OPENSSL_cleanse(input.data(), input.size());
  }

  void authenticate(std::span<const uint8_t> bytes, Block& out) {
    Block code;
    unsigned int size = 0;
    ok_ = ok_ && HMAC(EVP_sha256(), key_.data(), kNumberBytes, bytes.data(), bytes.size(), code.data(), &size) != nullptr &&
          size == code.size();
    out = code;
    OPENSSL_cleanse(code.data(), code.size());
  }

  Block key_;
  Block value_;
  bool begun_ = false;
  bool ok_ = true;
};

// s = (e + r d) / k. The secrets only meet functions whose time does not depend on them: the inverse is a power of k, and the
// products are Montgomery's.
bool compute_s(const Curve& curve, const BIGNUM* e, const BIGNUM* r, const BIGNUM* d, const BIGNUM* k, BIGNUM* s) {
  BN_CTX* context = curve.context.get();
  const Owned<BN_MONT_CTX, BN_MONT_CTX_free> montgomery(BN_MONT_CTX_new());
  const Number exponent(BN_dup(curve.order));
  const Number inverse(BN_new());
  return montgomery && exponent && inverse && BN_MONT_CTX_set(montgomery.get(), curve.order, context) == 1 &&
         BN_sub_word(exponent.get(), 2) == 1 &&
         BN_mod_exp_mont_consttime(inverse.get(), k, exponent.get(), curve.order, context, montgomery.get()) == 1 &&
         BN_to_montgomery(s, r, montgomery.get(), context) == 1 &&
         BN_mod_mul_montgomery(s, s, d, montgomery.get(), context) == 1 && BN_mod_add_quick(s, s, e, curve.order) == 1 &&
         BN_to_montgomery(inverse.get(), inverse.get(), montgomery.get(), context) == 1 &&
         BN_mod_mul_montgomery(s, s, inverse.get(), montgomery.get(), context) == 1;
}

// The key, if there is one, whose signature of e is r, s with a nonce of the point `nonce`: (s R - e G) / r.
Result<P256PublicKey> key_behind(const Curve& curve, const BIGNUM* e, const BIGNUM* r, const BIGNUM* s, const EC_POINT* nonce) {
  BN_CTX* context = curve.context.get();
  const Number inverse(BN_mod_inverse(nullptr, r, curve.order, context));
  const Number of_generator(BN_new());
  const Number of_nonce(BN_new());
  const Point point(EC_POINT_new(curve.group.get()));
  if (!inverse || !of_generator || !of_nonce || !point ||
      BN_mod_mul(of_generator.get(), e, inverse.get(), curve.order, context) != 1 ||
      BN_mod_sub(of_generator.get(), curve.order, of_generator.get(), curve.order, context) != 1 ||
      BN_mod_mul(of_nonce.get(), s, inverse.get(), curve.order, context) != 1 ||
      EC_POINT_mul(curve.group.get(), point.get(), of_generator.get(), nonce, of_nonce.get(), context) != 1)
    return broken("recover a key");
  if (EC_POINT_is_at_infinity(curve.group.get(), point.get()) == 1) return no_signature("no key has this signature");
  std::string compressed(kCompressedBytes, '\0');
  if (EC_POINT_point2oct(curve.group.get(), point.get(), POINT_CONVERSION_COMPRESSED, bytes_of(compressed), compressed.size(),
                         context) != compressed.size())
    return broken("write a recovered key");
  return P256PublicKey::from_compressed(compressed);
}

bool verifies(const P256PublicKey& key, const Sha256& digest, const BIGNUM* r, const BIGNUM* s) {
  const Owned<ECDSA_SIG, ECDSA_SIG_free> numbers(ECDSA_SIG_new());
  Number own_r(BN_dup(r));
  Number own_s(BN_dup(s));
  if (!numbers || !own_r || !own_s || ECDSA_SIG_set0(numbers.get(), own_r.get(), own_s.get()) != 1) return false;
  // The signature has them now.
  (void)own_r.release();
  (void)own_s.release();
  unsigned char* der = nullptr;
  const int length = i2d_ECDSA_SIG(numbers.get(), &der);
  if (length <= 0) return false;
  const Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free> context(EVP_PKEY_CTX_new_from_pkey(nullptr, key.native(), nullptr));
  const bool good = context && EVP_PKEY_verify_init(context.get()) == 1 &&
                    EVP_PKEY_verify(context.get(), der, static_cast<size_t>(length), digest.data(), digest.size()) == 1;
  OPENSSL_free(der);
  return good;
}

}  // namespace

Result<std::string> sign_recoverable(const P256PrivateKey& key, const Sha256& digest) {
  const Curve curve;
  BIGNUM* secret = nullptr;
  if (!curve.ready() || EVP_PKEY_get_bn_param(key.native(), OSSL_PKEY_PARAM_PRIV_KEY, &secret) != 1)
    return broken("prepare a signature");
  const Number d(secret);
  BN_set_flags(d.get(), BN_FLG_CONSTTIME);
  BN_CTX* context = curve.context.get();
  const Number e = number_from(digest.data());
  Block secret_bytes;
  Block digest_bytes;
  if (!e || BN_nnmod(e.get(), e.get(), curve.order, context) != 1 ||
      BN_bn2binpad(e.get(), digest_bytes.data(), kNumberBytes) < 0 ||
      BN_bn2binpad(d.get(), secret_bytes.data(), kNumberBytes) < 0)
    return broken("prepare a signature");
  Nonces nonces(secret_bytes, digest_bytes);
  OPENSSL_cleanse(secret_bytes.data(), secret_bytes.size());

  const Number r(BN_new());
  const Number y(BN_new());
  const Number s(BN_new());
  const Point point(EC_POINT_new(curve.group.get()));
  if (!r || !y || !s || !point) return broken("prepare a signature");
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    const Number k = number_from(nonces.next().data());
    if (!k || !nonces.ok()) return broken("choose a nonce");
    BN_set_flags(k.get(), BN_FLG_CONSTTIME);
    if (!curve.in_range(k.get())) continue;
    if (EC_POINT_mul(curve.group.get(), point.get(), k.get(), nullptr, nullptr, context) != 1 ||
        EC_POINT_get_affine_coordinates(curve.group.get(), point.get(), r.get(), y.get(), context) != 1)
      return broken("multiply a point");
    // A coordinate beyond the order, one in 2^128, would need a v of 2 or 3, which nobody takes.
    if (!curve.in_range(r.get())) continue;
    if (!compute_s(curve, e.get(), r.get(), d.get(), k.get(), s.get())) return broken("sign");
    if (BN_is_zero(s.get())) continue;
    bool odd = BN_is_odd(y.get()) != 0;
    if (BN_cmp(s.get(), curve.half.get()) > 0) {
      // -s belongs to the nonce -k, whose point has the other parity.
      if (BN_sub(s.get(), curve.order, s.get()) != 1) return broken("sign");
      odd = !odd;
    }
    std::string out(kRecoverableBytes, '\0');
    if (BN_bn2binpad(r.get(), bytes_of(out), kNumberBytes) < 0 ||
        BN_bn2binpad(s.get(), bytes_of(out) + kNumberBytes, kNumberBytes) < 0)
      return broken("write a signature");
    out.back() = odd ? 1 : 0;
    return out;
  }
  return broken("find a nonce");
}

Result<P256PublicKey> recover_key(const Sha256& digest, std::string_view signature) {
  if (signature.size() != kRecoverableBytes)
    return no_signature(fmt::format("a recoverable signature has {} bytes, not {}", kRecoverableBytes, signature.size()));
  const int parity = static_cast<uint8_t>(signature.back());
  if (parity > 1) return no_signature(fmt::format("the last byte of a recoverable signature is 0 or 1, not {}", parity));

  const QuietErrors quiet;
  const Curve curve;
  const auto* bytes = reinterpret_cast<const uint8_t*>(signature.data());
  const Number r = number_from(bytes);
  const Number s = number_from(bytes + kNumberBytes);
  const Number e = number_from(digest.data());
  const Point nonce(curve.ready() ? EC_POINT_new(curve.group.get()) : nullptr);
  if (!r || !s || !e || !nonce) return broken("read a signature");
  if (!curve.in_range(r.get()) || !curve.in_range(s.get())) return no_signature("a number of the signature is out of range");
  if (BN_cmp(s.get(), curve.half.get()) > 0)
    return no_signature("s lies in the upper half of its range; the one signature that is taken has it in the lower half");
  if (EC_POINT_set_compressed_coordinates(curve.group.get(), nonce.get(), r.get(), parity, curve.context.get()) != 1)
    return no_signature("no key has this signature: r is no point of the curve");
  PF_TRY(P256PublicKey key, key_behind(curve, e.get(), r.get(), s.get(), nonce.get()));
  if (!verifies(key, digest, r.get(), s.get())) return no_signature("the signature does not verify with the key that it gives");
  return key;
}

}  // namespace pocketfleet
