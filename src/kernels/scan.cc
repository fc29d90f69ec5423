// SPDX-License-Identifier: Apache-2.0
#include "kernels/scan.h"

#include "kernels/arithmetic.h"
#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 256;
constexpr int64_t kColumns = 64;
constexpr int64_t kRows = 4;  // scanned together, so that one's addition need not wait for the last

TensorRef WithoutDim(TensorRef ref, int dim) {
  if (ref.rank == 0) return ref;
  --ref.rank;
  for (int d = dim; d < ref.rank; ++d) {
    ref.sizes[d] = ref.sizes[d + 1];
    ref.strides[d] = ref.strides[d + 1];
  }
  return ref;
}

int64_t StrideOf(const TensorRef& ref, int dim) { return (ref.rank == 0 ? 1 : ref.strides[dim]) * ItemSize(ref.dtype); }

template <bool is_sum, class T>
inline T Next(T acc, T x) {
  return is_sum ? AddValue(acc, x) : MulValue(acc, x);
}

// What stands between memory and the accumulators.
template <class T>
struct Channel {
  RowReader load;
  CastFn store;
  int64_t in_stride;
  int64_t out_stride;
  int64_t count;

  void Read(const char* src, int64_t stride, T* dst, int64_t n) const {
    load.Read(src, stride, reinterpret_cast<char*>(dst), sizeof(T), n);
  }
  void Write(const T* src, char* dst, int64_t stride, int64_t n) const {
    store(reinterpret_cast<const char*>(src), sizeof(T), dst, stride, n);
  }
};

template <bool is_sum, class T>
void ScanRows(const Channel<T>& channel, char* const* ptrs, const int64_t* strides, int64_t first, int64_t rows) {
  T buffer[kRows][kBlock] = {};
  T acc[kRows];
  std::fill_n(acc, kRows, is_sum ? T{} : T{1});
  for (int64_t begin = 0; begin < channel.count; begin += kBlock) {
    const int64_t n = std::min(kBlock, channel.count - begin);
    for (int64_t r = 0; r < rows; ++r) {
      channel.Read(ptrs[1] + (first + r) * strides[1] + begin * channel.in_stride, channel.in_stride, buffer[r], n);
    }
    if (rows == 1) {
      for (int64_t i = 0; i < n; ++i) buffer[0][i] = acc[0] = Next<is_sum>(acc[0], buffer[0][i]);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t r = 0; r < kRows; ++r) buffer[r][i] = acc[r] = Next<is_sum>(acc[r], buffer[r][i]);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      channel.Write(buffer[r], ptrs[0] + (first + r) * strides[0] + begin * channel.out_stride, channel.out_stride, n);
    }
  }
}

template <bool is_sum, class T>
void ScanColumns(const Channel<T>& channel, char* const* ptrs, const int64_t* strides, int64_t first, int64_t columns) {
  T row[kColumns] = {};
  T acc[kColumns];
  std::fill_n(acc, kColumns, is_sum ? T{} : T{1});
  for (int64_t i = 0; i < channel.count; ++i) {
    channel.Read(ptrs[1] + first * strides[1] + i * channel.in_stride, strides[1], row, columns);
    for (int64_t j = 0; j < kColumns; ++j) acc[j] = Next<is_sum>(acc[j], row[j]);
    channel.Write(acc, ptrs[0] + first * strides[0] + i * channel.out_stride, strides[0], columns);
  }
}

template <bool is_sum, class T>
void RunScan(const TensorRef& self, int dim, DType compute, const TensorRef& out, Range range) {
  // A 16-bit float on its way to float64 is float32 for a moment: vectors do the first step.
  const bool is_narrow = ItemSize(self.dtype) == 2 && self.dtype == compute && std::is_same_v<T, double>;
  const Channel<T> channel{RowReader(self.dtype, is_narrow ? DType::kFloat : compute, DTypeOf<T>()),
                           FindCast(DTypeOf<T>(), out.dtype), StrideOf(self, dim), StrideOf(out, dim),
                           self.rank == 0 ? 1 : self.sizes[dim]};
  const TensorRef out_rows = WithoutDim(out, dim);
  const TensorRef self_rows = WithoutDim(self, dim);
  const Loop loop = MakeLoop({&out_rows, &self_rows});
  const bool by_columns = loop.strides[0][1] == ItemSize(self.dtype) && channel.in_stride != ItemSize(self.dtype);
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    if (by_columns && n >= 4) {
      for (int64_t begin = 0; begin < n; begin += kColumns) {
        ScanColumns<is_sum>(channel, ptrs, strides, begin, std::min(kColumns, n - begin));
      }
    } else {
      for (int64_t begin = 0; begin < n; begin += kRows) {
        ScanRows<is_sum>(channel, ptrs, strides, begin, std::min(kRows, n - begin));
      }
    }
  });
}

template <bool is_max, class T>
void RunExtreme(const TensorRef& self, int dim, const TensorRef& values, const TensorRef& indices, Range range) {
  const TensorRef self_rows = WithoutDim(self, dim);
  const TensorRef value_rows = WithoutDim(values, dim);
  const TensorRef index_rows = WithoutDim(indices, dim);
  const Loop loop = MakeLoop({&value_rows, &self_rows, &index_rows});
  const int64_t count = self.rank == 0 ? 1 : self.sizes[dim];
  const int64_t stride = StrideOf(self, dim);
  const int64_t value_stride = StrideOf(values, dim);
  const int64_t index_stride = StrideOf(indices, dim);
  const CastFn load = FindCast(self.dtype, DTypeOf<T>());
  const CastFn store = FindCast(DTypeOf<T>(), values.dtype);
  const CastFn store_index = FindCast(DType::kInt64, indices.dtype);
  const auto next = [](T x, int64_t place, T& best, int64_t& at) {
    const bool better = x != x || ((is_max ? x >= best : x <= best) && best == best);
    best = better ? x : best;
    at = better ? place : at;
  };
  const bool by_columns = loop.strides[0][1] == ItemSize(self.dtype) && stride != ItemSize(self.dtype);
  T row[kBlock] = {};
  int64_t places[kBlock];
  T best[kColumns] = {};
  int64_t at[kColumns] = {};
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    if (by_columns && n >= 4) {
      for (int64_t begin = 0; begin < n; begin += kColumns) {
        const int64_t columns = std::min(kColumns, n - begin);
        for (int64_t i = 0; i < count; ++i) {
          load(ptrs[1] + begin * strides[1] + i * stride, strides[1], reinterpret_cast<char*>(row), sizeof(T), columns);
          if (i == 0) {
            std::copy_n(row, kColumns, best);
            std::fill_n(at, kColumns, 0);
          } else {
            for (int64_t j = 0; j < kColumns; ++j) next(row[j], i, best[j], at[j]);
          }
          store(reinterpret_cast<const char*>(best), sizeof(T), ptrs[0] + begin * strides[0] + i * value_stride,
                strides[0], columns);
          store_index(reinterpret_cast<const char*>(at), sizeof(int64_t),
                      ptrs[2] + begin * strides[2] + i * index_stride, strides[2], columns);
        }
      }
      return;
    }
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t begin = 0; begin < count; begin += kBlock) {
        const int64_t length = std::min(kBlock, count - begin);
        load(ptrs[1] + r * strides[1] + begin * stride, stride, reinterpret_cast<char*>(row), sizeof(T), length);
        if (begin == 0) {
          best[0] = row[0];
          at[0] = 0;
        }
        T top = best[0];
        int64_t place = at[0];
        for (int64_t i = 0; i < length; ++i) {
          const T x = row[i];
          if (__builtin_expect((!(is_max ? x < top : x > top)) && top == top, 0)) {  // seldom, in most rows
            top = x;
            place = begin + i;
          } else if (x != x) {
            top = x;
            place = begin + i;
          }
          row[i] = top;
          places[i] = place;
        }
        best[0] = top;
        at[0] = place;
        store(reinterpret_cast<const char*>(row), sizeof(T), ptrs[0] + r * strides[0] + begin * value_stride,
              value_stride, length);
        store_index(reinterpret_cast<const char*>(places), sizeof(int64_t),
                    ptrs[2] + r * strides[2] + begin * index_stride, index_stride, length);
      }
    }
  });
}

template <class T>
void RunExtreme(ScanOp op, const TensorRef& self, int dim, const TensorRef& values, const TensorRef& indices,
                Range range) {
  if (op == ScanOp::kMax) return RunExtreme<true, T>(self, dim, values, indices, range);
  RunExtreme<false, T>(self, dim, values, indices, range);
}

template <class T>
void RunScan(ScanOp op, const TensorRef& self, int dim, DType compute, const TensorRef& out, Range range) {
  if (op == ScanOp::kSum) return RunScan<true, T>(self, dim, compute, out, range);
  RunScan<false, T>(self, dim, compute, out, range);
}

}  // namespace

int64_t ScanRowCount(const TensorRef& self, int dim) { return ElementCount(WithoutDim(self, dim)); }

void Scan(ScanOp op, const TensorRef& self, int dim, DType compute, const TensorRef& out, Range range) {
  if (range.begin >= range.end || ElementCount(self) == 0) return;
  switch (CategoryOf(compute)) {
    case Category::kComplex: return RunScan<std::complex<double>>(op, self, dim, compute, out, range);
    case Category::kFloating: return RunScan<double>(op, self, dim, compute, out, range);
    default: return RunScan<int64_t>(op, self, dim, compute, out, range);
  }
}

void ScanExtreme(ScanOp op, const TensorRef& self, int dim, const TensorRef& values, const TensorRef& indices,
                 Range range) {
  if (range.begin >= range.end || ElementCount(self) == 0) return;
  if (self.dtype == DType::kDouble) return RunExtreme<double>(op, self, dim, values, indices, range);
  if (self.dtype == DType::kUInt64) return RunExtreme<uint64_t>(op, self, dim, values, indices, range);
  if (CategoryOf(self.dtype) == Category::kFloating) return RunExtreme<float>(op, self, dim, values, indices, range);
  RunExtreme<int64_t>(op, self, dim, values, indices, range);
}

}  // namespace reprise::kernels
