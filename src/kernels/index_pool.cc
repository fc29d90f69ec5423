// SPDX-License-Identifier: Apache-2.0
#include "kernels/index_pool.h"

#include <algorithm>
#include <limits>

#include "kernels/plane.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

// The inputs of a window along one dim: first, first + step, … before end.
struct WindowPart {
  int64_t first, end, step;
};

WindowPart PartOf(const PoolDim& dim, int64_t o) {
  if (dim.is_adaptive) return {o * dim.in / dim.out, ((o + 1) * dim.in + dim.out - 1) / dim.out, 1};
  int64_t first = o * dim.stride - dim.pad;
  const int64_t end = std::min(first + (dim.kernel - 1) * dim.dilation + 1, dim.in);
  if (first < 0) first += (-first + dim.dilation - 1) / dim.dilation * dim.dilation;
  return {first, end, dim.dilation};
}

void StoreIndices(const TensorRef& ref, char* row, const int64_t* values, int64_t n) {
  FindCast(DType::kInt64, ref.dtype)(reinterpret_cast<const char*>(values), 8, row,
                                     ref.strides[ref.rank - 1] * ItemSize(ref.dtype), n);
}

template <class T>
void MaxPoolOf(const PoolShape& shape, const TensorRef& self, const TensorRef& out, const TensorRef& indices,
               Range rows, void* scratch) {
  const int rank = out.rank;
  ScratchCutter cutter(scratch);
  T* const row_buffer = cutter.Cut<T>(shape.w.in);
  T* const best = cutter.Cut<T>(shape.w.out);
  int64_t* const places = cutter.Cut<int64_t>(shape.w.out);
  const RowReaderAs<T> reader(self.dtype, self.strides[rank - 1]);
  const RowWriterAs<T> writer(out.dtype, out.strides[rank - 1]);
  const auto row_of = [rank](const TensorRef& ref, int64_t plane, int64_t d, int64_t h) {
    return ElementAt(ref, OffsetOf(ref, rank - 3, plane) + d * ref.strides[rank - 3] + h * ref.strides[rank - 2]);
  };
  for (int64_t unit = rows.begin; unit < rows.end; ++unit) {
    const int64_t h = unit % shape.h.out;
    const int64_t d = unit / shape.h.out % shape.d.out;
    const int64_t plane = unit / shape.h.out / shape.d.out;
    const WindowPart deep = PartOf(shape.d, d);
    const WindowPart high = PartOf(shape.h, h);
    for (int64_t o = 0; o < shape.w.out; ++o) {
      best[o] = -std::numeric_limits<T>::infinity();
      places[o] = (deep.first * shape.h.in + high.first) * shape.w.in + PartOf(shape.w, o).first;
    }
    for (int64_t i = deep.first; i < deep.end; i += deep.step) {
      for (int64_t j = high.first; j < high.end; j += high.step) {
        const T* row = reader.Read(row_of(self, plane, i, j), shape.w.in, row_buffer);
        const int64_t base = (i * shape.h.in + j) * shape.w.in;
        for (int64_t o = 0; o < shape.w.out; ++o) {
          const WindowPart wide = PartOf(shape.w, o);
          for (int64_t k = wide.first; k < wide.end; k += wide.step) {
            if (!(row[k] > best[o]) && row[k] == row[k]) continue;
            best[o] = row[k];
            places[o] = base + k;
          }
        }
      }
    }
    char* const to = row_of(out, plane, d, h);
    std::copy_n(best, shape.w.out, writer.Buffer(to, best));
    writer.Write(to, best, shape.w.out);
    StoreIndices(indices, row_of(indices, plane, d, h), places, shape.w.out);
  }
}

// A volume of `ref`: the last three dims of the entry `plane` of those in front.
TensorRef VolumeOf(const TensorRef& ref, int64_t plane) {
  TensorRef volume = ref;
  volume.data = ElementAt(ref, OffsetOf(ref, ref.rank - 3, plane));
  volume.rank = 3;
  std::copy_n(ref.sizes + ref.rank - 3, 3, volume.sizes);
  std::copy_n(ref.strides + ref.rank - 3, 3, volume.strides);
  return volume;
}

// Calls put(volume of out as numbers) for each volume, which is zero before and stored afterwards.
template <class T, class Put>
void ForEachVolume(const TensorRef& out, Range volumes, void* scratch, Put put) {
  T* const buffer = static_cast<T*>(scratch);
  for (int64_t plane = volumes.begin; plane < volumes.end; ++plane) {
    const TensorRef volume = VolumeOf(out, plane);
    const int64_t count = ElementCount(volume);
    const Staged<T> staged(volume);
    T* const values = staged.Target(0, buffer);
    std::fill_n(values, count, T(0));
    put(plane, values, count);
    staged.Write(0, count, buffer);
  }
}

constexpr int64_t kBlock = 512;

template <class T>
void ScatterOf(const TensorRef& in, const TensorRef& indices, const TensorRef& out, bool adds, Range volumes,
               void* scratch) {
  ForEachVolume<T>(out, volumes, scratch, [&](int64_t plane, T* values, int64_t count) {
    const TensorRef volume = VolumeOf(in, plane);
    const Staged<T> sources(volume);
    const Staged<int64_t> places(VolumeOf(indices, plane));
    T source_block[kBlock];
    int64_t place_block[kBlock];
    const int64_t total = ElementCount(volume);
    for (int64_t begin = 0; begin < total; begin += kBlock) {
      const int64_t n = std::min(kBlock, total - begin);
      const T* source = sources.Read(begin, n, source_block);
      const int64_t* place = places.Read(begin, n, place_block);
      for (int64_t i = 0; i < n; ++i) {
        if (place[i] < 0 || place[i] >= count) continue;
        values[place[i]] = adds ? values[place[i]] + source[i] : source[i];
      }
    }
  });
}

template <class T>
void ScatterMaskedOf(const PoolShape& shape, const TensorRef& in, const TensorRef& mask, const TensorRef& out,
                     Range volumes, void* scratch) {
  const int64_t outputs = shape.h.out * shape.w.out;
  ForEachVolume<T>(out, volumes, scratch, [&](int64_t plane, T* values, int64_t) {
    const Staged<T> sources(VolumeOf(in, plane));
    const TensorRef bytes = VolumeOf(mask, plane);
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t t = 0; t < shape.h.kernel * shape.w.kernel; ++t) {
        if (*ElementAt(bytes, t * bytes.strides[1] + o * bytes.strides[2]) == 0) continue;
        const int64_t h = o / shape.w.out * shape.h.stride - shape.h.pad + t / shape.w.kernel * shape.h.dilation;
        const int64_t w = o % shape.w.out * shape.w.stride - shape.w.pad + t % shape.w.kernel * shape.w.dilation;
        if (h < 0 || h >= shape.h.in || w < 0 || w >= shape.w.in) continue;
        T buffer;
        values[h * shape.w.in + w] += *sources.Read(o, 1, &buffer);
      }
    }
  });
}

}  // namespace

void MaxPoolVolumes(const PoolShape& shape, const TensorRef& self, const TensorRef& out, const TensorRef& indices,
                    Range rows, void* scratch) {
  if (self.dtype == DType::kDouble) return MaxPoolOf<double>(shape, self, out, indices, rows, scratch);
  MaxPoolOf<float>(shape, self, out, indices, rows, scratch);
}

int64_t MaxPoolVolumesScratchBytes(const PoolShape& shape) {
  return ScratchCutter::Bytes<double>(shape.w.in) + 2 * ScratchCutter::Bytes<double>(shape.w.out);
}

void ScatterVolumes(const TensorRef& in, const TensorRef& indices, const TensorRef& out, bool adds, Range volumes,
                    void* scratch) {
  if (out.dtype == DType::kDouble) return ScatterOf<double>(in, indices, out, adds, volumes, scratch);
  ScatterOf<float>(in, indices, out, adds, volumes, scratch);
}

void ScatterMasked(const PoolShape& shape, const TensorRef& in, const TensorRef& mask, const TensorRef& out,
                   Range volumes, void* scratch) {
  if (out.dtype == DType::kDouble) return ScatterMaskedOf<double>(shape, in, mask, out, volumes, scratch);
  ScatterMaskedOf<float>(shape, in, mask, out, volumes, scratch);
}

int64_t ScatterVolumesScratchBytes(const TensorRef& out) {
  return ScratchCutter::Bytes<double>(out.sizes[out.rank - 3] * out.sizes[out.rank - 2] * out.sizes[out.rank - 1]);
}

}  // namespace reprise::kernels
