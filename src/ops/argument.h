// SPDX-License-Identifier: Apache-2.0
//
// Argument: one C argument of an operator on its way from the facade to the core.
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

  static Argument Handle(ParamKind kind, const void* handle) { return {kind, {.handle = handle}}; }
  static Argument Integer(ParamKind kind, int64_t value) { return {kind, {.integer = value}}; }
  static Argument Real(double value) { return {ParamKind::kReal, {.real = value}}; }
  static Argument Text(const char* value) { return {ParamKind::kString, {.text = value}}; }

  bool is_pointer() const { return kind <= ParamKind::kScalarList || kind == ParamKind::kString; }
};

}  // namespace reprise::ops
