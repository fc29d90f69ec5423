// SPDX-License-Identifier: Apache-2.0
#include "kernels/projections.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/plane.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 512;

using Numbers = Staged<double>;

double Apply(RowFunction function, double x, double other) {
  constexpr double kFast = 1.702;
  switch (function) {
    case RowFunction::kNone: return x;
    case RowFunction::kRelu: return x > 0 || std::isnan(x) ? x : 0;
    case RowFunction::kGelu: return 0.5 * x * std::erfc(-x * M_SQRT1_2);
    case RowFunction::kGeluTanh: return 0.5 * x * (1 + std::tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
    case RowFunction::kFastGelu: return x / (1 + std::exp(-kFast * x));
    case RowFunction::kSilu: return x / (1 + std::exp(-x));
    case RowFunction::kAdd: return x + other;
    case RowFunction::kMul: return x * other;
  }
  return x;
}

template <class T>
T LoadAt(const TensorRef* ref, int64_t index, T missing) {
  if (ref == nullptr) return missing;
  T value;
  FindCast(ref->dtype, DTypeOf<T>())(ElementAt(*ref, OffsetOf(*ref, ref->rank, index)), 0,
                                     reinterpret_cast<char*>(&value), sizeof(T), 1);
  return value;
}

// `n` numbers from row-major element `begin` on, which is the begin of a row or within one.
template <class T>
void LoadRow(const TensorRef& ref, int64_t begin, int64_t n, T* to) {
  const int64_t stride = ref.strides[ref.rank - 1];
  FindCast(ref.dtype, DTypeOf<T>())(ElementAt(ref, OffsetOf(ref, ref.rank, begin)), stride * ItemSize(ref.dtype),
                                    reinterpret_cast<char*>(to), sizeof(T), n);
}

template <class T>
void StoreRow(const TensorRef& ref, int64_t begin, int64_t n, const T* from) {
  const int64_t stride = ref.strides[ref.rank - 1];
  FindCast(DTypeOf<T>(), ref.dtype)(reinterpret_cast<const char*>(from), sizeof(T),
                                    ElementAt(ref, OffsetOf(ref, ref.rank, begin)), stride * ItemSize(ref.dtype), n);
}

}  // namespace

void FuseRows(RowFunction function, const TensorRef& x, const TensorRef* other, const TensorRef& out, Range range) {
  const Numbers xs(x);
  const Numbers outs(out);
  std::optional<Numbers> others;
  if (other != nullptr) others.emplace(*other);
  double block[kBlock];
  double other_block[kBlock];
  double result[kBlock];
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, range.end - begin);
    const double* const row = xs.Read(begin, n, block);
    const double* const second = others ? others->Read(begin, n, other_block) : row;
    double* const to = outs.Target(begin, result);
    for (int64_t i = 0; i < n; ++i) to[i] = Apply(function, row[i], second[i]);
    outs.Write(begin, n, result);
  }
}

int64_t AddLoraScratchBytes(const LoraRows& rows) {
  const int64_t rank = rows.b->sizes[3];
  const int64_t widest = std::max({rank, rows.x->sizes[1], rows.y->sizes[1]});
  return 4 * ScratchCutter::Bytes<double>(widest);
}

void AddLora(const LoraRows& rows, void* scratch, Range range) {
  const int64_t depth = rows.x->sizes[1];
  const int64_t columns = rows.y->sizes[1];
  const int64_t rank = rows.b->sizes[3];
  const int64_t layers = rows.b->sizes[1];
  const int64_t widest = std::max({rank, depth, columns});
  ScratchCutter cutter(scratch);
  double* const x = cutter.Cut<double>(widest);
  double* const narrow = cutter.Cut<double>(widest);
  double* const line = cutter.Cut<double>(widest);
  double* const y = cutter.Cut<double>(widest);
  for (int64_t row = range.begin; row < range.end; ++row) {
    LoadRow(*rows.y, row * columns, columns, y);
    const auto index = LoadAt<int64_t>(rows.indices, row, -1);
    if (index >= 0 && index < rows.b->sizes[0]) {
      const int64_t matrix = index * layers + rows.layer;
      LoadRow(*rows.x, row * depth, depth, x);
      const double* left = x;
      if (rows.a != nullptr) {
        for (int64_t r = 0; r < rank; ++r) {
          LoadRow(*rows.a, (matrix * rank + r) * depth, depth, line);
          double sum = 0;
          for (int64_t i = 0; i < depth; ++i) sum += x[i] * line[i];
          narrow[r] = sum;
        }
        left = narrow;
      }
      for (int64_t j = 0; j < rows.width; ++j) {
        LoadRow(*rows.b, (matrix * rows.b->sizes[2] + j) * rank, rank, line);
        double sum = 0;
        for (int64_t r = 0; r < rank; ++r) sum += left[r] * line[r];
        y[rows.offset + j] += rows.scale * sum;
      }
    }
    StoreRow(*rows.out, row * columns, columns, y);
  }
}

}  // namespace reprise::kernels
