// SPDX-License-Identifier: Apache-2.0
//
// The rows of all functions, for constant expressions: function.cc and ops/op_table.cc. Others ask FunctionOf.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>

#include "opdef/function.h"

namespace reprise::opdef {

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

#define REPRISE_FUNCTION(id, types, type_rule, shape_rule, aliasing, engine, determinism, computation, graph_op, ...) \
  {FunctionId::k##id,                                                                                                 \
   "aclnn" #id,                                                                                                       \
   ParamsOf([] { return std::array{__VA_ARGS__}; }),                                                                  \
   types,                                                                                                             \
   TypeRule::k##type_rule,                                                                                            \
   ShapeRule::k##shape_rule,                                                                                          \
   Aliasing::aliasing,                                                                                                \
   Engine::engine,                                                                                                    \
   Determinism::determinism,                                                                                          \
   #computation,                                                                                                      \
   graph_op},
inline constexpr Function kFunctions[] = {
#include "opdef/functions.def"
};

static_assert(std::size(kFunctions) == static_cast<size_t>(FunctionId::kCount));

}  // namespace reprise::opdef
