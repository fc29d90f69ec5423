// SPDX-License-Identifier: Apache-2.0
#include "kernels/cast.h"

#include <cstring>

#include "kernels/simd/rows.h"

namespace reprise::kernels {
namespace {

// Rows with a vector body in simd/rows.cc.
template <class From, class To>
inline constexpr bool kHasVectorCast = (std::is_same_v<From, float> && kIsReducedFloat<To>) ||
                                       (std::is_same_v<To, float> && kIsReducedFloat<From>);

template <class From, class To>
void CastRow(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n) {
  constexpr int64_t kFromBytes = sizeof(From);
  constexpr int64_t kToBytes = sizeof(To);
  if (src_stride == kFromBytes && dst_stride == kToBytes) {
    const From* from = reinterpret_cast<const From*>(src);
    To* to = reinterpret_cast<To*>(dst);
    if constexpr (std::is_same_v<From, To>) {
      if (src != dst) std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(To));
    } else if constexpr (kHasVectorCast<From, To>) {
      simd::ConvertRow(DTypeOf<From>(), DTypeOf<To>(), from, to, n);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = CastValue<To>(from[i]);
    }
    return;
  }
  if (src_stride == 0) {  // a broadcast element: convert it once
    const To value = CastValue<To>(*reinterpret_cast<const From*>(src));
    if (dst_stride == kToBytes) {
      To* to = reinterpret_cast<To*>(dst);
      for (int64_t i = 0; i < n; ++i) to[i] = value;
    } else {
      for (int64_t i = 0; i < n; ++i) *reinterpret_cast<To*>(dst + i * dst_stride) = value;
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<To*>(dst + i * dst_stride) = CastValue<To>(*reinterpret_cast<const From*>(src + i * src_stride));
  }
}

}  // namespace

CastFn FindCast(DType from, DType to) {
  return DispatchAll(from, [to](auto from_tag) {
    using From = typename decltype(from_tag)::Type;
    return DispatchAll(to, [](auto to_tag) -> CastFn {
      using To = typename decltype(to_tag)::Type;
      return &CastRow<From, To>;
    });
  });
}

RowReader::RowReader(DType from, DType middle, DType to) : middle_bytes_(ItemSize(middle)) {
  if (from == middle || middle == to) {
    first_ = FindCast(from, to);
  } else {
    first_ = FindCast(from, middle);
    second_ = FindCast(middle, to);
  }
}

void RowReader::ReadInTwoSteps(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n) const {
  constexpr int64_t kBlock = 256;
  alignas(16) char middle[kBlock * 16];
  while (n > 0) {
    const int64_t count = n < kBlock ? n : kBlock;
    first_(src, src_stride, middle, middle_bytes_, count);
    second_(middle, middle_bytes_, dst, dst_stride, count);
    src += count * src_stride;
    dst += count * dst_stride;
    n -= count;
  }
}

Scalar::Scalar(DType type, const void* value) : dtype(type) {
  std::memcpy(bytes, value, static_cast<size_t>(ItemSize(type)));
}

}  // namespace reprise::kernels
