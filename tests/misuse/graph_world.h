// SPDX-License-Identifier: Apache-2.0
//
// What wrong calls of aclmdlRI* are tried with: models of every kind and in every state, their tasks, groups,
// conditions and streams, and the handles of such objects that are gone.
#pragma once

#include <reprise/kernel.h>

#include <atomic>

#include "device/memory.h"
#include "fixture.h"
#include "model/model.h"
#include "model/program.h"
#include "runtime/kernel.h"

namespace reprise::testing {

inline constexpr aclmdlRICaptureMode kGlobal = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
inline constexpr aclmdlRICaptureMode kThreadLocal = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
inline constexpr aclmdlRICaptureMode kRelaxed = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;

namespace graph_kernels {
// Wrong calls may ask for more blocks, which run at the same time.
inline void Add(uint64_t* cell, uint64_t value) { std::atomic_ref<uint64_t>(*cell).fetch_add(value); }
REPRISE_KERNEL(add, REPRISE_KERNEL_VECTOR, (uint64_t * cell, uint64_t value)) { Add(cell, value); }
REPRISE_KERNEL(cube_add, REPRISE_KERNEL_CUBE, (uint64_t * cell, uint64_t value)) { Add(cell, value); }
REPRISE_KERNEL(aicpu_add, REPRISE_KERNEL_AICPU, (uint64_t * cell, uint64_t value)) { Add(cell, value); }
inline constexpr RepriseKernelDesc fail_desc = {
    "fail",
    0,
    [](const RepriseKernelContext*, const void*, size_t) -> int32_t { return 507015; },
    REPRISE_KERNEL_VECTOR,
    0,
    0,
    nullptr,
    0};
}  // namespace graph_kernels

/// Objects of the tables of the runtime that are alive, by sort.
struct Census {
  size_t contexts, streams, events, models, lanes, groups, conditions, labels, label_lists, binaries, functions;
  uint64_t memory;

  static Census Take() {
    return {runtime::Contexts().live(),        runtime::Streams().live(),
            runtime::Events().live(),          model::Models().live(),
            model::LaneHandles().live(),       model::TaskGroups().live(),
            model::Conditions().live(),        model::Labels().live(),
            model::LabelLists().live(),        runtime::KernelBinaries().live(),
            runtime::KernelFunctions().live(), device::MemoryRegistry::Get().used_bytes(0)};
  }
  bool operator==(const Census&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Census& c) {
    return out << "contexts " << c.contexts << ", streams " << c.streams << ", events " << c.events << ", models "
               << c.models << ", lanes " << c.lanes << ", groups " << c.groups << ", conditions " << c.conditions
               << ", labels " << c.labels << ", label lists " << c.label_lists << ", binaries " << c.binaries
               << ", functions " << c.functions << ", memory " << c.memory;
  }
};

/// A captured model with every kind of task. An execution adds kAdds to its cell.
struct Captured {
  static constexpr uint64_t kAdds = 1111;

  aclmdlRI model = nullptr;
  aclmdlRI body = nullptr;
  aclrtTaskGrp group = nullptr;
  aclmdlRICondHandle condition = nullptr;
  aclrtStream lane = nullptr;         ///< graph-internal stream of the origin
  aclrtStream forked_lane = nullptr;  ///< that of the forked stream
  uint32_t origin_tasks = 0;
  // A task of each type, in the order of the lanes.
  aclmdlRITask kernel = nullptr;
  aclmdlRITask in_group = nullptr;
  aclmdlRITask record = nullptr;
  aclmdlRITask wait = nullptr;
  aclmdlRITask reset = nullptr;
  aclmdlRITask value_write = nullptr;
  aclmdlRITask value_wait = nullptr;
  aclmdlRITask fill = nullptr;  ///< no public type
  uint64_t* cell = nullptr;
};

/// A built model. An execution adds 1 to its cell.
struct Built {
  aclmdlRI model = nullptr;
  aclrtStream stream = nullptr;
  uint64_t* cell = nullptr;
};

struct GraphWorld : BasicWorld {
  Captured captured_model;
  Built built_model;
  // The same handles, short.
  aclmdlRI model = nullptr;
  aclmdlRI built = nullptr;
  aclmdlRI body = nullptr;
  aclmdlRI open_model = nullptr;  ///< being captured, while a test does so
  aclmdlRI fresh = nullptr;       ///< BuildBegin and nothing more
  aclmdlRI foreign_model = nullptr;
  aclmdlRI foreign_built = nullptr;
  aclrtStream origin = nullptr;  ///< of the open capture
  aclrtStream forked = nullptr;  ///< forked into it
  aclrtStream aux = nullptr;     ///< an ordinary stream
  aclrtStream persistent = nullptr;
  aclrtStream bound = nullptr;
  aclrtStream foreign_persistent = nullptr;
  aclrtStream default_stream = nullptr;
  aclrtStream cpu_schedule = nullptr;
  aclrtStream device_only = nullptr;
  aclrtBinHandle binary = nullptr;
  aclrtFuncHandle add = nullptr;
  aclrtFuncHandle cube_add = nullptr;
  aclrtFuncHandle aicpu_add = nullptr;
  aclrtFuncHandle fail = nullptr;  // returns 507015
  aclrtLabel label = nullptr;      ///< not set
  aclrtLabel set_label = nullptr;  ///< on `bound`
  aclrtLabelList label_list = nullptr;
  aclrtLabel foreign_label = nullptr;
  uint64_t* cell = nullptr;  ///< device memory that nobody uses

  // Input of calls that also write there: set before the call, compared behind it.
  uint32_t count = 0;
  aclmdlRITaskParams params{};
  aclmdlRICondTaskParams cond{};
};

/// Tests of aclmdlRI* with one model of each kind, which must be as good as new after every table.
template <class W>
class GraphMisuse : public Misuse<W> {
 protected:
  using Base = Misuse<W>;
  using Base::NewStream;
  using Base::world_;

  void SetUp() override {
    Base::SetUp();
    if (this->HasFatalFailure()) return;
    W& w = world_;
    static const int32_t registered = repriseRegisterKernels("misuse_graph", &Kernels());
    ASSERT_EQ(registered, 0);
    MUST(aclrtBinaryLoadFromFile("misuse_graph", nullptr, &w.binary));
    MUST(aclrtBinaryGetFunction(w.binary, "add", &w.add));
    MUST(aclrtBinaryGetFunction(w.binary, "cube_add", &w.cube_add));
    MUST(aclrtBinaryGetFunction(w.binary, "aicpu_add", &w.aicpu_add));
    MUST(aclrtBinaryGetFunction(w.binary, "fail", &w.fail));
    w.cell = static_cast<uint64_t*>(this->NewMemory(64));
    w.aux = NewStream();
    w.persistent = NewStreamWith(ACL_STREAM_PERSISTENT);
    w.cpu_schedule = NewStreamWith(ACL_STREAM_CPU_SCHEDULE);
    w.device_only = NewStreamWith(ACL_STREAM_DEVICE_USE_ONLY);
    MUST(aclrtCtxGetCurrentDefaultStream(&w.default_stream));
    Capture(w.captured_model);
    Build(w.built_model, &w.set_label);
    MUST(aclmdlRIBuildBegin(&w.fresh, 0));
    MUST(aclrtCreateLabel(&w.label));
    MUST(aclrtCreateLabelList(&w.set_label, 1, &w.label_list));
    w.model = w.captured_model.model;
    w.body = w.captured_model.body;
    w.built = w.built_model.model;
    w.bound = w.built_model.stream;

    MUST(aclrtSetCurrentContext(this->other_context_));
    Captured there;
    Capture(there);
    Built built_there;
    Build(built_there);
    w.foreign_model = there.model;
    w.foreign_built = built_there.model;
    w.foreign_persistent = NewStreamWith(ACL_STREAM_PERSISTENT);
    MUST(aclrtCreateLabel(&w.foreign_label));
    MUST(aclrtSetCurrentContext(w.context));

    Captured dead;
    Capture(dead);
    MUST(aclmdlRIDestroy(dead.model));
    aclrtLabel dead_label = nullptr;
    MUST(aclrtCreateLabel(&dead_label));
    MUST(aclrtDestroyLabel(dead_label));
    aclrtLabelList dead_list = nullptr;
    MUST(aclrtCreateLabelList(&w.set_label, 1, &dead_list));
    MUST(aclrtDestroyLabelList(dead_list));
    w.AddHandles("model", w.model, dead.model);
    w.AddHandles("lane", w.captured_model.lane, dead.lane);
    w.AddHandles("task", w.captured_model.kernel, dead.kernel);
    w.AddHandles("task group", w.captured_model.group, dead.group);
    w.AddHandles("condition", w.captured_model.condition, dead.condition);
    w.AddHandles("binary", w.binary, nullptr);
    w.AddHandles("function", w.add, nullptr);
    w.AddHandles("label", w.label, dead_label);
    w.AddHandles("label list", w.label_list, dead_list);
  }

  void TearDown() override {
    W& w = world_;
    EXPECT_EQ(0, aclrtSetCurrentContext(w.context));
    if (w.label_list != nullptr) {
      EXPECT_EQ(0, aclrtDestroyLabelList(w.label_list));
    }
    for (const aclrtLabel label : {w.label, w.set_label, w.foreign_label}) {
      if (label != nullptr) {
        EXPECT_EQ(0, aclrtDestroyLabel(label));
      }
    }
    EXPECT_EQ(0, aclmdlRIDestroy(w.fresh));
    EXPECT_EQ(0, aclmdlRIDestroy(w.built));
    EXPECT_EQ(0, aclmdlRIDestroy(w.model));
    EXPECT_EQ(0, aclrtBinaryUnLoad(w.binary));
    Base::TearDown();
    EXPECT_EQ(Census::Take(), before_) << "the test left objects behind";
  }

  /// The models of the world compute what they did when they were new.
  void StillWorks() override {
    Base::StillWorks();
    const W& w = world_;
    const uint64_t before = *w.captured_model.cell;
    EXPECT_EQ(0, aclmdlRIExecuteAsync(w.model, w.stream));
    EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(w.stream, kPatience));
    EXPECT_EQ(*w.captured_model.cell, before + Captured::kAdds) << "the captured model";
    const uint64_t built_before = *w.built_model.cell;
    EXPECT_EQ(0, aclmdlRIExecute(w.built, kPatience));
    EXPECT_EQ(*w.built_model.cell, built_before + 1) << "the built model";
    uint32_t streams = 0;
    EXPECT_EQ(0, aclmdlRIGetStreams(w.model, nullptr, &streams));
    EXPECT_EQ(streams, 2U);
  }

  aclrtStream NewStreamWith(uint32_t flags) {
    aclrtStream stream = nullptr;
    EXPECT_EQ(0, aclrtCreateStreamWithConfig(&stream, 0, flags));
    return stream;
  }
  aclrtEvent NewEx() {
    aclrtEvent event = nullptr;
    EXPECT_EQ(0, aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    return event;
  }
  /// `to` goes on behind what `from` has submitted.
  void Edge(aclrtStream from, aclrtStream to) {
    const aclrtEvent event = NewEx();
    MUST(aclrtRecordEvent(event, from));
    MUST(aclrtStreamWaitEvent(to, event));
    MUST(aclrtDestroyEvent(event));
  }
  int Launch(aclrtStream stream, uint64_t* cell, uint64_t value, aclrtFuncHandle function = nullptr) {
    uint64_t args[] = {reinterpret_cast<uintptr_t>(cell), value};
    return aclrtLaunchKernelWithHostArgs(function != nullptr ? function : world_.add, 1, stream, nullptr, args,
                                         sizeof args, nullptr, 0);
  }

  /// A model with every kind of task, in the current context.
  void Capture(Captured& made) {
    made.cell = static_cast<uint64_t*>(this->NewMemory(64));
    const aclrtStream stream = NewStream();
    const aclrtStream side = NewStream();
    const aclrtStream inner = NewStream();
    MUST(aclmdlRICaptureBegin(stream, kRelaxed));
    MUST(aclmdlRICaptureGetInfo(stream, nullptr, &made.model));
    MUST(Launch(stream, made.cell, 1));
    MUST(aclmdlRICaptureTaskGrpBegin(stream));
    MUST(Launch(stream, made.cell, 10));
    MUST(aclmdlRICaptureTaskGrpEnd(stream, &made.group));
    Edge(stream, side);
    MUST(Launch(side, made.cell, 100));
    MUST(aclrtMemsetAsync(made.cell + 4, 8, 7, 8, side));
    Edge(side, stream);
    MUST(aclrtValueWrite(made.cell + 2, 5, 0, stream));
    MUST(aclrtValueWait(made.cell + 2, 5, ACL_STREAM_WAIT_VALUE_EQ, stream));
    MUST(aclmdlRICondHandleCreate(made.model, 1, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &made.condition));
    MUST(aclmdlRIAddCondTask({made.condition, ACL_MODEL_RI_COND_TYPE_IF, 1, &made.body}, stream, 0));
    MUST(aclmdlRICaptureToModelRIBegin(inner, made.body, kRelaxed));
    MUST(Launch(inner, made.cell, 1000));
    MUST(aclmdlRICaptureEnd(inner, nullptr));
    aclmdlRI ended = nullptr;
    MUST(aclmdlRICaptureEnd(stream, &ended));
    ASSERT_EQ(ended, made.model);
    for (const aclrtStream done : {stream, side, inner}) MUST(aclrtDestroyStream(done));

    aclrtStream lanes[2] = {};
    uint32_t count = 2;
    MUST(aclmdlRIGetStreams(made.model, lanes, &count));
    made.lane = lanes[1];
    made.forked_lane = lanes[0];
    std::vector<aclmdlRITask> tasks = TasksOf(made.lane);
    made.origin_tasks = static_cast<uint32_t>(tasks.size());
    made.kernel = tasks[0];
    made.in_group = tasks[1];
    const std::vector<aclmdlRITask> side_tasks = TasksOf(made.forked_lane);
    tasks.insert(tasks.end(), side_tasks.begin(), side_tasks.end());
    made.record = FirstOf(tasks, ACL_MODEL_RI_TASK_EVENT_RECORD);
    made.wait = FirstOf(tasks, ACL_MODEL_RI_TASK_EVENT_WAIT);
    made.reset = FirstOf(tasks, ACL_MODEL_RI_TASK_EVENT_RESET);
    made.value_write = FirstOf(tasks, ACL_MODEL_RI_TASK_VALUE_WRITE);
    made.value_wait = FirstOf(tasks, ACL_MODEL_RI_TASK_VALUE_WAIT);
    made.fill = FirstOf(side_tasks, ACL_MODEL_RI_TASK_DEFAULT);
  }

  /// A built model, ready, in the current context; `label` is made and set on its stream.
  void Build(Built& made, aclrtLabel* label = nullptr) {
    made.cell = static_cast<uint64_t*>(this->NewMemory(64));
    made.stream = NewStreamWith(ACL_STREAM_PERSISTENT);
    MUST(aclmdlRIBuildBegin(&made.model, 0));
    MUST(aclmdlRIBindStream(made.model, made.stream, ACL_MODEL_STREAM_FLAG_HEAD));
    if (label != nullptr) {
      MUST(aclrtCreateLabel(label));
      MUST(aclrtSetLabel(*label, made.stream));
    }
    MUST(Launch(made.stream, made.cell, 1));
    MUST(aclmdlRIEndTask(made.model, made.stream));
    MUST(aclmdlRIBuildEnd(made.model, nullptr));
  }

  static std::vector<aclmdlRITask> TasksOf(aclrtStream lane) {
    uint32_t count = 0;
    EXPECT_EQ(0, aclmdlRIGetTasksByStream(lane, nullptr, &count));
    std::vector<aclmdlRITask> tasks(count + 1);
    EXPECT_EQ(0, aclmdlRIGetTasksByStream(lane, tasks.data(), &count));
    tasks.resize(count);
    return tasks;
  }
  static aclmdlRITask FirstOf(const std::vector<aclmdlRITask>& tasks, aclmdlRITaskType type) {
    for (const aclmdlRITask task : tasks) {
      aclmdlRITaskType got = ACL_MODEL_RI_TASK_DEFAULT;
      EXPECT_EQ(0, aclmdlRITaskGetType(task, &got));
      if (got == type) return task;
    }
    ADD_FAILURE() << "no task of type " << type;
    return nullptr;
  }

  /// Begins a capture on `w.origin` and forks `w.forked` into it. One kernel adds 3 to `w.cell[1]`.
  void Open(aclmdlRICaptureMode mode = kGlobal) {
    W& w = world_;
    if (w.origin == nullptr) w.origin = NewStream();
    if (w.forked == nullptr) w.forked = NewStream();
    MUST(aclmdlRICaptureBegin(w.origin, mode));
    MUST(aclmdlRICaptureGetInfo(w.origin, nullptr, &w.open_model));
    Edge(w.origin, w.forked);
    MUST(Launch(w.origin, w.cell + 1, 3));
    w.captured = w.origin;  // every row checks that it stays active
  }
  /// Ends that capture well; its model does what was captured.
  void Close() {
    W& w = world_;
    EXPECT_EQ(Status(w.forked), ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
    Edge(w.forked, w.origin);
    aclmdlRI ended = nullptr;
    MUST(aclmdlRICaptureEnd(w.origin, &ended));
    EXPECT_EQ(ended, w.open_model);
    w.captured = nullptr;
    w.open_model = nullptr;
    w.cell[1] = 0;
    MUST(aclmdlRIExecuteAsync(ended, w.stream));
    MUST(aclrtSynchronizeStreamWithTimeout(w.stream, kPatience));
    EXPECT_EQ(w.cell[1], 3U) << "the capture lost or gained a task";
    MUST(aclmdlRIDestroy(ended));
    EXPECT_EQ(Status(w.origin), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
    EXPECT_EQ(Status(w.forked), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  }
  static aclmdlRICaptureStatus Status(aclrtStream stream) {
    auto status = static_cast<aclmdlRICaptureStatus>(77);
    EXPECT_EQ(0, aclmdlRICaptureGetInfo(stream, &status, nullptr));
    return status;
  }
  /// CaptureEnd fails with `code`, names no model, and the capture is over.
  void EndFails(int code, aclrtStream stream) {
    aclmdlRI ended = &world_.local;  // anything but null
    EXPECT_ACL(code, aclmdlRICaptureEnd(stream, &ended));
    EXPECT_EQ(ended, nullptr);
    EXPECT_EQ(Status(stream), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  }

  /// Runs the rows on a thread that has `context` current, or none.
  void OnThread(aclrtContext context, const typename Base::Rows& rows) {
    std::thread([&] {
      if (context != nullptr) {
        EXPECT_EQ(0, aclrtSetCurrentContext(context));
      }
      this->RunRows(rows);
    }).join();
  }
  /// The rows with each handle that is none of `kind`; without the captures of Everywhere, for calls that look at the
  /// handle first.
  void BadHandles(const std::string& kind, const typename Base::Rows& rows) {
    for (const Handle& bad : world_.BadHandles(kind)) {
      const std::string trace = "bad handle: " + bad.kind;
      SCOPED_TRACE(trace);
      world_.bad = bad.handle;
      this->RunRows(rows);
    }
    world_.bad = nullptr;
    StillWorks();
  }

 private:
  static const RepriseKernelTable& Kernels() {
    static const RepriseKernelDesc descs[] = {graph_kernels::add_desc, graph_kernels::cube_add_desc,
                                              graph_kernels::aicpu_add_desc, graph_kernels::fail_desc};
    static const RepriseKernelTable table = {REPRISE_KERNEL_ABI_VERSION, 4, descs};
    return table;
  }

  const Census before_ = Census::Take();
};

}  // namespace reprise::testing
