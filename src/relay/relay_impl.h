// What the parts of a relay share. Internal to relay/. Lives until the last coroutine that holds it has ended.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/http_server.h"
#include "net/tls.h"
#include "relay/listener.h"
#include "relay/metrics.h"
#include "relay/relay.h"
#include "tunnel/quic_link.h"

namespace pocketfleet::relay {

struct Worker {
  asio::io_context context{1};
  std::shared_ptr<Listener> users, agents;
  std::thread thread;
};

struct Relay::Impl : std::enable_shared_from_this<Relay::Impl> {
  explicit Impl(RelayOptions the_options)
      : options(std::move(the_options)),
        suffixes(options.suffixes),
        registry(options.registry),
        user_sources(options.user_sources),
        agent_sources(options.agent_sources) {}

  const RelayOptions options;
  std::mutex mutex;  // of the next two
  std::vector<std::string> suffixes;
  std::shared_ptr<net::TlsContext> tls;
  Registry registry;
  Sources user_sources, agent_sources;
  RelayMetrics metrics;
  std::vector<std::unique_ptr<Worker>> workers;
  std::unique_ptr<net::HttpServer> admin;
  std::shared_ptr<tunnel::QuicListener> quic;  // on the first worker
  uint16_t public_port = 0, agent_port = 0;
  int admin_port = -1;
  size_t most_users = 0;
  std::atomic<size_t> users{0};
  std::atomic<size_t> joins{0};
  std::atomic<bool> draining{false};

  std::shared_ptr<net::TlsContext> current_tls() {
    const std::lock_guard lock(mutex);
    return tls;
  }
  std::vector<std::string> current_suffixes() {
    const std::lock_guard lock(mutex);
    return suffixes;
  }

  // user_side.cpp
  void take_user(asio::ip::tcp::socket socket, std::string address, std::string peer);
  // agent_side.cpp
  void take_agent(asio::ip::tcp::socket socket, std::string address, std::string peer);
  asio::awaitable<void> serve_link(std::shared_ptr<tunnel::RelayLink> link);
};

}  // namespace pocketfleet::relay
