// SPDX-License-Identifier: Apache-2.0
//
// What dumps of graphs show: bodies, copies, shapes, long streams in short, names of any kind.
#include <reprise/operation.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json_text.h"
#include "fixture.h"
#include "support/json.h"

namespace reprise::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// Log lines go to files of this process, which has read no setting yet. The log keeps its file until the process ends.
const struct Logs {
  Logs() : folder(::testing::TempDir() + "reprise_pictures_log_" + std::to_string(::getpid())) {
    ::setenv("ASCEND_PROCESS_LOG_PATH", folder.c_str(), 1);
    ::setenv("ASCEND_GLOBAL_LOG_LEVEL", "1", 1);
  }
  ~Logs() {
    std::error_code none;
    std::filesystem::remove_all(folder, none);
  }
  std::string folder;
} kLogs;

class Noted final : public Operation {
 public:
  explicit Noted(OperationInfo info) : info_(std::move(info)) {}
  void Run(uint64_t) override {}
  OperationInfo Describe() const override { return info_; }

 private:
  OperationInfo info_;
};

class Pictures : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    folder_ = ::testing::TempDir() + "reprise_pictures_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    GraphTest::TearDown();
  }
  static void Step(void* stream, const std::string& name, std::vector<Frame> stack = {},
                   const std::string& shapes = "") {
    LaunchOperation(stream, std::make_unique<Noted>(OperationInfo{name, std::move(stack), shapes}));
  }
  aclrtEvent NewEvent() {
    aclrtEvent event = nullptr;
    EXPECT_EQ(0, aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    return event;
  }
  std::string Dump(const Graph& graph, const std::string& ending, bool every_task = false) {
    const std::string path = folder_ + "/graph" + ending;
    EXPECT_TRUE(graph.Dump(path, every_task));
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string Svg(const Graph& graph, bool every_task = false) {
    const std::string text = Dump(graph, ".svg", every_task);
    EXPECT_EQ(Fault(text), "");
    return text;
  }
  Json Tasks(const Graph& graph) {
    const Json tasks = ParseJson(Dump(graph, ".json"));
    EXPECT_TRUE(tasks.is_array());
    return tasks;
  }
  static size_t Count(const std::string& text, const std::string& word) {
    size_t count = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
    return count;
  }

  // What is wrong with the XML: elements that do not end, characters that must be escaped. Empty: nothing.
  static std::string Fault(const std::string& text) {
    std::vector<std::string> open;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '&') {
        const std::string entity = text.substr(at, text.find(';', at) - at);
        if (entity != "&amp" && entity != "&lt" && entity != "&gt" && entity != "&quot") return "entity " + entity;
      }
      if (static_cast<unsigned char>(text[at]) < ' ' && text[at] != '\n') return "a control character";
      if (text[at] != '<') continue;
      const size_t end = text.find('>', at);
      if (end == std::string::npos) return "an open tag";
      const std::string tag = text.substr(at + 1, end - at - 1);
      if (tag.find('<') != std::string::npos) return "a tag in " + tag;
      const std::string name = tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /", 1) - (tag[0] == '/' ? 1 : 0));
      if (tag[0] == '/') {
        if (open.empty() || open.back() != name) return "</" + name + ">";
        open.pop_back();
      } else if (tag.back() != '/') {
        open.push_back(name);
      }
      at = end;
    }
    return open.empty() ? "" : "no end of " + open.back();
  }

  std::string folder_;
};

TEST_F(Pictures, BodiesOfConditionsAreInAllForms) {
  Graph graph;
  auto* flag = static_cast<bool*>(device_memory::Allocate(1, stream_));
  {
    Capture capture(graph, stream_);
    Step(stream_, "before");
    void* outer = graph.BeginIf(flag);
    Step(outer, "in the outer body");
    void* inner = graph.BeginIf(flag);
    Step(inner, "in the inner body");
    graph.EndConditional();
    graph.EndConditional();
    Step(stream_, "after");
  }
  const Json tasks = Tasks(graph);
  const auto find = [&](const std::string& name) {
    for (const Json& task : tasks) {
      if (task["name"] == name) return task["args"];
    }
    ADD_FAILURE() << "no " << name << " in " << tasks.dump(1);
    return Json::object();
  };
  const Json outer = find("in the outer body"), inner = find("in the inner body");
  EXPECT_EQ(outer["Parent Model Id"], find("before")["Model Id"]);
  EXPECT_EQ(inner["Parent Model Id"], outer["Model Id"]);
  EXPECT_FALSE(find("before").contains("Parent Model Id"));
  const Json condition = find("CONDITION_OP");
  EXPECT_EQ(condition["Condition"], "IF");
  ASSERT_EQ(condition["Bodies"].size(), 1u);
  EXPECT_EQ(condition["Bodies"][0], (Json{{"Model Id", outer["Model Id"]}, {"Runs When", "value != 0"}}));
  EXPECT_EQ(tasks.size(), tasks[0]["args"]["Bill"]["Tasks"]);

  const std::string svg = Svg(graph);
  for (const char* name : {"before", "in the outer body", "in the inner body", "after", "value != 0: 4 tasks"}) {
    EXPECT_THAT(svg, HasSubstr(">" + std::string(name) + "</text>"));
  }
  EXPECT_THAT(Dump(graph, ".dot"), AllOf(HasSubstr("in the inner body"), HasSubstr("label=\"value != 0\"")));

  ASSERT_EQ(0, aclmdlRIDebugPrint(graph.raw_executable()));
  std::stringstream lines;
  for (const auto& file : std::filesystem::recursive_directory_iterator(kLogs.folder)) {
    if (file.is_regular_file()) lines << std::ifstream(file.path()).rdbuf();
  }
  EXPECT_THAT(lines.str(), AllOf(HasSubstr("name in the inner body"), HasSubstr("CONDITION_OP, IF, value at 0x"),
                                 HasSubstr("copy device to device, 1 B, 0x")));
  device_memory::Free(flag);
}

TEST_F(Pictures, CopiesAndFillsSayWhatTheyMove) {
  void* host = nullptr;
  ASSERT_EQ(0, aclrtMallocHost(&host, 4096));
  auto* device = static_cast<char*>(device_memory::Allocate(4096, stream_));
  Graph graph;
  {
    Capture capture(graph, stream_);
    ASSERT_EQ(0, aclrtMemcpyAsync(device, 4096, host, 1536, ACL_MEMCPY_HOST_TO_DEVICE, stream_));
    ASSERT_EQ(0, aclrtMemsetAsync(device, 4096, 7, 64, stream_));
    ASSERT_EQ(0, aclrtMemsetD32Async(device, 4096, 0xABCD, 16, stream_));
    ASSERT_EQ(0, aclrtMemcpyAsync(device, 64, device + 64, 64, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_));
    ASSERT_EQ(0, aclrtMemcpy2dAsync(host, 128, device, 256, 100, 8, ACL_MEMCPY_DEVICE_TO_HOST, stream_));
  }
  const auto hex = [](const void* at) { return fmt::format("{:#x}", reinterpret_cast<uintptr_t>(at)); };
  const Json tasks = Tasks(graph);
  ASSERT_EQ(tasks.size(), 5u);
  EXPECT_EQ(tasks[0]["args"]["Copy"],
            (Json{{"Direction", "host to device"}, {"Bytes", 1536}, {"From", hex(host)}, {"To", hex(device)}}));
  EXPECT_EQ(tasks[1]["args"]["Fill"], (Json{{"To", hex(device)}, {"Bytes", 64}, {"Value", "0x07"}}));
  EXPECT_EQ(tasks[2]["args"]["Fill"], (Json{{"To", hex(device)}, {"Bytes", 64}, {"Value", "0x0000abcd"}}));
  EXPECT_EQ(tasks[3]["args"]["Copy"]["Direction"], "device to device");
  EXPECT_EQ(tasks[4]["args"]["Copy"]["Bytes"], 800);
  EXPECT_EQ(tasks[4]["args"]["Rows"], 8);
  const std::string svg = Svg(graph);
  for (const std::string& words :
       {std::string("copy host to device"), std::string("1.5 KiB"), hex(host) + " -&gt; " + hex(device),
        std::string("64 B with 0x07"), std::string("fill device memory"), std::string("800 B, 8 rows of 100 B")}) {
    EXPECT_THAT(svg, HasSubstr(">" + words + "</text>"));
  }
  device_memory::Free(device);
  ASSERT_EQ(0, aclrtFreeHost(host));
}

TEST_F(Pictures, OperationsShowTheirShapes) {
  Graph graph;
  {
    Capture capture(graph, stream_);
    Step(stream_, "aten::mm", {}, "float32[2,3], float32[3,4] -> float32[2,4]");
  }
  EXPECT_EQ(Tasks(graph)[0]["args"]["Shapes"], "float32[2,3], float32[3,4] -> float32[2,4]");
  EXPECT_THAT(Svg(graph), HasSubstr("float32[2,3], float32[3,4] -&gt; float32[2,4]"));
}

TEST_F(Pictures, PlacesThatAreNoTimesSayThatTheyAreNone) {
  Graph graph;
  {
    Capture capture(graph, stream_);
    Step(stream_, "step");
  }
  EXPECT_THAT(Svg(graph), HasSubstr("not replayed yet; places and sizes show the order, not times"));
  EXPECT_EQ(Tasks(graph)[0]["args"]["Replays"], 0);
  EXPECT_THAT(Tasks(graph)[0]["args"]["Times"], HasSubstr("nothing was measured"));
  graph.Replay();
  Wait(stream_);
  EXPECT_THAT(Svg(graph), HasSubstr("replayed 1 time; places"));
  EXPECT_EQ(Tasks(graph)[0]["args"]["Replays"], 1);
}

TEST_F(Pictures, NothingCaptured) {
  Graph graph;
  { Capture capture(graph, stream_); }
  EXPECT_THAT(Svg(graph), HasSubstr(">no tasks</text>"));
  EXPECT_EQ(Tasks(graph), Json::array());
}

TEST_F(Pictures, LongStreamsAreShownByLineOrByName) {
  const auto steps = [&](int count, const std::function<void(int)>& step) {
    auto graph = std::make_unique<Graph>();
    Capture capture(*graph, stream_);
    for (int i = 0; i < count; ++i) step(i);
    capture.End();
    return graph;
  };
  const auto same = steps(2000, [&](int) { Step(stream_, "step"); });
  EXPECT_THAT(Svg(*same), AllOf(HasSubstr(">step × 2000</text>"), HasSubstr("1 box for 2000 tasks")));
  EXPECT_EQ(Count(Svg(*same, true), ">step</text>"), 2000u) << "on request there is a box for each";
  EXPECT_EQ(Tasks(*same).size(), 2000u);

  const auto in_turn = steps(600, [&](int i) { Step(stream_, i % 3 == 0 ? "mm" : i % 3 == 1 ? "add" : "relu"); });
  EXPECT_THAT(Svg(*in_turn), HasSubstr(">200 × (mm, add, relu)</text>"));

  const auto lines = steps(600, [&](int i) {
    Step(stream_, "op " + std::to_string(i % 7), {{"model.py", i / 60, "forward"}, {"train.py", 3, "main"}});
  });
  EXPECT_THAT(Svg(*lines), AllOf(HasSubstr(">model.py:9 (forward)</text>"), HasSubstr(">60 tasks: op"),
                                 HasSubstr("launched at model.py:9 (forward)")));
  EXPECT_EQ(Count(Svg(*lines), "<g>"), 10u);

  const auto few = steps(30, [&](int) { Step(stream_, "step"); });
  EXPECT_EQ(Count(Svg(*few), ">step</text>"), 30u) << "what fits is not grouped";

  unsigned dice = 1;
  const auto mixed =
      steps(3000, [&](int) { Step(stream_, std::string(1, 'a' + (dice = dice * 48271 % 2147483647) % 26)); });
  EXPECT_LE(Count(Svg(*mixed), "<g>"), 24u);
}

TEST_F(Pictures, ManyForksAndManyStreamsStayReadable) {
  const aclrtStream side = NewStream();
  Graph graph;
  {
    Capture capture(graph, stream_);
    for (int i = 0; i < 200; ++i) {
      const aclrtEvent fork = NewEvent(), join = NewEvent();
      ASSERT_EQ(0, aclrtRecordEvent(fork, stream_));
      ASSERT_EQ(0, aclrtStreamWaitEvent(side, fork));
      Step(side, "aside");
      ASSERT_EQ(0, aclrtRecordEvent(join, side));
      ASSERT_EQ(0, aclrtStreamWaitEvent(stream_, join));
      ASSERT_EQ(0, aclrtDestroyEvent(fork));
      ASSERT_EQ(0, aclrtDestroyEvent(join));
    }
  }
  const std::string svg = Svg(graph);
  EXPECT_THAT(svg, HasSubstr("more tasks</text>"));
  EXPECT_LE(Count(svg, "<g>"), 130u);
  EXPECT_EQ(Count(Svg(graph, true), ">aside</text>"), 200u);

  std::vector<aclrtStream> sides(40);
  for (aclrtStream& one : sides) one = NewStream();
  Graph wide;
  {
    Capture capture(wide, stream_);
    const aclrtEvent fork = NewEvent();
    ASSERT_EQ(0, aclrtRecordEvent(fork, stream_));
    for (const aclrtStream one : sides) {
      ASSERT_EQ(0, aclrtStreamWaitEvent(one, fork));
      const aclrtEvent join = NewEvent();
      ASSERT_EQ(0, aclrtRecordEvent(join, one));
      ASSERT_EQ(0, aclrtStreamWaitEvent(stream_, join));
      ASSERT_EQ(0, aclrtDestroyEvent(join));
    }
    ASSERT_EQ(0, aclrtDestroyEvent(fork));
  }
  EXPECT_THAT(Svg(wide), HasSubstr("9 further streams with"));
  EXPECT_THAT(Svg(wide, true), Not(HasSubstr("further streams")));
}

TEST_F(Pictures, NamesOfAnyKind) {
  Graph graph;
  const std::string wide(300, 'W');
  {
    Capture capture(graph, stream_);
    for (const std::string& name : {wide, std::string("a<b> & \"c\""), std::string("größe 名前"),
                                    std::string("bad \xff\xc3"), std::string("line\nand\ttab\x01"), std::string()}) {
      Step(stream_, name);
    }
  }
  const std::string svg = Svg(graph);
  EXPECT_EQ(Count(svg, wide), 2u) << "as titles of the box and of the text that was cut, not in the box";
  EXPECT_THAT(svg, AllOf(HasSubstr(">a&lt;b&gt; &amp; &quot;c&quot;</text>"), HasSubstr(">größe 名前</text>"),
                         HasSubstr(">bad \xEF\xBF\xBD\xEF\xBF\xBD</text>"), HasSubstr("WWW…</text>")));
  std::vector<std::string> names;
  for (const Json& task : Tasks(graph)) names.push_back(task["name"]);
  EXPECT_THAT(names, ElementsAre(wide, "a<b> & \"c\"", "größe 名前", "bad \xEF\xBF\xBD\xEF\xBF\xBD",
                                 "line\nand\ttab\x01", "KERNEL_AIVEC"));
  EXPECT_THAT(Dump(graph, ".dot"), AllOf(HasSubstr("a<b> & \\\"c\\\""), HasSubstr("bad \xEF\xBF\xBD\xEF\xBF\xBD")));
}

TEST_F(Pictures, UnknownEndingsAreRefused) {
  Graph graph;
  {
    Capture capture(graph, stream_);
    Step(stream_, "step");
  }
  for (const char* name : {"/graph.pdf", "/graph", "/graph.json.gz", "/x.svg/", "/.hidden", "/graph.SVG"}) {
    EXPECT_TRUE(Refused(107000, ".json (a trace with all tasks), .svg (a picture) or .dot (for Graphviz)", [&] {
      (void)graph.Dump(folder_ + name);
    })) << name;
    EXPECT_EQ(107000, WriteGraphPicture(graph.raw_executable(), (folder_ + name).c_str())) << name;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(0, WriteGraphPicture(graph.raw_executable(), (folder_ + "/graph.dot").c_str()));
  EXPECT_THAT(Dump(graph, ".dot"), ::testing::StartsWith("digraph"));
}

TEST(JsonText, BytesThatAreNoUtf8AreReplaced) {
  const std::string bad = "\xEF\xBF\xBD";
  const std::pair<std::string, std::string> rows[] = {
      {"größe 名 🙂", "größe 名 🙂"},
      {"\"\\\n\t\r\x01", "\\\"\\\\\\n\\t\\r\\u0001"},
      {"\xff", bad},
      {"a\x80z", "a" + bad + "z"},
      {"\xc3", bad},                                // cut
      {"\xe5\x90", bad + bad},                      // cut
      {"\xc0\xaf", bad + bad},                      // overlong
      {"\xe0\x80\xaf", bad + bad + bad},            // overlong
      {"\xed\xa0\x80", bad + bad + bad},            // a surrogate
      {"\xf4\x90\x80\x80", bad + bad + bad + bad},  // above U+10FFFF
      {"\xc3\"", bad + "\\\""},                     // the quote is not swallowed
      {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
      {std::string("a\0b", 3), "a\\u0000b"},
  };
  for (const auto& [text, escaped] : rows) EXPECT_EQ(JsonEscape(text), escaped);
}

}  // namespace
}  // namespace reprise::testing
