#include "tunnel/acme_wire.h"

#include <fmt/format.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "crypto/base64.h"
#include "crypto/digest.h"

namespace pocketfleet::tunnel {

namespace {

constexpr int kCoordinateBytes = 32;
constexpr size_t kMostWordBytes = 512;
constexpr size_t kMostTextBytes = 2'048;
constexpr size_t kMostTypeBytes = 200;
constexpr size_t kMostDetailBytes = 600;
constexpr size_t kMostSubproblems = 3;
constexpr int kMostRetryAfterS = 31 * 86'400;
constexpr std::string_view kErrorPrefix = "urn:ietf:params:acme:error:";

Result<std::string> coordinate(const P256PublicKey& key, const char* name) {
  BIGNUM* number = nullptr;
  std::string out(kCoordinateBytes, '\0');
  const bool there = EVP_PKEY_get_bn_param(key.native(), name, &number) == 1 &&
                     BN_bn2binpad(number, reinterpret_cast<unsigned char*>(out.data()), kCoordinateBytes) == kCoordinateBytes;
  BN_free(number);
  if (!there) return fail(ErrorCode::kInternal, "OpenSSL could not read the numbers of a public key");
  return to_base64url(out);
}

// The members come in the order of their names, which the thumbprint wants.
Result<Json> jwk_of(const P256PublicKey& key) {
  PF_TRY(std::string x, coordinate(key, OSSL_PKEY_PARAM_EC_PUB_X));
  PF_TRY(std::string y, coordinate(key, OSSL_PKEY_PARAM_EC_PUB_Y));
  Json out = {{"crv", "P-256"}, {"kty", "EC"}, {"x", std::move(x)}, {"y", std::move(y)}};
  return out;
}

// One line of bounded length, for messages.
std::string tidy(std::string_view text, size_t most_bytes) {
  const bool cut = text.size() > most_bytes;
  text = text.substr(0, most_bytes);
  if (cut) text.remove_suffix(incomplete_utf8_tail(text));
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, ' ');
  return cut ? out + "..." : out;
}

// The number of `count` digits at `at`; -1 where something else stands there.
int digits(std::string_view text, size_t at, size_t count) {
  if (at + count > text.size()) return -1;
  int value = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

std::optional<int64_t> unix_s(int year, int month, int day, int hour, int minute, int second) {
  if (year < 0 || month < 1 || day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
    return std::nullopt;
  const auto date = std::chrono::year(year) / month / day;
  if (!date.ok()) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return ((days * 24 + hour) * 60 + minute) * 60 + second;
}

// "Sun, 06 Nov 1994 08:49:37 GMT", the one form of a date that servers still write (RFC 9110, 5.6.7).
std::optional<int64_t> http_date_s(std::string_view text) {
  static constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                               "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  if (text.size() != 29 || text.substr(3, 2) != ", " || text.substr(25) != " GMT" || text[19] != ':' || text[22] != ':')
    return std::nullopt;
  const auto month = std::find(kMonths.begin(), kMonths.end(), text.substr(8, 3));
  if (month == kMonths.end()) return std::nullopt;
  return unix_s(digits(text, 12, 4), static_cast<int>(month - kMonths.begin()) + 1, digits(text, 5, 2), digits(text, 17, 2),
                digits(text, 20, 2), digits(text, 23, 2));
}

}  // namespace

Result<std::string> public_jwk(const P256PublicKey& key) {
  PF_TRY(const Json jwk, jwk_of(key));
  return dump_json(jwk);
}

Result<std::string> jwk_thumbprint(const P256PublicKey& key) {
  PF_TRY(const std::string jwk, public_jwk(key));
  const Sha256 digest = sha256(jwk);
  return to_base64url(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

Result<std::string> sign_jws(const P256PrivateKey& key, const JwsHeader& header, std::string_view payload) {
  Json names = {{"alg", "ES256"}, {"nonce", header.nonce}, {"url", header.url}};
  if (header.kid.empty()) {
    PF_TRY(names["jwk"], jwk_of(key.public_key()));
  } else {
    names["kid"] = header.kid;
  }
  const std::string protected_header = to_base64url(dump_json(names));
  const std::string body = to_base64url(payload);
  PF_TRY(const std::string signature, key.sign(protected_header + "." + body));
  const Json jws = {{"protected", protected_header}, {"payload", body}, {"signature", to_base64url(signature)}};
  return dump_json(jws);
}

bool is_base64url_word(std::string_view text) {
  return !text.empty() && text.size() <= kMostWordBytes && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

std::string text_at(const Json& object, std::string_view key) {
  if (!object.is_object()) return {};
  const auto found = object.find(std::string(key));
  if (found == object.end() || !found->is_string()) return {};
  const std::string& text = found->get_ref<const std::string&>();
  return text.size() <= kMostTextBytes ? text : std::string();
}

bool AcmeProblem::is(std::string_view kind) const {
  return type.starts_with(kErrorPrefix) && std::string_view(type).substr(kErrorPrefix.size()) == kind;
}

AcmeProblem problem_in(const Json& document) {
  AcmeProblem out;
  out.type = tidy(text_at(document, "type"), kMostTypeBytes);
  out.detail = tidy(text_at(document, "detail"), kMostDetailBytes);
  if (!document.is_object()) return out;
  if (const auto status = document.find("status"); status != document.end() && status->is_number_integer())
    out.status = static_cast<int>(std::clamp<int64_t>(status->get<int64_t>(), 0, 999));
  const auto parts = document.find("subproblems");
  if (parts == document.end() || !parts->is_array()) return out;
  for (size_t i = 0; i < std::min(parts->size(), kMostSubproblems); ++i) {
    const Json& part = (*parts)[i];
    const auto who = part.is_object() ? part.find("identifier") : part.end();
    const std::string name = who != part.end() ? tidy(text_at(*who, "value"), kMostTypeBytes) : std::string();
    const std::string detail = tidy(text_at(part, "detail"), kMostDetailBytes);
    if (detail.empty()) continue;
    if (!out.detail.empty()) out.detail += "; ";
    out.detail += name.empty() ? detail : name + ": " + detail;
  }
  return out;
}

AcmeProblem read_problem(int status, std::string_view body) {
  JsonLimits limits;
  limits.max_depth = 16;
  limits.max_bytes = 256u << 10;
  const auto document = parse_json(body, limits);
  AcmeProblem out = document ? problem_in(*document) : AcmeProblem();
  out.status = status;
  return out;
}

std::string describe(const AcmeProblem& problem) {
  if (problem.type.empty()) return problem.detail;
  return problem.detail.empty() ? problem.type : problem.type + ": " + problem.detail;
}

Error error_of(const AcmeProblem& problem, std::string_view doing, int retry_after_s) {
  Error error;
  error.retry_after_s = retry_after_s;
  const bool busy = problem.status == 429 || problem.status >= 500 || problem.is("rateLimited") || problem.is("serverInternal");
  const bool name_is_wrong = problem.is("rejectedIdentifier") || problem.is("unsupportedIdentifier");
  const bool refused = problem.status == 401 || problem.status == 403 || problem.is("unauthorized") ||
                       problem.is("accountDoesNotExist") || problem.is("caa") || problem.is("userActionRequired");
  error.code = busy            ? ErrorCode::kUnavailable
               : name_is_wrong ? ErrorCode::kInvalidArgument
               : refused       ? ErrorCode::kPermissionDenied
                               : ErrorCode::kProtocol;
  const std::string words = describe(problem);
  error.message = fmt::format("the certificate authority {} to {} (HTTP status {}){}{}", busy ? "is not able now" : "refused",
                              doing, problem.status, words.empty() ? "" : ": ", words);
  if (retry_after_s > 0) error.message += fmt::format("; it asks to come again in {} s", retry_after_s);
  return error;
}

int parse_retry_after(std::string_view value, int64_t now_unix_ms) {
  // More digits would not fit, and mean no time that is of interest.
  if (!value.empty() && value.size() <= 9) {
    const int seconds = digits(value, 0, value.size());
    if (seconds >= 0) return std::min(seconds, kMostRetryAfterS);
  }
  const auto until_s = http_date_s(value);
  if (!until_s) return 0;
  return static_cast<int>(std::clamp<int64_t>(*until_s - now_unix_ms / 1'000, 0, kMostRetryAfterS));
}

std::optional<int64_t> parse_timestamp_ms(std::string_view text) {
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' || (text[10] != 'T' && text[10] != 't') || text[13] != ':' ||
      text[16] != ':')
    return std::nullopt;
  const auto local_s = unix_s(digits(text, 0, 4), digits(text, 5, 2), digits(text, 8, 2), digits(text, 11, 2),
                              digits(text, 14, 2), digits(text, 17, 2));
  if (!local_s) return std::nullopt;
  std::string_view rest = text.substr(19);
  int64_t ms = 0;
  if (rest.front() == '.') {
    const size_t end = std::min(rest.find_first_not_of("0123456789", 1), rest.size());
    if (end == 1) return std::nullopt;
    for (size_t i = 1; i < 4; ++i) ms = ms * 10 + (i < end ? rest[i] - '0' : 0);
    rest.remove_prefix(end);
  }
  int64_t offset_s = 0;
  if (rest != "Z" && rest != "z") {
    if (rest.size() != 6 || (rest[0] != '+' && rest[0] != '-') || rest[3] != ':') return std::nullopt;
    const int hours = digits(rest, 1, 2);
    const int minutes = digits(rest, 4, 2);
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return std::nullopt;
    offset_s = (hours * 60 + minutes) * 60 * (rest[0] == '-' ? -1 : 1);
  }
  return (*local_s - offset_s) * 1'000 + ms;
}

std::string renewal_id(const CertificateInfo& info) {
  if (info.authority_key_id.empty() || info.serial.empty()) return {};
  return to_base64url(info.authority_key_id) + "." + to_base64url(info.serial);
}

}  // namespace pocketfleet::tunnel
