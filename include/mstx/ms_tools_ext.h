/* SPDX-License-Identifier: Apache-2.0
 *
 * Marks and ranges of a program in the timeline (libms_tools_ext.so). They show in what aclprofStart and
 * REPRISE_PROFILE record, with the name of their domain in front; while nobody records, nothing is kept.
 *
 * A stream adds the mark or the range to the track of that stream, when the stream comes to it: as tasks, which a
 * capture records and each replay repeats. NULL is no stream here, not the default one.
 *
 * Wrong calls have no effect; aclGetRecentErrMsg says why.
 *
 * A program needs this header alone (and -ldl with older C libraries): the library is loaded by the first call, and
 * without it the functions do nothing. With MSTX_NO_IMPL they are only declared; then link ms_tools_ext.
 */
#ifndef REPRISE_MSTX_MS_TOOLS_EXT_H_
#define REPRISE_MSTX_MS_TOOLS_EXT_H_

#include <stdint.h>

#ifndef MSTX_NO_IMPL
#include <dlfcn.h>
#endif

#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MSTX_INVALID_ID 0

/** Tools that mstxGetToolId names. */
#define MSTX_TOOL_INVALID_ID 0x0
#define MSTX_TOOL_MSPROF_ID 0x1000
#define MSTX_TOOL_MSOPPROF_ID 0x1001
#define MSTX_TOOL_MSSANITIZER_ID 0x1002
#define MSTX_TOOL_MSLEAKS_ID 0x1003

typedef uint64_t mstxRangeId;

struct mstxDomainRegistration_st;
typedef struct mstxDomainRegistration_st mstxDomainRegistration_t;
typedef mstxDomainRegistration_t* mstxDomainHandle_t;

#ifdef MSTX_NO_IMPL
#pragma GCC visibility push(default)

/** An instant on this thread, and one on the stream. `message` is a text of 1 to 4096 bytes. */
void mstxMarkA(const char* message, aclrtStream stream);
/** A range that begins now, and ends on any thread, in any order. MSTX_INVALID_ID for a wrong call. */
mstxRangeId mstxRangeStartA(const char* message, aclrtStream stream);
/** Ends a range of no domain. */
void mstxRangeEnd(mstxRangeId id);
/** A name for marks and ranges that belong together; NULL for a wrong call. */
mstxDomainHandle_t mstxDomainCreateA(const char* name);
/** Its open ranges end, too. */
void mstxDomainDestroy(mstxDomainHandle_t domain);
/** As mstxMarkA, in a domain; so are the next two. */
void mstxDomainMarkA(mstxDomainHandle_t domain, const char* message, aclrtStream stream);
mstxRangeId mstxDomainRangeStartA(mstxDomainHandle_t domain, const char* message, aclrtStream stream);
void mstxDomainRangeEnd(mstxDomainHandle_t domain, mstxRangeId id);
/** Writes who takes the marks: MSTX_TOOL_MSPROF_ID while somebody records, else MSTX_TOOL_INVALID_ID. */
void mstxGetToolId(uint64_t* id);

#pragma GCC visibility pop
#else /* the same functions, found in the library when they are first called */

/* `found` keeps the address, or its own where there is none. */
static inline void* repriseMstxFind(void** found, const char* name) {
  void* address = __atomic_load_n(found, __ATOMIC_ACQUIRE);
  if (address == 0) {
    void* library = dlopen("libms_tools_ext.so", RTLD_LAZY);
    address = library != 0 ? dlsym(library, name) : 0;
    if (address == 0) address = (void*)found;
    __atomic_store_n(found, address, __ATOMIC_RELEASE);
  }
  return address != (void*)found ? address : 0;
}

static inline void mstxMarkA(const char* message, aclrtStream stream) {
  static void* found;
  void (*function)(const char*, aclrtStream);
  *(void**)&function = repriseMstxFind(&found, "mstxMarkA");
  if (function != 0) function(message, stream);
}
static inline mstxRangeId mstxRangeStartA(const char* message, aclrtStream stream) {
  static void* found;
  mstxRangeId (*function)(const char*, aclrtStream);
  *(void**)&function = repriseMstxFind(&found, "mstxRangeStartA");
  return function != 0 ? function(message, stream) : MSTX_INVALID_ID;
}
static inline void mstxRangeEnd(mstxRangeId id) {
  static void* found;
  void (*function)(mstxRangeId);
  *(void**)&function = repriseMstxFind(&found, "mstxRangeEnd");
  if (function != 0) function(id);
}
static inline mstxDomainHandle_t mstxDomainCreateA(const char* name) {
  static void* found;
  mstxDomainHandle_t (*function)(const char*);
  *(void**)&function = repriseMstxFind(&found, "mstxDomainCreateA");
  return function != 0 ? function(name) : 0;
}
static inline void mstxDomainDestroy(mstxDomainHandle_t domain) {
  static void* found;
  void (*function)(mstxDomainHandle_t);
  *(void**)&function = repriseMstxFind(&found, "mstxDomainDestroy");
  if (function != 0) function(domain);
}
static inline void mstxDomainMarkA(mstxDomainHandle_t domain, const char* message, aclrtStream stream) {
  static void* found;
  void (*function)(mstxDomainHandle_t, const char*, aclrtStream);
  *(void**)&function = repriseMstxFind(&found, "mstxDomainMarkA");
  if (function != 0) function(domain, message, stream);
}
static inline mstxRangeId mstxDomainRangeStartA(mstxDomainHandle_t domain, const char* message, aclrtStream stream) {
  static void* found;
  mstxRangeId (*function)(mstxDomainHandle_t, const char*, aclrtStream);
  *(void**)&function = repriseMstxFind(&found, "mstxDomainRangeStartA");
  return function != 0 ? function(domain, message, stream) : MSTX_INVALID_ID;
}
static inline void mstxDomainRangeEnd(mstxDomainHandle_t domain, mstxRangeId id) {
  static void* found;
  void (*function)(mstxDomainHandle_t, mstxRangeId);
  *(void**)&function = repriseMstxFind(&found, "mstxDomainRangeEnd");
  if (function != 0) function(domain, id);
}
static inline void mstxGetToolId(uint64_t* id) {
  static void* found;
  void (*function)(uint64_t*);
  *(void**)&function = repriseMstxFind(&found, "mstxGetToolId");
  if (function != 0) function(id);
}

#endif /* MSTX_NO_IMPL */
#ifdef __cplusplus
}
#endif

#endif /* REPRISE_MSTX_MS_TOOLS_EXT_H_ */
