// SPDX-License-Identifier: Apache-2.0
//
// Distances between rows (kernels/distance.h).
#include "kernels/distance.h"

#include <cmath>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::RowPairs;

// -1 stands for infinity, which not every caller can pass.
Status ReadOrder(const OpCall& call, RowPairs& pairs) {
  const double p = call.Real("p");
  pairs.p = p == -1 ? HUGE_VAL : p;
  if (pairs.p >= 0) return {};
  return call.Invalid(fmt::format("p is {}, expected 0 or more, or -1 for infinity", p));
}

Status ReadPairs(const OpCall& call, RowPairs& pairs, Dims& batch) {
  REPRISE_RETURN_IF_ERROR(ReadOrder(call, pairs));
  const Operand& x1 = call.Get("x1");
  const Operand& x2 = call.Get("x2");
  for (const Operand* input : {&x1, &x2}) {
    if (input->rank() >= 2) continue;
    return call.InvalidOperand(*input, fmt::format("has shape {}, expected 2 dims or more", ShapeText(input->sizes())));
  }
  if (x1.sizes().back() != x2.sizes().back()) {
    return call.InvalidOperand(x2, fmt::format("has shape {}, expected rows of {} elements as those of x1 {}",
                                               ShapeText(x2.sizes()), x1.sizes().back(), ShapeText(x1.sizes())));
  }
  const auto batch_of = [](const Operand& operand) { return operand.sizes().first(operand.sizes().size() - 2); };
  if (!Broadcast(batch_of(x1), batch_of(x2), batch)) {
    return call.Invalid(fmt::format("the batch dims of {} do not broadcast", call.InputShapes()),
                        "batch sizes, aligned at the last one, must be equal or 1");
  }
  pairs.rows = x1.sizes()[x1.sizes().size() - 2];
  pairs.others = x2.sizes()[x2.sizes().size() - 2];
  pairs.columns = x1.sizes().back();
  pairs.batch_rank = static_cast<int>(batch.size());
  const auto fill = [&](std::span<const int64_t> own, int64_t* steps) {
    int64_t step = 1;
    for (size_t k = 1; k <= own.size(); ++k) {
      const int64_t size = own[own.size() - k];
      steps[batch.size() - k] = size == 1 ? 0 : step;
      step *= size;
    }
  };
  for (size_t d = 0; d < batch.size(); ++d) pairs.batch[d] = batch[d];
  fill(batch_of(x1), pairs.row_steps);
  fill(batch_of(x2), pairs.other_steps);
  return {};
}

Dims With(const Dims& batch, int64_t a, int64_t b) {
  Dims shape(batch.data(), batch.size());
  shape.push_back(a);
  shape.push_back(b);
  return shape;
}

Status CdistShape(OpCall& call) {
  RowPairs pairs;
  Dims batch;
  REPRISE_RETURN_IF_ERROR(ReadPairs(call, pairs, batch));
  const Dims distances = With(batch, pairs.rows, pairs.others);
  const auto name = [] { return "one distance for each pair of rows, the shape"; };
  if (!call.Has("cdist")) return call.CheckShape(call.outputs[0], distances, name);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("grad"), distances, name));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("cdist"), distances, name));
  return call.CheckShape(call.outputs[0], With(batch, pairs.rows, pairs.columns),
                         [] { return "x1 with the batch of both, the shape"; });
}

// refs: out, x1, x2, for gradients grad and the distances.
void RunCdist(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto data = [&](size_t i) { return launch.Ref(i, memory).data; };
  const auto& pairs = launch.State<RowPairs>();
  const DType type = launch.refs[0].dtype;
  if (launch.refs.size() > 3) {
    return kernels::DistanceGradients(pairs, type, data(3), data(1), data(2), data(4), data(0), range);
  }
  kernels::Distances(pairs, type, data(1), data(2), data(0), range);
}

Status LowerCdist(OpCall& call) {
  auto pairs = std::make_shared<RowPairs>();
  Dims batch;
  REPRISE_RETURN_IF_ERROR(ReadPairs(call, *pairs, batch));
  if (call.outputs[0].tensor->count == 0) return {};
  const DType type = WideFloatOf(call.compute);
  const Dense x1 = DenseInput(call, call.Get("x1"), type);
  const Dense x2 = DenseInput(call, call.Get("x2"), type);
  const Dense out = DenseOutput(call, call.outputs[0], type);
  const bool is_gradient = call.Has("cdist");
  Dense grad, distances;
  if (is_gradient) {
    grad = DenseInput(call, call.Get("grad"), type);
    distances = DenseInput(call, call.Get("cdist"), type);
  }
  Launch& launch = call.AddLaunch(RunCdist);
  out.Write(call, launch);
  x1.Read(call, launch);
  x2.Read(call, launch);
  if (is_gradient) {
    grad.Read(call, launch);
    distances.Read(call, launch);
  }
  launch.units = pairs->batches() * pairs->rows;
  launch.grain = GrainOf((pairs->columns + 1) * (pairs->others + 1));
  launch.state = std::move(pairs);
  out.Store(call);
  return {};
}

Status PdistShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  if (self.rank() != 2) {
    return call.InvalidOperand(self, fmt::format("has shape {}, expected 2 dims", ShapeText(self.sizes())));
  }
  const int64_t rows = self.sizes()[0];
  if (rows > INT32_MAX) return call.InvalidOperand(self, fmt::format("has {} rows, which are too many pairs", rows));
  const int64_t count = rows * (rows - 1) / 2;
  return call.CheckShape(call.outputs[0], {&count, 1}, [] { return "one distance for each pair of rows:"; });
}

void RunPdist(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::OwnDistances(launch.State<RowPairs>(), launch.refs[0].dtype, launch.Ref(1, memory).data,
                        launch.Ref(0, memory).data, range);
}

Status LowerPdist(OpCall& call) {
  auto pairs = std::make_shared<RowPairs>();
  REPRISE_RETURN_IF_ERROR(ReadOrder(call, *pairs));
  const Operand& self = call.inputs[0];
  pairs->rows = self.sizes()[0];
  pairs->columns = self.sizes()[1];
  if (call.outputs[0].tensor->count == 0) return {};
  const DType type = WideFloatOf(call.compute);
  const Dense in = DenseInput(call, self, type);
  const Dense out = DenseOutput(call, call.outputs[0], type);
  Launch& launch = call.AddLaunch(RunPdist);
  out.Write(call, launch);
  in.Read(call, launch);
  launch.units = pairs->rows;
  launch.grain = GrainOf((pairs->columns + 1) * (pairs->rows / 2 + 1));
  launch.state = std::move(pairs);
  out.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/distance.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
