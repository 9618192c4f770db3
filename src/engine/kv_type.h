// What numbers the KV cache is kept in, by name.
#pragma once

#include <ggml.h>

#include <string>

#include "base/result.h"

namespace pocketfleet {

// f32, f16, q8_0; kInvalidArgument for anything else.
inline Result<ggml_type> parse_kv_type(const std::string& name) {
  if (name == "f32") return GGML_TYPE_F32;
  if (name == "f16") return GGML_TYPE_F16;
  if (name == "q8_0") return GGML_TYPE_Q8_0;
  return fail(ErrorCode::kInvalidArgument, "\"" + name + "\" is not a KV cache type; use f32, f16 or q8_0");
}

}  // namespace pocketfleet
