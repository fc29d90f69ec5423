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
// Ranks of one machine connect through an abstract Unix socket that is named after the token, so nothing is left in a
// file system.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/futex.h"
#include "base/status.h"
#include "collective/board.h"
#include "collective/settings.h"

namespace reprise::collective {

/// HCCL_ROOT_INFO_BYTES.
constexpr size_t kTokenBytes = 4108;

/// What a rank is handed to find the others.
struct Token {
  Nonce nonce{};
  uint64_t host = 0;  ///< of the process that serves it, as HostId
  int32_t pid = 0;

  /// Exactly kTokenBytes.
  void Write(char* bytes) const;
  /// 1 for bytes that are no token.
  static StatusOr<Token> Read(const char* bytes);
};

/// Equal for processes that can share memory: machine, process namespace, user.
uint64_t HostId();
/// A nonce that nobody else has.
StatusOr<Nonce> RandomNonce();
/// The nonce of something that all its ranks know: a rank table, a part of a group.
Nonce NonceOf(const std::string& what);

/// Begins to serve a token in this process, on a thread that ends when the ranks have met, or after the connect
/// time-out. 1 with EI0019 when another process serves it.
Status Serve(const Nonce& nonce);

/// One rank on its way into a group.
struct Candidate {
  Nonce nonce{};
  uint32_t rank = 0;
  uint32_t ranks = 0;
  int device = 0;
  Settings settings;
};

struct Member {
  std::shared_ptr<Board> board;
  std::string name;
};

/// Joins in two steps, so that one thread can bring several ranks.
class Joining {
 public:
  Joining() = default;
  Joining(Joining&& other) noexcept;
  Joining& operator=(Joining&& other) noexcept;
  ~Joining();

  /// Connects and says hello. `patient`: waits until somebody serves the token; else that is 1.
  static StatusOr<Joining> Begin(const Candidate& candidate, bool patient);
  /// The table has come, and this process has opened the board.
  Status Meet();
  /// All others have, too.
  StatusOr<Member> Finish();

 private:
  int fd_ = -1;
  Candidate candidate_;
  Clock::time_point deadline_;
  Member member_;
};

/// A board of `ranks` ranks of this process, filled: devices[i] is that of rank i.
StatusOr<Member> MakeLocal(const Nonce& nonce, const Settings& settings, const int* devices, uint32_t ranks);

}  // namespace reprise::collective
