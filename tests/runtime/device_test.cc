// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

namespace reprise::testing {
namespace {

[[gnu::constructor]] void Environment(int, char** argv, char**) { RestartWith(argv, {{"REPRISE_DEVICES", "2"}}); }

using ::testing::ElementsAre;

TEST(Device, ResetCountsBackToNothing) {
  int32_t id = 7;
  EXPECT_ACL(107002, aclrtGetDevice(&id));
  EXPECT_ACL(0, aclrtSetDevice(1));
  EXPECT_ACL(0, aclrtSetDevice(1));
  aclrtContext context = nullptr;
  EXPECT_ACL(0, aclrtGetCurrentContext(&context));
  EXPECT_ACL(0, aclrtResetDevice(1));
  EXPECT_ACL(0, aclrtGetDevice(&id));
  EXPECT_EQ(id, 1);
  int32_t active = 0;
  EXPECT_ACL(0, aclrtGetPrimaryCtxState(1, nullptr, &active));
  EXPECT_EQ(active, 1);
  EXPECT_ACL(0, aclrtResetDevice(1));
  EXPECT_ACL(0, aclrtGetPrimaryCtxState(1, nullptr, &active));
  EXPECT_EQ(active, 0);
  EXPECT_ACL(107002, aclrtGetDevice(&id));
  EXPECT_ACL(107017, aclrtSetCurrentContext(context));
  EXPECT_ACL(107000, aclrtResetDevice(1));
  EXPECT_ACL(107000, aclrtResetDeviceForce(1));
  EXPECT_ACL(0, aclrtSetDevice(1));
  EXPECT_ACL(0, aclrtSetDevice(1));
  EXPECT_ACL(0, aclrtResetDeviceForce(1));
  EXPECT_ACL(107000, aclrtResetDeviceForce(1));
  EXPECT_ACL(107001, aclrtResetDevice(2));
}

TEST(Device, ResetByOneThreadTakesTheContextFromOthers) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  std::thread([] { EXPECT_ACL(0, aclrtResetDevice(0)); }).join();
  aclrtStream stream = nullptr;
  EXPECT_ACL(107002, aclrtCreateStream(&stream));
}

std::vector<int> g_states;
void NoteDevice(int32_t id, aclrtDeviceState state, void* args) {
  EXPECT_EQ(id, 0);
  EXPECT_EQ(args, &g_states);
  g_states.push_back(state);
}

TEST(Device, StateCallbacksSeeSetAndReset) {
  g_states.clear();
  EXPECT_ACL(0, aclrtRegDeviceStateCallback("a", NoteDevice, &g_states));
  EXPECT_ACL(107000, aclrtRegDeviceStateCallback("a", NoteDevice, &g_states));
  EXPECT_ACL(0, aclrtSetDevice(0));
  EXPECT_ACL(0, aclrtResetDevice(0));
  EXPECT_ACL(107000, aclrtResetDevice(0));
  EXPECT_THAT(g_states, ElementsAre(ACL_RT_DEVICE_STATE_SET_PRE, ACL_RT_DEVICE_STATE_SET_POST,
                                    ACL_RT_DEVICE_STATE_RESET_PRE, ACL_RT_DEVICE_STATE_RESET_POST));
  EXPECT_ACL(0, aclrtRegDeviceStateCallback("a", nullptr, nullptr));
  EXPECT_ACL(0, aclrtSetDevice(0));
  EXPECT_EQ(g_states.size(), 4U);
  EXPECT_ACL(0, aclrtResetDevice(0));
}

class Devices : public Runtime {};

TEST_F(Devices, SynchronizeWaitsForAllStreamsAndTimesOut) {
  const aclrtStream stream = NewStream();
  Gate gate;
  gate.Block(stream);
  EXPECT_ACL(507046, aclrtSynchronizeDeviceWithTimeout(5));
  gate.Open();
  EXPECT_ACL(0, aclrtSynchronizeDeviceWithTimeout(kPatience));
  EXPECT_ACL(0, aclrtSynchronizeDevice());
}

std::vector<int> g_stages;
int32_t NoteAbort(int32_t id, aclrtDeviceTaskAbortStage stage, uint32_t timeout, void*) {
  EXPECT_EQ(id, 0);
  EXPECT_EQ(timeout, uint32_t{kPatience});
  g_stages.push_back(stage);
  return 0;
}
int32_t RefuseAbort(int32_t, aclrtDeviceTaskAbortStage, uint32_t, void*) { return 3; }

TEST_F(Devices, TaskAbortDropsQueuedWorkOfAllContexts) {
  g_stages.clear();
  EXPECT_ACL(0, aclrtSetDeviceTaskAbortCallback("a", NoteAbort, nullptr));
  EXPECT_ACL(107000, aclrtSetDeviceTaskAbortCallback("a", NoteAbort, nullptr));
  const aclrtStream stream = NewStream();
  aclrtEvent never = nullptr;
  EXPECT_ACL(0, aclrtCreateEventWithFlag(&never, ACL_EVENT_SYNC));
  EXPECT_ACL(0, aclrtRecordEvent(never, stream));
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  EXPECT_ACL(0, aclrtResetEvent(never, stream));
  EXPECT_ACL(0, aclrtStreamWaitEvent(stream, never));
  EXPECT_ACL(507046, aclrtSynchronizeStreamWithTimeout(stream, 5));
  EXPECT_ACL(0, aclrtDeviceTaskAbort(0, kPatience));
  EXPECT_ACL(107022, aclrtSynchronizeStream(stream));
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  EXPECT_THAT(g_stages, ElementsAre(ACL_RT_DEVICE_TASK_ABORT_PRE, ACL_RT_DEVICE_TASK_ABORT_POST));
  EXPECT_ACL(0, aclrtSetDeviceTaskAbortCallback("a", nullptr, nullptr));
  EXPECT_ACL(0, aclrtSetDeviceTaskAbortCallback("b", RefuseAbort, nullptr));
  EXPECT_ACL(107035, aclrtDeviceTaskAbort(0, kPatience));
  EXPECT_ACL(0, aclrtSetDeviceTaskAbortCallback("b", nullptr, nullptr));
}

TEST_F(Devices, NumbersOfTheProfile) {
  const auto number = [](aclrtDevAttr attr) {
    int64_t value = -1;
    EXPECT_ACL(0, aclrtGetDeviceInfo(0, attr, &value));
    return value;
  };
  EXPECT_EQ(number(ACL_DEV_ATTR_AICORE_CORE_NUM), 20);
  EXPECT_EQ(number(ACL_DEV_ATTR_CUBE_CORE_NUM), 20);
  EXPECT_EQ(number(ACL_DEV_ATTR_VECTOR_CORE_NUM), 40);
  EXPECT_EQ(number(ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE), 196608);
  EXPECT_EQ(number(ACL_DEV_ATTR_NPU_ARCH), 2201);
  EXPECT_EQ(number(ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE), int64_t{64} << 30);
  int64_t value = 0;
  EXPECT_ACL(207000, aclrtGetDeviceInfo(0, ACL_DEV_ATTR_WARP_SIZE, &value));
  EXPECT_ACL(107000, aclrtGetDeviceInfo(0, static_cast<aclrtDevAttr>(9999), &value));
  EXPECT_ACL(107001, aclrtGetDeviceInfo(2, ACL_DEV_ATTR_NPU_ARCH, &value));
}

TEST_F(Devices, IdentityIsStableAndUnique) {
  aclrtUuid a{}, b{}, again{};
  EXPECT_ACL(0, aclrtDeviceGetUuid(0, &a));
  EXPECT_ACL(0, aclrtDeviceGetUuid(1, &b));
  EXPECT_ACL(0, aclrtDeviceGetUuid(0, &again));
  EXPECT_NE(0, std::memcmp(&a, &b, sizeof a));
  EXPECT_EQ(0, std::memcmp(&a, &again, sizeof a));
  char address[13];
  EXPECT_ACL(0, aclrtDeviceGetPCIBusId(1, address, sizeof address));
  EXPECT_STREQ(address, "0000:01:00.0");
  EXPECT_ACL(107000, aclrtDeviceGetPCIBusId(1, address, 12));
  int32_t id = -1;
  EXPECT_ACL(0, aclrtDeviceGetByPCIBusId(address, &id));
  EXPECT_EQ(id, 1);
  EXPECT_ACL(107000, aclrtDeviceGetByPCIBusId("0000:77:00.0", &id));
  int32_t pid = 0;
  EXPECT_ACL(0, aclrtDeviceGetBareTgid(&pid));
  EXPECT_EQ(pid, getpid());
}

TEST_F(Devices, PeersAreEnabledInOneDirection) {
  int32_t value = -1;
  EXPECT_ACL(0, aclrtDeviceCanAccessPeer(&value, 0, 1));
  EXPECT_EQ(value, 1);
  EXPECT_ACL(100000, aclrtDeviceCanAccessPeer(&value, 1, 1));
  EXPECT_ACL(0, aclrtDevicePeerAccessStatus(0, 1, &value));
  EXPECT_EQ(value, 0);
  EXPECT_ACL(0, aclrtDeviceEnablePeerAccess(1, 0));
  EXPECT_ACL(0, aclrtDeviceEnablePeerAccess(1, 0));
  EXPECT_ACL(0, aclrtDevicePeerAccessStatus(0, 1, &value));
  EXPECT_EQ(value, 1);
  EXPECT_ACL(0, aclrtDevicePeerAccessStatus(1, 0, &value));
  EXPECT_EQ(value, 0);
  EXPECT_ACL(0, aclrtDeviceDisablePeerAccess(1));
  EXPECT_ACL(0, aclrtDevicePeerAccessStatus(0, 1, &value));
  EXPECT_EQ(value, 0);
  EXPECT_ACL(200006, aclrtDeviceEnablePeerAccess(1, 1));
  EXPECT_ACL(100000, aclrtDeviceEnablePeerAccess(0, 0));
  EXPECT_ACL(100000, aclrtDeviceDisablePeerAccess(0));
  uint64_t topology = 0;
  EXPECT_ACL(0, aclrtGetDevicesTopo(0, 1, &topology));
  EXPECT_EQ(topology, uint64_t{ACL_RT_DEVS_TOPOLOGY_HCCS});
}

TEST_F(Devices, StreamLimitBeforeProcessLimitBeforeHardware) {
  const aclrtStream stream = NewStream();
  constexpr auto kCube = ACL_RT_DEV_RES_CUBE_CORE;
  constexpr auto kVector = ACL_RT_DEV_RES_VECTOR_CORE;
  const auto thread = [](aclrtDevResLimitType type) {
    uint32_t value = 0;
    EXPECT_ACL(0, aclrtGetResInCurrentThread(type, &value));
    return value;
  };
  const auto of_stream = [&](aclrtDevResLimitType type) {
    uint32_t value = 0;
    EXPECT_ACL(0, aclrtGetStreamResLimit(stream, type, &value));
    return value;
  };
  EXPECT_EQ(thread(kCube), 20U);
  EXPECT_ACL(0, aclrtSetDeviceResLimit(0, kCube, 12));
  EXPECT_EQ(thread(kCube), 12U);
  EXPECT_EQ(thread(kVector), 40U);
  EXPECT_EQ(of_stream(kCube), 12U);
  EXPECT_ACL(0, aclrtSetStreamResLimit(stream, kCube, 4));
  EXPECT_EQ(of_stream(kCube), 4U);
  EXPECT_EQ(thread(kCube), 12U);
  EXPECT_ACL(0, aclrtUseStreamResInCurrentThread(stream));
  EXPECT_EQ(thread(kCube), 4U);
  std::thread([&] {
    EXPECT_ACL(0, aclrtSetDevice(0));
    EXPECT_EQ(thread(kCube), 12U) << "limits in use are those of the thread";
  }).join();
  EXPECT_ACL(0, aclrtUnuseStreamResInCurrentThread(nullptr));
  EXPECT_EQ(thread(kCube), 4U) << "another stream's limits are not undone";
  EXPECT_ACL(0, aclrtUnuseStreamResInCurrentThread(stream));
  EXPECT_EQ(thread(kCube), 12U);
  EXPECT_ACL(0, aclrtUseStreamResInCurrentThread(stream));
  EXPECT_ACL(0, aclrtResetStreamResLimit(stream));
  EXPECT_EQ(thread(kCube), 12U);
  EXPECT_ACL(0, aclrtDestroyStream(stream));
  EXPECT_EQ(thread(kCube), 12U);
  EXPECT_ACL(0, aclrtResetDeviceResLimit(0));
  uint32_t value = 0;
  EXPECT_ACL(0, aclrtGetDeviceResLimit(0, kCube, &value));
  EXPECT_EQ(value, 20U);
  EXPECT_ACL(107000, aclrtSetDeviceResLimit(0, kCube, 0));
  EXPECT_ACL(107000, aclrtSetDeviceResLimit(0, kCube, 21));
  EXPECT_ACL(107000, aclrtSetDeviceResLimit(0, static_cast<aclrtDevResLimitType>(2), 1));
}

TEST_F(Devices, StackSizesAreRoundedUp) {
  size_t value = 0;
  EXPECT_ACL(0, aclrtDeviceGetLimit(ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, &value));
  EXPECT_EQ(value, 32768U);
  EXPECT_ACL(0, aclrtDeviceSetLimit(ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, 40'000));
  EXPECT_ACL(0, aclrtDeviceGetLimit(ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, &value));
  EXPECT_EQ(value, 49152U);
  EXPECT_ACL(0, aclrtDeviceSetLimit(ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, 1));
  EXPECT_ACL(0, aclrtDeviceGetLimit(ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, &value));
  EXPECT_EQ(value, 32768U);
  EXPECT_ACL(107000, aclrtDeviceSetLimit(ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, (192 << 10) + 1));
  EXPECT_ACL(0, aclrtDeviceSetLimit(ACL_RT_DEV_LIMIT_SIMD_PRINTF_FIFO_SIZE_PER_CORE, 1025));
  EXPECT_ACL(0, aclrtDeviceGetLimit(ACL_RT_DEV_LIMIT_SIMD_PRINTF_FIFO_SIZE_PER_CORE, &value));
  EXPECT_EQ(value, 1032U);
  EXPECT_ACL(207000, aclrtDeviceSetLimit(ACL_RT_DEV_LIMIT_SIMT_STACK_SIZE, 1024));
  EXPECT_ACL(207000, aclrtDeviceGetLimit(ACL_RT_DEV_LIMIT_SIMT_PRINTF_FIFO_SIZE, &value));
  EXPECT_ACL(107000, aclrtDeviceSetLimit(static_cast<aclrtDeviceLimit>(5), 1024));
}

TEST_F(Devices, SmallQueries) {
  aclrtDeviceStatus status = ACL_RT_DEVICE_STATUS_END;
  EXPECT_ACL(0, aclrtQueryDeviceStatus(0, &status));
  EXPECT_EQ(status, ACL_RT_DEVICE_STATUS_NORMAL);
  aclrtUtilizationInfo use{};
  EXPECT_ACL(0, aclrtGetDeviceUtilizationRate(0, &use));
  EXPECT_EQ(use.memoryUtilization, -1);
  int32_t compatible = -1;
  EXPECT_ACL(0, aclrtCheckArchCompatibility("Ascend910B1", &compatible));
  EXPECT_EQ(compatible, 1);
  EXPECT_ACL(0, aclrtCheckArchCompatibility("ascend910b", &compatible));
  EXPECT_EQ(compatible, 1);
  EXPECT_ACL(0, aclrtCheckArchCompatibility("Ascend310P3", &compatible));
  EXPECT_EQ(compatible, 0);
  const aclrtAtomicOperation operations[] = {ACL_RT_ATOMIC_OPERATION_CAS, ACL_RT_ATOMIC_OPERATION_DMA_ADD};
  uint32_t capabilities[2] = {9, 9};
  EXPECT_ACL(0, aclrtDeviceGetHostAtomicCapabilities(capabilities, operations, 2, 0));
  EXPECT_NE(capabilities[0] & ACL_RT_ATOMIC_CAPABILITY_SCALAR64, 0U);
  EXPECT_EQ(capabilities[1], 0U);
  EXPECT_ACL(0, aclrtDeviceGetP2PAtomicCapabilities(capabilities, operations, 2, 0, 1));
  EXPECT_ACL(0, aclrtDeviceL2CacheFlush(nullptr));
  EXPECT_ACL(0, aclrtSetTsDevice(ACL_TS_ID_AIVECTOR));
}

}  // namespace
}  // namespace reprise::testing
