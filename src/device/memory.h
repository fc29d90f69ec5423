// SPDX-License-Identifier: Apache-2.0
//
// Memory of the CPU device: ordinary host memory in registered ranges, so that every address can be classified and a
// wild one is an error instead of a crash.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/call_trace.h"
#include "base/mutex.h"
#include "base/pages.h"
#include "base/status.h"

namespace reprise::device {

constexpr int kMaxDevices = 64;
/// Device and pinned allocations begin at multiples of this: a cache line would do for the ABI (64), vector kernels
/// like more.
constexpr size_t kMemoryAlignment = 512;
constexpr uint64_t kHugePage = kHugePageBytes;

/// Whether addresses are looked up before they are used (REPRISE_CHECK_POINTERS); read once.
bool ChecksPointers();

enum class MemoryKind : uint8_t { kPageable, kDevice, kPinnedHost, kRegisteredHost };

/// How a range came to be, and so how it goes.
enum class MemoryOrigin : uint8_t { kProgram, kHeap, kMmap, kMapped, kImported };

/// One allocation or registration.
struct MemoryRange {
  uintptr_t begin = 0;
  uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kPageable;
  int device = 0;  ///< user id; for host memory the device that was current
  uint32_t page_bytes = 0;
  bool mapped = false;  ///< kRegisteredHost: has a device address
  MemoryOrigin origin = MemoryOrigin::kProgram;
  bool pooled = false;   ///< belongs to a memory pool, which alone may free it
  bool managed = false;  ///< device memory that host and device use alike; see managed_memory.h
  int file = -1;         ///< memory file behind an allocation that other processes share
  /// What the program asked for; the allocation may have room behind it. 0: all of the range.
  uint64_t asked_bytes = 0;
  /// kRegisteredHost: what the program named; the range may have whole pages around it.
  uintptr_t named_begin = 0;
  uint64_t named_bytes = 0;

  bool is_host() const { return kind != MemoryKind::kDevice; }
  uintptr_t end() const { return begin + bytes; }
  /// Bytes that a program may count on.
  uint64_t usable_bytes() const { return asked_bytes != 0 ? asked_bytes : bytes; }
};

/// Who may still use freed memory.
enum class Users : uint8_t {
  kStreams,  ///< work that is in flight, if there is any: the memory is parked (parked_memory.h)
  kNone,
  kCalls  ///< calls that are under way, and their tasks: parked when the calls have ended (base/calls.h)
};

/// "device memory 0x… of 64 bytes (device 0)".
std::string DescribeRange(const MemoryRange& range);

/// A range that is gone, for graphs that may still name it.
struct FreedRange {
  uint64_t number;  ///< in the order of freeing, from 1
  uintptr_t begin;
  uint64_t bytes;
  int thread;
  std::string call;  ///< with REPRISE_TRACE_CALLS=1
  std::string text;  ///< what it was
};

/// Every range that the runtime knows, of all devices.
///
/// Threads: thread-safe. Cost: Find takes a shared lock and O(log n).
class MemoryRegistry {
 public:
  static MemoryRegistry& Get();

  /// 207001 when the device's configured memory or the host's is used up. `asked_bytes`: how many of them the program
  /// asked for; 0: all. Where memory is checked (base/memory_checker.h), what lies behind these is closed.
  StatusOr<void*> AllocateDevice(int device, uint64_t bytes, uint32_t page_bytes, bool pooled = false,
                                 bool managed = false, uint64_t asked_bytes = 0);
  StatusOr<void*> AllocateHost(int device, uint64_t bytes);
  /// Frees an allocation of that kind, which no lookup finds from then on; 107000 with an explanation for any other
  /// pointer.
  Status Free(void* pointer, MemoryKind kind, bool pooled = false, Users users = Users::kStreams);

  /// Charges a device for memory that is kept elsewhere; 207001 when it has no room.
  Status Book(int device, uint64_t bytes);
  void Unbook(int device, uint64_t bytes) noexcept;

  /// Ranges that VirtualMemory maps and unmaps.
  void AddMapped(uintptr_t begin, uint64_t bytes, int device, bool on_host);
  void RemoveMapped(uintptr_t begin) noexcept;

  /// Where an allocation can be found by other processes. The descriptor is the caller's.
  struct File {
    int fd;
    uint64_t file_bytes;
    uint64_t offset;  ///< of the pointer
  };
  /// Moves the allocation around [pointer, pointer + bytes) into a memory file; addresses and content stay, and what
  /// other threads write meanwhile, too (move_to_file.h).
  StatusOr<File> Share(void* pointer, uint64_t bytes);
  /// Maps a file of another process as device memory; returns the address of `offset`. The descriptor is not kept.
  StatusOr<void*> MapForeign(int device, const File& file, uint64_t bytes);
  /// Ends a mapping of MapForeign, by the address that it returned.
  Status UnmapForeign(void* pointer);

  /// How host memory is registered.
  struct Registration {
    bool mapped;  ///< has a device address
    bool pinned;  ///< asked to be pinned: 507910 for pinned memory
  };
  /// Memory that is pinned already may be mapped once more, by a range within it. Memory that is only pinned gets whole
  /// pages, as far as nobody else has registered a part of these.
  Status Register(int device, void* pointer, uint64_t bytes, Registration how);
  /// Ends the newest registration that begins at the address.
  Status Unregister(void* pointer);

  /// The range that contains the address.
  std::optional<MemoryRange> Find(const void* pointer) const;
  /// Rises before a range comes or goes: what Find said after a look at this number holds while the number stays.
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

  /// As Find, for handlers of signals: waits for nobody.
  enum class Found : uint8_t { kNo, kYes, kBusy };
  Found TryFind(uintptr_t address, MemoryRange& range) const noexcept;

  /// Checks that [pointer, pointer + bytes) lies in one range, in mapped ranges of one device that follow each other
  /// without a gap, or entirely outside of all (pageable memory), and returns what it is. `what` names the argument.
  StatusOr<MemoryRange> CheckRange(const void* pointer, uint64_t bytes, const char* what) const;

  /// Registered with a device address of its own; memory of aclrtMallocHost has none until then.
  bool IsRegisteredForDevice(const void* pointer) const;

  /// For reports of a memory checker: where the address lies, of which allocation, and who allocated it. Empty when
  /// nothing is near, or the registry is in use.
  std::string ExplainReport(uintptr_t address) const;

  /// "points into device memory …" or "is no memory of the runtime; the nearest range is …".
  std::string Explain(const void* pointer) const;

  /// Frees all device memory of a device, as a reset does; returns the number of blocks.
  size_t FreeAllOfDevice(int device, Users users = Users::kStreams);

  /// Begins to remember freed ranges, the newest few thousand, until Unwatch. Returns freed_count().
  uint64_t Watch();
  void Unwatch() noexcept;
  uint64_t freed_count() const { return freed_count_.load(std::memory_order_acquire); }
  std::vector<FreedRange> FreedSince(uint64_t number) const;

  uint64_t used_bytes(int device) const;
  uint64_t peak_bytes(int device) const;
  static uint64_t total_bytes();

 private:
  void Insert(const MemoryRange& range);
  void NoteChange() noexcept { changes_.fetch_add(1, std::memory_order_acq_rel); }
  const MemoryRange* FindLocked(uintptr_t address) const;
  Status MapAgain(const MemoryRange& range, uintptr_t begin, uint64_t bytes);
  void ForgetMapped(const MemoryRange& range) noexcept;
  bool IsMappedAgain(uintptr_t address) const;
  Status NoRoom(int device, uint64_t bytes) const;
  void RememberFreed(const MemoryRange& range);
  void Checked(const MemoryRange& range);
  static void Release(const MemoryRange& range);
  static void ReleaseParked(const MemoryRange& range);
  static void LetGo(const MemoryRange& range, Users users);

  mutable SharedMutex mutex_;
  struct Foreign {
    uintptr_t begin;
    uint64_t bytes;
  };
  std::map<uintptr_t, MemoryRange> ranges_;     // by begin; ranges never overlap
  std::map<uintptr_t, uint64_t> mapped_again_;  // bytes by begin: registrations within pinned ranges; never overlap
  std::map<uintptr_t, Caller> callers_;         // who allocated, by begin; only where memory is checked
  std::map<uintptr_t, Foreign> foreign_;        // whole mappings of imported ranges, by the begin of the range
  uint32_t watchers_ = 0;
  std::deque<FreedRange> freed_;
  std::atomic<uint64_t> freed_count_{0};
  std::atomic<uint64_t> changes_{0};
  std::array<uint64_t, kMaxDevices> used_{};
  std::array<uint64_t, kMaxDevices> peak_{};
};

/// Whether the process can read and write every byte of the range. Also true when the kernel does not tell.
bool IsAccessible(const void* pointer, uint64_t bytes);

/// Copies although one side may be a wild address: the kernel checks it. False when it is.
bool CopyUntrusted(void* dst, const void* src, size_t bytes) noexcept;
/// As CopyUntrusted, for a `dst` that the runtime owns and whose content is unspecified after a failure.
bool CopyFromUntrusted(void* dst, const void* src, size_t bytes) noexcept;

}  // namespace reprise::device
