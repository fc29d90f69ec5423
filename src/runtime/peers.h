// SPDX-License-Identifier: Apache-2.0
//
// Which devices were let reach the memory of others. Everything lies in host memory, so only strict mode and queries
// ask.
#pragma once

#include "runtime/device.h"

namespace reprise::runtime {

/// Whether the device, by its user id, was let reach the memory of the peer.
///
/// Threads: thread-safe, as the functions below.
bool HasPeerAccess(int device, int peer);
void SetPeerAccess(const Device& device, const Device& peer, bool on);
/// The device was reset: it reaches no other.
void ForgetPeers(const Device& device);

}  // namespace reprise::runtime
