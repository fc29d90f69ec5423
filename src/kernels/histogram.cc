// SPDX-License-Identifier: Apache-2.0
#include "kernels/histogram.h"

#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 256;

template <class T>
void CountBlocks(const TensorRef& self, T low, T high, int64_t bins, int64_t* counts, Range range) {
  if (low == high) {
    low -= 1;
    high += 1;
  }
  const T width = high - low;
  const CastFn load = FindCast(self.dtype, DTypeOf<T>());
  T block[kBlock];
  ForEachRow(MakeLoop({&self}), range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = std::min(kBlock, n - begin);
      load(ptrs[0] + begin * strides[0], strides[0], reinterpret_cast<char*>(block), sizeof(T), count);
      for (int64_t i = 0; i < count; ++i) {
        if (!(block[i] >= low && block[i] <= high)) continue;
        const T place = (block[i] - low) / width * static_cast<T>(bins);
        if (!(place >= 0)) continue;  // the bounds are too far apart for the type
        ++counts[std::min(static_cast<int64_t>(place), bins - 1)];
      }
    }
  });
}

template <class T>
void ScaleRows(const TensorRef& self, const TensorRef& factor_view, double limit, const TensorRef& out, Range range) {
  const CastFn load = FindCast(self.dtype, DTypeOf<T>());
  const CastFn store = FindCast(DTypeOf<T>(), out.dtype);
  const T most = static_cast<T>(limit);
  const bool is_plain = self.dtype == DTypeOf<T>() && out.dtype == DTypeOf<T>();
  T block[kBlock];
  ForEachRow(MakeLoop({&out, &self, &factor_view}), range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    const auto factor_at = [&](int64_t i) {
      const T norm = *reinterpret_cast<const T*>(ptrs[2] + i * strides[2]);
      return norm > most ? most / (norm + static_cast<T>(1e-7)) : T{1};
    };
    if (is_plain && strides[0] == sizeof(T) && strides[1] == sizeof(T) && strides[2] == 0) {
      const T factor = factor_at(0);
      const T* from = reinterpret_cast<const T*>(ptrs[1]);
      T* to = reinterpret_cast<T*>(ptrs[0]);
      for (int64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
      return;
    }
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = std::min(kBlock, n - begin);
      load(ptrs[1] + begin * strides[1], strides[1], reinterpret_cast<char*>(block), sizeof(T), count);
      if (strides[2] == 0) {
        const T factor = factor_at(0);
        for (int64_t i = 0; i < count; ++i) block[i] *= factor;
      } else {
        for (int64_t i = 0; i < count; ++i) block[i] *= factor_at(begin + i);
      }
      store(reinterpret_cast<const char*>(block), sizeof(T), ptrs[0] + begin * strides[0], strides[0], count);
    }
  });
}

}  // namespace

void Bincount(const TensorRef& self, const TensorRef& weights, const TensorRef& out, void* scratch) {
  const int64_t bins = ElementCount(out);
  const bool weighted = weights.data != nullptr;
  auto* counts = static_cast<int64_t*>(scratch);
  auto* sums = static_cast<double*>(scratch);
  if (weighted) {
    std::fill_n(sums, bins, 0.0);
  } else {
    std::fill_n(counts, bins, int64_t{0});
  }
  const CastFn load = FindCast(self.dtype, DType::kInt64);
  const CastFn load_weights = weighted ? FindCast(weights.dtype, DType::kDouble) : nullptr;
  int64_t block[kBlock];
  double weight[kBlock];
  ForEachRow(MakeLoop({&self, weighted ? &weights : &self}, LoopOrder::kRowMajor), FullRange(self),
             [&](char* const* ptrs, const int64_t* strides, int64_t n) {
               for (int64_t begin = 0; begin < n; begin += kBlock) {
                 const int64_t count = std::min(kBlock, n - begin);
                 load(ptrs[0] + begin * strides[0], strides[0], reinterpret_cast<char*>(block), 8, count);
                 if (weighted) {
                   load_weights(ptrs[1] + begin * strides[1], strides[1], reinterpret_cast<char*>(weight), 8, count);
                   for (int64_t i = 0; i < count; ++i) {
                     if (block[i] >= 0 && block[i] < bins) sums[block[i]] += weight[i];
                   }
                 } else {
                   for (int64_t i = 0; i < count; ++i) {
                     if (block[i] >= 0 && block[i] < bins) ++counts[block[i]];
                   }
                 }
               }
             });
  FindCast(weighted ? DType::kDouble : DType::kInt64, out.dtype)(
      static_cast<const char*>(scratch), 8, static_cast<char*>(out.data), out.strides[0] * ItemSize(out.dtype), bins);
}

DType HistogramType(DType self) {
  const bool is_wide = self == DType::kDouble || (CategoryOf(self) < Category::kFloating && ItemSize(self) > 2);
  return is_wide ? DType::kDouble : DType::kFloat;
}

void Histogram(const TensorRef& self, double low, double high, const TensorRef& data_low, const TensorRef& data_high,
               int64_t bins, int64_t* counts, Range range) {
  std::fill_n(counts, bins, int64_t{0});
  if (HistogramType(self.dtype) == DType::kDouble) {
    if (low == high && data_low.data != nullptr) {
      low = *static_cast<const double*>(data_low.data);
      high = *static_cast<const double*>(data_high.data);
    }
    return CountBlocks<double>(self, low, high, bins, counts, range);
  }
  auto narrow_low = static_cast<float>(low);
  auto narrow_high = static_cast<float>(high);
  if (low == high && data_low.data != nullptr) {
    narrow_low = *static_cast<const float*>(data_low.data);
    narrow_high = *static_cast<const float*>(data_high.data);
  }
  CountBlocks<float>(self, narrow_low, narrow_high, bins, counts, range);
}

void Renorm(const TensorRef& self, const TensorRef& norms, int dim, double limit, const TensorRef& out, Range range) {
  TensorRef view = norms;
  view.rank = self.rank;
  for (int d = 0; d < self.rank; ++d) {
    view.sizes[d] = d == dim ? self.sizes[d] : 1;
    view.strides[d] = 1;
  }
  if (norms.dtype == DType::kDouble) return ScaleRows<double>(self, view, limit, out, range);
  ScaleRows<float>(self, view, limit, out, range);
}

}  // namespace reprise::kernels
