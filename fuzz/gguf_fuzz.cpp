// Whatever the bytes are, a model file is understood or refused with a reason; and what is understood can be planned for.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/gguf.h"
#include "model/memory_fit.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pocketfleet;
  const auto summary = inspect_gguf_bytes(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.gguf");
  if (!summary) {
    if (summary.error().message.empty() || summary.error().code != ErrorCode::kInvalidModel) std::abort();
    return 0;
  }
  if (summary->layers.size() > 512 || summary->tensor_bytes > size) std::abort();
  (void)check_servable(*summary);
  (void)describe(*summary);
  const auto plan = compute_memory(*summary, {});
  if (!plan || plan->total_bytes() < summary->tensor_bytes) std::abort();
  return 0;
}
