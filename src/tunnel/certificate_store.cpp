#include "tunnel/certificate_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/files.h"
#include "base/folders.h"
#include "base/json.h"
#include "base/log.h"
#include "crypto/digest.h"

namespace pocketfleet::tunnel {

namespace {

constexpr int kVersion = 1;
constexpr unsigned kMode = 0600;
constexpr size_t kMostChainBytes = 256u << 10;
constexpr size_t kMostStateBytes = 64u << 10;
constexpr size_t kMostAccounts = 100;
constexpr int64_t kFirstPauseMs = 5 * 60'000;
constexpr int64_t kMostPauseMs = 6 * 3'600'000;
constexpr int kMostFailures = 1'000;
// A later time was written by a clock that was wrong.
constexpr int64_t kMostWaitMs = 32 * int64_t{86'400'000};

std::string key_name(const P256PrivateKey& key) {
  return to_hex(sha256(key.public_key().compressed()));
}

// Nothing for a file that is not there, is damaged or is of another version.
std::optional<Json> read_state(const std::string& path) {
  const auto text = read_file(path, kMostStateBytes);
  if (!text) return std::nullopt;
  JsonLimits limits;
  limits.max_depth = 4;
  limits.max_bytes = kMostStateBytes;
  auto json = parse_json(*text, limits);
  if (!json || !json->is_object()) return std::nullopt;
  const auto version = json->find("version");
  if (version == json->end() || *version != kVersion) return std::nullopt;
  return std::optional<Json>(std::in_place, std::move(*json));
}

int64_t number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// The accounts of this key, by the URL of their authority's directory.
Json accounts_of(const std::string& path, const P256PrivateKey& key) {
  const auto state = read_state(path);
  if (!state) return Json::object();
  const auto name = state->find("key");
  const auto accounts = state->find("accounts");
  if (name == state->end() || *name != key_name(key) || accounts == state->end() || !accounts->is_object()) return Json::object();
  return *accounts;
}

}  // namespace

std::optional<CertificateInfo> usable_chain(const std::string& chain_pem, const std::string& domain, const P256PrivateKey& key,
                                            int64_t now_ms) {
  auto info = inspect_certificate(chain_pem);
  // A certificate that is not valid yet is good: our clock may be behind that of those who will look at it.
  if (!info || info->not_after_ms <= now_ms || info->public_key != key.public_key().compressed() ||
      std::find(info->dns_names.begin(), info->dns_names.end(), domain) == info->dns_names.end())
    return std::nullopt;
  return *std::move(info);
}

int64_t retry_pause_ms(int failures, uint32_t jitter) {
  int64_t pause_ms = kFirstPauseMs;
  for (int i = 1; i < failures && pause_ms < kMostPauseMs; ++i) pause_ms *= 2;
  pause_ms = std::min(pause_ms, kMostPauseMs);
  return pause_ms + static_cast<int64_t>(jitter) % (pause_ms / 4 + 1);
}

Result<std::string> CertificateStore::path(const std::string& domain, const char* ending) const {
  // The name becomes part of a path: nothing but a DNS name may.
  if (!is_dns_name(domain))
    return fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is no DNS name in lower case", domain.substr(0, 253)));
  return folder_ + "/" + domain + ending;
}

Result<P256PrivateKey> CertificateStore::account_key() const {
  PF_CHECK_OK(make_private_folder(folder_));
  const std::string path = folder_ + "/account.key";
  auto key = load_or_make_key(path);
  if (key || key.error().code != ErrorCode::kInvalidArgument) return key;
  log_warn("acme_account_key_damaged", {{"file", path}, {"reason", key.error().message}});
  std::error_code error;
  std::filesystem::rename(path, path + ".damaged", error);
  if (error) return fail(ErrorCode::kIo, fmt::format("{} is damaged and could not be moved aside: {}", path, error.message()));
  return load_or_make_key(path);
}

std::string CertificateStore::account_url(const P256PrivateKey& key, const std::string& directory_url) const {
  const Json accounts = accounts_of(folder_ + "/account.json", key);
  const auto found = accounts.find(directory_url);
  return found != accounts.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<void> CertificateStore::keep_account_url(const P256PrivateKey& key, const std::string& directory_url,
                                                const std::string& account_url) const {
  PF_CHECK_OK(make_private_folder(folder_));
  const std::string path = folder_ + "/account.json";
  Json accounts = accounts_of(path, key);
  if (accounts.size() >= kMostAccounts) accounts.clear();
  accounts[directory_url] = account_url;
  Json state = Json::object();
  state["version"] = kVersion;
  state["key"] = key_name(key);
  state["accounts"] = std::move(accounts);
  return write_file_atomic(path, dump_json(state) + "\n", kMode);
}

std::optional<std::string> CertificateStore::chain(const std::string& domain, const P256PrivateKey& key, int64_t now_ms) const {
  const auto file = path(domain, ".pem");
  if (!file) return std::nullopt;
  auto pem = read_file(*file, kMostChainBytes);
  if (!pem || !usable_chain(*pem, domain, key, now_ms)) return std::nullopt;
  return *std::move(pem);
}

Result<void> CertificateStore::keep_chain(const std::string& domain, const std::string& chain_pem) const {
  PF_TRY(const std::string file, path(domain, ".pem"));
  PF_TRY(const std::string attempt, path(domain, ".attempt.json"));
  PF_CHECK_OK(make_private_folder(folder_));
  PF_CHECK_OK(write_file_atomic(file, chain_pem, kMode));
  std::error_code ignored;
  std::filesystem::remove(attempt, ignored);
  return {};
}

int64_t CertificateStore::next_attempt_ms(const std::string& domain, int64_t now_ms) const {
  const auto file = path(domain, ".attempt.json");
  const std::optional<Json> state = file ? read_state(*file) : std::optional<Json>();
  if (!state) return 0;
  const int64_t next_ms = number_at(*state, "next_ms");
  return next_ms > now_ms && next_ms - now_ms <= kMostWaitMs ? next_ms : 0;
}

Result<int64_t> CertificateStore::note_failure(const std::string& domain, int64_t now_ms, int retry_after_s,
                                               uint32_t jitter) const {
  PF_TRY(const std::string file, path(domain, ".attempt.json"));
  PF_CHECK_OK(make_private_folder(folder_));
  const auto before = read_state(file);
  const int64_t known = before ? std::clamp<int64_t>(number_at(*before, "failures"), 0, kMostFailures) : 0;
  const int failures = static_cast<int>(known) + 1;
  const int64_t asked_ms = int64_t{1'000} * std::max(retry_after_s, 0);
  const int64_t wait_ms = std::min(std::max(retry_pause_ms(failures, jitter), asked_ms), kMostWaitMs);
  Json state = Json::object();
  state["version"] = kVersion;
  state["failures"] = failures;
  state["next_ms"] = now_ms + wait_ms;
  PF_CHECK_OK(write_file_atomic(file, dump_json(state) + "\n", kMode));
  return now_ms + wait_ms;
}

}  // namespace pocketfleet::tunnel
