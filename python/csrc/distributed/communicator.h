// SPDX-License-Identifier: Apache-2.0
//
// A communicator of libhccl on one device, with the stream that its operators run on.
#pragma once

#include <ATen/core/Tensor.h>
#include <hccl/hccl.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "device/stream.h"

namespace torch_npu {

/// Throws NpuError with the words of the failed call unless `code` is 0.
void CheckHccl(HcclResult code, const char* function);

/// Throws for types that no operator moves.
HcclDataType HcclTypeOf(const at::Tensor& tensor);
/// The reduction that the library does; throws for those that it does not know. AVG and PREMUL_SUM are sums. `what`:
/// the operator, for the message.
HcclReduceOp HcclReductionOf(const c10d::ReduceOp& reduction, const at::Tensor& tensor, const char* what);

/// A communicator of the library, which several streams may use; destroyed once.
class HcclHandle {
 public:
  explicit HcclHandle(HcclComm handle) : handle_(handle) {}
  ~HcclHandle() { Destroy(); }
  HcclHandle(const HcclHandle&) = delete;
  HcclHandle& operator=(const HcclHandle&) = delete;

  /// Null when it was destroyed.
  HcclComm Get() const noexcept;
  HcclResult error() const noexcept;
  void Suspend() const noexcept;
  void Destroy() noexcept;

 private:
  mutable std::mutex mutex_;
  HcclComm handle_;
};

class Communicator {
 public:
  Communicator(std::shared_ptr<HcclHandle> handle, const NPUStream& stream, uint32_t rank, uint32_t size,
               std::string name);
  ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// The same communicator with another stream.
  std::shared_ptr<Communicator> On(const NPUStream& stream) const;

  /// Throws when it was destroyed.
  HcclComm handle() const;
  const NPUStream& stream() const noexcept { return stream_; }
  c10::DeviceIndex device() const noexcept { return stream_.device_index(); }
  uint32_t rank() const noexcept { return rank_; }
  uint32_t size() const noexcept { return size_; }
  const std::string& name() const noexcept { return name_; }

  /// What an operator has left behind: 0, or a HcclResult, whose words aclGetRecentErrMsg then has.
  HcclResult error() const noexcept { return handle_->error(); }
  /// Throws what the failed operator says when there is an error; the next synchronisation says it no more.
  void RaiseError() const;
  /// What RaiseError would throw; the next synchronisation says it all the same.
  std::exception_ptr Failure() const;
  /// Whether its stream holds an error that nobody was told of yet.
  bool HasStreamError() const;
  /// The number of that error, which counts as told; 0: none. Waits a moment for the failed operator to leave the
  /// stream.
  int TakeStreamError() const;

  /// Ends operators that wait, and refuses new ones: those of other ranks fail.
  void Abort() noexcept { handle_->Suspend(); }
  /// Makes an aborted or failed communicator usable again; all ranks call it.
  void Resume();
  /// Waits a moment for its stream.
  void Settle() noexcept;
  /// For all its streams. Idempotent.
  void Destroy() noexcept { handle_->Destroy(); }

 private:
  void RaiseFailure() const;

  NPUStream stream_;
  uint32_t rank_;
  uint32_t size_;
  std::string name_;
  std::shared_ptr<HcclHandle> handle_;
};

}  // namespace torch_npu
