// SPDX-License-Identifier: Apache-2.0
#include "kernels/indexed.h"

#include <cstring>
#include <type_traits>

#include "kernels/arithmetic.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 256;      // items resolved or staged at a time
constexpr int64_t kTable = 1024;     // items resolved at a time for several rows
constexpr int64_t kNowhere = -1;     // the offset of an index out of range
constexpr int64_t kManySlices = 64;  // enough for any number of threads
// Elements of rows that are cut by place: to read their index costs less than they do, and lines of them are few.
constexpr int64_t kLeastOfPlace = 32;
constexpr int64_t kMostOfPlace = 4096;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kMostBytesAhead = 16 << 10;  // half of the smallest first-level cache

struct Bytes16 {
  uint64_t words[2];
};

// ---- Indices ----

inline int64_t LoadIndex(const char* data, bool is_wide) {
  if (is_wide) {
    int64_t index;
    std::memcpy(&index, data, sizeof index);
    return index;
  }
  int32_t index;
  std::memcpy(&index, data, sizeof index);
  return index;
}

// The offset that an index stands for, or kNowhere.
inline int64_t OffsetOf(const IndexOperand& operand, int64_t index) {
  if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(operand.size)) [[unlikely]] {
    if (index < 0 && operand.wraps) index += operand.size;
    if (index < 0 || index >= operand.size) return kNowhere;
  }
  return index * operand.step;
}

// What items(…) is called with: the offset of item i of its piece.
struct ResolvedPlaces {
  const int64_t* offsets;
  int64_t operator()(int64_t i) const { return offsets[i]; }
};
struct DirectPlaces {  // one tensor of int64; values, so that they stay in registers between stores
  const char* data;
  int64_t stride;
  int64_t size;
  int64_t step;
  bool wraps;
  int64_t operator()(int64_t i) const {
    const int64_t index = LoadIndex(data + i * stride, true);
    if (static_cast<uint64_t>(index) < static_cast<uint64_t>(size)) [[likely]]
      return index * step;
    return wraps && index < 0 && index >= -size ? (index + size) * step : kNowhere;
  }
};

// Offsets of n items along dim `d`.
void ResolveRow(const IndexLoop& loop, const char* const* indices, int d, int64_t n, int64_t* offsets) {
  const IndexOperand& first = loop.indices[0];
  const char* data = indices[0];
  const int64_t stride = first.strides[d];
  if (first.is_wide) {
    for (int64_t i = 0; i < n; ++i) offsets[i] = OffsetOf(first, LoadIndex(data + i * stride, true));
  } else {
    for (int64_t i = 0; i < n; ++i) offsets[i] = OffsetOf(first, LoadIndex(data + i * stride, false));
  }
  for (int k = 1; k < loop.index_count; ++k) {
    const IndexOperand& operand = loop.indices[k];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t more = OffsetOf(operand, LoadIndex(indices[k] + i * operand.strides[d], operand.is_wide));
      offsets[i] = offsets[i] == kNowhere || more == kNowhere ? kNowhere : offsets[i] + more;
    }
  }
}

// ---- The loop ----

// What all places of a piece lie in, asked for while the piece before is worked on: indices come in any order, which no
// processor foresees.
class NextPlaces {
 public:
  // `bytes` from `data` on, where `n` items have their places.
  NextPlaces(const char* data, int64_t bytes, int64_t n) {
    if (bytes <= 0 || bytes > kMostBytesAhead || n < bytes / kLineBytes) return;
    data_ = data;
    end_ = data + bytes;
    step_ = bytes * kBlock / n + kLineBytes;
  }
  // Called once for each kBlock items.
  void AskForShare() {
    const char* const end = data_ + std::min<int64_t>(step_, end_ - data_);
    for (; data_ < end; data_ += kLineBytes) __builtin_prefetch(data_);
  }

 private:
  const char* data_ = nullptr;
  const char* end_ = nullptr;
  int64_t step_ = 0;
};

// Which of n <= kBlock items of the one index are in `range`, written to `own`. No branch, which nobody could foresee.
int64_t FindOwn(const IndexOperand& operand, const char* data, int64_t stride, int64_t n, Range range, int64_t* own) {
  const auto find = [&](auto is_wide) {
    const int64_t wrap = operand.wraps ? operand.size : 0;
    const auto span = static_cast<uint64_t>(range.end - range.begin);
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
      int64_t index = LoadIndex(data + i * stride, is_wide);
      index += index < 0 ? wrap : 0;
      own[count] = i;
      count += static_cast<uint64_t>(index) - static_cast<uint64_t>(range.begin) < span ? 1 : 0;
    }
    return count;
  };
  return operand.is_wide ? find(std::true_type()) : find(std::false_type());
}

// As ForEachIndexed, of rows that a part of the places has.
template <class Rows>
void ForEachOfPlaces(const IndexLoop& loop, Range range, char* value, char* self, const void* index_data, Rows&& rows) {
  const IndexOperand& operand = loop.indices[0];
  const char* const indices = static_cast<const char*>(index_data) + operand.begin;
  const int64_t stride = operand.strides[0];
  int64_t own[kBlock];
  for (int64_t begin = 0; begin < loop.sizes[0]; begin += kBlock) {
    const char* const at = indices + begin * stride;
    const int64_t count = FindOwn(operand, at, stride, std::min(kBlock, loop.sizes[0] - begin), range, own);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t offset = OffsetOf(operand, LoadIndex(at + own[i] * stride, operand.is_wide));
      rows(value + (begin + own[i]) * loop.value_strides[0], self, offset, loop.sizes[1]);
    }
  }
}

// Calls rows(value, self, offset, n) for runs of the innermost dim with one place, or items(value, self, places, n) for
// pieces of at most kBlock items with a place each.
template <class Rows, class Items>
void ForEachIndexed(const IndexLoop& loop, Range range, char* value, char* self, const void* const* index_data,
                    Rows&& rows, Items&& items) {
  if (loop.by_places) return ForEachOfPlaces(loop, range, value, self, index_data[0], rows);
  int64_t sizes[kMaxRank];
  for (int d = 0; d < loop.rank; ++d) sizes[d] = loop.sizes[d];
  if (loop.split >= 0) sizes[loop.split] = range.end - range.begin;
  for (int d = 0; d < loop.rank; ++d) {
    if (sizes[d] <= 0) return;
  }
  const int count = loop.index_count;
  const char* indices[kMaxIndices];
  for (int k = 0; k < count; ++k) indices[k] = static_cast<const char*>(index_data[k]) + loop.indices[k].begin;
  if (loop.split >= 0) {
    for (int k = 0; k < count; ++k) indices[k] += range.begin * loop.indices[k].strides[loop.split];
    value += range.begin * loop.value_strides[loop.split];
    self += range.begin * loop.self_strides[loop.split];
  }

  const int inner = loop.rank - 1;
  bool is_run = true;
  for (int k = 0; k < count; ++k) is_run = is_run && loop.indices[k].strides[inner] == 0;
  // A run is short work: the dim outside of it is a loop of its own. So is one that shares a row of indices.
  bool is_shared = !is_run && inner > 0;
  for (int k = 0; k < count; ++k) is_shared = is_shared && loop.indices[k].strides[inner - 1] == 0;
  const int middle = (is_run && inner > 0) || is_shared ? inner - 1 : -1;
  const int outer = (middle >= 0 ? middle : inner) - 1;  // the last dim of the odometer
  const int64_t n = sizes[inner];
  int64_t position[kMaxRank] = {};
  int64_t offsets[kTable];
  while (true) {
    if (is_run && middle >= 0) {
      const char* at[kMaxIndices];
      for (int64_t begin = 0; begin < sizes[middle]; begin += kBlock) {
        const int64_t places = std::min(kBlock, sizes[middle] - begin);
        for (int k = 0; k < count; ++k) at[k] = indices[k] + begin * loop.indices[k].strides[middle];
        ResolveRow(loop, at, middle, places, offsets);
        for (int64_t j = 0; j < places; ++j) {
          rows(value + (begin + j) * loop.value_strides[middle], self + (begin + j) * loop.self_strides[middle],
               offsets[j], n);
        }
      }
    } else if (is_run) {
      ResolveRow(loop, indices, inner, 1, offsets);
      rows(value, self, offsets[0], n);
    } else {
      const char* at[kMaxIndices];
      const int64_t value_step = loop.value_strides[inner];
      const int64_t self_step = loop.self_strides[inner];
      if (is_shared) {
        for (int64_t begin = 0; begin < n; begin += kTable) {
          const int64_t places = std::min(kTable, n - begin);
          for (int k = 0; k < count; ++k) at[k] = indices[k] + begin * loop.indices[k].strides[inner];
          ResolveRow(loop, at, inner, places, offsets);
          for (int64_t j = 0; j < sizes[middle]; ++j) {
            char* value_row = value + j * loop.value_strides[middle] + begin * value_step;
            char* self_row = self + j * loop.self_strides[middle] + begin * self_step;
            for (int64_t i = 0; i < places; i += kBlock) {
              items(value_row + i * value_step, self_row + i * self_step, ResolvedPlaces{offsets + i},
                    std::min(kBlock, places - i));
            }
          }
        }
      } else {
        const bool is_last = count != 1 || self_step != 0 || outer < 0 || position[outer] + 1 == sizes[outer];
        NextPlaces next(is_last ? nullptr : self + loop.self_strides[outer],
                        is_last ? 0 : loop.indices[0].size * loop.indices[0].step, n);
        for (int64_t begin = 0; begin < n; begin += kBlock) {
          next.AskForShare();
          const int64_t places = std::min(kBlock, n - begin);
          if (count == 1 && loop.indices[0].is_wide) {
            const IndexOperand& operand = loop.indices[0];
            const int64_t stride = operand.strides[inner];
            items(value + begin * value_step, self + begin * self_step,
                  DirectPlaces{indices[0] + begin * stride, stride, operand.size, operand.step, operand.wraps}, places);
            continue;
          }
          for (int k = 0; k < count; ++k) at[k] = indices[k] + begin * loop.indices[k].strides[inner];
          ResolveRow(loop, at, inner, places, offsets);
          items(value + begin * value_step, self + begin * self_step, ResolvedPlaces{offsets}, places);
        }
      }
    }
    int d = outer;
    for (; d >= 0; --d) {
      value += loop.value_strides[d];
      self += loop.self_strides[d];
      for (int k = 0; k < count; ++k) indices[k] += loop.indices[k].strides[d];
      if (++position[d] < sizes[d]) break;
      value -= sizes[d] * loop.value_strides[d];
      self -= sizes[d] * loop.self_strides[d];
      for (int k = 0; k < count; ++k) indices[k] -= sizes[d] * loop.indices[k].strides[d];
      position[d] = 0;
    }
    if (d < 0) return;
  }
}

// ---- Moving words ----

template <class Word>
void GatherWords(const IndexLoop& loop, const char* self, const void* const* indices, char* value, Range range) {
  constexpr int64_t kItem = sizeof(Word);
  const int64_t value_stride = loop.value_strides[loop.rank - 1];
  const int64_t self_stride = loop.self_strides[loop.rank - 1];
  const auto rows = [&](char* to, char* from, int64_t offset, int64_t n) {
    if (offset != kNowhere && value_stride == kItem && self_stride == kItem) [[likely]] {
      std::memcpy(to, from + offset, static_cast<size_t>(n * kItem));
      return;
    }
    const Word zero{};
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(to + i * value_stride,
                  offset == kNowhere ? reinterpret_cast<const char*>(&zero) : from + offset + i * self_stride,
                  sizeof(Word));
    }
  };
  const auto items = [&](char* to, char* from, auto places, int64_t n) {
    if (value_stride == kItem && self_stride == 0) {
      for (int64_t i = 0; i < n; ++i) {
        Word word{};
        const int64_t offset = places(i);
        if (offset != kNowhere) [[likely]]
          std::memcpy(&word, from + offset, sizeof word);
        std::memcpy(to + i * kItem, &word, sizeof word);
      }
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      Word word{};
      const int64_t offset = places(i);
      if (offset != kNowhere) [[likely]]
        std::memcpy(&word, from + i * self_stride + offset, sizeof word);
      std::memcpy(to + i * value_stride, &word, sizeof word);
    }
  };
  ForEachIndexed(loop, range, value, const_cast<char*>(self), indices, rows, items);
}

template <class Word>
void ScatterWords(const IndexLoop& loop, char* self, const void* const* indices, const char* value, Range range) {
  constexpr int64_t kItem = sizeof(Word);
  const int64_t value_stride = loop.value_strides[loop.rank - 1];
  const int64_t self_stride = loop.self_strides[loop.rank - 1];
  const auto rows = [&](char* from, char* to, int64_t offset, int64_t n) {
    if (offset == kNowhere) return;
    if (value_stride == kItem && self_stride == kItem) {
      std::memcpy(to + offset, from, static_cast<size_t>(n * kItem));
      return;
    }
    if (value_stride == 0 && self_stride == kItem) {
      Word word;
      std::memcpy(&word, from, sizeof word);
      std::fill_n(reinterpret_cast<Word*>(to + offset), n, word);
      return;
    }
    for (int64_t i = 0; i < n; ++i) std::memcpy(to + offset + i * self_stride, from + i * value_stride, sizeof(Word));
  };
  const auto items = [&](char* from, char* to, auto places, int64_t n) {
    if (value_stride == kItem && self_stride == 0) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t offset = places(i);
        if (offset != kNowhere) [[likely]]
          std::memcpy(to + offset, from + i * kItem, sizeof(Word));
      }
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t offset = places(i);
      if (offset != kNowhere) [[likely]]
        std::memcpy(to + i * self_stride + offset, from + i * value_stride, sizeof(Word));
    }
  };
  ForEachIndexed(loop, range, const_cast<char*>(value), self, indices, rows, items);
}

template <class Call>
void WithWord(int64_t item, Call&& call) {
  switch (item) {
    case 1: return call(TypeTag<uint8_t>{});
    case 2: return call(TypeTag<uint16_t>{});
    case 4: return call(TypeTag<uint32_t>{});
    case 8: return call(TypeTag<uint64_t>{});
    default: return call(TypeTag<Bytes16>{});
  }
}

// ---- Accumulating ----

template <class T, ScatterOp kOp>
T Combine(T a, T b) {
  if constexpr (std::is_same_v<T, Bool>) {
    return Bool(kOp == ScatterOp::kAdd ? a.byte != 0 || b.byte != 0 : a.byte != 0 && b.byte != 0);
  } else {
    return kOp == ScatterOp::kAdd ? AddValue(a, b) : MulValue(a, b);
  }
}

template <class T, ScatterOp kOp>
void Accumulate(const IndexLoop& loop, char* self, const void* const* indices, const char* value, DType value_dtype,
                DType dtype, const Scalar* alpha, Range range) {
  constexpr int64_t kItem = sizeof(T);
  const int64_t own_stride = loop.value_strides[loop.rank - 1];
  const int64_t self_stride = loop.self_strides[loop.rank - 1];
  const bool is_staged = value_dtype != dtype || alpha != nullptr;
  const CastFn cast = FindCast(value_dtype, dtype);
  T scale{};
  if (alpha != nullptr)
    FindCast(alpha->dtype, dtype)(reinterpret_cast<const char*>(alpha->bytes), 0, reinterpret_cast<char*>(&scale), 0,
                                  1);
  T staged[kBlock];
  const int64_t stride = is_staged ? kItem : own_stride;
  const auto stage = [&](const char* from, int64_t n) -> const char* {
    if (!is_staged) return from;
    cast(from, own_stride, reinterpret_cast<char*>(staged), kItem, n);
    if (alpha != nullptr) {
      for (int64_t i = 0; i < n; ++i) staged[i] = Combine<T, ScatterOp::kMultiply>(staged[i], scale);
    }
    return reinterpret_cast<const char*>(staged);
  };
  const auto rows = [&](char* from, char* to, int64_t offset, int64_t n) {
    if (offset == kNowhere) return;
    to += offset;
    const int64_t step = is_staged ? kBlock : n;
    for (int64_t begin = 0; begin < n; begin += step) {
      const int64_t count = std::min(step, n - begin);
      const char* source = stage(from + begin * own_stride, count);
      if (stride == kItem && self_stride == kItem) {
        T* sums = reinterpret_cast<T*>(to) + begin;
        const T* values = reinterpret_cast<const T*>(source);
        for (int64_t i = 0; i < count; ++i) sums[i] = Combine<T, kOp>(sums[i], values[i]);
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        T& sum = *reinterpret_cast<T*>(to + (begin + i) * self_stride);
        sum = Combine<T, kOp>(sum, *reinterpret_cast<const T*>(source + i * stride));
      }
    }
  };
  const auto items = [&](char* from, char* to, auto places, int64_t n) {
    const char* source = stage(from, n);
    if (stride == kItem && self_stride == 0) {
      const T* values = reinterpret_cast<const T*>(source);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t offset = places(i);
        if (offset == kNowhere) [[unlikely]]
          continue;
        T& sum = *reinterpret_cast<T*>(to + offset);
        sum = Combine<T, kOp>(sum, values[i]);
      }
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t offset = places(i);
      if (offset == kNowhere) [[unlikely]]
        continue;
      T& sum = *reinterpret_cast<T*>(to + i * self_stride + offset);
      sum = Combine<T, kOp>(sum, *reinterpret_cast<const T*>(source + i * stride));
    }
  };
  ForEachIndexed(loop, range, const_cast<char*>(value), self, indices, rows, items);
}

template <ScatterOp kOp>
void AccumulateAny(const IndexLoop& loop, char* self, DType dtype, const void* const* indices, const char* value,
                   DType value_dtype, const Scalar* alpha, Range range) {
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Accumulate<T, kOp>(loop, self, indices, value, value_dtype, dtype, alpha, range);
  };
  // Sums and products of integers are the same for both signs.
  switch (dtype) {
    case DType::kFloat: return run(TypeTag<float>{});
    case DType::kDouble: return run(TypeTag<double>{});
    case DType::kInt8:
    case DType::kUInt8: return run(TypeTag<uint8_t>{});
    case DType::kInt16:
    case DType::kUInt16: return run(TypeTag<uint16_t>{});
    case DType::kInt32:
    case DType::kUInt32: return run(TypeTag<uint32_t>{});
    case DType::kInt64:
    case DType::kUInt64: return run(TypeTag<uint64_t>{});
    case DType::kBool: return run(TypeTag<Bool>{});
    case DType::kComplex64: return run(TypeTag<std::complex<float>>{});
    case DType::kComplex128: return run(TypeTag<std::complex<double>>{});
    default: std::abort();
  }
}

template <class T>
void SumRows(const TensorRef& grad, int64_t padding, bool by_frequency, const TensorRef& out, const int64_t* heads,
             const int64_t* links, T* line, Range range) {
  const int64_t width = out.sizes[1];
  const int64_t item = ItemSize(grad.dtype);
  const int64_t row_bytes = grad.strides[0] * item;
  const int64_t grad_stride = grad.strides[1] * item;
  const bool is_plain = grad.dtype == DTypeOf<T>() && (grad_stride == item || width == 1);
  const CastFn load = FindCast(grad.dtype, DTypeOf<T>());
  const CastFn store = FindCast(DTypeOf<T>(), out.dtype);
  const int64_t out_stride = out.strides[1] * ItemSize(out.dtype);
  T staged[kBlock];
  for (int64_t v = range.begin; v < range.end; ++v) {
    std::fill_n(line, width, T{0});
    int64_t count = 0;
    for (int64_t i = v == padding ? kNowhere : heads[v]; i != kNowhere; i = links[i], ++count) {
      const char* row = static_cast<const char*>(grad.data) + i * row_bytes;
      if (is_plain) {
        const T* values = reinterpret_cast<const T*>(row);
        for (int64_t j = 0; j < width; ++j) line[j] += values[j];
        continue;
      }
      for (int64_t begin = 0; begin < width; begin += kBlock) {
        const int64_t n = std::min(kBlock, width - begin);
        load(row + begin * grad_stride, grad_stride, reinterpret_cast<char*>(staged), sizeof(T), n);
        for (int64_t j = 0; j < n; ++j) line[begin + j] += staged[j];
      }
    }
    if (by_frequency && count > 1) {
      for (int64_t j = 0; j < width; ++j) line[j] /= static_cast<T>(count);
    }
    store(reinterpret_cast<const char*>(line), sizeof(T),
          static_cast<char*>(out.data) + v * out.strides[0] * ItemSize(out.dtype), out_stride, width);
  }
}

}  // namespace

void IndexLoop::Finish(bool writes_self) {
  // Dims of size 1 vanish, dims that everybody walks as one are joined.
  int kept = 0;
  const auto move = [&](int from, int to) {
    sizes[to] = sizes[from];
    value_strides[to] = value_strides[from];
    self_strides[to] = self_strides[from];
    for (int k = 0; k < index_count; ++k) indices[k].strides[to] = indices[k].strides[from];
  };
  for (int d = 0; d < rank; ++d) {
    if (sizes[d] == 1) continue;
    const auto continues = [&](int64_t outer, int64_t inner) { return outer == inner * sizes[d]; };
    bool joins = kept > 0 && (self_strides[kept - 1] == 0) == (self_strides[d] == 0) &&
                 continues(value_strides[kept - 1], value_strides[d]) &&
                 continues(self_strides[kept - 1], self_strides[d]);
    for (int k = 0; joins && k < index_count; ++k) {
      joins = continues(indices[k].strides[kept - 1], indices[k].strides[d]);
    }
    if (joins) {
      const int64_t outer = sizes[kept - 1];
      move(d, kept - 1);
      sizes[kept - 1] *= outer;
    } else {
      move(d, kept++);
    }
  }
  rank = kept;
  if (rank == 0) {
    rank = 1;
    sizes[0] = 1;
    value_strides[0] = self_strides[0] = 0;
    for (int k = 0; k < index_count; ++k) indices[k].strides[0] = 0;
    split = -1;
    return;
  }
  split = -1;
  by_places = writes_self && rank == 2 && index_count == 1 && self_strides[0] == 0 && indices[0].strides[1] == 0 &&
              indices[0].step > 0 && indices[0].size >= kManySlices && sizes[1] >= kLeastOfPlace &&
              sizes[1] <= kMostOfPlace;
  if (by_places) return;
  for (int d = 0; d < rank; ++d) {
    // Along a dim that self walks by itself, places differ as long as the strides of self keep elements apart.
    if (writes_self && self_strides[d] == 0) continue;
    if (split < 0 || (sizes[split] < kManySlices && sizes[d] > sizes[split])) split = d;
  }
}

void GatherIndexed(const IndexLoop& loop, const char* self, const void* const* indices, DType dtype, char* value,
                   Range range) {
  WithWord(ItemSize(dtype),
           [&](auto tag) { GatherWords<typename decltype(tag)::Type>(loop, self, indices, value, range); });
}

void ScatterIndexed(const IndexLoop& loop, ScatterOp op, char* self, DType dtype, const void* const* indices,
                    const char* value, DType value_dtype, const Scalar* alpha, Range range) {
  switch (op) {
    case ScatterOp::kReplace:
      return WithWord(ItemSize(dtype),
                      [&](auto tag) { ScatterWords<typename decltype(tag)::Type>(loop, self, indices, value, range); });
    case ScatterOp::kAdd:
      return AccumulateAny<ScatterOp::kAdd>(loop, self, dtype, indices, value, value_dtype, alpha, range);
    case ScatterOp::kMultiply:
      return AccumulateAny<ScatterOp::kMultiply>(loop, self, dtype, indices, value, value_dtype, alpha, range);
  }
}

void EmbeddingGradient(const TensorRef& grad, const void* indices, int64_t index_stride, bool is_wide, int64_t n,
                       int64_t padding, bool by_frequency, const TensorRef& out, int64_t* heads, int64_t* links,
                       void* line, Range range) {
  // A list for each row, of the items that belong to it; each range builds those of its own rows.
  for (int64_t v = range.begin; v < range.end; ++v) heads[v] = kNowhere;
  const char* data = static_cast<const char*>(indices);
  for (int64_t i = n - 1; i >= 0; --i) {
    const int64_t index = LoadIndex(data + i * index_stride, is_wide);
    if (index < range.begin || index >= range.end) continue;
    links[i] = heads[index];
    heads[index] = i;
  }
  if (grad.dtype == DType::kDouble) {
    SumRows(grad, padding, by_frequency, out, heads, links, static_cast<double*>(line), range);
  } else {
    SumRows(grad, padding, by_frequency, out, heads, links, static_cast<float*>(line), range);
  }
}

}  // namespace reprise::kernels
