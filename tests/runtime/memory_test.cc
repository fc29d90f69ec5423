// SPDX-License-Identifier: Apache-2.0
//
// Memory that is freed while work is in flight, and fills of host memory. Work is held up by gates; what is freed must
// stay until it has passed, and no longer.
#include <sys/mman.h>

#include <array>
#include <random>

#include "fixture.h"

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;

__attribute__((constructor)) void SetEnvironment(int, char** argv, char**) {
  RestartWith(argv, {{"REPRISE_DEVICES", "2"},
                     {"REPRISE_MEMORY", "64M"},
                     {"ASCEND_GLOBAL_LOG_LEVEL", "2"},
                     {"ASCEND_LOG_PRINT_TO_STDOUT", "1"}});
}

constexpr size_t kMega = 1 << 20;
constexpr size_t kHuge = 2 * kMega;

class Memory : public Runtime {
 protected:
  static size_t Free(int device = 0) {
    int32_t before = 0;
    EXPECT_EQ(0, aclrtGetDevice(&before));
    EXPECT_EQ(0, aclrtSetDevice(device));
    size_t free = 0, total = 0;
    EXPECT_EQ(0, aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
    EXPECT_EQ(0, aclrtSetDevice(before));
    return free;
  }
  static bool IsAll(const void* memory, char value, size_t bytes) {
    const auto* at = static_cast<const char*>(memory);
    return std::all_of(at, at + bytes, [value](char c) { return c == value; });
  }
  static std::string Message() {
    const char* text = aclGetRecentErrMsg();
    return text != nullptr ? text : "";
  }
};

// A kernel that fills its memory, waits, and looks whether that is still so.
struct Watch {
  char* memory;
  size_t bytes;
  char value;
  std::atomic<bool>* go = nullptr;  // null: does not wait
  std::atomic<bool> has_begun = false;
  bool well = false;
  static void Run(void* argument) {
    auto* const watch = static_cast<Watch*>(argument);
    std::memset(watch->memory, watch->value, watch->bytes);
    watch->has_begun = true;
    watch->has_begun.notify_all();
    if (watch->go != nullptr) watch->go->wait(false);
    watch->well =
        std::all_of(watch->memory, watch->memory + watch->bytes, [watch](char c) { return c == watch->value; });
    std::memset(watch->memory, watch->value + 1, watch->bytes);
  }
};

TEST_F(Memory, FreedUnderQueuedWorkStaysUntilThatHasRun) {
  const aclrtStream stream = NewStream();
  const size_t before = Free();
  for (const size_t bytes : {size_t{100}, 4 * kMega}) {
    Gate gate;
    gate.Block(stream);
    void* const memory = NewMemory(bytes);
    void* host = nullptr;
    MUST(aclrtMallocHost(&host, bytes));
    MUST(aclrtMemsetAsync(memory, bytes, 7, bytes, stream));
    MUST(aclrtMemsetAsync(host, bytes, 7, bytes, stream));
    EXPECT_ACL(507046, aclrtSynchronizeStreamWithTimeout(stream, 5));
    MUST(aclrtFree(memory));
    MUST(aclrtFreeHost(host));
    // Gone for the program, in every way that it can tell.
    EXPECT_ACL(107000, aclrtFree(memory));
    EXPECT_THAT((aclrtFree(memory), Message()), HasSubstr("freed; it is kept until the work has ended"));
    EXPECT_ACL(107000, aclrtMemset(memory, 1, 1, 1));
    EXPECT_ACL(107000, aclrtMemcpy(memory, 1, &gate, 1, ACL_MEMCPY_DEFAULT));
    aclrtPtrAttributes attributes{};
    MUST(aclrtPointerGetAttributes(memory, &attributes));
    EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
    EXPECT_LT(Free(), before) << "the work still needs it";

    void* const fresh = NewMemory(bytes);
    void* fresh_host = nullptr;
    MUST(aclrtMallocHost(&fresh_host, bytes));
    EXPECT_NE(fresh, memory);
    EXPECT_NE(fresh_host, host);
    std::memset(fresh, 2, bytes);
    std::memset(fresh_host, 2, bytes);
    gate.Open();
    MUST(aclrtSynchronizeStream(stream));
    EXPECT_TRUE(IsAll(fresh, 2, bytes));
    EXPECT_TRUE(IsAll(fresh_host, 2, bytes));
    MUST(aclrtFree(fresh));
    MUST(aclrtFreeHost(fresh_host));
    EXPECT_EQ(Free(), before) << "nothing is in flight";
  }
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Memory, FreedUnderARunningKernelOfAnotherContextStays) {
  aclrtContext mine = nullptr, other = nullptr;
  MUST(aclrtGetCurrentContext(&mine));
  const size_t before = Free();
  MUST(aclrtCreateContext(&other, 0));
  const aclrtStream stream = NewStream();
  char* const memory = static_cast<char*>(NewMemory(kMega));
  std::atomic<bool> go = false;
  Watch watch{memory, kMega, 5, &go};
  MUST(aclrtLaunchHostFunc(stream, Watch::Run, &watch));
  watch.has_begun.wait(false);
  MUST(aclrtSetCurrentContext(mine));
  MUST(aclrtFree(memory));
  void* const fresh = NewMemory(kMega);
  EXPECT_NE(fresh, memory);
  MUST(aclrtFree(fresh));
  EXPECT_EQ(Free(), before - (kMega + 32) * 2) << "both wait for the kernel";
  go = true;
  go.notify_all();
  MUST(aclrtSetCurrentContext(other));
  MUST(aclrtDestroyStream(stream));
  EXPECT_TRUE(watch.well);
  EXPECT_EQ(Free(), before);
  MUST(aclrtDestroyContext(other));
  MUST(aclrtSetCurrentContext(mine));
}

TEST_F(Memory, AGraphWhoseCellWasFreedIsRefused) {
  const aclrtStream stream = NewStream();
  void* const cell = NewMemory(64);
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  MUST(aclrtValueWrite(cell, 1, 0, stream));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream, &model));
  MUST(aclmdlRIExecuteAsync(model, stream));
  MUST(aclrtSynchronizeStream(stream));
  MUST(aclrtFree(cell));
  EXPECT_EQ(107000, aclmdlRIExecuteAsync(model, stream));
  EXPECT_THAT(Message(), HasSubstr("MEM_WRITE_VALUE"));
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Memory, APendingReplayEndsOnParkedMemoryAndALaterOneIsRefused) {
  const aclrtStream stream = NewStream();
  void* const memory = NewMemory(kMega);
  void* const result = NewMemory(kMega);
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  MUST(aclrtMemsetAsync(memory, kMega, 9, kMega, stream));
  MUST(aclrtMemcpyAsync(result, kMega, memory, kMega, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream, &model));
  Gate gate;
  gate.Block(stream);
  MUST(aclmdlRIExecuteAsync(model, stream));
  MUST(aclrtFree(memory));
  EXPECT_ACL(107000, aclmdlRIExecuteAsync(model, stream));
  EXPECT_THAT((aclmdlRIExecuteAsync(model, stream), Message()), HasSubstr("was freed by thread"));
  void* const fresh = NewMemory(kMega);
  ::testing::internal::CaptureStdout();
  gate.Open();
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("had freed while it was in use"));
  EXPECT_TRUE(IsAll(result, 9, kMega));
  EXPECT_TRUE(IsAll(fresh, 0, kMega));
  EXPECT_ACL(107000, aclmdlRIExecuteAsync(model, stream));
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  MUST(aclrtFree(fresh));
  MUST(aclrtFree(result));
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Memory, TheLogNamesWhoUsedFreedMemory) {
  const aclrtStream stream = NewStream(), idle = NewStream();
  Gate gate;
  gate.Block(stream);
  void* const used = NewMemory(100);
  void* const unused = NewMemory(100);
  MUST(aclrtMemsetAsync(used, 100, 1, 100, stream));
  MUST(aclrtFree(used));
  MUST(aclrtFree(unused));
  ::testing::internal::CaptureStdout();
  MUST(aclrtLaunchHostFunc(
      idle, [](void*) {}, nullptr));
  MUST(aclrtSynchronizeStream(idle));
  gate.Open();
  MUST(aclrtSynchronizeStream(stream));
  const std::string log = ::testing::internal::GetCapturedStdout();
  int32_t id = 0;
  MUST(aclrtStreamGetId(stream, &id));
  EXPECT_THAT(log, HasSubstr("task 1 of stream " + std::to_string(id) + ", "));
  char address[32];
  std::snprintf(address, sizeof address, "used %p in", used);
  EXPECT_THAT(log, HasSubstr(address));
  EXPECT_THAT(log, HasSubstr("which thread " + std::to_string(::gettid())));
  EXPECT_EQ(log.find("had freed"), log.rfind("had freed")) << "the other block was free to go:\n" << log;
  MUST(aclrtDestroyStream(stream));
  MUST(aclrtDestroyStream(idle));
}

// What is missing is parked, and comes back by itself.
TEST_F(Memory, AnAllocationWaitsForParkedMemory) {
  const aclrtStream stream = NewStream();
  for (int way = 0; way < 3; ++way) {
    Gate gate;
    gate.Block(stream);
    MUST(aclrtFree(NewMemory(48 * kMega)));
    std::atomic<bool> asks = false;
    std::thread opener([&] {
      asks.wait(false);
      for (int i = 0; i < 5; ++i) std::this_thread::yield();  // not for long: an allocation waits for 10 s
      gate.Open();
    });
    asks = true;
    asks.notify_all();
    void* fresh = nullptr;
    if (way == 0) {
      EXPECT_ACL(0, aclrtMalloc(&fresh, 48 * kMega, ACL_MEM_MALLOC_HUGE_FIRST));
      EXPECT_ACL(0, aclrtFree(fresh));
    } else if (way == 1) {
      aclrtPhysicalMemProp properties{};
      properties.memAttr = ACL_HBM_MEM_HUGE;
      properties.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
      aclrtDrvMemHandle physical = nullptr;
      EXPECT_ACL(0, aclrtMallocPhysical(&physical, 48 * kMega, &properties, 0));
      EXPECT_ACL(0, aclrtFreePhysical(physical));
    } else {
      EXPECT_ACL(0, aclrtMemAllocManaged(&fresh, 48 * kMega, ACL_RT_MEM_ATTACH_GLOBAL));
      EXPECT_ACL(0, aclrtFree(fresh));
    }
    opener.join();
    MUST(aclrtSynchronizeStream(stream));
  }
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Memory, UnmappedUnderQueuedWorkStaysUntilThatHasRun) {
  const size_t before = Free();
  const aclrtStream stream = NewStream();
  aclrtPhysicalMemProp properties{};
  properties.memAttr = ACL_HBM_MEM_HUGE;
  properties.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  void* base = nullptr;
  MUST(aclrtReserveMemAddress(&base, 4 * kHuge, 0, nullptr, 0));
  auto* const at = static_cast<char*>(base);
  const auto map = [&](size_t piece, size_t pieces) {
    aclrtDrvMemHandle handle = nullptr;
    MUST(aclrtMallocPhysical(&handle, pieces * kHuge, &properties, 0));
    MUST(aclrtMapMem(at + piece * kHuge, pieces * kHuge, 0, handle, 0));
    MUST(aclrtFreePhysical(handle));
  };
  map(0, 2);
  map(2, 1);
  map(3, 1);
  Gate gate;
  gate.Block(stream);
  MUST(aclrtMemsetAsync(at, 4 * kHuge, 3, 4 * kHuge, stream));
  // Unmapped; closed; unmapped, mapped anew and unmapped again.
  MUST(aclrtUnmapMem(at));
  aclrtMemAccessDesc closed{};
  closed.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  closed.flags = ACL_RT_MEM_ACCESS_FLAGS_NONE;
  MUST(aclrtMemSetAccess(at + 2 * kHuge, kHuge, &closed, 1));
  MUST(aclrtUnmapMem(at + 3 * kHuge));
  map(3, 1);
  MUST(aclrtUnmapMem(at + 3 * kHuge));
  map(1, 1);
  EXPECT_ACL(107000, aclrtMemset(at, 1, 1, 1));
  MUST(aclrtMemset(at + kHuge, kHuge, 1, kHuge));
  gate.Open();
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_TRUE(IsAll(at + kHuge, 3, kHuge)) << "what is mapped there now";
  EXPECT_EQ(Free(), before - 2 * kHuge);
  EXPECT_ACL(107000, aclrtMemset(at, 1, 1, 1));
  EXPECT_ACL(107000, aclrtMemset(at + 2 * kHuge, 1, 1, 1)) << "closed";
  EXPECT_ACL(107000, aclrtMemset(at + 3 * kHuge, 1, 1, 1));
  map(0, 1);
  map(3, 1);
  EXPECT_TRUE(IsAll(at + 3 * kHuge, 0, kHuge));

  // The same with the reservation.
  Gate second;
  second.Block(stream);
  MUST(aclrtMemsetAsync(at, 2 * kHuge, 4, 2 * kHuge, stream));
  for (size_t piece = 0; piece < 4; ++piece) MUST(aclrtUnmapMem(at + piece * kHuge));
  MUST(aclrtReleaseMemAddress(base));
  second.Open();
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(Free(), before);
  MUST(aclrtDestroyStream(stream));
}

// A reset frees what the program forgot; a kernel of another device may still reach it.
TEST_F(Memory, AResetParksWhatOtherDevicesMayUse) {
  MUST(aclrtSetDevice(1));
  char* const memory = static_cast<char*>(NewMemory(kMega));
  MUST(aclrtSetDevice(0));
  const aclrtStream stream = NewStream();
  std::atomic<bool> go = false;
  Watch watch{memory, kMega, 5, &go};
  MUST(aclrtLaunchHostFunc(stream, Watch::Run, &watch));
  watch.has_begun.wait(false);
  MUST(aclrtResetDeviceForce(1));
  MUST(aclrtSetDevice(0));
  go = true;
  go.notify_all();
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_TRUE(watch.well);
  EXPECT_EQ(Free(1), size_t{64} * kMega);
  MUST(aclrtSetDevice(1));
  MUST(aclrtResetDeviceForce(1));
  MUST(aclrtSetDevice(0));
  MUST(aclrtDestroyStream(stream));
}

// Threads that launch kernels and free their memory at once, before, or after they have run.
TEST_F(Memory, ManyStreamsFreeUnderTheirKernels) {
  constexpr int kThreads = 4, kRounds = 200;
  const size_t before = Free();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread] {
      ASSERT_EQ(0, aclrtSetDevice(0));
      std::mt19937 random(static_cast<unsigned>(thread));
      std::deque<Watch> watches;
      std::array<aclrtStream, 3> streams{};
      for (aclrtStream& stream : streams) ASSERT_EQ(0, aclrtCreateStream(&stream));
      auto gate = std::make_unique<Gate>();
      for (int round = 0; round < kRounds; ++round) {
        const aclrtStream stream = streams[random() % streams.size()];
        const size_t bytes = 1 + random() % (random() % 8 == 0 ? 2 * kMega : 8192);
        const bool on_host = random() % 4 == 0;
        void* memory = nullptr;
        if (on_host) {
          ASSERT_EQ(0, aclrtMallocHost(&memory, bytes));
        } else if (aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST) != 0) {
          gate->Open();  // all that is parked may wait for it
          gate = std::make_unique<Gate>();
          --round;
          continue;
        }
        if (random() % 16 == 0) gate->Block(stream);
        Watch& watch = watches.emplace_back(static_cast<char*>(memory), bytes, static_cast<char>(round % 100));
        ASSERT_EQ(0, aclrtLaunchHostFunc(stream, Watch::Run, &watch));
        ASSERT_EQ(0, on_host ? aclrtFreeHost(memory) : aclrtFree(memory));
        if (random() % 16 == 0) {
          gate->Open();
          gate = std::make_unique<Gate>();
          ASSERT_EQ(0, aclrtSynchronizeStream(stream));
        }
      }
      gate->Open();
      for (const aclrtStream stream : streams) ASSERT_EQ(0, aclrtDestroyStream(stream));
      for (const Watch& watch : watches) EXPECT_TRUE(watch.well);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Free(), before);
}

TEST_F(Memory, FillsReachOrdinaryHostMemory) {
  const aclrtStream stream = NewStream();
  std::vector<char> host(kMega + 3);
  MUST(aclrtMemset(host.data(), host.size(), 4, host.size()));
  EXPECT_TRUE(IsAll(host.data(), 4, host.size()));
  // In the order of the stream.
  Gate gate;
  gate.Block(stream);
  std::thread opener([&] { gate.Open(); });
  MUST(aclrtMemcpyAsync(NewMemory(64), 64, NewMemory(64), 64, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
  MUST(aclrtMemsetAsync(host.data(), host.size(), 0x105, host.size() - 1, stream));
  opener.join();
  EXPECT_TRUE(IsAll(host.data(), 5, host.size() - 1));
  EXPECT_EQ(host.back(), 4);
  void* const wild = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_ACL(107000, aclrtMemset(wild, 16, 1, 16));
  EXPECT_ACL(107000, aclrtMemsetAsync(wild, 16, 1, 16, stream));
  ::munmap(wild, 4096);
  EXPECT_ACL(100000, aclrtMemsetD32(host.data(), 16, 1, 4)) << "only what the runtime knows";
  // A replay would write it, too late.
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  EXPECT_ACL(107000, aclrtMemsetAsync(host.data(), 16, 1, 16, stream));
  EXPECT_THAT((aclrtMemsetAsync(host.data(), 16, 1, 16, stream), Message()), HasSubstr("devPtr"));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream, &model));
  MUST(aclmdlRIDestroy(model));
  EXPECT_EQ(host[0], 5);
}

}  // namespace
}  // namespace reprise::testing
