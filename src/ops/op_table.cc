// SPDX-License-Identifier: Apache-2.0
//
// The rows of src/opdef with what computes them. To add one: docs/design/operators.md.
#include <cstddef>
#include <iterator>

#include "opdef/function_rows.h"
#include "ops/computations.h"
#include "ops/op_schema.h"

namespace reprise::ops {
namespace {

constexpr OpSchema SchemaFor(OpId id, const Computation& computation) {
  const opdef::Function& function = opdef::kFunctions[static_cast<size_t>(id)];
  return {id, function.name, function.params, function.types, computation};
}

#define REPRISE_FUNCTION(id, types, type_rule, shape_rule, aliasing, engine, determinism, computation, ...) \
  SchemaFor(OpId::k##id, computation),
constexpr OpSchema kOpSchemas[] = {
#include "opdef/functions.def"
};

}  // namespace

const OpSchema& SchemaOf(OpId id) { return kOpSchemas[static_cast<size_t>(id)]; }

OpId FindOp(std::string_view name) { return opdef::FindFunction(name); }

}  // namespace reprise::ops
