// SPDX-License-Identifier: Apache-2.0
//
// Operators as programs call them: arguments that nobody has checked, and groups of calls.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "collective/communicator.h"
#include "collective/numbers.h"
#include "runtime/stream.h"

namespace reprise::collective {

/// The arguments of a collective. Arrays are of uint64_t, in elements.
struct Request {
  Operator op;
  const void* send = nullptr;
  const void* receive = nullptr;
  uint64_t count = 0;
  int type = 0;
  int reduction = 0;
  uint32_t root = 0;
  void* communicator = nullptr;
  void* stream = nullptr;
  uint64_t other_count = 0;  ///< AlltoAll: recvCount; V forms: the count that the rank names beside its array
  int other_type = 0;        ///< AlltoAll forms: recvType
  const uint64_t* send_counts = nullptr;
  const uint64_t* send_offsets = nullptr;
  const uint64_t* receive_counts = nullptr;
  const uint64_t* receive_offsets = nullptr;
};

/// HcclSendRecvItem.
struct TransferItem {
  int direction;  ///< 0: send, 1: receive
  void* buffer;
  uint64_t count;
  int type;
  uint32_t peer;
};

/// Checks and submits, or keeps for the end of the group of this thread. `admit` looks at the stream before anything is
/// submitted: whether it may take an operator now.
using Admit = Status (*)(const runtime::Stream& stream);
Status Enter(const Request& request, Admit admit);
/// `is_batch`: HcclBatchSendRecv; else one HcclSend or HcclRecv.
Status EnterTransfers(const TransferItem* items, uint32_t count, bool is_batch, void* communicator, void* stream,
                      Admit admit);

// ---- Groups, of the calling thread ----

void StartGroup();
/// 5 without a start; else the first error of the group.
Status EndGroup();
bool IsInGroup();
/// Something that makes or destroys a communicator, in steps that may wait for other ranks. In a group it is kept
/// for its end; else run at once.
struct Management {
  std::function<Status()> begin = {};
  std::function<Status()> meet = {};
  std::function<Status()> link = {};
  std::function<Status()> finish = {};
};
Status Manage(Management management);

}  // namespace reprise::collective
