// SPDX-License-Identifier: Apache-2.0
//
// The side of a rendezvous that serves a token.
#pragma once

#include <chrono>

#include "collective/board.h"

namespace reprise::collective {

/// What a service listens at; -1: not there.
struct ServiceSockets {
  Nonce nonce{};
  int local = -1;
  int tcp = -1;
  bool is_table = false;  ///< ranks have no token but a file, which another job may have, too
};
/// Serves until the ranks have met or the time is over; owns the listening sockets.
void RunService(ServiceSockets sockets, std::chrono::duration<double> timeout) noexcept;

}  // namespace reprise::collective
