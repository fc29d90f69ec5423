// SPDX-License-Identifier: Apache-2.0
//
// Kernels behind addresses that a program chooses: the older way to launch, in which an address of the host (the stub)
// stands for a function of a binary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "runtime/kernel.h"

namespace reprise::runtime {

/// `stub` stands for the kernel from now on. 507028 while it stands for another kernel that is still loaded.
/// Threads: thread-safe, as is the next one.
Status RegisterStub(const void* stub, const KernelFunction& function);
/// 507027 for an address that stands for nothing, or whose binary is gone.
StatusOr<KernelFunction*> FindStub(const void* stub);

}  // namespace reprise::runtime
