// SPDX-License-Identifier: Apache-2.0
//
// Graphs in files: which stages, which forms, where, and what they say.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/dump/dump.h"
#include "compiler/dump/streams.h"
#include "compiler/import/import.h"
#include "model_bytes.h"

namespace reprise::compiler {
namespace {

using namespace reprise::testing;  // NOLINT: builders of models

// A list, an output of two, a branch, constants, an edge of order.
std::unique_ptr<Graph> Network() {
  Model model;
  model.Data("x", 0, kProtoFloat, {-1, 4});
  model.Const("few", {1, -2});
  model.Const("many", {1, 2, 3, 4, 5, 6, 7});
  model.Op("top", "TopKV2", {"x:0", "few:0", "many:-1"}, {"x", "k"})
      .Set("sorted", BoolAttr(true))
      .Set("nn_module_stack", TextAttr("layer"))
      .Output(kProtoFloat, {-1, 2}, "values")
      .Output(kProtoInt32, {-1, 2}, "indices");
  model.Op("both", "ConcatD", {"top:0", "top:0"}, {"x0", "x1"}).Set("concat_dim", IntAttr(1)).Output(1, {-1, 4});
  model.Op("either", "If", {"few:0", "both:0"}, {"", "input0"}).Calls("then").Calls("else").Output(1, {4}, "output0");
  model.Results({"either:0", "top:1", "many:-1"});
  for (const char* const name : {"then", "else"}) {
    model.NextGraph(name);
    model.Data("a", 0, kProtoFloat, {4});
    model.Results({"a:0"});
  }
  StatusOr<std::unique_ptr<Graph>> graph = ImportBytes(model.Bytes());
  if (graph.ok()) return std::move(graph).value();
  ADD_FAILURE() << std::move(graph).status().detail().what;
  return std::make_unique<Graph>();
}

TEST(CompilerDump, GE_094_ReadableForm) {
  EXPECT_EQ(ReadableText(*Network()),
            "graph(\"main\"):\n"
            "  %x : [#users=1] = Node[type=Data] (inputs = (), attrs = {index: 0})\n"
            "  %few : [#users=1] = Node[type=Const] (inputs = (), attrs = {value: [1, -2]})\n"
            "  %many : [#users=1] = Node[type=Const] (inputs = (), attrs = {value: [1, 2, 3 ... 5, 6, 7]})\n"
            "  %top : [#users=2] = Node[type=TopKV2] (inputs = (x=%x, k=%few), attrs = {sorted: true})\n"
            "  %ret : [#users=2] = get_element[node=%top](0)\n"
            "  %ret_1 : [#users=1] = get_element[node=%top](1)\n"
            "  %both : [#users=1] = Node[type=ConcatD] (inputs = (x_0=%ret, x_1=%ret), attrs = {concat_dim: 1})\n"
            "  %either : [#users=1] = Node[type=If] (inputs = (_input_0=%few, input0=%both), "
            "attrs = {then_branch: %then, else_branch: %else})\n"
            "  return (output_0=%either, output_1=%ret_1)\n"
            "\n"
            "graph(\"then\"):\n"
            "  %a : [#users=1] = Node[type=Data] (inputs = (), attrs = {index: 0})\n"
            "  return (%a)\n"
            "\n"
            "graph(\"else\"):\n"
            "  %a : [#users=1] = Node[type=Data] (inputs = (), attrs = {index: 0})\n"
            "  return (%a)\n");
}

TEST(CompilerDump, GE_094_ConstantsOfAllTypes) {
  struct Case {
    int32_t dtype;
    std::vector<unsigned char> bytes;
    const char* wanted;
  };
  const std::vector<Case> cases = {{0, {0, 0, 0xC0, 0x3F}, "[1.5]"},
                                   {1, {0, 0x3C, 0, 0xC0}, "[1, -2]"},
                                   {27, {0x80, 0x3F}, "[1]"},
                                   {2, {0xFF, 7}, "[-1, 7]"},
                                   {4, {0xFF}, "[255]"},
                                   {12, {1, 0}, "[true, false]"},
                                   {6, {0xFF, 0xFF}, "[-1]"},
                                   {7, {0xFF, 0xFF}, "[65535]"},
                                   {8, {1, 0, 0, 0}, "[1]"},
                                   {3, {0xFE, 0xFF, 0xFF, 0xFF}, "[-2]"},
                                   {9, {}, "<empty>"},
                                   {11, {0, 0, 0, 0, 0, 0, 0xF0, 0x3F}, "[1]"},
                                   {10, {9, 0, 0, 0, 0, 0, 0, 0}, "[9]"},
                                   {34, {1}, "<values of type hifloat8>"},
                                   {4, {1, 2, 3, 4, 5, 6}, "[1, 2, 3, 4, 5, 6]"},
                                   {13, {65}, "<values of type string>"}};
  for (const Case& one : cases) {
    auto constant = std::make_shared<Constant>();
    constant->dtype = one.dtype;
    constant->bytes.assign(one.bytes.begin(), one.bytes.end());
    Graph graph;
    Node node;
    node.type = "Const";
    node.constant = constant;
    graph.Add(std::move(node));
    const std::string text = ReadableText(graph);
    EXPECT_NE(text.find(std::string("attrs = {value: ") + one.wanted + "}"), std::string::npos) << text << one.wanted;
  }
}

TEST(CompilerDump, OnnxForm) {
  const std::unique_ptr<Graph> graph = Network();
  const std::string all = OnnxText(*graph, Content::kAll);
  for (const char* const wanted :
       {"op_type: \"ge:TopKV2\"", "input: \"many:-1\"", "output: \"top:1\"", "raw_data: \"\\001\\000",
        "dim { dim_param: \"?\" }", "elem_type: 6", "type: GRAPH", "s: \"layer\"", "op_type: \"ge:NetOutput\""}) {
    EXPECT_NE(all.find(wanted), std::string::npos) << wanted;
  }
  EXPECT_EQ(OnnxText(*graph, Content::kNoData).find("raw_data"), std::string::npos);
  const std::string structure = OnnxText(*graph, Content::kStructure);
  for (const char* const gone : {"raw_data", "s: ", "elem_type"}) EXPECT_EQ(structure.find(gone), std::string::npos);
  EXPECT_NE(structure.find("input: \"top:0\""), std::string::npos);
  // As deep as it is wide: each brace is closed again.
  EXPECT_EQ(std::count(all.begin(), all.end(), '{'), std::count(all.begin(), all.end(), '}'));
}

// ---- Files ----

class DumpFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/reprise_dump_XXXXXX";
    folder_ = mkdtemp(path);
    before_ = std::filesystem::current_path();
    std::filesystem::create_directory(folder_ / "here");
    std::filesystem::current_path(folder_ / "here");
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  static DumpSettings Read(const DumpVariables& variables, size_t complaints = 0) {
    std::vector<std::string> told;
    DumpSettings settings = ReadDumpSettings(variables, &told);
    EXPECT_EQ(told.size(), complaints);
    return settings;
  }
  // Names of all files, without their numbers, by which they are in order.
  std::vector<std::string> Files() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (!entry.is_regular_file()) continue;
      std::string path = std::filesystem::relative(entry.path(), folder_);
      for (std::string part : {"pid_" + std::to_string(getpid()), std::string("_00")}) {
        const size_t at = path.find(part);
        if (at != std::string::npos) path.replace(at, part == "_00" ? 9 : part.size(), part == "_00" ? "_N" : "pid");
      }
      paths.push_back(path);
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  std::filesystem::path folder_;
  std::filesystem::path before_;
};

TEST_F(DumpFiles, GE_093_StagesByLevel) {
  struct Case {
    const char* level;
    std::vector<std::string> taken;
  };
  const std::vector<std::string> stages = {"GraphPreRunBegin",
                                           "PreRunBegin",
                                           "PrepareAfterProcessOutput",
                                           "RunCustomPass_Mine",
                                           "XAutoFuseAfterOptimizeX",
                                           "Build",
                                           "AfterBuild"};
  const std::vector<Case> cases = {{"1", stages},
                                   {"", {"PreRunBegin", "RunCustomPass_Mine", "XAutoFuseAfterOptimizeX", "Build"}},
                                   {"2", {"PreRunBegin", "RunCustomPass_Mine", "XAutoFuseAfterOptimizeX", "Build"}},
                                   {"3", {"Build"}},
                                   {"4", {"PreRunBegin"}},
                                   {"Begin", {"GraphPreRunBegin", "PreRunBegin"}},
                                   {"Process|Mine", {"PrepareAfterProcessOutput", "RunCustomPass_Mine"}}};
  for (const Case& one : cases) {
    const DumpSettings settings = Read({.graph = "2", .level = one.level});
    std::vector<std::string> taken;
    for (const std::string& stage : stages) {
      if (settings.Takes(stage)) taken.push_back(stage);
    }
    EXPECT_EQ(taken, one.taken) << one.level;
  }
  for (const char* const wrong : {"5", "12", "1|Build"}) {
    EXPECT_EQ(Read({.graph = "1", .level = wrong}, 1).level, 2) << wrong;
  }
  EXPECT_FALSE(Read({}).Takes("Build"));
  EXPECT_FALSE(Read({.graph = "0"}).is_on);
  EXPECT_FALSE(Read({.graph = "4"}, 1).is_on);
}

TEST_F(DumpFiles, GE_093_FormsAndNames) {
  const std::unique_ptr<Graph> graph = Network();
  const std::string path = folder_ / "out";
  const auto dump = [&](const char* form, size_t complaints, const DumpPoint& point) {
    std::filesystem::remove_all(folder_ / "out");
    DumpStage(*graph, point, Read({.graph = "1", .form = form, .path = path}, complaints));
    return Files();
  };
  const DumpPoint build = {.graph_id = 7, .stage = "Build", .device = 3};
  using Names = std::vector<std::string>;
  EXPECT_EQ(dump("", 0, build), (Names{"out/pid_deviceid_3/ge_onnx_N_graph_7_Build.pbtxt",
                                       "out/pid_deviceid_3/ge_proto_N_graph_7_Build.txt"}));
  EXPECT_EQ(dump("onnx|readable", 0, build), (Names{"out/pid_deviceid_3/ge_onnx_N_graph_7_Build.pbtxt",
                                                    "out/pid_deviceid_3/ge_readable_N_graph_7_Build.txt"}));
  EXPECT_EQ(dump("ONNX|readable|readable", 1, build), (Names{"out/pid_deviceid_3/ge_readable_N_graph_7_Build.txt"}));
  EXPECT_EQ(dump("ge_proto", 0, {.stage = "Build", .is_single_op = true}),
            (Names{"out/pid_deviceid_0/ge_proto_N_aclop_graph_0_Build.txt"}));
  EXPECT_EQ(dump("ge_proto", 0, {.stage = "../a b/RunCustomPass:ä"}),
            (Names{"out/pid_deviceid_0/ge_proto_N_graph_0_.._a_b_RunCustomPass___.txt"}));
  EXPECT_EQ(dump("ge_proto", 0, {.stage = "AfterSomething"}), Names{});
  EXPECT_EQ(dump("ge_proto", 0, {.stage = "AfterSomething", .is_forced = true}).size(), 1U);
  const std::string longest = "RunCustomPass" + std::string(400, 'x');
  const Names names = dump("ge_proto", 0, {.stage = longest});
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(std::filesystem::path(names[0]).filename().string().size() + 7, 255U);  // "_N" for nine characters
  EXPECT_TRUE(names[0].ends_with("x.txt"));
}

TEST_F(DumpFiles, GE_093_Folders) {
  const std::unique_ptr<Graph> graph = Network();
  const std::string a = folder_ / "a";
  const std::string b = folder_ / "b";
  const std::string c = folder_ / "c";
  const auto where = [&](DumpVariables variables) {
    for (const std::string& path : {a, b, c}) std::filesystem::remove_all(path);
    variables.graph = "3", variables.form = "readable";
    DumpStage(*graph, {.stage = "Build"}, Read(variables));
    std::vector<std::string> files = Files();
    std::filesystem::remove_all(folder_ / "here"), std::filesystem::create_directory(folder_ / "here");
    std::filesystem::current_path(folder_ / "here");
    return files.size() == 1 ? std::filesystem::path(files[0]).parent_path().string() : "";
  };
  EXPECT_EQ(where({.path = b, .dump_path = a, .work_path = c}), "a/pid_deviceid_0");
  EXPECT_EQ(where({.path = b, .work_path = c}), "b/pid_deviceid_0");
  EXPECT_EQ(where({.work_path = c}), "c/pid_deviceid_0");
  EXPECT_EQ(where({}), "here");
  EXPECT_EQ(where({.path = "/proc/nowhere"}), "here") << "not to be written";
}

TEST_F(DumpFiles, GE_093_OneNumberForEachPointAndNothingWhenOff) {
  const std::unique_ptr<Graph> graph = Network();
  DumpSettings settings = Read({.graph = "2", .path = folder_ / "out"});
  DumpStage(*graph, {.stage = "PreRunBegin"}, settings);
  DumpStage(*graph, {.stage = "AfterSomething"}, settings);
  DumpStage(*graph, {.stage = "Build"}, settings);
  std::vector<int> numbers;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "out")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("ge_proto_")) numbers.push_back(std::stoi(name.substr(9, 8)));
  }
  std::sort(numbers.begin(), numbers.end());
  ASSERT_EQ(numbers.size(), 2U);
  EXPECT_EQ(numbers[1], numbers[0] + 1);
  std::filesystem::remove_all(folder_ / "out");
  settings.is_on = false;
  DumpStage(*graph, {.stage = "Build", .is_forced = true}, settings);
  EXPECT_TRUE(Files().empty());
}

TEST_F(DumpFiles, OnRequestWithoutWeights) {
  const std::unique_ptr<Graph> graph = Network();
  for (const DumpForm form : {DumpForm::kOnnx, DumpForm::kProto, DumpForm::kReadable}) {
    StatusOr<std::string> path = DumpToFile(*graph, form, {.stage = "mine"}, Read({}));
    ASSERT_TRUE(path.ok());
    std::stringstream text;
    text << std::ifstream(*path).rdbuf();
    EXPECT_NE(text.str().find("TopKV2"), std::string::npos) << *path;
    EXPECT_EQ(text.str().find("data:"), std::string::npos) << *path;
    if (form != DumpForm::kProto) continue;
    EXPECT_TRUE(ModelOfText(text.str()).ok());
  }
  EXPECT_EQ(Files().size(), 3U);
}

// ---- Streams ----

TEST(CompilerDump, GE_095_StreamsAreClusters) {
  const StreamGraph graph = {
      "main", {{"a", "Add", 0}, {"b", "Mul", 1}, {"c\"", "Sub", 0}, {"d", "Relu", 1}}, {{0, 1}, {3, 2}}};
  EXPECT_EQ(ToStreamGraph(graph),
            "digraph \"main\" {\n"
            "  node [shape=box, fontname=\"sans-serif\"];\n"
            "  subgraph cluster_0 {\n"
            "    label=\"stream 0\";\n"
            "    n0 [label=\"a\\nAdd\"];\n"
            "    n2 [label=\"c\\\"\\nSub\"];\n"
            "    n0 -> n2;\n"
            "  }\n"
            "  subgraph cluster_1 {\n"
            "    label=\"stream 1\";\n"
            "    n1 [label=\"b\\nMul\"];\n"
            "    n3 [label=\"d\\nRelu\"];\n"
            "    n1 -> n3;\n"
            "  }\n"
            "  n0 -> n1 [style=dashed];\n"
            "  n3 -> n2 [style=dashed];\n"
            "}\n");
}

}  // namespace
}  // namespace reprise::compiler
