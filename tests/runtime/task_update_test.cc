// SPDX-License-Identifier: Apache-2.0
//
// Updates of the stored tasks of built models.
#include <reprise/kernel.h>

#include <atomic>
#include <iterator>

#include "../unit/scale.h"
#include "fixture.h"

namespace reprise::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Kernels append a mark for each block: [0] entries written, then the entries. `data` may be a placeholder.
void Append(uint64_t* log, uint64_t mark) { log[1 + std::atomic_ref<uint64_t>(log[0]).fetch_add(1)] = mark; }
REPRISE_KERNEL(first, REPRISE_KERNEL_VECTOR, (uint64_t * log, const uint64_t* data)) { Append(log, 100 + *data); }
REPRISE_KERNEL(second, REPRISE_KERNEL_CUBE, (uint64_t * log, const uint64_t* data)) { Append(log, 200 + *data); }
REPRISE_KERNEL(on_cpu, REPRISE_KERNEL_AICPU, (uint64_t * log, const uint64_t* data)) { Append(log, 300 + *data); }

REPRISE_KERNEL(wide, REPRISE_KERNEL_VECTOR, (uint64_t * log, const uint64_t*, uint64_t)) { Append(log, 400); }

RepriseKernelDesc WithEntry(RepriseKernelDesc desc, uint64_t entry) {
  desc.entry = entry;
  return desc;
}
constexpr uint64_t kFirst = 11, kSecond = 22, kOnCpu = 33, kWide = 44;
const RepriseKernelDesc kKernels[] = {WithEntry(first_desc, kFirst), WithEntry(second_desc, kSecond),
                                      WithEntry(on_cpu_desc, kOnCpu), WithEntry(wide_desc, kWide)};
const RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 4, kKernels};
constexpr char kKey[] = "task_update_test";

template <class T>
aclrtRandomParaInfo Value(T value) {
  aclrtRandomParaInfo info{};
  info.size = sizeof value;
  std::memcpy(info.valueOrAddr, &value, sizeof value);
  return info;
}

class TaskUpdate : public Runtime {
 protected:
  static void SetUpTestSuite() {
    static const int32_t registered = repriseRegisterKernels(kKey, &kTable);  // once for all suites
    EXPECT_EQ(0, registered);
  }
  void SetUp() override {
    Runtime::SetUp();
    MUST(aclrtBinaryLoadFromData(kKey, sizeof kKey, nullptr, &binary_));
    MUST(aclrtBinaryGetFunction(binary_, "first", &first_));
    log_ = static_cast<uint64_t*>(NewMemory(kLogBytes));
    data_ = static_cast<uint64_t*>(NewMemory(8));
    entry_ = static_cast<uint64_t*>(NewMemory(8));
    blocks_ = static_cast<uint32_t*>(NewMemory(8));
    stream_ = NewStream();
    other_ = NewStream();
    MUST(aclrtCreateStreamWithConfig(&stored_, 0, ACL_STREAM_PERSISTENT));
    MUST(aclmdlRIBuildBegin(&model_, 0));
    MUST(aclmdlRIBindStream(model_, stored_, ACL_MODEL_STREAM_FLAG_HEAD));
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtSynchronizeDevice());
    EXPECT_EQ(0, aclmdlRIDestroy(model_));
    for (aclrtStream stream : {stored_, stream_, other_}) EXPECT_EQ(0, aclrtDestroyStream(stream));
    for (void* block : {static_cast<void*>(log_), static_cast<void*>(data_), static_cast<void*>(entry_),
                        static_cast<void*>(blocks_)}) {
      EXPECT_EQ(0, aclrtFree(block));
    }
    if (binary_ != nullptr) {
      EXPECT_EQ(0, aclrtBinaryUnLoad(binary_));
    }
    Runtime::TearDown();
  }

  // Stores a launch of `first`; returns its id.
  uint32_t StoreKernel(uint32_t blocks = 1) {
    uint64_t* args[] = {log_, data_};
    EXPECT_EQ(0, aclrtLaunchKernelWithHostArgs(first_, blocks, stored_, nullptr, args, sizeof args, nullptr, 0));
    return LastId();
  }
  static uint32_t LastId() {
    uint32_t id = 99;
    EXPECT_EQ(0, aclrtGetThreadLastTaskId(&id));
    return id;
  }
  void Build(aclrtStream last) {
    MUST(aclmdlRIEndTask(model_, last));
    MUST(aclmdlRIBuildEnd(model_, nullptr));
  }
  aclrtTaskUpdateInfo KernelInfo() const {
    aclrtTaskUpdateInfo info{};
    info.id = ACL_RT_UPDATE_AIC_AIV_TASK;
    info.val.aicAivTaskAttr.binHandle = binary_;
    info.val.aicAivTaskAttr.funcEntryAddr = entry_;
    info.val.aicAivTaskAttr.blockDimAddr = blocks_;
    return info;
  }
  std::vector<uint64_t> TakeLog() {
    std::vector<uint64_t> marks(log_ + 1, log_ + 1 + log_[0]);
    log_[0] = 0;
    return marks;
  }
  std::vector<uint64_t> RunAndTakeLog() {
    EXPECT_EQ(0, aclmdlRIExecuteAsync(model_, stream_));
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
    return TakeLog();
  }

  static constexpr size_t kLogBytes = 1 << 20;
  aclrtBinHandle binary_ = nullptr;
  aclrtFuncHandle first_ = nullptr;
  uint64_t* log_ = nullptr;
  uint64_t* data_ = nullptr;
  uint64_t* entry_ = nullptr;
  uint32_t* blocks_ = nullptr;
  aclrtStream stream_ = nullptr;
  aclrtStream other_ = nullptr;
  aclrtStream stored_ = nullptr;
  aclmdlRI model_ = nullptr;
};

TEST_F(TaskUpdate, StoredTasksAreCounted) {
  MUST(aclrtValueWrite(data_, 1, 0, stored_));
  EXPECT_EQ(LastId(), 0u);
  EXPECT_EQ(StoreKernel(), 1u);
  MUST(aclrtValueWrite(data_, 1, 0, stored_));
  EXPECT_EQ(LastId(), 2u);
}

TEST_F(TaskUpdate, KernelsChangeInTheOrderOfTheExecutingStream) {
  const uint32_t task = StoreKernel(2);
  Build(stored_);
  aclrtTaskUpdateInfo info = KernelInfo();
  Gate gate;
  gate.Block(stream_);
  MUST(aclmdlRIExecuteAsync(model_, stream_));
  MUST(aclrtValueWrite(entry_, kSecond, 0, stream_));  // the update reads what tasks before it have written
  MUST(aclrtValueWrite(blocks_, 3, 0, stream_));
  EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
  info = {};  // needed during the call alone
  MUST(aclrtValueWrite(entry_, 0, 0, stream_));
  MUST(aclmdlRIExecuteAsync(model_, stream_));
  gate.Open();
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_THAT(TakeLog(), ElementsAre(100, 100, 200, 200, 200));
  EXPECT_THAT(RunAndTakeLog(), ElementsAre(200, 200, 200));  // it stays
}

TEST_F(TaskUpdate, PartsCanStayAsTheyAre) {
  const uint32_t task = StoreKernel(2);
  Build(stored_);
  aclrtTaskUpdateInfo info = KernelInfo();
  *entry_ = kSecond;
  *blocks_ = 1;
  info.val.aicAivTaskAttr.blockDimAddr = nullptr;
  EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
  EXPECT_THAT(RunAndTakeLog(), ElementsAre(200, 200));
  info = KernelInfo();
  info.val.aicAivTaskAttr.binHandle = nullptr;
  info.val.aicAivTaskAttr.funcEntryAddr = nullptr;
  EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
  EXPECT_THAT(RunAndTakeLog(), ElementsAre(200));
}

TEST_F(TaskUpdate, AModelUpdatesItself) {
  // The head decides what the second stream runs, and starts it.
  aclrtStream second = nullptr;
  MUST(aclrtCreateStreamWithConfig(&second, 0, ACL_STREAM_PERSISTENT));
  MUST(aclmdlRIBindStream(model_, second, ACL_MODEL_STREAM_FLAG_DEFAULT));
  uint64_t* args[] = {log_, data_};
  MUST(aclrtLaunchKernelWithHostArgs(first_, 1, second, nullptr, args, sizeof args, nullptr, 0));
  const uint32_t task = LastId();
  auto* next = static_cast<uint64_t*>(NewMemory(8));
  aclrtTaskUpdateInfo info = KernelInfo();
  info.val.aicAivTaskAttr.blockDimAddr = nullptr;
  MUST(aclrtMemcpyAsync(entry_, 8, next, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, stored_));
  EXPECT_ACL(0, aclrtTaskUpdateAsync(second, task, &info, stored_));
  MUST(aclrtActiveStream(second, stored_));
  Build(second);
  EXPECT_THAT(TakeLog(), ElementsAre());  // nothing has run yet
  for (const uint64_t entry : {kSecond, kFirst, kSecond, kSecond}) {
    *next = entry;
    EXPECT_THAT(RunAndTakeLog(), ElementsAre(entry == kFirst ? 100 : 200));
  }
  EXPECT_EQ(0, aclmdlRIUnbindStream(model_, second));
  EXPECT_EQ(0, aclrtDestroyStream(second));
  EXPECT_EQ(0, aclrtFree(next));
}

TEST_F(TaskUpdate, DataBehindPlaceholdersStays) {
  struct {
    uint64_t* log;
    uint64_t* data;
    uint64_t value;
  } args = {log_, nullptr, 7};
  aclrtPlaceHolderInfo slot = {8, 16};
  MUST(aclrtLaunchKernelWithHostArgs(first_, 1, stored_, nullptr, &args, sizeof args, &slot, 1));
  const uint32_t task = LastId();
  Build(stored_);
  EXPECT_THAT(RunAndTakeLog(), ElementsAre(107));
  aclrtTaskUpdateInfo info = KernelInfo();
  for (const uint64_t entry : {kSecond, kFirst, kSecond}) {
    *entry_ = entry;
    *blocks_ = 2;
    EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
    const uint64_t mark = entry == kFirst ? 107 : 207;
    EXPECT_THAT(RunAndTakeLog(), ElementsAre(mark, mark));
  }
}

TEST_F(TaskUpdate, ArgumentsInDeviceMemoryStay) {
  auto* args = static_cast<uint64_t*>(NewMemory(16));
  args[0] = reinterpret_cast<uint64_t>(log_);
  args[1] = reinterpret_cast<uint64_t>(data_);
  MUST(aclrtLaunchKernel(first_, 1, args, 16, stored_));
  const uint32_t task = LastId();
  Build(stored_);
  *entry_ = kSecond;
  *blocks_ = 1;
  aclrtTaskUpdateInfo info = KernelInfo();
  EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
  *data_ = 5;
  EXPECT_THAT(RunAndTakeLog(), ElementsAre(205));
  EXPECT_EQ(0, aclrtFree(args));
}

TEST_F(TaskUpdate, UnloadedBinariesStayAsLongAsTheyAreNeeded) {
  const uint32_t task = StoreKernel();
  Build(stored_);
  *entry_ = kSecond;
  *blocks_ = 1;
  aclrtTaskUpdateInfo info = KernelInfo();
  Gate gate;
  gate.Block(stream_);
  EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
  MUST(aclrtBinaryUnLoad(binary_));
  gate.Open();
  EXPECT_THAT(RunAndTakeLog(), ElementsAre(200));
  EXPECT_ACL(107017, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
  binary_ = nullptr;
}

TEST_F(TaskUpdate, WrongKernelsFailTheUpdateAlone) {
  const uint32_t task = StoreKernel();
  Build(stored_);
  aclrtTaskUpdateInfo info = KernelInfo();
  const auto update = [&](uint64_t entry, uint32_t blocks) {
    *entry_ = entry;
    *blocks_ = blocks;
    EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
    return aclrtSynchronizeStream(stream_);
  };
  EXPECT_EQ(507027, update(77, 1));
  EXPECT_THAT(aclGetRecentErrMsg(), AllOf(HasSubstr("entry 77"), HasSubstr("22 (second)")));
  EXPECT_EQ(507027, update(0, 1));
  EXPECT_EQ(507009, update(kOnCpu, 1));
  EXPECT_EQ(507000, update(kSecond, 0));
  EXPECT_EQ(507000, update(kWide, 1));
  EXPECT_THAT(aclGetRecentErrMsg(), AllOf(HasSubstr("kernel wide has 3 parameters"), HasSubstr("passes 16 bytes")));
  EXPECT_THAT(RunAndTakeLog(), ElementsAre(100));
  EXPECT_EQ(0, update(kSecond, 1));
  EXPECT_THAT(RunAndTakeLog(), ElementsAre(200));
}

TEST_F(TaskUpdate, RunsUseTheOldContentOrTheNewOne) {
  constexpr uint32_t kBlocks = 3;
  const uint32_t task = StoreKernel(kBlocks);
  Build(stored_);
  auto* entries = static_cast<uint64_t*>(NewMemory(16));
  entries[0] = kFirst;
  entries[1] = kSecond;
  const int rounds = Loops(200, 50);
  std::thread updater([&] {
    EXPECT_EQ(0, aclrtSetDevice(0));
    aclrtTaskUpdateInfo info = KernelInfo();
    info.val.aicAivTaskAttr.blockDimAddr = nullptr;
    for (int i = 0; i < rounds; ++i) {
      info.val.aicAivTaskAttr.funcEntryAddr = entries + i % 2;
      ASSERT_EQ(0, aclrtTaskUpdateAsync(stored_, task, &info, other_));
    }
    EXPECT_EQ(0, aclrtSynchronizeStream(other_));
    EXPECT_EQ(0, aclrtResetDevice(0));
  });
  for (int i = 0; i < rounds; ++i) {
    const std::vector<uint64_t> marks = RunAndTakeLog();
    ASSERT_EQ(marks.size(), kBlocks);
    ASSERT_THAT(marks, AnyOf(Each(100), Each(200)));
  }
  updater.join();
  EXPECT_EQ(0, aclrtFree(entries));
}

// ---- Random numbers ----

class RandomUpdate : public TaskUpdate {
 protected:
  void SetUp() override {
    TaskUpdate::SetUp();
    result_ = static_cast<float*>(NewMemory(kCount * sizeof(float)));
    counter_ = static_cast<uint64_t*>(NewMemory(16));
    source_ = static_cast<aclrtRandomNumTaskInfo*>(NewMemory(sizeof(aclrtRandomNumTaskInfo)));
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtFree(result_));
    EXPECT_EQ(0, aclrtFree(counter_));
    EXPECT_EQ(0, aclrtFree(source_));
    TaskUpdate::TearDown();
  }
  aclrtRandomNumTaskInfo Uniform(float min, float max) const {
    aclrtRandomNumTaskInfo info{};
    info.dataType = ACL_FLOAT;
    info.randomNumFuncParaInfo.funcType = ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS;
    info.randomNumFuncParaInfo.paramInfo.uniformDisInfo = {Value(min), Value(max)};
    info.randomResultAddr = result_;
    info.randomCounterAddr = counter_;
    info.randomSeed = Value<uint64_t>(42);
    info.randomNum = Value<uint64_t>(kCount);
    return info;
  }
  aclrtTaskUpdateInfo Info(size_t size) const {
    aclrtTaskUpdateInfo info{};
    info.id = ACL_RT_UPDATE_RANDOM_TASK;
    info.val.randomTaskAttr.srcAddr = source_;
    info.val.randomTaskAttr.size = size;
    return info;
  }
  uint32_t Store() {
    const aclrtRandomNumTaskInfo info = Uniform(0.0f, 1.0f);
    EXPECT_EQ(0, aclrtRandomNumAsync(&info, stored_, nullptr));
    return LastId();
  }
  // Smallest and largest number of a run.
  std::pair<float, float> Range() {
    std::fill_n(result_, kCount, -99.0f);
    RunAndTakeLog();
    const auto [low, high] = std::minmax_element(result_, result_ + kCount);
    return {*low, *high};
  }

  static constexpr size_t kCount = 1000;
  float* result_ = nullptr;
  uint64_t* counter_ = nullptr;
  aclrtRandomNumTaskInfo* source_ = nullptr;
};

TEST_F(RandomUpdate, TheWholeTaskChanges) {
  const uint32_t task = Store();
  Build(stored_);
  EXPECT_LE(Range().second, 1.0f);
  aclrtTaskUpdateInfo info = Info(sizeof *source_);
  *source_ = Uniform(5.0f, 6.0f);
  source_->randomNum = Value<uint64_t>(kCount - 1);
  EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
  const auto [low, high] = Range();
  EXPECT_EQ(low, -99.0f);  // the last one is drawn no more
  EXPECT_GE(*std::min_element(result_, result_ + kCount - 1), 5.0f);
  EXPECT_LE(high, 6.0f);
}

TEST_F(RandomUpdate, TheFunctionAloneChanges) {
  const uint32_t task = Store();
  Build(stored_);
  *source_ = Uniform(5.0f, 6.0f);
  auto* function = reinterpret_cast<aclrtRandomNumFuncParaInfo*>(source_);
  *function = Uniform(-3.0f, -2.0f).randomNumFuncParaInfo;
  aclrtTaskUpdateInfo info = Info(sizeof *function);
  EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
  const auto [low, high] = Range();
  EXPECT_GE(low, -3.0f);
  EXPECT_LE(high, -2.0f);
  EXPECT_EQ(counter_[0], kCount / 4);  // the counter goes on
}

TEST_F(RandomUpdate, WrongParametersFailTheUpdateAlone) {
  const uint32_t task = Store();
  Build(stored_);
  aclrtTaskUpdateInfo info = Info(sizeof *source_);
  const auto update = [&](const aclrtRandomNumTaskInfo& parameters) {
    *source_ = parameters;
    EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
    return aclrtSynchronizeStream(stream_);
  };
  aclrtRandomNumTaskInfo wrong = Uniform(5.0f, 6.0f);
  wrong.dataType = ACL_INT8;
  EXPECT_EQ(507000, update(wrong));
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("dataType"));
  wrong = Uniform(5.0f, 6.0f);
  wrong.randomResultAddr = &wrong;
  EXPECT_EQ(507000, update(wrong));
  wrong = Uniform(5.0f, 6.0f);
  wrong.randomNum = Value<uint64_t>(1 << 20);
  EXPECT_EQ(507000, update(wrong));
  EXPECT_EQ(507000, update({}));
  EXPECT_LE(Range().second, 1.0f);
  EXPECT_EQ(0, update(Uniform(5.0f, 6.0f)));
  EXPECT_GE(Range().first, 5.0f);
}

// ---- Refusals ----

TEST_F(RandomUpdate, ArgumentsAreChecked) {
  const uint32_t kernel = StoreKernel();
  const uint32_t random = Store();
  MUST(aclrtValueWrite(data_, 1, 0, stored_));
  const uint32_t write = LastId();
  uint64_t* args[] = {log_, data_};
  aclrtFuncHandle on_cpu = nullptr;
  MUST(aclrtBinaryGetFunction(binary_, "on_cpu", &on_cpu));
  MUST(aclrtLaunchKernelWithHostArgs(on_cpu, 1, stored_, nullptr, args, sizeof args, nullptr, 0));
  const uint32_t cpu_task = LastId();
  char host[128] = {};
  aclrtTaskUpdateInfo info = KernelInfo();
  for (const bool built : {false, true}) {
    if (built) Build(stored_);
    EXPECT_ACL(100000, aclrtTaskUpdateAsync(stored_, kernel, nullptr, stream_));
    for (int id : {-1, 0, 3}) {
      info = KernelInfo();
      info.id = static_cast<aclrtUpdateTaskAttrId>(id);
      EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, kernel, &info, stream_));
    }
    info = KernelInfo();
    EXPECT_ACL(107017, aclrtTaskUpdateAsync(host, kernel, &info, stream_));
    EXPECT_ACL(107017, aclrtTaskUpdateAsync(stored_, kernel, &info, host));
    EXPECT_ACL(107005, aclrtTaskUpdateAsync(other_, kernel, &info, stream_));
    EXPECT_ACL(107005, aclrtTaskUpdateAsync(nullptr, kernel, &info, stream_));
    for (uint32_t task : {random, write, cpu_task, cpu_task + 2, UINT32_MAX}) {
      EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
    }
    info.val.aicAivTaskAttr.binHandle = stream_;
    EXPECT_ACL(107017, aclrtTaskUpdateAsync(stored_, kernel, &info, stream_));
    info.val.aicAivTaskAttr.binHandle = nullptr;
    EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, kernel, &info, stream_));
    info = KernelInfo();
    info.val.aicAivTaskAttr.funcEntryAddr = host;
    EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, kernel, &info, stream_));
    info = KernelInfo();
    info.val.aicAivTaskAttr.funcEntryAddr = reinterpret_cast<char*>(entry_) + 4;
    EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, kernel, &info, stream_));
    info = KernelInfo();
    info.val.aicAivTaskAttr.blockDimAddr = host;
    EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, kernel, &info, stream_));
    info.val.aicAivTaskAttr.blockDimAddr = nullptr;
    info.val.aicAivTaskAttr.funcEntryAddr = nullptr;
    EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, kernel, &info, stream_));
    info = KernelInfo();
    info.val.aicAivTaskAttr.rsv[3] = 1;
    EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, kernel, &info, stream_));
    info = Info(sizeof *source_);
    for (uint32_t task : {kernel, write, cpu_task}) {
      EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
    }
    for (size_t size : {size_t{0}, sizeof *source_ - 1, SIZE_MAX}) {
      info = Info(size);
      EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, random, &info, stream_));
    }
    info = Info(sizeof *source_);
    info.val.randomTaskAttr.srcAddr = nullptr;
    EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, random, &info, stream_));
    info.val.randomTaskAttr.srcAddr = host;
    EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, random, &info, stream_));
    info = Info(sizeof *source_);
    info.val.randomTaskAttr.rsv[0] = 1;
    EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, random, &info, stream_));
  }
  // What was refused has changed nothing.
  EXPECT_LE(Range().second, 1.0f);
  EXPECT_EQ(0, aclrtPersistentTaskClean(stored_));
  info = KernelInfo();
  EXPECT_ACL(107000, aclrtTaskUpdateAsync(stored_, kernel, &info, stream_));
}

TEST_F(TaskUpdate, IsRefusedWhileTheStreamIsCaptured) {
  const uint32_t task = StoreKernel();
  Build(stored_);
  aclrtTaskUpdateInfo info = KernelInfo();
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  EXPECT_ACL(107027, aclrtTaskUpdateAsync(stored_, task, &info, stream_));
  aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  aclmdlRI captured = nullptr;
  MUST(aclmdlRICaptureGetInfo(stream_, &status, &captured));
  EXPECT_EQ(status, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
  *entry_ = kSecond;
  *blocks_ = 1;
  EXPECT_ACL(0, aclrtTaskUpdateAsync(stored_, task, &info, other_));  // others are free
  MUST(aclrtSynchronizeStream(other_));
  MUST(aclmdlRICaptureEnd(stream_, &captured));
  EXPECT_EQ(0, aclmdlRIDestroy(captured));
  EXPECT_THAT(RunAndTakeLog(), ElementsAre(200));
}

}  // namespace
}  // namespace reprise::testing
