#include "relay/sources.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace pocketfleet::relay {

namespace {

constexpr int64_t kForgetEveryMs = 10'000;

}  // namespace

std::string source_of(const std::string& address) {
  in6_addr v6{};
  if (::inet_pton(AF_INET6, address.c_str(), &v6) != 1) return address;
  std::memset(v6.s6_addr + 8, 0, 8);
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET6, &v6, text, sizeof text);
  return std::string(text) + "/64";
}

bool Sources::admit(const std::string& address, int64_t now_ms) {
  if (limits_.most_open == 0 && limits_.new_per_s == 0) return true;
  const std::lock_guard lock(mutex_);
  forget(now_ms);
  const auto [at, fresh] = sources_.try_emplace(source_of(address));
  Source& source = at->second;
  if (fresh) {
    source.bucket = limits_.most_at_once;
  } else {
    const double passed_s = static_cast<double>(now_ms - source.filled_ms) / 1000.0;
    source.bucket = std::min(limits_.most_at_once, source.bucket + passed_s * limits_.new_per_s);
  }
  source.filled_ms = now_ms;
  if (limits_.most_open > 0 && source.open >= limits_.most_open) return false;
  if (limits_.new_per_s > 0) {
    if (source.bucket < 1) return false;
    source.bucket -= 1;
  }
  ++source.open;
  return true;
}

void Sources::release(const std::string& address) {
  if (limits_.most_open == 0 && limits_.new_per_s == 0) return;
  const std::lock_guard lock(mutex_);
  const auto at = sources_.find(source_of(address));
  if (at != sources_.end() && at->second.open > 0) --at->second.open;
}

size_t Sources::known() const {
  const std::lock_guard lock(mutex_);
  return sources_.size();
}

void Sources::forget(int64_t now_ms) {
  if (now_ms - forgot_ms_ < kForgetEveryMs) return;
  forgot_ms_ = now_ms;
  std::erase_if(sources_, [&](const auto& entry) {
    const Source& source = entry.second;
    const double passed_s = static_cast<double>(now_ms - source.filled_ms) / 1000.0;
    return source.open == 0 && source.bucket + passed_s * limits_.new_per_s >= limits_.most_at_once;
  });
}

}  // namespace pocketfleet::relay
