// SPDX-License-Identifier: Apache-2.0
//
// The stream's queue: whatever happens to a task, its payload arrives whole and is destroyed exactly once.
#include "runtime/stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <reprise/kernel.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <latch>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/calls.h"
#include "base/fault.h"
#include "capture/session.h"
#include "device/memory.h"
#include "device/parked_memory.h"
#include "ir/graph.h"
#include "ir/operand.h"
#include "model/model.h"
#include "runtime/callback.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/kernel.h"
#include "runtime/submission.h"
#include "runtime/tasks.h"
#include "scale.h"

namespace reprise::runtime {
namespace {

using device::RunContext;
using ir::RunResult;
using testing::Loops;

// What happened to the tasks of a test, by number.
struct Ledger {
  std::mutex mutex;
  std::vector<uint32_t> order;  // of the runs
  std::map<uint32_t, int> destroyed;
  std::atomic<int> corrupt{0};
  std::atomic<int> cancelled{0};
  device::WaitList waiters;
  std::atomic<bool> open{false};
};

// A payload of any size: this header, then bytes that follow from the number.
struct Header {
  Ledger* ledger;
  uint32_t number;
  uint32_t bytes;  // behind the header
};
unsigned char ByteAt(uint32_t number, uint32_t i) { return static_cast<unsigned char>(number * 31 + i * 7 + (i >> 8)); }

RunResult RunBytes(RunContext&, void* payload) {
  auto* header = static_cast<Header*>(payload);
  const auto* bytes = static_cast<const unsigned char*>(payload) + sizeof(Header);
  for (uint32_t i = 0; i < header->bytes; ++i) {
    if (bytes[i] != ByteAt(header->number, i)) {
      ++header->ledger->corrupt;
      break;
    }
  }
  std::lock_guard lock(header->ledger->mutex);
  header->ledger->order.push_back(header->number);
  return RunResult::kDone;
}
void DestroyBytes(void* payload) noexcept {
  auto* header = static_cast<Header*>(payload);
  std::lock_guard lock(header->ledger->mutex);
  ++header->ledger->destroyed[header->number];
}
const ir::TaskType kBytes = {
    .kind = ir::TaskKind::kCopy, .name = "BYTES", .run = RunBytes, .destroy = DestroyBytes, .operands = ir::NoOperands};

// Fails with the number that stands in `bytes`.
const ir::TaskType kFailing = {
    .kind = ir::TaskKind::kKernel,
    .name = "FAILING",
    .run =
        [](RunContext& context, void* payload) {
          context.Fail(Error(static_cast<int>(static_cast<Header*>(payload)->bytes), "as asked"));
          return RunResult::kDone;
        },
    .destroy = DestroyBytes,
    .operands = ir::NoOperands};

// Parks until the ledger is open.
const ir::TaskType kParking = {
    .kind = ir::TaskKind::kEventWait,
    .name = "PARKING",
    .run =
        [](RunContext& context, void* payload) {
          Ledger& ledger = *static_cast<Header*>(payload)->ledger;
          const auto open = [&] { return ledger.open.load(); };
          if (!open() && ledger.waiters.AddUnless(open, context.runnable(), &context.scheduler()))
            return RunResult::kParked;
          return RunResult::kDone;
        },
    .destroy = DestroyBytes,
    .cancel =
        [](void* payload, device::Runnable* runnable) noexcept {
          Ledger& ledger = *static_cast<Header*>(payload)->ledger;
          ++ledger.cancelled;
          ledger.waiters.Remove(runnable);
        },
    .operands = ir::NoOperands};

class StreamQueue : public ::testing::Test {
 protected:
  void SetUp() override {
    auto context = Context::Create(*Devices()[0], false);
    ASSERT_TRUE(context.ok());
    context_ = *context;
    SetCurrentContext(context_);
    stream_ = NewStream();
  }
  void TearDown() override {
    ArmFault("", 0);
    if (context_ != nullptr) Context::Destroy(context_);
  }

  Stream* NewStream() {
    auto stream = Stream::Create(*context_, {});
    EXPECT_TRUE(stream.ok());
    return *stream;
  }
  Status Submit(const ir::TaskType& type, uint32_t number, uint32_t bytes = 0, Stream* stream = nullptr) {
    const uint32_t tail = &type == &kBytes ? bytes : 0;
    std::vector<unsigned char> payload(sizeof(Header) + tail);
    const Header header{&ledger_, number, bytes};
    std::memcpy(payload.data(), &header, sizeof header);
    for (uint32_t i = 0; i < tail; ++i) payload[sizeof(Header) + i] = ByteAt(number, i);
    return runtime::Submit(stream != nullptr ? *stream : *stream_,
                           {&type, payload.data(), static_cast<uint32_t>(payload.size()), is_short_});
  }
  void Open() {
    ledger_.waiters.SetAndWake([&] { ledger_.open = true; });
  }
  void ExpectDestroyedOnce(uint32_t count) {
    std::lock_guard lock(ledger_.mutex);
    EXPECT_EQ(ledger_.destroyed.size(), count);
    for (const auto& [number, times] : ledger_.destroyed) EXPECT_EQ(times, 1) << "task " << number;
  }
  void ExpectRanInOrder(uint32_t count) {
    std::lock_guard lock(ledger_.mutex);
    ASSERT_EQ(ledger_.order.size(), count);
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(ledger_.order[i], i);
  }

  Ledger ledger_;
  Context* context_ = nullptr;
  Stream* stream_ = nullptr;
  bool is_short_ = false;  // of the tasks that Submit makes
};

// Only the calling thread can have run them by then: nobody has told a worker.
TEST_F(StreamQueue, ShortTasksOfAnIdleStreamRunOnTheCallingThread) {
  is_short_ = true;
  for (uint32_t i = 0; i < 3000; ++i) {
    ASSERT_TRUE(Submit(kBytes, i, i % 100).ok());
    ASSERT_TRUE(stream_->IsIdle()) << i;
  }
  ExpectRanInOrder(3000);
  ExpectDestroyedOnce(3000);
  EXPECT_EQ(ledger_.corrupt, 0);
}

TEST_F(StreamQueue, ShortTasksKeepTheOrderAmongOthers) {
  const auto count = static_cast<uint32_t>(Loops(20'000, 3'000));
  std::mt19937 random(5);
  for (uint32_t i = 0; i < count; ++i) {
    is_short_ = random() % 4 != 0;
    ASSERT_TRUE(Submit(kBytes, i, random() % 100).ok());
    if (random() % 64 != 0) continue;
    ASSERT_TRUE(stream_->Synchronize(std::nullopt).ok());
  }
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  ExpectRanInOrder(count);
  ExpectDestroyedOnce(count);
}

TEST_F(StreamQueue, ShortTasksWaitBehindParkedOnes) {
  is_short_ = true;
  ASSERT_TRUE(Submit(kParking, 0).ok());
  for (uint32_t i = 1; i < 10; ++i) ASSERT_TRUE(Submit(kBytes, i).ok());
  EXPECT_FALSE(stream_->IsIdle());
  {
    std::lock_guard lock(ledger_.mutex);
    EXPECT_TRUE(ledger_.order.empty());
  }
  Open();
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  ExpectDestroyedOnce(10);
}

TEST_F(StreamQueue, FailureOfAShortTaskIsReportedByTheSynchronisation) {
  is_short_ = true;
  EXPECT_TRUE(Submit(kFailing, 0, 507035).ok());
  EXPECT_TRUE(Submit(kBytes, 1).ok());
  EXPECT_EQ(stream_->Synchronize(std::nullopt).code(), 507035);
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  ExpectDestroyedOnce(2);
}

TEST_F(StreamQueue, RunsInOrderAndDestroysEachOnce) {
  for (uint32_t i = 0; i < 3000; ++i) ASSERT_TRUE(Submit(kBytes, i, i % 100).ok());
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  ExpectRanInOrder(3000);
  ExpectDestroyedOnce(3000);
  EXPECT_EQ(ledger_.corrupt, 0);
  EXPECT_TRUE(stream_->IsIdle());
}

// Sizes around what is left of a first chunk (2 KiB), of a later one (32 KiB), and above one.
TEST_F(StreamQueue, PayloadsOfEverySizeArriveWhole) {
  uint32_t number = 0;
  for (const uint32_t around : {0u, 2048u, 32u << 10, 64u << 10, 1u << 20}) {
    for (int delta = -200; delta <= 200; delta += 8) {
      const int64_t size = int64_t{around} + delta;
      if (size < 0) continue;
      ASSERT_TRUE(Submit(kBytes, number++, static_cast<uint32_t>(size)).ok());
    }
  }
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  ExpectRanInOrder(number);
  ExpectDestroyedOnce(number);
  EXPECT_EQ(ledger_.corrupt, 0);
}

TEST_F(StreamQueue, RandomSizesWhileTheConsumerKeepsUp) {
  std::mt19937 random(3);
  const auto count = static_cast<uint32_t>(Loops(20'000, 3'000));
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t bytes = random() % 20 == 0 ? random() % 40'000 : random() % 300;
    ASSERT_TRUE(Submit(kBytes, i, bytes).ok());
    if (random() % 64 != 0) continue;
    ASSERT_TRUE(stream_->Synchronize(std::nullopt).ok());
  }
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  ExpectRanInOrder(count);
  ExpectDestroyedOnce(count);
  EXPECT_EQ(ledger_.corrupt, 0);
}

TEST_F(StreamQueue, ManyProducersKeepTheirOwnOrder) {
  constexpr uint32_t kProducers = 4;
  const auto each = static_cast<uint32_t>(Loops(5000, 1000));
  std::vector<std::thread> producers;
  for (uint32_t p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (uint32_t i = 0; i < each; ++i) EXPECT_TRUE(Submit(kBytes, p * each + i, i % 50).ok());
    });
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  ExpectDestroyedOnce(kProducers * each);
  uint32_t next[kProducers] = {};
  for (const uint32_t number : ledger_.order) EXPECT_EQ(next[number / each]++, number % each);
}

TEST_F(StreamQueue, AbortDropsTheParkedAndTheQueued) {
  ASSERT_TRUE(Submit(kParking, 0).ok());
  for (uint32_t i = 1; i < 500; ++i) ASSERT_TRUE(Submit(kBytes, i, 100).ok());
  EXPECT_FALSE(stream_->IsIdle());
  stream_->Abort(107022);
  EXPECT_EQ(stream_->Synchronize(std::nullopt).code(), 107022);
  ExpectDestroyedOnce(500);
  EXPECT_TRUE(ledger_.order.empty()) << "a dropped task ran";
  EXPECT_LE(ledger_.cancelled, 1);
  EXPECT_TRUE(Submit(kBytes, 500).ok()) << "the stream is usable again";
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  EXPECT_EQ(ledger_.order.size(), 1u);
  ExpectDestroyedOnce(501);
}

TEST_F(StreamQueue, ForcedDestructionDropsWhatWaits) {
  ASSERT_TRUE(Submit(kParking, 0).ok());
  for (uint32_t i = 1; i < 100; ++i) ASSERT_TRUE(Submit(kBytes, i, 3000).ok());
  Stream::Destroy(stream_, Stream::DestroyMode::kForce);
  ExpectDestroyedOnce(100);
  EXPECT_TRUE(ledger_.order.empty());
  // The list must have forgotten the stream.
  Open();
}

TEST_F(StreamQueue, DestructionWaitsForTheQueue) {
  ASSERT_TRUE(Submit(kParking, 0).ok());
  for (uint32_t i = 1; i < 100; ++i) ASSERT_TRUE(Submit(kBytes, i, 3000).ok());
  std::thread opener([&] { Open(); });
  Stream::Destroy(stream_, Stream::DestroyMode::kWait);
  opener.join();
  EXPECT_EQ(ledger_.order.size(), 99u);
  ExpectDestroyedOnce(100);
}

TEST_F(StreamQueue, FailureIsReportedOnceAndTheRestRuns) {
  ASSERT_TRUE(Submit(kBytes, 0).ok());
  ASSERT_TRUE(Submit(kFailing, 1, 507015).ok());
  ASSERT_TRUE(Submit(kFailing, 2, 507016).ok());
  ASSERT_TRUE(Submit(kBytes, 3).ok());
  EXPECT_EQ(stream_->Synchronize(std::nullopt).code(), 507015) << "the first failure";
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  EXPECT_EQ(ledger_.order, (std::vector<uint32_t>{0, 3}));
  ExpectDestroyedOnce(4);
}

TEST_F(StreamQueue, StopModeDropsWhatFollowsAFailure) {
  stream_->attributes.failure_mode = 1;
  ASSERT_TRUE(Submit(kParking, 0).ok());
  ASSERT_TRUE(Submit(kFailing, 1, 507015).ok());
  for (uint32_t i = 2; i < 50; ++i) ASSERT_TRUE(Submit(kBytes, i, 500).ok());
  Open();
  EXPECT_EQ(stream_->Synchronize(std::nullopt).code(), 507015);
  EXPECT_EQ(Submit(kBytes, 50).code(), 507015) << "and takes no more";
  EXPECT_EQ(stream_->Synchronize(std::nullopt).code(), 507015) << "until it is reset";
  EXPECT_TRUE(ledger_.order.empty());
  ExpectDestroyedOnce(51);
}

TEST_F(StreamQueue, NoMemoryForATaskDestroysItAndHarmsNothing) {
  ArmFault("stream.queue", 1);
  EXPECT_EQ(Submit(kBytes, 0, 10).code(), 207005);
  EXPECT_TRUE(FaultFired());
  ASSERT_TRUE(Submit(kBytes, 1, 10).ok());
  ArmFault("stream.queue", 1);
  EXPECT_EQ(Submit(kBytes, 2, 5000).code(), 207005) << "needs another chunk";
  ASSERT_TRUE(Submit(kBytes, 3, 5000).ok());
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  EXPECT_EQ(ledger_.order, (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(ledger_.corrupt, 0);
  ExpectDestroyedOnce(4);
}

TEST_F(StreamQueue, SynchronizeGivesUpInTime) {
  ASSERT_TRUE(Submit(kParking, 0).ok());
  EXPECT_EQ(stream_->Synchronize(DeadlineAfterMs(5)).code(), 507046);
  Open();
  EXPECT_TRUE(stream_->Synchronize(DeadlineAfterMs(60'000)).ok());
}

/// Whether the thread of this process waits for something in the kernel.
bool Sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.substr(name_end + 1, 2) == " S";
}

// What was submitted before the call has run; what others submit behind it does not hold the caller up.
TEST_F(StreamQueue, SynchronizeDoesNotWaitForLaterWork) {
  struct Hold {
    std::latch inside{1}, go_on{1};
  };
  const auto hold = [](void* argument) {
    static_cast<Hold*>(argument)->inside.count_down();
    static_cast<Hold*>(argument)->go_on.wait();
  };
  // A waiter that comes late, behind the second task, waits for that, and rightly so: one of several tries has to come
  // in time. Each is more patient than the last, with the waiter before and after its wait.
  bool in_time = false;
  for (auto patience = std::chrono::milliseconds(500); patience < std::chrono::seconds(30) && !in_time; patience *= 2) {
    Hold first, second;
    const auto submit = [&](Hold& each) { return SubmitHostFunc(*stream_, hold, &each); };
    ASSERT_TRUE(submit(first).ok());
    first.inside.wait();
    std::atomic<pid_t> begun{0};
    std::atomic<bool> returned{false};
    std::thread waiter([&] {
      begun = ::gettid();
      EXPECT_TRUE(stream_->Synchronize(DeadlineAfterMs(120'000)).ok());
      returned = true;
    });
    const auto until = [&](const std::function<bool()>& done) {
      const auto end = Clock::now() + patience;
      while (!done() && Clock::now() < end) std::this_thread::yield();
    };
    until([&] { return begun != 0 && Sleeps(begun); });
    ASSERT_TRUE(submit(second).ok());
    first.go_on.count_down();
    second.inside.wait();
    until([&] { return returned.load(); });
    in_time = returned;
    second.go_on.count_down();
    waiter.join();
    EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  }
  EXPECT_TRUE(in_time) << "the caller waits for a task that was submitted after its call";
}

// A thread may synchronise everything while others make, use and destroy streams of their own.
TEST_F(StreamQueue, ContextSynchronizesWhileStreamsComeAndGo) {
  std::atomic<bool> stop{false};
  std::thread synchronizer([&] {
    while (!stop) EXPECT_TRUE(context_->Synchronize(-1).ok());
  });
  std::vector<std::thread> users;
  for (uint32_t u = 0; u < 3; ++u) {
    users.emplace_back([&, u] {
      for (int i = 0; i < Loops(1500, 300); ++i) {
        Stream* stream = NewStream();
        EXPECT_TRUE(Submit(kBytes, u, 8, stream).ok());
        Stream::Destroy(stream, Stream::DestroyMode::kWait);
      }
    });
  }
  for (std::thread& user : users) user.join();
  stop = true;
  synchronizer.join();
}

TEST_F(StreamQueue, StoredTasksNeverRun) {
  auto made = Stream::Create(*context_, {.flags = 0x4});  // ACL_STREAM_PERSISTENT
  ASSERT_TRUE(made.ok());
  for (uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(Submit(kBytes, i, 100, *made).ok());
  EXPECT_TRUE((*made)->IsIdle());
  EXPECT_TRUE((*made)->Synchronize(std::nullopt).ok());
  Stream::Destroy(*made, Stream::DestroyMode::kWait);
  EXPECT_TRUE(ledger_.order.empty());
  ExpectDestroyedOnce(100);
}

// ---- The door ----

// What somebody outside of submission.h can call: nothing that takes a task. Compiling this is the test.
template <class Queue>
concept TakesTasks = requires(Queue& queue, const ir::Task& task) {
  queue.Enqueue(task, nullptr);
}
|| requires(Queue& queue, const ir::Task& task) { queue.Submit(task); }
|| requires(Queue& queue, const ir::Task& task) { queue.EnqueueLast(task); }
|| requires(Queue& queue) { queue.TryReserve(kBytes, size_t{1}); }
|| requires(Queue& queue) { queue.Commit(); };
template <class Sink>
concept Records = requires(Sink& sink, Stream& stream, const ir::Task& task, bool& taken) {
  sink.Record(stream, task, taken);
};
struct OpenQueue {
  void EnqueueLast(const ir::Task&) {}
};
struct OpenSink {
  void Record(Stream&, const ir::Task&, bool&) {}
};
static_assert(TakesTasks<OpenQueue> && Records<OpenSink>, "the concepts see what is public");
static_assert(!TakesTasks<Stream>, "tasks enter a stream by submission.h alone");
static_assert(!Records<TaskSink> && !Records<capture::Session>, "tasks enter a capture by submission.h alone");

// ---- Streams that may have work, as frees see them ----

// More streams than stay listed while they are idle: each is seen as soon as it has work, whichever way that came.
TEST_F(StreamQueue, FreesSeeWorkOnEveryStream) {
  const auto in_flight = [] { return device::ParkedMemory::Get().InFlight(); };
  std::vector<Stream*> streams(60);
  for (Stream*& stream : streams) stream = NewStream();
  const Header header{&ledger_, 0, 0};
  const auto submit_in_place = [&](Stream& stream) {
    std::byte* const place = TryReserve(stream, kParking, sizeof header);
    if (place == nullptr) return false;
    std::memcpy(place, &header, sizeof header);
    return Commit(stream).ok();
  };
  int refused = 0;
  for (int way = 0; way < 3; ++way) {
    for (Stream* stream : streams) ASSERT_TRUE(Submit(kBytes, 0, 0, stream).ok());
    for (Stream* stream : streams) ASSERT_TRUE(stream->Synchronize(std::nullopt).ok());
    for (size_t i = 0; i < streams.size(); ++i) {
      ASSERT_FALSE(in_flight()) << "before stream " << i;
      Stream& stream = *streams[i];
      ledger_.open = false;
      if (way == 0) {
        ASSERT_TRUE(Submit(kParking, 0, 0, &stream).ok());
      } else if (way == 1) {
        Header payload = header;
        SubmitLast(stream, ir::MakeTask(kParking, payload));
      } else if (!submit_in_place(stream)) {
        ++refused;  // it was off the list
        ASSERT_TRUE(Submit(kParking, 0, 0, &stream).ok());
        ASSERT_TRUE(submit_in_place(stream)) << "now it is on it";
      }
      ASSERT_TRUE(in_flight()) << "stream " << i << ", way " << way;
      Open();
      ASSERT_TRUE(stream.Synchronize(std::nullopt).ok());
    }
  }
  EXPECT_GE(refused, 40);
  for (Stream* stream : streams) Stream::Destroy(stream, Stream::DestroyMode::kWait);
  EXPECT_FALSE(in_flight());
}

// What is parked behind a submission goes behind its end, while other threads put streams on the list and take them
// off.
TEST_F(StreamQueue, NothingParkedGoesBeforeTheWorkThatWasThere) {
  constexpr uint32_t kThreads = 3, kOwn = 25;
  static std::array<std::atomic<bool>, kThreads> released;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<Stream*> own(kOwn);
      for (Stream*& stream : own) stream = NewStream();
      for (int i = 0; i < Loops(2000, 200); ++i) {
        Ledger ledger;
        Header header{&ledger, 0, 0};
        Stream* const stream = own[random() % kOwn];
        released[t] = false;
        ASSERT_TRUE(runtime::Submit(*stream, ir::MakeTask(kParking, header)).ok());
        device::ParkedMemory::Get().Park({.begin = t, .bytes = 1},
                                         [](const device::MemoryRange& range) { released[range.begin] = true; });
        device::ParkedMemory::Get().Sweep();
        ASSERT_FALSE(released[t]);
        ledger.waiters.SetAndWake([&] { ledger.open = true; });
        ASSERT_TRUE(stream->Synchronize(std::nullopt).ok());
        if (random() % 8 == 0) {
          Stream*& gone = own[random() % kOwn];
          Stream::Destroy(gone, Stream::DestroyMode::kWait);
          gone = NewStream();
        }
        while (!released[t]) {  // others may have parked before, and open behind
          device::ParkedMemory::Get().Sweep();
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- Calls that do not end while others destroy what they have found (AwaitCalls gives up) ----

// A call of another thread: it begins, and does the rest when it is told to.
class HeldCall {
 public:
  explicit HeldCall(std::function<void()> rest)
      : rest_(std::move(rest)), thread_([this] {
          const CallGuard call;
          begun_.count_down();
          go_on_.wait();
          rest_();
        }) {
    begun_.wait();
  }
  void End() {
    go_on_.count_down();
    thread_.join();
  }

 private:
  std::latch begun_{1}, go_on_{1};
  std::function<void()> rest_;
  std::thread thread_;
};

class CallInside : public StreamQueue {
 protected:
  void SetUp() override {
    StreamQueue::SetUp();
    PatienceWithCalls() = 0;
    RetireObject(new int, BirthMoment(), true);  // and all that was waiting for a reason to go
    ASSERT_EQ(RetiredObjects(), 0u);
  }
  void TearDown() override {
    EXPECT_EQ(RetiredObjects(), 0u) << "what the call has kept goes with its end";
    PatienceWithCalls() = 1000;
    StreamQueue::TearDown();
  }
};

TEST_F(CallInside, FindsADestroyedStreamClosed) {
  Stream* const stream = NewStream();
  HeldCall call([&] {
    EXPECT_EQ(Submit(kBytes, 1, 8, stream).code(), 107017);
    EXPECT_EQ(TryReserve(*stream, kBytes, 64), nullptr);
    EXPECT_EQ(Subscribe(Subscription::kReport, 1, *stream).code(), 107017);
    EXPECT_EQ(capture::Begin(*stream, CaptureMode::kRelaxed).code(), 107017);
    EXPECT_FALSE(stream->bound_model.load() == nullptr) << "a model could bind it";
    EXPECT_TRUE(stream->Synchronize(std::nullopt).ok());
    EXPECT_NE(stream->Describe(), "");
  });
  EXPECT_TRUE(Stream::Destroy(stream, Stream::DestroyMode::kWait));
  EXPECT_EQ(RetiredObjects(), 1u);
  call.End();
  ExpectDestroyedOnce(1);  // the one that was refused
}

TEST_F(CallInside, KeepsTheGraphOfADestroyedModel) {
  for (const bool with_context : {false, true}) {
    auto made = Context::Create(*Devices()[0], false);
    ASSERT_TRUE(made.ok());
    auto created = Stream::Create(**made, {});
    ASSERT_TRUE(created.ok());
    ASSERT_TRUE(capture::Begin(**created, CaptureMode::kRelaxed).ok());
    ASSERT_TRUE(Submit(kBytes, with_context ? 1 : 0, 8, *created).ok());
    auto captured = capture::End(**created);
    ASSERT_TRUE(captured.ok());
    model::Model* const model = *captured;
    ASSERT_TRUE(model->TakeMemory(4096).ok());
    const uint64_t used = device::MemoryRegistry::Get().used_bytes(0);
    HeldCall call([&] {
      EXPECT_EQ(model->graph().nodes().size(), 1u);
      EXPECT_NE(model->replay(), nullptr);
      EXPECT_NE(model->Describe(), "");
      EXPECT_EQ(device::MemoryRegistry::Get().used_bytes(0), used) << "kept, too";
    });
    if (with_context) {
      EXPECT_TRUE(Context::Destroy(*made));
    } else {
      EXPECT_TRUE(model::Model::Destroy(model).ok());
    }
    EXPECT_TRUE(ledger_.destroyed.size() == (with_context ? 1 : 0)) << "its task is still there";
    call.End();
    ExpectDestroyedOnce(with_context ? 2 : 1);
    EXPECT_LT(device::MemoryRegistry::Get().used_bytes(0), used);
    if (!with_context) Context::Destroy(*made);
  }
}

int32_t CountRuns(const RepriseKernelContext*, const void* args, size_t) {
  int* counter = nullptr;
  std::memcpy(&counter, args, sizeof counter);
  ++*counter;
  return 0;
}

TEST_F(CallInside, LaunchesFromABinaryThatIsUnloaded) {
  static constexpr RepriseKernelDesc kKernels[] = {{"runs", 0, CountRuns, REPRISE_KERNEL_AICPU, 0, 0, nullptr, 0}};
  static constexpr RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 1, kKernels};
  static constexpr char kKey[] = "call inside";
  static const bool is_registered = RegisterKernels(kKey, &kTable).ok();  // once for all repetitions
  ASSERT_TRUE(is_registered);
  auto loaded = KernelBinary::LoadData(kKey, sizeof kKey);
  ASSERT_TRUE(loaded.ok());
  KernelBinary* const binary = *loaded;
  auto found = binary->FindByName("runs");
  ASSERT_TRUE(found.ok());
  KernelFunction& function = **found;
  ASSERT_TRUE(Submit(kParking, 0).ok());  // what is launched lies in the queue
  int runs = 0;
  void* args = nullptr;
  HeldCall call([&] {
    EXPECT_EQ(binary->RegisterAlias("runs", "alias").status().code(), 107017) << "its handle would outlive it";
    EXPECT_TRUE(MakeKernelArgs(function, &args).ok());
    const int* const counter = &runs;
    EXPECT_TRUE(LaunchWithHostArgs(*stream_, function, 1, {}, &counter, sizeof counter, {}).ok());
  });
  EXPECT_TRUE(KernelBinary::Unload(binary));
  call.End();
  EXPECT_EQ(KernelArgsTable().Find(args), nullptr);
  EXPECT_EQ(runs, 0);
  Open();
  EXPECT_TRUE(stream_->Synchronize(std::nullopt).ok());
  EXPECT_EQ(runs, 1);
}

TEST_F(CallInside, KeepsTheMemoryOfADeviceThatIsReset) {
  Context::Destroy(std::exchange(context_, nullptr));
  Device& device = *Devices()[0];
  device::MemoryRegistry& registry = device::MemoryRegistry::Get();
  ASSERT_TRUE(device.Retain().ok());
  constexpr size_t kBytesOfBlock = 4 << 20;  // its pages would be unmapped
  auto block = registry.AllocateDevice(0, kBytesOfBlock, 4096);
  ASSERT_TRUE(block.ok());
  auto* const at = static_cast<unsigned char*>(*block);
  std::memset(at, 7, kBytesOfBlock);
  HeldCall call([&] {
    EXPECT_EQ(std::count(at, at + kBytesOfBlock, 7), static_cast<ptrdiff_t>(kBytesOfBlock));
    std::memset(at, 8, kBytesOfBlock);
  });
  EXPECT_TRUE(device.ReleaseForce().ok());
  EXPECT_FALSE(registry.Find(at).has_value()) << "for all who ask it is gone";
  EXPECT_GE(registry.used_bytes(0), kBytesOfBlock);
  call.End();
  EXPECT_EQ(registry.used_bytes(0), 0u);
}

// What captured tasks tell of their memory: "r 0+64" reads 64 bytes at the start of the block, "rw", "opaque".
class Operands : public StreamQueue {
 protected:
  class Texts final : public ir::OperandSink {
   public:
    explicit Texts(const char* base) : base_(base) {}
    std::vector<std::string> texts;
    void Take(const ir::Operand& operand) override {
      texts.push_back(fmt::format("{}{} {}+{}", operand.is_read() ? "r" : "", operand.is_written() ? "w" : "",
                                  static_cast<const char*>(operand.begin) - base_, operand.bytes));
    }
    void TakeWords(const uint64_t*, size_t count) override { texts.push_back(fmt::format("{} words", count)); }
    void TakeOpaque() override { texts.emplace_back("opaque"); }

   private:
    const char* base_;
  };

  void SetUp() override {
    StreamQueue::SetUp();
    auto block = device::MemoryRegistry::Get().AllocateDevice(0, 4096, 4096);
    ASSERT_TRUE(block.ok());
    block_ = static_cast<char*>(*block);
    ASSERT_TRUE(capture::Begin(*stream_, CaptureMode::kRelaxed).ok());
  }
  void TearDown() override {
    EXPECT_TRUE(device::MemoryRegistry::Get().Free(block_, device::MemoryKind::kDevice).ok());
    StreamQueue::TearDown();
  }
  // Of the tasks captured so far, one after another.
  std::vector<std::string> Told(bool* tells_all = nullptr) {
    auto captured = capture::End(*stream_);
    EXPECT_TRUE(captured.ok());
    Texts sink(block_);
    for (const ir::Node& node : (*captured)->graph().nodes()) {
      ir::VisitOperands(node, sink);
      if (tells_all != nullptr) *tells_all = ir::TellsAll(*node.type, node.payload);
    }
    EXPECT_TRUE(model::Model::Destroy(*captured).ok());
    return sink.texts;
  }
  char* block_ = nullptr;
};

TEST_F(Operands, OfCopiesAndFillsAreTheirRanges) {
  ASSERT_TRUE(SubmitCopy(*stream_, block_ + 64, block_, 32).ok());
  ASSERT_TRUE(SubmitCopy2d(*stream_, block_ + 1024, 100, block_, 50, 10, 3).ok());
  const CopyItem items[] = {{block_ + 512, block_ + 8, 8}, {block_ + 600, block_ + 16, 4}};
  ASSERT_TRUE(SubmitCopyBatch(*stream_, items).ok());
  ASSERT_TRUE(SubmitFill(*stream_, block_, 1, 7).ok());
  ASSERT_TRUE(SubmitFill32(*stream_, block_ + 8, 1, 7).ok());
  bool tells_all = false;
  EXPECT_EQ(Told(&tells_all), (std::vector<std::string>{"r 0+32", "w 64+32", "r 0+110", "w 1024+210", "r 8+8",
                                                        "w 512+8", "r 16+4", "w 600+4", "w 0+7", "w 8+28"}));
  EXPECT_TRUE(tells_all);
}

TEST_F(Operands, OfCellsAreEightBytes) {
  ASSERT_TRUE(SubmitValueWrite(*stream_, block_ + 8, 1).ok());
  ASSERT_TRUE(SubmitValueWait(*stream_, block_ + 16, 0, ValueCompare::kGreaterEqual).ok());
  EXPECT_EQ(Told(), (std::vector<std::string>{"w 8+8", "r 16+8"}));
}

TEST_F(Operands, ForeignCodeSaysThatItIsOpaque) {
  ASSERT_TRUE(SubmitHostFunc(
                  *stream_, [](void*) {}, nullptr)
                  .ok());
  ASSERT_TRUE(SubmitClosure(*stream_, "closure", [](RunContext&) { return Status(); }).ok());
  bool tells_all = true;
  EXPECT_EQ(Told(&tells_all), (std::vector<std::string>{"opaque", "opaque"}));
  EXPECT_FALSE(tells_all);
}

TEST_F(Operands, OfForeignCodeAreThoseThatTheCallerAttached) {
  const RepriseOperand told[] = {{block_ + 8, 16, REPRISE_ACCESS_READ}, {block_ + 32, 4, REPRISE_ACCESS_READ_WRITE}};
  const auto read = [&](size_t count) { return std::move(ReadOperands(told, count)).value(); };
  ASSERT_TRUE(SubmitHostFunc(
                  *stream_, [](void*) {}, nullptr, read(2))
                  .ok());
  ASSERT_TRUE(SubmitClosure(
                  *stream_, "closure", [](RunContext&) { return Status(); }, read(1))
                  .ok());
  ASSERT_TRUE(SubmitHostFunc(
                  *stream_, [](void*) {}, nullptr, read(0))
                  .ok());
  bool tells_all = false;
  EXPECT_EQ(Told(&tells_all), (std::vector<std::string>{"r 8+16", "rw 32+4", "r 8+16"}));
  EXPECT_TRUE(tells_all);
}

// Every type of task says what it touches, that it touches nothing, or that only its code knows.
template <class T>
concept SaysNothing = requires {
  T{.kind = ir::TaskKind::kNop, .name = "SILENT", .run = nullptr};
};
template <class T>
concept SaysNull = requires {
  T{.kind = ir::TaskKind::kNop, .name = "NULL", .run = nullptr, .operands = nullptr};
};
template <class T>
concept SaysNone = requires {
  T{.kind = ir::TaskKind::kNop, .name = "NONE", .run = nullptr, .operands = ir::NoOperands};
};
static_assert(!SaysNothing<ir::TaskType> && !SaysNull<ir::TaskType> && SaysNone<ir::TaskType>);

TEST(IdPool, GivesTheLowestFreeIdAndKeepsItsLimit) {
  IdPool pool(3);
  EXPECT_EQ(pool.Take(), 0);
  EXPECT_EQ(pool.Take(), 1);
  EXPECT_EQ(pool.Take(), 2);
  EXPECT_EQ(pool.Take(), -1);
  EXPECT_EQ(pool.available(), 0);
  pool.Return(1);
  EXPECT_EQ(pool.available(), 1);
  EXPECT_EQ(pool.Take(), 1);
  pool.set_limit(1);
  EXPECT_EQ(pool.available(), 0);
  EXPECT_EQ(pool.Take(), -1);
}

}  // namespace
}  // namespace reprise::runtime
