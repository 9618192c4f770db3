// Vectors of four floats for 64-bit ARM. NEON is part of every such processor, so any file may include it there.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace pocketfleet::kernels {

struct Neon {
  static constexpr int kLanes = 4;
  static constexpr int kRegisters = 32;
  using F32 = float32x4_t;

  static F32 zero() { return vdupq_n_f32(0.0f); }
  static F32 set1(float x) { return vdupq_n_f32(x); }
  static F32 load(const float* from) { return vld1q_f32(from); }
  static void store(float* to, F32 x) { vst1q_f32(to, x); }
  // Four IEEE half floats.
  static F32 load_f16(const uint16_t* from) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from))); }
  static F32 add(F32 a, F32 b) { return vaddq_f32(a, b); }
  static F32 sub(F32 a, F32 b) { return vsubq_f32(a, b); }
  static F32 mul(F32 a, F32 b) { return vmulq_f32(a, b); }
  static F32 div(F32 a, F32 b) { return vdivq_f32(a, b); }
  static F32 max(F32 a, F32 b) { return vmaxq_f32(a, b); }
  static F32 min(F32 a, F32 b) { return vminq_f32(a, b); }
  // a * b + c
  static F32 fma(F32 a, F32 b, F32 c) { return vfmaq_f32(c, a, b); }
  // c - a * b
  static F32 fnma(F32 a, F32 b, F32 c) { return vfmsq_f32(c, a, b); }
  static F32 round(F32 x) { return vrndnq_f32(x); }
  // 2^n for whole n from -126 to 127.
  static F32 exp2_whole(F32 n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23)); }

  static float reduce_add(F32 x) { return vaddvq_f32(x); }
  static float reduce_max(F32 x) { return vmaxvq_f32(x); }

  // rows[i][j] becomes rows[j][i].
  static void transpose(F32 (&rows)[4]) {
    const float32x4x2_t a = vtrnq_f32(rows[0], rows[1]), b = vtrnq_f32(rows[2], rows[3]);
    rows[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    rows[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    rows[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    rows[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
  }
};

}  // namespace pocketfleet::kernels
