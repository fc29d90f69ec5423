// SPDX-License-Identifier: Apache-2.0
//
// Launches without a capture: many in a row, then one wait.
#include "rows.h"

namespace bench {
namespace {

void CheckEager(Bench& bench) {
  constexpr int kLaunches = 1000;
  aclrtStream stream = bench.device.stream();
  const uint64_t before = Counted();
  for (int i = 0; i < kLaunches; ++i) Launch(bench.device.kernels().count, 1, stream);
  CHECK_ACL(aclrtSynchronizeStream(stream));
  Require(Counted() - before == kLaunches, "1000 launches did not run 1000 kernels");
  uint64_t ring_count = 0;
  {
    RingStream ring(UsableCores().back());
    for (int i = 0; i < kLaunches; ++i) ring.Launch(RingCount, reinterpret_cast<uint64_t>(&ring_count));
    ring.Synchronize();
  }
  uint64_t mutex_count = 0;
  {
    MutexStream naive(UsableCores().back());
    for (int i = 0; i < kLaunches; ++i) naive.Launch([&mutex_count] { ++mutex_count; });
    naive.Synchronize();
  }
  Require(ring_count == kLaunches && mutex_count == kLaunches, "a yardstick stream miscounted");
}

}  // namespace

void EagerRows(Bench& bench) {
  if (!bench.Wants("R12")) return;
  aclrtStream stream = bench.device.stream();
  CheckEager(bench);
  Progress("R12", "launches without a capture");
  constexpr int kLaunches = 100000;
  const aclrtFuncHandle no_op = bench.device.kernels().no_op;
  const Sampler here = Repeat(Times([&] {
                                for (int i = 0; i < kLaunches; ++i) Launch(no_op, 0, stream);
                                CHECK_ACL(aclrtSynchronizeStream(stream));
                              }),
                              kLaunches);
  // Their threads live for one sample only.
  const Sampler naive = [] {
    return Undisturbed([] {
      const Pinned pinned(UsableCores().front());
      MutexStream yardstick(UsableCores().back());
      yardstick.Launch([] {});
      yardstick.Synchronize();
      const double start = NowNs();
      for (int i = 0; i < kLaunches; ++i) yardstick.Launch([] { asm volatile("" ::: "memory"); });
      yardstick.Synchronize();
      return (NowNs() - start) / kLaunches;
    });
  };
  const Sampler ring = [] {
    return Undisturbed([] {
      const Pinned pinned(UsableCores().front());
      RingStream yardstick(UsableCores().back());
      yardstick.Launch(RingNoOp, 0);
      yardstick.Synchronize();
      const double start = NowNs();
      for (int i = 0; i < kLaunches; ++i) yardstick.Launch(RingNoOp, 1);
      yardstick.Synchronize();
      return (NowNs() - start) / kLaunches;
    });
  };
  AddBestOfTries(bench.table, [&] {
    const auto series = Interleave({here, ring, naive}, effort().rounds);
    Row sustained = NewRow("R12", "no-op launch without a capture, sustained");
    Here(sustained, series[0], "ns");
    There(sustained, "ring, spinning consumer", series[1], "ns");
    Judge(sustained, series[0], "ns", Sense::kAtMost, 60);
    Row against = NewRow("R12", "no-op launches, faster than a mutex stream");
    Here(against, series[0], "ns");
    There(against, "mutex, condvar, std::function", series[2], "ns");
    Judge(against, Ratios(series[2], series[0]), "×", Sense::kAtLeast, 2);
    return std::vector<Row>{sustained, against};
  });
}

}  // namespace bench
