#include "engine/checkpoints.h"

#include <algorithm>

namespace pocketfleet {

namespace {

constexpr size_t kRecentPrompts = 32;
constexpr size_t kRecentMinimum = 64;  // shorter prompts are not worth remembering

size_t cost_bytes(const Checkpoint& checkpoint) {
  return checkpoint.state->size() + checkpoint.tokens.size() * sizeof(Token);
}

size_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  const size_t limit = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(limit), b.begin()).first -
                             a.begin());
}

}  // namespace

uint64_t CheckpointStore::extend_hash(uint64_t hash, Token token) {
  // FNV-1a over the token's 32 bits, mixed once more; collisions are caught by comparing the tokens.
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3ULL;
  return hash ^ (hash >> 29);
}

CheckpointStore::Entries::const_iterator CheckpointStore::locate(std::span<const Token> tokens, size_t below) const {
  auto best = entries_.end();
  uint64_t hash = 0xcbf29ce484222325ULL;
  size_t at = 0;
  for (const auto& [length, bucket] : by_length_) {
    if (length >= below || length > tokens.size()) break;
    for (; at < length; ++at) hash = extend_hash(hash, tokens[at]);
    const auto [first, last] = bucket.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      if (std::equal(it->second->tokens.begin(), it->second->tokens.end(), tokens.begin())) best = it->second;
    }
  }
  return best;
}

const Checkpoint* CheckpointStore::peek(std::span<const Token> tokens) const {
  const auto entry = locate(tokens, tokens.size());
  return entry == entries_.end() ? nullptr : &*entry;
}

const Checkpoint* CheckpointStore::find(std::span<const Token> tokens) {
  const auto entry = locate(tokens, tokens.size());
  if (entry == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, entry);
  return &entries_.front();
}

std::optional<std::pair<const Checkpoint*, size_t>> CheckpointStore::find_shared(std::span<const Token> tokens) {
  auto best = entries_.end();
  size_t best_length = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    // The last token must be read again, because its logits are wanted.
    const size_t shared = std::min(common_prefix(entry->tokens, tokens), tokens.size() - 1);
    if (shared > best_length) {
      best_length = shared;
      best = entry;
    }
  }
  if (best == entries_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, best);
  return std::make_pair(&entries_.front(), best_length);
}

bool CheckpointStore::contains(std::span<const Token> tokens) const {
  const auto entry = locate(tokens, tokens.size() + 1);
  return entry != entries_.end() && entry->tokens.size() == tokens.size();
}

bool CheckpointStore::make_room(size_t wanted_bytes) {
  size_t pinned_bytes = 0;
  for (const Checkpoint& entry : entries_) pinned_bytes += entry.pinned ? cost_bytes(entry) : 0;
  // Nothing is given up for what would not fit in any case.
  if (pinned_bytes + wanted_bytes > budget_bytes_) return false;
  auto entry = entries_.end();
  while (bytes_ + wanted_bytes > budget_bytes_ && entry != entries_.begin()) {
    --entry;
    if (entry->pinned) continue;
    const auto victim = entry++;
    erase(victim);
    ++evicted_;
  }
  return bytes_ + wanted_bytes <= budget_bytes_;
}

void CheckpointStore::erase(Entries::iterator entry) {
  bytes_ -= cost_bytes(*entry);
  const auto bucket = by_length_.find(entry->tokens.size());
  for (auto it = bucket->second.begin(); it != bucket->second.end(); ++it) {
    if (it->second == entry) {
      bucket->second.erase(it);
      break;
    }
  }
  if (bucket->second.empty()) by_length_.erase(bucket);
  entries_.erase(entry);
}

bool CheckpointStore::add(std::span<const Token> tokens, StateBytes state, bool pinned) {
  if (contains(tokens)) return true;
  Checkpoint made{Tokens(tokens.begin(), tokens.end()), std::make_shared<const StateBytes>(std::move(state)), pinned, next_id_++};
  if (!make_room(cost_bytes(made)) && !pinned) return false;
  bytes_ += cost_bytes(made);
  entries_.push_front(std::move(made));
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const Token token : tokens) hash = extend_hash(hash, token);
  by_length_[tokens.size()].emplace(hash, entries_.begin());
  return true;
}

void CheckpointStore::clear() {
  entries_.clear();
  by_length_.clear();
  recent_.clear();
  bytes_ = 0;
}

size_t CheckpointStore::shared_with_recent(std::span<const Token> tokens) const {
  size_t best = 0;
  for (const Tokens& path : recent_) best = std::max(best, common_prefix(path, tokens));
  return best;
}

void CheckpointStore::remember(std::span<const Token> tokens) {
  if (tokens.size() < kRecentMinimum) return;
  for (auto it = recent_.begin(); it != recent_.end(); ++it) {
    if (std::equal(it->begin(), it->end(), tokens.begin(), tokens.end())) {
      recent_.erase(it);
      break;
    }
  }
  recent_.emplace_front(tokens.begin(), tokens.end());
  if (recent_.size() > kRecentPrompts) recent_.pop_back();
}

}  // namespace pocketfleet
