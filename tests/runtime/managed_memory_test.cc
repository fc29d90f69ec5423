// SPDX-License-Identifier: Apache-2.0
//
// Managed memory: one address for host and device, hints and what they leave behind.
#include "fixture.h"

namespace reprise::testing {
namespace {

using ::testing::ElementsAre;

constexpr size_t kGranule = 2 << 20;
constexpr int kNone = -2;
constexpr aclrtMemManagedLocation kDevice0 = {ACL_MEM_LOCATIONTYPE_DEVICE, 0};
constexpr aclrtMemManagedLocation kHost = {ACL_MEM_LOCATIONTYPE_HOST, 7};
constexpr aclrtMemManagedLocation kNode1 = {ACL_MEM_LOCATIONTYPE_HOST_NUMA, 1};
constexpr aclrtMemManagedLocation kNowhere = {ACL_MEM_LOCATIONTYPE_INVALID, 0};

class Managed : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    void* memory = nullptr;
    MUST(aclrtMemAllocManaged(&memory, 3 * kGranule, ACL_RT_MEM_ATTACH_GLOBAL));
    memory_ = static_cast<char*>(memory);
    stream_ = NewStream();
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtDestroyStream(stream_));
    if (memory_ != nullptr) {
      EXPECT_EQ(0, aclrtFree(memory_));
    }
    Runtime::TearDown();
  }
  int Attribute(aclrtMemManagedRangeAttribute attribute, const void* at, size_t size) {
    int value = 99;
    EXPECT_ACL(0, aclrtMemManagedGetAttr(attribute, at, size, &value, sizeof value));
    return value;
  }
  // What all three questions about the last prefetch say.
  std::vector<int> Prefetched(const void* at, size_t size) {
    return {Attribute(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, size),
            Attribute(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, at, size),
            Attribute(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, at, size)};
  }
  std::vector<int> Preferred(const void* at, size_t size) {
    return {Attribute(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, at, size),
            Attribute(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, at, size),
            Attribute(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, at, size)};
  }
  std::vector<int> AccessedBy(const void* at, size_t size, size_t room) {
    std::vector<int> ids(room, 99);
    EXPECT_ACL(0,
               aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, size, ids.data(), room * sizeof(int)));
    return ids;
  }

  char* memory_ = nullptr;
  aclrtStream stream_ = nullptr;
};

TEST_F(Managed, HostAndDeviceUseOneAddress) {
  auto* cell = reinterpret_cast<uint64_t*>(memory_);
  EXPECT_EQ(*cell, 0u);
  MUST(aclrtValueWrite(cell, 42, 0, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*cell, 42u);
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));  // not pageable
  EXPECT_ACL(0, aclrtMemcpyAsync(cell + 1, 8, cell, 8, ACL_MEMCPY_DEFAULT, stream_));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  MUST(aclmdlRIExecuteAsync(model, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(cell[1], 42u);
  EXPECT_EQ(0, aclmdlRIDestroy(model));
  aclrtPtrAttributes attributes{};
  EXPECT_ACL(0, aclrtPointerGetAttributes(memory_ + 5, &attributes));
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_MANAGED);
  EXPECT_EQ(attributes.pageSize, kGranule);
}

TEST_F(Managed, SizesAreRoundedToGranules) {
  void* small = nullptr;
  size_t free_before = 0, free_after = 0, total = 0;
  MUST(aclrtGetMemInfo(ACL_HBM_MEM, &free_before, &total));
  EXPECT_ACL(0, aclrtMemAllocManaged(&small, 1, ACL_RT_MEM_ATTACH_GLOBAL));
  MUST(aclrtGetMemInfo(ACL_HBM_MEM, &free_after, &total));
  EXPECT_EQ(free_before - free_after, kGranule);
  size_t size = 0;
  MUST(aclrtMemGetAddressRange(small, nullptr, &size));
  EXPECT_EQ(size, kGranule);
  EXPECT_ACL(0, aclrtMemManagedAdvise(small, kGranule, ACL_MEM_ADVISE_SET_READ_MOSTLY, kNowhere));
  EXPECT_ACL(0, aclrtFree(small));
  EXPECT_ACL(107000, aclrtFree(small));
  MUST(aclrtGetMemInfo(ACL_HBM_MEM, &free_after, &total));
  EXPECT_EQ(free_before, free_after);
}

TEST_F(Managed, AllocationsAreChecked) {
  void* out = memory_;
  EXPECT_ACL(100000, aclrtMemAllocManaged(nullptr, kGranule, ACL_RT_MEM_ATTACH_GLOBAL));
  EXPECT_ACL(100000, aclrtMemAllocManaged(&out, kGranule, 0));
  EXPECT_ACL(100000, aclrtMemAllocManaged(&out, kGranule, 2));
  EXPECT_ACL(107000, aclrtMemAllocManaged(&out, 0, ACL_RT_MEM_ATTACH_GLOBAL));
  EXPECT_ACL(207001, aclrtMemAllocManaged(&out, UINT64_MAX, ACL_RT_MEM_ATTACH_GLOBAL));
  EXPECT_ACL(207001, aclrtMemAllocManaged(&out, uint64_t{1} << 60, ACL_RT_MEM_ATTACH_GLOBAL));
  std::thread([&] { EXPECT_ACL(107002, aclrtMemAllocManaged(&out, kGranule, ACL_RT_MEM_ATTACH_GLOBAL)); }).join();
  EXPECT_EQ(out, memory_);
}

TEST_F(Managed, AdviceIsRemembered) {
  EXPECT_EQ(Attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 3 * kGranule), 0);
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_ + kGranule, kGranule, ACL_MEM_ADVISE_SET_READ_MOSTLY, kNowhere));
  EXPECT_EQ(Attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 3 * kGranule), 0);
  EXPECT_EQ(Attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_ + kGranule, kGranule), 1);
  EXPECT_EQ(Attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_ + kGranule, kGranule + 1), 0);
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, 3 * kGranule, ACL_MEM_ADVISE_SET_READ_MOSTLY, kNowhere));
  EXPECT_EQ(Attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 3 * kGranule), 1);
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_UNSET_READ_MOSTLY, kNowhere));
  EXPECT_EQ(Attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 3 * kGranule), 0);
}

TEST_F(Managed, PreferredLocationsAreRemembered) {
  EXPECT_THAT(Preferred(memory_, 3 * kGranule), ElementsAre(kNone, 0, kNone));
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_SET_PREFERRED_LOCATION, kDevice0));
  EXPECT_THAT(Preferred(memory_, kGranule), ElementsAre(0, ACL_MEM_LOCATIONTYPE_DEVICE, 0));
  EXPECT_THAT(Preferred(memory_, 2 * kGranule), ElementsAre(kNone, 0, kNone));
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost));
  EXPECT_THAT(Preferred(memory_, 1), ElementsAre(-1, ACL_MEM_LOCATIONTYPE_HOST, -1));
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_SET_PREFERRED_LOCATION, kNode1));
  EXPECT_THAT(Preferred(memory_, 1), ElementsAre(1, ACL_MEM_LOCATIONTYPE_HOST_NUMA, 1));
  const aclrtMemManagedLocation here = {ACL_MEM_LOCATIONTYPE_HOST_NUMA_CURRENT, 0};
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
  EXPECT_EQ(Attribute(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, memory_, 1), ACL_MEM_LOCATIONTYPE_HOST_NUMA);
  EXPECT_GE(Attribute(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, memory_, 1), 0);
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_UNSET_PREFERRED_LOCATION, kNowhere));
  EXPECT_THAT(Preferred(memory_, 1), ElementsAre(kNone, 0, kNone));
}

TEST_F(Managed, AccessesAreRemembered) {
  EXPECT_THAT(AccessedBy(memory_, 3 * kGranule, 3), ElementsAre(kNone, kNone, kNone));
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, 3 * kGranule, ACL_MEM_ADVISE_SET_ACCESSED_BY, kDevice0));
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_SET_ACCESSED_BY, kHost));
  EXPECT_THAT(AccessedBy(memory_, kGranule, 3), ElementsAre(-1, 0, kNone));
  EXPECT_THAT(AccessedBy(memory_, kGranule, 1), ElementsAre(-1));
  EXPECT_THAT(AccessedBy(memory_, 3 * kGranule, 2), ElementsAre(0, kNone));
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_UNSET_ACCESSED_BY, kDevice0));
  EXPECT_THAT(AccessedBy(memory_, kGranule, 2), ElementsAre(-1, kNone));
  EXPECT_ACL(107000, aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_SET_ACCESSED_BY, kNode1));
}

TEST_F(Managed, PrefetchesHappenInStreamOrder) {
  EXPECT_THAT(Prefetched(memory_, 3 * kGranule), ElementsAre(kNone, 0, kNone));
  Gate gate;
  gate.Block(stream_);
  EXPECT_ACL(0, aclrtMemManagedPrefetchAsync(memory_ + 1, 2 * kGranule, kDevice0, 0, stream_));
  EXPECT_THAT(Prefetched(memory_, kGranule), ElementsAre(kNone, 0, kNone));
  gate.Open();
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_THAT(Prefetched(memory_, 3 * kGranule), ElementsAre(0, ACL_MEM_LOCATIONTYPE_DEVICE, 0));
  EXPECT_ACL(0, aclrtMemManagedPrefetchAsync(memory_, kGranule, kHost, 0, nullptr));
  MUST(aclrtSynchronizeStream(nullptr));
  EXPECT_THAT(Prefetched(memory_, kGranule), ElementsAre(-1, ACL_MEM_LOCATIONTYPE_HOST, -1));
  EXPECT_THAT(Prefetched(memory_, 3 * kGranule), ElementsAre(kNone, 0, kNone));
}

TEST_F(Managed, CapturedPrefetchesHappenAtEveryReplay) {
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  EXPECT_ACL(0, aclrtMemManagedPrefetchAsync(memory_, kGranule, kDevice0, 0, stream_));
  EXPECT_ACL(0, aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_SET_READ_MOSTLY, kNowhere));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  for (int run = 0; run < 2; ++run) {
    MUST(aclrtMemManagedPrefetchAsync(memory_, kGranule, kHost, 0, stream_));
    MUST(aclrtSynchronizeStream(stream_));
    EXPECT_THAT(Prefetched(memory_, kGranule), ElementsAre(-1, ACL_MEM_LOCATIONTYPE_HOST, -1));
    MUST(aclmdlRIExecuteAsync(model, stream_));
    MUST(aclrtSynchronizeStream(stream_));
    EXPECT_THAT(Prefetched(memory_, kGranule), ElementsAre(0, ACL_MEM_LOCATIONTYPE_DEVICE, 0));
  }
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST_F(Managed, BatchesNameTheFirstRangeOfEachLocation) {
  const void* ptrs[] = {memory_, memory_ + kGranule, memory_ + 2 * kGranule};
  size_t sizes[] = {kGranule, 1, kGranule};
  aclrtMemManagedLocation places[] = {kHost, kDevice0};
  size_t firsts[] = {0, 2};
  EXPECT_ACL(0, aclrtMemManagedPrefetchBatchAsync(ptrs, sizes, 3, places, firsts, 2, 0, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(Prefetched(memory_, 1)[0], -1);
  EXPECT_EQ(Prefetched(memory_ + kGranule, 1)[0], -1);
  EXPECT_EQ(Prefetched(memory_ + 2 * kGranule, 1)[0], 0);
}

TEST_F(Managed, MemoryThatIsFreedMeanwhileIsPassedOver) {
  Gate gate;
  gate.Block(stream_);
  EXPECT_ACL(0, aclrtMemManagedPrefetchAsync(memory_, 3 * kGranule, kDevice0, 0, stream_));
  MUST(aclrtFree(memory_));
  gate.Open();
  EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
  int value = 99;
  EXPECT_ACL(107000, aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 1, &value, sizeof value));
  EXPECT_EQ(value, 99);
  memory_ = nullptr;
}

TEST_F(Managed, ResettingTheDeviceForgetsEverything) {
  MUST(aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_SET_READ_MOSTLY, kNowhere));
  MUST(aclrtDestroyStream(stream_));
  MUST(aclrtResetDeviceForce(0));
  int value = 99;
  EXPECT_ACL(107000, aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 1, &value, sizeof value));
  MUST(aclrtSetDevice(0));
  void* again = nullptr;
  MUST(aclrtMemAllocManaged(&again, 3 * kGranule, ACL_RT_MEM_ATTACH_GLOBAL));
  memory_ = static_cast<char*>(again);
  EXPECT_EQ(Attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, kGranule), 0);
  stream_ = NewStream();
}

TEST_F(Managed, ManyThreadsAdviseAndAsk) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        char* at = memory_ + (t + i) % 3 * kGranule;
        const auto advice = i % 2 == 0 ? ACL_MEM_ADVISE_SET_ACCESSED_BY : ACL_MEM_ADVISE_UNSET_ACCESSED_BY;
        EXPECT_EQ(0, aclrtMemManagedAdvise(at, kGranule, advice, kDevice0));
        int id = 99;
        EXPECT_EQ(0, aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, 1, &id, sizeof id));
        EXPECT_TRUE(id == 0 || id == kNone) << id;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Managed, SeveralAttributesAreReadAtOnce) {
  MUST(aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_SET_READ_MOSTLY, kNowhere));
  MUST(aclrtMemManagedAdvise(memory_, kGranule, ACL_MEM_ADVISE_SET_ACCESSED_BY, kDevice0));
  int read_mostly = 99;
  int by[2] = {99, 99};
  aclrtMemManagedRangeAttribute attributes[] = {ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                                ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY};
  void* data[] = {&read_mostly, by};
  size_t sizes[] = {sizeof read_mostly, sizeof by};
  EXPECT_ACL(0, aclrtMemManagedGetAttrs(attributes, 2, memory_, kGranule, data, sizes));
  EXPECT_EQ(read_mostly, 1);
  EXPECT_THAT(by, ElementsAre(0, kNone));
  read_mostly = 99;
  sizes[1] = 6;
  EXPECT_ACL(107000, aclrtMemManagedGetAttrs(attributes, 2, memory_, kGranule, data, sizes));
  sizes[1] = 8;
  data[1] = nullptr;
  EXPECT_ACL(100000, aclrtMemManagedGetAttrs(attributes, 2, memory_, kGranule, data, sizes));
  data[1] = by;
  EXPECT_ACL(100000, aclrtMemManagedGetAttrs(nullptr, 2, memory_, kGranule, data, sizes));
  EXPECT_ACL(100000, aclrtMemManagedGetAttrs(attributes, 2, nullptr, kGranule, data, sizes));
  EXPECT_ACL(100000, aclrtMemManagedGetAttrs(attributes, 2, memory_, 0, data, sizes));
  EXPECT_ACL(100000, aclrtMemManagedGetAttrs(attributes, 2, memory_, kGranule, nullptr, sizes));
  EXPECT_ACL(100000, aclrtMemManagedGetAttrs(attributes, 2, memory_, kGranule, data, nullptr));
  EXPECT_ACL(107000, aclrtMemManagedGetAttrs(attributes, 0, memory_, kGranule, data, sizes));
  EXPECT_ACL(107000, aclrtMemManagedGetAttrs(attributes, SIZE_MAX, memory_, kGranule, data, sizes));
  EXPECT_EQ(read_mostly, 99);
}

TEST_F(Managed, HintsAreChecked) {
  void* plain = NewMemory(64);
  int value = 99;
  constexpr auto kRead = ACL_MEM_ADVISE_SET_READ_MOSTLY;
  constexpr auto kPrefer = ACL_MEM_ADVISE_SET_PREFERRED_LOCATION;
  EXPECT_ACL(100000, aclrtMemManagedAdvise(nullptr, kGranule, kRead, kHost));
  EXPECT_ACL(100000, aclrtMemManagedAdvise(memory_, 0, kRead, kHost));
  EXPECT_ACL(107000, aclrtMemManagedAdvise(memory_, kGranule - 1, kRead, kHost));
  EXPECT_ACL(107000, aclrtMemManagedAdvise(memory_, 4 * kGranule, kRead, kHost));
  EXPECT_ACL(107000, aclrtMemManagedAdvise(memory_, UINT64_MAX / kGranule * kGranule, kRead, kHost));
  EXPECT_ACL(107000, aclrtMemManagedAdvise(plain, kGranule, kRead, kHost));
  EXPECT_ACL(107000, aclrtMemManagedAdvise(memory_, kGranule, static_cast<aclrtMemManagedAdviseType>(6), kHost));
  EXPECT_ACL(107000, aclrtMemManagedAdvise(memory_, kGranule, static_cast<aclrtMemManagedAdviseType>(-1), kHost));
  EXPECT_ACL(107000, aclrtMemManagedAdvise(memory_, kGranule, kPrefer, kNowhere));
  EXPECT_ACL(107001, aclrtMemManagedAdvise(memory_, kGranule, kPrefer, {ACL_MEM_LOCATIONTYPE_DEVICE, 999}));
  EXPECT_ACL(107001, aclrtMemManagedAdvise(memory_, kGranule, kPrefer, {ACL_MEM_LOCATIONTYPE_DEVICE, -1}));
  EXPECT_ACL(107000, aclrtMemManagedAdvise(memory_, kGranule, kPrefer, {ACL_MEM_LOCATIONTYPE_HOST_NUMA, -1}));
  EXPECT_ACL(107000,
             aclrtMemManagedAdvise(memory_, kGranule, kPrefer, {static_cast<aclrtMemManagedLocationType>(5), 0}));
  EXPECT_ACL(100000, aclrtMemManagedPrefetchAsync(nullptr, kGranule, kHost, 0, stream_));
  EXPECT_ACL(100000, aclrtMemManagedPrefetchAsync(memory_, 0, kHost, 0, stream_));
  EXPECT_ACL(100000, aclrtMemManagedPrefetchAsync(memory_, kGranule, kHost, 1, stream_));
  EXPECT_ACL(107000, aclrtMemManagedPrefetchAsync(memory_, kGranule, kNowhere, 0, stream_));
  EXPECT_ACL(107000, aclrtMemManagedPrefetchAsync(memory_, SIZE_MAX, kHost, 0, stream_));
  EXPECT_ACL(107000, aclrtMemManagedPrefetchAsync(plain, 64, kHost, 0, stream_));
  EXPECT_ACL(107000, aclrtMemManagedPrefetchAsync(&value, 4, kHost, 0, stream_));
  EXPECT_ACL(107017, aclrtMemManagedPrefetchAsync(memory_, kGranule, kHost, 0, &value));
  EXPECT_ACL(100000, aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, nullptr, 1, &value, 4));
  EXPECT_ACL(100000, aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 1, nullptr, 4));
  EXPECT_ACL(100000, aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 0, &value, 4));
  EXPECT_ACL(107000, aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 1, &value, 8));
  EXPECT_ACL(107000, aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory_, 1, &value, 0));
  EXPECT_ACL(107000, aclrtMemManagedGetAttr(static_cast<aclrtMemManagedRangeAttribute>(0), memory_, 1, &value, 4));
  EXPECT_ACL(107000, aclrtMemManagedGetAttr(static_cast<aclrtMemManagedRangeAttribute>(9), memory_, 1, &value, 4));
  EXPECT_ACL(107000, aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, 1, &value, 4));
  EXPECT_ACL(107000, aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, SIZE_MAX, &value, 4));
  EXPECT_EQ(value, 99);
  // No hint was taken.
  EXPECT_EQ(Attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, kGranule), 0);
  EXPECT_THAT(Preferred(memory_, kGranule), ElementsAre(kNone, 0, kNone));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_THAT(Prefetched(memory_, kGranule), ElementsAre(kNone, 0, kNone));
  MUST(aclrtFree(plain));
}

TEST_F(Managed, BatchesAreChecked) {
  const void* ptrs[] = {memory_, memory_ + kGranule};
  size_t sizes[] = {kGranule, kGranule};
  aclrtMemManagedLocation places[] = {kHost, kDevice0};
  size_t firsts[] = {0, 1};
  const auto batch = [&](size_t count, size_t locations) {
    return aclrtMemManagedPrefetchBatchAsync(ptrs, sizes, count, places, firsts, locations, 0, stream_);
  };
  EXPECT_ACL(100000, aclrtMemManagedPrefetchBatchAsync(nullptr, sizes, 2, places, firsts, 2, 0, stream_));
  EXPECT_ACL(100000, aclrtMemManagedPrefetchBatchAsync(ptrs, nullptr, 2, places, firsts, 2, 0, stream_));
  EXPECT_ACL(100000, aclrtMemManagedPrefetchBatchAsync(ptrs, sizes, 2, nullptr, firsts, 2, 0, stream_));
  EXPECT_ACL(100000, aclrtMemManagedPrefetchBatchAsync(ptrs, sizes, 2, places, nullptr, 2, 0, stream_));
  EXPECT_ACL(100000, aclrtMemManagedPrefetchBatchAsync(ptrs, sizes, 2, places, firsts, 2, 1, stream_));
  EXPECT_ACL(107017, aclrtMemManagedPrefetchBatchAsync(ptrs, sizes, 2, places, firsts, 2, 0, memory_));
  const auto expect = [&](int code, size_t count, size_t locations) {
    DropMessage();
    EXPECT_TRUE(CheckAcl(code, batch(count, locations), "aclrtMemManagedPrefetchBatchAsync"));
  };
  expect(100000, 0, 2);
  expect(100000, 2, 0);
  expect(107000, SIZE_MAX, 2);
  expect(107000, 1, 2);
  firsts[0] = 1;
  expect(107000, 2, 2);
  firsts[0] = 0;
  firsts[1] = 0;
  expect(107000, 2, 2);
  firsts[1] = 2;
  expect(107000, 2, 2);
  firsts[1] = 1;
  places[1] = kNowhere;
  expect(107000, 2, 2);
  places[1] = kDevice0;
  sizes[1] = 0;
  expect(107000, 2, 2);
  sizes[1] = 3 * kGranule;
  expect(107000, 2, 2);
  sizes[1] = kGranule;
  ptrs[1] = nullptr;
  expect(107000, 2, 2);
  ptrs[1] = sizes;
  expect(107000, 2, 2);
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_THAT(Prefetched(memory_, kGranule), ElementsAre(kNone, 0, kNone));  // nothing of a refused batch happens
}

}  // namespace
}  // namespace reprise::testing
