// SPDX-License-Identifier: Apache-2.0
//
// reprise/random.h: the same generators and draws with exceptions, in captures of reprise::Graph.
#include <reprise/graph.h>
#include <reprise/random.h>

#include <cmath>
#include <fstream>
#include <set>

#include "child.h"
#include "world.h"

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;

__attribute__((constructor)) void UseTwoDevices(int, char** argv, char**) {
  RestartWith(argv, {{"REPRISE_DEVICES", "2"}});
}

// The call throws this number, with these words in the exception and in the recent message.
template <class Call>
::testing::AssertionResult Throws(int code, const char* words, Call call) {
  DropMessage();
  try {
    call();
  } catch (const Exception& error) {
    const char* message = aclGetRecentErrMsg();
    if (error.code() != code) return ::testing::AssertionFailure() << error.code() << ": " << error.what();
    for (const std::string& text : {std::string(error.what()), std::string(message != nullptr ? message : "")}) {
      if (text.find(words) == std::string::npos) return ::testing::AssertionFailure() << text;
      if (text.find("ext step") == std::string::npos && text.find("Solution") == std::string::npos) {
        return ::testing::AssertionFailure() << "no next step: " << text;
      }
    }
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "nothing was thrown";
}

class RandomApi : public RandomWorld {
 protected:
  void Sync() { MUST(aclrtSynchronizeStream(stream_)); }
};

TEST_F(RandomApi, GeneratorIsAHandle) {
  Generator generator;
  EXPECT_EQ(generator.initial_seed(), 67280421310721u);
  EXPECT_EQ(generator.device(), 0);
  Generator same = generator;
  same.ManualSeed(4);
  EXPECT_EQ(generator.initial_seed(), 4u);
  generator.SetOffset(8);
  Generator clone = generator.Clone();
  Generator shared = generator.Share();
  generator.SetOffset(12);
  EXPECT_EQ(clone.offset(), 8u);
  EXPECT_EQ(shared.offset(), 12u);
  clone.ShareWith(generator);
  EXPECT_EQ(clone.offset(), 12u);
  const Generator::State state = generator.GetState();
  const uint64_t seed = generator.Seed();
  EXPECT_EQ(seed, generator.initial_seed());
  generator.SetState(state);
  EXPECT_EQ(generator.initial_seed(), 4u);
  EXPECT_EQ(generator.offset(), 12u);
  EXPECT_EQ(Generator(1).device(), 1);
}

TEST_F(RandomApi, ErrorsAreExceptionsWithNumberAndWords) {
  Generator generator;
  EXPECT_TRUE(Throws(107000, "multiple of 4", [&] { generator.SetOffset(6); }));
  EXPECT_TRUE(Throws(107000, "RNG state is wrong size", [&] { generator.SetState(std::vector<uint8_t>(5)); }));
  EXPECT_TRUE(Throws(107001, "device", [&] { (void)Generator(2); }));
  EXPECT_TRUE(Throws(107001, "device", [&] { (void)Generator::Default(-1); }));
  EXPECT_TRUE(Throws(107000, "NPU Generator", [&] { generator.ShareWith(Generator(1)); }));
  EXPECT_TRUE(Throws(107000, "3 states for 2 devices", [&] { SetRngStates(std::vector<Generator::State>(3)); }));
  const Buffer<float> out(10);
  EXPECT_TRUE(Throws(107000, "null", [&] { DrawNormal(stream_, generator, nullptr, ElementType::kFloat32, 10); }));
  EXPECT_TRUE(Throws(107000, "device 1", [&] {
    Generator other(1);
    DrawNormal(stream_, other, out.data(), ElementType::kFloat32, 10);
  }));
  EXPECT_TRUE(Throws(107000, "no integer",
                     [&] { DrawInteger(stream_, generator, out.data(), ElementType::kInt32, 10, 5, 5); }));
  EXPECT_TRUE(Throws(107017, "stream", [&] {
    DrawNormal(reinterpret_cast<void*>(0x77), generator, out.data(), ElementType::kFloat32, 10);
  }));
  EXPECT_EQ(generator.offset(), 0u);
  reprise::Graph graph;
  Capture capture(graph, stream_);
  EXPECT_TRUE(Throws(107027, "captured", [&] { (void)generator.offset(); }));
  EXPECT_TRUE(Throws(107027, "captured", [&] { (void)Generator(); }));
  EXPECT_TRUE(Throws(107027, "captured", [&] { (void)generator.Clone(); }));
  EXPECT_TRUE(Throws(107030, "new seed", [&] { generator.ManualSeed(1); }));
  capture.End();
}

TEST_F(RandomApi, EveryDrawFillsItsMemory) {
  Generator generator;
  constexpr size_t kCount = 10'000;
  const Buffer<float> out(kCount), in(kCount);
  const Buffer<int64_t> integers(kCount);
  const Buffer<uint8_t> bytes(kCount);
  const auto mean = [&] {
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
    double sum = 0;
    for (size_t i = 0; i < kCount; ++i) sum += out[i];
    return sum / kCount;
  };
  constexpr auto kFloat = ElementType::kFloat32;
  DrawUniform(stream_, generator, out.data(), kFloat, kCount);
  EXPECT_NEAR(mean(), 0.5, 0.02);
  DrawUniform(stream_, generator, out.data(), kFloat, kCount, 2, 4);
  EXPECT_NEAR(mean(), 3, 0.04);
  DrawNormal(stream_, generator, out.data(), kFloat, kCount, 5, 0.5);
  EXPECT_NEAR(mean(), 5, 0.03);
  DrawLogNormal(stream_, generator, out.data(), kFloat, kCount, 0, 0.1);
  EXPECT_NEAR(mean(), std::exp(0.005), 0.01);
  DrawExponential(stream_, generator, out.data(), kFloat, kCount, 4);
  EXPECT_NEAR(mean(), 0.25, 0.02);
  DrawCauchy(stream_, generator, out.data(), kFloat, kCount, 7, 1e-6);
  Sync();
  EXPECT_NEAR(out[0], 7, 0.1);
  DrawGeometric(stream_, generator, out.data(), kFloat, kCount, 0.5);
  EXPECT_NEAR(mean(), 2, 0.1);
  DrawBernoulli(stream_, generator, out.data(), kFloat, kCount, 0.25);
  EXPECT_NEAR(mean(), 0.25, 0.02);
  for (size_t i = 0; i < kCount; ++i) in[i] = i % 2 == 0 ? 1.0f : 0.0f;
  DrawBernoulli(stream_, generator, out.data(), kFloat, kCount, in.data(), kFloat);
  Sync();
  EXPECT_EQ(out.Copy(), in.Copy());
  DrawDropout(stream_, generator, in.data(), out.data(), bytes.data(), kFloat, kCount, 0.5);
  EXPECT_NEAR(mean(), 0.5, 0.05);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(out[i], in[i] * 2.0f * bytes[i]);
  }
  DrawInteger(stream_, generator, integers.data(), ElementType::kInt64, kCount, -3, 4);
  Sync();
  EXPECT_EQ(*std::min_element(integers.data(), integers.data() + kCount), -3);
  EXPECT_EQ(*std::max_element(integers.data(), integers.data() + kCount), 3);
  DrawInteger(stream_, generator, integers.data(), ElementType::kInt64, kCount, INT64_MIN, INT64_MAX);
  DrawPermutation(stream_, generator, integers.data(), ElementType::kInt64, kCount);
  Sync();
  auto sorted = integers.Copy();
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(sorted[i], static_cast<int64_t>(i));
  }
  EXPECT_EQ(generator.offset(), 13u * 4);
}

TEST_F(RandomApi, ReplaysEqualEagerDraws) {
  Generator generator = Generator::Default();
  const Buffer<float> out(5000);
  const auto draw = [&] { DrawNormal(stream_, generator, out.data(), ElementType::kFloat32, 5000); };
  generator.ManualSeed(12);
  draw();
  Sync();
  const auto first = out.Copy();
  draw();
  Sync();
  const auto second = out.Copy();
  generator.ManualSeed(12);
  reprise::Graph graph;
  {
    const Capture capture(graph, stream_);
    draw();
  }
  for (const auto& expected : {first, second}) {
    out.Clear();
    graph.Replay(stream_);
    Sync();
    EXPECT_EQ(out.Copy(), expected);
  }
  EXPECT_EQ(generator.offset(), 8u);
}

// Foreign generators draw the same numbers in replays, too.
TEST_F(RandomApi, ClosuresGetASeedForEachRun) {
  Generator generator;
  const auto seeds = std::make_shared<std::vector<uint64_t>>();
  const auto launch = [&] {
    LaunchRandomClosure(stream_, generator, "draws", [seeds](uint64_t seed) {
      seeds->push_back(seed);
      return 0;
    });
  };
  generator.ManualSeed(3);
  for (int i = 0; i < 4; ++i) launch();
  Sync();
  const auto eager = std::exchange(*seeds, {});
  EXPECT_EQ(std::set<uint64_t>(eager.begin(), eager.end()).size(), 4u);
  EXPECT_EQ(generator.offset(), 16u);
  generator.ManualSeed(3);
  reprise::Graph graph;
  {
    const Capture capture(graph, stream_);
    launch();
    launch();
  }
  graph.Replay(stream_);
  graph.Replay(stream_);
  Sync();
  EXPECT_EQ(*seeds, eager);
  EXPECT_EQ(generator.offset(), 16u);
  EXPECT_TRUE(Throws(107000, "closure", [&] { LaunchRandomClosure(stream_, generator, "empty", nullptr); }));
  EXPECT_TRUE(
      Throws(107000, "name", [&] { LaunchRandomClosure(stream_, generator, nullptr, [](uint64_t) { return 0; }); }));
  LaunchRandomClosure(stream_, generator, "fails", [](uint64_t) { return 507015; });
  EXPECT_EQ(507015, aclrtSynchronizeStream(stream_));
  graph.Reset();  // which owns the closures that own `seeds`
  EXPECT_EQ(seeds.use_count(), 1) << "closures that nobody destroyed";
}

TEST_F(RandomApi, AllDevicesAtOnce) {
  EXPECT_EQ(Generator::Default(1).device(), 1);
  ManualSeedAll(9);
  EXPECT_EQ(Generator::Default(0).initial_seed(), 9u);
  EXPECT_EQ(Generator::Default(1).initial_seed(), 9u);
  Generator::Default(1).SetOffset(16);
  const auto states = GetRngStates();
  ASSERT_EQ(states.size(), 2u);
  const uint64_t seed = SeedAll();
  EXPECT_EQ(seed, Generator::Default(0).initial_seed());
  EXPECT_EQ(Generator::Default(1).initial_seed(), Generator::Default(0).initial_seed());
  SetRngStates(states);
  EXPECT_EQ(Generator::Default(0).initial_seed(), 9u);
  EXPECT_EQ(Generator::Default(1).offset(), 16u);
}

// Another process has another default generator.
TEST(DefaultGenerator, DISABLED_Child) { std::ofstream(Child::Argument()) << Generator::Default().initial_seed(); }
TEST(DefaultGenerator, DiffersBetweenProcesses) {
  std::vector<std::string> seeds;
  for (int i = 0; i < 2; ++i) {
    const std::string path = ::testing::TempDir() + "/rng_seed_" + std::to_string(::getpid()) + "_" + std::to_string(i);
    Child("DefaultGenerator.DISABLED_Child", path).Join();
    std::string seed;
    std::ifstream(path) >> seed;
    std::remove(path.c_str());
    EXPECT_FALSE(seed.empty());
    seeds.push_back(seed);
  }
  EXPECT_NE(seeds[0], seeds[1]);
}

}  // namespace
}  // namespace reprise::testing
