// SPDX-License-Identifier: Apache-2.0
//
// Kernels of the conformance suite, built as conformance_kernels.so.
//
// Order is made visible in two ways: kernels append their number to a log in device memory, or compute
// `cell = cell * mul + add`, which gives another value in another order.
//
// Log layout in 64-bit words: [0] entries written, [1] capacity, [2…] the entries.
#include <reprise/kernel.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

void AppendTo(uint64_t* log, uint64_t id) {
  const uint64_t place = std::atomic_ref<uint64_t>(log[0]).fetch_add(1);
  if (place < log[1]) log[2 + place] = id;
}

// Stands for a kernel that takes its time. It widens the window in which a missing dependency shows as a wrong order;
// with the dependency in place no result depends on the duration.
void Work(uint64_t microseconds) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }

// Every block appends once, so that the length of the log also tells numBlocks.
REPRISE_KERNEL(append, REPRISE_KERNEL_VECTOR, (uint64_t * log, uint64_t id)) { AppendTo(log, id); }

REPRISE_KERNEL(slow_append, REPRISE_KERNEL_VECTOR, (uint64_t * log, uint64_t id, uint64_t microseconds)) {
  Work(microseconds);
  AppendTo(log, id);
}

// Appends what `cell` holds when the kernel runs.
REPRISE_KERNEL(append_value, REPRISE_KERNEL_VECTOR, (uint64_t * log, const uint64_t* cell)) { AppendTo(log, *cell); }

REPRISE_KERNEL(cube_append, REPRISE_KERNEL_CUBE, (uint64_t * log, uint64_t id)) { AppendTo(log, id); }

REPRISE_MIX_KERNEL(mix_append, 1, 2, (uint64_t * log, uint64_t id)) { AppendTo(log, id); }

REPRISE_KERNEL(aicpu_append, REPRISE_KERNEL_AICPU, (uint64_t * log, uint64_t id)) { AppendTo(log, id); }

REPRISE_KERNEL(axpb, REPRISE_KERNEL_VECTOR, (uint64_t * cell, uint64_t mul, uint64_t add)) {
  if (ctx.block_index == 0) *cell = *cell * mul + add;
}

// As axpb, with a pause between the read and the write: two that overlap lose an update.
REPRISE_KERNEL(slow_axpb, REPRISE_KERNEL_VECTOR, (uint64_t * cell, uint64_t mul, uint64_t add, uint64_t microseconds)) {
  if (ctx.block_index != 0) return;
  const uint64_t value = *cell;
  Work(microseconds);
  *cell = value * mul + add;
}

REPRISE_KERNEL(copy_cell, REPRISE_KERNEL_VECTOR, (uint64_t * dst, const uint64_t* src)) {
  if (ctx.block_index == 0) *dst = *src;
}

REPRISE_KERNEL(parity, REPRISE_KERNEL_VECTOR, (uint64_t * dst, const uint64_t* src)) {
  if (ctx.block_index == 0) *dst = *src & 1;
}

REPRISE_KERNEL(decrement, REPRISE_KERNEL_VECTOR, (uint64_t * cell)) {
  if (ctx.block_index == 0) *cell -= 1;
}

// The two below return a number, which REPRISE_KERNEL bodies cannot; so their table rows are written out.
struct FailArgs {
  uint64_t code;
};
int32_t FailEntry(const RepriseKernelContext*, const void* args, size_t args_size) {
  if (args_size < sizeof(FailArgs)) return 507015;
  return static_cast<int32_t>(static_cast<const FailArgs*>(args)->code);
}
constexpr uint32_t kFailSizes[] = {sizeof(uint64_t)};
constexpr RepriseKernelDesc fail_desc = {"fail", 0, &FailEntry, REPRISE_KERNEL_VECTOR, 0, 0, kFailSizes, 1};

struct SpinArgs {
  uint64_t* flag;
  uint64_t limit_ms;
};
// Runs until *flag is not 0; gives up with 507014 after limit_ms, so that a failed test cannot hang a worker.
int32_t SpinEntry(const RepriseKernelContext*, const void* args, size_t args_size) {
  if (args_size < sizeof(SpinArgs)) return 507015;
  const auto* spin = static_cast<const SpinArgs*>(args);
  const auto deadline = Clock::now() + std::chrono::milliseconds(spin->limit_ms);
  while (std::atomic_ref<uint64_t>(*spin->flag).load(std::memory_order_acquire) == 0) {
    if (Clock::now() > deadline) return 507014;
    std::this_thread::yield();
  }
  return 0;
}
constexpr uint32_t kSpinSizes[] = {sizeof(uint64_t*), sizeof(uint64_t)};
constexpr RepriseKernelDesc spin_until_desc = {"spin_until", 0, &SpinEntry, REPRISE_KERNEL_VECTOR, 0, 0, kSpinSizes, 2};

}  // namespace

REPRISE_KERNEL_TABLE(append, slow_append, append_value, cube_append, mix_append, aicpu_append, axpb, slow_axpb,
                     copy_cell, parity, decrement, fail, spin_until)
