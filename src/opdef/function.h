// SPDX-License-Identifier: Apache-2.0
//
// The aclnn functions as data: one Function row for each, made by scripts/gen_ops.py from api/ops/*.csv and
// api/computations.csv. src/ops has what computes (op_schema.h), by the same ids. docs/design/operators.md explains the
// columns.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "opdef/param.h"

namespace reprise::opdef {

/// Every function that the library implements.
enum class FunctionId : uint16_t {
#define REPRISE_FUNCTION(id, ...) k##id,
#include "opdef/functions.def"
  kCount
};

/// Which rule chooses the type of the computation. The functions of these names are in src/ops.
enum class TypeRule : uint8_t {
#define REPRISE_TYPE_RULE(name) k##name,
#include "opdef/rules.def"
};

/// Which rule checks the shapes. The functions of these names are in src/ops.
enum class ShapeRule : uint8_t {
#define REPRISE_SHAPE_RULE(name) k##name,
#include "opdef/rules.def"
};

/// How outputs may overlap inputs.
enum class Aliasing : uint8_t {
  kNone,        ///< not at all
  kSameView,    ///< an output may be the very same view as an input of equal item size, or have one as the real or
                ///< imaginary parts of its elements
  kFirstInput,  ///< the first input alone may be that: the others are read when part of the output is written
};

/// Core that the kernels of a computation belong to, as dumps and profiles show it.
enum class Engine : uint8_t { kVector, kCube };

/// What equal arguments give from run to run. This implementation gives equal bits but for kSampling, whatever the
/// program asks for.
enum class Determinism : uint8_t {
  kAlways,    ///< equal bits
  kByOption,  ///< equal bits on a device if ACL_OPT_DETERMINISTIC says so; its sums take any order else
  kSampling,  ///< random numbers: equal bits for an equal seed and offset
};

struct Function {
  FunctionId id;
  std::string_view name;  ///< C name: "aclnnAdd"
  std::span<const Param> params;
  DTypeSet types;  ///< of every input and output that has none of its own
  TypeRule type_rule;
  ShapeRule shape_rule;
  Aliasing aliasing;
  Engine engine;
  Determinism determinism;
  std::string_view computation;  ///< that of src/ops: "kAdd"
  std::string_view graph_op;     ///< type of the graph operator that computes the same, or empty
};

/// The row of a function.
const Function& FunctionOf(FunctionId id);

/// By the C name; kCount: there is none.
FunctionId FindFunction(std::string_view name);

/// As api/computations.csv has it.
std::string_view NameOf(TypeRule rule);
std::string_view NameOf(ShapeRule rule);

}  // namespace reprise::opdef
