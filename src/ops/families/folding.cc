// SPDX-License-Identifier: Apache-2.0
//
// What windows give back: each element of the result is the sum of those that windows showed it at.
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// ---- Im2colBackward ----

struct FoldWindow {
  int64_t size[2];
  int64_t kernel[2], dilation[2], padding[2], stride[2];
  int64_t places[2];
};

Status ReadFold(const OpCall& call, FoldWindow& window) {
  const auto read = [&](std::string_view name, int64_t least, int64_t* values) -> Status {
    const std::span<const int64_t> given = call.Ints(name);
    if (given.size() == 2 && std::min(given[0], given[1]) >= least && std::max(given[0], given[1]) < INT32_MAX) {
      values[0] = given[0];
      values[1] = given[1];
      return {};
    }
    return call.Invalid(fmt::format("{} is {}, expected two values of at least {}", name, ShapeText(given), least));
  };
  REPRISE_RETURN_IF_ERROR(read("inputSize", 1, window.size));
  REPRISE_RETURN_IF_ERROR(read("kernelSize", 1, window.kernel));
  REPRISE_RETURN_IF_ERROR(read("dilation", 1, window.dilation));
  REPRISE_RETURN_IF_ERROR(read("padding", 0, window.padding));
  REPRISE_RETURN_IF_ERROR(read("stride", 1, window.stride));
  for (int i = 0; i < 2; ++i) {
    const int64_t room = window.size[i] + 2 * window.padding[i] - window.dilation[i] * (window.kernel[i] - 1) - 1;
    if (room < 0) {
      return call.Invalid(fmt::format("the window {} with dilation {} does not fit inputSize {} with padding {}",
                                      ShapeText(call.Ints("kernelSize")), ShapeText(call.Ints("dilation")),
                                      ShapeText(call.Ints("inputSize")), ShapeText(call.Ints("padding"))));
    }
    window.places[i] = room / window.stride[i] + 1;
  }
  return {};
}

Status FoldShape(OpCall& call) {
  FoldWindow window;
  REPRISE_RETURN_IF_ERROR(ReadFold(call, window));
  const Operand& grad = call.inputs[0];
  const std::span<const int64_t> sizes = grad.sizes();
  const int64_t elements = window.kernel[0] * window.kernel[1];
  const int64_t places = window.places[0] * window.places[1];
  const bool fits =
      (sizes.size() == 2 || sizes.size() == 3) && sizes[sizes.size() - 2] % elements == 0 && sizes.back() == places;
  if (!fits) {
    return call.InvalidOperand(grad, fmt::format("has shape {}, expected [n, channels * {}, {}] or without n",
                                                 ShapeText(sizes), elements, places));
  }
  Dims shape(sizes.data(), sizes.size() - 2);
  shape.push_back(sizes[sizes.size() - 2] / elements);
  shape.push_back(window.size[0]);
  shape.push_back(window.size[1]);
  return call.CheckShape(call.outputs[0], shape, [] { return "the shape of the images,"; });
}

// refs: images, columns. A unit is a plane.
template <class T>
void FoldPlanes(const FoldWindow& w, const T* columns, T* images, kernels::Range range) {
  const int64_t plane = w.size[0] * w.size[1];
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    T* to = images + unit * plane;
    std::fill_n(to, plane, T(0));
    const T* from = columns + unit * w.kernel[0] * w.kernel[1] * w.places[0] * w.places[1];
    for (int64_t ky = 0; ky < w.kernel[0]; ++ky) {
      for (int64_t kx = 0; kx < w.kernel[1]; ++kx) {
        const int64_t x0 = kx * w.dilation[1] - w.padding[1];
        for (int64_t py = 0; py < w.places[0]; ++py, from += w.places[1]) {
          const int64_t y = py * w.stride[0] + ky * w.dilation[0] - w.padding[0];
          if (y < 0 || y >= w.size[0]) continue;
          T* row = to + y * w.size[1];
          for (int64_t px = 0; px < w.places[1]; ++px) {
            const int64_t x = x0 + px * w.stride[1];
            if (x >= 0 && x < w.size[1]) row[x] += from[px];
          }
        }
      }
    }
  }
}

void RunFold(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& window = launch.State<FoldWindow>();
  if (launch.refs[0].dtype == DType::kDouble) {
    return FoldPlanes(window, DataOf<double>(launch, 1, memory), DataOf<double>(launch, 0, memory), range);
  }
  FoldPlanes(window, DataOf<float>(launch, 1, memory), DataOf<float>(launch, 0, memory), range);
}

Status LowerFold(OpCall& call) {
  auto window = std::make_shared<FoldWindow>();
  REPRISE_RETURN_IF_ERROR(ReadFold(call, *window));
  const Operand& out = call.outputs[0];
  if (out.tensor->count == 0) return {};
  const DType type = WideFloatOf(call.compute);
  const Dense columns = DenseInput(call, call.inputs[0], type);
  const Dense images = DenseOutput(call, out, type);
  Launch& launch = call.AddLaunch(RunFold);
  images.Write(call, launch);
  columns.Read(call, launch);
  launch.units = out.tensor->count / (window->size[0] * window->size[1]);
  launch.grain = GrainOf(2 * call.inputs[0].tensor->count / launch.units);
  launch.state = std::move(window);
  images.Store(call);
  return {};
}

// ---- UnfoldGrad ----

struct SlidingWindow {
  int64_t outer = 1, length = 1, inner = 1;  // of the result
  int64_t places = 0, size = 0, step = 0;
};

Status ReadSliding(const OpCall& call, SlidingWindow& window, Dims& grad_shape) {
  const std::span<const int64_t> sizes = call.Ints("inputSizes");
  const auto rank = static_cast<int>(sizes.size());
  for (const int64_t size : sizes) {
    if (size >= 0 && rank < kernels::kMaxRank) continue;
    return call.Invalid(
        fmt::format("inputSizes is {}, which is not the shape of a tensor to be unfolded", ShapeText(sizes)));
  }
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), rank));
  window.size = call.Int("size");
  window.step = call.Int("step");
  for (int d = 0; d < rank; ++d) {
    int64_t& part = d < dim ? window.outer : d == dim ? window.length : window.inner;
    if (!__builtin_mul_overflow(part, sizes[static_cast<size_t>(d)], &part)) continue;
    return call.Invalid(fmt::format("inputSizes is {}, which has too many elements", ShapeText(sizes)));
  }
  if (window.size < 0 || window.size > window.length) {
    return call.Invalid(
        fmt::format("size is {}, expected 0 to {}, the size of dim {}", window.size, window.length, dim));
  }
  if (window.step < 1) return call.Invalid(fmt::format("step is {}, expected 1 or more", window.step));
  window.places = (window.length - window.size) / window.step + 1;
  grad_shape.assign(sizes.data(), sizes.size());
  if (rank != 0) grad_shape[static_cast<size_t>(dim)] = window.places;
  grad_shape.push_back(window.size);
  return {};
}

Status SlidingShape(OpCall& call) {
  SlidingWindow window;
  Dims grad_shape;
  REPRISE_RETURN_IF_ERROR(ReadSliding(call, window, grad_shape));
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.inputs[0], grad_shape, [] { return "the unfolded shape of inputSizes:"; }));
  return call.CheckShape(call.outputs[0], call.Ints("inputSizes"), [] { return "as inputSizes says, the shape"; });
}

// A unit is an outer position.
template <class T>
void FoldRows(const SlidingWindow& w, const T* grad, T* out, kernels::Range range) {
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    T* to = out + unit * w.length * w.inner;
    const T* from = grad + unit * w.places * w.inner * w.size;
    std::fill_n(to, w.length * w.inner, T(0));
    for (int64_t place = 0; place < w.places; ++place) {
      for (int64_t i = 0; i < w.inner; ++i, from += w.size) {
        T* line = to + place * w.step * w.inner + i;
        for (int64_t k = 0; k < w.size; ++k) line[k * w.inner] += from[k];
      }
    }
  }
}

void RunSliding(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& window = launch.State<SlidingWindow>();
  if (launch.refs[0].dtype == DType::kDouble) {
    return FoldRows(window, DataOf<double>(launch, 1, memory), DataOf<double>(launch, 0, memory), range);
  }
  FoldRows(window, DataOf<float>(launch, 1, memory), DataOf<float>(launch, 0, memory), range);
}

Status LowerSliding(OpCall& call) {
  auto window = std::make_shared<SlidingWindow>();
  Dims grad_shape;
  REPRISE_RETURN_IF_ERROR(ReadSliding(call, *window, grad_shape));
  if (call.outputs[0].tensor->count == 0) return {};
  const DType type = WideFloatOf(call.compute);
  const Dense grad = DenseInput(call, call.inputs[0], type);
  const Dense out = DenseOutput(call, call.outputs[0], type);
  Launch& launch = call.AddLaunch(RunSliding);
  out.Write(call, launch);
  grad.Read(call, launch);
  launch.units = window->outer;
  launch.grain = GrainOf(window->length * window->inner + 2 * window->places * window->inner * window->size);
  launch.state = std::move(window);
  out.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/folding.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
