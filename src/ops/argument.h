// SPDX-License-Identifier: Apache-2.0
//
// Argument: one argument of an operator on its way into the core: from the C functions, which have handles, or from
// include/reprise/operator.h, which has the objects themselves.
#pragma once

#include <cstdint>

#include "ops/op_schema.h"

namespace reprise::ops {

struct Argument {
  ParamKind kind;
  union {
    const void* handle;  ///< tensor, scalar, array, list
    int64_t integer;     ///< kInt, kBool, kDType
    double real;         ///< kReal
    const char* text;    ///< kString
  };
  /// `handle` is a Tensor*, kernels::Scalar*, or a std::vector of those or of numbers.
  bool is_object = false;

  static Argument Handle(ParamKind kind, const void* handle) { return {kind, {.handle = handle}}; }
  static Argument Object(ParamKind kind, const void* object) { return {kind, {.handle = object}, true}; }
  static Argument Integer(ParamKind kind, int64_t value) { return {kind, {.integer = value}}; }
  static Argument Real(double value) { return {ParamKind::kReal, {.real = value}}; }
  static Argument Text(const char* value) { return {ParamKind::kString, {.text = value}}; }

  bool is_pointer() const { return kind <= ParamKind::kScalarList || kind == ParamKind::kString; }
};

}  // namespace reprise::ops
