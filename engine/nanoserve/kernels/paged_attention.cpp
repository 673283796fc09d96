// Keys and values are read where they lie, block by block through the table; nothing is gathered.
//
// The context is taken in chunks of whole blocks, from position 0 on, or from the chunk on in which
// the first window begins. Scores of a chunk are computed, masked and exponentiated against the
// highest score so far; when a later chunk has a higher one, what has been summed is scaled down to
// it (the streaming softmax of Milakov and Gimelshein, 2018). The borders of the chunks depend on the
// block size alone, and a chunk of which a token sees nothing leaves its sums at zero, so a token's
// result has the same bits in whatever company it is computed.
//
// Blocks lie anywhere, so the processor cannot tell which one comes next. While a chunk's keys are
// computed with, its values arrive, and while its values are, the keys of the chunk after it, which
// may be the next task's first: line by line, as a burst of them would hold up the computation.

#include "paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tile.h"

namespace nanoserve {
namespace {

constexpr int64_t kChunkTokens = 256;
constexpr float kHidden = -std::numeric_limits<float>::infinity();

int64_t blocks_per_chunk(int64_t block_size) {
  return std::max<int64_t>(1, kChunkTokens / block_size);
}

// Lanes of one query head's scores in a chunk. The odd vector keeps rows off the same cache sets.
int64_t scores_stride(int64_t block_size, int64_t key_lanes) {
  return blocks_per_chunk(block_size) * key_lanes + kLanes;
}

int64_t heads_per_task(const Heads& heads) {
  return std::min<int64_t>(heads.group(), kTileRows);
}

int64_t tasks_per_kv_head(const Heads& heads) {
  return (heads.group() + heads_per_task(heads) - 1) / heads_per_task(heads);
}

int64_t kv_head_of(const Heads& heads, int64_t task) { return task / tasks_per_kv_head(heads); }

void rotate(float* head, const float* cosines, const float* sines, int64_t dim) {
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float first = head[i], second = head[i + half];
    head[i] = first * cosines[i] - second * sines[i];
    head[i + half] = second * cosines[i + half] + first * sines[i + half];
  }
}

// The positions that a task reads, in chunks of whole blocks.
struct Context {
  const CacheLayer& cache;
  const Tokens& tokens;

  int64_t length() const { return tokens.position + tokens.count; }
  int64_t chunk_blocks() const { return blocks_per_chunk(cache.block_size); }

  // The block with which the chunk begins where the first window does.
  int64_t first_block() const {
    const int64_t before_window = std::max<int64_t>(0, tokens.position + 1 - cache.window);
    return before_window / (chunk_blocks() * cache.block_size) * chunk_blocks();
  }
};

// A chunk whose keys are wanted next; of no blocks, none.
struct Upcoming {
  const int32_t* blocks;
  int64_t count;
  int64_t kv_head;
};

Upcoming upcoming(const Context& context, int64_t block, int64_t kv_head) {
  const int64_t left = (context.length() - 1) / context.cache.block_size + 1 - block;
  return {context.tokens.table + block, std::min(left, context.chunk_blocks()), kv_head};
}

// What a task begins with.
Upcoming first_chunk(const CacheLayer& cache, const Task& task) {
  if (!task) return {};
  const Context context{cache, task.tokens};
  return upcoming(context, context.first_block(), kv_head_of(cache.heads, task.index));
}

// One task's chunk of the context.
struct Chunk {
  const CacheLayer& cache;
  const int32_t* blocks;   // of this chunk
  int64_t length;          // positions that the last token sees of it, at least 1
  const int64_t* visible;  // [rows]: positions that each row sees, which may be none
  int64_t kv_head;
  const float* queries;  // [rows, dim], already divided by sqrt(dim)
  float* scores;         // [rows, stride]
  int64_t stride;
  float* sums;  // [rows, dim]: what has been seen so far, times its weights
  Upcoming next;

  int64_t length_in(int64_t block) const {
    return std::min(cache.block_size, length - block * cache.block_size);
  }
  int64_t num_blocks() const { return (length - 1) / cache.block_size + 1; }

  template <int kRows>
  void score() const {
    const int64_t dim = cache.heads.dim;
    for (int64_t block = 0; block < num_blocks(); ++block) {
      const float* keys = cache.keys_of(blocks[block], kv_head);
      const float* values = cache.values_of(blocks[block], kv_head);
      for (int64_t lane = 0; lane < cache.key_lanes; lane += kLanes) {
        Tile<kRows, 1> tile{};
        // Steps over features, of which each fetches a vector of the values.
        const int64_t wanted = (length_in(block) - lane) * dim / kLanes;
        const int64_t fetching = std::clamp<int64_t>(wanted, 0, dim);
        accumulate(tile, queries, dim, keys + lane, cache.key_lanes, fetching,
                   FetchPieces<kLanes, 2>{values + lane * dim});
        accumulate(tile, queries + fetching, dim, keys + lane + fetching * cache.key_lanes,
                   cache.key_lanes, dim - fetching, FetchNothing{});
        for (int r = 0; r < kRows; ++r) {
          float* place = scores + r * stride + block * cache.key_lanes + lane;
          store(place, tile.sums[r][0]);
          const int64_t seen = std::min(visible[r] - block * cache.block_size, length_in(block));
          for (int64_t key = std::max(seen - lane, int64_t{0}); key < kLanes; ++key) {
            place[key] = kHidden;
          }
        }
      }
    }
  }

  // Hides the chunk's first `count` positions from a row: they lie before its window.
  void hide_first(int64_t row, int64_t count) const {
    const int64_t hidden = std::min(count, length);
    for (int64_t place = 0; place < hidden; ++place) {
      const int64_t block = place / cache.block_size;
      scores[row * stride + block * cache.key_lanes + place % cache.block_size] = kHidden;
    }
  }

  template <int kRows, int kVectors>
  void sum_values_of(int64_t feature) const {
    const int64_t dim = cache.heads.dim;
    Tile<kRows, kVectors> tile;
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        tile.sums[r][v] = load(sums + r * dim + feature + v * kLanes);
      }
    }
    for (int64_t block = 0; block < num_blocks(); ++block) {
      const float* weights = scores + block * cache.key_lanes;
      const float* values = cache.values_of(blocks[block], kv_head) + feature;
      const int64_t length = length_in(block);
      if (block < next.count) {
        const float* keys = cache.keys_of(next.blocks[block], next.kv_head);
        accumulate(tile, weights, stride, values, dim, length,
                   FetchPieces<kVectors * kLanes, 2>{keys + feature * cache.key_lanes});
      } else {
        accumulate(tile, weights, stride, values, dim, length, FetchNothing{});
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        store(sums + r * dim + feature + v * kLanes, tile.sums[r][v]);
      }
    }
  }

  template <int kRows>
  void sum_values() const {
    int64_t feature = 0;
    for (; feature + 2 * kLanes <= cache.heads.dim; feature += 2 * kLanes) {
      sum_values_of<kRows, 2>(feature);
    }
    if (feature < cache.heads.dim) sum_values_of<kRows, 1>(feature);
  }

  // Turns one row's scores into weights relative to the highest score so far.
  void weigh(int64_t row, float& highest, float& total) const {
    float* mine = scores + row * stride;
    const int64_t lanes = num_blocks() * cache.key_lanes;
    Vec peaks = load(mine);
    for (int64_t i = kLanes; i < lanes; i += kLanes) {
      const Vec other = load(mine + i);
      peaks = other > peaks ? other : peaks;
    }
    const float peak = std::max(highest, max_of(peaks));
    if (peak == kHidden) {  // the row has not seen anything yet, or what is no number
      for (int64_t i = 0; i < lanes; ++i) mine[i] = std::isnan(mine[i]) ? mine[i] : 0.0f;
      return;
    }
    const float shrink = exp_of(broadcast(highest - peak))[0];
    Vec added{};
    for (int64_t i = 0; i < lanes; i += kLanes) {
      const Vec weight = exp_of(load(mine + i) - peak);
      store(mine + i, weight);
      added += weight;
    }
    float* sum = sums + row * cache.heads.dim;
    for (int64_t i = 0; i < cache.heads.dim; i += kLanes) store(sum + i, load(sum + i) * shrink);
    total = total * shrink + sum_of(added);
    highest = peak;
  }
};

struct Score {
  const Chunk& chunk;
  template <int kRows>
  void run() const { chunk.score<kRows>(); }
};

struct SumValues {
  const Chunk& chunk;
  template <int kRows>
  void run() const { chunk.sum_values<kRows>(); }
};

}  // namespace

int64_t attention_scratch(const Heads& heads, int64_t block_size, int64_t key_lanes) {
  return kTileRows * (2 * heads.dim + scores_stride(block_size, key_lanes));
}

int64_t tasks_per_token(const Heads& heads) {
  return heads.kv * tasks_per_kv_head(heads);
}

int64_t tokens_per_task(const Heads& heads) { return kTileRows / heads_per_task(heads); }

void rotate_and_store(const CacheLayer& cache, float* qkv, const float* cosines,
                      const float* sines, const int32_t* table, int64_t position) {
  const Heads& heads = cache.heads;
  for (int64_t head = 0; head < heads.queries + heads.kv; ++head) {
    rotate(qkv + head * heads.dim, cosines, sines, heads.dim);
  }
  const int64_t block = table[position / cache.block_size];
  const int64_t place = position % cache.block_size;
  for (int64_t head = 0; head < heads.kv; ++head) {
    const float* key = qkv + (heads.queries + head) * heads.dim;
    const float* value = key + heads.kv * heads.dim;
    float* keys = cache.keys_of(block, head) + place;
    float* values = cache.values_of(block, head) + place * heads.dim;
    for (int64_t i = 0; i < heads.dim; ++i) {
      keys[i * cache.key_lanes] = key[i];
      values[i] = value[i];
    }
  }
}

void attend(const CacheLayer& cache, const Task& task, const Task& next, Rows qkv, Rows seen,
            float* scratch) {
  const Heads& heads = cache.heads;
  const Tokens& tokens = task.tokens;
  const int64_t dim = heads.dim;
  const int64_t kv_head = kv_head_of(heads, task.index);
  const int64_t first_head = task.index % tasks_per_kv_head(heads) * heads_per_task(heads);
  const int64_t count = std::min(heads_per_task(heads), heads.group() - first_head);
  const int64_t offset = (kv_head * heads.group() + first_head) * dim;
  const int64_t rows = tokens.count * count;

  const int64_t stride = scores_stride(cache.block_size, cache.key_lanes);
  float* queries = scratch;
  float* sums = queries + kTileRows * dim;
  float* scores = sums + kTileRows * dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for (int64_t token = 0; token < tokens.count; ++token) {
    const float* query = qkv.row(tokens.first + token) + offset;
    for (int64_t i = 0; i < count * dim; ++i) queries[token * count * dim + i] = query[i] * scale;
  }
  std::fill_n(sums, rows * dim, 0.0f);

  float highest[kTileRows], total[kTileRows];
  std::fill_n(highest, kTileRows, kHidden);
  std::fill_n(total, kTileRows, 0.0f);
  const Context context{cache, tokens};
  const int64_t chunk_tokens = context.chunk_blocks() * cache.block_size;
  for (int64_t block = context.first_block(); block * cache.block_size < context.length();
       block += context.chunk_blocks()) {
    const int64_t start = block * cache.block_size;
    const int64_t length = std::min(context.length() - start, chunk_tokens);
    int64_t visible[kTileRows];
    for (int64_t row = 0; row < rows; ++row) {
      visible[row] = tokens.position + row / count + 1 - start;
    }
    const int64_t end = block + context.chunk_blocks();
    const bool last = end * cache.block_size >= context.length();
    const Chunk chunk{cache,
                      tokens.table + block,
                      length,
                      visible,
                      kv_head,
                      queries,
                      scores,
                      stride,
                      sums,
                      last ? first_chunk(cache, next) : upcoming(context, end, kv_head)};
    with_constant_rows(rows, Score{chunk});
    if (context.length() - cache.window > start) {
      for (int64_t row = 0; row < rows; ++row) chunk.hide_first(row, visible[row] - cache.window);
    }
    for (int64_t row = 0; row < rows; ++row) chunk.weigh(row, highest[row], total[row]);
    with_constant_rows(rows, SumValues{chunk});
  }
  for (int64_t row = 0; row < rows; ++row) {
    float* result = seen.row(tokens.first + row / count) + offset + row % count * dim;
    for (int64_t i = 0; i < dim; ++i) result[i] = sums[row * dim + i] / total[row];
  }
}

}  // namespace nanoserve
