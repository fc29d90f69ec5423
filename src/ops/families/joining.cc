// SPDX-License-Identifier: Apache-2.0
//
// Concatenation, stacks, splits.
#include "kernels/copy.h"
#include "ops/computations.h"
#include "ops/families/picture_reader.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

void RunConcat(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const std::span<const kernels::TensorRef> sources(launch.refs.begin() + 1, launch.refs.end());
  kernels::Concat(sources, static_cast<int>(launch.ints[0]), launch.refs[0], range);
}

// A rank-1 tensor without elements says nothing about the shape: frameworks start lists of results with one.
bool IsSkipped(const Operand& operand) { return operand.rank() == 1 && operand.tensor->count == 0; }

const Operand* FirstOfConcat(const OpCall& call) {
  for (const Operand& input : call.inputs) {
    if (!IsSkipped(input)) return &input;
  }
  return call.inputs.empty() ? nullptr : &call.inputs[0];
}

void RunSplit(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto d = static_cast<size_t>(launch.ints[0]);
  kernels::TensorRef part = launch.refs[launch.refs.size() - 1];
  const int64_t step = part.strides[d] * kernels::ItemSize(part.dtype);
  int64_t first = 0;
  for (size_t i = 0; i + 1 < launch.refs.size(); ++i) {
    const kernels::TensorRef& out = launch.refs[i];
    const int64_t count = kernels::ElementCount(out);
    part.sizes[d] = out.sizes[d];
    if (count != 0) {
      kernels::Copy(part, out, {std::max<int64_t>(0, range.begin - first), std::min(count, range.end - first)});
    }
    part.data = static_cast<char*>(part.data) + out.sizes[d] * step;
    first += count;
  }
}

}  // namespace

Status ConcatenatedShape(OpCall& call) {
  const Operand* first = FirstOfConcat(call);
  if (first == nullptr) return call.Invalid("tensors is an empty list", "pass at least one tensor");
  if (first->rank() == 0) {
    return call.InvalidOperand(*first, "has rank 0, tensors to be joined need a dim", "give it the shape [1]");
  }
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), first->rank()));
  Dims shape(first->sizes().data(), first->sizes().size());
  int64_t& total = shape[static_cast<size_t>(dim)];
  total = 0;
  for (const Operand& input : call.inputs) {
    if (IsSkipped(input)) continue;
    const std::span<const int64_t> sizes = input.sizes();
    bool fits = sizes.size() == shape.size();
    for (size_t d = 0; fits && d < sizes.size(); ++d)
      fits = static_cast<int>(d) == dim || sizes[d] == first->sizes()[d];
    if (!fits) {
      return call.InvalidOperand(
          input,
          fmt::format("has shape {}, expected {} but for dim {}", ShapeText(sizes), ShapeText(first->sizes()), dim),
          "tensors to be joined differ in the joined dim only");
    }
    if (__builtin_add_overflow(total, sizes[static_cast<size_t>(dim)], &total)) {
      return call.Invalid(fmt::format("the sizes of dim {} add up to more than 64 bits hold", dim));
    }
  }
  return call.CheckShape(call.outputs[0], shape, [&] { return fmt::format("along dim {} the joined shape", dim); });
}

Status LowerConcat(OpCall& call) {
  const int64_t dim = call.Int("dim");
  const int rank = call.outputs[0].rank();
  Launch& launch = call.AddLaunch(RunConcat);
  launch.ints.push_back(dim < 0 ? dim + rank : dim);
  call.Write(launch, call.outputs[0]);
  for (const Operand& input : call.inputs) {
    if (input.tensor->count != 0) call.Read(launch, input);
  }
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

namespace {

Status StackedShape(OpCall& call) {
  if (call.inputs.empty()) return call.Invalid("tensors is an empty list", "pass at least one tensor");
  const Operand& first = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), first.rank() + 1));
  for (const Operand& input : call.inputs) {
    if (std::equal(input.sizes().begin(), input.sizes().end(), first.sizes().begin(), first.sizes().end())) continue;
    return call.InvalidOperand(
        input,
        fmt::format("has shape {}, expected {} as the first", ShapeText(input.sizes()), ShapeText(first.sizes())),
        "tensors to be stacked have one shape");
  }
  Dims shape;
  for (int d = 0; d <= first.rank(); ++d) {
    if (d == dim) shape.push_back(static_cast<int64_t>(call.inputs.size()));
    if (d < first.rank()) shape.push_back(first.sizes()[static_cast<size_t>(d)]);
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the stacked shape"; });
}

Status LowerStack(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), call.outputs[0].rank()));
  if (call.outputs[0].tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunConcat);
  launch.ints.push_back(dim);
  call.Write(launch, call.outputs[0]);
  for (const Operand& input : call.inputs) {
    kernels::TensorRef ref = call.RefOf(input);
    InsertDims(ref, dim, 1);
    call.Read(launch, input, ref);
  }
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

Status SplitShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  if (self.rank() == 0) return call.InvalidOperand(self, "has rank 0, which cannot be split");
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  const std::span<const int64_t> sizes = call.Ints("splitSize");
  const int64_t size = self.sizes()[static_cast<size_t>(dim)];
  int64_t total = 0;
  bool fits = true;
  for (int64_t part : sizes) fits = fits && part >= 0 && !__builtin_add_overflow(total, part, &total);
  if (!fits || total != size) {
    return call.Invalid(fmt::format("splitSize is {}, expected sizes that add up to the {} of dim {} of {}",
                                    ShapeText(sizes), size, dim, call.InputShapes()));
  }
  if (call.outputs.size() != sizes.size()) {
    return call.Invalid(fmt::format("out has {} tensors, splitSize {} entries", call.outputs.size(), sizes.size()),
                        "pass one tensor for each part");
  }
  Dims shape(self.sizes().data(), self.sizes().size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    shape[static_cast<size_t>(dim)] = sizes[i];
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.outputs[i], shape, [] { return "the shape of its part,"; }));
  }
  return {};
}

Status LowerSplit(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), call.inputs[0].rank()));
  Launch& launch = call.AddLaunch(RunSplit);
  launch.ints.push_back(dim);
  for (const Operand& output : call.outputs) call.Write(launch, output);
  call.Read(launch, call.inputs[0]);
  launch.units = call.inputs[0].tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

}  // namespace

bool JoinsChannels(const Launch& launch) {
  if (launch.kernel != RunConcat || launch.ints[0] != 1 || launch.refs.size() < 2) return false;
  for (size_t i = 0; i < launch.refs.size(); ++i) {
    const kernels::TensorRef& ref = launch.refs[i];
    if (launch.uses[i].slot < 0 || ref.rank < 3 || ref.rank != launch.refs[0].rank ||
        ref.dtype != kernels::DType::kFloat) {
      return false;
    }
  }
  return kernels::IsContiguous(launch.refs[0]);
}

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/joining.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
