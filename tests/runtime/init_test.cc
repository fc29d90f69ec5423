// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "fixture.h"

namespace reprise::testing {
namespace {

class Init : public ::testing::Test {
 protected:
  void TearDown() override {
    while (aclFinalize() == 0) {
    }
    DropMessage();
    for (const std::string& path : files_) std::remove(path.c_str());
  }
  const char* Config(const std::string& text) {
    files_.push_back(::testing::TempDir() + "reprise-init-" + std::to_string(getpid()) + "-" +
                     std::to_string(files_.size()) + ".json");
    std::ofstream(files_.back()) << text;
    return files_.back().c_str();
  }

 private:
  std::deque<std::string> files_;
};

TEST_F(Init, EveryCallCountsAReference) {
  EXPECT_ACL(0, aclInit(nullptr));
  EXPECT_ACL(100002, aclInit(nullptr));
  EXPECT_ACL(100002, aclInit(Config("{}")));
  uint64_t left = 77;
  EXPECT_ACL(0, aclFinalizeReference(&left));
  EXPECT_EQ(left, 2U);
  EXPECT_ACL(0, aclFinalizeReference(nullptr));
  EXPECT_ACL(0, aclFinalizeReference(&left));
  EXPECT_EQ(left, 0U);
  EXPECT_ACL(100037, aclFinalizeReference(&left));
  EXPECT_ACL(100037, aclFinalize());
  EXPECT_ACL(0, aclInit(nullptr));
  EXPECT_ACL(100002, aclInit(nullptr));
  EXPECT_ACL(0, aclFinalize());
  EXPECT_ACL(100037, aclFinalize());
}

TEST_F(Init, ConfigurationsAreChecked) {
  EXPECT_ACL(100003, aclInit("/nonexistent/acl.json"));
  EXPECT_ACL(100006, aclInit(Config("{\"dump\": ")));
  EXPECT_ACL(100006, aclInit(Config("[1, 2]")));
  EXPECT_ACL(100006, aclInit(Config(R"({"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{}}}}}}}}}}})")));
  EXPECT_ACL(100000, aclInit(Config(R"({"err_msg_mode": "2"})")));
  EXPECT_ACL(100000, aclInit(Config(R"({"defaultDevice": {"default_device": "99"}})")));
  EXPECT_ACL(100000, aclInit(Config(R"({"defaultDevice": {}})")));
  EXPECT_ACL(100037, aclFinalize()) << "a refused aclInit takes no reference";
  EXPECT_ACL(0, aclInit(Config(R"({"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{}}}}}}}}}})")));
}

TEST_F(Init, MessagesSurviveWhatTheyQuote) {
  const char* const config = Config(R"({"defaultDevice": {"default_device": "1\u0000\u0007"}})");
  DropMessage();
  ASSERT_EQ(aclInit(config), 100000);
  const char* const message = aclGetRecentErrMsg();
  ASSERT_NE(message, nullptr);
  const std::string text = message;
  EXPECT_NE(text.find("default_device is 1??, must be"), std::string::npos) << text;
  EXPECT_NE(text.find("Solution: "), std::string::npos) << text;
}

TEST_F(Init, NumbersBeyondAllTypesAreRefused) {
  for (const char* bad : {"1e999", "-1e999", "[1, 2e400]", R"({"b": 12345678901234567890e9999})"}) {
    EXPECT_ACL(100006, aclInit(Config(std::string(R"({"a": )") + bad + "}"))) << bad;
  }
  EXPECT_ACL(0, aclInit(Config(R"({"a": 18446744073709551616, "b": -9223372036854775809})")));
}

TEST_F(Init, TheDefaultDeviceIsThatOfThreadsThatSetNone) {
  // A thread of its own each time: this one may have had a context.
  const auto in_thread = [](auto body) { std::thread(body).join(); };
  in_thread([&] {
    aclrtStream stream = nullptr;
    EXPECT_ACL(107002, aclrtCreateStream(&stream));
  });
  EXPECT_ACL(0, aclInit(Config(R"({"defaultDevice": {"default_device": "0"}})")));
  aclrtStream stream = nullptr;
  aclmdlRI model = nullptr;
  in_thread([&] {
    EXPECT_ACL(0, aclrtCreateStream(&stream));
    int32_t device = -1;
    EXPECT_ACL(0, aclrtGetDevice(&device));
    EXPECT_EQ(device, 0);
    EXPECT_ACL(0, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    EXPECT_ACL(0, aclmdlRICaptureEnd(stream, &model));
  });
  // A handle is all that the next one uses.
  in_thread([&] { EXPECT_ACL(0, aclrtSynchronizeStream(stream)); });
  in_thread([&] {
    EXPECT_ACL(0, aclmdlRIExecuteAsync(model, stream));
    EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  });
  in_thread([&] {
    EXPECT_ACL(0, aclmdlRIDestroy(model));
    EXPECT_ACL(107017, aclmdlRIExecute(model, -1)) << "it was destroyed, from a thread that set no device";
  });
  in_thread([&] { EXPECT_ACL(0, aclrtDestroyStream(stream)); });
  in_thread([&] {
    void* memory = nullptr;
    EXPECT_ACL(0, aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_NORMAL_ONLY));
    EXPECT_ACL(0, aclrtFree(memory));
    EXPECT_ACL(0, aclrtResetDeviceForce(0));
  });
  EXPECT_ACL(0, aclFinalize());
  in_thread([&] { EXPECT_ACL(107002, aclrtCreateStream(&stream)); });
}

TEST_F(Init, AMessageSaysEachSentenceOnce) {
  EXPECT_EQ(aclrtSetTsDevice(static_cast<aclrtTsId>(9)), 100000);
  const std::string message = aclGetRecentErrMsg();
  std::set<std::string> seen;
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    EXPECT_TRUE(seen.insert(colon == std::string::npos ? line : line.substr(colon)).second) << message;
  }
  EXPECT_EQ(message.find("Next step"), std::string::npos) << message;
}

TEST_F(Init, AnotherConfigurationIsRefusedTheSameIsNot) {
  const char* config =
      Config(R"({"dump": {}, "profiler": {}, "unknown": 1, "defaultDevice": {"default_device": "0"}})");
  EXPECT_ACL(0, aclInit(config));
  EXPECT_ACL(100002, aclInit(config));
  EXPECT_ACL(100002, aclInit(nullptr));
  EXPECT_ACL(100000, aclInit(Config(R"({"dump": {"x": 1}})")));
  uint64_t left = 0;
  EXPECT_ACL(0, aclFinalizeReference(&left));
  EXPECT_EQ(left, 2U);
}

TEST_F(Init, MessagesAreOfTheThreadOrOfTheProcess) {
  EXPECT_ACL(0, aclInit(Config(R"({"err_msg_mode": "1"})")));
  std::thread([] { (void)aclrtGetDevice(nullptr); }).join();
  const char* message = aclGetRecentErrMsg();
  ASSERT_NE(message, nullptr);
  EXPECT_THAT(message, ::testing::HasSubstr("aclrtGetDevice"));
  EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
  EXPECT_ACL(0, aclFinalize());
  std::thread([] { (void)aclrtGetDevice(nullptr); }).join();
  EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
}

TEST_F(Init, MessageNamesCulpritAndSolution) {
  EXPECT_EQ(aclrtSetTsDevice(static_cast<aclrtTsId>(9)), 100000);
  const std::string message = aclGetRecentErrMsg();
  EXPECT_THAT(message, ::testing::HasSubstr("is 9, must be 0 to 1"));
  EXPECT_THAT(message, ::testing::HasSubstr("Culprit: parameter tsId"));
  EXPECT_THAT(message, ::testing::HasSubstr("Solution: "));
}

struct Calls {
  int count = 0;
  std::string text;
  aclError result = 0;
};

aclError AtInit(const char* config, size_t length, void* user) {
  auto* calls = static_cast<Calls*>(user);
  ++calls->count;
  calls->text.assign(config, length);
  return calls->result;
}

aclError AtFinalize(void* user) {
  auto* calls = static_cast<Calls*>(user);
  ++calls->count;
  return calls->result;
}

TEST_F(Init, CallbacksRunAtTheFirstInitAndTheLastFinalize) {
  Calls init;
  Calls finalize;
  EXPECT_ACL(0, aclInitCallbackRegister(ACL_REG_TYPE_OTHER, AtInit, &init));
  EXPECT_ACL(0, aclInitCallbackRegister(ACL_REG_TYPE_OTHER, AtInit, &init));
  EXPECT_ACL(0, aclFinalizeCallbackRegister(ACL_REG_TYPE_ACL_MODEL, AtFinalize, &finalize));
  EXPECT_ACL(0, aclInit(Config(R"({"dump": {}})")));
  EXPECT_ACL(100002, aclInit(nullptr));
  EXPECT_EQ(init.count, 1);
  EXPECT_EQ(init.text, R"({"dump":{}})");
  EXPECT_ACL(0, aclFinalizeReference(nullptr));
  EXPECT_EQ(finalize.count, 0);
  EXPECT_ACL(0, aclFinalizeReference(nullptr));
  EXPECT_EQ(finalize.count, 1);
  init.result = 100001;
  EXPECT_ACL(100001, aclInit(nullptr));
  EXPECT_ACL(100037, aclFinalize());
  EXPECT_ACL(0, aclInitCallbackUnRegister(ACL_REG_TYPE_OTHER, AtInit));
  EXPECT_ACL(100000, aclInitCallbackUnRegister(ACL_REG_TYPE_OTHER, AtInit));
  EXPECT_ACL(100000, aclFinalizeCallbackUnRegister(ACL_REG_TYPE_OTHER, AtFinalize));
  EXPECT_ACL(0, aclFinalizeCallbackUnRegister(ACL_REG_TYPE_ACL_MODEL, AtFinalize));
  EXPECT_ACL(100000, aclInitCallbackRegister(ACL_REG_TYPE_OTHER, nullptr, nullptr));
  EXPECT_ACL(100000, aclInitCallbackRegister(static_cast<aclRegisterCallbackType>(8), AtInit, nullptr));
  EXPECT_ACL(100000, aclFinalizeCallbackRegister(ACL_REG_TYPE_OTHER, nullptr, nullptr));
}

TEST_F(Init, AttributesAndCapabilities) {
  const aclCannAttr* list = nullptr;
  size_t count = 0;
  EXPECT_ACL(0, aclGetCannAttributeList(&list, &count));
  EXPECT_THAT(std::vector<int>(list, list + count), ::testing::ElementsAre(0, 1, 2));
  int32_t value = -1;
  EXPECT_ACL(0, aclGetCannAttribute(ACL_CANN_ATTR_BF16, &value));
  EXPECT_EQ(value, 1);
  EXPECT_ACL(100000, aclGetCannAttribute(ACL_CANN_ATTR_UNDEFINED, &value));
  int64_t number = 0;
  EXPECT_ACL(0, aclGetDeviceCapability(0, ACL_DEVICE_INFO_AI_CORE_NUM, &number));
  EXPECT_EQ(number, 20);
  EXPECT_ACL(0, aclGetDeviceCapability(0, ACL_DEVICE_INFO_L2_SIZE, &number));
  EXPECT_EQ(number, 192 << 20);
  EXPECT_ACL(100000, aclGetDeviceCapability(99, ACL_DEVICE_INFO_L2_SIZE, &number));
  EXPECT_ACL(100000, aclGetDeviceCapability(0, ACL_DEVICE_INFO_UNDEFINED, &number));
}

TEST_F(Init, AppLogTakesAnyText) {
  aclAppLog(ACL_ERROR, "f", "file.cc", 1, "%s and %d", "text", 3);
  aclAppLog(ACL_ERROR, nullptr, nullptr, 1, "%5000d", 3);
  aclAppLog(ACL_ERROR, "f", "file.cc", 1, nullptr);
  aclAppLog(static_cast<aclLogLevel>(77), "f", "file.cc", 1, "x");
}

}  // namespace
}  // namespace reprise::testing
