// Turns token sequences into vectors with the model's own pooling, in a llama.cpp context of its own beside the one that writes:
// the weights are shared. For models that read from left to right. Not thread-safe: the engine's thread uses it. Errors of
// llama.cpp come out as Result.
#pragma once

#include <llama.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/types.h"

namespace pocketfleet {

// What a vector is taken from. kModel: as the model file says.
enum class Pooling { kModel, kNone, kMean, kFirst, kLast };

struct EmbedderOptions {
  int context_tokens = 0;
  int threads = 1;
  size_t batch_tokens = 512;
  Pooling pooling = Pooling::kModel;
  bool flash_attention = true;
  bool kernels = true;  // as the model was loaded
};

class Embedder {
 public:
  // Whether the model file, or `asked`, says how to pool. kInvalidArgument for a way that is not known here.
  static Result<Pooling> pooling_of(const llama_model* model, Pooling asked);
  // `options.pooling` as pooling_of() gave it, and not kNone. kOutOfMemory when no context can be had.
  static Result<std::unique_ptr<Embedder>> create(llama_model* model, const EmbedderOptions& options);
  ~Embedder();
  Embedder(const Embedder&) = delete;
  Embedder& operator=(const Embedder&) = delete;

  int dimensions() const { return dimensions_; }
  size_t context_tokens() const { return context_tokens_; }
  // How many of these inputs, from the first, go into one call: at least one.
  size_t fits(std::span<const Tokens* const> inputs) const;
  // One vector of length 1 for each input; all must fit. kCancelled once `give_up` says true.
  Result<std::vector<std::vector<float>>> embed(std::span<const Tokens* const> inputs, const std::function<bool()>& give_up);

  // A longer input is read in one call a piece, so that others come in between; no embed() may. What each token comes to depends
  // on those before it alone, so the pieces make up the whole's vector exactly.
  struct Piecewise {
    size_t read = 0;  // tokens
    std::vector<float> sum;
  };
  bool is_long(const Tokens& input) const { return input.size() > batch_tokens_; }
  // The vector once all is read, else nothing.
  Result<std::optional<std::vector<float>>> embed_piece(const Tokens& input, Piecewise& state,
                                                        const std::function<bool()>& give_up);

 private:
  Embedder() = default;
  Result<void> decode(const std::function<bool()>& give_up);
  void add(Token token, int position, int sequence);

  struct ContextDeleter {
    void operator()(llama_context* context) const { llama_free(context); }
  };
  std::unique_ptr<llama_context, ContextDeleter> context_;
  llama_batch batch_{};
  Pooling pooling_ = Pooling::kLast;
  int dimensions_ = 0;
  size_t context_tokens_ = 0;
  size_t batch_tokens_ = 0;
  const std::function<bool()>* give_up_ = nullptr;  // of the embed() that runs
};

}  // namespace pocketfleet
