// SPDX-License-Identifier: Apache-2.0
#include "kernels/scale_add.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 256;

// Signed sums wrap without being undefined.
template <class T>
T Combine(T a, T x, T b, T y) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(x) + static_cast<U>(b) * static_cast<U>(y));
  } else {
    return a * x + b * y;
  }
}

template <class T>
void Run(const TensorRef& product, const TensorRef& alpha, const TensorRef& beta, const TensorRef& out, Range range) {
  const T a = Scalar(alpha.dtype, alpha.data).As<T>();
  const T b = Scalar(beta.dtype, beta.data).As<T>();
  const CastFn load = FindCast(out.dtype, DTypeOf<T>());
  const CastFn store = FindCast(DTypeOf<T>(), out.dtype);
  const Loop loop = MakeLoop({&out, &product});
  ForEachRow(loop, range, [&](char* const* rows, const int64_t* strides, int64_t n) {
    T old[kBlock];
    T result[kBlock];
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t count = std::min(kBlock, n - first);
      char* const to = rows[0] + first * strides[0];
      const char* const from = rows[1] + first * strides[1];
      if (b != T{0}) load(to, strides[0], reinterpret_cast<char*>(old), sizeof(T), count);
      for (int64_t i = 0; i < count; ++i) {
        T x;
        std::memcpy(&x, from + i * strides[1], sizeof(T));
        result[i] = b != T{0} ? Combine(a, x, b, old[i]) : Combine(a, x, T{0}, T{0});
      }
      store(reinterpret_cast<const char*>(result), sizeof(T), to, strides[0], count);
    }
  });
}

}  // namespace

void ScaleAdd(const TensorRef& product, const TensorRef& alpha, const TensorRef& beta, const TensorRef& out,
              Range range) {
  switch (product.dtype) {
    case DType::kFloat: return Run<float>(product, alpha, beta, out, range);
    case DType::kDouble: return Run<double>(product, alpha, beta, out, range);
    case DType::kInt32: return Run<int32_t>(product, alpha, beta, out, range);
    default: std::abort();
  }
}

}  // namespace reprise::kernels
