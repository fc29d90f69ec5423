// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel_scope.h"

#include <ATen/Parallel.h>
#include <c10/core/DispatchKeySet.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace torch_npu {
namespace {

c10::impl::LocalDispatchKeySet KeysOfKernels() {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  keys.included_ = c10::default_included_set;
  keys.excluded_ = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset | c10::python_ks |
                   c10::DispatchKeySet(c10::DispatchKey::PythonTLSSnapshot);
  return keys;
}

// The OpenMP runtime and MKL that torch has loaded; linking another one would make two of them.
struct Threading {
  int (*omp_get_max_threads)() = nullptr;
  void (*omp_set_num_threads)(int) = nullptr;
  int (*mkl_set_num_threads_local)(int) = nullptr;

  Threading() {
    void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (torch == nullptr) return;
    Find(torch, "omp_get_max_threads", omp_get_max_threads);
    Find(torch, "omp_set_num_threads", omp_set_num_threads);
    Find(torch, "MKL_Set_Num_Threads_Local", mkl_set_num_threads_local);
  }
  template <class Function>
  static void Find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
  }
};

const Threading& TheThreading() {
  static const Threading threading;
  return threading;
}

thread_local bool t_prepared = false;

}  // namespace

int KernelThreads() {
  static const int threads = [] {
    if (const char* const set = std::getenv("REPRISE_TORCH_THREADS")) {
      if (const int wanted = std::atoi(set); wanted > 0) return wanted;
    }
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 4);
  }();
  return threads;
}

PlainKeys::PlainKeys() : keys_(KeysOfKernels()), no_grad_(false) {}

KernelScope::KernelScope() {
  if (!t_prepared) [[unlikely]] {
    (void)at::get_num_threads();  // its first call in a thread would overwrite ours
    t_prepared = true;
  }
  const Threading& threading = TheThreading();
  if (threading.omp_set_num_threads != nullptr) {
    omp_before_ = threading.omp_get_max_threads();
    if (omp_before_ != KernelThreads()) threading.omp_set_num_threads(KernelThreads());
  }
  if (threading.mkl_set_num_threads_local != nullptr) {
    mkl_before_ = threading.mkl_set_num_threads_local(KernelThreads());
  }
}

KernelScope::~KernelScope() {
  const Threading& threading = TheThreading();
  if (threading.omp_set_num_threads != nullptr && omp_before_ != KernelThreads()) {
    threading.omp_set_num_threads(omp_before_);
  }
  if (threading.mkl_set_num_threads_local != nullptr) (void)threading.mkl_set_num_threads_local(mkl_before_);
}

}  // namespace torch_npu
