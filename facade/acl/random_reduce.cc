// SPDX-License-Identifier: Apache-2.0
//
// Work of the device's other engines: reductions, random numbers.
#include <cstring>

#include "acl/acl.h"
#include "check.h"
#include "random_request.h"
#include "runtime/random.h"
#include "runtime/reduce.h"

namespace reprise::facade {
namespace {

using runtime::RandomFunction;
using runtime::RandomParam;
using runtime::RandomType;
using runtime::Stream;

constexpr uint64_t kCounterBytes = 16;

// ---- Random numbers ----

enum class ParamKind { kFloat, kInteger, kBytes };  // kInteger: a bound of integers, kBytes: any unsigned number

Status ReadParam(const aclrtRandomParaInfo& info, const char* name, ParamKind kind, RandomParam* param) {
  REPRISE_RETURN_IF_ERROR(InRange(info.isAddr, 0, 1, fmt::format("{}.isAddr", name).c_str()));
  const bool size_ok = kind == ParamKind::kBytes
                           ? info.size >= 1 && info.size <= 8
                           : info.size == 4 || info.size == 8 || (info.size == 2 && kind == ParamKind::kFloat);
  if (!size_ok) {
    return Error(kInvalidValue, fmt::format("{}.size is {}, must be {}", name, info.size,
                                            kind == ParamKind::kFloat     ? "2, 4 or 8 (fp16 or bf16, fp32, fp64)"
                                            : kind == ParamKind::kInteger ? "4 or 8 (a number of 32 or 64 bits)"
                                                                          : "1 to 8"))
        .Culprit(fmt::format("parameter taskInfo, field {}", name))
        .Hint("set the size of the value in bytes");
  }
  param->is_address = info.isAddr == 1;
  param->bytes = info.size;
  std::memcpy(&param->bits_or_address, info.valueOrAddr, sizeof param->bits_or_address);
  if (!param->is_address) return {};
  return DeviceReaches(reinterpret_cast<const void*>(param->bits_or_address), info.size, name);
}

Status CheckElementType(aclDataType type) {
  if (runtime::RandomBytes(static_cast<RandomType>(type)) != 0) return {};
  return Error(kInvalidValue,
               fmt::format("dataType is {}, must be ACL_FLOAT (0), ACL_FLOAT16 (1), ACL_INT32 (3), ACL_UINT32 "
                           "(8), ACL_INT64 (9), ACL_UINT64 (10) or ACL_BF16 (27)",
                           static_cast<int>(type)))
      .Culprit("parameter taskInfo, field dataType")
      .Hint("draw numbers of one of these types and cast them");
}

Status ReadFunction(const aclrtRandomNumFuncParaInfo& function, runtime::RandomRequest* request) {
  REPRISE_RETURN_IF_ERROR(InRange(function.funcType, ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK,
                                  ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS, "funcType"));
  request->function = static_cast<RandomFunction>(function.funcType);
  const bool integers = IsInteger(request->type);
  if (integers && request->function != RandomFunction::kUniform) {
    return Error(kInvalidValue, fmt::format("funcType is {}, which draws no integers (dataType {})",
                                            static_cast<int>(function.funcType), static_cast<int>(request->type)))
        .Culprit("parameter taskInfo, fields funcType and dataType")
        .Hint("draw integers with ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS, or fp32, fp16 or bf16 numbers");
  }
  const ParamKind kind = integers ? ParamKind::kInteger : ParamKind::kFloat;
  switch (request->function) {
    case RandomFunction::kDropoutMask:
      REPRISE_RETURN_IF_ERROR(
          ReadParam(function.paramInfo.dropoutBitmaskInfo.dropoutRation, "dropoutRation", kind, &request->a));
      break;
    case RandomFunction::kUniform:
      REPRISE_RETURN_IF_ERROR(ReadParam(function.paramInfo.uniformDisInfo.min, "min", kind, &request->a));
      REPRISE_RETURN_IF_ERROR(ReadParam(function.paramInfo.uniformDisInfo.max, "max", kind, &request->b));
      break;
    case RandomFunction::kNormal:
    case RandomFunction::kTruncatedNormal:
      REPRISE_RETURN_IF_ERROR(ReadParam(function.paramInfo.normalDisInfo.mean, "mean", kind, &request->a));
      REPRISE_RETURN_IF_ERROR(ReadParam(function.paramInfo.normalDisInfo.stddev, "stddev", kind, &request->b));
      break;
  }
  if (integers && !request->a.is_address && !request->b.is_address) {
    Status range = runtime::RandomRange(*request).status();
    if (!range.ok()) {
      return std::move(range)
          .Culprit("parameter taskInfo, fields min and max")
          .Hint("pass a min that is below max: the numbers are min, …, max - 1");
    }
  }
  if (request->function == RandomFunction::kDropoutMask && !request->a.is_address) {
    const double ratio = runtime::RandomValue(request->a, request->type);
    if (!(ratio >= 0.0 && ratio <= 1.0)) {
      return Error(kInvalidValue, fmt::format("dropoutRation is {}, must be 0 to 1", ratio))
          .Culprit("parameter taskInfo, field dropoutRation")
          .Hint("pass the share of bits to clear");
    }
  }
  return {};
}

// The parts of the request that memory has to have room for.
Status CheckMemory(const runtime::RandomRequest* request) {
  REPRISE_RETURN_IF_ERROR(DeviceReaches(request->counter, kCounterBytes, "randomCounterAddr"));
  const uint64_t bytes = request->count.is_address ? 1  // how many is known when the task runs; it checks then
                                                   : runtime::RandomResultBytes(request->function, request->type,
                                                                                runtime::RandomInteger(request->count));
  return DeviceReaches(request->result, bytes, "randomResultAddr");
}

}  // namespace

Status ReadRandomRequest(const aclrtRandomNumTaskInfo& info, runtime::RandomRequest* request) {
  REPRISE_RETURN_IF_ERROR(CheckElementType(info.dataType));
  REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(info.randomResultAddr, "randomResultAddr"));
  REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(info.randomCounterAddr, "randomCounterAddr"));
  request->type = static_cast<RandomType>(info.dataType);
  request->result = info.randomResultAddr;
  request->counter = info.randomCounterAddr;
  REPRISE_RETURN_IF_ERROR(ReadFunction(info.randomNumFuncParaInfo, request));
  REPRISE_RETURN_IF_ERROR(ReadParam(info.randomSeed, "randomSeed", ParamKind::kBytes, &request->seed));
  REPRISE_RETURN_IF_ERROR(ReadParam(info.randomNum, "randomNum", ParamKind::kBytes, &request->count));
  return CheckMemory(request);
}

Status ReadRandomFunction(const aclrtRandomNumFuncParaInfo& info, runtime::RandomRequest* request) {
  REPRISE_RETURN_IF_ERROR(ReadFunction(info, request));
  return CheckMemory(request);
}

}  // namespace reprise::facade

using namespace reprise;          // NOLINT: a file of C functions
using namespace reprise::facade;  // NOLINT

aclError aclrtReduceAsync(void* dst, const void* src, uint64_t count, aclrtReduceKind kind, aclDataType type,
                          aclrtStream stream, void* reserve) {
  return runtime::Api("aclrtReduceAsync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(dst, "dst"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(src, "src"));
    const uint32_t element_bytes = runtime::ElementBytes(static_cast<runtime::ElementType>(type));
    if (element_bytes == 0) {
      return Error(kInvalidArgument, fmt::format("type is {}, must be one of int8, int16, int32, fp16, fp32, bf16",
                                                 static_cast<int>(type)))
          .Culprit("parameter type")
          .Hint("cast the data to one of these types first");
    }
    REPRISE_RETURN_IF_ERROR(IsReserved(reserve, "reserve", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(
        InRange(kind, ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM, ACL_RT_MEMCPY_SDMA_AUTOMATIC_EQUAL, "kind"));
    if (count == 0 || count % element_bytes != 0) {
      return Error(kInvalidValue,
                   fmt::format("count is {} bytes, must be a multiple of {} above 0", count, element_bytes))
          .Culprit("parameter count")
          .Hint("pass the number of bytes, not of elements");
    }
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(dst, count, "dst"));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(src, count, "src"));
    return runtime::SubmitReduce(*found, dst, src, count, static_cast<runtime::ReduceKind>(kind),
                                 static_cast<runtime::ElementType>(type));
  });
}

aclError aclrtRandomNumAsync(const aclrtRandomNumTaskInfo* taskInfo, const aclrtStream stream, void* reserve) {
  return runtime::Api("aclrtRandomNumAsync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(taskInfo, "taskInfo"));
    REPRISE_RETURN_IF_ERROR(IsReserved(reserve, "reserve", kInvalidValue));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    runtime::RandomRequest request{};
    REPRISE_RETURN_IF_ERROR(ReadRandomRequest(*taskInfo, &request));
    return runtime::SubmitRandom(*found, request);
  });
}
