// Memory of packed weights as a ggml buffer type: tensors are packed when they are set, by several threads, and unpacked when
// read. The buffers own their memory; large ones ask for huge pages.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

namespace pocketfleet::kernels {

// One for the process; has no device until backend.cpp gives it one.
ggml_backend_buffer_type_t packed_buffer_type();

// Whether tensor lies in such a buffer; nullptr does not.
bool is_packed(const ggml_tensor* tensor);

}  // namespace pocketfleet::kernels
