// SPDX-License-Identifier: Apache-2.0
//
// What all operators of a process group ask of their tensors. Each throws RuntimeError, or ValueError where it says so.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <vector>

namespace torch_npu {

using TensorVector = std::vector<at::Tensor>;

/// Dense, on npu, contiguous.
void CheckOne(const at::Tensor& tensor);
/// Both, and that they are on one device.
void CheckTwo(const at::Tensor& output, const at::Tensor& input);
/// The one tensor of a list that torch makes of an argument.
at::Tensor& OnlyOne(TensorVector& tensors);
/// All of one type and on one device; each as CheckOne asks.
void CheckMany(const TensorVector& tensors, const char* what);
bool HaveSameCounts(const TensorVector& tensors);

uint64_t CountOf(const at::Tensor& tensor);
/// Element counts of each, and where each begins when they lie one after the other.
struct Layout {
  std::vector<uint64_t> counts, offsets;
  int64_t total = 0;
};
Layout LayoutOf(const TensorVector& tensors);
/// Of the rows of a tensor; `splits` empty: equal parts.
Layout LayoutOfRows(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks);

/// One-dimensional, in the order of the list; on the current stream.
at::Tensor FlatCopy(const TensorVector& tensors, int64_t total);
/// Back from the flat one.
void CopyOut(const at::Tensor& flat, const TensorVector& tensors);

/// Before a sum: the tensor times the factor of PREMUL_SUM.
at::Tensor TimesFactor(const at::Tensor& tensor, const c10d::ReduceOp& reduction);
/// After a sum, for AVG: divided by the number of ranks; integers are truncated.
void DivideBy(at::Tensor& tensor, int64_t ranks);

}  // namespace torch_npu
