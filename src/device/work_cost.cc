// SPDX-License-Identifier: Apache-2.0
#include "device/work_cost.h"

#include <array>
#include <atomic>
#include <charconv>
#include <system_error>
#include <thread>

#include "base/env.h"
#include "base/futex.h"
#include "device/scheduler.h"

namespace reprise::device {
namespace {

constexpr auto kMostMeasuring = std::chrono::milliseconds(2);
constexpr int kRounds = 64;
constexpr size_t kLeastRounds = 32;
constexpr int kMostDoublings = 5;

// Sends a word of memory to another core and back, as often as it comes in time.
int64_t MeasureHandoff() noexcept {
  if (UsableCores() < 2) return 0;
  std::atomic<int> word{0};  // odd: the other thread's turn; negative: the end
  const auto end = Clock::now() + kMostMeasuring;
  std::array<int64_t, kRounds> rounds;
  size_t done = 0;
  try {
    std::thread other([&word] {
      for (int turn = 1;; turn += 2) {
        int seen = 0;
        while ((seen = word.load(std::memory_order_acquire)) != turn) {
          if (seen < 0) return;
          CpuRelax();
        }
        word.store(turn + 1, std::memory_order_release);
      }
    });
    bool is_late = false;
    for (int round = 0; round < kRounds && !is_late; ++round) {
      const auto before = Clock::now();
      word.store(2 * round + 1, std::memory_order_release);
      for (int looks = 1; word.load(std::memory_order_acquire) != 2 * round + 2 && !is_late; ++looks) {
        CpuRelax();
        if (looks % 64 == 0) is_late = Clock::now() >= end;
      }
      if (!is_late) rounds[done++] = std::chrono::nanoseconds(Clock::now() - before).count();
    }
    word.store(-1, std::memory_order_release);
    other.join();
  } catch (const std::system_error&) {
    return 0;  // no thread to be had
  }
  return HandoffOf({rounds.data(), done});
}

Costs FindCosts() noexcept {
  Costs costs;
  const std::string& text = Env(EnvVar::kCosts);
  if (text.empty()) return WithHandoff(costs, MeasureHandoff());
  if (ParseCosts(text, costs)) return costs;
  ComplainOfSetting(EnvVar::kCosts, "is neither default nor a list such as handoff=150,byte=16; default is used");
  return {};
}

}  // namespace

const Costs& TheCosts() noexcept {
  static const Costs costs = FindCosts();
  return costs;
}

bool ParseCosts(std::string_view text, Costs& costs) noexcept {
  struct Name {
    std::string_view text;
    int64_t Costs::*cost;
  };
  static constexpr Name kNames[] = {{"element", &Costs::element_ps}, {"multiply_add", &Costs::multiply_add_ps},
                                    {"byte", &Costs::byte_ps},       {"handoff", &Costs::handoff_ns},
                                    {"thread", &Costs::thread_ns},   {"wake", &Costs::wake_ns}};
  Costs read;
  bool has_thread = false;
  if (text != "default") {
    for (;;) {
      const size_t comma = std::min(text.find(','), text.size());
      const std::string_view entry = text.substr(0, comma);
      const size_t equals = std::min(entry.find('='), entry.size());
      const auto* const name = std::find_if(std::begin(kNames), std::end(kNames),
                                            [&](const Name& n) { return n.text == entry.substr(0, equals); });
      if (name == std::end(kNames) || equals == entry.size()) return false;
      const char* const last = entry.data() + entry.size();
      int64_t number = 0;
      const auto [at, error] = std::from_chars(entry.data() + equals + 1, last, number);
      if (error != std::errc() || at != last || number < 1 || number > INT32_MAX) return false;
      read.*name->cost = number;
      has_thread |= name->cost == &Costs::thread_ns;
      if (comma == text.size()) break;
      text.remove_prefix(comma + 1);
    }
    if (!has_thread) read.thread_ns = std::max<int64_t>(1, read.thread_ns * read.handoff_ns / Costs().handoff_ns);
  }
  costs = read;
  return true;
}

// A thread that has just begun, or shares its core with others, takes a thousand times as long as one that is there.
int64_t HandoffOf(std::span<const int64_t> rounds_ns) noexcept {
  return rounds_ns.size() < kLeastRounds ? 0 : *std::min_element(rounds_ns.begin(), rounds_ns.end()) / 2;
}

Costs WithHandoff(Costs costs, int64_t measured_ns) noexcept {
  // A half more than expected is noise.
  for (int i = 0; i < kMostDoublings && measured_ns > costs.handoff_ns + costs.handoff_ns / 2; ++i) {
    costs.handoff_ns *= 2;
    costs.thread_ns *= 2;
  }
  return costs;
}

}  // namespace reprise::device
