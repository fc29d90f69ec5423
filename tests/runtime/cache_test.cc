// SPDX-License-Identifier: Apache-2.0
//
// Cache operations, and questions about memory of other devices and engines.
#include "fixture.h"

namespace reprise::testing {
namespace {

class Cache : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    stream_ = NewStream();
    cells_ = static_cast<uint64_t*>(NewMemory(64));
    MUST(aclrtCmoGetDescSize(&bytes_));
    desc_ = NewMemory(bytes_);
    MUST(aclrtCreateStreamWithConfig(&stored_, 0, ACL_STREAM_PERSISTENT));
    MUST(aclmdlRIBuildBegin(&model_, 0));
    MUST(aclmdlRIBindStream(model_, stored_, ACL_MODEL_STREAM_FLAG_HEAD));
  }
  void TearDown() override {
    EXPECT_EQ(0, aclmdlRIUnbindStream(model_, stored_));
    EXPECT_EQ(0, aclmdlRIDestroy(model_));
    EXPECT_EQ(0, aclrtDestroyStream(stored_));
    EXPECT_EQ(0, aclrtDestroyStream(stream_));
    EXPECT_EQ(0, aclrtFree(desc_));
    EXPECT_EQ(0, aclrtFree(cells_));
    Runtime::TearDown();
  }

  aclrtStream stream_ = nullptr;
  aclrtStream stored_ = nullptr;  // of model_
  aclmdlRI model_ = nullptr;
  uint64_t* cells_ = nullptr;
  void* desc_ = nullptr;
  size_t bytes_ = 0;
};

TEST_F(Cache, BarriersKeepTheirPlaceInTheModel) {
  aclrtBarrierTaskInfo barrier{};
  barrier.barrierNum = 2;
  barrier.cmoInfo[0] = {ACL_RT_CMO_TYPE_INVALID, 3};
  barrier.cmoInfo[1] = {ACL_RT_CMO_TYPE_INVALID, 9};
  MUST(aclrtValueWrite(cells_, 1, 0, stored_));
  for (auto type :
       {ACL_RT_CMO_TYPE_PREFETCH, ACL_RT_CMO_TYPE_WRITEBACK, ACL_RT_CMO_TYPE_INVALID, ACL_RT_CMO_TYPE_FLUSH}) {
    EXPECT_ACL(0, aclrtCmoAsyncWithBarrier(cells_, 64, type, type == ACL_RT_CMO_TYPE_INVALID ? 3 : 0, stored_));
  }
  EXPECT_ACL(0, aclrtCmoWaitBarrier(&barrier, stored_, 0));
  MUST(aclrtMemcpyAsync(cells_ + 1, 8, cells_, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, stored_));
  MUST(aclmdlRIEndTask(model_, stored_));
  MUST(aclmdlRIBuildEnd(model_, nullptr));
  EXPECT_EQ(cells_[1], 0u);
  MUST(aclmdlRIExecuteAsync(model_, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(cells_[1], 1u);
}

TEST_F(Cache, DescriptorsAreReadWhenTheTaskRuns) {
  EXPECT_ACL(0, aclrtCmoAsyncWithDesc(desc_, ACL_RT_CMO_TYPE_PREFETCH, stream_, nullptr));
  EXPECT_ACL(507053, aclrtSynchronizeStream(stream_));  // was never filled
  Gate gate;
  gate.Block(stream_);
  EXPECT_ACL(0, aclrtCmoAsyncWithDesc(desc_, ACL_RT_CMO_TYPE_PREFETCH, stream_, nullptr));
  EXPECT_ACL(0, aclrtCmoSetDesc(desc_, cells_, 64));
  gate.Open();
  EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
}

TEST_F(Cache, CapturedDescriptorsAreReadAtEveryReplay) {
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  EXPECT_ACL(0, aclrtCmoAsyncWithDesc(desc_, ACL_RT_CMO_TYPE_PREFETCH, stream_, nullptr));
  EXPECT_ACL(0, aclrtCmoSetDesc(desc_, cells_, 64));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  MUST(aclmdlRIExecuteAsync(model, stream_));
  EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
  std::memset(desc_, 0, bytes_);
  MUST(aclmdlRIExecuteAsync(model, stream_));
  EXPECT_ACL(507053, aclrtSynchronizeStream(stream_));
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST_F(Cache, ArgumentsAreChecked) {
  char host[64] = {};
  aclrtBarrierTaskInfo barrier{};
  barrier.barrierNum = 1;
  constexpr auto kPrefetch = ACL_RT_CMO_TYPE_PREFETCH;
  constexpr auto kInvalid = ACL_RT_CMO_TYPE_INVALID;
  EXPECT_ACL(100000, aclrtCmoAsyncWithBarrier(nullptr, 64, kInvalid, 1, stored_));
  EXPECT_ACL(107000, aclrtCmoAsyncWithBarrier(cells_, 0, kInvalid, 1, stored_));
  EXPECT_ACL(107000, aclrtCmoAsyncWithBarrier(cells_, 64, static_cast<aclrtCmoType>(4), 0, stored_));
  EXPECT_ACL(107000, aclrtCmoAsyncWithBarrier(cells_, 64, kPrefetch, 1, stored_));
  EXPECT_ACL(107005, aclrtCmoAsyncWithBarrier(cells_, 64, kInvalid, 1, stream_));
  EXPECT_ACL(107005, aclrtCmoAsyncWithBarrier(cells_, 64, kInvalid, 1, nullptr));
  EXPECT_ACL(107017, aclrtCmoAsyncWithBarrier(cells_, 64, kInvalid, 1, host));
  EXPECT_ACL(107000, aclrtCmoAsyncWithBarrier(host, 64, kInvalid, 1, stored_));
  EXPECT_ACL(100000, aclrtCmoWaitBarrier(nullptr, stored_, 0));
  EXPECT_ACL(107000, aclrtCmoWaitBarrier(&barrier, stored_, 1));
  EXPECT_ACL(107005, aclrtCmoWaitBarrier(&barrier, stream_, 0));
  EXPECT_ACL(107017, aclrtCmoWaitBarrier(&barrier, host, 0));
  barrier.barrierNum = 0;
  EXPECT_ACL(107000, aclrtCmoWaitBarrier(&barrier, stored_, 0));
  barrier.barrierNum = 7;
  EXPECT_ACL(107000, aclrtCmoWaitBarrier(&barrier, stored_, 0));
  barrier.barrierNum = SIZE_MAX;
  EXPECT_ACL(107000, aclrtCmoWaitBarrier(&barrier, stored_, 0));
  barrier.barrierNum = 6;
  barrier.cmoInfo[5].cmoType = static_cast<aclrtCmoType>(-1);
  EXPECT_ACL(107000, aclrtCmoWaitBarrier(&barrier, stored_, 0));
  EXPECT_ACL(107000, aclrtCmoGetDescSize(nullptr));
  EXPECT_ACL(107000, aclrtCmoSetDesc(nullptr, cells_, 64));
  EXPECT_ACL(107000, aclrtCmoSetDesc(desc_, nullptr, 64));
  EXPECT_ACL(107000, aclrtCmoSetDesc(desc_, cells_, 0));
  EXPECT_ACL(107000, aclrtCmoSetDesc(desc_, cells_, SIZE_MAX));
  EXPECT_ACL(107000, aclrtCmoSetDesc(host, cells_, 64));
  EXPECT_ACL(107000, aclrtCmoSetDesc(desc_, host, 64));
  EXPECT_ACL(107000, aclrtCmoAsyncWithDesc(nullptr, kPrefetch, stream_, nullptr));
  EXPECT_ACL(107000, aclrtCmoAsyncWithDesc(desc_, kPrefetch, stream_, host));
  EXPECT_ACL(107000, aclrtCmoAsyncWithDesc(desc_, static_cast<aclrtCmoType>(4), stream_, nullptr));
  EXPECT_ACL(207000, aclrtCmoAsyncWithDesc(desc_, kInvalid, stream_, nullptr));
  EXPECT_ACL(107000, aclrtCmoAsyncWithDesc(host, kPrefetch, stream_, nullptr));
  EXPECT_ACL(107017, aclrtCmoAsyncWithDesc(desc_, kPrefetch, host, nullptr));
  // None of this has filled the descriptor.
  MUST(aclrtCmoAsyncWithDesc(desc_, kPrefetch, nullptr, nullptr));
  EXPECT_ACL(507053, aclrtSynchronizeStream(nullptr));
}

using Reach = Runtime;

TEST_F(Reach, PeerMappingsAreThereAlready) {
  void* memory = NewMemory(64);
  char host[64] = {};
  EXPECT_ACL(0, aclrtMemP2PMap(memory, 64, 0, 0));
  EXPECT_ACL(100000, aclrtMemP2PMap(nullptr, 64, 0, 0));
  EXPECT_ACL(100000, aclrtMemP2PMap(memory, 0, 0, 0));
  EXPECT_ACL(100000, aclrtMemP2PMap(memory, 64, 0, 1));
  EXPECT_ACL(107001, aclrtMemP2PMap(memory, 64, 999, 0));
  EXPECT_ACL(107001, aclrtMemP2PMap(memory, 64, -1, 0));
  EXPECT_ACL(107000, aclrtMemP2PMap(memory, 1 << 20, 0, 0));
  EXPECT_ACL(107000, aclrtMemP2PMap(host, 64, 0, 0));
  MUST(aclrtFree(memory));
}

TEST_F(Reach, EnginesThatExistReachHostMemory) {
  aclrtHostMemMapCapability capability = ACL_RT_HOST_MEM_MAP_NOT_SUPPORTED;
  EXPECT_ACL(0, aclrtHostMemMapCapabilities(0, ACL_RT_HAC_TYPE_AIC, &capability));
  EXPECT_EQ(capability, ACL_RT_HOST_MEM_MAP_SUPPORTED);
  capability = ACL_RT_HOST_MEM_MAP_NOT_SUPPORTED;
  EXPECT_ACL(0, aclrtHostMemMapCapabilities(0, ACL_RT_HAC_TYPE_AIV, &capability));
  EXPECT_EQ(capability, ACL_RT_HOST_MEM_MAP_SUPPORTED);
  EXPECT_ACL(0, aclrtHostMemMapCapabilities(0, ACL_RT_HAC_TYPE_CCU, &capability));
  EXPECT_EQ(capability, ACL_RT_HOST_MEM_MAP_NOT_SUPPORTED);
  EXPECT_ACL(100000, aclrtHostMemMapCapabilities(0, ACL_RT_HAC_TYPE_AIC, nullptr));
  EXPECT_ACL(107001, aclrtHostMemMapCapabilities(999, ACL_RT_HAC_TYPE_AIC, &capability));
  EXPECT_ACL(107000, aclrtHostMemMapCapabilities(0, static_cast<aclrtHacType>(10), &capability));
  EXPECT_ACL(107000, aclrtHostMemMapCapabilities(0, static_cast<aclrtHacType>(-1), &capability));
}

}  // namespace
}  // namespace reprise::testing
