// Layers, heads and states by what the keys say, with the bounds whose breach llama.cpp answers by ending the process.
#include <algorithm>
#include <array>

#include "model/gguf.h"
#include "model/gguf_meta.h"

namespace pocketfleet {

namespace {

constexpr uint64_t kMostLayers = 512;
constexpr uint64_t kMostExperts = 1024;
constexpr uint64_t kMostHeads = 4096;
constexpr uint64_t kWidest = 1u << 20;  // of any vector inside a layer
constexpr uint64_t kWidestFeedForward = 1u << 24;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

template <typename... Args>
tl::unexpected<Error> bad(fmt::format_string<Args...> text, Args&&... args) {
  return fail(ErrorCode::kInvalidModel, fmt::format(text, std::forward<Args>(args)...));
}

bool is_delta_net(std::string_view architecture) {
  return is_one_of(architecture, {"qwen35", "qwen35moe", "qwen3next"});
}

// Families whose keys and values have equally wide heads, and whose graphs insist on it.
bool has_even_heads(std::string_view architecture) {
  return is_delta_net(architecture) || is_one_of(architecture, {"llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma",
                                                                "gemma2", "gemma3", "mistral3", "phi3", "granite"});
}

bool is_recurrent(std::string_view architecture) {
  return is_one_of(architecture, {"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"});
}

// Hybrids in which a layer without KV heads is a recurrent one.
bool is_headless_hybrid(std::string_view architecture) {
  return is_one_of(architecture, {"jamba", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe"});
}

Result<void> check_experts(const GgufMeta& meta, uint64_t layers) {
  PF_TRY(const uint64_t experts, meta.number("expert_count", 0, kMostExperts, 0));
  PF_TRY(const auto used, meta.per_layer("expert_used_count", layers, kMostExperts, 0));
  const uint64_t most = *std::max_element(used.begin(), used.end());
  if (most > experts || (experts > 0 && most == 0)) {
    return bad("{} is {} of {} experts", meta.key("expert_used_count"), most, experts);
  }
  PF_TRY(const uint64_t groups, meta.number("expert_group_count", 0, kMostExperts, 0));
  PF_TRY(const uint64_t group_used, meta.number("expert_group_used_count", 0, kMostExperts, 0));
  const bool sound = experts == 0
                         ? groups == 0
                         : groups < experts && (groups <= 1 || (experts % groups == 0 && group_used > 0 && group_used < groups));
  if (!sound) return bad("{} is {} for {} experts", meta.key("expert_group_count"), groups, experts);
  return {};
}

Result<void> check_rope(const GgufMeta& meta, uint64_t head_dims) {
  PF_TRY(const std::string_view scaling, meta.string(meta.key("rope.scaling.type")));
  if (!scaling.empty() && !is_one_of(scaling, {"none", "linear", "yarn", "longrope"})) {
    return bad("{} is \"{}\"; none, linear, yarn and longrope are known", meta.key("rope.scaling.type"), scaling.substr(0, 40));
  }
  PF_CHECK_OK(meta.real("rope.freq_base", 1e-3, 1e12, 10000));
  PF_CHECK_OK(meta.real("rope.scaling.factor", 0, 1e6, 1));
  PF_CHECK_OK(meta.real("attention.layer_norm_rms_epsilon", 0, 1, 0));
  PF_CHECK_OK(meta.real("attention.layer_norm_epsilon", 0, 1, 0));
  PF_TRY(const uint64_t dims, meta.number("rope.dimension_count", 0, kWidest, head_dims));
  if (head_dims > 0 && (dims > head_dims || dims % 2 != 0)) {
    return bad("{} is {}; it must be even and at most the {} dimensions of a head", meta.key("rope.dimension_count"), dims,
               head_dims);
  }
  if (is_one_of(meta.architecture(), {"llama", "qwen2", "qwen3", "qwen3moe"}) && dims != head_dims) {
    return bad("{} is {}; {} turns all {} dimensions of a head", meta.key("rope.dimension_count"), dims, meta.architecture(),
               head_dims);
  }
  const GgufValue* sections = meta.file().find(meta.key("rope.dimension_sections"));
  if (sections == nullptr) {
    if (is_one_of(meta.architecture(), {"qwen35", "qwen35moe"})) return bad("{} is missing", meta.key("rope.dimension_sections"));
    return {};
  }
  PF_TRY(const auto parts,
         meta.per_layer("rope.dimension_sections", sections->type == GgufType::kArray ? sections->count : 1, kWidest, 0));
  uint64_t sum = 0;
  for (const uint64_t part : parts) sum += part;
  // Sections that leave dimensions out load silently and give a model that reads nonsense.
  if (parts.size() < 3 || parts.size() > 4 || sum == 0 || (is_delta_net(meta.architecture()) && sum != dims / 2)) {
    return bad("{} covers {} pairs of dimensions; it must cover {}", meta.key("rope.dimension_sections"), sum, dims / 2);
  }
  return {};
}

// Which layers are recurrent, and how much each keeps for a sequence.
Result<void> read_recurrent(const GgufMeta& meta, const std::vector<uint64_t>& kv_heads, ModelSummary& summary) {
  const uint64_t layers = summary.layers.size();
  PF_TRY(const uint64_t kernel, meta.number("ssm.conv_kernel", 1, 64, 0));
  PF_TRY(const uint64_t inner, meta.number("ssm.inner_size", 1, kWidest, 0));
  PF_TRY(const uint64_t state, meta.number("ssm.state_size", 1, kWidest, 0));
  PF_TRY(const uint64_t rank, meta.number("ssm.time_step_rank", 1, kWidest, 0));
  PF_TRY(const uint64_t groups, meta.number("ssm.group_count", 0, kMostHeads, 0));
  summary.recurrent_dims = inner;
  summary.convolved = inner + 2 * groups * state;
  uint64_t numbers = (kernel > 0 ? kernel - 1 : 0) * summary.convolved + state * inner;
  PF_TRY(const uint64_t wkv, meta.number("wkv.head_size", 1, kWidest, 0));
  PF_TRY(const uint64_t shift, meta.number("token_shift_count", 0, 16, 2));
  if (wkv > 0) numbers = summary.embedding * (shift + wkv);
  PF_TRY(const uint64_t cached, meta.number("shortconv.l_cache", 1, 64, 0));
  if (cached > 0) numbers = summary.embedding * (cached - 1);

  const std::string& architecture = meta.architecture();
  std::vector<uint64_t> marks(layers, 0);
  if (is_delta_net(architecture)) {
    for (const std::string_view name :
         {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count"}) {
      if (!meta.has(name)) return bad("{} is missing", meta.key(name));
    }
    if (inner != state * rank || groups == 0 || rank % groups != 0) {
      return bad("{} heads of {} for values in {} groups do not make {}: see {}", rank, state, groups, inner, meta.key("ssm.*"));
    }
    PF_TRY(const uint64_t interval, meta.number("full_attention_interval", 1, kMostLayers, 4));
    for (uint64_t i = 0; i < layers; ++i) marks[i] = (i + 1) % interval != 0 ? 1 : 0;
    // llama.cpp wants the marks for every block, those of the drafting head too.
    if (meta.has("attention.recurrent_layers")) {
      PF_TRY(const uint64_t blocks, meta.required("block_count", 1, kMostLayers));
      PF_TRY(marks, meta.per_layer("attention.recurrent_layers", blocks, 1, 0));
    }
  } else if (is_recurrent(architecture) || architecture == "falcon-h1") {
    std::fill(marks.begin(), marks.end(), 1);
  } else if (is_headless_hybrid(architecture)) {
    for (uint64_t i = 0; i < layers; ++i) marks[i] = kv_heads[i] == 0 ? 1 : 0;
  }
  for (uint64_t i = 0; i < layers; ++i) {
    if (marks[i] == 0) continue;
    summary.recurrent = true;
    summary.layers[i].recurrent_numbers = numbers;
    if (architecture != "falcon-h1") summary.layers[i].key_numbers = summary.layers[i].value_numbers = 0;
  }
  return {};
}

// Weights are numbers that can be multiplied; norms, biases and the small recurrent tensors are plain floats.
Result<void> check_tensor_types(const GgufMeta& meta) {
  for (const GgufTensor& tensor : meta.file().tensors) {
    const std::string_view type = tensor_type(tensor.type)->name;
    if (is_one_of(type, {"i8", "i16", "f64", "q8_1", "q8_k"}) ||
        (is_one_of(type, {"i32", "i64"}) && tensor.name != "d2t" && tensor.name != "t2d" &&
         tensor.name.find("tid2eid") == std::string_view::npos)) {
      return bad("tensor \"{}\" is stored as {}, which no weight is", tensor.name, type);
    }
    const bool plain = is_one_of(type, {"f32", "f16", "bf16", "i32", "i64"});
    if (tensor.dim_count == 1 && !plain)
      return bad("tensor \"{}\" is a vector stored as {}; vectors are floats", tensor.name, type);
    const bool small = tensor.dim_count == 1 || tensor.name.find("ssm_conv1d") != std::string_view::npos;
    if (is_delta_net(meta.architecture()) && small && type != "f32") {
      return bad("tensor \"{}\" is stored as {}; it must be f32", tensor.name, type);
    }
  }
  return {};
}

}  // namespace

Result<void> check_shape(const GgufMeta& meta, ModelSummary& summary) {
  PF_TRY(const uint64_t blocks, meta.required("block_count", 1, kMostLayers));
  PF_TRY(const uint64_t drafting, meta.number("nextn_predict_layers", 0, blocks - 1, 0));
  PF_TRY(summary.context_tokens, meta.required("context_length", 1, uint64_t{1} << 31));
  PF_TRY(const uint64_t pooling, meta.number("pooling_type", 0, 64, 0));
  summary.pools = pooling != 0;
  PF_TRY(summary.embedding, meta.required("embedding_length", 1, kWidest));
  PF_TRY(const auto feed_forward, meta.per_layer("feed_forward_length", blocks, kWidestFeedForward, 0));
  summary.feed_forward = *std::max_element(feed_forward.begin(), feed_forward.end());
  PF_CHECK_OK(check_experts(meta, blocks));

  PF_TRY(const auto heads, meta.per_layer("attention.head_count", blocks, kMostHeads, 0));
  std::vector<uint64_t> kv_heads = heads;
  if (meta.has("attention.head_count_kv")) {
    PF_TRY(kv_heads, meta.per_layer("attention.head_count_kv", blocks, kMostHeads, 0));
  }
  // llama.cpp divides by the first layer's heads.
  const uint64_t from_width = heads[0] > 0 ? summary.embedding / heads[0] : 0;
  PF_TRY(const uint64_t key_dims, meta.number("attention.key_length", 1, kWidest, from_width));
  PF_TRY(const uint64_t value_dims, meta.number("attention.value_length", 1, kWidest, from_width));
  if (has_even_heads(meta.architecture())) {
    if (key_dims != value_dims)
      return bad("keys have {} dimensions and values {}; {} wants them equal", key_dims, value_dims, meta.architecture());
    for (uint64_t i = 0; i < blocks; ++i) {
      if (heads[i] == 0 || kv_heads[i] == 0 || heads[i] % kv_heads[i] != 0) {
        return bad("layer {} has {} heads for {} heads of keys and values: they must divide evenly", i, heads[i], kv_heads[i]);
      }
    }
  }
  summary.heads = *std::max_element(heads.begin(), heads.end());
  summary.attention_dims = summary.heads * std::max(key_dims, value_dims);
  PF_CHECK_OK(check_rope(meta, key_dims));

  summary.layers.resize(blocks - drafting);
  for (uint64_t i = 0; i < summary.layers.size(); ++i) {
    summary.layers[i].key_numbers = key_dims * kv_heads[i];
    summary.layers[i].value_numbers = value_dims * kv_heads[i];
  }
  summary.draft_layers.resize(drafting);
  for (uint64_t i = 0; i < drafting; ++i) {
    const uint64_t block = summary.layers.size() + i;
    summary.draft_layers[i] = {key_dims * kv_heads[block], value_dims * kv_heads[block], 0};
  }
  PF_CHECK_OK(read_recurrent(meta, kv_heads, summary));
  return check_tensor_types(meta);
}

}  // namespace pocketfleet
