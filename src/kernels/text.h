// SPDX-License-Identifier: Apache-2.0
//
// Tensors as text, as graphs print them.
//
// Formula   A number alone is bare: "3", "0.5". A dim is "[a b c ... x y z]": the first and the last `ends` entries,
//   all of them where there are at most twice as many, or where `ends` is -1. Entries that have dims themselves begin
//   a line, behind a blank.
//   Whole numbers have no decimals, others up to nine digits that count; 16-bit floats as float32.
#pragma once

#include <string>

#include "kernels/strided.h"

namespace reprise::kernels {

/// \pre ends is -1, or 1 or more; the tensor has data if it has elements.
std::string TextOf(const TensorRef& tensor, int64_t ends);

}  // namespace reprise::kernels
