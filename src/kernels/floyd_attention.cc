// SPDX-License-Identifier: Apache-2.0
#include "kernels/floyd_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cast.h"
#include "kernels/simd/attention.h"

namespace reprise::kernels {
namespace {

constexpr float kHiddenScore = -std::numeric_limits<float>::infinity();

int64_t OffsetOf(const TensorRef& ref, int64_t b, int64_t h, int64_t i, int64_t j) {
  return b * ref.strides[0] + h * ref.strides[1] + i * ref.strides[2] + j * ref.strides[3];
}

void LoadEdge(const TensorRef& ref, int64_t b, int64_t h, int64_t i, int64_t j, float* to) {
  const int64_t item = ItemSize(ref.dtype);
  FindCast(ref.dtype, DType::kFloat)(static_cast<const char*>(ref.data) + OffsetOf(ref, b, h, i, j) * item,
                                     ref.strides[4] * item, reinterpret_cast<char*>(to), sizeof(float), ref.sizes[4]);
}

void StoreEdge(const float* from, const TensorRef& ref, int64_t b, int64_t h, int64_t i, int64_t j) {
  const int64_t item = ItemSize(ref.dtype);
  FindCast(DType::kFloat, ref.dtype)(reinterpret_cast<const char*>(from), sizeof(float),
                                     static_cast<char*>(ref.data) + OffsetOf(ref, b, h, i, j) * item,
                                     ref.strides[4] * item, ref.sizes[4]);
}

// Everything that one query looks at.
class FloydQuery {
 public:
  FloydQuery(const FloydOperands& in, float* scratch)
      : in_(in), depth_(in.query.sizes[4]), count_(in.key[0].sizes[3]), next_(scratch) {
    query_ = Take(depth_);
    keys_ = Take(count_ * depth_);
    values_ = Take(count_ * depth_);
    scores_ = Take(count_);
    out_ = Take(depth_);
    line_ = Take(depth_);
  }
  static int64_t Floats(const FloydOperands& in) {
    const int64_t depth = in.query.sizes[4];
    const int64_t count = in.key[0].sizes[3];
    return 2 * Whole(count * depth) + Whole(count) + 3 * Whole(depth);
  }

  void Load(int64_t b, int64_t h, int64_t n, int64_t m) {
    LoadEdge(in_.query, b, h, n, m, query_);
    simd::ScaleRow(query_, in_.scale, depth_);
    for (int64_t k = 0; k < count_; ++k) {
      AddEdges(in_.key, b, h, n, k, m, keys_ + k * depth_);
      AddEdges(in_.value, b, h, n, k, m, values_ + k * depth_);
    }
    simd::DotKeys(query_, depth_, 1, keys_, depth_, count_, depth_, scores_, count_);
    if (in_.mask.data == nullptr) return;
    const auto* bytes = static_cast<const uint8_t*>(in_.mask.data) + OffsetOf(in_.mask, b, h, n, m);
    for (int64_t k = 0; k < count_; ++k) {
      if (bytes[k * in_.mask.strides[4]] != 0) scores_[k] = kHiddenScore;
    }
  }

  void Attend(int64_t b, int64_t h, int64_t n, int64_t m) {
    Load(b, h, n, m);
    float maximum = kHiddenScore;
    for (int64_t k = 0; k < count_; ++k) {
      maximum = scores_[k] > maximum || scores_[k] != scores_[k] ? scores_[k] : maximum;
    }
    float sum = 0;
    for (int64_t k = 0; k < count_; ++k) {
      scores_[k] = maximum == kHiddenScore ? 0 : std::exp(scores_[k] - maximum);
      sum += scores_[k];
    }
    std::fill_n(out_, depth_, 0.0f);
    simd::AddValues(scores_, count_, 1, values_, depth_, count_, depth_, out_, depth_);
    if (sum != 0) simd::ScaleRow(out_, 1 / sum, depth_);
    StoreEdge(out_, in_.out, b, h, n, m);
    Put(in_.maximum, b, h, n, m, maximum);
    Put(in_.sum, b, h, n, m, sum);
  }

 protected:
  static int64_t Whole(int64_t n) { return (n + 31) / 32 * 32; }
  float* Take(int64_t count) {
    float* taken = next_;
    next_ += Whole(count);
    return taken;
  }

  void AddEdges(const TensorRef* edges, int64_t b, int64_t h, int64_t n, int64_t k, int64_t m, float* to) {
    LoadEdge(edges[0], b, h, n, k, to);
    LoadEdge(edges[1], b, h, k, m, line_);
    for (int64_t d = 0; d < depth_; ++d) to[d] += line_[d];
  }

  static void Put(const TensorRef& ref, int64_t b, int64_t h, int64_t n, int64_t m, float value) {
    auto* to = static_cast<float*>(ref.data) + OffsetOf(ref, b, h, n, m);
    for (int64_t c = 0; c < ref.sizes[4]; ++c) to[c * ref.strides[4]] = value;
  }

  const FloydOperands& in_;
  const int64_t depth_, count_;
  float *next_, *query_, *keys_, *values_, *scores_, *out_, *line_;
};

class FloydHead : public FloydQuery {
 public:
  FloydHead(const FloydOperands& in, const FloydGradients& to, float* scratch)
      : FloydQuery(in, scratch), to_(to), first_(in.query.sizes[2]), second_(in.query.sizes[3]) {
    gradient_ = Take(depth_);
    products_ = Take(count_);
    query_sum_ = Take(depth_);
    for (auto* sums : {key_sums_, value_sums_}) {
      sums[0] = Take(first_ * count_ * depth_);
      sums[1] = Take(count_ * second_ * depth_);
    }
  }
  static int64_t Floats(const FloydOperands& in) {
    const int64_t depth = in.query.sizes[4];
    const int64_t count = in.key[0].sizes[3];
    return FloydQuery::Floats(in) + 2 * Whole(depth) + Whole(count) +
           2 * (Whole(in.query.sizes[2] * count * depth) + Whole(count * in.query.sizes[3] * depth));
  }

  void Run(int64_t b, int64_t h) {
    for (auto* sums : {key_sums_, value_sums_}) {
      std::fill_n(sums[0], first_ * count_ * depth_, 0.0f);
      std::fill_n(sums[1], count_ * second_ * depth_, 0.0f);
    }
    for (int64_t n = 0; n < first_; ++n) {
      for (int64_t m = 0; m < second_; ++m) RunQuery(b, h, n, m);
    }
    for (int64_t k = 0; k < count_; ++k) {
      for (int64_t n = 0; n < first_; ++n) {
        StoreEdge(key_sums_[0] + (n * count_ + k) * depth_, to_.key[0], b, h, n, k);
        StoreEdge(value_sums_[0] + (n * count_ + k) * depth_, to_.value[0], b, h, n, k);
      }
      for (int64_t m = 0; m < second_; ++m) {
        StoreEdge(key_sums_[1] + (k * second_ + m) * depth_, to_.key[1], b, h, k, m);
        StoreEdge(value_sums_[1] + (k * second_ + m) * depth_, to_.value[1], b, h, k, m);
      }
    }
  }

 private:
  void RunQuery(int64_t b, int64_t h, int64_t n, int64_t m) {
    Load(b, h, n, m);
    LoadEdge(to_.gradient, b, h, n, m, gradient_);
    LoadEdge(in_.out, b, h, n, m, out_);
    float delta = 0;
    for (int64_t d = 0; d < depth_; ++d) delta += gradient_[d] * out_[d];
    const float maximum = static_cast<const float*>(in_.maximum.data)[OffsetOf(in_.maximum, b, h, n, m)];
    const float sum = static_cast<const float*>(in_.sum.data)[OffsetOf(in_.sum, b, h, n, m)];
    simd::DotKeys(gradient_, depth_, 1, values_, depth_, count_, depth_, products_, count_);
    std::fill_n(query_sum_, depth_, 0.0f);
    for (int64_t k = 0; k < count_; ++k) {
      const float weight = sum == 0 ? 0 : std::exp(scores_[k] - maximum) / sum;
      const float product = weight * (products_[k] - delta);
      float* key1 = key_sums_[0] + (n * count_ + k) * depth_;
      float* key2 = key_sums_[1] + (k * second_ + m) * depth_;
      float* value1 = value_sums_[0] + (n * count_ + k) * depth_;
      float* value2 = value_sums_[1] + (k * second_ + m) * depth_;
      for (int64_t d = 0; d < depth_; ++d) {
        key1[d] += product * query_[d];
        key2[d] += product * query_[d];
        value1[d] += weight * gradient_[d];
        value2[d] += weight * gradient_[d];
        query_sum_[d] += product * keys_[k * depth_ + d];
      }
    }
    simd::ScaleRow(query_sum_, in_.scale, depth_);
    StoreEdge(query_sum_, to_.query, b, h, n, m);
  }

  const FloydGradients& to_;
  const int64_t first_, second_;
  float *gradient_, *products_, *query_sum_;
  float *key_sums_[2], *value_sums_[2];
};

}  // namespace

int64_t FloydScratchFloats(const FloydOperands& operands) { return FloydQuery::Floats(operands); }

void FloydAttention(const FloydOperands& operands, Range range, float* scratch) {
  FloydQuery query(operands, scratch);
  const int64_t* sizes = operands.query.sizes;
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t m = i % sizes[3];
    const int64_t n = i / sizes[3] % sizes[2];
    const int64_t h = i / sizes[3] / sizes[2] % sizes[1];
    query.Attend(i / sizes[3] / sizes[2] / sizes[1], h, n, m);
  }
}

int64_t FloydBackwardScratchFloats(const FloydOperands& operands) { return FloydHead::Floats(operands); }

void FloydBackward(const FloydOperands& forward, const FloydGradients& gradients, Range range, float* scratch) {
  FloydHead head(forward, gradients, scratch);
  for (int64_t i = range.begin; i < range.end; ++i) {
    head.Run(i / forward.query.sizes[1], i % forward.query.sizes[1]);
  }
}

}  // namespace reprise::kernels
