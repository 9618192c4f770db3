// A client of certificate authorities: ACME (RFC 8555) with TLS-ALPN-01 (RFC 8737) and renewal information (RFC 9773). It only
// talks to the authority; the caller shows the challenge, keeps the chain and decides when to come again. One client is one
// account; use it on one executor (a strand, or a context with one thread); calls may overlap, and one that runs goes on when
// the client ends. Timeouts are positive and for the whole call. Errors: kUnavailable when the authority is busy or limits us,
// with retry_after_s where it says so: do not come before; kPermissionDenied when it refuses, in its own words; kProtocol;
// kDeadlineExceeded; kInvalidArgument for options and names; kUnsupportedParameter for what it wants and we cannot do; and those
// of the network.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "crypto/certificate.h"
#include "crypto/p256.h"

namespace pocketfleet::tunnel {

namespace asio = boost::asio;

struct AcmeOptions {
  std::string directory_url;  // https://, or http:// where the host is on loopback
  std::string ca_file;        // authorities that may sign the directory's own certificate, PEM; empty: those of the system
  std::string contact;        // an e-mail address, or a URL such as "mailto:..."; may be empty
  bool agree = false;         // to the authority's terms of service
  int64_t poll_ms = 1'000;    // between the first two looks at what the authority does; the time grows
};

struct AcmeOrder {
  // Not an aggregate: g++ 12 destroys those twice that a coroutine takes by value.
  AcmeOrder() = default;
  std::string url;
  std::string finalize_url;
  // What is left to prove; `key_authorization` is empty when the authority asks for no proof any more.
  std::string domain;
  std::string authorization_url;
  std::string challenge_url;
  std::string key_authorization;
};

// When the authority would like a certificate to be renewed; Unix time.
struct RenewalWindow {
  int64_t start_ms = 0;
  int64_t end_ms = 0;
  int retry_after_s = 0;  // when to ask again; 0: not said
};

class AcmeClient {
 public:
  // `account_url`: what account_url() was for the same key and directory earlier; empty: begin() finds or makes the account.
  AcmeClient(AcmeOptions options, P256PrivateKey account_key, std::string account_url);
  ~AcmeClient();
  AcmeClient(const AcmeClient&) = delete;
  AcmeClient& operator=(const AcmeClient&) = delete;

  // Makes the order and says what has to be shown. There is one proof an order: of several names, all but one must be such that
  // the authority remembers their proof.
  asio::awaitable<Result<AcmeOrder>> begin(std::vector<std::string> domains, int64_t timeout_ms);
  // Lets the authority look at what is shown, has the certificate made and returns the chain in PEM. The request is that of
  // make_certificate_request() for the same names.
  asio::awaitable<Result<std::string>> finish(AcmeOrder order, std::string csr_der, int64_t timeout_ms);

  // Empty until there is one. It may become another while a call runs, when the authority has forgotten the account.
  const std::string& account_url() const;

  // Nothing where the authority has no such information, or the chain nothing that it could be asked by.
  asio::awaitable<Result<std::optional<RenewalWindow>>> renewal_window(std::string chain_pem, int64_t timeout_ms = 30'000);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// When to renew, Unix time: at the point of the window that `jitter` picks, or without one when two thirds of the certificate's
// life are over, up to a fiftieth of the life earlier; never later than at nine tenths. `jitter` is any number, but the same
// whenever this is asked about one certificate.
int64_t renewal_time_ms(const CertificateInfo& info, const std::optional<RenewalWindow>& window, uint32_t jitter);

}  // namespace pocketfleet::tunnel
