// What goes into an engine and what comes out: prompts, sampling, constraints, chat messages, results. Plain values that own
// their contents and may be moved between threads. Times are in milliseconds of Clock::now_ms(); 0 as a deadline means none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"

namespace pocketfleet {

using Token = int32_t;
using Tokens = std::vector<Token>;

struct ModelInfo {
  std::string description;    // for people: "qwen35 0.8B Q4_0"
  std::string architecture;   // as in the GGUF: "qwen35"
  std::string chat_template;  // source text of the template, empty when there is none
  uint64_t size_bytes = 0;
  uint64_t parameters = 0;
  int context_tokens = 0;  // what one request may hold, prompt and answer together
  int trained_context_tokens = 0;
  int vocabulary = 0;
  int slots = 0;  // requests that write at the same time
  bool supports_thinking = false;
  std::string kernels = "none";  // the instruction set of our own kernels, where they compute
  int embedding_dimensions = 0;  // of the vectors that embed() gives; 0: the model does not pool
};

enum class EngineState { kLoading, kReady, kFailed, kStopped };

struct EngineStatus {
  EngineState state = EngineState::kLoading;
  double progress = 0;        // of loading, 0 to 1
  std::string phase;          // of loading: "reading weights", "warming up"
  Error error;                // when kFailed
  int running = 0;            // requests being read or written
  int queued = 0;             // requests that wait
  int64_t queued_tokens = 0;  // prompt tokens that are not read yet
};

// Of checkpoints on the disk: totals since the start, but for what is held now.
struct ShelfCounters {
  uint64_t files = 0;     // held now
  uint64_t bytes = 0;     // held now
  uint64_t written = 0;   // files written
  uint64_t restored = 0;  // files read back
  uint64_t refused = 0;   // files that were damaged or foreign, and were deleted
  uint64_t evicted = 0;   // files deleted to make room
  uint64_t failed = 0;    // states that could not be written
};

// Totals since the start.
struct EngineCounters {
  uint64_t tokens_read = 0;    // prompt tokens that were computed
  uint64_t tokens_reused = 0;  // prompt tokens taken from a checkpoint or a shared prefix
  uint64_t tokens_written = 0;
  uint64_t tokens_drafted = 0;         // guessed
  uint64_t tokens_draft_accepted = 0;  // of those, right
  uint64_t batches = 0;                // calls of the model
  uint64_t batch_tokens = 0;           // tokens in them
  uint64_t cancelled = 0;              // requests whose caller had gone
  uint64_t expired = 0;                // requests whose deadline had passed
  uint64_t rejected = 0;               // requests refused because the queue was full
  uint64_t checkpoints_made = 0;
  uint64_t checkpoints_used = 0;
  uint64_t checkpoints_evicted = 0;
  uint64_t checkpoint_bytes = 0;  // held now
  uint64_t checkpoints = 0;       // held now
  ShelfCounters shelf;
  double read_tokens_per_s = 0;   // recent speed of reading, 0 before the first measurement
  double write_tokens_per_s = 0;  // recent speed of one stream
};

// A prompt in tokens. `checkpoints`: positions, ascending and at most tokens.size(), where a fixed part ends and other requests
// are likely to go on from; the engine keeps the state there if it pays. `pinned` ones are never evicted (profiles).
struct Prompt {
  Tokens tokens;
  std::vector<size_t> checkpoints;
  bool pinned = false;
};

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  int top_k = 0;             // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float repeat_penalty = 1.0f;  // 1: off
  int penalty_window = 64;      // tokens that penalties look back on; -1: all
  std::optional<uint32_t> seed;
  std::vector<std::pair<Token, float>> logit_bias;  // -100 forbids, +100 all but forces
};

enum class Priority { kInteractive, kBatch };

enum class ConstraintKind { kNone, kJsonObject, kJsonSchema, kRegex, kGrammar };

// What the text must obey. `text` is the schema (JSON), the regular expression (must match the whole text) or the GBNF grammar.
struct Constraint {
  ConstraintKind kind = ConstraintKind::kNone;
  std::string text;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text
};

struct ChatMessage {
  std::string role;  // system, user, assistant, tool
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  std::string tool_call_id;
  std::string name;
};

struct ToolDefinition {
  std::string name;
  std::string description;
  std::string parameters;  // JSON schema text
};

enum class ToolChoice { kAuto, kNone, kRequired };

struct ChatInput {
  std::vector<ChatMessage> messages;
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  bool parallel_tool_calls = true;
  bool enable_thinking = true;
  std::map<std::string, std::string> template_kwargs;  // value: JSON text
  Constraint constraint;
};

// A piece of an assistant's message while it is being written.
struct ChatDelta {
  enum class Kind { kContent, kReasoning, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;       // content or reasoning to append
  size_t tool_index = 0;  // kToolCall: which call
  std::string tool_id;    // set in the first delta of a call
  std::string tool_name;  // set in the first delta of a call
  std::string arguments;  // to append
};

// Splits written text into content, reasoning and tool calls. One a request; single-threaded; never fails: what does not fit the
// template's form is content.
class ChatOutputParser {
 public:
  virtual ~ChatOutputParser() = default;
  virtual std::vector<ChatDelta> push(std::string_view text) = 0;
  virtual std::vector<ChatDelta> finish() = 0;
};

// What the engine must hold to while it writes and how its text is to be read: made by render_chat() or compile(), opaque above.
class OutputFormat {
 public:
  virtual ~OutputFormat() = default;
  virtual std::unique_ptr<ChatOutputParser> make_parser() const = 0;
};

struct RenderedChat {
  Prompt prompt;
  std::shared_ptr<const OutputFormat> format;
  std::vector<std::string> stops;  // further stop strings of the template
};

struct GenerateRequest {
  std::string id;  // for logs
  Prompt prompt;
  SamplingParams sampling;
  std::shared_ptr<const OutputFormat> format;  // may be null
  int max_tokens = -1;                         // -1: as many as the context holds
  std::vector<std::string> stop;               // found also when split over tokens; not part of the text
  bool ignore_eos = false;
  int top_logprobs = -1;  // -1: no logprobs; 0 to 20: that many alternatives
  Priority priority = Priority::kInteractive;
  int64_t deadline_ms = 0;
  int64_t admit_by_ms = 0;  // refused at once if it would be later; 0: the deadline
  CancelToken cancel;
};

struct TokenScore {
  Token token = 0;
  std::string bytes;  // exactly what the token stands for; may be part of a character
  float logprob = 0;
};

struct TokenLogprob {
  TokenScore chosen;
  std::vector<TokenScore> top;  // the likeliest first
};

// Whole characters, in order. `logprobs` holds the tokens that this text came from, when they were asked for.
struct GenerateChunk {
  std::string text;
  int tokens = 0;
  std::vector<TokenLogprob> logprobs;
};

enum class FinishReason { kStop, kLength };

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int written_tokens = 0;
  int64_t predicted_wait_ms = 0;  // what wait_ms was expected to be when the request came
  int64_t wait_ms = 0;            // until the first token of it was read
  int64_t read_ms = 0;            // from then to the first token
  int64_t write_ms = 0;           // from the first token to the last
};

struct GenerateDone {
  FinishReason reason = FinishReason::kStop;
  std::string stop;  // the stop string that ended it, or empty
  Usage usage;
};

// Called on the engine's own thread, in order, and must return at once. on_done is the last call and comes exactly once.
class GenerateSink {
 public:
  virtual ~GenerateSink() = default;
  virtual void on_chunk(GenerateChunk chunk) = 0;
  virtual void on_done(Result<GenerateDone> done) = 0;
};

// Labels as token sequences that follow a prompt. `forced` is what all answers begin with (the answer prefix and what the labels
// share); append it to each prompt. labels[i] is what is left of label i, and may be empty when it is the beginning of another
// label.
struct LabelSet {
  Tokens forced;
  std::vector<Tokens> labels;
};

struct ScoreRequest {
  std::string id;
  std::vector<Prompt> inputs;  // each with LabelSet::forced appended
  std::shared_ptr<const LabelSet> labels;
  Priority priority = Priority::kInteractive;
  int64_t deadline_ms = 0;
  int64_t admit_by_ms = 0;  // refused at once if it would be later; 0: the deadline
  CancelToken cancel;
};

// Texts as tokens, to be turned into one vector each.
struct EmbedRequest {
  std::string id;
  std::vector<Tokens> inputs;
  int64_t deadline_ms = 0;
  CancelToken cancel;
};

// As the other sinks: on the engine's thread, returns at once, on_done comes last and exactly once.
class EmbedSink {
 public:
  virtual ~EmbedSink() = default;
  // Of length 1. Inputs may come in any order.
  virtual void on_item(size_t index, std::vector<float> vector) = 0;
  // Usage is summed over the inputs.
  virtual void on_done(Result<Usage> done) = 0;
};

class ScoreSink {
 public:
  virtual ~ScoreSink() = default;
  // The probability of every label for inputs[index]; they sum to 1. Inputs may come in any order.
  virtual void on_item(size_t index, std::vector<double> probabilities) = 0;
  // Usage is summed over the inputs.
  virtual void on_done(Result<Usage> done) = 0;
};

}  // namespace pocketfleet
