#include "tunnel/acme_objects.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "crypto/base64.h"
#include "crypto/certificate.h"
#include "tunnel/acme_wire.h"

namespace pocketfleet::tunnel {

namespace {

constexpr size_t kMostDepth = 16;
constexpr size_t kMostStatusBytes = 40;
constexpr std::string_view kPemBegin = "-----BEGIN ";

Result<Json> read_object(std::string_view body, std::string_view what) {
  JsonLimits limits;
  limits.max_depth = kMostDepth;
  limits.max_bytes = kMostAcmeBytes;
  auto json = parse_json(body, limits);
  if (!json) return unclear_answer(fmt::format("{}: {}", what, json.error().message));
  if (!json->is_object()) return unclear_answer(fmt::format("{} is no JSON object", what));
  return json;
}

std::string fault_in(const Json& object) {
  const auto error = object.find("error");
  return error == object.end() ? std::string() : describe(problem_in(*error));
}

}  // namespace

tl::unexpected<Error> unclear_answer(std::string_view what) {
  return fail(ErrorCode::kProtocol, fmt::format("the certificate authority's answer is not what ACME says: {}", what));
}

Result<AcmeDirectory> read_directory(std::string_view body) {
  PF_TRY(const Json json, read_object(body, "the directory"));
  AcmeDirectory out;
  out.new_nonce = text_at(json, "newNonce");
  out.new_account = text_at(json, "newAccount");
  out.new_order = text_at(json, "newOrder");
  out.renewal_info = text_at(json, "renewalInfo");
  if (out.new_nonce.empty() || out.new_account.empty() || out.new_order.empty())
    return unclear_answer("the directory lacks newNonce, newAccount or newOrder");
  const auto meta = json.find("meta");
  if (meta == json.end() || !meta->is_object()) return out;
  out.terms = text_at(*meta, "termsOfService");
  const auto binding = meta->find("externalAccountRequired");
  out.needs_binding = binding != meta->end() && binding->is_boolean() && binding->get<bool>();
  return out;
}

Result<AcmeOrderState> read_order(std::string_view body) {
  PF_TRY(const Json json, read_object(body, "the order"));
  AcmeOrderState out;
  out.status = text_at(json, "status");
  out.finalize_url = text_at(json, "finalize");
  out.certificate_url = text_at(json, "certificate");
  out.fault = fault_in(json);
  if (const auto list = json.find("authorizations"); list != json.end() && list->is_array()) {
    for (const Json& url : *list) {
      if (!url.is_string() || out.authorizations.size() == kMostAcmeNames)
        return unclear_answer("the order's list of authorizations");
      out.authorizations.push_back(url.get<std::string>());
    }
  }
  for (const char* known : {"pending", "ready", "processing", "valid", "invalid"}) {
    if (out.status == known) return out;
  }
  return unclear_answer(fmt::format("the order has the status \"{}\"", out.status.substr(0, kMostStatusBytes)));
}

Result<AcmeAuthorization> read_authorization(std::string_view body) {
  PF_TRY(const Json json, read_object(body, "the authorization"));
  AcmeAuthorization out;
  out.status = text_at(json, "status").substr(0, kMostStatusBytes);
  if (const auto identifier = json.find("identifier"); identifier != json.end()) out.domain = text_at(*identifier, "value");
  if (out.status.empty() || out.domain.empty()) return unclear_answer("the authorization has no status or no identifier");
  const auto list = json.find("challenges");
  if (list == json.end() || !list->is_array()) return out;
  for (const Json& challenge : *list) {
    if (text_at(challenge, "type") != "tls-alpn-01") continue;
    out.challenge_url = text_at(challenge, "url");
    out.token = text_at(challenge, "token");
    out.fault = fault_in(challenge);
    if (out.challenge_url.empty() || !is_base64url_word(out.token))
      return unclear_answer("the tls-alpn-01 challenge has no URL or no token");
    break;
  }
  return out;
}

Result<RenewalWindow> read_renewal_window(std::string_view body) {
  PF_TRY(const Json json, read_object(body, "the renewal information"));
  const auto window = json.find("suggestedWindow");
  if (window == json.end()) return unclear_answer("the renewal information has no suggestedWindow");
  const auto start_ms = parse_timestamp_ms(text_at(*window, "start"));
  const auto end_ms = parse_timestamp_ms(text_at(*window, "end"));
  if (!start_ms || !end_ms || *end_ms < *start_ms)
    return unclear_answer("the suggestedWindow does not have a start and an end after it");
  RenewalWindow out;
  out.start_ms = *start_ms;
  out.end_ms = *end_ms;
  return out;
}

Result<void> check_chain(std::string_view pem) {
  if (const auto info = inspect_certificate(pem); !info) return unclear_answer("the chain: " + info.error().message);
  for (size_t at = pem.find(kPemBegin); at != std::string_view::npos; at = pem.find(kPemBegin, at + 1)) {
    if (!pem.substr(at + kPemBegin.size()).starts_with("CERTIFICATE-----"))
      return unclear_answer("the chain holds something other than certificates");
  }
  return {};
}

std::string account_payload(const std::string& contact, bool agree) {
  Json payload = Json::object();
  if (agree) payload["termsOfServiceAgreed"] = true;
  if (!contact.empty()) {
    const bool is_url = contact.find(':') != std::string::npos;
    payload["contact"] = Json::array();
    payload["contact"].push_back(is_url ? contact : "mailto:" + contact);
  }
  return dump_json(payload);
}

std::string order_payload(const std::vector<std::string>& domains) {
  Json payload = Json::object();
  payload["identifiers"] = Json::array();
  for (const std::string& domain : domains) {
    Json identifier = Json::object();
    identifier["type"] = "dns";
    identifier["value"] = domain;
    payload["identifiers"].push_back(std::move(identifier));
  }
  return dump_json(payload);
}

std::string finalize_payload(std::string_view csr_der) {
  Json payload = Json::object();
  payload["csr"] = to_base64url(csr_der);
  return dump_json(payload);
}

}  // namespace pocketfleet::tunnel
