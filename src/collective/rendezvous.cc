// SPDX-License-Identifier: Apache-2.0
#include "collective/rendezvous.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/calls.h"
#include "base/env.h"
#include "collective/gathering.h"
#include "collective/net.h"
#include "collective/numbers.h"
#include "collective/service.h"
#include "collective/socket.h"
#include "collective/watch.h"
#include "collective/wire.h"

namespace reprise::collective {
namespace {

constexpr uint32_t kTokenMagic = 0x52544f4b;
// What a rank waits longer than the service, so that the reason comes from there.
constexpr auto kPatience = std::chrono::seconds(2);
// How long one attempt to reach another machine may take.
constexpr auto kConnectAtOnce = std::chrono::seconds(20);

struct TokenImage {
  uint32_t magic;
  uint32_t version;
  Nonce nonce;
  uint64_t host;
  int32_t pid;
  uint32_t spare;
  Endpoint endpoint;
  uint32_t check;
};

uint32_t CheckOf(const TokenImage& image) {
  uint32_t sum = 2166136261u;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&image);
  for (size_t i = 0; i < offsetof(TokenImage, check); ++i) sum = (sum ^ bytes[i]) * 16777619u;
  return sum;
}

uint64_t Fnv(uint64_t hash, const std::string& text) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return hash;
}

Status FromService(int code, const char* text) {
  return Error(code, text)
      .Culprit("the ranks of the new communicator")
      .Hint(code == kTimeout
                ? "start all ranks, or wait longer (HCCL_CONNECT_TIMEOUT)"
                : "call with the same token, number of ranks and configuration on all ranks, and with another "
                  "rank on each");
}

}  // namespace

void Token::Write(char* bytes) const {
  TokenImage image{};
  image.magic = kTokenMagic;
  image.version = wire::kVersion;
  image.nonce = nonce;
  image.host = host;
  image.pid = pid;
  image.endpoint = endpoint;
  image.check = CheckOf(image);
  std::memset(bytes, 0, kTokenBytes);
  std::memcpy(bytes, &image, sizeof image);
}

StatusOr<Token> Token::Read(const char* bytes) {
  TokenImage image;
  std::memcpy(&image, bytes, sizeof image);
  if (image.magic != kTokenMagic || image.check != CheckOf(image)) {
    return Error(kParameter, "EI0014: rootInfo holds no token")
        .Culprit("parameter rootInfo")
        .Hint("hand on all 4108 bytes that HcclGetRootInfo has written");
  }
  if (image.version != wire::kVersion) {
    return Error(kInternal, fmt::format("EI0008: the token is of version {} of the protocol, here it is {}",
                                        image.version, wire::kVersion))
        .Culprit("parameter rootInfo")
        .Hint("run all ranks with one version of the library");
  }
  Token token;
  token.nonce = image.nonce;
  token.host = image.host;
  token.pid = image.pid;
  token.endpoint = image.endpoint;
  // Of an interface of the machine that has made it.
  token.endpoint.scope = 0;
  if (token.endpoint.family != 4 && token.endpoint.family != 6) token.endpoint = {};
  return token;
}

bool HasNetwork() { return Env(EnvVar::kHcclNet) != "none"; }

uint64_t HostId(const std::string& part) {
  static const uint64_t id = [] {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    // Abstract sockets, through which all is found, are of the namespace of the network.
    struct stat processes {};
    struct stat network {};
    (void)stat("/proc/self/ns/pid", &processes);
    (void)stat("/proc/self/ns/net", &network);
    std::string text =
        fmt::format("{}/{}/{}/{}/{}", boot, processes.st_ino, network.st_ino, geteuid(), Env(EnvVar::kHcclHostId));
    if (Env(EnvVar::kHcclShm) == "0") text += fmt::format("/{}", getpid());
    return Fnv(14695981039346656037u, text);
  }();
  return part.empty() ? id : Fnv(id, part);
}

StatusOr<Nonce> RandomNonce() {
  Nonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    return Error(kSystemCall, fmt::format("the host gives no random numbers: {}", Why(errno))).Hint("try again");
  return nonce;
}

Nonce NonceOf(const std::string& what) {
  Nonce nonce;
  const uint64_t halves[] = {Fnv(14695981039346656037u, what), Fnv(1099511628211u * 31, "/" + what)};
  std::memcpy(nonce.data(), halves, sizeof halves);
  return nonce;
}

Status Serve(const Service& service) {
  const auto cannot = [](int error, const std::string& where) {
    const bool is_used = error == EADDRINUSE;
    return Error(
               is_used                  ? kParameter
               : error == EADDRNOTAVAIL ? kNetwork
                                        : kSystemCall,
               fmt::format("EI0019: the rendezvous of the communicator cannot be opened at {}: {}", where, Why(error)))
        .Culprit(where)
        .Hint(is_used                  ? "wait until the other job with the same rank table has ended, or free the port"
              : error == EADDRNOTAVAIL ? "name an address of this machine (HCCL_IF_IP, or device_ip of the rank table)"
                                       : "close files, or raise the limit of open files (ulimit -n)");
  };
  ServiceSockets sockets;
  sockets.nonce = service.nonce;
  sockets.is_table = service.is_table;
  if (service.is_local) {
    sockets.local = ListenUnix(service.nonce);
    if (sockets.local < 0) return cannot(errno, "an abstract Unix socket");
  }
  if (service.tcp != nullptr) {
    sockets.tcp = ListenTcp(*service.tcp, service.ports);
    if (sockets.tcp < 0) {
      const int error = errno;
      if (sockets.local >= 0) close(sockets.local);
      return cannot(error, service.tcp->Print());
    }
  }
  const std::chrono::duration<double> timeout(TheEnvironment().connect_timeout_s);
  try {
    std::thread(RunService, sockets, timeout).detach();
  } catch (const std::system_error& error) {
    for (const int fd : {sockets.local, sockets.tcp}) {
      if (fd >= 0) close(fd);
    }
    return Error(kSystemCall, fmt::format("no thread for the rendezvous: {}", error.what()))
        .Hint("raise the limit of threads (ulimit -u)");
  }
  return {};
}

// ---- Joining ----

Joining::Joining(Joining&& other) noexcept { *this = std::move(other); }
Joining& Joining::operator=(Joining&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(candidate_, other.candidate_);
  std::swap(deadline_, other.deadline_);
  std::swap(member_, other.member_);
  std::swap(gathering_, other.gathering_);
  return *this;
}
Joining::~Joining() {
  if (fd_ >= 0) close(fd_);
}

StatusOr<Joining> Joining::Begin(const Candidate& candidate, bool patient) {
  const WaitingCall waiting;
  Joining joining;
  joining.candidate_ = candidate;
  const auto timeout =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(TheEnvironment().connect_timeout_s));
  joining.deadline_ = Clock::now() + timeout + kPatience;
  const Clock::time_point last_try = Clock::now() + timeout;
  for (;;) {
    Endpoint where = candidate.service;
    if (candidate.by_notice) where = FindNotice(candidate.nonce).value_or(Endpoint());
    int error = ECONNREFUSED;
    if (where.is_set() || !candidate.by_notice) {
      joining.fd_ = where.is_set() ? ConnectTcp(where, std::min(last_try, Clock::now() + kConnectAtOnce))
                                   : ConnectUnix(candidate.nonce);
      if (joining.fd_ >= 0) break;
      error = errno;
    }
    const bool is_unknown = error == ECONNREFUSED || error == ENOENT;
    const bool may_come = is_unknown || (where.is_set() && (error == ETIMEDOUT || error == EHOSTUNREACH));
    if (may_come && patient && Clock::now() < last_try) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    if (may_come && patient) {
      return Error(kTimeout, fmt::format("EI0015: rank 0 has not come within {:g} s; missing: 0",
                                         TheEnvironment().connect_timeout_s))
          .Culprit("the ranks of the new communicator")
          .Hint("start all ranks, or wait longer (HCCL_CONNECT_TIMEOUT)");
    }
    if (is_unknown) {
      return Error(kParameter,
                   "EI0014: nobody serves the token: it was used already, or the process that made it has "
                   "ended, or has waited too long")
          .Culprit("parameter rootInfo")
          .Hint("make a new token with HcclGetRootInfo for each communicator");
    }
    const bool is_far = where.is_set();
    return Error(is_far && error == ETIMEDOUT ? kTimeout : kConnect,
                 fmt::format("EI0006: no connection to the other ranks{}: {}",
                             is_far ? fmt::format(" at {}", where.Print()) : std::string(), Why(error)))
        .Culprit(is_far ? "the network between the machines" : "an abstract Unix socket")
        .Hint(is_far ? "let the machines reach each other (HCCL_IF_IP, HCCL_SOCKET_IFNAME, HCCL_IF_BASE_PORT on the "
                       "machine that makes the token)"
                     : "run all ranks as one user, in one network namespace");
  }
  const Settings& settings = candidate.settings;
  wire::Hello hello{};
  hello.magic = wire::kHelloMagic;
  hello.version = wire::kVersion;
  hello.nonce = candidate.nonce;
  hello.rank = candidate.rank;
  hello.ranks = candidate.ranks;
  hello.pid = getpid();
  hello.device = candidate.device;
  hello.world_rank = settings.world_rank;
  hello.buffer_mb = settings.buffer_mb;
  hello.exec_timeout_s = settings.exec_timeout_s;
  hello.host = HostId(candidate.server);
  hello.launch = candidate.launch;
  std::memcpy(hello.name, settings.name.c_str(), std::min(settings.name.size() + 1, sizeof hello.name));
  if (!SendAll(joining.fd_, &hello, sizeof hello, joining.deadline_)) {
    return Error(kConnect, fmt::format("EI0006: the rendezvous has ended: {}", Why(errno)))
        .Culprit("parameter rootInfo")
        .Hint("make a new token with HcclGetRootInfo for each communicator");
  }
  return joining;
}

Status OpenShared(const std::shared_ptr<Board>& board) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (uint32_t i = 0; i < board->processes(); ++i) {
    if (!board->IsRemoteProcess(i) && board->process(i).pid == getpid()) board->own_process = i;
  }
  REPRISE_ASSIGN_OR_RETURN(board->process(board->own_process).doorbell, OwnDoorbell());
  WatchBoard(board);
  return {};
}

Status Joining::Meet() {
  const WaitingCall waiting;
  wire::Welcome welcome{};
  if (!ReceiveAll(fd_, &welcome, sizeof welcome, deadline_) || welcome.magic != wire::kWelcomeMagic) {
    const int error = errno;
    return Error(error == ETIMEDOUT ? kTimeout : kParameter,
                 fmt::format(
                     "EI0015: the rendezvous has ended: the token was used already, or the process that made it has "
                     "ended ({})",
                     Why(error)))
        .Culprit("parameter rootInfo")
        .Hint("make a new token with HcclGetRootInfo for each communicator; else look why that process has ended");
  }
  welcome.text[sizeof welcome.text - 1] = '\0';
  if (welcome.code != 0) return FromService(welcome.code, welcome.text);
  member_.name = welcome.text;
  if (welcome.spans != 0) return MeetApart(welcome);
  Status status;
  if (welcome.is_shared == 0) {
    member_.board = Board::Find(candidate_.nonce);
    if (member_.board == nullptr) status = Error(kInternal, "EI0006: the state of the communicator is not there");
  } else {
    auto board = Board::Open(candidate_.nonce, welcome.board);
    if (board.ok()) {
      member_.board = *board;
      status = OpenShared(member_.board);
    } else {
      status = std::move(board).status();
    }
  }
  return SendReady(std::move(status));
}

// Tells the service whether this rank can go on. What is wrong comes back to all with its verdict.
Status Joining::SendReady(Status status) {
  wire::Verdict ready{};
  if (!status.ok()) {
    ready.code = status.code() < 1000 ? status.code() : kUnavailable;
    const std::string& text = status.detail().what;
    std::memcpy(ready.text, text.c_str(), std::min(text.size(), sizeof ready.text - 1));
  }
  (void)SendAll(fd_, &ready, sizeof ready, deadline_);
  return {};
}

StatusOr<Member> Joining::Finish() {
  const WaitingCall waiting;
  wire::Verdict verdict{};
  if (!ReceiveAll(fd_, &verdict, sizeof verdict, deadline_)) {
    return Error(kConnect, fmt::format("EI0006: the rendezvous has ended before all ranks were ready: {}", Why(errno)))
        .Culprit("the process that made the token")
        .Hint("look why that process has ended");
  }
  verdict.text[sizeof verdict.text - 1] = '\0';
  if (verdict.code != 0) return FromService(verdict.code, verdict.text);
  if (gathering_ != nullptr) EndGathering(*gathering_);
  if (member_.board->is_shared()) {
    if (Status status = OpenDoorbells(*member_.board); !status.ok())
      return Error(kUnavailable, fmt::format("EI0006: another rank cannot be reached: {}", status.detail().what))
          .Culprit("the processes of the ranks")
          .Hint("run all ranks as one user, in one container");
  }
  return std::move(member_);
}

StatusOr<Member> MakeLocal(const Nonce& nonce, const Settings& settings, const int* devices, uint32_t ranks) {
  REPRISE_ASSIGN_OR_RETURN(std::shared_ptr<Board> board, Board::Create(nonce, ranks, false));
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    RankRow& row = board->rank(rank);
    row.pid = getpid();
    row.device = devices[rank];
    row.state.store(static_cast<uint32_t>(RankState::kReady));
  }
  board->process(0).pid = getpid();
  board->set_processes(1);
  Member member;
  member.board = std::move(board);
  member.name = settings.name;
  if (member.name.empty()) {
    uint64_t number = 0;
    std::memcpy(&number, nonce.data(), sizeof number);
    member.name = fmt::format("127.0.0.1%lo_60000_{}_{}", devices[0], number % 10000000000000000u);
  }
  return member;
}

}  // namespace reprise::collective
