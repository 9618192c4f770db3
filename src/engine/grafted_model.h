// For tests only. No small model has a trained draft head, so a layer is grafted onto the shipped one that says again what was
// said last: right where a text repeats a token, and wrong elsewhere.
#pragma once

#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "engine/llama_engine_test_util.h"

namespace pocketfleet {

class GraftedModel {
 public:
  GraftedModel() {
    const std::string from = kShipped + "scam-guard-q4_0.gguf";
    ggml_context* read = nullptr;
    gguf_context* file = gguf_init_from_file(from.c_str(), {false, &read});
    gguf_context* out = gguf_init_empty();
    gguf_set_kv(out, file);
    const auto number = [&](const char* key) { return gguf_get_val_u32(file, gguf_find_key(file, key)); };
    const uint32_t layers = number("qwen35.block_count");
    const uint32_t width = number("qwen35.embedding_length");
    gguf_set_val_u32(out, "qwen35.block_count", layers + 1);
    gguf_set_val_u32(out, "qwen35.nextn_predict_layers", 1);

    ggml_context* made = ggml_init({size_t{64} << 20, nullptr, false});
    const std::string last = "blk." + std::to_string(layers - 1) + ".";
    const std::string head = "blk." + std::to_string(layers) + ".";
    for (int64_t index = 0; index < gguf_get_n_tensors(file); ++index) {
      const std::string name = gguf_get_tensor_name(file, index);
      const ggml_tensor* tensor = ggml_get_tensor(read, name.c_str());
      gguf_add_tensor(out, tensor);
      if (!name.starts_with(last)) continue;
      // The layer adds nothing to what goes through it.
      const bool adds = name.ends_with("attn_output.weight") || name.ends_with("ffn_down.weight");
      ggml_tensor* copy = ggml_new_tensor(made, adds ? GGML_TYPE_F32 : tensor->type, GGML_MAX_DIMS, tensor->ne);
      if (adds) {
        std::memset(copy->data, 0, ggml_nbytes(copy));
      } else {
        std::memcpy(copy->data, tensor->data, ggml_nbytes(copy));
      }
      add(out, copy, head + name.substr(last.size()));
    }
    // The last one makes it sure of what it says.
    for (const auto& [norm, weight] : {std::pair{"enorm", 1.0f}, {"hnorm", 1.0f}, {"shared_head_norm", 16.0f}}) {
      ggml_tensor* weights = ggml_new_tensor_1d(made, GGML_TYPE_F32, width);
      std::fill_n(static_cast<float*>(weights->data), width, weight);
      add(out, weights, head + "nextn." + norm + ".weight");
    }
    // Of the token and of what the model came to, the second is passed on.
    ggml_tensor* both = ggml_new_tensor_2d(made, GGML_TYPE_F32, 2 * width, width);
    std::memset(both->data, 0, ggml_nbytes(both));
    for (uint32_t i = 0; i < width; ++i) static_cast<float*>(both->data)[i * 2 * width + width + i] = 1;
    add(out, both, head + "nextn.eh_proj.weight");

    path_ = (std::filesystem::temp_directory_path() / ("pocketfleet-graft-" + std::to_string(::getpid()) + ".gguf")).string();
    EXPECT_TRUE(gguf_write_to_file(out, path_.c_str(), false));
    gguf_free(out);
    gguf_free(file);
    ggml_free(made);
    ggml_free(read);
  }
  ~GraftedModel() { std::filesystem::remove(path_); }
  GraftedModel(const GraftedModel&) = delete;
  GraftedModel& operator=(const GraftedModel&) = delete;

  const std::string& path() const { return path_; }

 private:
  static void add(gguf_context* out, ggml_tensor* tensor, const std::string& name) {
    ggml_set_name(tensor, name.c_str());
    gguf_add_tensor(out, tensor);
  }
  std::string path_;
};

// Written once a process.
inline const std::string& grafted_model() {
  static const GraftedModel model;
  return model.path();
}

}  // namespace pocketfleet
