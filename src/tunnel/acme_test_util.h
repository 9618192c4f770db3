// For tests only: a certificate authority that speaks ACME (RFC 8555) over plain HTTP on loopback, on threads of its own.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "crypto/base64.h"
#include "crypto/certificate.h"
#include "crypto/certificate_test_util.h"
#include "crypto/digest.h"
#include "net/net_test_util.h"

namespace pocketfleet::tunnel {

inline constexpr const char* kDomain = "0123456789abcdef.example.org";

inline constexpr const char* kRfcExampleId = "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE";

struct Reply {
  net::HttpResponse response;
  bool cut = false;  // the connection ends in the middle of it
};

inline Reply reply_json(int status, const Json& body) {
  Reply reply;
  reply.response.status = status;
  reply.response.headers.add("content-type", status < 400 ? "application/json" : "application/problem+json");
  reply.response.body = dump_json(body);
  return reply;
}

inline Reply reply_problem(int status, const std::string& kind, const std::string& detail) {
  return reply_json(status, {{"type", "urn:ietf:params:acme:error:" + kind}, {"detail", detail}, {"status", status}});
}

inline Reply reply_text(const std::string& body) {
  Reply reply;
  reply.response.body = body;
  return reply;
}

inline Reply cut_reply() {
  Reply reply;
  reply.cut = true;
  return reply;
}

// A certificate authority over HTTP on loopback. It reads each request as strictly as a real one and does what a test tells it
// to.
class FakeAuthority {
 public:
  struct State {
    // What the test asks for, by path.
    std::map<std::string, int> refused_nonces;
    std::map<std::string, std::deque<Reply>> canned;
    bool refusals_bring_nonces = true;
    int authorization_looks = 0;  // so many find it pending
    int order_looks = 0;          // so many find it processing
    int not_ready = 0;            // so many times it does not take the request
    std::string proof_fault;
    bool proven = false;
    std::string challenge_type = "tls-alpn-01";
    Json meta = Json::object();
    std::string new_order_url;
    bool tells_renewal = false;
    std::string chain;
    // What it has seen.
    std::map<std::string, int> calls;
    std::map<std::string, std::vector<std::string>> payloads;  // those whose signature was good, also where the nonce was not
    std::map<std::string, Json> accounts;                      // keys, by URL
    std::vector<std::string> faults;
    std::set<std::string> nonces;
    std::string authorization_status = "pending";
    std::string order_status = "pending";
    bool challenged = false;
    int orders = 0;
    int challenges = 0;
    int certificates = 0;
    int made_accounts = 0;
    int made_nonces = 0;
  };

  FakeAuthority() : server_([this](net::HttpRequest& request, net::ResponseWriter& writer) { return answer(request, writer); }) {
    state_.chain = *make_challenge_certificate(*P256PrivateKey::generate(), kDomain, sha256("x")) + kRfcExample;
  }

  template <typename F>
  auto with(F f) {
    const std::lock_guard lock(mutex_);
    return f(state_);
  }
  std::string url(const std::string& path) const { return fmt::format("http://127.0.0.1:{}{}", server_.port(), path); }

 private:
  asio::awaitable<void> answer(net::HttpRequest& request, net::ResponseWriter& writer) {
    Reply reply = respond(request);
    if (reply.cut) {
      co_await writer.begin(reply.response.status, reply.response.headers);
      co_return;
    }
    co_await writer.send(std::move(reply.response));
  }

  Reply respond(const net::HttpRequest& request) {
    const std::lock_guard lock(mutex_);
    ++state_.calls[request.path];
    if (request.path == "/directory" || request.path.starts_with("/renewal/")) {
      if (auto canned = take_canned(request.path)) return *canned;
      if (request.path == "/directory") return reply_json(200, directory());
      return reply_json(200, {{"suggestedWindow", {{"start", "2026-01-02T00:00:00Z"}, {"end", "2026-01-03T00:00:00Z"}}}});
    }
    bool with_nonce = true;
    Reply reply = request.path == "/nonce" ? Reply() : respond_signed(request, with_nonce);
    if (with_nonce) {
      const std::string nonce = fmt::format("nonce-{}", ++state_.made_nonces);
      state_.nonces.insert(nonce);
      reply.response.headers.add("replay-nonce", nonce);
    }
    return reply;
  }

  std::optional<Reply> take_canned(const std::string& path) {
    auto& waiting = state_.canned[path];
    if (waiting.empty()) return std::nullopt;
    Reply reply = waiting.front();
    waiting.pop_front();
    return reply;
  }

  Json directory() const {
    Json out = {{"newNonce", url("/nonce")}, {"newAccount", url("/account")}, {"newOrder", url("/order")}, {"meta", state_.meta}};
    if (!state_.new_order_url.empty()) out["newOrder"] = state_.new_order_url;
    if (state_.tells_renewal) out["renewalInfo"] = url("/renewal");
    return out;
  }

  Reply fault(const std::string& what) {
    state_.faults.push_back(what);
    return reply_problem(400, "malformed", what);
  }

  static std::optional<P256PublicKey> key_of(const Json& jwk) {
    const auto x = from_base64url(jwk.value("x", ""));
    const auto y = from_base64url(jwk.value("y", ""));
    if (jwk.value("kty", "") != "EC" || jwk.value("crv", "") != "P-256" || !x || !y || x->size() != 32 || y->size() != 32)
      return std::nullopt;
    auto key = P256PublicKey::from_compressed(std::string(1, static_cast<char>(2 + (y->back() & 1))) + *x);
    return key ? std::optional<P256PublicKey>(*key) : std::nullopt;
  }

  Reply respond_signed(const net::HttpRequest& request, bool& with_nonce) {
    const std::string& path = request.path;
    if (request.method != "POST" || request.headers.get("content-type") != "application/jose+json" ||
        !request.headers.contains("user-agent"))
      return fault("not a JOSE request: " + path);
    const auto jws = parse_json(request.body);
    if (!jws || !jws->is_object() || jws->size() != 3) return fault("not a flattened JWS: " + path);
    const std::string protected_text = jws->value("protected", "");
    const std::string payload_text = jws->value("payload", "");
    const auto protected_json = from_base64url(protected_text);
    const auto payload = from_base64url(payload_text);
    const auto signature = from_base64url(jws->value("signature", ""));
    if (!protected_json || !payload || !signature) return fault("not base64url: " + path);
    const auto header = parse_json(*protected_json);
    if (!header || !header->is_object()) return fault("the protected header: " + path);
    if (header->value("alg", "") != "ES256" || header->value("url", "") != url(request.target))
      return fault("alg or url: " + path);
    const bool has_jwk = header->contains("jwk");
    if (has_jwk == header->contains("kid") || has_jwk != (path == "/account")) return fault("jwk or kid: " + path);
    const std::string kid = header->value("kid", "");
    if (!has_jwk && !state_.accounts.contains(kid)) return reply_problem(400, "accountDoesNotExist", "no such account");
    const auto key = key_of(has_jwk ? (*header)["jwk"] : state_.accounts[kid]);
    if (!key || !key->verify(protected_text + "." + payload_text, *signature)) return fault("the signature: " + path);
    state_.payloads[path].push_back(*payload);
    const bool fresh = state_.nonces.erase(header->value("nonce", "")) == 1;
    if (!fresh || state_.refused_nonces[path] > 0) {
      if (fresh) --state_.refused_nonces[path];
      with_nonce = state_.refusals_bring_nonces;
      return reply_problem(400, "badNonce", "the nonce is not one of ours");
    }
    if (auto canned = take_canned(path)) return *canned;
    if (path == "/account") return account((*header)["jwk"]);
    if (path == "/order") return new_order(*payload);
    if (path == "/challenge/1") return challenge(*payload);
    if (path == "/finalize/1") return finalize();
    if (!payload->empty()) return fault("a payload where none belongs: " + path);
    if (path == "/order/1") return order();
    if (path == "/authz/1") return authorization();
    if (path == "/cert/1") {
      ++state_.certificates;
      return reply_text(state_.chain);
    }
    return reply_problem(404, "malformed", "nothing is there");
  }

  Reply account(const Json& jwk) {
    Reply reply = reply_json(200, {{"status", "valid"}});
    for (const auto& [known, key] : state_.accounts) {
      if (key != jwk) continue;
      reply.response.headers.add("location", known);
      return reply;
    }
    const std::string where = url(fmt::format("/account/{}", ++state_.made_accounts));
    state_.accounts[where] = jwk;
    reply.response.status = 201;
    reply.response.headers.add("location", where);
    return reply;
  }

  Reply new_order(const std::string& payload) {
    const auto json = parse_json(payload);
    const Json expected = {{"identifiers", Json::array({{{"type", "dns"}, {"value", kDomain}}})}};
    if (!json || *json != expected) return fault("the order: " + payload);
    ++state_.orders;
    state_.authorization_status = state_.proven ? "valid" : "pending";
    state_.order_status = state_.proven ? "ready" : "pending";
    Reply reply = reply_json(201, order_json());
    reply.response.headers.add("location", url("/order/1"));
    return reply;
  }

  Json order_json() const {
    Json out = {
        {"status", state_.order_status}, {"authorizations", Json::array({url("/authz/1")})}, {"finalize", url("/finalize/1")}};
    if (state_.order_status == "valid") out["certificate"] = url("/cert/1");
    if (state_.order_status == "invalid") out["error"] = {{"type", "urn:x"}, {"detail", "the order has gone bad"}};
    return out;
  }

  Reply order() {
    if (state_.order_status == "processing" && state_.order_looks-- <= 0) state_.order_status = "valid";
    return reply_json(200, order_json());
  }

  Json challenge_json() const {
    Json out = {{"type", state_.challenge_type}, {"url", url("/challenge/1")}, {"token", "the-token_1"}, {"status", "pending"}};
    if (state_.authorization_status == "invalid") {
      out["status"] = "invalid";
      out["error"] = {{"type", "urn:ietf:params:acme:error:tls"}, {"detail", state_.proof_fault}};
    }
    return out;
  }

  Reply authorization() {
    if (state_.challenged && state_.authorization_status == "pending" && state_.authorization_looks-- <= 0) {
      state_.authorization_status = state_.proof_fault.empty() ? "valid" : "invalid";
      state_.order_status = state_.proof_fault.empty() ? "ready" : "invalid";
    }
    const Json other = {{"type", "http-01"}, {"url", url("/challenge/2")}, {"token", "another"}, {"status", "pending"}};
    return reply_json(200, {{"status", state_.authorization_status},
                            {"identifier", {{"type", "dns"}, {"value", kDomain}}},
                            {"challenges", Json::array({other, challenge_json()})}});
  }

  Reply challenge(const std::string& payload) {
    if (payload != "{}") return fault("the answer to the challenge: " + payload);
    ++state_.challenges;
    state_.challenged = true;
    return reply_json(200, challenge_json());
  }

  Reply finalize() {
    if (state_.order_status != "ready" || state_.not_ready > 0) {
      --state_.not_ready;
      return reply_problem(403, "orderNotReady", "not yet");
    }
    state_.order_status = state_.order_looks > 0 ? "processing" : "valid";
    return reply_json(200, order_json());
  }

  std::mutex mutex_;
  State state_;
  net::TestServer server_;
};

}  // namespace pocketfleet::tunnel
