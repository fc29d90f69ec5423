// SPDX-License-Identifier: Apache-2.0
#include "collective/gathering.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "base/calls.h"
#include "base/mutex.h"
#include "collective/net.h"
#include "collective/numbers.h"
#include "collective/socket.h"
#include "collective/wire.h"

namespace reprise::collective {

struct Gathering {
  Nonce nonce{};
  std::vector<wire::RosterRow> roster;  ///< by rank
  uint32_t processes = 0;
  uint32_t own = 0;        ///< index of this process
  bool is_leader = false;  ///< makes the board of its machine
  bool is_shared = false;  ///< its machine has several processes
  std::shared_ptr<Arrivals> arrivals = std::make_shared<Arrivals>();
  ~Gathering();

  Mutex mutex;
  bool has_met REPRISE_GUARDED_BY(mutex) = false;
  bool has_linked REPRISE_GUARDED_BY(mutex) = false;
  bool has_ended REPRISE_GUARDED_BY(mutex) = false;
  Status error REPRISE_GUARDED_BY(mutex);
  wire::Meeting meeting REPRISE_GUARDED_BY(mutex) = {};
  std::shared_ptr<Board> board REPRISE_GUARDED_BY(mutex);
};

Gathering::~Gathering() {
  if (auto thread = LinkThread::Get(); thread.ok()) (*thread)->Forget(nonce, own);
}

namespace {

std::shared_ptr<Gathering> FindGathering(const Nonce& nonce) {
  static Mutex mutex;
  static auto* const live = new std::map<Nonce, std::weak_ptr<Gathering>>;
  MutexLock lock(mutex);
  std::erase_if(*live, [](const auto& each) { return each.second.expired(); });
  std::shared_ptr<Gathering> found = (*live)[nonce].lock();
  if (found == nullptr) {
    found = std::make_shared<Gathering>();
    found->nonce = nonce;
    (*live)[nonce] = found;
  }
  return found;
}

Status Lost(int error) {
  return Error(error == ETIMEDOUT ? kTimeout : kConnect,
               fmt::format("EI0006: the rendezvous has ended before all ranks were ready: {}",
                           std::generic_category().message(error)))
      .Culprit("the process that made the token")
      .Hint("look why that process has ended");
}

Status BadWelcome() {
  return Error(kInternal, "EI0008: the rendezvous says what cannot be")
      .Culprit("the process that made the token")
      .Hint("run all ranks with one version of the library");
}

bool IsRoster(const std::vector<wire::RosterRow>& roster, uint32_t processes) {
  return processes <= roster.size() && std::all_of(roster.begin(), roster.end(), [&](const wire::RosterRow& row) {
           return row.process < processes && row.machine < processes && row.pid > 0;
         });
}

uint32_t MachineOf(const Gathering& gathering, uint32_t process) {
  for (const wire::RosterRow& row : gathering.roster) {
    if (row.process == process) return row.machine;
  }
  return UINT32_MAX;
}

void FillRow(RankRow& row, const wire::RosterRow& from) {
  row.pid = from.pid;
  row.device = from.device;
  row.world_rank = from.world_rank;
  row.process = from.process;
  row.state.store(static_cast<uint32_t>(RankState::kReady));
}

// The rows of the ranks of this machine, by whoever makes its board.
void FillOwn(Board& board, const Gathering& gathering) {
  const uint32_t machine = MachineOf(gathering, gathering.own);
  for (uint32_t rank = 0; rank < board.ranks(); ++rank) {
    const wire::RosterRow& from = gathering.roster[rank];
    if (from.machine != machine) continue;
    FillRow(board.rank(rank), from);
    board.process(from.process).pid = from.pid;
  }
  board.set_processes(gathering.processes);
}

// Which ranks are elsewhere, and their rows.
Status FillRemote(Board& board, const Gathering& gathering, const std::vector<Endpoint>& endpoints) {
  const uint32_t machine = MachineOf(gathering, gathering.own);
  std::vector<bool> processes(gathering.processes);
  std::vector<std::string> places(gathering.processes);
  std::vector<uint32_t> process_of;
  for (const wire::RosterRow& row : gathering.roster) {
    process_of.push_back(row.process);
    processes[row.process] = row.machine != machine;
    if (row.process < endpoints.size()) places[row.process] = endpoints[row.process].Print();
  }
  REPRISE_RETURN_IF_ERROR(board.SetRemote(std::move(processes), std::move(places), process_of));
  for (uint32_t rank = 0; rank < board.ranks(); ++rank) {
    if (board.IsRemote(rank)) FillRow(board.rank(rank), gathering.roster[rank]);
  }
  return {};
}

// Once for the process: an address for peers, and the board where this process makes it.
Status OpenOwn(Gathering& gathering, uint32_t ranks, const Endpoint& given, wire::Meeting& meeting,
               std::shared_ptr<Board>& board) {
  Endpoint address = given;
  if (!address.is_set()) {
    REPRISE_ASSIGN_OR_RETURN(address, OwnAddress());
  }
  REPRISE_ASSIGN_OR_RETURN(LinkThread* const thread, LinkThread::Get());
  REPRISE_ASSIGN_OR_RETURN(meeting.endpoint, thread->Listen(address));
  thread->Expect(gathering.nonce, gathering.own, gathering.arrivals);
  if (!gathering.is_leader) return {};
  REPRISE_ASSIGN_OR_RETURN(board, Board::Create(gathering.nonce, ranks, gathering.is_shared));
  FillOwn(*board, gathering);
  if (gathering.is_shared) {
    REPRISE_ASSIGN_OR_RETURN(meeting.board, board->Offer());
  }
  return {};
}

}  // namespace

void EndGathering(Gathering& gathering) {
  MutexLock lock(gathering.mutex);
  if (std::exchange(gathering.has_ended, true)) return;
  if (gathering.is_leader && gathering.board != nullptr) gathering.board->StopOffering();
}

Status Joining::MeetApart(const wire::Welcome& welcome) {
  const uint32_t ranks = candidate_.ranks;
  if (welcome.ranks != ranks) return BadWelcome();
  std::vector<wire::RosterRow> roster(ranks);
  if (!ReceiveAll(fd_, roster.data(), ranks * sizeof(wire::RosterRow), deadline_)) return Lost(errno);
  if (!IsRoster(roster, welcome.processes)) return BadWelcome();
  gathering_ = FindGathering(candidate_.nonce);
  Gathering& gathering = *gathering_;
  MutexLock lock(gathering.mutex);
  if (!gathering.has_met) {
    gathering.has_met = true;
    gathering.processes = welcome.processes;
    gathering.own = roster[candidate_.rank].process;
    const uint32_t machine = roster[candidate_.rank].machine;
    uint32_t leader = UINT32_MAX;
    for (const wire::RosterRow& row : roster) {
      if (row.machine != machine) continue;
      leader = std::min(leader, row.process);
      gathering.is_shared |= row.process != gathering.own;
    }
    gathering.is_leader = leader == gathering.own;
    gathering.roster = std::move(roster);
    Status status = OpenOwn(gathering, ranks, candidate_.address, gathering.meeting, gathering.board);
    if (!status.ok()) {
      gathering.meeting.code = status.code() < 1000 ? status.code() : kUnavailable;
      const std::string& text = status.detail().what;
      std::memcpy(gathering.meeting.text, text.c_str(), std::min(text.size(), sizeof gathering.meeting.text - 1));
    }
  }
  (void)SendAll(fd_, &gathering.meeting, sizeof gathering.meeting, deadline_);
  return {};
}

Status Joining::Link() {
  if (gathering_ == nullptr) return {};
  const WaitingCall waiting;
  Gathering& gathering = *gathering_;
  wire::Table table{};
  if (!ReceiveAll(fd_, &table, sizeof table, deadline_)) return Lost(errno);
  table.text[sizeof table.text - 1] = '\0';
  if (table.code != 0) {
    return Error(table.code, table.text)
        .Culprit("the ranks of the new communicator")
        .Hint("look at the interfaces of that machine (HCCL_IF_IP, HCCL_SOCKET_IFNAME)");
  }
  std::vector<Endpoint> endpoints(gathering.processes);
  if (!ReceiveAll(fd_, endpoints.data(), endpoints.size() * sizeof(Endpoint), deadline_)) return Lost(errno);
  MutexLock lock(gathering.mutex);
  if (!gathering.has_linked) {
    gathering.has_linked = true;
    const auto link = [&]() REPRISE_REQUIRES(gathering.mutex) -> Status {
      if (!gathering.is_leader) {
        REPRISE_ASSIGN_OR_RETURN(gathering.board, Board::Open(gathering.nonce, table.board));
      }
      Board& board = *gathering.board;
      REPRISE_RETURN_IF_ERROR(FillRemote(board, gathering, endpoints));
      board.own_process = gathering.own;
      auto net = std::make_unique<Net>(board);
      Net* const links = net.get();
      board.set_net(std::move(net));
      return links->Connect(gathering.nonce, endpoints, *gathering.arrivals, deadline_);
    };
    gathering.error = link();
    if (gathering.error.ok() && gathering.is_shared) gathering.error = OpenShared(gathering.board);
  }
  member_.board = gathering.board;
  return SendReady(gathering.error.Clone());
}

}  // namespace reprise::collective
