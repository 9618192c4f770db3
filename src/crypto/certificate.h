// X.509 certificates (RFC 5280): what we want to know of one, the self-signed ones that agents show and that answer a TLS-ALPN-01
// challenge (RFC 8737), and certificate requests (RFC 2986). Functions on values, PEM where DER is not said; any thread. Serial
// numbers come from the random generator, the validity of a challenge's certificate from the system's clock. Nothing here says
// whether a certificate is trusted. Errors: kInvalidArgument for bytes that are no certificate and names that are no DNS names,
// kInternal when OpenSSL fails.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "crypto/digest.h"
#include "crypto/p256.h"

namespace pocketfleet {

struct CertificateInfo {
  int64_t not_before_ms = 0;  // Unix time
  int64_t not_after_ms = 0;
  std::vector<std::string> dns_names;  // alternative names of that kind, as they stand there
  std::string serial;                  // the number's bytes in DER: a zero comes first where the first bit would be set
  std::string authority_key_id;        // of the key that signed it; may be empty
  std::string public_key;              // compressed, 33 bytes; empty when it is not on P-256
  bool self_issued = false;            // signed, or so it says, by whom it is for
  std::string tunnel_extension;        // what make_agent_certificate() was given; empty when there is none
  std::string acme_identifier;         // the digest in a challenge's certificate, 32 bytes; else empty
};

// Of the first certificate of the chain.
Result<CertificateInfo> inspect_certificate(std::string_view pem_chain);
Result<CertificateInfo> inspect_certificate_der(std::string_view der);

// For the name "agent", valid from 1975 to 4096. `extension` goes along as it is; with an empty one there is none.
Result<std::string> make_agent_certificate(const P256PrivateKey& key, std::string_view extension);

// What a server shows to the authority that checks `domain` (RFC 8737, section 3); valid for a week.
Result<std::string> make_challenge_certificate(const P256PrivateKey& key, const std::string& domain,
                                               const Sha256& key_authorization_digest);

// For a domain, from a day ago until so many days from now. Nobody trusts it who has not been told to.
Result<std::string> make_self_signed_certificate(const P256PrivateKey& key, const std::string& domain, int days);

// In DER. The subject is empty: a common name holds at most 64 letters, and authorities read the alternative names.
Result<std::string> make_certificate_request(const P256PrivateKey& key, const std::vector<std::string>& domains);

// Whether the first certificate of the chain is for this key.
bool certificate_matches_key(std::string_view pem_chain, const P256PrivateKey& key);

// At most 253 lower-case letters, digits and hyphens in labels of at most 63.
bool is_dns_name(std::string_view name);

}  // namespace pocketfleet
