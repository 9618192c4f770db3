// The kernels as a ggml backend: an accelerator device that keeps the weights it knows packed and computes whole graphs, its own
// operations with our kernels and all others with ggml-cpu, node by node, on ggml's threads.
// Threads: register_kernels may be called from any; KernelsOff counts for the thread that made it. No state is shared by
// contexts.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pocketfleet::kernels {

// Makes llama.cpp use the kernels for every model and context that this process makes from now on. False, and nothing happens,
// where no instruction set suits, or where ggml is not the one that this was built against. Safe to call again.
bool register_kernels();

// The same for a program that registers it by itself; nullptr where register_kernels() gives false.
ggml_backend_reg_t registry();

// "avx2", or "none".
std::string instruction_set();

// While one of these lives, models and contexts that this thread makes are left to ggml-cpu.
class KernelsOff {
 public:
  KernelsOff();
  ~KernelsOff();
  KernelsOff(const KernelsOff&) = delete;
  KernelsOff& operator=(const KernelsOff&) = delete;
};

// How much of this processor's memory a weight takes for each byte in the file, by its type's name in any case ("Q4_K"); 0 where
// the kernels do not take it.
double packed_bytes_per_file_byte(std::string_view type_name);

// What a kernel gave, told to an observer before the next node is computed. Tests compare it with a computation in double
// precision.
struct Computed {
  const ggml_tensor* tensor;  // its op_params are not the original ones
  const int32_t* params;      // the original op_params
  ggml_op op;
};
// Called on thread 0 for each node that a kernel computed, by contexts made from now on; empty: no more. Not for production:
// slow.
void observe_kernels(std::function<void(const Computed&)> observer);

// A packed weight in the file's form again.
void read_weight(const ggml_tensor* weight, std::byte* out);

}  // namespace pocketfleet::kernels
