// SPDX-License-Identifier: Apache-2.0
#include "collective/numbers.h"

#include <iterator>

namespace reprise::collective {
namespace {

struct TypeRow {
  uint32_t bytes;
  const char* name;
  kernels::DType reduced;
};

using kernels::DType;
constexpr TypeRow kTypes[] = {
    {1, "int8", DType::kInt8},         {2, "int16", DType::kInt16},       {4, "int32", DType::kInt32},
    {2, "fp16", DType::kFloat16},      {4, "fp32", DType::kFloat},        {8, "int64", DType::kInt64},
    {8, "uint64", DType::kUInt64},     {1, "uint8", DType::kUInt8},       {2, "uint16", DType::kUInt16},
    {4, "uint32", DType::kUInt32},     {8, "fp64", DType::kDouble},       {2, "bfp16", DType::kBFloat16},
    {16, "int128", DType::kUndefined}, {0, "unknown", DType::kUndefined}, {1, "hif8", DType::kUndefined},
    {1, "fp8e4m3", DType::kUndefined}, {1, "fp8e5m2", DType::kUndefined}, {1, "fp8e8m0", DType::kUndefined},
};
constexpr TypeRow kNoType{0, "unknown", DType::kUndefined};

const TypeRow& RowOf(int type) noexcept {
  return type >= 0 && type < static_cast<int>(std::size(kTypes)) ? kTypes[type] : kNoType;
}

struct OperatorRow {
  Operator op;
  const char* name;
  const char* task;
};
constexpr OperatorRow kOperators[] = {
    {Operator::kBroadcast, "Broadcast", "HCCL_BROADCAST"},
    {Operator::kAllReduce, "AllReduce", "HCCL_ALLREDUCE"},
    {Operator::kReduce, "Reduce", "HCCL_REDUCE"},
    {Operator::kSend, "Send", "HCCL_SEND"},
    {Operator::kReceive, "Recv", "HCCL_RECEIVE"},
    {Operator::kAllGather, "AllGather", "HCCL_ALLGATHER"},
    {Operator::kReduceScatter, "ReduceScatter", "HCCL_REDUCE_SCATTER"},
    {Operator::kAllToAllV, "AlltoAllV", "HCCL_ALLTOALLV"},
    {Operator::kAllToAllVC, "AlltoAllVC", "HCCL_ALLTOALLVC"},
    {Operator::kAllToAll, "AlltoAll", "HCCL_ALLTOALL"},
    {Operator::kScatter, "Scatter", "HCCL_SCATTER"},
    {Operator::kBatchSendReceive, "BatchSendRecv", "HCCL_BATCH_SEND_RECV"},
    {Operator::kAllGatherV, "AllGatherV", "HCCL_ALLGATHER_V"},
    {Operator::kReduceScatterV, "ReduceScatterV", "HCCL_REDUCE_SCATTER_V"},
    {Operator::kBarrier, "Barrier", "HCCL_BARRIER"},
    {Operator::kCondition, "Conditional task", "HCCL_CONDITION"},
};

const OperatorRow& RowOf(Operator op) noexcept {
  for (const OperatorRow& row : kOperators) {
    if (row.op == op) return row;
  }
  static constexpr OperatorRow unknown{Operator::kBarrier, "unknown operator", "HCCL_UNKNOWN"};
  return unknown;
}

}  // namespace

uint32_t SizeOf(int type) noexcept { return RowOf(type).bytes; }
const char* NameOfType(int type) noexcept { return RowOf(type).name; }
kernels::DType ReducedAs(int type) noexcept { return RowOf(type).reduced; }
const char* NameOfReduction(int op) noexcept {
  static constexpr const char* names[] = {"sum", "prod", "max", "min"};
  return op >= 0 && op < 4 ? names[op] : "none";
}
const char* NameOf(Operator op) noexcept { return RowOf(op).name; }
const char* TaskNameOf(Operator op) noexcept { return RowOf(op).task; }

}  // namespace reprise::collective
