// SPDX-License-Identifier: Apache-2.0
//
// Stream: an in-order queue of tasks, each of which runs once, on a worker or a helping thread. Tasks enter by the
// functions of submission.h alone:
//
//     Submit(stream, task) ──not capturing──► queue
//                          └─capturing──────► TaskSink (the capture session) ──► node of a graph
//
// A stream costs no thread. It is a Runnable of its device's scheduler; while it waits for an event it is parked.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/futex.h"
#include "base/status.h"
#include "device/parked_memory.h"
#include "device/scheduler.h"
#include "device/timeline.h"
#include "ir/task.h"
#include "runtime/device.h"
#include "runtime/objects.h"
#include "runtime/stream_attributes.h"

namespace reprise::runtime {

namespace internal {
inline std::atomic<int> g_capturing_streams{0};
}  // namespace internal

/// Whether any stream of the process is being captured: one load, for those who ask at every call.
inline bool AnyStreamIsCapturing() noexcept {
  return internal::g_capturing_streams.load(std::memory_order_acquire) != 0;
}

class Context;
class Stream;
class TaskStore;

/// Takes the tasks of a stream instead of its queue. Implemented by captures and by updates of task groups.
class TaskSink {
 public:
  /// 0 for the update of a task group: the stream then takes kernels only, but it is not being captured.
  virtual uint64_t capture_id() const = 0;
  /// The stream is being destroyed: the sink drops every reference to it.
  virtual void Forget(Stream& stream) = 0;
  /// "capture of model 7 on stream 3, begun by thread 4711 in mode GLOBAL"; for messages.
  virtual const std::string& Describe() const = 0;
  /// A call was refused because of this sink. With the context's capture_mutex held.
  virtual void Refused(const Status& error) = 0;

 protected:
  ~TaskSink() = default;

 private:
  // The door, see submission.h.
  friend Status Submit(Stream& stream, const ir::Task& task, void (*placed)(void* payload));
  friend Status SubmitToSink(Stream& stream, const ir::Task& task);

  /// Called with the context's capture_mutex held. `taken` false: the task was refused or dropped and stays with the
  /// caller, which destroys it without the lock, because a closure of the program may call the runtime again.
  virtual Status Record(Stream& stream, const ir::Task& task, bool& taken) = 0;
};

/// nullopt (for ever) for a negative number.
Deadline DeadlineAfterMs(int64_t ms);

/// Threads: thread-safe. A stream that is destroyed while another call uses it stays in memory until that has ended.
class Stream final : public device::Runnable {
 public:
  struct Options {
    uint32_t flags = 0;  ///< ACL_STREAM_*
    uint32_t priority = 0;
  };
  enum class DestroyMode {
    kWait,     ///< queued tasks run first
    kForce,    ///< queued tasks are dropped
    kTeardown  ///< the context is being destroyed: waits, but drops tasks whose condition can no longer come true
  };

  static StatusOr<Stream*> Create(Context& context, Options options);
  /// False when another thread is destroying the stream already.
  static bool Destroy(Stream* stream, DestroyMode mode, const Deadline& patience = DeadlineAfterMs(10'000));
  /// The two steps of Destroy, for callers that check the stream once more in between, when as a rule no other call
  /// uses it (see AwaitCalls). Hide is false when another thread was faster; HandleTable::Show undoes it.
  static bool Hide(Stream* stream);
  static void DestroyHidden(Stream* stream, DestroyMode mode, const Deadline& patience = DeadlineAfterMs(10'000));

  void* handle() const { return handle_; }
  Context& context() const { return context_; }
  Device& device() const { return device_; }
  int32_t id() const { return id_; }
  uint32_t flags() const { return options_.flags; }
  bool is_default() const;
  /// Stores its tasks for a model instead of running them (ACL_STREAM_PERSISTENT).
  bool is_persistent() const { return store_ != nullptr; }
  /// Of a persistent stream; null for others.
  TaskStore* store() const { return store_.get(); }
  /// "stream 3" or "default stream 0 (tag 7)"; for messages.
  std::string Describe() const;

  /// A submission will follow soon: fetches what it will write.
  void PrepareSubmit() const noexcept {
    PrefetchForWrite(&published_);
    device_.scheduler().PrepareSignal(*this);
  }

  /// "stream 3, task 5: KERNEL_AICORE runs", or waits for a worker; empty when nothing does. Any thread; for inquiries.
  std::string DescribeRunning() const;

  /// 507000 for a thread that runs a host function of the stream, which then must not wait for it; `what` it does.
  Status CheckNotInside(const char* what = "waits for that stream") const;
  /// Whether a task is the one in front, or queued behind it. Only for the thread that runs a host function of the
  /// stream, which holds it up.
  bool HasQueued(const std::function<bool(const ir::TaskType& type, const void* payload)>& is_it);

  /// Waits for everything submitted so far; helps to run it. 507046 on timeout; else the stream's pending error.
  Status Synchronize(const Deadline& deadline);
  bool IsIdle() const {
    return completed_.load(std::memory_order_acquire) == published_.load(std::memory_order_acquire);
  }

  /// Drops the queued tasks and the parked one; waiting threads get `code`.
  void Abort(int code);

  /// Ends the first task of the queue: drops it when it waits or has not begun, which the next synchronisation reports
  /// with 107023; a loop ends at its next turn, a call of foreign code at its end. Later tasks go on.
  void Stop();

  /// Keeps an asynchronous error for the next synchronisation.
  void ReportError(Status error, uint32_t task_id);
  /// The pending error, which is forgotten (mode continue) or kept (mode stop).
  Status TakeError();
  /// A copy of it, which stays.
  Status PendingError() const;

  /// Id of the capture that the stream takes part in, which no later capture gets; 0: none.
  uint64_t capture_id() const { return capture_id_.load(std::memory_order_acquire); }
  bool is_capturing() const { return capture_id() != 0; }
  /// How many tasks it has recorded into that capture, which counts them. Asked without the lock.
  std::atomic<uint32_t> captured_tasks{0};
  TaskSink* sink() const { return sink_.load(std::memory_order_acquire); }
  /// Kernels that are launched replace those of a task group instead of running.
  bool is_updating() const { return is_updating_.load(std::memory_order_acquire); }
  /// With the context's capture_mutex held.
  void set_sink(TaskSink* sink) {
    // Whoever reads without the lock asks one of the three: a pair of them may be of two moments.
    const int change = (sink != nullptr && sink->capture_id() != 0 ? 1 : 0) - (is_capturing() ? 1 : 0);
    if (change > 0) internal::g_capturing_streams.fetch_add(1, std::memory_order_relaxed);
    if (sink != nullptr) captured_tasks.store(0, std::memory_order_relaxed);
    if (sink != nullptr) capture_id_.store(sink->capture_id(), std::memory_order_release);
    is_updating_.store(sink != nullptr && sink->capture_id() == 0, std::memory_order_release);
    sink_.store(sink, std::memory_order_release);
    if (sink == nullptr) capture_id_.store(0, std::memory_order_release);
    if (change < 0) internal::g_capturing_streams.fetch_sub(1, std::memory_order_relaxed);
  }

  /// Calls `visit` with all streams of the process, also with those that Destroy waits for; none is freed meanwhile.
  static void ForEach(const std::function<void(Stream&)>& visit);

  /// Waits for a task that the oldest parked memory waits for, if there is one. False when it takes too long.
  static bool AwaitParkedMemory(const Deadline& deadline);

  /// Threads that use the stream although they do not own it (Context::Synchronize); Destroy waits for them. Not on the
  /// cache line of the base's state: every call reads the members below.
  alignas(64) std::atomic<uint32_t> visitors{0};

  /// The model that the stream is bound to; null when none. No more tasks are taken once it is sealed.
  std::atomic<const void*> bound_model{nullptr};
  /// From now on no model can bind the stream; false when one has.
  bool CloseToModels() {
    const void* nobody = nullptr;
    return bound_model.compare_exchange_strong(nobody, this) || nobody == this;
  }
  /// Whether the stream is being destroyed: it takes no more tasks, also of callers that found it before.
  bool is_closed();
  /// 107017 for a stream that is being destroyed: no capture and no update may begin on it. With the context's
  /// capture_mutex.
  Status CheckNotLeaving() const;

  Outcome Run(device::RunContext& context) override;
  /// While the first task is parked, tasks behind it cannot run.
  bool HasMore() const noexcept override {
    return published_.load(std::memory_order_acquire) != completed_.load(std::memory_order_relaxed) &&
           !parked_.load(std::memory_order_relaxed);
  }
  uint64_t Progress() const noexcept override { return completed_.load(std::memory_order_relaxed); }
  bool FindTask(device::TaskSpot& spot) const noexcept override;

  StreamAttributes attributes;
  /// How the last capture that began on this stream failed; guarded by the context's capture_mutex, as is_leaving_.
  std::string last_capture;

 private:
  struct Record;
  struct Chunk;

  // The door, see submission.h, which says what the functions of these names promise.
  friend Status QueueNow(Stream& stream, const ir::Task& task, void (*placed)(void* payload));
  friend void SubmitLast(Stream& stream, const ir::Task& task) noexcept;
  friend std::byte* TryReserve(Stream& stream, const ir::TaskType& type, size_t bytes);
  friend Status Commit(Stream& stream);

  Status Enqueue(const ir::Task& task, void (*placed)(void* payload));
  bool MayRunHere(const ir::Task& task) noexcept;
  void EnqueueLast(const ir::Task& task) noexcept;
  std::byte* TryReserve(const ir::TaskType& type, size_t bytes);
  void Commit();

  Stream(Context& context, Options options);
  ~Stream();

  static void Free(void* stream);
  void Append(const ir::Task& task, void (*placed)(void* payload) = nullptr);
  Chunk* NewChunk(size_t bytes_needed);
  Record* Front();
  void PopFront();
  void DropCurrent(device::RunContext& context);
  template <bool kTraced>
  std::optional<Outcome> RunUntil(device::RunContext& context, uint64_t limit, int& budget);
  Status WaitFor(uint64_t target, const Deadline& deadline);
  bool AddTicket(std::vector<device::Ticket>& tickets) const;
  void List() noexcept;
  void Unlist() noexcept;
  void Close() noexcept;
  template <class Visit>
  static void VisitListed(Visit visit);
  static const device::ParkedMemory::Streams kParkedMemory;
  [[gnu::noinline]] void TellFreedUse(const Record& record) const;
  void NotifyWaiters() noexcept;
  void PrepareNextRecord() const noexcept;
  uint64_t Linger(uint64_t seen, int& pauses) noexcept;
  bool stopped() const { return attributes.failure_mode.load(std::memory_order_relaxed) != 0 && failed_.load(); }

  Context& context_;
  Device& device_;
  const Options options_;
  void* handle_ = nullptr;
  int32_t id_ = -1;

  std::atomic<TaskSink*> sink_{nullptr};
  std::atomic<uint64_t> capture_id_{0};
  std::atomic<bool> is_updating_{false};
  std::atomic<bool> failed_{false};

  bool is_leaving_ = false;
  // Guarded by the lock of the list of streams that Destroy waits for.
  Stream* next_leaving_ = nullptr;
  // Links of the list of streams that may have work, guarded by the lock of that list; listed_at_ is the pointer to
  // this stream.
  Stream* next_listed_ = nullptr;
  Stream** listed_at_ = nullptr;

  std::unique_ptr<TaskStore> store_;  // of a persistent stream; made before others see the stream

  // Producer side. Consumers read only the count.
  alignas(64) SpinLock producer_;
  Chunk* tail_ = nullptr;
  uint32_t next_task_id_ = 0;
  // Why a submission must not take the short way; guarded by producer_.
  enum Detour : uint32_t {
    kStores = 1,    // a persistent stream
    kClosed = 2,    // takes no more tasks: it is being destroyed
    kUnlisted = 4,  // not in the list of streams that may have work
  };
  uint32_t detours_ = kUnlisted;
  alignas(64) std::atomic<uint64_t> published_{0};

  // Consumer side: the thread that runs the stream.
  alignas(64) Chunk* head_ = nullptr;
  size_t head_offset_ = 0;
  std::atomic<bool> parked_{false};
  device::ParkedSince parked_since_;  // while a timeline is recorded
  std::atomic<uint64_t> completed_{0};
  std::atomic<Chunk*> spare_{nullptr};
  std::atomic<uint64_t> drop_below_{0};  // tasks with a smaller number are not run
  std::atomic<uint32_t> abort_code_{0};
  std::atomic<uint64_t> stop_at_{0};  // the number behind that of the task that Stop ends

  // Threads that synchronise.
  alignas(64) std::atomic<uint32_t> waiters_{0};
  std::atomic<uint32_t> wait_word_{0};
  std::atomic<uint64_t> wake_at_{UINT64_MAX};  // the nearest target of those that sleep
  std::atomic<bool> awaited_{false};           // a thread has begun to wait: the worker stops lingering

  mutable std::mutex error_mutex_;
  Status error_;
  uint64_t errors_after_first_ = 0;
};

/// The stream behind a handle of the current context; null means the default stream. 107002, 107017, 107003.
StatusOr<Stream*> FindStream(const void* handle);
/// 107002, 107003 unless it belongs to the current context.
Status CheckOwn(const Stream& stream);
/// As FindStream, for a stream of any context. 107002 for null without a current context, 107017.
StatusOr<Stream*> FindAnyStream(const void* handle);

/// 107027 when the stream is being captured; `api` for the message.
Status CheckNotCapturing(const Stream& stream, const char* api);
/// 507009 while the stream takes kernels for the update of a task group; `what` for the message.
Status CheckNotUpdating(const Stream& stream, const char* what);

}  // namespace reprise::runtime
