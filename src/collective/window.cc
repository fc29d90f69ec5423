// SPDX-License-Identifier: Apache-2.0
#include "collective/window.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/calls.h"
#include "base/mutex.h"
#include "collective/numbers.h"
#include "collective/operation.h"
#include "device/memory.h"
#include "runtime/context.h"

namespace reprise::collective {
namespace {

Status BadMemory(const char* parameter, std::string what, const char* hint) {
  return Error(kParameter, std::move(what)).Culprit(fmt::format("parameter {}", parameter)).Hint(hint);
}
Status UnknownMemory(const char* what) {
  return Error(kNotFound, fmt::format("there is no such {}", what))
      .Culprit("the address or handle")
      .Hint("pass what was registered before, and is not withdrawn");
}

// Ranges by their beginning; they never overlap.
class Ranges {
 public:
  bool Overlaps(uintptr_t begin, uint64_t bytes) const {
    const auto after = all_.lower_bound(begin + bytes);
    return after != all_.begin() && std::prev(after)->first + std::prev(after)->second > begin;
  }
  bool Contains(uintptr_t begin, uint64_t bytes) const {
    const auto after = all_.upper_bound(begin);
    return after != all_.begin() && begin + bytes <= std::prev(after)->first + std::prev(after)->second;
  }
  void Add(uintptr_t begin, uint64_t bytes) { all_.emplace(begin, bytes); }
  uint64_t Remove(uintptr_t begin) {
    const auto it = all_.find(begin);
    if (it == all_.end()) return 0;
    const uint64_t bytes = it->second;
    all_.erase(it);
    return bytes;
  }
  uint64_t BytesAt(uintptr_t begin) const {
    const auto it = all_.find(begin);
    return it != all_.end() ? it->second : 0;
  }

 private:
  std::map<uintptr_t, uint64_t> all_;
};

struct Books {
  Mutex mutex;
  Ranges ranges REPRISE_GUARDED_BY(mutex);
  Ranges active REPRISE_GUARDED_BY(mutex);
};
Books& TheBooks() {
  static auto* const books = new Books;
  return *books;
}

struct Window {
  void* communicator;  // its handle
  std::byte* base;
  uint64_t bytes;
  std::vector<std::byte*> peers;  // of a symmetric one
};

// Handles are numbers, which no address is.
struct Windows {
  Mutex mutex;
  uint64_t last REPRISE_GUARDED_BY(mutex) = 0;
  std::map<uint64_t, Window> live REPRISE_GUARDED_BY(mutex);

  void* Add(Window window) {
    MutexLock lock(mutex);
    live.emplace(++last, std::move(window));
    return reinterpret_cast<void*>(last);
  }
};
Windows& TheWindows() {
  static auto* const windows = new Windows;
  return *windows;
}
uint64_t KeyOf(const void* window) { return reinterpret_cast<uint64_t>(window); }

Status CheckMemory(const Communicator& communicator, const void* base, uint64_t bytes) {
  if (bytes == 0) return BadMemory("size", "size is 0", "pass the bytes of the window");
  auto range = device::MemoryRegistry::Get().CheckRange(base, bytes, "addr");
  if (!range.ok() || range->kind == device::MemoryKind::kPageable) {
    return BadMemory("addr",
                     fmt::format("addr is no memory of a device: {}", device::MemoryRegistry::Get().Explain(base)),
                     "pass memory of aclrtMalloc");
  }
  (void)communicator;
  return {};
}

// What each rank tells of its window.
struct Told {
  uint64_t bytes;
  BufferRef buffer;
};

// An AllGather by the host: on a stream of its own, which it waits for.
Status Exchange(Communicator& communicator, const Told& own, std::vector<Told>& all) {
  REPRISE_ASSIGN_OR_RETURN(runtime::Device * device, runtime::FindDevice(communicator.device()));
  REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, device->Open());
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * stream, runtime::Stream::Create(*context, {}));
  all.resize(communicator.ranks());
  Call call;
  call.op = Operator::kAllGather;
  call.type = static_cast<uint8_t>(DataType::kUInt8);
  call.count = sizeof own;
  call.send = reinterpret_cast<const std::byte*>(&own);
  call.receive = reinterpret_cast<std::byte*>(all.data());
  Status status = Submit(*stream, communicator, std::move(call));
  if (status.ok()) {
    const WaitingCall waiting;
    const auto timeout = std::chrono::duration<double>(TheEnvironment().connect_timeout_s);
    status = stream->Synchronize(Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout));
  }
  runtime::Stream::Destroy(stream, runtime::Stream::DestroyMode::kForce);
  return status;
}

}  // namespace

// ---- Books ----

Status SetMemoryRange(uintptr_t base, uint64_t bytes) {
  Books& books = TheBooks();
  MutexLock lock(books.mutex);
  if (bytes == 0 || base + bytes < base)
    return BadMemory("size", fmt::format("size {} is none of a range", bytes), "pass the bytes of a reserved range");
  if (books.ranges.Overlaps(base, bytes))
    return BadMemory("baseVirPtr", "the range overlaps one that was set before", "set each range once");
  books.ranges.Add(base, bytes);
  return {};
}

Status UnsetMemoryRange(uintptr_t base) {
  Books& books = TheBooks();
  MutexLock lock(books.mutex);
  const uint64_t bytes = books.ranges.BytesAt(base);
  if (bytes == 0) return UnknownMemory("range");
  if (books.active.Overlaps(base, bytes))
    return BadMemory("baseVirPtr", "memory of the range is active", "deactivate it first");
  books.ranges.Remove(base);
  return {};
}

Status ActivateMemory(uintptr_t base, uint64_t bytes) {
  Books& books = TheBooks();
  MutexLock lock(books.mutex);
  if (bytes == 0 || !books.ranges.Contains(base, bytes))
    return BadMemory("virPtr", "the memory is not within a range that was set", "call HcclCommSetMemoryRange first");
  if (books.active.Overlaps(base, bytes))
    return BadMemory("virPtr", "the memory overlaps one that is active", "activate memory once");
  books.active.Add(base, bytes);
  return {};
}

Status DeactivateMemory(uintptr_t base) {
  Books& books = TheBooks();
  MutexLock lock(books.mutex);
  return books.active.Remove(base) != 0 ? Status() : UnknownMemory("active memory");
}

// ---- Windows ----

StatusOr<void*> RegisterWindow(Communicator& communicator, void* base, uint64_t bytes) {
  REPRISE_RETURN_IF_ERROR(CheckMemory(communicator, base, bytes));
  return TheWindows().Add({communicator.handle(), static_cast<std::byte*>(base), bytes, {}});
}

Status CheckWindow(const Communicator& communicator, void* window) {
  Windows& windows = TheWindows();
  MutexLock lock(windows.mutex);
  const auto it = windows.live.find(KeyOf(window));
  return it != windows.live.end() && it->second.communicator == communicator.handle() ? Status()
                                                                                      : UnknownMemory("window");
}

Status DeregisterWindow(const Communicator& communicator, void* window) {
  REPRISE_RETURN_IF_ERROR(CheckWindow(communicator, window));
  return DeregisterSymmetric(window);
}

StatusOr<void*> RegisterSymmetric(Communicator& communicator, void* base, uint64_t bytes) {
  REPRISE_RETURN_IF_ERROR(CheckMemory(communicator, base, bytes));
  REPRISE_RETURN_IF_ERROR(communicator.CheckUsable());
  if (bytes > communicator.settings().window_gb << 30)
    return BadMemory("size",
                     fmt::format("size is {} bytes, the most is {} GB", bytes, communicator.settings().window_gb),
                     "raise hcclSymWinMaxMemSizePerRank");
  Told own{bytes, {}};
  void* staged = nullptr;
  REPRISE_ASSIGN_OR_RETURN(own.buffer, Expose(communicator, base, bytes, &staged));
  const bool is_copy = staged != nullptr;
  FreeStaged(&staged);
  if (is_copy) own.bytes = 0;  // others could not see it; all learn that
  std::vector<Told> all;
  REPRISE_RETURN_IF_ERROR(Exchange(communicator, own, all));
  Window window{communicator.handle(), static_cast<std::byte*>(base), bytes, {}};
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].bytes != all[0].bytes || all[rank].bytes == 0) {
      return BadMemory(
          "size",
          fmt::format("windows have different sizes, or one cannot be shared: {} bytes on rank 0, {} on rank {}",
                      all[0].bytes, all[rank].bytes, rank),
          "register memory of aclrtMalloc of one size on all ranks");
    }
    if (communicator.board().IsRemote(rank)) {
      window.peers.push_back(nullptr);  // seen on its machine alone
      continue;
    }
    REPRISE_ASSIGN_OR_RETURN(std::byte* const at,
                             rank == communicator.rank() ? window.base : communicator.Reach(rank, all[rank].buffer));
    window.peers.push_back(at);
  }
  return TheWindows().Add(std::move(window));
}

Status DeregisterSymmetric(void* window) {
  Windows& windows = TheWindows();
  MutexLock lock(windows.mutex);
  return windows.live.erase(KeyOf(window)) != 0 ? Status() : UnknownMemory("window");
}

StatusOr<void*> FindSymmetric(const Communicator& communicator, const void* pointer, uint64_t bytes, size_t* offset) {
  Windows& windows = TheWindows();
  MutexLock lock(windows.mutex);
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  for (const auto& [key, window] : windows.live) {
    const auto base = reinterpret_cast<uintptr_t>(window.base);
    if (window.peers.empty() || window.communicator != communicator.handle() || at < base) continue;
    if (at - base > window.bytes || bytes > window.bytes - (at - base)) continue;
    *offset = at - base;
    return reinterpret_cast<void*>(key);
  }
  return UnknownMemory("window");
}

StatusOr<void*> PeerPointer(void* handle, size_t offset, uint32_t peer) {
  Windows& windows = TheWindows();
  MutexLock lock(windows.mutex);
  const auto it = windows.live.find(KeyOf(handle));
  if (it == windows.live.end() || it->second.peers.empty()) return UnknownMemory("window");
  if (peer >= it->second.peers.size())
    return BadMemory("peerRank",
                     fmt::format("peerRank is {}, the communicator has {} ranks", peer, it->second.peers.size()),
                     "pass a rank of the communicator");
  if (offset >= it->second.bytes)
    return BadMemory("offset", fmt::format("offset is {}, the window has {} bytes", offset, it->second.bytes),
                     "stay within the window");
  if (it->second.peers[peer] == nullptr) {
    return Error(kNotSupported, fmt::format("rank {} is on another machine, whose memory is not seen here", peer))
        .Culprit("parameter peerRank")
        .Hint("ask for ranks of this machine, or exchange data with operators");
  }
  return static_cast<void*>(it->second.peers[peer] + offset);
}

}  // namespace reprise::collective
