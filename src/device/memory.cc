// SPDX-License-Identifier: Apache-2.0
#include "device/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

#include "base/call_trace.h"
#include "base/calls.h"
#include "base/env.h"
#include "base/fault.h"
#include "base/memory_checker.h"
#include "base/mutex.h"
#include "base/strict.h"
#include "device/ipc_memory.h"
#include "device/managed_memory.h"
#include "device/move_to_file.h"
#include "device/parked_memory.h"
#include "device/share.h"

namespace reprise::device {
bool ChecksPointers() {
  static const bool checks = EnvInt(EnvVar::kCheckPointers) != 0;
  return checks;
}

namespace {

// Larger blocks come straight from the kernel: they are returned at once when freed, and untouched pages cost nothing.
constexpr uint64_t kMmapFrom = 1u << 20;
// These begin at a huge page and ask for huge pages, which streams of weights read up to a third faster. Smaller ones
// do not: what is written between weights would count as a write to all of the page (write_watch.h).
constexpr uint64_t kHugePagesFrom = 4 * kHugePage;
constexpr uint32_t kSmallPage = 4096;
constexpr size_t kFreedKept = 4096;

uint64_t PagesOf(uint64_t bytes) { return (bytes + kSmallPage - 1) / kSmallPage * kSmallPage; }

const char* KindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice: return "device memory";
    case MemoryKind::kPinnedHost: return "pinned host memory";
    case MemoryKind::kRegisteredHost: return "registered host memory";
    case MemoryKind::kPageable: break;
  }
  return "pageable host memory";
}

// Freed last, and by whom; only where memory is checked. Under the lock of the registry.
struct CheckedFree {
  MemoryRange range;
  Caller caller;
};
constexpr size_t kCheckedFrees = 256;
std::deque<CheckedFree>& CheckedFrees() {
  static auto* const frees = new std::deque<CheckedFree>;
  return *frees;
}
void NoteCheckedFree(const MemoryRange& range) {
  if (!IsMemoryChecked()) [[likely]]
    return;
  CheckedFrees().push_front({range, FindCaller()});
  if (CheckedFrees().size() > kCheckedFrees) CheckedFrees().pop_back();
}

std::string DescribeCaller(const Caller& caller) {
  std::string place = NamePlace(caller.place);
  if (place.empty()) place = DescribePlace(caller.place);
  return fmt::format("thread {}{}{}", caller.thread, place.empty() ? "" : " at ", place);
}

// Behind the pages of an allocation, where memory is checked.
uint64_t RedZonePages() { return IsMemoryChecked() ? kSmallPage : 0; }

// Whole pages at a multiple of `alignment`; null: there is no room.
void* MapPages(uint64_t bytes, uint64_t alignment) {
  const uint64_t all = bytes + alignment - kSmallPage;
  void* const at = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<char*>(at);
  const uint64_t before = -reinterpret_cast<uintptr_t>(begin) & (alignment - 1);
  if (before != 0) munmap(begin, before);
  if (before + bytes != all) munmap(begin + before + bytes, all - before - bytes);
  return begin + before;
}

// Whole pages, so that an allocation can become shared memory without its neighbours.
void* AllocatePages(uint64_t bytes, MemoryOrigin* origin) {
  if (bytes > uint64_t{PTRDIFF_MAX} / 2) return nullptr;
  *origin = bytes >= kMmapFrom ? MemoryOrigin::kMmap : MemoryOrigin::kHeap;
  bytes = PagesOf(bytes) + RedZonePages();
  if (*origin == MemoryOrigin::kMmap) {
    if (bytes < kHugePagesFrom) return MapPages(bytes, kSmallPage);
    void* const at = MapPages(bytes, kHugePage);
    if (at != nullptr) (void)madvise(at, bytes, MADV_HUGEPAGE);  // where there are none, small ones do
    return at;
  }
  return std::aligned_alloc(kSmallPage, bytes);
}

}  // namespace

std::string DescribeRange(const MemoryRange& range) {
  return fmt::format("{} {:#x} of {} bytes{}", KindName(range.kind), range.begin, range.bytes,
                     range.kind == MemoryKind::kDevice ? fmt::format(" (device {})", range.device) : "");
}

MemoryRegistry& MemoryRegistry::Get() {
  static auto* const registry = new MemoryRegistry;  // leaked: user code may free in static destructors
  return *registry;
}

uint64_t MemoryRegistry::total_bytes() {
  static const uint64_t total = EnvBytes(EnvVar::kMemory);
  return total;
}

void MemoryRegistry::Insert(const MemoryRange& range) {
  NoteChange();
  ranges_.emplace(range.begin, range);
}

// Of what is new, under the lock.
void MemoryRegistry::Checked(const MemoryRange& range) {
  if (!IsMemoryChecked()) [[likely]]
    return;
  AddToMemoryReports([](uintptr_t address) { return Get().ExplainReport(address); });
  const uint64_t pages = PagesOf(range.bytes) + RedZonePages();
  const uint64_t usable = range.usable_bytes();
  auto* const begin = reinterpret_cast<void*>(range.begin);
  if (range.origin == MemoryOrigin::kMmap) NoteAllocation(begin, usable);
  AllowAccess(begin, usable);
  ForbidAccess(static_cast<char*>(begin) + usable, pages - usable);
  callers_[range.begin] = FindCaller();
}

StatusOr<void*> MemoryRegistry::AllocateDevice(int device, uint64_t bytes, uint32_t page_bytes, bool pooled,
                                               bool managed, uint64_t asked_bytes) {
  ParkedMemory::Get().Sweep();
  {
    UniqueLock lock(mutex_);
    const uint64_t used = used_[static_cast<size_t>(device)];
    if (bytes > total_bytes() || used > total_bytes() - bytes || FaultPoint("memory.device")) {
      return NoRoom(device, bytes);
    }
    // Booked before the slow part, so that two threads cannot overdraw together.
    used_[static_cast<size_t>(device)] += bytes;
  }
  MemoryOrigin origin = MemoryOrigin::kHeap;
  void* at = AllocatePages(bytes, &origin);
  UniqueLock lock(mutex_);
  uint64_t& used = used_[static_cast<size_t>(device)];
  if (at == nullptr) {
    used -= bytes;
    return Error(kOutOfDeviceMemory, fmt::format("the host refused {} bytes for device {}", bytes, device))
        .Hint("free memory of the host, or raise the process's limit of address space (ulimit -v)");
  }
  peak_[static_cast<size_t>(device)] = std::max(peak_[static_cast<size_t>(device)], used);
  MemoryRange range{
      reinterpret_cast<uintptr_t>(at), bytes, MemoryKind::kDevice, device, page_bytes, true, origin, pooled, managed};
  range.asked_bytes = asked_bytes;
  Insert(range);
  Checked(range);
  return at;
}

StatusOr<void*> MemoryRegistry::AllocateHost(int device, uint64_t bytes) {
  ParkedMemory::Get().Sweep();
  MemoryOrigin origin = MemoryOrigin::kHeap;
  void* at = bytes > uint64_t{PTRDIFF_MAX} || FaultPoint("memory.host") ? nullptr : AllocatePages(bytes, &origin);
  if (at == nullptr)
    return Error(kOutOfDeviceMemory, fmt::format("the host refused {} bytes of pinned memory", bytes))
        .Hint("ask for less, free memory of the host, or raise the process's limit of address space (ulimit -v)");
  UniqueLock lock(mutex_);
  const MemoryRange range{
      reinterpret_cast<uintptr_t>(at), bytes, MemoryKind::kPinnedHost, device, kSmallPage, true, origin};
  Insert(range);
  Checked(range);
  return at;
}

// Nobody uses it any more.
void MemoryRegistry::Release(const MemoryRange& range) {
  auto* const begin = reinterpret_cast<void*>(range.begin);
  if (range.file >= 0) close(range.file);
  switch (range.origin) {
    case MemoryOrigin::kHeap:
      // The heap gets private memory back.
      if (range.file >= 0) {
        mmap(begin, PagesOf(range.bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      }
      std::free(begin);
      break;
    case MemoryOrigin::kMmap: {
      const uint64_t bytes = PagesOf(range.bytes) + RedZonePages();
      NoteRelease(begin);
      AllowAccess(begin, bytes);  // for whoever gets the addresses next
      munmap(begin, bytes);
      break;
    }
    case MemoryOrigin::kImported:
    case MemoryOrigin::kMapped:
    case MemoryOrigin::kProgram: break;
  }
}

void MemoryRegistry::ReleaseParked(const MemoryRange& range) {
  Release(range);
  if (range.kind == MemoryKind::kDevice) Get().Unbook(range.device, range.bytes);
}

// Of what nobody finds any more. Charged until it is released, unless nobody uses it.
void MemoryRegistry::LetGo(const MemoryRange& range, Users users) {
  if (range.file >= 0) ForgetExports(range.begin, range.bytes);
  switch (users) {
    case Users::kStreams: ParkedMemory::Get().Park(range, ReleaseParked); return;
    case Users::kNone: Release(range); return;
    case Users::kCalls: break;
  }
  auto* const kept = new (std::nothrow) MemoryRange(range);
  if (kept == nullptr) return;  // it stays
  Retire(
      kept,
      [](void* retired) {
        const std::unique_ptr<MemoryRange> passed(static_cast<MemoryRange*>(retired));
        ParkedMemory::Get().Park(*passed, ReleaseParked);
      },
      BirthMoment(), true);
}

Status MemoryRegistry::NoRoom(int device, uint64_t bytes) const {
  const uint64_t parked = ParkedMemory::Get().bytes(device);
  return Error(kOutOfDeviceMemory, fmt::format("device {} has no room for {} bytes: {} of {} bytes are in use", device,
                                               bytes, used_[static_cast<size_t>(device)], total_bytes()))
      .Culprit(fmt::format("{} live ranges of the process hold memory{}", ranges_.size(),
                           parked == 0 ? ""
                                       : fmt::format("; {} bytes were freed, but work that was submitted before has "
                                                     "not ended",
                                                     parked)));
}

Status MemoryRegistry::Book(int device, uint64_t bytes) {
  ParkedMemory::Get().Sweep();
  UniqueLock lock(mutex_);
  uint64_t& used = used_[static_cast<size_t>(device)];
  if (bytes > total_bytes() || used > total_bytes() - bytes || FaultPoint("memory.device"))
    return NoRoom(device, bytes);
  used += bytes;
  peak_[static_cast<size_t>(device)] = std::max(peak_[static_cast<size_t>(device)], used);
  return {};
}

void MemoryRegistry::Unbook(int device, uint64_t bytes) noexcept {
  UniqueLock lock(mutex_);
  used_[static_cast<size_t>(device)] -= bytes;
}

void MemoryRegistry::AddMapped(uintptr_t begin, uint64_t bytes, int device, bool on_host) {
  UniqueLock lock(mutex_);
  Insert({begin, bytes, on_host ? MemoryKind::kPinnedHost : MemoryKind::kDevice, device,
          static_cast<uint32_t>(kHugePage), true, MemoryOrigin::kMapped});
}

void MemoryRegistry::RemoveMapped(uintptr_t begin) noexcept {
  UniqueLock lock(mutex_);
  const auto it = ranges_.find(begin);
  if (it == ranges_.end() || it->second.origin != MemoryOrigin::kMapped) return;
  RememberFreed(it->second);
  ForgetMapped(it->second);
  NoteChange();
  ranges_.erase(it);
}

StatusOr<MemoryRegistry::File> MemoryRegistry::Share(void* pointer, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  UniqueLock lock(mutex_);
  const auto after = ranges_.upper_bound(begin);
  MemoryRange* range = after == ranges_.begin() ? nullptr : &std::prev(after)->second;
  const bool fits = range != nullptr && begin < range->end() && bytes <= range->end() - begin;
  if (!fits || range->kind != MemoryKind::kDevice ||
      (range->origin != MemoryOrigin::kHeap && range->origin != MemoryOrigin::kMmap)) {
    lock.unlock();
    return Error(kInvalidValue, fmt::format("{} bytes at {} are not within one block of device memory: the address {}",
                                            bytes, fmt::ptr(pointer), Explain(pointer)))
        .Culprit("parameters devPtr and size")
        .Hint("export memory of aclrtMalloc; memory of aclrtMallocPhysical has aclrtMemExportToShareableHandle");
  }
  const uint64_t file_bytes = PagesOf(range->bytes);
  if (range->file < 0) {
    AllowAccess(reinterpret_cast<void*>(range->begin), file_bytes);  // it is copied as a whole
    const int fd = MakeMemoryFile("reprise-memory", file_bytes);
    const int error = fd < 0 ? errno : MoveToFile(reinterpret_cast<void*>(range->begin), file_bytes, fd);
    if (fd < 0 || error != 0) {
      if (fd >= 0) close(fd);
      return Error(kOutOfDeviceMemory, fmt::format("the host refused {} bytes of shared memory: {}", file_bytes,
                                                   std::generic_category().message(error)))
          .Culprit(DescribeRange(*range))
          .Hint("free memory, or raise the limits of the process for memory and open files");
    }
    range->file = fd;
  }
  const int fd = fcntl(range->file, F_DUPFD_CLOEXEC, 0);
  if (fd < 0)
    return Error(kResourceExhausted, "the process has too many open files")
        .Hint("close files and imported memory, or raise the limit of open files (ulimit -n)");
  return File{fd, file_bytes, begin - range->begin};
}

StatusOr<void*> MemoryRegistry::MapForeign(int device, const File& file, uint64_t bytes) {
  void* at = FaultPoint("memory.map") ? MAP_FAILED
                                      : mmap(nullptr, file.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
  if (at == MAP_FAILED) {
    return Error(kOutOfDeviceMemory,
                 fmt::format("the host refused to map {} bytes of another process", file.file_bytes))
        .Hint("free memory of the host, or raise the process's limit of address space (ulimit -v)");
  }
  // What lies around the exported part is not ours to use, hence a range of exactly that part.
  const auto begin = reinterpret_cast<uintptr_t>(at) + file.offset;
  UniqueLock lock(mutex_);
  Insert({begin, bytes, MemoryKind::kDevice, device, kSmallPage, true, MemoryOrigin::kImported});
  foreign_[begin] = {reinterpret_cast<uintptr_t>(at), file.file_bytes};
  return reinterpret_cast<void*>(begin);
}

Status MemoryRegistry::UnmapForeign(void* pointer) {
  MemoryRange whole;  // as far as the mapping goes
  whole.kind = MemoryKind::kDevice;
  whole.origin = MemoryOrigin::kImported;
  UniqueLock lock(mutex_);
  const auto it = foreign_.find(reinterpret_cast<uintptr_t>(pointer));
  if (it == foreign_.end())
    return Error(kInvalidValue, fmt::format("{} is no imported memory", fmt::ptr(pointer)))
        .Hint("pass the address that the importing call wrote, once");
  if (const auto range = ranges_.find(it->first); range != ranges_.end()) {
    RememberFreed(range->second);
    whole.device = range->second.device;
    NoteChange();
    ranges_.erase(range);
  }
  whole.begin = it->second.begin;
  whole.bytes = it->second.bytes;
  foreign_.erase(it);
  lock.unlock();
  ParkedMemory::Get().Park(whole,
                           [](const MemoryRange& range) { munmap(reinterpret_cast<void*>(range.begin), range.bytes); });
  return {};
}

Status MemoryRegistry::Free(void* pointer, MemoryKind kind, bool pooled, Users users) {
  MemoryRange range;
  ParkedMemory& parked = ParkedMemory::Get();
  parked.Sweep();
  if (users == Users::kStreams && !parked.InFlight()) users = Users::kNone;
  {
    UniqueLock lock(mutex_);
    const auto it = ranges_.find(reinterpret_cast<uintptr_t>(pointer));
    if (it != ranges_.end() && it->second.kind == kind &&
        (it->second.origin == MemoryOrigin::kMapped || it->second.origin == MemoryOrigin::kImported)) {
      const bool imported = it->second.origin == MemoryOrigin::kImported;
      return Error(kInvalidValue, fmt::format("{} is {} memory", fmt::ptr(pointer), imported ? "imported" : "mapped"))
          .Culprit(DescribeRange(it->second))
          .Hint(imported ? "close it with aclrtIpcMemClose" : "unmap it with aclrtUnmapMem");
    }
    if (it != ranges_.end() && it->second.pooled && !pooled) {
      return Error(kInvalidValue, fmt::format("{} belongs to a memory pool", fmt::ptr(pointer)))
          .Culprit(DescribeRange(it->second))
          .Hint("give it back with aclrtMemPoolFreeAsync");
    }
    if (it == ranges_.end() || it->second.kind != kind) {
      lock.unlock();
      return Error(kInvalidValue,
                   fmt::format("{} is not the start of {}: it {}", fmt::ptr(pointer), KindName(kind), Explain(pointer)))
          .Hint(kind == MemoryKind::kDevice ? "pass the pointer that aclrtMalloc returned, once"
                                            : "pass the pointer that aclrtMallocHost returned, once");
    }
    range = it->second;
    RememberFreed(range);
    if (range.managed) ManagedMemory::Get().Forget(range.begin);
    if (kind == MemoryKind::kPinnedHost) ForgetMapped(range);
    NoteChange();
    ranges_.erase(it);
    callers_.erase(range.begin);
    NoteCheckedFree(range);
    if (kind == MemoryKind::kDevice && users == Users::kNone) used_[static_cast<size_t>(range.device)] -= range.bytes;
  }
  LetGo(range, users);
  return {};
}

Status MemoryRegistry::MapAgain(const MemoryRange& range, uintptr_t begin, uint64_t bytes) {
  const auto already = [&](uintptr_t at, uint64_t size) {
    return Error(kHostMemoryAlreadyRegistered,
                 fmt::format("[{:#x}, {:#x}) overlaps [{:#x}, {:#x}), which is registered already", begin,
                             begin + bytes, at, at + size))
        .Culprit(DescribeRange(range))
        .Hint("register a range once, and unregister it with aclrtHostUnregister before it is registered again");
  };
  if (range.kind == MemoryKind::kRegisteredHost && range.mapped) return already(range.named_begin, range.named_bytes);
  const auto next = mapped_again_.lower_bound(begin);
  if (next != mapped_again_.end() && next->first < begin + bytes) return already(next->first, next->second);
  if (next != mapped_again_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second > begin) return already(before->first, before->second);
  }
  mapped_again_.emplace(begin, bytes);
  return {};
}

void MemoryRegistry::ForgetMapped(const MemoryRange& range) noexcept {
  mapped_again_.erase(mapped_again_.lower_bound(range.begin), mapped_again_.lower_bound(range.end()));
}

bool MemoryRegistry::IsMappedAgain(uintptr_t address) const {
  const auto after = mapped_again_.upper_bound(address);
  if (after == mapped_again_.begin()) return false;
  const auto at = std::prev(after);
  return address - at->first < at->second;
}

Status MemoryRegistry::Register(int device, void* pointer, uint64_t bytes, Registration how) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const uintptr_t end = begin + bytes;
  if (end < begin)
    return Error(kInvalidValue, fmt::format("the range of {} bytes wraps around", bytes))
        .Hint("pass the size of the memory at ptr in bytes");
  UniqueLock lock(mutex_);
  const MemoryRange* within = FindLocked(begin);
  if (within != nullptr && within->is_host() && end <= within->end() && !how.pinned) {
    // Of a range's pages the program has named only a part, the rest may be anything.
    if (within->kind == MemoryKind::kPinnedHost ||
        (begin >= within->named_begin && end <= within->named_begin + within->named_bytes)) {
      return MapAgain(*within, begin, bytes);
    }
  }
  // Room up to the neighbours; their pages give way where only their edges are in the way.
  const auto first = [&] {
    const auto after = ranges_.upper_bound(begin);
    return after != ranges_.begin() && std::prev(after)->second.end() > begin ? std::prev(after) : after;
  }();
  std::vector<MemoryRange> in_the_way;
  for (auto it = first; it != ranges_.end() && it->first < end; ++it) {
    const MemoryRange& other = it->second;
    const bool only_its_pages = other.kind == MemoryKind::kRegisteredHost &&
                                (end <= other.named_begin || begin >= other.named_begin + other.named_bytes);
    if (!only_its_pages) {
      return Error(kHostMemoryAlreadyRegistered,
                   fmt::format("[{:#x}, {:#x}) overlaps {}", begin, end, DescribeRange(other)))
          .Culprit(other.is_host() ? "host memory that is pinned or registered already" : "device memory")
          .Hint(other.kind == MemoryKind::kPinnedHost
                    ? "memory of aclrtMallocHost is pinned: map it with aclrtHostRegister, or with ACL_HOST_REG_MAPPED "
                      "alone"
                    : "register memory of the program once, and unregister it with aclrtHostUnregister first");
    }
    in_the_way.push_back(other);
  }
  for (MemoryRange other : in_the_way) {
    NoteChange();
    ranges_.erase(other.begin);
    const uintptr_t other_end = other.named_begin >= end ? other.end() : std::min(other.end(), begin);
    other.begin = other.named_begin >= end ? std::max(other.begin, end) : other.begin;
    other.bytes = other_end - other.begin;
    Insert(other);
  }
  MemoryRange range{begin, bytes, MemoryKind::kRegisteredHost, device, kSmallPage, how.mapped};
  range.named_begin = begin;
  range.named_bytes = bytes;
  if (!how.mapped) {
    uintptr_t low = begin / kSmallPage * kSmallPage;
    uintptr_t high = end > UINTPTR_MAX - kSmallPage ? end : PagesOf(end);
    const auto next = ranges_.lower_bound(begin);
    if (next != ranges_.end()) high = std::min(high, next->first);
    if (next != ranges_.begin()) low = std::max(low, std::prev(next)->second.end());
    range.begin = low;
    range.bytes = high - low;
  }
  Insert(range);
  return {};
}

Status MemoryRegistry::Unregister(void* pointer) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  UniqueLock lock(mutex_);
  if (mapped_again_.erase(begin) != 0) return {};
  const MemoryRange* found = FindLocked(begin);
  if (found == nullptr || found->kind != MemoryKind::kRegisteredHost || found->named_begin != begin) {
    lock.unlock();
    return Error(kHostMemoryNotRegistered,
                 fmt::format("{} is not the start of a registered range: it {}", fmt::ptr(pointer), Explain(pointer)))
        .Hint("pass the address that was given to aclrtHostRegister, once for each registration");
  }
  RememberFreed(*found);
  ForgetMapped(*found);
  NoteChange();
  ranges_.erase(found->begin);
  return {};
}

const MemoryRange* MemoryRegistry::FindLocked(uintptr_t address) const {
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return nullptr;
  --it;
  return address < it->second.end() ? &it->second : nullptr;
}

std::optional<MemoryRange> MemoryRegistry::Find(const void* pointer) const {
  ReaderLock lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const MemoryRange* range = FindLocked(address);
  if (range == nullptr) return std::nullopt;
  MemoryRange found = *range;
  if (!found.mapped) found.mapped = IsMappedAgain(address);
  return found;
}

MemoryRegistry::Found MemoryRegistry::TryFind(uintptr_t address, MemoryRange& range) const noexcept {
  if (!mutex_.try_lock_shared()) return Found::kBusy;
  const MemoryRange* const found = FindLocked(address);
  if (found != nullptr) range = *found;
  mutex_.unlock_shared();
  return found != nullptr ? Found::kYes : Found::kNo;
}

StatusOr<MemoryRange> MemoryRegistry::CheckRange(const void* pointer, uint64_t bytes, const char* what) const {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  if (begin + bytes < begin) {
    return Error(kInvalidValue, fmt::format("{} {:#x} plus {} bytes wraps around", what, begin, bytes))
        .Hint("pass the size of the range in bytes");
  }
  ReaderLock lock(mutex_);
  if (const MemoryRange* range = FindLocked(begin)) {
    if (begin + bytes <= range->end()) [[likely]] {
      if (range->asked_bytes == 0 || begin + bytes <= range->begin + range->asked_bytes) [[likely]]
        return *range;
      if (!IsStrict() && !IsMemoryChecked()) return *range;
      std::string why = fmt::format(
          "{} [{:#x}, {:#x}) uses {} bytes behind the {} that were asked for; what a device adds behind an "
          "allocation is its own",
          what, begin, begin + bytes, begin + bytes - range->begin - range->asked_bytes, range->asked_bytes);
      // Where memory is checked, that is closed.
      return (IsStrict() ? StrictRefusal(kInvalidValue, why) : Error(kInvalidValue, std::move(why)))
          .Culprit(DescribeRange(*range))
          .Hint("allocate as many bytes as are used");
    }
    // Expandable segments: mapped pieces that follow each other are one range to their users.
    MemoryRange whole = *range;
    for (auto next = ranges_.find(whole.end()); next != ranges_.end(); next = ranges_.find(whole.end())) {
      const MemoryRange& piece = next->second;
      if (piece.origin != MemoryOrigin::kMapped || whole.origin != MemoryOrigin::kMapped || piece.kind != whole.kind ||
          piece.device != whole.device) {
        break;
      }
      whole.bytes += piece.bytes;
      if (begin + bytes <= whole.end()) return whole;
    }
    return Error(kInvalidValue, fmt::format("{} [{:#x}, {:#x}) ends {} bytes behind {}", what, begin, begin + bytes,
                                            begin + bytes - range->end(), DescribeRange(*range)))
        .Hint("keep the range inside one allocation");
  }
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first < begin + bytes) {
    return Error(kInvalidValue, fmt::format("{} [{:#x}, {:#x}) begins outside of {} and runs into it", what, begin,
                                            begin + bytes, DescribeRange(next->second)))
        .Hint("keep the range inside one allocation");
  }
  // What lies around an imported part belongs to the exporter, and what is parked to work that is in flight.
  for (const auto& [exported, whole] : foreign_) {
    if (begin + bytes <= whole.begin || begin >= whole.begin + whole.bytes) continue;
    return Error(kInvalidValue,
                 fmt::format("{} [{:#x}, {:#x}) is not in the part that was exported, which begins at {:#x}", what,
                             begin, begin + bytes, exported))
        .Hint("keep the range inside what was exported");
  }
  if (std::string parked = ParkedMemory::Get().Explain(begin); !parked.empty()) {
    return Error(kInvalidValue, fmt::format("{} {:#x} was freed", what, begin))
        .Culprit(fmt::format("{} {}", what, parked))
        .Hint("free memory behind its last use, or allocate it again before this call");
  }
  MemoryRange pageable;
  pageable.begin = begin;
  pageable.bytes = bytes;
  return pageable;
}

bool MemoryRegistry::IsRegisteredForDevice(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  ReaderLock lock(mutex_);
  const MemoryRange* range = FindLocked(address);
  if (range == nullptr) return false;
  return (range->kind == MemoryKind::kRegisteredHost && range->mapped) || range->origin == MemoryOrigin::kMapped ||
         IsMappedAgain(address);
}

std::string MemoryRegistry::ExplainReport(uintptr_t address) const {
  if (!mutex_.try_lock_shared()) return {};
  const ReaderLock lock(mutex_, std::adopt_lock);
  const auto is_of = [address](const MemoryRange& range) {
    return address >= range.begin && address < range.begin + PagesOf(range.bytes) + RedZonePages();
  };
  const auto where = [address](const MemoryRange& range) {
    const uint64_t usable = range.usable_bytes();
    const uint64_t offset = address - range.begin;
    return fmt::format("{:#x} lies {} bytes {} {} {:#x} of {} bytes{}", address,
                       offset < usable ? offset : offset - usable, offset < usable ? "into" : "behind the end of",
                       KindName(range.kind), range.begin, usable,
                       range.kind == MemoryKind::kDevice ? fmt::format(" (device {})", range.device) : "");
  };
  const auto after = ranges_.upper_bound(address);
  if (after != ranges_.begin() && is_of(std::prev(after)->second)) {
    const MemoryRange& range = std::prev(after)->second;
    const auto caller = callers_.find(range.begin);
    return where(range) + (caller != callers_.end() ? ", allocated by " + DescribeCaller(caller->second) : "");
  }
  for (const CheckedFree& freed : CheckedFrees()) {
    if (is_of(freed.range)) return where(freed.range) + ", which was freed by " + DescribeCaller(freed.caller);
  }
  return {};
}

std::string MemoryRegistry::Explain(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  ReaderLock lock(mutex_);
  if (const MemoryRange* range = FindLocked(address)) {
    if (address == range->begin) return fmt::format("is the start of {}", DescribeRange(*range));
    return fmt::format("points {} bytes into {}", address - range->begin, DescribeRange(*range));
  }
  if (std::string parked = ParkedMemory::Get().Explain(address); !parked.empty()) return parked;
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return "is no memory of the runtime (the program's own, or freed)";
  --it;
  return fmt::format("is no memory of the runtime (the program's own, or freed); the nearest range below is {}",
                     DescribeRange(it->second));
}

size_t MemoryRegistry::FreeAllOfDevice(int device, Users users) {
  std::vector<MemoryRange> freed;
  // Streams of other devices may reach the memory, too.
  ParkedMemory& parked = ParkedMemory::Get();
  parked.Sweep();
  if (users == Users::kStreams && !parked.InFlight()) users = Users::kNone;
  {
    UniqueLock lock(mutex_);
    for (auto it = ranges_.begin(); it != ranges_.end();) {
      // Mapped and imported memory belongs to those who map and import.
      if (it->second.kind == MemoryKind::kDevice && it->second.device == device &&
          (it->second.origin == MemoryOrigin::kHeap || it->second.origin == MemoryOrigin::kMmap)) {
        freed.push_back(it->second);
        if (users == Users::kNone) used_[static_cast<size_t>(device)] -= it->second.bytes;
        if (it->second.managed) ManagedMemory::Get().Forget(it->first);
        callers_.erase(it->first);
        NoteCheckedFree(it->second);
        NoteChange();
        it = ranges_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const MemoryRange& range : freed) LetGo(range, users);
  return freed.size();
}

uint64_t MemoryRegistry::Watch() {
  UniqueLock lock(mutex_);
  ++watchers_;
  return freed_count_.load(std::memory_order_relaxed);
}

void MemoryRegistry::Unwatch() noexcept {
  UniqueLock lock(mutex_);
  if (--watchers_ == 0) freed_.clear();
}

void MemoryRegistry::RememberFreed(const MemoryRange& range) {
  if (watchers_ == 0) return;
  try {
    const uint64_t number = freed_count_.load(std::memory_order_relaxed) + 1;
    freed_.push_back({number, range.begin, range.bytes, gettid(), DescribeCall(), DescribeRange(range)});
    freed_count_.store(number, std::memory_order_release);
    if (freed_.size() > kFreedKept) freed_.pop_front();
  } catch (const std::bad_alloc&) {
    // Only a diagnosis is lost.
  }
}

std::vector<FreedRange> MemoryRegistry::FreedSince(uint64_t number) const {
  ReaderLock lock(mutex_);
  const auto first = std::partition_point(freed_.begin(), freed_.end(),
                                          [number](const FreedRange& range) { return range.number <= number; });
  return {first, freed_.end()};
}

uint64_t MemoryRegistry::used_bytes(int device) const {
  ReaderLock lock(mutex_);
  return used_[static_cast<size_t>(device)];
}

uint64_t MemoryRegistry::peak_bytes(int device) const {
  ReaderLock lock(mutex_);
  return peak_[static_cast<size_t>(device)];
}

bool IsAccessible(const void* pointer, uint64_t bytes) {
  auto begin = reinterpret_cast<uintptr_t>(pointer);
  const uintptr_t end = begin + bytes;
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return true;
  char line[512];
  bool at_start = true;  // of a line; a long path takes several reads
  while (begin < end && std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long long low = 0, high = 0;
    char read = 0, write = 0;
    if (at_start && std::sscanf(line, "%llx-%llx %c%c", &low, &high, &read, &write) == 4 && low <= begin &&
        begin < high && read == 'r' && write == 'w') {
      begin = high;  // mappings come in ascending order
    }
    at_start = std::strchr(line, '\n') != nullptr;
  }
  std::fclose(maps);
  return begin >= end;
}

namespace {

// Whether the range lies in frames of the calling thread, which are there as long as their functions run. Where the
// stack ends is asked once for each thread; on a stack that the program has made itself the answer is always no.
struct Stack {
  uintptr_t begin;
  uintptr_t end;  // 0: not asked yet
};
// In the static block, as runtime::ThreadState: reached in one instruction.
constinit thread_local Stack t_stack __attribute__((tls_model("initial-exec"))) = {0, 0};

[[gnu::noinline]] Stack AskForStack() noexcept {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {UINTPTR_MAX, UINTPTR_MAX};
  void* begin = nullptr;
  size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &begin, &size) == 0;
  pthread_attr_destroy(&attributes);
  const auto first = reinterpret_cast<uintptr_t>(begin);
  return known ? Stack{first, first + size} : Stack{UINTPTR_MAX, UINTPTR_MAX};
}

bool IsInMyFrames(const void* at, size_t bytes) noexcept {
  if (t_stack.end == 0) [[unlikely]]
    t_stack = AskForStack();
  const Stack stack = t_stack;
  const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  const auto first = reinterpret_cast<uintptr_t>(at);
  return frame >= stack.begin && first >= frame && first < stack.end && bytes <= stack.end - first;
}

bool CopyThroughKernel(void* dst, const void* src, size_t bytes) noexcept {
  // Copying within our own process through the kernel: a bad address gives EFAULT instead of a signal.
  static const bool kernel_copies = [] {
    char from = 1, to = 0;
    const iovec local{&to, 1}, remote{&from, 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
  }();
  if (!kernel_copies) {  // forbidden by a sandbox: then a wild pointer is the program's own crash
    std::memmove(dst, src, bytes);
    return true;
  }
  auto* to = static_cast<char*>(dst);
  const auto* from = static_cast<const char*>(src);
  while (bytes != 0) {
    const size_t part = std::min<size_t>(bytes, size_t{1} << 30);  // one call moves less than 2 GiB
    const iovec local{to, part}, remote{const_cast<char*>(from), part};
    const uint32_t moves = MovesOfPages();
    const ssize_t moved = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (moved <= 0) {
      if (AwaitMovesOfPages() == moves) return false;
      continue;  // pages that are being moved look like no memory to the kernel
    }
    to += moved;
    from += moved;
    bytes -= static_cast<size_t>(moved);
  }
  return true;
}

}  // namespace

bool CopyUntrusted(void* dst, const void* src, size_t bytes) noexcept {
  // Arguments and the buffer for them lie in the caller's frames more often than not, and need no system call then.
  if (bytes <= 4096 && IsInMyFrames(src, bytes) && IsInMyFrames(dst, bytes)) {
    std::memcpy(dst, src, bytes);
    return true;
  }
  return CopyThroughKernel(dst, src, bytes);
}

bool CopyFromUntrusted(void* dst, const void* src, size_t bytes) noexcept {
  if (bytes <= 4096 && IsInMyFrames(src, bytes)) {
    std::memcpy(dst, src, bytes);
    return true;
  }
  return CopyThroughKernel(dst, src, bytes);
}

}  // namespace reprise::device
