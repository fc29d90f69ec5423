// SPDX-License-Identifier: Apache-2.0
//
// Elements of constants as numbers, and numbers as constants.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/graph.h"

namespace reprise::compiler {

/// The product of the sizes; the largest number where that is no count.
int64_t ElementsOf(const Constant& constant);

/// The elements of integers and booleans; nothing for other types.
std::optional<std::vector<int64_t>> IntegersOf(const Constant& constant);
/// The elements of real numbers, integers and booleans; nothing for other types.
std::optional<std::vector<double>> RealsOf(const Constant& constant);
/// The only element, or the value that all elements have.
std::optional<double> UniformValueOf(const Constant& constant);

/// The elements converted to the type: rounded, cut off for integers. \pre a type of real numbers, integers or bool; as
/// many elements as the shape says.
std::shared_ptr<const Constant> MakeConstant(int32_t dtype, std::vector<int64_t> shape,
                                             std::span<const double> elements);
std::shared_ptr<const Constant> MakeConstant(int32_t dtype, std::vector<int64_t> shape,
                                             std::span<const int64_t> elements);

/// The elements as text, "1, 2, 3": those of real numbers, integers and booleans. Empty for other types.
std::string ElementsText(const Constant& constant);

}  // namespace reprise::compiler
