// SPDX-License-Identifier: Apache-2.0
//
// base/futex.h and base/asymmetric_fence.h for programs under the explorer; in the place of their sources.
#include "base/futex.h"

#include "base/asymmetric_fence.h"
#include "base/calls.h"

namespace reprise {

bool FutexWait(std::atomic<uint32_t>& word, uint32_t seen, const Deadline& deadline) noexcept {
  const auto at = std::source_location::current();
  ::interleave::Point("futex", &word, at);
  if (word.Peek(at) != seen) return true;
  return ::interleave::Sleep("futex wait", &word, deadline ? deadline->time_since_epoch().count() : 0, at);
}

// As in the kernel, the word is only a key: it may be gone by now.
void FutexWake(std::atomic<uint32_t>& word, int count) noexcept {
  ::interleave::Point("wake", &word, std::source_location::current());
  if (::interleave::WakeArrives()) ::interleave::Wake(&word, count);
}

// All operations have one order here, so fences are only places to stop at.
const bool internal::g_frequent_is_free = true;
void RareFence() noexcept { ::interleave::Point("rare fence", nullptr, std::source_location::current()); }

// There are no calls of programs here.
void AtFirstCall(void (*)()) {}
NoCancel::NoCancel() noexcept = default;
NoCancel::~NoCancel() = default;

}  // namespace reprise
