// SPDX-License-Identifier: Apache-2.0
//
// Kernel binaries, argument lists and launches.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "check.h"
#include "graph.h"
#include "runtime/context.h"
#include "runtime/kernel.h"
#include "runtime/report.h"
#include "runtime/user_args.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::BinaryData;
using runtime::KernelArgs;
using runtime::KernelBinary;
using runtime::KernelFunction;
using runtime::LaunchAttributes;
using runtime::NotNull;
using runtime::Stream;
using runtime::UserArgs;

namespace reprise::facade {

StatusOr<LaunchAttributes> ReadLaunchAttributes(const aclrtLaunchKernelCfg* cfg) {
  constexpr size_t kMaxLaunchAttributes = 64;
  LaunchAttributes out;
  if (cfg == nullptr || cfg->numAttrs == 0) [[likely]]
    return out;
  REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(cfg->attrs, "cfg->attrs"));
  REPRISE_RETURN_IF_ERROR(InRange(cfg->numAttrs, 0, kMaxLaunchAttributes, "cfg->numAttrs"));
  bool seconds = false, microseconds = false;
  for (size_t i = 0; i < cfg->numAttrs; ++i) {
    const aclrtLaunchKernelAttr& attribute = cfg->attrs[i];
    switch (attribute.id) {
      case ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE: out.schem_mode = attribute.value.schemMode; break;
      case ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE: out.dynamic_ubuf = attribute.value.dynUBufSize; break;
      case ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP: out.data_dump = attribute.value.isDataDump; break;
      case ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT:
        out.timeout_s = attribute.value.timeout;
        seconds = true;
        break;
      case ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US:
        out.timeout_us = uint64_t{attribute.value.timeoutUs.timeoutHigh} << 32 | attribute.value.timeoutUs.timeoutLow;
        microseconds = true;
        break;
      case ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE:
      case ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET:
      case ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH:
      case ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING: break;  // hints without a meaning here
      default:
        return Error(kInvalidValue,
                     fmt::format("cfg->attrs[{}].id is {}, must be {} to {}", i, static_cast<int>(attribute.id),
                                 static_cast<int>(ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE),
                                 static_cast<int>(ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING)))
            .Hint("pass one of ACL_RT_LAUNCH_KERNEL_ATTR_*");
    }
  }
  if (seconds && microseconds) {
    return Error(kInvalidValue, "cfg names both TIMEOUT and TIMEOUT_US").Hint("pass one of the two attributes");
  }
  return out;
}

}  // namespace reprise::facade

namespace {

StatusOr<KernelBinary*> FindBinary(const void* handle) {
  return runtime::FindObject(runtime::KernelBinaries(), handle, "kernel binary");
}

StatusOr<KernelFunction*> FindFunction(const void* handle) {
  return runtime::FindObject(runtime::KernelFunctions(), handle, "kernel function");
}

// `use` gets the list behind the handle: one of the runtime, or one in memory of the caller.
template <class Use>
Status WithArgs(aclrtArgsHandle handle, Use use) {
  if (KernelArgs* args = runtime::KernelArgsTable().Find(handle)) return use(*args);
  if (UserArgs* args = UserArgs::Find(handle)) return use(*args);
  return runtime::FindObject(runtime::KernelArgsTable(), handle, "kernel argument list").status();
}

StatusOr<BinaryData*> FindBinaryData(const void* handle) {
  return runtime::FindObject(runtime::BinaryDatas(), handle, "kernel binary in memory");
}

// A parameter handle is its position plus one: it means something only together with its list.
aclrtParamHandle ParamHandle(uint32_t param) { return reinterpret_cast<aclrtParamHandle>(uintptr_t{param} + 1); }
uint32_t ParamIndex(aclrtParamHandle handle) {
  const auto bits = reinterpret_cast<uintptr_t>(handle);
  return bits == 0 || bits > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(bits - 1);
}

Status CheckBlocks(uint32_t blocks, int code) {
  if (blocks != 0) [[likely]]
    return {};
  return Error(code, "numBlocks is 0, must be at least 1").Hint("pass the number of blocks to run, at least 1");
}

Status LaunchDeviceArgs(aclrtFuncHandle handle, uint32_t blocks, const void* args, size_t bytes,
                        const aclrtLaunchKernelCfg* cfg, aclrtStream stream) {
  REPRISE_RETURN_IF_ERROR(NotNull(handle, "funcHandle"));
  REPRISE_RETURN_IF_ERROR(NotNull(args, "argsData"));
  REPRISE_RETURN_IF_ERROR(CheckBlocks(blocks, kInvalidValue));
  REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(handle));
  REPRISE_ASSIGN_OR_RETURN(const LaunchAttributes attributes, ReadLaunchAttributes(cfg));
  REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
  REPRISE_RETURN_IF_ERROR(DeviceReaches(args, bytes, "argsData"));
  return runtime::LaunchWithDeviceArgs(*on, *function, blocks, attributes, args, bytes);
}

Status MadeBinary(StatusOr<KernelBinary*> made, aclrtBinHandle* out) {
  if (!made.ok()) return std::move(made).status();
  *out = made.value()->handle();
  return {};
}

Status CheckOptions(const aclrtBinaryLoadOptions* options) {
  constexpr int64_t kMaxOptions = 64;  // more are garbage
  if (options == nullptr || options->numOpt == 0) return {};
  REPRISE_RETURN_IF_ERROR(NotNull(options->options, "options->options"));
  REPRISE_RETURN_IF_ERROR(InRange(options->numOpt, 0, kMaxOptions, "options->numOpt"));
  for (size_t i = 0; i < options->numOpt; ++i) {
    REPRISE_RETURN_IF_ERROR(InRange(options->options[i].type, ACL_RT_BINARY_LOAD_OPT_LAZY_LOAD,
                                    ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE, "options->options[].type"));
  }
  return {};
}

}  // namespace

aclError aclrtBinaryLoadFromFile(const char* binPath, aclrtBinaryLoadOptions* options, aclrtBinHandle* binHandle) {
  return Api("aclrtBinaryLoadFromFile", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(binPath, "binPath"));
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_RETURN_IF_ERROR(CheckOptions(options));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] auto* context, runtime::CurrentContext());
    return MadeBinary(KernelBinary::LoadFile(binPath), binHandle);
  });
}

aclError aclrtBinaryLoadFromData(const void* data, size_t length, const aclrtBinaryLoadOptions* options,
                                 aclrtBinHandle* binHandle) {
  return Api("aclrtBinaryLoadFromData", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(data, "data"));
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_RETURN_IF_ERROR(NotZero(length, "length", kInvalidValue));
    REPRISE_RETURN_IF_ERROR(CheckOptions(options));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] auto* context, runtime::CurrentContext());
    return MadeBinary(KernelBinary::LoadData(data, length), binHandle);
  });
}

aclrtBinary aclrtCreateBinary(const void* data, size_t dataLen) {
  aclrtBinary binary = nullptr;
  Api("aclrtCreateBinary", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(data, "data"));
    if (dataLen == 0) {
      return Error(kInvalidArgument, "dataLen is 0, must be at least 1 byte")
          .Culprit("parameter dataLen")
          .Hint("pass the size of the kernel binary");
    }
    auto made = std::make_unique<BinaryData>(BinaryData{data, dataLen, nullptr});
    made->handle = runtime::BinaryDatas().Insert(made.get());
    if (made->handle == nullptr)
      return Error(kResourceExhausted, "the process has too many kernel binaries in memory")
          .Hint("destroy binaries that are no longer needed with aclrtDestroyBinary");
    binary = made.release()->handle;
    return {};
  });
  return binary;
}

aclError aclrtDestroyBinary(aclrtBinary binary) {
  return Api("aclrtDestroyBinary", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(binary, "binary"));
    if (runtime::BinaryDatas().Destroy(binary)) return {};
    return FindBinaryData(binary).status();
  });
}

aclError aclrtBinaryLoad(const aclrtBinary binary, aclrtBinHandle* binHandle) {
  return Api("aclrtBinaryLoad", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(binary, "binary"));
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_ASSIGN_OR_RETURN(const BinaryData* found, FindBinaryData(binary));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] auto* context, runtime::CurrentContext());
    return MadeBinary(KernelBinary::LoadData(found->data, found->bytes), binHandle);
  });
}

aclError aclrtBinaryUnLoad(aclrtBinHandle binHandle) {
  return Api("aclrtBinaryUnLoad", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_ASSIGN_OR_RETURN(KernelBinary * binary, FindBinary(binHandle));
    if (KernelBinary::Unload(binary)) return {};
    return FindBinary(binHandle).status();  // another thread was faster
  });
}

aclError aclrtBinaryGetFunction(const aclrtBinHandle binHandle, const char* kernelName, aclrtFuncHandle* funcHandle) {
  return Api("aclrtBinaryGetFunction", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(kernelName, "kernelName"));
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_ASSIGN_OR_RETURN(KernelBinary * binary, FindBinary(binHandle));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, binary->FindByName(kernelName));
    *funcHandle = function->handle;
    return {};
  });
}

aclError aclrtBinaryGetFunctionByEntry(aclrtBinHandle binHandle, uint64_t funcEntry, aclrtFuncHandle* funcHandle) {
  return Api("aclrtBinaryGetFunctionByEntry", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_ASSIGN_OR_RETURN(KernelBinary * binary, FindBinary(binHandle));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, binary->FindByEntry(funcEntry));
    *funcHandle = function->handle;
    return {};
  });
}

aclError aclrtBinaryGetDevAddress(const aclrtBinHandle binHandle, void** binAddr, size_t* binSize) {
  return Api("aclrtBinaryGetDevAddress", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_ASSIGN_OR_RETURN(KernelBinary * binary, FindBinary(binHandle));
    if (binAddr != nullptr) *binAddr = const_cast<void*>(binary->image());
    if (binSize != nullptr) *binSize = binary->image_bytes();
    return {};
  });
}

aclError aclrtBinaryGetGlobal(aclrtBinHandle binHandle, const char* name, void** dptr, size_t* size) {
  return Api("aclrtBinaryGetGlobal", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(name, "name"));
    if (dptr == nullptr && size == nullptr)
      return Error(kInvalidArgument, "parameters dptr and size are both null").Hint("pass at least one of them");
    REPRISE_ASSIGN_OR_RETURN(KernelBinary * binary, FindBinary(binHandle));
    return Error(kSymbolNotFound, fmt::format("{} has no global named \"{}\": host-compiled kernels export none",
                                              binary->source(), name))
        .Hint("keep the data in memory of aclrtMalloc, and pass its address to kernels");
  });
}

aclError aclrtRegisterCpuFunc(const aclrtBinHandle handle, const char* funcName, const char* kernelName,
                              aclrtFuncHandle* funcHandle) {
  return Api("aclrtRegisterCpuFunc", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(NotNull(funcName, "funcName"));
    REPRISE_RETURN_IF_ERROR(NotNull(kernelName, "kernelName"));
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    if (*kernelName == '\0') {
      return Error(kInvalidValue, "kernelName is empty")
          .Culprit("parameter kernelName")
          .Hint("pass a name for the kernel");
    }
    REPRISE_ASSIGN_OR_RETURN(KernelBinary * binary, FindBinary(handle));
    REPRISE_ASSIGN_OR_RETURN(const KernelFunction* function, binary->RegisterAlias(funcName, kernelName));
    *funcHandle = function->handle;
    return {};
  });
}

aclError aclrtFunctionGetParamCount(const void* func, size_t* paramCount) {
  return Api("aclrtFunctionGetParamCount", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(func, "func"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramCount, "paramCount"));
    REPRISE_ASSIGN_OR_RETURN(const KernelFunction* function, FindFunction(func));
    REPRISE_ASSIGN_OR_RETURN(const std::vector<runtime::ParamPlace> params, runtime::ParamsOf(*function));
    *paramCount = params.size();
    return {};
  });
}

aclError aclrtFunctionGetParamInfo(const void* func, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return Api("aclrtFunctionGetParamInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(func, "func"));
    if (paramOffset == nullptr && paramSize == nullptr) {
      return Error(kInvalidValue, "parameters paramOffset and paramSize are both null")
          .Culprit("parameters paramOffset and paramSize")
          .Hint("pass a place for at least one of them");
    }
    REPRISE_ASSIGN_OR_RETURN(const KernelFunction* function, FindFunction(func));
    REPRISE_ASSIGN_OR_RETURN(const std::vector<runtime::ParamPlace> params, runtime::ParamsOf(*function));
    if (paramIndex >= params.size()) {
      return Error(kInvalidValue, fmt::format("paramIndex is {}, kernel {} has {} parameters", paramIndex,
                                              function->name, params.size()))
          .Culprit("parameter paramIndex")
          .Hint("stay below the count that aclrtFunctionGetParamCount tells");
    }
    if (paramOffset != nullptr) *paramOffset = params[paramIndex].offset;
    if (paramSize != nullptr) *paramSize = params[paramIndex].bytes;
    return {};
  });
}

aclError aclrtFunctionGetAvailDynUbufPerBlock(void* func, uint32_t flags, size_t* dynamicUbufSize) {
  return Api("aclrtFunctionGetAvailDynUbufPerBlock", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(func, "func"));
    REPRISE_RETURN_IF_ERROR(NotNull(dynamicUbufSize, "dynamicUbufSize"));
    REPRISE_RETURN_IF_ERROR(IsReserved(flags, "flags", kInvalidArgument));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const KernelFunction* function, FindFunction(func));
    *dynamicUbufSize = 0;  // only thread-grid kernels ask for some
    return {};
  });
}

aclError aclrtGetHardwareSyncAddr(void** addr) {
  return Api("aclrtGetHardwareSyncAddr", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(addr, "addr"));
    REPRISE_ASSIGN_OR_RETURN(const runtime::Context* context, runtime::CurrentContext());
    *addr = runtime::HardwareSyncArea(context->device().id());
    return {};
  });
}

aclError aclrtFunctionGetBinary(const aclrtFuncHandle funcHandle, aclrtBinHandle* binHandle) {
  return Api("aclrtFunctionGetBinary", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(funcHandle));
    *binHandle = function->binary->handle();
    return {};
  });
}

aclError aclrtGetFunctionName(aclrtFuncHandle funcHandle, uint32_t maxLen, char* name) {
  return Api("aclrtGetFunctionName", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(name, "name"));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(funcHandle));
    if (maxLen < function->name.size() + 1) {
      return Error(kInvalidValue, fmt::format("maxLen is {}, the name needs {}", maxLen, function->name.size() + 1))
          .Hint("pass a longer buffer");
    }
    std::memcpy(name, function->name.c_str(), function->name.size() + 1);
    return {};
  });
}

aclError aclrtGetFunctionAddr(aclrtFuncHandle funcHandle, void** aicAddr, void** aivAddr) {
  return Api("aclrtGetFunctionAddr", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(aicAddr, "aicAddr"));
    REPRISE_RETURN_IF_ERROR(NotNull(aivAddr, "aivAddr"));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(funcHandle));
    void* const entry = reinterpret_cast<void*>(function->desc->fn);
    const uint32_t kind = function->desc->kind;
    *aicAddr = kind == REPRISE_KERNEL_VECTOR ? nullptr : entry;
    *aivAddr = kind == REPRISE_KERNEL_CUBE ? nullptr : entry;
    return {};
  });
}

aclError aclrtGetFunctionAttribute(aclrtFuncHandle funcHandle, aclrtFuncAttribute attrType, int64_t* attrValue) {
  return Api("aclrtGetFunctionAttribute", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(attrValue, "attrValue"));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(funcHandle));
    REPRISE_RETURN_IF_ERROR(InRange(attrType, ACL_FUNC_ATTR_KERNEL_TYPE, ACL_FUNC_ATTR_KERNEL_SCHED_MODE, "attrType"));
    switch (attrType) {
      case ACL_FUNC_ATTR_KERNEL_TYPE: *attrValue = function->desc->kind; break;
      case ACL_FUNC_ATTR_KERNEL_RATIO:
        *attrValue = int64_t{function->desc->vector_ratio} | int64_t{function->desc->cube_ratio} << 16;
        break;
      case ACL_FUNC_ATTR_KERNEL_SCHED_MODE: *attrValue = 0; break;
    }
    return {};
  });
}

aclError aclrtKernelArgsInit(aclrtFuncHandle funcHandle, aclrtArgsHandle* argsHandle) {
  return Api("aclrtKernelArgsInit", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(funcHandle));
    return runtime::MakeKernelArgs(*function, argsHandle);
  });
}

aclError aclrtKernelArgsGetHandleMemSize(aclrtFuncHandle funcHandle, size_t* memSize) {
  return Api("aclrtKernelArgsGetHandleMemSize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(memSize, "memSize"));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const KernelFunction* function, FindFunction(funcHandle));
    *memSize = UserArgs::ObjectBytes();
    return {};
  });
}

aclError aclrtKernelArgsGetMemSize(aclrtFuncHandle funcHandle, size_t userArgsSize, size_t* actualArgsSize) {
  return Api("aclrtKernelArgsGetMemSize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(actualArgsSize, "actualArgsSize"));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const KernelFunction* function, FindFunction(funcHandle));
    REPRISE_ASSIGN_OR_RETURN(*actualArgsSize, UserArgs::BlockBytes(userArgsSize));
    return {};
  });
}

aclError aclrtKernelArgsInitByUserMem(aclrtFuncHandle funcHandle, aclrtArgsHandle argsHandle, void* userHostMem,
                                      size_t actualArgsSize) {
  return Api("aclrtKernelArgsInitByUserMem", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(userHostMem, "userHostMem"));
    REPRISE_RETURN_IF_ERROR(InRange(actualArgsSize, 1, INT64_MAX, "actualArgsSize", kInvalidArgument));
    REPRISE_ASSIGN_OR_RETURN(const KernelFunction* function, FindFunction(funcHandle));
    return UserArgs::Create(*function, argsHandle, userHostMem, actualArgsSize);
  });
}

aclError aclrtKernelArgsAppend(aclrtArgsHandle argsHandle, void* param, size_t paramSize,
                               aclrtParamHandle* paramHandle) {
  return Api("aclrtKernelArgsAppend", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(param, "param"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramHandle, "paramHandle"));
    REPRISE_RETURN_IF_ERROR(InRange(paramSize, 1, INT64_MAX, "paramSize", kInvalidArgument));
    return WithArgs(argsHandle, [&](auto& args) -> Status {
      REPRISE_ASSIGN_OR_RETURN(const uint32_t index, args.Append(param, paramSize));
      *paramHandle = ParamHandle(index);
      return {};
    });
  });
}

aclError aclrtKernelArgsAppendPlaceHolder(aclrtArgsHandle argsHandle, aclrtParamHandle* paramHandle) {
  return Api("aclrtKernelArgsAppendPlaceHolder", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramHandle, "paramHandle"));
    return WithArgs(argsHandle, [&](auto& args) -> Status {
      REPRISE_ASSIGN_OR_RETURN(const uint32_t index, args.AppendPlaceholder());
      *paramHandle = ParamHandle(index);
      return {};
    });
  });
}

aclError aclrtKernelArgsGetPlaceHolderBuffer(aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, size_t dataSize,
                                             void** bufferAddr) {
  return Api("aclrtKernelArgsGetPlaceHolderBuffer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramHandle, "paramHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(bufferAddr, "bufferAddr"));
    REPRISE_RETURN_IF_ERROR(InRange(dataSize, 1, INT64_MAX, "dataSize", kInvalidArgument));
    return WithArgs(argsHandle, [&](auto& args) -> Status {
      REPRISE_ASSIGN_OR_RETURN(*bufferAddr, args.PlaceholderBuffer(ParamIndex(paramHandle), dataSize));
      return {};
    });
  });
}

aclError aclrtKernelArgsParaUpdate(aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, void* param,
                                   size_t paramSize) {
  return Api("aclrtKernelArgsParaUpdate", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramHandle, "paramHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(param, "param"));
    REPRISE_RETURN_IF_ERROR(InRange(paramSize, 1, INT64_MAX, "paramSize", kInvalidArgument));
    return WithArgs(argsHandle, [&](auto& args) { return args.Update(ParamIndex(paramHandle), param, paramSize); });
  });
}

aclError aclrtKernelArgsFinalize(aclrtArgsHandle argsHandle) {
  return Api("aclrtKernelArgsFinalize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    return WithArgs(argsHandle, [](auto& args) { return args.Finalize(); });
  });
}

aclError aclrtLaunchKernel(aclrtFuncHandle funcHandle, uint32_t numBlocks, const void* argsData, size_t argsSize,
                           aclrtStream stream) {
  return Api("aclrtLaunchKernel",
             [&] { return LaunchDeviceArgs(funcHandle, numBlocks, argsData, argsSize, nullptr, stream); });
}

aclError aclrtLaunchKernelV2(aclrtFuncHandle funcHandle, uint32_t numBlocks, const void* argsData, size_t argsSize,
                             aclrtLaunchKernelCfg* cfg, aclrtStream stream) {
  return Api("aclrtLaunchKernelV2",
             [&] { return LaunchDeviceArgs(funcHandle, numBlocks, argsData, argsSize, cfg, stream); });
}

aclError aclrtLaunchKernelWithConfig(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream,
                                     aclrtLaunchKernelCfg* cfg, aclrtArgsHandle argsHandle, void* reserve) {
  return Api("aclrtLaunchKernelWithConfig", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_RETURN_IF_ERROR(CheckBlocks(numBlocks, kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(IsReserved(reserve, "reserve", kInvalidArgument));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(funcHandle));
    return WithArgs(argsHandle, [&](auto& args) -> Status {
      if (args.function_handle() != funcHandle) {
        REPRISE_ASSIGN_OR_RETURN(const KernelFunction* owner, FindFunction(args.function_handle()));
        return Error(kInvalidValue,
                     fmt::format("the argument list was made for kernel {}, not for {}", owner->name, function->name))
            .Hint("make a list with aclrtKernelArgsInit for this kernel");
      }
      REPRISE_ASSIGN_OR_RETURN(const LaunchAttributes attributes, ReadLaunchAttributes(cfg));
      REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
      return args.Launch(*on, numBlocks, attributes);
    });
  });
}

aclError aclrtLaunchKernelWithHostArgs(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream,
                                       aclrtLaunchKernelCfg* cfg, void* hostArgs, size_t argsSize,
                                       aclrtPlaceHolderInfo* placeHolderArray, size_t placeHolderNum) {
  return Api("aclrtLaunchKernelWithHostArgs", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(hostArgs, "hostArgs"));
    REPRISE_RETURN_IF_ERROR(CheckBlocks(numBlocks, kInvalidValue));
    if (IsStrict()) [[unlikely]] {
      REPRISE_RETURN_IF_ERROR(HostReads(hostArgs, "hostArgs"));
    }
    if (placeHolderNum != 0) REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(placeHolderArray, "placeHolderArray"));
    REPRISE_RETURN_IF_ERROR(InRange(placeHolderNum, 0, KernelArgs::kMaxParams, "placeHolderNum"));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(funcHandle));
    LaunchAttributes attributes;
    if (cfg != nullptr) {
      REPRISE_ASSIGN_OR_RETURN(attributes, ReadLaunchAttributes(cfg));
    }
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    on->PrepareSubmit();
    if (placeHolderNum == 0) [[likely]]
      return runtime::LaunchWithHostArgs(*on, *function, numBlocks, attributes, hostArgs, argsSize, {});
    std::vector<runtime::ArgumentPlaceholder> placeholders;
    for (size_t i = 0; i < placeHolderNum; ++i) {
      placeholders.push_back({placeHolderArray[i].addrOffset, placeHolderArray[i].dataOffset});
    }
    return runtime::LaunchWithHostArgs(*on, *function, numBlocks, attributes, hostArgs, argsSize, placeholders);
  });
}

aclError aclrtLaunchKernelWithArgsArray(void* func, uint32_t numBlocks, aclrtStream stream, aclrtLaunchKernelCfg* cfg,
                                        void** args) {
  return Api("aclrtLaunchKernelWithArgsArray", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(func, "func"));
    REPRISE_RETURN_IF_ERROR(CheckBlocks(numBlocks, kInvalidArgument));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(func));
    REPRISE_ASSIGN_OR_RETURN(const std::vector<runtime::ParamPlace> params, runtime::ParamsOf(*function));
    if (!params.empty()) REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(args, "args"));
    REPRISE_ASSIGN_OR_RETURN(const LaunchAttributes attributes, ReadLaunchAttributes(cfg));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    std::vector<std::byte> block;
    for (size_t i = 0; i < params.size(); ++i) {
      REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(args[i], "args[]"));
      block.resize(params[i].offset + (params[i].bytes + 7) / 8 * 8);
      std::memcpy(block.data() + params[i].offset, args[i], params[i].bytes);
    }
    return runtime::LaunchWithHostArgs(*on, *function, numBlocks, attributes, block.data(), block.size(), {});
  });
}
