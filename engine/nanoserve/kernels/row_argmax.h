// The highest of a row, and where it first stands.

#pragma once

#include <cstdint>
#include <limits>

#include "vectors.h"

namespace nanoserve {

struct Highest {
  float value;  // NaN if any of the row is
  int64_t index;  // the lowest one in a tie
};

inline Highest row_argmax(const float* row, int64_t width) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  Vec best = broadcast(kNone);
  IntVec where{}, here{};
  IntVec unordered{};  // all ones in a lane that has seen a NaN
  for (int lane = 0; lane < kLanes; ++lane) here[lane] = lane;
  const int64_t whole = width / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vec value = load(row + i);
    const IntVec higher = value > best;  // strictly: the first of equals stays
    best = higher ? value : best;
    where = higher ? here : where;
    unordered |= value != value;
    here += kLanes;
  }

  Highest highest{kNone, 0};
  const auto consider = [&](float value, int64_t index) {
    if (value > highest.value || (value == highest.value && index < highest.index)) {
      highest = {value, index};
    }
  };
  bool nan = false;
  for (int lane = 0; lane < kLanes && whole > 0; ++lane) {
    consider(best[lane], where[lane]);
    nan |= unordered[lane] != 0;
  }
  for (int64_t i = whole; i < width; ++i) {
    consider(row[i], i);
    nan |= row[i] != row[i];
  }
  if (nan) highest.value = std::numeric_limits<float>::quiet_NaN();
  return highest;
}

}  // namespace nanoserve
