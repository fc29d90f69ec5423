// SPDX-License-Identifier: Apache-2.0
//
// Dumps of the flight recorder into files: when a pipe asks for one (TORCH_HCCL_DEBUG_INFO_PIPE_FILE), when an operator
// has timed out, here or on another rank (TORCH_HCCL_DUMP_ON_TIMEOUT). One thread of the process, and only where one of
// the two is asked for.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

namespace torch_npu {

class Monitor {
 public:
  /// Of the first group of the process, which has all ranks; later calls do nothing. `rank` is behind the name of
  /// files.
  static void Start(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);
  /// An operator has timed out: writes the dump, lets the other ranks write theirs, and waits until they have
  /// (TORCH_HCCL_WAIT_TIMEOUT_DUMP_MILSEC at most). Nothing unless dumps are asked for.
  static void DumpAll() noexcept;
  /// Ends the thread and removes the pipe. Idempotent.
  static void Stop() noexcept;
};

}  // namespace torch_npu
