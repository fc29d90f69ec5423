// SPDX-License-Identifier: Apache-2.0
#include "distributed/tensor_checks.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace torch_npu {

void CheckOne(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().type() == c10::kPrivateUse1 && tensor.layout() == at::kStrided,
              "Tensors must be NPU and dense; this one is on ", tensor.device(), " with layout ", tensor.layout());
  TORCH_CHECK(tensor.is_contiguous(tensor.suggest_memory_format()),
              "Tensors must be contiguous; call contiguous() first: sizes ", tensor.sizes(), ", strides ",
              tensor.strides());
}

at::Tensor& OnlyOne(TensorVector& tensors) {
  TORCH_CHECK(!tensors.empty(), "Tensor list must be nonempty");
  TORCH_CHECK(tensors.size() == 1,
              "Tensor list mustn't be larger than the number of available NPUs: an operator of "
              "a process takes one tensor, not ",
              tensors.size());
  CheckOne(tensors[0]);
  return tensors[0];
}

void CheckTwo(const at::Tensor& output, const at::Tensor& input) {
  CheckOne(output);
  CheckOne(input);
  TORCH_CHECK(input.device() == output.device(), "Tensors must be on same NPU device: ", input.device(), " and ",
              output.device());
}

void CheckMany(const TensorVector& tensors, const char* what) {
  TORCH_CHECK(!tensors.empty(), "Tensor list must be nonempty");
  for (const at::Tensor& tensor : tensors) {
    CheckOne(tensor);
    TORCH_CHECK(tensor.scalar_type() == tensors[0].scalar_type(), "Tensors must have identical type: ", what, " has ",
                tensors[0].scalar_type(), " and ", tensor.scalar_type());
    TORCH_CHECK(tensor.device() == tensors[0].device(), "Tensors must be on same NPU device: ", what,
                " must all reside on the same device, not on ", tensors[0].device(), " and ", tensor.device());
  }
}

bool HaveSameCounts(const TensorVector& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != tensors[0].numel()) return false;
  }
  return true;
}

uint64_t CountOf(const at::Tensor& tensor) { return static_cast<uint64_t>(tensor.numel()); }

Layout LayoutOf(const TensorVector& tensors) {
  Layout layout;
  for (const at::Tensor& tensor : tensors) {
    layout.counts.push_back(CountOf(tensor));
    layout.offsets.push_back(static_cast<uint64_t>(layout.total));
    layout.total += tensor.numel();
  }
  return layout;
}

Layout LayoutOfRows(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks) {
  TORCH_CHECK(tensor.dim() > 0, "a tensor without dimensions has no rows to split; use one of dimension 1 or more");
  for (const int64_t rows : splits) TORCH_CHECK(rows >= 0, "a split of ", rows, " rows; sizes of splits are 0 or more");
  c10d::checkSplitSizes(splits, tensor, ranks);
  Layout layout;
  layout.counts.resize(static_cast<size_t>(ranks));
  layout.offsets.resize(static_cast<size_t>(ranks));
  layout.total = static_cast<int64_t>(c10d::computeLengthsAndOffsets(splits, tensor, &layout.counts, &layout.offsets));
  return layout;
}

at::Tensor FlatCopy(const TensorVector& tensors, int64_t total) {
  at::Tensor flat = at::empty({total}, tensors[0].options().memory_format(std::nullopt));
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != 0) flat.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor, true);
    at += tensor.numel();
  }
  return flat;
}

void CopyOut(const at::Tensor& flat, const TensorVector& tensors) {
  int64_t at = 0;
  for (at::Tensor tensor : tensors) {
    if (tensor.numel() != 0) tensor.copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()), true);
    at += tensor.numel();
  }
}

at::Tensor TimesFactor(const at::Tensor& tensor, const c10d::ReduceOp& reduction) {
  const auto* const factor = dynamic_cast<const c10d::PreMulSumSupplement*>(reduction.supplement_.get());
  TORCH_CHECK(factor != nullptr, "ReduceOp.PREMUL_SUM without a factor; make it with _make_hccl_premul_sum");
  if (!factor->tensor_factor.defined()) return tensor.mul(factor->double_factor);
  return tensor.mul(factor->tensor_factor.to(tensor.options().memory_format(std::nullopt)));
}

void DivideBy(at::Tensor& tensor, int64_t ranks) {
  if (c10::isIntegralType(tensor.scalar_type(), true)) {
    tensor.div_(ranks, "trunc");
  } else {
    tensor.div_(ranks);
  }
}

}  // namespace torch_npu
