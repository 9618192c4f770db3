// The OpenAI API over an Engine: routes, keys, CORS, request ids, one log line and metrics for each request. The Api must outlive
// the server that runs its handler; the engine and the profiles must outlive the Api. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "net/http_server.h"
#include "openai/cors.h"
#include "openai/keys.h"
#include "openai/profile_prompt.h"

namespace pocketfleet {

struct ApiOptions {
  std::string model_name;                  // what /v1/models lists
  std::vector<std::string> model_aliases;  // also accepted in requests
  KeyStore keys;
  CorsPolicy cors;
  bool thinking = true;               // when a request does not say
  int64_t ping_interval_ms = 15'000;  // comment lines on a stream that has nothing to say
  int64_t created = 0;                // unix seconds, for /v1/models
  bool warm_up = false;               // warm_up() will be called; /health waits for it
};

class Api {
 public:
  Api(Engine& engine, ProfileSet& profiles, ApiOptions options, const Clock& clock = SystemClock::instance());
  ~Api();
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  net::HttpHandler handler();
  // Reads what all requests of a profile share; to be called once, when the engine is ready.
  boost::asio::awaitable<void> warm_up();
  // For errors that the HTTP server finds by itself.
  static std::string server_error_body(int status, std::string_view message);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pocketfleet
