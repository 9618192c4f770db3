// Writes a GGUF with the exact shapes of a Qwen3.5 model and random weights, so that speed and memory are measured on real shapes
// where no weights can be fetched. What it writes is nonsense, at the speed of the real model. Same arguments, same bytes.
#include <fmt/format.h>
#include <ggml.h>
#include <gguf.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Shape {
  const char* name;
  uint32_t layers, hidden, feed_forward;
  uint32_t heads, kv_heads, head_dims;
  uint32_t key_heads, value_heads, state;  // of the delta net
  uint32_t vocabulary, context;
  bool tied;
};

constexpr Shape kShapes[] = {
    {"0.8b", 24, 1024, 3584, 8, 2, 256, 16, 16, 128, 248320, 262144, true},
    {"2b", 24, 2048, 6144, 8, 2, 256, 16, 16, 128, 248320, 262144, true},
    {"4b", 32, 2560, 9216, 16, 4, 256, 16, 32, 128, 248320, 262144, true},
    {"9b", 32, 4096, 12288, 16, 4, 256, 16, 32, 128, 248320, 262144, false},
    {"tiny", 4, 256, 512, 4, 2, 64, 2, 4, 64, 248320, 4096, true},
};
constexpr uint32_t kInterval = 4;  // every fourth layer attends
constexpr uint32_t kKernel = 4;

struct Options {
  Shape shape = kShapes[0];
  std::string quantisation = "q4_0";
  std::string vocabulary;
  std::string chat_template;
  std::string output;
  uint64_t seed = 1;
};

[[noreturn]] void die(const std::string& text) {
  fmt::print(stderr, "synth_model: {}\n", text);
  std::exit(2);
}

// One tensor to come: what it is called, how it is stored and what it is filled with.
struct Plan {
  std::string name;
  std::vector<int64_t> dims;
  ggml_type type;
  float mean, spread;
};

bool more_bits(uint32_t layer, uint32_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// The mixture that llama-quantize makes.
class Mixture {
 public:
  explicit Mixture(std::string name) : name_(std::move(name)) {
    if (name_ != "q4_0" && name_ != "q4_k_m" && name_ != "q8_0" && name_ != "f16") die("--type is q4_0, q4_k_m, q8_0 or f16");
  }
  ggml_type matrix() const {
    if (name_ == "q4_0") return GGML_TYPE_Q4_0;
    if (name_ == "q4_k_m") return GGML_TYPE_Q4_K;
    return name_ == "q8_0" ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
  }
  ggml_type embedding() const { return name_ == "q4_0" || name_ == "q4_k_m" ? GGML_TYPE_Q6_K : matrix(); }
  ggml_type sensitive(uint32_t layer, uint32_t layers) const {
    return name_ == "q4_k_m" && more_bits(layer, layers) ? GGML_TYPE_Q6_K : matrix();
  }
  uint32_t file_type() const { return name_ == "q4_0" ? 2 : name_ == "q4_k_m" ? 15 : name_ == "q8_0" ? 7 : 1; }

 private:
  std::string name_;
};

std::vector<Plan> plan_tensors(const Shape& shape, const Mixture& mixture) {
  std::vector<Plan> out;
  const int64_t hidden = shape.hidden;
  const int64_t values = int64_t{shape.value_heads} * shape.state;
  const int64_t convolved = 2 * int64_t{shape.key_heads} * shape.state + values;
  const auto matrix = [&](std::string name, int64_t in, int64_t rows, ggml_type type) {
    out.push_back({std::move(name), {in, rows}, type, 0, 1 / std::sqrt(static_cast<float>(in))});
  };
  const auto vector = [&](std::string name, int64_t size, float mean, float spread) {
    out.push_back({std::move(name), {size}, GGML_TYPE_F32, mean, spread});
  };
  matrix("token_embd.weight", hidden, shape.vocabulary, mixture.embedding());
  vector("output_norm.weight", hidden, 1, 0.1F);
  if (!shape.tied) matrix("output.weight", hidden, shape.vocabulary, mixture.embedding());
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const auto name = [layer](const char* rest) { return fmt::format("blk.{}.{}", layer, rest); };
    const ggml_type plain = mixture.matrix();
    const ggml_type sensitive = mixture.sensitive(layer, shape.layers);
    vector(name("attn_norm.weight"), hidden, 1, 0.1F);
    vector(name("post_attention_norm.weight"), hidden, 1, 0.1F);
    if ((layer + 1) % kInterval == 0) {
      // Queries come with a gate of the same size.
      matrix(name("attn_q.weight"), hidden, 2 * int64_t{shape.heads} * shape.head_dims, plain);
      matrix(name("attn_k.weight"), hidden, int64_t{shape.kv_heads} * shape.head_dims, plain);
      matrix(name("attn_v.weight"), hidden, int64_t{shape.kv_heads} * shape.head_dims, sensitive);
      matrix(name("attn_output.weight"), int64_t{shape.heads} * shape.head_dims, hidden, plain);
      vector(name("attn_q_norm.weight"), shape.head_dims, 1, 0.1F);
      vector(name("attn_k_norm.weight"), shape.head_dims, 1, 0.1F);
    } else {
      matrix(name("attn_qkv.weight"), hidden, convolved, sensitive);
      matrix(name("attn_gate.weight"), hidden, values, plain);
      out.push_back({name("ssm_conv1d.weight"), {kKernel, convolved}, GGML_TYPE_F32, 0, 0.5F});
      vector(name("ssm_dt.bias"), shape.value_heads, 0, 0.5F);
      // Negative: how fast a head forgets.
      vector(name("ssm_a"), shape.value_heads, -2, 1);
      matrix(name("ssm_beta.weight"), hidden, shape.value_heads, plain);
      matrix(name("ssm_alpha.weight"), hidden, shape.value_heads, plain);
      vector(name("ssm_norm.weight"), shape.state, 1, 0.1F);
      matrix(name("ssm_out.weight"), values, hidden, plain);
    }
    matrix(name("ffn_gate.weight"), hidden, shape.feed_forward, plain);
    matrix(name("ffn_up.weight"), hidden, shape.feed_forward, plain);
    matrix(name("ffn_down.weight"), shape.feed_forward, hidden, sensitive);
  }
  return out;
}

// The chat template of a GGUF file, a text file's whole content, or without either one that is enough to talk.
std::string read_template(const std::string& path) {
  if (path.empty()) {
    return "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- "
           "endfor %}"
           "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{%- endif %}";
  }
  if (path.ends_with(".gguf")) {
    const std::unique_ptr<gguf_context, decltype(&gguf_free)> from(gguf_init_from_file(path.c_str(), {true, nullptr}), gguf_free);
    const int64_t id = from ? gguf_find_key(from.get(), "tokenizer.chat_template") : -1;
    if (id < 0) die(path + " has no chat template");
    return gguf_get_val_str(from.get(), id);
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) die("cannot read " + path);
  return text.str();
}

// The tokenizer of `from`, with stand-ins up to the vocabulary of the shape: they are never read from text, but may be written.
void set_tokenizer(gguf_context* out, const Options& options) {
  const gguf_init_params params = {true, nullptr};
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> from(gguf_init_from_file(options.vocabulary.c_str(), params),
                                                                 gguf_free);
  if (!from) die(options.vocabulary + " is not a GGUF file");
  const auto find = [&](const char* key) {
    const int64_t id = gguf_find_key(from.get(), key);
    if (id < 0) die(fmt::format("{} has no {}", options.vocabulary, key));
    return id;
  };
  const auto strings = [&](const char* key) {
    const int64_t id = find(key);
    std::vector<std::string> texts;
    for (size_t i = 0; i < gguf_get_arr_n(from.get(), id); ++i) texts.emplace_back(gguf_get_arr_str(from.get(), id, i));
    return texts;
  };
  const auto set_strings = [&](const char* key, const std::vector<std::string>& texts) {
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    gguf_set_arr_str(out, key, pointers.data(), pointers.size());
  };
  std::vector<std::string> tokens = strings("tokenizer.ggml.tokens");
  if (tokens.size() > options.shape.vocabulary)
    die(fmt::format("{} has {} tokens, more than the shape's {}", options.vocabulary, tokens.size(), options.shape.vocabulary));
  const auto* kinds = static_cast<const int32_t*>(gguf_get_arr_data(from.get(), find("tokenizer.ggml.token_type")));
  std::vector<int32_t> types(kinds, kinds + tokens.size());
  while (tokens.size() < options.shape.vocabulary) tokens.push_back(fmt::format("synth{}", tokens.size()));
  types.resize(tokens.size(), 1);

  gguf_set_val_str(out, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(out, "tokenizer.ggml.pre", "qwen35");
  set_strings("tokenizer.ggml.tokens", tokens);
  gguf_set_arr_data(out, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  set_strings("tokenizer.ggml.merges", strings("tokenizer.ggml.merges"));
  // A turn ends with <|im_end|>.
  const auto end = std::find(tokens.begin(), tokens.end(), "<|im_end|>");
  if (end == tokens.end()) die(options.vocabulary + " has no <|im_end|>");
  gguf_set_val_u32(out, "tokenizer.ggml.eos_token_id", static_cast<uint32_t>(end - tokens.begin()));
  gguf_set_val_u32(out, "tokenizer.ggml.padding_token_id", gguf_get_val_u32(from.get(), find("tokenizer.ggml.padding_token_id")));
  gguf_set_val_bool(out, "tokenizer.ggml.add_bos_token", false);
  gguf_set_val_str(out, "tokenizer.chat_template", read_template(options.chat_template).c_str());
}

void set_keys(gguf_context* out, const Options& options, const Mixture& mixture) {
  const Shape& shape = options.shape;
  gguf_set_val_str(out, "general.architecture", "qwen35");
  gguf_set_val_str(out, "general.name", fmt::format("synthetic Qwen3.5 {}", shape.name).c_str());
  gguf_set_val_str(out, "general.description", "random weights in real shapes: for measuring only");
  gguf_set_val_u32(out, "general.file_type", mixture.file_type());
  gguf_set_val_u32(out, "general.quantization_version", 2);
  const auto number = [out](const char* key, uint32_t value) {
    gguf_set_val_u32(out, fmt::format("qwen35.{}", key).c_str(), value);
  };
  number("block_count", shape.layers);
  number("context_length", shape.context);
  number("embedding_length", shape.hidden);
  number("feed_forward_length", shape.feed_forward);
  number("attention.head_count", shape.heads);
  number("attention.head_count_kv", shape.kv_heads);
  number("attention.key_length", shape.head_dims);
  number("attention.value_length", shape.head_dims);
  gguf_set_val_f32(out, "qwen35.rope.freq_base", 1e7F);
  gguf_set_val_f32(out, "qwen35.attention.layer_norm_rms_epsilon", 1e-6F);
  // A quarter of a head's dimensions turn; the sections cover its pairs, nearly evenly.
  const uint32_t turned = shape.head_dims / 4;
  const auto third = static_cast<int32_t>((turned / 2 + 2) / 3);
  const int32_t sections[4] = {third, third, static_cast<int32_t>(turned / 2) - 2 * third, 0};
  number("rope.dimension_count", turned);
  gguf_set_arr_data(out, "qwen35.rope.dimension_sections", GGUF_TYPE_INT32, sections, 4);
  number("ssm.conv_kernel", kKernel);
  number("ssm.state_size", shape.state);
  number("ssm.group_count", shape.key_heads);
  number("ssm.time_step_rank", shape.value_heads);
  number("ssm.inner_size", shape.value_heads * shape.state);
  number("full_attention_interval", kInterval);
  set_tokenizer(out, options);
}

uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// Row `row` of a tensor depends on seed, tensor and row only, so threads may take rows in any order. The sum of four uniform
// numbers is near enough to a normal distribution, and four come out of one mix.
void fill_row(std::vector<float>& row_values, uint64_t key, int64_t row, float mean, float spread) {
  const uint64_t base = mix(key + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(row + 1));
  const float scale = spread * std::sqrt(3.0F) / 65536.0F;
  for (size_t i = 0; i < row_values.size(); ++i) {
    const uint64_t bits = mix(base + i);
    const auto sum = static_cast<int64_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
    row_values[i] = mean + scale * static_cast<float>(sum - 2 * 65535);
  }
}

// Rows [first, first + count) of one tensor, quantised, by all cores.
void make_rows(const Plan& plan, uint64_t key, int64_t first, int64_t count, size_t row_bytes, std::vector<char>& out) {
  out.resize(static_cast<size_t>(count) * row_bytes);
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    std::vector<float> values(static_cast<size_t>(plan.dims[0]));
    for (int64_t row = next++; row < count; row = next++) {
      fill_row(values, key, first + row, plan.mean, plan.spread);
      // The destination is offset by whole rows from `start`, which must be a multiple of the row: one row at a time is.
      ggml_quantize_chunk(plan.type, values.data(), out.data() + static_cast<size_t>(row) * row_bytes, 0, 1, plan.dims[0],
                          nullptr);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

void write_model(const Options& options) {
  const Mixture mixture(options.quantisation);
  const std::vector<Plan> plans = plan_tensors(options.shape, mixture);
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> head(gguf_init_empty(), gguf_free);
  set_keys(head.get(), options, mixture);

  const ggml_init_params params = {ggml_tensor_overhead() * (plans.size() + 1), nullptr, true};
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init(params), ggml_free);
  for (const Plan& plan : plans) {
    if (plan.dims[0] % ggml_blck_size(plan.type) != 0)
      die(fmt::format("{} has rows of {}, which {} cannot hold", plan.name, plan.dims[0], ggml_type_name(plan.type)));
    ggml_tensor* tensor = ggml_new_tensor(context.get(), plan.type, static_cast<int>(plan.dims.size()), plan.dims.data());
    ggml_set_name(tensor, plan.name.c_str());
    gguf_add_tensor(head.get(), tensor);
  }
  const std::string partial = options.output + ".partial";
  if (!gguf_write_to_file(head.get(), partial.c_str(), true)) die("cannot write " + partial);
  std::ofstream file(partial, std::ios::binary | std::ios::app);

  uint64_t written = 0;
  constexpr size_t kPiece = 32u << 20;
  std::vector<char> piece;
  for (size_t index = 0; index < plans.size(); ++index) {
    const Plan& plan = plans[index];
    const size_t row_bytes = ggml_row_size(plan.type, plan.dims[0]);
    const int64_t rows = plan.dims.size() > 1 ? plan.dims[1] : 1;
    const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kPiece / row_bytes));
    const uint64_t key = mix(options.seed * 1'000'003 + index);
    for (int64_t row = 0; row < rows; row += step) {
      make_rows(plan, key, row, std::min(step, rows - row), row_bytes, piece);
      file.write(piece.data(), static_cast<std::streamsize>(piece.size()));
      written += piece.size();
    }
    const size_t padding = (GGUF_DEFAULT_ALIGNMENT - written % GGUF_DEFAULT_ALIGNMENT) % GGUF_DEFAULT_ALIGNMENT;
    file.write(std::string(padding, '\0').data(), static_cast<std::streamsize>(padding));
    written += padding;
    fmt::print(stderr, "\r{}/{} tensors, {} MiB", index + 1, plans.size(), written >> 20);
  }
  file.close();
  if (!file || std::rename(partial.c_str(), options.output.c_str()) != 0)
    die("cannot write " + options.output + ": is the disk full?");
  fmt::print(stderr, "\n");
}

Options parse(int argc, char** argv) {
  Options options;
  const std::string usage =
      "usage: synth_model [--shape 0.8b|2b|4b|9b|tiny] [--type q4_0|q4_k_m|q8_0|f16] [--seed N] [--template FILE] --vocab "
      "VOCAB.gguf OUT.gguf\n"
      "  --vocab  a GGUF file with the tokenizer, for example ggml-vocab-qwen35.gguf in llama.cpp's models folder\n"
      "  --template  a GGUF file whose chat template to take, or a template; without it, a plain one";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "-h" || word == "--help") {
      fmt::print("{}\n", usage);
      std::exit(0);
    }
    if (!word.starts_with("--")) {
      options.output = word;
      continue;
    }
    if (i + 1 == argc) die(word + " needs a value\n" + usage);
    const std::string value = argv[++i];
    if (word == "--shape") {
      const auto* found =
          std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Shape& shape) { return value == shape.name; });
      if (found == std::end(kShapes)) die("no shape " + value + "\n" + usage);
      options.shape = *found;
    } else if (word == "--type") {
      options.quantisation = value;
    } else if (word == "--vocab") {
      options.vocabulary = value;
    } else if (word == "--template") {
      options.chat_template = value;
    } else if (word == "--seed") {
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else {
      die("unknown option " + word + "\n" + usage);
    }
  }
  if (options.output.empty() || options.vocabulary.empty()) die(usage);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  write_model(parse(argc, argv));
  return 0;
}
