// SPDX-License-Identifier: Apache-2.0
//
// Convolutions. torch asks backends for these by name, and its CPU has no kernel of that name: what the device has no
// kernel for calls the whole convolution in a task, which chooses the CPU's.
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "ops/alias.h"
#include "ops/kernel_scope.h"
#include "ops/launch.h"
#include "ops/native.h"
#include "ops/tensors.h"

namespace torch_npu {
namespace {

using Numbers = std::vector<int64_t>;

std::vector<int64_t> OutputSizes(const at::Tensor& input, const at::Tensor& weight, c10::IntArrayRef stride,
                                 c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                                 c10::IntArrayRef output_padding, int64_t groups) {
  if (transposed) {
    return at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding, stride, dilation,
                                       groups);
  }
  return at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
}

at::Tensor EmptyIn(c10::MemoryFormat format, c10::IntArrayRef sizes, const at::Tensor& like) {
  at::Tensor made = Empty(sizes, like.scalar_type(), like.device());
  if (format != c10::MemoryFormat::Contiguous) made.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return made;
}

// Not all kernels of the CPU take whole numbers, and which one it will be depends on more than the type. What a small
// convolution of the same kind says is said at the call, not by a task.
void CheckKernelTakes(const at::Tensor& input, c10::IntArrayRef dilation, bool transposed, int64_t groups) {
  const at::ScalarType type = input.scalar_type();
  if (c10::isFloatingType(type) || c10::isComplexType(type)) [[likely]]
    return;
  const bool is_dilated = std::any_of(dilation.begin(), dilation.end(), [](int64_t d) { return d != 1; });
  const int64_t few_groups = groups == 1 ? 1 : 2;
  static std::mutex mutex;
  static auto* const answers = new std::map<std::array<int64_t, 5>, std::string>;
  const std::lock_guard lock(mutex);
  const auto [answer, is_new] = answers->try_emplace(
      {static_cast<int64_t>(type), input.dim(), is_dilated ? 1 : 0, transposed ? 1 : 0, few_groups});
  if (is_new) {
    const PlainKeys keys;
    const auto spatial = static_cast<size_t>(input.dim() - 2);
    Numbers of_input(spatial, 3), of_weight(spatial, 2);
    of_input.insert(of_input.begin(), {1, few_groups});
    of_weight.insert(of_weight.begin(), {few_groups, 1});
    const Numbers none(spatial, 0), one(spatial, 1), apart(spatial, is_dilated ? 2 : 1);
    try {
      (void)at::convolution(at::zeros(of_input, type), at::zeros(of_weight, type), std::nullopt, one, none, apart,
                            transposed, none, few_groups);
    } catch (const c10::Error& error) {
      answer->second = error.what_without_backtrace();
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(answer->second.empty(), "aten::convolution: ", answer->second,
                              ": on npu the kernel of the CPU does this, which does not take these types; convert to ",
                              "others first, such as float32");
}

at::Tensor Convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups) {
  const c10::DeviceGuard guard(input.device());
  const bool has_bias = bias.has_value() && bias->defined();
  for (const at::Tensor* const other : {&weight, has_bias ? &*bias : &weight}) {
    TORCH_CHECK(other->device() == input.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", input.device(),
                " and ", other->device(), "! (convolution)");
    TORCH_CHECK(other->scalar_type() == input.scalar_type(), "Input type (", input.toString(), ") and ",
                other == &weight ? "weight" : "bias", " type (", other->toString(), ") should be the same");
  }
  at::Tensor output =
      EmptyIn(at::native::_conv_suggest_memory_format_impl(input, weight, input.scalar_type() != at::kDouble),
              OutputSizes(input, weight, stride, padding, dilation, transposed, output_padding, groups), input);
  if (output.numel() == 0) return output;
  if (NativeCall("aclnnConvolution", "aten::convolution")
          .Tensor(input)
          .Tensor(weight)
          .Tensor(has_bias ? *bias : at::Tensor())
          .Ints(stride)
          .Ints(padding)
          .Ints(dilation)
          .Int(transposed)
          .Ints(output_padding)
          .Int(groups)
          .Tensor(output)
          .Int(0)
          .Launch()) {
    return output;
  }
  CheckKernelTakes(input, dilation, transposed, groups);
  Aliases aliases(c10::kCPU);
  Launch("convolution",
         [x = aliases.Of(input), w = aliases.Of(weight), b = has_bias ? aliases.Of(*bias) : at::Tensor(),
          y = aliases.Of(output), stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(), transposed,
          output_padding = output_padding.vec(), groups]() mutable {
           y.copy_(at::convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups));
         });
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(const at::Tensor& grad_output,
                                                                   const at::Tensor& input, const at::Tensor& weight,
                                                                   c10::IntArrayRef stride, c10::IntArrayRef padding,
                                                                   c10::IntArrayRef dilation, bool transposed,
                                                                   c10::IntArrayRef output_padding, int64_t groups,
                                                                   std::array<bool, 3> wanted) {
  const c10::DeviceGuard guard(input.device());
  const c10::MemoryFormat format =
      at::native::_conv_suggest_memory_format_impl(input, weight, input.scalar_type() != at::kDouble);
  const Numbers bias_sizes = {transposed ? weight.size(1) * groups : weight.size(0)};
  std::array<at::Tensor, 3> grads;
  if (wanted[0]) grads[0] = EmptyIn(format, input.sizes(), input);
  if (wanted[1]) grads[1] = EmptyIn(format, weight.sizes(), weight);
  if (wanted[2]) grads[2] = Empty(bias_sizes, weight.scalar_type(), weight.device());
  Aliases aliases(c10::kCPU);
  std::array<at::Tensor, 3> results;
  for (size_t i = 0; i < 3; ++i) {
    if (grads[i].defined()) results[i] = aliases.Of(grads[i]);
  }
  Launch("convolution_backward", [g = aliases.Of(grad_output), x = aliases.Of(input), w = aliases.Of(weight), results,
                                  bias_sizes, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                                  transposed, output_padding = output_padding.vec(), groups, wanted]() mutable {
    const auto [dx, dw, db] = at::convolution_backward(g, x, w, bias_sizes, stride, padding, dilation, transposed,
                                                       output_padding, groups, wanted);
    if (wanted[0]) results[0].copy_(dx);
    if (wanted[1]) results[1].copy_(dw);
    if (wanted[2]) results[2].copy_(db);
  });
  return {grads[0], grads[1], grads[2]};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", Convolution);
  m.impl("convolution_backward_overrideable", ConvolutionBackward);
}

}  // namespace
}  // namespace torch_npu
