// Matmul for AVX2. Weights of up to six bits times activations of eight are summed in sixteen bits over a whole part (16 products
// a lane), which saves the widening after every step: it cannot overflow once the weights' offset is taken out, and that is done
// by starting each sum at minus offset times the activations' sum. Sums wrap around on the way and come out right.
#if defined(__x86_64__)

#include <immintrin.h>

#include <utility>

#include "kernels/matmul_isa.h"
#include "kernels/matmul_table.h"

#define PF_INLINE __attribute__((always_inline)) inline

namespace pocketfleet::kernels {

namespace {

constexpr int kTileColumns = 6;
constexpr int kDirectColumns = 4;
constexpr int kBlockGroups = 8;

// A run of a block's groups (of four columns each) that has one scale for each row.
struct Part {
  int first_group;
  int groups;
  int offset;  // what weights are above their values
};

template <Layout L>
struct Traits;
template <>
struct Traits<Layout::kQ4_0> {
  static constexpr Part kParts[] = {{0, 8, 8}};
  static constexpr bool kMins = false;
};
// Eight bits do not fit beside eight others in sixteen: the low and the high half are two products.
template <>
struct Traits<Layout::kQ8_0> {
  static constexpr Part kParts[] = {{0, 8, 0}, {0, 8, 8}};
  static constexpr bool kMins = false;
};
template <>
struct Traits<Layout::kQ4_K> {
  static constexpr Part kParts[] = {{0, 8, 0}};
  static constexpr bool kMins = true;
};
template <>
struct Traits<Layout::kQ5_K> {
  static constexpr Part kParts[] = {{0, 8, 16}};
  static constexpr bool kMins = true;
};
template <>
struct Traits<Layout::kQ6_K> {
  static constexpr Part kParts[] = {{0, 4, 32}, {4, 4, 32}};
  static constexpr bool kMins = false;
};

template <Layout L>
constexpr int kPartCount = static_cast<int>(sizeof(Traits<L>::kParts) / sizeof(Part));
template <Layout L>
constexpr bool kTwoParts = kPartCount<L> == 2;

// One part's weights for eight rows, one byte each, a vector for each group; and its scales.
template <Layout L>
struct Reader;

PF_INLINE __m256i load256(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
PF_INLINE __m256 load_halves(const void* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}
PF_INLINE __m256 load_unsigned_bytes(const void* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(from))));
}
PF_INLINE __m256 load_signed_bytes(const void* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(from))));
}
PF_INLINE __m256i nibbles(const uint8_t* vectors, int group) {
  __m256i v = load256(vectors + group % 4 * 32);
  if (group >= 4) v = _mm256_srli_epi16(v, 4);
  return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

// `block` counts 32 columns from the panel's start.
template <>
struct Reader<Layout::kQ4_0> {
  const uint8_t* at;
  Reader(const std::byte* panel, int64_t block)
      : at(reinterpret_cast<const uint8_t*>(panel) + static_cast<size_t>(block) * q4_0::kBytes) {}
  PF_INLINE __m256i group(int, int group) const { return nibbles(at + q4_0::kQuants, group); }
  PF_INLINE __m256 scale(int) const { return load_halves(at + q4_0::kScales); }
  PF_INLINE __m256 min() const { return _mm256_setzero_ps(); }
};
template <>
struct Reader<Layout::kQ8_0> {
  const uint8_t* at;
  Reader(const std::byte* panel, int64_t block)
      : at(reinterpret_cast<const uint8_t*>(panel) + static_cast<size_t>(block) * q8_0::kBytes) {}
  PF_INLINE __m256i group(int part, int group) const {
    const __m256i v = load256(at + q8_0::kQuants + group * 32);
    if (part == 0) return _mm256_and_si256(v, _mm256_set1_epi8(15));
    return _mm256_xor_si256(_mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)), _mm256_set1_epi8(8));
  }
  PF_INLINE __m256 scale(int part) const {
    const __m256 d = load_halves(at + q8_0::kScales);
    return part == 0 ? d : _mm256_mul_ps(d, _mm256_set1_ps(16.0f));
  }
  PF_INLINE __m256 min() const { return _mm256_setzero_ps(); }
};
template <Layout L>
struct KReader {
  const uint8_t* at;
  int part32;
  KReader(const std::byte* panel, int64_t block)
      : at(reinterpret_cast<const uint8_t*>(panel) +
           static_cast<size_t>(block / 8) * (L == Layout::kQ4_K ? qk::kBytes4 : qk::kBytes5)),
        part32(static_cast<int>(block % 8)) {}
  PF_INLINE __m256i group(int, int group) const {
    const __m256i low = nibbles(at + qk::kQuants + part32 * 128, group);
    if (L == Layout::kQ4_K) return low;
    const __m256i bits = load256(at + qk::kFifthBits + part32 * 32);
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << group));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bits, bit), bit);
    return _mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi8(16)));
  }
  PF_INLINE __m256 scale(int) const {
    return _mm256_mul_ps(load_halves(at + qk::kScales), load_unsigned_bytes(at + qk::kPartScales + part32 * 8));
  }
  // What a sum of activations is multiplied with: the file's minimum, and what the offset took away.
  PF_INLINE __m256 min() const {
    const __m256 min = _mm256_mul_ps(load_halves(at + qk::kMinScales), load_unsigned_bytes(at + qk::kPartMins + part32 * 8));
    if (L == Layout::kQ4_K) return _mm256_sub_ps(_mm256_setzero_ps(), min);
    return _mm256_fmsub_ps(_mm256_set1_ps(16.0f), scale(0), min);
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
  const uint8_t* at;
  int part32;
  Reader(const std::byte* panel, int64_t block)
      : at(reinterpret_cast<const uint8_t*>(panel) + static_cast<size_t>(block / 8) * q6_k::kBytes),
        part32(static_cast<int>(block % 8)) {}
  PF_INLINE __m256i group(int, int group) const {
    // Both are read again for each group: kept for the next ones, they would take registers that sums need.
    const uint8_t* block = at;
    asm volatile("" : "+r"(block));
    const __m256i low = nibbles(block + q6_k::kQuants + part32 * 128, group);
    const __m256i bits = load256(block + q6_k::kHighBits + part32 * 64 + group / 4 * 32);
    const int shift = group % 4 * 2;
    const __m256i placed = shift >= 4 ? _mm256_srli_epi16(bits, shift - 4) : _mm256_slli_epi16(bits, 4 - shift);
    return _mm256_or_si256(low, _mm256_and_si256(placed, _mm256_set1_epi8(0x30)));
  }
  PF_INLINE __m256 scale(int part) const {
    return _mm256_mul_ps(load_halves(at + q6_k::kScales), load_signed_bytes(at + q6_k::kPartScales + (part32 * 2 + part) * 8));
  }
  PF_INLINE __m256 min() const { return _mm256_setzero_ps(); }
};

// ---- activations

void quantize(const float* x, size_t stride, int columns, int64_t k, const QuantizedTile& out) {
  const int64_t blocks = k / kActivationBlock;
  for (int c = 0; c < columns; ++c) {
    const float* from = x + static_cast<size_t>(c) * stride;
    for (int64_t block = 0; block < blocks; ++block, from += kActivationBlock) {
      __m256 v[4];
      for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_ps(from + 8 * i);
      const __m256 sign = _mm256_set1_ps(-0.0f);
      __m256 most = _mm256_max_ps(_mm256_max_ps(_mm256_andnot_ps(sign, v[0]), _mm256_andnot_ps(sign, v[1])),
                                  _mm256_max_ps(_mm256_andnot_ps(sign, v[2]), _mm256_andnot_ps(sign, v[3])));
      __m128 m = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
      m = _mm_max_ps(m, _mm_movehl_ps(m, m));
      m = _mm_max_ss(m, _mm_movehdup_ps(m));
      const float largest = _mm_cvtss_f32(m);
      const float scale = largest / 127.0f;
      const __m256 inverse = _mm256_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
      __m256i q[4];
      for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
      // Packing works in halves of 128 bits; the permutation puts the 32 in order again.
      __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
      bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
      alignas(32) int32_t groups[8];
      _mm256_store_si256(reinterpret_cast<__m256i*>(groups), bytes);
      auto* quants = reinterpret_cast<int32_t*>(out.quants) + block * kBlockGroups * out.columns + c;
      for (int g = 0; g < kBlockGroups; ++g) quants[g * out.columns] = groups[g];
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
      // Each half of 128 bits holds 16 columns: four groups, each two pair sums.
      __m128i low = _mm256_castsi256_si128(pairs), high = _mm256_extracti128_si256(pairs, 1);
      low = _mm_add_epi16(low, _mm_unpackhi_epi64(low, low));
      high = _mm_add_epi16(high, _mm_unpackhi_epi64(high, high));
      low = _mm_add_epi16(low, _mm_shuffle_epi32(low, 1));
      high = _mm_add_epi16(high, _mm_shuffle_epi32(high, 1));
      const int32_t low_sums = _mm_cvtsi128_si32(low), high_sums = _mm_cvtsi128_si32(high);
      const __m128i both = _mm_add_epi16(low, high);
      const auto minus = [](__m128i sums, int shift) {
        return _mm_cvtsi128_si32(_mm_slli_epi16(_mm_sub_epi16(_mm_setzero_si128(), sums), shift));
      };
      out.starts_8[block * out.columns + c] = minus(both, 3);
      out.starts_32[(block * 2) * out.columns + c] = minus(low, 5);
      out.starts_32[(block * 2 + 1) * out.columns + c] = minus(high, 5);
      const int sum = static_cast<int16_t>(low_sums) + (low_sums >> 16) + static_cast<int16_t>(high_sums) + (high_sums >> 16);
      out.scales[block * out.columns + c] = scale;
      out.sums[block * out.columns + c] = scale * static_cast<float>(sum);
    }
  }
}

// ---- sums of one part

// Where a part's sums start, so that the weights' offset is gone in the end.
template <Layout L, int P>
PF_INLINE __m256i start(const int32_t* starts_8, const int32_t* starts_32, int columns, int column) {
  constexpr Part part = Traits<L>::kParts[P];
  if (part.offset == 0) return _mm256_setzero_si256();
  if (part.offset == 8) return _mm256_set1_epi32(starts_8[column]);
  if (part.offset == 16) return _mm256_slli_epi16(_mm256_set1_epi32(starts_8[column]), 1);
  static_assert(part.offset != 32 || part.groups == 4, "starts of 32 are for halves");
  return _mm256_set1_epi32(starts_32[part.first_group / 4 * columns + column]);
}

PF_INLINE __m256 widen(__m256i sums) {
  return _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
}

// a0 += w0 * x, a1 += w1 * x, where x is four activations, given to all rows. Written as instructions because GCC 12 otherwise
// orders them so that sums no longer fit into the sixteen registers and go through the stack at every step.
PF_INLINE void step(__m256i& a0, __m256i& a1, __m256i w0, __m256i w1, const int8_t* x) {
  __m256i product, broadcast;
  asm("vpbroadcastd %[x], %[b]\n\t"
      "vpmaddubsw %[b], %[w0], %[p]\n\t"
      "vpmaddubsw %[b], %[w1], %[b]\n\t"
      "vpaddw %[p], %[a0], %[a0]\n\t"
      "vpaddw %[b], %[a1], %[a1]"
      : [a0] "+x"(a0), [a1] "+x"(a1), [p] "=&x"(product), [b] "=&x"(broadcast)
      : [w0] "x"(w0), [w1] "x"(w1), [x] "m"(*reinterpret_cast<const int32_t*>(x)));
}
PF_INLINE void step(__m256i& a, __m256i w, const int8_t* x) {
  __m256i product;
  asm("vpbroadcastd %[x], %[p]\n\t"
      "vpmaddubsw %[p], %[w], %[p]\n\t"
      "vpaddw %[p], %[a], %[a]"
      : [a] "+x"(a), [p] "=&x"(product)
      : [w] "x"(w), [x] "m"(*reinterpret_cast<const int32_t*>(x)));
}

// ---- sixteen expanded rows

struct Expanded {
  uint8_t* weights;  // [block][part][group][2 panels][32]
  float* scales;     // [block][part][16]
  float* mins;       // [block][16]
};

template <Layout L>
PF_INLINE constexpr int groups_a_block() {
  int groups = 0;
  for (const Part& part : Traits<L>::kParts) groups += part.groups;
  return groups;
}

template <Layout L>
Expanded expanded_at(std::byte* memory, int64_t k) {
  const auto blocks = static_cast<size_t>(k / kActivationBlock);
  auto* weights = reinterpret_cast<uint8_t*>(memory);
  auto* scales = reinterpret_cast<float*>(weights + blocks * groups_a_block<L>() * 64);
  return {weights, scales, scales + blocks * kPartCount<L> * kUnitRows};
}

template <Layout L>
size_t expanded_size(int64_t k) {
  const auto blocks = static_cast<size_t>(k / kActivationBlock);
  return blocks * (groups_a_block<L>() * 64 + (kPartCount<L> + (Traits<L>::kMins ? 1 : 0)) * kUnitRows * sizeof(float));
}

template <Layout L>
void expand_unit(const std::byte* unit, int64_t k, std::byte* memory) {
  const Expanded out = expanded_at<L>(memory, k);
  const size_t panel_bytes = packed_panel_bytes(L, k);
  const int64_t blocks = k / kActivationBlock;
  for (int panel = 0; panel < 2; ++panel) {
    uint8_t* weights = out.weights + panel * 32;
    float* scales = out.scales + panel * 8;
    float* mins = out.mins + panel * 8;
    for (int64_t block = 0; block < blocks; ++block) {
      const Reader<L> reader(unit + static_cast<size_t>(panel) * panel_bytes, block);
#pragma GCC unroll 2
      for (int p = 0; p < kPartCount<L>; ++p) {
        const Part part = Traits<L>::kParts[p];
#pragma GCC unroll 8
        for (int g = 0; g < part.groups; ++g, weights += 64) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights), reader.group(p, part.first_group + g));
        }
        _mm256_storeu_ps(scales, reader.scale(p));
        scales += kUnitRows;
      }
      if (Traits<L>::kMins) {
        _mm256_storeu_ps(mins, reader.min());
        mins += kUnitRows;
      }
    }
  }
}

template <Layout L, int P, int C, int... I>
PF_INLINE void tile_part(std::integer_sequence<int, I...>, const uint8_t*& weights, const int8_t* quants, const int32_t* starts_8,
                         const int32_t* starts_32, const float* activation_scales, const float* scales, float* sums) {
  constexpr Part part = Traits<L>::kParts[P];
  quants += part.first_group * C * 4;
  __m256i a0[C], a1[C];
  ((a0[I] = start<L, P>(starts_8, starts_32, C, I), a1[I] = a0[I]), ...);
#pragma GCC unroll 8
  for (int g = 0; g < part.groups; ++g) {
    const __m256i w0 = load256(weights), w1 = load256(weights + 32);
    (step(a0[I], a1[I], w0, w1, quants + 4 * I), ...);
    weights += 64;
    quants += C * 4;
  }
  const __m256 s0 = _mm256_loadu_ps(scales), s1 = _mm256_loadu_ps(scales + 8);
  const auto finish = [&](int c, const __m256i& low, const __m256i& high) __attribute__((always_inline)) {
    const __m256 scale = _mm256_broadcast_ss(activation_scales + c);
    float* f = sums + c * kUnitRows;
    _mm256_store_ps(f, _mm256_fmadd_ps(widen(low), _mm256_mul_ps(s0, scale), _mm256_load_ps(f)));
    _mm256_store_ps(f + 8, _mm256_fmadd_ps(widen(high), _mm256_mul_ps(s1, scale), _mm256_load_ps(f + 8)));
  };
  (finish(I, a0[I], a1[I]), ...);
}

template <Layout L, int C>
__attribute__((noinline)) void tile(const std::byte* expanded, const QuantizedTile& in, int64_t k, float* out, size_t stride,
                                    int rows) {
  const Expanded from = expanded_at<L>(const_cast<std::byte*>(expanded), k);
  constexpr auto kColumns = std::make_integer_sequence<int, C>{};
  alignas(32) float memory[C * kUnitRows];
  float* sums = memory;
  // The compiler is not to know that this is the array, or it keeps a second copy of each sum on the stack.
  asm("" : "+r"(sums) : : "memory");
  for (int i = 0; i < C * kUnitRows; i += 8) _mm256_store_ps(sums + i, _mm256_setzero_ps());
  const uint8_t* weights = from.weights;
  const float* scales = from.scales;
  const float* mins = from.mins;
  const int8_t* quants = in.quants;
  const int32_t* starts_8 = in.starts_8;
  const int32_t* starts_32 = in.starts_32;
  const float* activation_scales = in.scales;
  const float* activation_sums = in.sums;
  for (int64_t block = 0; block < k / kActivationBlock; ++block) {
    tile_part<L, 0, C>(kColumns, weights, quants, starts_8, starts_32, activation_scales, scales, sums);
    scales += kUnitRows;
    if constexpr (kTwoParts<L>) {
      tile_part<L, 1, C>(kColumns, weights, quants, starts_8, starts_32, activation_scales, scales, sums);
      scales += kUnitRows;
    }
    if constexpr (Traits<L>::kMins) {
      const __m256 m0 = _mm256_loadu_ps(mins), m1 = _mm256_loadu_ps(mins + 8);
      for (int c = 0; c < C; ++c) {
        const __m256 sum = _mm256_broadcast_ss(activation_sums + c);
        float* f = sums + c * kUnitRows;
        _mm256_store_ps(f, _mm256_fmadd_ps(m0, sum, _mm256_load_ps(f)));
        _mm256_store_ps(f + 8, _mm256_fmadd_ps(m1, sum, _mm256_load_ps(f + 8)));
      }
      mins += kUnitRows;
    }
    quants += kActivationBlock * C;
    starts_8 += C;
    starts_32 += 2 * C;
    activation_scales += C;
    activation_sums += C;
  }
  for (int c = 0; c < C; ++c, out += stride) {
    if (rows >= kUnitRows) {
      _mm256_storeu_ps(out, _mm256_load_ps(sums + c * kUnitRows));
      _mm256_storeu_ps(out + 8, _mm256_load_ps(sums + c * kUnitRows + 8));
    } else {
      for (int r = 0; r < rows; ++r) out[r] = sums[c * kUnitRows + r];
    }
  }
}

// ---- one packed panel, for few columns

template <Layout L, int P, int... I>
PF_INLINE void direct_part(std::integer_sequence<int, I...>, const Reader<L>& reader, const int8_t* quants,
                           const int32_t* starts_8, const int32_t* starts_32, const float* activation_scales, __m256* sums) {
  constexpr Part part = Traits<L>::kParts[P];
  constexpr int C = static_cast<int>(sizeof...(I));
  __m256i a[C];
  ((a[I] = start<L, P>(starts_8, starts_32, C, I)), ...);
#pragma GCC unroll 8
  for (int g = 0; g < part.groups; ++g) {
    const __m256i w = reader.group(P, part.first_group + g);
    (step(a[I], w, quants + ((part.first_group + g) * C + I) * 4), ...);
  }
  const __m256 scale = reader.scale(P);
  ((sums[I] = _mm256_fmadd_ps(widen(a[I]), _mm256_mul_ps(scale, _mm256_broadcast_ss(activation_scales + I)), sums[I])), ...);
}

template <Layout L, int... I>
PF_INLINE void direct(std::integer_sequence<int, I...> columns, const std::byte* panel, const QuantizedTile& in, int64_t k,
                      float* out, size_t stride, int rows) {
  constexpr int C = static_cast<int>(sizeof...(I));
  __m256 sums[C];
  ((sums[I] = _mm256_setzero_ps()), ...);
  const int8_t* quants = in.quants;
  const int32_t* starts_8 = in.starts_8;
  const int32_t* starts_32 = in.starts_32;
  const float* scales = in.scales;
  const float* activation_sums = in.sums;
  // Far enough ahead for memory to answer. The next panel follows this one.
  constexpr size_t kBlockBytes =
      shape_of(L).panel_block_bytes * kActivationBlock / static_cast<size_t>(shape_of(L).block_columns);
  const char* ahead = reinterpret_cast<const char*>(panel) + 2048;
  for (int64_t block = 0; block < k / kActivationBlock; ++block) {
    const Reader<L> reader(panel, block);
    for (size_t line = 0; line < kBlockBytes; line += kCacheLine) _mm_prefetch(ahead + line, _MM_HINT_T0);
    ahead += kBlockBytes;
    direct_part<L, 0>(columns, reader, quants, starts_8, starts_32, scales, sums);
    if constexpr (kTwoParts<L>) direct_part<L, 1>(columns, reader, quants, starts_8, starts_32, scales, sums);
    if constexpr (Traits<L>::kMins) {
      const __m256 min = reader.min();
      ((sums[I] = _mm256_fmadd_ps(min, _mm256_broadcast_ss(activation_sums + I), sums[I])), ...);
    }
    quants += kActivationBlock * C;
    starts_8 += C;
    starts_32 += 2 * C;
    scales += C;
    activation_sums += C;
  }
  const auto write = [&](int c, __m256 sum) __attribute__((always_inline)) {
    float* to = out + static_cast<size_t>(c) * stride;
    if (rows >= kPanelRows) {
      _mm256_storeu_ps(to, sum);
    } else {
      alignas(32) float values[8];
      _mm256_store_ps(values, sum);
      for (int r = 0; r < rows; ++r) to[r] = values[r];
    }
  };
  (write(I, sums[I]), ...);
}

struct Avx2Set {
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
    kernels::tile<L, C>(expanded, in, k, out, stride, rows);
  }
  template <Layout L, int C>
  [[gnu::noinline]] static void direct(const std::byte* panel, const QuantizedTile& in, int64_t k, float* out, size_t stride,
                                       int rows) {
    kernels::direct<L>(std::make_integer_sequence<int, C>{}, panel, in, k, out, stride, rows);
  }
};

}  // namespace

const MatmulKernels kMatmulAvx2 = MatmulTable<Avx2Set>::kTable;

}  // namespace pocketfleet::kernels

#endif
