// SPDX-License-Identifier: Apache-2.0
//
// What goes through the sockets of a rendezvous. Plain structures of one machine type; everything that is read is
// checked.
#pragma once

#include <cstdint>
#include <type_traits>

#include "collective/board.h"
#include "device/share.h"

namespace reprise::collective::wire {

constexpr uint32_t kHelloMagic = 0x52484c4f;
constexpr uint32_t kWelcomeMagic = 0x5257454c;
/// Of everything that ranks exchange, boards included.
constexpr uint32_t kVersion = 1;

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
  char name[128];
};

struct Welcome {
  uint32_t magic;
  int32_t code;  ///< 0, or why the group cannot be
  uint32_t processes;
  uint32_t is_shared;
  device::ShareKey board;
  char text[1024];  ///< the name, or the reason
};

/// Behind Ready and Go.
struct Verdict {
  int32_t code;
  char text[508];
};

static_assert(std::is_trivially_copyable_v<Hello> && std::is_trivially_copyable_v<Welcome> &&
              std::is_trivially_copyable_v<Verdict>);

/// Whether a Hello says only what it may.
inline bool IsSound(const Hello& hello) {
  const void* end = __builtin_memchr(hello.name, 0, sizeof hello.name);
  return hello.magic == kHelloMagic && hello.ranks != 0 && hello.ranks <= kMostRanks && hello.rank < hello.ranks &&
         hello.pid > 0 && end != nullptr;
}

}  // namespace reprise::collective::wire
