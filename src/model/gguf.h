// What a model file is, found with our own checks before llama.cpp sees it: llama.cpp aborts the process on some of what a
// damaged or hostile file may hold, so everything known to do that is refused here. Nothing is loaded: the file is mapped and its
// head is read. Any thread. Errors: kIo for the file, kInvalidModel for what is in it; each says which file and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pocketfleet {

// What one layer keeps for the tokens that it has read: numbers a token (attention) or a sequence (recurrent).
struct LayerState {
  uint64_t key_numbers = 0;
  uint64_t value_numbers = 0;
  uint64_t recurrent_numbers = 0;
};

struct TypeShare {
  std::string type;  // "q4_0"
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

struct ModelSummary {
  std::string path;
  std::string architecture;
  std::string name;
  std::string quantisation;  // of most bytes
  std::string tokenizer;
  std::string chat_template;
  uint64_t parameters = 0;
  uint64_t file_bytes = 0;    // of all parts
  uint64_t tensor_bytes = 0;  // of all parts
  uint64_t draft_bytes = 0;   // of them, the draft head's, which are not loaded unless it is asked for
  uint64_t tensors = 0;
  int parts = 1;
  uint64_t context_tokens = 0;  // trained
  uint64_t embedding = 0;
  uint64_t feed_forward = 0;  // the widest layer's
  uint64_t vocabulary = 0;
  uint64_t heads = 0;                    // the widest layer's
  uint64_t attention_dims = 0;           // the widest layer's heads x dimensions
  uint64_t recurrent_dims = 0;           // of a recurrent layer's values
  uint64_t convolved = 0;                // numbers a token that a recurrent layer convolves
  bool pools = false;                    // says how embeddings are made
  bool recurrent = false;                // some layers keep a state that cannot be cut back to an earlier token
  std::vector<LayerState> layers;        // those that every token goes through
  std::vector<LayerState> draft_layers;  // of the draft head, if there is one
  std::vector<TypeShare> types;          // most bytes first
};

// Also reads the further parts of a model that is split over files (-00001-of-00003.gguf).
Result<ModelSummary> inspect_gguf(const std::string& path);

// The same for bytes in memory; `path` only for messages. Parts are not looked for.
Result<ModelSummary> inspect_gguf_bytes(std::string_view bytes, const std::string& path);

// kInvalidModel when the file is sound but cannot write text: no weights, no tokenizer, an encoder.
Result<void> check_servable(const ModelSummary& summary);

// "qwen35 0.8B q4_0, 24 layers, trained on 262,144 tokens, 461 MiB"
std::string describe(const ModelSummary& summary);

// What tells two chat templates apart: SHA-256 as lower-case hex; empty when there is none.
std::string template_digest(const ModelSummary& summary);

// "461 MiB"; one digit after the point below 10.
std::string format_bytes(uint64_t bytes);

}  // namespace pocketfleet
