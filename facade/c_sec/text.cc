// SPDX-License-Identifier: Apache-2.0
//
// Texts: copies, appending, tokens; of bytes and of wide characters.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <cwchar>

#include "securec.h"

namespace {

template <class Char>
constexpr size_t kMostText = SECUREC_STRING_MAX_LEN / sizeof(Char);

template <class Char>
errno_t Emptied(Char* dest, errno_t why) {
  *dest = 0;
  return why;
}

// Characters of `src`, at most `most`. A source whose end lies beyond what could ever fit is not followed further.
size_t LengthUpTo(const char* src, size_t most) { return strnlen(src, most); }
size_t LengthUpTo(const wchar_t* src, size_t most) { return wcsnlen(src, most); }

// Puts `length` characters of `src` and a zero behind the `used` characters at `dest`. `src_read` is what of the source
// is read: with its zero, where that was looked at.
template <class Char>
errno_t Place(Char* dest, size_t dest_max, size_t used, const Char* src, size_t length, size_t src_read) {
  const auto to = reinterpret_cast<uintptr_t>(dest), from = reinterpret_cast<uintptr_t>(src);
  const size_t dest_written = std::min(dest_max, used + length + 1);
  if (to < from + src_read * sizeof(Char) && from < to + dest_written * sizeof(Char)) {
    return Emptied(dest, EOVERLAP_AND_RESET);
  }
  if (length >= dest_max - used) return Emptied(dest, ERANGE_AND_RESET);
  std::memcpy(dest + used, src, length * sizeof(Char));
  dest[used + length] = 0;
  return EOK;
}

template <class Char>
errno_t CheckText(Char* dest, size_t dest_max, const Char* src) {
  if (dest_max == 0 || dest_max > kMostText<Char>) return ERANGE;
  if (dest == nullptr) return EINVAL;
  return src == nullptr ? Emptied(dest, EINVAL_AND_RESET) : EOK;
}

template <class Char>
errno_t CopyText(Char* dest, size_t dest_max, const Char* src) {
  if (const errno_t wrong = CheckText(dest, dest_max, src); wrong != EOK) return wrong;
  const size_t length = LengthUpTo(src, dest_max);
  if (dest == src) return length < dest_max ? EOK : Emptied(dest, ERANGE_AND_RESET);
  return Place(dest, dest_max, 0, src, length, length < dest_max ? length + 1 : length);
}

template <class Char>
errno_t CopySome(Char* dest, size_t dest_max, const Char* src, size_t count) {
  if (const errno_t wrong = CheckText(dest, dest_max, src); wrong != EOK) return wrong;
  if (count > kMostText<Char>) return Emptied(dest, ERANGE_AND_RESET);
  if (count == 0) return Emptied(dest, EOK);
  const size_t most = std::min(count, dest_max);
  const size_t length = LengthUpTo(src, most);
  if (dest == src) {
    if (length >= dest_max) return Emptied(dest, ERANGE_AND_RESET);
    dest[length] = 0;
    return EOK;
  }
  return Place(dest, dest_max, 0, src, length, length < most ? length + 1 : length);
}

template <class Char>
errno_t AppendSome(Char* dest, size_t dest_max, const Char* src, size_t count) {
  if (const errno_t wrong = CheckText(dest, dest_max, src); wrong != EOK) return wrong;
  if (count > kMostText<Char>) return Emptied(dest, ERANGE_AND_RESET);
  const size_t used = LengthUpTo(dest, dest_max);
  if (used == dest_max) return Emptied(dest, EINVAL_AND_RESET);
  const size_t most = std::min(count, dest_max);
  const size_t length = LengthUpTo(src, most);
  return Place(dest, dest_max, used, src, length, length < most ? length + 1 : length);
}

}  // namespace

errno_t strcpy_s(char* strDest, size_t destMax, const char* strSrc) { return CopyText(strDest, destMax, strSrc); }
errno_t wcscpy_s(wchar_t* strDest, size_t destMax, const wchar_t* strSrc) { return CopyText(strDest, destMax, strSrc); }

errno_t strncpy_s(char* strDest, size_t destMax, const char* strSrc, size_t count) {
  return CopySome(strDest, destMax, strSrc, count);
}
errno_t wcsncpy_s(wchar_t* strDest, size_t destMax, const wchar_t* strSrc, size_t count) {
  return CopySome(strDest, destMax, strSrc, count);
}

errno_t strcat_s(char* strDest, size_t destMax, const char* strSrc) {
  return AppendSome(strDest, destMax, strSrc, kMostText<char>);
}
errno_t wcscat_s(wchar_t* strDest, size_t destMax, const wchar_t* strSrc) {
  return AppendSome(strDest, destMax, strSrc, kMostText<wchar_t>);
}

errno_t strncat_s(char* strDest, size_t destMax, const char* strSrc, size_t count) {
  return AppendSome(strDest, destMax, strSrc, count);
}
errno_t wcsncat_s(wchar_t* strDest, size_t destMax, const wchar_t* strSrc, size_t count) {
  return AppendSome(strDest, destMax, strSrc, count);
}

char* strtok_s(char* strToken, const char* strDelimit, char** context) {
  if (strDelimit == nullptr || context == nullptr || (strToken == nullptr && *context == nullptr)) return nullptr;
  return strtok_r(strToken, strDelimit, context);
}
wchar_t* wcstok_s(wchar_t* strToken, const wchar_t* strDelimit, wchar_t** context) {
  if (strDelimit == nullptr || context == nullptr || (strToken == nullptr && *context == nullptr)) return nullptr;
  return std::wcstok(strToken, strDelimit, context);
}
