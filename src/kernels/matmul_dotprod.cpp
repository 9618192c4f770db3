// Matmul for ARM processors with the dot product instructions (ARMv8.2): four weights of a row times four activations are added
// into 32 bits at once, for four rows. Eight rows and eight columns are sixteen sums, which with their inputs stay in registers.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <utility>

#include "kernels/matmul_isa.h"
#include "kernels/matmul_table.h"

#define PF_INLINE __attribute__((always_inline)) inline

namespace pocketfleet::kernels {

namespace {

constexpr int kTileColumns = 8;
constexpr int kDirectColumns = 4;
constexpr int kBlockGroups = 8;
constexpr int kHalfRows = 4;

struct Pair {
  float32x4_t low, high;  // rows 0-3 and 4-7 of a panel
};

PF_INLINE Pair load_halves(const uint8_t* from) {
  const float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(from));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}
PF_INLINE Pair load_unsigned_bytes(const uint8_t* from) {
  const uint16x8_t wide = vmovl_u8(vld1_u8(from));
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide))), vcvtq_f32_u32(vmovl_high_u16(wide))};
}
PF_INLINE Pair load_signed_bytes(const uint8_t* from) {
  const int16x8_t wide = vmovl_s8(vreinterpret_s8_u8(vld1_u8(from)));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_high_s16(wide))};
}
PF_INLINE Pair times(const Pair& a, const Pair& b) {
  return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
}
PF_INLINE Pair nothing() {
  return {vdupq_n_f32(0), vdupq_n_f32(0)};
}
PF_INLINE uint8x16_t nibbles(const uint8_t* vectors, int group, int half) {
  const uint8x16_t v = vld1q_u8(vectors + group % 4 * 32 + half * 16);
  return group >= 4 ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15));
}
PF_INLINE int8x16_t minus(uint8x16_t v, int offset) {
  return vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(static_cast<int8_t>(offset)));
}

// `block` counts 32 columns from the panel's start. A part is a run of groups with one scale for each row; kParts is their number
// in a block. group(): four rows of a group, signed.
template <Layout L>
struct Reader;

template <>
struct Reader<Layout::kQ4_0> {
  static constexpr int kParts = 1;
  static constexpr bool kMins = false;
  const uint8_t* at;
  Reader(const std::byte* panel, int64_t block)
      : at(reinterpret_cast<const uint8_t*>(panel) + static_cast<size_t>(block) * q4_0::kBytes) {}
  PF_INLINE int8x16_t group(int group, int half) const { return minus(nibbles(at + q4_0::kQuants, group, half), 8); }
  PF_INLINE Pair scale(int) const { return load_halves(at + q4_0::kScales); }
  PF_INLINE Pair min() const { return nothing(); }
};
template <>
struct Reader<Layout::kQ8_0> {
  static constexpr int kParts = 1;
  static constexpr bool kMins = false;
  const uint8_t* at;
  Reader(const std::byte* panel, int64_t block)
      : at(reinterpret_cast<const uint8_t*>(panel) + static_cast<size_t>(block) * q8_0::kBytes) {}
  PF_INLINE int8x16_t group(int group, int half) const {
    return vreinterpretq_s8_u8(vld1q_u8(at + q8_0::kQuants + group * 32 + half * 16));
  }
  PF_INLINE Pair scale(int) const { return load_halves(at + q8_0::kScales); }
  PF_INLINE Pair min() const { return nothing(); }
};
template <Layout L>
struct KReader {
  static constexpr int kParts = 1;
  static constexpr bool kMins = true;
  const uint8_t* at;
  int part32;
  KReader(const std::byte* panel, int64_t block)
      : at(reinterpret_cast<const uint8_t*>(panel) + static_cast<size_t>(block / 8) * shape_of(L).panel_block_bytes),
        part32(static_cast<int>(block % 8)) {}
  PF_INLINE int8x16_t group(int group, int half) const {
    const uint8x16_t low = nibbles(at + qk::kQuants + part32 * 128, group, half);
    if (L == Layout::kQ4_K) return vreinterpretq_s8_u8(low);
    const uint8x16_t bits = vld1q_u8(at + qk::kFifthBits + part32 * 32 + half * 16);
    const uint8x16_t set = vtstq_u8(bits, vdupq_n_u8(static_cast<uint8_t>(1 << group)));
    return vreinterpretq_s8_u8(vorrq_u8(low, vandq_u8(set, vdupq_n_u8(16))));
  }
  PF_INLINE Pair scale(int) const {
    return times(load_halves(at + qk::kScales), load_unsigned_bytes(at + qk::kPartScales + part32 * 8));
  }
  // What a sum of activations is multiplied with.
  PF_INLINE Pair min() const {
    const Pair min = times(load_halves(at + qk::kMinScales), load_unsigned_bytes(at + qk::kPartMins + part32 * 8));
    return {vnegq_f32(min.low), vnegq_f32(min.high)};
  }
};
template <>
struct Reader<Layout::kQ4_K> : KReader<Layout::kQ4_K> {
  using KReader::KReader;
};
template <>
struct Reader<Layout::kQ5_K> : KReader<Layout::kQ5_K> {
  using KReader::KReader;
};
template <>
struct Reader<Layout::kQ6_K> {
  static constexpr int kParts = 2;
  static constexpr bool kMins = false;
  const uint8_t* at;
  int part32;
  Reader(const std::byte* panel, int64_t block)
      : at(reinterpret_cast<const uint8_t*>(panel) + static_cast<size_t>(block / 8) * q6_k::kBytes),
        part32(static_cast<int>(block % 8)) {}
  PF_INLINE int8x16_t group(int group, int half) const {
    const uint8x16_t low = nibbles(at + q6_k::kQuants + part32 * 128, group, half);
    const uint8x16_t bits = vld1q_u8(at + q6_k::kHighBits + part32 * 64 + group / 4 * 32 + half * 16);
    // To bits 4 and 5, from where this group keeps them.
    const uint8x16_t placed = vshlq_u8(bits, vdupq_n_s8(static_cast<int8_t>(4 - group % 4 * 2)));
    return minus(vorrq_u8(low, vandq_u8(placed, vdupq_n_u8(0x30))), 32);
  }
  PF_INLINE Pair scale(int part) const {
    return times(load_halves(at + q6_k::kScales), load_signed_bytes(at + q6_k::kPartScales + (part32 * 2 + part) * 8));
  }
  PF_INLINE Pair min() const { return nothing(); }
};

// ---- activations; the starts of sums are for sets that multiply unsigned weights, and stay unset

void quantize(const float* x, size_t stride, int columns, int64_t k, const QuantizedTile& out) {
  const int64_t blocks = k / kActivationBlock;
  for (int c = 0; c < columns; ++c) {
    const float* from = x + static_cast<size_t>(c) * stride;
    for (int64_t block = 0; block < blocks; ++block, from += kActivationBlock) {
      float32x4_t v[8];
      for (int i = 0; i < 8; ++i) v[i] = vld1q_f32(from + 4 * i);
      float32x4_t most = vabsq_f32(v[0]);
      for (int i = 1; i < 8; ++i) most = vmaxq_f32(most, vabsq_f32(v[i]));
      const float largest = vmaxvq_f32(most);
      const float32x4_t inverse = vdupq_n_f32(largest > 0 ? 127.0f / largest : 0.0f);
      auto* quants = reinterpret_cast<int32_t*>(out.quants) + block * kBlockGroups * out.columns + c;
      int sum = 0;
      for (int g = 0; g < kBlockGroups; ++g) {
        const int32x4_t q = vcvtnq_s32_f32(vmulq_f32(v[g], inverse));
        sum += vaddvq_s32(q);
        const int16x4_t narrow = vqmovn_s32(q);
        quants[g * out.columns] = vget_lane_s32(vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(narrow, narrow))), 0);
      }
      const float scale = largest / 127.0f;
      out.scales[block * out.columns + c] = scale;
      out.sums[block * out.columns + c] = scale * static_cast<float>(sum);
    }
  }
}

// ---- sixteen expanded rows, as two panels one after the other

struct Expanded {
  int8_t* weights;  // [panel][block][group][32]
  float* scales;    // [panel][block][part][8]
  float* mins;      // [panel][block][8]
};

template <Layout L>
Expanded expanded_at(std::byte* memory, int64_t k, int panel) {
  const auto blocks = static_cast<size_t>(k / kActivationBlock);
  auto* weights = reinterpret_cast<int8_t*>(memory);
  auto* scales = reinterpret_cast<float*>(weights + 2 * blocks * kBlockGroups * 32);
  float* mins = scales + 2 * blocks * Reader<L>::kParts * kPanelRows;
  const auto p = static_cast<size_t>(panel);
  return {weights + p * blocks * kBlockGroups * 32, scales + p * blocks * Reader<L>::kParts * kPanelRows,
          mins + p * blocks * kPanelRows};
}

template <Layout L>
size_t expanded_size(int64_t k) {
  const auto blocks = static_cast<size_t>(k / kActivationBlock);
  return 2 * blocks * (kBlockGroups * 32 + (Reader<L>::kParts + (Reader<L>::kMins ? 1 : 0)) * kPanelRows * sizeof(float));
}

template <Layout L>
void expand_unit(const std::byte* unit, int64_t k, std::byte* memory) {
  for (int panel = 0; panel < 2; ++panel) {
    const Expanded out = expanded_at<L>(memory, k, panel);
    int8_t* weights = out.weights;
    float* scales = out.scales;
    float* mins = out.mins;
    for (int64_t block = 0; block < k / kActivationBlock; ++block) {
      const Reader<L> reader(unit + static_cast<size_t>(panel) * packed_panel_bytes(L, k), block);
#pragma GCC unroll 8
      for (int g = 0; g < kBlockGroups; ++g, weights += 32) {
        vst1q_s8(weights, reader.group(g, 0));
        vst1q_s8(weights + 16, reader.group(g, 1));
      }
      for (int part = 0; part < Reader<L>::kParts; ++part, scales += kPanelRows) {
        const Pair scale = reader.scale(part);
        vst1q_f32(scales, scale.low);
        vst1q_f32(scales + kHalfRows, scale.high);
      }
      if (Reader<L>::kMins) {
        const Pair min = reader.min();
        vst1q_f32(mins, min.low);
        vst1q_f32(mins + kHalfRows, min.high);
        mins += kPanelRows;
      }
    }
  }
}

PF_INLINE int8x16_t broadcast_group(const int8_t* quants, int column) {
  return vreinterpretq_s8_s32(vld1q_dup_s32(reinterpret_cast<const int32_t*>(quants) + column));
}

// sums += (exact integer sum) * (weight's scale * activation's scale): everywhere the same operations, for equal bits.
PF_INLINE void finish(float* sums, int32x4_t low, int32x4_t high, const Pair& scale, float activation_scale) {
  const float32x4_t a = vdupq_n_f32(activation_scale);
  vst1q_f32(sums, vfmaq_f32(vld1q_f32(sums), vcvtq_f32_s32(low), vmulq_f32(scale.low, a)));
  vst1q_f32(sums + kHalfRows, vfmaq_f32(vld1q_f32(sums + kHalfRows), vcvtq_f32_s32(high), vmulq_f32(scale.high, a)));
}
PF_INLINE void add_min(float* sums, const Pair& min, float activation_sum) {
  vst1q_f32(sums, vfmaq_n_f32(vld1q_f32(sums), min.low, activation_sum));
  vst1q_f32(sums + kHalfRows, vfmaq_n_f32(vld1q_f32(sums + kHalfRows), min.high, activation_sum));
}

template <int... I>
PF_INLINE void tile_part(std::integer_sequence<int, I...>, const int8_t* weights, const int8_t* quants, int groups,
                         const float* scales, const float* activation_scales, float* sums) {
  constexpr int C = static_cast<int>(sizeof...(I));
  int32x4_t low[C], high[C];
  ((low[I] = vdupq_n_s32(0), high[I] = vdupq_n_s32(0)), ...);
#pragma GCC unroll 1
  for (int g = 0; g < groups; ++g, weights += 32, quants += C * 4) {
    const int8x16_t w0 = vld1q_s8(weights), w1 = vld1q_s8(weights + 16);
    if constexpr (C == kTileColumns) {
      // A vector holds four columns' activations; the instruction picks one for all rows.
      const int8x16_t x0 = vld1q_s8(quants), x1 = vld1q_s8(quants + 16);
      ((low[I] = vdotq_laneq_s32(low[I], w0, I < 4 ? x0 : x1, I % 4),
        high[I] = vdotq_laneq_s32(high[I], w1, I < 4 ? x0 : x1, I % 4)),
       ...);
    } else {
      ((low[I] = vdotq_s32(low[I], w0, broadcast_group(quants, I)), high[I] = vdotq_s32(high[I], w1, broadcast_group(quants, I))),
       ...);
    }
  }
  const Pair scale{vld1q_f32(scales), vld1q_f32(scales + kHalfRows)};
  (finish(sums + I * kPanelRows, low[I], high[I], scale, activation_scales[I]), ...);
}

void write(const float* sums, int columns, float* out, size_t stride, int rows) {
  for (int c = 0; c < columns; ++c, out += stride, sums += kPanelRows) {
    for (int r = 0; r < kPanelRows && r < rows; ++r) out[r] = sums[r];
  }
}

template <Layout L, int C>
__attribute__((noinline)) void tile(std::byte* expanded, const QuantizedTile& in, int64_t k, float* out, size_t stride,
                                    int rows) {
  constexpr auto kColumns = std::make_integer_sequence<int, C>{};
  constexpr int kParts = Reader<L>::kParts;
  constexpr int kGroups = kBlockGroups / kParts;
  for (int panel = 0; panel < 2 && rows > panel * kPanelRows; ++panel) {
    const Expanded from = expanded_at<L>(expanded, k, panel);
    float sums[C * kPanelRows] = {};
    for (int64_t block = 0; block < k / kActivationBlock; ++block) {
      for (int part = 0; part < kParts; ++part) {
        tile_part(kColumns, from.weights + (block * kBlockGroups + part * kGroups) * 32,
                  in.quants + (block * kBlockGroups + part * kGroups) * C * 4, kGroups,
                  from.scales + (block * kParts + part) * kPanelRows, in.scales + block * C, sums);
      }
      if constexpr (Reader<L>::kMins) {
        const float* mins = from.mins + block * kPanelRows;
        const Pair min{vld1q_f32(mins), vld1q_f32(mins + kHalfRows)};
        for (int c = 0; c < C; ++c) add_min(sums + c * kPanelRows, min, in.sums[block * C + c]);
      }
    }
    write(sums, C, out + panel * kPanelRows, stride, rows - panel * kPanelRows);
  }
}

// ---- one packed panel, for few columns

template <Layout L, int... I>
PF_INLINE void direct(std::integer_sequence<int, I...>, const std::byte* panel, const QuantizedTile& in, int64_t k, float* out,
                      size_t stride, int rows) {
  constexpr int C = static_cast<int>(sizeof...(I));
  constexpr int kParts = Reader<L>::kParts;
  constexpr int kGroups = kBlockGroups / kParts;
  float sums[C * kPanelRows] = {};
  const int8_t* quants = in.quants;
  for (int64_t block = 0; block < k / kActivationBlock; ++block) {
    const Reader<L> reader(panel, block);
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      int32x4_t low[C], high[C];
      ((low[I] = vdupq_n_s32(0), high[I] = vdupq_n_s32(0)), ...);
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g, quants += C * 4) {
        const int8x16_t w0 = reader.group(part * kGroups + g, 0), w1 = reader.group(part * kGroups + g, 1);
        ((low[I] = vdotq_s32(low[I], w0, broadcast_group(quants, I)),
          high[I] = vdotq_s32(high[I], w1, broadcast_group(quants, I))),
         ...);
      }
      const Pair scale = reader.scale(part);
      (finish(sums + I * kPanelRows, low[I], high[I], scale, in.scales[block * C + I]), ...);
    }
    if constexpr (Reader<L>::kMins) {
      const Pair min = reader.min();
      (add_min(sums + I * kPanelRows, min, in.sums[block * C + I]), ...);
    }
  }
  write(sums, C, out, stride, rows);
}

struct DotprodSet {
  static constexpr int kTileColumns = kernels::kTileColumns;
  static constexpr int kDirectColumns = kernels::kDirectColumns;
  static void quantize(const float* x, size_t stride, int columns, int64_t k, const QuantizedTile& out) {
    kernels::quantize(x, stride, columns, k, out);
  }
  template <Layout L>
  static size_t expanded_bytes(int64_t k) {
    return expanded_size<L>(k);
  }
  template <Layout L>
  static void expand(const std::byte* unit, int64_t k, std::byte* out) {
    expand_unit<L>(unit, k, out);
  }
  template <Layout L, int C>
  static void tile(const std::byte* expanded, const QuantizedTile& in, int64_t k, float* out, size_t stride, int rows) {
    kernels::tile<L, C>(const_cast<std::byte*>(expanded), in, k, out, stride, rows);
  }
  template <Layout L, int C>
  [[gnu::noinline]] static void direct(const std::byte* panel, const QuantizedTile& in, int64_t k, float* out, size_t stride,
                                       int rows) {
    kernels::direct<L>(std::make_integer_sequence<int, C>{}, panel, in, k, out, stride, rows);
  }
};

}  // namespace

const MatmulKernels kMatmulDotprod = MatmulTable<DotprodSet>::kTable;

}  // namespace pocketfleet::kernels

#endif
