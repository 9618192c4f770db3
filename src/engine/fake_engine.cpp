#include "engine/fake_engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace pocketfleet {

namespace {

std::string text_of(std::span<const Token> tokens) {
  std::string text;
  for (const Token token : tokens) text.push_back(static_cast<char>(token));
  return text;
}

class PlainParser final : public ChatOutputParser {
 public:
  explicit PlainParser(bool thinking) : reasoning_(thinking) {}

  // "reasoning</think>content" when thinking is on; the mark may not be split over pieces.
  std::vector<ChatDelta> push(std::string_view text) override {
    std::vector<ChatDelta> deltas;
    if (reasoning_) {
      const size_t end = text.find("</think>");
      if (const std::string_view part = text.substr(0, end); !part.empty()) {
        deltas.push_back({ChatDelta::Kind::kReasoning, std::string(part), 0, {}, {}, {}});
      }
      if (end == std::string_view::npos) return deltas;
      reasoning_ = false;
      text = text.substr(end + 8);
    }
    constexpr std::string_view kCall = "CALL ";
    if (text.starts_with(kCall)) {
      const size_t space = text.find(' ', kCall.size());
      ChatDelta delta;
      delta.kind = ChatDelta::Kind::kToolCall;
      delta.tool_index = calls_++;
      delta.tool_id = "call_" + std::to_string(delta.tool_index);
      delta.tool_name = text.substr(kCall.size(), space - kCall.size());
      if (space != std::string_view::npos) delta.arguments = text.substr(space + 1);
      deltas.push_back(std::move(delta));
      return deltas;
    }
    if (!text.empty()) deltas.push_back({ChatDelta::Kind::kContent, std::string(text), 0, {}, {}, {}});
    return deltas;
  }

  std::vector<ChatDelta> finish() override { return {}; }

 private:
  bool reasoning_;
  size_t calls_ = 0;
};

class PlainFormat final : public OutputFormat {
 public:
  explicit PlainFormat(bool thinking) : thinking_(thinking) {}
  std::unique_ptr<ChatOutputParser> make_parser() const override { return std::make_unique<PlainParser>(thinking_); }

 private:
  bool thinking_;
};

}  // namespace

struct FakeEngine::Job {
  GenerateRequest generate;
  std::shared_ptr<GenerateSink> generate_sink;
  ScoreRequest score;
  std::shared_ptr<ScoreSink> score_sink;
  EmbedRequest embed;
  std::shared_ptr<EmbedSink> embed_sink;
};

FakeEngine::FakeEngine(FakeScript script) : script_(std::move(script)) {
  if (!script_.answer) {
    script_.answer = [](const std::string&) { return std::vector<std::string>{"Hello", " there", "!"}; };
  }
  if (!script_.score) {
    script_.score = [](const std::string&, size_t labels) {
      std::vector<double> out(labels, 0.1 / static_cast<double>(labels - 1));
      out[0] = 0.9;
      return out;
    };
  }
  status_.state = EngineState::kReady;
  status_.progress = 1;
  thread_ = std::thread([this] { run(); });
}

FakeEngine::~FakeEngine() {
  FakeEngine::stop();
}

void FakeEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    status_.state = EngineState::kStopped;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FakeEngine::set_status(EngineStatus status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

int FakeEngine::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

int FakeEngine::cancelled() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(counters_.cancelled);
}

GenerateRequest FakeEngine::last_generate() const {
  const std::lock_guard lock(mutex_);
  return last_generate_;
}

ScoreRequest FakeEngine::last_score() const {
  const std::lock_guard lock(mutex_);
  return last_score_;
}

ChatInput FakeEngine::last_chat() const {
  const std::lock_guard lock(mutex_);
  return last_chat_;
}

EngineStatus FakeEngine::status() const {
  const std::lock_guard lock(mutex_);
  EngineStatus status = status_;
  status.queued = static_cast<int>(queue_.size());
  return status;
}

EngineCounters FakeEngine::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

ModelInfo FakeEngine::model() const {
  ModelInfo info;
  info.description = "a scripted model";
  info.architecture = "fake";
  info.chat_template = "<role>content";
  info.size_bytes = 1;
  info.parameters = 1;
  info.context_tokens = script_.context_tokens;
  info.trained_context_tokens = script_.context_tokens;
  info.vocabulary = 256;
  info.slots = 1;
  info.supports_thinking = script_.supports_thinking;
  info.embedding_dimensions = script_.embedding_dimensions;
  return info;
}

Result<void> FakeEngine::check_ready() const {
  const std::lock_guard lock(mutex_);
  switch (status_.state) {
    case EngineState::kReady:
      return {};
    case EngineState::kLoading: {
      Error error{ErrorCode::kLoading, "the model is still being loaded", {}, 1};
      return fail(std::move(error));
    }
    case EngineState::kFailed:
      return fail(ErrorCode::kUnavailable, "the model could not be loaded: " + status_.error.message);
    case EngineState::kStopped:
      break;
  }
  return fail(ErrorCode::kUnavailable, "the server is stopping");
}

Result<Tokens> FakeEngine::tokenize(std::string_view text, bool, bool) const {
  PF_CHECK_OK(check_ready());
  Tokens tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

Result<std::string> FakeEngine::detokenize(std::span<const Token> tokens, bool) const {
  for (const Token token : tokens) {
    if (token < 0 || token > 255)
      return fail(ErrorCode::kInvalidArgument, "token " + std::to_string(token) + " is not in the vocabulary");
  }
  return text_of(tokens);
}

Result<RenderedChat> FakeEngine::render_chat(const ChatInput& input) const {
  PF_CHECK_OK(check_ready());
  {
    const std::lock_guard lock(mutex_);
    last_chat_ = input;
  }
  if (input.constraint.kind != ConstraintKind::kNone) {
    auto compiled = compile(input.constraint);
    if (!compiled) return fail(compiled.error());
  }
  std::string text;
  RenderedChat rendered;
  for (const ChatMessage& message : input.messages) {
    text += "<" + message.role + ">" + message.content + "\n";
    if (message.role == "system") rendered.prompt.checkpoints.push_back(text.size());
  }
  text += "<assistant>";
  rendered.prompt.tokens = *tokenize(text, true, true);
  rendered.format = std::make_shared<PlainFormat>(input.enable_thinking && script_.supports_thinking);
  return rendered;
}

Result<std::shared_ptr<const OutputFormat>> FakeEngine::compile(const Constraint& constraint) const {
  if (constraint.text == "bad") return fail(ErrorCode::kInvalidArgument, "the grammar cannot be parsed", "grammar");
  return std::make_shared<const PlainFormat>(false);
}

Result<LabelSet> FakeEngine::prepare_labels(std::string_view answer_prefix, std::span<const std::string> labels) const {
  PF_CHECK_OK(check_ready());
  LabelSet set;
  set.forced = *tokenize(answer_prefix, false, false);
  for (const std::string& label : labels) set.labels.push_back(*tokenize(label, false, false));
  return set;
}

Result<void> FakeEngine::generate(GenerateRequest request, std::shared_ptr<GenerateSink> sink) {
  PF_CHECK_OK(check_ready());
  if (request.prompt.tokens.empty()) return fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  const std::lock_guard lock(mutex_);
  if (static_cast<int>(request.prompt.tokens.size()) >= script_.context_tokens) {
    return fail(ErrorCode::kContextLengthExceeded, "the prompt has " + std::to_string(request.prompt.tokens.size()) +
                                                       " tokens; the context holds " + std::to_string(script_.context_tokens));
  }
  if (queue_.size() >= script_.queue_limit) {
    ++counters_.rejected;
    return fail(Error{ErrorCode::kQueueFull, "the queue is full", {}, 1});
  }
  last_generate_ = request;
  auto job = std::make_unique<Job>();
  job->generate = std::move(request);
  job->generate_sink = std::move(sink);
  queue_.push_back(std::move(job));
  changed_.notify_all();
  return {};
}

Result<void> FakeEngine::score(ScoreRequest request, std::shared_ptr<ScoreSink> sink) {
  PF_CHECK_OK(check_ready());
  const std::lock_guard lock(mutex_);
  for (const Prompt& input : request.inputs) {
    if (static_cast<int>(input.tokens.size()) > script_.context_tokens) {
      return fail(ErrorCode::kContextLengthExceeded, "the input has " + std::to_string(input.tokens.size()) +
                                                         " tokens; the context holds " + std::to_string(script_.context_tokens));
    }
  }
  if (queue_.size() >= script_.queue_limit) {
    ++counters_.rejected;
    return fail(Error{ErrorCode::kQueueFull, "the queue is full", {}, 1});
  }
  last_score_ = request;
  auto job = std::make_unique<Job>();
  job->score = std::move(request);
  job->score_sink = std::move(sink);
  queue_.push_back(std::move(job));
  changed_.notify_all();
  return {};
}

Result<void> FakeEngine::embed(EmbedRequest request, std::shared_ptr<EmbedSink> sink) {
  PF_CHECK_OK(check_ready());
  if (script_.embedding_dimensions == 0) return fail(ErrorCode::kUnsupportedParameter, "this model does not pool", "model");
  for (size_t index = 0; index < request.inputs.size(); ++index) {
    if (static_cast<int>(request.inputs[index].size()) > script_.context_tokens)
      return fail(ErrorCode::kContextLengthExceeded, "too long", "input[" + std::to_string(index) + "]");
  }
  const std::lock_guard lock(mutex_);
  auto job = std::make_unique<Job>();
  job->embed = std::move(request);
  job->embed_sink = std::move(sink);
  queue_.push_back(std::move(job));
  changed_.notify_all();
  return {};
}

bool FakeEngine::take_time(const CancelToken& cancel, double tokens, double per_s) {
  if (per_s > 0) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(tokens / per_s);
    std::unique_lock lock(mutex_);
    while (!stopping_ && !cancel.cancelled() && std::chrono::steady_clock::now() < until) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
  }
  const std::lock_guard lock(mutex_);
  return !stopping_ && !cancel.cancelled();
}

void FakeEngine::run() {
  for (;;) {
    std::unique_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      status_.running = 1;
    }
    if (job->generate_sink) {
      run_generate(*job);
    } else if (job->embed_sink) {
      run_embed(*job);
    } else {
      run_score(*job);
    }
    const std::lock_guard lock(mutex_);
    ++finished_;
    status_.running = 0;
  }
}

void FakeEngine::run_generate(Job& job) {
  const GenerateRequest& request = job.generate;
  GenerateDone done;
  done.usage.prompt_tokens = static_cast<int>(request.prompt.tokens.size());
  bool alive = take_time(request.cancel, done.usage.prompt_tokens, script_.read_tokens_per_s);
  for (const std::string& piece : alive ? script_.answer(text_of(request.prompt.tokens)) : std::vector<std::string>{}) {
    if (request.max_tokens >= 0 && done.usage.written_tokens >= request.max_tokens) {
      done.reason = FinishReason::kLength;
      break;
    }
    alive = take_time(request.cancel, 1, script_.write_tokens_per_s);
    if (!alive) break;
    GenerateChunk chunk;
    chunk.text = piece;
    chunk.tokens = 1;
    if (request.top_logprobs >= 0) {
      TokenLogprob logprob{{piece.empty() ? 0 : static_cast<unsigned char>(piece[0]), piece, -0.25f}, {}};
      for (int index = 0; index < request.top_logprobs; ++index) {
        logprob.top.push_back({index, index == 0 ? piece : "alt" + std::to_string(index), -0.25f - static_cast<float>(index)});
      }
      chunk.logprobs.push_back(std::move(logprob));
    }
    ++done.usage.written_tokens;
    job.generate_sink->on_chunk(std::move(chunk));
  }
  {
    const std::lock_guard lock(mutex_);
    counters_.tokens_read += static_cast<uint64_t>(done.usage.prompt_tokens);
    counters_.tokens_written += static_cast<uint64_t>(done.usage.written_tokens);
    if (!alive) ++counters_.cancelled;
  }
  if (alive) {
    job.generate_sink->on_done(std::move(done));
  } else {
    job.generate_sink->on_done(
        fail(request.cancel.cancelled() ? ErrorCode::kCancelled : ErrorCode::kUnavailable, "the request was given up"));
  }
}

void FakeEngine::run_score(Job& job) {
  const ScoreRequest& request = job.score;
  Usage usage;
  for (size_t index = 0; index < request.inputs.size(); ++index) {
    const auto size = static_cast<int>(request.inputs[index].tokens.size());
    if (!take_time(request.cancel, size, script_.read_tokens_per_s)) {
      {
        const std::lock_guard lock(mutex_);
        ++counters_.cancelled;
      }
      job.score_sink->on_done(fail(ErrorCode::kCancelled, "the request was given up"));
      return;
    }
    usage.prompt_tokens += size;
    job.score_sink->on_item(index, script_.score(text_of(request.inputs[index].tokens), request.labels->labels.size()));
  }
  {
    const std::lock_guard lock(mutex_);
    counters_.tokens_read += static_cast<uint64_t>(usage.prompt_tokens);
  }
  job.score_sink->on_done(usage);
}

void FakeEngine::run_embed(Job& job) {
  Usage usage;
  for (size_t index = 0; index < job.embed.inputs.size(); ++index) {
    const Tokens& tokens = job.embed.inputs[index];
    if (!take_time(job.embed.cancel, static_cast<double>(tokens.size()), script_.read_tokens_per_s)) {
      job.embed_sink->on_done(fail(ErrorCode::kCancelled, "the request was given up"));
      return;
    }
    usage.prompt_tokens += static_cast<int>(tokens.size());
    std::vector<float> vector(static_cast<size_t>(script_.embedding_dimensions), 0);
    vector[0] = static_cast<float>(tokens[0]);
    if (vector.size() > 1) vector[1] = static_cast<float>(tokens.size());
    vector.back() += 1;
    double sum = 0;
    for (const float value : vector) sum += static_cast<double>(value) * value;
    for (float& value : vector) value = static_cast<float>(value / std::sqrt(sum));
    job.embed_sink->on_item(index, std::move(vector));
  }
  job.embed_sink->on_done(usage);
}

}  // namespace pocketfleet
