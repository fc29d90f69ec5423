// SPDX-License-Identifier: Apache-2.0
//
// What processes of one communicator do for each other: a process has one doorbell, a word that others change when its
// tasks may go on, and one thread that sleeps on it. The thread begins with the first communicator that has ranks in
// another process; while tasks wait it also looks whether the processes that they wait for still live.
#pragma once

#include <memory>

#include "base/status.h"
#include "device/share.h"

namespace reprise::collective {

class Board;

/// The doorbell of this process, which is made by the first call, with the thread.
StatusOr<device::ShareKey> OwnDoorbell();
/// Opens the doorbells of all other processes of a board, so that ringing them needs no look-up.
Status OpenDoorbells(const Board& board);
/// Rings the doorbell of another process, if it was opened.
void RingDoorbell(const device::ShareKey& key) noexcept;
/// A task of this process begins to wait for others: the thread looks after these from now on.
void CallWatcher() noexcept;
/// From now on the thread wakes what waits at the board, and looks after its processes.
void WatchBoard(const std::shared_ptr<Board>& board);

}  // namespace reprise::collective
