// SPDX-License-Identifier: Apache-2.0
#include "runtime/peers.h"

#include <array>
#include <atomic>

#include "device/memory.h"

namespace reprise::runtime {
namespace {

// One bit for each peer.
std::atomic<uint64_t>& PeersOf(int device) {
  static auto* const peers = new std::array<std::atomic<uint64_t>, device::kMaxDevices>{};
  return (*peers)[static_cast<size_t>(device)];
}

}  // namespace

bool HasPeerAccess(int device, int peer) { return (PeersOf(device).load() >> peer & 1) != 0; }

void SetPeerAccess(const Device& device, const Device& peer, bool on) {
  const uint64_t bit = uint64_t{1} << peer.id();
  if (on) {
    PeersOf(device.id()).fetch_or(bit);
  } else {
    PeersOf(device.id()).fetch_and(~bit);
  }
}

void ForgetPeers(const Device& device) { PeersOf(device.id()) = 0; }

}  // namespace reprise::runtime
