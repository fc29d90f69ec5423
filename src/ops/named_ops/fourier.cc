// SPDX-License-Identifier: Apache-2.0
//
// Fourier transforms of the last dims.
#include <array>

#include "kernels/fourier.h"
#include "ops/named_ops/steps.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;
using Number = kernels::FourierNumber;

/// The n-th roots of 1, in the order of the transform.
struct Roots {
  std::vector<Number> roots;
};

template <class T>
void TransformRows(const Launch& launch, kernels::Range range, Number* scratch) {
  const std::vector<Number>& roots = launch.State<Roots>().roots;
  const size_t n = roots.size();
  const kernels::TensorRef& out = launch.refs[0];
  const kernels::TensorRef& in = launch.refs[1];
  const int last = out.rank - 1;
  for (int64_t row = range.begin; row < range.end; ++row) {
    int64_t from = 0;
    int64_t to = 0;
    int64_t rest = row;
    for (int d = last - 1; d >= 0; --d) {
      from += rest % out.sizes[d] * in.strides[d];
      to += rest % out.sizes[d] * out.strides[d];
      rest /= out.sizes[d];
    }
    const auto* source = static_cast<const std::complex<T>*>(in.data) + from;
    auto* target = static_cast<std::complex<T>*>(out.data) + to;
    for (size_t i = 0; i < n; ++i) scratch[i] = Number(source[static_cast<int64_t>(i) * in.strides[last]]);
    kernels::TransformRow(scratch, static_cast<int64_t>(n), roots.data(), scratch + n, scratch + 2 * n);
    for (size_t i = 0; i < n; ++i) {
      target[static_cast<int64_t>(i) * out.strides[last]] = std::complex<T>(scratch[n + i]);
    }
  }
}

void RunTransform(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  auto* const scratch = static_cast<Number*>(memory.scratch);
  if (launch.compute == DType::kComplex64) return TransformRows<float>(launch, range, scratch);
  TransformRows<double>(launch, range, scratch);
}

Status LowerTransform(OpCall& call) {
  const Operand& out = call.outputs[0];
  const int64_t count = out.tensor->count;
  if (count == 0) return {};
  const auto n = static_cast<size_t>(out.sizes().back());
  auto state = std::make_shared<Roots>();
  state->roots.resize(n);
  kernels::FillRoots(state->roots.data(), static_cast<int64_t>(n));
  Launch& launch = call.AddLaunch(RunTransform);
  launch.compute = call.compute;
  call.Write(launch, out);
  call.Read(launch, call.inputs[0]);
  launch.state = std::move(state);
  launch.units = count / static_cast<int64_t>(n);
  launch.grain = 1 + (int64_t{1} << 12) / static_cast<int64_t>(n);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::FourierScratchBytes(static_cast<int64_t>(n))));
  return {};
}

constexpr Computation kTransform = {.dtype_rule = OneType, .shape_rule = BroadcastInputs, .lower = LowerTransform};
constexpr std::array kTransformParams = {In("x"), Out("y")};
constexpr Routine kTransformRows = {kTransformParams, kTransform, kComplexTypes};

// The last dim, and for two of them the one before it.
Status LowerFourier(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  const bool is_plane = call.op.code == 2;
  if (x.rank() < call.op.code) {
    return call.WrongInput(x,
                           fmt::format("has the shape {}, expected {} dims or more", ShapeText(x.dims), call.op.code),
                           "pass a tensor with the dims to transform");
  }
  const StridedView out = call.OutputView();
  if (!is_plane) return call.Step(kTransformRows, {x.view(), out});
  const StridedView rows = call.Temporary(out.dtype, out.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kTransformRows, {x.view(), rows}));
  return call.Step(kTransformRows, {rows.Transposed(), out.Transposed()});
}

constexpr NamedOp kFourierRows[] = {
    {"FFT", {}, LowerFourier, 1},
    {"FFT2D", {}, LowerFourier, 2},
};

}  // namespace

std::span<const NamedOp> FourierRows() { return kFourierRows; }

}  // namespace reprise::ops::named
