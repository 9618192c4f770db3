#include "kernels/isa.h"

#include "kernels/isa_sets.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace pocketfleet::kernels {

std::span<const Isa* const> usable_isas() {
  struct List {
    const Isa* isas[4] = {};
    size_t count = 0;
    List() {
#if defined(__x86_64__)
      if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        isas[count++] = &kIsaAvx2;
#elif defined(__aarch64__)
      if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) isas[count++] = &kIsaDotprod;
#endif
    }
  };
  static const List list;
  return {list.isas, list.count};
}

}  // namespace pocketfleet::kernels
