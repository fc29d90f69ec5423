// SPDX-License-Identifier: Apache-2.0
#include "engine/tuning_run.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace reprise::engine {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

void Interrupt(int /*signal*/) { g_interrupted.store(true, std::memory_order_relaxed); }

}  // namespace

HeldInterrupt::HeldInterrupt() {
  g_interrupted = false;
  struct sigaction action {};
  action.sa_handler = Interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, nullptr, &before_);
  // Programs that ignore it (in the background, say) are not interrupted here either.
  if (before_.sa_handler != SIG_IGN) sigaction(SIGINT, &action, nullptr);
}

HeldInterrupt::~HeldInterrupt() {
  sigaction(SIGINT, &before_, nullptr);
  if (g_interrupted) std::raise(SIGINT);
}

bool HeldInterrupt::came() { return g_interrupted.load(std::memory_order_relaxed); }

ProgressLine::ProgressLine() : is_terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (is_terminal_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::Show(size_t done, size_t total, const std::string& what) {
  if (!is_terminal_) return;
  winsize size{};
  const size_t columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  fmt::print(stderr, "\r\033[K{}", Text(done, total, elapsed, what, columns - 1));
  std::fflush(stderr);
}

std::string ProgressLine::Text(size_t done, size_t total, double elapsed_s, const std::string& what, size_t width) {
  constexpr size_t kBar = 20;
  const size_t filled = total == 0 ? kBar : kBar * std::min(done, total) / total;
  std::string left;
  if (done > 0 && done < total) {
    const double seconds = elapsed_s / static_cast<double>(done) * static_cast<double>(total - done);
    left = seconds >= 90 ? fmt::format(", about {:.0f} min left", seconds / 60)
                         : fmt::format(", about {:.0f} s left", seconds);
  }
  std::string text = fmt::format("tuning [{}{}] {}/{}{}: {}", std::string(filled, '#'), std::string(kBar - filled, '.'),
                                 done, total, left, what);
  if (text.size() > width) text.resize(width);
  return text;
}

}  // namespace reprise::engine
