// SPDX-License-Identifier: Apache-2.0
#include "kernels/resize.h"

#include <cmath>
#include <cstring>

#include "kernels/plane.h"

namespace reprise::kernels {
namespace {

// ---- Resize ----

// out[i] = in[index[i]] for elements of kBytes bytes.
template <class Word>
void CopyElements(const char* in, int64_t in_stride, const int32_t* index, char* out, int64_t out_stride, int64_t n) {
  if (in_stride == 1 && out_stride == 1) {
    const Word* from = reinterpret_cast<const Word*>(in);
    Word* to = reinterpret_cast<Word*>(out);
    for (int64_t i = 0; i < n; ++i) to[i] = from[index[i]];
    return;
  }
  constexpr int64_t kBytes = sizeof(Word);
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(out + i * out_stride * kBytes, in + index[i] * in_stride * kBytes, kBytes);
}

void ResizeByCopy(const ResizeTable& table, const TensorRef& self, const TensorRef& out, Range rows) {
  const int rank = out.rank;
  const int64_t n = table.w.out;
  const int64_t item = ItemSize(self.dtype);
  const int64_t in_stride = self.strides[rank - 1];
  const int64_t out_stride = out.strides[rank - 1];
  const char* last_from = nullptr;
  const char* last_to = nullptr;
  for (int64_t unit = rows.begin; unit < rows.end; ++unit) {
    const int64_t plane = unit / table.h.out;
    const int64_t oh = unit % table.h.out;
    const char* from = ElementAt(
        self, OffsetOf(self, rank - 2, plane) + table.h.index[static_cast<size_t>(oh)] * self.strides[rank - 2]);
    char* to = ElementAt(out, OffsetOf(out, rank - 2, plane) + oh * out.strides[rank - 2]);
    const int32_t* index = table.w.index.data();
    if (from == last_from && out_stride == 1) {
      std::memcpy(to, last_to, static_cast<size_t>(n * item));
    } else {
      switch (item) {
        case 1: CopyElements<uint8_t>(from, in_stride, index, to, out_stride, n); break;
        case 2: CopyElements<uint16_t>(from, in_stride, index, to, out_stride, n); break;
        case 4: CopyElements<uint32_t>(from, in_stride, index, to, out_stride, n); break;
        default: CopyElements<uint64_t>(from, in_stride, index, to, out_stride, n); break;
      }
    }
    last_from = from;
    last_to = to;
  }
}

template <int kTaps, class T>
void CombineAlongRow(const T* __restrict row, const int32_t* __restrict index, const T* __restrict weight, int64_t n,
                     T* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    T sum = weight[i * kTaps] * row[index[i * kTaps]];
    for (int k = 1; k < kTaps; ++k) sum += weight[i * kTaps + k] * row[index[i * kTaps + k]];
    out[i] = sum;
  }
}

template <class T>
void CombineRows(const T* const* rows, const T* weight, int taps, int64_t n, T* __restrict out) {
  const T* __restrict a = rows[0];
  const T* __restrict b = rows[1];
  if (taps == 2) {
    for (int64_t i = 0; i < n; ++i) out[i] = weight[0] * a[i] + weight[1] * b[i];
    return;
  }
  const T* __restrict c = rows[2];
  const T* __restrict d = rows[3];
  for (int64_t i = 0; i < n; ++i) out[i] = weight[0] * a[i] + weight[1] * b[i] + weight[2] * c[i] + weight[3] * d[i];
}

template <class T>
void RunResize(const ResizeTable& table, const TensorRef& self, const TensorRef& out, Range rows, void* scratch) {
  const int rank = out.rank;
  const int taps = table.taps;
  const int64_t in = table.w.in;
  const int64_t n = table.w.out;
  ScratchCutter cut(scratch);
  T* weight = cut.Cut<T>(n * taps);
  T* combined = cut.Cut<T>(in);
  T* result = cut.Cut<T>(n);
  T* buffers = cut.Cut<T>(in * taps);
  for (size_t i = 0; i < table.w.weight.size(); ++i) weight[i] = static_cast<T>(table.w.weight[i]);
  const RowReaderAs<T> read(self.dtype, self.strides[rank - 1]);
  const RowWriterAs<T> write(out.dtype, out.strides[rank - 1]);
  for (int64_t unit = rows.begin; unit < rows.end; ++unit) {
    const int64_t plane = unit / table.h.out;
    const auto oh = static_cast<size_t>(unit % table.h.out);
    const int64_t from = OffsetOf(self, rank - 2, plane);
    const T* at[4] = {};
    T weight_h[4] = {};
    for (int k = 0; k < taps; ++k) {
      const size_t entry = oh * static_cast<size_t>(taps) + static_cast<size_t>(k);
      at[k] = read.Read(ElementAt(self, from + table.h.index[entry] * self.strides[rank - 2]), in, buffers + k * in);
      weight_h[k] = static_cast<T>(table.h.weight[entry]);
    }
    CombineRows(at, weight_h, taps, in, combined);
    char* to = ElementAt(out, OffsetOf(out, rank - 2, plane) + static_cast<int64_t>(oh) * out.strides[rank - 2]);
    T* values = write.Buffer(to, result);
    if (taps == 2) {
      CombineAlongRow<2>(combined, table.w.index.data(), weight, n, values);
    } else {
      CombineAlongRow<4>(combined, table.w.index.data(), weight, n, values);
    }
    write.Write(to, values, n);
  }
}

// ---- Sample ----

template <class T>
T Unnormalise(T x, int64_t size, bool align_corners) {
  return align_corners ? (x + 1) / 2 * static_cast<T>(size - 1) : ((x + 1) * static_cast<T>(size) - 1) / 2;
}

// Mirrors x at low / 2 and high / 2 until it is between them.
template <class T>
T Reflect(T x, int64_t twice_low, int64_t twice_high) {
  if (twice_low == twice_high) return 0;
  const T low = static_cast<T>(twice_low) / 2;
  const T span = static_cast<T>(twice_high - twice_low) / 2;
  const T distance = std::abs(x - low);
  const T extra = std::fmod(distance, span);
  const bool is_even = std::fmod(std::floor(distance / span), T(2)) == 0;
  return is_even ? extra + low : span - extra + low;
}

template <class T>
T Clip(T x, int64_t size) {
  return x > 0 ? std::min(x, static_cast<T>(size - 1)) : T(0);  // NaN goes to 0
}

template <class T>
T Pad(T x, int64_t size, const SampleShape& shape) {
  switch (shape.padding) {
    case SamplePadding::kZeros: return x;
    case SamplePadding::kBorder: return Clip(x, size);
    case SamplePadding::kReflection:
      x = shape.align_corners ? Reflect(x, 0, 2 * (size - 1)) : Reflect(x, -1, 2 * size - 1);
      return Clip(x, size);
  }
  return x;
}

// The element that `x`, a whole number, stands for; -1 outside.
template <class T>
int64_t IndexOf(T x, int64_t size) {
  return x >= 0 && x < static_cast<T>(size) ? static_cast<int64_t>(x) : -1;
}

int TapsOf(SampleMode mode) { return mode == SampleMode::kBilinear ? 4 : mode == SampleMode::kNearest ? 1 : 16; }

// Offsets into the plane, -1 outside, and weights of the elements around (x, y).
template <class T>
void FindTaps(const SampleShape& shape, T x, T y, const TensorRef& self, int64_t* offset, T* weight) {
  const int64_t height = self.sizes[2];
  const int64_t width = self.sizes[3];
  x = Unnormalise(x, width, shape.align_corners);
  y = Unnormalise(y, height, shape.align_corners);
  const auto offset_of = [&](T column, T row) {
    const int64_t ix = IndexOf(column, width);
    const int64_t iy = IndexOf(row, height);
    return ix < 0 || iy < 0 ? int64_t{-1} : iy * self.strides[2] + ix * self.strides[3];
  };
  if (shape.mode == SampleMode::kNearest) {
    offset[0] = offset_of(std::nearbyint(Pad(x, width, shape)), std::nearbyint(Pad(y, height, shape)));
    weight[0] = 1;
    return;
  }
  if (shape.mode == SampleMode::kBilinear) {
    x = Pad(x, width, shape);
    y = Pad(y, height, shape);
    const T left = std::floor(x);
    const T top = std::floor(y);
    const T right_share = x - left;
    const T bottom_share = y - top;
    for (int k = 0; k < 4; ++k) {
      const bool is_right = (k & 1) != 0;
      const bool is_bottom = k >= 2;
      offset[k] = offset_of(is_right ? left + 1 : left, is_bottom ? top + 1 : top);
      weight[k] = (is_right ? right_share : 1 - right_share) * (is_bottom ? bottom_share : 1 - bottom_share);
    }
    return;
  }
  const T left = std::floor(x);
  const T top = std::floor(y);
  T across[4], down[4];
  CubicWeights(x - left, across);
  CubicWeights(y - top, down);
  for (int k = 0; k < 16; ++k) {
    const auto column = static_cast<T>(k % 4 - 1);
    const auto row = static_cast<T>(k / 4 - 1);
    offset[k] = offset_of(Pad(left + column, width, shape), Pad(top + row, height, shape));
    weight[k] = across[k % 4] * down[k / 4];
  }
}

// Elements outside have a negative offset and do not count.
template <int kTaps, class T>
void SumTaps(const T* plane, const int64_t* offset, const T* weight, int64_t n, T* out) {
  for (int64_t i = 0; i < n; ++i, offset += kTaps, weight += kTaps) {
    T sum{};
    int64_t signs = 0;
    for (int k = 0; k < kTaps; ++k) signs |= offset[k];
    if (signs >= 0) {
      for (int k = 0; k < kTaps; ++k) sum += weight[k] * plane[offset[k]];
    } else {
      for (int k = 0; k < kTaps; ++k) {
        if (offset[k] >= 0) sum += weight[k] * plane[offset[k]];
      }
    }
    out[i] = sum;
  }
}

template <class T>
void RunGridSample(const SampleShape& shape, const TensorRef& self, const TensorRef& grid, const TensorRef& out,
                   Range rows, void* scratch) {
  const int taps = TapsOf(shape.mode);
  const int64_t n = out.sizes[3];
  const int64_t channels = out.sizes[1];
  const int64_t item = ItemSize(self.dtype);
  ScratchCutter cut(scratch);
  T* points = cut.Cut<T>(2 * n);
  int64_t* offset = cut.Cut<int64_t>(n * taps);
  T* weight = cut.Cut<T>(n * taps);
  T* result = cut.Cut<T>(n);
  const CastFn read_grid = FindCast(grid.dtype, DTypeOf<T>());
  const CastFn read = FindCast(self.dtype, DTypeOf<T>());
  const bool is_direct = self.dtype == DTypeOf<T>();
  const RowWriterAs<T> write(out.dtype, out.strides[3]);
  for (int64_t unit = rows.begin; unit < rows.end; ++unit) {
    const int64_t batch = unit / out.sizes[2];
    const int64_t oh = unit % out.sizes[2];
    const char* row = ElementAt(grid, batch * grid.strides[0] + oh * grid.strides[1]);
    for (int64_t axis = 0; axis < 2; ++axis) {
      read_grid(row + axis * grid.strides[3] * ItemSize(grid.dtype), grid.strides[2] * ItemSize(grid.dtype),
                reinterpret_cast<char*>(points + axis * n), sizeof(T), n);
    }
    for (int64_t i = 0; i < n; ++i) {
      FindTaps(shape, points[i], points[n + i], self, offset + i * taps, weight + i * taps);
    }
    for (int64_t c = 0; c < channels; ++c) {
      const char* plane = ElementAt(self, batch * self.strides[0] + c * self.strides[1]);
      char* to = ElementAt(out, batch * out.strides[0] + c * out.strides[1] + oh * out.strides[2]);
      T* values = write.Buffer(to, result);
      if (!is_direct) {
        for (int64_t i = 0; i < n; ++i) {
          T sum{};
          for (int k = 0; k < taps; ++k) {
            const int64_t at = offset[i * taps + k];
            if (at < 0) continue;
            T value;
            read(plane + at * item, 0, reinterpret_cast<char*>(&value), 0, 1);
            sum += weight[i * taps + k] * value;
          }
          values[i] = sum;
        }
      } else if (taps == 1) {
        SumTaps<1>(reinterpret_cast<const T*>(plane), offset, weight, n, values);
      } else if (taps == 4) {
        SumTaps<4>(reinterpret_cast<const T*>(plane), offset, weight, n, values);
      } else {
        SumTaps<16>(reinterpret_cast<const T*>(plane), offset, weight, n, values);
      }
      write.Write(to, values, n);
    }
  }
}

}  // namespace

int64_t ResizeScratchBytes(const ResizeTable& table) {
  if (table.taps == 1) return 0;
  return ScratchCutter::Bytes<double>(table.w.out * table.taps) + ScratchCutter::Bytes<double>(table.w.in) +
         ScratchCutter::Bytes<double>(table.w.out) + ScratchCutter::Bytes<double>(table.w.in * table.taps);
}

void Resize(const ResizeTable& table, const TensorRef& self, const TensorRef& out, Range rows, void* scratch) {
  if (table.taps == 1) return ResizeByCopy(table, self, out, rows);
  if (self.dtype == DType::kDouble) return RunResize<double>(table, self, out, rows, scratch);
  RunResize<float>(table, self, out, rows, scratch);
}

int64_t GridSampleScratchBytes(const SampleShape& shape, const TensorRef&, const TensorRef& out) {
  const int64_t n = out.sizes[3];
  const int64_t taps = TapsOf(shape.mode);
  return ScratchCutter::Bytes<double>(2 * n) + 2 * ScratchCutter::Bytes<int64_t>(n * taps) +
         ScratchCutter::Bytes<double>(n);
}

void GridSample(const SampleShape& shape, const TensorRef& self, const TensorRef& grid, const TensorRef& out,
                Range rows, void* scratch) {
  if (self.dtype == DType::kDouble) return RunGridSample<double>(shape, self, grid, out, rows, scratch);
  RunGridSample<float>(shape, self, grid, out, rows, scratch);
}

}  // namespace reprise::kernels
