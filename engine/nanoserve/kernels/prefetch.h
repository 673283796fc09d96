// Bringing memory into the second-level cache before it is needed.

#pragma once

#include <algorithm>
#include <cstdint>

namespace nanoserve {

constexpr int64_t kLineFloats = 16;  // of a cache line

// A stretch of memory, such as the panel that a thread reads next; empty for nothing.
struct Stretch {
  const float* data = nullptr;
  int64_t size = 0;  // floats

  int64_t lines() const { return (size + kLineFloats - 1) / kLineFloats; }

  // Asks for the first so many lines, and leaves the others.
  void fetch(int64_t count) {
    const int64_t now = std::min(size, count * kLineFloats);
    for (int64_t i = 0; i < now; i += kLineFloats) __builtin_prefetch(data + i, 0, 2);
    data += now;
    size -= now;
  }
};

}  // namespace nanoserve
