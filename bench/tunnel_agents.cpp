// Many agents in one process, for bench/tunnel: each with a key of its own, one link to the relay, and streams that are echoed.
// They come back as real ones do. Prints lines of JSON: {"up":N,"ms":T} once all are there, and after each loss of all of them
// {"back":N,"ms":T,"peak_per_s":P,"mean_per_s":M}, where P and M are of the connections that a relay accepted.
// Usage: tunnel_agents --relay HOST:PORT --ca FILE --suffix NAME --count N
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "crypto/certificate.h"
#include "net/sockets.h"
#include "tunnel/agent.h"
#include "tunnel/h2_link.h"
#include "tunnel/identity.h"
#include "tunnel/pace.h"

using namespace pocketfleet;
using namespace pocketfleet::tunnel;

namespace {

struct Crowd {
  asio::io_context context{1};
  RelayAddress relay;
  std::string ca, suffix;
  std::shared_ptr<net::TlsContext> tls;  // one certificate for all: an address needs none of its own
  size_t count = 0;
  size_t up = 0;
  bool been_up = false;
  int64_t begun_ms = now_ms();
  std::vector<int64_t> accepted_ms;
  std::mt19937 random{std::random_device{}()};

  void arrived() {
    if (++up < count) return;
    const int64_t took = now_ms() - begun_ms;
    if (!std::exchange(been_up, true)) {
      std::printf("{\"up\":%zu,\"ms\":%lld}\n", up, static_cast<long long>(took));
    } else {
      // Seconds of the clock between the first accepted connection and the last.
      std::map<int64_t, int> seconds;
      const int64_t first = *std::min_element(accepted_ms.begin(), accepted_ms.end());
      const int64_t last = *std::max_element(accepted_ms.begin(), accepted_ms.end());
      for (const int64_t at : accepted_ms) ++seconds[(at - first) / 1000];
      int peak = 0;
      for (const auto& [second, number] : seconds) peak = std::max(peak, number);
      const double span_s = std::max(1.0, static_cast<double>(last - first) / 1000.0);
      std::printf("{\"back\":%zu,\"ms\":%lld,\"peak_per_s\":%d,\"mean_per_s\":%.1f}\n", up, static_cast<long long>(took), peak,
                  static_cast<double>(accepted_ms.size()) / span_s);
    }
    std::fflush(stdout);
  }
  void lost() {
    if (up-- < count) return;
    begun_ms = now_ms();
    accepted_ms.clear();
  }
};

asio::awaitable<void> echo(std::unique_ptr<net::Stream> stream) {
  char buffer[4'096];
  for (;;) {
    const auto count = co_await stream->read_some(buffer, sizeof buffer, net::kNoDeadline);
    if (!count || *count == 0) break;
    if (!co_await stream->write({buffer, *count}, 10'000)) break;
  }
  co_await stream->shutdown(1'000);
}

asio::awaitable<void> agent(Crowd& crowd, size_t number) {
  const auto key = P256PrivateKey::generate();
  const std::string domain = client_id(key->public_key()) + "." + crowd.suffix;
  Pace pace{PaceLimits{}};
  asio::steady_timer timer(crowd.context);
  boost::system::error_code ignored;
  // Not all at once at the start either: that is not what is measured.
  timer.expires_after(std::chrono::milliseconds(number));
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  for (;;) {
    auto plain = co_await net::connect_tcp(crowd.relay.host, crowd.relay.port, 10'000);
    if (plain) {
      crowd.accepted_ms.push_back(now_ms());
      auto tls = co_await net::TlsContext::connect(crowd.tls, std::move(*plain), crowd.relay.host, 30'000);
      if (tls) {
        auto link = make_h2_agent_link(std::move(*tls), H2Options());
        AgentLink::Introduction hello;
        hello.domain = domain;
        hello.prove = [&](bool) { return prove_binding(*key, domain, (*link)->facts().binding); };
        const auto introduced = co_await (*link)->introduce(std::move(hello), 30'000);
        if (introduced) {
          pace.reset();
          crowd.arrived();
          for (;;) {
            auto next = co_await (*link)->accept();
            if (!next) break;
            asio::co_spawn(crowd.context, echo(std::move(next->stream)), asio::detached);
          }
          crowd.lost();
        } else {
          std::fprintf(stderr, "%s\n", introduced.error().message.c_str());
        }
      }
    }
    timer.expires_after(std::chrono::milliseconds(pace.next_ms(static_cast<uint32_t>(crowd.random()))));
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Crowd crowd;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--relay") crowd.relay = *parse_relay_address(argv[i + 1]);
    if (name == "--ca") crowd.ca = argv[i + 1];
    if (name == "--suffix") crowd.suffix = argv[i + 1];
    if (name == "--count") crowd.count = static_cast<size_t>(std::stoul(argv[i + 1]));
  }
  if (crowd.count == 0 || crowd.ca.empty() || crowd.suffix.empty() || crowd.relay.host.empty()) {
    std::fprintf(stderr, "usage: tunnel_agents --relay HOST:PORT --ca FILE --suffix NAME --count N\n");
    return 2;
  }
  const auto key = P256PrivateKey::generate();
  net::TlsOptions options;
  options.certificate_chain_pem = *make_agent_certificate(*key, {});
  options.private_key_pem = *key->to_pem();
  options.trusted_file = crowd.ca;
  crowd.tls = *net::TlsContext::client(options);
  for (size_t i = 0; i < crowd.count; ++i) asio::co_spawn(crowd.context, agent(crowd, i), asio::detached);
  asio::signal_set signals(crowd.context, SIGINT, SIGTERM);
  signals.async_wait([](const boost::system::error_code&, int) { std::_Exit(0); });
  crowd.context.run();
  return 0;
}
