// SPDX-License-Identifier: Apache-2.0
//
// The state of a thread while CPU kernels of torch run as tasks of a stream: no autograd, no modes, no autocast, and a
// fixed number of threads, so that eager work and replays give the same bits whichever thread runs them.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_npu {

class KernelScope {
 public:
  KernelScope();
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  at::AutoGradMode no_grad_;
  int omp_before_ = 0;
  int mkl_before_ = 0;
};

/// Threads that one operator may use: REPRISE_TORCH_THREADS, else a quarter of the cores, at least 1.
int KernelThreads();

}  // namespace torch_npu
