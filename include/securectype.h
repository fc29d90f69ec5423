/* SPDX-License-Identifier: Apache-2.0
 *
 * Types and limits of securec.h.
 */
#ifndef REPRISE_SECURECTYPE_H_
#define REPRISE_SECURECTYPE_H_

#include <errno.h>
#include <stddef.h>

#ifndef errno_t
typedef int errno_t;
#endif

/** The longest buffers that the functions accept, in bytes. */
#define SECUREC_MEM_MAX_LEN 0x7fffffffUL
#define SECUREC_STRING_MAX_LEN 0x7fffffffUL
/** The same in wide characters. */
#define SECUREC_WCHAR_MEM_MAX_LEN (SECUREC_MEM_MAX_LEN / sizeof(wchar_t))
#define SECUREC_WCHAR_STRING_MAX_LEN (SECUREC_STRING_MAX_LEN / sizeof(wchar_t))

#endif /* REPRISE_SECURECTYPE_H_ */
