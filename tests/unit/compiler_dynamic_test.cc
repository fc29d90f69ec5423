// SPDX-License-Identifier: Apache-2.0
//
// Compiled graphs whose shapes, branches and trip counts depend on data.
#include <algorithm>
#include <numeric>

#include "compiler_run_fixture.h"
#include "scale.h"

namespace reprise::compiler {
namespace {

class CompilerDynamic : public CompilerRun {};

using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;

Longs Shape(std::initializer_list<int64_t> sizes) { return Longs(sizes); }

TEST_F(CompilerDynamic, GE_086_NonZeroGivesTheShapeOfWhatFollows) {
  for (const std::string size : {"4", "?"}) {
    EXPECT_OK(Compile("graph g\nx = Data() : float32 [" + size +
                      "]\n"
                      "i = NonZero(x)\n"
                      "axes = Const() : int64 [1] = 1\n"
                      "f = Squeeze(i) {axis = [1]}\n"
                      "axis = Const() : int64 [1] = 0\n"
                      "y = GatherV2(x, f, axis)\n"
                      "z = Abs(y)\n"
                      "n = Shape(z) {dtype = 9}\n"
                      "return i, z, n\n"));
    EXPECT_FALSE(executable_->is_static());
    const auto out = Run({In({0, -2, 0, 4}, {4})});
    EXPECT_EQ(out[0].shape, Shape({2, 1})) << size;
    EXPECT_EQ(Values<int64_t>(out[0]), (Longs{1, 3}));
    EXPECT_EQ(out[1].shape, Shape({2}));
    EXPECT_EQ(Values(out[1]), (Floats{2, 4}));
    EXPECT_EQ(Values<int64_t>(out[2]), (Longs{2}));
    const auto none = Run({In({0, 0, 0, 0}, {4})});
    EXPECT_EQ(none[0].shape, Shape({0, 1}));
    EXPECT_EQ(none[1].shape, Shape({0}));
    EXPECT_EQ(Values<int64_t>(none[2]), (Longs{0}));
    const auto all = Run({In({1, 2, 3, 4}, {4})});
    EXPECT_EQ(Values(all[1]), (Floats{1, 2, 3, 4}));
  }
}

TEST_F(CompilerDynamic, GE_086_TransposedIndicesLieBackToBack) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [?, ?]\ni = NonZero(x) {transpose = true}\n"
              "one = Const() : int64 [1] = 1\nj = Add(i, one)\nw = Where(x)\nreturn i, j, w\n"));
  const auto out = Run({In({0, 2, 0, 4, 0, 0}, {2, 3})});
  EXPECT_EQ(out[0].shape, Shape({2, 2}));
  EXPECT_EQ(Values<int64_t>(out[0]), (Longs{0, 1, 1, 0}));
  EXPECT_EQ(Values<int64_t>(out[1]), (Longs{1, 2, 2, 1}));
  EXPECT_EQ(out[2].shape, Shape({2, 2}));
  EXPECT_EQ(Values<int64_t>(out[2]), (Longs{0, 1, 1, 0}));
  const auto none = Run({In(Floats{}, {0, 3})});
  EXPECT_EQ(none[0].shape, Shape({2, 0}));
  EXPECT_EQ(none[2].shape, Shape({0, 2}));
  const auto scalar = Run({In({0, 0, 5}, {1, 3})});
  EXPECT_EQ(Values<int64_t>(scalar[1]), (Longs{1, 3}));
}

TEST_F(CompilerDynamic, GE_086_UniqueAndWhatFollows) {
  for (const std::string size : {"6", "?"}) {
    EXPECT_OK(Compile("graph g\nx = Data() : float32 [" + size +
                      "]\nu = Unique(x)\n"
                      "axes = Const() : int64 [1] = 0\n"
                      "s = ReduceSum(u:0, axes) {keep_dims = false}\nn = Neg(u:0)\nz = NonZero(n)\n"
                      "return u:0, u:1, s, n, z\n"));
    const auto out = Run({In({3, 0, 3, 2, 0, 3}, {6})});
    Floats sorted = Values(out[0]);
    ASSERT_EQ(sorted.size(), 3U) << size;
    const auto places = Values<int32_t>(out[1]);
    ASSERT_EQ(places.size(), 6U);
    const Floats x = {3, 0, 3, 2, 0, 3};
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(sorted[static_cast<size_t>(places[i])], x[i]);
    EXPECT_EQ(Values(out[2]), (Floats{5}));
    EXPECT_EQ(out[3].shape, Shape({3}));
    EXPECT_EQ(out[4].shape, Shape({2, 1})) << "a second such operator behind the first";
  }
}

TEST_F(CompilerDynamic, GE_086_TwoAtOnceAndOneInABranch) {
  EXPECT_OK(
      Compile("graph g\n"
              "p = Data() : bool []\n"
              "x = Data() : float32 [?]\n"
              "y = Data() : float32 [4]\n"
              "a = NonZero(x)\n"
              "b = NonZero(y)\n"
              "c = ConcatD(a, b) {concat_dim = 0, N = 2}\n"
              "i = If(p, x) calls (yes, no) : output0 int64 [?, 1]\n"
              "d = ConcatD(c, i) {concat_dim = 0, N = 2}\n"
              "return c, d, x\n"
              "\n"
              "graph yes\nv = Data() : float32 [?]\nw = NonZero(v)\nreturn w\n"
              "\n"
              "graph no\nv = Data() : float32 [?]\nn = Abs(v)\nu = Sub(n, v)\nw = NonZero(u)\nreturn w\n"));
  const RunTensor y = In({1, 0, 0, 1}, {4});
  const auto yes = Run({In(std::vector<uint8_t>{1}, {}, kBool), In({0, -1, 5}, {3}), y});
  EXPECT_EQ(Values<int64_t>(yes[0]), (Longs{1, 2, 0, 3}));
  EXPECT_EQ(Values<int64_t>(yes[1]), (Longs{1, 2, 0, 3, 1, 2}));
  EXPECT_EQ(Values(yes[2]), (Floats{0, -1, 5}));
  const auto no = Run({In(std::vector<uint8_t>{0}, {}, kBool), In({0, -1, 5, -2}, {4}), y});
  EXPECT_EQ(Values<int64_t>(no[1]), (Longs{1, 2, 3, 0, 3, 1, 3}));
  const auto empty = Run({In(std::vector<uint8_t>{0}, {}, kBool), In(Floats{}, {0}), In({0, 0, 0, 0}, {4})});
  EXPECT_EQ(empty[1].shape, Shape({0, 1}));
}

// Values that decide shapes or places: inputs of the run, on the host or the device, and results of nodes.
TEST_F(CompilerDynamic, ValuesThatNodesComputeDecideShapes) {
  struct Case {
    const char* about;
    const char* lines;  // from x float32 [6], v int64 [?]; the value is `m`
    Longs value;
    Longs shape;
    Floats elements;
  };
  const Case cases[] = {
      {"shape", "y = Reshape(x, m)\n", {2, 3}, {2, 3}, {1, 2, 3, 4, 5, 6}},
      {"open size", "y = Reshape(x, m)\n", {3, -1}, {3, 2}, {1, 2, 3, 4, 5, 6}},
      {"broadcast", "y = BroadcastTo(x, m)\n", {2, 6}, {2, 6}, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}},
      {"tile", "y = Tile(x, m)\n", {2}, {12}, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}},
      {"axes", "y = ReduceSum(x, m) {keep_dims = true}\n", {0}, {1}, {21}},
      {"where a slice begins", "n = Const() : int64 [1] = 5\ny = StridedSliceV2(x, m, n)\n", {3}, {2}, {4, 5}},
  };
  for (const Case& each : cases) {
    for (const bool is_computed : {false, true}) {
      SCOPED_TRACE(std::string(each.about) + (is_computed ? " computed" : " given"));
      std::string text = "graph g\nx = Data() : float32 [6]\n";
      const char* const name = is_computed ? "v" : "m";
      text += std::string(name) + " = Data() : int64 [" + std::to_string(each.value.size()) + "]\n";
      if (is_computed) text += "one = Const() : int64 [1] = 1\nm = Sub(v, one)\n";
      text += std::string(each.lines) + "z = Abs(y)\nreturn z\n";
      EXPECT_OK(Compile(text));
      for (const bool on_host : {false, true, false}) {
        Longs value = each.value;
        if (is_computed) {
          for (int64_t& number : value) ++number;
        }
        RunTensor given = In(value, {static_cast<int64_t>(value.size())}, kInt64);
        given.on_host = on_host;
        const auto out = Run({In({1, 2, 3, 4, 5, 6}, {6}), given});
        EXPECT_EQ(out[0].shape, each.shape);
        EXPECT_EQ(Values(out[0]), each.elements);
      }
    }
  }
}

TEST_F(CompilerDynamic, RangesFollowValuesOnTheDevice) {
  EXPECT_OK(
      Compile("graph g\na = Data() : int64 []\nb = Data() : int64 []\none = Const() : int64 [] = 1\n"
              "c = Add(b, one)\nr = Range(a, c, one)\nf = Cast(r) {dst_type = float32}\nreturn f\n"));
  for (const int64_t limit : {5, 2, 1, 9}) {
    const auto out = Run({In(Longs{2}, {}, kInt64), In(Longs{limit}, {}, kInt64)});
    Floats expected(static_cast<size_t>(std::max<int64_t>(0, limit - 1)));
    std::iota(expected.begin(), expected.end(), 2.0F);
    EXPECT_EQ(Values(out[0]), expected) << limit;
  }
}

// The node waits for its places; what it writes is the memory of its input all the same.
TEST_F(CompilerDynamic, ReferencesAreWrittenInPlaceBehindAWait) {
  const std::string zero = "zero = Const() : int64 [1] = 0\n";
  EXPECT_OK(Compile("graph g\nd = Data() : float32 [4]\no = Data() : int64 [1]\ns = Data() : float32 [2]\n" + zero +
                    "two = Const() : int64 [1] = 2\none = Const() : int64 [1] = 1\np = Sub(o, one)\n"
                    "v = ViewCopy(d, two, one, p, s, two, one, zero)\ny = Abs(v)\nreturn y\n"));
  const RunTensor d = In({-1, -2, -3, -4}, {4});
  EXPECT_EQ(Values(Run({d, In(Longs{2}, {1}, kInt64), In({7, -8}, {2})})[0]), (Floats{1, 7, 8, 4}));
  EXPECT_EQ(Values(d), (Floats{-1, 7, -8, -4}));
}

TEST_F(CompilerDynamic, BlocksMayBeLargerThanTheirTensors) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [?]\nm = Data() : int64 [2]\ny = Reshape(x, m)\nz = Abs(y)\nreturn z\n"));
  for (const bool on_host : {true, false}) {
    RunTensor m = In(Longs{2, 2, 5, 5}, {4}, kInt64);
    m.shape = {2};
    m.on_host = on_host;
    const auto out = Run({In({1, -2, 3, -4}, {4}), m});
    EXPECT_EQ(out[0].shape, Shape({2, 2}));
    EXPECT_EQ(Values(out[0]), (Floats{1, 2, 3, 4}));
  }
}

// ---- Shapes that differ from run to run ----

TEST_F(CompilerDynamic, GE_084_085_OneExecutableServesAllShapes) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [?, ?]\nw = Const() : float32 [3, 2] = 1 ...\n"
              "p = MatMulV2(x1 = x, x2 = w)\ny = Abs(p)\nreturn y\n"));
  for (const int64_t rows : {1, 7, 0, 2, 7}) {
    const auto out = Run({In(Floats(static_cast<size_t>(rows * 3), -1), {rows, 3})});
    EXPECT_EQ(out[0].shape, Shape({rows, 2}));
    EXPECT_EQ(Values(out[0]), Floats(static_cast<size_t>(rows * 2), 3));
  }
  std::vector<RunTensor> outputs;
  const Status status = Queue({In(Floats(8, 1), {2, 4})}, outputs);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.detail().what.find("p"), std::string::npos) << status.detail().what;
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [..]\ny = Data() : float32 [..]\nz = Add(x, y)\nreturn z\n"));
  EXPECT_EQ(Run({In({1, 2}, {1, 2}), In({1, 2}, {2, 1})})[0].shape, Shape({2, 2}));
  EXPECT_EQ(Values(Run({In({1}, {}), In({1, 2}, {2})})[0]), (Floats{2, 3}));
  EXPECT_EQ(Values(Run({In({1}, {}), In({1}, {})})[0]), (Floats{2}));
}

TEST_F(CompilerDynamic, GE_090_EmptyTensorsAndInputsOnTheHost) {
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [?]\ns = Data() : float32 []\ny = Mul(x, s)\nreturn y\n"));
  for (const bool on_host : {true, false}) {
    RunTensor s = In({3}, {});
    s.on_host = on_host;
    EXPECT_EQ(Values(Run({In({1, 2}, {2}), s})[0]), (Floats{3, 6}));
    const auto none = Run({In(Floats{}, {0}), s});
    EXPECT_EQ(none[0].shape, Shape({0}));
  }
  RunTensor x = In({1, 2, 3}, {3});
  x.on_host = true;
  EXPECT_EQ(Values(Run({x, In({2}, {})})[0]), (Floats{2, 4, 6}));
}

// ---- Branches and loops ----

TEST_F(CompilerDynamic, GE_092_CaseTakesTheBranchOfItsIndex) {
  std::string text =
      "graph g\nb = Data() : int32 []\nx = Data() : float32 [2]\n"
      "c = Case(b, x) calls (first, second, third) : output0 float32 [2]\nreturn c\n";
  const char* const names[] = {"first", "second", "third"};
  const char* const bodies[] = {"Abs(a)", "Neg(a)", "Add(a, a)"};
  for (int i = 0; i < 3; ++i) {
    text += std::string("\ngraph ") + names[i] + "\na = Data() : float32 [2]\nb = " + bodies[i] + "\nreturn b\n";
  }
  EXPECT_OK(Compile(text));
  const Floats expected[] = {{1, 2}, {1, -2}, {-2, 4}, {-2, 4}, {-2, 4}};
  const int32_t indices[] = {0, 1, 2, 3, -1};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(Values(Run({In(std::vector<int32_t>{indices[i]}, {}, kInt32), In({-1, 2}, {2})})[0]), expected[i])
        << indices[i] << ": the last branch for indices that name none";
  }
}

TEST_F(CompilerDynamic, GE_092_BranchesBindInputsByTheIndexOfTheParent) {
  EXPECT_OK(
      Compile("graph g\np = Data() : bool []\nx = Data() : float32 [2]\ny = Data() : float32 [2]\n"
              "i = If(p, x, y) calls (yes, no) : output0 float32 [2]\nreturn i\n\n"
              "graph yes\na = Data() notes {_parent_node_index = 2} : float32 [2]\n"
              "b = Data() notes {_parent_node_index = 1} : float32 [2]\nc = Sub(a, b)\nreturn c\n\n"
              "graph no\na = Data() notes {_parent_node_index = 2} : float32 [2]\nc = Abs(a)\nreturn c\n"));
  const RunTensor x = In({1, 2}, {2});
  const RunTensor y = In({-10, 20}, {2});
  EXPECT_EQ(Values(Run({In(std::vector<uint8_t>{1}, {}, kBool), x, y})[0]), (Floats{-11, 18}));
  EXPECT_EQ(Values(Run({In(std::vector<uint8_t>{0}, {}, kBool), x, y})[0]), (Floats{10, 20}));
}

constexpr const char* kLoop =
    "graph g\n"
    "n = Data() : int32 []\n"
    "x = Data() : float32 [?]\n"
    "w = While(n, x) calls (goes_on, body) : output0 int32 [], output1 float32 [?]\n"
    "y = Abs(w:1)\n"
    "return y, w:0\n"
    "\n"
    "graph goes_on\nn = Data() : int32 []\nx = Data() : float32 [?]\nzero = Const() : int32 [] = 0\n"
    "c = Greater(n, zero)\nreturn c\n"
    "\n"
    "graph body\nn = Data() : int32 []\nx = Data() : float32 [?]\none = Const() : int32 [] = 1\n"
    "m = Sub(n, one)\nf = Const() : float32 [1] = 1\ny = Sub(x, f)\nreturn m, y\n";

uint64_t FreeMemory() {
  size_t free = 0;
  size_t total = 0;
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), ACL_SUCCESS);
  return free;
}

TEST_F(CompilerDynamic, GE_092_LoopsRunAsOftenAsDataSays) {
  EXPECT_OK(Compile(kLoop));
  for (const int32_t trips : {0, 3, 1}) {
    const auto value = static_cast<float>(-trips);
    EXPECT_EQ(Values(Run({In(std::vector<int32_t>{trips}, {}, kInt32), In({0, 0}, {2})})[0]), (Floats{-value, -value}));
  }
}

TEST_F(CompilerDynamic, GE_092_LongLoopsKeepNoMemoryOfEarlierTrips) {
  EXPECT_OK(Compile(kLoop));
  const int32_t trips = testing::Loops(10000, 1000);
  const int64_t elements = 65536;  // 10,000 values of 256 KiB would be 2.6 GB
  std::vector<RunTensor> outputs;
  const RunTensor n = In(std::vector<int32_t>{trips}, {}, kInt32);
  const RunTensor x = In(Floats(static_cast<size_t>(elements), 0), {elements});
  const uint64_t before = FreeMemory();
  EXPECT_OK(Queue({n, x}, outputs));
  // The run's memory stays until the stream has passed its end, so that this is its peak or less.
  const uint64_t used = before - std::min(before, FreeMemory());
  EXPECT_LT(used, uint64_t{16} << 20);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(Values(outputs[0])[0], static_cast<float>(trips));
  EXPECT_EQ(Values(outputs[0]).back(), static_cast<float>(trips));
}

TEST_F(CompilerDynamic, GE_092_ValuesOfALoopMayGrow) {
  EXPECT_OK(
      Compile("graph g\nn = Data() : int32 []\nx = Data() : float32 [?]\n"
              "w = While(n, x) calls (goes_on, body) : output0 int32 [], output1 float32 [?]\nreturn w:1\n\n"
              "graph goes_on\nn = Data() : int32 []\nx = Data() : float32 [?]\nzero = Const() : int32 [] = 0\n"
              "c = Greater(n, zero)\nreturn c\n\n"
              "graph body\nn = Data() : int32 []\nx = Data() : float32 [?]\none = Const() : int32 [] = 1\n"
              "f = Cast(n) {dst_type = float32}\nsize = Const() : int64 [1] = 1\nr = Reshape(f, size)\n"
              "m = Sub(n, one)\ny = ConcatD(x, r) {concat_dim = 0, N = 2}\nreturn m, y\n"));
  Floats expected = {0};
  for (int i = 200; i > 0; --i) expected.push_back(static_cast<float>(i));
  EXPECT_EQ(Values(Run({In(std::vector<int32_t>{200}, {}, kInt32), In({0}, {1})})[0]), expected);
}

TEST_F(CompilerDynamic, GE_092_LoopsNest) {
  EXPECT_OK(
      Compile("graph g\nn = Data() : int32 []\nx = Data() : float32 [1]\n"
              "w = While(n, x) calls (goes_on, outer) : output0 int32 [], output1 float32 [1]\nreturn w:1\n\n"
              "graph goes_on\nn = Data() : int32 []\nx = Data() : float32 [1]\nzero = Const() : int32 [] = 0\n"
              "c = Greater(n, zero)\nreturn c\n\n"
              "graph outer\nn = Data() : int32 []\nx = Data() : float32 [1]\none = Const() : int32 [] = 1\n"
              "i = While(n, x) calls (still, inner) : output0 int32 [], output1 float32 [1]\n"
              "m = Sub(n, one)\nreturn m, i:1\n\n"
              "graph still\nn = Data() : int32 []\nx = Data() : float32 [1]\nzero = Const() : int32 [] = 0\n"
              "c = Greater(n, zero)\nreturn c\n\n"
              "graph inner\nn = Data() : int32 []\nx = Data() : float32 [1]\none = Const() : int32 [] = 1\n"
              "f = Const() : float32 [1] = 1\nm = Sub(n, one)\ny = Add(x, f)\nreturn m, y\n"));
  EXPECT_EQ(Values(Run({In(std::vector<int32_t>{4}, {}, kInt32), In({0}, {1})})[0]), (Floats{4 + 3 + 2 + 1}));
}

// ---- Shapes by rules of front ends ----

// The shape of the node y, or what was refused.
std::string RuleGives(const std::string& data, const std::string& node, const std::string& rule) {
  std::string quoted;
  for (const char c : rule) quoted += c == '"' ? std::string("\\\"") : std::string(1, c);
  auto graph = FromText("graph g\n" + data + "\ny = " + node + " notes {_inference_rule = \"" + quoted +
                        "\"} : y float32 [..]\nreturn y\n");
  if (!graph.ok()) return std::move(graph).status().detail().what;
  opdef::Facts facts;
  if (Status status = InferShapes(**graph, facts); !status.ok()) {
    EXPECT_EQ(status.code(), 100000);
    return status.detail().what;
  }
  const Tensor& tensor = (*graph)->TensorOf((*graph)->results[0]);
  return std::string(opdef::TypeName(tensor.dtype)) + " " + tensor.shape.text();
}

TEST(CompilerRule, GE_091_RulesGiveShapesOfOperatorsWithoutARow) {
  const auto rule = [](const std::string& inputs, const std::string& outputs, const std::string& types = "[0]") {
    return "{\"shape\": {\"inputs\": [" + inputs + "], \"outputs\": [[" + outputs + "]]}, \"dtype\": " + types + "}";
  };
  const char* const symbolic = "x = Data() : float32 [s0, s1]";
  const char* const fixed = "x = Data() : float32 [7, 3]";
  struct Case {
    const char* data;
    std::string rule;
    const char* gives;
  };
  const std::string sizes = R"(["s0", "s1"])";
  const Case cases[] = {
      {symbolic, rule(sizes, R"x("s1", 4, "s0 + s1 * 2")x"), "float32 [s1, 4, s0+2*s1]"},
      {fixed, rule(sizes, R"x("s1", "4", "s0 + s1 * 2")x"), "float32 [3, 4, 13]"},
      {symbolic, rule(sizes, R"x("Floor(Div(s0 + 1, 2))", "Ceil(Div(s0, 2))")x"), "float32 [(s0+1)//2, (s0+1)//2]"},
      {fixed, rule(sizes, R"x("Floor(Div(s0, 2))", "Ceil(Div(s0, 2))", "Mod(s0, 4)")x"), "float32 [3, 4, 3]"},
      {fixed, rule(sizes, R"x("Div(s0, 7)", "Pow(s1, 2)", "Floor(Div(s0, 2) + Div(1, 2))")x"), "float32 [1, 9, 4]"},
      {fixed, rule(sizes, R"x("(s0 - s1) * -(-2)", "Floor(s0 * Pow(2, -1))")x", "[1]"), "float16 [8, 3]"},
      {symbolic, rule(sizes, R"x("Floor(s0 * Pow(2, -1))")x"), "float32 [s0//2]"},
      {fixed, rule("null", "5"), "float32 [5]"},
      {"x = Data() : float32 [..]", rule(sizes, R"x("s0", 2)x"), "float32 [?, 2]"},
      {"x = Const() : int64 [2] = 6, 5", rule(R"(["v0", "v1"])", R"("v1", "v0 + 1")"), "float32 [5, 7]"},
      {"x = Data() : int64 [2]", rule(R"(["v0", "v1"])", R"("v1", 3)"), "float32 [?, 3]"},
  };
  for (const Case& each : cases) EXPECT_EQ(RuleGives(each.data, "MyOperator(x)", each.rule), each.gives) << each.rule;
  // An operator with a row knows its own shape better.
  EXPECT_EQ(RuleGives(fixed, "Abs(x)", rule(sizes, "1, 1", "[3]")), "float32 [7, 3]");
}

TEST(CompilerRule, GE_091_RulesThatAreNoneAreRefusedByNode) {
  const auto rule = [](const std::string& outputs) {
    return R"({"shape": {"inputs": [["s0", "s1"]], "outputs": [[")" + outputs + R"("]]}, "dtype": [0]})";
  };
  const std::string nested(100000, '(');
  const std::pair<std::string, const char*> cases[] = {
      {"{", "is no JSON"},
      {"[]", "has no lists"},
      {R"({"shape": {"inputs": [3], "outputs": []}})", "neither a list nor null for input 0"},
      {R"({"shape": {"inputs": [null, null], "outputs": [[]]}})", "has 2 inputs, the node 1"},
      {R"({"shape": {"inputs": [], "outputs": [[], []]}})", "has 2 outputs, the node 1"},
      {R"({"shape": {"inputs": [["s0"]], "outputs": [["s0"]]}})",
       "has 1 sizes for input 0, which has the shape [7, 3]"},
      {R"({"shape": {"inputs": [null], "outputs": [[1.5]]}})", "neither an integer nor a text"},
      {R"({"shape": {"inputs": [null], "outputs": [[1]]}, "dtype": [99999]})", "has no type for output 0"},
      {rule("s2"), "the symbol s2 is bound by no input"},
      {rule("s0 s1"), "something follows"},
      {rule("s0 +"), "ends too early"},
      {rule("(s0"), "a bracket is not closed"},
      {rule("Sqrt(s0)"), "there is no function Sqrt"},
      {rule("Div(s0)"), "Div takes 2 arguments"},
      {rule("Div(s0, s1 - s1)"), "Div divides by 0"},
      {rule("Pow(s0 - s0, -1)"), "Pow divides by 0"},
      {rule("Pow(2, 65)"), "the exponent 65 is too large"},
      {rule("Div(s0, 2)"), "is no whole number"},
      {rule("s1 - s0"), "which gives -4"},
      {rule("99999999999999999999"), "is no integer"},
      {rule(nested), "is nested too deeply"},
  };
  for (const auto& [text, what] : cases) {
    const std::string refused = RuleGives("x = Data() : float32 [7, 3]", "MyOperator(x)", text);
    EXPECT_NE(refused.find(what), std::string::npos) << refused.substr(0, 300) << "\n" << text.substr(0, 200);
    EXPECT_NE(refused.find("node y (MyOperator)"), std::string::npos) << refused.substr(0, 300);
  }
}

// ---- Joined tensors ----

TEST_F(CompilerDynamic, GE_075_JoinedTensorsAreWrittenWhereTheyWillBe) {
  // Both forms; parts seen in another shape; a join of joins; the result of the graph itself.
  const std::string head =
      "graph g\nx = Data() : float32 [2, 3]\ny = Data() : float32 [1, 3]\nd = Const() : int64 [1] = 0\n";
  struct Case {
    const char* lines;
    uint64_t features;
    Floats gives;
  };
  const Case cases[] = {
      {"a = Abs(x)\nb = Neg(y)\nc = ConcatD(a, b) {concat_dim = 0, N = 2}\nreturn c\n",
       0,
       {1, 2, 3, 4, 5, 6, -7, -8, -9}},
      {"a = Abs(x)\nb = Neg(y)\nc = ConcatV2(a, b, d) {N = 2}\ne = Neg(c)\nreturn e\n",
       512,
       {-1, -2, -3, -4, -5, -6, 7, 8, 9}},
      {"a = Abs(x)\nb = Neg(y)\nf = ConcatD(b, a) {concat_dim = -2, N = 2}\ng = Abs(y)\n"
       "c = ConcatD(f, g) {concat_dim = 0, N = 2}\nreturn c\n",
       0,
       {-7, -8, -9, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
      {"a = Abs(x)\ns = FlattenV2(a) {axis = 0, end_axis = 1}\nb = Neg(y)\nt = FlattenV2(b) {axis = 0, end_axis = 1}\n"
       "c = ConcatD(s, t) {concat_dim = 0, N = 2}\nreturn c\n",
       0,
       {1, 2, 3, 4, 5, 6, -7, -8, -9}},
      // Another user, an input of the graph, a dim that is not the first one: a copy.
      {"a = Abs(x)\nb = Neg(y)\nc = ConcatD(a, b) {concat_dim = 0, N = 2}\ne = Neg(b)\n"
       "f = ConcatD(c, e) {concat_dim = 0, N = 2}\nreturn f\n",
       1024,
       {1, 2, 3, 4, 5, 6, -7, -8, -9, 7, 8, 9}},
      {"a = Abs(x)\nc = ConcatD(a, y) {concat_dim = 0, N = 2}\nreturn c\n", 512, {1, 2, 3, 4, 5, 6, 7, 8, 9}},
      {"a = Abs(x)\nb = Neg(x)\nc = ConcatD(a, b) {concat_dim = 1, N = 2}\nreturn c\n",
       1024,
       {1, 2, 3, -1, -2, -3, 4, 5, 6, -4, -5, -6}},
  };
  CompileOptions plain;
  plain.passes.level = Level::kO0;
  for (const Case& each : cases) {
    SCOPED_TRACE(each.lines);
    EXPECT_OK(Compile(head + each.lines, plain));
    EXPECT_EQ(executable_->needs().features, each.features);
    EXPECT_EQ(Values(Run({In({1, 2, 3, 4, 5, 6}, {2, 3}), In({7, 8, 9}, {1, 3})})[0]), each.gives);
  }
}

// The plans of a stage are as many as it keeps; a captured run needs its own one for as long as the graph is there.
TEST_F(CompilerRun, CapturedRunsKeepTheirPlan) {
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [?]\na = Abs(x)\nb = Neg(a)\nreturn b\n"));
  const RunTensor x = In({1, -2, 3}, {3});
  std::vector<RunTensor> outputs;
  EXPECT_OK(Queue({x}, outputs));
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), ACL_SUCCESS);
  EXPECT_OK(Queue({x}, outputs));
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream_, &model), ACL_SUCCESS);
  for (int64_t size = 4; size < 100; ++size) Run({In(std::vector<float>(static_cast<size_t>(size), 1), {size})});
  static_cast<float*>(x.data)[0] = -7;
  ASSERT_EQ(aclmdlRIExecuteAsync(model, stream_), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(Values(outputs[0]), (std::vector<float>{-7, -2, -3}));
  ASSERT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
}

}  // namespace
}  // namespace reprise::compiler
