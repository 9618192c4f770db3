// Admission: which waiting prompts start to be read, from which saved prefix, and where checkpoints will be made on the way.

#include <algorithm>
#include <tuple>

#include "base/log.h"
#include "engine/scheduler_items.h"

namespace pocketfleet {

namespace {

// How many waiting items one turn tries to admit.
constexpr size_t kLookAhead = 64;

size_t common_prefix(const Tokens& a, const Tokens& b) {
  const size_t limit = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(limit), b.begin()).first -
                             a.begin());
}

bool begins_with(const Tokens& tokens, const Tokens& prefix) {
  return prefix.size() < tokens.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

}  // namespace

int Scheduler::take_sequence() {
  if (free_sequences_.empty()) return -1;
  const int sequence = free_sequences_.back();
  free_sequences_.pop_back();
  return sequence;
}

void Scheduler::give_back(int sequence) {
  free_sequences_.push_back(sequence);
}

Scheduler::Resident* Scheduler::find_resident(const Tokens& tokens) {
  Resident* best = nullptr;
  for (Resident& resident : residents_) {
    if (begins_with(tokens, resident.tokens) && (best == nullptr || resident.tokens.size() > best->tokens.size()))
      best = &resident;
  }
  return best;
}

Scheduler::Resident* Scheduler::make_resident(const Tokens& tokens, const StateBytes& state) {
  if (residents_.size() >= kMostResidents) drop_idle_residents(true);
  if (residents_.size() >= kMostResidents || free_sequences_.size() < 2) return nullptr;
  const int sequence = take_sequence();
  if (!runtime_.restore(sequence, state)) {
    give_back(sequence);
    return nullptr;
  }
  residents_.push_back({sequence, tokens});
  return &residents_.back();
}

void Scheduler::drop_idle_residents(bool all) {
  for (auto it = residents_.begin(); it != residents_.end();) {
    const bool used = std::any_of(active_.begin(), active_.end(), [&](const auto& item) { return item->resident == &*it; });
    // With nothing to do, the last prefix stays for the next one who comes.
    const bool idle = active_.empty() && waiting_.empty();
    const bool wanted = !all && (idle || std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& item) {
                                   return begins_with(item->prompt.tokens, it->tokens);
                                 }));
    if (used || wanted) {
      ++it;
      continue;
    }
    runtime_.drop(it->sequence);
    give_back(it->sequence);
    it = residents_.erase(it);
  }
}

size_t Scheduler::cells_needed(const Item& item, size_t shared_tokens) const {
  const auto context = static_cast<size_t>(runtime_.info().context_tokens);
  size_t more = 0;
  if (item.is_score()) {
    for (const LabelTrie::Path& path : item.job->trie->paths()) more += path.tokens.size();
  } else {
    const size_t room = context - item.prompt.tokens.size();
    more = item.generate.max_tokens < 0 ? room : std::min(room, static_cast<size_t>(item.generate.max_tokens));
    // A guess lies beside what it may turn out not to be.
    if (options_.draft_tokens > 0) more += 2 * options_.draft_tokens;
  }
  return item.prompt.tokens.size() - shared_tokens + more;
}

// Somebody is reading a prefix that this prompt shares, and a checkpoint will stand at its end: reading it twice would be a
// waste.
bool Scheduler::must_wait_for_prefix(const Item& item, size_t base_tokens) const {
  for (const auto& other : active_) {
    if (other->state != Item::State::kReading) continue;
    for (const size_t stop : other->stops) {
      if (stop <= base_tokens || stop >= item.prompt.tokens.size()) continue;
      if (common_prefix(other->prompt.tokens, item.prompt.tokens) >= stop) return true;
      break;
    }
  }
  return false;
}

void Scheduler::plan_stops(Item& item, size_t base_tokens) {
  size_t last = base_tokens;
  const auto want = [&](size_t stop, size_t gain) {
    if (stop < last + gain || stop >= item.prompt.tokens.size()) return;
    item.stops.push_back(stop);
    last = stop;
  };
  std::vector<std::pair<size_t, size_t>> wanted;  // position, least gain
  for (size_t index = 0; index < item.prompt.checkpoints.size(); ++index) {
    const bool fixed_part = index == 0;
    wanted.emplace_back(item.prompt.checkpoints[index],
                        item.prompt.pinned ? 1 : (fixed_part ? options_.checkpoint_gain_tokens : options_.turn_gain_tokens));
  }
  // Where an earlier prompt went another way, a third may part as well.
  if (!runtime_.can_cut())
    wanted.emplace_back(checkpoints_.shared_with_recent(item.prompt.tokens), 2 * options_.checkpoint_gain_tokens);
  std::sort(wanted.begin(), wanted.end());
  for (const auto& [stop, gain] : wanted) want(stop, gain);
}

bool Scheduler::try_admit(Item& item) {
  if (options_.deterministic) {
    if (!active_.empty()) return false;
    admit_alone(item);
    return true;
  }
  const Tokens& tokens = item.prompt.tokens;
  Resident* resident = find_resident(tokens);
  size_t base = resident != nullptr ? resident->tokens.size() : 0;

  const Checkpoint* checkpoint = nullptr;
  size_t cut_to = 0;
  if (runtime_.can_cut()) {
    if (const auto shared = checkpoints_.find_shared(tokens); shared && shared->second > base) {
      checkpoint = shared->first;
      cut_to = shared->second;
    }
  } else if (const Checkpoint* known = checkpoints_.peek(tokens); known != nullptr && known->tokens.size() > base) {
    // It may come back from the disk shorter than it was known, or not at all.
    if (const Checkpoint* found = checkpoints_.find(tokens); found != nullptr && found->tokens.size() > base) {
      checkpoint = found;
      cut_to = found->tokens.size();
    }
  }
  if (must_wait_for_prefix(item, std::max(base, cut_to))) return false;

  size_t reserved = 0;
  for (const auto& other : active_) reserved += other->cells;
  for (const Resident& other : residents_) reserved += other.tokens.size();
  const size_t shared_cells = checkpoint == nullptr ? base : 0;
  const size_t needed = cells_needed(item, shared_cells);
  if (reserved + needed > runtime_.cells()) {
    drop_idle_residents(true);
    if (!active_.empty()) return false;
    resident = nullptr;
    base = 0;
  }

  const int sequence = take_sequence();
  if (sequence < 0) return false;
  // A state used whole becomes a resident that the next one can fork from at no cost.
  if (checkpoint != nullptr) {
    const std::shared_ptr<const StateBytes> state = checkpoint->state;
    const Tokens prefix = checkpoint->tokens;
    resident = cut_to == prefix.size() ? make_resident(prefix, *state) : nullptr;
    base = cut_to;
    if (resident == nullptr) {
      if (!runtime_.restore(sequence, *state) || (cut_to < prefix.size() && !runtime_.cut(sequence, cut_to))) {
        runtime_.drop(sequence);
        base = 0;
      }
    }
    if (base > 0) ++counters_.checkpoints_used;
  } else if (resident != nullptr) {
    ++counters_.checkpoints_used;
  }
  if (resident != nullptr) {
    base = resident->tokens.size();
    runtime_.fork(resident->sequence, sequence);
  }

  item.sequence = sequence;
  item.resident = resident;
  item.cells = cells_needed(item, resident != nullptr ? base : 0);
  plan_stops(item, base);
  begin_reading(item, base);
  return true;
}

// The state at a fixed part's end is always read from the beginning in whole batches, so it is the same in every prompt that
// begins with it, and every prompt goes on from it in the same pieces.
void Scheduler::admit_alone(Item& item) {
  drop_idle_residents(true);
  runtime_.reset();
  const Tokens& tokens = item.prompt.tokens;
  const size_t fixed = item.prompt.checkpoints.empty() ? 0 : item.prompt.checkpoints.front();
  item.sequence = take_sequence();
  item.cells = cells_needed(item, 0);
  size_t base = 0;
  if (fixed >= options_.checkpoint_gain_tokens && fixed < tokens.size()) {
    const std::span<const Token> prefix = std::span(tokens).first(fixed);
    const Checkpoint* found = checkpoints_.contains(prefix) ? checkpoints_.find(std::span(tokens).first(fixed + 1)) : nullptr;
    if (found != nullptr && found->tokens.size() == fixed && runtime_.restore(item.sequence, *found->state)) {
      base = fixed;
      ++counters_.checkpoints_used;
    } else {
      item.stops.push_back(fixed);
    }
  }
  begin_reading(item, base);
}

void Scheduler::begin_reading(Item& item, size_t base_tokens) {
  const Tokens& tokens = item.prompt.tokens;
  item.read = base_tokens;
  item.reused = base_tokens;
  item.state = Item::State::kReading;
  counters_.tokens_reused += base_tokens;
  if (item.prompt.pinned && !item.prompt.checkpoints.empty())
    checkpoints_.pin(std::span(tokens).first(item.prompt.checkpoints.front()));
  checkpoints_.remember(tokens);
  const std::lock_guard lock(mutex_);
  queued_tokens_ -= static_cast<int64_t>(base_tokens);
  if (!item.is_score() || !item.job->started) --waiting_requests_;
  if (item.is_score()) item.job->started = true;
}

// Those of the waiting that have the first claim: interactive before batch, short before long, with ageing.
std::vector<Scheduler::Items::iterator> Scheduler::next_in_line() {
  struct Place {
    bool batch;
    double claim;
    size_t arrival;
    Items::iterator item;
  };
  const int64_t now_ms = clock_.now_ms();
  std::vector<Place> places;
  places.reserve(waiting_.size());
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    Reading reading;
    reading.remaining = (*it)->prompt.tokens.size();
    reading.waiting_ms = now_ms - (*it)->submitted_ms;
    places.push_back({(*it)->priority == Priority::kBatch, claim(reading, {}), places.size(), it});
  }
  const auto first = places.begin() + static_cast<std::ptrdiff_t>(std::min(kLookAhead, places.size()));
  std::partial_sort(places.begin(), first, places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.batch, a.claim, a.arrival) < std::tie(b.batch, b.claim, b.arrival);
  });
  std::vector<Items::iterator> line;
  for (auto place = places.begin(); place != first; ++place) line.push_back(place->item);
  return line;
}

void Scheduler::admit() {
  drop_idle_residents(false);
  // An empty cache is filled from its beginning again: sums then come out in the same order for the same request.
  if (active_.empty() && residents_.empty()) runtime_.reset();
  if (waiting_.empty()) return;
  size_t reading_tokens = 0;
  int writing_slots = 0;
  for (const auto& item : active_) {
    if (item->state == Item::State::kReading) reading_tokens += item->remaining();
    if (!item->is_score()) ++writing_slots;
  }
  for (const Items::iterator it : next_in_line()) {
    Item& item = **it;
    // One sequence stays free for label paths, or they could never be read.
    if (free_sequences_.size() < 2) return;
    const bool slot = item.is_score() || writing_slots < runtime_.info().slots;
    // Enough is being read already to fill batches; only what is short may still come between.
    const bool useful = reading_tokens < 2 * runtime_.batch_tokens() || item.prompt.tokens.size() <= runtime_.batch_tokens();
    if (!slot || !useful || !try_admit(item)) continue;
    reading_tokens += item.remaining();
    if (!item.is_score()) ++writing_slots;
    active_.push_back(std::move(*it));
    waiting_.erase(it);
  }
}

}  // namespace pocketfleet
