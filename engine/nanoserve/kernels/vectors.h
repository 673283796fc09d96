// A vector of floats as wide as one register, and the few operations the kernels need.
//
// Written with the compiler's vector types, not with one instruction set's intrinsics: the same
// source is compiled once for each instruction set, and NANOSERVE_LANES says how many floats a
// register holds (16 for AVX-512, 8 for AVX2). `a * b + c` on vectors is one fused
// multiply-add, which -ffp-contract=fast asks for.

#pragma once

#include <cstdint>
#include <limits>

#ifndef NANOSERVE_LANES
#error "NANOSERVE_LANES must be the number of floats in a register"
#endif

namespace nanoserve {

constexpr int kLanes = NANOSERVE_LANES;

typedef float Vec __attribute__((vector_size(4 * NANOSERVE_LANES)));
typedef int32_t IntVec __attribute__((vector_size(4 * NANOSERVE_LANES)));
// The same in memory, where a float's alignment is all that can be promised.
typedef float StoredVec __attribute__((vector_size(4 * NANOSERVE_LANES), aligned(4), may_alias));

inline Vec load(const float* from) { return *reinterpret_cast<const StoredVec*>(from); }

inline void store(float* to, Vec value) { *reinterpret_cast<StoredVec*>(to) = value; }

inline Vec broadcast(float value) { return value - Vec{}; }

// Sum of all lanes, always in the same order.
inline float sum_of(Vec value) {
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += value[lane];
  return sum;
}

inline float max_of(Vec value) {
  float max = value[0];
  for (int lane = 1; lane < kLanes; ++lane) max = value[lane] > max ? value[lane] : max;
  return max;
}

// e^x to about one unit in the last place; exactly 1 at 0, 0 and infinity where e^x is about to
// leave the normal numbers. A NaN compares false with both, and stays one.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, so e^x = 2^n e^r: e^r by its Taylor series, whose first
// term left out is below 1e-8 there, 2^n by writing n into the exponent's bits.
inline Vec exp_of(Vec x) {
  constexpr float kLowest = -87.3f, kHighest = 88.3f;
  const Vec lowest = broadcast(kLowest), highest = broadcast(kHighest);
  const Vec clamped = x > highest ? highest : (x < lowest ? lowest : x);

  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum.
  const Vec shift = broadcast(12582912.0f);
  const Vec shifted = clamped * 1.44269504f + shift;
  const IntVec n = reinterpret_cast<IntVec>(shifted) - reinterpret_cast<IntVec>(shift);
  const Vec whole = shifted - shift;
  const Vec r = (clamped - whole * 0.693145752f) - whole * 1.42860677e-6f;

  Vec series = broadcast(1.0f / 5040);
  series = series * r + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;

  const IntVec power = (n + 127) << 23;
  const Vec result = series * reinterpret_cast<Vec>(power);
  const Vec bounded = x > highest ? broadcast(std::numeric_limits<float>::infinity()) : result;
  return x < lowest ? Vec{} : bounded;
}

}  // namespace nanoserve
