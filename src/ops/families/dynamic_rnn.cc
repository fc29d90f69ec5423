// SPDX-License-Identifier: Apache-2.0
//
// One layer and direction of an LSTM with its weights as matrices [features, 4 * hidden] and [hidden, 4 * hidden], and
// its gradients: what the operators DynamicRNN and DynamicRNNV2 are, called by their type. kernels/recurrent.h has the
// formulas.
#include "kernels/recurrent.h"
#include "ops/families/recurrent_parts.h"

namespace reprise::ops::recurrent {

using kernels::DType;
using kernels::RecurrentArgs;

namespace {

// The input as rows [steps * batch, features].
Part RowsOfInput(OpCall& call) {
  Part x = PartOf(call, &call.Get("x"));
  if (Flatten(x.ref)) return x;
  Part rows = NewPart(call, MathOf(call.compute), {x.ref.sizes[0], x.ref.sizes[1], x.ref.sizes[2]});
  AddCopyOf(call, rows, x);
  Flatten(rows.ref);
  return rows;
}

RecurrentArgs SettingsOf(const OpCall& call) {
  RecurrentArgs settings;
  settings.reverse = call.Bool("reverse");
  settings.cell_before_forget = call.Bool("cellBeforeForget");
  if (call.Has("forgetBias")) settings.forget_bias = call.Real("forgetBias");
  settings.steps = call.Get("x").sizes()[0];
  settings.batch = call.Get("x").sizes()[1];
  settings.hidden = call.Get("wh").sizes()[0];
  return settings;
}

}  // namespace

Status DynamicRnnShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& wh = call.Get("wh");
  if (x.rank() != 3) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected [steps, batch, features]", ShapeText(x.sizes())));
  }
  if (wh.rank() != 2 || wh.sizes()[1] != 4 * wh.sizes()[0]) {
    return call.InvalidOperand(wh, fmt::format("has shape {}, expected [hidden, 4 * hidden]", ShapeText(wh.sizes())));
  }
  const int64_t steps = x.sizes()[0], batch = x.sizes()[1], features = x.sizes()[2], hidden = wh.sizes()[0];
  const auto check = [&](std::initializer_list<std::string_view> names,
                         std::initializer_list<int64_t> shape) -> Status {
    for (const std::string_view name : names) {
      const Operand* const operand = call.Has(name) ? call.Find(name) : nullptr;
      if (operand == nullptr) continue;
      REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, {shape.begin(), shape.size()}, [] { return "its place:"; }));
    }
    return {};
  };
  REPRISE_RETURN_IF_ERROR(check({"wx", "dwx"}, {features, 4 * hidden}));
  REPRISE_RETURN_IF_ERROR(check({"dwh"}, {hidden, 4 * hidden}));
  REPRISE_RETURN_IF_ERROR(check({"b", "db"}, {4 * hidden}));
  REPRISE_RETURN_IF_ERROR(check({"dx"}, {steps, batch, features}));
  REPRISE_RETURN_IF_ERROR(check({"firstH", "firstC", "dh", "dc", "dFirstH", "dFirstC"}, {batch, hidden}));
  const Operand* const presence = call.Find("presence");
  if (presence != nullptr && presence->rank() == 1) {
    REPRISE_RETURN_IF_ERROR(check({"presence"}, {batch}));
  } else {
    REPRISE_RETURN_IF_ERROR(check({"presence"}, {steps, batch, hidden}));
  }
  return check({"y", "h", "c", "i", "j", "f", "o", "tanhc", "dy"}, {steps, batch, hidden});
}

Status LowerDynamicRnn(OpCall& call) {
  const RecurrentArgs settings = SettingsOf(call);
  const DType math = MathOf(call.compute);
  const auto part = [&](std::string_view name) { return PartOf(call, call.Find(name)); };
  const Part gates = NewPart(call, math, {settings.steps * settings.batch, 4 * settings.hidden});
  AddProduct(call, gates, RowsOfInput(call), part("wx"), {});
  using A = RecurrentArgs;
  const StepPart results[] = {{&A::y, -1, part("y")},          {&A::h, -1, part("h")},  {&A::c, -1, part("c")},
                              {&A::tanh_c, -1, part("tanhc")}, {nullptr, 0, part("i")}, {nullptr, 1, part("j")},
                              {nullptr, 2, part("f")},         {nullptr, 3, part("o")}};
  const StepPart inputs[] = {{&A::input_part, -1, gates},       {&A::weight, -1, part("wh")},
                             {&A::bias, -1, part("b")},         {&A::first_h, -1, part("firstH")},
                             {&A::first_c, -1, part("firstC")}, {&A::presence, -1, part("presence")}};
  AddSteps(call, settings, results, inputs);
  return {};
}

Status LowerDynamicRnnGrad(OpCall& call) {
  const RecurrentArgs settings = SettingsOf(call);
  const DType math = MathOf(call.compute);
  const auto part = [&](std::string_view name) { return PartOf(call, call.Find(name)); };
  const int64_t rows = settings.steps * settings.batch;
  const Part of_gates = NewPart(call, math, {rows, 4 * settings.hidden});
  const Part before = NewPart(call, math, {rows, settings.hidden});
  const Part weight = NewPart(call, math, {4 * settings.hidden, settings.hidden});
  AddCopyOf(call, weight, Swapped(part("wh"), 0, 1));
  using A = RecurrentArgs;
  const StepPart results[] = {{&A::of_input_part, -1, of_gates},
                              {&A::h_before, -1, before},
                              {&A::of_first_h, -1, part("dFirstH")},
                              {&A::of_first_c, -1, part("dFirstC")}};
  const StepPart inputs[] = {{&A::weight, -1, weight},
                             {&A::of_y, -1, part("dy")},
                             {&A::of_last_h, -1, part("dh")},
                             {&A::of_last_c, -1, part("dc")},
                             {&A::first_h, -1, part("firstH")},
                             {&A::first_c, -1, part("firstC")},
                             {&A::h, -1, part("h")},
                             {&A::c, -1, part("c")},
                             {&A::tanh_c, -1, part("tanhc")},
                             {nullptr, 0, part("i")},
                             {nullptr, 1, part("j")},
                             {nullptr, 2, part("f")},
                             {nullptr, 3, part("o")},
                             {&A::presence, -1, part("presence")}};
  AddGradients(call, settings, results, inputs);
  // The gradient of the input takes its place only when all else has been read.
  AddProduct(call, part("dwx"), Swapped(RowsOfInput(call), 0, 1), of_gates, {});
  AddProduct(call, part("dwh"), Swapped(before, 0, 1), of_gates, {});
  AddSumOfRows(call, part("db"), of_gates);
  Part of_rows = part("dx");
  const bool is_flat = Flatten(of_rows.ref);
  if (!is_flat) of_rows = NewPart(call, math, {rows, call.Get("x").sizes()[2]});
  AddProduct(call, of_rows, of_gates, Swapped(part("wx"), 0, 1), {});
  if (is_flat) return {};
  of_rows.ref = kernels::MakeContiguous(of_rows.ref.data, math, {settings.steps, settings.batch, of_rows.ref.sizes[1]});
  AddCopyOf(call, part("dx"), of_rows);
  return {};
}

}  // namespace reprise::ops::recurrent
