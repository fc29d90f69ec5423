// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls of the functions for kernel binaries, argument lists and launches.
#include <reprise/kernel.h>
#include <sys/stat.h>

#include <chrono>
#include <climits>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../support/program_folder.h"
#include "fixture.h"

namespace reprise::testing {
namespace {

const std::string kKernels = BesideProgram("misuse_kernels.so");
constexpr size_t kMaxArgsBytes = 64 << 10;

struct World : BasicWorld {
  aclrtBinHandle binary = nullptr;
  aclrtFuncHandle add = nullptr;
  aclrtFuncHandle touch = nullptr;
  aclrtFuncHandle opaque = nullptr;
  aclrtArgsHandle ready = nullptr;  // of `add`, finalised
  aclrtArgsHandle open = nullptr;   // of `add`: a value, a placeholder with a buffer; not finalised
  aclrtParamHandle value = nullptr;
  aclrtParamHandle placeholder = nullptr;
  uint64_t* cell = nullptr;         // what `add` adds to
  uint64_t* device_args = nullptr;  // a block for `add`
  uint64_t args[2] = {};            // the same on the host
  size_t bytes = 0;                 // that rows pass of a block
  void* pointers[2] = {};
  std::string image;  // of the binary
  std::string path;   // that rows try
  aclrtLaunchKernelAttr attrs[2] = {};
  aclrtLaunchKernelCfg config = {};
  aclrtPlaceHolderInfo slots[2] = {};
  aclrtBinaryLoadOption option = {};
  aclrtBinaryLoadOptions options = {};

  aclrtLaunchKernelCfg* Config(int id, size_t count = 1) {
    attrs[0].id = static_cast<aclrtLaunchKernelAttrId>(id);
    config = {attrs, count};
    return &config;
  }
  aclrtLaunchKernelCfg* TwoTimeouts() {
    attrs[0].id = ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT;
    attrs[1].id = ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US;
    config = {attrs, 2};
    return &config;
  }
  aclrtLaunchKernelCfg* NoAttributes() {
    config = {nullptr, 1};
    return &config;
  }
  aclrtPlaceHolderInfo* Slot(uint32_t address, uint32_t data) {
    slots[0] = {address, data};
    return slots;
  }
  aclrtBinaryLoadOptions* Options(int type, size_t count = 1) {
    option.type = static_cast<aclrtBinaryLoadOptionType>(type);
    options = {&option, count};
    return &options;
  }
  aclrtBinaryLoadOptions* NoOptions() {
    options = {nullptr, 1};
    return &options;
  }
  void** NullParameter() {
    pointers[0] = args;
    pointers[1] = nullptr;
    return pointers;
  }
};

class KernelMisuse : public Misuse<World> {
 protected:
  void SetUp() override {
    Misuse::SetUp();
    World& w = world_;
    std::ifstream in(kKernels.c_str(), std::ios::binary);
    w.image = {std::istreambuf_iterator<char>(in), {}};
    MUST(aclrtBinaryLoadFromFile(kKernels.c_str(), nullptr, &w.binary));
    MUST(aclrtBinaryGetFunction(w.binary, "add", &w.add));
    MUST(aclrtBinaryGetFunction(w.binary, "touch", &w.touch));
    MUST(aclrtBinaryGetFunction(w.binary, "opaque", &w.opaque));
    w.cell = static_cast<uint64_t*>(NewMemory(sizeof *w.cell));
    w.device_args = static_cast<uint64_t*>(NewMemory(sizeof w.args));
    w.args[0] = reinterpret_cast<uint64_t>(w.cell);
    w.args[1] = 1;
    std::memcpy(w.device_args, w.args, sizeof w.args);
    w.pointers[0] = &w.args[0];
    w.pointers[1] = &w.args[1];
    aclrtParamHandle param = nullptr;
    MUST(aclrtKernelArgsInit(w.add, &w.ready));
    MUST(aclrtKernelArgsAppend(w.ready, &w.args[0], 8, &param));
    MUST(aclrtKernelArgsAppend(w.ready, &w.args[1], 8, &param));
    MUST(aclrtKernelArgsFinalize(w.ready));
    MUST(aclrtKernelArgsInit(w.add, &w.open));
    MUST(aclrtKernelArgsAppend(w.open, &w.args[1], 8, &w.value));
    MUST(aclrtKernelArgsAppendPlaceHolder(w.open, &w.placeholder));
    // Handles that an unloaded binary leaves behind.
    aclrtBinHandle dead = nullptr;
    aclrtFuncHandle dead_function = nullptr;
    aclrtArgsHandle dead_args = nullptr;
    MUST(aclrtBinaryLoadFromData(w.image.data(), w.image.size(), nullptr, &dead));
    MUST(aclrtBinaryGetFunction(dead, "add", &dead_function));
    MUST(aclrtKernelArgsInit(dead_function, &dead_args));
    MUST(aclrtBinaryUnLoad(dead));
    w.AddHandles("kernel binary", w.binary, dead);
    w.AddHandles("kernel function", w.add, dead_function);
    w.AddHandles("argument list", w.ready, dead_args);
  }

  void TearDown() override {
    EXPECT_EQ(0, aclrtBinaryUnLoad(world_.binary));
    Misuse::TearDown();
  }

  /// No refused launch has run, and each way of launching works.
  void StillWorks() override {
    World& w = world_;
    Misuse::StillWorks();
    EXPECT_EQ(*w.cell, 0u);
    EXPECT_EQ(0, aclrtLaunchKernel(w.add, 1, w.device_args, sizeof w.args, w.stream));
    EXPECT_EQ(0, aclrtLaunchKernelWithConfig(w.add, 1, w.stream, nullptr, w.ready, nullptr));
    EXPECT_EQ(0, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, sizeof w.args, nullptr, 0));
    EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(w.stream, kPatience));
    EXPECT_EQ(*w.cell, 3u);
    *w.cell = 0;
  }

  /// A file of this test with that content.
  std::string File(const std::string& name, const std::string& content) {
    const std::string path = ::testing::TempDir() + "reprise_misuse_" + std::to_string(::getpid()) + "_" + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
};

TEST_F(KernelMisuse, NullPointers) {
  Everywhere({
      ROW(100000, aclrtBinaryLoadFromFile(nullptr, nullptr, w.out.handle())),
      ROW(100000, aclrtBinaryLoadFromFile(kKernels.c_str(), nullptr, nullptr)),
      ROW(100000, aclrtBinaryLoadFromData(nullptr, 8, nullptr, w.out.handle())),
      ROW(100000, aclrtBinaryLoadFromData(w.image.data(), w.image.size(), nullptr, nullptr)),
      ROW(100000, aclrtBinaryUnLoad(nullptr)),
      ROW(100000, aclrtBinaryGetFunction(nullptr, "add", w.out.handle())),
      ROW(100000, aclrtBinaryGetFunction(w.binary, nullptr, w.out.handle())),
      ROW(100000, aclrtBinaryGetFunction(w.binary, "add", nullptr)),
      ROW(100000, aclrtBinaryGetFunctionByEntry(nullptr, 1, w.out.handle())),
      ROW(100000, aclrtBinaryGetFunctionByEntry(w.binary, 1, nullptr)),
      ROW(100000, aclrtBinaryGetDevAddress(nullptr, w.out.handle(), w.out.As<size_t>(1))),
      ROW(100000, aclrtBinaryGetGlobal(nullptr, "x", w.out.handle(), w.out.As<size_t>(1))),
      ROW(100000, aclrtBinaryGetGlobal(w.binary, nullptr, w.out.handle(), w.out.As<size_t>(1))),
      ROW(100000, aclrtBinaryGetGlobal(w.binary, "x", nullptr, nullptr)),
      ROW(100000, aclrtFunctionGetBinary(nullptr, w.out.handle())),
      ROW(100000, aclrtFunctionGetBinary(w.add, nullptr)),
      ROW(100000, aclrtGetFunctionName(w.add, 100, nullptr)),
      ROW(107017, aclrtGetFunctionName(nullptr, 100, w.out.As<char>())),
      ROW(100000, aclrtGetFunctionAddr(nullptr, w.out.handle(), w.out.handle(1))),
      ROW(100000, aclrtGetFunctionAddr(w.add, nullptr, w.out.handle(1))),
      ROW(100000, aclrtGetFunctionAddr(w.add, w.out.handle(), nullptr)),
      ROW(100000, aclrtGetFunctionAttribute(nullptr, ACL_FUNC_ATTR_KERNEL_TYPE, w.out.As<int64_t>())),
      ROW(100000, aclrtGetFunctionAttribute(w.add, ACL_FUNC_ATTR_KERNEL_TYPE, nullptr)),
      ROW(100000, aclrtKernelArgsInit(nullptr, w.out.handle())),
      ROW(100000, aclrtKernelArgsInit(w.add, nullptr)),
      ROW(100000, aclrtKernelArgsAppend(nullptr, w.args, 8, w.out.handle())),
      ROW(100000, aclrtKernelArgsAppend(w.open, nullptr, 8, w.out.handle())),
      ROW(100000, aclrtKernelArgsAppend(w.open, w.args, 8, nullptr)),
      ROW(100000, aclrtKernelArgsAppendPlaceHolder(nullptr, w.out.handle())),
      ROW(100000, aclrtKernelArgsAppendPlaceHolder(w.open, nullptr)),
      ROW(100000, aclrtKernelArgsGetPlaceHolderBuffer(nullptr, w.placeholder, 8, w.out.handle())),
      ROW(100000, aclrtKernelArgsGetPlaceHolderBuffer(w.open, nullptr, 8, w.out.handle())),
      ROW(100000, aclrtKernelArgsGetPlaceHolderBuffer(w.open, w.placeholder, 8, nullptr)),
      ROW(100000, aclrtKernelArgsParaUpdate(nullptr, w.value, w.args, 8)),
      ROW(100000, aclrtKernelArgsParaUpdate(w.open, nullptr, w.args, 8)),
      ROW(100000, aclrtKernelArgsParaUpdate(w.open, w.value, nullptr, 8)),
      ROW(100000, aclrtKernelArgsFinalize(nullptr)),
      ROW(100000, aclrtLaunchKernel(nullptr, 1, w.device_args, 16, w.stream)),
      ROW(100000, aclrtLaunchKernel(w.add, 1, nullptr, 16, w.stream)),
      ROW(100000, aclrtLaunchKernelV2(nullptr, 1, w.device_args, 16, nullptr, w.stream)),
      ROW(100000, aclrtLaunchKernelV2(w.add, 1, nullptr, 16, nullptr, w.stream)),
      ROW(100000, aclrtLaunchKernelWithConfig(nullptr, 1, w.stream, nullptr, w.ready, nullptr)),
      ROW(100000, aclrtLaunchKernelWithConfig(w.add, 1, w.stream, nullptr, nullptr, nullptr)),
      ROW(100000, aclrtLaunchKernelWithHostArgs(nullptr, 1, w.stream, nullptr, w.args, 16, nullptr, 0)),
      ROW(100000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, nullptr, 16, nullptr, 0)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, nullptr, 1)),
      ROW(100000, aclrtLaunchKernelWithArgsArray(nullptr, 1, w.stream, nullptr, w.pointers)),
      ROW(107000, aclrtLaunchKernelWithArgsArray(w.add, 1, w.stream, nullptr, nullptr)),
      ROW(107000, aclrtLaunchKernelWithArgsArray(w.add, 1, w.stream, nullptr, w.NullParameter())),
  });
}

TEST_F(KernelMisuse, BadBinaries) {
  for (const Handle& bad : world_.BadHandles("kernel binary")) {
    Everywhere(bad, {
                        ROW(107017, aclrtBinaryUnLoad(w.bad)),
                        ROW(107017, aclrtBinaryGetFunction(w.bad, "add", w.out.handle())),
                        ROW(107017, aclrtBinaryGetFunctionByEntry(w.bad, 1, w.out.handle())),
                        ROW(107017, aclrtBinaryGetDevAddress(w.bad, w.out.handle(), w.out.As<size_t>(1))),
                        ROW(107017, aclrtBinaryGetGlobal(w.bad, "x", w.out.handle(), nullptr)),
                    });
  }
  Everywhere({
      ROW(507027, aclrtBinaryGetFunction(w.binary, "", w.out.handle())),
      ROW(507027, aclrtBinaryGetFunction(w.binary, "ad", w.out.handle())),
      ROW(507027, aclrtBinaryGetFunction(w.binary, "add ", w.out.handle())),
      ROW(507027, aclrtBinaryGetFunction(w.binary, std::string(100'000, 'x').c_str(), w.out.handle())),
      ROW(507027, aclrtBinaryGetFunctionByEntry(w.binary, 0, w.out.handle())),
      ROW(507027, aclrtBinaryGetFunctionByEntry(w.binary, 4, w.out.handle())),
      ROW(507027, aclrtBinaryGetFunctionByEntry(w.binary, UINT64_MAX, w.out.handle())),
      ROW(107042, aclrtBinaryGetGlobal(w.binary, "x", w.out.handle(), w.out.As<size_t>(1))),
      ROW(107042, aclrtBinaryGetGlobal(w.binary, "", nullptr, w.out.As<size_t>(1))),
  });
}

TEST_F(KernelMisuse, EntryZeroIsNone) {
  static const RepriseKernelDesc descs[] = {
      {"first", 0, [](const RepriseKernelContext*, const void*, size_t) -> int32_t { return 0; }, REPRISE_KERNEL_VECTOR,
       0, 0, nullptr, 0}};
  static const RepriseKernelTable table = {REPRISE_KERNEL_ABI_VERSION, 1, descs};
  static const int registered = repriseRegisterKernels("misuse_key", &table);  // once in a process
  EXPECT_EQ(0, registered);
  EXPECT_EQ(507028, repriseRegisterKernels("misuse_key", &table));
  EXPECT_EQ(107000, repriseRegisterKernels(nullptr, &table));
  EXPECT_EQ(107000, repriseRegisterKernels("", &table));
  EXPECT_EQ(107000, repriseRegisterKernels("misuse_other", nullptr));
  static const RepriseKernelTable other_layout = {REPRISE_KERNEL_ABI_VERSION + 1, 1, descs};
  EXPECT_EQ(107000, repriseRegisterKernels("misuse_other", &other_layout));
  aclrtBinHandle binary = nullptr;
  aclrtFuncHandle function = nullptr;
  MUST(aclrtBinaryLoadFromFile("misuse_key", nullptr, &binary));
  EXPECT_ACL(507027, aclrtBinaryGetFunctionByEntry(binary, 0, &function));
  EXPECT_ACL(0, aclrtBinaryGetFunction(binary, "first", &function));
  EXPECT_ACL(0, aclrtBinaryUnLoad(binary));
  // The key in data, with bytes behind it.
  const char data[32] = "misuse_key\0 and more";
  EXPECT_ACL(0, aclrtBinaryLoadFromData(data, sizeof data, nullptr, &binary));
  EXPECT_ACL(0, aclrtBinaryUnLoad(binary));
}

TEST_F(KernelMisuse, BadFunctions) {
  for (const Handle& bad : world_.BadHandles("kernel function")) {
    Everywhere(bad, {
                        ROW(107017, aclrtFunctionGetBinary(w.bad, w.out.handle())),
                        ROW(107017, aclrtGetFunctionName(w.bad, 100, w.out.As<char>())),
                        ROW(107017, aclrtGetFunctionAddr(w.bad, w.out.handle(), w.out.handle(1))),
                        ROW(107017, aclrtGetFunctionAttribute(w.bad, ACL_FUNC_ATTR_KERNEL_TYPE, w.out.As<int64_t>())),
                        ROW(107017, aclrtKernelArgsInit(w.bad, w.out.handle())),
                        ROW(107017, aclrtLaunchKernel(w.bad, 1, w.device_args, 16, w.stream)),
                        ROW(107017, aclrtLaunchKernelV2(w.bad, 1, w.device_args, 16, nullptr, w.stream)),
                        ROW(107017, aclrtLaunchKernelWithConfig(w.bad, 1, w.stream, nullptr, w.ready, nullptr)),
                        ROW(107017, aclrtLaunchKernelWithHostArgs(w.bad, 1, w.stream, nullptr, w.args, 16, nullptr, 0)),
                        ROW(107017, aclrtLaunchKernelWithArgsArray(w.bad, 1, w.stream, nullptr, w.pointers)),
                        ROW(107017, aclrtLaunchKernelWithArgsArray(w.bad, 1, w.captured, nullptr, w.pointers)),
                    });
  }
  Everywhere({
      ROW(107000, aclrtGetFunctionName(w.add, 0, w.out.As<char>())),
      ROW(107000, aclrtGetFunctionName(w.add, 3, w.out.As<char>())),
      ROW(107000, aclrtGetFunctionAttribute(w.add, static_cast<aclrtFuncAttribute>(0), w.out.As<int64_t>())),
      ROW(107000, aclrtGetFunctionAttribute(w.add, static_cast<aclrtFuncAttribute>(4), w.out.As<int64_t>())),
      ROW(107000, aclrtGetFunctionAttribute(w.add, static_cast<aclrtFuncAttribute>(-1), w.out.As<int64_t>())),
      ROW(0, aclrtGetFunctionName(w.add, 4, w.out.As<char>())),
  });
}

TEST_F(KernelMisuse, BadArgumentLists) {
  for (const Handle& bad : world_.BadHandles("argument list")) {
    Everywhere(bad, {
                        ROW(107017, aclrtKernelArgsAppend(w.bad, w.args, 8, w.out.handle())),
                        ROW(107017, aclrtKernelArgsAppendPlaceHolder(w.bad, w.out.handle())),
                        ROW(107017, aclrtKernelArgsGetPlaceHolderBuffer(w.bad, w.placeholder, 8, w.out.handle())),
                        ROW(107017, aclrtKernelArgsParaUpdate(w.bad, w.value, w.args, 8)),
                        ROW(107017, aclrtKernelArgsFinalize(w.bad)),
                        ROW(107017, aclrtLaunchKernelWithConfig(w.add, 1, w.stream, nullptr, w.bad, nullptr)),
                    });
  }
  // Parameter handles: of no parameter, of the wrong sort.
  for (const Handle& bad : world_.BadHandles("parameter")) {
    if (reinterpret_cast<uintptr_t>(bad.handle) <= 2) continue;  // the list's own
    Everywhere(bad, {
                        ROW(107017, aclrtKernelArgsParaUpdate(w.open, w.bad, w.args, 8)),
                        ROW(107017, aclrtKernelArgsGetPlaceHolderBuffer(w.open, w.bad, 8, w.out.handle())),
                    });
  }
}

TEST_F(KernelMisuse, ArgumentListsInTheWrongState) {
  Everywhere({
      ROW(100000, aclrtKernelArgsAppend(w.open, w.args, 0, w.out.handle())),
      ROW(107000, aclrtKernelArgsAppend(w.open, w.args, kMaxArgsBytes, w.out.handle())),
      ROW(107000, aclrtKernelArgsAppend(w.open, w.args, SIZE_MAX / 2, w.out.handle())),
      ROW(107000, aclrtKernelArgsAppend(w.open, w.args, SIZE_MAX, w.out.handle())),
      ROW(107000, aclrtKernelArgsAppend(w.open, w.args, SIZE_MAX - 7, w.out.handle())),
      ROW(107000, aclrtKernelArgsAppend(w.ready, w.args, 8, w.out.handle())),
      ROW(107000, aclrtKernelArgsAppendPlaceHolder(w.ready, w.out.handle())),
      ROW(100000, aclrtKernelArgsGetPlaceHolderBuffer(w.open, w.placeholder, 0, w.out.handle())),
      ROW(107000, aclrtKernelArgsGetPlaceHolderBuffer(w.open, w.value, 8, w.out.handle())),
      ROW(107000, aclrtKernelArgsGetPlaceHolderBuffer(w.open, w.placeholder, kMaxArgsBytes + 1, w.out.handle())),
      ROW(107000, aclrtKernelArgsGetPlaceHolderBuffer(w.open, w.placeholder, SIZE_MAX / 2, w.out.handle())),
      ROW(107000, aclrtKernelArgsGetPlaceHolderBuffer(w.open, w.placeholder, size_t{1} << 40, w.out.handle())),
      ROW(100000, aclrtKernelArgsParaUpdate(w.open, w.value, w.args, 0)),
      ROW(107000, aclrtKernelArgsParaUpdate(w.open, w.value, w.args, 9)),
      ROW(107000, aclrtKernelArgsParaUpdate(w.open, w.value, w.args, SIZE_MAX / 2)),
      ROW(107000, aclrtKernelArgsParaUpdate(w.open, w.placeholder, w.args, 8)),
      ROW(107000, aclrtLaunchKernelWithConfig(w.add, 1, w.stream, nullptr, w.open, nullptr)),
      ROW(107000, aclrtLaunchKernelWithConfig(w.touch, 1, w.stream, nullptr, w.ready, nullptr)),
      ROW(107000, aclrtLaunchKernelWithConfig(w.add, 1, w.captured, nullptr, w.open, nullptr)),
  });
  // 128 parameters and no more.
  aclrtArgsHandle full = nullptr;
  aclrtParamHandle param = nullptr;
  MUST(aclrtKernelArgsInit(world_.add, &full));
  for (int i = 0; i < 128; ++i) MUST(aclrtKernelArgsAppend(full, world_.args, 8, &param));
  EXPECT_ACL(107000, aclrtKernelArgsAppend(full, world_.args, 8, &param));
  EXPECT_ACL(107000, aclrtKernelArgsAppendPlaceHolder(full, &param));
  // A change opens the list again.
  EXPECT_ACL(0, aclrtKernelArgsParaUpdate(world_.ready, Address(2), &world_.args[1], 8));
  EXPECT_ACL(107000, aclrtLaunchKernelWithConfig(world_.add, 1, world_.stream, nullptr, world_.ready, nullptr));
  EXPECT_ACL(0, aclrtKernelArgsFinalize(world_.ready));
  EXPECT_ACL(0, aclrtKernelArgsFinalize(world_.ready));
  StillWorks();
}

// Whoever still writes to the first buffer of a placeholder writes to memory of the list.
TEST_F(KernelMisuse, PlaceholderBuffersStayWhereTheyAre) {
  void* small = nullptr;
  void* large = nullptr;
  void* again = nullptr;
  EXPECT_ACL(0, aclrtKernelArgsGetPlaceHolderBuffer(world_.open, world_.placeholder, 8, &small));
  EXPECT_ACL(0, aclrtKernelArgsGetPlaceHolderBuffer(world_.open, world_.placeholder, 4096, &large));
  std::memset(small, 1, 8);
  std::memset(large, 2, 4096);
  EXPECT_ACL(0, aclrtKernelArgsGetPlaceHolderBuffer(world_.open, world_.placeholder, 16, &again));
  EXPECT_EQ(again, large);
  EXPECT_ACL(0, aclrtKernelArgsFinalize(world_.open));
}

TEST_F(KernelMisuse, LaunchArguments) {
  Everywhere({
      ROW(107000, aclrtLaunchKernel(w.add, 0, w.device_args, 16, w.stream)),
      ROW(107000, aclrtLaunchKernelV2(w.add, 0, w.device_args, 16, nullptr, w.stream)),
      ROW(100000, aclrtLaunchKernelWithConfig(w.add, 0, w.stream, nullptr, w.ready, nullptr)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 0, w.stream, nullptr, w.args, 16, nullptr, 0)),
      ROW(100000, aclrtLaunchKernelWithArgsArray(w.add, 0, w.stream, nullptr, w.pointers)),
      ROW(100000, aclrtLaunchKernelWithConfig(w.add, 1, w.stream, nullptr, w.ready, &w.local)),
      ROW(207000, aclrtLaunchKernelWithArgsArray(w.opaque, 1, w.stream, nullptr, w.pointers)),
      // Device arguments that are not on the device.
      ROW(107000, aclrtLaunchKernel(w.add, 1, w.args, 16, w.stream)),
      ROW(107000, aclrtLaunchKernel(w.add, 1, Address(8), 16, w.stream)),
      ROW(107000, aclrtLaunchKernel(w.add, 1, w.stream, 16, w.stream)),
      ROW(107000, aclrtLaunchKernel(w.add, 1, w.device_args, 8192, w.stream)),
      ROW(107000, aclrtLaunchKernel(w.add, 1, w.device_args, SIZE_MAX, w.stream)),
      ROW(107000, aclrtLaunchKernelV2(w.add, 1, w.args, 16, nullptr, w.stream)),
      ROW(107000, aclrtLaunchKernelV2(w.add, 1, w.device_args, SIZE_MAX, nullptr, w.stream)),
      // Host arguments: too long, placeholders outside.
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, kMaxArgsBytes + 1, nullptr, 0)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, SIZE_MAX, nullptr, 0)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, w.Slot(16, 0), 1)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, w.Slot(9, 0), 1)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, w.Slot(0, 16), 1)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, w.Slot(0, UINT32_MAX), 1)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, w.Slot(UINT32_MAX, 0), 1)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, w.Slot(UINT32_MAX - 7, 0), 1)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, w.Slot(0, 0), 129)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, w.Slot(0, 0), SIZE_MAX)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.captured, nullptr, w.args, SIZE_MAX, nullptr, 0)),
  });
}

TEST_F(KernelMisuse, LaunchConfigurations) {
  Everywhere({
      ROW(107000, aclrtLaunchKernelV2(w.add, 1, w.device_args, 16, w.NoAttributes(), w.stream)),
      ROW(107000, aclrtLaunchKernelV2(w.add, 1, w.device_args, 16, w.Config(0), w.stream)),
      ROW(107000, aclrtLaunchKernelV2(w.add, 1, w.device_args, 16, w.Config(10), w.stream)),
      ROW(107000, aclrtLaunchKernelV2(w.add, 1, w.device_args, 16, w.Config(-1), w.stream)),
      ROW(107000, aclrtLaunchKernelV2(w.add, 1, w.device_args, 16, w.Config(1, SIZE_MAX), w.stream)),
      ROW(107000, aclrtLaunchKernelV2(w.add, 1, w.device_args, 16, w.TwoTimeouts(), w.stream)),
      ROW(107000, aclrtLaunchKernelWithConfig(w.add, 1, w.stream, w.NoAttributes(), w.ready, nullptr)),
      ROW(107000, aclrtLaunchKernelWithConfig(w.add, 1, w.stream, w.Config(99), w.ready, nullptr)),
      ROW(107000, aclrtLaunchKernelWithConfig(w.add, 1, w.stream, w.TwoTimeouts(), w.ready, nullptr)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, w.NoAttributes(), w.args, 16, nullptr, 0)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, w.Config(99), w.args, 16, nullptr, 0)),
      ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.captured, w.TwoTimeouts(), w.args, 16, nullptr, 0)),
      ROW(107000, aclrtLaunchKernelWithArgsArray(w.add, 1, w.stream, w.NoAttributes(), w.pointers)),
      ROW(107000, aclrtLaunchKernelWithArgsArray(w.add, 1, w.stream, w.Config(INT_MAX), w.pointers)),
      ROW(107000, aclrtLaunchKernelWithArgsArray(w.add, 1, w.captured, w.TwoTimeouts(), w.pointers)),
  });
}

TEST_F(KernelMisuse, BadStreams) {
  const Rows rows = {
      ROW(107017, aclrtLaunchKernel(w.add, 1, w.device_args, 16, w.bad)),
      ROW(107017, aclrtLaunchKernelV2(w.add, 1, w.device_args, 16, nullptr, w.bad)),
      ROW(107017, aclrtLaunchKernelWithConfig(w.add, 1, w.bad, nullptr, w.ready, nullptr)),
      ROW(107017, aclrtLaunchKernelWithHostArgs(w.add, 1, w.bad, nullptr, w.args, 16, nullptr, 0)),
      ROW(107017, aclrtLaunchKernelWithHostArgs(w.add, 1, w.bad, nullptr, w.args, 16, w.Slot(0, 8), 1)),
      ROW(107017, aclrtLaunchKernelWithArgsArray(w.add, 1, w.bad, nullptr, w.pointers)),
  };
  for (const Handle& bad : world_.BadHandles("stream")) Everywhere(bad, rows);
  Rows foreign = rows;
  for (auto& row : foreign) row.code = row.code_while_capturing = 107003;
  Everywhere({"stream of another context", world_.foreign}, foreign);
}

TEST_F(KernelMisuse, DeviceArgumentsOf4GiB) {
  void* block = nullptr;
  if (aclrtMalloc(&block, size_t{5} << 30, ACL_MEM_MALLOC_NORMAL_ONLY) != 0) GTEST_SKIP() << "no room here";
  EXPECT_ACL(107000, aclrtLaunchKernel(world_.add, 1, block, (size_t{1} << 32) + 16, world_.stream));
  EXPECT_ACL(0, aclrtFree(block));
  StillWorks();
}

// A block that is too short for the kernel's parameters is refused by every launch, with what the kernel declares.
TEST_F(KernelMisuse, ArgumentsTooShortForTheKernel) {
  for (const size_t bytes : {0, 8, 15}) {
    world_.bytes = bytes;
    Everywhere({
        ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, w.bytes, nullptr, 0)),
        ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.captured, nullptr, w.args, w.bytes, nullptr, 0)),
        ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, w.Config(2), w.args, w.bytes, nullptr, 0)),
        ROW(107000, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, w.bytes, w.Slot(0, 0), 1)),
        ROW(107000, aclrtLaunchKernel(w.add, 3, w.device_args, w.bytes, w.stream)),
        ROW(107000, aclrtLaunchKernel(w.add, 3, w.device_args, w.bytes, w.captured)),
        ROW(107000, aclrtLaunchKernelV2(w.add, 1, w.device_args, w.bytes, nullptr, w.stream)),
    });
  }
  EXPECT_EQ(107000, aclrtLaunchKernelWithHostArgs(world_.add, 1, world_.stream, nullptr, world_.args, 12, nullptr, 0));
  const char* const message = aclGetRecentErrMsg();
  const std::string text = message != nullptr ? message : "";
  EXPECT_NE(text.find("kernel add has 2 parameters of 8 and 8 bytes, in slots of eight bytes 16 bytes in all"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("passes 12 bytes"), std::string::npos) << text;
  // A kernel that tells nothing takes everything.
  EXPECT_ACL(0, aclrtLaunchKernelWithHostArgs(world_.opaque, 1, world_.stream, nullptr, world_.args, 0, nullptr, 0));
  StillWorks();
}

// A list has an entry for each parameter, which takes as many slots; data behind placeholders are no parameters.
TEST_F(KernelMisuse, ListsThatAreNotTheParametersOfTheKernel) {
  World& w = world_;
  const auto launch = [&](aclrtArgsHandle list) {
    DropMessage();
    EXPECT_EQ(0, aclrtKernelArgsFinalize(list));
    return aclrtLaunchKernelWithConfig(w.add, 1, w.stream, nullptr, list, nullptr);
  };
  const auto said = [](const char* words) {
    const char* const message = aclGetRecentErrMsg();
    return message != nullptr && std::string(message).find(words) != std::string::npos;
  };
  alignas(8) char memory[8 << 10];
  alignas(8) char host[8 << 10];
  for (const bool in_memory_of_the_program : {false, true}) {
    SCOPED_TRACE(in_memory_of_the_program);
    const auto list = [&] {
      aclrtArgsHandle made = memory;
      if (in_memory_of_the_program) {
        EXPECT_EQ(0, aclrtKernelArgsInitByUserMem(w.add, made, host, sizeof host));
      } else {
        EXPECT_EQ(0, aclrtKernelArgsInit(w.add, &made));
      }
      return made;
    };
    aclrtParamHandle param = nullptr;
    void* buffer = nullptr;
    const aclrtArgsHandle one = list();
    MUST(aclrtKernelArgsAppendPlaceHolder(one, &param));
    MUST(aclrtKernelArgsGetPlaceHolderBuffer(one, param, 64, &buffer));
    EXPECT_EQ(107000, launch(one));
    EXPECT_TRUE(said("the argument list has 1"));
    const aclrtArgsHandle wide = list();
    MUST(aclrtKernelArgsAppend(wide, w.args, 16, &param));
    MUST(aclrtKernelArgsAppend(wide, w.args, 8, &param));
    EXPECT_EQ(107000, launch(wide));
    EXPECT_TRUE(said("parameter 0 of the argument list was appended with 16 bytes"));
    const aclrtArgsHandle right = list();
    MUST(aclrtKernelArgsAppend(right, &w.args[0], 8, &param));
    MUST(aclrtKernelArgsAppend(right, &w.args[1], 4, &param));  // widened with zeroes
    MUST(aclrtKernelArgsAppend(right, w.args, 16, &param));     // more than the kernel reads
    EXPECT_EQ(0, launch(right));
    MUST(aclrtSynchronizeStream(w.stream));
  }
  EXPECT_EQ(*w.cell, 2U);
  *w.cell = 0;
  StillWorks();
}

TEST_F(KernelMisuse, FilesThatAreNoBinaries) {
  Everywhere({
      ROW(107009, aclrtBinaryLoadFromFile("", nullptr, w.out.handle())),
      ROW(107009, aclrtBinaryLoadFromFile("/nowhere/at/all.o", nullptr, w.out.handle())),
      ROW(107009, aclrtBinaryLoadFromFile(std::string(100'000, 'x').c_str(), nullptr, w.out.handle())),
      ROW(107000, aclrtBinaryLoadFromFile("/", nullptr, w.out.handle())),
      ROW(107000, aclrtBinaryLoadFromFile("/dev/zero", nullptr, w.out.handle())),
      ROW(107000, aclrtBinaryLoadFromFile("/dev/null", nullptr, w.out.handle())),
      ROW(100000, aclrtBinaryLoadFromFile(kKernels.c_str(), w.NoOptions(), w.out.handle())),
      ROW(107000, aclrtBinaryLoadFromFile(kKernels.c_str(), w.Options(0), w.out.handle())),
      ROW(107000, aclrtBinaryLoadFromFile(kKernels.c_str(), w.Options(4), w.out.handle())),
      ROW(107000, aclrtBinaryLoadFromFile(kKernels.c_str(), w.Options(1, SIZE_MAX), w.out.handle())),
      ROW(100000, aclrtBinaryLoadFromData(w.image.data(), w.image.size(), w.NoOptions(), w.out.handle())),
      ROW(107000, aclrtBinaryLoadFromData(w.image.data(), w.image.size(), w.Options(99), w.out.handle())),
      ROW(107000, aclrtBinaryLoadFromData(w.image.data(), 0, nullptr, w.out.handle())),
      ROW(107000, aclrtBinaryLoadFromData(w.image.data(), 3, nullptr, w.out.handle())),
      ROW(107000, aclrtBinaryLoadFromData("plain text", 10, nullptr, w.out.handle())),
  });
  const std::string pipe = ::testing::TempDir() + "reprise_misuse_pipe_" + std::to_string(::getpid());
  std::filesystem::remove(pipe);  // of a process that had our number and was killed
  ASSERT_EQ(0, ::mkfifo(pipe.c_str(), 0600));
  const std::string text = File("text", "plain text");  // no extension: it could be a shared object
  const std::string text_so = File("text.so", "plain text");
  const std::string empty = File("empty.o", "");
  aclrtBinHandle binary = nullptr;
  for (const std::string& path : {pipe, text, text_so, empty}) {
    EXPECT_ACL(107000, aclrtBinaryLoadFromFile(path.c_str(), nullptr, &binary)) << path;
    EXPECT_EQ(binary, nullptr);
    std::filesystem::remove(path);
  }
}

// A file that a full disk or an interrupted copy has cut off is refused, or loads, or holds no kernels; it never takes
// the process down.
TEST_F(KernelMisuse, TruncatedBinaries) {
  const size_t all = world_.image.size();
  ASSERT_GT(all, 4096u);
  std::vector<size_t> lengths = {4, 5, 16, 52, 63, 64, 65, 100, 120, 500, 4095, 4096, all / 2, all - 1};
  for (int i = 1; i < 16; ++i) lengths.push_back(all * static_cast<size_t>(i) / 16);
  int refused = 0;
  for (const size_t bytes : lengths) {
    SCOPED_TRACE(bytes);
    for (const bool from_file : {true, false}) {
      const std::string part = world_.image.substr(0, bytes);
      aclrtBinHandle binary = nullptr;
      aclrtFuncHandle function = nullptr;
      DropMessage();
      const std::string path = from_file ? File("cut.so", part) : "";
      const int code = from_file ? aclrtBinaryLoadFromFile(path.c_str(), nullptr, &binary)
                                 : aclrtBinaryLoadFromData(part.data(), part.size(), nullptr, &binary);
      EXPECT_TRUE(CheckAcl(code, code, from_file ? "aclrtBinaryLoadFromFile" : "aclrtBinaryLoadFromData"));
      EXPECT_TRUE(code == 0 || code == 107000) << code;
      refused += code != 0;
      if (code == 0) {
        (void)aclrtBinaryGetFunction(binary, "add", &function);
        EXPECT_ACL(0, aclrtBinaryUnLoad(binary));
      }
      if (from_file) std::filesystem::remove(path);
    }
  }
  EXPECT_GT(refused, 8);
  StillWorks();
}

// What was captured or queued keeps the code although the binary is gone; its handles are.
TEST_F(KernelMisuse, UnloadedBinary) {
  World& world = world_;
  aclrtBinHandle binary = nullptr;
  aclrtFuncHandle function = nullptr;
  aclrtArgsHandle list = nullptr;
  MUST(aclrtBinaryLoadFromFile(kKernels.c_str(), nullptr, &binary));
  MUST(aclrtBinaryGetFunction(binary, "add", &function));
  MUST(aclrtKernelArgsInit(function, &list));
  BeginCapture(ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
  MUST(aclrtLaunchKernelWithHostArgs(function, 1, world.captured, nullptr, world.args, 16, nullptr, 0));
  Gate gate;
  gate.Block(world.stream);
  MUST(aclrtLaunchKernelWithHostArgs(function, 1, world.stream, nullptr, world.args, 16, nullptr, 0));
  EXPECT_ACL(0, aclrtBinaryUnLoad(binary));
  world.bad = function;
  RunRows({ROW(107017, aclrtLaunchKernelWithHostArgs(w.bad, 1, w.captured, nullptr, w.args, 16, nullptr, 0)),
           ROW(107017, aclrtFunctionGetBinary(w.bad, w.out.handle()))});
  world.bad = list;
  RunRows({ROW(107017, aclrtKernelArgsFinalize(w.bad))});
  EXPECT_ACL(107017, aclrtBinaryUnLoad(binary));
  gate.Open();
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world.stream, kPatience));
  EXPECT_EQ(*world.cell, 1u);
  EndCapture();
  EXPECT_EQ(*world.cell, 2u);
  *world.cell = 0;
  StillWorks();
}

// A stream whose destruction waits for its launches is no longer known by its handle, but its launches count.
TEST_F(KernelMisuse, UnloadedBinaryOfAStreamThatIsBeingDestroyed) {
  World& world = world_;
  // From data, so that nobody else has the code loaded.
  aclrtBinHandle binary = nullptr;
  aclrtFuncHandle function = nullptr;
  MUST(aclrtBinaryLoadFromData(world.image.data(), world.image.size(), nullptr, &binary));
  MUST(aclrtBinaryGetFunction(binary, "add", &function));
  aclrtContext context = nullptr;
  MUST(aclrtGetCurrentContext(&context));
  aclrtStream stream = nullptr;
  MUST(aclrtCreateStream(&stream));
  Gate gate;
  gate.Block(stream);
  MUST(aclrtLaunchKernelWithHostArgs(function, 1, stream, nullptr, world.args, 16, nullptr, 0));
  std::thread destroyer([&] {
    EXPECT_EQ(0, aclrtSetCurrentContext(context));
    EXPECT_EQ(0, aclrtDestroyStream(stream));
  });
  aclrtStreamStatus status{};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
  while (aclrtStreamQuery(stream, &status) == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_ACL(107017, aclrtStreamQuery(stream, &status));
  EXPECT_ACL(0, aclrtBinaryUnLoad(binary));
  gate.Open();
  destroyer.join();
  EXPECT_EQ(*world.cell, 1u);
  *world.cell = 0;
  StillWorks();
}

TEST_F(KernelMisuse, ThreadWithoutContext) {
  WithoutContext({
      ROW(107002, aclrtBinaryLoadFromFile(kKernels.c_str(), nullptr, w.out.handle())),
      ROW(107002, aclrtBinaryLoadFromData(w.image.data(), w.image.size(), nullptr, w.out.handle())),
      ROW(107002, aclrtLaunchKernel(w.add, 1, w.device_args, 16, w.stream)),
      ROW(107002, aclrtLaunchKernel(w.add, 1, w.device_args, 16, nullptr)),
      ROW(107002, aclrtLaunchKernelV2(w.add, 1, w.device_args, 16, nullptr, nullptr)),
      ROW(107002, aclrtLaunchKernelWithConfig(w.add, 1, nullptr, nullptr, w.ready, nullptr)),
      ROW(107002, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, nullptr, 0)),
      ROW(107002, aclrtLaunchKernelWithArgsArray(w.add, 1, nullptr, nullptr, w.pointers)),
      ROW(0, aclrtGetFunctionName(w.add, 100, w.out.As<char>())),
      ROW(507027, aclrtBinaryGetFunction(w.binary, "none", w.out.handle())),
  });
}

TEST_F(KernelMisuse, DeviceThatWasReset) {
  AfterReset({
      ROW(107017, aclrtLaunchKernelWithHostArgs(w.add, 1, w.stream, nullptr, w.args, 16, nullptr, 0)),
      ROW(107002, aclrtLaunchKernelWithHostArgs(w.add, 1, nullptr, nullptr, w.args, 16, nullptr, 0)),
      ROW(107017, aclrtLaunchKernel(w.add, 1, w.device_args, 16, w.stream)),
      ROW(107002, aclrtBinaryLoadFromFile(kKernels.c_str(), nullptr, w.out.handle())),
  });
}

TEST_F(KernelMisuse, RandomArguments) {
  World& w = world_;
  std::vector<void*> binaries, functions, lists;  // three live ones first, replaced as calls make and unload them
  std::vector<aclrtStream> streams;
  std::vector<void*> params;
  const std::vector<size_t> sizes = {0, 1, 8, 8, 8, 16, 16, SIZE_MAX, SIZE_MAX / 2, kMaxArgsBytes + 1};
  const std::vector<std::string> names = {"add", "touch", "opaque", "", "none"};
  void* place = nullptr;
  char name[64];
  int64_t number;
  size_t bytes;
  const auto binary = [&](Dice& d) { return d.Pick(binaries); };
  const auto function = [&](Dice& d) { return d.Pick(functions); };
  const auto list = [&](Dice& d) { return d.Pick(lists); };
  const auto stream = [&](Dice& d) { return d.Pick(streams); };
  const auto blocks = [&](Dice& d) { return d.Pick<uint32_t>({0, 1, 1, 2, 33}); };
  const auto keep = [&](Dice& d, std::vector<void*>& where, int code) {
    if (code == 0) where[d.Below(3)] = place;
    return code;
  };
  const auto config = [&](Dice& d) -> aclrtLaunchKernelCfg* {
    switch (d.Below(6)) {
      case 0: return w.NoAttributes();
      case 1: return w.TwoTimeouts();
      case 2: return w.Config(d.Pick<int>({-1, 0, 1, 2, 6, 9, 10}), d.Pick<size_t>({0, 1, SIZE_MAX}));
      default: return nullptr;
    }
  };
  // Host blocks long enough for the kernel; what they point to is the cell.
  std::vector<uint64_t> block(kMaxArgsBytes / 8);
  block[0] = w.args[0];
  const auto pool = [&](const char* kind) {
    std::vector<void*> handles(3, nullptr);
    for (const Handle& bad : w.BadHandles(kind)) handles.push_back(bad.handle);
    return handles;
  };
  const std::vector<void*> no_binaries = pool("kernel binary"), no_functions = pool("kernel function"),
                           no_lists = pool("argument list");
  const std::vector<RandomCall> calls = {
      {"aclrtBinaryLoadFromFile",
       [&](Dice& d) {
         const char* path = d.Pick<const char*>({kKernels.c_str(), kKernels.c_str(), nullptr, "", "/", "/dev/zero"});
         aclrtBinaryLoadOptions* options = d.Below(3) != 0 ? nullptr : w.Options(d.Pick<int>({0, 1, 2, 3, 4}));
         const int code = aclrtBinaryLoadFromFile(path, options, &place);
         if (code == 0) {
           void*& slot = binaries[d.Below(3)];
           (void)aclrtBinaryUnLoad(slot);  // it may be null or unloaded
           DropMessage();
           slot = place;
         }
         return code;
       }},
      {"aclrtBinaryLoadFromData",
       [&](Dice& d) {
         const int code = aclrtBinaryLoadFromData(d.Below(4) == 0 ? nullptr : w.image.data(), d.Pick<size_t>({0, 3}),
                                                  nullptr, &place);
         return code;
       }},
      {"aclrtBinaryUnLoad",
       [&](Dice& d) {
         // Not the world's own, which stands behind these.
         return aclrtBinaryUnLoad(d.Below(4) == 0 ? binaries[d.Below(no_binaries.size())] : nullptr);
       }},
      {"aclrtBinaryGetFunction",
       [&](Dice& d) { return keep(d, functions, aclrtBinaryGetFunction(binary(d), d.Pick(names).c_str(), &place)); }},
      {"aclrtBinaryGetFunctionByEntry",
       [&](Dice& d) {
         return keep(d, functions, aclrtBinaryGetFunctionByEntry(binary(d), d.Pick<uint64_t>({0, 1, 3, 4}), &place));
       }},
      {"aclrtBinaryGetDevAddress", [&](Dice& d) { return aclrtBinaryGetDevAddress(binary(d), &place, &bytes); }},
      {"aclrtBinaryGetGlobal", [&](Dice& d) { return aclrtBinaryGetGlobal(binary(d), "x", &place, &bytes); }},
      {"aclrtFunctionGetBinary", [&](Dice& d) { return aclrtFunctionGetBinary(function(d), &place); }},
      {"aclrtGetFunctionName",
       [&](Dice& d) {
         return aclrtGetFunctionName(function(d), d.Pick<uint32_t>({0, 1, 4, 64}), name);
       }},
      {"aclrtGetFunctionAddr", [&](Dice& d) { return aclrtGetFunctionAddr(function(d), &place, &place); }},
      {"aclrtGetFunctionAttribute",
       [&](Dice& d) {
         return aclrtGetFunctionAttribute(function(d), d.PickEnum<aclrtFuncAttribute>({-1, 0, 1, 2, 3, 4}), &number);
       }},
      {"aclrtKernelArgsInit", [&](Dice& d) { return keep(d, lists, aclrtKernelArgsInit(function(d), &place)); }},
      {"aclrtKernelArgsAppend",
       [&](Dice& d) {
         return aclrtKernelArgsAppend(list(d), d.Below(8) == 0 ? nullptr : block.data(), d.Pick(sizes), &place);
       }},
      {"aclrtKernelArgsAppendPlaceHolder", [&](Dice& d) { return aclrtKernelArgsAppendPlaceHolder(list(d), &place); }},
      {"aclrtKernelArgsGetPlaceHolderBuffer",
       [&](Dice& d) {
         const size_t size = d.Pick(sizes);
         const int code = aclrtKernelArgsGetPlaceHolderBuffer(list(d), d.Pick(params), size, &place);
         if (code == 0) std::memset(place, 1, size);
         return code;
       }},
      {"aclrtKernelArgsParaUpdate",
       [&](Dice& d) {
         return aclrtKernelArgsParaUpdate(list(d), d.Pick(params), w.args, d.Pick<size_t>({0, 1, 8}));
       }},
      {"aclrtKernelArgsFinalize", [&](Dice& d) { return aclrtKernelArgsFinalize(list(d)); }},
      {"aclrtLaunchKernel",
       [&](Dice& d) {
         const void* args = d.Pick<const void*>({w.device_args, w.device_args, nullptr, w.args, Address(8)});
         return aclrtLaunchKernel(function(d), blocks(d), args, d.Pick(sizes), stream(d));
       }},
      {"aclrtLaunchKernelV2",
       [&](Dice& d) {
         const void* args = d.Pick<const void*>({w.device_args, w.device_args, nullptr, w.args, Address(8)});
         return aclrtLaunchKernelV2(function(d), blocks(d), args, d.Pick(sizes), config(d), stream(d));
       }},
      {"aclrtLaunchKernelWithConfig",
       [&](Dice& d) {
         // Lists hold arbitrary values, which only `opaque` ignores.
         const bool valid = d.Below(2) == 0;
         void* const func = valid ? w.add : w.opaque;
         return aclrtLaunchKernelWithConfig(func, blocks(d), stream(d), config(d), valid ? w.ready : list(d),
                                            d.Below(8) == 0 ? &w.local : nullptr);
       }},
      {"aclrtLaunchKernelWithHostArgs",
       [&](Dice& d) {
         const bool with_slots = d.Below(3) == 0;  // the opaque kernel: the cell's address would be overwritten
         aclrtPlaceHolderInfo* slots = with_slots ? w.Slot(d.Pick<uint32_t>({0, 8, 9, UINT32_MAX, UINT32_MAX - 7}),
                                                           d.Pick<uint32_t>({0, 8, UINT32_MAX}))
                                                  : nullptr;
         return aclrtLaunchKernelWithHostArgs(with_slots ? w.opaque : function(d), blocks(d), stream(d), config(d),
                                              d.Below(8) == 0 ? nullptr : block.data(), d.Pick(sizes), slots,
                                              with_slots ? d.Pick<size_t>({0, 1, 1, 129, SIZE_MAX}) : d.Below(8) / 7);
       }},
      {"aclrtLaunchKernelWithArgsArray",
       [&](Dice& d) {
         void* pointers[2] = {&w.args[0], &w.args[1]};
         if (d.Below(6) == 0) pointers[d.Below(2)] = nullptr;
         return aclrtLaunchKernelWithArgsArray(function(d), blocks(d), stream(d), config(d),
                                               d.Below(6) == 0 ? nullptr : pointers);
       }},
  };
  params = {nullptr, Address(1), Address(2), Address(3), Address(200), w.add, &w.local, Address(UINTPTR_MAX)};
  for (const uint64_t seed : Seeds(Loops(150, 12))) {
    binaries = no_binaries;
    functions = no_functions;
    lists = no_lists;
    // Valid ones are as frequent as the others together.
    for (size_t i = no_binaries.size(); i > 0; --i) {
      binaries.push_back(w.binary);
      functions.push_back(i % 3 == 0 ? w.opaque : (i % 3 == 1 ? w.add : w.touch));
      lists.push_back(w.open);
    }
    const aclrtStream work = NewStream();
    const aclrtStream captured = NewStream();
    streams = {work, work, work, work, captured, captured, nullptr, w.foreign, &w.local, Address(1), w.event};
    MUST(aclmdlRICaptureBegin(captured,
                              seed % 2 == 0 ? ACL_MODEL_RI_CAPTURE_MODE_GLOBAL : ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    RunRandomCalls(seed, 300, calls);
    aclmdlRI model = nullptr;
    EXPECT_ACL(0, aclmdlRICaptureEnd(captured, &model));
    EXPECT_ACL(0, aclmdlRIDestroy(model));
    for (const aclrtStream stream_of_work : {work, aclrtStream{nullptr}}) {
      EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(stream_of_work, kPatience));
    }
    EXPECT_ACL(0, aclrtDestroyStream(work));
    EXPECT_ACL(0, aclrtDestroyStream(captured));
    for (size_t i = 0; i < 3; ++i) (void)aclrtBinaryUnLoad(binaries[i]);
    *w.cell = 0;
    StillWorks();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace reprise::testing
