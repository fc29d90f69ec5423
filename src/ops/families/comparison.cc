// SPDX-License-Identifier: Apache-2.0
#include "kernels/comparison_functions.h"

#include <algorithm>
#include <cstring>

#include "kernels/scatter_reduce.h"
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// The promoted type; integers that are compared with a number beyond it compute in int64.
Status ComparisonTypes(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(PromoteInputsAlone(call));
  for (const Operand& input : call.inputs) {
    if (input.tensor != nullptr || KeepsValue(*input.scalar, call.compute)) continue;
    if (call.compute != DType::kUInt64 && KeepsValue(*input.scalar, DType::kInt64)) {
      call.compute = DType::kInt64;
      continue;
    }
    return call.InvalidOperand(input, fmt::format("is a {} whose value the computation's type {} cannot hold",
                                                  kernels::Name(input.dtype), kernels::Name(call.compute)));
  }
  return {};
}

// Operands are true or false, whatever they are.
Status Truths(OpCall& call) {
  call.compute = DType::kBool;
  return {};
}

// The same for an operand whose own type it is computed in.
Status OwnType(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  return {};
}

Status CloseTypes(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(PromoteInputsAlone(call));
  if (kernels::CategoryOf(call.compute) < kernels::Category::kFloating) call.compute = DType::kFloat;
  return {};
}

Status LowerIsClose(OpCall& call) {
  const double relative = call.Real("rtol");
  const double absolute = call.Real("atol");
  if (!(relative >= 0) || !(absolute >= 0)) {
    return call.Invalid(fmt::format("rtol is {} and atol is {}, neither may be negative", relative, absolute));
  }
  const kernels::Scalar numbers[] = {kernels::Scalar::Of(relative), kernels::Scalar::Of(absolute),
                                     kernels::Scalar::Of(call.Bool("equalNan") ? 1.0 : 0.0)};
  return LowerElementwise(call, kernels::kIsCloseFn, numbers);
}

// ---- Equality of tensors as a whole ----

void RunCompareAll(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const kernels::TensorRef refs[] = {launch.Ref(0, memory), launch.refs[1], launch.refs[2]};
  launch.element.Run(refs, range);
}

// Whether no element of ref 1 is set.
void RunNoneDiffers(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const kernels::TensorRef differs = launch.Ref(1, memory);
  const auto count = static_cast<size_t>(kernels::ElementCount(differs));
  const uint8_t equal = std::memchr(differs.data, 1, count) == nullptr ? 1 : 0;
  kernels::FindCast(DType::kBool, launch.refs[0].dtype)(reinterpret_cast<const char*>(&equal), 0,
                                                        static_cast<char*>(launch.refs[0].data), 0, 1);
}

void RunAnswer(const Launch& launch, kernels::Range, const Launch::KernelMemory&) {
  const auto equal = static_cast<uint8_t>(launch.ints[0]);
  kernels::FindCast(DType::kBool, launch.refs[0].dtype)(reinterpret_cast<const char*>(&equal), 0,
                                                        static_cast<char*>(launch.refs[0].data), 0, 1);
}

Status EqualShape(OpCall& call) {
  const Operand& out = call.outputs[0];
  if (out.tensor->count == 1) return {};
  return call.InvalidOperand(out, fmt::format("has shape {}, expected [1] or []", ShapeText(out.sizes())));
}

Status LowerEqual(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& other = call.inputs[1];
  const bool same_shape = std::ranges::equal(self.sizes(), other.sizes());
  if (!same_shape || self.tensor->count == 0) {
    Launch& launch = call.AddLaunch(RunAnswer);
    call.Write(launch, call.outputs[0]);
    launch.ints.push_back(same_shape ? 1 : 0);
    launch.units = 1;
    return {};
  }
  const kernels::TensorRef differs = call.Temporary(DType::kBool, self.sizes());
  Launch& compare = call.AddLaunch(RunCompareAll);
  compare.element = kernels::ElementCall(kernels::kNeFn, call.compute);
  call.WriteTemporary(compare, differs);
  call.Read(compare, self);
  call.Read(compare, other);
  compare.units = self.tensor->count;
  compare.grain = GrainOf(1);
  Launch& answer = call.AddLaunch(RunNoneDiffers);
  call.Write(answer, call.outputs[0]);
  call.ReadTemporary(answer, differs);
  answer.units = 1;
  return {};
}

// ---- Membership ----

Status LowerIsNumber(OpCall& call) {
  return LowerElementwise(call, call.Bool("invert") ? kernels::kNeFn : kernels::kEqFn);
}

Status AnyIsNumberShape(OpCall& call) {
  return call.CheckShape(call.outputs[0], {}, [] { return "one number, the shape"; });
}

// refs: out, tested.
template <class T>
bool Contains(const Launch& launch, const Launch::KernelMemory& memory) {
  const T* tested = DataOf<T>(launch, 1, memory);
  const T number = launch.scalars[0].As<T>();
  return std::find(tested, tested + launch.ints[1], number) != tested + launch.ints[1];
}

void RunAnyIsNumber(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  bool found = false;
  switch (launch.refs[1].dtype) {
    case DType::kFloat: found = Contains<float>(launch, memory); break;
    case DType::kDouble: found = Contains<double>(launch, memory); break;
    case DType::kUInt64: found = Contains<uint64_t>(launch, memory); break;
    default: found = Contains<int64_t>(launch, memory);
  }
  *DataOf<uint8_t>(launch, 0, memory) = found != (launch.ints[0] != 0) ? 1 : 0;
}

Status LowerAnyIsNumber(OpCall& call) {
  const Operand& tested = call.Get("testElements");
  const DType stage = kernels::StageOf(call.compute);
  const Dense in = DenseInput(call, tested, stage);
  const Dense out = DenseOutput(call, call.outputs[0], DType::kBool);
  // The number as the tested type has it.
  const kernels::Scalar& given = *call.Get("element").scalar;
  kernels::Scalar number;
  number.dtype = call.compute;
  kernels::FindCast(given.dtype, call.compute)(reinterpret_cast<const char*>(given.bytes), 0,
                                               reinterpret_cast<char*>(number.bytes), 0, 1);
  Launch& launch = call.AddLaunch(RunAnyIsNumber);
  out.Write(call, launch);
  in.Read(call, launch);
  launch.scalars.push_back(number);
  launch.ints.push_back(call.Bool("invert") ? 1 : 0);
  launch.ints.push_back(tested.tensor->count);
  launch.units = 1;
  out.Store(call);
  return {};
}

// ---- Choice ----

Status LowerWhere(OpCall& call) { return LowerElementwise(call, kernels::kWhereFn); }

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/comparison.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
