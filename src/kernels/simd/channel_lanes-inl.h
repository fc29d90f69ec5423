// SPDX-License-Identifier: Apache-2.0
//
// Vectors of channels: loads and stores of all lanes or the first ones, and what becomes of sums when they are
// complete. Included once for each instruction set.
#if defined(REPRISE_KERNELS_SIMD_CHANNEL_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPRISE_KERNELS_SIMD_CHANNEL_LANES_INL_H_
#undef REPRISE_KERNELS_SIMD_CHANNEL_LANES_INL_H_
#else
#define REPRISE_KERNELS_SIMD_CHANNEL_LANES_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/simd/channels_last.h"

#undef REPRISE_HAS_32_VECTORS
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3_ZEN4
#define REPRISE_HAS_32_VECTORS 1
#else
#define REPRISE_HAS_32_VECTORS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Floats>;

// Vectors of which all lanes are there, or the first ones.
struct AllLanes {
  HWY_INLINE HWY_ATTR Vector Load(const float* from) const { return hn::LoadU(Floats(), from); }
  HWY_INLINE HWY_ATTR void Store(Vector value, float* to) const { hn::StoreU(value, Floats(), to); }
};
class FirstLanes {
 public:
  // None and too many are allowed.
  HWY_INLINE HWY_ATTR explicit FirstLanes(int64_t count)
      : count_(std::clamp<int64_t>(count, 0, static_cast<int64_t>(hn::Lanes(Floats())))) {}
// Elsewhere the masked operations may touch what is masked out.
#if HWY_TARGET == HWY_AVX2 || REPRISE_HAS_32_VECTORS
  HWY_INLINE HWY_ATTR Vector Load(const float* from) const {
    return hn::MaskedLoad(hn::FirstN(Floats(), static_cast<size_t>(count_)), Floats(), from);
  }
  HWY_INLINE HWY_ATTR void Store(Vector value, float* to) const {
    hn::BlendedStore(value, hn::FirstN(Floats(), static_cast<size_t>(count_)), Floats(), to);
  }
#else
  HWY_INLINE HWY_ATTR Vector Load(const float* from) const {
    HWY_ALIGN float lanes[16] = {};
    for (int64_t i = 0; i < count_; ++i) lanes[i] = from[i];
    return hn::Load(Floats(), lanes);
  }
  HWY_INLINE HWY_ATTR void Store(Vector value, float* to) const {
    HWY_ALIGN float lanes[16];
    hn::Store(value, Floats(), lanes);
    for (int64_t i = 0; i < count_; ++i) to[i] = lanes[i];
  }
#endif

 private:
  int64_t count_;
};

// Sums of one vector of columns as they are stored: those from column `at` on.
template <class Lanes>
class Finish {
 public:
  HWY_INLINE HWY_ATTR Finish(const PixelEpilogue& epilogue, int64_t at, Lanes lanes)
      : lanes_(lanes),
        has_bias_(epilogue.bias != nullptr),
        has_scaling_(epilogue.scaling.scale != nullptr),
        clamps_(epilogue.clamps),
        is_relu_(epilogue.is_relu),
        addend_(epilogue.addend == nullptr ? nullptr : epilogue.addend + at),
        addend_stride_(epilogue.addend_stride),
        bias_(has_bias_ ? lanes.Load(epilogue.bias + at) : hn::Zero(Floats())),
        centre_(has_scaling_ ? lanes.Load(epilogue.scaling.centre + at) : hn::Zero(Floats())),
        scale_(has_scaling_ ? lanes.Load(epilogue.scaling.scale + at) : hn::Zero(Floats())),
        shift_(has_scaling_ ? lanes.Load(epilogue.scaling.shift + at) : hn::Zero(Floats())),
        low_(hn::Set(Floats(), epilogue.low)),
        high_(hn::Set(Floats(), epilogue.high)) {}

  HWY_INLINE HWY_ATTR Vector operator()(Vector sum, int64_t pixel) const {
    Vector sums[1] = {sum};
    Apply(sums, pixel);
    return sums[0];
  }

  // Of pixels that follow one another. The loops are unrolled, so that sums stay in registers.
  template <int kPixels>
  HWY_INLINE HWY_ATTR void Apply(Vector (&sums)[kPixels], int64_t pixel) const {
    if (has_bias_) {
#pragma GCC unroll 16
      for (int i = 0; i < kPixels; ++i) sums[i] = hn::Add(sums[i], bias_);
    }
    if (has_scaling_) {
#pragma GCC unroll 16
      for (int i = 0; i < kPixels; ++i) sums[i] = hn::Add(hn::Mul(hn::Sub(sums[i], centre_), scale_), shift_);
    }
    if (addend_ != nullptr) {
      const float* addend = addend_ + pixel * addend_stride_;
#pragma GCC unroll 16
      for (int i = 0; i < kPixels; ++i, addend += addend_stride_) sums[i] = hn::Add(sums[i], lanes_.Load(addend));
    }
    if (is_relu_) {
      const Vector zero = hn::Zero(Floats());
#pragma GCC unroll 16
      for (int i = 0; i < kPixels; ++i) sums[i] = hn::IfThenElse(hn::Le(sums[i], zero), zero, sums[i]);
    } else if (clamps_) {
#pragma GCC unroll 16
      for (int i = 0; i < kPixels; ++i) sums[i] = Clamp(sums[i]);
    }
  }

 private:
  HWY_INLINE HWY_ATTR Vector Clamp(Vector sum) const {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
    return hn::Min(high_, hn::Max(low_, sum));  // the second one where one is NaN
#else
    sum = hn::IfThenElse(hn::Lt(sum, low_), low_, sum);
    return hn::IfThenElse(hn::Gt(sum, high_), high_, sum);
#endif
  }

  Lanes lanes_;
  bool has_bias_, has_scaling_, clamps_, is_relu_;
  const float* addend_;
  int64_t addend_stride_;
  Vector bias_, centre_, scale_, shift_, low_, high_;
};

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#endif
