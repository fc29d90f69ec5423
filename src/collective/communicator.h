// SPDX-License-Identifier: Apache-2.0
//
// Communicator: what one rank holds of a group: its place on the board, its counters, its error.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/handle_table.h"
#include "base/mutex.h"
#include "base/status.h"
#include "collective/address.h"
#include "collective/board.h"
#include "collective/history.h"
#include "collective/settings.h"
#include "ir/series.h"

namespace reprise::collective {

class Communicator;

HandleTable<Communicator, HandleKind::kCommunicator>& Communicators();
/// 1 for a handle that is not live, also of the process that this one was forked from.
StatusOr<Communicator*> FindCommunicator(const void* handle);
/// By name; null when there is none. With several ranks of one group in the process, that of the lowest rank; of one
/// device alone, if one is named.
Communicator* FindByName(const std::string& name, int device = -1);
/// Calls it for all of the process, which stay meanwhile.
void ForEachCommunicator(const std::function<void(const Communicator&)>& call);

/// Numbers of the operators of one communicator, or of the messages of one pair of ranks.
class Counter final : public ir::Series {
 public:
  /// Operators, or messages to or from one rank.
  enum class Of : uint8_t { kOperators, kSends, kReceives };
  explicit Counter(Communicator& owner, Of of = Of::kOperators, uint32_t peer = 0)
      : owner_(owner), of_(of), peer_(peer) {}
  Status CheckLaunch() const override;
  void Skipped(std::string_view why) noexcept override;
  std::unique_ptr<ir::Envelope> MakeEnvelope() override;
  /// With the communicator's errors gone, numbers begin anew.
  void Restart(uint64_t epoch) noexcept { Set(epoch << kEpochShift); }

 private:
  Communicator& owner_;
  const Of of_;
  const uint32_t peer_;
};

/// Threads: thread-safe. Counted: handles, tasks in queues and graphs hold one reference each.
class Communicator {
 public:
  struct Place {
    std::shared_ptr<Board> board;
    uint32_t rank;
    int device;
    std::string name;
    bool is_sub = false;
    // Of a rank table of several machines, for parts of the group: the rank's server, and its address.
    std::string server = {};
    Endpoint address = {};
  };
  /// 1 for a name that a live communicator of the device has.
  static StatusOr<Communicator*> Create(Place place, Settings settings);
  /// 20 while an operator moves data; 1 when the handle is not live.
  static Status Destroy(void* handle);
  /// All of a device: it is being reset.
  static void DropDevice(int device);

  void Retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  void* handle() const { return handle_; }
  const std::string& name() const { return place_.name; }
  uint32_t rank() const { return place_.rank; }
  uint32_t ranks() const { return place_.board->ranks(); }
  int device() const { return place_.device; }
  bool is_sub() const { return place_.is_sub; }
  const std::string& server() const { return place_.server; }
  const Endpoint& address() const { return place_.address; }
  Board& board() const { return *place_.board; }
  const std::shared_ptr<Board>& shared_board() const { return place_.board; }
  const Settings& settings() const { return settings_; }
  /// "rank 1 of 4 of group "dp""; for messages.
  std::string Describe() const;

  Counter& operators() { return operators_; }
  Counter& sends(uint32_t peer) { return *sends_[peer]; }
  Counter& receives(uint32_t peer) { return *receives_[peer]; }

  /// Whether new operators are taken: 21 after a failure, 22 while it is suspended, 1 when it is destroyed.
  Status CheckUsable() const;
  /// An operator of this rank has failed with the stored error `code`: the communicator takes no more. The first
  /// counts.
  void Fail(int code, std::string_view reason) noexcept;
  /// The stored error; 0: none.
  int error() const { return error_.load(std::memory_order_acquire); }
  std::string error_text() const;
  /// The stored error with its words; success when there is none.
  Status Failure() const;
  bool is_out() const { return place_.board->IsOut(place_.rank); }
  bool is_destroyed() const { return is_destroyed_.load(std::memory_order_acquire); }

  Status Suspend();
  Status Resume();
  bool is_suspended() const;

  /// 0, 1, … ranks - 1, and then their number; for those who want a list that stays.
  uint32_t* rank_list() const { return rank_list_.get(); }

  /// Of the operators that have begun, with HCCL_DIAGNOSE_ENABLE=1.
  History& history() { return history_; }

  /// Operators that are between their first byte and their end.
  std::atomic<uint32_t> moving{0};

  /// Where this process sees a buffer of a rank; an error when it cannot.
  StatusOr<std::byte*> Reach(uint32_t rank, const BufferRef& buffer);
  bool IsLocal(uint32_t rank) const { return place_.board->rank(rank).process == place_.board->own_process; }

 private:
  Communicator(Place place, Settings settings);
  ~Communicator();
  void Leave(const std::string& reason) noexcept;

  const Place place_;
  const Settings settings_;
  const std::unique_ptr<uint32_t[]> rank_list_;
  void* handle_ = nullptr;
  std::atomic<uint32_t> references_{1};
  std::atomic<bool> is_destroyed_{false};
  std::atomic<int> error_{0};
  mutable Mutex error_mutex_;
  std::string error_text_ REPRISE_GUARDED_BY(error_mutex_);

  History history_;
  Counter operators_;
  std::vector<std::unique_ptr<Counter>> sends_;
  std::vector<std::unique_ptr<Counter>> receives_;

  // Blocks of other processes, the newest first.
  struct Import {
    uint64_t key;
    std::byte* block;
  };
  Mutex imports_mutex_;
  std::list<Import> imports_ REPRISE_GUARDED_BY(imports_mutex_);
};

/// Called before and after a communicator is destroyed or resumed. The numbers are those of HcclCommStatePhase.
enum class Phase : int { kDestroyPre = 0, kDestroyPost = 1, kResumePre = 2, kResumePost = 3 };
using StateCallback = int (*)(void* comm, int phase, void* args);
/// Null takes the callback of that name away.
void SetStateCallback(const std::string& name, StateCallback callback, void* args);
void TellState(void* comm, Phase phase);

/// HCCL_DETERMINISTIC of the process; results never depend on it.
void SetDeterministic(int value);
int Deterministic();

/// Whether this process was forked from one that has used communicators.
bool IsForkedChild() noexcept;
/// To be called by whatever makes the first communicator.
void NoteProcess();

}  // namespace reprise::collective
