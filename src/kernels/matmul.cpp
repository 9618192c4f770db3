#include "kernels/matmul.h"

#include <algorithm>

namespace pocketfleet::kernels {

namespace {

struct Shape {
  Layout layout;
  int64_t k, rows, columns;
  size_t x_stride, y_stride;  // floats between columns
};

Shape shape(const ggml_tensor* tensor) {
  const ggml_tensor* w = tensor->src[0];
  const ggml_tensor* x = tensor->src[1];
  return {layout_for(w->type, w->ne[0], w->ne[1]),
          w->ne[0],
          w->ne[1],
          x->ne[1] * x->ne[2] * x->ne[3],
          x->nb[1] / sizeof(float),
          tensor->nb[1] / sizeof(float)};
}

}  // namespace

bool matmul_supports(const ggml_tensor* tensor) {
  if (tensor->op != GGML_OP_MUL_MAT) return false;
  const ggml_tensor* w = tensor->src[0];
  const ggml_tensor* x = tensor->src[1];
  if (w->ne[2] != 1 || w->ne[3] != 1 || layout_for(w->type, w->ne[0], w->ne[1]) == Layout::kNone) return false;
  if (x->type != GGML_TYPE_F32 || tensor->type != GGML_TYPE_F32 || x->nb[0] != sizeof(float) || x->nb[1] % sizeof(float) != 0)
    return false;
  // Columns must lie at one distance from one another.
  const bool flat = x->ne[3] == 1 && x->ne[2] == 1;
  return (flat || ggml_is_contiguous(x)) && ggml_is_contiguous(tensor);
}

size_t matmul_activation_bytes(const ggml_tensor* tensor) {
  const Shape s = shape(tensor);
  return QuantizedTile::bytes(s.columns, s.k);
}

size_t matmul_scratch_bytes(const ggml_tensor* tensor, const MatmulKernels& kernels, int threads) {
  const Shape s = shape(tensor);
  if (s.columns <= kernels.direct_columns) return 0;
  return align_up(kernels.expanded_bytes(s.layout, s.k)) * static_cast<size_t>(threads);
}

void run_matmul(const OpCall& call, const MatmulKernels& kernels, Activations& activations) {
  const Shape s = shape(call.tensor);
  const ggml_tensor* source = call.tensor->src[1];
  const auto* x = static_cast<const float*>(source->data);
  auto* y = static_cast<float*>(call.tensor->data);
  const auto* weights = static_cast<const std::byte*>(call.tensor->src[0]->data);
  const bool direct = s.columns <= kernels.direct_columns;
  const int width = kernels.tile_columns;
  const int64_t tiles = (s.columns + width - 1) / width;
  const auto tile_at = [&](int64_t t) {
    const int columns = static_cast<int>(std::min<int64_t>(width, s.columns - t * width));
    return QuantizedTile::at(activations.memory + QuantizedTile::bytes(t * width, s.k), columns, s.k);
  };

  // Everybody reads `source` before anybody may change it.
  const bool rounded = activations.source == source;
  call.team->barrier(call.threads);
  if (!rounded) {
    for (int64_t t = call.thread; t < tiles; t += call.threads) {
      const QuantizedTile tile = tile_at(t);
      kernels.quantize(x + static_cast<size_t>(t * width) * s.x_stride, s.x_stride, tile.columns, s.k, tile);
    }
  }
  if (call.thread == 0) {
    activations.source = source;
    call.team->restart();
  }
  call.team->barrier(call.threads);

  if (direct) {
    const size_t panel_bytes = packed_panel_bytes(s.layout, s.k);
    const int64_t panels = (s.rows + kPanelRows - 1) / kPanelRows;
    // Parts long enough to be streamed from memory, short enough that nobody waits long for the last one.
    const int64_t part = call.threads == 1 ? panels : 1 + panels / (8 * call.threads);
    for (int64_t first; (first = call.team->take() * part) < panels;) {
      for (int64_t p = first; p < std::min<int64_t>(first + part, panels); ++p) {
        const int rows = static_cast<int>(std::min<int64_t>(kPanelRows, s.rows - p * kPanelRows));
        for (int64_t t = 0; t < tiles; ++t) {
          kernels.direct_panel(s.layout, weights + static_cast<size_t>(p) * panel_bytes, tile_at(t), s.k,
                               y + static_cast<size_t>(t * width) * s.y_stride + p * kPanelRows, s.y_stride, rows);
        }
      }
    }
    return;
  }

  std::byte* expanded = call.scratch + align_up(kernels.expanded_bytes(s.layout, s.k)) * static_cast<size_t>(call.thread);
  const size_t unit_bytes = packed_panel_bytes(s.layout, s.k) * (kUnitRows / kPanelRows);
  const int64_t units = (s.rows + kUnitRows - 1) / kUnitRows;
  for (int64_t u; (u = call.team->take()) < units;) {
    const int rows = static_cast<int>(std::min<int64_t>(kUnitRows, s.rows - u * kUnitRows));
    kernels.expand(s.layout, weights + static_cast<size_t>(u) * unit_bytes, s.k, expanded);
    for (int64_t t = 0; t < tiles; ++t) {
      kernels.expanded_tile(s.layout, expanded, tile_at(t), s.k, y + static_cast<size_t>(t * width) * s.y_stride + u * kUnitRows,
                            s.y_stride, rows);
    }
  }
}

}  // namespace pocketfleet::kernels
