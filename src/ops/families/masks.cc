// SPDX-License-Identifier: Apache-2.0
//
// Masks that are numbers, and membership of single numbers.
#include "kernels/comparison_functions.h"
#include "kernels/scatter_reduce.h"
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// ---- MaskedScale ----

Status MaskedScaleShape(OpCall& call) {
  const Operand& self = call.Get("self");
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("mask"), self.sizes(), [] { return "the shape of self,"; }));
  return call.CheckShape(call.outputs[0], self.sizes(), [] { return "the shape of self,"; });
}

// refs: out, self, mask.
template <class T>
void ScaleMasked(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  T* out = DataOf<T>(launch, 0, memory);
  const T* self = DataOf<T>(launch, 1, memory);
  const T* mask = DataOf<T>(launch, 2, memory);
  const T scale = launch.scalars[0].As<T>();
  for (int64_t i = range.begin; i < range.end; ++i) out[i] = self[i] * mask[i] * scale;
}

void RunScaleMasked(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.refs[0].dtype == DType::kDouble) return ScaleMasked<double>(launch, range, memory);
  ScaleMasked<float>(launch, range, memory);
}

Status LowerMaskedScale(OpCall& call) {
  const DType type = WideFloatOf(call.compute);
  const Dense self = DenseInput(call, call.Get("self"), type);
  const Dense mask = DenseInput(call, call.Get("mask"), type);
  const Dense out = DenseOutput(call, call.outputs[0], type);
  Launch& launch = call.AddLaunch(RunScaleMasked);
  out.Write(call, launch);
  self.Read(call, launch);
  mask.Read(call, launch);
  launch.scalars.push_back(kernels::Scalar::Of(call.Real("scale")));
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  out.Store(call);
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

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/masks.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
