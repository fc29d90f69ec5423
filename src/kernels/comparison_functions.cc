// SPDX-License-Identifier: Apache-2.0
#include "kernels/comparison_functions.h"

#include <cmath>

#include "kernels/plain_rows.h"
#include "kernels/simd/comparison_rows.h"

namespace reprise::kernels {
namespace {

using simd::ComparisonRow;

using OrderedTypes = TypeList<float, double, int32_t, int64_t, uint64_t, Bool>;
using EveryType = TypeList<float, double, int32_t, int64_t, uint64_t, Bool, std::complex<float>, std::complex<double>>;

// A bool as a number that compares, whatever its byte.
template <class T>
auto Value(T a) {
  if constexpr (std::is_same_v<T, Bool>) {
    return static_cast<uint8_t>(a.byte != 0);
  } else {
    return a;
  }
}

template <class T>
struct Eq {
  Bool operator()(T a, T b) const { return Bool(Value(a) == Value(b)); }
};
template <class T>
struct Ne {
  Bool operator()(T a, T b) const { return Bool(Value(a) != Value(b)); }
};
template <class T>
struct Lt {
  Bool operator()(T a, T b) const { return Bool(Value(a) < Value(b)); }
};
template <class T>
struct Le {
  Bool operator()(T a, T b) const { return Bool(Value(a) <= Value(b)); }
};
template <class T>
struct Gt {
  Bool operator()(T a, T b) const { return Bool(Value(a) > Value(b)); }
};
template <class T>
struct Ge {
  Bool operator()(T a, T b) const { return Bool(Value(a) >= Value(b)); }
};

using OtherTypes = TypeList<double, uint64_t, Bool, std::complex<float>, std::complex<double>>;
using OtherOrderedTypes = TypeList<double, uint64_t, Bool>;

// Vector rows of the types that have some and of those that convert to them, plain loops over `Others`.
template <ComparisonRow kRow, template <class> class Functor, class Others>
ElementRow Find(DType compute) {
  ElementRow row = simd::FindComparisonRow(kRow, compute);
  if (row.function != nullptr) return row;
  row = PlainRows2<Functor, Others>(compute);
  if (row.function != nullptr && !row.is_wide) return row;
  row = simd::FindComparisonRow(kRow, WiderType(compute));
  row.is_wide = true;
  return row;
}

template <class T>
auto RealOf(T a) {
  if constexpr (kIsComplex<T>) {
    return a.real();
  } else {
    return a;
  }
}

template <class T>
bool IsNan(T a) {
  return a != a;
}

template <class T>
struct IsClose {
  explicit IsClose(const T* numbers)
      : relative(numbers[0]), absolute(RealOf(numbers[1])), equal_nan(RealOf(numbers[2]) != 0) {}
  Bool operator()(T a, T b) const {
    if (a == b) return Bool(true);
    if (equal_nan && IsNan(a) && IsNan(b)) return Bool(true);
    const auto error = std::abs(a - b);
    return Bool(std::isfinite(error) && error <= absolute + std::abs(relative * b));
  }
  T relative;
  decltype(RealOf(T())) absolute;
  bool equal_nan;
};

template <class T>
struct IsFinite {
  Bool operator()(T a) const {
    if constexpr (kIsComplex<T>) {
      return Bool(std::isfinite(a.real()) && std::isfinite(a.imag()));
    } else if constexpr (std::is_floating_point_v<T>) {
      return Bool(std::abs(a) <= std::numeric_limits<T>::max());
    } else {
      return Bool(true);
    }
  }
};
template <class T>
struct IsPosInf {
  Bool operator()(T a) const {
    if constexpr (std::is_floating_point_v<T>) {
      return Bool(a == std::numeric_limits<T>::infinity());
    } else {
      return Bool(false);
    }
  }
};
template <class T>
struct IsNegInf {
  Bool operator()(T a) const {
    if constexpr (std::is_floating_point_v<T>) {
      return Bool(a == -std::numeric_limits<T>::infinity());
    } else {
      return Bool(false);
    }
  }
};

template <class T>
struct LogicalNot {
  Bool operator()(T a) const { return Bool(a.byte == 0); }
};

// Bools are bytes of 0 and 1 here: `Value` has seen to that.
template <class T>
T FromBits(auto bits) {
  if constexpr (std::is_same_v<T, Bool>) {
    return Bool((bits & 1) != 0);
  } else {
    return static_cast<T>(bits);
  }
}
template <class T>
struct And {
  T operator()(T a, T b) const { return FromBits<T>(Value(a) & Value(b)); }
};
template <class T>
struct Or {
  T operator()(T a, T b) const { return FromBits<T>(Value(a) | Value(b)); }
};
template <class T>
struct Xor {
  T operator()(T a, T b) const { return FromBits<T>(Value(a) ^ Value(b)); }
};
template <class T>
struct Not {
  T operator()(T a) const { return FromBits<T>(~Value(a)); }
};

using BitTypes = TypeList<int8_t, int16_t, int32_t, int64_t, Bool>;
using BoolAlone = TypeList<Bool>;

ElementRow FindNot(DType compute) {
  return PlainRows1<Not, TypeList<int8_t, int16_t, int32_t, int64_t, uint64_t, Bool>>(compute);
}

// ---- Choice ----

void WhereComplex128(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  const auto* condition = static_cast<const uint8_t*>(row.in[0]);
  const auto* a = static_cast<const std::complex<double>*>(row.in[1]);
  const auto* b = static_cast<const std::complex<double>*>(row.in[2]);
  auto* out = static_cast<std::complex<double>*>(row.out);
  for (int64_t i = begin; i < end; ++i) out[i] = condition[i] != 0 ? a[i] : b[i];
}

ElementRow FindWhere(DType compute) {
  const RowFn function = compute == DType::kComplex128 ? WhereComplex128 : simd::FindWhereRow(ItemSize(compute));
  ElementRow row = ElementRow::Of(compute, function);
  row.in[0] = DType::kBool;
  row.math = compute;
  return row;
}

}  // namespace

const ElementFn kEqFn = {.inputs = 2, .find = Find<ComparisonRow::kEq, Eq, OtherTypes>};
const ElementFn kNeFn = {.inputs = 2, .find = Find<ComparisonRow::kNe, Ne, OtherTypes>};
const ElementFn kLtFn = {.inputs = 2, .find = Find<ComparisonRow::kLt, Lt, OtherOrderedTypes>};
const ElementFn kLeFn = {.inputs = 2, .find = Find<ComparisonRow::kLe, Le, OtherOrderedTypes>};
const ElementFn kGtFn = {.inputs = 2, .find = Find<ComparisonRow::kGt, Gt, OtherOrderedTypes>};
const ElementFn kGeFn = {.inputs = 2, .find = Find<ComparisonRow::kGe, Ge, OtherOrderedTypes>};
const ElementFn kIsCloseFn = {.inputs = 2, .cost = 4, .find = PlainRows2<IsClose, FloatsAndComplexes>};
const ElementFn kIsFiniteFn = {.inputs = 1, .find = PlainRows1<IsFinite, EveryType>};
const ElementFn kIsPosInfFn = {.inputs = 1, .find = PlainRows1<IsPosInf, OrderedTypes>};
const ElementFn kIsNegInfFn = {.inputs = 1, .find = PlainRows1<IsNegInf, OrderedTypes>};
const ElementFn kLogicalAndFn = {.inputs = 2, .find = PlainRows2<And, BoolAlone>};
const ElementFn kLogicalOrFn = {.inputs = 2, .find = PlainRows2<Or, BoolAlone>};
const ElementFn kLogicalXorFn = {.inputs = 2, .find = PlainRows2<Xor, BoolAlone>};
const ElementFn kLogicalNotFn = {.inputs = 1, .find = PlainRows1<LogicalNot, BoolAlone>};
const ElementFn kAndFn = {.inputs = 2, .find = WrappingRows2<And, BitTypes>};
const ElementFn kOrFn = {.inputs = 2, .find = WrappingRows2<Or, BitTypes>};
const ElementFn kXorFn = {.inputs = 2, .find = WrappingRows2<Xor, BitTypes>};
const ElementFn kNotFn = {.inputs = 1, .find = FindNot};
const ElementFn kWhereFn = {.inputs = 3, .find = FindWhere};

}  // namespace reprise::kernels
