// SPDX-License-Identifier: Apache-2.0
//
// The flight recorder: the last operators of all groups of the process, for dumps.
#pragma once

#include <ATen/core/ivalue.h>
#include <reprise/memory_types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "distributed/work.h"

namespace torch_npu {

struct RecordedOperation {
  uint64_t record_id = 0;
  uint64_t group_id = 0;
  std::string group_name, group_description;
  std::vector<int64_t> ranks;  // of its group, as numbers of the whole program
  int rank = 0;                // of its group
  int peer = -1;               // of a transfer
  uint64_t operator_id = 0;    // of its group, all kinds counted together
  int64_t created_ns = 0;      // since 1970
  std::vector<std::vector<int64_t>> input_sizes, output_sizes;
  std::vector<std::string> input_types, output_types;
  std::vector<reprise::Frame> frames;  // of the program, innermost first
  std::shared_ptr<Operation> operation;
};

struct TraceWishes {
  bool operators = true;
  bool frames = true;
  bool only_active = false;
};

class Recorder {
 public:
  static Recorder& Get();

  /// TORCH_HCCL_TRACE_BUFFER_SIZE; 0: records nothing.
  size_t capacity() const noexcept { return capacity_; }
  void Add(RecordedOperation entry, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs);
  /// What dumps hold, dictionaries and lists. Takes no GIL.
  c10::IValue Trace(const TraceWishes& wishes) const;
  /// What Trace gives, as bytes of Python's pickle.
  std::string Pickled(const TraceWishes& wishes) const;

 private:
  Recorder();
  /// Oldest first.
  std::vector<RecordedOperation> Entries() const;

  const size_t capacity_;
  mutable std::mutex mutex_;
  uint64_t next_id_ = 0;
  std::deque<RecordedOperation> entries_;
};

}  // namespace torch_npu
