// SPDX-License-Identifier: Apache-2.0
#include "device/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/env.h"
#include "base/fault.h"

namespace reprise::device {
namespace {

// Larger blocks come straight from the kernel: they are returned at once when freed, and untouched pages cost nothing.
constexpr uint64_t kMmapFrom = 1u << 20;
constexpr uint32_t kSmallPage = 4096;

const char* KindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice: return "device memory";
    case MemoryKind::kPinnedHost: return "pinned host memory";
    case MemoryKind::kRegisteredHost: return "registered host memory";
    case MemoryKind::kPageable: break;
  }
  return "pageable host memory";
}

void* AllocateBytes(uint64_t bytes, bool* from_mmap) {
  *from_mmap = bytes >= kMmapFrom;
  if (*from_mmap) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : at;
  }
  return std::aligned_alloc(kMemoryAlignment, (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment);
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

void MemoryRegistry::Insert(const MemoryRange& range) { ranges_.emplace(range.begin, range); }

StatusOr<void*> MemoryRegistry::AllocateDevice(int device, uint64_t bytes, uint32_t page_bytes) {
  {
    std::unique_lock lock(mutex_);
    const uint64_t used = used_[static_cast<size_t>(device)];
    if (bytes > total_bytes() || used > total_bytes() - bytes || FaultPoint("memory.device")) {
      return Error(207001, fmt::format("device {} has no room for {} bytes: {} of {} bytes are in use", device, bytes,
                                       used, total_bytes()))
          .Culprit(fmt::format("{} live ranges of the process hold memory", ranges_.size()));
    }
    // Booked before the slow part, so that two threads cannot overdraw together.
    used_[static_cast<size_t>(device)] += bytes;
  }
  bool from_mmap = false;
  void* at = AllocateBytes(bytes, &from_mmap);
  std::unique_lock lock(mutex_);
  uint64_t& used = used_[static_cast<size_t>(device)];
  if (at == nullptr) {
    used -= bytes;
    return Error(207001, fmt::format("the host refused {} bytes for device {}", bytes, device));
  }
  peak_[static_cast<size_t>(device)] = std::max(peak_[static_cast<size_t>(device)], used);
  Insert({reinterpret_cast<uintptr_t>(at), bytes, MemoryKind::kDevice, device, page_bytes, true, from_mmap});
  return at;
}

StatusOr<void*> MemoryRegistry::AllocateHost(int device, uint64_t bytes) {
  bool from_mmap = false;
  void* at = bytes > uint64_t{PTRDIFF_MAX} || FaultPoint("memory.host") ? nullptr : AllocateBytes(bytes, &from_mmap);
  if (at == nullptr) return Error(207001, fmt::format("the host refused {} bytes of pinned memory", bytes));
  std::unique_lock lock(mutex_);
  Insert({reinterpret_cast<uintptr_t>(at), bytes, MemoryKind::kPinnedHost, device, kSmallPage, true, from_mmap});
  return at;
}

void MemoryRegistry::Release(const MemoryRange& range) {
  if (range.from_mmap) {
    munmap(reinterpret_cast<void*>(range.begin), range.bytes);
  } else {
    std::free(reinterpret_cast<void*>(range.begin));
  }
}

Status MemoryRegistry::Free(void* pointer, MemoryKind kind) {
  MemoryRange range;
  {
    std::unique_lock lock(mutex_);
    const auto it = ranges_.find(reinterpret_cast<uintptr_t>(pointer));
    if (it == ranges_.end() || it->second.kind != kind) {
      lock.unlock();
      return Error(107000,
                   fmt::format("{} is not the start of {}: it {}", fmt::ptr(pointer), KindName(kind), Explain(pointer)))
          .Hint(kind == MemoryKind::kDevice ? "pass the pointer that aclrtMalloc returned, once"
                                            : "pass the pointer that aclrtMallocHost returned, once");
    }
    range = it->second;
    ranges_.erase(it);
    if (kind == MemoryKind::kDevice) used_[static_cast<size_t>(range.device)] -= range.bytes;
  }
  Release(range);
  return {};
}

Status MemoryRegistry::Register(int device, void* pointer, uint64_t bytes, bool mapped) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  if (begin + bytes < begin) return Error(107000, fmt::format("the range of {} bytes wraps around", bytes));
  std::unique_lock lock(mutex_);
  const auto next = ranges_.lower_bound(begin);
  const MemoryRange* clash = FindLocked(begin);
  if (clash == nullptr && next != ranges_.end() && next->first < begin + bytes) clash = &next->second;
  if (clash != nullptr) {
    return Error(507910, fmt::format("[{:#x}, {:#x}) overlaps {}", begin, begin + bytes, DescribeRange(*clash)));
  }
  Insert({begin, bytes, MemoryKind::kRegisteredHost, device, kSmallPage, mapped, false});
  return {};
}

Status MemoryRegistry::Unregister(void* pointer) {
  std::unique_lock lock(mutex_);
  const auto it = ranges_.find(reinterpret_cast<uintptr_t>(pointer));
  if (it == ranges_.end() || it->second.kind != MemoryKind::kRegisteredHost) {
    lock.unlock();
    return Error(507911,
                 fmt::format("{} is not the start of a registered range: it {}", fmt::ptr(pointer), Explain(pointer)));
  }
  ranges_.erase(it);
  return {};
}

const MemoryRange* MemoryRegistry::FindLocked(uintptr_t address) const {
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return nullptr;
  --it;
  return address < it->second.end() ? &it->second : nullptr;
}

std::optional<MemoryRange> MemoryRegistry::Find(const void* pointer) const {
  std::shared_lock lock(mutex_);
  const MemoryRange* range = FindLocked(reinterpret_cast<uintptr_t>(pointer));
  return range != nullptr ? std::optional(*range) : std::nullopt;
}

StatusOr<MemoryRange> MemoryRegistry::CheckRange(const void* pointer, uint64_t bytes, const char* what) const {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  if (begin + bytes < begin) {
    return Error(107000, fmt::format("{} {:#x} plus {} bytes wraps around", what, begin, bytes));
  }
  std::shared_lock lock(mutex_);
  if (const MemoryRange* range = FindLocked(begin)) {
    if (begin + bytes <= range->end()) return *range;
    return Error(107000, fmt::format("{} [{:#x}, {:#x}) ends {} bytes behind {}", what, begin, begin + bytes,
                                     begin + bytes - range->end(), DescribeRange(*range)))
        .Hint("keep the range inside one allocation");
  }
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first < begin + bytes) {
    return Error(107000, fmt::format("{} [{:#x}, {:#x}) begins outside of {} and runs into it", what, begin,
                                     begin + bytes, DescribeRange(next->second)))
        .Hint("keep the range inside one allocation");
  }
  MemoryRange pageable;
  pageable.begin = begin;
  pageable.bytes = bytes;
  return pageable;
}

std::string MemoryRegistry::Explain(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  std::shared_lock lock(mutex_);
  if (const MemoryRange* range = FindLocked(address)) {
    return fmt::format("points {} bytes into {}", address - range->begin, DescribeRange(*range));
  }
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return "is not memory that the runtime knows (never allocated, or freed)";
  --it;
  return fmt::format("is not memory that the runtime knows (never allocated, or freed); the nearest range below is {}",
                     DescribeRange(it->second));
}

size_t MemoryRegistry::FreeAllOfDevice(int device) {
  std::vector<MemoryRange> freed;
  {
    std::unique_lock lock(mutex_);
    for (auto it = ranges_.begin(); it != ranges_.end();) {
      if (it->second.kind == MemoryKind::kDevice && it->second.device == device) {
        used_[static_cast<size_t>(device)] -= it->second.bytes;
        freed.push_back(it->second);
        it = ranges_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const MemoryRange& range : freed) Release(range);
  return freed.size();
}

uint64_t MemoryRegistry::used_bytes(int device) const {
  std::shared_lock lock(mutex_);
  return used_[static_cast<size_t>(device)];
}

uint64_t MemoryRegistry::peak_bytes(int device) const {
  std::shared_lock lock(mutex_);
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

bool CopyUntrusted(void* dst, const void* src, size_t bytes) noexcept {
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
    const ssize_t moved = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (moved <= 0) return false;
    to += moved;
    from += moved;
    bytes -= static_cast<size_t>(moved);
  }
  return true;
}

}  // namespace reprise::device
