// SPDX-License-Identifier: Apache-2.0
#include "kernels/scatter_reduce.h"

#include <algorithm>
#include <complex>
#include <cstring>

#include "kernels/arithmetic.h"

namespace reprise::kernels {
namespace {

template <class Fn>
void WithStage(DType type, Fn&& fn) {
  switch (type) {
    case DType::kFloat: return fn(TypeTag<float>{});
    case DType::kDouble: return fn(TypeTag<double>{});
    case DType::kUInt64: return fn(TypeTag<uint64_t>{});
    case DType::kComplex64: return fn(TypeTag<std::complex<float>>{});
    case DType::kComplex128: return fn(TypeTag<std::complex<double>>{});
    default: return fn(TypeTag<int64_t>{});
  }
}

// The place of an index among n; -1: none.
int64_t PlaceOf(int64_t index, int64_t n) {
  if (index < 0) index += n;
  return index >= 0 && index < n ? index : -1;
}

template <class T>
T Combined(ScatterReduction op, T a, T b) {
  switch (op) {
    case ScatterReduction::kReplace: return b;
    case ScatterReduction::kSum:
    case ScatterReduction::kMean: return AddValue(a, b);
    case ScatterReduction::kProduct: return MulValue(a, b);
    case ScatterReduction::kMax:
      if constexpr (!kIsComplex<T>) return b > a || b != b ? b : a;
      return a;
    case ScatterReduction::kMin:
      if constexpr (!kIsComplex<T>) return b < a || b != b ? b : a;
      return a;
  }
  return a;
}

template <class T>
T Share(T sum, int64_t count) {
  if constexpr (std::is_same_v<T, uint64_t>) {
    return sum / static_cast<uint64_t>(count);
  } else if constexpr (std::is_integral_v<T>) {
    const T quotient = sum / count;
    return sum % count < 0 ? quotient - 1 : quotient;
  } else if constexpr (kIsComplex<T>) {
    return sum / static_cast<typename T::value_type>(count);
  } else {
    return sum / static_cast<T>(count);
  }
}

template <class T>
void Lines(const ScatterReduceShape& shape, T* target, const int64_t* index, const T* src, int64_t* counts,
           Range lines) {
  const int64_t length = shape.sizes[shape.dim];
  const int64_t n = shape.target_size;
  const bool is_mean = shape.op == ScatterReduction::kMean;
  const bool counts_places = shape.counts_places();
  for (int64_t line = lines.begin; line < lines.end; ++line) {
    int64_t rest = line;
    const int64_t* places = index;
    const T* from = src;
    T* to = target;
    for (int d = shape.rank - 1; d >= 0; --d) {
      if (d == shape.dim) continue;
      const int64_t position = rest % shape.sizes[d];
      rest /= shape.sizes[d];
      places += position * shape.index_strides[d];
      from += position * shape.src_strides[d];
      to += position * shape.target_strides[d];
    }
    if (counts_places) std::fill_n(counts, n, int64_t{0});
    for (int64_t i = 0; i < length; ++i) {
      const int64_t place = PlaceOf(places[i * shape.index_strides[shape.dim]], n);
      if (place < 0) continue;
      T& element = to[place * shape.target_strides[shape.dim]];
      const T value = from[i * shape.src_strides[shape.dim]];
      const bool is_first = counts_places && counts[place]++ == 0 && !shape.includes_self;
      element = is_first ? value : Combined(shape.op, element, value);
    }
    if (!is_mean) continue;
    for (int64_t place = 0; place < n; ++place) {
      const int64_t count = counts[place] + (shape.includes_self ? 1 : 0);
      T& element = to[place * shape.target_strides[shape.dim]];
      if (counts[place] != 0 && count > 1) element = Share(element, count);
    }
  }
}

template <class Word>
void TakeWords(const Word* self, int64_t n, const int64_t* index, Word* out, Range range) {
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t place = PlaceOf(index[i], n);
    out[i] = place < 0 ? Word{} : self[place];
  }
}

struct TwoWords {
  uint64_t words[2];
};

}  // namespace

DType StageOf(DType type) {
  if (type == DType::kFloat16 || type == DType::kBFloat16) return DType::kFloat;
  const bool is_narrow = CategoryOf(type) == Category::kBool || CategoryOf(type) == Category::kInteger;
  return is_narrow && type != DType::kUInt64 ? DType::kInt64 : type;
}

int64_t ScatterReduceShape::lines() const {
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= d == dim ? 1 : sizes[d];
  return count;
}

void ScatterReduceLines(const ScatterReduceShape& shape, DType type, void* target, const int64_t* index,
                        const void* src, int64_t* counts, Range lines) {
  WithStage(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Lines(shape, static_cast<T*>(target), index, static_cast<const T*>(src), counts, lines);
  });
}

void Take(const void* self, int64_t n, const int64_t* index, void* out, int64_t item, Range range) {
  const auto run = [&](auto word) {
    using Word = decltype(word);
    TakeWords(static_cast<const Word*>(self), n, index, static_cast<Word*>(out), range);
  };
  switch (item) {
    case 1: return run(uint8_t{});
    case 2: return run(uint16_t{});
    case 4: return run(uint32_t{});
    case 8: return run(uint64_t{});
    default: return run(TwoWords{});
  }
}

void Put(DType type, void* self, int64_t n, const int64_t* index, const void* src, int64_t count, bool accumulates) {
  WithStage(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    T* to = static_cast<T*>(self);
    const T* from = static_cast<const T*>(src);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t place = PlaceOf(index[i], n);
      if (place < 0) continue;
      to[place] = accumulates ? AddValue(to[place], from[i]) : from[i];
    }
  });
}

void Coalesce(DType type, const int64_t* place, int64_t count, int64_t rows, const int64_t* indices, int64_t depth,
              const void* values, int64_t width, int64_t* new_indices, void* new_values) {
  std::fill_n(new_indices, rows * depth, int64_t{0});
  WithStage(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const T* from = static_cast<const T*>(values);
    T* to = static_cast<T*>(new_values);
    std::fill_n(to, rows * width, T{});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = place[i];
      if (row < 0 || row >= rows) continue;
      std::copy_n(indices + i * depth, depth, new_indices + row * depth);
      for (int64_t j = 0; j < width; ++j) to[row * width + j] = AddValue(to[row * width + j], from[i * width + j]);
    }
  });
}

}  // namespace reprise::kernels
