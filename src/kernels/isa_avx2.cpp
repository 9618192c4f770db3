#if defined(__x86_64__)

#include "kernels/concat.h"
#include "kernels/delta_net.h"
#include "kernels/flash_attention.h"
#include "kernels/isa_sets.h"
#include "kernels/l2_norm.h"
#include "kernels/matmul_isa.h"
#include "kernels/simd_avx2.h"
#include "kernels/ssm_conv.h"

namespace pocketfleet::kernels {

namespace {

const Op* const kOps[] = {&Concat<Avx2>::op, &DeltaNet<Avx2>::op, &FlashAttention<Avx2>::op, &L2Norm<Avx2>::op,
                          &SsmConv<Avx2>::op};

}  // namespace

const Isa kIsaAvx2 = {"avx2", &kMatmulAvx2, kOps};

}  // namespace pocketfleet::kernels

#endif
