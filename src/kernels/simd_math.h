// Functions over the vectors of any instruction set: S is one of the structs of simd_*.h.
#pragma once

namespace pocketfleet::kernels {

// e^x, relative error below 2e-7 for -87 <= x <= 88; below -87 the value at -87.
template <class S>
inline typename S::F32 exp(typename S::F32 x) {
  using F = typename S::F32;
  x = S::min(S::max(x, S::set1(-87.0f)), S::set1(88.0f));
  const F n = S::round(S::mul(x, S::set1(1.44269504f)));
  // ln 2 in two parts, the first with so few bits that n times it is exact (Cody and Waite).
  F r = S::fnma(n, S::set1(0.693359375f), x);
  r = S::fnma(n, S::set1(-2.12194440e-4f), r);
  F p = S::set1(1.0f / 5040);
  p = S::fma(p, r, S::set1(1.0f / 720));
  p = S::fma(p, r, S::set1(1.0f / 120));
  p = S::fma(p, r, S::set1(1.0f / 24));
  p = S::fma(p, r, S::set1(1.0f / 6));
  p = S::fma(p, r, S::set1(0.5f));
  p = S::fma(p, r, S::set1(1.0f));
  p = S::fma(p, r, S::set1(1.0f));
  return S::mul(p, S::exp2_whole(n));
}

}  // namespace pocketfleet::kernels
