// SPDX-License-Identifier: Apache-2.0
//
// Every acquisition may fail. A fixed sequence of calls is run with the first, second, third … pass through a fault
// point failing, until it gets through. Each time the failing call must say so, everything must be as before the
// sequence, and the same sequence must then succeed.
#include "base/fault.h"
#include "base/log.h"

#include <acl/acl.h>
#include <acl/acl_rt_memory_soma.h>
#include <aclnn/acl_meta.h>
#include <aclnnop/aclnn_add.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../support/program_folder.h"
#include "device/memory.h"
#include "device/virtual_memory.h"
#include "model/model.h"
#include "ops/executor.h"
#include "ops/tensor.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/kernel.h"
#include "runtime/memory_pool.h"
#include "runtime/notify.h"
#include "runtime/stream.h"

namespace reprise {
namespace {

const std::string kKernels = testing::BesideProgram("conformance_kernels.so");

// What there is of everything.
struct Inventory {
  size_t contexts, streams, events, models, lanes, groups, conditions, binaries, functions, argument_lists, tensors,
      scalars, executors, notifies, pools, pieces, files, mappings;
  int64_t free_streams, free_events;
  uint64_t memory;
  bool operator==(const Inventory&) const = default;
};

size_t OpenFiles() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Of memory files: what is shared, exported or mapped by hand, and reserved addresses.
size_t SharedMappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:") != std::string::npos ? 1 : 0;
  return count;
}

Inventory Count() {
  runtime::Device& device = *runtime::Devices()[0];
  return {runtime::Contexts().live(),
          runtime::Streams().live(),
          runtime::Events().live(),
          model::Models().live(),
          model::LaneHandles().live(),
          model::TaskGroups().live(),
          model::Conditions().live(),
          runtime::KernelBinaries().live(),
          runtime::KernelFunctions().live(),
          runtime::KernelArgsTable().live(),
          ops::Tensors().live(),
          ops::Scalars().live(),
          ops::Executors().live(),
          runtime::Notifies().live() + runtime::CountNotifies().live(),
          runtime::MemoryPools().live(),
          device::PhysicalMemories().live(),
          OpenFiles(),
          SharedMappings(),
          device.stream_ids().available(),
          device.event_ids().available(),
          device::MemoryRegistry::Get().used_bytes(0)};
}

void PrintTo(const Inventory& i, std::ostream* out) {
  *out << "contexts " << i.contexts << ", streams " << i.streams << ", events " << i.events << ", models " << i.models
       << ", lanes " << i.lanes << ", groups " << i.groups << ", conditions " << i.conditions << ", binaries "
       << i.binaries << ", functions " << i.functions << ", argument lists " << i.argument_lists << ", tensors "
       << i.tensors << ", scalars " << i.scalars << ", executors " << i.executors << ", notifies " << i.notifies
       << ", pools " << i.pools << ", pieces of memory " << i.pieces << ", open files " << i.files
       << ", shared mappings " << i.mappings << ", free streams " << i.free_streams << ", free events " << i.free_events
       << ", memory " << i.memory;
}

// A sequence stops at the first call that fails; what it has made by then is released in reverse order.
class Sequence {
 public:
  ~Sequence() { Release(); }
  /// False from the first failure on.
  bool Do(int code, const char* call) {
    if (code_ == 0 && code != 0) {
      code_ = code;
      call_ = call;
      const char* message = aclGetRecentErrMsg();
      message_ = message != nullptr ? message : "";
    }
    return code_ == 0;
  }
  void Later(std::function<void()> release) { releases_.push_back(std::move(release)); }
  void Release() {
    while (!releases_.empty()) {
      releases_.back()();
      releases_.pop_back();
    }
  }
  int code() const { return code_; }
  const std::string& call() const { return call_; }
  const std::string& message() const { return message_; }

 private:
  int code_ = 0;
  std::string call_;
  std::string message_;
  std::vector<std::function<void()>> releases_;
};

#define TRY(...) \
  if (!s.Do((__VA_ARGS__), #__VA_ARGS__)) return

// ---- Sequences ----

void MakeContext(Sequence& s) {
  aclrtContext before = nullptr, made = nullptr;
  TRY(aclrtGetCurrentContext(&before));
  TRY(aclrtCreateContext(&made, 0));
  s.Later([=] {
    EXPECT_EQ(aclrtDestroyContext(made), 0);
    EXPECT_EQ(aclrtSetCurrentContext(before), 0);
  });
}

aclrtStream MakeStream(Sequence& s) {
  aclrtStream stream = nullptr;
  if (s.code() == 0 && s.Do(aclrtCreateStream(&stream), "aclrtCreateStream")) {
    s.Later([=] { EXPECT_EQ(aclrtDestroyStream(stream), 0); });
  }
  return stream;
}

aclrtEvent MakeEvent(Sequence& s) {
  aclrtEvent event = nullptr;
  if (s.code() == 0 && s.Do(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC), "aclrtCreateEventExWithFlag")) {
    s.Later([=] { EXPECT_EQ(aclrtDestroyEvent(event), 0); });
  }
  return event;
}

void* MakeMemory(Sequence& s) {
  void* memory = nullptr;
  if (s.code() == 0 && s.Do(aclrtMalloc(&memory, 4096, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc")) {
    s.Later([=] { EXPECT_EQ(aclrtFree(memory), 0); });
  }
  return memory;
}

aclrtFuncHandle MakeKernel(Sequence& s) {
  aclrtBinHandle binary = nullptr;
  aclrtFuncHandle function = nullptr;
  if (s.code() == 0 && s.Do(aclrtBinaryLoadFromFile(kKernels.c_str(), nullptr, &binary), "aclrtBinaryLoadFromFile")) {
    s.Later([=] { EXPECT_EQ(aclrtBinaryUnLoad(binary), 0); });
    s.Do(aclrtBinaryGetFunction(binary, "axpb", &function), "aclrtBinaryGetFunction");
  }
  return function;
}

int Launch(aclrtFuncHandle function, aclrtStream stream, void* cell) {
  uint64_t args[] = {reinterpret_cast<uint64_t>(cell), 3, 1};
  return aclrtLaunchKernelWithHostArgs(function, 1, stream, nullptr, args, sizeof args, nullptr, 0);
}

void Eager(Sequence& s) {
  const aclrtStream a = MakeStream(s), b = MakeStream(s);
  const aclrtEvent event = MakeEvent(s);
  void* const memory = MakeMemory(s);
  const aclrtFuncHandle kernel = MakeKernel(s);
  if (s.code() != 0) return;
  void* pinned = nullptr;
  TRY(aclrtMallocHost(&pinned, 64));
  s.Later([=] { EXPECT_EQ(aclrtFreeHost(pinned), 0); });
  s.Later([=] {
    EXPECT_EQ(aclrtSynchronizeStream(a), 0);
    EXPECT_EQ(aclrtSynchronizeStream(b), 0);
  });
  TRY(Launch(kernel, a, memory));
  TRY(aclrtMemcpyAsync(memory, 8, pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, a));
  TRY(aclrtRecordEvent(event, a));
  TRY(aclrtStreamWaitEvent(b, event));
  TRY(Launch(kernel, b, memory));
  TRY(aclrtSynchronizeStream(b));
}

// begin → kernel → fork → record → join → group → external record → end → execute → dump
void Capture(Sequence& s) {
  const aclrtStream origin = MakeStream(s), side = MakeStream(s);
  const aclrtEvent fork = MakeEvent(s), join = MakeEvent(s), outside = MakeEvent(s);
  void* const memory = MakeMemory(s);
  const aclrtFuncHandle kernel = MakeKernel(s);
  if (s.code() != 0) return;
  TRY(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  aclmdlRI model = nullptr;
  bool open = true;
  const auto end = [&] {
    open = false;
    return aclmdlRICaptureEnd(origin, &model);
  };
  [&] {
    aclmdlRI running = nullptr;
    aclmdlRICondHandle condition = nullptr;
    aclmdlRI body = nullptr;
    TRY(Launch(kernel, origin, memory));
    TRY(aclmdlRICaptureGetInfo(origin, nullptr, &running));
    TRY(aclmdlRICondHandleCreate(running, 1, static_cast<aclmdlRICondHandleFlag>(1), &condition));
    aclmdlRICondTaskParams params{};
    params.handle = condition;
    params.type = ACL_MODEL_RI_COND_TYPE_IF;
    params.size = 1;
    params.modelRIArray = &body;
    TRY(aclmdlRIAddCondTask(params, origin, 0));
    TRY(aclrtRecordEvent(fork, origin));
    TRY(aclrtStreamWaitEvent(side, fork));
    TRY(Launch(kernel, side, memory));
    TRY(aclrtRecordEvent(join, side));
    TRY(aclrtStreamWaitEvent(origin, join));
    aclrtTaskGrp group = nullptr;
    TRY(aclmdlRICaptureTaskGrpBegin(origin));
    TRY(Launch(kernel, origin, memory));
    TRY(aclmdlRICaptureTaskGrpEnd(origin, &group));
    TRY(aclrtRecordEventWithFlag(outside, origin, ACL_EVENT_RECORD_EXTERNAL));
    const aclrtStream of_body = MakeStream(s);
    if (s.code() != 0) return;
    TRY(aclmdlRICaptureToModelRIBegin(of_body, body, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    const int launched = Launch(kernel, of_body, memory);
    const int ended = aclmdlRICaptureEnd(of_body, nullptr);
    TRY(launched);
    TRY(ended);
    TRY(end());
  }();
  if (open) {
    // Whatever failed, the capture can be ended, and then it is over. It is valid when what failed was no task.
    if (end() == 0) {
      EXPECT_EQ(aclmdlRIDestroy(model), 0);
      model = nullptr;
    }
  }
  for (const aclrtStream stream : {origin, side}) {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
    EXPECT_EQ(aclmdlRICaptureGetInfo(stream, &status, nullptr), 0);
    EXPECT_EQ(status, ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  }
  if (s.code() != 0) {
    EXPECT_EQ(model, nullptr);
    return;
  }
  s.Later([=] { EXPECT_EQ(aclmdlRIDestroy(model), 0); });
  s.Later([=] { EXPECT_EQ(aclrtSynchronizeStream(side), 0); });
  TRY(aclmdlRIExecuteAsync(model, side));
  const std::string path = "fault_test_" + std::to_string(getpid()) + ".json";
  s.Later([=] { std::remove(path.c_str()); });
  TRY(aclmdlRIDebugJsonPrint(model, path.c_str(), 1));
  TRY(aclrtSynchronizeStream(side));
}

void KernelData(Sequence& s) {
  std::string bytes;
  FILE* file = std::fopen(kKernels.c_str(), "rb");
  ASSERT_NE(file, nullptr);
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, file)) != 0;) bytes.append(buffer, got);
  std::fclose(file);
  aclrtBinHandle binary = nullptr;
  TRY(aclrtBinaryLoadFromData(bytes.data(), bytes.size(), nullptr, &binary));
  s.Later([=] { EXPECT_EQ(aclrtBinaryUnLoad(binary), 0); });
  aclrtFuncHandle function = nullptr;
  aclrtArgsHandle args = nullptr;
  TRY(aclrtBinaryGetFunction(binary, "append", &function));
  TRY(aclrtKernelArgsInit(function, &args));
}

// Notifies, pools, mappings, and what other processes could take.
// A model that is built and updated, with what else kernels and memory have.
void Built(Sequence& s) {
  void* memory = nullptr;
  TRY(aclrtMemAllocManaged(&memory, 1, ACL_RT_MEM_ATTACH_GLOBAL));
  s.Later([=] { EXPECT_EQ(aclrtFree(memory), 0); });
  auto* cells = static_cast<uint64_t*>(memory);  // entry, blocks, then the log of the kernel
  cells[0] = 1;
  cells[1] = 1;
  cells[3] = 100;
  aclrtBinHandle binary = nullptr;
  TRY(aclrtBinaryLoadFromFile(kKernels.c_str(), nullptr, &binary));
  s.Later([=] { EXPECT_EQ(aclrtBinaryUnLoad(binary), 0); });
  aclrtFuncHandle function = nullptr;
  TRY(aclrtBinaryGetFunction(binary, "append", &function));
  const aclrtStream stream = MakeStream(s);
  if (s.code() != 0) return;
  aclrtStream stored = nullptr;
  TRY(aclrtCreateStreamWithConfig(&stored, 0, ACL_STREAM_PERSISTENT));
  s.Later([=] { EXPECT_EQ(aclrtDestroyStream(stored), 0); });
  aclmdlRI model = nullptr;
  TRY(aclmdlRIBuildBegin(&model, 0));
  s.Later([=] { EXPECT_EQ(aclmdlRIDestroy(model), 0); });
  TRY(aclmdlRIBindStream(model, stored, ACL_MODEL_STREAM_FLAG_HEAD));
  struct {
    void* log;
    uint64_t id;
  } args = {cells + 2, 7};
  TRY(aclrtLaunchKernelWithHostArgs(function, 1, stored, nullptr, &args, sizeof args, nullptr, 0));
  TRY(aclmdlRIEndTask(model, stored));
  TRY(aclmdlRIBuildEnd(model, nullptr));
  aclrtTaskUpdateInfo info{};
  info.id = ACL_RT_UPDATE_AIC_AIV_TASK;
  info.val.aicAivTaskAttr = {binary, cells, cells + 1, {}};
  s.Later([=] { EXPECT_EQ(aclrtSynchronizeStream(stream), 0); });
  TRY(aclrtTaskUpdateAsync(stored, 0, &info, stream));
  TRY(aclmdlRIExecuteAsync(model, stream));
  const aclrtMemManagedLocation host = {ACL_MEM_LOCATIONTYPE_HOST, 0};
  TRY(aclrtMemManagedPrefetchAsync(memory, 1, host, 0, stream));
  TRY(aclrtSynchronizeStream(stream));
  EXPECT_EQ(cells[4], 7u);
}

void Sharing(Sequence& s) {
  const aclrtStream stream = MakeStream(s);
  void* const memory = MakeMemory(s);
  if (s.code() != 0) return;
  char key[65];
  aclrtNotify notify = nullptr;
  TRY(aclrtCreateNotify(&notify, ACL_NOTIFY_DEFAULT));
  s.Later([=] { EXPECT_EQ(aclrtDestroyNotify(notify), 0); });
  TRY(aclrtNotifyGetExportKey(notify, key, sizeof key, ACL_RT_NOTIFY_EXPORT_FLAG_DISABLE_PID_VALIDATION));
  aclrtNotify twin = nullptr;
  TRY(aclrtNotifyImportByKey(&twin, key, 0));
  s.Later([=] { EXPECT_EQ(aclrtDestroyNotify(twin), 0); });
  aclrtEvent event = nullptr;
  TRY(aclrtCreateEventExWithFlag(&event, ACL_EVENT_IPC));
  s.Later([=] { EXPECT_EQ(aclrtDestroyEvent(event), 0); });
  TRY(aclrtIpcMemGetExportKey(memory, 64, key, sizeof key, 0));
  s.Later([text = std::string(key)] { EXPECT_EQ(aclrtIpcMemClose(text.c_str()), 0); });
  aclrtPhysicalMemProp prop{};
  prop.memAttr = ACL_HBM_MEM_HUGE;
  prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  constexpr size_t kBytes = 2u << 20;
  void* base = nullptr;
  TRY(aclrtReserveMemAddress(&base, kBytes, 0, nullptr, 0));
  s.Later([=] { EXPECT_EQ(aclrtReleaseMemAddress(base), 0); });
  aclrtDrvMemHandle piece = nullptr;
  TRY(aclrtMallocPhysical(&piece, kBytes, &prop, 0));
  s.Later([=] { EXPECT_EQ(aclrtFreePhysical(piece), 0); });
  TRY(aclrtMapMem(base, kBytes, 0, piece, 0));
  s.Later([=] { EXPECT_EQ(aclrtUnmapMem(base), 0); });
  aclrtMemPoolProps props{};
  props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  aclrtMemPool pool = nullptr;
  TRY(aclrtMemPoolCreate(&pool, &props));
  s.Later([=] { EXPECT_EQ(aclrtMemPoolDestroy(pool), 0); });
  void* block = nullptr;
  TRY(aclrtMemPoolMallocAsync(&block, 4096, pool, stream));
  s.Later([=] {
    EXPECT_EQ(aclrtMemPoolFreeAsync(block, stream), 0);
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  });
  TRY(aclrtMemsetAsync(block, 4096, 0, 4096, stream));
  TRY(aclrtSynchronizeStream(stream));
}

void Operator(Sequence& s) {
  const aclrtStream stream = MakeStream(s);
  void* const memory = MakeMemory(s);
  if (s.code() != 0) return;
  const int64_t shape[] = {4}, strides[] = {1};
  std::vector<aclTensor*> tensors;
  for (int i = 0; i < 3; ++i) {
    tensors.push_back(aclCreateTensor(shape, 1, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, 1, memory));
    TRY(tensors.back() != nullptr ? 0 : -1);
    s.Later([tensor = tensors.back()] { EXPECT_EQ(aclDestroyTensor(tensor), 0); });
  }
  float one = 1;
  aclScalar* const alpha = aclCreateScalar(&one, ACL_FLOAT);
  TRY(alpha != nullptr ? 0 : -1);
  s.Later([=] { EXPECT_EQ(aclDestroyScalar(alpha), 0); });
  uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  TRY(aclnnAddGetWorkspaceSize(tensors[0], tensors[1], alpha, tensors[2], &workspace, &executor));
  TRY(aclnnAdd(nullptr, 0, executor, stream));
  TRY(aclrtSynchronizeStream(stream));
}

// ---- Tests ----

struct Case {
  const char* name;
  void (*run)(Sequence&);
};
constexpr Case kCases[] = {{"Context", MakeContext},   {"Eager", Eager}, {"Capture", Capture},
                           {"KernelData", KernelData}, {"Built", Built}, {"Sharing", Sharing},
                           {"Operator", Operator}};

class Faults : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    // What is made once and kept, is made now; with a log folder, the file of the log.
    WriteLog(LogLevel::kError, "RUNTIME", __FILE__, __LINE__, __func__, "warming up");
    Sequence warm_up;
    GetParam().run(warm_up);
    ASSERT_EQ(warm_up.code(), 0) << warm_up.call() << "\n" << warm_up.message();
  }
  void TearDown() override {
    ArmFault("", 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
  }

  /// Returns how often the point failed.
  int FailAt(const char* point) {
    // On a busy machine the monitor of the scheduler may think of a further worker just then, and pass a point, too. A
    // fault that fired there is none of the sequence's.
    int elsewhere = 0;
    for (int n = 1; n < 200; ++n) {
      SCOPED_TRACE("pass " + std::to_string(n) + " through " + point);
      const Inventory before = Count();
      bool fired = false;
      {
        Sequence sequence;
        (void)aclGetRecentErrMsg();
        ArmFault(point, n);
        GetParam().run(sequence);
        fired = FaultFired();
        ArmFault("", 0);
        sequence.Release();
        if (!fired) {
          EXPECT_EQ(sequence.code(), 0) << sequence.call() << "\n" << sequence.message();
          EXPECT_EQ(Count(), before);
          return n - 1;
        }
        if (sequence.code() == 0 && std::string_view(point) == "*" && ++elsewhere < 20) {
          EXPECT_EQ(Count(), before);
          if (HasFailure()) return n;
          --n;
          continue;
        }
        EXPECT_NE(sequence.code(), 0) << "the fault fired and every call succeeded";
        if (sequence.code() > 0) {
          EXPECT_NE(sequence.message().find(std::to_string(sequence.code())), std::string::npos)
              << sequence.call() << " returned " << sequence.code() << ":\n"
              << sequence.message();
          EXPECT_NE(sequence.message().find("Solution: "), std::string::npos) << sequence.message();
        }
      }
      EXPECT_EQ(Count(), before) << "after the failure";
      Sequence again;
      GetParam().run(again);
      EXPECT_EQ(again.code(), 0) << "again: " << again.call() << "\n" << again.message();
      again.Release();
      EXPECT_EQ(Count(), before) << "after the second try";
      if (HasFailure()) return n;
    }
    ADD_FAILURE() << point << " never lets the sequence through";
    return -1;
  }
};

TEST_P(Faults, EachPoint) {
  int failures = 0;
  for (const char* point :
       {"context",        "event",       "event.record",  "graph.node",  "graph.slot",  "json.file",
        "kernel.binary",  "kernel.file", "memory.device", "memory.host", "memory.map",  "memory.pool",
        "memory.reserve", "model",       "model.event",   "model.lane",  "notify",      "ops.executor",
        "ops.object",     "share.file",  "share.map",     "stream",      "stream.queue"}) {
    failures += FailAt(point);
    if (HasFailure()) return;
  }
  EXPECT_GT(failures, 0) << "the sequence passes no fault point";
}

TEST_P(Faults, AnyPoint) { EXPECT_GT(FailAt("*"), 0); }

INSTANTIATE_TEST_SUITE_P(Sequences, Faults, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return std::string(each.param.name); });

// The extra worker that blocked ones need is an acquisition too: without it things wait, and go on when it comes.
TEST(FaultsOfThreads, BlockedWorkersStillGetHelpLater) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  struct Gate {
    std::atomic<bool> open{false};
    std::atomic<int> waiting{0};
  } gate;
  const int workers = runtime::Devices()[0]->scheduler().workers();
  std::vector<aclrtStream> streams;
  ASSERT_EQ(runtime::Devices()[0]->scheduler().Start().code(), 0);  // the others are there
  ArmFault("scheduler.thread", 1);
  // One more than there are workers; further ones while there are extra workers of what ran before.
  for (int i = 1; i <= workers + 1 || !FaultFired(); ++i) {
    ASSERT_EQ(aclrtCreateStream(&streams.emplace_back()), 0);
    ASSERT_EQ(aclrtLaunchHostFunc(
                  streams.back(),
                  [](void* argument) {
                    auto* const self = static_cast<Gate*>(argument);
                    self->waiting.fetch_add(1);
                    self->waiting.notify_all();
                    self->open.wait(false);
                  },
                  &gate),
              0);
    if (i < workers) continue;
    for (int in = 0; (in = gate.waiting.load()) != i;) gate.waiting.wait(in);
  }
  ASSERT_EQ(aclrtCreateStream(&streams.emplace_back()), 0);
  ASSERT_EQ(aclrtLaunchHostFunc(
                streams.back(),
                [](void* argument) {
                  static_cast<Gate*>(argument)->open = true;
                  static_cast<Gate*>(argument)->open.notify_all();
                },
                &gate),
            0);
  for (const aclrtStream stream : streams) {
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
  }
  EXPECT_TRUE(FaultFired());
  ArmFault("", 0);
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

}  // namespace
}  // namespace reprise
