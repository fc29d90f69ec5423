// SPDX-License-Identifier: Apache-2.0
//
// Passes about memory: copies that may go, copies that must be made, order of writers and readers, order of nodes.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "compiler/evaluate.h"
#include "compiler/order.h"
#include "pass_testing.h"
#include "random_compiler_graph.h"
#include "scale.h"

namespace reprise::compiler {
namespace {

using reprise::testing::Loops;
using testing::ExpectNoPass;
using testing::ExpectPass;
using testing::Read;

constexpr const char* kMove = "TensorMoveDeletePass";

// ---- TensorMove ----

// x is copied, and the copy is written.
constexpr const char* kWrittenInput =
    "graph g\n"
    "x = Data() : float32 [4]\n"
    "w = Data() : float32 [4]\n"
    "copy = TensorMove(x)\n"
    "sum = AssignAdd(copy, w)\n"
    "return w, sum\n";
constexpr const char* kWrittenInPlace =
    "graph g\n"
    "x = Data() : float32 [4]\n"
    "w = Data() : float32 [4]\n"
    "sum = AssignAdd(x, w)\n"
    "return w, sum\n";

TEST(Passes, GE_061_CopiesOfInputsStayUnlessDeclared) {
  const PassRecord record = ExpectNoPass(kMove, kWrittenInput);
  ASSERT_EQ(record.refusals.size(), 1U);
  EXPECT_EQ(record.refusals[0],
            "node copy (TensorMove): its source is input 0, which nobody has declared to be reusable");
  PassOptions options;
  options.scratch_inputs = {0};
  ExpectPass(kMove, kWrittenInput, kWrittenInPlace, options);
  options.scratch_inputs = {1};
  ExpectNoPass(kMove, kWrittenInput, options);
  options = {};
  options.shared_inputs = {{0, 1}};
  ExpectPass(kMove, kWrittenInput, kWrittenInPlace, options);
  options.shared_inputs = {{0, 0}, {1, 1}};
  ExpectNoPass(kMove, kWrittenInput, options);
}

TEST(Passes, GE_062_CopiesOfConstantsStayBeforeWriters) {
  for (const char* source : {"Const() : float32 [4] = 1 ...", "Variable() : float32 [4]"}) {
    const std::string head = "graph g\nw = Data() : float32 [4]\nc = " + std::string(source) + "\n";
    ExpectPass(kMove, head + "copy = TensorMove(c)\nread = Add(copy, w)\nreturn read\n",
               head + "read = Add(c, w)\nreturn read\n");
    ExpectNoPass(kMove, head + "copy = TensorMove(c)\nwritten = AssignAdd(copy, w)\nreturn written\n");
    ExpectNoPass(kMove, head + "copy = TensorMove(c)\nwritten = AssignAdd(w, copy)\nreturn written\n");
    ExpectNoPass(kMove, head + "copy = TensorMove(c)\nreturn copy\n");
  }
}

TEST(Passes, GE_063_SiblingsReadBeforeTheWrite) {
  const std::string head =
      "graph g\n"
      "x = Data() : float32 [4]\n"
      "w = Data() : float32 [4]\n"
      "a = Abs(x)\n";
  // A reader that is not ordered comes first from now on.
  ExpectPass(kMove,
             head +
                 "copy = TensorMove(a)\n"
                 "sum = AssignAdd(copy, w)\n"
                 "read = Neg(a)\n"
                 "return sum, read\n",
             head +
                 "sum = AssignAdd(a, w) after (read)\n"
                 "read = Neg(a)\n"
                 "return sum, read\n");
  // It reads when the copy has been written.
  ExpectNoPass(kMove, head +
                          "copy = TensorMove(a)\n"
                          "sum = AssignAdd(copy, w)\n"
                          "read = Add(a, sum)\n"
                          "return read\n");
  ExpectNoPass(kMove, head +
                          "copy = TensorMove(a)\n"
                          "sum = AssignAdd(copy, w)\n"
                          "read = Neg(a) after (sum)\n"
                          "return sum, read\n");
  ExpectNoPass(kMove, head +
                          "copy = TensorMove(a)\n"
                          "sum = AssignAdd(copy, w)\n"
                          "return sum, a\n");
  // Both read.
  ExpectPass(kMove,
             head +
                 "copy = TensorMove(a)\n"
                 "r1 = Neg(copy)\n"
                 "r2 = Exp(a)\n"
                 "return r1, r2\n",
             head +
                 "r1 = Neg(a)\n"
                 "r2 = Exp(a)\n"
                 "return r1, r2\n");
  // The sibling writes: the reader of the copy has to come first already.
  const std::string copy_is_read = "copy = TensorMove(a)\nread = Neg(copy)\n";
  ExpectNoPass(kMove, head + copy_is_read + "sum = AssignAdd(a, w)\nreturn read, sum\n");
  ExpectPass(kMove, head + copy_is_read + "sum = AssignAdd(a, w) after (read)\nreturn read, sum\n",
             head + "read = Neg(a)\nsum = AssignAdd(a, w) after (read)\nreturn read, sum\n");
}

TEST(Passes, GE_063_TheSourceIsSoughtBehindWriters) {
  const std::string head =
      "graph g\n"
      "x = Data() : float32 [4]\n"
      "w = Data() : float32 [4]\n";
  ExpectNoPass(kMove, head +
                          "first = AssignAdd(x, w)\n"
                          "copy = TensorMove(first)\n"
                          "second = AssignAdd(copy, w)\n"
                          "return second\n");
  ExpectPass(kMove,
             head +
                 "a = Abs(x)\n"
                 "first = AssignAdd(a, w)\n"
                 "copy = TensorMove(first)\n"
                 "second = AssignAdd(copy, w)\n"
                 "return second\n",
             head +
                 "a = Abs(x)\n"
                 "first = AssignAdd(a, w)\n"
                 "second = AssignAdd(first, w)\n"
                 "return second\n");
  ExpectNoPass(kMove, head +
                          "a = Abs(x) notes {continuous_output = true}\n"
                          "copy = TensorMove(a)\n"
                          "b = Neg(copy)\n"
                          "return b\n");
  ExpectNoPass(kMove, head +
                          "a = Abs(x)\n"
                          "copy = TensorMove(a) notes {_cannot_be_deleted = true}\n"
                          "b = Neg(copy)\n"
                          "return b\n");
}

std::string Called(const std::string& call, const std::string& copied) {
  return "graph g\n"
         "x = Data() : float32 [4]\n"
         "p = Data() : bool []\n"
         "a = Abs(x)\n"
         "called = " +
         call + " : float32 [4]\n" + copied +
         "return result\n"
         "graph h\n"
         "i = Data() : float32 [4]\n"
         "o = Neg(i)\n"
         "return o\n";
}

TEST(Passes, GE_064_CallsAreTracedAndBranchesAreNot) {
  const char* with_copy = "copy = TensorMove(called)\nresult = Exp(copy)\n";
  ExpectPass(kMove, Called("PartitionedCall(a) calls (h)", with_copy),
             Called("PartitionedCall(a) calls (h)", "result = Exp(called)\n"));
  for (const char* call : {"If(p, a) calls (h, h)", "While(a) calls (h, h)"}) {
    const PassRecord record = ExpectNoPass(kMove, Called(call, with_copy));
    ASSERT_EQ(record.refusals.size(), 1U);
  }
  // From within.
  const auto inner = [](const std::string& call, const std::string& copied) {
    return "graph g\n"
           "x = Data() : float32 [4]\n"
           "p = Data() : bool []\n"
           "a = Abs(x)\n"
           "called = " +
           call +
           " : float32 [4]\n"
           "return called\n"
           "graph h\n"
           "i = Data() : float32 [4]\n" +
           copied + "return o\n";
  };
  ExpectPass(kMove, inner("PartitionedCall(a) calls (h)", "copy = TensorMove(i)\no = Neg(copy)\n"),
             inner("PartitionedCall(a) calls (h)", "o = Neg(i)\n"));
  ExpectNoPass(kMove, inner("PartitionedCall(x) calls (h)", "copy = TensorMove(i)\no = Neg(copy)\n"));
  ExpectNoPass(kMove, inner("If(p, a) calls (h, h)", "copy = TensorMove(i)\no = Neg(copy)\n"));
}

// ---- Guards ----

TEST(Passes, GE_065_WritersOfConstantsGetACopy) {
  ExpectPass("MemoryConflictPass",
             "graph g\n"
             "w = Data() : float32 [4]\n"
             "c = Const() : float32 [4] = 1 ...\n"
             "v = Variable() : float32 [4]\n"
             "a = AssignAdd(c, w)\n"
             "b = AssignAdd(v, w)\n"
             "r = Abs(c)\n"
             "return a, b, r\n",
             "graph g\n"
             "w = Data() : float32 [4]\n"
             "c = Const() : float32 [4] = 1 ...\n"
             "v = Variable() : float32 [4]\n"
             "c_copy = Identity(x = c) notes {_cannot_be_deleted = true, no_need_constant_folding = true}\n"
             "a = AssignAdd(c_copy, w)\n"
             "b = AssignAdd(v, w)\n"
             "r = Abs(c)\n"
             "return a, b, r\n");
}

TEST(Passes, GE_065_CollectivesGetACopyOfWhatOthersRead) {
  const std::string reduce = "{reduction = \"sum\", group = \"g\"} notes {_input_mutable = true}\n";
  const std::string mark = " notes {_cannot_be_deleted = true, no_need_constant_folding = true}\n";
  const std::string head =
      "graph g\n"
      "x = Data() : float32 [4]\n"
      "v = Variable() : float32 [4]\n"
      "a = Abs(x)\n"
      "b = Neg(x)\n"
      "r = Exp(b)\n";
  ExpectPass("MemoryConflictPass",
             head + "one = HcomAllReduce(a) " + reduce + "two = HcomAllReduce(b) " + reduce +
                 "three = HcomAllReduce(v) " + reduce + "return one, two, three, r\n",
             head + "b_copy = Identity(x = b)" + mark + "v_copy = Identity(x = v)" + mark + "one = HcomAllReduce(a) " +
                 reduce + "two = HcomAllReduce(b_copy) " + reduce + "three = HcomAllReduce(v_copy) " + reduce +
                 "return one, two, three, r\n");
}

TEST(Passes, GE_065_CopiesSurviveAllPasses) {
  const auto graph = Read(
      "graph g\n"
      "w = Data() : float32 [4]\n"
      "c = Const() : float32 [4] = 1 ...\n"
      "a = AssignAdd(c, w)\n"
      "return a, w\n");
  for (int run = 0; run < 3; ++run) {
    ASSERT_TRUE(RunPasses(*graph, {}, nullptr).ok());
    EXPECT_NE(graph->Find("c_copy"), kNoNode);
    EXPECT_NE(graph->Find("w_copy"), kNoNode) << "input 0 is result 1";
    EXPECT_EQ(graph->nodes.size(), 5U) << ToText(*graph);
  }
}

constexpr const char* kWritingBranches =
    "\n"
    "graph yes\n"
    "a = Data() : float32 [4]\n"
    "b = Data() : float32 [4]\n"
    "s = AssignAdd(a, b)\n"
    "return s\n"
    "\n"
    "graph no\n"
    "a = Data() : float32 [4]\n"
    "b = Data() : float32 [4]\n"
    "s = Sub(a, b)\n"
    "return s\n";

TEST(Passes, GE_065_BranchesThatWriteGetACopyOfWhatOthersRead) {
  const std::string mark = " notes {_cannot_be_deleted = true, no_need_constant_folding = true}\n";
  const std::string head =
      "graph g\n"
      "p = Data() : bool []\n"
      "x = Data() : float32 [4]\n"
      "a = Abs(x)\n"
      "b = Exp(x)\n";
  // What a branch only reads is shared; what nobody else reads may be written.
  ExpectPass("MemoryConflictPass",
             head + "i = If(p, a, b) calls (yes, no) : output0 float32 [4]\n" +
                 "j = If(p, b, a) calls (no, no) : output0 float32 [4]\nreturn i, j\n" + kWritingBranches,
             head + "a_copy = Identity(x = a)" + mark + "i = If(p, a_copy, b) calls (yes, no) : output0 float32 [4]\n" +
                 "j = If(p, b, a) calls (no, no) : output0 float32 [4]\nreturn i, j\n" + kWritingBranches);
  ExpectNoPass("MemoryConflictPass",
               head + "i = If(p, a, b) calls (yes, no) : output0 float32 [4]\nreturn i, b\n" + kWritingBranches);
}

TEST(Passes, GE_065_LoopsWhoseResultsAreWrittenGetACopy) {
  const std::string mark = " notes {_cannot_be_deleted = true, no_need_constant_folding = true}\n";
  const std::string loop =
      "\n"
      "graph on\nn = Data() : int32 []\nx = Data() : float32 [4]\ny = Data() : float32 [4]\n"
      "zero = Const() : int32 [] = 0\nc = Greater(n, zero)\nreturn c\n"
      "\n"
      "graph body\nn = Data() : int32 []\nx = Data() : float32 [4]\ny = Data() : float32 [4]\n"
      "one = Const() : int32 [] = 1\nm = Sub(n, one)\nz = Add(x, y)\nreturn m, z, y\n";
  const std::string head = "graph g\nn = Data() : int32 []\nx = Data() : float32 [4]\ny = Data() : float32 [4]\n";
  const std::string outputs = " calls (on, body) : output0 int32 [], output1 float32 [4], output2 float32 [4]\n";
  ExpectPass("MemoryConflictPass", head + "w = While(n, x, y)" + outputs + "s = AssignAdd(w:1, w:2)\nreturn s\n" + loop,
             head + "x_copy = Identity(x = x)" + mark + "w = While(n, x_copy, y)" + outputs +
                 "s = AssignAdd(w:1, w:2)\nreturn s\n" + loop);
}

TEST(Passes, GE_066_InputsThatAreOtherResultsAreCopied) {
  ExpectPass("MemoryConflictPass",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "w = Data() : float32 [4]\n"
             "return x, x, w\n",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "w = Data() : float32 [4]\n"
             "x_copy = Identity(x = x) notes {_cannot_be_deleted = true, no_need_constant_folding = true}\n"
             "w_copy = Identity(x = w) notes {_cannot_be_deleted = true, no_need_constant_folding = true}\n"
             "return x, x_copy, w_copy\n");
}

TEST(Passes, GE_067_InPlaceOnlyWhereNobodyElseReads) {
  ExpectPass("InplacePass",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "m = Data() : float32 [4, 4]\n"
             "c = Const() : float32 [4] = 1 ...\n"
             "one = Const() : float32 [1] = 1\n"
             "a = Abs(x)\n"
             "b = Neg(a)\n"
             "from_c = Exp(c)\n"
             "second = Add(x, b)\n"
             "shared = Sqrt(second)\n"
             "user = Sqrt(second)\n"
             "both = Mul(shared, shared)\n"
             "wider = Add(user, m)\n"
             "product = MatMulV2(wider, m)\n"
             "cast = Cast(product) {dst_type = float16}\n"
             "result = Relu(b2)\n"
             "b2 = Abs(m)\n"
             "return from_c, both, cast, result, b2\n",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "m = Data() : float32 [4, 4]\n"
             "c = Const() : float32 [4] = 1 ...\n"
             "one = Const() : float32 [1] = 1\n"
             "a = Abs(x)\n"
             "b = Neg(a) notes {_inplace_support_input_index = 0}\n"
             "from_c = Exp(c)\n"
             "second = Add(x, b) notes {_inplace_support_input_index = 1}\n"
             "shared = Sqrt(second)\n"
             "user = Sqrt(second)\n"
             "both = Mul(shared, shared)\n"
             "wider = Add(user, m)\n"
             "product = MatMulV2(wider, m)\n"
             "cast = Cast(product) {dst_type = float16}\n"
             "result = Relu(b2)\n"
             "b2 = Abs(m)\n"
             "return from_c, both, cast, result, b2\n");
}

// ---- Writers and readers ----

TEST(Passes, WritersAndReadersKeepTheOrderOfTheProgram) {
  ExpectPass("WriteOrderPass",
             "graph g\n"
             "x = RefData() : float32 [4]\n"
             "w = Data() : float32 [4]\n"
             "before = Abs(x)\n"
             "first = AssignAdd(x, w)\n"
             "between = Neg(x)\n"
             "behind = Exp(first)\n"
             "second = Assign(first, w)\n"
             "last = Relu(x)\n"
             "other = Sqrt(w)\n"
             "return before, between, behind, second, last, other\n",
             "graph g\n"
             "x = RefData() : float32 [4]\n"
             "w = Data() : float32 [4]\n"
             "before = Abs(x)\n"
             "first = AssignAdd(x, w) after (before)\n"
             "between = Neg(x) after (first)\n"
             "behind = Exp(first)\n"
             "second = Assign(first, w) after (between, behind)\n"
             "last = Relu(x) after (second)\n"
             "other = Sqrt(w)\n"
             "return before, between, behind, second, last, other\n");
}

TEST(Passes, CollectivesKeepTheOrderOfTheProgram) {
  ExpectPass("CollectiveOrderPass",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "one = HcomAllReduce(x) {reduction = \"sum\", group = \"w\"}\n"
             "two = HcomAllReduce(one) {reduction = \"sum\", group = \"w\"}\n"
             "y = Abs(x)\n"
             "sent = HcomSend(y) {group = \"w\", sr_tag = 0, dest_rank = 1}\n"
             "three = HcomAllReduce(x) {reduction = \"max\", group = \"v\"}\n"
             "return two, three\n",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "one = HcomAllReduce(x) {reduction = \"sum\", group = \"w\"}\n"
             "two = HcomAllReduce(one) {reduction = \"sum\", group = \"w\"}\n"
             "y = Abs(x)\n"
             "sent = HcomSend(y) {group = \"w\", sr_tag = 0, dest_rank = 1} after (two)\n"
             "three = HcomAllReduce(x) {reduction = \"max\", group = \"v\"} after (sent)\n"
             "return two, three\n");
}

TEST(Passes, FusionsLeaveReadersOfWhatIsWritten) {
  const PassRecord record = ExpectNoPass("SwishFusionPass",
                                         "graph g\n"
                                         "x = RefData() : float32 [4]\n"
                                         "w = Data() : float32 [4]\n"
                                         "s = Sigmoid(x)\n"
                                         "y = Mul(x, s)\n"
                                         "written = Assign(x, w) after (s, y)\n"
                                         "return y, written\n");
  ASSERT_EQ(record.refusals.size(), 1U);
  EXPECT_NE(record.refusals[0].find("written, which writes memory"), std::string::npos) << record.refusals[0];
}

// ---- Random graphs whose nodes write memory ----

// Runs a graph in an order, with memory that is shared where the graph says that it may be. Returns the results, then
// what became of the inputs.
class Machine {
 public:
  using Memory = std::shared_ptr<std::string>;

  Machine(const Graph& graph, bool shares) : graph_(graph), shares_(shares) {}

  std::vector<std::string> Run(const std::vector<NodeId>& order, const std::vector<ConstantPtr>& inputs) {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      memory_[{graph_.inputs[i], 0}] = std::make_shared<std::string>(inputs[i]->bytes);
    }
    for (const NodeId id : order) Step(id);
    std::vector<std::string> values;
    for (const Port& port : graph_.results) values.push_back(*At(port));
    for (const NodeId id : graph_.inputs) values.push_back(*At({id, 0}));
    return values;
  }

 private:
  Memory& At(Port port) { return memory_[{port.node, port.output}]; }

  void Step(NodeId id) {
    const Node& node = graph_.at(id);
    if (node.kind == NodeKind::kData) return;
    if (node.kind == NodeKind::kConstant) {
      At({id, 0}) = std::make_shared<std::string>(node.constant->bytes);
      return;
    }
    const bool is_alias =
        HasNote(node, "_no_task") || (node.type == "Identity" && !HasNote(node, "_cannot_be_deleted"));
    if (shares_ && is_alias) {
      At({id, 0}) = At(node.inputs[0].source);
      return;
    }
    std::vector<ConstantPtr> arguments;
    for (const Input& input : node.inputs) {
      const Tensor& tensor = graph_.TensorOf(input.source);
      auto value = std::make_shared<Constant>();
      value->dtype = tensor.dtype;
      value->shape = tensor.shape.numbers();
      value->bytes = *At(input.source);
      arguments.push_back(std::move(value));
    }
    std::vector<ConstantPtr> values;
    if (ConstantPtr size = DimensionOf(graph_, id, 0); size != nullptr) {
      values.push_back(std::move(size));
    } else {
      StatusOr<std::vector<ConstantPtr>> computed = EvaluateNode(graph_, id, arguments);
      ASSERT_TRUE(computed.ok()) << std::move(computed).status().detail().what;
      values = std::move(computed).value();
    }
    for (uint32_t i = 0; i < values.size(); ++i) At({id, i}) = std::make_shared<std::string>(values[i]->bytes);
    for (const auto& [input, output] : WrittenInputs(graph_, id)) {
      // Nobody sees a constant change.
      if (graph_.at(node.inputs[input].source.node).kind != NodeKind::kConstant) {
        Overwrite({id, output}, node.inputs[input].source);
      } else {
        EXPECT_FALSE(shares_) << node.name << " writes a constant";
      }
    }
    if (const auto* input = FindNote(node, "_inplace_support_input_index"); shares_ && input != nullptr) {
      Overwrite({id, 0}, node.inputs[static_cast<size_t>(std::get<int64_t>(*input))].source);
    }
  }

  void Overwrite(Port output, Port input) {
    *At(input) = *At(output);
    At(output) = At(input);
  }

  const Graph& graph_;
  const bool shares_;
  std::map<std::pair<NodeId, uint32_t>, Memory> memory_;
};

TEST(RandomPasses, WritersAndReadersSeeWhatTheProgramSays) {
  PassRecords records;
  for (int run = 0; run < Loops(reprise::testing::InForm(400), 60); ++run) {
    testing::RandomGraph made(static_cast<uint32_t>(run), testing::kWithWriters);
    const std::unique_ptr<Graph> graph = made.Take();
    const std::vector<ConstantPtr> inputs = made.Inputs(*graph);
    const std::string text = ToText(*graph);
    const std::vector<NodeId> program = TopologicalOrder(*graph);
    std::vector<std::string> before = Machine(*graph, false).Run(program, inputs);
    PassOptions options;
    options.graph_fusions["ALL"] = options.buffer_fusions["ALL"] = false;
    options.level = run % 5 == 0 ? Level::kO1 : Level::kO3;
    options.order = static_cast<OrderMode>(run % 4);
    if (run % 2 == 0) options.scratch_inputs = {0};
    const Status status = RunPasses(*graph, options, &records);
    ASSERT_TRUE(status.ok()) << status.detail().what << "\n" << text;
    for (const int mode : {0, 1, 2, 3}) {
      const std::vector<NodeId> order = OrderOf(*graph, static_cast<OrderMode>(mode)).value();
      std::vector<std::string> behind = Machine(*graph, true).Run(order, inputs);
      ASSERT_EQ(before.size(), behind.size());
      if (run % 2 == 0) before[graph->results.size()] = behind[graph->results.size()];  // scratch
      ASSERT_TRUE(before == behind) << "run " << run << ", order " << mode << ":\n"
                                    << text << "\nbecame\n"
                                    << ToText(*graph, Notes::kShow);
    }
  }
  for (const char* pass : {"WriteOrderPass", "TensorMoveDeletePass", "MemoryConflictPass", "InplacePass"}) {
    EXPECT_GT(records[pass].changed, 0U) << pass;
  }
}

// ---- Orders ----

bool IsInOrder(const Graph& graph, const std::vector<NodeId>& order) {
  std::vector<size_t> place(graph.nodes.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i + 1;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (place[id] == 0) return false;
    for (const Input& input : graph.at(id).inputs) {
      if (place[input.source.node] >= place[id]) return false;
    }
    for (const NodeId first : graph.at(id).after) {
      if (place[first] >= place[id]) return false;
    }
  }
  return true;
}

TEST(Order, GE_068_AllModesGiveValidOrders) {
  std::mt19937 random(11);
  for (int run = 0; run < Loops(300, 50); ++run) {
    Graph graph;
    std::vector<NodeId> level;
    const auto count = static_cast<NodeId>(1 + random() % 30);
    for (NodeId i = 0; i < count; ++i) level.push_back(i);
    std::shuffle(level.begin(), level.end(), random);  // the order of the names, not of the edges
    for (NodeId i = 0; i < count; ++i) {
      Node node;
      node.name = "n" + std::to_string(i);
      node.type = "Unknown";
      node.outputs.emplace_back();
      graph.nodes.push_back(std::move(node));
    }
    for (size_t then = 1; then < count; ++then) {
      for (size_t edge = 0; edge < random() % 4; ++edge) {
        const NodeId first = level[random() % then];
        if (random() % 3 == 0) {
          graph.at(level[then]).after.push_back(first);
        } else {
          graph.at(level[then]).inputs.push_back({"", {first, 0}});
        }
      }
    }
    graph.results = {{level.back(), 0}};
    for (const OrderMode mode :
         {OrderMode::kBreadthFirst, OrderMode::kDepthFirst, OrderMode::kReverseDepthFirst, OrderMode::kStable}) {
      StatusOr<std::vector<NodeId>> order = OrderOf(graph, mode);
      ASSERT_TRUE(order.ok());
      EXPECT_TRUE(IsInOrder(graph, *order)) << static_cast<int>(mode);
    }
    ASSERT_TRUE(Sort(graph, OrderMode::kReverseDepthFirst).ok());
    EXPECT_TRUE(Verify(graph).ok());
    if (count < 3) continue;
    graph.at(0).after.push_back(count - 1);  // with any path from 0 to the last one, a circle
    graph.at(count - 1).after.push_back(0);
    for (const int mode : {0, 1, 2, 3}) EXPECT_FALSE(OrderOf(graph, static_cast<OrderMode>(mode)).ok());
  }
}

TEST(Order, GE_068_ModesDiffer) {
  const auto graph = Read(
      "graph g\n"
      "x = Data() : float32 [4]\n"
      "a1 = Abs(x)\n"
      "b1 = Neg(x)\n"
      "a2 = Abs(a1)\n"
      "b2 = Neg(b1)\n"
      "return b2, a2\n");
  const auto names = [&](OrderMode mode) {
    std::string text;
    const std::vector<NodeId> order = OrderOf(*graph, mode).value();
    for (const NodeId id : order) text += graph->at(id).name + " ";
    return text;
  };
  EXPECT_EQ(names(OrderMode::kBreadthFirst), "x a1 b1 a2 b2 ");
  EXPECT_EQ(names(OrderMode::kDepthFirst), "x a1 a2 b1 b2 ");
  EXPECT_EQ(names(OrderMode::kReverseDepthFirst), "x b1 b2 a1 a2 ");
  EXPECT_EQ(names(OrderMode::kStable), "x a1 b1 a2 b2 ");
  Rewriter rewriter(*graph);
  Node copy;
  copy.type = "Identity";
  rewriter.InsertOnEdge({graph->Find("b2"), 0}, copy);
  EXPECT_EQ(names(OrderMode::kStable), "x a1 b1 a2 Identity b2 ") << "in front of its user";
}

}  // namespace
}  // namespace reprise::compiler
