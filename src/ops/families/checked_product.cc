// SPDX-License-Identifier: Apache-2.0
//
// Whether a matrix is the product of two others, told by weighted sums of parts of its rows.
#include <cmath>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

constexpr int64_t kPartColumns = 256;
constexpr int64_t kRowsOfByte = 8;
constexpr double kDeviations = 2.5;

struct CheckedProduct {
  int64_t rows, inner, columns;
  double most_error;

  int64_t parts() const { return (columns + kPartColumns - 1) / kPartColumns; }
  int64_t bytes_of_part() const { return (rows + kRowsOfByte - 1) / kRowsOfByte; }
  int64_t BeginOf(int64_t part) const { return part * kPartColumns; }
  int64_t CountOf(int64_t part) const { return std::min(kPartColumns, columns - BeginOf(part)); }
};

// Sum, mean and variance of numbers.
struct Moments {
  double sum = 0, mean = 0, variance = 0;

  template <class At>
  static Moments Of(int64_t count, At at) {
    Moments m;
    for (int64_t i = 0; i < count; ++i) m.sum += at(i);
    m.mean = count == 0 ? 0 : m.sum / static_cast<double>(count);
    for (int64_t i = 0; i < count; ++i) m.variance += (at(i) - m.mean) * (at(i) - m.mean);
    if (count != 0) m.variance /= static_cast<double>(count);
    return m;
  }
};

CheckedProduct ProductOf(const OpCall& call) {
  const std::span<const int64_t> a = call.Get("a").sizes();
  return {a[0], a[1], call.Get("b").sizes()[1], call.Real("eMax")};
}

Status CheckedTypes(OpCall& call) {
  call.compute = call.Get("a").dtype;
  for (const char* name : {"b", "checksumWeight"}) {
    const Operand& operand = call.Get(name);
    if (operand.dtype == call.compute) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected the type {} of a", kernels::Name(operand.dtype),
                                                    kernels::Name(call.compute)));
  }
  return {};
}

Status CheckedShape(OpCall& call) {
  for (const char* name : {"a", "b"}) {
    const Operand& operand = call.Get(name);
    if (operand.rank() == 2) continue;
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected two dims", ShapeText(operand.sizes())));
  }
  const CheckedProduct product = ProductOf(call);
  const Operand& b = call.Get("b");
  if (b.sizes()[0] != product.inner) {
    return call.InvalidOperand(
        b, fmt::format("has shape {}, expected the {} columns of a as rows", ShapeText(b.sizes()), product.inner));
  }
  if (!(product.most_error >= 0))
    return call.Invalid(fmt::format("eMax is {}, expected 0 or more", product.most_error));
  const int64_t shape[] = {product.rows, product.columns};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("c"), shape, [] { return "rows of a, columns of b:"; }));
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("checksumWeight"), {&product.columns, 1}, [] { return "columns of b:"; }));
  const int64_t bytes = product.bytes_of_part() * product.parts();
  return call.CheckShape(call.Get("compRow"), {&bytes, 1},
                         [] { return "a byte for 8 rows, in each part of 256 columns:"; });
}

// refs: sums, means and variances [3, part, inner]; b, weight. A unit is a row of b.
void RunWeigh(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& p = launch.State<CheckedProduct>();
  const int64_t plane = p.parts() * p.inner;
  const float* const weight = DataOf<float>(launch, 2, memory);
  for (int64_t k = range.begin; k < range.end; ++k) {
    for (int64_t part = 0; part < p.parts(); ++part) {
      const float* const row = DataOf<float>(launch, 1, memory) + k * p.columns + p.BeginOf(part);
      const float* const of_part = weight + p.BeginOf(part);
      const Moments m = Moments::Of(
          p.CountOf(part), [&](int64_t i) { return static_cast<double>(row[i]) * static_cast<double>(of_part[i]); });
      double* const to = DataOf<double>(launch, 0, memory) + part * p.inner + k;
      to[0] = m.sum;
      to[plane] = m.mean;
      to[2 * plane] = m.variance;
    }
  }
}

// What the rows of b have together in a part.
struct PartTotals {
  double means = 0, squares = 0, variances = 0;
};

// The most that a sum of a part may be off: a share of what it would be, if the elements of a row of a, and those of
// each row of b, had their mean and their deviation and nothing else in common.
double Threshold(const CheckedProduct& p, double count, const Moments& row, const PartTotals& part) {
  const double mean = count * row.mean * part.means;
  const double variance = count * row.mean * row.mean * part.variances + count * count * row.variance * part.squares +
                          count * row.variance * part.variances;
  return p.most_error * (std::abs(mean) + kDeviations * std::sqrt(variance));
}

// refs: verdicts; a, c, weight, what RunWeigh found. A unit is a byte of a part: 8 rows.
void RunCompare(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& p = launch.State<CheckedProduct>();
  const int64_t plane = p.parts() * p.inner;
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t part = unit / p.bytes_of_part();
    const int64_t first = unit % p.bytes_of_part() * kRowsOfByte;
    const float* const weight = DataOf<float>(launch, 3, memory) + p.BeginOf(part);
    const double* const sums = DataOf<double>(launch, 4, memory) + part * p.inner;
    PartTotals totals;
    for (int64_t k = 0; k < p.inner; ++k) {
      totals.means += sums[plane + k];
      totals.squares += sums[plane + k] * sums[plane + k];
      totals.variances += sums[2 * plane + k];
    }
    unsigned verdicts = 0xFF;
    for (int64_t i = first; i < std::min(first + kRowsOfByte, p.rows); ++i) {
      const float* const a = DataOf<float>(launch, 1, memory) + i * p.inner;
      const float* const c = DataOf<float>(launch, 2, memory) + i * p.columns + p.BeginOf(part);
      const Moments row = Moments::Of(p.inner, [a](int64_t k) { return static_cast<double>(a[k]); });
      double expected = 0, found = 0;
      for (int64_t k = 0; k < p.inner; ++k) expected += static_cast<double>(a[k]) * sums[k];
      for (int64_t j = 0; j < p.CountOf(part); ++j) found += static_cast<double>(c[j]) * static_cast<double>(weight[j]);
      const double most = Threshold(p, static_cast<double>(p.CountOf(part)), row, totals);
      const bool is_right = std::abs(found - expected) <= most;  // not for NaN
      if (!is_right) verdicts &= ~(1U << (i - first));
    }
    DataOf<uint8_t>(launch, 0, memory)[unit] = static_cast<uint8_t>(verdicts);
  }
}

Status LowerChecked(OpCall& call) {
  const auto product = std::make_shared<CheckedProduct>(ProductOf(call));
  const Dense a = DenseInput(call, call.Get("a"), DType::kFloat);
  const Dense b = DenseInput(call, call.Get("b"), DType::kFloat);
  const Dense c = DenseInput(call, call.Get("c"), DType::kFloat);
  const Dense weight = DenseInput(call, call.Get("checksumWeight"), DType::kFloat);
  const Dense verdicts = DenseOutput(call, call.Get("compRow"), DType::kUInt8);
  const int64_t planes[] = {3, product->parts(), product->inner};
  const Dense found = DenseTemporary(call, DType::kDouble, planes);

  Launch& weigh = call.AddLaunch(RunWeigh);
  found.Write(call, weigh);
  b.Read(call, weigh);
  weight.Read(call, weigh);
  weigh.state = product;
  weigh.units = product->inner;
  weigh.grain = GrainOf(3 * product->columns);
  Launch& compare = call.AddLaunch(RunCompare);
  verdicts.Write(call, compare);
  for (const Dense* input : {&a, &c, &weight, &found}) input->Read(call, compare);
  compare.state = product;
  compare.units = product->bytes_of_part() * product->parts();
  compare.grain = GrainOf(kRowsOfByte * (4 * product->inner + kPartColumns));
  verdicts.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/checked_product.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
