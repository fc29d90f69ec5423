// SPDX-License-Identifier: Apache-2.0
#include "kernels/indexer.h"

#include <cmath>
#include <limits>

#include "kernels/score_order.h"
#include "kernels/simd/attention.h"
#include "kernels/token_lines.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kIndexerStep = 64;  // keys at a time
constexpr float kUnseen = -std::numeric_limits<float>::infinity();

constexpr int64_t FullLine(int64_t n) { return (n + 31) / 32 * 32; }

// Scores of the keys of one row and one key head.
class IndexerRow {
 public:
  IndexerRow(const IndexerSetup& setup, const IndexerOperands& operands, void* scratch)
      : setup_(setup),
        in_(operands),
        sequences_(setup.layout, operands.lengths),
        group_(setup.heads / setup.kv_heads),
        depth_(FullLine(setup.depth)),
        next_(static_cast<float*>(scratch)) {
    query_ = Take(group_ * depth_);
    weight_ = Take(FullLine(group_));
    keys_ = Take(kIndexerStep * depth_);
    dots_ = Take(group_ * kIndexerStep);
    factor_ = Take(kIndexerStep);
    scores_ = Take(FullLine(Most(setup)));
  }

  // Keys that one row may have.
  static int64_t Most(const IndexerSetup& setup) { return std::max(setup.layout.capacity(), setup.count); }
  static int64_t Floats(const IndexerSetup& setup) {
    const int64_t group = setup.heads / setup.kv_heads;
    const int64_t depth = FullLine(setup.depth);
    return group * (depth + kIndexerStep) + FullLine(group) + kIndexerStep * (depth + 1) + FullLine(Most(setup));
  }

  void Point(int64_t item) {
    head_ = item % setup_.kv_heads;
    place_ = sequences_.Find(item / setup_.kv_heads);
  }

  void LoadQueries() {
    for (int64_t r = 0; r < group_; ++r) {
      const int64_t head = head_ * group_ + r;
      LoadLine(in_.query, place_.batch, head, place_.token, setup_.depth, query_ + r * depth_);
      LoadLine(in_.weight, place_.batch, head, place_.token, 1, weight_ + r);
      if (in_.query_factor.data == nullptr) continue;
      float factor;
      LoadLine(in_.query_factor, place_.batch, head, place_.token, 1, &factor);
      weight_[r] *= factor;
    }
  }

  // scores_[j] for all keys that the row sees.
  void ScoreAll() {
    for (int64_t j = 0; j < place_.seen; j += kIndexerStep) {
      const int64_t count = std::min(kIndexerStep, place_.seen - j);
      for (int64_t i = 0; i < count; ++i) LoadKey(i, j + i);
      Score(count, scores_ + j);
    }
  }

  void LoadKey(int64_t i, int64_t j) {
    const TokenSequences::KeyPlace key = sequences_.Key(place_, j);
    LoadLine(in_.key, key.batch, head_, key.token, setup_.depth, keys_ + i * depth_);
    factor_[i] = 1;
    if (in_.key_factor.data != nullptr) LoadLine(in_.key_factor, key.batch, head_, key.token, 1, factor_ + i);
  }

  // Of the keys in keys_; their products stay in dots_.
  void Score(int64_t count, float* scores) {
    simd::DotKeys(query_, depth_, group_, keys_, depth_, count, setup_.depth, dots_, kIndexerStep);
    std::fill_n(scores, count, 0.0f);
    for (int64_t r = 0; r < group_; ++r) {
      const float* dots = dots_ + r * kIndexerStep;
      for (int64_t j = 0; j < count; ++j) scores[j] += weight_[r] * (dots[j] > 0 || dots[j] != dots[j] ? dots[j] : 0);
    }
    for (int64_t j = 0; j < count; ++j) scores[j] *= factor_[j];
  }

  void Choose(int32_t* order) {
    if (place_.seen > 0) {
      LoadQueries();
      ScoreAll();
    }
    const int64_t found = std::min(setup_.count, place_.seen);
    for (int64_t j = 0; j < place_.seen; ++j) order[j] = static_cast<int32_t>(j);
    const float* scores = scores_;
    const auto before = [scores](int32_t a, int32_t b) { return IsChosenBefore(scores, a, b); };
    std::nth_element(order, order + found, order + place_.seen, before);
    std::sort(order, order + found, before);
    const TensorRef& choice = in_.choice;
    auto* to = reinterpret_cast<int32_t*>(LineOf(choice, place_.batch, head_, place_.token));
    for (int64_t c = 0; c < setup_.count; ++c) to[c * choice.strides[3]] = c < found ? order[c] : -1;
    if (in_.values.data == nullptr) return;
    const TensorRef& values = in_.values;
    const CastFn cast = FindCast(DType::kFloat, values.dtype);
    char* line = LineOf(values, place_.batch, head_, place_.token);
    for (int64_t c = 0; c < setup_.count; ++c) {
      const float value = c < found ? scores[order[c]] : kUnseen;
      cast(reinterpret_cast<const char*>(&value), 0, line + c * values.strides[3] * ItemSize(values.dtype), 0, 1);
    }
  }

  void Sum() {
    float maximum = kUnseen;
    float sum = 0;
    if (place_.seen > 0) {
      LoadQueries();
      ScoreAll();
      SumOf(place_.seen, maximum, sum);
    }
    *reinterpret_cast<float*>(LineOf(in_.maximum, place_.batch, head_, place_.token)) = maximum;
    *reinterpret_cast<float*>(LineOf(in_.sum, place_.batch, head_, place_.token)) = sum;
  }

 protected:
  float* Take(int64_t count) {
    float* taken = next_;
    next_ += count;
    return taken;
  }

  void SumOf(int64_t count, float& maximum, float& sum) const {
    maximum = kUnseen;
    sum = 0;
    for (int64_t j = 0; j < count; ++j) {
      maximum = scores_[j] > maximum || scores_[j] != scores_[j] ? scores_[j] : maximum;
    }
    for (int64_t j = 0; j < count; ++j) sum += std::exp(scores_[j] - maximum);
  }

  const IndexerSetup& setup_;
  const IndexerOperands& in_;
  TokenSequences sequences_;
  const int64_t group_, depth_;
  TokenPlace place_;
  int64_t head_ = 0;
  float *next_, *query_, *weight_, *keys_, *dots_, *factor_, *scores_;
};

class IndexerBackwardRow : public IndexerRow {
 public:
  IndexerBackwardRow(const IndexerSetup& setup, const IndexerOperands& operands, const IndexerTarget& target,
                     const IndexerTargetOperands& target_operands, const IndexerGradients& gradients, void* scratch)
      : IndexerRow(setup, operands, scratch),
        target_(target),
        target_in_(target_operands),
        to_(gradients),
        target_depth_(FullLine(target.depth)) {
    given_ = Take(FullLine(Most(setup)));
    query_sum_ = Take(group_ * depth_);
    weight_sum_ = Take(FullLine(group_));
    target_query_ = Take(target_depth_);
    target_key_ = Take(kIndexerStep * target_depth_);
    target_dots_ = Take(kIndexerStep);
    keys_of_row_ = reinterpret_cast<int32_t*>(Take(FullLine(Most(setup))));
  }

  static int64_t Floats(const IndexerSetup& setup, const IndexerTarget& target) {
    const int64_t group = setup.heads / setup.kv_heads;
    return IndexerRow::Floats(setup) + 2 * FullLine(Most(setup)) + group * FullLine(setup.depth) + FullLine(group) +
           (1 + kIndexerStep) * FullLine(target.depth) + kIndexerStep;
  }

  void Run(int64_t item) {
    const int64_t b = item / setup_.kv_heads;
    double loss = 0;
    const int64_t queries = sequences_.QueriesOf(b);
    for (int64_t i = 0; i < queries; ++i) {
      place_ = sequences_.At(b, i);
      head_ = item % setup_.kv_heads;
      loss += RunRow();
    }
    if (to_.loss.data != nullptr) {
      static_cast<float*>(to_.loss.data)[b * to_.loss.strides[0] + head_ * to_.loss.strides[1]] =
          static_cast<float>(loss);
    }
  }

 private:
  double RunRow() {
    std::fill_n(query_sum_, group_ * depth_, 0.0f);
    std::fill_n(weight_sum_, group_, 0.0f);
    double loss = 0;
    if (place_.seen > 0) {
      FindKeys();
      LoadQueries();
      if (to_.score.data == nullptr) loss = LossGradient();
      for (int64_t c = 0; c < count_; c += kIndexerStep) AddGradients(c, std::min(kIndexerStep, count_ - c));
    }
    for (int64_t r = 0; r < group_; ++r) {
      const int64_t head = head_ * group_ + r;
      simd::ScaleRow(query_sum_ + r * depth_, weight_[r], setup_.depth);
      if (count_ == 0 || place_.seen == 0) std::fill_n(query_sum_ + r * depth_, setup_.depth, 0.0f);
      StoreLine(query_sum_ + r * depth_, to_.query, place_.batch, head, place_.token, setup_.depth);
      StoreLine(weight_sum_ + r, to_.weight, place_.batch, head, place_.token, 1);
    }
    return loss;
  }

  // The keys of the row, and what was given for them.
  void FindKeys() {
    count_ = 0;
    if (in_.choice.data == nullptr) {
      for (; count_ < place_.seen; ++count_) keys_of_row_[count_] = static_cast<int32_t>(count_);
      return;
    }
    const TensorRef& choice = in_.choice;
    const auto* entries = reinterpret_cast<const int32_t*>(LineOf(choice, place_.batch, head_, place_.token));
    for (int64_t e = 0; e < choice.sizes[3]; ++e) {
      const int32_t key = entries[e * choice.strides[3]];
      if (key < 0 || key >= place_.seen) continue;
      if (to_.score.data != nullptr) {
        const int64_t step = to_.score.strides[3] * ItemSize(to_.score.dtype);
        FindCast(to_.score.dtype, DType::kFloat)(LineOf(to_.score, place_.batch, head_, place_.token) + e * step, 0,
                                                 reinterpret_cast<char*>(given_ + count_), 0, 1);
      }
      keys_of_row_[count_++] = key;
    }
  }

  // given_ = softmax of the scores - what attention weighs the keys with.
  double LossGradient() {
    for (int64_t c = 0; c < count_; c += kIndexerStep) {
      const int64_t n = std::min(kIndexerStep, count_ - c);
      for (int64_t i = 0; i < n; ++i) LoadKey(i, keys_of_row_[c + i]);
      Score(n, scores_ + c);
    }
    float maximum, sum;
    if (in_.maximum.data != nullptr) {
      maximum = *reinterpret_cast<const float*>(LineOf(in_.maximum, place_.batch, head_, place_.token));
      sum = *reinterpret_cast<const float*>(LineOf(in_.sum, place_.batch, head_, place_.token));
    } else {
      SumOf(count_, maximum, sum);
    }
    std::fill_n(given_, count_, 0.0f);
    AddTarget();
    double loss = 0;
    const float log_sum = maximum + std::log(sum);
    for (int64_t c = 0; c < count_; ++c) {
      const float log_own = scores_[c] - log_sum;
      const float wanted = given_[c];
      if (wanted > 0) loss += wanted * (std::log(static_cast<double>(wanted)) - log_own);
      given_[c] = std::exp(log_own) - wanted;
    }
    return loss;
  }

  // given_ += the mean of the weights over the heads of attention.
  void AddTarget() {
    const int64_t shared = target_.heads / target_.kv_heads;
    const int64_t own = target_.depth - target_.rope_depth;
    const auto load = [&](const TensorRef& line, const TensorRef& rope, int64_t batch, int64_t head, int64_t token,
                          float* to) {
      LoadLine(line, batch, head, token, own, to);
      if (target_.rope_depth != 0) LoadLine(rope, batch, head, token, target_.rope_depth, to + own);
    };
    for (int64_t head = 0; head < target_.heads; ++head) {
      load(target_in_.query, target_in_.query_rope, place_.batch, head, place_.token, target_query_);
      const float maximum =
          *reinterpret_cast<const float*>(LineOf(target_in_.maximum, place_.batch, head, place_.token));
      const float sum = *reinterpret_cast<const float*>(LineOf(target_in_.sum, place_.batch, head, place_.token));
      if (sum == 0) continue;
      const float share = 1 / (sum * static_cast<float>(target_.heads));
      for (int64_t c = 0; c < count_; c += kIndexerStep) {
        const int64_t n = std::min(kIndexerStep, count_ - c);
        for (int64_t i = 0; i < n; ++i) {
          const TokenSequences::KeyPlace key = sequences_.Key(place_, keys_of_row_[c + i]);
          load(target_in_.key, target_in_.key_rope, key.batch, head / shared, key.token,
               target_key_ + i * target_depth_);
        }
        simd::DotKeys(target_query_, target_depth_, 1, target_key_, target_depth_, n, target_.depth, target_dots_,
                      kIndexerStep);
        for (int64_t i = 0; i < n; ++i) given_[c + i] += share * std::exp(target_.scale * target_dots_[i] - maximum);
      }
    }
  }

  void AddGradients(int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) LoadKey(i, keys_of_row_[first + i]);
    Score(count, scores_);
    for (int64_t r = 0; r < group_; ++r) {
      float* dots = dots_ + r * kIndexerStep;
      for (int64_t i = 0; i < count; ++i) {
        const float score = given_[first + i];
        if (dots[i] > 0 || dots[i] != dots[i]) weight_sum_[r] += score * dots[i];
        dots[i] = dots[i] > 0 || dots[i] != dots[i] ? score : 0;
      }
    }
    simd::AddValues(dots_, kIndexerStep, group_, keys_, depth_, count, setup_.depth, query_sum_, depth_);
    for (int64_t i = 0; i < count; ++i) {
      const TokenSequences::KeyPlace key = sequences_.Key(place_, keys_of_row_[first + i]);
      auto* line = reinterpret_cast<float*>(LineOf(to_.key, key.batch, head_, key.token));
      for (int64_t r = 0; r < group_; ++r) {
        const float factor = weight_[r] * dots_[r * kIndexerStep + i];
        if (factor == 0) continue;
        const float* query = query_ + r * depth_;
        for (int64_t k = 0; k < setup_.depth; ++k) line[k] += factor * query[k];
      }
    }
  }

  const IndexerTarget& target_;
  const IndexerTargetOperands& target_in_;
  const IndexerGradients& to_;
  const int64_t target_depth_;
  int64_t count_ = 0;
  float *given_, *query_sum_, *weight_sum_, *target_query_, *target_key_, *target_dots_;
  int32_t* keys_of_row_;
};

}  // namespace

int64_t IndexerScratchBytes(const IndexerSetup& setup) {
  return (IndexerRow::Floats(setup) + FullLine(IndexerRow::Most(setup))) * static_cast<int64_t>(sizeof(float));
}

void ChooseKeys(const IndexerSetup& setup, const IndexerOperands& operands, Range range, void* scratch) {
  IndexerRow row(setup, operands, scratch);
  auto* order = reinterpret_cast<int32_t*>(static_cast<float*>(scratch) + IndexerRow::Floats(setup));
  for (int64_t item = range.begin; item < range.end; ++item) {
    row.Point(item);
    row.Choose(order);
  }
}

void IndexerSums(const IndexerSetup& setup, const IndexerOperands& operands, Range range, void* scratch) {
  IndexerRow row(setup, operands, scratch);
  for (int64_t item = range.begin; item < range.end; ++item) {
    row.Point(item);
    row.Sum();
  }
}

int64_t IndexerBackwardScratchBytes(const IndexerSetup& setup, const IndexerTarget& target) {
  return IndexerBackwardRow::Floats(setup, target) * static_cast<int64_t>(sizeof(float));
}

void IndexerBackward(const IndexerSetup& setup, const IndexerOperands& operands, const IndexerTarget& target,
                     const IndexerTargetOperands& target_operands, const IndexerGradients& gradients, Range range,
                     void* scratch) {
  IndexerBackwardRow row(setup, operands, target, target_operands, gradients, scratch);
  for (int64_t item = range.begin; item < range.end; ++item) row.Run(item);
}

}  // namespace reprise::kernels
