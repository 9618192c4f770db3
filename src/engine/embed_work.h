// Requests for embeddings on their way: a bounded queue, and one call of the model at a time, packed from what waits. submit()
// may be called from any thread; the rest belongs to the engine's thread. Every accepted request ends in exactly one on_done().
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "engine/embedder.h"
#include "engine/types.h"

namespace pocketfleet {

class EmbedWork {
 public:
  // Both must outlive it.
  EmbedWork(Embedder& embedder, const Clock& clock, size_t queue_limit);
  ~EmbedWork();

  // kQueueFull, kContextLengthExceeded with both counts, kInvalidArgument for an input without tokens.
  Result<void> submit(EmbedRequest request, std::shared_ptr<EmbedSink> sink);
  bool idle() const;
  size_t waiting() const;

  // Reads one batch of what waits. `stopping` is asked meanwhile.
  void turn(const std::atomic<bool>& stopping);
  void fail_all(const Error& error);

 private:
  struct Job;
  std::shared_ptr<Job> front();
  void end(const std::shared_ptr<Job>& job, Result<Usage> done);

  Embedder& embedder_;
  const Clock& clock_;
  const size_t queue_limit_;
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Job>> jobs_;
};

}  // namespace pocketfleet
