// SPDX-License-Identifier: Apache-2.0
//
// The lines "Capture: …" of the public headers, held against the calls: every function with such a line is called while
// its stream is being captured, in every mode, and must do what the line says.
#include <fstream>
#include <functional>
#include <map>

#include "acl/acl_rt_memory_soma.h"
#include "graph_world.h"

namespace reprise::testing {
namespace {

/// "Capture: " of each function of a header that has such a line.
std::map<std::string, std::string> LinesOf(const std::string& header) {
  std::ifstream file(std::string(REPRISE_ACL_HEADERS) + "/" + header);
  EXPECT_TRUE(file) << header;
  const std::string label = "/// Capture: ", more = "///  ", declaration = "ACL_FUNC_VISIBILITY ";
  std::map<std::string, std::string> lines;
  std::string line, text;
  while (std::getline(file, line)) {
    if (line.starts_with(label)) {
      text = line.substr(label.size());
    } else if (!text.empty() && line.starts_with(more)) {
      text += line.substr(line.find_first_not_of(' ', more.size()) - 1);
    } else if (line.starts_with(declaration)) {
      const std::string head = line.substr(0, line.find('('));
      if (!text.empty()) lines[head.substr(head.find_last_of(" *") + 1)] = text;
      text.clear();
    }
  }
  return lines;
}

const std::map<std::string, std::string>& CaptureLines() {
  static const auto lines = [] {
    std::map<std::string, std::string> all;
    for (const char* header : {"acl_rt.h", "acl_rt_memory_soma.h", "acl_rt_allocator.h"}) all.merge(LinesOf(header));
    return all;
  }();
  return lines;
}

struct World : GraphWorld {
  aclrtEvent in_capture = nullptr;  ///< Ex, recorded in the capture
  aclrtEvent ex = nullptr;
  aclrtEvent external = nullptr;
  aclrtNotify notify = nullptr;
  aclrtCntNotify count_notify = nullptr;
  aclrtMemPool pool = nullptr;
  aclrtAllocatorDesc allocator = nullptr;
  aclrtArgsHandle args = nullptr;
  void* managed = nullptr;
  void* copy_descriptor = nullptr;
  void* cache_descriptor = nullptr;
  void* to_free = nullptr;
  void* host_to_free = nullptr;
  aclmdlRICondHandle new_condition = nullptr;
  aclmdlRI new_body = nullptr;
  uint64_t thread = 0;
};

/// One call on the stream that is being captured; `prepare`, in the capture, does not count.
struct Call {
  std::function<int(World&)> call;
  std::function<void(World&)> prepare = {};
};

constexpr aclrtMemcpyKind kInner = ACL_MEMCPY_INNER_DEVICE_TO_DEVICE;
constexpr aclrtMemManagedLocation kOnHost = {ACL_MEM_LOCATIONTYPE_HOST, 0};

// An operand of calls that read two halves of the world's memory.
char* Half(World& w) { return static_cast<char*>(w.memory) + World::kMemoryBytes / 2; }

int CopyBatch(World& w, bool asynchronous) {
  void* dst = w.memory;
  void* src = w.pinned;
  size_t bytes = 8, first = 0, failed = 0;
  aclrtMemcpyBatchAttr attribute{};
  attribute.dstLoc.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  attribute.srcLoc.type = ACL_MEM_LOCATION_TYPE_HOST;
  return asynchronous ? aclrtMemcpyBatchAsync(&dst, &bytes, &src, &bytes, 1, &attribute, &first, 1, &failed, w.captured)
                      : aclrtMemcpyBatch(&dst, &bytes, &src, &bytes, 1, &attribute, &first, 1, &failed);
}

int CopyBatchV2(World& w, bool asynchronous) {
  void* dst = w.memory;
  void* src = w.pinned;
  size_t bytes = 8, first = 0;
  aclrtMemcpyBatchAttr attribute{};
  attribute.dstLoc.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  attribute.srcLoc.type = ACL_MEM_LOCATION_TYPE_HOST;
  return asynchronous ? aclrtMemcpyBatchAsyncV2(&dst, &bytes, &src, &bytes, 1, &attribute, &first, 1, w.captured)
                      : aclrtMemcpyBatchV2(&dst, &bytes, &src, &bytes, 1, &attribute, &first, 1);
}

int DrawNumbers(World& w) {
  aclrtRandomNumTaskInfo info{};
  info.dataType = ACL_FLOAT;
  info.randomNumFuncParaInfo.funcType = ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS;
  auto& range = info.randomNumFuncParaInfo.paramInfo.uniformDisInfo;
  const float one = 1;
  range.min.size = range.max.size = 4;
  std::memcpy(range.max.valueOrAddr, &one, sizeof one);
  info.randomSeed.size = info.randomNum.size = 8;
  const uint64_t count = 4;
  std::memcpy(info.randomNum.valueOrAddr, &count, sizeof count);
  info.randomResultAddr = w.memory;
  info.randomCounterAddr = Half(w);
  return aclrtRandomNumAsync(&info, w.captured, nullptr);
}

int UpdateTask(World& w) {
  aclrtTaskUpdateInfo info{};
  info.id = ACL_RT_UPDATE_AIC_AIV_TASK;
  info.val.aicAivTaskAttr.blockDimAddr = w.memory;
  return aclrtTaskUpdateAsync(w.bound, 0, &info, w.captured);
}

int SetAttribute(aclrtStream stream, aclrtStreamAttr attribute) {
  aclrtStreamAttrValue value{};
  return aclrtSetStreamAttribute(stream, attribute, &value);
}

void Nothing(void*) {}

/// All functions with a line, bar those of kElsewhere.
const std::map<std::string, Call>& Calls() {
  using W = World&;
  static const std::map<std::string, Call> calls = {
      {"aclrtDeviceTaskAbort", {[](W) { return aclrtDeviceTaskAbort(0, 0); }}},
      {"aclrtSynchronizeDevice", {[](W) { return aclrtSynchronizeDevice(); }}},
      {"aclrtSynchronizeDeviceWithTimeout", {[](W) { return aclrtSynchronizeDeviceWithTimeout(kPatience); }}},
      {"aclrtDestroyStream", {[](W w) { return aclrtDestroyStream(w.captured); }}},
      {"aclrtDestroyStreamForce", {[](W w) { return aclrtDestroyStreamForce(w.captured); }}},
      {"aclrtSynchronizeStream", {[](W w) { return aclrtSynchronizeStream(w.captured); }}},
      {"aclrtSynchronizeStreamWithTimeout",
       {[](W w) { return aclrtSynchronizeStreamWithTimeout(w.captured, kPatience); }}},
      {"aclrtStreamQuery", {[](W w) { return aclrtStreamQuery(w.captured, w.out.As<aclrtStreamStatus>()); }}},
      {"aclrtStreamGetId", {[](W w) { return aclrtStreamGetId(w.captured, w.out.As<int32_t>()); }}},
      {"aclrtStreamGetPriority", {[](W w) { return aclrtStreamGetPriority(w.captured, w.out.As<uint32_t>()); }}},
      {"aclrtStreamGetFlags", {[](W w) { return aclrtStreamGetFlags(w.captured, w.out.As<uint32_t>()); }}},
      {"aclrtSetStreamFailureMode", {[](W w) { return aclrtSetStreamFailureMode(w.captured, 7); }}},
      {"aclrtSetStreamAttribute", {[](W w) { return SetAttribute(w.captured, ACL_STREAM_ATTR_PRIORITY); }}},
      {"aclrtGetStreamAttribute", {[](W w) {
         return aclrtGetStreamAttribute(w.captured, ACL_STREAM_ATTR_PRIORITY, w.out.As<aclrtStreamAttrValue>());
       }}},
      {"aclrtSetStreamResLimit", {[](W w) { return aclrtSetStreamResLimit(w.captured, ACL_RT_DEV_RES_CUBE_CORE, 1); }}},
      {"aclrtGetStreamResLimit",
       {[](W w) { return aclrtGetStreamResLimit(w.captured, ACL_RT_DEV_RES_CUBE_CORE, w.out.As<uint32_t>()); }}},
      {"aclrtResetStreamResLimit", {[](W w) { return aclrtResetStreamResLimit(w.captured); }}},
      {"aclrtUseStreamResInCurrentThread", {[](W w) { return aclrtUseStreamResInCurrentThread(w.captured); }}},
      {"aclrtUnuseStreamResInCurrentThread", {[](W w) { return aclrtUnuseStreamResInCurrentThread(w.captured); }}},
      {"aclrtStreamStop", {[](W w) { return aclrtStreamStop(w.captured); }}},
      {"aclrtStreamAbort", {[](W w) { return aclrtStreamAbort(w.captured); }}},
      {"aclrtActiveStream", {[](W w) { return aclrtActiveStream(w.bound, w.captured); }}},
      {"aclrtSwitchStream", {[](W w) {
         return aclrtSwitchStream(w.memory, ACL_RT_EQUAL, w.memory, ACL_RT_SWITCH_INT32, w.bound, nullptr, w.captured);
       }}},
      {"aclrtPersistentTaskClean", {[](W w) { return aclrtPersistentTaskClean(w.captured); }}},
      {"aclrtTaskUpdateAsync", {UpdateTask}},
      {"aclrtRecordEvent", {[](W w) { return aclrtRecordEvent(w.ex, w.captured); }}},
      {"aclrtRecordEventWithFlag",
       {[](W w) { return aclrtRecordEventWithFlag(w.ex, w.captured, ACL_EVENT_RECORD_DEFAULT); }}},
      {"aclrtResetEvent", {[](W w) { return aclrtResetEvent(w.external, w.captured); }}},
      {"aclrtStreamWaitEvent", {[](W w) { return aclrtStreamWaitEvent(w.captured, w.in_capture); }}},
      {"aclrtStreamWaitEventWithTimeout",
       {[](W w) { return aclrtStreamWaitEventWithTimeout(w.captured, w.in_capture, 1); }}},
      {"aclrtStreamWaitEventWithFlag",
       {[](W w) { return aclrtStreamWaitEventWithFlag(w.captured, w.in_capture, 0, ACL_EVENT_WAIT_DEFAULT); }}},
      {"aclrtQueryEventStatus",
       {[](W w) { return aclrtQueryEventStatus(w.in_capture, w.out.As<aclrtEventRecordedStatus>()); }}},
      {"aclrtSynchronizeEvent", {[](W w) { return aclrtSynchronizeEvent(w.in_capture); }}},
      {"aclrtSynchronizeEventWithTimeout",
       {[](W w) { return aclrtSynchronizeEventWithTimeout(w.in_capture, kPatience); }}},
      {"aclrtEventElapsedTime", {[](W w) { return aclrtEventElapsedTime(w.out.As<float>(), w.event, w.in_capture); }}},
      {"aclrtEventGetTimestamp", {[](W w) { return aclrtEventGetTimestamp(w.in_capture, w.out.As<uint64_t>()); }}},
      {"aclrtFreeWithDevSync", {[](W w) { return aclrtFreeWithDevSync(w.to_free); }}},
      {"aclrtFreeHostWithDevSync", {[](W w) { return aclrtFreeHostWithDevSync(w.host_to_free); }}},
      {"aclrtMemcpy", {[](W w) { return aclrtMemcpy(w.memory, 8, w.pinned, 8, ACL_MEMCPY_DEFAULT); }}},
      {"aclrtMemcpyAsync",
       {[](W w) { return aclrtMemcpyAsync(w.memory, 8, w.pinned, 8, ACL_MEMCPY_DEFAULT, w.captured); }}},
      {"aclrtMemcpyAsyncWithCondition",
       {[](W w) { return aclrtMemcpyAsyncWithCondition(w.memory, 8, w.pinned, 8, ACL_MEMCPY_DEFAULT, w.captured); }}},
      {"aclrtMemcpy2d", {[](W w) { return aclrtMemcpy2d(w.memory, 16, w.pinned, 16, 8, 2, ACL_MEMCPY_DEFAULT); }}},
      {"aclrtMemcpy2dAsync",
       {[](W w) { return aclrtMemcpy2dAsync(w.memory, 16, w.pinned, 16, 8, 2, ACL_MEMCPY_DEFAULT, w.captured); }}},
      {"aclrtMemcpyBatch", {[](W w) { return CopyBatch(w, false); }}},
      {"aclrtMemcpyBatchV2", {[](W w) { return CopyBatchV2(w, false); }}},
      {"aclrtMemcpyBatchAsync", {[](W w) { return CopyBatch(w, true); }}},
      {"aclrtMemcpyBatchAsyncV2", {[](W w) { return CopyBatchV2(w, true); }}},
      {"aclrtMemcpyAsyncWithOffset", {[](W w) {
         void** const cells = static_cast<void**>(w.memory);
         return aclrtMemcpyAsyncWithOffset(cells, 8, 0, const_cast<const void**>(cells + 1), 8, 0, kInner, w.captured);
       }}},
      {"aclrtMemcpyAsyncWithDesc",
       {[](W w) { return aclrtMemcpyAsyncWithDesc(w.copy_descriptor, kInner, w.captured); }}},
      {"aclrtMemset", {[](W w) { return aclrtMemset(w.memory, 8, 1, 8); }}},
      {"aclrtMemsetAsync", {[](W w) { return aclrtMemsetAsync(w.memory, 8, 1, 8, w.captured); }}},
      {"aclrtMemsetD32", {[](W w) { return aclrtMemsetD32(w.memory, 8, 1, 2); }}},
      {"aclrtMemsetD32Async", {[](W w) { return aclrtMemsetD32Async(w.memory, 8, 1, 2, w.captured); }}},
      {"aclrtMemManagedPrefetchAsync",
       {[](W w) { return aclrtMemManagedPrefetchAsync(w.managed, 2 << 20, kOnHost, 0, w.captured); }}},
      {"aclrtMemManagedPrefetchBatchAsync", {[](W w) {
         const void* range = w.managed;
         size_t bytes = 2 << 20, first = 0;
         aclrtMemManagedLocation place = kOnHost;
         return aclrtMemManagedPrefetchBatchAsync(&range, &bytes, 1, &place, &first, 1, 0, w.captured);
       }}},
      {"aclrtRecordNotify", {[](W w) { return aclrtRecordNotify(w.notify, w.captured); }}},
      {"aclrtWaitAndResetNotify", {[](W w) { return aclrtWaitAndResetNotify(w.notify, w.captured, 1); }}},
      {"aclrtCntNotifyRecord", {[](W w) {
         aclrtCntNotifyRecordInfo info{};
         return aclrtCntNotifyRecord(w.count_notify, w.captured, &info);
       }}},
      {"aclrtCntNotifyWaitWithTimeout", {[](W w) {
         aclrtCntNotifyWaitInfo info{};
         return aclrtCntNotifyWaitWithTimeout(w.count_notify, w.captured, &info);
       }}},
      {"aclrtCntNotifyReset", {[](W w) { return aclrtCntNotifyReset(w.count_notify, w.captured); }}},
      {"aclrtValueWrite", {[](W w) { return aclrtValueWrite(w.memory, 1, 0, w.captured); }}},
      {"aclrtValueWait", {[](W w) { return aclrtValueWait(w.memory, 1, 0, w.captured); }}},
      {"aclrtSetLabel", {[](W w) { return aclrtSetLabel(w.label, w.captured); }}},
      {"aclrtSwitchLabelByIndex", {[](W w) { return aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, w.captured); }}},
      {"aclrtLaunchHostFunc", {[](W w) { return aclrtLaunchHostFunc(w.captured, Nothing, nullptr); }}},
      {"aclrtSubscribeReport", {[](W w) {
         const int code = aclrtSubscribeReport(w.thread, w.captured);
         (void)aclrtUnSubscribeReport(w.thread, w.captured);
         return code;
       }}},
      {"aclrtUnSubscribeReport", {[](W w) {
         (void)aclrtSubscribeReport(w.thread, w.captured);
         return aclrtUnSubscribeReport(w.thread, w.captured);
       }}},
      {"aclrtProcessReport", {[](W) { return aclrtProcessReport(1); }}},
      {"aclrtLaunchCallback",
       {[](W w) {
          const int code = aclrtLaunchCallback(Nothing, nullptr, ACL_CALLBACK_NO_BLOCK, w.captured);
          (void)aclrtUnSubscribeReport(w.thread, w.captured);
          return code;
        },
        [](W w) { EXPECT_EQ(0, aclrtSubscribeReport(w.thread, w.captured)); }}},
      {"aclrtSubscribeHostFunc", {[](W w) {
         const int code = aclrtSubscribeHostFunc(w.thread, w.captured);
         (void)aclrtUnSubscribeHostFunc(w.thread, w.captured);
         return code;
       }}},
      {"aclrtUnSubscribeHostFunc", {[](W w) {
         (void)aclrtSubscribeHostFunc(w.thread, w.captured);
         return aclrtUnSubscribeHostFunc(w.thread, w.captured);
       }}},
      {"aclrtProcessHostFunc", {[](W) { return aclrtProcessHostFunc(1); }}},
      {"aclrtSetStreamOverflowSwitch", {[](W w) { return aclrtSetStreamOverflowSwitch(w.captured, 0); }}},
      {"aclrtGetStreamOverflowSwitch",
       {[](W w) { return aclrtGetStreamOverflowSwitch(w.captured, w.out.As<uint32_t>()); }}},
      {"aclrtGetOverflowStatus", {[](W w) { return aclrtGetOverflowStatus(w.memory, 64, w.captured); }}},
      {"aclrtResetOverflowStatus", {[](W w) { return aclrtResetOverflowStatus(w.captured); }}},
      {"aclrtGetFloatOverflowStatus", {[](W w) { return aclrtGetFloatOverflowStatus(w.memory, 64, w.captured); }}},
      {"aclrtResetFloatOverflowStatus", {[](W w) { return aclrtResetFloatOverflowStatus(w.captured); }}},
      {"aclrtNpuGetFloatOverFlowStatus",
       {[](W w) { return aclrtNpuGetFloatOverFlowStatus(w.memory, 64, 0, w.captured); }}},
      {"aclrtNpuClearFloatOverFlowStatus", {[](W w) { return aclrtNpuClearFloatOverFlowStatus(0, w.captured); }}},
      {"aclrtMemcpyToSymbol", {[](W w) { return aclrtMemcpyToSymbol(&w.local, w.pinned, 8, 0, ACL_MEMCPY_DEFAULT); }}},
      {"aclrtMemcpyToSymbolAsync",
       {[](W w) { return aclrtMemcpyToSymbolAsync(&w.local, w.pinned, 8, 0, ACL_MEMCPY_DEFAULT, w.captured); }}},
      {"aclrtMemcpyFromSymbol",
       {[](W w) { return aclrtMemcpyFromSymbol(w.pinned, 8, &w.local, 8, 0, ACL_MEMCPY_DEFAULT); }}},
      {"aclrtMemcpyFromSymbolAsync",
       {[](W w) { return aclrtMemcpyFromSymbolAsync(w.pinned, 8, &w.local, 8, 0, ACL_MEMCPY_DEFAULT, w.captured); }}},
      {"aclrtLaunchKernel", {[](W w) { return aclrtLaunchKernel(w.add, 1, w.memory, 16, w.captured); }}},
      {"aclrtLaunchKernelV2", {[](W w) { return aclrtLaunchKernelV2(w.add, 1, w.memory, 16, nullptr, w.captured); }}},
      {"aclrtLaunchKernelWithConfig",
       {[](W w) { return aclrtLaunchKernelWithConfig(w.add, 1, w.captured, nullptr, w.args, nullptr); }}},
      {"aclrtLaunchKernelWithHostArgs", {[](W w) {
         uint64_t args[] = {reinterpret_cast<uintptr_t>(w.memory), 1};
         return aclrtLaunchKernelWithHostArgs(w.add, 1, w.captured, nullptr, args, sizeof args, nullptr, 0);
       }}},
      {"aclrtLaunchKernelWithArgsArray", {[](W w) {
         uint64_t value = 1;
         void* args[] = {&w.memory, &value};
         return aclrtLaunchKernelWithArgsArray(w.add, 1, w.captured, nullptr, args);
       }}},
      {"aclrtLaunchSIMTKernelWithArgsArray",
       {[](W w) { return aclrtLaunchSIMTKernelWithArgsArray(w.add, {}, {}, 0, w.captured, nullptr, nullptr); }}},
      {"aclrtLaunchSIMTKernelWithHostArgs", {[](W w) {
         return aclrtLaunchSIMTKernelWithHostArgs(w.add, {}, {}, 0, w.captured, nullptr, &w.local, 8, nullptr, 0);
       }}},
      {"aclrtCmoAsync", {[](W w) { return aclrtCmoAsync(w.memory, 8, ACL_RT_CMO_TYPE_PREFETCH, w.captured); }}},
      {"aclrtCmoAsyncWithBarrier",
       {[](W w) { return aclrtCmoAsyncWithBarrier(w.memory, 8, ACL_RT_CMO_TYPE_PREFETCH, 0, w.captured); }}},
      {"aclrtCmoWaitBarrier", {[](W w) {
         aclrtBarrierTaskInfo info{};
         info.barrierNum = 1;
         return aclrtCmoWaitBarrier(&info, w.captured, 0);
       }}},
      {"aclrtCmoAsyncWithDesc",
       {[](W w) { return aclrtCmoAsyncWithDesc(w.cache_descriptor, ACL_RT_CMO_TYPE_PREFETCH, w.captured, nullptr); }}},
      {"aclrtReduceAsync", {[](W w) {
         return aclrtReduceAsync(w.memory, Half(w), 8, ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM, ACL_FLOAT, w.captured,
                                 nullptr);
       }}},
      {"aclrtRandomNumAsync", {DrawNumbers}},
      {"aclmdlRICaptureBegin", {[](W w) { return aclmdlRICaptureBegin(w.captured, kRelaxed); }}},
      {"aclmdlRICaptureGetInfo", {[](W w) { return aclmdlRICaptureGetInfo(w.captured, nullptr, w.out.handle()); }}},
      {"aclmdlRICaptureThreadExchangeMode", {[](W) {
         aclmdlRICaptureMode mode = kRelaxed;
         const int code = aclmdlRICaptureThreadExchangeMode(&mode);
         (void)aclmdlRICaptureThreadExchangeMode(&mode);
         return code;
       }}},
      {"aclmdlRICaptureToModelRIBegin",
       {[](W w) { return aclmdlRICaptureToModelRIBegin(w.captured, w.new_body, kRelaxed); },
        [](W w) {
          EXPECT_EQ(0,
                    aclmdlRIAddCondTask({w.new_condition, ACL_MODEL_RI_COND_TYPE_IF, 1, &w.new_body}, w.captured, 0));
        }}},
      {"aclmdlRICaptureTaskGrpBegin", {[](W w) { return aclmdlRICaptureTaskGrpBegin(w.captured); }}},
      {"aclmdlRICaptureTaskGrpEnd", {[](W w) {
         (void)aclmdlRICaptureTaskGrpBegin(w.captured);
         return aclmdlRICaptureTaskGrpEnd(w.captured, w.out.handle());
       }}},
      {"aclmdlRICaptureTaskUpdateBegin",
       {[](W w) { return aclmdlRICaptureTaskUpdateBegin(w.captured, w.captured_model.group); }}},
      {"aclmdlRICaptureTaskUpdateEnd", {[](W w) { return aclmdlRICaptureTaskUpdateEnd(w.captured); }}},
      {"aclmdlRIBindStream", {[](W w) { return aclmdlRIBindStream(w.fresh, w.captured, ACL_MODEL_STREAM_FLAG_HEAD); }}},
      {"aclmdlRIUnbindStream", {[](W w) { return aclmdlRIUnbindStream(w.fresh, w.captured); }}},
      {"aclmdlRIEndTask", {[](W w) { return aclmdlRIEndTask(w.fresh, w.captured); }}},
      {"aclmdlRIExecute", {[](W w) { return aclmdlRIExecute(w.built, kPatience); }}},
      {"aclmdlRIExecuteAsync", {[](W w) { return aclmdlRIExecuteAsync(w.model, w.captured); }}},
      {"aclmdlRIGetTasksByStream",
       {[](W w) { return aclmdlRIGetTasksByStream(w.captured_model.lane, nullptr, w.out.As<uint32_t>()); }}},
      {"aclmdlRIAddCondTask", {[](W w) {
         return aclmdlRIAddCondTask({w.new_condition, ACL_MODEL_RI_COND_TYPE_IF, 1, &w.new_body}, w.captured, 0);
       }}},
      {"aclrtProfTrace", {[](W w) { return aclrtProfTrace(&w.local, 8, w.captured); }}},
      {"aclrtMemPoolMallocAsync",
       {[](W w) { return aclrtMemPoolMallocAsync(w.out.handle(), 64, w.pool, w.captured); }}},
      {"aclrtMemPoolFreeAsync", {[](W w) {
         void* block = nullptr;
         const int code = aclrtMemPoolMallocAsync(&block, 64, w.pool, w.captured);
         return code != 0 ? code : aclrtMemPoolFreeAsync(block, w.captured);
       }}},
      {"aclrtAllocatorRegister", {[](W w) { return aclrtAllocatorRegister(w.captured, w.allocator); }}},
      {"aclrtAllocatorGetByStream", {[](W w) {
         return aclrtAllocatorGetByStream(w.captured, w.out.handle(), nullptr, nullptr, nullptr, nullptr, nullptr);
       }}},
      {"aclrtAllocatorUnregister", {[](W w) { return aclrtAllocatorUnregister(w.captured); }}},
  };
  return calls;
}

/// Functions whose calls would take away what the others need, or that need an event that graphs do not take.
const std::map<std::string, const char*>& Elsewhere() {
  static const std::map<std::string, const char*> reasons = {
      {"aclrtResetDevice", "takes the context away: see LostContext below"},
      {"aclrtResetDeviceForce", "takes the context away: see LostContext below"},
      {"aclrtDestroyContext", "takes the context away: see LostContext below"},
      {"aclrtQueryEvent", "takes no Ex event, and only those are in captures: tests/misuse/event_test.cc"},
      {"aclrtQueryEventWaitStatus", "takes no Ex event, and only those are in captures: tests/misuse/event_test.cc"},
      {"aclmdlRICaptureEnd", "ends the capture: tests/conformance/capture_test.cc"},
  };
  return reasons;
}

class CaptureLine : public GraphMisuse<World> {
 protected:
  void SetUp() override {
    GraphMisuse<World>::SetUp();
    if (HasFatalFailure()) return;
    World& w = world_;
    w.captured = nullptr;
    w.in_capture = NewEx();
    w.ex = NewEx();
    MUST(aclrtCreateEventWithFlag(&w.external, ACL_EVENT_EXTERNAL));
    MUST(aclrtCreateNotify(&w.notify, 0));
    MUST(aclrtCntNotifyCreate(&w.count_notify, 0));
    aclrtMemPoolProps properties{};
    properties.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    MUST(aclrtMemPoolCreate(&w.pool, &properties));
    w.allocator = aclrtAllocatorCreateDesc();
    MUST(aclrtKernelArgsInit(w.add, &w.args));
    aclrtParamHandle parameter = nullptr;
    uint64_t value = 0;
    MUST(aclrtKernelArgsAppend(w.args, &w.memory, 8, &parameter));
    MUST(aclrtKernelArgsAppend(w.args, &value, 8, &parameter));
    MUST(aclrtKernelArgsFinalize(w.args));
    MUST(aclrtMemAllocManaged(&w.managed, 2 << 20, ACL_RT_MEM_ATTACH_GLOBAL));
    w.copy_descriptor = NewMemory(4096);
    MUST(aclrtSetMemcpyDesc(w.copy_descriptor, kInner, Half(w), w.memory, 8, nullptr));
    w.cache_descriptor = NewMemory(4096);
    MUST(aclrtCmoSetDesc(w.cache_descriptor, w.memory, 8));
    w.thread = static_cast<uint64_t>(pthread_self());
    // What only this mode has is called, too.
    MUST(aclrtGetDeviceSatMode(&mode_before_));
    MUST(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_SATURATION));
    stream_ = NewStream();
    other_ = NewStream();
    w.captured = stream_;
    // A thread that is subscribed may ask for callbacks.
    MUST(aclrtSubscribeReport(w.thread, other_));
  }

  void TearDown() override {
    World& w = world_;
    EXPECT_EQ(0, aclrtUnSubscribeReport(w.thread, other_));
    EXPECT_EQ(0, aclrtSetDeviceSatMode(mode_before_));
    EXPECT_EQ(0, aclrtDestroyNotify(w.notify));
    EXPECT_EQ(0, aclrtCntNotifyDestroy(w.count_notify));
    EXPECT_EQ(0, aclrtMemPoolDestroy(w.pool));
    EXPECT_EQ(0, aclrtAllocatorDestroyDesc(w.allocator));
    EXPECT_EQ(0, aclrtFree(w.managed));
    for (const aclrtEvent event : {w.in_capture, w.ex, w.external}) EXPECT_EQ(0, aclrtDestroyEvent(event));
    w.captured = nullptr;
    GraphMisuse<World>::TearDown();
  }

  size_t Tasks() {
    aclmdlRI model = nullptr;
    EXPECT_EQ(0, aclmdlRICaptureGetInfo(stream_, nullptr, &model));
    return model::Models().Find(model)->graph().nodes().size();
  }

  struct Outcome {
    int code;
    size_t new_tasks;
  };
  /// Makes the call in a capture of its own, which must survive.
  Outcome InCapture(const Call& call, aclmdlRICaptureMode mode) {
    World& w = world_;
    EXPECT_EQ(0, aclmdlRICaptureBegin(stream_, mode));
    aclmdlRI model = nullptr;
    EXPECT_EQ(0, aclmdlRICaptureGetInfo(stream_, nullptr, &model));
    EXPECT_EQ(0, aclrtRecordEvent(w.in_capture, stream_));
    EXPECT_EQ(0, aclmdlRICondHandleCreate(model, 0, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &w.new_condition));
    if (call.prepare) call.prepare(w);
    const size_t before = Tasks();
    const int code = call.call(w);
    const Outcome outcome{code, Tasks() - before};
    ExpectCaptureActive();
    aclmdlRI ended = nullptr;
    (void)aclmdlRICaptureEnd(stream_, &ended);  // with an open group or body it fails
    if (ended != nullptr) {
      EXPECT_EQ(0, aclmdlRIDestroy(ended));
    }
    return outcome;
  }
  int Outside(const Call& call) {
    FreshMemory();
    return call.call(world_);
  }
  // What some calls free.
  void FreshMemory() {
    World& w = world_;
    if (w.to_free != nullptr) (void)aclrtFree(w.to_free);
    if (w.host_to_free != nullptr) (void)aclrtFreeHost(w.host_to_free);
    w.to_free = NewMemory(64);
    EXPECT_EQ(0, aclrtMallocHost(&w.host_to_free, 64));
  }

  /// The call does what the line says, in a capture of this mode, on a thread that the capture restricts or not.
  void Check(const Call& call, const std::string& line, aclmdlRICaptureMode mode, bool restricted) {
    FreshMemory();
    const std::string by_mode = "refused by mode with ", refused = "refused with ";
    const bool is_by_mode = line.starts_with(by_mode);
    if (line.starts_with("recorded")) {
      const Outcome outcome = InCapture(call, mode);
      EXPECT_EQ(outcome.code, 0);
      EXPECT_GE(outcome.new_tasks, 1U);
    } else if (line.starts_with("allowed") || (is_by_mode && !restricted)) {
      const int usual = Outside(call);
      FreshMemory();
      const Outcome outcome = InCapture(call, mode);
      EXPECT_EQ(outcome.code, usual) << "what it returns without a capture";
      EXPECT_EQ(outcome.new_tasks, 0U);
    } else if (line.starts_with("required")) {
      EXPECT_EQ(Outside(call), 107029);
      const Outcome outcome = InCapture(call, mode);
      EXPECT_EQ(outcome.code, 0);
      EXPECT_EQ(outcome.new_tasks, 0U);
    } else if (is_by_mode || line.starts_with(refused)) {
      const int number = std::atoi(line.c_str() + (is_by_mode ? by_mode : refused).size());
      const Outcome outcome = InCapture(call, mode);
      EXPECT_EQ(outcome.code, number);
      EXPECT_EQ(outcome.new_tasks, 0U);
    } else {
      ADD_FAILURE() << "the line cannot be tested";
    }
  }

  void CheckAll(aclmdlRICaptureMode mode, bool restricted) {
    for (const auto& [function, line] : CaptureLines()) {
      if (Elsewhere().contains(function)) continue;
      const std::string trace = function + ", mode " + std::to_string(mode) + ": Capture: " + line;
      SCOPED_TRACE(trace);
      const auto call = Calls().find(function);
      if (call == Calls().end()) {
        ADD_FAILURE() << "the table has no call of it";
        continue;
      }
      Check(call->second, line, mode, restricted);
      if (HasFatalFailure()) return;
    }
  }

  aclrtStream stream_ = nullptr;
  aclrtStream other_ = nullptr;
  aclrtFloatOverflowMode mode_before_ = ACL_RT_OVERFLOW_MODE_INFNAN;
};

TEST_F(CaptureLine, HoldsInModeGlobal) { CheckAll(kGlobal, true); }

TEST_F(CaptureLine, HoldsInModeThreadLocal) { CheckAll(kThreadLocal, true); }

TEST_F(CaptureLine, HoldsInModeRelaxed) { CheckAll(kRelaxed, false); }

TEST_F(CaptureLine, HoldsInModeGlobalForAThreadThatMayWait) {
  aclmdlRICaptureMode exchange = kRelaxed;
  MUST(aclmdlRICaptureThreadExchangeMode(&exchange));
  CheckAll(kGlobal, false);
  MUST(aclmdlRICaptureThreadExchangeMode(&exchange));
}

TEST_F(CaptureLine, IsThereForEveryCallOfTheTable) {
  const auto& lines = CaptureLines();
  EXPECT_GE(lines.size(), 120U);
  for (const auto& [function, call] : Calls()) EXPECT_TRUE(lines.contains(function)) << function;
  for (const auto& [function, reason] : Elsewhere()) EXPECT_TRUE(lines.contains(function)) << function;
}

// The rest of what some lines say.

TEST_F(CaptureLine, AttributesOfStreams) {
  const Call overflow{[](World& w) { return SetAttribute(w.captured, ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK); }};
  EXPECT_EQ(InCapture(overflow, kRelaxed).code, 107027);
  const Call tag{[](World& w) { return SetAttribute(w.captured, ACL_STREAM_ATTR_USER_CUSTOM_TAG); }};
  EXPECT_EQ(InCapture(tag, kRelaxed).code, 107027);
}

TEST_F(CaptureLine, AnEventWithoutSyncLeavesNoTask) {
  aclrtEvent event = nullptr;
  MUST(aclrtCreateEventExWithFlag(&event, ACL_EVENT_TIME_LINE));
  const Outcome outcome = InCapture({[&](World& w) { return aclrtRecordEvent(event, w.captured); }}, kGlobal);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.new_tasks, 0U);
  MUST(aclrtDestroyEvent(event));
}

TEST_F(CaptureLine, MemoryOfAnotherTimeIsNotGivenBackInACapture) {
  void* block = nullptr;
  MUST(aclrtMemPoolMallocAsync(&block, 64, world_.pool, stream_));
  const Outcome outcome = InCapture({[&](World& w) { return aclrtMemPoolFreeAsync(block, w.captured); }}, kRelaxed);
  EXPECT_EQ(outcome.code, 207000);
  MUST(aclrtMemPoolFreeAsync(block, stream_));
}

// What takes the context away drops its open captures.
class LostContext : public Runtime {
 protected:
  static aclrtStream Captured() {
    const aclrtStream stream = NewStream();
    EXPECT_EQ(0, aclmdlRICaptureBegin(stream, kGlobal));
    return stream;
  }
};

TEST_F(LostContext, DestroyContext) {
  const size_t models = model::Models().live();
  aclrtContext primary = nullptr, context = nullptr;
  MUST(aclrtGetCurrentContext(&primary));
  MUST(aclrtCreateContext(&context, 0));
  const aclrtStream stream = Captured();
  MUST(aclrtDestroyContext(context));
  MUST(aclrtSetCurrentContext(primary));
  EXPECT_ACL(107017, aclmdlRICaptureEnd(stream, nullptr));
  EXPECT_EQ(model::Models().live(), models);
  const int64_t value = 7;
  int64_t copy = 0;
  MUST(aclrtMemcpy(&copy, 8, &value, 8, ACL_MEMCPY_HOST_TO_HOST));  // no capture forbids waiting any more
}

TEST_F(LostContext, ResetDevice) {
  const size_t models = model::Models().live();
  const aclrtStream stream = Captured();
  MUST(aclrtResetDevice(0));
  MUST(aclrtSetDevice(0));
  EXPECT_ACL(107017, aclmdlRICaptureEnd(stream, nullptr));
  EXPECT_EQ(model::Models().live(), models);
}

TEST_F(LostContext, ResetDeviceForce) {
  const size_t models = model::Models().live();
  const aclrtStream stream = Captured();
  MUST(aclrtSetDevice(0));
  MUST(aclrtResetDeviceForce(0));
  MUST(aclrtSetDevice(0));
  EXPECT_ACL(107017, aclmdlRICaptureEnd(stream, nullptr));
  EXPECT_EQ(model::Models().live(), models);
}

}  // namespace
}  // namespace reprise::testing
