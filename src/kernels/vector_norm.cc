// SPDX-License-Identifier: Apache-2.0
#include "kernels/vector_norm.h"

#include <cmath>
#include <limits>

#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 256;
constexpr int64_t kLanes = 8;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Start(double order) { return order == -kInfinity ? kInfinity : 0.0; }

// NaN wins.
double Larger(double a, double b) { return a > b || a != a ? a : b; }
double Smaller(double a, double b) { return a < b || a != a ? a : b; }

double Join(double a, double b, double order) {
  if (order == kInfinity) return Larger(a, b);
  if (order == -kInfinity) return Smaller(a, b);
  return a + b;
}

// The block is filled up with zeros to whole lanes, which sums do not notice.
template <class Term>
double SumOf(const double* values, int64_t n, Term term) {
  double lanes[kLanes] = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += term(values[i + j]);
  }
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

double BlockPart(double* values, int64_t n, double order) {
  if (std::isinf(order)) {
    double best = Start(order);
    for (int64_t i = 0; i < n; ++i) best = Join(best, std::abs(values[i]), order);
    return best;
  }
  if (order == 0) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += values[i] != 0 ? 1 : 0;
    return static_cast<double>(count);
  }
  if (order != 1 && order != 2) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::pow(std::abs(values[i]), order);
    return sum;
  }
  const int64_t padded = (n + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = n; i < padded; ++i) values[i] = 0;
  if (order == 1) return SumOf(values, padded, [](double x) { return std::abs(x); });
  return SumOf(values, padded, [](double x) { return x * x; });
}

}  // namespace

double NormPart(const TensorRef& x, double order, Range range) {
  double part = Start(order);
  const Loop loop = MakeLoop({&x});
  const CastFn load = FindCast(x.dtype, DType::kDouble);
  alignas(64) double values[kBlock];
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = std::min(kBlock, n - begin);
      load(ptrs[0] + begin * strides[0], strides[0], reinterpret_cast<char*>(values), sizeof(double), count);
      part = Join(part, BlockPart(values, count, order), order);
    }
  });
  return part;
}

double JoinNorms(std::span<const double> parts, double order) {
  double all = parts.empty() ? 0.0 : Start(order);
  for (const double part : parts) all = Join(all, part, order);
  if (order == 0 || order == 1 || std::isinf(order)) return all;
  return order == 2 ? std::sqrt(all) : std::pow(all, 1 / order);
}

}  // namespace reprise::kernels
