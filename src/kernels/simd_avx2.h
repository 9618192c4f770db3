// Vectors of eight floats for AVX2 with FMA and F16C. Only files compiled for that instruction set include it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace pocketfleet::kernels {

struct Avx2 {
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;
  using F32 = __m256;

  static F32 zero() { return _mm256_setzero_ps(); }
  static F32 set1(float x) { return _mm256_set1_ps(x); }
  static F32 load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, F32 x) { _mm256_storeu_ps(to, x); }
  // Eight IEEE half floats.
  static F32 load_f16(const uint16_t* from) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))); }
  static F32 add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
  static F32 sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
  static F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
  static F32 div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
  static F32 max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
  static F32 min(F32 a, F32 b) { return _mm256_min_ps(a, b); }
  // a * b + c
  static F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
  // c - a * b
  static F32 fnma(F32 a, F32 b, F32 c) { return _mm256_fnmadd_ps(a, b, c); }
  static F32 round(F32 x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // 2^n for whole n from -126 to 127.
  static F32 exp2_whole(F32 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }

  static float reduce_add(F32 x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static float reduce_max(F32 x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  // rows[i][j] becomes rows[j][i].
  static void transpose(F32 (&rows)[8]) {
    const __m256 a0 = _mm256_unpacklo_ps(rows[0], rows[1]), a1 = _mm256_unpackhi_ps(rows[0], rows[1]);
    const __m256 a2 = _mm256_unpacklo_ps(rows[2], rows[3]), a3 = _mm256_unpackhi_ps(rows[2], rows[3]);
    const __m256 a4 = _mm256_unpacklo_ps(rows[4], rows[5]), a5 = _mm256_unpackhi_ps(rows[4], rows[5]);
    const __m256 a6 = _mm256_unpacklo_ps(rows[6], rows[7]), a7 = _mm256_unpackhi_ps(rows[6], rows[7]);
    const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xee);
    const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xee);
    const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xee);
    const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xee);
    rows[0] = _mm256_permute2f128_ps(b0, b4, 0x20);
    rows[1] = _mm256_permute2f128_ps(b1, b5, 0x20);
    rows[2] = _mm256_permute2f128_ps(b2, b6, 0x20);
    rows[3] = _mm256_permute2f128_ps(b3, b7, 0x20);
    rows[4] = _mm256_permute2f128_ps(b0, b4, 0x31);
    rows[5] = _mm256_permute2f128_ps(b1, b5, 0x31);
    rows[6] = _mm256_permute2f128_ps(b2, b6, 0x31);
    rows[7] = _mm256_permute2f128_ps(b3, b7, 0x31);
  }
};

}  // namespace pocketfleet::kernels
