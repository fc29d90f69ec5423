// SPDX-License-Identifier: Apache-2.0
//
// Masks that are numbers.
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

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
  launch.grain = GrainOf(1);
  out.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/masks.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
