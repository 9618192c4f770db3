#include <signal.h>

#include <cstdio>
#include <fstream>

#include "base/folders.h"
#include "base/log.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "relay/authoriser.h"
#include "relay/relay.h"
#include "tunnel/agent.h"

namespace pocketfleet::cli {

namespace {

Result<std::vector<std::string>> all_suffixes(const RelayCommandOptions& options) {
  std::vector<std::string> out = options.suffixes;
  if (options.suffix_file.empty()) return out;
  std::ifstream file(options.suffix_file);
  if (!file) return fail(ErrorCode::kIo, "cannot read the suffixes in " + options.suffix_file);
  for (std::string line; std::getline(file, line);) {
    line.erase(0, line.find_first_not_of(" \t"));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty() && line.front() != '#') out.push_back(line);
  }
  return out;
}

Result<void> choose_certificate(const RelayCommandOptions& options, relay::RelayOptions& out) {
  const bool from_files = !options.certificate.empty() || !options.key.empty();
  if (from_files != options.acme_name.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                from_files ? "the certificate comes from --certificate and --key, or is ordered for --acme-name; say only one"
                           : "say where the certificate that agents see comes from: --certificate and --key, or --acme-name with "
                             "the relay's host name to order one");
  }
  if (from_files && (options.certificate.empty() || options.key.empty()))
    return fail(ErrorCode::kInvalidArgument, "--certificate and --key go together, and one of them is missing");
  out.certificate_chain_file = options.certificate;
  out.private_key_file = options.key;
  if (from_files) return {};
  out.name = options.acme_name;
  out.acme.directory_url = options.acme_directory;
  out.acme.ca_file = options.acme_ca;
  out.acme.contact = options.acme_contact;
  out.acme.agree = options.agree;
  out.state_folder = options.state;
  if (out.state_folder.empty()) {
    PF_TRY(out.state_folder, state_folder("relay"));
  }
  return {};
}

Result<relay::RelayOptions> relay_options(const RelayCommandOptions& options) {
  relay::RelayOptions out;
  out.host = options.host;
  out.public_port = static_cast<uint16_t>(options.public_port);
  out.agent_port = static_cast<uint16_t>(options.agent_port);
  PF_TRY(out.suffixes, all_suffixes(options));
  if (out.suffixes.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "say which domain addresses end with, with --suffix: a relay that takes any carries everybody's traffic");
  }
  if (options.admin != "off") {
    const size_t colon = options.admin.rfind(':');
    const std::string port = colon == std::string::npos ? "" : options.admin.substr(colon + 1);
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) > 65535)
      return fail(ErrorCode::kInvalidArgument, "--admin takes HOST:PORT or off, and \"" + options.admin + "\" is neither");
    out.admin_host = options.admin.substr(0, colon);
    out.admin_port = std::stoi(port);
  }
  PF_CHECK_OK(choose_certificate(options, out));
  out.accept_legacy = options.accept == "legacy";
  out.quic = options.quic;
  out.proxy_protocol = options.proxy_protocol;
  if (!options.authorise.empty()) {
    relay::AuthoriserOptions authorise;
    authorise.url = options.authorise;
    authorise.nameserver = options.nameserver;
    PF_TRY(out.authorise, relay::make_authoriser(std::move(authorise)));
  }
  out.workers = static_cast<size_t>(options.workers);
  out.most_users = static_cast<size_t>(options.most_users);
  for (relay::SourceLimits* limits : {&out.user_sources, &out.agent_sources}) {
    limits->most_open = static_cast<size_t>(options.most_per_source);
    limits->new_per_s = options.new_per_source_s;
    limits->most_at_once = 4 * options.new_per_source_s;
  }
  return out;
}

}  // namespace

int run_relay(const RelayCommandOptions& asked) {
  set_json_logs(asked.json_logs);
  if (asked.quiet) set_log_level(LogLevel::kWarn);
  raise_file_limit();
  // Blocked before any thread is made, so that they all leave them to this one.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  auto options = relay_options(asked);
  if (!options) return fail_command("relay", options.error());
  relay::Relay relay(std::move(*options));
  if (const auto started = relay.start(); !started) return fail_command("relay", started.error());
  // Read by scripts that took free ports: one line, at once.
  std::printf("relaying users on %s:%u and agents on %s:%u", asked.host.c_str(), relay.public_port(), asked.host.c_str(),
              relay.agent_port());
  if (relay.admin_port() >= 0)
    std::printf(", metrics on %s:%d", asked.admin.substr(0, asked.admin.rfind(':')).c_str(), relay.admin_port());
  std::printf("\n");
  std::fflush(stdout);

  for (;;) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) continue;
    if (signal != SIGHUP) break;
    auto suffixes = all_suffixes(asked);
    const auto reloaded = suffixes ? relay.reload(std::move(*suffixes)) : Result<void>(fail(suffixes.error()));
    if (reloaded) {
      log_info("reloaded");
    } else {
      log_error("reload_failed", {{"reason", reloaded.error().message}});
    }
  }
  relay.drain(asked.drain_s * 1'000);
  relay.stop();
  log_info("stopped");
  return 0;
}

}  // namespace pocketfleet::cli
