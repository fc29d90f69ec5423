// SPDX-License-Identifier: Apache-2.0
//
// What figures are held against: the least that a machine needs for the same work, written without any runtime.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "harness.h"

namespace bench {

struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed * 2654435769U + 88172645463325252U) {}
  uint64_t Next();
  double Unit();  ///< [0, 1)
};

// ---- Chains ----

struct FlatNode {
  void (*function)(void*);
  void* argument;
};
void FlatNoOp(void*);
void RunFlat(const std::vector<FlatNode>& nodes);
constexpr int kMixedFunctions = 256;
/// Functions that differ, so that no branch predictor knows the next one.
const std::vector<void (*)(void*)>& MixedNoOps();
/// Which of 256 functions a node of the mix calls; the same for everybody who is compared.
std::vector<int> RandomMix(int nodes);

// ---- Work ----

/// A fixed number of dependent multiplications: the same time whatever others do to the caches.
uint64_t SpinWork(uint32_t iterations);
double IterationsPerUs();

struct Dag {
  std::vector<std::vector<int>> predecessors;
  std::vector<std::vector<int>> successors;
  std::vector<uint32_t> iterations;  ///< 0: a no-op
  int nodes() const { return static_cast<int>(predecessors.size()); }
  void AddEdge(int from, int to);
  explicit Dag(int nodes) : predecessors(size_t(nodes)), successors(size_t(nodes)), iterations(size_t(nodes)) {}
};
Dag ChainDag(int nodes);
/// Root, `width` tasks, sink.
Dag ForkJoinDag(int width, uint32_t iterations);
/// Every node draws 0 to 6 predecessors out of the `window` nodes before it, and 0.5 to 5 us of work.
Dag RandomDag(int nodes, int window, uint64_t seed);
/// Time of all the work on one thread, now.
double SerialNs(const Dag& dag);
/// The same on a thread that nobody disturbs, from the speed at which the work ran best. It is bound by latency, so
/// that its speed does not depend on what caches and neighbours do.
double TrueSerialNs(const Dag& dag);
/// No two threads can be faster: max(critical path, total / 2), in parts of the serial time.
double BoundOfSerial(const Dag& dag);

// ---- Two threads ----
// All of these own one thread while they live; make them for a sample, so that nobody else's sample
// shares the core with them.

/// A thread on its own core that spins until it is asked, and answers.
class SpinPeer {
 public:
  explicit SpinPeer(int core);
  ~SpinPeer();
  void RoundTrip();

 private:
  alignas(64) std::atomic<uint32_t> question_{0};
  alignas(64) std::atomic<uint32_t> answer_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Two threads that hand a word to and fro; both sleep while they wait.
class FutexPeer {
 public:
  explicit FutexPeer(int core);
  ~FutexPeer();
  void RoundTrip();

 private:
  void Answer();
  std::atomic<uint32_t> question_{0};
  std::atomic<uint32_t> answer_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// A stream as it is written in an afternoon: mutex, condition variables, std::function.
class MutexStream {
 public:
  explicit MutexStream(int core);
  ~MutexStream();
  void Launch(std::function<void()> function);
  void Synchronize();

 private:
  void Work();
  std::mutex mutex_;
  std::condition_variable ready_, idle_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false, busy_ = false;
  std::thread thread_;
};

/// One producer, one spinning consumer, a ring of 64-byte nodes.
class RingStream {
 public:
  struct alignas(64) Node {
    void (*function)(const Node&);
    uint64_t arguments[7];
  };
  explicit RingStream(int core);
  ~RingStream();
  void Launch(void (*function)(const Node&), uint64_t argument);
  void Synchronize();

 private:
  static constexpr uint64_t kCapacity = 4096;
  void Work();
  std::vector<Node> ring_{kCapacity};
  alignas(64) std::atomic<uint64_t> head_{0};
  alignas(64) std::atomic<uint64_t> tail_{0};
  alignas(64) uint64_t tail_seen_ = 0;
  uint64_t launched_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};
void RingNoOp(const RingStream::Node& node);
void RingCount(const RingStream::Node& node);  ///< the argument is the address of a counter

// ---- Tensors ----

/// A chain of `nodes` adds in place, x += b, as plain loops.
class PlainAdds {
 public:
  PlainAdds(int nodes, size_t elements);
  void Run() { RunPart(0, elements_); }
  void RunPart(size_t begin, size_t end);
  size_t elements() const { return elements_; }
  float* sum() { return sum_.get(); }
  const float* addend() const { return addend_.get(); }

 private:
  struct Node {
    void (*add)(const float* a, const float* b, float* c, size_t n);
    const float* a;
    const float* b;
    float* c;
  };
  struct Free {
    void operator()(void* memory) const;
  };
  size_t elements_;
  std::unique_ptr<float[], Free> sum_, addend_;
  std::vector<Node> nodes_;
};

/// Two threads, each one half of every tensor; they meet only at the end.
class SplitAdds {
 public:
  SplitAdds(PlainAdds& adds, int core);
  ~SplitAdds();
  void Run();

 private:
  PlainAdds& adds_;
  alignas(64) std::atomic<uint32_t> go_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace bench
