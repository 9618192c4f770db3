#include "kernels/isa_sets.h"
#include "kernels/matmul_isa.h"

namespace pocketfleet::kernels {

const Isa kIsaAvx2 = {"avx2", &kMatmulAvx2, {}};

}  // namespace pocketfleet::kernels
