// SPDX-License-Identifier: Apache-2.0
//
// Memory: copies and fills.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <cwchar>

#include "securec.h"

namespace {

bool IsMemorySize(size_t bytes) { return bytes != 0 && bytes <= SECUREC_MEM_MAX_LEN; }

bool RangesOverlap(const void* a, const void* b, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return (first > second ? first - second : second - first) < bytes;
}

// Null pointers and sizes; EOK when `count` bytes can be copied.
errno_t CheckCopy(void* dest, size_t dest_max, const void* src, size_t count) {
  if (!IsMemorySize(dest_max)) return ERANGE;
  if (dest == nullptr) return EINVAL;
  if (src == nullptr) {
    std::memset(dest, 0, dest_max);
    return EINVAL_AND_RESET;
  }
  if (count > dest_max) {
    std::memset(dest, 0, dest_max);
    return ERANGE_AND_RESET;
  }
  return EOK;
}

// The same in bytes; a size that is refused stays one.
size_t WideDestBytes(size_t dest_max) {
  return dest_max > SECUREC_WCHAR_MEM_MAX_LEN ? SECUREC_MEM_MAX_LEN + 1 : dest_max * sizeof(wchar_t);
}
size_t WideCountBytes(size_t count, size_t dest_max) { return std::min(count, dest_max + 1) * sizeof(wchar_t); }

}  // namespace

errno_t memset_s(void* dest, size_t destMax, int c, size_t count) {
  if (!IsMemorySize(destMax)) return ERANGE;
  if (dest == nullptr) return EINVAL;
  const bool fits = count <= destMax;
  std::memset(dest, c, fits ? count : destMax);
  return fits ? EOK : ERANGE_AND_RESET;
}

errno_t memcpy_s(void* dest, size_t destMax, const void* src, size_t count) {
  if (const errno_t wrong = CheckCopy(dest, destMax, src, count); wrong != EOK) return wrong;
  if (dest == src || count == 0) return EOK;
  if (RangesOverlap(dest, src, count)) {
    std::memset(dest, 0, destMax);
    return EOVERLAP_AND_RESET;
  }
  std::memcpy(dest, src, count);
  return EOK;
}

errno_t memmove_s(void* dest, size_t destMax, const void* src, size_t count) {
  if (const errno_t wrong = CheckCopy(dest, destMax, src, count); wrong != EOK) return wrong;
  std::memmove(dest, src, count);
  return EOK;
}

errno_t wmemcpy_s(wchar_t* dest, size_t destMax, const wchar_t* src, size_t count) {
  return memcpy_s(dest, WideDestBytes(destMax), src, WideCountBytes(count, destMax));
}

errno_t wmemmove_s(wchar_t* dest, size_t destMax, const wchar_t* src, size_t count) {
  return memmove_s(dest, WideDestBytes(destMax), src, WideCountBytes(count, destMax));
}
