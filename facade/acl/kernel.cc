// SPDX-License-Identifier: Apache-2.0
//
// Kernel binaries, argument lists and launches.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "check.h"
#include "graph.h"
#include "runtime/context.h"
#include "runtime/kernel.h"
#include "runtime/report.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::KernelArgs;
using runtime::KernelBinary;
using runtime::KernelFunction;
using runtime::LaunchAttributes;
using runtime::NotNull;
using runtime::Stream;

namespace reprise::facade {

StatusOr<LaunchAttributes> ReadLaunchAttributes(const aclrtLaunchKernelCfg* cfg) {
  constexpr size_t kMaxLaunchAttributes = 64;
  LaunchAttributes out;
  if (cfg == nullptr || cfg->numAttrs == 0) return out;
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
        return Error(107000, fmt::format("cfg->attrs[{}].id is {}, must be {} to {}", i, static_cast<int>(attribute.id),
                                         static_cast<int>(ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE),
                                         static_cast<int>(ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING)));
    }
  }
  if (seconds && microseconds) {
    return Error(107000, "cfg names both TIMEOUT and TIMEOUT_US").Hint("pass one of the two attributes");
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

StatusOr<KernelArgs*> FindArgs(const void* handle) {
  return runtime::FindObject(runtime::KernelArgsTable(), handle, "kernel argument list");
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
  return Error(code, "numBlocks is 0, must be at least 1");
}

Status LaunchDeviceArgs(aclrtFuncHandle handle, uint32_t blocks, const void* args, size_t bytes,
                        const aclrtLaunchKernelCfg* cfg, aclrtStream stream) {
  REPRISE_RETURN_IF_ERROR(NotNull(handle, "funcHandle"));
  REPRISE_RETURN_IF_ERROR(NotNull(args, "argsData"));
  REPRISE_RETURN_IF_ERROR(CheckBlocks(blocks, 107000));
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
    if (length == 0) return Error(107000, "length is 0, must be at least 1");
    REPRISE_RETURN_IF_ERROR(CheckOptions(options));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] auto* context, runtime::CurrentContext());
    return MadeBinary(KernelBinary::LoadData(data, length), binHandle);
  });
}

aclError aclrtBinaryUnLoad(aclrtBinHandle binHandle) {
  return Api("aclrtBinaryUnLoad", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_ASSIGN_OR_RETURN(KernelBinary * binary, FindBinary(binHandle));
    KernelBinary::Unload(binary);
    return {};
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
    if (dptr == nullptr && size == nullptr) return Error(100000, "parameters dptr and size are both null");
    REPRISE_ASSIGN_OR_RETURN(KernelBinary * binary, FindBinary(binHandle));
    return Error(107042,
                 fmt::format("{} has no global named {}: host-compiled kernels export none", binary->source(), name));
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
      return Error(107000, fmt::format("maxLen is {}, the name needs {}", maxLen, function->name.size() + 1));
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

aclError aclrtKernelArgsAppend(aclrtArgsHandle argsHandle, void* param, size_t paramSize,
                               aclrtParamHandle* paramHandle) {
  return Api("aclrtKernelArgsAppend", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(param, "param"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramHandle, "paramHandle"));
    REPRISE_RETURN_IF_ERROR(InRange(paramSize, 1, INT64_MAX, "paramSize", 100000));
    REPRISE_ASSIGN_OR_RETURN(KernelArgs * args, FindArgs(argsHandle));
    REPRISE_ASSIGN_OR_RETURN(const uint32_t index, args->Append(param, paramSize));
    *paramHandle = ParamHandle(index);
    return {};
  });
}

aclError aclrtKernelArgsAppendPlaceHolder(aclrtArgsHandle argsHandle, aclrtParamHandle* paramHandle) {
  return Api("aclrtKernelArgsAppendPlaceHolder", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramHandle, "paramHandle"));
    REPRISE_ASSIGN_OR_RETURN(KernelArgs * args, FindArgs(argsHandle));
    REPRISE_ASSIGN_OR_RETURN(const uint32_t index, args->AppendPlaceholder());
    *paramHandle = ParamHandle(index);
    return {};
  });
}

aclError aclrtKernelArgsGetPlaceHolderBuffer(aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, size_t dataSize,
                                             void** bufferAddr) {
  return Api("aclrtKernelArgsGetPlaceHolderBuffer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramHandle, "paramHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(bufferAddr, "bufferAddr"));
    REPRISE_RETURN_IF_ERROR(InRange(dataSize, 1, INT64_MAX, "dataSize", 100000));
    REPRISE_ASSIGN_OR_RETURN(KernelArgs * args, FindArgs(argsHandle));
    REPRISE_ASSIGN_OR_RETURN(*bufferAddr, args->PlaceholderBuffer(ParamIndex(paramHandle), dataSize));
    return {};
  });
}

aclError aclrtKernelArgsParaUpdate(aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, void* param,
                                   size_t paramSize) {
  return Api("aclrtKernelArgsParaUpdate", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramHandle, "paramHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(param, "param"));
    REPRISE_RETURN_IF_ERROR(InRange(paramSize, 1, INT64_MAX, "paramSize", 100000));
    REPRISE_ASSIGN_OR_RETURN(KernelArgs * args, FindArgs(argsHandle));
    return args->Update(ParamIndex(paramHandle), param, paramSize);
  });
}

aclError aclrtKernelArgsFinalize(aclrtArgsHandle argsHandle) {
  return Api("aclrtKernelArgsFinalize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(argsHandle, "argsHandle"));
    REPRISE_ASSIGN_OR_RETURN(KernelArgs * args, FindArgs(argsHandle));
    return args->Finalize();
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
    REPRISE_RETURN_IF_ERROR(CheckBlocks(numBlocks, 100000));
    REPRISE_RETURN_IF_ERROR(IsReserved(reserve, "reserve", 100000));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(funcHandle));
    REPRISE_ASSIGN_OR_RETURN(KernelArgs * args, FindArgs(argsHandle));
    if (&args->function() != function) {
      return Error(107000, fmt::format("the argument list was made for kernel {}, not for {}", args->function().name,
                                       function->name));
    }
    REPRISE_ASSIGN_OR_RETURN(const LaunchAttributes attributes, ReadLaunchAttributes(cfg));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return args->Launch(*on, numBlocks, attributes);
  });
}

aclError aclrtLaunchKernelWithHostArgs(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream,
                                       aclrtLaunchKernelCfg* cfg, void* hostArgs, size_t argsSize,
                                       aclrtPlaceHolderInfo* placeHolderArray, size_t placeHolderNum) {
  return Api("aclrtLaunchKernelWithHostArgs", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(hostArgs, "hostArgs"));
    REPRISE_RETURN_IF_ERROR(CheckBlocks(numBlocks, 107000));
    if (placeHolderNum != 0) REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(placeHolderArray, "placeHolderArray"));
    REPRISE_RETURN_IF_ERROR(InRange(placeHolderNum, 0, KernelArgs::kMaxParams, "placeHolderNum"));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(funcHandle));
    REPRISE_ASSIGN_OR_RETURN(const LaunchAttributes attributes, ReadLaunchAttributes(cfg));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
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
    REPRISE_RETURN_IF_ERROR(CheckBlocks(numBlocks, 100000));
    REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindFunction(func));
    const RepriseKernelDesc& desc = *function->desc;
    if (desc.param_sizes == nullptr) {
      return Error(207000, fmt::format("kernel {} does not tell the sizes of its parameters", function->name))
          .Hint("define it with REPRISE_KERNEL, or launch it with aclrtLaunchKernelWithHostArgs");
    }
    if (desc.param_count != 0) REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(args, "args"));
    REPRISE_ASSIGN_OR_RETURN(const LaunchAttributes attributes, ReadLaunchAttributes(cfg));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    std::vector<std::byte> block;
    for (uint32_t i = 0; i < desc.param_count; ++i) {
      REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(args[i], "args[]"));
      const size_t at = block.size();
      block.resize(at + (size_t{desc.param_sizes[i]} + 7) / 8 * 8);
      std::memcpy(block.data() + at, args[i], desc.param_sizes[i]);
    }
    return runtime::LaunchWithHostArgs(*on, *function, numBlocks, attributes, block.data(), block.size(), {});
  });
}
