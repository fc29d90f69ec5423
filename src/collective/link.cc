// SPDX-License-Identifier: Apache-2.0
#include "collective/link.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/env.h"
#include "collective/numbers.h"
#include "collective/socket.h"

namespace reprise::collective {
namespace {

constexpr size_t kInput = 64 << 10;
// Of a frame that is no data: the small data of a rank among the most that there may be.
constexpr size_t kMostPayload = 192 << 10;
// A peer asks for more only when it reads what it has asked for: far above what its operators can have under way.
constexpr size_t kMostAnswers = 1 << 18;
constexpr uint64_t kReadAtOnce = 1 << 20;
// A machine that has not confirmed data for so long is gone.
constexpr uint32_t kSilenceMs = 20'000;

bool CountsSilence() { return Env(EnvVar::kHcclDfsConfig).find("cluster_heartbeat:off") == std::string::npos; }

void Tune(int fd) {
  const auto set = [fd](int level, int name, int value) { (void)setsockopt(fd, level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  if (!CountsSilence()) return;
  // An idle connection to a machine that is gone ends within 5 + 3 * 5 seconds. The kernel of the other side answers,
  // so a process that is stopped is not taken for one.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// Memory of a shipment that was taken away: the rest of its piece.
const std::byte* Zeros() {
  static const auto* const zeros = new std::array<std::byte, 4096>{};
  return zeros->data();
}

std::vector<std::byte> Join(const wire::Frame& frame, const void* payload) {
  std::vector<std::byte> bytes(sizeof frame + frame.bytes);
  std::memcpy(bytes.data(), &frame, sizeof frame);
  if (frame.bytes != 0) std::memcpy(bytes.data() + sizeof frame, payload, frame.bytes);
  return bytes;
}

wire::Frame FetchedFrame(uint64_t cookie, bool is_whole) {
  wire::Frame frame{};
  frame.magic = wire::kFrameMagic;
  frame.kind = wire::FrameKind::kFetched;
  frame.flags = is_whole ? 1 : 0;
  frame.cookie = cookie;
  return frame;
}

}  // namespace

Link::Link(int fd, uint32_t peer, LinkEvents& events) : fd_(fd), peer_(peer), events_(&events) {
  Tune(fd);
  in_.resize(kInput);
  HideFromChildren(fd);
}
Link::~Link() {
  NoLongerHidden(fd_);
  close(fd_);
}

// ---- Output ----

void Link::Post(const wire::Frame& frame, const void* payload) noexcept {
  if (is_lost_.load(std::memory_order_acquire)) return;
  MutexLock lock(out_mutex_);
  size_t sent = 0;
  if (!has_current_ && frames_.empty() && shipments_.empty()) {
    iovec parts[2] = {{const_cast<wire::Frame*>(&frame), sizeof frame}, {const_cast<void*>(payload), frame.bytes}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = frame.bytes != 0 ? 2 : 1;
    const ssize_t count = sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return;  // the reading side sees the end, too
    sent = count > 0 ? static_cast<size_t>(count) : 0;
    if (sent == sizeof frame + frame.bytes) return;
    has_current_ = true;
    current_ = {};
    current_.head = Join(frame, payload);
    current_.head_sent = sent;
  } else {
    frames_.push_back(Join(frame, payload));
  }
  ArmLocked();
}

void Link::ArmLocked() {
  if (is_armed_) return;
  is_armed_ = true;
  if (auto thread = LinkThread::Get(); thread.ok()) (*thread)->Arm(*this, true);
}

void Link::Refuse(uint64_t cookie) noexcept {
  {
    MutexLock lock(out_mutex_);
    if (HangsUpLocked()) return;
  }
  Post(FetchedFrame(cookie, false));
}

bool Link::HangsUpLocked() noexcept {
  if (frames_.size() + shipments_.size() < kMostAnswers) return false;
  shutdown(fd_, SHUT_RDWR);  // the reading side sees it
  return true;
}

void Link::Ship(const Shipment& shipment) {
  MutexLock lock(out_mutex_);
  if (HangsUpLocked()) return;
  shipments_.push_back(shipment);
  if (SendAllLocked() == Progress::kBlocked) ArmLocked();
}

// The next thing to send: short frames first, then a piece of the shipment that was served longest ago.
bool Link::NextLocked() {
  current_ = {};
  has_current_ = false;
  if (!frames_.empty()) {
    current_.head = std::move(frames_.front());
    frames_.pop_front();
    has_current_ = true;
    return true;
  }
  if (shipments_.empty()) return false;
  Shipment shipment = shipments_.front();
  shipments_.pop_front();
  current_.shipment = shipment;
  current_.offset = shipment.sent;
  current_.body = std::min(shipment.bytes - shipment.sent, wire::kPiece);
  wire::Frame frame{};
  frame.magic = wire::kFrameMagic;
  frame.kind = wire::FrameKind::kData;
  frame.cookie = shipment.cookie;
  frame.offset = shipment.sent;
  current_.head = Join(frame, nullptr);
  const uint64_t bytes = current_.body;
  std::memcpy(current_.head.data() + offsetof(wire::Frame, bytes), &bytes, sizeof bytes);
  has_current_ = true;
  return true;
}

ssize_t Link::SendBodyLocked() {
  const uint64_t left = current_.body - current_.body_sent;
  const Shipment& shipment = current_.shipment;
  if (!current_.is_broken && shipment.slot != nullptr) {
    Slot& slot = *shipment.slot;
    slot.readers.fetch_add(1, std::memory_order_seq_cst);
    const bool is_open = slot.IsOpen(shipment.key);
    ssize_t sent = -1;
    if (is_open) {
      sent = send(fd_, shipment.from + current_.offset + current_.body_sent, left, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else {
      current_.is_broken = true;
    }
    slot.readers.fetch_sub(1, std::memory_order_seq_cst);
    if (is_open) return sent;
  }
  current_.is_broken = true;
  return send(fd_, Zeros(), std::min<uint64_t>(left, 4096), MSG_NOSIGNAL | MSG_DONTWAIT);
}

Link::Progress Link::SendCurrentLocked() {
  while (current_.head_sent < current_.head.size() || current_.body_sent < current_.body) {
    const bool is_head = current_.head_sent < current_.head.size();
    const int more = is_head && current_.body != 0 ? MSG_MORE : 0;
    const ssize_t sent = is_head ? send(fd_, current_.head.data() + current_.head_sent,
                                        current_.head.size() - current_.head_sent, MSG_NOSIGNAL | MSG_DONTWAIT | more)
                                 : SendBodyLocked();
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN ? Progress::kBlocked : Progress::kFailed;
    (is_head ? current_.head_sent : current_.body_sent) += static_cast<size_t>(sent);
  }
  return Progress::kDone;
}

Link::Progress Link::SendAllLocked() {
  while (has_current_ || NextLocked()) {
    if (const Progress progress = SendCurrentLocked(); progress != Progress::kDone) return progress;
    if (current_.body != 0) {
      Shipment shipment = current_.shipment;
      shipment.sent += current_.body;
      if (current_.is_broken || shipment.sent == shipment.bytes) {
        frames_.push_back(Join(FetchedFrame(shipment.cookie, !current_.is_broken), nullptr));
      } else {
        shipments_.push_back(shipment);
      }
    }
    has_current_ = false;
  }
  return Progress::kDone;
}

void Link::OnWritable() {
  MutexLock lock(out_mutex_);
  const Progress progress = SendAllLocked();
  if (progress == Progress::kBlocked || !is_armed_) return;
  is_armed_ = false;
  if (auto thread = LinkThread::Get(); thread.ok()) (*thread)->Arm(*this, false);
  if (progress == Progress::kDone && is_detached_.load() && !is_shut_) {
    is_shut_ = true;
    shutdown(fd_, SHUT_WR);
  }
}

void Link::Detach() {
  {
    MutexLock lock(events_mutex_);
    events_ = nullptr;
  }
  {
    MutexLock lock(out_mutex_);
    // What peers have asked for is going away.
    for (const Shipment& shipment : shipments_) frames_.push_back(Join(FetchedFrame(shipment.cookie, false), nullptr));
    shipments_.clear();
    if (has_current_ && current_.body != 0) {
      current_.is_broken = true;
      current_.shipment.slot = nullptr;
    }
    is_detached_.store(true);
    const Progress progress = SendAllLocked();
    if (progress == Progress::kDone && !is_shut_) {
      is_shut_ = true;
      shutdown(fd_, SHUT_WR);
    } else if (progress == Progress::kBlocked) {
      ArmLocked();
    }
  }
  if (auto thread = LinkThread::Get(); thread.ok()) (*thread)->Wake();
}

bool Link::Flush(Clock::time_point deadline) noexcept {
  for (;;) {
    {
      MutexLock lock(out_mutex_);
      if (is_lost_.load() || SendAllLocked() != Progress::kBlocked) return true;
    }
    if (Clock::now() >= deadline) return false;
    usleep(1000);
  }
}

// ---- Input ----

void Link::Lose(const std::string& why) {
  if (is_lost_.exchange(true)) return;
  MutexLock lock(events_mutex_);
  if (events_ != nullptr) events_->OnLost(peer_, why);
}

namespace {

// Reads what lies in the buffer already, or from the socket.
class BufferReader final : public LinkEvents::Reader {
 public:
  BufferReader(const std::byte* from, size_t bytes) : from_(from), bytes_(bytes) {}
  ssize_t Read(std::byte* to) override {
    if (to != nullptr) std::memcpy(to, from_, bytes_);
    return static_cast<ssize_t>(bytes_);
  }

 private:
  const std::byte* from_;
  size_t bytes_;
};
class SocketReader final : public LinkEvents::Reader {
 public:
  SocketReader(int fd, size_t bytes, std::vector<std::byte>& scratch) : fd_(fd), bytes_(bytes), scratch_(scratch) {}
  ssize_t Read(std::byte* to) override {
    if (to != nullptr) return recv(fd_, to, bytes_, MSG_DONTWAIT);
    return recv(fd_, scratch_.data(), std::min(bytes_, scratch_.size()), MSG_DONTWAIT);
  }

 private:
  int fd_;
  size_t bytes_;
  std::vector<std::byte>& scratch_;
};

}  // namespace

// Goes through what has come. False: the link is closed.
bool Link::Parse() {
  MutexLock lock(events_mutex_);
  const bool is_gone = events_ == nullptr;
  for (;;) {
    const size_t left = in_end_ - in_begin_;
    if (!has_frame_) {
      if (left < sizeof frame_) break;
      std::memcpy(&frame_, in_.data() + in_begin_, sizeof frame_);
      const bool is_data = frame_.kind == wire::FrameKind::kData;
      if (frame_.magic != wire::kFrameMagic || frame_.bytes > (is_data ? wire::kPiece : kMostPayload)) return false;
      if (!is_gone && !events_->IsSound(peer_, frame_)) return false;
      in_begin_ += sizeof frame_;
      has_frame_ = true;
      data_read_ = 0;
      if (in_.size() < frame_.bytes && !is_data) in_.resize(frame_.bytes);
      continue;
    }
    if (frame_.kind == wire::FrameKind::kData) {
      const uint64_t wanted = frame_.bytes - data_read_;
      if (wanted == 0) {
        has_frame_ = false;
        continue;
      }
      if (left == 0) break;
      BufferReader reader(in_.data() + in_begin_, std::min<uint64_t>(left, wanted));
      const uint64_t bytes = std::min<uint64_t>(left, wanted);
      if (!is_gone) (void)events_->OnData(peer_, frame_, data_read_, bytes, reader);
      in_begin_ += bytes;
      data_read_ += bytes;
      continue;
    }
    if (left < frame_.bytes) break;
    if (!is_gone) events_->OnFrame(peer_, frame_, in_.data() + in_begin_);
    in_begin_ += frame_.bytes;
    has_frame_ = false;
  }
  if (in_begin_ == in_end_) {
    in_begin_ = in_end_ = 0;
  } else if (in_.size() - in_begin_ < kInput / 2) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  // A payload that does not fit behind what is there.
  const size_t needs = has_frame_ && frame_.kind != wire::FrameKind::kData ? frame_.bytes : sizeof frame_;
  if (in_.size() - in_begin_ < needs) in_.resize(in_begin_ + needs);
  return true;
}

// Reads once. False: there is nothing more for now, or the link is closed.
bool Link::ReadMore() {
  const bool is_data = has_frame_ && frame_.kind == wire::FrameKind::kData && in_begin_ == in_end_;
  ssize_t got = 0;
  if (is_data && frame_.bytes - data_read_ > kInput / 4) {
    const uint64_t wanted = std::min(frame_.bytes - data_read_, kReadAtOnce);
    SocketReader reader(fd_, wanted, in_);
    {
      MutexLock lock(events_mutex_);
      got = events_ != nullptr ? events_->OnData(peer_, frame_, data_read_, wanted, reader) : reader.Read(nullptr);
    }
    if (got > 0) data_read_ += static_cast<uint64_t>(got);
  } else {
    got = recv(fd_, in_.data() + in_end_, in_.size() - in_end_, MSG_DONTWAIT);
    if (got > 0) in_end_ += static_cast<size_t>(got);
  }
  if (got > 0) return true;
  if (got == 0) {
    Lose("the connection was closed");
  } else if (errno != EAGAIN && errno != EINTR) {
    Lose(Why(errno));
  }
  return false;
}

void Link::OnReadable() {
  // Others want to be served, too.
  for (int rounds = 0; rounds < 16 && !is_lost_.load(); ++rounds) {
    if (!ReadMore()) break;
    if (!Parse()) {
      Lose("it sends what is not of the protocol");
      break;
    }
  }
  MutexLock lock(events_mutex_);
  if (events_ != nullptr) events_->OnPause();
}

bool Link::IsSilent() const {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  return info.tcpi_unacked != 0 && info.tcpi_last_ack_recv > kSilenceMs && info.tcpi_last_data_recv > kSilenceMs;
}

// ---- Greeting a peer ----

StatusOr<int> ConnectPeer(const Endpoint& to, const Nonce& nonce, uint32_t own, uint32_t peer,
                          Clock::time_point deadline) {
  const int fd = ConnectTcp(to, deadline);
  const auto fail = [&](int error) -> Status {
    if (fd >= 0) close(fd);
    return Error(
               error == ETIMEDOUT ? kTimeout : kConnect,
               fmt::format("EI0006: no connection to process {} of the group at {}: {}", peer, to.Print(), Why(error)))
        .Culprit("the network between the machines")
        .Hint(
            "let the machines reach each other at this address (HCCL_IF_IP, HCCL_SOCKET_IFNAME; ports: "
            "HCCL_NPU_SOCKET_PORT_RANGE)");
  };
  if (fd < 0) return fail(errno);
  wire::LinkHello hello{};
  hello.magic = wire::kLinkMagic;
  hello.version = wire::kVersion;
  hello.nonce = nonce;
  hello.from = own;
  hello.to = peer;
  wire::LinkHello answer{};
  if (!SendAll(fd, &hello, sizeof hello, deadline) || !ReceiveAll(fd, &answer, sizeof answer, deadline))
    return fail(errno);
  if (std::memcmp(&hello, &answer, sizeof hello) != 0) return fail(EPROTO);
  return fd;
}

Arrivals::~Arrivals() {
  for (const auto& [from, fd] : sockets) close(fd);
}

}  // namespace reprise::collective
