// Attention over a paged cache.

#pragma once

#include <cstdint>

#include "rows.h"
#include "vectors.h"

namespace nanoserve {

// How the heads of a model lie in the fused product of q, k and v: all query heads, then the key
// heads, then the value heads. Query heads [i * group, (i + 1) * group) share KV head i.
struct Heads {
  int64_t queries;
  int64_t kv;
  int64_t dim;  // a multiple of kLanes

  int64_t group() const { return queries / kv; }
};

// One layer of the cache.
//
// A block's keys lie as [kv heads, dim, key_lanes]: the keys of a block side by side for each
// feature, so that scores are the same product as a linear's. key_lanes is block_size rounded up
// to whole vectors; what the lanes behind block_size hold is computed with, and masked. Its values
// lie as [kv heads, block_size, dim].
struct CacheLayer {
  float* keys;
  float* values;
  int64_t block_size;
  int64_t key_lanes;
  int64_t window;  // how many positions a token sees, itself the last of them
  Heads heads;

  float* keys_of(int64_t block, int64_t head) const {
    return keys + (block * heads.kv + head) * heads.dim * key_lanes;
  }
  float* values_of(int64_t block, int64_t head) const {
    return values + (block * heads.kv + head) * block_size * heads.dim;
  }
};

// Floats of scratch memory that one call of `attend` needs.
int64_t attention_scratch(const Heads& heads, int64_t block_size, int64_t key_lanes);

// Rotates the query and key heads of one token's qkv in place, by that token's rows of the rotary
// tables, and stores its keys and values at `position` of the sequence whose blocks `table` lists.
void rotate_and_store(const CacheLayer& cache, float* qkv, const float* cosines,
                      const float* sines, const int32_t* table, int64_t position);

// Neighbouring tokens of one sequence.
struct Tokens {
  int64_t first;     // row of the first one
  int64_t count;     // at most tokens_per_task
  int64_t position;  // of the first one
  const int32_t* table;
};

// The query heads that share a KV head, or some of them if they are many, of one token, or of several
// if the heads are few. They fill the rows of a tile, as far as they can.
struct Task {
  Tokens tokens;  // none in no task
  int64_t index;  // among the tokens' tasks

  explicit operator bool() const { return tokens.count > 0; }
};

int64_t tasks_per_token(const Heads& heads);
int64_t tokens_per_task(const Heads& heads);

// softmax(q k^T / sqrt(dim)) v, for each token of the task over the positions of its window up to its
// own, for the query heads of the task. `qkv` and `seen` are all tokens' rows. Nothing behind the
// last position is read. `next` is what the thread computes after this, and may be no task.
void attend(const CacheLayer& cache, const Task& task, const Task& next, Rows qkv, Rows seen,
            float* scratch);

}  // namespace nanoserve
