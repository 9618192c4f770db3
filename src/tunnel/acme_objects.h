// The objects of ACME (RFC 8555, 7.1) as values: out of an authority's answers, and into what we send it. Pure; any thread.
// Errors: kProtocol for an answer that is not what the RFC says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tunnel/acme.h"

namespace pocketfleet::tunnel {

inline constexpr size_t kMostAcmeBytes = 256u << 10;  // of an answer
inline constexpr size_t kMostAcmeNames = 100;         // of one order

// The error for an answer that makes no sense.
tl::unexpected<Error> unclear_answer(std::string_view what);

struct AcmeDirectory {
  std::string new_nonce;
  std::string new_account;
  std::string new_order;
  std::string renewal_info;    // may be empty
  std::string terms;           // may be empty
  bool needs_binding = false;  // accounts must belong to one that the authority made
};
Result<AcmeDirectory> read_directory(std::string_view body);

struct AcmeOrderState {
  std::string status;  // pending, ready, processing, valid or invalid
  std::string finalize_url;
  std::string certificate_url;  // once it is valid
  std::vector<std::string> authorizations;
  std::string fault;  // in the authority's words
};
Result<AcmeOrderState> read_order(std::string_view body);

struct AcmeAuthorization {
  std::string status;  // pending, valid or something final
  std::string domain;
  std::string challenge_url;  // of tls-alpn-01; empty when that is not offered
  std::string token;
  std::string fault;  // in the authority's words
};
Result<AcmeAuthorization> read_authorization(std::string_view body);

// Without retry_after_s, which is not in the body.
Result<RenewalWindow> read_renewal_window(std::string_view body);

// A chain goes into a server as it is: it must hold certificates, and nothing but them (RFC 8555, 11.4).
Result<void> check_chain(std::string_view pem);

std::string account_payload(const std::string& contact, bool agree);
std::string order_payload(const std::vector<std::string>& domains);
std::string finalize_payload(std::string_view csr_der);

}  // namespace pocketfleet::tunnel
