// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/convolution_row.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/convolution_row.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <int kVectors, class T>
HWY_ATTR void Strip(const T* source, const int64_t* offset, const T* weight, int64_t taps, T bias, T* out) {
  const hn::CappedTag<T, 64 / sizeof(T)> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = hn::Zero(d);
  for (int64_t k = 0; k < taps; ++k) {
    const auto value = hn::Set(d, weight[k]);
    const T* from = source + offset[k];
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::MulAdd(value, hn::LoadU(d, from + v * lanes), sum[v]);
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(hn::Add(sum[v], hn::Set(d, bias)), d, out + v * lanes);
}

template <class T>
HWY_ATTR void Row(const T* source, const int64_t* offset, const T* weight, int64_t taps, T bias, T* out, int64_t n) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::CappedTag<T, 64 / sizeof(T)>()));
  int64_t i = 0;
  for (; i + 3 * lanes < n; i += 4 * lanes) Strip<4>(source + i, offset, weight, taps, bias, out + i);
  for (; i + lanes < n; i += 2 * lanes) Strip<2>(source + i, offset, weight, taps, bias, out + i);
  for (; i < n; i += lanes) Strip<1>(source + i, offset, weight, taps, bias, out + i);
}

HWY_ATTR void FloatRow(const float* source, const int64_t* offset, const float* weight, int64_t taps, float bias,
                       float* out, int64_t n) {
  Row(source, offset, weight, taps, bias, out, n);
}

HWY_ATTR void DoubleRow(const double* source, const int64_t* offset, const double* weight, int64_t taps, double bias,
                        double* out, int64_t n) {
  Row(source, offset, weight, taps, bias, out, n);
}

template <class T>
HWY_ATTR void Panel(const T* source, const int64_t* offset, int64_t depth, T* to) {
  const hn::CappedTag<T, 64 / sizeof(T)> d;
  const size_t lanes = hn::Lanes(d);
  for (int64_t k = 0; k < depth; ++k, to += 2 * lanes) {
    const T* from = source + offset[k];
    const auto first = hn::LoadU(d, from);
    const auto second = hn::LoadU(d, from + lanes);
    hn::StoreU(first, d, to);
    hn::StoreU(second, d, to + lanes);
  }
}

HWY_ATTR void FloatPanel(const float* source, const int64_t* offset, int64_t depth, float* to) {
  Panel(source, offset, depth, to);
}

HWY_ATTR void DoublePanel(const double* source, const int64_t* offset, int64_t depth, double* to) {
  Panel(source, offset, depth, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(FloatRow);
HWY_EXPORT(DoubleRow);
HWY_EXPORT(FloatPanel);
HWY_EXPORT(DoublePanel);

void TapRow(const float* source, const int64_t* offset, const float* weight, int64_t taps, float bias, float* out,
            int64_t n) {
  HWY_DYNAMIC_DISPATCH(FloatRow)(source, offset, weight, taps, bias, out, n);
}

void TapRow(const double* source, const int64_t* offset, const double* weight, int64_t taps, double bias, double* out,
            int64_t n) {
  HWY_DYNAMIC_DISPATCH(DoubleRow)(source, offset, weight, taps, bias, out, n);
}

void CopyPanel(const float* source, const int64_t* offset, int64_t depth, float* to) {
  HWY_DYNAMIC_DISPATCH(FloatPanel)(source, offset, depth, to);
}

void CopyPanel(const double* source, const int64_t* offset, int64_t depth, double* to) {
  HWY_DYNAMIC_DISPATCH(DoublePanel)(source, offset, depth, to);
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
