// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.h"

#include "kernels/arithmetic.h"
#include "kernels/cast.h"
#include "kernels/sum_tree.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kColumns = 64;  // outputs summed side by side

// Self without the kept dims, and self without the reduced ones.
TensorRef SelectDims(const TensorRef& self, uint32_t dim_mask) {
  TensorRef part;
  part.data = self.data;
  part.dtype = self.dtype;
  for (int d = 0; d < self.rank; ++d) {
    if ((dim_mask >> d & 1u) == 0) continue;
    part.sizes[part.rank] = self.sizes[d];
    part.strides[part.rank++] = self.strides[d];
  }
  return part;
}

// The sum for one output at `data`; `reduced` is the loop over its elements.
template <class T>
T SumOne(Loop reduced, const char* data, const RowReader& reader, bool is_plain) {
  constexpr int64_t kItem = sizeof(T);
  reduced.base[0] = const_cast<char*>(data);
  T buffer[kSumBlock];
  int64_t filled = 0;
  SumTree<T, 1> tree;
  ForEachRow(reduced, {0, reduced.count}, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    int64_t done = 0;
    while (done < n) {
      const char* src = ptrs[0] + done * strides[0];
      if (filled == 0 && n - done >= kSumBlock && is_plain && strides[0] == kItem) {
        tree.Push(SumOfBlock(reinterpret_cast<const T*>(src), kSumBlock));
        done += kSumBlock;
        continue;
      }
      const int64_t count = std::min(n - done, kSumBlock - filled);
      reader.Read(src, strides[0], reinterpret_cast<char*>(buffer + filled), kItem, count);
      filled += count;
      done += count;
      if (filled == kSumBlock) {
        tree.Push(SumOfBlock(buffer, kSumBlock));
        filled = 0;
      }
    }
  });
  if (filled != 0) tree.Push(SumOfBlock(buffer, filled));
  T sum;
  tree.Finish(&sum);
  return sum;
}

// The sums for `columns` outputs whose elements lie side by side at `data`.
template <class T>
void SumColumns(Loop reduced, const char* data, int64_t columns, int64_t item, const RowReader& reader, T* sums) {
  reduced.base[0] = const_cast<char*>(data);
  T lanes[kSumLanes][kColumns];
  T row[kColumns] = {};
  int64_t filled = 0;
  SumTree<T, kColumns> tree;
  const auto add_row = [&](const char* src) {
    if (filled == 0) std::fill_n(lanes[0], kSumLanes * kColumns, T{});
    reader.Read(src, item, reinterpret_cast<char*>(row), sizeof(T), columns);
    T* lane = lanes[filled % kSumLanes];
    for (int64_t j = 0; j < kColumns; ++j) lane[j] = AddValue(lane[j], row[j]);
    if (++filled < kSumBlock) return;
    FoldLanes<T, kColumns>(lanes);
    tree.Push(lanes[0]);
    filled = 0;
  };
  ForEachRow(reduced, {0, reduced.count}, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    for (int64_t i = 0; i < n; ++i) add_row(ptrs[0] + i * strides[0]);
  });
  if (filled != 0) {
    FoldLanes<T, kColumns>(lanes);
    tree.Push(lanes[0]);
  }
  tree.Finish(sums);
}

template <class T>
void Sum(const Loop& kept, const Loop& reduced, const TensorRef& self, DType compute, const TensorRef& out,
         Range range) {
  const RowReader reader(self.dtype, compute, DTypeOf<T>());
  const CastFn store = FindCast(DTypeOf<T>(), out.dtype);
  const int64_t item = ItemSize(self.dtype);
  const bool is_plain = self.dtype == DTypeOf<T>() && compute == self.dtype;
  const bool by_columns = kept.strides[0][1] == item && reduced.strides[0][0] != item && kept.sizes[0] >= 4;
  ForEachRow(kept, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    T sums[kColumns];
    for (int64_t begin = 0; begin < n; begin += kColumns) {
      const int64_t count = std::min(kColumns, n - begin);
      if (by_columns) {
        SumColumns<T>(reduced, ptrs[1] + begin * item, count, item, reader, sums);
      } else {
        for (int64_t i = 0; i < count; ++i) {
          sums[i] = SumOne<T>(reduced, ptrs[1] + (begin + i) * strides[1], reader, is_plain);
        }
      }
      store(reinterpret_cast<const char*>(sums), sizeof(T), ptrs[0] + begin * strides[0], strides[0], count);
    }
  });
}

}  // namespace

void ReduceSum(const TensorRef& self, uint32_t dim_mask, DType compute, const TensorRef& out, Range range) {
  if (range.begin >= range.end) return;
  const TensorRef kept_part = SelectDims(self, ~dim_mask);
  const TensorRef reduced_part = SelectDims(self, dim_mask);
  const Loop kept = MakeLoop({&out, &kept_part});
  const Loop reduced = MakeLoop({&reduced_part}, LoopOrder::kRowMajor);
  switch (compute) {
    case DType::kFloat:
    case DType::kFloat16:
    case DType::kBFloat16: return Sum<float>(kept, reduced, self, compute, out, range);
    case DType::kDouble: return Sum<double>(kept, reduced, self, compute, out, range);
    case DType::kComplex64: return Sum<std::complex<float>>(kept, reduced, self, compute, out, range);
    case DType::kComplex128: return Sum<std::complex<double>>(kept, reduced, self, compute, out, range);
    default: return Sum<int64_t>(kept, reduced, self, compute, out, range);
  }
}

}  // namespace reprise::kernels
