// The one place where llama.cpp's models and contexts are made, with our kernels or without: both have to agree, since a model
// loaded with kernels has weights that ggml-cpu cannot read. Threads: any; loading is not shared between threads.
#pragma once

#include <llama.h>

#include <memory>
#include <string>

namespace pocketfleet {

// nullptr where llama.cpp refuses, as its own function.
std::shared_ptr<llama_model> load_model(const std::string& path, const llama_model_params& params, bool kernels);

// `params.flash_attn_type` is set here.
llama_context* make_context(llama_model* model, llama_context_params params, bool flash_attention, bool kernels);

// What computes with `kernels` wanted: "avx2" and so on, or "none".
std::string kernels_in_use(bool kernels);

}  // namespace pocketfleet
