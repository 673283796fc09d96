// The C ABI: a model, a step, and the functions that Python calls.
//
// `library.py` mirrors these structures field by field. All memory is the caller's, and a step
// allocates none.

#pragma once

#include <cstdint>

#include "panel_linear.h"

namespace nanoserve {

struct Layer {
  int64_t window;  // how many positions a token sees, itself the last of them
  const float* input_norm;  // norms are as wide as `padded_width` says, zero behind the last
  Matrix qkv;
  const float* qkv_bias;    // as wide as qkv's outputs; null for none
  const float* query_norm;  // [head_dim], for each head of q; null for none
  const float* key_norm;
  Matrix output;
  const float* post_attention_norm;
  Matrix gate;
  Matrix up;
  Matrix down;
};

struct Model {
  int64_t num_layers;
  int64_t hidden;
  int64_t intermediate;
  int64_t vocab;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  float norm_eps;
  const Layer* layers;
  Matrix embedding;  // the same panels as the head's if they are tied
  Matrix head;
  const float* norm;
  const float* cosines;  // [positions, head_dim]
  const float* sines;
  int64_t positions;
  float* keys;  // [layers, blocks, kv_heads, head_dim, key_lanes]
  float* values;  // [layers, blocks, kv_heads, block_size, head_dim]
  int64_t num_blocks;
  int64_t block_size;
};

// The tokens of a sequence lie side by side, at ascending positions without a gap.
struct Step {
  int64_t tokens;
  const int32_t* token_ids;  // [tokens]
  const int32_t* positions;  // [tokens]: place of each token in its sequence
  const int32_t* sequences;  // [tokens]: which sequence it belongs to
  int64_t num_sequences;
  const int32_t* tables;  // [num_sequences, table_stride]: each sequence's blocks
  int64_t table_stride;
  int64_t num_wanted;
  const int32_t* wanted;  // [num_wanted]: tokens whose successor's logits are asked for
  float* logits;  // [num_wanted, logits_stride]
  int64_t logits_stride;  // at least padded_width(vocab)
  float* workspace;  // as many floats as nanoserve_workspace says
  int32_t num_threads;
};

// Room for `width` features in whole panels.
constexpr int64_t padded_width(int64_t width) {
  return (width + kPanelWidth - 1) / kPanelWidth * kPanelWidth;
}

}  // namespace nanoserve

#pragma GCC visibility push(default)
extern "C" {

// sha256 of the sources that this was compiled from.
const char* nanoserve_sources();

// An address inside the OpenMP runtime that these kernels run on.
const void* nanoserve_openmp();

int32_t nanoserve_lanes();
int64_t nanoserve_panel_width();

// Floats of workspace for a step of up to `tokens` tokens on `threads` threads.
int64_t nanoserve_workspace(const nanoserve::Model* model, int64_t tokens, int32_t threads);

// Runs a step. Returns 0, or which of the step's indices lies outside the model: 1 a token id, 2 a
// position, 3 a sequence, 4 a block, 5 a wanted token; nothing has been computed then.
int32_t nanoserve_step(const nanoserve::Model* model, const nanoserve::Step* step);

// y = x W^T, y + x W^T, or silu(y) * (x W^T) for epilogue 0, 1, 2: a linear by itself.
void nanoserve_linear(const nanoserve::Matrix* weight, const float* x, int64_t x_stride, float* y,
                      int64_t y_stride, int64_t rows, int32_t epilogue, int32_t num_threads);

// The lowest index where the highest value of each row of `width` stands; -1 where that is not
// finite, or the row holds a NaN.
void nanoserve_argmax(const float* rows, int64_t stride, int64_t num_rows, int64_t width,
                      int64_t* indices, int32_t num_threads);

}  // extern "C"
#pragma GCC visibility pop
