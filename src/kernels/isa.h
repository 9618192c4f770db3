// The instruction sets that this build has kernels for, and the one that this processor runs best.
#pragma once

#include <span>

#include "kernels/matmul.h"
#include "kernels/op.h"

namespace pocketfleet::kernels {

struct Isa {
  const char* name;  // as users see it: "avx2"
  const MatmulKernels* matmul;
  std::span<const Op* const> ops;  // the other operations
};

// Those that this very processor can run, best first; may be empty.
std::span<const Isa* const> usable_isas();

}  // namespace pocketfleet::kernels
