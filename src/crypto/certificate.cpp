#include "crypto/certificate.h"

#include <fmt/format.h>
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "crypto/openssl.h"
#include "crypto/random.h"

namespace pocketfleet {

namespace {

constexpr size_t kMostPemBytes = 256u << 10;
constexpr size_t kMostDerBytes = 64u << 10;
constexpr size_t kMostExtensionBytes = 4u << 10;
constexpr size_t kMostNameBytes = 253;
constexpr size_t kMostLabelBytes = 63;
constexpr size_t kCompressedBytes = 33;
constexpr size_t kNumberBytes = 32;
constexpr size_t kSerialBytes = 16;

constexpr const char* kTunnelExtension = "1.3.6.1.4.1.65535.1";
constexpr const char* kAcmeIdentifier = "1.3.6.1.5.5.7.1.31";
constexpr const char* kSubject = "pocketfleet";

constexpr int64_t kDay = 86'400;
constexpr int64_t kChallengeDays = 7;

using OwnedX509 = Owned<X509, X509_free>;
using OwnedNames = Owned<GENERAL_NAMES, GENERAL_NAMES_free>;

struct FreedExtensions {
  void operator()(STACK_OF(X509_EXTENSION) * extensions) const { sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free); }
};

tl::unexpected<Error> malformed(const char* what) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("the certificate is malformed: {}", what));
}

std::string bytes_in(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<size_t>(ASN1_STRING_length(text))};
}

std::optional<int64_t> unix_ms_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return std::nullopt;
  return static_cast<int64_t>(::timegm(&parts)) * 1'000;
}

constexpr int64_t new_year(int year) {
  const std::chrono::sys_days day = std::chrono::year(year) / 1 / 1;
  return int64_t{day.time_since_epoch().count()} * kDay;
}

// The parser's number has lost the zero that keeps it positive; DER has it.
std::string serial_of(const X509* certificate) {
  unsigned char* der = nullptr;
  const int length = i2d_ASN1_INTEGER(X509_get0_serialNumber(certificate), &der);
  if (length <= 0) return {};
  const unsigned char* content = der;
  long content_bytes = 0;
  int tag = 0;
  int tag_class = 0;
  std::string out;
  if ((ASN1_get_object(&content, &content_bytes, &tag, &tag_class, length) & 0x80) == 0)
    out.assign(reinterpret_cast<const char*>(content), static_cast<size_t>(content_bytes));
  OPENSSL_free(der);
  return out;
}

std::string compressed_key_of(const X509* certificate) {
  EVP_PKEY* key = X509_get0_pubkey(certificate);
  char group[32] = "";
  size_t length = 0;
  if (key == nullptr || EVP_PKEY_is_a(key, "EC") != 1 || EVP_PKEY_get_group_name(key, group, sizeof group, &length) != 1 ||
      std::string_view(group, length) != "prime256v1")
    return {};
  std::string point(2 * kNumberBytes + 1, '\0');
  if (EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, reinterpret_cast<unsigned char*>(point.data()), point.size(),
                                      &length) != 1)
    return {};
  point.resize(length);
  // The point stands there as it was written: both numbers, or the first and the parity of the second.
  if (length == 2 * kNumberBytes + 1) {
    const bool odd = (static_cast<unsigned char>(point.back()) & 1) != 0;
    point.resize(kCompressedBytes);
    point.front() = odd ? 3 : 2;
  }
  return length >= kCompressedBytes ? point : std::string();
}

Result<std::vector<std::string>> dns_names_of(const X509* certificate) {
  int place = 0;
  const OwnedNames names(static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, &place, nullptr)));
  // -1: there is no such extension.
  if (!names && place != -1) return malformed("its alternative names cannot be read");
  std::vector<std::string> out;
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) out.push_back(bytes_in(name->d.dNSName));
  }
  return out;
}

Result<std::string> authority_key_id_of(const X509* certificate) {
  int place = 0;
  const Owned<AUTHORITY_KEYID, AUTHORITY_KEYID_free> authority(
      static_cast<AUTHORITY_KEYID*>(X509_get_ext_d2i(certificate, NID_authority_key_identifier, &place, nullptr)));
  if (!authority && place != -1) return malformed("the identifier of its authority's key cannot be read");
  return authority && authority->keyid != nullptr ? bytes_in(authority->keyid) : std::string();
}

// The bytes in an extension that holds an OCTET STRING; empty when there is no such extension.
Result<std::string> octets_in_extension(const X509* certificate, const char* oid) {
  const Owned<ASN1_OBJECT, ASN1_OBJECT_free> name(OBJ_txt2obj(oid, 1));
  if (!name) return broken("name an extension");
  const int place = X509_get_ext_by_OBJ(certificate, name.get(), -1);
  if (place < 0) return std::string();
  if (X509_get_ext_by_OBJ(certificate, name.get(), place) >= 0) return malformed("it has an extension twice");
  const ASN1_OCTET_STRING* value = X509_EXTENSION_get_data(X509_get_ext(certificate, place));
  const unsigned char* at = ASN1_STRING_get0_data(value);
  const unsigned char* const end = at + ASN1_STRING_length(value);
  const Owned<ASN1_OCTET_STRING, ASN1_OCTET_STRING_free> octets(d2i_ASN1_OCTET_STRING(nullptr, &at, end - at));
  if (!octets || at != end) return malformed("an extension does not hold an OCTET STRING");
  return bytes_in(octets.get());
}

Result<CertificateInfo> inspect(const X509* certificate) {
  CertificateInfo info;
  const auto from = unix_ms_of(X509_get0_notBefore(certificate));
  const auto until = unix_ms_of(X509_get0_notAfter(certificate));
  if (!from || !until) return malformed("its validity cannot be read");
  info.not_before_ms = *from;
  info.not_after_ms = *until;
  info.serial = serial_of(certificate);
  info.public_key = compressed_key_of(certificate);
  info.self_issued = X509_NAME_cmp(X509_get_subject_name(certificate), X509_get_issuer_name(certificate)) == 0;
  PF_TRY(info.dns_names, dns_names_of(certificate));
  PF_TRY(info.authority_key_id, authority_key_id_of(certificate));
  PF_TRY(info.tunnel_extension, octets_in_extension(certificate, kTunnelExtension));
  PF_TRY(info.acme_identifier, octets_in_extension(certificate, kAcmeIdentifier));
  return info;
}

Result<OwnedNames> alternative_names(const std::vector<std::string>& names) {
  OwnedNames out(GENERAL_NAMES_new());
  if (!out) return broken("make a list of names");
  if (names.empty()) return fail(ErrorCode::kInvalidArgument, "a certificate needs a DNS name; there is none");
  for (const std::string& name : names) {
    if (!is_dns_name(name)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("\"{}\" is no DNS name that a certificate can have; write it in lower-case ASCII, without a "
                              "wildcard, a port or a dot at the end",
                              name.substr(0, kMostNameBytes)));
    }
    Owned<GENERAL_NAME, GENERAL_NAME_free> entry(GENERAL_NAME_new());
    Owned<ASN1_IA5STRING, ASN1_IA5STRING_free> text(ASN1_IA5STRING_new());
    if (!entry || !text || ASN1_STRING_set(text.get(), name.data(), static_cast<int>(name.size())) != 1)
      return broken("write a name");
    GENERAL_NAME_set0_value(entry.get(), GEN_DNS, text.release());
    if (sk_GENERAL_NAME_push(out.get(), entry.get()) <= 0) return broken("write a name");
    entry.release();
  }
  return out;
}

struct OctetExtension {
  const char* oid;
  bool critical;
  std::string_view bytes;
};

Result<void> add_extension(X509* certificate, const OctetExtension& extension) {
  const Owned<ASN1_OBJECT, ASN1_OBJECT_free> name(OBJ_txt2obj(extension.oid, 1));
  const Owned<ASN1_OCTET_STRING, ASN1_OCTET_STRING_free> octets(ASN1_OCTET_STRING_new());
  const Owned<ASN1_OCTET_STRING, ASN1_OCTET_STRING_free> value(ASN1_OCTET_STRING_new());
  if (!name || !octets || !value ||
      ASN1_STRING_set(octets.get(), extension.bytes.data(), static_cast<int>(extension.bytes.size())) != 1)
    return broken("write an extension");
  unsigned char* der = nullptr;
  const int length = i2d_ASN1_OCTET_STRING(octets.get(), &der);
  if (length <= 0) return broken("write an extension");
  const bool held = ASN1_STRING_set(value.get(), der, length) == 1;
  OPENSSL_free(der);
  if (!held) return broken("write an extension");
  const Owned<X509_EXTENSION, X509_EXTENSION_free> whole(
      X509_EXTENSION_create_by_OBJ(nullptr, name.get(), extension.critical ? 1 : 0, value.get()));
  if (!whole || X509_add_ext(certificate, whole.get(), -1) != 1) return broken("add an extension");
  return {};
}

Result<std::string> self_signed(const P256PrivateKey& key, const std::string& name, int64_t from_s, int64_t until_s,
                                const OctetExtension& extension) {
  const QuietErrors quiet;
  PF_TRY(const OwnedNames names, alternative_names({name}));
  PF_TRY(std::string serial, random_bytes(kSerialBytes));
  // Positive, and of one length.
  serial.front() = static_cast<char>((static_cast<unsigned char>(serial.front()) & 0x3f) | 0x40);
  const OwnedX509 certificate(X509_new());
  if (!certificate) return broken("make a certificate");
  X509* it = certificate.get();
  X509_NAME* subject = X509_get_subject_name(it);
  if (X509_set_version(it, X509_VERSION_3) != 1 ||
      ASN1_STRING_set(X509_get_serialNumber(it), serial.data(), static_cast<int>(serial.size())) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(it), static_cast<time_t>(from_s)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(it), static_cast<time_t>(until_s)) == nullptr ||
      X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_ASC, bytes_of(kSubject), -1, -1, 0) != 1 ||
      X509_set_issuer_name(it, subject) != 1 || X509_set_pubkey(it, key.native()) != 1 ||
      X509_add1_ext_i2d(it, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) != 1)
    return broken("fill in a certificate");
  if (!extension.bytes.empty()) PF_CHECK_OK(add_extension(it, extension));
  if (X509_sign(it, key.native(), EVP_sha256()) <= 0) return broken("sign a certificate");
  const Owned<BIO, BIO_free> output(BIO_new(BIO_s_mem()));
  if (!output || PEM_write_bio_X509(output.get(), it) != 1) return broken("write a certificate");
  char* text = nullptr;
  const long length = BIO_get_mem_data(output.get(), &text);
  return std::string(text, static_cast<size_t>(length));
}

}  // namespace

bool is_dns_name(std::string_view name) {
  if (name.size() > kMostNameBytes) return false;
  size_t label_bytes = 0;
  for (const char c : name) {
    if (c == '.') {
      if (label_bytes == 0) return false;
      label_bytes = 0;
      continue;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c == '-' && label_bytes > 0);
    if (!letter || ++label_bytes > kMostLabelBytes) return false;
  }
  return label_bytes > 0;
}

Result<CertificateInfo> inspect_certificate(std::string_view pem_chain) {
  const QuietErrors quiet;
  if (pem_chain.size() > kMostPemBytes)
    return fail(ErrorCode::kInvalidArgument, fmt::format("a certificate chain of {} bytes is too long", pem_chain.size()));
  const Owned<BIO, BIO_free> input(BIO_new_mem_buf(pem_chain.data(), static_cast<int>(pem_chain.size())));
  if (!input) return broken("read a certificate");
  // Without a callback OpenSSL would ask the terminal for a password where the PEM says that it is encrypted.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  const OwnedX509 certificate(PEM_read_bio_X509(input.get(), nullptr, no_password, nullptr));
  if (!certificate) return fail(ErrorCode::kInvalidArgument, "this is no certificate in PEM");
  return inspect(certificate.get());
}

Result<CertificateInfo> inspect_certificate_der(std::string_view der) {
  const QuietErrors quiet;
  if (der.size() > kMostDerBytes)
    return fail(ErrorCode::kInvalidArgument, fmt::format("a certificate of {} bytes is too long", der.size()));
  const unsigned char* at = bytes_of(der);
  const OwnedX509 certificate(d2i_X509(nullptr, &at, static_cast<long>(der.size())));
  if (!certificate || at != bytes_of(der) + der.size())
    return fail(ErrorCode::kInvalidArgument, "these bytes are no certificate in DER");
  return inspect(certificate.get());
}

Result<std::string> make_agent_certificate(const P256PrivateKey& key, std::string_view extension) {
  if (extension.size() > kMostExtensionBytes) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("an extension of {} bytes is too long for a certificate; at most {} fit",
                                                         extension.size(), kMostExtensionBytes));
  }
  return self_signed(key, "agent", new_year(1975), new_year(4096), OctetExtension{kTunnelExtension, false, extension});
}

Result<std::string> make_challenge_certificate(const P256PrivateKey& key, const std::string& domain,
                                               const Sha256& key_authorization_digest) {
  const int64_t now_s = SystemClock::instance().unix_ms() / 1'000;
  const std::string_view digest(reinterpret_cast<const char*>(key_authorization_digest.data()), key_authorization_digest.size());
  // A clock that is a day ahead does not matter.
  return self_signed(key, domain, now_s - kDay, now_s + kChallengeDays * kDay, OctetExtension{kAcmeIdentifier, true, digest});
}

Result<std::string> make_self_signed_certificate(const P256PrivateKey& key, const std::string& domain, int days) {
  const int64_t now_s = SystemClock::instance().unix_ms() / 1'000;
  return self_signed(key, domain, now_s - kDay, now_s + days * kDay, OctetExtension{kTunnelExtension, false, {}});
}

Result<std::string> make_certificate_request(const P256PrivateKey& key, const std::vector<std::string>& domains) {
  const QuietErrors quiet;
  PF_TRY(const OwnedNames names, alternative_names(domains));
  const Owned<X509_REQ, X509_REQ_free> request(X509_REQ_new());
  STACK_OF(X509_EXTENSION)* list = nullptr;
  const bool added = X509V3_add1_i2d(&list, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) == 1;
  const std::unique_ptr<STACK_OF(X509_EXTENSION), FreedExtensions> extensions(list);
  if (!added || !request || X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.native()) != 1 || X509_REQ_add_extensions(request.get(), extensions.get()) != 1)
    return broken("fill in a certificate request");
  if (X509_REQ_sign(request.get(), key.native(), EVP_sha256()) <= 0) return broken("sign a certificate request");
  unsigned char* der = nullptr;
  const int length = i2d_X509_REQ(request.get(), &der);
  if (length <= 0) return broken("write a certificate request");
  std::string out(reinterpret_cast<char*>(der), static_cast<size_t>(length));
  OPENSSL_free(der);
  return out;
}

bool certificate_matches_key(std::string_view pem_chain, const P256PrivateKey& key) {
  const auto info = inspect_certificate(pem_chain);
  return info && info->public_key == key.public_key().compressed();
}

}  // namespace pocketfleet
