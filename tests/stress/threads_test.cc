// SPDX-License-Identifier: Apache-2.0
//
// Many threads at once. Each test checks results that only hold when the calls of all threads have kept out of each
// other's way.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "../unit/scale.h"
#include "stress.h"

namespace reprise::stress {
namespace {

using testing::Loops;

constexpr uint64_t kMul = 6364136223846793005;
constexpr uint64_t kAdd = 1442695040888963407;

uint64_t Axpb(uint64_t value, uint64_t times) {
  for (uint64_t i = 0; i < times; ++i) value = value * kMul + kAdd;
  return value;
}

class Threads : public Device {
 protected:
  void SetUp() override {
    Device::SetUp();
    axpb_ = Kernel("axpb");
    slow_axpb_ = Kernel("slow_axpb");
    append_ = Kernel("append");
    overseer_ = std::make_unique<Overseer>(
        [] { return std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()); });
  }
  void TearDown() override {
    overseer_.reset();
    Device::TearDown();
  }

  aclrtStream NewStream() {
    aclrtStream stream = nullptr;
    EXPECT_OK(aclrtCreateStream(&stream));
    return stream;
  }
  aclrtEvent NewEvent() {
    aclrtEvent event = nullptr;
    EXPECT_OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    return event;
  }
  uint64_t* NewCells(size_t count) {
    void* memory = nullptr;
    EXPECT_OK(aclrtMalloc(&memory, count * 8, ACL_MEM_MALLOC_HUGE_FIRST));
    EXPECT_OK(aclrtMemset(memory, count * 8, 0, count * 8));
    return static_cast<uint64_t*>(memory);
  }
  /// The log of the append kernels.
  uint64_t* NewLog(uint64_t capacity) {
    uint64_t* log = NewCells(2 + capacity);
    EXPECT_OK(aclrtMemcpy(log + 1, 8, &capacity, 8, ACL_MEMCPY_HOST_TO_DEVICE));
    return log;
  }
  std::vector<uint64_t> Read(const uint64_t* cells, size_t count) {
    std::vector<uint64_t> values(count);
    EXPECT_OK(aclrtMemcpy(values.data(), count * 8, cells, count * 8, ACL_MEMCPY_DEVICE_TO_HOST));
    return values;
  }
  uint64_t Read(const uint64_t* cell) { return Read(cell, 1)[0]; }
  aclError AxpbOn(aclrtStream stream, uint64_t* cell) { return Launch(stream, axpb_, cell, kMul, kAdd); }
  aclError Sync(aclrtStream stream) { return aclrtSynchronizeStreamWithTimeout(stream, kWaitMs); }

  // A model that applies axpb to each cell once on a stream of its own, forked and joined.
  aclmdlRI CaptureFork(aclrtStream origin, aclrtStream forked, uint64_t* cells, aclmdlRICaptureMode mode) {
    aclrtEvent fork = NewEvent();
    aclrtEvent join = NewEvent();
    EXPECT_OK(aclmdlRICaptureBegin(origin, mode));
    EXPECT_OK(aclrtRecordEvent(fork, origin));
    EXPECT_OK(aclrtStreamWaitEvent(forked, fork));
    EXPECT_OK(AxpbOn(forked, cells + 1));
    EXPECT_OK(AxpbOn(origin, cells));
    EXPECT_OK(aclrtRecordEvent(join, forked));
    EXPECT_OK(aclrtStreamWaitEvent(origin, join));
    aclmdlRI model = nullptr;
    EXPECT_OK(aclmdlRICaptureEnd(origin, &model));
    EXPECT_OK(aclrtDestroyEvent(fork));
    EXPECT_OK(aclrtDestroyEvent(join));
    return model;
  }

  // Threads that start together; `run` gets the number of its thread and has the context current.
  class Crew {
   public:
    explicit Crew(aclrtContext context) : context_(context) {}
    void Add(int threads, std::function<void(int)> run) {
      for (int i = 0; i < threads; ++i) members_.push_back({i, run});
    }
    void Run() {
      std::barrier start(static_cast<ptrdiff_t>(members_.size()));
      std::vector<std::thread> threads;
      for (Member& member : members_) {
        threads.emplace_back([&] {
          if (context_ != nullptr) {
            EXPECT_OK(aclrtSetCurrentContext(context_));
          }
          start.arrive_and_wait();
          member.run(member.number);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }

   private:
    struct Member {
      int number;
      std::function<void(int)> run;
    };
    aclrtContext context_;
    std::vector<Member> members_;
  };

  aclrtFuncHandle axpb_ = nullptr;
  aclrtFuncHandle slow_axpb_ = nullptr;
  aclrtFuncHandle append_ = nullptr;
  std::unique_ptr<Overseer> overseer_;
};

// Some threads capture, each its own streams; others replay one model, and two change the kernels of it and of a model
// of their own.
TEST_F(Threads, CapturesReplaysAndUpdatesSideBySide) {
  const int rounds = Loops(1500, 15);
  const aclrtStream s = NewStream();
  uint64_t* const log = NewLog(1 << 18);
  uint64_t* const shared_cell = NewCells(1);
  aclmdlRI shared = nullptr;
  aclrtTaskGrp group = nullptr;
  ASSERT_OK(aclmdlRICaptureBegin(s, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  ASSERT_OK(AxpbOn(s, shared_cell));
  ASSERT_OK(aclmdlRICaptureTaskGrpBegin(s));
  ASSERT_OK(Launch(s, append_, log, 0));
  ASSERT_OK(aclmdlRICaptureTaskGrpEnd(s, &group));
  ASSERT_OK(aclmdlRICaptureEnd(s, &shared));

  Crew crew(context());
  std::atomic<uint64_t> executions{0};
  const auto capture = [&](aclmdlRICaptureMode mode) {
    return [this, rounds, mode](int) {
      const aclrtStream origin = NewStream();
      const aclrtStream forked = NewStream();
      for (int round = 0; round < rounds; ++round) {
        uint64_t* const cells = NewCells(2);
        const aclmdlRI model = CaptureFork(origin, forked, cells, mode);
        for (int i = 0; i < 3; ++i) EXPECT_OK(aclmdlRIExecuteAsync(model, i == 1 ? forked : origin));
        EXPECT_OK(Sync(origin));
        EXPECT_OK(Sync(forked));
        EXPECT_THAT(Read(cells, 2), ::testing::Each(Axpb(0, 3)));
        EXPECT_OK(aclmdlRIDestroy(model));
        EXPECT_OK(aclrtFree(cells));
      }
      EXPECT_OK(aclrtDestroyStream(origin));
      EXPECT_OK(aclrtDestroyStream(forked));
    };
  };
  crew.Add(2, capture(ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL));
  crew.Add(2, capture(ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  crew.Add(2, [&](int) {
    const aclrtStream own = NewStream();
    for (int round = 0; round < 2 * rounds; ++round) {
      for (int i = 0; i < 4; ++i) EXPECT_OK(aclmdlRIExecuteAsync(shared, own));
      executions += 4;
      EXPECT_OK(Sync(own));
    }
    EXPECT_OK(aclrtDestroyStream(own));
  });
  crew.Add(1, [&](int) {
    const aclrtStream own = NewStream();
    for (int version = 1; version <= 4 * rounds; ++version) {
      EXPECT_OK(aclmdlRICaptureTaskUpdateBegin(own, group));
      EXPECT_OK(Launch(own, append_, log, version));
      EXPECT_OK(aclmdlRICaptureTaskUpdateEnd(own));
      if (version % 8 == 0) {
        EXPECT_OK(Sync(own));
      }
    }
    EXPECT_OK(Sync(own));
    EXPECT_OK(aclrtDestroyStream(own));
  });
  crew.Add(1, [&](int) {
    const aclrtStream own = NewStream();
    uint64_t* const cell = NewCells(1);
    aclmdlRI model = nullptr;
    EXPECT_OK(aclmdlRICaptureBegin(own, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_OK(Launch(own, axpb_, cell, 0, 0));
    EXPECT_OK(aclmdlRICaptureEnd(own, &model));
    uint32_t count = 1;
    aclrtStream lane = nullptr;
    EXPECT_OK(aclmdlRIGetStreams(model, &lane, &count));
    count = 1;
    aclmdlRITask task = nullptr;
    EXPECT_OK(aclmdlRIGetTasksByStream(lane, &task, &count));
    for (int round = 1; round <= rounds; ++round) {
      uint64_t args[] = {reinterpret_cast<uint64_t>(cell), 0, static_cast<uint64_t>(round)};
      aclmdlRITaskParams params = {};
      params.type = ACL_MODEL_RI_TASK_KERNEL;
      params.kernelTaskParams.funcHandle = axpb_;
      params.kernelTaskParams.args = args;
      params.kernelTaskParams.isHostArgs = 1;
      params.kernelTaskParams.argsSize = sizeof args;
      params.kernelTaskParams.numBlocks = 1;
      EXPECT_OK(aclmdlRITaskSetParams(task, &params));
      EXPECT_OK(aclmdlRIUpdate(model));
      EXPECT_OK(aclmdlRIExecuteAsync(model, own));
      EXPECT_OK(Sync(own));
      EXPECT_EQ(Read(cell), static_cast<uint64_t>(round));
    }
    EXPECT_OK(aclmdlRIDestroy(model));
    EXPECT_OK(aclrtFree(cell));
    EXPECT_OK(aclrtDestroyStream(own));
  });
  crew.Run();

  EXPECT_EQ(Read(shared_cell), Axpb(0, executions));
  // Executions have their turn, and updates come in the order of their stream: versions never go back.
  ASSERT_OK(aclmdlRIExecuteAsync(shared, s));
  ASSERT_OK(Sync(s));
  const uint64_t entries = Read(log);
  EXPECT_EQ(entries, executions + 1);
  std::vector<uint64_t> versions = Read(log + 2, entries);
  EXPECT_TRUE(std::is_sorted(versions.begin(), versions.end()));
  EXPECT_EQ(versions.back(), static_cast<uint64_t>(4 * rounds));
  EXPECT_OK(aclmdlRIDestroy(shared));
  EXPECT_OK(aclrtFree(log));
  EXPECT_OK(aclrtFree(shared_cell));
  EXPECT_OK(aclrtDestroyStream(s));
}

// A capture begins and ends while others use its stream, which no task group is updated on at any time.
TEST_F(Threads, StreamsWhoseCaptureEndsAreNotTakenForUpdates) {
  const int rounds = Loops(200000, 4000);
  const aclrtStream stream = NewStream();
  std::atomic<bool> done{false};
  Crew crew(context());
  crew.Add(1, [&](int) {
    for (int round = 0; round < rounds; ++round) {
      aclmdlRI model = nullptr;
      EXPECT_OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
      EXPECT_OK(aclmdlRICaptureEnd(stream, &model));
      EXPECT_OK(aclmdlRIDestroy(model));
    }
    done = true;
  });
  crew.Add(2, [&](int) {
    aclrtEvent event = nullptr;  // no stream can wait for it: records of it add nothing to the graph
    EXPECT_OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_TIME_LINE));
    while (!done) {
      for (int i = 0; i < 8; ++i) EXPECT_OK(aclrtRecordEvent(event, stream));
      std::this_thread::yield();  // the lock of the captures goes to who comes first
    }
    EXPECT_OK(aclrtDestroyEvent(event));
  });
  crew.Run();
  EXPECT_OK(Sync(stream));
  EXPECT_OK(aclrtDestroyStream(stream));
}

// Executions that overlapped would lose updates: the kernels read, pause and write.
TEST_F(Threads, ExecutionsOfOneModelTakeTurns) {
  const int rounds = Loops(1000, 20);
  const aclrtStream origin = NewStream();
  const aclrtStream forked = NewStream();
  uint64_t* const cells = NewCells(2);
  const aclrtEvent fork = NewEvent();
  aclmdlRI model = nullptr;
  ASSERT_OK(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  ASSERT_OK(aclrtRecordEvent(fork, origin));
  ASSERT_OK(aclrtStreamWaitEvent(forked, fork));
  ASSERT_OK(Launch(origin, slow_axpb_, cells, kMul, kAdd, 20));
  ASSERT_OK(Launch(forked, slow_axpb_, cells + 1, kMul, kAdd, 20));
  ASSERT_OK(aclrtRecordEvent(fork, forked));
  ASSERT_OK(aclrtStreamWaitEvent(origin, fork));
  ASSERT_OK(aclmdlRICaptureEnd(origin, &model));
  constexpr int kThreads = 4;
  Crew crew(context());
  crew.Add(kThreads, [&](int number) {
    const aclrtStream own = number % 2 == 0 ? NewStream() : origin;  // one stream is shared
    for (int round = 0; round < rounds; ++round) {
      EXPECT_OK(aclmdlRIExecuteAsync(model, own));
      if (round % 16 == number) {
        EXPECT_OK(Sync(own));
      }
    }
    EXPECT_OK(Sync(own));
    if (own != origin) {
      EXPECT_OK(aclrtDestroyStream(own));
    }
  });
  crew.Run();
  EXPECT_OK(Sync(origin));
  EXPECT_THAT(Read(cells, 2), ::testing::Each(Axpb(0, static_cast<uint64_t>(kThreads * rounds))));
  EXPECT_OK(aclmdlRIDestroy(model));
  EXPECT_OK(aclrtFree(cells));
  EXPECT_OK(aclrtDestroyEvent(fork));
  EXPECT_OK(aclrtDestroyStream(origin));
  EXPECT_OK(aclrtDestroyStream(forked));
}

// Streams, events and memory come and go on some threads while others work; some synchronise everything.
TEST_F(Threads, ObjectsComeAndGo) {
  const int rounds = Loops(4000, 40);
  Crew crew(context());
  crew.Add(2, [&](int) {  // short-lived streams, destroyed with work in them
    for (int round = 0; round < rounds; ++round) {
      uint64_t* const cell = NewCells(1);
      const aclrtStream stream = NewStream();
      for (int i = 0; i < 5; ++i) EXPECT_OK(AxpbOn(stream, cell));
      EXPECT_OK(aclrtDestroyStream(stream));
      EXPECT_EQ(Read(cell), Axpb(0, 5));
      EXPECT_OK(aclrtFree(cell));
    }
  });
  crew.Add(2, [&](int) {  // short-lived events, destroyed while streams wait for them
    const aclrtStream first = NewStream();
    const aclrtStream second = NewStream();
    uint64_t* const cell = NewCells(1);
    for (int round = 0; round < rounds; ++round) {
      const aclrtEvent event = NewEvent();
      EXPECT_OK(AxpbOn(round % 2 == 0 ? first : second, cell));
      EXPECT_OK(aclrtRecordEvent(event, round % 2 == 0 ? first : second));
      EXPECT_OK(aclrtStreamWaitEvent(round % 2 == 0 ? second : first, event));
      EXPECT_OK(aclrtDestroyEvent(event));
    }
    EXPECT_OK(Sync(first));
    EXPECT_OK(Sync(second));
    EXPECT_EQ(Read(cell), Axpb(0, static_cast<uint64_t>(rounds)));
    EXPECT_OK(aclrtFree(cell));
    EXPECT_OK(aclrtDestroyStream(first));
    EXPECT_OK(aclrtDestroyStream(second));
  });
  crew.Add(1, [&](int) {  // copies between memory that comes and goes
    const aclrtStream stream = NewStream();
    for (int round = 0; round < rounds; ++round) {
      constexpr size_t kBytes = 4096;
      void* host = nullptr;
      void* device = nullptr;
      EXPECT_OK(aclrtMallocHost(&host, kBytes));
      EXPECT_OK(aclrtMalloc(&device, kBytes, ACL_MEM_MALLOC_HUGE_FIRST));
      EXPECT_OK(aclrtMemsetAsync(device, kBytes, round & 0x7F, kBytes, stream));
      EXPECT_OK(aclrtMemcpyAsync(host, kBytes, device, kBytes, ACL_MEMCPY_DEVICE_TO_HOST, stream));
      EXPECT_OK(Sync(stream));
      EXPECT_EQ(static_cast<unsigned char*>(host)[kBytes - 1], round & 0x7F);
      EXPECT_OK(aclrtFree(device));
      EXPECT_OK(aclrtFreeHost(host));
    }
    EXPECT_OK(aclrtDestroyStream(stream));
  });
  crew.Add(1, [&](int) {
    for (int round = 0; round < rounds / 4; ++round) EXPECT_OK(aclrtSynchronizeDeviceWithTimeout(kWaitMs));
  });
  crew.Run();
}

// Handles that one thread destroys are tried by others afterwards, while their places are taken by new objects.
TEST_F(Threads, DestroyedHandlesAreRefusedOnEveryThread) {
  struct Dead {
    aclrtStream stream;
    aclrtEvent event;
    aclmdlRI model;
    aclmdlRITask task;
    aclrtTaskGrp group;
  };
  const int rounds = Loops(6000, 60);
  constexpr int kMakers = 2;
  std::vector<std::vector<Dead>> graves(kMakers, std::vector<Dead>(static_cast<size_t>(rounds)));
  std::array<std::atomic<int>, kMakers> dug{};
  std::atomic<int> making{kMakers};
  std::atomic<uint64_t> tried{0};
  uint64_t* const live_cell = NewCells(1);
  Crew crew(context());
  crew.Add(kMakers, [&](int number) {
    const auto self = static_cast<size_t>(number);
    uint64_t* const cell = NewCells(1);
    for (int round = 0; round < rounds; ++round) {
      Dead dead{};
      dead.stream = NewStream();
      dead.event = NewEvent();
      EXPECT_OK(aclmdlRICaptureBegin(dead.stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
      EXPECT_OK(aclmdlRICaptureTaskGrpBegin(dead.stream));
      EXPECT_OK(AxpbOn(dead.stream, cell));
      EXPECT_OK(aclmdlRICaptureTaskGrpEnd(dead.stream, &dead.group));
      EXPECT_OK(aclmdlRICaptureEnd(dead.stream, &dead.model));
      uint32_t count = 1;
      aclrtStream lane = nullptr;
      EXPECT_OK(aclmdlRIGetStreams(dead.model, &lane, &count));
      count = 1;
      EXPECT_OK(aclmdlRIGetTasksByStream(lane, &dead.task, &count));
      EXPECT_OK(aclmdlRIExecuteAsync(dead.model, dead.stream));
      EXPECT_OK(aclrtRecordEvent(dead.event, dead.stream));
      EXPECT_OK(aclmdlRIDestroy(dead.model));
      EXPECT_OK(aclrtDestroyEvent(dead.event));
      EXPECT_OK(aclrtDestroyStream(dead.stream));
      graves[self][static_cast<size_t>(round)] = dead;
      dug[self].store(round + 1, std::memory_order_release);
    }
    EXPECT_EQ(Read(cell), Axpb(0, static_cast<uint64_t>(rounds)));
    EXPECT_OK(aclrtFree(cell));
    --making;
  });
  crew.Add(2, [&](int number) {
    const aclrtStream own = NewStream();
    const aclrtEvent event = NewEvent();
    uint64_t at = static_cast<uint64_t>(number);
    bool has_tried = false;  // a thread that comes late still finds all the graves
    while (making > 0 || !has_tried) {
      const size_t grave = at % kMakers;
      const int deep = dug[grave].load(std::memory_order_acquire);
      at = at * 25214903917 + 11;
      if (deep == 0) {
        std::this_thread::yield();
        continue;
      }
      const Dead dead = graves[grave][(at >> 20) % static_cast<uint64_t>(deep)];
      constexpr int kGone = 107017;
      aclmdlRITaskType type = ACL_MODEL_RI_TASK_DEFAULT;
      uint32_t id = 0;
      aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
      EXPECT_EQ(aclmdlRIExecuteAsync(dead.model, own), kGone);
      EXPECT_EQ(aclmdlRIGetId(dead.model, &id), kGone);
      EXPECT_EQ(aclmdlRIDestroy(dead.model), kGone);
      EXPECT_EQ(aclmdlRIUpdate(dead.model), kGone);
      EXPECT_EQ(aclmdlRITaskGetType(dead.task, &type), kGone);
      EXPECT_EQ(aclmdlRITaskDisable(dead.task), kGone);
      EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(own, dead.group), kGone);
      EXPECT_EQ(Launch(dead.stream, axpb_, live_cell, kMul, kAdd), kGone);
      EXPECT_EQ(aclmdlRICaptureBegin(dead.stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), kGone);
      EXPECT_EQ(aclmdlRICaptureGetInfo(dead.stream, &status, nullptr), kGone);
      EXPECT_EQ(aclrtSynchronizeStream(dead.stream), kGone);
      EXPECT_EQ(aclrtDestroyStream(dead.stream), kGone);
      EXPECT_EQ(aclrtRecordEvent(event, dead.stream), kGone);
      EXPECT_EQ(aclrtRecordEvent(dead.event, own), kGone);
      EXPECT_EQ(aclrtStreamWaitEvent(own, dead.event), kGone);
      EXPECT_EQ(aclrtSynchronizeEvent(dead.event), kGone);
      EXPECT_EQ(aclrtDestroyEvent(dead.event), kGone);
      ++tried;
      has_tried = true;
    }
    EXPECT_OK(Sync(own));
    EXPECT_OK(aclrtDestroyEvent(event));
    EXPECT_OK(aclrtDestroyStream(own));
  });
  crew.Run();
  EXPECT_GT(tried, 0U);
  EXPECT_EQ(Read(live_cell), 0U) << "no refused launch may run";
  EXPECT_OK(aclrtFree(live_cell));
}

// Host functions, eager and in graphs, submit further work to another stream.
struct Submitter {
  aclrtContext context;
  aclrtStream target;
  aclrtFuncHandle kernel;
  uint64_t* cell;
  std::atomic<int> failures{0};
};

TEST_F(Threads, HostFunctionsSubmitWork) {
  const int rounds = Loops(20000, 100);
  const auto submit = [](void* data) {
    auto& self = *static_cast<Submitter*>(data);
    if (aclrtSetCurrentContext(self.context) != 0) ++self.failures;
    if (Launch(self.target, self.kernel, self.cell, kMul, kAdd) != 0) ++self.failures;
  };
  Crew crew(context());
  crew.Add(3, [&](int number) {
    const aclrtStream source = NewStream();
    const aclrtStream target = NewStream();
    uint64_t* const cell = NewCells(1);
    Submitter submitter{context(), target, axpb_, cell};
    aclmdlRI model = nullptr;
    EXPECT_OK(aclmdlRICaptureBegin(source, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    EXPECT_OK(aclrtLaunchHostFunc(source, submit, &submitter));
    EXPECT_OK(aclmdlRICaptureEnd(source, &model));
    for (int round = 0; round < rounds; ++round) {
      EXPECT_OK(aclrtLaunchHostFunc(source, submit, &submitter));
      EXPECT_OK(aclmdlRIExecuteAsync(model, source));
      if (round % 16 == number) {
        EXPECT_OK(Sync(source));
      }
    }
    EXPECT_OK(Sync(source));
    EXPECT_OK(Sync(target));
    EXPECT_EQ(submitter.failures, 0);
    EXPECT_EQ(Read(cell), Axpb(0, 2 * static_cast<uint64_t>(rounds)));
    EXPECT_OK(aclmdlRIDestroy(model));
    EXPECT_OK(aclrtDestroyStream(source));
    EXPECT_OK(aclrtDestroyStream(target));
    EXPECT_OK(aclrtFree(cell));
  });
  crew.Run();
}

// A thread with a context of its own, started without a current one.
class OtherContext {
 public:
  OtherContext() { EXPECT_OK(aclrtCreateContext(&context_, 0)); }
  ~OtherContext() { EXPECT_OK(aclrtDestroyContext(context_)); }
  OtherContext(const OtherContext&) = delete;
  OtherContext& operator=(const OtherContext&) = delete;

 private:
  aclrtContext context_ = nullptr;
};

// The default context is made, synchronised and reset again and again while others work in contexts of their own.
TEST_F(Threads, DeviceIsResetWhileOtherContextsWork) {
  const int rounds = Loops(20000, 100);
  ASSERT_OK(aclrtResetDevice(0));  // the default context of the fixture goes, so that the threads are the only users
  std::atomic<int> working{3};
  Crew crew(nullptr);
  crew.Add(3, [&](int) {
    {
      const OtherContext own;
      const aclrtStream stream = NewStream();
      uint64_t* const cell = NewCells(1);
      aclmdlRI model = nullptr;
      EXPECT_OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
      EXPECT_OK(AxpbOn(stream, cell));
      EXPECT_OK(aclmdlRICaptureEnd(stream, &model));
      for (int round = 0; round < rounds; ++round) {
        EXPECT_OK(aclmdlRIExecuteAsync(model, stream));
        EXPECT_OK(AxpbOn(stream, cell));
        EXPECT_OK(aclrtSynchronizeDevice());
      }
      EXPECT_EQ(Read(cell), Axpb(0, 2 * static_cast<uint64_t>(rounds)));
      EXPECT_OK(aclmdlRIDestroy(model));
      EXPECT_OK(aclrtDestroyStream(stream));
      EXPECT_OK(aclrtFree(cell));
    }
    --working;
  });
  crew.Add(1, [&](int) {
    do {
      EXPECT_OK(aclrtSetDevice(0));
      const aclrtStream stream = NewStream();
      void* forgotten = nullptr;
      EXPECT_OK(aclrtMalloc(&forgotten, 64, ACL_MEM_MALLOC_HUGE_FIRST));
      EXPECT_OK(aclrtMemsetAsync(forgotten, 64, 1, 64, stream));
      EXPECT_OK(aclrtSynchronizeDeviceWithTimeout(kWaitMs));
      EXPECT_OK(aclrtFree(forgotten));
      EXPECT_OK(aclrtResetDevice(0));  // takes the stream with it
    } while (working > 0);
  });
  crew.Run();
  ASSERT_OK(aclrtSetDevice(0));
}

// Every thread sets and resets the device by itself; the last one out frees what is left, and nothing of the next user.
TEST_F(Threads, ThreadsSetAndResetTheDevice) {
  const int rounds = Loops(10000, 200);
  ASSERT_OK(aclrtResetDevice(0));
  Crew crew(nullptr);
  crew.Add(4, [&](int number) {
    for (int round = 0; round < rounds; ++round) {
      aclrtContext own = nullptr;
      if (number % 2 == 0) {
        EXPECT_OK(aclrtSetDevice(0));
      } else {
        EXPECT_OK(aclrtCreateContext(&own, 0));
      }
      uint64_t* const cell = NewCells(1);
      EXPECT_OK(AxpbOn(nullptr, cell));
      EXPECT_OK(aclrtSynchronizeStream(nullptr));
      EXPECT_EQ(Read(cell), Axpb(0, 1));
      EXPECT_OK(aclrtFree(cell));
      if (own == nullptr) {
        EXPECT_OK(aclrtResetDevice(0));
      } else {
        EXPECT_OK(aclrtDestroyContext(own));
      }
    }
  });
  crew.Run();
  ASSERT_OK(aclrtSetDevice(0));
}

// Tasks of the whole device are dropped while other threads make and destroy streams.
TEST_F(Threads, TasksAreAbortedWhileStreamsComeAndGo) {
  const int rounds = Loops(2000, 60);
  uint64_t* const cells = NewCells(3);
  std::atomic<int> working{3};
  Crew crew(context());
  crew.Add(3, [&](int number) {
    for (int round = 0; round < rounds; ++round) {
      const aclrtStream stream = NewStream();
      for (int i = 0; i < 5; ++i) EXPECT_OK(AxpbOn(stream, cells + number));
      const aclError result = Sync(stream);
      EXPECT_TRUE(result == 0 || result == 107022) << result;
      EXPECT_OK(aclrtDestroyStream(stream));
    }
    --working;
  });
  crew.Add(1, [&](int) {
    do {
      EXPECT_OK(aclrtDeviceTaskAbort(0, kWaitMs));
    } while (working > 0);
  });
  crew.Run();
  EXPECT_OK(aclrtFree(cells));
}

// One place for a model that several threads execute and change, and that is replaced now and then.
struct Place {
  std::shared_mutex mutex;  // shared: the model stays; exclusive: it is replaced
  aclmdlRI model = nullptr;
  aclrtTaskGrp group = nullptr;
  aclmdlRI gone = nullptr;  // the model before, and its group
  aclrtTaskGrp gone_group = nullptr;
  uint64_t* cells = nullptr;  // one for each stream of the graph, and one that the group writes
  std::atomic<uint64_t> executions{0};
};

// Everything at once, on the same models: captures, replays, updates, destruction, and calls with handles that are
// gone. REPRISE_TEST_SECONDS says for how long.
TEST_F(Threads, EverythingAtOnceForAsLongAsAsked) {
  const char* const asked = std::getenv("REPRISE_TEST_SECONDS");
  const int seconds = asked != nullptr ? std::clamp(std::atoi(asked), 1, 24 * 3600) : 0;
  overseer_ = std::make_unique<Overseer>([] { return std::string("everything at once"); }, seconds + 300);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  const int rounds = Loops(1500, 60);  // when no time is asked for
  const auto goes_on = [&](int round) {
    return asked != nullptr ? std::chrono::steady_clock::now() < end : round < rounds;
  };
  std::array<Place, 3> places;
  const auto fill = [&](Place& place, aclrtStream origin, aclrtStream forked) {
    const aclrtEvent edge = NewEvent();
    place.cells = NewCells(3);
    place.executions = 0;
    EXPECT_OK(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    EXPECT_OK(aclrtRecordEvent(edge, origin));
    EXPECT_OK(aclrtStreamWaitEvent(forked, edge));
    EXPECT_OK(AxpbOn(origin, place.cells));
    EXPECT_OK(AxpbOn(forked, place.cells + 1));
    EXPECT_OK(aclmdlRICaptureTaskGrpBegin(forked));
    EXPECT_OK(Launch(forked, axpb_, place.cells + 2, 0, 7));
    EXPECT_OK(aclmdlRICaptureTaskGrpEnd(forked, &place.group));
    EXPECT_OK(aclrtRecordEvent(edge, forked));
    EXPECT_OK(aclrtStreamWaitEvent(origin, edge));
    EXPECT_OK(aclmdlRICaptureEnd(origin, &place.model));
    EXPECT_OK(aclrtDestroyEvent(edge));
  };
  // Waits for the executions; each has run once and whole.
  const auto empty = [&](Place& place) {
    EXPECT_OK(aclmdlRIDestroy(place.model));
    place.gone = place.model;
    place.gone_group = place.group;
    const std::vector<uint64_t> got = Read(place.cells, 3);
    EXPECT_EQ(got[0], Axpb(0, place.executions));
    EXPECT_EQ(got[1], Axpb(0, place.executions));
    EXPECT_TRUE(got[2] == 7 || (got[2] == 0 && place.executions == 0)) << got[2];
    EXPECT_OK(aclrtFree(place.cells));
  };
  {
    const aclrtStream origin = NewStream();
    const aclrtStream forked = NewStream();
    for (Place& place : places) fill(place, origin, forked);
    EXPECT_OK(aclrtDestroyStream(origin));
    EXPECT_OK(aclrtDestroyStream(forked));
  }
  Crew crew(context());
  crew.Add(2, [&](int number) {  // captures anew and destroys
    const aclrtStream origin = NewStream();
    const aclrtStream forked = NewStream();
    for (int round = 0; goes_on(round); ++round) {
      Place& place = places[static_cast<size_t>(round + number) % places.size()];
      Place made;
      fill(made, origin, forked);
      std::unique_lock lock(place.mutex);
      empty(place);
      place.model = made.model;
      place.group = made.group;
      place.cells = made.cells;
      place.executions = 0;
    }
    EXPECT_OK(aclrtDestroyStream(origin));
    EXPECT_OK(aclrtDestroyStream(forked));
  });
  crew.Add(3, [&](int number) {  // replays
    const aclrtStream own = NewStream();
    for (int round = 0; goes_on(round); ++round) {
      Place& place = places[static_cast<size_t>(round + number) % places.size()];
      {
        std::shared_lock lock(place.mutex);
        for (int i = 0; i < 4; ++i) EXPECT_OK(aclmdlRIExecuteAsync(place.model, own));
        place.executions += 4;
      }
      if (round % 8 == number) {
        EXPECT_OK(Sync(own));
      }
    }
    EXPECT_OK(Sync(own));
    EXPECT_OK(aclrtDestroyStream(own));
  });
  crew.Add(1, [&](int) {  // updates; the new kernel does the same in another way
    const aclrtStream own = NewStream();
    for (int round = 0; goes_on(round); ++round) {
      Place& place = places[static_cast<size_t>(round) % places.size()];
      std::shared_lock lock(place.mutex);
      EXPECT_OK(aclmdlRICaptureTaskUpdateBegin(own, place.group));
      EXPECT_OK(Launch(own, round % 2 == 0 ? slow_axpb_ : axpb_, place.cells + 2, 0, 7, 1));
      EXPECT_OK(aclmdlRICaptureTaskUpdateEnd(own));
      // Before the model may go: the update names its cell.
      EXPECT_OK(Sync(own));
    }
    EXPECT_OK(aclrtDestroyStream(own));
  });
  crew.Add(1, [&](int) {  // handles that are gone
    const aclrtStream own = NewStream();
    uint32_t id = 0;
    for (int round = 0; goes_on(round); ++round) {
      Place& place = places[static_cast<size_t>(round) % places.size()];
      std::shared_lock lock(place.mutex);
      if (place.gone == nullptr) continue;
      EXPECT_EQ(aclmdlRIExecuteAsync(place.gone, own), 107017);
      EXPECT_EQ(aclmdlRIGetId(place.gone, &id), 107017);
      EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(own, place.gone_group), 107017);
      EXPECT_EQ(aclmdlRIDestroy(place.gone), 107017);
    }
    EXPECT_OK(aclrtDestroyStream(own));
  });
  crew.Run();
  for (Place& place : places) empty(place);
}

}  // namespace
}  // namespace reprise::stress
