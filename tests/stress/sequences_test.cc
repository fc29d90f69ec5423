// SPDX-License-Identifier: Apache-2.0
//
// Random programs of runtime calls against a sequential oracle; program.h says how they are made.
//
//   REPRISE_TEST_SEED=17      this program only
//   REPRISE_TEST_CASES=5000   so many programs, seeds 1 to 5000
//
// A program that fails is made as short as possible and printed as calls.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "../unit/scale.h"
#include "program.h"
#include "runner.h"
#include "stress.h"

namespace reprise::stress {
namespace {

int EnvNumber(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

class Sequences : public Device {
 protected:
  void SetUp() override {
    Device::SetUp();
    const char* const names[] = {"axpb",   "slow_axpb",   "decrement",    "copy_cell",
                                 "append", "slow_append", "append_value", "fail"};
    static_assert(std::size(names) == std::tuple_size_v<Functions>);
    for (size_t i = 0; i < std::size(names); ++i) functions_[i] = Kernel(names[i]);
  }

  std::string Try(const Intents& intents, Mistake mistake) {
    const Program program = Lower(intents);
    const Overseer overseer([&] { return Text(program); });
    return RunProgram(program, functions_, mistake);
  }

  // Leaves out intents as long as the rest still fails; `tries` for failures that do not come every time.
  Intents Shrink(Intents intents, Mistake mistake, int tries, std::chrono::seconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    const auto fails = [&](const Intents& some) {
      for (int i = 0; i < tries; ++i) {
        if (!Try(some, mistake).empty()) return true;
      }
      return false;
    };
    for (size_t chunk = std::max<size_t>(intents.size() / 2, 1);;) {
      bool shorter = false;
      for (size_t at = 0; at < intents.size() && std::chrono::steady_clock::now() < deadline;) {
        Intents rest(intents.begin(), intents.begin() + static_cast<ptrdiff_t>(at));
        rest.insert(rest.end(), intents.begin() + static_cast<ptrdiff_t>(std::min(at + chunk, intents.size())),
                    intents.end());
        if (fails(rest)) {
          intents = std::move(rest);
          shorter = true;
        } else {
          at += chunk;
        }
      }
      if (std::chrono::steady_clock::now() >= deadline || (chunk == 1 && !shorter)) return intents;
      chunk = std::max<size_t>(chunk / 2, 1);
    }
  }

  // Empty, or the report of a failure.
  std::string Check(uint64_t seed) {
    const Intents intents = Generate(seed);
    const std::string failure = Try(intents, Mistake::kNone);
    if (failure.empty()) return "";
    const Intents shortest = Shrink(intents, Mistake::kNone, 20, std::chrono::seconds(10));
    return fmt::format("seed {} (repeat with REPRISE_TEST_SEED={}):\n{}\nshortest program that fails:\n{}{}\n", seed,
                       seed, failure, Text(Lower(shortest)), Try(shortest, Mistake::kNone));
  }

  // The mistake must be found, and come down to at most so many intents.
  void ExpectFound(Mistake mistake, size_t most) {
    for (uint64_t seed = 1; seed <= 2000; ++seed) {
      const Intents intents = Generate(seed);
      if (Try(intents, mistake).empty()) continue;
      // To the end, however busy the machine is: the length is what is tested.
      const Intents shortest = Shrink(intents, mistake, 1, std::chrono::hours(1));
      EXPECT_LE(shortest.size(), most) << Text(Lower(shortest));
      EXPECT_FALSE(Try(shortest, mistake).empty()) << "the shortened program must still fail";
      EXPECT_EQ(Try(shortest, Mistake::kNone), "") << "the mistake alone makes it fail";
      return;
    }
    ADD_FAILURE() << "no program shows the mistake";
  }

  Functions functions_{};
};

TEST_F(Sequences, MemoryIsAsInOrderOfTheCalls) {
  if (const int seed = EnvNumber("REPRISE_TEST_SEED", 0)) {
    std::printf("%s", Text(Lower(Generate(static_cast<uint64_t>(seed)))).c_str());
    const std::string report = Check(static_cast<uint64_t>(seed));
    EXPECT_TRUE(report.empty()) << report;
    return;
  }
  const auto cases = static_cast<uint64_t>(EnvNumber("REPRISE_TEST_CASES", testing::InForm(testing::Loops(3000, 150))));
  for (uint64_t seed = 1; seed <= cases; ++seed) {
    const std::string report = Check(seed);
    ASSERT_TRUE(report.empty()) << report;
  }
}

// The programs would prove little if their interesting parts were left out.
TEST_F(Sequences, ProgramsUseEveryCall) {
  std::map<Call::Kind, int> count;
  std::map<int, int> refusals;
  std::map<int, int> conditions;
  int executions = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    for (const Call& call : Lower(Generate(seed))) {
      ++count[call.kind];
      ++refusals[call.expected];
      if (call.kind == Call::kConditional) ++conditions[call.condition];
      executions += call.kind == Call::kExecute && call.expected == 0 ? 1 : 0;
    }
  }
  for (int kind = Call::kEffect; kind <= Call::kPageableCopy; ++kind) {
    EXPECT_GE(count[static_cast<Call::Kind>(kind)], 20) << "kind of call " << kind;
  }
  for (const int code : {107000, 107024, 107025, 107027, 107028, 107032, 107036, 507011, 507903, kFailure}) {
    EXPECT_GE(refusals[code], 10) << "refusal " << code;
  }
  for (const int type : {kConditionIf, kConditionWhile, kConditionSwitch}) {
    EXPECT_GE(conditions[type], 50) << "conditional tasks of type " << type;
  }
  EXPECT_GE(executions, 600);
}

TEST_F(Sequences, MistakesAreFoundAndShrunk) {
  ExpectFound(Mistake::kCopyTooShort, 1);
  ExpectFound(Mistake::kDisableForgotten, 6);
  ExpectFound(Mistake::kConditionInverted, 4);
  ExpectFound(Mistake::kUpdateForgotten, 6);
  ExpectFound(Mistake::kLoopOnce, 4);
  ExpectFound(Mistake::kFailureIgnored, 5);
}

}  // namespace
}  // namespace reprise::stress
