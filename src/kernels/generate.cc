// SPDX-License-Identifier: Apache-2.0
#include "kernels/generate.h"

#include <cstring>

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 256;

int64_t LoadInteger(const char* data, DType dtype) {
  return dtype == DType::kInt32 ? *reinterpret_cast<const int32_t*>(data) : *reinterpret_cast<const int64_t*>(data);
}

// Stores value(i) for i in the range, computed in blocks of T.
template <class T, class Value>
void Store(const TensorRef& out, Range range, Value&& value) {
  const CastFn store = FindCast(DTypeOf<T>(), out.dtype);
  const int64_t stride = out.strides[0] * ItemSize(out.dtype);
  T block[kBlock];
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, range.end - begin);
    for (int64_t i = 0; i < n; ++i) block[i] = value(begin + i);
    store(reinterpret_cast<const char*>(block), sizeof(T), static_cast<char*>(out.data) + begin * stride, stride, n);
  }
}

// The dims but the last `inner` ones, as rows: calls fn(pointers) for each row of the range.
template <class Fn>
void ForEachLine(const TensorRef& out, const TensorRef& self, int inner, Range range, Fn&& fn) {
  const int outer = out.rank - inner;
  int64_t index[kMaxRank] = {};
  char* to = static_cast<char*>(out.data);
  char* from = static_cast<char*>(self.data);
  const int64_t item = ItemSize(out.dtype);
  int64_t rest = range.begin;
  for (int d = outer - 1; d >= 0; --d) {
    index[d] = rest % out.sizes[d];
    rest /= out.sizes[d];
    to += index[d] * out.strides[d] * item;
    from += index[d] * self.strides[d] * item;
  }
  for (int64_t r = range.begin; r < range.end; ++r) {
    fn(to, from, outer > 0 ? index[outer - 1] : 0);
    for (int d = outer - 1; d >= 0; --d) {
      to += out.strides[d] * item;
      from += self.strides[d] * item;
      if (++index[d] < out.sizes[d]) break;
      to -= out.sizes[d] * out.strides[d] * item;
      from -= out.sizes[d] * self.strides[d] * item;
      index[d] = 0;
    }
  }
}

}  // namespace

void Arange(const Scalar& start, const Scalar& step, const TensorRef& out, Range range) {
  const bool is_row = out.strides[0] == 1;
  if (CategoryOf(out.dtype) == Category::kInteger) {
    const auto first = static_cast<uint64_t>(start.As<int64_t>());
    const auto distance = static_cast<uint64_t>(step.As<int64_t>());
    if (is_row && out.dtype == DType::kInt64) {
      // Lanes that step together, without a product for each element.
      constexpr int64_t kLanes = 8;
      uint64_t lanes[kLanes];
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] = first + static_cast<uint64_t>(range.begin + l) * distance;
      auto* to = static_cast<uint64_t*>(out.data) + range.begin;
      const int64_t n = range.end - range.begin;
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) to[i + l] = lanes[l];
        for (int64_t l = 0; l < kLanes; ++l) lanes[l] += kLanes * distance;
      }
      for (int64_t l = 0; i + l < n; ++l) to[i + l] = lanes[l];
      return;
    }
    Store<int64_t>(out, range,
                   [&](int64_t i) { return static_cast<int64_t>(first + static_cast<uint64_t>(i) * distance); });
    return;
  }
  const auto first = start.As<double>();
  const auto distance = step.As<double>();
  if (is_row && out.dtype == DType::kFloat) {
    // int32 converts in vectors; the sum of the two parts of i is exact.
    for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
      float* to = static_cast<float*>(out.data) + begin;
      const auto base = static_cast<double>(begin);
      const auto n = static_cast<int32_t>(std::min(kBlock, range.end - begin));
      for (int32_t i = 0; i < n; ++i) to[i] = static_cast<float>(first + (base + i) * distance);
    }
    return;
  }
  Store<double>(out, range, [&](int64_t i) { return first + static_cast<double>(i) * distance; });
}

void Linspace(const Scalar& start, const Scalar& end, int64_t count, const TensorRef& out, Range range) {
  const bool is_integer = CategoryOf(out.dtype) == Category::kInteger;
  const double first = is_integer ? static_cast<double>(start.As<int64_t>()) : start.As<double>();
  const double last = is_integer ? static_cast<double>(end.As<int64_t>()) : end.As<double>();
  const double step = count > 1 ? (last - first) / static_cast<double>(count - 1) : 0;
  const int64_t half = count / 2;
  const CastFn store = FindCast(DType::kDouble, out.dtype);
  const int64_t stride = out.strides[0] * ItemSize(out.dtype);
  double block[kBlock];
  for (int64_t begin = range.begin; begin < range.end;) {
    // Either half counts from its end; int32 converts in vectors, the sum with the begin of the block is exact.
    const bool is_first = begin < half || count == 1;
    const int64_t limit = is_first && count > 1 ? std::min(half, range.end) : range.end;
    const auto n = static_cast<int32_t>(std::min(kBlock, limit - begin));
    const double from = is_first ? first : last;
    const auto base = static_cast<double>(is_first ? begin : begin - (count - 1));
    for (int32_t i = 0; i < n; ++i) block[i] = from + (base + i) * step;
    store(reinterpret_cast<const char*>(block), sizeof(double), static_cast<char*>(out.data) + begin * stride, stride,
          n);
    begin += n;
  }
}

void Eye(const TensorRef& out, Range range) {
  const int64_t item = ItemSize(out.dtype);
  const CastFn fill = FindCast(out.dtype, out.dtype);
  const char zero[16] = {};
  alignas(16) char one[16];
  const Scalar value = Scalar::Of<int64_t>(1);
  FindCast(DType::kInt64, out.dtype)(reinterpret_cast<const char*>(value.bytes), 0, one, 0, 1);
  for (int64_t i = range.begin; i < range.end; ++i) {
    char* row = static_cast<char*>(out.data) + i * out.strides[0] * item;
    if (out.strides[1] == 1) {
      std::memset(row, 0, static_cast<size_t>(out.sizes[1] * item));
    } else {
      fill(zero, 0, row, out.strides[1] * item, out.sizes[1]);
    }
    if (i < out.sizes[1]) std::memcpy(row + i * out.strides[1] * item, one, static_cast<size_t>(item));
  }
}

void Triangle(const TensorRef& self, bool is_lower, int64_t diagonal, const TensorRef& out, Range range) {
  const int64_t item = ItemSize(out.dtype);
  const int64_t columns = out.sizes[out.rank - 1];
  const int64_t to_stride = out.strides[out.rank - 1] * item;
  const int64_t from_stride = self.strides[out.rank - 1] * item;
  const CastFn copy = FindCast(out.dtype, out.dtype);
  const char zero[16] = {};
  const auto clear = [&](char* to, int64_t n) {
    if (to_stride == item) {
      std::memset(to, 0, static_cast<size_t>(n * item));
    } else {
      copy(zero, 0, to, to_stride, n);
    }
  };
  ForEachLine(out, self, 1, range, [&](char* to, char* from, int64_t row) {
    // Columns before `cut` are at or below the diagonal (lower), or below it (upper).
    const int64_t cut = std::clamp<int64_t>(row + diagonal + (is_lower ? 1 : 0), 0, columns);
    const int64_t begin = is_lower ? 0 : cut;
    const int64_t end = is_lower ? cut : columns;
    if (begin > 0) clear(to, begin);
    if (to != from && end > begin)
      copy(from + begin * from_stride, from_stride, to + begin * to_stride, to_stride, end - begin);
    if (end < columns) clear(to + end * to_stride, columns - end);
  });
}

void RepeatEach(const TensorRef& self, const TensorRef& repeats, const TensorRef& out) {
  const int64_t item = ItemSize(out.dtype);
  const int64_t total = out.sizes[0];
  const int64_t to_stride = out.strides[0] * item;
  const int64_t repeats_item = ItemSize(repeats.dtype);
  const bool is_single = ElementCount(repeats) == 1;
  const int64_t repeats_stride = is_single ? 0 : repeats.strides[0] * repeats_item;
  const CastFn copy = FindCast(out.dtype, out.dtype);
  char* to = static_cast<char*>(out.data);
  int64_t done = 0;
  const char* repeat = static_cast<const char*>(repeats.data);
  ForEachRow(MakeLoop({&self}, LoopOrder::kRowMajor), FullRange(self),
             [&](char* const* ptrs, const int64_t* strides, int64_t n) {
               for (int64_t i = 0; i < n; ++i) {
                 const int64_t count = std::clamp<int64_t>(LoadInteger(repeat, repeats.dtype), 0, total - done);
                 repeat += repeats_stride;
                 if (count == 0) continue;
                 copy(ptrs[0] + i * strides[0], 0, to + done * to_stride, to_stride, count);
                 done += count;
               }
             });
  const char zero[16] = {};
  if (done < total) copy(zero, 0, to + done * to_stride, to_stride, total - done);
}

}  // namespace reprise::kernels
