// SPDX-License-Identifier: Apache-2.0
//
// Norms and factors of channels as other frameworks have them, wherever data_format says that channels lie.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "ops/named_ops/expression.h"
#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;
using kernels::Scalar;

size_t ChannelDim(const NamedCall& call, size_t rank) {
  return call.context.Text("data_format").back() == 'C' ? rank - 1 : 1;
}

// All dims but one or two.
std::vector<int64_t> DimsBut(size_t rank, size_t one, size_t other) {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < rank; ++d) {
    if (d != one && d != other) dims.push_back(static_cast<int64_t>(d));
  }
  return dims;
}

// [n, c, ..], whichever order they lie in.
StridedView ChannelsSecond(const StridedView& view, size_t channel) {
  std::vector<size_t> order = {0, channel};
  for (size_t d = 1; d < view.sizes.size(); ++d) {
    if (d != channel) order.push_back(d);
  }
  return Permuted(view, order);
}

// Numbers of channels, to broadcast with tensors of that rank.
StridedView Along(const StridedView& numbers, size_t rank, size_t dim) {
  std::vector<int64_t> sizes(rank, 1);
  sizes[dim] = CountOf(numbers.sizes);
  return numbers.As(sizes);
}

// ---- Batch norm ----

Status StepNormByStatistics(NamedCall& call, const StridedView& x, const StridedView& mean, const StridedView& variance,
                            const StepArgument& scale, const StepArgument& offset, const StridedView& out) {
  return StepWith(call, "aclnnBatchNorm",
                  {{"input", x},
                   {"weight", scale},
                   {"bias", offset},
                   {"runningMean", mean},
                   {"runningVar", variance},
                   {"training", false},
                   {"momentum", 0.0},
                   {"eps", call.context.Real("epsilon")},
                   {"output", out}});
}

Status CopyToOutputs(NamedCall& call, const StridedView& from, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (call.Wants(name)) REPRISE_RETURN_IF_ERROR(CopyTo(call, from, call.Output(name).view()));
  }
  return {};
}

// The statistics that were used, and once more as reserved space. In training batch_variance has Bessel's correction,
// and reserve_space_2 has not.
Status LowerFrameworkBatchNorm(NamedCall& call) {
  const size_t channel = ChannelDim(call, call.Input("x").dims.size());
  const StridedView x = ChannelsSecond(call.Input("x").view(), channel);
  const StridedView out = ChannelsSecond(call.Output("y").view(), channel);
  const StridedView scale = call.Input("scale").view();
  const StridedView offset = call.Input("offset").view();
  if (!call.context.Bool("is_training")) {
    const StridedView mean = call.Input("mean").view();
    const StridedView variance = call.Input("variance").view();
    REPRISE_RETURN_IF_ERROR(StepNormByStatistics(call, x, mean, variance, scale, offset, out));
    REPRISE_RETURN_IF_ERROR(CopyToOutputs(call, mean, {"batch_mean", "reserve_space_1"}));
    return CopyToOutputs(call, variance, {"batch_variance", "reserve_space_2"});
  }
  const StridedView mean = call.Output("batch_mean").view();
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnBatchNorm",
                                   {{"input", x},
                                    {"weight", scale},
                                    {"bias", offset},
                                    {"training", true},
                                    {"momentum", 0.0},
                                    {"eps", call.context.Real("epsilon")},
                                    {"output", out},
                                    {"saveMean", mean},
                                    {"saveInvstd", call.Temporary(DType::kFloat, mean.sizes)}}));
  REPRISE_RETURN_IF_ERROR(CopyToOutputs(call, mean, {"reserve_space_1"}));
  if (!call.Wants("batch_variance") && !call.Wants("reserve_space_2")) return {};
  Expression f(call, DType::kFloat);
  const StridedView variance = f.Variance(x, DimsBut(x.sizes.size(), 1, 1)).As(mean.sizes);
  const double count = static_cast<double>(CountOf(x.sizes)) / std::max(1.0, static_cast<double>(x.sizes[1]));
  f.Store(f.Times(variance, count / std::max(1.0, count - 1)), call.Output("batch_variance").view());
  f.Store(variance, call.Output("reserve_space_2").view());
  return f.TakeStatus();
}

// The reserved space is mean and variance, as the forward operator leaves them there.
Status LowerFrameworkBatchNormGradient(NamedCall& call) {
  const size_t channel = ChannelDim(call, call.Input("x").dims.size());
  const auto view = [&](const NamedTensor& tensor) { return ChannelsSecond(tensor.view(), channel); };
  if (call.Input("y_backprop").dims != call.Input("x").dims) {
    return call.WrongInput(call.Input("y_backprop"), "has another shape than x", "pass the gradient of the result");
  }
  const double epsilon = call.context.Real("epsilon");
  const StridedView mean = call.Input("reserve_space_1").view();
  const StridedView variance = call.Input("reserve_space_2").view();
  Expression f(call, DType::kFloat);
  const StridedView root = f.Of("aclnnRsqrt", f.Plus(variance, epsilon));
  REPRISE_RETURN_IF_ERROR(f.TakeStatus());
  return StepWith(call, "aclnnBatchNormBackward",
                  {{"gradOut", view(call.Input("y_backprop"))},
                   {"input", view(call.Input("x"))},
                   {"weight", call.Input("scale").view()},
                   {"runningMean", mean},
                   {"runningVar", variance},
                   {"saveMean", mean},
                   {"saveInvstd", root},
                   {"training", call.context.Bool("is_training")},
                   {"eps", epsilon},
                   {"outputMask", std::vector<bool>{true, true, true}},
                   {"gradInput", view(call.Output("x_backprop"))},
                   {"gradWeight", call.Output("scale_backprop").view()},
                   {"gradBias", call.Output("offset_backprop").view()}});
}

// Of Caffe: the statistics are sums that momentum divides, or, as BNInferenceD, numbers. Channels lie in dim 1.
Status LowerCaffeBatchNorm(NamedCall& call) {
  const NamedTensor& given = call.Input("x");
  if (given.rank() < 2) {
    return call.WrongInput(given, fmt::format("has the shape {}", ShapeText(given.dims)), "pass [n, c, ..]");
  }
  if (!call.context.Bool("use_global_stats")) {
    return call.context.WrongAttribute("use_global_stats", "is false", "use BatchNorm for statistics of the batch");
  }
  Expression f(call, DType::kFloat);
  const auto numbers = [&](std::string_view name) -> StepArgument {
    if (!call.Has(name)) return nullptr;
    const NamedTensor& tensor = call.Input(name);
    if (CountOf(tensor.dims) != given.dims[1]) {
      f.Fail(call.WrongInput(tensor, fmt::format("has the shape {}", ShapeText(tensor.dims)),
                             fmt::format("pass one number for each of the {} channels", given.dims[1])));
    }
    return f.Convert(tensor.view()).As(std::array<int64_t, 1>{given.dims[1]});
  };
  StridedView mean = std::get<StridedView>(numbers("mean"));
  StridedView variance = std::get<StridedView>(numbers("variance"));
  if (call.Has("momentum")) {  // 1 / momentum, and 0 for 0
    const StridedView sum = f.Number("momentum");
    const StridedView sign = f.Of("aclnnSign", sum);
    const StridedView is_set = f.Mul(sign, sign);
    const StridedView factor = f.Div(is_set, f.Add(sum, f.From(1, is_set)));
    mean = f.Mul(mean, factor);
    variance = f.Mul(variance, factor);
  }
  const StepArgument scale = numbers("scale");
  const StepArgument offset = numbers(call.op.type == "BNInferenceD" ? "b" : "offset");
  REPRISE_RETURN_IF_ERROR(f.TakeStatus());
  return StepNormByStatistics(call, given.view(), mean, variance, scale, offset, call.OutputView());
}

// ---- Factors and sums ----

// x times scale, plus bias: numbers of the dims from axis on.
Status LowerScale(NamedCall& call) {
  const bool has_scale = call.op.type == "Scale";
  const StridedView x = call.Input("x").view();
  REPRISE_ASSIGN_OR_RETURN(const int64_t axis, call.context.WrapDim("axis", call.context.Int("axis"), x.sizes.size()));
  const int64_t count = call.context.Int("num_axes");
  const int64_t most = static_cast<int64_t>(x.sizes.size()) - axis;
  if (count < -1 || count > most) {
    return call.context.WrongAttribute(
        "num_axes", fmt::format("is {}, but x has the shape {}", count, ShapeText(call.Input("x").dims)),
        fmt::format("set it to -1 to {}", most));
  }
  const bool from_blob = call.context.Bool(has_scale ? "scale_from_blob" : "bias_from_blob");
  Expression f(call, Wide(x.dtype));
  const auto aligned = [&](std::string_view name) {
    const NamedTensor& tensor = call.Input(name);
    const int64_t dims = !from_blob ? tensor.rank() : count == -1 ? most : count;
    std::vector<int64_t> sizes(x.sizes.size(), 1);
    for (int64_t d = axis; d < std::min<int64_t>(axis + dims, axis + most); ++d) {
      sizes[static_cast<size_t>(d)] = x.sizes[static_cast<size_t>(d)];
    }
    if (CountOf(sizes) != CountOf(tensor.dims)) {
      f.Fail(call.WrongInput(tensor, fmt::format("has the shape {}", ShapeText(tensor.dims)),
                             fmt::format("pass the sizes of x from dim {} on, {} of them", axis, dims)));
    }
    return tensor.view().As(sizes);
  };
  StridedView y = has_scale ? f.Mul(x, aligned("scale")) : x;
  if (call.Has("bias")) y = f.Add(y, aligned("bias"));
  if (f.status().ok()) f.Store(y, call.OutputView());
  return f.TakeStatus();
}

Status LowerBiasAddGradient(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const StridedView out = call.OutputView();
  const size_t channel = ChannelDim(call, x.sizes.size());
  const DType type = Wide(out.dtype);
  const StridedView sum = type == out.dtype ? out : call.Temporary(type, out.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kReduceSum, {x, DimsBut(x.sizes.size(), channel, channel), false, type, sum}));
  return type == out.dtype ? Status() : CopyTo(call, sum, out);
}

// Of Caffe: rows of x times w [num_output, ..], or w [.., num_output] if it is transposed.
Status LowerFullyConnection(NamedCall& call) {
  if (call.Has("offset_w")) return call.WrongInput(call.Input("offset_w"), "is not possible here", "leave it out");
  if (call.context.Int("offset_x") != 0) {
    return call.context.WrongAttribute("offset_x",
                                       fmt::format("is {}, only 0 is possible", call.context.Int("offset_x")),
                                       "subtract the offset before the product");
  }
  const NamedTensor& given = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(const int64_t axis,
                           call.context.WrapDim("axis", call.context.Int("axis"), given.dims.size()));
  const int64_t rows = CountOf(std::span(given.dims).first(static_cast<size_t>(axis)));
  const int64_t inner = CountOf(std::span(given.dims).subspan(static_cast<size_t>(axis)));
  const int64_t outputs = call.context.Int("num_output");
  const StridedView out = call.OutputView().As(std::array<int64_t, 2>{rows, outputs});
  const StridedView x = given.view().As(std::array<int64_t, 2>{rows, inner});
  const StridedView w = call.Input("w").view();
  const StridedView matrix = call.context.Bool("transpose") ? w.As(std::array<int64_t, 2>{inner, outputs})
                                                            : w.As(std::array<int64_t, 2>{outputs, inner}).Transposed();
  if (!call.Has("b")) return call.Step(kMatmul, {x, matrix, out, int64_t{0}});
  const NamedTensor& bias = call.Input("b");
  if (CountOf(bias.dims) != outputs) {
    return call.WrongInput(bias, fmt::format("has the shape {}", ShapeText(bias.dims)),
                           fmt::format("pass one number for each of the {} outputs", outputs));
  }
  const StridedView product = call.Temporary(Wide(out.dtype), out.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kMatmul, {x, matrix, product, int64_t{0}}));
  return call.Step(kAdd, {product, bias.view().As(std::array<int64_t, 1>{outputs}), out});
}

// Of Caffe: products (0), sums with factors (1), or the largest (2) of tensors of one shape.
Status LowerEltwise(NamedCall& call) {
  const int64_t mode = call.context.Int("mode");
  const std::vector<double> factors = call.context.Reals("coeff");
  if (mode < 0 || mode > 2) {
    return call.context.WrongAttribute("mode", fmt::format("is {}", mode),
                                       "set it to 0 (product), 1 (sum) or 2 (largest)");
  }
  if (!factors.empty() && (mode != 1 || factors.size() != call.inputs.size())) {
    return call.context.WrongAttribute("coeff", fmt::format("has {} numbers", factors.size()),
                                       mode == 1
                                           ? fmt::format("give one for each of the {} tensors", call.inputs.size())
                                           : "leave it out beside mode 0 and 2");
  }
  Expression f(call, Wide(call.output().dtype()));
  StridedView result;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    StridedView x = call.inputs[i].view();
    if (!factors.empty() && factors[i] != 1) x = f.Times(x, factors[i]);
    if (i == 0) {
      result = x;
    } else {
      result = mode == 0 ? f.Mul(result, x) : mode == 1 ? f.Add(result, x) : f.Of("aclnnMaximum", result, x);
    }
  }
  f.Store(result, call.OutputView());
  return f.TakeStatus();
}

// ---- Other norms ----

Status LowerInstanceNorm(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const size_t rank = x.sizes.size();
  const size_t channel = ChannelDim(call, rank);
  Expression f(call, DType::kFloat);
  const StridedView wide = f.Convert(x);
  const std::vector<int64_t> dims = DimsBut(rank, 0, channel);
  const StridedView mean = f.Mean(wide, dims);
  const StridedView variance = f.Variance(wide, dims);
  const StridedView root = f.Of("aclnnRsqrt", f.Plus(variance, call.context.Real("epsilon")));
  const StridedView normed = f.Mul(f.Sub(wide, mean), root);
  const StridedView scaled = f.Mul(normed, Along(call.Input("gamma").view(), rank, channel));
  f.Store(f.Add(scaled, Along(call.Input("beta").view(), rank, channel)), call.Output("y").view());
  if (call.Wants("mean")) f.Store(mean, call.Output("mean").view());
  if (call.Wants("variance")) f.Store(variance, call.Output("variance").view());
  return f.TakeStatus();
}

// Over the dims from begin_norm_axis on; factors of the dims from begin_params_axis on.
Status LowerLayerNormByAxis(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const size_t rank = x.sizes.size();
  const double epsilon = call.context.Real("epsilon");
  REPRISE_ASSIGN_OR_RETURN(const int64_t begin,
                           call.context.WrapDim("begin_norm_axis", call.context.Int("begin_norm_axis"), rank));
  std::vector<int64_t> sizes(x.sizes.begin() + begin, x.sizes.end());
  const bool has_rstd = call.op.type == "LayerNormV3";
  const std::string_view last = has_rstd ? "rstd" : "variance";
  const StridedView gamma = call.Input("gamma").view();
  const StridedView beta = call.Input("beta").view();
  // One kernel, where the factors belong to the normed dims and have the type of x.
  const bool is_plain = gamma.sizes.size() == sizes.size() && gamma.dtype == x.dtype;
  const StridedView out = call.Output("y").view();
  const StridedView normed = is_plain ? out : call.Temporary(DType::kFloat, x.sizes);
  Expression f(call, DType::kFloat);
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnLayerNorm",
                                   {{"input", is_plain ? x : f.Convert(x)},
                                    {"normalizedShape", std::move(sizes)},
                                    {"weightOptional", is_plain ? StepArgument(gamma) : nullptr},
                                    {"biasOptional", is_plain ? StepArgument(beta) : nullptr},
                                    {"eps", epsilon},
                                    {"out", normed},
                                    {"meanOutOptional", OptionalOutput(call, "mean")},
                                    {"rstdOutOptional", has_rstd ? OptionalOutput(call, last) : nullptr}}));
  if (!is_plain) f.Store(f.Add(f.Mul(normed, gamma), beta), out);
  if (!has_rstd && call.Wants(last)) {
    std::vector<int64_t> dims(rank - static_cast<size_t>(begin));
    std::iota(dims.begin(), dims.end(), begin);
    f.Store(f.Variance(x, std::move(dims)), call.Output(last).view());
  }
  return f.TakeStatus();
}

// The variance stands for 1 / sqrt(variance + 1e-12): the operator knows no epsilon.
Status LowerLayerNormGradientByVariance(NamedCall& call) {
  constexpr double kEpsilon = 1e-12;
  const NamedTensor& gamma = call.Input("gamma");
  Expression f(call, DType::kFloat);
  const StridedView root = f.Of("aclnnRsqrt", f.Plus(call.Input("variance").view(), kEpsilon));
  const StridedView mean = f.In("mean");
  REPRISE_RETURN_IF_ERROR(f.TakeStatus());
  return StepWith(call, "aclnnLayerNormBackward",
                  {{"gradOut", call.Input("dy").view()},
                   {"input", call.Input("x").view()},
                   {"normalizedShape", gamma.dims},
                   {"mean", mean},
                   {"rstd", root},
                   {"weightOptional", gamma.view()},
                   {"outputMask", std::vector<bool>{true, true, true}},
                   {"gradInputOut", call.Output("pd_x").view()},
                   {"gradWeightOut", call.Output("pd_gamma").view()},
                   {"gradBiasOut", call.Output("pd_beta").view()}});
}

// x / (bias + alpha * s) ^ beta, s the sum of squares over depth_radius channels on either side. Channels are the last
// dim of tensors that say that they are NHWC, else dim 1.
Status LowerLocalResponseNorm(NamedCall& call) {
  constexpr int32_t kFormatNhwc = 1;
  const NamedTensor& given = call.Input("x");
  const int64_t radius = call.context.Int("depth_radius");
  if (given.rank() != 4) {
    return call.WrongInput(given, fmt::format("has the shape {}", ShapeText(given.dims)), "pass 4 dims");
  }
  if (radius < 0) {
    return call.context.WrongAttribute("depth_radius", fmt::format("is {}", radius), "set it to 0 or more");
  }
  if (call.context.Text("norm_region") != "ACROSS_CHANNELS") {
    return call.context.WrongAttribute("norm_region", fmt::format("is \"{}\"", call.context.Text("norm_region")),
                                       "use ACROSS_CHANNELS, the only one that is computed");
  }
  const StridedView x = given.view();
  const bool is_last = given.format == kFormatNhwc;
  Expression f(call, DType::kFloat);
  const StridedView wide = f.Convert(x);
  // Windows over channels alone: [n, 1, c, h * w], or [n, 1, h * w, c].
  std::array<int64_t, 4> plane = {x.sizes[0], 1, x.sizes[1], x.sizes[2] * x.sizes[3]};
  std::vector<int64_t> window = {2 * radius + 1, 1};
  std::vector<int64_t> pads = {radius, 0};
  if (is_last) {
    plane = {x.sizes[0], 1, x.sizes[1] * x.sizes[2], x.sizes[3]};
    std::swap(window[0], window[1]);
    std::swap(pads[0], pads[1]);
  }
  const StridedView squares = f.Mul(wide, wide).As(plane);
  const StridedView sums = call.Temporary(DType::kFloat, x.sizes);
  REPRISE_RETURN_IF_ERROR(f.TakeStatus());
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnAvgPool2d",
                                   {{"self", squares},
                                    {"kernelSize", std::move(window)},
                                    {"strides", std::vector<int64_t>{1, 1}},
                                    {"paddings", std::move(pads)},
                                    {"ceilMode", false},
                                    {"countIncludePad", true},
                                    {"divisorOverride", int64_t{1}},
                                    {"cubeMathType", int64_t{0}},
                                    {"out", sums.As(plane)}}));
  const StridedView base = f.Plus(f.Times(sums, call.context.Real("alpha")), call.context.Real("bias"));
  f.Store(f.Mul(wide, f.Power(base, -call.context.Real("beta"))), call.OutputView());
  return f.TakeStatus();
}

// x / sqrt(max(sum of squares, eps))
Status LowerL2Normalize(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(call, "axis"));
  if (dims.empty()) dims = DimsBut(x.sizes.size(), x.sizes.size(), x.sizes.size());
  Expression f(call, DType::kFloat);
  const StridedView wide = f.Convert(x);
  const StridedView sum = f.Sum(f.Mul(wide, wide), std::move(dims));
  const StridedView floor = call.Temporary(DType::kFloat, sum.sizes);
  REPRISE_RETURN_IF_ERROR(f.TakeStatus());
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnClampMin", {sum, Scalar::Of<double>(call.context.Real("eps")), floor}));
  f.Store(f.Mul(wide, f.Of("aclnnRsqrt", floor)), call.OutputView());
  return f.TakeStatus();
}

constexpr NamedOp kChannelRows[] = {
    {"BNInference", kSingleAndFloat16, LowerCaffeBatchNorm},
    {"BNInferenceD", kSingleAndFloat16, LowerCaffeBatchNorm},
    {"BatchNorm", kSingleAndHalfTypes, LowerFrameworkBatchNorm},
    {"BatchNormGrad", kSingleAndHalfTypes, LowerFrameworkBatchNormGradient},
    {"Bias", kSingleAndFloat16, LowerScale},
    {"BiasAddGrad", kArithmetic, LowerBiasAddGradient},
    {"Eltwise", kSingleAndFloat16, LowerEltwise},
    {"FullyConnection", kSingleAndHalfTypes, LowerFullyConnection},
    {"InstanceNorm", kSingleAndFloat16, LowerInstanceNorm},
    {"L2Normalize", kSingleAndFloat16, LowerL2Normalize},
    {"LRN", kSingleAndFloat16, LowerLocalResponseNorm},
    {"LayerNorm", kSingleAndHalfTypes, LowerLayerNormByAxis},
    {"LayerNormGrad", kSingleAndHalfTypes, LowerLayerNormGradientByVariance},
    {"LayerNormV3", kSingleAndHalfTypes, LowerLayerNormByAxis},
    {"Scale", kSingleAndFloat16, LowerScale},
};

}  // namespace

std::span<const NamedOp> ChannelRows() { return kChannelRows; }

}  // namespace reprise::ops::named
