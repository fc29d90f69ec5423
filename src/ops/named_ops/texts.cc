// SPDX-License-Identifier: Apache-2.0
//
// Tensors printed as text.
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/text.h"
#include "ops/named_ops/steps.h"
#include "ops/op_call.h"
#include "runtime/text_output.h"

namespace reprise::ops::named {
namespace {

// What stands around the tensors, one piece more than there are, and how they are shown.
struct PrintPlan {
  std::vector<std::string> pieces;
  int64_t ends = 3;
  std::string stream;
};

void RunPrint(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const auto& plan = launch.State<PrintPlan>();
  std::string text = plan.pieces[0];
  for (size_t i = 0; i + 1 < plan.pieces.size(); ++i) {
    text += kernels::TextOf(launch.Ref(i, memory), plan.ends);
    text += plan.pieces[i + 1];
  }
  runtime::PrintText(plan.stream, text);
}

Status AnyTypes(OpCall& call) {
  call.compute = call.inputs.empty() ? kernels::DType::kFloat : call.inputs[0].dtype;
  return {};
}

Status AnyShapes(OpCall&) { return {}; }

Status AddPrint(OpCall& call) {
  PrintPlan plan;
  plan.ends = call.Int("summarize");
  plan.stream = call.Text("stream");
  const std::string_view placeholder = call.Text("placeholder");
  std::string_view rest = call.Text("template");
  while (!placeholder.empty()) {
    const size_t at = rest.find(placeholder);
    if (at == std::string_view::npos) break;
    plan.pieces.emplace_back(rest.substr(0, at));
    rest.remove_prefix(at + placeholder.size());
  }
  plan.pieces.emplace_back(rest);
  const std::span<const Operand> tensors = call.List("x");
  if (plan.pieces.size() != tensors.size() + 1) {
    return call.Invalid(fmt::format("template has the placeholder {} times, but there are {} tensors",
                                    plan.pieces.size() - 1, tensors.size()),
                        "write the placeholder once for each tensor");
  }
  if (plan.ends < 1 && plan.ends != -1) {
    return call.Invalid(fmt::format("summarize is {}", plan.ends), "set it to -1, or to 1 or more");
  }
  Launch& launch = call.AddLaunch(RunPrint);
  for (const Operand& tensor : tensors) call.Read(launch, tensor);
  launch.state = std::make_shared<const PrintPlan>(std::move(plan));
  launch.units = 1;
  return {};
}

constexpr Computation kPrint = {.dtype_rule = AnyTypes, .shape_rule = AnyShapes, .lower = AddPrint};
constexpr std::array kPrintParams = {InList("x"), Attr("template", ParamKind::kString),
                                     Attr("placeholder", ParamKind::kString), Attr("summarize", ParamKind::kInt),
                                     Attr("stream", ParamKind::kString)};
constexpr Routine kPrintRoutine = {kPrintParams, kPrint};

Status LowerPrint(NamedCall& call) {
  return call.Step(kPrintRoutine,
                   {ViewsOf(call.List("x")), call.context.Text("template"), call.context.Text("placeholder"),
                    call.context.Int("summarize"), call.context.Text("output_stream")});
}

constexpr NamedOp kTextRows[] = {
    {"FormatAndPrint", kAllTypes, LowerPrint},
};

}  // namespace

std::span<const NamedOp> TextRows() { return kTextRows; }

}  // namespace reprise::ops::named
