// SPDX-License-Identifier: Apache-2.0
//
// Elements in another order: shuffled channels, transposes with a new shape, strided slices by masks, chunks of several
// tensors side by side; and diagonals.
#include <bit>
#include <cstring>

#include "kernels/copy.h"
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/families/movement.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::TensorRef;

// ---- ChannelShuffle ----

Status ChannelShuffleShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const int64_t groups = call.Int("groups");
  if (self.rank() < 3) {
    return call.InvalidOperand(self, fmt::format("has shape {}, expected 3 dims or more", ShapeText(self.sizes())));
  }
  if (groups < 1 || self.sizes()[1] % groups != 0) {
    return call.Invalid(fmt::format("groups is {}, which does not divide the {} channels of {}", groups,
                                    self.sizes()[1], call.InputShapes()));
  }
  return ShapeOfFirstInput(call);
}

Status LowerChannelShuffle(OpCall& call) {
  if (call.outputs[0].tensor->count == 0) return {};
  TensorRef self = call.RefOf(call.inputs[0]);
  TensorRef out = call.RefOf(call.outputs[0]);
  const int64_t groups = call.Int("groups");
  const int64_t per_group = self.sizes[1] / groups;
  CopyDims dims;
  for (int d = 0; d < self.rank; ++d) {
    if (d != 1) {
      dims.Add(self.sizes[d], out.strides[d], self.strides[d]);
      continue;
    }
    dims.Add(per_group, out.strides[1] * groups, self.strides[1]);
    dims.Add(groups, out.strides[1], self.strides[1] * per_group);
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

// ---- ConfusionTranspose ----

// `ref` with its dims in the order of parameter perm.
StatusOr<TensorRef> PermutedView(const OpCall& call, const TensorRef& ref) {
  const std::span<const int64_t> perm = call.Ints("perm");
  const auto wrong = [&] {
    return call.Invalid(fmt::format("perm is {}, expected each of {} dims once", ShapeText(perm), ref.rank));
  };
  if (perm.size() != static_cast<size_t>(ref.rank)) return wrong();
  TensorRef view = ref;
  uint32_t seen = 0;
  for (int d = 0; d < ref.rank; ++d) {
    const int64_t from = perm[static_cast<size_t>(d)] + (perm[static_cast<size_t>(d)] < 0 ? ref.rank : 0);
    if (from < 0 || from >= ref.rank || (seen >> from & 1) != 0) return wrong();
    seen |= 1u << from;
    view.sizes[d] = ref.sizes[from];
    view.strides[d] = ref.strides[from];
  }
  return view;
}

// A row-major view of parameter shape.
StatusOr<TensorRef> ShapedView(const OpCall& call, const TensorRef& ref) {
  const std::span<const int64_t> shape = call.Ints("shape");
  int64_t count = 1;
  bool fits = shape.size() <= kernels::kMaxRank;
  for (const int64_t size : shape) fits = fits && size >= 0 && !__builtin_mul_overflow(count, size, &count);
  if (!fits || count != kernels::ElementCount(ref)) {
    return call.Invalid(fmt::format("shape is {}, which is no shape for the {} elements of {}", ShapeText(shape),
                                    kernels::ElementCount(ref), call.InputShapes()));
  }
  return kernels::MakeContiguous(ref.data, ref.dtype, static_cast<int>(shape.size()), shape.data());
}

Status ConfusionTransposeShape(OpCall& call) {
  const TensorRef x = call.RefOf(call.inputs[0]);
  TensorRef view;
  if (call.Bool("transpose_first")) {
    REPRISE_RETURN_IF_ERROR(PermutedView(call, x).status());
    REPRISE_ASSIGN_OR_RETURN(view, ShapedView(call, x));
  } else {
    REPRISE_ASSIGN_OR_RETURN(const TensorRef shaped, ShapedView(call, x));
    REPRISE_ASSIGN_OR_RETURN(view, PermutedView(call, shaped));
  }
  return call.CheckShape(call.outputs[0], {view.sizes, static_cast<size_t>(view.rank)},
                         [] { return "the transposed shape"; });
}

Status LowerConfusionTranspose(OpCall& call) {
  const Operand& out = call.outputs[0];
  if (out.tensor->count == 0) return {};
  Dense x;
  TensorRef view;
  if (call.Bool("transpose_first")) {
    REPRISE_ASSIGN_OR_RETURN(const TensorRef turned, PermutedView(call, call.RefOf(call.inputs[0])));
    x = DenseInput(call, call.inputs[0], turned, out.dtype);
    REPRISE_ASSIGN_OR_RETURN(view, ShapedView(call, x.ref));
  } else {
    x = DenseInput(call, call.inputs[0], out.dtype);
    REPRISE_ASSIGN_OR_RETURN(const TensorRef shaped, ShapedView(call, x.ref));
    REPRISE_ASSIGN_OR_RETURN(view, PermutedView(call, shaped));
  }
  x.ref = view;
  Launch& launch = call.AddLaunch(RunCopy);
  call.Write(launch, out);
  x.Read(call, launch);
  launch.units = out.tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

// ---- StridedSlice ----

struct SliceMasks {
  int64_t begin, end, ellipsis, new_axis, shrink;
};

// One dim of the slice: positions begin, begin + step, .. up to `end`; an index where `shrinks`.
Status SliceDim(const OpCall& call, size_t entry, const SliceMasks& masks, int64_t size, int64_t stride, bool shrinks,
                TensorRef& view) {
  const int64_t step = call.Ints("strides")[entry];
  int64_t begin = call.Ints("begin")[entry];
  int64_t end = call.Ints("end")[entry];
  if (step < 1) {
    return call.Invalid(fmt::format("entry {} of strides is {}, expected 1 or more", entry, step),
                        "a slice goes forwards; flip the tensor first");
  }
  if (shrinks) {
    const int64_t at = begin < 0 ? begin + size : begin;
    if (at < 0 || at >= size) {
      return call.Invalid(fmt::format("entry {} of begin is {}, an index of a dim of size {}", entry, begin, size));
    }
    view.data = static_cast<char*>(view.data) + at * stride * kernels::ItemSize(view.dtype);
    return {};
  }
  const auto bounded = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  begin = (masks.begin >> entry & 1) != 0 ? 0 : bounded(begin);
  end = (masks.end >> entry & 1) != 0 ? size : bounded(end);
  const int64_t count = end > begin ? (end - begin - 1) / step + 1 : 0;
  if (count != 0) view.data = static_cast<char*>(view.data) + begin * stride * kernels::ItemSize(view.dtype);
  view.sizes[view.rank] = count;
  view.strides[view.rank++] = count > 1 ? stride * step : stride;
  return {};
}

Status CheckSliceArrays(const OpCall& call, const SliceMasks& masks) {
  const size_t entries = call.Ints("begin").size();
  if (call.Ints("end").size() != entries || call.Ints("strides").size() != entries || entries > 32) {
    return call.Invalid(fmt::format("begin, end and strides have {}, {} and {} entries, expected as many of each",
                                    entries, call.Ints("end").size(), call.Ints("strides").size()));
  }
  if (masks.ellipsis != 0 && !std::has_single_bit(static_cast<uint64_t>(masks.ellipsis))) {
    return call.Invalid(fmt::format("ellipsisMask is {:#x}, expected one bit at most", masks.ellipsis));
  }
  return {};
}

StatusOr<TensorRef> MaskedSlice(const OpCall& call) {
  const SliceMasks masks{call.Int("beginMask"), call.Int("endMask"), call.Int("ellipsisMask"), call.Int("newAxisMask"),
                         call.Int("shrinkAxisMask")};
  REPRISE_RETURN_IF_ERROR(CheckSliceArrays(call, masks));
  const TensorRef self = call.RefOf(call.inputs[0]);
  const size_t entries = call.Ints("begin").size();
  // Entries that stand for a dim of self.
  int named = 0;
  for (size_t i = 0; i < entries; ++i) named += ((masks.ellipsis | masks.new_axis) >> i & 1) == 0 ? 1 : 0;
  if (named > self.rank) {
    return call.Invalid(fmt::format("begin names {} dims, {} has {}", named, call.InputShapes(), self.rank));
  }
  TensorRef view = self;
  view.rank = 0;
  int d = 0;
  const auto keep = [&](int until) {
    for (; d < until; ++d) {
      view.sizes[view.rank] = self.sizes[d];
      view.strides[view.rank++] = self.strides[d];
    }
  };
  int left = named;
  for (size_t i = 0; i < entries; ++i) {
    if (view.rank >= kernels::kMaxRank) return call.Invalid("the slice has more dims than a tensor can have");
    if ((masks.ellipsis >> i & 1) != 0) {
      if (view.rank + self.rank - left - d > kernels::kMaxRank) {
        return call.Invalid("the slice has more dims than a tensor can have");
      }
      keep(self.rank - left);
    } else if ((masks.new_axis >> i & 1) != 0) {
      view.sizes[view.rank] = 1;
      view.strides[view.rank++] = 0;
    } else {
      const bool shrinks = (masks.shrink >> i & 1) != 0;
      REPRISE_RETURN_IF_ERROR(SliceDim(call, i, masks, self.sizes[d], self.strides[d], shrinks, view));
      ++d;
      --left;
    }
  }
  if (view.rank + self.rank - d > kernels::kMaxRank) {
    return call.Invalid("the slice has more dims than a tensor can have");
  }
  keep(self.rank);
  return view;
}

Status StridedSliceShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const TensorRef view, MaskedSlice(call));
  return call.CheckShape(call.outputs[0], {view.sizes, static_cast<size_t>(view.rank)},
                         [] { return "the sliced shape"; });
}

Status LowerStridedSlice(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const TensorRef view, MaskedSlice(call));
  AddCopyOfViews(call, call.RefOf(call.outputs[0]), view);
  return {};
}

// ---- ChunkCat ----

// Each tensor as [outer, chunks, row], its chunks filled up with zeros; the rows lie side by side in out.
struct ChunkedTensor {
  int64_t length = 0;  // bytes of the tensor in each outer item
  int64_t row = 0;     // bytes of a chunk
};
struct Chunks {
  int64_t chunks = 0;
  int64_t row = 0;  // bytes of out
  std::vector<ChunkedTensor> tensors;
};

StatusOr<int> ChunkDim(const OpCall& call) {
  if (call.inputs.empty()) return call.Invalid("tensors is an empty list", "pass at least one tensor");
  const Operand& first = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), first.rank()));
  for (const Operand& input : call.inputs) {
    if (input.rank() > dim && std::equal(first.sizes().begin(), first.sizes().begin() + dim, input.sizes().begin())) {
      if (input.sizes()[static_cast<size_t>(dim)] > 0) continue;
    }
    return call.InvalidOperand(input, fmt::format("has shape {}, expected the first {} dims of {} and elements in dim "
                                                  "{}",
                                                  ShapeText(input.sizes()), dim, ShapeText(first.sizes()), dim));
  }
  return dim;
}

// Elements of a chunk of `operand`.
int64_t ChunkElements(const Operand& operand, int dim, int64_t chunks) {
  const std::span<const int64_t> sizes = operand.sizes();
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < sizes.size(); ++d) inner *= sizes[d];
  return (sizes[static_cast<size_t>(dim)] + chunks - 1) / chunks * inner;
}

Status ChunkCatShape(OpCall& call) {
  const int64_t chunks = call.Int("numChunks");
  if (chunks < 1 || chunks > INT32_MAX) return call.Invalid(fmt::format("numChunks is {}, expected 1 or more", chunks));
  REPRISE_ASSIGN_OR_RETURN(const int dim, ChunkDim(call));
  Dims shape(call.inputs[0].sizes().data(), static_cast<size_t>(dim));
  shape.push_back(chunks);
  int64_t row = 0;
  for (const Operand& input : call.inputs) row += ChunkElements(input, dim, chunks);
  shape.push_back(row);
  return call.CheckShape(call.outputs[0], shape, [] { return "one row for each chunk, the shape"; });
}

// refs: out, tensors; row-major. A unit is a row of out.
void RunChunkCat(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<Chunks>();
  char* out = DataOf<char>(launch, 0, memory);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t outer = unit / state.chunks;
    const int64_t chunk = unit % state.chunks;
    char* to = out + unit * state.row;
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      const ChunkedTensor& tensor = state.tensors[i];
      const int64_t begin = std::min(tensor.length, chunk * tensor.row);
      const int64_t count = std::min(tensor.row, tensor.length - begin);
      const char* from = DataOf<char>(launch, i + 1, memory) + outer * tensor.length + begin;
      if (count > 0) std::memcpy(to, from, static_cast<size_t>(count));
      std::memset(to + count, 0, static_cast<size_t>(tensor.row - count));
      to += tensor.row;
    }
  }
}

Status LowerChunkCat(OpCall& call) {
  const Operand& out = call.outputs[0];
  if (out.tensor->count == 0) return {};
  REPRISE_ASSIGN_OR_RETURN(const int dim, ChunkDim(call));
  auto state = std::make_shared<Chunks>();
  state->chunks = call.Int("numChunks");
  const int64_t item = kernels::ItemSize(out.dtype);
  int64_t outer = 1;
  for (int d = 0; d < dim; ++d) outer *= call.inputs[0].sizes()[static_cast<size_t>(d)];
  std::vector<Dense> tensors;
  for (const Operand& input : call.inputs) {
    tensors.push_back(DenseInput(call, input, out.dtype));
    const int64_t row = ChunkElements(input, dim, state->chunks) * item;
    state->tensors.push_back({input.tensor->count / outer * item, row});
    state->row += row;
  }
  const Dense result = DenseOutput(call, out, out.dtype);
  Launch& launch = call.AddLaunch(RunChunkCat);
  result.Write(call, launch);
  for (const Dense& tensor : tensors) tensor.Read(call, launch);
  launch.units = outer * state->chunks;
  launch.grain = GrainOf(state->row / item);
  launch.state = std::move(state);
  result.Store(call);
  return {};
}

// ---- FillDiagonal ----

void RunDiagonalFill(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Fill(launch.refs[0], launch.scalars[0], range);
}

void AddDiagonalFill(OpCall& call, const TensorRef& view, const kernels::Scalar& value) {
  Launch& launch = call.AddLaunch(RunDiagonalFill);
  launch.scalars.push_back(value);
  call.Write(launch, call.outputs[0], view);
  launch.units = kernels::ElementCount(view);
  launch.grain = GrainOf(1);
}

Status DiagonalShape(OpCall& call) {
  const Operand& self = call.outputs[0];
  const std::span<const int64_t> sizes = self.sizes();
  if (sizes.size() < 2) {
    return call.InvalidOperand(self, fmt::format("has shape {}, expected 2 dims or more", ShapeText(sizes)));
  }
  for (const int64_t size : sizes) {
    if (sizes.size() == 2 || size == sizes[0]) continue;
    return call.InvalidOperand(self, fmt::format("has shape {}, expected dims of one size", ShapeText(sizes)),
                               "only matrices may have different sizes");
  }
  return {};
}

Status LowerFillDiagonal(OpCall& call) {
  const kernels::Scalar& value = *call.Scalar("fillValue");
  REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, value.dtype, "fillValue"));
  const TensorRef self = call.RefOf(call.outputs[0]);
  if (kernels::ElementCount(self) == 0) return {};
  TensorRef view = self;
  view.rank = 1;
  view.sizes[0] = self.sizes[0];
  view.strides[0] = 0;
  for (int d = 0; d < self.rank; ++d) {
    view.sizes[0] = std::min(view.sizes[0], self.sizes[d]);
    view.strides[0] += self.strides[d];
  }
  const int64_t rows = self.sizes[0];
  const int64_t columns = self.sizes[1];
  if (!call.Bool("wrap") || self.rank != 2 || rows <= columns) {
    AddDiagonalFill(call, view, value);
    return {};
  }
  // A tall matrix: a diagonal in each block of columns + 1 rows, the last of which stays as it is.
  const int64_t block = columns + 1;
  const int64_t whole = rows / block;
  TensorRef blocks = view;
  blocks.rank = 2;
  blocks.sizes[0] = whole;
  blocks.strides[0] = block * self.strides[0];
  blocks.sizes[1] = columns;
  blocks.strides[1] = view.strides[0];
  if (whole != 0) AddDiagonalFill(call, blocks, value);
  view.sizes[0] = std::min(columns, rows - whole * block);
  view.data = static_cast<char*>(self.data) + whole * blocks.strides[0] * kernels::ItemSize(self.dtype);
  if (view.sizes[0] != 0) AddDiagonalFill(call, view, value);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/rearrangement.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
