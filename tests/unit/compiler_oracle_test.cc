// SPDX-License-Identifier: Apache-2.0
//
// Random graphs: whatever a compilation chooses, results are those of the nodes one by one.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "compiler/constant.h"
#include "compiler/evaluate.h"
#include "compiler/tune.h"
#include "compiler/tuning_bank.h"
#include "compiler_run_fixture.h"
#include "random_compiler_graph.h"
#include "scale.h"

namespace reprise::compiler {
namespace {

using testing::RandomGraph;

class CompilerOracle : public CompilerRun {
 protected:
  struct Result {
    int32_t dtype;
    std::vector<int64_t> shape;
    std::string bytes;
    bool operator==(const Result&) const = default;
  };

  // Inputs and outputs lie at multiples of 4 bytes, or of what an element takes.
  void* Somewhere(uint64_t bytes, int32_t dtype) {
    const uint64_t step = std::max<uint64_t>(4, static_cast<uint64_t>(opdef::TypeBits(dtype) / 8));
    if (used_ + bytes + 128 > kArena) used_ = 0;
    const uint64_t at = (used_ + 63) / 64 * 64 + random_() % 4 * step;
    used_ = at + bytes;
    return static_cast<char*>(arena_) + at;
  }

  StatusOr<std::vector<Result>> RunOnce(Executable& executable, const std::vector<ConstantPtr>& inputs,
                                        std::vector<Result>* behind = nullptr) {
    std::vector<RunTensor> given;
    for (const ConstantPtr& input : inputs) {
      RunTensor& tensor = given.emplace_back();
      tensor.dtype = input->dtype;
      tensor.shape = input->shape;
      tensor.bytes = input->bytes.size();
      tensor.data = Somewhere(tensor.bytes, tensor.dtype);
      std::memcpy(tensor.data, input->bytes.data(), tensor.bytes);
    }
    struct Memory final : OutputAllocator {
      Memory(CompilerOracle& in_test, Executable& of) : test(in_test), executable(of) {}
      void* Allocate(size_t index, uint64_t bytes) override {
        return std::memset(test.Somewhere(bytes, executable.results()[index].dtype), 0xFF, bytes);
      }
      CompilerOracle& test;
      Executable& executable;
    } memory(*this, executable);
    // Whatever memory held before.
    const uint64_t features = executable.needs().features;
    if (executable.is_static() && features != 0) {
      std::memset(features_, 0xFF, std::min(features, kFeatures));
      if (features <= kFeatures) REPRISE_RETURN_IF_ERROR(executable.SetFeatures(features_, kFeatures));
    }
    std::vector<RunTensor> outputs(executable.graph().results.size());
    RunRequest request;
    request.inputs = given;
    request.outputs = outputs;
    request.allocator = &memory;
    auto stream = runtime::FindStream(stream_);
    if (!stream.ok()) return std::move(stream).status();
    if (Status status = executable.Run(*stream.value(), request); !status.ok()) return status;
    EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
    std::vector<Result> results;
    for (const RunTensor& output : outputs) results.push_back(Read(output));
    if (behind != nullptr) {
      for (const RunTensor& input : given) behind->push_back(Read(input));
    }
    return results;
  }

  static Result Read(const RunTensor& tensor) {
    Tensor known;
    known.dtype = tensor.dtype;
    known.shape = opdef::Shape::Of(tensor.shape);
    const int64_t elements = known.shape.elements().number();
    const auto bytes = static_cast<size_t>(elements * opdef::TypeBits(tensor.dtype) / 8);
    const auto* const data = static_cast<const char*>(tensor.data);
    return {tensor.dtype, tensor.shape, bytes == 0 ? std::string() : std::string(data, bytes)};
  }

  static std::vector<double> Numbers(const Result& result) {
    Constant constant{result.dtype, result.shape, result.bytes};
    return RealsOf(constant).value_or(std::vector<double>());
  }

  // Equal but for rounding, which fusions may do elsewhere.
  static bool IsClose(const Result& a, const Result& b) {
    if (a == b) return true;
    if (a.dtype != b.dtype || a.shape != b.shape) return false;
    const std::vector<double> one = Numbers(a);
    const std::vector<double> other = Numbers(b);
    double most = 1;
    for (const double number : one) {
      if (std::isfinite(number)) most = std::max(most, std::abs(number));
    }
    const double bound = most * (a.dtype == kFloat ? 1e-4 : 5e-2);
    for (size_t i = 0; i < one.size(); ++i) {
      // Beyond what a type holds, in one of the two.
      if (!std::isfinite(one[i]) || !std::isfinite(other[i])) continue;
      if (std::abs(one[i] - other[i]) > bound) return false;
    }
    return one.size() == other.size() && !one.empty();
  }

  void SetUp() override {
    CompilerRun::SetUp();
    arena_ = Block(kArena);
    features_ = Block(kFeatures);
  }

  StatusOr<std::shared_ptr<Executable>> Make(const Graph& graph, CompileOptions options) {
    options.validates_memory = true;
    return Executable::Compile(graph, options);
  }

  static constexpr uint64_t kArena = uint64_t{64} << 20;
  static constexpr uint64_t kFeatures = uint64_t{16} << 20;
  void* arena_ = nullptr;
  void* features_ = nullptr;
  uint64_t used_ = 0;
  std::mt19937 random_{3};
};

int Rounds() {
  const char* const cases = std::getenv("REPRISE_TEST_CASES");
  return cases != nullptr ? std::atoi(cases) : reprise::testing::InForm(reprise::testing::Loops(150, 20));
}

std::string Told(Status&& status) { return status.ok() ? "" : status.detail().what; }

void AddLabels(Graph& graph, std::mt19937& random) {
  for (Node& node : graph.nodes) {
    if (node.is_removed || node.kind != NodeKind::kOperator || random() % 3 == 0) continue;
    node.notes["_stream_label"] = "s" + std::to_string(random() % 3);
  }
}

// Some sizes of the inputs are known only to the run.
void OpenSizes(Graph& graph, std::mt19937& random) {
  for (const NodeId id : graph.inputs) {
    opdef::Shape& shape = graph.at(id).outputs[0].tensor.shape;
    if (random() % 6 == 0) {
      shape = opdef::Shape::UnknownRank();
      continue;
    }
    for (opdef::Dim& dim : shape.dims()) {
      if (random() % 2 == 0) dim = opdef::Dim::Unknown();
    }
  }
}

TEST_F(CompilerOracle, RandomGraphsComputeWhatTheirNodesDo) {
  const std::string folder = ::testing::TempDir() + "/oracle_" + std::to_string(getpid());
  const int rounds = Rounds();
  const char* const only = std::getenv("REPRISE_TEST_SEED");
  for (int round = 0; round < rounds; ++round) {
    if (only != nullptr) round = std::atoi(only);
    RandomGraph made(static_cast<uint32_t>(round), testing::kWithoutWriters, testing::kManyRows);
    const std::unique_ptr<Graph> graph = made.Take();
    const std::vector<ConstantPtr> inputs = made.Inputs(*graph);
    const std::string text = "REPRISE_TEST_SEED=" + std::to_string(round) + "\n" + ToText(*graph);
    auto evaluated = EvaluateGraph(*graph, inputs);
    ASSERT_TRUE(evaluated.ok()) << Told(std::move(evaluated).status()) << text;
    std::vector<Result> expected;
    for (const ConstantPtr& value : *evaluated) expected.push_back({value->dtype, value->shape, value->bytes});

    enum Way { kPlain, kNoReuse, kStreams, kSplits, kOpen, kLevel1, kLevel3, kWays };
    for (int way = kPlain; way < kWays; ++way) {
      SCOPED_TRACE("way " + std::to_string(way));
      CompileOptions options;
      options.passes.level = way == kLevel1 ? Level::kO1 : way == kLevel3 ? Level::kO3 : Level::kO0;
      options.reuses_memory = way != kNoReuse;
      Graph copy = *graph;
      if (way == kStreams || (way == kLevel3 && round % 2 == 0)) AddLabels(copy, random_);
      if (way == kOpen) OpenSizes(copy, random_);
      auto compiled = Make(copy, options);
      ASSERT_TRUE(compiled.ok()) << Told(std::move(compiled).status()) << "\n" << text;
      if (way == kSplits) {
        if (round % 5 != 0) continue;
        auto bank = TuningBank::Open(folder);
        ASSERT_TRUE(bank.ok());
        const Graph& planned = (*compiled)->graph();
        for (NodeId id = 0; id < planned.nodes.size(); ++id) {
          if (planned.at(id).is_removed || planned.at(id).kind != NodeKind::kOperator) continue;
          for (size_t number = 0; number < 3; ++number) {
            const std::string choice = "split " + std::to_string(random_() % 4 * (1U << random_() % 14));
            ASSERT_TRUE((*bank)->Add(SplitKey(planned, id, number), {choice, 1}).ok());
          }
        }
        options.bank = *bank;
        compiled = Make(copy, options);
        ASSERT_TRUE(compiled.ok()) << Told(std::move(compiled).status()) << "\n" << text;
      }
      for (int again = 0; again < 2; ++again) {
        auto results = RunOnce(**compiled, inputs);
        ASSERT_TRUE(results.ok()) << Told(std::move(results).status()) << "\n" << text;
        ASSERT_EQ(results->size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          const bool is_equal = way < kLevel1 ? (*results)[i] == expected[i] : IsClose(expected[i], (*results)[i]);
          ASSERT_TRUE(is_equal) << "result " << i << ": "
                                << ElementsText({expected[i].dtype, expected[i].shape, expected[i].bytes})
                                << "\nbecame "
                                << ElementsText({(*results)[i].dtype, (*results)[i].shape, (*results)[i].bytes}) << "\n"
                                << text << "\n"
                                << ToText((*compiled)->graph(), Notes::kShow);
        }
      }
    }
    if (only != nullptr) break;
  }
  std::filesystem::remove_all(folder);
}

// Operators that write their inputs: results, and what the run leaves in its inputs.
TEST_F(CompilerOracle, RandomGraphsThatWriteTheirInputs) {
  const int rounds = Rounds();
  for (int round = 0; round < rounds; ++round) {
    RandomGraph made(static_cast<uint32_t>(10000 + round), testing::kWithWriters, testing::kManyRows);
    const std::unique_ptr<Graph> graph = made.Take();
    const std::vector<ConstantPtr> inputs = made.Inputs(*graph);
    const std::string text = "seed " + std::to_string(10000 + round) + "\n" + ToText(*graph);
    std::vector<Result> expected;
    std::vector<Result> expected_inputs;
    for (int way = 0; way < 4; ++way) {
      SCOPED_TRACE("way " + std::to_string(way));
      CompileOptions options;
      options.passes.level = way < 3 ? Level::kO0 : Level::kO3;
      options.reuses_memory = way != 0;
      Graph copy = *graph;
      if (way >= 2) AddLabels(copy, random_);
      auto compiled = Make(copy, options);
      ASSERT_TRUE(compiled.ok()) << Told(std::move(compiled).status()) << "\n" << text;
      for (int again = 0; again < 2; ++again) {
        std::vector<Result> behind;
        auto results = RunOnce(**compiled, inputs, &behind);
        ASSERT_TRUE(results.ok()) << Told(std::move(results).status()) << "\n" << text;
        if (expected.empty()) {
          expected = *results;
          expected_inputs = behind;
        }
        for (size_t i = 0; i < expected.size(); ++i) {
          const bool is_equal = way < 3 ? expected[i] == (*results)[i] : IsClose(expected[i], (*results)[i]);
          ASSERT_TRUE(is_equal) << "result " << i << "\n" << text << "\n" << ToText((*compiled)->graph(), Notes::kShow);
        }
        for (size_t i = 0; i < behind.size(); ++i) {
          const bool is_equal = way < 3 ? expected_inputs[i] == behind[i] : IsClose(expected_inputs[i], behind[i]);
          ASSERT_TRUE(is_equal) << "input " << i << "\n" << text << "\n" << ToText((*compiled)->graph(), Notes::kShow);
        }
      }
    }
  }
}

}  // namespace
}  // namespace reprise::compiler
