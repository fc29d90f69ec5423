// SPDX-License-Identifier: Apache-2.0
//
// What goes through the sockets of a rendezvous, and through links. Plain structures of one machine type; everything
// that is read is checked.
#pragma once

#include <cstdint>
#include <type_traits>

#include "collective/address.h"
#include "collective/board.h"
#include "device/share.h"

namespace reprise::collective::wire {

constexpr uint32_t kHelloMagic = 0x52484c4f;
constexpr uint32_t kWelcomeMagic = 0x5257454c;
/// Of everything that ranks exchange, boards included.
constexpr uint32_t kVersion = 3;

struct Hello {
  uint32_t magic;
  uint32_t version;
  Nonce nonce;
  uint32_t rank;
  uint32_t ranks;
  int32_t pid;
  int32_t device;
  uint32_t world_rank;
  uint32_t buffer_mb;
  double exec_timeout_s;
  uint64_t host;    ///< equal for ranks that can share memory
  uint64_t launch;  ///< of a rank table: 0, or what tells jobs apart that use the same table
  char name[128];
};

struct Welcome {
  uint32_t magic;
  int32_t code;  ///< 0, or why the group cannot be
  uint32_t processes;
  uint32_t is_shared;
  uint32_t spans;  ///< ranks are on several machines: `ranks` rows of RosterRow follow, `board` is none
  uint32_t ranks;
  device::ShareKey board;
  char text[1024];  ///< the name, or the reason
};

/// One rank of a group that spans machines.
struct RosterRow {
  uint32_t process;  ///< index, over all machines
  uint32_t machine;  ///< index
  int32_t pid;
  int32_t device;
  uint32_t world_rank;
};

/// Behind a Roster, to the service: where the process of the rank is reached.
struct Meeting {
  int32_t code;
  Endpoint endpoint;
  device::ShareKey board;  ///< of the process that has made that of its machine; else none
  char text[440];
};

/// Behind all Meetings, from the service; `processes` of Endpoint follow.
struct Table {
  int32_t code;
  device::ShareKey board;  ///< of the rank's machine
  char text[500];
};

/// Behind Ready and Go.
struct Verdict {
  int32_t code;
  char text[508];
};

// ---- Links ----

constexpr uint32_t kLinkMagic = 0x52504c4b;
constexpr uint32_t kFrameMagic = 0x5250464d;
/// Data travel in pieces, so that short frames come between them.
constexpr uint64_t kPiece = 256 << 10;

/// The first bytes of a link, in both directions.
struct LinkHello {
  uint32_t magic;
  uint32_t version;
  Nonce nonce;
  uint32_t from;  ///< index of the process that has connected
  uint32_t to;
  uint8_t spare[32];
};
static_assert(sizeof(LinkHello) == 64);

enum class FrameKind : uint8_t {
  kPublished = 1,  ///< rank, number, flags (inline); payload: Shown, then small data
  kMark,           ///< rank, number, flags (MarkKind)
  kMessage,        ///< rank (from), peer (to), number, flags; payload as kPublished
  kMessageMark,    ///< rank (from), peer (to), number, flags (MarkKind)
  kRow,            ///< rank, flags (RankState), number (epoch), value (code); payload: the reason
  kFetch,          ///< rank (of the data), peer, number, flags (FetchKind), offset, value (bytes), cookie
  kData,           ///< cookie, offset; payload: data
  kFetched,        ///< cookie, flags (1: all has come; 0: it will not), behind the last data
  kNotice,         ///< payload: Notice
};
enum MarkKind : uint8_t { kReduced = 1, kFinished = 2, kRefused = 3 };
enum FetchKind : uint8_t { kFromSend = 0, kFromReceive = 1, kFromMessage = 2 };

struct Frame {
  uint32_t magic;
  FrameKind kind;
  uint8_t flags;
  uint16_t spare;
  uint32_t rank;
  uint32_t peer;
  uint64_t number;
  uint64_t value;
  uint64_t offset;
  uint64_t cookie;
  uint64_t bytes;  ///< of the payload
  uint64_t inner;  ///< of an operator in the body of a conditional task, as in SlotKey
};
static_assert(sizeof(Frame) == 64);

/// How a slot looks to ranks on other machines.
struct Shown {
  Descriptor descriptor;
  uint64_t send_bytes;
  uint64_t receive_bytes;
};

/// Where ranks of a part of the group find each other.
struct Notice {
  Nonce nonce;
  Endpoint endpoint;
};

static_assert(std::is_trivially_copyable_v<Hello> && std::is_trivially_copyable_v<Welcome> &&
              std::is_trivially_copyable_v<Verdict> && std::is_trivially_copyable_v<RosterRow> &&
              std::is_trivially_copyable_v<Meeting> && std::is_trivially_copyable_v<Table>);

/// Whether a Hello says only what it may.
inline bool IsSound(const Hello& hello) {
  const void* end = __builtin_memchr(hello.name, 0, sizeof hello.name);
  return hello.magic == kHelloMagic && hello.ranks != 0 && hello.ranks <= kMostRanks && hello.rank < hello.ranks &&
         hello.pid > 0 && end != nullptr;
}

}  // namespace reprise::collective::wire
