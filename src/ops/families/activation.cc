// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation_functions.h"

#include <complex>

#include "ops/computations.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::ElementFn;
using kernels::Scalar;
using kernels::TensorRef;

// ---- Functions with numbers ----

// fn(inputs) with the numbers that the scalar attributes `names` are.
template <size_t kCount>
Status LowerWithNumbers(OpCall& call, const ElementFn& fn, const std::string_view (&names)[kCount]) {
  Scalar numbers[kCount];
  for (size_t i = 0; i < kCount; ++i) REPRISE_RETURN_IF_ERROR(NumberOf(call, names[i], numbers[i]));
  return LowerElementwise(call, fn, numbers);
}

Status LowerHardtanh(OpCall& call) {
  return LowerWithNumbers(call, kernels::kHardtanhFn, {"clipValueMin", "clipValueMax"});
}
Status LowerLeakyRelu(OpCall& call) { return LowerWithNumbers(call, kernels::kLeakyReluFn, {"negativeSlope"}); }
Status LowerSoftplus(OpCall& call) { return LowerWithNumbers(call, kernels::kSoftplusFn, {"beta", "threshold"}); }
Status LowerThreshold(OpCall& call) { return LowerWithNumbers(call, kernels::kThresholdFn, {"threshold", "value"}); }
Status LowerThresholdBackward(OpCall& call) {
  return LowerWithNumbers(call, kernels::kThresholdBackwardFn, {"threshold"});
}

Status LowerElu(OpCall& call) {
  Scalar alpha;
  Scalar scale;
  Scalar inner;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "alpha", alpha));
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "scale", scale));
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "inputScale", inner));
  const Scalar numbers[] = {Scalar::Of(alpha.As<double>() * scale.As<double>()), scale, inner};
  return LowerElementwise(call, kernels::kEluFn, numbers);
}

// ---- GELU: exact, or by tanh ----

// Attribute approximate, a number or a word.
StatusOr<bool> IsTanh(const OpCall& call, bool is_word) {
  if (is_word) {
    const std::string_view word = call.Text("approximate");
    if (word == "tanh") return true;
    if (word == "none") return false;
    return call.Invalid(fmt::format("approximate is \"{}\", expected \"none\" or \"tanh\"", word));
  }
  const int64_t number = call.Int("approximate");
  if (number == 0 || number == 1) return number == 1;
  return call.Invalid(fmt::format("approximate is {}, expected 0 (erf) or 1 (tanh)", number));
}

Status LowerGeluV2(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const bool is_tanh, IsTanh(call, false));
  return LowerElementwise(call, is_tanh ? kernels::kGeluTanhFn : kernels::kGeluFn);
}

Status LowerGeluBackwardV2(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const bool is_tanh, IsTanh(call, true));
  return LowerElementwise(call, is_tanh ? kernels::kGeluTanhBackwardFn : kernels::kGeluBackwardFn);
}

// ---- Gated functions: the halves of a tensor along dim ----

// The tensor that is cut in halves, its dim, and the shape of a half.
struct Halves {
  const Operand* whole;
  int dim;
  Dims shape;

  // The first or second half of the operand, which has the shape of `whole`.
  ElementView View(const OpCall& call, const Operand& operand, int index) const {
    ElementView view{&operand, call.RefOf(operand)};
    const int64_t half = shape[static_cast<size_t>(dim)];
    view.ref.sizes[dim] = half;
    view.ref.data =
        static_cast<char*>(view.ref.data) + index * half * view.ref.strides[dim] * kernels::ItemSize(view.ref.dtype);
    return view;
  }
};

StatusOr<Halves> HalvesOf(const OpCall& call, const Operand& whole) {
  if (whole.rank() == 0) {
    return call.InvalidOperand(whole, "has rank 0, expected at least one dim to cut in halves");
  }
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), whole.rank()));
  Halves halves{&whole, dim, Dims(whole.sizes().data(), whole.sizes().size())};
  int64_t& size = halves.shape[static_cast<size_t>(dim)];
  if (size % 2 != 0) {
    return call.InvalidOperand(
        whole, fmt::format("has shape {}, expected an even size of dim {}", ShapeText(whole.sizes()), dim));
  }
  size /= 2;
  return halves;
}

ElementView WholeView(const OpCall& call, const Operand& operand) { return {&operand, call.RefOf(operand)}; }

Status HalvedShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Halves halves, HalvesOf(call, call.inputs[0]));
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, {halves.shape.data(), halves.shape.size()}, [&] {
      return fmt::format("the shape of {} with half the size of dim {}", call.NameOf(call.inputs[0]), halves.dim);
    }));
  }
  return {};
}

// The same backwards: input 0 is the gradient of what HalvedShape says.
Status HalvedGradShape(OpCall& call) {
  const Operand& whole = call.inputs[1];
  REPRISE_ASSIGN_OR_RETURN(const Halves halves, HalvesOf(call, whole));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.inputs[0], {halves.shape.data(), halves.shape.size()}, [&] {
    return fmt::format("the shape of {} with half the size of dim {}", call.NameOf(whole), halves.dim);
  }));
  return call.CheckShape(call.outputs[0], whole.sizes(),
                         [&] { return fmt::format("the shape of {}", call.NameOf(whole)); });
}

// out = fn(half, other half); `first` is the half that is the first operand.
Status LowerGated(OpCall& call, const ElementFn& fn, const Operand& out, int first) {
  REPRISE_ASSIGN_OR_RETURN(const Halves halves, HalvesOf(call, call.inputs[0]));
  const ElementView inputs[] = {halves.View(call, call.inputs[0], first), halves.View(call, call.inputs[0], 1 - first)};
  return LowerElementwise(call, fn, {}, WholeView(call, out), inputs);
}

Status LowerGlu(OpCall& call) { return LowerGated(call, kernels::kGluFn, call.outputs[0], 0); }
Status LowerSwiGlu(OpCall& call) { return LowerGated(call, kernels::kSwiGluFn, call.outputs[0], 0); }

Status LowerGeGlu(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const bool is_tanh, IsTanh(call, false));
  REPRISE_ASSIGN_OR_RETURN(const Halves halves, HalvesOf(call, call.inputs[0]));
  const int active = call.Bool("activateLeft") ? 0 : 1;
  const ElementView gate[] = {halves.View(call, call.inputs[0], active)};
  REPRISE_RETURN_IF_ERROR(LowerElementwise(call, is_tanh ? kernels::kGeluTanhFn : kernels::kGeluFn, {},
                                           WholeView(call, call.Get("outGelu")), gate));
  return LowerGated(call, is_tanh ? kernels::kGeGluTanhFn : kernels::kGeGluFn, call.Get("out"), active);
}

Status LowerGluBackward(OpCall& call) {
  const Operand& whole = call.inputs[1];
  REPRISE_ASSIGN_OR_RETURN(const Halves halves, HalvesOf(call, whole));
  const ElementView grad = WholeView(call, call.inputs[0]);
  const ElementView a = halves.View(call, whole, 0);
  const ElementView b = halves.View(call, whole, 1);
  // Of the first half: grad s(b).
  const ElementView first[] = {grad, b};
  REPRISE_RETURN_IF_ERROR(LowerElementwise(call, kernels::kGluFn, {}, halves.View(call, call.outputs[0], 0), first));
  const ElementView second[] = {grad, a, b};
  return LowerElementwise(call, kernels::kGluGateBackwardFn, {}, halves.View(call, call.outputs[0], 1), second);
}

Status LowerSwiGluGrad(OpCall& call) {
  const Operand& whole = call.inputs[1];
  REPRISE_ASSIGN_OR_RETURN(const Halves halves, HalvesOf(call, whole));
  const ElementView grad = WholeView(call, call.inputs[0]);
  const ElementView a = halves.View(call, whole, 0);
  const ElementView b = halves.View(call, whole, 1);
  const ElementView first[] = {grad, a, b};
  REPRISE_RETURN_IF_ERROR(
      LowerElementwise(call, kernels::kSwiGluGateBackwardFn, {}, halves.View(call, call.outputs[0], 0), first));
  // Of the second half: silu(a) grad.
  const ElementView second[] = {a, grad};
  return LowerElementwise(call, kernels::kSwiGluFn, {}, halves.View(call, call.outputs[0], 1), second);
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/activation.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
