// SPDX-License-Identifier: Apache-2.0
//
// Losses with their gradients, and steps of optimizers: parameters and states are written in place, whatever the row
// names as outputs. Rates and the like are tensors of one element, read when the step runs. 16-bit floats round once.
#include <array>
#include <cmath>
#include <utility>

#include "ops/named_ops/expression.h"
#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;
using kernels::Scalar;

// ---- Losses ----

Status StepCrossEntropy(NamedCall& call, const StridedView& features, const StridedView& labels) {
  return StepWith(call, "aclnnSoftmaxCrossEntropyWithLogits",
                  {{"features", features},
                   {"labels", labels},
                   {"loss", call.Output("loss").view()},
                   {"backprop", call.Output("backprop").view()}});
}

Status LowerSoftmaxCrossEntropy(NamedCall& call) {
  const StridedView out = call.Output("backprop").view();
  const auto spread = [&](std::string_view name) -> StatusOr<StridedView> {
    const StridedView given = call.Input(name).view();
    if (given.sizes == out.sizes) return given;
    const StridedView copy = call.Temporary(given.dtype, out.sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(kSpread, {copy, given}));
    return copy;
  };
  REPRISE_ASSIGN_OR_RETURN(const StridedView features, spread("features"));
  REPRISE_ASSIGN_OR_RETURN(const StridedView labels, spread("labels"));
  return StepCrossEntropy(call, features, labels);
}

// Labels are classes; one that there is not makes its row NaN.
Status LowerSparseCrossEntropy(NamedCall& call) {
  const StridedView features = call.Input("features").view();
  const int64_t classes = features.sizes[features.sizes.size() - 1];
  const StridedView rows = call.Temporary(features.dtype, features.sizes);
  const StridedView one = call.Temporary(features.dtype, {});
  const StridedView zero = call.Temporary(features.dtype, {});
  REPRISE_RETURN_IF_ERROR(call.Step(kSetOne, {one}));
  REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {zero}));
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnOneHot",
                                   {{"self", call.Input("labels").view()},
                                    {"numClasses", classes},
                                    {"onValue", one},
                                    {"offValue", zero},
                                    {"axis", int64_t{-1}},
                                    {"out", rows}}));
  Expression f(call, features.dtype);
  const StridedView sum = f.Sum(rows, {static_cast<int64_t>(features.sizes.size()) - 1});
  const StridedView labels = f.Div(rows, sum);
  REPRISE_RETURN_IF_ERROR(f.TakeStatus());
  return StepCrossEntropy(call, features, labels);
}

// dout * (sigmoid(predict) - target)
Status LowerSigmoidCrossEntropyGradient(NamedCall& call) {
  Expression f(call, Wide(call.output().dtype()));
  const StridedView difference = f.Sub(f.Of("aclnnSigmoid", f.In("predict")), f.In("target"));
  f.Store(f.Mul(difference, f.In("dout")), call.OutputView());
  return f.TakeStatus();
}

Status LowerSigmoidCrossEntropyV2(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int64_t reduction, ReductionOf(call));
  return StepOf(call, "aclnnBinaryCrossEntropyWithLogits",
                {call.Input("predict").view(), call.Input("target").view(), OptionalInput(call, "weight"),
                 OptionalInput(call, "pos_weight"), reduction, call.OutputView()});
}

Status LowerSmoothL1ByElement(NamedCall& call) {
  return StepOf(call, "aclnnSmoothL1Loss",
                {call.Input("predict").view(), call.Input("label").view(), int64_t{0}, call.context.Real("sigma"),
                 call.OutputView()});
}

// dout * (difference / sigma, at most 1 and at least -1)
Status LowerSmoothL1Gradient(NamedCall& call) {
  const double sigma = call.context.Real("sigma");
  if (!(sigma > 0)) {
    return call.context.WrongAttribute("sigma", fmt::format("is {}", sigma), "set it above 0");
  }
  Expression f(call, Wide(call.output().dtype()));
  const StridedView slope = f.Times(f.Sub(f.In("predict"), f.In("label")), 1 / sigma);
  const StridedView limited = call.Temporary(slope.dtype, slope.sizes);
  REPRISE_RETURN_IF_ERROR(f.TakeStatus());
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnClamp",
                                   {{"self", slope},
                                    {"clipValueMin", Scalar::Of<double>(-1)},
                                    {"clipValueMax", Scalar::Of<double>(1)},
                                    {"out", limited}}));
  f.Store(f.Mul(limited, f.In("dout")), call.OutputView());
  return f.TakeStatus();
}

// ---- Optimizers ----

DType StepType(const NamedCall& call) { return Wide(call.inputs[0].dtype()); }

// var -= alpha * delta
Status LowerGradientDescent(NamedCall& call) {
  Expression f(call, StepType(call));
  const StridedView var = f.Ref("var");
  f.Store(f.Sub(var, f.Mul(f.In("delta"), f.Number("alpha"))), var);
  return f.TakeStatus();
}

// p = var - alpha * delta; var = sign(p) * max(|p| - alpha * l1, 0) / (1 + alpha * l2)
Status LowerProximalDescent(NamedCall& call) {
  Expression f(call, StepType(call));
  const StridedView var = f.Ref("var");
  const StridedView alpha = f.Number("alpha");
  const StridedView moved = f.Sub(var, f.Mul(f.In("delta"), alpha));
  const StridedView left = f.Sub(f.Of("aclnnAbs", moved), f.Mul(alpha, f.Number("l1")));
  const StridedView shrunk = f.Mul(f.Of("aclnnSign", moved), f.Of("aclnnRelu", left));
  f.Store(f.Div(shrunk, f.Plus(f.Mul(alpha, f.Number("l2")), 1)), var);
  return f.TakeStatus();
}

// accum = accum * momentum + grad; var -= lr * accum, or lr * (grad + momentum * accum)
Status LowerMomentum(NamedCall& call) {
  Expression f(call, StepType(call));
  const StridedView var = f.Ref("var");
  const StridedView accum = f.Ref("accum");
  const StridedView grad = f.In("grad");
  const StridedView momentum = f.Number("momentum");
  const StridedView moved = f.Add(f.Mul(accum, momentum), grad);
  const StridedView way = call.context.Bool("use_nesterov") ? f.Add(grad, f.Mul(moved, momentum)) : moved;
  f.Store(f.Sub(var, f.Mul(way, f.Number("lr"))), var);
  f.Store(moved, accum);
  return f.TakeStatus();
}

// accum = accum * momentum - lr * grad; var += accum, or momentum * accum - lr * grad
Status LowerKerasMomentum(NamedCall& call) {
  Expression f(call, StepType(call));
  const StridedView var = f.Ref("var");
  const StridedView accum = f.Ref("accum");
  const StridedView momentum = f.Number("momentum");
  const StridedView share = f.Mul(f.In("grad"), f.Number("lr"));
  const StridedView moved = f.Sub(f.Mul(accum, momentum), share);
  f.Store(f.Add(var, call.context.Bool("use_nesterov") ? f.Sub(f.Mul(moved, momentum), share) : moved), var);
  f.Store(moved, accum);
  return f.TakeStatus();
}

// g = gradient + weight_decay * parameters; accum = accum * momentum + (1 - dampening) * g, or g where stat is above 0,
// which becomes 0; parameters -= learning_rate * accum, or learning_rate * (g + momentum * accum).
Status LowerSgd(NamedCall& call) {
  Expression f(call, StepType(call));
  const StridedView parameters = f.Ref("parameters");
  const StridedView accum = f.Ref("accum");
  const StridedView stat = f.Ref("stat");
  const StridedView momentum = f.Number("momentum");
  StridedView grad = f.In("gradient");
  const double decay = call.context.Real("weight_decay");
  if (decay != 0) grad = f.Add(grad, f.Times(parameters, decay));
  const StridedView later = f.Add(f.Mul(accum, momentum), f.Times(grad, 1 - call.context.Real("dampening")));
  const StridedView is_first = f.Of("aclnnSign", f.Of("aclnnRelu", f.Convert(stat)));
  const StridedView moved = f.Add(f.Mul(grad, is_first), f.Mul(later, f.From(1, is_first)));
  const StridedView way = call.context.Bool("nesterov") ? f.Add(grad, f.Mul(moved, momentum)) : moved;
  f.Store(f.Sub(parameters, f.Mul(way, f.Number("learning_rate"))), parameters);
  f.Store(moved, accum);
  f.Store(f.Mul(f.Convert(stat), f.From(1, is_first)), stat);
  return f.TakeStatus();
}

Status LowerAdam(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const StridedView var, call.InPlace("var"));
  REPRISE_ASSIGN_OR_RETURN(const StridedView m, call.InPlace("m"));
  REPRISE_ASSIGN_OR_RETURN(const StridedView v, call.InPlace("v"));
  std::vector<StepArgument> arguments = {var, m, v};
  for (const std::string_view name : {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"}) {
    REPRISE_ASSIGN_OR_RETURN(const StridedView number, OneNumber(call, name));
    arguments.emplace_back(number);
  }
  arguments.emplace_back(call.Input("grad").view());
  arguments.emplace_back(false);
  arguments.emplace_back(call.context.Bool("use_nesterov"));
  return call.Step(Routine::Of("aclnnApplyAdam"), arguments);
}

// m += (grad - m) * (1 - beta1); v = max(beta2 * v, |grad|); var -= lr / (1 - beta1_power) * m / (v + epsilon)
Status LowerAdaMax(NamedCall& call) {
  Expression f(call, StepType(call));
  const StridedView var = f.Ref("var");
  const StridedView m = f.Ref("m");
  const StridedView v = f.Ref("v");
  const StridedView grad = f.In("grad");
  const StridedView mean = f.Add(m, f.Mul(f.Sub(grad, m), f.From(1, f.Number("beta1"))));
  const StridedView largest = f.Of("aclnnMaximum", f.Mul(v, f.Number("beta2")), f.Of("aclnnAbs", grad));
  const StridedView rate = f.Div(f.Number("lr"), f.From(1, f.Number("beta1_power")));
  f.Store(f.Sub(var, f.Mul(rate, f.Div(mean, f.Add(largest, f.Number("epsilon"))))), var);
  f.Store(mean, m);
  f.Store(largest, v);
  return f.TakeStatus();
}

// accum += grad^2; var -= lr * grad / (sqrt(accum) + epsilon), which the first version has not
Status LowerAdagrad(NamedCall& call) {
  Expression f(call, StepType(call));
  const StridedView var = f.Ref("var");
  const StridedView accum = f.Ref("accum");
  const StridedView grad = f.In("grad");
  const bool adds = call.context.Bool("update_slots");
  const StridedView sum = adds ? f.Add(accum, f.Mul(grad, grad)) : f.Convert(accum);
  StridedView root = f.Of("aclnnSqrt", sum);
  if (call.Has("epsilon")) {
    root = f.Add(root, f.Number("epsilon"));
  } else if (call.context.op.FindAttribute("epsilon") != nullptr) {
    root = f.Plus(root, call.context.Real("epsilon"));
  }
  f.Store(f.Sub(var, f.Mul(f.Number("lr"), f.Div(grad, root))), var);
  if (adds) f.Store(sum, accum);
  return f.TakeStatus();
}

// ms += (grad^2 - ms) * (1 - rho); mom = mom * momentum + lr * grad / sqrt(ms + epsilon); var -= mom. Centered: less
// the square of the mean of the gradients, mg.
Status LowerRmsProp(NamedCall& call) {
  Expression f(call, StepType(call));
  const bool is_centered = call.op.type.find("Centered") != std::string_view::npos;
  const bool has_tensors = call.Has("rho");
  const StridedView var = f.Ref("var");
  const StridedView ms = f.Ref("ms");
  const StridedView mom = f.Ref("mom");
  const StridedView grad = f.In("grad");
  const auto times = [&](const StridedView& x, std::string_view name, bool is_rest) {
    if (has_tensors) return f.Mul(x, is_rest ? f.From(1, f.Number(name)) : f.Number(name));
    return f.Times(x, is_rest ? 1 - call.context.Real(name) : call.context.Real(name));
  };
  const StridedView square = f.Add(ms, times(f.Sub(f.Mul(grad, grad), ms), "rho", true));
  StridedView base = square;
  if (is_centered) {
    const StridedView mg = f.Ref("mg");
    const StridedView mean = f.Add(mg, times(f.Sub(grad, mg), "rho", true));
    base = f.Sub(square, f.Mul(mean, mean));
    f.Store(mean, mg);
  }
  base = has_tensors ? f.Add(base, f.Number("epsilon")) : f.Plus(base, call.context.Real("epsilon"));
  const StridedView share = f.Mul(f.Number("lr"), f.Div(grad, f.Of("aclnnSqrt", base)));
  const StridedView moved = f.Add(times(mom, "momentum", false), share);
  f.Store(f.Sub(var, moved), var);
  f.Store(square, ms);
  f.Store(moved, mom);
  return f.TakeStatus();
}

// accum = accum * rho + grad^2 * (1 - rho); u = grad * sqrt(accum_update + epsilon) / sqrt(accum + epsilon);
// accum_update = accum_update * rho + u^2 * (1 - rho); var -= lr * u
Status LowerAdadelta(NamedCall& call) {
  Expression f(call, StepType(call));
  const StridedView var = f.Ref("var");
  const StridedView accum = f.Ref("accum");
  const StridedView updates = f.Ref("accum_update");
  const StridedView grad = f.In("grad");
  const StridedView rho = f.Number("rho");
  const StridedView rest = f.From(1, rho);
  const StridedView epsilon = f.Number("epsilon");
  const StridedView sum = f.Add(f.Mul(accum, rho), f.Mul(f.Mul(grad, grad), rest));
  const StridedView ratio = f.Div(f.Of("aclnnSqrt", f.Add(updates, epsilon)), f.Of("aclnnSqrt", f.Add(sum, epsilon)));
  const StridedView update = f.Mul(grad, ratio);
  f.Store(f.Sub(var, f.Mul(update, f.Number("lr"))), var);
  f.Store(f.Add(f.Mul(updates, rho), f.Mul(f.Mul(update, update), rest)), updates);
  f.Store(sum, accum);
  return f.TakeStatus();
}

// n = accum + grad^2; linear += g - (n^-p - accum^-p) / lr * var, p = lr_power, g = grad + 2 * l2_shrinkage * var;
// var = (l1 * sign(linear) - linear) / (n^-p / lr + 2 * l2) where |linear| > l1, else 0; accum = n
Status LowerFtrl(NamedCall& call) {
  Expression f(call, StepType(call));
  const StridedView var = f.Ref("var");
  const StridedView accum = f.Ref("accum");
  const StridedView linear = f.Ref("linear");
  const StridedView grad = f.In("grad");
  const StridedView lr = f.Number("lr");
  const StridedView l1 = f.Number("l1");
  const StridedView power = f.Times(f.Number("lr_power"), -1);
  const StridedView sum = f.Add(accum, f.Mul(grad, grad));
  const StridedView raised = f.Of("aclnnPowTensorTensor", sum, power);
  const StridedView before = f.Of("aclnnPowTensorTensor", accum, power);
  StridedView pull = grad;
  if (call.Has("l2_shrinkage")) pull = f.Add(grad, f.Mul(f.Times(f.Number("l2_shrinkage"), 2), var));
  const StridedView sigma = f.Div(f.Sub(raised, before), lr);
  const StridedView total = f.Add(linear, f.Sub(pull, f.Mul(sigma, var)));
  // l1 * sign - linear, where it is beyond l1: minus the sign times what is left.
  const StridedView left = f.Of("aclnnRelu", f.Sub(f.Of("aclnnAbs", total), l1));
  const StridedView numerator = f.Times(f.Mul(f.Of("aclnnSign", total), left), -1);
  const StridedView divisor = f.Add(f.Div(raised, lr), f.Times(f.Number("l2"), 2));
  f.Store(f.Div(numerator, divisor), var);
  f.Store(total, linear);
  f.Store(sum, accum);
  return f.TakeStatus();
}

// m = m * beta + grad * (1 - beta); var -= lr * (alpha + sign_decay * sign(grad) * sign(m)) * grad, or with
// e ^ (logbase * sign_decay * sign(grad) * sign(m)) as the factor
Status LowerSignStep(NamedCall& call) {
  Expression f(call, StepType(call));
  const StridedView var = f.Ref("var");
  const StridedView m = f.Ref("m");
  const StridedView grad = f.In("grad");
  const StridedView beta = f.Number("beta");
  const StridedView mean = f.Add(f.Mul(m, beta), f.Mul(grad, f.From(1, beta)));
  const StridedView agree = f.Mul(f.Of("aclnnSign", grad), f.Of("aclnnSign", mean));
  const StridedView decayed = f.Mul(agree, f.Number("sign_decay"));
  const StridedView factor =
      call.Has("alpha") ? f.Add(decayed, f.Number("alpha")) : f.Of("aclnnExp", f.Mul(decayed, f.Number("logbase")));
  f.Store(f.Sub(var, f.Mul(f.Mul(factor, grad), f.Number("lr"))), var);
  f.Store(mean, m);
  return f.TakeStatus();
}

constexpr NamedOp kTrainingRows[] = {
    {"ApplyAdaMax", kFloatingTypes, LowerAdaMax},
    {"ApplyAdaMaxD", kFloatingTypes, LowerAdaMax},
    {"ApplyAdadelta", kFloatingTypes, LowerAdadelta},
    {"ApplyAdadeltaD", kFloatingTypes, LowerAdadelta},
    {"ApplyAdagrad", kFloatingTypes, LowerAdagrad},
    {"ApplyAdagradD", kFloatingTypes, LowerAdagrad},
    {"ApplyAdagradV2", kFloatingTypes, LowerAdagrad},
    {"ApplyAdagradV2D", kFloatingTypes, LowerAdagrad},
    {"ApplyAdam", kFloatingTypes, LowerAdam},
    {"ApplyAdamD", kFloatingTypes, LowerAdam},
    As("ApplyAdamW", kFloatingTypes, "aclnnApplyAdamW",
       "=var =m =v beta1_power beta2_power lr weight_decay beta1 beta2 epsilon grad max_grad_norm @amsgrad @maximize"),
    {"ApplyAddSign", kFloatingTypes, LowerSignStep},
    {"ApplyCenteredRMSProp", kFloatingTypes, LowerRmsProp},
    {"ApplyCenteredRMSPropD", kFloatingTypes, LowerRmsProp},
    {"ApplyFtrl", kFloatingTypes, LowerFtrl},
    {"ApplyFtrlD", kFloatingTypes, LowerFtrl},
    {"ApplyFtrlV2", kFloatingTypes, LowerFtrl},
    {"ApplyFtrlV2D", kFloatingTypes, LowerFtrl},
    {"ApplyGradientDescent", kFloatingTypes, LowerGradientDescent},
    {"ApplyKerasMomentum", kFloatingTypes, LowerKerasMomentum},
    {"ApplyKerasMomentumD", kFloatingTypes, LowerKerasMomentum},
    {"ApplyMomentum", kFloatingTypes, LowerMomentum},
    {"ApplyMomentumD", kFloatingTypes, LowerMomentum},
    {"ApplyPowerSign", kFloatingTypes, LowerSignStep},
    {"ApplyProximalGradientDescent", kFloatingTypes, LowerProximalDescent},
    {"ApplyRMSProp", kFloatingTypes, LowerRmsProp},
    {"ApplyRMSPropD", kFloatingTypes, LowerRmsProp},
    {"SGD", kSingleAndFloat16, LowerSgd},
    {"SigmoidCrossEntropyWithLogitsGrad", kSingleAndFloat16, LowerSigmoidCrossEntropyGradient},
    {"SigmoidCrossEntropyWithLogitsV2", kSingleAndFloat16, LowerSigmoidCrossEntropyV2},
    {"SmoothL1Loss", kSingleAndFloat16, LowerSmoothL1ByElement},
    {"SmoothL1LossGrad", kSingleAndFloat16, LowerSmoothL1Gradient},
    {"SoftmaxCrossEntropyWithLogits", kNoBFloat16, LowerSoftmaxCrossEntropy},
    {"SparseSoftmaxCrossEntropyWithLogits", kNoBFloat16, LowerSparseCrossEntropy},
};

}  // namespace

std::span<const NamedOp> TrainingRows() { return kTrainingRows; }

}  // namespace reprise::ops::named
