// SPDX-License-Identifier: Apache-2.0
//
// Stream sockets with deadlines, as the rendezvous uses them.
#pragma once

#include <cstddef>

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
/// Milliseconds until the deadline, for poll; 0 when it has passed.
int MillisecondsTo(Clock::time_point deadline) noexcept;

}  // namespace reprise::collective
