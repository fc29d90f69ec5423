// SPDX-License-Identifier: Apache-2.0
//
// Replays whose operands the graph keeps in other forms (src/model/kept_operands.h) give the bits of eager calls,
// whoever writes the operands in between and however.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "../unit/scale.h"
#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_convolution.h"
#include "aclnnop/aclnn_mm.h"
#include "base/env.h"
#include "device/write_watch.h"
#include "harness.h"
#include "model/kept_operands.h"

namespace aclnn_test {
namespace {

using reprise::model::KeptTotals;
using reprise::model::TotalsOfKept;

// Whether this process keeps anything: not with either variable off, and not on kernels that do not tell of writes.
bool Keeps() {
  return reprise::device::WriteWatch::IsPossible() && reprise::EnvBytes(reprise::EnvVar::kKeptOperands) != 0;
}

// Of its elements; there is room behind them.
std::vector<char> BytesOf(const TestTensor& tensor) {
  std::vector<char> bytes = tensor.ReadStorage();
  bytes.resize(static_cast<size_t>(tensor.count()) * TypeOf(tensor.type()).bytes);
  return bytes;
}

constexpr int kEnoughReplays = 4;  // for forms to be made

class KeptTest : public RecordingTest {
 protected:
  static constexpr int64_t kRows = 33;
  static constexpr int64_t kDepth = 300;
  static constexpr int64_t kCols = 70;

  void SetUp() override {
    AclnnTest::SetUp();
    before = TotalsOfKept();
  }
  uint64_t made() const { return TotalsOfKept().made - before.made; }
  uint64_t dropped() const { return TotalsOfKept().dropped - before.dropped; }

  // Values whose sums round, so that another order of them would show.
  void Fill(TestTensor& tensor) {
    std::vector<Value> values(static_cast<size_t>(tensor.count()));
    for (Value& value : values) value.re = static_cast<float>(static_cast<int>(random() % 20001) - 10000) / 7777.0F;
    tensor.Write(values);
  }

  // So that what a replay leaves out shows.
  static void Spoil(TestTensor& tensor) { std::memset(tensor.storage(), 0xEE, BytesOf(tensor).size()); }

  template <class Body>
  aclmdlRI Capture(const Body& body) {
    aclmdlRI model = nullptr;
    EXPECT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
    body();
    EXPECT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
    return model;
  }

  KeptTotals before;
};

// One product whose right operand a graph may keep.
class ProductTest : public KeptTest {
 protected:
  void SetUp() override {
    KeptTest::SetUp();
    x = std::make_unique<TestTensor>(Shape{kRows, kDepth}, ACL_FLOAT);
    w = std::make_unique<TestTensor>(Shape{kDepth, kCols}, ACL_FLOAT);
    out = std::make_unique<TestTensor>(Shape{kRows, kCols}, ACL_FLOAT);
    expected = std::make_unique<TestTensor>(Shape{kRows, kCols}, ACL_FLOAT);
    Fill(*x);
    Fill(*w);
    model = CaptureProduct();
  }
  void TearDown() override {
    if (model != nullptr) {
      EXPECT_EQ(aclmdlRIDestroy(model), 0) << RecentMessage();
    }
    KeptTest::TearDown();
  }
  aclmdlRI CaptureProduct() {
    return Capture([&] { RECORD(aclnnMm, x->get(), w->get(), out->get(), 0); });
  }
  void Check(aclmdlRI graph, int replays = 1) {
    ASSERT_EQ(RUN(aclnnMm, x->get(), w->get(), expected->get(), 0), 0) << RecentMessage();
    for (int i = 0; i < replays; ++i) {
      Spoil(*out);
      Replay(graph);
      ASSERT_EQ(BytesOf(*out), BytesOf(*expected)) << "replay " << i;
    }
  }
  float* weight() const { return reinterpret_cast<float*>(w->storage()); }

  std::unique_ptr<TestTensor> x, w, out, expected;
  aclmdlRI model = nullptr;
};

TEST_F(ProductTest, AFormIsMadeOnceAndGivesTheSameBits) {
  Check(model, kEnoughReplays);
  EXPECT_EQ(made(), Keeps() ? 1U : 0U);
  for (int i = 0; i < 5; ++i) {
    Fill(*x);
    Check(model, 2);
  }
  EXPECT_EQ(made(), Keeps() ? 1U : 0U);
  EXPECT_EQ(dropped(), 0U);
  EXPECT_EQ(TotalsOfKept().bytes != before.bytes, Keeps());
  ASSERT_EQ(aclmdlRIDestroy(std::exchange(model, nullptr)), 0);
  EXPECT_EQ(TotalsOfKept().bytes, before.bytes) << "the form goes with the graph";
}

TEST_F(ProductTest, EveryWriteIsSeenByTheNextReplay) {
  const TestScalar alpha(ACL_FLOAT, {0.5L});
  TestTensor delta({kDepth, kCols}, ACL_FLOAT);
  Fill(delta);
  const aclmdlRI writer = Capture([&] { RECORD(aclnnInplaceAdd, w->get(), delta.get(), alpha.get()); });
  const size_t last = static_cast<size_t>(kDepth * kCols) - 1;
  const std::vector<std::pair<const char*, std::function<void()>>> ways = {
      {"a store to the first element", [&] { weight()[0] += 1; }},
      {"a store in the middle", [&] { weight()[last / 2] += 1; }},
      {"a store to the last element", [&] { weight()[last] += 1; }},
      {"a copy from the host", [&] { Fill(*w); }},
      {"a fill", [&] { ASSERT_EQ(aclrtMemset(weight(), 4096, 0, 4096), 0); }},
      {"an operator", [&] { ASSERT_EQ(RUN(aclnnInplaceAdd, w->get(), delta.get(), alpha.get()), 0); }},
      {"another graph", [&] { Replay(writer); }},
      {"a system call",
       [&] {
         int ends[2];
         ASSERT_EQ(pipe(ends), 0);
         const float value = 3;
         ASSERT_EQ(write(ends[1], &value, sizeof value), static_cast<ssize_t>(sizeof value));
         ASSERT_EQ(read(ends[0], weight() + last / 3, sizeof value), static_cast<ssize_t>(sizeof value));
         close(ends[0]);
         close(ends[1]);
       }},
      {"giving pages back",
       [&] {
         const uintptr_t page = (reinterpret_cast<uintptr_t>(weight()) + 8191) / 4096 * 4096;
         ASSERT_EQ(madvise(reinterpret_cast<void*>(page), 4096, MADV_DONTNEED), 0);
       }},
      {"other pages in their place",
       [&] {
         const uintptr_t page = (reinterpret_cast<uintptr_t>(weight()) + 8191) / 4096 * 4096;
         void* const at = mmap(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
         ASSERT_NE(at, MAP_FAILED);
         for (int i = 0; i < 100; ++i) static_cast<float*>(at)[i * 7] = static_cast<float>(i) / 3;
       }},
  };
  for (const auto& [name, way] : ways) {
    SCOPED_TRACE(name);
    // A graph of its own, which keeps what it has not seen written yet.
    if (model != nullptr) {
      ASSERT_EQ(aclmdlRIDestroy(std::exchange(model, nullptr)), 0);
    }
    model = CaptureProduct();
    const KeptTotals start = TotalsOfKept();
    Check(model, kEnoughReplays);
    EXPECT_EQ(TotalsOfKept().made - start.made, Keeps() ? 1U : 0U);
    way();
    Check(model, 2);
    EXPECT_EQ(TotalsOfKept().dropped - start.dropped, Keeps() ? 1U : 0U);
  }
  EXPECT_EQ(aclmdlRIDestroy(writer), 0);
}

TEST_F(ProductTest, WhatIsWrittenAgainAndAgainIsLeftAlone) {
  for (int step = 0; step < 120; ++step) {
    weight()[static_cast<size_t>(step) * 97] += 1;
    Check(model);
  }
  EXPECT_EQ(made(), 0U) << "never the same from one replay to the next";
  // Once nobody writes it any more it is kept after all.
  for (int step = 0; step < 300 && made() == 0; ++step) Check(model);
  EXPECT_EQ(made(), Keeps() ? 1U : 0U);
  uint64_t most = 0;
  for (int round = 0; round < reprise::testing::Loops(300, 60); ++round) {
    Check(model);
    weight()[5] += 1;
    Check(model);
    most = dropped();
  }
  EXPECT_LE(most, 8U) << "each write makes the pause twice as long";
}

TEST_F(ProductTest, NeighboursOnTheSamePagesDoNotCount) {
  Memory all(128 << 10);
  const Shape shape{kDepth, kCols};
  const uint64_t bytes = static_cast<uint64_t>(kDepth * kCols) * sizeof(float);
  char* const place = all.data() + 2560;
  aclTensor* const inside = aclCreateTensor(shape.data(), 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, place);
  ASSERT_LE(2560 + bytes, all.bytes()) << "the block is too small";
  std::memcpy(place, weight(), bytes);
  const aclmdlRI graph = Capture([&] { RECORD(aclnnMm, x->get(), inside, out->get(), 0); });
  Check(graph, kEnoughReplays);
  EXPECT_EQ(made(), Keeps() ? 1U : 0U);
  for (int i = 0; i < 3; ++i) {
    place[-1] = static_cast<char>(i);
    place[bytes] = static_cast<char>(i);
    Check(graph);
  }
  EXPECT_EQ(dropped(), 0U);
  reinterpret_cast<float*>(place)[0] += 1;
  weight()[0] += 1;
  Check(graph);
  EXPECT_EQ(dropped(), Keeps() ? 1U : 0U);
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
  EXPECT_EQ(aclDestroyTensor(inside), 0);
}

TEST_F(ProductTest, GraphsShareAForm) {
  const aclmdlRI second = CaptureProduct();
  Check(model, kEnoughReplays);
  Check(second, kEnoughReplays);
  Check(model);
  EXPECT_EQ(made(), Keeps() ? 1U : 0U);
  weight()[1000] += 1;
  Check(second);
  Check(model);
  Check(second, 2);
  EXPECT_EQ(dropped(), Keeps() ? 1U : 0U);
  ASSERT_EQ(aclmdlRIDestroy(std::exchange(model, nullptr)), 0);
  Check(second, 20);
  EXPECT_EQ(aclmdlRIDestroy(second), 0);
  EXPECT_EQ(TotalsOfKept().bytes, before.bytes);
}

TEST_F(ProductTest, MemoryThatIsUsedAnewIsNotTakenForTheOld) {
  for (int i = 0; i < 4; ++i) {
    Check(model, kEnoughReplays);
    ASSERT_EQ(aclmdlRIDestroy(std::exchange(model, nullptr)), 0);
    w = nullptr;
    w = std::make_unique<TestTensor>(Shape{kDepth, kCols}, ACL_FLOAT);
    Fill(*w);
    model = CaptureProduct();
  }
  Check(model, kEnoughReplays);
}

// From there on others may write the memory by addresses of their own, which nobody sees here.
TEST_F(ProductTest, MemoryThatOthersMapIsKeptNoLonger) {
  Check(model, kEnoughReplays);
  EXPECT_EQ(made(), Keeps() ? 1U : 0U);
  char key[65] = {};
  ASSERT_EQ(aclrtIpcMemGetExportKey(weight(), w->storage_bytes(), key, sizeof key, 0), 0) << RecentMessage();
  for (int i = 0; i < 30; ++i) {
    weight()[static_cast<size_t>(i) * 500] += 1;
    Check(model);
  }
  EXPECT_EQ(dropped(), Keeps() ? 1U : 0U);
  Check(model, 40);
  EXPECT_EQ(made(), Keeps() ? 1U : 0U) << "it can no longer be watched";
}

TEST_F(ProductTest, AGraphThatWritesTheOperandItselfKeepsNothing) {
  const TestScalar alpha(ACL_FLOAT, {0.5L});
  TestTensor delta({kDepth, kCols}, ACL_FLOAT);
  Fill(delta);
  const aclmdlRI graph = Capture([&] {
    RECORD(aclnnInplaceAdd, w->get(), delta.get(), alpha.get());
    RECORD(aclnnMm, x->get(), w->get(), out->get(), 0);
  });
  for (int i = 0; i < 8; ++i) {
    Replay(graph);
    ASSERT_EQ(RUN(aclnnMm, x->get(), w->get(), expected->get(), 0), 0);
    ASSERT_EQ(BytesOf(*out), BytesOf(*expected));
  }
  EXPECT_EQ(made(), 0U);
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
}

// What a host function writes nobody is told.
struct Writer {
  float* at;
  int calls = 0;
  static void Write(void* self) {
    auto& writer = *static_cast<Writer*>(self);
    ++writer.calls;
    if (writer.calls % 3 == 0) *writer.at += 1;
  }
};

TEST_F(ProductTest, TasksBehindForeignCodeSeeWhatItWrote) {
  TestTensor first({kRows, kCols}, ACL_FLOAT);
  Writer writer{weight() + 7777};
  const aclmdlRI graph = Capture([&] {
    RECORD(aclnnMm, x->get(), w->get(), first.get(), 0);
    ASSERT_EQ(aclrtLaunchHostFunc(stream, Writer::Write, &writer), 0) << RecentMessage();
    RECORD(aclnnMm, x->get(), w->get(), out->get(), 0);
  });
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(RUN(aclnnMm, x->get(), w->get(), expected->get(), 0), 0);
    Replay(graph);
    ASSERT_EQ(BytesOf(first), BytesOf(*expected)) << "replay " << i;
    ASSERT_EQ(RUN(aclnnMm, x->get(), w->get(), expected->get(), 0), 0);
    ASSERT_EQ(BytesOf(*out), BytesOf(*expected)) << "replay " << i;
  }
  EXPECT_EQ(made() != 0, Keeps());
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
}

TEST_F(ProductTest, ChangedTasksAreRunAsTheyAreNow) {
  TestTensor second({kRows, kCols}, ACL_FLOAT);
  const aclmdlRI graph = Capture([&] {
    RECORD(aclnnMm, x->get(), w->get(), out->get(), 0);
    RECORD(aclnnMm, x->get(), w->get(), second.get(), 0);
  });
  Check(graph, kEnoughReplays);
  EXPECT_EQ(made(), Keeps() ? 1U : 0U);
  aclrtStream captured = nullptr;
  uint32_t count = 1;
  ASSERT_EQ(aclmdlRIGetStreams(graph, &captured, &count), 0) << RecentMessage();
  aclmdlRITask tasks[2] = {};
  count = 2;
  ASSERT_EQ(aclmdlRIGetTasksByStream(captured, tasks, &count), 0) << RecentMessage();
  ASSERT_EQ(count, 2U);
  ASSERT_EQ(aclmdlRITaskDisable(tasks[1]), 0) << RecentMessage();
  ASSERT_EQ(aclmdlRIUpdate(graph), 0) << RecentMessage();
  second.Write(std::vector<Value>(static_cast<size_t>(second.count())));
  const std::vector<char> untouched = BytesOf(second);
  Check(graph, 3);
  EXPECT_EQ(BytesOf(second), untouched) << "the task is disabled";
  weight()[100] += 1;
  Check(graph, 3);
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
}

TEST_F(ProductTest, AGraphOfTwoStreams) {
  TestTensor second({kRows, kCols}, ACL_FLOAT);
  aclrtStream other = nullptr;
  aclrtEvent fork = nullptr;
  aclrtEvent join = nullptr;
  ASSERT_EQ(aclrtCreateStream(&other), 0);
  ASSERT_EQ(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC), 0);
  ASSERT_EQ(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC), 0);
  const aclmdlRI graph = Capture([&] {
    ASSERT_EQ(aclrtRecordEvent(fork, stream), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(other, fork), 0);
    RECORD(aclnnMm, x->get(), w->get(), out->get(), 0);
    std::swap(stream, other);
    RECORD(aclnnMm, x->get(), w->get(), second.get(), 0);
    std::swap(stream, other);
    ASSERT_EQ(aclrtRecordEvent(join, other), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream, join), 0);
  });
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 12; ++i) {  // laid out again in between
      Spoil(second);
      Check(graph);
      ASSERT_EQ(BytesOf(second), BytesOf(*expected)) << "round " << round << ", replay " << i;
    }
    weight()[400] += 1;
  }
  EXPECT_EQ(made() != 0, Keeps());
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
  for (aclrtEvent event : {fork, join}) EXPECT_EQ(aclrtDestroyEvent(event), 0);
  EXPECT_EQ(aclrtDestroyStream(other), 0);
}

TEST_F(ProductTest, GraphsOnSeveralStreamsAtOnce) {
  constexpr int kThreads = 3;
  std::vector<std::thread> threads;
  ASSERT_EQ(RUN(aclnnMm, x->get(), w->get(), expected->get(), 0), 0);
  const std::vector<char> wanted = BytesOf(*expected);
  aclrtContext context = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&context), 0);
  std::vector<std::unique_ptr<TestTensor>> outs;
  std::vector<aclmdlRI> graphs;
  for (int i = 0; i < kThreads; ++i) {
    outs.push_back(std::make_unique<TestTensor>(Shape{kRows, kCols}, ACL_FLOAT));
    graphs.push_back(Capture([&] { RECORD(aclnnMm, x->get(), w->get(), outs.back()->get(), 0); }));
  }
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ASSERT_EQ(aclrtSetCurrentContext(context), 0);
      aclrtStream own = nullptr;
      ASSERT_EQ(aclrtCreateStream(&own), 0);
      const auto at = static_cast<size_t>(i);
      for (int replay = 0; replay < 40; ++replay) {
        ASSERT_EQ(aclmdlRIExecuteAsync(graphs[at], own), 0);
        ASSERT_EQ(aclrtSynchronizeStream(own), 0);
        ASSERT_EQ(BytesOf(*outs[at]), wanted);
      }
      EXPECT_EQ(aclrtDestroyStream(own), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made(), Keeps() ? 1U : 0U);
  for (const aclmdlRI graph : graphs) EXPECT_EQ(aclmdlRIDestroy(graph), 0);
}

TEST_F(KeptTest, FewRowsAreReadWhereTheyLie) {
  // Of so few rows the sums of a column that lies in a line are cut otherwise.
  TestTensor x({8, 300}, ACL_FLOAT);
  TestTensor w({300, 70}, ACL_FLOAT);
  TestTensor out({8, 70}, ACL_FLOAT);
  Fill(x);
  Fill(w);
  ASSERT_EQ(RUN(aclnnMm, x.get(), w.get(), out.get(), 0), 0);
  const std::vector<char> wanted = BytesOf(out);
  const aclmdlRI model = Capture([&] { RECORD(aclnnMm, x.get(), w.get(), out.get(), 0); });
  for (int i = 0; i < 5; ++i) {
    Replay(model);
    EXPECT_EQ(BytesOf(out), wanted);
  }
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// Convolutions whose weights are packed by a task of their own: it is left out while the packed weight holds.
class ConvolutionTest : public KeptTest, public testing::WithParamInterface<bool> {};

TEST_P(ConvolutionTest, PackedWeightsAreKept) {
  const bool is_channels_last = GetParam();
  const Shape in{2, 24, 9, 11};
  const Shape filter{40, 24, 3, 3};
  const Shape result{2, 40, 9, 11};
  const aclDataType type = is_channels_last ? ACL_FLOAT : ACL_FLOAT16;
  TestTensor x(in, type);
  TestTensor w(filter, type);
  TestTensor out(result, type);
  Fill(x);
  Fill(w);
  const auto view = [&](const Shape& shape, TestTensor& tensor) {
    const int64_t strides[4] = {shape[1] * shape[2] * shape[3], 1, shape[3] * shape[1], shape[1]};
    const int64_t plain[4] = {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
    return aclCreateTensor(shape.data(), 4, type, is_channels_last ? strides : plain, 0, ACL_FORMAT_NCHW, shape.data(),
                           4, tensor.storage());
  };
  aclTensor* const input = view(in, x);
  aclTensor* const output = view(result, out);
  const int64_t ones[2] = {1, 1};
  const int64_t zeros[2] = {0, 0};
  aclIntArray* const one = aclCreateIntArray(ones, 2);
  aclIntArray* const zero = aclCreateIntArray(zeros, 2);
  const auto eager = [&] {
    EXPECT_EQ(RUN(aclnnConvolution, input, w.get(), nullptr, one, one, one, false, zero, 1, output, 0), 0)
        << RecentMessage();
    return BytesOf(out);
  };
  const aclmdlRI model =
      Capture([&] { RECORD(aclnnConvolution, input, w.get(), nullptr, one, one, one, false, zero, 1, output, 0); });
  for (int round = 0; round < 3; ++round) {
    const std::vector<char> wanted = eager();
    for (int i = 0; i < 12; ++i) {
      Spoil(out);
      // Others use the workspace between two replays.
      for (const auto& workspace : workspaces) std::memset(workspace->data(), 0xEE, workspace->bytes());
      Replay(model);
      ASSERT_EQ(BytesOf(out), wanted) << "round " << round << ", replay " << i;
    }
    Fill(w);
  }
  EXPECT_EQ(made() != 0, Keeps());
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
  for (aclTensor* const tensor : {input, output}) EXPECT_EQ(aclDestroyTensor(tensor), 0);
  for (aclIntArray* const array : {one, zero}) EXPECT_EQ(aclDestroyIntArray(array), 0);
}
INSTANTIATE_TEST_SUITE_P(Layouts, ConvolutionTest, testing::Bool());

}  // namespace
}  // namespace aclnn_test
