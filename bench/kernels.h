// SPDX-License-Identifier: Apache-2.0
//
// Kernels that do nothing, in a library of their own, as kernels usually come: the program's own code lies more than
// 4 GiB from any library, and on some processors a call that far costs half as much again as any other.
#pragma once

#include <reprise/kernel.h>

#include <vector>

#include "yardsticks.h"  // kMixedFunctions

namespace bench {

RepriseKernelFn NoOpKernel();
/// Different functions, none of which does anything.
std::vector<RepriseKernelFn> MixedKernels();

}  // namespace bench
