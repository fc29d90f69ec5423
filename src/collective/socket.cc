// SPDX-License-Identifier: Apache-2.0
#include "collective/socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace reprise::collective {
namespace {

constexpr int kBacklog = 1024;

// Descriptors plus one. What does not fit is inherited. Read after a fork, when nobody can hold a lock.
std::array<std::atomic<int>, 8192> g_hidden{};

// The abstract name: a zero, a label, the nonce in hexadecimal digits.
socklen_t NameOf(const Nonce& nonce, sockaddr_un& address) {
  static constexpr char kLabel[] = "reprise-hccl-";
  static constexpr char kDigits[] = "0123456789abcdef";
  address = {};
  address.sun_family = AF_UNIX;
  char* at = address.sun_path + 1;
  at = std::copy_n(kLabel, sizeof kLabel - 1, at);
  for (const uint8_t byte : nonce) {
    *at++ = kDigits[byte >> 4];
    *at++ = kDigits[byte & 15];
  }
  return static_cast<socklen_t>(at - reinterpret_cast<char*>(&address));
}

int CloseWithError(int fd) {
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

bool WaitFor(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, MillisecondsTo(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0 && Clock::now() >= deadline) {
      errno = ETIMEDOUT;
      return false;
    }
  }
}

}  // namespace

void HideFromChildren(int fd) noexcept {
  for (std::atomic<int>& entry : g_hidden) {
    int none = 0;
    if (fd >= 0 && entry.compare_exchange_strong(none, fd + 1)) return;
  }
}

void NoLongerHidden(int fd) noexcept {
  for (std::atomic<int>& entry : g_hidden) {
    int there = fd + 1;
    if (fd >= 0 && entry.compare_exchange_strong(there, 0)) return;
  }
}

void CloseHidden() noexcept {
  for (std::atomic<int>& entry : g_hidden) {
    if (const int fd = entry.exchange(0) - 1; fd >= 0) close(fd);
  }
}

void WaitForDescriptors(int error) noexcept {
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) usleep(10'000);
}

int MillisecondsTo(Clock::time_point deadline) noexcept {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

int ListenUnix(const Nonce& nonce) noexcept {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  sockaddr_un address;
  const socklen_t length = NameOf(nonce, address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd, kBacklog) != 0)
    return CloseWithError(fd);
  return fd;
}

int ConnectUnix(const Nonce& nonce) noexcept {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_un address;
  const socklen_t length = NameOf(nonce, address);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) return CloseWithError(fd);
  return fd;
}

bool SendAll(int fd, const void* data, size_t bytes, Clock::time_point deadline) noexcept {
  const auto* at = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      at += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (sent < 0 && errno == EAGAIN) {
      if (!WaitFor(fd, POLLOUT, deadline)) return false;
    } else if (sent == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t bytes, Clock::time_point deadline) noexcept {
  auto* at = static_cast<char*>(data);
  while (bytes != 0) {
    const ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
    } else if (got == 0) {
      errno = EPIPE;
      return false;
    } else if (errno == EAGAIN) {
      if (!WaitFor(fd, POLLIN, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::string Why(int error) { return std::generic_category().message(error); }

}  // namespace reprise::collective
