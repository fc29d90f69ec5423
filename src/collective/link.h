// SPDX-License-Identifier: Apache-2.0
//
// Links: connections between processes of one communicator on different machines. A link carries frames: a header, and
// behind some a payload. One thread of the process serves all links, beside the threads that post frames, which write
// to the socket themselves where it takes all at once.
//
// Two processes greet each other with the nonce of their communicator; who cannot is hung up on.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/futex.h"
#include "base/mutex.h"
#include "base/status.h"
#include "collective/address.h"
#include "collective/board.h"
#include "collective/wire.h"

namespace reprise::collective {

/// Takes what comes through a link. All on the thread of the links, one call at a time.
class LinkEvents {
 public:
  /// Whether a frame is one of the protocol. False: the link is closed.
  virtual bool IsSound(uint32_t peer, const wire::Frame& frame) = 0;
  /// A frame with its payload; not for frames of data.
  virtual void OnFrame(uint32_t peer, const wire::Frame& frame, const std::byte* payload) = 0;
  /// The bytes [offset, offset + bytes) of the payload of a frame of data have come: reads them with `read`, straight
  /// to their place, or to null to drop them. `read` gives the bytes that it has read.
  class Reader {
   public:
    virtual ssize_t Read(std::byte* to) = 0;

   protected:
    ~Reader() = default;
  };
  virtual ssize_t OnData(uint32_t peer, const wire::Frame& frame, uint64_t offset, uint64_t bytes, Reader& reader) = 0;
  /// For now all that has come was told.
  virtual void OnPause() = 0;
  virtual void OnLost(uint32_t peer, const std::string& why) = 0;
  /// Whether somebody waits for others, so that silence counts.
  virtual bool IsWaiting() const = 0;

 protected:
  ~LinkEvents() = default;
};

/// Memory on its way to a peer that has asked for it. It is read as long as the slot that shows it is not closed.
struct Shipment {
  uint64_t cookie = 0;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
  Slot* slot = nullptr;
  SlotKey key;
  uint64_t sent = 0;  ///< or on its way
};

/// Threads: thread-safe.
class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(int fd, uint32_t peer, LinkEvents& events);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();

  uint32_t peer() const { return peer_; }
  void Post(const wire::Frame& frame, const void* payload = nullptr) noexcept;
  void Ship(const Shipment& shipment);
  /// Answers a request for what is not there.
  void Refuse(uint64_t cookie) noexcept;
  /// No more events from now on. Closed when everything posted has been sent, or after some seconds.
  void Detach();
  /// Waits until all has been handed to the kernel.
  bool Flush(Clock::time_point deadline) noexcept;

 private:
  friend class LinkThread;
  // What is being sent: a head, and then memory.
  struct Current {
    std::vector<std::byte> head;
    size_t head_sent = 0;
    Shipment shipment;
    uint64_t offset = 0;  // of the piece in the shipment
    uint64_t body = 0;    // bytes of the piece
    uint64_t body_sent = 0;
    bool is_broken = false;
  };
  enum class Progress : uint8_t { kDone, kBlocked, kFailed };

  void OnReadable();
  void OnWritable();
  Progress SendAllLocked() REPRISE_REQUIRES(out_mutex_);
  Progress SendCurrentLocked() REPRISE_REQUIRES(out_mutex_);
  ssize_t SendBodyLocked() REPRISE_REQUIRES(out_mutex_);
  bool NextLocked() REPRISE_REQUIRES(out_mutex_);
  bool HangsUpLocked() noexcept REPRISE_REQUIRES(out_mutex_);
  void ArmLocked() REPRISE_REQUIRES(out_mutex_);
  bool Parse();
  bool ReadMore();
  void Lose(const std::string& why);
  bool IsSilent() const;

  int fd_;
  const uint32_t peer_;
  std::atomic<bool> is_lost_{false};

  Mutex events_mutex_;
  LinkEvents* events_ REPRISE_GUARDED_BY(events_mutex_);
  std::atomic<bool> is_detached_{false};
  Clock::time_point close_by_;  // of the thread of the links

  mutable Mutex out_mutex_;
  bool has_current_ REPRISE_GUARDED_BY(out_mutex_) = false;
  bool is_armed_ REPRISE_GUARDED_BY(out_mutex_) = false;
  bool is_shut_ REPRISE_GUARDED_BY(out_mutex_) = false;
  Current current_ REPRISE_GUARDED_BY(out_mutex_);
  std::deque<std::vector<std::byte>> frames_ REPRISE_GUARDED_BY(out_mutex_);
  std::deque<Shipment> shipments_ REPRISE_GUARDED_BY(out_mutex_);

  // Input; of the thread of the links.
  std::vector<std::byte> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  bool has_frame_ = false;
  wire::Frame frame_{};
  uint64_t data_read_ = 0;
};

/// Connections that peers have made, by the peer's index.
struct Arrivals {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint32_t, int> sockets;
  ~Arrivals();
};

/// The thread of the links, with the sockets that it listens at. One for the process, made by the first call.
class LinkThread {
 public:
  static StatusOr<LinkThread*> Get();

  /// Where peers reach this process: listens at the address (without a port), at most once for each.
  StatusOr<Endpoint> Listen(const Endpoint& address);
  /// Peers of this group may connect to process `own` of it; they are put into `arrivals`.
  void Expect(const Nonce& nonce, uint32_t own, const std::shared_ptr<Arrivals>& arrivals);
  void Forget(const Nonce& nonce, uint32_t own);
  /// Begins to serve a link.
  Status Add(const std::shared_ptr<Link>& link);
  /// Somebody begins to wait for others: from now on silence counts.
  void Call() noexcept;
  /// A link is to be closed.
  void Wake() noexcept;
  /// Hands everything to the kernel, for at most a second: the process ends.
  static void FlushAll() noexcept;

 private:
  friend class Link;
  // A connection that has not greeted yet.
  struct Greeting {
    int fd = -1;
    size_t got = 0;
    wire::LinkHello hello{};
    Clock::time_point by;
  };

  LinkThread() = default;
  Status Begin();
  void Loop();
  void Accept(int listener);
  void ReadGreeting(uint64_t id);
  bool Greet(Greeting& greeting);
  bool LookAfter();
  void Arm(Link& link, bool writes) noexcept;
  uint64_t IdOf(const Link& link) const { return reinterpret_cast<uint64_t>(&link); }
  void Remove(uint64_t id);

  int epoll_ = -1;
  int bell_ = -1;
  std::atomic<bool> sleeps_{false};
  Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Link>> links_ REPRISE_GUARDED_BY(mutex_);
  std::map<std::array<uint8_t, 16>, std::pair<Endpoint, int>> listeners_ REPRISE_GUARDED_BY(mutex_);
  std::map<std::pair<Nonce, uint32_t>, std::shared_ptr<Arrivals>> expected_ REPRISE_GUARDED_BY(mutex_);
  std::map<uint64_t, Greeting> greetings_;  // of the thread; by descriptor
};

/// Connects to a peer and greets it. 11 or 9 when it cannot be reached.
StatusOr<int> ConnectPeer(const Endpoint& to, const Nonce& nonce, uint32_t own, uint32_t peer,
                          Clock::time_point deadline);

}  // namespace reprise::collective
