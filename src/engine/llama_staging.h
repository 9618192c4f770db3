// Of llama.cpp's staging header, which is not among those that it installs: what draft heads want to know of each token.
#pragma once

#include <llama.h>

// `value`: keep what the last layer comes to; `masked`: only of rows whose logits are asked for.
LLAMA_API void llama_set_embeddings_nextn(llama_context* context, bool value, bool masked);
LLAMA_API float* llama_get_embeddings_nextn_ith(llama_context* context, int32_t row);
