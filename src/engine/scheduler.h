// The loop that owns the model: takes what is new, drops what is gone, builds one batch (a token for every stream first, then
// label paths, then prompt tokens), runs it, delivers. submit() may be called from any thread; run() is the engine's thread and
// the only one that touches the runtime. Every accepted job ends in exactly one on_done(). The queue is bounded.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "engine/batch_policy.h"
#include "engine/checkpoints.h"
#include "engine/draft.h"
#include "engine/embed_work.h"
#include "engine/label_trie.h"
#include "engine/llama_runtime.h"
#include "engine/read_speed.h"
#include "engine/types.h"
#include "engine/vocab.h"
#include "engine/waiting_line.h"
#include "engine/writer.h"

namespace pocketfleet {

struct SchedulerOptions {
  size_t queue_limit = 64;  // requests that may wait
  size_t checkpoint_ram_bytes = 256u << 20;
  size_t checkpoint_gain_tokens = 16;  // a fixed part shorter than this is not worth a checkpoint
  size_t turn_gain_tokens = 256;       // the same for the end of a chat turn, which fewer requests go on from
  int64_t stream_gap_ms = 250;
  int64_t chunk_ms = 10'000;
  // The same request gives the same bits whatever else there is to do: one request at a time, in an empty cache, read in pieces
  // that the prompt alone decides.
  bool deterministic = false;
  // Guessed ahead of a stream and verified together; 0: no guessing.
  size_t draft_tokens = 0;
  MakeDraft make_draft;
};

class Scheduler {
 public:
  // `shelf` and `embedder` may be null; they must outlive the scheduler.
  Scheduler(LlamaRuntime& runtime, const Vocab& vocab, SchedulerOptions options, const Clock& clock, double read_tokens_per_s,
            CheckpointShelf* shelf = nullptr, Embedder* embedder = nullptr);
  ~Scheduler();

  Result<void> submit(GenerateRequest request, std::shared_ptr<GenerateSink> sink);
  Result<void> submit(ScoreRequest request, std::shared_ptr<ScoreSink> sink);
  Result<void> submit(EmbedRequest request, std::shared_ptr<EmbedSink> sink);

  void run();   // returns after stop()
  void stop();  // from any thread; ends what runs with kUnavailable

  EngineCounters counters() const;
  // running, queued, queued_tokens; the rest is left as it is.
  void fill(EngineStatus& status) const;

 private:
  struct ScoreJob;
  struct Item;
  struct Resident;
  struct Fork;
  using Items = std::list<std::unique_ptr<Item>>;

  // Taking in and letting go.
  // mutex_ is held for both. The predicted wait, or kTooLate.
  Result<void> check_room();
  Result<int64_t> check_in_time(int64_t deadline_ms, size_t longest_tokens, int64_t own_ms) const;
  int64_t expected_ms(const Prompt& prompt) const;
  void take_inbox();
  bool gone(const Item& item, int64_t now_ms) const;
  void drop_gone();
  void finish(Item& item, const Error& error);
  void finish_generate(Item& item, FinishReason reason);
  void finish_score_item(Item& item);
  void release(Item& item);

  // Admission: from waiting to reading.
  void admit();
  std::vector<Items::iterator> next_in_line();
  bool try_admit(Item& item);
  void admit_alone(Item& item);
  void begin_reading(Item& item, size_t base_tokens);
  bool must_wait_for_prefix(const Item& item, size_t base_tokens) const;
  size_t cells_needed(const Item& item, size_t shared_tokens) const;
  void plan_stops(Item& item, size_t base_tokens);
  int take_sequence();
  void give_back(int sequence);
  Resident* find_resident(const Tokens& tokens);
  Resident* make_resident(const Tokens& tokens, const StateBytes& state);
  void drop_idle_residents(bool all);

  // One turn of the loop.
  void turn();
  void add_streams();
  void add_stream(Item& item, size_t draft_room);
  void add_paths(std::vector<Fork>& forks);
  void add_chunks();
  bool run_batch();
  bool nobody_waits_for_batch() const;
  void deliver_streams();
  void deliver_paths(const std::vector<Fork>& forks);
  void deliver_chunks();
  void keep_checkpoint(Item& item);
  void after_prompt(Item& item);
  void fail_all(const Error& error);
  void publish();

  LlamaRuntime& runtime_;
  const Vocab& vocab_;
  const SchedulerOptions options_;
  const Clock& clock_;

  // Shared with submit().
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Item>> inbox_;
  std::deque<std::shared_ptr<ScoreJob>> score_inbox_;
  size_t waiting_requests_ = 0;
  std::atomic<bool> stopping_{false};  // written under the mutex
  EngineCounters published_;
  int running_ = 0;
  int64_t queued_tokens_ = 0;
  ReadSpeed speed_;
  WaitingLine inbox_line_;  // what stands in the inbox
  WaitingLine line_;        // what the engine's thread has taken in

  // The engine's thread only.
  Items waiting_;
  Items active_;
  std::list<Resident> residents_;
  std::vector<int> free_sequences_;
  CheckpointShelf* const shelf_;
  const std::unique_ptr<EmbedWork> embeddings_;  // null: the model does not pool
  CheckpointStore checkpoints_;
  EngineCounters counters_;
  std::vector<Chunk> chunks_;
  std::vector<Item*> reading_;
  size_t outputs_ = 0;
  int64_t batch_started_us_ = 0;
};

}  // namespace pocketfleet
