// Makes GGUF files in memory for tests, right or wrong in one place. Test code only.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_reader.h"

namespace pocketfleet::test {

class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;

  template <typename T>
  static std::string raw(T value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
  }
  static std::string raw_string(std::string_view text) { return raw<uint64_t>(text.size()) + std::string(text); }

  GgufWriter& pair(std::string_view key, GgufType type, std::string value) {
    pairs_ += raw_string(key) + raw(static_cast<uint32_t>(type)) + value;
    ++pair_count_;
    return *this;
  }
  GgufWriter& u32(std::string_view key, uint32_t value) { return pair(key, GgufType::kU32, raw(value)); }
  GgufWriter& f32(std::string_view key, float value) { return pair(key, GgufType::kF32, raw(value)); }
  GgufWriter& string(std::string_view key, std::string_view value) { return pair(key, GgufType::kString, raw_string(value)); }
  GgufWriter& array(std::string_view key, GgufType element, uint64_t count, const std::string& elements) {
    return pair(key, GgufType::kArray, raw(static_cast<uint32_t>(element)) + raw(count) + elements);
  }
  GgufWriter& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string elements;
    for (const std::string& value : values) elements += raw_string(value);
    return array(key, GgufType::kString, values.size(), elements);
  }
  // Type 0 is f32, of which `data_bytes` follow; `offset` -1: where the last one ended.
  GgufWriter& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t data_bytes,
                     int64_t offset = -1) {
    tensors_ += raw_string(name) + raw(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) tensors_ += raw(dim);
    tensors_ += raw(type) + raw<uint64_t>(offset >= 0 ? static_cast<uint64_t>(offset) : data_.size());
    data_.resize((data_.size() + data_bytes + alignment - 1) / alignment * alignment);
    ++tensor_count_;
    return *this;
  }
  std::string bytes() const {
    std::string out = "GGUF" + raw(version) + raw(tensor_count_) + raw(pair_count_) + pairs_ + tensors_;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  std::string pairs_, tensors_, data_;
  uint64_t pair_count_ = 0;
  uint64_t tensor_count_ = 0;
};

// A model of the kind "llama" with one layer, small enough to be read at a glance.
inline GgufWriter small_model() {
  GgufWriter out;
  out.string("general.architecture", "llama").string("general.name", "small");
  out.u32("llama.block_count", 1).u32("llama.context_length", 128).u32("llama.embedding_length", 32);
  out.u32("llama.feed_forward_length", 64).u32("llama.attention.head_count", 4).u32("llama.attention.head_count_kv", 2);
  out.f32("llama.attention.layer_norm_rms_epsilon", 1e-5F).u32("llama.rope.dimension_count", 8);
  out.string("tokenizer.ggml.model", "gpt2")
      .strings("tokenizer.ggml.tokens", {"a", "b", "c"})
      .strings("tokenizer.ggml.merges", {});
  out.tensor("token_embd.weight", {32, 3}, 0, 384);
  return out;
}

}  // namespace pocketfleet::test
