// SPDX-License-Identifier: Apache-2.0
//
// Devices: selection, properties, numbering, peers, limits, and the abort of everything that runs.
#include <strings.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "acl/acl.h"
#include "capture/session.h"
#include "check.h"
#include "limits.h"
#include "runtime/chip.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/memory_pool.h"
#include "runtime/peers.h"
#include "runtime/task_abort.h"
#include "runtime/thread.h"
#include "state_callbacks.h"

namespace reprise::facade {
namespace {

using runtime::Context;
using runtime::Device;
using runtime::Stream;

constexpr int64_t kMaxAbortTimeoutMs = 36 * 60 * 1000;

StatusOr<Device*> FindByPhysicalId(int32_t physical_id, const char* parameter) {
  for (const auto& device : runtime::Devices()) {
    if (device->physical_id() == physical_id) return device.get();
  }
  return Error(kInvalidDevice, fmt::format("{} {} is not a device that this process sees", parameter, physical_id))
      .Culprit(fmt::format(
          "parameter {}; REPRISE_DEVICES and ASCEND_RT_VISIBLE_DEVICES (\"{}\") give the process {} of them", parameter,
          Env(EnvVar::kVisibleDevices), runtime::Devices().size()))
      .Hint("pass the number of a device that aclrtGetDeviceCount counts");
}

Status UserIdOf(int32_t physical_id, const char* parameter, int32_t* user_id) {
  REPRISE_ASSIGN_OR_RETURN(const Device* device, FindByPhysicalId(physical_id, parameter));
  *user_id = device->id();
  return {};
}

Status PhysicalIdOf(int32_t user_id, int32_t* physical_id) {
  REPRISE_ASSIGN_OR_RETURN(const Device* device, runtime::FindDevice(user_id));
  *physical_id = device->physical_id();
  return {};
}

Status Reset(int32_t device_id, Status (Device::*release)()) {
  REPRISE_ASSIGN_OR_RETURN(Device * device, runtime::FindDevice(device_id));
  if (!device->primary_active()) return (device->*release)();  // refuses
  AnnounceDevice(device_id, ACL_RT_DEVICE_STATE_RESET_PRE);
  REPRISE_RETURN_IF_ERROR((device->*release)());
  if (!device->primary_active()) runtime::ForgetPeers(*device);
  AnnounceDevice(device_id, ACL_RT_DEVICE_STATE_RESET_POST);
  return {};
}

Status SynchronizeCurrent(const char* api, int64_t timeout_ms) {
  REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
  REPRISE_RETURN_IF_ERROR(capture::CheckNoCaptureIn(*context, api));
  Status status = context->Synchronize(timeout_ms);
  runtime::MemoryPool::TrimAll();
  return status;
}

Status CheckCoreType(aclrtDevResLimitType type) {
  return InRange(type, ACL_RT_DEV_RES_CUBE_CORE, ACL_RT_DEV_RES_VECTOR_CORE, "type");
}

// The current device and another one, which must differ.
Status FindPeers(int32_t peer_id, Device** current, Device** peer) {
  REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
  REPRISE_ASSIGN_OR_RETURN(*peer, runtime::FindDevice(peer_id));
  *current = &context->device();
  if (*current != *peer) return {};
  return Error(kInvalidArgument, fmt::format("peerDeviceId is {}, the current device itself", peer_id))
      .Culprit("parameter peerDeviceId")
      .Hint("pass the id of another device");
}

Status DeviceNumber(const Device& device, aclrtDevAttr attr, int64_t* value) {
  switch (static_cast<int>(attr)) {
    case ACL_DEV_ATTR_AICPU_CORE_NUM: *value = EnvInt(EnvVar::kAicpuCores); return {};
    case ACL_DEV_ATTR_AICORE_CORE_NUM:
    case ACL_DEV_ATTR_CUBE_CORE_NUM: *value = runtime::HardwareCores(ACL_RT_DEV_RES_CUBE_CORE); return {};
    case ACL_DEV_ATTR_VECTOR_CORE_NUM: *value = runtime::HardwareCores(ACL_RT_DEV_RES_VECTOR_CORE); return {};
    case ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE: *value = runtime::chip::kUbBytes; return {};
    case ACL_DEV_ATTR_MAX_BLOCK_PER_GRID: *value = runtime::chip::kMaxBlocks; return {};
    case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
      *value = static_cast<int64_t>(device::MemoryRegistry::total_bytes());
      return {};
    case ACL_DEV_ATTR_L2_CACHE_SIZE: *value = static_cast<int64_t>(EnvBytes(EnvVar::kL2Bytes)); return {};
    case ACL_DEV_ATTR_PHY_CHIP_ID: *value = device.physical_id(); return {};
    case ACL_DEV_ATTR_SMP_ID:
    case ACL_DEV_ATTR_CUST_OP_PRIVILEGE:
    case ACL_DEV_ATTR_MAINBOARD_ID:
    case ACL_DEV_ATTR_IS_VIRTUAL: *value = 0; return {};
    case ACL_DEV_ATTR_HD_CONNECT_TYPE: *value = ACL_HOST_DEVICE_CONNECT_TYPE_PCIE; return {};
    case ACL_DEV_ATTR_DEVICE_FORM_FACTOR: *value = ACL_DEVICE_FORM_FACTOR_A_K; return {};
    case ACL_DEV_ATTR_NPU_ARCH: *value = runtime::chip::kNpuArch; return {};
    case ACL_DEV_ATTR_WARP_SIZE:
    case ACL_DEV_ATTR_MAX_THREAD_PER_VECTOR_CORE:
    case ACL_DEV_ATTR_MAX_GRID_DIM_X:
    case ACL_DEV_ATTR_MAX_GRID_DIM_Y:
    case ACL_DEV_ATTR_MAX_GRID_DIM_Z:
    case ACL_DEV_ATTR_MAX_THREADS_PER_BLOCK:
    case ACL_DEV_ATTR_MAX_BLOCK_DIM_X:
    case ACL_DEV_ATTR_MAX_BLOCK_DIM_Y:
    case ACL_DEV_ATTR_MAX_BLOCK_DIM_Z:
      return Error(kFeatureNotSupported,
                   fmt::format("attr is {}, a property of SIMT cores, which this chip lacks", static_cast<int>(attr)))
          .Culprit("parameter attr")
          .Hint("ask for it only on chips with SIMT cores");
    case ACL_DEV_ATTR_SUPER_POD_DEVICE_ID:
    case ACL_DEV_ATTR_SUPER_POD_SERVER_ID:
    case ACL_DEV_ATTR_SUPER_POD_ID:
      return Error(kFeatureNotSupported,
                   fmt::format("attr is {}, but the device is in no super pod", static_cast<int>(attr)))
          .Culprit("parameter attr")
          .Hint("treat the device as one without super pod");
    default:
      return Error(kInvalidValue, fmt::format("attr is {}, no known attribute", static_cast<int>(attr)))
          .Culprit("parameter attr")
          .Hint("pass one of ACL_DEV_ATTR_*");
  }
}

constexpr size_t kBusIdBytes = 13;  // with the closing zero

std::string BusId(const Device& device) { return fmt::format("0000:{:02x}:00.0", device.physical_id()); }

Status AbortTasks(int32_t device_id, uint32_t timeout_ms) {
  REPRISE_ASSIGN_OR_RETURN(const Device* device, runtime::FindDevice(device_id));
  REPRISE_RETURN_IF_ERROR(InRange(timeout_ms, 0, kMaxAbortTimeoutMs, "timeout"));
  const auto call = [&](aclrtDeviceTaskAbortStage stage, const char* name) -> Status {
    for (const auto& [function, args] : TaskAbortCallbacks().All()) {
      const WaitingCall waiting;
      const int32_t result = function(device_id, stage, timeout_ms, args);
      if (result == 0) continue;
      return Error(stage == ACL_RT_DEVICE_TASK_ABORT_PRE ? kTaskAbortStopped : kRuntimeCannot,
                   fmt::format("an abort callback returned {} in stage {}", result, name))
          .Culprit(fmt::format("the function {} given to aclrtSetDeviceTaskAbortCallback",
                               reinterpret_cast<void*>(function)))
          .Hint("see what the owner of the callback reports");
    }
    return {};
  };
  const Deadline deadline = runtime::DeadlineAfterMs(timeout_ms == 0 ? -1 : int64_t{timeout_ms});
  REPRISE_RETURN_IF_ERROR(call(ACL_RT_DEVICE_TASK_ABORT_PRE, "PRE"));
  REPRISE_RETURN_IF_ERROR(runtime::DropTasks(*device, timeout_ms, deadline));
  return call(ACL_RT_DEVICE_TASK_ABORT_POST, "POST");
}

StatusOr<runtime::SizeLimit> ReadLimit(aclrtDeviceLimit limit) {
  REPRISE_RETURN_IF_ERROR(
      InRange(limit, ACL_RT_DEV_LIMIT_SIMT_STACK_SIZE, ACL_RT_DEV_LIMIT_SIMT_PRINTF_FIFO_SIZE, "limit"));
  switch (limit) {
    case ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE: return runtime::SizeLimit::kStack;
    case ACL_RT_DEV_LIMIT_SIMD_PRINTF_FIFO_SIZE_PER_CORE: return runtime::SizeLimit::kPrintBuffer;
    default:
      return Error(kFeatureNotSupported,
                   fmt::format("limit is {}, a size for SIMT cores, which this chip lacks", static_cast<int>(limit)))
          .Culprit("parameter limit")
          .Hint("set it only on chips with SIMT cores");
  }
}

uint32_t AtomicCapabilities(aclrtAtomicOperation operation) {
  constexpr uint32_t kScalars = ACL_RT_ATOMIC_CAPABILITY_SCALAR8 | ACL_RT_ATOMIC_CAPABILITY_SCALAR16 |
                                ACL_RT_ATOMIC_CAPABILITY_SCALAR32 | ACL_RT_ATOMIC_CAPABILITY_SCALAR64;
  constexpr uint32_t kInteger = ACL_RT_ATOMIC_CAPABILITY_SIGNED | ACL_RT_ATOMIC_CAPABILITY_UNSIGNED |
                                ACL_RT_ATOMIC_CAPABILITY_REDUCTION | kScalars;
  switch (operation) {
    case ACL_RT_ATOMIC_OPERATION_INTEGER_ADD:
    case ACL_RT_ATOMIC_OPERATION_INTEGER_MIN:
    case ACL_RT_ATOMIC_OPERATION_INTEGER_MAX:
    case ACL_RT_ATOMIC_OPERATION_INTEGER_INCREMENT:
    case ACL_RT_ATOMIC_OPERATION_INTEGER_DECREMENT:
    case ACL_RT_ATOMIC_OPERATION_AND:
    case ACL_RT_ATOMIC_OPERATION_OR:
    case ACL_RT_ATOMIC_OPERATION_XOR:
    case ACL_RT_ATOMIC_OPERATION_EXCHANGE:
    case ACL_RT_ATOMIC_OPERATION_CAS:
    case ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_ADD:
    case ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_MIN:
    case ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_MAX:
    case ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_CAS:
    case ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_EXCH: return kInteger;
    case ACL_RT_ATOMIC_OPERATION_FLOAT_ADD:
    case ACL_RT_ATOMIC_OPERATION_FLOAT_MIN:
    case ACL_RT_ATOMIC_OPERATION_FLOAT_MAX:
      return ACL_RT_ATOMIC_CAPABILITY_SIGNED | ACL_RT_ATOMIC_CAPABILITY_REDUCTION | ACL_RT_ATOMIC_CAPABILITY_SCALAR32 |
             ACL_RT_ATOMIC_CAPABILITY_SCALAR64;
    default: return 0;  // reductions of the copy engine are not atomic here
  }
}

Status FillAtomicCapabilities(uint32_t* capabilities, const aclrtAtomicOperation* operations, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) capabilities[i] = AtomicCapabilities(operations[i]);
  return {};
}

}  // namespace

}  // namespace reprise::facade

using namespace reprise;          // NOLINT: a file of C functions
using namespace reprise::facade;  // NOLINT

// ---- Selection ----

aclError aclrtGetDeviceCount(uint32_t* count) {
  return runtime::Api("aclrtGetDeviceCount", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(count, "count"));
    *count = static_cast<uint32_t>(runtime::Devices().size());
    return {};
  });
}

aclError aclrtSetDevice(int32_t deviceId) {
  return runtime::Api("aclrtSetDevice", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckInitialized("aclrtSetDevice"));
    REPRISE_ASSIGN_OR_RETURN(Device * device, runtime::FindDevice(deviceId));
    AnnounceDevice(deviceId, ACL_RT_DEVICE_STATE_SET_PRE);
    REPRISE_ASSIGN_OR_RETURN(Context * context, device->Retain());
    runtime::SetCurrentContext(context);
    AnnounceContext(*context);
    AnnounceDevice(deviceId, ACL_RT_DEVICE_STATE_SET_POST);
    return {};
  });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return runtime::Api("aclrtResetDevice", [&]() -> Status { return Reset(deviceId, &Device::Release); });
}

aclError aclrtResetDeviceForce(int32_t deviceId) {
  return runtime::Api("aclrtResetDeviceForce", [&]() -> Status { return Reset(deviceId, &Device::ReleaseForce); });
}

aclError aclrtGetDevice(int32_t* deviceId) {
  return runtime::Api("aclrtGetDevice", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(deviceId, "deviceId"));
    REPRISE_ASSIGN_OR_RETURN(const Context* context, runtime::CurrentContext());
    *deviceId = context->device().id();
    return {};
  });
}

aclError aclrtSetTsDevice(aclrtTsId tsId) {
  return runtime::Api("aclrtSetTsDevice", [&]() -> Status {
    return InRange(tsId, ACL_TS_ID_AICORE, ACL_TS_ID_AIVECTOR, "tsId", kInvalidArgument);
  });
}

aclError aclrtRegDeviceStateCallback(const char* regName, aclrtDeviceStateCallback callback, void* args) {
  return runtime::Api("aclrtRegDeviceStateCallback", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(regName, "regName"));
    return DeviceStateCallbacks().Set(regName, callback, args);
  });
}

// ---- Waiting and aborting ----

aclError aclrtSynchronizeDevice() {
  return runtime::Api("aclrtSynchronizeDevice",
                      []() -> Status { return SynchronizeCurrent("aclrtSynchronizeDevice", -1); });
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  return runtime::Api("aclrtSynchronizeDeviceWithTimeout", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(IsTimeout(timeout));
    return SynchronizeCurrent("aclrtSynchronizeDeviceWithTimeout", timeout);
  });
}

aclError aclrtDeviceTaskAbort(int32_t deviceId, uint32_t timeout) {
  return runtime::Api("aclrtDeviceTaskAbort", [&]() -> Status { return AbortTasks(deviceId, timeout); });
}

// ---- Properties ----

aclError aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus* deviceStatus) {
  return runtime::Api("aclrtQueryDeviceStatus", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(deviceStatus, "deviceStatus"));
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(deviceId).status());
    *deviceStatus = ACL_RT_DEVICE_STATUS_NORMAL;
    return {};
  });
}

aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t* value) {
  return runtime::Api("aclrtGetDeviceInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_ASSIGN_OR_RETURN(const Device* device, runtime::FindDevice(deviceId));
    return DeviceNumber(*device, attr, value);
  });
}

aclError aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid* uuid) {
  return runtime::Api("aclrtDeviceGetUuid", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(uuid, "uuid"));
    REPRISE_ASSIGN_OR_RETURN(const Device* device, runtime::FindDevice(deviceId));
    // Version 8, variant 1 of RFC 9562: free bits of our own, here a name and the physical number.
    constexpr unsigned char kBytes[16] = {'r', 'e', 'p', 'r', 'i', 's', 0x80, 'e', 0x80, 'c', 'p', 'u', 0, 0, 0, 0};
    std::memcpy(uuid->bytes, kBytes, sizeof kBytes);
    uuid->bytes[15] = static_cast<char>(device->physical_id());
    return {};
  });
}

aclError aclrtGetDeviceUtilizationRate(int32_t deviceId, aclrtUtilizationInfo* utilizationInfo) {
  return runtime::Api("aclrtGetDeviceUtilizationRate", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(utilizationInfo, "utilizationInfo"));
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(deviceId).status());
    utilizationInfo->cubeUtilization = -1;  // not measured
    utilizationInfo->vectorUtilization = -1;
    utilizationInfo->aicpuUtilization = -1;
    utilizationInfo->memoryUtilization = -1;
    return {};
  });
}

aclError aclrtCheckArchCompatibility(const char* socVersion, int32_t* canCompatible) {
  return runtime::Api("aclrtCheckArchCompatibility", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(socVersion, "socVersion"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(canCompatible, "canCompatible"));
    *canCompatible = runtime::SameChipFamily(socVersion, Env(EnvVar::kSoc)) ? 1 : 0;
    return {};
  });
}

aclError aclrtDeviceGetBareTgid(int32_t* pid) {
  return runtime::Api("aclrtDeviceGetBareTgid", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(pid, "pid"));
    *pid = getpid();
    return {};
  });
}

aclError aclrtDeviceGetPCIBusId(int32_t deviceId, char* pciBusId, int32_t len) {
  return runtime::Api("aclrtDeviceGetPCIBusId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(pciBusId, "pciBusId"));
    REPRISE_ASSIGN_OR_RETURN(const Device* device, runtime::FindDevice(deviceId));
    if (len < static_cast<int32_t>(kBusIdBytes)) {
      return Error(kInvalidValue, fmt::format("len is {}, must be at least {}", len, kBusIdBytes))
          .Culprit("parameter len")
          .Hint(fmt::format("pass a buffer of {} bytes", kBusIdBytes));
    }
    std::memcpy(pciBusId, BusId(*device).c_str(), kBusIdBytes);
    return {};
  });
}

aclError aclrtDeviceGetByPCIBusId(const char* pciBusId, int32_t* deviceId) {
  return runtime::Api("aclrtDeviceGetByPCIBusId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(pciBusId, "pciBusId"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(deviceId, "deviceId"));
    for (const auto& device : runtime::Devices()) {
      if (strcasecmp(BusId(*device).c_str(), pciBusId) != 0) continue;
      *deviceId = device->id();
      return {};
    }
    return Error(kInvalidValue, fmt::format("no visible device has the PCI address \"{}\"",
                                            std::string_view(pciBusId, strnlen(pciBusId, 32))))
        .Culprit("parameter pciBusId")
        .Hint("pass an address that aclrtDeviceGetPCIBusId gives");
  });
}

// ---- Numbering ----

aclError aclrtGetLogicDevIdByUserDevId(const int32_t userDevid, int32_t* const logicDevId) {
  return runtime::Api("aclrtGetLogicDevIdByUserDevId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(logicDevId, "logicDevId"));
    return PhysicalIdOf(userDevid, logicDevId);
  });
}

aclError aclrtGetUserDevIdByLogicDevId(const int32_t logicDevId, int32_t* const userDevid) {
  return runtime::Api("aclrtGetUserDevIdByLogicDevId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(userDevid, "userDevid"));
    return UserIdOf(logicDevId, "logicDevId", userDevid);
  });
}

aclError aclrtGetLogicDevIdByPhyDevId(const int32_t phyDevId, int32_t* const logicDevId) {
  return runtime::Api("aclrtGetLogicDevIdByPhyDevId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(logicDevId, "logicDevId"));
    return UserIdOf(phyDevId, "phyDevId", logicDevId);
  });
}

aclError aclrtGetPhyDevIdByLogicDevId(const int32_t logicDevId, int32_t* const phyDevId) {
  return runtime::Api("aclrtGetPhyDevIdByLogicDevId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(phyDevId, "phyDevId"));
    return PhysicalIdOf(logicDevId, phyDevId);
  });
}

aclError aclrtGetUserDevIdByPhyDevId(const int32_t phyDevId, int32_t* const userDevId) {
  return runtime::Api("aclrtGetUserDevIdByPhyDevId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(userDevId, "userDevId"));
    return UserIdOf(phyDevId, "phyDevId", userDevId);
  });
}

aclError aclrtGetPhyDevIdByUserDevId(const int32_t userDevId, int32_t* const phyDevId) {
  return runtime::Api("aclrtGetPhyDevIdByUserDevId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(phyDevId, "phyDevId"));
    return PhysicalIdOf(userDevId, phyDevId);
  });
}

// ---- Peers ----

aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
  return runtime::Api("aclrtDeviceCanAccessPeer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(canAccessPeer, "canAccessPeer"));
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(deviceId).status());
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(peerDeviceId).status());
    if (deviceId == peerDeviceId) {
      return Error(kInvalidArgument, fmt::format("deviceId and peerDeviceId are both {}", deviceId))
          .Culprit("parameters deviceId and peerDeviceId")
          .Hint("pass two different devices");
    }
    *canAccessPeer = 1;
    return {};
  });
}

aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags) {
  return runtime::Api("aclrtDeviceEnablePeerAccess", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(IsReserved(flags, "flags", kFlagNotSupported));
    Device* current = nullptr;
    Device* peer = nullptr;
    REPRISE_RETURN_IF_ERROR(FindPeers(peerDeviceId, &current, &peer));
    runtime::SetPeerAccess(*current, *peer, true);
    return {};
  });
}

aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId) {
  return runtime::Api("aclrtDeviceDisablePeerAccess", [&]() -> Status {
    Device* current = nullptr;
    Device* peer = nullptr;
    REPRISE_RETURN_IF_ERROR(FindPeers(peerDeviceId, &current, &peer));
    runtime::SetPeerAccess(*current, *peer, false);
    return {};
  });
}

aclError aclrtDevicePeerAccessStatus(int32_t deviceId, int32_t peerDeviceId, int32_t* status) {
  return runtime::Api("aclrtDevicePeerAccessStatus", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(status, "status"));
    const auto last = static_cast<int64_t>(runtime::Devices().size()) - 1;
    REPRISE_RETURN_IF_ERROR(InRange(deviceId, 0, last, "deviceId"));
    REPRISE_RETURN_IF_ERROR(InRange(peerDeviceId, 0, last, "peerDeviceId"));
    *status = runtime::HasPeerAccess(deviceId, peerDeviceId) ? 1 : 0;
    return {};
  });
}

aclError aclrtGetDevicesTopo(uint32_t deviceId, uint32_t otherDeviceId, uint64_t* value) {
  return runtime::Api("aclrtGetDevicesTopo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(deviceId).status());
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(otherDeviceId).status());
    if (deviceId == otherDeviceId) {
      return Error(kInvalidValue, fmt::format("deviceId and otherDeviceId are both {}", deviceId))
          .Culprit("parameters deviceId and otherDeviceId")
          .Hint("pass two different devices");
    }
    *value = ACL_RT_DEVS_TOPOLOGY_HCCS;  // every device reaches the memory of every other at full speed
    return {};
  });
}

// ---- Core limits ----

aclError aclrtGetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t* value) {
  return runtime::Api("aclrtGetDeviceResLimit", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_ASSIGN_OR_RETURN(Device * device, runtime::FindDevice(deviceId));
    REPRISE_RETURN_IF_ERROR(CheckCoreType(type));
    *value = runtime::EffectiveCores(*device, nullptr, type);
    return {};
  });
}

aclError aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t value) {
  return runtime::Api("aclrtSetDeviceResLimit", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(Device * device, runtime::FindDevice(deviceId));
    REPRISE_RETURN_IF_ERROR(CheckCores(type, value));
    runtime::SetCores(*device, type, value);
    return {};
  });
}

aclError aclrtResetDeviceResLimit(int32_t deviceId) {
  return runtime::Api("aclrtResetDeviceResLimit", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(Device * device, runtime::FindDevice(deviceId));
    runtime::ResetCores(*device);
    return {};
  });
}

aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t* value) {
  return runtime::Api("aclrtGetResInCurrentThread", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(CheckCoreType(type));
    REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
    *value = runtime::EffectiveCoresOfThread(context->device(), type);
    return {};
  });
}

// ---- Other limits and capabilities ----

aclError aclrtDeviceSetLimit(aclrtDeviceLimit limit, size_t value) {
  return runtime::Api("aclrtDeviceSetLimit", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const runtime::SizeLimit size, ReadLimit(limit));
    const runtime::SizeBounds bounds = runtime::BoundsOf(size);
    REPRISE_RETURN_IF_ERROR(
        InRange(value, static_cast<int64_t>(bounds.lowest), static_cast<int64_t>(bounds.highest), "value"));
    runtime::SetSize(size, value);
    return {};
  });
}

aclError aclrtDeviceGetLimit(aclrtDeviceLimit limit, size_t* value) {
  return runtime::Api("aclrtDeviceGetLimit", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_ASSIGN_OR_RETURN(const runtime::SizeLimit size, ReadLimit(limit));
    *value = runtime::SizeOf(size);
    return {};
  });
}

aclError aclrtDeviceGetHostAtomicCapabilities(uint32_t* capabilities, const aclrtAtomicOperation* operations,
                                              const uint32_t count, int32_t deviceId) {
  return runtime::Api("aclrtDeviceGetHostAtomicCapabilities", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(capabilities, "capabilities"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(operations, "operations"));
    REPRISE_RETURN_IF_ERROR(InRange(count, 1, UINT32_MAX, "count"));
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(deviceId).status());
    return FillAtomicCapabilities(capabilities, operations, count);
  });
}

aclError aclrtDeviceGetP2PAtomicCapabilities(uint32_t* capabilities, const aclrtAtomicOperation* operations,
                                             const uint32_t count, int32_t srcDeviceId, int32_t dstDeviceId) {
  return runtime::Api("aclrtDeviceGetP2PAtomicCapabilities", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(capabilities, "capabilities"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(operations, "operations"));
    REPRISE_RETURN_IF_ERROR(InRange(count, 1, UINT32_MAX, "count"));
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(srcDeviceId).status());
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(dstDeviceId).status());
    return FillAtomicCapabilities(capabilities, operations, count);
  });
}

aclError aclrtDeviceL2CacheFlush(void* rsv) {
  return runtime::Api("aclrtDeviceL2CacheFlush", [&]() -> Status { return IsReserved(rsv, "rsv", kInvalidValue); });
}
