// SPDX-License-Identifier: Apache-2.0
//
// Further items: AG-237 … AG-250.
#include "fixture.h"
#include "support/json.h"
#include "weak.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace reprise::conformance {
namespace {

class Additional : public AclGraph {
 protected:
  aclmdlRI NewBuild() {
    aclmdlRI model = nullptr;
    MUST(aclmdlRIBuildBegin(&model, 0));
    Own(model);
    return model;
  }
};

TEST_F(Additional, AG_237_EndTaskOnUnboundStreamIsRefused) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIEndTask);
  const aclmdlRI model = NewBuild();
  EXPECT_ACL(507000, aclmdlRIEndTask(model, NewStream(ACL_STREAM_PERSISTENT)));
}

TEST_F(Additional, AG_238_BindOfFastLaunchStreamIsRefused) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream);
  const aclmdlRI model = NewBuild();
  const aclrtStream p = NewStream(ACL_STREAM_FAST_LAUNCH | ACL_STREAM_PERSISTENT);
  EXPECT_ACL(207000, aclmdlRIBindStream(model, p, ACL_MODEL_STREAM_FLAG_HEAD));
  EXPECT_ACL(0, aclmdlRIBindStream(model, NewStream(ACL_STREAM_PERSISTENT), ACL_MODEL_STREAM_FLAG_HEAD));
}

TEST_F(Additional, AG_239_BindOfStopOnFailureStreamIsRefused) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream);
  const aclmdlRI model = NewBuild();
  const aclrtStream p = NewStream(ACL_STREAM_PERSISTENT);
  EXPECT_ACL(0, aclrtSetStreamFailureMode(p, ACL_STOP_ON_FAILURE));
  EXPECT_ACL(207000, aclmdlRIBindStream(model, p, ACL_MODEL_STREAM_FLAG_HEAD));
}

TEST_F(Additional, AG_240_BindToNullModelIsRefused) {
  REQUIRE_FN(aclmdlRIBindStream);
  EXPECT_ACL(100000, aclmdlRIBindStream(nullptr, NewStream(ACL_STREAM_PERSISTENT), ACL_MODEL_STREAM_FLAG_HEAD));
}

TEST_F(Additional, AG_241_BuildCallsOnCapturedModelAreRefused) {
  REQUIRE_FN(aclmdlRIEndTask, aclmdlRIBuildEnd, aclmdlRIUnbindStream);
  const Log log = NewLog();
  const aclmdlRI model = CaptureAppend(log, 1);
  const aclrtStream p = NewStream(ACL_STREAM_PERSISTENT);
  EXPECT_ACL(107000, aclmdlRIEndTask(model, p));
  EXPECT_ACL(107000, aclmdlRIBuildEnd(model, nullptr));
  EXPECT_ACL(107000, aclmdlRIUnbindStream(model, p));
  EXPECT_EQ(CountTasks(model), 1U);
  Replay(model, NewStream());
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(Additional, AG_242_ExEventOnBoundStreamIsRefused) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream);
  const aclmdlRI model = NewBuild();
  const aclrtStream p = NewStream(ACL_STREAM_PERSISTENT);
  MUST(aclmdlRIBindStream(model, p, ACL_MODEL_STREAM_FLAG_HEAD));
  EXPECT_ACL(207000, aclrtRecordEvent(NewEx(), p));
  EXPECT_ACL(0, aclrtRecordEvent(NewClassicWithFlag(ACL_EVENT_SYNC), p)) << "the kind meant for bound streams";
}

TEST_F(Additional, AG_243_ActivationOfUnboundStreamIsRefused) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream, aclrtActiveStream);
  const aclmdlRI model = NewBuild();
  const aclrtStream bound = NewStream(ACL_STREAM_PERSISTENT);
  const aclrtStream unbound = NewStream(ACL_STREAM_PERSISTENT);
  MUST(aclmdlRIBindStream(model, bound, ACL_MODEL_STREAM_FLAG_HEAD));
  EXPECT_ACL(107005, aclrtActiveStream(unbound, bound));
  EXPECT_ACL(107005, aclrtActiveStream(bound, unbound));
}

TEST_F(Additional, AG_244_CacheOpInfoCanBeSwitchedWhileCapturing) {
  const aclrtStream s = NewStream();
  const auto read = [&] {
    aclrtStreamAttrValue value = {};
    value.cacheOpInfoSwitch = 77;
    EXPECT_ACL(0, aclrtGetStreamAttribute(s, ACL_STREAM_ATTR_CACHE_OP_INFO, &value));
    return value.cacheOpInfoSwitch;
  };
  aclrtStreamAttrValue on = {};
  on.cacheOpInfoSwitch = 1;
  aclrtStreamAttrValue off = {};
  Begin(s);
  EXPECT_EQ(read(), 0U);
  EXPECT_ACL(0, aclrtSetStreamAttribute(s, ACL_STREAM_ATTR_CACHE_OP_INFO, &on));
  EXPECT_EQ(read(), 1U);
  EXPECT_ACL(0, aclrtSetStreamAttribute(s, ACL_STREAM_ATTR_CACHE_OP_INFO, &off));
  EXPECT_EQ(read(), 0U);
  EXPECT_ACL(0, aclrtSetStreamAttribute(s, ACL_STREAM_ATTR_CACHE_OP_INFO, &on));
  ExpectActive(s);
  End(s);
  EXPECT_EQ(read(), 0U) << "1 only while capturing";
}

TEST_F(Additional, AG_245_ExtendInfoOfATaskAppearsInTheDump) {
  REQUIRE_FN(aclrtCacheLastTaskExtendInfo);
  const std::string info = R"({"op":"a \"quoted\" name"})";
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  aclrtStreamAttrValue on = {};
  on.cacheOpInfoSwitch = 1;
  Begin(s);
  MUST(aclrtSetStreamAttribute(s, ACL_STREAM_ATTR_CACHE_OP_INFO, &on));
  MUST(Append(s, log, 1));
  MUST(Append(s, log, 2));
  EXPECT_ACL(0, aclrtCacheLastTaskExtendInfo(info.c_str(), info.size()));
  MUST(Append(s, log, 3));
  const aclmdlRI model = End(s);
  const std::string path = ::testing::TempDir() + "reprise-extend-" + std::to_string(::getpid()) + ".json";
  const Finally remove([&] { std::remove(path.c_str()); });
  EXPECT_ACL(0, aclmdlRIDebugJsonPrint(model, path.c_str(), ACL_MDLRI_DEBUG_JSON_PRINT_SUMMARY));
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const auto dump = reprise::testing::ParseJson(text.str());
  ASSERT_TRUE(dump.is_array()) << text.str();
  ASSERT_EQ(dump.size(), 3U);
  EXPECT_FALSE(dump[0]["args"].contains("ExtendInfo"));
  EXPECT_EQ(dump[1]["args"].value("ExtendInfo", ""), info);
  EXPECT_FALSE(dump[2]["args"].contains("ExtendInfo"));
}

TEST_F(Additional, AG_246_ThreadBornDuringAGlobalCaptureIsRestricted) {
  const aclrtStream s = NewStream();
  Begin(s, kGlobal);
  {
    Worker v(context());
    v.Run([&] { EXPECT_TRUE(CopyIsRefused(107030)); });
  }
  ExpectActive(s);
  End(s);
  Worker v(context());
  v.Run([&] { EXPECT_TRUE(CopyWorks()); });
}

TEST_F(Additional, AG_247_RestrictionOfOneThreadFollowsItsStrictestCapture) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  Begin(s1, kGlobal);
  Begin(s2, kRelaxed);
  EXPECT_TRUE(CopyIsRefused(107030));
  End(s1);
  ExpectActive(s2);
  EXPECT_TRUE(CopyWorks());
  End(s2);
}

TEST_F(Additional, AG_248_ParametersOfARunningModelCannotBeSet) {
  REQUIRE_FN(aclmdlRITaskSetParams, aclmdlRIUpdate);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Gate gate = NewGate();
  Begin(s);
  WaitAt(s, gate);
  MUST(Append(s, log, 1));
  const aclmdlRI model = End(s);
  ArgBlock args(log.words, uint64_t{7});
  aclmdlRITaskParams params = {};
  params.type = ACL_MODEL_RI_TASK_KERNEL;
  params.kernelTaskParams.funcHandle = Kernel("append");
  params.kernelTaskParams.args = args.data();
  params.kernelTaskParams.isHostArgs = 1;
  params.kernelTaskParams.argsSize = args.size();
  params.kernelTaskParams.numBlocks = 1;
  const aclmdlRITask task = FindTask(model, ACL_MODEL_RI_TASK_KERNEL);
  EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s));
  ExpectBlocked(s);
  EXPECT_ACL(107040, aclmdlRITaskSetParams(task, &params));
  Open(gate);
  Sync(s);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
  EXPECT_ACL(0, aclmdlRITaskSetParams(task, &params)) << "legal again when the model is idle";
  EXPECT_ACL(0, aclmdlRIUpdate(model));
  Replay(model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 7));
}

TEST_F(Additional, AG_249_WaitOnExEventWithoutSyncIsRefusedEverywhere) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  for (const uint32_t mask : {uint32_t{ACL_EVENT_TIME_LINE}, uint32_t{ACL_EVENT_CAPTURE_STREAM_PROGRESS}}) {
    const aclrtEvent event = NewEx(mask);
    EXPECT_ACL(0, aclrtRecordEvent(event, s));
    EXPECT_ACL(207000, aclrtStreamWaitEvent(s, event));
    EXPECT_ACL(207000, aclrtStreamWaitEvent(NewStream(), event));
  }
  MUST(Append(s, log, 1));
  Sync(s);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(Additional, AG_250_ElapsedTimeOfTwoTimelineEvents) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const aclrtEvent begin = NewEx(ACL_EVENT_TIME_LINE);
  const aclrtEvent end = NewEx(ACL_EVENT_TIME_LINE);
  const auto before = std::chrono::steady_clock::now();
  MUST(aclrtRecordEvent(begin, s));
  MUST(SlowAppend(s, log, 1));
  MUST(aclrtRecordEvent(end, s));
  Sync(s);
  const std::chrono::duration<float, std::milli> around = std::chrono::steady_clock::now() - before;
  float ms = -1;
  EXPECT_ACL(0, aclrtEventElapsedTime(&ms, begin, end));
  EXPECT_GE(ms, 0.9F * kSlowUs / 1000) << "the kernel between the events takes " << kSlowUs << " us";
  EXPECT_LE(ms, 1 + 1.01F * around.count()) << "longer than what lay around it";
  float back = 0;
  EXPECT_ACL(0, aclrtEventElapsedTime(&back, end, begin));
  EXPECT_EQ(back, -ms);
}

}  // namespace
}  // namespace reprise::conformance
