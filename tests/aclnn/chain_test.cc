// SPDX-License-Identifier: Apache-2.0
//
// Replays that run convolutions together with what follows them (src/ops/picture_chain.h) leave in memory, all of it,
// what eager calls leave, to the bit.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "../unit/scale.h"
#include "chain_fixture.h"
#include "device/write_watch.h"
#include "harness.h"

namespace aclnn_test {
namespace {

// A residual block whose intermediate results are written over, in the order of a network.
const Program kBlock = {{kOneTap, 0, 0, 1, 1},      {kNorm, 1, 1, 2, 0},     {kRelu, 2, 2, 1, 0},
                        {kThreeTaps, 1, 1, 2, 0},   {kNorm, 2, 2, 3, 1},     {kRelu, 3, 3, 3, 0},
                        {kOneTap, 3, 3, 2, 2},      {kNorm, 2, 2, 3, 2},     {kOneTap, 0, 0, 2, 0},
                        {kNorm, 2, 2, 4, 1},        {kAdd, 3, 4, 2, 0},      {kRelu, 2, 2, 2, 0},
                        {kOwnChannels, 2, 2, 3, 1}, {kHardtanh, 3, 3, 4, 0}, {kOneTap, 4, 4, 1, 1},
                        {kAdd, 1, 2, 3, 0},         {kMul, 3, 3, 4, 0}};

TEST_P(ChainTest, ABlockGivesTheBitsOfEagerCalls) {
  const aclmdlRI model = Capture(kBlock);
  Check(model, Eager(kBlock), kEnoughReplays + 3);
  ExpectChains(6, 14 + three_taps());
  for (auto& values : before) std::reverse(values.begin(), values.end());
  Check(model, Eager(kBlock), 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// Activations that are a pass of their own, behind a norm, a sum and a split: the first stays until the end.
const Program kPasses = {{kOneTap, 0, 0, 1, 1},    {kNorm, 1, 1, 2, 0},   {kSilu, 2, 2, 3, 0},
                         {kThreeTaps, 3, 3, 1, 0}, {kSilu, 1, 1, 1, 0},   {kOwnChannels, 1, 1, 4, 1},
                         {kLeakyRelu, 4, 4, 4, 0}, {kOneTap, 4, 4, 1, 1}, {kAdd, 1, 3, 1, 0},
                         {kSilu, 1, 1, 1, 0}};

TEST_P(ChainTest, ActivationsInAPassOfTheirOwnAreOfTheLink) {
  const aclmdlRI model = Capture(kPasses);
  Check(model, Eager(kPasses), kEnoughReplays + 3);
  ExpectChains(4, 9 + three_taps());
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// Each result of the first block stays until the end: it is written to memory, and the chain goes on all the same.
const Program kStays = {{kOneTap, 0, 0, 1, 1}, {kRelu, 1, 1, 2, 0}, {kThreeTaps, 2, 2, 3, 0},
                        {kNorm, 3, 3, 4, 1},   {kRelu, 4, 4, 4, 0}, {kOwnChannels, 4, 4, 0, 2}};

TEST_P(ChainTest, ResultsThatStayDoNotEndALink) {
  const aclmdlRI model = Capture(kStays);
  Check(model, Eager(kStays), kEnoughReplays + 3);
  ExpectChains(3, 5 + three_taps());
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// A squeeze and what it excites: means of a picture, and the picture times a number for each channel, are links. Tasks
// beside the product, in the same step of the plan, run as they did.
const Program kSqueeze = {{kOwnChannels, 0, 0, 1, 1}, {kSilu, 1, 1, 2, 0},  {kMean, 2, 2, 0, 0},   {kRelu, 4, 4, 4, 0},
                          {kGate, 2, 2, 3, 0},        {kAdd, 4, 4, 4, 0},   {kOneTap, 3, 3, 1, 1}, {kRelu, 1, 1, 2, 0},
                          {kGate, 2, 2, 2, 1},        {kOneTap, 2, 2, 3, 2}};

TEST_P(ChainTest, MeansAndGatesAreLinks) {
  const aclmdlRI model = Capture(kSqueeze);
  Check(model, Eager(kSqueeze), kEnoughReplays + 3);
  ExpectChains(6, 8);
  for (auto& values : before) std::rotate(values.begin(), values.begin() + 28, values.end());
  Check(model, Eager(kSqueeze), 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// A norm of the channels of each pixel reads them where a convolution of channels by themselves leaves them.
const Program kNormalised = {{kOwnChannels, 0, 0, 1, 1}, {kRows, 1, 1, 1, 2}, {kOneTap, 2, 2, 1, 0}};

TEST_P(ChainTest, NormsOfPixelsAreLinks) {
  const aclmdlRI model = Capture(kNormalised);
  Check(model, Eager(kNormalised), kEnoughReplays + 3);
  ExpectChains(2, 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// As in networks that put what was there beside what is new, and norms in front of convolutions: one part of the first
// picture lies in memory alone.
const Program kJoined = {
    {kPart, 0, 0, 0, 0},   {kJoin, 0, 0, 1, 0},     {kNorm, 1, 1, 2, 0},   {kRelu, 2, 2, 2, 0},
    {kOneTap, 2, 2, 3, 0}, {kNorm, 3, 3, 2, 1},     {kSilu, 2, 2, 2, 0},   {kThreeTaps, 2, 2, 3, 0},
    {kPart, 3, 3, 0, 1},   {kPart, 1, 1, 0, 0},     {kJoin, 0, 0, 4, 0},   {kNorm, 4, 4, 2, 2},
    {kAdd, 2, 4, 2, 0},    {kHardtanh, 2, 2, 2, 0}, {kOneTap, 2, 2, 3, 1}, {kRelu, 3, 3, 4, 0}};

TEST_P(ChainTest, JoinsAndNormsInFrontAreLinks) {
  const aclmdlRI model = Capture(kJoined);
  Check(model, Eager(kJoined), kEnoughReplays + 3);
  // Part, join, norm, convolution, convolution, two parts, join, norm, convolution.
  ExpectChains(10, 14 + three_taps());
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// Pools read pixels where convolutions leave them, and leave them for convolutions; one reads planes that lie in
// memory.
const Program kPooled = {{kLargest, 0, 0, 4, 0}, {kOneTap, 0, 0, 1, 1},      {kRelu, 1, 1, 1, 0},
                         {kLargest, 1, 1, 2, 0}, {kOwnChannels, 2, 2, 1, 1}, {kAverage, 1, 1, 3, 0},
                         {kAverage, 3, 3, 2, 1}, {kOneTap, 2, 2, 3, 2},      {kRelu, 3, 3, 3, 0}};

TEST_P(ChainTest, PoolsAreLinks) {
  if (GetParam().depth != 0) return CheckAll(kPooled);  // without the pools, which are those of planes
  const aclmdlRI model = Capture(kPooled);
  Check(model, Eager(kPooled), kEnoughReplays + 3);
  ExpectChains(6, 8);
  for (auto& values : before) std::reverse(values.begin(), values.end());
  Check(model, Eager(kPooled), 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// As in networks whose units compute half of the channels, and join them with the other half.
const Program kSliced = {{kOneTap, 0, 0, 1, 1},     {kRelu, 1, 1, 1, 0},      {kSlice, 1, 1, 2, 1},
                         {kRelu, 2, 2, 2, 0},       {kThreeTaps, 2, 2, 3, 2}, {kJoinSlices, 1, 3, 4, 1},
                         {kShuffle, 4, 4, 0, 0},    {kSlice, 0, 0, 2, 2},     {kRelu, 2, 2, 2, 0},
                         {kJoinSlices, 2, 0, 1, 2}, {kShuffle, 1, 1, 3, 1},   {kOneTap, 3, 3, 2, 0}};

TEST_P(ChainTest, SomeChannelsAreReadFromLinks) {
  const aclmdlRI model = Capture(kSliced);
  Check(model, Eager(kSliced), kEnoughReplays + 3);
  ExpectChains(9, 11 + three_taps());
  for (auto& values : before) std::reverse(values.begin(), values.end());
  Check(model, Eager(kSliced), 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

const Program kResized = {{kNearest, 0, 0, 4, 1}, {kOneTap, 4, 4, 1, 1}, {kRelu, 1, 1, 1, 0}, {kNearest, 1, 1, 2, 0},
                          {kNearest, 2, 2, 3, 1}, {kOneTap, 3, 3, 2, 2}, {kRelu, 2, 2, 2, 0}, {kNearest, 2, 2, 1, 2}};

TEST_P(ChainTest, ResizesToTheNearestAreLinks) {
  const aclmdlRI model = Capture(kResized);
  Check(model, Eager(kResized), kEnoughReplays + 3);
  ExpectChains(4, 6);  // the first reads planes, nobody reads the last
  for (auto& values : before) std::reverse(values.begin(), values.end());
  Check(model, Eager(kResized), 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// It may read and write pictures that are in mirrors, too.
Program AroundOperation(size_t told) {
  return {{kOneTap, 0, 0, 1, 1}, {kRelu, 1, 1, 1, 0},         {kOneTap, 1, 1, 2, 2},
          {kRelu, 2, 2, 2, 0},   {kOperation, 1, 1, 2, told}, {kOneTap, 2, 2, 3, 0},
          {kRelu, 3, 3, 3, 0},   {kOneTap, 3, 3, 4, 1},       {kRelu, 4, 4, 4, 0}};
}

TEST_P(ChainTest, OperationsThatTellWhatTheyTouchDoNotEndAChain) {
  const aclmdlRI model = Capture(AroundOperation(0));
  Check(model, Eager(AroundOperation(0)), kEnoughReplays + 3);
  ExpectChains(4, 8);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

TEST_P(ChainTest, OperationsThatDoNotTellEndAChain) {
  const aclmdlRI model = Capture(AroundOperation(2));
  Check(model, Eager(AroundOperation(2)), kEnoughReplays + 3);
  ExpectChains(2, 4);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// What is added is what the convolution itself gave, where an older result of a link has lain before.
const Program kOwnSum = {{kThreeTaps, 4, 4, 2, 2}, {kThreeTaps, 2, 2, 1, 0}, {kAdd, 1, 1, 4, 0},
                         {kOneTap, 4, 4, 2, 2},    {kNorm, 2, 2, 3, 0},      {kAdd, 3, 2, 1, 0},
                         {kThreeTaps, 1, 1, 3, 2}, {kThreeTaps, 3, 3, 4, 0}};

TEST_P(ChainTest, ASumWithTheConvolutionItselfIsOfNow) {
  const aclmdlRI model = Capture(kOwnSum);
  Check(model, Eager(kOwnSum), kEnoughReplays + 3);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// A product with a number for each picture, or for each column, is none of channels.
TEST_P(ChainTest, OtherProductsAreNoLinks) {
  const std::vector<int64_t> ones(GetParam().Picture().size() - 1, 1);
  std::vector<int64_t> of_pictures = ones;
  of_pictures.insert(of_pictures.begin(), 2);
  for (const std::vector<int64_t>& shape : {of_pictures, std::vector<int64_t>{GetParam().side}}) {
    SCOPED_TRACE(shape.size());
    const std::vector<int64_t> strides(shape.size(), 1);
    aclTensor* const factors = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, strides.data(), 0, ACL_FORMAT_ND,
                                               shape.data(), shape.size(), gates[0]->storage());
    const PhaseOne product = [&](uint64_t* ws, aclOpExecutor** ex) {
      return aclnnMulGetWorkspaceSize(pictures[1]->get(), factors, pictures[2]->get(), ws, ex);
    };
    const Program before_it = {{kOneTap, 0, 0, 1, 1}};
    const Program behind_it = {{kOneTap, 2, 2, 3, 1}};
    (void)Eager(before_it);
    EXPECT_EQ(RunOp(stream, product, aclnnMul), 0) << RecentMessage();
    Each(behind_it[0], [&](const PhaseOne& first, PhaseTwo second) {
      EXPECT_EQ(RunOp(stream, first, second), 0) << RecentMessage();
    });
    const auto expected = All();
    aclmdlRI model = nullptr;
    ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
    Each(before_it[0], [&](const PhaseOne& first, PhaseTwo second) { Record(first, second); });
    Record(product, aclnnMul);
    Each(behind_it[0], [&](const PhaseOne& first, PhaseTwo second) { Record(first, second); });
    ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
    Check(model, expected, kEnoughReplays + 3);
    EXPECT_EQ(executions(), 0u);
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
    EXPECT_EQ(aclDestroyTensor(factors), 0);
  }
}

// What is written over in part stays in part, however its rest lies in planes.
TEST_P(ChainTest, APartThatIsWrittenOverNeedNotBeThere) {
  const int64_t plane = GetParam().plane();
  const int64_t count = pictures[1]->count();
  const struct {
    int64_t begin, end;
  } ranges[] = {{0, 3 * plane + 5}, {plane + 1, plane + 2}, {2 * plane, count - plane}, {count - 7, count}, {0, count}};
  for (const auto& part : ranges) {
    SCOPED_TRACE(part.begin);
    const int64_t elements[1] = {part.end - part.begin};
    const int64_t stride[1] = {1};
    const auto view = [&](size_t picture) {
      return aclCreateTensor(elements, 1, ACL_FLOAT, stride, part.begin, ACL_FORMAT_ND, &count, 1,
                             pictures[picture]->storage());
    };
    aclTensor* const from = view(4);
    aclTensor* const to = view(1);
    const PhaseOne over = [&](uint64_t* ws, aclOpExecutor** ex) { return aclnnReluGetWorkspaceSize(from, to, ws, ex); };
    const Program program = {{kOneTap, 0, 0, 1, 1}, {kRelu, 1, 1, 2, 0}, {kThreeTaps, 2, 2, 3, 0}};
    (void)Eager(program);
    EXPECT_EQ(RunOp(stream, over, aclnnRelu), 0) << RecentMessage();
    const auto expected = All();
    aclmdlRI model = nullptr;
    ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
    for (const Call& call : program) Each(call, [&](const PhaseOne& a, PhaseTwo b) { Record(a, b); });
    Record(over, aclnnRelu);
    ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
    Check(model, expected, kEnoughReplays);
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
    EXPECT_EQ(aclDestroyTensor(from), 0);
    EXPECT_EQ(aclDestroyTensor(to), 0);
  }
  EXPECT_EQ(executions() != 0, Chains());
}

// Any calls in any order on few pictures: results that others read, that stay, that are computed in place or twice.
TEST_P(ChainTest, RandomProgramsLeaveAllOfMemoryAsEagerCallsDo) {
  const int rounds = reprise::testing::InForm(reprise::testing::Loops(700, 10));
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    Program program;
    size_t last = 0;
    for (int i = 0; i < 14; ++i) {
      Call call{};
      call.kind = static_cast<Kind>(random() % kKinds);
      // Mostly what was computed last, as networks do.
      call.a = random() % 4 != 0 ? last : random() % kPictures;
      call.b = random() % kPictures;
      call.out = random() % kPictures;
      call.weight = random() % kWeights;
      if (call.kind <= kNorm && call.kind != kGate && call.out == call.a) call.out = (call.a + 1) % kPictures;
      while (call.kind == kJoinSlices && (call.out == call.a || call.out == call.b)) call.out = random() % kPictures;
      last = call.out;
      program.push_back(call);
    }
    CheckAll(program);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(executions() >= static_cast<uint64_t>(rounds), Chains());
}

TEST_P(ChainTest, WrittenWeightsAndStatisticsAreSeen) {
  const aclmdlRI model = Capture(kBlock);
  Check(model, Eager(kBlock), kEnoughReplays);
  for (TestTensor* const written : {weights[kOneTap][1].get(), weights[kThreeTaps][0].get(), vectors[3].get()}) {
    reinterpret_cast<float*>(written->storage())[7] += 1;
    Check(model, Eager(kBlock), 2);
  }
  Check(model, Eager(kBlock), 30);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

TEST_P(ChainTest, ChangedTasksAreRunAsTheyAreNow) {
  const Program program = {{kOneTap, 0, 0, 1, 1}, {kNorm, 1, 1, 2, 0}, {kRelu, 2, 2, 1, 0},
                           {kOneTap, 1, 1, 2, 2}, {kRelu, 2, 2, 3, 0}, {kNorm, 3, 3, 1, 1}};
  const aclmdlRI model = Capture(program);
  Check(model, Eager(program), kEnoughReplays);
  const uint64_t until = executions();
  EXPECT_EQ(until != 0, Chains());
  aclrtStream captured = nullptr;
  uint32_t count = 1;
  ASSERT_EQ(aclmdlRIGetStreams(model, &captured, &count), 0) << RecentMessage();
  aclmdlRITask tasks[6] = {};
  count = 6;
  ASSERT_EQ(aclmdlRIGetTasksByStream(captured, tasks, &count), 0) << RecentMessage();
  ASSERT_EQ(count, 6U);
  ASSERT_EQ(aclmdlRITaskDisable(tasks[2]), 0) << RecentMessage();
  ASSERT_EQ(aclmdlRIUpdate(model), 0) << RecentMessage();
  Program changed = program;
  changed.erase(changed.begin() + 2);
  Check(model, Eager(changed), 30);
  EXPECT_EQ(executions() > until, Chains()) << "a chain of the tasks as they are now";
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// What a host function reads and writes nobody knows: behind it each task runs by itself.
struct Reader {
  const TestTensor* from;
  std::vector<char> seen;
  float* changes;
  static void Read(void* self) {
    auto& reader = *static_cast<Reader*>(self);
    reader.seen.assign(reader.from->storage(), reader.from->storage() + reader.seen.size());
    *reader.changes += 1;
  }
};

TEST_P(ChainTest, AHostFunctionSeesWhatIsWrittenOverBehindIt) {
  const Program first = {{kOneTap, 0, 0, 1, 1}, {kNorm, 1, 1, 2, 0}, {kRelu, 2, 2, 1, 0}, {kThreeTaps, 1, 1, 3, 1}};
  const Program second = {{kOneTap, 3, 3, 1, 1}, {kRelu, 1, 1, 2, 0}, {kAdd, 2, 3, 1, 0}, {kRelu, 1, 1, 3, 0}};
  Reader reader{pictures[2].get(), std::vector<char>(before[2].size()),
                reinterpret_cast<float*>(weights[kOneTap][1]->storage())};
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
  const auto record = [&](const PhaseOne& one_, PhaseTwo two) { Record(one_, two); };
  for (const Call& call : first) Each(call, record);
  ASSERT_EQ(aclrtLaunchHostFunc(stream, Reader::Read, &reader), 0) << RecentMessage();
  for (const Call& call : second) Each(call, record);
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  for (int i = 0; i < 12; ++i) {
    Reset();
    for (const Call& call : first) {
      Each(call, [&](const PhaseOne& a, PhaseTwo b) { EXPECT_EQ(RunOp(stream, a, b), 0) << RecentMessage(); });
    }
    const std::vector<char> wanted = BytesOf(*pictures[2]);
    const float unchanged = std::exchange(*reader.changes, *reader.changes + 1);
    for (const Call& call : second) {
      Each(call, [&](const PhaseOne& a, PhaseTwo b) { EXPECT_EQ(RunOp(stream, a, b), 0) << RecentMessage(); });
    }
    const auto all = All();
    *reader.changes = unchanged;
    Reset();
    Replay(model);
    ASSERT_EQ(reader.seen, wanted) << i;
    ASSERT_EQ(All(), all) << i;
  }
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

TEST_P(ChainTest, AnAbortBehindTheLinksLeavesTheModelReady) {
  const Program first(kStays.begin(), kStays.begin() + 3);
  const Program second(kStays.begin() + 3, kStays.end());
  Gate gate;
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
  const auto record = [&](const PhaseOne& a, PhaseTwo b) { Record(a, b); };
  for (const Call& call : first) Each(call, record);
  ASSERT_EQ(aclrtLaunchHostFunc(stream, Gate::Wait, &gate), 0) << RecentMessage();
  for (const Call& call : second) Each(call, record);
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  const auto expected = Eager(kStays);
  Check(model, expected, kEnoughReplays);
  EXPECT_EQ(executions() != 0, Chains());
  for (int i = 0; i < 3; ++i) {
    Reset();
    gate.Open(false);
    aclrtStream other = nullptr;
    ASSERT_EQ(aclrtCreateStream(&other), 0) << RecentMessage();
    ASSERT_EQ(aclmdlRIExecuteAsync(model, other), 0) << RecentMessage();
    gate.WaitUntilReached();
    EXPECT_EQ(aclrtStreamAbort(other), 0) << RecentMessage();
    gate.Open(true);
    (void)aclrtSynchronizeStream(other);
    EXPECT_EQ(aclrtDestroyStream(other), 0) << RecentMessage();
    Check(model, expected, 2);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// Wherever it comes: before the links, between two of them or behind all.
TEST_P(ChainTest, AnAbortAmongTheLinksLeavesTheModelReady) {
  const aclmdlRI model = Capture(kBlock);
  const auto expected = Eager(kBlock);
  Check(model, expected, kEnoughReplays);
  EXPECT_EQ(executions() != 0, Chains());
  for (int i = 0; i < 20; ++i) {
    Reset();
    aclrtStream other = nullptr;
    ASSERT_EQ(aclrtCreateStream(&other), 0) << RecentMessage();
    ASSERT_EQ(aclmdlRIExecuteAsync(model, other), 0) << RecentMessage();
    for (int turn = 0; turn < 50 * i; ++turn) std::this_thread::yield();
    EXPECT_EQ(aclrtStreamAbort(other), 0) << RecentMessage();
    (void)aclrtSynchronizeStream(other);
    EXPECT_EQ(aclrtDestroyStream(other), 0) << RecentMessage();
    Check(model, expected, 1);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// A transposed convolution between others: of pictures whose sides it doubles, which nobody turns.
class DoublingTest : public ChainTest {};

TEST_P(DoublingTest, TransposedConvolutionsAreLinks) {
  const int64_t side = GetParam().side;
  const auto make = [&](Shape shape) {
    auto tensor = std::make_unique<TestTensor>(std::move(shape), ACL_FLOAT);
    std::vector<Value> values(static_cast<size_t>(tensor->count()));
    for (Value& value : values) value.re = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 7777.0F;
    tensor->Write(values);
    return tensor;
  };
  const auto filter = make({kChannels, kChannels, 4, 4});
  std::vector<std::unique_ptr<TestTensor>> doubled;
  for (int i = 0; i < 3; ++i) doubled.push_back(make({2, kChannels, 2 * side, 2 * side}));
  const int64_t twos[2] = {2, 2};
  aclIntArray* const two = aclCreateIntArray(twos, 2);
  aclTensor* const norm[] = {vectors[0]->get(), vectors[1]->get(), vectors[2]->get(), vectors[3]->get()};
  const std::pair<PhaseOne, PhaseTwo> calls[] = {
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnConvolutionGetWorkspaceSize(pictures[0]->get(), weights[kOneTap][0]->get(), nullptr, one, zero,
                                                 one, false, zero, 1, pictures[1]->get(), 0, ws, ex);
       },
       aclnnConvolution},
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnConvolutionGetWorkspaceSize(pictures[1]->get(), filter->get(), vectors[0]->get(), two, one, one,
                                                 true, zero, 1, doubled[0]->get(), 0, ws, ex);
       },
       aclnnConvolution},
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnBatchNormGetWorkspaceSize(doubled[0]->get(), norm[0], norm[1], norm[2], norm[3], false, 0.1, 1e-5,
                                               doubled[1]->get(), saved[0]->get(), saved[1]->get(), ws, ex);
       },
       aclnnBatchNorm},
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnAddGetWorkspaceSize(doubled[1]->get(), doubled[2]->get(), alpha.get(), doubled[1]->get(), ws, ex);
       },
       aclnnAdd},
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnSiluGetWorkspaceSize(doubled[1]->get(), doubled[1]->get(), ws, ex);
       },
       aclnnSilu},
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnConvolutionGetWorkspaceSize(doubled[1]->get(), weights[kThreeTaps][0]->get(), nullptr, one, one,
                                                 one, false, zero, 1, doubled[0]->get(), 0, ws, ex);
       },
       aclnnConvolution}};
  const auto all = [&] {
    std::vector<std::vector<char>> bytes = All();
    for (const auto& tensor : doubled) bytes.push_back(BytesOf(*tensor));
    return bytes;
  };
  Reset();
  for (const auto& [first, second] : calls) EXPECT_EQ(RunOp(stream, first, second), 0) << RecentMessage();
  const auto expected = all();
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
  for (const auto& [first, second] : calls) Record(first, second);
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  for (int i = 0; i < kEnoughReplays + 3; ++i) {
    Reset();
    for (const size_t which : {0, 1}) std::memset(doubled[which]->storage(), 0x5A, expected.back().size());
    Replay(model);
    ASSERT_EQ(all(), expected) << "replay " << i;
  }
  // An addend that is in memory alone ends the link of the transposed convolution before the sum.
  ExpectChains(3, 10);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
  EXPECT_EQ(aclDestroyIntArray(two), 0);
}

// ---- Convolutions row by row ----

class WideTest : public ChainTest {};

// What is between the convolutions is written over in the end: with norms, a sum, results that others read or that
// stay.
const Program kWidePrograms[] = {
    {{kOneTap, 0, 0, 1, 1},
     {kNorm, 1, 1, 2, 0},
     {kRelu, 2, 2, 1, 0},
     {kOwnChannels, 1, 1, 2, 1},
     {kNorm, 2, 2, 3, 1},
     {kHardtanh, 3, 3, 2, 0},
     {kOneTap, 2, 2, 3, 2},
     {kAdd, 3, 0, 3, 0},
     {kRelu, 4, 4, 1, 0},
     {kRelu, 4, 4, 2, 0}},
    {{kOwnChannels, 0, 0, 1, 1},
     {kSilu, 1, 1, 1, 0},
     {kOneTap, 1, 1, 2, 1},
     {kNorm, 2, 2, 3, 2},
     {kSilu, 3, 3, 4, 0},
     {kRelu, 0, 0, 1, 0}},
    {{kOneTap, 0, 0, 1, 0},
     {kOwnChannels, 1, 1, 2, 0},
     {kOneTap, 2, 2, 3, 0},
     {kAdd, 3, 1, 3, 0},
     {kRelu, 0, 0, 1, 0},
     {kRelu, 0, 0, 2, 0}},
    {{kThreeTaps, 0, 0, 1, 1},
     {kOwnChannels, 1, 1, 2, 2},
     {kRelu, 2, 2, 2, 0},
     {kOneTap, 2, 2, 1, 1},
     {kOneTap, 1, 1, 2, 0}},
};

TEST_P(WideTest, LinksRowByRowGiveTheBitsOfEagerCalls) {
  for (const Program& program : kWidePrograms) {
    SCOPED_TRACE(&program - kWidePrograms);
    const aclmdlRI model = Capture(program);
    Check(model, Eager(program), kEnoughReplays);
    for (auto& values : before) std::reverse(values.begin(), values.end());
    Check(model, Eager(program), 2);
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
  }
  EXPECT_EQ(executions() != 0, Chains());
}

TEST_P(WideTest, RandomProgramsLeaveAllOfMemoryAsEagerCallsDo) {
  constexpr Kind kOfRows[] = {kOneTap, kOneTap, kOwnChannels, kOwnChannels, kNorm, kRelu, kSilu, kAdd};
  const int rounds = reprise::testing::InForm(reprise::testing::Loops(16, 2));
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    Program program;
    size_t last = 0;
    for (int i = 0; i < 9; ++i) {
      Call call{};
      call.kind = kOfRows[random() % std::size(kOfRows)];
      call.a = last;
      call.b = random() % kPictures;
      call.out = (call.a + 1 + random() % 2) % kPictures;
      call.weight = random() % kWeights;
      last = call.out;
      program.push_back(call);
    }
    CheckAll(program);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(executions() != 0, Chains());
}

INSTANTIATE_TEST_SUITE_P(Sizes, WideTest, testing::Values(kWide));
INSTANTIATE_TEST_SUITE_P(Sizes, ChainTest, testing::Values(kLarge, kSmall, kVolume));
INSTANTIATE_TEST_SUITE_P(Sizes, DoublingTest, testing::Values(kLarge, kSmall));

}  // namespace
}  // namespace aclnn_test
