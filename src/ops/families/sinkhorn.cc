// SPDX-License-Identifier: Apache-2.0
//
// Doubly stochastic matrices by Sinkhorn's iterations: a softmax of the rows, then columns and rows in turns over their
// sums; and the gradient, from what each step left.
#include <algorithm>
#include <cmath>
#include <memory>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/families/stream_parts.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace sinkhorn {
namespace {

using kernels::DType;

constexpr int64_t kExpCost = 16;  // light elements

// What is kept of each step: the matrix behind it, [steps, matrices, n, row], and its sums, [steps, matrices, row].
int64_t KeptRow(int64_t n) { return (n + 7) / 8 * 8; }

int64_t MatricesOf(const Operand& x) {
  const int64_t n = x.sizes().back();
  return n == 0 ? 0 : x.tensor->count / (n * n);
}

Status CheckKept(OpCall& call, std::string_view norm, std::string_view sum, const Operand& x, int64_t steps) {
  const int64_t n = x.sizes().back(), shape[] = {steps, MatricesOf(x), n, KeptRow(n)};
  const int64_t sums[] = {steps, MatricesOf(x), KeptRow(n)};
  const auto what = [] { return "2 * numIters for each matrix, in rows of n rounded up to 8:"; };
  REPRISE_RETURN_IF_ERROR(call.CheckCount(call.Get(norm), shape, what));
  return call.CheckCount(call.Get(sum), sums, what);
}

Status SinkhornShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const auto rank = static_cast<size_t>(x.rank());
  if (rank < 2 || x.sizes()[rank - 1] != x.sizes()[rank - 2] || x.sizes()[rank - 1] > kMostStreams) {
    return call.InvalidOperand(
        x, fmt::format("has shape {}, expected [.., n, n] with n of {} at most", ShapeText(x.sizes()), kMostStreams));
  }
  if (call.Int("numIters") < 1) {
    return call.Invalid(fmt::format("numIters is {}", call.Int("numIters")), "pass 1 or more");
  }
  const bool keeps = call.Find("normOutOptional") != nullptr;
  if (keeps != (call.Find("sumOutOptional") != nullptr)) {
    return call.Invalid("one of normOutOptional and sumOutOptional is null", "pass both, or null for both");
  }
  if (keeps) REPRISE_RETURN_IF_ERROR(CheckKept(call, "normOutOptional", "sumOutOptional", x, 2 * call.Int("numIters")));
  return call.CheckShape(call.Get("out"), x.sizes(), [] { return "the shape of x,"; });
}

struct Iterations {
  int64_t n;
  int64_t count;
  double eps;
};

// Rows by their exponentials, then columns and rows in turns by their sums.
void RunSinkhorn(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<Iterations>();
  const int64_t n = state.n;
  double m[kMostStreams][kMostStreams];
  double sums[kMostStreams];
  const auto divide = [&](bool columns) {
    for (int64_t a = 0; a < n; ++a) {
      double sum = state.eps;
      for (int64_t b = 0; b < n; ++b) sum += columns ? m[b][a] : m[a][b];
      for (int64_t b = 0; b < n; ++b) (columns ? m[b][a] : m[a][b]) /= sum;
      sums[a] = sum;
    }
  };
  auto* const norm_out = DataOf<double>(launch, 2, memory);
  auto* const sum_out = DataOf<double>(launch, 3, memory);
  const int64_t row = KeptRow(n);
  const auto keep = [&](int64_t step, int64_t unit) {
    if (norm_out == nullptr) return;
    const int64_t at = step * launch.units + unit;
    for (int64_t i = 0; i < n; ++i) {
      double* const to = norm_out + (at * n + i) * row;
      std::copy_n(m[i], n, to);
      std::fill(to + n, to + row, 0.0);
    }
    std::copy_n(sums, n, sum_out + at * row);
    std::fill(sum_out + at * row + n, sum_out + (at + 1) * row, 0.0);
  };
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const auto* x = DataOf<double>(launch, 1, memory) + unit * n * n;
    for (int64_t i = 0; i < n; ++i) {
      double most = x[i * n];
      for (int64_t j = 1; j < n; ++j) most = std::max(most, x[i * n + j]);
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) sum += m[i][j] = std::exp(x[i * n + j] - most);
      for (int64_t j = 0; j < n; ++j) m[i][j] = m[i][j] / sum;
      sums[i] = sum;
    }
    keep(0, unit);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) m[i][j] += state.eps;
    }
    divide(true);
    keep(1, unit);
    for (int64_t k = 1; k < state.count; ++k) {
      divide(false);
      keep(2 * k, unit);
      divide(true);
      keep(2 * k + 1, unit);
    }
    auto* out = DataOf<double>(launch, 0, memory) + unit * n * n;
    for (int64_t i = 0; i < n; ++i) std::copy_n(m[i], n, out + i * n);
  }
}

Status LowerSinkhorn(OpCall& call) {
  const Operand& x_operand = call.Get("x");
  const Dense x = DenseInput(call, x_operand, DType::kDouble);
  const Dense out = DenseOutput(call, call.Get("out"), DType::kDouble);
  const Dense norm = DenseOutput(call, call.Find("normOutOptional"), DType::kDouble);
  const Dense sum = DenseOutput(call, call.Find("sumOutOptional"), DType::kDouble);
  Launch& launch = call.AddLaunch(RunSinkhorn);
  out.Write(call, launch);
  x.Read(call, launch);
  norm.Write(call, launch);
  sum.Write(call, launch);
  const int64_t n = x_operand.sizes().back();
  launch.state = std::make_shared<Iterations>(Iterations{n, call.Int("numIters"), call.Real("eps")});
  launch.units = MatricesOf(x_operand);
  launch.grain = GrainOf(n * n * (kExpCost + 4 * call.Int("numIters")));
  for (const Dense* output : {&out, &norm, &sum}) output->Store(call);
  return {};
}

// How many steps sumOut holds; 0 for what is none.
int64_t StepsOf(const OpCall& call) {
  const Operand& grad = call.Get("gradOutput");
  const int64_t each = MatricesOf(grad) * KeptRow(grad.sizes().back());
  const int64_t steps = each == 0 ? 2 : call.Get("sumOut").tensor->count / each;
  return steps % 2 == 0 ? steps : 0;
}

Status SinkhornBackwardShape(OpCall& call) {
  const Operand& grad = call.Get("gradOutput");
  const auto rank = static_cast<size_t>(grad.rank());
  if (rank < 2 || grad.sizes()[rank - 1] != grad.sizes()[rank - 2] || grad.sizes()[rank - 1] > kMostStreams) {
    return call.InvalidOperand(grad, fmt::format("has shape {}, expected [.., n, n] with n of {} at most",
                                                 ShapeText(grad.sizes()), kMostStreams));
  }
  if (MatricesOf(grad) != 0) {
    if (StepsOf(call) == 0) {
      return call.InvalidOperand(
          call.Get("sumOut"),
          fmt::format("has {} elements, expected 2 * numIters rows of {} for each "
                      "matrix of gradOutput {}",
                      call.Get("sumOut").tensor->count, KeptRow(grad.sizes().back()), ShapeText(grad.sizes())));
    }
    REPRISE_RETURN_IF_ERROR(CheckKept(call, "normOut", "sumOut", grad, StepsOf(call)));
  }
  return call.CheckShape(call.Get("out"), grad.sizes(), [] { return "the shape of gradOutput,"; });
}

// refs: out, gradOutput, normOut, sumOut. Steps backwards: divisions by sums of columns and rows in turns, the softmax.
void RunSinkhornBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t n = launch.ints[0], steps = launch.ints[1], row = KeptRow(n);
  double g[kMostStreams][kMostStreams];
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const auto* grad = DataOf<double>(launch, 1, memory) + unit * n * n;
    for (int64_t i = 0; i < n; ++i) std::copy_n(grad + i * n, n, g[i]);
    for (int64_t step = steps - 1; step >= 0; --step) {
      const int64_t at = step * launch.units + unit;
      const auto* y = DataOf<double>(launch, 2, memory) + at * n * row;
      const auto* sums = DataOf<double>(launch, 3, memory) + at * row;
      const bool columns = step % 2 == 1;
      for (int64_t a = 0; a < n; ++a) {
        double dot = 0;
        for (int64_t b = 0; b < n; ++b) dot += columns ? g[b][a] * y[b * row + a] : g[a][b] * y[a * row + b];
        for (int64_t b = 0; b < n; ++b) {
          double& value = columns ? g[b][a] : g[a][b];
          value = step == 0 ? (value - dot) * y[a * row + b] : (value - dot) / sums[a];
        }
      }
    }
    auto* out = DataOf<double>(launch, 0, memory) + unit * n * n;
    for (int64_t i = 0; i < n; ++i) std::copy_n(g[i], n, out + i * n);
  }
}

Status LowerSinkhornBackward(OpCall& call) {
  const Operand& grad_operand = call.Get("gradOutput");
  const Dense grad = DenseInput(call, grad_operand, DType::kDouble);
  const Dense norm = DenseInput(call, call.Get("normOut"), DType::kDouble);
  const Dense sum = DenseInput(call, call.Get("sumOut"), DType::kDouble);
  const Dense out = DenseOutput(call, call.Get("out"), DType::kDouble);
  Launch& launch = call.AddLaunch(RunSinkhornBackward);
  out.Write(call, launch);
  for (const Dense* input : {&grad, &norm, &sum}) input->Read(call, launch);
  const int64_t n = grad_operand.sizes().back();
  launch.ints.push_back(n);
  launch.ints.push_back(StepsOf(call));
  launch.units = MatricesOf(grad_operand);
  launch.grain = GrainOf(4 * n * n * StepsOf(call));
  out.Store(call);
  return {};
}

}  // namespace
}  // namespace sinkhorn

using sinkhorn::LowerSinkhorn;
using sinkhorn::LowerSinkhornBackward;
using sinkhorn::SinkhornBackwardShape;
using sinkhorn::SinkhornShape;

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/sinkhorn.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
