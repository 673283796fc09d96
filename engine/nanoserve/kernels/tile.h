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

#include "prefetch.h"
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
// Before each step over k, `fetch(k)` may ask for memory that is wanted later.
template <int kRows, int kVectors, class Fetch>
[[gnu::always_inline]] inline void accumulate(Tile<kRows, kVectors>& tile, const float* x,
                                              int64_t x_stride, const float* panel,
                                              int64_t panel_stride, int64_t depth,
                                              const Fetch& fetch) {
  // Two places and two distances address eight rows; one place would need a register for each row.
  const float* upper = kRows > 4 ? x + 4 * x_stride : x;
  for (int64_t k = 0; k < depth; ++k) {
    fetch(k);
    Vec columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = load(panel + k * panel_stride + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec factor = broadcast((r < 4 ? x : upper)[r % 4 * x_stride + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) tile.sums[r][v] += columns[v] * factor;
    }
  }
}

struct FetchNothing {
  void operator()(int64_t) const {}
};

// Asks for `kFloats` floats with each step, one such piece after another, into the second-level cache
// (2) or the first (3).
template <int64_t kFloats, int kCacheHint>
struct FetchPieces {
  const float* from;

  [[gnu::always_inline]] void operator()(int64_t k) const {
    for (int64_t i = 0; i < kFloats; i += kLineFloats) {
      __builtin_prefetch(from + k * kFloats + i, 0, kCacheHint);
    }
  }
};

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
