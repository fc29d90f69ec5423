// SPDX-License-Identifier: Apache-2.0
//
// What computes an operator: one OpSchema row for each aclnn function (opdef/function.h), or for a step of an operator
// that is called by its type.
//
// A row names the C parameters with their roles and types and refers to a Computation (computations.h), which several
// rows share: Add, Adds, InplaceAdd and InplaceAdds are one computation with four ways to pass its operands. A tensor
// or scalar with role kInput is an operand; kOutput and kInOut are written; everything else is an attribute, read by
// name.
//
// A call runs through the parts of its row in this order (op_call.h):
//     null checks and handles → types (OpSchema::types, dtype_rule) → formats → shapes (shape_rule) →
//     attributes and launches (lower)
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "opdef/function.h"

namespace reprise::ops {

class OpCall;

/// Every operator that the library implements.
using OpId = opdef::FunctionId;

// Words of the tables.
using opdef::Aliasing;
using opdef::Attr;
using opdef::DTypeSet;
using opdef::Engine;
using opdef::In;
using opdef::InList;
using opdef::InOut;
using opdef::kAllTypes;
using opdef::kBoolType;
using opdef::kByteTypes;
using opdef::kComplexTypes;
using opdef::kFloat32Type;
using opdef::kFloatingAndComplexTypes;
using opdef::kFloatingAndQuantizedTypes;
using opdef::kFloatingTypes;
using opdef::kIndexTypes;
using opdef::kInt32Type;
using opdef::kInt64Type;
using opdef::kIntegerTypes;
using opdef::kIntegralTypes;
using opdef::kMaskByteTypes;
using opdef::kMaskTypes;
using opdef::kNumericTypes;
using opdef::kQuantizedTypes;
using opdef::kRealAndBoolTypes;
using opdef::kRealTypes;
using opdef::kSingleAndHalfTypes;
using opdef::kSingleHalfAndInt8Types;
using opdef::kSolverTypes;
using opdef::kUInt8Type;
using opdef::kWideFloatingTypes;
using opdef::Out;
using opdef::Param;
using opdef::ParamKind;
using opdef::Role;
using opdef::ScalarIn;

/// Tensors that a computation takes beyond plain ones of its types: bits of Computation::takes.
enum Takes : uint8_t {
  kTakesFractals = 1,      ///< format FRACTAL_NZ, which is plain memory here
  kTakesInt4 = 2,          ///< ACL_INT4, two to a byte, where int8 is among the types
  kTakesAnyBits = 4,       ///< types that no kernel computes with, all tensors of the same one: bits are moved
  kTakesEmptyAsNull = 8,   ///< in a list: an empty tensor of a type that does not fit stands for none
  kTakesSmallFloats = 16,  ///< kernels::SmallFloat, as tensors of uint8; `lower` converts them by Operand::type_number
};

/// One thing that can be computed. Rules and `lower` get the call with everything before them checked.
struct Computation {
  Status (*dtype_rule)(OpCall& call);  ///< sets OpCall::compute; checks that the outputs can hold it
  Status (*shape_rule)(OpCall& call);  ///< checks the inputs against each other and the outputs against the result
  Aliasing aliasing = Aliasing::kNone;
  Engine engine = Engine::kVector;
  Status (*lower)(OpCall& call);  ///< checks attributes, adds launches
  uint8_t code = 0;               ///< chooses among computations that share `lower`
  uint8_t takes = 0;              ///< of Takes
};

struct OpSchema {
  OpId id;
  std::string_view name;  ///< C name "aclnnAdd", or the type of an operator called by its type: "MatMulV2"
  std::span<const Param> params;
  DTypeSet types;  ///< of every input and output that has none of its own
  const Computation& computation;

  /// "Add": what dumps show.
  std::string_view short_name() const {
    return name.starts_with("aclnn") ? name.substr(5) : name.starts_with("acl") ? name.substr(3) : name;
  }
};

/// The row of an operator.
const OpSchema& SchemaOf(OpId id);

/// By the C name; kCount: there is none.
OpId FindOp(std::string_view name);

}  // namespace reprise::ops
