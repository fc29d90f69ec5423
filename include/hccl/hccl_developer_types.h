/* SPDX-License-Identifier: Apache-2.0
 *
 * Types of the operator development interface, which is declared and refused here.
 */
#ifndef REPRISE_HCCL_HCCL_DEVELOPER_TYPES_H_
#define REPRISE_HCCL_HCCL_DEVELOPER_TYPES_H_

#include "hccl/hccl_comm.h"

#define HCCL_CHANNEL_MAGIC_WORD 0x0f0f0f0fU
#define HCCL_CHANNEL_VERSION 1U
#define COMM_LINK_MAGIC_WORD 0x0f0e0f0fU
#define COMM_LINK_VERSION 1U
#define HCCL_TEAM_CREATE_DESC_MAGIC_WORD 0x0fcf0f14U
#define HCCL_TEAM_CREATE_DESC_VERSION 2U

/** Opaque: what they hold means something on a device only. */
typedef uint64_t ThreadHandle;
typedef uint64_t ChannelHandle;
typedef void* EndpointHandle;
typedef void* HcclMemHandle;
typedef void* HcommMemHandle;
typedef void* HcommTeamHandle;
typedef void* HcclChannelConfig;
typedef struct CommMem CommMem;
typedef struct CommLink CommLink;
typedef struct EndpointDesc EndpointDesc;
typedef struct HcclChannelDesc HcclChannelDesc;
typedef struct HcommChannelDesc HcommChannelDesc;
typedef struct HcclTeamCreateDesc HcclTeamCreateDesc;
typedef struct ThreadConfig ThreadConfig;
typedef int32_t EndpointAttr;
typedef int32_t HcclChannelConfigType;
typedef int32_t HcclDedicatedThreadType;
typedef int32_t HcclHeterogMode;
typedef int32_t ThreadType;
typedef int32_t ThreadResType;
typedef HcclDataType HcommDataType;
typedef HcclReduceOp HcommReduceOp;

#endif
