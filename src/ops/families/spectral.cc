// SPDX-License-Identifier: Apache-2.0
//
// Fourier transforms: of windows of a signal, and of real numbers along a dim.
#include <cmath>

#include "kernels/fourier.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

struct FourierRoots {
  std::vector<kernels::FourierNumber> roots;
  double factor = 1;
  int64_t hop = 1, width = 1;
};

std::shared_ptr<FourierRoots> MakeRoots(int64_t n) {
  auto state = std::make_shared<FourierRoots>();
  state->roots.resize(static_cast<size_t>(n));
  kernels::FillRoots(state->roots.data(), n);
  return state;
}

int64_t GrainOfTransforms(int64_t n) { return 1 + (int64_t{1} << 12) / std::max<int64_t>(1, n); }

bool IsComplexType(DType type) { return kernels::CategoryOf(type) == kernels::Category::kComplex; }
bool IsWideType(DType type) { return type == DType::kDouble || type == DType::kComplex128; }

// ---- Windows: aclStft ----

Status WindowTransformTypes(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand* const window = call.Find("windowOptional");
  const Operand& out = call.Get("out");
  call.compute = DType::kComplex128;
  if (window != nullptr && IsWideType(window->dtype) != IsWideType(self.dtype)) {
    return call.InvalidOperand(
        *window, fmt::format("has {}, but self has {}", kernels::Name(window->dtype), kernels::Name(self.dtype)),
        "pass both in single or both in double precision");
  }
  const bool is_wide = IsWideType(self.dtype);
  const DType wanted = call.Bool("returnComplex") ? (is_wide ? DType::kComplex128 : DType::kComplex64)
                                                  : (is_wide ? DType::kDouble : DType::kFloat);
  if (out.dtype != wanted) {
    return call.InvalidOperand(out,
                               fmt::format("has {}, expected {}", kernels::Name(out.dtype), kernels::Name(wanted)));
  }
  const bool is_complex = IsComplexType(self.dtype) || (window != nullptr && IsComplexType(window->dtype));
  if (!is_complex || !call.Bool("onesided")) return {};
  return call.Invalid("onesided is true, but self or windowOptional is complex",
                      "pass false: only transforms of real numbers are known by their first half");
}

Status WindowTransformShape(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand* const window = call.Find("windowOptional");
  if (self.rank() < 1 || self.rank() > 2) {
    return call.InvalidOperand(self, fmt::format("has shape {}, expected 1 or 2 dims", ShapeText(self.sizes())));
  }
  const int64_t length = self.sizes().back();
  const int64_t n = call.Int("nFft");
  const int64_t hop = call.Int("hopLength");
  const int64_t width = call.Int("winLength");
  if (n < 1 || n > length) {
    return call.Invalid(fmt::format("nFft is {}, expected a value from 1 to the length {} of self", n, length));
  }
  if (hop < 1) return call.Invalid(fmt::format("hopLength is {}, expected at least 1", hop));
  if (width < 1 || width > n) {
    return call.Invalid(fmt::format("winLength is {}, expected a value from 1 to nFft, {}", width, n));
  }
  if (window != nullptr) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*window, {&width, 1}, [] { return "winLength elements,"; }));
  }
  Dims shape(self.sizes().data(), self.sizes().size() - 1);
  shape.push_back(call.Bool("onesided") ? n / 2 + 1 : n);
  shape.push_back((length - n) / hop + 1);
  if (!call.Bool("returnComplex")) shape.push_back(2);
  return call.CheckShape(call.Get("out"), shape, [] { return "the bins of each frame,"; });
}

// refs: out, self, window; state: FourierRoots.
void RunWindowTransforms(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<FourierRoots>();
  kernels::TransformWindows({.x = launch.refs[1],
                             .window = launch.refs[2],
                             .out = launch.refs[0],
                             .n = static_cast<int64_t>(state.roots.size()),
                             .hop = state.hop,
                             .width = state.width,
                             .factor = state.factor,
                             .roots = state.roots.data()},
                            range, memory.scratch);
}

Status LowerWindowTransforms(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& out = call.Get("out");
  const int64_t n = call.Int("nFft");
  auto state = MakeRoots(n);
  state->hop = call.Int("hopLength");
  state->width = call.Int("winLength");
  if (call.Bool("normalized")) state->factor = 1 / std::sqrt(static_cast<double>(n));
  TensorRef x = call.RefOf(self);
  TensorRef y = call.RefOf(out);
  if (self.rank() == 1) {
    InsertDims(x, 0, 1);
    InsertDims(y, 0, 1);
  }
  Launch& launch = call.AddLaunch(RunWindowTransforms);
  call.Write(launch, out, y);
  call.Read(launch, self, x);
  call.ReadOptional(launch, call.Find("windowOptional"));
  launch.state = std::move(state);
  launch.units = out.tensor->count == 0 ? 0 : y.sizes[0] * y.sizes[2];
  launch.grain = GrainOfTransforms(n);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::FourierScratchBytes(n)));
  return {};
}

// ---- Real numbers along a dim: aclRfft1D ----

enum RealNorm : int64_t { kBackward = 1, kForward = 2, kOrtho = 3 };

Status RealTransformShape(OpCall& call) {
  const Operand& self = call.Get("self");
  const int64_t n = call.Int("n");
  if (self.rank() < 1 || self.rank() >= kernels::kMaxRank) {
    return call.InvalidOperand(
        self, fmt::format("has shape {}, expected 1 to {} dims", ShapeText(self.sizes()), kernels::kMaxRank - 1));
  }
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  if (n < 1) return call.Invalid(fmt::format("n is {}, expected at least 1", n));
  if (call.Int("norm") < kBackward || call.Int("norm") > kOrtho) {
    return call.Invalid(fmt::format("norm is {}, expected a value from 1 to 3", call.Int("norm")),
                        "1: backward, 2: forward, 3: ortho");
  }
  Dims shape(self.sizes().data(), self.sizes().size());
  shape[static_cast<size_t>(dim)] = n / 2 + 1;
  shape.push_back(2);
  return call.CheckShape(call.Get("out"), shape, [] { return "pairs of numbers,"; });
}

// refs: out, self; state: FourierRoots.
void RunRealTransform(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<FourierRoots>();
  kernels::TransformRealRows({.x = launch.refs[1],
                              .out = launch.refs[0],
                              .n = static_cast<int64_t>(state.roots.size()),
                              .factor = state.factor,
                              .roots = state.roots.data()},
                             range, memory.scratch);
}

// Dim `dim` becomes dim `to`, behind those that were behind it.
void MoveDim(TensorRef& ref, int dim, int to) {
  const int64_t size = ref.sizes[dim];
  const int64_t stride = ref.strides[dim];
  for (int d = dim; d < to; ++d) {
    ref.sizes[d] = ref.sizes[d + 1];
    ref.strides[d] = ref.strides[d + 1];
  }
  ref.sizes[to] = size;
  ref.strides[to] = stride;
}

Status LowerRealTransform(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& out = call.Get("out");
  const int64_t n = call.Int("n");
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  auto state = MakeRoots(n);
  const auto count = static_cast<double>(n);
  if (call.Int("norm") == kForward) state->factor = 1 / count;
  if (call.Int("norm") == kOrtho) state->factor = 1 / std::sqrt(count);
  TensorRef x = call.RefOf(self);
  TensorRef y = call.RefOf(out);
  MoveDim(x, dim, x.rank - 1);
  MoveDim(y, dim, y.rank - 2);
  Launch& launch = call.AddLaunch(RunRealTransform);
  call.Write(launch, out, y);
  call.Read(launch, self, x);
  launch.state = std::move(state);
  launch.units = out.tensor->count / (2 * (n / 2 + 1));
  launch.grain = GrainOfTransforms(n);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::FourierScratchBytes(n)));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/spectral.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
