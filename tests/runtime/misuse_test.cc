// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls as tables: state × call → number. Each row is one call; it must return the number, leave a message with
// the number, the function's name and advice, and have no effect.
#include <acl/acl_platform.h>

#include <functional>

#include "fixture.h"

namespace reprise::testing {
namespace {

/// Objects that the rows pass. Null members are deliberate nulls.
struct World {
  aclrtStream stream = nullptr;
  aclrtStream captured = nullptr;
  aclrtStream stale = nullptr;
  aclrtStream foreign = nullptr;  ///< of another context
  aclrtContext stale_context = nullptr;
  aclrtContext primary = nullptr;
  void* memory = nullptr;
  int local = 0;
  aclrtStream wild() { return &local; }
  aclrtStreamConfigHandle* config = nullptr;
  // Somewhere to write.
  int32_t i32[4] = {};
  uint32_t u32[4] = {};
  int64_t i64[4] = {};
  uint64_t u64[4] = {};
  size_t size[4] = {};
  void* pointer = nullptr;
  char text[256] = {};
  aclrtStreamAttrValue attribute{};
};

struct Row {
  int code;
  const char* call;
  std::function<int(World&)> run;
};

#define ROW(code, ...)                                                                          \
  Row {                                                                                         \
    code, #__VA_ARGS__, []([[maybe_unused]] World& w) { return static_cast<int>(__VA_ARGS__); } \
  }

void RunRows(World& world, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    DropMessage();
    EXPECT_TRUE(CheckAcl(row.code, row.run(world), FunctionOf(row.call))) << row.call;
  }
}

class Misuse : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    MUST(aclrtGetCurrentContext(&world_.primary));
    world_.stream = NewStream();
    world_.stale = NewStream();
    MUST(aclrtDestroyStream(world_.stale));
    MUST(aclrtCreateContext(&other_, 0));
    world_.foreign = NewStream();
    aclrtContext stale = nullptr;
    MUST(aclrtCreateContext(&stale, 0));
    MUST(aclrtDestroyContext(stale));
    world_.stale_context = stale;
    MUST(aclrtSetCurrentContext(world_.primary));
    world_.memory = NewMemory(256);
    world_.config = aclrtCreateStreamConfigHandle();
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtDestroyStreamConfigHandle(world_.config));
    EXPECT_EQ(0, aclrtDestroyContext(other_));
    Runtime::TearDown();
  }
  World world_;
  aclrtContext other_ = nullptr;
};

TEST_F(Misuse, NullPointers) {
  RunRows(world_, {
                      ROW(100000, aclDestroyDataBuffer(nullptr)),
                      ROW(100000, aclUpdateDataBuffer(nullptr, nullptr, 0)),
                      ROW(100000, aclGetCannAttributeList(nullptr, w.size)),
                      ROW(100000, aclGetCannAttribute(ACL_CANN_ATTR_BF16, nullptr)),
                      ROW(100000, aclGetDeviceCapability(0, ACL_DEVICE_INFO_L2_SIZE, nullptr)),
                      ROW(100000, aclrtGetDevice(nullptr)),
                      ROW(100000, aclrtGetDeviceCount(nullptr)),
                      ROW(100000, aclrtGetDeviceUtilizationRate(0, nullptr)),
                      ROW(107000, aclrtDeviceCanAccessPeer(nullptr, 0, 0)),
                      ROW(100000, aclrtQueryDeviceStatus(0, nullptr)),
                      ROW(100000, aclrtDeviceGetBareTgid(nullptr)),
                      ROW(100000, aclrtGetDeviceInfo(0, ACL_DEV_ATTR_NPU_ARCH, nullptr)),
                      ROW(100000, aclrtDeviceGetUuid(0, nullptr)),
                      ROW(100000, aclrtGetDeviceResLimit(0, ACL_RT_DEV_RES_CUBE_CORE, nullptr)),
                      ROW(100000, aclrtGetResInCurrentThread(ACL_RT_DEV_RES_CUBE_CORE, nullptr)),
                      ROW(100000, aclrtGetLogicDevIdByUserDevId(0, nullptr)),
                      ROW(100000, aclrtGetUserDevIdByLogicDevId(0, nullptr)),
                      ROW(100000, aclrtGetLogicDevIdByPhyDevId(0, nullptr)),
                      ROW(100000, aclrtGetPhyDevIdByLogicDevId(0, nullptr)),
                      ROW(100000, aclrtGetUserDevIdByPhyDevId(0, nullptr)),
                      ROW(100000, aclrtGetPhyDevIdByUserDevId(0, nullptr)),
                      ROW(100000, aclrtDeviceGetPCIBusId(0, nullptr, 13)),
                      ROW(100000, aclrtDeviceGetByPCIBusId(nullptr, w.i32)),
                      ROW(100000, aclrtDeviceGetByPCIBusId("0000:00:00.0", nullptr)),
                      ROW(100000, aclrtRegDeviceStateCallback(nullptr, nullptr, nullptr)),
                      ROW(100000, aclrtDeviceGetLimit(ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, nullptr)),
                      ROW(100000, aclrtGetDevicesTopo(0, 0, nullptr)),
                      ROW(100000, aclrtDevicePeerAccessStatus(0, 0, nullptr)),
                      ROW(107000, aclrtCheckArchCompatibility(nullptr, w.i32)),
                      ROW(107000, aclrtCheckArchCompatibility("Ascend910B1", nullptr)),
                      ROW(107000, aclrtDeviceGetHostAtomicCapabilities(nullptr, nullptr, 1, 0)),
                      ROW(107000, aclrtDeviceGetHostAtomicCapabilities(w.u32, nullptr, 1, 0)),
                      ROW(107000, aclrtDeviceGetP2PAtomicCapabilities(nullptr, nullptr, 1, 0, 0)),
                      ROW(100000, aclrtCreateContext(nullptr, 0)),
                      ROW(100000, aclrtDestroyContext(nullptr)),
                      ROW(100000, aclrtSetCurrentContext(nullptr)),
                      ROW(100000, aclrtGetCurrentContext(nullptr)),
                      ROW(100000, aclrtGetPrimaryCtxState(0, nullptr, nullptr)),
                      ROW(107000, aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, nullptr)),
                      ROW(100000, aclrtGetThreadLastTaskId(nullptr)),
                      ROW(100000, aclrtStreamGetId(w.stream, nullptr)),
                      ROW(100000, aclrtCreateStream(nullptr)),
                      ROW(100000, aclrtCreateStreamWithConfig(nullptr, 0, 0)),
                      ROW(100000, aclrtCreateStreamV2(nullptr, w.config)),
                      ROW(100000, aclrtDestroyStream(nullptr)),
                      ROW(100000, aclrtDestroyStreamForce(nullptr)),
                      ROW(100000, aclrtStreamQuery(w.stream, nullptr)),
                      ROW(100000, aclrtStreamGetPriority(w.stream, nullptr)),
                      ROW(100000, aclrtStreamGetFlags(w.stream, nullptr)),
                      ROW(100000, aclrtSetStreamAttribute(w.stream, ACL_STREAM_ATTR_PRIORITY, nullptr)),
                      ROW(100000, aclrtGetStreamAttribute(w.stream, ACL_STREAM_ATTR_PRIORITY, nullptr)),
                      ROW(100000, aclrtCtxGetCurrentDefaultStream(nullptr)),
                      ROW(100000, aclrtGetStreamResLimit(w.stream, ACL_RT_DEV_RES_CUBE_CORE, nullptr)),
                      ROW(100000, aclrtRegStreamStateCallback(nullptr, nullptr, nullptr)),
                      ROW(100000, aclrtGetStreamAvailableNum(nullptr)),
                      ROW(107000, aclrtExceptionInfoCallbackRegister(nullptr)),
                      ROW(107000, aclrtExceptionInfoCallbackUnregister(nullptr)),
                      ROW(100000, aclrtBinarySetExceptionCallback(nullptr, nullptr, nullptr)),
                      ROW(100000, aclrtSetDeviceTaskAbortCallback(nullptr, nullptr, nullptr)),
                      ROW(100000, aclrtGetMemUceInfo(0, nullptr, 1, w.size)),
                      ROW(100000, aclrtMemUceRepair(0, nullptr, 1)),
                      ROW(100000, aclrtGetErrorVerbose(0, nullptr)),
                      ROW(100000, aclrtRepairError(0, nullptr)),
                      ROW(100000, aclrtSetOpExecuteTimeOutV2(1, nullptr)),
                      ROW(100000, aclrtGetOpTimeOutInterval(nullptr)),
                      ROW(100000, aclrtGetOpExecuteTimeout(nullptr)),
                      ROW(100000, aclrtGetStreamOverflowSwitch(w.stream, nullptr)),
                      ROW(100000, aclrtGetDeviceSatMode(nullptr)),
                      ROW(100000, aclrtGetOverflowStatus(nullptr, 64, w.stream)),
                      ROW(107000, aclrtCtxGetFloatOverflowAddr(nullptr)),
                      ROW(107000, aclrtGetFloatOverflowStatus(nullptr, 64, w.stream)),
                      ROW(107000, aclrtNpuGetFloatOverFlowStatus(nullptr, 64, 0, w.stream)),
                      ROW(100000, aclrtCmoAsync(nullptr, 1, ACL_RT_CMO_TYPE_PREFETCH, w.stream)),
                      ROW(100000, aclrtReduceAsync(nullptr, w.memory, 4, ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM, ACL_INT32,
                                                   w.stream, nullptr)),
                      ROW(100000, aclrtReduceAsync(w.memory, nullptr, 4, ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM, ACL_INT32,
                                                   w.stream, nullptr)),
                      ROW(100000, aclrtRandomNumAsync(nullptr, w.stream, nullptr)),
                      ROW(100000, aclsysGetCANNVersion(ACL_PKG_NAME_CANN, nullptr)),
                      ROW(100000, aclsysGetVersionStr(nullptr, w.text)),
                      ROW(100000, aclsysGetVersionStr(w.text, nullptr)),
                      ROW(100000, aclsysGetVersionNum(nullptr, w.i32)),
                      ROW(100000, aclsysGetVersionNum(w.text, nullptr)),
                      ROW(107000, aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, nullptr)),
                      ROW(100000, aclrtGetRunMode(nullptr)),
                      ROW(100000, aclrtGetDeviceCapability(0, ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV, nullptr)),
                      ROW(100000, aclrtGetVersion(nullptr, w.i32, w.i32)),
                      ROW(100000, aclrtGetVersion(w.i32, nullptr, w.i32)),
                      ROW(100000, aclrtGetVersion(w.i32, w.i32, nullptr)),
                      ROW(100000, aclplatformGetDeviceInfo(ACL_PLATFORM_L2_SIZE, nullptr, 8)),
                      ROW(100000, aclplatformGetInstructionInfo(ACL_PLATFORM_CORE_TYPE_AI_CORE, nullptr, w.text, 8)),
                      ROW(100000, aclplatformGetInstructionInfo(ACL_PLATFORM_CORE_TYPE_AI_CORE, "add", nullptr, 8)),
                      ROW(100000, aclrtGetGroupCount(nullptr)),
                      ROW(100000, aclrtDestroyGroupInfo(nullptr)),
                      ROW(100000, aclrtGetAllGroupInfo(nullptr)),
                      ROW(100000, aclrtGetGroupInfoDetail(nullptr, 0, ACL_GROUP_AICORE_INT, w.i32, 4, w.size)),
                  });
}

TEST_F(Misuse, DeviceIdsOutOfRange) {
  RunRows(world_, {
                      ROW(107001, aclrtSetDevice(64)),
                      ROW(107001, aclrtSetDevice(-1)),
                      ROW(107001, aclrtResetDevice(64)),
                      ROW(107001, aclrtResetDeviceForce(64)),
                      ROW(107001, aclrtGetDeviceUtilizationRate(64, reinterpret_cast<aclrtUtilizationInfo*>(w.text))),
                      ROW(107001, aclrtDeviceCanAccessPeer(w.i32, 0, 64)),
                      ROW(107001, aclrtDeviceCanAccessPeer(w.i32, 64, 0)),
                      ROW(107001, aclrtDeviceEnablePeerAccess(64, 0)),
                      ROW(107001, aclrtDeviceDisablePeerAccess(64)),
                      ROW(107000, aclrtDevicePeerAccessStatus(64, 0, w.i32)),
                      ROW(107001, aclrtQueryDeviceStatus(64, reinterpret_cast<aclrtDeviceStatus*>(w.i32))),
                      ROW(107001, aclrtDeviceTaskAbort(64, 1)),
                      ROW(107001, aclrtGetDeviceInfo(64, ACL_DEV_ATTR_NPU_ARCH, w.i64)),
                      ROW(107001, aclrtDeviceGetUuid(64, reinterpret_cast<aclrtUuid*>(w.text))),
                      ROW(107001, aclrtGetDeviceResLimit(64, ACL_RT_DEV_RES_CUBE_CORE, w.u32)),
                      ROW(107001, aclrtSetDeviceResLimit(64, ACL_RT_DEV_RES_CUBE_CORE, 1)),
                      ROW(107001, aclrtResetDeviceResLimit(64)),
                      ROW(107001, aclrtGetLogicDevIdByUserDevId(64, w.i32)),
                      ROW(107001, aclrtGetUserDevIdByLogicDevId(64, w.i32)),
                      ROW(107001, aclrtGetLogicDevIdByPhyDevId(64, w.i32)),
                      ROW(107001, aclrtGetPhyDevIdByLogicDevId(64, w.i32)),
                      ROW(107001, aclrtGetUserDevIdByPhyDevId(64, w.i32)),
                      ROW(107001, aclrtGetPhyDevIdByUserDevId(64, w.i32)),
                      ROW(107001, aclrtDeviceGetPCIBusId(64, w.text, 13)),
                      ROW(107001, aclrtGetDevicesTopo(0, 64, w.u64)),
                      ROW(107001, aclrtCreateContext(&w.pointer, 64)),
                      ROW(107001, aclrtGetPrimaryCtxState(64, nullptr, w.i32)),
                      ROW(107001, aclrtGetMemUceInfo(64, reinterpret_cast<aclrtMemUceInfo*>(w.text), 1, w.size)),
                      ROW(107001, aclrtMemUceRepair(64, reinterpret_cast<aclrtMemUceInfo*>(w.text), 1)),
                      ROW(107001, aclrtRepairError(64, reinterpret_cast<aclrtErrorInfo*>(w.text))),
                      ROW(107001, aclrtGetDeviceCapability(64, ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV, w.i32)),
                      ROW(100000, aclGetDeviceCapability(64, ACL_DEVICE_INFO_L2_SIZE, w.i64)),
                  });
}

TEST_F(Misuse, ValuesOutOfRange) {
  RunRows(world_, {
                      ROW(100000, aclrtSetTsDevice(ACL_TS_ID_RESERVED)),
                      ROW(107000, aclrtSynchronizeDeviceWithTimeout(0)),
                      ROW(107000, aclrtSynchronizeDeviceWithTimeout(-2)),
                      ROW(107000, aclrtSynchronizeStreamWithTimeout(w.stream, 0)),
                      ROW(107000, aclrtSynchronizeStreamWithTimeout(w.stream, -2)),
                      ROW(107000, aclrtDeviceTaskAbort(0, 36 * 60 * 1000 + 1)),
                      ROW(107000, aclrtGetResInCurrentThread(static_cast<aclrtDevResLimitType>(2), w.u32)),
                      ROW(107000, aclrtGetDeviceResLimit(0, static_cast<aclrtDevResLimitType>(-1), w.u32)),
                      ROW(107000, aclrtGetStreamResLimit(w.stream, static_cast<aclrtDevResLimitType>(2), w.u32)),
                      ROW(107000, aclrtSetStreamResLimit(w.stream, ACL_RT_DEV_RES_CUBE_CORE, 0)),
                      ROW(107000, aclrtSetStreamResLimit(w.stream, ACL_RT_DEV_RES_VECTOR_CORE, 41)),
                      ROW(107000, aclrtDeviceGetHostAtomicCapabilities(
                                      w.u32, reinterpret_cast<aclrtAtomicOperation*>(w.i32), 0, 0)),
                      ROW(107000, aclrtDeviceL2CacheFlush(w.memory)),
                      ROW(200006, aclrtDeviceEnablePeerAccess(0, 1)),
                      ROW(100000, aclrtDeviceEnablePeerAccess(0, 0)),
                      ROW(107000, aclrtCtxSetSysParamOpt(static_cast<aclSysParamOpt>(9), 0)),
                      ROW(107000, aclrtCtxGetSysParamOpt(static_cast<aclSysParamOpt>(9), w.i64)),
                      ROW(107000, aclrtSetStreamFailureMode(w.stream, 2)),
                      ROW(107000, aclrtSetStreamFailureMode(w.stream, UINT64_MAX)),
                      ROW(107000, aclrtCreateStreamWithConfig(&w.pointer, 9, 0)),
                      ROW(107000, aclrtSetStreamOverflowSwitch(w.stream, 2)),
                      ROW(107000, aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_UNDEF)),
                      ROW(100000, aclrtGetMemUceInfo(0, reinterpret_cast<aclrtMemUceInfo*>(w.text), 0, w.size)),
                      ROW(100000, aclrtGetMemUceInfo(0, reinterpret_cast<aclrtMemUceInfo*>(w.text), 129, w.size)),
                      ROW(100000, aclrtMemUceRepair(0, reinterpret_cast<aclrtMemUceInfo*>(w.text), 129)),
                      ROW(100000, aclrtPeekAtLastError(static_cast<aclrtLastErrLevel>(1))),
                      ROW(100000, aclrtCmoAsync(w.memory, 0, ACL_RT_CMO_TYPE_PREFETCH, w.stream)),
                      ROW(207000, aclrtCmoAsync(w.memory, 1, ACL_RT_CMO_TYPE_FLUSH, w.stream)),
                      ROW(107000, aclrtCmoAsync(w.memory, 1, static_cast<aclrtCmoType>(4), w.stream)),
                      ROW(107000, aclrtCmoAsync(&w, 1, ACL_RT_CMO_TYPE_PREFETCH, w.stream)),
                      ROW(207000, aclrtSetGroup(0)),
                      ROW(207000, aclrtGetGroupCount(w.u32)),
                      ROW(207000, aclrtDestroyGroupInfo(reinterpret_cast<aclrtGroupInfo*>(w.text))),
                      ROW(207000, aclrtGetAllGroupInfo(reinterpret_cast<aclrtGroupInfo*>(w.text))),
                      ROW(207000, aclrtGetGroupInfoDetail(reinterpret_cast<aclrtGroupInfo*>(w.text), 0,
                                                          ACL_GROUP_AICORE_INT, w.i32, 4, w.size)),
                  });
}

TEST_F(Misuse, StaleAndForeignHandles) {
  for (const char* sort : {"stale", "wild"}) {
    world_.pointer = std::string(sort) == "stale" ? world_.stale : world_.wild();
    RunRows(world_, {
                        ROW(107017, aclrtSynchronizeStream(w.pointer)),
                        ROW(107017, aclrtSynchronizeStreamWithTimeout(w.pointer, 10)),
                        ROW(107017, aclrtStreamQuery(w.pointer, reinterpret_cast<aclrtStreamStatus*>(w.i32))),
                        ROW(107017, aclrtDestroyStream(w.pointer)),
                        ROW(107017, aclrtDestroyStreamForce(w.pointer)),
                        ROW(107017, aclrtStreamAbort(w.pointer)),
                        ROW(107017, aclrtStreamStop(w.pointer)),
                        ROW(107017, aclrtStreamGetId(w.pointer, w.i32)),
                        ROW(107017, aclrtStreamGetFlags(w.pointer, w.u32)),
                        ROW(107017, aclrtStreamGetPriority(w.pointer, w.u32)),
                        ROW(107017, aclrtSetStreamFailureMode(w.pointer, 0)),
                        ROW(107017, aclrtSetStreamAttribute(w.pointer, ACL_STREAM_ATTR_PRIORITY, &w.attribute)),
                        ROW(107017, aclrtGetStreamAttribute(w.pointer, ACL_STREAM_ATTR_PRIORITY, &w.attribute)),
                        ROW(107017, aclrtGetStreamResLimit(w.pointer, ACL_RT_DEV_RES_CUBE_CORE, w.u32)),
                        ROW(107017, aclrtSetStreamResLimit(w.pointer, ACL_RT_DEV_RES_CUBE_CORE, 1)),
                        ROW(107017, aclrtResetStreamResLimit(w.pointer)),
                        ROW(107017, aclrtUseStreamResInCurrentThread(w.pointer)),
                        ROW(107017, aclrtUnuseStreamResInCurrentThread(w.pointer)),
                        ROW(107017, aclrtSetStreamOverflowSwitch(w.pointer, 1)),
                        ROW(107017, aclrtGetStreamOverflowSwitch(w.pointer, w.u32)),
                        ROW(107017, aclrtGetOverflowStatus(w.memory, 64, w.pointer)),
                        ROW(107017, aclrtResetOverflowStatus(w.pointer)),
                        ROW(107017, aclrtCmoAsync(w.memory, 1, ACL_RT_CMO_TYPE_PREFETCH, w.pointer)),
                        ROW(107017, aclrtReduceAsync(w.memory, w.memory, 4, ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM, ACL_INT32,
                                                     w.pointer, nullptr)),
                        ROW(107017, aclrtSetCurrentContext(w.pointer)),
                        ROW(107017, aclrtDestroyContext(w.pointer)),
                        ROW(107017, aclrtDestroyStreamConfigHandle(static_cast<aclrtStreamConfigHandle*>(w.pointer))),
                        ROW(107017, aclrtBinarySetExceptionCallback(
                                        w.pointer, [](aclrtExceptionInfo*, void*) {}, nullptr)),
                    });
  }
  RunRows(world_, {
                      ROW(107017, aclrtSetCurrentContext(w.stale_context)),
                      ROW(107017, aclrtDestroyContext(w.stale_context)),
                      ROW(107000, aclrtDestroyContext(w.primary)),
                      ROW(107003, aclrtSynchronizeStream(w.foreign)),
                      ROW(107003, aclrtStreamQuery(w.foreign, reinterpret_cast<aclrtStreamStatus*>(w.i32))),
                      ROW(107003, aclrtDestroyStream(w.foreign)),
                      ROW(107003, aclrtDestroyStreamForce(w.foreign)),
                      ROW(107003, aclrtStreamAbort(w.foreign)),
                      ROW(107003, aclrtSetStreamFailureMode(w.foreign, 1)),
                      ROW(107003, aclrtReduceAsync(w.memory, w.memory, 4, ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM, ACL_INT32,
                                                   w.foreign, nullptr)),
                      ROW(0, aclrtStreamGetId(w.foreign, w.i32)),
                      ROW(107000, aclrtStreamStop(nullptr)),
                  });
  aclrtStream default_stream = nullptr;
  EXPECT_ACL(0, aclrtCtxGetCurrentDefaultStream(&default_stream));
  EXPECT_ACL(107000, aclrtDestroyStream(default_stream));
  EXPECT_ACL(107000, aclrtDestroyStreamForce(default_stream));
}

TEST_F(Misuse, ThreadWithoutContext) {
  std::thread([&] {
    RunRows(world_, {
                        ROW(107002, aclrtGetDevice(w.i32)),
                        ROW(107002, aclrtSynchronizeDevice()),
                        ROW(107002, aclrtSynchronizeDeviceWithTimeout(10)),
                        ROW(107002, aclrtDeviceEnablePeerAccess(0, 0)),
                        ROW(107002, aclrtDeviceDisablePeerAccess(0)),
                        ROW(107002, aclrtGetResInCurrentThread(ACL_RT_DEV_RES_CUBE_CORE, w.u32)),
                        ROW(107002, aclrtGetCurrentContext(&w.pointer)),
                        ROW(107002, aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1)),
                        ROW(107002, aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, w.i64)),
                        ROW(107002, aclrtCreateStream(&w.pointer)),
                        ROW(107002, aclrtCreateStreamWithConfig(&w.pointer, 0, 0)),
                        ROW(107002, aclrtCreateStreamV2(&w.pointer, w.config)),
                        ROW(107002, aclrtDestroyStream(w.stream)),
                        ROW(107002, aclrtSynchronizeStream(nullptr)),
                        ROW(107002, aclrtSynchronizeStream(w.stream)),
                        ROW(107002, aclrtStreamQuery(nullptr, reinterpret_cast<aclrtStreamStatus*>(w.i32))),
                        ROW(107002, aclrtStreamGetId(nullptr, w.i32)),
                        ROW(107002, aclrtStreamAbort(w.stream)),
                        ROW(107002, aclrtCtxGetCurrentDefaultStream(&w.pointer)),
                        ROW(107002, aclrtGetStreamAvailableNum(w.u32)),
                        ROW(107002, aclrtSetStreamFailureMode(nullptr, 1)),
                        ROW(107002, aclrtSetStreamOverflowSwitch(nullptr, 1)),
                        ROW(107002, aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_INFNAN)),
                        ROW(107002, aclrtGetDeviceSatMode(reinterpret_cast<aclrtFloatOverflowMode*>(w.i32))),
                        ROW(107002, aclrtCtxGetFloatOverflowAddr(&w.pointer)),
                        ROW(107002, aclrtResetOverflowStatus(nullptr)),
                        ROW(107002, aclrtCmoAsync(w.memory, 1, ACL_RT_CMO_TYPE_PREFETCH, nullptr)),
                        ROW(0, aclrtStreamGetId(w.stream, w.i32)),
                        ROW(0, aclrtGetDeviceInfo(0, ACL_DEV_ATTR_NPU_ARCH, w.i64)),
                        ROW(0, aclrtSetOpWaitTimeout(0)),
                    });
  }).join();
}

TEST_F(Misuse, CapturedStream) {
  world_.captured = world_.stream;
  MUST(aclmdlRICaptureBegin(world_.captured, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  RunRows(world_,
          {
              ROW(107027, aclrtSynchronizeStream(w.captured)),
              ROW(107027, aclrtSynchronizeStreamWithTimeout(w.captured, 10)),
              ROW(107027, aclrtStreamQuery(w.captured, reinterpret_cast<aclrtStreamStatus*>(w.i32))),
              ROW(107027, aclrtDestroyStream(w.captured)),
              ROW(107027, aclrtDestroyStreamForce(w.captured)),
              ROW(107027, aclrtSynchronizeDevice()),
              ROW(107027, aclrtSynchronizeDeviceWithTimeout(10)),
              ROW(107027, aclrtSetStreamOverflowSwitch(w.captured, 1)),
              ROW(107027, aclrtGetOverflowStatus(w.memory, 64, w.captured)),
              ROW(107027, aclrtResetOverflowStatus(w.captured)),
              ROW(107027, aclrtSetStreamAttribute(w.captured, ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK, &w.attribute)),
              ROW(107027, aclrtSetStreamAttribute(w.captured, ACL_STREAM_ATTR_USER_CUSTOM_TAG, &w.attribute)),
              ROW(107027, aclrtStreamAbort(w.captured)),
              ROW(107027, aclrtStreamStop(w.captured)),
              ROW(0, aclrtSetStreamAttribute(w.captured, ACL_STREAM_ATTR_CACHE_OP_INFO, &w.attribute)),
              ROW(0, aclrtSetStreamAttribute(w.captured, ACL_STREAM_ATTR_PRIORITY, &w.attribute)),
              ROW(0, aclrtGetStreamAttribute(w.captured, ACL_STREAM_ATTR_USER_CUSTOM_TAG, &w.attribute)),
              ROW(0, aclrtStreamGetId(w.captured, w.i32)),
              ROW(0, aclrtStreamGetFlags(w.captured, w.u32)),
              ROW(0, aclrtStreamGetPriority(w.captured, w.u32)),
              ROW(0, aclrtSynchronizeStream(nullptr)),
              ROW(0, aclrtGetDevice(w.i32)),
              ROW(0, aclrtGetLastError(ACL_RT_THREAD_LEVEL) == 107027 ? 0 : 1),
          });
  DropMessage();
  EXPECT_EQ(aclrtSynchronizeDevice(), 107027);
  EXPECT_THAT(aclGetRecentErrMsg(), ::testing::HasSubstr("Culprit: capture of model"));
  aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  EXPECT_ACL(0, aclmdlRICaptureGetInfo(world_.captured, &status, nullptr));
  EXPECT_EQ(status, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE) << "no refusal invalidates the capture";
  aclmdlRI model = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureEnd(world_.captured, &model));
  EXPECT_ACL(0, aclrtSynchronizeDevice());
  EXPECT_ACL(0, aclmdlRIDestroy(model));
}

}  // namespace
}  // namespace reprise::testing
