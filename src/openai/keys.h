// API keys: a file with one key a line, plain or as `sha256:<64 hex digits> [name]`; empty lines and lines that begin with # are
// skipped. Only digests are kept in memory, and a caller's key is compared with all of them in constant time. Immutable once
// loaded; any thread. Errors name the file and the line, never the key.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "crypto/digest.h"

namespace pocketfleet {

class KeyStore {
 public:
  // Empty: every caller is let in.
  KeyStore() = default;
  // `source` names the text in errors. A text without any key is an error: it would open the server to everybody.
  static Result<KeyStore> parse(std::string_view text, std::string_view source);
  static Result<KeyStore> load(const std::string& path);

  bool empty() const { return digests_.empty(); }
  size_t size() const { return digests_.size(); }

  // The name of the key in an Authorization header ("key 3" when it has none), or kUnauthenticated.
  Result<std::string> check(std::optional<std::string_view> authorization) const;

 private:
  std::vector<Sha256> digests_;
  std::vector<std::string> names_;
};

// The line that stands for a key in a key file.
std::string key_file_line(std::string_view key, std::string_view name);

// Makes a key, appends its line to the file (made with mode 0600 when it is not there) and returns the key.
Result<std::string> add_key(const std::string& path, std::string_view name);

}  // namespace pocketfleet
