// SPDX-License-Identifier: Apache-2.0
//
// Stream sockets with deadlines, as the rendezvous uses them.
#pragma once

#include <cstddef>
#include <string>

#include "base/futex.h"
#include "collective/board.h"

namespace reprise::collective {

/// A socket that listens under the name of a nonce; -1 with errno (EADDRINUSE: somebody does already).
int ListenUnix(const Nonce& nonce) noexcept;
/// A connection to it; -1 with errno (ECONNREFUSED: nobody listens).
int ConnectUnix(const Nonce& nonce) noexcept;
/// All bytes, or false with errno (ETIMEDOUT, EPIPE).
bool SendAll(int fd, const void* data, size_t bytes, Clock::time_point deadline) noexcept;
bool ReceiveAll(int fd, void* data, size_t bytes, Clock::time_point deadline) noexcept;
/// A child that forks off does not keep the socket open; no connection would end with this process otherwise.
void HideFromChildren(int fd) noexcept;
/// To be called before the socket is closed.
void NoLongerHidden(int fd) noexcept;
/// In a child that has forked off: closes what was hidden from it.
void CloseHidden() noexcept;
/// After a failed accept: a moment's rest where the process has no descriptors left, as the listener stays ready.
void WaitForDescriptors(int error) noexcept;
/// What the system says of an error number.
std::string Why(int error);
/// Milliseconds until the deadline, for poll; 0 when it has passed.
int MillisecondsTo(Clock::time_point deadline) noexcept;

}  // namespace reprise::collective
