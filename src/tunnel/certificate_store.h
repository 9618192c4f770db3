// What has to outlive a restart to get and keep certificates, in one folder: the key of the account (account.key), the account's
// URL at each authority (account.json), the chain of each name (NAME.pem), and when an order may be tried again after one that
// failed (NAME.attempt.json). Files are written whole or not at all, for their owner alone. What is damaged, or belongs to
// another key, counts as not there: a lost key means a new account. The keys of certificates are kept elsewhere. Times are Unix
// time. Any thread; two processes do not share a folder. Errors: kInvalidArgument for names that are no DNS names, kIo.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "crypto/certificate.h"
#include "crypto/p256.h"

namespace pocketfleet::tunnel {

// What a chain says of itself when it is for this name and this key and has not expired.
std::optional<CertificateInfo> usable_chain(const std::string& chain_pem, const std::string& domain, const P256PrivateKey& key,
                                            int64_t now_ms);

class CertificateStore {
 public:
  explicit CertificateStore(std::string folder) : folder_(std::move(folder)) {}

  // Made when there is none. A file that holds no key is moved aside.
  Result<P256PrivateKey> account_key() const;
  // Empty when no account of this key is known.
  std::string account_url(const P256PrivateKey& key, const std::string& directory_url) const;
  Result<void> keep_account_url(const P256PrivateKey& key, const std::string& directory_url,
                                const std::string& account_url) const;

  // The chain if it is usable.
  std::optional<std::string> chain(const std::string& domain, const P256PrivateKey& key, int64_t now_ms) const;
  // Forgets earlier failures.
  Result<void> keep_chain(const std::string& domain, const std::string& chain_pem) const;

  // Before this time no order shall be made; 0: at once.
  int64_t next_attempt_ms(const std::string& domain, int64_t now_ms) const;
  // Returns when to try again: retry_pause_ms() from now, and not before the authority said.
  Result<int64_t> note_failure(const std::string& domain, int64_t now_ms, int retry_after_s, uint32_t jitter) const;

 private:
  Result<std::string> path(const std::string& domain, const char* ending) const;
  std::string folder_;
};

// After so many failures in a row, from 1 up: five minutes, doubling up to six hours, and by `jitter` up to a quarter more. The
// largest authority allows five in an hour for one name.
int64_t retry_pause_ms(int failures, uint32_t jitter);

}  // namespace pocketfleet::tunnel
