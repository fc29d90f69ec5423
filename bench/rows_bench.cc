// SPDX-License-Identifier: Apache-2.0
//
// What chains of element-wise operators cost when they are replayed: 1000 captured additions of float32 against the
// plain loop over the same additions, and against two threads that each do one half of every tensor without a barrier.
//
//   rows_bench                      prints a table: nanoseconds of one addition, ratios to the loop
//   rows_bench replay N [TIMES]     replays the additions of N floats and nothing else, for instruction counts
//
// What is compared runs in turn in one process: the loop, replays with a wait after each launch, and after ten (burst).
// Nanoseconds are medians; "ratio" is the median of the ratios of neighbouring samples, "least" and "burst" are those
// of the fastest samples, which say more when the machine is busy.
#include <acl/acl.h>
#include <aclnn/acl_meta.h>
#include <aclnnop/aclnn_add.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int kNodes = 1000;
constexpr int kRounds = 41;
constexpr int kBurst = 10;  // launches before a wait
constexpr double kSampleNs = 1e6;

void Check(int code, const char* call) {
  if (code == 0) return;
  const char* words = aclGetRecentErrMsg();
  std::fprintf(stderr, "%s returned %d\n%s\n", call, code, words != nullptr ? words : "");
  std::exit(1);
}
#define CHECK_ACL(call) Check(call, #call)

// ---- The loops ---------------------------------------------------------------------------------------------------

struct Addition {
  void (*function)(const Addition*);
  const float* a;
  const float* b;
  float* out;
  int64_t n;
};

__attribute__((noinline)) void Add(const Addition* p) {
  const float* a = p->a;
  const float* b = p->b;
  float* out = p->out;
  const int64_t n = p->n;
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

// A second thread that does its additions whenever it is told, and spins in between.
class Half {
 public:
  explicit Half(std::vector<Addition> additions) : additions_(std::move(additions)), thread_([this] { Loop(); }) {}
  ~Half() {
    go_.store(-1);
    thread_.join();
  }
  void Start() { go_.store(++turn_, std::memory_order_release); }
  void Wait() {
    while (done_.load(std::memory_order_acquire) != turn_) {
    }
  }

 private:
  void Loop() {
    for (int64_t turn = 1;; ++turn) {
      int64_t go;
      while ((go = go_.load(std::memory_order_acquire)) < turn) {
        if (go < 0) return;
      }
      for (const Addition& addition : additions_) addition.function(&addition);
      done_.store(turn, std::memory_order_release);
    }
  }
  std::vector<Addition> additions_;
  std::atomic<int64_t> go_{0};
  std::atomic<int64_t> done_{0};
  int64_t turn_ = 0;
  std::thread thread_;
};

// ---- The captured chain -------------------------------------------------------------------------------------------

class Chain {
 public:
  Chain(int64_t n, bool in_place, aclrtStream stream) : stream_(stream) {
    const auto bytes = static_cast<size_t>(n) * sizeof(float);
    for (float*& buffer : buffers_) {
      CHECK_ACL(aclrtMalloc(reinterpret_cast<void**>(&buffer), bytes, ACL_MEM_MALLOC_HUGE_FIRST));
      std::fill(buffer, buffer + n, &buffer == &buffers_[2] ? 1.0F : 0.0F);
    }
    float one = 1;
    aclScalar* alpha = aclCreateScalar(&one, ACL_FLOAT);
    aclTensor* tensors[3];
    for (int i = 0; i < 3; ++i) {
      tensors[i] = aclCreateTensor(&n, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &n, 1, buffers_[i]);
    }
    CHECK_ACL(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < kNodes; ++i) {
      const int from = in_place ? 0 : i % 2;
      const int to = in_place ? 0 : (i + 1) % 2;
      uint64_t workspace = 0;
      aclOpExecutor* executor = nullptr;
      CHECK_ACL(aclnnAddGetWorkspaceSize(tensors[from], tensors[2], alpha, tensors[to], &workspace, &executor));
      CHECK_ACL(aclnnAdd(nullptr, workspace, executor, stream));
      additions_.push_back({Add, buffers_[from], buffers_[2], buffers_[to], n});
    }
    CHECK_ACL(aclmdlRICaptureEnd(stream, &model_));
    for (aclTensor* tensor : tensors) CHECK_ACL(aclDestroyTensor(tensor));
    CHECK_ACL(aclDestroyScalar(alpha));
  }
  ~Chain() {
    CHECK_ACL(aclmdlRIDestroy(model_));
    for (float* buffer : buffers_) CHECK_ACL(aclrtFree(buffer));
  }
  Chain(const Chain&) = delete;

  void Replay(int launches = 1) const {
    for (; launches > 0; --launches) CHECK_ACL(aclmdlRIExecuteAsync(model_, stream_));
    CHECK_ACL(aclrtSynchronizeStream(stream_));
  }
  void Loop() const {
    for (const Addition& addition : additions_) addition.function(&addition);
  }
  std::vector<Addition> HalfOf(int part) const {
    std::vector<Addition> half = additions_;
    for (Addition& addition : half) {
      const int64_t offset = part * addition.n / 2;
      addition.a += offset;
      addition.b += offset;
      addition.out += offset;
      addition.n /= 2;
    }
    return half;
  }

 private:
  aclrtStream stream_;
  float* buffers_[3];
  aclmdlRI model_ = nullptr;
  std::vector<Addition> additions_;
};

template <class Work>
double Sample(const Work& work, int times) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) work();
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
  return spent.count() / times / kNodes;
}

template <class Work>
int TimesOf(const Work& work) {
  work();
  const double once = Sample(work, 1) * kNodes;
  return std::clamp(static_cast<int>(kSampleNs / once), 1, 2000);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}
double Least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

// One row of the table: the replay and a loop in turn; `loop` takes one sample.
template <class Loop>
void Compare(const char* name, int64_t n, const char* order, const Chain& chain, const Loop& loop) {
  const auto replay = [&] { chain.Replay(); };
  const auto burst = [&] { chain.Replay(kBurst); };
  const int times = TimesOf(replay);
  std::vector<double> loops;
  std::vector<double> replays;
  std::vector<double> bursts;
  std::vector<double> ratios;
  for (int round = 0; round < kRounds; ++round) {
    loops.push_back(loop());
    chain.Replay();
    replays.push_back(Sample(replay, times));
    bursts.push_back(Sample(burst, std::max(1, times / kBurst)) / kBurst);
    ratios.push_back(replays.back() / loops.back());
  }
  std::printf("| %8lld | %-9s | %-10s | %9.1f | %9.1f | %9.1f | %5.2f | %5.2f | %5.2f |\n", static_cast<long long>(n),
              order, name, Median(loops), Median(replays), Median(bursts), Median(ratios),
              Least(replays) / Least(loops), Least(bursts) / Least(loops));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CHECK_ACL(aclInit(nullptr));
  CHECK_ACL(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CHECK_ACL(aclrtCreateStream(&stream));
  if (argc >= 3 && std::strcmp(argv[1], "replay") == 0) {
    const Chain chain(std::atoll(argv[2]), true, stream);
    for (int i = argc >= 4 ? std::atoi(argv[3]) : 10; i > 0; --i) chain.Replay();
  } else {
    std::printf("| elements | operands  | loop       |   loop ns | replay ns |  burst ns | ratio | least | burst |\n");
    std::printf("|---------:|-----------|------------|----------:|----------:|----------:|------:|------:|------:|\n");
    for (const int64_t n : {8, 64, 1024, 65536}) {
      for (const bool in_place : {true, false}) {
        const Chain chain(n, in_place, stream);
        const char* order = in_place ? "in place" : "ping-pong";
        const auto plain = [&] { chain.Loop(); };
        const int times = TimesOf(plain);
        Compare("plain", n, order, chain, [&] { return Sample(plain, times); });
        if (n < 1024 || std::thread::hardware_concurrency() < 2) continue;
        // The second thread spins, so it lives for one sample only.
        const std::vector<Addition> mine = chain.HalfOf(0);
        Compare("split in 2", n, order, chain, [&] {
          Half other(chain.HalfOf(1));
          const auto split = [&] {
            other.Start();
            for (const Addition& addition : mine) addition.function(&addition);
            other.Wait();
          };
          split();
          return Sample(split, 2 * times);
        });
      }
    }
  }
  CHECK_ACL(aclrtDestroyStream(stream));
  CHECK_ACL(aclrtResetDevice(0));
  CHECK_ACL(aclFinalize());
  return 0;
}
