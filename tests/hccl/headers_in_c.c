/* SPDX-License-Identifier: Apache-2.0
 *
 * HC-002: sizes, places and numbers of the headers, as C and, by headers_in_cpp.cc, as C++.
 */
#include <hccl/hccl.h>
#include <hccl/hccl_channel.h>
#include <hccl/hccl_mc2.h>
#include <hccl/hccl_rank_graph.h>
#include <hccl/hccl_res.h>
#include <hccl/hccl_sym_win.h>
#include <hccl/hccl_team.h>
#include <hccl/hcomm_primitives.h>
#include <hccl/hcomm_res.h>

#ifdef __cplusplus
#define CHECK(what) static_assert(what, #what)
#else
#define CHECK(what) _Static_assert(what, #what)
#endif

CHECK(sizeof(HcclRootInfo) == 4108);
CHECK(sizeof(HcclSendRecvItem) == 32);
CHECK(offsetof(HcclSendRecvItem, buf) == 8);
CHECK(offsetof(HcclSendRecvItem, count) == 16);
CHECK(offsetof(HcclSendRecvItem, dataType) == 24);
CHECK(offsetof(HcclSendRecvItem, remoteRank) == 28);
CHECK(sizeof(HcclConfigValue) == 4);
CHECK(sizeof(HcclCommConfig) == 2248);
CHECK(offsetof(HcclCommConfig, hcclBufferSize) == 24);
CHECK(offsetof(HcclCommConfig, hcclDeterministic) == 28);
CHECK(offsetof(HcclCommConfig, hcclCommName) == 32);
CHECK(offsetof(HcclCommConfig, hcclUdi) == 160);
CHECK(offsetof(HcclCommConfig, hcclOpExpansionMode) == 288);
CHECK(offsetof(HcclCommConfig, hcclRdmaTrafficClass) == 292);
CHECK(offsetof(HcclCommConfig, hcclRdmaServiceLevel) == 296);
CHECK(offsetof(HcclCommConfig, hcclWorldRankID) == 300);
CHECK(offsetof(HcclCommConfig, hcclJobID) == 304);
CHECK(offsetof(HcclCommConfig, aclGraphZeroCopyEnable) == 312);
CHECK(offsetof(HcclCommConfig, hcclExecTimeOut) == 316);
CHECK(offsetof(HcclCommConfig, hcclAlgo) == 320);
CHECK(offsetof(HcclCommConfig, hcclRetryEnable) == 1920);
CHECK(offsetof(HcclCommConfig, hcclRetryParams) == 1970);
CHECK(offsetof(HcclCommConfig, hcclBufferName) == 2098);
CHECK(offsetof(HcclCommConfig, hcclQos) == 2228);
CHECK(offsetof(HcclCommConfig, hcclSymWinMaxMemSizePerRank) == 2232);
CHECK(offsetof(HcclCommConfig, hcclChannelSqDepth) == 2240);
CHECK(HCCL_E_REMOTE == 21 && HCCL_E_OOM == 24 && HCCL_E_IN_STATUS == 1041 && HCCL_E_RESERVED == 1042);
CHECK(HCCL_REDUCE_SUM == 0 && HCCL_REDUCE_MIN == 3 && HCCL_REDUCE_RESERVED == 255);
CHECK(HCCL_DATA_TYPE_BFP16 == 11 && HCCL_DATA_TYPE_INT128 == 12 && HCCL_DATA_TYPE_HIF8 == 14);
CHECK(HCCL_DATA_TYPE_FP8E8M0 == 17 && HCCL_DATA_TYPE_RESERVED == 255);
CHECK(HCCL_COMM_CONFIG_BUFFER_NAME == 11 && HCCL_COMM_CONFIG_RESERVED == 12);
CHECK(HCCL_CMD_BARRIER == 103 && HCCL_CMD_MAX == 104 && HCCL_CMD_HALF_ALLTOALLV == 20);
CHECK(COMM_NAME_MAX_LENGTH == 128 && HCCL_COMM_ALGO_MAX_LENGTH == 1600 && HCCL_COMM_CONFIG_VERSION == 11);
CHECK(HCCL_COMM_CONFIG_MAGIC_WORD == 0xf0f0f0f0U);
CHECK(HCCL_COMM_STATUS_INVALID == 254 && HCCL_COMM_STATE_PHASE_RESUME_POST == 3);
