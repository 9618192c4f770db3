// Saved states of the model after a prefix of tokens, shared by all slots, under a byte budget in RAM; the least valuable goes
// first and pinned ones never go. What outlives the process lies on a shelf, from which it comes back when it is asked for. Also
// remembers the paths of recent prompts, so that the place where two requests part is known. One thread. The store owns the
// bytes; a shared_ptr keeps a state alive while it is restored.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/token_trie.h"
#include "engine/types.h"

namespace pocketfleet {

using StateBytes = std::vector<uint8_t>;

// Where checkpoints outlive the process.
class CheckpointShelf {
 public:
  virtual ~CheckpointShelf() = default;
  // The least recently used first.
  virtual std::vector<Tokens> list() const = 0;
  // Returns at once; the state may be dropped when there is no room. Saving what is there only updates `pinned`.
  virtual void save(std::span<const Token> tokens, std::shared_ptr<const StateBytes> state, bool pinned) = 0;
  // Nothing when it is not there or no longer good.
  virtual std::optional<StateBytes> load(std::span<const Token> tokens) = 0;
  virtual bool holds(std::span<const Token> tokens) const = 0;
  virtual ShelfCounters counters() const = 0;
};

struct Checkpoint {
  Tokens tokens;
  std::shared_ptr<const StateBytes> state;  // null while it lies on the shelf only
  bool pinned = false;
  size_t gained_tokens = 0;  // what it saves over the longest shorter one
  uint64_t hits = 0;
  uint64_t last_use = 0;
};

class CheckpointStore {
 public:
  // `shelf` may be null; what lies on it is known from the start. It must outlive the store.
  explicit CheckpointStore(size_t budget_bytes, CheckpointShelf* shelf = nullptr);

  // The longest checkpoint whose tokens are the beginning of `tokens` and shorter than them; marks it as used and brings it back
  // from the shelf. Valid until the next call that is not const.
  const Checkpoint* find(std::span<const Token> tokens);
  // The same without marking or bringing back: its state may be null.
  const Checkpoint* peek(std::span<const Token> tokens) const;
  // For models whose state can be cut back: the checkpoint that shares the most first tokens, and how many; marks it as used.
  std::optional<std::pair<const Checkpoint*, size_t>> find_shared(std::span<const Token> tokens);

  bool contains(std::span<const Token> tokens) const;
  // Makes room by evicting, then keeps the state. False when it does not fit beside what is pinned (pinned: always kept).
  bool add(std::span<const Token> tokens, StateBytes state, bool pinned);
  // Never evicted from now on, and kept on the shelf. False when there is no such checkpoint.
  bool pin(std::span<const Token> tokens);
  void clear();

  // The most first tokens that `tokens` shares with a recent prompt.
  size_t shared_with_recent(std::span<const Token> tokens) const;
  void remember(std::span<const Token> tokens);

  size_t bytes() const { return bytes_; }   // in RAM
  size_t count() const { return in_ram_; }  // in RAM
  uint64_t evicted() const { return evicted_; }

 private:
  using Entries = std::list<Checkpoint>;
  // The longest one shorter than `below`.
  std::optional<Entries::iterator> locate(std::span<const Token> tokens, size_t below) const;
  std::optional<Entries::iterator> exactly(std::span<const Token> tokens) const;
  Entries::iterator insert(std::span<const Token> tokens, bool pinned);
  void erase(Entries::iterator entry);
  void put_state(Entries::iterator entry, std::shared_ptr<const StateBytes> state);
  void take_state(Entries::iterator entry);
  double value(const Checkpoint& entry) const;
  bool make_room(size_t wanted_bytes);
  bool bring_back(Entries::iterator entry);
  const Checkpoint* use(Entries::iterator entry);

  const size_t budget_bytes_;
  CheckpointShelf* const shelf_;
  size_t bytes_ = 0;
  size_t in_ram_ = 0;
  uint64_t evicted_ = 0;
  uint64_t uses_ = 0;
  Entries entries_;
  TokenTrie<Entries::iterator> index_;
  Checkpoint passing_;  // what was brought back but has no room to stay
  // Paths of recent prompts, the latest first, and where each stands in that list.
  std::list<Tokens> recent_;
  TokenTrie<std::list<Tokens>::iterator> paths_;
  size_t recent_tokens_ = 0;
};

}  // namespace pocketfleet
