// SPDX-License-Identifier: Apache-2.0
//
// Elements combined at indexed places, elements of flat tensors (kernels/scatter_reduce.h), and parts of tensors that
// one index for each item of the batch places.
#include "kernels/scatter_reduce.h"

#include "kernels/copy.h"
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::ScatterReduceShape;
using kernels::ScatterReduction;
using kernels::TensorRef;

// ---- ScatterReduce ----

Status ScatterReduceShapes(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  REPRISE_RETURN_IF_ERROR(CheckIndexFits(call, call.Get("index"), self, dim));
  REPRISE_RETURN_IF_ERROR(CheckIndexFits(call, call.Get("index"), call.Get("src"), -1));
  const int64_t reduce = call.Int("reduce");
  if (reduce < 0 || reduce > 5) {
    return call.Invalid(
        fmt::format("reduce is {}, expected 0 (replace), 1 (sum), 2 (product), 3 (max), 4 (min) or 5 (mean)", reduce));
  }
  return call.CheckShape(call.outputs[0], self.sizes(), [] { return "the shape"; });
}

// refs: target, index, src.
void RunScatterReduce(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ScatterReduceLines(launch.State<ScatterReduceShape>(), launch.refs[0].dtype, DataOf<void>(launch, 0, memory),
                              DataOf<int64_t>(launch, 1, memory), DataOf<void>(launch, 2, memory),
                              static_cast<int64_t*>(memory.scratch), range);
}

// The output as the kernel wants it, holding what self holds.
Dense CopyOfSelf(OpCall& call, const Operand& self, DType stage) {
  const Operand& out = call.outputs[0];
  const bool is_in_place = self.slot == out.slot;
  const Dense target = DenseOutput(call, out, stage, is_in_place);
  if (is_in_place) return target;
  Launch& copy = call.AddLaunch(RunCopy);
  target.Write(call, copy);
  call.Read(copy, self);
  copy.units = out.tensor->count;
  copy.grain = GrainOf(1);
  return target;
}

Status LowerScatterReduce(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& index_operand = call.Get("index");
  if (self.tensor->count == 0) return {};
  auto shape = std::make_shared<ScatterReduceShape>();
  shape->op = static_cast<ScatterReduction>(call.Int("reduce"));
  shape->includes_self = call.Bool("includeSelf");
  REPRISE_ASSIGN_OR_RETURN(shape->dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  const DType stage = kernels::StageOf(call.compute);
  const Dense index = DenseInput(call, index_operand, DType::kInt64);
  const Dense src = DenseInput(call, call.Get("src"), stage);
  const Dense target = CopyOfSelf(call, self, stage);
  const TensorRef places = AtLeastOneDim(index.ref), from = AtLeastOneDim(src.ref), to = AtLeastOneDim(target.ref);
  shape->rank = to.rank;
  for (int d = 0; d < to.rank; ++d) {
    shape->sizes[d] = places.sizes[d];
    shape->index_strides[d] = places.strides[d];
    shape->src_strides[d] = from.strides[d];
    shape->target_strides[d] = to.strides[d];
  }
  shape->target_size = to.sizes[shape->dim];
  if (index_operand.tensor->count != 0) {
    Launch& launch = call.AddLaunch(RunScatterReduce);
    target.Write(call, launch);
    index.Read(call, launch);
    src.Read(call, launch);
    launch.units = shape->lines();
    const int64_t counts = shape->counts_places() ? shape->target_size : 0;
    launch.grain = GrainOf(counts + 4 * shape->sizes[shape->dim]);
    call.AddScratch(launch, static_cast<uint64_t>(counts) * sizeof(int64_t));
    launch.state = std::move(shape);
  }
  target.Store(call);
  return {};
}

// ---- Take, Put ----

Status TakeShape(OpCall& call) {
  return call.CheckShape(call.outputs[0], call.Get("index").sizes(), [] { return "the shape of index,"; });
}

void RunTake(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Take(DataOf<void>(launch, 1, memory), kernels::ElementCount(launch.refs[1]),
                DataOf<int64_t>(launch, 2, memory), DataOf<void>(launch, 0, memory),
                kernels::ItemSize(launch.refs[0].dtype), range);
}

Status LowerTake(OpCall& call) {
  const Operand& self = call.Get("self");
  if (call.outputs[0].tensor->count == 0) return {};
  if (self.tensor->count == 0) {
    return call.InvalidOperand(self, fmt::format("has shape {}: no elements to take", ShapeText(self.sizes())));
  }
  const Dense from = DenseInput(call, self, call.outputs[0].dtype);
  const Dense index = DenseInput(call, call.Get("index"), DType::kInt64);
  const Dense out = DenseOutput(call, call.outputs[0], call.outputs[0].dtype);
  Launch& launch = call.AddLaunch(RunTake);
  out.Write(call, launch);
  from.Read(call, launch);
  index.Read(call, launch);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(4);
  out.Store(call);
  return {};
}

Status PutShape(OpCall& call) {
  const Operand& index = call.Get("index");
  const Operand& source = call.Get("source");
  if (index.tensor->count == source.tensor->count) return {};
  return call.InvalidOperand(source, fmt::format("has {} elements, expected one for each of the {} indices",
                                                 source.tensor->count, index.tensor->count));
}

// refs: self, index, source.
void RunPut(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  kernels::Put(launch.refs[0].dtype, DataOf<void>(launch, 0, memory), kernels::ElementCount(launch.refs[0]),
               DataOf<int64_t>(launch, 1, memory), DataOf<void>(launch, 2, memory),
               kernels::ElementCount(launch.refs[1]), launch.ints[0] != 0);
}

Status LowerPut(OpCall& call) {
  const Operand& self = call.outputs[0];
  if (self.tensor->count == 0 || call.Get("index").tensor->count == 0) return {};
  const DType stage = kernels::StageOf(call.compute);
  const Dense target = DenseOutput(call, self, stage, true);
  const Dense index = DenseInput(call, call.Get("index"), DType::kInt64);
  const Dense source = DenseInput(call, call.Get("source"), stage);
  Launch& launch = call.AddLaunch(RunPut);
  target.Write(call, launch);
  index.Read(call, launch);
  source.Read(call, launch);
  launch.ints.push_back(call.Bool("accumulate") ? 1 : 0);
  launch.units = 1;
  target.Store(call);
  return {};
}

// ---- One place for each item of a batch ----

// Writes the part `from` into `to` at position `at` of `dim`; nothing where it does not fit.
void PlacePart(TensorRef to, const TensorRef& from, int dim, int64_t at) {
  if (at < 0 || from.sizes[dim] > to.sizes[dim] - at) return;
  to.data = static_cast<char*>(to.data) + at * to.strides[dim] * kernels::ItemSize(to.dtype);
  to.sizes[dim] = from.sizes[dim];
  kernels::Copy(from, to, kernels::FullRange(to));
}

// Item `n` of a tensor, without the first dim.
TensorRef ItemOf(const TensorRef& ref, int64_t n) {
  TensorRef item = ref;
  item.data = static_cast<char*>(ref.data) + n * ref.strides[0] * kernels::ItemSize(ref.dtype);
  --item.rank;
  for (int d = 0; d < item.rank; ++d) {
    item.sizes[d] = ref.sizes[d + 1];
    item.strides[d] = ref.strides[d + 1];
  }
  return item;
}

int64_t IndexAt(const TensorRef& ref, int64_t n) {
  int64_t value = 0;
  const int64_t offset = ref.rank == 0 ? 0 : n * ref.strides[0] * kernels::ItemSize(ref.dtype);
  kernels::FindCast(ref.dtype, DType::kInt64)(static_cast<const char*>(ref.data) + offset, 0,
                                              reinterpret_cast<char*>(&value), 0, 1);
  return value;
}

// The sizes of updates are those of data, but for the updated dim, where they may be less.
Status CheckUpdates(const OpCall& call, const Operand& updates, std::span<const int64_t> whole, size_t dim) {
  const std::span<const int64_t> sizes = updates.sizes();
  bool fits = sizes.size() == whole.size();
  for (size_t d = 0; fits && d < sizes.size(); ++d) fits = d == dim ? sizes[d] <= whole[d] : sizes[d] == whole[d];
  if (fits) return {};
  return call.InvalidOperand(updates, fmt::format("has shape {}, expected {} with at most that size in dim {}",
                                                  ShapeText(sizes), ShapeText(whole), dim));
}

StatusOr<int> UpdatedDim(const OpCall& call, int rank) {
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("axis", call.Int("axis"), rank));
  if (dim != 0) return dim;
  return call.Invalid(fmt::format("axis is {}, which is the dim of the batch", call.Int("axis")),
                      "name one of the other dims");
}

Status CheckPlaces(const OpCall& call, const Operand& places, int64_t batch) {
  if ((places.rank() == 0) || (places.rank() == 1 && places.tensor->count == batch)) return {};
  return call.InvalidOperand(places, fmt::format("has shape {}, expected [{}]: one place for each item of the batch",
                                                 ShapeText(places.sizes()), batch));
}

Status ScatterUpdateShape(OpCall& call) {
  const Operand& data = call.outputs[0];
  if (data.rank() < 2) {
    return call.InvalidOperand(data, fmt::format("has shape {}, expected 2 dims or more", ShapeText(data.sizes())));
  }
  REPRISE_ASSIGN_OR_RETURN(const int dim, UpdatedDim(call, data.rank()));
  REPRISE_RETURN_IF_ERROR(CheckPlaces(call, call.Get("indices"), data.sizes()[0]));
  return CheckUpdates(call, call.Get("updates"), data.sizes(), static_cast<size_t>(dim));
}

// refs: data, indices, updates.
void RunScatterUpdate(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  for (int64_t n = range.begin; n < range.end; ++n) {
    PlacePart(ItemOf(launch.refs[0], n), ItemOf(launch.refs[2], n), static_cast<int>(launch.ints[0]),
              IndexAt(launch.refs[1], n));
  }
}

Status LowerScatterUpdate(OpCall& call) {
  const Operand& data = call.outputs[0];
  const Operand& updates = call.Get("updates");
  REPRISE_ASSIGN_OR_RETURN(const int dim, UpdatedDim(call, data.rank()));
  if (updates.tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunScatterUpdate);
  launch.ints.push_back(dim - 1);
  call.Write(launch, data);
  call.Read(launch, call.Get("indices"));
  call.Read(launch, updates);
  launch.units = data.sizes()[0];
  launch.grain = GrainOf(updates.tensor->count / launch.units);
  return {};
}

// Parameter axis counts the dims of updates from the front, those of each tensor from the end.
StatusOr<int> UpdatedDimOfList(const OpCall& call) { return UpdatedDim(call, call.Get("updates").rank()); }

Status ScatterListShape(OpCall& call) {
  const Operand& updates = call.Get("updates");
  const std::span<const Operand> tensors = call.List("varRef");
  if (!call.Text("reduceOptional").empty()) {
    if (call.Text("reduceOptional") != "update") {
      return call.Invalid(fmt::format("reduceOptional is '{}', expected update", call.Text("reduceOptional")));
    }
  }
  if (updates.rank() < 2 || updates.sizes()[0] != static_cast<int64_t>(tensors.size())) {
    return call.InvalidOperand(updates, fmt::format("has shape {}, expected one part for each of the {} tensors",
                                                    ShapeText(updates.sizes()), tensors.size()));
  }
  REPRISE_ASSIGN_OR_RETURN(const int dim, UpdatedDimOfList(call));
  REPRISE_RETURN_IF_ERROR(CheckPlaces(call, call.Get("indice"), static_cast<int64_t>(tensors.size())));
  if (const Operand* mask = call.Find("maskOptional"); mask != nullptr) {
    const auto count = static_cast<int64_t>(tensors.size());
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*mask, {&count, 1}, [] { return "one for each tensor,"; }));
  }
  for (const Operand& tensor : tensors) {
    Dims whole;
    whole.push_back(static_cast<int64_t>(tensors.size()));
    for (const int64_t size : tensor.sizes()) whole.push_back(size);
    REPRISE_RETURN_IF_ERROR(CheckUpdates(call, updates, whole, static_cast<size_t>(dim)));
  }
  return {};
}

// refs: the tensors, indices, updates, mask.
void RunScatterList(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const size_t count = launch.refs.size() - 3;
  for (int64_t n = range.begin; n < range.end; ++n) {
    if (launch.HasOperand(count + 2) && IndexAt(launch.refs[count + 2], n) == 0) continue;
    PlacePart(launch.refs[static_cast<size_t>(n)], ItemOf(launch.refs[count + 1], n), static_cast<int>(launch.ints[0]),
              IndexAt(launch.refs[count], n));
  }
}

Status LowerScatterList(OpCall& call) {
  const Operand& updates = call.Get("updates");
  REPRISE_ASSIGN_OR_RETURN(const int dim, UpdatedDimOfList(call));
  if (updates.tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunScatterList);
  launch.ints.push_back(dim - 1);
  for (const Operand& tensor : call.List("varRef")) call.Write(launch, tensor);
  call.Read(launch, call.Get("indice"));
  call.Read(launch, updates);
  call.ReadOptional(launch, call.Find("maskOptional"));
  launch.units = updates.sizes()[0];
  launch.grain = GrainOf(updates.tensor->count / launch.units);
  return {};
}

// ---- CoalesceSparse ----

Status CoalesceShape(OpCall& call) {
  const Operand& place = call.Get("uniqueIndices");
  const Operand& indices = call.Get("indices");
  const Operand& values = call.Get("values");
  const int64_t count = place.tensor->count;
  if (indices.rank() != 2 || indices.sizes()[0] != count) {
    return call.InvalidOperand(indices, fmt::format("has shape {}, expected [{}, dims]: one row for each of "
                                                    "uniqueIndices",
                                                    ShapeText(indices.sizes()), count));
  }
  if (values.rank() == 0 || values.sizes()[0] != count) {
    return call.InvalidOperand(values, fmt::format("has shape {}, expected one row for each of the {} of "
                                                   "uniqueIndices",
                                                   ShapeText(values.sizes()), count));
  }
  const int64_t rows = call.Get("uniqueLen").tensor->count;
  const int64_t new_indices[2] = {rows, indices.sizes()[1]};
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("newIndices"), new_indices, [] { return "one row for each of uniqueLen,"; }));
  Dims new_values(values.sizes().data(), values.sizes().size());
  new_values[0] = rows;
  return call.CheckShape(call.Get("newValues"), new_values, [] { return "one row for each of uniqueLen,"; });
}

// refs: new indices, new values, places, indices, values.
void RunCoalesce(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const TensorRef& values = launch.refs[4];
  const int64_t count = values.sizes[0];
  kernels::Coalesce(launch.refs[1].dtype, DataOf<int64_t>(launch, 2, memory), count, launch.refs[0].sizes[0],
                    DataOf<int64_t>(launch, 3, memory), launch.refs[0].sizes[1], DataOf<void>(launch, 4, memory),
                    count == 0 ? 0 : kernels::ElementCount(values) / count, DataOf<int64_t>(launch, 0, memory),
                    DataOf<void>(launch, 1, memory));
}

Status LowerCoalesce(OpCall& call) {
  const DType stage = kernels::StageOf(call.compute);
  const Dense place = DenseInput(call, call.Get("uniqueIndices"), DType::kInt64);
  const Dense indices = DenseInput(call, call.Get("indices"), DType::kInt64);
  const Dense values = DenseInput(call, call.Get("values"), stage);
  const Dense new_indices = DenseOutput(call, call.Get("newIndices"), DType::kInt64);
  const Dense new_values = DenseOutput(call, call.Get("newValues"), stage);
  Launch& launch = call.AddLaunch(RunCoalesce);
  new_indices.Write(call, launch);
  new_values.Write(call, launch);
  for (const Dense* input : {&place, &indices, &values}) input->Read(call, launch);
  launch.units = call.Get("uniqueLen").tensor->count == 0 ? 0 : 1;
  new_indices.Store(call);
  new_values.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/scatter_reduce.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
