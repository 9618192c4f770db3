// The kernels as a library that any program of the pinned llama.cpp loads when GGML_BACKEND_PATH names it.
#include <ggml-backend-impl.h>
#include <ggml.h>

#include <cstdio>
#include <cstring>

#include "kernels/backend.h"

extern "C" {

__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init() {
  // Another commit's structures may differ in ways that no version number tells.
  if (std::strcmp(ggml_commit(), POCKETFLEET_GGML_COMMIT) != 0) {
    std::fprintf(stderr, "the kernels were built for ggml %s, and this is %s\n", POCKETFLEET_GGML_COMMIT, ggml_commit());
    return nullptr;
  }
  return pocketfleet::kernels::registry();
}

__attribute__((visibility("default"))) int ggml_backend_score() {
  return pocketfleet::kernels::registry() == nullptr ? 0 : 1;
}
}
