// SPDX-License-Identifier: Apache-2.0
#include "kernels/sort.h"

#include "kernels/cast.h"
#include "kernels/order_key.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 256;

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

// Calls fn(self, values, indices) with the begins of rows.
template <class Fn>
void ForEachRowOf(const TensorRef& self, const TensorRef& values, const TensorRef& indices, Range range, Fn&& fn) {
  const TensorRef& other = values.data != nullptr ? values : indices;
  const Loop loop = MakeLoop({&self, &other, indices.data != nullptr ? &indices : &other});
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    for (int64_t i = 0; i < n; ++i) fn(ptrs[0] + i * strides[0], ptrs[1] + i * strides[1], ptrs[2] + i * strides[2]);
  });
}

// Elements of a row at the places of items.
class Gather {
 public:
  Gather(const TensorRef& self, int64_t self_stride, const TensorRef& values, int64_t value_stride,
         const TensorRef& indices, int64_t index_stride)
      : item_(ItemSize(self.dtype)),
        self_stride_(self_stride),
        values_(values),
        value_stride_(value_stride),
        indices_(indices),
        index_stride_(index_stride),
        store_(indices.data != nullptr ? FindCast(DType::kInt64, indices.dtype) : nullptr) {}

  template <class Item>
  void Run(const char* self, const Item* items, int64_t n, char* values, char* indices) const {
    if (values_.data != nullptr) {
      switch (item_) {
        case 1: Copy<uint8_t>(self, items, n, values); break;
        case 2: Copy<uint16_t>(self, items, n, values); break;
        case 4: Copy<uint32_t>(self, items, n, values); break;
        default: Copy<uint64_t>(self, items, n, values);
      }
    }
    if (indices_.data == nullptr) return;
    int64_t places[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = std::min(kBlock, n - begin);
      for (int64_t i = 0; i < count; ++i) places[i] = PlaceOf(items[begin + i]);
      store_(reinterpret_cast<const char*>(places), sizeof(int64_t), indices + begin * index_stride_, index_stride_,
             count);
    }
  }

 private:
  template <class Bits, class Item>
  void Copy(const char* self, const Item* items, int64_t n, char* values) const {
    for (int64_t i = 0; i < n; ++i) {
      *reinterpret_cast<Bits*>(values + i * value_stride_) =
          *reinterpret_cast<const Bits*>(self + PlaceOf(items[i]) * self_stride_);
    }
  }

  int64_t item_;
  int64_t self_stride_;
  const TensorRef& values_;
  int64_t value_stride_;
  const TensorRef& indices_;
  int64_t index_stride_;
  CastFn store_;
};

template <class Item>
void SortRows(const TensorRef& self, int dim, bool descending, const TensorRef& values, const TensorRef& indices,
              Range range, void* scratch) {
  const int64_t n = self.rank == 0 ? 1 : self.sizes[dim];
  const int64_t stride = StrideOf(self, dim);
  const OrderKeys keys(self.dtype, descending);
  const Gather gather(self, stride, values, StrideOf(values, dim), indices, StrideOf(indices, dim));
  auto* items = static_cast<Item*>(scratch);
  ForEachRowOf(WithoutDim(self, dim), WithoutDim(values, dim), WithoutDim(indices, dim), range,
               [&](const char* row, char* value, char* index) {
                 keys.Read(row, stride, n, 0, items);
                 SortItems(items, items + n, n);
                 gather.Run(row, items, n, value, index);
               });
}

template <class Item>
void TopKRows(const TensorRef& self, int64_t k, int dim, bool largest, bool sorted, const TensorRef& values,
              const TensorRef& indices, Range range, void* scratch) {
  const int64_t n = self.rank == 0 ? 1 : self.sizes[dim];
  const int64_t stride = StrideOf(self, dim);
  const OrderKeys keys(self.dtype, largest);
  const Gather gather(self, stride, values, StrideOf(values, dim), indices, StrideOf(indices, dim));
  auto* items = static_cast<Item*>(scratch);
  const int64_t most = 2 * k + kBlock;
  const auto rows = [&](const char* row, char* value, char* index) {
    if (k > n / 4) {  // most of them
      keys.Read(row, stride, n, 0, items);
      if (sorted) {
        SortItems(items, items + n, n);
      } else if (k < n) {
        std::nth_element(items, items + k, items + n);
      }
    } else {
      // Candidates: whatever is better than the k-th best so far.
      Item* block = items + most;
      int64_t count = 0;
      bool is_full = false;
      auto limit = KeyOf(Item{});
      for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t length = std::min(kBlock, n - begin);
        keys.Read(row + begin * stride, stride, length, begin, block);
        if (!is_full) {
          std::copy_n(block, length, items + count);
          count += length;
        } else {
          for (int64_t i = 0; i < length; ++i) {
            if (KeyOf(block[i]) < limit) items[count++] = block[i];
          }
        }
        if (count + kBlock <= most) continue;
        std::nth_element(items, items + k - 1, items + count);
        count = k;
        limit = KeyOf(items[k - 1]);
        is_full = true;
      }
      if (count > k) std::nth_element(items, items + k - 1, items + count);
      if (sorted) std::sort(items, items + k);
    }
    gather.Run(row, items, k, value, index);
  };
  ForEachRowOf(WithoutDim(self, dim), WithoutDim(values, dim), WithoutDim(indices, dim), range, rows);
}

// The item that is chosen of n items.
template <class Item>
Item ChoiceOf(const OrderKeys& keys, RowChoice choice, int64_t rank, Item* items, int64_t n) {
  const auto is_nan = [&](const Item& item) { return keys.IsNan(KeyOf(item)); };
  if (choice != RowChoice::kRank) rank = (n - 1) / 2;
  if (choice == RowChoice::kMedian) {
    if (Item* nan = std::find_if(items, items + n, is_nan); nan != items + n) return *nan;
  } else if (choice == RowChoice::kMedianOfNumbers) {
    // NaN comes behind all numbers.
    const int64_t numbers = n - std::count_if(items, items + n, is_nan);
    rank = numbers == 0 ? 0 : (numbers - 1) / 2;
  }
  Item* middle = items + rank;
  std::nth_element(items, middle, items + n);
  return *middle;
}

template <class Item>
void MedianRows(const TensorRef& self, int dim, RowChoice choice, int64_t rank, const TensorRef& values,
                const TensorRef& indices, Range range, void* scratch) {
  const int64_t n = self.rank == 0 ? 1 : self.sizes[dim];
  const int64_t stride = StrideOf(self, dim);
  const OrderKeys keys(self.dtype, false);
  const Gather gather(self, stride, values, 0, indices, 0);
  auto* items = static_cast<Item*>(scratch);
  ForEachRowOf(WithoutDim(self, dim), values, indices, range, [&](const char* row, char* value, char* index) {
    keys.Read(row, stride, n, 0, items);
    const Item median = ChoiceOf(keys, choice, rank, items, n);
    gather.Run(row, &median, 1, value, index);
  });
}

template <class Item>
void MedianAll(const TensorRef& self, RowChoice choice, const TensorRef& value, void* scratch) {
  const OrderKeys keys(self.dtype, false);
  auto* items = static_cast<Item*>(scratch);
  const Loop loop = MakeLoop({&self});
  int64_t n = 0;
  ForEachRow(loop, {0, loop.count}, [&](char* const* ptrs, const int64_t* strides, int64_t count) {
    keys.Read(ptrs[0], strides[0], count, n, items + n);
    n += count;
  });
  const int64_t place = PlaceOf(ChoiceOf(keys, choice, 0, items, n));
  ForEachRow(loop, {place, place + 1}, [&](char* const* ptrs, const int64_t*, int64_t) {
    std::memcpy(value.data, ptrs[0], static_cast<size_t>(ItemSize(self.dtype)));
  });
}

// ---- Search ----

template <class T>
class Searcher {
 public:
  Searcher(const TensorRef& sequence, const TensorRef& sorter, bool right)
      : stride_(StrideOf(sequence, sequence.rank - 1)),
        sorter_stride_(sorter.data != nullptr ? StrideOf(sorter, sorter.rank - 1) : 0),
        n_(sequence.sizes[sequence.rank - 1]),
        is_plain_(sequence.dtype == DTypeOf<T>()),
        load_(FindCast(sequence.dtype, DTypeOf<T>())),
        load_place_(sorter.data != nullptr ? FindCast(sorter.dtype, DType::kInt64) : nullptr),
        right_(right) {}

  int64_t Find(const char* row, const char* sorter, T x) const {
    int64_t first = 0;
    int64_t count = n_;
    while (count > 0) {
      const int64_t step = count / 2;
      const T middle = At(row, sorter, first + step);
      const bool goes_on = right_ ? !(middle > x) : !(middle >= x);
      if (goes_on) {
        first += step + 1;
        count -= step + 1;
      } else {
        count = step;
      }
    }
    return first;
  }

 private:
  T At(const char* row, const char* sorter, int64_t i) const {
    if (load_place_ != nullptr) {
      int64_t place = 0;
      load_place_(sorter + i * sorter_stride_, 0, reinterpret_cast<char*>(&place), 0, 1);
      i = std::clamp<int64_t>(place, 0, n_ - 1);
    }
    const char* at = row + i * stride_;
    if (is_plain_) return *reinterpret_cast<const T*>(at);
    T value;
    load_(at, 0, reinterpret_cast<char*>(&value), 0, 1);
    return value;
  }

  int64_t stride_;
  int64_t sorter_stride_;
  int64_t n_;
  bool is_plain_;
  CastFn load_;
  CastFn load_place_;
  bool right_;
};

template <class T>
void SearchRows(const TensorRef& sequence, const TensorRef& sorter, const TensorRef& self, bool right,
                const TensorRef& out, Range range) {
  const Searcher<T> searcher(sequence, sorter, right);
  // Rows of sequence and sorter, as views that broadcast along the last dim of self.
  const auto rows_of = [&](const TensorRef& ref) {
    TensorRef view = ref;
    if (ref.data == nullptr || sequence.rank == 1) {
      view.rank = 0;
    } else {
      view.sizes[view.rank - 1] = 1;
    }
    return view;
  };
  const TensorRef sequences = rows_of(sequence);
  TensorRef sorters = rows_of(sorter);
  if (sorter.data == nullptr) sorters.dtype = DType::kInt64;
  const CastFn load = FindCast(self.dtype, DTypeOf<T>());
  const CastFn store = FindCast(DType::kInt64, out.dtype);
  T values[kBlock];
  int64_t found[kBlock];
  ForEachRow(
      MakeLoop({&out, &self, &sequences, &sorters}), range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
        for (int64_t begin = 0; begin < n; begin += kBlock) {
          const int64_t count = std::min(kBlock, n - begin);
          load(ptrs[1] + begin * strides[1], strides[1], reinterpret_cast<char*>(values), sizeof(T), count);
          for (int64_t i = 0; i < count; ++i) {
            const char* row = ptrs[2] + (begin + i) * strides[2];
            const char* places = ptrs[3] != nullptr ? ptrs[3] + (begin + i) * strides[3] : nullptr;
            found[i] = searcher.Find(row, places, values[i]);
          }
          store(reinterpret_cast<const char*>(found), sizeof(int64_t), ptrs[0] + begin * strides[0], strides[0], count);
        }
      });
}

int64_t ItemBytes(DType dtype) { return IsWide(dtype) ? sizeof(WideItem) : sizeof(NarrowItem); }

}  // namespace

int64_t SortScratch(DType dtype, int64_t n) { return 2 * n * ItemBytes(dtype); }
int64_t TopKScratch(DType dtype, int64_t n, int64_t k) {
  return (k > n / 4 ? 2 * n : 2 * k + 2 * kBlock) * ItemBytes(dtype);
}
int64_t MedianScratch(DType dtype, int64_t n) { return n * ItemBytes(dtype); }

void Sort(const TensorRef& self, int dim, bool descending, const TensorRef& values, const TensorRef& indices,
          Range range, void* scratch) {
  if (IsWide(self.dtype)) return SortRows<WideItem>(self, dim, descending, values, indices, range, scratch);
  SortRows<NarrowItem>(self, dim, descending, values, indices, range, scratch);
}

void TopK(const TensorRef& self, int64_t k, int dim, bool largest, bool sorted, const TensorRef& values,
          const TensorRef& indices, Range range, void* scratch) {
  if (IsWide(self.dtype)) {
    return TopKRows<WideItem>(self, k, dim, largest, sorted, values, indices, range, scratch);
  }
  TopKRows<NarrowItem>(self, k, dim, largest, sorted, values, indices, range, scratch);
}

void Median(const TensorRef& self, int dim, RowChoice choice, int64_t rank, const TensorRef& values,
            const TensorRef& indices, Range range, void* scratch) {
  if (IsWide(self.dtype)) return MedianRows<WideItem>(self, dim, choice, rank, values, indices, range, scratch);
  MedianRows<NarrowItem>(self, dim, choice, rank, values, indices, range, scratch);
}

void MedianOfAll(const TensorRef& self, RowChoice choice, const TensorRef& value, void* scratch) {
  if (IsWide(self.dtype)) return MedianAll<WideItem>(self, choice, value, scratch);
  MedianAll<NarrowItem>(self, choice, value, scratch);
}

void SearchSorted(const TensorRef& sequence, const TensorRef& sorter, const TensorRef& self, DType compute, bool right,
                  const TensorRef& out, Range range) {
  if (range.begin >= range.end) return;
  if (compute == DType::kDouble) return SearchRows<double>(sequence, sorter, self, right, out, range);
  if (CategoryOf(compute) == Category::kFloating) return SearchRows<float>(sequence, sorter, self, right, out, range);
  if (compute == DType::kInt32) return SearchRows<int32_t>(sequence, sorter, self, right, out, range);
  if (compute == DType::kUInt64) return SearchRows<uint64_t>(sequence, sorter, self, right, out, range);
  SearchRows<int64_t>(sequence, sorter, self, right, out, range);
}

}  // namespace reprise::kernels
