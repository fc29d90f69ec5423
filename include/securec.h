/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and texts that know how large their destination is (libc_sec.so). Each function takes the bytes of the
 * destination, `destMax`, and refuses what does not fit instead of writing beyond it. Functions of wide characters
 * (w…) count in these, not in bytes.
 *
 * Functions of type errno_t return EOK, or
 *     EINVAL              the destination is null (nothing is written)
 *     ERANGE              destMax is 0 or above SECUREC_MEM_MAX_LEN (nothing is written)
 *     EINVAL_AND_RESET    the source is null, or the text to append to has no end
 *     ERANGE_AND_RESET    it does not fit
 *     EOVERLAP_AND_RESET  source and destination overlap
 * after which ..._AND_RESET leaves an empty text, or for memory destMax bytes of 0 (memset_s: of its value).
 * Functions that print return the number of characters without the final zero, or -1.
 */
#ifndef REPRISE_SECUREC_H_
#define REPRISE_SECUREC_H_

#include <stdarg.h>
#include <stdio.h>
#include <wchar.h>

#include "securectype.h"

#ifndef EOK
#define EOK 0
#endif
#ifndef EOVERLAP
#define EOVERLAP 54
#endif
#ifndef EINVAL_AND_RESET
#define EINVAL_AND_RESET 150
#endif
#ifndef ERANGE_AND_RESET
#define ERANGE_AND_RESET 162
#endif
#ifndef EOVERLAP_AND_RESET
#define EOVERLAP_AND_RESET 182
#endif

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

errno_t memset_s(void* dest, size_t destMax, int c, size_t count);
/** `dest` may be `src`, but not overlap it. */
errno_t memcpy_s(void* dest, size_t destMax, const void* src, size_t count);
errno_t memmove_s(void* dest, size_t destMax, const void* src, size_t count);
errno_t wmemcpy_s(wchar_t* dest, size_t destMax, const wchar_t* src, size_t count);
errno_t wmemmove_s(wchar_t* dest, size_t destMax, const wchar_t* src, size_t count);

errno_t strcpy_s(char* strDest, size_t destMax, const char* strSrc);
/** At most `count` characters, and a zero. */
errno_t strncpy_s(char* strDest, size_t destMax, const char* strSrc, size_t count);
errno_t strcat_s(char* strDest, size_t destMax, const char* strSrc);
errno_t strncat_s(char* strDest, size_t destMax, const char* strSrc, size_t count);
/** `strToken` is null for the next token; null when there is none left, or for a null of the other two. */
char* strtok_s(char* strToken, const char* strDelimit, char** context);

errno_t wcscpy_s(wchar_t* strDest, size_t destMax, const wchar_t* strSrc);
errno_t wcsncpy_s(wchar_t* strDest, size_t destMax, const wchar_t* strSrc, size_t count);
errno_t wcscat_s(wchar_t* strDest, size_t destMax, const wchar_t* strSrc);
errno_t wcsncat_s(wchar_t* strDest, size_t destMax, const wchar_t* strSrc, size_t count);
wchar_t* wcstok_s(wchar_t* strToken, const wchar_t* strDelimit, wchar_t** context);

/** Leaves an empty text when it does not fit. */
int sprintf_s(char* strDest, size_t destMax, const char* format, ...) __attribute__((format(printf, 3, 4)));
int vsprintf_s(char* strDest, size_t destMax, const char* format, va_list argList)
    __attribute__((format(printf, 3, 0)));
/** At most `count` characters and a zero: what is longer is cut, and -1 returned. An empty text when what is to be
 *  written, after the cut, does not fit into destMax. `count` of (size_t)-1: cut at destMax - 1. */
int snprintf_s(char* strDest, size_t destMax, size_t count, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
int vsnprintf_s(char* strDest, size_t destMax, size_t count, const char* format, va_list argList)
    __attribute__((format(printf, 4, 0)));
/** What does not fit is cut; then destMax - 1 is returned. */
int snprintf_truncated_s(char* strDest, size_t destMax, const char* format, ...) __attribute__((format(printf, 3, 4)));
int vsnprintf_truncated_s(char* strDest, size_t destMax, const char* format, va_list argList)
    __attribute__((format(printf, 3, 0)));

/** As sprintf_s. */
int swprintf_s(wchar_t* strDest, size_t destMax, const wchar_t* format, ...);
int vswprintf_s(wchar_t* strDest, size_t destMax, const wchar_t* format, va_list argList);

/** As sscanf, but the address of a %s, %c or %[ is followed by the bytes there, a size_t. The number of fields
 *  assigned; -1 for nulls and when the text ends before the first field. A field that does not fit is left empty and
 *  ends the call; it does not count. */
int sscanf_s(const char* buffer, const char* format, ...);
int vsscanf_s(const char* buffer, const char* format, va_list argList);
/** The same from a file. What did not match is still there, but for a field that did not fit. */
int fscanf_s(FILE* stream, const char* format, ...);
int vfscanf_s(FILE* stream, const char* format, va_list argList);
/** From the standard input. */
int scanf_s(const char* format, ...);
int vscanf_s(const char* format, va_list argList);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif /* REPRISE_SECUREC_H_ */
