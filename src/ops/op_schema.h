// SPDX-License-Identifier: Apache-2.0
//
// What an operator is, as data: one OpSchema row for each aclnn operator, generated from api/ops/*.csv.
//
// A row names the C parameters with their roles and types and refers to a Computation (computations.h), which several
// rows share: Add, Adds, InplaceAdd and InplaceAdds are one computation with four ways to pass its operands. A tensor
// or scalar with role kInput is an operand; kOutput and kInOut are written; everything else is an attribute, read by
// name.
//
// A call runs through the parts of its row in this order (op_call.h):
//     null checks and handles → types (OpSchema::types, dtype_rule) → formats → shapes (shape_rule) →
//     attributes and launches (plan)
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/status.h"
#include "kernels/dtype.h"

namespace reprise::ops {

class OpCall;

/// Every operator that the library implements; op_ids.def is generated from api/ops/*.csv.
enum class OpId : uint16_t {
#define REPRISE_OP(id, ...) k##id,
#include "ops/op_ids.def"
  kCount
};

/// A set of element types.
class DTypeSet {
 public:
  constexpr DTypeSet() = default;
  constexpr DTypeSet(std::initializer_list<kernels::DType> types) {
    for (kernels::DType type : types) bits_ |= 1u << kernels::DTypeIndex(type);
  }
  static constexpr DTypeSet All() {
    DTypeSet all;
    all.bits_ = (1u << kernels::kAllDTypes.size()) - 1;
    return all;
  }
  constexpr bool Has(kernels::DType type) const {
    return kernels::IsKnown(type) && (bits_ >> kernels::DTypeIndex(type) & 1) != 0;
  }
  constexpr DTypeSet Without(DTypeSet other) const {
    DTypeSet rest;
    rest.bits_ = bits_ & ~other.bits_;
    return rest;
  }
  constexpr DTypeSet With(DTypeSet other) const {
    DTypeSet both;
    both.bits_ = bits_ | other.bits_;
    return both;
  }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr bool operator==(DTypeSet, DTypeSet) = default;

 private:
  uint32_t bits_ = 0;
};

// The sets that api/ops/*.csv name.
inline constexpr DTypeSet kAllTypes = DTypeSet::All();
inline constexpr DTypeSet kFloatingTypes = {kernels::DType::kFloat, kernels::DType::kFloat16, kernels::DType::kBFloat16,
                                            kernels::DType::kDouble};
inline constexpr DTypeSet kComplexTypes = {kernels::DType::kComplex64, kernels::DType::kComplex128};
inline constexpr DTypeSet kNumericTypes = kAllTypes.Without({kernels::DType::kBool});
inline constexpr DTypeSet kRealTypes = kNumericTypes.Without(kComplexTypes);
inline constexpr DTypeSet kRealAndBoolTypes = kAllTypes.Without(kComplexTypes);
inline constexpr DTypeSet kFloatingAndComplexTypes = kFloatingTypes.With(kComplexTypes);
inline constexpr DTypeSet kIntegralTypes = kRealAndBoolTypes.Without(kFloatingTypes);
inline constexpr DTypeSet kIntegerTypes = kRealTypes.Without(kFloatingTypes);
inline constexpr DTypeSet kIndexTypes = {kernels::DType::kInt32, kernels::DType::kInt64};
inline constexpr DTypeSet kMaskTypes = {kernels::DType::kBool, kernels::DType::kUInt8};
inline constexpr DTypeSet kByteTypes = {kernels::DType::kInt8, kernels::DType::kUInt8};
inline constexpr DTypeSet kBoolType = {kernels::DType::kBool};
inline constexpr DTypeSet kSolverTypes = {kernels::DType::kFloat, kernels::DType::kDouble, kernels::DType::kComplex64,
                                          kernels::DType::kComplex128};
inline constexpr DTypeSet kQuantizedTypes = {kernels::DType::kInt8, kernels::DType::kInt32};
inline constexpr DTypeSet kFloatingAndQuantizedTypes = kFloatingTypes.With(kQuantizedTypes);
inline constexpr DTypeSet kInt32Type = {kernels::DType::kInt32};
inline constexpr DTypeSet kInt64Type = {kernels::DType::kInt64};
inline constexpr DTypeSet kWideFloatingTypes = {kernels::DType::kFloat, kernels::DType::kDouble};
inline constexpr DTypeSet kUInt8Type = {kernels::DType::kUInt8};
inline constexpr DTypeSet kFloat32Type = {kernels::DType::kFloat};
inline constexpr DTypeSet kSingleAndHalfTypes = {kernels::DType::kFloat, kernels::DType::kFloat16,
                                                 kernels::DType::kBFloat16};
inline constexpr DTypeSet kMaskByteTypes = {kernels::DType::kBool, kernels::DType::kInt8, kernels::DType::kUInt8};

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

/// How outputs may overlap inputs.
enum class Aliasing : uint8_t {
  kNone,        ///< not at all
  kSameView,    ///< an output may be the very same view as an input of equal item size
  kFirstInput,  ///< the first input alone may be that: the others are read when part of the output is written
};

/// Tensors that a computation takes beyond plain ones of its types: bits of Computation::takes.
enum Takes : uint8_t {
  kTakesFractals = 1,     ///< format FRACTAL_NZ, which is plain memory here
  kTakesInt4 = 2,         ///< ACL_INT4, two to a byte, where int8 is among the types
  kTakesAnyBits = 4,      ///< types that no kernel computes with, all tensors of the same one: bits are moved
  kTakesEmptyAsNull = 8,  ///< in a list: an empty tensor of a type that does not fit stands for none
};

/// Core that the kernels of a computation belong to, as dumps and profiles show it.
enum class Engine : uint8_t { kVector, kCube };

/// One thing that can be computed. Rules and `plan` get the call with everything before them checked.
struct Computation {
  Status (*dtype_rule)(OpCall& call);  ///< sets OpCall::compute; checks that the outputs can hold it
  Status (*shape_rule)(OpCall& call);  ///< checks the inputs against each other and the outputs against the result
  Aliasing aliasing = Aliasing::kNone;
  Engine engine = Engine::kVector;
  Status (*plan)(OpCall& call);  ///< checks attributes, adds launches
  uint8_t code = 0;              ///< chooses among computations that share `plan`
  uint8_t takes = 0;             ///< of Takes
};

struct OpSchema {
  OpId id;
  std::string_view name;  ///< C name "aclnnAdd", or the type of an operator called by its type: "MatMulV2"
  std::span<const Param> params;
  DTypeSet types;  ///< of every input and output that has none of its own
  const Computation& computation;

  /// "Add": what dumps show.
  std::string_view short_name() const { return name.starts_with("aclnn") ? name.substr(5) : name; }
};

/// The row of an operator.
const OpSchema& SchemaOf(OpId id);

/// By the C name; kCount: there is none.
OpId FindOp(std::string_view name);

}  // namespace reprise::ops
