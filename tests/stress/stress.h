// SPDX-License-Identifier: Apache-2.0
//
// What the stress tests share. They see only the C ABI, and use the kernels of the conformance suite.
#pragma once

#include <acl/acl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "../support/program_folder.h"

namespace reprise::stress {

inline const std::string kKernels = testing::BesideProgram("conformance_kernels.so");
constexpr int32_t kWaitMs = 60'000;  ///< longest wait for work that a healthy device finishes at once

inline ::testing::AssertionResult CheckOk(int got, const char* call) {
  if (got == 0) return ::testing::AssertionSuccess();
  const char* message = aclGetRecentErrMsg();
  return ::testing::AssertionFailure() << call << " returned " << got << "\n"
                                       << (message != nullptr ? message : "(no message)");
}

#define EXPECT_OK(...) EXPECT_TRUE(::reprise::stress::CheckOk((__VA_ARGS__), #__VA_ARGS__))
#define ASSERT_OK(...) ASSERT_TRUE(::reprise::stress::CheckOk((__VA_ARGS__), #__VA_ARGS__))

/// Ends the process when its scope lasts too long: a call that does not return cannot be failed otherwise.
class Overseer {
 public:
  /// More seconds than a busy machine may need: what hangs does so for ever.
  explicit Overseer(std::function<std::string()> describe, int seconds = 300)
      : thread_([this, seconds, describe = std::move(describe)] {
          std::unique_lock lock(mutex_);
          // Of the clock that ThreadSanitizer sees waits of, but in steps, so that setting it ends nothing.
          for (int i = 0; i < seconds; ++i) {
            const auto step = std::chrono::system_clock::now() + std::chrono::seconds(1);
            if (changed_.wait_until(lock, step, [this] { return done_; })) return;
          }
          std::fprintf(stderr, "[  FAILED  ] a call does not return: %s\n", describe().c_str());
          std::fflush(nullptr);
          std::_Exit(124);
        }) {}
  Overseer(const Overseer&) = delete;
  Overseer& operator=(const Overseer&) = delete;
  ~Overseer() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

/// Device 0 with the kernels, its default context current on the test's thread.
class Device : public ::testing::Test {
 protected:
  void SetUp() override {
    static const int init = aclInit(nullptr);
    ASSERT_EQ(init, 0);
    ASSERT_OK(aclrtSetDevice(0));
    ASSERT_OK(aclrtGetCurrentContext(&context_));
    ASSERT_OK(aclrtBinaryLoadFromFile(kKernels.c_str(), nullptr, &binary_));
  }
  void TearDown() override {
    EXPECT_OK(aclrtBinaryUnLoad(binary_));
    EXPECT_OK(aclrtResetDevice(0));
  }

  aclrtContext context() const { return context_; }
  aclrtFuncHandle Kernel(const char* name) {
    aclrtFuncHandle function = nullptr;
    EXPECT_OK(aclrtBinaryGetFunction(binary_, name, &function));
    return function;
  }

 private:
  aclrtContext context_ = nullptr;
  aclrtBinHandle binary_ = nullptr;
};

/// Launches one block with the arguments, each in its slot of 8 bytes.
template <class... Args>
aclError Launch(aclrtStream stream, aclrtFuncHandle kernel, Args... args) {
  uint64_t slots[] = {(uint64_t)args...};  // NOLINT: addresses and numbers alike
  return aclrtLaunchKernelWithHostArgs(kernel, 1, stream, nullptr, slots, sizeof slots, nullptr, 0);
}

}  // namespace reprise::stress
