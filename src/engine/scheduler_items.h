// What the scheduler keeps about its work; private to scheduler*.cpp. All of it belongs to the engine's thread once taken in.
#pragma once

#include <memory>
#include <vector>

#include "engine/scheduler.h"

namespace pocketfleet {

// Prefixes that may lie in the KV cache for others at a time.
constexpr size_t kMostResidents = 2;

// A request for scores; its inputs are items of their own.
struct Scheduler::ScoreJob {
  ScoreRequest request;
  std::shared_ptr<ScoreSink> sink;
  std::unique_ptr<LabelTrie> trie;
  size_t left = 0;       // inputs that have not ended
  bool ended = false;    // on_done was called
  bool started = false;  // an input has left the queue
  Usage usage;
  int64_t submitted_ms = 0;
  int64_t first_started_ms = 0;
};

// A prefix that lies in the KV cache for others to fork from.
struct Scheduler::Resident {
  int sequence = -1;
  Tokens tokens;
};

// A label path that is read in this batch, forked from its item.
struct Scheduler::Fork {
  Item* item = nullptr;
  size_t path = 0;
  int sequence = -1;
  std::vector<int> rows;  // one for each ask of the path
};

// One prompt on its way: waiting, reading, then writing (generate) or reading label paths (score).
struct Scheduler::Item {
  enum class State { kWaiting, kReading, kWriting, kPaths };

  State state = State::kWaiting;
  Prompt prompt;
  Priority priority = Priority::kInteractive;
  CancelToken cancel;
  int64_t deadline_ms = 0;
  int64_t submitted_ms = 0;
  int64_t started_ms = 0;  // when its first tokens went into a batch
  int64_t predicted_wait_ms = 0;
  int64_t expected_ms = 0;  // of reading it
  int64_t first_token_ms = 0;

  int sequence = -1;
  size_t read = 0;  // tokens in the sequence
  size_t reused = 0;
  size_t cells = 0;                // reserved in the KV cache
  std::vector<size_t> stops;       // where checkpoints are to be made, ascending, all > read
  const void* resident = nullptr;  // the sequence it forked from, for counting users
  int row = -1;                    // of its logits in this batch

  // Generate.
  GenerateRequest generate;
  std::shared_ptr<GenerateSink> sink;
  std::unique_ptr<Writer> writer;
  // Guessing. `pending`: tokens that are written but not in the sequence, because they stood behind a wrong guess.
  std::unique_ptr<Draft> guesses;
  Tokens draft;  // in this batch, behind the last token
  Tokens pending;
  int draft_sequence = -1;  // where the guess is read, if it cannot be cut off again

  // Score.
  std::shared_ptr<ScoreJob> job;
  size_t index = 0;
  size_t next_path = 0;
  size_t paths_done = 0;
  std::vector<std::vector<double>> log_probabilities;  // by branch

  bool is_score() const { return job != nullptr; }
  size_t remaining() const { return read < prompt.tokens.size() ? prompt.tokens.size() - read : 0; }
};

}  // namespace pocketfleet
