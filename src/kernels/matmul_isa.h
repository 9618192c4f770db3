// The matmul kernels that were compiled into this build, by instruction set. Calling one that the processor lacks is an illegal
// instruction: choose through isa.h.
#pragma once

#include "kernels/matmul.h"

namespace pocketfleet::kernels {

#if defined(__x86_64__)
extern const MatmulKernels kMatmulAvx2;
#elif defined(__aarch64__)
extern const MatmulKernels kMatmulDotprod;
#endif

}  // namespace pocketfleet::kernels
