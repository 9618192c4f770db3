#include "kernels/pack.h"

#include <cstring>

namespace pocketfleet::kernels {

namespace {

using Bytes = uint8_t*;
using ConstBytes = const uint8_t*;

// The file's blocks, as ggml-common.h lays them out: offsets of their parts.
constexpr size_t kFileQ4Scale = 0, kFileQ4Quants = 2;
constexpr size_t kFileQ8Scale = 0, kFileQ8Quants = 2;
constexpr size_t kFileKScale = 0, kFileKMinScale = 2, kFileKScales = 4;
constexpr size_t kFileQ4KQuants = 16;
constexpr size_t kFileQ5KHigh = 16, kFileQ5KQuants = 48;
constexpr size_t kFileQ6Low = 0, kFileQ6High = 128, kFileQ6Scales = 192, kFileQ6Scale = 208;

// A block of one row between the two forms: values of 4 to 6 bits and its scales.
struct KScales {
  uint8_t scale[8];
  uint8_t min[8];
};

// Eight pairs of six bits in twelve bytes: the upper two bits of the last four pairs stand above the first four.
KScales read_k_scales(ConstBytes from) {
  KScales out;
  for (int j = 0; j < 4; ++j) {
    out.scale[j] = from[j] & 63;
    out.min[j] = from[j + 4] & 63;
    out.scale[j + 4] = static_cast<uint8_t>((from[j + 8] & 15) | ((from[j] >> 6) << 4));
    out.min[j + 4] = static_cast<uint8_t>((from[j + 8] >> 4) | ((from[j + 4] >> 6) << 4));
  }
  return out;
}

void write_k_scales(const KScales& in, Bytes to) {
  for (int j = 0; j < 4; ++j) {
    to[j] = static_cast<uint8_t>(in.scale[j] | ((in.scale[j + 4] >> 4) << 6));
    to[j + 4] = static_cast<uint8_t>(in.min[j] | ((in.min[j + 4] >> 4) << 6));
    to[j + 8] = static_cast<uint8_t>((in.scale[j + 4] & 15) | ((in.min[j + 4] & 15) << 4));
  }
}

// Column k of 32 in a panel's vectors of nibbles, for one row.
size_t nibble_at(int row, int k) {
  return static_cast<size_t>((k % 16) / 4 * 32 + row * 4 + k % 4);
}

// Four bytes at once: packing is part of every start.
uint32_t word(ConstBytes from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void put_word(Bytes to, uint32_t value) {
  std::memcpy(to, &value, sizeof value);
}

constexpr uint32_t kLowNibbles = 0x0f0f0f0f;

void get_nibbles(ConstBytes vectors, int row, Bytes values) {
  for (int k = 0; k < 16; ++k) {
    values[k] = vectors[nibble_at(row, k)] & 15;
    values[k + 16] = vectors[nibble_at(row, k)] >> 4;
  }
}

void pack_q4_0(ConstBytes file, int row, Bytes out) {
  // The file pairs columns k and k + 16 too.
  for (int v = 0; v < 4; ++v) std::memcpy(out + q4_0::kQuants + v * 32 + row * 4, file + kFileQ4Quants + v * 4, 4);
  std::memcpy(out + q4_0::kScales + 2 * row, file + kFileQ4Scale, 2);
}

void unpack_q4_0(ConstBytes packed, int row, Bytes file) {
  for (int v = 0; v < 4; ++v) std::memcpy(file + kFileQ4Quants + v * 4, packed + q4_0::kQuants + v * 32 + row * 4, 4);
  std::memcpy(file + kFileQ4Scale, packed + q4_0::kScales + 2 * row, 2);
}

void pack_q8_0(ConstBytes file, int row, Bytes out) {
  for (int v = 0; v < 8; ++v) std::memcpy(out + q8_0::kQuants + v * 32 + row * 4, file + kFileQ8Quants + v * 4, 4);
  std::memcpy(out + q8_0::kScales + 2 * row, file + kFileQ8Scale, 2);
}

void unpack_q8_0(ConstBytes packed, int row, Bytes file) {
  for (int v = 0; v < 8; ++v) std::memcpy(file + kFileQ8Quants + v * 4, packed + q8_0::kQuants + v * 32 + row * 4, 4);
  std::memcpy(file + kFileQ8Scale, packed + q8_0::kScales + 2 * row, 2);
}

void pack_k(ConstBytes file, int row, bool five, Bytes out) {
  std::memcpy(out + qk::kScales + 2 * row, file + kFileKScale, 2);
  std::memcpy(out + qk::kMinScales + 2 * row, file + kFileKMinScale, 2);
  const KScales scales = read_k_scales(file + kFileKScales);
  ConstBytes quants = file + (five ? kFileQ5KQuants : kFileQ4KQuants);
  for (int part = 0; part < 8; ++part) {
    out[qk::kPartScales + part * 8 + row] = scales.scale[part];
    out[qk::kPartMins + part * 8 + row] = scales.min[part];
    // A byte of the file holds column k of this part and of its neighbour; ours holds columns k and k + 16 of one part.
    const int shift = part % 2 * 4;
    for (int v = 0; v < 4; ++v) {
      const uint32_t low = word(quants + part / 2 * 32 + v * 4) >> shift,
                     high = word(quants + part / 2 * 32 + 16 + v * 4) >> shift;
      put_word(out + qk::kQuants + part * 128 + v * 32 + row * 4, (low & kLowNibbles) | ((high & kLowNibbles) << 4));
    }
    if (!five) continue;
    uint32_t fifth = 0;
    for (int v = 0; v < 8; ++v) fifth |= ((word(file + kFileQ5KHigh + v * 4) >> part) & 0x01010101u) << v;
    put_word(out + qk::kFifthBits + part * 32 + row * 4, fifth);
  }
}

void unpack_k(ConstBytes packed, int row, bool five, Bytes file) {
  std::memset(file, 0, shape_of(five ? Layout::kQ5_K : Layout::kQ4_K).file_block_bytes);
  std::memcpy(file + kFileKScale, packed + qk::kScales + 2 * row, 2);
  std::memcpy(file + kFileKMinScale, packed + qk::kMinScales + 2 * row, 2);
  KScales scales;
  Bytes quants = file + (five ? kFileQ5KQuants : kFileQ4KQuants);
  for (int part = 0; part < 8; ++part) {
    scales.scale[part] = packed[qk::kPartScales + part * 8 + row];
    scales.min[part] = packed[qk::kPartMins + part * 8 + row];
    uint8_t values[32];
    get_nibbles(packed + qk::kQuants + part * 128, row, values);
    for (int k = 0; k < 32; ++k) quants[part / 2 * 32 + k] |= static_cast<uint8_t>(values[k] << (part % 2 * 4));
    if (!five) continue;
    for (int k = 0; k < 32; ++k) {
      const int bit = (packed[qk::kFifthBits + part * 32 + row * 4 + k % 4] >> (k / 4)) & 1;
      file[kFileQ5KHigh + k] |= static_cast<uint8_t>(bit << part);
    }
  }
  write_k_scales(scales, file + kFileKScales);
}

// In the file, each half of 128 columns keeps four runs of 32: low bits in two runs of bytes, high bits in one.
struct Q6Place {
  size_t low;
  int low_shift;
  size_t high;
  int high_shift;
};

Q6Place q6_place(int column) {
  const int half = column / 128, run = column % 128 / 32, k = column % 32;
  return {kFileQ6Low + static_cast<size_t>(half * 64 + run % 2 * 32 + k), run / 2 * 4,
          kFileQ6High + static_cast<size_t>(half * 32 + k), run * 2};
}

void pack_q6_k(ConstBytes file, int row, Bytes out) {
  std::memcpy(out + q6_k::kScales + 2 * row, file + kFileQ6Scale, 2);
  for (int part = 0; part < 16; ++part) out[q6_k::kPartScales + part * 8 + row] = file[kFileQ6Scales + part];
  for (int part = 0; part < 8; ++part) {
    for (int v = 0; v < 4; ++v) {
      const Q6Place first = q6_place(part * 32 + v * 4), second = q6_place(part * 32 + 16 + v * 4);
      const uint32_t low = word(file + first.low) >> first.low_shift, high = word(file + second.low) >> second.low_shift;
      put_word(out + q6_k::kQuants + part * 128 + v * 32 + row * 4, (low & kLowNibbles) | ((high & kLowNibbles) << 4));
    }
    for (int half = 0; half < 2; ++half) {
      uint32_t bits = 0;
      for (int g = 0; g < 4; ++g) {
        const Q6Place place = q6_place(part * 32 + half * 16 + g * 4);
        bits |= ((word(file + place.high) >> place.high_shift) & 0x03030303u) << (2 * g);
      }
      put_word(out + q6_k::kHighBits + part * 64 + half * 32 + row * 4, bits);
    }
  }
}

void unpack_q6_k(ConstBytes packed, int row, Bytes file) {
  std::memset(file, 0, shape_of(Layout::kQ6_K).file_block_bytes);
  std::memcpy(file + kFileQ6Scale, packed + q6_k::kScales + 2 * row, 2);
  for (int part = 0; part < 16; ++part) file[kFileQ6Scales + part] = packed[q6_k::kPartScales + part * 8 + row];
  for (int part = 0; part < 8; ++part) {
    uint8_t low[32];
    get_nibbles(packed + q6_k::kQuants + part * 128, row, low);
    for (int k = 0; k < 32; ++k) {
      const Q6Place place = q6_place(part * 32 + k);
      file[place.low] |= static_cast<uint8_t>(low[k] << place.low_shift);
      const int high = (packed[q6_k::kHighBits + part * 64 + k / 16 * 32 + row * 4 + k % 4] >> (k % 16 / 4 * 2)) & 3;
      file[place.high] |= static_cast<uint8_t>(high << place.high_shift);
    }
  }
}

}  // namespace

Layout layout_for(ggml_type type, int64_t columns, int64_t rows) {
  Layout layout = Layout::kNone;
  switch (type) {
    case GGML_TYPE_Q4_0:
      layout = Layout::kQ4_0;
      break;
    case GGML_TYPE_Q8_0:
      layout = Layout::kQ8_0;
      break;
    case GGML_TYPE_Q4_K:
      layout = Layout::kQ4_K;
      break;
    case GGML_TYPE_Q5_K:
      layout = Layout::kQ5_K;
      break;
    case GGML_TYPE_Q6_K:
      layout = Layout::kQ6_K;
      break;
    default:
      return Layout::kNone;
  }
  const bool whole = columns > 0 && rows > 0 && columns % shape_of(layout).block_columns == 0;
  return whole ? layout : Layout::kNone;
}

size_t packed_panel_bytes(Layout layout, int64_t columns) {
  const LayoutShape shape = shape_of(layout);
  return static_cast<size_t>(columns / shape.block_columns) * shape.panel_block_bytes;
}

size_t packed_bytes(Layout layout, int64_t columns, int64_t rows) {
  const int64_t panels = (rows + kUnitRows - 1) / kUnitRows * (kUnitRows / kPanelRows);
  return static_cast<size_t>(panels) * packed_panel_bytes(layout, columns);
}

void pack_panel(Layout layout, const std::byte* file, int64_t columns, int64_t rows, int64_t panel, std::byte* packed) {
  const LayoutShape shape = shape_of(layout);
  const int64_t blocks = columns / shape.block_columns;
  const size_t row_bytes = static_cast<size_t>(blocks) * shape.file_block_bytes;
  auto* out = reinterpret_cast<Bytes>(packed) + static_cast<size_t>(panel) * packed_panel_bytes(layout, columns);
  std::memset(out, 0, packed_panel_bytes(layout, columns));
  for (int64_t block = 0; block < blocks; ++block, out += shape.panel_block_bytes) {
    for (int row = 0; row < kPanelRows && panel * kPanelRows + row < rows; ++row) {
      const auto* from = reinterpret_cast<ConstBytes>(file) + static_cast<size_t>(panel * kPanelRows + row) * row_bytes +
                         static_cast<size_t>(block) * shape.file_block_bytes;
      switch (layout) {
        case Layout::kQ4_0:
          pack_q4_0(from, row, out);
          break;
        case Layout::kQ8_0:
          pack_q8_0(from, row, out);
          break;
        case Layout::kQ4_K:
          pack_k(from, row, false, out);
          break;
        case Layout::kQ5_K:
          pack_k(from, row, true, out);
          break;
        case Layout::kQ6_K:
          pack_q6_k(from, row, out);
          break;
        case Layout::kNone:
          break;
      }
    }
  }
}

void unpack_row(Layout layout, const std::byte* packed, int64_t columns, int64_t row, std::byte* file_row) {
  const LayoutShape shape = shape_of(layout);
  const auto* in =
      reinterpret_cast<ConstBytes>(packed) + static_cast<size_t>(row / kPanelRows) * packed_panel_bytes(layout, columns);
  auto* to = reinterpret_cast<Bytes>(file_row);
  const int lane = static_cast<int>(row % kPanelRows);
  for (int64_t block = 0; block < columns / shape.block_columns;
       ++block, in += shape.panel_block_bytes, to += shape.file_block_bytes) {
    switch (layout) {
      case Layout::kQ4_0:
        unpack_q4_0(in, lane, to);
        break;
      case Layout::kQ8_0:
        unpack_q8_0(in, lane, to);
        break;
      case Layout::kQ4_K:
        unpack_k(in, lane, false, to);
        break;
      case Layout::kQ5_K:
        unpack_k(in, lane, true, to);
        break;
      case Layout::kQ6_K:
        unpack_q6_k(in, lane, to);
        break;
      case Layout::kNone:
        break;
    }
  }
}

}  // namespace pocketfleet::kernels
