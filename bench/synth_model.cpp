// Writes a GGUF with random weights in the exact shapes of a Qwen3.5 model, so that speed is measured on real shapes where no
// weights can be fetched. What it writes is noise: any text, fast or slow as the real model is. Same seed, same file.
// The tokenizer is the `qwen35` one from llama.cpp's vocabulary files, padded to the model's vocabulary with unused tokens.
#include <fmt/format.h>
#include <ggml.h>
#include <gguf.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

struct Shape {
  std::string_view size;
  uint32_t layers, hidden, ffn, heads, kv_heads, delta_key_heads, delta_value_heads;
  bool tied;
};

constexpr Shape kShapes[] = {
    {"0.8b", 24, 1024, 3584, 8, 2, 16, 16, true},
    {"2b", 24, 2048, 6144, 8, 2, 16, 16, true},
    {"4b", 32, 2560, 9216, 16, 4, 16, 32, true},
    {"9b", 32, 4096, 12288, 16, 4, 16, 32, false},
};
constexpr uint32_t kVocabulary = 248320;
constexpr uint32_t kContext = 262144;
constexpr uint32_t kHeadDims = 256;
constexpr uint32_t kDeltaDims = 128;
constexpr uint32_t kConvKernel = 4;
constexpr uint32_t kFullAttentionInterval = 4;
constexpr uint32_t kRotaryDims = 64;
constexpr int32_t kRotarySections[] = {11, 11, 10, 0};  // together half the rotary dimensions

struct Quantisation {
  std::string_view name;
  uint32_t file_type;  // llama_ftype
  ggml_type most;
};

constexpr Quantisation kQuantisations[] = {
    {"f16", 1, GGML_TYPE_F16}, {"q4_0", 2, GGML_TYPE_Q4_0}, {"q8_0", 7, GGML_TYPE_Q8_0}, {"q4_k_m", 15, GGML_TYPE_Q4_K}};

[[noreturn]] void give_up(const std::string& why) {
  fmt::print(stderr, "synth_model: {}\n", why);
  std::exit(2);
}

// SplitMix64: the next number follows from the seed and the position alone, so threads need not share a stream.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// About normal with the wanted deviation: the sum of four uniform 16-bit numbers.
void fill_normal(float* out, size_t count, uint64_t seed, float deviation) {
  const float scale = deviation / (32768.0f * std::sqrt(4.0f / 3.0f));
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = mix(seed + i);
    const int sum = static_cast<int>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48));
    out[i] = static_cast<float>(sum - 2 * 65535) * scale;
  }
}

enum class Fill { kNormal, kOnes, kDecay, kTimeStep };

struct Tensor {
  std::string name;
  int64_t columns = 0;
  int64_t rows = 1;
  ggml_type type = GGML_TYPE_F32;
  Fill fill = Fill::kNormal;
};

// The rule of llama-quantize for the outer and every third of the layers between.
bool more_bits(uint32_t index, uint32_t count) {
  return index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2;
}

std::vector<Tensor> tensors_of(const Shape& shape, const Quantisation& quantisation, bool draft_head) {
  const ggml_type most = quantisation.most;
  const bool is_k = most == GGML_TYPE_Q4_K;
  const ggml_type head = is_k || most == GGML_TYPE_Q4_0 ? GGML_TYPE_Q6_K : most;
  const int64_t hidden = shape.hidden;
  const int64_t key_dims = int64_t{kDeltaDims} * shape.delta_key_heads;
  const int64_t value_dims = int64_t{kDeltaDims} * shape.delta_value_heads;

  std::vector<Tensor> out;
  out.push_back({"token_embd.weight", hidden, kVocabulary, shape.tied ? head : most});
  if (!shape.tied) out.push_back({"output.weight", hidden, kVocabulary, head});
  for (uint32_t layer = 0; layer < shape.layers + (draft_head ? 1 : 0); ++layer) {
    const ggml_type sensitive = is_k && more_bits(layer, shape.layers) ? GGML_TYPE_Q6_K : most;
    const auto add = [&](std::string_view name, int64_t columns, int64_t rows, ggml_type type, Fill fill = Fill::kNormal) {
      out.push_back({fmt::format("blk.{}.{}", layer, name), columns, rows, type, fill});
    };
    add("attn_norm.weight", hidden, 1, GGML_TYPE_F32, Fill::kOnes);
    add("post_attention_norm.weight", hidden, 1, GGML_TYPE_F32, Fill::kOnes);
    const bool drafts = layer == shape.layers;
    if (drafts) {
      add("nextn.eh_proj.weight", 2 * hidden, hidden, most);
      for (const char* norm : {"nextn.enorm.weight", "nextn.hnorm.weight", "nextn.shared_head_norm.weight"})
        add(norm, hidden, 1, GGML_TYPE_F32, Fill::kOnes);
    }
    if (drafts || (layer + 1) % kFullAttentionInterval == 0) {
      add("attn_q.weight", hidden, int64_t{kHeadDims} * shape.heads * 2, most);  // the query and its gate
      add("attn_k.weight", hidden, int64_t{kHeadDims} * shape.kv_heads, most);
      add("attn_v.weight", hidden, int64_t{kHeadDims} * shape.kv_heads, sensitive);
      add("attn_output.weight", int64_t{kHeadDims} * shape.heads, hidden, most);
      add("attn_q_norm.weight", kHeadDims, 1, GGML_TYPE_F32, Fill::kOnes);
      add("attn_k_norm.weight", kHeadDims, 1, GGML_TYPE_F32, Fill::kOnes);
    } else {
      add("attn_qkv.weight", hidden, key_dims * 2 + value_dims, sensitive);
      add("attn_gate.weight", hidden, value_dims, most);
      add("ssm_beta.weight", hidden, shape.delta_value_heads, most);
      add("ssm_alpha.weight", hidden, shape.delta_value_heads, most);
      add("ssm_conv1d.weight", kConvKernel, key_dims * 2 + value_dims, GGML_TYPE_F32);
      add("ssm_dt.bias", shape.delta_value_heads, 1, GGML_TYPE_F32, Fill::kTimeStep);
      add("ssm_a", shape.delta_value_heads, 1, GGML_TYPE_F32, Fill::kDecay);
      add("ssm_norm.weight", kDeltaDims, 1, GGML_TYPE_F32, Fill::kOnes);
      add("ssm_out.weight", value_dims, hidden, most);
    }
    add("ffn_gate.weight", hidden, shape.ffn, most);
    add("ffn_up.weight", hidden, shape.ffn, most);
    add("ffn_down.weight", shape.ffn, hidden, sensitive);
  }
  out.push_back({"output_norm.weight", hidden, 1, GGML_TYPE_F32, Fill::kOnes});
  return out;
}

void set_shape(gguf_context* file, const Shape& shape, const Quantisation& quantisation, bool draft_head) {
  const std::string name = fmt::format("Qwen3.5-{} shapes, random weights", shape.size);
  gguf_set_val_str(file, "general.architecture", "qwen35");
  gguf_set_val_str(file, "general.name", name.c_str());
  const auto set = [&](std::string_view key, uint32_t value) {
    gguf_set_val_u32(file, fmt::format("qwen35.{}", key).c_str(), value);
  };
  set("block_count", shape.layers + (draft_head ? 1 : 0));
  if (draft_head) set("nextn_predict_layers", 1);
  set("context_length", kContext);
  set("embedding_length", shape.hidden);
  set("feed_forward_length", shape.ffn);
  set("attention.head_count", shape.heads);
  set("attention.head_count_kv", shape.kv_heads);
  set("attention.key_length", kHeadDims);
  set("attention.value_length", kHeadDims);
  set("rope.dimension_count", kRotaryDims);
  set("ssm.conv_kernel", kConvKernel);
  set("ssm.state_size", kDeltaDims);
  set("ssm.group_count", shape.delta_key_heads);
  set("ssm.time_step_rank", shape.delta_value_heads);
  set("ssm.inner_size", kDeltaDims * shape.delta_value_heads);
  set("full_attention_interval", kFullAttentionInterval);
  gguf_set_val_f32(file, "qwen35.rope.freq_base", 1e7f);
  gguf_set_val_f32(file, "qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
  gguf_set_arr_data(file, "qwen35.rope.dimension_sections", GGUF_TYPE_INT32, kRotarySections, 4);
  gguf_set_val_u32(file, "general.file_type", quantisation.file_type);
  gguf_set_val_u32(file, "general.quantization_version", 2);
}

constexpr int32_t kUserDefined = 4;
constexpr int32_t kUnused = 5;

void set_tokenizer(gguf_context* file, const std::string& vocab_path, const std::string& template_path) {
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> vocab(gguf_init_from_file(vocab_path.c_str(), {true, nullptr}),
                                                                  gguf_free);
  if (!vocab) give_up(fmt::format("cannot read {}: run scripts/setup, or name a vocabulary with --vocab", vocab_path));
  const auto find = [&](const char* key) {
    const int64_t id = gguf_find_key(vocab.get(), key);
    if (id < 0) give_up(fmt::format("{} has no {}", vocab_path, key));
    return id;
  };

  const int64_t tokens_id = find("tokenizer.ggml.tokens");
  const int64_t kinds_id = find("tokenizer.ggml.token_type");
  const auto* given_kinds = static_cast<const int32_t*>(gguf_get_arr_data(vocab.get(), kinds_id));
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
  for (size_t i = 0; i < gguf_get_arr_n(vocab.get(), tokens_id) && i < kVocabulary; ++i) {
    tokens.emplace_back(gguf_get_arr_str(vocab.get(), tokens_id, i));
    // Padding is no text that a user may write.
    kinds.push_back(tokens.back().starts_with("[PAD") ? kUnused : given_kinds[i]);
  }
  const auto end_of_turn = std::find(tokens.begin(), tokens.end(), "<|im_end|>");
  const auto end_of_text = std::find(tokens.begin(), tokens.end(), "<|endoftext|>");
  if (end_of_turn == tokens.end() || end_of_text == tokens.end()) give_up(vocab_path + " has no <|im_end|> or <|endoftext|>");
  for (const char* extra : {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"}) {
    if (std::find(tokens.begin(), tokens.end(), extra) != tokens.end()) continue;
    tokens.emplace_back(extra);
    kinds.push_back(kUserDefined);
  }
  while (tokens.size() < kVocabulary) {
    tokens.push_back(fmt::format("[PAD{}]", tokens.size()));
    kinds.push_back(kUnused);
  }

  const auto set_strings = [&](const char* key, size_t count, const auto& text) {
    std::vector<const char*> pointers(count);
    for (size_t i = 0; i < count; ++i) pointers[i] = text(i);
    gguf_set_arr_str(file, key, pointers.data(), count);
  };
  gguf_set_val_str(file, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(file, "tokenizer.ggml.pre", "qwen35");
  set_strings("tokenizer.ggml.tokens", tokens.size(), [&](size_t i) { return tokens[i].c_str(); });
  gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, kinds.data(), kinds.size());
  const int64_t merges_id = find("tokenizer.ggml.merges");
  set_strings("tokenizer.ggml.merges", gguf_get_arr_n(vocab.get(), merges_id),
              [&](size_t i) { return gguf_get_arr_str(vocab.get(), merges_id, i); });
  gguf_set_val_u32(file, "tokenizer.ggml.eos_token_id", static_cast<uint32_t>(end_of_turn - tokens.begin()));
  gguf_set_val_u32(file, "tokenizer.ggml.padding_token_id", static_cast<uint32_t>(end_of_text - tokens.begin()));
  gguf_set_val_bool(file, "tokenizer.ggml.add_bos_token", false);

  std::ifstream in(template_path, std::ios::binary);
  std::stringstream text;
  if (!in || !(text << in.rdbuf())) give_up(fmt::format("cannot read the chat template {}", template_path));
  gguf_set_val_str(file, "tokenizer.chat_template", text.str().c_str());
}

void fill_rows(const Tensor& tensor, int64_t first, int64_t count, uint64_t seed, float* out) {
  const auto begin = static_cast<uint64_t>(first) * static_cast<uint64_t>(tensor.columns);
  const auto size = static_cast<size_t>(count * tensor.columns);
  switch (tensor.fill) {
    case Fill::kNormal:
      // Variance is kept from layer to layer, so that logits look like logits.
      return fill_normal(out, size, seed + begin,
                         tensor.columns > 8 ? 1.0f / std::sqrt(static_cast<float>(tensor.columns)) : 0.3f);
    case Fill::kOnes:
      std::fill(out, out + size, 1.0f);
      return;
    case Fill::kDecay:  // -exp(A_log), A from 1 to 16
      for (size_t i = 0; i < size; ++i) out[i] = -(1.0f + 15.0f * static_cast<float>(mix(seed + i) >> 40) / 16777216.0f);
      return;
    case Fill::kTimeStep:  // softplus of it is between 0.001 and 0.1
      for (size_t i = 0; i < size; ++i) {
        const float step = std::exp(-6.9f + 4.6f * static_cast<float>(mix(seed + i) >> 40) / 16777216.0f);
        out[i] = std::log(std::expm1(step));
      }
      return;
  }
}

// Rows up to this many are all different; a taller matrix repeats rows of these in random order. Embeddings do not repeat:
// equal rows would be equal logits.
constexpr int64_t kDifferentRows = 2048;
constexpr size_t kChunkBytes = 16u << 20;

class Writer {
 public:
  Writer(FILE* out, int threads, uint64_t seed) : out_(out), threads_(threads), seed_(seed) {}

  void write(const Tensor& tensor, size_t alignment) {
    const size_t row_bytes = ggml_row_size(tensor.type, tensor.columns);
    const bool is_vocabulary = tensor.rows == kVocabulary;
    const int64_t different = is_vocabulary ? tensor.rows : std::min(tensor.rows, kDifferentRows);
    const uint64_t seed = mix(seed_ ^ mix(std::hash<std::string>{}(tensor.name)));
    const auto chunk =
        std::max<int64_t>(1, static_cast<int64_t>(kChunkBytes / (static_cast<size_t>(tensor.columns) * sizeof(float))));
    std::vector<uint8_t> kept;
    for (int64_t row = 0; row < different; row += chunk) {
      const int64_t rows = std::min(chunk, different - row);
      std::vector<uint8_t> bytes(row_bytes * static_cast<size_t>(rows));
      quantise(tensor, row, rows, seed, bytes.data());
      put(bytes.data(), bytes.size());
      if (different < tensor.rows) kept.insert(kept.end(), bytes.begin(), bytes.end());
    }
    for (int64_t row = different; row < tensor.rows; ++row) {
      const uint64_t from = mix(seed ^ static_cast<uint64_t>(row)) % static_cast<uint64_t>(different);
      put(kept.data() + from * row_bytes, row_bytes);
    }
    const size_t written = row_bytes * static_cast<size_t>(tensor.rows);
    const std::vector<uint8_t> padding((alignment - written % alignment) % alignment, 0);
    put(padding.data(), padding.size());
  }

  void put(const void* data, size_t size) {
    if (size > 0 && std::fwrite(data, 1, size, out_) != size) give_up("the disk is full, or the file cannot be written");
  }

 private:
  void quantise(const Tensor& tensor, int64_t first, int64_t rows, uint64_t seed, uint8_t* out) const {
    const size_t row_bytes = ggml_row_size(tensor.type, tensor.columns);
    const int64_t each = (rows + threads_ - 1) / threads_;
    std::vector<std::thread> workers;
    for (int64_t begin = 0; begin < rows; begin += each) {
      workers.emplace_back([&, begin] {
        const int64_t count = std::min(each, rows - begin);
        std::vector<float> numbers(static_cast<size_t>(count * tensor.columns));
        fill_rows(tensor, first + begin, count, seed, numbers.data());
        ggml_quantize_chunk(tensor.type, numbers.data(), out + row_bytes * static_cast<size_t>(begin), 0, count, tensor.columns,
                            nullptr);
      });
    }
    for (std::thread& worker : workers) worker.join();
  }

  FILE* out_;
  int64_t threads_;
  uint64_t seed_;
};

void write_model(const Shape& shape, const Quantisation& quantisation, bool draft_head, const std::string& vocab,
                 const std::string& chat_template, const std::string& path, int threads, uint64_t seed) {
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> file(gguf_init_empty(), gguf_free);
  set_shape(file.get(), shape, quantisation, draft_head);
  set_tokenizer(file.get(), vocab, chat_template);

  const std::vector<Tensor> tensors = tensors_of(shape, quantisation, draft_head);
  const ggml_init_params params = {ggml_tensor_overhead() * (tensors.size() + 1), nullptr, true};
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init(params), ggml_free);
  for (const Tensor& tensor : tensors) {
    ggml_tensor* entry = tensor.rows == 1 ? ggml_new_tensor_1d(context.get(), tensor.type, tensor.columns)
                                          : ggml_new_tensor_2d(context.get(), tensor.type, tensor.columns, tensor.rows);
    ggml_set_name(entry, tensor.name.c_str());
    gguf_add_tensor(file.get(), entry);
  }

  const std::string unfinished = path + ".part";
  FILE* out = std::fopen(unfinished.c_str(), "wb");
  if (out == nullptr) give_up(fmt::format("cannot write {}", unfinished));
  std::vector<uint8_t> head(gguf_get_meta_size(file.get()));
  gguf_get_meta_data(file.get(), head.data());
  Writer writer(out, threads, seed);
  writer.put(head.data(), head.size());
  const bool on_terminal = isatty(STDERR_FILENO) == 1;
  int percent = -1;
  for (size_t i = 0; i < tensors.size(); ++i) {
    writer.write(tensors[i], gguf_get_alignment(file.get()));
    const int now = static_cast<int>(100 * (i + 1) / tensors.size());
    if (now != percent && on_terminal) fmt::print(stderr, "\rsynth_model: {} {} {:3d} %", shape.size, quantisation.name, now);
    percent = now;
  }
  if (on_terminal) fmt::print(stderr, "\n");
  if (std::fclose(out) != 0 || std::rename(unfinished.c_str(), path.c_str()) != 0) give_up(fmt::format("cannot write {}", path));
}

template <typename Row, size_t kCount>
const Row& choose(const Row (&rows)[kCount], std::string_view Row::*name, std::string_view wanted, std::string_view option) {
  std::string all;
  for (const Row& row : rows) {
    if (row.*name == wanted) return row;
    all += fmt::format(" {}", row.*name);
  }
  give_up(fmt::format("{} \"{}\" is not known; there are:{}", option, wanted, all));
}

constexpr std::string_view kHelp =
    "Writes a GGUF with random weights in the shapes of a Qwen3.5 model.\n"
    "Usage: synth_model [--size 0.8b|2b|4b|9b] [--type q4_0|q4_k_m|q8_0|f16] [--seed N] [--threads N]\n"
    "                   [--vocab GGUF] [--chat-template JINJA] [--draft-head] OUT.gguf\n";

}  // namespace

int main(int argc, char** argv) {
  std::string size = "0.8b", type = "q4_0", path, vocab = SYNTH_VOCAB, chat_template = SYNTH_CHAT_TEMPLATE;
  uint64_t seed = 1;
  int threads = 2;
  bool draft_head = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "-h" || word == "--help") {
      fmt::print("{}", kHelp);
      return 0;
    }
    if (!word.starts_with("--")) {
      path = word;
      continue;
    }
    if (word == "--draft-head") {
      draft_head = true;
      continue;
    }
    if (i + 1 >= argc) give_up(fmt::format("{} needs a value", word));
    const char* value = argv[++i];
    if (word == "--size") {
      size = value;
    } else if (word == "--type") {
      type = value;
    } else if (word == "--seed") {
      seed = std::strtoull(value, nullptr, 10);
    } else if (word == "--threads") {
      threads = std::clamp(std::atoi(value), 1, 256);
    } else if (word == "--vocab") {
      vocab = value;
    } else if (word == "--chat-template") {
      chat_template = value;
    } else {
      give_up(fmt::format("unknown option {} (try --help)", word));
    }
  }
  if (path.empty()) give_up("name the file to write (try --help)");
  const Shape& shape = choose(kShapes, &Shape::size, size, "--size");
  const Quantisation& quantisation = choose(kQuantisations, &Quantisation::name, type, "--type");
  write_model(shape, quantisation, draft_head, vocab, chat_template, path, threads, seed);
}
