// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls of the functions for memory, copies and fills.
#include <sys/mman.h>

#include <climits>

#include "fixture.h"

namespace reprise::testing {
namespace {

[[gnu::constructor]] void Environment(int, char** argv, char**) { RestartWith(argv, {{"REPRISE_DEVICES", "2"}}); }

constexpr size_t kPage = 4096;
constexpr unsigned char kDeviceByte = 0x11;
constexpr unsigned char kPinnedByte = 0x22;
constexpr unsigned char kHeapByte = 0x33;

aclrtMemcpyKind Kind(int number) { return static_cast<aclrtMemcpyKind>(number); }
aclrtMemMallocPolicy Policy(unsigned number) { return static_cast<aclrtMemMallocPolicy>(number); }

struct World : BasicWorld {
  void* freed = nullptr;       // device memory that was freed, and is not mapped any more
  void* freed_host = nullptr;  // the same of pinned memory
  void* big_pinned = nullptr;  // pinned, of one MiB, on a page boundary
  void* big = nullptr;         // device memory of one MiB, on a page boundary
  char* heap = nullptr;        // pageable, on a page boundary, of two pages
  char* registered = nullptr;  // one page, registered and mapped
  char* unmapped = nullptr;    // one page, registered without a device address
  size_t device_bytes = 0;     // what `memory` really has
  int32_t bad_kind = 0;

  // Inputs of configurations and batches.
  aclrtMallocAttribute attribute{};
  aclrtMallocConfig config{};
  void* dsts[4] = {};
  void* srcs[4] = {};
  size_t dest_maxs[4] = {};
  size_t sizes[4] = {};
  aclrtMemcpyBatchAttr attrs[2] = {};
  size_t attr_indexes[2] = {0, 2};

  char* device() { return static_cast<char*>(memory); }
  char* host() { return static_cast<char*>(pinned); }

  aclrtMallocConfig* Config(int attr, uint32_t value, size_t count = 1) {
    attribute.attr = static_cast<aclrtMallocAttrType>(attr);
    attribute.value.deviceId = value;
    config = {&attribute, count};
    return &config;
  }
  aclrtMallocConfig* ConfigWithoutAttributes() {
    config = {nullptr, 1};
    return &config;
  }
  /// A valid batch of four copies of 16 bytes from pinned to device memory, to be spoilt by the row.
  World& Batch() {
    for (size_t i = 0; i < 4; ++i) {
      dsts[i] = device() + 64 * i;
      srcs[i] = host() + 64 * i;
      dest_maxs[i] = sizes[i] = 16;
    }
    attrs[0] = attrs[1] = {{0, ACL_MEM_LOCATION_TYPE_DEVICE}, {0, ACL_MEM_LOCATION_TYPE_HOST}, {}};
    attr_indexes[0] = 0;
    attr_indexes[1] = 2;
    return *this;
  }
  World& BigBatch() {
    Batch();
    for (size_t i = 0; i < 4; ++i) dsts[i] = static_cast<char*>(big) + 64 * i;
    return *this;
  }
  int RunBatch(size_t count = 4, size_t attr_count = 2) {
    return aclrtMemcpyBatch(dsts, dest_maxs, srcs, sizes, count, attrs, attr_indexes, attr_count, &fail_index);
  }
  int RunBatchV2(size_t count = 4, size_t attr_count = 2) {
    return aclrtMemcpyBatchV2(dsts, dest_maxs, srcs, sizes, count, attrs, attr_indexes, attr_count);
  }
  int RunBatchAsync(aclrtStream on, size_t count = 4, size_t attr_count = 2) {
    return aclrtMemcpyBatchAsync(dsts, dest_maxs, srcs, sizes, count, attrs, attr_indexes, attr_count, &fail_index, on);
  }
  int RunBatchAsyncV2(aclrtStream on, size_t count = 4, size_t attr_count = 2) {
    return aclrtMemcpyBatchAsyncV2(dsts, dest_maxs, srcs, sizes, count, attrs, attr_indexes, attr_count, on);
  }
  size_t fail_index = 0;
};

char* Pages(size_t count) {
  void* pages = ::mmap(nullptr, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(pages, MAP_FAILED);
  return static_cast<char*>(pages);
}

bool AllBytesAre(const void* memory, unsigned char byte, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(memory);
  return std::all_of(at, at + bytes, [byte](unsigned char b) { return b == byte; });
}

class MemoryMisuse : public Misuse<World> {
 protected:
  void SetUp() override {
    Misuse::SetUp();
    World& w = world_;
    MUST(aclrtMemGetAddressRange(w.memory, nullptr, &w.device_bytes));
    MUST(aclrtMalloc(&w.big, 1 << 20, ACL_MEM_MALLOC_NORMAL_ONLY));
    MUST(aclrtMallocHost(&w.big_pinned, 1 << 20));
    MUST(aclrtMalloc(&w.freed, 1 << 20, ACL_MEM_MALLOC_NORMAL_ONLY));
    MUST(aclrtFree(w.freed));
    MUST(aclrtMallocHost(&w.freed_host, 1 << 20));
    MUST(aclrtFreeHost(w.freed_host));
    // Nobody else may get these addresses back within the test.
    for (void* gone : {w.freed, w.freed_host}) Hold(gone, 1 << 20);
    w.heap = Pages(2);
    w.registered = Pages(1);
    w.unmapped = Pages(1);
    void* alias = nullptr;
    MUST(aclrtHostRegister(w.registered, kPage, ACL_HOST_REGISTER_MAPPED, &alias));
    MUST(aclrtHostRegisterV2(w.unmapped, kPage, ACL_HOST_REG_PINNED));
    Repaint();
  }

  void TearDown() override {
    World& w = world_;
    EXPECT_EQ(0, aclrtHostUnregister(w.registered));
    EXPECT_EQ(0, aclrtHostUnregister(w.unmapped));
    EXPECT_EQ(0, aclrtFreeHost(w.big_pinned));
    Misuse::TearDown();
    for (const auto& [pages, bytes] : hold_) ::munmap(pages, bytes);
    ::munmap(w.heap, 2 * kPage);
    ::munmap(w.registered, kPage);
    ::munmap(w.unmapped, kPage);
  }

  void Repaint() {
    std::memset(world_.memory, kDeviceByte, World::kMemoryBytes);
    std::memset(world_.pinned, kPinnedByte, World::kMemoryBytes);
    std::memset(world_.heap, kHeapByte, 2 * kPage);
  }

  /// No refused call has written anywhere, and copies work.
  void StillWorks() override {
    World& w = world_;
    Misuse::StillWorks();
    EXPECT_TRUE(AllBytesAre(w.memory, kDeviceByte, World::kMemoryBytes));
    EXPECT_TRUE(AllBytesAre(w.pinned, kPinnedByte, World::kMemoryBytes));
    EXPECT_TRUE(AllBytesAre(w.heap, kHeapByte, 2 * kPage));
    EXPECT_EQ(0, aclrtMemcpyAsync(w.memory, 64, w.pinned, 64, ACL_MEMCPY_HOST_TO_DEVICE, w.stream));
    EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(w.stream, kPatience));
    EXPECT_TRUE(AllBytesAre(w.memory, kPinnedByte, 64));
    void* fresh = nullptr;
    EXPECT_EQ(0, aclrtMalloc(&fresh, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    EXPECT_EQ(0, aclrtFree(fresh));
    Repaint();
  }

  /// Nothing can be read or written there for the rest of the test.
  void Hold(void* pages, size_t bytes) {
    void* at = ::mmap(pages, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == pages) hold_.emplace_back(pages, bytes);  // otherwise somebody else's, and left alone
  }

 private:
  std::vector<std::pair<void*, size_t>> hold_;
};

// ---- Allocation ----

TEST_F(MemoryMisuse, NullPointers) {
  Everywhere({
      ROW(100000, aclrtMalloc(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(100000, aclrtMallocAlign32(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(100000, aclrtMallocCached(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(100000, aclrtMallocWithCfg(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST, nullptr)),
      ROW(100000, aclrtMallocForTaskScheduler(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST, nullptr)),
      ROW(100000, aclrtMallocHost(nullptr, 64)),
      ROW(100000, aclrtMallocHostWithCfg(nullptr, 64, nullptr)),
      ROW(100000, aclrtFree(nullptr)),
      ROW(100000, aclrtFreeWithDevSync(nullptr)),
      ROW(100000, aclrtFreeHost(nullptr)),
      ROW(100000, aclrtFreeHostWithDevSync(nullptr)),
      ROW(100000, aclrtMemFlush(nullptr, 64)),
      ROW(100000, aclrtMemInvalidate(nullptr, 64)),
      ROW(100000, aclrtPointerGetAttributes(nullptr, w.out.As<aclrtPtrAttributes>())),
      ROW(100000, aclrtPointerGetAttributes(w.memory, nullptr)),
      ROW(100000, aclrtMemGetAddressRange(nullptr, w.out.handle(), w.out.As<size_t>(1))),
      ROW(100000, aclrtGetMemInfo(ACL_HBM_MEM, nullptr, w.out.As<size_t>())),
      ROW(100000, aclrtGetMemInfo(ACL_HBM_MEM, w.out.As<size_t>(), nullptr)),
      ROW(100000, aclrtGetMemUsageInfo(0, nullptr, 1, w.out.As<size_t>())),
      ROW(100000, aclrtGetMemUsageInfo(0, w.out.As<aclrtMemUsageInfo>(), 1, nullptr)),
      ROW(100000, aclrtHostRegister(nullptr, kPage, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(100000, aclrtHostRegister(w.heap, kPage, ACL_HOST_REGISTER_MAPPED, nullptr)),
      ROW(100000, aclrtHostRegisterV2(nullptr, kPage, ACL_HOST_REG_PINNED)),
      ROW(100000, aclrtHostGetDevicePointer(nullptr, w.out.handle(), 0)),
      ROW(100000, aclrtHostGetDevicePointer(w.registered, nullptr, 0)),
      ROW(100000, aclrtHostUnregister(nullptr)),
      ROW(100000, aclrtMemcpy(nullptr, 8, w.memory, 8, ACL_MEMCPY_DEVICE_TO_HOST)),
      ROW(100000, aclrtMemcpy(w.memory, 8, nullptr, 8, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW(100000, aclrtMemcpyAsync(nullptr, 8, w.memory, 8, ACL_MEMCPY_DEVICE_TO_HOST, w.stream)),
      ROW(100000, aclrtMemcpyAsync(w.memory, 8, nullptr, 8, ACL_MEMCPY_HOST_TO_DEVICE, w.stream)),
      ROW(100000, aclrtMemcpyAsyncWithCondition(nullptr, 8, w.memory, 8, ACL_MEMCPY_DEVICE_TO_HOST, w.stream)),
      ROW(100000, aclrtMemcpyAsyncWithCondition(w.memory, 8, nullptr, 8, ACL_MEMCPY_HOST_TO_DEVICE, w.stream)),
      ROW(100000, aclrtMemcpy2d(nullptr, 8, w.memory, 8, 8, 2, ACL_MEMCPY_DEVICE_TO_HOST)),
      ROW(100000, aclrtMemcpy2d(w.memory, 8, nullptr, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW(100000, aclrtMemcpy2dAsync(nullptr, 8, w.memory, 8, 8, 2, ACL_MEMCPY_DEVICE_TO_HOST, w.stream)),
      ROW(100000, aclrtMemcpy2dAsync(w.memory, 8, nullptr, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE, w.stream)),
      ROW(100000, aclrtMemset(nullptr, 8, 0, 8)),
      ROW(100000, aclrtMemsetAsync(nullptr, 8, 0, 8, w.stream)),
      ROW(100000, aclrtMemsetD32(nullptr, 8, 0, 2)),
      ROW(100000, aclrtMemsetD32Async(nullptr, 8, 0, 2, w.stream)),
  });
}

TEST_F(MemoryMisuse, Sizes) {
  Everywhere({
      ROW(100000, aclrtMalloc(w.out.handle(), 0, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(100000, aclrtMallocAlign32(w.out.handle(), 0, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(100000, aclrtMallocCached(w.out.handle(), 0, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(100000, aclrtMallocWithCfg(w.out.handle(), 0, ACL_MEM_MALLOC_HUGE_FIRST, nullptr)),
      ROW(100000, aclrtMallocForTaskScheduler(w.out.handle(), 0, ACL_MEM_MALLOC_HUGE_FIRST, nullptr)),
      ROW(100000, aclrtMallocHost(w.out.handle(), 0)),
      ROW(100000, aclrtMallocHostWithCfg(w.out.handle(), 0, nullptr)),
      ROW(207001, aclrtMalloc(w.out.handle(), SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(207001, aclrtMalloc(w.out.handle(), SIZE_MAX - 31, ACL_MEM_MALLOC_NORMAL_ONLY)),
      ROW(207001, aclrtMalloc(w.out.handle(), SIZE_MAX - 63, ACL_MEM_MALLOC_NORMAL_ONLY)),
      ROW(207001, aclrtMalloc(w.out.handle(), SIZE_MAX - 64, ACL_MEM_MALLOC_HUGE1G_ONLY)),
      ROW(207001, aclrtMalloc(w.out.handle(), size_t{1} << 63, ACL_MEM_MALLOC_HUGE_ONLY)),
      ROW(207001, aclrtMallocAlign32(w.out.handle(), SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(207001, aclrtMallocCached(w.out.handle(), SIZE_MAX - 1, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(207001, aclrtMallocWithCfg(w.out.handle(), SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST, nullptr)),
      ROW(207001, aclrtMallocForTaskScheduler(w.out.handle(), SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST, nullptr)),
      ROW(207001, aclrtMallocHost(w.out.handle(), SIZE_MAX)),
      ROW(207001, aclrtMallocHost(w.out.handle(), SIZE_MAX / 2)),
      ROW(207001, aclrtMallocHostWithCfg(w.out.handle(), SIZE_MAX - 1, nullptr)),
      ROW(100000, aclrtMemFlush(w.memory, 0)),
      ROW(100000, aclrtMemInvalidate(w.memory, 0)),
      ROW(107000, aclrtGetMemUsageInfo(0, w.out.As<aclrtMemUsageInfo>(), 0, w.out.As<size_t>(2))),
      ROW(100000, aclrtHostRegister(w.heap, 0, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(100000, aclrtHostRegisterV2(w.heap, 0, ACL_HOST_REG_PINNED)),
      ROW(107000, aclrtHostRegister(w.heap, UINT64_MAX, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(107000, aclrtHostRegisterV2(w.heap, UINT64_MAX - kPage, ACL_HOST_REG_PINNED)),
  });
}

TEST_F(MemoryMisuse, EnumeratorsAndFlags) {
  Everywhere({
      ROW(107000, aclrtGetMemInfo(static_cast<aclrtMemAttr>(-1), w.out.As<size_t>(), w.out.As<size_t>(1))),
      ROW(107000, aclrtGetMemInfo(static_cast<aclrtMemAttr>(18), w.out.As<size_t>(), w.out.As<size_t>(1))),
      ROW(107000, aclrtGetMemInfo(static_cast<aclrtMemAttr>(INT_MAX), w.out.As<size_t>(), w.out.As<size_t>(1))),
      ROW(107001, aclrtGetMemUsageInfo(-1, w.out.As<aclrtMemUsageInfo>(), 1, w.out.As<size_t>(2))),
      ROW(107001, aclrtGetMemUsageInfo(99, w.out.As<aclrtMemUsageInfo>(), 1, w.out.As<size_t>(2))),
      ROW(107001, aclrtGetMemUsageInfo(INT_MIN, w.out.As<aclrtMemUsageInfo>(), 1, w.out.As<size_t>(2))),
      ROW(207000, aclrtHostRegister(w.heap, kPage, ACL_HOST_REGISTER_IOMEMORY, w.out.handle())),
      ROW(207000, aclrtHostRegister(w.heap, kPage, ACL_HOST_REGISTER_READONLY, w.out.handle())),
      ROW(207000, aclrtHostRegister(w.heap, kPage, static_cast<aclrtHostRegisterType>(1), w.out.handle())),
      ROW(107000, aclrtHostRegisterV2(w.heap, kPage, 0)),
      ROW(107000, aclrtHostRegisterV2(w.heap, kPage, 1)),
      ROW(107000, aclrtHostRegisterV2(w.heap, kPage, ACL_HOST_REG_MAPPED | 0x100)),
      ROW(107000, aclrtHostRegisterV2(w.heap, kPage, UINT32_MAX)),
      ROW(207000, aclrtHostRegisterV2(w.heap, kPage, ACL_HOST_REG_IOMEMORY)),
      ROW(207000, aclrtHostRegisterV2(w.heap, kPage, ACL_HOST_REG_MAPPED | ACL_HOST_REG_READONLY)),
      ROW(100000, aclrtHostGetDevicePointer(w.registered, w.out.handle(), 1)),
      ROW(100000, aclrtHostGetDevicePointer(w.registered, w.out.handle(), UINT32_MAX)),
  });
}

TEST_F(MemoryMisuse, Configurations) {
  Everywhere({
      ROW(100000, aclrtMallocWithCfg(w.out.handle(), 64, Policy(0), w.ConfigWithoutAttributes())),
      ROW(100000, aclrtMallocForTaskScheduler(w.out.handle(), 64, Policy(0), w.ConfigWithoutAttributes())),
      ROW(100000, aclrtMallocHostWithCfg(w.out.handle(), 64, w.ConfigWithoutAttributes())),
      ROW(107000, aclrtMallocWithCfg(w.out.handle(), 64, Policy(0), w.Config(-1, 0))),
      ROW(107000, aclrtMallocWithCfg(w.out.handle(), 64, Policy(0), w.Config(99, 0))),
      ROW(107000, aclrtMallocForTaskScheduler(w.out.handle(), 64, Policy(0), w.Config(99, 0))),
      ROW(107000, aclrtMallocHostWithCfg(w.out.handle(), 64, w.Config(99, 0))),
      ROW(107001, aclrtMallocWithCfg(w.out.handle(), 64, Policy(0), w.Config(ACL_RT_MEM_ATTR_DEVICE_ID, 99))),
      ROW(107001, aclrtMallocWithCfg(w.out.handle(), 64, Policy(0), w.Config(ACL_RT_MEM_ATTR_DEVICE_ID, UINT32_MAX))),
      // No list is that long; reading it would leave the program's memory.
      ROW(107000, aclrtMallocWithCfg(w.out.handle(), 64, Policy(0), w.Config(ACL_RT_MEM_ATTR_RSV, 0, SIZE_MAX))),
      ROW(107000,
          aclrtMallocForTaskScheduler(w.out.handle(), 64, Policy(0), w.Config(ACL_RT_MEM_ATTR_RSV, 0, 1 << 20))),
      ROW(107000, aclrtMallocHostWithCfg(w.out.handle(), 64, w.Config(ACL_RT_MEM_ATTR_RSV, 0, SIZE_MAX / 2))),
  });
  // A policy that the enumeration does not have chooses the default pages.
  for (const unsigned policy : {8u, 0xFFu, 0x7FFFFFFFu}) {
    void* memory = nullptr;
    EXPECT_ACL(0, aclrtMalloc(&memory, 64, Policy(policy)));
    EXPECT_ACL(0, aclrtFree(memory));
  }
}

TEST_F(MemoryMisuse, MemoryOfAnotherDevice) {
  void* block = nullptr;
  MUST(aclrtSetDevice(1));
  MUST(aclrtMalloc(&block, 1 << 20, ACL_MEM_MALLOC_NORMAL_ONLY));
  const aclrtStream other = NewStream();
  MUST(aclrtSetCurrentContext(world_.context));
  Everywhere({"stream of another device", other},
             {
                 ROW(107003, aclrtMemcpyAsync(w.memory, 8, w.pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, w.bad)),
                 ROW(107003, aclrtMemsetAsync(w.memory, 8, 0, 8, w.bad)),
             });
  Everywhere({"memory of another device", block},
             {
                 ROW(107000, aclrtFree(static_cast<char*>(w.bad) + 1)),
                 ROW(107000, aclrtFreeHost(w.bad)),
                 ROW(107000, aclrtMemcpyAsync(w.memory, 8192, w.bad, 8192, ACL_MEMCPY_DEVICE_TO_DEVICE, w.stream)),
                 ROW(107001, aclrtGetMemUsageInfo(2, w.out.As<aclrtMemUsageInfo>(), 1, w.out.As<size_t>(2))),
             });
  // The address space is one: what lies on another device can be copied and freed.
  EXPECT_ACL(0, aclrtMemcpy(block, 8, world_.memory, 8, ACL_MEMCPY_DEVICE_TO_DEVICE));
  void* second = nullptr;
  EXPECT_ACL(0,
             aclrtMallocWithCfg(&second, 64, ACL_MEM_MALLOC_NORMAL_ONLY, world_.Config(ACL_RT_MEM_ATTR_DEVICE_ID, 1)));
  EXPECT_ACL(0, aclrtFree(second));
  EXPECT_ACL(0, aclrtResetDeviceForce(1));
  EXPECT_ACL(107000, aclrtFree(block));
  StillWorks();
}

TEST_F(MemoryMisuse, FreeOfWhatIsNoAllocation) {
  World& world = world_;
  std::vector<Handle> bad = {{"interior of device memory", world.device() + 64},
                             {"end of device memory", world.device() + world.device_bytes},
                             {"freed device memory", world.freed},
                             {"freed pinned memory", world.freed_host},
                             {"heap", world.heap},
                             {"registered memory", world.registered},
                             {"stack", &world.local},
                             {"interior of pinned memory", world.host() + 1},
                             {"number", Address(1)},
                             {"last address", Address(UINTPTR_MAX)}};
  for (const Handle& handle : world.live) bad.push_back(handle);
  for (const Handle& pointer : bad) {
    Everywhere(pointer, {ROW(107000, aclrtFree(w.bad)), ROW(107000, aclrtFreeHost(w.bad))});
    world.bad = pointer.handle;
    RunRows({ROW(107000, aclrtFreeWithDevSync(w.bad)), ROW(107000, aclrtFreeHostWithDevSync(w.bad))});
  }
  Everywhere({
      ROW(107000, aclrtFree(w.pinned)),
      ROW(107000, aclrtFree(w.big_pinned)),
      ROW(107000, aclrtFreeHost(w.memory)),
      ROW(107000, aclrtFreeHost(w.big)),
  });
  RunRows({ROW(107000, aclrtFreeWithDevSync(w.pinned)), ROW(107000, aclrtFreeHostWithDevSync(w.memory))});
  // Freed twice, small blocks too.
  void* block = nullptr;
  EXPECT_ACL(0, aclrtMalloc(&block, 64, ACL_MEM_MALLOC_NORMAL_ONLY));
  EXPECT_ACL(0, aclrtFree(block));
  EXPECT_ACL(107000, aclrtFree(block));
  EXPECT_ACL(107000, aclrtFreeWithDevSync(block));
  EXPECT_ACL(0, aclrtMallocHost(&block, 64));
  EXPECT_ACL(0, aclrtFreeHost(block));
  EXPECT_ACL(107000, aclrtFreeHost(block));
  EXPECT_ACL(107000, aclrtFreeHostWithDevSync(block));
  StillWorks();
}

TEST_F(MemoryMisuse, FreeWithSynchronisationDuringACapture) {
  void* block = nullptr;
  void* host = nullptr;
  MUST(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_NORMAL_ONLY));
  MUST(aclrtMallocHost(&host, 64));
  for (const auto mode :
       {ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL, ACL_MODEL_RI_CAPTURE_MODE_RELAXED}) {
    BeginCapture(mode);
    EXPECT_ACL(107027, aclrtFreeWithDevSync(block));
    EXPECT_ACL(107027, aclrtFreeHostWithDevSync(host));
    EXPECT_ACL(107027, aclrtFreeWithDevSync(world_.freed));
    EXPECT_ACL(0, aclrtMemset(host, 64, 1, 0));
    EndCapture();
  }
  EXPECT_ACL(0, aclrtFreeWithDevSync(block));
  EXPECT_ACL(0, aclrtFreeHostWithDevSync(host));
}

TEST_F(MemoryMisuse, Registration) {
  const Rows rows = {
      ROW(107000, aclrtHostRegister(w.heap + 1, 64, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(107000, aclrtHostRegister(w.heap + 512, 64, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(107000, aclrtHostRegisterV2(w.heap + 2048, 64, ACL_HOST_REG_MAPPED)),
      ROW(107000, aclrtHostRegisterV2(w.heap + 2048, 64, ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED)),
      ROW(507910, aclrtHostRegister(w.registered, kPage, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(507910, aclrtHostRegister(w.registered, 1, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(507910, aclrtHostRegisterV2(w.registered, kPage, ACL_HOST_REG_PINNED)),
      ROW(507910, aclrtHostRegisterV2(w.unmapped, kPage, ACL_HOST_REG_PINNED)),
      ROW(507910, aclrtHostRegisterV2(w.unmapped + 100, 8, ACL_HOST_REG_PINNED)),
      ROW(507910, aclrtHostRegister(w.big, kPage, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(507910, aclrtHostRegisterV2(w.big_pinned, kPage, ACL_HOST_REG_PINNED)),
      ROW(507910, aclrtHostRegisterV2(w.big_pinned, kPage, ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED)),
      ROW(507910, aclrtHostRegisterV2(static_cast<char*>(w.big_pinned) + kPage, kPage, ACL_HOST_REG_PINNED)),
      // What is no memory cannot be registered: a worker would die on it later.
      ROW(107000, aclrtHostRegister(Address(kPage), kPage, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(107000, aclrtHostRegisterV2(Address(UINTPTR_MAX - 4 * kPage + 1), kPage, ACL_HOST_REG_PINNED)),
      ROW(107000, aclrtHostRegister(w.freed, kPage, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(107000, aclrtHostRegister(w.freed_host, 1 << 20, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(507911, aclrtHostGetDevicePointer(w.heap, w.out.handle(), 0)),
      ROW(507911, aclrtHostGetDevicePointer(w.memory, w.out.handle(), 0)),
      ROW(507911, aclrtHostGetDevicePointer(w.freed_host, w.out.handle(), 0)),
      ROW(507911, aclrtHostGetDevicePointer(Address(1), w.out.handle(), 0)),
      ROW(507911, aclrtHostGetDevicePointer(w.stream, w.out.handle(), 0)),
      ROW(107000, aclrtHostGetDevicePointer(w.unmapped, w.out.handle(), 0)),
      ROW(507911, aclrtHostUnregister(w.heap)),
      ROW(507911, aclrtHostUnregister(w.registered + 1)),
      ROW(507911, aclrtHostUnregister(w.pinned)),
      ROW(507911, aclrtHostUnregister(w.memory)),
      ROW(507911, aclrtHostUnregister(Address(UINTPTR_MAX))),
      ROW(507911, aclrtHostUnregister(w.event)),
  };
  Everywhere(rows);
  void* alias = nullptr;
  EXPECT_ACL(0, aclrtHostRegister(world_.heap, 2 * kPage, ACL_HOST_REGISTER_MAPPED, &alias));
  EXPECT_EQ(alias, world_.heap);
  EXPECT_ACL(0, aclrtHostUnregister(world_.heap));
  EXPECT_ACL(507911, aclrtHostUnregister(world_.heap));
  // Half of the range cannot be written.
  char* pages = Pages(2);
  ASSERT_EQ(0, ::mprotect(pages + kPage, kPage, PROT_READ));
  EXPECT_ACL(107000, aclrtHostRegister(pages, 2 * kPage, ACL_HOST_REGISTER_MAPPED, &alias));
  EXPECT_ACL(0, aclrtHostRegister(pages, kPage, ACL_HOST_REGISTER_MAPPED, &alias));
  EXPECT_ACL(0, aclrtHostUnregister(pages));
  ASSERT_EQ(0, ::munmap(pages, 2 * kPage));
}

TEST_F(MemoryMisuse, PinnedMemoryIsMappedOnceMore) {
  auto* const pinned = static_cast<char*>(world_.big_pinned);
  void* alias = nullptr;
  EXPECT_ACL(0, aclrtHostRegister(pinned, 2 * kPage, ACL_HOST_REGISTER_MAPPED, &alias));
  EXPECT_EQ(alias, pinned);
  EXPECT_ACL(507910, aclrtHostRegister(pinned + kPage, kPage, ACL_HOST_REGISTER_MAPPED, &alias)) << "mapped already";
  EXPECT_ACL(507910, aclrtHostRegisterV2(pinned, 1, ACL_HOST_REG_MAPPED));
  EXPECT_ACL(0, aclrtHostRegisterV2(pinned + 2 * kPage, kPage, ACL_HOST_REG_MAPPED));
  EXPECT_ACL(507911, aclrtHostUnregister(pinned + kPage));
  EXPECT_ACL(0, aclrtHostUnregister(pinned));
  EXPECT_ACL(507911, aclrtHostUnregister(pinned)) << "memory of aclrtMallocHost itself is not registered";
  EXPECT_ACL(0, aclrtHostRegisterV2(pinned, 2 * kPage, ACL_HOST_REG_MAPPED));
  // It goes with the memory.
  EXPECT_ACL(0, aclrtFreeHost(pinned));
  EXPECT_ACL(507911, aclrtHostUnregister(pinned));
  EXPECT_ACL(507911, aclrtHostUnregister(pinned + 2 * kPage));
  MUST(aclrtMallocHost(&world_.big_pinned, 1 << 20));
  EXPECT_ACL(0, aclrtHostRegister(world_.big_pinned, 1 << 20, ACL_HOST_REGISTER_MAPPED, &alias));
  EXPECT_ACL(0, aclrtHostUnregister(world_.big_pinned));
  // The same for memory that was only pinned.
  EXPECT_ACL(107000, aclrtHostGetDevicePointer(world_.unmapped, &alias, 0));
  EXPECT_ACL(0, aclrtHostRegisterV2(world_.unmapped, kPage, ACL_HOST_REG_MAPPED));
  EXPECT_ACL(0, aclrtHostGetDevicePointer(world_.unmapped + 8, &alias, 0));
  EXPECT_EQ(alias, world_.unmapped + 8);
  EXPECT_ACL(0, aclrtHostUnregister(world_.unmapped));
  EXPECT_ACL(107000, aclrtHostGetDevicePointer(world_.unmapped, &alias, 0)) << "still pinned";
  Repaint();
}

TEST_F(MemoryMisuse, PinningTakesWholePages) {
  char* const pages = Pages(3);
  const auto is_pinned = [](const void* at) {
    aclrtPtrAttributes attributes{};
    EXPECT_ACL(0, aclrtPointerGetAttributes(at, &attributes));
    return attributes.location.type == ACL_MEM_LOCATION_TYPE_HOST;
  };
  EXPECT_ACL(0, aclrtHostRegisterV2(pages + kPage + 100, 50, ACL_HOST_REG_PINNED));
  EXPECT_FALSE(is_pinned(pages + kPage - 1));
  EXPECT_TRUE(is_pinned(pages + kPage));
  EXPECT_TRUE(is_pinned(pages + 2 * kPage - 1));
  EXPECT_FALSE(is_pinned(pages + 2 * kPage));
  // Neighbours on its page are as good as others; each goes by the address that was named.
  EXPECT_ACL(507910, aclrtHostRegisterV2(pages + kPage + 149, 50, ACL_HOST_REG_PINNED));
  EXPECT_ACL(0, aclrtHostRegisterV2(pages + kPage + 150, 50, ACL_HOST_REG_PINNED));
  EXPECT_ACL(0, aclrtHostRegisterV2(pages + 10, kPage + 20, ACL_HOST_REG_PINNED));
  for (const size_t at : {size_t{0}, kPage, kPage + 29, kPage + 30, kPage + 99, kPage + 100, 2 * kPage - 1}) {
    EXPECT_TRUE(is_pinned(pages + at)) << at;
  }
  EXPECT_ACL(507911, aclrtHostUnregister(pages));
  EXPECT_ACL(507911, aclrtHostUnregister(pages + kPage));
  EXPECT_ACL(0, aclrtHostUnregister(pages + kPage + 100));
  EXPECT_FALSE(is_pinned(pages + kPage + 120));
  EXPECT_TRUE(is_pinned(pages + kPage + 160));
  EXPECT_ACL(0, aclrtHostUnregister(pages + kPage + 150));
  EXPECT_ACL(0, aclrtHostUnregister(pages + 10));
  for (const size_t at : {size_t{10}, kPage + 29, kPage + 160}) EXPECT_FALSE(is_pinned(pages + at)) << at;
  ASSERT_EQ(0, ::munmap(pages, 3 * kPage));
}

TEST_F(MemoryMisuse, RangesThatAreUnknown) {
  Everywhere({
      ROW(107000, aclrtMemGetAddressRange(w.heap, w.out.handle(), w.out.As<size_t>(1))),
      ROW(107000, aclrtMemGetAddressRange(w.freed, w.out.handle(), w.out.As<size_t>(1))),
      ROW(107000, aclrtMemGetAddressRange(w.device() + w.device_bytes, w.out.handle(), w.out.As<size_t>(1))),
      ROW(107000, aclrtMemGetAddressRange(Address(1), nullptr, nullptr)),
      ROW(107000, aclrtMemGetAddressRange(Address(UINTPTR_MAX), w.out.handle(), nullptr)),
      ROW(107000, aclrtMemGetAddressRange(w.stream, nullptr, w.out.As<size_t>(1))),
      ROW(0, aclrtMemGetAddressRange(w.device() + 100, nullptr, nullptr)),
      ROW(0, aclrtPointerGetAttributes(Address(1), w.out.As<aclrtPtrAttributes>())),
  });
  aclrtPtrAttributes attributes = {};
  for (void* unknown :
       {Address(1), Address(UINTPTR_MAX), world_.freed, static_cast<void*>(world_.heap), world_.stream}) {
    EXPECT_ACL(0, aclrtPointerGetAttributes(unknown, &attributes));
    EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
  }
}

// ---- Copies ----

TEST_F(MemoryMisuse, CopyKinds) {
  const std::vector<int> no_kinds = {6, 7, 8, 100, INT_MAX, -1, INT_MIN};
  for (const int kind : no_kinds) {
    SCOPED_TRACE(kind);
    world_.bad_kind = kind;
    Everywhere({
        ROW(100000, aclrtMemcpy(w.memory, 8, w.pinned, 8, Kind(w.bad_kind))),
        ROW(100000, aclrtMemcpyAsync(w.memory, 8, w.pinned, 8, Kind(w.bad_kind), w.stream)),
        ROW(100000, aclrtMemcpyAsyncWithCondition(w.memory, 8, w.pinned, 8, Kind(w.bad_kind), w.stream)),
        ROW(100000, aclrtMemcpy2d(w.memory, 8, w.pinned, 8, 8, 2, Kind(w.bad_kind))),
        ROW(100000, aclrtMemcpy2dAsync(w.memory, 8, w.pinned, 8, 8, 2, Kind(w.bad_kind), w.stream)),
    });
  }
  Everywhere({
      ROW(207000, aclrtMemcpyAsync(w.pinned, 8, w.registered, 8, ACL_MEMCPY_HOST_TO_HOST, w.stream)),
      ROW(207000, aclrtMemcpyAsyncWithCondition(w.heap, 8, w.pinned, 8, ACL_MEMCPY_HOST_TO_HOST, w.stream)),
      ROW(100000, aclrtMemcpy2d(w.heap, 8, w.pinned, 8, 8, 2, ACL_MEMCPY_HOST_TO_HOST)),
      ROW(100000, aclrtMemcpy2d(w.memory, 8, w.pinned, 8, 8, 2, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE)),
      ROW(100000, aclrtMemcpy2dAsync(w.heap, 8, w.pinned, 8, 8, 2, ACL_MEMCPY_HOST_TO_HOST, w.stream)),
      ROW(100000, aclrtMemcpy2dAsync(w.memory, 8, w.pinned, 8, 8, 2, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, w.stream)),
  });
  // A kind that does not fit the pointers is tolerated: the pointers decide.
  for (int kind = ACL_MEMCPY_HOST_TO_HOST; kind <= ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE; ++kind) {
    SCOPED_TRACE(kind);
    Repaint();
    EXPECT_ACL(0, aclrtMemcpy(world_.memory, 8, world_.heap, 8, Kind(kind)));
    EXPECT_TRUE(AllBytesAre(world_.memory, kHeapByte, 8));
    EXPECT_ACL(0, aclrtMemcpy(world_.heap, 8, world_.pinned, 8, Kind(kind)));
    EXPECT_TRUE(AllBytesAre(world_.heap, kPinnedByte, 8));
    if (kind == ACL_MEMCPY_HOST_TO_HOST) continue;
    EXPECT_ACL(0, aclrtMemcpyAsync(world_.pinned, 8, world_.memory, 8, Kind(kind), world_.stream));
    EXPECT_ACL(0, aclrtSynchronizeStream(world_.stream));
    EXPECT_TRUE(AllBytesAre(world_.pinned, kHeapByte, 8));
  }
  Repaint();
}

TEST_F(MemoryMisuse, CopySizes) {
  constexpr auto kD2D = ACL_MEMCPY_DEVICE_TO_DEVICE;
  constexpr auto kD2H = ACL_MEMCPY_DEVICE_TO_HOST;
  constexpr auto kH2D = ACL_MEMCPY_HOST_TO_DEVICE;
  Everywhere({
      ROW(0, aclrtMemcpy(nullptr, 0, nullptr, 0, Kind(99))),
      ROW(0, aclrtMemcpyAsync(nullptr, 0, nullptr, 0, Kind(99), w.bad)),
      ROW(0, aclrtMemcpyAsyncWithCondition(nullptr, 0, nullptr, 0, Kind(99), w.bad)),
      ROW(0, aclrtMemcpy2d(nullptr, 0, nullptr, 0, 0, 1, Kind(99))),
      ROW(0, aclrtMemcpy2d(nullptr, 0, nullptr, 0, 1, 0, Kind(99))),
      ROW(0, aclrtMemcpy2dAsync(nullptr, 0, nullptr, 0, 0, SIZE_MAX, Kind(99), w.bad)),
      ROW(0, aclrtMemset(nullptr, 0, 0, 0)),
      ROW(0, aclrtMemsetAsync(nullptr, 0, 0, 0, w.bad)),
      ROW(0, aclrtMemsetD32(nullptr, 0, 0, 0)),
      ROW(0, aclrtMemsetD32Async(nullptr, 0, 0, 0, w.bad)),
      ROW(0, aclrtMemcpy(w.memory, 8, w.memory, 8, kD2D)),
      // More than the destination is said to hold.
      ROW(107000, aclrtMemcpy(w.memory, 7, w.pinned, 8, kH2D)),
      ROW(107000, aclrtMemcpy(w.memory, 0, w.pinned, 1, kH2D)),
      ROW(107000, aclrtMemcpy(w.memory, SIZE_MAX - 1, w.pinned, SIZE_MAX, kH2D)),
      ROW(107000, aclrtMemcpyAsync(w.memory, 7, w.pinned, 8, kH2D, w.stream)),
      ROW(107000, aclrtMemcpyAsyncWithCondition(w.memory, 7, w.pinned, 8, kH2D, w.stream)),
      ROW(107000, aclrtMemset(w.memory, 7, 0, 8)),
      ROW(107000, aclrtMemsetAsync(w.memory, 7, 0, 8, w.stream)),
      ROW(100000, aclrtMemsetD32(w.memory, 7, 0, 2)),
      ROW(100000, aclrtMemsetD32(w.memory, 4, 0, 2)),
      ROW(100000, aclrtMemsetD32Async(w.memory, 7, 0, 2, w.stream)),
      ROW(100000, aclrtMemsetD32(w.memory, 8, 0, SIZE_MAX / 4 + 1)),
      ROW(100000, aclrtMemsetD32(w.memory, 8, 0, SIZE_MAX)),
      ROW(100000, aclrtMemsetD32Async(w.memory, 8, 0, (size_t{1} << 62) + 1, w.stream)),
      // More than there is, whatever destMax says.
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.memory, 8192, w.big, 8192, kD2D)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.big, 8192, w.memory, 8192, kD2D)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.big, SIZE_MAX, w.memory, SIZE_MAX, kD2D)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.device() + w.device_bytes - 4, 8, w.pinned, 8, kH2D)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.heap, kPage, w.device() + w.device_bytes - 4, 8, kD2H)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.device() - 4, 8, w.pinned, 8, kH2D)),
      ROW(107000, aclrtMemcpyAsync(w.memory, 8192, w.big, 8192, kD2D, w.stream)),
      ROW(107000, aclrtMemcpyAsync(w.big, 8192, w.memory, 8192, kD2D, w.stream)),
      ROW(107000, aclrtMemcpyAsync(w.big, SIZE_MAX, w.memory, SIZE_MAX, kD2D, w.stream)),
      ROW(107000, aclrtMemcpyAsync(w.memory, SIZE_MAX, w.big, SIZE_MAX / 2, kD2D, w.stream)),
      ROW(107000, aclrtMemcpyAsync(w.host() - 4, 8, w.memory, 8, kD2H, w.stream)),
      ROW(107000, aclrtMemcpyAsync(w.registered + kPage - 4, 8, w.memory, 8, kD2H, w.stream)),
      ROW_CAPTURE(107000, 107030, aclrtMemset(w.memory, 8192, 0, 8192)),
      ROW_CAPTURE(107000, 107030, aclrtMemset(w.memory, SIZE_MAX, 0, SIZE_MAX)),
      ROW_CAPTURE(107000, 107030, aclrtMemset(w.device() - 1, 8, 0, 8)),
      ROW(107000, aclrtMemsetAsync(w.memory, 8192, 0, 8192, w.stream)),
      ROW(107000, aclrtMemsetAsync(w.memory, SIZE_MAX, 0, SIZE_MAX, w.stream)),
      ROW(107000, aclrtMemsetD32(w.memory, 8192, 0, 2048)),
      ROW(107000, aclrtMemsetD32Async(w.memory, 8192, 0, 2048, w.stream)),
      ROW(107000, aclrtMemsetD32(w.memory, SIZE_MAX, 0, SIZE_MAX / 4)),
      // Not aligned.
      ROW(100000, aclrtMemsetD32(w.device() + 1, 8, 0, 1)),
      ROW(100000, aclrtMemsetD32Async(w.device() + 2, 8, 0, 1, w.stream)),
  });
}

TEST_F(MemoryMisuse, Copies2d) {
  constexpr auto kD2D = ACL_MEMCPY_DEVICE_TO_DEVICE;
  Everywhere({
      ROW(100000, aclrtMemcpy2d(w.memory, 7, w.pinned, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW(100000, aclrtMemcpy2d(w.memory, 8, w.pinned, 7, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW(100000, aclrtMemcpy2d(w.memory, 0, w.pinned, 8, 1, 1, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW(100000, aclrtMemcpy2dAsync(w.memory, 7, w.pinned, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE, w.stream)),
      ROW(100000, aclrtMemcpy2dAsync(w.memory, 8, w.pinned, 7, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE, w.stream)),
      ROW(107000, aclrtMemcpy2d(w.memory, SIZE_MAX, w.big, 8, 8, 3, kD2D)),
      ROW(107000, aclrtMemcpy2d(w.memory, 8, w.big, SIZE_MAX / 2 + 1, 8, 3, kD2D)),
      ROW(107000, aclrtMemcpy2d(w.memory, 8, w.big, 8, 8, SIZE_MAX, kD2D)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy2d(w.memory, 1, w.big, 1, 1, SIZE_MAX, kD2D)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy2d(w.memory, SIZE_MAX, w.big, SIZE_MAX, SIZE_MAX, 1, kD2D)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy2d(w.memory, 1024, w.big, 1024, 1024, 5, kD2D)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy2d(w.big, 1024, w.memory, 1024, 1024, 5, kD2D)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy2d(w.memory, 2048, w.big, 8, 8, 4, kD2D)),
      ROW(107000, aclrtMemcpy2dAsync(w.memory, SIZE_MAX, w.big, 8, 8, 3, kD2D, w.stream)),
      ROW(107000, aclrtMemcpy2dAsync(w.memory, 8, w.big, 8, 8, SIZE_MAX, kD2D, w.stream)),
      ROW(107000, aclrtMemcpy2dAsync(w.memory, 1024, w.big, 1024, 1024, 5, kD2D, w.stream)),
      ROW(107000, aclrtMemcpy2dAsync(w.big, 5'000'001, w.big, 5'000'001, 5'000'001, 1, kD2D, w.stream)),
      ROW(107000, aclrtMemcpy2dAsync(w.big, 1, w.memory, 1, 1, 5'242'881, kD2D, w.stream)),
  });
}

TEST_F(MemoryMisuse, MemoryOfTheWrongSort) {
  Everywhere({
      // Addresses that are no memory: an error, not a crash.
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.memory, 8, Address(4096), 8, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(Address(4096), 8, w.memory, 8, ACL_MEMCPY_DEVICE_TO_HOST)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.memory, 8, Address(UINTPTR_MAX - 3), 8, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.memory, 8, w.stream, 8, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.freed, 8, w.memory, 8, ACL_MEMCPY_DEVICE_TO_DEVICE)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(w.memory, 8, w.freed_host, 8, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy(Address(8), 8, Address(4096), 8, ACL_MEMCPY_HOST_TO_HOST)),
      ROW_CAPTURE(107000, 107041, aclrtMemcpyAsync(w.memory, 8, Address(4096), 8, ACL_MEMCPY_HOST_TO_DEVICE, w.stream)),
      ROW_CAPTURE(107000, 107041, aclrtMemcpyAsync(w.freed, 8, w.memory, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, w.stream)),
      ROW(107000, aclrtMemcpyAsync(w.memory, 8, Address(4096), 8, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, w.stream)),
      ROW_CAPTURE(107000, 107041,
                  aclrtMemcpyAsyncWithCondition(w.event, 8, w.memory, 8, ACL_MEMCPY_DEVICE_TO_HOST, w.stream)),
      ROW_CAPTURE(107000, 107030, aclrtMemcpy2d(w.memory, 8, Address(4096), 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW_CAPTURE(107000, 107041,
                  aclrtMemcpy2dAsync(Address(4096), 8, w.memory, 8, 8, 2, ACL_MEMCPY_DEVICE_TO_HOST, w.stream)),
      // Fills take what copies take; those of 32-bit values want memory that the runtime knows.
      ROW_CAPTURE(0, 107030, aclrtMemset(w.heap, 8, kHeapByte, 8)),
      ROW_CAPTURE(107000, 107030, aclrtMemset(w.freed, 8, 0, 8)),
      ROW_CAPTURE(107000, 107030, aclrtMemset(Address(1), 8, 0, 8)),
      ROW_CAPTURE(107000, 107030, aclrtMemset(w.event, 8, 0, 8)),
      ROW_CAPTURE(0, 107041, aclrtMemsetAsync(w.heap, 8, kHeapByte, 8, w.stream)),
      ROW_CAPTURE(107000, 107041, aclrtMemsetAsync(w.freed_host, 8, 0, 8, w.stream)),
      ROW(107000, aclrtMemsetAsync(Address(UINTPTR_MAX), 1, 0, 1, w.stream)),
      ROW(100000, aclrtMemsetD32(w.heap, 8, 0, 2)),
      ROW(100000, aclrtMemsetD32Async(w.heap, 8, 0, 2, w.stream)),
      ROW(100000, aclrtMemsetD32Async(Address(4096), 8, 0, 2, w.stream)),
  });
}

TEST_F(MemoryMisuse, BadStreams) {
  const Rows rows = {
      ROW(107017, aclrtMemcpyAsync(w.memory, 8, w.pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, w.bad)),
      ROW(107017, aclrtMemcpyAsync(w.memory, 8, w.heap, 8, ACL_MEMCPY_HOST_TO_DEVICE, w.bad)),
      ROW(107017, aclrtMemcpyAsync(w.memory, 8, w.pinned, 8, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, w.bad)),
      ROW(107017, aclrtMemcpyAsyncWithCondition(w.memory, 8, w.pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, w.bad)),
      ROW(107017, aclrtMemcpy2dAsync(w.memory, 8, w.pinned, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE, w.bad)),
      ROW(107017, aclrtMemsetAsync(w.memory, 8, 0, 8, w.bad)),
      ROW(107017, aclrtMemsetD32Async(w.memory, 8, 0, 2, w.bad)),
      ROW(107017, aclrtMemcpyBatchAsync(w.Batch().dsts, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2,
                                        &w.fail_index, w.bad)),
      ROW(107017,
          aclrtMemcpyBatchAsyncV2(w.Batch().dsts, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2, w.bad)),
  };
  for (const Handle& bad : world_.BadHandles("stream")) Everywhere(bad, rows);
  Rows foreign = rows;
  for (auto& row : foreign) row.code = row.code_while_capturing = 107003;
  Everywhere({"stream of another context", world_.foreign}, foreign);
}

// ---- Batches ----

TEST_F(MemoryMisuse, BatchArguments) {
  Everywhere({
      ROW(100000,
          aclrtMemcpyBatch(w.Batch().dsts, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2, nullptr)),
      ROW(100000, aclrtMemcpyBatchAsync(w.Batch().dsts, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2,
                                        nullptr, w.stream)),
      ROW(100000, aclrtMemcpyBatchV2(nullptr, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2)),
      ROW(100000, aclrtMemcpyBatchV2(w.dsts, nullptr, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2)),
      ROW(100000, aclrtMemcpyBatchV2(w.dsts, w.dest_maxs, nullptr, w.sizes, 4, w.attrs, w.attr_indexes, 2)),
      ROW(100000, aclrtMemcpyBatchV2(w.dsts, w.dest_maxs, w.srcs, nullptr, 4, w.attrs, w.attr_indexes, 2)),
      ROW(100000, aclrtMemcpyBatchV2(w.dsts, w.dest_maxs, w.srcs, w.sizes, 4, nullptr, w.attr_indexes, 2)),
      ROW(100000, aclrtMemcpyBatchV2(w.dsts, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, nullptr, 2)),
      ROW(100000, aclrtMemcpyBatchV2(w.dsts, w.dest_maxs, w.srcs, w.sizes, 0, w.attrs, w.attr_indexes, 2)),
      ROW(100000,
          aclrtMemcpyBatchAsyncV2(nullptr, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2, w.stream)),
      ROW(100000, aclrtMemcpyBatchAsyncV2(w.dsts, nullptr, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2, w.stream)),
      ROW(100000,
          aclrtMemcpyBatchAsyncV2(w.dsts, w.dest_maxs, nullptr, w.sizes, 4, w.attrs, w.attr_indexes, 2, w.stream)),
      ROW(100000,
          aclrtMemcpyBatchAsyncV2(w.dsts, w.dest_maxs, w.srcs, nullptr, 4, w.attrs, w.attr_indexes, 2, w.stream)),
      ROW(100000,
          aclrtMemcpyBatchAsyncV2(w.dsts, w.dest_maxs, w.srcs, w.sizes, 4, nullptr, w.attr_indexes, 2, w.stream)),
      ROW(100000, aclrtMemcpyBatchAsyncV2(w.dsts, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, nullptr, 2, w.stream)),
      ROW(100000,
          aclrtMemcpyBatchAsyncV2(w.dsts, w.dest_maxs, w.srcs, w.sizes, 0, w.attrs, w.attr_indexes, 2, w.stream)),
      // Counts that no array has.
      ROW(107000,
          aclrtMemcpyBatchV2(w.Batch().dsts, w.dest_maxs, w.srcs, w.sizes, SIZE_MAX, w.attrs, w.attr_indexes, 2)),
      ROW(107000, aclrtMemcpyBatchAsyncV2(w.Batch().dsts, w.dest_maxs, w.srcs, w.sizes, SIZE_MAX / 8, w.attrs,
                                          w.attr_indexes, 2, w.stream)),
  });
}

// What makes item 2 of the batch wrong, and the number.
struct Spoiler {
  const char* what;
  int code;
  size_t fail_index;
  void (*spoil)(World&);
};

TEST_F(MemoryMisuse, BatchItems) {
  const std::vector<Spoiler> spoilers = {
      {"null destination", 100000, 2, [](World& w) { w.dsts[2] = nullptr; }},
      {"null source", 100000, 2, [](World& w) { w.srcs[2] = nullptr; }},
      {"too small", 107000, 2, [](World& w) { w.dest_maxs[2] = 15; }},
      {"beyond the destination", 107000, 2, [](World& w) { w.dest_maxs[2] = w.sizes[2] = 8192; }},
      {"wraps around", 107000, 2, [](World& w) { w.dest_maxs[2] = w.sizes[2] = SIZE_MAX; }},
      {"host, said to be device", 107000, 2, [](World& w) { w.dsts[2] = w.registered; }},
      {"device, said to be host", 107000, 2, [](World& w) { w.srcs[2] = w.big; }},
      {"not memory", 107000, 2, [](World& w) { w.dsts[2] = w.freed; }},
      {"a handle", 107000, 2, [](World& w) { w.dsts[2] = w.stream; }},
      {"the other direction", 107000, 2, [](World& w) { std::swap(w.attrs[1].dstLoc, w.attrs[1].srcLoc); }},
      {"device to device", 107000, 2, [](World& w) { w.attrs[1].srcLoc.type = ACL_MEM_LOCATION_TYPE_DEVICE; }},
      {"host to host", 107000, 2, [](World& w) { w.attrs[1].dstLoc.type = ACL_MEM_LOCATION_TYPE_HOST; }},
      {"indexes begin late", 107000, SIZE_MAX, [](World& w) { w.attr_indexes[0] = 1; }},
      {"indexes do not rise", 107000, SIZE_MAX, [](World& w) { w.attr_indexes[1] = 0; }},
      {"index behind the end", 107000, SIZE_MAX, [](World& w) { w.attr_indexes[1] = 4; }},
      {"index far behind the end", 107000, SIZE_MAX, [](World& w) { w.attr_indexes[1] = SIZE_MAX; }},
  };
  World& w = world_;
  const auto check = [&](const Spoiler& spoiler) {
    const auto expect = [&](int got, const char* function, bool tells) {
      EXPECT_TRUE(CheckAcl(spoiler.code, got, function));
      EXPECT_TRUE(!tells || w.fail_index == spoiler.fail_index) << "fail index " << w.fail_index;
      DropMessage();
    };
    w.Batch();
    spoiler.spoil(w);
    DropMessage();
    expect(w.RunBatch(), "aclrtMemcpyBatch", true);
    expect(w.RunBatchV2(), "aclrtMemcpyBatchV2", false);
    expect(w.RunBatchAsync(w.stream), "aclrtMemcpyBatchAsync", true);
    expect(w.RunBatchAsyncV2(w.stream), "aclrtMemcpyBatchAsyncV2", false);
    if (w.captured != nullptr) {
      expect(w.RunBatchAsync(w.captured), "aclrtMemcpyBatchAsync", true);
      ExpectCaptureActive();
    }
  };
  for (const Spoiler& spoiler : spoilers) {
    SCOPED_TRACE(spoiler.what);
    check(spoiler);
    StillWorks();
    for (const auto mode : {ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, ACL_MODEL_RI_CAPTURE_MODE_RELAXED}) {
      BeginCapture(mode);
      check(spoiler);
      StillWorks();
      EndCapture();
    }
  }
  for (const size_t count : {size_t{0}, size_t{5}, SIZE_MAX}) {
    DropMessage();
    EXPECT_TRUE(CheckAcl(107000, w.Batch().RunBatch(4, count), "aclrtMemcpyBatch"));
    DropMessage();
    EXPECT_TRUE(CheckAcl(107000, w.Batch().RunBatchAsync(w.stream, 4, count), "aclrtMemcpyBatchAsync"));
  }
  for (const size_t count : {size_t{0}, SIZE_MAX}) {
    DropMessage();
    EXPECT_TRUE(CheckAcl(count == 0 ? 100000 : 107000, w.Batch().RunBatch(count), "aclrtMemcpyBatch"));
    EXPECT_EQ(w.fail_index, SIZE_MAX);
  }
  // Nothing to copy: nothing is looked at.
  for (size_t& size : w.Batch().sizes) size = 0;
  w.fail_index = 0;
  EXPECT_EQ(0, aclrtMemcpyBatch(nullptr, nullptr, nullptr, w.sizes, 4, nullptr, nullptr, 0, &w.fail_index));
  EXPECT_EQ(w.fail_index, SIZE_MAX);
  StillWorks();
}

// ---- Captures, threads ----

TEST_F(MemoryMisuse, CapturedStream) {
  for (const auto mode :
       {ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL, ACL_MODEL_RI_CAPTURE_MODE_RELAXED}) {
    SCOPED_TRACE(mode);
    BeginCapture(mode);
    RunRows(
        {
            ROW(107000, aclrtMemcpyAsync(w.memory, 8, w.heap, 8, ACL_MEMCPY_HOST_TO_DEVICE, w.captured)),
            ROW(107000, aclrtMemcpyAsync(w.heap, 8, w.memory, 8, ACL_MEMCPY_DEVICE_TO_HOST, w.captured)),
            ROW(107000, aclrtMemcpyAsyncWithCondition(w.heap, 8, w.memory, 8, ACL_MEMCPY_DEFAULT, w.captured)),
            ROW(107000, aclrtMemcpy2dAsync(w.memory, 8, w.heap, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE, w.captured)),
            ROW(107000, aclrtMemcpyAsync(w.memory, 8, Address(4096), 8, ACL_MEMCPY_HOST_TO_DEVICE, w.captured)),
            ROW(107000, aclrtMemcpyAsync(w.memory, 7, w.pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, w.captured)),
            ROW(107000, aclrtMemcpyAsync(w.memory, 8192, w.big, 8192, ACL_MEMCPY_DEVICE_TO_DEVICE, w.captured)),
            ROW(207000, aclrtMemcpyAsync(w.pinned, 8, w.registered, 8, ACL_MEMCPY_HOST_TO_HOST, w.captured)),
            ROW(107000, aclrtMemsetAsync(w.heap, 8, 0, 8, w.captured)),
            ROW(107000, aclrtMemsetAsync(w.memory, 8192, 0, 8192, w.captured)),
            ROW(100000, aclrtMemsetD32Async(w.device() + 1, 8, 0, 1, w.captured)),
            ROW_CAPTURE(0, 107030, aclrtMemcpy(w.heap, 8, w.heap + kPage, 8, ACL_MEMCPY_HOST_TO_HOST)),
            ROW_CAPTURE(0, 107030, aclrtMemset(w.big, 8, 0, 8)),
            ROW_CAPTURE(0, 107030, aclrtMemsetD32(w.big, 8, 0, 2)),
            ROW_CAPTURE(0, 107030, aclrtMemcpy2d(w.big, 8, w.heap, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE)),
            ROW_CAPTURE(
                0, 107030,
                aclrtMemcpyBatchV2(w.BigBatch().dsts, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2)),
            ROW_CAPTURE(0, 107041, aclrtMemcpyAsync(w.big, 8, w.heap, 8, ACL_MEMCPY_HOST_TO_DEVICE, w.stream)),
            ROW(0, aclrtMemcpy(w.heap, 8, w.heap, 8, ACL_MEMCPY_HOST_TO_HOST)),
            ROW(0, aclrtMemcpy(w.heap, 0, w.memory, 0, ACL_MEMCPY_HOST_TO_HOST)),
        },
        mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
    StillWorks();
    EndCapture();
  }
}

TEST_F(MemoryMisuse, ThreadWithoutContext) {
  WithoutContext({
      ROW(107002, aclrtMalloc(w.out.handle(), 64, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(107002, aclrtMallocAlign32(w.out.handle(), 64, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(107002, aclrtMallocCached(w.out.handle(), 64, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(107002, aclrtMallocWithCfg(w.out.handle(), 64, ACL_MEM_MALLOC_HUGE_FIRST, nullptr)),
      ROW(107002, aclrtMallocForTaskScheduler(w.out.handle(), 64, ACL_MEM_MALLOC_HUGE_FIRST, nullptr)),
      ROW(107002, aclrtMallocHost(w.out.handle(), 64)),
      ROW(107002, aclrtMallocHostWithCfg(w.out.handle(), 64, nullptr)),
      ROW(107002, aclrtFreeWithDevSync(w.memory)),
      ROW(107002, aclrtFreeHostWithDevSync(w.pinned)),
      ROW(107002, aclrtGetMemInfo(ACL_HBM_MEM, w.out.As<size_t>(), w.out.As<size_t>(1))),
      ROW(107002, aclrtHostRegister(w.heap, kPage, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(107002, aclrtHostRegisterV2(w.heap, kPage, ACL_HOST_REG_PINNED)),
      ROW(107002, aclrtMemcpy(w.memory, 8, w.pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW(107002, aclrtMemcpyAsync(w.memory, 8, w.pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, w.stream)),
      ROW(107002, aclrtMemcpyAsync(w.memory, 8, w.pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, nullptr)),
      ROW(107002, aclrtMemcpyAsyncWithCondition(w.memory, 8, w.pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, nullptr)),
      ROW(107002, aclrtMemcpy2d(w.memory, 8, w.pinned, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE)),
      ROW(107002, aclrtMemcpy2dAsync(w.memory, 8, w.pinned, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE, w.stream)),
      ROW(107002, aclrtMemcpyBatchV2(w.Batch().dsts, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2)),
      ROW(107002, aclrtMemcpyBatchAsyncV2(w.Batch().dsts, w.dest_maxs, w.srcs, w.sizes, 4, w.attrs, w.attr_indexes, 2,
                                          w.stream)),
      ROW(107002, aclrtMemset(w.memory, 8, 0, 8)),
      ROW(107002, aclrtMemsetAsync(w.memory, 8, 0, 8, w.stream)),
      ROW(107002, aclrtMemsetD32(w.memory, 8, 0, 2)),
      ROW(107002, aclrtMemsetD32Async(w.memory, 8, 0, 2, nullptr)),
      ROW(107000, aclrtFree(w.heap)),
      ROW(0, aclrtPointerGetAttributes(w.memory, w.out.As<aclrtPtrAttributes>())),
      ROW(0, aclrtMemGetAddressRange(w.memory, w.out.handle(), nullptr)),
      ROW(0, aclrtGetMemUsageInfo(0, w.out.As<aclrtMemUsageInfo>(), 1, w.out.As<size_t>(2))),
  });
}

TEST_F(MemoryMisuse, DeviceThatWasReset) {
  AfterReset({
      ROW(107002, aclrtMalloc(w.out.handle(), 64, ACL_MEM_MALLOC_HUGE_FIRST)),
      ROW(107002, aclrtMallocHost(w.out.handle(), 64)),
      ROW(107000, aclrtFree(w.memory)),
      ROW(107000, aclrtFree(w.big)),
      ROW(107002, aclrtFreeWithDevSync(w.memory)),
      ROW(107000, aclrtMemGetAddressRange(w.big, w.out.handle(), nullptr)),
      ROW(107002, aclrtMemcpy(w.heap, 8, w.big, 8, ACL_MEMCPY_DEVICE_TO_HOST)),
      ROW(107017, aclrtMemcpyAsync(w.heap, 8, w.big, 8, ACL_MEMCPY_DEVICE_TO_HOST, w.stream)),
      ROW(107002, aclrtMemcpyAsync(w.heap, 8, w.big, 8, ACL_MEMCPY_DEVICE_TO_HOST, nullptr)),
      ROW(107002, aclrtMemset(w.pinned, 8, 0, 8)),
      ROW(107017, aclrtMemsetAsync(w.pinned, 8, 0, 8, w.stream)),
      ROW(107002, aclrtHostRegister(w.heap, kPage, ACL_HOST_REGISTER_MAPPED, w.out.handle())),
      ROW(0, aclrtHostGetDevicePointer(w.registered, w.out.handle(), 0)),
  });
}

// ---- Random calls ----

TEST_F(MemoryMisuse, RandomArguments) {
  World& w = world_;
  static char pageable[64 << 10];         // longer than every valid copy
  std::vector<void*> blocks(6, nullptr);  // what calls allocate and free; then what is no allocation
  for (void* no_block : {static_cast<void*>(w.heap), Address(1), Address(UINTPTR_MAX), w.freed, w.freed_host,
                         static_cast<void*>(w.device() + 64), w.stream, w.event, static_cast<void*>(w.registered)}) {
    blocks.push_back(no_block);
  }
  const std::vector<void*> ends = {w.memory,
                                   w.device() + 32,
                                   w.device() + w.device_bytes - 8,
                                   w.pinned,
                                   w.host() + 1,
                                   w.registered,
                                   w.registered + kPage - 8,
                                   w.unmapped,
                                   w.big,
                                   w.big_pinned,
                                   pageable,
                                   pageable + 4096,
                                   nullptr,
                                   Address(4096),
                                   Address(UINTPTR_MAX - 7),
                                   w.freed,
                                   w.stream};
  const std::vector<size_t> sizes = {0, 1, 3, 4, 8, 32, 64, 100, 4096, 4097, 8192, SIZE_MAX, SIZE_MAX - 100};
  const std::vector<size_t> heights = {0, 1, 2, 3, SIZE_MAX};
  const std::vector<size_t> allocations = {0, 1, 31, 64, 4096, 1 << 20, SIZE_MAX, SIZE_MAX - 32, size_t{1} << 63};
  const std::vector<int> kinds = {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int> policies = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0x100, 0x1001, INT_MAX};
  std::vector<aclrtStream> streams;
  const auto stream = [&](Dice& d) { return d.Pick(streams); };
  const auto end = [&](Dice& d) { return d.Pick(ends); };
  const auto size = [&](Dice& d) { return d.Pick(sizes); };
  const auto kind = [&](Dice& d) { return d.PickEnum<aclrtMemcpyKind>(kinds); };
  const auto policy = [&](Dice& d) { return d.PickEnum<aclrtMemMallocPolicy>(policies); };
  void* place = nullptr;
  const auto keep = [&](Dice& d, int code, int (*release)(void*)) {
    if (code == 0) {
      void*& slot = blocks[release == &aclrtFree ? d.Below(3) : 3 + d.Below(3)];
      EXPECT_EQ(slot == nullptr ? 0 : release(slot), 0) << "what a call gave can be freed";
      slot = place;
    }
    return code;
  };
  const auto forget = [&](int code, void* block) {
    if (code == 0) std::replace(blocks.begin(), blocks.begin() + 6, block, static_cast<void*>(nullptr));
    return code;
  };
  const auto config = [&](Dice& d) -> aclrtMallocConfig* {
    if (d.Below(3) == 0) return nullptr;
    if (d.Below(4) == 0) return w.ConfigWithoutAttributes();
    return w.Config(d.Pick<int>({-1, 0, 1, 2, 3, 4, 99}), d.Pick<uint32_t>({0, 1, 99}),
                    d.Pick<size_t>({0, 1, SIZE_MAX}));
  };
  aclrtPtrAttributes attributes;
  aclrtMemUsageInfo usage;
  size_t counts[2];
  const auto spoil = [&](Dice& d) -> World& {
    w.Batch();
    for (size_t i = 0; i < 4; ++i) {
      if (d.Below(8) == 0) w.dsts[i] = end(d);
      if (d.Below(8) == 0) w.srcs[i] = end(d);
      if (d.Below(8) == 0) w.sizes[i] = size(d);
      if (d.Below(8) == 0) w.dest_maxs[i] = size(d);
    }
    if (d.Below(4) == 0) w.attr_indexes[d.Below(2)] = size(d);
    if (d.Below(4) == 0) w.attrs[d.Below(2)].dstLoc.type = d.PickEnum<aclrtMemLocationType>({0, 1, 2, 4, 9});
    return w;
  };
  const auto batch = [&](Dice& d) { return d.Pick<size_t>({0, 1, 4, 4, 4, SIZE_MAX}); };
  const auto attr_count = [&](Dice& d) { return d.Pick<size_t>({0, 1, 2, 2, 2}); };
  const std::vector<RandomCall> calls = {
      {"aclrtMalloc",
       [&](Dice& d) { return keep(d, aclrtMalloc(&place, d.Pick(allocations), policy(d)), &aclrtFree); }},
      {"aclrtMallocAlign32",
       [&](Dice& d) { return keep(d, aclrtMallocAlign32(&place, d.Pick(allocations), policy(d)), &aclrtFree); }},
      {"aclrtMallocCached",
       [&](Dice& d) { return keep(d, aclrtMallocCached(&place, d.Pick(allocations), policy(d)), &aclrtFree); }},
      {"aclrtMallocWithCfg",
       [&](Dice& d) {
         return keep(d, aclrtMallocWithCfg(&place, d.Pick(allocations), policy(d), config(d)), &aclrtFree);
       }},
      {"aclrtMallocForTaskScheduler",
       [&](Dice& d) {
         return keep(d, aclrtMallocForTaskScheduler(&place, d.Pick(allocations), policy(d), config(d)), &aclrtFree);
       }},
      {"aclrtMallocHost",
       [&](Dice& d) { return keep(d, aclrtMallocHost(&place, d.Pick(allocations)), &aclrtFreeHost); }},
      {"aclrtMallocHostWithCfg",
       [&](Dice& d) {
         return keep(d, aclrtMallocHostWithCfg(&place, d.Pick(allocations), config(d)), &aclrtFreeHost);
       }},
      {"aclrtFree",
       [&](Dice& d) {
         void* block = d.Pick(blocks);
         return forget(aclrtFree(block), block);
       }},
      {"aclrtFreeHost",
       [&](Dice& d) {
         void* block = d.Pick(blocks);
         return forget(aclrtFreeHost(block), block);
       }},
      {"aclrtMemFlush", [&](Dice& d) { return aclrtMemFlush(end(d), size(d)); }},
      {"aclrtMemInvalidate", [&](Dice& d) { return aclrtMemInvalidate(end(d), size(d)); }},
      {"aclrtPointerGetAttributes", [&](Dice& d) { return aclrtPointerGetAttributes(end(d), &attributes); }},
      {"aclrtMemGetAddressRange", [&](Dice& d) { return aclrtMemGetAddressRange(end(d), &place, &counts[0]); }},
      {"aclrtGetMemInfo",
       [&](Dice& d) {
         return aclrtGetMemInfo(d.PickEnum<aclrtMemAttr>({-1, 0, 1, 7, 17, 18}), &counts[0],
                                d.Below(3) == 0 ? nullptr : &counts[1]);
       }},
      {"aclrtGetMemUsageInfo",
       [&](Dice& d) {
         return aclrtGetMemUsageInfo(d.Pick<int>({-1, 0, 1, 64}), &usage, d.Pick<size_t>({0, 1}), &counts[0]);
       }},
      {"aclrtHostRegister",
       [&](Dice& d) {
         void* pages =
             d.Pick<void*>({w.heap, w.heap + 1, w.heap + kPage, w.big, Address(kPage), nullptr, w.registered});
         return aclrtHostRegister(pages, d.Pick<size_t>({0, 1, kPage}),
                                  d.PickEnum<aclrtHostRegisterType>({0, 0, 1, 4, 8}), &place);
       }},
      {"aclrtHostRegisterV2",
       [&](Dice& d) {
         void* pages =
             d.Pick<void*>({w.heap, w.heap + 1, w.heap + kPage, w.big, Address(kPage), nullptr, w.registered});
         return aclrtHostRegisterV2(pages, d.Pick<size_t>({0, 1, kPage}),
                                    d.Pick<uint32_t>({0, 1, 2, 4, 8, 0x10000000, 0x10000002, UINT32_MAX}));
       }},
      {"aclrtHostGetDevicePointer",
       [&](Dice& d) {
         return aclrtHostGetDevicePointer(end(d), &place, d.Pick<uint32_t>({0, 0, 1}));
       }},
      {"aclrtHostUnregister",
       [&](Dice& d) {
         return aclrtHostUnregister(
             d.Pick<void*>({w.heap, w.heap, w.heap + kPage, w.big, w.pinned, nullptr, Address(UINTPTR_MAX)}));
       }},
      {"aclrtMemcpy", [&](Dice& d) { return aclrtMemcpy(end(d), size(d), end(d), size(d), kind(d)); }},
      {"aclrtMemcpyAsync",
       [&](Dice& d) { return aclrtMemcpyAsync(end(d), size(d), end(d), size(d), kind(d), stream(d)); }},
      {"aclrtMemcpyAsyncWithCondition",
       [&](Dice& d) { return aclrtMemcpyAsyncWithCondition(end(d), size(d), end(d), size(d), kind(d), stream(d)); }},
      {"aclrtMemcpy2d",
       [&](Dice& d) { return aclrtMemcpy2d(end(d), size(d), end(d), size(d), size(d), d.Pick(heights), kind(d)); }},
      {"aclrtMemcpy2dAsync",
       [&](Dice& d) {
         return aclrtMemcpy2dAsync(end(d), size(d), end(d), size(d), size(d), d.Pick(heights), kind(d), stream(d));
       }},
      {"aclrtMemcpyBatch", [&](Dice& d) { return spoil(d).RunBatch(batch(d), attr_count(d)); }},
      {"aclrtMemcpyBatchV2", [&](Dice& d) { return spoil(d).RunBatchV2(batch(d), attr_count(d)); }},
      {"aclrtMemcpyBatchAsync", [&](Dice& d) { return spoil(d).RunBatchAsync(stream(d), batch(d), attr_count(d)); }},
      {"aclrtMemcpyBatchAsyncV2",
       [&](Dice& d) { return spoil(d).RunBatchAsyncV2(stream(d), batch(d), attr_count(d)); }},
      {"aclrtMemset", [&](Dice& d) { return aclrtMemset(end(d), size(d), 1, size(d)); }},
      {"aclrtMemsetAsync", [&](Dice& d) { return aclrtMemsetAsync(end(d), size(d), 1, size(d), stream(d)); }},
      {"aclrtMemsetD32", [&](Dice& d) { return aclrtMemsetD32(end(d), size(d), 1, size(d)); }},
      {"aclrtMemsetD32Async", [&](Dice& d) { return aclrtMemsetD32Async(end(d), size(d), 1, size(d), stream(d)); }},
  };
  const std::vector<Handle> no_streams = w.BadHandles("stream");
  for (const uint64_t seed : Seeds(Loops(150, 12))) {
    const aclrtStream work = NewStream();
    streams = {work, work, work, work, nullptr, nullptr, w.foreign};
    for (const Handle& bad : no_streams) streams.push_back(bad.handle);
    const bool capturing = seed % 3 != 0;
    if (capturing) {
      BeginCapture(seed % 3 == 1 ? ACL_MODEL_RI_CAPTURE_MODE_GLOBAL : ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
      for (int i = 0; i < 4; ++i) streams.push_back(w.captured);
    }
    // Copies of the host and of streams must not meet in one place.
    RunRandomCalls(seed, 400, calls, [work] {
      EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(work, kPatience));
      EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(nullptr, kPatience));
    });
    if (capturing) EndCapture();
    EXPECT_ACL(0, aclrtDestroyStream(work));
    for (void* pages : std::initializer_list<void*>{w.heap, w.heap + 1, w.heap + kPage, w.big}) {
      (void)aclrtHostUnregister(pages);
    }
    Repaint();
    StillWorks();
    if (HasFailure()) break;
  }
  for (size_t i = 0; i < 6; ++i)
    EXPECT_EQ(blocks[i] == nullptr ? 0 : (i < 3 ? aclrtFree : aclrtFreeHost)(blocks[i]), 0);
}

}  // namespace
}  // namespace reprise::testing
