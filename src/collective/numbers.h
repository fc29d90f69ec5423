// SPDX-License-Identifier: Apache-2.0
//
// Numbers of collectives as programs have them: results, types of data, operations, operators; and their names.
#pragma once

#include <cstdint>

#include "collective/fold.h"
#include "kernels/dtype.h"

namespace reprise::collective {

/// Those of HcclResult that we return.
enum Code : int {
  kParameter = 1,
  kPointer = 2,
  kMemory = 3,
  kInternal = 4,
  kNotSupported = 5,
  kNotFound = 6,
  kUnavailable = 7,
  kSystemCall = 8,
  kTimeout = 9,
  kOpenFile = 10,
  kConnect = 11,
  kTransfer = 13,
  kRuntime = 15,
  kNetwork = 19,
  kAgain = 20,
  kRemote = 21,
  kSuspended = 22,
  kOutOfMemory = 24,
};

/// HcclDataType.
enum class DataType : uint8_t {
  kInt8 = 0,
  kInt16 = 1,
  kInt32 = 2,
  kHalf = 3,
  kFloat = 4,
  kInt64 = 5,
  kUInt64 = 6,
  kUInt8 = 7,
  kUInt16 = 8,
  kUInt32 = 9,
  kDouble = 10,
  kBFloat16 = 11,
  kInt128 = 12,
  kHif8 = 14,
  kFloat8E4M3 = 15,
  kFloat8E5M2 = 16,
  kFloat8E8M0 = 17,
};

/// Bytes of an element; 0 for a number that is no type.
uint32_t SizeOf(int type) noexcept;
const char* NameOfType(int type) noexcept;
/// The type as kernels know it; kUndefined for types that cannot be reduced.
kernels::DType ReducedAs(int type) noexcept;

/// HcclReduceOp. 4 and more: none.
const char* NameOfReduction(int op) noexcept;

/// HcclCMDType, those that are operators.
enum class Operator : uint8_t {
  kBroadcast = 1,
  kAllReduce = 2,
  kReduce = 3,
  kSend = 4,
  kReceive = 5,
  kAllGather = 6,
  kReduceScatter = 7,
  kAllToAllV = 8,
  kAllToAllVC = 9,
  kAllToAll = 10,
  kScatter = 12,
  kBatchSendReceive = 13,
  kAllGatherV = 16,
  kReduceScatterV = 17,
  kBarrier = 103,
  kCondition = 200,  ///< none of the program's: the end of a conditional task with operators in its bodies
};
/// "AllReduce".
const char* NameOf(Operator op) noexcept;
/// "HCCL_ALLREDUCE", as dumps name the task.
const char* TaskNameOf(Operator op) noexcept;
inline bool IsReduction(Operator op) noexcept {
  return op == Operator::kAllReduce || op == Operator::kReduce || op == Operator::kReduceScatter ||
         op == Operator::kReduceScatterV;
}
inline bool HasRoot(Operator op) noexcept {
  return op == Operator::kBroadcast || op == Operator::kReduce || op == Operator::kScatter;
}

/// The largest count of an operator.
constexpr uint64_t kMostElements = 0x7FFFFFFFF;

}  // namespace reprise::collective
