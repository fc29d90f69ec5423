// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls of the functions that look into a model and change its tasks.
#include <sys/uio.h>

#include <climits>

#include "graph_world.h"

namespace reprise::testing {
namespace {

struct World : GraphWorld {
  Captured own;  ///< a model that the test may spoil
  aclmdlRITask task = nullptr;
};

aclrtLaunchKernelAttrId Attribute(int value) { return static_cast<aclrtLaunchKernelAttrId>(value); }
constexpr aclrtLaunchKernelAttrId kSchemMode = ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE;

// Whether the kernel of this system checks addresses for us; without that a wild pointer is the program's own crash.
bool WildPointersAreSafe() {
  char from = 1, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

class GraphTasks : public GraphMisuse<World> {
 protected:
  void SetUp() override {
    GraphMisuse::SetUp();
    if (HasFatalFailure()) return;
    args_[0] = reinterpret_cast<uintptr_t>(world_.cell);
    args_[1] = 1;
  }
  /// Good parameters of a kernel, and of value tasks.
  aclmdlRITaskParams KernelParams() {
    aclmdlRITaskParams params{};
    params.type = ACL_MODEL_RI_TASK_KERNEL;
    params.kernelTaskParams.funcHandle = world_.add;
    params.kernelTaskParams.args = args_;
    params.kernelTaskParams.isHostArgs = 1;
    params.kernelTaskParams.argsSize = sizeof args_;
    params.kernelTaskParams.numBlocks = 1;
    return params;
  }
  aclmdlRITaskParams WriteParams() {
    aclmdlRITaskParams params{};
    params.type = ACL_MODEL_RI_TASK_VALUE_WRITE;
    params.valueWriteTaskParams.devAddr = world_.cell;
    return params;
  }
  aclmdlRITaskParams WaitParams() {
    aclmdlRITaskParams params{};
    params.type = ACL_MODEL_RI_TASK_VALUE_WAIT;
    params.valueWaitTaskParams.devAddr = world_.cell;
    params.valueWaitTaskParams.flag = ACL_STREAM_WAIT_VALUE_EQ;
    return params;
  }
  /// The change is refused with `code`, does not touch its input, and leaves the model fit for destruction only.
  void Faults(int code, aclmdlRITask Captured::*task, const aclmdlRITaskParams& params, const std::string& what) {
    SCOPED_TRACE(what);
    World& world = world_;
    Capture(world.own);
    aclmdlRITaskParams given = params;
    EXPECT_ACL(code, aclmdlRITaskSetParams(world.own.*task, &given));
    EXPECT_EQ(0, std::memcmp(&given, &params, sizeof given));
    IsFaulty();
  }
  void IsFaulty() {
    World& world = world_;
    world.task = world.own.value_write;
    world.params = WriteParams();
    RunRows({
        ROW(507011, aclmdlRIExecuteAsync(w.own.model, w.stream)),
        ROW(107040, aclmdlRIUpdate(w.own.model)),
        ROW(107040, aclmdlRITaskSetParams(w.task, &w.params)),
        ROW(107040, aclmdlRITaskDisable(w.task)),
        ROW(0, aclmdlRITaskGetType(w.task, w.out.As<aclmdlRITaskType>())),
        ROW(0, aclmdlRITaskGetParams(w.task, w.out.As<aclmdlRITaskParams>())),
    });
    EXPECT_EQ(*world.own.cell, 0U) << "nothing ran";
    EXPECT_ACL(0, aclmdlRIDestroy(world.own.model));
  }

  uint64_t args_[2] = {};
};

TEST_F(GraphTasks, Null) {
  Everywhere({
      ROW(107000, aclmdlRIGetStreams(nullptr, w.out.handle(), w.out.As<uint32_t>(1))),
      ROW(107000, aclmdlRIGetStreams(nullptr, nullptr, nullptr)),
      ROW(107000, aclmdlRIGetStreams(w.model, w.out.handle(), nullptr)),
      ROW(107000, aclmdlRIGetTasksByStream(nullptr, w.out.handle(), w.out.As<uint32_t>(1))),
      ROW(107000, aclmdlRIGetTasksByStream(w.captured_model.lane, w.out.handle(), nullptr)),
      ROW(107000, aclmdlRIGetTasksByStream(nullptr, nullptr, nullptr)),
      ROW(107000, aclmdlRITaskGetType(nullptr, w.out.As<aclmdlRITaskType>())),
      ROW(107000, aclmdlRITaskGetType(w.captured_model.kernel, nullptr)),
      ROW(107000, aclmdlRITaskGetSeqId(nullptr, w.out.As<uint32_t>())),
      ROW(107000, aclmdlRITaskGetSeqId(w.captured_model.kernel, nullptr)),
      ROW(107000, aclmdlRITaskGetParams(nullptr, w.out.As<aclmdlRITaskParams>())),
      ROW(107000, aclmdlRITaskGetParams(w.captured_model.kernel, nullptr)),
      ROW(107000, aclmdlRITaskSetParams(nullptr, w.out.As<aclmdlRITaskParams>())),
      ROW(107000, aclmdlRITaskSetParams(w.captured_model.kernel, nullptr)),
      ROW(107000, aclmdlRITaskDisable(nullptr)),
      ROW(107000, aclmdlRIUpdate(nullptr)),
      ROW(100000, aclmdlRIKernelTaskGetAttribute(nullptr, kSchemMode, w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(100000, aclmdlRIKernelTaskGetAttribute(w.captured_model.kernel, kSchemMode, nullptr)),
  });
}

TEST_F(GraphTasks, HandlesThatAreNone) {
  BadHandles("model", {
                          ROW(107017, aclmdlRIGetStreams(w.bad, w.out.handle(), w.out.As<uint32_t>(1))),
                          ROW(107017, aclmdlRIGetStreams(w.bad, nullptr, w.out.As<uint32_t>(1))),
                          ROW(107017, aclmdlRIUpdate(w.bad)),
                      });
  const Rows tasks = {
      ROW(107017, aclmdlRITaskGetType(w.bad, w.out.As<aclmdlRITaskType>())),
      ROW(107017, aclmdlRITaskGetSeqId(w.bad, w.out.As<uint32_t>())),
      ROW(107017, aclmdlRITaskGetParams(w.bad, w.out.As<aclmdlRITaskParams>())),
      ROW(107017, aclmdlRITaskSetParams(w.bad, w.out.As<aclmdlRITaskParams>())),
      ROW(107017, aclmdlRITaskDisable(w.bad)),
      ROW(107017, aclmdlRIKernelTaskGetAttribute(w.bad, kSchemMode, w.out.As<aclrtLaunchKernelAttrValue>())),
  };
  BadHandles("task", tasks);
  // Handles that only look like tasks: nodes and models that are not there. Models are numbered as they are made, by
  // all tests of the program: the numbers here are far from those of living ones, or of one that is gone.
  Captured gone;
  Capture(gone);
  EXPECT_ACL(0, aclmdlRIDestroy(gone.model));
  constexpr uintptr_t kModelBits = uintptr_t{0xFFFFFF} << 32;
  const auto bits = reinterpret_cast<uintptr_t>(world_.captured_model.kernel);
  const auto dead = reinterpret_cast<uintptr_t>(gone.kernel);
  for (const uintptr_t made : {bits | 0xFFFF, bits | 0xFFFFFFFF, dead + 1, dead | 0xFFFF, bits & ~kModelBits,
                               bits | kModelBits, bits | (uintptr_t{0xFFFFF} << 36), bits ^ (uintptr_t{1} << 55)}) {
    world_.bad = Address(made);
    RunRows(tasks);
  }
  world_.bad = nullptr;
  StillWorks();
}

TEST_F(GraphTasks, StreamsThatAreNoneOfAModel) {
  const Rows user_stream = {
      ROW(107000, aclmdlRIGetTasksByStream(w.bad, w.out.handle(), w.out.As<uint32_t>(1))),
      ROW(107000, aclmdlRIGetTasksByStream(w.bad, nullptr, w.out.As<uint32_t>(1))),
  };
  for (const aclrtStream stream : {world_.stream, world_.default_stream, world_.persistent, world_.foreign}) {
    world_.bad = stream;
    Everywhere({"a user's stream", stream}, user_stream);
  }
  for (const Handle& bad : world_.BadHandles("lane")) {
    if (bad.kind == "live stream") continue;
    Everywhere(bad, {
                        ROW(107017, aclmdlRIGetTasksByStream(w.bad, w.out.handle(), w.out.As<uint32_t>(1))),
                        ROW(107017, aclmdlRIGetTasksByStream(w.bad, nullptr, w.out.As<uint32_t>(1))),
                    });
  }
  // The stream of an open capture is the user's, its shadow is the model's.
  Open();
  world_.bad = world_.origin;
  RunRows(user_stream);
  world_.bad = nullptr;
  Close();
}

TEST_F(GraphTasks, ModelsOfTheWrongKindOrContext) {
  Everywhere({
      ROW(207000, aclmdlRIGetStreams(w.body, w.out.handle(), w.out.As<uint32_t>(1))),
      ROW(207000, aclmdlRIGetStreams(w.body, nullptr, w.out.As<uint32_t>(1))),
      ROW(207000, aclmdlRIUpdate(w.body)),
      ROW(207000, aclmdlRIUpdate(w.built)),
      ROW(207000, aclmdlRIUpdate(w.fresh)),
      ROW(107004, aclmdlRIGetStreams(w.foreign_model, nullptr, w.out.As<uint32_t>(1))),
      ROW(107004, aclmdlRIGetStreams(w.foreign_built, nullptr, w.out.As<uint32_t>(1))),
      ROW(107004, aclmdlRIUpdate(w.foreign_model)),
      ROW(107004, aclmdlRIUpdate(w.foreign_built)),
      ROW(0, aclmdlRIUpdate(w.model)),
      ROW(0, aclmdlRIGetStreams(w.fresh, nullptr, w.out.As<uint32_t>(1))),
  });
  OnThread(nullptr, {
                        ROW(107002, aclmdlRIGetStreams(w.model, nullptr, w.out.As<uint32_t>(1))),
                        ROW(107002, aclmdlRIGetTasksByStream(w.captured_model.lane, nullptr, w.out.As<uint32_t>(1))),
                        ROW(107002, aclmdlRIUpdate(w.model)),
                    });
  OnThread(other_context_,
           {
               ROW(107004, aclmdlRIGetStreams(w.model, nullptr, w.out.As<uint32_t>(1))),
               ROW(107003, aclmdlRIGetTasksByStream(w.captured_model.lane, nullptr, w.out.As<uint32_t>(1))),
               ROW(107004, aclmdlRIUpdate(w.model)),
           });
  StillWorks();
}

// Arrays that are too small are filled as far as they go, and nothing is written behind them.
TEST_F(GraphTasks, SmallArrays) {
  const Captured& captured = world_.captured_model;
  constexpr size_t kRoom = 32;
  void* const untouched = &world_.local;
  std::vector<void*> array(kRoom);
  const auto check = [&](const char* function, uint32_t total, const std::function<int(void**, uint32_t*)>& call) {
    uint32_t count = 77;
    EXPECT_EQ(0, call(nullptr, &count)) << function;
    EXPECT_EQ(count, total);
    for (uint32_t room = 0; room <= total + 2; ++room) {
      array.assign(kRoom, untouched);
      count = room;
      DropMessage();
      const int code = call(array.data(), &count);
      EXPECT_TRUE(CheckAcl(room < total ? 107039 : 0, code, function)) << "room " << room;
      EXPECT_EQ(count, std::min(room, total));
      for (uint32_t i = 0; i < kRoom; ++i) {
        if (i < std::min(room, total)) {
          EXPECT_NE(array[i], untouched);
          EXPECT_NE(array[i], nullptr);
        } else {
          EXPECT_EQ(array[i], i < room ? nullptr : untouched) << i << " of " << room;
        }
      }
    }
  };
  check("aclmdlRIGetStreams", 2,
        [&](void** streams, uint32_t* count) { return aclmdlRIGetStreams(captured.model, streams, count); });
  check("aclmdlRIGetStreams", 1,
        [&](void** streams, uint32_t* count) { return aclmdlRIGetStreams(world_.built, streams, count); });
  ASSERT_LT(captured.origin_tasks + 2, kRoom);
  check("aclmdlRIGetTasksByStream", captured.origin_tasks,
        [&](void** tasks, uint32_t* count) { return aclmdlRIGetTasksByStream(captured.lane, tasks, count); });
  StillWorks();
}

TEST_F(GraphTasks, AttributesAndKindsOfTasks) {
  Everywhere({
      ROW(107000, aclmdlRITaskGetParams(w.captured_model.fill, w.out.As<aclmdlRITaskParams>())),
      ROW(107000,
          aclmdlRIKernelTaskGetAttribute(w.captured_model.fill, kSchemMode, w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(107000,
          aclmdlRIKernelTaskGetAttribute(w.captured_model.record, kSchemMode, w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(107000, aclmdlRIKernelTaskGetAttribute(w.captured_model.value_wait, kSchemMode,
                                                 w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(107000, aclmdlRIKernelTaskGetAttribute(w.captured_model.kernel, ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE,
                                                 w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(107000, aclmdlRIKernelTaskGetAttribute(w.captured_model.kernel, ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET,
                                                 w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(107000, aclmdlRIKernelTaskGetAttribute(w.captured_model.kernel, ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH,
                                                 w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(107000, aclmdlRIKernelTaskGetAttribute(w.captured_model.kernel, ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING,
                                                 w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(107000, aclmdlRIKernelTaskGetAttribute(w.captured_model.kernel, Attribute(0),
                                                 w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(107000, aclmdlRIKernelTaskGetAttribute(w.captured_model.kernel, Attribute(-1),
                                                 w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(107000, aclmdlRIKernelTaskGetAttribute(w.captured_model.in_group, Attribute(INT_MAX),
                                                 w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(0, aclmdlRIKernelTaskGetAttribute(w.captured_model.in_group, kSchemMode,
                                            w.out.As<aclrtLaunchKernelAttrValue>())),
      ROW(0, aclmdlRITaskGetParams(w.captured_model.in_group, w.out.As<aclmdlRITaskParams>())),
      ROW(0, aclmdlRITaskGetType(w.captured_model.fill, w.out.As<aclmdlRITaskType>())),
      ROW(0, aclmdlRITaskGetSeqId(w.captured_model.reset, w.out.As<uint32_t>())),
  });
}

TEST_F(GraphTasks, RefusedParametersSpoilTheModel) {
  using Task = aclmdlRITask Captured::*;
  const Task kernel = &Captured::kernel;
  const Task record = &Captured::record;
  const Task fill = &Captured::fill;
  // Types that nobody can set, and sets for tasks of another kind.
  for (const int type : {0, 2, 3, 4, 7, -1, INT_MAX}) {
    aclmdlRITaskParams params = KernelParams();
    params.type = static_cast<aclmdlRITaskType>(type);
    Faults(107000, kernel, params, "type " + std::to_string(type));
  }
  Faults(107000, record, KernelParams(), "kernel parameters of a record");
  Faults(107000, &Captured::value_write, KernelParams(), "kernel parameters of a value task");
  Faults(107000, fill, KernelParams(), "kernel parameters of a fill");
  Faults(107000, fill, WriteParams(), "value parameters of a fill");
  Faults(107000, fill, WaitParams(), "wait parameters of a fill");

  const auto kernel_with = [&](const std::string& what, int code, auto change) {
    aclmdlRITaskParams params = KernelParams();
    change(params, params.kernelTaskParams);
    Faults(code, kernel, params, what);
    if (!HasFailure()) Faults(code, &Captured::in_group, params, what + ", in a group");
  };
  kernel_with("taskGrp", 107000, [&](auto& p, auto&) { p.taskGrp = world_.captured_model.group; });
  kernel_with("no function", 107000, [](auto&, auto& k) { k.funcHandle = nullptr; });
  kernel_with("a stream for a function", 107017, [&](auto&, auto& k) { k.funcHandle = world_.stream; });
  kernel_with("an address for a function", 107017, [&](auto&, auto& k) { k.funcHandle = &world_.local; });
  kernel_with("no args", 107000, [](auto&, auto& k) { k.args = nullptr; });
  kernel_with("no argsSize", 107000, [](auto&, auto& k) { k.argsSize = 0; });
  kernel_with("fewer bytes than the parameters take", 107000, [](auto&, auto& k) { k.argsSize -= 8; });
  kernel_with("a large argsSize", 107000, [](auto&, auto& k) { k.argsSize = (64 << 10) + 1; });
  kernel_with("a huge argsSize", 107000, [](auto&, auto& k) { k.argsSize = SIZE_MAX; });
  kernel_with("no blocks", 107000, [](auto&, auto& k) { k.numBlocks = 0; });
  if (WildPointersAreSafe()) {
    for (const uintptr_t wild : {uintptr_t{8}, uintptr_t{1} << 63, UINTPTR_MAX - 7}) {
      kernel_with("wild args", 107000, [&](auto&, auto& k) { k.args = Address(wild); });
    }
  }
  aclrtLaunchKernelAttr attributes[2] = {};
  attributes[0].id = Attribute(99);
  aclrtLaunchKernelCfg unknown{attributes, 1};
  kernel_with("an unknown attribute", 107000, [&](auto&, auto& k) { k.cfg = &unknown; });
  aclrtLaunchKernelCfg none{nullptr, 1};
  kernel_with("no attributes", 107000, [&](auto&, auto& k) { k.cfg = &none; });
  aclrtLaunchKernelCfg many{attributes, SIZE_MAX};
  kernel_with("too many attributes", 107000, [&](auto&, auto& k) { k.cfg = &many; });

  const auto value_with = [&](const std::string& what, auto change) {
    for (const Task task : {kernel, record, &Captured::value_wait}) {
      aclmdlRITaskParams params = WriteParams();
      change(params, params.valueWriteTaskParams.devAddr);
      Faults(107000, task, params, "write: " + what);
      params = WaitParams();
      change(params, params.valueWaitTaskParams.devAddr);
      Faults(107000, task, params, "wait: " + what);
    }
  };
  value_with("taskGrp", [&](auto& p, auto&) { p.taskGrp = world_.captured_model.group; });
  value_with("opInfoPtr", [&](auto& p, auto&) { p.opInfoPtr = &world_.local; });
  value_with("no address", [](auto&, auto& address) { address = nullptr; });
  value_with("address of a variable", [&](auto&, auto& address) { address = &world_.local; });
  value_with("odd address", [&](auto&, auto& address) { address = static_cast<char*>(world_.memory) + 4; });
  value_with("wild address", [&](auto&, auto& address) { address = Address(UINTPTR_MAX - 7); });
  for (const uint32_t flag : {4U, UINT32_MAX}) {
    aclmdlRITaskParams params = WaitParams();
    params.valueWaitTaskParams.flag = flag;
    Faults(107000, &Captured::value_wait, params, "flag " + std::to_string(flag));
  }
  StillWorks();
}

TEST_F(GraphTasks, DisablingWhatCannotBe) {
  Capture(world_.own);
  EXPECT_ACL(107000, aclmdlRITaskDisable(world_.own.fill));
  IsFaulty();
  // Twice is fine, and a disabled edge does not make anybody wait for ever.
  Capture(world_.own);
  const Captured& own = world_.own;
  for (const aclmdlRITask task : {own.kernel, own.kernel, own.record, own.wait, own.reset}) {
    EXPECT_ACL(0, aclmdlRITaskDisable(task));
  }
  EXPECT_ACL(507011, aclmdlRIExecuteAsync(own.model, world_.stream));
  EXPECT_ACL(0, aclmdlRIUpdate(own.model));
  EXPECT_ACL(0, aclmdlRIExecuteAsync(own.model, world_.stream));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world_.stream, kPatience));
  EXPECT_EQ(*own.cell, Captured::kAdds - 1);
  EXPECT_ACL(0, aclmdlRIDestroy(own.model));
  StillWorks();
}

TEST_F(GraphTasks, WrongStates) {
  World& world = world_;
  world.params = KernelParams();
  // While it is being captured: seen, but not changed.
  Open();
  aclrtStream lanes[2] = {};
  uint32_t count = 2;
  MUST(aclmdlRIGetStreams(world.open_model, lanes, &count));
  world.task = TasksOf(lanes[1])[0];
  RunRows({
      ROW(107040, aclmdlRITaskSetParams(w.task, &w.params)),
      ROW(107040, aclmdlRITaskDisable(w.task)),
      ROW(107040, aclmdlRIUpdate(w.open_model)),
      ROW(0, aclmdlRITaskGetType(w.task, w.out.As<aclmdlRITaskType>())),
      ROW(0, aclmdlRITaskGetSeqId(w.task, w.out.As<uint32_t>())),
      ROW(0, aclmdlRIGetStreams(w.open_model, nullptr, w.out.As<uint32_t>())),
  });
  const aclmdlRITask old = world.task;
  const aclrtStream old_lane = lanes[1];
  Close();
  EXPECT_ACL(107017, aclmdlRITaskDisable(old));
  EXPECT_ACL(107017, aclmdlRIGetTasksByStream(old_lane, nullptr, &count));
  // While it executes.
  world.task = world.captured_model.kernel;
  Gate gate;
  gate.Block(world.stream);
  EXPECT_ACL(0, aclmdlRIExecuteAsync(world.model, world.stream));
  RunRows({
      ROW(107040, aclmdlRITaskSetParams(w.task, &w.params)),
      ROW(107040, aclmdlRITaskDisable(w.task)),
      ROW(107040, aclmdlRITaskDisable(w.captured_model.fill)),
      ROW(107040, aclmdlRIUpdate(w.model)),
      ROW(0, aclmdlRITaskGetParams(w.task, w.out.As<aclmdlRITaskParams>())),
  });
  gate.Open();
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world.stream, kPatience));
  StillWorks();
  // Changed and not yet updated.
  Capture(world.own);
  EXPECT_ACL(0, aclmdlRITaskSetParams(world.own.kernel, &world.params));
  RunRows({
      ROW(507011, aclmdlRIExecuteAsync(w.own.model, w.stream)),
      ROW(0, aclmdlRITaskSetParams(w.own.kernel, &w.params)),
      ROW(0, aclmdlRISetName(w.own.model, "changed")),
      ROW(0, aclmdlRIUpdate(w.own.model)),
      ROW(0, aclmdlRIUpdate(w.own.model)),
      ROW(0, aclmdlRIExecuteAsync(w.own.model, w.stream)),
  });
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world.stream, kPatience));
  EXPECT_EQ(*world.own.cell, Captured::kAdds - 1);
  EXPECT_EQ(*world.cell, 1U);
  EXPECT_ACL(0, aclmdlRIDestroy(world.own.model));
}

// Stale task handles of many models that took the same place.
TEST_F(GraphTasks, TasksOfModelsThatAreGone) {
  for (int i = 0; i < 12; ++i) {
    Captured gone;
    Capture(gone);
    EXPECT_ACL(0, aclmdlRIDestroy(gone.model));
    Captured next;
    Capture(next);
    aclmdlRITaskType type = ACL_MODEL_RI_TASK_DEFAULT;
    EXPECT_ACL(107017, aclmdlRITaskGetType(gone.kernel, &type));
    EXPECT_ACL(107017, aclmdlRITaskDisable(gone.kernel));
    EXPECT_ACL(107017, aclmdlRIGetTasksByStream(gone.lane, nullptr, &world_.count));
    EXPECT_ACL(0, aclmdlRITaskGetType(next.kernel, &type));
    EXPECT_EQ(type, ACL_MODEL_RI_TASK_KERNEL);
    EXPECT_ACL(0, aclmdlRIDestroy(next.model));
  }
  StillWorks();
}

// ---------------------------------------------------------------------------------------------------------------------

TEST_F(GraphTasks, RandomArguments) {
  World& w = world_;
  // Models that the calls change are not executed: what a random value task waits for need not come.
  std::vector<Captured> own(3);
  std::vector<void*> tasks;
  std::vector<void*> lanes;
  std::vector<void*> models;
  const std::vector<Handle> bad = w.BadHandles("anything");
  const auto collect = [&] {
    tasks = {nullptr};
    lanes = {nullptr, w.captured_model.lane, w.bound};
    models = {nullptr, w.model, w.built, w.body, w.fresh, w.foreign_model};
    for (const Captured& c : own) {
      for (const aclmdlRITask task :
           {c.kernel, c.in_group, c.record, c.wait, c.reset, c.value_write, c.value_wait, c.fill}) {
        tasks.push_back(task);
      }
      lanes.insert(lanes.end(), {c.lane, c.forked_lane});
      models.insert(models.end(), 2, c.model);
    }
  };
  const std::vector<void*> addresses = {nullptr, w.memory, w.memory, w.pinned, static_cast<char*>(w.memory) + 1,
                                        &w.local};
  const std::vector<size_t> sizes = {0, 1, 8, 16, 16, 16, 16, 64 << 10, SIZE_MAX};
  std::vector<char> large(64 << 10);  // as long as the longest argument block that is read
  const std::vector<int> enums = {0, 1, 1, 1, 2, 3, 4, 5, 5, 6, 6, 7, -1, INT_MAX};
  for (const uint64_t seed : Seeds(Loops(6, 2))) {
    for (Captured& c : own) Capture(c);
    collect();
    const auto any = [&](Dice& d, const std::vector<void*>& good) {
      // World's own task is for looking only, so it is not among what is passed to calls that change.
      void* handle = d.Below(4) == 0 ? d.Pick(bad).handle : d.Pick(good);
      return handle == w.captured_model.kernel ? nullptr : handle;
    };
    const std::vector<RandomCall> calls = {
        {"aclmdlRIGetStreams",
         [&](Dice& d) {
           void* out[8];
           auto count = static_cast<uint32_t>(d.Below(9));
           return aclmdlRIGetStreams(any(d, models), d.Below(3) == 0 ? nullptr : out,
                                     d.Below(8) == 0 ? nullptr : &count);
         }},
        {"aclmdlRIGetTasksByStream",
         [&](Dice& d) {
           void* out[32];
           auto count = static_cast<uint32_t>(d.Below(33));
           return aclmdlRIGetTasksByStream(any(d, lanes), d.Below(3) == 0 ? nullptr : out,
                                           d.Below(8) == 0 ? nullptr : &count);
         }},
        {"aclmdlRITaskGetType",
         [&](Dice& d) {
           aclmdlRITaskType out = ACL_MODEL_RI_TASK_DEFAULT;
           return aclmdlRITaskGetType(any(d, tasks), d.Below(4) == 0 ? nullptr : &out);
         }},
        {"aclmdlRITaskGetSeqId",
         [&](Dice& d) {
           uint32_t out = 0;
           return aclmdlRITaskGetSeqId(any(d, tasks), d.Below(4) == 0 ? nullptr : &out);
         }},
        {"aclmdlRITaskGetParams",
         [&](Dice& d) {
           aclmdlRITaskParams out;
           return aclmdlRITaskGetParams(any(d, tasks), d.Below(4) == 0 ? nullptr : &out);
         }},
        {"aclmdlRITaskSetParams",
         [&](Dice& d) {
           aclmdlRITaskParams params{};
           const void* task = any(d, tasks);
           if (d.Below(2) == 0) {  // what the task has is always accepted
             (void)aclmdlRITaskGetParams(const_cast<void*>(task), &params);
             DropMessage();
             params.taskGrp = nullptr;
             params.opInfoPtr = nullptr;
           } else {
             params.type = d.PickEnum<aclmdlRITaskType>(enums);
             if (params.type == ACL_MODEL_RI_TASK_KERNEL) {
               params.kernelTaskParams.funcHandle =
                   d.Below(4) == 0 ? d.Pick(bad).handle : d.Pick(std::vector<void*>{w.add, w.cube_add, w.aicpu_add});
               params.kernelTaskParams.args = d.Below(8) == 0 ? nullptr : large.data();
               params.kernelTaskParams.isHostArgs = static_cast<uint32_t>(d.Below(3));
               params.kernelTaskParams.argsSize = d.Pick(sizes);
               params.kernelTaskParams.numBlocks = static_cast<uint32_t>(d.Below(4));
             } else {
               params.valueWaitTaskParams.devAddr = d.Pick(addresses);
               params.valueWaitTaskParams.flag = static_cast<uint32_t>(d.Below(6));
             }
             if (d.Below(8) == 0) params.taskGrp = d.Pick(bad).handle;
           }
           return aclmdlRITaskSetParams(const_cast<void*>(task), d.Below(8) == 0 ? nullptr : &params);
         }},
        {"aclmdlRITaskDisable", [&](Dice& d) { return d.Below(4) == 0 ? aclmdlRITaskDisable(any(d, tasks)) : 0; }},
        {"aclmdlRIUpdate", [&](Dice& d) { return aclmdlRIUpdate(any(d, models)); }},
        {"aclmdlRIKernelTaskGetAttribute",
         [&](Dice& d) {
           aclrtLaunchKernelAttrValue out;
           return aclmdlRIKernelTaskGetAttribute(any(d, tasks), d.PickEnum<aclrtLaunchKernelAttrId>(enums),
                                                 d.Below(4) == 0 ? nullptr : &out);
         }},
        {"aclmdlRIDebugJsonPrint", [&](Dice& d) { return aclmdlRIDebugJsonPrint(any(d, models), "/dev/null", 1); }},
    };
    int steps = 0;
    RunRandomCalls(seed, Loops(4000, 800), calls, [&] {
      if (++steps % 32 != 0) return;
      // Faulty models make room for new ones; the handles of their tasks stay in play for a while.
      for (Captured& c : own) {
        if (aclmdlRIUpdate(c.model) == 0) continue;
        DropMessage();
        EXPECT_ACL(0, aclmdlRIDestroy(c.model));
        Capture(c);
      }
      if (steps % 128 == 0) collect();
    });
    if (HasFailure()) break;
    for (const Captured& c : own) EXPECT_ACL(0, aclmdlRIDestroy(c.model));
    StillWorks();
  }
}

}  // namespace
}  // namespace reprise::testing
