// SPDX-License-Identifier: Apache-2.0
//
// The error table, statuses, the environment and fault points.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/env.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/spin_lock.h"
#include "base/status.h"
#include "base/verbose.h"

namespace reprise {
namespace {

// ---- Errors ----

const ErrorInfo kElements[] = {
#define REPRISE_ERROR(number, code, name, category, title, solution) ErrorInfo{code, name, category, title, solution},
#include "base/errors.def"
#undef REPRISE_ERROR
#define REPRISE_LIBRARY_ERROR(code, name, category, title, solution) ErrorInfo{code, name, category, title, solution},
#include "base/library_errors.def"
#undef REPRISE_LIBRARY_ERROR
};

TEST(Errors, NumbersAndNamesAreUnique) {
  std::set<std::string_view> names;
  std::set<int> codes;
  for (const ErrorInfo& row : kElements) {
    EXPECT_TRUE(codes.insert(row.code).second) << row.name << " has the number of another row";
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " names two numbers";
  }
}

TEST(Errors, EveryRowIsComplete) {
  for (const ErrorInfo& row : kElements) {
    const bool is_ours = row.name.starts_with("ACL") || row.name.starts_with("HCCL_E_") || row.name.starts_with("ge::");
    EXPECT_TRUE(is_ours) << row.code << ": " << row.name;
    EXPECT_TRUE(row.category.size() == 6 && (row.category[0] == 'E')) << row.name << ": " << row.category;
    EXPECT_FALSE(row.title.empty()) << row.name;
    // Empty where the advice depends on the failure: then each refusal has a hint, which the fixtures look for.
    EXPECT_FALSE(row.solution.ends_with('.')) << row.name << ": the message adds the full stop";
  }
}

TEST(Errors, EveryRowIsFound) {
  for (const ErrorInfo& row : kElements) {
    EXPECT_EQ(FindErrorInfo(row.code).name, row.name);
    EXPECT_EQ(FindErrorInfo(row.code).solution, row.solution);
  }
  for (const int unlisted : {-2, 0, 25, 99'999, 999'999, INT32_MAX}) {
    EXPECT_EQ(FindErrorInfo(unlisted).name, "UNLISTED") << unlisted;
  }
}

TEST(Status, KeepsItsDetailWhenCloned) {
  const Status original = Error(107000, "what").Culprit("culprit").Hint("hint");
  const Status clone = original.Clone();
  EXPECT_EQ(clone.code(), 107000);
  EXPECT_EQ(clone.detail().what, "what");
  EXPECT_EQ(clone.detail().culprit, "culprit");
  EXPECT_EQ(clone.detail().hint, "hint");
  EXPECT_TRUE(Status().Clone().ok());
  EXPECT_EQ(Status().code(), 0);
  EXPECT_GT(original.detail().line, 0);
}

// ---- Environment ----

// Runs in a child of the tests below, which reads its output: the environment is read once per process.
TEST(EnvChild, DISABLED_Print) {
  std::printf("<%s|%lld|%llu>\n", Env(EnvVar::kSoc).c_str(), static_cast<long long>(EnvInt(EnvVar::kWorkers)),
              static_cast<unsigned long long>(EnvBytes(EnvVar::kMemory)));
  ::setenv("REPRISE_WORKERS", "77", 1);
  EXPECT_NE(EnvInt(EnvVar::kWorkers), 77) << "read once, at first use";
  EnvInt(EnvVar::kDevices, 1, 64);
  FaultPoint("none");
}

using Variables = std::vector<std::pair<std::string, std::string>>;

// What it writes on standard output and standard error.
std::string AllOfChild(const Variables& variables) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execl("/proc/self/exe", "child", "--gtest_filter=EnvChild.*", "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string output;
  std::array<char, 4096> buffer;
  for (ssize_t got; (got = read(ends[0], buffer.data(), buffer.size())) > 0;) output.append(buffer.data(), got);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? output : "child failed: " + output;
}

std::string OutputOfChild(const Variables& variables) {
  const std::string output = AllOfChild(variables);
  const size_t begin = output.find('<'), end = output.find('>');
  return begin == std::string::npos ? output : output.substr(begin, end - begin + 1);
}

TEST(Environment, Defaults) { EXPECT_EQ(OutputOfChild({}), "<Ascend910B3|0|68719476736>"); }

TEST(Environment, ValuesAndSizes) {
  EXPECT_EQ(OutputOfChild({{"REPRISE_SOC", "X1"}, {"REPRISE_WORKERS", "3"}, {"REPRISE_MEMORY", "5"}}), "<X1|3|5>");
  EXPECT_EQ(OutputOfChild({{"REPRISE_MEMORY", "5k"}}), "<Ascend910B3|0|5120>");
  EXPECT_EQ(OutputOfChild({{"REPRISE_MEMORY", "5M"}}), "<Ascend910B3|0|5242880>");
  EXPECT_EQ(OutputOfChild({{"REPRISE_MEMORY", "2G"}}), "<Ascend910B3|0|2147483648>");
}

TEST(Environment, NonsenseGivesTheDefault) {
  for (const char* nonsense : {"", "abc", "-1", "5x", "5kk", "5 G", "9999999999999999999999", "99999999999G"}) {
    EXPECT_EQ(OutputOfChild({{"REPRISE_MEMORY", nonsense}}), "<Ascend910B3|0|68719476736>") << nonsense;
  }
  for (const char* nonsense : {"", "two", "2 workers", "1e3", "99999999999999999999"}) {
    EXPECT_EQ(OutputOfChild({{"REPRISE_WORKERS", nonsense}}), "<Ascend910B3|0|68719476736>") << nonsense;
  }
}

// Line after line of what it complains of.
std::string ComplaintsOfChild(const Variables& variables) {
  std::istringstream lines(AllOfChild(variables));
  std::string complaints;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("reprise: ")) complaints += line.substr(9) + "\n";
  }
  return complaints;
}

TEST(Environment, WhatIsMisspeltOrMalformedIsSaidOnce) {
  EXPECT_EQ(ComplaintsOfChild({{"REPRISE_WORKER", "3"}}),
            "the variable REPRISE_WORKER is not known; did you mean REPRISE_WORKERS?\n");
  EXPECT_EQ(ComplaintsOfChild({{"REPRISE_STAL_MS", "3"}}),
            "the variable REPRISE_STAL_MS is not known; did you mean REPRISE_STALL_MS?\n");
  EXPECT_EQ(ComplaintsOfChild({{"REPRISE_WORKERS", "two"}}),
            "REPRISE_WORKERS=two is no number; the default 0 is used\n");
  EXPECT_EQ(ComplaintsOfChild({{"REPRISE_MEMORY", "5T"}}),
            "REPRISE_MEMORY=5T is no size such as 64M or 2G; the default 64G is used\n");
  EXPECT_EQ(ComplaintsOfChild({{"REPRISE_DEVICES", "65"}}), "REPRISE_DEVICES=65 is not between 1 and 64; 64 is used\n");
  EXPECT_EQ(ComplaintsOfChild({{"REPRISE_FAIL_AT", "malloc"}}),
            "REPRISE_FAIL_AT=malloc is not of the form POINT:N, N from 1; nothing fails\n");
}

TEST(Environment, OthersNamesAreNoMistakes) {
  EXPECT_EQ(ComplaintsOfChild({{"REPRISE_TORCH_STREAMS", "8"},
                               {"REPRISE_MY_OWN", "1"},
                               {"EPRISE_WORKERS", "1"},
                               {"REPRISE_WORKERS", ""},
                               {"ASCEND_GLOBAL_LOG_LEVEL", "x"}}),
            "");
}

TEST(Environment, Parsers) {
  EXPECT_EQ(ParseInt("-9223372036854775808"), INT64_MIN);
  for (const char* none : {"", " 1", "1 ", "+1", "9223372036854775808", "0x10"}) {
    EXPECT_EQ(ParseInt(none), std::nullopt) << none;
  }
  EXPECT_EQ(ParseBytes("8589934591G"), uint64_t{8589934591} << 30);
  for (const char* none : {"", "K", "-1", "-1K", "8589934592G", "1T", "1KK"}) {
    EXPECT_EQ(ParseBytes(none), std::nullopt) << none;
  }
  const auto levels = ParseModuleLevels("RUNTIME=1:=:OP:GE=9:ASCENDCL=0:X=-1");
  ASSERT_EQ(levels.size(), 2U);
  EXPECT_EQ(levels.at("RUNTIME"), LogLevel::kInfo);
  EXPECT_EQ(levels.at("ASCENDCL"), LogLevel::kDebug);
}

// Numbers that nothing could be made of do not reach those who use them.
TEST(Environment, NumbersAreKeptInRange) {
  EXPECT_EQ(EnvInt(EnvVar::kMaxStreams, 1, 10), 10);
  EXPECT_EQ(EnvInt(EnvVar::kMaxStreams, 5000, 9000), 5000);
}

// ---- Fault points ----

TEST(FaultPoints, FireOnceAtTheNthPass) {
  ArmFault("a", 3);
  EXPECT_FALSE(FaultPoint("b"));
  EXPECT_FALSE(FaultPoint("a"));
  EXPECT_FALSE(FaultPoint("a"));
  EXPECT_FALSE(FaultFired());
  EXPECT_TRUE(FaultPoint("a"));
  EXPECT_TRUE(FaultFired());
  EXPECT_FALSE(FaultPoint("a"));
  ArmFault("*", 2);
  EXPECT_FALSE(FaultFired());
  EXPECT_FALSE(FaultPoint("x"));
  EXPECT_TRUE(FaultPoint("y"));
  ArmFault("x", 1);
  ArmFault("", 0);
  EXPECT_FALSE(FaultPoint("x"));
}

TEST(SpinLock, Excludes) {
  SpinLock lock;
  int64_t count = 0;  // not atomic: the lock guards it
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const std::lock_guard guard(lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 80'000);
}

// ---- Events ----

TEST(Verbose, SettingNamesCategoriesAndAFilter) {
  const VerboseSetting none = ParseVerbose("");
  EXPECT_EQ(none.categories, 0u);
  EXPECT_EQ(none.complaint, "");
  const VerboseSetting two = ParseVerbose("plan,alloc;filter=model [0-9]+;x");
  EXPECT_EQ(two.categories, 0b1010u);
  EXPECT_EQ(two.filter, "model [0-9]+;x") << "the filter is the rest of the text";
  EXPECT_EQ(two.complaint, "");
  EXPECT_EQ(ParseVerbose("all").categories, 0b11111u);
  EXPECT_EQ(ParseVerbose("filter=x").filter, "x");
}

TEST(Verbose, WhatIsWrongWithASettingIsTold) {
  const VerboseSetting misspelt = ParseVerbose("plans,capture");
  EXPECT_EQ(misspelt.categories, 0b0100u) << "the others hold";
  EXPECT_NE(misspelt.complaint.find("plans"), std::string::npos);
  const VerboseSetting open = ParseVerbose("all;filter=(");
  EXPECT_EQ(open.filter, "");
  EXPECT_NE(open.complaint.find("regular expression"), std::string::npos);
}

TEST(Verbose, EveryEventHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < static_cast<size_t>(VerboseEvent::kCount); ++i) {
    const EventInfo& info = InfoOf(static_cast<VerboseEvent>(i));
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_STRNE(CategoryName(info.category), "");
  }
}

}  // namespace
}  // namespace reprise
