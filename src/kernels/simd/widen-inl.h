// SPDX-License-Identifier: Apache-2.0
//
// Vectors of float32 from memory that holds float32, float16, bfloat16 or int8. Included once for each instruction set.
#if defined(REPRISE_KERNELS_SIMD_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPRISE_KERNELS_SIMD_WIDEN_INL_H_
#undef REPRISE_KERNELS_SIMD_WIDEN_INL_H_
#else
#define REPRISE_KERNELS_SIMD_WIDEN_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/float16.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

template <class D>
HWY_INLINE HWY_ATTR hwy::HWY_NAMESPACE::Vec<D> Widen(D d, const hwy::HWY_NAMESPACE::TFromD<D>* from) {
  return hwy::HWY_NAMESPACE::LoadU(d, from);
}
template <class D>
HWY_INLINE HWY_ATTR hwy::HWY_NAMESPACE::Vec<D> Widen(D d, const BFloat16* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint16_t, D> words;
  const hn::Rebind<uint32_t, D> bits;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(words, &from->bits))));
}
// Whether there is an instruction that widens float16.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define REPRISE_WIDENS_HALF 1
#else
#define REPRISE_WIDENS_HALF 0
#endif
constexpr bool kWidensHalf = REPRISE_WIDENS_HALF;

template <class D>
HWY_INLINE HWY_ATTR hwy::HWY_NAMESPACE::Vec<D> Widen(D d, const Half* from) {
  namespace hn = hwy::HWY_NAMESPACE;
#if REPRISE_WIDENS_HALF
  const hn::Rebind<hwy::float16_t, D> halves;
  return hn::PromoteTo(d, hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
  for (size_t i = 0; i < hn::Lanes(d); ++i) values[i] = static_cast<float>(from[i]);
  return hn::Load(d, values);
#endif
}
#undef REPRISE_WIDENS_HALF

template <class D>
HWY_INLINE HWY_ATTR hwy::HWY_NAMESPACE::Vec<D> Widen(D d, const int8_t* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<int8_t, D> bytes;
  const hn::Rebind<int32_t, D> words;
  return hn::ConvertTo(d, hn::PromoteTo(words, hn::LoadU(bytes, from)));
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#endif
