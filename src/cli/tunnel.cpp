#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/folders.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "tunnel/agent.h"

namespace pocketfleet::cli {

namespace asio = boost::asio;

namespace {

constexpr auto kFarewell = std::chrono::milliseconds(300);

Result<tunnel::TunnelOptions> tunnel_options(const TunnelCommandOptions& options) {
  tunnel::TunnelOptions out;
  for (const std::string& relay : options.relays) {
    PF_TRY(tunnel::RelayAddress address, tunnel::parse_relay_address(relay));
    out.relays.push_back(std::move(address));
  }
  out.suffix = options.suffix;
  out.target = options.to;
  out.state_folder = options.state;
  if (out.state_folder.empty()) {
    PF_TRY(out.state_folder, state_folder("tunnel"));
  }
  out.public_port = static_cast<uint16_t>(options.public_port);
  out.relay_ca_file = options.relay_ca;
  out.accept_legacy = options.accept == "legacy";
  out.carrier = options.carrier;
  out.quic_retry_ms = options.quic_retry_s * 1'000;
  out.links_per_relay = static_cast<size_t>(options.links);
  out.certificate_chain_file = options.certificate;
  out.private_key_file = options.key;
  out.self_signed = options.self_signed;
  out.send_proxy = options.send_proxy;
  out.acme.directory_url = options.acme_directory;
  out.acme.ca_file = options.acme_ca;
  out.acme.contact = options.acme_contact;
  out.acme.agree = options.agree;
  return out;
}

void print_status(const tunnel::TunnelStatus& status, bool json) {
  if (json) {
    Json line = {
        {"state", tunnel::state_name(status.state)}, {"url", status.url}, {"links", status.links}, {"users", status.users}};
    if (!status.carrier.empty()) line["carrier"] = status.carrier;
    if (!status.last_error.empty()) line["error"] = status.last_error;
    if (status.next_try_ms > 0) line["next_try_ms"] = status.next_try_ms;
    if (status.certificate_until_ms > 0) line["certificate_until_ms"] = status.certificate_until_ms;
    std::printf("%s\n", dump_json(line).c_str());
  } else {
    const std::string why = status.last_error.empty() ? "" : ": " + status.last_error;
    std::printf("%s %.*s%s\n", status.url.c_str(), static_cast<int>(tunnel::state_name(status.state).size()),
                tunnel::state_name(status.state).data(), why.c_str());
  }
  std::fflush(stdout);
}

}  // namespace

int run_tunnel(const TunnelCommandOptions& asked) {
  set_json_logs(asked.json_logs);
  if (asked.quiet) set_log_level(LogLevel::kWarn);
  raise_file_limit();
  auto options = tunnel_options(asked);
  if (!options) return fail_command("tunnel", options.error());
  // Outlives the tunnel, whose links belong to it.
  asio::io_context context(1);
  auto tunnel = tunnel::Tunnel::make(std::move(*options));
  if (!tunnel) return fail_command("tunnel", tunnel.error());

  asio::signal_set signals(context, SIGINT, SIGTERM);
  asio::steady_timer farewell(context);
  signals.async_wait([&](const boost::system::error_code& ec, int) {
    if (ec) return;
    // The relays are told, and so send nobody here any more.
    (*tunnel)->stop();
    farewell.expires_after(kFarewell);
    farewell.async_wait([&](const boost::system::error_code&) { context.stop(); });
  });
  // One line for each state that people care about; with --json for each change.
  auto last = tunnel::TunnelState::kConnecting;
  std::string last_error;
  print_status((*tunnel)->status(), asked.json);
  (*tunnel)->start(context.get_executor(), [&](const tunnel::TunnelStatus& status) {
    if (!asked.json && status.state == last && status.last_error == last_error) return;
    last = status.state;
    last_error = status.last_error;
    print_status(status, asked.json);
  });
  context.run();
  return 0;
}

}  // namespace pocketfleet::cli
