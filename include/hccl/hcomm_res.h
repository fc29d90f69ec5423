/* SPDX-License-Identifier: Apache-2.0
 *
 * Endpoints and channels of operator developers (libhcomm.so). Refused here with HCCL_E_NOT_SUPPORT.
 */
#ifndef REPRISE_HCCL_HCOMM_RES_H_
#define REPRISE_HCCL_HCOMM_RES_H_

#include "hccl/hccl_developer_types.h"

#ifdef __cplusplus
extern "C" {
#endif

HcommResult HcommChannelCreate(EndpointHandle endpointHandle, CommEngine engine, HcommChannelDesc* channelDescs,
                               uint32_t channelNum, ChannelHandle* channels);
HcommResult HcommChannelDestroy(const ChannelHandle* channels, uint32_t channelNum);
HcommResult HcommChannelGetStatus(const ChannelHandle* channelList, uint32_t listNum, int32_t* statusList);
HcommResult HcommEndpointCreate(const EndpointDesc* endpoint, EndpointHandle* endpointHandle);
HcommResult HcommEndpointDestroy(EndpointHandle endpointHandle);
HcommResult HcommMemExport(EndpointHandle endpointHandle, HcommMemHandle memHandle, void** memDesc,
                           uint32_t* memDescLen);
HcommResult HcommMemImport(EndpointHandle endpointHandle, const void* memDesc, uint32_t descLen, CommMem* outMem);
HcommResult HcommMemReg(EndpointHandle endpointHandle, const char* memTag, const CommMem* mem,
                        HcommMemHandle* memHandle);
HcommResult HcommMemUnimport(EndpointHandle endpointHandle, const void* memDesc, uint32_t descLen);
HcommResult HcommMemUnreg(EndpointHandle endpointHandle, HcommMemHandle memHandle);
HcommResult HcommThreadAlloc(CommEngine engine, uint32_t threadNum, const uint32_t* notifyNumPerThread,
                             ThreadHandle* threads);
HcommResult HcommThreadFree(const ThreadHandle* threads, uint32_t threadNum);

#ifdef __cplusplus
}
#endif
#endif
