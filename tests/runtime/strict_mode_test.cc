// SPDX-License-Identifier: Apache-2.0
//
// Every case of docs/strict.md, once as it is and once with REPRISE_STRICT=1.
#include <aclnnop/aclnn_mm.h>
#include <aclnnop/aclnn_relu.h>
#include <reprise/kernel.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include "child.h"
#include "fixture.h"

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;

REPRISE_KERNEL(increase, REPRISE_KERNEL_VECTOR, (uint64_t * cell)) {
  if (ctx.block_index == 0) ++*cell;
}
const RepriseKernelDesc kKernels[] = {increase_desc};
const RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 1, kKernels};
constexpr char kKey[] = "strict_mode_test";

__attribute__((constructor)) void SetEnvironment(int, char** argv, char**) {
  // A checker of memory would refuse what lies behind an allocation, too.
  RestartWith(argv, {{"REPRISE_DEVICES", "2"}, {"REPRISE_RED_ZONES", "0"}});
}

struct Case {
  std::string name;  // its row in docs/strict.md
  int code;
  std::function<int()> run;
};

class StrictMode : public ::testing::Test {
 protected:
  void SetUp() override {
    MUST(aclInit(nullptr));
    MUST(aclrtSetDevice(0));
    MUST(aclrtCreateStream(&stream_));
    MUST(aclrtMalloc(&device_, 40, ACL_MEM_MALLOC_HUGE_FIRST));  // 64 bytes, and 32 behind them
    MUST(aclrtMalloc(&other_, 256, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclrtMallocHost(&pinned_, 256));
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtFree(device_));
    EXPECT_EQ(0, aclrtFree(other_));
    EXPECT_EQ(0, aclrtFreeHost(pinned_));
    EXPECT_EQ(0, aclrtDestroyStream(stream_));
    EXPECT_EQ(0, aclrtResetDevice(0));
    EXPECT_EQ(0, aclFinalize());
  }

  static aclTensor* Tensor(const std::vector<int64_t>& shape, aclDataType type, void* data) {
    const uint64_t rank = shape.size();
    return aclCreateTensor(shape.data(), rank, type, nullptr, 0, ACL_FORMAT_ND, shape.data(), rank, data);
  }
  int Relu(void* data) {
    aclTensor* const tensor = Tensor({4}, ACL_FLOAT, data);
    uint64_t workspace = 0;
    aclOpExecutor* executor = nullptr;
    int code = aclnnInplaceReluGetWorkspaceSize(tensor, &workspace, &executor);
    if (code == 0) code = aclnnInplaceRelu(nullptr, workspace, executor, stream_);
    const std::string message = KeepMessage();
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
    EXPECT_EQ(0, aclDestroyTensor(tensor));
    message_ = message;
    return code;
  }
  int Product(aclDataType left, aclDataType right) {
    auto* const bytes = static_cast<char*>(other_);
    aclTensor* const tensors[] = {Tensor({2, 2}, left, bytes), Tensor({2, 2}, right, bytes + 64),
                                  Tensor({2, 2}, ACL_FLOAT, bytes + 128)};
    uint64_t workspace = 0;
    aclOpExecutor* executor = nullptr;
    int code = aclnnMmGetWorkspaceSize(tensors[0], tensors[1], tensors[2], 0, &workspace, &executor);
    if (code == 0) code = aclnnMm(nullptr, workspace, executor, stream_);
    const std::string message = KeepMessage();
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
    for (aclTensor* const tensor : tensors) EXPECT_EQ(0, aclDestroyTensor(tensor));
    message_ = message;
    return code;
  }
  int Launch(void* host_args) {
    static const int32_t registered = repriseRegisterKernels(kKey, &kTable);
    EXPECT_EQ(0, registered);
    aclrtBinHandle binary = nullptr;
    aclrtFuncHandle function = nullptr;
    EXPECT_EQ(0, aclrtBinaryLoadFromData(kKey, sizeof kKey, nullptr, &binary));
    EXPECT_EQ(0, aclrtBinaryGetFunction(binary, "increase", &function));
    const int code = aclrtLaunchKernelWithHostArgs(function, 1, stream_, nullptr, host_args, 8, nullptr, 0);
    const std::string message = KeepMessage();
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
    EXPECT_EQ(0, aclrtBinaryUnLoad(binary));
    message_ = message;
    return code;
  }
  static std::string KeepMessage() {
    const char* const message = aclGetRecentErrMsg();
    return message != nullptr ? message : "";
  }

  std::vector<Case> Cases() {
    return {
        {"aclInit is missing", 100001,
         [&] {
           EXPECT_EQ(0, aclFinalize());
           const int code = aclrtSetDevice(0);
           message_ = KeepMessage();
           EXPECT_EQ(0, aclInit(nullptr));
           if (code == 0) {
             EXPECT_EQ(0, aclrtResetDevice(0));
           }
           return code;
         }},
        {"aclFinalize while a capture is open", 107027,
         [&] {
           aclmdlRI model = nullptr;
           EXPECT_EQ(0, aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
           const int code = aclFinalize();
           message_ = KeepMessage();
           EXPECT_EQ(0, aclmdlRICaptureEnd(stream_, &model));
           EXPECT_EQ(0, aclmdlRIDestroy(model));
           if (code == 0) {
             EXPECT_EQ(0, aclInit(nullptr));
           }
           return code;
         }},
        {"direction of a copy", 107000, [&] { return aclrtMemcpy(other_, 8, pinned_, 8, ACL_MEMCPY_DEVICE_TO_HOST); }},
        {"direction of a copy", 107000,
         [&] { return aclrtMemcpyAsync(other_, 8, pinned_, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_); }},
        {"direction of a copy", 107000,
         [&] { return aclrtMemcpy2d(other_, 8, pinned_, 8, 4, 2, ACL_MEMCPY_DEVICE_TO_HOST); }},
        {"direction of a copy", 107000,
         [&] { return aclrtMemcpy2dAsync(pinned_, 8, other_, 8, 4, 2, ACL_MEMCPY_HOST_TO_DEVICE, stream_); }},
        {"room behind an allocation", 107000, [&] { return aclrtMemset(device_, 64, 0, 64); }},
        {"room behind an allocation", 107000,
         [&] { return aclrtMemcpy(pinned_, 41, device_, 41, ACL_MEMCPY_DEVICE_TO_HOST); }},
        {"room behind an allocation", 107000, [&] { return aclrtMemsetAsync(device_, 96, 0, 96, stream_); }},
        {"host memory where a device reads or writes", 107000, [&] { return aclrtValueWrite(pinned_, 7, 0, stream_); }},
        {"tensors in host memory", 361001, [&] { return Relu(pinned_); }},
        {"device memory where the host reads", 107000,
         [&] {
           *static_cast<void**>(other_) = static_cast<char*>(other_) + 8;
           return Launch(other_);
         }},
        {"fills of the program's own memory", 107000, [&] { return aclrtMemset(own_, sizeof own_, 0, sizeof own_); }},
        {"fills of the program's own memory", 107000,
         [&] { return aclrtMemsetAsync(own_, sizeof own_, 0, sizeof own_, stream_); }},
        {"tensors that begin at odd addresses", 161002, [&] { return Relu(static_cast<char*>(other_) + 4); }},
        {"products of integers", 161002, [&] { return Product(ACL_FLOAT, ACL_INT32); }},
        {"products of integers", 161002, [&] { return Product(ACL_INT64, ACL_FLOAT); }},
        {"refused calls in a capture", 507903,
         [&] {
           aclmdlRI model = nullptr;
           EXPECT_EQ(0, aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
           EXPECT_EQ(107030, aclrtMemset(other_, 8, 0, 8));
           DropMessage();
           const int code = aclmdlRICaptureEnd(stream_, &model);
           message_ = KeepMessage();
           if (model != nullptr) {
             EXPECT_EQ(0, aclmdlRIDestroy(model));
           }
           return code;
         }},
        {"copies between devices", 107000,
         [&] {
           void* elsewhere = nullptr;
           EXPECT_EQ(0, aclrtSetDevice(1));
           EXPECT_EQ(0, aclrtMalloc(&elsewhere, 64, ACL_MEM_MALLOC_HUGE_FIRST));
           const int code = aclrtMemcpy(elsewhere, 8, other_, 8, ACL_MEMCPY_DEVICE_TO_DEVICE);
           message_ = KeepMessage();
           EXPECT_EQ(0, aclrtDeviceEnablePeerAccess(0, 0));
           EXPECT_EQ(0, aclrtMemcpy(elsewhere, 8, other_, 8, ACL_MEMCPY_DEVICE_TO_DEVICE));
           EXPECT_EQ(0, aclrtDeviceDisablePeerAccess(0));
           EXPECT_EQ(0, aclrtFree(elsewhere));
           EXPECT_EQ(0, aclrtResetDevice(1));
           EXPECT_EQ(0, aclrtSetDevice(0));
           EXPECT_EQ(0, aclrtResetDevice(0));
           return code;
         }},
    };
  }

  aclrtStream stream_ = nullptr;
  void *device_ = nullptr, *other_ = nullptr, *pinned_ = nullptr;
  char own_[64] = {};
  std::string message_;  // that of the case, where another call follows
};

TEST_F(StrictMode, WithoutItEverythingWorks) {
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.name);
    EXPECT_EQ(0, each.run()) << KeepMessage();
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
  }
}

TEST_F(StrictMode, EachCaseIsRefusedAndThePageListsIt) {
  ::setenv("REPRISE_STRICT", "1", 1);
  Child child("StrictMode.DISABLED_EachCaseIsRefused", "strict");
  ::unsetenv("REPRISE_STRICT");
  child.Join();

  std::ifstream file(STRICT_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::set<std::string> names;
  for (const Case& each : Cases()) {
    names.insert(each.name);
    EXPECT_THAT(page, HasSubstr("| " + each.name + " | ")) << "the page lacks the case";
  }
  size_t rows = 0;
  for (size_t at = page.find("\n| "); at != std::string::npos; at = page.find("\n| ", at + 1)) ++rows;
  EXPECT_EQ(rows, names.size() + 1) << "each row of the page's table but its head is a case here";
}

TEST_F(StrictMode, DISABLED_EachCaseIsRefused) {
  if (Child::Argument().empty()) GTEST_SKIP() << "the body of a child";
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.name);
    DropMessage();
    message_.clear();
    EXPECT_EQ(each.code, each.run());
    if (message_.empty()) message_ = KeepMessage();
    if (each.code == 507903) {  // the call that was refused says why
      EXPECT_THAT(message_, HasSubstr("aclrtMemset"));
      continue;
    }
    EXPECT_THAT(message_, HasSubstr("strict: works here, may fail on a device: "));
    EXPECT_THAT(message_, HasSubstr("Culprit: "));
  }
}

// What looks like the cases above and is right.
TEST_F(StrictMode, WhatIsRightIsNotRefused) {
  ::setenv("REPRISE_STRICT", "1", 1);
  Child child("StrictMode.DISABLED_WhatIsRight", "strict");
  ::unsetenv("REPRISE_STRICT");
  child.Join();
}

TEST_F(StrictMode, DISABLED_WhatIsRight) {
  if (Child::Argument().empty()) GTEST_SKIP() << "the body of a child";
  MUST(aclrtMemcpy(other_, 8, pinned_, 8, ACL_MEMCPY_HOST_TO_DEVICE));
  MUST(aclrtMemcpy(other_, 8, own_, 8, ACL_MEMCPY_HOST_TO_DEVICE));
  MUST(aclrtMemcpy(own_, 8, pinned_, 8, ACL_MEMCPY_HOST_TO_HOST));
  MUST(aclrtMemcpy(pinned_, 8, other_, 8, ACL_MEMCPY_DEFAULT));
  MUST(aclrtMemcpyAsync(pinned_, 8, other_, 8, ACL_MEMCPY_DEVICE_TO_HOST, stream_));
  MUST(aclrtMemcpyAsync(other_, 8, own_, 8, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, stream_));
  MUST(aclrtMemset(device_, 40, 0, 40));
  MUST(aclrtMemset(pinned_, 8, 0, 8));
  EXPECT_EQ(0, Relu(other_)) << message_;
  EXPECT_EQ(0, Product(ACL_FLOAT, ACL_FLOAT16)) << message_;
  void* arguments[] = {static_cast<char*>(other_) + 8};
  EXPECT_EQ(0, Launch(arguments)) << message_;

  // Host memory that has a device address is memory of both.
  void* mapped = nullptr;
  void* pages = std::aligned_alloc(4096, 4096);
  std::memset(pages, 0, 4096);
  MUST(aclrtHostRegister(pages, 4096, ACL_HOST_REGISTER_MAPPED, &mapped));
  MUST(aclrtMemcpy(mapped, 8, other_, 8, ACL_MEMCPY_DEVICE_TO_DEVICE));
  MUST(aclrtMemcpy(pages, 8, other_, 8, ACL_MEMCPY_DEVICE_TO_HOST));
  MUST(aclrtValueWrite(mapped, 7, 0, stream_));
  EXPECT_EQ(0, Relu(mapped)) << message_;
  MUST(aclrtHostUnregister(pages));
  std::free(pages);
}

}  // namespace
}  // namespace reprise::testing
