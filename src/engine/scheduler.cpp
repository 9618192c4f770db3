#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "engine/scheduler_items.h"

namespace pocketfleet {

namespace {

constexpr int kMostRetryAfter_s = 120;
// A request is refused only when it would be late by more than what an estimate may be wrong.
constexpr double kBenefitOfDoubt = 0.8;

Error gone_error(const CancelToken& cancel, int64_t deadline_ms, int64_t now_ms) {
  if (cancel.cancelled()) return {ErrorCode::kCancelled, "the caller has gone", {}, 0};
  return {ErrorCode::kDeadlineExceeded, fmt::format("the deadline passed {} ms ago", now_ms - deadline_ms), {}, 0};
}

}  // namespace

Scheduler::Scheduler(LlamaRuntime& runtime, const Vocab& vocab, SchedulerOptions options, const Clock& clock,
                     double read_tokens_per_s, CheckpointShelf* shelf, Embedder* embedder)
    : runtime_(runtime),
      vocab_(vocab),
      options_(std::move(options)),
      clock_(clock),
      speed_(read_tokens_per_s),
      shelf_(shelf),
      embeddings_(embedder == nullptr ? nullptr : std::make_unique<EmbedWork>(*embedder, clock, options_.queue_limit)),
      checkpoints_(options_.checkpoint_ram_bytes, shelf) {
  for (int sequence = runtime.sequences() - 1; sequence >= 0; --sequence) free_sequences_.push_back(sequence);
  counters_.read_tokens_per_s = read_tokens_per_s;
  published_ = counters_;
}

Scheduler::~Scheduler() = default;

namespace {

Result<void> check_prompt(const Tokens& tokens, int context_tokens, int wanted_tokens) {
  if (tokens.empty()) return fail(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  if (tokens.size() + static_cast<size_t>(wanted_tokens) > static_cast<size_t>(context_tokens)) {
    return fail(
        ErrorCode::kContextLengthExceeded,
        fmt::format("This model's maximum context length is {} tokens. The prompt has {} tokens{}. Shorten the prompt, or serve "
                    "with a larger --ctx.",
                    context_tokens, tokens.size(),
                    wanted_tokens > 1 ? fmt::format(" and {} more are to be written", wanted_tokens) : std::string()));
  }
  return {};
}

}  // namespace

Result<void> Scheduler::check_room() {
  if (stopping_) return fail(ErrorCode::kUnavailable, "the server is stopping");
  if (waiting_requests_ >= options_.queue_limit) {
    ++published_.rejected;
    const double speed = std::max(published_.read_tokens_per_s, 1.0);
    const int retry = std::clamp(static_cast<int>(static_cast<double>(queued_tokens_) / speed) + 1, 1, kMostRetryAfter_s);
    return fail(
        Error{ErrorCode::kQueueFull,
              fmt::format("{} requests are waiting, which is all the queue holds; try again in {} s", waiting_requests_, retry),
              {},
              retry});
  }
  return {};
}

// What a prompt will take to be read, if what is declared to be fixed lies in a checkpoint.
int64_t Scheduler::expected_ms(const Prompt& prompt) const {
  return speed_.estimate_ms(prompt.checkpoints.empty() ? 0 : prompt.checkpoints.front(), prompt.tokens.size());
}

Result<int64_t> Scheduler::check_in_time(int64_t deadline_ms, size_t longest_tokens, int64_t own_ms) const {
  const int64_t batch_ms = std::min(speed_.estimate_ms(0, runtime_.batch_tokens()), options_.chunk_ms);
  const int64_t wait_ms = line_.ahead_ms(longest_tokens, batch_ms) + inbox_line_.ahead_ms(longest_tokens, batch_ms);
  const int64_t patience_ms = deadline_ms - clock_.now_ms();
  // One that has passed already is seen to with all others that are gone.
  if (deadline_ms <= 0 || patience_ms <= 0) return wait_ms;
  const auto in_time = [&](int64_t ms) { return static_cast<double>(ms) * kBenefitOfDoubt <= static_cast<double>(patience_ms); };
  if (!in_time(own_ms)) {
    return fail(
        Error{ErrorCode::kTooLate,
              fmt::format("reading this prompt takes about {} s here, and its caller waits for {} s: wait longer (timeout), "
                          "or send it in a batch",
                          (own_ms + 999) / 1000, patience_ms / 1000),
              {},
              0});
  }
  if (!in_time(wait_ms + own_ms)) {
    const int64_t late_s = (wait_ms + own_ms - patience_ms + 999) / 1000;
    const int retry = static_cast<int>(std::clamp<int64_t>(late_s, 1, kMostRetryAfter_s));
    return fail(
        Error{ErrorCode::kTooLate,
              fmt::format("the answer would come in about {} s, {} s of which is the wait for others, and its caller waits "
                          "for {} s; try again in {} s",
                          (wait_ms + own_ms + 999) / 1000, (wait_ms + 999) / 1000, patience_ms / 1000, retry),
              {},
              retry});
  }
  return wait_ms;
}

Result<void> Scheduler::submit(GenerateRequest request, std::shared_ptr<GenerateSink> sink) {
  // At least one token must fit behind the prompt; a max_tokens that reaches past the end of the context is cut there.
  PF_CHECK_OK(check_prompt(request.prompt.tokens, runtime_.info().context_tokens, 1));
  auto item = std::make_unique<Item>();
  item->prompt = std::move(request.prompt);
  item->priority = request.priority;
  item->cancel = request.cancel;
  item->deadline_ms = request.deadline_ms;
  item->submitted_ms = clock_.now_ms();
  PF_TRY(item->writer, Writer::create(vocab_, request, item->prompt.tokens));
  item->generate = std::move(request);
  item->sink = std::move(sink);

  const std::lock_guard lock(mutex_);
  PF_CHECK_OK(check_room());
  item->expected_ms = expected_ms(item->prompt);
  PF_TRY(item->predicted_wait_ms, check_in_time(item->generate.admit_by_ms > 0 ? item->generate.admit_by_ms : item->deadline_ms,
                                                item->prompt.tokens.size(), item->expected_ms));
  inbox_line_.add(item->prompt.tokens.size(), item->expected_ms);
  ++waiting_requests_;
  queued_tokens_ += static_cast<int64_t>(item->prompt.tokens.size());
  inbox_.push_back(std::move(item));
  wake_.notify_one();
  return {};
}

Result<void> Scheduler::submit(ScoreRequest request, std::shared_ptr<ScoreSink> sink) {
  auto job = std::make_shared<ScoreJob>();
  job->trie = std::make_unique<LabelTrie>(request.labels->labels);
  size_t longest_path = 0;
  for (const LabelTrie::Path& path : job->trie->paths()) longest_path = std::max(longest_path, path.tokens.size());
  int64_t tokens = 0;
  for (const Prompt& input : request.inputs) {
    PF_CHECK_OK(check_prompt(input.tokens, runtime_.info().context_tokens, static_cast<int>(longest_path)));
    tokens += static_cast<int64_t>(input.tokens.size());
  }
  if (request.inputs.empty()) return fail(ErrorCode::kInvalidArgument, "there is no input");
  job->left = request.inputs.size();
  job->request = std::move(request);
  job->sink = std::move(sink);
  job->submitted_ms = clock_.now_ms();

  const std::lock_guard lock(mutex_);
  PF_CHECK_OK(check_room());
  int64_t own_ms = 0;
  size_t longest_tokens = 0;
  for (const Prompt& input : job->request.inputs) {
    own_ms += expected_ms(input);
    longest_tokens = std::max(longest_tokens, input.tokens.size());
  }
  PF_TRY(
      job->usage.predicted_wait_ms,
      check_in_time(job->request.admit_by_ms > 0 ? job->request.admit_by_ms : job->request.deadline_ms, longest_tokens, own_ms));
  inbox_line_.add(longest_tokens, own_ms);
  ++waiting_requests_;
  queued_tokens_ += tokens;
  score_inbox_.push_back(std::move(job));
  wake_.notify_one();
  return {};
}

Result<void> Scheduler::submit(EmbedRequest request, std::shared_ptr<EmbedSink> sink) {
  if (!embeddings_) {
    return fail(ErrorCode::kUnsupportedParameter,
                "this model says nothing of how to pool, so it gives no embeddings; serve one made for them, or say --pooling",
                "model");
  }
  const std::lock_guard lock(mutex_);
  if (stopping_) return fail(ErrorCode::kUnavailable, "the server is stopping");
  PF_CHECK_OK(embeddings_->submit(std::move(request), std::move(sink)));
  wake_.notify_one();
  return {};
}

void Scheduler::take_inbox() {
  std::deque<std::unique_ptr<Item>> items;
  std::deque<std::shared_ptr<ScoreJob>> jobs;
  {
    const std::lock_guard lock(mutex_);
    items.swap(inbox_);
    jobs.swap(score_inbox_);
    inbox_line_.clear();
  }
  const auto expect = [&](Item& item) {
    const Checkpoint* known = checkpoints_.peek(item.prompt.tokens);
    item.expected_ms = speed_.estimate_ms(known == nullptr ? 0 : known->tokens.size(), item.prompt.tokens.size());
  };
  for (auto& item : items) {
    expect(*item);
    waiting_.push_back(std::move(item));
  }
  for (const auto& job : jobs) {
    // Neighbours of like length share batches well.
    std::vector<size_t> order(job->request.inputs.size());
    for (size_t index = 0; index < order.size(); ++index) order[index] = index;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return job->request.inputs[a].tokens.size() < job->request.inputs[b].tokens.size();
    });
    for (const size_t index : order) {
      auto item = std::make_unique<Item>();
      item->prompt = std::move(job->request.inputs[index]);
      item->priority = job->request.priority;
      item->cancel = job->request.cancel;
      item->deadline_ms = job->request.deadline_ms;
      item->submitted_ms = job->submitted_ms;
      item->job = job;
      item->index = index;
      item->log_probabilities.resize(job->trie->branches().size());
      expect(*item);
      waiting_.push_back(std::move(item));
    }
  }
}

bool Scheduler::gone(const Item& item, int64_t now_ms) const {
  return item.cancel.cancelled() || (item.deadline_ms > 0 && now_ms >= item.deadline_ms);
}

void Scheduler::drop_gone() {
  const int64_t now_ms = clock_.now_ms();
  for (Items* items : {&waiting_, &active_}) {
    for (auto it = items->begin(); it != items->end();) {
      Item& item = **it;
      if (gone(item, now_ms)) {
        finish(item, gone_error(item.cancel, item.deadline_ms, now_ms));
        it = items->erase(it);
      } else {
        ++it;
      }
    }
  }
}

void Scheduler::release(Item& item) {
  if (item.sequence >= 0) {
    runtime_.drop(item.sequence);
    give_back(item.sequence);
    item.sequence = -1;
  }
  if (item.draft_sequence >= 0) {
    runtime_.drop(item.draft_sequence);
    give_back(std::exchange(item.draft_sequence, -1));
  }
  item.writer.reset();
  const bool left_queue =
      item.state == Item::State::kWaiting && (!item.is_score() || (!item.job->started && item.job->left == 1));
  const std::lock_guard lock(mutex_);
  queued_tokens_ -= static_cast<int64_t>(item.remaining());
  if (left_queue) --waiting_requests_;
}

void Scheduler::finish(Item& item, const Error& error) {
  release(item);
  const auto count = [&] {
    if (error.code == ErrorCode::kCancelled) ++counters_.cancelled;
    if (error.code == ErrorCode::kDeadlineExceeded) ++counters_.expired;
  };
  if (!item.is_score()) {
    count();
    item.sink->on_done(fail(error));
    return;
  }
  --item.job->left;
  if (item.job->ended) return;
  item.job->ended = true;
  // The other inputs are of no use to anybody now.
  item.job->request.cancel.cancel();
  count();
  item.job->sink->on_done(fail(error));
}

void Scheduler::finish_generate(Item& item, FinishReason reason) {
  GenerateDone done;
  done.reason = reason;
  done.stop = item.writer->matched_stop();
  done.usage.prompt_tokens = static_cast<int>(item.prompt.tokens.size());
  done.usage.cached_tokens = static_cast<int>(item.reused);
  done.usage.written_tokens = item.writer->written();
  done.usage.predicted_wait_ms = item.predicted_wait_ms;
  done.usage.wait_ms = item.started_ms - item.submitted_ms;
  done.usage.read_ms = item.first_token_ms - item.started_ms;
  done.usage.write_ms = clock_.now_ms() - item.first_token_ms;
  release(item);
  item.sink->on_done(std::move(done));
}

void Scheduler::finish_score_item(Item& item) {
  ScoreJob& job = *item.job;
  Usage& usage = job.usage;
  const int64_t now_ms = clock_.now_ms();
  usage.prompt_tokens += static_cast<int>(item.prompt.tokens.size());
  usage.cached_tokens += static_cast<int>(item.reused);
  release(item);
  --job.left;
  if (job.ended) return;
  job.sink->on_item(item.index, job.trie->combine(item.log_probabilities));
  if (job.left > 0) return;
  usage.read_ms = now_ms - job.submitted_ms - usage.wait_ms;
  job.ended = true;
  job.sink->on_done(usage);
}

void Scheduler::fail_all(const Error& error) {
  for (Items* items : {&active_, &waiting_}) {
    for (auto& item : *items) finish(*item, error);
    items->clear();
  }
}

void Scheduler::publish() {
  counters_.checkpoints = checkpoints_.count();
  counters_.checkpoint_bytes = checkpoints_.bytes();
  counters_.checkpoints_evicted = checkpoints_.evicted();
  if (shelf_ != nullptr) counters_.shelf = shelf_->counters();
  WaitingLine line;
  for (const auto& item : waiting_) line.add(item->prompt.tokens.size(), item->expected_ms);
  for (const auto& item : active_) {
    if (item->state == Item::State::kReading)
      line.add(item->remaining(), speed_.estimate_ms(item->read, item->prompt.tokens.size()));
  }
  const std::lock_guard lock(mutex_);
  line_ = line;
  const uint64_t rejected = published_.rejected;
  published_ = counters_;
  published_.rejected = rejected;
  running_ = static_cast<int>(active_.size());
}

EngineCounters Scheduler::counters() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

void Scheduler::fill(EngineStatus& status) const {
  const std::lock_guard lock(mutex_);
  status.running = running_;
  status.queued = static_cast<int>(waiting_requests_ + (embeddings_ ? embeddings_->waiting() : 0));
  status.queued_tokens = queued_tokens_;
}

void Scheduler::run() {
  for (;;) {
    take_inbox();
    drop_gone();
    admit();
    publish();
    const bool embeds = embeddings_ && !embeddings_->idle();
    if (active_.empty() && !embeds) {
      std::unique_lock lock(mutex_);
      if (stopping_) break;
      if (inbox_.empty() && score_inbox_.empty() && (!embeddings_ || embeddings_->idle())) {
        // What waits but could not be admitted can only be waiting for its caller or its deadline.
        wake_.wait_for(lock, std::chrono::milliseconds(waiting_.empty() ? 1000 : 20));
      }
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    // In turn, so that neither starves.
    if (!active_.empty()) turn();
    if (embeds) embeddings_->turn(stopping_);
  }
  take_inbox();
  const Error stopped{ErrorCode::kUnavailable, "the server is stopping", {}, 0};
  fail_all(stopped);
  if (embeddings_) embeddings_->fail_all(stopped);
  publish();
}

void Scheduler::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

}  // namespace pocketfleet
