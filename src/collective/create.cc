// SPDX-License-Identifier: Apache-2.0
#include "collective/create.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "collective/net.h"
#include "collective/numbers.h"
#include "collective/rank_table.h"
#include "collective/request.h"
#include "runtime/context.h"
#include "runtime/device.h"

namespace reprise::collective {
namespace {

// The port of a rank table that names none: one of these, as its contents say.
constexpr uint64_t kFirstTablePort = 16666;
constexpr uint64_t kTablePorts = 1000;

StatusOr<int> CurrentDevice() {
  REPRISE_ASSIGN_OR_RETURN(const runtime::Context* context, runtime::CurrentContext());
  return context->device().id();
}

Status CheckRanks(uint32_t ranks, uint32_t rank) {
  if (ranks == 0 || ranks > kMostRanks) {
    return Error(kParameter, fmt::format("nRanks is {}, must be 1 to {}", ranks, kMostRanks))
        .Culprit("parameter nRanks")
        .Hint("pass the number of ranks of the group");
  }
  if (rank >= ranks) {
    return Error(kParameter, fmt::format("rank is {}, the group has {} ranks", rank, ranks))
        .Culprit("parameter rank")
        .Hint("number the ranks from 0");
  }
  return {};
}

// Before anybody else hears of it: all ranks of a group make the same mistake.
Status CheckName(const std::string& name, int device) {
  if (name.empty() || FindByName(name, device) == nullptr) return {};
  return Error(kParameter, fmt::format("EI0014: a live communicator of device {} has the name {}", device, name))
      .Culprit("hcclCommName")
      .Hint("choose another name, or destroy the other communicator first");
}

Status Keep(Member member, uint32_t rank, int device, bool is_sub, Settings settings, void** comm,
            const std::string& server = {}, const Endpoint& address = {}) {
  const std::shared_ptr<Board> board = member.board;
  auto made = Communicator::Create(
      {std::move(member.board), rank, device, std::move(member.name), is_sub, server, address}, std::move(settings));
  if (!made.ok()) {
    Status status = std::move(made).status();
    board->Fail(rank, RankState::kFailed, kRemote,
                fmt::format("rank {} could not be created: {}", rank, status.detail().what));
    return status;
  }
  *comm = (*made)->handle();
  return {};
}

// Joins, now or at the end of the group of calls.
Status Join(Candidate candidate, bool patient, bool is_sub, void** comm) {
  struct State {
    Candidate candidate;
    Joining joining;
    bool is_on = false;
  };
  REPRISE_RETURN_IF_ERROR(CheckEnvironment());
  REPRISE_RETURN_IF_ERROR(CheckName(candidate.settings.name, candidate.device));
  NoteProcess();
  auto state = std::make_shared<State>();
  state->candidate = std::move(candidate);
  return Manage({.begin = [state, patient]() -> Status {
                   REPRISE_ASSIGN_OR_RETURN(state->joining, Joining::Begin(state->candidate, patient));
                   state->is_on = true;
                   return {};
                 },
                 .meet = [state]() -> Status {
                   if (!state->is_on) return {};
                   Status status = state->joining.Meet();
                   state->is_on = status.ok();
                   return status;
                 },
                 .link = [state]() -> Status {
                   if (!state->is_on) return {};
                   Status status = state->joining.Link();
                   state->is_on = status.ok();
                   return status;
                 },
                 .finish = [state, is_sub, comm]() -> Status {
                   if (!state->is_on) return {};
                   REPRISE_ASSIGN_OR_RETURN(Member member, state->joining.Finish());
                   const Candidate& who = state->candidate;
                   return Keep(std::move(member), who.rank, who.device, is_sub, who.settings, comm, who.server,
                               who.address);
                 }});
}

// How often this process has used something that names the same group each time.
uint32_t NextGeneration(const Nonce& nonce, uint32_t rank) {
  static Mutex mutex;
  static auto* const counts = new std::map<std::pair<Nonce, uint32_t>, uint32_t>;
  MutexLock lock(mutex);
  return (*counts)[{nonce, rank}]++;
}

std::string Hex(const Nonce& nonce) {
  std::string text;
  for (const uint8_t byte : nonce) text += fmt::format("{:02x}", byte);
  return text;
}

// Where a rank of a table of several machines is reached, and where rank 0 waits.
Status PlaceByTable(const RankTable& table, uint32_t rank, const Nonce& group, Candidate& candidate) {
  const auto address_of = [&](uint32_t who, Endpoint& to) -> Status {
    to = ParseAddress(table.ranks[who].address);
    if (to.is_set()) return {};
    return Error(kParameter, fmt::format("EI0014: rank {} of the rank table has no address: device_ip is \"{}\"", who,
                                         table.ranks[who].address))
        .Culprit("the rank table")
        .Hint("write the address of the machine as device_ip, or as host_ip of the server");
  };
  REPRISE_RETURN_IF_ERROR(address_of(0, candidate.service));
  REPRISE_RETURN_IF_ERROR(address_of(rank, candidate.address));
  candidate.server = fmt::format("server {}", table.ranks[rank].server);
  uint64_t hash = 0;
  std::memcpy(&hash, group.data(), sizeof hash);
  const std::vector<uint16_t> ports = DataPorts();
  const uint64_t port = table.ranks[0].port != 0 ? table.ranks[0].port
                        : ports.empty()          ? kFirstTablePort + hash % kTablePorts
                                                 : ports[hash % ports.size()];
  candidate.service.port = static_cast<uint16_t>(port);
  return {};
}

}  // namespace

StatusOr<Token> MakeToken() {
  REPRISE_RETURN_IF_ERROR(CurrentDevice().ok() ? Status() : CurrentDevice().status());
  REPRISE_RETURN_IF_ERROR(CheckEnvironment());
  NoteProcess();
  Token token;
  REPRISE_ASSIGN_OR_RETURN(token.nonce, RandomNonce());
  token.host = HostId();
  token.pid = getpid();
  Service service;
  service.nonce = token.nonce;
  if (HasNetwork()) {
    StatusOr<Endpoint> own = OwnAddress();
    const bool is_asked = !TheEnvironment().interface_address.empty() || !TheEnvironment().interface_names.empty();
    if (!own.ok() && is_asked) return std::move(own).status();
    // Without a network ranks of this machine still meet.
    if (own.ok()) {
      token.endpoint = *own;
      service.tcp = &token.endpoint;
      service.ports = RendezvousPorts();
    }
  }
  REPRISE_RETURN_IF_ERROR(Serve(service));
  return token;
}

Status CreateByToken(const Token& token, uint32_t ranks, uint32_t rank, Settings settings, void** comm) {
  REPRISE_RETURN_IF_ERROR(CheckRanks(ranks, rank));
  REPRISE_ASSIGN_OR_RETURN(const int device, CurrentDevice());
  Candidate candidate{token.nonce, rank, ranks, device, std::move(settings)};
  if (token.host != HostId()) {
    if (!HasNetwork() || !token.endpoint.is_set()) {
      return Error(kUnavailable,
                   fmt::format("EI0006: the token was made on another machine, in another container or "
                               "by another user, and {}",
                               HasNetwork() ? "without an address for others" : "REPRISE_HCCL_NET is none"))
          .Culprit("parameter rootInfo")
          .Hint(
              "let REPRISE_HCCL_NET be tcp and the machine that makes the token have an interface (HCCL_IF_IP, "
              "HCCL_SOCKET_IFNAME), or run all ranks on one machine, as one user and in one container");
    }
    candidate.service = token.endpoint;
  }
  return Join(std::move(candidate), false, false, comm);
}

Status CreateByTable(const std::string& path, uint32_t rank, Settings settings, void** comm) {
  if (path.size() > 4096) {
    return Error(kParameter, fmt::format("the path of the rank table has {} bytes, the most is 4096", path.size()))
        .Culprit("parameter clusterInfo")
        .Hint("pass the path of a file");
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return Error(kOpenFile, fmt::format("EI0004: the rank table {} cannot be read: {}", path,
                                        std::generic_category().message(errno)))
        .Culprit("parameter clusterInfo")
        .Hint("pass the path of a file that this process may read");
  }
  REPRISE_ASSIGN_OR_RETURN(const RankTable table, ParseRankTable(text.str()));
  if (rank >= table.ranks.size()) {
    return Error(kParameter,
                 fmt::format("EI0014: rank {} is not in the rank table, which has {} ranks", rank, table.ranks.size()))
        .Culprit("parameter rank")
        .Hint("number the ranks from 0");
  }
  if (table.servers > 1 && !HasNetwork()) {
    return Error(kUnavailable,
                 fmt::format("EI0006: the rank table has {} machines, and REPRISE_HCCL_NET is none", table.servers))
        .Culprit("the rank table")
        .Hint("unset REPRISE_HCCL_NET, or run all ranks on one machine");
  }
  REPRISE_ASSIGN_OR_RETURN(const int device, CurrentDevice());
  if (settings.name.empty()) settings.name = "hccl_world_group";
  REPRISE_RETURN_IF_ERROR(CheckName(settings.name, device));
  const bool is_far = table.servers > 1;
  const Nonce group = NonceOf(fmt::format("table/{}/{}", is_far ? 0 : HostId(), text.str()));
  const uint32_t generation = NextGeneration(group, rank);
  Candidate candidate{NonceOf(fmt::format("{}/{}", Hex(group), generation)), rank,
                      static_cast<uint32_t>(table.ranks.size()), device, std::move(settings)};
  Service service;
  service.nonce = candidate.nonce;
  service.is_table = true;
  if (is_far) {
    REPRISE_RETURN_IF_ERROR(PlaceByTable(table, rank, group, candidate));
    service.is_local = false;
    service.tcp = &candidate.service;
    service.ports = {candidate.service.port};
  }
  if (rank == 0) REPRISE_RETURN_IF_ERROR(Serve(service));
  return Join(std::move(candidate), true, false, comm);
}

Status CreateAll(const int* devices, uint32_t count, void** comms) {
  REPRISE_RETURN_IF_ERROR(CheckRanks(count, 0));
  REPRISE_RETURN_IF_ERROR(CheckEnvironment());
  for (uint32_t i = 0; i < count; ++i) {
    auto device = runtime::FindDevice(devices[i]);
    const bool is_there = device.ok();
    if (!is_there || std::find(devices, devices + i, devices[i]) != devices + i) {
      return Error(kParameter, is_there
                                   ? fmt::format("device {} is named twice", devices[i])
                                   : fmt::format("device {}: {}", devices[i], std::move(device).status().detail().what))
          .Culprit("parameter devices")
          .Hint("name each device once");
    }
  }
  NoteProcess();
  REPRISE_ASSIGN_OR_RETURN(const Nonce nonce, RandomNonce());
  const Settings settings = DefaultSettings();
  REPRISE_ASSIGN_OR_RETURN(const Member member, MakeLocal(nonce, settings, devices, count));
  for (uint32_t rank = 0; rank < count; ++rank) {
    Status status = Keep(member, rank, devices[rank], false, settings, &comms[rank]);
    if (status.ok()) continue;
    for (uint32_t made = 0; made < rank; ++made) (void)Communicator::Destroy(comms[made]);
    return status;
  }
  return {};
}

Status CreateSub(Communicator& parent, const uint32_t* members, uint32_t count, uint64_t id, uint32_t own,
                 Settings settings, void** comm) {
  const auto bad = [](const char* parameter, std::string what, const char* hint) {
    return Error(kParameter, std::move(what)).Culprit(fmt::format("parameter {}", parameter)).Hint(hint);
  };
  if (count == 0 || count > parent.ranks())
    return bad("rankNum", fmt::format("rankNum is {}, the communicator has {} ranks", count, parent.ranks()),
               "name some of the ranks");
  if (own >= count)
    return bad("subCommRankId", fmt::format("subCommRankId is {}, rankNum {}", own, count),
               "pass the index of this rank in rankIds");
  for (uint32_t i = 0; i < count; ++i) {
    if (members[i] >= parent.ranks())
      return bad("rankIds",
                 fmt::format("rankIds[{}] is {}, the communicator has {} ranks", i, members[i], parent.ranks()),
                 "name ranks of the communicator");
    if (i != 0 && members[i] <= members[i - 1])
      return bad("rankIds", fmt::format("rankIds[{}] is not above the one before", i), "name ranks in ascending order");
  }
  if (members[own] != parent.rank())
    return bad("subCommRankId", fmt::format("rankIds[{}] is {}, this is rank {}", own, members[own], parent.rank()),
               "pass the index of this rank in rankIds");
  REPRISE_RETURN_IF_ERROR(parent.CheckUsable());
  if (settings.name.empty()) settings.name = fmt::format("{}_sub_{}", parent.name(), id);
  if (settings.name.size() > 127)
    return bad("hcclCommName", "the name of the parent is too long for one of a part",
               "pass a name in the configuration");
  const int device = parent.device();
  REPRISE_RETURN_IF_ERROR(CheckName(settings.name, device));
  std::string key = fmt::format("sub/{}/{}", Hex(parent.board().nonce()), id);
  for (uint32_t i = 0; i < count; ++i) key += fmt::format("/{}", members[i]);
  const Nonce group = NonceOf(key);
  const Nonce nonce = NonceOf(fmt::format("{}/{}", Hex(group), NextGeneration(group, own)));
  Candidate candidate{nonce, own, count, device, std::move(settings)};
  Net* const net = parent.board().net();
  Service service;
  service.nonce = nonce;
  Endpoint endpoint;
  if (net != nullptr) {
    candidate.server = parent.server();
    candidate.address = parent.address();
    candidate.by_notice = parent.board().IsRemote(members[0]);
    endpoint = candidate.address;
    if (own == 0 && !endpoint.is_set()) {
      REPRISE_ASSIGN_OR_RETURN(endpoint, OwnAddress());
    }
    service.tcp = &endpoint;
    service.ports = RendezvousPorts();
  }
  if (own == 0) REPRISE_RETURN_IF_ERROR(Serve(service));
  if (own == 0 && net != nullptr) net->TellNotice({nonce, endpoint});
  return Join(std::move(candidate), true, true, comm);
}

}  // namespace reprise::collective
