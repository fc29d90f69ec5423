// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

namespace reprise::testing {
namespace {

[[gnu::constructor]] void Environment(int, char** argv, char**) {
  // Reading stops at "2", which is out of order.
  RestartWith(argv, {{"REPRISE_DEVICES", "6"}, {"ASCEND_RT_VISIBLE_DEVICES", "1,4,2,5"}});
}

TEST(Visible, IdsArePositionsInTheList) {
  uint32_t count = 0;
  EXPECT_ACL(0, aclrtGetDeviceCount(&count));
  EXPECT_EQ(count, 2U);
  EXPECT_ACL(107001, aclrtSetDevice(2));
  EXPECT_ACL(107001, aclrtSetDevice(-1));
  EXPECT_ACL(0, aclrtSetDevice(1));
  int32_t id = -1;
  EXPECT_ACL(0, aclrtGetDevice(&id));
  EXPECT_EQ(id, 1);
  EXPECT_ACL(0, aclrtResetDevice(1));
}

TEST(Visible, NumbersAreTranslatedBothWays) {
  int32_t id = -1;
  EXPECT_ACL(0, aclrtGetLogicDevIdByUserDevId(1, &id));
  EXPECT_EQ(id, 4);
  EXPECT_ACL(0, aclrtGetUserDevIdByLogicDevId(4, &id));
  EXPECT_EQ(id, 1);
  EXPECT_ACL(107001, aclrtGetUserDevIdByLogicDevId(2, &id));
  EXPECT_ACL(0, aclrtGetPhyDevIdByUserDevId(0, &id));
  EXPECT_EQ(id, 1);
  EXPECT_ACL(0, aclrtGetUserDevIdByPhyDevId(1, &id));
  EXPECT_EQ(id, 0);
  EXPECT_ACL(0, aclrtGetLogicDevIdByPhyDevId(4, &id));
  EXPECT_EQ(id, 1) << "despite its name, a user id";
  EXPECT_ACL(0, aclrtGetPhyDevIdByLogicDevId(1, &id));
  EXPECT_EQ(id, 4) << "despite its name, of a user id";
  EXPECT_ACL(107001, aclrtGetPhyDevIdByUserDevId(2, &id));
  EXPECT_ACL(107001, aclrtGetUserDevIdByPhyDevId(0, &id));
  EXPECT_ACL(107001, aclrtGetLogicDevIdByUserDevId(4, &id));
}

TEST(Visible, IdentityFollowsThePhysicalDevice) {
  char address[13];
  EXPECT_ACL(0, aclrtDeviceGetPCIBusId(1, address, sizeof address));
  EXPECT_STREQ(address, "0000:04:00.0");
  int32_t id = -1;
  EXPECT_ACL(107000, aclrtDeviceGetByPCIBusId("0000:02:00.0", &id));
  int64_t value = 0;
  EXPECT_ACL(0, aclrtGetDeviceInfo(1, ACL_DEV_ATTR_PHY_CHIP_ID, &value));
  EXPECT_EQ(value, 4);
}

}  // namespace
}  // namespace reprise::testing
