// A scripted Engine for tests: tokens are bytes, the chat template is "<role>content\n" a message, the answer comes from a
// script, and reading and writing take the time that its speed says (none by default). A thread of its own delivers; any thread
// may call. Errors: as the port says; the script can also make the next requests fail or the engine stay in kLoading.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace pocketfleet {

struct FakeScript {
  // The text that answers a prompt (given as text). Written one piece at a time, each piece being one token.
  std::function<std::vector<std::string>(const std::string& prompt)> answer;
  // Probabilities of the labels for a prompt; default: the first label gets 0.9.
  std::function<std::vector<double>(const std::string& prompt, size_t labels)> score;
  double read_tokens_per_s = 0;   // 0: no time
  double write_tokens_per_s = 0;  // 0: no time
  int context_tokens = 4096;
  size_t queue_limit = 16;
  bool supports_thinking = true;
  int embedding_dimensions = 4;  // 0: does not pool
};

class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(FakeScript script = {});
  ~FakeEngine() override;

  // What status() says; kReady at first.
  void set_status(EngineStatus status);
  // Generate and score requests that ended, and how many of those because their caller had gone.
  int finished() const;
  int cancelled() const;
  // The last accepted request; for looking at what arrived.
  GenerateRequest last_generate() const;
  ScoreRequest last_score() const;
  ChatInput last_chat() const;

  EngineStatus status() const override;
  EngineCounters counters() const override;
  ModelInfo model() const override;
  Result<Tokens> tokenize(std::string_view text, bool add_special, bool parse_special) const override;
  Result<std::string> detokenize(std::span<const Token> tokens, bool show_special) const override;
  Result<RenderedChat> render_chat(const ChatInput& input) const override;
  Result<std::shared_ptr<const OutputFormat>> compile(const Constraint& constraint) const override;
  Result<LabelSet> prepare_labels(std::string_view answer_prefix, std::span<const std::string> labels) const override;
  Result<void> generate(GenerateRequest request, std::shared_ptr<GenerateSink> sink) override;
  Result<void> score(ScoreRequest request, std::shared_ptr<ScoreSink> sink) override;
  // First byte, length, 0, 1, at length 1.
  Result<void> embed(EmbedRequest request, std::shared_ptr<EmbedSink> sink) override;
  void stop() override;

 private:
  struct Job;
  void run();
  void run_generate(Job& job);
  void run_score(Job& job);
  void run_embed(Job& job);
  // Waits as long as `tokens` take at `per_s`; false when the job is cancelled meanwhile.
  bool take_time(const CancelToken& cancel, double tokens, double per_s);
  Result<void> check_ready() const;

  FakeScript script_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> queue_;
  EngineStatus status_;
  EngineCounters counters_;
  int finished_ = 0;
  GenerateRequest last_generate_;
  ScoreRequest last_score_;
  mutable ChatInput last_chat_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pocketfleet
