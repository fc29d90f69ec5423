// SPDX-License-Identifier: Apache-2.0
//
// What a process offers to other processes of this machine: ranges of memory files, found through /proc/PID/fd. Nothing
// has a name in a file system, so nothing is left behind by a process that dies.
//
// An offer is an entry in a table that the offering process keeps in a memory file of its own, which takers map. A key
// says which process, which entry, and a number that only this offer has.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace reprise::device {

enum class ShareKind : uint32_t { kNone, kNotify, kMemory, kPhysical, kEvent, kCollective };

/// Names an offer. Printable form: at most 64 characters. Packed form: 64 bits, never 0.
struct ShareKey {
  int32_t pid = 0;
  uint32_t index = 0;
  uint32_t nonce = 0;
  uint32_t space = 0;  ///< namespace of the process id; 0: not known, as in a packed key

  std::string Print() const;
  static std::optional<ShareKey> Parse(std::string_view text);
  uint64_t Pack() const;
  static ShareKey Unpack(uint64_t token);
};

/// A process: its id and the time of its start, so that a later process with that id is not mistaken for it.
class Process {
 public:
  Process() = default;  ///< none; never ends
  static Process Of(int32_t pid);
  int32_t pid() const { return pid_; }
  /// Whether the process has ended; false also when the host does not tell. Costs some microseconds.
  bool HasEnded() const;

 private:
  int32_t pid_ = 0;
  uint64_t start_ = 0;  // time of its start; 0: not known
};

/// A range of a memory file, and what a taker has to know about it.
struct ShareOffer {
  ShareKind kind = ShareKind::kNone;
  int fd = -1;  ///< stays with the caller; must stay open while the offer stands
  uint64_t file_bytes = 0;
  uint64_t offset = 0;  ///< of the object in the file
  uint64_t bytes = 0;   ///< of the object
  uint64_t extra = 0;   ///< what the kind wants
  bool checks_pid = true;
};

/// 207005 when the process offers too much already.
StatusOr<ShareKey> Offer(const ShareOffer& offer);
/// Withdraws an offer of this process; false when there is none. Processes that have taken it keep it.
bool Withdraw(const ShareKey& key);
/// Adds processes that may take an offer of this process; 107000 when the key names none, 207005 for too many
/// processes.
Status AllowTakers(const ShareKey& key, const int32_t* pids, size_t count);

/// A taken offer.
class Taken {
 public:
  Taken() = default;
  Taken(Taken&& other) noexcept { *this = std::move(other); }
  Taken& operator=(Taken&& other) noexcept;
  ~Taken();

  int fd() const { return fd_; }
  /// The descriptor is the caller's from now on.
  int Release() { return std::exchange(fd_, -1); }
  const ShareOffer& offer() const { return offer_; }

 private:
  friend StatusOr<Taken> Take(const ShareKey&, ShareKind, const char*);
  int fd_ = -1;  // of this process
  ShareOffer offer_;
};

/// Opens what another process (or this one) offers. 107000 when the key names nothing of this kind, when its process
/// has ended, or when the offer is not for this process; 507022 when the host keeps the processes apart. `what` names
/// the object in the message.
StatusOr<Taken> Take(const ShareKey& key, ShareKind kind, const char* what);

/// A memory file without a name; -1 with errno.
int MakeMemoryFile(const char* label, uint64_t bytes) noexcept;

}  // namespace reprise::device
