// SPDX-License-Identifier: Apache-2.0
//
// Net: the part of a board that lies on other machines, for one process. What ranks of this process publish is sent to
// the processes of other machines, and what those send is written to the mirror of the board. Large data travel when
// they are asked for, straight to their place.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/futex.h"
#include "base/mutex.h"
#include "base/status.h"
#include "collective/link.h"
#include "collective/wire.h"

namespace reprise::collective {

/// What one operation waits for from other machines.
struct Fetches {
  explicit Fetches(uint32_t ranks) : of_rank(new std::atomic<uint32_t>[ranks]()) {}
  std::unique_ptr<std::atomic<uint32_t>[]> of_rank;  ///< fetches that have not ended, by owner of the data
  std::atomic<uint32_t> total{0};
};

/// Threads: thread-safe, but for Connect.
class Net final : private LinkEvents {
 public:
  explicit Net(Board& board);
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;
  ~Net();

  /// Links this process with all of other machines: connects to those with a higher index, waits for those with a
  /// lower one. `endpoints` by process.
  Status Connect(const Nonce& nonce, const std::vector<Endpoint>& endpoints, Arrivals& arrivals,
                 Clock::time_point deadline);
  /// Nothing that comes is taken from now on. What was told is still sent.
  void Detach();

  // What a rank of this process has done; after it has been written to the board.
  void TellPublished(uint32_t rank, const SlotKey& key) noexcept;
  void TellMark(uint32_t rank, const SlotKey& key, wire::MarkKind mark) noexcept;
  void TellMessage(uint32_t from, uint32_t to, const SlotKey& key) noexcept;
  void TellMessageMark(uint32_t from, uint32_t to, const SlotKey& key, wire::MarkKind mark) noexcept;
  void TellRow(uint32_t rank) noexcept;
  void TellNotice(const wire::Notice& notice) noexcept;

  /// Asks for bytes of what `owner` shows in the slot or message `number`. They are written to `to` until the fetch is
  /// over or cancelled; then the board's waiters are woken.
  struct Request {
    uint32_t owner;
    uint32_t peer;  ///< of a message: who receives it
    wire::FetchKind kind;
    SlotKey key;
    uint64_t offset;
    uint64_t bytes;
    std::byte* to;
  };
  void Fetch(const Request& request, Fetches& fetches);
  /// None of these is written to from now on.
  void Cancel(Fetches& fetches) noexcept;
  /// A task begins to wait for others.
  void Call() noexcept;

 private:
  struct Want {
    Fetches* fetches;
    uint32_t owner;
    std::byte* to;
    uint64_t bytes;
    uint64_t got;
  };

  bool IsSound(uint32_t peer, const wire::Frame& frame) override;
  void OnFrame(uint32_t peer, const wire::Frame& frame, const std::byte* payload) override;
  ssize_t OnData(uint32_t peer, const wire::Frame& frame, uint64_t offset, uint64_t bytes, Reader& reader) override;
  void OnPause() override;
  void OnLost(uint32_t peer, const std::string& why) override;
  bool IsWaiting() const override;

  bool IsOf(uint32_t rank, uint32_t process) const;
  static void TakeShown(Slot& slot, const wire::Frame& frame, const std::byte* payload);
  void TakeRow(const wire::Frame& frame, const std::byte* payload);
  void Serve(uint32_t peer, const wire::Frame& frame);
  void EndFetch(uint32_t peer, const wire::Frame& frame);
  void Broadcast(const wire::Frame& frame, const void* payload) noexcept;
  void SendSlot(Slot& slot, wire::Frame frame, Link* to) noexcept;

  Board& board_;
  std::vector<std::shared_ptr<Link>> links_;  ///< by process; null for those of this machine
  Mutex rows_mutex_;
  Mutex wants_mutex_;
  uint64_t last_cookie_ REPRISE_GUARDED_BY(wants_mutex_) = 0;
  std::unordered_map<uint64_t, Want> wants_ REPRISE_GUARDED_BY(wants_mutex_);
};

/// Where the ranks of a part of a group find each other, as its first rank has told over the links of the whole.
std::optional<Endpoint> FindNotice(const Nonce& nonce);
void PutNotice(const Nonce& nonce, const Endpoint& endpoint);

}  // namespace reprise::collective
