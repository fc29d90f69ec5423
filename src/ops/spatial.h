// SPDX-License-Identifier: Apache-2.0
//
// What operators on images share: attributes with one value for each spatial dim, tensors [N, C, D, H, W] of lower
// rank.
#pragma once

#include "ops/op_call.h"

namespace reprise::ops {

/// Inputs and outputs without types of their own all have the same one.
Status AllOneType(OpCall& call);

/// The values of an int array with one entry for all dims or one for each of `dims`.
/// \param low           smallest value that is allowed
/// \param [in,out] values  `dims` of them; stay as they are if the array is empty and may_be_empty
Status ReadDims(const OpCall& call, std::string_view name, int dims, int64_t low, bool may_be_empty, int64_t* values);

/// 161002 unless the rank is one of two.
Status CheckRank(const OpCall& call, const Operand& operand, int low, int high);

/// Inserts dims of size 1 at `at`.
void InsertDims(kernels::TensorRef& ref, int at, int count);

}  // namespace reprise::ops
