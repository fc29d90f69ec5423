// SPDX-License-Identifier: Apache-2.0
#include "distributed/work.h"

#include <c10/util/Exception.h>

#include <thread>
#include <utility>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"

namespace torch_npu {

int64_t NowNs() noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// ---- Operation ----

Operation::Operation(std::shared_ptr<Communicator> communicator, OperationInfo info)
    : communicator_(std::move(communicator)), info_(info) {}

void Operation::MarkSubmitted(const c10::intrusive_ptr<c10::ivalue::Future>& future, bool has_outputs) {
  const NPUStream& stream = communicator_->stream();
  std::vector<NPUStream> waiting;
  {
    const std::lock_guard lock(mutex_);
    is_captured_.store(stream.is_capturing(), std::memory_order_release);
    if (is_captured() && has_outputs) {
      captured_end_ = future;
    } else {
      end_.record(stream);
    }
    submitted_ns_.store(NowNs(), std::memory_order_relaxed);
    is_submitted_.store(true, std::memory_order_release);
    waiting = std::exchange(waiting_, {});
  }
  for (const NPUStream& waiter : waiting) MakeWait(waiter);
}

void Operation::MarkFailed(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  waiting_.clear();
}

void Operation::MakeWait(const NPUStream& stream) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_submitted()) {
      waiting_.push_back(stream);
      return;
    }
  }
  if (stream == communicator_->stream()) return;
  if (captured_end_) {
    const StreamGuard guard(stream);
    captured_end_->wait();
  } else {
    end_.block(stream);
  }
}

bool Operation::IsDone() const noexcept {
  if (is_done_.load(std::memory_order_acquire)) return true;
  if (!is_submitted() || is_captured() || !IsAlive()) return false;
  try {
    const DeviceScope scope(communicator_->device());
    if (!end_.query()) return false;
    // What fails comes to its end, too; the communicator knows it before.
    if (communicator_->error() != HCCL_SUCCESS) return false;
  } catch (...) {  // of a stream that has failed
    return false;
  }
  int64_t not_seen = 0;
  (void)done_ns_.compare_exchange_strong(not_seen, NowNs());
  is_done_.store(true, std::memory_order_release);
  return true;
}

int64_t Operation::Age() const noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - called_).count();
}

std::string Operation::Describe() const {
  return c10::str("WorkHCCL(SeqNum=", info_.number, ", OpType=", c10d::opTypeToString(info_.type),
                  ", NumelIn=", info_.input_count, ", NumelOut=", info_.output_count,
                  ", Timeout(ms)=", info_.timeout.count(), ", Group=", communicator_->name(), ")");
}

std::exception_ptr Operation::error() const {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return error_;
  }
  return has_failed() ? communicator_->Failure() : nullptr;
}

bool Operation::has_failed() const noexcept {
  return !is_captured() && is_submitted() && !is_done_.load(std::memory_order_acquire) &&
         communicator_->error() != HCCL_SUCCESS;
}

void Operation::RaiseError() {
  std::exception_ptr known;
  {
    const std::lock_guard lock(mutex_);
    known = error_;
  }
  const bool is_lost = !is_captured() && communicator_->error() != HCCL_SUCCESS;
  if (!known && !is_lost) return;
  was_told_.store(true);
  if (!known) return communicator_->RaiseError();
  if (is_lost) (void)communicator_->TakeStreamError();  // which says the same
  std::rethrow_exception(known);
}

// ---- HcclWork ----

HcclWork::HcclWork(int rank, std::shared_ptr<Operation> operation, std::vector<at::Tensor> outputs, bool blocks,
                   bool is_barrier)
    : Work(rank, operation->info().type),
      operation_(std::move(operation)),
      outputs_(std::move(outputs)),
      blocks_(blocks),
      is_barrier_(is_barrier),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()),
          std::vector<c10::Device>{operation_->communicator()->stream().device()})) {}

void HcclWork::MarkSubmitted() {
  const StreamGuard guard(operation_->communicator()->stream());
  future_->markCompleted(c10::IValue(outputs_));
  operation_->MarkSubmitted(future_, !outputs_.empty());
}

bool HcclWork::isCompleted() { return operation_->error() != nullptr || operation_->IsDone(); }
bool HcclWork::isSuccess() const { return operation_->error() == nullptr && operation_->IsDone(); }
std::exception_ptr HcclWork::exception() const { return operation_->error(); }

void HcclWork::synchronize() {
  operation_->RaiseError();
  const NPUStream current = CurrentStream(operation_->communicator()->device());
  operation_->MakeWait(current);
  stashed_.clear();
}

void HcclWork::WaitOnHost(std::chrono::milliseconds timeout) {
  const ReleaseGil no_gil;
  if (timeout == kNoTimeout) timeout = operation_->info().timeout;
  const auto begin = std::chrono::steady_clock::now();
  while (!operation_->IsDone()) {
    operation_->RaiseError();
    if (timeout.count() > 0 && std::chrono::steady_clock::now() - begin > timeout) {
      const auto error = std::make_exception_ptr(c10::DistBackendError(
          {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
          c10::str(operation_->Describe(), " timed out in blocking wait (TORCH_HCCL_BLOCKING_WAIT=1) after ",
                   timeout.count(), " milliseconds")));
      operation_->MarkFailed(error);
      operation_->communicator()->Abort();
      std::rethrow_exception(error);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool HcclWork::wait(std::chrono::milliseconds timeout) {
  synchronize();
  if (!operation_->is_submitted() || operation_->is_captured()) return true;
  if (blocks_) {
    WaitOnHost(timeout);
  } else if (is_barrier_) {
    operation_->communicator()->stream().synchronize();
  }
  return true;
}

// ---- CallGroup ----

namespace {

struct OpenGroup {
  int depth = 0;
  std::vector<CallGroup::Call> calls;
};

OpenGroup& OpenGroupOfThread() {
  static thread_local OpenGroup group;
  return group;
}

void SubmitTogether(const std::vector<CallGroup::Call>& calls) {
  CheckHccl(HcclGroupStart(), "HcclGroupStart");
  std::exception_ptr error;
  for (const CallGroup::Call& call : calls) {
    try {
      call.submit();
    } catch (...) {
      error = std::current_exception();
      break;
    }
  }
  const HcclResult code = HcclGroupEnd();
  if (error) std::rethrow_exception(error);
  CheckHccl(code, "HcclGroupEnd");
}

}  // namespace

bool CallGroup::IsOpen() noexcept { return OpenGroupOfThread().depth != 0; }

void CallGroup::Start() noexcept { ++OpenGroupOfThread().depth; }

void CallGroup::End() {
  OpenGroup& group = OpenGroupOfThread();
  TORCH_CHECK(group.depth > 0, "no group of calls has begun on this thread; call _group_start() first");
  if (--group.depth != 0) return;
  const std::vector<Call> calls = std::exchange(group.calls, {});
  if (calls.empty()) return;
  try {
    SubmitTogether(calls);
  } catch (...) {
    for (const Call& call : calls) call.failed(std::current_exception());
    throw;
  }
  for (const Call& call : calls) call.after();
}

void CallGroup::Add(Call call) {
  OpenGroup& group = OpenGroupOfThread();
  if (group.depth == 0) {
    call.submit();
    call.after();
  } else {
    group.calls.push_back(std::move(call));
  }
}

}  // namespace torch_npu
