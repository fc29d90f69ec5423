// SPDX-License-Identifier: Apache-2.0
//
// Texts: copies, appending, tokens.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "securec.h"

namespace {

bool IsTextSize(size_t bytes) { return bytes != 0 && bytes <= SECUREC_STRING_MAX_LEN; }

errno_t Emptied(char* dest, errno_t why) {
  *dest = '\0';
  return why;
}

// Puts `length` characters of `src` and a zero behind the `used` characters at `dest`. `src_bytes` is what of the
// source is read: with its zero, where that was looked at.
errno_t Place(char* dest, size_t dest_max, size_t used, const char* src, size_t length, size_t src_bytes) {
  const auto to = reinterpret_cast<uintptr_t>(dest), from = reinterpret_cast<uintptr_t>(src);
  const size_t dest_bytes = std::min(dest_max, used + length + 1);
  if (to < from + src_bytes && from < to + dest_bytes) return Emptied(dest, EOVERLAP_AND_RESET);
  if (length >= dest_max - used) return Emptied(dest, ERANGE_AND_RESET);
  std::memcpy(dest + used, src, length);
  dest[used + length] = '\0';
  return EOK;
}

errno_t CheckText(char* dest, size_t dest_max, const char* src) {
  if (!IsTextSize(dest_max)) return ERANGE;
  if (dest == nullptr) return EINVAL;
  return src == nullptr ? Emptied(dest, EINVAL_AND_RESET) : EOK;
}

// Characters of `src`, at most `most`. A source whose end lies beyond what could ever fit is not followed further.
size_t LengthUpTo(const char* src, size_t most) { return strnlen(src, most); }

}  // namespace

errno_t strcpy_s(char* strDest, size_t destMax, const char* strSrc) {
  if (const errno_t wrong = CheckText(strDest, destMax, strSrc); wrong != EOK) return wrong;
  if (strDest == strSrc) return LengthUpTo(strSrc, destMax) < destMax ? EOK : Emptied(strDest, ERANGE_AND_RESET);
  const size_t length = LengthUpTo(strSrc, destMax);
  return Place(strDest, destMax, 0, strSrc, length, length < destMax ? length + 1 : length);
}

errno_t strncpy_s(char* strDest, size_t destMax, const char* strSrc, size_t count) {
  if (const errno_t wrong = CheckText(strDest, destMax, strSrc); wrong != EOK) return wrong;
  if (count > SECUREC_STRING_MAX_LEN) return Emptied(strDest, ERANGE_AND_RESET);
  if (count == 0) return Emptied(strDest, EOK);
  const size_t most = std::min(count, destMax);
  const size_t length = LengthUpTo(strSrc, most);
  if (strDest == strSrc) {
    if (length >= destMax) return Emptied(strDest, ERANGE_AND_RESET);
    strDest[length] = '\0';
    return EOK;
  }
  return Place(strDest, destMax, 0, strSrc, length, length < most ? length + 1 : length);
}

errno_t strcat_s(char* strDest, size_t destMax, const char* strSrc) {
  return strncat_s(strDest, destMax, strSrc, SECUREC_STRING_MAX_LEN);
}

errno_t strncat_s(char* strDest, size_t destMax, const char* strSrc, size_t count) {
  if (const errno_t wrong = CheckText(strDest, destMax, strSrc); wrong != EOK) return wrong;
  if (count > SECUREC_STRING_MAX_LEN) return Emptied(strDest, ERANGE_AND_RESET);
  const size_t used = LengthUpTo(strDest, destMax);
  if (used == destMax) return Emptied(strDest, EINVAL_AND_RESET);
  const size_t most = std::min(count, destMax);
  const size_t length = LengthUpTo(strSrc, most);
  return Place(strDest, destMax, used, strSrc, length, length < most ? length + 1 : length);
}

char* strtok_s(char* strToken, const char* strDelimit, char** context) {
  if (strDelimit == nullptr || context == nullptr || (strToken == nullptr && *context == nullptr)) return nullptr;
  return strtok_r(strToken, strDelimit, context);
}
