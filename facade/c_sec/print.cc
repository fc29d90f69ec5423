// SPDX-License-Identifier: Apache-2.0
//
// Printing into texts.
#include <cstdarg>
#include <cstdio>
#include <cwchar>

#include "securec.h"

namespace {

// Prints as much as fits; what it would have taken, or -1. -1 with an empty text for nulls and sizes that make no
// sense.
int PrintWhatFits(char* dest, size_t dest_max, const char* format, va_list arguments) {
  if (dest == nullptr || dest_max == 0 || dest_max > SECUREC_STRING_MAX_LEN) return -1;
  *dest = '\0';
  if (format == nullptr) return -1;
  const int length = std::vsnprintf(dest, dest_max, format, arguments);
  if (length < 0) *dest = '\0';
  return length;
}

bool Exceeds(int length, size_t room) { return static_cast<size_t>(length) >= room; }

int EmptiedText(char* dest) {
  *dest = '\0';
  return -1;
}

}  // namespace

int vsprintf_s(char* strDest, size_t destMax, const char* format, va_list argList) {
  const int length = PrintWhatFits(strDest, destMax, format, argList);
  return length >= 0 && Exceeds(length, destMax) ? EmptiedText(strDest) : length;
}

int vsnprintf_s(char* strDest, size_t destMax, size_t count, const char* format, va_list argList) {
  const bool cut_to_fit = count == static_cast<size_t>(-1);
  if (count > SECUREC_STRING_MAX_LEN && !cut_to_fit) {
    return strDest != nullptr && destMax != 0 && destMax <= SECUREC_STRING_MAX_LEN ? EmptiedText(strDest) : -1;
  }
  const int length = PrintWhatFits(strDest, destMax, format, argList);
  if (length < 0) return length;
  if (cut_to_fit) return Exceeds(length, destMax) ? -1 : length;
  if (count < destMax) {
    if (static_cast<size_t>(length) <= count) return length;
    strDest[count] = '\0';
    return -1;
  }
  return Exceeds(length, destMax) ? EmptiedText(strDest) : length;
}

int vsnprintf_truncated_s(char* strDest, size_t destMax, const char* format, va_list argList) {
  const int length = PrintWhatFits(strDest, destMax, format, argList);
  return length >= 0 && Exceeds(length, destMax) ? static_cast<int>(destMax - 1) : length;
}

int sprintf_s(char* strDest, size_t destMax, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsprintf_s(strDest, destMax, format, arguments);
  va_end(arguments);
  return length;
}

int snprintf_s(char* strDest, size_t destMax, size_t count, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf_s(strDest, destMax, count, format, arguments);
  va_end(arguments);
  return length;
}

int snprintf_truncated_s(char* strDest, size_t destMax, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf_truncated_s(strDest, destMax, format, arguments);
  va_end(arguments);
  return length;
}

int vswprintf_s(wchar_t* strDest, size_t destMax, const wchar_t* format, va_list argList) {
  if (strDest == nullptr || destMax == 0 || destMax > SECUREC_WCHAR_STRING_MAX_LEN) return -1;
  *strDest = 0;
  if (format == nullptr) return -1;
  const int length = std::vswprintf(strDest, destMax, format, argList);
  if (length < 0 || static_cast<size_t>(length) >= destMax) {
    *strDest = 0;
    return -1;
  }
  return length;
}

int swprintf_s(wchar_t* strDest, size_t destMax, const wchar_t* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vswprintf_s(strDest, destMax, format, arguments);
  va_end(arguments);
  return length;
}
