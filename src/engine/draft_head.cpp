#include "engine/draft_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/log.h"
#include "engine/llama_staging.h"
#include "engine/make_context.h"

namespace pocketfleet {

namespace {

constexpr size_t kWindow = 512;  // tokens that the head looks back on; then it begins anew
constexpr size_t kMostUnread = 64;
// A recurrent state cannot be cut back, so a wrong guess is read twice: better none than one that is in doubt.
constexpr double kSureEnough = 0.5;

struct Best {
  Token token;
  double probability;
};

Best best_of(std::span<const float> logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - *best));
  return {static_cast<Token>(best - logits.begin()), 1 / sum};
}

}  // namespace

class DraftHead::Stream final : public Draft {
 public:
  Stream(DraftHead& head, int sequence) : head_(head), sequence_(sequence) {}
  ~Stream() override {
    if (sequence_ < 0) return;
    begin_anew();
    head_.free_sequences_.push_back(sequence_);
  }

  void push(Token token, std::span<const float> hidden) override {
    ++written_;
    if (sequence_ < 0 || record_.silent(written_) || hidden.size() != head_.width_) return;
    if (unread_.size() == kMostUnread) read(false);
    unread_.push_back({token, {hidden.begin(), hidden.end()}});
  }

  Tokens propose(size_t most) override {
    Tokens out;
    if (most == 0 || unread_.empty() || record_.silent(written_)) return out;
    most = std::min(most, kWindow / 2);
    if (read_ + unread_.size() + most > kWindow) forget_cells();
    if (!read(true)) return out;
    int row = head_.batch_.n_tokens - 1;
    for (;;) {
      const float* logits = llama_get_logits_ith(head_.context_.get(), row);
      const float* hidden = llama_get_embeddings_nextn_ith(head_.context_.get(), row);
      if (logits == nullptr || hidden == nullptr) break;
      const Best best = best_of({logits, head_.vocabulary_});
      if (best.probability < kSureEnough) break;
      out.push_back(best.token);
      if (out.size() == most) break;
      const std::vector<float> next(hidden, hidden + head_.width_);
      head_.batch_.n_tokens = 0;
      head_.add(best.token, next, static_cast<int>(read_ + out.size() - 1), sequence_, true);
      row = 0;
      if (!head_.decode()) break;
    }
    // The guesses are not known to be right; what was written stays.
    llama_memory_seq_rm(memory(), sequence_, static_cast<llama_pos>(read_), -1);
    return out;
  }

  void judge(size_t proposed, size_t accepted) override {
    record_.judge(written_, proposed, accepted);
    if (record_.silent(written_)) begin_anew();
  }

 private:
  struct Unread {
    Token token;
    std::vector<float> hidden;
  };

  llama_memory_t memory() const { return llama_get_memory(head_.context_.get()); }
  void forget_cells() {
    llama_memory_seq_rm(memory(), sequence_, -1, -1);
    read_ = 0;
  }
  void begin_anew() {
    forget_cells();
    unread_.clear();
  }
  bool read(bool ask) {
    if (read_ + unread_.size() > kWindow) forget_cells();
    head_.batch_.n_tokens = 0;
    for (size_t index = 0; index < unread_.size(); ++index) {
      head_.add(unread_[index].token, unread_[index].hidden, static_cast<int>(read_ + index), sequence_,
                ask && index + 1 == unread_.size());
    }
    const bool done = head_.decode();
    read_ += unread_.size();
    unread_.clear();
    if (!done) begin_anew();
    return done;
  }

  DraftHead& head_;
  const int sequence_;  // -1: none was left
  size_t written_ = 0;
  size_t read_ = 0;  // pairs in the head's cache
  std::vector<Unread> unread_;
  GuessRecord record_;
};

namespace {

// llama.cpp ends the process when it is asked for a head of another kind.
Result<void> check(const llama_model* model) {
  char architecture[64] = "";
  llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture);
  const int layers = llama_model_n_layer_nextn(model);
  if (layers == 1 && std::string_view(architecture) == "qwen35") return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--speculate mtp needs a qwen35 model with one draft layer, and this is {} with {}; --speculate ngram "
                          "needs none",
                          architecture, layers),
              "speculate");
}

}  // namespace

Result<std::unique_ptr<DraftHead>> DraftHead::create(llama_model* model, const DraftHeadOptions& options) {
  PF_CHECK_OK(check(model));
  std::unique_ptr<DraftHead> head(new DraftHead());
  llama_context_params params = llama_context_default_params();
  params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
  params.n_ctx = static_cast<uint32_t>(kWindow) * static_cast<uint32_t>(options.streams);
  params.n_batch = static_cast<uint32_t>(kMostUnread);
  params.n_ubatch = params.n_batch;
  params.n_seq_max = static_cast<uint32_t>(options.streams);
  params.n_outputs_max = params.n_seq_max;  // llama.cpp wants room for one of each, though one asks at a time
  params.n_threads = options.threads;
  params.n_threads_batch = options.threads;
  params.type_k = options.kv_type;
  params.type_v = options.kv_type;
  params.kv_unified = true;
  params.no_perf = true;
  head->context_.reset(make_context(model, params, options.flash_attention, options.kernels));
  if (!head->context_) return fail(ErrorCode::kOutOfMemory, "no context for the draft head could be made");
  llama_set_embeddings_nextn(head->context_.get(), true, true);
  head->width_ = static_cast<size_t>(llama_model_n_embd_out(model));
  head->vocabulary_ = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  head->batch_ = llama_batch_init(static_cast<int32_t>(kMostUnread), static_cast<int32_t>(head->width_), 1);
  head->tokens_.resize(kMostUnread);
  head->batch_.token = head->tokens_.data();
  for (int sequence = options.streams - 1; sequence >= 0; --sequence) head->free_sequences_.push_back(sequence);
  return head;
}

DraftHead::~DraftHead() {
  batch_.token = nullptr;  // ours
  if (batch_.embd != nullptr) llama_batch_free(batch_);
}

std::unique_ptr<Draft> DraftHead::open_stream() {
  int sequence = -1;
  if (!free_sequences_.empty()) {
    sequence = free_sequences_.back();
    free_sequences_.pop_back();
  }
  return std::make_unique<Stream>(*this, sequence);
}

void DraftHead::add(Token token, std::span<const float> hidden, int position, int sequence, bool ask) {
  const int row = batch_.n_tokens++;
  batch_.token[row] = token;
  std::memcpy(batch_.embd + static_cast<size_t>(row) * width_, hidden.data(), width_ * sizeof(float));
  batch_.pos[row] = position;
  batch_.n_seq_id[row] = 1;
  batch_.seq_id[row][0] = sequence;
  batch_.logits[row] = ask ? 1 : 0;
}

bool DraftHead::decode() {
  const int32_t code = llama_decode(context_.get(), batch_);
  if (code != 0) log_warn("draft_head_failed", {{"code", code}});
  return code == 0;
}

}  // namespace pocketfleet
