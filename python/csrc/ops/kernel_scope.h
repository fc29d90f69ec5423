// SPDX-License-Identifier: Apache-2.0
//
// The state of a thread while kernels of torch run below everything else: no autograd, no modes, no autocast.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_npu {

/// For kernels that do not compute, such as those of Meta.
class PlainKeys {
 public:
  PlainKeys();
  PlainKeys(const PlainKeys&) = delete;
  PlainKeys& operator=(const PlainKeys&) = delete;

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  at::AutoGradMode no_grad_;
};

/// For CPU kernels, as tasks of a stream or at once. A fixed number of threads, so that eager work and replays give the
/// same bits whichever thread runs them.
class KernelScope {
 public:
  KernelScope();
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  PlainKeys keys_;
  int omp_before_ = 0;
  int mkl_before_ = 0;
};

/// Threads that one operator may use: REPRISE_TORCH_THREADS, else a quarter of the cores, at least 1.
int KernelThreads();

}  // namespace torch_npu
