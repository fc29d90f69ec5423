// SPDX-License-Identifier: Apache-2.0
#include <acl/acl_prof.h>
#include <experiment/msprof/toolchain/prof_api.h>
#include <mstx/ms_tools_ext.h>

#include <chrono>
#include <map>
#include <set>

#include "base/fault.h"
#include "child.h"
#include "device/timeline.h"
#include "kernels.h"
#include "scale.h"
#include "support/json.h"

namespace reprise::testing {
namespace {

/// The events of a trace.
class Trace {
 public:
  explicit Trace(const std::string& text) {
    whole_ = ParseJson(text);
    EXPECT_FALSE(whole_.is_discarded()) << "no valid JSON:\n" << text.substr(0, 500);
    if (whole_.is_discarded()) whole_ = {{"traceEvents", json::array()}, {"otherData", json::object()}};
  }

  std::vector<json> All(const std::string& phase, const std::string& category, const std::string& name = "") const {
    std::vector<json> out;
    for (const json& event : whole_["traceEvents"]) {
      if (event["ph"] == phase && event.value("cat", "") == category && (name.empty() || event["name"] == name)) {
        out.push_back(event);
      }
    }
    return out;
  }
  size_t Tasks(const std::string& name) const { return All("X", "task", name).size(); }
  /// Name of the track that the event is on.
  std::string TrackOf(const json& event) const {
    for (const json& meta : whole_["traceEvents"]) {
      if (meta["ph"] == "M" && meta["name"] == "thread_name" && meta["pid"] == event["pid"] &&
          meta["tid"] == event["tid"]) {
        return meta["args"]["name"];
      }
    }
    return "";
  }
  uint64_t dropped() const { return whole_["otherData"].value("dropped_events", UINT64_MAX); }
  size_t size() const { return whole_["traceEvents"].size(); }

 private:
  json whole_;
};

class Profile : public Tools {
 protected:
  void SetUp() override {
    Tools::SetUp();
    MUST(aclprofInit(folder_.c_str(), folder_.string().size()));
    config_ = NewConfig();
    ASSERT_NE(nullptr, config_);
  }
  void TearDown() override {
    (void)aclprofFinalize();
    EXPECT_EQ(0, aclprofDestroyConfig(config_));
    Tools::TearDown();
  }
  static aclprofConfig* NewConfig() {
    uint32_t device = 0;
    return aclprofCreateConfig(&device, 1, ACL_AICORE_NONE, nullptr, ACL_PROF_TASK_TIME | ACL_PROF_MSPROFTX);
  }
  Trace StopAndRead() {
    EXPECT_ACL(0, aclprofStop(config_));
    return ReadNewest();
  }
  Trace ReadNewest() {
    const auto files = FilesIn(folder_);
    EXPECT_FALSE(files.empty());
    return Trace(files.empty() ? "{}" : ReadAll(files.back()));
  }

  aclprofConfig* config_ = nullptr;
};

TEST_F(Profile, EagerTasksStandOnTheTracksOfTheirStreams) {
  const aclrtStream first = NewStream(), second = NewStream();
  MUST(aclprofStart(config_));
  for (int i = 0; i < 3; ++i) Launch(count_up_, first);
  MUST(aclrtSynchronizeStream(first));
  for (int i = 0; i < 2; ++i) Launch(count_twice_, second);
  MUST(aclrtMemsetAsync(cell_, 64, 0, 64, second));
  MUST(aclrtSynchronizeStream(second));
  const Trace trace = StopAndRead();
  EXPECT_EQ(trace.Tasks("count_up"), 3U);
  EXPECT_EQ(trace.Tasks("count_twice"), 2U);
  EXPECT_EQ(trace.All("X", "task").size(), 6U);
  for (const json& event : trace.All("X", "task", "count_up")) {
    EXPECT_EQ(trace.TrackOf(event), "stream " + std::to_string(IdOf(first)));
    EXPECT_EQ(event["args"]["type"], "KERNEL_AIVEC");
    EXPECT_GE(event["dur"].get<double>(), 0);
    EXPECT_FALSE(event["args"].contains("graph"));
  }
  for (const json& event : trace.All("X", "task", "count_twice")) {
    EXPECT_EQ(trace.TrackOf(event), "stream " + std::to_string(IdOf(second)));
    EXPECT_EQ(event["args"]["type"], "KERNEL_AICORE");
  }
  std::set<int> ids;
  for (const json& event : trace.All("X", "task", "count_up")) ids.insert(event["args"]["task"].get<int>());
  EXPECT_EQ(ids.size(), 3U);
  EXPECT_EQ(trace.dropped(), 0U);
  MUST(aclrtDestroyStream(first));
  MUST(aclrtDestroyStream(second));
}

TEST_F(Profile, SubmissionsPointToTheirTasks) {
  const aclrtStream stream = NewStream();
  MUST(aclprofStart(config_));
  for (int i = 0; i < 4; ++i) Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  const Trace trace = StopAndRead();
  const auto submissions = trace.All("X", "submission", "submit count_up");
  ASSERT_EQ(submissions.size(), 4U);
  EXPECT_EQ(trace.TrackOf(submissions[0]), "thread " + std::to_string(::gettid()));
  std::map<int, json> begins;
  for (const json& event : trace.All("s", "flow")) begins[event["id"].get<int>()] = event;
  const auto ends = trace.All("f", "flow");
  ASSERT_EQ(begins.size(), 4U);
  ASSERT_EQ(ends.size(), 4U);
  for (const json& end : ends) {
    ASSERT_TRUE(begins.contains(end["id"].get<int>()));
    EXPECT_LE(begins[end["id"].get<int>()]["ts"].get<double>(), end["ts"].get<double>());
  }
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, EveryReplayShowsItsNodesOnTheLanes) {
  const aclrtStream origin = NewStream(), side = NewStream();
  aclrtEvent fork = nullptr, join = nullptr;
  MUST(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  MUST(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  Launch(count_up_, origin);
  MUST(aclrtRecordEvent(fork, origin));
  MUST(aclrtStreamWaitEvent(side, fork));
  Launch(count_twice_, side);
  Launch(count_twice_, side);
  MUST(aclrtRecordEvent(join, side));
  MUST(aclrtStreamWaitEvent(origin, join));
  MUST(aclmdlRICaptureEnd(origin, &model));
  MUST(aclmdlRIExecuteAsync(model, origin));  // before the recording
  MUST(aclrtSynchronizeStream(origin));
  MUST(aclprofStart(config_));
  constexpr size_t kReplays = 5;
  for (size_t i = 0; i < kReplays; ++i) MUST(aclmdlRIExecuteAsync(model, origin));
  MUST(aclrtSynchronizeStream(origin));
  const Trace trace = StopAndRead();
  EXPECT_EQ(trace.Tasks("count_up"), kReplays);
  EXPECT_EQ(trace.Tasks("count_twice"), 2 * kReplays);
  const auto graphs = trace.All("X", "graph");
  ASSERT_EQ(graphs.size(), kReplays);
  const std::string name = graphs[0]["name"];
  EXPECT_EQ(trace.TrackOf(graphs[0]), "stream " + std::to_string(IdOf(origin)));
  std::set<std::string> tracks;
  for (const char* kernel : {"count_up", "count_twice"}) {
    for (const json& event : trace.All("X", "task", kernel)) {
      EXPECT_EQ(event["args"]["graph"], name);
      tracks.insert(trace.TrackOf(event));
    }
  }
  EXPECT_EQ(tracks.size(), 2U) << "one for each lane";
  for (const std::string& track : tracks) EXPECT_NE(track.find(" of " + name), std::string::npos) << track;
  MUST(aclmdlRIDestroy(model));
  for (const aclrtEvent event : {fork, join}) MUST(aclrtDestroyEvent(event));
  for (const aclrtStream stream : {origin, side}) MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, MarksAreInstants) {
  const aclrtStream stream = NewStream();
  MUST(aclprofStart(config_));
  void* stamp = aclprofCreateStamp();
  ASSERT_NE(nullptr, stamp);
  EXPECT_ACL(0, aclprofSetStampTraceMessage(stamp, "from a stamp", 12));
  EXPECT_ACL(0, aclprofMark(stamp));
  EXPECT_ACL(0, aclprofMarkEx("on \"both\" sides", 15, stream));
  char data[] = "trace data";
  EXPECT_ACL(0, aclrtProfTrace(data, sizeof data, stream));
  unsigned char binary[] = {1, 0, 0xFF};
  EXPECT_ACL(0, aclrtProfTrace(binary, sizeof binary, stream));
  EXPECT_ACL(0, aclprofMarkEx("\xFF\xC0\x80 caf\xC3\xA9 \xED\xA0\x80", 13, stream));
  MUST(aclrtSynchronizeStream(stream));
  aclprofDestroyStamp(stamp);
  const Trace trace = StopAndRead();
  const auto from_stamp = trace.All("i", "mark", "from a stamp");
  ASSERT_EQ(from_stamp.size(), 1U);
  EXPECT_EQ(trace.TrackOf(from_stamp[0]), "thread " + std::to_string(::gettid()));
  const auto both = trace.All("i", "mark", "on \"both\" sides");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_NE(trace.TrackOf(both[0]), trace.TrackOf(both[1]));
  EXPECT_EQ(trace.All("i", "mark", "trace data").size(), 1U);
  EXPECT_EQ(trace.All("i", "mark", "data 0100ff").size(), 1U);
  EXPECT_EQ(trace.All("i", "mark", "??? caf\xC3\xA9 ???").size(), 2U) << "what is no UTF-8 is replaced";
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, RangesAreDurations) {
  MUST(aclprofStart(config_));
  void* stamp = aclprofCreateStamp();
  EXPECT_ACL(0, aclprofSetStampTraceMessage(stamp, "outer", 5));
  EXPECT_ACL(0, aclprofPush(stamp));
  EXPECT_ACL(0, aclprofSetStampTraceMessage(stamp, "inner", 5));
  EXPECT_ACL(0, aclprofPush(stamp));
  EXPECT_ACL(0, aclprofPop());
  EXPECT_ACL(0, aclprofPop());
  EXPECT_ACL(0, aclprofSetStampTraceMessage(stamp, "loose", 5));
  uint32_t range = 0;
  EXPECT_ACL(0, aclprofRangeStart(stamp, &range));
  std::thread([&] { EXPECT_ACL(0, aclprofRangeStop(range)); }).join();
  aclprofTensorInfo info{};
  info.opNameId = aclprofStr2Id("MatMul_1");
  EXPECT_NE(info.opNameId, 0U);
  EXPECT_EQ(info.opNameId, aclprofStr2Id("MatMul_1"));
  EXPECT_NE(info.opNameId, aclprofStr2Id("MatMul_2"));
  info.opTypeId = aclprofStr2Id("MatMul");
  aclprofEventAttributes attributes{};
  attributes.version = ACL_PROF_EVENT_ATTR_VERSION;
  attributes.size = sizeof attributes;
  attributes.messageType = ACL_PROF_MESSAGE_TYPE_TENSOR_INFO;
  attributes.message.tensorInfo = &info;
  EXPECT_ACL(0, aclprofRangePushEx(&attributes));
  EXPECT_ACL(0, aclprofRangePop());
  EXPECT_ACL(0, aclprofSetStampTraceMessage(stamp, "left open", 9));
  EXPECT_ACL(0, aclprofPush(stamp));
  const Trace trace = StopAndRead();
  const auto outer = trace.All("X", "range", "outer"), inner = trace.All("X", "range", "inner");
  ASSERT_EQ(outer.size(), 1U);
  ASSERT_EQ(inner.size(), 1U);
  EXPECT_LE(outer[0]["ts"].get<double>(), inner[0]["ts"].get<double>());
  EXPECT_GE(outer[0]["dur"].get<double>(), inner[0]["dur"].get<double>());
  EXPECT_EQ(trace.TrackOf(outer[0]), "thread " + std::to_string(::gettid()));
  EXPECT_EQ(trace.All("b", "range", "loose").size(), 1U);
  EXPECT_EQ(trace.All("e", "range", "loose").size(), 1U);
  EXPECT_EQ(trace.All("X", "range", "MatMul_1 (MatMul)").size(), 1U);
  EXPECT_EQ(trace.All("B", "range", "left open").size(), 1U);
  EXPECT_ACL(0, aclprofPop());
  aclprofDestroyStamp(stamp);
}

TEST_F(Profile, StepsLieAroundTheirTasks) {
  const aclrtStream stream = NewStream();
  aclprofStepInfo* step = aclprofCreateStepInfo();
  ASSERT_NE(nullptr, step);
  EXPECT_ACL(100000, aclprofGetStepTimestamp(step, ACL_STEP_END, stream));
  MUST(aclprofStart(config_));
  EXPECT_ACL(0, aclprofGetStepTimestamp(step, ACL_STEP_START, stream));
  Launch(count_up_, stream);
  EXPECT_ACL(0, aclprofGetStepTimestamp(step, ACL_STEP_END, stream));
  aclprofDestroyStepInfo(step);  // before the marks have run, perhaps
  MUST(aclrtSynchronizeStream(stream));
  const Trace trace = StopAndRead();
  const auto steps = trace.All("X", "step");
  const auto tasks = trace.All("X", "task", "count_up");
  ASSERT_EQ(steps.size(), 1U);
  ASSERT_EQ(tasks.size(), 1U);
  EXPECT_EQ(trace.TrackOf(steps[0]), trace.TrackOf(tasks[0]));
  EXPECT_LE(steps[0]["ts"].get<double>(), tasks[0]["ts"].get<double>());
  EXPECT_GE(steps[0]["ts"].get<double>() + steps[0]["dur"].get<double>() + 0.002,
            tasks[0]["ts"].get<double>() + tasks[0]["dur"].get<double>());
  EXPECT_EQ(trace.All("i", "mark").size(), 2U) << "start and end";
  MUST(aclrtDestroyStream(stream));
}

// ---- Markers (mstx) ----

// The message that the call leaves, which itself returns nothing.
template <class Call>
std::string MessageOf(Call call) {
  DropMessage();
  call();
  const char* message = aclGetRecentErrMsg();
  return message != nullptr ? message : "";
}

TEST_F(Profile, MarkersAreMarksAndRangesOfTheirDomains) {
  const aclrtStream stream = NewStream();
  uint64_t tool = 77;
  mstxGetToolId(&tool);
  EXPECT_EQ(tool, uint64_t{MSTX_TOOL_INVALID_ID});
  MUST(aclprofStart(config_));
  mstxGetToolId(&tool);
  EXPECT_EQ(tool, uint64_t{MSTX_TOOL_MSPROF_ID});
  mstxMarkA("here", nullptr);
  mstxMarkA("both", stream);
  const mstxDomainHandle_t domain = mstxDomainCreateA("model");
  ASSERT_NE(domain, nullptr);
  mstxDomainMarkA(domain, "loaded", nullptr);
  const mstxRangeId outer = mstxRangeStartA("outer", nullptr);
  const mstxRangeId inner = mstxDomainRangeStartA(domain, "forward", stream);
  EXPECT_NE(outer, uint64_t{MSTX_INVALID_ID});
  EXPECT_NE(inner, uint64_t{MSTX_INVALID_ID});
  EXPECT_NE(inner, outer);
  Launch(count_up_, stream);
  mstxRangeEnd(outer);  // not in the order of their beginnings
  std::thread([&] { mstxDomainRangeEnd(domain, inner); }).join();
  const mstxRangeId open = mstxDomainRangeStartA(domain, "left open", nullptr);
  mstxDomainDestroy(domain);
  EXPECT_NE(open, uint64_t{MSTX_INVALID_ID});
  MUST(aclrtSynchronizeStream(stream));
  const Trace trace = StopAndRead();
  EXPECT_EQ(trace.All("i", "mark", "here").size(), 1U);
  const auto both = trace.All("i", "mark", "both");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_NE(trace.TrackOf(both[0]), trace.TrackOf(both[1]));
  EXPECT_EQ(trace.All("i", "mark", "model: loaded").size(), 1U);
  for (const char* name : {"outer", "model: forward", "model: left open"}) {
    EXPECT_EQ(trace.All("b", "range", name).size(), 1U) << name;
    EXPECT_EQ(trace.All("e", "range", name).size(), 1U) << name;
  }
  const auto on_stream = trace.All("X", "step", "model: forward");
  const auto tasks = trace.All("X", "task", "count_up");
  ASSERT_EQ(on_stream.size(), 1U);
  ASSERT_EQ(tasks.size(), 1U);
  EXPECT_EQ(trace.TrackOf(on_stream[0]), trace.TrackOf(tasks[0]));
  EXPECT_LE(on_stream[0]["ts"].get<double>(), tasks[0]["ts"].get<double>());
  EXPECT_GE(on_stream[0]["ts"].get<double>() + on_stream[0]["dur"].get<double>() + 0.002,
            tasks[0]["ts"].get<double>() + tasks[0]["dur"].get<double>());
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, CapturedMarkersShowInEachReplay) {
  const aclrtStream stream = NewStream();
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  const mstxRangeId range = mstxRangeStartA("layer", stream);
  Launch(count_up_, stream);
  mstxMarkA("inside", stream);
  mstxRangeEnd(range);
  MUST(aclmdlRICaptureEnd(stream, &model));
  MUST(aclprofStart(config_));
  for (int i = 0; i < 3; ++i) MUST(aclmdlRIExecuteAsync(model, stream));
  MUST(aclrtSynchronizeStream(stream));
  const Trace trace = StopAndRead();
  EXPECT_EQ(trace.Tasks("count_up"), 3U);
  EXPECT_EQ(trace.All("X", "step", "layer").size(), 3U);
  EXPECT_EQ(trace.All("i", "mark", "inside").size(), 3U);
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, WrongMarkersSayWhatIsWrongAndDoNothing) {
  MUST(aclprofStart(config_));
  const aclrtStream gone = NewStream();
  const mstxRangeId on_gone = mstxRangeStartA("on a stream", gone);
  MUST(aclrtSynchronizeStream(gone));
  MUST(aclrtDestroyStream(gone));
  const mstxDomainHandle_t domain = mstxDomainCreateA("here"), other = mstxDomainCreateA("there");
  const mstxDomainHandle_t destroyed = mstxDomainCreateA("gone");
  const mstxRangeId inside = mstxDomainRangeStartA(destroyed, "inside", nullptr);
  mstxDomainDestroy(destroyed);
  const mstxRangeId range = mstxDomainRangeStartA(domain, "range", nullptr);
  const std::string longest(4096, 'x');
  mstxRangeId made = 77;
  const auto expect = [](const std::string& message, const char* number, const char* function, const char* culprit) {
    EXPECT_THAT(message, ::testing::AllOf(::testing::HasSubstr(number), ::testing::HasSubstr(function),
                                          ::testing::HasSubstr(culprit), ::testing::HasSubstr("Solution: ")));
  };
  expect(MessageOf([&] { mstxMarkA(nullptr, nullptr); }), "100000", "mstxMarkA", "message");
  expect(MessageOf([&] { mstxMarkA("", nullptr); }), "100000", "mstxMarkA", "message");
  expect(MessageOf([&] { mstxMarkA((longest + "x").c_str(), nullptr); }), "100000", "mstxMarkA", "4096");
  EXPECT_EQ(MessageOf([&] { mstxMarkA(longest.c_str(), nullptr); }), "");
  expect(MessageOf([&] { mstxMarkA("on nothing", gone); }), "107017", "mstxMarkA", "stream");
  expect(MessageOf([&] { made = mstxRangeStartA("on nothing", gone); }), "107017", "mstxRangeStartA", "stream");
  EXPECT_EQ(made, uint64_t{MSTX_INVALID_ID});
  expect(MessageOf([&] { mstxRangeEnd(on_gone); }), "107017", "mstxRangeEnd", "stream");
  expect(MessageOf([&] { mstxRangeEnd(on_gone); }), "100000", "mstxRangeEnd", "no open range");
  expect(MessageOf([&] { mstxRangeEnd(range); }), "100000", "mstxRangeEnd", "parameter id");
  expect(MessageOf([&] { mstxDomainRangeEnd(other, range); }), "100000", "mstxDomainRangeEnd", "this domain");
  expect(MessageOf([&] { mstxDomainRangeEnd(destroyed, inside); }), "107017", "mstxDomainRangeEnd", "parameter domain");
  expect(MessageOf([&] { mstxDomainDestroy(destroyed); }), "107017", "mstxDomainDestroy", "parameter domain");
  expect(MessageOf([&] { mstxDomainMarkA(destroyed, "x", nullptr); }), "107017", "mstxDomainMarkA", "domain");
  expect(MessageOf([&] { mstxDomainMarkA(nullptr, "x", nullptr); }), "100000", "mstxDomainMarkA", "domain");
  expect(MessageOf([&] { made = mstxDomainRangeStartA(destroyed, "x", nullptr); }), "107017", "mstxDomainRangeStartA",
         "domain");
  EXPECT_EQ(made, uint64_t{MSTX_INVALID_ID});
  expect(MessageOf([&] { EXPECT_EQ(mstxDomainCreateA(nullptr), nullptr); }), "100000", "mstxDomainCreateA", "name");
  expect(MessageOf([&] { mstxGetToolId(nullptr); }), "100000", "mstxGetToolId", "id");
  EXPECT_EQ(MessageOf([&] { mstxDomainRangeEnd(domain, range); }), "");
  mstxDomainDestroy(domain);
  mstxDomainDestroy(other);
  const Trace trace = StopAndRead();
  EXPECT_EQ(trace.All("i", "mark").size(), 2U) << "the longest mark, and the begin of the range on the stream";
  EXPECT_EQ(trace.All("b", "range").size(), 3U);
  EXPECT_EQ(trace.All("e", "range").size(), 3U);
}

TEST_F(Profile, PoolsAndTheirPieces) {
  auto* memory = static_cast<char*>(NewMemory(4096));
  mstxMemVirtualRangeDesc_t whole{0, memory, 4096};
  mstxMemHeapDesc_t pool{MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, &whole};
  const mstxDomainHandle_t domain = mstxDomainCreateA("pools");
  MUST(aclprofStart(config_));
  const mstxMemHeapHandle_t heap = mstxMemHeapRegister(domain, &pool);
  ASSERT_NE(heap, nullptr);
  const auto expect = [&](const std::string& message, const char* number, const char* words) {
    EXPECT_NE(message.find(number), std::string::npos) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  expect(MessageOf([&] { EXPECT_EQ(mstxMemHeapRegister(nullptr, &pool), nullptr); }), "107000", "overlaps the heap");
  mstxMemVirtualRangeDesc_t pieces[2] = {{0, memory, 100}, {0, memory + 100, 50}};
  mstxMemRegionHandle_t handles[2] = {};
  mstxMemRegionsRegisterBatch_t batch{heap, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, 2, pieces, handles};
  EXPECT_EQ(MessageOf([&] { mstxMemRegionsRegister(domain, &batch); }), "");
  EXPECT_NE(handles[0], nullptr);
  EXPECT_NE(handles[0], handles[1]);
  expect(MessageOf([&] { mstxMemRegionsRegister(domain, &batch); }), "107000", "overlaps another region");
  mstxMemVirtualRangeDesc_t outside{0, memory + 4000, 97};
  mstxMemRegionsRegisterBatch_t bad = batch;
  bad.regionCount = 1;
  bad.regionDescArray = &outside;
  expect(MessageOf([&] { mstxMemRegionsRegister(domain, &bad); }), "107000", "does not lie in the heap");
  bad.regionDescArray = reinterpret_cast<void*>(64);
  expect(MessageOf([&] { mstxMemRegionsRegister(domain, &bad); }), "107000", "not readable");
  bad.regionCount = 0;
  expect(MessageOf([&] { mstxMemRegionsRegister(domain, &bad); }), "107000", "count");
  expect(MessageOf([&] { mstxMemRegionsRegister(nullptr, &batch); }), "107017", "heap");
  // By handle and by address; one wrong entry and nothing happens.
  mstxMemRegionRef_t refs[2] = {};
  refs[0].refType = MSTX_MEM_REGION_REF_TYPE_HANDLE;
  refs[0].handle = handles[0];
  refs[1].refType = MSTX_MEM_REGION_REF_TYPE_POINTER;
  refs[1].pointer = memory + 101;
  mstxMemRegionsUnregisterBatch_t gone{2, refs};
  expect(MessageOf([&] { mstxMemRegionsUnregister(domain, &gone); }), "107000", "pointer");
  refs[1].pointer = memory + 100;
  EXPECT_EQ(MessageOf([&] { mstxMemRegionsUnregister(domain, &gone); }), "");
  expect(MessageOf([&] { mstxMemRegionsUnregister(domain, &gone); }), "107000", "handle");
  EXPECT_EQ(MessageOf([&] { mstxMemRegionsRegister(domain, &batch); }), "") << "the places are free again";
  EXPECT_EQ(MessageOf([&] { mstxMemHeapUnregister(domain, heap); }), "");
  expect(MessageOf([&] { mstxMemHeapUnregister(domain, heap); }), "107017", "heap");
  expect(MessageOf([&] { mstxMemHeapUnregister(domain, nullptr); }), "100000", "heap");
  whole.deviceId = 1000;
  expect(MessageOf([&] { EXPECT_EQ(mstxMemHeapRegister(nullptr, &pool), nullptr); }), "107000", "device 1000");
  whole = {0, memory, 0};
  expect(MessageOf([&] { EXPECT_EQ(mstxMemHeapRegister(nullptr, &pool), nullptr); }), "107000", "is none");
  whole = {0, memory, 4096};
  EXPECT_NE(mstxMemHeapRegister(domain, &pool), nullptr);
  mstxDomainDestroy(domain);
  const mstxMemHeapHandle_t other = mstxMemHeapRegister(nullptr, &pool);
  EXPECT_NE(other, nullptr) << "the heap ended with its domain";
  mstxMemHeapUnregister(nullptr, other);
  const Trace trace = StopAndRead();
  size_t regions = 0;
  for (const json& event : trace.All("i", "mark")) {
    regions += event["name"].get<std::string>().rfind("region of ", 0) == 0 ? 1 : 0;
  }
  EXPECT_EQ(regions, 4U);
}

TEST_F(Profile, ReportsOfFrameworksAreChecked) {
  const uint64_t before = MsprofSysCycleTime();
  EXPECT_NE(before, 0U);
  EXPECT_GE(MsprofSysCycleTime(), before);
  const uint64_t number = MsprofGetHashId("aten::add", 9);
  EXPECT_NE(number, 0U);
  EXPECT_EQ(MsprofGetHashId("aten::add and more", 9), number);
  EXPECT_NE(MsprofGetHashId("aten::ad", 8), number);
  EXPECT_EQ(MsprofGetHashId(nullptr, 9), 0U);
  EXPECT_EQ(MsprofGetHashId("x", 0), 0U);
  EXPECT_ACL(0, MsprofRegisterCallback(1, [](uint32_t, void*, uint32_t) { return 0; }));
  EXPECT_ACL(100000, MsprofRegisterCallback(1, nullptr));
  MsprofApi report{};
  EXPECT_ACL(107000, MsprofReportApi(0, &report));
  report.magicNumber = MSPROF_REPORT_DATA_MAGIC_NUM;
  EXPECT_ACL(0, MsprofReportApi(0, &report));
  EXPECT_ACL(100000, MsprofReportApi(0, nullptr));
  EXPECT_ACL(0, MsprofReportCompactInfo(1, &report, sizeof report));
  EXPECT_ACL(0, MsprofReportAdditionalInfo(1, &report, sizeof report));
  EXPECT_ACL(107000, MsprofReportCompactInfo(1, &report, 1));
  EXPECT_ACL(107000, MsprofReportAdditionalInfo(1, reinterpret_cast<void*>(64), 64));
  report.beginTime = 2;
  report.endTime = 1;
  EXPECT_ACL(107000, MsprofReportApi(0, &report));
}

TEST_F(Profile, ReportsOfFrameworksAreInTheTimeline) {
  MsprofApi report{};
  report.magicNumber = MSPROF_REPORT_DATA_MAGIC_NUM;
  report.level = 5;
  report.type = 77;
  report.threadId = static_cast<uint32_t>(::getpid());
  report.itemId = MsprofGetHashId("aten::add", 9);
  MUST(aclprofStart(config_));
  report.beginTime = MsprofSysCycleTime();
  report.endTime = report.beginTime + 5000;
  EXPECT_ACL(0, MsprofReportApi(0, &report));
  report.itemId = 0;
  EXPECT_ACL(0, MsprofReportApi(0, &report));
  EXPECT_ACL(0, MsprofReportCompactInfo(1, &report, sizeof report));
  EXPECT_ACL(0, MsprofReportAdditionalInfo(1, &report, sizeof report));
  const Trace trace = StopAndRead();
  ASSERT_EQ(trace.All("b", "range", "aten::add").size(), 1U);
  ASSERT_EQ(trace.All("e", "range", "aten::add").size(), 1U);
  EXPECT_NEAR(trace.All("e", "range", "aten::add")[0]["ts"].get<double>() -
                  trace.All("b", "range", "aten::add")[0]["ts"].get<double>(),
              5, 0.01);
  EXPECT_EQ(trace.All("b", "range", "report of type 77, level 5").size(), 1U);
  EXPECT_EQ(trace.All("i", "mark", "compact info of type 77, level 5").size(), 1U);
  EXPECT_EQ(trace.All("i", "mark", "additional info of type 77, level 5").size(), 1U);
}

TEST_F(Profile, WhatFrameworksAskBeforeTheyStart) {
  size_t size = 7;
  void* data = &size;
  EXPECT_ACL(0, aclprofGetSupportedFeatures(&size, &data));
  EXPECT_EQ(size, 0U);
  EXPECT_EQ(data, nullptr);
  EXPECT_ACL(0, aclprofGetSupportedFeaturesV2(&size, &data));
  EXPECT_ACL(100000, aclprofGetSupportedFeatures(nullptr, &data));
  EXPECT_ACL(100000, aclprofGetSupportedFeaturesV2(&size, nullptr));
  EXPECT_ACL(0, aclprofRegisterDeviceCallback());
  EXPECT_ACL(0, aclprofWarmup(config_));
  EXPECT_ACL(100000, aclprofWarmup(nullptr));
  MUST(aclprofStart(config_));
  EXPECT_ACL(100042, aclprofWarmup(config_));
  MUST(aclprofStop(config_));
}

TEST_F(Profile, OnlyWhatHappensBetweenStartAndStopIsWritten) {
  const aclrtStream stream = NewStream();
  Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  MUST(aclprofStart(config_));
  Launch(count_twice_, stream);
  MUST(aclrtSynchronizeStream(stream));
  const Trace first = StopAndRead();
  EXPECT_EQ(first.Tasks("count_up"), 0U);
  EXPECT_EQ(first.Tasks("count_twice"), 1U);
  Launch(count_up_, stream);
  EXPECT_ACL(0, aclprofMarkEx("not kept", 8, stream));
  MUST(aclrtSynchronizeStream(stream));
  MUST(aclprofStart(config_));
  Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  const Trace second = StopAndRead();
  EXPECT_EQ(second.Tasks("count_up"), 1U);
  EXPECT_EQ(second.All("i", "mark").size(), 0U);
  EXPECT_EQ(FilesIn(folder_).size(), 2U);
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, TasksBehindOneThatRunsAlreadyAreRecorded) {
  const aclrtStream stream = NewStream();
  Gate gate;
  gate.Block(stream);
  MUST(aclprofStart(config_));
  for (int i = 0; i < 10; ++i) Launch(count_up_, stream);
  gate.Open();
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(StopAndRead().Tasks("count_up"), 10U);
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, WaitingTasksLastFromTheirFirstTry) {
  const aclrtStream gated = NewStream(), stream = NewStream();
  aclrtEvent event = nullptr;
  MUST(aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC));
  MUST(aclprofStart(config_));
  Gate gate;
  gate.Block(gated);
  MUST(aclrtRecordEvent(event, gated));
  MUST(aclrtStreamWaitEvent(stream, event));
  Launch(count_up_, stream);
  AwaitParked(stream, "EVENT_WAIT");  // it has been tried
  DropMessage();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
  while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  gate.Open();
  MUST(aclrtSynchronizeStream(stream));
  MUST(aclrtSynchronizeStream(gated));
  const Trace trace = StopAndRead();
  EXPECT_EQ(trace.Tasks("count_up"), 1U);
  double longest = 0;
  for (const json& task : trace.All("X", "task")) {
    if (trace.TrackOf(task) == "stream " + std::to_string(IdOf(stream))) {
      longest = std::max(longest, task["dur"].get<double>());
    }
  }
  EXPECT_GT(longest, 1000) << "the wait is shown with its length, in microseconds";
  MUST(aclrtDestroyEvent(event));
  for (const aclrtStream one : {gated, stream}) MUST(aclrtDestroyStream(one));
}

TEST_F(Profile, FailuresAreShown) {
  const aclrtStream stream = NewStream();
  MUST(aclprofStart(config_));
  Launch(fail_now_, stream);
  Launch(count_up_, stream);
  EXPECT_ACL(507015, aclrtSynchronizeStream(stream));
  const Trace trace = StopAndRead();
  const auto failed = trace.All("X", "task", "fail_now");
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0]["args"].value("failed", false), true);
  ASSERT_EQ(trace.Tasks("count_up"), 1U);
  EXPECT_FALSE(trace.All("X", "task", "count_up")[0]["args"].contains("failed"));
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, MoreThanTheLimitIsCounted) {
  EXPECT_ACL(100000, aclprofSetConfig(ACL_PROF_STORAGE_LIMIT, "0MB", 3));
  EXPECT_ACL(100000, aclprofSetConfig(ACL_PROF_STORAGE_LIMIT, "1GB", 3));
  EXPECT_ACL(100000, aclprofSetConfig(ACL_PROF_STORAGE_LIMIT, "99999999999999999999MB", 22));
  EXPECT_ACL(0, aclprofSetConfig(ACL_PROF_STORAGE_LIMIT, "1MB", 3));
  const aclrtStream stream = NewStream();
  MUST(aclprofStart(config_));
  constexpr uint64_t kTasks = 3000;  // and as many submissions
  for (uint64_t i = 0; i < kTasks; ++i) Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  const Trace trace = StopAndRead();
  const uint64_t kept = trace.Tasks("count_up") + trace.All("X", "submission").size();
  EXPECT_EQ(kept, 4096U);
  EXPECT_EQ(trace.dropped(), 2 * kTasks - kept);
  MUST(aclprofStart(config_));
  EXPECT_EQ(StopAndRead().dropped(), 0U) << "each recording counts anew";
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, ConfigurationGoesOtherWays) {
  const std::string other = (folder_ / "deep" / "folder").string();
  EXPECT_ACL(0, aclprofSetConfig(ACL_PROF_PATH, other.c_str(), other.size()));
  EXPECT_ACL(0, aclprofSetConfig(ACL_PROF_SYS_HARDWARE_MEM_FREQ, "50", 2));
  MUST(aclprofStart(config_));
  MUST(aclprofStop(config_));
  EXPECT_EQ(FilesIn(other).size(), 1U);
}

TEST_F(Profile, AFileThatCannotBeWrittenCanBeTriedAgain) {
  const aclrtStream stream = NewStream();
  const std::string other = (folder_ / "gone").string();
  MUST(aclprofSetConfig(ACL_PROF_PATH, other.c_str(), other.size()));
  MUST(aclprofStart(config_));
  Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  std::filesystem::remove_all(other);
  EXPECT_ACL(500005, aclprofStop(config_));
  EXPECT_ACL(100042, aclprofStart(config_));
  std::filesystem::create_directories(other);
  EXPECT_ACL(0, aclprofStop(config_));
  const auto files = FilesIn(other);
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(Trace(ReadAll(files[0])).Tasks("count_up"), 1U);
  // The end does not wait for a better time.
  MUST(aclprofStart(config_));
  std::filesystem::remove_all(other);
  EXPECT_ACL(500005, aclprofFinalize());
  EXPECT_ACL(100043, aclprofFinalize());
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, StateRules) {
  EXPECT_ACL(100042, aclprofInit(folder_.c_str(), folder_.string().size()));
  EXPECT_ACL(100043, aclprofStop(config_));
  aclprofConfig* other = NewConfig();
  EXPECT_ACL(0, aclprofStart(config_));
  EXPECT_ACL(100042, aclprofStart(config_));
  EXPECT_ACL(100042, aclprofStart(other));
  EXPECT_ACL(100043, aclprofStop(other));
  EXPECT_ACL(100042, aclprofDestroyConfig(config_));
  EXPECT_ACL(0, aclprofStop(config_));
  EXPECT_ACL(100043, aclprofStop(config_));
  EXPECT_ACL(0, aclprofStart(other));
  EXPECT_ACL(0, aclprofFinalize());
  EXPECT_EQ(FilesIn(folder_).size(), 2U) << "Finalize writes what runs";
  EXPECT_ACL(100043, aclprofFinalize());
  EXPECT_ACL(100043, aclprofStart(other));
  EXPECT_ACL(100043, aclprofStop(other));
  EXPECT_ACL(100043, aclprofSetConfig(ACL_PROF_PATH, "x", 1));
  EXPECT_ACL(100043, aclprofSetConfig(ACL_PROF_STORAGE_LIMIT, "1MB", 3));
  EXPECT_ACL(100043, aclprofSetConfig(ACL_PROF_DVPP_FREQ, "50", 2));
  EXPECT_ACL(0, aclprofDestroyConfig(other));
  EXPECT_ACL(107017, aclprofDestroyConfig(other));
  EXPECT_ACL(107017, aclprofStart(other));
  EXPECT_ACL(0, aclprofInit(folder_.c_str(), folder_.string().size()));
}

TEST_F(Profile, WrongArguments) {
  uint32_t devices[] = {0, 0};
  uint32_t far = 1000;
  const auto refused = [](aclprofConfig* config) {
    const char* message = aclGetRecentErrMsg();
    return config == nullptr && message != nullptr && std::strstr(message, "aclprofCreateConfig") != nullptr;
  };
  EXPECT_TRUE(refused(aclprofCreateConfig(nullptr, 1, ACL_AICORE_NONE, nullptr, 1)));
  EXPECT_TRUE(refused(aclprofCreateConfig(devices, 0, ACL_AICORE_NONE, nullptr, 1)));
  EXPECT_TRUE(refused(aclprofCreateConfig(devices, 2, ACL_AICORE_NONE, nullptr, 1)));
  EXPECT_TRUE(refused(aclprofCreateConfig(devices, UINT32_MAX, ACL_AICORE_NONE, nullptr, 1)));
  EXPECT_TRUE(refused(aclprofCreateConfig(&far, 1, ACL_AICORE_NONE, nullptr, 1)));
  EXPECT_TRUE(refused(aclprofCreateConfig(devices, 1, static_cast<aclprofAicoreMetrics>(77), nullptr, 1)));
  EXPECT_TRUE(refused(
      aclprofCreateConfig(devices, 1, ACL_AICORE_NONE, reinterpret_cast<const aclprofAicoreEvents*>(devices), 1)));
  auto* foreign = reinterpret_cast<aclprofConfig*>(devices);
  EXPECT_ACL(100000, aclprofStart(nullptr));
  EXPECT_ACL(100000, aclprofStop(nullptr));
  EXPECT_ACL(100000, aclprofDestroyConfig(nullptr));
  EXPECT_ACL(107017, aclprofStart(foreign));
  EXPECT_ACL(107017, aclprofStop(foreign));
  EXPECT_ACL(107017, aclprofDestroyConfig(foreign));
  EXPECT_ACL(100000, aclprofInit(nullptr, 1));
  EXPECT_ACL(100000, aclprofInit("x", 0));
  EXPECT_ACL(100000, aclprofInit("", 1));
  EXPECT_ACL(100000, aclprofInit("x", SIZE_MAX));
  EXPECT_ACL(100000, aclprofSetConfig(ACL_PROF_ARGS_MIN, "1", 1));
  EXPECT_ACL(100000, aclprofSetConfig(ACL_PROF_ARGS_MAX, "1", 1));
  EXPECT_ACL(100000, aclprofSetConfig(static_cast<aclprofConfigType>(2), "1", 1));
  EXPECT_ACL(100000, aclprofSetConfig(static_cast<aclprofConfigType>(-1), "1", 1));
  EXPECT_ACL(100000, aclprofSetConfig(ACL_PROF_PATH, nullptr, 1));
  EXPECT_ACL(100000, aclprofSetConfig(ACL_PROF_PATH, "x", 0));
  EXPECT_ACL(100000, aclprofSetConfig(ACL_PROF_PATH, "", 1));
  MUST(aclprofFinalize());
  const std::string file = (folder_ / "file").string();
  std::ofstream(file) << "x";
  EXPECT_ACL(100003, aclprofInit(file.c_str(), file.size()));
  EXPECT_ACL(100003, aclprofInit("/proc/no/such", 13));
}

TEST_F(Profile, WrongMarksAndRanges) {
  const aclrtStream stream = NewStream();
  void* stamp = aclprofCreateStamp();
  char text[200] = "text";
  EXPECT_ACL(100000, aclprofSetStampTraceMessage(nullptr, text, 4));
  EXPECT_ACL(100000, aclprofSetStampTraceMessage(stamp, nullptr, 4));
  EXPECT_ACL(100000, aclprofSetStampTraceMessage(stamp, text, 0));
  EXPECT_ACL(0, aclprofSetStampTraceMessage(stamp, text, 127));
  EXPECT_ACL(100000, aclprofSetStampTraceMessage(stamp, text, 128));
  EXPECT_ACL(100000, aclprofMark(nullptr));
  EXPECT_ACL(107017, aclprofMark(text));
  EXPECT_ACL(107017, aclprofMark(stream));
  EXPECT_ACL(100000, aclprofPush(nullptr));
  EXPECT_ACL(107017, aclprofPush(text));
  EXPECT_ACL(100000, aclprofPop());
  EXPECT_ACL(100000, aclprofRangePop());
  uint32_t range = 77;
  EXPECT_ACL(100000, aclprofRangeStart(nullptr, &range));
  EXPECT_ACL(100000, aclprofRangeStart(stamp, nullptr));
  EXPECT_ACL(107017, aclprofRangeStart(text, &range));
  EXPECT_EQ(range, 77U);
  EXPECT_ACL(100000, aclprofRangeStop(0));
  EXPECT_ACL(0, aclprofRangeStart(stamp, &range));
  EXPECT_ACL(0, aclprofRangeStop(range));
  EXPECT_ACL(100000, aclprofRangeStop(range));
  // The stacks belong to their threads, also when nobody records.
  EXPECT_ACL(0, aclprofPush(stamp));
  std::thread([] { EXPECT_ACL(100000, aclprofPop()); }).join();
  EXPECT_ACL(0, aclprofPop());
  aclprofDestroyStamp(stamp);
  EXPECT_ACL(107017, aclprofMark(stamp));
  for (void* bad : {stamp, static_cast<void*>(nullptr), static_cast<void*>(text)}) {
    DropMessage();
    aclprofDestroyStamp(bad);
    EXPECT_NE(aclGetRecentErrMsg(), nullptr);
    aclprofDestroyStepInfo(static_cast<aclprofStepInfo*>(bad));
    EXPECT_NE(aclGetRecentErrMsg(), nullptr);
  }
  EXPECT_ACL(100000, aclprofMarkEx(nullptr, 1, stream));
  EXPECT_ACL(100000, aclprofMarkEx("x", 0, stream));
  EXPECT_ACL(100000, aclprofMarkEx("x", SIZE_MAX, stream));
  EXPECT_ACL(107017, aclprofMarkEx("x", 1, text));
  EXPECT_ACL(0, aclprofMarkEx("x", 1, nullptr));
  EXPECT_ACL(100000, aclrtProfTrace(nullptr, 1, stream));
  EXPECT_ACL(107000, aclrtProfTrace(text, 0, stream));
  EXPECT_ACL(107000, aclrtProfTrace(text, -1, stream));
  EXPECT_ACL(107000, aclrtProfTrace(text, INT32_MAX, stream));
  EXPECT_ACL(107017, aclrtProfTrace(text, 4, text));
  EXPECT_ACL(107000, aclrtProfTrace(reinterpret_cast<void*>(8), 4, stream));
  EXPECT_EQ(0U, aclprofStr2Id(nullptr));
  EXPECT_NE(aclGetRecentErrMsg(), nullptr);
  aclprofEventAttributes attributes{};
  EXPECT_ACL(100000, aclprofRangePushEx(nullptr));
  EXPECT_ACL(100000, aclprofRangePushEx(&attributes));
  attributes.version = ACL_PROF_EVENT_ATTR_VERSION;
  EXPECT_ACL(100000, aclprofRangePushEx(&attributes));
  attributes.size = sizeof attributes;
  EXPECT_ACL(100000, aclprofRangePushEx(&attributes));
  attributes.message.tensorInfo = reinterpret_cast<aclprofTensorInfo*>(16);
  EXPECT_ACL(100000, aclprofRangePushEx(&attributes));
  attributes.messageType = 1;
  EXPECT_ACL(100000, aclprofRangePushEx(&attributes));
  aclprofStepInfo* step = aclprofCreateStepInfo();
  EXPECT_ACL(100000, aclprofGetStepTimestamp(nullptr, ACL_STEP_START, stream));
  EXPECT_ACL(100000, aclprofGetStepTimestamp(step, static_cast<aclprofStepTag>(2), stream));
  EXPECT_ACL(107017, aclprofGetStepTimestamp(step, ACL_STEP_START, text));
  EXPECT_ACL(107017, aclprofGetStepTimestamp(reinterpret_cast<aclprofStepInfo*>(text), ACL_STEP_START, stream));
  aclprofDestroyStepInfo(step);
  EXPECT_ACL(107017, aclprofGetStepTimestamp(step, ACL_STEP_START, stream));
  MUST(aclrtSynchronizeStream(nullptr));
  MUST(aclrtDestroyStream(stream));
  EXPECT_ACL(107017, aclprofMarkEx("x", 1, stream));
}

TEST_F(Profile, MarksOfACaptureAreReplayed) {
  const aclrtStream stream = NewStream();
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclprofMarkEx("layer", 5, stream));
  Launch(count_up_, stream);
  MUST(aclmdlRICaptureEnd(stream, &model));
  MUST(aclprofStart(config_));
  for (int i = 0; i < 3; ++i) MUST(aclmdlRIExecuteAsync(model, stream));
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(StopAndRead().All("i", "mark", "layer").size(), 3U);
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, SubscriptionsAreRefused) {
  char fd[8] = {};
  const auto message = [] { return aclGetRecentErrMsg() != nullptr; };
  EXPECT_EQ(nullptr, aclprofCreateSubscribeConfig(2, ACL_AICORE_NONE, fd));
  EXPECT_TRUE(message());
  EXPECT_EQ(nullptr, aclprofCreateSubscribeConfig(1, static_cast<aclprofAicoreMetrics>(99), fd));
  EXPECT_TRUE(message());
  EXPECT_EQ(nullptr, aclprofCreateSubscribeConfig(1, ACL_AICORE_NONE, nullptr));
  EXPECT_TRUE(message());
  aclprofSubscribeConfig* config = aclprofCreateSubscribeConfig(1, ACL_AICORE_NONE, fd);
  ASSERT_NE(nullptr, config);
  EXPECT_ACL(100000, aclprofModelSubscribe(1, nullptr));
  EXPECT_ACL(107017, aclprofModelSubscribe(1, reinterpret_cast<aclprofSubscribeConfig*>(fd)));
  EXPECT_ACL(148047, aclprofModelSubscribe(1, config));
  MUST(aclprofFinalize());
  EXPECT_ACL(100011, aclprofModelSubscribe(1, config));
  EXPECT_ACL(100011, aclprofModelUnSubscribe(1));
  EXPECT_ACL(0, aclprofDestroySubscribeConfig(config));
  EXPECT_ACL(107017, aclprofDestroySubscribeConfig(config));
  EXPECT_ACL(100000, aclprofDestroySubscribeConfig(nullptr));
}

TEST_F(Profile, RecordsOfOthersAreRefused) {
  size_t size = 0, length = 77;
  uint32_t count = 77;
  EXPECT_ACL(100000, aclprofGetOpDescSize(nullptr));
  EXPECT_ACL(0, aclprofGetOpDescSize(&size));
  ASSERT_GT(size, size_t{ACL_PROF_MAX_OP_NAME_LEN} + ACL_PROF_MAX_OP_TYPE_LEN);
  const std::vector<char> bytes(2 * size, 'x');
  char text[8] = "as is";
  for (const size_t given : {size_t{0}, size - 1, size, 2 * size}) {
    EXPECT_ACL(100000, aclprofGetOpNum(bytes.data(), given, &count));
    EXPECT_ACL(100000, aclprofGetOpTypeLen(bytes.data(), given, 0, &length));
    EXPECT_ACL(100000, aclprofGetOpType(bytes.data(), given, 0, text, sizeof text));
    EXPECT_ACL(100000, aclprofGetOpNameLen(bytes.data(), given, 0, &length));
    EXPECT_ACL(100000, aclprofGetOpName(bytes.data(), given, 0, text, sizeof text));
    EXPECT_EQ(0U, aclprofGetOpStart(bytes.data(), given, 0));
    EXPECT_EQ(0U, aclprofGetOpEnd(bytes.data(), given, 0));
    EXPECT_EQ(0U, aclprofGetOpDuration(bytes.data(), given, 0));
    EXPECT_EQ(0U, aclprofGetModelId(bytes.data(), given, 0));
    EXPECT_EQ(ACL_SUBSCRIBE_NONE, aclprofGetOpFlag(bytes.data(), given, 0));
    DropMessage();
    EXPECT_EQ(nullptr, aclprofGetOpAttriValue(bytes.data(), given, 0, ACL_SUBSCRIBE_ATTRI_THREADID));
    EXPECT_NE(nullptr, aclGetRecentErrMsg());
  }
  EXPECT_ACL(100000, aclprofGetOpNum(nullptr, size, &count));
  EXPECT_ACL(100000, aclprofGetOpNum(bytes.data(), size, nullptr));
  EXPECT_ACL(100000, aclprofGetOpTypeLen(bytes.data(), size, 0, nullptr));
  EXPECT_ACL(100000, aclprofGetOpType(bytes.data(), size, 0, nullptr, 0));
  EXPECT_ACL(100000, aclprofGetOpNameLen(bytes.data(), size, 0, nullptr));
  EXPECT_ACL(100000, aclprofGetOpName(bytes.data(), size, 0, nullptr, 0));
  EXPECT_EQ(count, 77U);
  EXPECT_EQ(length, 77U);
  EXPECT_STREQ(text, "as is");
}

TEST_F(Profile, RecordingsBeginAndEndWhileOthersWork) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(2);
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      EXPECT_EQ(0, aclrtSetDevice(0));
      const aclrtStream stream = NewStream();
      auto* cell = static_cast<uint64_t*>(NewMemory(64));
      void* stamp = aclprofCreateStamp();
      while (!stop.load()) {
        void* args[] = {cell};
        EXPECT_EQ(0, aclrtLaunchKernelWithHostArgs(count_up_, 1, stream, nullptr, args, sizeof args, nullptr, 0));
        EXPECT_EQ(0, aclprofPush(stamp));
        EXPECT_EQ(0, aclprofMark(stamp));
        EXPECT_EQ(0, aclprofPop());
        EXPECT_EQ(0, aclrtSynchronizeStream(stream));
      }
      aclprofDestroyStamp(stamp);
      EXPECT_EQ(0, aclrtDestroyStream(stream));
      EXPECT_EQ(0, aclrtFree(cell));
    });
  }
  for (int i = 0; i < Loops(30, 10); ++i) {
    EXPECT_ACL(0, aclprofStart(config_));
    if (i % 2 == 0) std::this_thread::yield();
    EXPECT_ACL(0, aclprofStop(config_));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const auto& file : FilesIn(folder_)) (void)Trace(ReadAll(file));  // each is valid
}

TEST_F(Profile, RecordingsMayOverlap) {
  device::Timeline& timeline = device::Timeline::Get();
  const aclrtStream stream = NewStream();
  const auto run = [&] {
    Launch(count_up_, stream);
    EXPECT_EQ(0, aclrtSynchronizeStream(stream));
  };
  const uint64_t outer = timeline.Start({}), elsewhere = timeline.Start({{5}, 100});
  run();
  MUST(aclprofStart(config_));
  run();
  EXPECT_EQ(StopAndRead().Tasks("count_up"), 1U);
  run();
  const std::string file = (folder_ / "whole").string();
  EXPECT_EQ(0, timeline.Stop(elsewhere, file).code());
  EXPECT_EQ(Trace(ReadAll(file)).Tasks("count_up"), 0U) << "another device";
  EXPECT_TRUE(device::Timeline::on());
  EXPECT_EQ(0, timeline.Stop(outer, file).code());
  EXPECT_EQ(Trace(ReadAll(file)).Tasks("count_up"), 3U);
  EXPECT_FALSE(device::Timeline::on());
  EXPECT_EQ(500005, timeline.Stop(outer, file).code());
  timeline.Drop(outer);
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Profile, AFailingFileLosesNothing) {
  const aclrtStream stream = NewStream();
  MUST(aclprofStart(config_));
  Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  ArmFault("timeline.file", 1);
  EXPECT_ACL(500005, aclprofStop(config_));
  EXPECT_EQ(StopAndRead().Tasks("count_up"), 1U);
  MUST(aclrtDestroyStream(stream));
}

// ---- Record folders ----

class RecordFolder : public Profile {
 protected:
  std::vector<std::filesystem::path> Folders() const {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.is_directory()) out.push_back(entry.path());
    }
    std::sort(out.begin(), out.end());
    return out;
  }
};

TEST_F(RecordFolder, EachRecordingHasOne) {
  const aclrtStream stream = NewStream();
  for (int i = 0; i < 2; ++i) {
    MUST(aclprofStart(config_));
    Launch(count_up_, stream);
    MUST(aclrtSynchronizeStream(stream));
    MUST(aclprofStop(config_));
  }
  const auto folders = Folders();
  ASSERT_EQ(folders.size(), 2U);
  for (size_t i = 0; i < folders.size(); ++i) {
    const std::string name = folders[i].filename();
    EXPECT_EQ(name.find("PROF_00"), 0U) << name;  // then the number of the recording
    EXPECT_NE(name.find("_P" + std::to_string(getpid())), std::string::npos) << name;
    EXPECT_TRUE(std::filesystem::is_directory(folders[i] / "device_0" / "data"));
    const json begin = ParseJson(ReadAll(folders[i] / "host" / "start_info"));
    const json end = ParseJson(ReadAll(folders[i] / "host" / "end_info"));
    EXPECT_EQ(begin["devices"], json::array({0}));
    const auto number = [](const json& text) { return std::stoull(text.get<std::string>()); };
    for (const char* clock : {"clockMonotonicRaw", "clockMonotonic"})
      EXPECT_LT(number(begin[clock]), number(end[clock]));
    EXPECT_LE(number(begin["collectionTimeBegin"]), number(end["collectionTimeEnd"]));
    const std::string text = ReadAll(folders[i] / "host" / "data" / "timeline.json");
    EXPECT_EQ(Trace(text).Tasks("count_up"), 1U);
    EXPECT_EQ(text, ReadAll(FilesIn(folder_)[i]));
  }
  MUST(aclrtDestroyStream(stream));
}

TEST_F(RecordFolder, NothingOfItIsLeftWhenItFails) {
  MUST(aclprofStart(config_));
  ArmFault("profile.folder", 1);
  EXPECT_ACL(500005, aclprofStop(config_));
  EXPECT_TRUE(Folders().empty());
  EXPECT_EQ(FilesIn(folder_).size(), 1U) << "the timeline is there";
  EXPECT_ACL(100043, aclprofStop(config_));
  MUST(aclprofStart(config_));
  EXPECT_ACL(0, aclprofStop(config_));
  EXPECT_EQ(Folders().size(), 1U);
}

TEST_F(Profile, TasksTellTheirBlocks) {
  const aclrtStream stream = NewStream();
  MUST(aclprofStart(config_));
  Launch(count_up_, stream);
  MUST(aclrtMemsetAsync(cell_, 64, 0, 64, stream));
  MUST(aclrtSynchronizeStream(stream));
  const Trace trace = StopAndRead();
  for (const json& event : trace.All("X", "task")) {
    EXPECT_EQ(event["args"].contains("blocks"), event["name"] == "count_up") << event;
    EXPECT_EQ(event["args"].value("blocks", 1), 1);
  }
  MUST(aclrtDestroyStream(stream));
}

// ---- Other processes ----

// Bodies of children: an unmodified program, and one that forgets to stop.
TEST_F(Tools, DISABLED_Program) {
  const aclrtStream stream = NewStream();
  for (int i = 0; i < 7; ++i) Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  MUST(aclrtDestroyStream(stream));
  if (kSanitized) return;  // sanitizers do not like what follows
  const pid_t fork_of_it = ::fork();
  if (fork_of_it == 0) std::exit(0);  // writes nothing
  int status = -1;
  EXPECT_EQ(fork_of_it, ::waitpid(fork_of_it, &status, 0));
  EXPECT_EQ(status, 0);
}

TEST_F(Tools, DISABLED_ForgetsToStop) {
  const std::string folder = Child::Argument();
  MUST(aclprofInit(folder.c_str(), folder.size()));
  uint32_t device = 0;
  aclprofConfig* config = aclprofCreateConfig(&device, 1, ACL_AICORE_NONE, nullptr, ACL_PROF_TASK_TIME);
  MUST(aclprofStart(config));
  const aclrtStream stream = NewStream();
  Launch(count_twice_, stream);
  MUST(aclrtSynchronizeStream(stream));
}

TEST_F(Tools, TheVariableRecordsAnUnmodifiedProgram) {
  const std::string file = (folder_ / "whole_%p.json").string();
  ASSERT_EQ(0, ::setenv("REPRISE_PROFILE", file.c_str(), 1));
  pid_t pid;
  {
    Child child("Tools.DISABLED_Program", "");
    pid = child.pid();
  }
  ASSERT_EQ(0, ::unsetenv("REPRISE_PROFILE"));
  const auto files = FilesIn(folder_);
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].filename(), "whole_" + std::to_string(pid) + ".json");
  const Trace trace(ReadAll(files[0]));
  EXPECT_EQ(trace.Tasks("count_up"), 7U);
  EXPECT_EQ(trace.dropped(), 0U);
}

TEST_F(Tools, AProgramThatForgetsToStopStillGetsItsFile) {
  { Child child("Tools.DISABLED_ForgetsToStop", folder_.string()); }
  const auto files = FilesIn(folder_);
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(Trace(ReadAll(files[0])).Tasks("count_twice"), 1U);
}

}  // namespace
}  // namespace reprise::testing
