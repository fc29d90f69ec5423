// SPDX-License-Identifier: Apache-2.0
#include <acl/acl_platform.h>

#include "fixture.h"

namespace reprise::testing {
namespace {

[[gnu::constructor]] void Environment(int, char** argv, char**) {
  RestartWith(argv, {{"REPRISE_CANN_VERSION", "8.2.0-beta.1"}});
}

char* Text(const char* text) { return const_cast<char*>(text); }

TEST(System, ChipAndVersion) {
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910B3");
  int32_t version[3] = {-1, -1, -1};
  EXPECT_ACL(0, aclrtGetVersion(&version[0], &version[1], &version[2]));
  EXPECT_THAT(version, ::testing::ElementsAre(1, 17, 0));
  aclrtRunMode mode = ACL_DEVICE;
  EXPECT_ACL(0, aclrtGetRunMode(&mode));
  EXPECT_EQ(mode, ACL_HOST);
}

TEST(System, PackagesHaveTheConfiguredVersion) {
  char text[128] = {};
  EXPECT_ACL(0, aclsysGetVersionStr(Text("runtime"), text));
  EXPECT_STREQ(text, "8.2.0-beta.1");
  EXPECT_ACL(500000, aclsysGetVersionStr(Text("no_such_package"), text));
  int32_t number = 0;
  EXPECT_ACL(0, aclsysGetVersionNum(Text("runtime"), &number));
  EXPECT_EQ(number, 80200301) << "8.2.0, stage beta, 1";
  EXPECT_ACL(500000, aclsysGetVersionNum(Text("hccl"), &number));
  aclCANNPackageVersion version;
  EXPECT_ACL(0, aclsysGetCANNVersion(ACL_PKG_NAME_CANN, &version));
  EXPECT_STREQ(version.version, "8.2.0-beta.1");
  EXPECT_STREQ(version.majorVersion, "8");
  EXPECT_STREQ(version.minorVersion, "2");
  EXPECT_STREQ(version.releaseVersion, "0");
  EXPECT_STREQ(version.patchVersion, "beta.1");
  EXPECT_ACL(500000, aclsysGetCANNVersion(ACL_PKG_NAME_HCCL, &version));
  EXPECT_ACL(100000, aclsysGetCANNVersion(static_cast<aclCANNPackageName>(8), &version));
}

TEST(System, ProcessOptionsBeginAtZero) {
  int64_t value = 7;
  EXPECT_ACL(0, aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value));
  EXPECT_EQ(value, 0);
  EXPECT_ACL(0, aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, 2));
  EXPECT_ACL(0, aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value));
  EXPECT_EQ(value, 2);
  EXPECT_ACL(0, aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, 0));
  EXPECT_ACL(107000, aclrtSetSysParamOpt(static_cast<aclSysParamOpt>(-1), 0));
  EXPECT_ACL(107000, aclrtGetSysParamOpt(static_cast<aclSysParamOpt>(4), &value));
}

TEST(System, PlatformNumbersAreText) {
  const auto text = [](aclplatformDevInfo info) {
    char value[64] = {};
    EXPECT_ACL(0, aclplatformGetDeviceInfo(info, value, sizeof value));
    return std::string(value);
  };
  EXPECT_EQ(text(ACL_PLATFORM_AICORE_CNT), "20");
  EXPECT_EQ(text(ACL_PLATFORM_VECTOR_CORE_CNT), "40");
  EXPECT_EQ(text(ACL_PLATFORM_AICORE_UB_SIZE), "196608");
  EXPECT_EQ(text(ACL_PLATFORM_L2_SIZE), "201326592");
  EXPECT_EQ(text(ACL_PLATFORM_SOC_VERSION), "Ascend910B3");
  EXPECT_EQ(text(ACL_PLATFORM_NPU_ARCH), "2201");
  for (int info = ACL_PLATFORM_AICORE_CNT; info <= ACL_PLATFORM_MEMORY_TYPE; ++info) {
    EXPECT_NE(text(static_cast<aclplatformDevInfo>(info)), "") << info;
  }
  char small[2];
  EXPECT_ACL(100000, aclplatformGetDeviceInfo(ACL_PLATFORM_AICORE_CNT, small, sizeof small));
  EXPECT_ACL(100000, aclplatformGetDeviceInfo(static_cast<aclplatformDevInfo>(17), small, sizeof small));
  EXPECT_ACL(100000, aclplatformGetInstructionInfo(ACL_PLATFORM_CORE_TYPE_AI_CORE, "add", small, sizeof small));
}

TEST(System, FeaturesAndGroupsAreHonest) {
  int32_t value = -1;
  EXPECT_ACL(0, aclrtGetDeviceCapability(0, ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV, &value));
  EXPECT_EQ(value, 0);
  EXPECT_ACL(107000, aclrtGetDeviceCapability(0, static_cast<aclrtDevFeatureType>(2), &value));
  DropMessage();
  EXPECT_EQ(aclrtCreateGroupInfo(), nullptr);
  EXPECT_THAT(aclGetRecentErrMsg(), ::testing::HasSubstr("207000"));
}

}  // namespace
}  // namespace reprise::testing
