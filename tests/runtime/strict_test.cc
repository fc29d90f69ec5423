// SPDX-License-Identifier: Apache-2.0
//
// REPRISE_CAPTURE_POLICY=strict: a forbidden call invalidates the capture, and its end names the call.
#include <functional>

#include "fixture.h"

namespace reprise::testing {
namespace {

__attribute__((constructor)) void SetEnvironment(int, char** argv, char**) {
  RestartWith(argv, {{"REPRISE_CAPTURE_POLICY", "strict"}});
}

class Strict : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    stream_ = NewStream();
    memory_ = NewMemory(256);
  }
  static aclmdlRICaptureStatus Status(aclrtStream stream) {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    EXPECT_EQ(0, aclmdlRICaptureGetInfo(stream, &status, nullptr));
    return status;
  }
  // Begins, makes the forbidden call, and expects the end to name it.
  void Spoil(aclmdlRICaptureMode mode, int code, const char* name, const std::function<int()>& call) {
    SCOPED_TRACE(name);
    MUST(aclmdlRICaptureBegin(stream_, mode));
    EXPECT_EQ(Status(stream_), ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(call(), code);
    EXPECT_EQ(Status(stream_), ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
    DropMessage();
    aclmdlRI model = nullptr;
    EXPECT_EQ(507903, aclmdlRICaptureEnd(stream_, &model));
    const char* const message = aclGetRecentErrMsg();
    ASSERT_NE(message, nullptr);
    EXPECT_THAT(message, ::testing::HasSubstr(name));
    EXPECT_EQ(model, nullptr);
    EXPECT_EQ(Status(stream_), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  }
  aclrtStream stream_ = nullptr;
  void* memory_ = nullptr;
};

TEST_F(Strict, ForbiddenCallsInvalidate) {
  aclrtEvent event = nullptr;
  MUST(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
  Spoil(ACL_MODEL_RI_CAPTURE_MODE_RELAXED, 107027, "aclrtSynchronizeStream",
        [&] { return aclrtSynchronizeStream(stream_); });
  Spoil(ACL_MODEL_RI_CAPTURE_MODE_RELAXED, 107027, "aclrtStreamQuery", [&] {
    aclrtStreamStatus status{};
    return aclrtStreamQuery(stream_, &status);
  });
  Spoil(ACL_MODEL_RI_CAPTURE_MODE_RELAXED, 107027, "aclrtSynchronizeDevice", [] { return aclrtSynchronizeDevice(); });
  Spoil(ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, 107030, "aclrtMemset", [&] { return aclrtMemset(memory_, 256, 0, 256); });
  Spoil(ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL, 107030, "aclrtMemset",
        [&] { return aclrtMemset(memory_, 256, 0, 256); });
  Spoil(ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, 107028, "aclrtSynchronizeEvent", [&] {
    EXPECT_EQ(0, aclrtRecordEvent(event, stream_));
    return aclrtSynchronizeEvent(event);
  });
  EXPECT_ACL(0, aclrtDestroyEvent(event));
}

TEST_F(Strict, AnotherThreadSpoilsAGlobalCaptureOnly) {
  const auto elsewhere = [&](int code) {
    std::thread([&] {
      EXPECT_EQ(0, aclrtSetDevice(0));
      EXPECT_EQ(code, aclrtMemset(memory_, 256, 0, 256));
      EXPECT_EQ(0, aclrtResetDevice(0));
    }).join();
    return code;
  };
  Spoil(ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, 107030, "aclrtMemset", [&] { return elsewhere(107030); });
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL));
  elsewhere(0);
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  EXPECT_ACL(0, aclmdlRIDestroy(model));
}

TEST_F(Strict, CallsThatAreAllowedOrMerelyWrongDoNot) {
  const aclrtStream other = NewStream();
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclrtMemsetAsync(memory_, 256, 1, 256, other));
  MUST(aclrtSynchronizeStream(other));
  EXPECT_ACL(100000, aclrtMemset(nullptr, 1, 0, 1));
  EXPECT_ACL(107017, aclrtSynchronizeStream(&memory_));
  aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
  MUST(aclmdlRICaptureThreadExchangeMode(&mode));
  MUST(aclrtMemset(memory_, 256, 0, 256)) << "exchanged to relaxed";
  MUST(aclmdlRICaptureThreadExchangeMode(&mode));
  EXPECT_EQ(Status(stream_), ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  EXPECT_ACL(0, aclmdlRIDestroy(model));
}

}  // namespace
}  // namespace reprise::testing
