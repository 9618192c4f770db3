#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "cli/manifest_file.h"
#include "cli/model_fetch.h"
#include "cli/options.h"
#include "cli/serve_rules.h"
#include "cli/server_setup.h"
#include "cli/tuned.h"
#include "net/http_server.h"
#include "openai/api.h"

namespace pocketfleet::cli {

namespace asio = boost::asio;

namespace {

constexpr int64_t kDrainMs = 30'000;

// Everything a running server consists of. Members are destroyed from the last to the first, so the loop and what hangs on it go
// before the engine does.
struct Service {
  ProfileSet profiles;
  std::vector<GoldenPrompt> golden;  // that the model must pass before it is served
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Api> api;
  asio::io_context context;
  asio::signal_set signals{context};
  std::unique_ptr<net::HttpServer> server;
  int exit_code = 0;
};

// Ends the server when the model cannot be loaded, or the engine fails later.
asio::awaitable<void> watch_engine(Service& service) {
  asio::steady_timer timer(service.context);
  bool warmed = false;
  for (;;) {
    const EngineStatus status = service.engine->status();
    if (status.state == EngineState::kStopped) co_return;
    if (status.state == EngineState::kFailed) {
      service.exit_code = fail_command("serve", status.error);
      service.context.stop();
      co_return;
    }
    // Once it runs, only the running engine can fail: that is looked for less often.
    const bool ready = status.state == EngineState::kReady;
    if (ready && !std::exchange(warmed, true)) asio::co_spawn(service.context, service.api->warm_up(), [](std::exception_ptr) {});
    timer.expires_after(std::chrono::milliseconds(ready ? 1000 : 50));
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

// The first signal lets running requests end; the second ends them.
asio::awaitable<void> watch_signals(Service& service) {
  boost::system::error_code ignored;
  co_await service.signals.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  log_info("draining", {{"connections", static_cast<unsigned long>(service.server->connections())}});
  asio::co_spawn(
      service.context,
      [&service]() -> asio::awaitable<void> {
        co_await service.server->drain(kDrainMs);
        service.context.stop();
      },
      [](std::exception_ptr) {});
  co_await service.signals.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  service.context.stop();
}

Result<std::string> listen(const ServeOptions& options, net::HttpServer& server) {
  if (!options.unix_socket.empty()) {
    PF_CHECK_OK(server.listen_unix(options.unix_socket));
    return "unix:" + options.unix_socket;
  }
  PF_TRY(const uint16_t port, server.listen_tcp(options.host, static_cast<uint16_t>(options.port)));
  return url_of(options.host, port);
}

Result<void> start(const ServeOptions& options, Service& service) {
  raise_file_limit();
  ApiOptions api;
  PF_TRY(api.keys, load_keys(options));
  PF_TRY(api.cors, CorsPolicy::of(options.cors_origins));
  PF_CHECK_OK(load_profiles(options, service.profiles));
  api.model_name = options.model_name.empty() ? model_name_of(options.model_path) : options.model_name;
  api.thinking = options.thinking;
  api.warm_up = true;
  api.created = SystemClock::instance().unix_ms() / 1000;

  PF_CHECK_OK(check_model_file(options));
  PF_TRY(service.engine, make_engine(options));
  if (!service.golden.empty()) service.engine = make_checked_engine(std::move(service.engine), std::move(service.golden));
  service.api = std::make_unique<Api>(*service.engine, service.profiles, std::move(api));
  service.server = std::make_unique<net::HttpServer>(service.context.get_executor(), net::ServerOptions{}, service.api->handler(),
                                                     Api::server_error_body);
  // Caught from here on: whoever reads the line below may send one at once.
  service.signals.add(SIGINT);
  service.signals.add(SIGTERM);
  PF_TRY(const std::string address, listen(options, *service.server));
  // Read by scripts that took a free port: one line, at once.
  std::printf("listening on %s\n", address.c_str());
  std::fflush(stdout);
  return {};
}

// From what was asked for to a file on this machine.
Result<void> find_model(ServeOptions& options, Service& service) {
  FetchSettings fetch;
  fetch.folder = options.model_cache;
  fetch.quiet = options.quiet;
  if (is_manifest(options.model_path)) {
    PF_TRY(const Manifest manifest, load_manifest(options.model_path, options.manifest_key, fetch));
    service.golden = golden_prompts(manifest);
    if (options.model_name.empty()) options.model_name = manifest.name;
    PF_TRY(options.model_path, local_model(manifest, options.model_path, fetch));
  } else if (!options.manifest_key.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--manifest-key is for a manifest (.json), and " + options.model_path + " is none");
  } else {
    PF_TRY(options.model_path, local_model(options.model_path, fetch));
  }
  return {};
}

}  // namespace

int run_serve(const ServeOptions& asked) {
  set_json_logs(asked.json_logs);
  if (asked.quiet) set_log_level(LogLevel::kWarn);

  ServeOptions options = asked;
  Service service;
  if (options.fake.empty()) {
    if (const auto found = find_model(options, service); !found) return fail_command("serve", found.error());
  }
  if (const auto settled = settle(options); !settled) return fail_command("serve", settled.error());
  if (options.fake.empty()) {
    const auto context = choose_context(options);
    if (!context) return fail_command("serve", context.error());
    options.context_tokens = *context;
  }
  if (const auto started = start(options, service); !started) return fail_command("serve", started.error());
  const auto ignore = [](std::exception_ptr) {};
  asio::co_spawn(service.context, watch_engine(service), ignore);
  asio::co_spawn(service.context, watch_signals(service), ignore);

  // The engine has the cores; two threads of ours pass bytes on.
  std::vector<std::thread> threads;
  threads.emplace_back([&service] { service.context.run(); });
  service.context.run();
  for (std::thread& thread : threads) thread.join();
  service.engine->stop();
  log_info("stopped");
  return service.exit_code;
}

}  // namespace pocketfleet::cli
