// SPDX-License-Identifier: Apache-2.0
//
// Pools of volumes that tell which elements they chose, their gradients, and unpooling (kernels/index_pool.h).
#include "kernels/index_pool.h"

#include <algorithm>

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::PoolDim;
using kernels::PoolShape;
using kernels::TensorRef;

// What Computation::code chooses, above the number of dims in its two lowest bits.
constexpr uint8_t kIsAdaptive = 4;
constexpr uint8_t kHasBytes = 8;
constexpr uint8_t kUnpools = 16;

int DimsOf(const OpCall& call) { return call.op.computation.code & 3; }
bool Does(const OpCall& call, uint8_t what) { return (call.op.computation.code & what) != 0; }

Status CheckVolumes(const OpCall& call, const Operand& operand, int dims) {
  REPRISE_RETURN_IF_ERROR(CheckRank(call, operand, dims + 1, dims + 2));
  int64_t count = 1;
  for (int d = operand.rank() - dims; d < operand.rank(); ++d) count *= operand.sizes()[static_cast<size_t>(d)];
  if (count > 0 && count <= INT32_MAX) return {};
  return call.InvalidOperand(operand, fmt::format("has shape {}, whose last {} dims must have 1 to 2^31 elements",
                                                  ShapeText(operand.sizes()), dims));
}

PoolDim& SpatialDim(PoolShape& shape, int d, int dims) {
  PoolDim* const all[] = {&shape.d, &shape.h, &shape.w};
  return *all[3 - dims + d];
}

// Windows of a given size: the gradient knows them by the same attributes.
Status ReadWindows(const OpCall& call, PoolShape& shape) {
  const int dims = DimsOf(call);
  const Operand& self = call.Get("self");
  int64_t kernel[3], stride[3], pad[3] = {}, dilation[3] = {1, 1, 1};
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "kernelSize", dims, 1, false, kernel));
  std::copy_n(kernel, dims, stride);
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "stride", dims, 1, true, stride));
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "padding", dims, 0, true, pad));
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "dilation", dims, 1, true, dilation));
  const bool ceil = call.Bool("ceilMode");
  for (int d = 0; d < dims; ++d) {
    PoolDim& dim = SpatialDim(shape, d, dims);
    dim.in = self.sizes()[static_cast<size_t>(self.rank() - dims + d)];
    dim.kernel = kernel[d];
    dim.stride = stride[d];
    dim.pad = pad[d];
    dim.dilation = dilation[d];
    if (pad[d] > kernel[d] / 2) {
      return call.Invalid(fmt::format("padding is {}, at most half of the window {} is possible",
                                      ShapeText(call.Ints("padding")), ShapeText(call.Ints("kernelSize"))));
    }
    const int64_t reach = dim.dilation * (dim.kernel - 1) + 1;
    const int64_t room = dim.in + 2 * dim.pad - reach + (ceil ? dim.stride - 1 : 0);
    dim.out = room < 0 ? 0 : room / dim.stride + 1;
    if (ceil && (dim.out - 1) * dim.stride >= dim.in + dim.pad) --dim.out;
    if (dim.out > 0) continue;
    return call.Invalid(fmt::format("a window of {} elements does not fit self {} with padding {}", reach,
                                    ShapeText(self.sizes()), ShapeText(call.Ints("padding"))));
  }
  return {};
}

Status ReadIndexPool(const OpCall& call, PoolShape& shape) {
  const int dims = DimsOf(call);
  const Operand& self = call.Get("self");
  REPRISE_RETURN_IF_ERROR(CheckVolumes(call, self, dims));
  if (!Does(call, kIsAdaptive)) return ReadWindows(call, shape);
  int64_t size[3] = {};
  if (call.Has("outputSize")) {
    REPRISE_RETURN_IF_ERROR(ReadDims(call, "outputSize", dims, 1, false, size));
  } else {
    const std::span<const int64_t> given = call.Get("gradOutput").sizes();
    if (given.size() == self.sizes().size()) std::copy_n(given.end() - dims, dims, size);
  }
  for (int d = 0; d < dims; ++d) {
    PoolDim& dim = SpatialDim(shape, d, dims);
    dim.in = self.sizes()[static_cast<size_t>(self.rank() - dims + d)];
    dim.out = size[d];
    dim.is_adaptive = true;
  }
  return {};
}

Dims PooledSizes(const Operand& self, PoolShape shape, int dims) {
  Dims sizes(self.sizes().data(), self.sizes().size());
  for (int d = 0; d < dims; ++d) {
    sizes[sizes.size() - static_cast<size_t>(dims - d)] = SpatialDim(shape, d, dims).out;
  }
  return sizes;
}

TensorRef AsVolumes(const OpCall& call, const Operand& operand) {
  TensorRef ref = call.RefOf(operand);
  InsertDims(ref, ref.rank - DimsOf(call), 3 - DimsOf(call));
  return ref;
}

// ---- Forward ----

Status IndexPoolShape(OpCall& call) {
  PoolShape shape;
  REPRISE_RETURN_IF_ERROR(ReadIndexPool(call, shape));
  const Dims pooled = PooledSizes(call.Get("self"), shape, DimsOf(call));
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, pooled, [] { return "the pooled shape,"; }));
  }
  return {};
}

void RunIndexPool(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MaxPoolVolumes(launch.State<PoolShape>(), launch.refs[2], launch.refs[0], launch.refs[1], range,
                          memory.scratch);
}

Status LowerIndexPool(OpCall& call) {
  auto shape = std::make_shared<PoolShape>();
  REPRISE_RETURN_IF_ERROR(ReadIndexPool(call, *shape));
  if (call.outputs[0].tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunIndexPool);
  for (const Operand& output : call.outputs) call.Write(launch, output, AsVolumes(call, output));
  call.Read(launch, call.Get("self"), AsVolumes(call, call.Get("self")));
  launch.units = call.outputs[0].tensor->count / shape->w.out;
  const int64_t volume = shape->d.in * shape->h.in * shape->w.in;
  launch.grain = GrainOf(std::max<int64_t>(shape->w.in, 2 * volume / (shape->d.out * shape->h.out)));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::MaxPoolVolumesScratchBytes(*shape)));
  launch.state = std::move(shape);
  return {};
}

// ---- Gradients ----

Status IndexPoolBackwardShape(OpCall& call) {
  PoolShape shape;
  REPRISE_RETURN_IF_ERROR(ReadIndexPool(call, shape));
  const Operand& self = call.Get("self");
  const Dims pooled = PooledSizes(self, shape, DimsOf(call));
  const auto name = [] { return "the pooled shape,"; };
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradOutput"), pooled, name));
  if (Does(call, kHasBytes)) {
    PoolShape mask;
    const int64_t outputs = shape.h.out * shape.w.out;
    mask.h.out = shape.h.kernel * shape.w.kernel;
    mask.w.out = ((outputs + 15) / 16 + 1) * 32;
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(call.Get("indices"), PooledSizes(self, mask, 2), [] { return "the shape of the mask,"; }));
  } else {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("indices"), pooled, name));
  }
  return call.CheckShape(call.outputs[0], self.sizes(), [] { return "the shape of self,"; });
}

void RunScatterVolumes(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const uint8_t code = launch.op.computation.code;
  if ((code & kHasBytes) != 0) {
    return kernels::ScatterMasked(launch.State<PoolShape>(), launch.refs[1], launch.refs[2], launch.refs[0], range,
                                  memory.scratch);
  }
  kernels::ScatterVolumes(launch.refs[1], launch.refs[2], launch.refs[0], (code & kUnpools) == 0, range,
                          memory.scratch);
}

void AddScatterVolumes(OpCall& call, const Operand& input) {
  const Operand& output = call.outputs[0];
  if (output.tensor->count == 0) return;
  Launch& launch = call.AddLaunch(RunScatterVolumes);
  call.Write(launch, output, AsVolumes(call, output));
  call.Read(launch, input, AsVolumes(call, input));
  call.Read(launch, call.Get("indices"), AsVolumes(call, call.Get("indices")));
  const TensorRef& out = launch.refs[0];
  const int64_t volume = out.sizes[out.rank - 1] * out.sizes[out.rank - 2] * out.sizes[out.rank - 3];
  launch.units = output.tensor->count / volume;
  launch.grain = GrainOf(2 * volume);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::ScatterVolumesScratchBytes(out)));
  if (!Does(call, kHasBytes)) return;
  auto shape = std::make_shared<PoolShape>();
  if (ReadIndexPool(call, *shape).ok()) launch.state = std::move(shape);
}

Status LowerIndexPoolBackward(OpCall& call) {
  AddScatterVolumes(call, call.Get("gradOutput"));
  return {};
}

// ---- Unpooling ----

Status UnpoolShape(OpCall& call) {
  const int dims = DimsOf(call);
  const Operand& self = call.Get("self");
  REPRISE_RETURN_IF_ERROR(CheckVolumes(call, self, dims));
  int64_t size[3] = {};
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "outputSize", dims, 1, false, size));
  for (std::string_view name : {"stride", "padding"}) {
    int64_t ignored[3];
    if (call.Has(name)) REPRISE_RETURN_IF_ERROR(ReadDims(call, name, dims, name == "stride" ? 1 : 0, false, ignored));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("indices"), self.sizes(), [] { return "the shape of self,"; }));
  Dims expected(self.sizes().data(), self.sizes().size());
  std::copy_n(size, dims, expected.end() - dims);
  return call.CheckShape(call.outputs[0], expected, [] { return "the shape of self with outputSize,"; });
}

Status LowerUnpool(OpCall& call) {
  AddScatterVolumes(call, call.Get("self"));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/index_pool.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
