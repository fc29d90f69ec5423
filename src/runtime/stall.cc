// SPDX-License-Identifier: Apache-2.0
#include "runtime/stall.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <utility>
#include <vector>

#include "base/calls.h"
#include "base/env.h"
#include "base/log.h"
#include "base/no_destroy.h"
#include "device/inquiry.h"
#include "device/run_report.h"
#include "runtime/context.h"
#include "runtime/objects.h"
#include "runtime/stream.h"

namespace reprise::runtime {

constinit std::atomic<bool> internal::g_helpers_are_watched{false};

namespace {

// A thread that waits for ever has time.
constexpr auto kStallPatience = std::chrono::milliseconds(200);

// " on thread 4711 in kernel spin (task 2 of graph stream 9) and computes"; of a lane, which is no stream of the
// program's: ": kernel spin runs on thread 4711 and computes".
std::string DescribeRun(const device::Activity::Run& run, const Stream* of_stream) {
  std::string text = of_stream != nullptr ? "" : fmt::format(": kernel {} runs", run.kernel);
  text += fmt::format(" on thread {}", run.thread);
  if (!run.place.is_on_worker) text += ", which synchronises and does the work meanwhile,";
  if (!run.kernel.empty() && of_stream != nullptr) {
    text += fmt::format(" in kernel {}", run.kernel);
    if (run.place.stream_id != of_stream->id()) {
      text += fmt::format(" (task {} of graph stream {})", run.place.task_id, run.place.stream_id);
    }
  }
  if (const std::string state = device::StateOfThread(run.thread); !state.empty())
    text += fmt::format(" and {}", state);
  return text;
}

}  // namespace

// The streams are found by their handles, so that internal ones are among them.
std::string WhoWaits(const Device& device, const Context* context, const char* separator, Clock::duration patience) {
  const auto is_meant = [&](const Stream* stream) {
    return context != nullptr ? &stream->context() == context : &stream->device() == &device;
  };
  device::Inquiry inquiry;
  Streams().ForEach([&](Stream* stream) {
    if (is_meant(stream)) stream->device().scheduler().Wake(*stream);
  });
  std::vector<std::string> lines = inquiry.Collect(patience);
  for (std::string& line : device::Activity::Describe(device.id())) lines.push_back(std::move(line));
  const std::vector<device::Activity::Run> runs = device::Activity::Runs(device.id());
  std::vector<const device::Runnable*> told;
  Streams().ForEach([&](Stream* stream) {
    if (!is_meant(stream) || device::Activity::HoldsUp(stream)) return;
    std::string line = stream->DescribeRunning();
    if (line.empty()) return;
    const auto run = std::find_if(runs.begin(), runs.end(),
                                  [&](const device::Activity::Run& one) { return one.place.running == stream; });
    told.push_back(stream);
    lines.push_back(line + (run == runs.end() ? ", or waits for a worker" : DescribeRun(*run, stream)));
  });
  // Lanes of graphs, whose streams may be parked meanwhile.
  for (const device::Activity::Run& run : runs) {
    if (run.kernel.empty() || std::find(told.begin(), told.end(), run.place.running) != told.end()) continue;
    lines.push_back(
        fmt::format("graph stream {}, task {}{}", run.place.stream_id, run.place.task_id, DescribeRun(run, nullptr)));
  }
  return fmt::format("{}", fmt::join(lines, separator));
}

Clock::duration StallTime() {
  static const int64_t ms = EnvInt(EnvVar::kStallMs);
  return ms > 0 ? Clock::duration(std::chrono::milliseconds(ms)) : Clock::duration::max();
}

namespace {

// A thread that synchronises and does the work itself cannot tell that a kernel does not end. While there are such
// threads, a timer looks now and then whether one of them helps the stream that it helped at the look before, which has
// got no further since.
class HelperWatch final : public device::Runnable {
 public:
  static HelperWatch& Get() {
    static constinit NoDestroy<HelperWatch> watch;
    return watch.value;
  }

  void Arm(Device& device) noexcept {
    if (StallTime() == Clock::duration::max() || internal::g_helpers_are_watched.exchange(true)) return;
    try {
      device.scheduler().WakeAt(*this, Clock::now() + StallTime());
    } catch (const std::bad_alloc&) {
      internal::g_helpers_are_watched.store(false);
    }
  }

  Outcome Run(device::RunContext& context) override {
    std::vector<Seen> now;
    for (const device::Activity::Helper& helper : device::Activity::Helpers()) {
      Streams().ForEach([&](Stream* stream) {
        if (stream != helper.stream) return;
        const Seen before = Before(stream, helper.thread);
        const bool is_same = before.stream != nullptr && before.progress == stream->Progress();
        now.push_back({stream, helper.thread, stream->Progress(), is_same && before.is_told, is_same});
      });
    }
    seen_ = now;
    for (Seen& one : seen_) {
      if (!one.is_stuck || one.is_told) continue;
      one.is_told = true;
      std::string name;
      const Device* device = nullptr;
      Streams().ForEach([&](Stream* stream) {
        if (stream != one.stream) return;
        name = stream->Describe();
        device = &stream->device();
      });
      if (device != nullptr) TellStall(name, *device, nullptr, one.thread);
    }
    if (seen_.empty()) {
      internal::g_helpers_are_watched.store(false, std::memory_order_relaxed);
    } else {
      context.scheduler().WakeAt(*this, Clock::now() + StallTime());
    }
    return Outcome::kIdle;
  }

 private:
  struct Seen {
    const Stream* stream = nullptr;
    int32_t thread = 0;
    uint64_t progress = 0;
    bool is_told = false;
    bool is_stuck = false;
  };

  Seen Before(const Stream* stream, int32_t thread) const {
    for (const Seen& one : seen_) {
      if (one.stream == stream && one.thread == thread) return one;
    }
    return {};
  }

  std::vector<Seen> seen_;  // of Run alone
};

}  // namespace

void internal::StartWatchingHelpers(Device& device) noexcept { HelperWatch::Get().Arm(device); }

void TellStall(const std::string& awaited, const Device& device, const Context* context, int thread) {
  const std::string who = WhoWaits(device, context, "\n  ", kStallPatience);
  if (who.empty()) return;
  const NoCancel no_cancel;
  const std::string text = fmt::format(
      "reprise: thread {} has waited {} ms for {} without progress; what the streams of the {} run and wait for:"
      "\n  {}\n",
      thread, std::chrono::duration_cast<std::chrono::milliseconds>(StallTime()).count(), awaited,
      context != nullptr ? "context" : "device", who);
  REPRISE_LOG(kWarning, "RUNTIME", "{}", text);
  std::fputs(text.c_str(), stderr);
}

}  // namespace reprise::runtime
