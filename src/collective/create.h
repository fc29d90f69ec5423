// SPDX-License-Identifier: Apache-2.0
//
// The ways in which communicators come to be. All wait for the other ranks, but for a group of calls (request.h): then
// the result is there when the group ends.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "collective/communicator.h"
#include "collective/rendezvous.h"

namespace reprise::collective {

/// A token that this process serves. For the current device: 15 where there is none.
StatusOr<Token> MakeToken();

/// Joins the group of a token on the current device.
Status CreateByToken(const Token& token, uint32_t ranks, uint32_t rank, Settings settings, void** comm);
/// Joins the group of a rank table. 10 for a file that cannot be read, 1 for a bad one.
Status CreateByTable(const std::string& path, uint32_t rank, Settings settings, void** comm);
/// A group of this process alone: devices[i] is that of rank i.
Status CreateAll(const int* devices, uint32_t count, void** comms);
/// A part of a group: its ranks `members`, ascending; this one is number `own` of them.
Status CreateSub(Communicator& parent, const uint32_t* members, uint32_t count, uint64_t id, uint32_t own,
                 Settings settings, void** comm);

}  // namespace reprise::collective
