// Rows of floats in somebody's memory.

#pragma once

#include <cstdint>

namespace nanoserve {

struct Rows {
  float* data;
  int64_t stride;  // distance between rows, in floats

  float* row(int64_t index) const { return data + index * stride; }
};

}  // namespace nanoserve
