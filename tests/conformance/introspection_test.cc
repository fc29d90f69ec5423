// SPDX-License-Identifier: Apache-2.0
//
// Looking into graphs, changing them in place, destroy callbacks, names, dumps: AG-183 … AG-215.
#include "fixture.h"
#include "weak.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace reprise::conformance {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class Introspection : public AclGraph {
 protected:
  void SetUp() override {
    AclGraph::SetUp();
    stream_ = NewStream();
    log_ = NewLog();
  }

  // One stream: append 1.
  aclmdlRI CaptureKernel() {
    Begin(stream_);
    MUST(Append(stream_, log_, 1));
    return End(stream_);
  }

  // Two streams: origin K(1) RECORD … WAIT K(3), forked WAIT K(2) RECORD.
  aclmdlRI CaptureFork() {
    const aclrtStream forked = NewStream();
    Begin(stream_);
    MUST(SlowAppend(stream_, log_, 1));
    Edge(stream_, forked);
    MUST(SlowAppend(forked, log_, 2));
    Edge(forked, stream_);
    MUST(Append(stream_, log_, 3));
    return End(stream_);
  }

  // Parameters that make a kernel task launch `kernel`.
  aclmdlRITaskParams KernelParams(const std::string& kernel, uint32_t blocks, ArgBlock& args) {
    aclmdlRITaskParams params = {};
    params.type = ACL_MODEL_RI_TASK_KERNEL;
    params.kernelTaskParams.funcHandle = Kernel(kernel);
    params.kernelTaskParams.args = args.data();
    params.kernelTaskParams.isHostArgs = 1;
    params.kernelTaskParams.argsSize = args.size();
    params.kernelTaskParams.numBlocks = blocks;
    return params;
  }

  // A model in state FAULT: it can only be destroyed.
  void ExpectFault(aclmdlRI model) {
    EXPECT_ACL(107040, aclmdlRIUpdate(model));
    EXPECT_ACL(507011, aclmdlRIExecuteAsync(model, stream_));
  }

  std::string DumpPath(const std::string& name) {
    const fs::path dir = fs::temp_directory_path() / ("reprise-conformance-" + std::to_string(::getpid()));
    fs::create_directories(dir);
    return (dir / name).string();
  }
  static std::string ReadText(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(fs::temp_directory_path() / ("reprise-conformance-" + std::to_string(::getpid())), ignored);
    AclGraph::TearDown();
  }

  aclrtStream stream_ = nullptr;
  Log log_;
};

TEST_F(Introspection, AG_183_GetStreamsTellsTheNumber) {
  uint32_t count = 77;
  EXPECT_ACL(0, aclmdlRIGetStreams(CaptureKernel(), nullptr, &count));
  EXPECT_EQ(count, 1U);
  count = 0;
  EXPECT_ACL(0, aclmdlRIGetStreams(CaptureFork(), nullptr, &count));
  EXPECT_EQ(count, 2U);
}

TEST_F(Introspection, AG_184_GetStreamsFillsAShortArray) {
  const aclmdlRI model = CaptureFork();
  const std::vector<aclrtStream> all = StreamsOf(model);
  ASSERT_THAT(all, SizeIs(2));
  aclrtStream streams[2] = {&streams, &streams};
  uint32_t count = 1;
  EXPECT_ACL(107039, aclmdlRIGetStreams(model, streams, &count));
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(streams[0], all[0]);
  EXPECT_EQ(streams[1], &streams) << "written beyond the array";
  count = 0;
  EXPECT_ACL(107039, aclmdlRIGetStreams(model, streams, &count));
  EXPECT_EQ(count, 0U);
}

TEST_F(Introspection, AG_185_GetStreamsClearsTheSurplus) {
  const aclmdlRI model = CaptureFork();
  const std::vector<aclrtStream> all = StreamsOf(model);
  ASSERT_THAT(all, SizeIs(2));
  aclrtStream streams[4] = {&streams, &streams, &streams, &streams};
  uint32_t count = 4;
  EXPECT_ACL(0, aclmdlRIGetStreams(model, streams, &count));
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(streams[0], all[0]);
  EXPECT_EQ(streams[1], all[1]);
  EXPECT_EQ(streams[2], nullptr);
  EXPECT_EQ(streams[3], nullptr);
  // Exactly enough.
  aclrtStream exact[2] = {&exact, &exact};
  count = 2;
  EXPECT_ACL(0, aclmdlRIGetStreams(model, exact, &count));
  EXPECT_THAT(exact, ElementsAre(all[0], all[1]));
}

TEST_F(Introspection, AG_186_GetStreamsChecksItsArguments) {
  const aclmdlRI model = CaptureKernel();
  uint32_t count = 1;
  aclrtStream streams[1] = {};
  EXPECT_ACL(107000, aclmdlRIGetStreams(nullptr, streams, &count));
  EXPECT_ACL(107000, aclmdlRIGetStreams(model, streams, nullptr));
  EXPECT_ACL(107000, aclmdlRIGetStreams(model, nullptr, nullptr));
}

TEST_F(Introspection, AG_187_GetStreamsGivesTheOriginLast) {
  const aclrtStream s2 = NewStream();
  const aclrtStream s3 = NewStream();
  Begin(stream_);
  MUST(Append(stream_, log_, 1));
  Edge(stream_, s2);
  for (int i = 0; i < 2; ++i) MUST(Append(s2, log_, 2));
  Edge(stream_, s3);
  for (int i = 0; i < 3; ++i) MUST(Append(s3, log_, 3));
  Edge(s2, stream_);
  Edge(s3, stream_);
  const auto kernels = [&](aclrtStream stream) {
    const std::vector<aclmdlRITaskType> types = TypesOf(stream);
    return std::count(types.begin(), types.end(), ACL_MODEL_RI_TASK_KERNEL);
  };
  // While capturing …
  const std::vector<aclrtStream> early = StreamsOf(ModelOf(stream_));
  ASSERT_THAT(early, SizeIs(3));
  EXPECT_EQ(kernels(early.back()), 1);
  // … and afterwards: the latest to join first.
  const std::vector<aclrtStream> streams = StreamsOf(End(stream_));
  ASSERT_THAT(streams, SizeIs(3));
  EXPECT_EQ(kernels(streams[0]), 3);
  EXPECT_EQ(kernels(streams[1]), 2);
  EXPECT_EQ(kernels(streams[2]), 1);
}

TEST_F(Introspection, AG_188_TasksOfAStreamWithoutModelAreRefused) {
  CaptureKernel();
  uint32_t count = 0;
  EXPECT_ACL(107000, aclmdlRIGetTasksByStream(stream_, nullptr, &count));
  EXPECT_ACL(107000, aclmdlRIGetTasksByStream(NewStream(), nullptr, &count));
}

TEST_F(Introspection, AG_189_TaskTypes) {
  const aclrtStream forked = NewStream();
  uint64_t* const cell = NewCell(0);
  Begin(stream_);
  MUST(Append(stream_, log_, 1));
  Edge(stream_, forked);
  MUST(aclrtValueWrite(cell, 1, 0, stream_));
  MUST(aclrtValueWait(cell, 1, ACL_STREAM_WAIT_VALUE_EQ, forked));
  Edge(forked, stream_);
  const aclmdlRI model = End(stream_);
  const std::vector<aclrtStream> streams = StreamsOf(model);
  ASSERT_THAT(streams, SizeIs(2));
  const auto numbers = [&](aclrtStream stream) {
    std::vector<int> all;
    for (const aclmdlRITask task : TasksOf(stream)) {
      aclmdlRITaskType type = ACL_MODEL_RI_TASK_DEFAULT;
      EXPECT_ACL(0, aclmdlRITaskGetType(task, &type));
      all.push_back(type);
    }
    return all;
  };
  EXPECT_THAT(numbers(streams[1]), ElementsAre(1, 2, 5, 3, 4, 4));
  EXPECT_THAT(numbers(streams[0]), ElementsAre(3, 6, 2));
}

TEST_F(Introspection, AG_190_CopyIsATaskOfDefaultType) {
  uint64_t* const src = NewCell(1);
  uint64_t* const dst = NewCell(2);
  Begin(stream_);
  MUST(aclrtMemcpyAsync(dst, 8, src, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_));
  const std::vector<aclmdlRITask> tasks = TasksOf(StreamsOf(End(stream_)).at(0));
  ASSERT_THAT(tasks, SizeIs(1));
  aclmdlRITaskType type = ACL_MODEL_RI_TASK_KERNEL;
  EXPECT_ACL(0, aclmdlRITaskGetType(tasks[0], &type));
  EXPECT_EQ(type, ACL_MODEL_RI_TASK_DEFAULT);
  EXPECT_EQ(static_cast<int>(type), 0);
}

TEST_F(Introspection, AG_191_ParametersOfACopyAreRefused) {
  REQUIRE_FN(aclmdlRITaskGetParams);
  uint64_t* const src = NewCell(1);
  uint64_t* const dst = NewCell(2);
  Begin(stream_);
  MUST(aclrtMemcpyAsync(dst, 8, src, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_));
  const aclmdlRI model = End(stream_);
  aclmdlRITaskParams params = {};
  EXPECT_ACL(107000, aclmdlRITaskGetParams(FindTask(model, ACL_MODEL_RI_TASK_DEFAULT), &params));
  Replay(model, stream_);  // reading does no harm
  EXPECT_EQ(ReadCell(dst), 1U);
}

TEST_F(Introspection, AG_192_ParametersOfAKernel) {
  REQUIRE_FN(aclmdlRITaskGetParams);
  const ArgBlock args(log_.words, uint64_t{7});
  Begin(stream_);
  MUST(LaunchBlock(stream_, "append", 3, args));
  const aclmdlRI model = End(stream_);
  aclmdlRITaskParams params;
  std::memset(&params, 0xee, sizeof(params));
  EXPECT_ACL(0, aclmdlRITaskGetParams(FindTask(model, ACL_MODEL_RI_TASK_KERNEL), &params));
  EXPECT_EQ(params.type, ACL_MODEL_RI_TASK_KERNEL);
  EXPECT_EQ(params.taskGrp, nullptr);
  EXPECT_EQ(params.opInfoPtr, nullptr);
  EXPECT_EQ(params.opInfoSize, 0U);
  EXPECT_EQ(params.kernelTaskParams.funcHandle, Kernel("append"));
  EXPECT_EQ(params.kernelTaskParams.cfg, nullptr);
  EXPECT_EQ(params.kernelTaskParams.isHostArgs, 0U);
  EXPECT_EQ(params.kernelTaskParams.argsSize, args.size());
  EXPECT_EQ(params.kernelTaskParams.numBlocks, 3U);
  EXPECT_THAT(params.kernelTaskParams.rsv, Each(0U));
  ASSERT_NE(params.kernelTaskParams.args, nullptr);
  EXPECT_EQ(ReadCells(static_cast<const uint64_t*>(params.kernelTaskParams.args), 2), args.slots());
}

TEST_F(Introspection, AG_193_SequenceIdsFollowTheSubmission) {
  const aclrtStream s2 = NewStream();
  Begin(stream_);
  MUST(Append(stream_, log_, 1));       // origin 0
  Edge(stream_, s2);                    // origin 1, s2 0
  MUST(Append(s2, log_, 2));            // s2 1
  MUST(Append(stream_, log_, 3));       // origin 2
  Edge(s2, stream_);                    // s2 2, origin 3
  const aclmdlRI model = End(stream_);  // resets: origin 4, 5
  const std::vector<aclrtStream> streams = StreamsOf(model);
  ASSERT_THAT(streams, SizeIs(2));
  const std::vector<aclmdlRITask> o = TasksOf(streams[1]);
  const std::vector<aclmdlRITask> f = TasksOf(streams[0]);
  ASSERT_THAT(o, SizeIs(6));
  ASSERT_THAT(f, SizeIs(3));
  const std::vector<aclmdlRITask> submitted = {o[0], o[1], f[0], f[1], o[2], f[2], o[3], o[4], o[5]};
  std::vector<uint32_t> ids;
  for (const aclmdlRITask task : submitted) EXPECT_ACL(0, aclmdlRITaskGetSeqId(task, &ids.emplace_back()));
  for (size_t i = 1; i < ids.size(); ++i) EXPECT_LT(ids[i - 1], ids[i]) << "task " << i << " of the submission";
}

TEST_F(Introspection, AG_194_ChangedKernelParametersTakeEffectWithUpdate) {
  REQUIRE_FN(aclmdlRITaskSetParams, aclmdlRIUpdate);
  const aclmdlRI model = CaptureKernel();
  Replay(model, stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(1));
  log_.Clear();
  {
    ArgBlock args(log_.words, uint64_t{7});
    aclmdlRITaskParams params = KernelParams("append", 3, args);
    EXPECT_ACL(0, aclmdlRITaskSetParams(FindTask(model, ACL_MODEL_RI_TASK_KERNEL), &params));
    std::memset(args.data(), 0, args.size());  // the block was copied
  }
  EXPECT_ACL(507011, aclmdlRIExecuteAsync(model, stream_));
  Sync(stream_);
  EXPECT_THAT(log_.Ids(), IsEmpty());
  EXPECT_ACL(0, aclmdlRIUpdate(model));
  EXPECT_ACL(0, aclmdlRIExecuteAsync(model, stream_));
  Sync(stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(7, 7, 7));
}

TEST_F(Introspection, AG_195_EventParametersCannotBeSet) {
  REQUIRE_FN(aclmdlRITaskSetParams, aclmdlRIUpdate);
  const aclmdlRI model = CaptureFork();
  aclmdlRITaskParams params = {};
  params.type = ACL_MODEL_RI_TASK_EVENT_RECORD;
  EXPECT_ACL(107000, aclmdlRITaskSetParams(FindTask(model, ACL_MODEL_RI_TASK_EVENT_RECORD), &params));
  EXPECT_ACL(107040, aclmdlRIUpdate(model));
  ExpectFault(model);
}

TEST_F(Introspection, AG_196_KernelParametersOnAnEventTaskAreRefused) {
  REQUIRE_FN(aclmdlRITaskSetParams, aclmdlRIUpdate);
  const aclmdlRI model = CaptureFork();
  ArgBlock args(log_.words, uint64_t{7});
  aclmdlRITaskParams params = KernelParams("append", 1, args);
  EXPECT_ACL(107000, aclmdlRITaskSetParams(FindTask(model, ACL_MODEL_RI_TASK_EVENT_WAIT), &params));
  ExpectFault(model);
}

TEST_F(Introspection, AG_197_EventPairMayBecomeValueWriteAndWait) {
  REQUIRE_FN(aclmdlRITaskSetParams, aclmdlRIUpdate);
  const aclmdlRI model = CaptureFork();
  const std::vector<aclrtStream> streams = StreamsOf(model);
  ASSERT_THAT(streams, SizeIs(2));
  uint64_t* const cell = NewCell(0);
  aclmdlRITaskParams write = {};
  write.type = ACL_MODEL_RI_TASK_VALUE_WRITE;
  write.valueWriteTaskParams.devAddr = cell;
  write.valueWriteTaskParams.value = 42;
  aclmdlRITaskParams wait = {};
  wait.type = ACL_MODEL_RI_TASK_VALUE_WAIT;
  wait.valueWaitTaskParams.devAddr = cell;
  wait.valueWaitTaskParams.value = 42;
  wait.valueWaitTaskParams.flag = ACL_STREAM_WAIT_VALUE_EQ;
  const aclmdlRITask record_task = TasksOf(streams[1]).at(1);  // the origin's fork record
  const aclmdlRITask wait_task = TasksOf(streams[0]).at(0);    // and who waits for it
  EXPECT_ACL(0, aclmdlRITaskSetParams(record_task, &write));
  EXPECT_ACL(0, aclmdlRITaskSetParams(wait_task, &wait));
  EXPECT_ACL(0, aclmdlRIUpdate(model));
  aclmdlRITaskType type = ACL_MODEL_RI_TASK_DEFAULT;
  EXPECT_ACL(0, aclmdlRITaskGetType(record_task, &type));
  EXPECT_EQ(type, ACL_MODEL_RI_TASK_VALUE_WRITE);
  Replay(model, stream_);
  EXPECT_EQ(ReadCell(cell), 42U);
  EXPECT_THAT(log_.Ids(), ElementsAre(1, 2, 3)) << "the value pair carries the dependency";
}

TEST_F(Introspection, AG_198_BadKernelParametersAreRefused) {
  REQUIRE_FN(aclmdlRITaskSetParams, aclmdlRIUpdate);
  const auto refused = [&](const char* what, auto&& spoil) {
    SCOPED_TRACE(what);
    const aclmdlRI model = CaptureKernel();
    ArgBlock args(log_.words, uint64_t{7});
    aclmdlRITaskParams params = KernelParams("append", 1, args);
    spoil(params);
    EXPECT_ACL(107000, aclmdlRITaskSetParams(FindTask(model, ACL_MODEL_RI_TASK_KERNEL), &params));
    ExpectFault(model);
  };
  refused("taskGrp", [&](aclmdlRITaskParams& params) { params.taskGrp = stream_; });
  refused("args null", [](aclmdlRITaskParams& params) { params.kernelTaskParams.args = nullptr; });
  refused("argsSize 0", [](aclmdlRITaskParams& params) { params.kernelTaskParams.argsSize = 0; });
  refused("funcHandle null", [](aclmdlRITaskParams& params) { params.kernelTaskParams.funcHandle = nullptr; });
}

TEST_F(Introspection, KernelOfATaskGroupStaysInItWithNewParameters) {
  REQUIRE_FN(aclmdlRITaskSetParams, aclmdlRIUpdate, aclmdlRICaptureTaskGrpBegin);
  aclrtTaskGrp group = nullptr;
  Begin(stream_);
  MUST(aclmdlRICaptureTaskGrpBegin(stream_));
  MUST(Append(stream_, log_, 1));
  MUST(aclmdlRICaptureTaskGrpEnd(stream_, &group));
  const aclmdlRI model = End(stream_);
  const aclmdlRITask kernel = FindTask(model, ACL_MODEL_RI_TASK_KERNEL);
  ArgBlock args(log_.words, uint64_t{7});
  aclmdlRITaskParams params = KernelParams("append", 1, args);
  EXPECT_ACL(0, aclmdlRITaskSetParams(kernel, &params));
  EXPECT_ACL(0, aclmdlRIUpdate(model));
  Replay(model, stream_);
  EXPECT_ACL(0, aclmdlRITaskGetParams(kernel, &params));
  EXPECT_EQ(params.taskGrp, group);
  MUST(aclmdlRICaptureTaskUpdateBegin(stream_, group));
  MUST(Append(stream_, log_, 8));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(stream_));
  Replay(model, stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(7, 8));
}

TEST_F(Introspection, AG_199_ParametersCannotBeSetWhileCapturing) {
  REQUIRE_FN(aclmdlRITaskSetParams, aclmdlRIUpdate);
  Begin(stream_);
  MUST(Append(stream_, log_, 1));
  ArgBlock args(log_.words, uint64_t{7});
  aclmdlRITaskParams params = KernelParams("append", 1, args);
  EXPECT_ACL(107040, aclmdlRITaskSetParams(FindTask(ModelOf(stream_), ACL_MODEL_RI_TASK_KERNEL), &params));
  ExpectActive(stream_);
  const aclmdlRI model = End(stream_);
  EXPECT_ACL(0, aclmdlRIUpdate(model)) << "the refusal must leave the model READY";
  Replay(model, stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(1));
}

TEST_F(Introspection, AG_200_DisabledKernelIsSkipped) {
  REQUIRE_FN(aclmdlRITaskDisable, aclmdlRIUpdate);
  Begin(stream_);
  for (uint64_t id = 1; id <= 3; ++id) MUST(Append(stream_, log_, id));
  const aclmdlRI model = End(stream_);
  EXPECT_ACL(0, aclmdlRITaskDisable(FindTask(model, ACL_MODEL_RI_TASK_KERNEL, 1)));
  EXPECT_ACL(507011, aclmdlRIExecuteAsync(model, stream_));
  EXPECT_ACL(0, aclmdlRIUpdate(model));
  for (int replay = 0; replay < 2; ++replay) {
    log_.Clear();
    Replay(model, stream_);
    EXPECT_THAT(log_.Ids(), ElementsAre(1, 3));
  }
}

TEST_F(Introspection, AG_201_CopyCannotBeDisabled) {
  REQUIRE_FN(aclmdlRITaskDisable, aclmdlRIUpdate);
  uint64_t* const src = NewCell(1);
  uint64_t* const dst = NewCell(2);
  Begin(stream_);
  MUST(aclrtMemcpyAsync(dst, 8, src, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_));
  const aclmdlRI model = End(stream_);
  EXPECT_ACL(107000, aclmdlRITaskDisable(FindTask(model, ACL_MODEL_RI_TASK_DEFAULT)));
  ExpectFault(model);
}

TEST_F(Introspection, AG_202_UpdateOfUnchangedModelDoesNothing) {
  REQUIRE_FN(aclmdlRIUpdate);
  const aclmdlRI model = CaptureKernel();
  EXPECT_ACL(0, aclmdlRIUpdate(model));
  EXPECT_ACL(0, aclmdlRIUpdate(model));
  Replay(model, stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(1));
}

TEST_F(Introspection, AG_203_UpdateOfNullOrBuiltModelIsRefused) {
  REQUIRE_FN(aclmdlRIUpdate, aclmdlRIBuildBegin);
  EXPECT_ACL(107000, aclmdlRIUpdate(nullptr));
  aclmdlRI build = nullptr;
  MUST(aclmdlRIBuildBegin(&build, 0));
  Own(build);
  EXPECT_ACL(207000, aclmdlRIUpdate(build));
}

TEST_F(Introspection, AG_204_KernelTaskAttributes) {
  REQUIRE_FN(aclmdlRIKernelTaskGetAttribute);
  const aclmdlRI model = CaptureFork();
  const aclmdlRITask kernel = FindTask(model, ACL_MODEL_RI_TASK_KERNEL);
  aclrtLaunchKernelAttrValue value = {};
  EXPECT_ACL(107000, aclmdlRIKernelTaskGetAttribute(kernel, ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE, &value));
  std::memset(&value, 0xee, sizeof(value));
  EXPECT_ACL(0, aclmdlRIKernelTaskGetAttribute(kernel, ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE, &value));
  EXPECT_EQ(value.schemMode, 0) << "launched without attributes";
  EXPECT_ACL(100000, aclmdlRIKernelTaskGetAttribute(nullptr, ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE, &value));
  EXPECT_ACL(100000, aclmdlRIKernelTaskGetAttribute(kernel, ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE, nullptr));
  EXPECT_ACL(107000, aclmdlRIKernelTaskGetAttribute(FindTask(model, ACL_MODEL_RI_TASK_EVENT_WAIT),
                                                    ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE, &value));
}

void CountCall(void* data) { *static_cast<int*>(data) += 1; }
void CountOtherCall(void* data) { *static_cast<int*>(data) += 100; }

TEST_F(Introspection, AG_205_DestroyCallbackIsCalledOnce) {
  REQUIRE_FN(aclmdlRIDestroyRegisterCallback);
  int calls = 0;
  int other_calls = 0;
  const aclmdlRI model = CaptureKernel();
  EXPECT_ACL(0, aclmdlRIDestroyRegisterCallback(model, &CountCall, &calls));
  EXPECT_ACL(0, aclmdlRIDestroyRegisterCallback(model, &CountOtherCall, &other_calls));
  Replay(model, stream_);
  EXPECT_EQ(calls, 0);
  DestroyModel(model);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(other_calls, 100);
}

TEST_F(Introspection, AG_206_CallbackIsRegisteredOnce) {
  REQUIRE_FN(aclmdlRIDestroyRegisterCallback);
  int calls = 0;
  int unused = 0;
  const aclmdlRI model = CaptureKernel();
  EXPECT_ACL(0, aclmdlRIDestroyRegisterCallback(model, &CountCall, &calls));
  EXPECT_ACL(107000, aclmdlRIDestroyRegisterCallback(model, &CountCall, &calls));
  EXPECT_ACL(107000, aclmdlRIDestroyRegisterCallback(model, &CountCall, &unused));
  DestroyModel(model);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(unused, 0);
}

TEST_F(Introspection, AG_207_CallbackCanBeUnregistered) {
  REQUIRE_FN(aclmdlRIDestroyRegisterCallback, aclmdlRIDestroyUnregisterCallback);
  int calls = 0;
  int other_calls = 0;
  const aclmdlRI model = CaptureKernel();
  EXPECT_ACL(107000, aclmdlRIDestroyUnregisterCallback(model, &CountCall));
  EXPECT_ACL(0, aclmdlRIDestroyRegisterCallback(model, &CountCall, &calls));
  EXPECT_ACL(0, aclmdlRIDestroyRegisterCallback(model, &CountOtherCall, &other_calls));
  EXPECT_ACL(0, aclmdlRIDestroyUnregisterCallback(model, &CountCall));
  DestroyModel(model);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(other_calls, 100);
}

TEST_F(Introspection, AG_208_NameIsEmptyByDefault) {
  const aclmdlRI model = CaptureKernel();
  char name[16] = "unchanged";
  EXPECT_ACL(0, aclmdlRIGetName(model, sizeof(name), name));
  EXPECT_STREQ(name, "");
}

TEST_F(Introspection, AG_209_TheLastNameWins) {
  Begin(stream_);
  MUST(Append(stream_, log_, 1));
  EXPECT_ACL(0, aclmdlRISetName(ModelOf(stream_), "a"));  // legal while capturing
  const aclmdlRI model = End(stream_);
  char name[16] = "unchanged";
  EXPECT_ACL(0, aclmdlRIGetName(model, sizeof(name), name));
  EXPECT_STREQ(name, "a");
  EXPECT_ACL(0, aclmdlRISetName(model, "b"));
  EXPECT_ACL(0, aclmdlRIGetName(model, sizeof(name), name));
  EXPECT_STREQ(name, "b");
}

TEST_F(Introspection, AG_210_GetNameChecksItsArguments) {
  const aclmdlRI model = CaptureKernel();
  EXPECT_ACL(0, aclmdlRISetName(model, "name"));
  char name[16] = "unchanged";
  EXPECT_ACL(107000, aclmdlRIGetName(model, 0, name));
  EXPECT_ACL(100000, aclmdlRIGetName(model, sizeof(name), nullptr));
  EXPECT_ACL(100000, aclmdlRIGetName(nullptr, sizeof(name), name));
  EXPECT_ACL(507000, aclmdlRIGetName(model, 4, name));  // no room for the terminating zero
  EXPECT_ACL(0, aclmdlRIGetName(model, 5, name));
  EXPECT_STREQ(name, "name");
}

TEST_F(Introspection, AG_211_LiveModelsHaveDifferentIds) {
  const aclmdlRI first = CaptureKernel();
  const aclmdlRI second = CaptureKernel();
  uint32_t ids[2] = {UINT32_MAX, UINT32_MAX};
  EXPECT_ACL(0, aclmdlRIGetId(first, &ids[0]));
  EXPECT_ACL(0, aclmdlRIGetId(second, &ids[1]));
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_LT(ids[0], 1U << 16) << "ids are small integers";
  EXPECT_LT(ids[1], 1U << 16);
}

TEST_F(Introspection, AG_212_JsonDumpIntoMissingFolderIsRefused) {
  const aclmdlRI model = CaptureKernel();
  EXPECT_ACL(107000, aclmdlRIDebugJsonPrint(model, "/no/such/dir/x.json", ACL_MDLRI_DEBUG_JSON_PRINT_SUMMARY));
  Replay(model, stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(1));
}

TEST_F(Introspection, AG_213_JsonDumpHasOneObjectPerTask) {
  const aclmdlRI model = CaptureFork();
  uint32_t model_id = 0;
  MUST(aclmdlRIGetId(model, &model_id));
  const std::string path = DumpPath("graph.json");
  std::ofstream(path) << "something that must be overwritten, and longer than nothing";
  EXPECT_ACL(0, aclmdlRIDebugJsonPrint(model, path.c_str(), ACL_MDLRI_DEBUG_JSON_PRINT_SUMMARY));
  const std::string text = ReadText(path);
  const Json dump = Json::parse(text, nullptr, false);
  ASSERT_TRUE(dump.is_array()) << text;
  EXPECT_EQ(dump.size(), CountTasks(model));
  // The grammar: "[", one object per line, "]" without a newline after it.
  EXPECT_TRUE(text.starts_with("[\n")) << text;
  EXPECT_TRUE(text.ends_with("\n]")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<ptrdiff_t>(dump.size() + 1));

  std::vector<std::string> types;
  std::map<std::string, double> clock;  // per stream: the running sum
  for (const Json& task : dump) {
    SCOPED_TRACE(task.dump());
    std::vector<std::string> keys;
    for (const auto& [key, value] : task.items()) keys.push_back(key);
    ASSERT_THAT(keys, ElementsAre("name", "pid", "tid", "ts", "dur", "ph", "args"));
    const Json& args = task["args"];
    ASSERT_TRUE(args.contains("Task Type") && args.contains("Stream Id") && args.contains("Task Id"));
    const std::string type = args["Task Type"];
    types.push_back(type);
    EXPECT_EQ(task["pid"], std::to_string(::getpid()) + " aclGraph");
    EXPECT_EQ(task["tid"], "stream" + std::to_string(args["Stream Id"].get<int>()));
    EXPECT_EQ(task["ph"], "X");
    EXPECT_EQ(args["Model Id"], model_id);
    const double dur = type.find("RECORD") != std::string::npos ? 4.5
                       : type.find("WAIT") != std::string::npos ? 14.5
                                                                : 9.5;
    EXPECT_EQ(task["dur"], dur);
    double& now = clock[task["tid"]];
    EXPECT_EQ(task["ts"], now);
    now += dur + 0.5;
    if (type == "KERNEL_AIVEC") {
      EXPECT_TRUE(task["name"].get<std::string>().find("append") != std::string::npos);
      EXPECT_EQ(args["Numblocks"], 1);
      EXPECT_TRUE(args.contains("Schem Mode"));
    } else {
      EXPECT_EQ(task["name"].get<std::string>().rfind(type, 0), 0U) << "the name begins with the type";
    }
  }
  EXPECT_THAT(types,
              ElementsAre("EVENT_WAIT", "KERNEL_AIVEC", "EVENT_RECORD",  // forked stream first
                          "KERNEL_AIVEC", "EVENT_RECORD", "EVENT_WAIT", "KERNEL_AIVEC", "EVENT_RESET", "EVENT_RESET"));
}

TEST_F(Introspection, AG_214_KernelArgumentsAreInVerboseDumpsOnly) {
  Begin(stream_);
  MUST(Append(stream_, log_, 0xabc));
  const aclmdlRI model = End(stream_);
  const std::string summary = DumpPath("summary.json");
  const std::string verbose = DumpPath("verbose.json");
  EXPECT_ACL(0, aclmdlRIDebugJsonPrint(model, summary.c_str(), ACL_MDLRI_DEBUG_JSON_PRINT_SUMMARY));
  EXPECT_ACL(0, aclmdlRIDebugJsonPrint(model, verbose.c_str(), ACL_MDLRI_DEBUG_JSON_PRINT_VERBOSE));
  EXPECT_EQ(ReadText(summary).find("Kernel Args"), std::string::npos);
  const Json dump = Json::parse(ReadText(verbose), nullptr, false);
  ASSERT_TRUE(dump.is_array());
  ASSERT_EQ(dump.size(), 1U);
  char words[64];
  std::snprintf(words, sizeof(words), "0x%016llx 0x%016llx",
                static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(log_.words)), 0xabcULL);
  EXPECT_EQ(dump[0]["args"].value("Kernel Args", ""), words);
  EXPECT_EQ(dump[0]["args"].value("Kernel Args Size", 0), 16);
}

TEST_F(Introspection, AG_215_JsonDumpChecksItsArguments) {
  const aclmdlRI model = CaptureKernel();
  const std::string path = DumpPath("never.json");
  EXPECT_ACL(100000, aclmdlRIDebugJsonPrint(nullptr, path.c_str(), 0));
  EXPECT_ACL(100000, aclmdlRIDebugJsonPrint(model, nullptr, 0));
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace reprise::conformance
