// SPDX-License-Identifier: Apache-2.0
//
// Repetitions whose counts stand in a tensor, which is read when the operator runs: a negative count is 0, what goes
// beyond the output is left out, what is missing is 0.
#include <algorithm>
#include <cstring>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// ints: positions of self (of the gradient: of out), positions of the repeated dim, bytes or elements of an inner row,
// the number of counts.
enum : size_t { kPositions, kRepeated, kInner, kCounts };

int64_t CountOf(const Launch& launch, const int64_t* repeats, int64_t i) {
  return std::max<int64_t>(0, repeats[launch.ints[kCounts] == 1 ? 0 : i]);
}

// Calls fn(i, position) for positions [range.begin, range.end) of the repeated dim, i = the position that it repeats,
// -1: none.
template <class Fn>
void ForEachRepeated(const Launch& launch, const int64_t* repeats, kernels::Range range, Fn&& fn) {
  int64_t i = 0;
  int64_t end = launch.ints[kPositions] == 0 ? 0 : CountOf(launch, repeats, 0);  // of the copies of i
  for (int64_t position = range.begin; position < range.end; ++position) {
    while (i < launch.ints[kPositions] && position >= end) {
      if (++i < launch.ints[kPositions]) end += std::min(CountOf(launch, repeats, i), INT64_MAX - end);
    }
    fn(i < launch.ints[kPositions] ? i : -1, position);
  }
}

// ---- Positions ----

Status RepeatPositionsShape(OpCall& call) {
  const Operand& repeats = call.inputs[0];
  const int64_t total = call.Int("outputSize");
  if (repeats.rank() != 1) {
    return call.InvalidOperand(repeats, fmt::format("has shape {}, expected one dim", ShapeText(repeats.sizes())));
  }
  if (total < 0) return call.Invalid(fmt::format("outputSize is {}, expected the sum of repeats", total));
  return call.CheckShape(call.outputs[0], {&total, 1}, [] { return "as outputSize says, the shape"; });
}

void RunRepeatPositions(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  int64_t* out = DataOf<int64_t>(launch, 0, memory);
  ForEachRepeated(launch, DataOf<int64_t>(launch, 1, memory), range,
                  [&](int64_t i, int64_t position) { out[position] = std::max<int64_t>(i, 0); });
}

Status LowerRepeatPositions(OpCall& call) {
  const Dense repeats = DenseInput(call, call.inputs[0], DType::kInt64);
  const Dense out = DenseOutput(call, call.outputs[0], DType::kInt64);
  Launch& launch = call.AddLaunch(RunRepeatPositions);
  out.Write(call, launch);
  repeats.Read(call, launch);
  const int64_t count = call.inputs[0].tensor->count;
  for (const int64_t value : {count, call.Int("outputSize"), int64_t{1}, int64_t{2}}) launch.ints.push_back(value);
  launch.units = call.Int("outputSize");
  launch.grain = GrainOf(1);
  out.Store(call);
  return {};
}

// ---- Along a dim ----

struct RepeatedDim {
  int dim = 0;
  int64_t outer = 1, positions = 1, inner = 1;
};

// `tensor` has the dim before it is repeated.
StatusOr<RepeatedDim> DimToRepeat(const OpCall& call, std::string_view name, const Operand& tensor) {
  RepeatedDim result;
  REPRISE_ASSIGN_OR_RETURN(result.dim, call.WrapDim(name, call.Int(name), tensor.rank()));
  for (int d = 0; d < tensor.rank(); ++d) {
    (d < result.dim    ? result.outer
     : d == result.dim ? result.positions
                       : result.inner) *= tensor.sizes()[static_cast<size_t>(d)];
  }
  const Operand& repeats = call.Get("repeats");
  const int64_t counts = repeats.tensor->count;
  if (repeats.rank() <= 1 && (counts == 1 || counts == result.positions)) return result;
  return call.InvalidOperand(repeats, fmt::format("has shape {}, expected one entry or [{}], one for each position of "
                                                  "dim {}",
                                                  ShapeText(repeats.sizes()), result.positions, result.dim));
}

Dims WithDim(const Operand& tensor, int dim, int64_t size) {
  Dims shape(tensor.sizes().data(), tensor.sizes().size());
  if (shape.empty()) {
    shape.push_back(size);
  } else {
    shape[static_cast<size_t>(dim)] = size;
  }
  return shape;
}

Status RepeatAlongShape(OpCall& call) {
  const Operand& self = call.Get("self");
  REPRISE_ASSIGN_OR_RETURN(const RepeatedDim dim, DimToRepeat(call, "dim", self));
  const int64_t total = call.Int("outputSize");
  if (total < 0) return call.Invalid(fmt::format("outputSize is {}, expected the sum of repeats", total));
  return call.CheckShape(call.outputs[0], WithDim(self, dim.dim, total),
                         [] { return "with outputSize in the place of the dim, the shape"; });
}

// refs: out, self, repeats. A unit is a position of the repeated dim.
void RunRepeatAlong(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  char* out = DataOf<char>(launch, 0, memory);
  const char* self = DataOf<char>(launch, 1, memory);
  const int64_t row = launch.ints[kInner];
  const int64_t outer = launch.ints[kCounts + 1];
  ForEachRepeated(launch, DataOf<int64_t>(launch, 2, memory), range, [&](int64_t i, int64_t position) {
    for (int64_t o = 0; o < outer; ++o) {
      char* to = out + (o * launch.ints[kRepeated] + position) * row;
      if (i < 0) {
        std::memset(to, 0, static_cast<size_t>(row));
      } else {
        std::memcpy(to, self + (o * launch.ints[kPositions] + i) * row, static_cast<size_t>(row));
      }
    }
  });
}

Status LowerRepeatAlong(OpCall& call) {
  const Operand& out = call.outputs[0];
  if (out.tensor->count == 0) return {};
  const Operand& self = call.Get("self");
  REPRISE_ASSIGN_OR_RETURN(const RepeatedDim dim, DimToRepeat(call, "dim", self));
  const Dense from = DenseInput(call, self, out.dtype);
  const Dense repeats = DenseInput(call, call.Get("repeats"), DType::kInt64);
  const Dense to = DenseOutput(call, out, out.dtype);
  Launch& launch = call.AddLaunch(RunRepeatAlong);
  to.Write(call, launch);
  from.Read(call, launch);
  repeats.Read(call, launch);
  const int64_t row = dim.inner * kernels::ItemSize(out.dtype);
  for (const int64_t value :
       {dim.positions, call.Int("outputSize"), row, call.Get("repeats").tensor->count, dim.outer}) {
    launch.ints.push_back(value);
  }
  launch.units = call.Int("outputSize");
  launch.grain = GrainOf(dim.outer * dim.inner);
  to.Store(call);
  return {};
}

// ---- The gradient ----

Status RepeatGradShape(OpCall& call) {
  const Operand& out = call.outputs[0];
  const Operand& grad = call.Get("yGrad");
  if (out.rank() != grad.rank() && grad.rank() != 0) {
    // Ones may be missing or too many: the shape that out stands for follows from the others.
    REPRISE_ASSIGN_OR_RETURN(const int axis, call.WrapDim("axis", call.Int("axis"), grad.rank()));
    const int64_t counts = call.Get("repeats").tensor->count;
    const int64_t others = grad.tensor->count / std::max<int64_t>(1, grad.sizes()[static_cast<size_t>(axis)]);
    const int64_t positions = counts != 1 ? counts : out.tensor->count / std::max<int64_t>(1, others);
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(out, WithDim(grad, axis, positions), [] { return "that of yGrad but for axis,"; }));
  }
  REPRISE_ASSIGN_OR_RETURN(const RepeatedDim dim, DimToRepeat(call, "axis", out));
  const int64_t repeated = grad.rank() == 0 ? 1 : grad.sizes()[static_cast<size_t>(std::min(dim.dim, grad.rank() - 1))];
  return call.CheckShape(grad, WithDim(out, dim.dim, repeated), [] { return "that of out but for axis,"; });
}

// refs: out, grad, repeats. A unit is a position of out.
template <class T>
void SumRepeated(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  T* out = DataOf<T>(launch, 0, memory);
  const T* grad = DataOf<T>(launch, 1, memory);
  const int64_t* repeats = DataOf<int64_t>(launch, 2, memory);
  const int64_t inner = launch.ints[kInner];
  const int64_t most = launch.ints[kRepeated];
  int64_t first = 0;
  for (int64_t i = 0; i < range.end; ++i) {
    const int64_t end = first + std::min(CountOf(launch, repeats, i), most - first);
    for (int64_t o = 0; i >= range.begin && o < launch.ints[kCounts + 1]; ++o) {
      T* to = out + (o * launch.ints[kPositions] + i) * inner;
      std::fill_n(to, inner, T(0));
      for (int64_t position = first; position < end; ++position) {
        const T* from = grad + (o * most + position) * inner;
        for (int64_t j = 0; j < inner; ++j) to[j] += from[j];
      }
    }
    first = end;
  }
}

void RunRepeatGrad(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.refs[0].dtype == DType::kDouble) return SumRepeated<double>(launch, range, memory);
  SumRepeated<float>(launch, range, memory);
}

Status LowerRepeatGrad(OpCall& call) {
  const Operand& out = call.outputs[0];
  const Operand& grad = call.Get("yGrad");
  if (out.tensor->count == 0) return {};
  REPRISE_ASSIGN_OR_RETURN(const RepeatedDim dim, DimToRepeat(call, "axis", out));
  const DType type = WideFloatOf(call.compute);
  const Dense from = DenseInput(call, grad, type);
  const Dense repeats = DenseInput(call, call.Get("repeats"), DType::kInt64);
  const Dense to = DenseOutput(call, out, type);
  Launch& launch = call.AddLaunch(RunRepeatGrad);
  to.Write(call, launch);
  from.Read(call, launch);
  repeats.Read(call, launch);
  const int64_t repeated = grad.tensor->count / (dim.outer * dim.inner);
  for (const int64_t value : {dim.positions, repeated, dim.inner, call.Get("repeats").tensor->count, dim.outer}) {
    launch.ints.push_back(value);
  }
  launch.units = dim.positions;
  launch.grain = GrainOf(grad.tensor->count / dim.positions + 1);
  to.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/repetition_by_tensor.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
