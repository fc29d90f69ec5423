/* SPDX-License-Identifier: Apache-2.0
 *
 * Types, numbers and structures of collective communication. Compiles as C11 and C++17.
 */
#ifndef REPRISE_HCCL_HCCL_TYPES_H_
#define REPRISE_HCCL_HCCL_TYPES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What every function returns. */
typedef enum {
  HCCL_SUCCESS = 0,
  HCCL_E_PARA = 1,        /**< a value that is not allowed */
  HCCL_E_PTR = 2,         /**< a required pointer is null */
  HCCL_E_MEMORY = 3,      /**< a call for memory failed */
  HCCL_E_INTERNAL = 4,    /**< inner error */
  HCCL_E_NOT_SUPPORT = 5, /**< not supported */
  HCCL_E_NOT_FOUND = 6,   /**< no such object */
  HCCL_E_UNAVAIL = 7,     /**< not available: after a fork, without a network engine */
  HCCL_E_SYSCALL = 8,     /**< a call of the system failed */
  HCCL_E_TIMEOUT = 9,     /**< other ranks did not come in time */
  HCCL_E_OPEN_FILE_FAILURE = 10,
  HCCL_E_TCP_CONNECT = 11,
  HCCL_E_ROCE_CONNECT = 12,
  HCCL_E_TCP_TRANSFER = 13,
  HCCL_E_ROCE_TRANSFER = 14,
  HCCL_E_RUNTIME = 15, /**< a call of the runtime failed */
  HCCL_E_DRV = 16,
  HCCL_E_PROFILING = 17,
  HCCL_E_CCE = 18,
  HCCL_E_NETWORK = 19,    /**< no usable interface */
  HCCL_E_AGAIN = 20,      /**< in use, call again later */
  HCCL_E_REMOTE = 21,     /**< another rank has failed */
  HCCL_E_SUSPENDING = 22, /**< the communicator is suspended */
  HCCL_E_OPRETRY_FAIL = 23,
  HCCL_E_OOM = 24,         /**< out of memory */
  HCCL_E_IN_STATUS = 1041, /**< never returned here */
  HCCL_E_RESERVED = 1042
} HcclResult;

/** A communicator: what one rank holds of a group. */
typedef void* HcclComm;
typedef void* HcclCommSymWindow;

typedef enum {
  HCCL_REDUCE_SUM = 0,
  HCCL_REDUCE_PROD = 1,
  HCCL_REDUCE_MAX = 2,
  HCCL_REDUCE_MIN = 3,
  HCCL_REDUCE_RESERVED = 255
} HcclReduceOp;

typedef enum {
  HCCL_DATA_TYPE_INT8 = 0,
  HCCL_DATA_TYPE_INT16 = 1,
  HCCL_DATA_TYPE_INT32 = 2,
  HCCL_DATA_TYPE_FP16 = 3,
  HCCL_DATA_TYPE_FP32 = 4,
  HCCL_DATA_TYPE_INT64 = 5,
  HCCL_DATA_TYPE_UINT64 = 6,
  HCCL_DATA_TYPE_UINT8 = 7,
  HCCL_DATA_TYPE_UINT16 = 8,
  HCCL_DATA_TYPE_UINT32 = 9,
  HCCL_DATA_TYPE_FP64 = 10,
  HCCL_DATA_TYPE_BFP16 = 11,
  HCCL_DATA_TYPE_INT128 = 12,
  HCCL_DATA_TYPE_HIF8 = 14,
  HCCL_DATA_TYPE_FP8E4M3 = 15,
  HCCL_DATA_TYPE_FP8E5M2 = 16,
  HCCL_DATA_TYPE_FP8E8M0 = 17,
  HCCL_DATA_TYPE_RESERVED = 255
} HcclDataType;

/** What HcclSetConfig sets for the whole process. */
typedef enum { HCCL_DETERMINISTIC = 0, HCCL_CONFIG_RESERVED = 1 } HcclConfig;

typedef union HcclConfigValue {
  int32_t value;
} HcclConfigValue;

/** Parts of a communicator's configuration; k is supported when HcclGetCommConfigCapability() > k. */
typedef enum {
  HCCL_COMM_CONFIG_BUFFER_SIZE = 0,
  HCCL_COMM_CONFIG_DETERMINISTIC = 1,
  HCCL_COMM_CONFIG_COMM_NAME = 2,
  HCCL_COMM_CONFIG_OP_EXPANSION_MODE = 3,
  HCCL_COMM_CONFIG_SUPPORT_INIT_BY_ENV = 4,
  HCCL_COMM_CONFIG_WORLD_RANKID = 5,
  HCCL_COMM_CONFIG_JOBID = 6,
  HCCL_COMM_CONFIG_ACLGRAPH_ZEROCOPY_ENABLE = 7,
  HCCL_COMM_CONFIG_EXEC_TIMEOUT = 8,
  HCCL_COMM_CONFIG_ALGO = 9,
  HCCL_COMM_CONFIG_RETRY = 10,
  HCCL_COMM_CONFIG_BUFFER_NAME = 11,
  HCCL_COMM_CONFIG_RESERVED = 12
} HcclCommConfigCapability;

typedef enum { HCCL_SEND = 0, HCCL_RECV = 1, HCCL_SEND_RECV_RESERVED = 2 } HcclSendRecvType;

typedef enum {
  HCCL_CMD_INVALID = 0,
  HCCL_CMD_BROADCAST = 1,
  HCCL_CMD_ALLREDUCE = 2,
  HCCL_CMD_REDUCE = 3,
  HCCL_CMD_SEND = 4,
  HCCL_CMD_RECEIVE = 5,
  HCCL_CMD_ALLGATHER = 6,
  HCCL_CMD_REDUCE_SCATTER = 7,
  HCCL_CMD_ALLTOALLV = 8,
  HCCL_CMD_ALLTOALLVC = 9,
  HCCL_CMD_ALLTOALL = 10,
  HCCL_CMD_GATHER = 11,
  HCCL_CMD_SCATTER = 12,
  HCCL_CMD_BATCH_SEND_RECV = 13,
  HCCL_CMD_BATCH_PUT = 14,
  HCCL_CMD_BATCH_GET = 15,
  HCCL_CMD_ALLGATHER_V = 16,
  HCCL_CMD_REDUCE_SCATTER_V = 17,
  HCCL_CMD_BATCH_WRITE = 18,
  HCCL_CMD_HALF_ALLTOALLV = 20,
  HCCL_CMD_ALL = 21,
  HCCL_CMD_FINALIZE = 100,
  HCCL_CMD_INTER_GROUP_SYNC = 101,
  HCCL_CMD_INIT = 102,
  HCCL_CMD_BARRIER = 103,
  HCCL_CMD_MAX = 104
} HcclCMDType;

typedef enum {
  HCCL_COMM_STATUS_READY = 0,
  HCCL_COMM_STATUS_SUSPENDING = 1,
  HCCL_COMM_STATUS_INVALID = 254,
  HCCL_COMM_STATUS_RESERVED = 255
} HcclCommStatus;

typedef enum {
  HCCL_COMM_STATE_PHASE_INVALID = -1,
  HCCL_COMM_STATE_PHASE_DESTROY_PRE = 0,
  HCCL_COMM_STATE_PHASE_DESTROY_POST = 1,
  HCCL_COMM_STATE_PHASE_RESUME_PRE = 2,
  HCCL_COMM_STATE_PHASE_RESUME_POST = 3
} HcclCommStatePhase;

typedef enum {
  HCCL_OP_EXPANSION_MODE_INVALID = -1,
  HCCL_OP_EXPANSION_MODE_AI_CPU = 0,
  HCCL_OP_EXPANSION_MODE_AIV = 1,
  HCCL_OP_EXPANSION_MODE_HOST = 2,
  HCCL_OP_EXPANSION_MODE_HOST_TS = 3,
  HCCL_OP_EXPANSION_MODE_CCU_MS = 4,
  HCCL_OP_EXPANSION_MODE_CCU_SCHED = 5,
  HCCL_OP_EXPANSION_MODE_AIV_ONLY = 6
} HcclOpExpansionMode;

typedef enum {
  HCCL_CONFIG_TYPE_INVALID = -1,
  HCCL_CONFIG_TYPE_OP_EXPANSION_MODE = 0,
  HCCL_CONFIG_TYPE_HCCL_ALGO = 1,
  HCCL_CONFIG_TYPE_UB_MULTI_CHANNEL_NUM = 2
} HcclConfigType;

typedef enum {
  COMM_ENGINE_RESERVED = -1,
  COMM_ENGINE_CPU = 0,
  COMM_ENGINE_CPU_TS = 1,
  COMM_ENGINE_AICPU = 2,
  COMM_ENGINE_AICPU_TS = 3,
  COMM_ENGINE_AIV = 4,
  COMM_ENGINE_CCU = 5
} CommEngine;

typedef enum {
  COMM_PROTOCOL_RESERVED = -1,
  COMM_PROTOCOL_HCCS = 0,
  COMM_PROTOCOL_ROCE = 1,
  COMM_PROTOCOL_PCIE = 2,
  COMM_PROTOCOL_SIO = 3,
  COMM_PROTOCOL_UBC_CTP = 4,
  COMM_PROTOCOL_UBC_TP = 5,
  COMM_PROTOCOL_UB_MEM = 6,
  COMM_PROTOCOL_UBOE = 7,
  COMM_PROTOCOL_HCCS_ONLY = 8
} CommProtocol;

typedef enum {
  COMM_TOPO_RESERVED = -1,
  COMM_TOPO_CLOS = 0,
  COMM_TOPO_1DMESH = 1,
  COMM_TOPO_910_93 = 2,
  COMM_TOPO_310P = 3,
  COMM_TOPO_A2AXSERVER = 4,
  COMM_TOPO_CUSTOM = 5
} CommTopo;

/* Sizes of fields, in bytes. Those of names include the terminator. */
enum {
  HCCL_ROOT_INFO_BYTES = 4108,
  COMM_NAME_MAX_LENGTH = 128,
  UDI_MAX_LENGTH = 128,
  BUFFER_NAME_MAX_LENGTH = 128,
  HCCL_COMM_ALGO_MAX_LENGTH = 1600,
  HCCL_COMM_RETRY_ENABLE_MAX_LENGTH = 50,
  HCCL_COMM_RETRY_PARAMS_MAX_LENGTH = 128,
  HCCL_COMM_CONFIG_INFO_BYTES = 24,
  HCCL_COMM_CONFIG_VERSION = 11,
  HCCL_COMM_DEFAULT_BUFFSIZE = 200, /* MB */
  HCCL_COMM_DEFAULT_DETERMINISTIC = 0,
  HCCL_COMM_DEFAULT_OP_EXPANSION_MODE = 0,
  HCCL_DEFAULT_SYMMETRIC_MEMORY_STRIDE = 16, /* GB */
  HCCL_RES_TAG_MAX_LEN = 255
};

#define HCCL_COMM_CONFIG_MAGIC_WORD 0xf0f0f0f0U
/* Fields of a configuration that have this value count as not set. */
#define HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET 0xffffffffU
#define HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET 0xffffffffU
#define HCCL_COMM_TRAFFIC_CLASS_CONFIG_NOT_SET 0xffffffffU
#define HCCL_COMM_SERVICE_LEVEL_CONFIG_NOT_SET 0xffffffffU
#define HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET (-1)
#define HCCL_COMM_QOS_CONFIG_NOT_SET 0xffffffffU
#define HCCL_COMM_CHANNEL_SQ_DEPTH_CONFIG_NOT_SET 0xffffffffU

/** A token that one rank makes and hands to the others, byte by byte. Opaque. */
typedef struct HcclRootInfo {
  char internal[HCCL_ROOT_INFO_BYTES];
} HcclRootInfo;

/** One transfer of HcclBatchSendRecv. */
typedef struct HcclSendRecvItem {
  HcclSendRecvType sendRecvType;
  void* buf;
  uint64_t count;
  HcclDataType dataType;
  uint32_t remoteRank;
} HcclSendRecvItem;

/** Configuration of a communicator: HcclCommConfigInit first, then the fields that matter. */
typedef struct HcclCommConfig {
  char reserved[HCCL_COMM_CONFIG_INFO_BYTES]; /**< size, magic word and version; written by HcclCommConfigInit */
  uint32_t hcclBufferSize;                    /**< MB, at least 1 */
  uint32_t hcclDeterministic;                 /**< 0, 1, 2; results are always deterministic here */
  char hcclCommName[COMM_NAME_MAX_LENGTH];    /**< group name */
  char hcclUdi[UDI_MAX_LENGTH];               /**< free text, shown in messages */
  uint32_t hcclOpExpansionMode;               /**< 0 to 6; without effect here */
  uint32_t hcclRdmaTrafficClass;              /**< 0 to 255, a multiple of 4; without effect here */
  uint32_t hcclRdmaServiceLevel;              /**< 0 to 7; without effect here */
  uint32_t hcclWorldRankID;
  uint64_t hcclJobID;
  uint8_t aclGraphZeroCopyEnable;           /**< 0, 1; without effect here */
  int32_t hcclExecTimeOut;                  /**< seconds that an operator waits for others; -1 not set, 0 for ever */
  char hcclAlgo[HCCL_COMM_ALGO_MAX_LENGTH]; /**< without effect here */
  char hcclRetryEnable[HCCL_COMM_RETRY_ENABLE_MAX_LENGTH];
  char hcclRetryParams[HCCL_COMM_RETRY_PARAMS_MAX_LENGTH];
  char hcclBufferName[BUFFER_NAME_MAX_LENGTH];
  uint32_t hcclQos;
  uint64_t hcclSymWinMaxMemSizePerRank; /**< GB */
  uint32_t hcclChannelSqDepth;
} HcclCommConfig;

/** Called before and after a communicator is destroyed or resumed. */
typedef HcclResult (*HcclCommStateCallback)(HcclComm comm, HcclCommStatePhase phase, void* args);

#ifdef __cplusplus
}
#endif
#endif
