/* SPDX-License-Identifier: Apache-2.0
 *
 * Argument objects of operators that compute and communicate. Refused here with HCCL_E_NOT_SUPPORT.
 */
#ifndef REPRISE_HCCL_HCCL_MC2_H_
#define REPRISE_HCCL_HCCL_MC2_H_

#include "hccl/hccl_developer_types.h"

#ifdef __cplusplus
extern "C" {
#endif

HcclResult HcclCreateOpResCtx(HcclComm comm, uint8_t opType, void* opArgs, void** opResCtx);
HcclResult HcclKfcAllocOpArgs(void** opArgs);
HcclResult HcclKfcFreeOpArgs(void* opArgs);
HcclResult HcclKfcOpArgsSetAlgConfig(void* opArgs, char* algConfig);
HcclResult HcclKfcOpArgsSetCommEngine(void* opArgs, uint8_t commEngine);
HcclResult HcclKfcOpArgsSetCount(void* opArgs, uint64_t count);
HcclResult HcclKfcOpArgsSetDstDataType(void* opArgs, uint8_t dstDataType);
HcclResult HcclKfcOpArgsSetReduceType(void* opArgs, uint32_t reduceType);
HcclResult HcclKfcOpArgsSetSrcDataType(void* opArgs, uint8_t srcDataType);

#ifdef __cplusplus
}
#endif
#endif
