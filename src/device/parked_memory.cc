// SPDX-License-Identifier: Apache-2.0
#include "device/parked_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/call_trace.h"
#include "base/log.h"
#include "base/mutex.h"

namespace reprise::device {
namespace {

// How many parked ranges a task that ends is compared with: a diagnosis must not cost more than the work.
constexpr size_t kMostCompared = 256;

bool IsCharged(const MemoryRange& range) {
  return range.kind == MemoryKind::kDevice && range.origin != MemoryOrigin::kImported;
}

}  // namespace

constinit std::atomic<uint32_t> ParkedMemory::watched_{0};

ParkedMemory& ParkedMemory::Get() {
  static auto* const parked = new ParkedMemory;  // leaked, as the registry
  return *parked;
}

bool ParkedMemory::InFlight() const noexcept {
  const Streams* const streams = streams_.load(std::memory_order_acquire);
  return streams != nullptr && streams->any();
}

void ParkedMemory::Account(const Entry& entry, bool comes) noexcept {
  const uint64_t sign = comes ? 1 : UINT64_MAX;  // or -1
  count_.fetch_add(sign, std::memory_order_release);
  if (entry.is_watched) watched_.fetch_add(static_cast<uint32_t>(sign), std::memory_order_relaxed);
  if (IsCharged(entry.range)) {
    bytes_[static_cast<size_t>(entry.range.device)].fetch_add(sign * entry.range.bytes, std::memory_order_release);
  }
}

void ParkedMemory::Park(const MemoryRange& range, Release release) noexcept {
  try {
    const std::string call = DescribeCall();
    std::list<Entry> fresh;
    fresh.push_back({range,
                     release,
                     {},
                     fmt::format("thread {}{}", gettid(), call.empty() ? "" : " (" + call + ")"),
                     LogEnabled(LogLevel::kWarning, "RUNTIME")});
    UniqueLock lock(mutex_);
    // Looked up under the lock, so that the list is in the order of what its entries wait for.
    if (const Streams* const streams = streams_.load(std::memory_order_acquire)) streams->busy(fresh.front().tickets);
    if (!fresh.front().tickets.empty()) {
      Account(fresh.front(), true);
      entries_.splice(entries_.end(), fresh);
      return;
    }
    lock.unlock();
    release(range);
  } catch (const std::bad_alloc&) {
    // Nobody knows when it may go.
  }
}

void ParkedMemory::SweepNow() noexcept {
  std::list<Entry> passed;
  {
    MutexLock lock(mutex_);
    const Streams* const streams = streams_.load(std::memory_order_acquire);
    while (!entries_.empty()) {
      Entry& first = entries_.front();
      std::erase_if(first.tickets, [&](const Ticket& ticket) { return streams->passed(ticket); });
      if (!first.tickets.empty()) break;
      passed.splice(passed.end(), entries_, entries_.begin());
    }
  }
  for (const Entry& entry : passed) {
    entry.release(entry.range);
    released_.fetch_add(1, std::memory_order_release);
    Account(entry, false);
  }
}

void ParkedMemory::Forget(const void* stream) noexcept {
  MutexLock lock(mutex_);
  for (Entry& entry : entries_) {
    std::erase_if(entry.tickets, [stream](const Ticket& ticket) { return ticket.stream == stream; });
  }
}

bool ParkedMemory::Oldest(Ticket& ticket) {
  Sweep();
  MutexLock lock(mutex_);
  // Empty tickets: its last stream has just gone, and the next sweep takes it.
  if (entries_.empty() || entries_.front().tickets.empty()) return false;
  ticket = entries_.front().tickets.front();
  streams_.load(std::memory_order_acquire)->visit(ticket.stream);
  return true;
}

std::string ParkedMemory::Explain(uintptr_t address) const {
  if (count_.load(std::memory_order_acquire) == 0) return {};
  MutexLock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (address - entry.range.begin >= entry.range.bytes) continue;
    return fmt::format(
        "points {} bytes into {}, which {} freed; it is kept until the work has ended that had been "
        "submitted before",
        address - entry.range.begin, DescribeRange(entry.range), entry.who);
  }
  return {};
}

void ParkedMemory::NoteUse(std::span<const uintptr_t> addresses, const std::string& task) {
  std::vector<std::string> lines;
  {
    MutexLock lock(mutex_);
    size_t compared = 0;
    for (Entry& entry : entries_) {
      if (compared++ == kMostCompared) break;
      if (entry.told || !entry.is_watched) continue;
      const auto used = std::find_if(addresses.begin(), addresses.end(), [&](uintptr_t address) {
        return address - entry.range.begin < entry.range.bytes;
      });
      if (used == addresses.end()) continue;
      entry.told = true;
      lines.push_back(
          fmt::format("{} used {:#x} in {}, which {} had freed while it was in use; the memory was kept "
                      "for it. Free memory only when the work that uses it has ended",
                      task, *used, DescribeRange(entry.range), entry.who));
    }
  }
  for (const std::string& line : lines) REPRISE_LOG(kWarning, "RUNTIME", "{}", line);
}

}  // namespace reprise::device
