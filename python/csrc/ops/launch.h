// SPDX-License-Identifier: Apache-2.0
//
// Work of operators on its way to the current stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>
#include <reprise/operation.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/stream.h"

namespace torch_npu {

/// The memory that an operation touches, all of it (reprise/operands.h). Of a tensor its whole storage counts: some
/// kernels read what lies between the elements of a view. Tensors on the host are left out.
class Touched {
 public:
  Touched& Read(const at::Tensor& tensor) { return Add(tensor, REPRISE_ACCESS_READ); }
  Touched& Write(const at::Tensor& tensor) { return Add(tensor, REPRISE_ACCESS_READ_WRITE); }
  /// One that holds nothing yet.
  Touched& Make(const at::Tensor& tensor) { return Add(tensor, REPRISE_ACCESS_WRITE); }
  std::vector<RepriseOperand> operands() const { return {operands_.begin(), operands_.end()}; }

 private:
  Touched& Add(const at::Tensor& tensor, uint32_t access);

  c10::SmallVector<RepriseOperand, 4> operands_;
};

/// Queues it on the calling thread's current stream of its current device. `generator`: for operations that draw.
/// `touched`: what it tells when it is captured; null: nothing.
void Launch(std::unique_ptr<reprise::Operation> operation, reprise::Generator* generator = nullptr,
            Touched* touched = nullptr);

/// Queues a function, which runs within a KernelScope. It holds no tensors, only aliases.
void Launch(const char* name, std::function<void()> work, Touched* touched = nullptr);
void LaunchRandom(const char* name, reprise::Generator& generator, std::function<void(uint64_t seed)> work);

/// After work was queued: waits for it when ASCEND_LAUNCH_BLOCKING=1, unless the stream is being captured.
void WaitIfBlocking(const NPUStream& stream);

/// Where the current call was made, if anybody is going to ask: inside captures, unless REPRISE_TORCH_STACKS=0; with
/// REPRISE_TORCH_STACKS=1 always.
std::vector<reprise::Frame> StackOfLaunch();
/// The same for callers who know whether the current stream is being captured.
std::vector<reprise::Frame> StackOfLaunch(bool is_captured);

/// "float32[2,3], float32[3] -> float32[2,3]": the tensors in the arguments, and the results. For dumps.
std::string ShapesText(c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<at::Tensor> results);

/// ASCEND_LAUNCH_BLOCKING=1: each launch outside of captures waits for its end.
bool IsBlocking();

/// Throws when the current stream is being captured: `what` (an operator) would have to wait, because of `why`; `next`:
/// what to do instead.
void RefuseInCapture(const std::string& what, const std::string& why, const std::string& next);

}  // namespace torch_npu
