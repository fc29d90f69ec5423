// SPDX-License-Identifier: Apache-2.0
#include "opdef/graph_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "opdef/infer_rules.h"

namespace reprise::opdef {
namespace {

#include "opdef/graph_ops/activation.def"
#include "opdef/graph_ops/attention.def"
#include "opdef/graph_ops/collective.def"
#include "opdef/graph_ops/convolution.def"
#include "opdef/graph_ops/detection.def"
#include "opdef/graph_ops/elementwise.def"
#include "opdef/graph_ops/foreach.def"
#include "opdef/graph_ops/indexing.def"
#include "opdef/graph_ops/matmul.def"
#include "opdef/graph_ops/movement.def"
#include "opdef/graph_ops/normalization.def"
#include "opdef/graph_ops/quantization.def"
#include "opdef/graph_ops/random.def"
#include "opdef/graph_ops/recurrent.def"
#include "opdef/graph_ops/reduction.def"
#include "opdef/graph_ops/routing.def"
#include "opdef/graph_ops/training.def"

constexpr GraphOp kGraphOps[] = {
#include "opdef/graph_ops/graph_ops.def"
};
static_assert(std::is_sorted(std::begin(kGraphOps), std::end(kGraphOps),
                             [](const GraphOp& a, const GraphOp& b) { return a.type < b.type; }),
              "FindGraphOp searches by halves");

struct TypeWords {
  int32_t number;
  int64_t bits;
  std::string_view name;
};
// Types beyond those that kernels::Name knows.
constexpr TypeWords kOtherTypes[] = {
    {13, 0, "string"},      {18, 8, "qint8"},       {19, 16, "qint16"},     {20, 32, "qint32"},
    {21, 8, "quint8"},      {22, 16, "quint16"},    {28, 0, "undefined"},   {29, 4, "int4"},
    {30, 1, "uint1"},       {34, 8, "hifloat8"},    {35, 8, "float8_e5m2"}, {36, 8, "float8_e4m3fn"},
    {37, 8, "float8_e8m0"}, {40, 4, "float4_e2m1"}, {41, 4, "float4_e1m2"},
};
const TypeWords* FindWords(int32_t type) {
  const auto* found = std::find_if(std::begin(kOtherTypes), std::end(kOtherTypes),
                                   [&](const TypeWords& w) { return w.number == type; });
  return found != std::end(kOtherTypes) ? found : nullptr;
}

}  // namespace

DTypeSet TypeMask::known() const {
  DTypeSet set;
  for (const kernels::DType type : kernels::kAllDTypes) {
    if (Has(static_cast<int32_t>(type))) set = set.With({type});
  }
  return set;
}

std::string TypeMask::text() const {
  std::string out;
  for (int32_t type = 0; type < 64; ++type) {
    if (Has(type)) out.append(out.empty() ? "" : ", ").append(TypeName(type));
  }
  return out;
}

std::string TypeName(int32_t type) {
  const auto known = static_cast<kernels::DType>(type);
  if (kernels::IsKnown(known)) return std::string(kernels::Name(known));
  const TypeWords* words = FindWords(type);
  return words != nullptr ? std::string(words->name) : type == -1 ? "undefined" : fmt::format("type {}", type);
}

int64_t TypeBits(int32_t type) {
  const auto known = static_cast<kernels::DType>(type);
  if (kernels::IsKnown(known)) return 8 * kernels::ItemSize(known);
  const TypeWords* words = FindWords(type);
  return words != nullptr ? words->bits : 0;
}

const AttributeDef* GraphOp::FindAttribute(std::string_view name) const {
  const auto found =
      std::find_if(attributes.begin(), attributes.end(), [&](const AttributeDef& known) { return known.name == name; });
  return found != attributes.end() ? &*found : nullptr;
}

const GraphOp* FindGraphOp(std::string_view type) {
  const auto* found = std::lower_bound(std::begin(kGraphOps), std::end(kGraphOps), type,
                                       [](const GraphOp& row, std::string_view wanted) { return row.type < wanted; });
  return found != std::end(kGraphOps) && found->type == type ? found : nullptr;
}

std::span<const GraphOp> GraphOps() { return kGraphOps; }

std::string InputsText(const GraphOp& op) {
  std::string out;
  for (const Operand& input : op.inputs) {
    out += fmt::format("{}{}{}{}", out.empty() ? "" : ", ", input.name, input.is_value() ? "#" : "",
                       input.is_list()       ? "[]"
                       : input.is_optional() ? "?"
                                             : "");
  }
  return out;
}

std::string AttributesText(const GraphOp& op) {
  constexpr std::array kKinds = {"Bool", "Int", "Float", "String", "Type", "Ints", "Bools", "Tensor", "Floats"};
  std::string out;
  for (const AttributeDef& attribute : op.attributes) {
    out += fmt::format("{}{}:{}{}", out.empty() ? "" : ", ", attribute.name,
                       kKinds[static_cast<size_t>(attribute.kind)], attribute.is_required ? "!" : "");
  }
  return out;
}

}  // namespace reprise::opdef
