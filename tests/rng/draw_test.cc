// SPDX-License-Identifier: Apache-2.0
//
// Draws as tasks: what they compute on several workers, what is refused, what they show of themselves, task groups.
#include "rng/draw.h"

#include <fstream>
#include <sstream>

#include "world.h"

namespace reprise::testing {
namespace {

using kernels::Distribution;
using kernels::DrawCall;
using kernels::DType;
using ::testing::HasSubstr;

__attribute__((constructor)) void UseFourWorkers(int, char** argv, char**) {
  RestartWith(argv, {{"REPRISE_WORKERS", "4"}});
}

bool SameBytes(const void* a, const void* b, size_t bytes) { return std::memcmp(a, b, bytes) == 0; }

class Draws : public RandomWorld {};

// Large enough for all workers; cut into grains there, in one piece here.
TEST_F(Draws, DoNotDependOnTheNumberOfThreads) {
  constexpr size_t kCount = (1 << 20) + 77;
  const Buffer<float> in(kCount), out(kCount);
  const Buffer<int64_t> wide(kCount);
  const Buffer<uint8_t> mask(kCount), bytes(kCount);
  for (size_t i = 0; i < kCount; ++i) in[i] = static_cast<float>(i % 11) / 10.0f;
  Seed(42);
  const auto compare = [&](DrawCall call, auto tag) {
    using T = decltype(tag);
    call.type = kernels::DTypeOf<T>();
    call.count = kCount;
    call.in = in.data();
    const uint64_t position = Offset() / 4;
    Draw(stream_, *generator_, call);
    MUST(aclrtSynchronizeStream(stream_));
    std::vector<T> expected(kCount);
    std::vector<uint8_t> expected_mask(kCount);
    const auto* drawn = static_cast<const T*>(call.out);
    const bool has_mask = std::exchange(call.mask, expected_mask.data()) != nullptr;
    call.out = expected.data();
    ASSERT_EQ(kernels::Draw(call, 42, position, {0, kCount}), -1);
    EXPECT_TRUE(SameBytes(expected.data(), drawn, kCount * sizeof(T))) << kernels::Name(call.distribution);
    if (has_mask) {
      EXPECT_TRUE(SameBytes(expected_mask.data(), mask.data(), kCount));
    }
  };
  DrawCall call;
  call.out = out.data();
  call.a = 0.25;
  call.b = 2.0;
  for (const Distribution d :
       {Distribution::kUniform, Distribution::kNormal, Distribution::kLogNormal, Distribution::kExponential,
        Distribution::kCauchy, Distribution::kGeometric, Distribution::kBernoulli}) {
    call.distribution = d;
    compare(call, float{});
  }
  call.distribution = Distribution::kDropout;
  call.mask = mask.data();
  compare(call, float{});
  call.mask = nullptr;
  call.out = bytes.data();
  call.distribution = Distribution::kBernoulliEach;
  compare(call, uint8_t{});
  call.out = wide.data();
  call.distribution = Distribution::kPermutation;
  compare(call, int64_t{});
  call.distribution = Distribution::kRandint;
  call.range = 1000;
  compare(call, int64_t{});
  call.range = uint64_t{1} << 50;
  compare(call, int64_t{});
  EXPECT_EQ(Offset(), 12u * 4) << "four for each draw";
}

TEST_F(Draws, AreInOrderWithOtherWork) {
  const Buffer<float> out(1000), copy(1000);
  Seed(1);
  Draw(stream_, *generator_, Normal(out));
  MUST(aclrtMemcpyAsync(copy.data(), 4000, out.data(), 4000, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_));
  Draw(stream_, *generator_, Normal(out));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_NE(out.Copy(), copy.Copy());
  Seed(1);
  Draw(stream_, *generator_, Normal(out));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(out.Copy(), copy.Copy());
}

TEST_F(Draws, OfNothingCostNothing) {
  DrawCall call;
  call.b = 1;
  Draw(stream_, *generator_, call);
  EXPECT_EQ(Offset(), 0u);
  call.b = -1;
  EXPECT_EQ(TryDraw(stream_, *generator_, call).code(), 107000) << "and are checked all the same";
}

TEST_F(Draws, RefuseWhatDoesNotFit) {
  const Buffer<float> out(1000);
  const Buffer<uint8_t> mask(1000);
  std::vector<float> host(1000);
  const auto refused = [&](DrawCall call, const char* words) {
    const Status status = TryDraw(stream_, *generator_, call);
    if (status.ok()) return ::testing::AssertionFailure() << "taken";
    const auto& detail = status.detail();
    if (detail.code != 107000 || detail.culprit.empty() || detail.hint.empty() ||
        detail.what.find(words) == std::string::npos) {
      return ::testing::AssertionFailure() << detail.code << ": " << detail.what << "; " << detail.culprit;
    }
    return ::testing::AssertionSuccess();
  };
  const DrawCall good = Normal(out);
  DrawCall call = good;
  call.out = nullptr;
  EXPECT_TRUE(refused(call, "out is null"));
  call.out = reinterpret_cast<char*>(out.data()) + 2;
  call.count = 10;
  EXPECT_TRUE(refused(call, "not aligned"));
  call = good;
  call.out = host.data();
  EXPECT_TRUE(refused(call, "not device memory"));
  call = good;
  call.count = 1 << 20;  // more than the allocation holds, rounding included
  EXPECT_TRUE(refused(call, "out"));
  call.count = INT64_MAX;
  EXPECT_TRUE(refused(call, "more than any memory holds"));
  call.count = -1;
  EXPECT_TRUE(refused(call, "negative"));
  call = good;
  call.type = DType::kInt32;
  EXPECT_TRUE(refused(call, "int32"));
  call = good;
  call.type = static_cast<DType>(99);
  EXPECT_TRUE(refused(call, "real numbers"));
  call = good;
  call.b = -1;
  EXPECT_TRUE(refused(call, "standard deviation"));
  // Operands that overlap.
  call.distribution = Distribution::kDropout;
  call.count = 500;
  call.a = 0.5;
  call.in = out.data() + 250;
  EXPECT_TRUE(refused(call, "overlaps"));
  call.in = nullptr;
  EXPECT_TRUE(refused(call, "in is null"));
  call.in = out.data() + 500;
  call.mask = out.data() + 100;
  EXPECT_TRUE(refused(call, "overlaps"));
  call.distribution = Distribution::kBernoulliEach;
  call.type = DType::kUInt8;
  call.in = out.data();
  EXPECT_TRUE(refused(call, "overlaps")) << "elements of another size";
  // A generator of another device.
  rng::Generator other(std::make_shared<rng::GeneratorState>(RealEnvironment::Get(), 1));
  const Status status = TryDraw(stream_, other, good);
  EXPECT_EQ(status.code(), 107000);
  EXPECT_THAT(status.detail().what, HasSubstr("device 1"));
  EXPECT_EQ(Offset(), 0u) << "a refused draw is not charged";
  Draw(stream_, *generator_, good);
  MUST(aclrtSynchronizeStream(stream_));
}

TEST_F(Draws, WhatIsNoProbabilityFailsTheTask) {
  const Buffer<float> p(100'000);
  const Buffer<uint8_t> out(100'000);
  for (size_t i = 0; i < p.size(); ++i) p[i] = 0.5f;
  p[54'321] = 2.0f;
  p[87'654] = -1.0f;
  DrawCall call;
  call.distribution = Distribution::kBernoulliEach;
  call.type = DType::kUInt8;
  call.in = p.data();
  call.out = out.data();
  call.count = 100'000;
  Draw(stream_, *generator_, call);
  EXPECT_EQ(507035, aclrtSynchronizeStream(stream_));
  const char* message = aclGetRecentErrMsg();
  ASSERT_NE(message, nullptr);
  EXPECT_THAT(message, HasSubstr("element 54321 of the probabilities is 2"));
}

TEST_F(Draws, ShowWhatTheyAreInADump) {
  const Buffer<float> out(100), in(100);
  const Buffer<uint8_t> mask(100);
  Graph graph;
  graph.Begin(stream_);
  Draw(stream_, *generator_, Normal(out));
  DrawCall call = Normal(out);
  call.distribution = Distribution::kDropout;
  call.a = 0.5;
  call.in = in.data();
  call.mask = mask.data();
  Draw(stream_, *generator_, call);
  graph.End(stream_);
  const std::string path = ::testing::TempDir() + "/rng_dump_" + std::to_string(::getpid()) + ".json";
  MUST(aclmdlRIDebugJsonPrint(graph.model(), path.c_str(), 1));
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::remove(path.c_str());
  EXPECT_THAT(text.str(), HasSubstr("RandomNormal"));
  EXPECT_THAT(text.str(), HasSubstr("Dropout"));
  EXPECT_THAT(text.str(), HasSubstr("KERNEL_AIVEC"));
  // The memory that it names, the generator's cells among it.
  aclrtStream streams[1] = {};
  uint32_t count = 1;
  MUST(aclmdlRIGetStreams(graph.model(), streams, &count));
  aclmdlRITask tasks[2] = {};
  count = 2;
  MUST(aclmdlRIGetTasksByStream(streams[0], tasks, &count));
  EXPECT_EQ(count, 2u);
  for (const aclmdlRITask task : tasks) {
    aclmdlRITaskType type = ACL_MODEL_RI_TASK_DEFAULT;
    MUST(aclmdlRITaskGetType(task, &type));
    EXPECT_EQ(type, ACL_MODEL_RI_TASK_KERNEL);
  }
}

TEST_F(Draws, AreRefusedWhereTasksAreStoredForAModel) {
  aclrtStream persistent = nullptr;
  MUST(aclrtCreateStreamWithConfig(&persistent, 0, ACL_STREAM_PERSISTENT));
  const Buffer<float> out(10);
  const Status status = TryDraw(persistent, *generator_, Normal(out));
  EXPECT_EQ(status.code(), 207000);
  EXPECT_FALSE(status.detail().hint.empty());
  EXPECT_EQ(Offset(), 0u);
  MUST(aclrtDestroyStream(persistent));
}

// ---- Task groups ----

class DrawGroups : public Draws {
 protected:
  // One draw in a group, another one behind it.
  void Capture(Graph& graph, const DrawCall& in_group, const DrawCall& behind) {
    graph.Begin(stream_);
    MUST(aclmdlRICaptureTaskGrpBegin(stream_));
    Draw(stream_, *generator_, in_group);
    MUST(aclmdlRICaptureTaskGrpEnd(stream_, &group_));
    Draw(stream_, *generator_, behind);
    graph.End(stream_);
  }
  aclrtTaskGrp group_ = nullptr;
};

TEST_F(DrawGroups, AreReplayedLikeOthers) {
  const Buffer<float> first(5000), second(5000);
  Seed(3);
  Draw(stream_, *generator_, Normal(first));
  Draw(stream_, *generator_, Normal(second));
  MUST(aclrtSynchronizeStream(stream_));
  const auto one = first.Copy(), two = second.Copy();
  Graph graph;
  Seed(3);
  Capture(graph, Normal(first), Normal(second));
  graph.Replay(stream_);
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(first.Copy(), one);
  EXPECT_EQ(second.Copy(), two);
}

// The replacement has other parameters and draws on with the generator and the offset of its place.
TEST_F(DrawGroups, AnUpdateKeepsTheGeneratorOfThePlace) {
  const Buffer<float> first(5000), second(5000);
  Graph graph;
  Capture(graph, Normal(first), Normal(second));
  EXPECT_EQ(graph.increment(*generator_), 8u);
  DrawCall changed = Normal(first);
  changed.a = 10.0;
  changed.b = 2.0;
  const aclrtStream updater = NewStream();
  const auto stranger = NewGenerator();
  MUST(aclmdlRICaptureTaskUpdateBegin(updater, group_));
  Draw(updater, *stranger, changed);
  MUST(aclmdlRICaptureTaskUpdateEnd(updater));
  MUST(aclrtSynchronizeStream(updater));
  EXPECT_EQ(*stranger->GetOffset(), 0u) << "not charged";
  Seed(3);
  std::vector<std::vector<float>> replays;
  for (int i = 0; i < 2; ++i) {
    graph.Replay(stream_);
    MUST(aclrtSynchronizeStream(stream_));
    replays.push_back(first.Copy());
    replays.push_back(second.Copy());
  }
  EXPECT_EQ(Offset(), 16u);
  Seed(3);
  for (const auto& replay : replays) {
    const bool in_group = &replay == &replays[0] || &replay == &replays[2];
    Draw(stream_, *generator_, in_group ? changed : Normal(second));
    MUST(aclrtSynchronizeStream(stream_));
    EXPECT_EQ(in_group ? first.Copy() : second.Copy(), replay);
  }
}

TEST_F(DrawGroups, ClosuresThatDrawReplaceNothing) {
  const Buffer<float> out(100);
  Graph graph;
  Capture(graph, Normal(out), Normal(out));
  const aclrtStream updater = NewStream();
  MUST(aclmdlRICaptureTaskUpdateBegin(updater, group_));
  const auto closure = [](device::RunContext&, uint64_t) { return Status(); };
  const Status status = rng::SubmitRandomClosure(**runtime::FindStream(updater), *generator_, "foreign", closure);
  EXPECT_EQ(status.code(), 507009);
  EXPECT_THAT(status.detail().culprit, HasSubstr("foreign"));
  EXPECT_EQ(Offset(), 0u);
  (void)aclmdlRICaptureTaskUpdateEnd(updater);  // which may complain that nothing was replaced
}

TEST_F(DrawGroups, ADrawReplacesDrawsAlone) {
  const Buffer<float> out(100);
  Graph graph;
  graph.Begin(stream_);
  MUST(aclmdlRICaptureTaskGrpBegin(stream_));
  ASSERT_TRUE(runtime::SubmitClosure(**runtime::FindStream(stream_), "KERNEL_AIVEC", [](device::RunContext&) {
                return Status();
              }).ok());
  MUST(aclmdlRICaptureTaskGrpEnd(stream_, &group_));
  graph.End(stream_);
  const aclrtStream updater = NewStream();
  MUST(aclmdlRICaptureTaskUpdateBegin(updater, group_));
  EXPECT_EQ(TryDraw(updater, *generator_, Normal(out)).code(), 507000);
  EXPECT_EQ(Offset(), 0u);
  (void)aclmdlRICaptureTaskUpdateEnd(updater);  // which may complain that nothing was replaced
}

}  // namespace
}  // namespace reprise::testing
