// SPDX-License-Identifier: Apache-2.0
#include "opdef/function.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "opdef/function_rows.h"

namespace reprise::opdef {
namespace {

constexpr std::string_view kTypeRules[] = {
#define REPRISE_TYPE_RULE(name) #name,
#include "opdef/rules.def"
};
constexpr std::string_view kShapeRules[] = {
#define REPRISE_SHAPE_RULE(name) #name,
#include "opdef/rules.def"
};

}  // namespace

const Function& FunctionOf(FunctionId id) { return kFunctions[static_cast<size_t>(id)]; }

FunctionId FindFunction(std::string_view name) {
  const auto found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                  [&](const Function& function) { return function.name == name; });
  return static_cast<FunctionId>(found - std::begin(kFunctions));
}

std::string_view NameOf(TypeRule rule) { return kTypeRules[static_cast<size_t>(rule)]; }
std::string_view NameOf(ShapeRule rule) { return kShapeRules[static_cast<size_t>(rule)]; }

}  // namespace reprise::opdef
