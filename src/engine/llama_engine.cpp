#include "engine/llama_engine.h"

#include <fmt/format.h>
#include <llama.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_set>

#include "base/log.h"
#include "engine/chat_template.h"
#include "engine/checkpoint_disk.h"
#include "engine/draft_head.h"
#include "engine/embedder.h"
#include "engine/grammar.h"
#include "engine/kv_type.h"
#include "engine/llama_runtime.h"
#include "engine/make_context.h"
#include "engine/ngram_draft.h"
#include "engine/output_format.h"
#include "engine/pin_thread.h"
#include "engine/scheduler.h"
#include "engine/vocab.h"

namespace pocketfleet {

namespace {

constexpr size_t kMostLabelTokens = 64;
constexpr size_t kMostLabels = 512;
// A text that repeats itself does so for long; a head knows the next token or two.
constexpr size_t kNgramTokens = 8;
constexpr size_t kHeadTokens = 2;
// Texts that are longer than this and than four bytes for each token of the context are looked at before all of them is read.
constexpr size_t kLongTextBytes = 16'384;

Result<Pooling> parse_pooling(const std::string& name) {
  if (name == "model") return Pooling::kModel;
  if (name == "none") return Pooling::kNone;
  if (name == "mean") return Pooling::kMean;
  if (name == "first") return Pooling::kFirst;
  if (name == "last") return Pooling::kLast;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("\"{}\" is not a way to pool; use model, none, mean, first or last", name));
}

class LlamaEngineImpl final : public Engine {
 public:
  LlamaEngineImpl(LlamaEngineOptions options, const Clock& clock) : options_(std::move(options)), clock_(clock) {
    status_.phase = "reading weights";
    thread_ = std::thread([this] { run(); });
  }

  ~LlamaEngineImpl() override { LlamaEngineImpl::stop(); }

  void stop() override {
    stopping_ = true;
    {
      const std::lock_guard lock(mutex_);
      if (scheduler_) scheduler_->stop();
    }
    const std::lock_guard join_lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  EngineStatus status() const override {
    const std::lock_guard lock(mutex_);
    EngineStatus status = status_;
    if (scheduler_) scheduler_->fill(status);
    return status;
  }

  EngineCounters counters() const override {
    const std::lock_guard lock(mutex_);
    return scheduler_ ? scheduler_->counters() : EngineCounters{};
  }

  ModelInfo model() const override {
    const std::lock_guard lock(mutex_);
    return info_;
  }

  Result<Tokens> tokenize(std::string_view text, bool add_special, bool parse_special) const override {
    PF_CHECK_OK(check_ready());
    return vocab_->tokenize(text, add_special, parse_special);
  }

  Result<void> check_length(std::string_view text) const override {
    PF_CHECK_OK(check_ready());
    return check_lengths({&text, 1}, "prompt");
  }

  Result<std::string> detokenize(std::span<const Token> tokens, bool show_special) const override {
    PF_CHECK_OK(check_ready());
    return vocab_->detokenize(tokens, show_special);
  }

  Result<RenderedChat> render_chat(const ChatInput& input) const override {
    PF_CHECK_OK(check_ready());
    std::vector<std::string_view> texts;
    for (const ChatMessage& message : input.messages) texts.push_back(message.content);
    PF_CHECK_OK(check_lengths(texts, "messages"));
    return template_->render(input);
  }

  Result<std::shared_ptr<const OutputFormat>> compile(const Constraint& constraint) const override {
    PF_CHECK_OK(check_ready());
    return compile_constraint(*vocab_, constraint);
  }

  Result<LabelSet> prepare_labels(std::string_view answer_prefix, std::span<const std::string> labels) const override {
    PF_CHECK_OK(check_ready());
    if (labels.size() < 2 || labels.size() > kMostLabels) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("there must be 2 to {} labels, not {}", kMostLabels, labels.size()),
                  "labels");
    }
    LabelSet set;
    for (const std::string& label : labels) {
      PF_TRY(Tokens tokens, vocab_->tokenize(std::string(answer_prefix) + label, false, false));
      if (label.empty()) return fail(ErrorCode::kInvalidArgument, "a label is empty", "labels");
      set.labels.push_back(std::move(tokens));
    }
    // What all labels begin with is read once, with the prompt.
    size_t shared = set.labels[0].size();
    for (const Tokens& label : set.labels) {
      size_t same = 0;
      while (same < std::min(shared, label.size()) && label[same] == set.labels[0][same]) ++same;
      shared = same;
    }
    set.forced.assign(set.labels[0].begin(), set.labels[0].begin() + static_cast<std::ptrdiff_t>(shared));
    std::unordered_set<std::string> seen;
    for (size_t index = 0; index < set.labels.size(); ++index) {
      Tokens& label = set.labels[index];
      label.erase(label.begin(), label.begin() + static_cast<std::ptrdiff_t>(shared));
      if (label.size() > kMostLabelTokens) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("label {} has {} tokens after what all share; at most {} are accepted", index, label.size(),
                                kMostLabelTokens),
                    "labels");
      }
      if (!seen.emplace(reinterpret_cast<const char*>(label.data()), label.size() * sizeof(Token)).second) {
        return fail(ErrorCode::kInvalidArgument, fmt::format("label {} stands there twice", index), "labels");
      }
    }
    return set;
  }

  Result<void> generate(GenerateRequest request, std::shared_ptr<GenerateSink> sink) override {
    PF_CHECK_OK(check_ready());
    PF_CHECK_OK(check_weights());
    return scheduler_->submit(std::move(request), std::move(sink));
  }

  Result<void> score(ScoreRequest request, std::shared_ptr<ScoreSink> sink) override {
    PF_CHECK_OK(check_ready());
    PF_CHECK_OK(check_weights());
    return scheduler_->submit(std::move(request), std::move(sink));
  }

  Result<void> embed(EmbedRequest request, std::shared_ptr<EmbedSink> sink) override {
    PF_CHECK_OK(check_ready());
    PF_CHECK_OK(check_weights());
    return scheduler_->submit(std::move(request), std::move(sink));
  }

 private:
  // To be called when ready. A text that may be about as long as the context is counted exactly, later.
  Result<void> check_lengths(std::span<const std::string_view> texts, const char* param) const {
    const auto limit = static_cast<size_t>(info_.context_tokens);
    size_t bytes = 0;
    for (const std::string_view text : texts) bytes += text.size();
    if (bytes <= std::max(kLongTextBytes, 4 * limit)) return {};
    size_t count = 0;
    for (const std::string_view text : texts) count += count <= limit ? vocab_->count_to(text, limit - count) : 0;
    if (count <= limit) return {};
    return fail(ErrorCode::kContextLengthExceeded,
                fmt::format("This model's maximum context length is {} tokens. The prompt has more than {} tokens. Shorten the "
                            "prompt, or serve with a larger --ctx.",
                            limit, count),
                param);
  }

  Result<void> check_weights() const {
    if (!options_.vocabulary_only) return {};
    return fail(ErrorCode::kUnavailable, "only the vocabulary of the model was loaded");
  }

  // Once it says ready, vocab_, template_, info_ and scheduler_ stay as they are until the engine is destroyed.
  Result<void> check_ready() const {
    switch (state_.load(std::memory_order_acquire)) {
      case EngineState::kReady:
        return {};
      case EngineState::kLoading: {
        const std::lock_guard lock(mutex_);
        return fail(Error{ErrorCode::kLoading,
                          fmt::format("the model is still being loaded: {}, {:.0f} %", status_.phase, status_.progress * 100),
                          {},
                          1});
      }
      case EngineState::kFailed: {
        const std::lock_guard lock(mutex_);
        return fail(ErrorCode::kUnavailable, "the model could not be loaded: " + status_.error.message);
      }
      case EngineState::kStopped:
        break;
    }
    return fail(ErrorCode::kUnavailable, "the server is stopping");
  }

  void set_state(EngineState state) {
    status_.state = state;
    state_.store(state, std::memory_order_release);
  }

  void set_phase(const char* phase, double progress) {
    const std::lock_guard lock(mutex_);
    status_.phase = phase;
    status_.progress = progress;
  }

  Result<void> load_vocabulary() {
    PF_TRY(runtime_, LlamaRuntime::load_vocabulary(options_.model_path));
    vocab_ = std::make_unique<Vocab>(runtime_->vocab());
    PF_TRY(template_, ChatTemplate::create(runtime_->model(), *vocab_, options_.chat_template));
    const std::lock_guard lock(mutex_);
    info_ = runtime_->info();
    info_.supports_thinking = template_->supports_thinking();
    return {};
  }

  Result<void> load() {
    if (options_.vocabulary_only) return load_vocabulary();
    RuntimeOptions runtime_options;
    runtime_options.model_path = options_.model_path;
    runtime_options.context_tokens = options_.context_tokens;
    runtime_options.slots = options_.slots;
    runtime_options.threads = options_.threads;
    if (runtime_options.threads == 0) runtime_options.threads = static_cast<int>(options_.cpus.size());
    PF_CHECK_OK(pin_thread(options_.cpus));
    runtime_options.batch_tokens = options_.batch_tokens;
    runtime_options.flash_attention = options_.flash_attention;
    runtime_options.kernels = options_.kernels;
    runtime_options.draft_head = options_.speculation == Speculation::kMtp;
    PF_TRY(runtime_options.kv_type, parse_kv_type(options_.kv_type));
    // Reading the weights is most of the time; the rest is left for buffers and the first batch.
    PF_TRY(runtime_, LlamaRuntime::load(runtime_options, [this](float fraction) {
             set_phase("reading weights", 0.9 * static_cast<double>(fraction));
             return !stopping_.load();
           }));
    vocab_ = std::make_unique<Vocab>(runtime_->vocab());
    PF_TRY(template_, ChatTemplate::create(runtime_->model(), *vocab_, options_.chat_template));
    PF_CHECK_OK(make_embedder());
    open_disk();
    set_phase("warming up", 0.95);
    PF_TRY(const double speed, runtime_->warm_up());
    SchedulerOptions scheduler_options;
    scheduler_options.queue_limit = options_.queue_limit;
    scheduler_options.checkpoint_ram_bytes = options_.checkpoint_ram_bytes;
    scheduler_options.deterministic = options_.deterministic;
    PF_CHECK_OK(make_guesser(runtime_options.kv_type, scheduler_options));
    const std::lock_guard lock(mutex_);
    info_ = runtime_->info();
    info_.supports_thinking = template_->supports_thinking();
    if (embedder_) info_.embedding_dimensions = embedder_->dimensions();
    scheduler_ = std::make_unique<Scheduler>(*runtime_, *vocab_, scheduler_options, clock_, speed, disk_.get(), embedder_.get());
    if (stopping_) scheduler_->stop();
    return {};
  }

  Result<void> make_guesser(ggml_type kv_type, SchedulerOptions& out) {
    const auto tokens = [this](size_t usual) {
      return options_.draft_tokens > 0 ? static_cast<size_t>(options_.draft_tokens) : usual;
    };
    switch (options_.speculation) {
      case Speculation::kNone:
        break;
      case Speculation::kNgram:
        out.draft_tokens = tokens(kNgramTokens);
        out.make_draft = [](const Tokens& prompt) { return std::make_unique<NgramDraft>(prompt); };
        break;
      case Speculation::kMtp: {
        DraftHeadOptions head;
        head.streams = options_.slots;
        head.threads = runtime_->threads();
        head.flash_attention = options_.flash_attention;
        head.kernels = options_.kernels;
        head.kv_type = kv_type;
        PF_TRY(draft_head_, DraftHead::create(runtime_->model(), head));
        out.draft_tokens = tokens(kHeadTokens);
        out.make_draft = [this](const Tokens&) { return draft_head_->open_stream(); };
        break;
      }
    }
    return {};
  }

  Result<void> make_embedder() {
    EmbedderOptions options;
    PF_TRY(const Pooling asked, parse_pooling(options_.pooling));
    PF_TRY(options.pooling, Embedder::pooling_of(runtime_->model(), asked));
    if (options.pooling == Pooling::kNone) return {};
    options.context_tokens = runtime_->info().context_tokens;
    options.threads = runtime_->threads();
    options.batch_tokens = runtime_->batch_tokens();
    options.flash_attention = options_.flash_attention;
    options.kernels = options_.kernels;
    PF_TRY(embedder_, Embedder::create(runtime_->model(), options));
    return {};
  }

  // Of all parts of the model.
  Result<Hash128> digest_model() const {
    char count[16] = "0";
    llama_model_meta_val_str(runtime_->model(), "split.count", count, sizeof count);
    const int parts = std::atoi(count);
    char prefix[4096];
    if (parts <= 1 || llama_split_prefix(prefix, sizeof prefix, options_.model_path.c_str(), 0, parts) <= 0)
      return hash_file(options_.model_path);
    std::string digests;
    for (int part = 0; part < parts; ++part) {
      char path[4096];
      llama_split_path(path, sizeof path, prefix, part, parts);
      PF_TRY(const Hash128 digest, hash_file(path));
      digests += to_hex(digest);
    }
    return hash128(digests);
  }

  // A disk that cannot be used costs time and no answer.
  void open_disk() {
    if (options_.checkpoint_folder.empty() || options_.checkpoint_disk_bytes == 0) return;
    set_phase("looking for checkpoints", 0.92);
    auto opened = [&]() -> Result<std::unique_ptr<CheckpointDisk>> {
      CheckpointDisk::Options options;
      options.folder = options_.checkpoint_folder;
      options.budget_bytes = options_.checkpoint_disk_bytes;
      PF_TRY(options.identity.model, digest_model());
      // What decides in which order sums are made, and so the last bits of a state.
      options.identity.build = hash128(fmt::format(
          "{} {} kernels {} flash {} batch {}{}", llama_version(), llama_print_system_info(), kernels_in_use(options_.kernels),
          options_.flash_attention, options_.batch_tokens, options_.deterministic ? " deterministic" : ""));
      PF_TRY(const ggml_type kv_type, parse_kv_type(options_.kv_type));
      options.identity.key_type = options.identity.value_type = static_cast<uint32_t>(kv_type);
      return CheckpointDisk::open(std::move(options));
    }();
    if (opened) {
      disk_ = *std::move(opened);
    } else {
      log_warn("checkpoints_not_on_disk", {{"reason", opened.error().message}});
    }
  }

  void run() {
    const int64_t start_ms = clock_.now_ms();
    if (auto loaded = load(); !loaded) {
      const std::lock_guard lock(mutex_);
      status_.error = loaded.error();
      set_state(stopping_ ? EngineState::kStopped : EngineState::kFailed);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      status_.phase = "ready";
      status_.progress = 1;
      if (scheduler_) {
        log_info("model_ready", {{"model", info_.description},
                                 {"kernels", info_.kernels},
                                 {"context", info_.context_tokens},
                                 {"slots", info_.slots},
                                 {"sequences", runtime_->sequences()},
                                 {"load_ms", static_cast<long>(clock_.now_ms() - start_ms)},
                                 {"read_tokens_per_s", scheduler_->counters().read_tokens_per_s}});
      }
      set_state(EngineState::kReady);
    }
    if (!scheduler_) return;
    scheduler_->run();
    const std::lock_guard lock(mutex_);
    set_state(EngineState::kStopped);
  }

  const LlamaEngineOptions options_;
  const Clock& clock_;
  std::atomic<bool> stopping_{false};
  std::atomic<EngineState> state_{EngineState::kLoading};

  mutable std::mutex mutex_;  // status_, info_, and scheduler_ until it is ready
  EngineStatus status_;
  ModelInfo info_;
  std::unique_ptr<LlamaRuntime> runtime_;
  std::unique_ptr<Vocab> vocab_;
  std::unique_ptr<ChatTemplate> template_;
  std::unique_ptr<CheckpointDisk> disk_;   // may be null; outlives the scheduler
  std::unique_ptr<Embedder> embedder_;     // may be null; outlives the scheduler
  std::unique_ptr<DraftHead> draft_head_;  // may be null; outlives the scheduler
  std::unique_ptr<Scheduler> scheduler_;

  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Engine> make_llama_engine(LlamaEngineOptions options, const Clock& clock) {
  return std::make_unique<LlamaEngineImpl>(std::move(options), clock);
}

std::string llama_build() {
  return llama_version();
}

}  // namespace pocketfleet
