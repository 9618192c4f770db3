// One Isa for each instruction set of this build, each defined in a file compiled for it. Using one that the processor lacks is
// an illegal instruction: usable_isas() knows.
#pragma once

#include "kernels/isa.h"

namespace pocketfleet::kernels {

#if defined(__x86_64__)
extern const Isa kIsaAvx2;
#elif defined(__aarch64__)
extern const Isa kIsaDotprod;
#endif

}  // namespace pocketfleet::kernels
