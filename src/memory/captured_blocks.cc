// SPDX-License-Identifier: Apache-2.0
#include "memory/captured_blocks.h"

#include <iterator>
#include <new>
#include <utility>

namespace reprise::memory {
namespace {

constexpr uint64_t kLeastBytes = 16 << 10;  // of what is told: smaller results cost nothing

}  // namespace

/// The first one that ends behind the address.
CapturedBlocks::Lives::iterator CapturedBlocks::FirstBehind(Lives& lives, uintptr_t address) {
  const auto next = lives.upper_bound(address);
  if (next == lives.begin()) return next;
  const auto last = std::prev(next);
  return last->second.end > address ? last : next;
}

void CapturedBlocks::NoteGiven(const CaptureMoment& now, const char* address, uint64_t bytes,
                               const void* among) noexcept {
  if (now.capture == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = begin + bytes;
  try {
    Log& log = logs_[now.capture];
    for (auto it = log.freed.begin(); it != log.freed.end();) {
      const auto& [freed, life] = *it;
      const bool lies_there = freed < end && begin < life.end;
      const bool would_fit = life.among == among && life.end - freed >= bytes;
      if (!lies_there && !would_fit) {
        ++it;
        continue;
      }
      log.reused.push_back({freed, life.end, life.first, life.behind});
      it = log.freed.erase(it);
    }
    // Nobody has told that these were freed.
    for (auto it = FirstBehind(log.live, begin); it != log.live.end() && it->first < end;) it = log.live.erase(it);
    if (bytes >= kLeastBytes) log.live[begin] = {end, now.tasks, now.tasks, nullptr};
  } catch (const std::bad_alloc&) {
  }
}

void CapturedBlocks::NoteFreed(const CaptureMoment& now, const char* address, const void* among) noexcept {
  const auto log = logs_.find(now.capture);
  if (log == logs_.end()) return;
  auto life = log->second.live.extract(reinterpret_cast<uintptr_t>(address));
  if (life.empty() || life.mapped().first == now.tasks) return;
  life.mapped().behind = now.tasks;
  life.mapped().among = among;
  log->second.freed.insert(std::move(life));
}

std::vector<ReusedBlock> CapturedBlocks::Take(uint64_t capture) {
  const auto log = logs_.find(capture);
  if (log == logs_.end()) return {};
  std::vector<ReusedBlock> reused = std::move(log->second.reused);
  logs_.erase(log);
  return reused;
}

}  // namespace reprise::memory
