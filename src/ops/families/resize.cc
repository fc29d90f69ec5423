// SPDX-License-Identifier: Apache-2.0
#include "kernels/resize.h"

#include <cmath>

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/resize_table.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::ResizeDim;
using kernels::ResizeTable;

void RunResize(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Resize(launch.State<ResizeTable>(), launch.refs[1], launch.refs[0], range, memory.scratch);
}

void RunGridSample(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::GridSample(launch.State<kernels::SampleShape>(), launch.refs[1], launch.refs[2], launch.refs[0], range,
                      memory.scratch);
}

Status ResizedShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_RETURN_IF_ERROR(CheckRank(call, self, 4, 4));
  int64_t size[2];
  const std::span<const int64_t> given = call.Ints("outputSize");
  if (given.size() != 2) {
    return call.Invalid(fmt::format("outputSize is {}, expected the height and the width", ShapeText(given)));
  }
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "outputSize", 2, 1, false, size));
  Dims expected(self.sizes().data(), 4);
  for (size_t d = 1; d < 4; ++d) {
    if (expected[d] > 0 && expected[d] <= INT32_MAX) continue;
    return call.InvalidOperand(self, fmt::format("has shape {}, only the batch may be 0", ShapeText(self.sizes())));
  }
  expected[2] = size[0];
  expected[3] = size[1];
  return call.CheckShape(call.outputs[0], expected, [] { return "the resized shape"; });
}

// Which input the output nearest to it shows; in float32, where the frameworks round, too.
int64_t NearestIndex(int64_t o, int64_t in, int64_t out, double given_scale, bool is_exact) {
  const float scale =
      given_scale > 0 ? static_cast<float>(1.0 / given_scale) : static_cast<float>(in) / static_cast<float>(out);
  if (!is_exact && in == out) return o;
  if (!is_exact && out == 2 * in) return o / 2;
  const float at = (static_cast<float>(o) + (is_exact ? 0.5f : 0.0f)) * scale;
  return at < static_cast<float>(in) ? std::min(static_cast<int64_t>(at), in - 1) : in - 1;
}

}  // namespace

void FillResizeDim(ResizeDim& dim, ResizeKind kind, bool align_corners, double given_scale) {
  const int taps = TapsOf(kind);
  const auto count = static_cast<size_t>(dim.out) * static_cast<size_t>(taps);
  dim.index.resize(count);
  if (taps > 1) dim.weight.resize(count);
  double scale = given_scale > 0 ? 1.0 / given_scale : static_cast<double>(dim.in) / static_cast<double>(dim.out);
  if (align_corners) scale = dim.out > 1 ? static_cast<double>(dim.in - 1) / static_cast<double>(dim.out - 1) : 0.0;
  for (int64_t o = 0; o < dim.out; ++o) {
    int32_t* index = dim.index.data() + o * taps;
    if (taps == 1) {
      index[0] = static_cast<int32_t>(NearestIndex(o, dim.in, dim.out, given_scale, kind == ResizeKind::kNearestExact));
      continue;
    }
    double* weight = dim.weight.data() + o * taps;
    double at = align_corners ? scale * static_cast<double>(o) : scale * (static_cast<double>(o) + 0.5) - 0.5;
    if (kind == ResizeKind::kLinear) {
      at = std::clamp(at, 0.0, static_cast<double>(dim.in));
      const auto first = std::min(static_cast<int64_t>(at), dim.in - 1);
      const double share = std::clamp(at - static_cast<double>(first), 0.0, 1.0);
      if (dim.in == dim.out) {  // a copy whatever the scale
        index[0] = index[1] = static_cast<int32_t>(o);
        weight[0] = 1;
        continue;
      }
      index[0] = static_cast<int32_t>(first);
      index[1] = static_cast<int32_t>(std::min(first + 1, dim.in - 1));
      weight[0] = 1 - share;
      weight[1] = share;
      continue;
    }
    at = std::clamp(at, -1e9, 1e9);
    const double first = std::floor(at);
    kernels::CubicWeights(at - first, weight);
    for (int64_t k = 0; k < 4; ++k) {
      index[k] = static_cast<int32_t>(std::clamp<int64_t>(static_cast<int64_t>(first) - 1 + k, 0, dim.in - 1));
    }
  }
}

namespace {

Status LowerResize(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& out = call.outputs[0];
  double scales[2] = {};
  if (call.Has("scalesH")) {
    scales[0] = call.Real("scalesH");
    scales[1] = call.Real("scalesW");
  }
  for (const double scale : scales) {
    if (std::isfinite(scale)) continue;
    return call.Invalid(fmt::format("scalesH and scalesW are {} and {}, expected finite numbers", scales[0], scales[1]),
                        "0 lets the sizes decide");
  }
  if (out.tensor->count == 0) return {};
  const auto kind = static_cast<ResizeKind>(call.op.computation.code);
  const bool align_corners = call.Has("alignCorners") && call.Bool("alignCorners");
  auto table = std::make_shared<ResizeTable>();
  table->taps = TapsOf(kind);
  ResizeDim* const dims[2] = {&table->h, &table->w};
  for (size_t d = 0; d < 2; ++d) {
    dims[d]->in = self.sizes()[2 + d];
    dims[d]->out = out.sizes()[2 + d];
    FillResizeDim(*dims[d], kind, align_corners, scales[d]);
  }
  Launch& launch = call.AddLaunch(RunResize);
  call.Write(launch, out);
  call.Read(launch, self);
  launch.units = out.tensor->count / table->w.out;
  launch.grain = GrainOf(table->taps * (table->taps == 1 ? table->w.out : table->w.in + table->w.out));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::ResizeScratchBytes(*table)));
  launch.state = std::move(table);
  return {};
}

// ---- Sampling at points ----

Status SampledShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& grid = call.inputs[1];
  REPRISE_RETURN_IF_ERROR(CheckRank(call, self, 4, 4));
  REPRISE_RETURN_IF_ERROR(CheckRank(call, grid, 4, 4));
  if (grid.sizes()[0] != self.sizes()[0] || grid.sizes()[3] != 2) {
    return call.InvalidOperand(grid, fmt::format("has shape {}, expected [{}, height, width, 2] for {}",
                                                 ShapeText(grid.sizes()), self.sizes()[0], call.InputShapes()));
  }
  if (self.sizes()[2] == 0 || self.sizes()[3] == 0) {
    return call.InvalidOperand(self, fmt::format("has shape {}, planes must not be empty", ShapeText(self.sizes())));
  }
  const int64_t expected[4] = {self.sizes()[0], self.sizes()[1], grid.sizes()[1], grid.sizes()[2]};
  return call.CheckShape(call.outputs[0], expected, [] { return "the sampled shape"; });
}

Status LowerGridSample(OpCall& call) {
  const int64_t mode = call.Int("interpolationMode");
  const int64_t padding = call.Int("paddingMode");
  if (mode < 0 || mode > 2) {
    return call.Invalid(
        fmt::format("interpolationMode is {}, expected 0 (bilinear), 1 (nearest) or 2 (bicubic)", mode));
  }
  if (padding < 0 || padding > 2) {
    return call.Invalid(fmt::format("paddingMode is {}, expected 0 (zeros), 1 (border) or 2 (reflection)", padding));
  }
  const Operand& out = call.outputs[0];
  if (out.tensor->count == 0) return {};
  const kernels::SampleShape shape{static_cast<kernels::SampleMode>(mode), static_cast<kernels::SamplePadding>(padding),
                                   call.Bool("alignCorners")};
  Launch& launch = call.AddLaunch(RunGridSample);
  launch.state = std::make_shared<kernels::SampleShape>(shape);
  call.Write(launch, out);
  call.Read(launch, call.inputs[0]);
  call.Read(launch, call.inputs[1]);
  launch.units = out.sizes()[0] * out.sizes()[2];
  launch.grain = GrainOf(out.sizes()[3] * (out.sizes()[1] * (mode == 2 ? 16 : 4) + 8));
  call.AddScratch(launch,
                  static_cast<uint64_t>(kernels::GridSampleScratchBytes(shape, launch.refs[1], launch.refs[0])));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/resize.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
