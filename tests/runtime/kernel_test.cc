// SPDX-License-Identifier: Apache-2.0
//
// Kernel binaries in memory, argument lists in memory of the caller, AI CPU names, parameters, symbols.
#include <experiment/runtime/runtime/rt.h>
#include <reprise/kernel.h>

#include "fixture.h"

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;

REPRISE_KERNEL(store, REPRISE_KERNEL_VECTOR, (uint64_t * cell, uint8_t small, const uint64_t* table, uint32_t count)) {
  if (ctx.block_index != 0) return;
  uint64_t sum = small;
  for (uint32_t i = 0; i < count; ++i) sum += table[i];
  *cell = sum;
}
REPRISE_KERNEL(host_work, REPRISE_KERNEL_AICPU, (uint64_t * cell)) {
  if (ctx.block_index == 0) *cell += 1000;
}
REPRISE_KERNEL(host_more, REPRISE_KERNEL_AICPU, (uint64_t * cell)) {
  if (ctx.block_index == 0) *cell += 1;
}
REPRISE_KERNEL(bare, REPRISE_KERNEL_MIX, ()) {}
constexpr RepriseKernelDesc silent_desc = {"silent",
                                           0,
                                           [](const RepriseKernelContext*, const void*, size_t) -> int32_t { return 0; },
                                           REPRISE_KERNEL_AICORE,
                                           0,
                                           0,
                                           nullptr,
                                           0};

const RepriseKernelDesc kAll[] = {store_desc, host_work_desc, host_more_desc, bare_desc, silent_desc};
const RepriseKernelTable kAllTable = {REPRISE_KERNEL_ABI_VERSION, 5, kAll};
const RepriseKernelTable kCoreTable = {REPRISE_KERNEL_ABI_VERSION, 1, kAll};
constexpr char kKey[] = "kernel_test";
constexpr char kCoreKey[] = "kernel_test.core";

class Kernel : public Runtime {
 protected:
  static void SetUpTestSuite() {
    static const int32_t all = repriseRegisterKernels(kKey, &kAllTable);  // once for all suites
    static const int32_t cores = repriseRegisterKernels(kCoreKey, &kCoreTable);
    EXPECT_EQ(0, all);
    EXPECT_EQ(0, cores);
  }
  void SetUp() override {
    Runtime::SetUp();
    MUST(aclrtBinaryLoadFromData(kKey, sizeof kKey, nullptr, &binary_));
    MUST(aclrtBinaryGetFunction(binary_, "store", &store_));
    cell_ = static_cast<uint64_t*>(NewMemory(8));
    stream_ = NewStream();
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtDestroyStream(stream_));
    EXPECT_EQ(0, aclrtFree(cell_));
    if (binary_ != nullptr) {
      EXPECT_EQ(0, aclrtBinaryUnLoad(binary_));
    }
    Runtime::TearDown();
  }
  aclrtFuncHandle Function(const char* name) {
    aclrtFuncHandle function = nullptr;
    EXPECT_EQ(0, aclrtBinaryGetFunction(binary_, name, &function));
    return function;
  }

  aclrtBinHandle binary_ = nullptr;
  aclrtFuncHandle store_ = nullptr;
  aclrtStream stream_ = nullptr;
  uint64_t* cell_ = nullptr;
};

// ---- Binaries in memory ----

TEST_F(Kernel, BinariesInMemoryAreReadWhenTheyAreLoaded) {
  char data[sizeof kKey] = "another key";
  const aclrtBinary wrapped = aclrtCreateBinary(data, sizeof data);
  ASSERT_NE(wrapped, nullptr);
  aclrtBinHandle loaded = nullptr;
  EXPECT_ACL(107000, aclrtBinaryLoad(wrapped, &loaded));
  std::memcpy(data, kKey, sizeof kKey);
  EXPECT_ACL(0, aclrtBinaryLoad(wrapped, &loaded));
  EXPECT_ACL(0, aclrtDestroyBinary(wrapped));
  aclrtFuncHandle function = nullptr;  // what was loaded outlives the wrapper
  EXPECT_ACL(0, aclrtBinaryGetFunction(loaded, "store", &function));
  EXPECT_ACL(0, aclrtBinaryUnLoad(loaded));
}

TEST_F(Kernel, BinaryArgumentsAreChecked) {
  DropMessage();
  EXPECT_EQ(aclrtCreateBinary(nullptr, 8), nullptr);
  EXPECT_THAT(aclGetRecentErrMsg(), ::testing::AllOf(HasSubstr("aclrtCreateBinary"), HasSubstr("100000")));
  EXPECT_EQ(aclrtCreateBinary(kKey, 0), nullptr);
  EXPECT_THAT(aclGetRecentErrMsg(), ::testing::AllOf(HasSubstr("dataLen"), HasSubstr("100000")));
  aclrtBinHandle loaded = cell_;
  EXPECT_ACL(100000, aclrtDestroyBinary(nullptr));
  EXPECT_ACL(100000, aclrtBinaryLoad(nullptr, &loaded));
  const aclrtBinary wrapped = aclrtCreateBinary(kKey, sizeof kKey);
  EXPECT_ACL(100000, aclrtBinaryLoad(wrapped, nullptr));
  EXPECT_ACL(107017, aclrtBinaryLoad(binary_, &loaded));  // loaded, not wrapped
  EXPECT_ACL(107017, aclrtBinaryUnLoad(wrapped));
  EXPECT_ACL(107017, aclrtDestroyBinary(cell_));
  EXPECT_ACL(0, aclrtDestroyBinary(wrapped));
  EXPECT_ACL(107017, aclrtDestroyBinary(wrapped));
  EXPECT_ACL(107017, aclrtBinaryLoad(wrapped, &loaded));
  EXPECT_EQ(loaded, cell_);
  std::thread([&] {
    const aclrtBinary here = aclrtCreateBinary(kKey, sizeof kKey);
    EXPECT_ACL(107002, aclrtBinaryLoad(here, &loaded));
    EXPECT_ACL(0, aclrtDestroyBinary(here));
  }).join();
}

// ---- Kernels behind addresses of the program's choice ----

TEST_F(Kernel, AnAddressOfTheProgramStandsForAKernel) {
  static const char stub = 0, other = 0;
  const rtDevBinary_t image = {RT_DEV_BINARY_MAGIC_ELF_AIVEC, 0, kKey, sizeof kKey};
  void* binary = nullptr;
  EXPECT_ACL(0, rtDevBinaryRegister(&image, &binary));
  EXPECT_ACL(507027, rtKernelLaunch(&stub, 1, nullptr, 0, nullptr, stream_));
  EXPECT_ACL(0, rtFunctionRegister(binary, &stub, "a name of its own", "store", 0));
  EXPECT_ACL(0, rtFunctionRegister(binary, &stub, "store", nullptr, 0));
  EXPECT_ACL(507028, rtFunctionRegister(binary, &stub, "bare", nullptr, 0));
  EXPECT_ACL(507027, rtFunctionRegister(binary, &other, "unknown", nullptr, 0));
  const uint64_t table[] = {40, 0};
  void* device_table = NewMemory(sizeof table);
  MUST(aclrtMemcpy(device_table, sizeof table, table, sizeof table, ACL_MEMCPY_HOST_TO_DEVICE));
  struct {
    uint64_t* cell;
    uint64_t small;
    const void* table;
    uint64_t count;
  } args{cell_, 2, device_table, 1};
  EXPECT_ACL(0, rtKernelLaunch(&stub, 1, &args, sizeof args, nullptr, stream_));
  args.small = 3;  // it was copied
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*cell_, 42U);

  EXPECT_ACL(107000, rtKernelLaunch(&stub, 0, &args, sizeof args, nullptr, stream_));
  EXPECT_ACL(100000, rtKernelLaunch(nullptr, 1, &args, sizeof args, nullptr, stream_));
  EXPECT_ACL(100000, rtKernelLaunch(&stub, 1, nullptr, sizeof args, nullptr, stream_));
  EXPECT_ACL(207000, rtKernelLaunch(&stub, 1, &args, sizeof args, reinterpret_cast<rtSmDesc_t*>(&args), stream_));
  EXPECT_ACL(107017, rtKernelLaunch(&stub, 1, &args, sizeof args, nullptr, &args));
  EXPECT_ACL(107000, rtFunctionRegister(binary, &other, "store", nullptr, 1));
  EXPECT_ACL(100000, rtFunctionRegister(binary, nullptr, "store", nullptr, 0));
  EXPECT_ACL(100000, rtFunctionRegister(binary, &other, nullptr, nullptr, 0));
  EXPECT_ACL(107017, rtFunctionRegister(&args, &other, "store", nullptr, 0));
  const rtDevBinary_t empty = {RT_DEV_BINARY_MAGIC_ELF, 0, kKey, 0}, nothing = {RT_DEV_BINARY_MAGIC_ELF, 0, nullptr, 8};
  void* none = nullptr;
  EXPECT_ACL(107000, rtDevBinaryRegister(&empty, &none));
  EXPECT_ACL(100000, rtDevBinaryRegister(&nothing, &none));
  EXPECT_ACL(100000, rtDevBinaryRegister(nullptr, &none));
  EXPECT_ACL(100000, rtDevBinaryRegister(&image, nullptr));
  EXPECT_EQ(none, nullptr);

  MUST(aclrtBinaryUnLoad(binary));
  EXPECT_ACL(507027, rtKernelLaunch(&stub, 1, &args, sizeof args, nullptr, stream_));
  EXPECT_ACL(0, rtFunctionRegister(binary_, &stub, "bare", nullptr, 0));  // the address is free again
  EXPECT_ACL(0, rtKernelLaunch(&stub, 2, nullptr, 0, nullptr, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  MUST(aclrtFree(device_table));
}

TEST_F(Kernel, CoresMeetInMemoryOfTheDevice) {
  uint64_t address = 0;
  uint32_t bytes = 0;
  EXPECT_ACL(0, rtGetC2cCtrlAddr(&address, &bytes));
  void* same = nullptr;
  MUST(aclrtGetHardwareSyncAddr(&same));
  EXPECT_EQ(address, reinterpret_cast<uintptr_t>(same));
  EXPECT_GE(bytes, 4096U);
  std::memset(same, 0, bytes);
  EXPECT_ACL(100000, rtGetC2cCtrlAddr(nullptr, &bytes));
  EXPECT_ACL(100000, rtGetC2cCtrlAddr(&address, nullptr));
  std::thread([&] { EXPECT_ACL(107002, rtGetC2cCtrlAddr(&address, &bytes)); }).join();
}

// ---- Argument lists in memory of the caller ----

class UserMemory : public Kernel {
 protected:
  void SetUp() override {
    Kernel::SetUp();
    size_t bytes = 0;
    MUST(aclrtKernelArgsGetHandleMemSize(store_, &bytes));
    list_memory_.resize((bytes + 15) / 16);
    MUST(aclrtKernelArgsGetMemSize(store_, 200, &block_bytes_));
    ASSERT_GE(block_bytes_, 200u);
    block_.resize((block_bytes_ + 15) / 16);
  }
  struct alignas(16) Unit {
    unsigned char bytes[16];
  };
  aclrtArgsHandle list() { return list_memory_.data(); }
  void* block() { return block_.data(); }
  // The parameters of `store`; the table is a placeholder.
  void Fill(uint8_t small, std::vector<uint64_t> table) {
    aclrtParamHandle param = nullptr;
    uint64_t* cell = cell_;
    const auto count = static_cast<uint32_t>(table.size());
    MUST(aclrtKernelArgsInitByUserMem(store_, list(), block(), block_bytes_));
    MUST(aclrtKernelArgsAppend(list(), &cell, sizeof cell, &param));
    MUST(aclrtKernelArgsAppend(list(), &small, 1, &small_));
    MUST(aclrtKernelArgsAppendPlaceHolder(list(), &table_));
    void* buffer = nullptr;
    MUST(aclrtKernelArgsGetPlaceHolderBuffer(list(), table_, table.size() * 8, &buffer));
    std::memcpy(buffer, table.data(), table.size() * 8);
    uint32_t value = count;
    MUST(aclrtKernelArgsAppend(list(), &value, sizeof value, &param));
    MUST(aclrtKernelArgsFinalize(list()));
  }
  aclError Launch() { return aclrtLaunchKernelWithConfig(store_, 1, stream_, nullptr, list(), nullptr); }

  std::vector<Unit> list_memory_;
  std::vector<Unit> block_;
  size_t block_bytes_ = 0;
  aclrtParamHandle small_ = nullptr;
  aclrtParamHandle table_ = nullptr;
};

TEST_F(UserMemory, ListsAreUsedAsThoseOfTheRuntime) {
  Fill(5, {10, 20, 30});
  Gate gate;
  gate.Block(stream_);
  EXPECT_ACL(0, Launch());
  // The launch has copied everything.
  std::memset(block_.data(), 0xEE, block_.size() * sizeof(Unit));
  gate.Open();
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*cell_, 65u);
}

TEST_F(UserMemory, ParametersAreUpdatedAndTheMemoryIsUsedAgain) {
  Fill(5, {10});
  uint8_t small = 7;
  EXPECT_ACL(0, aclrtKernelArgsParaUpdate(list(), small_, &small, 1));
  EXPECT_ACL(107000, Launch());  // not finalised since
  EXPECT_ACL(0, aclrtKernelArgsFinalize(list()));
  EXPECT_ACL(0, Launch());
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*cell_, 17u);
  Fill(1, {2, 3});
  EXPECT_ACL(0, Launch());
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*cell_, 6u);
}

TEST_F(UserMemory, CapturedLaunchesKeepTheirArguments) {
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  Fill(5, {10, 20});
  EXPECT_ACL(0, Launch());
  Fill(1, {1});
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  for (int run = 0; run < 2; ++run) {
    *cell_ = 0;
    MUST(aclmdlRIExecuteAsync(model, stream_));
    MUST(aclrtSynchronizeStream(stream_));
    EXPECT_EQ(*cell_, 35u);
  }
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST_F(UserMemory, TheBlockIsLargeEnoughWhateverItHolds) {
  // As many parameters as there can be, of one byte each.
  MUST(aclrtKernelArgsGetMemSize(store_, 128, &block_bytes_));
  block_.assign((block_bytes_ + 15) / 16, {});
  MUST(aclrtKernelArgsInitByUserMem(store_, list(), block(), block_bytes_));
  aclrtParamHandle param = nullptr;
  char value = 1;
  for (int i = 0; i < 128; ++i) ASSERT_EQ(0, aclrtKernelArgsAppend(list(), &value, 1, &param)) << i;
  EXPECT_ACL(107000, aclrtKernelArgsAppend(list(), &value, 1, &param));
  // As many placeholders, at an odd address.
  MUST(aclrtKernelArgsInitByUserMem(store_, list(), static_cast<char*>(block()) + 1, block_bytes_ - 1));
  void* buffer = nullptr;
  for (int i = 0; i < 128; ++i) {
    ASSERT_EQ(0, aclrtKernelArgsAppendPlaceHolder(list(), &param)) << i;
    ASSERT_EQ(0, aclrtKernelArgsGetPlaceHolderBuffer(list(), param, 1, &buffer)) << i;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer) % 8, 0u);
    *static_cast<char*>(buffer) = 1;
  }
}

TEST_F(UserMemory, TheBlockEndsWhereItEnds) {
  MUST(aclrtKernelArgsInitByUserMem(store_, list(), block(), 40));
  std::memset(static_cast<char*>(block()) + 40, 0x5A, block_bytes_ - 40);
  uint64_t value = 1;
  char large[64] = {};
  aclrtParamHandle param = nullptr;
  void* buffer = nullptr;
  EXPECT_ACL(107000, aclrtKernelArgsAppend(list(), large, 41, &param));
  EXPECT_ACL(0, aclrtKernelArgsAppend(list(), &value, 8, &param));
  EXPECT_ACL(107000, aclrtKernelArgsGetPlaceHolderBuffer(list(), param, 8, &buffer));  // no placeholder
  EXPECT_ACL(0, aclrtKernelArgsAppendPlaceHolder(list(), &param));
  EXPECT_ACL(107000, aclrtKernelArgsParaUpdate(list(), param, &value, 8));
  EXPECT_ACL(107000, aclrtKernelArgsGetPlaceHolderBuffer(list(), param, 25, &buffer));
  EXPECT_ACL(107000, aclrtKernelArgsGetPlaceHolderBuffer(list(), param, INT64_MAX, &buffer));
  EXPECT_ACL(0, aclrtKernelArgsGetPlaceHolderBuffer(list(), param, 24, &buffer));
  std::memset(buffer, 1, 24);
  EXPECT_ACL(107000, aclrtKernelArgsAppend(list(), &value, 1, &param));
  for (size_t i = 40; i < block_bytes_; ++i) ASSERT_EQ(static_cast<unsigned char*>(block())[i], 0x5A) << i;
}

TEST_F(UserMemory, ForeignAddressesAreNoLists) {
  Fill(1, {1});
  std::vector<Unit> copy = list_memory_;
  char zeroes[64] = {};
  uint64_t value = 1;
  aclrtParamHandle param = nullptr;
  for (void* bad : {static_cast<void*>(copy.data()), static_cast<void*>(zeroes), static_cast<void*>(zeroes + 1),
                    reinterpret_cast<void*>(16), static_cast<void*>(stream_), static_cast<void*>(binary_)}) {
    EXPECT_ACL(107017, aclrtKernelArgsAppend(bad, &value, 8, &param));
    EXPECT_ACL(107017, aclrtKernelArgsFinalize(bad));
    EXPECT_ACL(107017, aclrtLaunchKernelWithConfig(store_, 1, stream_, nullptr, bad, nullptr));
  }
  EXPECT_ACL(107017, aclrtKernelArgsParaUpdate(list(), reinterpret_cast<aclrtParamHandle>(9), &value, 8));
  EXPECT_ACL(107000, aclrtLaunchKernelWithConfig(Function("bare"), 1, stream_, nullptr, list(), nullptr));
}

TEST_F(UserMemory, ListsOfUnloadedKernelsAreRefused) {
  Fill(1, {1});
  MUST(aclrtBinaryUnLoad(binary_));
  binary_ = nullptr;
  uint64_t value = 1;
  aclrtParamHandle param = nullptr;
  EXPECT_ACL(107017, aclrtKernelArgsAppend(list(), &value, 8, &param));
  EXPECT_ACL(107017, aclrtKernelArgsParaUpdate(list(), small_, &value, 1));
  EXPECT_ACL(107017, aclrtKernelArgsFinalize(list()));
  EXPECT_ACL(107017, Launch());
  EXPECT_ACL(107017, aclrtKernelArgsInitByUserMem(store_, list(), block(), block_bytes_));
}

TEST_F(UserMemory, ArgumentsAreChecked) {
  size_t bytes = 5;
  EXPECT_ACL(100000, aclrtKernelArgsGetHandleMemSize(nullptr, &bytes));
  EXPECT_ACL(100000, aclrtKernelArgsGetHandleMemSize(store_, nullptr));
  EXPECT_ACL(107017, aclrtKernelArgsGetHandleMemSize(stream_, &bytes));
  EXPECT_ACL(100000, aclrtKernelArgsGetMemSize(nullptr, 8, &bytes));
  EXPECT_ACL(100000, aclrtKernelArgsGetMemSize(store_, 8, nullptr));
  EXPECT_ACL(107017, aclrtKernelArgsGetMemSize(stream_, 8, &bytes));
  EXPECT_ACL(107000, aclrtKernelArgsGetMemSize(store_, (64 << 10) + 1, &bytes));
  EXPECT_ACL(107000, aclrtKernelArgsGetMemSize(store_, SIZE_MAX, &bytes));
  EXPECT_EQ(bytes, 5u);
  EXPECT_ACL(0, aclrtKernelArgsGetMemSize(store_, 0, &bytes));
  EXPECT_ACL(100000, aclrtKernelArgsInitByUserMem(nullptr, list(), block(), 64));
  EXPECT_ACL(100000, aclrtKernelArgsInitByUserMem(store_, nullptr, block(), 64));
  EXPECT_ACL(100000, aclrtKernelArgsInitByUserMem(store_, list(), nullptr, 64));
  EXPECT_ACL(100000, aclrtKernelArgsInitByUserMem(store_, list(), block(), 0));
  EXPECT_ACL(107017, aclrtKernelArgsInitByUserMem(stream_, list(), block(), 64));
  EXPECT_ACL(107000, aclrtKernelArgsInitByUserMem(store_, static_cast<char*>(list()) + 1, block(), 64));
  EXPECT_ACL(107000, aclrtKernelArgsInitByUserMem(store_, list(), list(), 64));
  EXPECT_ACL(107000, aclrtKernelArgsInitByUserMem(store_, reinterpret_cast<void*>(16), block(), 64));
  EXPECT_ACL(107000, aclrtKernelArgsInitByUserMem(store_, list(), reinterpret_cast<void*>(16), 64));
  EXPECT_ACL(107000, aclrtKernelArgsInitByUserMem(store_, stream_, block(), 64));
  EXPECT_ACL(107017, aclrtKernelArgsFinalize(list()));  // none of this has made a list
}

// ---- AI CPU kernels ----

TEST_F(Kernel, AiCpuKernelsGetFurtherNames) {
  aclrtFuncHandle function = nullptr;
  EXPECT_ACL(0, aclrtRegisterCpuFunc(binary_, "host_work", "Work", &function));
  aclrtFuncHandle again = nullptr;
  EXPECT_ACL(0, aclrtRegisterCpuFunc(binary_, "host_work", "Work", &again));
  EXPECT_EQ(function, again);
  EXPECT_EQ(Function("Work"), function);
  EXPECT_NE(Function("host_work"), function);
  char name[16] = {};
  EXPECT_ACL(0, aclrtGetFunctionName(function, sizeof name, name));
  EXPECT_STREQ(name, "Work");
  uint64_t* args[] = {cell_};
  EXPECT_ACL(0, aclrtLaunchKernelWithHostArgs(function, 1, stream_, nullptr, args, sizeof args, nullptr, 0));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*cell_, 1000u);
  MUST(aclrtBinaryUnLoad(binary_));
  EXPECT_ACL(107017, aclrtLaunchKernelWithHostArgs(function, 1, stream_, nullptr, args, sizeof args, nullptr, 0));
  binary_ = nullptr;
}

TEST_F(Kernel, NamesAreRegisteredByManyThreads) {
  std::vector<std::thread> threads;
  std::array<aclrtFuncHandle, 4> found{};
  for (size_t t = 0; t < found.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string own = "name " + std::to_string(t) + "." + std::to_string(i);
        aclrtFuncHandle function = nullptr;
        EXPECT_EQ(0, aclrtRegisterCpuFunc(binary_, "host_more", own.c_str(), &function));
        EXPECT_EQ(0, aclrtRegisterCpuFunc(binary_, "host_more", "shared", &found[t]));
        aclrtFuncHandle looked_up = nullptr;
        EXPECT_EQ(0, aclrtBinaryGetFunction(binary_, own.c_str(), &looked_up));
        EXPECT_EQ(looked_up, function);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (aclrtFuncHandle function : found) EXPECT_EQ(function, found[0]);
}

TEST_F(Kernel, CpuRegistrationsAreChecked) {
  aclrtFuncHandle function = cell_;
  EXPECT_ACL(100000, aclrtRegisterCpuFunc(nullptr, "host_work", "Work", &function));
  EXPECT_ACL(100000, aclrtRegisterCpuFunc(binary_, nullptr, "Work", &function));
  EXPECT_ACL(100000, aclrtRegisterCpuFunc(binary_, "host_work", nullptr, &function));
  EXPECT_ACL(100000, aclrtRegisterCpuFunc(binary_, "host_work", "Work", nullptr));
  EXPECT_ACL(107017, aclrtRegisterCpuFunc(stream_, "host_work", "Work", &function));
  EXPECT_ACL(107000, aclrtRegisterCpuFunc(binary_, "host_work", "", &function));
  EXPECT_ACL(107000, aclrtRegisterCpuFunc(binary_, "store", "Work", &function));
  EXPECT_ACL(507027, aclrtRegisterCpuFunc(binary_, "nothing", "Work", &function));
  EXPECT_ACL(507028, aclrtRegisterCpuFunc(binary_, "host_work", "store", &function));
  EXPECT_ACL(507028, aclrtRegisterCpuFunc(binary_, "host_work", "host_more", &function));
  aclrtBinHandle cores = nullptr;
  MUST(aclrtBinaryLoadFromData(kCoreKey, sizeof kCoreKey, nullptr, &cores));
  EXPECT_ACL(107000, aclrtRegisterCpuFunc(cores, "store", "Work", &function));
  EXPECT_EQ(0, aclrtBinaryUnLoad(cores));
  EXPECT_EQ(function, cell_);
}

// ---- What a kernel is ----

TEST_F(Kernel, ParametersAreTold) {
  size_t count = 9;
  EXPECT_ACL(0, aclrtFunctionGetParamCount(store_, &count));
  ASSERT_EQ(count, 4u);
  const size_t sizes[] = {8, 1, 8, 4};
  for (size_t i = 0; i < 4; ++i) {
    size_t offset = 99, size = 99;
    EXPECT_ACL(0, aclrtFunctionGetParamInfo(store_, i, &offset, &size));
    EXPECT_EQ(offset, 8 * i);
    EXPECT_EQ(size, sizes[i]);
    size_t alone = 99;
    EXPECT_ACL(0, aclrtFunctionGetParamInfo(store_, i, &alone, nullptr));
    EXPECT_EQ(alone, offset);
    EXPECT_ACL(0, aclrtFunctionGetParamInfo(store_, i, nullptr, &alone));
    EXPECT_EQ(alone, size);
  }
  EXPECT_ACL(0, aclrtFunctionGetParamCount(Function("bare"), &count));
  EXPECT_EQ(count, 0u);
}

TEST_F(Kernel, ParameterQuestionsAreChecked) {
  size_t out = 9;
  EXPECT_ACL(100000, aclrtFunctionGetParamCount(nullptr, &out));
  EXPECT_ACL(100000, aclrtFunctionGetParamCount(store_, nullptr));
  EXPECT_ACL(107017, aclrtFunctionGetParamCount(stream_, &out));
  EXPECT_ACL(207000, aclrtFunctionGetParamCount(Function("silent"), &out));
  EXPECT_ACL(100000, aclrtFunctionGetParamInfo(nullptr, 0, &out, &out));
  EXPECT_ACL(107000, aclrtFunctionGetParamInfo(store_, 0, nullptr, nullptr));
  EXPECT_ACL(107000, aclrtFunctionGetParamInfo(store_, 4, &out, &out));
  EXPECT_ACL(107000, aclrtFunctionGetParamInfo(store_, SIZE_MAX, &out, &out));
  EXPECT_ACL(107000, aclrtFunctionGetParamInfo(Function("bare"), 0, &out, &out));
  EXPECT_ACL(207000, aclrtFunctionGetParamInfo(Function("silent"), 0, &out, &out));
  EXPECT_ACL(107017, aclrtFunctionGetParamInfo(stream_, 0, &out, &out));
  EXPECT_ACL(100000, aclrtFunctionGetAvailDynUbufPerBlock(nullptr, 0, &out));
  EXPECT_ACL(100000, aclrtFunctionGetAvailDynUbufPerBlock(store_, 0, nullptr));
  EXPECT_ACL(100000, aclrtFunctionGetAvailDynUbufPerBlock(store_, 1, &out));
  EXPECT_ACL(107017, aclrtFunctionGetAvailDynUbufPerBlock(stream_, 0, &out));
  EXPECT_EQ(out, 9u);
  EXPECT_ACL(0, aclrtFunctionGetAvailDynUbufPerBlock(store_, 0, &out));
  EXPECT_EQ(out, 0u);
}

TEST_F(Kernel, CoresMeetAtOneAddress) {
  void* address = nullptr;
  EXPECT_ACL(0, aclrtGetHardwareSyncAddr(&address));
  ASSERT_NE(address, nullptr);
  std::memset(address, 0, 4096);  // it can be written
  void* again = nullptr;
  EXPECT_ACL(0, aclrtGetHardwareSyncAddr(&again));
  EXPECT_EQ(address, again);
  EXPECT_ACL(107000, aclrtGetHardwareSyncAddr(nullptr));
  std::thread([&] { EXPECT_ACL(107002, aclrtGetHardwareSyncAddr(&again)); }).join();
}

// ---- Symbols ----

using Symbol = Kernel;

TEST_F(Symbol, NoneIsKnown) {
  static int shadow = 0;
  aclrtFuncHandle function = cell_;
  void* address = cell_;
  size_t size = 9;
  EXPECT_ACL(107042, aclrtGetFuncBySymbol(&shadow, &function));
  EXPECT_ACL(100000, aclrtGetFuncBySymbol(nullptr, &function));
  EXPECT_ACL(100000, aclrtGetFuncBySymbol(&shadow, nullptr));
  EXPECT_ACL(107042, aclrtGetSymbolAddress(&shadow, &address));
  EXPECT_ACL(100000, aclrtGetSymbolAddress(nullptr, &address));
  EXPECT_ACL(100000, aclrtGetSymbolAddress(&shadow, nullptr));
  EXPECT_ACL(107042, aclrtGetSymbolSize(&shadow, &size));
  EXPECT_ACL(100000, aclrtGetSymbolSize(nullptr, &size));
  EXPECT_ACL(100000, aclrtGetSymbolSize(&shadow, nullptr));
  EXPECT_EQ(function, cell_);
  EXPECT_EQ(address, cell_);
  EXPECT_EQ(size, 9u);
}

TEST_F(Symbol, CopiesAreCheckedFirst) {
  static int shadow = 0;
  int local = 0;
  constexpr auto kTo = ACL_MEMCPY_HOST_TO_DEVICE;
  constexpr auto kFrom = ACL_MEMCPY_DEVICE_TO_HOST;
  constexpr auto kInner = ACL_MEMCPY_INNER_DEVICE_TO_DEVICE;
  EXPECT_ACL(0, aclrtMemcpyToSymbol(nullptr, nullptr, 0, 0, kInner));
  EXPECT_ACL(107000, aclrtMemcpyToSymbol(nullptr, &local, 4, 0, kTo));
  EXPECT_ACL(107000, aclrtMemcpyToSymbol(&shadow, nullptr, 4, 0, kTo));
  EXPECT_ACL(100000, aclrtMemcpyToSymbol(&shadow, &local, 4, 0, kInner));
  EXPECT_ACL(107042, aclrtMemcpyToSymbol(&shadow, &local, 4, 0, kTo));
  EXPECT_ACL(0, aclrtMemcpyToSymbolAsync(nullptr, nullptr, 0, 0, kInner, stream_));
  EXPECT_ACL(107000, aclrtMemcpyToSymbolAsync(nullptr, &local, 4, 0, kTo, stream_));
  EXPECT_ACL(107000, aclrtMemcpyToSymbolAsync(&shadow, nullptr, 4, 0, kTo, stream_));
  EXPECT_ACL(100000, aclrtMemcpyToSymbolAsync(&shadow, &local, 4, 0, kInner, stream_));
  EXPECT_ACL(207000, aclrtMemcpyToSymbolAsync(&shadow, &local, 4, 0, ACL_MEMCPY_HOST_TO_HOST, stream_));
  EXPECT_ACL(107017, aclrtMemcpyToSymbolAsync(&shadow, &local, 4, 0, kTo, &local));
  EXPECT_ACL(107042, aclrtMemcpyToSymbolAsync(&shadow, &local, 4, 0, kTo, nullptr));
  EXPECT_ACL(0, aclrtMemcpyFromSymbol(nullptr, 0, nullptr, 0, 0, kInner));
  EXPECT_ACL(107000, aclrtMemcpyFromSymbol(nullptr, 4, &shadow, 4, 0, kFrom));
  EXPECT_ACL(107000, aclrtMemcpyFromSymbol(&local, 4, nullptr, 4, 0, kFrom));
  EXPECT_ACL(100000, aclrtMemcpyFromSymbol(&local, 4, &shadow, 4, 0, kInner));
  EXPECT_ACL(107000, aclrtMemcpyFromSymbol(&local, 3, &shadow, 4, 0, kFrom));
  EXPECT_ACL(107042, aclrtMemcpyFromSymbol(&local, 4, &shadow, 4, 0, kFrom));
  EXPECT_ACL(0, aclrtMemcpyFromSymbolAsync(nullptr, 0, nullptr, 0, 0, kInner, stream_));
  EXPECT_ACL(107000, aclrtMemcpyFromSymbolAsync(&local, 3, &shadow, 4, 0, kFrom, stream_));
  EXPECT_ACL(107042, aclrtMemcpyFromSymbolAsync(&local, 4, &shadow, 4, 0, kFrom, stream_));
}

TEST_F(Symbol, SynchronousCopiesAreUnsafeInCaptures) {
  static int shadow = 0;
  int local = 0;
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  EXPECT_ACL(107030, aclrtMemcpyToSymbol(&shadow, &local, 4, 0, ACL_MEMCPY_HOST_TO_DEVICE));
  EXPECT_ACL(107030, aclrtMemcpyFromSymbol(&local, 4, &shadow, 4, 0, ACL_MEMCPY_DEVICE_TO_HOST));
  EXPECT_ACL(107042, aclrtMemcpyToSymbolAsync(&shadow, &local, 4, 0, ACL_MEMCPY_HOST_TO_DEVICE, stream_));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

}  // namespace
}  // namespace reprise::testing
