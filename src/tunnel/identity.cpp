#include "tunnel/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "crypto/base64.h"
#include "crypto/digest.h"
#include "crypto/recoverable.h"

namespace pocketfleet::tunnel {

namespace {

constexpr size_t kIdBytes = kIdLetters / 2;
constexpr size_t kMostDomainBytes = 253;
constexpr size_t kMostLabelBytes = 63;
constexpr std::string_view kProofPurpose = "pocketfleet tunnel proof 1";
constexpr size_t kOpenSourceBytes = 64;

bool is_id(std::string_view text) {
  return text.size() == kIdLetters && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_name(std::string_view text) {
  if (text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_.") != std::string_view::npos) return false;
  while (true) {
    const size_t dot = text.find('.');
    const std::string_view label = text.substr(0, dot);
    if (label.empty() || label.size() > kMostLabelBytes) return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

// The first part says what is signed, so that no signature for another purpose is taken for a proof. No domain has a zero in it:
// the parts cannot run into each other.
Result<Sha256> bound_digest(std::string_view domain, std::string_view binding) {
  if (binding.size() != kBindingBytes)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the binding of a connection has {} bytes, not {}", kBindingBytes, binding.size()));
  std::string bytes(kProofPurpose);
  bytes.push_back('\0');
  bytes.append(domain);
  bytes.push_back('\0');
  bytes.append(binding);
  return sha256(bytes);
}

}  // namespace

std::string client_id(const P256PublicKey& key) {
  const Sha256 digest = sha256(key.compressed());
  return to_hex(std::span(digest).first(kIdBytes));
}

Result<std::pair<std::string, std::string>> split_domain(std::string_view domain) {
  const size_t dot = domain.find('.');
  if (domain.size() > kMostDomainBytes || dot == std::string_view::npos || !is_id(domain.substr(0, dot)) ||
      !is_name(domain.substr(dot + 1)))
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("this is no domain of an agent: {} hexadecimal digits, a dot and a suffix, all in lower case", kIdLetters));
  return std::pair(std::string(domain.substr(0, dot)), std::string(domain.substr(dot + 1)));
}

bool suffix_allowed(std::string_view domain, const std::vector<std::string>& suffixes) {
  const auto parts = split_domain(domain);
  if (!parts) return false;
  return suffixes.empty() || std::find(suffixes.begin(), suffixes.end(), parts->second) != suffixes.end();
}

Result<std::string> prove_domain(const P256PrivateKey& key, std::string_view domain) {
  PF_CHECK_OK(split_domain(domain));
  return sign_recoverable(key, sha256(domain));
}

Result<std::string> prove_binding(const P256PrivateKey& key, std::string_view domain, std::string_view binding) {
  PF_CHECK_OK(split_domain(domain));
  PF_TRY(const Sha256 digest, bound_digest(domain, binding));
  return sign_recoverable(key, digest);
}

Result<P256PublicKey> check_proof(std::string_view domain, std::string_view proof, std::optional<std::string_view> binding) {
  PF_TRY(const auto parts, split_domain(domain));
  Sha256 digest{};
  if (binding) {
    PF_TRY(digest, bound_digest(domain, *binding));
  } else {
    digest = sha256(domain);
  }
  auto key = recover_key(digest, proof);
  if (!key && key.error().code == ErrorCode::kInvalidArgument)
    return fail(ErrorCode::kPermissionDenied, fmt::format("wrong signature for {}: {}", domain, key.error().message));
  if (!key) return fail(std::move(key).error());
  // A signature of something else recovers to some key too, which then has another id.
  const std::string id = client_id(*key);
  if (id != parts.first)
    return fail(ErrorCode::kPermissionDenied,
                fmt::format("wrong id: the proof for {} is of the key of {}, or of something else: another domain, or another {}",
                            domain, id, binding ? "connection" : "kind of proof"));
  return key;
}

std::string txt_value(std::string_view source, std::string_view host) {
  const Sha256 digest = sha256(std::string(source).append(host));
  return to_base64({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::string txt_open_value(std::string_view host) {
  return txt_value(std::string(kOpenSourceBytes, '\0'), host);
}

bool txt_authorises(const std::vector<std::string>& txt_strings, std::string_view source, std::string_view host) {
  if (txt_strings.size() == 1 && txt_strings.front() == txt_open_value(host)) return true;
  return std::find(txt_strings.begin(), txt_strings.end(), txt_value(source, host)) != txt_strings.end();
}

}  // namespace pocketfleet::tunnel
