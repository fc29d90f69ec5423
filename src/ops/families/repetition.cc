// SPDX-License-Identifier: Apache-2.0
//
// Repetitions of whole tensors and of their elements.
#include "kernels/generate.h"
#include "kernels/remap.h"
#include "ops/computations.h"
#include "ops/families/movement.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

void RunRepeatEach(const Launch& launch, kernels::Range, const Launch::KernelMemory&) {
  kernels::RepeatEach(launch.refs[1], launch.refs[2], launch.refs[0]);
}

Status RepeatShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const std::span<const int64_t> repeats = call.Ints("repeats");
  const auto rank = static_cast<size_t>(self.rank());
  if (repeats.size() < rank) {
    return call.Invalid(
        fmt::format("repeats is {}, expected at least {} entries for {}", ShapeText(repeats), rank, call.InputShapes()),
        "repeats names every dim of self, new ones in front");
  }
  Dims shape;
  for (size_t d = 0; d < repeats.size(); ++d) {
    const size_t own = d + rank - repeats.size();
    int64_t size = d + rank < repeats.size() ? 1 : self.sizes()[own];
    if (repeats[d] < 0 || __builtin_mul_overflow(size, repeats[d], &size)) {
      return call.Invalid(fmt::format("repeats is {}, which cannot be for {}", ShapeText(repeats), call.InputShapes()),
                          "pass no negative or huge numbers");
    }
    shape.push_back(size);
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the repeated shape"; });
}

Status LowerRepeat(OpCall& call) {
  if (call.outputs[0].tensor->count == 0) return {};
  const std::span<const int64_t> repeats = call.Ints("repeats");
  kernels::TensorRef self = call.RefOf(call.inputs[0]);
  kernels::TensorRef out = call.RefOf(call.outputs[0]);
  const int added = out.rank - self.rank;
  CopyDims dims;
  for (int d = 0; d < out.rank; ++d) {
    const int own = d - added;
    const int64_t size = own < 0 ? 1 : self.sizes[own];
    dims.Add(repeats[static_cast<size_t>(d)], out.strides[d] * size, 0);
    dims.Add(size, out.strides[d], own < 0 ? 0 : self.strides[own]);
  }
  if (dims.fits()) {
    dims.Apply(out, self);
    AddCopyOfViews(call, out, self);
    return {};
  }
  kernels::TensorRef wide = out;  // self with the rank of out
  for (int d = 0; d < out.rank; ++d) {
    wide.sizes[d] = d < added ? 1 : self.sizes[d - added];
    wide.strides[d] = d < added ? 0 : self.strides[d - added];
  }
  AddRemap(call, MakeRemap(out, wide, [&](int d) {
             Pieces pieces;
             for (int64_t r = 0; r < repeats[static_cast<size_t>(d)]; ++r) {
               pieces.push_back({r * wide.sizes[d], (r + 1) * wide.sizes[d], 0, 1, false});
             }
             return pieces;
           }));
  return {};
}

Status RepeatEachShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const int64_t repeats = call.Int("repeats");
  const int64_t total = call.Int("outputSize");
  const bool has_dim = call.Has("dim");
  int dim = 0;
  if (has_dim) {
    REPRISE_ASSIGN_OR_RETURN(dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  }
  Dims shape;
  if (has_dim) shape.assign(self.sizes().data(), self.sizes().size());
  if (!has_dim || self.rank() == 0) shape.assign(&self.tensor->count, 1);
  int64_t& size = shape[static_cast<size_t>(dim)];
  if (repeats < 0 || __builtin_mul_overflow(size, repeats, &size)) {
    return call.Invalid(fmt::format("repeats is {}, expected 0 or a moderate number", repeats));
  }
  if (total != size) {
    return call.Invalid(fmt::format("outputSize is {}, expected {}: {} times the size {}", total, size, repeats,
                                    repeats == 0 ? 0 : size / repeats));
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the repeated shape"; });
}

Status LowerRepeatEach(OpCall& call) {
  if (call.outputs[0].tensor->count == 0) return {};
  const int64_t repeats = call.Int("repeats");
  kernels::TensorRef self = call.RefOf(call.inputs[0]);
  kernels::TensorRef out = call.RefOf(call.outputs[0]);
  CopyDims dims;
  if (call.Has("dim") && self.rank != 0) {
    REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank));
    for (int d = 0; d < self.rank; ++d) {
      dims.Add(self.sizes[d], d == dim ? out.strides[d] * repeats : out.strides[d], self.strides[d]);
      if (d == dim) dims.Add(repeats, out.strides[d], 0);
    }
  } else {
    int64_t inside = call.outputs[0].tensor->count;
    for (int d = 0; d < self.rank; ++d) {
      inside /= self.sizes[d];
      dims.Add(self.sizes[d], out.strides[0] * inside, self.strides[d]);
    }
    dims.Add(repeats, out.strides[0], 0);
  }
  if (!dims.fits()) {
    return call.InvalidOperand(
        call.inputs[0],
        fmt::format("has {} dims that cannot be joined, at most {} are possible", self.rank, kernels::kMaxRank - 1),
        "pass a contiguous tensor");
  }
  dims.Apply(out, self);
  AddCopyOfViews(call, out, self);
  return {};
}

Status RepeatByTensorShape(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& repeats = call.Get("repeats");
  const int64_t total = call.Int("outputSize");
  if (repeats.rank() > 1 || (repeats.tensor->count != 1 && repeats.tensor->count != self.tensor->count)) {
    return call.InvalidOperand(repeats,
                               fmt::format("has shape {}, expected one entry or [{}], one for each element of {}",
                                           ShapeText(repeats.sizes()), self.tensor->count, call.NameOf(self)));
  }
  if (total < 0) return call.Invalid(fmt::format("outputSize is {}, expected the sum of repeats", total));
  return call.CheckShape(call.outputs[0], {&total, 1}, [] { return "as outputSize says, the shape"; });
}

Status LowerRepeatByTensor(OpCall& call) {
  Launch& launch = call.AddLaunch(RunRepeatEach);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.Get("self"));
  call.Read(launch, call.Get("repeats"));
  launch.units = call.outputs[0].tensor->count == 0 ? 0 : 1;
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/repetition.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
