// One tile of rows is one read of the weight, in the order in which it lies in memory: the
// processor's own prefetching keeps memory as busy as it can be, and asking for lines by hand only
// takes its place. With more tiles a panel comes back from the second-level cache for each but the
// first, and memory would lie idle meanwhile. So while a panel is computed with, by one tile after
// another, the next one, of this weight or of the one after it, is fetched into the second-level
// cache, a share of it by each tile; and into the first-level cache come the panel's own rows, a few
// of them ahead.

#include "panel_linear.h"

#include <algorithm>

namespace nanoserve {
namespace {

// Steps over k between two bursts of prefetches into the second-level cache.
constexpr int64_t kBurst = 4;
// Steps over k that prefetches into the first-level cache are ahead.
constexpr int64_t kReach = 16;

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
  const float* following;  // what comes after the panel, which may be the same; null for one tile

  // Out of line, so that each number of rows gets all the registers.
  template <int kRows>
  [[gnu::noinline]] void run() const {
    Tile<kRows, kTileVectors> tile{};
    if (following == nullptr) {
      accumulate(tile, x.row(first_row), x.stride, panel, kPanelWidth, inputs, FetchNothing{});
    } else {
      const int64_t whole = inputs / kBurst * kBurst;
      for (int64_t k = 0; k < whole; k += kBurst) {
        ahead.fetch(lines_per_burst);
        const int64_t later = k + kReach;
        const float* arriving = later < inputs ? panel + later * kPanelWidth
                                               : following + (later - inputs) * kPanelWidth;
        accumulate(tile, x.row(first_row) + k, x.stride, panel + k * kPanelWidth, kPanelWidth,
                   kBurst, FetchPieces<kPanelWidth, 3>{arriving});
      }
      accumulate(tile, x.row(first_row) + whole, x.stride, panel + whole * kPanelWidth, kPanelWidth,
                 inputs - whole, FetchNothing{});
    }
    store_tile(tile, y, first_row, column, epilogue);
  }
};

}  // namespace

void multiply(const Matrix& weight, Rows x, Rows y, int64_t rows, int64_t begin, int64_t end,
              Epilogue epilogue, Stretch next) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const int64_t bursts = std::max<int64_t>(1, weight.inputs / kBurst * tiles);
  const bool alone = tiles == 1;
  for (int64_t index = begin; index < end; ++index) {
    const float* panel = weight.panel(index);
    Stretch ahead = alone ? Stretch{} : index + 1 < end ? weight.stretch(index + 1) : next;
    const float* after = ahead.data != nullptr ? ahead.data : panel;
    const int64_t lines_per_burst = (ahead.lines() + bursts - 1) / bursts;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of nearly the same height: 9 rows are 5 and 4, not 8 and 1.
      const int64_t first = rows * tile / tiles, last = rows * (tile + 1) / tiles;
      const float* following = alone ? nullptr : tile + 1 < tiles ? panel : after;
      with_constant_rows(last - first,
                         TileOfPanel{panel, weight.inputs, x, y, first, index * kPanelWidth,
                                     epilogue, ahead, lines_per_burst, following});
    }
  }
}

}  // namespace nanoserve
