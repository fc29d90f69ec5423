// SPDX-License-Identifier: Apache-2.0
//
// Problems and solutions as CSV, in the form that collections of planning problems use.
//
//     id,lower,upper,size[,alignment][,at][,offset]
//     b1,0,3,4
//
// The first line names the columns, in any order; the first four must be there. A buffer lives from `lower` until
// before `upper`. `at` is the offset that it must have, `offset` the one that a solution gives it; both may be empty.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/problem.h"

namespace reprise::plan {

struct File {
  Problem problem;
  std::optional<Solution> solution;  ///< where the column `offset` is there and filled in every line
};

/// Refuses (100000) what is no such file, or no good problem, with the line and what is wrong about it.
StatusOr<File> ParseCsv(std::string_view text);

/// With the column `offset` where a solution is given; pairs that are kept apart have no column and are lost.
std::string ToCsv(const Problem& problem, const Solution* solution = nullptr);

}  // namespace reprise::plan
