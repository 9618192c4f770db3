#include "tunnel/identity.h"

#include <gtest/gtest.h>

#include "crypto/digest.h"
#include "crypto/recoverable.h"

namespace pocketfleet::tunnel {
namespace {

// The key of RFC 6979, A.2.5: its point has an odd y.
constexpr char kOddPem[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgya+p2EW6dRZrXCFX\n"
    "Z7HWk05Qw9s26JsSe4piKxIPZyGhRANCAARg/tS6JVqdMclh63TGNW1owEm4kjth\n"
    "+mzmaWIuYPKftnkD/hAIuLyZpBrp6VYovGTy8bIMLX6fUXejwpTURiKZ\n"
    "-----END PRIVATE KEY-----\n";
// The order of the curve less that key: the same x, and an even y.
constexpr char kEvenPem[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgNlBWJrpFiuqUo96o\n"
    "mE4pbG6WNtJwLwNyeC9ol+pTvjChRANCAARg/tS6JVqdMclh63TGNW1owEm4kjth\n"
    "+mzmaWIuYPKftob8Ae73R0NnW+UWFqnXQ5sNDk300oFgrohcPWsrud1m\n"
    "-----END PRIVATE KEY-----\n";

struct Vector {
  const char* pem;
  std::string id;
  std::string proof;        // over the domain, "<id>.acu.run"
  std::string bound_proof;  // over the domain and a binding of the bytes 0 to 31
};

const Vector kVectors[] = {
    {kOddPem, "a468072bf83a2703",
     "0a8e0f4a9269e67b64d1652beb3edd9d8522535d731c24612b99dbba29ba6c3b"
     "299612374893b6e31d42fb66a7ab26c3b4386c6823ebaf80d5efced33b53e22b01",
     "de4f2b2bf385c1206bba0853e2d3a5891fdca486f470e8c886a9ac9b708b3b85"
     "0593f02790fad87621326a182f9708542870422b07b9fdd382506d2429194dff00"},
    {kEvenPem, "ed31ce75d390d94f",
     "71b0e979ca022a82933ef347ce1344ba11329b4620ff53d3016d0e8f95712c03"
     "11e2393bfbfddb3c5a68d9005659e3fd58ffbfecba34af98827780bbd91689fa00",
     "b75b930c072146670521863f3dfd76319270e63e2d6f3194821e7ed12de8ac36"
     "4c663aa33df34cbb0e6e51f617591a1d6fd122b1c5bdce1a2de1902ab64c558201"},
};

std::string hex_of(std::string_view bytes) {
  return to_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

std::string counting_bytes() {
  std::string out;
  for (char byte = 0; byte < 32; ++byte) out.push_back(byte);
  return out;
}
const std::string kBinding = counting_bytes();

P256PrivateKey key_of(const char* pem) {
  return P256PrivateKey::from_pem(pem).value();
}

void expect_denied(const Result<P256PublicKey>& result, std::string_view beginning) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kPermissionDenied);
  EXPECT_TRUE(result.error().message.starts_with(beginning)) << result.error().message;
}

TEST(Identity, TheIdDependsOnTheParityOfTheKeyToo) {
  for (const Vector& vector : kVectors) EXPECT_EQ(client_id(key_of(vector.pem).public_key()), vector.id);
}

TEST(Identity, ProofsAreThoseOfThePublicProtocolAndOurOwn) {
  for (const Vector& vector : kVectors) {
    const P256PrivateKey key = key_of(vector.pem);
    const std::string domain = vector.id + ".acu.run";
    const auto proof = prove_domain(key, domain);
    ASSERT_TRUE(proof) << proof.error().message;
    EXPECT_EQ(hex_of(*proof), vector.proof);
    const auto bound = prove_binding(key, domain, kBinding);
    ASSERT_TRUE(bound) << bound.error().message;
    EXPECT_EQ(hex_of(*bound), vector.bound_proof);

    const auto found = check_proof(domain, *proof, std::nullopt);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->compressed(), key.public_key().compressed());
    const auto found_bound = check_proof(domain, *bound, kBinding);
    ASSERT_TRUE(found_bound) << found_bound.error().message;
    EXPECT_EQ(found_bound->compressed(), key.public_key().compressed());
  }
}

TEST(Identity, AProofHoldsForOneDomainOnly) {
  const P256PrivateKey key = key_of(kOddPem);
  const std::string id = client_id(key.public_key());
  const auto proof = prove_domain(key, id + ".a.example");
  ASSERT_TRUE(proof);
  EXPECT_TRUE(check_proof(id + ".a.example", *proof, std::nullopt));
  expect_denied(check_proof(id + ".b.example", *proof, std::nullopt), "wrong id");
}

TEST(Identity, ABoundProofHoldsOnOneConnectionOnly) {
  const P256PrivateKey key = key_of(kOddPem);
  const std::string domain = client_id(key.public_key()) + ".a.example";
  const auto bound = prove_binding(key, domain, kBinding);
  ASSERT_TRUE(bound);
  for (size_t at = 0; at < kBinding.size(); ++at) {
    std::string other = kBinding;
    other[at] = static_cast<char>(other[at] ^ 1);
    EXPECT_FALSE(check_proof(domain, *bound, other)) << at;
  }
  // Neither kind is taken for the other.
  EXPECT_FALSE(check_proof(domain, *bound, std::nullopt));
  const auto unbound = prove_domain(key, domain);
  ASSERT_TRUE(unbound);
  expect_denied(check_proof(domain, *unbound, kBinding), "wrong id");
}

TEST(Identity, NobodyProvesTheDomainOfAnother) {
  const std::string domain = kVectors[0].id + ".a.example";
  const auto proof = prove_domain(key_of(kEvenPem), domain);
  ASSERT_TRUE(proof);
  const auto result = check_proof(domain, *proof, std::nullopt);
  expect_denied(result, "wrong id");
  EXPECT_NE(result.error().message.find(kVectors[1].id), std::string::npos) << result.error().message;
}

TEST(Identity, AChangedProofIsDenied) {
  const P256PrivateKey key = key_of(kOddPem);
  const std::string domain = client_id(key.public_key()) + ".a.example";
  const std::string proof = *prove_domain(key, domain);
  for (size_t at = 0; at < proof.size(); ++at) {
    std::string changed = proof;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    expect_denied(check_proof(domain, changed, std::nullopt), "wrong ");
  }
  for (const std::string& wrong : {std::string(), proof.substr(1), proof + "x", std::string(kRecoverableBytes, '\0')})
    expect_denied(check_proof(domain, wrong, std::nullopt), "wrong signature");
}

TEST(Identity, ADomainIsAnIdAndASuffixInLowerCase) {
  const auto parts = split_domain("0123456789abcdef.acu.run");
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->first, "0123456789abcdef");
  EXPECT_EQ(parts->second, "acu.run");
  EXPECT_TRUE(split_domain("0123456789abcdef.localhost"));
  const std::string id = "0123456789abcdef";
  const std::string label(63, 'l');
  for (const std::string& wrong :
       {std::string(), std::string("."), id, id + ".", id + "..run", id + ".run.", id + ".RUN", id + ".r n",
        id + std::string(".run\0", 5), id + ".run:443", id + "0.run", id.substr(1) + ".run", std::string("0123456789ABCDEF.run"),
        std::string("0123456789abcdeg.run"), "." + id + ".run", id + "." + label + "l",
        id + "." + label + "." + label + "." + label + "." + label}) {
    const auto result = split_domain(wrong);
    ASSERT_FALSE(result) << wrong;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    const auto checked = check_proof(wrong, std::string(kRecoverableBytes, 'x'), std::nullopt);
    ASSERT_FALSE(checked) << wrong;
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
    EXPECT_FALSE(prove_domain(key_of(kOddPem), wrong)) << wrong;
    EXPECT_FALSE(prove_binding(key_of(kOddPem), wrong, kBinding)) << wrong;
  }
}

TEST(Identity, ABindingHasThirtyTwoBytes) {
  const P256PrivateKey key = key_of(kOddPem);
  const std::string domain = client_id(key.public_key()) + ".a.example";
  for (const std::string& wrong : {std::string(), kBinding.substr(1), kBinding + "x"}) {
    const auto proof = prove_binding(key, domain, wrong);
    ASSERT_FALSE(proof);
    EXPECT_EQ(proof.error().code, ErrorCode::kInvalidArgument);
    const auto checked = check_proof(domain, std::string(kRecoverableBytes, 'x'), wrong);
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Identity, ASuffixIsAllowedAsAWhole) {
  const std::string domain = "0123456789abcdef.acu.run";
  EXPECT_TRUE(suffix_allowed(domain, {}));
  EXPECT_TRUE(suffix_allowed(domain, {"acu.run"}));
  EXPECT_TRUE(suffix_allowed(domain, {"a.example", "acu.run"}));
  EXPECT_FALSE(suffix_allowed(domain, {"run"}));
  EXPECT_FALSE(suffix_allowed(domain, {".acu.run"}));
  EXPECT_FALSE(suffix_allowed(domain, {"cu.run"}));
  EXPECT_FALSE(suffix_allowed(domain, {""}));
  EXPECT_FALSE(suffix_allowed("0123456789abcdef.canary.acu.run", {"acu.run"}));
  EXPECT_FALSE(suffix_allowed("acu.run", {}));
  EXPECT_FALSE(suffix_allowed("", {}));
}

TEST(Identity, ATxtRecordAuthorisesOneSource) {
  const std::string source = counting_bytes();
  const std::string own = "rr3N1cMmfWxwAXmTkVk/iVx/gfyJ1R74uHwHksdXo3o=";
  EXPECT_EQ(txt_value(source, "example.com"), own);
  EXPECT_TRUE(txt_authorises({own}, source, "example.com"));
  EXPECT_TRUE(txt_authorises({"v=spf1 -all", own}, source, "example.com"));
  EXPECT_FALSE(txt_authorises({}, source, "example.com"));
  EXPECT_FALSE(txt_authorises({own}, source, "example.org"));
  EXPECT_FALSE(txt_authorises({own}, source.substr(1), "example.com"));
  // In pieces, as long records come: they are not joined.
  EXPECT_FALSE(txt_authorises({own.substr(0, 20), own.substr(20)}, source, "example.com"));
}

TEST(Identity, TheMarkForEverybodyCountsOnlyAlone) {
  const std::string source = counting_bytes();
  const std::string open = "7yzOrTqomKSiYKj+JiVAptL0/ApTR0FJuI1bXX2Uzw8=";
  EXPECT_EQ(txt_open_value("example.com"), open);
  EXPECT_TRUE(txt_authorises({open}, source, "example.com"));
  EXPECT_FALSE(txt_authorises({open}, source, "example.org"));
  EXPECT_FALSE(txt_authorises({open, "v=spf1 -all"}, source, "example.com"));
  EXPECT_FALSE(txt_authorises({open, open}, source, "example.com"));
  EXPECT_TRUE(txt_authorises({open, txt_value(source, "example.com")}, source, "example.com"));
}

}  // namespace
}  // namespace pocketfleet::tunnel
