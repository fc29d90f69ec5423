// SPDX-License-Identifier: Apache-2.0
//
// Copies between and on devices, and reading a scalar.
//
//     on one device                       a task of the current stream, which converts types and strides
//     between devices                     a task of the source's stream, ordered with the destination's by events;
//                                         refused in captures
//     pinned host <-> npu, non_blocking   a task; the host's block is kept until the stream has passed
//     other host  <-> npu                 waits for the stream; refused in captures
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <acl/acl.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "device/sync_debug.h"
#include "graph/liveness.h"
#include "memory/host_allocator.h"
#include "ops/alias.h"
#include "ops/launch.h"
#include "ops/native.h"
#include "ops/tensors.h"

namespace torch_npu {
namespace {

bool IsNpu(const at::Tensor& tensor) { return tensor.device().type() == c10::kPrivateUse1; }

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

// Both sides lie back to back in the same order, so that the bytes can be moved as they are.
bool SameBytes(const at::Tensor& a, const at::Tensor& b) {
  return SameBits(a, b) && a.sizes() == b.sizes() && a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

// An alias that knows whether its elements are to be conjugated or negated when they are read.
at::Tensor AliasOf(Aliases& aliases, const at::Tensor& tensor) {
  at::Tensor alias = aliases.Of(tensor);
  if (tensor.is_conj()) alias._set_conj(true);
  if (tensor.is_neg()) alias._set_neg(true);
  return alias;
}

void LaunchCopy(const at::Tensor& from, const at::Tensor& to) {
  if (SameBytes(from, to)) {
    NoteUse(from);
    NoteUse(to);
    // A kernel, not a copy of the runtime: task groups take kernels only.
    Launch("copy_", [src = from.const_data_ptr(), dst = to.mutable_data_ptr(), bytes = from.nbytes()] {
      std::memmove(dst, src, bytes);
    });
    return;
  }
  // Turns large matrices in blocks, with the workers of the device. Conversions are torch's own.
  if (SameBits(from, to) && from.device() == to.device() &&
      NativeCall("aclnnInplaceCopy", "copy_").Tensor(to).Tensor(from).Launch()) {
    return;
  }
  Aliases aliases(c10::kCPU);
  Launch("copy_", [src = AliasOf(aliases, from), dst = AliasOf(aliases, to)]() mutable { dst.copy_(src); });
}

// An event for one use.
class Event {
 public:
  Event() {
    constexpr uint32_t kSync = 0x1;  // ACL_EVENT_SYNC
    Check(aclrtCreateEventExWithFlag(&event_, kSync), "aclrtCreateEventExWithFlag");
  }
  ~Event() { (void)aclrtDestroyEvent(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // `second` goes on when `first` has come here.
  void Order(const NPUStream& first, const NPUStream& second) {
    {
      const c10::DeviceGuard guard(first.device());
      EnsureContext();
      Check(aclrtRecordEvent(event_, first.handle()), "aclrtRecordEvent");
    }
    const c10::DeviceGuard guard(second.device());
    EnsureContext();
    Check(aclrtStreamWaitEvent(second.handle(), event_), "aclrtStreamWaitEvent");
  }

 private:
  aclrtEvent event_ = nullptr;
};

// By the source's stream, between what the destination's stream did before and what it will do.
void CopyAcrossDevices(const at::Tensor& from, const at::Tensor& to) {
  for (const at::Tensor* const side : {&to, &from}) {
    const c10::DeviceGuard guard(side->device());
    RefuseInCapture("a copy between devices", "it would be part of two graphs",
                    "copy before the capture or after it, or keep the whole capture on one device");
  }
  const NPUStream source = CurrentStream(from.device().index());
  const NPUStream destination = CurrentStream(to.device().index());
  const c10::DeviceGuard guard(from.device());
  Event ready;
  ready.Order(destination, source);
  LaunchCopy(from, to);
  const c10::DeviceGuard other(to.device());
  Event done;
  done.Order(source, destination);
}

// The host's side is touched by the task: pinned memory of our allocator stays until the stream has passed.
void CopyAsync(const at::Tensor& from, const at::Tensor& to, const at::Tensor& host, const NPUStream& stream) {
  if (SameBytes(from, to)) {
    NoteUse(IsNpu(to) ? to : from);
    Check(aclrtMemcpyAsync(to.mutable_data_ptr(), to.nbytes(), from.const_data_ptr(), from.nbytes(),
                           IsNpu(to) ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_HOST, stream.handle()),
          "aclrtMemcpyAsync");
    WaitIfBlocking(stream);
  } else {
    LaunchCopy(from, to);
  }
  HostMemory().record_event(host.storage().mutable_data(), host.storage().data_ptr().get_context(), stream);
}

// The runtime's own copy knows what captures of other threads forbid.
void CopyBytesNow(const at::Tensor& from, const at::Tensor& to) {
  int code;
  {
    const ReleaseGil no_gil;
    code = aclrtMemcpy(to.mutable_data_ptr(), to.nbytes(), from.const_data_ptr(), from.nbytes(),
                       IsNpu(to) ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_HOST);
  }
  Check(code, "aclrtMemcpy");
}

// A tensor of the host over memory of its own that lies like `like`, or back to back when that does not.
at::Tensor HostLike(const at::Tensor& like, at::ScalarType type) {
  const auto options = at::TensorOptions(at::kCPU).dtype(type);
  return like.is_non_overlapping_and_dense() ? at::empty_strided(like.sizes(), like.strides(), options)
                                             : at::empty(like.sizes(), options);
}

// Types and strides are converted on the host, if the device's side lies back to back.
void CopyToDeviceNow(const at::Tensor& from, const at::Tensor& to, const NPUStream& stream) {
  at::Tensor host = from;
  at::Tensor target = to;
  if (!SameBytes(from, to)) {
    host = HostLike(to, to.scalar_type());
    if (to.is_neg() || to.is_conj() || !to.is_non_overlapping_and_dense()) {
      target = EmptyStrided(host.sizes(), host.strides(), host.scalar_type(), to.device());
    }
    host.copy_(from);
  }
  stream.synchronize();
  CopyBytesNow(host, target);
  if (!target.is_same(to)) LaunchCopy(target, to);
}

void CopyToHostNow(const at::Tensor& from, const at::Tensor& to, const NPUStream& stream) {
  if (SameBytes(from, to)) {
    stream.synchronize();
    CopyBytesNow(from, to);
    return;
  }
  at::Tensor source = from;
  const at::Tensor host = HostLike(from, from.scalar_type());
  if (from.is_neg() || from.is_conj() || !from.is_non_overlapping_and_dense()) {
    source = EmptyStrided(host.sizes(), host.strides(), host.scalar_type(), from.device());
    LaunchCopy(from, source);
  }
  stream.synchronize();
  CopyBytesNow(source, host);
  to.copy_(host);
}

// Says which of both it was, pageable memory or blocking: a copy needs both to be right.
void RefuseCopyInCapture(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const bool to_device = IsNpu(to);
  const at::Tensor& host = to_device ? from : to;
  const bool is_pinned = IsPinned(host.const_data_ptr());
  std::string why = "it goes from " + from.device().str() + " to " + to.device().str() +
                    (to_device ? " (.to, .npu, torch.tensor(..., device=\"npu\"), an index that is a list)"
                               : " (.cpu, .tolist, .numpy, torch.save)");
  why += is_pinned ? ", the host's memory is pinned, but the copy is blocking (non_blocking=False)"
                   : ", the host's memory is pageable";
  if (!is_pinned && !non_blocking) why += ", and the copy is blocking (non_blocking=False)";
  why += ", so the host would have to wait for it";
  std::string next = "pass non_blocking=True";
  if (!is_pinned && to_device) {
    next =
        "copy before the capture, and give a captured tensor new values by x.copy_(new) between replays; or capture "
        "x.copy_(host, non_blocking=True) from pinned memory, host = torch.empty(..., pin_memory=True), that is kept";
  } else if (!is_pinned) {
    next =
        "read the values after the capture and a replay; or capture host.copy_(x, non_blocking=True) into pinned "
        "memory, host = torch.empty_like(x, device=\"cpu\", pin_memory=True), that was made before";
  }
  RefuseInCapture("copy_", why, next);
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (from.sizes() != to.sizes()) {
    const std::vector<int64_t> sizes = at::infer_size(to.sizes(), from.sizes());
    TORCH_CHECK(to.sizes() == sizes, "output with shape ", to.sizes(), " doesn't match the broadcast shape ",
                c10::IntArrayRef(sizes));
    return CopyFrom(from.expand(to.sizes()), to, non_blocking);
  }
  if (to.numel() == 0) return to;
  if (from.is_alias_of(to) && SameBits(from, to) && from.strides() == to.strides() &&
      from.storage_offset() == to.storage_offset()) {
    return to;
  }
  at::assert_no_internal_overlap(to);
  if (from.is_alias_of(to)) at::assert_no_partial_overlap(to, from);
  const at::AutoDispatchBelowADInplaceOrView plain;
  if (IsNpu(from) && IsNpu(to)) {
    const c10::DeviceGuard guard(to.device());
    from.device() == to.device() ? LaunchCopy(from, to) : CopyAcrossDevices(from, to);
    return to;
  }
  const at::Tensor& host = IsNpu(to) ? from : to;
  const c10::Device device = IsNpu(to) ? to.device() : from.device();
  TORCH_CHECK(host.device().is_cpu(), "there are no copies between ", device, " and ", host.device(),
              "; go by way of the CPU");
  const c10::DeviceGuard guard(device);
  EnsureContext();
  const NPUStream stream = CurrentStream(device.index());
  if (non_blocking && IsPinned(host.const_data_ptr())) {
    CopyAsync(from, to, host, stream);
    return to;
  }
  if (stream.is_capturing()) RefuseCopyInCapture(from, to, non_blocking);
  NoteSynchronization("a blocking copy");
  IsNpu(to) ? CopyToDeviceNow(from, to, stream) : CopyToHostNow(from, to, stream);
  return to;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) to.resize_(from.sizes());
  return CopyFrom(from, to, false);
}

at::Scalar LocalScalarDense(const at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  EnsureContext();
  RefuseInCapture("item()", "the host would have to wait for the value",
                  "read the value after the capture and a replay; what depends on it in the graph stays on the device: "
                  "torch.where(condition, a, b) in the place of `if`, a tensor of one element in that of a number");
  NoteSynchronization("item()");
  const at::AutoDispatchBelowADInplaceOrView plain;
  at::Tensor value = at::empty({}, at::TensorOptions(at::kCPU).dtype(self.scalar_type()));
  CurrentStream(self.device().index()).synchronize();
  int code;
  {
    const ReleaseGil no_gil;
    code = aclrtMemcpy(value.mutable_data_ptr(), value.nbytes(), self.const_data_ptr(), value.nbytes(),
                       ACL_MEMCPY_DEVICE_TO_HOST);
  }
  Check(code, "aclrtMemcpy");
  return at::_local_scalar_dense(value);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", CopyFrom);
  m.impl("_copy_from_and_resize", CopyFromAndResize);
  m.impl("_local_scalar_dense", LocalScalarDense);
}

// Tensors to be conjugated or negated come as they are: to resolve one is itself a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace
}  // namespace torch_npu
