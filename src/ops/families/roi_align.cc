// SPDX-License-Identifier: Apache-2.0
//
// Averages over the bins of boxes (kernels/roi_align.h).
#include "kernels/roi_align.h"

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

constexpr int64_t kPointCost = 64;

bool IsRoiGradient(const OpCall& call) { return call.Has("xdiffShape"); }

Status RoiAlignShape(OpCall& call) {
  if (IsRoiGradient(call)) {
    if (call.Ints("xdiffShape").size() != 4) {
      return call.Invalid(fmt::format("xdiffShape is {}, expected [N, C, H, W]", ShapeText(call.Ints("xdiffShape"))));
    }
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("out"), call.Ints("xdiffShape"), [] { return "xdiffShape"; }));
  }
  const Operand& rois = call.Get("rois");
  const Operand& image = IsRoiGradient(call) ? call.Get("out") : call.Get("self");
  const Operand& bins = IsRoiGradient(call) ? call.Get("self") : call.Get("out");
  if (image.rank() != 4) {
    return call.InvalidOperand(image, fmt::format("has shape {}, expected [N, C, H, W]", ShapeText(image.sizes())));
  }
  if (rois.rank() != 2 || rois.sizes()[1] != 5) {
    return call.InvalidOperand(rois, fmt::format("has shape {}, expected [boxes, 5]", ShapeText(rois.sizes())),
                               "pass image, x1, y1, x2 and y2 of each box");
  }
  const int64_t height = call.Int("pooledHeight");
  const int64_t width = call.Int("pooledWidth");
  if (height < 1 || width < 1) {
    return call.Invalid(fmt::format("pooledHeight is {}, pooledWidth {}, expected 1 or more", height, width));
  }
  if (call.Int("roiEndMode") < 0 || call.Int("roiEndMode") > 2) {
    return call.Invalid(fmt::format("roiEndMode is {}, expected 0, 1 or 2", call.Int("roiEndMode")),
                        "pass 0 for corners as they are, 1 for ends one pixel further, 2 for centres of pixels");
  }
  if (call.Int("sampleNum") < 0 || call.Int("sampleNum") > INT16_MAX) {
    return call.Invalid(fmt::format("sampleNum is {}, expected 0 to {}", call.Int("sampleNum"), INT16_MAX));
  }
  const int64_t shape[] = {rois.sizes()[0], image.sizes()[1], height, width};
  return call.CheckShape(bins, shape, [] { return "[boxes, C, pooledHeight, pooledWidth]:"; });
}

// refs: of forwards out, self, rois; of gradients out, self, rois, too.
template <bool kIsGradient>
void RunRoiAlign(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::RoiAlign args = launch.State<kernels::RoiAlign>();
  args.image = &launch.refs[kIsGradient ? 0 : 1];
  args.out = &launch.refs[kIsGradient ? 1 : 0];
  args.boxes = &launch.refs[2];
  if constexpr (kIsGradient) {
    kernels::RoiAlignBackward(args, memory.scratch, range);
  } else {
    kernels::RoiAlignForward(args, range);
  }
}

Status LowerRoiAlign(OpCall& call) {
  const bool is_gradient = IsRoiGradient(call);
  auto args = std::make_shared<kernels::RoiAlign>();
  const int64_t mode = call.Int("roiEndMode");
  args->scale = call.Real("spatialScale");
  args->shift = mode == 2 ? 0.5 : 0;
  args->more = mode == 1 ? 1 : 0;
  args->least = mode == 2 ? 0 : 1;
  args->samples = call.Int("sampleNum");
  const Operand& out = call.Get("out");
  const Operand& self = call.Get("self");
  Launch& launch = call.AddLaunch(is_gradient ? RunRoiAlign<true> : RunRoiAlign<false>);
  launch.state = std::move(args);
  call.Write(launch, out);
  call.Read(launch, self);
  call.Read(launch, call.Get("rois"));
  launch.units = out.sizes()[0] * out.sizes()[1];
  const Operand& bins = is_gradient ? self : out;
  launch.grain = GrainOf(kPointCost * (bins.tensor->count / std::max<int64_t>(1, launch.units) + 1));
  if (is_gradient)
    call.AddScratch(launch, static_cast<uint64_t>(out.sizes()[2] * out.sizes()[3]) * sizeof(double) + 64);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/roi_align.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
