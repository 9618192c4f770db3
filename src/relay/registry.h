// Which links lead to which address: a pool for each id, and which link the next user takes. Pure but for its lock: any thread.
// A link joins once it has proven its id. The choice is the healthy link with the fewest open streams, the newest among equals; a
// link that has been asked for a sign of life and has not given one counts as ill. An id that once had links is remembered for a
// while, so that callers of a phone that is away can be told from callers of nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tunnel/link.h"

namespace pocketfleet::relay {

struct Member {
  Member(std::string the_id, std::shared_ptr<tunnel::RelayLink> the_link) : id(std::move(the_id)), link(std::move(the_link)) {}
  const std::string id;
  // Used on its own executor only.
  const std::shared_ptr<tunnel::RelayLink> link;
  std::atomic<size_t> open{0};       // users that are being carried
  std::atomic<bool> ill{false};      // asked for a sign of life, and none has come yet
  std::atomic<bool> retired{false};  // takes no new users
  bool asked = false;                // whether it lives, and the answer is on its way; on the link's executor
  uint64_t joined = 0;               // grows with each join
  bool bound = false;                // knows what ours adds to the protocol; set before it joins
};

struct RegistryLimits {
  size_t most_ids = 100'000;
  size_t most_links_per_id = 64;
  size_t most_users_per_id = 4'096;
  int64_t remember_ms = 3'600'000;
};

class Registry {
 public:
  explicit Registry(RegistryLimits limits) : limits_(limits) {}

  // The members that were there before, which the caller asks for a sign of life. kQueueFull past a limit.
  Result<std::vector<std::shared_ptr<Member>>> join(const std::shared_ptr<Member>& member);
  void leave(const std::shared_ptr<Member>& member, int64_t now_ms);

  // The link that waits for the authority with this answer. kUnavailable while another one waits with another answer: one
  // certificate is enough for an address.
  Result<void> expect_challenge(const std::shared_ptr<Member>& member, const std::string& key_auth);
  void end_challenge(const std::shared_ptr<Member>& member);
  std::shared_ptr<Member> challenged(const std::string& id) const;

  enum class Miss { kUnknown, kAway, kFull };
  struct Choice {
    std::shared_ptr<Member> member;  // its `open` has been counted up; the caller counts it down
    Miss miss = Miss::kUnknown;      // why there is none
  };
  Choice choose(const std::string& id, int64_t now_ms);

  // Lets go of every link.
  void clear();

  size_t ids() const;
  size_t links() const;
  std::vector<std::shared_ptr<Member>> all() const;

 private:
  struct Pool {
    std::vector<std::shared_ptr<Member>> members;
    std::shared_ptr<Member> challenge;  // waits for the authority
    std::string key_auth;               // with this answer
    int64_t left_ms = 0;                // when the last member left
  };
  void forget(int64_t now_ms);

  const RegistryLimits limits_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Pool> pools_;
  size_t links_ = 0;
  uint64_t joins_ = 0;
  int64_t forgot_ms_ = 0;
};

}  // namespace pocketfleet::relay
