#if defined(__aarch64__)

#include "kernels/concat.h"
#include "kernels/delta_net.h"
#include "kernels/flash_attention.h"
#include "kernels/isa_sets.h"
#include "kernels/l2_norm.h"
#include "kernels/matmul_isa.h"
#include "kernels/simd_neon.h"
#include "kernels/ssm_conv.h"

namespace pocketfleet::kernels {

namespace {

const Op* const kOps[] = {&Concat<Neon>::op, &DeltaNet<Neon>::op, &FlashAttention<Neon>::op, &L2Norm<Neon>::op,
                          &SsmConv<Neon>::op};

}  // namespace

const Isa kIsaDotprod = {"neon dotprod", &kMatmulDotprod, kOps};

}  // namespace pocketfleet::kernels

#endif
