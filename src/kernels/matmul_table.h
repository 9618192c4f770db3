// Makes an instruction set's MatmulKernels from its kernels for one layout and one number of columns: Set has kTileColumns,
// kDirectColumns, quantize, and templates expanded_bytes<L>, expand<L>, tile<L, C> and direct<L, C>. Set is a type of one file,
// so that nothing made here is shared between files compiled for different processors.
#pragma once

#include "kernels/matmul.h"

namespace pocketfleet::kernels {

template <class Set>
struct MatmulTable {
  static size_t expanded_bytes(Layout layout, int64_t k) {
    switch (layout) {
      case Layout::kQ4_0:
        return Set::template expanded_bytes<Layout::kQ4_0>(k);
      case Layout::kQ8_0:
        return Set::template expanded_bytes<Layout::kQ8_0>(k);
      case Layout::kQ4_K:
        return Set::template expanded_bytes<Layout::kQ4_K>(k);
      case Layout::kQ5_K:
        return Set::template expanded_bytes<Layout::kQ5_K>(k);
      case Layout::kQ6_K:
        return Set::template expanded_bytes<Layout::kQ6_K>(k);
      case Layout::kNone:
        break;
    }
    return 0;
  }

  static void expand(Layout layout, const std::byte* unit, int64_t k, std::byte* out) {
    switch (layout) {
      case Layout::kQ4_0:
        return Set::template expand<Layout::kQ4_0>(unit, k, out);
      case Layout::kQ8_0:
        return Set::template expand<Layout::kQ8_0>(unit, k, out);
      case Layout::kQ4_K:
        return Set::template expand<Layout::kQ4_K>(unit, k, out);
      case Layout::kQ5_K:
        return Set::template expand<Layout::kQ5_K>(unit, k, out);
      case Layout::kQ6_K:
        return Set::template expand<Layout::kQ6_K>(unit, k, out);
      case Layout::kNone:
        break;
    }
  }

  // The kernels of a tile and of a panel have the same parameters and differ in the most columns that they take.
  struct Tile {
    static constexpr int kColumns = Set::kTileColumns;
    template <Layout L, int C>
    static void run(const std::byte* w, const QuantizedTile& in, int64_t k, float* out, size_t stride, int rows) {
      Set::template tile<L, C>(w, in, k, out, stride, rows);
    }
  };
  struct Direct {
    static constexpr int kColumns = Set::kDirectColumns;
    template <Layout L, int C>
    static void run(const std::byte* w, const QuantizedTile& in, int64_t k, float* out, size_t stride, int rows) {
      Set::template direct<L, C>(w, in, k, out, stride, rows);
    }
  };

  template <class Kernel, Layout L, int C>
  static void for_columns(const std::byte* w, const QuantizedTile& in, int64_t k, float* out, size_t stride, int rows) {
    if constexpr (C > 1) {
      if (in.columns < C) return for_columns<Kernel, L, C - 1>(w, in, k, out, stride, rows);
    }
    Kernel::template run<L, C>(w, in, k, out, stride, rows);
  }

  template <class Kernel>
  static void product(Layout layout, const std::byte* w, const QuantizedTile& in, int64_t k, float* out, size_t stride,
                      int rows) {
    constexpr int kMost = Kernel::kColumns;
    switch (layout) {
      case Layout::kQ4_0:
        return for_columns<Kernel, Layout::kQ4_0, kMost>(w, in, k, out, stride, rows);
      case Layout::kQ8_0:
        return for_columns<Kernel, Layout::kQ8_0, kMost>(w, in, k, out, stride, rows);
      case Layout::kQ4_K:
        return for_columns<Kernel, Layout::kQ4_K, kMost>(w, in, k, out, stride, rows);
      case Layout::kQ5_K:
        return for_columns<Kernel, Layout::kQ5_K, kMost>(w, in, k, out, stride, rows);
      case Layout::kQ6_K:
        return for_columns<Kernel, Layout::kQ6_K, kMost>(w, in, k, out, stride, rows);
      case Layout::kNone:
        break;
    }
  }

  static constexpr MatmulKernels kTable = {Set::kTileColumns, Set::kDirectColumns, expanded_bytes, Set::quantize, expand,
                                           product<Tile>,     product<Direct>};
};

}  // namespace pocketfleet::kernels
