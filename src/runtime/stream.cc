// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "base/calls.h"
#include "base/fault.h"
#include "base/log.h"
#include "device/inquiry.h"
#include "device/memory.h"
#include "device/parked_memory.h"
#include "device/run_report.h"
#include "device/task_watch.h"
#include "ir/task_info.h"
#include "runtime/callback.h"
#include "runtime/context.h"
#include "runtime/exception.h"
#include "runtime/stall.h"
#include "runtime/task_store.h"
#include "runtime/thread.h"

namespace reprise::runtime {
namespace {

// Tasks in a row before a worker lets other streams have their turn. A helping thread has no other stream to serve.
constexpr int kWorkerBatch = 256;
constexpr int kHelperBatch = 1 << 14;
// The first chunk is small, because most streams of a program with thousands of them carry little.
constexpr size_t kFirstChunkBytes = 2u << 10;
constexpr size_t kChunkBytes = 32u << 10;
// How long a synchronising thread sleeps before it looks again, at first and at most.
constexpr auto kFirstSleep = std::chrono::milliseconds(1);
constexpr auto kLongestSleep = std::chrono::milliseconds(50);
// So many tasks in a row are a flow; for how long its worker looks for more, and how often: twice as seldom whenever
// there was more, up to a bound.
constexpr uint64_t kFlow = 8;
constexpr int kLingerPauses = 64;
constexpr int kFirstLook = 8;
constexpr int kLastLook = 32;
// How long a caller whose deadline has passed asks streams what they wait for.
constexpr auto kLatePatience = std::chrono::milliseconds(10);
constexpr uint32_t kPersistentFlag = 0x4;  // ACL_STREAM_PERSISTENT
constexpr uint32_t kStopped = kStreamAbort;
// Idle streams that stay in the list of those that may have work: they may have some again at any moment.
constexpr uint32_t kIdleListed = 16;

}  // namespace

// A queued task: this header, then the payload. It has its cache lines to itself: who submits the next one does not
// take them away from who runs this one.
struct Stream::Record {
  const ir::TaskType* type;  // null: the queue goes on in the next chunk
  uint32_t record_bytes;
  uint32_t task_id;
  void* payload() { return this + 1; }
  const std::byte* Next() const { return reinterpret_cast<const std::byte*>(this) + record_bytes; }
};

struct Stream::Chunk {
  Chunk* next = nullptr;
  size_t size;  // of data
  size_t used = 0;
  alignas(64) std::byte data[];  // NOLINT: flexible array, one allocation

  Record* at(size_t offset) { return reinterpret_cast<Record*>(data + offset); }
};

Deadline DeadlineAfterMs(int64_t ms) {
  if (ms < 0) return std::nullopt;
  return Clock::now() + std::chrono::milliseconds(ms);
}

constinit NoDestroy<HandleTable<Stream, HandleKind::kStream>> internal::g_streams;

Stream::Stream(Context& context, Options options)
    : Runnable(true), context_(context), device_(context.device()), options_(options) {
  attributes.priority = options.priority;
}

Stream::~Stream() {
  while (head_ != nullptr) {
    Chunk* next = head_->next;
    std::free(head_);
    head_ = next;
  }
  std::free(spare_.load());
}

namespace {

constexpr uint32_t RecordBytes(size_t header, size_t payload) {
  return static_cast<uint32_t>((header + payload + 63) / 64 * 64);
}

// Streams that are no longer in the table of handles, but have tasks that must still run.
struct LeavingStreams {
  std::mutex mutex;
  Stream* first = nullptr;
};
constinit NoDestroy<LeavingStreams> g_leaving;

}  // namespace

// What is in flight, for memory that is freed meanwhile. False when the stream is idle.
bool Stream::AddTicket(std::vector<device::Ticket>& tickets) const {
  const uint64_t completed = completed_.load(std::memory_order_acquire);
  const uint64_t published = published_.load(std::memory_order_acquire);
  if (completed == published) return false;
  tickets.push_back({const_cast<Stream*>(this), published});
  return true;
}

namespace {

// The streams that may have work, so that a free need not look at thousands that have none. A submission to a stream
// that is not in it puts it there first; whoever looks through it takes out what it finds idle, all but a few. So a
// stream that goes busy and idle again and again stays, and its submissions see no more than that they need not care.
//
// Rank of the lock: below producer_. Who looks through the list can therefore only try that.
struct ListedStreams {
  SpinLock mutex;
  Stream* first = nullptr;
};
constinit NoDestroy<ListedStreams> g_listed;

enum class Look { kIdle, kBusy, kEnough };

}  // namespace

// With producer_ held and a task in the queue.
void Stream::List() noexcept {
  ListedStreams& listed = g_listed.value;
  std::lock_guard lock(listed.mutex);
  next_listed_ = listed.first;
  listed_at_ = &listed.first;
  if (next_listed_ != nullptr) next_listed_->listed_at_ = &next_listed_;
  listed.first = this;
  detours_ &= ~uint32_t{kUnlisted};
}

// With producer_ and the lock of the list held.
void Stream::Unlist() noexcept {
  *listed_at_ = next_listed_;
  if (next_listed_ != nullptr) next_listed_->listed_at_ = listed_at_;
  detours_ |= kUnlisted;
}

// With producer_ held, idle.
void Stream::Close() noexcept {
  detours_ |= kClosed;
  if ((detours_ & kUnlisted) != 0) return;
  std::lock_guard lock(g_listed.value.mutex);
  Unlist();
}

// Calls visit(stream) with the streams that may have work until one returns kEnough.
template <class Visit>
void Stream::VisitListed(Visit visit) {
  std::lock_guard lock(g_listed.value.mutex);
  uint32_t idle = 0;
  for (Stream* stream = g_listed.value.first; stream != nullptr;) {
    Stream* const next = stream->next_listed_;
    const Look look = visit(*stream);
    if (look == Look::kEnough) return;
    // Who submits now holds the lock: then it will have work in a moment.
    if (look == Look::kIdle && ++idle > kIdleListed && stream->producer_.try_lock()) {
      if (stream->IsIdle()) stream->Unlist();
      stream->producer_.unlock();
    }
    stream = next;
  }
}

const device::ParkedMemory::Streams Stream::kParkedMemory = {
    .any =
        [] {
          bool found = false;
          VisitListed([&found](const Stream& stream) {
            found = !stream.IsIdle();
            return found ? Look::kEnough : Look::kIdle;
          });
          return found;
        },
    .busy =
        [](std::vector<device::Ticket>& tickets) {
          VisitListed(
              [&tickets](const Stream& stream) { return stream.AddTicket(tickets) ? Look::kBusy : Look::kIdle; });
        },
    .passed =
        [](const device::Ticket& ticket) {
          return static_cast<Stream*>(ticket.stream)->completed_.load(std::memory_order_acquire) >= ticket.until;
        },
    .visit = [](void* stream) { static_cast<Stream*>(stream)->visitors.fetch_add(1, std::memory_order_relaxed); }};

bool Stream::AwaitParkedMemory(const Deadline& deadline) {
  device::Ticket ticket{};
  if (!device::ParkedMemory::Get().Oldest(ticket)) {
    std::this_thread::yield();  // other threads are just releasing what is parked, if anything is
    return !deadline || Clock::now() < *deadline;
  }
  auto* const stream = static_cast<Stream*>(ticket.stream);
  const bool ended = stream->WaitFor(ticket.until, deadline).ok();
  stream->visitors.fetch_sub(1, std::memory_order_release);
  return ended;
}

// Memory that this task has touched may have been freed meanwhile. For a worker that has just run it.
void Stream::TellFreedUse(const Record& record) const {
  ir::TaskInfo info;
  ir::Describe(*record.type, &record + 1, info);
  std::vector<uintptr_t> addresses(info.args.begin(), info.args.end());
  for (const ir::AccessRange& range : info.ranges) addresses.push_back(reinterpret_cast<uintptr_t>(range.begin));
  device::ParkedMemory::Get().NoteUse(addresses,
                                      fmt::format("task {} of {}, {}", record.task_id, Describe(),
                                                  info.name.empty() ? ir::SpokenName(*record.type) : info.name));
}

StatusOr<Stream*> Stream::Create(Context& context, Options options) {
  device::ParkedMemory::Get().SetStreams(kParkedMemory);
  const int32_t id = FaultPoint("stream") ? -1 : context.device().stream_ids().Take();
  if (id < 0) {
    return context.device().NoStream("");
  }
  auto* stream = new Stream(context, options);
  stream->id_ = id;
  if ((options.flags & kPersistentFlag) != 0) {
    stream->store_ = std::make_unique<TaskStore>(*stream);
    stream->detours_ |= kStores;
  }
  stream->handle_ = Streams().Insert(stream);
  if (stream->handle_ == nullptr) {
    context.device().stream_ids().Return(id);
    delete stream;
    return Error(kNoStreamResource, "the process has too many streams")
        .Hint("destroy streams and graphs that are no longer needed");
  }
  if (context.AddStream(stream)) return stream;
  uint64_t birth = 0;
  Streams().Erase(stream->handle_, &birth);
  context.device().stream_ids().Return(id);
  Retire(stream, Free, birth, false);
  return Error(kNoContext, "the context of the stream is being destroyed")
      .Culprit("aclrtResetDevice or aclrtDestroyContext, on another thread")
      .Hint("let no other thread destroy or reset what this one works with");
}

bool Stream::Destroy(Stream* stream, DestroyMode mode, const Deadline& patience) {
  if (!Hide(stream)) return false;
  DestroyHidden(stream, mode, patience);
  return true;
}

bool Stream::Hide(Stream* stream) {
  if (!Streams().Hide(stream->handle_)) return false;
  (void)AwaitCalls();  // who is still inside finds it closed, for captures, models, subscriptions and tasks
  return true;
}

void Stream::DestroyHidden(Stream* stream, DestroyMode mode, const Deadline& patience) {
  {
    std::lock_guard lock(stream->context_.capture_mutex);
    stream->is_leaving_ = true;
    if (TaskSink* sink = stream->sink()) sink->Forget(*stream);
  }
  (void)stream->CloseToModels();
  {
    // Before it leaves the table, so that ForEach misses it in neither.
    std::lock_guard lock(g_leaving.value.mutex);
    stream->next_leaving_ = std::exchange(g_leaving.value.first, stream);
  }
  uint64_t birth = 0;
  Streams().EraseHidden(stream->handle_, &birth);
  if (mode == DestroyMode::kForce) stream->Abort(kStopped);
  if (mode == DestroyMode::kTeardown) {
    // Work that waits for an event which nobody will record must not hold up the teardown for ever.
    if (!stream->WaitFor(stream->published_.load(), patience).ok()) stream->Abort(kStopped);
  }
  for (bool left = false; !left;) {
    (void)stream->WaitFor(stream->published_.load(), std::nullopt);
    std::lock_guard lock(g_leaving.value.mutex);
    {
      std::lock_guard producer(stream->producer_);
      if (!stream->IsIdle()) continue;  // somebody has found it in the list and left a last task
      stream->Close();
    }
    Stream** at = &g_leaving.value.first;
    while (*at != stream) at = &(*at)->next_leaving_;
    *at = stream->next_leaving_;
    left = true;
  }
  device::ParkedMemory::Get().Forget(stream);
  stream->context_.HideStream(stream);
  if (stream->visitors.load(std::memory_order_acquire) != 0) {
    const WaitingCall waiting;
    while (stream->visitors.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  }
  stream->device_.scheduler().Retire(*stream);
  ForgetSubscriptions(*stream);
  stream->device_.stream_ids().Return(stream->id_);
  stream->context_.RemoveStream(stream);  // the context may be gone from here on
  Retire(stream, Free, birth, true);
}

void Stream::Free(void* retired) {
  auto* const stream = static_cast<Stream*>(retired);
  // Again: calls that found the stream before may have woken it since, or left it something.
  if (!stream->IsIdle()) {
    stream->Abort(kStopped);
    (void)stream->WaitFor(stream->published_.load(), std::nullopt);
  }
  stream->device_.scheduler().Retire(*stream);
  delete stream;
}

void Stream::ForEach(const std::function<void(Stream&)>& visit) {
  Streams().ForEach([&](Stream* stream) { visit(*stream); });
  std::lock_guard lock(g_leaving.value.mutex);
  for (Stream* stream = g_leaving.value.first; stream != nullptr; stream = stream->next_leaving_) visit(*stream);
}

bool Stream::is_closed() {
  std::lock_guard lock(producer_);
  return (detours_ & kClosed) != 0;
}

namespace {

Status DestroyedMeanwhile() {
  return Error(kInvalidHandle, "the stream was destroyed by another thread meanwhile")
      .Hint("destroy a stream only when no other thread uses it");
}

}  // namespace

Status Stream::CheckNotLeaving() const {
  if (is_leaving_) [[unlikely]]
    return DestroyedMeanwhile();
  return {};
}

bool Stream::is_default() const { return context_.default_stream() == this; }

std::string Stream::Describe() const {
  const uint32_t user_tag = attributes.tag.load();
  return fmt::format("{}stream {}{}", is_default() ? "default " : "", id_,
                     user_tag != 0 ? fmt::format(" (tag {})", user_tag) : "");
}

Status Stream::Enqueue(const ir::Task& task, void (*placed)(void* payload)) {
  if (stopped()) [[unlikely]] {
    task.Destroy();
    return TakeError();
  }
  device::SubmissionNote note(task);
  uint32_t task_id = 0;
  bool runs_here = false;
  ThreadState& thread = ThisThread();
  if (!device_.scheduler().has_workers() && !is_persistent()) [[unlikely]] {
    device::ReportFaults();
    if (Status status = device_.scheduler().Start(); !status.ok()) {
      task.Destroy();
      return status;
    }
  }
  try {
    std::lock_guard lock(producer_);
    if ((detours_ & kClosed) != 0) [[unlikely]] {
      task.Destroy();
      return DestroyedMeanwhile();
    }
    if (store_ != nullptr) [[unlikely]] {
      REPRISE_ASSIGN_OR_RETURN(thread.last_task_id, store_->Add(task));  // the id for aclrtTaskUpdateAsync
      thread.last_task_stream = handle_;
      return {};
    }
    runs_here = MayRunHere(task);
    Append(task, placed);
    if ((detours_ & kUnlisted) != 0) [[unlikely]]
      List();
    task_id = next_task_id_ - 1;
    if (!is_default()) thread.last_task_id = task_id;  // aclrtGetThreadLastTaskId speaks of explicit streams
    thread.last_task_stream = handle_;
  } catch (const std::bad_alloc&) {
    if (store_ == nullptr) task.Destroy();  // a store has done so itself
    return Error(kResourceExhausted, fmt::format("no memory for another task of {}", Describe()))
        .Hint("free memory of the host, or synchronise so that tasks that have run give theirs back");
  }
  if (!runs_here || !device_.scheduler().TryRunBrought(*this)) device_.scheduler().Signal(*this);
  note.Placed(device_.id(), id_, task_id);
  return {};
}

// Whether the thread that brings the task runs it when nobody is faster: a short one, with nothing before it, so that
// it would have to wait for no one. With producer_ held. A thread that runs tasks already brings none of its own.
bool Stream::MayRunHere(const ir::Task& task) noexcept {
  if (!task.is_short) {
    SetRunsItself(false);
    return false;
  }
  if (!IsIdle() || device::Timeline::observed() || device::Activity::Place() != nullptr) return false;
  PreferHelper();
  SetRunsItself(true);
  return true;
}

std::byte* Stream::TryReserve(const ir::TaskType& type, size_t payload_bytes) {
  if (sink_.load(std::memory_order_acquire) != nullptr || stopped() || device::Timeline::on()) [[unlikely]]
    return nullptr;
  const uint32_t bytes = RecordBytes(sizeof(Record), payload_bytes);
  producer_.lock();
  // Without detours there is a chunk: a stream is listed behind its first task.
  if (detours_ != 0 || tail_->used + bytes + sizeof(Record) > tail_->size) [[unlikely]] {
    producer_.unlock();
    return nullptr;
  }
  auto* record = new (tail_->at(tail_->used)) Record{&type, bytes, next_task_id_++};
  tail_->used += bytes;
  return static_cast<std::byte*>(record->payload());
}

void Stream::Commit() {
  const uint32_t task_id = next_task_id_ - 1;
  published_.store(published_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  PrepareNextRecord();
  producer_.unlock();
  ThreadState& thread = ThisThread();
  if (!is_default()) thread.last_task_id = task_id;
  thread.last_task_stream = handle_;
  device_.scheduler().Signal(*this);
}

// The lines of the next record come from whoever ran the one that lay there before: asked for now, they are here then.
// With producer_ held.
void Stream::PrepareNextRecord() const noexcept {
  const std::byte* const next = tail_->data + tail_->used;
  PrefetchForWrite(next);
  PrefetchForWrite(next + 64);
  PrefetchForWrite(next + 256);
}

void Stream::EnqueueLast(const ir::Task& task) noexcept {
  try {
    std::lock_guard lock(producer_);
    if ((detours_ & (kStores | kClosed)) != 0) return;
    Append(task);
    if ((detours_ & kUnlisted) != 0) List();
  } catch (const std::bad_alloc&) {
    return;
  }
  device_.scheduler().Signal(*this);
}

Stream::Chunk* Stream::NewChunk(size_t bytes_needed) {
  if (FaultPoint("stream.queue")) throw std::bad_alloc();
  if (tail_ != nullptr && bytes_needed <= kChunkBytes) {
    if (Chunk* spare = spare_.exchange(nullptr, std::memory_order_acq_rel)) {
      spare->next = nullptr;
      spare->used = 0;
      return spare;
    }
  }
  size_t size = tail_ == nullptr ? kFirstChunkBytes : kChunkBytes;
  if (size < bytes_needed) size = bytes_needed;
  auto* chunk = static_cast<Chunk*>(std::aligned_alloc(64, (sizeof(Chunk) + size + 63) / 64 * 64));
  if (chunk == nullptr) throw std::bad_alloc();
  new (chunk) Chunk;
  chunk->size = size;
  return chunk;
}

void Stream::Append(const ir::Task& task, void (*placed)(void* payload)) {
  const uint32_t bytes = RecordBytes(sizeof(Record), task.payload_bytes);
  // Room for the link to the next chunk is always kept.
  if (tail_ == nullptr || tail_->used + bytes + sizeof(Record) > tail_->size) {
    Chunk* chunk = NewChunk(bytes + sizeof(Record));
    if (tail_ == nullptr) {
      head_ = chunk;
    } else {
      new (tail_->at(tail_->used)) Record{nullptr, 0, 0};
      tail_->next = chunk;
    }
    tail_ = chunk;
  }
  auto* record = new (tail_->at(tail_->used)) Record{task.type, bytes, next_task_id_++};
  std::memcpy(record->payload(), task.payload, task.payload_bytes);
  if (placed != nullptr) placed(record->payload());
  tail_->used += bytes;
  published_.store(published_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

Stream::Record* Stream::Front() {
  Record* record = head_->at(head_offset_);
  if (record->type != nullptr) return record;
  Chunk* done = head_;
  head_ = done->next;
  head_offset_ = 0;
  // One chunk is kept for the producer, so that a steady flow allocates nothing.
  if (done->size == kChunkBytes) done = spare_.exchange(done, std::memory_order_acq_rel);
  std::free(done);
  return head_->at(0);
}

void Stream::PopFront() {
  Record* record = head_->at(head_offset_);
  if (record->type->destroy != nullptr) record->type->destroy(record->payload());
  head_offset_ += record->record_bytes;
  parked_.store(false, std::memory_order_relaxed);
}

void Stream::DropCurrent(device::RunContext& context) {
  Record* record = head_->at(head_offset_);
  if (parked_.load(std::memory_order_relaxed)) {
    device_.scheduler().CancelTimer(*this);
    if (record->type->cancel != nullptr) record->type->cancel(record->payload(), context.runnable());
  }
}

// Runs the tasks before `limit`; an answer only when the runnable must be left.
template <bool kTraced>
inline std::optional<device::Runnable::Outcome> Stream::RunUntil(device::RunContext& context, uint64_t limit,
                                                                 int& budget) {
  for (uint64_t done = completed_.load(std::memory_order_relaxed); done != limit; ++done) {
    if (budget-- == 0) {
      NotifyWaiters();
      return Outcome::kRequeue;
    }
    Record* record = Front();
    if (done + 1 != limit) __builtin_prefetch(record->Next() + 192);
    if (done < drop_below_.load(std::memory_order_relaxed)) [[unlikely]] {
      DropCurrent(context);
      if (uint32_t none = 0; done + 1 == stop_at_.load(std::memory_order_relaxed)) {
        abort_code_.compare_exchange_strong(none, kStopped, std::memory_order_relaxed);
      }
    } else {
      context.task_id = record->task_id;
      [[maybe_unused]] uint64_t begin = 0;
      device::WatchedRun<kTraced> watched(context, *record->type, record->payload(), device::TaskWatch::kNoGraph);
      if constexpr (kTraced) begin = parked_since_.BeginOf(done, parked_.load(std::memory_order_relaxed));
      const ir::RunResult result = record->type->run(context, record->payload());
      if (result != ir::RunResult::kDone) {
        parked_.store(true, std::memory_order_relaxed);
        if constexpr (kTraced) parked_since_ = {result == ir::RunResult::kParked ? begin : 0, done};
        if (device::Inquiry::IsOpen()) [[unlikely]]
          device::Inquiry::Answer(fmt::format("{}, task {}: {}", Describe(), record->task_id,
                                              ir::DescribeWaiting(*record->type, record->payload())));
        NotifyWaiters();
        return result == ir::RunResult::kParked ? Outcome::kIdle : Outcome::kNeedsWorker;
      }
      if constexpr (kTraced) {
        device::Timeline::Get().Task(context, *record->type, record->payload(), begin, 0, context.failed());
      }
      watched.End(context.failed());
      if (context.failed()) [[unlikely]]
        ReportError(context.TakeError(), record->task_id);
      if (device::ParkedMemory::IsWatched()) [[unlikely]]
        TellFreedUse(*record);
    }
    PopFront();
    completed_.store(done + 1, std::memory_order_release);
    // Without a fence: a thread that this misses by a hair is woken behind the next task, or at the end.
    if (done + 1 >= wake_at_.load(std::memory_order_relaxed)) [[unlikely]]
      NotifyWaiters();
  }
  return {};
}

device::Runnable::Outcome Stream::Run(device::RunContext& context) {
  context.device_id = device_.id();
  context.stream_id = id_;
  int budget = context.most_tasks() != 0 ? context.most_tasks() : context.on_worker() ? kWorkerBatch : kHelperBatch;
  const uint64_t begin = completed_.load(std::memory_order_relaxed);
  int pauses = kFirstLook;
  for (uint64_t limit;
       (limit = published_.load(std::memory_order_acquire)) != completed_.load(std::memory_order_relaxed) ||
       (limit - begin >= kFlow && context.on_worker() && !runs_itself() && (limit = Linger(limit, pauses)) != 0);) {
    // Looked up behind the load of the limit: what was submitted after a recording began is recorded.
    const auto outcome =
        device::Timeline::observed() ? RunUntil<true>(context, limit, budget) : RunUntil<false>(context, limit, budget);
    if (outcome) return *outcome;
  }
  NotifyWaiters();
  return Outcome::kIdle;
}

// A worker in the midst of a flow of tasks is faster than the thread that submits them. Going idle after each would
// cost both of them a wake-up, and looking all the time would take the queue's cache line away from the submitter.
uint64_t Stream::Linger(uint64_t seen, int& pauses) noexcept {
  for (int paused = 0; paused < kLingerPauses; paused += pauses) {
    bool awaited = false;
    for (int i = 0; i < pauses && !awaited; ++i) {
      CpuRelax();
      awaited = awaited_.load(std::memory_order_relaxed);
    }
    if (awaited) awaited_.store(false, std::memory_order_relaxed);
    if (const uint64_t limit = published_.load(std::memory_order_acquire); limit != seen) {
      pauses = std::min(2 * pauses, kLastLook);
      return limit;
    }
    if (awaited || runs_itself() || waiters_.load(std::memory_order_relaxed) != 0) break;
  }
  return 0;
}

void Stream::NotifyWaiters() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the announcement in WaitFor
  if (wake_at_.load(std::memory_order_relaxed) != UINT64_MAX) {
    wake_at_.store(UINT64_MAX, std::memory_order_relaxed);  // who sleeps on announces itself again
  }
  if (waiters_.load(std::memory_order_relaxed) == 0) return;
  wait_word_.fetch_add(1, std::memory_order_release);
  FutexWake(wait_word_, INT_MAX);
}

// Nothing is held up for the answer, so the record may go meanwhile: it is read as a debugger would read it, and counts
// when no task has ended since.
std::string Stream::DescribeRunning() const {
  const uint64_t done = completed_.load(std::memory_order_acquire);
  if (done == published_.load(std::memory_order_acquire) || parked_.load(std::memory_order_acquire)) return {};
  const Chunk* head = nullptr;
  size_t offset = 0;
  Record record{};
  const bool is_read =
      device::CopyUntrusted(&head, &head_, sizeof head) &&
      device::CopyUntrusted(&offset, &head_offset_, sizeof offset) &&
      device::CopyUntrusted(&record, reinterpret_cast<const std::byte*>(head) + offsetof(Chunk, data) + offset,
                            sizeof record);
  if (!is_read || completed_.load(std::memory_order_acquire) != done || parked_.load(std::memory_order_acquire) ||
      record.type == nullptr) {
    return {};
  }
  return fmt::format("{}, task {}: {} runs", Describe(), record.task_id, ir::SpokenName(*record.type));
}

// On the thread that runs the stream, hence the record is there.
bool Stream::FindTask(device::TaskSpot& spot) const noexcept {
  if (IsIdle() || head_ == nullptr) return false;
  const Record* const record = head_->at(head_offset_);
  if (record->type == nullptr) return false;
  spot = {record->type, record + 1, id_, record->task_id, false, 1};
  return true;
}

Status Stream::CheckNotInside(const char* what) const {
  if (device::Activity::Mine() != this) [[likely]]
    return {};
  return Error(kRuntimeCannot, fmt::format("a host function of {} {}, and so for itself", Describe(), what))
      .Culprit(fmt::format("thread {}, which runs the host function as task number {} of the stream", ThreadId(),
                           completed_.load(std::memory_order_relaxed) + 1))
      .Hint(
          "wait behind the host function, on a thread of the program; a host function may wait for other streams that "
          "do not depend on its own");
}

bool Stream::HasQueued(const std::function<bool(const ir::TaskType& type, const void* payload)>& is_it) {
  std::lock_guard lock(producer_);
  uint64_t left = published_.load(std::memory_order_relaxed) - completed_.load(std::memory_order_relaxed);
  size_t offset = head_offset_;
  for (Chunk* chunk = head_; left != 0 && chunk != nullptr;) {
    Record* const record = chunk->at(offset);
    if (record->type == nullptr) {
      chunk = chunk->next;
      offset = 0;
      continue;
    }
    if (is_it(*record->type, record->payload())) return true;
    offset += record->record_bytes;
    --left;
  }
  return false;
}

Status Stream::WaitFor(uint64_t target, const Deadline& deadline) {
  const auto reached = [&] { return completed_.load(std::memory_order_acquire) >= target; };
  device::Scheduler& scheduler = device_.scheduler();
  Clock::time_point spin_until{};
  bool spinning = false;
  Clock::duration sleep = kFirstSleep;
  Clock::time_point progress_at{};  // when this thread last saw a task end
  bool told = false;
  uint64_t progress = 0;
  if (reached()) return {};
  const WaitingCall waiting;
  const device::Activity::Wait in_host_function("stream", id_, this);
  const auto end_spin = [&] {
    if (!spinning) return;
    spinning = false;
    device::ReturnSpinPermit();
    if (!deadline) AddPartTaker(-1);
  };
  while (!reached()) {
    // A caller with a deadline does not help: it could not leave a task that takes longer.
    if (!deadline) {
      WatchHelpers(device_);
      const device::Activity::Help help(this);
      if (scheduler.TryRun(*this)) {
        PreferHelper();
        continue;
      }
      if (scheduler.TryRunPartOf(*this)) {
        if (spinning) spin_until = Clock::now() + device::SpinTime();
        continue;
      }
    }
    if (spin_until == Clock::time_point{}) {
      PreferHelper();
      awaited_.store(true, std::memory_order_relaxed);
      spin_until = Clock::now() + device::SpinTime();
      spinning = device::TakeSpinPermit();
      if (spinning && !deadline) AddPartTaker(1);
    }
    if (spinning) {
      // Parts that are there now are not for this thread.
      const bool has_others = scheduler.has_parts();
      for (int i = 0; i < 16 && !reached() && (has_others || !scheduler.has_parts()); ++i) CpuRelax();
      if (Clock::now() < spin_until) continue;
      end_spin();
    }
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = wait_word_.load(std::memory_order_acquire);
    // Behind the load: a wake-up that takes the announcement away has changed the word since.
    for (uint64_t nearest = wake_at_.load(std::memory_order_relaxed);
         target < nearest && !wake_at_.compare_exchange_weak(nearest, target, std::memory_order_relaxed);) {
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // Bounded: the worker may have missed the announcement by a hair, with a long task next.
    const auto look_again = Clock::now() + sleep;
    sleep = std::min<Clock::duration>(2 * sleep, kLongestSleep);
    if (!reached()) FutexWait(wait_word_, seen, deadline ? std::min(*deadline, look_again) : look_again);
    waiters_.fetch_sub(1, std::memory_order_relaxed);
    if (const uint64_t now_at = completed_.load(std::memory_order_relaxed);
        now_at != progress || progress_at == Clock::time_point{}) {
      progress = now_at;
      progress_at = Clock::now();
      told = false;
    } else if (!told && Clock::now() - progress_at >= StallTime()) {
      told = true;  // once: whoever computes for long does no wrong
      TellStall(Describe(), device_, &context_, ThreadId());
    }
    if (deadline && Clock::now() >= *deadline && !reached()) break;
  }
  end_spin();
  if (reached()) return {};
  return Error(kStreamSyncTimeout, fmt::format("{} still has {} tasks after the timeout", Describe(),
                                               target - completed_.load(std::memory_order_relaxed)))
      .Culprit(fmt::format("task number {} of the stream, which is running", completed_.load() + 1));
}

Status Stream::Synchronize(const Deadline& deadline) {
  if (!deadline) REPRISE_RETURN_IF_ERROR(CheckNotInside());
  const device::Activity::Wait in_host_function("stream", id_, this);
  if (Status late = WaitFor(published_.load(std::memory_order_acquire), deadline); !late.ok()) {
    const std::string who = WhoWaits(device_, &context_, "; ", kLatePatience);
    if (who.empty()) return late;
    return std::move(late).Culprit("what the streams of the context run and wait for: " + who);
  }
  device::ParkedMemory::Get().Sweep();
  if (abort_code_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    if (const uint32_t code = abort_code_.exchange(0))
      return Error(static_cast<int>(code), fmt::format("the tasks of {} were dropped", Describe()));
  }
  return failed_.load(std::memory_order_acquire) ? TakeError() : Status();
}

void Stream::Abort(int code) {
  {
    std::lock_guard lock(producer_);
    const uint64_t end = published_.load();
    if (end == completed_.load()) return;
    abort_code_ = static_cast<uint32_t>(code);
    drop_below_ = end;
  }
  device_.scheduler().Wake(*this);
}

void Stream::Stop() {
  {
    std::lock_guard lock(producer_);
    const uint64_t end = completed_.load() + 1;
    if (published_.load() < end) return;
    stop_at_ = end;
    // Only ever raised: a stream that was aborted drops more, one that failed everything.
    for (uint64_t below = drop_below_.load(); below < end && !drop_below_.compare_exchange_weak(below, end);) {
    }
  }
  device_.scheduler().Wake(*this);
}

void Stream::ReportError(Status error, uint32_t task_id) {
  REPRISE_LOG(kError, "RUNTIME", "task {} of {} failed with {}: {}", task_id, Describe(), error.code(),
              error.detail().what);
  // The task does not count as completed yet, so whoever synchronises returns after the listeners.
  TaskFailure failure;
  failure.task_id = task_id;
  failure.stream_id = id_;
  failure.device_id = device_.id();
  failure.error_code = error.code();
  NotifyTaskFailure(failure);
  std::lock_guard lock(error_mutex_);
  if (!error_.ok()) {
    ++errors_after_first_;
    return;
  }
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  if (attributes.failure_mode.load() != 0) drop_below_ = UINT64_MAX;  // stop: nothing behind the failure runs
}

Status Stream::TakeError() {
  std::lock_guard lock(error_mutex_);
  if (attributes.failure_mode.load() != 0) return error_.Clone();
  failed_.store(false, std::memory_order_release);
  errors_after_first_ = 0;
  return std::move(error_);
}

Status Stream::PendingError() const {
  std::lock_guard lock(error_mutex_);
  return error_.Clone();
}

StatusOr<Stream*> FindAnyStream(const void* handle) {
  if (handle == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(Context * context, CurrentContext());
    return context->default_stream();
  }
  return FindObject(Streams(), handle, "stream");
}

Status CheckOwn(const Stream& stream) {
  if (&stream.context() == LiveContext()) [[likely]]
    return {};
  REPRISE_ASSIGN_OR_RETURN(const Context* context, CurrentContext());
  if (context == &stream.context()) return {};  // of the default device, just now
  return Error(kStreamContext, fmt::format("{} belongs to another context than the current one", stream.Describe()))
      .Culprit(fmt::format("the stream was created in context {} of device {}; current is context {} of device {}",
                           stream.context().handle(), stream.device().id(), context->handle(), context->device().id()));
}

StatusOr<Stream*> FindStream(const void* handle) {
  Stream* const live = Streams().Find(handle);
  if (live != nullptr && &live->context() == LiveContext()) [[likely]]
    return live;
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, FindAnyStream(handle));
  REPRISE_RETURN_IF_ERROR(CheckOwn(*stream));
  return stream;
}

Status CheckNotCapturing(const Stream& stream, const char* api) {
  if (!stream.is_capturing()) [[likely]]
    return {};
  std::lock_guard lock(stream.context().capture_mutex);
  TaskSink* const capture = stream.is_capturing() ? stream.sink() : nullptr;
  if (capture == nullptr) return {};
  Status error =
      Error(kStreamCaptured, fmt::format("{} is not allowed on {}: it is being captured", api, stream.Describe()))
          .Culprit(capture->Describe());
  capture->Refused(error);
  return error;
}

Status CheckNotUpdating(const Stream& stream, const char* what) {
  if (!stream.is_updating()) [[likely]]
    return {};
  return Error(kTaskTypeNotSupported,
               fmt::format("{} is updating a task group and takes kernels only, not {}", stream.Describe(), what))
      .Hint("end the update with aclmdlRICaptureTaskUpdateEnd first");
}

}  // namespace reprise::runtime
