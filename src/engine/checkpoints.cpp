#include "engine/checkpoints.h"

#include <algorithm>

namespace pocketfleet {

namespace {

constexpr size_t kRecentPrompts = 256;
constexpr size_t kRecentTokens = 1u << 20;
constexpr size_t kRecentMinimum = 64;  // shorter prompts are not worth remembering
// A checkpoint that was not used while others were so many times is worth half.
constexpr double kHalfLifeUses = 64;
// Used so often, it is worth having after a restart as well.
constexpr uint64_t kHitsForShelf = 2;

size_t cost_bytes(const Checkpoint& checkpoint) {
  return (checkpoint.state ? checkpoint.state->size() : 0) + checkpoint.tokens.size() * sizeof(Token);
}

}  // namespace

CheckpointStore::CheckpointStore(size_t budget_bytes, CheckpointShelf* shelf) : budget_bytes_(budget_bytes), shelf_(shelf) {
  if (shelf_ == nullptr) return;
  for (const Tokens& tokens : shelf_->list()) insert(tokens, false);
}

std::optional<CheckpointStore::Entries::iterator> CheckpointStore::locate(std::span<const Token> tokens, size_t below) const {
  const auto found = index_.longest(tokens, below);
  if (!found) return std::nullopt;
  return *found->first;
}

std::optional<CheckpointStore::Entries::iterator> CheckpointStore::exactly(std::span<const Token> tokens) const {
  const Entries::iterator* found = index_.find(tokens);
  if (found == nullptr) return std::nullopt;
  return *found;
}

CheckpointStore::Entries::iterator CheckpointStore::insert(std::span<const Token> tokens, bool pinned) {
  const auto shorter = locate(tokens, tokens.size());
  Checkpoint made;
  made.tokens.assign(tokens.begin(), tokens.end());
  made.pinned = pinned;
  made.gained_tokens = tokens.size() - (shorter ? (*shorter)->tokens.size() : 0);
  made.last_use = ++uses_;
  entries_.push_front(std::move(made));
  index_.insert(tokens, entries_.begin());
  return entries_.begin();
}

void CheckpointStore::put_state(Entries::iterator entry, std::shared_ptr<const StateBytes> state) {
  entry->state = std::move(state);
  bytes_ += cost_bytes(*entry);
  ++in_ram_;
}

void CheckpointStore::take_state(Entries::iterator entry) {
  if (!entry->state) return;
  bytes_ -= cost_bytes(*entry);
  --in_ram_;
  entry->state.reset();
}

void CheckpointStore::erase(Entries::iterator entry) {
  take_state(entry);
  index_.erase(entry->tokens);
  entries_.erase(entry);
}

// Tokens that it may still save, for each byte that it takes.
double CheckpointStore::value(const Checkpoint& entry) const {
  const double age = static_cast<double>(uses_ - entry.last_use) / kHalfLifeUses;
  return static_cast<double>(entry.gained_tokens) * static_cast<double>(1 + entry.hits) /
         (static_cast<double>(cost_bytes(entry)) * (1.0 + age));
}

bool CheckpointStore::make_room(size_t wanted_bytes) {
  size_t pinned_bytes = 0;
  for (const Checkpoint& entry : entries_) pinned_bytes += entry.pinned && entry.state ? cost_bytes(entry) : 0;
  // Nothing is given up for what would not fit in any case.
  if (pinned_bytes + wanted_bytes > budget_bytes_) return false;
  while (bytes_ + wanted_bytes > budget_bytes_) {
    auto victim = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->pinned || !entry->state) continue;
      if (victim == entries_.end() || value(*entry) < value(*victim)) victim = entry;
    }
    if (victim == entries_.end()) return false;
    ++evicted_;
    if (shelf_ != nullptr && victim->hits > 0) shelf_->save(victim->tokens, victim->state, false);
    if (shelf_ != nullptr && shelf_->holds(victim->tokens)) {
      take_state(victim);
    } else {
      erase(victim);
    }
  }
  return true;
}

// False when the shelf has it no longer; then it is forgotten.
bool CheckpointStore::bring_back(Entries::iterator entry) {
  if (entry->state) return true;
  auto state = shelf_ == nullptr ? std::nullopt : shelf_->load(entry->tokens);
  if (!state) {
    erase(entry);
    return false;
  }
  auto shared = std::make_shared<const StateBytes>(*std::move(state));
  if (make_room(shared->size() + entry->tokens.size() * sizeof(Token)) || entry->pinned) {
    put_state(entry, std::move(shared));
  } else {
    passing_ = *entry;
    passing_.state = std::move(shared);
  }
  return true;
}

const Checkpoint* CheckpointStore::use(Entries::iterator entry) {
  entry->last_use = ++uses_;
  ++entry->hits;
  if (!entry->state) return &passing_;
  if (shelf_ != nullptr && entry->hits == kHitsForShelf) shelf_->save(entry->tokens, entry->state, entry->pinned);
  return &*entry;
}

const Checkpoint* CheckpointStore::peek(std::span<const Token> tokens) const {
  const auto entry = locate(tokens, tokens.size());
  return entry ? &**entry : nullptr;
}

const Checkpoint* CheckpointStore::find(std::span<const Token> tokens) {
  passing_ = {};
  for (;;) {
    const auto entry = locate(tokens, tokens.size());
    if (!entry) return nullptr;
    if (bring_back(*entry)) return use(*entry);
  }
}

std::optional<std::pair<const Checkpoint*, size_t>> CheckpointStore::find_shared(std::span<const Token> tokens) {
  passing_ = {};
  for (;;) {
    const auto [shared, best] = index_.shared(tokens);
    // The last token must be read again, because its logits are wanted.
    const size_t length = std::min(shared, tokens.size() - 1);
    if (length == 0 || best == nullptr) return std::nullopt;
    const Entries::iterator entry = *best;
    if (bring_back(entry)) return std::make_pair(use(entry), length);
  }
}

bool CheckpointStore::contains(std::span<const Token> tokens) const {
  return exactly(tokens).has_value();
}

bool CheckpointStore::add(std::span<const Token> tokens, StateBytes state, bool pinned) {
  if (contains(tokens)) return !pinned || pin(tokens);
  const size_t wanted = state.size() + tokens.size() * sizeof(Token);
  if (!make_room(wanted) && !pinned) return false;
  const auto entry = insert(tokens, pinned);
  put_state(entry, std::make_shared<const StateBytes>(std::move(state)));
  if (pinned && shelf_ != nullptr) shelf_->save(tokens, entry->state, true);
  return true;
}

bool CheckpointStore::pin(std::span<const Token> tokens) {
  const auto entry = exactly(tokens);
  if (!entry) return false;
  if ((*entry)->pinned) return true;
  (*entry)->pinned = true;
  if (!bring_back(*entry)) return false;
  if (shelf_ != nullptr) shelf_->save(tokens, (*entry)->state, true);
  return true;
}

void CheckpointStore::clear() {
  entries_.clear();
  index_.clear();
  recent_.clear();
  paths_.clear();
  recent_tokens_ = 0;
  passing_ = {};
  bytes_ = 0;
  in_ram_ = 0;
}

size_t CheckpointStore::shared_with_recent(std::span<const Token> tokens) const {
  return paths_.shared(tokens).first;
}

void CheckpointStore::remember(std::span<const Token> tokens) {
  if (tokens.size() < kRecentMinimum) return;
  if (const auto* known = paths_.find(tokens)) {
    recent_.splice(recent_.begin(), recent_, *known);
    return;
  }
  recent_.emplace_front(tokens.begin(), tokens.end());
  paths_.insert(tokens, recent_.begin());
  recent_tokens_ += tokens.size();
  while (recent_.size() > 1 && (recent_.size() > kRecentPrompts || recent_tokens_ > kRecentTokens)) {
    paths_.erase(recent_.back());
    recent_tokens_ -= recent_.back().size();
    recent_.pop_back();
  }
}

}  // namespace pocketfleet
