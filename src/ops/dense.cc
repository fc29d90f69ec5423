// SPDX-License-Identifier: Apache-2.0
#include "ops/dense.h"

#include "ops/rules.h"

namespace reprise::ops {

using kernels::DType;
using kernels::TensorRef;

namespace {

bool IsDense(const TensorRef& ref, DType type) { return ref.dtype == type && kernels::IsContiguous(ref); }

std::span<const int64_t> SizesOf(const TensorRef& ref) { return {ref.sizes, static_cast<size_t>(ref.rank)}; }

void SplitCopy(Launch& launch) {
  launch.units = kernels::ElementCount(launch.refs[0]);
  launch.grain = GrainOf(1);
}

}  // namespace

DType WideFloatOf(DType type) { return type == DType::kDouble ? DType::kDouble : DType::kFloat; }

void Dense::Read(const OpCall& call, Launch& launch) const {
  if (is_temporary) return call.ReadTemporary(launch, ref);
  if (operand == nullptr) return call.ReadOptional(launch, nullptr);
  call.Read(launch, *operand, ref);
}

void Dense::Write(const OpCall& call, Launch& launch) const {
  if (is_temporary) return call.WriteTemporary(launch, ref);
  if (operand == nullptr) return call.WriteOptional(launch, nullptr);
  call.Write(launch, *operand, ref);
}

void Dense::Store(OpCall& call) const {
  if (!is_temporary || operand == nullptr) return;
  Launch& copy = call.AddLaunch(RunCopy);
  call.Write(copy, *operand);
  call.ReadTemporary(copy, ref);
  SplitCopy(copy);
}

Dense DenseInput(OpCall& call, const Operand& operand, const TensorRef& view, DType type) {
  if (IsDense(view, type)) return {&operand, view, false};
  const Dense dense{&operand, call.Temporary(type, SizesOf(view)), true};
  Launch& copy = call.AddLaunch(RunCopy);
  call.WriteTemporary(copy, dense.ref);
  call.Read(copy, operand, view);
  SplitCopy(copy);
  return dense;
}

Dense DenseInput(OpCall& call, const Operand& operand, DType type) {
  return DenseInput(call, operand, call.RefOf(operand), type);
}

Dense DenseInput(OpCall& call, const Operand* operand, DType type) {
  return operand == nullptr ? Dense() : DenseInput(call, *operand, type);
}

Dense DenseOutput(OpCall& call, const Operand& operand, DType type, bool keeps) {
  const TensorRef view = call.RefOf(operand);
  if (IsDense(view, type)) return {&operand, view, false};
  if (keeps) return DenseInput(call, operand, view, type);
  return {&operand, call.Temporary(type, SizesOf(view)), true};
}

Dense DenseOutput(OpCall& call, const Operand* operand, DType type, bool keeps) {
  return operand == nullptr ? Dense() : DenseOutput(call, *operand, type, keeps);
}

Dense DenseTemporary(OpCall& call, DType type, std::span<const int64_t> sizes) {
  return {nullptr, call.Temporary(type, sizes), true};
}

}  // namespace reprise::ops
