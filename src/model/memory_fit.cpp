#include "model/memory_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/files.h"

namespace pocketfleet {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kProgramBytes = 32 * kMiB;
constexpr uint64_t kTokenBytes = 260;  // a token and its merge in llama.cpp's tables, measured at 248,320 tokens
constexpr uint64_t kDefaultContext = 8192;
constexpr uint64_t kExtraSequences = 3;  // the engine's, for prefixes and for the rest of a label
constexpr uint64_t kMostScoreSequences = 24;
constexpr uint64_t kScoreBytes = 64 * kMiB;
constexpr uint64_t kExtraOutputs = 16;
constexpr uint64_t kEmbeddingSequences = 8;  // as the engine's embedder has them
constexpr uint64_t kEmbeddingLogitsBytes = 128 * kMiB;
constexpr uint64_t kLeastEmbeddingBatch = 32;
constexpr uint64_t kDraftWindow = 512;  // as the engine's draft head has them
constexpr uint64_t kDraftBatch = 64;
constexpr uint64_t kContextStep = 256;
constexpr uint64_t kLeastContext = 1024;
constexpr uint64_t kMost = uint64_t{1} << 62;

// Settings and models come from people: products stop at a bound and do not wrap around.
uint64_t times(uint64_t a, uint64_t b) {
  return b != 0 && a > kMost / b ? kMost : a * b;
}
uint64_t plus(uint64_t a, uint64_t b) {
  return std::min(a + b, kMost);
}
uint64_t padded(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

struct KvWidth {
  uint64_t numbers, bytes;
};

Result<KvWidth> kv_width(const std::string& type) {
  if (type == "f32") return KvWidth{1, 4};
  if (type == "f16") return KvWidth{1, 2};
  if (type == "q8_0") return KvWidth{32, 34};
  return fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not a KV cache type; use f32, f16 or q8_0", type));
}

// The buffer for what a batch passes from step to step. Its parts were found by comparing llama.cpp's own figures at several
// batches, contexts and numbers of sequences: the attention mask, the widest layer's activations, and two copies of a layer's
// states.
uint64_t compute_buffer(const ModelSummary& summary, const MemoryPlan& plan, uint64_t cells, uint64_t batch, uint64_t outputs) {
  uint64_t state = 0;
  for (const LayerState& layer : summary.layers) state = std::max(state, layer.recurrent_numbers);
  const uint64_t tokens = padded(batch, plan.sequences);
  const uint64_t mask = times(times(tokens, cells), 2);
  const uint64_t dense = std::max(plus(times(3, summary.feed_forward), times(2, summary.embedding)),
                                  plus(times(4, summary.attention_dims), times(3, summary.embedding)));
  const uint64_t recurrent =
      plus(times(2, summary.convolved), plus(times(3, summary.embedding), times(2, summary.recurrent_dims)));
  const uint64_t activations = times(times(tokens, std::max(dense, summary.recurrent ? recurrent : 0)), 4);
  const uint64_t states = times(times(plan.sequences, 2), times(state, 4));
  const uint64_t logits = times(times(outputs, summary.vocabulary), 4);
  return plus(mask, std::max(plus(activations, states), logits));
}

}  // namespace

Result<MemoryPlan> compute_memory(const ModelSummary& summary, const MemorySettings& settings) {
  PF_TRY(const KvWidth width, kv_width(settings.kv_type));
  MemoryPlan plan;
  plan.context_tokens = settings.context_tokens > 0 ? settings.context_tokens : std::min(summary.context_tokens, kDefaultContext);
  const uint64_t slots = std::max<uint64_t>(settings.slots, 1);
  uint64_t kv_numbers = 0;
  uint64_t recurrent_numbers = 0;
  for (const LayerState& layer : summary.layers) {
    kv_numbers = plus(kv_numbers, plus(layer.key_numbers, layer.value_numbers));
    recurrent_numbers = plus(recurrent_numbers, layer.recurrent_numbers);
  }
  const uint64_t sequence_bytes = times(recurrent_numbers, 4);
  plan.sequences = settings.sequences;
  if (plan.sequences == 0) {
    const uint64_t scores =
        sequence_bytes == 0 ? kMostScoreSequences : std::min(kScoreBytes / sequence_bytes, kMostScoreSequences);
    plan.sequences = slots + kExtraSequences + scores;
  }
  const uint64_t batch = std::max<uint64_t>(settings.batch_tokens, 1);
  const uint64_t outputs = std::min(plan.sequences + kExtraOutputs, batch);
  const uint64_t cells = padded(times(plan.context_tokens, slots), 256);

  plan.weight_bytes = summary.tensor_bytes - summary.draft_bytes + settings.packing_bytes;
  plan.kv_bytes = times(times(cells, kv_numbers) / width.numbers, width.bytes);
  plan.recurrent_bytes = times(sequence_bytes, plan.sequences);
  plan.compute_bytes = compute_buffer(summary, plan, cells, batch, outputs);
  plan.vocabulary_bytes = times(summary.vocabulary, kTokenBytes + outputs * 4);
  plan.checkpoint_bytes = settings.checkpoint_bytes;
  plan.program_bytes = kProgramBytes;
  if (settings.draft_head) {
    uint64_t numbers = 0;
    for (const LayerState& layer : summary.draft_layers) numbers = plus(numbers, plus(layer.key_numbers, layer.value_numbers));
    const uint64_t own_cells = times(kDraftWindow, slots);
    MemoryPlan own = plan;
    own.sequences = slots;
    plan.draft_bytes = plus(plus(summary.draft_bytes, times(times(own_cells, numbers) / width.numbers, width.bytes)),
                            compute_buffer(summary, own, own_cells, kDraftBatch, 1));
  }
  if (settings.embeddings) {
    // Every token of such a batch has logits, so it is cut where those would take too much.
    const uint64_t affordable = kEmbeddingLogitsBytes / 4 / std::max<uint64_t>(summary.vocabulary, 1);
    const uint64_t pooled = std::min(batch, std::max(affordable, kLeastEmbeddingBatch));
    MemoryPlan own = plan;
    own.sequences = kEmbeddingSequences;
    const uint64_t own_cells = padded(plan.context_tokens, 256);
    plan.embedding_bytes = plus(plus(times(times(own_cells, kv_numbers), 2), times(sequence_bytes, kEmbeddingSequences)),
                                compute_buffer(summary, own, own_cells, pooled, pooled));
  }
  return plan;
}

Result<MemoryPlan> plan_memory(const ModelSummary& summary, const MemorySettings& settings, uint64_t available_bytes) {
  PF_TRY(MemoryPlan plan, compute_memory(summary, settings));
  plan.available_bytes = available_bytes;
  if (plan.total_bytes() <= available_bytes) return plan;

  // What helps: less context where that is the greater part, or nothing at all when the weights alone do not fit.
  std::string advice;
  const uint64_t fixed = plan.weight_bytes + plan.vocabulary_bytes + plan.program_bytes;
  if (fixed > available_bytes) {
    advice = "The weights alone do not fit: use a smaller model or a smaller quantisation.";
  } else {
    MemorySettings smallest = settings;
    smallest.context_tokens = std::min<uint64_t>(plan.context_tokens, 1024);
    smallest.slots = 1;
    smallest.checkpoint_bytes = 0;
    PF_TRY(const MemoryPlan least, compute_memory(summary, smallest));
    advice = least.total_bytes() <= available_bytes
                 ? "Try a smaller --ctx, fewer --slots, --kv-type q8_0 or a smaller --checkpoint-ram."
                 : "Even --ctx 1024 --slots 1 --checkpoint-ram 0 would not fit: use a smaller model or a smaller quantisation.";
  }
  return fail(ErrorCode::kOutOfMemory,
              fmt::format("{} needs {} of memory, but {} are available: {}. {}", summary.path, format_bytes(plan.total_bytes()),
                          format_bytes(available_bytes), describe(plan), advice));
}

Result<uint64_t> largest_context(const ModelSummary& summary, MemorySettings settings, uint64_t available_bytes) {
  const uint64_t usable = available_bytes - available_bytes / 10;
  const auto fits = [&](uint64_t steps) -> Result<bool> {
    settings.context_tokens = steps * kContextStep;
    PF_TRY(const MemoryPlan plan, compute_memory(summary, settings));
    return plan.total_bytes() <= usable;
  };
  uint64_t least = kLeastContext / kContextStep;
  uint64_t most = std::max(summary.context_tokens / kContextStep, uint64_t{1});
  least = std::min(least, most);
  PF_TRY(const bool any, fits(least));
  if (!any) {
    settings.context_tokens = least * kContextStep;
    PF_CHECK_OK(plan_memory(summary, settings, usable));
  }
  // What takes memory grows with the context.
  while (least < most) {
    const uint64_t middle = least + (most - least + 1) / 2;
    PF_TRY(const bool good, fits(middle));
    if (good) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least * kContextStep;
}

std::string describe(const MemoryPlan& plan) {
  std::string out = fmt::format("weights {} + KV cache {} ({} tokens a request)", format_bytes(plan.weight_bytes),
                                format_bytes(plan.kv_bytes), plan.context_tokens);
  if (plan.recurrent_bytes > 0)
    out += fmt::format(" + states of {} sequences {}", plan.sequences, format_bytes(plan.recurrent_bytes));
  if (plan.embedding_bytes > 0) out += fmt::format(" + embeddings {}", format_bytes(plan.embedding_bytes));
  if (plan.draft_bytes > 0) out += fmt::format(" + draft head {}", format_bytes(plan.draft_bytes));
  out += fmt::format(" + compute buffers {} + vocabulary {} + checkpoints {} + program {}", format_bytes(plan.compute_bytes),
                     format_bytes(plan.vocabulary_bytes), format_bytes(plan.checkpoint_bytes), format_bytes(plan.program_bytes));
  return out;
}

namespace {

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// The number after `key` at the beginning of a line.
std::optional<uint64_t> field(std::string_view text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    line.remove_prefix(std::min(line.find_first_not_of(" \t:"), line.size()));
    return parse_number(line);
  }
  return std::nullopt;
}

constexpr size_t kMostBytes = 1u << 20;

std::optional<uint64_t> number_in(const std::string& path) {
  const auto text = read_file(path, kMostBytes);
  return text ? parse_number(*text) : std::nullopt;
}

// What a cgroup leaves over: its limit, less what it uses and cannot drop. Pages of files are dropped when memory is short.
std::optional<uint64_t> left_in_cgroup(const std::string& folder) {
  const auto limit = number_in(folder + "/memory.max");  // "max" where there is none
  const auto used = number_in(folder + "/memory.current");
  if (!limit || !used) return std::nullopt;
  const auto stat = read_file(folder + "/memory.stat", kMostBytes);
  const uint64_t files = stat ? field(*stat, "inactive_file").value_or(0) + field(*stat, "active_file").value_or(0) : 0;
  const uint64_t kept = *used > files ? *used - files : 0;
  return *limit > kept ? *limit - kept : 0;
}

}  // namespace

Result<AvailableMemory> read_available_memory(const std::string& root) {
  PF_TRY(const std::string meminfo, read_file(root + "/proc/meminfo", kMostBytes));
  const auto kib = field(meminfo, "MemAvailable");
  if (!kib) return fail(ErrorCode::kIo, "/proc/meminfo does not say MemAvailable");
  AvailableMemory out{times(*kib, 1024), "this machine"};
  const auto membership = read_file(root + "/proc/self/cgroup", kMostBytes);
  if (!membership) return out;
  size_t at = membership->find("0::/");
  if (at != 0 && (at == std::string::npos || (*membership)[at - 1] != '\n')) return out;
  at += 3;
  std::string group = membership->substr(at, membership->find('\n', at) - at);
  // Each level may have a limit of its own.
  for (;;) {
    const auto left = left_in_cgroup(root + "/sys/fs/cgroup" + (group == "/" ? "" : group));
    if (left && *left < out.bytes) out = {*left, "the memory limit of cgroup " + group};
    if (group == "/" || group.empty()) return out;
    group.resize(group.find_last_of('/'));
    if (group.empty()) group = "/";
  }
}

}  // namespace pocketfleet
