// SPDX-License-Identifier: Apache-2.0
//
// Memory of captured graphs: what was touched in a capture stays untouched by others until the graph is gone.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "fixture.h"

namespace reprise::testing {
namespace {

class Pools : public GraphTest {
 protected:
  static std::set<uint64_t> SegmentsOf(PoolId pool) {
    std::set<uint64_t> found;
    for (const SegmentInfo& segment : device_memory::Snapshot(pool).segments) found.insert(segment.address);
    return found;
  }
  static PoolId PoolOf(const void* block) {
    for (const SegmentInfo& segment : device_memory::Snapshot().segments) {
      const auto address = reinterpret_cast<uint64_t>(block);
      if (address >= segment.address && address < segment.address + segment.total_size) return segment.pool;
    }
    ADD_FAILURE() << block << " lies in no segment";
    return {};
  }
  // A graph that fills `bytes` of its own with a byte.
  void* CaptureFill(Graph& graph, size_t bytes, uint8_t value, PoolId pool = {}) {
    void* block = nullptr;
    Graph::CaptureOptions options;
    options.stream = stream_;
    options.pool = pool;
    Capture capture(graph, options);
    block = device_memory::Allocate(bytes);
    EXPECT_EQ(0, aclrtMemsetAsync(block, bytes, value, bytes, stream_));
    return block;
  }
};

TEST_F(Pools, ACaptureAllocatesFromAPoolOfItsOwn) {
  Graph graph;
  void* before = device_memory::Allocate(512);
  void* inside = CaptureFill(graph, 512, 1);
  void* after = device_memory::Allocate(512);
  EXPECT_TRUE(PoolOf(before).is_default());
  EXPECT_EQ(PoolOf(inside), graph.pool());
  EXPECT_NE(graph.pool().capture, 0u);
  EXPECT_TRUE(PoolOf(after).is_default());
  for (void* block : {before, inside, after}) device_memory::Free(block);
}

TEST_F(Pools, FreedMemoryOfAGraphIsNeverGivenToOthers) {
  Graph graph;
  void* inside = CaptureFill(graph, 4096, 0x5A);
  device_memory::Free(inside);  // the graph still writes there
  device_memory::EmptyCache();
  std::vector<void*> others;
  for (int i = 0; i < 200; ++i) {
    others.push_back(device_memory::Allocate(4096));
    std::memset(others.back(), 0x11, 4096);
  }
  for (int i = 0; i < 10; ++i) graph.Replay();
  Wait(stream_);
  for (void* other : others) {
    EXPECT_NE(other, inside);
    EXPECT_TRUE(
        std::all_of(static_cast<char*>(other), static_cast<char*>(other) + 4096, [](char c) { return c == 0x11; }));
    device_memory::Free(other);
  }
  EXPECT_EQ(static_cast<char*>(inside)[17], 0x5A);
}

TEST_F(Pools, TheResultOutlivesTheGraph) {
  void* result = nullptr;
  PoolId pool;
  {
    Graph graph;
    result = CaptureFill(graph, 1000, 7);
    pool = graph.pool();
    graph.Replay();
    Wait(stream_);
  }
  device_memory::EmptyCache();
  EXPECT_EQ(static_cast<char*>(result)[999], 7);
  EXPECT_EQ(SegmentsOf(pool).size(), 1u);
  device_memory::Free(result);
  device_memory::EmptyCache();
  EXPECT_TRUE(SegmentsOf(pool).empty());
}

TEST_F(Pools, MemoryReturnsWhenTheGraphGoes) {
  const Books before = Books::Take();
  {
    Graph graph;
    device_memory::Free(CaptureFill(graph, 30 << 20, 7));
    device_memory::EmptyCache();
    EXPECT_GT(Books::Take().device_reserved, before.device_reserved);
    EXPECT_EQ(graph.memory().device_reserved_bytes, uint64_t{30} << 20);
    EXPECT_EQ(graph.memory().device_live_bytes, 0u);
    EXPECT_GT(graph.memory().plan_bytes, 0u);
  }
  device_memory::EmptyCache();
  EXPECT_EQ(Books::Take(), before);
}

TEST_F(Pools, TwoGraphsShareAPoolAndItsFreeBlocks) {
  Graph first, second, alone;
  void* a = CaptureFill(first, 10 << 20, 1);
  device_memory::Free(a);
  const PoolId pool = first.pool();
  void* b = CaptureFill(second, 10 << 20, 2, pool);
  EXPECT_EQ(a, b) << "the second graph uses again what was free when the first one ended";
  EXPECT_EQ(second.pool(), pool);
  EXPECT_EQ(device_memory::PoolUsers(0, pool), 2);
  void* c = CaptureFill(alone, 10 << 20, 3);
  EXPECT_NE(c, b);
  first.Replay();
  Wait(stream_);
  EXPECT_EQ(static_cast<char*>(b)[0], 1);
  second.Replay();
  Wait(stream_);
  EXPECT_EQ(static_cast<char*>(b)[0], 2);
  first.Reset();
  EXPECT_EQ(device_memory::PoolUsers(0, pool), 1);
  device_memory::EmptyCache();
  second.Replay();
  Wait(stream_);
  EXPECT_EQ(static_cast<char*>(b)[9 << 20], 2);
  second.Reset();
  EXPECT_EQ(device_memory::PoolUsers(0, pool), 0);
  device_memory::Free(b);
  device_memory::Free(c);
}

TEST_F(Pools, ASharedNameWorksAgainAfterAllItsGraphsAreGone) {
  const PoolId pool = NewPoolId();
  EXPECT_EQ(pool.capture, 0u);
  EXPECT_NE(NewPoolId(), pool);
  for (int round = 0; round < 3; ++round) {
    Graph graph;
    device_memory::Free(CaptureFill(graph, 512, 1, pool));
    host_memory::Free(host_memory::Allocate(64));
    graph.Replay();
    Wait(stream_);
    graph.Reset();
    if (round == 1) {
      device_memory::EmptyCache();
      host_memory::EmptyCache();
    }
  }
  EXPECT_EQ(device_memory::PoolUsers(0, pool), 0);
}

TEST_F(Pools, OnePoolServesOneCaptureAtATime) {
  const PoolId pool = NewPoolId();
  aclrtStream other = NewStream();
  Graph first, second;
  Graph::CaptureOptions options;
  options.pool = pool;
  options.stream = stream_;
  first.CaptureBegin(options);
  options.stream = other;
  EXPECT_TRUE(Refused(107000, "already recording", [&] { second.CaptureBegin(options); }));
  EXPECT_EQ(second.state(), GraphState::kEmpty);
  EXPECT_EQ(device_memory::PoolUsers(0, pool), 1);
  first.CaptureEnd();
  second.CaptureBegin(options);
  EXPECT_EQ(device_memory::PoolUsers(0, pool), 2);
  second.CaptureEnd();
}

TEST_F(Pools, ForkedStreamsUseThePoolOthersDoNot) {
  Graph graph;
  aclrtStream side = NewStream(), stranger = NewStream();
  aclrtEvent fork = nullptr, join = nullptr;
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
  void *on_side = nullptr, *on_stranger = nullptr, *main = nullptr;
  {
    Capture capture(graph, stream_);
    main = device_memory::Allocate(512);
    on_stranger = device_memory::Allocate(512, side);  // not yet in the capture
    EXPECT_TRUE(PoolOf(on_stranger).is_default());
    device_memory::Free(on_stranger);
    ASSERT_EQ(0, aclrtRecordEvent(fork, stream_));
    ASSERT_EQ(0, aclrtStreamWaitEvent(side, fork));
    on_side = device_memory::Allocate(512, side);
    std::thread([&] { on_stranger = device_memory::Allocate(512, stranger); }).join();
    ASSERT_EQ(0, aclrtMemsetAsync(on_side, 512, 3, 512, side));
    ASSERT_EQ(0, aclrtRecordEvent(join, side));
    ASSERT_EQ(0, aclrtStreamWaitEvent(stream_, join));
  }
  EXPECT_EQ(PoolOf(main), graph.pool());
  EXPECT_EQ(PoolOf(on_side), graph.pool());
  EXPECT_TRUE(on_stranger == nullptr || PoolOf(on_stranger).is_default());
  const auto segments = device_memory::Snapshot(graph.pool()).segments;
  ASSERT_EQ(segments.size(), 2u) << "one for each stream";
  EXPECT_NE(segments[0].stream, segments[1].stream);
  graph.Replay();
  Wait(stream_);
  EXPECT_EQ(static_cast<char*>(on_side)[511], 3);
  for (void* block : {main, on_side, on_stranger}) device_memory::Free(block);
  ASSERT_EQ(0, aclrtDestroyEvent(fork));
  ASSERT_EQ(0, aclrtDestroyEvent(join));
}

TEST_F(Pools, ABlockUsedElsewhereIsFreedBehindTheCapture) {
  Graph graph;
  aclrtStream other = NewStream();
  void* x = device_memory::Allocate(512, stream_);
  ASSERT_EQ(0, aclrtMemsetAsync(x, 512, 9, 512, other));
  device_memory::RecordStream(x, other);
  {
    Capture capture(graph, stream_);
    device_memory::Free(x);  // no event can be recorded now
    EXPECT_NE(device_memory::Allocate(512), x);
  }
  Wait(other);
  EXPECT_EQ(device_memory::Stats(0).active.all.current - device_memory::Stats(0).allocation.all.current, 1);
  device_memory::EmptyCache();
  EXPECT_EQ(device_memory::Stats(0).active.all.current, device_memory::Stats(0).allocation.all.current);
}

TEST_F(Pools, ABlockWaitsForAStreamThatIsBeingDestroyed) {
  aclrtStream other = nullptr;
  ASSERT_EQ(0, aclrtCreateStream(&other));
  constexpr size_t kBytes = 3 << 20;
  auto* block = static_cast<char*>(device_memory::Allocate(kBytes));
  std::atomic<bool> open{false};
  std::atomic<int> step{0};
  ASSERT_EQ(0, LaunchClosure(other, "wait, then write", [&, block] {
              step = 1;
              step.notify_all();
              open.wait(false);
              std::memset(block, 1, kBytes);
              return 0;
            }));
  device_memory::RecordStream(block, other);
  step.wait(0);
  aclrtContext context = nullptr;
  ASSERT_EQ(0, aclrtGetCurrentContext(&context));
  std::thread destroyer([&] {
    aclrtSetCurrentContext(context);
    EXPECT_EQ(0, aclrtDestroyStream(other));
  });
  aclrtStreamStatus status{};
  while (aclrtStreamQuery(other, &status) == 0) std::this_thread::yield();
  device_memory::Free(block);
  void* next = device_memory::Allocate(kBytes);
  EXPECT_NE(next, block) << "the stream has not written yet";
  open = true;
  open.notify_all();
  destroyer.join();
  device_memory::Free(next);
  device_memory::EmptyCache();
  EXPECT_EQ(device_memory::Stats(0).active.all.current, device_memory::Stats(0).allocation.all.current);
}

TEST_F(Pools, PinnedMemoryOfACapturedCopyBelongsToTheGraph) {
  constexpr size_t kBytes = 256;
  host_memory::EmptyCache();
  const int64_t before = host_memory::Stats().allocations.current;
  for (int round = 0; round < 10; ++round) {
    Graph graph;
    void* pinned = nullptr;
    void* device = device_memory::Allocate(kBytes);
    {
      Capture capture(graph, stream_);
      pinned = host_memory::Allocate(kBytes);
      std::memset(pinned, 0x42, kBytes);
      ASSERT_EQ(0, aclrtMemcpyAsync(device, kBytes, pinned, kBytes, ACL_MEMCPY_HOST_TO_DEVICE, stream_));
      EXPECT_TRUE(host_memory::RecordUse(pinned, stream_));
      host_memory::Free(pinned);
    }
    host_memory::EmptyCache();
    std::vector<void*> others;
    for (int i = 0; i < 32; ++i) {
      others.push_back(host_memory::Allocate(kBytes));
      EXPECT_NE(others.back(), pinned);
      std::memset(others.back(), 0, kBytes);
    }
    graph.Replay();
    Wait(stream_);
    EXPECT_EQ(static_cast<char*>(device)[kBytes - 1], 0x42);
    for (void* other : others) host_memory::Free(other);
    device_memory::Free(device);
    graph.Reset();
    host_memory::EmptyCache();
    EXPECT_EQ(host_memory::Stats().allocations.current, before) << "round " << round;
  }
}

TEST_F(Pools, ThreadsAllocateWhileOneCaptures) {
  constexpr int kThreads = 10;
  Graph graph;
  float* y = Floats(256, stream_);
  std::fill(y, y + 256, 0.0f);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  aclrtContext context = nullptr;
  ASSERT_EQ(0, aclrtGetCurrentContext(&context));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    aclrtStream own = NewStream();
    threads.emplace_back([&, own, t] {
      aclrtSetCurrentContext(context);
      const StreamGuard guard(own);
      for (int k = 0; !stop; ++k) {
        const size_t bytes = 64 << (k % 12);
        auto* block = static_cast<char*>(device_memory::Allocate(bytes));
        block[0] = block[bytes - 1] = static_cast<char>(t);
        if (k % 3 == 0) device_memory::RecordStream(block, nullptr);
        if (block[0] != t || block[bytes - 1] != t) ++wrong;
        device_memory::Free(block);
        if (k % 64 == 0) device_memory::EmptyCache();
      }
    });
  }
  std::vector<float*> parts;
  {
    Capture capture(graph, stream_);
    for (int i = 0; i < 100; ++i) {
      float* part = Floats(256, stream_);
      Copy(stream_, part, y, 256);
      Apply(stream_, part, 256, [](float v) { return v + 1; });
      Copy(stream_, y, part, 256);
      parts.push_back(part);
      if (i % 2 == 0) {
        device_memory::Free(parts.back());
        parts.pop_back();
      }
    }
  }
  for (int i = 0; i < 3; ++i) graph.Replay();
  Wait(stream_);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(y[0], 300.0f);
  EXPECT_EQ(y[255], 300.0f);
  for (float* part : parts) device_memory::Free(part);
  device_memory::Free(y);
}

TEST_F(Pools, CapturesOfTwoThreadsDoNotMix) {
  aclrtContext context = nullptr;
  ASSERT_EQ(0, aclrtGetCurrentContext(&context));
  constexpr int kThreads = 4;
  std::vector<Graph> graphs(kThreads);
  std::vector<float*> results(kThreads);
  std::vector<aclrtStream> streams;
  for (int t = 0; t < kThreads; ++t) streams.push_back(NewStream());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      aclrtSetCurrentContext(context);
      Graph::CaptureOptions options;
      options.stream = streams[t];
      options.mode = CaptureMode::kThreadLocal;
      Capture capture(graphs[t], options);
      for (int i = 0; i < 50; ++i) {
        float* y = Floats(1000, streams[t]);
        Apply(streams[t], y, 1000, [t](float) { return static_cast<float>(t); });
        if (i != 49) device_memory::Free(y);
        results[t] = y;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(PoolOf(results[t]), graphs[t].pool());
    graphs[t].Replay(streams[t]);
  }
  for (int t = 0; t < kThreads; ++t) {
    Wait(streams[t]);
    EXPECT_EQ(results[t][999], static_cast<float>(t));
    device_memory::Free(results[t]);
  }
}

TEST_F(Pools, AMemPoolServesItsScopeOnly) {
  void *inside = nullptr, *nested = nullptr, *outside = nullptr, *again = nullptr;
  MemPool pool;
  EXPECT_EQ(pool.use_count(), 1);
  {
    const UsePool use(pool);
    EXPECT_EQ(pool.use_count(), 2);
    inside = device_memory::Allocate(100);
    {
      const MemPool inner;
      const UsePool use_inner(inner);
      nested = device_memory::Allocate(100);
      EXPECT_EQ(PoolOf(nested), inner.id());
      device_memory::Free(nested);
    }
    again = device_memory::Allocate(100);
    std::thread([&, stream = stream_] { outside = device_memory::Allocate(100, stream); }).join();
  }
  EXPECT_EQ(pool.use_count(), 1);
  EXPECT_EQ(PoolOf(inside), pool.id());
  EXPECT_EQ(PoolOf(again), pool.id());
  EXPECT_EQ(pool.Snapshot().segments.size(), 1u);
  for (void* block : {inside, again, outside}) device_memory::Free(block);
}

TEST_F(Pools, OutOfMemoryInACaptureSaysSoAndTheCaptureGoesOn) {
  Graph graph;
  {
    Capture capture(graph, stream_);
    std::string message;
    EXPECT_EQ(CodeOf([] { (void)device_memory::Allocate(size_t{1} << 42); }, &message), 207001);
    EXPECT_THAT(message, ::testing::HasSubstr("out of memory"));
    EXPECT_THROW((void)device_memory::Allocate(size_t{1} << 42), OutOfMemory);
    EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
  }
  EXPECT_EQ(graph.state(), GraphState::kReady);
}

TEST_F(Pools, MisuseIsRefused) {
  int on_stack = 0;
  EXPECT_TRUE(Refused(107000, "", [&] { device_memory::Free(&on_stack); }));
  void* block = device_memory::Allocate(10);
  EXPECT_EQ(device_memory::SizeOf(block), 512u);
  EXPECT_EQ(device_memory::SizeOf(&on_stack), 0u);
  device_memory::Free(block);
  EXPECT_TRUE(Refused(107000, "", [&] { device_memory::Free(block); }));
  EXPECT_EQ(device_memory::Allocate(0), nullptr);
  EXPECT_NO_THROW(device_memory::Free(nullptr));
  EXPECT_NO_THROW(device_memory::RecordStream(&on_stack, stream_));
  EXPECT_FALSE(host_memory::RecordUse(&on_stack, stream_));
  EXPECT_TRUE(Refused(107000, "", [&] { host_memory::Free(&on_stack); }));
  EXPECT_TRUE(Refused(107001, "device", [] { (void)device_memory::Stats(99); }));
}

TEST_F(Pools, AResetOfTheDeviceTakesItsMemoryAndTheAllocatorGoesOn) {
  (void)device_memory::Allocate(30 << 20);
  ASSERT_EQ(0, aclrtResetDeviceForce(0));
  ASSERT_EQ(0, aclrtSetDevice(0));
  stream_ = NewStream();
  SetCurrentStream(stream_);
  EXPECT_EQ(device_memory::Stats(0).allocation.all.current, 0);
  EXPECT_EQ(device_memory::Stats(0).reserved_bytes.all.current, 0);
  auto* block = static_cast<char*>(device_memory::Allocate(30 << 20));
  ASSERT_EQ(0, aclrtMemsetAsync(block, 30 << 20, 1, 30 << 20, stream_));
  Wait(stream_);
  EXPECT_EQ(block[(30 << 20) - 1], 1);
  device_memory::Free(block);
}

// Layers of a program that computes on side streams, with and without the memory of earlier layers.
TEST_F(Pools, WhatForksHaveUsedComesBackInTheCaptureOnceTheyAreJoined) {
  constexpr size_t kCount = 1024;
  constexpr int kLayers = 40;
  aclrtStream sides[] = {NewStream(), NewStream()};
  float* input = Floats(kCount, stream_);
  aclrtEvent event = nullptr;
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
  const auto wait_for = [&](aclrtStream waits, aclrtStream from) {
    ASSERT_EQ(0, aclrtRecordEvent(event, from));
    ASSERT_EQ(0, aclrtStreamWaitEvent(waits, event));
  };
  for (const bool reuses : {false, true}) {
    ChangeMemorySettings(reuses ? "graph_capture_record_stream_reuse:True" : "graph_capture_record_stream_reuse:False");
    // Others allocate and free meanwhile.
    std::atomic<bool> over{false};
    std::thread other([&] {
      EXPECT_EQ(0, aclrtSetDevice(0));
      while (!over.load()) device_memory::Free(device_memory::Allocate(kCount, sides[0]));
    });
    Graph graph;
    std::set<float*> blocks;
    float* results[kLayers];
    float* open = nullptr;  // used by a fork that is not joined yet
    {
      Graph::CaptureOptions options;
      options.stream = stream_;
      options.mode = CaptureMode::kRelaxed;
      Capture capture(graph, options);
      for (int layer = 0; layer < kLayers; ++layer) {
        aclrtStream const side = sides[layer % 2];
        float* hidden = Floats(kCount, stream_);
        EXPECT_NE(hidden, open);
        blocks.insert(hidden);
        Copy(stream_, hidden, input, kCount);
        Apply(stream_, hidden, kCount, [layer](float x) { return x + static_cast<float>(layer); });
        wait_for(side, stream_);
        results[layer] = Floats(kCount, side);
        Copy(side, results[layer], hidden, kCount);
        Apply(side, results[layer], kCount, [](float x) { return 2 * x; });
        device_memory::RecordStream(hidden, side);
        device_memory::Free(hidden);
        // The other stream is joined one layer later.
        if (layer > 0) wait_for(stream_, sides[(layer + 1) % 2]);
        open = hidden;
      }
      for (aclrtStream side : sides) wait_for(stream_, side);
    }
    over = true;
    other.join();
    EXPECT_TRUE(reuses ? blocks.size() <= 4 : blocks.size() == kLayers) << blocks.size();
    for (float value : {1.0f, 5.0f}) {
      std::fill(input, input + kCount, value);
      graph.Replay();
      Wait(stream_);
      for (int layer = 0; layer < kLayers; ++layer) {
        EXPECT_EQ(results[layer][0], 2 * (value + static_cast<float>(layer)));
        EXPECT_EQ(results[layer][kCount - 1], 2 * (value + static_cast<float>(layer)));
      }
    }
    for (float* result : results) device_memory::Free(result);
  }
  ChangeMemorySettings("graph_capture_record_stream_reuse:False");
  device_memory::Free(input);
  EXPECT_EQ(0, aclrtDestroyEvent(event));
}

}  // namespace
}  // namespace reprise::testing
