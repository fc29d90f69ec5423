// SPDX-License-Identifier: Apache-2.0
//
// Reserved addresses, physical memory, mappings, and memory that processes share.
#include <sstream>

#include "child.h"
#include "fixture.h"

namespace reprise::testing {
namespace {

constexpr size_t kHuge = 2u << 20;
constexpr size_t kKeyBytes = 65;

aclrtPhysicalMemProp OnDevice() {
  aclrtPhysicalMemProp prop{};
  prop.memAttr = ACL_HBM_MEM_HUGE;
  prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  return prop;
}

class VirtualMemoryTest : public Runtime {
 protected:
  static size_t Used() {
    size_t free = 0, total = 0;
    EXPECT_EQ(0, aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
    return total - free;
  }
  static aclrtDrvMemHandle NewPhysical(size_t bytes) {
    const aclrtPhysicalMemProp prop = OnDevice();
    aclrtDrvMemHandle handle = nullptr;
    EXPECT_EQ(0, aclrtMallocPhysical(&handle, bytes, &prop, 0)) << aclGetRecentErrMsg();
    return handle;
  }
};

TEST_F(VirtualMemoryTest, ExpandableSegment) {
  const size_t before = Used();
  void* base = nullptr;
  MUST(aclrtReserveMemAddress(&base, 8 * kHuge, 0, nullptr, 0));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % kHuge, 0u);
  EXPECT_EQ(Used(), before) << "addresses cost no memory";
  char* const at = static_cast<char*>(base);
  EXPECT_ACL(107000, aclrtMemset(at, kHuge, 1, kHuge)) << "nothing is mapped";
  std::vector<aclrtDrvMemHandle> pieces;
  for (size_t i = 0; i < 3; ++i) {
    pieces.push_back(NewPhysical(kHuge));
    MUST(aclrtMapMem(at + i * kHuge, kHuge, 0, pieces.back(), 0));
  }
  EXPECT_EQ(Used(), before + 3 * kHuge);
  // One buffer over two pieces, as an allocator hands it out.
  const aclrtStream stream = NewStream();
  char* const buffer = at + kHuge - 4096;
  MUST(aclrtMemsetAsync(buffer, 2 * kHuge, 7, 2 * kHuge, stream));
  MUST(aclrtSynchronizeStream(stream));
  std::vector<char> host(2 * kHuge);
  MUST(aclrtMemcpy(host.data(), host.size(), buffer, host.size(), ACL_MEMCPY_DEVICE_TO_HOST));
  EXPECT_EQ(std::count(host.begin(), host.end(), 7), static_cast<ptrdiff_t>(host.size()));
  EXPECT_ACL(107000, aclrtMemset(at + 2 * kHuge, kHuge + 1, 1, kHuge + 1)) << "ends behind the last piece";
  aclrtPtrAttributes attributes{};
  MUST(aclrtPointerGetAttributes(at + kHuge, &attributes));
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_ACL(107000, aclrtFree(at)) << "mapped, not allocated";
  // The last piece goes and comes back: the others keep their content.
  MUST(aclrtUnmapMem(at + 2 * kHuge));
  MUST(aclrtFreePhysical(pieces[2]));
  EXPECT_EQ(Used(), before + 2 * kHuge);
  EXPECT_ACL(107000, aclrtMemset(at + 2 * kHuge, 1, 1, 1));
  EXPECT_EQ(at[kHuge], 7);
  EXPECT_ACL(107000, aclrtReleaseMemAddress(base)) << "mapped";
  for (size_t i = 0; i < 2; ++i) {
    MUST(aclrtFreePhysical(pieces[i]));
    EXPECT_EQ(at[i * kHuge + kHuge - 1], 7) << "the mapping keeps the memory";
    MUST(aclrtUnmapMem(at + i * kHuge));
  }
  EXPECT_EQ(Used(), before);
  MUST(aclrtReleaseMemAddress(base));
}

TEST_F(VirtualMemoryTest, CapturedMemoryStaysWhereItWas) {
  void* base = nullptr;
  MUST(aclrtReserveMemAddress(&base, kHuge, 0, nullptr, 0));
  const aclrtDrvMemHandle piece = NewPhysical(kHuge);
  MUST(aclrtMapMem(base, kHuge, 0, piece, 0));
  const aclrtStream stream = NewStream();
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclrtMemsetAsync(base, kHuge, 3, kHuge, stream));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream, &model));
  MUST(aclmdlRIExecuteAsync(model, stream));
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(static_cast<char*>(base)[kHuge - 1], 3);
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  MUST(aclrtUnmapMem(base));
  MUST(aclrtFreePhysical(piece));
  MUST(aclrtReleaseMemAddress(base));
}

TEST_F(VirtualMemoryTest, AccessIsGivenAndTaken) {
  void* base = nullptr;
  MUST(aclrtReserveMemAddress(&base, kHuge, 0, nullptr, 0));
  const aclrtDrvMemHandle piece = NewPhysical(kHuge);
  MUST(aclrtMemMapNoAccess(base, kHuge, 0, piece, 0));
  EXPECT_ACL(107000, aclrtMemset(base, kHuge, 1, kHuge));
  aclrtMemAccessDesc desc{};
  desc.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  uint64_t flags = 99;
  MUST(aclrtMemGetAccess(base, &desc.location, &flags));
  EXPECT_EQ(flags, 0u);
  desc.flags = ACL_RT_MEM_ACCESS_FLAGS_READWRITE;
  EXPECT_ACL(107000, aclrtMemSetAccess(base, kHuge / 2, &desc, 1));
  EXPECT_ACL(107000, aclrtMemSetAccess(base, kHuge, &desc, 0));
  MUST(aclrtMemSetAccess(base, kHuge, &desc, 1));
  MUST(aclrtMemGetAccess(base, &desc.location, &flags));
  EXPECT_EQ(flags, 3u);
  MUST(aclrtMemset(base, kHuge, 1, kHuge));
  desc.flags = static_cast<aclrtMemAccessFlags>(2);
  EXPECT_ACL(107000, aclrtMemSetAccess(base, kHuge, &desc, 1));
  desc.flags = ACL_RT_MEM_ACCESS_FLAGS_NONE;
  MUST(aclrtMemSetAccess(base, kHuge, &desc, 1));
  EXPECT_ACL(107000, aclrtMemset(base, kHuge, 1, kHuge));
  desc.location.id = 77;
  EXPECT_ACL(107001, aclrtMemSetAccess(base, kHuge, &desc, 1));
  MUST(aclrtUnmapMem(base));
  MUST(aclrtFreePhysical(piece));
  MUST(aclrtReleaseMemAddress(base));
}

TEST_F(VirtualMemoryTest, TwoMappingsOfOneMemoryAndRetain) {
  void* base = nullptr;
  MUST(aclrtReserveMemAddress(&base, 2 * kHuge, 0, nullptr, 0));
  char* const at = static_cast<char*>(base);
  const aclrtDrvMemHandle piece = NewPhysical(kHuge);
  MUST(aclrtMapMem(at, kHuge, 0, piece, 0));
  MUST(aclrtMapMem(at + kHuge, kHuge, 0, piece, 0));
  MUST(aclrtMemset(at, kHuge, 5, kHuge));
  EXPECT_EQ(at[kHuge + 17], 5) << "the same memory";
  aclrtDrvMemHandle again = nullptr;
  MUST(aclrtMemRetainAllocationHandle(at, &again));
  EXPECT_EQ(again, piece);
  aclrtPhysicalMemProp prop{};
  MUST(aclrtMemGetAllocationPropertiesFromHandle(piece, &prop));
  EXPECT_EQ(prop.memAttr, ACL_HBM_MEM_HUGE);
  EXPECT_EQ(prop.location.type, ACL_MEM_LOCATION_TYPE_DEVICE);
  MUST(aclrtFreePhysical(piece));
  MUST(aclrtFreePhysical(piece)) << "the reference of Retain";
  EXPECT_ACL(107017, aclrtFreePhysical(piece));
  MUST(aclrtUnmapMem(at));
  MUST(aclrtUnmapMem(at + kHuge));
  MUST(aclrtReleaseMemAddress(base));
}

TEST_F(VirtualMemoryTest, WrongCallsAreRefused) {
  void* base = nullptr;
  aclrtDrvMemHandle handle = nullptr;
  size_t granularity = 0;
  EXPECT_ACL(100000, aclrtReserveMemAddress(nullptr, kHuge, 0, nullptr, 0));
  EXPECT_ACL(100000, aclrtReserveMemAddress(&base, 0, 0, nullptr, 0));
  EXPECT_ACL(107000, aclrtReserveMemAddress(&base, kHuge, 4096, nullptr, 0));
  EXPECT_ACL(107000, aclrtReserveMemAddress(&base, kHuge, 0, nullptr, 2));
  EXPECT_ACL(207001, aclrtReserveMemAddress(&base, SIZE_MAX, 0, nullptr, 0));
  EXPECT_EQ(base, nullptr);
  MUST(aclrtReserveMemAddress(&base, 2 * kHuge, 0, nullptr, 0));
  aclrtPhysicalMemProp prop = OnDevice();
  EXPECT_ACL(100000, aclrtMallocPhysical(nullptr, kHuge, &prop, 0));
  EXPECT_ACL(100000, aclrtMallocPhysical(&handle, kHuge, nullptr, 0));
  EXPECT_ACL(100000, aclrtMallocPhysical(&handle, 0, &prop, 0));
  EXPECT_ACL(100000, aclrtMallocPhysical(&handle, kHuge, &prop, 1));
  EXPECT_ACL(107000, aclrtMallocPhysical(&handle, kHuge + 4096, &prop, 0));
  EXPECT_ACL(207001, aclrtMallocPhysical(&handle, size_t{1} << 50, &prop, 0));
  prop.handleType = ACL_MEM_HANDLE_TYPE_POSIX;
  EXPECT_ACL(100000, aclrtMallocPhysical(&handle, kHuge, &prop, 0));
  prop = OnDevice();
  prop.location.type = ACL_MEM_LOCATION_TYPE_MANAGED;
  EXPECT_ACL(100000, aclrtMallocPhysical(&handle, kHuge, &prop, 0));
  prop = OnDevice();
  prop.memAttr = ACL_DDR_MEM_HUGE;
  EXPECT_ACL(100000, aclrtMallocPhysical(&handle, kHuge, &prop, 0)) << "DDR is for the host";
  prop = OnDevice();
  prop.location.id = 50;
  EXPECT_ACL(107001, aclrtMallocPhysical(&handle, kHuge, &prop, 0));
  EXPECT_EQ(handle, nullptr);
  prop = OnDevice();
  MUST(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &granularity));
  EXPECT_EQ(granularity, kHuge);
  EXPECT_ACL(107000, aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF, &granularity));
  handle = NewPhysical(kHuge);
  char* const at = static_cast<char*>(base);
  EXPECT_ACL(107000, aclrtMapMem(at, 2 * kHuge, 0, handle, 0));
  EXPECT_ACL(107000, aclrtMapMem(at, kHuge, 4096, handle, 0));
  EXPECT_ACL(100000, aclrtMapMem(at, kHuge, 0, handle, 1));
  EXPECT_ACL(107000, aclrtMapMem(at + 2 * kHuge, kHuge, 0, handle, 0)) << "behind the reservation";
  EXPECT_ACL(107000, aclrtMapMem(at + kHuge + 4096, kHuge, 0, handle, 0)) << "over its end";
  EXPECT_ACL(107000, aclrtMapMem(at + 1, kHuge, 0, handle, 0)) << "not at a page";
  int local = 0;
  EXPECT_ACL(107000, aclrtMapMem(&local, kHuge, 0, handle, 0));
  EXPECT_ACL(107017, aclrtMapMem(at, kHuge, 0, &local, 0));
  MUST(aclrtMapMem(at, kHuge, 0, handle, 0));
  EXPECT_ACL(107000, aclrtMapMem(at, kHuge, 0, handle, 0)) << "mapped already";
  EXPECT_ACL(107000, aclrtMapMem(at + kHuge / 2, kHuge, 0, handle, 0)) << "overlaps";
  EXPECT_ACL(107000, aclrtUnmapMem(at + 4096));
  EXPECT_ACL(107000, aclrtUnmapMem(&local));
  EXPECT_ACL(107000, aclrtReleaseMemAddress(at + kHuge));
  MUST(aclrtUnmapMem(at));
  EXPECT_ACL(107000, aclrtUnmapMem(at));
  MUST(aclrtFreePhysical(handle));
  MUST(aclrtReleaseMemAddress(base));
  EXPECT_ACL(107000, aclrtReleaseMemAddress(base));
}

// Expandable segments ask for addresses before they, or anybody, have chosen a device.
TEST(VirtualMemoryOfNobody, AddressesAndGranularityNeedNoDevice) {
  std::thread([] {
    void* base = nullptr;
    MUST(aclrtReserveMemAddress(&base, kHuge, 0, nullptr, 1));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % kHuge, 0u);
    MUST(aclrtReleaseMemAddress(base));
    aclrtPhysicalMemProp prop = OnDevice();
    size_t granularity = 0;
    MUST(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED, &granularity));
    EXPECT_EQ(granularity, kHuge);
    prop.location.id = 50;
    EXPECT_ACL(107001, aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &granularity));
    prop = OnDevice();
    aclrtDrvMemHandle handle = nullptr;
    EXPECT_ACL(107002, aclrtMallocPhysical(&handle, kHuge, &prop, 0)) << "memory belongs to a device";
  }).join();
}

// ---- Between processes ----

class SharedMemoryChild : public VirtualMemoryTest {};

TEST_F(SharedMemoryChild, DISABLED_WritesPhysical) {
  std::istringstream arguments(Child::Argument());
  uint64_t token = 0;
  arguments >> token;
  aclrtDrvMemHandle handle = nullptr;
  MUST(aclrtMemImportFromShareableHandle(token, 0, &handle));
  uint64_t second = 0;
  EXPECT_ACL(107000, aclrtMemExportToShareableHandle(handle, ACL_MEM_HANDLE_TYPE_NONE, 0, &second)) << "imported";
  void* base = nullptr;
  MUST(aclrtReserveMemAddress(&base, kHuge, 0, nullptr, 0));
  MUST(aclrtMapMem(base, kHuge, 0, handle, 0));
  EXPECT_EQ(static_cast<char*>(base)[0], 1);
  MUST(aclrtMemset(base, kHuge, 2, kHuge));
  MUST(aclrtUnmapMem(base));
  MUST(aclrtFreePhysical(handle));
  MUST(aclrtReleaseMemAddress(base));
}

TEST_F(VirtualMemoryTest, PhysicalMemoryGoesBetweenProcesses) {
  const aclrtDrvMemHandle piece = NewPhysical(kHuge);
  void* base = nullptr;
  MUST(aclrtReserveMemAddress(&base, kHuge, 0, nullptr, 0));
  MUST(aclrtMapMem(base, kHuge, 0, piece, 0));
  MUST(aclrtMemset(base, kHuge, 1, kHuge));
  uint64_t token = 0;
  EXPECT_ACL(100000, aclrtMemExportToShareableHandle(piece, ACL_MEM_HANDLE_TYPE_POSIX, 0, &token));
  MUST(aclrtMemExportToShareableHandle(piece, ACL_MEM_HANDLE_TYPE_NONE, ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION,
                                       &token));
  uint64_t second = 0;
  EXPECT_ACL(107000, aclrtMemExportToShareableHandle(piece, ACL_MEM_HANDLE_TYPE_NONE, 0, &second));
  aclrtDrvMemHandle own = nullptr;
  EXPECT_ACL(107000, aclrtMemImportFromShareableHandle(token, 0, &own)) << "the same process";
  Child("SharedMemoryChild.DISABLED_WritesPhysical", std::to_string(token)).Join();
  EXPECT_EQ(static_cast<char*>(base)[kHuge - 1], 2);
  MUST(aclrtUnmapMem(base));
  MUST(aclrtFreePhysical(piece));
  MUST(aclrtReleaseMemAddress(base));
  EXPECT_ACL(107000, aclrtMemImportFromShareableHandle(token + 1, 0, &own));
  EXPECT_ACL(107000, aclrtMemImportFromShareableHandle(0, 0, &own));
}

TEST_F(SharedMemoryChild, DISABLED_WritesMemory) {
  std::istringstream arguments(Child::Argument());
  for (std::string key; arguments >> key;) {
    void* memory = nullptr;
    void* again = nullptr;
    MUST(aclrtIpcMemImportByKey(&memory, key.c_str(), 0));
    MUST(aclrtIpcMemImportByKey(&again, key.c_str(), ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS));
    EXPECT_EQ(memory, again);
    char first = 0;
    MUST(aclrtMemcpy(&first, 1, memory, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT_EQ(first, 'p');
    MUST(aclrtMemset(memory, 100, 'c', 100));
    EXPECT_ACL(107000, aclrtMemset(static_cast<char*>(memory) + 100, 1, 'x', 1)) << "behind what was exported";
    EXPECT_ACL(107000, aclrtFree(memory)) << "imported";
    MUST(aclrtIpcMemClose(key.c_str()));
    MUST(aclrtIpcMemClose(key.c_str()));
    EXPECT_ACL(107000, aclrtIpcMemClose(key.c_str()));
  }
}

TEST_F(VirtualMemoryTest, MemoryGoesBetweenProcesses) {
  // Small and large blocks, from their beginning and from within.
  struct Block {
    size_t bytes, offset;
  };
  std::string keys;
  std::vector<char*> blocks;
  std::vector<std::string> exported;
  const Block sizes[] = {{100, 0}, {5000, 700}, {3u << 20, 0}, {3u << 20, 123456}};
  for (const Block& size : sizes) {
    char* const block = static_cast<char*>(NewMemory(size.bytes));
    blocks.push_back(block);
    std::memset(block, 'p', size.bytes);
    char key[kKeyBytes];
    MUST(aclrtIpcMemGetExportKey(block + size.offset, 100, key, sizeof key,
                                 ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION));
    EXPECT_EQ(std::count(block, block + size.bytes, 'p'), static_cast<ptrdiff_t>(size.bytes)) << "content stays";
    keys += std::string(key) + " ";
    exported.emplace_back(key);
    void* own = nullptr;
    EXPECT_ACL(107000, aclrtIpcMemImportByKey(&own, key, 0)) << "the same process";
  }
  Child("SharedMemoryChild.DISABLED_WritesMemory", keys).Join();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& size = sizes[i];
    EXPECT_EQ(std::count(blocks[i] + size.offset, blocks[i] + size.offset + 100, 'c'), 100);
    EXPECT_EQ(std::count(blocks[i], blocks[i] + size.bytes, 'p'), static_cast<ptrdiff_t>(size.bytes) - 100);
    MUST(aclrtIpcMemClose(exported[i].c_str()));
    MUST(aclrtFree(blocks[i]));
  }
}

TEST_F(VirtualMemoryTest, WrongExportsAreRefused) {
  void* const memory = NewMemory(256);
  char key[kKeyBytes] = "untouched";
  int local = 0;
  int32_t pid = 1;
  void* imported = nullptr;
  EXPECT_ACL(100000, aclrtIpcMemGetExportKey(nullptr, 256, key, sizeof key, 0));
  EXPECT_ACL(100000, aclrtIpcMemGetExportKey(memory, 256, nullptr, sizeof key, 0));
  EXPECT_ACL(107000, aclrtIpcMemGetExportKey(memory, 256, key, 64, 0));
  EXPECT_ACL(107000, aclrtIpcMemGetExportKey(memory, 0, key, sizeof key, 0));
  EXPECT_ACL(107000, aclrtIpcMemGetExportKey(memory, 1 << 20, key, sizeof key, 0));
  EXPECT_ACL(107000, aclrtIpcMemGetExportKey(memory, SIZE_MAX, key, sizeof key, 0));
  EXPECT_ACL(107000, aclrtIpcMemGetExportKey(memory, 256, key, sizeof key, 2));
  EXPECT_ACL(107000, aclrtIpcMemGetExportKey(&local, 4, key, sizeof key, 0));
  EXPECT_STREQ(key, "untouched");
  EXPECT_ACL(107000, aclrtIpcMemImportByKey(&imported, "nonsense", 0));
  EXPECT_ACL(107000, aclrtIpcMemImportByKey(&imported, "", 0));
  EXPECT_ACL(107000, aclrtIpcMemClose("nonsense"));
  EXPECT_ACL(107000, aclrtIpcMemSetImportPid("reprise-1-2-3", &pid, 1));
  EXPECT_EQ(imported, nullptr);
}

}  // namespace
}  // namespace reprise::testing
