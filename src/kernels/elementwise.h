// SPDX-License-Identifier: Apache-2.0
//
// Element-wise functions: out[i] = f(a[i], b[i], c[i]) of one to three operands that broadcast, strided and of any
// types.
//
// An ElementFn is a function to compute; its ElementRow for a type of computation is how contiguous rows of it are
// computed. An ElementCall is a row that was looked up once together with the numbers of a call (alpha, slope, bounds);
// it runs over any layout: whatever is strided or of another type than the row takes is converted block by block, by
// the rules of cast.h. So one row function serves every layout, and no bit depends on strides, alignment or range.
//
// To add a function:
//   1. What it does with one value of type T, in FAMILY_functions.cc (numbers come to the constructor, if there is one
//      that takes them; double, complex, integers as far as it is defined):
//          template <class T>
//          struct Square {
//            T operator()(T a) const { return MulValue(a, a); }
//          };
//   2. A line there and its declaration in FAMILY_functions.h:
//          const ElementFn kSquareFn = {.inputs = 1, .find = PlainRows1<Square, FloatsAndIntegers>};
//   3. If it is worth it, a functor of vectors in simd/FAMILY_rows.cc and its line in the switch there; `find` then is
//      a function that asks there for float32, float16 and bfloat16 and calls PlainRows1 for the others.
//   4. A Computation in ops/families/FAMILY.cc, ElementwiseOf<kernels::kSquareFn>(), and a row in api/ops/FAMILY.csv.
//
// Rounding  float16 and bfloat16 compute in float32, numbers and single operands included, and round the result once.
// Aliasing  out may be the very same view as an input of equal item size; other overlap is not allowed. No two elements
//   of out may share memory.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

inline constexpr int kMaxElementInputs = kMaxOperands - 1;
inline constexpr int kMaxNumbers = 4;

/// Operands of a row function.
struct RowArgs {
  void* out = nullptr;
  const void* in[kMaxElementInputs] = {};
  const void* numbers = nullptr;  // back to back, of type ElementRow::math
};

/// Computes elements [begin, end) of contiguous operands; `args` points to RowArgs. The same element gives the same
/// bits wherever the range begins, if only at a multiple of 2 vectors (32 elements).
using RowFn = void (*)(const void* args, int64_t begin, int64_t end);

/// Type of the arithmetic on `type`: float32 for the 16-bit floats, else `type`.
constexpr DType MathDType(DType type) {
  return type == DType::kFloat16 || type == DType::kBFloat16 ? DType::kFloat : type;
}

/// How rows of a function are computed for one type of computation.
struct ElementRow {
  RowFn function = nullptr;  ///< null: the function is not defined for the type
  RowFn single = nullptr;    ///< the same, but the last input is one element of type `math` for all; null: none
  DType out = DType::kUndefined;
  DType in[kMaxElementInputs] = {};
  DType math = DType::kUndefined;  ///< of numbers and of a single input
  bool is_wide = false;            ///< `math` stands for the type of the computation, which operands pass through

  /// Everything is of type `type`.
  static ElementRow Of(DType type, RowFn function, RowFn single = nullptr) {
    return {function, single, type, {type, type, type}, MathDType(type)};
  }
};

/// A function to compute.
struct ElementFn {
  int inputs = 1;
  int cost = 1;  ///< of one element, in additions
  ElementRow (*find)(DType compute) = nullptr;
};

/// A function that was looked up, with its numbers.
struct ElementCall {
  ElementRow row;
  int inputs = 0;
  bool has_scalar = false;  ///< the last input is one element of type row.math (ToMath), for all
  DType compute = DType::kUndefined;
  alignas(16) unsigned char numbers[kMaxNumbers * 16] = {};

  ElementCall() = default;
  /// Undefined (row.function is null) where `fn` is not defined for `type`, the type of the computation.
  /// \pre at most kMaxNumbers.
  ElementCall(const ElementFn& fn, DType type, std::span<const Scalar> values = {});

  /// Elements `range` of out, which is refs[0]; the inputs follow and broadcast to it.
  void Run(const TensorRef* refs, Range range) const;

  /// A number or scalar operand as row functions take it.
  Scalar ToMath(const Scalar& value) const;

  /// Whether the last input is one element that the row function for such takes as it is.
  bool TakesSingle(const TensorRef& last) const;
};

}  // namespace reprise::kernels
