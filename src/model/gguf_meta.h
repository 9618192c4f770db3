// Reads the keys of a GGUF file by meaning, with bounds: a wrong type or a number out of range is an error that names the key.
// Internal to model/. Pure.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "model/gguf_reader.h"

namespace pocketfleet {

class GgufMeta {
 public:
  GgufMeta(const GgufFile& file, std::string architecture) : file_(file), architecture_(std::move(architecture)) {}

  const std::string& architecture() const { return architecture_; }
  const GgufFile& file() const { return file_; }
  // "qwen35.block_count" for "block_count".
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
  bool has(std::string_view name) const { return file_.find(key(name)) != nullptr; }

  // u32, as llama.cpp reads it. Absent: `otherwise`.
  Result<uint64_t> number(std::string_view name, uint64_t least, uint64_t most, uint64_t otherwise) const;
  Result<uint64_t> required(std::string_view name, uint64_t least, uint64_t most) const;
  // One number for all layers, or an array with one for each.
  Result<std::vector<uint64_t>> per_layer(std::string_view name, uint64_t layers, uint64_t most, uint64_t otherwise) const;
  // f32, finite.
  Result<double> real(std::string_view name, double least, double most, double otherwise) const;
  // Whole key, no architecture before it. Empty when absent.
  Result<std::string_view> string(std::string_view whole_key) const;

 private:
  const GgufFile& file_;
  std::string architecture_;
};

// gguf_tokenizer.cpp: the tokenizer's arrays. Returns the number of tokens, 0 without a tokenizer.
Result<uint64_t> check_tokenizer(const GgufFile& file);

struct ModelSummary;
// gguf_shape.cpp: layers, heads, states, and what the engine would abort on. Fills the summary.
Result<void> check_shape(const GgufMeta& meta, ModelSummary& summary);

}  // namespace pocketfleet
