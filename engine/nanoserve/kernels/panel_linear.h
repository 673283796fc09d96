// y = x W^T with a weight packed in panels.

#pragma once

#include <cstdint>

#include "prefetch.h"
#include "rows.h"
#include "tile.h"

namespace nanoserve {

// Outputs in a panel; Python packs by the same number.
constexpr int64_t kPanelWidth = kTileVectors * kLanes;

// A weight [outputs, inputs], packed as [panels, inputs, kPanelWidth]: the outputs of a panel lie
// side by side for each input, and outputs beyond the last are zero. Whatever is as wide as a
// matrix's outputs has room for whole panels.
struct Matrix {
  const float* panels;
  int64_t outputs;
  int64_t inputs;

  int64_t num_panels() const { return (outputs + kPanelWidth - 1) / kPanelWidth; }
  const float* panel(int64_t index) const { return panels + index * inputs * kPanelWidth; }
  Stretch stretch(int64_t index) const { return {panel(index), inputs * kPanelWidth}; }
};

// What happens to a product when it is stored.
enum class Epilogue {
  kStore,      // y = product
  kAdd,        // y = y + product
  kSiluTimes,  // y = silu(y) * product
};

// Panels [begin, end) of the product of `rows` rows; `y` gets whole panels. `next` is what the
// caller reads after them.
void multiply(const Matrix& weight, Rows x, Rows y, int64_t rows, int64_t begin, int64_t end,
              Epilogue epilogue, Stretch next);

}  // namespace nanoserve
