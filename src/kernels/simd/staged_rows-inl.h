// SPDX-License-Identifier: Apache-2.0
//
// Row functions of float16 and bfloat16 that convert blocks to float32 and call the row function of that: one third of
// the code, at little cost where the function is more than a few instructions. Included as rows-inl.h is.
#include "kernels/simd/rows-inl.h"

#if defined(REPRISE_STAGED_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once for each target
#ifdef REPRISE_STAGED_ROWS_INL_H
#undef REPRISE_STAGED_ROWS_INL_H
#else
#define REPRISE_STAGED_ROWS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

struct StagedCopyFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return a; }
};

template <class T>
HWY_NOINLINE HWY_ATTR void LoadBlock(const T* from, float* to, size_t n) {
  Map(from, to, n, StagedCopyFn());
}
template <class T>
HWY_NOINLINE HWY_ATTR void StoreBlock(const float* from, T* to, size_t n) {
  Map(from, to, n, StagedCopyFn());
}

template <class T, int kInputs>
HWY_NOINLINE void CallStaged(const RowArgs& row, int64_t begin, int64_t end, RowFn call) {
  constexpr int64_t kBlock = 512;
  alignas(64) float in[kInputs][kBlock];
  alignas(64) float out[kBlock];
  RowArgs staged = row;
  staged.out = out;
  for (int k = 0; k < kInputs; ++k) staged.in[k] = in[k];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = end - at < kBlock ? end - at : kBlock;
    for (int k = 0; k < kInputs; ++k) LoadBlock(static_cast<const T*>(row.in[k]) + at, in[k], static_cast<size_t>(n));
    call(&staged, 0, n);
    StoreBlock(out, static_cast<T*>(row.out) + at, static_cast<size_t>(n));
  }
}

template <class T, int kInputs, RowFn kCall>
void StagedCall(const void* args, int64_t begin, int64_t end) {
  CallStaged<T, kInputs>(*static_cast<const RowArgs*>(args), begin, end, kCall);
}

template <int kInputs, RowFn kCall>
ElementRow StagedRows(DType type) {
  switch (type) {
    case DType::kFloat: return ElementRow::Of(type, kCall);
    case DType::kFloat16: return ElementRow::Of(type, StagedCall<Half, kInputs, kCall>);
    default: return ElementRow::Of(type, StagedCall<BFloat16, kInputs, kCall>);
  }
}

// \pre type is float32, float16 or bfloat16.
template <class Fn>
ElementRow StagedRows1(DType type) {
  return StagedRows<1, Call1<float, Fn>>(type);
}
template <class Fn>
ElementRow StagedRows2(DType type) {
  return StagedRows<2, Call2<float, Fn>>(type);
}
template <class Fn>
ElementRow StagedRows3(DType type) {
  return StagedRows<3, Call3<float, Fn>>(type);
}

#pragma GCC diagnostic pop
}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#endif  // the target's turn
