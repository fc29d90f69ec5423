// SPDX-License-Identifier: Apache-2.0
#include "runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

namespace reprise::stress {
namespace {

constexpr int32_t kWaitMs = 60'000;
constexpr uint64_t kSlowUs = 50;

struct HostArgs {
  uint64_t* word;
  uint64_t a;
  uint64_t b;
};

void AxpbOnHost(void* data) {
  const auto* args = static_cast<const HostArgs*>(data);
  *args->word = *args->word * args->a + args->b;
}

size_t At(int i) { return static_cast<size_t>(i); }

class Runner {
 public:
  explicit Runner(const Functions& functions) : functions_(functions) {}
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() { CleanUp(false); }

  std::string Run(const Program& program, Mistake mistake) {
    Oracle oracle(mistake);
    if (!SetUp()) return Failure("setting up", -1, 0);
    for (const Call& call : program) {
      const int got = Do(call);
      if (got != call.expected) return Failure(call.Text(), got, call.expected);
      oracle.Step(call);
      if (call.kind == Call::kCheck) {
        if (std::string difference = Compare(call, oracle.memory()); !difference.empty()) return difference;
      }
    }
    return CleanUp(true) ? "" : Failure("cleaning up", -1, 0);
  }

 private:
  static std::string Failure(const std::string& what, int got, int expected) {
    const char* message = got != 0 ? aclGetRecentErrMsg() : nullptr;
    return fmt::format("{}\n  returned {}, expected {}\n  {}", what, got, expected, message != nullptr ? message : "");
  }

  bool SetUp() {
    bool ok = true;
    for (aclrtStream& stream : streams_) ok = ok && aclrtCreateStream(&stream) == 0;
    for (int e = 0; ok && e < kEvents; ++e) {
      const bool gate = e >= kGateEvent && e < kOutEvent;
      ok = (gate ? aclrtCreateEventWithFlag(&events_[At(e)], ACL_EVENT_EXTERNAL)
                 : aclrtCreateEventExWithFlag(&events_[At(e)], ACL_EVENT_SYNC)) == 0;
    }
    ok = ok && aclrtMalloc(&device_, kDeviceWords * 8, ACL_MEM_MALLOC_HUGE_FIRST) == 0;
    ok = ok && aclrtMallocHost(&pinned_, kPinnedWords * 8) == 0;
    for (void*& log : logs_) ok = ok && aclrtMalloc(&log, (2 + kLogCapacity) * 8, ACL_MEM_MALLOC_HUGE_FIRST) == 0;
    if (!ok) return false;
    const Memory initial;
    ok = aclrtMemcpy(device_, kDeviceWords * 8, initial.words.data(), kDeviceWords * 8, ACL_MEMCPY_HOST_TO_DEVICE) == 0;
    std::memcpy(pinned_, &initial.words[kFirstPinned], kPinnedWords * 8);
    std::memcpy(host_.data(), &initial.words[kFirstHost], kHostWords * 8);
    std::array<uint64_t, 2 + kLogCapacity> empty{};
    empty[1] = kLogCapacity;
    for (void* log : logs_)
      ok = ok && aclrtMemcpy(log, sizeof empty, &empty, sizeof empty, ACL_MEMCPY_HOST_TO_DEVICE) == 0;
    return ok;
  }

  // Everything ends, also after a failure; in that case nothing is expected of the calls.
  bool CleanUp(bool expect_success) {
    if (cleaned_) return true;
    cleaned_ = true;
    bool ok = true;
    const auto note = [&](int result) { ok = ok && result == 0; };
    if (!expect_success) {
      for (const aclrtStream stream : streams_) {
        aclmdlRI model = nullptr;
        if (aclmdlRICaptureEnd(stream, &model) == 0) (void)aclmdlRIDestroy(model);
        (void)aclmdlRICaptureTaskUpdateEnd(stream);
      }
      // Let go of executions that wait for their gate.
      aclrtStream helper = nullptr;
      if (aclrtCreateStream(&helper) == 0) {
        for (int slot = 0; slot < kSlots; ++slot) (void)aclrtRecordEvent(events_[At(kGateEvent + slot)], helper);
        (void)aclrtSynchronizeStreamWithTimeout(helper, 1000);
        (void)aclrtDestroyStreamForce(helper);
      }
      for (const aclrtStream stream : streams_) {
        if (aclrtSynchronizeStreamWithTimeout(stream, 1000) == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT) {
          (void)aclrtStreamAbort(stream);
        }
      }
    }
    for (const aclmdlRI model : models_) {
      if (model != nullptr) note(aclmdlRIDestroy(model));
    }
    for (const aclrtStream stream : streams_) note(aclrtDestroyStream(stream));
    for (const aclrtEvent event : events_) note(aclrtDestroyEvent(event));
    note(aclrtFree(device_));
    for (void* log : logs_) note(aclrtFree(log));
    note(aclrtFreeHost(pinned_));
    return ok;
  }

  uint64_t* Word(int word) {
    if (word < kFirstPinned) return static_cast<uint64_t*>(device_) + word;
    if (word < kFirstHost) return static_cast<uint64_t*>(pinned_) + (word - kFirstPinned);
    return &host_[At(word - kFirstHost)];
  }

  std::vector<uint64_t> Args(const Effect& effect) {
    const auto address = [](const void* pointer) { return reinterpret_cast<uint64_t>(pointer); };
    switch (effect.kind) {
      case Effect::kAxpb: return {address(Word(effect.dst)), effect.a, effect.b};
      case Effect::kSlowAxpb: return {address(Word(effect.dst)), effect.a, effect.b, kSlowUs};
      case Effect::kDecrement: return {address(Word(effect.dst))};
      case Effect::kCopyCell: return {address(Word(effect.dst)), address(Word(effect.src))};
      case Effect::kAppend: return {address(logs_[At(effect.dst)]), effect.a};
      case Effect::kSlowAppend: return {address(logs_[At(effect.dst)]), effect.a, kSlowUs};
      case Effect::kAppendValue: return {address(logs_[At(effect.dst)]), address(Word(effect.src))};
      case Effect::kFail: return {kFailure};
      default: return {};
    }
  }

  int Submit(const Effect& effect, aclrtStream stream) {
    if (effect.is_kernel()) {
      std::vector<uint64_t> args = Args(effect);
      return aclrtLaunchKernelWithHostArgs(functions_[effect.kind], 1, stream, nullptr, args.data(), args.size() * 8,
                                           nullptr, 0);
    }
    const size_t bytes = static_cast<size_t>(effect.count) * 8;
    switch (effect.kind) {
      case Effect::kCopy: {
        const aclrtMemcpyKind kind = effect.src >= kFirstPinned   ? ACL_MEMCPY_HOST_TO_DEVICE
                                     : effect.dst >= kFirstPinned ? ACL_MEMCPY_DEVICE_TO_HOST
                                                                  : ACL_MEMCPY_DEVICE_TO_DEVICE;
        return aclrtMemcpyAsync(Word(effect.dst), bytes, Word(effect.src), bytes, kind, stream);
      }
      case Effect::kFill:
        return aclrtMemsetAsync(Word(effect.dst), bytes, static_cast<int32_t>(effect.a), bytes, stream);
      case Effect::kValueWrite: return aclrtValueWrite(Word(effect.dst), effect.a, 0, stream);
      default:
        host_args_.push_back({Word(effect.dst), effect.a, effect.b});
        return aclrtLaunchHostFunc(stream, AxpbOnHost, &host_args_.back());
    }
  }

  aclmdlRITask FindKernel(const Call& call) {
    uint32_t count = 0;
    aclmdlRI model = models_[At(call.slot)];
    if (aclmdlRIGetStreams(model, nullptr, &count) != 0 || call.lane >= static_cast<int>(count)) return nullptr;
    std::vector<aclrtStream> lanes(count);
    if (aclmdlRIGetStreams(model, lanes.data(), &count) != 0) return nullptr;
    if (aclmdlRIGetTasksByStream(lanes[At(call.lane)], nullptr, &count) != 0 || count == 0) return nullptr;
    std::vector<aclmdlRITask> tasks(count);
    if (aclmdlRIGetTasksByStream(lanes[At(call.lane)], tasks.data(), &count) != 0) return nullptr;
    int left = call.nth;
    for (const aclmdlRITask task : tasks) {
      aclmdlRITaskType type = ACL_MODEL_RI_TASK_DEFAULT;
      if (aclmdlRITaskGetType(task, &type) != 0) return nullptr;
      if (type == ACL_MODEL_RI_TASK_KERNEL && left-- == 0) return task;
    }
    return nullptr;
  }

  int SetKernel(const Call& call) {
    const aclmdlRITask task = FindKernel(call);
    if (task == nullptr) return -1;
    std::vector<uint64_t> args = Args(call.effects[0]);
    aclmdlRITaskParams params = {};
    params.type = ACL_MODEL_RI_TASK_KERNEL;
    params.kernelTaskParams.funcHandle = functions_[call.effects[0].kind];
    params.kernelTaskParams.args = args.data();
    params.kernelTaskParams.isHostArgs = 1;
    params.kernelTaskParams.argsSize = args.size() * 8;
    params.kernelTaskParams.numBlocks = 1;
    return aclmdlRITaskSetParams(task, &params);
  }

  int Conditional(const Call& call) {
    const aclrtStream stream = streams_[At(call.stream)];
    const aclrtStream aux = streams_[At(call.aux)];
    aclmdlRI model = nullptr;
    if (int result = aclmdlRICaptureGetInfo(stream, nullptr, &model)) return result;
    aclmdlRICondHandle handle = nullptr;
    if (int result = aclmdlRICondHandleCreate(model, static_cast<uint32_t>(call.nth),
                                              ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle)) {
      return result;
    }
    std::array<aclmdlRI, 4> bodies{};
    aclmdlRICondTaskParams params = {};
    params.handle = handle;
    params.type = static_cast<aclmdlRICondTaskType>(call.condition);
    params.size = static_cast<uint32_t>(call.effects.size());
    params.modelRIArray = bodies.data();
    if (int result = aclmdlRIAddCondTask(params, stream, 0)) return result;
    for (size_t i = 0; i < call.effects.size(); ++i) {
      if (int result = aclmdlRICaptureToModelRIBegin(aux, bodies[i], ACL_MODEL_RI_CAPTURE_MODE_RELAXED)) return result;
      int submitted = Submit(call.effects[i], aux);
      if (submitted == 0 && call.condition == kConditionWhile) submitted = CountDown(handle, aux);
      const int ended = aclmdlRICaptureEnd(aux, nullptr);
      if (submitted != 0 || ended != 0) return submitted != 0 ? submitted : ended;
    }
    return 0;
  }

  // The body of a loop ends with this.
  int CountDown(aclmdlRICondHandle handle, aclrtStream stream) {
    uint64_t* cell = nullptr;
    if (int result = aclmdlRICondHandleGetCondPtr(handle, &cell)) return result;
    auto arg = reinterpret_cast<uint64_t>(cell);
    return aclrtLaunchKernelWithHostArgs(functions_[Effect::kDecrement], 1, stream, nullptr, &arg, sizeof arg, nullptr,
                                         0);
  }

  int Do(const Call& call) {
    const aclrtStream stream = call.stream >= 0 ? streams_[At(call.stream)] : nullptr;
    const aclrtEvent event = call.event >= 0 ? events_[At(call.event)] : nullptr;
    aclmdlRI* const model = call.slot >= 0 ? &models_[At(call.slot)] : nullptr;
    switch (call.kind) {
      case Call::kEffect: return Submit(call.effects[0], stream);
      case Call::kRecord: return aclrtRecordEvent(event, stream);
      case Call::kWait: return aclrtStreamWaitEvent(stream, event);
      case Call::kReset: return aclrtResetEvent(event, stream);
      case Call::kRecordExternal: return aclrtRecordEventWithFlag(event, stream, ACL_EVENT_RECORD_EXTERNAL);
      case Call::kWaitExternal: return aclrtStreamWaitEventWithFlag(stream, event, 0, ACL_EVENT_WAIT_EXTERNAL);
      case Call::kSyncStream: return aclrtSynchronizeStream(stream);
      case Call::kSyncStreamTimeout: return aclrtSynchronizeStreamWithTimeout(stream, kWaitMs);
      case Call::kStreamQuery: {
        aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
        return aclrtStreamQuery(stream, &status);
      }
      case Call::kSyncEvent: return aclrtSynchronizeEventWithTimeout(event, kWaitMs);
      case Call::kQueryEvent: {
        aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
        return aclrtQueryEventStatus(event, &status);
      }
      case Call::kSyncDevice: return aclrtSynchronizeDeviceWithTimeout(kWaitMs);
      case Call::kCheck: return 0;
      case Call::kBegin: return aclmdlRICaptureBegin(stream, static_cast<aclmdlRICaptureMode>(call.aux));
      case Call::kEnd:
        if (call.expected != 0) {
          aclmdlRI none = nullptr;
          return aclmdlRICaptureEnd(stream, &none);
        }
        return aclmdlRICaptureEnd(stream, model);
      case Call::kGroupBegin: return aclmdlRICaptureTaskGrpBegin(stream);
      case Call::kGroupEnd: return aclmdlRICaptureTaskGrpEnd(stream, &groups_[At(call.slot)][At(call.group)]);
      case Call::kConditional: return Conditional(call);
      case Call::kUpdateBegin: return aclmdlRICaptureTaskUpdateBegin(stream, groups_[At(call.slot)][At(call.group)]);
      case Call::kUpdateEnd: return aclmdlRICaptureTaskUpdateEnd(stream);
      case Call::kExecute: return aclmdlRIExecuteAsync(*model, stream);
      case Call::kDestroy: {
        const aclmdlRI gone = *model;
        *model = nullptr;
        return aclmdlRIDestroy(gone);
      }
      case Call::kSetKernel: return SetKernel(call);
      case Call::kDisable: {
        const aclmdlRITask task = FindKernel(call);
        return task == nullptr ? -1 : aclmdlRITaskDisable(task);
      }
      case Call::kUpdateModel: return aclmdlRIUpdate(*model);
      case Call::kNewStream: {
        const int destroyed = aclrtDestroyStream(stream);
        const int created = aclrtCreateStream(&streams_[At(call.stream)]);
        return destroyed != 0 ? destroyed : created;
      }
      case Call::kNewEvent: {
        const int destroyed = aclrtDestroyEvent(event);
        const int created = aclrtCreateEventExWithFlag(&events_[At(call.event)], ACL_EVENT_SYNC);
        return destroyed != 0 ? destroyed : created;
      }
      case Call::kPageableCopy: {
        const uint64_t pageable = 1;
        return aclrtMemcpyAsync(device_, 8, &pageable, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream);
      }
    }
    return -1;
  }

  // Only cells that nothing on the device may be writing.
  std::string Compare(const Call& check, const Memory& expected) {
    aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    if (int result = aclmdlRICaptureThreadExchangeMode(&mode)) return Failure("exchange mode", result, 0);
    std::string difference;
    const auto differs = [&](const std::string& where, uint64_t got, uint64_t wanted) {
      difference += fmt::format("{} is {}, expected {}\n", where, got, wanted);
    };
    for (int i = 0; i < kWords; ++i) {
      if (!check.readable[At(i)]) continue;
      uint64_t got = 0;
      if (i < kFirstPinned) {
        if (int result = aclrtMemcpy(&got, 8, Word(i), 8, ACL_MEMCPY_DEVICE_TO_HOST)) {
          difference += Failure("aclrtMemcpy", result, 0);
        }
      } else {
        got = *Word(i);
      }
      if (got != expected.words[At(i)]) differs(fmt::format("word {}", i), got, expected.words[At(i)]);
    }
    for (int i = 0; i < kLogs; ++i) {
      if (!check.readable[At(kWords + i)]) continue;
      std::array<uint64_t, 2 + kLogCapacity> got{};
      if (int result = aclrtMemcpy(&got, sizeof got, logs_[At(i)], sizeof got, ACL_MEMCPY_DEVICE_TO_HOST)) {
        difference += Failure("aclrtMemcpy", result, 0);
      }
      const std::vector<uint64_t>& wanted = expected.logs[At(i)];
      if (got[0] != wanted.size()) differs(fmt::format("length of log {}", i), got[0], wanted.size());
      for (size_t at = 0; at < std::min<size_t>({got[0], wanted.size(), kLogCapacity}); ++at) {
        if (got[2 + at] != wanted[at]) differs(fmt::format("log {} entry {}", i, at), got[2 + at], wanted[at]);
      }
    }
    (void)aclmdlRICaptureThreadExchangeMode(&mode);
    return difference;
  }

  const Functions& functions_;
  std::array<aclrtStream, kStreams> streams_{};
  std::array<aclrtEvent, kEvents> events_{};
  std::array<aclmdlRI, kSlots> models_{};
  std::array<std::array<aclrtTaskGrp, kMostGroups>, kSlots> groups_{};
  void* device_ = nullptr;
  void* pinned_ = nullptr;
  std::array<void*, kLogs> logs_{};
  std::array<uint64_t, kHostWords> host_{};
  std::deque<HostArgs> host_args_;  // addresses stay
  bool cleaned_ = false;
};

}  // namespace

std::string RunProgram(const Program& program, const Functions& functions, Mistake mistake) {
  return Runner(functions).Run(program, mistake);
}

}  // namespace reprise::stress
