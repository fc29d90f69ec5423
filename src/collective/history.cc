// SPDX-License-Identifier: Apache-2.0
#include "collective/history.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "collective/operation.h"

namespace reprise::collective {
namespace {

constexpr size_t kKept = 2000;
constexpr uint64_t kInMessage = 5;

}  // namespace

void History::Add(const Descriptor& descriptor, const SlotKey& key, bool is_by_graph) {
  MutexLock lock(mutex_);
  const Entry entry{descriptor, key, is_by_graph};
  if (ring_.size() < kKept) {
    ring_.push_back(entry);
  } else {
    ring_[count_ % kKept] = entry;
  }
  ++count_;
}

std::string History::Tell(const std::string& communicator) const {
  MutexLock lock(mutex_);
  if (count_ == 0) return {};
  const uint64_t first = count_ - ring_.size();
  REPRISE_LOG(kError, "HCCL", "TaskExecStage: {} has begun {} operators; the last {}:", communicator, count_,
              ring_.size());
  std::string text;
  for (uint64_t i = first; i < count_; ++i) {
    const Entry& entry = ring_[i % kKept];
    const std::string line = fmt::format("seq {}: {}{}", SpokenNumber(entry.key), DescribeCall(entry.descriptor),
                                         entry.is_by_graph ? ", by a graph" : "");
    REPRISE_LOG(kError, "HCCL", "TaskExecStage: {}", line);
    if (i + kInMessage >= count_) text += (text.empty() ? "" : "; ") + line;
  }
  return text;
}

}  // namespace reprise::collective
