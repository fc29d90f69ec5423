// SPDX-License-Identifier: Apache-2.0
//
// The operator table: one row, one operator, from src/ops/generated. To add one: a row in api/ops/FAMILY.csv and
// `scripts/gen_ops.py`; a Computation in families/FAMILY.cc, unless one fits.
#include <algorithm>
#include <array>
#include <cstddef>

#include "ops/computations.h"
#include "ops/op_schema.h"

namespace reprise::ops {
namespace {

// The parameters of a row: a view of an array that exists once for each place where this is written. (An
// initializer_list would read better; gcc takes none inside a constant expression.)
template <class Make>
struct ParamArray {
  static constexpr auto kParams = Make{}();
};
template <class Make>
constexpr std::span<const Param> ParamsOf(Make) {
  return ParamArray<Make>::kParams;
}

#define REPRISE_OP(id, types, computation, ...) \
  {OpId::k##id, "aclnn" #id, ParamsOf([] { return std::array{__VA_ARGS__}; }), types, computation},
constexpr OpSchema kOpSchemas[] = {
#include "ops/op_ids.def"
};

static_assert(std::size(kOpSchemas) == static_cast<size_t>(OpId::kCount));

}  // namespace

const OpSchema& SchemaOf(OpId id) { return kOpSchemas[static_cast<size_t>(id)]; }

OpId FindOp(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kOpSchemas), std::end(kOpSchemas), [&](const auto& op) { return op.name == name; });
  return static_cast<OpId>(found - std::begin(kOpSchemas));
}

}  // namespace reprise::ops
