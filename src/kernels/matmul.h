// Products of packed weights with float activations: y[column][row] = sum over k of w[row][k] * x[column][k].
// Activations are rounded to eight bits with a scale for each 32 of them, as llama.cpp does; weights stay as they are in the
// file. Every output is summed in one order whatever the number of columns or threads, so a token gets the same bits alone and in
// a batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op.h"
#include "kernels/pack.h"

namespace pocketfleet::kernels {

inline constexpr int kActivationBlock = 32;

// Rounded activations of a few columns. `columns` is the number that they were rounded for: the stride of everything.
struct QuantizedTile {
  int8_t* quants;  // [block][8 groups of 4 k][column][4]
  float* scales;   // [block][column]
  float* sums;     // [block][column], scale times the sum of the block's quants
  // Where sums of products with weights that are stored 8, or 32, above their values start: minus 8 times the sum of a block's
  // quants, or minus 32 times that of each half of 16. Two int16, for the quants with k%4 in {0,1} and in {2,3}; they wrap
  // around.
  int32_t* starts_8;   // [block][column]
  int32_t* starts_32;  // [block][half][column]
  int columns;

  static constexpr size_t bytes(int64_t columns, int64_t k) {
    return static_cast<size_t>(columns * (k / kActivationBlock)) * (kActivationBlock + 4 + 4 + 4 + 8);
  }
  static QuantizedTile at(std::byte* memory, int columns, int64_t k) {
    const size_t cells = static_cast<size_t>(columns) * static_cast<size_t>(k / kActivationBlock);
    auto* quants = reinterpret_cast<int8_t*>(memory);
    auto* starts = reinterpret_cast<int32_t*>(quants + cells * kActivationBlock);
    auto* scales = reinterpret_cast<float*>(starts + 3 * cells);
    return {quants, scales, scales + cells, starts, starts + cells, columns};
  }
};

// What an instruction set gives. "Expanded" is its own form of sixteen rows' weights, one byte each, made once for many columns.
struct MatmulKernels {
  int tile_columns;    // columns that expanded_tile takes at most; tiles are rounded in this width
  int direct_columns;  // columns up to which reading packed weights directly is faster
  size_t (*expanded_bytes)(Layout layout, int64_t k);
  void (*quantize)(const float* x, size_t stride, int columns, int64_t k, const QuantizedTile& out);
  void (*expand)(Layout layout, const std::byte* unit, int64_t k, std::byte* out);
  // Writes min(rows, 16) rows of tile.columns columns; column c at out + c * stride.
  void (*expanded_tile)(Layout layout, const std::byte* expanded, const QuantizedTile& tile, int64_t k, float* out, size_t stride,
                        int rows);
  // The same from one packed panel of eight rows.
  void (*direct_panel)(Layout layout, const std::byte* panel, const QuantizedTile& tile, int64_t k, float* out, size_t stride,
                       int rows);
};

// Rounded activations stay from one product to the next, since several weights read the same input.
struct Activations {
  const ggml_tensor* source = nullptr;  // whose columns are in `memory`, or none
  int tile_columns = 0;
  std::byte* memory = nullptr;  // QuantizedTile::bytes(columns, k) at least; owned by the context
};

// Whether tensor is a MUL_MAT of a 2-D weight with float columns that run_matmul takes, given the weight's layout.
bool matmul_supports(const ggml_tensor* tensor);
size_t matmul_activation_bytes(const ggml_tensor* tensor);
size_t matmul_scratch_bytes(const ggml_tensor* tensor, const MatmulKernels& kernels, int threads);
void run_matmul(const OpCall& call, const MatmulKernels& kernels, Activations& activations);

}  // namespace pocketfleet::kernels
