// SPDX-License-Identifier: Apache-2.0
//
// Small pieces of state that several processes may see: the bit of a notify, the counters of an event. They live in a
// memory file of the process that made them, so that exporting one moves nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "device/share.h"

namespace reprise::device {

struct alignas(64) SharedCell {
  static constexpr size_t kHolders = 8;

  std::atomic<uint32_t> bit{0};        ///< of a notify
  std::atomic<uint32_t> importers{0};  ///< uses by other processes that found no place in `holders`
  std::atomic<uint64_t> issued{0};     ///< of an event: records that were submitted, and by whom the newest (Issued),
  std::atomic<uint64_t> done{0};       ///<   and the number of the newest that has run
  std::array<std::atomic<int32_t>, kHolders> holders{};  ///< process ids of those who hold it, 0: nobody
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

/// What an event's cell says about its newest record, in one word: number and process.
struct Issued {
  uint64_t number = 0;  ///< 0: never recorded
  int32_t pid = 0;

  uint64_t Pack() const { return (number << 22) | static_cast<uint64_t>(pid); }  // 22 bits: the kernel's limit
  static Issued Unpack(uint64_t word) { return {word >> 22, static_cast<int32_t>(word & 0x3FFFFF)}; }
};

class SharedCells;

/// The other processes that have imported a cell and not given it back.
struct Holders {
  bool any_lives = false;  ///< or may live: not all are known by name
  int32_t ended = 0;       ///< one that has ended; 0: none
};

/// One use of a cell that this process or another one made; the destructor gives it back.
class CellUse {
 public:
  CellUse() = default;
  CellUse(CellUse&& other) noexcept { *this = std::move(other); }
  CellUse& operator=(CellUse&& other) noexcept {
    std::swap(cell_, other.cell_);
    std::swap(home_, other.home_);
    std::swap(mapping_, other.mapping_);
    std::swap(id_, other.id_);
    std::swap(owner_, other.owner_);
    std::swap(holder_, other.holder_);
    return *this;
  }
  ~CellUse();

  /// Opens the cell that another process (or this one) offers.
  static StatusOr<CellUse> Import(const ShareKey& key, ShareKind kind, const char* what);

  SharedCell* operator->() const { return cell_; }
  bool imported() const { return mapping_ != nullptr; }
  /// The process that made an imported cell.
  const Process& owner() const { return owner_; }
  /// Number in the process that made the cell.
  int32_t id() const { return id_; }
  /// Which other processes hold a cell that this process has made. Costs some microseconds for each of them.
  Holders LookAtHolders() const;
  /// Offers a cell of this process.
  StatusOr<ShareKey> Export(ShareKind kind, bool checks_pid) const;

 private:
  friend class SharedCells;
  SharedCell* cell_ = nullptr;
  SharedCells* home_ = nullptr;
  void* mapping_ = nullptr;
  size_t holder_ = SharedCell::kHolders;  // index in SharedCell::holders that notes this use
  int32_t id_ = -1;
  Process owner_;
};

/// The cells of one sort. Lives as long as the process.
///
/// Threads: thread-safe.
class SharedCells {
 public:
  SharedCells(const char* label, int64_t limit) : label_(label), limit_(limit) {}
  SharedCells(const SharedCells&) = delete;
  SharedCells& operator=(const SharedCells&) = delete;

  /// An empty cell. 207005 when none is left, or when the host has no memory.
  StatusOr<CellUse> Take();
  int64_t limit() const { return limit_; }

 private:
  friend class CellUse;
  Status Map() REPRISE_REQUIRES(mutex_);
  void Return(int32_t id) noexcept;
  /// Makes cells free again that nobody holds any longer; `looks`: not even processes that have ended.
  void Reclaim(bool looks) REPRISE_REQUIRES(mutex_);

  /// For messages: the label without the name of the project.
  const char* What() const { return label_ + sizeof("reprise"); }

  const char* const label_;
  const int64_t limit_;
  Mutex mutex_;
  SharedCell* cells_ = nullptr;  // set by the first Take, as fd_
  int fd_ = -1;
  int32_t used_ REPRISE_GUARDED_BY(mutex_) = 0;
  std::vector<int32_t> free_ REPRISE_GUARDED_BY(mutex_);
  std::vector<int32_t> lingering_ REPRISE_GUARDED_BY(mutex_);  // destroyed here, still held by another process
};

}  // namespace reprise::device
