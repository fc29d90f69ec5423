// SPDX-License-Identifier: Apache-2.0
//
// Operators that find elements by indices. Each describes its loop (kernels/indexed.h) once; gathers are one launch.
// Scatters copy self first and, for sums of 16-bit floats, work on a float32 copy of the output; when that is little
// work all of it is one launch on one thread.
#include <cstring>

#include "kernels/copy.h"
#include "kernels/indexed.h"
#include "kernels/mask.h"
#include "ops/computations.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::IndexLoop;
using kernels::ScatterOp;
using kernels::TensorRef;

// ---- Views ----

std::span<const int64_t> SizesOf(const TensorRef& ref) { return {ref.sizes, static_cast<size_t>(ref.rank)}; }

// Makes dims [begin, end) one dim; false where their strides do not allow it. No dims at all become one of size 1.
bool JoinDims(TensorRef& ref, int begin, int end) {
  int64_t size = 1;
  int64_t stride = 1;
  bool is_first = true;
  for (int d = end - 1; d >= begin; --d) {
    if (ref.sizes[d] == 1) continue;
    if (is_first) {
      stride = ref.strides[d];
    } else if (ref.strides[d] != size * stride) {
      return false;
    }
    is_first = false;
    size *= ref.sizes[d];
  }
  TensorRef joined = ref;
  joined.sizes[begin] = size;
  joined.strides[begin] = stride;
  joined.rank = begin + 1;
  for (int d = end; d < ref.rank; ++d) {
    joined.sizes[joined.rank] = ref.sizes[d];
    joined.strides[joined.rank++] = ref.strides[d];
  }
  ref = joined;
  return true;
}

// ---- Loops ----

// The loop over `value` where dims [dim, dim + index_rank) come from one tensor of indices along dim `dim` of self.
// value: self[:dim] + index[batch:] + self[dim + 1:]; the first `batch` dims are those of the index, too.
IndexLoop LoopAlongDim(const TensorRef& self, const TensorRef& value, const TensorRef& index, int dim, int batch) {
  IndexLoop loop;
  const int64_t item = kernels::ItemSize(self.dtype);
  const int64_t value_item = kernels::ItemSize(value.dtype);
  const int64_t index_item = kernels::ItemSize(index.dtype);
  loop.index_count = 1;
  kernels::IndexOperand& operand = loop.indices[0];
  operand.size = self.sizes[dim];
  operand.step = self.strides[dim] * item;
  operand.is_wide = index.dtype == DType::kInt64;
  int v = 0;
  for (int d = 0; d < dim; ++d, ++v) {
    loop.AddDim(value.sizes[v], value.strides[v] * value_item, self.strides[d] * item);
    operand.strides[v] = d < batch ? index.strides[d] * index_item : 0;
  }
  for (int d = batch; d < index.rank; ++d, ++v) {
    loop.AddDim(value.sizes[v], value.strides[v] * value_item, 0);
    operand.strides[v] = index.strides[d] * index_item;
  }
  for (int d = dim + 1; d < self.rank; ++d, ++v) {
    loop.AddDim(value.sizes[v], value.strides[v] * value_item, self.strides[d] * item);
    operand.strides[v] = 0;
  }
  return loop;
}

// The loop over `index`, one index for each element, along dim `dim` of self.
IndexLoop LoopByElement(const TensorRef& self, const TensorRef& value, const TensorRef& index, int dim) {
  IndexLoop loop;
  const int64_t item = kernels::ItemSize(self.dtype);
  const int64_t value_item = kernels::ItemSize(value.dtype);
  const int64_t index_item = kernels::ItemSize(index.dtype);
  loop.index_count = 1;
  kernels::IndexOperand& operand = loop.indices[0];
  operand.size = self.sizes[dim];
  operand.step = self.strides[dim] * item;
  operand.is_wide = index.dtype == DType::kInt64;
  for (int d = 0; d < index.rank; ++d) {
    loop.AddDim(index.sizes[d], value.strides[d] * value_item, d == dim ? 0 : self.strides[d] * item);
    operand.strides[d] = index.strides[d] * index_item;
  }
  return loop;
}

// ---- Gathers ----

// refs: output, self, indices.
void RunGather(const IndexLoop& loop, const TensorRef* refs, kernels::Range range) {
  const void* indices[kernels::kMaxIndices];
  for (int k = 0; k < loop.index_count; ++k) indices[k] = refs[k + 2].data;
  // A self without elements may have no address; nothing is read from it then.
  const void* self = refs[1].data != nullptr ? refs[1].data : refs[0].data;
  kernels::GatherIndexed(loop, static_cast<const char*>(self), indices, refs[0].dtype, static_cast<char*>(refs[0].data),
                         range);
}

void RunOneGather(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  RunGather(launch.State<IndexLoop>(), launch.refs.begin(), range);
}

// One of several gathers that are one launch.
struct JoinedGather {
  IndexLoop loop;
  size_t first_ref;
  int64_t first_unit;
};

void RunGathers(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  for (const JoinedGather& gather : launch.State<std::vector<JoinedGather>>()) {
    const kernels::Range own = {std::max<int64_t>(range.begin - gather.first_unit, 0),
                                std::min(range.end - gather.first_unit, gather.loop.units())};
    if (own.begin < own.end) RunGather(gather.loop, &launch.refs[gather.first_ref], own);
  }
}

Launch* JoinGathers(std::span<const Launch* const> launches) {
  auto* const joined = new Launch(launches[0]->op, RunGathers);
  auto gathers = std::make_shared<std::vector<JoinedGather>>();
  double parts = 0;  // that are worth a thread
  for (const Launch* launch : launches) {
    gathers->push_back({launch->State<IndexLoop>(), joined->refs.size(), joined->units});
    for (size_t i = 0; i < launch->refs.size(); ++i) {
      joined->refs.push_back(launch->refs[i]);
      joined->uses.push_back(launch->uses[i]);
    }
    joined->units += launch->units;
    if (launch->grain != 0) parts += static_cast<double>(launch->units) / static_cast<double>(launch->grain);
  }
  joined->grain = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(joined->units) / std::max(parts, 1.0)));
  joined->compute = launches[0]->compute;
  joined->site = launches[0]->site;
  joined->state = std::move(gathers);
  joined->Seal();
  return joined;
}

// refs: output, self; the caller adds the indices.
Launch& AddGather(OpCall& call, IndexLoop loop, const Operand& self) {
  loop.Finish(false);
  Launch& launch = call.AddLaunch(RunOneGather);
  launch.join = JoinGathers;
  call.Write(launch, call.outputs[0]);
  call.Read(launch, self);
  const int64_t count = call.outputs[0].tensor->count;
  launch.units = count == 0 ? 0 : loop.units();
  launch.grain = launch.units == 0 ? 0 : GrainOf(2 * count / launch.units);
  launch.state = std::make_shared<const IndexLoop>(loop);
  return launch;
}

// ---- Scatters ----

constexpr int64_t kElementsOfIndex = 16;  // of a row, that are worth reading one index again
constexpr int64_t kLeastOfRow = 32;       // elements of each row that a part of a scatter writes

struct ScatterState {
  IndexLoop loop;
  ScatterOp op = ScatterOp::kReplace;
  bool has_alpha = false;
  kernels::Scalar alpha;
  bool is_whole = false;  // one launch: refs end with self (if copied) and the output (if the target is another)
  bool copies_self = false;
  bool has_target = false;
  bool is_host = false;
  std::vector<int64_t> host_index;  // indices that are no tensor
};

void RunScatter(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<ScatterState>();
  const TensorRef target = launch.Ref(0, memory);
  const TensorRef& value = launch.refs[1];
  size_t place = 2;
  const void* indices[kernels::kMaxIndices];
  if (state.is_host) {
    indices[0] = state.host_index.data();
  } else {
    for (int k = 0; k < state.loop.index_count; ++k) indices[k] = launch.refs[place++].data;
  }
  if (state.is_whole && state.copies_self) kernels::Copy(launch.refs[place++], target, kernels::FullRange(target));
  kernels::ScatterIndexed(state.loop, state.op, static_cast<char*>(target.data), target.dtype, indices,
                          static_cast<const char*>(value.data), value.dtype, state.has_alpha ? &state.alpha : nullptr,
                          state.is_whole ? kernels::Range{0, state.loop.units()} : range);
  if (state.is_whole && state.has_target) {
    kernels::Copy(target, launch.refs[place], kernels::FullRange(target));
  }
}

// What a scatter needs to know; the functions below fill it.
struct Scatter {
  const Operand* self;                      // null: nothing is copied
  Operand value;                            // tensor or scalar of type `compute`
  InlineVector<const Operand*, 3> indices;  // none: host_index
  std::vector<int64_t> host_index;
  ScatterOp op = ScatterOp::kReplace;
  const kernels::Scalar* alpha = nullptr;
};

bool Is16BitFloat(DType type) { return type == DType::kFloat16 || type == DType::kBFloat16; }

void AddCopy(OpCall& call, const Operand* write, const TensorRef& to, const Operand* read, const TensorRef& from) {
  Launch& launch = call.AddLaunch(RunCopy);
  if (write != nullptr) {
    call.Write(launch, *write);
  } else {
    call.WriteTemporary(launch, to);
  }
  if (read != nullptr) {
    call.Read(launch, *read);
  } else {
    call.ReadTemporary(launch, from);
  }
  launch.units = kernels::ElementCount(to);
  launch.grain = GrainOf(1);
}

// make_loop(target, value) describes the loop for a target of the type in which values are combined.
template <class MakeLoop>
Status AddScatter(OpCall& call, Scatter scatter, MakeLoop&& make_loop) {
  const Operand& output = call.outputs[0];
  if (output.tensor->count == 0) return {};
  TensorRef target = call.RefOf(output);
  const bool has_target = scatter.op != ScatterOp::kReplace && Is16BitFloat(output.dtype);
  if (has_target) target = call.Temporary(DType::kFloat, SizesOf(target));
  const TensorRef value = call.RefOf(scatter.value);

  auto state = std::make_shared<ScatterState>();
  state->loop = make_loop(AtLeastOneDim(target), AtLeastOneDim(value));
  state->loop.Finish(true);
  state->op = scatter.op;
  if (scatter.alpha != nullptr && scatter.alpha->As<std::complex<double>>() != std::complex<double>(1)) {
    state->has_alpha = true;
    state->alpha = *scatter.alpha;
  }
  state->copies_self = has_target || scatter.self != nullptr;
  state->has_target = has_target;
  state->is_host = scatter.indices.empty();
  state->host_index = std::move(scatter.host_index);
  const int64_t items = state->loop.count();
  const bool copies = state->copies_self || has_target;
  state->is_whole = output.tensor->count + items <= GrainOf(1) || items == 0;
  const Operand& initial = scatter.self != nullptr ? *scatter.self : output;

  if (!state->is_whole && state->copies_self) {
    AddCopy(call, has_target ? nullptr : &output, target, &initial, target);
  }
  Launch& launch = call.AddLaunch(RunScatter);
  if (has_target) {
    call.WriteTemporary(launch, target);
  } else {
    call.Write(launch, output);
  }
  call.Read(launch, scatter.value);
  for (const Operand* index : scatter.indices) call.Read(launch, *index);
  if (state->is_whole) {
    if (state->copies_self) call.Read(launch, initial);
    if (has_target) call.Write(launch, output);
    launch.units = items == 0 && !copies ? 0 : 1;
    launch.grain = 0;
  } else {
    launch.units = state->loop.units();
    launch.grain = GrainOf(2 * items / launch.units);
    // Each part walks all indices again: it does so for whole lines, if there are enough of them, or for so many places
    // that their rows cost more.
    const kernels::IndexLoop& loop = state->loop;
    if (loop.split == loop.rank - 1) launch.grain = std::max(launch.grain, kLeastOfRow);
    if (loop.by_places) {
      const int64_t parts = std::max<int64_t>(2, loop.sizes[1] / kElementsOfIndex);
      launch.grain = std::max(launch.grain, (launch.units + parts - 1) / parts);
    }
    if (has_target) AddCopy(call, &output, target, nullptr, target);
  }
  launch.state = std::move(state);
  return {};
}

// ---- Rules ----

// Every tensor but those with types of their own has the type of the first.
Status SameTypes(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(OneType(call));
  for (const Operand& input : call.inputs) {
    if (input.tensor == nullptr || input.apart || input.dtype == call.compute) continue;
    return call.InvalidOperand(input, fmt::format("has {}, expected the type {} of {}", kernels::Name(input.dtype),
                                                  kernels::Name(call.compute), call.NameOf(call.inputs[0])));
  }
  return {};
}

StatusOr<int> DimOf(const OpCall& call, const Operand& self) {
  return call.WrapDim("dim", call.Int("dim"), self.rank());
}

Status CheckSameShape(OpCall& call, const Operand& self) {
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, self.sizes(), [] { return "the shape"; }));
  }
  return {};
}

Status CheckNotComplexToReal(const OpCall& call, DType from, std::string_view name) {
  if (kernels::CategoryOf(from) != kernels::Category::kComplex ||
      kernels::CategoryOf(call.compute) == kernels::Category::kComplex) {
    return {};
  }
  return call.Invalid(fmt::format("{} is {}, which does not convert to the {} of {}", name, kernels::Name(from),
                                  kernels::Name(call.compute), call.NameOf(call.outputs[0])));
}

kernels::Scalar Converted(const kernels::Scalar& value, DType type) {
  kernels::Scalar converted;
  converted.dtype = type;
  kernels::FindCast(value.dtype, type)(reinterpret_cast<const char*>(value.bytes), 0,
                                       reinterpret_cast<char*>(converted.bytes), 0, 1);
  return converted;
}

Operand OperandOf(const kernels::Scalar& value) { return {nullptr, &value, value.dtype, -1, 0, -1, true}; }

// ---- Along one dim: IndexSelect, GatherV2, GatherV3, Embedding ----

// dim and batch of the call; checks them.
Status AlongDim(const OpCall& call, const Operand& self, const Operand& index, int& dim, int& batch) {
  dim = 0;
  batch = 0;
  if (call.Has("dim")) {
    REPRISE_ASSIGN_OR_RETURN(dim, DimOf(call, self));
  }
  if (call.Has("batchDims")) {
    const int64_t wanted = call.Int("batchDims");
    const int64_t limit = std::min(dim, index.rank());
    batch = static_cast<int>(wanted < 0 ? wanted + index.rank() : wanted);
    if (batch < 0 || batch > limit) {
      return call.Invalid(fmt::format("batchDims is {}, expected a value from 0 to {}, of dim and the rank of {}",
                                      wanted, limit, call.InputShapes()));
    }
    for (int d = 0; d < batch; ++d) {
      const auto at = static_cast<size_t>(d);
      if (self.sizes()[at] == index.sizes()[at]) continue;
      return call.Invalid(
          fmt::format("{} differ in dim {}, which is one of the {} batch dims", call.InputShapes(), d, batch));
    }
  }
  return {};
}

// Indices in one dim, with ones beside it.
Status CheckLine(OpCall& call, const Operand& index) {
  const int64_t count = index.tensor->count;
  return call.CheckShape(index, {&count, 1}, [] { return "rank 1 or 0: the shape"; });
}

Status AlongDimShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& index = call.inputs[1];
  int dim = 0;
  int batch = 0;
  REPRISE_RETURN_IF_ERROR(AlongDim(call, self, index, dim, batch));
  if (call.op.computation.code == 1 && index.rank() > 1) REPRISE_RETURN_IF_ERROR(CheckLine(call, index));
  if (call.op.computation.code == 2 && self.rank() != 2) {
    return call.InvalidOperand(self, fmt::format("has shape {}, expected rank 2", ShapeText(self.sizes())),
                               "one row for each index");
  }
  if (self.rank() == 0 && index.rank() > 1) {
    return call.InvalidOperand(
        index, fmt::format("has shape {}, expected rank 1 or 0 for a self of rank 0", ShapeText(index.sizes())));
  }
  Dims shape;
  for (int d = 0; d < dim; ++d) shape.push_back(self.sizes()[static_cast<size_t>(d)]);
  // IndexSelect keeps the dim also for one index.
  if (call.op.computation.code == 1 && self.rank() != 0 && index.rank() == 0) shape.push_back(1);
  if (self.rank() != 0 || call.op.computation.code != 1) {
    for (int d = batch; d < index.rank(); ++d) shape.push_back(index.sizes()[static_cast<size_t>(d)]);
  }
  for (int d = dim + 1; d < self.rank(); ++d) shape.push_back(self.sizes()[static_cast<size_t>(d)]);
  if (call.op.computation.code == 1 && self.rank() == 0 && index.tensor->count != 1) {
    return call.InvalidOperand(
        index, fmt::format("has shape {}, expected one index for a self of rank 0", ShapeText(index.sizes())));
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the selected shape"; });
}

Status LowerAlongDim(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& index = call.inputs[1];
  int dim = 0;
  int batch = 0;
  REPRISE_RETURN_IF_ERROR(AlongDim(call, self, index, dim, batch));
  TensorRef value = call.RefOf(call.outputs[0]);
  TensorRef positions = call.RefOf(index);
  if (call.op.computation.code == 1 || value.rank == 0) {
    value = AtLeastOneDim(value);
    positions = AtLeastOneDim(positions);
  }
  IndexLoop loop = LoopAlongDim(AtLeastOneDim(call.RefOf(self)), value, positions, dim, batch);
  loop.indices[0].wraps = call.op.computation.code != 2;
  Launch& launch = AddGather(call, loop, self);
  call.Read(launch, index);
  return {};
}

// ---- By element: Gather, Scatter, ScatterAdd, ScatterValue ----

Status GatherShape(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& index = call.Get("index");
  REPRISE_ASSIGN_OR_RETURN(const int dim, DimOf(call, self));
  REPRISE_RETURN_IF_ERROR(CheckIndexFits(call, index, self, dim));
  return call.CheckShape(call.outputs[0], index.sizes(), [] { return "the shape of index,"; });
}

Status LowerGather(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& index = call.Get("index");
  REPRISE_ASSIGN_OR_RETURN(const int dim, DimOf(call, self));
  const IndexLoop loop = LoopByElement(AtLeastOneDim(call.RefOf(self)), AtLeastOneDim(call.RefOf(call.outputs[0])),
                                       AtLeastOneDim(call.RefOf(index)), dim);
  Launch& launch = AddGather(call, loop, self);
  call.Read(launch, index);
  return {};
}

Status ScatterShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& index = call.Get("index");
  REPRISE_ASSIGN_OR_RETURN(const int dim, DimOf(call, self));
  REPRISE_RETURN_IF_ERROR(CheckIndexFits(call, index, self, dim));
  if (call.Has("src")) REPRISE_RETURN_IF_ERROR(CheckIndexFits(call, index, call.Get("src"), -1));
  return CheckSameShape(call, self);
}

Status LowerScatter(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& index = call.Get("index");
  REPRISE_ASSIGN_OR_RETURN(const int dim, DimOf(call, self));
  Scatter scatter;
  scatter.self = self.slot == call.outputs[0].slot ? nullptr : &self;
  scatter.op = static_cast<ScatterOp>(call.op.computation.code);
  if (call.Has("reduce")) {
    const int64_t reduce = call.Int("reduce");
    if (reduce < 0 || reduce > 2) {
      return call.Invalid(fmt::format("reduce is {}, expected 0 (replace), 1 (add) or 2 (multiply)", reduce));
    }
    scatter.op = static_cast<ScatterOp>(reduce);
  }
  kernels::Scalar value;
  if (call.Has("src")) {
    scatter.value = call.Get("src");
  } else {
    const kernels::Scalar& given = *call.Scalar("value");
    REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, given.dtype, "value"));
    value = Converted(given, call.compute);
    scatter.value = OperandOf(value);
  }
  scatter.indices.push_back(&index);
  const TensorRef positions = AtLeastOneDim(call.RefOf(index));
  return AddScatter(call, std::move(scatter), [&](const TensorRef& target, const TensorRef& source) {
    TensorRef values = source;
    if (!call.Has("src")) std::fill_n(values.strides, kernels::kMaxRank, 0);
    return LoopByElement(target, values, positions, dim);
  });
}

// ---- Rows: IndexAdd, IndexCopy, IndexFill ----

Status IndexRowsShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& index = call.Get("index");
  const Operand& source = call.Get("source");
  REPRISE_ASSIGN_OR_RETURN(const int dim, DimOf(call, self));
  if (index.rank() > 1) REPRISE_RETURN_IF_ERROR(CheckLine(call, index));
  const TensorRef from = AtLeastOneDim(call.RefOf(source));
  const TensorRef to = AtLeastOneDim(call.RefOf(self));
  bool fits = from.rank == to.rank;
  for (int d = 0; fits && d < to.rank; ++d) {
    fits = from.sizes[d] == (d == dim ? index.tensor->count : to.sizes[d]);
  }
  if (!fits) {
    return call.InvalidOperand(source, fmt::format("has shape {}, expected that of {} {} with size {} in dim {}, as "
                                                   "many as there are indices",
                                                   ShapeText(source.sizes()), call.NameOf(self),
                                                   ShapeText(self.sizes()), index.tensor->count, dim));
  }
  return CheckSameShape(call, self);
}

// `code` is a ScatterOp.
Status LowerIndexRows(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& index = call.Get("index");
  REPRISE_ASSIGN_OR_RETURN(const int dim, DimOf(call, self));
  Scatter scatter;
  scatter.self = self.slot == call.outputs[0].slot ? nullptr : &self;
  scatter.op = static_cast<ScatterOp>(call.op.computation.code);
  scatter.value = call.Get("source");
  scatter.indices.push_back(&index);
  if (call.Has("alpha")) {
    scatter.alpha = call.Scalar("alpha");
    if (kernels::CategoryOf(scatter.alpha->dtype) >
        std::max(kernels::CategoryOf(call.compute), kernels::Category::kInteger)) {
      return call.Invalid(fmt::format("alpha is {}, which does not convert to the {} of {}",
                                      kernels::Name(scatter.alpha->dtype), kernels::Name(call.compute),
                                      call.NameOf(self)));
    }
  }
  const TensorRef positions = AtLeastOneDim(call.RefOf(index));
  return AddScatter(call, std::move(scatter), [&](const TensorRef& target, const TensorRef& source) {
    return LoopAlongDim(target, source, positions, dim, 0);
  });
}

// Indices are read when the operator runs.
Status LowerIndexFillByTensor(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& index = call.Get("index");
  REPRISE_ASSIGN_OR_RETURN(const int dim, DimOf(call, self));
  const kernels::Scalar& given = *call.Scalar("value");
  REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, given.dtype, "value"));
  const kernels::Scalar value = Converted(given, call.compute);
  Scatter scatter;
  scatter.self = self.slot == call.outputs[0].slot ? nullptr : &self;
  scatter.value = OperandOf(value);
  scatter.indices.push_back(&index);
  const TensorRef positions = AtLeastOneDim(call.RefOf(index));
  return AddScatter(call, std::move(scatter), [&](const TensorRef& target, const TensorRef& source) {
    TensorRef values = target;
    values.dtype = source.dtype;
    values.sizes[dim] = positions.sizes[0];
    std::fill_n(values.strides, kernels::kMaxRank, 0);
    return LoopAlongDim(target, values, positions, dim, 0);
  });
}

Status IndexFillByTensorShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const int dim, DimOf(call, self));
  const Operand& index = call.Get("index");
  if (index.rank() > 1) REPRISE_RETURN_IF_ERROR(CheckLine(call, index));
  return CheckSameShape(call, self);
}

Status IndexFillShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const int dim, DimOf(call, call.inputs[0]));
  return CheckSameShape(call, call.inputs[0]);
}

Status LowerIndexFill(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const int dim, DimOf(call, self));
  const kernels::Scalar& given = *call.Scalar("value");
  REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, given.dtype, "value"));
  const kernels::Scalar value = Converted(given, call.compute);
  const std::span<const int64_t> index = call.Ints("index");
  const int64_t size = self.rank() == 0 ? 1 : self.sizes()[static_cast<size_t>(dim)];
  for (int64_t i : index) {
    if (i >= -size && i < size) continue;
    return call.Invalid(fmt::format("index has {}, expected values from {} to {} for dim {} of {}", i, -size, size - 1,
                                    dim, call.InputShapes()));
  }
  Scatter scatter;
  scatter.self = self.slot == call.outputs[0].slot ? nullptr : &self;
  scatter.value = OperandOf(value);
  scatter.host_index.assign(index.begin(), index.end());
  const TensorRef positions = kernels::MakeContiguous(nullptr, DType::kInt64, {static_cast<int64_t>(index.size())});
  return AddScatter(call, std::move(scatter), [&](const TensorRef& target, const TensorRef& source) {
    TensorRef values = target;
    values.sizes[dim] = positions.sizes[0];
    values.dtype = source.dtype;
    std::fill_n(values.strides, kernels::kMaxRank, 0);
    return LoopAlongDim(target, values, positions, dim, 0);
  });
}

// ---- Lists of indices: Index, IndexPutImpl ----

// self[indices]: which dims are indexed, and where the dims of the indices stand in the result.
struct Indexing {
  const Operand* of_dim[kernels::kMaxRank] = {};
  Dims joint;  // broadcast shape of the indices
  int place = 0;
  Dims shape;
};

// An index of shape [0] may stand for a whole dim, as null does; `skips_empty` takes it so.
Status ReadIndexing(const OpCall& call, const Operand& self, bool skips_empty, Indexing& result) {
  result = {};
  const int rank = self.rank();
  int first = rank;
  int last = -1;
  int count = 0;
  bool is_first = true;
  for (const Operand& index : call.List("indices")) {
    if (skips_empty && index.rank() == 1 && index.tensor->count == 0) continue;
    if (index.element >= rank) {
      return call.InvalidOperand(index, fmt::format("has no dim in {} {}", call.NameOf(self), ShapeText(self.sizes())),
                                 "pass no more indices than self has dims");
    }
    result.of_dim[index.element] = &index;
    first = std::min(first, index.element);
    last = std::max(last, index.element);
    ++count;
    if (is_first) {
      result.joint.assign(index.sizes().data(), index.sizes().size());
    } else if (!Broadcast(result.joint, index.sizes(), result.joint)) {
      return call.InvalidOperand(index, fmt::format("has shape {}, which does not broadcast with {} of the others",
                                                    ShapeText(index.sizes()), ShapeText(result.joint)));
    }
    is_first = false;
  }
  if (count == 0) return call.Invalid("indices has no tensor", "pass an index for at least one dim");
  result.place = last - first + 1 == count ? first : 0;
  for (int d = 0; d < rank; ++d) {
    if (d == result.place) {
      for (int64_t size : result.joint) result.shape.push_back(size);
    }
    if (result.of_dim[d] == nullptr) result.shape.push_back(self.sizes()[static_cast<size_t>(d)]);
  }
  return {};
}

Status ReadIndexing(const OpCall& call, const Operand& self, std::span<const int64_t> wanted, bool broadcasts,
                    Indexing& result) {
  Status status = ReadIndexing(call, self, false, result);
  const auto fits = [&] {
    if (!broadcasts)
      return std::span<const int64_t>(result.shape).size() == wanted.size() &&
             std::equal(wanted.begin(), wanted.end(), result.shape.begin());
    Dims joint;
    return Broadcast(result.shape, wanted, joint) && joint == result.shape;
  };
  if (status.ok() && fits()) return {};
  bool has_empty = false;
  for (const Operand& index : call.List("indices")) has_empty |= index.rank() == 1 && index.tensor->count == 0;
  if (!has_empty) return status;
  Indexing other;
  if (ReadIndexing(call, self, true, other).ok()) {
    std::swap(result, other);
    if (fits()) return {};
    std::swap(result, other);
  }
  return status;
}

Status IndexShape(OpCall& call) {
  const Operand& output = call.outputs[0];
  Indexing indexing;
  REPRISE_RETURN_IF_ERROR(ReadIndexing(call, call.inputs[0], output.sizes(), false, indexing));
  return call.CheckShape(output, indexing.shape, [] { return "the indexed shape"; });
}

// The loop over the indexed shape; value broadcasts to it.
IndexLoop LoopOfIndexing(const OpCall& call, const TensorRef& self, const TensorRef& value, const Indexing& indexing) {
  IndexLoop loop;
  const int64_t item = kernels::ItemSize(self.dtype);
  const int64_t value_item = kernels::ItemSize(value.dtype);
  const auto rank = static_cast<int>(indexing.shape.size());
  const auto value_stride = [&](int d) {
    const int own = d - rank + value.rank;
    return own < 0 || value.sizes[own] == 1 ? 0 : value.strides[own] * value_item;
  };
  const auto joint_rank = static_cast<int>(indexing.joint.size());
  int d = 0;
  int self_dim = 0;
  const auto add_own = [&] {
    while (self_dim < self.rank && indexing.of_dim[self_dim] != nullptr) ++self_dim;
    loop.AddDim(self.sizes[self_dim], value_stride(d), self.strides[self_dim] * item);
    ++self_dim;
    ++d;
  };
  while (d < indexing.place) add_own();
  for (int j = 0; j < joint_rank; ++j, ++d) loop.AddDim(indexing.joint[static_cast<size_t>(j)], value_stride(d), 0);
  while (d < rank) add_own();
  for (int s = 0; s < self.rank; ++s) {
    const Operand* index = indexing.of_dim[s];
    if (index == nullptr) continue;
    kernels::IndexOperand& operand = loop.indices[loop.index_count++];
    const TensorRef ref = call.RefOf(*index);
    operand.size = self.sizes[s];
    operand.step = self.strides[s] * item;
    operand.is_wide = ref.dtype == DType::kInt64;
    for (int j = 0; j < joint_rank; ++j) {
      const int own = j - joint_rank + ref.rank;
      operand.strides[indexing.place + j] =
          own < 0 || ref.sizes[own] == 1 ? 0 : ref.strides[own] * kernels::ItemSize(ref.dtype);
    }
  }
  return loop;
}

Status LowerIndex(OpCall& call) {
  const Operand& self = call.inputs[0];
  Indexing indexing;
  REPRISE_RETURN_IF_ERROR(ReadIndexing(call, self, call.outputs[0].sizes(), false, indexing));
  Launch& launch = AddGather(call, LoopOfIndexing(call, call.RefOf(self), call.RefOf(call.outputs[0]), indexing), self);
  for (const Operand* index : indexing.of_dim) {
    if (index != nullptr) call.Read(launch, *index);
  }
  return {};
}

Status IndexPutShape(OpCall& call) {
  const Operand& values = call.Get("values");
  Indexing indexing;
  REPRISE_RETURN_IF_ERROR(ReadIndexing(call, call.outputs[0], values.sizes(), true, indexing));
  if (indexing.shape.size() > kernels::kMaxRank) {
    return call.Invalid(
        fmt::format("the indexed shape {} has more than {} dims", ShapeText(indexing.shape), kernels::kMaxRank));
  }
  Dims joint;
  if (Broadcast(indexing.shape, values.sizes(), joint) && joint == indexing.shape) return {};
  return call.InvalidOperand(values,
                             fmt::format("has shape {}, which does not broadcast to the indexed shape {} of {}",
                                         ShapeText(values.sizes()), ShapeText(indexing.shape), call.InputShapes()));
}

Status LowerIndexPut(OpCall& call) {
  Indexing indexing;
  REPRISE_RETURN_IF_ERROR(ReadIndexing(call, call.outputs[0], call.Get("values").sizes(), true, indexing));
  Scatter scatter;
  scatter.self = nullptr;
  scatter.value = call.Get("values");
  scatter.op = call.Bool("accumulate") ? ScatterOp::kAdd : ScatterOp::kReplace;
  for (const Operand* index : indexing.of_dim) {
    if (index != nullptr) scatter.indices.push_back(index);
  }
  return AddScatter(call, std::move(scatter), [&](const TensorRef& target, const TensorRef& source) {
    return LoopOfIndexing(call, target, source, indexing);
  });
}

// ---- ScatterNdUpdate ----

Status ScatterNdShape(OpCall& call) {
  const Operand& self = call.outputs[0];
  const Operand& indices = call.Get("indices");
  const Operand& updates = call.Get("updates");
  const int64_t depth = indices.rank() == 0 ? 0 : indices.sizes().back();
  if (depth < 1 || depth > self.rank()) {
    return call.InvalidOperand(indices, fmt::format("has shape {}, expected a last dim of size 1 to {}, the number of "
                                                    "dims of {} that it indexes",
                                                    ShapeText(indices.sizes()), self.rank(), call.NameOf(self)));
  }
  Dims shape(indices.sizes().data(), indices.sizes().size() - 1);
  for (int d = static_cast<int>(depth); d < self.rank(); ++d) shape.push_back(self.sizes()[static_cast<size_t>(d)]);
  return call.CheckShape(updates, shape, [] { return "the indexed shape"; });
}

Status LowerScatterNd(OpCall& call) {
  const Operand& indices = call.Get("indices");
  const TensorRef positions = call.RefOf(indices);
  const int batch = positions.rank - 1;
  const auto depth = static_cast<int>(positions.sizes[batch]);
  const int64_t index_item = kernels::ItemSize(positions.dtype);
  Scatter scatter;
  scatter.self = nullptr;
  scatter.value = call.Get("updates");
  // One tensor holds the indices of all dims; each is an operand with a begin of its own.
  for (int k = 0; k < depth; ++k) scatter.indices.push_back(&indices);
  auto make_loop = [&](const TensorRef& target, const TensorRef& source) {
    IndexLoop loop;
    const int64_t item = kernels::ItemSize(target.dtype);
    for (int d = 0; d < batch; ++d) loop.AddDim(positions.sizes[d], source.strides[d] * item, 0);
    for (int d = depth; d < target.rank; ++d) {
      loop.AddDim(target.sizes[d], source.strides[batch + d - depth] * item, target.strides[d] * item);
    }
    loop.index_count = depth;
    for (int k = 0; k < depth; ++k) {
      kernels::IndexOperand& operand = loop.indices[k];
      operand.size = target.sizes[k];
      operand.step = target.strides[k] * item;
      operand.is_wide = positions.dtype == DType::kInt64;
      operand.begin = k * positions.strides[batch] * index_item;
      for (int d = 0; d < batch; ++d) operand.strides[d] = positions.strides[d] * index_item;
    }
    return loop;
  };
  return AddScatter(call, std::move(scatter), make_loop);
}

// ---- OneHot ----

StatusOr<int> AxisOf(const OpCall& call, const Operand& self) {
  return call.WrapDim("axis", call.Int("axis"), self.rank() + 1);
}

Status OneHotType(OpCall& call) {
  call.compute = call.outputs[0].dtype;
  for (std::string_view name : {"onValue", "offValue"}) {
    const Operand& value = call.Get(name);
    if (value.dtype == call.compute) continue;
    return call.InvalidOperand(value, fmt::format("has {}, expected the type {} of out", kernels::Name(value.dtype),
                                                  kernels::Name(call.compute)));
  }
  return {};
}

Status OneHotShape(OpCall& call) {
  const Operand& self = call.Get("self");
  REPRISE_ASSIGN_OR_RETURN(const int axis, AxisOf(call, self));
  const int64_t classes = call.Int("numClasses");
  if (classes < 0) {
    return call.Invalid(fmt::format("numClasses is {}, expected 0 or more", classes),
                        "pass the number of classes, which out needs to know, too");
  }
  for (std::string_view name : {"onValue", "offValue"}) {
    const Operand& value = call.Get(name);
    if (value.tensor->count == 1) continue;
    return call.InvalidOperand(value, fmt::format("has shape {}, expected one element", ShapeText(value.sizes())));
  }
  Dims shape;
  for (int d = 0; d < self.rank(); ++d) {
    if (d == axis) shape.push_back(classes);
    shape.push_back(self.sizes()[static_cast<size_t>(d)]);
  }
  if (axis == self.rank()) shape.push_back(classes);
  return call.CheckShape(call.outputs[0], shape, [] { return "with a dim for the classes, the shape"; });
}

Status LowerOneHot(OpCall& call) {
  const Operand& self = call.Get("self");
  REPRISE_ASSIGN_OR_RETURN(const int axis, AxisOf(call, self));
  const TensorRef positions = call.RefOf(self);
  Scatter scatter;
  scatter.self = &call.Get("offValue");
  scatter.value = call.Get("onValue");
  scatter.indices.push_back(&self);
  return AddScatter(call, std::move(scatter), [&](const TensorRef& target, const TensorRef&) {
    IndexLoop loop;
    const int64_t item = kernels::ItemSize(target.dtype);
    const int64_t index_item = kernels::ItemSize(positions.dtype);
    loop.index_count = 1;
    loop.indices[0].size = target.sizes[axis];
    loop.indices[0].step = target.strides[axis] * item;
    loop.indices[0].is_wide = positions.dtype == DType::kInt64;
    loop.indices[0].wraps = false;
    for (int d = 0; d < positions.rank; ++d) {
      loop.AddDim(positions.sizes[d], 0, target.strides[d < axis ? d : d + 1] * item);
      loop.indices[0].strides[d] = positions.strides[d] * index_item;
    }
    return loop;
  });
}

// ---- EmbeddingDenseBackward ----

Status EmbeddingGradShape(OpCall& call) {
  const Operand& grad = call.Get("grad");
  const Operand& indices = call.Get("indices");
  const std::span<const int64_t> sizes = grad.sizes();
  if (grad.rank() != indices.rank() + 1 || !std::equal(indices.sizes().begin(), indices.sizes().end(), sizes.begin())) {
    return call.InvalidOperand(grad, fmt::format("has shape {}, expected that of indices {} and one more dim",
                                                 ShapeText(sizes), ShapeText(indices.sizes())));
  }
  const int64_t rows = call.Int("numWeights");
  if (rows < 0)
    return call.Invalid(fmt::format("numWeights is {}, which 63 bits do not hold", static_cast<uint64_t>(rows)));
  const int64_t shape[2] = {rows, sizes.back()};
  return call.CheckShape(call.outputs[0], shape, [] { return "one row for each weight, the shape"; });
}

void RunEmbeddingGrad(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef grad = launch.Ref(1, memory);
  const TensorRef indices = launch.Ref(2, memory);
  const TensorRef heads = launch.Ref(3, memory);
  const TensorRef links = launch.Ref(4, memory);
  kernels::EmbeddingGradient(grad, indices.data, indices.strides[0] * kernels::ItemSize(indices.dtype),
                             indices.dtype == DType::kInt64, indices.sizes[0], launch.ints[0], launch.ints[1] != 0,
                             launch.refs[0], static_cast<int64_t*>(heads.data), static_cast<int64_t*>(links.data),
                             memory.scratch, range);
}

Status LowerEmbeddingGrad(OpCall& call) {
  const Operand& grad = call.Get("grad");
  const Operand& indices = call.Get("indices");
  const Operand& output = call.outputs[0];
  if (output.tensor->count == 0) return {};
  // Rows and indices as one dim; a copy where strides do not allow it.
  TensorRef rows = call.RefOf(grad);
  TensorRef positions = call.RefOf(indices);
  const int64_t n = indices.tensor->count;
  const bool joins = JoinDims(rows, 0, rows.rank - 1) && JoinDims(positions, 0, positions.rank);
  if (!joins) {
    rows = call.Temporary(grad.dtype, grad.sizes());
    positions = call.Temporary(indices.dtype, indices.sizes());
    AddCopy(call, nullptr, rows, &grad, rows);
    AddCopy(call, nullptr, positions, &indices, positions);
    JoinDims(rows, 0, rows.rank - 1);
    JoinDims(positions, 0, positions.rank);
  }
  const int64_t weights = output.sizes()[0];
  const int64_t width = output.sizes()[1];
  const TensorRef heads = call.Temporary(DType::kInt64, {&weights, 1});
  const TensorRef links = call.Temporary(DType::kInt64, {&n, 1});
  Launch& launch = call.AddLaunch(RunEmbeddingGrad);
  launch.ints.push_back(call.Int("paddingIdx"));
  launch.ints.push_back(call.Bool("scaleGradByFreq") ? 1 : 0);
  call.Write(launch, output);
  if (joins) {
    call.Read(launch, grad, rows);
    call.Read(launch, indices, positions);
  } else {
    call.ReadTemporary(launch, rows);
    call.ReadTemporary(launch, positions);
  }
  call.WriteTemporary(launch, heads);
  call.WriteTemporary(launch, links);
  launch.units = weights;
  launch.grain = GrainOf((output.tensor->count + grad.tensor->count) / weights);
  call.AddScratch(launch, static_cast<uint64_t>(width) * 8);
  return {};
}

// ---- Masks ----

Status MaskedShape(OpCall& call) {
  const Operand& self = call.outputs[0];
  const Operand& mask = call.Get("mask");
  Dims joint;
  if (!Broadcast(self.sizes(), mask.sizes(), joint) || joint.size() != self.sizes().size() ||
      !std::equal(joint.begin(), joint.end(), self.sizes().begin())) {
    return call.InvalidOperand(mask, fmt::format("has shape {}, which does not broadcast to {} of {}",
                                                 ShapeText(mask.sizes()), ShapeText(self.sizes()), call.NameOf(self)));
  }
  const Operand* value = call.Find("value");
  if (value != nullptr && value->tensor->count != 1) {
    return call.InvalidOperand(*value, fmt::format("has shape {}, expected one element", ShapeText(value->sizes())));
  }
  return {};
}

void RunMaskedFill(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const TensorRef& value = launch.refs[2];
  alignas(16) char item[16];
  kernels::FindCast(value.dtype, launch.refs[0].dtype)(static_cast<const char*>(value.data), 0, item, 0, 1);
  kernels::MaskedFill(launch.refs[0], launch.refs[1], item, range);
}

void RunMaskedScatter(const Launch& launch, kernels::Range, const Launch::KernelMemory&) {
  kernels::MaskedScatter(launch.refs[0], launch.refs[1], launch.refs[2]);
}

Status LowerMaskedFill(OpCall& call) {
  const Operand* tensor = call.Find("value");
  const Operand value = tensor != nullptr ? *tensor : OperandOf(*call.Scalar("value"));
  REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, value.dtype, "value"));
  Launch& launch = call.AddLaunch(RunMaskedFill);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.Get("mask"));
  call.Read(launch, value);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

Status LowerMaskedScatter(OpCall& call) {
  Launch& launch = call.AddLaunch(RunMaskedScatter);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.Get("mask"));
  call.Read(launch, call.Get("source"));
  launch.units = call.outputs[0].tensor->count == 0 ? 0 : 1;
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/indexing.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
