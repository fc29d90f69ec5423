// SPDX-License-Identifier: Apache-2.0
#include "reprise/operands.h"

#include <fmt/format.h>

#include "runtime/attached_operands.h"
#include "runtime/callback.h"
#include "runtime/kernel.h"
#include "runtime/report.h"
#include "runtime/tasks.h"

using namespace reprise::errors;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::AttachedOperands;

int32_t repriseLaunchKernelWithOperands(void* function, uint32_t num_blocks, void* stream, const void* args,
                                        size_t args_bytes, const RepriseOperand* operands, size_t count) {
  return Api("repriseLaunchKernelWithOperands", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(function, "function"));
    if (args_bytes != 0) REPRISE_RETURN_IF_ERROR(runtime::NotNull(args, "args"));
    if (num_blocks == 0) {
      return Error(kInvalidValue, "num_blocks is 0, must be at least 1")
          .Culprit("parameter num_blocks")
          .Hint("pass the number of blocks to run, at least 1");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::KernelFunction * kernel,
                             runtime::FindObject(runtime::KernelFunctions(), function, "kernel function"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    REPRISE_ASSIGN_OR_RETURN(AttachedOperands attached, runtime::ReadOperands(operands, count));
    return runtime::LaunchWithOperands(*on, *kernel, num_blocks, args, args_bytes, std::move(attached));
  });
}

int32_t repriseLaunchHostFuncWithOperands(void* stream, void (*function)(void*), void* user_data,
                                          const RepriseOperand* operands, size_t count) {
  return Api("repriseLaunchHostFuncWithOperands", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(reinterpret_cast<const void*>(function), "function"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    REPRISE_ASSIGN_OR_RETURN(AttachedOperands attached, runtime::ReadOperands(operands, count));
    return runtime::SubmitHostFunc(*on, function, user_data, std::move(attached));
  });
}

int32_t repriseLaunchCallbackWithOperands(void (*function)(void*), void* user_data, uint32_t blocks, void* stream,
                                          const RepriseOperand* operands, size_t count) {
  return Api("repriseLaunchCallbackWithOperands", [&]() -> Status {
    if (blocks > 1) {
      return Error(kInvalidArgument, fmt::format("blocks is {}, must be 0 to 1", blocks))
          .Culprit("parameter blocks")
          .Hint("pass 1 if the stream waits for the callback, else 0");
    }
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(reinterpret_cast<const void*>(function), "function"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    REPRISE_ASSIGN_OR_RETURN(AttachedOperands attached, runtime::ReadOperands(operands, count));
    return runtime::SubmitCallback(*on, function, user_data, blocks == 1, std::move(attached));
  });
}
