// RMSNorm of single rows.

#pragma once

#include <cmath>
#include <cstdint>

#include "vectors.h"

namespace nanoserve {

// out = x / sqrt(mean(x^2) + eps) * weight, over `size` features; out may be x. All three have room
// for whole vectors, and x and weight are zero behind the last feature, which adds nothing to the
// sum.
inline void rms_norm(const float* x, const float* weight, float* out, int64_t size, float eps) {
  Vec squares{};
  for (int64_t i = 0; i < size; i += kLanes) squares += load(x + i) * load(x + i);
  const float mean = sum_of(squares) / static_cast<float>(size);
  const Vec scale = broadcast(1.0f / std::sqrt(mean + eps));
  for (int64_t i = 0; i < size; i += kLanes) store(out + i, load(x + i) * scale * load(weight + i));
}

}  // namespace nanoserve
