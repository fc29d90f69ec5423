// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: bytes are a sequence of calls of the runtime and of the capture API, with handles that are live, stale,
// foreign or null. No sequence may crash, hang or leave anything behind, each refusal says what to do, and afterwards a
// capture works.
//
// What a caller owes the runtime, the target keeps to: host addresses are valid, kernels get cells that exist, loops of
// conditional tasks and waits that never end are aborted before the model is destroyed.
#include <acl/acl.h>
#include <acl/acl_rt_memory_soma.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "../support/program_folder.h"
#include "device/memory.h"
#include "input.h"
#include "model/model.h"
#include "model/program.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/memory_pool.h"
#include "runtime/notify.h"
#include "runtime/stream.h"

namespace reprise::fuzz {
namespace {

// Arguments in the order in which they are written, whatever the compiler: inputs mean the same everywhere.
#define CALL(function, ...) (Ordered{#function, function, __VA_ARGS__}.result)
#define CHECKED(...) Checked(#__VA_ARGS__, (__VA_ARGS__))
#define MUST(...) Must(#__VA_ARGS__, (__VA_ARGS__))

constexpr size_t kCells = 512;  // of 64 bits, in device memory
constexpr int kMostCalls = 400;
constexpr int32_t kShortMs = 2;         // for what may never end
constexpr int32_t kHealthyMs = 60'000;  // for what ends at once on a healthy device

// What must be the same after each input.
struct Inventory {
  std::array<int64_t, 16> counts;
  bool operator==(const Inventory&) const = default;
};

Inventory Count() {
  runtime::Device& device = *runtime::Devices()[0];
  const auto live = [](const auto& table) { return static_cast<int64_t>(table.live()); };
  return {{live(runtime::Contexts()), live(runtime::Streams()), live(runtime::Events()), live(model::Models()),
           live(model::LaneHandles()), live(model::TaskGroups()), live(model::Conditions()), live(model::Labels()),
           live(model::LabelLists()), live(runtime::Notifies()), live(runtime::CountNotifies()),
           live(runtime::MemoryPools()), device.stream_ids().available(), device.event_ids().available(),
           model::Model::Available(), static_cast<int64_t>(device::MemoryRegistry::Get().used_bytes(0))}};
}

aclrtContext home = nullptr;
aclrtBinHandle binary = nullptr;
std::array<aclrtFuncHandle, 4> kernels{};  // append, axpb, fail, aicpu_append
std::atomic<int64_t> host_calls{0};
uint64_t foreign[4] = {};  // an address that is no handle

void OnHost(void*) { host_calls.fetch_add(1, std::memory_order_relaxed); }
void OnDestroy(void*) { host_calls.fetch_add(1, std::memory_order_relaxed); }

struct Objects {
  std::vector<void*> streams, events, models, groups, conditions, tasks, lanes, contexts, labels, lists, notifies,
      counters, pools, blocks;
};

class Sequence {
 public:
  explicit Sequence(Input& input) : in_(input) {}

  void Run() {
    tidy_ = in_.Byte() % 4 != 0;
    aclrtContext context = nullptr;
    MUST(aclrtCreateContext(&context, 0));
    all_.contexts.push_back(context);
    void* memory = nullptr;
    MUST(aclrtMalloc(&memory, kCells * 8, ACL_MEM_MALLOC_HUGE_FIRST));
    cells_ = static_cast<uint64_t*>(memory);
    MUST(aclrtMemset(cells_, kCells * 8, 0, kCells * 8));
    MUST(aclrtMallocHost(&pinned_, 4096));
    const uint64_t capacity = 200;
    MUST(aclrtMemcpy(Log() + 1, 8, &capacity, 8, ACL_MEMCPY_HOST_TO_DEVICE));
    for (int i = 0; i < 3; ++i) Make(all_.streams, aclrtCreateStream);
    for (int i = 0; i < 2; ++i) MakeEvent(ACL_EVENT_SYNC);
    for (int i = 0; i < kMostCalls && !in_.empty(); ++i) Step();
    CleanUp();
  }

 private:
  template <class Function>
  static void Make(std::vector<void*>& pool, Function make) {
    void* made = nullptr;
    if (CHECKED(make(&made)) == 0) pool.push_back(made);
  }
  void MakeEvent(uint32_t flags) {
    Make(all_.events, [&](void** event) { return aclrtCreateEventExWithFlag(event, flags); });
  }

  // One of the pool, live or stale; now and then null, no handle at all, or a handle of something else.
  void* Pick(const std::vector<void*>& pool) {
    const uint8_t byte = in_.Byte();
    if (byte >= 244 || pool.empty()) {
      switch (byte % 5) {
        case 0: return nullptr;
        case 1: return foreign;
        case 2: return reinterpret_cast<void*>(in_.Number<uint64_t>());
        case 3: return all_.streams.empty() ? nullptr : all_.streams[0];
        default: return all_.models.empty() ? nullptr : all_.models.back();
      }
    }
    return pool[byte % pool.size()];
  }

  uint64_t* Cell() { return cells_ + in_.Byte() % 64; }
  uint64_t* Log() const { return cells_ + 256; }
  // For calls that look at addresses: also outside of memory, and not aligned.
  void* Address() {
    const uint8_t byte = in_.Byte();
    if (byte < 220) return cells_ + byte % 64;
    switch (byte % 4) {
      case 0: return nullptr;
      case 1: return reinterpret_cast<char*>(cells_) + byte % 16;
      case 2: return cells_ + kCells - 1;
      default: return reinterpret_cast<void*>(in_.Number<uint64_t>());
    }
  }
  size_t Bytes() {
    const uint8_t byte = in_.Byte();
    return byte < 240 ? byte % 256 : static_cast<size_t>(in_.Number<uint64_t>());
  }
  aclmdlRICaptureMode Mode() { return static_cast<aclmdlRICaptureMode>(in_.Usual(3)); }

  // Arguments for the kernel, which may be any: a log in the first, cells and numbers in the others.
  struct Arguments {
    uint64_t slots[4];
  };
  Arguments ArgumentsFor(size_t kernel) {
    if (kernel == 1) return {{reinterpret_cast<uint64_t>(Cell()), in_.Byte(), in_.Byte(), 0}};
    if (kernel == 2) return {{in_.Byte() < 128 ? 507015u : in_.Byte(), 0, 0, 0}};
    return {{reinterpret_cast<uint64_t>(Log()), in_.Byte(), 0, 0}};
  }

  // Attributes with any number; blocks stay few, as each is run.
  aclrtLaunchKernelCfg* Config() {
    if (in_.Byte() < 200) return nullptr;
    attributes_ = {};
    attributes_[0].id = static_cast<aclrtLaunchKernelAttrId>(in_.Usual(16));
    attributes_[0].value.rsv[0] = in_.Number<uint32_t>();
    attributes_[1].id = static_cast<aclrtLaunchKernelAttrId>(in_.Usual(16));
    attributes_[1].value.rsv[0] = in_.Byte();
    config_.attrs = attributes_.data();
    config_.numAttrs = in_.Byte() % 3;
    return &config_;
  }

  void LaunchKernel() {
    const size_t kernel = in_.Byte() % kernels.size();
    Arguments arguments = ArgumentsFor(kernel);
    void* const function = in_.Byte() < 250 ? kernels[kernel] : Pick(all_.models);
    void* const stream = Pick(all_.streams);
    const uint32_t blocks = in_.Byte() % 4;
    const uint8_t how = in_.Byte();
    aclrtLaunchKernelCfg* const config = Config();
    if (how < 200) {
      const size_t bytes = how < 190 ? sizeof arguments : how < 195 ? how % 32 : (70u << 10);
      aclrtPlaceHolderInfo places[1] = {{in_.Usual(32), in_.Usual(32)}};
      // A placeholder over the address of a cell would send the kernel to the argument block: only where it is refused,
      // or a number.
      const bool placed = how < 40 && (kernel != 2) && places[0].addrOffset >= 24;
      CALL(aclrtLaunchKernelWithHostArgs, function, blocks, stream, config, arguments.slots, bytes,
           placed ? places : nullptr, placed ? 1 : 0);
      return;
    }
    // Zeros in device memory: the kernel that fails with its argument succeeds.
    uint64_t* const at = cells_ + 128 + how % 8;
    CALL(aclrtLaunchKernelV2, kernels[2], blocks, at, 8, config, stream);
  }

  void AddCondition() {
    aclmdlRI bodies[4] = {};
    aclmdlRICondTaskParams params = {};
    params.handle = Pick(all_.conditions);
    params.type = static_cast<aclmdlRICondTaskType>(in_.Usual(3));
    const uint8_t size = in_.Byte();
    params.size = size < 250 ? size % 4 : 0xFFFFFFFFu;
    params.modelRIArray = size == 249 ? nullptr : bodies;
    if (CALL(aclmdlRIAddCondTask, params, Pick(all_.streams), in_.Byte() < 250 ? 0 : 1) != 0) return;
    for (uint32_t i = 0; i < params.size; ++i) all_.models.push_back(bodies[i]);
  }

  void SetParameters() {
    aclmdlRITaskParams params = {};
    params.type = static_cast<aclmdlRITaskType>(in_.Usual(7));
    const size_t kernel = in_.Byte() % kernels.size();
    Arguments arguments = ArgumentsFor(kernel);
    switch (params.type) {
      case ACL_MODEL_RI_TASK_KERNEL:
        params.kernelTaskParams.funcHandle = in_.Byte() < 250 ? kernels[kernel] : Pick(all_.events);
        params.kernelTaskParams.cfg = Config();
        params.kernelTaskParams.args = in_.Byte() < 250 ? arguments.slots : nullptr;
        params.kernelTaskParams.isHostArgs = 1;
        params.kernelTaskParams.argsSize = in_.Byte() < 250 ? sizeof arguments : 1u << 20;
        params.kernelTaskParams.numBlocks = in_.Byte() % 4;
        break;
      case ACL_MODEL_RI_TASK_EVENT_RECORD:
      case ACL_MODEL_RI_TASK_EVENT_WAIT:
      case ACL_MODEL_RI_TASK_EVENT_RESET:
        params.eventRecordTaskParams = {Pick(all_.events), in_.Usual(4), in_.Usual(2)};
        break;
      case ACL_MODEL_RI_TASK_VALUE_WRITE: params.valueWriteTaskParams = {Address(), in_.Byte()}; break;
      case ACL_MODEL_RI_TASK_VALUE_WAIT: params.valueWaitTaskParams = {Address(), in_.Byte(), in_.Usual(4)}; break;
      default: break;
    }
    CALL(aclmdlRITaskSetParams, Pick(all_.tasks), in_.Byte() < 250 ? &params : nullptr);
  }

  void Introspect() {
    uint32_t count = in_.Byte() % 8;
    void* found[8] = {};
    if (in_.Byte() % 2 == 0) {
      if (CALL(aclmdlRIGetStreams, Pick(all_.models), found, &count) != 0) return;
      for (uint32_t i = 0; i < count && i < 8; ++i) all_.lanes.push_back(found[i]);
    } else {
      if (CALL(aclmdlRIGetTasksByStream, Pick(all_.lanes), found, &count) != 0) return;
      for (uint32_t i = 0; i < count && i < 8; ++i) all_.tasks.push_back(found[i]);
    }
  }

  void AskTask() {
    void* const task = Pick(all_.tasks);
    uint32_t id = 0;
    aclmdlRITaskType type{};
    aclmdlRITaskParams params = {};
    aclrtLaunchKernelAttrValue value = {};
    switch (in_.Byte() % 5) {
      case 0: CALL(aclmdlRITaskGetType, task, &type); break;
      case 1: CALL(aclmdlRITaskGetSeqId, task, &id); break;
      case 2: CALL(aclmdlRITaskGetParams, task, &params); break;
      case 3:
        CALL(aclmdlRIKernelTaskGetAttribute, task, static_cast<aclrtLaunchKernelAttrId>(in_.Usual(16)), &value);
        break;
      default: CALL(aclmdlRITaskDisable, task); break;
    }
  }

  void AskModel() {
    void* const model = Pick(all_.models);
    char name[512];
    uint32_t id = 0;
    switch (in_.Byte() % 6) {
      case 0: CALL(aclmdlRISetName, model, in_.Text(in_.Byte()).c_str()); break;
      case 1: CALL(aclmdlRIGetName, model, in_.Byte() < 128 ? sizeof name : in_.Byte(), name); break;
      case 2: CALL(aclmdlRIGetId, model, &id); break;
      case 3: CALL(aclmdlRIDebugJsonPrint, model, in_.Byte() < 250 ? "/dev/null" : "/", in_.Usual(2)); break;
      case 4: CALL(aclmdlRIDestroyRegisterCallback, model, OnDestroy, nullptr); break;
      default: CALL(aclmdlRIDestroyUnregisterCallback, model, OnDestroy); break;
    }
  }

  uint32_t BindFlag() {
    const uint8_t byte = in_.Byte();
    return byte < 120 ? ACL_MODEL_STREAM_FLAG_HEAD : byte < 240 ? ACL_MODEL_STREAM_FLAG_DEFAULT : byte;
  }

  void BuildModel() {
    void* const model = Pick(all_.models);
    void* const stream = Pick(all_.streams);
    switch (in_.Byte() % 6) {
      case 0: Make(all_.models, [&](void** made) { return aclmdlRIBuildBegin(made, in_.Usual(1)); }); break;
      case 1: CALL(aclmdlRIBindStream, model, stream, BindFlag()); break;
      case 2: CALL(aclmdlRIUnbindStream, model, stream); break;
      case 3: CALL(aclmdlRIEndTask, model, stream); break;
      case 4: CALL(aclmdlRIBuildEnd, model, nullptr); break;
      default:
        Make(all_.streams, [&](void** made) { return aclrtCreateStreamWithConfig(made, 0, ACL_STREAM_PERSISTENT); });
        break;
    }
  }

  void Steer() {
    void* const stream = Pick(all_.streams);
    switch (in_.Byte() % 7) {
      case 0: Make(all_.labels, aclrtCreateLabel); break;
      case 1: CALL(aclrtSetLabel, Pick(all_.labels), stream); break;
      case 2: {
        void* labels[3] = {Pick(all_.labels), Pick(all_.labels), Pick(all_.labels)};
        Make(all_.lists, [&](void** list) { return aclrtCreateLabelList(labels, 1 + in_.Byte() % 3, list); });
        break;
      }
      case 3: CALL(aclrtSwitchLabelByIndex, Address(), in_.Usual(4), Pick(all_.lists), stream); break;
      case 4: CALL(aclrtActiveStream, Pick(all_.streams), stream); break;
      case 5:
        CALL(aclrtSwitchStream, Address(), static_cast<aclrtCondition>(in_.Usual(6)), Address(),
             static_cast<aclrtCompareDataType>(in_.Usual(2)), Pick(all_.streams),
             in_.Byte() < 128 ? nullptr : Pick(all_.streams), stream);
        break;
      default:
        CHECKED(in_.Byte() % 2 == 0 ? aclrtDestroyLabel(Pick(all_.labels)) : aclrtDestroyLabelList(Pick(all_.lists)));
    }
  }

  void Notify() {
    void* const stream = Pick(all_.streams);
    switch (in_.Byte() % 8) {
      case 0: Make(all_.notifies, [](void** made) { return aclrtCreateNotify(made, ACL_NOTIFY_DEFAULT); }); break;
      case 1: CALL(aclrtRecordNotify, Pick(all_.notifies), stream); break;
      case 2: CALL(aclrtWaitAndResetNotify, Pick(all_.notifies), stream, in_.Usual(2)); break;
      case 3: CALL(aclrtDestroyNotify, Pick(all_.notifies)); break;
      case 4: Make(all_.counters, [](void** made) { return aclrtCntNotifyCreate(made, 0); }); break;
      case 5: {
        aclrtCntNotifyRecordInfo info = {static_cast<aclrtCntNotifyRecordMode>(in_.Usual(4)), in_.Byte()};
        CALL(aclrtCntNotifyRecord, Pick(all_.counters), stream, &info);
        break;
      }
      case 6: {
        aclrtCntNotifyWaitInfo info = {};
        info.mode = static_cast<aclrtCntNotifyWaitMode>(in_.Usual(5));
        info.value = in_.Byte();
        info.timeout = in_.Usual(2);
        info.isClear = in_.Byte() % 3;
        CALL(aclrtCntNotifyWaitWithTimeout, Pick(all_.counters), stream, &info);
        break;
      }
      default: CALL(aclrtCntNotifyDestroy, Pick(all_.counters)); break;
    }
  }

  void Memory() {
    void* const stream = Pick(all_.streams);
    void* block = nullptr;
    switch (in_.Byte() % 8) {
      case 0:
        CALL(aclrtMemcpyAsync, Address(), Bytes(), Address(), Bytes(), ACL_MEMCPY_DEVICE_TO_DEVICE, stream);
        break;
      case 1: CALL(aclrtMemcpyAsync, Address(), Bytes(), pinned_, in_.Byte(), ACL_MEMCPY_HOST_TO_DEVICE, stream); break;
      case 2: CALL(aclrtMemcpy, pinned_, 4096, Address(), in_.Byte(), ACL_MEMCPY_DEVICE_TO_HOST); break;
      case 3: CALL(aclrtMemsetAsync, Address(), Bytes(), in_.Byte(), Bytes(), stream); break;
      case 4: CALL(aclrtMemset, Cell(), 8, in_.Byte(), 8); break;
      case 5: {
        aclrtMemPoolProps props{};
        props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
        Make(all_.pools, [&](void** made) { return aclrtMemPoolCreate(made, &props); });
        break;
      }
      case 6:
        if (CALL(aclrtMemPoolMallocAsync, &block, 1 + in_.Byte(), Pick(all_.pools), stream) == 0) {
          all_.blocks.push_back(block);
        }
        break;
      default: CALL(aclrtMemPoolFreeAsync, Pick(all_.blocks), stream); break;
    }
  }

  void Contexts() {
    switch (in_.Byte() % 4) {
      case 0:
        if (all_.contexts.size() < 4) {
          Make(all_.contexts, [](void** made) { return aclrtCreateContext(made, 0); });
        }
        break;
      case 1: CALL(aclrtSetCurrentContext, Pick(all_.contexts)); break;
      case 2: {
        AbortAll();
        void* const context = Pick(all_.contexts);
        if (context != home) CALL(aclrtDestroyContext, context);
        break;
      }
      default: CALL(aclrtSetCurrentContext, all_.contexts[0]); break;
    }
  }

  // Drops what is queued anywhere, captured streams included, and ends executions of built models: what a stream waits
  // for may never come, and a teardown would wait ten seconds for it.
  void AbortAll() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (bool busy = true; busy;) {
      runtime::Streams().ForEach([](runtime::Stream* stream) { stream->Abort(107023); });
      busy = false;
      for (void* const handle : all_.models) {
        const model::Model* const model = model::Models().Find(handle);
        busy = busy || (model != nullptr && model->executing());
      }
      if (!busy) break;
      if (std::chrono::steady_clock::now() > limit) Found("an execution does not end when its stream is aborted");
      std::this_thread::yield();
    }
  }

  // The cell of a condition goes with its model. A task that is stored for longer, in another model, must not name it.
  static bool OutlivesTasksOf(void* condition, void* stream) {
    const runtime::Stream* const target = runtime::Streams().Find(stream);
    const model::Condition* const found = model::Conditions().Find(condition);
    if (target == nullptr || found == nullptr || target->is_persistent()) return false;
    aclmdlRI handle = nullptr;
    if (aclmdlRICaptureGetInfo(stream, nullptr, &handle) != 0) return false;
    if (handle == nullptr) return true;
    for (const model::Model* model = model::Models().Find(handle); model != nullptr; model = model->parent()) {
      if (model == found->model) return true;
    }
    return false;
  }

  // What runs on the stream has ended, or is dropped.
  void Settle(void* stream) {
    if (Idle(stream)) return;
    AbortAll();
    if (CALL(aclrtSynchronizeStreamWithTimeout, stream, kHealthyMs) == 507046) Found("an aborted stream does not end");
  }

  bool Idle(void* stream) { return CALL(aclrtSynchronizeStreamWithTimeout, stream, kShortMs) != 507046; }

  void Step() {
    void* const stream = Pick(all_.streams);
    void* const event = Pick(all_.events);
    aclmdlRI model = nullptr;
    void* handle = nullptr;
    switch (in_.Byte() % 40) {
      case 0:
        if (all_.streams.size() < 12) {
          const uint32_t priority = in_.Usual(8);
          const uint32_t flags = in_.Usual(4);
          Make(all_.streams, [&](void** made) { return aclrtCreateStreamWithConfig(made, priority, flags); });
        }
        break;
      case 1: CALL(aclrtDestroyStreamForce, stream); break;
      case 2:
        if (Idle(stream)) CALL(aclrtDestroyStream, stream);
        break;
      case 3:
        if (all_.events.size() < 12) {
          const uint32_t flags = in_.Usual(64);
          if (in_.Byte() % 2 == 0) {
            MakeEvent(flags);
          } else {
            Make(all_.events, [&](void** made) { return aclrtCreateEventWithFlag(made, flags); });
          }
        }
        break;
      case 4: CALL(aclrtDestroyEvent, event); break;
      case 5:
      case 6: CALL(aclrtRecordEvent, event, stream); break;
      case 7:
      case 8: CALL(aclrtStreamWaitEvent, stream, event); break;
      case 9: CALL(aclrtResetEvent, event, stream); break;
      case 10: CALL(aclrtRecordEventWithFlag, event, stream, in_.Usual(2)); break;
      case 11: CALL(aclrtStreamWaitEventWithFlag, stream, event, in_.Usual(1), in_.Usual(2)); break;
      case 12: {
        aclrtEventRecordedStatus status{};
        CHECKED(in_.Byte() % 2 == 0 ? aclrtQueryEventStatus(event, &status)
                                    : aclrtSynchronizeEventWithTimeout(event, kShortMs));
        break;
      }
      case 13: CALL(aclrtSynchronizeStreamWithTimeout, stream, kShortMs); break;
      case 14: {
        aclrtStreamStatus status{};
        CHECKED(in_.Byte() % 2 == 0 ? aclrtStreamQuery(stream, &status) : aclrtSynchronizeDeviceWithTimeout(kShortMs));
        break;
      }
      case 15:
      case 16: LaunchKernel(); break;
      case 17: Memory(); break;
      case 18: CALL(aclrtValueWrite, Address(), in_.Byte(), in_.Usual(1), stream); break;
      case 19: CALL(aclrtValueWait, Address(), in_.Byte(), in_.Usual(4), stream); break;
      case 20: CALL(aclrtLaunchHostFunc, stream, in_.Byte() < 250 ? OnHost : nullptr, nullptr); break;
      case 21:
      case 22: CALL(aclmdlRICaptureBegin, stream, Mode()); break;
      case 23:
      case 24:
        if (CALL(aclmdlRICaptureEnd, stream, &model) == 0 && model != nullptr) all_.models.push_back(model);
        break;
      case 25: {
        aclmdlRICaptureStatus status{};
        if (CALL(aclmdlRICaptureGetInfo, stream, &status, &model) == 0 && model != nullptr) {
          all_.models.push_back(model);
        }
        break;
      }
      case 26: {
        aclmdlRICaptureMode mode = Mode();
        CALL(aclmdlRICaptureThreadExchangeMode, &mode);
        break;
      }
      case 27: CALL(aclmdlRICaptureToModelRIBegin, stream, Pick(all_.models), Mode()); break;
      case 28: CALL(aclmdlRICaptureTaskGrpBegin, stream); break;
      case 29:
        if (CALL(aclmdlRICaptureTaskGrpEnd, stream, &handle) == 0) all_.groups.push_back(handle);
        break;
      case 30: CALL(aclmdlRICaptureTaskUpdateBegin, stream, Pick(all_.groups)); break;
      case 31: CALL(aclmdlRICaptureTaskUpdateEnd, stream); break;
      case 32: BuildModel(); break;
      case 33:
        if (in_.Byte() % 4 != 0) {
          CALL(aclmdlRIExecuteAsync, Pick(all_.models), stream);
        } else if (CALL(aclmdlRIExecute, Pick(all_.models), kShortMs) == 507046) {
          AbortAll();
        }
        break;
      case 34:
        if (in_.Byte() % 4 == 0) {
          CALL(aclmdlRIAbort, Pick(all_.models));
        } else {
          AbortAll();
          CALL(aclmdlRIDestroy, Pick(all_.models));
        }
        break;
      case 35:
        switch (in_.Byte() % 4) {
          case 0: Introspect(); break;
          case 1: AskTask(); break;
          case 2: SetParameters(); break;
          default: AskModel(); break;
        }
        break;
      case 36: CALL(aclmdlRIUpdate, Pick(all_.models)); break;
      case 37:
        if (in_.Byte() % 2 == 0) {
          void* const of = Pick(all_.models);
          const uint32_t value = in_.Usual(3);
          const auto flag = static_cast<aclmdlRICondHandleFlag>(in_.Usual(2));
          Make(all_.conditions, [&](void** made) { return aclmdlRICondHandleCreate(of, value, flag, made); });
        } else {
          AddCondition();
        }
        break;
      case 38: {
        void* const condition = Pick(all_.conditions);
        uint64_t* cell = nullptr;
        if (CALL(aclmdlRICondHandleGetCondPtr, condition, &cell) == 0 && OutlivesTasksOf(condition, stream)) {
          CALL(aclrtValueWrite, cell, in_.Byte() % 3, 0, stream);
          Settle(stream);
        }
        break;
      }
      default:
        switch (in_.Byte() % 6) {
          case 0: Steer(); break;
          case 1: Notify(); break;
          case 2: Contexts(); break;
          case 3: CALL(aclrtSetStreamFailureMode, stream, in_.Usual(2)); break;
          case 4: CHECKED(in_.Byte() % 2 == 0 ? aclrtStreamAbort(stream) : aclrtStreamStop(stream)); break;
          default: (void)aclrtGetLastError(ACL_RT_THREAD_LEVEL); break;
        }
        break;
    }
  }

  void CleanUp() {
    MUST(aclrtSetCurrentContext(home));
    aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
    MUST(aclmdlRICaptureThreadExchangeMode(&mode));
    // Either everything is destroyed piece by piece, or contexts take all of it with them.
    for (void* const context : all_.contexts) {
      if (aclrtSetCurrentContext(context) != 0) continue;
      if (!tidy_) continue;
      for (void* const stream : all_.streams) {
        aclmdlRI model = nullptr;
        (void)aclmdlRICaptureTaskUpdateEnd(stream);
        if (aclmdlRICaptureEnd(stream, &model) == 0 && model != nullptr) all_.models.push_back(model);
      }
    }
    AbortAll();
    for (void* const context : all_.contexts) {
      if (aclrtSetCurrentContext(context) != 0) continue;
      for (void* const block : all_.blocks) (void)aclrtMemPoolFreeAsync(block, nullptr);
      if (tidy_) {
        for (void* const model : all_.models) (void)aclmdlRIDestroy(model);
        for (void* const list : all_.lists) (void)aclrtDestroyLabelList(list);
        for (void* const label : all_.labels) (void)aclrtDestroyLabel(label);
        for (void* const stream : all_.streams) (void)aclrtDestroyStreamForce(stream);
      }
    }
    for (void* const context : all_.contexts) (void)aclrtDestroyContext(context);
    MUST(aclrtSetCurrentContext(home));
    for (void* const block : all_.blocks) (void)aclrtMemPoolFreeAsync(block, nullptr);  // its contexts may be gone
    (void)aclrtSynchronizeStream(nullptr);
    for (void* const label : all_.lists) (void)aclrtDestroyLabelList(label);
    for (void* const label : all_.labels) (void)aclrtDestroyLabel(label);
    for (void* const event : all_.events) (void)aclrtDestroyEvent(event);
    for (void* const notify : all_.notifies) (void)aclrtDestroyNotify(notify);
    for (void* const counter : all_.counters) (void)aclrtCntNotifyDestroy(counter);
    for (void* const pool : all_.pools) (void)aclrtMemPoolDestroy(pool);
    MUST(aclrtFree(cells_));
    MUST(aclrtFreeHost(pinned_));
    (void)aclGetRecentErrMsg();
    (void)aclrtGetLastError(ACL_RT_THREAD_LEVEL);
  }

  Input& in_;
  Objects all_;
  bool tidy_ = true;
  uint64_t* cells_ = nullptr;
  void* pinned_ = nullptr;
  std::array<aclrtLaunchKernelAttr, 2> attributes_{};
  aclrtLaunchKernelCfg config_{};
};

// A capture with a fork, replayed twice, computes what it should.
void FreshCaptureWorks() {
  aclrtStream origin = nullptr;
  aclrtStream forked = nullptr;
  aclrtEvent edge = nullptr;
  void* memory = nullptr;
  MUST(aclrtCreateStream(&origin));
  MUST(aclrtCreateStream(&forked));
  MUST(aclrtCreateEventExWithFlag(&edge, ACL_EVENT_SYNC));
  MUST(aclrtMalloc(&memory, 16, ACL_MEM_MALLOC_HUGE_FIRST));
  MUST(aclrtMemset(memory, 16, 0, 16));
  const auto axpb = [&](aclrtStream stream, int cell, uint64_t add) {
    uint64_t slots[] = {reinterpret_cast<uint64_t>(static_cast<uint64_t*>(memory) + cell), 3, add};
    MUST(aclrtLaunchKernelWithHostArgs(kernels[1], 1, stream, nullptr, slots, sizeof slots, nullptr, 0));
  };
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  axpb(origin, 0, 1);
  MUST(aclrtRecordEvent(edge, origin));
  MUST(aclrtStreamWaitEvent(forked, edge));
  axpb(forked, 1, 2);
  MUST(aclrtRecordEvent(edge, forked));
  MUST(aclrtStreamWaitEvent(origin, edge));
  axpb(origin, 1, 5);
  MUST(aclmdlRICaptureEnd(origin, &model));
  for (int i = 0; i < 2; ++i) MUST(aclmdlRIExecuteAsync(model, forked));
  MUST(aclrtSynchronizeStreamWithTimeout(forked, kHealthyMs));
  uint64_t got[2] = {};
  MUST(aclrtMemcpy(got, 16, memory, 16, ACL_MEMCPY_DEVICE_TO_HOST));
  if (got[0] != 4 || got[1] != (2 * 3 + 5) * 9 + 2 * 3 + 5)
    Found("a capture after the sequence computes something else");
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtDestroyEvent(edge));
  MUST(aclrtDestroyStream(origin));
  MUST(aclrtDestroyStream(forked));
  MUST(aclrtFree(memory));
}

}  // namespace
}  // namespace reprise::fuzz

using namespace reprise::fuzz;  // NOLINT: the two functions that libFuzzer looks for

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  MUST(aclInit(nullptr));
  MUST(aclrtSetDevice(0));
  MUST(aclrtGetCurrentContext(&home));
  MUST(aclrtBinaryLoadFromFile(reprise::testing::BesideProgram("conformance_kernels.so").c_str(), nullptr, &binary));
  const char* const names[] = {"append", "axpb", "fail", "aicpu_append"};
  for (size_t i = 0; i < kernels.size(); ++i) MUST(aclrtBinaryGetFunction(binary, names[i], &kernels[i]));
  FreshCaptureWorks();  // starts the workers
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const Inventory before = Count();
  {
    Input input(data, bytes);
    Sequence(input).Run();
  }
  FreshCaptureWorks();
  const Inventory after = Count();
  if (after == before) return 0;
  constexpr const char* kNames[] = {"contexts",     "streams",     "events",         "models",
                                    "lanes",        "groups",      "conditions",     "labels",
                                    "label lists",  "notifies",    "count notifies", "pools",
                                    "free streams", "free events", "free models",    "device bytes"};
  std::string text = "left behind:";
  for (size_t i = 0; i < after.counts.size(); ++i) {
    if (after.counts[i] != before.counts[i]) {
      text += std::string(" ") + kNames[i] + " " + std::to_string(before.counts[i]) + " -> " +
              std::to_string(after.counts[i]);
    }
  }
  Found(text);
}
