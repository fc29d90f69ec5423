// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "collective/link.h"
#include "collective/numbers.h"
#include "collective/socket.h"

namespace reprise::collective {
namespace {

// How often the thread looks for silence while somebody waits.
constexpr int kLookMs = 5000;
constexpr auto kGreetWithin = std::chrono::seconds(10);
constexpr size_t kMostGreetings = 256;
constexpr auto kCloseWithin = std::chrono::seconds(5);
// Descriptors in events; links have their addresses, which are even.
constexpr uint64_t kBell = 1;
uint64_t ListenerId(int fd) { return (static_cast<uint64_t>(fd) << 2) | 3; }
uint64_t GreetingId(int fd) { return (uint64_t{1} << 62) | (static_cast<uint64_t>(fd) << 2) | 1; }

std::atomic<LinkThread*> g_thread{nullptr};

Status NoResource(const char* what, int error) {
  return Error(kSystemCall, fmt::format("EI0007: no {} for connections to other machines: {}", what,
                                        std::generic_category().message(error)))
      .Hint("raise the limits of open files and threads (ulimit -n, ulimit -u)");
}

}  // namespace

StatusOr<LinkThread*> LinkThread::Get() {
  if (LinkThread* const there = g_thread.load(std::memory_order_acquire)) return there;
  static Mutex mutex;
  MutexLock lock(mutex);
  if (LinkThread* const there = g_thread.load(std::memory_order_acquire)) return there;
  std::unique_ptr<LinkThread> made(new LinkThread);
  REPRISE_RETURN_IF_ERROR(made->Begin());
  g_thread.store(made.get(), std::memory_order_release);
  return made.release();
}

Status LinkThread::Begin() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || bell_ < 0) return NoResource("descriptor", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kBell;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, bell_, &event) != 0) return NoResource("descriptor", errno);
  try {
    std::thread([this] { Loop(); }).detach();
  } catch (const std::system_error& error) {
    return NoResource("thread", error.code().value());
  }
  return {};
}

StatusOr<Endpoint> LinkThread::Listen(const Endpoint& address) {
  std::array<uint8_t, 16> key{};
  std::memcpy(key.data(), address.address, key.size());
  MutexLock lock(mutex_);
  if (const auto it = listeners_.find(key); it != listeners_.end()) return it->second.first;
  Endpoint at = address;
  const int fd = ListenTcp(at, DataPorts());
  if (fd < 0) {
    const int error = errno;
    return Error(error == EADDRINUSE ? kParameter : kNetwork,
                 fmt::format("EI0019: no port for other machines can be opened at {}: {}", address.Print(),
                             std::generic_category().message(error)))
        .Culprit("the address of this machine")
        .Hint("set HCCL_IF_IP to an address of this machine, and HCCL_NPU_SOCKET_PORT_RANGE to ports that are free");
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = ListenerId(fd);
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = errno;
    close(fd);
    return NoResource("descriptor", error);
  }
  HideFromChildren(fd);
  listeners_[key] = {at, fd};
  return at;
}

void LinkThread::Expect(const Nonce& nonce, uint32_t own, const std::shared_ptr<Arrivals>& arrivals) {
  MutexLock lock(mutex_);
  expected_[{nonce, own}] = arrivals;
}

void LinkThread::Forget(const Nonce& nonce, uint32_t own) {
  MutexLock lock(mutex_);
  expected_.erase({nonce, own});
}

Status LinkThread::Add(const std::shared_ptr<Link>& link) {
  {
    MutexLock lock(mutex_);
    links_[IdOf(*link)] = link;
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = IdOf(*link);
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, link->fd_, &event) != 0) {
    const int error = errno;
    MutexLock lock(mutex_);
    links_.erase(IdOf(*link));
    return NoResource("descriptor", error);
  }
  return {};
}

void LinkThread::Arm(Link& link, bool writes) noexcept {
  epoll_event event{};
  event.events = writes ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.u64 = IdOf(link);
  (void)epoll_ctl(epoll_, EPOLL_CTL_MOD, link.fd_, &event);
}

void LinkThread::Wake() noexcept {
  const uint64_t one = 1;
  (void)!write(bell_, &one, sizeof one);
}

void LinkThread::Call() noexcept {
  if (sleeps_.load(std::memory_order_seq_cst)) Wake();
}

void LinkThread::FlushAll() noexcept {
  LinkThread* const thread = g_thread.load(std::memory_order_acquire);
  if (thread == nullptr) return;
  std::vector<std::shared_ptr<Link>> links;
  {
    MutexLock lock(thread->mutex_);
    for (const auto& [id, link] : thread->links_) links.push_back(link);
  }
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
  for (const auto& link : links) link->Flush(deadline);
}

void LinkThread::Remove(uint64_t id) {
  std::shared_ptr<Link> last;  // goes away without the lock
  MutexLock lock(mutex_);
  const auto it = links_.find(id);
  if (it == links_.end()) return;
  (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, it->second->fd_, nullptr);
  last = std::move(it->second);
  links_.erase(it);
}

// Whether the thread has to look again soon.
bool LinkThread::LookAfter() {
  std::vector<std::shared_ptr<Link>> links;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, link] : links_) links.push_back(link);
  }
  bool again = !greetings_.empty();
  const Clock::time_point now = Clock::now();
  for (const auto& link : links) {
    if (link->is_detached_.load()) {
      if (link->close_by_ == Clock::time_point()) link->close_by_ = now + kCloseWithin;
      if (now >= link->close_by_ || link->is_lost_.load()) {
        Remove(IdOf(*link));
      } else {
        again = true;
      }
      continue;
    }
    if (link->is_lost_.load()) continue;
    bool waits = false;
    {
      MutexLock lock(link->events_mutex_);
      waits = link->events_ != nullptr && link->events_->IsWaiting();
    }
    again |= waits;
    if (waits && link->IsSilent()) {
      link->Lose("its machine has not answered for 20 s");
      (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, link->fd_, nullptr);
    }
  }
  for (auto it = greetings_.begin(); it != greetings_.end();) {
    if (now < it->second.by) {
      ++it;
      continue;
    }
    close(it->second.fd);
    it = greetings_.erase(it);
  }
  return again;
}

void LinkThread::Loop() {
  epoll_event events[64];
  Clock::time_point next_look = Clock::now();
  bool looks = false;
  for (;;) {
    int timeout = -1;
    if (looks) {
      timeout = MillisecondsTo(next_look);
    } else {
      sleeps_.store(true, std::memory_order_seq_cst);
      looks = LookAfter();  // somebody may have begun to wait just now
      next_look = Clock::now() + std::chrono::milliseconds(kLookMs);
      timeout = looks ? kLookMs : -1;
    }
    const int count = epoll_wait(epoll_, events, 64, timeout);
    sleeps_.store(false, std::memory_order_seq_cst);
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kBell) {
        uint64_t value = 0;
        (void)!read(bell_, &value, sizeof value);
        looks = true;
        next_look = Clock::now();
      } else if ((id & 3) == 3) {
        Accept(static_cast<int>(id >> 2));
        looks = true;
      } else if ((id & 3) == 1) {
        ReadGreeting(id);
      } else {
        std::shared_ptr<Link> link;
        {
          MutexLock lock(mutex_);
          if (const auto it = links_.find(id); it != links_.end()) link = it->second;
        }
        if (link == nullptr) continue;
        if ((events[i].events & EPOLLOUT) != 0) link->OnWritable();
        if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) link->OnReadable();
        if (link->is_lost_.load()) {
          (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, link->fd_, nullptr);
          if (link->is_detached_.load()) Remove(id);
        }
      }
    }
    if (looks && Clock::now() >= next_look) {
      looks = LookAfter();
      next_look = Clock::now() + std::chrono::milliseconds(kLookMs);
    }
  }
}

void LinkThread::Accept(int listener) {
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return WaitForDescriptors(errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = GreetingId(fd);
  if (greetings_.size() >= kMostGreetings || !IsWelcome(PeerOf(fd)) ||
      epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
    close(fd);
    return;
  }
  Greeting& greeting = greetings_[GreetingId(fd)];
  greeting.fd = fd;
  greeting.by = Clock::now() + kGreetWithin;
}

// True: the greeting is over, and its descriptor has another owner.
bool LinkThread::Greet(Greeting& greeting) {
  const wire::LinkHello& hello = greeting.hello;
  if (hello.magic != wire::kLinkMagic || hello.version != wire::kVersion || hello.from >= kMostRanks) return false;
  std::shared_ptr<Arrivals> arrivals;
  {
    MutexLock lock(mutex_);
    const auto it = expected_.find({hello.nonce, hello.to});
    if (it != expected_.end()) arrivals = it->second;
  }
  if (arrivals == nullptr || send(greeting.fd, &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof hello)
    return false;
  const std::lock_guard lock(arrivals->mutex);
  if (!arrivals->sockets.emplace(hello.from, greeting.fd).second) return false;
  arrivals->changed.notify_all();
  return true;
}

void LinkThread::ReadGreeting(uint64_t id) {
  const auto it = greetings_.find(id);
  if (it == greetings_.end()) return;
  Greeting& greeting = it->second;
  auto* const at = reinterpret_cast<char*>(&greeting.hello);
  const ssize_t got = recv(greeting.fd, at + greeting.got, sizeof greeting.hello - greeting.got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  greeting.got += got > 0 ? static_cast<size_t>(got) : 0;
  if (got > 0 && greeting.got < sizeof greeting.hello) return;
  (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, greeting.fd, nullptr);
  if (got <= 0 || !Greet(greeting)) {
    REPRISE_LOG(kWarning, "HCCL", "InitChannelStage: {} has connected and is of no group of this process; closed",
                PeerOf(greeting.fd).Print());
    close(greeting.fd);
  }
  greetings_.erase(it);
}

}  // namespace reprise::collective
