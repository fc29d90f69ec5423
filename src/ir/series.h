// SPDX-License-Identifier: Apache-2.0
//
// Series: numbers that tasks take in the order in which they are submitted, as the operators of a communicator do.
//
// A task that is queued takes its number when it gets its place in the stream (Number::Take from the `placed` callback
// of the submission). A task of a graph gets none when it is recorded: each execution takes as many numbers in a row as
// the graph has tasks of the series, when it is launched, and the k-th of these tasks in the order of submission has
// the k-th of them. So a launch costs as much as one number, and a rank that replays counts as one that does not.
//
// How often the bodies of a conditional task run is not known at the launch. So the task that is in no body takes one
// number for each series that its bodies use, whatever they do: its envelope. Tasks in the bodies are counted within
// the envelope, in the order in which they are executed: a body takes as many numbers in a row, when it begins, as it
// has tasks of the series. When the conditional task ends, the envelope does.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "ir/task.h"

namespace reprise::ir {

/// The bodies of one conditional task, as far as they use one series; made once, used by one execution at a time.
class Envelope {
 public:
  virtual ~Envelope() = default;
  /// The conditional task begins. `number`: that of this execution. As the run of a task: when it has parked it is
  /// called again, and a failure stands in the context.
  virtual RunResult Open(device::RunContext& context, uint64_t number, uint64_t graph) = 0;
  /// A body begins, which has `count` tasks of the series: the number of the first one. `branch` as in exec::Bindings.
  virtual uint64_t Take(uint64_t count, uint64_t branch) noexcept = 0;
  /// The bodies have ended: others may know. Then Close, which is called as Open.
  virtual void Announce() noexcept = 0;
  virtual RunResult Close(device::RunContext& context) = 0;
  /// Neither Open nor Close is called any more in this execution; `runnable`, which may be null, had parked.
  virtual void Abandon(device::Runnable* runnable) noexcept = 0;
  /// Whether Close waits for the Close of others, and not only for their Announce: such are closed last.
  virtual bool WaitsForAnswer() const { return false; }
  /// What Open or Close waits for, for somebody who asks; empty: nothing.
  virtual std::string WaitsFor() const = 0;
};

/// Threads: thread-safe. Lives as long as any task that uses it.
class Series {
 public:
  /// The first of `count` numbers in a row.
  uint64_t Take(uint64_t count) noexcept { return next_.fetch_add(count, std::memory_order_acq_rel); }
  uint64_t next() const noexcept { return next_.load(std::memory_order_acquire); }
  /// Whether executions of graphs that use it may be launched.
  virtual Status CheckLaunch() const = 0;
  /// Numbers that were taken will not be used: the execution has failed, or was dropped.
  virtual void Skipped(std::string_view why) noexcept = 0;
  /// For a conditional task whose bodies use it.
  virtual std::unique_ptr<Envelope> MakeEnvelope() = 0;

 protected:
  ~Series() = default;
  void Set(uint64_t next) noexcept { next_.store(next, std::memory_order_release); }

 private:
  std::atomic<uint64_t> next_{0};
};

/// The number of one task, in its payload.
struct Number {
  static constexpr uint64_t kNone = UINT64_MAX;

  int32_t binding = -1;    ///< of a task of a graph: index into exec::Bindings::series
  uint64_t value = kNone;  ///< the number, or, of a task of a graph, its place among those of the series
  uint64_t graph = 0;  ///< of a task of a graph: fingerprint of all that the graph has of the series, in their order
};

/// Takes what a task tells: which series it uses, and where its number is. Telling allocates nothing.
class SeriesSink {
 public:
  virtual void Take(Series& series, Number& number) = 0;

 protected:
  ~SeriesSink() = default;
};

/// Something behind a task that takes numbers.
class Numbered {
 public:
  virtual void TellSeries(SeriesSink& sink) = 0;
  /// Equal for tasks that do the same.
  virtual uint64_t Fingerprint() const = 0;

 protected:
  ~Numbered() = default;
};

/// How the payload of a task of kind kCollective begins.
struct NumberedPayload {
  Numbered* numbered;
};

/// Tells the series of a task; nothing for tasks that take no numbers.
inline void TellSeries(const TaskType& type, void* payload, SeriesSink& sink) {
  if (type.kind == TaskKind::kCollective) static_cast<NumberedPayload*>(payload)->numbered->TellSeries(sink);
}

/// That of a task; 0 for tasks that take no numbers.
inline uint64_t Fingerprint(const TaskType& type, const void* payload) {
  return type.kind == TaskKind::kCollective ? static_cast<const NumberedPayload*>(payload)->numbered->Fingerprint() : 0;
}

}  // namespace reprise::ir
