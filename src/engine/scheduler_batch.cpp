// One turn of the loop: a batch is built, run and delivered.

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <utility>

#include "base/log.h"
#include "engine/scheduler_items.h"

namespace pocketfleet {

namespace {

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Recent speed counts most, so that a machine that gets hot is believed soon.
void blend(double& average, double sample) {
  average = average > 0 ? 0.8 * average + 0.2 * sample : sample;
}

constexpr size_t kSpeedSampleTokens = 24;

}  // namespace

void Scheduler::add_streams() {
  size_t streams = 0;
  for (auto& item : active_) {
    item->row = -1;
    streams += item->state == Item::State::kWriting ? 1 : 0;
  }
  // Guesses share the rows that the streams themselves do not need.
  const size_t room = streams == 0 ? 0 : (runtime_.max_outputs() - streams) / streams;
  for (auto& item : active_) {
    if (item->state == Item::State::kWriting) add_stream(*item, std::min(room, options_.draft_tokens));
  }
}

void Scheduler::add_stream(Item& item, size_t draft_room) {
  const auto context = static_cast<size_t>(runtime_.info().context_tokens);
  item.draft.clear();
  // After a wrong guess the sequence catches up first.
  if (item.guesses && item.pending.empty() && (runtime_.can_cut() || free_sequences_.size() > 1)) {
    const size_t left = context - std::min(context, item.read + 2);
    const int wanted = item.generate.max_tokens < 0 ? 1 << 20 : item.generate.max_tokens - item.writer->written();
    item.draft = item.guesses->propose(std::min({draft_room, left, static_cast<size_t>(std::max(wanted - 1, 0))}));
  }
  int sequence = item.sequence;
  if (!item.draft.empty() && !runtime_.can_cut()) {
    item.draft_sequence = take_sequence();
    runtime_.fork(item.sequence, item.draft_sequence);
    sequence = item.draft_sequence;
  }
  auto position = static_cast<int>(item.read);
  for (const Token token : item.pending) runtime_.batch_add(token, position++, sequence, false);
  item.row = runtime_.batch_add(item.writer->last_token(), position++, sequence, true);
  for (const Token token : item.draft) runtime_.batch_add(token, position++, sequence, true);
  outputs_ += 1 + item.draft.size();
}

void Scheduler::add_paths(std::vector<Fork>& forks) {
  for (auto& item : active_) {
    if (item->state != Item::State::kPaths) continue;
    const auto& paths = item->job->trie->paths();
    while (item->next_path < paths.size()) {
      const LabelTrie::Path& path = paths[item->next_path];
      const size_t room = runtime_.batch_tokens() - static_cast<size_t>(runtime_.batch_size());
      if (path.tokens.size() > room || outputs_ + path.ask.size() > runtime_.max_outputs()) break;
      const int sequence = take_sequence();
      if (sequence < 0) break;
      runtime_.fork(item->sequence, sequence);
      Fork fork{item.get(), item->next_path, sequence, {}};
      size_t asked = 0;
      for (size_t index = 0; index < path.tokens.size(); ++index) {
        const bool ask = asked < path.ask.size() && path.ask[asked].first == index + 1;
        const int row = runtime_.batch_add(path.tokens[index], static_cast<int>(item->read + index), sequence, ask);
        if (!ask) continue;
        fork.rows.push_back(row);
        ++asked;
        ++outputs_;
      }
      forks.push_back(std::move(fork));
      ++item->next_path;
    }
  }
}

void Scheduler::add_chunks() {
  chunks_.clear();
  reading_.clear();
  std::vector<Reading> readings;
  bool streams_running = false;
  const int64_t now_ms = clock_.now_ms();
  for (auto& item : active_) {
    streams_running = streams_running || item->state == Item::State::kWriting;
    if (item->state != Item::State::kReading) continue;
    Reading reading;
    reading.remaining = item->remaining();
    reading.until_stop = item->stops.empty() ? reading.remaining : item->stops.front() - item->read;
    reading.waiting_ms = now_ms - item->submitted_ms;
    reading.priority = item->priority;
    readings.push_back(reading);
    reading_.push_back(item.get());
  }
  BatchLimits limits;
  limits.batch_tokens = runtime_.batch_tokens() - static_cast<size_t>(runtime_.batch_size());
  // Speed is never twice the same, so it must not decide where a piece ends.
  limits.read_tokens_per_s = options_.deterministic ? 0 : counters_.read_tokens_per_s;
  limits.stream_gap_ms = options_.stream_gap_ms;
  limits.chunk_ms = options_.chunk_ms;
  limits.streams_running = streams_running;
  for (const Chunk& chunk : plan_chunks(readings, limits)) {
    Item& item = *reading_[chunk.index];
    const bool ends = chunk.tokens == item.remaining();
    if (ends && outputs_ == runtime_.max_outputs()) continue;
    for (size_t index = 0; index < chunk.tokens; ++index) {
      const bool last = ends && index + 1 == chunk.tokens;
      const int row =
          runtime_.batch_add(item.prompt.tokens[item.read + index], static_cast<int>(item.read + index), item.sequence, last);
      if (last) item.row = row;
    }
    if (ends) ++outputs_;
    chunks_.push_back(chunk);
    if (item.started_ms > 0) continue;
    item.started_ms = now_ms;
    if (item.is_score() && item.job->first_started_ms == 0) {
      item.job->first_started_ms = now_ms;
      item.job->usage.wait_ms = now_ms - item.submitted_ms;
    }
  }
}

// Asked by the model between two operations.
bool Scheduler::nobody_waits_for_batch() const {
  if (stopping_) return true;
  const int64_t now_ms = clock_.now_ms();
  return std::all_of(active_.begin(), active_.end(), [&](const auto& item) { return gone(*item, now_ms); });
}

bool Scheduler::run_batch() {
  batch_started_us_ = now_us();
  const std::function<bool()> give_up = [this] { return nobody_waits_for_batch(); };
  auto done = runtime_.decode(give_up);
  if (!done && done.error().code == ErrorCode::kOutOfMemory && !residents_.empty()) {
    // Prefixes that are kept for others give way first.
    for (auto& item : active_) item->resident = nullptr;
    drop_idle_residents(true);
    done = runtime_.decode(give_up);
  }
  if (!done && done.error().code == ErrorCode::kCancelled) {
    // What stands in the sequences now is not known, and nobody is there who could go on from it.
    if (!stopping_) drop_gone();
    return false;
  }
  if (!done) {
    log_error("batch_failed", {{"reason", done.error().message}, {"tokens", runtime_.batch_size()}});
    runtime_.batch_clear();
    const Error error = done.error();
    for (auto& item : active_) finish(*item, error);
    active_.clear();
    for (Resident& resident : residents_) give_back(resident.sequence);
    residents_.clear();
    // What the failed call left behind is not known.
    runtime_.clear();
    return false;
  }
  ++counters_.batches;
  counters_.batch_tokens += static_cast<uint64_t>(runtime_.batch_size());
  return true;
}

void Scheduler::turn() {
  outputs_ = 0;
  runtime_.batch_clear();
  std::vector<Fork> forks;
  add_streams();
  add_paths(forks);
  add_chunks();
  if (runtime_.batch_size() == 0) return;
  if (!run_batch()) {
    for (const Fork& fork : forks) {
      runtime_.drop(fork.sequence);
      give_back(fork.sequence);
    }
    return;
  }

  size_t prompt_tokens = 0;
  for (const Chunk& chunk : chunks_) prompt_tokens += chunk.tokens;
  size_t streams = 0;
  for (auto& item : active_) streams += item->state == Item::State::kWriting ? 1 : 0;
  const uint64_t written_before = counters_.tokens_written;
  const double seconds = std::max(1e-6, static_cast<double>(now_us() - batch_started_us_) / 1e6);
  if (prompt_tokens > 0) {
    // Chunks of several prompts count as one at their middle.
    size_t depth = 0;
    for (const Chunk& chunk : chunks_) depth += chunk.tokens * reading_[chunk.index]->read;
    const std::lock_guard lock(mutex_);
    speed_.observe(depth / prompt_tokens, prompt_tokens, seconds * 1000);
  }
  if (prompt_tokens >= kSpeedSampleTokens) blend(counters_.read_tokens_per_s, static_cast<double>(prompt_tokens) / seconds);
  counters_.tokens_read += prompt_tokens;

  deliver_streams();
  if (streams > 0 && prompt_tokens == 0) {
    const double each = static_cast<double>(counters_.tokens_written - written_before) / static_cast<double>(streams);
    blend(counters_.write_tokens_per_s, each / seconds);
  }
  deliver_paths(forks);
  deliver_chunks();
  active_.remove_if([](const auto& item) { return item->sequence < 0; });
}

void Scheduler::deliver_streams() {
  for (auto& entry : active_) {
    Item& item = *entry;
    if (item.state != Item::State::kWriting || item.row < 0) continue;
    const int row = item.row;
    const Token before = item.writer->last_token();
    const Tokens draft = std::move(item.draft);
    item.draft.clear();
    item.pending.push_back(before);
    size_t accepted = 0;
    for (;;) {
      item.row = row + static_cast<int>(accepted);
      after_prompt(item);
      if (item.sequence < 0 || accepted == draft.size() || item.writer->last_token() != draft[accepted]) break;
      item.pending.push_back(draft[accepted++]);
    }
    if (item.sequence < 0) continue;
    counters_.tokens_drafted += draft.size();
    counters_.tokens_draft_accepted += accepted;
    if (item.guesses) item.guesses->judge(draft.size(), accepted);
    if (accepted == draft.size()) {
      // All that was read stands.
      item.read += item.pending.size();
      item.pending.clear();
      if (item.draft_sequence >= 0) {
        runtime_.drop(item.sequence);
        give_back(item.sequence);
        item.sequence = std::exchange(item.draft_sequence, -1);
      }
    } else if (runtime_.can_cut()) {
      item.read += item.pending.size();
      item.pending.clear();
      runtime_.cut(item.sequence, item.read);
    } else {
      runtime_.drop(item.draft_sequence);
      give_back(std::exchange(item.draft_sequence, -1));
    }
  }
}

// The logits at item.row decide what comes next: a token, or the branches of the labels.
void Scheduler::after_prompt(Item& item) {
  const float* logits = runtime_.logits(item.row);
  const std::span<const float> hidden = item.is_score() ? std::span<const float>() : runtime_.hidden(item.row);
  item.row = -1;
  if (logits == nullptr) {
    finish(item, {ErrorCode::kInternal, "the model gave no logits", {}, 0});
    return;
  }
  if (item.is_score()) {
    const LabelTrie& trie = *item.job->trie;
    if (trie.root_branch() >= 0) {
      item.log_probabilities[trie.root_branch()] =
          log_softmax_over(logits, trie.branches()[trie.root_branch()].choices, vocab_.end_tokens());
    }
    if (trie.paths().empty()) {
      finish_score_item(item);
    } else {
      item.state = Item::State::kPaths;
    }
    return;
  }
  if (item.state == Item::State::kReading) {
    item.state = Item::State::kWriting;
    item.first_token_ms = clock_.now_ms();
    if (options_.draft_tokens > 0) item.guesses = options_.make_draft(item.prompt.tokens);
  }
  const size_t context = static_cast<size_t>(runtime_.info().context_tokens);
  const bool last = item.read + item.pending.size() + 1 >= context;
  auto step = item.writer->write(logits, last);
  if (!step) {
    finish(item, step.error());
    return;
  }
  ++counters_.tokens_written;
  if (item.guesses) item.guesses->push(item.writer->last_token(), hidden);
  if (!step->chunk.text.empty() || !step->chunk.logprobs.empty()) item.sink->on_chunk(std::move(step->chunk));
  if (step->finished) finish_generate(item, step->reason);
}

void Scheduler::deliver_paths(const std::vector<Fork>& forks) {
  for (const Fork& fork : forks) {
    Item& item = *fork.item;
    const LabelTrie& trie = *item.job->trie;
    const LabelTrie::Path& path = trie.paths()[fork.path];
    for (size_t index = 0; index < path.ask.size(); ++index) {
      const int branch = path.ask[index].second;
      if (const float* logits = runtime_.logits(fork.rows[index])) {
        item.log_probabilities[branch] = log_softmax_over(logits, trie.branches()[branch].choices, vocab_.end_tokens());
      }
    }
    runtime_.drop(fork.sequence);
    give_back(fork.sequence);
    if (++item.paths_done == trie.paths().size()) finish_score_item(item);
  }
}

void Scheduler::deliver_chunks() {
  for (const Chunk& chunk : chunks_) {
    Item& item = *reading_[chunk.index];
    item.read += chunk.tokens;
    {
      const std::lock_guard lock(mutex_);
      queued_tokens_ -= static_cast<int64_t>(chunk.tokens);
    }
    if (!item.stops.empty() && item.stops.front() == item.read) {
      item.stops.erase(item.stops.begin());
      keep_checkpoint(item);
    }
    if (item.remaining() == 0) after_prompt(item);
  }
}

void Scheduler::keep_checkpoint(Item& item) {
  const std::span<const Token> prefix(item.prompt.tokens.data(), item.read);
  if (!checkpoints_.contains(prefix)) {
    auto state = runtime_.save(item.sequence);
    if (!state) {
      log_warn("checkpoint_failed", {{"reason", state.error().message}});
      return;
    }
    if (checkpoints_.add(prefix, *std::move(state), item.prompt.pinned)) ++counters_.checkpoints_made;
  }
  if (options_.deterministic) return;
  // Others wait for this prefix: they fork from the cells as they are.
  const bool wanted = std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& other) {
    return other->prompt.tokens.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), other->prompt.tokens.begin());
  });
  if (!wanted) return;
  if (residents_.size() >= kMostResidents) drop_idle_residents(true);
  if (residents_.size() >= kMostResidents || free_sequences_.size() < 2) return;
  const int sequence = take_sequence();
  runtime_.fork(item.sequence, sequence);
  residents_.push_back({sequence, Tokens(prefix.begin(), prefix.end())});
}

}  // namespace pocketfleet
