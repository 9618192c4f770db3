#include "relay/registry.h"

#include <algorithm>
#include <tuple>

namespace pocketfleet::relay {

namespace {

constexpr int64_t kForgetEveryMs = 60'000;

}  // namespace

Result<std::vector<std::shared_ptr<Member>>> Registry::join(const std::shared_ptr<Member>& member) {
  const std::lock_guard lock(mutex_);
  if (!pools_.contains(member->id) && pools_.size() >= limits_.most_ids)
    return fail(ErrorCode::kQueueFull, "this relay holds as many addresses as it may (" + std::to_string(limits_.most_ids) + ")");
  Pool& pool = pools_[member->id];
  if (pool.members.size() >= limits_.most_links_per_id) {
    return fail(ErrorCode::kQueueFull,
                "this address has as many links here as it may (" + std::to_string(limits_.most_links_per_id) + ")");
  }
  std::vector<std::shared_ptr<Member>> before = pool.members;
  member->joined = ++joins_;
  pool.members.push_back(member);
  ++links_;
  // Each is to show that it lives; the new one, which has just done so, takes the users meanwhile.
  for (const auto& other : before) other->ill = true;
  return before;
}

void Registry::leave(const std::shared_ptr<Member>& member, int64_t now_ms) {
  const std::lock_guard lock(mutex_);
  const auto at = pools_.find(member->id);
  if (at == pools_.end()) return;
  links_ -= std::erase(at->second.members, member);
  if (at->second.challenge == member) at->second.challenge.reset();
  at->second.left_ms = now_ms;
  forget(now_ms);
}

Result<void> Registry::expect_challenge(const std::shared_ptr<Member>& member, const std::string& key_auth) {
  const std::lock_guard lock(mutex_);
  if (!pools_.contains(member->id) && pools_.size() >= limits_.most_ids)
    return fail(ErrorCode::kQueueFull, "this relay holds as many addresses as it may (" + std::to_string(limits_.most_ids) + ")");
  Pool& pool = pools_[member->id];
  if (pool.challenge && pool.key_auth != key_auth) return fail(ErrorCode::kUnavailable, std::string(tunnel::kOrderedElsewhere));
  // The newest of one agent's links wins.
  pool.challenge = member;
  pool.key_auth = key_auth;
  return {};
}

void Registry::end_challenge(const std::shared_ptr<Member>& member) {
  const std::lock_guard lock(mutex_);
  const auto at = pools_.find(member->id);
  if (at != pools_.end() && at->second.challenge == member) at->second.challenge.reset();
}

std::shared_ptr<Member> Registry::challenged(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto at = pools_.find(id);
  return at == pools_.end() ? nullptr : at->second.challenge;
}

Registry::Choice Registry::choose(const std::string& id, int64_t now_ms) {
  const std::lock_guard lock(mutex_);
  Choice choice;
  const auto at = pools_.find(id);
  if (at == pools_.end()) return choice;
  choice.miss = Miss::kAway;
  size_t users = 0;
  const auto rank = [](const Member& member) { return std::make_tuple(member.ill.load(), member.open.load(), ~member.joined); };
  for (const auto& member : at->second.members) {
    users += member->open;
    if (member->retired) continue;
    if (!choice.member || rank(*member) < rank(*choice.member)) choice.member = member;
  }
  if (choice.member && users >= limits_.most_users_per_id) {
    choice.member.reset();
    choice.miss = Miss::kFull;
  }
  if (choice.member) ++choice.member->open;
  forget(now_ms);
  return choice;
}

void Registry::forget(int64_t now_ms) {
  if (now_ms - forgot_ms_ < kForgetEveryMs && pools_.size() < limits_.most_ids) return;
  forgot_ms_ = now_ms;
  std::erase_if(pools_, [&](const auto& entry) {
    const Pool& pool = entry.second;
    return pool.members.empty() && !pool.challenge && now_ms - pool.left_ms >= limits_.remember_ms;
  });
}

void Registry::clear() {
  std::unordered_map<std::string, Pool> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(pools_);
  links_ = 0;
}

size_t Registry::ids() const {
  const std::lock_guard lock(mutex_);
  return pools_.size();
}

size_t Registry::links() const {
  const std::lock_guard lock(mutex_);
  return links_;
}

std::vector<std::shared_ptr<Member>> Registry::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Member>> out;
  for (const auto& [id, pool] : pools_) {
    out.insert(out.end(), pool.members.begin(), pool.members.end());
    if (pool.challenge) out.push_back(pool.challenge);
  }
  return out;
}

}  // namespace pocketfleet::relay
