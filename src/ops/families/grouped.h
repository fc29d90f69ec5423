// SPDX-License-Identifier: Apache-2.0
//
// What products in groups share: where groups begin, parts of tensors, the launches of the product itself and of the
// step from sums of integers to numbers.
#pragma once

#include "kernels/antiquant_matmul.h"
#include "ops/launch.h"

namespace reprise::ops::grouped {

enum ListType : int64_t { kEnds, kCounts, kIndexAndCount };
enum GroupType : int64_t { kNoSplit = -1, kSplitRows = 0, kSplitDepth = 2 };

/// Where the lists of a launch of groups begin in its refs, and how long they are.
struct GroupedParams {
  int64_t group_type, list_type, count;
  kernels::Packing packing;
  int64_t columns;  // of one work item
  struct List {
    size_t first = 0;
    size_t count = 0;
    int stacked = -1;  // dims of a tensor with a slice for each group
  } weight, bias, scale, offset;
  bool accumulates = false;  // y is added to
};

struct GroupRange {
  int64_t e, begin, end;
};

/// The group at place i of the list, clamped to what there is.
GroupRange GroupAt(const kernels::TensorRef& list, const GroupedParams& params, int64_t i, int64_t limit);

/// Elements [begin, begin + size) of dim `dim`.
void Narrow(kernels::TensorRef& ref, int dim, int64_t begin, int64_t size);
/// Slice e of a tensor of `stacked` dims; another one as it is.
kernels::TensorRef Slice(kernels::TensorRef ref, int64_t e, int stacked);
/// A line, or a number, as a matrix of one row.
void MakeMatrix(kernels::TensorRef& ref);

/// refs: y, x, group list, then the lists; state: GroupedParams.
void RunGroups(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory);
/// refs: y, sums, group list, row scale, then the lists; state: GroupedParams. A unit is a place of the list.
void RunDequantizeGroups(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory);

}  // namespace reprise::ops::grouped
