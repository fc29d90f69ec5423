// SPDX-License-Identifier: Apache-2.0
#include "distributed/communicator.h"

#include <c10/util/Exception.h>
#include <reprise/stream.h>

#include <utility>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"

namespace torch_npu {

void CheckHccl(HcclResult code, const char* function) {
  if (code != HCCL_SUCCESS) [[unlikely]]
    Check(static_cast<int>(code), function);
}

HcclDataType HcclTypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
    case at::kByte: return HCCL_DATA_TYPE_UINT8;
    case at::kChar: return HCCL_DATA_TYPE_INT8;
    case at::kShort: return HCCL_DATA_TYPE_INT16;
    case at::kInt: return HCCL_DATA_TYPE_INT32;
    case at::kLong: return HCCL_DATA_TYPE_INT64;
    case at::kUInt16: return HCCL_DATA_TYPE_UINT16;
    case at::kUInt32: return HCCL_DATA_TYPE_UINT32;
    case at::kUInt64: return HCCL_DATA_TYPE_UINT64;
    case at::kHalf: return HCCL_DATA_TYPE_FP16;
    case at::kBFloat16: return HCCL_DATA_TYPE_BFP16;
    case at::kFloat: return HCCL_DATA_TYPE_FP32;
    case at::kDouble: return HCCL_DATA_TYPE_FP64;
    case at::kFloat8_e4m3fn: return HCCL_DATA_TYPE_FP8E4M3;
    case at::kFloat8_e5m2: return HCCL_DATA_TYPE_FP8E5M2;
    default:
      TORCH_CHECK(false, "Unsupported data type for HCCL process group: ", tensor.scalar_type(),
                  "; convert the tensor first, complex ones with torch.view_as_real");
  }
}

HcclReduceOp HcclReductionOf(const c10d::ReduceOp& reduction, const at::Tensor& tensor, const char* what) {
  const auto type = tensor.scalar_type();
  const HcclDataType hccl_type = HcclTypeOf(tensor);
  TORCH_CHECK(hccl_type != HCCL_DATA_TYPE_FP8E4M3 && hccl_type != HCCL_DATA_TYPE_FP8E5M2, "HCCL ", what,
              ": Unsupported data type ", type, "; convert the tensor to a wider type to reduce it");
  switch (reduction.op_) {
    case c10d::ReduceOp::SUM: return type == at::kBool ? HCCL_REDUCE_MAX : HCCL_REDUCE_SUM;
    case c10d::ReduceOp::AVG: return HCCL_REDUCE_SUM;
    case c10d::ReduceOp::PREMUL_SUM:
      TORCH_CHECK(type == at::kHalf || type == at::kFloat || type == at::kBFloat16 || type == at::kDouble,
                  "Cannot use ReduceOp.PREMUL_SUM with ", type, "; use half, bfloat16, float or double");
      return HCCL_REDUCE_SUM;
    case c10d::ReduceOp::PRODUCT: return HCCL_REDUCE_PROD;
    case c10d::ReduceOp::MIN: return HCCL_REDUCE_MIN;
    case c10d::ReduceOp::MAX: return HCCL_REDUCE_MAX;
    case c10d::ReduceOp::BAND:
      TORCH_CHECK(false, "Cannot use ReduceOp.BAND with HCCL; gather the tensors and combine them");
    case c10d::ReduceOp::BOR:
      TORCH_CHECK(false, "Cannot use ReduceOp.BOR with HCCL; gather the tensors and combine them");
    case c10d::ReduceOp::BXOR:
      TORCH_CHECK(false, "Cannot use ReduceOp.BXOR with HCCL; gather the tensors and combine them");
    default: TORCH_CHECK(false, "Cannot use this ReduceOp with HCCL; use SUM, AVG, PRODUCT, MIN or MAX");
  }
}

// ---- HcclHandle ----

HcclComm HcclHandle::Get() const noexcept {
  const std::lock_guard lock(mutex_);
  return handle_;
}

HcclResult HcclHandle::error() const noexcept {
  const std::lock_guard lock(mutex_);
  HcclResult error = HCCL_SUCCESS;
  if (handle_ != nullptr && IsAlive()) (void)HcclGetCommAsyncError(handle_, &error);
  return error;
}

void HcclHandle::Suspend() const noexcept {
  const std::lock_guard lock(mutex_);
  if (handle_ != nullptr && IsAlive()) (void)HcclCommSuspend(handle_);
}

void HcclHandle::Destroy() noexcept {
  HcclComm live = nullptr;
  {
    const std::lock_guard lock(mutex_);
    live = std::exchange(handle_, nullptr);
  }
  if (live == nullptr || !IsAlive()) return;
  if (HcclCommDestroy(live) == HCCL_E_AGAIN) {  // an operator is under way
    (void)HcclCommSuspend(live);
    (void)HcclCommDestroy(live);
  }
}

// ---- Communicator ----

Communicator::Communicator(std::shared_ptr<HcclHandle> handle, const NPUStream& stream, uint32_t rank, uint32_t size,
                           std::string name)
    : stream_(stream), rank_(rank), size_(size), name_(std::move(name)), handle_(std::move(handle)) {}

std::shared_ptr<Communicator> Communicator::On(const NPUStream& stream) const {
  return std::make_shared<Communicator>(handle_, stream, rank_, size_, name_);
}

HcclComm Communicator::handle() const {
  HcclComm const live = handle_->Get();
  TORCH_CHECK(live != nullptr, "the HCCL communicator ", name_,
              " was destroyed or aborted; make a new process group, or call reinit_process_group");
  return live;
}

void Communicator::RaiseError() const {
  if (error() == HCCL_SUCCESS) [[likely]]
    return;
  Check(TakeStreamError(), "aclrtSynchronizeStream");
  RaiseFailure();
}

void Communicator::RaiseFailure() const {
  // The stream may have told its error to somebody else; the communicator keeps the words.
  Check(error(), "an operator of the communicator");  // error() leaves them to Check
}

std::exception_ptr Communicator::Failure() const {
  try {
    RaiseFailure();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

bool Communicator::HasStreamError() const {
  return Guarded([this] { return reprise::PendingError(stream_.handle()).has_value(); });
}

int Communicator::TakeStreamError() const {
  constexpr int kMostMilliseconds = 2000;
  const DeviceScope scope(device());
  const ReleaseGil no_gil;
  return aclrtSynchronizeStreamWithTimeout(stream_.handle(), kMostMilliseconds);
}

void Communicator::Resume() {
  HcclComm const live = handle();
  const DeviceScope scope(device());
  const ReleaseGil no_gil;
  CheckHccl(HcclCommResume(live), "HcclCommResume");
}

void Communicator::Settle() noexcept {
  if (!IsAlive() || handle_->Get() == nullptr) return;
  try {
    const ReleaseGil no_gil;
    const DeviceScope scope(device());
    // Operators that are under way may need this rank; those that wait for another one must not keep it.
    constexpr int kMostMilliseconds = 2000;
    if (!stream_.is_capturing()) (void)aclrtSynchronizeStreamWithTimeout(stream_.handle(), kMostMilliseconds);
  } catch (...) {  // the device is gone, and the communicator with it
  }
}

}  // namespace torch_npu
