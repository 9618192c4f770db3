#include "engine/embedder.h"
#include "engine/make_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace pocketfleet {

namespace {

constexpr size_t kMostSequences = 8;
// llama.cpp computes the logits of every token of an embedding batch; they may take so much.
constexpr size_t kLogitsBytes = 128u << 20;
constexpr size_t kLeastBatch = 32;

enum llama_pooling_type type_of(Pooling pooling) {
  switch (pooling) {
    case Pooling::kMean:
      return LLAMA_POOLING_TYPE_MEAN;
    case Pooling::kFirst:
      return LLAMA_POOLING_TYPE_CLS;
    case Pooling::kLast:
      return LLAMA_POOLING_TYPE_LAST;
    case Pooling::kModel:
    case Pooling::kNone:
      break;
  }
  return LLAMA_POOLING_TYPE_NONE;
}

void normalise(std::vector<float>& vector) {
  double sum = 0;
  for (const float value : vector) sum += static_cast<double>(value) * value;
  const double length = std::sqrt(sum);
  if (!(length > 0)) return;
  for (float& value : vector) value = static_cast<float>(value / length);
}

}  // namespace

Result<Pooling> Embedder::pooling_of(const llama_model* model, Pooling asked) {
  if (asked != Pooling::kModel) return asked;
  char architecture[128] = "";
  char value[32] = "";
  if (llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture) < 0) return Pooling::kNone;
  const std::string key = std::string(architecture) + ".pooling_type";
  if (llama_model_meta_val_str(model, key.c_str(), value, sizeof value) < 0) return Pooling::kNone;
  switch (std::atoi(value)) {
    case LLAMA_POOLING_TYPE_NONE:
      return Pooling::kNone;
    case LLAMA_POOLING_TYPE_MEAN:
      return Pooling::kMean;
    case LLAMA_POOLING_TYPE_CLS:
      return Pooling::kFirst;
    case LLAMA_POOLING_TYPE_LAST:
      return Pooling::kLast;
    default:
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the model pools in a way that is not known here ({} = {}); say --pooling none, mean, first or last", key,
                      value));
  }
}

Result<std::unique_ptr<Embedder>> Embedder::create(llama_model* model, const EmbedderOptions& options) {
  std::unique_ptr<Embedder> embedder(new Embedder());
  const auto vocabulary = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  embedder->pooling_ = options.pooling;
  embedder->context_tokens_ = static_cast<size_t>(options.context_tokens);
  const size_t affordable = kLogitsBytes / sizeof(float) / std::max<size_t>(vocabulary, 1);
  embedder->batch_tokens_ =
      std::min({std::max(affordable, kLeastBatch), options.batch_tokens, static_cast<size_t>(options.context_tokens)});
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(options.context_tokens);
  params.n_batch = static_cast<uint32_t>(embedder->batch_tokens_);
  params.n_ubatch = params.n_batch;
  params.n_seq_max = kMostSequences;
  params.n_threads = options.threads;
  params.n_threads_batch = options.threads;
  params.kv_unified = true;
  params.no_perf = true;
  params.embeddings = true;
  params.pooling_type = type_of(options.pooling);
  embedder->context_.reset(make_context(model, params, options.flash_attention, options.kernels));
  if (!embedder->context_) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("no context of {} tokens for embeddings could be made; try a smaller --ctx", options.context_tokens));
  }
  llama_set_abort_callback(
      embedder->context_.get(),
      [](void* data) {
        const auto* give_up = static_cast<const Embedder*>(data)->give_up_;
        return give_up != nullptr && *give_up && (*give_up)();
      },
      embedder.get());
  embedder->dimensions_ = llama_model_n_embd(model);
  embedder->batch_ = llama_batch_init(static_cast<int32_t>(embedder->batch_tokens_), 0, 1);
  return embedder;
}

Embedder::~Embedder() {
  if (batch_.token != nullptr) llama_batch_free(batch_);
}

size_t Embedder::fits(std::span<const Tokens* const> inputs) const {
  size_t tokens = 0;
  size_t count = 0;
  while (count < inputs.size() && count < kMostSequences && tokens + inputs[count]->size() <= batch_tokens_)
    tokens += inputs[count++]->size();
  return std::max<size_t>(count, 1);
}

void Embedder::add(Token token, int position, int sequence) {
  const int row = batch_.n_tokens++;
  batch_.token[row] = token;
  batch_.pos[row] = position;
  batch_.n_seq_id[row] = 1;
  batch_.seq_id[row][0] = sequence;
  batch_.logits[row] = 1;
}

Result<void> Embedder::decode(const std::function<bool()>& give_up) {
  give_up_ = &give_up;
  const int32_t code = llama_decode(context_.get(), batch_);
  give_up_ = nullptr;
  if (code == 0) return {};
  if (code == 2) return fail(ErrorCode::kCancelled, "the batch was given up");
  return fail(ErrorCode::kInternal, fmt::format("llama_decode gave {} for an embedding", code));
}

Result<std::optional<std::vector<float>>> Embedder::embed_piece(const Tokens& input, Piecewise& state,
                                                                const std::function<bool()>& give_up) {
  if (state.read == 0) {
    llama_memory_clear(llama_get_memory(context_.get()), false);
    state.sum.assign(static_cast<size_t>(dimensions_), 0);
  }
  const size_t count = std::min(batch_tokens_, input.size() - state.read);
  batch_.n_tokens = 0;
  for (size_t index = state.read; index < state.read + count; ++index) add(input[index], static_cast<int>(index), 0);
  PF_CHECK_OK(decode(give_up));
  const float* vector = llama_get_embeddings_seq(context_.get(), 0);
  if (vector == nullptr) return fail(ErrorCode::kInternal, "the model gave no embedding");
  for (size_t index = 0; index < state.sum.size(); ++index) {
    if (pooling_ == Pooling::kMean) {
      state.sum[index] += vector[index] * static_cast<float>(count);
    } else if (pooling_ == Pooling::kLast || state.read == 0) {
      state.sum[index] = vector[index];
    }
  }
  state.read += count;
  if (state.read < input.size()) return std::optional<std::vector<float>>();
  normalise(state.sum);
  return std::optional(std::move(state.sum));
}

Result<std::vector<std::vector<float>>> Embedder::embed(std::span<const Tokens* const> inputs,
                                                        const std::function<bool()>& give_up) {
  llama_memory_clear(llama_get_memory(context_.get()), false);
  batch_.n_tokens = 0;
  for (size_t input = 0; input < inputs.size(); ++input) {
    for (size_t index = 0; index < inputs[input]->size(); ++index)
      add((*inputs[input])[index], static_cast<int>(index), static_cast<int>(input));
  }
  PF_CHECK_OK(decode(give_up));
  std::vector<std::vector<float>> vectors;
  for (size_t input = 0; input < inputs.size(); ++input) {
    const float* vector = llama_get_embeddings_seq(context_.get(), static_cast<llama_seq_id>(input));
    if (vector == nullptr) return fail(ErrorCode::kInternal, "the model gave no embedding");
    vectors.emplace_back(vector, vector + dimensions_);
    normalise(vectors.back());
  }
  return vectors;
}

}  // namespace pocketfleet
