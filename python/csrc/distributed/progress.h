// SPDX-License-Identifier: Apache-2.0
//
// TORCH_HCCL_DESYNC_DEBUG=1: each rank notes in the store of its group which collective it has called last, so that a
// time-out can say who lags.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace torch_npu {

class Progress {
 public:
  /// `ranks`: how those of the group are called in reports.
  Progress(const c10::intrusive_ptr<c10d::Store>& store, int rank, std::vector<int64_t> ranks);

  /// This rank has called its `number`-th collective.
  void Note(uint64_t number, const std::string& what) noexcept;
  /// Sentences about what all ranks have called.
  std::string Report() noexcept;

 private:
  struct State {
    uint64_t number = 0;  // 0: none
    std::string what;
  };
  std::vector<State> Read();
  std::string KeyOf(size_t rank) const;

  c10::intrusive_ptr<c10d::Store> store_;  // null: cannot be used
  const size_t rank_;
  const std::vector<int64_t> ranks_;
  std::atomic<bool> works_{true};
};

}  // namespace torch_npu
