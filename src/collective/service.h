// SPDX-License-Identifier: Apache-2.0
//
// The side of a rendezvous that serves a token.
#pragma once

#include <chrono>

#include "collective/board.h"

namespace reprise::collective {

/// Serves until the ranks have met or the time is over; owns the listening socket.
void RunService(int listener, const Nonce& nonce, std::chrono::duration<double> timeout) noexcept;

}  // namespace reprise::collective
