// SPDX-License-Identifier: Apache-2.0
//
// Kernels behind addresses of the program's choice.
#include <fmt/format.h>

#include <string>

#include "experiment/runtime/runtime/rt.h"
#include "runtime/context.h"
#include "runtime/kernel.h"
#include "runtime/report.h"
#include "runtime/stub_kernel.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::runtime::Api;
using reprise::runtime::NotNull;
namespace runtime = reprise::runtime;

rtError_t rtDevBinaryRegister(const rtDevBinary_t* bin, void** hdl) {
  return Api("rtDevBinaryRegister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(bin, "bin"));
    REPRISE_RETURN_IF_ERROR(NotNull(hdl, "hdl"));
    REPRISE_RETURN_IF_ERROR(NotNull(bin->data, "bin->data"));
    if (bin->length == 0) {
      return Error(kInvalidValue, "bin->length is 0, must be at least 1")
          .Culprit("parameter bin, field length")
          .Hint("pass the number of bytes at bin->data");
    }
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] auto* context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(const runtime::KernelBinary* binary,
                             runtime::KernelBinary::LoadData(bin->data, bin->length));
    *hdl = binary->handle();
    return {};
  });
}

rtError_t rtFunctionRegister(void* binHandle, const void* stubFunc, const char* stubName, const void* kernelInfoExt,
                             uint32_t funcMode) {
  return Api("rtFunctionRegister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(binHandle, "binHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(stubFunc, "stubFunc"));
    REPRISE_RETURN_IF_ERROR(NotNull(stubName, "stubName"));
    if (funcMode != 0) {
      return Error(kInvalidValue, fmt::format("funcMode is {}, must be 0", funcMode))
          .Culprit("parameter funcMode")
          .Hint("pass 0: kernels are host code, whatever the mode");
    }
    REPRISE_ASSIGN_OR_RETURN(const runtime::KernelBinary* binary,
                             runtime::FindObject(runtime::KernelBinaries(), binHandle, "kernel binary"));
    const auto* name = kernelInfoExt != nullptr ? static_cast<const char*>(kernelInfoExt) : stubName;
    REPRISE_ASSIGN_OR_RETURN(const runtime::KernelFunction* function, binary->FindByName(name));
    return runtime::RegisterStub(stubFunc, *function);
  });
}

rtError_t rtKernelLaunch(const void* stubFunc, uint32_t blockDim, void* args, uint32_t argsSize, rtSmDesc_t* smDesc,
                         rtStream_t stm) {
  return Api("rtKernelLaunch", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stubFunc, "stubFunc"));
    if (argsSize != 0) REPRISE_RETURN_IF_ERROR(NotNull(args, "args"));
    if (blockDim == 0) {
      return Error(kInvalidValue, "blockDim is 0, must be at least 1")
          .Culprit("parameter blockDim")
          .Hint("pass a number of blocks of at least 1");
    }
    if (smDesc != nullptr) {
      return Error(kFeatureNotSupported, "smDesc is not null: the CPU device has no shared memory to describe")
          .Culprit("parameter smDesc")
          .Hint("pass NULL");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::KernelFunction * function, runtime::FindStub(stubFunc));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stm));
    return runtime::LaunchWithHostArgs(*on, *function, blockDim, {}, args, argsSize, {});
  });
}

rtError_t rtGetC2cCtrlAddr(uint64_t* addr, uint32_t* len) {
  return Api("rtGetC2cCtrlAddr", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(addr, "addr"));
    REPRISE_RETURN_IF_ERROR(NotNull(len, "len"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    *addr = reinterpret_cast<uintptr_t>(runtime::HardwareSyncArea(context->device().id()));
    *len = runtime::kHardwareSyncBytes;
    return {};
  });
}
