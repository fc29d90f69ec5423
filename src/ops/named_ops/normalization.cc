// SPDX-License-Identifier: Apache-2.0
//
// Norms and their gradients.
#include <algorithm>
#include <array>
#include <utility>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;
using kernels::Scalar;

// ---- Batch norm ----

// 1 / sqrt(variance + epsilon) in float32.
StatusOr<StridedView> InverseRoot(NamedCall& call, const StridedView& variance, double epsilon) {
  const StridedView root = call.Temporary(DType::kFloat, variance.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {variance, Scalar::Of<double>(epsilon), root}));
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnRsqrt", {{"self", root}, {"out", root}}));
  return root;
}

// One number for each channel, to broadcast with x [n, c, ..].
StatusOr<StridedView> EachChannel(const NamedCall& call, std::string_view name, const StridedView& x) {
  const NamedTensor& tensor = call.Input(name);
  if (x.sizes.size() < 2 || CountOf(tensor.dims) != x.sizes[1]) {
    return call.WrongInput(tensor, fmt::format("has {} elements, expected one for each channel of a tensor [n, c, ..]",
                                               CountOf(tensor.dims)));
  }
  std::vector<int64_t> sizes(x.sizes.size() - 1, 1);
  sizes[0] = x.sizes[1];
  return tensor.view().As(sizes);
}

Status LowerBatchNormV3(NamedCall& call) {
  const bool is_training = call.context.Bool("is_training");
  const double epsilon = call.context.Real("epsilon");
  REPRISE_ASSIGN_OR_RETURN(const StridedView mean, call.InPlace("running_mean"));
  REPRISE_ASSIGN_OR_RETURN(const StridedView variance, call.InPlace("running_var"));
  const StridedView save_mean = call.Output("save_mean").view();
  const StridedView save_rstd = call.Output("save_rstd").view();
  if (!is_training) {  // the statistics that were used
    REPRISE_RETURN_IF_ERROR(CopyTo(call, mean, save_mean));
    REPRISE_ASSIGN_OR_RETURN(const StridedView root, InverseRoot(call, variance, epsilon));
    REPRISE_RETURN_IF_ERROR(CopyTo(call, root, save_rstd));
  }
  return StepWith(call, "aclnnBatchNorm",
                  {{"input", call.Input("x").view()},
                   {"weight", call.Input("weight").view()},
                   {"bias", call.Input("bias").view()},
                   {"runningMean", mean},
                   {"runningVar", variance},
                   {"training", is_training},
                   {"momentum", call.context.Real("momentum")},
                   {"eps", epsilon},
                   {"output", call.Output("y").view()},
                   {"saveMean", is_training ? StepArgument(save_mean) : nullptr},
                   {"saveInvstd", is_training ? StepArgument(save_rstd) : nullptr}});
}

Status LowerBatchNormGradV3(NamedCall& call) {
  return StepWith(call, "aclnnBatchNormBackward",
                  {{"gradOut", call.Input("dy").view()},
                   {"input", call.Input("x").view()},
                   {"weight", call.Input("weight").view()},
                   {"runningMean", call.Input("running_mean").view()},
                   {"runningVar", call.Input("running_var").view()},
                   {"saveMean", call.Input("save_mean").view()},
                   {"saveInvstd", call.Input("save_rstd").view()},
                   {"training", call.context.Bool("is_training")},
                   {"eps", call.context.Real("epsilon")},
                   {"outputMask", std::vector<bool>{true, true, true}},
                   {"gradInput", call.Output("dx").view()},
                   {"gradWeight", call.Output("dweight").view()},
                   {"gradBias", call.Output("dbias").view()}});
}

// y = (x - mean) / sqrt(variance + epsilon) * scale + offset
Status LowerBatchNormInfer(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  for (const std::string_view name : {"scale", "offset", "mean", "variance"}) {
    REPRISE_RETURN_IF_ERROR(EachChannel(call, name, x).status());
  }
  const std::array<int64_t, 1> line = {x.sizes[1]};
  return StepWith(call, "aclnnBatchNorm",
                  {{"input", x},
                   {"weight", call.Input("scale").view().As(line)},
                   {"bias", call.Input("offset").view().As(line)},
                   {"runningMean", call.Input("mean").view().As(line)},
                   {"runningVar", call.Input("variance").view().As(line)},
                   {"training", false},
                   {"momentum", 0.0},
                   {"eps", call.context.Real("epsilon")},
                   {"output", call.OutputView()}});
}

// x_backprop = grads * scale / sqrt(batch_variance + epsilon)
Status LowerBatchNormInferGradient(NamedCall& call) {
  const StridedView grads = call.Input("grads").view();
  REPRISE_ASSIGN_OR_RETURN(const StridedView scale, EachChannel(call, "scale", grads));
  REPRISE_ASSIGN_OR_RETURN(const StridedView variance, EachChannel(call, "batch_variance", grads));
  REPRISE_ASSIGN_OR_RETURN(const StridedView factor, InverseRoot(call, variance, call.context.Real("epsilon")));
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeMul), {factor, scale, factor}));
  return StepWith(call, "aclnnMul", {{"self", grads}, {"other", factor}, {"out", call.OutputView()}});
}

// Sums of grads, and of grads times the normed x.
Status LowerBatchNormSums(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  REPRISE_ASSIGN_OR_RETURN(const StridedView variance, EachChannel(call, "batch_variance", x));
  REPRISE_ASSIGN_OR_RETURN(const StridedView root, InverseRoot(call, variance, call.context.Real("epsilon")));
  return StepWith(call, "aclnnBatchNormReduceBackward",
                  {{"gradOut", call.Input("grads").view()},
                   {"input", x},
                   {"mean", call.Input("batch_mean").view()},
                   {"invstd", root},
                   {"inputG", false},
                   {"weightG", true},
                   {"biasG", true},
                   {"gradWeight", call.Output("diff_scale").view()},
                   {"gradBias", call.Output("diff_offset").view()}});
}

// Gradient of x from means over n elements of dy and of dy * (x - mean).
Status StepGradientOfX(NamedCall& call, std::string_view grad, std::string_view x, std::string_view mean,
                       std::string_view weight, const StridedView& root, const StridedView& sum,
                       const StridedView& product_sum, int32_t count) {
  const std::array<int64_t, 1> one = {1};
  return StepWith(call, "aclnnBatchNormElemtBackward",
                  {{"gradOut", call.Input(grad).view()},
                   {"input", call.Input(x).view()},
                   {"mean", call.Input(mean).view()},
                   {"invstd", root},
                   {"weight", call.Input(weight).view()},
                   {"sumDy", sum},
                   {"sumDyXmu", product_sum},
                   {"counter", call.Numbers(DType::kInt32, one, &count)},
                   {"gradInput", call.OutputView()}});
}

// diff_scale and diff_offset are the sums of BNTrainingUpdateGrad.
Status LowerBatchNormReduceGradient(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  REPRISE_ASSIGN_OR_RETURN(const StridedView variance, EachChannel(call, "batch_variance", x));
  REPRISE_ASSIGN_OR_RETURN(const StridedView diff_scale, EachChannel(call, "diff_scale", x));
  REPRISE_ASSIGN_OR_RETURN(const StridedView root, InverseRoot(call, variance, call.context.Real("epsilon")));
  const StridedView product_sum = call.Temporary(DType::kFloat, root.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeDiv), {diff_scale, root, product_sum}));
  const int64_t count = CountOf(x.sizes) / std::max<int64_t>(1, x.sizes[1]);
  if (count > INT32_MAX) return call.WrongInput(call.Input("x"), "has more than 2^31 elements for each channel");
  return StepGradientOfX(call, "grads", "x", "batch_mean", "scale", root, call.Input("diff_offset").view(), product_sum,
                         static_cast<int32_t>(count));
}

Status LowerSyncGradientOfX(NamedCall& call) {
  return StepGradientOfX(call, "grad_output", "save_input", "mean", "weight", call.Input("invstd").view(),
                         call.Input("mean_dy").view(), call.Input("mean_dy_xmu").view(), 1);
}

// sum_dy_xmu = sum_dy_dx_pad - sum_dy * mean, y = sum_dy_xmu * invert_std
Status LowerSyncGradientSums(NamedCall& call) {
  const StridedView sum = call.Input("sum_dy").view();
  const StridedView product = call.Temporary(DType::kFloat, sum.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeMul), {sum, call.Input("mean").view(), product}));
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeSub), {call.Input("sum_dy_dx_pad").view(), product, product}));
  REPRISE_RETURN_IF_ERROR(CopyTo(call, product, call.Output("sum_dy_xmu").view()));
  return call.Step(BinaryRoutine(kCodeMul), {product, call.Input("invert_std").view(), call.Output("y").view()});
}

// ---- Groups of channels ----

struct Groups {
  int64_t batch, channels, elements, count;
};

StatusOr<Groups> ReadGroups(const NamedCall& call) {
  const std::vector<int64_t>& sizes = call.Input("x").dims;
  const int64_t count = call.context.Int("num_groups");
  if (sizes.size() < 2) return call.WrongInput(call.Input("x"), "has too few dims", "pass [n, c, ..]");
  if (count < 1) return call.context.WrongAttribute("num_groups", fmt::format("is {}", count), "set it to 1 or more");
  return Groups{sizes[0], sizes[1], CountOf(std::span(sizes).subspan(2)), count};
}

Status LowerNamedGroupNorm(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Groups groups, ReadGroups(call));
  const StridedView x = call.Input("x").view();
  const StridedView mean = call.Output("mean").view();
  const bool has_variance = call.op.type == "GroupNorm";
  const StridedView last = call.Output(has_variance ? "variance" : "rstd").view();
  const StridedView rstd = has_variance ? call.Temporary(last.dtype, last.sizes) : last;
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnGroupNorm",
                                   {{"self", x},
                                    {"gamma", call.Input("gamma").view()},
                                    {"beta", call.Input("beta").view()},
                                    {"N", groups.batch},
                                    {"C", groups.channels},
                                    {"HxW", groups.elements},
                                    {"group", groups.count},
                                    {"eps", call.context.Real("eps")},
                                    {"out", call.Output("y").view()},
                                    {"meanOut", mean},
                                    {"rstdOut", rstd}}));
  if (!has_variance) return {};
  const int64_t size = groups.channels / groups.count * groups.elements;
  const std::array<int64_t, 3> sizes = {groups.batch, groups.count, size};
  return StepWith(call, "aclnnVarCorrection",
                  {{"self", x.As(sizes)},
                   {"dim", std::vector<int64_t>{2}},
                   {"correction", int64_t{0}},
                   {"keepdim", false},
                   {"out", last}});
}

Status LowerGroupNormGradient(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Groups groups, ReadGroups(call));
  constexpr std::string_view kFlags[] = {"dx_is_require", "dgamma_is_require", "dbeta_is_require"};
  constexpr std::string_view kOutputs[] = {"dx", "dgamma", "dbeta"};
  std::vector<bool> mask;
  std::vector<StepArgument> outputs;
  for (size_t i = 0; i < 3; ++i) {
    mask.push_back(call.context.Bool(kFlags[i]));
    const StridedView out = call.Output(kOutputs[i]).view();
    outputs.emplace_back(mask.back() ? StepArgument(out) : nullptr);
    if (!mask.back()) REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {out}));
  }
  const std::array<int64_t, 2> statistics = {groups.batch, groups.count};
  for (const std::string_view name : {"mean", "rstd"}) {
    if (CountOf(call.Input(name).dims) == groups.batch * groups.count) continue;
    return call.WrongInput(call.Input(name), "does not fit x", "pass one number for each group: [n, num_groups]");
  }
  return StepWith(call, "aclnnGroupNormBackward",
                  {{"gradOut", call.Input("dy").view()},
                   {"input", call.Input("x").view()},
                   {"mean", call.Input("mean").view().As(statistics)},
                   {"rstd", call.Input("rstd").view().As(statistics)},
                   {"gamma", call.Input("gamma").view()},
                   {"N", groups.batch},
                   {"C", groups.channels},
                   {"HxW", groups.elements},
                   {"group", groups.count},
                   {"outputMask", std::move(mask)},
                   {"gradInput", std::move(outputs[0])},
                   {"gradGammaOut", std::move(outputs[1])},
                   {"gradBetaOut", std::move(outputs[2])}});
}

// ---- Layers ----

Status LowerLayerNormGradient(NamedCall& call) {
  const NamedTensor& gamma = call.Input("gamma");
  return StepWith(call, "aclnnLayerNormBackward",
                  {{"gradOut", call.Input("dy").view()},
                   {"input", call.Input("x").view()},
                   {"normalizedShape", gamma.dims},
                   {"mean", call.Input("mean").view()},
                   {"rstd", call.Input("rstd").view()},
                   {"weightOptional", gamma.view()},
                   {"outputMask", std::vector<bool>{true, true, true}},
                   {"gradInputOut", call.Output("pd_x").view()},
                   {"gradWeightOut", call.Output("pd_gamma").view()},
                   {"gradBiasOut", call.Output("pd_beta").view()}});
}

constexpr NamedOp kNormalizationRows[] = {
    As("AddRmsNorm", {}, "aclnnAddRmsNorm", "x1 x2 gamma @epsilon =y =rstd =x"),
    As("AddRmsNormCast", {}, "aclnnAddRmsNormCast", "x1 x2 gamma @epsilon =y1 =y2 =rstd =x"),
    {"BN3DTrainingUpdateGrad", {}, LowerBatchNormSums},
    {"BNInfer", {}, LowerBatchNormInfer},
    {"BNInferGrad", {}, LowerBatchNormInferGradient},
    {"BNTrainingReduceGrad", {}, LowerBatchNormReduceGradient},
    {"BNTrainingUpdateGrad", {}, LowerBatchNormSums},
    {"BatchNormGradV3", {}, LowerBatchNormGradV3},
    {"BatchNormV3", {}, LowerBatchNormV3},
    {"GroupNorm", {}, LowerNamedGroupNorm},
    {"GroupNormGrad", {}, LowerGroupNormGradient},
    As("GroupNormSilu", {}, "aclnnGroupNormSilu", "x gamma beta @num_groups @eps =y =mean =variance"),
    {"GroupNormV2", {}, LowerNamedGroupNorm},
    {"LayerNormGradV3", {}, LowerLayerNormGradient},
    As("LayerNormV4", {}, "aclnnLayerNorm", "x #normalized_shape gamma beta @epsilon =y =mean =rstd"),
    As("RmsNorm", {}, "aclnnRmsNorm", "x gamma @epsilon =y =rstd"),
    As("RmsNormGrad", {}, "aclnnRmsNormGrad", "dy x rstd gamma =dx =dgamma"),
    As("RmsNormGradQuant", {}, "aclnnRmsNormGradQuant",
       "dy x rstd gamma scale_x offset_x @quant_mode @div_mode =dx_out =dgamma_out"),
    {"SyncBatchNormBackwardElemt", {}, LowerSyncGradientOfX},
    {"SyncBatchNormBackwardReduce", {}, LowerSyncGradientSums},
    As("SyncBatchNormGatherStats", {}, "aclnnSyncBatchNormGatherStats",
       "total_sum total_square_sum sample_count =mean =variance @momentum @eps =batch_mean =batch_invstd"),
};

}  // namespace

std::span<const NamedOp> NormalizationRows() { return kNormalizationRows; }

}  // namespace reprise::ops::named
