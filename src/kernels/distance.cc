// SPDX-License-Identifier: Apache-2.0
#include "kernels/distance.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reprise::kernels {
namespace {

constexpr int64_t kLanes = 8;

template <class T, class Term>
T SumOfTerms(const T* a, const T* b, int64_t n, Term&& term) {
  T lanes[kLanes] = {};
  const int64_t whole = n - n % kLanes;
  for (int64_t m = 0; m < whole; m += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += term(a[m + k] - b[m + k]);
  }
  for (int64_t m = whole; m < n; ++m) lanes[m - whole] += term(a[m] - b[m]);
  T sum = 0;
  for (const T lane : lanes) sum += lane;
  return sum;
}

template <class T>
T LargestDifference(const T* a, const T* b, int64_t n) {
  T largest = 0;
  for (int64_t m = 0; m < n; ++m) {
    const T size = std::abs(a[m] - b[m]);
    if (size > largest || size != size) largest = size;
    if (largest != largest) break;
  }
  return largest;
}

template <class T>
T DistanceOf(double order, const T* a, const T* b, int64_t n) {
  if (order == 2) return std::sqrt(SumOfTerms(a, b, n, [](T d) { return d * d; }));
  if (order == 1) return SumOfTerms(a, b, n, [](T d) { return std::abs(d); });
  if (order == 0) return SumOfTerms(a, b, n, [](T d) { return d == 0 ? T(0) : T(1); });
  if (std::isinf(order)) return LargestDifference(a, b, n);
  const T p = static_cast<T>(order);
  return std::pow(SumOfTerms(a, b, n, [p](T d) { return std::pow(std::abs(d), p); }), 1 / p);
}

template <class T>
T SignOf(T x) {
  return static_cast<T>((x > 0) - (x < 0));
}

// line += grad * gradient of the distance `distance` of a and b with regard to a.
template <class T>
void AddGradient(double order, T grad, T distance, const T* a, const T* b, int64_t n, T* line) {
  if (order == 0 || distance == 0) return;
  if (order == 1) {
    for (int64_t m = 0; m < n; ++m) line[m] += grad * SignOf(a[m] - b[m]);
  } else if (order == 2) {
    const T factor = grad / distance;
    for (int64_t m = 0; m < n; ++m) line[m] += factor * (a[m] - b[m]);
  } else if (std::isinf(order)) {
    for (int64_t m = 0; m < n; ++m) {
      const T d = a[m] - b[m];
      if (std::abs(d) == distance) line[m] += grad * SignOf(d);
    }
  } else {
    const T power = static_cast<T>(order - 1);
    const T factor = grad / std::pow(distance, power);
    for (int64_t m = 0; m < n; ++m) {
      const T d = a[m] - b[m];
      if (d != 0) line[m] += SignOf(d) * std::pow(std::abs(d), power) * factor;
    }
  }
}

// Matrices of the batch that comes at `index`.
struct Matrices {
  int64_t rows = 0;
  int64_t others = 0;
};
Matrices MatricesOf(const RowPairs& pairs, int64_t index) {
  Matrices at;
  for (int d = pairs.batch_rank - 1; d >= 0; --d) {
    const int64_t position = index % pairs.batch[d];
    index /= pairs.batch[d];
    at.rows += position * pairs.row_steps[d];
    at.others += position * pairs.other_steps[d];
  }
  return at;
}

template <class T>
void Run(const RowPairs& pairs, const T* rows, const T* others, T* out, Range units) {
  const int64_t n = pairs.columns;
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const Matrices at = MatricesOf(pairs, unit / pairs.rows);
    const T* row = rows + (at.rows * pairs.rows + unit % pairs.rows) * n;
    const T* other = others + at.others * pairs.others * n;
    for (int64_t j = 0; j < pairs.others; ++j)
      out[unit * pairs.others + j] = DistanceOf(pairs.p, row, other + j * n, n);
  }
}

template <class T>
void RunGradients(const RowPairs& pairs, const T* grad, const T* rows, const T* others, const T* distances, T* out,
                  Range units) {
  const int64_t n = pairs.columns;
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const Matrices at = MatricesOf(pairs, unit / pairs.rows);
    const T* row = rows + (at.rows * pairs.rows + unit % pairs.rows) * n;
    const T* other = others + at.others * pairs.others * n;
    T* line = out + unit * n;
    std::fill_n(line, n, T(0));
    for (int64_t j = 0; j < pairs.others; ++j) {
      const int64_t pair = unit * pairs.others + j;
      AddGradient(pairs.p, grad[pair], distances[pair], row, other + j * n, n, line);
    }
  }
}

template <class T>
void RunOwn(const RowPairs& pairs, const T* rows, T* out, Range units) {
  const int64_t n = pairs.columns;
  for (int64_t i = units.begin; i < units.end; ++i) {
    T* to = out + i * pairs.rows - i * (i + 1) / 2;
    for (int64_t j = i + 1; j < pairs.rows; ++j) *to++ = DistanceOf(pairs.p, rows + i * n, rows + j * n, n);
  }
}

}  // namespace

int64_t RowPairs::batches() const {
  int64_t count = 1;
  for (int d = 0; d < batch_rank; ++d) count *= batch[d];
  return count;
}

void Distances(const RowPairs& pairs, DType type, const void* rows, const void* others, void* out, Range units) {
  if (type == DType::kDouble) {
    return Run(pairs, static_cast<const double*>(rows), static_cast<const double*>(others), static_cast<double*>(out),
               units);
  }
  Run(pairs, static_cast<const float*>(rows), static_cast<const float*>(others), static_cast<float*>(out), units);
}

void DistanceGradients(const RowPairs& pairs, DType type, const void* grad, const void* rows, const void* others,
                       const void* distances, void* out, Range units) {
  if (type == DType::kDouble) {
    return RunGradients(pairs, static_cast<const double*>(grad), static_cast<const double*>(rows),
                        static_cast<const double*>(others), static_cast<const double*>(distances),
                        static_cast<double*>(out), units);
  }
  RunGradients(pairs, static_cast<const float*>(grad), static_cast<const float*>(rows),
               static_cast<const float*>(others), static_cast<const float*>(distances), static_cast<float*>(out),
               units);
}

void OwnDistances(const RowPairs& pairs, DType type, const void* rows, void* out, Range units) {
  if (type == DType::kDouble) {
    return RunOwn(pairs, static_cast<const double*>(rows), static_cast<double*>(out), units);
  }
  RunOwn(pairs, static_cast<const float*>(rows), static_cast<float*>(out), units);
}

}  // namespace reprise::kernels
