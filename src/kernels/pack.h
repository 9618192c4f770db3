// How the kernels keep weights in memory: panels of eight rows, interleaved four columns at a time, every bit of the file's
// blocks kept (docs/formats/packed-weights.md). Packing and unpacking are exact inverses.
// Pure: takes bytes and gives bytes, knows of no processor. Rows that pad the last panels are zero.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>

namespace pocketfleet::kernels {

enum class Layout : uint8_t { kNone, kQ4_0, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

inline constexpr int kPanelRows = 8;
// Panels come in pairs, so that an instruction set may take sixteen rows at once.
inline constexpr int kUnitRows = 16;

// Bytes of one panel's data for a block of `block_columns` columns.
struct LayoutShape {
  int block_columns;
  size_t panel_block_bytes;
  size_t file_block_bytes;
};

// kNone where the type has no layout or `columns` are no whole number of blocks.
Layout layout_for(ggml_type type, int64_t columns, int64_t rows);

size_t packed_panel_bytes(Layout layout, int64_t columns);
size_t packed_bytes(Layout layout, int64_t columns, int64_t rows);

// Packs rows [panel * 8, panel * 8 + 8) of a matrix in the file's form into `packed`, the start of the whole packed matrix.
void pack_panel(Layout layout, const std::byte* file, int64_t columns, int64_t rows, int64_t panel, std::byte* packed);
// The inverse, for one row: its bytes in the file's form.
void unpack_row(Layout layout, const std::byte* packed, int64_t columns, int64_t row, std::byte* file_row);

// Where things lie in a panel's block; bytes from its start.
namespace q4_0 {
inline constexpr size_t kQuants = 0;    // 4 vectors of 32: vector v, byte row*4+i: low half column 4v+i, high half column 16+4v+i
inline constexpr size_t kScales = 128;  // 8 halves
inline constexpr size_t kBytes = 144;
}  // namespace q4_0
namespace q8_0 {
inline constexpr size_t kQuants = 0;    // 8 vectors of 32: vector v, byte row*4+i: column 4v+i
inline constexpr size_t kScales = 256;  // 8 halves
inline constexpr size_t kBytes = 272;
}  // namespace q8_0
namespace qk {
// Blocks of 256 columns are eight parts of 32, each laid out as q4_0's.
inline constexpr size_t kScales = 0;        // 8 halves
inline constexpr size_t kMinScales = 16;    // 8 halves
inline constexpr size_t kPartScales = 32;   // [part][row], 6 bits in a byte
inline constexpr size_t kPartMins = 96;     // [part][row], 6 bits in a byte
inline constexpr size_t kQuants = 160;      // [part][128]
inline constexpr size_t kFifthBits = 1184;  // only Q5_K: [part][32], bit v of byte row*4+i: column 4v+i
inline constexpr size_t kBytes4 = 1184;
inline constexpr size_t kBytes5 = 1440;
}  // namespace qk
namespace q6_k {
inline constexpr size_t kScales = 0;       // 8 halves
inline constexpr size_t kPartScales = 16;  // [16 parts of 16 columns][row], signed
inline constexpr size_t kQuants = 144;     // [8 parts of 32][128], low four bits, laid out as q4_0's
inline constexpr size_t kHighBits = 1168;  // [8 parts of 32][2][32]: byte row*4+i, bits 2g: column 16h+4g+i
inline constexpr size_t kBytes = 1680;
}  // namespace q6_k

constexpr LayoutShape shape_of(Layout layout) {
  switch (layout) {
    case Layout::kQ4_0:
      return {32, q4_0::kBytes, 18};
    case Layout::kQ8_0:
      return {32, q8_0::kBytes, 34};
    case Layout::kQ4_K:
      return {256, qk::kBytes4, 144};
    case Layout::kQ5_K:
      return {256, qk::kBytes5, 176};
    case Layout::kQ6_K:
      return {256, q6_k::kBytes, 210};
    case Layout::kNone:
      break;
  }
  return {1, 0, 0};
}

}  // namespace pocketfleet::kernels
