// SPDX-License-Identifier: Apache-2.0
//
// Rendezvous: how the ranks of a new communicator find each other. One process makes a token and serves it for as long
// as it takes; each rank connects, says who it is, and learns who the others are.
//
//     rank ──Hello──► service                    all have come and agree:
//     rank ◄──Welcome (table, board, or why not)── service
//     rank ──Ready──► service                    all have opened the board:
//     rank ◄──Go (or why not)────────────────────── service
//
// Ranks on several machines learn from the Welcome who is where, and between it and Ready:
//
//     rank ──Meeting (its address)──► service    all have told theirs:
//     rank ◄──Table (all addresses)────────────── service, and the processes link with each other (net.h)
//
// Ranks of one machine connect through an abstract Unix socket that is named after the token, so nothing is left in a
// file system; others through TCP, to the address that is in the token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/futex.h"
#include "base/status.h"
#include "collective/address.h"
#include "collective/board.h"
#include "collective/settings.h"

namespace reprise::collective {

namespace wire {
struct Welcome;
}

/// HCCL_ROOT_INFO_BYTES.
constexpr size_t kTokenBytes = 4108;

/// What a rank is handed to find the others.
struct Token {
  Nonce nonce{};
  uint64_t host = 0;  ///< of the process that serves it, as HostId
  int32_t pid = 0;
  Endpoint endpoint;  ///< for ranks on other machines; not set where there is no network

  /// Exactly kTokenBytes.
  void Write(char* bytes) const;
  /// 1 for bytes that are no token.
  static StatusOr<Token> Read(const char* bytes);
};

/// Equal for processes that can share memory: machine, namespaces of processes and of the network, user;
/// REPRISE_HCCL_HOST_ID. With REPRISE_HCCL_SHM=0 of this process alone. `part` tells servers of a rank table apart.
uint64_t HostId(const std::string& part = {});
/// Whether ranks may be on other machines (REPRISE_HCCL_NET).
bool HasNetwork();
/// A nonce that nobody else has.
StatusOr<Nonce> RandomNonce();
/// The nonce of something that all its ranks know: a rank table, a part of a group.
Nonce NonceOf(const std::string& what);

/// Begins to serve a token in this process, on a thread that ends when the ranks have met, or after the connect
/// time-out. 1 with EI0019 when another process serves it.
struct Service {
  Nonce nonce{};
  bool is_local = true;     ///< for ranks of this machine
  Endpoint* tcp = nullptr;  ///< for ranks of others: the address to listen at; gets the port
  std::vector<uint16_t> ports;
  bool is_table = false;  ///< ranks have no token but a file, which another job may have, too
};
Status Serve(const Service& service);

/// One rank on its way into a group.
struct Candidate {
  Nonce nonce{};
  uint32_t rank = 0;
  uint32_t ranks = 0;
  int device = 0;
  Settings settings;
  Endpoint service = {};    ///< where the token is served, if on another machine
  bool by_notice = false;   ///< the first rank tells where, over the links of the parent
  std::string server = {};  ///< of a rank table of several: this rank's
  Endpoint address = {};    ///< of this rank for other machines, where it is given
  uint64_t launch = 0;      ///< see wire::Hello
};

struct Member {
  std::shared_ptr<Board> board;
  std::string name;
};

/// What ranks of one process have in common on their way into a group that spans machines.
struct Gathering;

/// Joins in two steps, so that one thread can bring several ranks.
class Joining {
 public:
  Joining() = default;
  Joining(Joining&& other) noexcept;
  Joining& operator=(Joining&& other) noexcept;
  ~Joining();

  /// Connects and says hello. `patient`: waits until somebody serves the token; else that is 1.
  static StatusOr<Joining> Begin(const Candidate& candidate, bool patient);
  /// The table has come, and this process has opened the board; or, of a group that spans machines, told its address.
  Status Meet();
  /// Of a group that spans machines: the processes have linked. Else nothing.
  Status Link();
  /// All others have, too.
  StatusOr<Member> Finish();

 private:
  int fd_ = -1;
  Candidate candidate_;
  Status MeetApart(const wire::Welcome& welcome);
  Status SendReady(Status status);

  Clock::time_point deadline_;
  Member member_;
  std::shared_ptr<Gathering> gathering_;  ///< null on one machine
};

/// A board of `ranks` ranks of this process, filled: devices[i] is that of rank i.
StatusOr<Member> MakeLocal(const Nonce& nonce, const Settings& settings, const int* devices, uint32_t ranks);

}  // namespace reprise::collective
