// SPDX-License-Identifier: Apache-2.0
//
// Element-wise reduction into memory: dst[i] = op(dst[i], src[i]), as the copy engine of the device does it.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// The numbers are those of aclrtReduceKind.
enum class ReduceKind : uint32_t { kSum = 10, kMax = 11, kMin = 12, kEqual = 13 };

/// Element types that reductions and random numbers know; the numbers are those of aclDataType.
enum class ElementType : int32_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kInt8 = 2,
  kInt32 = 3,
  kInt16 = 6,
  kBFloat16 = 27,
};

/// 0 for a number that is none of them.
constexpr uint32_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kInt8: return 1;
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
    case ElementType::kInt16: return 2;
    case ElementType::kFloat32:
    case ElementType::kInt32: return 4;
  }
  return 0;
}

/// Integers wrap around; fp16 and bf16 are computed in fp32 and rounded to nearest even. A NaN on either side of a
/// minimum or maximum gives a NaN. kEqual writes 1 or 0.
void Reduce(void* dst, const void* src, uint64_t count, ReduceKind kind, ElementType type);

/// Queues Reduce over `bytes` bytes, a multiple of the element size.
Status SubmitReduce(Stream& stream, void* dst, const void* src, uint64_t bytes, ReduceKind kind, ElementType type);

}  // namespace reprise::runtime
