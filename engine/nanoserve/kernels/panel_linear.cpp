// With one tile of rows a product is one read of the weight, in the order in which it lies in
// memory, which the processor's own prefetching handles best. With more it is arithmetic: a panel
// stays in the second-level cache while one tile after another goes over it, and meanwhile the
// next panel is fetched, a share of it by each tile, so that memory and arithmetic overlap.

#include "panel_linear.h"

#include <algorithm>

namespace nanoserve {
namespace {

// Steps over k between two bursts of prefetches.
constexpr int64_t kBurst = 8;
constexpr int64_t kLine = 16;  // floats in a cache line

// A stretch of memory to bring into the second-level cache, bit by bit.
struct Ahead {
  const float* next;
  const float* end;

  void fetch(int64_t lines) {
    for (int64_t line = 0; line < lines && next < end; ++line, next += kLine) {
      __builtin_prefetch(next, 0, 2);
    }
  }
};

template <int kRows>
void store_tile(const Tile<kRows, kTileVectors>& tile, Rows y, int64_t first_row, int64_t column,
                Epilogue epilogue) {
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kTileVectors; ++v) {
      float* place = y.row(first_row + r) + column + v * kLanes;
      const Vec product = tile.sums[r][v];
      switch (epilogue) {
        case Epilogue::kStore: store(place, product); break;
        case Epilogue::kAdd: store(place, load(place) + product); break;
        case Epilogue::kSiluTimes: {
          const Vec gate = load(place);
          store(place, gate / (1.0f + exp_of(-gate)) * product);
          break;
        }
      }
    }
  }
}

struct TileOfPanel {
  const float* panel;
  int64_t inputs;
  Rows x, y;
  int64_t first_row, column;
  Epilogue epilogue;
  Ahead& ahead;
  int64_t lines_per_burst;

  // Out of line, so that each number of rows gets all the registers.
  template <int kRows>
  [[gnu::noinline]] void run() const {
    Tile<kRows, kTileVectors> tile{};
    const float* rows = x.row(first_row);
    int64_t k = 0;
    for (; k + kBurst <= inputs; k += kBurst) {
      ahead.fetch(lines_per_burst);
      accumulate(tile, rows + k, x.stride, panel + k * kPanelWidth, kPanelWidth, kBurst);
    }
    accumulate(tile, rows + k, x.stride, panel + k * kPanelWidth, kPanelWidth, inputs - k);
    store_tile(tile, y, first_row, column, epilogue);
  }
};

}  // namespace

void multiply(const Matrix& weight, Rows x, Rows y, int64_t rows, int64_t begin, int64_t end,
              Epilogue epilogue) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const int64_t panel_size = weight.inputs * kPanelWidth;
  constexpr int64_t kBurstLines = kBurst * kPanelWidth / kLine;
  for (int64_t index = begin; index < end; ++index) {
    const float* panel = weight.panel(index);
    const bool fetch_next = tiles > 1 && index + 1 < end;
    Ahead ahead{panel + panel_size, panel + (fetch_next ? 2 : 1) * panel_size};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of nearly the same height: 9 rows are 5 and 4, not 8 and 1.
      const int64_t first = rows * tile / tiles, last = rows * (tile + 1) / tiles;
      with_constant_rows(last - first,
                         TileOfPanel{panel, weight.inputs, x, y, first, index * kPanelWidth,
                                     epilogue, ahead, (kBurstLines + tiles - 1) / tiles});
    }
  }
}

}  // namespace nanoserve
