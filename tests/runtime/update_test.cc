// SPDX-License-Identifier: Apache-2.0
//
// Changes of captured graphs in place: random programs of parameter sets, disables, group updates and executions
// against a sequential model, and updates of groups while their graph runs.
#include <reprise/kernel.h>

#include <atomic>
#include <random>

#include "../unit/scale.h"
#include "fixture.h"

namespace reprise::testing {
namespace {

// Appends a mark for each block, which may run at the same time: [0] entries written, then the entries.
void AppendMark(uint64_t* log, uint64_t value) { log[1 + std::atomic_ref<uint64_t>(log[0]).fetch_add(1)] = value; }
REPRISE_KERNEL(mark, REPRISE_KERNEL_VECTOR, (uint64_t * log, uint64_t value)) { AppendMark(log, value); }
REPRISE_KERNEL(mark_more, REPRISE_KERNEL_VECTOR, (uint64_t * log, uint64_t value)) { AppendMark(log, 1000 + value); }
// All of a pair must come from one update.
REPRISE_KERNEL(pair, REPRISE_KERNEL_VECTOR, (uint64_t * wrong, uint64_t a, uint64_t b, uint64_t c)) {
  if (b != ~a || c != a) ++*wrong;
}
const RepriseKernelDesc kKernels[] = {mark_desc, mark_more_desc, pair_desc};
const RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 3, kKernels};
constexpr char kKey[] = "update_test";

class Update : public Runtime {
 protected:
  static void SetUpTestSuite() {
    static const int32_t registered = repriseRegisterKernels(kKey, &kTable);  // once for all suites
    EXPECT_EQ(0, registered);
  }
  void SetUp() override {
    Runtime::SetUp();
    MUST(aclrtBinaryLoadFromData(kKey, sizeof kKey, nullptr, &binary_));
    MUST(aclrtBinaryGetFunction(binary_, "mark", &mark_));
    MUST(aclrtBinaryGetFunction(binary_, "mark_more", &mark_more_));
    MUST(aclrtBinaryGetFunction(binary_, "pair", &pair_));
    stream_ = NewStream();
    forked_ = NewStream();
    other_ = NewStream();
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtSynchronizeDevice());
    for (aclrtStream stream : {stream_, forked_, other_}) EXPECT_EQ(0, aclrtDestroyStream(stream));
    EXPECT_EQ(0, aclrtBinaryUnLoad(binary_));
    Runtime::TearDown();
  }

  template <class... Args>
  static int Launch(aclrtStream stream, aclrtFuncHandle function, Args... args) {
    uint64_t block[] = {Word(args)...};
    return aclrtLaunchKernelWithHostArgs(function, 1, stream, nullptr, block, sizeof block, nullptr, 0);
  }
  template <class... Args>
  static int SetKernel(aclmdlRITask task, aclrtFuncHandle function, uint32_t blocks, Args... args) {
    uint64_t block[] = {Word(args)...};
    aclmdlRITaskParams params{};
    params.type = ACL_MODEL_RI_TASK_KERNEL;
    params.kernelTaskParams.funcHandle = function;
    params.kernelTaskParams.args = block;
    params.kernelTaskParams.isHostArgs = 1;
    params.kernelTaskParams.argsSize = sizeof block;
    params.kernelTaskParams.numBlocks = blocks;
    return aclmdlRITaskSetParams(task, &params);
  }
  static int SetValueWrite(aclmdlRITask task, uint64_t* cell, uint64_t value) {
    aclmdlRITaskParams params{};
    params.type = ACL_MODEL_RI_TASK_VALUE_WRITE;
    params.valueWriteTaskParams.devAddr = cell;
    params.valueWriteTaskParams.value = value;
    return aclmdlRITaskSetParams(task, &params);
  }
  static int SetValueWait(aclmdlRITask task, uint64_t* cell, uint64_t at_least) {
    aclmdlRITaskParams params{};
    params.type = ACL_MODEL_RI_TASK_VALUE_WAIT;
    params.valueWaitTaskParams.devAddr = cell;
    params.valueWaitTaskParams.value = at_least;
    return aclmdlRITaskSetParams(task, &params);
  }
  static uint64_t Word(uint64_t value) { return value; }
  static uint64_t Word(const void* address) { return reinterpret_cast<uintptr_t>(address); }

  /// The tasks of the graph's streams; the origin's last.
  static std::vector<std::vector<aclmdlRITask>> TasksOf(aclmdlRI model) {
    uint32_t count = 0;
    EXPECT_EQ(0, aclmdlRIGetStreams(model, nullptr, &count));
    std::vector<aclrtStream> streams(count);
    EXPECT_EQ(0, aclmdlRIGetStreams(model, streams.data(), &count));
    std::vector<std::vector<aclmdlRITask>> tasks;
    for (aclrtStream stream : streams) {
      EXPECT_EQ(0, aclmdlRIGetTasksByStream(stream, nullptr, &count));
      tasks.emplace_back(count);
      EXPECT_EQ(0, aclmdlRIGetTasksByStream(stream, tasks.back().data(), &count));
    }
    return tasks;
  }

  aclrtBinHandle binary_ = nullptr;
  aclrtFuncHandle mark_ = nullptr;
  aclrtFuncHandle mark_more_ = nullptr;
  aclrtFuncHandle pair_ = nullptr;
  aclrtStream stream_ = nullptr;
  aclrtStream forked_ = nullptr;
  aclrtStream other_ = nullptr;
};

// A graph of one or two streams, and what its executions should write.
class Program {
 public:
  struct Task {
    enum Kind { kMark, kEdge, kWrite, kWait } kind;
    int lane;
    uint64_t mark = 0;  // or the value written
    int cell = 0;
    int group = -1;  // whose updates reach it
    bool disabled = false;
    aclmdlRITask handle = nullptr;
  };
  struct Group {
    aclrtTaskGrp handle;
    std::vector<size_t> tasks;
  };

  std::vector<Task> tasks;
  std::vector<Group> groups;
  std::vector<std::vector<uint64_t>> logs{2};  // of both streams, since they were last looked at
  std::vector<uint64_t> cells;

  void Execute() {
    for (const Task& task : tasks) {
      if (task.disabled) continue;
      if (task.kind == Task::kMark) logs[static_cast<size_t>(task.lane)].push_back(task.mark);
      if (task.kind == Task::kWrite) cells[static_cast<size_t>(task.cell)] = task.mark;
    }
  }
};

TEST_F(Update, RandomProgramsMatchASequentialModel) {
  constexpr size_t kCells = 40;
  constexpr size_t kLogWords = 1 << 14;
  uint64_t* logs[2] = {static_cast<uint64_t*>(NewMemory(kLogWords * 8)),
                       static_cast<uint64_t*>(NewMemory(kLogWords * 8))};
  auto* cells = static_cast<uint64_t*>(NewMemory(kCells * 8));
  int updates = 0;
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(250, 25)); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Program program;
    program.cells.assign(kCells, 0);
    std::fill(cells, cells + kCells, 0);
    uint64_t next_mark = 1;
    size_t next_cell = 0;

    // Capture: marks alone, marks in groups, and now and then an edge to the other stream and back.
    const bool forks = random() % 2 == 0;
    aclrtEvent there = nullptr;
    aclrtEvent back = nullptr;
    MUST(aclrtCreateEventExWithFlag(&there, ACL_EVENT_SYNC));
    MUST(aclrtCreateEventExWithFlag(&back, ACL_EVENT_SYNC));
    using Task = Program::Task;
    MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    const auto edge = [&](aclrtEvent event, aclrtStream from, int from_lane, aclrtStream to, int to_lane) {
      MUST(aclrtRecordEvent(event, from));
      MUST(aclrtStreamWaitEvent(to, event));
      program.tasks.push_back({Task::kEdge, from_lane});
      program.tasks.push_back({Task::kEdge, to_lane});
    };
    const auto mark = [&](int lane, int group) {
      MUST(Launch(lane == 0 ? stream_ : forked_, mark_, logs[lane], next_mark));
      program.tasks.push_back({Task::kMark, lane, next_mark++, 0, group});
    };
    const size_t parts = 1 + random() % 12;
    if (forks) edge(there, stream_, 0, forked_, 1);
    for (size_t i = 0; i < parts; ++i) {
      const int lane = forks ? static_cast<int>(random() % 2) : 0;
      switch (random() % 4) {
        case 0: {
          aclrtStream stream = lane == 0 ? stream_ : forked_;
          const int group = static_cast<int>(program.groups.size());
          program.groups.push_back({});
          MUST(aclmdlRICaptureTaskGrpBegin(stream));
          for (size_t k = 1 + random() % 3; k != 0; --k) {
            program.groups.back().tasks.push_back(program.tasks.size());
            mark(lane, group);
          }
          MUST(aclmdlRICaptureTaskGrpEnd(stream, &program.groups.back().handle));
          break;
        }
        case 1:
          if (forks) {
            edge(back, forked_, 1, stream_, 0);
            edge(there, stream_, 0, forked_, 1);
            break;
          }
          [[fallthrough]];
        default: mark(lane, -1);
      }
    }
    if (forks) edge(back, forked_, 1, stream_, 0);
    aclmdlRI model = nullptr;
    MUST(aclmdlRICaptureEnd(stream_, &model));
    std::vector<std::vector<aclmdlRITask>> handles = TasksOf(model);
    size_t position[2] = {0, 0};
    for (Task& task : program.tasks) {
      const size_t lane = static_cast<size_t>(task.lane);
      task.handle = handles[handles.size() - 1 - lane][position[lane]++];
    }

    const auto execute = [&] {
      EXPECT_ACL(0, aclmdlRIExecuteAsync(model, stream_));
      program.Execute();
    };
    const auto check = [&] {
      MUST(aclrtSynchronizeStream(stream_));
      for (size_t lane = 0; lane < 2; ++lane) {
        const std::vector<uint64_t> got(logs[lane] + 1, logs[lane] + 1 + logs[lane][0]);
        ASSERT_EQ(got, program.logs[lane]) << "stream " << lane;
        logs[lane][0] = 0;
        program.logs[lane].clear();
      }
      ASSERT_EQ(std::vector<uint64_t>(cells, cells + kCells), program.cells);
    };
    // A change of any task; the graph must be idle.
    const auto change = [&] {
      Task& task = program.tasks[random() % program.tasks.size()];
      const uint32_t what = random() % 8;
      if (what == 0) {
        EXPECT_ACL(0, aclmdlRITaskDisable(task.handle));
        // What a disabled edge orders stays in order; there is nothing else to it.
        task.disabled = true;
        return;
      }
      if (task.kind == Task::kMark && what < 5) {
        const bool more = random() % 2 == 0;
        EXPECT_ACL(0, SetKernel(task.handle, more ? mark_more_ : mark_, 1, logs[task.lane], next_mark));
        task.mark = next_mark++ + (more ? 1000 : 0);
        return;
      }
      if (what == 5) {
        EXPECT_ACL(0, SetValueWait(task.handle, cells, 0));  // which holds always
        task = {Task::kWait, task.lane, 0, 0, -1, task.disabled, task.handle};
        return;
      }
      const size_t cell = task.kind == Task::kWrite ? static_cast<size_t>(task.cell) : next_cell;
      if (cell == kCells) return;
      if (cell == next_cell) ++next_cell;
      EXPECT_ACL(0, SetValueWrite(task.handle, cells + cell, next_mark));
      task = {Task::kWrite, task.lane, next_mark++, static_cast<int>(cell), -1, task.disabled, task.handle};
    };

    for (int step = 0; step < 24; ++step) {
      switch (random() % 5) {
        case 0:
        case 1: execute(); break;
        case 2: {
          if (program.groups.empty()) break;
          // Between executions that have not begun yet, in the order of the stream.
          const auto g = static_cast<int>(random() % program.groups.size());
          const Program::Group& group = program.groups[static_cast<size_t>(g)];
          EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(stream_, group.handle));
          for (const size_t index : group.tasks) {
            Task& task = program.tasks[index];
            EXPECT_ACL(0, Launch(stream_, mark_, logs[task.lane], next_mark));
            if (task.group == g) task.mark = next_mark;  // else the task is no kernel any more
            ++next_mark;
          }
          EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(stream_));
          break;
        }
        case 3: {
          check();
          const size_t changes = 1 + random() % 4;
          for (size_t i = 0; i < changes; ++i) change();
          EXPECT_ACL(0, aclmdlRIUpdate(model));
          ++updates;
          break;
        }
        default: {
          // A change is refused while an execution is pending, and leaves everything as it was.
          check();
          Gate gate;
          gate.Block(stream_);
          execute();
          EXPECT_TRUE(CheckAcl(107040, SetKernel(program.tasks[0].handle, mark_, 1, logs[0], uint64_t{0}),
                               "aclmdlRITaskSetParams"));
          EXPECT_ACL(107040, aclmdlRITaskDisable(program.tasks.back().handle));
          gate.Open();
          check();
        }
      }
      if (HasFatalFailure()) return;
    }
    check();
    if (HasFatalFailure()) return;
    MUST(aclmdlRIDestroy(model));
    MUST(aclrtDestroyEvent(there));
    MUST(aclrtDestroyEvent(back));
  }
  EXPECT_GT(updates, 0);
  for (void* block : {static_cast<void*>(logs[0]), static_cast<void*>(logs[1]), static_cast<void*>(cells)}) {
    EXPECT_EQ(0, aclrtFree(block));
  }
}

TEST_F(Update, AChangedGraphRunsAfterItsUpdateOnly) {
  auto* log = static_cast<uint64_t*>(NewMemory(4096));
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  for (uint64_t i = 1; i <= 3; ++i) MUST(Launch(stream_, mark_, log, i));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  const auto tasks = TasksOf(model).back();
  const auto run = [&] {
    log[0] = 0;
    EXPECT_EQ(0, aclmdlRIExecuteAsync(model, stream_));
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
    return std::vector<uint64_t>(log + 1, log + 1 + log[0]);
  };
  EXPECT_ACL(0, SetKernel(tasks[1], mark_more_, 1, log, uint64_t{2}));
  EXPECT_ACL(507011, aclmdlRIExecuteAsync(model, stream_));
  EXPECT_ACL(0, aclmdlRIUpdate(model));
  EXPECT_THAT(run(), ::testing::ElementsAre(1, 1002, 3));
  EXPECT_ACL(0, aclmdlRITaskDisable(tasks[0]));
  EXPECT_ACL(0, aclmdlRITaskDisable(tasks[1]));
  EXPECT_ACL(0, aclmdlRITaskDisable(tasks[2]));
  EXPECT_ACL(0, aclmdlRIUpdate(model));
  EXPECT_THAT(run(), ::testing::IsEmpty());
  // Another number of blocks: first a call like the others, then not.
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  for (uint64_t i = 1; i <= 3; ++i) MUST(Launch(stream_, mark_, log, i));
  MUST(aclmdlRICaptureEnd(stream_, &model));
  const auto again = TasksOf(model).back();
  for (const uint32_t blocks : {1u, 3u, 1u}) {
    EXPECT_ACL(0, SetKernel(again[1], mark_, blocks, log, uint64_t{5}));
    EXPECT_ACL(0, aclmdlRIUpdate(model));
    std::vector<uint64_t> expected(blocks, 5);
    expected.insert(expected.begin(), 1);
    expected.push_back(3);
    EXPECT_EQ(run(), expected);
  }
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  EXPECT_EQ(0, aclrtFree(log));
}

TEST_F(Update, TheArgumentsOfATaskMayBeThoseItHas) {
  // What GetParams tells as the address of the arguments may be given to SetParams again.
  auto* log = static_cast<uint64_t*>(NewMemory(4096));
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  MUST(Launch(stream_, mark_, log, uint64_t{7}));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  const aclmdlRITask task = TasksOf(model).back()[0];
  for (aclrtFuncHandle kernel : {mark_more_, mark_, mark_, mark_more_, mark_more_}) {
    aclmdlRITaskParams params{};
    MUST(aclmdlRITaskGetParams(task, &params));
    params.kernelTaskParams.funcHandle = kernel;
    EXPECT_ACL(0, aclmdlRITaskSetParams(task, &params));
    EXPECT_ACL(0, aclmdlRIUpdate(model));
    MUST(aclmdlRIExecuteAsync(model, stream_));
    MUST(aclrtSynchronizeStream(stream_));
  }
  EXPECT_EQ(std::vector<uint64_t>(log, log + 6), (std::vector<uint64_t>{5, 1007, 7, 7, 1007, 1007}));
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  EXPECT_EQ(0, aclrtFree(log));
}

// A graph that names freed memory is refused; what its tasks named before a change does not count, what they name after
// it does.
TEST_F(Update, ChangedTasksAnswerForTheMemoryThatTheyNameNow) {
  auto* kept = static_cast<uint64_t*>(NewMemory(4096));
  auto* old = static_cast<uint64_t*>(NewMemory(4096));
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  MUST(Launch(stream_, mark_, kept, uint64_t{1}));
  for (int i = 0; i < 3; ++i) MUST(Launch(stream_, mark_, old, uint64_t{2}));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  const auto tasks = TasksOf(model).back();
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(0, aclrtFree(NewMemory(1 << 20)));  // looks at all tasks
    EXPECT_ACL(0, aclmdlRIExecuteAsync(model, stream_));
    MUST(aclrtSynchronizeStream(stream_));
    auto* next = static_cast<uint64_t*>(NewMemory(4096));
    EXPECT_ACL(0, SetKernel(tasks[1], mark_, 1, next, uint64_t{3}));
    EXPECT_ACL(0, SetValueWrite(tasks[2], next + 100, 4));
    if (round == 0) {
      EXPECT_ACL(0, aclmdlRITaskDisable(tasks[3]));
    }
    EXPECT_ACL(0, aclmdlRIUpdate(model));
    EXPECT_EQ(0, aclrtFree(old));
    EXPECT_ACL(0, aclmdlRIExecuteAsync(model, stream_));
    MUST(aclrtSynchronizeStream(stream_));
    EXPECT_EQ(next[1], 3u);
    EXPECT_EQ(next[100], 4u);
    old = next;
  }
  EXPECT_EQ(0, aclrtFree(old));
  DropMessage();
  EXPECT_EQ(107000, aclmdlRIExecuteAsync(model, stream_));
  const char* message = aclGetRecentErrMsg();
  ASSERT_NE(message, nullptr);
  EXPECT_THAT(std::string(message), ::testing::HasSubstr("task 1 of its stream"));
  // Once more, and again whenever it is asked.
  EXPECT_ACL(107000, aclmdlRIExecuteAsync(model, stream_));
  EXPECT_ACL(0, SetKernel(tasks[1], mark_, 1, kept, uint64_t{5}));
  EXPECT_ACL(0, SetValueWrite(tasks[2], kept + 100, 6));
  EXPECT_ACL(0, aclmdlRIUpdate(model));
  EXPECT_ACL(0, aclmdlRIExecuteAsync(model, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(kept[100], 6u);
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  EXPECT_EQ(0, aclrtFree(kept));
}

// Another stream replaces the kernels of a group all the time while the graph is executed all the time.
TEST_F(Update, NoRunSeesTheArgumentsOfTwoUpdates) {
  auto* wrong = static_cast<uint64_t*>(NewMemory(64));
  aclrtEvent there = nullptr;
  aclrtEvent back = nullptr;
  MUST(aclrtCreateEventExWithFlag(&there, ACL_EVENT_SYNC));
  MUST(aclrtCreateEventExWithFlag(&back, ACL_EVENT_SYNC));
  constexpr int kLaunches = 5;
  aclrtTaskGrp groups[2] = {};
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  MUST(aclrtRecordEvent(there, stream_));
  MUST(aclrtStreamWaitEvent(forked_, there));
  for (int g = 0; g < 2; ++g) {
    aclrtStream stream = g == 0 ? stream_ : forked_;
    MUST(aclmdlRICaptureTaskGrpBegin(stream));
    for (int i = 0; i < kLaunches; ++i) MUST(Launch(stream, pair_, wrong + g, uint64_t{0}, ~uint64_t{0}, uint64_t{0}));
    MUST(aclmdlRICaptureTaskGrpEnd(stream, &groups[g]));
  }
  MUST(aclrtRecordEvent(back, forked_));
  MUST(aclrtStreamWaitEvent(stream_, back));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));

  std::atomic<bool> done{false};
  std::thread updater([&] {
    EXPECT_EQ(0, aclrtSetDevice(0));
    for (uint64_t value = 1; !done.load(); ++value) {
      const int g = static_cast<int>(value % 2);
      // In its turn, or at once where there is nothing to wait for.
      if (value % 4 < 2) {
        EXPECT_EQ(0, aclrtValueWrite(wrong + 2, value, 0, other_));
      }
      EXPECT_EQ(0, aclmdlRICaptureTaskUpdateBegin(other_, groups[g]));
      for (int i = 0; i < kLaunches; ++i) EXPECT_EQ(0, Launch(other_, pair_, wrong + g, value, ~value, value));
      EXPECT_EQ(0, aclmdlRICaptureTaskUpdateEnd(other_));
      if (value % 64 == 0) {
        EXPECT_EQ(0, aclrtSynchronizeStream(other_));
      }
    }
    EXPECT_EQ(0, aclrtSynchronizeStream(other_));
  });
  for (int i = 0; i < Loops(4000, 400); ++i) {
    EXPECT_EQ(0, aclmdlRIExecuteAsync(model, stream_));
    if (i % 16 == 0) {
      EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
    }
  }
  EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
  done = true;
  updater.join();
  EXPECT_EQ(wrong[0], 0u);
  EXPECT_EQ(wrong[1], 0u);
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  EXPECT_EQ(0, aclrtDestroyEvent(there));
  EXPECT_EQ(0, aclrtDestroyEvent(back));
  EXPECT_EQ(0, aclrtFree(wrong));
}

// A persistent stream stores the updates and applies them again at each execution of the model it is bound to.
TEST_F(Update, StoredUpdatesOfAGroupAreAppliedAgainAndAgain) {
  auto* log = static_cast<uint64_t*>(NewMemory(4096));
  aclrtTaskGrp group = nullptr;
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  MUST(aclmdlRICaptureTaskGrpBegin(stream_));
  MUST(Launch(stream_, mark_, log, uint64_t{1}));
  MUST(aclmdlRICaptureTaskGrpEnd(stream_, &group));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  aclrtStream stored = nullptr;
  MUST(aclrtCreateStreamWithConfig(&stored, 0, ACL_STREAM_PERSISTENT));
  for (const uint64_t value : {2, 3}) {
    EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(stored, group));
    EXPECT_ACL(0, Launch(stored, mark_, log, value));
    EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(stored));
  }
  aclmdlRI built = nullptr;
  MUST(aclmdlRIBuildBegin(&built, 0));
  MUST(aclmdlRIBindStream(built, stored, ACL_MODEL_STREAM_FLAG_HEAD));
  MUST(aclmdlRIEndTask(built, stored));
  MUST(aclmdlRIBuildEnd(built, nullptr));
  const auto run = [&](aclmdlRI which) {
    MUST(aclmdlRIExecuteAsync(which, stream_));
    MUST(aclrtSynchronizeStream(stream_));
  };
  run(model);
  for (int i = 0; i < 3; ++i) {
    run(built);
    run(model);
    EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(other_, group));
    EXPECT_ACL(0, Launch(other_, mark_, log, uint64_t{9}));
    EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(other_));
    MUST(aclrtSynchronizeStream(other_));
    run(model);
  }
  EXPECT_EQ(std::vector<uint64_t>(log + 1, log + 1 + log[0]), (std::vector<uint64_t>{1, 3, 9, 3, 9, 3, 9}));
  EXPECT_ACL(0, aclmdlRIDestroy(model));  // the stored updates keep what they need
  run(built);
  EXPECT_ACL(0, aclmdlRIDestroy(built));
  EXPECT_EQ(0, aclrtDestroyStream(stored));
  EXPECT_EQ(0, aclrtFree(log));
}

}  // namespace
}  // namespace reprise::testing
