// SPDX-License-Identifier: Apache-2.0
#include "kernels/unique.h"

#include "kernels/cast.h"
#include "kernels/order_key.h"

namespace reprise::kernels {
namespace {

// Element `place` of a view in row-major order.
char* AddressOf(const TensorRef& ref, int64_t place) {
  int64_t offset = 0;
  for (int d = ref.rank - 1; d >= 0; --d) {
    offset += place % ref.sizes[d] * ref.strides[d];
    place /= ref.sizes[d];
  }
  return static_cast<char*>(ref.data) + offset * ItemSize(ref.dtype);
}

// Stores integers into a view by row-major place.
class IndexWriter {
 public:
  explicit IndexWriter(const TensorRef& ref)
      : ref_(ref), store_(ref.data != nullptr ? FindCast(DType::kInt64, ref.dtype) : nullptr) {
    if (ref.data != nullptr && ref.dtype == DType::kInt64 && IsContiguous(ref))
      plain_ = static_cast<int64_t*>(ref.data);
  }
  void Put(int64_t place, int64_t value) const {
    if (plain_ != nullptr) {
      plain_[place] = value;
    } else if (store_ != nullptr) {
      store_(reinterpret_cast<const char*>(&value), 0, AddressOf(ref_, place), 0, 1);
    }
  }

 private:
  const TensorRef& ref_;
  CastFn store_;
  int64_t* plain_ = nullptr;
};

// Three-way comparison and equality of rows.
using CompareFn = int (*)(const char* a, const char* b, int64_t n);

template <class T>
int CompareRows(const char* a_at, const char* b_at, int64_t n) {
  using M = std::conditional_t<std::is_same_v<T, Bool>, bool, MathType<T>>;
  const T* a = reinterpret_cast<const T*>(a_at);
  const T* b = reinterpret_cast<const T*>(b_at);
  if constexpr (!kIsComplex<T>) {
    for (int64_t i = 0; i < n; ++i) {
      const M x = static_cast<M>(a[i]);
      const M y = static_cast<M>(b[i]);
      if (x < y || (x == x && y != y)) return -1;
      if (y < x || (x != x && y == y)) return 1;
    }
  }
  return 0;
}

template <class T>
int RowsDiffer(const char* a_at, const char* b_at, int64_t n) {
  using M = std::conditional_t<std::is_same_v<T, Bool>, bool, MathType<T>>;
  const T* a = reinterpret_cast<const T*>(a_at);
  const T* b = reinterpret_cast<const T*>(b_at);
  for (int64_t i = 0; i < n; ++i) {
    if (!(static_cast<M>(a[i]) == static_cast<M>(b[i]))) return 1;
  }
  return 0;
}

CompareFn FindCompare(DType dtype, bool only_equality) {
  return DispatchAll(dtype, [only_equality](auto tag) -> CompareFn {
    using T = typename decltype(tag)::Type;
    return only_equality ? &RowsDiffer<T> : &CompareRows<T>;
  });
}

// Numbers runs as elements arrive and writes what belongs to them.
class Runs {
 public:
  explicit Runs(const UniqueOutputs& outputs) : inverse_(outputs.inverse), counts_(outputs.counts) {}

  /// The element that was at `place` of self; returns the number of its run.
  int64_t Add(bool begins, int64_t place) {
    if (begins) {
      End();
      ++runs_;
      length_ = 0;
    }
    ++length_;
    inverse_.Put(place, runs_ - 1);
    return runs_ - 1;
  }
  int64_t Finish() {
    End();
    return runs_;
  }

 private:
  void End() {
    if (runs_ != 0) counts_.Put(runs_ - 1, length_);
  }

  IndexWriter inverse_;
  IndexWriter counts_;
  int64_t runs_ = 0;
  int64_t length_ = 0;
};

template <class Item>
int64_t SortedUnique(const TensorRef& self, const UniqueOutputs& outputs, void* scratch) {
  const OrderKeys keys(self.dtype, false);
  const Loop loop = MakeLoop({&self}, LoopOrder::kRowMajor);
  auto* items = static_cast<Item*>(scratch);
  int64_t n = 0;
  ForEachRow(loop, {0, loop.count}, [&](char* const* ptrs, const int64_t* strides, int64_t count) {
    keys.Read(ptrs[0], strides[0], count, n, items + n);
    n += count;
  });
  SortItems(items, items + n, n);
  const auto item_bytes = static_cast<size_t>(ItemSize(self.dtype));
  const bool is_plain = IsContiguous(self);
  char* value = static_cast<char*>(outputs.values.data);
  const int64_t stride = outputs.values.strides[0] * static_cast<int64_t>(item_bytes);
  Runs runs(outputs);
  for (int64_t i = 0; i < n; ++i) {
    const bool begins = i == 0 || KeyOf(items[i]) != KeyOf(items[i - 1]) || keys.IsNan(KeyOf(items[i]));
    const int64_t place = PlaceOf(items[i]);
    const int64_t run = runs.Add(begins, place);
    if (!begins) continue;
    const char* src = is_plain ? static_cast<const char*>(self.data) + place * static_cast<int64_t>(item_bytes)
                               : AddressOf(self, place);
    std::memcpy(value + run * stride, src, item_bytes);
  }
  return runs.Finish();
}

int64_t ConsecutiveUnique(const TensorRef& self, const UniqueOutputs& outputs) {
  const CompareFn differ = FindCompare(self.dtype, true);
  const auto item_bytes = static_cast<size_t>(ItemSize(self.dtype));
  char* value = static_cast<char*>(outputs.values.data);
  const int64_t stride = outputs.values.strides[0] * static_cast<int64_t>(item_bytes);
  const char* last = nullptr;
  int64_t place = 0;
  Runs runs(outputs);
  const Loop loop = MakeLoop({&self}, LoopOrder::kRowMajor);
  ForEachRow(loop, {0, loop.count}, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const char* src = ptrs[0] + i * strides[0];
      const bool begins = last == nullptr || differ(last, src, 1) != 0;
      const int64_t run = runs.Add(begins, place++);
      if (begins) std::memcpy(value + run * stride, src, item_bytes);
      last = src;
    }
  });
  return runs.Finish();
}

TensorRef WithoutDim(TensorRef ref, int dim) {
  --ref.rank;
  for (int d = dim; d < ref.rank; ++d) {
    ref.sizes[d] = ref.sizes[d + 1];
    ref.strides[d] = ref.strides[d + 1];
  }
  return ref;
}

// Rows of `from`, a view, to those of `to`, of the same shape and type.
void CopyView(const TensorRef& from, const TensorRef& to) {
  const CastFn copy = FindCast(from.dtype, to.dtype);
  const Loop loop = MakeLoop({&to, &from});
  ForEachRow(loop, {0, loop.count}, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    copy(ptrs[1], strides[1], ptrs[0], strides[0], n);
  });
}

// Slice i of a view along a dim.
TensorRef SliceOf(const TensorRef& ref, int dim, int64_t i) {
  TensorRef slice = WithoutDim(ref, dim);
  slice.data = static_cast<char*>(ref.data) + i * ref.strides[dim] * ItemSize(ref.dtype);
  return slice;
}

}  // namespace

int64_t UniqueScratch(const TensorRef& self) {
  return 2 * ElementCount(self) * static_cast<int64_t>(IsWide(self.dtype) ? sizeof(WideItem) : sizeof(NarrowItem));
}

int64_t Unique(const TensorRef& self, bool sorted, const UniqueOutputs& outputs, void* scratch) {
  if (!sorted) return ConsecutiveUnique(self, outputs);
  if (IsWide(self.dtype)) return SortedUnique<WideItem>(self, outputs, scratch);
  return SortedUnique<NarrowItem>(self, outputs, scratch);
}

int64_t UniqueSlicesScratch(const TensorRef& self, int dim) {
  return ElementCount(self) * ItemSize(self.dtype) + 64 + 2 * self.sizes[dim] * static_cast<int64_t>(sizeof(int64_t));
}

int64_t UniqueSlices(const TensorRef& self, int dim, bool sorted, const UniqueOutputs& outputs, void* scratch) {
  const int64_t n = self.sizes[dim];
  const int64_t width = ElementCount(self) / n;
  const int64_t bytes = width * ItemSize(self.dtype);
  auto* order = static_cast<int64_t*>(scratch);
  int64_t* firsts = order + n;  // of each run
  char* rows = reinterpret_cast<char*>(firsts + n);
  for (int64_t i = 0; i < n; ++i) {
    order[i] = i;
    const TensorRef slice = SliceOf(self, dim, i);
    CopyView(slice, MakeContiguous(rows + i * bytes, self.dtype, slice.rank, slice.sizes));
  }
  if (sorted) {
    const CompareFn compare = FindCompare(self.dtype, false);
    std::sort(order, order + n, [&](int64_t a, int64_t b) {
      const int result = compare(rows + a * bytes, rows + b * bytes, width);
      return result != 0 ? result < 0 : a < b;
    });
  }
  const CompareFn differ = FindCompare(self.dtype, true);
  Runs runs(outputs);
  for (int64_t i = 0; i < n; ++i) {
    const bool begins = i == 0 || differ(rows + order[i - 1] * bytes, rows + order[i] * bytes, width) != 0;
    const int64_t run = runs.Add(begins, order[i]);
    if (begins) firsts[run] = order[i];
  }
  const int64_t count = runs.Finish();
  TensorRef values = outputs.values;
  if (IsContiguous(values)) {
    int64_t sizes[kMaxRank];
    std::copy_n(self.sizes, self.rank, sizes);
    sizes[dim] = count;
    values = MakeContiguous(values.data, values.dtype, self.rank, sizes);
  }
  for (int64_t run = 0; run < count; ++run) {
    const TensorRef slice = SliceOf(values, dim, run);
    CopyView(MakeContiguous(rows + firsts[run] * bytes, self.dtype, slice.rank, slice.sizes), slice);
  }
  return count;
}

}  // namespace reprise::kernels
