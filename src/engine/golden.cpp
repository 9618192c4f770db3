#include "engine/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "base/utf8.h"

namespace pocketfleet {

namespace {

constexpr float kLeastLead = 1;
constexpr auto kLook = std::chrono::milliseconds(20);

class Written final : public GenerateSink {
 public:
  void on_chunk(GenerateChunk chunk) override {
    const std::lock_guard lock(mutex_);
    for (TokenLogprob& token : chunk.logprobs) tokens_.push_back(std::move(token));
  }
  void on_done(Result<GenerateDone> done) override {
    const std::lock_guard lock(mutex_);
    done_ = std::move(done);
    changed_.notify_all();
  }
  Result<std::vector<TokenLogprob>> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_.has_value(); });
    if (!*done_) return fail(done_->error());
    return std::move(tokens_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenLogprob> tokens_;
  std::optional<Result<GenerateDone>> done_;
};

Result<std::vector<TokenLogprob>> write(Engine& engine, Tokens prompt, size_t most, const CancelToken& cancel) {
  GenerateRequest request;
  request.id = "golden";
  request.prompt.tokens = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = static_cast<int>(most);
  request.ignore_eos = true;
  request.top_logprobs = 2;
  request.cancel = cancel;
  const auto sink = std::make_shared<Written>();
  PF_CHECK_OK(engine.generate(std::move(request), sink));
  return sink->wait();
}

float lead_of(const TokenLogprob& token) {
  float next = -1e9f;
  for (const TokenScore& other : token.top) {
    if (other.token != token.chosen.token) next = std::max(next, other.logprob);
  }
  return token.chosen.logprob - next;
}

std::string shown(const Engine& engine, Token token) {
  const auto bytes = engine.detokenize({&token, 1}, true);
  return fmt::format("{} (\"{}\")", token, bytes ? sanitize_utf8(*bytes) : "?");
}

// The first place where they part; the shorter one's length when one is the beginning of the other.
size_t parting(const Tokens& a, const Tokens& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

Result<void> compare(const Engine& engine, const Tokens& expected, const Tokens& found, std::string_view where) {
  const size_t place = parting(expected, found);
  if (place == expected.size() && found.size() == expected.size()) return {};
  const auto at = [&](const Tokens& tokens) {
    return place < tokens.size() ? shown(engine, tokens[place]) : std::string("nothing");
  };
  return fail(ErrorCode::kInvalidModel,
              fmt::format("{}, token {}: {} was expected, and {} came", where, place + 1, at(expected), at(found)));
}

Result<void> check_one(Engine& engine, const GoldenPrompt& golden, const CancelToken& cancel) {
  PF_TRY(Tokens prompt, engine.tokenize(golden.prompt, true, true));
  PF_CHECK_OK(compare(engine, golden.prompt_tokens, prompt, "its text is read as other tokens"));
  PF_TRY(const std::vector<TokenLogprob> written, write(engine, std::move(prompt), golden.tokens.size(), cancel));
  Tokens found;
  for (const TokenLogprob& token : written) found.push_back(token.chosen.token);
  return compare(engine, golden.tokens, found, "the model writes something else");
}

class CheckedEngine final : public Engine {
 public:
  CheckedEngine(std::unique_ptr<Engine> engine, std::vector<GoldenPrompt> prompts)
      : engine_(std::move(engine)), prompts_(std::move(prompts)), thread_([this] { run(); }) {}
  ~CheckedEngine() override { CheckedEngine::stop(); }

  void stop() override {
    stopping_ = true;
    engine_->stop();
    const std::lock_guard lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  EngineStatus status() const override {
    EngineStatus status = engine_->status();
    if (status.state != EngineState::kReady || passed_) return status;
    const std::lock_guard lock(mutex_);
    if (failure_) {
      status.state = EngineState::kFailed;
      status.error = *failure_;
    } else {
      status.state = EngineState::kLoading;
      status.phase = fmt::format("checking golden prompts, {} of {}", checked_, prompts_.size());
      status.progress = 0.98;
    }
    return status;
  }

  EngineCounters counters() const override { return engine_->counters(); }
  ModelInfo model() const override { return engine_->model(); }
  Result<Tokens> tokenize(std::string_view text, bool add_special, bool parse_special) const override {
    return engine_->tokenize(text, add_special, parse_special);
  }
  Result<void> check_length(std::string_view text) const override { return engine_->check_length(text); }
  Result<std::string> detokenize(std::span<const Token> tokens, bool show_special) const override {
    return engine_->detokenize(tokens, show_special);
  }
  Result<RenderedChat> render_chat(const ChatInput& input) const override { return engine_->render_chat(input); }
  Result<std::shared_ptr<const OutputFormat>> compile(const Constraint& constraint) const override {
    return engine_->compile(constraint);
  }
  Result<LabelSet> prepare_labels(std::string_view answer_prefix, std::span<const std::string> labels) const override {
    return engine_->prepare_labels(answer_prefix, labels);
  }
  Result<void> generate(GenerateRequest request, std::shared_ptr<GenerateSink> sink) override {
    PF_CHECK_OK(check_passed());
    return engine_->generate(std::move(request), std::move(sink));
  }
  Result<void> score(ScoreRequest request, std::shared_ptr<ScoreSink> sink) override {
    PF_CHECK_OK(check_passed());
    return engine_->score(std::move(request), std::move(sink));
  }
  Result<void> embed(EmbedRequest request, std::shared_ptr<EmbedSink> sink) override {
    PF_CHECK_OK(check_passed());
    return engine_->embed(std::move(request), std::move(sink));
  }

 private:
  Result<void> check_passed() const {
    if (passed_) return {};
    const EngineStatus now = status();
    if (now.state == EngineState::kLoading)
      return fail(Error{ErrorCode::kLoading, "the model is still being loaded: " + now.phase, {}, 1});
    if (now.state == EngineState::kFailed)
      return fail(ErrorCode::kUnavailable, "the model gets no traffic: " + now.error.message);
    return fail(ErrorCode::kUnavailable, "the server is stopping");
  }

  void run() {
    while (engine_->status().state == EngineState::kLoading && !stopping_) std::this_thread::sleep_for(kLook);
    if (engine_->status().state != EngineState::kReady) return;
    for (size_t index = 0; index < prompts_.size(); ++index) {
      {
        const std::lock_guard lock(mutex_);
        checked_ = index + 1;
      }
      const auto checked = check_golden(*engine_, {&prompts_[index], 1});
      if (checked) continue;
      if (stopping_) return;
      const std::lock_guard lock(mutex_);
      failure_ = checked.error();
      failure_->message = fmt::format("golden prompt {} of {}: {}", index + 1, prompts_.size(), failure_->message);
      return;
    }
    log_info("golden_prompts_passed", {{"prompts", static_cast<unsigned long>(prompts_.size())}});
    passed_ = true;
  }

  const std::unique_ptr<Engine> engine_;
  const std::vector<GoldenPrompt> prompts_;
  std::atomic<bool> passed_{false};
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  size_t checked_ = 0;
  std::optional<Error> failure_;
  std::mutex join_mutex_;
  std::thread thread_;  // last, so that it finds the rest made
};

}  // namespace

Result<GoldenPrompt> make_golden(Engine& engine, const std::string& prompt, const CancelToken& cancel) {
  GoldenPrompt golden;
  golden.prompt = prompt;
  PF_TRY(golden.prompt_tokens, engine.tokenize(prompt, true, true));
  PF_TRY(const std::vector<TokenLogprob> written, write(engine, golden.prompt_tokens, kMostGoldenTokens, cancel));
  for (const TokenLogprob& token : written) {
    if (lead_of(token) < kLeastLead) break;
    golden.tokens.push_back(token.chosen.token);
  }
  if (golden.tokens.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the model is not sure of the first token behind this prompt (the likeliest leads by {:.2f}), so "
                            "another processor might rightly write another: choose a clearer prompt",
                            written.empty() ? 0.0f : lead_of(written.front())));
  }
  return golden;
}

Result<void> check_golden(Engine& engine, std::span<const GoldenPrompt> prompts, const CancelToken& cancel) {
  for (size_t index = 0; index < prompts.size(); ++index) {
    auto checked = check_one(engine, prompts[index], cancel);
    if (checked) continue;
    if (prompts.size() == 1) return checked;
    Error error = checked.error();
    error.message = fmt::format("golden prompt {} of {}: {}", index + 1, prompts.size(), error.message);
    return fail(std::move(error));
  }
  return {};
}

std::unique_ptr<Engine> make_checked_engine(std::unique_ptr<Engine> engine, std::vector<GoldenPrompt> prompts) {
  return std::make_unique<CheckedEngine>(std::move(engine), std::move(prompts));
}

}  // namespace pocketfleet
