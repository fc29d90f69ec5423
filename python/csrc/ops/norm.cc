// SPDX-License-Identifier: Apache-2.0
//
// Gradients of batch normalisation in 16 bits. The statistics that the forward pass saved are float32, and the CPU
// takes those only with weights of that type. Forms of the forward pass that the CPU gives statistics of 16 bits. And
// the steps of SyncBatchNorm, of which the CPU has none.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "ops/fallback.h"

namespace torch_npu {
namespace {

// Among the arguments: weight, running and saved statistics.
constexpr size_t kFirstOfChannels = 2, kEndOfChannels = 7;

void BatchNormBackward(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const auto tensor = [&](size_t i) {
    const c10::IValue& value = (*stack)[first + i];
    return value.isTensor() ? value.toTensor() : at::Tensor();
  };
  const at::Tensor input = tensor(1), weight = tensor(2);
  bool is_wider = false;
  for (size_t i = kFirstOfChannels; i < kEndOfChannels; ++i) {
    is_wider |= tensor(i).defined() && tensor(i).scalar_type() == at::kFloat;
  }
  if (!c10::isReducedFloatingType(input.scalar_type()) || !is_wider) return Fallback(op, keys, stack);
  for (size_t i = kFirstOfChannels; i < kEndOfChannels; ++i) {
    if (tensor(i).defined()) (*stack)[first + i] = tensor(i).to(at::kFloat);
  }
  Fallback(op, keys, stack);
  const at::ScalarType type = weight.defined() ? weight.scalar_type() : input.scalar_type();
  for (size_t i = 1; i < 3; ++i) {  // the gradients of weight and bias among the results
    if (tensor(i).defined()) (*stack)[first + i] = tensor(i).to(type);
  }
}

// ---- Steps of SyncBatchNorm ----

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor Wide(const at::Tensor& tensor) {
  return c10::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

std::vector<int64_t> AllButChannels(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.dim() >= 2, "batch normalisation takes tensors [N, C, ...], not one of sizes ", tensor.sizes());
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < tensor.dim(); ++dim) dims.push_back(dim);
  return dims;
}

at::Tensor ByChannel(const at::Tensor& of_channels, const at::Tensor& like) {
  std::vector<int64_t> sizes(static_cast<size_t>(like.dim()), 1);
  sizes[1] = of_channels.numel();
  return Wide(of_channels).view(sizes);
}

std::tuple<at::Tensor, at::Tensor> SyncStats(const at::Tensor& input, double eps) {
  auto [var, mean] = at::var_mean(Wide(input), AllButChannels(input), at::Scalar(0), false);
  return {mean, var.add_(eps).rsqrt_()};
}

// mean and invstd: [parts, C]; counts: elements of each part.
std::tuple<at::Tensor, at::Tensor> SyncGather(const at::Tensor& /*input*/, const at::Tensor& mean,
                                              const at::Tensor& invstd, const OptionalTensor& running_mean,
                                              const OptionalTensor& running_var, double momentum, double eps,
                                              const at::Tensor& counts) {
  const at::Tensor means = Wide(mean);
  const at::Tensor parts = counts.to(means.scalar_type()).view({-1, 1});
  const at::Tensor total = parts.sum();
  const at::Tensor whole_mean = (means * parts).sum(0) / total;
  const at::Tensor vars = Wide(invstd).pow(-2) - eps;
  const at::Tensor whole_var = ((vars + (means - whole_mean).square()) * parts).sum(0) / total;
  if (running_mean && running_mean->defined()) running_mean->mul_(1 - momentum).add_(whole_mean, momentum);
  if (running_var && running_var->defined())
    running_var->mul_(1 - momentum).add_(whole_var * (total / (total - 1)), momentum);
  return {whole_mean, (whole_var + eps).rsqrt()};
}

std::tuple<at::Tensor, at::Tensor> SyncGatherEqual(const at::Tensor& input, const at::Tensor& mean,
                                                   const at::Tensor& invstd, const OptionalTensor& running_mean,
                                                   const OptionalTensor& running_var, double momentum, double eps,
                                                   int64_t count) {
  const at::Tensor counts = at::full({mean.size(0)}, count, Wide(mean).options());
  return SyncGather(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

at::Tensor SyncElements(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                        const at::Tensor& mean, const at::Tensor& invstd, double /*eps*/) {
  at::Tensor result = (Wide(input) - ByChannel(mean, input)) * ByChannel(invstd, input);
  if (weight && weight->defined()) result = result * ByChannel(*weight, input);
  if (bias && bias->defined()) result = result + ByChannel(*bias, input);
  return result.to(input.scalar_type());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> SyncBackwardSums(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const OptionalTensor& weight, bool of_input, bool of_weight, bool of_bias) {
  const std::vector<int64_t> dims = AllButChannels(input);
  const at::Tensor wide = Wide(gradient);
  const at::Tensor sum = wide.sum(dims);
  const at::Tensor product = (wide * (Wide(input) - ByChannel(mean, input))).sum(dims);
  const at::ScalarType type = weight && weight->defined() ? weight->scalar_type() : sum.scalar_type();
  return {of_input ? sum : at::Tensor(), of_input ? product : at::Tensor(),
          of_weight ? (product * invstd).to(type) : at::Tensor(), of_bias ? sum.to(type) : at::Tensor()};
}

at::Tensor SyncBackwardElements(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                                const at::Tensor& invstd, const OptionalTensor& weight, const at::Tensor& sum,
                                const at::Tensor& product, const at::Tensor& counts) {
  const at::Tensor total = counts.sum().to(Wide(sum).scalar_type());
  const at::Tensor slope = Wide(product) / total * Wide(invstd).square();
  at::Tensor result = Wide(gradient) - ByChannel(Wide(sum) / total, input) -
                      (Wide(input) - ByChannel(mean, input)) * ByChannel(slope, input);
  result = result * ByChannel(invstd, input);
  if (weight && weight->defined()) result = result * ByChannel(*weight, input);
  return result.to(input.scalar_type());
}

// The forms of native_batch_norm that say which arguments they write. Their statistics are its own, of float32.
using Normalised = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Normalised BatchNormLegit(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                          at::Tensor& running_mean, at::Tensor& running_var, bool training, double momentum,
                          double eps) {
  return at::native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

Normalised BatchNormOfBatch(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                            bool training, double momentum, double eps) {
  return at::native_batch_norm(input, weight, bias, {}, {}, training, momentum, eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> BatchNormWithUpdate(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, at::Tensor& running_mean,
    at::Tensor& running_var, double momentum, double eps) {
  auto [result, mean, invstd] =
      at::native_batch_norm(input, weight, bias, running_mean, running_var, true, momentum, eps);
  return {result, mean, invstd, at::empty({0}, input.options().dtype(at::kByte))};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_native_batch_norm_legit", &BatchNormLegit);
  m.impl("_native_batch_norm_legit.no_stats", &BatchNormOfBatch);
  m.impl("_batch_norm_with_update", &BatchNormWithUpdate);
  m.impl("batch_norm_stats", &SyncStats);
  m.impl("batch_norm_gather_stats", &SyncGatherEqual);
  m.impl("batch_norm_gather_stats_with_counts", &SyncGather);
  m.impl("batch_norm_elemt", &SyncElements);
  m.impl("batch_norm_backward_reduce", &SyncBackwardSums);
  m.impl("batch_norm_backward_elemt", &SyncBackwardElements);
  m.impl("native_batch_norm_backward", torch::CppFunction::makeFromBoxedFunction<&BatchNormBackward>());
}

}  // namespace
}  // namespace torch_npu
