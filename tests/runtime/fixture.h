// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the runtime functions are written with. They see only the C ABI.
#pragma once

#include <acl/acl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reprise::testing {

inline constexpr int32_t kPatience = 60'000;      ///< milliseconds; healthy work never needs them, whatever the load
inline constexpr uint32_t kPatienceSeconds = 60;  ///< the same for calls that count in seconds

/// Starts the program again unless it has this environment. For a constructor function: the libraries read their
/// environment once, at their first call.
inline void RestartWith(char** argv, std::initializer_list<std::pair<const char*, const char*>> variables) {
  bool complete = true;
  for (const auto& [name, value] : variables) {
    const char* now = std::getenv(name);
    complete = complete && now != nullptr && std::strcmp(now, value) == 0;
    ::setenv(name, value, 1);
  }
  if (!complete) ::execv("/proc/self/exe", argv);
}

/// "aclrtFoo(a, b)" → "aclrtFoo"
inline std::string FunctionOf(const std::string& call) { return call.substr(0, call.find('(')); }

/// What is wrong with the words of a message: advice that says nothing of this failure, or a clause that stands in its
/// cause and in its advice or culprit. Empty when nothing is.
inline std::string FaultOfWords(const std::string& message) {
  const auto part = [&](const char* begin) {
    const size_t at = message.find(begin);
    if (at == std::string::npos) return std::string();
    const size_t from = at + std::strlen(begin);
    return message.substr(from, message.find('\n', from) - from);
  };
  const std::string cause = part(" failed: "), advice = part("Solution: "), culprit = part("Culprit: ");
  for (const char* empty : {"docs/errors.md", "value that the text", "the text says", "see the text", "the named "}) {
    if (advice.find(empty) != std::string::npos) return "advice that fits any failure: " + advice;
  }
  const auto doubled = [](const std::string& in, const std::string& of) {
    for (size_t from = 0; from < of.size();) {
      const size_t end = std::min(of.find_first_of(";:,.", from), of.size());
      std::string clause = of.substr(from, end - from);
      clause.erase(0, clause.find_first_not_of(' '));
      if (std::count(clause.begin(), clause.end(), ' ') >= 4 && in.find(clause) != std::string::npos) return clause;
      from = end + 1;
    }
    return std::string();
  };
  for (const std::string& twice : {doubled(cause, advice), doubled(advice, culprit), doubled(cause, culprit)}) {
    if (!twice.empty()) return "said twice: " + twice;
  }
  return "";
}

/// Compares the numbers; a refusal must have left a message with the number and the name of the function, whose words
/// say something.
inline ::testing::AssertionResult CheckAcl(int expected, int got, const std::string& function) {
  const char* message = aclGetRecentErrMsg();
  if (expected != got) {
    return ::testing::AssertionFailure() << function << " returned " << got << ", not " << expected << "\n"
                                         << (message != nullptr ? message : "");
  }
  if (expected == 0) return ::testing::AssertionSuccess();
  if (message == nullptr || *message == '\0') return ::testing::AssertionFailure() << function << " left no message";
  const std::string text = message;
  for (const std::string& part : {std::to_string(expected), function, std::string("Solution: ")}) {
    if (text.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "no \"" << part << "\" in the message of " << function << ":\n" << text;
    }
  }
  if (const std::string fault = FaultOfWords(text); !fault.empty()) {
    return ::testing::AssertionFailure() << fault << "\nin the message of " << function << ":\n" << text;
  }
  return ::testing::AssertionSuccess();
}

inline void DropMessage() { (void)aclGetRecentErrMsg(); }

#define EXPECT_ACL(code, ...)                                                                          \
  EXPECT_TRUE(::reprise::testing::CheckAcl((code), (::reprise::testing::DropMessage(), (__VA_ARGS__)), \
                                           ::reprise::testing::FunctionOf(#__VA_ARGS__)))
#define MUST(...) \
  ASSERT_TRUE(::reprise::testing::CheckAcl(0, (__VA_ARGS__), ::reprise::testing::FunctionOf(#__VA_ARGS__)))

/// Holds up streams until it is opened.
class Gate {
 public:
  ~Gate() { Open(); }
  void Block(aclrtStream stream) {
    auto wait = [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); };
    ASSERT_EQ(0, aclrtLaunchHostFunc(stream, wait, &open_));
  }
  void Open() {
    open_.store(true);
    open_.notify_all();
  }

 private:
  // What waits outlives the gate, and an aborted stream never comes to it: the process owns the flags.
  static std::atomic<bool>& NewFlag() {
    static std::mutex mutex;
    static auto* const flags = new std::deque<std::atomic<bool>>;
    std::lock_guard lock(mutex);
    return flags->emplace_back(false);
  }
  std::atomic<bool>& open_ = NewFlag();
};

/// Waits until something that holds up a stream of this thread's context names `what`; `stream` must be held up for
/// good. The message of a timeout names what is parked if that has answered in time, which it need not on a loaded
/// machine: hence the repetition. Returns that message.
inline std::string AwaitParked(aclrtStream stream, const std::string& what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
  std::string text;
  do {
    DropMessage();
    const int code = aclrtSynchronizeStreamWithTimeout(stream, 5);
    EXPECT_EQ(507046, code) << "nothing holds the stream up";
    if (code != 507046) break;
    const char* message = aclGetRecentErrMsg();
    text = message != nullptr ? message : "";
    if (text.find(what) != std::string::npos) return text;
  } while (std::chrono::steady_clock::now() < end);
  ADD_FAILURE() << "nothing that is parked names " << what << ":\n" << text;
  return text;
}

/// A thread with device 0 current, which leaves no device behind.
class Runtime : public ::testing::Test {
 protected:
  void SetUp() override {
    MUST(aclrtSetDevice(0));
    DropMessage();
  }
  void TearDown() override { EXPECT_EQ(0, aclrtResetDeviceForce(0)); }

  static aclrtStream NewStream() {
    aclrtStream stream = nullptr;
    EXPECT_EQ(0, aclrtCreateStream(&stream));
    return stream;
  }
  static void* NewMemory(size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(0, aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    std::memset(memory, 0, bytes);  // the CPU device's memory is host memory
    return memory;
  }
};

}  // namespace reprise::testing
