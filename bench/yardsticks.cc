// SPDX-License-Identifier: Apache-2.0
#include "yardsticks.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace bench {
namespace {

template <int Which>
__attribute__((noinline)) void MixedNoOp(void*) {
  asm volatile("# %0" ::"i"(Which) : "memory");
}
template <int... Which>
std::vector<void (*)(void*)> Mixed(std::integer_sequence<int, Which...>) {
  return {&MixedNoOp<Which>...};
}

void Post(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
void Await(std::atomic<uint32_t>& word, uint32_t seen) {
  while (word.load() == seen) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

__attribute__((noinline)) void Add(const float* a, const float* b, float* c, size_t n) {
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (size_t i = 0; i < n; ++i) c[i] = a[i] + b[i];
}

// Memory that starts at a cache line, full of `value`.
float* Floats(size_t count, float value) {
  const size_t bytes = (count * sizeof(float) + 127) / 64 * 64;
  auto* memory = static_cast<float*>(std::aligned_alloc(64, bytes));
  Require(memory != nullptr, "no memory for tensors");
  std::fill(memory, memory + bytes / sizeof(float), value);
  return memory;
}

}  // namespace

uint64_t Random::Next() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}
double Random::Unit() { return static_cast<double>(Next() >> 11) * (1.0 / 9007199254740992.0); }

__attribute__((noinline)) void FlatNoOp(void*) { asm volatile("" ::: "memory"); }

__attribute__((noinline)) void RunFlat(const std::vector<FlatNode>& nodes) {
  for (const FlatNode& node : nodes) node.function(node.argument);
}

const std::vector<void (*)(void*)>& MixedNoOps() {
  static const std::vector<void (*)(void*)> functions = Mixed(std::make_integer_sequence<int, kMixedFunctions>{});
  return functions;
}

std::vector<int> RandomMix(int nodes) {
  Random random(7);
  std::vector<int> mix(static_cast<size_t>(nodes));
  for (int& which : mix) which = static_cast<int>(random.Next() % kMixedFunctions);
  return mix;
}

__attribute__((noinline)) uint64_t SpinWork(uint32_t iterations) {
  uint64_t x = iterations | 1;
  for (uint32_t i = 0; i < iterations; ++i) {
    x = x * 6364136223846793005U + 1442695040888963407U;
    asm volatile("" : "+r"(x));
  }
  return x;
}

double IterationsPerUs() {
  static const double rate = [] {
    double best = 1e18;
    for (int i = 0; i < 20; ++i) {
      const double start = NowNs();
      SpinWork(200000);
      best = std::min(best, NowNs() - start);
    }
    return 200000 / (best / 1000);
  }();
  return rate;
}

void Dag::AddEdge(int from, int to) {
  predecessors[static_cast<size_t>(to)].push_back(from);
  successors[static_cast<size_t>(from)].push_back(to);
}

Dag ChainDag(int nodes) {
  Dag dag(nodes);
  for (int i = 1; i < nodes; ++i) dag.AddEdge(i - 1, i);
  return dag;
}

Dag ForkJoinDag(int width, uint32_t iterations) {
  Dag dag(width + 2);
  for (int i = 1; i <= width; ++i) {
    dag.iterations[static_cast<size_t>(i)] = iterations;
    dag.AddEdge(0, i);
    dag.AddEdge(i, width + 1);
  }
  return dag;
}

Dag RandomDag(int nodes, int window, uint64_t seed) {
  Dag dag(nodes);
  Random random(seed);
  for (int i = 0; i < nodes; ++i) {
    dag.iterations[static_cast<size_t>(i)] = static_cast<uint32_t>((0.5 + 4.5 * random.Unit()) * IterationsPerUs());
    const int first = std::max(0, i - window);
    const int room = i - first;
    const int wanted = std::min(room, static_cast<int>(random.Next() % 7));
    const std::vector<int>& drawn = dag.predecessors[static_cast<size_t>(i)];
    while (static_cast<int>(drawn.size()) < wanted) {
      const int candidate = first + static_cast<int>(random.Next() % static_cast<uint64_t>(room));
      if (std::find(drawn.begin(), drawn.end(), candidate) == drawn.end()) dag.AddEdge(candidate, i);
    }
  }
  return dag;
}

double SerialNs(const Dag& dag) {
  const double start = NowNs();
  for (const uint32_t iterations : dag.iterations) SpinWork(iterations);
  return NowNs() - start;
}

double TrueSerialNs(const Dag& dag) {
  double iterations = 0;
  for (const uint32_t some : dag.iterations) iterations += some;
  return iterations / IterationsPerUs() * 1000;
}

double BoundOfSerial(const Dag& dag) {
  std::vector<double> finish(dag.iterations.size());
  double longest = 0;
  double total = 0;
  for (size_t i = 0; i < finish.size(); ++i) {
    for (const int before : dag.predecessors[i]) finish[i] = std::max(finish[i], finish[static_cast<size_t>(before)]);
    finish[i] += dag.iterations[i];
    longest = std::max(longest, finish[i]);
    total += dag.iterations[i];
  }
  return std::max(0.5, longest / total);
}

SpinPeer::SpinPeer(int core)
    : thread_([this, core] {
        PinThisThread({core});
        for (uint32_t seen = 0; !stop_.load(std::memory_order_relaxed);) {
          if (question_.load(std::memory_order_acquire) == seen) {
            _mm_pause();
          } else {
            answer_.store(++seen, std::memory_order_release);
          }
        }
      }) {}
SpinPeer::~SpinPeer() {
  stop_ = true;
  thread_.join();
}
void SpinPeer::RoundTrip() {
  const uint32_t next = question_.load(std::memory_order_relaxed) + 1;
  question_.store(next, std::memory_order_release);
  while (answer_.load(std::memory_order_acquire) != next) _mm_pause();
}

FutexPeer::FutexPeer(int core)
    : thread_([this, core] {
        PinThisThread({core});
        Answer();
      }) {}
FutexPeer::~FutexPeer() {
  stop_ = true;
  Post(question_);
  thread_.join();
}
void FutexPeer::RoundTrip() {
  const uint32_t before = answer_.load();
  Post(question_);
  Await(answer_, before);
}
void FutexPeer::Answer() {
  for (uint32_t seen = 0;;) {
    Await(question_, seen);
    seen = question_.load();
    if (stop_) return;
    Post(answer_);
  }
}

MutexStream::MutexStream(int core)
    : thread_([this, core] {
        PinThisThread({core});
        Work();
      }) {}
MutexStream::~MutexStream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  ready_.notify_one();
  thread_.join();
}
void MutexStream::Launch(std::function<void()> function) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(function));
  }
  ready_.notify_one();
}
void MutexStream::Synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
}
void MutexStream::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    ready_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> function = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    function();
    lock.lock();
    busy_ = false;
    if (queue_.empty()) idle_.notify_all();
  }
}

__attribute__((noinline)) void RingNoOp(const RingStream::Node& node) {
  asm volatile("" ::"r"(node.arguments[0]) : "memory");
}
__attribute__((noinline)) void RingCount(const RingStream::Node& node) {
  ++*reinterpret_cast<uint64_t*>(node.arguments[0]);
}

RingStream::RingStream(int core)
    : thread_([this, core] {
        PinThisThread({core});
        Work();
      }) {}
RingStream::~RingStream() {
  stop_ = true;
  thread_.join();
}
void RingStream::Launch(void (*function)(const Node&), uint64_t argument) {
  while (launched_ - tail_seen_ == kCapacity) {
    tail_seen_ = tail_.load(std::memory_order_acquire);
    if (launched_ - tail_seen_ == kCapacity) _mm_pause();
  }
  Node& node = ring_[launched_ % kCapacity];
  node.function = function;
  node.arguments[0] = argument;
  head_.store(++launched_, std::memory_order_release);
}
void RingStream::Synchronize() {
  while (tail_.load(std::memory_order_acquire) != launched_) _mm_pause();
}
void RingStream::Work() {
  for (uint64_t done = 0;;) {
    const uint64_t head = head_.load(std::memory_order_acquire);
    if (head == done) {
      if (stop_.load(std::memory_order_relaxed)) return;
      _mm_pause();
      continue;
    }
    for (; done != head; ++done) {
      const Node& node = ring_[done % kCapacity];
      node.function(node);
    }
    tail_.store(done, std::memory_order_release);
  }
}

void PlainAdds::Free::operator()(void* memory) const { std::free(memory); }

PlainAdds::PlainAdds(int nodes, size_t elements)
    : elements_(elements), sum_(Floats(elements, 0)), addend_(Floats(elements, 1)) {
  nodes_.assign(static_cast<size_t>(nodes), Node{Add, sum_.get(), addend_.get(), sum_.get()});
}
void PlainAdds::RunPart(size_t begin, size_t end) {
  for (const Node& node : nodes_) node.add(node.a + begin, node.b + begin, node.c + begin, end - begin);
}

SplitAdds::SplitAdds(PlainAdds& adds, int core)
    : adds_(adds), thread_([this, core] {
        PinThisThread({core});
        for (uint32_t seen = 0; !stop_.load(std::memory_order_relaxed);) {
          if (go_.load(std::memory_order_acquire) == seen) {
            _mm_pause();
            continue;
          }
          adds_.RunPart(adds_.elements() / 2, adds_.elements());
          done_.store(++seen, std::memory_order_release);
        }
      }) {}
SplitAdds::~SplitAdds() {
  stop_ = true;
  thread_.join();
}
void SplitAdds::Run() {
  const uint32_t next = go_.load(std::memory_order_relaxed) + 1;
  go_.store(next, std::memory_order_release);
  adds_.RunPart(0, adds_.elements() / 2);
  while (done_.load(std::memory_order_acquire) != next) _mm_pause();
}

}  // namespace bench
