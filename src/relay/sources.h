// Limits for each address that connects: how many connections at once, and how many new ones in a time (a bucket that fills).
// Addresses of IPv6 count by their /64, which one customer has. Bounded: addresses that have nothing open and a full bucket are
// forgotten. Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace pocketfleet::relay {

struct SourceLimits {
  size_t most_open = 256;     // 0: no limit
  double new_per_s = 50;      // 0: no limit
  double most_at_once = 200;  // what the bucket holds
};

class Sources {
 public:
  explicit Sources(SourceLimits limits) : limits_(limits) {}
  // Counted when true; each is to be released.
  bool admit(const std::string& address, int64_t now_ms);
  void release(const std::string& address);
  size_t known() const;

 private:
  struct Source {
    size_t open = 0;
    double bucket = 0;
    int64_t filled_ms = 0;
  };
  void forget(int64_t now_ms);

  const SourceLimits limits_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Source> sources_;
  int64_t forgot_ms_ = 0;
};

// The key that an address is counted under: itself for IPv4, its first 64 bits for IPv6.
std::string source_of(const std::string& address);

}  // namespace pocketfleet::relay
