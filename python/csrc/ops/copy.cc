// SPDX-License-Identifier: Apache-2.0
//
// Copies between and on devices, and reading a scalar.
//
//     npu -> npu          one task on the current stream; converts types and strides
//     pinned host <-> npu, non_blocking   asynchronous; the host block is kept until the stream has passed
//     other host  <-> npu                 waits for the stream; refused in captures
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty_like.h>
#include <acl/acl.h>
#include <torch/library.h>

#include "common/error.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "memory/host_allocator.h"
#include "ops/alias.h"
#include "ops/kernel_scope.h"
#include "ops/launch.h"
#include "ops/tensors.h"

namespace torch_npu {
namespace {

bool IsNpu(const at::Tensor& tensor) { return tensor.device().type() == c10::kPrivateUse1; }

// Both sides lie back to back in the same order, so that the bytes can be moved as they are.
bool SameBytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

void CopyOnDevice(const at::Tensor& from, const at::Tensor& to) {
  if (SameBytes(from, to)) {
    // A kernel, not a copy of the runtime: task groups take kernels only.
    Launch("copy_", [src = from.const_data_ptr(), dst = to.mutable_data_ptr(), bytes = from.nbytes()] {
      std::memmove(dst, src, bytes);
    });
    return;
  }
  Aliases aliases(c10::kCPU);
  Launch("copy_", [src = aliases.Of(from), dst = aliases.Of(to)]() mutable { dst.copy_(src); });
}

void CopyAcrossDevices(const at::Tensor& from, const at::Tensor& to) {
  RefuseInCapture("copy between devices", "it would be part of two graphs");
  CurrentStream(from.device().index()).synchronize();
  CurrentStream(to.device().index()).synchronize();
  Aliases aliases(c10::kCPU);
  const at::Tensor src = aliases.Of(from);
  at::Tensor dst = aliases.Of(to);
  const KernelScope scope;
  dst.copy_(src);
}

// The host's side is touched by the task: pinned memory of our allocator stays until the stream has passed.
void CopyAsync(const at::Tensor& from, const at::Tensor& to, const at::Tensor& host, const NPUStream& stream) {
  if (SameBytes(from, to)) {
    Check(aclrtMemcpyAsync(to.mutable_data_ptr(), to.nbytes(), from.const_data_ptr(), from.nbytes(),
                           IsNpu(to) ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_HOST, stream.handle()),
          "aclrtMemcpyAsync");
  } else {
    Aliases aliases(c10::kCPU);
    Launch("copy_", [src = aliases.Of(from), dst = aliases.Of(to)]() mutable { dst.copy_(src); });
  }
  HostMemory().record_event(host.storage().mutable_data(), host.storage().data_ptr().get_context(), stream);
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  if (from.sizes() != to.sizes()) return CopyFrom(from.expand(to.sizes()), to, non_blocking);
  const c10::Device device = IsNpu(to) ? to.device() : from.device();
  const c10::DeviceIndex before = ExchangeDevice(device.index());
  if (IsNpu(from) && IsNpu(to)) {
    from.device() == to.device() ? CopyOnDevice(from, to) : CopyAcrossDevices(from, to);
  } else {
    const at::Tensor& host = IsNpu(to) ? from : to;
    const NPUStream stream = CurrentStream(device.index());
    if (non_blocking && IsPinned(host.const_data_ptr())) {
      CopyAsync(from, to, host, stream);
    } else {
      RefuseInCapture("copy_",
                      "the host's memory is pageable or the copy is blocking; use pinned memory with "
                      "non_blocking=True");
      stream.synchronize();
      Aliases aliases(c10::kCPU);
      const at::Tensor src = IsNpu(from) ? aliases.Of(from) : from;
      at::Tensor dst = IsNpu(to) ? aliases.Of(to) : to;
      const KernelScope scope;
      dst.copy_(src);
    }
  }
  if (before != device.index()) SetDevice(before);
  return to;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) to.resize_(from.sizes());
  return CopyFrom(from, to, false);
}

at::Scalar LocalScalarDense(const at::Tensor& self) {
  RefuseInCapture("item()", "the host would have to wait for the value");
  const NPUStream stream = CurrentStream(self.device().index());
  stream.synchronize();
  Aliases aliases(c10::kCPU);
  const at::Tensor alias = aliases.Of(self);
  const KernelScope scope;
  return at::_local_scalar_dense(alias);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", CopyFrom);
  m.impl("_copy_from_and_resize", CopyFromAndResize);
  m.impl("_local_scalar_dense", LocalScalarDense);
}

}  // namespace
}  // namespace torch_npu
