// SPDX-License-Identifier: Apache-2.0
//
// Kernels and folders for the tests of tools.
#pragma once

#include <reprise/kernel.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fixture.h"

namespace reprise::testing {

using nlohmann::json;

inline std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline int32_t CountUp(const RepriseKernelContext*, const void* args, size_t) {
  uint64_t* cell;
  std::memcpy(&cell, args, sizeof cell);
  ++*cell;
  return 0;
}

inline int32_t FailNow(const RepriseKernelContext*, const void*, size_t) { return 507015; }

/// A device, three kernels, and an empty folder.
class Tools : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    static const RepriseKernelDesc descs[] = {{"count_up", 0, CountUp, REPRISE_KERNEL_VECTOR, 0, 1, nullptr, 0},
                                              {"count_twice", 0, CountUp, REPRISE_KERNEL_CUBE, 0, 1, nullptr, 0},
                                              {"fail_now", 0, FailNow, REPRISE_KERNEL_VECTOR, 0, 1, nullptr, 0}};
    static const RepriseKernelTable table = {REPRISE_KERNEL_ABI_VERSION, 3, descs};
    static const int32_t registered = repriseRegisterKernels("tools", &table);
    ASSERT_EQ(registered, 0);
    MUST(aclrtBinaryLoadFromFile("tools", nullptr, &binary_));
    MUST(aclrtBinaryGetFunction(binary_, "count_up", &count_up_));
    MUST(aclrtBinaryGetFunction(binary_, "count_twice", &count_twice_));
    MUST(aclrtBinaryGetFunction(binary_, "fail_now", &fail_now_));
    std::string pattern = ::testing::TempDir() + "reprise_tools_XXXXXX";
    ASSERT_NE(nullptr, ::mkdtemp(pattern.data()));
    folder_ = pattern;
    cell_ = static_cast<uint64_t*>(NewMemory(4096));
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtBinaryUnLoad(binary_));
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    Runtime::TearDown();
  }

  void Launch(aclrtFuncHandle function, aclrtStream stream) {
    void* args[] = {cell_};
    EXPECT_EQ(0, aclrtLaunchKernelWithHostArgs(function, 1, stream, nullptr, args, sizeof args, nullptr, 0));
  }
  static int32_t IdOf(aclrtStream stream) {
    int32_t id = -1;
    EXPECT_EQ(0, aclrtStreamGetId(stream, &id));
    return id;
  }
  /// All files in the folder, by name, without folders; the number at its end counts as a number: 9 comes before 10.
  static std::vector<std::filesystem::path> FilesIn(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.is_directory()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end(), [](const auto& one, const auto& other) {
      const std::string a = one.string(), b = other.string();
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    return files;
  }

  aclrtBinHandle binary_ = nullptr;
  aclrtFuncHandle count_up_ = nullptr, count_twice_ = nullptr, fail_now_ = nullptr;
  std::filesystem::path folder_;
  uint64_t* cell_ = nullptr;
};

}  // namespace reprise::testing
