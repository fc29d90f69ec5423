// SPDX-License-Identifier: Apache-2.0
//
// What all element-wise operators share; see kernels/elementwise.h for how to add one.
#include <complex>
#include <cstring>

#include "kernels/elementwise.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

void RunElementwise(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  launch.element.Run(launch.refs.data(), range);
}

static_assert(sizeof(kernels::RowArgs) <= sizeof(ir::RangeCall::args));

// The row function itself, where every operand is what it takes.
bool FindElementCall(Launch& launch, ir::RangeCall& call) {
  const kernels::ElementRow& row = launch.element.row;
  const auto inputs = static_cast<size_t>(launch.element.inputs);
  const auto is_row = [](const kernels::TensorRef& ref) { return ref.rank == 0 || ref.strides[0] == 1; };
  if (launch.refs[0].dtype != row.out || row.is_wide) return false;
  kernels::RowArgs args;
  args.out = launch.refs[0].data;
  args.numbers = launch.element.numbers;
  call.function = row.function;
  for (size_t i = 0; i < inputs; ++i) {
    const kernels::TensorRef& ref = launch.refs[i + 1];
    args.in[i] = ref.data;
    if (i + 1 == inputs && launch.element.TakesSingle(ref)) {
      call.function = row.single;
    } else if (ref.dtype != row.in[i] || !is_row(ref)) {
      return false;
    }
  }
  std::memcpy(call.args, &args, sizeof args);
  return true;
}

}  // namespace

bool Survives(const kernels::Scalar& scalar, DType type) {
  return kernels::CanCast(scalar.dtype, type) || KeepsValue(scalar, type);
}

bool KeepsValue(const kernels::Scalar& scalar, DType type) {
  if (kernels::CategoryOf(type) >= kernels::Category::kFloating && kernels::CanCast(scalar.dtype, type)) return true;
  const auto before = scalar.As<std::complex<double>>();
  return kernels::DispatchAll(type, [&](auto tag) {
    const auto converted = scalar.As<typename decltype(tag)::Type>();
    return kernels::Scalar::Of(converted).template As<std::complex<double>>() == before;
  });
}

Status NumberOf(const OpCall& call, std::string_view name, kernels::Scalar& number) {
  number = *call.Scalar(name);
  if (Survives(number, call.compute)) [[likely]]
    return {};
  return call.Invalid(fmt::format("{} is a {} whose value the computation's type {} of {} cannot hold", name,
                                  kernels::Name(number.dtype), kernels::Name(call.compute), call.InputTypes()),
                      fmt::format("pass an integer {} for integer tensors and a real one for real tensors", name));
}

Status LowerElementwise(OpCall& call, const kernels::ElementFn& fn, std::span<const kernels::Scalar> numbers,
                        const ElementView& out, std::span<const ElementView> inputs) {
  kernels::ElementCall element(fn, call.compute, numbers);
  if (element.row.function == nullptr) {
    return call.Invalid(
        fmt::format("is not defined for {}, the type of {}", kernels::Name(call.compute), call.InputTypes()));
  }
  Launch& launch = call.AddLaunch(RunElementwise);
  launch.element = element;
  call.Write(launch, *out.operand, out.ref);
  for (const ElementView& input : inputs) {
    call.Read(launch, *input.operand, input.ref);
    if (input.operand->tensor != nullptr) continue;
    // Scalars join in the type of the arithmetic, which may be wider than that of the tensors.
    kernels::Scalar& scalar = launch.scalars[launch.scalars.size() - 1];
    scalar = element.ToMath(scalar);
    launch.refs[launch.refs.size() - 1].dtype = scalar.dtype;
    launch.element.has_scalar = &input == &inputs.back();
  }
  Coalesce(launch.refs);
  launch.units = kernels::ElementCount(out.ref);
  launch.grain = GrainOf(fn.cost);
  launch.find_range_call = FindElementCall;
  return {};
}

Status LowerElementwise(OpCall& call, const kernels::ElementFn& fn, std::span<const kernels::Scalar> numbers,
                        std::span<const Operand* const> inputs) {
  ElementView views[kernels::kMaxElementInputs];
  for (size_t i = 0; i < inputs.size(); ++i) views[i] = {inputs[i], call.RefOf(*inputs[i])};
  const ElementView out = {&call.outputs[0], call.RefOf(call.outputs[0])};
  return LowerElementwise(call, fn, numbers, out, {views, inputs.size()});
}

Status LowerElementwise(OpCall& call, const kernels::ElementFn& fn, std::span<const kernels::Scalar> numbers) {
  const Operand* inputs[kernels::kMaxElementInputs] = {};
  for (int i = 0; i < fn.inputs; ++i) inputs[i] = &call.inputs[static_cast<size_t>(i)];
  return LowerElementwise(call, fn, numbers, {inputs, static_cast<size_t>(fn.inputs)});
}

}  // namespace reprise::ops
