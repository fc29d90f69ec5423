// SPDX-License-Identifier: Apache-2.0
#include "profile/profiler.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/folder.h"
#include "base/handle_table.h"
#include "base/log.h"
#include "base/mutex.h"
#include "device/timeline.h"
#include "ir/task_info.h"
#include "profile/prof_folder.h"
#include "runtime/objects.h"
#include "runtime/submission.h"

namespace reprise::profile {
namespace {

using device::Timeline;
using runtime::FindObject;

constexpr size_t kMostRanges = 1u << 16;
constexpr size_t kMostTexts = 1u << 16;
// One event takes about as much of the file.
constexpr uint64_t kBytesOfEvent = 256;

// Kinds of data of the C interface with which the shapes of operators are wanted: task times beyond the fewest
// details, attributes of operators, shapes of core tasks.
constexpr uint64_t kKindsWithShapes = 0x2 | 0x2000 | 0x4000 | 0x8000 | 0x800000000;

struct Config {
  std::vector<int32_t> devices;
  uint64_t data_kinds;
};

struct StepTimes {
  uint32_t number = 0;
  std::atomic<uint64_t> begin{0};
};
// Shared with the marks in streams and graphs, which may outlive it.
struct StepObject {
  std::shared_ptr<StepTimes> times;
  std::atomic<bool> begun{false};
};

struct Stamp {
  Mutex mutex;
  std::string text REPRISE_GUARDED_BY(mutex);
};

HandleTable<Config, HandleKind::kProfilerConfig>& Configs() { return TheTable<Config, HandleKind::kProfilerConfig>(); }
HandleTable<StepObject, HandleKind::kProfilerStep>& Steps() {
  return TheTable<StepObject, HandleKind::kProfilerStep>();
}
HandleTable<Stamp, HandleKind::kProfilerStamp>& Stamps() { return TheTable<Stamp, HandleKind::kProfilerStamp>(); }

template <class Table, class Object>
void* InsertNew(Table& table, std::unique_ptr<Object> object) {
  void* handle = table.Insert(object.get());
  if (handle != nullptr) object.release();
  return handle;
}

template <class Table>
bool EraseAndDelete(Table& table, const void* handle) {
  auto* object = table.Erase(handle);
  delete object;
  return object != nullptr;
}

StatusOr<std::string> TextOfStamp(const void* handle) {
  REPRISE_ASSIGN_OR_RETURN(Stamp * stamp, FindObject(Stamps(), handle, "profiler stamp"));
  MutexLock lock(stamp->mutex);
  return stamp->text.empty() ? std::string("(mark)") : stamp->text;
}

// Ranges that this thread has pushed and not yet popped; 0 for those that nobody recorded.
struct Stacks {
  std::vector<uint64_t> stamps;
  std::vector<uint64_t> named;
};
Stacks& ThreadStacks() {
  thread_local Stacks stacks;
  return stacks;
}

Status PopFrom(std::vector<uint64_t>& stack, const char* begin) {
  if (stack.empty()) {
    return Error(kInvalidArgument, "this thread has no range that is open")
        .Culprit("an earlier call has ended it, or another thread began it")
        .Hint(fmt::format("call {} on the same thread before", begin));
  }
  Timeline::Get().CloseRange(stack.back());
  stack.pop_back();
  return {};
}

void PushOn(std::vector<uint64_t>& stack, std::string_view name) {
  stack.push_back(0);  // first, so that a range that is open is never lost
  stack.back() = Timeline::Get().OpenRange(name, true);
}

// ---- Marks in streams ----

struct MarkPayload {
  std::string* text;
};

constexpr ir::TaskType kMark = {
    .kind = ir::TaskKind::kMark,
    .name = "PROFILER_TRACE",
    .run = [](device::RunContext&, void*) { return ir::RunResult::kDone; },
    .destroy = [](void* payload) noexcept { delete static_cast<MarkPayload*>(payload)->text; },
    .describe = [](const void* payload,
                   ir::TaskInfo& info) { info.name = *static_cast<const MarkPayload*>(payload)->text; },
    .never_waits = true,
    .operands = ir::NoOperands};

struct StepPayload {
  std::shared_ptr<StepTimes>* times;
  bool is_end;
};

constexpr ir::TaskType kStep = {
    .kind = ir::TaskKind::kMark,
    .name = "PROFILER_STEP",
    .run =
        [](device::RunContext& context, void* payload) {
          const auto& p = *static_cast<const StepPayload*>(payload);
          StepTimes& times = **p.times;
          if (!p.is_end) {
            times.begin.store(Timeline::Now(), std::memory_order_relaxed);
          } else if (const uint64_t begin = times.begin.exchange(0, std::memory_order_relaxed);
                     begin != 0 && Timeline::on()) {
            Timeline::Get().Step(context, fmt::format("step {}", times.number), begin);
          }
          return ir::RunResult::kDone;
        },
    .destroy = [](void* payload) noexcept { delete static_cast<StepPayload*>(payload)->times; },
    .describe =
        [](const void* payload, ir::TaskInfo& info) {
          const auto& p = *static_cast<const StepPayload*>(payload);
          info.name = fmt::format("step {} {}", (**p.times).number, p.is_end ? "end" : "start");
        },
    .operands = ir::NoOperands};

}  // namespace

struct Profiler::State {
  Mutex mutex;
  bool ready = false;
  std::string folder;
  uint64_t limit = Timeline::kDefaultLimit;
  const void* running = nullptr;  // configuration of the recording
  uint64_t session = 0;
  std::vector<int32_t> devices;  // of the recording
  Clocks begin{};
  uint32_t files = 0;
  pid_t process = 0;
  bool at_exit = false;

  Mutex ranges_mutex;
  uint32_t next_range REPRISE_GUARDED_BY(ranges_mutex) = 1;
  std::map<uint32_t, uint64_t> ranges REPRISE_GUARDED_BY(ranges_mutex);

  Mutex texts_mutex;
  std::map<std::string, uint64_t, std::less<>> numbers REPRISE_GUARDED_BY(texts_mutex);
  std::vector<std::string> texts REPRISE_GUARDED_BY(texts_mutex);
};

Profiler::Profiler() : state_(std::make_unique<State>()) {}

Profiler& Profiler::Get() {
  static auto* const profiler = new Profiler;
  return *profiler;
}

Status Profiler::Init(const std::string& folder) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  if (state.ready) {
    return Error(kProfAlreadyRun, "the profiler is initialised already")
        .Culprit(fmt::format("an earlier aclprofInit with the folder \"{}\"", state.folder))
        .Hint("call aclprofFinalize before initialising it again");
  }
  REPRISE_RETURN_IF_ERROR(MakeFolder(folder));
  state.folder = folder;
  state.limit = Timeline::kDefaultLimit;
  state.ready = true;
  return {};
}

bool Profiler::is_ready() {
  MutexLock lock(state_->mutex);
  return state_->ready;
}

namespace {
Status NotReady() {
  return Error(kProfNotRun, "the profiler is not initialised")
      .Culprit("aclprofInit was not called, or aclprofFinalize was called since")
      .Hint("call aclprofInit first");
}
}  // namespace

Status Profiler::Finalize() {
  State& state = *state_;
  MutexLock lock(state.mutex);
  if (!state.ready) return NotReady();
  Status written;
  if (state.running != nullptr) {
    written = StopLocked();
    if (!written.ok()) {
      Timeline::Get().Drop(state.session);
      state.running = nullptr;
    }
  }
  state.ready = false;
  return written;
}

StatusOr<void*> Profiler::CreateConfig(std::vector<int32_t> devices, uint64_t data_kinds) {
  if (void* handle = InsertNew(Configs(), std::make_unique<Config>(Config{std::move(devices), data_kinds})))
    return handle;
  return Error(kResourceExhausted, "the process has too many profiler configurations")
      .Hint("destroy configurations with aclprofDestroyConfig");
}

Status Profiler::DestroyConfig(const void* config) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  REPRISE_RETURN_IF_ERROR(FindObject(Configs(), config, "profiler configuration").status());
  if (state.running == config) {
    return Error(kProfAlreadyRun, "the configuration is in use: profiling runs")
        .Culprit("aclprofStart with this configuration")
        .Hint("call aclprofStop before aclprofDestroyConfig");
  }
  EraseAndDelete(Configs(), config);
  return {};
}

Status Profiler::SetFolder(const std::string& folder) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  if (!state.ready) return NotReady();
  REPRISE_RETURN_IF_ERROR(MakeFolder(folder));
  state.folder = folder;
  return {};
}

Status Profiler::SetStorageLimit(uint64_t megabytes) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  if (!state.ready) return NotReady();
  const uint64_t most = Timeline::kDefaultLimit * kBytesOfEvent >> 20;
  state.limit = (std::min(megabytes, most) << 20) / kBytesOfEvent;
  return {};
}

Status Profiler::CheckStart(const void* handle) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  return CheckStartLocked(handle);
}

Status Profiler::CheckStartLocked(const void* handle) {
  State& state = *state_;
  REPRISE_RETURN_IF_ERROR(FindObject(Configs(), handle, "profiler configuration").status());
  if (!state.ready) return NotReady();
  if (state.running != nullptr) {
    return Error(kProfAlreadyRun, state.running == handle ? "profiling runs already with this configuration"
                                                          : "profiling runs already with another configuration")
        .Culprit("an earlier aclprofStart")
        .Hint("call aclprofStop first");
  }
  return {};
}

Status Profiler::Start(const void* handle) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  REPRISE_RETURN_IF_ERROR(CheckStartLocked(handle));
  REPRISE_ASSIGN_OR_RETURN(Config * config, FindObject(Configs(), handle, "profiler configuration"));
  if (!state.at_exit) state.at_exit = std::atexit(WriteAtExit) == 0;
  state.process = getpid();
  state.devices = config->devices;
  state.begin = Clocks::Now();
  state.session = Timeline::Get().Start({config->devices, state.limit, (config->data_kinds & kKindsWithShapes) != 0});
  state.running = handle;
  return {};
}

Status Profiler::Stop(const void* handle) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  REPRISE_RETURN_IF_ERROR(FindObject(Configs(), handle, "profiler configuration").status());
  if (state.running == nullptr) {
    return Error(kProfNotRun, "profiling does not run")
        .Culprit("aclprofStart was not called, or aclprofStop was called since")
        .Hint("call aclprofStart with the configuration first");
  }
  if (state.running != handle) {
    return Error(kProfNotRun, "profiling does not run with this configuration but with another one")
        .Culprit("parameter profilerConfig")
        .Hint("pass the configuration that aclprofStart got");
  }
  return StopLocked();
}

Status Profiler::StopLocked() {
  State& state = *state_;
  const std::string path = fmt::format("{}/trace_{}_{}.json", state.folder, getpid(), state.files);
  REPRISE_RETURN_IF_ERROR(Timeline::Get().Stop(state.session, path));
  REPRISE_LOG(kInfo, "ASCENDCL", "profile written to {}", path);
  state.running = nullptr;
  return WriteRecordFolder({state.folder, path, state.files++, state.devices, state.begin, Clocks::Now()});
}

// A program that ends without aclprofStop still gets its file; a fork of it does not write into it.
void Profiler::WriteAtExit() {
  Profiler& profiler = Get();
  State& state = *profiler.state_;
  if (getpid() != state.process) return;
  MutexLock lock(state.mutex);
  if (state.running == nullptr) return;
  if (const Status status = profiler.StopLocked(); !status.ok()) {
    std::fprintf(stderr, "reprise: %s\n", status.detail().what.c_str());
  }
}

// ---- Steps, stamps, marks ----

void* Profiler::CreateStep() {
  static std::atomic<uint32_t> next{1};
  auto step = std::make_unique<StepObject>();
  step->times = std::make_shared<StepTimes>();
  step->times->number = next.fetch_add(1, std::memory_order_relaxed);
  return InsertNew(Steps(), std::move(step));
}

bool Profiler::DestroyStep(const void* step) { return EraseAndDelete(Steps(), step); }

Status Profiler::StepTime(const void* handle, bool is_end, runtime::Stream& stream) {
  REPRISE_ASSIGN_OR_RETURN(StepObject * step, FindObject(Steps(), handle, "profiler step"));
  if (is_end && !step->begun.load(std::memory_order_relaxed)) {
    return Error(kInvalidArgument, "tag is ACL_STEP_END, but the step has not begun")
        .Culprit("parameter tag")
        .Hint("call aclprofGetStepTimestamp with ACL_STEP_START first");
  }
  StepPayload payload{new std::shared_ptr<StepTimes>(step->times), is_end};
  REPRISE_RETURN_IF_ERROR(runtime::Submit(stream, ir::MakeTask(kStep, payload)));
  step->begun.store(!is_end, std::memory_order_relaxed);
  return {};
}

void* Profiler::CreateStamp() { return InsertNew(Stamps(), std::make_unique<Stamp>()); }

bool Profiler::DestroyStamp(const void* stamp) { return EraseAndDelete(Stamps(), stamp); }

Status Profiler::SetStampText(const void* handle, std::string text) {
  REPRISE_ASSIGN_OR_RETURN(Stamp * stamp, FindObject(Stamps(), handle, "profiler stamp"));
  MutexLock lock(stamp->mutex);
  stamp->text = std::move(text);
  return {};
}

Status Profiler::MarkStamp(const void* stamp) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text, TextOfStamp(stamp));
  if (Timeline::on()) Timeline::Get().Mark(text);
  return {};
}

Status Profiler::MarkOn(runtime::Stream& stream, const std::string& text, bool also_here) {
  if (also_here && Timeline::on()) Timeline::Get().Mark(text);
  MarkPayload payload{new std::string(text)};
  return runtime::Submit(stream, ir::MakeTask(kMark, payload));
}

// ---- Ranges ----

Status Profiler::PushStamp(const void* stamp) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text, TextOfStamp(stamp));
  PushOn(ThreadStacks().stamps, text);
  return {};
}

Status Profiler::Pop() { return PopFrom(ThreadStacks().stamps, "aclprofPush"); }

void Profiler::PushNamed(std::string_view name) { PushOn(ThreadStacks().named, name); }

Status Profiler::PopNamed() { return PopFrom(ThreadStacks().named, "aclprofRangePushEx"); }

StatusOr<uint32_t> Profiler::StartRange(const void* stamp) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text, TextOfStamp(stamp));
  State& state = *state_;
  MutexLock lock(state.ranges_mutex);
  if (state.ranges.size() >= kMostRanges) {
    return Error(kResourceExhausted, fmt::format("{} ranges are open", kMostRanges))
        .Hint("end ranges with aclprofRangeStop");
  }
  while (state.next_range == 0 || state.ranges.contains(state.next_range)) ++state.next_range;
  const uint32_t number = state.next_range++;
  state.ranges[number] = Timeline::Get().OpenRange(text, false);
  return number;
}

Status Profiler::StopRange(uint32_t range) {
  State& state = *state_;
  MutexLock lock(state.ranges_mutex);
  const auto it = state.ranges.find(range);
  if (it == state.ranges.end()) {
    return Error(kInvalidArgument, fmt::format("rangeId is {}, which is no range that is open", range))
        .Culprit("parameter rangeId")
        .Hint("pass a number that aclprofRangeStart wrote, once");
  }
  Timeline::Get().CloseRange(it->second);
  state.ranges.erase(it);
  return {};
}

// ---- Texts with numbers ----

StatusOr<uint64_t> Profiler::NumberOf(std::string_view text) {
  State& state = *state_;
  MutexLock lock(state.texts_mutex);
  if (const auto it = state.numbers.find(text); it != state.numbers.end()) return it->second;
  if (state.texts.size() >= kMostTexts) {
    return Error(kResourceExhausted, fmt::format("{} texts have numbers already", kMostTexts))
        .Hint("use fewer different texts: each is kept as long as the process lives");
  }
  state.texts.emplace_back(text);
  const auto number = static_cast<uint64_t>(state.texts.size());
  state.numbers.emplace(text, number);
  return number;
}

std::string Profiler::TextOf(uint64_t number) {
  State& state = *state_;
  MutexLock lock(state.texts_mutex);
  return number == 0 || number > state.texts.size() ? std::string() : state.texts[number - 1];
}

HandleTable<ProfilerSubscription, HandleKind::kProfilerSubscription>& ProfilerSubscriptions() {
  static auto* const table = new HandleTable<ProfilerSubscription, HandleKind::kProfilerSubscription>;
  return *table;
}

}  // namespace reprise::profile
