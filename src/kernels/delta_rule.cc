// SPDX-License-Identifier: Apache-2.0
#include "kernels/delta_rule.h"

#include <cmath>

#include "kernels/simd/attention.h"
#include "kernels/token_lines.h"
#include "kernels/token_sequences.h"

namespace reprise::kernels {
namespace {

constexpr int64_t WholeLine(int64_t n) { return (n + 31) / 32 * 32; }

// One head of all sequences.
class DeltaRuleHead {
 public:
  DeltaRuleHead(const DeltaRuleOperands& in, void* scratch)
      : in_(in),
        tokens_(in.value.sizes[0]),
        depth_(in.value.sizes[2]),
        key_depth_(in.key.sizes[2]),
        stride_(WholeLine(key_depth_)) {
    auto* next = static_cast<float*>(scratch);
    const auto take = [&next](int64_t count) {
      float* taken = next;
      next += WholeLine(count);
      return taken;
    };
    state_ = take(depth_ * stride_);
    query_ = take(stride_);
    key_ = take(stride_);
    value_ = take(depth_);
    known_ = take(depth_);
    factor_ = take(stride_);
  }

  static int64_t Floats(const DeltaRuleOperands& in) {
    const int64_t depth = in.value.sizes[2];
    const int64_t line = WholeLine(in.key.sizes[2]);
    return WholeLine(depth * line) + 3 * line + 2 * WholeLine(depth);
  }

  void Run(int64_t head) {
    head_ = head;
    key_head_ = head / (in_.value.sizes[1] / in_.key.sizes[1]);
    int64_t begin = 0;
    for (int64_t b = 0; b < in_.lengths.sizes[0]; ++b) {
      const int64_t count = std::clamp<int64_t>(NumberAt(in_.lengths, b), 0, tokens_ - begin);
      if (count > 0) RunSequence(b, begin, begin + count);
      if (count == 0 && in_.names.data == nullptr) Keep(b);
      begin += count;
    }
    std::fill_n(known_, depth_, 0.0f);
    for (int64_t t = begin; t < tokens_; ++t) Store(known_, t);
  }

 private:
  static char* At(const TensorRef& ref, int64_t i, int64_t j) {
    return static_cast<char*>(ref.data) + (i * ref.strides[0] + j * ref.strides[1]) * ItemSize(ref.dtype);
  }
  static void Load(const TensorRef& ref, int64_t i, int64_t j, int64_t count, float* to) {
    FindCast(ref.dtype, DType::kFloat)(At(ref, i, j), ref.strides[2] * ItemSize(ref.dtype), reinterpret_cast<char*>(to),
                                       sizeof(float), count);
  }
  static float Number(const TensorRef& ref, int64_t i, int64_t j, float otherwise) {
    if (ref.data == nullptr) return otherwise;
    float number;
    FindCast(ref.dtype, DType::kFloat)(At(ref, i, j), 0, reinterpret_cast<char*>(&number), 0, 1);
    return number;
  }
  bool IsState(int64_t name) const { return name >= 0 && name < in_.state.sizes[0]; }
  int64_t NameOf(int64_t b, int64_t token) const { return in_.names.data != nullptr ? NumberAt(in_.names, token) : b; }

  void LoadState(int64_t name) {
    std::fill_n(state_, depth_ * stride_, 0.0f);
    if (!IsState(name)) return;
    for (int64_t i = 0; i < depth_; ++i) LoadLine(in_.state, name, head_, i, key_depth_, state_ + i * stride_);
  }
  void StoreState(int64_t name) {
    if (!IsState(name)) return;
    for (int64_t i = 0; i < depth_; ++i) StoreLine(state_ + i * stride_, in_.new_state, name, head_, i, key_depth_);
  }
  // A sequence without tokens.
  void Keep(int64_t b) {
    if (in_.new_state.data == in_.state.data) return;
    LoadState(b);
    StoreState(b);
  }
  void Store(const float* line, int64_t token) {
    const TensorRef& out = in_.out;
    FindCast(DType::kFloat, out.dtype)(reinterpret_cast<const char*>(line), sizeof(float), At(out, token, head_),
                                       out.strides[2] * ItemSize(out.dtype), depth_);
  }

  void RunSequence(int64_t b, int64_t begin, int64_t end) {
    int64_t first = begin;
    if (in_.accepted.data != nullptr) {
      first += std::clamp<int64_t>(NumberAt(in_.accepted, b) - 1, 0, end - begin - 1);
    }
    LoadState(NameOf(b, first));
    for (int64_t token = begin; token < end; ++token) {
      Step(token);
      const int64_t name = NameOf(b, token);
      if (token + 1 == end || NameOf(b, token + 1) != name) StoreState(name);
    }
  }

  void Step(int64_t token) {
    Load(in_.query, token, key_head_, key_depth_, query_);
    Load(in_.key, token, key_head_, key_depth_, key_);
    Load(in_.value, token, head_, depth_, value_);
    const float decay = std::exp(Number(in_.decay, token, head_, 0));
    if (in_.key_decay.data != nullptr) {
      Load(in_.key_decay, token, head_, key_depth_, factor_);
      for (int64_t j = 0; j < key_depth_; ++j) factor_[j] = decay * std::exp(factor_[j]);
      for (int64_t i = 0; i < depth_; ++i) {
        for (int64_t j = 0; j < key_depth_; ++j) state_[i * stride_ + j] *= factor_[j];
      }
    } else if (decay != 1) {
      simd::ScaleRow(state_, decay, depth_ * stride_);
    }
    simd::DotKeys(key_, stride_, 1, state_, stride_, depth_, key_depth_, known_, depth_);
    const float rate = Number(in_.beta, token, head_, 1);
    for (int64_t i = 0; i < depth_; ++i) value_[i] = rate * (value_[i] - known_[i]);
    simd::AddValues(value_, 1, depth_, key_, stride_, 1, key_depth_, state_, stride_);
    simd::DotKeys(query_, stride_, 1, state_, stride_, depth_, key_depth_, known_, depth_);
    simd::ScaleRow(known_, in_.scale, depth_);
    Store(known_, token);
  }

  const DeltaRuleOperands& in_;
  const int64_t tokens_, depth_, key_depth_, stride_;
  int64_t head_ = 0, key_head_ = 0;
  float *state_, *query_, *key_, *value_, *known_, *factor_;
};

}  // namespace

int64_t DeltaRuleScratchBytes(const DeltaRuleOperands& operands) {
  return DeltaRuleHead::Floats(operands) * static_cast<int64_t>(sizeof(float));
}

void DeltaRule(const DeltaRuleOperands& operands, Range range, void* scratch) {
  DeltaRuleHead head(operands, scratch);
  for (int64_t h = range.begin; h < range.end; ++h) head.Run(h);
}

}  // namespace reprise::kernels
