// The one inner loop: a few rows times a few registers of columns.
//
// Everything that multiplies goes through it: linears, where the columns are outputs and the sum
// runs over inputs; attention's scores, where the columns are keys and the sum runs over features;
// and attention's result, where the columns are features and the sum runs over keys.
//
// Each sum is one chain of fused multiply-adds over k = 0, 1, 2, ... in this order, whatever the
// number of rows and columns. So a row's result has the same bits alone and in company.

#pragma once

#include <cstdint>

#include "vectors.h"

namespace nanoserve {

// As many rows and columns as fit into registers: rows * vectors sums, one vector of each column,
// one broadcast. 8 * 3 + 3 + 1 of 32 registers, or 4 * 3 + 3 + 1 of 16.
constexpr int kTileRows = kLanes == 16 ? 8 : 4;
constexpr int kTileVectors = 3;

template <int kRows, int kVectors>
struct Tile {
  Vec sums[kRows][kVectors];
};

// sums[r][column] += sum over k < depth of x[r * x_stride + k] * panel[k * panel_stride + column].
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void accumulate(Tile<kRows, kVectors>& tile, const float* x,
                                              int64_t x_stride, const float* panel,
                                              int64_t panel_stride, int64_t depth) {
  for (int64_t k = 0; k < depth; ++k) {
    Vec columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = load(panel + k * panel_stride + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec factor = broadcast(x[r * x_stride + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) tile.sums[r][v] += columns[v] * factor;
    }
  }
}

// Calls body.run<rows>(), with the number of rows as a constant, 1 to kTileRows.
template <class Body>
[[gnu::always_inline]] inline void with_constant_rows(int64_t rows, const Body& body) {
  switch (rows) {
    case 1: return body.template run<1>();
    case 2: return body.template run<2>();
    case 3: return body.template run<3>();
    case 4: return body.template run<4>();
    default: break;
  }
  if constexpr (kTileRows == 8) {
    switch (rows) {
      case 5: return body.template run<5>();
      case 6: return body.template run<6>();
      case 7: return body.template run<7>();
      case 8: return body.template run<8>();
      default: break;
    }
  }
}

}  // namespace nanoserve
