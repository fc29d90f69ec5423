// SPDX-License-Identifier: Apache-2.0
//
// Stream-ordered pools, allocator descriptions and tensor descriptors.
#include <acl/acl_base_mdl.h>
#include <acl/acl_rt_allocator.h>
#include <acl/acl_rt_memory_soma.h>

#include <algorithm>

#include "fixture.h"

namespace reprise::testing {
namespace {

class Pool : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    stream_ = NewStream();
    other_ = NewStream();
  }
  static aclrtMemPoolProps Props(size_t most = 0) {
    aclrtMemPoolProps props{};
    props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    props.maxSize = most;
    return props;
  }
  static aclrtMemPool NewPool(size_t most = 0) {
    const aclrtMemPoolProps props = Props(most);
    aclrtMemPool pool = nullptr;
    EXPECT_EQ(0, aclrtMemPoolCreate(&pool, &props)) << aclGetRecentErrMsg();
    return pool;
  }
  static uint64_t Get(aclrtMemPool pool, aclrtMemPoolAttr attr) {
    uint64_t value = 0;
    EXPECT_EQ(0, aclrtMemPoolGetAttr(pool, attr, &value));
    return value;
  }
  static void Set(aclrtMemPool pool, aclrtMemPoolAttr attr, uint64_t value) {
    EXPECT_EQ(0, aclrtMemPoolSetAttr(pool, attr, &value)) << aclGetRecentErrMsg();
  }
  static void* Take(aclrtMemPool pool, size_t bytes, aclrtStream stream) {
    void* block = nullptr;
    EXPECT_EQ(0, aclrtMemPoolMallocAsync(&block, bytes, pool, stream)) << aclGetRecentErrMsg();
    return block;
  }
  static uint64_t DeviceUsed() {
    size_t free = 0, total = 0;
    EXPECT_EQ(0, aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
    return total - free;
  }
  aclrtStream stream_ = nullptr;
  aclrtStream other_ = nullptr;
};

TEST_F(Pool, ReusesAtOnceInTheSameStream) {
  const aclrtMemPool pool = NewPool();
  void* const first = Take(pool, 1000, stream_);
  MUST(aclrtMemsetAsync(first, 1000, 1, 1000, stream_));
  EXPECT_EQ(Get(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT), 1024u);
  MUST(aclrtMemPoolFreeAsync(first, stream_));
  EXPECT_EQ(Get(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(Take(pool, 900, stream_), first) << "no synchronisation in between";
  EXPECT_NE(Take(pool, 900, stream_), first);
  EXPECT_EQ(Get(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH), 2048u);
  EXPECT_ACL(0, aclrtMemPoolDestroy(pool));
}

TEST_F(Pool, AnotherStreamGetsItWhenTheWorkHasRunOrWaitsForIt) {
  const aclrtMemPool pool = NewPool();
  Set(pool, ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
  Gate gate;
  void* const block = Take(pool, 4096, stream_);
  gate.Block(stream_);
  MUST(aclrtMemsetAsync(block, 4096, 1, 4096, stream_));
  MUST(aclrtMemPoolFreeAsync(block, stream_));
  void* const apart = Take(pool, 4096, other_);
  EXPECT_NE(apart, block) << "its work has not run";
  MUST(aclrtMemPoolFreeAsync(apart, other_));
  Set(pool, ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC, 0);
  Set(pool, ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
  EXPECT_EQ(Take(pool, 4096, other_), apart) << "of the same stream";
  EXPECT_EQ(Take(pool, 4096, other_), block) << "the stream waits";
  MUST(aclrtMemsetAsync(block, 4096, 2, 4096, other_));
  aclrtStreamStatus status{};
  MUST(aclrtStreamQuery(other_, &status));
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  gate.Open();
  MUST(aclrtSynchronizeStream(other_));
  EXPECT_EQ(static_cast<char*>(block)[4095], 2);
  EXPECT_ACL(0, aclrtMemPoolDestroy(pool));
}

TEST_F(Pool, SynchronisationTrimsToTheThreshold) {
  const uint64_t before = DeviceUsed();
  const aclrtMemPool pool = NewPool();
  Set(pool, ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, 1 << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(Take(pool, 1 << 19, stream_));
  for (void* block : blocks) MUST(aclrtMemPoolFreeAsync(block, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(Get(pool, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT), 1u << 20);
  EXPECT_EQ(Get(pool, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH), 2u << 20);
  EXPECT_EQ(DeviceUsed(), before + (1 << 20));
  MUST(aclrtMemPoolTrimTo(pool, 0));
  EXPECT_EQ(DeviceUsed(), before);
  Set(pool, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH, 0);
  EXPECT_EQ(Get(pool, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH), 0u);
  EXPECT_ACL(0, aclrtMemPoolDestroy(pool));
}

TEST_F(Pool, HasALimit) {
  const aclrtMemPool pool = NewPool(1 << 20);
  void* const block = Take(pool, 1 << 19, stream_);
  void* more = nullptr;
  EXPECT_ACL(207001, aclrtMemPoolMallocAsync(&more, 1 << 20, pool, stream_));
  EXPECT_EQ(more, nullptr);
  MUST(aclrtMemPoolFreeAsync(block, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_NE(Take(pool, 1 << 20, stream_), nullptr);
  EXPECT_ACL(0, aclrtMemPoolDestroy(pool));
}

TEST_F(Pool, DestroyedPoolLivesUntilItsLastBlockIsBack) {
  const uint64_t before = DeviceUsed();
  const aclrtMemPool pool = NewPool();
  void* const block = Take(pool, 4096, stream_);
  MUST(aclrtMemPoolDestroy(pool));
  MUST(aclrtMemsetAsync(block, 4096, 1, 4096, stream_));
  void* late = nullptr;
  EXPECT_ACL(107017, aclrtMemPoolMallocAsync(&late, 64, pool, stream_));
  MUST(aclrtMemPoolFreeAsync(block, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(DeviceUsed(), before);
}

// Blocks that are trimmed while other streams still use them, which the pool does not know of.
TEST_F(Pool, WhatIsTrimmedUnderRunningWorkStaysUntilThatHasRun) {
  constexpr size_t kBytes = 1 << 20;
  const uint64_t before = DeviceUsed();
  char* const result = static_cast<char*>(NewMemory(kBytes));
  const uint64_t with_result = DeviceUsed();
  enum Way { kSynchronise, kTrim, kDestroy, kWays };
  for (int way = 0; way < kWays; ++way) {
    SCOPED_TRACE(way);
    const aclrtMemPool pool = NewPool();
    Set(pool, ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, way == kSynchronise ? 0 : UINT64_MAX);
    char* const block = static_cast<char*>(Take(pool, kBytes, stream_));
    std::memset(block, 7, kBytes);
    std::memset(result, 0, kBytes);
    Gate gate;
    gate.Block(other_);
    MUST(aclrtMemcpyAsync(result, kBytes, block, kBytes, ACL_MEMCPY_DEVICE_TO_DEVICE, other_));
    MUST(aclrtMemPoolFreeAsync(block, stream_));
    MUST(aclrtSynchronizeStream(stream_));
    if (way == kTrim) {
      MUST(aclrtMemPoolTrimTo(pool, 0));
    }
    if (way == kDestroy) {
      MUST(aclrtMemPoolDestroy(pool));
    } else {
      EXPECT_EQ(Get(pool, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT), 0u);
    }
    EXPECT_ACL(107000, aclrtMemset(block, kBytes, 1, kBytes));
    EXPECT_GT(DeviceUsed(), with_result) << "the work still needs it";
    void* const fresh = NewMemory(kBytes);
    EXPECT_NE(fresh, block);
    std::memset(fresh, 2, kBytes);
    gate.Open();
    MUST(aclrtSynchronizeStream(other_));
    EXPECT_EQ(std::count(result, result + kBytes, 7), static_cast<ptrdiff_t>(kBytes));
    MUST(aclrtFree(fresh));
    EXPECT_EQ(DeviceUsed(), with_result) << "nothing is in flight";
    if (way != kDestroy) {
      MUST(aclrtMemPoolDestroy(pool));
    }
  }
  MUST(aclrtFree(result));
  EXPECT_EQ(DeviceUsed(), before);
}

TEST_F(Pool, CapturedMemoryBelongsToTheModel) {
  const uint64_t before = DeviceUsed();
  const aclrtMemPool pool = NewPool();
  void* const outside = Take(pool, 256, stream_);
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  void* const block = Take(pool, 256, stream_);
  MUST(aclrtMemsetAsync(block, 256, 9, 256, stream_));
  MUST(aclrtMemPoolFreeAsync(block, stream_));
  EXPECT_ACL(207000, aclrtMemPoolFreeAsync(outside, stream_));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  MUST(aclrtMemPoolTrimTo(pool, 0));
  void* const apart = Take(pool, 256, other_);
  EXPECT_NE(apart, block) << "replays need it";
  MUST(aclmdlRIExecuteAsync(model, other_));
  MUST(aclrtSynchronizeStream(other_));
  EXPECT_EQ(static_cast<char*>(block)[255], 9);
  EXPECT_ACL(107000, aclrtFree(block));
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtMemPoolFreeAsync(outside, stream_));
  MUST(aclrtMemPoolFreeAsync(apart, other_));
  MUST(aclrtSynchronizeDevice());
  EXPECT_EQ(DeviceUsed(), before);
  EXPECT_ACL(0, aclrtMemPoolDestroy(pool));
}

TEST_F(Pool, WrongCallsAreRefused) {
  const aclrtMemPool pool = NewPool();
  aclrtMemPool made = nullptr;
  aclrtMemPoolProps props = Props();
  void* block = nullptr;
  int local = 0;
  uint64_t value = 1;
  EXPECT_ACL(100000, aclrtMemPoolCreate(nullptr, &props));
  EXPECT_ACL(100000, aclrtMemPoolCreate(&made, nullptr));
  props.reserved[31] = 1;
  EXPECT_ACL(100000, aclrtMemPoolCreate(&made, &props));
  props = Props();
  props.handleType = ACL_MEM_HANDLE_TYPE_POSIX;
  EXPECT_ACL(100000, aclrtMemPoolCreate(&made, &props));
  props = Props();
  props.location.type = ACL_MEM_LOCATION_TYPE_HOST;
  EXPECT_ACL(100000, aclrtMemPoolCreate(&made, &props));
  props = Props();
  props.location.id = 99;
  EXPECT_ACL(107001, aclrtMemPoolCreate(&made, &props));
  EXPECT_EQ(made, nullptr);
  EXPECT_ACL(100000, aclrtMemPoolDestroy(nullptr));
  EXPECT_ACL(107017, aclrtMemPoolDestroy(&local));
  EXPECT_ACL(107000, aclrtMemPoolSetAttr(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT, &value));
  EXPECT_ACL(107000, aclrtMemPoolSetAttr(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH, &value));
  EXPECT_ACL(107000, aclrtMemPoolSetAttr(pool, ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, nullptr));
  EXPECT_ACL(107000, aclrtMemPoolGetAttr(pool, static_cast<aclrtMemPoolAttr>(9), &value));
  EXPECT_ACL(100000, aclrtMemPoolMallocAsync(&block, 64, pool, nullptr));
  EXPECT_ACL(100000, aclrtMemPoolMallocAsync(nullptr, 64, pool, stream_));
  EXPECT_ACL(0, aclrtMemPoolMallocAsync(&block, 0, pool, stream_));
  EXPECT_EQ(block, nullptr);
  EXPECT_ACL(207001, aclrtMemPoolMallocAsync(&block, SIZE_MAX, pool, stream_));
  EXPECT_ACL(107000, aclrtMemPoolFreeAsync(&local, stream_));
  block = Take(pool, 64, stream_);
  EXPECT_ACL(107000, aclrtFree(block));
  MUST(aclrtMemPoolFreeAsync(block, nullptr)) << "the default stream";
  EXPECT_ACL(107000, aclrtMemPoolFreeAsync(block, stream_)) << "twice";
  EXPECT_ACL(0, aclrtMemPoolDestroy(pool));
  EXPECT_ACL(107017, aclrtMemPoolTrimTo(pool, 0));
}

// ---- Descriptions ----

TEST_F(Pool, AllocatorOfAStream) {
  int object = 0;
  const aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc();
  ASSERT_NE(desc, nullptr);
  EXPECT_ACL(100000, aclrtAllocatorRegister(stream_, desc)) << "nothing is set";
  MUST(aclrtAllocatorSetObjToDesc(desc, &object));
  MUST(aclrtAllocatorSetAllocFuncToDesc(desc, [](aclrtAllocator, size_t) -> void* { return nullptr; }));
  MUST(aclrtAllocatorSetFreeFuncToDesc(desc, [](aclrtAllocator, aclrtAllocatorBlock) {}));
  EXPECT_ACL(100000, aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, nullptr));
  MUST(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, [](aclrtAllocatorBlock block) -> void* { return block; }));
  MUST(aclrtAllocatorRegister(stream_, desc));
  aclrtAllocatorDesc got = nullptr;
  aclrtAllocator got_object = nullptr;
  aclrtAllocatorAllocAdviseFunc advise = [](aclrtAllocator, size_t, aclrtAllocatorAddr) -> void* { return nullptr; };
  MUST(aclrtAllocatorGetByStream(stream_, &got, &got_object, nullptr, nullptr, &advise, nullptr));
  EXPECT_EQ(got, desc);
  EXPECT_EQ(got_object, &object);
  EXPECT_EQ(advise, nullptr);
  MUST(aclrtAllocatorGetByStream(other_, &got, &got_object, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(got, nullptr);
  MUST(aclrtAllocatorUnregister(stream_));
  MUST(aclrtAllocatorUnregister(stream_));
  MUST(aclrtAllocatorDestroyDesc(desc));
  EXPECT_ACL(107017, aclrtAllocatorDestroyDesc(desc));
}

TEST(TensorDesc, KeepsWhatItIsGiven) {
  const int64_t dims[] = {2, 3, 4};
  aclTensorDesc* desc = aclCreateTensorDesc(ACL_FLOAT16, 3, dims, ACL_FORMAT_ND);
  ASSERT_NE(desc, nullptr);
  EXPECT_EQ(aclGetTensorDescType(desc), ACL_FLOAT16);
  EXPECT_EQ(aclGetTensorDescFormat(desc), ACL_FORMAT_ND);
  EXPECT_EQ(aclGetTensorDescNumDims(desc), 3u);
  EXPECT_EQ(aclGetTensorDescElementCount(desc), 24u);
  EXPECT_EQ(aclGetTensorDescSize(desc), 48u);
  int64_t dim = 0;
  EXPECT_ACL(0, aclGetTensorDescDimV2(desc, 2, &dim));
  EXPECT_EQ(dim, 4);
  EXPECT_ACL(100000, aclGetTensorDescDimV2(desc, 3, &dim));
  EXPECT_EQ(aclGetTensorDescDim(desc, 1), 3);
  EXPECT_EQ(aclGetTensorDescDim(desc, 9), -1);
  aclSetTensorDescName(desc, "x");
  EXPECT_STREQ(aclGetTensorDescName(desc), "x");
  int64_t ranges[][2] = {{1, 2}, {3, 3}, {4, 8}};
  EXPECT_ACL(0, aclSetTensorShapeRange(desc, 3, ranges));
  int64_t range[2] = {};
  EXPECT_ACL(0, aclGetTensorDescDimRange(desc, 2, 2, range));
  EXPECT_EQ(range[1], 8);
  EXPECT_ACL(100000, aclGetTensorDescDimRange(desc, 3, 2, range));
  EXPECT_ACL(100000, aclSetTensorPlaceMent(desc, static_cast<aclMemType>(7)));
  EXPECT_ACL(100000, aclSetTensorConst(desc, nullptr, 4));
  float constant = 2.5f;
  EXPECT_ACL(0, aclSetTensorConst(desc, &constant, sizeof constant));
  ASSERT_NE(aclGetTensorDescAddress(desc), nullptr);
  EXPECT_EQ(*static_cast<float*>(aclGetTensorDescAddress(desc)), 2.5f);
  aclDestroyTensorDesc(desc);
  EXPECT_EQ(aclGetTensorDescNumDims(desc), 0u) << "destroyed";
  EXPECT_ACL(107017, aclSetTensorFormat(desc, ACL_FORMAT_NCHW));
  const int64_t unknown[] = {-2};
  desc = aclCreateTensorDesc(ACL_FLOAT, 1, unknown, ACL_FORMAT_ND);
  EXPECT_EQ(aclGetTensorDescNumDims(desc), 0u) << "rank not known";
  EXPECT_EQ(aclGetTensorDescElementCount(desc), 0u);
  aclDestroyTensorDesc(desc);
  aclDestroyTensorDesc(nullptr);
  const int64_t bad[] = {-3};
  EXPECT_EQ(aclCreateTensorDesc(ACL_FLOAT, 1, bad, ACL_FORMAT_ND), nullptr);
  EXPECT_EQ(aclCreateTensorDesc(ACL_FLOAT, 3, nullptr, ACL_FORMAT_ND), nullptr);
  EXPECT_EQ(aclCreateTensorDesc(ACL_FLOAT, -1, dims, ACL_FORMAT_ND), nullptr);
}

}  // namespace
}  // namespace reprise::testing
