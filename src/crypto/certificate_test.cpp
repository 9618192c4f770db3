#include "crypto/certificate.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "crypto/certificate_test_util.h"

namespace pocketfleet {
namespace {

using TestX509 = std::unique_ptr<X509, decltype(&X509_free)>;
using TestObject = std::unique_ptr<ASN1_OBJECT, decltype(&ASN1_OBJECT_free)>;

constexpr const char* kTunnelOid = "1.3.6.1.4.1.65535.1";
constexpr const char* kAcmeOid = "1.3.6.1.5.5.7.1.31";
constexpr int64_t kDayMs = 86'400'000;

P256PrivateKey make_key() {
  return *P256PrivateKey::generate();
}

TestX509 parsed(const std::string& pem) {
  BIO* input = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  TestX509 out(PEM_read_bio_X509(input, nullptr, nullptr, nullptr), X509_free);
  BIO_free(input);
  return out;
}

std::string der_of(const X509* certificate) {
  unsigned char* der = nullptr;
  const int length = i2d_X509(certificate, &der);
  std::string out(reinterpret_cast<char*>(der), static_cast<size_t>(length));
  OPENSSL_free(der);
  return out;
}

const X509_EXTENSION* extension_of(const X509* certificate, const char* oid) {
  const TestObject name(OBJ_txt2obj(oid, 1), ASN1_OBJECT_free);
  const int place = X509_get_ext_by_OBJ(certificate, name.get(), -1);
  return place < 0 ? nullptr : X509_get_ext(certificate, place);
}

std::string value_of(const X509_EXTENSION* extension) {
  const ASN1_OCTET_STRING* value = X509_EXTENSION_get_data(const_cast<X509_EXTENSION*>(extension));
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)), static_cast<size_t>(ASN1_STRING_length(value))};
}

void add_raw_extension(X509* certificate, const char* oid, const std::string& value) {
  const TestObject name(OBJ_txt2obj(oid, 1), ASN1_OBJECT_free);
  ASN1_OCTET_STRING* bytes = ASN1_OCTET_STRING_new();
  ASN1_STRING_set(bytes, value.data(), static_cast<int>(value.size()));
  X509_EXTENSION* extension = X509_EXTENSION_create_by_OBJ(nullptr, name.get(), 0, bytes);
  ASSERT_EQ(X509_add_ext(certificate, extension, -1), 1);
  X509_EXTENSION_free(extension);
  ASN1_OCTET_STRING_free(bytes);
}

TEST(Certificate, AnAgentsCertificateSaysWhatItWasGiven) {
  const P256PrivateKey key = make_key();
  const std::string extension = std::string("\0\x01\xff", 3) + std::string(78, 'x');
  const auto pem = make_agent_certificate(key, extension);
  ASSERT_TRUE(pem) << pem.error().message;
  const auto info = inspect_certificate(*pem);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->dns_names, std::vector<std::string>{"agent"});
  EXPECT_EQ(info->tunnel_extension, extension);
  EXPECT_EQ(info->public_key, key.public_key().compressed());
  EXPECT_EQ(info->not_before_ms, 157'766'400'000);    // 1975
  EXPECT_EQ(info->not_after_ms, 67'090'118'400'000);  // 4096
  EXPECT_EQ(info->acme_identifier, "");
  EXPECT_EQ(info->authority_key_id, "");
  EXPECT_EQ(info->serial.size(), 16u);

  const TestX509 certificate = parsed(*pem);
  EXPECT_EQ(X509_verify(certificate.get(), key.native()), 1);
  const X509_EXTENSION* found = extension_of(certificate.get(), kTunnelOid);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(X509_EXTENSION_get_critical(found), 0);
  EXPECT_EQ(value_of(found), "\x04\x51" + extension);

  const auto from_der = inspect_certificate_der(der_of(certificate.get()));
  ASSERT_TRUE(from_der) << from_der.error().message;
  EXPECT_EQ(from_der->tunnel_extension, extension);
  EXPECT_EQ(from_der->serial, info->serial);
}

TEST(Certificate, AnAgentsCertificateWithoutAnExtensionHasNone) {
  const auto pem = make_agent_certificate(make_key(), "");
  ASSERT_TRUE(pem) << pem.error().message;
  EXPECT_EQ(inspect_certificate(*pem)->tunnel_extension, "");
  EXPECT_EQ(extension_of(parsed(*pem).get(), kTunnelOid), nullptr);
  EXPECT_FALSE(make_agent_certificate(make_key(), std::string(5'000, 'x')));
}

TEST(Certificate, TwoCertificatesHaveTwoSerialNumbers) {
  const P256PrivateKey key = make_key();
  EXPECT_NE(inspect_certificate(*make_agent_certificate(key, ""))->serial,
            inspect_certificate(*make_agent_certificate(key, ""))->serial);
}

TEST(Certificate, AChallengesCertificateHasTheDigestInACriticalExtension) {
  const P256PrivateKey key = make_key();
  const Sha256 digest = sha256("token.thumbprint");
  const std::string bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
  const auto pem = make_challenge_certificate(key, "00ff.example.org", digest);
  ASSERT_TRUE(pem) << pem.error().message;
  const auto info = inspect_certificate(*pem);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->dns_names, std::vector<std::string>{"00ff.example.org"});
  EXPECT_EQ(info->acme_identifier, bytes);
  EXPECT_EQ(info->tunnel_extension, "");
  const int64_t now_ms = SystemClock::instance().unix_ms();
  EXPECT_LT(info->not_before_ms, now_ms - kDayMs / 2);
  EXPECT_GT(info->not_after_ms, now_ms + 2 * kDayMs);
  EXPECT_LT(info->not_after_ms, now_ms + 30 * kDayMs);

  const TestX509 certificate = parsed(*pem);
  EXPECT_EQ(X509_verify(certificate.get(), key.native()), 1);
  const X509_EXTENSION* found = extension_of(certificate.get(), kAcmeOid);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(X509_EXTENSION_get_critical(found), 1);
  EXPECT_EQ(value_of(found), "\x04\x20" + bytes);
}

TEST(Certificate, ASelfSignedCertificateIsForItsNameAndItsDays) {
  const P256PrivateKey key = make_key();
  const auto pem = make_self_signed_certificate(key, "00ff.example.org", 30);
  ASSERT_TRUE(pem) << pem.error().message;
  const auto info = inspect_certificate(*pem);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->dns_names, std::vector<std::string>{"00ff.example.org"});
  EXPECT_EQ(info->not_after_ms - info->not_before_ms, 31 * kDayMs);
  EXPECT_EQ(extension_of(parsed(*pem).get(), kTunnelOid), nullptr);
  EXPECT_TRUE(info->self_issued);
  EXPECT_TRUE(certificate_matches_key(*pem, key));
}

TEST(Certificate, ANameThatIsTooLongForACommonNameIsNoTrouble) {
  const std::string name = std::string(63, 'a') + "." + std::string(63, 'b') + ".example.org";
  const P256PrivateKey key = make_key();
  EXPECT_TRUE(make_challenge_certificate(key, name, sha256("x")));
  EXPECT_TRUE(make_certificate_request(key, {name}));
}

TEST(Certificate, ARequestIsSignedAndAsksForItsNames) {
  const P256PrivateKey key = make_key();
  const auto der = make_certificate_request(key, {"a.example.org", "b.example.org"});
  ASSERT_TRUE(der) << der.error().message;
  const unsigned char* at = reinterpret_cast<const unsigned char*>(der->data());
  const std::unique_ptr<X509_REQ, decltype(&X509_REQ_free)> request(d2i_X509_REQ(nullptr, &at, static_cast<long>(der->size())),
                                                                    X509_REQ_free);
  ASSERT_NE(request.get(), nullptr);
  EXPECT_EQ(X509_REQ_verify(request.get(), key.native()), 1);
  EXPECT_NE(X509_REQ_verify(request.get(), make_key().native()), 1);
  EXPECT_EQ(X509_REQ_get_version(request.get()), X509_REQ_VERSION_1);
  EXPECT_EQ(X509_NAME_entry_count(X509_REQ_get_subject_name(request.get())), 0);

  STACK_OF(X509_EXTENSION)* extensions = X509_REQ_get_extensions(request.get());
  auto* names = static_cast<GENERAL_NAMES*>(X509V3_get_d2i(extensions, NID_subject_alt_name, nullptr, nullptr));
  sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
  ASSERT_NE(names, nullptr);
  ASSERT_EQ(sk_GENERAL_NAME_num(names), 2);
  for (int i = 0; i < 2; ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    ASSERT_EQ(name->type, GEN_DNS);
    const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                           static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
    EXPECT_EQ(text, i == 0 ? "a.example.org" : "b.example.org");
  }
  GENERAL_NAMES_free(names);
}

TEST(Certificate, WhatIsNoDnsNameGetsNoCertificate) {
  const P256PrivateKey key = make_key();
  for (const std::string& name :
       {std::string(), std::string("."), std::string("a."), std::string(".a"), std::string("a..b"), std::string("*.example.org"),
        std::string("Example.org"), std::string("a b"), std::string("a\0b", 3), std::string("-a"),
        std::string("\xc3\xa4.example"), std::string(64, 'a') + ".org", std::string("a:443"), std::string("../a")}) {
    EXPECT_FALSE(is_dns_name(name)) << name;
    const auto request = make_certificate_request(key, {name});
    ASSERT_FALSE(request) << name;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  }
  std::string long_name = "a";
  while (long_name.size() < 254) long_name += ".a";
  EXPECT_FALSE(is_dns_name(long_name));
  EXPECT_FALSE(make_certificate_request(key, {}));
  EXPECT_FALSE(make_certificate_request(key, {"a.example", "B.example"}));
  for (const char* name : {"a", "agent", "0123456789abcdef.acu.run", "xn--4ca.example", "a-b.c"}) EXPECT_TRUE(is_dns_name(name));
}

TEST(Certificate, TheExampleOfTheRfcKeepsTheZeroBeforeItsSerialNumber) {
  const auto info = inspect_certificate(kRfcExample);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->serial, std::string("\x00\x87\x65\x43\x21", 5));
  EXPECT_EQ(info->authority_key_id, "\x69\x88\x5b\x6b\x87\x46\x40\x41\xe1\xb3\x7b\x84\x7b\xa0\xae\x2c\xde\x01\xc8\xd4");
  EXPECT_EQ(info->public_key.size(), 33u);
  EXPECT_TRUE(P256PublicKey::from_compressed(info->public_key));
  EXPECT_EQ(info->not_before_ms, -62'135'596'800'000);  // the year 1
  EXPECT_TRUE(info->dns_names.empty());
}

TEST(Certificate, TheFirstOfAChainIsLookedAt) {
  const P256PrivateKey key = make_key();
  const std::string pem = *make_challenge_certificate(key, "first.example", sha256("x"));
  const auto info = inspect_certificate("a comment\n" + pem + kRfcExample + "and what is no PEM");
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->dns_names, std::vector<std::string>{"first.example"});
  EXPECT_TRUE(certificate_matches_key(pem + kRfcExample, key));
  EXPECT_FALSE(certificate_matches_key(kRfcExample + pem, key));
  EXPECT_FALSE(certificate_matches_key(pem, make_key()));
  EXPECT_FALSE(certificate_matches_key("", key));
}

TEST(Certificate, WhatIsNoCertificateIsRefused) {
  const std::string pem = *make_agent_certificate(make_key(), "extension");
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        pem.substr(0, pem.size() / 2), *make_key().to_pem(), std::string(300'000, 'A')}) {
    const auto info = inspect_certificate(text);
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().code, ErrorCode::kInvalidArgument);
  }
  // A password is not asked for.
  EXPECT_FALSE(
      inspect_certificate("-----BEGIN CERTIFICATE-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,"
                          "00000000000000000000000000000000\n\nAAAA\n-----END CERTIFICATE-----\n"));
  const std::string der = der_of(parsed(pem).get());
  for (size_t length = 0; length < der.size(); ++length) EXPECT_FALSE(inspect_certificate_der(der.substr(0, length))) << length;
  EXPECT_FALSE(inspect_certificate_der(der + "x"));
  EXPECT_FALSE(inspect_certificate_der(std::string(70'000, '0')));
  EXPECT_TRUE(inspect_certificate_der(der));
  // Nothing is left that a TLS operation of this thread would find.
  EXPECT_EQ(ERR_peek_error(), 0u);
}

TEST(Certificate, FlippedBitsAreAnErrorOrAnotherCertificateAndNothingWorse) {
  const std::string der = der_of(parsed(*make_agent_certificate(make_key(), "extension")).get());
  for (size_t bit = 0; bit < der.size() * 8; ++bit) {
    std::string flipped = der;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto info = inspect_certificate_der(flipped);
    if (!info) {
      EXPECT_EQ(info.error().code, ErrorCode::kInvalidArgument);
    }
  }
}

TEST(Certificate, ExtensionsThatAreMalformedOrThereTwiceAreRefused) {
  const P256PrivateKey key = make_key();
  const std::string octets = std::string("\x04\x01", 2) + "x";
  const std::vector<std::vector<std::pair<const char*, std::string>>> cases = {
      {{kTunnelOid, "x"}},       {{kTunnelOid, ""}},   {{kTunnelOid, octets + "y"}}, {{kTunnelOid, octets}, {kTunnelOid, octets}},
      {{kAcmeOid, "\x05\x01x"}}, {{"2.5.29.17", "x"}},  // a second list of alternative names, and no list
      {{"2.5.29.35", octets}},                          // the key of the authority
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const TestX509 certificate = parsed(*make_agent_certificate(key, ""));
    for (const auto& [oid, value] : cases[i]) add_raw_extension(certificate.get(), oid, value);
    ASSERT_GT(X509_sign(certificate.get(), key.native(), EVP_sha256()), 0);
    const auto info = inspect_certificate_der(der_of(certificate.get()));
    ASSERT_FALSE(info) << i;
    EXPECT_EQ(info.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Certificate, AKeyThatIsNotOnP256IsLeftOut) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> other(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free);
  ASSERT_NE(other.get(), nullptr);
  const TestX509 certificate = parsed(*make_agent_certificate(make_key(), ""));
  ASSERT_EQ(X509_set_pubkey(certificate.get(), other.get()), 1);
  ASSERT_GT(X509_sign(certificate.get(), other.get(), nullptr), 0);
  const auto info = inspect_certificate_der(der_of(certificate.get()));
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->public_key, "");
  EXPECT_EQ(info->dns_names, std::vector<std::string>{"agent"});
}

}  // namespace
}  // namespace pocketfleet
