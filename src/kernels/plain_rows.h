// SPDX-License-Identifier: Apache-2.0
//
// Row functions (elementwise.h) as plain loops, which the compiler vectorises, made of a functor of single values.
//
// A functor is a class template of the type T that it computes in: operator() takes one to three T (or what the Rows…
// function says) and gives a T, or a Bool. One that needs the numbers of its function has a constructor that takes
// `const T*`. PlainRows1<Functor, Types> then is an ElementFn::find; PlainRows2 and PlainRows3 take functors of two and
// three operands. Types that the list lacks compute in a wider one that it has: float16 and bfloat16 in float32, narrow
// integers in int32, uint32 in int64, complex64 in complex128; or not at all.
#pragma once

#include <type_traits>

#include "kernels/elementwise.h"

// No element depends on another one, though the output may be an input.
#if defined(__clang__)
#define REPRISE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define REPRISE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace reprise::kernels {

template <class... Ts>
struct TypeList {};

using Floats = TypeList<float, double>;
using Complexes = TypeList<std::complex<float>, std::complex<double>>;
using FloatsAndComplexes = TypeList<float, double, std::complex<float>, std::complex<double>>;
using Integers = TypeList<int32_t, int64_t, uint64_t>;  // stand for the narrower ones, too
using FloatsAndIntegers = TypeList<float, double, int32_t, int64_t, uint64_t>;
using AllNumbers = TypeList<float, double, int32_t, int64_t, uint64_t, std::complex<float>, std::complex<double>>;

/// The type that stands for `type` where a list lacks that.
constexpr DType WiderType(DType type) {
  switch (type) {
    case DType::kFloat16:
    case DType::kBFloat16: return DType::kFloat;
    case DType::kBool:
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kInt16:
    case DType::kUInt16: return DType::kInt32;
    case DType::kUInt32: return DType::kInt64;
    case DType::kComplex64: return DType::kComplex128;
    default: return DType::kUndefined;
  }
}

template <class Fn, class T>
inline Fn MakePlainFn(const void* numbers) {
  if constexpr (std::is_constructible_v<Fn, const T*>) {
    return Fn(static_cast<const T*>(numbers));
  } else {
    return Fn();
  }
}

template <template <class> class Functor, class T>
void PlainRow1(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  const auto fn = MakePlainFn<Functor<T>, T>(row.numbers);
  using Out = std::invoke_result_t<decltype(fn), T>;
  const T* a = static_cast<const T*>(row.in[0]);
  Out* out = static_cast<Out*>(row.out);
  REPRISE_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) out[i] = fn(a[i]);
}

template <template <class> class Functor, class T>
void PlainRow2(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  const auto fn = MakePlainFn<Functor<T>, T>(row.numbers);
  using Out = std::invoke_result_t<decltype(fn), T, T>;
  const T* a = static_cast<const T*>(row.in[0]);
  const T* b = static_cast<const T*>(row.in[1]);
  Out* out = static_cast<Out*>(row.out);
  REPRISE_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) out[i] = fn(a[i], b[i]);
}

template <template <class> class Functor, class T>
void PlainSingle(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  const auto fn = MakePlainFn<Functor<T>, T>(row.numbers);
  using Out = std::invoke_result_t<decltype(fn), T, T>;
  const T* a = static_cast<const T*>(row.in[0]);
  const T b = *static_cast<const T*>(row.in[1]);
  Out* out = static_cast<Out*>(row.out);
  REPRISE_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) out[i] = fn(a[i], b);
}

template <template <class> class Functor, class T>
void PlainRow3(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  const auto fn = MakePlainFn<Functor<T>, T>(row.numbers);
  using Out = std::invoke_result_t<decltype(fn), T, T, T>;
  const T* a = static_cast<const T*>(row.in[0]);
  const T* b = static_cast<const T*>(row.in[1]);
  const T* c = static_cast<const T*>(row.in[2]);
  Out* out = static_cast<Out*>(row.out);
  REPRISE_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) out[i] = fn(a[i], b[i], c[i]);
}

template <template <class> class Functor, int kInputs, class... Ts>
ElementRow FindPlainRow(DType compute, TypeList<Ts...>) {
  ElementRow found;
  const auto find = [&](DType type) {
    (
        [&]<class T>(TypeTag<T>) {
          if (type != DTypeOf<T>()) return;
          if constexpr (kInputs == 1) {
            found = ElementRow::Of(type, PlainRow1<Functor, T>);
            found.out = DTypeOf<std::invoke_result_t<Functor<T>, T>>();
          } else if constexpr (kInputs == 2) {
            found = ElementRow::Of(type, PlainRow2<Functor, T>, PlainSingle<Functor, T>);
            found.out = DTypeOf<std::invoke_result_t<Functor<T>, T, T>>();
          } else {
            found = ElementRow::Of(type, PlainRow3<Functor, T>);
            found.out = DTypeOf<std::invoke_result_t<Functor<T>, T, T, T>>();
          }
        }(TypeTag<Ts>()),
        ...);
  };
  find(compute);
  if (found.function == nullptr) {
    find(WiderType(compute));
    found.is_wide = true;
  }
  return found;
}

template <template <class> class Functor, class Types>
ElementRow PlainRows1(DType compute) {
  return FindPlainRow<Functor, 1>(compute, Types());
}
template <template <class> class Functor, class Types>
ElementRow PlainRows2(DType compute) {
  return FindPlainRow<Functor, 2>(compute, Types());
}
template <template <class> class Functor, class Types>
ElementRow PlainRows3(DType compute) {
  return FindPlainRow<Functor, 3>(compute, Types());
}

/// For functions whose low bits depend on the low bits of the operands alone: an unsigned type uses the row of the
/// signed one. \pre `Types` has all signed integers.
template <template <class> class Functor, class Types>
ElementRow WrappingRows2(DType compute) {
  const auto signed_type = [compute] {
    switch (compute) {
      case DType::kUInt8: return DType::kInt8;
      case DType::kUInt16: return DType::kInt16;
      case DType::kUInt32: return DType::kInt32;
      case DType::kUInt64: return DType::kInt64;
      default: return compute;
    }
  }();
  const ElementRow row = FindPlainRow<Functor, 2>(signed_type, Types());
  return signed_type == compute ? row : ElementRow::Of(compute, row.function, row.single);
}

}  // namespace reprise::kernels
