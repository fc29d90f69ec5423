// SPDX-License-Identifier: Apache-2.0
//
// An operator that was called: what torch.distributed holds of it, and what the watchdog does.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/stream.h"
#include "distributed/communicator.h"

namespace torch_npu {

/// Nanoseconds since 1970.
int64_t NowNs() noexcept;

struct OperationInfo {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* name = "";  // HcclAllreduce, …
  uint64_t number = 0;    // in its group: collectives and transfers have numbers of their own
  bool is_transfer = false;
  std::chrono::milliseconds timeout{0};  // 0: none
  int64_t input_count = 0;               // elements
  int64_t output_count = 0;
};

/// Shared by the Work of an operator and the watchdog of its group. Holds no tensor.
class Operation {
 public:
  Operation(std::shared_ptr<Communicator> communicator, OperationInfo info);

  const OperationInfo& info() const noexcept { return info_; }
  const std::shared_ptr<Communicator>& communicator() const noexcept { return communicator_; }
  bool is_captured() const noexcept { return is_captured_.load(std::memory_order_acquire); }
  bool is_submitted() const noexcept { return is_submitted_.load(std::memory_order_acquire); }

  /// Everything of it is in the stream: records its end. Streams that wait already wait for that. `future` is
  /// completed; in a capture its event is the end, since the last event of a stream is the one that has to be waited
  /// for.
  void MarkSubmitted(const c10::intrusive_ptr<c10::ivalue::Future>& future, bool has_outputs);
  /// It will never be submitted.
  void MarkFailed(const std::exception_ptr& error);
  /// `stream` waits for its end; when it is not submitted yet, as soon as it is.
  void MakeWait(const NPUStream& stream);
  /// Whether the device has done it. Throws nothing; false while it is part of a capture.
  bool IsDone() const noexcept;
  /// From its call, in milliseconds.
  int64_t Age() const noexcept;
  /// When it was submitted, and when somebody first saw that it was done, since 1970; 0: not yet.
  int64_t submitted_ns() const noexcept { return submitted_ns_.load(std::memory_order_relaxed); }
  int64_t done_ns() const noexcept { return done_ns_.load(std::memory_order_relaxed); }
  /// WorkHCCL(SeqNum=…, OpType=…, …)
  std::string Describe() const;

  /// What happened to it, or to its communicator before it was done; null: nothing.
  std::exception_ptr error() const;
  /// Throws what happened to it, or to its communicator.
  void RaiseError();
  /// Whether the program was told of the failure.
  bool was_told() const noexcept { return was_told_.load(); }

 private:
  bool has_failed() const noexcept;

  const std::shared_ptr<Communicator> communicator_;
  const OperationInfo info_;
  const std::chrono::steady_clock::time_point called_ = std::chrono::steady_clock::now();
  std::atomic<bool> is_submitted_{false};
  std::atomic<bool> is_captured_{false};
  std::atomic<bool> was_told_{false};
  mutable std::atomic<bool> is_done_{false};
  std::atomic<int64_t> submitted_ns_{0};
  mutable std::atomic<int64_t> done_ns_{0};
  mutable std::mutex mutex_;
  mutable c10::Event end_{c10::kPrivateUse1};
  c10::intrusive_ptr<c10::ivalue::Future> captured_end_;
  std::vector<NPUStream> waiting_;
  std::exception_ptr error_;
};

class HcclWork final : public c10d::Work {
 public:
  /// `blocks`: wait() returns when the operator has ended, or fails after its time limit.
  HcclWork(int rank, std::shared_ptr<Operation> operation, std::vector<at::Tensor> outputs, bool blocks,
           bool is_barrier);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override { synchronize(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return operation_->info().number; }

  const std::shared_ptr<Operation>& operation() const noexcept { return operation_; }
  /// Keeps tensors until somebody has waited.
  void Stash(std::vector<at::Tensor> tensors) { stashed_ = std::move(tensors); }
  /// After the operator was submitted: completes the future, on its stream, and marks its end.
  void MarkSubmitted();

 private:
  void WaitOnHost(std::chrono::milliseconds timeout);

  const std::shared_ptr<Operation> operation_;
  const std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> stashed_;
  const bool blocks_;
  const bool is_barrier_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Operators that are called on this thread between Start and End are submitted together (HcclGroupStart, HcclGroupEnd)
/// at the end of the outermost group.
class CallGroup {
 public:
  struct Call {
    std::function<void()> submit;
    std::function<void()> after;  // when everything of the group is submitted
    std::function<void(const std::exception_ptr&)> failed;
  };

  static bool IsOpen() noexcept;
  static void Start() noexcept;
  /// When a call fails, `failed` of all is called, and the error thrown.
  static void End();
  /// Now, or at the end of the group.
  static void Add(Call call);
};

}  // namespace torch_npu
