// Owns the llama.cpp model and context: loading with progress, a batch under construction, sequences, saved states. Not
// thread-safe: the engine's thread uses it, but for vocab(), which may be read from any thread once loaded. Errors of llama.cpp
// come out as Result.
#pragma once

#include <llama.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoints.h"
#include "engine/types.h"

namespace pocketfleet {

struct RuntimeOptions {
  std::string model_path;
  std::shared_ptr<llama_model> model;  // of another runtime, to be used instead of loading the file again
  int context_tokens = 0;              // of one request; 0: the trained length, at most 8,192
  int slots = 4;
  int threads = 0;           // 0: one a core
  int batch_tokens = 512;    // tokens in one call of the model
  int score_sequences = -1;  // further sequences for labelling; -1: as many as cost little memory
  ggml_type kv_type = GGML_TYPE_F16;
  bool flash_attention = true;
  bool kernels = true;      // our own instead of ggml-cpu's, where they suit; as `model` was loaded
  bool draft_head = false;  // load the model's draft head and keep what it wants to know
};

class LlamaRuntime {
 public:
  // `progress(0..1)` returns false to give up. kInvalidModel when llama.cpp refuses the file, kOutOfMemory when a buffer cannot
  // be had.
  static Result<std::unique_ptr<LlamaRuntime>> load(const RuntimeOptions& options, const std::function<bool(float)>& progress);
  // The vocabulary and the chat template alone: nothing can be read or written with it.
  static Result<std::unique_ptr<LlamaRuntime>> load_vocabulary(const std::string& model_path);
  ~LlamaRuntime();
  LlamaRuntime(const LlamaRuntime&) = delete;
  LlamaRuntime& operator=(const LlamaRuntime&) = delete;

  const llama_vocab* vocab() const { return vocab_; }
  const llama_model* model() const { return model_.get(); }
  llama_model* model() { return model_.get(); }
  std::shared_ptr<llama_model> share_model() const { return model_; }
  const ModelInfo& info() const { return info_; }
  int threads() const { return threads_; }
  int sequences() const { return sequences_; }
  size_t cells() const { return cells_; }  // of the KV cache, shared by all sequences
  size_t batch_tokens() const { return batch_tokens_; }
  size_t max_outputs() const { return max_outputs_; }  // logits rows in one batch
  // True when a state can be cut back to any earlier token (plain attention); false for recurrent and hybrid models.
  bool can_cut() const { return can_cut_; }

  // The batch. add() returns the row to give to logits() after decode() when `want_logits`.
  void batch_clear();
  int batch_size() const { return batch_.n_tokens; }
  int batch_add(Token token, int position, int sequence, bool want_logits);
  // Runs the batch. kOutOfMemory when the KV cache has no room for it: then nothing was changed. `give_up` is asked many times
  // meanwhile; once it says true, the call ends with kCancelled, and the sequences of the batch can only be dropped.
  Result<void> decode(const std::function<bool()>& give_up = {});
  const float* logits(int row) const;
  // What the last layer came to at that row; empty without RuntimeOptions::draft_head.
  std::span<const float> hidden(int row) const;

  // Sequences.
  void drop(int sequence);
  void fork(int from, int to);            // `to` must be empty
  bool cut(int sequence, size_t tokens);  // keeps the first tokens; only if can_cut()
  Result<StateBytes> save(int sequence);
  Result<void> restore(int sequence, const StateBytes& state);  // the sequence must be empty
  void clear();
  void reset();  // forgets where the last cell was; the cache must be empty

  // Reads a whole batch of anything, so that every buffer is touched. Returns tokens per second.
  Result<double> warm_up();

 private:
  LlamaRuntime() = default;
  struct ContextDeleter {
    void operator()(llama_context* context) const { llama_free(context); }
  };

  std::shared_ptr<llama_model> model_;
  std::unique_ptr<llama_context, ContextDeleter> context_;
  const llama_vocab* vocab_ = nullptr;
  llama_memory_t memory_ = nullptr;
  llama_batch batch_{};
  const std::function<bool()>* give_up_ = nullptr;  // of the decode() that runs
  ModelInfo info_;
  int threads_ = 1;
  int sequences_ = 0;
  size_t cells_ = 0;
  size_t batch_tokens_ = 0;
  size_t max_outputs_ = 0;
  bool can_cut_ = false;
  bool draft_head_ = false;
};

}  // namespace pocketfleet
