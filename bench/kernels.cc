// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include <utility>

namespace bench {
namespace {

int32_t NoOp(const RepriseKernelContext*, const void*, size_t) {
  asm volatile("" ::: "memory");
  return 0;
}

template <int Which>
int32_t Mixed(const RepriseKernelContext*, const void*, size_t) {
  asm volatile("# %0" ::"i"(Which) : "memory");
  return 0;
}

template <int... Which>
std::vector<RepriseKernelFn> All(std::integer_sequence<int, Which...>) {
  return {&Mixed<Which>...};
}

}  // namespace

RepriseKernelFn NoOpKernel() { return NoOp; }
std::vector<RepriseKernelFn> MixedKernels() { return All(std::make_integer_sequence<int, kMixedFunctions>{}); }

}  // namespace bench
