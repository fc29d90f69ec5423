// SPDX-License-Identifier: Apache-2.0
//
// reprise/operands.h: what callers say of the memory that their kernels and host functions touch. Dumps show it, and
// replays are refused once it was freed.
#include <reprise/operands.h>

#include <pthread.h>
#include <reprise/kernel.h>
#include <reprise/operation.h>
#include <reprise/reprise.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "fixture.h"
#include "operands_in_c.h"

namespace reprise::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The address stands where no word of the argument block shows it.
REPRISE_KERNEL(add_at, REPRISE_KERNEL_VECTOR, (uint64_t hidden, uint32_t by)) {
  *reinterpret_cast<uint32_t*>(~hidden) += by;
}
const RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 1, &add_at_desc};
constexpr char kKey[] = "operands_test";

constexpr uint64_t kBytes = 4096;

std::string RecentMessage() {
  const char* message = aclGetRecentErrMsg();
  return message != nullptr ? message : "";
}

class AddOne final : public Operation {
 public:
  explicit AddOne(uint32_t* at) : at_(at) {}
  void Run(uint64_t) override { ++*at_; }
  OperationInfo Describe() const override { return {"add_one", {}}; }

 private:
  uint32_t* at_;
};

class AttachedOperands : public Runtime {
 protected:
  static void SetUpTestSuite() {
    static const int32_t registered = repriseRegisterKernels(kKey, &kTable);  // once for all suites
    EXPECT_EQ(0, registered);
  }
  void SetUp() override {
    Runtime::SetUp();
    MUST(aclrtBinaryLoadFromData(kKey, sizeof kKey, nullptr, &binary_));
    MUST(aclrtBinaryGetFunction(binary_, "add_at", &add_at_));
    stream_ = NewStream();
    data_ = static_cast<uint32_t*>(NewMemory(kBytes));
    MUST(aclrtMemset(data_, kBytes, 0, kBytes));
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
    if (model_ != nullptr) {
      EXPECT_EQ(0, aclmdlRIDestroy(model_));
    }
    if (data_ != nullptr) {
      EXPECT_EQ(0, aclrtFree(data_));
    }
    EXPECT_EQ(0, aclrtDestroyStream(stream_));
    EXPECT_EQ(0, aclrtBinaryUnLoad(binary_));
    Runtime::TearDown();
  }

  RepriseOperand Whole(uint32_t access = REPRISE_ACCESS_READ_WRITE) const { return {data_, kBytes, access}; }
  int32_t LaunchKernel(const std::vector<RepriseOperand>& operands) {
    const struct {
      uint64_t hidden;
      uint64_t by;
    } args = {~reinterpret_cast<uint64_t>(data_), 1};
    return repriseLaunchKernelWithOperands(add_at_, 1, stream_, &args, sizeof args, operands.data(), operands.size());
  }
  int32_t LaunchHostFunc(const std::vector<RepriseOperand>& operands) {
    return repriseLaunchHostFuncWithOperands(
        stream_, [](void* at) { ++*static_cast<uint32_t*>(at); }, data_, operands.data(), operands.size());
  }
  int32_t LaunchOperationOn(std::optional<std::vector<RepriseOperand>> operands, bool is_host_function = false) {
    try {
      OperationOptions options;
      options.is_host_function = is_host_function;
      options.operands = std::move(operands);
      LaunchOperation(stream_, std::make_unique<AddOne>(data_), options);
    } catch (const Exception& error) {
      return error.code();
    }
    return 0;
  }
  int32_t LaunchClosureOn(const std::vector<RepriseOperand>& operands) {
    return LaunchClosure(
        stream_, "closure", [data = data_] { return ++*data, 0; }, operands);
  }

  template <class Launch>
  void Capture(Launch launch) {
    MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    launch();
    MUST(aclmdlRICaptureEnd(stream_, &model_));
  }
  void Replay() {
    MUST(aclmdlRIExecuteAsync(model_, stream_));
    MUST(aclrtSynchronizeStream(stream_));
  }
  std::string Dump(const std::string& ending) const {
    const std::string path = ::testing::TempDir() + "operands" + std::to_string(getpid()) + ending;
    EXPECT_EQ(0, WriteGraphPicture(model_, path.c_str(), true));
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    EXPECT_EQ(0, std::remove(path.c_str()));
    return text.str();
  }
  std::string Address() const {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(data_)));
    return text;
  }

  aclrtBinHandle binary_ = nullptr;
  aclrtFuncHandle add_at_ = nullptr;
  aclrtStream stream_ = nullptr;
  aclmdlRI model_ = nullptr;
  uint32_t* data_ = nullptr;
};

TEST_F(AttachedOperands, LaunchesRunAsWithoutThem) {
  MUST(LaunchKernel({Whole()}));
  MUST(LaunchKernel({}));
  MUST(LaunchHostFunc({Whole()}));
  MUST(LaunchHostFunc({}));
  MUST(LaunchOperationOn({{Whole()}}));
  MUST(LaunchOperationOn({{Whole()}}, true));
  MUST(LaunchOperationOn(std::nullopt));
  MUST(LaunchClosureOn({Whole()}));
  MUST(LaunchTouchInC(stream_, data_, kBytes));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*data_, 9u);
}

TEST_F(AttachedOperands, StayWithCapturedTasksAndShowInDumps) {
  Capture([&] {
    MUST(LaunchKernel({Whole()}));
    MUST(LaunchHostFunc({Whole(REPRISE_ACCESS_READ)}));
    MUST(LaunchOperationOn({{Whole(REPRISE_ACCESS_WRITE)}}));
    MUST(LaunchOperationOn({{Whole(REPRISE_ACCESS_WRITE)}}, true));
    MUST(LaunchClosureOn({Whole()}));
    MUST(LaunchTouchInC(stream_, data_, kBytes));
  });
  for (int i = 0; i < 2; ++i) Replay();
  EXPECT_EQ(*data_, 12u);
  const std::string json = Dump(".json");
  const auto count = [&](const char* access) {
    const std::string text =
        std::string(R"("Operands":[{"Access":")") + access + R"(","Address":")" + Address() + R"(","Bytes":4096}])";
    int found = 0;
    for (size_t at = json.find(text); at != std::string::npos; at = json.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("read and write"), 3) << json;
  EXPECT_EQ(count("read"), 1) << json;
  EXPECT_EQ(count("write"), 2) << json;
  EXPECT_THAT(Dump(".svg"),
              AllOf(HasSubstr("updates 4096 bytes at " + Address()), HasSubstr("reads 4096 bytes at " + Address()),
                    HasSubstr("writes 4096 bytes at " + Address())));
}

TEST_F(AttachedOperands, OfNoneShowNothing) {
  Capture([&] {
    MUST(LaunchKernel({}));
    MUST(LaunchHostFunc({}));
  });
  EXPECT_THAT(Dump(".json"), Not(HasSubstr("Operands")));
}

// Without operands nobody could know: neither code shows the address.
TEST_F(AttachedOperands, ReplaysAreRefusedOnceTheirMemoryWasFreed) {
  const std::function<void()> launches[] = {
      [&] { MUST(LaunchKernel({Whole()})); }, [&] { MUST(LaunchHostFunc({Whole()})); },
      [&] { MUST(LaunchOperationOn({{Whole()}})); }, [&] { MUST(LaunchOperationOn({{Whole()}}, true)); },
      [&] { MUST(LaunchClosureOn({Whole()})); }};
  for (const auto& launch : launches) {
    Capture(launch);
    Replay();
    MUST(aclrtFree(data_));
    EXPECT_ACL(107000, aclmdlRIExecuteAsync(model_, stream_));
    MUST(aclmdlRIDestroy(std::exchange(model_, nullptr)));
    data_ = static_cast<uint32_t*>(NewMemory(kBytes));
  }
}

TEST_F(AttachedOperands, ARefusedReplayNamesTaskAndMemory) {
  Capture([&] { MUST(LaunchKernel({Whole()})); });
  MUST(aclrtFree(std::exchange(data_, nullptr)));
  DropMessage();
  EXPECT_EQ(107000, aclmdlRIExecuteAsync(model_, stream_));
  EXPECT_THAT(RecentMessage(), AllOf(HasSubstr("add_at"), HasSubstr("was freed by thread")));
}

TEST_F(AttachedOperands, AreAllThatATaskTouches) {
  // The address stands in the argument block, and the caller says that the kernel does not use it.
  const struct {
    uint64_t hidden;
    uint64_t by;
  } args = {~reinterpret_cast<uint64_t>(data_), 0};
  void* const unused = NewMemory(kBytes);
  uint64_t block[3] = {args.hidden, args.by, reinterpret_cast<uint64_t>(unused)};
  const RepriseOperand operand = Whole();
  Capture([&] { MUST(repriseLaunchKernelWithOperands(add_at_, 1, stream_, block, sizeof block, &operand, 1)); });
  MUST(aclrtFree(unused));
  Replay();
}

TEST_F(AttachedOperands, GoWhenAnUpdateReplacesTheTask) {
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  aclrtTaskGrp group = nullptr;
  MUST(aclmdlRICaptureTaskGrpBegin(stream_));
  MUST(LaunchKernel({Whole()}));
  MUST(aclmdlRICaptureTaskGrpEnd(stream_, &group));
  MUST(aclmdlRICaptureEnd(stream_, &model_));
  EXPECT_THAT(Dump(".json"), HasSubstr("Operands"));
  const uint64_t block[2] = {~reinterpret_cast<uint64_t>(data_), 5};
  const aclrtStream updater = NewStream();
  MUST(aclmdlRICaptureTaskUpdateBegin(updater, group));
  MUST(aclrtLaunchKernelWithHostArgs(add_at_, 1, updater, nullptr, const_cast<uint64_t*>(block), sizeof block, nullptr,
                                     0));
  MUST(aclmdlRICaptureTaskUpdateEnd(updater));
  MUST(aclrtSynchronizeStream(updater));
  EXPECT_THAT(Dump(".json"), Not(HasSubstr("Operands")));
  Replay();
  EXPECT_EQ(*data_, 5u);
  // And the other way round: what replaces a task may bring operands.
  const RepriseOperand operand = Whole();
  MUST(aclmdlRICaptureTaskUpdateBegin(updater, group));
  MUST(repriseLaunchKernelWithOperands(add_at_, 1, updater, block, sizeof block, &operand, 1));
  MUST(aclmdlRICaptureTaskUpdateEnd(updater));
  MUST(aclrtSynchronizeStream(updater));
  EXPECT_THAT(Dump(".json"), HasSubstr("Operands"));
  Replay();
  EXPECT_EQ(*data_, 10u);
  MUST(aclrtDestroyStream(updater));
}

TEST_F(AttachedOperands, OfCallbacksToo) {
  const auto self = static_cast<uint64_t>(pthread_self());
  MUST(aclrtSubscribeReport(self, stream_));
  const RepriseOperand operand = Whole();
  const auto add = [](void* at) { ++*static_cast<uint32_t*>(at); };
  Capture([&] { MUST(repriseLaunchCallbackWithOperands(add, data_, 0, stream_, &operand, 1)); });
  EXPECT_THAT(Dump(".json"), HasSubstr("Operands"));
  MUST(aclmdlRIExecuteAsync(model_, stream_));
  MUST(aclrtProcessReport(kPatience));
  EXPECT_EQ(*data_, 1u);
  EXPECT_ACL(100000, repriseLaunchCallbackWithOperands(add, data_, 2, stream_, &operand, 1));
  EXPECT_ACL(107000, repriseLaunchCallbackWithOperands(nullptr, data_, 0, stream_, &operand, 1));
  MUST(aclrtSynchronizeStream(stream_));
  MUST(aclrtUnSubscribeReport(self, stream_));
}

TEST_F(AttachedOperands, ThatSayNothingAreRefused) {
  struct Case {
    RepriseOperand operand;
    const char* words;
  };
  const Case kCases[] = {
      {{nullptr, 8, REPRISE_ACCESS_READ}, "operands[1] has no address"},
      {{data_, 0, REPRISE_ACCESS_READ}, "operands[1] has 0 bytes"},
      {{data_, 8, 0}, "the access of operands[1] is 0, must be 1 to 3"},
      {{data_, 8, 4}, "the access of operands[1] is 4, must be 1 to 3"},
      {{data_, UINT64_MAX, REPRISE_ACCESS_READ}, "wraps around"},
      {{data_, uint64_t{1} << 40, REPRISE_ACCESS_READ}, "operands[1]"},
  };
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.words);
    const std::vector<RepriseOperand> operands = {Whole(), each.operand};
    EXPECT_ACL(107000, repriseLaunchHostFuncWithOperands(
                           stream_, [](void*) {}, nullptr, operands.data(), operands.size()));
    EXPECT_EQ(107000, LaunchHostFunc(operands));
    EXPECT_THAT(RecentMessage(), HasSubstr(each.words));
    EXPECT_EQ(107000, LaunchKernel(operands));
    EXPECT_EQ(107000, LaunchOperationOn({operands}));
    EXPECT_EQ(107000, LaunchClosureOn(operands));
  }
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*data_, 0u) << "a refused call launches nothing";
}

TEST_F(AttachedOperands, RefusalsOfTheLaunchesThemselves) {
  const RepriseOperand operand = Whole();
  const std::vector<RepriseOperand> many(REPRISE_MAX_OPERANDS + 1, operand);
  const uint64_t block[2] = {~reinterpret_cast<uint64_t>(data_), 1};
  const auto host = [](void*) {};
  EXPECT_ACL(107000, repriseLaunchHostFuncWithOperands(stream_, host, nullptr, many.data(), many.size()));
  EXPECT_ACL(107000, repriseLaunchHostFuncWithOperands(stream_, host, nullptr, nullptr, 1));
  EXPECT_ACL(107000, repriseLaunchHostFuncWithOperands(stream_, nullptr, nullptr, &operand, 1));
  EXPECT_ACL(107017, repriseLaunchHostFuncWithOperands(data_, host, nullptr, &operand, 1));
  EXPECT_ACL(100000, repriseLaunchKernelWithOperands(nullptr, 1, stream_, block, sizeof block, &operand, 1));
  EXPECT_ACL(107000, repriseLaunchKernelWithOperands(add_at_, 0, stream_, block, sizeof block, &operand, 1));
  EXPECT_ACL(100000, repriseLaunchKernelWithOperands(add_at_, 1, stream_, nullptr, 16, &operand, 1));
  EXPECT_ACL(107000, repriseLaunchKernelWithOperands(add_at_, 1, stream_, block, 8, &operand, 1));
  EXPECT_ACL(107017, repriseLaunchKernelWithOperands(data_, 1, stream_, block, sizeof block, &operand, 1));
  EXPECT_ACL(107017, repriseLaunchKernelWithOperands(add_at_, 1, data_, block, sizeof block, &operand, 1));
}

}  // namespace
}  // namespace reprise::testing
