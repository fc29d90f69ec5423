// SPDX-License-Identifier: Apache-2.0
//
// Operators that are a linear map for each spatial dim (kernels/separable.h): resizes, average pools, padding, and
// their gradients. Each describes the map of one dim; a gradient is the transposed map.
#include "kernels/separable.h"

#include <algorithm>
#include <cmath>

#include "ops/computations.h"
#include "ops/families/picture_reader.h"
#include "ops/op_call.h"
#include "ops/resize_table.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::Separable;
using kernels::SeparableDim;
using kernels::TensorRef;

// The spatial sizes of the input of a map (of the gradient's result) and of its output.
struct MapSizes {
  int dims = 0;
  int64_t in[3] = {};
  int64_t out[3] = {};
};

void RunMap(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::RunSeparable(launch.State<Separable>(), launch.refs[1], launch.refs[0], range, memory.scratch);
}

// A description of a map, filled dim by dim: fill(d, dim) adds the taps of all outputs.
template <class Fill>
Status LowerMap(OpCall& call, const MapSizes& sizes, bool is_gradient, Fill&& fill) {
  const Operand& input = call.inputs[0];
  const Operand& output = call.outputs[0];
  if (output.tensor->count == 0) return {};
  auto map = std::make_shared<Separable>();
  int64_t taps = 1;
  for (int d = 0; d < 3; ++d) {
    SeparableDim& dim = map->dims[d];
    dim = SeparableDim::Identity();
    const int own = d - (3 - sizes.dims);
    if (own < 0) continue;
    dim = {};
    dim.in = sizes.in[own];
    dim.out = sizes.out[own];
    dim.begin = {0};
    fill(own, dim);
    if (is_gradient) dim = dim.Transposed();
    taps *= 1 + static_cast<int64_t>(dim.index.size()) / std::max<int64_t>(1, dim.out);
  }
  map->Finish();
  TensorRef from = call.RefOf(input);
  TensorRef to = call.RefOf(output);
  InsertDims(from, from.rank - sizes.dims, 3 - sizes.dims);
  InsertDims(to, to.rank - sizes.dims, 3 - sizes.dims);
  Launch& launch = call.AddLaunch(RunMap);
  call.Write(launch, output, to);
  call.Read(launch, input, from);
  launch.units = output.tensor->count / map->dims[2].out;
  launch.grain = GrainOf(taps * std::max(map->dims[2].in, map->dims[2].out));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::SeparableScratchBytes(*map)));
  launch.state = std::move(map);
  return {};
}

// The sizes of `operand` without its spatial dims, with `spatial` in their place.
Dims WithSpatial(std::span<const int64_t> sizes, int dims, const int64_t* spatial) {
  Dims shape(sizes.data(), sizes.size() - static_cast<size_t>(dims));
  for (int d = 0; d < dims; ++d) shape.push_back(spatial[d]);
  return shape;
}

Status CheckPlanes(const OpCall& call, const Operand& operand, int dims) {
  for (int d = operand.rank() - dims; d < operand.rank(); ++d) {
    const int64_t size = operand.sizes()[static_cast<size_t>(d)];
    if (size > 0 && size <= INT32_MAX) continue;
    return call.InvalidOperand(operand, fmt::format("has shape {}, whose last {} dims must have sizes from 1 to {}",
                                                    ShapeText(operand.sizes()), dims, INT32_MAX));
  }
  return {};
}

// For gradients: the first input has the shape that the operator gives, the output that of self.
Status CheckGradientShapes(OpCall& call, std::span<const int64_t> self, const MapSizes& sizes) {
  const Dims out = WithSpatial(self, sizes.dims, sizes.out);
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.inputs[0], out, [] { return "the shape of the result of the operator,"; }));
  return call.CheckShape(call.outputs[0], self, [] { return "the shape of the input of the operator,"; });
}

// ---- Resizes ----

struct ResizeForm {
  ResizeKind kind;
  int dims;
  bool is_gradient;
  bool is_antialiased;
};

constexpr uint8_t CodeOf(ResizeKind kind, int dims, bool is_gradient = false, bool is_antialiased = false) {
  return static_cast<uint8_t>(static_cast<uint8_t>(kind) | dims << 2 | (is_gradient ? 16 : 0) |
                              (is_antialiased ? 32 : 0));
}
ResizeForm FormOf(const OpCall& call) {
  const uint8_t code = call.op.computation.code;
  return {static_cast<ResizeKind>(code & 3), code >> 2 & 3, (code & 16) != 0, (code & 32) != 0};
}

// The attribute that scales dim d of `dims`; 0 where there is none.
double GivenScale(const OpCall& call, int d, int dims) {
  constexpr std::string_view kNames[] = {"scalesD", "scalesH", "scalesW"};
  if (dims == 1) {
    for (std::string_view name : {"scales", "scale", "scaleL"}) {
      if (call.Has(name)) return call.Real(name);
    }
    return 0;
  }
  const std::string_view name = kNames[3 - dims + d];
  return call.Has(name) ? call.Real(name) : 0;
}

Status ReadResize(const OpCall& call, const ResizeForm& form, MapSizes& sizes, Dims& input) {
  sizes.dims = form.dims;
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "outputSize", form.dims, 1, false, sizes.out));
  if (call.Ints("outputSize").size() != static_cast<size_t>(form.dims)) {
    return call.Invalid(
        fmt::format("outputSize is {}, expected {} sizes", ShapeText(call.Ints("outputSize")), form.dims));
  }
  std::span<const int64_t> given;
  if (form.is_gradient) {
    given = call.Ints("inputSize");
  } else {
    given = call.inputs[0].sizes();
  }
  bool fits = given.size() == static_cast<size_t>(form.dims) + 2;
  for (size_t d = 1; fits && d < given.size(); ++d) fits = given[d] > 0 && given[d] <= INT32_MAX;
  fits = fits && given[0] >= 0;
  if (!fits && form.is_gradient) {
    return call.Invalid(fmt::format("inputSize is {}, expected {} sizes, of which only the batch may be 0",
                                    ShapeText(given), form.dims + 2));
  }
  if (!fits) {
    return call.InvalidOperand(call.inputs[0],
                               fmt::format("has shape {}, expected {} dims, of which only the batch may be 0",
                                           ShapeText(given), form.dims + 2));
  }
  input = Dims(given.data(), given.size());
  for (int d = 0; d < form.dims; ++d) {
    sizes.in[d] = given[static_cast<size_t>(d) + 2];
    const double scale = GivenScale(call, d, form.dims);
    if (!std::isfinite(scale)) {
      return call.Invalid(fmt::format("a scale is {}, expected a finite number", scale), "0 lets the sizes decide");
    }
  }
  return {};
}

Status ResizeMapShape(OpCall& call) {
  MapSizes sizes;
  Dims input;
  const ResizeForm form = FormOf(call);
  REPRISE_RETURN_IF_ERROR(ReadResize(call, form, sizes, input));
  if (form.is_gradient) return CheckGradientShapes(call, input, sizes);
  return call.CheckShape(call.outputs[0], WithSpatial(input, form.dims, sizes.out),
                         [] { return "the resized shape,"; });
}

// Weights of all inputs within the reach of a filter that is stretched where the image gets smaller.
void FillAntialiased(SeparableDim& dim, bool is_cubic, bool align_corners, double given_scale) {
  double scale = given_scale > 0 ? 1.0 / given_scale : static_cast<double>(dim.in) / static_cast<double>(dim.out);
  if (align_corners) scale = dim.out > 1 ? static_cast<double>(dim.in - 1) / static_cast<double>(dim.out - 1) : 0.0;
  const double stretch = std::max(scale, 1.0);
  const double support = (is_cubic ? 2.0 : 1.0) * stretch;
  const auto filter = [is_cubic](double x) {
    x = std::abs(x);
    if (!is_cubic) return x < 1 ? 1 - x : 0.0;
    constexpr double kA = -0.5;
    if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0.0;
  };
  std::vector<double> weights;
  for (int64_t o = 0; o < dim.out; ++o) {
    const double centre = scale * (static_cast<double>(o) + 0.5);
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(centre + support + 0.5), dim.in);
    weights.clear();
    double total = 0;
    for (int64_t i = first; i < end; ++i) {
      weights.push_back(filter((static_cast<double>(i) - centre + 0.5) / stretch));
      total += weights.back();
    }
    for (int64_t i = first; i < end; ++i) {
      dim.Tap(i, total == 0 ? 0 : weights[static_cast<size_t>(i - first)] / total);
    }
    dim.Close();
  }
}

Status LowerResizeMap(OpCall& call) {
  MapSizes sizes;
  Dims input;
  const ResizeForm form = FormOf(call);
  REPRISE_RETURN_IF_ERROR(ReadResize(call, form, sizes, input));
  const bool align_corners = call.Has("alignCorners") && call.Bool("alignCorners");
  return LowerMap(call, sizes, form.is_gradient, [&](int d, SeparableDim& dim) {
    const double scale = GivenScale(call, d, form.dims);
    if (form.is_antialiased) return FillAntialiased(dim, form.kind == ResizeKind::kCubic, align_corners, scale);
    kernels::ResizeDim table;
    table.in = dim.in;
    table.out = dim.out;
    const int taps = TapsOf(form.kind);
    FillResizeDim(table, form.kind, align_corners, scale);
    for (int64_t o = 0; o < dim.out; ++o) {
      for (int64_t k = o * taps; k < (o + 1) * taps; ++k) {
        const auto at = static_cast<size_t>(k);
        dim.Tap(table.index[at], taps == 1 ? 1.0 : table.weight[at]);
      }
      dim.Close();
    }
  });
}

// ---- Average pools ----

struct AverageWindow {
  MapSizes sizes;
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, pad[3] = {};
  bool counts_pad = true;
  int64_t divisor = 0;
};

Status ReadAverage(const OpCall& call, int dims, AverageWindow& window) {
  const Operand& self = call.Get("self");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, self, dims + 1, dims + 2));
  REPRISE_RETURN_IF_ERROR(CheckPlanes(call, self, dims + 1));
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "kernelSize", dims, 1, false, window.kernel));
  std::copy_n(window.kernel, dims, window.stride);
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "stride", dims, 1, true, window.stride));
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "padding", dims, 0, true, window.pad));
  window.counts_pad = call.Bool("countIncludePad");
  window.divisor = call.Int("divisorOverride");
  window.sizes.dims = dims;
  const bool ceil = call.Bool("ceilMode");
  for (int d = 0; d < dims; ++d) {
    const int64_t in = self.sizes()[static_cast<size_t>(self.rank() - dims + d)];
    if (window.pad[d] > window.kernel[d] / 2) {
      return call.Invalid(fmt::format("padding is {}, at most half of the window {} is possible",
                                      ShapeText(call.Ints("padding")), ShapeText(call.Ints("kernelSize"))));
    }
    const int64_t room = in + 2 * window.pad[d] - window.kernel[d] + (ceil ? window.stride[d] - 1 : 0);
    int64_t out = room < 0 ? 0 : room / window.stride[d] + 1;
    if (ceil && (out - 1) * window.stride[d] >= in + window.pad[d]) --out;
    if (out <= 0) {
      return call.Invalid(fmt::format("a window of {} elements does not fit self {} with padding {}", window.kernel[d],
                                      ShapeText(self.sizes()), ShapeText(call.Ints("padding"))));
    }
    window.sizes.in[d] = in;
    window.sizes.out[d] = out;
  }
  return {};
}

Status AverageMapShape(OpCall& call) {
  AverageWindow window;
  const int dims = call.op.computation.code & 3;
  REPRISE_RETURN_IF_ERROR(ReadAverage(call, dims, window));
  const Operand& self = call.Get("self");
  if (call.Has("gradOutput")) return CheckGradientShapes(call, self.sizes(), window.sizes);
  return call.CheckShape(call.outputs[0], WithSpatial(self.sizes(), dims, window.sizes.out),
                         [] { return "the pooled shape,"; });
}

Status LowerAverageMap(OpCall& call) {
  AverageWindow window;
  REPRISE_RETURN_IF_ERROR(ReadAverage(call, call.op.computation.code & 3, window));
  return LowerMap(call, window.sizes, call.Has("gradOutput"), [&](int d, SeparableDim& dim) {
    for (int64_t o = 0; o < dim.out; ++o) {
      const int64_t begin = o * window.stride[d] - window.pad[d];
      const int64_t end = std::min(begin + window.kernel[d], dim.in + window.pad[d]);
      const int64_t first = std::max<int64_t>(begin, 0);
      const int64_t last = std::min(end, dim.in);
      auto share = static_cast<double>(window.counts_pad ? end - begin : last - first);
      if (window.divisor != 0) share = d == 0 ? static_cast<double>(window.divisor) : 1.0;
      for (int64_t i = first; i < last; ++i) dim.Tap(i, 1 / share);
      dim.Close();
    }
  });
}

// The gradient of adaptive pools: outputs are as many as those of gradOutput.
Status ReadAdaptive(const OpCall& call, int dims, MapSizes& sizes) {
  const Operand& self = call.Get("self");
  const Operand& grad = call.Get("gradOutput");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, self, dims + 1, dims + 2));
  REPRISE_RETURN_IF_ERROR(CheckPlanes(call, self, dims));
  if (grad.rank() != self.rank()) {
    return call.InvalidOperand(grad, fmt::format("has shape {}, expected as many dims as self {}",
                                                 ShapeText(grad.sizes()), ShapeText(self.sizes())));
  }
  sizes.dims = dims;
  for (int d = 0; d < dims; ++d) {
    sizes.in[d] = self.sizes()[static_cast<size_t>(self.rank() - dims + d)];
    sizes.out[d] = grad.sizes()[static_cast<size_t>(self.rank() - dims + d)];
  }
  return {};
}

Status AdaptiveMapShape(OpCall& call) {
  MapSizes sizes;
  REPRISE_RETURN_IF_ERROR(ReadAdaptive(call, call.op.computation.code & 3, sizes));
  return CheckGradientShapes(call, call.Get("self").sizes(), sizes);
}

Status LowerAdaptiveMap(OpCall& call) {
  MapSizes sizes;
  REPRISE_RETURN_IF_ERROR(ReadAdaptive(call, call.op.computation.code & 3, sizes));
  return LowerMap(call, sizes, true, [](int, SeparableDim& dim) {
    for (int64_t o = 0; o < dim.out; ++o) {
      const int64_t first = o * dim.in / dim.out;
      const int64_t end = ((o + 1) * dim.in + dim.out - 1) / dim.out;
      for (int64_t i = first; i < end; ++i) dim.Tap(i, 1 / static_cast<double>(end - first));
      dim.Close();
    }
  });
}

// ---- Padding ----

constexpr uint8_t kReflects = 8;

Status ReadPads(const OpCall& call, MapSizes& sizes, int64_t* before) {
  const int dims = call.op.computation.code & 3;
  const bool reflects = (call.op.computation.code & kReflects) != 0;
  const Operand& self = call.Get("self");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, self, dims + 1, dims + 2));
  REPRISE_RETURN_IF_ERROR(CheckPlanes(call, self, dims));
  const std::span<const int64_t> padding = call.Ints("padding");
  if (padding.size() != 2 * static_cast<size_t>(dims)) {
    return call.Invalid(fmt::format("padding is {}, expected {} entries", ShapeText(padding), 2 * dims),
                        "two for each dim, the last dim first");
  }
  sizes.dims = dims;
  for (int d = 0; d < dims; ++d) {
    const auto at = static_cast<size_t>(2 * (dims - 1 - d));
    const int64_t in = self.sizes()[static_cast<size_t>(self.rank() - dims + d)];
    const int64_t most = reflects ? in - 1 : INT32_MAX;
    if (padding[at] > most || padding[at + 1] > most || padding[at] < -in || padding[at + 1] < -in ||
        in + padding[at] + padding[at + 1] <= 0) {
      return call.Invalid(fmt::format("padding is {}, which is not possible for size {} of self {}", ShapeText(padding),
                                      in, ShapeText(self.sizes())),
                          reflects ? "each entry is less than the size of its dim, and something is left"
                                   : "something of each dim has to be left");
    }
    before[d] = padding[at];
    sizes.in[d] = in;
    sizes.out[d] = in + padding[at] + padding[at + 1];
  }
  return {};
}

Status PadMapShape(OpCall& call) {
  MapSizes sizes;
  int64_t before[3];
  REPRISE_RETURN_IF_ERROR(ReadPads(call, sizes, before));
  const Operand& self = call.Get("self");
  if (call.Has("gradOutput")) return CheckGradientShapes(call, self.sizes(), sizes);
  return call.CheckShape(call.outputs[0], WithSpatial(self.sizes(), sizes.dims, sizes.out),
                         [] { return "the padded shape,"; });
}

Status LowerPadMap(OpCall& call) {
  MapSizes sizes;
  int64_t before[3];
  REPRISE_RETURN_IF_ERROR(ReadPads(call, sizes, before));
  const bool reflects = (call.op.computation.code & kReflects) != 0;
  return LowerMap(call, sizes, call.Has("gradOutput"), [&](int d, SeparableDim& dim) {
    for (int64_t o = 0; o < dim.out; ++o) {
      int64_t i = o - before[d];
      if (reflects) i = i < 0 ? -i : i >= dim.in ? 2 * (dim.in - 1) - i : i;
      dim.Tap(std::clamp<int64_t>(i, 0, dim.in - 1), 1);
      dim.Close();
    }
  });
}

// ---- Words ----

}  // namespace

const Separable* FindPixelMap(const Launch& launch) {
  if (launch.kernel != RunMap || !launch.State<Separable>().is_copy) return nullptr;
  for (size_t i = 0; i < 2; ++i) {
    const TensorRef& ref = launch.refs[i];
    if (launch.uses[i].slot < 0 || ref.dtype != kernels::DType::kFloat || ref.rank != 5) return nullptr;
  }
  return kernels::IsContiguous(launch.refs[0]) ? &launch.State<Separable>() : nullptr;
}

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/separable.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
