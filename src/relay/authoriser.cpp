#include "relay/authoriser.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "crypto/base64.h"
#include "crypto/digest.h"
#include "net/http_client.h"
#include "net/url.h"
#include "relay/txt_lookup.h"
#include "tunnel/identity.h"

namespace pocketfleet::relay {

namespace {

constexpr size_t kMostAnswerBytes = 16u << 10;
constexpr size_t kMostSourceBytes = 1u << 10;
constexpr size_t kMostReasonBytes = 200;
constexpr size_t kLookupThreads = 2;

std::string hex(const std::string& bytes) {
  return to_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

std::string describe(const AgentClaim& claim) {
  return dump_json({{"domain", claim.domain},
                    {"identity_key", hex(claim.identity_key)},
                    {"agent_key", hex(claim.agent_key)},
                    {"extension", to_base64(claim.extension)},
                    {"peer", claim.peer}});
}

tl::unexpected<Error> unclear(const std::string& what) {
  return fail(ErrorCode::kUnavailable, "the authorisation service " + what);
}

class Authoriser {
 public:
  explicit Authoriser(AuthoriserOptions options) : options_(std::move(options)), lookups_(kLookupThreads) {}

  asio::awaitable<Result<void>> check(AgentClaim claim) {
    // Of its own: a client belongs to one executor, and claims come on several.
    net::ClientOptions client_options;
    client_options.max_body_bytes = kMostAnswerBytes;
    net::HttpClient client(client_options);
    net::ClientRequest request("POST", options_.url);
    request.headers.add("content-type", "application/json");
    request.body = describe(claim);
    request.total_timeout_ms = options_.timeout_ms;
    const auto answer = co_await client.request(std::move(request));
    if (!answer) co_return unclear("cannot be asked: " + answer.error().message);
    if (answer->status == 403) co_return refused(answer->body);
    if (answer->status != 200) co_return unclear("answered with status " + std::to_string(answer->status));
    PF_CO_TRY(const auto source, source_in(answer->body));
    if (!source) co_return Result<void>();
    const std::string host = claim.domain.substr(claim.domain.find('.') + 1);
    auto looking = look_up("_acu." + host, options_.nameserver);
    const auto records = co_await asio::co_spawn(lookups_, std::move(looking), asio::use_awaitable);
    if (!records) co_return fail(records.error());
    if (!tunnel::txt_authorises(*records, *source, host))
      co_return fail(ErrorCode::kPermissionDenied, "unauthorized: deployment source not authorized by TXT");
    co_return Result<void>();
  }

 private:
  // Blocks its thread, so it runs on one of `lookups_`.
  static asio::awaitable<Result<std::vector<std::string>>> look_up(std::string name, std::string server) {
    co_return lookup_txt(name, server);
  }

  static tl::unexpected<Error> refused(const std::string& body) {
    std::string reason = "unauthorized: auth handler rejected";
    const auto json = parse_json(body);
    if (json && json->is_object() && json->contains("reason") && (*json)["reason"].is_string())
      reason += ": " + (*json)["reason"].get<std::string>().substr(0, kMostReasonBytes);
    return fail(ErrorCode::kPermissionDenied, reason);
  }

  // {"source": "hexadecimal"} in an answer; an empty body or object names none.
  static Result<std::optional<std::string>> source_in(const std::string& body) {
    if (body.empty()) return std::optional<std::string>();
    const auto json = parse_json(body);
    if (!json || !json->is_object()) return unclear("answered with something that is no JSON object");
    if (!json->contains("source")) return std::optional<std::string>();
    const Json& source = (*json)["source"];
    const std::string text = source.is_string() ? source.get<std::string>() : std::string();
    const bool good = !text.empty() && text.size() % 2 == 0 && text.size() <= 2 * kMostSourceBytes &&
                      text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!good) return unclear("names a source that is no hexadecimal text");
    std::string bytes;
    for (size_t i = 0; i < text.size(); i += 2) bytes.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
    return std::optional<std::string>(std::move(bytes));
  }

  const AuthoriserOptions options_;
  asio::thread_pool lookups_;
};

}  // namespace

Result<std::function<asio::awaitable<Result<void>>(AgentClaim claim)>> make_authoriser(AuthoriserOptions options) {
  PF_TRY(const net::Url checked, net::parse_url(options.url));
  auto authoriser = std::make_shared<Authoriser>(std::move(options));
  return std::function<asio::awaitable<Result<void>>(AgentClaim)>(
      [authoriser](AgentClaim claim) { return authoriser->check(std::move(claim)); });
}

}  // namespace pocketfleet::relay
