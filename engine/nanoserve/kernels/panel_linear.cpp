// With one tile of rows a product is one read of the weight, in the order in which it lies in
// memory, which the processor's own prefetching handles best. With more it is arithmetic: a panel
// stays in the second-level cache while one tile after another goes over it, and meanwhile the
// next panel, of this weight or of the one after it, is fetched, a share of it by each tile, so that
// memory and arithmetic overlap.

#include "panel_linear.h"

#include <algorithm>

namespace nanoserve {
namespace {

// Steps over k between two bursts of prefetches.
constexpr int64_t kBurst = 8;

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
  Stretch& ahead;
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
              Epilogue epilogue, Stretch next) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const int64_t bursts = std::max<int64_t>(1, weight.inputs / kBurst * tiles);
  for (int64_t index = begin; index < end; ++index) {
    Stretch ahead = index + 1 < end ? weight.stretch(index + 1) : next;
    if (tiles == 1) ahead = {};
    const int64_t lines_per_burst = (ahead.lines() + bursts - 1) / bursts;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of nearly the same height: 9 rows are 5 and 4, not 8 and 1.
      const int64_t first = rows * tile / tiles, last = rows * (tile + 1) / tiles;
      with_constant_rows(last - first,
                         TileOfPanel{weight.panel(index), weight.inputs, x, y, first,
                                     index * kPanelWidth, epilogue, ahead, lines_per_burst});
    }
  }
}

}  // namespace nanoserve
