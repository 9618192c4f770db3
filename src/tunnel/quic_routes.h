// Where datagrams of QUIC go: from connection ids to connections and to what is left of closed ones, and how many connections
// each source has. Holds the connections that it knows. Pure: time comes from the caller. On one executor; nothing here fails.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace pocketfleet::tunnel {

struct QuicCid {
  static constexpr size_t kMostBytes = 20;
  QuicCid(const uint8_t* data, size_t the_size) : size(std::min(the_size, kMostBytes)) { std::copy_n(data, size, bytes.begin()); }
  bool operator==(const QuicCid& other) const { return size == other.size && bytes == other.bytes; }
  std::array<uint8_t, kMostBytes> bytes{};
  size_t size = 0;
};

// Clients choose the first id of a connection, so the keys must be random: then nobody can foresee what falls together.
struct QuicCidHash {
  explicit QuicCidHash(const std::array<uint64_t, 6>& the_keys) : keys(the_keys) {}
  size_t operator()(const QuicCid& cid) const {
    uint64_t words[3] = {0, 0, 0};
    std::memcpy(words, cid.bytes.data(), cid.bytes.size());
    words[2] |= static_cast<uint64_t>(cid.size) << 32;
    uint64_t sum = 0;
    for (size_t i = 0; i < 3; ++i) sum += (words[i] ^ keys[i]) * (keys[i + 3] | 1);
    return static_cast<size_t>(sum ^ (sum >> 32));
  }
  std::array<uint64_t, 6> keys;
};

template <typename Connection>
class QuicRoutes {
 public:
  using Clock = std::chrono::steady_clock;

  explicit QuicRoutes(const std::array<uint64_t, 6>& hash_keys) : places_(16, QuicCidHash(hash_keys)) {}

  void add(const QuicCid& cid, const std::shared_ptr<Connection>& connection) { places_[cid].connection = connection; }
  void remove(const QuicCid& cid) { places_.erase(cid); }

  std::shared_ptr<Connection> find(const QuicCid& cid) const {
    const auto place = places_.find(cid);
    return place == places_.end() ? nullptr : place->second.connection;
  }

  // The connection with these ids is closed. Its peer, which may not know it yet, is sent `last_packet` anew for what it still
  // sends; empty: it gets no answer.
  void close(const std::vector<QuicCid>& cids, std::string last_packet, Clock::time_point until) {
    if (last_packet.empty()) {
      for (const QuicCid& cid : cids) places_.erase(cid);
      return;
    }
    const auto remains = std::make_shared<Remains>();
    remains->packet = std::move(last_packet);
    for (const QuicCid& cid : cids) {
      Place& place = places_[cid];
      place.connection.reset();
      place.remains = remains;
    }
    graves_.push_back(Grave{until, cids});
    if (graves_.size() > kMostGraves) level_first();
  }

  // What a closed connection answers to a packet, ever less often. Empty: nothing. `known` is false where there never was one.
  std::string last_word(const QuicCid& cid, bool& known) {
    const auto place = places_.find(cid);
    known = place != places_.end();
    if (!known || !place->second.remains) return {};
    Remains& remains = *place->second.remains;
    ++remains.seen;
    return (remains.seen & (remains.seen - 1)) == 0 ? remains.packet : std::string();
  }

  void expire(Clock::time_point now) {
    while (!graves_.empty() && graves_.front().until <= now) level_first();
  }

  void clear() {
    places_.clear();
    graves_.clear();
  }

  size_t count_of(const std::string& source) const {
    const auto known = sources_.find(source);
    return known == sources_.end() ? 0 : known->second;
  }
  void count_in(const std::string& source) { ++sources_[source]; }
  void count_out(const std::string& source) {
    const auto known = sources_.find(source);
    if (known != sources_.end() && --known->second == 0) sources_.erase(known);
  }

 private:
  static constexpr size_t kMostGraves = 4'096;

  struct Remains {
    std::string packet;
    uint64_t seen = 0;
  };
  struct Place {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<Remains> remains;
  };
  struct Grave {
    Clock::time_point until;
    std::vector<QuicCid> cids;
  };

  void level_first() {
    for (const QuicCid& cid : graves_.front().cids) places_.erase(cid);
    graves_.pop_front();
  }

  std::unordered_map<QuicCid, Place, QuicCidHash> places_;
  std::deque<Grave> graves_;
  std::unordered_map<std::string, size_t> sources_;
};

}  // namespace pocketfleet::tunnel
