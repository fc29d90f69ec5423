// SPDX-License-Identifier: Apache-2.0
//
// Memory and streams of compiled graphs, item by item.
#include <cmath>

#include "compiler/storage.h"
#include "compiler_run_fixture.h"

namespace reprise::compiler {
namespace {

using Floats = std::vector<float>;

class CompilerMemory : public CompilerRun {};

constexpr const char* kTwoChains =
    "graph g\nx = Data() : float32 [256]\n"
    "a = Abs(x) notes {_user_stream_label = \"left\"}\n"
    "ap = Abs(a) notes {_user_stream_label = \"left\"}\n"
    "aq = Mul(ap, a) notes {_user_stream_label = \"left\"}\n"
    "b = Neg(x) notes {_user_stream_label = \"right\"}\n"
    "bp = Abs(b) notes {_user_stream_label = \"right\"}\n"
    "bq = Mul(bp, b) notes {_user_stream_label = \"right\"}\n"
    "c = Add(aq, bq)\nreturn c\n";

// The plan of a text, without passes.
struct Planned {
  Lowered lowered;
  MemoryNeeds needs;
};
StatusOr<Planned> PlanOf(const std::string& text, bool reuses = true) {
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph, FromText(text));
  opdef::Facts facts;
  REPRISE_RETURN_IF_ERROR(InferShapes(*graph, facts));
  REPRISE_ASSIGN_OR_RETURN(Lowered lowered, Lower(*graph, false));
  CompileOptions options;
  options.reuses_memory = reuses;
  REPRISE_ASSIGN_OR_RETURN(const MemoryNeeds needs, PlanMemory(lowered, options));
  return Planned{std::move(lowered), needs};
}

std::vector<StorageId> FeaturesOf(const Planned& planned) {
  std::vector<StorageId> features;
  for (StorageId id = 0; id < planned.lowered.storages.size(); ++id) {
    if (planned.lowered.storages[id].kind == Storage::Kind::kFeature) features.push_back(id);
  }
  return features;
}

TEST_F(CompilerMemory, GE_071_WrongPlansAreFound) {
  for (const std::string& text :
       {std::string("graph g\nx = Data() : float32 [8, 8]\na = TransposeD(x) {perm = [1, 0]}\n"
                    "b = TransposeD(a) {perm = [1, 0]}\nc = Add(a, b)\nreturn c\n"),
        std::string(kTwoChains)}) {
    auto planned = PlanOf(text);
    ASSERT_TRUE(planned.ok());
    EXPECT_OK(ValidateMemory(planned->lowered, planned->needs));
    // All features at one place.
    Planned wrong = std::move(planned).value();
    for (const StorageId id : FeaturesOf(wrong)) wrong.lowered.storages[id].offset = 0;
    Status status = ValidateMemory(wrong.lowered, wrong.needs);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), 500000);
    EXPECT_NE(status.detail().what.find("share bytes at 0"), std::string::npos) << status.detail().what;
    // Out of the region; not at a multiple of 512.
    for (const uint64_t offset : {wrong.needs.features, uint64_t{4}}) {
      wrong.lowered.storages[FeaturesOf(wrong)[0]].offset = offset;
      EXPECT_FALSE(ValidateMemory(wrong.lowered, wrong.needs).ok()) << offset;
    }
  }
}

// A product of 8 rows with the numbers of a 40 x 32 weight as they lie in `rows`, by hand.
Floats ProductOf(const Floats& x, const Floats& weight, bool transposed) {
  Floats product(8 * 32, 0.0f);
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 32; ++j) {
      for (size_t k = 0; k < 40; ++k)
        product[i * 32 + j] += x[i * 40 + k] * weight[transposed ? j * 40 + k : k * 32 + j];
    }
  }
  return product;
}

TEST_F(CompilerMemory, WeightsOfProductsAreThereOnceInTheFormThatKernelsRead) {
  Floats weight(32 * 40);
  Floats x(8 * 40);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 7) - 3;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 5) - 2;
  constexpr uint64_t kForm = 40 * 32 * 4;  // as many columns as whole panels have
  for (const bool transposed : {true, false}) {
    std::string numbers;
    for (const float value : weight) numbers += (numbers.empty() ? "" : ", ") + std::to_string(static_cast<int>(value));
    const std::string shape = transposed ? "[32, 40]" : "[40, 32]";
    const std::string flag = transposed ? "true" : "false";
    const std::string graph = "graph g\nx = Data() : float32 [8, 40]\nw = Const() : float32 " + shape + " = " +
                              numbers + "\na = MatMulV2(x1 = x, x2 = w) {transpose_x2 = " + flag + "}\n" +
                              "b = Neg(x)\nc = MatMulV2(x1 = b, x2 = w) {transpose_x2 = " + flag + "}\n";
    EXPECT_OK(Compile(graph + "return a, c\n"));
    EXPECT_EQ(executable_->needs().constants, kForm) << "one form for both, nothing else";
    const Floats expected = ProductOf(x, weight, transposed);
    const auto out = Run({In(x, {8, 40})});
    EXPECT_EQ(Values(out[0]), expected);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(Values(out[1])[i], -expected[i]);

    EXPECT_OK(Compile(graph + "d = Abs(w)\nd2 = Neg(d)\nreturn a, c, d2\n", [] {
      CompileOptions options;
      options.passes.folds_constants = false;
      return options;
    }()));
    EXPECT_EQ(executable_->needs().constants, kForm + weight.size() * 4) << "others read the weight";
    EXPECT_EQ(Values(Run({In(x, {8, 40})})[0]), expected);
  }
}

// Few rows read a weight as it is; a weight that is an input may change.
TEST_F(CompilerMemory, WeightsThatAreNoConstantsOrForFewRowsStayAsTheyAre) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [8, 2]\nw = Data() : float32 [2, 16]\ny = MatMulV2(x1 = x, x2 = w)\n"
              "return y\n"));
  Floats rows(32, 1.0f);
  const RunTensor w = In(rows, {2, 16});
  const RunTensor x = In(Floats(16, 1.0f), {8, 2});
  EXPECT_EQ(Values(Run({x, w})[0]), Floats(128, 2.0f));
  static_cast<float*>(w.data)[0] = 5;
  EXPECT_EQ(Values(Run({x, w})[0])[0], 6.0f);

  std::string numbers = "1";
  for (int i = 1; i < 32; ++i) numbers += ", 1";
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [2, 2]\nw = Const() : float32 [2, 16] = " + numbers +
                    "\ny = MatMulV2(x1 = x, x2 = w)\nreturn y\n"));
  EXPECT_EQ(executable_->needs().constants, 512U);
  EXPECT_EQ(Values(Run({In({1, 2, 3, 4}, {2, 2})})[0])[16], 7.0f);
}

TEST_F(CompilerMemory, GE_072_AChainNeedsTwoBlocksAtMost) {
  std::string text = "graph g\nx = Data() : float32 [512]\nn0 = Abs(x)\n";
  for (int i = 0; i < 20; ++i) text += "n" + std::to_string(i + 1) + " = Add(n" + std::to_string(i) + ", x)\n";
  text += "return n20\n";
  CompileOptions options;
  EXPECT_OK(Compile(text, options));
  EXPECT_LE(executable_->needs().features, 2 * 2048U);
  options.reuses_memory = false;
  EXPECT_OK(Compile(text, options));
  EXPECT_EQ(executable_->needs().features, 20 * 2048U);
}

TEST_F(CompilerMemory, GE_073_StreamsShareNoBlockWithoutAnEvent) {
  auto planned = PlanOf(kTwoChains);
  ASSERT_TRUE(planned.ok());
  const Lowered& lowered = planned->lowered;
  for (const StorageId a : FeaturesOf(*planned)) {
    for (const StorageId b : FeaturesOf(*planned)) {
      const Storage& one = lowered.storages[a];
      const Storage& other = lowered.storages[b];
      ASSERT_FALSE(one.touches.empty());
      const bool are_apart = one.touches[0].stream != other.touches[0].stream;
      EXPECT_TRUE(!are_apart || one.offset != other.offset);
    }
  }
  // With an event between the streams the second one takes over what the first has left.
  auto ordered = PlanOf(
      "graph g\nx = Data() : float32 [16, 16]\n"
      "a = TransposeD(x) {perm = [1, 0]} notes {_stream_label = \"l\"}\n"
      "b = TransposeD(a) {perm = [1, 0]} notes {_stream_label = \"l\"}\n"
      "c = TransposeD(b) {perm = [1, 0]} notes {_stream_label = \"r\"}\n"
      "d = TransposeD(c) {perm = [1, 0]} notes {_stream_label = \"r\"}\nreturn d\n");
  ASSERT_TRUE(ordered.ok());
  EXPECT_EQ(ordered->needs.features, 2 * 1024U) << "c lies where a was";
}

TEST_F(CompilerMemory, GE_074_PlacesAreMultiplesOf512AndInputsAreNoFeatures) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [1000]\nw = Const() : float32 [3] = 1, 2, 3\n"
              "k = Const() : float32 [1000] = 2 ...\na = Mul(x, k)\ns = Const() : int64 [1] = 0\n"
              "t = ReduceSum(a, s) {keep_dims = true}\nu = Mul(w, t)\nreturn u, a\n"));
  EXPECT_EQ(executable_->needs().constants % 512, 0U);
  EXPECT_EQ(executable_->needs().features % 512, 0U);
  EXPECT_LE(executable_->needs().features, 8192U) << "neither the input nor the result of 4000 bytes";
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [1000]\na = Neg(x)\nreturn a\n"));
  EXPECT_EQ(executable_->needs().features, 0U);
}

// Whatever features and outputs held before: sums begin with zero.
TEST_F(CompilerMemory, GE_076_OperatorsThatAddBeginWithZero) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [64, 48]\nw = Data() : float32 [48, 40]\n"
              "p = MatMulV2(x1 = x, x2 = w)\na = Const() : int64 [1] = 0\n"
              "s = ReduceSum(p, a) {keep_dims = false}\nc = Cumsum(p, a)\n"
              "r = ReduceMean(c, a) {keep_dims = true}\nreturn s, r\n"));
  ASSERT_GT(executable_->needs().features, 0U);
  void* const features = Block(executable_->needs().features);
  EXPECT_OK(executable_->SetFeatures(features, executable_->needs().features));
  std::vector<Floats> expected;
  for (const int fill : {0, 0xFF, 0x7F}) {
    std::memset(features, fill, executable_->needs().features);
    std::vector<RunTensor> outputs(2);
    for (RunTensor& output : outputs) {
      output.bytes = 64 * 48 * 4;
      output.data = Block(output.bytes);
      std::memset(output.data, fill, output.bytes);
    }
    EXPECT_OK(Queue({In(Floats(64 * 48, 0.5F), {64, 48}), In(Floats(48 * 40, 0.25F), {48, 40})}, outputs));
    ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
    EXPECT_EQ(Values(outputs[0])[0], 64 * 48 * 0.125F);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (fill == 0) expected.push_back(Values(outputs[i]));
      EXPECT_EQ(Values(outputs[i]), expected[i]) << i;
    }
  }
}

TEST_F(CompilerMemory, GE_080_EachLabelIsAStream) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [4]\n"
              "a = Abs(x) notes {_user_stream_label = \"one\", _user_stream_priority = \"3\"}\n"
              "b = Neg(x) notes {_user_stream_label = \"two\", _stream_label = \"other\"}\n"
              "c = Neg(a) notes {_user_stream_label = \"one\"}\n"
              "d = Add(b, c) notes {_stream_label = \"three\"}\nreturn d\n"));
  const auto streams = executable_->logical_streams();
  ASSERT_EQ(streams.size(), 4U);
  std::vector<std::string> labels;
  for (const LogicalStream& stream : streams) labels.push_back(stream.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"", "one", "two", "three"}));
  EXPECT_EQ(streams[1].nodes.size(), 2U);
  EXPECT_EQ(streams[1].priority, "3");
  EXPECT_EQ(streams[2].priority, "");
}

TEST_F(CompilerMemory, GE_081_OneStreamWithoutLabels) {
  CompileOptions options;
  options.has_single_stream = true;
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [4]\na = Abs(x)\nb = Neg(x)\nc = Add(a, b)\nreturn c\n", options));
  EXPECT_EQ(executable_->streams(), 1U);
  EXPECT_EQ(executable_->events(), 0U);
  const Status status = Compile(kTwoChains, options);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.detail().what.find("left"), std::string::npos) << status.detail().what;
}

TEST_F(CompilerMemory, GE_082_EventsStandWhereStreamsMeetAndNowhereElse) {
  auto planned = PlanOf(kTwoChains);
  ASSERT_TRUE(planned.ok());
  const TaskOrder& order = planned->lowered.order;
  EXPECT_EQ(order.events(), 2U) << "one from each label to the last node";
  const auto last = order.size() - 1;
  for (uint32_t task = 0; task < last; ++task) EXPECT_TRUE(order.IsBefore(task, last)) << task;
  for (uint32_t a = 0; a < last; ++a) {
    for (uint32_t b = 0; b < last; ++b) {
      EXPECT_TRUE(order.stream_of(a) == order.stream_of(b) || !order.IsBefore(a, b));
    }
  }
  EXPECT_OK(Compile(kTwoChains));
  for (int again = 0; again < 50; ++again) {
    EXPECT_EQ(Values(Run({In(Floats(256, -3), {256})})[0]), Floats(256, 9 + 9));
  }
}

// A result that is memory which others write is read when all have written it, on whichever stream.
TEST_F(CompilerMemory, GE_082_ResultsAreReadBehindAllWriters) {
  auto planned = PlanOf(
      "graph g\nx = Data() : float32 [4]\nt = Data() : float32 [4]\n"
      "a = AssignAdd(ref = t, value = x) notes {_stream_label = \"one\"}\n"
      "b = AssignAdd(ref = a, value = x) notes {_stream_label = \"two\"}\nreturn a\n");
  ASSERT_TRUE(planned.ok());
  const TaskOrder& order = planned->lowered.order;
  ASSERT_EQ(order.size(), 3U);
  EXPECT_TRUE(order.IsBefore(1, 2)) << "the copy of a waits for b";
}

// Pieces and other shapes of a tensor are copies where somebody writes one of the two.
TEST_F(CompilerMemory, GE_075_PiecesOfWrittenMemoryAreCopies) {
  EXPECT_OK(
      Compile("graph g\nv = Data() : float32 [4]\nx = Data() : float32 [4]\n"
              "z = Const() : int64 [2] = 2, 2\nd = Const() : int64 [1] = 0\n"
              "s = SplitV(v, z, d) {num_split = 2} : y0 float32 [2], y1 float32 [2]\n"
              "a = AssignAdd(ref = v, value = x)\ny = Abs(s:1)\nreturn s:0, y\n"));
  const RunTensor v = In({1, 2, 3, 4}, {4});
  const auto out = Run({v, In({10, 10, 10, 10}, {4})});
  EXPECT_EQ(Values(out[0]), (Floats{1, 2}));
  EXPECT_EQ(Values(out[1]), (Floats{3, 4}));
  EXPECT_EQ(Values(v), (Floats{11, 12, 13, 14}));
  EXPECT_OK(
      Compile("graph g\nv = Data() : float32 [4]\nx = Data() : float32 [2, 2]\n"
              "n = Const() : int64 [2] = 2, 2\nr = Reshape(v, n)\na = AssignAdd(ref = r, value = x)\nreturn a\n"));
  const RunTensor w = In({1, 2, 3, 4}, {4});
  EXPECT_EQ(Values(Run({w, In({10, 10, 10, 10}, {2, 2})})[0]), (Floats{11, 12, 13, 14}));
  EXPECT_EQ(Values(w), (Floats{1, 2, 3, 4}));
}

TEST_F(CompilerMemory, StatisticsOfRowsWithoutElements) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [2, 0]\ng = Data() : float32 [0]\nn = Const() : int64 [1] = 0\n"
              "r = RmsNorm(x, g) : y float32 [2, 0], rstd float32 [2, 1]\n"
              "l = LayerNormV4(x, n, g, g) : y float32 [2, 0], mean float32 [2, 1], rstd float32 [2, 1]\n"
              "return r:1, l:1, l:2\n"));
  const auto out = Run({In(Floats{}, {2, 0}), In(Floats{}, {0})});
  for (const size_t i : {size_t{0}, size_t{2}}) {
    ASSERT_EQ(Values(out[i]).size(), 2U);
    for (const float value : Values(out[i])) EXPECT_TRUE(std::isnan(value)) << i;
  }
  EXPECT_EQ(Values(out[1]), (Floats{0, 0}));
}

}  // namespace
}  // namespace reprise::compiler
