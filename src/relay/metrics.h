// What the relay counts, in Prometheus' text format. Names are listed in docs/relay.md. Any thread; nothing here fails.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace pocketfleet::relay {

class RelayMetrics {
 public:
  RelayMetrics();
  ~RelayMetrics();
  RelayMetrics(const RelayMetrics&) = delete;
  RelayMetrics& operator=(const RelayMetrics&) = delete;

  // A connection of a user has ended: "carried", "challenge", or why it was not ("no server name", "unknown", "away", ...).
  void user(std::string_view outcome);
  // A link of an agent: "joined", "certified", or why it was refused.
  void agent(std::string_view carrier, std::string_view outcome);
  void bytes(uint64_t from_users, uint64_t to_users);
  void opened_ms(int64_t ms);  // from the first byte of a user to the stream in the tunnel

  struct Now {
    size_t ids = 0, links = 0, users = 0;
  };
  std::string render(const Now& now) const;
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pocketfleet::relay
