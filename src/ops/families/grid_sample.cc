// SPDX-License-Identifier: Apache-2.0
//
// Sampling of volumes at points, and what sampling gives back (kernels/grid_sample.h).
#include "kernels/grid_sample.h"

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::GridSampling;

// Computation::code is the number of spatial dims.
Status ReadSampling(const OpCall& call, GridSampling& sampling) {
  const int dims = call.op.computation.code;
  const Operand& input = call.Get("input");
  const Operand& grid = call.Get("grid");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, input, dims + 2, dims + 2));
  REPRISE_RETURN_IF_ERROR(CheckRank(call, grid, dims + 2, dims + 2));
  if (grid.sizes()[0] != input.sizes()[0] || grid.sizes().back() != dims) {
    return call.InvalidOperand(
        grid, fmt::format("has shape {}, expected [{}, {}, {}] for {}", ShapeText(grid.sizes()), input.sizes()[0],
                          dims == 2 ? "height, width" : "depth, height, width", dims, call.InputShapes()));
  }
  sampling.dims = dims;
  sampling.channels = input.sizes()[1];
  sampling.points = 1;
  for (int d = 0; d < dims; ++d) {
    sampling.size[d] = input.sizes()[static_cast<size_t>(d) + 2];
    sampling.points *= grid.sizes()[static_cast<size_t>(d) + 1];
    if (sampling.size[d] != 0) continue;
    return call.InvalidOperand(input, fmt::format("has shape {}, planes must not be empty", ShapeText(input.sizes())));
  }
  const int64_t mode = call.Int("interpolationMode");
  const int64_t padding = call.Int("paddingMode");
  if (mode < 0 || mode > 2 || (mode == 2 && dims == 3)) {
    return call.Invalid(fmt::format("interpolationMode is {}, expected 0 (linear){} 1 (nearest){}", mode,
                                    dims == 2 ? "," : " or", dims == 2 ? " or 2 (cubic)" : ""));
  }
  if (padding < 0 || padding > 2) {
    return call.Invalid(fmt::format("paddingMode is {}, expected 0 (zeros), 1 (border) or 2 (reflection)", padding));
  }
  sampling.shape = {static_cast<kernels::SampleMode>(mode), static_cast<kernels::SamplePadding>(padding),
                    call.Bool("alignCorners")};
  return {};
}

Dims SampledSizes(const Operand& input, const Operand& grid) {
  Dims sizes;
  sizes.push_back(input.sizes()[0]);
  sizes.push_back(input.sizes()[1]);
  for (size_t d = 1; d + 1 < grid.sizes().size(); ++d) sizes.push_back(grid.sizes()[d]);
  return sizes;
}

Status VolumeSampleShape(OpCall& call) {
  GridSampling sampling;
  REPRISE_RETURN_IF_ERROR(ReadSampling(call, sampling));
  const Operand& input = call.Get("input");
  const Operand& grid = call.Get("grid");
  const Dims sampled = SampledSizes(input, grid);
  const auto name = [] { return "the sampled shape,"; };
  if (!call.Has("gradOutput")) return call.CheckShape(call.outputs[0], sampled, name);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradOutput"), sampled, name));
  if (call.Bools("outputMask").size() != 2) {
    return call.Invalid(fmt::format("outputMask has {} entries, expected 2: for inputGrad and gridGrad",
                                    call.Bools("outputMask").size()));
  }
  if (const Operand* out = call.Find("inputGrad"); out != nullptr && call.Bools("outputMask")[0]) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*out, input.sizes(), [] { return "the shape of input,"; }));
  }
  if (const Operand* out = call.Find("gridGrad"); out != nullptr && call.Bools("outputMask")[1]) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*out, grid.sizes(), [] { return "the shape of grid,"; }));
  }
  return {};
}

void RunSampleVolumes(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SampleGrid(launch.State<GridSampling>(), launch.refs[0].dtype, launch.Ref(1, memory).data,
                      launch.Ref(2, memory).data, launch.Ref(0, memory).data, range);
}

void RunInputGradient(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SampleGridInputGradient(launch.State<GridSampling>(), launch.refs[0].dtype, launch.Ref(1, memory).data,
                                   launch.Ref(2, memory).data, launch.Ref(0, memory).data, range);
}

void RunPointGradient(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SampleGridPointGradient(launch.State<GridSampling>(), launch.refs[0].dtype, launch.Ref(1, memory).data,
                                   launch.Ref(3, memory).data, launch.Ref(2, memory).data, launch.Ref(0, memory).data,
                                   range);
}

int64_t CostOfPoint(const GridSampling& sampling) {
  const int64_t per_axis = sampling.shape.mode == kernels::SampleMode::kBicubic ? 4 : 2;
  return (per_axis * per_axis * (sampling.dims == 3 ? per_axis : 1)) * (sampling.channels + 2);
}

Status LowerVolumeSample(OpCall& call) {
  auto sampling = std::make_shared<GridSampling>();
  REPRISE_RETURN_IF_ERROR(ReadSampling(call, *sampling));
  if (call.outputs[0].tensor->count == 0) return {};
  const DType type = WideFloatOf(call.compute);
  const Dense input = DenseInput(call, call.Get("input"), type);
  const Dense grid = DenseInput(call, call.Get("grid"), type);
  const Dense out = DenseOutput(call, call.outputs[0], type);
  Launch& launch = call.AddLaunch(RunSampleVolumes);
  out.Write(call, launch);
  input.Read(call, launch);
  grid.Read(call, launch);
  launch.units = call.Get("grid").tensor->count / sampling->dims;
  launch.grain = GrainOf(CostOfPoint(*sampling));
  launch.state = std::move(sampling);
  out.Store(call);
  return {};
}

// The result that entry `which` of outputMask asks for; 161001 where it is missing.
StatusOr<const Operand*> WantedSampleGradient(const OpCall& call, size_t which) {
  if (!call.Bools("outputMask")[which]) return nullptr;
  const char* name = which == 0 ? "inputGrad" : "gridGrad";
  const Operand* out = call.Find(name);
  if (out != nullptr) return out;
  return Error(kOperatorArgumentNull,
               fmt::format("{}: {} is null, but entry {} of outputMask asks for it", call.op.name, name, which))
      .Hint("pass an aclTensor");
}

Status LowerVolumeSampleBackward(OpCall& call) {
  auto sampling = std::make_shared<GridSampling>();
  REPRISE_RETURN_IF_ERROR(ReadSampling(call, *sampling));
  REPRISE_ASSIGN_OR_RETURN(const Operand* input_grad, WantedSampleGradient(call, 0));
  REPRISE_ASSIGN_OR_RETURN(const Operand* grid_grad, WantedSampleGradient(call, 1));
  const DType type = WideFloatOf(call.compute);
  const Dense grad = DenseInput(call, call.Get("gradOutput"), type);
  const Dense grid = DenseInput(call, call.Get("grid"), type);
  if (input_grad != nullptr && input_grad->tensor->count != 0) {
    const Dense out = DenseOutput(call, *input_grad, type);
    Launch& launch = call.AddLaunch(RunInputGradient);
    out.Write(call, launch);
    grad.Read(call, launch);
    grid.Read(call, launch);
    launch.units =
        input_grad->sizes()[0] * ((sampling->channels + kernels::kSampleChannels - 1) / kernels::kSampleChannels);
    launch.grain = 1;
    launch.state = sampling;
    out.Store(call);
  }
  if (grid_grad != nullptr && grid_grad->tensor->count != 0) {
    const Dense input = DenseInput(call, call.Get("input"), type);
    const Dense out = DenseOutput(call, *grid_grad, type);
    Launch& launch = call.AddLaunch(RunPointGradient);
    out.Write(call, launch);
    grad.Read(call, launch);
    grid.Read(call, launch);
    input.Read(call, launch);
    launch.units = grid_grad->tensor->count / sampling->dims;
    launch.grain = GrainOf(CostOfPoint(*sampling));
    launch.state = sampling;
    out.Store(call);
  }
  return {};
}

// ---- AffineGrid ----

// size is [N, C, sizes]; the number of spatial dims.
StatusOr<int> AffineDims(const OpCall& call) {
  const std::span<const int64_t> size = call.Ints("size");
  bool fits = size.size() == 4 || size.size() == 5;
  for (const int64_t entry : size) fits = fits && entry > 0 && entry <= INT32_MAX;
  if (fits) return static_cast<int>(size.size()) - 2;
  return call.Invalid(
      fmt::format("size is {}, expected [N, C, H, W] or [N, C, D, H, W] of positive sizes", ShapeText(size)));
}

Status AffineGridShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int dims, AffineDims(call));
  const std::span<const int64_t> size = call.Ints("size");
  const int64_t theta[3] = {size[0], dims, dims + 1};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("theta"), theta, [] { return "one map for each image,"; }));
  Dims shape;
  shape.push_back(size[0]);
  for (size_t d = 2; d < size.size(); ++d) shape.push_back(size[d]);
  shape.push_back(dims);
  return call.CheckShape(call.outputs[0], shape, [] { return "one point for each element, the shape"; });
}

// ints: dims, align corners, sizes.
void RunAffineGrid(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::AffinePoints(launch.refs[0].dtype, static_cast<int>(launch.ints[0]), launch.ints.begin() + 2,
                        launch.ints[1] != 0, launch.Ref(1, memory).data, launch.Ref(0, memory).data, range);
}

Status LowerAffineGrid(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int dims, AffineDims(call));
  const DType type = WideFloatOf(call.compute);
  const Dense theta = DenseInput(call, call.Get("theta"), type);
  const Dense out = DenseOutput(call, call.outputs[0], type);
  Launch& launch = call.AddLaunch(RunAffineGrid);
  launch.ints.push_back(dims);
  launch.ints.push_back(call.Bool("alignCorners") ? 1 : 0);
  for (const int64_t size : call.Ints("size").subspan(2)) launch.ints.push_back(size);
  out.Write(call, launch);
  theta.Read(call, launch);
  launch.units = call.outputs[0].tensor->count / dims;
  launch.grain = GrainOf(8 * dims);
  out.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/grid_sample.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
