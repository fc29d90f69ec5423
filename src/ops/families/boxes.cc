// SPDX-License-Identifier: Apache-2.0
//
// How far boxes overlap: the intersection over the union (or over the second box), of every pair or of boxes in their
// order, and the complete form, which also counts the distance of the centres and the ratio of the sides.
#include "ops/families/boxes.h"

#include <cmath>
#include <memory>
#include <numbers>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace boxes {
namespace {

using kernels::DType;

constexpr double kEpsilon = 1e-10;
constexpr int64_t kOverlapCost = 16, kCompleteCost = 128;  // light elements
constexpr int kSides = 4;

// ---- Arithmetic: plain numbers, or numbers with their slopes in the eight numbers of two boxes ----

struct Dual {
  double value = 0;
  double slopes[2 * kSides] = {};
};

Dual Chain(const Dual& a, double value, double slope) {
  Dual result{.value = value};
  for (int k = 0; k < 2 * kSides; ++k) result.slopes[k] = a.slopes[k] * slope;
  return result;
}
Dual Chain(const Dual& a, const Dual& b, double value, double of_a, double of_b) {
  Dual result{.value = value};
  for (int k = 0; k < 2 * kSides; ++k) result.slopes[k] = a.slopes[k] * of_a + b.slopes[k] * of_b;
  return result;
}
Dual operator+(const Dual& a, const Dual& b) { return Chain(a, b, a.value + b.value, 1, 1); }
Dual operator-(const Dual& a, const Dual& b) { return Chain(a, b, a.value - b.value, 1, -1); }
Dual operator*(const Dual& a, const Dual& b) { return Chain(a, b, a.value * b.value, b.value, a.value); }
Dual operator/(const Dual& a, const Dual& b) {
  return Chain(a, b, a.value / b.value, 1 / b.value, -a.value / (b.value * b.value));
}
Dual operator+(const Dual& a, double b) { return Chain(a, a.value + b, 1); }
Dual operator*(const Dual& a, double b) { return Chain(a, a.value * b, b); }

double Value(double x) { return x; }
double Value(const Dual& x) { return x.value; }
double Arc(double x) { return std::atan(x); }
Dual Arc(const Dual& x) { return Chain(x, std::atan(x.value), 1 / (1 + x.value * x.value)); }
double Positive(double x) { return std::max(x, 0.0); }
Dual Positive(const Dual& x) { return Chain(x, Positive(x.value), x.value >= 0 ? 1 : 0); }
template <class T>
T Least(const T& a, const T& b) {
  return Value(a) < Value(b) ? a : b;
}
template <class T>
T Most(const T& a, const T& b) {
  return Value(a) > Value(b) ? a : b;
}

// ---- Formulas; boxes by their corners ----

template <class T>
struct Box {
  T x1, y1, x2, y2;
  T area() const { return (x2 - x1) * (y2 - y1); }
};

template <class T>
T Overlap(const Box<T>& a, const Box<T>& b, bool over_second, double eps) {
  const T inter = Positive(Least(a.x2, b.x2) - Most(a.x1, b.x1)) * Positive(Least(a.y2, b.y2) - Most(a.y1, b.y1));
  return inter / (over_second ? b.area() + eps : a.area() + b.area() - inter + eps);
}

template <class T>
T ArcOfSides(const Box<T>& box) {
  return Arc((box.x2 - box.x1) / (box.y2 - box.y1));
}

// What the ratio of the sides counts for is no part of the gradient.
template <class T>
T Complete(const Box<T>& a, const Box<T>& b, bool over_second, T* apart) {
  *apart = ArcOfSides(b) - ArcOfSides(a);
  const T overlap = Overlap(a, b, over_second, kEpsilon);
  const T width = Most(a.x2, b.x2) - Least(a.x1, b.x1);
  const T height = Most(a.y2, b.y2) - Least(a.y1, b.y1);
  const T across = a.x1 + a.x2 - b.x1 - b.x2;
  const T down = a.y1 + a.y2 - b.y1 - b.y2;
  const T distance = (across * across + down * down) / ((width * width + height * height + kEpsilon) * 4);
  const T ratio = *apart * *apart * (4 / (std::numbers::pi * std::numbers::pi));
  return overlap - distance - ratio * (Value(ratio) / (1 + kEpsilon - Value(overlap) + Value(ratio)));
}

// From the four numbers of a box: corners, or centre and sides.
template <class T>
Box<T> BoxOf(const T* numbers, bool is_centred) {
  if (!is_centred) return {numbers[0], numbers[1], numbers[2], numbers[3]};
  const T half_width = numbers[2] * 0.5, half_height = numbers[3] * 0.5;
  return {numbers[0] - half_width, numbers[1] - half_height, numbers[0] + half_width, numbers[1] + half_height};
}

// ---- Checks ----

StatusOr<bool> IsOverSecond(const OpCall& call) {
  const std::string_view mode = call.Text("mode");
  if (mode == "iof") return true;
  if (mode == "iou") return false;
  return call.Invalid(fmt::format("mode is '{}', expected iou or iof", mode));
}

Status CheckBoxes(OpCall& call, const Operand& boxes, int dim) {
  if (boxes.rank() == 2 && boxes.sizes()[static_cast<size_t>(dim)] == kSides) return {};
  return call.InvalidOperand(boxes, fmt::format("has shape {}, expected {}", ShapeText(boxes.sizes()),
                                                dim == 1 ? "[boxes, 4]" : "[4, boxes]"));
}

// ---- Every pair, or boxes in their order ----

// refs: out, boxes, others, all float64. A unit is a row of the result.
void RunOverlaps(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto* first = DataOf<double>(launch, 1, memory);
  const auto* second = DataOf<double>(launch, 2, memory);
  auto* out = DataOf<double>(launch, 0, memory);
  const int64_t columns = launch.ints[0];
  const bool over_second = launch.ints[1] != 0, is_aligned = launch.ints[2] != 0;
  const double eps = launch.State<double>();
  for (int64_t row = range.begin; row < range.end; ++row) {
    const Box<double> other = BoxOf(second + row * kSides, false);
    for (int64_t j = 0; j < columns; ++j) {
      const Box<double> box = BoxOf(first + (is_aligned ? row : j) * kSides, false);
      out[row * columns + j] = Overlap(box, other, over_second, eps);
    }
  }
}

// ---- The complete form ----

// refs: overlap, atan_sub, boxes, others. A unit is a pair.
void RunComplete(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t count = launch.ints[0];
  const bool is_centred = launch.ints[1] != 0, over_second = launch.ints[2] != 0;
  auto* apart = DataOf<double>(launch, 1, memory);
  for (int64_t i = range.begin; i < range.end; ++i) {
    double numbers[2][kSides];
    for (size_t side = 0; side < kSides; ++side) {
      numbers[0][side] = DataOf<double>(launch, 2, memory)[static_cast<int64_t>(side) * count + i];
      numbers[1][side] = DataOf<double>(launch, 3, memory)[static_cast<int64_t>(side) * count + i];
    }
    double angle;
    DataOf<double>(launch, 0, memory)[i] =
        Complete(BoxOf(numbers[0], is_centred), BoxOf(numbers[1], is_centred), over_second, &angle);
    if (apart != nullptr) apart[i] = angle;
  }
}

// refs: of boxes, of others, dy, boxes, others. A unit is a pair.
void RunCompleteGradient(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t count = launch.ints[0];
  const bool is_centred = launch.ints[1] != 0, over_second = launch.ints[2] != 0;
  for (int64_t i = range.begin; i < range.end; ++i) {
    Dual numbers[2][kSides];
    for (size_t box = 0; box < 2; ++box) {
      for (size_t side = 0; side < kSides; ++side) {
        numbers[box][side].value = DataOf<double>(launch, 3 + box, memory)[static_cast<int64_t>(side) * count + i];
        numbers[box][side].slopes[box * kSides + side] = 1;
      }
    }
    Dual angle;
    const Dual result = Complete(BoxOf(numbers[0], is_centred), BoxOf(numbers[1], is_centred), over_second, &angle);
    const double dy = DataOf<double>(launch, 2, memory)[i];
    for (size_t k = 0; k < 2 * kSides; ++k) {
      DataOf<double>(launch, k / kSides, memory)[static_cast<int64_t>(k % kSides) * count + i] = result.slopes[k] * dy;
    }
  }
}

Status AddComplete(OpCall& call, Launch::Kernel kernel, std::initializer_list<const Dense*> results,
                   std::initializer_list<const Dense*> inputs) {
  REPRISE_ASSIGN_OR_RETURN(const bool over_second, IsOverSecond(call));
  Launch& launch = call.AddLaunch(kernel);
  for (const Dense* result : results) result->Write(call, launch);
  for (const Dense* input : inputs) input->Read(call, launch);
  launch.units = call.Get("bBoxes").sizes()[1];
  launch.ints.push_back(launch.units);
  launch.ints.push_back(call.Bool("trans") ? 1 : 0);
  launch.ints.push_back(over_second ? 1 : 0);
  launch.grain = GrainOf(kCompleteCost);
  for (const Dense* result : results) result->Store(call);
  return {};
}

}  // namespace

Status OverlapShape(OpCall& call) {
  const Operand& first = call.Get("bBoxes");
  const Operand& second = call.Get("gtBoxes");
  REPRISE_RETURN_IF_ERROR(CheckBoxes(call, first, 1));
  REPRISE_RETURN_IF_ERROR(CheckBoxes(call, second, 1));
  if (call.Bool("aligned") && first.sizes()[0] != second.sizes()[0]) {
    return call.Invalid(fmt::format("bBoxes {} and gtBoxes {} are aligned, but differ in number",
                                    ShapeText(first.sizes()), ShapeText(second.sizes())));
  }
  const int64_t shape[] = {second.sizes()[0], call.Bool("aligned") ? 1 : first.sizes()[0]};
  return call.CheckShape(call.Get("overlap"), shape, [] { return "a row for each of gtBoxes,"; });
}

Status LowerOverlap(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const bool over_second, IsOverSecond(call));
  const Dense first = DenseInput(call, call.Get("bBoxes"), DType::kDouble);
  const Dense second = DenseInput(call, call.Get("gtBoxes"), DType::kDouble);
  const Dense out = DenseOutput(call, call.Get("overlap"), DType::kDouble);
  Launch& launch = call.AddLaunch(RunOverlaps);
  out.Write(call, launch);
  first.Read(call, launch);
  second.Read(call, launch);
  launch.ints.push_back(call.Get("overlap").sizes()[1]);
  launch.ints.push_back(over_second ? 1 : 0);
  launch.ints.push_back(call.Bool("aligned") ? 1 : 0);
  launch.state = std::make_shared<double>(call.Real("eps"));
  launch.units = call.Get("overlap").sizes()[0];
  launch.grain = GrainOf(kOverlapCost * launch.ints[0]);
  out.Store(call);
  return {};
}

Status CompleteShape(OpCall& call) {
  const Operand& first = call.Get("bBoxes");
  REPRISE_RETURN_IF_ERROR(CheckBoxes(call, first, 0));
  if (call.Bool("isCross")) {
    return call.Invalid("isCross is true, which is not computed", "pass false, and boxes in pairs");
  }
  const int64_t row[] = {1, first.sizes()[1]};
  const auto pairs = [] { return "the shape of bBoxes,"; };
  for (const std::string_view name : {"gtBoxes", "dBoxes", "dGtBoxes"}) {
    if (call.Has(name)) REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), first.sizes(), pairs));
  }
  for (const std::string_view name : {"dy", "overlap", "atanSub"}) {
    if (!call.Has(name) || call.Find(name) == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckCount(call.Get(name), row, [] { return "one number for each pair,"; }));
  }
  return {};
}

Status LowerComplete(OpCall& call) {
  const Dense first = DenseInput(call, call.Get("bBoxes"), DType::kDouble);
  const Dense second = DenseInput(call, call.Get("gtBoxes"), DType::kDouble);
  const Dense out = DenseOutput(call, call.Get("overlap"), DType::kDouble);
  const Dense apart = DenseOutput(call, call.Find("atanSub"), DType::kDouble);
  return AddComplete(call, RunComplete, {&out, &apart}, {&first, &second});
}

Status LowerCompleteGradient(OpCall& call) {
  const Dense dy = DenseInput(call, call.Get("dy"), DType::kDouble);
  const Dense first = DenseInput(call, call.Get("bBoxes"), DType::kDouble);
  const Dense second = DenseInput(call, call.Get("gtBoxes"), DType::kDouble);
  const Dense of_first = DenseOutput(call, call.Get("dBoxes"), DType::kDouble);
  const Dense of_second = DenseOutput(call, call.Get("dGtBoxes"), DType::kDouble);
  return AddComplete(call, RunCompleteGradient, {&of_first, &of_second}, {&dy, &first, &second});
}

}  // namespace boxes

using boxes::CompleteShape;
using boxes::LowerComplete;
using boxes::LowerOverlap;
using boxes::OverlapShape;

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/boxes.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
