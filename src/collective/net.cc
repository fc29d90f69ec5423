// SPDX-License-Identifier: Apache-2.0
#include "collective/net.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "collective/numbers.h"

namespace reprise::collective {
namespace {

using wire::Frame;
using wire::FrameKind;

constexpr size_t kMostNotices = 4096;

Frame MakeFrame(FrameKind kind, uint32_t rank, uint32_t peer, const SlotKey& key) {
  Frame frame{};
  frame.magic = wire::kFrameMagic;
  frame.kind = kind;
  frame.rank = rank;
  frame.peer = peer;
  frame.number = key.number;
  frame.inner = key.inner;
  return frame;
}

SlotKey KeyOf(const Frame& frame) { return {frame.number, frame.inner}; }

struct Notices {
  Mutex mutex;
  std::map<Nonce, Endpoint> by_nonce REPRISE_GUARDED_BY(mutex);
  std::deque<Nonce> oldest REPRISE_GUARDED_BY(mutex);
};
Notices& TheNotices() {
  static auto* const notices = new Notices;
  return *notices;
}

}  // namespace

std::optional<Endpoint> FindNotice(const Nonce& nonce) {
  Notices& notices = TheNotices();
  MutexLock lock(notices.mutex);
  const auto it = notices.by_nonce.find(nonce);
  return it != notices.by_nonce.end() ? std::optional(it->second) : std::nullopt;
}

void PutNotice(const Nonce& nonce, const Endpoint& endpoint) {
  Notices& notices = TheNotices();
  MutexLock lock(notices.mutex);
  if (notices.by_nonce.emplace(nonce, endpoint).second) notices.oldest.push_back(nonce);
  if (notices.oldest.size() <= kMostNotices) return;
  notices.by_nonce.erase(notices.oldest.front());
  notices.oldest.pop_front();
}

Net::Net(Board& board) : board_(board), links_(board.processes()) {}

Net::~Net() { Detach(); }

void Net::Detach() {
  for (const auto& link : links_) {
    if (link != nullptr) link->Detach();
  }
}

Status Net::Connect(const Nonce& nonce, const std::vector<Endpoint>& endpoints, Arrivals& arrivals,
                    Clock::time_point deadline) {
  REPRISE_ASSIGN_OR_RETURN(LinkThread* const thread, LinkThread::Get());
  const uint32_t own = board_.own_process;
  for (uint32_t peer = 0; peer < links_.size(); ++peer) {
    if (!board_.IsRemoteProcess(peer)) continue;
    int fd = -1;
    if (own < peer) {
      REPRISE_ASSIGN_OR_RETURN(fd, ConnectPeer(endpoints[peer], nonce, own, peer, deadline));
    } else {
      std::unique_lock lock(arrivals.mutex);
      const auto has_come = [&] { return arrivals.sockets.count(peer) != 0; };
      if (!arrivals.changed.wait_until(lock, deadline, has_come)) {
        return Error(kTimeout, fmt::format("EI0006: process {} of the group, at {}, has not connected", peer,
                                           board_.PlaceOf(peer)))
            .Culprit("the network between the machines")
            .Hint("let the machines reach each other (HCCL_IF_IP, HCCL_SOCKET_IFNAME, HCCL_NPU_SOCKET_PORT_RANGE)");
      }
      fd = arrivals.sockets[peer];
      arrivals.sockets.erase(peer);
    }
    links_[peer] = std::make_shared<Link>(fd, peer, static_cast<LinkEvents&>(*this));
  }
  // Frames may come as soon as the first link is served; all are there by now.
  for (const auto& link : links_) {
    if (link != nullptr) REPRISE_RETURN_IF_ERROR(thread->Add(link));
  }
  return {};
}

// ---- Telling ----

void Net::Broadcast(const Frame& frame, const void* payload) noexcept {
  for (const auto& link : links_) {
    if (link != nullptr) link->Post(frame, payload);
  }
}

void Net::SendSlot(Slot& slot, Frame frame, Link* to) noexcept {
  const size_t used = slot.inline_used;
  std::vector<std::byte> payload(sizeof(wire::Shown) + used);
  const wire::Shown shown{slot.descriptor, slot.send.bytes, slot.receive.bytes};
  std::memcpy(payload.data(), &shown, sizeof shown);
  if (used != 0) std::memcpy(payload.data() + sizeof shown, slot.data(), used);
  frame.flags = slot.is_inline != 0 ? 1 : 0;
  frame.bytes = payload.size();
  if (to != nullptr) {
    to->Post(frame, payload.data());
  } else {
    Broadcast(frame, payload.data());
  }
}

void Net::TellPublished(uint32_t rank, const SlotKey& key) noexcept {
  SendSlot(board_.slot(rank, key), MakeFrame(FrameKind::kPublished, rank, 0, key), nullptr);
}

void Net::TellMark(uint32_t rank, const SlotKey& key, wire::MarkKind mark) noexcept {
  Frame frame = MakeFrame(FrameKind::kMark, rank, 0, key);
  frame.flags = mark;
  Broadcast(frame, nullptr);
}

void Net::TellMessage(uint32_t from, uint32_t to, const SlotKey& key) noexcept {
  Link* const link = links_[board_.rank(to).process].get();
  if (link != nullptr) SendSlot(board_.message(from, to, key), MakeFrame(FrameKind::kMessage, from, to, key), link);
}

void Net::TellMessageMark(uint32_t from, uint32_t to, const SlotKey& key, wire::MarkKind mark) noexcept {
  Link* const link = links_[board_.rank(from).process].get();
  if (link == nullptr) return;
  Frame frame = MakeFrame(FrameKind::kMessageMark, from, to, key);
  frame.flags = mark;
  link->Post(frame);
}

void Net::TellRow(uint32_t rank) noexcept {
  // What is told last is what holds.
  MutexLock lock(rows_mutex_);
  const RankRow& row = board_.rank(rank);
  Frame frame = MakeFrame(FrameKind::kRow, rank, 0, row.epoch.load());
  frame.flags = static_cast<uint8_t>(row.state.load());
  frame.value = static_cast<uint64_t>(row.code.load());
  const std::string reason = board_.ReasonOf(rank);
  frame.bytes = reason.size();
  Broadcast(frame, reason.data());
}

void Net::TellNotice(const wire::Notice& notice) noexcept {
  Frame frame = MakeFrame(FrameKind::kNotice, 0, 0, 0);
  frame.bytes = sizeof notice;
  Broadcast(frame, &notice);
}

void Net::Call() noexcept {
  if (auto thread = LinkThread::Get(); thread.ok()) (*thread)->Call();
}

// ---- Fetching ----

void Net::Fetch(const Request& request, Fetches& fetches) {
  if (request.bytes == 0) return;
  Frame frame = MakeFrame(FrameKind::kFetch, request.owner, request.peer, request.key);
  frame.flags = request.kind;
  frame.offset = request.offset;
  frame.value = request.bytes;
  {
    MutexLock lock(wants_mutex_);
    frame.cookie = ++last_cookie_;
    wants_.emplace(frame.cookie, Want{&fetches, request.owner, request.to, request.bytes, 0});
    fetches.of_rank[request.owner].fetch_add(1);
    fetches.total.fetch_add(1);
  }
  links_[board_.rank(request.owner).process]->Post(frame);
}

void Net::Cancel(Fetches& fetches) noexcept {
  MutexLock lock(wants_mutex_);
  std::erase_if(wants_, [&](const auto& each) { return each.second.fetches == &fetches; });
}

void Net::Serve(uint32_t peer, const Frame& frame) {
  const bool is_message = frame.flags == wire::kFromMessage;
  Slot& slot =
      is_message ? board_.message(frame.rank, frame.peer, KeyOf(frame)) : board_.slot(frame.rank, KeyOf(frame));
  const BufferRef& buffer = frame.flags == wire::kFromReceive ? slot.receive : slot.send;
  const bool is_there =
      slot.Has(slot.published, KeyOf(frame)) && slot.published.load(std::memory_order_seq_cst) == KeyOf(frame).mark();
  const bool fits = is_there && frame.value != 0 && frame.offset <= buffer.bytes &&
                    frame.value <= buffer.bytes - frame.offset && buffer.address != 0;
  if (!fits) return links_[peer]->Refuse(frame.cookie);
  Shipment shipment;
  shipment.cookie = frame.cookie;
  shipment.from = reinterpret_cast<const std::byte*>(buffer.address) + frame.offset;
  shipment.bytes = frame.value;
  shipment.slot = &slot;
  shipment.key = KeyOf(frame);
  links_[peer]->Ship(shipment);
}

ssize_t Net::OnData(uint32_t peer, const Frame& frame, uint64_t offset, uint64_t bytes, Reader& reader) {
  MutexLock lock(wants_mutex_);
  const auto it = wants_.find(frame.cookie);
  const bool is_wanted = it != wants_.end() && IsOf(it->second.owner, peer) && frame.offset <= it->second.bytes &&
                         frame.bytes <= it->second.bytes - frame.offset && offset + bytes <= frame.bytes &&
                         frame.offset + offset == it->second.got;  // each byte once
  if (!is_wanted) return reader.Read(nullptr);
  const ssize_t got = reader.Read(it->second.to + frame.offset + offset);
  if (got > 0) it->second.got += static_cast<uint64_t>(got);
  return got;
}

void Net::EndFetch(uint32_t peer, const Frame& frame) {
  std::optional<uint32_t> broken;
  {
    MutexLock lock(wants_mutex_);
    const auto it = wants_.find(frame.cookie);
    if (it == wants_.end() || !IsOf(it->second.owner, peer)) return;
    const Want want = it->second;
    wants_.erase(it);
    if (frame.flags == 1 && want.got == want.bytes) {
      want.fetches->of_rank[want.owner].fetch_sub(1);
      want.fetches->total.fetch_sub(1);
    } else {
      broken = want.owner;  // it never ends; the rank is out
    }
  }
  if (broken) {
    board_.Fail(
        *broken, RankState::kFailed, kRemote,
        fmt::format("rank {} at {} has taken its buffer away while it was read", *broken, board_.PlaceOf(peer)));
  }
}

// ---- What comes ----

bool Net::IsOf(uint32_t rank, uint32_t process) const {
  return rank < board_.ranks() && board_.rank(rank).process == process;
}

bool Net::IsSound(uint32_t peer, const Frame& frame) {
  const uint32_t own = board_.own_process;
  const uint64_t shown = sizeof(wire::Shown);
  switch (frame.kind) {
    case FrameKind::kPublished:
      return IsOf(frame.rank, peer) && frame.bytes >= shown && frame.bytes <= shown + board_.inline_bytes();
    case FrameKind::kMark:
      return IsOf(frame.rank, peer) && frame.bytes == 0 &&
             (frame.flags == wire::kReduced || frame.flags == wire::kFinished);
    case FrameKind::kMessage:
      return IsOf(frame.rank, peer) && IsOf(frame.peer, own) && frame.bytes >= shown &&
             frame.bytes <= shown + board_.message_inline_bytes();
    case FrameKind::kMessageMark:
      return IsOf(frame.rank, own) && IsOf(frame.peer, peer) && frame.bytes == 0 &&
             (frame.flags == wire::kFinished || frame.flags == wire::kRefused || frame.flags == wire::kReduced);
    case FrameKind::kRow:
      return IsOf(frame.rank, peer) && frame.bytes < sizeof Reason::text &&
             frame.flags >= static_cast<uint8_t>(RankState::kReady) &&
             frame.flags <= static_cast<uint8_t>(RankState::kLeft) && frame.value <= 0xffff;
    case FrameKind::kFetch:
      return IsOf(frame.rank, own) && frame.bytes == 0 && frame.flags <= wire::kFromMessage &&
             (frame.flags != wire::kFromMessage || IsOf(frame.peer, peer));
    case FrameKind::kData: return true;
    case FrameKind::kFetched: return frame.bytes == 0;
    case FrameKind::kNotice: return frame.bytes == sizeof(wire::Notice);
  }
  return false;
}

void Net::TakeShown(Slot& slot, const Frame& frame, const std::byte* payload) {
  wire::Shown shown;
  std::memcpy(&shown, payload, sizeof shown);
  slot.Adopt(KeyOf(frame));
  slot.descriptor = shown.descriptor;
  slot.descriptor.rank = frame.rank;
  slot.is_inline = frame.flags & 1;
  slot.inline_used = static_cast<uint32_t>(frame.bytes - sizeof shown);
  slot.send = {};
  slot.receive = {};
  slot.send.bytes = shown.send_bytes;
  slot.receive.bytes = shown.receive_bytes;
  std::memcpy(slot.data(), payload + sizeof shown, slot.inline_used);
  slot.published.store(KeyOf(frame).mark(), std::memory_order_seq_cst);
}

void Net::TakeRow(const Frame& frame, const std::byte* payload) {
  const auto state = static_cast<RankState>(frame.flags);
  RankRow& row = board_.rank(frame.rank);
  row.epoch.store(frame.number);
  if (state == RankState::kReady) {
    row.code.store(0);
    row.ForgetReasons();
    row.begun.store(0);
    row.done.store(0);
    row.state.store(frame.flags, std::memory_order_seq_cst);
    return;
  }
  board_.Fail(frame.rank, state, static_cast<int>(frame.value),
              std::string_view(reinterpret_cast<const char*>(payload), frame.bytes));
}

void Net::OnFrame(uint32_t peer, const Frame& frame, const std::byte* payload) {
  const SlotKey key = KeyOf(frame);
  const uint64_t mark = key.mark();
  switch (frame.kind) {
    case FrameKind::kPublished:
      TakeShown(board_.slot(frame.rank, key), frame, payload);
      if (key.inner == 0) board_.rank(frame.rank).begun.store(mark, std::memory_order_relaxed);
      return;
    case FrameKind::kMark: {
      Slot& slot = board_.slot(frame.rank, key);
      (frame.flags == wire::kReduced ? slot.reduced : slot.finished).store(mark, std::memory_order_seq_cst);
      if (frame.flags == wire::kFinished && key.inner == 0)
        board_.rank(frame.rank).done.store(mark, std::memory_order_relaxed);
      return;
    }
    case FrameKind::kMessage: return TakeShown(board_.message(frame.rank, frame.peer, key), frame, payload);
    case FrameKind::kMessageMark: {
      Slot& entry = board_.message(frame.rank, frame.peer, key);
      std::atomic<uint64_t>& word = frame.flags == wire::kRefused   ? entry.refused
                                    : frame.flags == wire::kReduced ? entry.reduced
                                                                    : entry.finished;
      word.store(mark, std::memory_order_seq_cst);
      return;
    }
    case FrameKind::kRow: return TakeRow(frame, payload);
    case FrameKind::kFetch: return Serve(peer, frame);
    case FrameKind::kData: return;
    case FrameKind::kFetched: return EndFetch(peer, frame);
    case FrameKind::kNotice: {
      wire::Notice notice;
      std::memcpy(&notice, payload, sizeof notice);
      if (notice.endpoint.family == 4 || notice.endpoint.family == 6) PutNotice(notice.nonce, notice.endpoint);
      return;
    }
  }
}

void Net::OnPause() { board_.WakeHere(); }

void Net::OnLost(uint32_t peer, const std::string& why) {
  for (uint32_t rank = 0; rank < board_.ranks(); ++rank) {
    if (!IsOf(rank, peer)) continue;
    board_.Fail(rank, RankState::kFailed, kRemote,
                fmt::format("rank {} (process {} at {}) was killed, or its machine cannot be reached: {}", rank,
                            board_.rank(rank).pid, board_.PlaceOf(peer), why));
  }
}

bool Net::IsWaiting() const { return board_.waiting.load() != 0; }

}  // namespace reprise::collective
