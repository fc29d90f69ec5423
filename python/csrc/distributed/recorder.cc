// SPDX-License-Identifier: Apache-2.0
#include "distributed/recorder.h"

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace torch_npu {
namespace {

void Describe(const std::vector<at::Tensor>& tensors, std::vector<std::vector<int64_t>>& sizes,
              std::vector<std::string>& types) {
  for (const at::Tensor& tensor : tensors) {
    sizes.push_back(tensor.sizes().vec());
    types.emplace_back(c10::toString(tensor.scalar_type()));
  }
}

}  // namespace

Recorder::Recorder()
    : capacity_(static_cast<size_t>(std::max(0, c10d::getCvarInt({"TORCH_HCCL_TRACE_BUFFER_SIZE"}, 0)))) {}

Recorder& Recorder::Get() {
  static auto* const recorder = new Recorder;  // never destroyed: watchdogs may dump at the very end
  return *recorder;
}

void Recorder::Add(RecordedOperation entry, const std::vector<at::Tensor>& inputs,
                   const std::vector<at::Tensor>& outputs) {
  if (capacity_ == 0) return;
  Describe(inputs, entry.input_sizes, entry.input_types);
  Describe(outputs, entry.output_sizes, entry.output_types);
  entry.created_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::lock_guard lock(mutex_);
  entry.record_id = next_id_++;
  if (entries_.size() == capacity_) entries_.pop_front();
  entries_.push_back(std::move(entry));
}

std::vector<RecordedOperation> Recorder::Entries() const {
  const std::lock_guard lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

}  // namespace torch_npu
