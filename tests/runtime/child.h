// SPDX-License-Identifier: Apache-2.0
//
// A second process for tests of what processes share: this program once more, with one DISABLED_ test as its body.
#pragma once

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

extern char** environ;

namespace reprise::testing {

/// A child waits for its parent; it must not do so for ever when the parent was killed.
inline const bool kEndsWithParent =
    std::getenv("REPRISE_TEST_ARGUMENT") != nullptr && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;

class Child {
 public:
  /// `argument` is what Argument() gives in the child.
  Child(const std::string& test, const std::string& argument) {
    ::setenv("REPRISE_TEST_ARGUMENT", argument.c_str(), 1);
    std::vector<std::string> words = {"/proc/self/exe", "--gtest_filter=" + test, "--gtest_also_run_disabled_tests",
                                      "--gtest_output="};
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    EXPECT_EQ(0, ::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ));
    ::unsetenv("REPRISE_TEST_ARGUMENT");
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) Join();
  }

  pid_t pid() const { return pid_; }
  /// Waits for the end; the child has failed when one of its expectations has.
  void Join() {
    int status = -1;
    EXPECT_EQ(pid_, ::waitpid(pid_, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child ended with status " << status;
    pid_ = -1;
  }

  void Kill() {
    EXPECT_EQ(0, ::kill(pid_, SIGKILL));
    EXPECT_EQ(pid_, ::waitpid(pid_, nullptr, 0));
    pid_ = -1;
  }

  static std::string Argument() {
    const char* argument = std::getenv("REPRISE_TEST_ARGUMENT");
    return argument != nullptr ? argument : "";
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace reprise::testing
