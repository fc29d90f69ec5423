// SPDX-License-Identifier: Apache-2.0
#include "collective/service.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "collective/address.h"
#include "collective/numbers.h"
#include "collective/socket.h"
#include "collective/wire.h"

namespace reprise::collective {
namespace {

// After a refusal others may be on their way, who should learn why.
constexpr auto kGrace = std::chrono::seconds(5);
// Who has not said who it is: so many, and so long.
constexpr size_t kMostStrangers = 256;
constexpr auto kGreetWithin = std::chrono::seconds(10);
constexpr auto kLookEvery = std::chrono::seconds(1);

struct Guest {
  int fd = -1;
  size_t got = 0;  // bytes of the Hello
  bool is_sound = false;
  bool is_welcome = true;  // its machine may take part
  bool is_told = false;    // why there is no group
  Clock::time_point since;
  wire::Hello hello{};
};

class Session {
 public:
  Session(const ServiceSockets& sockets, std::chrono::duration<double> timeout)
      : sockets_(sockets),
        nonce_(sockets.nonce),
        timeout_(std::chrono::duration_cast<Clock::duration>(timeout)),
        deadline_(Clock::now() + timeout_) {
    for (const int fd : {sockets_.local, sockets_.tcp}) HideFromChildren(fd);
  }
  ~Session() {
    for (const Guest& guest : guests_) close(guest.fd);
    StopListening();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void Run() {
    Collect();
    if (code_ != 0) return Dismiss();
    StopListening();  // the token is used up
    std::shared_ptr<Board> board;
    Seat();
    if (machines_ > 1 ? !WelcomeApart() : !Welcome(board)) return Dismiss();
    Conclude();
    if (board != nullptr) board->StopOffering();
  }

 private:
  void StopListening() {
    for (int* const fd : {&sockets_.local, &sockets_.tcp}) {
      if (*fd >= 0) {
        NoLongerHidden(*fd);
        close(*fd);
      }
      *fd = -1;
    }
  }

  void Refuse(int code, std::string text) {
    code_ = code;
    text_ = std::move(text);
  }

  // Takes guests until all ranks are there, or something is wrong.
  void Collect() {
    while (code_ == 0 && (ranks_ == 0 || Sound() < ranks_)) {
      if (Clock::now() >= deadline_) return Refuse(kTimeout, WhoIsMissing());
      const Clock::time_point next = guests_.size() > Sound() ? Clock::now() + kLookEvery : deadline_;
      if (!Look(std::min(next, deadline_))) return;
    }
  }

  // Waits for guests, reads what they say, and lets new ones in. False: that failed, and the rendezvous is over.
  bool Look(Clock::time_point until) {
    std::vector<pollfd> entries{{sockets_.local, POLLIN, 0}, {sockets_.tcp, POLLIN, 0}};
    for (const Guest& guest : guests_) entries.push_back({guest.fd, guest.is_sound ? short{0} : short{POLLIN}, 0});
    if (poll(entries.data(), entries.size(), MillisecondsTo(until)) < 0) {
      if (errno == EINTR) return true;
      Refuse(kSystemCall, fmt::format("the rendezvous has ended: {}", std::generic_category().message(errno)));
      return false;
    }
    for (size_t i = guests_.size(); i-- > 0;) {
      const short events = entries[i + 2].revents;
      if (events == 0) continue;
      if (guests_[i].is_sound ? (events & (POLLHUP | POLLERR)) != 0 : !Read(guests_[i])) {
        close(guests_[i].fd);
        guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    HangUpOnStrangers();
    if ((entries[0].revents & POLLIN) != 0) Accept(sockets_.local);
    if ((entries[1].revents & POLLIN) != 0) Accept(sockets_.tcp);
    return true;
  }

  // Those who have said nothing for long, and the eldest of too many.
  void HangUpOnStrangers() {
    const Clock::time_point late = Clock::now() - kGreetWithin;
    size_t strangers = guests_.size() - Sound();
    for (size_t i = 0; i < guests_.size();) {
      if (guests_[i].is_sound || (guests_[i].since > late && strangers < kMostStrangers)) {
        ++i;
        continue;
      }
      close(guests_[i].fd);
      guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
      --strangers;
    }
  }

  uint32_t Sound() const {
    return static_cast<uint32_t>(
        std::count_if(guests_.begin(), guests_.end(), [](const Guest& guest) { return guest.is_sound; }));
  }

  void Accept(int listener) {
    Guest guest;
    guest.fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (guest.fd < 0) return WaitForDescriptors(errno);
    guest.since = Clock::now();
    guest.is_welcome = listener != sockets_.tcp || IsWelcome(PeerOf(guest.fd));
    guests_.push_back(guest);
  }

  static wire::Welcome Refusal(int code, const std::string& text) {
    wire::Welcome welcome{};
    welcome.magic = wire::kWelcomeMagic;
    welcome.code = code;
    std::memcpy(welcome.text, text.c_str(), std::min(text.size(), sizeof welcome.text - 1));
    return welcome;
  }

  // False: it is no rank of this group, or has gone.
  bool Read(Guest& guest) {
    const ssize_t got =
        recv(guest.fd, reinterpret_cast<char*>(&guest.hello) + guest.got, sizeof guest.hello - guest.got, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    guest.got += static_cast<size_t>(got);
    if (guest.got >= sizeof guest.hello.magic && guest.hello.magic != wire::kHelloMagic) {
      REPRISE_LOG(kWarning, "HCCL", "InitGroupStage: something that is no rank has connected; it is ignored");
      return false;
    }
    // Where the first fields lie does not depend on the version.
    if (guest.got < offsetof(wire::Hello, device)) return true;
    if (guest.hello.nonce != nonce_) return false;
    if (guest.hello.version != wire::kVersion) {
      Refuse(kInternal, fmt::format("EI0008: rank {} (process {}) speaks version {} of the protocol, here it is {}",
                                    guest.hello.rank, guest.hello.pid, guest.hello.version, wire::kVersion));
      guest.is_sound = true;  // it is told
      return true;
    }
    if (guest.got < sizeof guest.hello) return true;
    if (!wire::IsSound(guest.hello)) return false;
    // A rank table names the same group to each job that uses it: who comes second is of another one.
    if (const Guest* const other = sockets_.is_table ? Seated(guest.hello.rank) : nullptr; other != nullptr) {
      const wire::Welcome refusal =
          Refusal(kParameter, fmt::format("EI0019: rank {} of this rank table is there already: process {}; another "
                                          "job uses the table",
                                          guest.hello.rank, other->hello.pid));
      (void)SendAll(guest.fd, &refusal, sizeof refusal, Clock::now() + std::chrono::seconds(1));
      return false;
    }
    guest.is_sound = true;
    if (!guest.is_welcome) {
      Refuse(kParameter, fmt::format("EI0014: rank {} (process {} at {}) is of a machine that HCCL_WHITELIST_FILE does "
                                     "not name",
                                     guest.hello.rank, guest.hello.pid, PeerOf(guest.fd).Print()));
      return true;
    }
    Check(guest);
    return true;
  }

  const Guest* Seated(uint32_t rank) const {
    const auto at = std::find_if(guests_.begin(), guests_.end(),
                                 [&](const Guest& guest) { return guest.is_sound && guest.hello.rank == rank; });
    return at != guests_.end() ? &*at : nullptr;
  }

  // A new rank against those that are there.
  void Check(const Guest& guest) {
    const wire::Hello& hello = guest.hello;
    if (ranks_ == 0) {
      ranks_ = hello.ranks;
      deadline_ = Clock::now() + timeout_;
    }
    if (hello.ranks != ranks_) {
      return Refuse(kParameter,
                    fmt::format("EI0014: rank {} (process {}) says that the group has {} ranks, others say {}",
                                hello.rank, hello.pid, hello.ranks, ranks_));
    }
    for (const Guest& other : guests_) {
      if (!other.is_sound || &other == &guest) continue;
      const wire::Hello& there = other.hello;
      if (there.rank == hello.rank) {
        return Refuse(kParameter, fmt::format("EI0014: rank {} is there twice: processes {} and {}", hello.rank,
                                              there.pid, hello.pid));
      }
      const auto differ = [&](const char* field, const std::string& a, const std::string& b) {
        Refuse(kParameter, fmt::format("EI0005: config.{} differs between ranks: {} on rank {}, {} on rank {}", field,
                                       a, there.rank, b, hello.rank));
      };
      if (std::strcmp(there.name, hello.name) != 0) return differ("hcclCommName", there.name, hello.name);
      if (there.buffer_mb != hello.buffer_mb)
        return differ("hcclBufferSize", std::to_string(there.buffer_mb), std::to_string(hello.buffer_mb));
      if (there.exec_timeout_s != hello.exec_timeout_s) {
        return differ("hcclExecTimeOut", fmt::format("{:g}", there.exec_timeout_s),
                      fmt::format("{:g}", hello.exec_timeout_s));
      }
    }
  }

  std::string WhoIsMissing() const {
    if (ranks_ == 0) return "EI0015: no rank has come";
    std::string missing;
    int shown = 0;
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      const bool is_there = std::any_of(guests_.begin(), guests_.end(),
                                        [&](const Guest& guest) { return guest.is_sound && guest.hello.rank == rank; });
      if (is_there) continue;
      if (++shown > 32) {
        missing += ", …";
        break;
      }
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    return fmt::format("EI0015: {} of {} ranks have come within {:g} s; missing: {}", Sound(), ranks_,
                       std::chrono::duration<double>(timeout_).count(), missing);
  }

  // The guests by rank, the processes that they are of, and the machines of those.
  void Seat() {
    for (const Guest& guest : guests_) {
      if (!guest.is_sound) close(guest.fd);
    }
    std::erase_if(guests_, [](const Guest& guest) { return !guest.is_sound; });
    std::sort(guests_.begin(), guests_.end(),
              [](const Guest& a, const Guest& b) { return a.hello.rank < b.hello.rank; });
    std::vector<uint64_t> hosts;
    std::vector<std::pair<uint64_t, int32_t>> processes;
    const auto index_in = [](auto& all, const auto& one) {
      const auto at = std::find(all.begin(), all.end(), one);
      const auto index = static_cast<uint32_t>(at - all.begin());
      if (at == all.end()) all.push_back(one);
      return index;
    };
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      const wire::Hello& hello = guests_[rank].hello;
      wire::RosterRow row{};
      row.machine = index_in(hosts, hello.host);
      row.process = index_in(processes, std::pair(hello.host, hello.pid));
      row.pid = hello.pid;
      row.device = hello.device;
      row.world_rank = hello.world_rank;
      roster_.push_back(row);
    }
    machines_ = static_cast<uint32_t>(hosts.size());
    processes_ = static_cast<uint32_t>(processes.size());
  }

  std::string NameOfGroup() const {
    return guests_[0].hello.name[0] != '\0' ? guests_[0].hello.name : DefaultName(guests_[0].hello.device);
  }

  // Of ranks on several machines: tells everybody who is where, and then where each process is reached.
  bool WelcomeApart() {
    const Clock::time_point deadline = Clock::now() + timeout_;
    wire::Welcome welcome{};
    welcome.magic = wire::kWelcomeMagic;
    welcome.processes = processes_;
    welcome.ranks = ranks_;
    welcome.spans = 1;
    const std::string name = NameOfGroup();
    std::memcpy(welcome.text, name.c_str(), std::min(name.size() + 1, sizeof welcome.text - 1));
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      (void)SendAll(guests_[rank].fd, &welcome, sizeof welcome, deadline);
      (void)SendAll(guests_[rank].fd, roster_.data(), roster_.size() * sizeof roster_[0], deadline);
    }
    std::vector<Endpoint> endpoints(processes_);
    std::vector<device::ShareKey> boards(machines_);
    wire::Table table{};
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      wire::Meeting meeting{};
      const bool got = ReceiveAll(guests_[rank].fd, &meeting, sizeof meeting, deadline);
      meeting.text[sizeof meeting.text - 1] = '\0';
      if (!got || meeting.code != 0) {
        if (table.code != 0) continue;
        table.code = got ? meeting.code : kRemote;
        const std::string text = fmt::format("EI0006: rank {} (process {}) could not join: {}", rank,
                                             guests_[rank].hello.pid, got ? meeting.text : "it has ended");
        std::memcpy(table.text, text.c_str(), std::min(text.size(), sizeof table.text - 1));
        continue;
      }
      endpoints[roster_[rank].process] = meeting.endpoint;
      if (meeting.board.nonce != 0) boards[roster_[rank].machine] = meeting.board;
    }
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      table.board = boards[roster_[rank].machine];
      (void)SendAll(guests_[rank].fd, &table, sizeof table, deadline);
      if (table.code == 0)
        (void)SendAll(guests_[rank].fd, endpoints.data(), endpoints.size() * sizeof(Endpoint), deadline);
    }
    // Those who have got a reason leave.
    return true;
  }

  // Makes the board and tells everybody.
  bool Welcome(std::shared_ptr<Board>& board) {
    const bool is_shared = processes_ > 1 || roster_[0].pid != getpid();
    auto made = Board::Create(nonce_, ranks_, is_shared);
    if (!made.ok()) {
      const Status why = std::move(made).status();
      Refuse(why.code(), why.detail().what);
      return false;
    }
    board = *made;
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      RankRow& row = board->rank(rank);
      row.pid = guests_[rank].hello.pid;
      row.device = guests_[rank].hello.device;
      row.world_rank = guests_[rank].hello.world_rank;
      row.process = roster_[rank].process;
      board->process(row.process).pid = row.pid;
      row.state.store(static_cast<uint32_t>(RankState::kReady));
    }
    board->set_processes(processes_);
    wire::Welcome welcome{};
    welcome.magic = wire::kWelcomeMagic;
    welcome.processes = processes_;
    welcome.is_shared = is_shared ? 1 : 0;
    if (is_shared) {
      auto key = board->Offer();
      if (!key.ok()) {
        Refuse(kSystemCall, std::move(key).status().detail().what);
        return false;
      }
      welcome.board = *key;
    }
    const std::string name = NameOfGroup();
    std::memcpy(welcome.text, name.c_str(), std::min(name.size() + 1, sizeof welcome.text - 1));
    const Clock::time_point deadline = Clock::now() + timeout_;
    for (const Guest& guest : guests_) (void)SendAll(guest.fd, &welcome, sizeof welcome, deadline);
    return true;
  }

  // address%interface_port_device_microseconds; the port is a number of this process, so that two are never equal.
  static std::string DefaultName(int device) {
    static std::atomic<uint32_t> count{0};
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return fmt::format("127.0.0.1%lo_{}_{}_{}", 60000 + count.fetch_add(1) % 5536, device,
                       static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_nsec) / 1000) +
           fmt::format("{:06}", getpid() % 1000000);
  }

  // Waits for all to be ready, and lets them go.
  void Conclude() {
    wire::Verdict verdict{};
    const Clock::time_point deadline = Clock::now() + timeout_;
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      wire::Verdict ready{};
      const bool got = ReceiveAll(guests_[rank].fd, &ready, sizeof ready, deadline);
      if (verdict.code != 0 || (got && ready.code == 0)) continue;
      verdict.code = got ? ready.code : kRemote;
      ready.text[sizeof ready.text - 1] = '\0';
      const std::string why = got ? ready.text : "it has ended";
      const std::string text =
          fmt::format("EI0006: rank {} (process {}) could not join: {}", rank, guests_[rank].hello.pid, why);
      std::memcpy(verdict.text, text.c_str(), std::min(text.size(), sizeof verdict.text - 1));
    }
    for (const Guest& guest : guests_) (void)SendAll(guest.fd, &verdict, sizeof verdict, deadline);
  }

  // Tells all why there is no group: also those who have connected and not said yet who they are, and who come within
  // the next seconds.
  void Dismiss() {
    const wire::Welcome welcome = Refusal(code_ != 0 ? code_ : kInternal, text_);
    const Clock::time_point end = Clock::now() + kGrace;
    uint32_t told = 0;
    for (;;) {
      for (Guest& guest : guests_) {
        if (!guest.is_sound || guest.is_told) continue;
        (void)SendAll(guest.fd, &welcome, sizeof welcome, end);
        guest.is_told = true;
        ++told;
      }
      // How many there are may not be known yet.
      const bool are_more = ranks_ == 0 ? told != 0 : told < ranks_;
      const bool is_open = sockets_.local >= 0 || sockets_.tcp >= 0;
      if (!is_open || !are_more || Clock::now() >= end || !Look(end)) return;
    }
  }

  ServiceSockets sockets_;
  const Nonce nonce_;
  const Clock::duration timeout_;
  Clock::time_point deadline_;
  std::vector<Guest> guests_;
  uint32_t ranks_ = 0;
  std::vector<wire::RosterRow> roster_;  // by rank
  uint32_t processes_ = 0;
  uint32_t machines_ = 0;
  int code_ = 0;
  std::string text_;
};

}  // namespace

void RunService(ServiceSockets sockets, std::chrono::duration<double> timeout) noexcept {
  try {
    Session(sockets, timeout).Run();
  } catch (const std::exception& error) {
    REPRISE_LOG(kError, "HCCL", "InitGroupStage: the rendezvous of a communicator has failed: {}", error.what());
  }
}

}  // namespace reprise::collective
