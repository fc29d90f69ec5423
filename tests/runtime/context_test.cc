// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

namespace reprise::testing {
namespace {

class Context : public Runtime {};

TEST_F(Context, SetDeviceSharesOneDefaultContext) {
  aclrtContext mine = nullptr;
  aclrtContext theirs = nullptr;
  EXPECT_ACL(0, aclrtGetCurrentContext(&mine));
  std::thread([&] {
    theirs = mine;
    EXPECT_ACL(107002, aclrtGetCurrentContext(&theirs)) << "no context on a new thread";
    EXPECT_EQ(theirs, nullptr);
    EXPECT_ACL(0, aclrtSetDevice(0));
    EXPECT_ACL(0, aclrtGetCurrentContext(&theirs));
    EXPECT_ACL(0, aclrtResetDevice(0));
  }).join();
  EXPECT_EQ(mine, theirs);
}

TEST_F(Context, CreationMakesCurrentAndOwnsItsDefaultStream) {
  aclrtContext first = nullptr;
  aclrtStream default_stream = nullptr;
  EXPECT_ACL(0, aclrtGetCurrentContext(&first));
  EXPECT_ACL(0, aclrtCtxGetCurrentDefaultStream(&default_stream));
  aclrtContext made = nullptr;
  EXPECT_ACL(0, aclrtCreateContext(&made, 0));
  aclrtContext current = nullptr;
  EXPECT_ACL(0, aclrtGetCurrentContext(&current));
  EXPECT_EQ(current, made);
  aclrtStream other = nullptr;
  EXPECT_ACL(0, aclrtCtxGetCurrentDefaultStream(&other));
  EXPECT_NE(other, default_stream);
  EXPECT_ACL(107003, aclrtSynchronizeStream(default_stream));
  EXPECT_ACL(0, aclrtSetCurrentContext(first));
  EXPECT_ACL(107003, aclrtSynchronizeStream(other));
  EXPECT_ACL(0, aclrtDestroyContext(made));
  EXPECT_ACL(107017, aclrtSynchronizeStream(other));
  EXPECT_ACL(107017, aclrtDestroyContext(made));
  EXPECT_ACL(107017, aclrtSetCurrentContext(made));
  EXPECT_ACL(107017, aclrtSetCurrentContext(default_stream)) << "a handle of another kind";
}

TEST_F(Context, DestroyedCurrentContextLeavesNone) {
  aclrtContext made = nullptr;
  EXPECT_ACL(0, aclrtCreateContext(&made, 0));
  EXPECT_ACL(0, aclrtDestroyContext(made));
  aclrtStream stream = nullptr;
  EXPECT_ACL(107002, aclrtCreateStream(&stream));
  int32_t id = 0;
  EXPECT_ACL(107002, aclrtGetDevice(&id));
}

TEST_F(Context, DefaultContextCannotBeDestroyed) {
  aclrtContext context = nullptr;
  EXPECT_ACL(0, aclrtGetCurrentContext(&context));
  EXPECT_ACL(107000, aclrtDestroyContext(context));
  EXPECT_ACL(0, aclrtSynchronizeStream(nullptr));
}

TEST_F(Context, OptionsBelongToTheContext) {
  int64_t value = 7;
  EXPECT_ACL(107021, aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value));
  EXPECT_ACL(0, aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1));
  EXPECT_ACL(0, aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value));
  EXPECT_EQ(value, 1);
  EXPECT_ACL(107021, aclrtCtxGetSysParamOpt(ACL_OPT_STRONG_CONSISTENCY, &value));
  EXPECT_ACL(107000, aclrtCtxSetSysParamOpt(static_cast<aclSysParamOpt>(4), 1));
  aclrtContext made = nullptr;
  EXPECT_ACL(0, aclrtCreateContext(&made, 0));
  EXPECT_ACL(107021, aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value));
  EXPECT_ACL(0, aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value));
  EXPECT_EQ(value, 0) << "the process-wide option is another one";
  EXPECT_ACL(0, aclrtDestroyContext(made));
}

}  // namespace
}  // namespace reprise::testing
