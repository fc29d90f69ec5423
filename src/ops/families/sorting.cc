// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"
#include "kernels/sort.h"
#include "kernels/unique.h"
#include "ops/computations.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

// Cost of an element of a row that is sorted, or of which some are selected.
constexpr int64_t kSortCost = 16;
constexpr int64_t kSelectCost = 4;

int64_t SizeOf(const Operand& operand, int dim) {
  return operand.rank() == 0 ? 1 : operand.sizes()[static_cast<size_t>(dim)];
}

Status CheckLength(const OpCall& call, const Operand& self, int64_t n) {
  if (n < (int64_t{1} << 32)) return {};
  return call.InvalidOperand(self, fmt::format("has {} elements to order, at most 2^32 - 1 are possible", n));
}

// ---- Sort, Argsort, Topk ----

void RunSort(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Sort(launch.refs[2], static_cast<int>(launch.ints[0]), launch.ints[1] != 0, launch.refs[1], launch.refs[0],
                range, memory.scratch);
}

Status TypeOfOrder(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  return call.Find("valuesOut") != nullptr ? OneType(call) : Status();
}

Status LowerSort(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand* values = call.Has("valuesOut") ? &call.Get("valuesOut") : nullptr;
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  const int64_t n = SizeOf(self, dim);
  REPRISE_RETURN_IF_ERROR(CheckLength(call, self, n));
  Launch& launch = call.AddLaunch(RunSort);
  launch.ints.push_back(dim);
  launch.ints.push_back(call.Bool("descending") ? 1 : 0);
  call.Write(launch, call.Get(values != nullptr ? "indicesOut" : "out"));
  call.WriteOptional(launch, values);
  call.Read(launch, self);
  if (self.tensor->count == 0) return {};
  launch.units = self.tensor->count / n;
  launch.grain = GrainOf(n * kSortCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::SortScratch(self.dtype, n)));
  return {};
}

void RunTopK(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::TopK(launch.refs[2], launch.ints[1], static_cast<int>(launch.ints[0]), (launch.ints[2] & 1) != 0,
                (launch.ints[2] & 2) != 0, launch.refs[1], launch.refs[0], range, memory.scratch);
}

Status TopKShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  const int64_t k = call.Int("k");
  const int64_t n = SizeOf(self, dim);
  if (k < 0 || k > n) {
    return call.Invalid(
        fmt::format("k is {}, expected 0 to {}, the size of dim {} of {}", k, n, dim, call.InputShapes()));
  }
  Dims shape(self.sizes().data(), self.sizes().size());
  if (self.rank() != 0) shape[static_cast<size_t>(dim)] = k;
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, shape, [] { return "with k in the place of the dim, the shape"; }));
  }
  return {};
}

Status LowerTopK(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  const int64_t n = SizeOf(self, dim);
  const int64_t k = self.rank() == 0 ? 1 : call.Int("k");
  REPRISE_RETURN_IF_ERROR(CheckLength(call, self, n));
  Launch& launch = call.AddLaunch(RunTopK);
  launch.ints.push_back(dim);
  launch.ints.push_back(k);
  launch.ints.push_back((call.Bool("largest") ? 1 : 0) | (call.Bool("sorted") ? 2 : 0));
  call.Write(launch, call.Get("indicesOut"));
  call.Write(launch, call.Get("valuesOut"));
  call.Read(launch, self);
  if (self.tensor->count == 0 || k == 0) return {};
  launch.units = self.tensor->count / n;
  launch.grain = GrainOf(n * kSelectCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::TopKScratch(self.dtype, n, k)));
  return {};
}

// ---- Median ----

// Computation::code.
kernels::RowChoice ChoiceOf(const OpSchema& op) { return static_cast<kernels::RowChoice>(op.computation.code); }

void RunMedian(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Median(launch.refs[2], static_cast<int>(launch.ints[0]), ChoiceOf(launch.op), launch.ints[1], launch.refs[1],
                  launch.refs[0], range, memory.scratch);
}

void RunMedianOfAll(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  kernels::MedianOfAll(launch.refs[1], ChoiceOf(launch.op), launch.refs[0], memory.scratch);
}

Status LowerMedianDim(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  const int64_t n = SizeOf(self, dim);
  REPRISE_RETURN_IF_ERROR(CheckLength(call, self, n));
  const Operand& values = call.Get("valuesOut");
  if (n == 0 && values.tensor->count != 0) {
    return call.InvalidOperand(
        self, fmt::format("has shape {}: no elements in dim {} to choose from", ShapeText(self.sizes()), dim));
  }
  const auto without_dim = [&](TensorRef ref) {
    if (ref.rank != self.rank() || ref.rank == 0) return ref;
    --ref.rank;
    for (int d = dim; d < ref.rank; ++d) {
      ref.sizes[d] = ref.sizes[d + 1];
      ref.strides[d] = ref.strides[d + 1];
    }
    return ref;
  };
  const int64_t rank = call.Has("k") ? call.Int("k") : 1;
  if (rank < 1 || rank > std::max<int64_t>(n, 1)) {
    return call.Invalid(
        fmt::format("k is {}, expected 1 to {}, the size of dim {} of {}", rank, n, dim, call.InputShapes()));
  }
  Launch& launch = call.AddLaunch(RunMedian);
  launch.ints.push_back(dim);
  launch.ints.push_back(rank - 1);
  const Operand& indices = call.Get("indicesOut");
  call.Write(launch, indices, without_dim(call.RefOf(indices)));
  call.Write(launch, values, without_dim(call.RefOf(values)));
  call.Read(launch, self);
  if (self.tensor->count == 0) return {};
  launch.units = values.tensor->count;
  launch.grain = GrainOf(n * kSelectCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::MedianScratch(self.dtype, n)));
  return {};
}

Status MedianShape(OpCall& call) {
  return call.CheckShape(call.outputs[0], {}, [] { return "the shape of one number"; });
}

Status LowerMedian(OpCall& call) {
  const Operand& self = call.inputs[0];
  const int64_t n = self.tensor->count;
  REPRISE_RETURN_IF_ERROR(CheckLength(call, self, n));
  if (n == 0) {
    return call.InvalidOperand(self, fmt::format("has shape {}: no elements to choose from", ShapeText(self.sizes())));
  }
  Launch& launch = call.AddLaunch(RunMedianOfAll);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, self);
  launch.units = 1;
  call.AddScratch(launch, static_cast<uint64_t>(kernels::MedianScratch(self.dtype, n)));
  return {};
}

// ---- SearchSorted ----

void RunSearch(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::SearchSorted(launch.refs[2], launch.refs[3], launch.refs[1], launch.compute, launch.ints[0] != 0,
                        launch.refs[0], range);
}

Status TypeOfSearch(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(PromoteInputs(call));
  const Operand& out = call.outputs[0];
  const DType wanted = call.Bool("outInt32") ? DType::kInt32 : DType::kInt64;
  if (out.dtype == wanted) return {};
  return call.InvalidOperand(
      out, fmt::format("has {}, outInt32 asks for {}", kernels::Name(out.dtype), kernels::Name(wanted)));
}

const Operand& SequenceOf(const OpCall& call) {
  return call.Get(call.Has("boundaries") ? "boundaries" : "sortedSequence");
}

Status SearchShape(OpCall& call) {
  const Operand& sequence = SequenceOf(call);
  const Operand& self = call.Get("self");
  if (call.Has("boundaries") && sequence.rank() != 1) {
    return call.InvalidOperand(sequence, fmt::format("has shape {}, expected one dim", ShapeText(sequence.sizes())));
  }
  if (sequence.rank() == 0) {
    return call.InvalidOperand(sequence, "has rank 0, expected at least 1", "give it the shape [1]");
  }
  if (sequence.rank() != 1) {
    const auto outer = [](const Operand& operand) {
      return operand.sizes().first(operand.sizes().size() - (operand.rank() == 0 ? 0 : 1));
    };
    if (sequence.rank() != self.rank() || !std::ranges::equal(outer(sequence), outer(self))) {
      return call.InvalidOperand(sequence,
                                 fmt::format("has shape {}, expected a vector or the dims of {} but the last: {}",
                                             ShapeText(sequence.sizes()), call.NameOf(self), ShapeText(self.sizes())));
    }
  }
  const Operand* sorter = call.Find("sorter");
  if (sorter != nullptr) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*sorter, sequence.sizes(), [] { return "the shape of sortedSequence,"; }));
  }
  return call.CheckShape(call.outputs[0], self.sizes(), [] { return "the shape of what is looked for,"; });
}

Status LowerSearch(OpCall& call) {
  const Operand& sequence = SequenceOf(call);
  Launch& launch = call.AddLaunch(RunSearch);
  launch.ints.push_back(call.Bool("right") ? 1 : 0);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.Get("self"));
  call.Read(launch, sequence);
  call.ReadOptional(launch, call.Find("sorter"));
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(32);
  return {};
}

// ---- What is picked ----

FoundShapes& Found(const Launch& launch) { return const_cast<FoundShapes&>(launch.State<FoundShapes>()); }

void RunCount(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::CountNonZero(launch.refs[1], static_cast<int64_t*>(launch.Ref(0, memory).data), range);
}

Launch& AddCount(OpCall& call, const Operand& tested, const TensorRef& view, const TensorRef& counts) {
  Launch& launch = call.AddLaunch(RunCount);
  call.WriteTemporary(launch, counts);
  call.Read(launch, tested, view);
  launch.units = counts.sizes[0];
  launch.grain = 2;
  return launch;
}

int64_t PartsOf(int64_t count) { return (count + kernels::kSelectPart - 1) / kernels::kSelectPart; }

void RunNonZero(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto* counts = static_cast<const int64_t*>(launch.Ref(2, memory).data);
  const bool transposed = launch.ints[0] != 0;
  const TensorRef& out = launch.refs[0];
  const FoundShapes::Output& found = Found(launch).outputs[0];
  const int64_t total = kernels::TotalOf(counts, launch.units);
  int64_t element_stride = out.strides[transposed ? 1 : 0];
  int64_t coordinate_stride = out.strides[transposed ? 0 : 1];
  if (found.is_packed) {
    element_stride = transposed ? 1 : launch.refs[1].rank;
    coordinate_stride = transposed ? total : 1;
  }
  kernels::WriteNonZero(launch.refs[1], counts, out, element_stride, coordinate_stride, range);
  if (range.begin == 0) Found(launch).outputs[0].sizes[transposed ? 1 : 0] = total;
}

Status NonZeroShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& out = call.outputs[0];
  const bool transposed = call.op.computation.code != 0;
  const size_t rank = transposed ? 0 : 1;
  // One number has no coordinates, so there is nothing to make room for.
  if (self.rank() == 0 && out.rank() == 2 && out.sizes()[rank] == 0) return {};
  if (out.rank() == 2 && out.sizes()[rank] == self.rank() && out.sizes()[1 - rank] >= self.tensor->count) return {};
  const int64_t most = self.tensor->count;
  const int64_t wanted[2] = {transposed ? self.rank() : most, transposed ? most : self.rank()};
  return call.CheckShape(out, wanted, [] { return "room for every element:"; });
}

Status LowerNonZero(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& out = call.outputs[0];
  const bool transposed = call.op.computation.code != 0;
  const int64_t sizes[2] = {transposed ? self.rank() : 0, transposed ? 0 : self.rank()};
  const auto found = call.FindShape(out, sizes);
  if (self.tensor->count == 0) return {};
  const int64_t parts = PartsOf(self.tensor->count);
  const TensorRef counts = call.Temporary(DType::kInt64, {&parts, 1});
  AddCount(call, self, call.RefOf(self), counts);
  Launch& launch = call.AddLaunch(RunNonZero);
  launch.state = found;
  launch.ints.push_back(transposed ? 1 : 0);
  call.Write(launch, out);
  call.Read(launch, self);
  call.ReadTemporary(launch, counts);
  launch.units = parts;
  launch.grain = 1;
  return {};
}

void RunMasked(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto* counts = static_cast<const int64_t*>(launch.Ref(3, memory).data);
  kernels::WriteMasked(launch.refs[1], launch.refs[2], counts, launch.refs[0], range);
  if (range.begin == 0) Found(launch).outputs[0].sizes[0] = kernels::TotalOf(counts, launch.units);
}

Status SelectedShape(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& mask = call.Get("mask");
  const Operand& out = call.outputs[0];
  Dims shape;
  if (!Broadcast(self.sizes(), mask.sizes(), shape)) {
    return call.InvalidOperand(mask,
                               fmt::format("has shape {}, which does not broadcast with self {}",
                                           ShapeText(mask.sizes()), ShapeText(self.sizes())),
                               "sizes, aligned at the last dim, must be equal or 1");
  }
  int64_t most = 1;
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(most, size, &most)) return call.Invalid("the broadcast shape has too many elements");
  }
  if (out.rank() == 1 && out.sizes()[0] >= most) return {};
  return call.CheckShape(out, {&most, 1}, [] { return "room for every element:"; });
}

// `ref` as a view of a shape that it broadcasts to.
TensorRef Expanded(const TensorRef& ref, const Dims& shape) {
  TensorRef view = ref;
  view.rank = static_cast<int>(shape.size());
  for (int d = 0; d < view.rank; ++d) {
    const int own = d - view.rank + ref.rank;
    view.sizes[d] = shape[static_cast<size_t>(d)];
    view.strides[d] = own < 0 || ref.sizes[own] == 1 ? 0 : ref.strides[own];
  }
  return view;
}

Status LowerMasked(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& mask = call.Get("mask");
  const int64_t none = 0;
  const auto found = call.FindShape(call.outputs[0], {&none, 1});
  Dims shape;
  Broadcast(self.sizes(), mask.sizes(), shape);
  const TensorRef self_view = Expanded(call.RefOf(self), shape);
  const TensorRef mask_view = Expanded(call.RefOf(mask), shape);
  const int64_t count = kernels::ElementCount(self_view);
  if (count == 0) return {};
  const int64_t parts = PartsOf(count);
  const TensorRef counts = call.Temporary(DType::kInt64, {&parts, 1});
  AddCount(call, mask, mask_view, counts);
  Launch& launch = call.AddLaunch(RunMasked);
  launch.state = found;
  call.Write(launch, call.outputs[0]);
  call.Read(launch, self, self_view);
  call.Read(launch, mask, mask_view);
  call.ReadTemporary(launch, counts);
  launch.units = parts;
  launch.grain = 1;
  return {};
}

// ---- Unique ----

constexpr int64_t kNoDim = 1000;  // dim of UniqueConsecutive for "the elements, not slices"

void RunUnique(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const auto dim = static_cast<int>(launch.ints[0]);
  const bool sorted = launch.ints[1] != 0;
  const kernels::UniqueOutputs outputs{launch.refs[0], launch.refs[1], launch.refs[2]};
  const TensorRef& self = launch.refs[3];
  const int64_t count = dim < 0 ? kernels::Unique(self, sorted, outputs, memory.scratch)
                                : kernels::UniqueSlices(self, dim, sorted, outputs, memory.scratch);
  FoundShapes& found = Found(launch);
  found.outputs[0].sizes[dim < 0 ? 0 : dim] = count;
  if (found.outputs.size() > 1) found.outputs[1].sizes[0] = count;
}

struct UniqueCall {
  int dim = -1;  // of slices; negative: elements
  const Operand* inverse = nullptr;
  const Operand* counts = nullptr;
};

StatusOr<UniqueCall> UniqueOf(const OpCall& call) {
  UniqueCall unique;
  const Operand& self = call.inputs[0];
  const bool may_flatten = !call.Has("sorted");
  if (call.Has("dim") && !(may_flatten && call.Int("dim") == kNoDim)) {
    if (self.rank() == 0) {
      return call.InvalidOperand(self, "has rank 0 and no slices", "give it the shape [1]");
    }
    REPRISE_ASSIGN_OR_RETURN(unique.dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  }
  const auto wanted = [&](std::string_view flag, std::string_view name, const Operand*& operand) -> Status {
    if (!call.Has(name) || (call.Has(flag) && !call.Bool(flag))) return {};
    operand = call.Find(name);
    if (operand != nullptr) return {};
    return Error(kOperatorArgumentNull, fmt::format("{}: {} is null", call.op.name, name)).Hint("pass an aclTensor");
  };
  REPRISE_RETURN_IF_ERROR(wanted("returnInverse", "inverseOut", unique.inverse));
  REPRISE_RETURN_IF_ERROR(wanted("returnCounts", "countsOut", unique.counts));
  return unique;
}

Status UniqueShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const UniqueCall unique, UniqueOf(call));
  const Operand& values = call.Get("valueOut");
  const int64_t most = unique.dim < 0 ? self.tensor->count : SizeOf(self, unique.dim);
  const std::span<const int64_t> vector(&most, 1);
  const auto room = [] { return "room for every element:"; };
  if (unique.dim < 0) {
    if (values.rank() != 1 || values.sizes()[0] < most) REPRISE_RETURN_IF_ERROR(call.CheckShape(values, vector, room));
  } else {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(values, self.sizes(), room));
  }
  if (unique.counts != nullptr && (unique.counts->rank() != 1 || unique.counts->sizes()[0] < most)) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*unique.counts, vector, room));
  }
  if (unique.inverse == nullptr) return {};
  return call.CheckShape(*unique.inverse, unique.dim < 0 ? self.sizes() : vector,
                         [] { return "one entry for each element:"; });
}

Status LowerUnique(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const UniqueCall unique, UniqueOf(call));
  const bool sorts = call.Has("sorted");
  const int64_t n = unique.dim < 0 ? self.tensor->count : SizeOf(self, unique.dim);
  REPRISE_RETURN_IF_ERROR(CheckLength(call, self, n));
  if (unique.dim >= 0 && self.tensor->count == 0 && n != 0) {
    return call.InvalidOperand(self, fmt::format("has shape {}: slices of dim {} have no elements to compare",
                                                 ShapeText(self.sizes()), unique.dim));
  }
  Dims sizes;
  if (unique.dim >= 0) sizes.assign(self.sizes().data(), self.sizes().size());
  if (unique.dim < 0) sizes.push_back(0);
  sizes[static_cast<size_t>(std::max(0, unique.dim))] = 0;
  auto found = call.FindShape(call.Get("valueOut"), sizes);
  if (unique.counts != nullptr) {
    const int64_t none = 0;
    found = call.FindShape(*unique.counts, {&none, 1});
  }
  if (self.tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunUnique);
  launch.state = found;
  launch.ints.push_back(unique.dim);
  launch.ints.push_back(sorts ? 1 : 0);
  call.Write(launch, call.Get("valueOut"));
  call.WriteOptional(launch, unique.inverse);
  call.WriteOptional(launch, unique.counts);
  call.Read(launch, self);
  launch.units = 1;
  const TensorRef ref = call.RefOf(self);
  const int64_t bytes = unique.dim >= 0 ? kernels::UniqueSlicesScratch(ref, unique.dim)
                        : sorts         ? kernels::UniqueScratch(ref)
                                        : 0;
  call.AddScratch(launch, static_cast<uint64_t>(bytes));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/sorting.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
