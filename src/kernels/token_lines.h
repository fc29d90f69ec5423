// SPDX-License-Identifier: Apache-2.0
//
// Lines of views [batch, head, token, element] as float32.
#pragma once

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

inline char* LineOf(const TensorRef& ref, int64_t batch, int64_t head, int64_t token) {
  return static_cast<char*>(ref.data) +
         (batch * ref.strides[0] + head * ref.strides[1] + token * ref.strides[2]) * ItemSize(ref.dtype);
}

inline void LoadLine(const TensorRef& ref, int64_t batch, int64_t head, int64_t token, int64_t count, float* to) {
  FindCast(ref.dtype, DType::kFloat)(LineOf(ref, batch, head, token), ref.strides[3] * ItemSize(ref.dtype),
                                     reinterpret_cast<char*>(to), sizeof(float), count);
}

inline void StoreLine(const float* from, const TensorRef& ref, int64_t batch, int64_t head, int64_t token,
                      int64_t count) {
  FindCast(DType::kFloat, ref.dtype)(reinterpret_cast<const char*>(from), sizeof(float),
                                     LineOf(ref, batch, head, token), ref.strides[3] * ItemSize(ref.dtype), count);
}

}  // namespace reprise::kernels
