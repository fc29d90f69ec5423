// SPDX-License-Identifier: Apache-2.0
#include "device/move_to_file.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

#include "base/fault.h"
#include "base/futex.h"
#include "base/mutex.h"
#include "device/run_report.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace reprise::device {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMostAtOnce = 1u << 20;

Mutex g_mutex;  // one move at a time
std::atomic<uint32_t> g_moves{0};
std::atomic<uintptr_t> g_begin{0};
std::atomic<uintptr_t> g_end{0};
struct sigaction g_previous {};  // of SIGSEGV; written while no other move goes on

// It is the kernel that keeps writers away from what is read and mapped here, which ThreadSanitizer cannot know: its
// wrappers of memcmp, pwrite and mmap would see races.
__attribute__((no_sanitize("thread"))) bool IsZero(const char* page) {
  const auto* words = reinterpret_cast<const uint64_t*>(page);
  for (size_t i = 0; i < kPage / sizeof *words; i += 8) {
    if ((words[i] | words[i + 1] | words[i + 2] | words[i + 3] | words[i + 4] | words[i + 5] | words[i + 6] |
         words[i + 7]) != 0) {
      return false;
    }
  }
  return true;
}

// Pages of zeroes stay holes. Written with a system call, which says so when there is no memory.
bool WritePages(int fd, const char* from, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes;) {
    if (IsZero(from + at)) {
      at += kPage;
      continue;
    }
    uint64_t end = at + kPage;
    while (end < bytes && end - at < kMostAtOnce && !IsZero(from + end)) end += kPage;
    while (at < end) {
      const long written = syscall(SYS_pwrite64, fd, from + at, end - at, at);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        if (written == 0) errno = ENOSPC;
        return false;
      }
      at += static_cast<uint64_t>(written);
    }
  }
  return true;
}

bool MapFile(void* begin, uint64_t bytes, int fd) {
  if (FaultPoint("share.map")) {
    errno = ENOMEM;
    return false;
  }
  return syscall(SYS_mmap, begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != -1;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

enum class Moved { kYes, kFailed, kNotPossible };

// The pages are moved aside, which leaves empty ones; whoever touches these waits until the descriptor is closed, and
// then finds the file in their place.
Moved MoveHoldingFaults(void* begin, uint64_t bytes, int fd) {
  if (MovesWithSignals().load(std::memory_order_relaxed)) return Moved::kNotPossible;
  const auto open = [](int flags) { return static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | flags)); };
  int opened = open(0);  // holds faults of system calls too; needs a privilege
  if (opened < 0) opened = open(UFFD_USER_MODE_ONLY);
  if (opened < 0) return Moved::kNotPossible;
  const Descriptor faults(opened);
  uffdio_api api{};
  api.api = UFFD_API;
  uffdio_register pages{};
  pages.range = {reinterpret_cast<uintptr_t>(begin), bytes};
  pages.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (ioctl(faults.get(), UFFDIO_API, &api) != 0 || ioctl(faults.get(), UFFDIO_REGISTER, &pages) != 0) {
    return Moved::kNotPossible;
  }
  // Before Linux 5.7 there is no such flag; it also takes one mapping only.
  void* aside = mremap(begin, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
  if (aside == MAP_FAILED) return Moved::kNotPossible;
  if (WritePages(fd, static_cast<const char*>(aside), bytes) && MapFile(begin, bytes, fd)) {
    munmap(aside, bytes);
    return Moved::kYes;
  }
  const int error = errno;
  mremap(aside, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, begin);
  errno = error;
  return Moved::kFailed;
}

// A thread may have faulted before the end of a move and get here after it, hence one more try after each move.
constinit thread_local uint32_t t_tried __attribute__((tls_model("initial-exec"))) = 0;

void HoldWriter(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const uint32_t moves = g_moves.load(std::memory_order_acquire);
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  if ((moves & 1) != 0 && at >= g_begin.load(std::memory_order_relaxed) && at < g_end.load(std::memory_order_relaxed)) {
    t_tried = AwaitMovesOfPages();
  } else if (info->si_code == SEGV_ACCERR && t_tried != moves) {
    t_tried = moves;
  } else if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(signal, info, context);
  } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(signal);
  } else {
    std::signal(SIGSEGV, SIG_DFL);  // the instruction faults again, and the process ends as it would have
  }
  errno = saved;
}

bool HandleWriters() {
  ReportFaults();  // beneath: what is held here is no fault
  struct sigaction now {};
  if (sigaction(SIGSEGV, nullptr, &now) != 0) return false;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == HoldWriter) return true;
  g_previous = now;
  struct sigaction ours {};
  ours.sa_sigaction = HoldWriter;
  ours.sa_mask = now.sa_mask;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  return sigaction(SIGSEGV, &ours, nullptr) == 0;
}

bool MoveHoldingWriters(void* begin, uint64_t bytes, int fd) {
  if (!HandleWriters()) return false;
  if (mprotect(begin, bytes, PROT_READ) != 0) return false;
  if (WritePages(fd, static_cast<const char*>(begin), bytes) && MapFile(begin, bytes, fd)) return true;
  const int error = errno;
  mprotect(begin, bytes, PROT_READ | PROT_WRITE);
  errno = error;
  return false;
}

}  // namespace

int MoveToFile(void* begin, uint64_t bytes, int fd) noexcept {
  MutexLock lock(g_mutex);
  g_begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_relaxed);
  g_end.store(reinterpret_cast<uintptr_t>(begin) + bytes, std::memory_order_relaxed);
  g_moves.fetch_add(1, std::memory_order_acq_rel);
  errno = 0;
  Moved moved = MoveHoldingFaults(begin, bytes, fd);
  if (moved == Moved::kNotPossible) moved = MoveHoldingWriters(begin, bytes, fd) ? Moved::kYes : Moved::kFailed;
  const int error = errno;
  g_moves.fetch_add(1, std::memory_order_acq_rel);
  FutexWake(g_moves, INT_MAX);
  if (moved == Moved::kYes) return 0;
  return error != 0 ? error : EIO;
}

std::atomic<bool>& MovesWithSignals() noexcept {
  static constinit std::atomic<bool> signals{false};
  return signals;
}

uint32_t MovesOfPages() noexcept { return g_moves.load(std::memory_order_acquire); }

uint32_t AwaitMovesOfPages() noexcept {
  uint32_t seen = g_moves.load(std::memory_order_acquire);
  while ((seen & 1) != 0) {
    FutexWait(g_moves, seen, {});
    seen = g_moves.load(std::memory_order_acquire);
  }
  return seen;
}

}  // namespace reprise::device
