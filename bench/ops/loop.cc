// SPDX-License-Identifier: Apache-2.0
//
// Calls an operator in a loop without a language in between: both phases with the same arguments, n times, then a wait
// for the stream. The arguments come as machine words: in the calling conventions of Linux on x86-64 and aarch64,
// integers and pointers go to one kind of registers (then to the stack), real numbers to another, so one function type
// serves every signature.
#include <cstdint>
#include <ctime>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

namespace {

constexpr int kMaxWords = 32;
constexpr int kMaxReals = 8;

using Word = int64_t;
using PhaseOne = aclnnStatus (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word,
                                 Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word,
                                 Word, Word, Word, Word, double, double, double, double, double, double, double,
                                 double);
using PhaseTwo = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

aclnnStatus CallOne(void* one, const Word* w, const double* r) {
  return reinterpret_cast<PhaseOne>(one)(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11],
                                         w[12], w[13], w[14], w[15], w[16], w[17], w[18], w[19], w[20], w[21], w[22],
                                         w[23], w[24], w[25], w[26], w[27], w[28], w[29], w[30], w[31], r[0], r[1],
                                         r[2], r[3], r[4], r[5], r[6], r[7]);
}

double Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

extern "C" {

/// Seconds for `n` calls and the wait, negative: minus the status of a call. `words`: the integer arguments, with room
/// for the two results of phase one behind them (`count` is without those).
double reprise_time_calls(void* one, void* two, const Word* words, int count, const double* reals, int real_count,
                          void* workspace, uint64_t workspace_bytes, aclrtStream stream, int64_t n) {
  if (count + 2 > kMaxWords || real_count > kMaxReals) return -1;
  Word w[kMaxWords] = {};
  double r[kMaxReals] = {};
  for (int i = 0; i < count; ++i) w[i] = words[i];
  for (int i = 0; i < real_count; ++i) r[i] = reals[i];
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  w[count] = reinterpret_cast<Word>(&bytes);
  w[count + 1] = reinterpret_cast<Word>(&executor);
  const double begin = Now();
  for (int64_t i = 0; i < n; ++i) {
    if (const aclnnStatus status = CallOne(one, w, r); status != 0) return -status;
    if (bytes > workspace_bytes) return -1;
    if (const aclnnStatus status = reinterpret_cast<PhaseTwo>(two)(workspace, bytes, executor, stream); status != 0) {
      return -status;
    }
  }
  if (const aclError status = aclrtSynchronizeStream(stream); status != 0) return -status;
  return Now() - begin;
}

/// The same for replays of a graph.
double reprise_time_replays(aclmdlRI graph, aclrtStream stream, int64_t n) {
  const double begin = Now();
  for (int64_t i = 0; i < n; ++i) {
    if (const aclError status = aclmdlRIExecuteAsync(graph, stream); status != 0) return -status;
    if (const aclError status = aclrtSynchronizeStream(stream); status != 0) return -status;
  }
  return Now() - begin;
}

}  // extern "C"
