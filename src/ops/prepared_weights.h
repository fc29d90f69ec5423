// SPDX-License-Identifier: Apache-2.0
//
// What the compiler asks about prepared forms of weights (PreparedForm in ops/launch.h) before there is a launch.
#pragma once

#include <cstdint>

namespace reprise::ops {

/// Rows of x up to which products with a weight of 4 bits have a form of it on this processor.
int64_t MostPreparedAntiquantRows();

}  // namespace reprise::ops
