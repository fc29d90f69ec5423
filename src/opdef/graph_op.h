// SPDX-License-Identifier: Apache-2.0
//
// Graph operators: operators by their type ("MatMulV2"), as compilers and the aclop* functions name them. One row of
// api/graph_ops/*.csv is one GraphOp; scripts/gen_graph_ops.py says what the columns mean.
//
// Operators by type (ops/named_ops) add the steps that compute one; a compiler of graphs adds its own. What the
// operands are called, which types they have, which attributes there are and which shape the result has, stands here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "opdef/dtype_set.h"

namespace reprise::opdef {

class InferContext;

/// A set of aclDataType numbers, also of types that no kernel computes with.
class TypeMask {
 public:
  constexpr TypeMask() = default;
  constexpr explicit TypeMask(uint64_t bits) : bits_(bits) {}
  constexpr bool Has(int32_t type) const { return type >= 0 && type < 64 && (bits_ >> type & 1) != 0; }
  constexpr bool HasAll(TypeMask other) const { return (other.bits_ & ~bits_) == 0; }
  /// The type of a set of one; -1 for other sets.
  constexpr int32_t only() const {
    if (bits_ == 0 || (bits_ & (bits_ - 1)) != 0) return -1;
    int32_t type = 0;
    while ((bits_ >> type & 1) == 0) ++type;
    return type;
  }
  /// The members that kernels know.
  DTypeSet known() const;
  /// "float32, float16".
  std::string text() const;

 private:
  uint64_t bits_ = 0;
};

/// "float16", "hifloat8", or "type 63" for a number without a name.
std::string TypeName(int32_t type);
/// Bits of one element; 0 for texts and numbers without a name.
int64_t TypeBits(int32_t type);

/// Bits of Operand::flags.
enum OperandFlag : uint8_t {
  kOptional = 1,  ///< may be left out
  kList = 2,      ///< any number of tensors
  kValue = 4,     ///< its value decides the shape of the result
  kRef = 8,       ///< output: the input `like`, written in place
  kUnnamed = 16,  ///< such an output that the prototype does not name: programs do not see it
};

/// Where the type of an output comes from.
enum class TypeSource : uint8_t {
  kPlain,      ///< its only type
  kVariable,   ///< the inputs with the same variable
  kInput,      ///< input `like`
  kAttribute,  ///< attribute `attribute`
  kPromoted,   ///< the inputs, promoted
  kRule,       ///< the rule of inference
};

struct Operand {
  std::string_view name;
  uint8_t flags = 0;
  char variable = 0;  ///< 'T' …: operands with one letter have one type; 0: a type of its own
  TypeSource source = TypeSource::kPlain;
  int8_t attribute = -1;
  int8_t like = -1;  ///< outputs: the input whose shape this has; -1: the rule says
  uint64_t bits = 0;

  constexpr bool is_optional() const { return (flags & kOptional) != 0; }
  constexpr bool is_list() const { return (flags & kList) != 0; }
  constexpr bool is_value() const { return (flags & kValue) != 0; }
  constexpr bool is_ref() const { return (flags & kRef) != 0; }
  constexpr bool is_unnamed() const { return (flags & kUnnamed) != 0; }
  /// Empty for an output that is, or is like, an input.
  constexpr TypeMask types() const { return TypeMask(bits); }
};

enum class AttributeKind : uint8_t { kBool, kInt, kFloat, kString, kType, kInts, kBools, kTensor, kFloats };

struct AttributeDef {
  std::string_view name;
  AttributeKind kind = AttributeKind::kInt;
  bool is_required = false;
  bool has_default = false;  ///< false beside !is_required: it follows from the operands
  // The default, in the member of the kind; Type and Bool have it as a number.
  int64_t number = 0;
  double real = 0;
  std::string_view text;
  std::span<const int64_t> entries;
};

/// What may differ between two runs with equal inputs.
enum class Repeatability : uint8_t {
  kFixed,   ///< nothing
  kOrder,   ///< rounding, on devices that add in any order
  kRandom,  ///< it draws numbers
  kEffect,  ///< it does something beside its outputs: it must neither be dropped nor moved
};

struct GraphOp {
  std::string_view type;
  char rank = 'C';
  Repeatability repeatability = Repeatability::kFixed;
  std::span<const Operand> inputs = {};
  std::span<const Operand> outputs = {};
  std::span<const AttributeDef> attributes = {};
  Status (*infer)(InferContext& call) = nullptr;  ///< use Infer() of infer.h, which checks and fills in the rest
  std::string_view rule = {};                     ///< its name
  std::string_view functions = {};  ///< aclnn functions that compute it, with blanks between; may be empty
  std::string_view about = {};

  const AttributeDef* FindAttribute(std::string_view name) const;
};

/// The row of a type, or null.
const GraphOp* FindGraphOp(std::string_view type);
/// All rows, in the order of the alphabet.
std::span<const GraphOp> GraphOps();

/// "x1, x2, bias?, axes#, x[]": the inputs with their marks.
std::string InputsText(const GraphOp& op);
/// "keep_dims:Bool, value:Float!": the attributes with their kinds.
std::string AttributesText(const GraphOp& op);

}  // namespace reprise::opdef
