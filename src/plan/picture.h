// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/problem.h"

namespace reprise::plan {

/// A solution as SVG: time from left to right, memory from bottom to top, a box for each buffer, and a line at the
/// lower bound. Pointing at a box shows its numbers. Of more than 20,000 buffers the largest are drawn.
std::string ToSvg(const Problem& problem, const Solution& solution, const std::string& title);

}  // namespace reprise::plan
