// The Engine on llama.cpp. make_llama_engine() returns at once; the model is loaded on the engine's own thread, which then runs
// the scheduler, and status() tells how far it is or why it failed. Destroying it stops the thread. Safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"

namespace pocketfleet {

// What guesses ahead of streams: nothing, the text itself, or the model's own draft head.
enum class Speculation { kNone, kNgram, kMtp };

struct LlamaEngineOptions {
  std::string model_path;
  int context_tokens = 0;   // of one request; 0: the trained length, at most 8,192
  int slots = 4;            // requests that write at the same time
  int threads = 0;          // 0: one a core, or one of `cpus` each
  std::vector<int> cpus;    // that the threads are held to; empty: any
  int batch_tokens = 512;   // tokens in one call of the model
  size_t queue_limit = 64;  // requests that may wait
  size_t checkpoint_ram_bytes = 256u << 20;
  std::string checkpoint_folder;       // where checkpoints outlive the process; empty: nowhere
  uint64_t checkpoint_disk_bytes = 0;  // what they may take there
  std::string kv_type = "f16";         // f32, f16, q8_0
  bool flash_attention = true;
  bool kernels = true;         // our own instead of ggml-cpu's, where they suit this processor
  bool deterministic = false;  // the same request gives the same bits, whatever else there is to do; one at a time
  Speculation speculation = Speculation::kNone;
  int draft_tokens = 0;           // guessed ahead of a stream and verified in one batch; 0: as many as suit the guesser
  std::string pooling = "model";  // how embeddings are made: as the model says, none, mean, first, last
  std::string chat_template;      // instead of the model's own
  bool vocabulary_only = false;   // makes prompts and tokens; generate() and score() are kUnavailable
};

std::unique_ptr<Engine> make_llama_engine(LlamaEngineOptions options, const Clock& clock = SystemClock::instance());

// The build of llama.cpp that this program was made with, for logs and checkpoint keys.
std::string llama_build();

}  // namespace pocketfleet
