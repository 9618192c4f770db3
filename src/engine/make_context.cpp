#include "engine/make_context.h"

#include <optional>

#include "kernels/backend.h"

namespace pocketfleet {

std::shared_ptr<llama_model> load_model(const std::string& path, const llama_model_params& params, bool kernels) {
  std::optional<kernels::KernelsOff> off;
  if (!kernels || !kernels::register_kernels()) off.emplace();
  llama_model* model = llama_model_load_from_file(path.c_str(), params);
  return model == nullptr ? nullptr : std::shared_ptr<llama_model>(model, llama_model_free);
}

llama_context* make_context(llama_model* model, llama_context_params params, bool flash_attention, bool kernels) {
  std::optional<kernels::KernelsOff> off;
  const bool ours = kernels && kernels::register_kernels();
  if (!ours) off.emplace();
  // Left to decide by itself, llama.cpp gives flash attention up where another device than the layer's computes it, as ours does.
  params.flash_attn_type = !flash_attention ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                           : ours           ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                            : LLAMA_FLASH_ATTN_TYPE_AUTO;
  return llama_init_from_model(model, params);
}

std::string kernels_in_use(bool kernels) {
  return kernels && kernels::register_kernels() ? kernels::instruction_set() : "none";
}

}  // namespace pocketfleet
