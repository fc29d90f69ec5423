// SPDX-License-Identifier: Apache-2.0
#include "runtime/task_abort.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <vector>

#include "runtime/context.h"
#include "runtime/thread.h"

namespace reprise::runtime {
namespace {

constexpr uint64_t kStopsOnFailure = 1;  // ACL_STOP_ON_FAILURE

}  // namespace

Status DropTasks(const Device& device, uint32_t timeout_ms, const Deadline& deadline) {
  // Other threads may destroy streams of theirs meanwhile; one that is visited waits with that.
  struct Visited {
    std::vector<Stream*> streams;
    ~Visited() {
      for (Stream* stream : streams) stream->visitors.fetch_sub(1, std::memory_order_release);
    }
  } visited;
  Contexts().ForEach([&](Context* context) {
    if (&context->device() != &device) return;
    context->ForEachStream([&](Stream& stream) {
      visited.streams.push_back(&stream);
      stream.visitors.fetch_add(1, std::memory_order_relaxed);
    });
  });
  for (Stream* stream : visited.streams) stream->Abort(kDeviceTaskAbort);
  const NoCancel no_cancel;
  const WaitingCall waiting;
  for (const Stream* stream : visited.streams) {
    // Not Synchronize: that would take the 107022 away from those who wait for the stream.
    while (!stream->IsIdle()) {
      if (deadline && Clock::now() >= *deadline) {
        return Error(kTaskAbortStopped,
                     fmt::format("a task of {} still runs after {} ms", stream->Describe(), timeout_ms))
            .Culprit(stream->Describe())
            .Hint("allow more time; a running task ends by itself and is not interrupted");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  return {};
}

Status SetFailureMode(Stream& stream, bool stops) {
  if (stream.attributes.failure_mode_set.exchange(true)) {
    return Error(kInvalidValue,
                 fmt::format("the failure mode of {} was set before, and can be set once", stream.Describe()))
        .Culprit("an earlier aclrtSetStreamFailureMode or aclrtSetStreamAttribute")
        .Hint("set the mode once, right after creating the stream");
  }
  if (!stops) return {};
  Context& context = stream.context();
  context.stop_on_failure = true;
  context.ForEachStream([](Stream& other) { other.attributes.failure_mode = kStopsOnFailure; });
  return {};
}

}  // namespace reprise::runtime
