#include "engine/llama_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "engine/llama_staging.h"
#include "engine/make_context.h"

#ifdef POCKETFLEET_PORTABLE
#include <ggml-backend.h>
#include <unistd.h>
#endif

namespace pocketfleet {

namespace {

// The last error line of llama.cpp, so that a refusal can say why.
thread_local std::string t_last_error;

void forward_log(ggml_log_level level, const char* text, void*) {
  std::string_view line(text);
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  if (line.empty()) return;
  if (level == GGML_LOG_LEVEL_ERROR) {
    t_last_error = line;
    log_debug("llama_error", {{"text", line}});
  } else if (level == GGML_LOG_LEVEL_WARN) {
    log_debug("llama_warning", {{"text", line}});
  }
}

void init_backend_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(forward_log, nullptr);
#ifdef POCKETFLEET_PORTABLE
    // The CPU variants lie beside the program; the best one for this machine is picked.
    char path[4096];
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
    std::string folder(path, length > 0 ? static_cast<size_t>(length) : 0);
    folder.resize(folder.find_last_of('/') == std::string::npos ? 0 : folder.find_last_of('/'));
    ggml_backend_load_all_from_path(folder.c_str());
#endif
    llama_backend_init();
  });
}

std::string meta_string(const llama_model* model, const char* key) {
  char buffer[256];
  const int32_t length = llama_model_meta_val_str(model, key, buffer, sizeof buffer);
  return length > 0 ? std::string(buffer) : std::string();
}

struct Progress {
  const std::function<bool(float)>* report;
};

bool on_progress(float fraction, void* data) {
  return (*static_cast<Progress*>(data)->report)(fraction);
}

// What one more sequence costs in recurrent state, measured on a context of two sequences; 0 for plain attention.
size_t recurrent_bytes_per_sequence(llama_context* context, llama_memory_t memory, Token token) {
  llama_batch batch = llama_batch_init(1, 0, 1);
  batch.n_tokens = 1;
  batch.token[0] = token;
  batch.pos[0] = 0;
  batch.n_seq_id[0] = 1;
  batch.seq_id[0][0] = 0;
  batch.logits[0] = 1;
  const bool read = llama_decode(context, batch) == 0;
  llama_batch_free(batch);
  const size_t bytes = read ? llama_state_seq_get_size_ext(context, 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) : 0;
  llama_memory_clear(memory, true);
  return bytes;
}

constexpr size_t kScoreMemoryBytes = 64u << 20;
constexpr int kScoreSequencesMost = 24;
// Without a context no prompt is too long.
constexpr int kContextOfVocabulary = 1 << 24;

}  // namespace

Result<std::unique_ptr<LlamaRuntime>> LlamaRuntime::load(const RuntimeOptions& options,
                                                         const std::function<bool(float)>& progress) {
  init_backend_once();
  t_last_error.clear();

  llama_model_params model_params = llama_model_default_params();
  Progress report{&progress};
  model_params.progress_callback = on_progress;
  model_params.progress_callback_user_data = &report;
  // Most types are laid out anew for the processor, so a mapped file would stay in memory beside them.
  model_params.load_mode = LLAMA_LOAD_MODE_NONE;
  model_params.load_mtp = options.draft_head;
  std::unique_ptr<LlamaRuntime> runtime(new LlamaRuntime());
  runtime->draft_head_ = options.draft_head;
  runtime->model_ = options.model ? options.model : load_model(options.model_path, model_params, options.kernels);
  if (!runtime->model_) {
    return fail(ErrorCode::kInvalidModel, fmt::format("{} could not be loaded: {}", options.model_path,
                                                      t_last_error.empty() ? "llama.cpp gave no reason" : t_last_error));
  }
  const llama_model* model = runtime->model_.get();
  runtime->vocab_ = llama_model_get_vocab(model);
  if (!llama_model_has_decoder(model) || llama_model_has_encoder(model) || llama_vocab_n_tokens(runtime->vocab_) == 0) {
    return fail(ErrorCode::kInvalidModel, fmt::format("{} is not a text-generating model", options.model_path));
  }

  const int trained = llama_model_n_ctx_train(model);
  const int per_request = options.context_tokens > 0 ? options.context_tokens : std::min(trained > 0 ? trained : 8192, 8192);
  const int threads = options.threads > 0 ? options.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  runtime->threads_ = threads;
  const bool recurrent = llama_model_is_recurrent(model) || llama_model_is_hybrid(model);

  llama_context_params params = llama_context_default_params();
  params.n_batch = static_cast<uint32_t>(options.batch_tokens);
  params.n_ubatch = params.n_batch;
  params.n_threads = threads;
  params.n_threads_batch = threads;
  params.type_k = options.kv_type;
  params.type_v = options.kv_type;
  params.kv_unified = true;
  params.no_perf = true;

  int score_sequences = options.score_sequences;
  if (score_sequences < 0) {
    score_sequences = kScoreSequencesMost;
    if (recurrent) {
      params.n_ctx = 256;
      params.n_seq_max = 2;
      params.n_outputs_max = 2;
      const std::unique_ptr<llama_context, ContextDeleter> probe(
          make_context(runtime->model_.get(), params, options.flash_attention, options.kernels));
      if (!probe) return fail(ErrorCode::kOutOfMemory, fmt::format("no context could be made: {}", t_last_error));
      const size_t each = recurrent_bytes_per_sequence(probe.get(), llama_get_memory(probe.get()), 0);
      if (each > 0) score_sequences = static_cast<int>(std::min<size_t>(kScoreMemoryBytes / each, kScoreSequencesMost));
    }
  }
  // Three more than the slots: two hold prefixes that others fork from, one reads a label's further tokens.
  runtime->sequences_ = std::min<int>(options.slots + 3 + score_sequences, static_cast<int>(llama_max_parallel_sequences()));
  runtime->batch_tokens_ = static_cast<size_t>(options.batch_tokens);
  runtime->max_outputs_ = std::min<size_t>(static_cast<size_t>(runtime->sequences_) + 16, runtime->batch_tokens_);
  params.n_ctx = static_cast<uint32_t>(per_request) * static_cast<uint32_t>(options.slots);
  params.n_seq_max = static_cast<uint32_t>(runtime->sequences_);
  params.n_outputs_max = static_cast<uint32_t>(runtime->max_outputs_);
  runtime->context_.reset(make_context(runtime->model_.get(), params, options.flash_attention, options.kernels));
  if (!runtime->context_) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("no context of {} tokens x {} slots could be made: {}. Try a smaller --ctx or fewer --slots.",
                            per_request, options.slots, t_last_error));
  }
  llama_set_abort_callback(
      runtime->context_.get(),
      [](void* data) {
        const auto* give_up = static_cast<const LlamaRuntime*>(data)->give_up_;
        return give_up != nullptr && *give_up && (*give_up)();
      },
      runtime.get());
  // Nobody wants to know what every token of a prompt comes to, so the last layer's feed-forward is left to those whose logits
  // are asked for. Without this, Qwen3.5 computes it for the whole prompt.
  llama_set_embeddings_nextn(runtime->context_.get(), options.draft_head, true);
  runtime->memory_ = llama_get_memory(runtime->context_.get());
  runtime->cells_ = llama_n_ctx(runtime->context_.get());
  runtime->can_cut_ = !recurrent && llama_model_n_swa(model) == 0;
  runtime->batch_ = llama_batch_init(options.batch_tokens, 0, 1);

  char description[256];
  llama_model_desc(model, description, sizeof description);
  ModelInfo& info = runtime->info_;
  info.description = description;
  info.kernels = kernels_in_use(options.kernels);
  info.architecture = meta_string(model, "general.architecture");
  if (const char* chat_template = llama_model_chat_template(model, nullptr)) info.chat_template = chat_template;
  info.size_bytes = llama_model_size(model);
  info.parameters = llama_model_n_params(model);
  info.context_tokens = per_request;
  info.trained_context_tokens = trained;
  info.vocabulary = llama_vocab_n_tokens(runtime->vocab_);
  info.slots = options.slots;
  return runtime;
}

Result<std::unique_ptr<LlamaRuntime>> LlamaRuntime::load_vocabulary(const std::string& model_path) {
  init_backend_once();
  t_last_error.clear();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  std::unique_ptr<LlamaRuntime> runtime(new LlamaRuntime());
  runtime->model_ = load_model(model_path, params, false);
  if (!runtime->model_) {
    return fail(ErrorCode::kInvalidModel, fmt::format("{} could not be loaded: {}", model_path,
                                                      t_last_error.empty() ? "llama.cpp gave no reason" : t_last_error));
  }
  runtime->vocab_ = llama_model_get_vocab(runtime->model_.get());
  runtime->info_.vocabulary = llama_vocab_n_tokens(runtime->vocab_);
  runtime->info_.context_tokens = kContextOfVocabulary;
  return runtime;
}

LlamaRuntime::~LlamaRuntime() {
  if (batch_.token != nullptr) llama_batch_free(batch_);
}

void LlamaRuntime::batch_clear() {
  batch_.n_tokens = 0;
}

int LlamaRuntime::batch_add(Token token, int position, int sequence, bool want_logits) {
  assert(static_cast<size_t>(batch_.n_tokens) < batch_tokens_);
  const int row = batch_.n_tokens++;
  batch_.token[row] = token;
  batch_.pos[row] = position;
  batch_.n_seq_id[row] = 1;
  batch_.seq_id[row][0] = sequence;
  batch_.logits[row] = want_logits ? 1 : 0;
  return row;
}

Result<void> LlamaRuntime::decode(const std::function<bool()>& give_up) {
  t_last_error.clear();
  give_up_ = &give_up;
  const int32_t code = llama_decode(context_.get(), batch_);
  give_up_ = nullptr;
  if (code == 0) return {};
  if (code == 2) return fail(ErrorCode::kCancelled, "the batch was given up");
  if (code == 1) return fail(ErrorCode::kOutOfMemory, "the KV cache has no room for the batch");
  return fail(ErrorCode::kInternal, fmt::format("llama_decode gave {}: {}", code, t_last_error));
}

const float* LlamaRuntime::logits(int row) const {
  return llama_get_logits_ith(context_.get(), row);
}

std::span<const float> LlamaRuntime::hidden(int row) const {
  if (!draft_head_) return {};
  const float* values = llama_get_embeddings_nextn_ith(context_.get(), row);
  if (values == nullptr) return {};
  return {values, static_cast<size_t>(llama_model_n_embd_out(model_.get()))};
}

void LlamaRuntime::drop(int sequence) {
  llama_memory_seq_rm(memory_, sequence, -1, -1);
}

void LlamaRuntime::fork(int from, int to) {
  llama_memory_seq_cp(memory_, from, to, -1, -1);
}

bool LlamaRuntime::cut(int sequence, size_t tokens) {
  return can_cut_ && llama_memory_seq_rm(memory_, sequence, static_cast<llama_pos>(tokens), -1);
}

Result<StateBytes> LlamaRuntime::save(int sequence) {
  StateBytes bytes(llama_state_seq_get_size_ext(context_.get(), sequence, LLAMA_STATE_SEQ_FLAGS_NONE));
  const size_t written = bytes.empty() ? 0
                                       : llama_state_seq_get_data_ext(context_.get(), bytes.data(), bytes.size(), sequence,
                                                                      LLAMA_STATE_SEQ_FLAGS_NONE);
  if (written == 0) return fail(ErrorCode::kInternal, "the state of a sequence could not be saved");
  bytes.resize(written);
  return bytes;
}

Result<void> LlamaRuntime::restore(int sequence, const StateBytes& state) {
  if (llama_state_seq_set_data_ext(context_.get(), state.data(), state.size(), sequence, LLAMA_STATE_SEQ_FLAGS_NONE) == 0) {
    drop(sequence);
    return fail(ErrorCode::kOutOfMemory, "a saved state could not be restored: the KV cache has no room for it");
  }
  return {};
}

void LlamaRuntime::reset() {
  llama_memory_clear(memory_, false);
}

void LlamaRuntime::clear() {
  llama_memory_clear(memory_, true);
}

Result<double> LlamaRuntime::warm_up() {
  const auto run = [&](size_t tokens) -> Result<void> {
    batch_clear();
    for (size_t index = 0; index < tokens; ++index) {
      const bool last = index + static_cast<size_t>(std::min<size_t>(max_outputs_, tokens)) >= tokens;
      batch_add(static_cast<Token>(index % static_cast<size_t>(std::min(info_.vocabulary, 256))), static_cast<int>(index), 0,
                last);
    }
    auto done = decode();
    batch_clear();
    clear();
    return done;
  };
  const size_t tokens = std::min(batch_tokens_, cells_);
  PF_CHECK_OK(run(tokens));
  const auto start = std::chrono::steady_clock::now();
  const size_t sample = std::min<size_t>(tokens, 64);
  PF_CHECK_OK(run(sample));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return seconds > 0 ? static_cast<double>(sample) / seconds : 0.0;
}

}  // namespace pocketfleet
