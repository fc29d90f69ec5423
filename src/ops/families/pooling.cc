// SPDX-License-Identifier: Apache-2.0
#include "kernels/pool.h"

#include "kernels/channels_last_pool.h"

#include "ops/computations.h"
#include "ops/families/picture_reader.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::PoolDim;
using kernels::PoolShape;
using kernels::TensorRef;

// Means of rows of so many elements may have other bits with channels behind (kernels/channels_last_pool.h).
constexpr int64_t kLeastSplitRow = 8;

// What Computation::code chooses.
enum Kind : uint8_t { kPlain, kWithIndices, kWithMask };

// Bytes of a row of the mask: a multiple of 32 with 32 to spare, as callers allocate it.
int64_t MaskRowBytes(int64_t outputs) { return ((outputs + 15) / 16 + 1) * 32; }

// Output size of one dim: windows begin inside of the input or the padding in front of it.
int64_t OutputSize(const PoolDim& dim, bool ceil) {
  const int64_t reach = dim.dilation * (dim.kernel - 1) + 1;
  const int64_t room = dim.in + dim.pad + dim.pad_after - reach + (ceil ? dim.stride - 1 : 0);
  if (room < 0) return 0;
  const int64_t out = room / dim.stride + 1;
  return ceil && (out - 1) * dim.stride >= dim.in + dim.pad ? out - 1 : out;
}

struct PoolNames {
  std::string_view kernel = "kernelSize", stride = "stride", padding = "padding", dilation = "dilation";
};

// The spatial sizes of `self` without zeros in front of them but for the batch.
Status CheckSizes(const OpCall& call, const Operand& self, int dims) {
  REPRISE_RETURN_IF_ERROR(CheckRank(call, self, dims + 1, dims + 2));
  for (int d = self.rank() - dims - 1; d < self.rank(); ++d) {
    if (self.sizes()[static_cast<size_t>(d)] != 0) continue;
    return call.InvalidOperand(self, fmt::format("has shape {}, only the batch may be 0", ShapeText(self.sizes())));
  }
  return {};
}

Status ReadPool(const OpCall& call, const Operand& self, const PoolNames& names, bool ceil, PoolShape& shape) {
  REPRISE_RETURN_IF_ERROR(CheckSizes(call, self, 2));
  int64_t kernel[2], stride[2], pad[4] = {}, dilation[2] = {1, 1};
  REPRISE_RETURN_IF_ERROR(ReadDims(call, names.kernel, 2, 1, false, kernel));
  std::copy_n(kernel, 2, stride);
  REPRISE_RETURN_IF_ERROR(ReadDims(call, names.stride, 2, 1, true, stride));
  if (call.Ints(names.padding).size() == 4) {
    REPRISE_RETURN_IF_ERROR(ReadDims(call, names.padding, 4, 0, true, pad));
  } else {
    REPRISE_RETURN_IF_ERROR(ReadDims(call, names.padding, 2, 0, true, pad));
    std::copy_n(pad, 2, pad + 2);
  }
  if (!names.dilation.empty()) REPRISE_RETURN_IF_ERROR(ReadDims(call, names.dilation, 2, 1, true, dilation));
  PoolDim* const spatial[2] = {&shape.h, &shape.w};
  for (int d = 0; d < 2; ++d) {
    PoolDim& dim = *spatial[d];
    dim.in = self.sizes()[static_cast<size_t>(self.rank() - 2 + d)];
    dim.kernel = kernel[d];
    dim.stride = stride[d];
    dim.pad = pad[d];
    dim.pad_after = pad[d + 2];
    dim.dilation = dilation[d];
    const int64_t reach = dim.dilation * (dim.kernel - 1) + 1;
    if (dim.in > INT32_MAX || dim.pad > reach / 2 || dim.pad_after > reach / 2) {
      return call.Invalid(fmt::format("{} is {}, at most half of the window of {} elements is possible", names.padding,
                                      ShapeText(call.Ints(names.padding)), reach));
    }
    dim.out = OutputSize(dim, ceil);
    if (dim.out > 0) continue;
    return call.Invalid(fmt::format("a window of {} elements does not fit {} with {} {}", reach, call.InputShapes(),
                                    names.padding, ShapeText(call.Ints(names.padding))));
  }
  return {};
}

Dims PooledShape(const Operand& self, const PoolShape& shape, int dims) {
  Dims expected(self.sizes().data(), self.sizes().size());
  const int64_t out[3] = {shape.d.out, shape.h.out, shape.w.out};
  for (int d = 0; d < dims; ++d)
    expected[expected.size() - static_cast<size_t>(dims) + static_cast<size_t>(d)] = out[3 - dims + d];
  return expected;
}

Status CheckPooled(OpCall& call, const Operand& output, const Operand& self, const PoolShape& shape, int dims) {
  return call.CheckShape(output, PooledShape(self, shape, dims), [] { return "the pooled shape"; });
}

// As [leading.., D, H, W].
TensorRef ImageRef(const OpCall& call, const Operand& operand, int dims) {
  TensorRef ref = call.RefOf(operand);
  if (dims == 2) InsertDims(ref, ref.rank - 2, 1);
  return ref;
}

void RunMaxPool(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const bool has_mask = launch.op.computation.code == kWithMask;
  const TensorRef* extra = launch.refs.size() > 2 ? &launch.refs[1] : nullptr;
  kernels::MaxPool(launch.State<PoolShape>(), launch.refs[launch.refs.size() - 1], launch.refs[0],
                   has_mask ? nullptr : extra, has_mask ? extra : nullptr, range, memory.scratch);
}

void RunAvgPool(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::AvgPool(launch.State<PoolShape>(), launch.refs[1], launch.refs[0], range, memory.scratch);
}

void RunMaxPoolBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MaxPoolBackward(launch.refs[1], launch.refs[2], launch.refs[0], range, memory.scratch);
}

void RunAvgPoolBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::AvgPoolBackward(launch.State<PoolShape>(), launch.refs[1], launch.refs[0], range, memory.scratch);
}

template <auto kPool>
void RunChannelsLast(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kPool(launch.State<PoolShape>(), launch.refs[1], launch.refs[0], range, memory.scratch);
}

// A launch for channels that lie back to back; false where it does not fit.
bool AddChannelsLast(OpCall& call, bool is_max, const PoolShape& shape) {
  const TensorRef out = ImageRef(call, call.outputs[0], 2);
  const TensorRef self = ImageRef(call, call.inputs[0], 2);
  if (call.outputs.size() != 1 || !kernels::FitsChannelsLast(self, out)) return false;
  Launch& launch = call.AddLaunch(is_max ? RunChannelsLast<kernels::ChannelsLastMaxPool>
                                         : RunChannelsLast<kernels::ChannelsLastAvgPool>);
  call.Write(launch, call.outputs[0], out);
  call.Read(launch, call.inputs[0], self);
  launch.state = std::make_shared<PoolShape>(shape);
  launch.units = kernels::ChannelsLastPoolRows(out);
  launch.grain = GrainOf(kernels::ChannelsLastPoolCost(shape, out));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::ChannelsLastPoolScratchBytes(out)));
  return true;
}

// Whether the last `dims` dims lie in a row.
bool IsRow(const TensorRef& ref, int dims) {
  int64_t stride = 1;
  for (int d = ref.rank - 1; d >= ref.rank - dims; --d) {
    if (ref.sizes[d] != 1 && ref.strides[d] != stride) return false;
    stride *= ref.sizes[d];
  }
  return true;
}

// A launch over the rows of the first output.
void AddRows(OpCall& call, Launch::Kernel kernel, PoolShape shape, int dims) {
  if (call.outputs[0].tensor->count == 0) return;
  if (dims == 2 && AddChannelsLast(call, kernel == RunMaxPool, shape)) return;
  Launch& launch = call.AddLaunch(kernel);
  for (const Operand& output : call.outputs) {
    const bool is_mask = &output != &call.outputs[0] && call.op.computation.code == kWithMask;
    call.Write(launch, output, is_mask ? call.RefOf(output) : ImageRef(call, output, dims));
  }
  TensorRef self = ImageRef(call, call.inputs[0], dims);
  if (shape.w.is_adaptive && shape.d.out * shape.h.out * shape.w.out == 1 && IsRow(self, 3)) {  // one long row
    shape.w.in *= shape.d.in * shape.h.in;
    shape.d.in = shape.h.in = 1;
    self.sizes[self.rank - 1] = shape.w.in;
    self.sizes[self.rank - 2] = self.sizes[self.rank - 3] = 1;
    self.strides[self.rank - 1] = 1;
  }
  launch.state = std::make_shared<PoolShape>(shape);
  call.Read(launch, call.inputs[0], self);
  launch.units = kernels::PoolRowCount(launch.refs[0]);
  launch.grain = GrainOf(kernels::WindowSize(shape.d) * kernels::WindowSize(shape.h) *
                         std::max(shape.w.in, kernels::WindowSize(shape.w) * shape.w.out));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::PoolScratchBytes(shape)));
}

bool ReadCeil(const OpCall& call) { return call.Bool("ceilMode"); }

Status ReadMaxPool(const OpCall& call, PoolShape& shape) {
  const Operand& self = call.Get("self");
  if (call.Has("autoPad")) {
    if (const int64_t mode = call.Int("autoPad"); mode != 0) {
      return call.Invalid(fmt::format("autoPad is {}, expected 0 (padding as given)", mode),
                          "pass the padding in pads");
    }
    return ReadPool(call, self, {"kernelShape", "strides", "pads", "dilations"}, ReadCeil(call), shape);
  }
  return ReadPool(call, self, {}, ReadCeil(call), shape);
}

Status MaxPoolShape(OpCall& call) {
  PoolShape shape;
  REPRISE_RETURN_IF_ERROR(ReadMaxPool(call, shape));
  const Operand& self = call.inputs[0];
  if (self.sizes()[self.sizes().size() - 1] * self.sizes()[self.sizes().size() - 2] > INT32_MAX) {
    return call.InvalidOperand(
        self, fmt::format("has shape {}, planes of more than 2^31 elements are not possible", ShapeText(self.sizes())));
  }
  REPRISE_RETURN_IF_ERROR(CheckPooled(call, call.outputs[0], self, shape, 2));
  if (call.op.computation.code == kWithIndices) return CheckPooled(call, call.outputs[1], self, shape, 2);
  if (call.op.computation.code == kWithMask) {
    PoolShape mask;
    mask.h.out = shape.h.kernel * shape.w.kernel;
    mask.w.out = MaskRowBytes(shape.h.out * shape.w.out);
    return call.CheckShape(call.outputs[1], PooledShape(self, mask, 2), [] { return "the shape of the mask"; });
  }
  return {};
}

Status LowerMaxPool(OpCall& call) {
  PoolShape shape;
  REPRISE_RETURN_IF_ERROR(ReadMaxPool(call, shape));
  AddRows(call, RunMaxPool, shape, 2);
  return {};
}

Status ReadAvgPool(const OpCall& call, PoolShape& shape) {
  shape.count_include_pad = call.Bool("countIncludePad");
  shape.divisor_override = call.Int("divisorOverride");
  const int64_t math_type = call.Int("cubeMathType");
  if (math_type < 0 || math_type > 4) {
    return call.Invalid(fmt::format("cubeMathType is {}, expected a value from 0 to 4", math_type));
  }
  return ReadPool(call, call.Get("self"), {"kernelSize", "strides", "paddings", ""}, ReadCeil(call), shape);
}

Status AvgPoolShape(OpCall& call) {
  PoolShape shape;
  REPRISE_RETURN_IF_ERROR(ReadAvgPool(call, shape));
  return CheckPooled(call, call.outputs[0], call.inputs[0], shape, 2);
}

Status LowerAvgPool(OpCall& call) {
  PoolShape shape;
  REPRISE_RETURN_IF_ERROR(ReadAvgPool(call, shape));
  AddRows(call, RunAvgPool, shape, 2);
  return {};
}

// ---- Adaptive; Computation::code is the number of dims ----

PoolShape AdaptiveShape(std::span<const int64_t> in, std::span<const int64_t> out, int dims) {
  PoolShape shape;
  PoolDim* const spatial[3] = {&shape.d, &shape.h, &shape.w};
  for (int d = 0; d < dims; ++d) {
    PoolDim& dim = *spatial[3 - dims + d];
    dim.in = in[in.size() - static_cast<size_t>(dims - d)];
    dim.out = out[out.size() - static_cast<size_t>(dims - d)];
    dim.is_adaptive = true;
  }
  return shape;
}

Status AdaptivePoolShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const int dims = call.op.computation.code;
  REPRISE_RETURN_IF_ERROR(CheckSizes(call, self, dims));
  int64_t size[3] = {};
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "outputSize", dims, 0, false, size));
  const PoolShape shape = AdaptiveShape(self.sizes(), {size, static_cast<size_t>(dims)}, dims);
  return CheckPooled(call, call.outputs[0], self, shape, dims);
}

Status LowerAdaptivePool(OpCall& call) {
  const int dims = call.op.computation.code;
  if (call.outputs[0].tensor->count == 0) return {};
  AddRows(call, RunAvgPool, AdaptiveShape(call.inputs[0].sizes(), call.outputs[0].sizes(), dims), dims);
  return {};
}

// ---- Backward ----

Status MaxPoolBackwardShape(OpCall& call) {
  PoolShape shape;
  REPRISE_RETURN_IF_ERROR(ReadMaxPool(call, shape));
  const Operand& self = call.Get("self");
  REPRISE_RETURN_IF_ERROR(CheckPooled(call, call.Get("gradOutput"), self, shape, 2));
  REPRISE_RETURN_IF_ERROR(CheckPooled(call, call.Get("indices"), self, shape, 2));
  return call.CheckShape(call.outputs[0], self.sizes(), [] { return "the shape of self:"; });
}

Launch* AddPlanes(OpCall& call, Launch::Kernel kernel) {
  const Operand& grad_in = call.outputs[0];
  if (grad_in.tensor->count == 0) return nullptr;
  Launch& launch = call.AddLaunch(kernel);
  call.Write(launch, grad_in);
  call.Read(launch, call.Get("gradOutput"));
  const int64_t plane = grad_in.sizes()[grad_in.sizes().size() - 1] * grad_in.sizes()[grad_in.sizes().size() - 2];
  launch.units = grad_in.tensor->count / plane;
  launch.grain = GrainOf(plane * 2);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::PoolBackwardScratchBytes(launch.refs[1], launch.refs[0])));
  return &launch;
}

Status LowerMaxPoolBackward(OpCall& call) {
  Launch* launch = AddPlanes(call, RunMaxPoolBackward);
  if (launch != nullptr) call.Read(*launch, call.Get("indices"));
  return {};
}

Status AdaptivePoolBackwardShape(OpCall& call) {
  const Operand& grad_out = call.Get("gradOutput");
  const Operand& self = call.Get("self");
  REPRISE_RETURN_IF_ERROR(CheckSizes(call, self, 2));
  const std::span<const int64_t> sizes = grad_out.sizes();
  const size_t leading = self.sizes().size() - 2;
  if (sizes.size() != self.sizes().size() ||
      !std::equal(sizes.begin(), sizes.begin() + static_cast<long>(leading), self.sizes().begin())) {
    return call.InvalidOperand(grad_out, fmt::format("has shape {}, expected {} but for the last two dims",
                                                     ShapeText(sizes), ShapeText(self.sizes())));
  }
  return call.CheckShape(call.outputs[0], self.sizes(), [] { return "the shape of self:"; });
}

Status LowerAdaptivePoolBackward(OpCall& call) {
  const Operand& self = call.Get("self");
  Launch* launch = AddPlanes(call, RunAvgPoolBackward);
  if (launch == nullptr) return {};
  launch->state = std::make_shared<PoolShape>(AdaptiveShape(self.sizes(), call.Get("gradOutput").sizes(), 2));
  return {};
}

}  // namespace

bool FindPool(const Launch& launch, PicturePool& pool) {
  const bool is_max = launch.kernel == RunMaxPool;
  if ((!is_max && launch.kernel != RunAvgPool) || (is_max && launch.op.computation.code == kWithMask)) return false;
  const auto& shape = launch.State<PoolShape>();
  pool = {&shape, is_max, launch.refs.size() - 1, launch.refs.size() > 2 ? size_t{1} : 0};
  for (const OperandUse& use : launch.uses) {
    if (use.slot < 0) return false;
  }
  const auto is_picture = [](const TensorRef& ref) {
    return ref.dtype == kernels::DType::kFloat && ref.rank == 5 && ref.sizes[1] > 1 && ref.sizes[2] == 1;
  };
  if (!is_picture(launch.refs[0]) || !is_picture(launch.refs[pool.self]) || !kernels::IsContiguous(launch.refs[0])) {
    return false;
  }
  const bool has_short_rows = kernels::WindowSize(shape.w) + (shape.w.is_adaptive ? 1 : 0) < kLeastSplitRow;
  return is_max || has_short_rows;
}

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/pooling.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
