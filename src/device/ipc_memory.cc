// SPDX-License-Identifier: Apache-2.0
#include "device/ipc_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "device/memory.h"

namespace reprise::device {
namespace {

struct Exported {
  ShareKey key;
  void* pointer;
  uint64_t bytes;
  int fd;  // -1: the memory was freed
  bool checks_pid;
  uint32_t count;
};

// So many keys of freed memory are remembered, for programs that close them later.
constexpr size_t kMostForgotten = 1024;

struct Imported {
  ShareKey key;
  void* pointer;
  uint32_t count;
};

struct Tables {
  Mutex mutex;
  std::vector<Exported> exported REPRISE_GUARDED_BY(mutex);
  std::vector<Imported> imported REPRISE_GUARDED_BY(mutex);
  size_t forgotten REPRISE_GUARDED_BY(mutex) = 0;  // of the exported
};

Tables& All() {
  static auto* const tables = new Tables;
  return *tables;
}

// So that what was acquired can be kept.
template <class T>
void MakeRoom(std::vector<T>& for_one_more) {
  if (for_one_more.size() == for_one_more.capacity()) for_one_more.reserve(2 * for_one_more.size() + 8);
}

bool Same(const ShareKey& a, const ShareKey& b) { return a.Pack() == b.Pack(); }

}  // namespace

StatusOr<ShareKey> ExportMemory(void* pointer, uint64_t bytes, bool checks_pid) {
  Tables& all = All();
  MutexLock lock(all.mutex);
  for (Exported& each : all.exported) {
    if (each.fd < 0 || each.pointer != pointer || each.bytes != bytes || each.checks_pid != checks_pid) continue;
    ++each.count;
    return each.key;
  }
  MakeRoom(all.exported);
  REPRISE_ASSIGN_OR_RETURN(const MemoryRegistry::File file, MemoryRegistry::Get().Share(pointer, bytes));
  ShareOffer offer;
  offer.kind = ShareKind::kMemory;
  offer.fd = file.fd;
  offer.file_bytes = file.file_bytes;
  offer.offset = file.offset;
  offer.bytes = bytes;
  offer.checks_pid = checks_pid;
  auto key = Offer(offer);
  if (!key.ok()) {
    close(file.fd);
    return std::move(key).status();
  }
  all.exported.push_back({*key, pointer, bytes, file.fd, checks_pid, 1});
  return *key;
}

StatusOr<void*> ImportMemory(const ShareKey& key, int device) {
  if (key.pid == getpid()) {
    return Error(kInvalidValue, "the memory was exported by this very process")
        .Culprit("parameter key")
        .Hint("use the pointer that was exported; importing is for other processes");
  }
  Tables& all = All();
  MutexLock lock(all.mutex);
  for (Imported& each : all.imported) {
    if (!Same(each.key, key)) continue;
    ++each.count;
    return each.pointer;
  }
  MakeRoom(all.imported);
  REPRISE_ASSIGN_OR_RETURN(const Taken taken, Take(key, ShareKind::kMemory, "device memory"));
  const ShareOffer& offer = taken.offer();
  REPRISE_ASSIGN_OR_RETURN(void* pointer, MemoryRegistry::Get().MapForeign(
                                              device, {taken.fd(), offer.file_bytes, offer.offset}, offer.bytes));
  all.imported.push_back({key, pointer, 1});
  return pointer;
}

Status CloseMemory(const ShareKey& key) {
  Tables& all = All();
  MutexLock lock(all.mutex);
  const auto import =
      std::find_if(all.imported.begin(), all.imported.end(), [&](const Imported& i) { return Same(i.key, key); });
  if (import != all.imported.end()) {
    if (--import->count != 0) return {};
    void* pointer = import->pointer;
    all.imported.erase(import);
    return MemoryRegistry::Get().UnmapForeign(pointer);
  }
  const auto exported =
      std::find_if(all.exported.begin(), all.exported.end(), [&](const Exported& e) { return Same(e.key, key); });
  if (exported == all.exported.end()) {
    return Error(kInvalidValue, "the key names no memory that this process exports or has imported")
        .Culprit("parameter key")
        .Hint("close a key once for each export and import");
  }
  if (--exported->count != 0) return {};
  if (exported->fd >= 0) {
    Withdraw(key);
    close(exported->fd);
  } else {
    --all.forgotten;
  }
  all.exported.erase(exported);
  return {};
}

void ForgetExports(uintptr_t begin, uint64_t bytes) noexcept {
  Tables& all = All();
  MutexLock lock(all.mutex);
  for (Exported& each : all.exported) {
    if (each.fd < 0 || reinterpret_cast<uintptr_t>(each.pointer) - begin >= bytes) continue;
    Withdraw(each.key);
    close(std::exchange(each.fd, -1));
    ++all.forgotten;
  }
  for (auto oldest = all.exported.begin(); all.forgotten > kMostForgotten;) {
    if (oldest->fd >= 0) {
      ++oldest;
    } else {
      oldest = all.exported.erase(oldest);
      --all.forgotten;
    }
  }
}

}  // namespace reprise::device
