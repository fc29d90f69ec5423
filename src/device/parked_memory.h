// SPDX-License-Identifier: Apache-2.0
//
// Memory that was freed while streams had work. A kernel that still runs may touch it, so it is parked: it goes back,
// and its address may be given out again, when every stream has passed what had been submitted before the free.
//
//     Free ──nothing in flight──► released at once
//          └─streams have work──► parked with a ticket for each of them ──Sweep: all are passed──► released
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "device/memory.h"

namespace reprise::device {

/// A stream, and how many of its tasks must have ended.
struct Ticket {
  void* stream;
  uint64_t until;
};

/// Threads: thread-safe. Rank of the lock: below that of the registry and of virtual memory, above that of the table of
/// streams; releases run without it.
class ParkedMemory {
 public:
  static ParkedMemory& Get();

  /// What the layer of streams tells.
  struct Streams {
    bool (*any)();                               ///< whether any stream of the process has work
    void (*busy)(std::vector<Ticket>& tickets);  ///< adds one for each that has
    bool (*passed)(const Ticket& ticket);
    void (*visit)(void* stream);  ///< the stream stays until whoever asked lets go of it
  };
  /// Called before the first stream is used, with one and the same table each time.
  void SetStreams(const Streams& streams) noexcept { streams_.store(&streams, std::memory_order_release); }

  /// Whether any stream has work now.
  bool InFlight() const noexcept;

  using Release = void (*)(const MemoryRange& range);
  /// Calls `release` when everything that is in flight has ended; now, if that is nothing. A device stays charged until
  /// `release` says otherwise. Without memory to remember the range it stays for ever.
  void Park(const MemoryRange& range, Release release) noexcept;
  /// Releases what can be released. Costs one load when nothing is parked.
  void Sweep() noexcept {
    if (count_.load(std::memory_order_acquire) != 0) [[unlikely]]
      SweepNow();
  }
  /// The stream is idle and is being destroyed: called before its memory is freed.
  void Forget(const void* stream) noexcept;

  /// A ticket that the oldest parked memory waits for; its stream was visited. False when there is none.
  bool Oldest(Ticket& ticket);
  /// Parked bytes that the device is still charged for. A thread that reads 0 after a release sees that release in
  /// released().
  uint64_t bytes(int device) const { return bytes_[static_cast<size_t>(device)].load(std::memory_order_acquire); }
  /// How many ranges have been released so far; a range counts after its bytes have left bytes().
  uint64_t released() const { return released_.load(std::memory_order_acquire); }

  /// "was freed by thread 7 and is kept until …" for an address that is parked; else empty.
  std::string Explain(uintptr_t address) const;

  /// Whether memory is parked and the log takes warnings: then each task that ends tells NoteUse which memory it has
  /// touched. Asked for every task, hence one load.
  static bool IsWatched() noexcept { return watched_.load(std::memory_order_relaxed) != 0; }
  /// Warns when one of the addresses is parked; once for each parked range.
  void NoteUse(std::span<const uintptr_t> addresses, const std::string& task);

 private:
  struct Entry {
    MemoryRange range;
    Release release;
    std::vector<Ticket> tickets;
    std::string who;  // freed it
    bool is_watched;
    bool told = false;
  };

  ParkedMemory() = default;
  void SweepNow() noexcept;
  void Account(const Entry& entry, bool comes) noexcept;

  static constinit std::atomic<uint32_t> watched_;
  std::atomic<const Streams*> streams_{nullptr};
  mutable Mutex mutex_;
  // In the order of frees. A later entry waits for everything that an earlier one waits for, so the first entry is
  // released first.
  std::list<Entry> entries_ REPRISE_GUARDED_BY(mutex_);
  std::atomic<uint64_t> count_{0};
  std::atomic<uint64_t> released_{0};
  std::array<std::atomic<uint64_t>, kMaxDevices> bytes_{};
};

}  // namespace reprise::device
