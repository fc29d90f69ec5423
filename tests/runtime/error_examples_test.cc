// SPDX-License-Identifier: Apache-2.0
//
// One small example for each error number, with the message that it prints: error_examples.txt, from which
// docs/errors.md is made. This test makes the calls and compares. After a change of words:
//
//     REPRISE_WRITE_EXAMPLES=1 build/release/bin/runtime_error_examples && scripts/gen_docs.py
#include <acl/acl_dump.h>
#include <acl/acl_op_compiler.h>
#include <acl/acl_prof.h>
#include <acl/acl_tdt.h>
#include <acl/acl_tdt_queue.h>
#include <aclnn/acl_meta.h>
#include <aclnnop/aclnn_mm.h>
#include <aclnnop/aclnn_relu.h>
#include <reprise/kernel.h>
#include <reprise/reprise.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "base/status.h"
#include "fixture.h"

namespace reprise::testing {
namespace {

// Few of everything, so that an example can use it up.
__attribute__((constructor)) void SetEnvironment(int, char** argv, char**) {
  RestartWith(argv, {{"REPRISE_MAX_STREAMS", "16"},
                     {"REPRISE_MAX_EVENTS", "16"},
                     {"REPRISE_MAX_NOTIFIES", "16"},
                     {"REPRISE_MAX_STREAM_TASKS", "16"},
                     {"REPRISE_MEMORY", "1G"}});
}

REPRISE_KERNEL(add, REPRISE_KERNEL_VECTOR, (uint64_t * cell, uint64_t value)) { *cell += value; }

struct Example {
  int code;
  const char* text;
  std::function<int()> run;
  bool has_culprit = true;  ///< false: it depends on what other threads have done meanwhile
};

#define EXAMPLE(code, ...) examples.push_back({code, #__VA_ARGS__, [&]() -> int __VA_ARGS__})
#define EXAMPLE_WITHOUT_CULPRIT(code, ...) examples.push_back({code, #__VA_ARGS__, [&]() -> int __VA_ARGS__, false})

const std::map<int, const char*> kNoExample = {
    {100001,
     "An init callback gives it (aclInitCallbackRegister), whose number aclInit returns; and REPRISE_STRICT=1 before "
     "aclInit."},
    {100010, "No call gives it: profiling is configured by calls, whose arguments are refused with 100000."},
    {100012,
     "A call that loads an offline model gives it, for a graph of aclgrphBuildModel whose bytes have changed since."},
    {100013, "A call that loads an offline model gives it, for bytes that aclgrphBuildModel has not made."},
    {100017, "`aclmdlExecute` gives it, for buffers or shapes that are not those of the model's inputs."},
    {100018, "`aclmdlExecute` gives it, for another number of buffers than the model has outputs."},
    {100019, "Calls that choose a gear give it (`aclmdlSetDynamicBatchSize`), for a model that was built without."},
    {107016, "No call gives it: addresses of the wrong kind are refused with 107000, which says what they are."},
    {107037, "A graph is destroyed while a task of it waits for what does not come: given after ten seconds."},
    {200000, "The host refused memory; the message names what for."},
    {507014, "No task of the runtime gives it: kernels have no time limit on a CPU. A kernel may return it."},
    {507022, "A task waits for a notify or an event of another process, and that process has ended."},
    {507048,
     "`aclrtSynchronizeStream` returns it for a collective (hccl.h) that other ranks did not come to within "
     "HCCL_EXEC_TIMEOUT."},
    {507049,
     "`aclrtSynchronizeStream` returns it for a collective (hccl.h) that ranks called with different arguments."},
    {507057,
     "`aclrtSynchronizeStream` returns it for a collective (hccl.h) whose other ranks have failed, ended or destroyed "
     "the "
     "group."},
    {561101, "More executors are live than the process can name, which is a million."},
};

class ErrorExamples : public Runtime {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("reprise_examples_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    here_ = std::filesystem::current_path();
    std::filesystem::current_path(folder_);
    static const RepriseKernelDesc kernels[] = {add_desc};
    static const RepriseKernelTable table = {REPRISE_KERNEL_ABI_VERSION, 1, kernels};
    static const int32_t registered = repriseRegisterKernels("mine", &table);
    ASSERT_EQ(registered, 0);
  }
  void TearDown() override {
    std::filesystem::current_path(here_);
    std::filesystem::remove_all(folder_);
  }

  // What examples may name.
  aclrtStream stream = nullptr;
  aclrtStream side = nullptr;
  aclrtContext context = nullptr;
  aclrtEvent event = nullptr;
  void* memory = nullptr;
  alignas(4096) char host[4096] = {};
  aclmdlRI model = nullptr;
  aclrtTaskGrp group = nullptr;
  // And must leave what has to be destroyed here.
  aclrtContext other = nullptr;
  std::deque<aclrtEvent> events;
  std::deque<aclrtNotify> notifies;
  uint32_t queue = UINT32_MAX;
  aclTensor* NewTensor(std::vector<int64_t> sizes, void* data) {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
    return aclCreateTensor(sizes.data(), sizes.size(), ACL_FLOAT, strides.data(), 0, ACL_FORMAT_ND, sizes.data(),
                           sizes.size(), data);
  }
  static void WriteFile(const char* path, const char* text) { std::ofstream(path) << text; }
  // A call by type: `inputs` and `outputs` tensors of four numbers.
  int Compile(const char* type, int inputs, int outputs, const aclopAttr* attributes = nullptr) {
    const int64_t sizes[] = {4};
    const aclTensorDesc* desc = aclCreateTensorDesc(ACL_FLOAT, 1, sizes, ACL_FORMAT_ND);
    const std::vector<const aclTensorDesc*> descs(4, desc);
    aclDataBuffer* buffer = aclCreateDataBuffer(memory, 16);
    const std::vector<const aclDataBuffer*> in(4, buffer);
    std::vector<aclDataBuffer*> out(4, buffer);
    return aclopCompileAndExecute(type, inputs, descs.data(), in.data(), outputs, descs.data(), out.data(), attributes,
                                  0, 0, nullptr, stream);
  }

  std::vector<Example> Examples();
  std::string Run(const Example& example);

 private:
  std::filesystem::path folder_, here_;
};

std::vector<Example> ErrorExamples::Examples() {
  std::vector<Example> examples;
  EXAMPLE(100000, { return aclrtMalloc(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST); });
  EXAMPLE(100002, {
    aclInit(nullptr);
    return aclInit(nullptr);
  });
  EXAMPLE(100003, { return aclInit("/nonexistent/acl.json"); });
  EXAMPLE(100004, {
    acldumpRegCallback([](const acldumpChunk*, int32_t) -> int32_t { return 1; }, 0);
    return acldumpSaveExceptionInfo("mine", nullptr, nullptr, 0);
  });
  EXAMPLE(100006, {
    WriteFile("acl.json", "{\"dump\": }");
    return aclInit("acl.json");
  });
  EXAMPLE(100009, {
    WriteFile("dump.json", "{\"dump\": 1}");
    aclmdlInitDump();
    return aclmdlSetDump("dump.json");
  });
  EXAMPLE(100011, {
    int fd = 1;
    aclprofSubscribeConfig* config = aclprofCreateSubscribeConfig(1, ACL_AICORE_NONE, &fd);
    return aclprofModelSubscribe(1, config);
  });
  EXAMPLE(100021, { return Compile("Add", 1, 1); });
  EXAMPLE(100022, { return Compile("Add", 2, 2); });
  EXAMPLE(100023, {
    aclopAttr* attributes = aclopCreateAttr();
    aclopSetAttrInt(attributes, "axis", 1);
    return Compile("Add", 2, 1, attributes);
  });
  EXAMPLE(100024, { return Compile("Addd", 2, 1); });
  EXAMPLE(100032, { return acltdtDestroyQueue(7); });
  EXAMPLE(100037, { return aclFinalize(); });
  EXAMPLE(100042, {
    aclprofInit(".", 1);
    return aclprofInit(".", 1);
  });
  EXAMPLE(100043, { return aclprofFinalize(); });
  EXAMPLE(100044, {
    aclmdlInitDump();
    return aclmdlInitDump();
  });
  EXAMPLE(100045, { return aclmdlFinalizeDump(); });
  EXAMPLE(107000, { return aclrtMemset(memory, 64, 0, 128); });
  EXAMPLE(107001, { return aclrtSetDevice(99); });
  EXAMPLE(107002, {
    aclrtResetDevice(0);
    return aclrtCreateStream(&stream);
  });
  EXAMPLE(107003, {
    aclrtCreateContext(&other, 0);
    return aclrtSynchronizeStream(stream);
  });
  EXAMPLE(107004, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclmdlRICaptureEnd(stream, &model);
    aclrtCreateContext(&other, 0);
    return aclmdlRIExecuteAsync(model, nullptr);
  });
  EXAMPLE(107005, {
    aclrtLabel label;
    aclrtCreateLabel(&label);
    return aclrtSetLabel(label, stream);
  });
  EXAMPLE(107006, {
    aclrtRecordEvent(event, stream);
    aclrtSynchronizeStream(stream);
    float ms;
    return aclrtEventElapsedTime(&ms, event, event);
  });
  EXAMPLE(107009, {
    aclrtBinHandle binary;
    return aclrtBinaryLoadFromFile("kernels.o", nullptr, &binary);
  });
  EXAMPLE(107011, {
    aclrtSubscribeReport(1, stream);
    return aclrtSubscribeReport(2, stream);
  });
  EXAMPLE(107012, { return aclrtProcessReport(100); });
  EXAMPLE(107015, { return aclrtLaunchCallback([](void*) {}, nullptr, ACL_CALLBACK_BLOCK, stream); });
  EXAMPLE(107017, {
    aclrtDestroyStream(side);
    return aclrtSynchronizeStream(side);
  });
  EXAMPLE(107021, {
    int64_t value;
    return aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value);
  });
  EXAMPLE(107022, {
    aclrtValueWait(memory, 1, ACL_STREAM_WAIT_VALUE_EQ, stream);
    aclrtDeviceTaskAbort(0, 0);
    return aclrtSynchronizeStream(stream);
  });
  EXAMPLE(107023, {
    aclrtValueWait(memory, 1, ACL_STREAM_WAIT_VALUE_EQ, stream);
    aclrtStreamAbort(stream);
    return aclrtSynchronizeStream(stream);
  });
  EXAMPLE(107024, {
    aclrtRecordEvent(event, side);
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    return aclrtStreamWaitEvent(stream, event);
  });
  EXAMPLE(107025, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclrtRecordEvent(event, stream);
    aclrtStreamWaitEvent(side, event);
    return aclmdlRICaptureEnd(stream, &model);
  });
  EXAMPLE(107026, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclmdlRICaptureStatus status;
    aclmdlRICaptureGetInfo(stream, &status, &model);
    return aclmdlRIDestroy(model);
  });
  EXAMPLE(107027, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    return aclrtSynchronizeStream(stream);
  });
  EXAMPLE(107028, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclrtRecordEvent(event, stream);
    return aclrtSynchronizeEvent(event);
  });
  EXAMPLE(107029, { return aclmdlRICaptureEnd(stream, &model); });
  EXAMPLE(107030, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    return aclrtMemset(memory, 64, 0, 64);
  });
  EXAMPLE(107031, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclrtRecordEvent(event, stream);
    return aclrtStreamWaitEvent(nullptr, event);
  });
  EXAMPLE(107032, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclmdlRICaptureBegin(side, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclrtRecordEvent(event, stream);
    return aclrtStreamWaitEvent(side, event);
  });
  EXAMPLE(107033, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    return aclmdlRICaptureTaskGrpEnd(stream, &group);
  });
  EXAMPLE(107034, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclrtRecordEvent(event, stream);
    aclrtStreamWaitEvent(side, event);
    aclmdlRICaptureTaskGrpBegin(stream);
    return aclrtMemsetAsync(memory, 64, 0, 64, side);
  });
  EXAMPLE(107035, {
    aclrtSetDeviceTaskAbortCallback(
        "mine", [](int32_t, aclrtDeviceTaskAbortStage, uint32_t, void*) -> int32_t { return 1; }, nullptr);
    return aclrtDeviceTaskAbort(0, 0);
  });
  EXAMPLE(107036, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclrtRecordEvent(event, stream);
    aclrtStreamWaitEvent(side, event);
    return aclmdlRICaptureEnd(side, &model);
  });
  EXAMPLE(107038, {
    std::thread([&] {
      aclrtSetCurrentContext(context);
      aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    }).join();
    return aclmdlRICaptureEnd(stream, &model);
  });
  EXAMPLE(107039, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclrtMemsetAsync(memory, 64, 0, 64, stream);
    aclrtMemsetAsync(memory, 64, 1, 64, stream);
    aclmdlRICaptureEnd(stream, &model);
    aclrtStream inner;
    uint32_t count = 1;
    aclmdlRIGetStreams(model, &inner, &count);
    aclmdlRITask task;
    return aclmdlRIGetTasksByStream(inner, &task, &count);
  });
  EXAMPLE(107040, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclrtValueWait(memory, 1, ACL_STREAM_WAIT_VALUE_EQ, stream);
    aclmdlRICaptureEnd(stream, &model);
    aclmdlRIExecuteAsync(model, stream);
    return aclmdlRIUpdate(model);
  });
  EXAMPLE(107041, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    return aclrtMemcpyAsync(memory, 64, host, 64, ACL_MEMCPY_HOST_TO_DEVICE, side);
  });
  EXAMPLE(107042, {
    aclrtFuncHandle function;
    return aclrtGetFuncBySymbol(host, &function);
  });
  EXAMPLE(107045, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclmdlRICaptureStatus status;
    aclmdlRICaptureGetInfo(stream, &status, &model);
    aclmdlRICondHandle condition;
    aclmdlRICondHandleCreate(model, 0, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &condition);
    aclmdlRI body;
    aclmdlRIAddCondTask({condition, ACL_MODEL_RI_COND_TYPE_IF, 1, &body}, stream, 0);
    return aclmdlRICaptureEnd(stream, &model);
  });
  EXAMPLE(148047, {
    aclprofInit(".", 1);
    int fd = 1;
    aclprofSubscribeConfig* config = aclprofCreateSubscribeConfig(1, ACL_AICORE_NONE, &fd);
    return aclprofModelSubscribe(1, config);
  });
  EXAMPLE(200001, { return aclopSetModelDir("models"); });
  EXAMPLE(200006, { return aclrtDeviceEnablePeerAccess(0, 1); });
  EXAMPLE(207000, {
    aclrtCreateEvent(&events.emplace_back());
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    return aclrtRecordEvent(events[0], stream);
  });
  EXAMPLE(207001, { return aclrtMalloc(&memory, size_t{4} << 30, ACL_MEM_MALLOC_HUGE_FIRST); });
  EXAMPLE(207005, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclmdlRICaptureStatus status;
    aclmdlRICaptureGetInfo(stream, &status, &model);
    aclmdlRICondHandle condition;
    aclmdlRICondHandleCreate(model, 0, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &condition);
    return aclmdlRIAddCondTask({condition, ACL_MODEL_RI_COND_TYPE_SWITCH, UINT32_MAX, &model}, stream, 0);
  });
  EXAMPLE(207008, {
    int code = 0;
    while (code == 0) code = aclrtCreateStream(&stream);
    return code;
  });
  EXAMPLE(207012, {
    acltdtBuf head, next;
    acltdtAllocBuf(64, ACL_TDT_NORMAL_MEM, &head);
    int code = 0;
    while (code == 0) {
      acltdtAllocBuf(64, ACL_TDT_NORMAL_MEM, &next);
      code = acltdtAppendBufChain(head, next);
    }
    return code;
  });
  EXAMPLE(207013, {
    acltdtCreateQueue(acltdtCreateQueueAttr(), &queue);
    acltdtBuf buffer;
    return acltdtDequeue(queue, &buffer, 0);
  });
  EXAMPLE(207014, {
    acltdtChannelHandle* channel = acltdtCreateChannelWithCapacity(0, "full", 1);
    acltdtDataset* data = acltdtCreateDataset();
    acltdtAddDataItem(data,
                      acltdtCreateDataItem(ACL_TENSOR_DATA_END_OF_SEQUENCE, nullptr, 0, ACL_DT_UNDEFINED, nullptr, 0));
    acltdtSendTensor(channel, data, 0);
    return acltdtSendTensor(channel, data, 0);
  });
  EXAMPLE(361001, {
    uint64_t bytes;
    aclOpExecutor* executor = nullptr;
    aclnnReluGetWorkspaceSize(NewTensor({4}, host), NewTensor({4}, memory), &bytes, &executor);
    return aclnnRelu(nullptr, bytes, executor, stream);
  });
  EXAMPLE(500000, {
    char version[128];
    char package[] = "nothing";
    return aclsysGetVersionStr(package, version);
  });
  EXAMPLE(500005, {
    std::filesystem::create_directory("gone");
    aclprofInit("gone", 4);
    uint32_t devices[] = {0};
    aclprofConfig* config = aclprofCreateConfig(devices, 1, ACL_AICORE_NONE, nullptr, ACL_PROF_TASK_TIME);
    aclprofStart(config);
    std::filesystem::remove_all("gone");
    return aclprofStop(config);
  });
  EXAMPLE(507000, {
    float ms;
    return aclrtEventElapsedTime(&ms, event, event);
  });
  EXAMPLE(507002, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    int code = 0;
    while (code == 0) code = aclrtMemsetAsync(memory, 64, 0, 64, stream);
    return code;
  });
  EXAMPLE(507005, {
    acltdtChannelHandle* channel = acltdtCreateChannel(0, "stopped");
    acltdtStopChannel(channel);
    return acltdtReceiveTensor(channel, acltdtCreateDataset(), 0);
  });
  EXAMPLE(507009, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclmdlRICaptureTaskGrpBegin(stream);
    return aclrtMemsetAsync(memory, 64, 0, 64, stream);
  });
  EXAMPLE(507011, {
    aclmdlRIBuildBegin(&model, 0);
    return aclmdlRIExecuteAsync(model, stream);
  });
  EXAMPLE(507012, {
    aclrtSubscribeReport(static_cast<uint64_t>(pthread_self()), stream);
    return aclrtProcessReport(1);
  });
  EXAMPLE(507015, {
    LaunchClosure(stream, "mine", [] { return 507015; });
    return aclrtSynchronizeStream(stream);
  });
  EXAMPLE(507018, {
    LaunchClosure(stream, "mine", [] { return 507018; });
    return aclrtSynchronizeStream(stream);
  });
  EXAMPLE(507023, {
    aclrtStream bound;
    aclrtCreateStreamWithConfig(&bound, 0, ACL_STREAM_PERSISTENT);
    aclmdlRIBuildBegin(&model, 0);
    aclmdlRIBindStream(model, bound, ACL_MODEL_STREAM_FLAG_HEAD);
    uint64_t* cells = static_cast<uint64_t*>(memory);
    aclrtValueWrite(&cells[1], 1, 0, bound);
    aclrtValueWait(&cells[0], 1, ACL_STREAM_WAIT_VALUE_EQ, bound);
    aclmdlRIEndTask(model, bound);
    aclmdlRIBuildEnd(model, nullptr);
    aclmdlRIExecuteAsync(model, stream);
    std::atomic_ref<uint64_t> begun(cells[1]);
    while (begun == 0) std::this_thread::yield();
    aclmdlRIAbort(model);
    return aclrtSynchronizeStream(stream);
  });
  EXAMPLE(507027, {
    aclrtBinHandle binary;
    aclrtBinaryLoadFromFile("mine", nullptr, &binary);
    aclrtFuncHandle function;
    return aclrtBinaryGetFunction(binary, "ad", &function);
  });
  EXAMPLE(507028, {
    static const RepriseKernelTable table = {REPRISE_KERNEL_ABI_VERSION, 1, &add_desc};
    return repriseRegisterKernels("mine", &table);
  });
  EXAMPLE(507031, {
    aclrtLabel label;
    aclrtCreateLabel(&label);
    aclrtCreateContext(&other, 0);
    aclrtStream bound;
    aclrtCreateStreamWithConfig(&bound, 0, ACL_STREAM_PERSISTENT);
    aclmdlRIBuildBegin(&model, 0);
    aclmdlRIBindStream(model, bound, ACL_MODEL_STREAM_FLAG_HEAD);
    return aclrtSetLabel(label, bound);
  });
  EXAMPLE(507035, {
    LaunchClosure(stream, "mine", [] { return 507035; });
    return aclrtSynchronizeStream(stream);
  });
  EXAMPLE_WITHOUT_CULPRIT(507046, {
    aclrtValueWait(memory, 1, ACL_STREAM_WAIT_VALUE_EQ, stream);
    return aclrtSynchronizeStreamWithTimeout(stream, 1);
  });
  EXAMPLE(507047, {
    aclrtValueWait(memory, 1, ACL_STREAM_WAIT_VALUE_EQ, stream);
    aclrtRecordEvent(event, stream);
    return aclrtSynchronizeEventWithTimeout(event, 1);
  });
  EXAMPLE(507053, {
    aclrtMemcpyAsyncWithDesc(memory, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, stream);
    return aclrtSynchronizeStream(stream);
  });
  EXAMPLE(507903, {
    aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    aclmdlRICaptureTaskGrpBegin(stream);
    aclrtMemsetAsync(memory, 64, 0, 64, stream);
    return aclmdlRICaptureEnd(stream, &model);
  });
  EXAMPLE(507910, {
    void* mapped;
    aclrtHostRegister(host, 4096, ACL_HOST_REGISTER_MAPPED, &mapped);
    return aclrtHostRegister(host, 4096, ACL_HOST_REGISTER_MAPPED, &mapped);
  });
  EXAMPLE(507911, { return aclrtHostUnregister(host); });
  EXAMPLE(161001, {
    uint64_t bytes;
    aclOpExecutor* executor = nullptr;
    return aclnnReluGetWorkspaceSize(nullptr, NewTensor({4}, memory), &bytes, &executor);
  });
  EXAMPLE(161002, {
    uint64_t bytes;
    aclOpExecutor* executor = nullptr;
    return aclnnMmGetWorkspaceSize(NewTensor({2, 3}, memory), NewTensor({2, 3}, memory), NewTensor({2, 3}, memory), 0,
                                   &bytes, &executor);
  });
  EXAMPLE(561000, {
    uint64_t bytes;
    aclOpExecutor* executor = nullptr;
    aclTensor* self = NewTensor({4}, memory);
    aclnnReluGetWorkspaceSize(self, NewTensor({4}, memory), &bytes, &executor);
    return aclSetInputTensorAddr(executor, 0, self, memory);
  });
  EXAMPLE(561102, {
    uint64_t bytes;
    aclOpExecutor* executor = nullptr;
    aclnnReluGetWorkspaceSize(NewTensor({4}, memory), NewTensor({4}, memory), &bytes, &executor);
    aclnnRelu(nullptr, bytes, executor, stream);
    return aclnnRelu(nullptr, bytes, executor, stream);
  });
  EXAMPLE(561103, { return aclnnRelu(nullptr, 0, nullptr, stream); });
  EXAMPLE(207007, {
    int code = 0;
    while (code == 0) code = aclrtCreateEventExWithFlag(&events.emplace_back(), ACL_EVENT_SYNC);
    return code;
  });
  EXAMPLE(207009, {
    int code = 0;
    while (code == 0) code = aclrtCreateNotify(&notifies.emplace_back(), 0);
    return code;
  });
  return examples;
}

// The calls, one in a line, as a program has them; `text` is a block.
std::string Listing(std::string text) {
  text = text.substr(2, text.size() - 4);
  std::string lines = "> ";
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    if (!quoted && std::strchr("({[", c) != nullptr) ++depth;
    if (!quoted && std::strchr(")}]", c) != nullptr) --depth;
    lines += c;
    const bool ends = c == ';' || (c == '}' && text.substr(i, 3) == "} r");
    if (ends && depth == 0 && !quoted && i + 1 < text.size()) {
      lines += "\n> ";
      while (text[i + 1] == ' ') ++i;
    }
  }
  lines = std::regex_replace(lines, std::regex("\n> return code;"), "");
  return std::regex_replace(lines, std::regex("> return "), "> ");
}

// What differs from run to run is left out.
std::string Plain(std::string text) {
  text = std::regex_replace(text, std::regex("0x[0-9a-f]{5,}"), "0x…");
  text = std::regex_replace(text, std::regex("\\b(thread|process|Thread) [0-9]+"), "$1 …");
  text = std::regex_replace(text, std::regex("this thread \\([0-9]+\\)"), "this thread (…)");
  text = std::regex_replace(text, std::regex("[0-9]+ (live ranges|of [0-9]+ bytes are in use)"), "… $1");
  text = std::regex_replace(text, std::regex("\\bqueue [0-9]+ is"), "queue … is");
  const std::regex nearest("; the nearest range below is [a-z ]+0x… of [0-9]+ bytes( \\(device [0-9]+\\))?");
  text = std::regex_replace(text, nearest, "");
  return std::regex_replace(text, std::regex("trace_[0-9_]+"), "trace_…");
}

std::string LineWith(const std::string& message, const std::string& begin) {
  const size_t at = message.find(begin);
  return at == std::string::npos ? "" : message.substr(at, message.find('\n', at) - at);
}

// Makes the calls in a world of their own, and gives the block of the file.
std::string ErrorExamples::Run(const Example& example) {
  EXPECT_EQ(0, aclrtSetDevice(0));
  EXPECT_EQ(0, aclrtGetCurrentContext(&context));
  stream = NewStream();
  side = NewStream();
  memory = NewMemory(4096);
  aclrtEvent mine = nullptr;
  EXPECT_EQ(0, aclrtCreateEventExWithFlag(&mine, ACL_EVENT_SYNC));
  event = mine;
  DropMessage();
  const int code = example.run();
  const char* const got = aclGetRecentErrMsg();
  const std::string message = got != nullptr ? got : "";
  EXPECT_EQ(code, example.code) << message;
  EXPECT_EQ(FaultOfWords(message), "") << message;
  // Back to where it was.
  (void)aclprofFinalize();
  (void)aclmdlFinalizeDump();
  acldumpUnregCallback();
  (void)aclrtSetDeviceTaskAbortCallback("mine", nullptr, nullptr);
  (void)aclrtHostUnregister(host);
  (void)aclrtSetDevice(0);
  (void)aclrtDeviceTaskAbort(0, 0);  // what waits for ever
  (void)aclrtDestroyEvent(mine);
  for (const aclrtEvent each : events) (void)aclrtDestroyEvent(each);
  for (const aclrtNotify each : notifies) (void)aclrtDestroyNotify(each);
  if (other != nullptr) (void)aclrtDestroyContext(other);
  if (queue != UINT32_MAX) (void)acltdtDestroyQueue(queue);
  events.clear();
  notifies.clear();
  other = nullptr;
  queue = UINT32_MAX;
  EXPECT_EQ(0, aclrtResetDeviceForce(0));
  (void)aclFinalize();
  DropMessage();
  const size_t begin = message.find("): ");
  std::string words = begin == std::string::npos ? message : message.substr(begin + 3);
  words.resize(std::min(words.size(), words.find('\n')));
  std::string block = std::to_string(example.code) + "\n" + Listing(example.text) + "\n< " + Plain(words) + "\n< " +
                      Plain(LineWith(message, "Solution: ")) + "\n";
  if (const std::string culprit = LineWith(message, "Culprit: "); example.has_culprit && !culprit.empty()) {
    block += "< " + Plain(culprit) + "\n";
  }
  return block;
}

TEST_F(ErrorExamples, AreWhatTheCallsPrint) {
  std::map<int, std::string> blocks;
  for (const auto& [code, why] : kNoExample) blocks[code] = std::to_string(code) + "\n! " + why + "\n";
  for (const Example& example : Examples()) {
    SCOPED_TRACE(example.text);
    EXPECT_TRUE(blocks.emplace(example.code, Run(example)).second) << example.code << " is there twice";
  }
  std::string text;
  for (const auto& [code, block] : blocks) text += (text.empty() ? "" : "\n") + block;
  const std::string path = REPRISE_EXAMPLES;
  if (std::getenv("REPRISE_WRITE_EXAMPLES") != nullptr) std::ofstream(path) << text;
  std::ostringstream stored;
  stored << std::ifstream(path).rdbuf();
  std::istringstream is(text), was(stored.str());
  for (std::string now, then; std::getline(is, now) && std::getline(was, then);) EXPECT_EQ(now, then);
  EXPECT_TRUE(text == stored.str()) << "make " << path << " anew with REPRISE_WRITE_EXAMPLES=1";
}

TEST_F(ErrorExamples, EveryNumberHasOneOrAReason) {
  std::set<int> there;
  for (const auto& [code, why] : kNoExample) there.insert(code);
  for (const Example& example : Examples()) there.insert(example.code);
#define REPRISE_ERROR(number, code, name, category, title, solution) EXPECT_EQ(there.erase(code), 1U) << code;
#include "base/errors.def"
#undef REPRISE_ERROR
  EXPECT_THAT(there, ::testing::IsEmpty()) << "no row of the table";
}

}  // namespace
}  // namespace reprise::testing
