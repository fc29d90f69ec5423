// SPDX-License-Identifier: Apache-2.0
//
// What an allocation from the cache costs: pairs of allocate and free, against malloc and free of the same sizes, and
// against PyTorch's allocator of CPU memory when it is built with REPRISE_BENCH_TORCH; taken in turn in one run. The
// driver below hands out addresses only, so nothing but the allocator is measured.
//
//     alloc_bench [rounds]
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "memory/device_allocator.h"
#include "peers/torch.h"

namespace {

using reprise::Status;
using reprise::StatusOr;
using reprise::memory::CaptureMoment;
using reprise::memory::CapturePoint;
using reprise::memory::CaptureState;
using reprise::memory::Config;
using reprise::memory::DeviceAllocator;
using reprise::memory::DeviceSize;
using reprise::memory::kGiB;
using reprise::memory::kMiB;

class Addresses : public reprise::memory::Driver {
 public:
  int DeviceCount() override { return 1; }
  StatusOr<void*> Allocate(int, uint64_t bytes) override { return Take(bytes); }
  void Free(int, void*) override {}
  DeviceSize Size(int) override { return {64 * kGiB, 64 * kGiB}; }
  StatusOr<void*> ReserveRange(int, uint64_t bytes, uint64_t) override { return Take(bytes); }
  Status CommitPages(int, void*, uint64_t, uint64_t) override { return {}; }
  void DecommitPages(int, void*, uint64_t, uint64_t) override {}
  void ReleaseRange(int, void*) override {}
  StatusOr<void*> AllocateHost(uint64_t bytes) override { return Take(bytes); }
  void FreeHost(void*) override {}
  void* CurrentStream(int) override { return current_; }
  int CurrentDevice() override { return 0; }
  CaptureState CaptureOf(void* stream) override { return {stream == captured_.load(std::memory_order_relaxed), 1}; }
  CapturePoint PointInCapture(void*) override { return {}; }
  CaptureMoment MomentInCapture(void*) override { return {}; }
  StatusOr<void*> RecordEvent(void*) override { return static_cast<void*>(this); }
  bool IsDone(void*) override { return true; }
  void Wait(void*) override {}
  void ReleaseEvent(void*) override {}
  void WaitForDevice(int) override {}

  void SetCaptured(void* stream) { captured_ = stream; }
  static void SetCurrent(void* stream) { current_ = stream; }

 private:
  void* Take(uint64_t bytes) { return reinterpret_cast<void*>(next_.fetch_add((bytes + kMiB) / kMiB * kMiB)); }

  std::atomic<uintptr_t> next_{uintptr_t{1} << 40};
  std::atomic<void*> captured_{reinterpret_cast<void*>(~uintptr_t{0})};
  static inline thread_local void* current_ = nullptr;
};

struct Ours {
  DeviceAllocator& allocator;
  void* stream;
  void* Get(uint64_t bytes) { return allocator.Allocate(0, bytes, stream).value(); }
  void Put(void* block) { (void)allocator.Free(block); }
};
struct Mallocs {
  void* Get(uint64_t bytes) {
    void* block = std::malloc(bytes);
    asm volatile("" : "+r"(block));
    return block;
  }
  void Put(void* block) { std::free(block); }
};

struct Torches {
  void* Get(uint64_t bytes) { return peers::TorchAllocate(bytes); }
  void Put(void* block) { peers::TorchFree(block); }
};

/// One block, given back at once, between two that are held: nothing is split or merged.
template <class Source>
void Hit(Source& source, int pairs) {
  void* const before = source.Get(4096);
  void* const block = source.Get(4096);
  void* const after = source.Get(4096);
  source.Put(block);
  for (int i = 0; i < pairs; ++i) source.Put(source.Get(4096));
  source.Put(before);
  source.Put(after);
}

/// One block, given back at once: cut from a larger one and merged with it.
template <class Source>
void Single(Source& source, int pairs) {
  for (int i = 0; i < pairs; ++i) source.Put(source.Get(4096));
}

/// 64 blocks of sixteen sizes are held; the oldest goes when one comes, as tensors of a network do.
template <class Source>
void Flow(Source& source, int pairs) {
  constexpr int kHeld = 64;
  std::vector<void*> held(kHeld, nullptr);
  uint32_t random = 1;
  for (int i = 0; i < pairs; ++i) {
    random = random * 1664525 + 1013904223;
    void*& slot = held[i % kHeld];
    if (slot != nullptr) source.Put(slot);
    slot = source.Get(uint64_t{512} * (1 + (random >> 28) * 7));
  }
  for (void* block : held) {
    if (block != nullptr) source.Put(block);
  }
}

/// Nanoseconds of one pair in each thread.
template <class MakeSource, class Work>
double Measure(int threads, int pairs, const MakeSource& make_source, const Work& work) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      auto source = make_source(t);
      work(source, 1000);
      ready.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      work(source, pairs);
    });
  }
  while (ready.load() < threads) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  go = true;
  for (std::thread& thread : running) thread.join();
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / pairs;
}

/// Of a sample: so few that the kernel seldom takes the core away in between.
constexpr int kPairs = 20000;

struct Series {
  std::vector<double> ns;
  double Median() {
    std::sort(ns.begin(), ns.end());
    return ns[ns.size() / 2];
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 101;
  Addresses driver;
  DeviceAllocator allocator(driver, Config{});
  const auto stream = [](int t) { return reinterpret_cast<void*>(static_cast<uintptr_t>(t + 1)); };
  const auto ours = [&](int t) {
    Addresses::SetCurrent(stream(t));
    return Ours{allocator, stream(t)};
  };
  // In the capture: the calling thread's own stream is captured, and its blocks come from the pool of the graph.
  const auto captured_ours = [&](int) {
    Addresses::SetCurrent(stream(100));
    return Ours{allocator, stream(100)};
  };
  const auto mallocs = [](int) { return Mallocs{}; };
  const auto torches = [](int) { return Torches{}; };
  const bool has_torch = peers::HasTorch();
  std::printf("%-36s %8s %26s %26s %26s %10s\n", "pairs of allocate and free", "threads", "ours, ns (least to most)",
              "malloc, ns", has_torch ? "PyTorch CPU, ns" : "(no PyTorch given)", "pairs/s");
  const auto row = [&](const char* name, int threads, const auto& source, const auto& work) {
    Series mine, theirs, torch;
    for (int i = 0; i < rounds; ++i) {
      mine.ns.push_back(Measure(threads, kPairs / threads, source, work));
      theirs.ns.push_back(Measure(threads, kPairs / threads, mallocs, work));
      if (has_torch) torch.ns.push_back(Measure(threads, kPairs / threads, torches, work));
    }
    const double median = mine.Median();
    std::printf("%-36s %8d", name, threads);
    for (Series* series : {&mine, &theirs, &torch}) {
      if (series->ns.empty()) {
        std::printf(" %26s", "-");
        continue;
      }
      const double middle = series->Median();
      std::printf(" %8.1f (%6.1f to %6.1f)", middle, series->ns.front(), series->ns.back());
    }
    std::printf(" %8.2fM\n", threads * 1e3 / median);
  };
  const auto hit = [](auto& source, int pairs) { Hit(source, pairs); };
  const auto single = [](auto& source, int pairs) { Single(source, pairs); };
  const auto flow = [](auto& source, int pairs) { Flow(source, pairs); };
  for (int threads : {1, 4}) {
    row("one block, just its size", threads, ours, hit);
    row("one block, cut and merged", threads, ours, single);
    row("64 held, of 16 sizes", threads, ours, flow);
  }
  // Another stream is captured.
  void* const captured = stream(100);
  driver.SetCaptured(captured);
  if (!allocator.BeginAllocateToPool(0, {1, 0}, [&](void* s) { return driver.CaptureOf(s).is_open; }).ok()) return 1;
  allocator.MarkCaptureBegin(0);
  for (int threads : {1, 4}) {
    row("one block, just its size, captures", threads, ours, hit);
    row("one block, cut and merged, captures", threads, ours, single);
    row("64 held, captures", threads, ours, flow);
  }
  row("one block, just its size, in it", 1, captured_ours, hit);
  row("one block, cut and merged, in it", 1, captured_ours, single);
  row("64 held, in it", 1, captured_ours, flow);
  allocator.MarkCaptureEnd(0);
  return allocator.EndAllocateToPool(0, {1, 0}).ok() && allocator.ReleasePool(0, {1, 0}).ok() ? 0 : 1;
}
