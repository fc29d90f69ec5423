// SPDX-License-Identifier: Apache-2.0
#include "device/shared_cell.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/fault.h"
#include "base/mutex.h"

namespace reprise::device {
namespace {

uint64_t PageBytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

bool IsHeld(const SharedCell& cell, bool looks) {
  if (cell.importers.load() != 0) return true;
  for (const auto& holder : cell.holders) {
    const int32_t pid = holder.load();
    if (pid != 0 && !(looks && Process::Of(pid).HasEnded())) return true;
  }
  return false;
}

}  // namespace

CellUse::~CellUse() {
  if (home_ != nullptr) home_->Return(id_);
  if (mapping_ != nullptr) {
    if (holder_ < SharedCell::kHolders) {
      cell_->holders[holder_].store(0);
    } else {
      cell_->importers.fetch_sub(1);
    }
    munmap(mapping_, PageBytes());
  }
}

StatusOr<CellUse> CellUse::Import(const ShareKey& key, ShareKind kind, const char* what) {
  REPRISE_ASSIGN_OR_RETURN(Taken taken, device::Take(key, kind, what));
  // Cells never lie across two pages.
  const uint64_t page = taken.offer().offset / PageBytes() * PageBytes();
  void* at = FaultPoint("share.map")
                 ? MAP_FAILED
                 : mmap(nullptr, PageBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, taken.fd(), static_cast<off_t>(page));
  if (at == MAP_FAILED)
    return Error(kResourceExhausted, fmt::format("the host refused to map the {} of another process", what))
        .Hint("raise the process's limit of address space (ulimit -v)");
  CellUse use;
  use.mapping_ = at;
  use.cell_ = reinterpret_cast<SharedCell*>(static_cast<char*>(at) + (taken.offer().offset - page));
  use.id_ = static_cast<int32_t>(taken.offer().extra);
  if (key.pid != getpid()) use.owner_ = Process::Of(key.pid);
  // By name, so that the cell is not held for ever when this process ends in mid-work.
  for (use.holder_ = 0; use.holder_ < SharedCell::kHolders; ++use.holder_) {
    int32_t nobody = 0;
    if (use.cell_->holders[use.holder_].compare_exchange_strong(nobody, getpid())) break;
  }
  // All places are taken: that of a process which has ended will do.
  for (size_t place = 0; place < SharedCell::kHolders && use.holder_ == SharedCell::kHolders; ++place) {
    int32_t other = use.cell_->holders[place].load();
    if (other != 0 && !Process::Of(other).HasEnded()) continue;
    if (use.cell_->holders[place].compare_exchange_strong(other, getpid())) use.holder_ = place;
  }
  if (use.holder_ == SharedCell::kHolders) use.cell_->importers.fetch_add(1);
  return use;
}

Holders CellUse::LookAtHolders() const {
  Holders found;
  found.any_lives = cell_->importers.load() != 0;
  for (const auto& holder : cell_->holders) {
    const int32_t pid = holder.load();
    if (pid == 0) continue;
    if (Process::Of(pid).HasEnded()) {
      found.ended = pid;
    } else {
      found.any_lives = true;
    }
  }
  return found;
}

StatusOr<ShareKey> CellUse::Export(ShareKind kind, bool checks_pid) const {
  ShareOffer offer;
  offer.kind = kind;
  offer.fd = home_->fd_;
  offer.file_bytes = static_cast<uint64_t>(home_->limit_) * sizeof(SharedCell);
  offer.offset = static_cast<uint64_t>(id_) * sizeof(SharedCell);
  offer.bytes = sizeof(SharedCell);
  offer.extra = static_cast<uint64_t>(id_);
  offer.checks_pid = checks_pid;
  return device::Offer(offer);
}

Status SharedCells::Map() {
  const uint64_t bytes = static_cast<uint64_t>(limit_) * sizeof(SharedCell);
  const int fd = MakeMemoryFile(label_, bytes);
  void* at = fd < 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    if (fd >= 0) close(fd);
    return Error(kResourceExhausted, fmt::format("the host refused {} bytes for {}", bytes, What()))
        .Hint("free memory of the host, or raise the limit of open files (ulimit -n)");
  }
  cells_ = static_cast<SharedCell*>(at);  // zeroes, which is what an empty cell is
  fd_ = fd;
  return {};
}

StatusOr<CellUse> SharedCells::Take() {
  MutexLock lock(mutex_);
  if (cells_ == nullptr) REPRISE_RETURN_IF_ERROR(Map());
  Reclaim(false);
  if (free_.empty() && used_ == limit_) Reclaim(true);
  int32_t id = -1;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else if (used_ < limit_) {
    id = used_++;
    free_.reserve(static_cast<size_t>(used_));  // so that Return cannot fail
    lingering_.reserve(static_cast<size_t>(used_));
  } else {
    return Error(kResourceExhausted, fmt::format("all {} {} are in use", limit_, What()));
  }
  CellUse use;
  use.cell_ = new (&cells_[id]) SharedCell;
  use.home_ = this;
  use.id_ = id;
  return use;
}

void SharedCells::Reclaim(bool looks) {
  const auto let_go = std::partition(lingering_.begin(), lingering_.end(),
                                     [&](int32_t id) REPRISE_REQUIRES(mutex_) { return IsHeld(cells_[id], looks); });
  free_.insert(free_.end(), let_go, lingering_.end());
  lingering_.erase(let_go, lingering_.end());
}

void SharedCells::Return(int32_t id) noexcept {
  MutexLock lock(mutex_);
  (IsHeld(cells_[id], false) ? lingering_ : free_).push_back(id);
}

}  // namespace reprise::device
