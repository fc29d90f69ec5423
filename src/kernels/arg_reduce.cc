// SPDX-License-Identifier: Apache-2.0
#include "kernels/arg_reduce.h"

#include "kernels/cast.h"
#include "kernels/reduce.h"
#include "kernels/simd/fold.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kColumns = 256;

template <class T>
inline bool IsBetter(bool is_max, T x, T best) {
  return ((is_max ? x > best : x < best) || x != x) && best == best;
}

TensorRef WithoutDim(TensorRef ref, int dim) {
  if (ref.rank == 0) return ref;
  --ref.rank;
  for (int d = dim; d < ref.rank; ++d) {
    ref.sizes[d] = ref.sizes[d + 1];
    ref.strides[d] = ref.strides[d + 1];
  }
  return ref;
}

// uint64 takes the place of the int64 with the same rank.
template <class T>
void Flip([[maybe_unused]] DType self, [[maybe_unused]] T* x, [[maybe_unused]] int64_t n) {
  if constexpr (std::is_same_v<T, int64_t>) {
    if (self != DType::kUInt64) return;
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<int64_t>(static_cast<uint64_t>(x[i]) ^ uint64_t{1} << 63);
  }
}

template <class T>
struct Best {
  T value;
  int64_t index;
};

template <class T>
class Search {
 public:
  Search(bool is_max, const TensorRef& self, int dim)
      : is_max_(is_max),
        self_(self.dtype),
        stride_((self.rank == 0 ? 1 : self.strides[dim]) * ItemSize(self.dtype)),
        item_(ItemSize(self.dtype)),
        load_(FindCast(self.dtype, DTypeOf<T>())),
        is_plain_(self.dtype == DTypeOf<T>()) {
    if constexpr (std::is_same_v<T, float>) block_ = simd::FindExtremeBlock(is_max);
  }

  /// For one output whose elements begin at `data`.
  Best<T> One(const char* data, Range part) const {
    T buffer[kBlock];
    Best<T> best{T{}, -1};
    for (int64_t begin = part.begin; begin < part.end; begin += kBlock) {
      const int64_t n = std::min(kBlock, part.end - begin);
      const char* src = data + begin * stride_;
      const T* x = buffer;
      if (is_plain_ && stride_ == item_) {
        x = reinterpret_cast<const T*>(src);
      } else {
        load_(src, stride_, reinterpret_cast<char*>(buffer), sizeof(T), n);
        Flip(self_, buffer, n);
      }
      T extreme = x[0];
      if constexpr (std::is_same_v<T, float>) {
        block_(x, n, nullptr, &extreme);
      } else {
        for (int64_t i = 1; i < n; ++i) extreme = IsBetter(is_max_, x[i], extreme) ? x[i] : extreme;
      }
      if (best.index >= 0 && !IsBetter(is_max_, extreme, best.value)) continue;
      int64_t at = 0;
      if (extreme == extreme) {
        while (x[at] != extreme) ++at;
      } else {
        while (x[at] == x[at]) ++at;
      }
      best = {extreme, begin + at};
    }
    return best;
  }

  /// For outputs that lie side by side at `data`.
  template <bool is_max>
  void Columns(const char* data, int64_t columns, Range part, T* values, int64_t* indices) const {
    // Indices as wide as the values, so that both fit vectors alike; relative to the part, which is short.
    using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    T row[kColumns] = {};
    T best[kColumns];
    Index at[kColumns] = {};
    const int64_t padded = (columns + 15) / 16 * 16;
    for (int64_t i = part.begin; i < part.end; ++i) {
      load_(data + i * stride_, item_, reinterpret_cast<char*>(row), sizeof(T), columns);
      Flip(self_, row, columns);
      if (i == part.begin) {
        std::copy_n(row, padded, best);
        continue;
      }
      const auto place = static_cast<Index>(i - part.begin);
      for (int64_t j = 0; j < padded; ++j) {
        const bool better = static_cast<bool>(((is_max ? row[j] > best[j] : row[j] < best[j]) | (row[j] != row[j])) &
                                              (best[j] == best[j]));
        best[j] = better ? row[j] : best[j];
        at[j] = better ? place : at[j];
      }
    }
    for (int64_t j = 0; j < columns; ++j) {
      values[j] = best[j];
      indices[j] = part.begin + at[j];
    }
  }

  /// For `columns` (at most kColumns) outputs whose elements begin `stride` apart.
  void Run(const char* data, int64_t stride, int64_t columns, Range part, T* values, int64_t* indices) const {
    if (stride == item_ && stride_ != item_ && columns >= 4 && part.end - part.begin < INT32_MAX) {
      if (is_max_) return Columns<true>(data, columns, part, values, indices);
      return Columns<false>(data, columns, part, values, indices);
    }
    for (int64_t j = 0; j < columns; ++j) {
      const Best<T> best = One(data + j * stride, part);
      values[j] = best.value;
      indices[j] = best.index;
    }
  }

 private:
  bool is_max_;
  DType self_;
  int64_t stride_;
  int64_t item_;
  CastFn load_;
  bool is_plain_;
  simd::BlockFn block_ = nullptr;
};

template <class T>
void Store([[maybe_unused]] DType self, T* values, const TensorRef& out, char* to, int64_t stride, int64_t n) {
  if (out.data == nullptr) return;
  Flip(self, values, n);
  FindCast(self == DType::kUInt64 ? self : DTypeOf<T>(), out.dtype)(reinterpret_cast<const char*>(values), sizeof(T),
                                                                    to, stride, n);
}

template <class Fn>
void DispatchStage(DType self, Fn&& fn) {
  switch (ArgReduceStage(self)) {
    case DType::kFloat: return fn(TypeTag<float>{});
    case DType::kDouble: return fn(TypeTag<double>{});
    case DType::kInt64: return fn(TypeTag<int64_t>{});
    default: return fn(TypeTag<int32_t>{});
  }
}

}  // namespace

DType ArgReduceStage(DType self) { return ReduceStage({ReduceOp::kMax, self}); }

void ArgReduce(bool is_max, const TensorRef& self, int dim, const TensorRef& values, const TensorRef& indices,
               Range range) {
  if (range.begin >= range.end) return;
  const TensorRef kept_part = WithoutDim(self, dim);
  const Loop kept = MakeLoop({&indices, &kept_part, values.data != nullptr ? &values : &indices});
  const Range all{0, self.rank == 0 ? 1 : self.sizes[dim]};
  const CastFn store_index = FindCast(DType::kInt64, indices.dtype);
  DispatchStage(self.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const Search<T> search(is_max, self, dim);
    T best[kColumns];
    int64_t at[kColumns];
    ForEachRow(kept, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
      for (int64_t begin = 0; begin < n; begin += kColumns) {
        const int64_t count = std::min(kColumns, n - begin);
        search.Run(ptrs[1] + begin * strides[1], strides[1], count, all, best, at);
        store_index(reinterpret_cast<const char*>(at), sizeof(int64_t), ptrs[0] + begin * strides[0], strides[0],
                    count);
        Store(self.dtype, best, values, ptrs[2] + begin * strides[2], strides[2], count);
      }
    });
  });
}

void ArgReduceParts(bool is_max, const TensorRef& self, int dim, const TensorRef& values, const TensorRef& indices,
                    Range range) {
  if (range.begin >= range.end) return;
  const TensorRef kept_part = WithoutDim(self, dim);
  TensorRef row = MakeContiguous(indices.data, indices.dtype, indices.rank - 1, indices.sizes + 1);
  const int64_t outputs = ElementCount(row);
  DispatchStage(self.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const Search<T> search(is_max, self, dim);
    for (int64_t part = range.begin / outputs; part * outputs < range.end; ++part) {
      row.data = static_cast<int64_t*>(indices.data) + part * outputs;
      const Loop kept = MakeLoop({&row, &kept_part});
      const Range columns{std::max<int64_t>(0, range.begin - part * outputs),
                          std::min(outputs, range.end - part * outputs)};
      const Range elements{part * kArgReducePart, std::min(self.sizes[dim], (part + 1) * kArgReducePart)};
      ForEachRow(kept, columns, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
        auto* at = reinterpret_cast<int64_t*>(ptrs[0]);
        T* best = static_cast<T*>(values.data) + (at - static_cast<int64_t*>(indices.data));
        for (int64_t begin = 0; begin < n; begin += kColumns) {
          search.Run(ptrs[1] + begin * strides[1], strides[1], std::min(kColumns, n - begin), elements, best + begin,
                     at + begin);
        }
      });
    }
  });
}

void ArgReducePartials(bool is_max, DType self, const TensorRef& part_values, const TensorRef& part_indices,
                       const TensorRef& values, const TensorRef& indices, Range range) {
  if (range.begin >= range.end) return;
  const TensorRef row = MakeContiguous(part_indices.data, DType::kInt64, part_indices.rank - 1, part_indices.sizes + 1);
  const int64_t outputs = ElementCount(row);
  const Loop kept = MakeLoop({&indices, &row, values.data != nullptr ? &values : &indices});
  const CastFn store_index = FindCast(DType::kInt64, indices.dtype);
  DispatchStage(self, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    ForEachRow(kept, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const auto* at = reinterpret_cast<const int64_t*>(ptrs[1] + i * strides[1]);
        const T* value =
            static_cast<const T*>(part_values.data) + (at - static_cast<const int64_t*>(part_indices.data));
        int64_t part = 0;
        for (int64_t p = 1; p < part_indices.sizes[0]; ++p) {
          if (IsBetter(is_max, value[p * outputs], value[part * outputs])) part = p;
        }
        T best = value[part * outputs];
        store_index(reinterpret_cast<const char*>(at + part * outputs), 0, ptrs[0] + i * strides[0], 0, 1);
        Store(self, &best, values, ptrs[2] + i * strides[2], 0, 1);
      }
    });
  });
}

}  // namespace reprise::kernels
