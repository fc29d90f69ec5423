// SPDX-License-Identifier: Apache-2.0
#include "collective/board.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <system_error>
#include <thread>

#include "collective/net.h"
#include "collective/numbers.h"
#include "collective/watch.h"

namespace reprise::collective {

struct Board::Header {
  uint32_t magic;
  uint32_t ranks;
  std::atomic<uint32_t> processes;
};

namespace {

constexpr uint32_t kMagic = 0x52504232;
constexpr uint64_t kSlotInline = 8192;
// How long whoever asks why a rank is out waits for words that another process writes; it may have been killed at it.
constexpr int kLooksForWords = 100;
constexpr auto kBetweenLooks = std::chrono::milliseconds(1);

struct Boards {
  Mutex mutex;
  std::map<Nonce, std::weak_ptr<Board>> live REPRISE_GUARDED_BY(mutex);
};
Boards& All() {
  static auto* const boards = new Boards;
  return *boards;
}

uint64_t Align(uint64_t bytes) { return (bytes + 4095) & ~uint64_t{4095}; }

Status NoMemory(uint64_t bytes, int error) {
  return Error(kOutOfMemory, fmt::format("EI0007: the host has no {} bytes for the state of a communicator: {}", bytes,
                                         std::generic_category().message(error)))
      .Hint("free memory, or raise the limits of the process for memory and open files");
}

}  // namespace

Board::Board(const Nonce& nonce, uint32_t ranks) : nonce_(nonce), ranks_(ranks) {
  inline_bytes_ = static_cast<uint32_t>(ranks <= 16 ? kSlotInline : std::max<uint64_t>(16 * kSlotInline / ranks, 256));
  // The arrays of an AlltoAllV have room, so that ranks of other machines need not ask for them.
  inline_bytes_ = std::max(inline_bytes_, 3 * ranks * static_cast<uint32_t>(sizeof(uint64_t)));
  inline_bytes_ = (inline_bytes_ + 63) & ~63u;
  // As many pairs as the square of the ranks.
  message_ring_ = ranks <= 16 ? 8 : ranks <= 256 ? 2 : 1;
  message_inline_bytes_ = ranks <= 16 ? 4096 : ranks <= 256 ? 256 : 0;
  inner_ring_ = ranks <= 256 ? 4 : 1;
  inner_message_ring_ = ranks <= 16 ? 2 : 1;
}

// Of all slots: each rank has its ring, and behind it the rings for bodies, one for each slot of the first.
uint64_t Board::slot_bytes() const {
  return Align(uint64_t{ranks_} * kRing * (1 + inner_ring_) * (sizeof(Slot) + inline_bytes_));
}

uint64_t Board::message_bytes() const {
  return Align(uint64_t{ranks_} * ranks_ * message_ring_ * (1 + inner_message_ring_) *
               (sizeof(Slot) + message_inline_bytes_));
}

uint64_t Board::bytes() const {
  return Align(sizeof(Header)) + Align(uint64_t{ranks_} * (sizeof(RankRow) + sizeof(ProcessRow))) + slot_bytes() +
         message_bytes();
}

Status Board::Map(int fd) {
  const uint64_t size = bytes();
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED | MAP_NORESERVE;
  void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (at == MAP_FAILED) return NoMemory(size, errno);
  base_ = static_cast<std::byte*>(at);
  header_ = static_cast<Header*>(at);
  std::byte* next = base_ + Align(sizeof(Header));
  rank_rows_ = reinterpret_cast<RankRow*>(next);
  process_rows_ = reinterpret_cast<ProcessRow*>(rank_rows_ + ranks_);
  next += Align(uint64_t{ranks_} * (sizeof(RankRow) + sizeof(ProcessRow)));
  slots_ = next;
  messages_ = next + slot_bytes();
  return {};
}

StatusOr<std::shared_ptr<Board>> Board::Create(const Nonce& nonce, uint32_t ranks, bool shared) {
  std::shared_ptr<Board> board(new Board(nonce, ranks));
  if (shared) {
    board->fd_ = device::MakeMemoryFile("reprise-board", board->bytes());
    if (board->fd_ < 0) return NoMemory(board->bytes(), errno);
    board->fd_owned_ = true;
  }
  REPRISE_RETURN_IF_ERROR(board->Map(board->fd_));
  board->header_->magic = kMagic;
  board->header_->ranks = ranks;
  Boards& all = All();
  MutexLock lock(all.mutex);
  all.live[nonce] = board;
  return board;
}

StatusOr<std::shared_ptr<Board>> Board::Open(const Nonce& nonce, const device::ShareKey& key) {
  Boards& all = All();
  MutexLock lock(all.mutex);
  if (const auto it = all.live.find(nonce); it != all.live.end()) {
    if (std::shared_ptr<Board> board = it->second.lock()) return board;
  }
  REPRISE_ASSIGN_OR_RETURN(const device::Taken taken,
                           device::Take(key, device::ShareKind::kCollective, "state of a communicator"));
  const auto ranks = static_cast<uint32_t>(taken.offer().extra);
  if (ranks == 0 || ranks > kMostRanks) {
    return Error(kInternal, fmt::format("the state of a communicator has {} ranks", ranks))
        .Hint("run all ranks with one version of the library");
  }
  std::shared_ptr<Board> board(new Board(nonce, ranks));
  if (taken.offer().file_bytes != board->bytes()) {
    return Error(kInternal, "EI0008: the state of a communicator has another size than here")
        .Hint("run all ranks with one version of the library");
  }
  board->opened_ = true;
  REPRISE_RETURN_IF_ERROR(board->Map(taken.fd()));
  if (board->header_->magic != kMagic || board->header_->ranks != ranks) {
    return Error(kInternal, "EI0008: the state of a communicator is of another version")
        .Hint("run all ranks with one version of the library");
  }
  all.live[nonce] = board;
  return board;
}

std::shared_ptr<Board> Board::Find(const Nonce& nonce) {
  Boards& all = All();
  MutexLock lock(all.mutex);
  const auto it = all.live.find(nonce);
  return it != all.live.end() ? it->second.lock() : nullptr;
}

Board::~Board() {
  {
    Boards& all = All();
    MutexLock lock(all.mutex);
    if (const auto it = all.live.find(nonce_); it != all.live.end() && it->second.expired()) all.live.erase(it);
  }
  // The thread of the links may be in Fail(), which reads net_: it has left when Detach() returns.
  if (net_ != nullptr) net_->Detach();
  net_.reset();
  StopOffering();
  if (base_ != nullptr) munmap(base_, bytes());
  if (mirror_ != nullptr) munmap(mirror_, bytes());
}

Status Board::SetRemote(std::vector<bool> processes, std::vector<std::string> places,
                        const std::vector<uint32_t>& process_of) {
  void* const at = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return NoMemory(bytes(), errno);
  mirror_ = static_cast<std::byte*>(at);
  mirror_rows_ = reinterpret_cast<RankRow*>(mirror_ + (reinterpret_cast<std::byte*>(rank_rows_) - base_));
  mirror_slots_ = mirror_ + (slots_ - base_);
  mirror_messages_ = mirror_ + (messages_ - base_);
  remote_processes_ = std::move(processes);
  places_ = std::move(places);
  remote_ranks_.resize(ranks_);
  for (uint32_t rank = 0; rank < ranks_; ++rank) remote_ranks_[rank] = remote_processes_[process_of[rank]] ? 1 : 0;
  ranks_here_ = static_cast<uint32_t>(std::count(remote_ranks_.begin(), remote_ranks_.end(), 0));
  return {};
}

const std::string& Board::PlaceOf(uint32_t process) const {
  static const std::string here;
  return IsRemoteProcess(process) ? places_[process] : here;
}

void Board::set_net(std::unique_ptr<Net> net) { net_ = std::move(net); }

StatusOr<device::ShareKey> Board::Offer() {
  device::ShareOffer offer;
  offer.kind = device::ShareKind::kCollective;
  offer.fd = fd_;
  offer.file_bytes = bytes();
  offer.bytes = bytes();
  offer.extra = ranks_;
  offer.checks_pid = false;
  REPRISE_ASSIGN_OR_RETURN(key_, device::Offer(offer));
  return key_;
}

void Board::StopOffering() noexcept {
  if (fd_ < 0) return;
  if (key_.nonce != 0) device::Withdraw(key_);
  close(fd_);
  fd_ = -1;
}

uint32_t Board::processes() const { return header_->processes.load(std::memory_order_acquire); }
bool Board::IsCrowded() const { return ranks_ > 1 && 2 * ranks_here_ > static_cast<uint32_t>(device::UsableCores()); }
void Board::set_processes(uint32_t count) { header_->processes.store(count, std::memory_order_release); }

Slot& Board::slot(uint32_t rank, const SlotKey& key) const {
  const uint64_t place = (key.number & kOrdinalMask) % kRing;
  const uint64_t behind = key.inner == 0 ? place : kRing + place * inner_ring_ + (key.inner - 1) % inner_ring_;
  const uint64_t index = uint64_t{rank} * kRing * (1 + inner_ring_) + behind;
  return *reinterpret_cast<Slot*>((IsRemote(rank) ? mirror_slots_ : slots_) + index * (sizeof(Slot) + inline_bytes_));
}

Slot& Board::message(uint32_t from, uint32_t to, const SlotKey& key) const {
  const uint64_t pair = uint64_t{from} * ranks_ + to;
  const uint64_t place = (key.number & kOrdinalMask) % message_ring_;
  const uint64_t behind =
      key.inner == 0 ? place : message_ring_ + place * inner_message_ring_ + (key.inner - 1) % inner_message_ring_;
  const uint64_t index = pair * message_ring_ * (1 + inner_message_ring_) + behind;
  std::byte* const base = IsRemote(from) || IsRemote(to) ? mirror_messages_ : messages_;
  return *reinterpret_cast<Slot*>(base + index * (sizeof(Slot) + message_inline_bytes_));
}

// All have finished with what was here, and nobody looks before `task` says what it is now.
void Slot::Adopt(const SlotKey& key) noexcept {
  if (key.inner == 0 || task.load(std::memory_order_relaxed) == key.number + 1) return;
  task.store(0, std::memory_order_seq_cst);
  for (std::atomic<uint64_t>* word : {&published, &reduced, &finished, &refused, &closed})
    word->store(0, std::memory_order_relaxed);
  task.store(key.number + 1, std::memory_order_seq_cst);
}

void Board::WakeHere() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  waiters.WakeIfAnnounced();
}

void Board::Ring() noexcept {
  WakeHere();
  if (!is_shared()) return;
  const uint32_t count = processes();
  for (uint32_t i = 0; i < count; ++i) {
    if (i == own_process || IsRemoteProcess(i)) continue;
    ProcessRow& row = process_rows_[i];
    if (row.armed.load(std::memory_order_seq_cst) != 0 && row.armed.exchange(0, std::memory_order_seq_cst) != 0) {
      RingDoorbell(row.doorbell);
    }
  }
}

void Board::Fail(uint32_t rank, RankState state, int code, std::string_view reason) noexcept {
  RankRow& row = this->rank(rank);
  const auto wanted = static_cast<uint32_t>(state);
  uint32_t before = row.state.load(std::memory_order_seq_cst);
  if (before >= wanted) return;
  Reason& words = row.reason(wanted);
  uint32_t none = Reason::kNone;
  if (words.stage.compare_exchange_strong(none, Reason::kIsWritten, std::memory_order_acq_rel)) {
    const size_t length = std::min(reason.size(), sizeof words.text - 1);
    std::memcpy(words.text, reason.data(), length);
    words.text[length] = '\0';
    row.code.store(code, std::memory_order_seq_cst);
    words.stage.store(Reason::kThere, std::memory_order_release);
  }
  // Also where another process has begun to write the words: it may be killed before it says so.
  while (!row.state.compare_exchange_weak(before, wanted, std::memory_order_seq_cst)) {
    if (before >= wanted) return;
  }
  if (net_ != nullptr && row.process == own_process && !IsRemote(rank)) net_->TellRow(rank);
  Ring();
}

std::string Board::ReasonOf(uint32_t rank) const {
  RankRow& row = this->rank(rank);
  const uint32_t state = row.state.load(std::memory_order_seq_cst);
  if (state < static_cast<uint32_t>(RankState::kSuspended)) return {};
  const Reason& words = row.reason(state);
  const auto is_there = [&] { return words.stage.load(std::memory_order_acquire) == Reason::kThere; };
  for (int looks = 0; looks < kLooksForWords && !is_there(); ++looks) std::this_thread::sleep_for(kBetweenLooks);
  if (!is_there()) return fmt::format("rank {} (process {}) takes part no more", rank, row.pid);
  return std::string(words.text, strnlen(words.text, sizeof words.text));
}

}  // namespace reprise::collective
