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

#include <stddef.h>
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

struct mstxMemHeap_st;
typedef struct mstxMemHeap_st mstxMemHeap_t;
typedef mstxMemHeap_t* mstxMemHeapHandle_t;

struct mstxMemRegion_st;
typedef struct mstxMemRegion_st mstxMemRegion_t;
typedef mstxMemRegion_t* mstxMemRegionHandle_t;

typedef enum mstxMemHeapUsageType {
  MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR = 0, /**< a pool, of which pieces are handed out */
} mstxMemHeapUsageType;

typedef enum mstxMemType {
  MSTX_MEM_TYPE_VIRTUAL_ADDRESS = 0, /**< described by mstxMemVirtualRangeDesc_t */
} mstxMemType;

typedef struct mstxMemVirtualRangeDesc_t {
  uint32_t deviceId;
  void const* ptr;
  uint64_t size; /**< bytes */
} mstxMemVirtualRangeDesc_t;

typedef struct mstxMemHeapDesc_t {
  mstxMemHeapUsageType usage;
  mstxMemType type;
  void const* typeSpecificDesc;
} mstxMemHeapDesc_t;

typedef struct mstxMemRegionsRegisterBatch_t {
  mstxMemHeapHandle_t heap;
  mstxMemType regionType;
  size_t regionCount;
  void const* regionDescArray;                 /**< of mstxMemVirtualRangeDesc_t */
  mstxMemRegionHandle_t* regionHandleArrayOut; /**< one for each, or NULL: then regions are named by address */
} mstxMemRegionsRegisterBatch_t;

typedef enum mstxMemRegionRefType {
  MSTX_MEM_REGION_REF_TYPE_POINTER = 0,
  MSTX_MEM_REGION_REF_TYPE_HANDLE,
} mstxMemRegionRefType;

typedef struct mstxMemRegionRef_t {
  mstxMemRegionRefType refType;
  __extension__ union {  /* C has unnamed unions from 2011 on */
    void const* pointer; /**< where the region begins */
    mstxMemRegionHandle_t handle;
  };
} mstxMemRegionRef_t;

typedef struct mstxMemRegionsUnregisterBatch_t {
  size_t refCount;
  mstxMemRegionRef_t const* refArray;
} mstxMemRegionsUnregisterBatch_t;

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
/** A pool of the program, in a domain or in none (NULL). Pools do not overlap. NULL for a wrong call. */
mstxMemHeapHandle_t mstxMemHeapRegister(mstxDomainHandle_t domain, mstxMemHeapDesc_t const* desc);
/** Its regions end, too. */
void mstxMemHeapUnregister(mstxDomainHandle_t domain, mstxMemHeapHandle_t heap);
/** Pieces of a pool, which do not overlap: all of them or, for a wrong call, none. */
void mstxMemRegionsRegister(mstxDomainHandle_t domain, mstxMemRegionsRegisterBatch_t const* desc);
void mstxMemRegionsUnregister(mstxDomainHandle_t domain, mstxMemRegionsUnregisterBatch_t const* desc);

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
static inline mstxMemHeapHandle_t mstxMemHeapRegister(mstxDomainHandle_t domain, mstxMemHeapDesc_t const* desc) {
  static void* found;
  mstxMemHeapHandle_t (*function)(mstxDomainHandle_t, mstxMemHeapDesc_t const*);
  *(void**)&function = repriseMstxFind(&found, "mstxMemHeapRegister");
  return function != 0 ? function(domain, desc) : 0;
}
static inline void mstxMemHeapUnregister(mstxDomainHandle_t domain, mstxMemHeapHandle_t heap) {
  static void* found;
  void (*function)(mstxDomainHandle_t, mstxMemHeapHandle_t);
  *(void**)&function = repriseMstxFind(&found, "mstxMemHeapUnregister");
  if (function != 0) function(domain, heap);
}
static inline void mstxMemRegionsRegister(mstxDomainHandle_t domain, mstxMemRegionsRegisterBatch_t const* desc) {
  static void* found;
  void (*function)(mstxDomainHandle_t, mstxMemRegionsRegisterBatch_t const*);
  *(void**)&function = repriseMstxFind(&found, "mstxMemRegionsRegister");
  if (function != 0) function(domain, desc);
}
static inline void mstxMemRegionsUnregister(mstxDomainHandle_t domain, mstxMemRegionsUnregisterBatch_t const* desc) {
  static void* found;
  void (*function)(mstxDomainHandle_t, mstxMemRegionsUnregisterBatch_t const*);
  *(void**)&function = repriseMstxFind(&found, "mstxMemRegionsUnregister");
  if (function != 0) function(domain, desc);
}

#endif /* MSTX_NO_IMPL */
#ifdef __cplusplus
}
#endif

#endif /* REPRISE_MSTX_MS_TOOLS_EXT_H_ */
