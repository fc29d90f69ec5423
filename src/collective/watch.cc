// SPDX-License-Identifier: Apache-2.0
#include "collective/watch.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <map>
#include <system_error>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "collective/board.h"
#include "collective/numbers.h"

namespace reprise::collective {
namespace {

constexpr uint64_t kPage = 4096;
// How often the thread looks whether processes live while tasks wait: a death shows within twice that.
constexpr long kLookMs = 40;
// So many looks find nobody waiting before the thread sleeps for good.
constexpr int kIdleLooks = 5;

// The futex of several processes.
void WaitShared(std::atomic<uint32_t>& word, uint32_t seen, const timespec* timeout) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, timeout, nullptr, 0);
}
void WakeShared(std::atomic<uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

struct Bell {
  std::atomic<uint32_t> word;
};

struct Watched {
  std::weak_ptr<Board> board;
  std::vector<device::Process> processes;  // by index; none for this process and for those that have ended
};

struct State {
  Mutex mutex;
  Bell* own REPRISE_GUARDED_BY(mutex) = nullptr;
  device::ShareKey own_key REPRISE_GUARDED_BY(mutex);
  pid_t pid REPRISE_GUARDED_BY(mutex) = 0;
  std::vector<Watched> boards REPRISE_GUARDED_BY(mutex);
  std::atomic<bool> sleeps{false};   // the thread looks at nothing until it is called
  std::atomic<Bell*> bell{nullptr};  // `own`, for those without the lock

  SharedMutex bells_mutex;
  std::map<uint64_t, Bell*> bells REPRISE_GUARDED_BY(bells_mutex);  // of others, by key; never unmapped
};

State& The() {
  static auto* const state = new State;
  return *state;
}

Bell* MapBell(int fd) {
  void* const at = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Bell*>(at);
}

// Marks the ranks of processes that have ended.
void LookAfter(Board& board, std::vector<device::Process>& processes) {
  for (uint32_t i = 0; i < processes.size(); ++i) {
    if (!processes[i].HasEnded()) continue;
    const int32_t pid = processes[i].pid();
    processes[i] = {};
    for (uint32_t rank = 0; rank < board.ranks(); ++rank) {
      if (board.rank(rank).process != i) continue;
      board.Fail(rank, RankState::kFailed, kRemote,
                 fmt::format("rank {} (process {}) was killed, or ended without HcclCommDestroy", rank, pid));
    }
  }
}

void WatchLoop(Bell* bell) {
  State& state = The();
  uint32_t seen = bell->word.load(std::memory_order_seq_cst);
  int idle_looks = 0;
  for (;;) {
    bool anybody_waits = false;
    std::vector<std::shared_ptr<Board>> boards;  // the last reference may go with it, without the lock
    {
      MutexLock lock(state.mutex);
      for (size_t i = 0; i < state.boards.size();) {
        std::shared_ptr<Board> board = state.boards[i].board.lock();
        if (board == nullptr) {
          state.boards[i] = std::move(state.boards.back());
          state.boards.pop_back();
          continue;
        }
        if (idle_looks >= 0) LookAfter(*board, state.boards[i].processes);
        boards.push_back(std::move(board));
        ++i;
      }
    }
    for (const std::shared_ptr<Board>& board : boards) board->waiters.WakeIfAnnounced();
    for (const std::shared_ptr<Board>& board : boards) anybody_waits |= board->waiting.load() != 0;
    // Work that goes on parks again and again: only after a while without any the thread has to be called.
    idle_looks = anybody_waits ? 0 : idle_looks < 0 ? 0 : idle_looks + 1;
    bool sleeps = idle_looks > kIdleLooks;
    if (sleeps) {
      state.sleeps.store(true, std::memory_order_seq_cst);
      for (const std::shared_ptr<Board>& board : boards) sleeps &= board->waiting.load() == 0;
    }
    boards.clear();
    const timespec soon{0, kLookMs * 1'000'000};
    WaitShared(bell->word, seen, sleeps ? nullptr : &soon);
    state.sleeps.store(false, std::memory_order_seq_cst);
    const uint32_t now = bell->word.load(std::memory_order_seq_cst);
    if (now != seen) idle_looks = -1;  // rung: nobody's death
    seen = now;
  }
}

}  // namespace

StatusOr<device::ShareKey> OwnDoorbell() {
  State& state = The();
  MutexLock lock(state.mutex);
  if (state.own != nullptr && state.pid == getpid()) return state.own_key;
  const int fd = device::MakeMemoryFile("reprise-doorbell", kPage);
  Bell* const bell = fd < 0 ? nullptr : MapBell(fd);
  if (bell == nullptr) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return Error(kOutOfMemory,
                 fmt::format("EI0007: no memory file for a doorbell: {}", std::generic_category().message(error)))
        .Hint("free memory, or raise the limit of open files (ulimit -n)");
  }
  device::ShareOffer offer;
  offer.kind = device::ShareKind::kCollective;
  offer.fd = fd;  // stays open: it is how others find the file
  offer.file_bytes = kPage;
  offer.bytes = kPage;
  offer.checks_pid = false;
  REPRISE_ASSIGN_OR_RETURN(state.own_key, device::Offer(offer));
  try {
    std::thread(WatchLoop, bell).detach();
  } catch (const std::system_error& error) {
    return Error(kSystemCall, fmt::format("no thread for communicators: {}", error.what()))
        .Hint("raise the limit of threads (ulimit -u)");
  }
  state.own = bell;
  state.bell.store(bell, std::memory_order_release);
  state.pid = getpid();
  return state.own_key;
}

Status OpenDoorbells(const Board& board) {
  State& state = The();
  for (uint32_t i = 0; i < board.processes(); ++i) {
    if (i == board.own_process || board.IsRemoteProcess(i)) continue;
    const device::ShareKey key = board.process(i).doorbell;
    MutexLock lock(state.bells_mutex);
    if (state.bells.count(key.Pack()) != 0) continue;
    REPRISE_ASSIGN_OR_RETURN(const device::Taken taken,
                             device::Take(key, device::ShareKind::kCollective, "doorbell of a rank"));
    Bell* const bell = MapBell(taken.fd());
    if (bell == nullptr)
      return Error(kOutOfMemory, "EI0007: no address space for the doorbell of another process")
          .Hint("raise the process's limit of address space (ulimit -v)");
    state.bells.emplace(key.Pack(), bell);
  }
  return {};
}

void RingDoorbell(const device::ShareKey& key) noexcept {
  State& state = The();
  Bell* bell = nullptr;
  {
    ReaderLock lock(state.bells_mutex);
    const auto it = state.bells.find(key.Pack());
    if (it != state.bells.end()) bell = it->second;
  }
  if (bell == nullptr) return;
  bell->word.fetch_add(1, std::memory_order_seq_cst);
  WakeShared(bell->word);
}

void CallWatcher() noexcept {
  State& state = The();
  if (!state.sleeps.load(std::memory_order_seq_cst)) return;
  if (Bell* const bell = state.bell.load(std::memory_order_acquire)) {
    bell->word.fetch_add(1, std::memory_order_seq_cst);
    WakeShared(bell->word);
  }
}

void WatchBoard(const std::shared_ptr<Board>& board) {
  Watched watched{board, {}};
  for (uint32_t i = 0; i < board->processes(); ++i) {
    const bool is_watched = i != board->own_process && !board->IsRemoteProcess(i);
    watched.processes.push_back(is_watched ? device::Process::Of(board->process(i).pid) : device::Process());
  }
  State& state = The();
  MutexLock lock(state.mutex);
  for (const Watched& other : state.boards) {
    if (other.board.lock() == board) return;
  }
  state.boards.push_back(std::move(watched));
}

}  // namespace reprise::collective
