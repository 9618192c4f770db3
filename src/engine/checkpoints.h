// Saved states of the model after a prefix of tokens, shared by all slots, under a byte budget; the least recently used goes
// first and pinned ones never go. Also remembers the paths of recent prompts, so that the place where two requests part is known.
// Pure: the state is opaque bytes. One thread. The store owns the bytes; a shared_ptr keeps a state alive while it is restored.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/types.h"

namespace pocketfleet {

using StateBytes = std::vector<uint8_t>;

struct Checkpoint {
  Tokens tokens;
  std::shared_ptr<const StateBytes> state;
  bool pinned = false;
  uint64_t id = 0;  // never used twice
};

class CheckpointStore {
 public:
  explicit CheckpointStore(size_t budget_bytes) : budget_bytes_(budget_bytes) {}

  // The longest checkpoint whose tokens are the beginning of `tokens` and shorter than them; marks it as used.
  const Checkpoint* find(std::span<const Token> tokens);
  // The same without marking.
  const Checkpoint* peek(std::span<const Token> tokens) const;
  // For models whose state can be cut back: the checkpoint that shares the most first tokens, and how many; marks it as used.
  std::optional<std::pair<const Checkpoint*, size_t>> find_shared(std::span<const Token> tokens);

  bool contains(std::span<const Token> tokens) const;
  // Makes room by evicting, then keeps the state. False when it does not fit beside what is pinned (pinned: always kept).
  bool add(std::span<const Token> tokens, StateBytes state, bool pinned);
  void clear();

  // The most first tokens that `tokens` shares with a recent prompt.
  size_t shared_with_recent(std::span<const Token> tokens) const;
  void remember(std::span<const Token> tokens);

  size_t bytes() const { return bytes_; }
  size_t count() const { return entries_.size(); }
  uint64_t evicted() const { return evicted_; }

 private:
  using Entries = std::list<Checkpoint>;  // the most recently used first
  static uint64_t extend_hash(uint64_t hash, Token token);
  Entries::const_iterator locate(std::span<const Token> tokens, size_t below) const;
  void erase(Entries::iterator entry);
  bool make_room(size_t wanted_bytes);

  size_t budget_bytes_;
  size_t bytes_ = 0;
  uint64_t evicted_ = 0;
  uint64_t next_id_ = 1;
  Entries entries_;
  // Length in tokens, then hash of the tokens. Lengths are few, so one pass over a prompt's rolling hash finds all candidates.
  std::map<size_t, std::unordered_multimap<uint64_t, Entries::iterator>> by_length_;
  std::deque<Tokens> recent_;
};

}  // namespace pocketfleet
