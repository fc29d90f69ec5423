// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the engine share: kernels of this program, short words for the calls, children with another
// environment. Everything goes through the C interface.
#pragma once

#include <acl/acl.h>
#include <gtest/gtest.h>
#include <reprise/kernel.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "../runtime/child.h"
#include "../runtime/fixture.h"
#include "../unit/scale.h"

namespace reprise::engine {

using testing::kSanitized;
using testing::Loops;

/// Cores that this process may use now.
inline int Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

/// The number of the row in the environment of a child.
inline void SetNumber(const char* variable, int64_t value) { ::setenv(variable, std::to_string(value).c_str(), 1); }

/// Ends the process when its scope lasts too long by far, on a busy machine, too: a call that does not return cannot
/// be failed otherwise.
class Alarm {
 public:
  Alarm() { ::alarm(300); }
  ~Alarm() { ::alarm(0); }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
};

// Kernels. A graph's cell says how many nodes have run, in which order: cell = cell * mul + add.
struct AxpbArgs {
  uint64_t* cell;
  uint64_t mul;
  uint64_t add;
};
inline int32_t Axpb(const RepriseKernelContext* context, const void* args, size_t) {
  const auto& [cell, mul, add] = *static_cast<const AxpbArgs*>(args);
  if (context->block_index == 0) *cell = *cell * mul + add;
  return 0;
}
inline int32_t NoOp(const RepriseKernelContext*, const void*, size_t) {
  asm volatile("" ::: "memory");
  return 0;
}
/// *to = *from & 1
struct ParityArgs {
  uint64_t* to;
  const uint64_t* from;
};
inline int32_t Parity(const RepriseKernelContext* context, const void* args, size_t) {
  const auto& [to, from] = *static_cast<const ParityArgs*>(args);
  if (context->block_index == 0) *to = *from & 1;
  return 0;
}
/// Calls a function of the test.
struct CallArgs {
  void (*function)(void*);
  void* argument;
};
inline int32_t Call(const RepriseKernelContext* context, const void* args, size_t) {
  const auto& [function, argument] = *static_cast<const CallArgs*>(args);
  if (context->block_index == 0) function(argument);
  return 0;
}

struct Kernels {
  aclrtFuncHandle axpb = nullptr;
  aclrtFuncHandle no_op = nullptr;
  aclrtFuncHandle parity = nullptr;
  aclrtFuncHandle call = nullptr;
};

inline constexpr RepriseKernelDesc kKernels[] = {
    {"axpb", 0, Axpb, REPRISE_KERNEL_VECTOR, 0, 0, nullptr, 0},
    {"no_op", 0, NoOp, REPRISE_KERNEL_VECTOR, 0, 0, nullptr, 0},
    {"parity", 0, Parity, REPRISE_KERNEL_VECTOR, 0, 0, nullptr, 0},
    {"call", 0, Call, REPRISE_KERNEL_VECTOR, 0, 0, nullptr, 0},
};
inline constexpr RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 4, kKernels};

/// The kernels in the current context; 0 or the number of the call that failed.
inline int LoadKernels(Kernels& kernels, aclrtBinHandle& binary) {
  static const int registered = repriseRegisterKernels("engine", &kTable);
  if (registered != 0) return registered;
  if (const int code = aclrtBinaryLoadFromFile("engine", nullptr, &binary)) return code;
  if (const int code = aclrtBinaryGetFunction(binary, "axpb", &kernels.axpb)) return code;
  if (const int code = aclrtBinaryGetFunction(binary, "no_op", &kernels.no_op)) return code;
  if (const int code = aclrtBinaryGetFunction(binary, "parity", &kernels.parity)) return code;
  return aclrtBinaryGetFunction(binary, "call", &kernels.call);
}

template <class Args>
int LaunchWith(aclrtFuncHandle kernel, aclrtStream stream, Args args) {
  return aclrtLaunchKernelWithHostArgs(kernel, 1, stream, nullptr, &args, sizeof args, nullptr, 0);
}

constexpr uint64_t kMul = 6364136223846793005;
constexpr uint64_t kAdd = 1442695040888963407;

/// What `times` nodes of axpb make of the value.
inline uint64_t AxpbOf(uint64_t value, int64_t times) {
  for (int64_t i = 0; i < times; ++i) value = value * kMul + kAdd;
  return value;
}

class Engine : public testing::Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    if (HasFatalFailure()) return;
    aclrtBinHandle binary = nullptr;
    ASSERT_EQ(LoadKernels(kernels_, binary), 0) << aclGetRecentErrMsg();
    MUST(aclrtGetCurrentContext(&context_));
  }

  int Axpb(aclrtStream stream, uint64_t* cell, uint64_t mul = kMul, uint64_t add = kAdd) const {
    return LaunchWith(kernels_.axpb, stream, AxpbArgs{cell, mul, add});
  }
  int Parity(aclrtStream stream, uint64_t* to, const uint64_t* from) const {
    return LaunchWith(kernels_.parity, stream, ParityArgs{to, from});
  }
  int Call(aclrtStream stream, void (*function)(void*), void* argument) const {
    return LaunchWith(kernels_.call, stream, CallArgs{function, argument});
  }
  aclmdlRI CaptureChain(aclrtStream stream, uint64_t* cell, int64_t nodes) const {
    aclmdlRI model = nullptr;
    EXPECT_ACL(0, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    int failed = 0;
    for (int64_t i = 0; i < nodes; ++i) failed += Axpb(stream, cell) != 0 ? 1 : 0;
    EXPECT_EQ(failed, 0);
    EXPECT_ACL(0, aclmdlRICaptureEnd(stream, &model));
    return model;
  }
  /// Both streams run `nodes` kernels on a cell of their own, `forks` times; in between they change cells.
  aclmdlRI CaptureForks(aclrtStream origin, aclrtStream forked, uint64_t* cells, int forks, int nodes) const {
    aclrtEvent fork = nullptr;
    aclrtEvent join = nullptr;
    aclmdlRI model = nullptr;
    EXPECT_ACL(0, aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
    EXPECT_ACL(0, aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
    EXPECT_ACL(0, aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < forks; ++i) {
      EXPECT_ACL(0, aclrtRecordEvent(fork, origin));
      EXPECT_ACL(0, aclrtStreamWaitEvent(forked, fork));
      for (int k = 0; k < nodes; ++k) {
        EXPECT_EQ(Axpb(origin, cells + i % 2), 0);
        EXPECT_EQ(Axpb(forked, cells + (i + 1) % 2), 0);
      }
      EXPECT_ACL(0, aclrtRecordEvent(join, forked));
      EXPECT_ACL(0, aclrtStreamWaitEvent(origin, join));
    }
    EXPECT_ACL(0, aclmdlRICaptureEnd(origin, &model));
    EXPECT_ACL(0, aclrtDestroyEvent(fork));
    EXPECT_ACL(0, aclrtDestroyEvent(join));
    return model;
  }

  Kernels kernels_;
  aclrtContext context_ = nullptr;
};

}  // namespace reprise::engine
