// SPDX-License-Identifier: Apache-2.0
//
// Columns of images: one for each place of a window.
#include "kernels/remap.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

void RunUnfold(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Unfold(launch.refs[1], launch.State<kernels::UnfoldWindow>(), launch.refs[0], range);
}

Status ReadWindow(const OpCall& call, kernels::UnfoldWindow& window) {
  const Operand& self = call.inputs[0];
  if (self.rank() != 3 && self.rank() != 4) {
    return call.InvalidOperand(
        self, fmt::format("has shape {}, expected [n, c, h, w] or [c, h, w]", ShapeText(self.sizes())));
  }
  const auto read = [&](std::string_view name, int64_t least, int64_t* values) -> Status {
    const std::span<const int64_t> given = call.Ints(name);
    if (given.size() == 2 && std::min(given[0], given[1]) >= least && std::max(given[0], given[1]) < INT32_MAX) {
      values[0] = given[0];
      values[1] = given[1];
      return {};
    }
    return call.Invalid(fmt::format("{} is {}, expected two values of at least {}", name, ShapeText(given), least));
  };
  REPRISE_RETURN_IF_ERROR(read("kernelSize", 1, window.kernel));
  REPRISE_RETURN_IF_ERROR(read("dilation", 1, window.dilation));
  REPRISE_RETURN_IF_ERROR(read("padding", 0, window.padding));
  REPRISE_RETURN_IF_ERROR(read("stride", 1, window.stride));
  for (int i = 0; i < 2; ++i) {
    const int64_t size = self.sizes()[static_cast<size_t>(self.rank() - 2 + i)];
    const int64_t room = size + 2 * window.padding[i] - window.dilation[i] * (window.kernel[i] - 1) - 1;
    if (room < 0) {
      return call.Invalid(
          fmt::format("the window [{}, {}] with dilation [{}, {}] does not fit {} with padding [{}, {}]",
                      window.kernel[0], window.kernel[1], window.dilation[0], window.dilation[1], call.InputShapes(),
                      window.padding[0], window.padding[1]));
    }
    window.out_size[i] = room / window.stride[i] + 1;
  }
  return {};
}

Status UnfoldShape(OpCall& call) {
  kernels::UnfoldWindow window;
  REPRISE_RETURN_IF_ERROR(ReadWindow(call, window));
  const Operand& self = call.inputs[0];
  const auto c = static_cast<size_t>(self.rank() - 3);
  Dims shape;
  if (self.rank() == 4) shape.push_back(self.sizes()[0]);
  shape.push_back(self.sizes()[c] * window.kernel[0] * window.kernel[1]);
  shape.push_back(window.out_size[0] * window.out_size[1]);
  return call.CheckShape(call.outputs[0], shape, [] { return "one column for each place of the window, the shape"; });
}

Status LowerUnfold(OpCall& call) {
  auto window = std::make_shared<kernels::UnfoldWindow>();
  REPRISE_RETURN_IF_ERROR(ReadWindow(call, *window));
  kernels::TensorRef self = call.RefOf(call.inputs[0]);
  kernels::TensorRef out = call.RefOf(call.outputs[0]);
  if (self.rank == 3) {
    InsertDims(self, 0, 1);  // of images
    InsertDims(out, 0, 1);
  }
  Launch& launch = call.AddLaunch(RunUnfold);
  call.Write(launch, call.outputs[0], out);
  call.Read(launch, call.inputs[0], self);
  launch.units = call.outputs[0].tensor->count == 0 ? 0 : out.sizes[0] * out.sizes[1];
  launch.grain = GrainOf(out.sizes[2]);
  launch.state = std::move(window);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/unfold.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
