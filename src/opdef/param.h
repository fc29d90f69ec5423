// SPDX-License-Identifier: Apache-2.0
//
// One parameter of an operator's function: what C passes, and what the operator does with it.
#pragma once

#include <cstdint>
#include <string_view>

#include "opdef/dtype_set.h"

namespace reprise::opdef {

enum class ParamKind : uint8_t {
  kTensor,
  kScalar,
  kIntArray,
  kFloatArray,
  kBoolArray,
  kTensorList,
  kScalarList,
  kInt,  // any C integer
  kBool,
  kReal,   // float, double
  kDType,  // aclDataType
  kString,
};

enum class Role : uint8_t { kInput, kOutput, kInOut, kAttribute };

struct Param {
  std::string_view name;  ///< as in the C header
  ParamKind kind = ParamKind::kTensor;
  Role role = Role::kInput;
  bool optional = false;  ///< may be null
  DTypeSet types = {};    ///< of its own, apart from the type of the computation; empty: those of the row
  /// Of an attribute: what whoever has no wish passes, as text ("1", "true", "[0,1]", "null"). Empty: there is none.
  std::string_view default_value = {};
};

// The words of tables written by hand.
constexpr Param In(std::string_view name) { return {name, ParamKind::kTensor, Role::kInput}; }
constexpr Param InList(std::string_view name) { return {name, ParamKind::kTensorList, Role::kInput}; }
/// A scalar that takes the place of a tensor operand; weakly typed.
constexpr Param ScalarIn(std::string_view name) { return {name, ParamKind::kScalar, Role::kInput}; }
constexpr Param Out(std::string_view name) { return {name, ParamKind::kTensor, Role::kOutput}; }
/// Read and written: first operand and output at once.
constexpr Param InOut(std::string_view name) { return {name, ParamKind::kTensor, Role::kInOut}; }
constexpr Param Attr(std::string_view name, ParamKind kind) { return {name, kind, Role::kAttribute}; }

}  // namespace reprise::opdef
