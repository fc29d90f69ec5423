// SPDX-License-Identifier: Apache-2.0
#include "kernels/chosen_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/score_order.h"
#include "kernels/simd/attention.h"
#include "kernels/token_lines.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kStep = 64;  // keys at a time
constexpr float kNever = -std::numeric_limits<float>::infinity();

constexpr int64_t Padded(int64_t n) { return (n + 31) / 32 * 32; }

// Scratch of one call, in floats.
struct ChosenRoom {
  int64_t group, depth, values;

  explicit ChosenRoom(const ChosenSetup& setup)
      : group(std::max(setup.group, setup.heads / setup.kv_heads)),
        depth(Padded(setup.depth)),
        values(Padded(setup.value_depth)) {}
  int64_t Floats() const {
    return group * (2 * depth + 2 * values + 3 * kStep) + kStep * (2 * depth + 2 * values) + Padded(3 * group) +
           kStep * Padded(group) + kStep + 2 * depth;
  }
};

// The heads of one query that share a key head.
class ChosenRow {
 public:
  ChosenRow(const ChosenSetup& setup, const ChosenOperands& operands, void* scratch)
      : setup_(setup), in_(operands), room_(setup), sequences_(setup.layout, operands.lengths) {
    next_ = static_cast<float*>(scratch);
    query_ = Take(room_.group * room_.depth);
    scores_ = Take(room_.group * kStep);
    out_ = Take(room_.group * room_.values);
    keys_ = Take(kStep * room_.depth);
    values_ = Take(kStep * room_.values);
    maximum_ = Take(Padded(3 * room_.group));
    sum_ = maximum_ + room_.group;
    hidden_ = Take(kStep);
    bytes_ = reinterpret_cast<char*>(Take(2 * room_.depth));
    values_are_keys_ = operands.value.data == nullptr;
  }

  void Run(int64_t item) {
    const int64_t groups = setup_.heads / setup_.group;
    Point(sequences_.Find(item / groups), item % groups * setup_.group, setup_.group);
    std::fill_n(maximum_, group_, kNever);
    std::fill_n(sum_, group_, 0.0f);
    std::fill_n(out_, group_ * room_.values, 0.0f);
    if (place_.seen > 0) {
      LoadQueries();
      Walk([this] { Add(); });
    }
    for (int64_t r = 0; r < group_; ++r) Finish(r);
  }

 protected:
  float* Take(int64_t count) {
    float* taken = next_;
    next_ += count;
    return taken;
  }

  void Point(const TokenPlace& place, int64_t first_head, int64_t group) {
    place_ = place;
    head_ = first_head;
    group_ = group;
    kv_head_ = first_head / (setup_.heads / setup_.kv_heads);
  }

  void LoadQueries() {
    const int64_t own = setup_.depth - setup_.rope_depth;
    const bool is_apart = in_.query_rope.data != nullptr;
    for (int64_t r = 0; r < group_; ++r) {
      float* to = query_ + r * room_.depth;
      LoadLine(in_.query, place_.batch, head_ + r, place_.token, is_apart ? own : setup_.depth, to);
      if (is_apart) LoadLine(in_.query_rope, place_.batch, head_ + r, place_.token, setup_.rope_depth, to + own);
      simd::ScaleRow(to, setup_.scale, setup_.depth);
    }
  }

  // Calls `step` for every kStep chosen keys, whose lines and places are in keys_, values_, batches_ and tokens_.
  template <class Step>
  void Walk(Step&& step) {
    count_ = 0;
    const int64_t seen = place_.seen;
    const int64_t block = setup_.block;
    const auto add = [&](int64_t begin) {
      for (int64_t j = begin; j < std::min(begin + block, seen); ++j) {
        AddKey(j);
        if (count_ < kStep) continue;
        step();
        count_ = 0;
      }
    };
    if (in_.choice.data != nullptr) {
      const TensorRef& choice = in_.choice;
      const auto* entries = reinterpret_cast<const int32_t*>(LineOf(choice, place_.batch, kv_head_, place_.token));
      for (int64_t e = 0; e < choice.sizes[3]; ++e) {
        const int64_t entry = entries[e * choice.strides[3]];
        if (entry >= 0 && entry <= (seen - 1) / block) add(entry * block);
      }
    } else if (in_.table.data != nullptr) {
      const TensorRef& table = in_.table;
      const int64_t begin = sequences_.QueryBegin(place_.sequence);
      const char* bytes = LineOf(table, place_.sequence, head_, (place_.token - begin) / setup_.query_block);
      for (int64_t c = 0; c * block < seen; ++c) {
        if (bytes[c * table.strides[3]] != 0) add(c * block);
      }
    } else {
      for (int64_t c = 0; c * block < seen; ++c) add(c * block);
    }
    if (count_ > 0) step();
  }

  void AddKey(int64_t j) {
    const TokenSequences::KeyPlace key = sequences_.Key(place_, j);
    float* line = keys_ + count_ * room_.depth;
    const int64_t own = setup_.depth - setup_.rope_depth;
    if (setup_.tile != 0) {
      LoadBytes(LineOf(in_.key, key.batch, kv_head_, key.token), line);
    } else {
      const bool is_apart = in_.key_rope.data != nullptr;
      LoadLine(in_.key, key.batch, kv_head_, key.token, is_apart ? own : setup_.depth, line);
      if (is_apart) LoadLine(in_.key_rope, key.batch, kv_head_, key.token, setup_.rope_depth, line + own);
    }
    if (!values_are_keys_) {
      LoadLine(in_.value, key.batch, kv_head_, key.token, setup_.value_depth, values_ + count_ * room_.values);
    }
    if (in_.mask.data != nullptr) {
      const int64_t token = place_.token - sequences_.QueryBegin(place_.sequence);
      hidden_[count_] = LineOf(in_.mask, 0, 0, token)[j * in_.mask.strides[3]] != 0 ? kNever : 0;
    }
    batches_[count_] = key.batch;
    tokens_[count_] = key.token;
    ++count_;
  }

  void LoadBytes(const char* bytes, float* line) const {
    const int64_t own = setup_.depth - setup_.rope_depth;
    if (const int64_t step = in_.key.strides[3]; step != 1) {
      for (int64_t i = 0; i < in_.key.sizes[3]; ++i) bytes_[i] = bytes[i * step];
      bytes = bytes_;
    }
    const DType type = in_.query.dtype;
    FindCast(DType::kInt8, DType::kFloat)(bytes, 1, reinterpret_cast<char*>(line), sizeof(float), own);
    FindCast(type, DType::kFloat)(bytes + own, ItemSize(type), reinterpret_cast<char*>(line + own), sizeof(float),
                                  setup_.rope_depth);
    const char* factors = bytes + own + setup_.rope_depth * ItemSize(type);
    for (int64_t t = 0; t * setup_.tile < own; ++t) {
      float factor;
      std::memcpy(&factor, factors + t * static_cast<int64_t>(sizeof factor), sizeof factor);
      simd::ScaleRow(line + t * setup_.tile, factor, setup_.tile);
    }
  }

  const float* Values() const { return values_are_keys_ ? keys_ : values_; }
  int64_t ValueStride() const { return values_are_keys_ ? room_.depth : room_.values; }

  // Scores of the keys of a step; -Inf behind them.
  void Score() {
    simd::DotKeys(query_, room_.depth, group_, keys_, room_.depth, count_, setup_.depth, scores_, kStep);
    for (int64_t r = 0; r < group_; ++r) {
      float* scores = scores_ + r * kStep;
      std::fill(scores + count_, scores + kStep, kNever);
      if (in_.mask.data == nullptr) continue;
      for (int64_t j = 0; j < count_; ++j) scores[j] = hidden_[j] != 0 ? kNever : scores[j];
    }
  }

  void Add() {
    Score();
    for (int64_t r = 0; r < group_; ++r) {
      float* scores = scores_ + r * kStep;
      float maximum = maximum_[r];
      for (int64_t j = 0; j < count_; ++j)
        maximum = scores[j] > maximum || scores[j] != scores[j] ? scores[j] : maximum;
      Rescale(r, maximum);
      sum_[r] += simd::ExpSum(scores, maximum == kNever ? 0 : maximum, kStep);
    }
    simd::AddValues(scores_, kStep, group_, Values(), ValueStride(), count_, setup_.value_depth, out_, room_.values);
  }

  void Rescale(int64_t r, float maximum) {
    if (maximum == maximum_[r]) return;
    if (sum_[r] != 0) {
      const float factor = std::exp(maximum_[r] - maximum);
      sum_[r] *= factor;
      simd::ScaleRow(out_ + r * room_.values, factor, setup_.value_depth);
    }
    maximum_[r] = maximum;
  }

  void Finish(int64_t r) {
    const int64_t head = head_ + r;
    if (in_.sink.data != nullptr) {
      float sink;
      FindCast(in_.sink.dtype, DType::kFloat)(
          static_cast<const char*>(in_.sink.data) + head * in_.sink.strides[0] * ItemSize(in_.sink.dtype), 0,
          reinterpret_cast<char*>(&sink), 0, 1);
      if (sink > maximum_[r]) Rescale(r, sink);
      if (sink != kNever) sum_[r] += std::exp(sink - maximum_[r]);
    }
    float* out = out_ + r * room_.values;
    if (sum_[r] != 0) simd::ScaleRow(out, 1 / sum_[r], setup_.value_depth);
    StoreLine(out, in_.out, place_.batch, head, place_.token, setup_.value_depth);
    Put(in_.maximum, head, maximum_[r]);
    Put(in_.sum, head, sum_[r]);
    Put(in_.log_sum, head, sum_[r] == 0 ? -kNever : maximum_[r] + std::log(sum_[r]));
  }

  void Put(const TensorRef& ref, int64_t head, float value) const {
    if (ref.data == nullptr) return;
    auto* to = reinterpret_cast<float*>(LineOf(ref, place_.batch, head, place_.token));
    for (int64_t c = 0; c < ref.sizes[3]; ++c) to[c * ref.strides[3]] = value;
  }

  const ChosenSetup& setup_;
  const ChosenOperands& in_;
  const ChosenRoom room_;
  TokenSequences sequences_;
  TokenPlace place_;
  int64_t head_ = 0, group_ = 0, kv_head_ = 0, count_ = 0;
  bool values_are_keys_ = false;
  char* bytes_;
  float *next_, *query_, *scores_, *out_, *keys_, *values_, *maximum_, *sum_, *hidden_;
  int64_t batches_[kStep], tokens_[kStep];
};

class ChosenBackward : public ChosenRow {
 public:
  ChosenBackward(const ChosenSetup& setup, const ChosenOperands& forward, const ChosenGradients& gradients,
                 void* scratch)
      : ChosenRow(setup, forward, scratch), to_(gradients) {
    products_ = Take(room_.group * kStep);
    gradient_ = Take(room_.group * room_.values);
    query_sum_ = Take(room_.group * room_.depth);
    turned_ = Take(kStep * Padded(room_.group));
    key_sum_ = Take(kStep * room_.depth);
    value_sum_ = Take(kStep * room_.values);
    delta_ = sum_ + room_.group;
  }

  void Run(int64_t item) {
    const int64_t b = item / setup_.kv_heads;
    const int64_t shared = setup_.heads / setup_.kv_heads;
    const int64_t queries = sequences_.QueriesOf(b);
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t h = 0; h < shared; h += setup_.group) {
        Point(sequences_.At(b, i), item % setup_.kv_heads * shared + h, setup_.group);
        RunRow();
      }
    }
  }

 private:
  void RunRow() {
    std::fill_n(query_sum_, group_ * room_.depth, 0.0f);
    if (place_.seen > 0) {
      LoadQueries();
      for (int64_t r = 0; r < group_; ++r) LoadStatistics(r);
      Walk([this] { AddGradients(); });
    }
    const int64_t own = setup_.depth - setup_.rope_depth;
    const bool is_apart = to_.query_rope.data != nullptr;
    for (int64_t r = 0; r < group_; ++r) {
      float* sum = query_sum_ + r * room_.depth;
      simd::ScaleRow(sum, setup_.scale, setup_.depth);
      StoreLine(sum, to_.query, place_.batch, head_ + r, place_.token, is_apart ? own : setup_.depth);
      if (is_apart) {
        StoreLine(sum + own, to_.query_rope, place_.batch, head_ + r, place_.token, setup_.rope_depth);
      }
    }
  }

  float Statistic(const TensorRef& ref, int64_t head) const {
    return *reinterpret_cast<const float*>(LineOf(ref, place_.batch, head, place_.token));
  }

  void LoadStatistics(int64_t r) {
    float* gradient = gradient_ + r * room_.values;
    float* out = out_ + r * room_.values;
    LoadLine(to_.gradient, place_.batch, head_ + r, place_.token, setup_.value_depth, gradient);
    LoadLine(in_.out, place_.batch, head_ + r, place_.token, setup_.value_depth, out);
    delta_[r] = 0;
    for (int64_t k = 0; k < setup_.value_depth; ++k) delta_[r] += gradient[k] * out[k];
    if (in_.log_sum.data != nullptr) {  // +Inf where no key is seen, which no key of the walk then is
      maximum_[r] = Statistic(in_.log_sum, head_ + r);
      sum_[r] = maximum_[r] == -kNever ? 0.0f : 1.0f;
    } else {
      maximum_[r] = Statistic(in_.maximum, head_ + r);
      sum_[r] = Statistic(in_.sum, head_ + r);
    }
  }

  void AddGradients() {
    Score();
    simd::DotKeys(gradient_, room_.values, group_, Values(), ValueStride(), count_, setup_.value_depth, products_,
                  kStep);
    for (int64_t r = 0; r < group_; ++r) {
      float* weights = scores_ + r * kStep;
      float* products = products_ + r * kStep;
      if (sum_[r] == 0) {
        std::fill_n(weights, kStep, 0.0f);
      } else {
        simd::ExpSum(weights, maximum_[r], kStep);
        simd::ScaleRow(weights, 1 / sum_[r], kStep);
      }
      for (int64_t j = 0; j < count_; ++j) products[j] = weights[j] * (products[j] - delta_[r]);
    }
    simd::AddValues(products_, kStep, group_, keys_, room_.depth, count_, setup_.depth, query_sum_, room_.depth);
    AddTurned(products_, query_, room_.depth, setup_.depth, key_sum_, to_.key);
    AddTurned(scores_, gradient_, room_.values, setup_.value_depth, value_sum_, to_.value);
  }

  // to[key j] += sum over the rows r of weights[r][j] * lines[r].
  void AddTurned(const float* weights, const float* lines, int64_t stride, int64_t depth, float* sums,
                 const TensorRef& to) {
    const int64_t width = Padded(room_.group);
    for (int64_t j = 0; j < count_; ++j) {
      for (int64_t r = 0; r < group_; ++r) turned_[j * width + r] = weights[r * kStep + j];
    }
    std::fill_n(sums, count_ * stride, 0.0f);
    simd::AddValues(turned_, width, count_, lines, stride, group_, depth, sums, stride);
    for (int64_t j = 0; j < count_; ++j) {
      auto* line = reinterpret_cast<float*>(LineOf(to, batches_[j], kv_head_, tokens_[j]));
      for (int64_t k = 0; k < depth; ++k) line[k] += sums[j * stride + k];
    }
  }

  const ChosenGradients& to_;
  float *products_, *gradient_, *query_sum_, *turned_, *key_sum_, *value_sum_, *delta_;
};

class BlockChooser : public ChosenRow {
 public:
  BlockChooser(const ChosenSetup& setup, const ChosenOperands& forward, const BlockChoice& choice, void* scratch)
      : ChosenRow(setup, forward, scratch), choice_(choice) {
    auto* at = static_cast<float*>(scratch) + room_.Floats();
    weights_ = at;
    block_scores_ = weights_ + Padded(setup.layout.capacity());
    order_ = reinterpret_cast<int32_t*>(block_scores_ + Padded(MostBlocks(choice)));
  }
  static int64_t MostBlocks(const BlockChoice& choice) {
    return choice.blocks.empty() ? 0 : *std::max_element(choice.blocks.begin(), choice.blocks.end());
  }
  static int64_t Floats(const ChosenSetup& setup, const BlockChoice& choice) {
    return ChosenRoom(setup).Floats() + Padded(setup.layout.capacity()) + 2 * Padded(MostBlocks(choice));
  }

  void Run(int64_t item) {
    const int64_t shared = setup_.heads / setup_.kv_heads;
    Point(sequences_.Find(item / setup_.kv_heads), item % setup_.kv_heads * shared, shared);
    std::fill_n(weights_, place_.seen, 0.0f);
    if (place_.seen > 0) {
      LoadQueries();
      for (int64_t r = 0; r < group_; ++r) {
        maximum_[r] = NumberOf(in_.maximum, head_ + r);
        sum_[r] = NumberOf(in_.sum, head_ + r);
      }
      int64_t first = 0;
      Walk([&] {
        AddWeights(first);
        first += count_;
      });
    }
    Choose();
  }

 private:
  float NumberOf(const TensorRef& ref, int64_t head) const {
    return *reinterpret_cast<const float*>(LineOf(ref, place_.batch, head, place_.token));
  }

  void AddWeights(int64_t first) {
    Score();
    for (int64_t r = 0; r < group_; ++r) {
      if (sum_[r] == 0) continue;
      for (int64_t j = 0; j < count_; ++j) {
        weights_[first + j] += std::exp(scores_[r * kStep + j] - maximum_[r]) / sum_[r];
      }
    }
  }

  void Choose() {
    const TensorRef& choice = choice_.choice;
    auto* to = reinterpret_cast<int32_t*>(LineOf(choice, place_.batch, kv_head_, place_.token));
    const int64_t blocks = place_.seen == 0 ? 0 : choice_.blocks[static_cast<size_t>(place_.sequence)];
    const int64_t per_block = choice_.select / choice_.stride;
    const int64_t per_window = choice_.block / choice_.stride;
    const int64_t token = place_.token - sequences_.QueryBegin(place_.sequence);
    int64_t seen = 0;
    for (int64_t j = 0; j < blocks; ++j) {
      if (choice_.hidden.data != nullptr) {
        const char* bytes = LineOf(choice_.hidden, 0, 0, token);
        if (bytes[j * choice_.hidden.strides[3]] != 0) continue;
      }
      float score = 0;
      for (int64_t m = 0; m < per_block; ++m) {
        for (int64_t n = 0; n < per_window; ++n) {
          const int64_t key = per_block * j - m - n;
          if (key >= 0 && key < place_.seen) score += weights_[key];
        }
      }
      block_scores_[j] = score;
      order_[seen++] = static_cast<int32_t>(j);
    }
    const int64_t found = std::min(choice_.count, seen);
    const float* scores = block_scores_;
    std::partial_sort(order_, order_ + found, order_ + seen,
                      [scores](int32_t a, int32_t b) { return IsChosenBefore(scores, a, b); });
    for (int64_t c = 0; c < choice_.count; ++c) to[c * choice.strides[3]] = c < found ? order_[c] : -1;
  }

  const BlockChoice& choice_;
  float *weights_, *block_scores_;
  int32_t* order_;
};

}  // namespace

int64_t BlockChoiceScratchBytes(const ChosenSetup& setup, const BlockChoice& choice) {
  return BlockChooser::Floats(setup, choice) * static_cast<int64_t>(sizeof(float));
}

void ChooseBlocks(const ChosenSetup& setup, const ChosenOperands& forward, const BlockChoice& choice, Range range,
                  void* scratch) {
  BlockChooser chooser(setup, forward, choice, scratch);
  for (int64_t item = range.begin; item < range.end; ++item) chooser.Run(item);
}

int64_t ChosenScratchBytes(const ChosenSetup& setup) {
  return ChosenRoom(setup).Floats() * static_cast<int64_t>(sizeof(float));
}

void AttendChosen(const ChosenSetup& setup, const ChosenOperands& operands, Range range, void* scratch) {
  ChosenRow row(setup, operands, scratch);
  for (int64_t item = range.begin; item < range.end; ++item) row.Run(item);
}

void AttendChosenBackward(const ChosenSetup& setup, const ChosenOperands& forward, const ChosenGradients& gradients,
                          Range range, void* scratch) {
  ChosenBackward row(setup, forward, gradients, scratch);
  for (int64_t item = range.begin; item < range.end; ++item) row.Run(item);
}

}  // namespace reprise::kernels
