// SPDX-License-Identifier: Apache-2.0
#include "kernels/separable.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/plane.h"

namespace reprise::kernels {
namespace {

// The place of a row of out.
struct RowPlace {
  int64_t plane, d, h;
  RowPlace(const Separable& map, int64_t unit)
      : plane(unit / map.dims[1].out / map.dims[0].out),
        d(unit / map.dims[1].out % map.dims[0].out),
        h(unit % map.dims[1].out) {}
};

char* RowOf(const TensorRef& ref, const RowPlace& place) {
  const int rank = ref.rank;
  return ElementAt(
      ref, OffsetOf(ref, rank - 3, place.plane) + place.d * ref.strides[rank - 3] + place.h * ref.strides[rank - 2]);
}

template <int kBytes>
void CopyItems(const char* from, int64_t from_stride, const int32_t* index, char* to, int64_t to_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(to + i * to_stride * kBytes, from + index[i] * from_stride * kBytes, kBytes);
  }
}

void CopyRows(const Separable& map, const TensorRef& in, const TensorRef& out, Range rows) {
  const int64_t n = map.dims[2].out;
  const int64_t from_stride = in.strides[in.rank - 1];
  const int64_t to_stride = out.strides[out.rank - 1];
  const int32_t* index = map.dims[2].index.data();
  for (int64_t unit = rows.begin; unit < rows.end; ++unit) {
    const RowPlace place(map, unit);
    RowPlace source = place;
    source.d = map.dims[0].index[static_cast<size_t>(place.d)];
    source.h = map.dims[1].index[static_cast<size_t>(place.h)];
    const char* from = RowOf(in, source);
    char* to = RowOf(out, place);
    switch (ItemSize(in.dtype)) {
      case 1: CopyItems<1>(from, from_stride, index, to, to_stride, n); break;
      case 2: CopyItems<2>(from, from_stride, index, to, to_stride, n); break;
      case 4: CopyItems<4>(from, from_stride, index, to, to_stride, n); break;
      case 8: CopyItems<8>(from, from_stride, index, to, to_stride, n); break;
      default: CopyItems<16>(from, from_stride, index, to, to_stride, n); break;
    }
  }
}

template <class T>
const T* WeightsOf(const SeparableDim& dim) {
  if constexpr (std::is_same_v<T, float>) {
    return dim.narrow.data();
  } else {
    return dim.weight.data();
  }
}

template <class T>
void CombineRows(const Separable& map, const TensorRef& in, const TensorRef& out, Range rows, void* scratch) {
  const SeparableDim& wide = map.dims[2];
  const SeparableDim& high = map.dims[1];
  const SeparableDim& deep = map.dims[0];
  ScratchCutter cutter(scratch);
  T* const sums = cutter.Cut<T>(wide.in);
  T* const row_buffer = cutter.Cut<T>(wide.in);
  T* const out_buffer = cutter.Cut<T>(wide.out);
  const RowReaderAs<T> reader(in.dtype, in.strides[in.rank - 1]);
  const RowWriterAs<T> writer(out.dtype, out.strides[out.rank - 1]);
  const T* const weights = WeightsOf<T>(wide);
  for (int64_t unit = rows.begin; unit < rows.end; ++unit) {
    const RowPlace place(map, unit);
    std::fill_n(sums, wide.in, T(0));
    for (int64_t k = deep.begin[static_cast<size_t>(place.d)]; k < deep.begin[static_cast<size_t>(place.d) + 1]; ++k) {
      for (int64_t l = high.begin[static_cast<size_t>(place.h)]; l < high.begin[static_cast<size_t>(place.h) + 1];
           ++l) {
        RowPlace source = place;
        source.d = deep.index[static_cast<size_t>(k)];
        source.h = high.index[static_cast<size_t>(l)];
        const T factor = WeightsOf<T>(deep)[k] * WeightsOf<T>(high)[l];
        const T* row = reader.Read(RowOf(in, source), wide.in, row_buffer);
        for (int64_t i = 0; i < wide.in; ++i) sums[i] += factor * row[i];
      }
    }
    char* const to = RowOf(out, place);
    T* const values = writer.Buffer(to, out_buffer);
    for (int64_t o = 0; o < wide.out; ++o) {
      T sum = 0;
      for (int64_t m = wide.begin[static_cast<size_t>(o)]; m < wide.begin[static_cast<size_t>(o) + 1]; ++m) {
        sum += weights[m] * sums[wide.index[static_cast<size_t>(m)]];
      }
      values[o] = sum;
    }
    writer.Write(to, values, wide.out);
  }
}

}  // namespace

SeparableDim SeparableDim::Identity() {
  SeparableDim one;
  one.begin = {0};
  one.Tap(0, 1);
  one.Close();
  return one;
}

SeparableDim SeparableDim::Transposed() const {
  SeparableDim turned;
  turned.in = out;
  turned.out = in;
  turned.begin.assign(static_cast<size_t>(in) + 1, 0);
  turned.index.resize(index.size());
  turned.weight.resize(weight.size());
  for (const int32_t at : index) ++turned.begin[static_cast<size_t>(at) + 1];
  for (size_t i = 1; i < turned.begin.size(); ++i) turned.begin[i] += turned.begin[i - 1];
  std::vector<int64_t> next = turned.begin;
  for (int64_t o = 0; o < out; ++o) {
    for (auto k = static_cast<size_t>(begin[static_cast<size_t>(o)]);
         k < static_cast<size_t>(begin[static_cast<size_t>(o) + 1]); ++k) {
      const auto place = static_cast<size_t>(next[static_cast<size_t>(index[k])]++);
      turned.index[place] = static_cast<int32_t>(o);
      turned.weight[place] = weight[k];
    }
  }
  return turned;
}

bool SeparableDim::IsCopy() const {
  if (index.size() != static_cast<size_t>(out)) return false;
  for (size_t o = 0; o < index.size(); ++o) {
    if (begin[o + 1] != begin[o] + 1 || weight[o] != 1) return false;
  }
  return true;
}

void Separable::Finish() {
  is_copy = true;
  for (SeparableDim& dim : dims) {
    is_copy = is_copy && dim.IsCopy();
    dim.narrow.assign(dim.weight.begin(), dim.weight.end());
  }
}

void RunSeparable(const Separable& map, const TensorRef& in, const TensorRef& out, Range rows, void* scratch) {
  if (map.is_copy) return CopyRows(map, in, out, rows);
  if (in.dtype == DType::kDouble) return CombineRows<double>(map, in, out, rows, scratch);
  CombineRows<float>(map, in, out, rows, scratch);
}

int64_t SeparableScratchBytes(const Separable& map) {
  if (map.is_copy) return 0;
  return 2 * ScratchCutter::Bytes<double>(map.dims[2].in) + ScratchCutter::Bytes<double>(map.dims[2].out);
}

}  // namespace reprise::kernels
