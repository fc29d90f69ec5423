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
#include "ops/named_lowering.h"
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

  // What is not finite stands at the same places: what nobody has written is NaN here.
  static bool HasSameNonFinite(const Result& a, const Result& b) {
    const std::vector<double> one = Numbers(a);
    const std::vector<double> other = Numbers(b);
    return std::ranges::equal(one, other, [](double x, double y) {
      return std::isnan(x) ? std::isnan(y) : std::isinf(x) ? x == y : std::isfinite(y);
    });
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

// ---- Every operator by its type ----

// What is tried for the operands and attributes of an operator: shapes in turn, numbers that may be axes, sizes or
// places.
struct Attempt {
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t> value;  // of operands whose value decides the shape
  int64_t number;              // of required attributes
};

const std::vector<Attempt>& Attempts() {
  static const std::vector<Attempt> kAttempts = {
      {{{4, 6}}, {1}, 1},
      {{{4, 6}}, {0, 1}, 2},
      {{{4, 6}, {6}}, {6}, 0},
      {{{4, 6}, {6, 4}}, {24}, 1},
      {{{2, 3, 4}, {2, 4, 3}}, {0, 2, 1}, 1},
      {{{1, 4, 4, 6}, {3, 4, 2, 2}}, {1, 4, 4, 6}, 1},
      {{{2, 4, 6, 6}, {4}}, {2, 2, 3, 3}, 2},
      {{{5}, {5}}, {5}, 0},
  };
  return kAttempts;
}

std::string SizesText(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// The type that an operand gets: the first of these that it takes. Operands with one variable get one.
int32_t TypeFor(const opdef::Operand& operand, int32_t preferred) {
  for (const int32_t type : {preferred, kFloat, kInt64, kInt32, kBool, 1, 2, 4}) {
    if (operand.types().Has(type)) return type;
  }
  return -1;
}

// The operator between inputs of the graph and its results; empty where nothing can be made of it.
std::string GraphOf(const opdef::GraphOp& op, const Attempt& attempt, int32_t preferred) {
  std::string lines = "graph sweep\n";
  std::string arguments;
  size_t data = 0;
  for (const opdef::Operand& operand : op.inputs) {
    if (operand.is_optional()) continue;
    const int32_t type = TypeFor(operand, operand.is_value() ? kInt64 : preferred);
    if (type < 0) return {};
    for (int copy = 0; copy < (operand.is_list() ? 2 : 1); ++copy) {
      const std::string name = "i" + std::to_string(data++);
      if (operand.is_value()) {
        lines += name + " = Const() : " + opdef::TypeName(type) + " " +
                 SizesText({static_cast<int64_t>(attempt.value.size())}) + " = ";
        for (size_t i = 0; i < attempt.value.size(); ++i)
          lines += (i != 0 ? ", " : "") + std::to_string(attempt.value[i]);
        lines += "\n";
      } else {
        const size_t which = operand.is_list() ? 0 : std::min(data - 1, attempt.shapes.size() - 1);
        lines += name + " = Data() : " + opdef::TypeName(type) + " " + SizesText(attempt.shapes[which]) + "\n";
      }
      arguments += (arguments.empty() ? "" : ", ") + name;
    }
  }
  std::string attributes;
  for (const opdef::AttributeDef& def : op.attributes) {
    if (!def.is_required) continue;
    attributes += (attributes.empty() ? "" : ", ") + std::string(def.name) + " = ";
    const std::string number = std::to_string(attempt.number);
    switch (def.kind) {
      case opdef::AttributeKind::kBool: attributes += "false"; break;
      case opdef::AttributeKind::kFloat: attributes += "0.5"; break;
      case opdef::AttributeKind::kString: attributes += "\"mean\""; break;
      case opdef::AttributeKind::kInts: attributes += SizesText(attempt.value); break;
      case opdef::AttributeKind::kInt: attributes += number; break;
      case opdef::AttributeKind::kType: attributes += "float32"; break;
      default: return {};
    }
  }
  lines += "node = " + std::string(op.type) + "(" + arguments + ")";
  if (!attributes.empty()) lines += " {" + attributes + "}";
  lines += "\nout = Identity(node)\nreturn out";
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (op.outputs[i].is_list()) break;
    lines += ", node:" + std::to_string(i);
  }
  return lines + "\n";
}

// Small whole numbers: places and counts where they are such, and sums without rounding.
std::vector<ConstantPtr> NumbersFor(const Graph& graph, std::mt19937& random) {
  std::vector<ConstantPtr> inputs;
  for (const NodeId id : graph.inputs) {
    const Tensor& tensor = graph.at(id).outputs[0].tensor;
    std::vector<double> numbers(static_cast<size_t>(tensor.shape.elements().number()));
    for (double& number : numbers) number = static_cast<double>(random() % 4);
    inputs.push_back(MakeConstant(tensor.dtype, tensor.shape.numbers(), numbers));
  }
  return inputs;
}

TEST_F(CompilerOracle, EveryOperatorComputesTheSameOnAllLevels) {
  const bool is_whole = reprise::testing::InForm(1) > 1;
  const std::string folder = ::testing::TempDir() + "/sweep_" + std::to_string(getpid());
  size_t operators = 0;
  size_t computed = 0;
  for (const opdef::GraphOp& op : opdef::GraphOps()) {
    const bool is_repeatable =
        op.repeatability == opdef::Repeatability::kFixed || op.repeatability == opdef::Repeatability::kOrder;
    if (!is_repeatable || !ops::HasSteps(op.type) || op.outputs.empty()) continue;
    if (!is_whole && ++operators % 8 != 0) continue;
    bool is_computed = false;
    for (size_t n = 0; n < Attempts().size() && !is_computed; ++n) {
      for (const int32_t type : {kFloat, kInt32, 1}) {
        const std::string text = GraphOf(op, Attempts()[n], type);
        if (text.empty()) break;
        auto graph = FromText(text);
        ASSERT_TRUE(graph.ok()) << Told(std::move(graph).status()) << "\n" << text;
        opdef::Facts facts;
        if (!Verify(**graph).ok() || !InferShapes(**graph, facts).ok()) continue;
        const std::vector<ConstantPtr> inputs = NumbersFor(**graph, random_);
        auto evaluated = EvaluateGraph(**graph, inputs);
        if (!evaluated.ok()) continue;  // what the operator refuses is not tried
        is_computed = true;
        for (int way = 0; way < 4; ++way) {
          CompileOptions options;
          options.passes.level = way == 1 ? Level::kO1 : way == 2 ? Level::kO3 : Level::kO0;
          if (way == 3) {  // as tuning would choose
            auto bank = TuningBank::Open(folder);
            ASSERT_TRUE(bank.ok());
            const NodeId id = (*graph)->Find("node");
            ASSERT_TRUE((*bank)->Add(SplitKey(**graph, id, 0), {"split 3", 1}).ok());
            options.bank = *bank;
          }
          auto compiled = Make(**graph, options);
          EXPECT_TRUE(compiled.ok()) << Told(std::move(compiled).status()) << "\n" << text;
          if (!compiled.ok()) break;
          auto results = RunOnce(**compiled, inputs);
          EXPECT_TRUE(results.ok()) << Told(std::move(results).status()) << "\n" << text;
          if (!results.ok()) break;
          for (size_t i = 0; i < results->size(); ++i) {
            const ConstantPtr& value = (*evaluated)[i];
            const Result expected{value->dtype, value->shape, value->bytes};
            EXPECT_TRUE(IsClose(expected, (*results)[i]) && HasSameNonFinite(expected, (*results)[i]))
                << "result " << i << ", way " << way << "\n"
                << text;
          }
        }
        break;
      }
    }
    computed += is_computed ? 1 : 0;
  }
  std::filesystem::remove_all(folder);
  RecordProperty("computed", static_cast<int>(computed));
  EXPECT_GT(computed, is_whole ? 250U : 25U);
}

}  // namespace
}  // namespace reprise::compiler
