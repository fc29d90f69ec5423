// SPDX-License-Identifier: Apache-2.0
//
// Gathering: the last steps of a rendezvous of ranks on several machines. Ranks of one process take them together: the
// first does what there is to do once for the process.
#pragma once

#include <memory>

#include "base/status.h"
#include "collective/board.h"
#include "collective/rendezvous.h"

namespace reprise::collective {

/// This process's part of a board that it shares: its doorbell, and the watch over the others.
Status OpenShared(const std::shared_ptr<Board>& board);
/// All have met: what others needed for that is taken back.
void EndGathering(Gathering& gathering);

}  // namespace reprise::collective
