// SPDX-License-Identifier: Apache-2.0
//
// The choice of experts by their scores.
#include "kernels/gating.h"

#include "kernels/routing.h"
#include "kernels/routing_maps.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

constexpr int64_t kMostChosen = 1024;

void RunGating(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ChooseExperts(launch.refs[3], launch.refs[4], launch.refs[0], launch.refs[1], launch.refs[2], range,
                         memory.scratch);
}

Status GatingShape(OpCall& call) {
  const Operand& x = call.inputs[0];
  if (x.rank() != 2 && x.rank() != 3) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected 2 or 3 dims", ShapeText(x.sizes())));
  }
  const int64_t k = call.Int("k");
  const int64_t most = std::min(kMostChosen, x.sizes().back());
  if (k < 0 || k > most) return call.Invalid(fmt::format("k is {}, expected a value from 0 to {}", k, most));
  Dims shape(x.sizes().data(), x.sizes().size() - 1);
  if (const Operand* finished = call.Find("finishedOptional")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*finished, shape, [] { return "the rows"; }));
  }
  shape.push_back(k);
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, shape, [] { return "the shape"; }));
  }
  return {};
}

Status LowerGating(OpCall& call) {
  Launch& launch = call.AddLaunch(RunGating);
  for (const Operand& output : call.outputs) call.Write(launch, output);
  call.Read(launch, call.inputs[0]);
  const Operand* finished = call.Find("finishedOptional");
  call.ReadOptional(launch, finished);
  if (call.inputs[0].rank() == 2) {
    for (TensorRef& ref : launch.refs) InsertDims(ref, 0, 1);
  }
  if (call.outputs[0].tensor->count == 0) return {};
  const int64_t columns = call.inputs[0].sizes().back();
  launch.units = call.inputs[0].tensor->count / columns;
  launch.grain = GrainOf(columns * 16);
  call.AddScratch(launch, static_cast<uint64_t>(columns) * 8);
  return {};
}

// ---- In groups, or by a table ----

Status CheckGatingRank(const OpCall& call, const Operand& operand) {
  if (operand.rank() == 2) return {};
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected 2 dims", ShapeText(operand.sizes())));
}

Status CheckZeroOrOne(const OpCall& call, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const int64_t value = call.Int(name);
    if (value < 0 || value > 1) return call.Invalid(fmt::format("{} is {}, expected 0 or 1", name, value));
  }
  return {};
}

void RunGroupGating(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ChooseExpertsInGroups(launch.State<kernels::GroupGating>(), launch.refs[3], launch.refs[4], launch.refs[0],
                                 launch.refs[1], launch.refs[2], range, memory.scratch);
}

Status GroupGatingTypes(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  return OneType(call);
}

Status GroupGatingShape(OpCall& call) {
  const Operand& x = call.Get("x");
  REPRISE_RETURN_IF_ERROR(CheckGatingRank(call, x));
  const int64_t columns = x.sizes()[1];
  const int64_t groups = call.Int("groupCount");
  const int64_t chosen = call.Int("kGroup");
  const int64_t k = call.Int("k");
  if (groups < 1 || columns % groups != 0) {
    return call.Invalid(fmt::format("groupCount is {}, expected a divisor of the {} columns of x", groups, columns));
  }
  if (chosen < 1 || chosen > groups) {
    return call.Invalid(fmt::format("kGroup is {}, expected a value from 1 to groupCount {}", chosen, groups));
  }
  if (k < 1 || k > columns / groups * chosen) {
    return call.Invalid(fmt::format("k is {}, expected a value from 1 to {}", k, columns / groups * chosen),
                        "so many columns are in the groups that are chosen");
  }
  REPRISE_RETURN_IF_ERROR(CheckZeroOrOne(call, {"groupSelectMode", "renorm", "normType"}));
  if (const Operand* bias = call.Find("biasOptional")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*bias, {&columns, 1}, [] { return "one for each column:"; }));
  }
  const int64_t shape[] = {x.sizes()[0], k};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("yOut"), shape, [] { return "the shape"; }));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("expertIdxOut"), shape, [] { return "the shape"; }));
  if (!call.Bool("outFlag")) return {};
  const Operand* const norm = call.Find("outOut");
  if (norm == nullptr)
    return Error(kOperatorArgumentNull, fmt::format("{}: outOut is null, but outFlag is true", call.op.name))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  if (norm->dtype != DType::kFloat) {
    return call.InvalidOperand(*norm, fmt::format("has {}, expected float32", kernels::Name(norm->dtype)));
  }
  return call.CheckShape(*norm, x.sizes(), [] { return "the shape of x,"; });
}

// refs: y, expert, norm, x, ids, table.
void RunTableGating(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::GateByTable(launch.State<kernels::TableGating>(), launch.refs[3], launch.refs[4], launch.refs[5],
                       launch.refs[0], launch.refs[1], launch.refs[2], range, memory.scratch);
}

kernels::TableGating TableGatingOf(const OpCall& call) {
  const bool is_sigmoid = call.Int("normType") == 1;
  return {.is_sigmoid = is_sigmoid,
          .divides = is_sigmoid || call.Int("renorm") == 1,
          .factor = static_cast<float>(call.Real("routedScalingFactor")),
          .eps = static_cast<float>(call.Real("eps"))};
}

// As GroupGatingShape, and of the table that tells the experts of each token.
Status TableGatingShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(GroupGatingShape(call));
  const Operand* const ids = call.Find("inputIdsOptional");
  const Operand* const table = call.Find("tid2eidOptional");
  if ((ids == nullptr) != (table == nullptr)) {
    return call.Invalid(
        fmt::format("{} is null, but {} is not", ids == nullptr ? "inputIdsOptional" : "tid2eidOptional",
                    ids == nullptr ? "tid2eidOptional" : "inputIdsOptional"),
        "pass both or none");
  }
  if (ids == nullptr) return {};
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(*ids, call.Get("x").sizes().first(1), [] { return "one for each row of x:"; }));
  const int64_t k = call.Int("k");
  if (table->rank() == 2 && table->sizes()[1] == k) return {};
  return call.InvalidOperand(*table, fmt::format("has shape {}, expected [ids, {}]", ShapeText(table->sizes()), k));
}

Status LowerGroupGating(OpCall& call) {
  const Operand& x = call.Get("x");
  if (const Operand* ids = call.Find("inputIdsOptional")) {
    Launch& launch = call.AddLaunch(RunTableGating);
    call.Write(launch, call.Get("yOut"));
    call.Write(launch, call.Get("expertIdxOut"));
    call.WriteOptional(launch, call.Bool("outFlag") ? call.Find("outOut") : nullptr);
    call.Read(launch, x);
    call.Read(launch, *ids);
    call.Read(launch, call.Get("tid2eidOptional"));
    launch.units = x.sizes()[0];
    launch.grain = GrainOf(x.sizes()[1] * 16);
    call.AddScratch(launch, static_cast<uint64_t>(kernels::TableGatingScratchBytes(x.sizes()[1], call.Int("k"))));
    launch.state = std::make_shared<const kernels::TableGating>(TableGatingOf(call));
    return {};
  }
  auto gating = std::make_shared<kernels::GroupGating>();
  gating->is_sigmoid = call.Int("normType") == 1;
  gating->sums_two = call.Int("groupSelectMode") == 1;
  gating->divides = gating->is_sigmoid || call.Int("renorm") == 1;
  gating->groups = call.Int("groupCount");
  gating->chosen_groups = call.Int("kGroup");
  gating->factor = static_cast<float>(call.Real("routedScalingFactor"));
  gating->eps = static_cast<float>(call.Real("eps"));
  Launch& launch = call.AddLaunch(RunGroupGating);
  call.Write(launch, call.Get("yOut"));
  call.Write(launch, call.Get("expertIdxOut"));
  call.WriteOptional(launch, call.Bool("outFlag") ? call.Find("outOut") : nullptr);
  call.Read(launch, x);
  call.ReadOptional(launch, call.Find("biasOptional"));
  launch.units = x.sizes()[0];
  launch.grain = GrainOf(x.sizes()[1] * 16);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::GroupGatingScratchBytes(x.sizes()[1], gating->groups)));
  launch.state = gating;
  return {};
}

// ---- Its gradient ----

// refs: gradient of x, norm, gradient of y, expert.
void RunGatingGradient(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::GatingGradient(launch.State<kernels::TableGating>(), launch.refs[1], launch.refs[2], launch.refs[3],
                          launch.refs[0], range, memory.scratch);
}

Status GatingGradientShape(OpCall& call) {
  const Operand& norm = call.Get("xNorm");
  const Operand& gradient = call.Get("gradY");
  REPRISE_RETURN_IF_ERROR(CheckGatingRank(call, norm));
  REPRISE_RETURN_IF_ERROR(CheckGatingRank(call, gradient));
  REPRISE_RETURN_IF_ERROR(CheckZeroOrOne(call, {"renorm", "normType"}));
  if (gradient.sizes()[0] != norm.sizes()[0]) {
    return call.InvalidOperand(gradient, fmt::format("has shape {}, expected a row for each one of xNorm {}",
                                                     ShapeText(gradient.sizes()), ShapeText(norm.sizes())));
  }
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("expertIdx"), gradient.sizes(), [] { return "the shape of gradY,"; }));
  return call.CheckShape(call.outputs[0], norm.sizes(), [] { return "the shape of xNorm,"; });
}

Status LowerGatingGradient(OpCall& call) {
  const Operand& norm = call.Get("xNorm");
  const int64_t columns = norm.sizes()[1];
  Launch& launch = call.AddLaunch(RunGatingGradient);
  call.Write(launch, call.outputs[0]);
  for (const char* name : {"xNorm", "gradY", "expertIdx"}) call.Read(launch, call.Get(name));
  launch.units = columns == 0 ? 0 : norm.sizes()[0];
  launch.grain = GrainOf(columns * 8);
  call.AddScratch(launch,
                  static_cast<uint64_t>(kernels::GatingGradientScratchBytes(columns, call.Get("gradY").sizes()[1])));
  launch.state = std::make_shared<const kernels::TableGating>(TableGatingOf(call));
  return {};
}

// ---- The greatest of a softmax ----

// refs: y, expert, all, x, finished; ints: divides.
void RunTopKSoftmax(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::TopKSoftmax(launch.refs[3], launch.refs[4], launch.ints[0] != 0, launch.refs[0], launch.refs[1],
                       launch.refs[2], range, memory.scratch);
}

Status TopKSoftmaxShape(OpCall& call) {
  const Operand& x = call.Get("x");
  if (x.rank() != 2 && x.rank() != 3) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected 2 or 3 dims", ShapeText(x.sizes())));
  }
  REPRISE_RETURN_IF_ERROR(CheckZeroOrOne(call, {"renorm"}));
  const int64_t k = call.Int("k");
  const int64_t most = std::min(kMostChosen, x.sizes().back());
  if (k < 0 || k > most) return call.Invalid(fmt::format("k is {}, expected a value from 0 to {}", k, most));
  Dims shape(x.sizes().data(), x.sizes().size() - 1);
  if (const Operand* finished = call.Find("finishedOptional")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*finished, shape, [] { return "the rows of x:"; }));
  }
  shape.push_back(k);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("yOut"), shape, [] { return "the shape"; }));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("expertIdxOut"), shape, [] { return "the shape"; }));
  if (!call.Bool("outputSoftmaxResultFlag")) return {};
  const Operand* const all = call.Find("softmaxResultOutOptional");
  if (all == nullptr) {
    return Error(kOperatorArgumentNull,
                 fmt::format("{}: softmaxResultOutOptional is null, but outputSoftmaxResultFlag is true", call.op.name))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  }
  return call.CheckShape(*all, x.sizes(), [] { return "the shape of x,"; });
}

Status LowerTopKSoftmax(OpCall& call) {
  const Operand& x = call.Get("x");
  const int64_t columns = x.sizes().back();
  Launch& launch = call.AddLaunch(RunTopKSoftmax);
  launch.ints.push_back(call.Int("renorm"));
  call.Write(launch, call.Get("yOut"));
  call.Write(launch, call.Get("expertIdxOut"));
  const bool wants_all = call.Bool("outputSoftmaxResultFlag") && call.Int("renorm") == 0;
  call.WriteOptional(launch, wants_all ? call.Find("softmaxResultOutOptional") : nullptr);
  call.Read(launch, x);
  call.ReadOptional(launch, call.Find("finishedOptional"));
  launch.units = columns == 0 || (call.Int("k") == 0 && !wants_all) ? 0 : x.tensor->count / columns;
  launch.grain = GrainOf(columns * 16);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::TopKSoftmaxScratchBytes(columns)));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/gating.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
