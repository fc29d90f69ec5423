// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

#include <algorithm>
#include <cmath>

#include "kernels/cast.h"
#include "kernels/plain_rows.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 512;

template <class T>
struct Factors {
  T sign, keep, beta2, one_beta1, one_beta2, rate, root, epsilon;
};

template <bool kHasLargest, class T>
void Row(const Factors<T>& f, T* var, T* m, T* v, T* largest, const T* gradient, int64_t n) {
  REPRISE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T g = f.sign * gradient[i];
    const T first = m[i] + (g - m[i]) * f.one_beta1;
    const T second = v[i] * f.beta2 + g * g * f.one_beta2;
    T size = second;
    if constexpr (kHasLargest) {
      const T old = largest[i];
      size = (old > second) | (old != old) ? old : second;  // NOLINT: no branch
      largest[i] = size;
    }
    m[i] = first;
    v[i] = second;
    var[i] = var[i] * f.keep - f.rate * (first / (std::sqrt(size) / f.root + f.epsilon));
  }
}

// A block of an operand in row-major order as T: where it lies, or a copy.
template <class T>
class Block {
 public:
  explicit Block(const TensorRef& ref, bool is_copy = false)
      : ref_(ref),
        is_direct_(!is_copy && ref.dtype == DTypeOf<T>() && IsContiguous(ref)),
        loop_(MakeLoop({&ref}, LoopOrder::kRowMajor)) {}

  T* Load(Range range) {
    if (is_direct_) return static_cast<T*>(ref_.data) + range.begin;
    const CastFn cast = FindCast(ref_.dtype, DTypeOf<T>());
    char* to = reinterpret_cast<char*>(values_);
    ForEachRow(loop_, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
      cast(ptrs[0], strides[0], to, sizeof(T), n);
      to += n * static_cast<int64_t>(sizeof(T));
    });
    return values_;
  }
  void Store(Range range) const {
    if (is_direct_) return;
    const CastFn cast = FindCast(DTypeOf<T>(), ref_.dtype);
    const char* from = reinterpret_cast<const char*>(values_);
    ForEachRow(loop_, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
      cast(from, sizeof(T), ptrs[0], strides[0], n);
      from += n * static_cast<int64_t>(sizeof(T));
    });
  }

 private:
  const TensorRef& ref_;
  bool is_direct_;
  Loop loop_;
  alignas(64) T values_[kBlock];
};

template <class T>
void Run(const AdamWStep& step, double power1, double power2, const TensorRef* operands, Range range) {
  Factors<T> f;
  f.sign = step.maximize ? T(-1) : T(1);
  f.keep = static_cast<T>(1 - step.rate * step.decay);
  f.beta2 = static_cast<T>(step.beta2);
  f.one_beta1 = static_cast<T>(1 - step.beta1);
  f.one_beta2 = static_cast<T>(1 - step.beta2);
  f.rate = static_cast<T>(step.rate / (1 - power1));
  f.root = static_cast<T>(std::sqrt(1 - power2));
  f.epsilon = static_cast<T>(step.epsilon);
  const bool has_largest = operands[kAdamLargest].data != nullptr;
  Block<T> var(operands[kAdamVar]);
  Block<T> m(operands[kAdamM]);
  Block<T> v(operands[kAdamV]);
  Block<T> largest(operands[has_largest ? kAdamLargest : kAdamV], step.keeps_largest);
  Block<T> gradient(operands[kAdamGradient]);
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const Range block{begin, std::min(range.end, begin + kBlock)};
    const int64_t n = block.end - block.begin;
    if (has_largest) {
      Row<true>(f, var.Load(block), m.Load(block), v.Load(block), largest.Load(block), gradient.Load(block), n);
      if (!step.keeps_largest) largest.Store(block);
    } else {
      Row<false, T>(f, var.Load(block), m.Load(block), v.Load(block), nullptr, gradient.Load(block), n);
    }
    var.Store(block);
    m.Store(block);
    v.Store(block);
  }
}

}  // namespace

void AdamW(const AdamWStep& step, double power1, double power2, const TensorRef* operands, DType compute, Range range) {
  if (compute == DType::kDouble) {
    Run<double>(step, power1, power2, operands, range);
  } else {
    Run<float>(step, power1, power2, operands, range);
  }
}

}  // namespace reprise::kernels
