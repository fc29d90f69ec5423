// SPDX-License-Identifier: Apache-2.0
//
// The margin between the classes that a row has and those that it has not.
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::DType;

constexpr int64_t kNoReduction = 0, kMeanReduction = 1, kSumReduction = 2;

Status MultilabelShape(OpCall& call) {
  const Operand& self = call.Get("self");
  if (self.rank() < 1 || self.rank() > 2 || self.sizes().back() == 0) {
    return call.InvalidOperand(
        self, fmt::format("has shape {}, expected [batch, classes] or [classes]", ShapeText(self.sizes())));
  }
  const int64_t reduction = call.Int("reduction");
  if (reduction < kNoReduction || reduction > kSumReduction) {
    return call.Invalid(fmt::format("reduction is {}, expected 0 (none), 1 (mean) or 2 (sum)", reduction));
  }
  const auto same = [] { return "the shape of self,"; };
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("target"), self.sizes(), same));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("isTarget"), self.sizes(), same));
  const bool is_single = reduction != kNoReduction || self.rank() == 1;
  return call.CheckShape(call.Get("out"), self.sizes().first(is_single ? 0 : 1),
                         [] { return "one loss for each row, or one of all, the shape"; });
}

// refs: losses (float64), marks, self, target. A unit is a row.
template <class T>
void RowLosses(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t classes = launch.ints[0];
  for (int64_t row = range.begin; row < range.end; ++row) {
    const T* x = DataOf<T>(launch, 2, memory) + row * classes;
    const int64_t* target = DataOf<int64_t>(launch, 3, memory) + row * classes;
    T* marks = DataOf<T>(launch, 1, memory) + row * classes;
    std::fill_n(marks, classes, T(0));
    int64_t count = 0;
    while (count < classes && target[count] >= 0) {
      if (target[count] < classes) marks[target[count]] = 1;
      ++count;
    }
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (target[i] >= classes) continue;
      const T own = x[target[i]];
      for (int64_t j = 0; j < classes; ++j) {
        if (marks[j] != 0) continue;
        const T margin = 1 - own + x[j];
        if (!(margin <= 0)) sum += static_cast<double>(margin);
      }
    }
    DataOf<double>(launch, 0, memory)[row] = sum / static_cast<double>(classes);
  }
}

void RunRowLosses(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.refs[1].dtype == DType::kDouble) return RowLosses<double>(launch, range, memory);
  RowLosses<float>(launch, range, memory);
}

// refs: out, losses; both float64.
void RunLossSum(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const int64_t rows = launch.ints[0];
  const double* losses = DataOf<double>(launch, 1, memory);
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) sum += losses[row];
  *DataOf<double>(launch, 0, memory) = launch.ints[1] == kMeanReduction ? sum / static_cast<double>(rows) : sum;
}

Status LowerMultilabel(OpCall& call) {
  const Operand& self_operand = call.Get("self");
  const int64_t classes = self_operand.sizes().back();
  const int64_t rows = self_operand.tensor->count / classes;
  const int64_t reduction = self_operand.rank() == 1 ? kSumReduction : call.Int("reduction");
  const DType type = WideFloatOf(call.compute);
  const Dense self = DenseInput(call, self_operand, type);
  const Dense target = DenseInput(call, call.Get("target"), DType::kInt64);
  const Dense marks = DenseOutput(call, call.Get("isTarget"), type);
  const bool is_reduced = reduction != kNoReduction;
  const Dense out = DenseOutput(call, call.Get("out"), DType::kDouble);
  const Dense losses = is_reduced ? DenseTemporary(call, DType::kDouble, {&rows, 1}) : out;
  Launch& launch = call.AddLaunch(RunRowLosses);
  losses.Write(call, launch);
  marks.Write(call, launch);
  self.Read(call, launch);
  target.Read(call, launch);
  launch.ints.push_back(classes);
  launch.units = rows;
  launch.grain = GrainOf(4 * classes);
  if (is_reduced) {
    Launch& sum = call.AddLaunch(RunLossSum);
    out.Write(call, sum);
    losses.Read(call, sum);
    sum.ints.push_back(rows);
    sum.ints.push_back(reduction);
    sum.units = 1;
  }
  marks.Store(call);
  out.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/label_loss.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
