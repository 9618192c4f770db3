// The texts of ACME (RFC 8555) as values: signed requests (JWS, RFC 7515, with ES256), the thumbprint of a key (RFC 7638),
// problem documents (RFC 7807), times, and what a certificate is called when its renewal is asked about (RFC 9773). Pure; any
// thread. What an authority wrote is cut to a length that fits a line of a log. Errors: kInternal when OpenSSL fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "crypto/certificate.h"
#include "crypto/p256.h"

namespace pocketfleet::tunnel {

// A public key as JSON: {"crv":"P-256","kty":"EC","x":...,"y":...}, in the form that the thumbprint is made of.
Result<std::string> public_jwk(const P256PublicKey& key);
Result<std::string> jwk_thumbprint(const P256PublicKey& key);

struct JwsHeader {
  std::string url;
  std::string nonce;
  std::string kid;  // the account's URL; empty: the key itself goes along
};
Result<std::string> sign_jws(const P256PrivateKey& key, const JwsHeader& header, std::string_view payload);

// Letters of base64url, as nonces and tokens have them.
bool is_base64url_word(std::string_view text);

// The string at `key`; empty when there is none, or a longer one than an authority has any use for.
std::string text_at(const Json& object, std::string_view key);

struct AcmeProblem {
  int status = 0;
  std::string type;    // "urn:ietf:params:acme:error:badNonce"; empty when there is no problem document
  std::string detail;  // with those of its subproblems
  // Whether it is this one of ACME's own: is("badNonce").
  bool is(std::string_view kind) const;
};

// Of a problem document, or of the `error` of an order or a challenge.
AcmeProblem problem_in(const Json& document);
// Of an answer; one that is no problem document has the status alone.
AcmeProblem read_problem(int status, std::string_view body);
// "TYPE: DETAIL".
std::string describe(const AcmeProblem& problem);
// `doing`: what was asked for, as in "refused to DOING".
Error error_of(const AcmeProblem& problem, std::string_view doing, int retry_after_s);

// The value of a Retry-After header in seconds, at most a month; 0 for one that cannot be read or has passed.
int parse_retry_after(std::string_view value, int64_t now_unix_ms);
// RFC 3339: "2026-01-02T04:00:00Z", with a fraction and another zone too.
std::optional<int64_t> parse_timestamp_ms(std::string_view text);

// Empty where the certificate does not name the key that signed it.
std::string renewal_id(const CertificateInfo& info);

}  // namespace pocketfleet::tunnel
