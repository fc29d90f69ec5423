// SPDX-License-Identifier: Apache-2.0
//
// The contract of captured draws: after the same seed, a replay gives the bits that the same calls give eagerly, and
// leaves the generators where these leave them.
#include <functional>
#include <optional>

#include "world.h"

namespace reprise::testing {
namespace {

using kernels::Distribution;
using kernels::DrawCall;
using kernels::DType;

// The last one is large enough for several workers.
struct Buffers {
  Buffer<float> a{3000}, b{3000}, c{40'000};
};

class Replays : public RandomWorld {
 protected:
  void SetUp() override {
    RandomWorld::SetUp();
    buffers_.emplace();
  }
  void TearDown() override {
    buffers_.reset();
    RandomWorld::TearDown();
  }

  using Program = std::function<void(aclrtStream)>;
  void Draw1(aclrtStream stream, const Buffer<float>& out) { Draw(stream, *generator_, Normal(out)); }

  std::vector<std::vector<float>> Results() {
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
    return {a().Copy(), b().Copy(), c().Copy()};
  }
  void Clear() {
    a().Clear();
    b().Clear();
    c().Clear();
  }
  /// What the program leaves in the buffers, eagerly.
  std::vector<std::vector<float>> Eager(const Program& program) {
    Clear();
    program(stream_);
    return Results();
  }
  std::vector<std::vector<float>> Replayed(Graph& graph) {
    Clear();
    graph.Replay(stream_);
    return Results();
  }
  void Capture(Graph& graph, const Program& program) {
    graph.Begin(stream_);
    program(stream_);
    graph.End(stream_);
  }
  /// The contract itself: eagerly twice, then captured and replayed twice, then once more eagerly.
  void ExpectSame(const Program& program) {
    Seed(4711);
    const auto first = Eager(program);
    const uint64_t one = Offset();
    const auto second = Eager(program);
    const uint64_t two = Offset();
    const auto third = Eager(program);
    Graph graph;
    Seed(4711);
    Capture(graph, program);
    EXPECT_EQ(Offset(), 0u) << "capturing draws nothing";
    EXPECT_EQ(Replayed(graph), first);
    EXPECT_EQ(Offset(), one);
    EXPECT_EQ(Replayed(graph), second);
    EXPECT_EQ(Offset(), two);
    EXPECT_EQ(Eager(program), third) << "eager draws go on behind the replay";
    EXPECT_EQ(Replayed(graph).size(), 3u);
    EXPECT_EQ(Eager(program).size(), 3u);
    EXPECT_EQ(Offset(), one * 5);
  }
  static rng::Generator::StateBytes SaveState(rng::Generator& generator) {
    auto state = generator.GetState();
    EXPECT_TRUE(state.ok());
    return *state;
  }

  Buffer<float>& a() { return buffers_->a; }
  Buffer<float>& b() { return buffers_->b; }
  Buffer<float>& c() { return buffers_->c; }

 private:
  std::optional<Buffers> buffers_;
};

// Each distribution into each type that takes it.
TEST_F(Replays, GiveTheSameBitsForEveryDistributionAndType) {
  constexpr size_t kCount = 1000;
  const Buffer<double> out(kCount), in(kCount);
  const Buffer<uint8_t> mask(kCount);
  std::vector<DrawCall> calls;
  const auto add = [&](Distribution distribution, double a, double b) {
    for (const DType type : kernels::kAllDTypes) {
      DrawCall call;
      call.distribution = distribution;
      call.type = type;
      call.in_type = DType::kFloat;
      call.a = a;
      call.b = b;
      call.range = 2;
      call.count = distribution == Distribution::kPermutation ? 100 : kCount;
      call.out = out.data();
      call.in = in.data();
      if (distribution == Distribution::kDropout) call.mask = mask.data();
      if (kernels::WhyNot(call).empty()) calls.push_back(call);
    }
  };
  add(Distribution::kUniform, -1, 2);
  add(Distribution::kNormal, 1, 2);
  add(Distribution::kLogNormal, 0, 1);
  add(Distribution::kExponential, 2, 0);
  add(Distribution::kCauchy, 0, 1);
  add(Distribution::kGeometric, 0.3, 0);
  add(Distribution::kBernoulli, 0.3, 0);
  add(Distribution::kBernoulliEach, 0, 0);
  add(Distribution::kRandint, 0, 0);
  add(Distribution::kDropout, 0.3, 0);
  add(Distribution::kPermutation, 0, 0);
  EXPECT_GT(calls.size(), 70u);
  for (size_t i = 0; i < 2 * kCount; ++i) reinterpret_cast<float*>(in.data())[i] = static_cast<float>(i % 9) / 9.0f;
  for (const DrawCall& call : calls) {
    const auto result = [&] {
      EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
      std::vector<unsigned char> all(kCount * (sizeof(double) + 1));
      std::memcpy(all.data(), out.data(), kCount * sizeof(double));
      std::memcpy(all.data() + kCount * sizeof(double), mask.data(), kCount);
      out.Clear();
      mask.Clear();
      return all;
    };
    out.Clear();
    mask.Clear();
    Seed(99);
    Draw(stream_, *generator_, call);
    const auto first = result();
    Draw(stream_, *generator_, call);
    const auto second = result();
    EXPECT_NE(first, second);
    Seed(99);
    Graph graph;
    graph.Begin(stream_);
    Draw(stream_, *generator_, call);
    graph.End(stream_);
    graph.Replay(stream_);
    ASSERT_EQ(result(), first) << kernels::Name(call.distribution) << " of " << kernels::Name(call.type);
    graph.Replay(stream_);
    ASSERT_EQ(result(), second) << kernels::Name(call.distribution) << " of " << kernels::Name(call.type);
  }
}

TEST_F(Replays, MoveTheGeneratorOnLikeEagerCalls) {
  ExpectSame([&](aclrtStream stream) {
    Draw1(stream, a());
    Draw1(stream, b());
    Draw1(stream, c());
  });
}

// Streams that the capture has forked into draw, too.
TEST_F(Replays, CoverForkedStreams) {
  const aclrtStream side = NewStream();
  aclrtEvent fork = nullptr, join = nullptr;
  MUST(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  MUST(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
  ExpectSame([&](aclrtStream stream) {
    EXPECT_EQ(0, aclrtRecordEvent(fork, stream));
    EXPECT_EQ(0, aclrtStreamWaitEvent(side, fork));
    Draw1(stream, a());
    Draw1(side, b());
    Draw1(stream, c());
    EXPECT_EQ(0, aclrtRecordEvent(join, side));
    EXPECT_EQ(0, aclrtStreamWaitEvent(stream, join));
  });
  MUST(aclrtDestroyEvent(fork));
  MUST(aclrtDestroyEvent(join));
}

TEST_F(Replays, TakeASeedThatIsSetBetweenThem) {
  const Program program = [&](aclrtStream stream) { Draw1(stream, a()); };
  Graph graph;
  Seed(1);
  Capture(graph, program);
  Seed(2);
  const auto of_two = Replayed(graph);
  Seed(3);
  const auto of_three = Replayed(graph);
  EXPECT_NE(of_two, of_three);
  Seed(2);
  EXPECT_EQ(Eager(program), of_two);
  Seed(3);
  EXPECT_EQ(Eager(program), of_three);
  ASSERT_TRUE(generator_->SetOffset(400).ok());
  const auto at_400 = Eager(program);
  ASSERT_TRUE(generator_->SetOffset(400).ok());
  EXPECT_EQ(Replayed(graph), at_400);
}

TEST_F(Replays, KeepSeveralGeneratorsApart) {
  const auto second = NewGenerator(), third = NewGenerator();  // drawn from for the first time in the capture
  const auto seed_all = [&] {
    Seed(10);
    ASSERT_TRUE(second->SetCurrentSeed(20).ok());
    ASSERT_TRUE(third->SetCurrentSeed(30).ok());
  };
  const Program program = [&](aclrtStream stream) {
    Draw(stream, *second, Normal(a()));
    Draw(stream, *generator_, Normal(b()));
    Draw(stream, *third, Normal(c()));
    Draw(stream, *second, Normal(c()));
  };
  seed_all();
  const auto first = Eager(program);
  const auto next = Eager(program);
  seed_all();
  Graph graph;
  Capture(graph, program);
  EXPECT_EQ(RealEnvironment::Get().cells, 6);
  EXPECT_EQ(graph.increment(*second), 8u);
  EXPECT_EQ(graph.increment(*third), 4u);
  EXPECT_EQ(Replayed(graph), first);
  EXPECT_EQ(Replayed(graph), next);
  EXPECT_EQ(*second->GetOffset(), 16u);
  EXPECT_EQ(*third->GetOffset(), 8u);
  EXPECT_EQ(Offset(), 8u);
}

TEST_F(Replays, GeneratorsThatShareAStateMoveOnTogether) {
  const auto shared = generator_->GraphsafeGetState();
  ExpectSame([&](aclrtStream stream) {
    Draw1(stream, a());
    Draw(stream, *shared, Normal(b()));
    Draw1(stream, c());
  });
  EXPECT_EQ(*shared->GetOffset(), Offset());
  // Exchanged in the middle of a capture.
  const auto other = NewGenerator();
  const Program program = [&](aclrtStream stream) {
    const auto own = generator_->GraphsafeGetState();
    Draw1(stream, a());
    ASSERT_TRUE(generator_->GraphsafeSetState(other.get()).ok());
    Draw1(stream, b());
    ASSERT_TRUE(generator_->GraphsafeSetState(own.get()).ok());
    Draw1(stream, c());
  };
  const auto seed_both = [&] {
    Seed(1);
    ASSERT_TRUE(other->SetCurrentSeed(2).ok());
  };
  seed_both();
  const auto eager = Eager(program);
  seed_both();
  Graph graph;
  Capture(graph, program);
  EXPECT_EQ(Replayed(graph), eager);
  EXPECT_EQ(Offset(), 8u);
  EXPECT_EQ(*other->GetOffset(), 4u);
}

// Two graphs on two streams, replayed by turns: each replay draws what the next eager calls would have drawn.
TEST_F(Replays, GraphsShareAGeneratorInTheOrderOfTheirReplays) {
  const Program one = [&](aclrtStream stream) { Draw1(stream, a()); };
  const Program two = [&](aclrtStream stream) {
    Draw1(stream, b());
    Draw1(stream, c());
  };
  constexpr int kTurns = 5;
  Seed(8);
  std::vector<std::vector<std::vector<float>>> eager;
  for (int i = 0; i < kTurns; ++i) {
    eager.push_back({Eager(one)[0]});
    const auto both = Eager(two);
    eager.back().push_back(both[1]);
    eager.back().push_back(both[2]);
  }
  Graph first, second;
  Seed(8);
  Capture(first, one);
  Capture(second, two);
  const aclrtStream other = NewStream();
  for (int i = 0; i < kTurns; ++i) {
    Clear();
    first.Replay(i % 2 == 0 ? stream_ : other);
    second.Replay(i % 2 == 0 ? other : stream_);
    MUST(aclrtSynchronizeStream(other));
    EXPECT_EQ(Results(), eager[static_cast<size_t>(i)]) << "turn " << i;
  }
}

// Many replays in flight on two streams, one of which is held up: the cells of a graph are written only when its last
// replay has read them.
TEST_F(Replays, OfOneGraphOnTwoStreamsReadTheirOwnNumbers) {
  constexpr int kTimes = 10;
  const auto drawn = std::make_shared<std::vector<std::vector<float>>>();
  Graph graph;
  Seed(6);
  Capture(graph, [&](aclrtStream stream) {
    Draw1(stream, a());
    const float* numbers = a().data();
    ASSERT_TRUE(runtime::SubmitClosure(**runtime::FindStream(stream), "note", [drawn, numbers](device::RunContext&) {
                  drawn->emplace_back(numbers, numbers + 3000);
                  return Status();
                }).ok());
  });
  const aclrtStream other = NewStream();
  Gate gate;
  gate.Block(stream_);
  for (int i = 0; i < kTimes; ++i) graph.Replay(i % 2 == 0 ? stream_ : other);
  gate.Open();
  MUST(aclrtSynchronizeStream(stream_));
  MUST(aclrtSynchronizeStream(other));
  EXPECT_EQ(Offset(), kTimes * 4u);
  ASSERT_EQ(drawn->size(), static_cast<size_t>(kTimes));
  Seed(6);
  for (size_t i = 0; i < kTimes; ++i) {
    EXPECT_EQ(Eager([&](aclrtStream stream) { Draw1(stream, a()); })[0], (*drawn)[i]) << "replay " << i;
  }
}

// ---- States inside of a capture ----

TEST_F(Replays, RestoreAStateInsideTheCapture) {
  for (const bool draws_before : {false, true}) {
    const Program program = [&](aclrtStream stream) {
      if (draws_before) Draw1(stream, c());
      const auto saved = SaveState(*generator_);
      Draw1(stream, a());
      ASSERT_TRUE(generator_->SetState(saved).ok());
      Draw1(stream, b());
    };
    ExpectSame(program);
    Seed(5);
    Graph graph;
    Capture(graph, program);
    const auto results = Replayed(graph);
    EXPECT_EQ(results[0], results[1]) << "the second draw is the first one again";
  }
}

// All that was drawn is taken back: the increment is 0, and still the draw needs the seed.
TEST_F(Replays, RefreshTheCellsAlthoughTheIncrementIsZero) {
  const Program program = [&](aclrtStream stream) {
    const auto saved = SaveState(*generator_);
    Draw1(stream, a());
    ASSERT_TRUE(generator_->SetState(saved).ok());
  };
  Seed(1);
  Graph graph;
  Capture(graph, program);
  EXPECT_EQ(graph.increment(*generator_), 0u);
  for (const uint64_t seed : {21, 22}) {
    Seed(seed);
    const auto eager = Eager(program);
    EXPECT_EQ(Offset(), 0u);
    EXPECT_EQ(Replayed(graph), eager) << seed;
    EXPECT_EQ(Offset(), 0u);
  }
}

TEST_F(Replays, RefusedCallsLeaveTheCaptureAsItWas) {
  Seed(1);
  const auto eager = Eager([&](aclrtStream stream) { Draw1(stream, a()); });
  Seed(1);
  Graph graph;
  graph.Begin(stream_);
  EXPECT_EQ(107027, rng::Generator::Create(RealEnvironment::Get(), 0).status().code());
  EXPECT_EQ(107027, generator_->Clone().status().code());
  EXPECT_EQ(107027, generator_->NewSeed().status().code());
  EXPECT_EQ(107027, generator_->GetOffset().status().code());
  EXPECT_EQ(107027, generator_->SetOffset(0).code());
  EXPECT_EQ(107030, generator_->SetCurrentSeed(2).code());
  EXPECT_TRUE(generator_->SetCurrentSeed(1).ok());
  EXPECT_ACL(107027, aclrtSynchronizeStream(stream_));
  Draw1(stream_, a());
  graph.End(stream_);
  EXPECT_EQ(Replayed(graph)[0], eager[0]);
  // Eager draws, and another capture on the same stream.
  ExpectSame([&](aclrtStream stream) { Draw1(stream, b()); });
}

// A capture that belongs to no graph takes no draws, and goes on.
TEST_F(Replays, ACaptureWithoutGraphRefusesDraws) {
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  const Status status = TryDraw(stream_, *generator_, Normal(a()));
  EXPECT_EQ(status.code(), 107030);
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  MUST(aclmdlRIDestroy(model));
  EXPECT_EQ(Offset(), 0u);
}

TEST_F(Replays, AFailedCaptureChargesNothing) {
  const aclrtStream side = NewStream();
  aclrtEvent fork = nullptr;
  MUST(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  Seed(1);
  const auto eager = Eager([&](aclrtStream stream) { Draw1(stream, a()); });
  {
    Graph graph;
    graph.Begin(stream_);
    MUST(aclrtRecordEvent(fork, stream_));
    MUST(aclrtStreamWaitEvent(side, fork));
    Draw1(side, a());  // never joined
    // As graph.End, but the failure is expected.
    aclmdlRI model = nullptr;
    EXPECT_ACL(107025, aclmdlRICaptureEnd(stream_, &model));
    RealEnvironment::current_stream = nullptr;
    graph.Reset();
  }
  EXPECT_EQ(RealEnvironment::Get().cells, 0);
  EXPECT_EQ(Offset(), 4u);
  Seed(1);
  EXPECT_EQ(Eager([&](aclrtStream stream) { Draw1(stream, a()); }), eager);
  MUST(aclrtDestroyEvent(fork));
}

TEST_F(Replays, CapturingAgainStartsAfresh) {
  const Program program = [&](aclrtStream stream) {
    Draw1(stream, a());
    Draw1(stream, b());
  };
  Seed(77);
  const auto eager = Eager(program);
  Graph graph;
  for (int i = 0; i < 3; ++i) {
    Seed(77);
    Capture(graph, program);
    EXPECT_EQ(Replayed(graph), eager);
    graph.Reset();
    EXPECT_EQ(RealEnvironment::Get().cells, 0);
  }
}

// A graph stays usable when the generators that drew in it are gone: it holds the state.
TEST_F(Replays, OutliveTheirGenerators) {
  Seed(5);
  const auto eager = Eager([&](aclrtStream stream) { Draw1(stream, a()); });
  Seed(5);
  Graph graph;
  Capture(graph, [&](aclrtStream stream) { Draw1(stream, a()); });
  generator_.reset();
  EXPECT_EQ(Replayed(graph), eager);
}

}  // namespace
}  // namespace reprise::testing
