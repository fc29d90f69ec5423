/* SPDX-License-Identifier: Apache-2.0
 *
 * What frameworks tell a profiler about themselves (libprofapi.so). The timeline that aclprofStart records holds tasks,
 * submissions and marks, which the runtime sees itself; reports of frameworks are checked and not added to it. Programs
 * that want their own ranges in it use acl_prof.h or mstx/ms_tools_ext.h.
 *
 * Functions of type int32_t return 0, or a number of acl_rt.h; aclGetRecentErrMsg has the words.
 */
#ifndef REPRISE_EXPERIMENT_MSPROF_PROF_API_H_
#define REPRISE_EXPERIMENT_MSPROF_PROF_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** What each report begins with. */
#define MSPROF_REPORT_DATA_MAGIC_NUM 0x5A5AU

/** A call: its level and type, and when it was, as MsprofSysCycleTime counts. */
struct MsprofApi {
  uint16_t magicNumber; /**< MSPROF_REPORT_DATA_MAGIC_NUM */
  uint16_t level;
  uint32_t type;
  uint32_t threadId;
  uint32_t reserve;
  uint64_t beginTime;
  uint64_t endTime;
  uint64_t itemId; /**< a number of MsprofGetHashId */
};

typedef int32_t (*ProfCommandHandle)(uint32_t type, void* data, uint32_t len);

/** Accepted; nothing here sends commands to frameworks, so `handle` is never called. */
int32_t MsprofRegisterCallback(uint32_t moduleId, ProfCommandHandle handle);
int32_t MsprofReportApi(uint32_t agingFlag, const struct MsprofApi* api);
/** `data` begins with MSPROF_REPORT_DATA_MAGIC_NUM, 16 bits. */
int32_t MsprofReportCompactInfo(uint32_t agingFlag, const void* data, uint32_t length);
int32_t MsprofReportAdditionalInfo(uint32_t agingFlag, const void* data, uint32_t length);
/** The same number for the same text; 0 for NULL, and when there are too many texts. */
uint64_t MsprofGetHashId(const char* hashInfo, size_t length);
/** Nanoseconds of the clock of the timeline; never 0. */
uint64_t MsprofSysCycleTime(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif /* REPRISE_EXPERIMENT_MSPROF_PROF_API_H_ */
