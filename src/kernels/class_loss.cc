// SPDX-License-Identifier: Apache-2.0
#include "kernels/class_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/normalize.h"
#include "kernels/simd/rows.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kChunk = 512;

void ExpRow(float* x, int64_t n) { simd::ExpShiftedRow(x, 0.0f, n); }
void ExpRow(double* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = std::exp(x[i]);
}

// One element after the other, converted.
template <class T>
class Elements {
 public:
  explicit Elements(const TensorRef& ref)
      : data_(static_cast<const char*>(ref.data)),
        stride_(ref.rank == 0 ? 0 : ref.strides[ref.rank - 1] * ItemSize(ref.dtype)),
        load_(FindCast(ref.dtype, DTypeOf<T>())) {}

  /// Element i of the last dim, from `base` on.
  T At(const char* base, int64_t i) const {
    T value;
    load_(base + i * stride_, 0, reinterpret_cast<char*>(&value), sizeof(T), 1);
    return value;
  }
  T At(int64_t i) const { return At(data_, i); }

 private:
  const char* data_;
  int64_t stride_;
  CastFn load_;
};

// The weight of a class.
template <class T>
class Weights {
 public:
  explicit Weights(const TensorRef* ref) : is_given_(ref != nullptr), elements_(ref != nullptr ? *ref : One()) {}
  bool is_given() const { return is_given_; }
  T Of(int64_t target) const { return is_given_ ? elements_.At(target) : T{1}; }

 private:
  static const TensorRef& One() {
    static const TensorRef one = MakeContiguous(nullptr, DTypeOf<T>(), {0});
    return one;
  }
  bool is_given_;
  Elements<T> elements_;
};

TensorRef WithoutLast(const TensorRef& ref) {
  TensorRef samples = ref;
  if (samples.rank != 0) --samples.rank;
  return samples;
}

int64_t ClassesOf(const TensorRef& scores) { return scores.sizes[scores.rank - 1]; }

// Calls fn(sample, target, address of the sample's first score) in order. The scores of targets further on are fetched
// ahead with kFetchesAhead: each lies in a line of its own.
template <bool kFetchesAhead = false, class Fn>
void ForEachSample(const TensorRef& scores, const TensorRef& target, Range range, Fn fn) {
  constexpr int64_t kAhead = 12;
  const auto step = static_cast<uintptr_t>(scores.strides[scores.rank - 1] * ItemSize(scores.dtype));
  const TensorRef samples = WithoutLast(scores);
  const Loop loop = MakeLoop({&samples}, LoopOrder::kRowMajor);
  const Staged<int64_t> targets(target);
  int64_t buffer[kChunk];
  for (int64_t begin = range.begin; begin < range.end; begin += kChunk) {
    const int64_t n = std::min(kChunk, range.end - begin);
    const int64_t* at = targets.Read(begin, n, buffer);
    int64_t sample = begin;
    ForEachRow(loop, {begin, begin + n}, [&](char* const* ptrs, const int64_t* strides, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        if (kFetchesAhead && i + kAhead < count) {
          const auto row = reinterpret_cast<uintptr_t>(ptrs[0]) + static_cast<uintptr_t>((i + kAhead) * strides[0]);
          __builtin_prefetch(reinterpret_cast<const void*>(row + static_cast<uintptr_t>(at[kAhead]) * step));
        }
        fn(sample++, *at++, ptrs[0] + i * strides[0]);
      }
    });
  }
}

template <class T>
void StoreOne(const TensorRef& ref, const Loop& loop, int64_t at, T value) {
  ForEachRow(loop, {at, at + 1}, [&](char* const* ptrs, const int64_t*, int64_t) {
    FindCast(DTypeOf<T>(), ref.dtype)(reinterpret_cast<const char*>(&value), 0, ptrs[0], 0, 1);
  });
}

// Where the losses of single samples go, if anywhere.
template <class T>
class SampleOut {
 public:
  explicit SampleOut(const TensorRef* ref) : ref_(ref) {
    if (ref_ != nullptr) loop_ = MakeLoop({ref_}, LoopOrder::kRowMajor);
  }
  void Put(int64_t sample, T value) const {
    if (ref_ != nullptr) StoreOne(*ref_, loop_, sample, value);
  }

 private:
  const TensorRef* ref_;
  Loop loop_;
};

template <class T>
void NllOf(const ClassOperands& operands, const TensorRef* out, ClassSums& sums, Range range) {
  const int64_t classes = ClassesOf(*operands.scores);
  const Elements<T> scores(*operands.scores);
  const Weights<T> weights(operands.weight);
  const SampleOut<T> losses(out);
  ForEachSample<true>(*operands.scores, *operands.target, range, [&](int64_t sample, int64_t target, const char* at) {
    if (target == operands.ignored) return losses.Put(sample, 0);
    if (target < 0 || target >= classes) {
      sums.loss.Add(std::numeric_limits<double>::quiet_NaN());
      return losses.Put(sample, std::numeric_limits<T>::quiet_NaN());
    }
    const T weight = weights.Of(target);
    const T loss = -weight * scores.At(at, target);
    sums.loss.Add(static_cast<double>(loss));
    sums.weight.Add(static_cast<double>(weight));
    losses.Put(sample, loss);
  });
}

template <class T>
void NllGradOf(const ClassOperands& operands, const TensorRef& grad, double divisor, const TensorRef& out,
               Range range) {
  const int64_t classes = ClassesOf(out);
  const Weights<T> weights(operands.weight);
  const Elements<T> grads(grad);
  const Staged<T> places(grad);  // of images
  const bool is_single = grad.rank == 0 || ElementCount(grad) == 1;
  const CastFn store = FindCast(DTypeOf<T>(), out.dtype);
  const int64_t step = out.strides[out.rank - 1] * ItemSize(out.dtype);
  const T zero = 0;
  ForEachSample(out, *operands.target, range, [&](int64_t sample, int64_t target, char* at) {
    store(reinterpret_cast<const char*>(&zero), 0, at, step, classes);
    if (target == operands.ignored || target < 0 || target >= classes) return;
    T buffer;
    const T own = grad.rank > 1 && !is_single ? *places.Read(sample, 1, &buffer) : grads.At(is_single ? 0 : sample);
    const T value = static_cast<T>(-weights.Of(target) * own / static_cast<T>(divisor));
    store(reinterpret_cast<const char*>(&value), 0, at + target * step, 0, 1);
  });
}

template <class T>
T WeightedSum(const T* x, const Weights<T>& weights, int64_t n) {
  LongSum sum;
  for (int64_t c = 0; c < n; ++c) sum.Add(static_cast<double>(weights.Of(c) * x[c]));
  return static_cast<T>(sum.Value());
}

template <class T>
void CrossEntropyOf(const ClassOperands& operands, const TensorRef& log_prob, const TensorRef* out, ClassSums& sums,
                    void* scratch, Range range) {
  const int64_t classes = ClassesOf(*operands.scores);
  Arena arena(scratch);
  const Staged<T> scores(*operands.scores);
  const Staged<T> target_rows(log_prob);
  T* x_buffer = arena.Take<T>(classes);
  T* q_buffer = arena.Take<T>(classes);
  const Weights<T> weights(operands.weight);
  const SampleOut<T> losses(out);
  const T smoothing = static_cast<T>(operands.smoothing);
  ForEachSample(*operands.scores, *operands.target, range, [&](int64_t sample, int64_t target, const char*) {
    T* q = target_rows.Target(sample * classes, q_buffer);
    LogSoftmaxOfRows(scores.Read(sample * classes, classes, x_buffer), q, 1, classes);
    target_rows.Write(sample * classes, classes, q_buffer);
    if (target == operands.ignored) return losses.Put(sample, 0);
    if (target < 0 || target >= classes) {
      sums.loss.Add(std::numeric_limits<double>::quiet_NaN());
      return losses.Put(sample, std::numeric_limits<T>::quiet_NaN());
    }
    const T weight = weights.Of(target);
    const T loss = -weight * q[target];
    const T smooth = smoothing != 0 ? -WeightedSum(q, weights, classes) : T{0};
    sums.loss.Add(static_cast<double>(loss));
    sums.weight.Add(static_cast<double>(weight));
    sums.smooth.Add(static_cast<double>(smooth));
    losses.Put(sample, (1 - smoothing) * loss + smoothing / static_cast<T>(classes) * smooth);
  });
}

template <class T>
void CrossEntropyGradOf(const ClassOperands& operands, const TensorRef& grad, double divisor, const TensorRef& out,
                        void* scratch, Range range) {
  const int64_t classes = ClassesOf(*operands.scores);
  Arena arena(scratch);
  const Staged<T> log_prob(*operands.scores);
  const Staged<T> result(out);
  T* q_buffer = arena.Take<T>(classes);
  T* x_buffer = arena.Take<T>(classes);
  const Weights<T> weights(operands.weight);
  const Elements<T> grads(grad);
  const bool is_single = grad.rank == 0 || ElementCount(grad) == 1;
  const T smoothing = static_cast<T>(operands.smoothing);
  const T share = smoothing / static_cast<T>(classes);
  T all_weights = static_cast<T>(classes);
  if (smoothing != 0 && weights.is_given()) {
    all_weights = 0;
    for (int64_t c = 0; c < classes; ++c) all_weights += weights.Of(c);
  }
  ForEachSample(*operands.scores, *operands.target, range, [&](int64_t sample, int64_t target, const char*) {
    T* dx = result.Target(sample * classes, x_buffer);
    if (target == operands.ignored || target < 0 || target >= classes) {
      std::fill_n(dx, classes, T{0});
      return result.Write(sample * classes, classes, x_buffer);
    }
    const T g = grads.At(is_single ? 0 : sample) / static_cast<T>(divisor);
    const T own = (1 - smoothing) * weights.Of(target);
    const T factor = g * (own + share * all_weights);
    const T* q = log_prob.Read(sample * classes, classes, q_buffer);
    std::copy_n(q, classes, dx);
    ExpRow(dx, classes);
    for (int64_t c = 0; c < classes; ++c) dx[c] *= factor;
    dx[target] -= g * own;
    if (smoothing != 0) {
      for (int64_t c = 0; c < classes; ++c) dx[c] -= g * share * weights.Of(c);
    }
    result.Write(sample * classes, classes, x_buffer);
  });
}

template <class T>
void SoftmaxCrossOf(const TensorRef& scores, const TensorRef& labels, const TensorRef& loss, const TensorRef& backprop,
                    void* scratch, Range range) {
  const int64_t classes = ClassesOf(scores);
  Arena arena(scratch);
  const Staged<T> x(scores), y(labels), result(backprop);
  T* x_buffer = arena.Take<T>(classes);
  T* y_buffer = arena.Take<T>(classes);
  T* dx_buffer = arena.Take<T>(classes);
  const SampleOut<T> losses(&loss);
  for (int64_t row = range.begin; row < range.end; ++row) {
    T* dx = result.Target(row * classes, dx_buffer);
    LogSoftmaxOfRows(x.Read(row * classes, classes, x_buffer), dx, 1, classes);
    const T* label = y.Read(row * classes, classes, y_buffer);
    LongSum sum;
    for (int64_t c = 0; c < classes; ++c) {
      if (label[c] != 0) sum.Add(-static_cast<double>(label[c] * dx[c]));
    }
    ExpRow(dx, classes);
    for (int64_t c = 0; c < classes; ++c) dx[c] -= label[c];
    result.Write(row * classes, classes, dx_buffer);
    losses.Put(row, static_cast<T>(sum.Value()));
  }
}

template <class Fn>
void DispatchMath(DType compute, Fn&& fn) {
  if (compute == DType::kDouble) {
    fn(TypeTag<double>{});
  } else {
    fn(TypeTag<float>{});
  }
}

}  // namespace

void Nll(const ClassOperands& operands, DType compute, const TensorRef* out, ClassSums& sums, Range range) {
  DispatchMath(compute, [&]<class T>(TypeTag<T>) { NllOf<T>(operands, out, sums, range); });
}

void NllGrad(const ClassOperands& operands, const TensorRef& grad, double divisor, DType compute, const TensorRef& out,
             Range range) {
  DispatchMath(compute, [&]<class T>(TypeTag<T>) { NllGradOf<T>(operands, grad, divisor, out, range); });
}

int64_t ClassScratchBytes(int64_t classes, DType compute) {
  return 3 * Arena::BytesFor(classes * (compute == DType::kDouble ? 8 : 4));
}

void CrossEntropy(const ClassOperands& operands, DType compute, const TensorRef& log_prob, const TensorRef* out,
                  ClassSums& sums, void* scratch, Range range) {
  DispatchMath(compute, [&]<class T>(TypeTag<T>) { CrossEntropyOf<T>(operands, log_prob, out, sums, scratch, range); });
}

void CrossEntropyGrad(const ClassOperands& operands, const TensorRef& grad, double divisor, DType compute,
                      const TensorRef& out, void* scratch, Range range) {
  DispatchMath(compute,
               [&]<class T>(TypeTag<T>) { CrossEntropyGradOf<T>(operands, grad, divisor, out, scratch, range); });
}

double SumOfTargetWeights(const ClassOperands& operands, DType compute, Range range) {
  LongSum sum;
  DispatchMath(compute, [&]<class T>(TypeTag<T>) {
    const int64_t classes = ClassesOf(*operands.scores);
    const Weights<T> weights(operands.weight);
    ForEachSample(*operands.scores, *operands.target, range, [&](int64_t, int64_t target, const char*) {
      if (target == operands.ignored || target < 0 || target >= classes) return;
      sum.Add(static_cast<double>(weights.Of(target)));
    });
  });
  return sum.Value();
}

void SoftmaxCross(const TensorRef& scores, const TensorRef& labels, DType compute, const TensorRef& loss,
                  const TensorRef& backprop, void* scratch, Range range) {
  DispatchMath(compute,
               [&]<class T>(TypeTag<T>) { SoftmaxCrossOf<T>(scores, labels, loss, backprop, scratch, range); });
}

}  // namespace reprise::kernels
