// A whole step of a model, all layers, in one parallel region.
//
// Every thread runs the same sequence of phases and does its share of each: panels of a linear,
// rows of a norm, tasks of attention. A barrier ends a phase, because the next one reads what the
// others wrote. The tokens of a step, whatever sequence they belong to and whether they are a
// prompt's or a decode's, are treated alike: each of them attends to its sequence's cache up to its
// own position, so a prompt may come in any number of pieces.

#include "step.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

#include "paged_attention.h"
#include "row_argmax.h"
#include "row_norm.h"

namespace nanoserve {
namespace {

constexpr int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Distance between rows: room for whole panels, and a cache line more, so that the rows of a tile
// do not fall into the same cache sets.
constexpr int64_t row_stride(int64_t width) { return padded_width(width) + 16; }

Heads heads_of(const Model& model) {
  return {model.num_heads, model.num_kv_heads, model.head_dim};
}

int64_t qkv_width(const Model& model) {
  return (model.num_heads + 2 * model.num_kv_heads) * model.head_dim;
}

CacheLayer cache_layer(const Model& model, int64_t layer) {
  const int64_t key_lanes = round_up(model.block_size, kLanes);
  const int64_t heads = layer * model.num_blocks * model.num_kv_heads * model.head_dim;
  return {model.keys + heads * key_lanes, model.values + heads * model.block_size,
          model.block_size, key_lanes, model.layers[layer].window, heads_of(model)};
}

// The workspace, cut up.
struct Buffers {
  Rows hidden;  // the residual stream
  Rows normed;
  Rows qkv;
  Rows seen;  // what attention returns
  Rows wide;  // between gate, up and down
  float* scratch;
  int64_t scratch_per_thread;
  int64_t size;

  Buffers(const Model& model, float* memory, int64_t tokens, int64_t threads) : size(0) {
    const auto take = [&](int64_t count) {
      float* place = memory == nullptr ? nullptr : memory + size;
      size += round_up(count, 16);
      return place;
    };
    const auto rows = [&](int64_t width) {
      const int64_t stride = row_stride(width);
      return Rows{take(tokens * stride), stride};
    };
    hidden = rows(model.hidden);
    normed = rows(model.hidden);
    qkv = rows(qkv_width(model));
    seen = rows(model.num_heads * model.head_dim);
    wide = rows(model.intermediate);
    scratch_per_thread =
        round_up(attention_scratch(heads_of(model), model.block_size,
                                   round_up(model.block_size, kLanes)), 16);
    scratch = take(threads * scratch_per_thread);
  }
};

// One thread's part in a step.
class Worker {
 public:
  Worker(const Model& model, const Step& step, const Buffers& buffers, int64_t rank, int64_t team)
      : model_(model), step_(step), buffers_(buffers), rank_(rank), team_(team) {}

  void run() const {
    embed();
    for (int64_t index = 0; index < model_.num_layers; ++index) {
      const Layer& layer = model_.layers[index];
      const CacheLayer cache = cache_layer(model_, index);
      norm_all(layer.input_norm);
      linear(layer.qkv, buffers_.normed, buffers_.qkv, step_.tokens, Epilogue::kStore,
             layer.output);
      finish_heads(layer, cache);
      attend_all(cache);
      linear(layer.output, buffers_.seen, buffers_.hidden, step_.tokens, Epilogue::kAdd,
             layer.gate);
      norm_all(layer.post_attention_norm);
      gate_and_up(layer);
      const bool last = index + 1 == model_.num_layers;
      linear(layer.down, buffers_.wide, buffers_.hidden, step_.tokens, Epilogue::kAdd,
             last ? model_.head : model_.layers[index + 1].qkv);
    }
    norm_wanted();
    linear(model_.head, buffers_.normed, {step_.logits, step_.logits_stride}, step_.num_wanted,
           Epilogue::kStore, {});
  }

 private:
  struct Share {
    int64_t begin, end;
  };

  // This thread's part of `count` things, which lie side by side.
  Share share(int64_t count) const {
    return {count * rank_ / team_, count * (rank_ + 1) / team_};
  }

  static void wait_for_others() {
#pragma omp barrier
  }

  const int32_t* table(int64_t token) const {
    return step_.tables + step_.sequences[token] * step_.table_stride;
  }

  // A token's embedding is a column of a panel.
  void embed() const {
    const Share mine = share(step_.tokens);
    for (int64_t token = mine.begin; token < mine.end; ++token) {
      const int64_t id = step_.token_ids[token];
      const float* column = model_.embedding.panel(id / kPanelWidth) + id % kPanelWidth;
      float* hidden = buffers_.hidden.row(token);
      for (int64_t i = 0; i < model_.hidden; ++i) hidden[i] = column[i * kPanelWidth];
      std::fill(hidden + model_.hidden, hidden + buffers_.hidden.stride, 0.0f);
    }
    wait_for_others();
  }

  void norm_all(const float* weight) const {
    const Share mine = share(step_.tokens);
    for (int64_t token = mine.begin; token < mine.end; ++token) {
      norm(token, weight, token);
    }
    wait_for_others();
  }

  void norm_wanted() const {
    const Share mine = share(step_.num_wanted);
    for (int64_t row = mine.begin; row < mine.end; ++row) {
      norm(step_.wanted[row], model_.norm, row);
    }
    wait_for_others();
  }

  void norm(int64_t from, const float* weight, int64_t to) const {
    rms_norm(buffers_.hidden.row(from), weight, buffers_.normed.row(to), model_.hidden,
             model_.norm_eps);
  }

  // The first panel that this thread reads of a weight; nothing if it reads none.
  Stretch first_panel(const Matrix& weight) const {
    const Share mine = share(weight.num_panels());
    return mine.begin < mine.end ? weight.stretch(mine.begin) : Stretch{};
  }

  // `next` is the weight that comes after this one.
  void linear(const Matrix& weight, Rows x, Rows y, int64_t rows, Epilogue epilogue,
              const Matrix& next) const {
    const Share mine = share(weight.num_panels());
    multiply(weight, x, y, rows, mine.begin, mine.end, epilogue, first_panel(next));
    wait_for_others();
  }

  // A thread takes the same panels of both, so that it finds its own gate where it puts the result.
  void gate_and_up(const Layer& layer) const {
    const Share mine = share(layer.gate.num_panels());
    multiply(layer.gate, buffers_.normed, buffers_.wide, step_.tokens, mine.begin, mine.end,
             Epilogue::kStore, first_panel(layer.up));
    multiply(layer.up, buffers_.normed, buffers_.wide, step_.tokens, mine.begin, mine.end,
             Epilogue::kSiluTimes, first_panel(layer.down));
    wait_for_others();
  }

  // What is left to do for q, k and v before attention.
  void finish_heads(const Layer& layer, const CacheLayer& cache) const {
    const Share mine = share(step_.tokens);
    for (int64_t token = mine.begin; token < mine.end; ++token) {
      const int64_t position = step_.positions[token];
      float* qkv = buffers_.qkv.row(token);
      if (layer.qkv_bias != nullptr) add_bias(qkv, layer.qkv_bias);
      if (layer.query_norm != nullptr) norm_heads(layer, qkv);
      rotate_and_store(cache, qkv, model_.cosines + position * model_.head_dim,
                       model_.sines + position * model_.head_dim, table(token), position);
    }
    wait_for_others();
  }

  void add_bias(float* qkv, const float* bias) const {
    const int64_t width = qkv_width(model_);  // whole vectors, as head_dim is
    for (int64_t i = 0; i < width; i += kLanes) store(qkv + i, load(qkv + i) + load(bias + i));
  }

  void norm_heads(const Layer& layer, float* qkv) const {
    const int64_t queries = model_.num_heads, keys = model_.num_kv_heads;
    for (int64_t head = 0; head < queries + keys; ++head) {
      float* place = qkv + head * model_.head_dim;
      rms_norm(place, head < queries ? layer.query_norm : layer.key_norm, place, model_.head_dim,
               model_.norm_eps);
    }
  }

  // Whether a token is the first of those that share its tasks.
  bool begins_tasks(int64_t token, int64_t tokens_per_task) const {
    return token == 0 || step_.sequences[token] != step_.sequences[token - 1] ||
           step_.positions[token] % tokens_per_task == 0;
  }

  // Calls body(task, how many positions it reads).
  template <class Body>
  void for_each_task(const CacheLayer& cache, const Body& body) const {
    const int64_t per_task = tokens_per_task(cache.heads);
    const int64_t per_token = tasks_per_token(cache.heads);
    for (int64_t first = 0; first < step_.tokens;) {
      int64_t end = first + 1;
      while (end < step_.tokens && !begins_tasks(end, per_task)) ++end;
      const Tokens tokens{first, end - first, step_.positions[first], table(first)};
      const int64_t cost = std::min(tokens.position + tokens.count, cache.window);
      for (int64_t index = 0; index < per_token; ++index) body(Task{tokens, index}, cost);
      first = end;
    }
  }

  // Contexts differ in length, so a thread's share is counted in positions read. A task is computed
  // when the thread's next one is known, whose memory arrives meanwhile.
  void attend_all(const CacheLayer& cache) const {
    int64_t total = 0;
    for_each_task(cache, [&](const Task&, int64_t cost) { total += cost; });
    const Share mine = share(total);
    float* scratch = buffers_.scratch + rank_ * buffers_.scratch_per_thread;
    int64_t before = 0;
    Task waiting{};
    const auto compute_waiting = [&](const Task& next) {
      if (waiting) attend(cache, waiting, next, buffers_.qkv, buffers_.seen, scratch);
      waiting = next;
    };
    for_each_task(cache, [&](const Task& task, int64_t cost) {
      const int64_t middle = before + cost / 2;
      before += cost;
      if (mine.begin <= middle && middle < mine.end) compute_waiting(task);
    });
    compute_waiting({});
    wait_for_others();
  }

  const Model& model_;
  const Step& step_;
  const Buffers& buffers_;
  int64_t rank_, team_;
};

bool inside(int64_t index, int64_t size) { return 0 <= index && index < size; }

// Which index of the step points outside the model; see nanoserve_step.
int32_t fault_of(const Model& model, const Step& step) {
  for (int64_t token = 0; token < step.tokens; ++token) {
    const int64_t position = step.positions[token], sequence = step.sequences[token];
    if (!inside(step.token_ids[token], model.vocab)) return 1;
    if (!inside(position, model.positions)) return 2;
    if (position / model.block_size >= step.table_stride) return 2;
    if (!inside(sequence, step.num_sequences)) return 3;
    const int32_t* table = step.tables + sequence * step.table_stride;
    for (int64_t i = 0; i <= position / model.block_size; ++i) {
      if (!inside(table[i], model.num_blocks)) return 4;
    }
  }
  for (int64_t row = 0; row < step.num_wanted; ++row) {
    if (!inside(step.wanted[row], step.tokens)) return 5;
  }
  return 0;
}

}  // namespace
}  // namespace nanoserve

using namespace nanoserve;

const char* nanoserve_sources() { return NANOSERVE_SOURCES; }

const void* nanoserve_openmp() { return reinterpret_cast<const void*>(&omp_get_max_threads); }

int32_t nanoserve_lanes() { return kLanes; }

int64_t nanoserve_panel_width() { return kPanelWidth; }

int64_t nanoserve_workspace(const Model* model, int64_t tokens, int32_t threads) {
  return Buffers(*model, nullptr, tokens, threads).size;
}

int32_t nanoserve_step(const Model* model, const Step* step) {
  const int32_t fault = fault_of(*model, *step);
  if (fault != 0) return fault;
  const Buffers buffers(*model, step->workspace, step->tokens, step->num_threads);
#pragma omp parallel num_threads(step->num_threads)
  Worker(*model, *step, buffers, omp_get_thread_num(), omp_get_num_threads()).run();
  return 0;
}

void nanoserve_linear(const Matrix* weight, const float* x, int64_t x_stride, float* y,
                      int64_t y_stride, int64_t rows, int32_t epilogue, int32_t num_threads) {
#pragma omp parallel num_threads(num_threads)
  {
    const int64_t panels = weight->num_panels(), rank = omp_get_thread_num();
    const int64_t team = omp_get_num_threads();
    multiply(*weight, {const_cast<float*>(x), x_stride}, {y, y_stride}, rows,
             panels * rank / team, panels * (rank + 1) / team, static_cast<Epilogue>(epilogue), {});
  }
}

void nanoserve_argmax(const float* rows, int64_t stride, int64_t num_rows, int64_t width,
                      int64_t* indices, int32_t num_threads) {
#pragma omp parallel for num_threads(num_threads)
  for (int64_t row = 0; row < num_rows; ++row) {
    const Highest highest = row_argmax(rows + row * stride, width);
    indices[row] = std::isfinite(highest.value) ? highest.index : -1;
  }
}
