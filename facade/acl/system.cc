// SPDX-License-Identifier: Apache-2.0
//
// What the system is: chip, versions, run mode, process-wide options, platform numbers. And the calls for compute
// groups, which chips of this class do not have.
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>

#include "acl/acl.h"
#include "acl/acl_platform.h"
#include "check.h"
#include "runtime/chip.h"
#include "runtime/device.h"
#include "runtime/limits.h"

namespace reprise::facade {
namespace {

// ---- Versions ----

/// Packages that are "installed", in the order of aclCANNPackageName; all have one version.
constexpr const char* kPackages[] = {"cann", "runtime", "compiler", "hccl", "toolkit", "opp", "opp_kernel", "driver"};
constexpr bool kInstalled[] = {true, true, false, false, true, true, true, true};

Status NotInstalled(std::string_view package) {
  return Error(kInternalError, fmt::format("package \"{}\" is not installed", package))
      .Culprit("the package name")
      .Hint("ask for cann, runtime, toolkit, opp, opp_kernel or driver");
}

Status FindPackage(const char* name) {
  const size_t length = strnlen(name, ACL_PKG_VERSION_MAX_SIZE);
  const std::string_view wanted(name, length);
  for (size_t i = 0; i < std::size(kPackages); ++i) {
    if (kInstalled[i] && wanted == kPackages[i]) return {};
  }
  return NotInstalled(wanted);
}

template <size_t bytes>
void CopyText(char (&to)[bytes], const std::string& from) {
  std::strncpy(to, from.c_str(), bytes - 1);
}

// ---- Options and platform ----

Status CheckOption(aclSysParamOpt opt) {
  return InRange(opt, ACL_OPT_DETERMINISTIC, ACL_OPT_ENABLE_KERNEL_EARLY_START, "opt");
}

std::atomic<int64_t>& Option(aclSysParamOpt opt) {
  static_assert(ACL_OPT_ENABLE_KERNEL_EARLY_START < runtime::kSystemOptions);
  return runtime::SystemOption(static_cast<size_t>(opt));
}

std::string PlatformText(aclplatformDevInfo info) {
  switch (info) {
    case ACL_PLATFORM_AICORE_CNT:
    case ACL_PLATFORM_CUBE_CORE_CNT: return std::to_string(runtime::HardwareCores(ACL_RT_DEV_RES_CUBE_CORE));
    case ACL_PLATFORM_VECTOR_CORE_CNT: return std::to_string(runtime::HardwareCores(ACL_RT_DEV_RES_VECTOR_CORE));
    case ACL_PLATFORM_AICORE_UB_SIZE: return std::to_string(runtime::chip::kUbBytes);
    case ACL_PLATFORM_L2_SIZE: return std::to_string(EnvBytes(EnvVar::kL2Bytes));
    case ACL_PLATFORM_MEMORY_SIZE: return std::to_string(device::MemoryRegistry::total_bytes());
    case ACL_PLATFORM_CUBE_FREQ:
    case ACL_PLATFORM_VEC_FREQ: return std::to_string(runtime::chip::kClockMhz);
    case ACL_PLATFORM_BT_SIZE: return std::to_string(runtime::chip::kBiasTableBytes);
    case ACL_PLATFORM_L0_A_SIZE: return std::to_string(runtime::chip::kL0aBytes);
    case ACL_PLATFORM_L0_B_SIZE: return std::to_string(runtime::chip::kL0bBytes);
    case ACL_PLATFORM_L0_C_SIZE: return std::to_string(runtime::chip::kL0cBytes);
    case ACL_PLATFORM_L1_SIZE: return std::to_string(runtime::chip::kL1Bytes);
    case ACL_PLATFORM_SOC_VERSION: return Env(EnvVar::kSoc);
    case ACL_PLATFORM_AIC_VERSION: return "AIC-C-220";
    case ACL_PLATFORM_NPU_ARCH: return std::to_string(runtime::chip::kNpuArch);
    case ACL_PLATFORM_MEMORY_TYPE: return "HBM";
  }
  return {};
}

Status NoGroups() {
  return Error(kFeatureNotSupported, "this chip has no compute groups")
      .Culprit("the reported chip")
      .Hint("limit cores with aclrtSetDeviceResLimit or aclrtSetStreamResLimit instead");
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise;          // NOLINT: a file of C functions
using namespace reprise::facade;  // NOLINT

// ---- System ----

const char* aclrtGetSocName() { return runtime::Devices().empty() ? nullptr : Env(EnvVar::kSoc).c_str(); }

aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
  return runtime::Api("aclrtGetVersion", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(majorVersion, "majorVersion"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(minorVersion, "minorVersion"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(patchVersion, "patchVersion"));
    *majorVersion = ACL_MAJOR_VERSION;
    *minorVersion = ACL_MINOR_VERSION;
    *patchVersion = ACL_PATCH_VERSION;
    return {};
  });
}

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion* version) {
  return runtime::Api("aclsysGetCANNVersion", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(version, "version"));
    REPRISE_RETURN_IF_ERROR(InRange(name, ACL_PKG_NAME_CANN, ACL_PKG_NAME_DRIVER, "name", kInvalidArgument));
    if (!kInstalled[name]) return NotInstalled(kPackages[name]);
    const runtime::Version& found = runtime::SoftwareVersion();
    std::memset(version, 0, sizeof *version);
    CopyText(version->version, found.text);
    CopyText(version->majorVersion, found.major);
    CopyText(version->minorVersion, found.minor);
    CopyText(version->releaseVersion, found.release);
    CopyText(version->patchVersion, found.patch);
    return {};
  });
}

aclError aclsysGetVersionStr(char* pkgName, char* versionStr) {
  return runtime::Api("aclsysGetVersionStr", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(versionStr, "versionStr"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(pkgName, "pkgName"));
    REPRISE_RETURN_IF_ERROR(FindPackage(pkgName));
    const std::string text = runtime::SoftwareVersion().text.substr(0, ACL_PKG_VERSION_MAX_SIZE - 1);
    std::memcpy(versionStr, text.c_str(), text.size() + 1);
    return {};
  });
}

aclError aclsysGetVersionNum(char* pkgName, int32_t* versionNum) {
  return runtime::Api("aclsysGetVersionNum", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(versionNum, "versionNum"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(pkgName, "pkgName"));
    REPRISE_RETURN_IF_ERROR(FindPackage(pkgName));
    *versionNum = runtime::SoftwareVersion().number;
    return {};
  });
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  return runtime::Api("aclrtGetRunMode", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(runMode, "runMode"));
    *runMode = ACL_HOST;
    return {};
  });
}

aclError aclrtGetDeviceCapability(int32_t deviceId, aclrtDevFeatureType devFeatureType, int32_t* value) {
  return runtime::Api("aclrtGetDeviceCapability", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(deviceId).status());
    if (devFeatureType != ACL_FEATURE_TSCPU_TASK_UPDATE_SUPPORT_AIC_AIV &&
        devFeatureType != ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV) {
      return Error(kInvalidValue,
                   fmt::format("devFeatureType is {}, no known feature", static_cast<int>(devFeatureType)))
          .Culprit("parameter devFeatureType")
          .Hint("pass one of ACL_FEATURE_*");
    }
    *value = ACL_DEV_FEATURE_NOT_SUPPORT;
    return {};
  });
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return runtime::Api("aclrtGetSysParamOpt", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(value, "value"));
    REPRISE_RETURN_IF_ERROR(CheckOption(opt));
    *value = Option(opt);
    return {};
  });
}

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return runtime::Api("aclrtSetSysParamOpt", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckOption(opt));
    Option(opt) = value;
    return {};
  });
}

// ---- Platform ----

aclError aclplatformGetDeviceInfo(aclplatformDevInfo infoType, char* value, uint32_t maxLen) {
  return runtime::Api("aclplatformGetDeviceInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(
        InRange(infoType, ACL_PLATFORM_AICORE_CNT, ACL_PLATFORM_MEMORY_TYPE, "infoType", kInvalidArgument));
    const std::string text = PlatformText(infoType);
    if (maxLen <= text.size()) {
      return Error(kInvalidArgument, fmt::format("maxLen is {}, must be at least {}", maxLen, text.size() + 1))
          .Culprit("parameter maxLen")
          .Hint("pass a larger buffer");
    }
    std::memcpy(value, text.c_str(), text.size() + 1);
    return {};
  });
}

aclError aclplatformGetInstructionInfo(aclplatformCoreType type, const char* instruction, char* value,
                                       uint32_t maxLen) {
  return runtime::Api("aclplatformGetInstructionInfo", [&]() -> Status {
    (void)maxLen;
    REPRISE_RETURN_IF_ERROR(
        InRange(type, ACL_PLATFORM_CORE_TYPE_AI_CORE, ACL_PLATFORM_CORE_TYPE_VECTOR_CORE, "type", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(instruction, "instruction"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    return Error(kInvalidArgument, fmt::format("instruction \"{}\" is unknown: the CPU device has none of the chip's",
                                               std::string_view(instruction, strnlen(instruction, 64))))
        .Culprit("parameter instruction")
        .Hint("do not generate code for single instructions here");
  });
}

// ---- Compute groups ----

aclError aclrtSetGroup(int32_t groupId) {
  return runtime::Api("aclrtSetGroup", [&]() -> Status {
    (void)groupId;
    return NoGroups();
  });
}

aclError aclrtGetGroupCount(uint32_t* count) {
  return runtime::Api("aclrtGetGroupCount", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(count, "count"));
    return NoGroups();
  });
}

aclrtGroupInfo* aclrtCreateGroupInfo() {
  runtime::Api("aclrtCreateGroupInfo", []() -> Status { return NoGroups(); });
  return nullptr;
}

aclError aclrtDestroyGroupInfo(aclrtGroupInfo* groupInfo) {
  return runtime::Api("aclrtDestroyGroupInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(groupInfo, "groupInfo"));
    return NoGroups();  // none was ever made
  });
}

aclError aclrtGetAllGroupInfo(aclrtGroupInfo* groupInfo) {
  return runtime::Api("aclrtGetAllGroupInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(groupInfo, "groupInfo"));
    return NoGroups();
  });
}

aclError aclrtGetGroupInfoDetail(const aclrtGroupInfo* groupInfo, int32_t groupIndex, aclrtGroupAttr attr,
                                 void* attrValue, size_t valueLen, size_t* paramRetSize) {
  return runtime::Api("aclrtGetGroupInfoDetail", [&]() -> Status {
    (void)groupIndex, (void)attr, (void)valueLen;
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(groupInfo, "groupInfo"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(attrValue, "attrValue"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(paramRetSize, "paramRetSize"));
    return NoGroups();
  });
}
