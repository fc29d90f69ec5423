// SPDX-License-Identifier: Apache-2.0
//
// What the table of operators of the namespaces npu and atb (python/torch_npu/_ops) is made of here: rows of operators
// of the device, derivatives, refusals; and formats of tensors, which are remembered, not laid out.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch_npu {

/// The operator `name` ("npu::npu_rms_norm", "….out"), which has been defined, runs as its row of api/torch_ops.csv
/// says. With an argument `out` that is a list, its elements are written and returned. False when the device does not
/// have what the row names. Throws for a name without a row, and for a row that cannot be read.
bool BindOperator(const std::string& name);

/// The operator `name` tells the bytes of workspace that calls of `of` need, as a tensor of bytes of that size. It has
/// the arguments of `of` but workspace and out.
void BindWorkspace(const std::string& name, const std::string& of);

/// Gradients of `name`: `backward` is called with `arguments` (names of arguments, "grad" or "grad@2" for the gradient
/// of the first result or that of result 2, "@1" for a result, "-" for none), what it returns are the gradients of the
/// arguments in `gradients` ("-": of none). Only results whose gradient is among the words are differentiable; a
/// gradient that is not there is none where `backward` takes none, else zeros.
void BindDerivative(const std::string& name, const std::string& backward, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& gradients);

/// The kernel that `name` has for the CPU runs as a task of a stream, as those of torch's operators do. Its Meta kernel
/// tells its results.
void BindHostKernel(const std::string& name);
bool IsHostKernel(const std::string& name);

/// Calls of the operator throw NotImplementedError with this text, whatever the arguments.
void RefuseOperator(const std::string& name, const std::string& text);

/// aclFormat of a device tensor's memory; ACL_FORMAT_ND or ACL_FORMAT_NCHW unless another was set.
int64_t FormatOf(const at::Tensor& tensor);
void SetFormat(const at::Tensor& tensor, int64_t format);

}  // namespace torch_npu
