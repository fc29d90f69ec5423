// SPDX-License-Identifier: Apache-2.0
//
// One network, captured twice: once to train, with dropout, once to infer, without. Both graphs share a pool of memory
// and are replayed in turn. Each replay drops other elements, and the same seed drops the same ones again.
//
//   g++ -std=c++17 -O2 graph_pool.cc -I$PREFIX/include -L$PREFIX/lib64 -lascendcl -lreprise
#include <acl/acl.h>
#include <reprise/graph.h>
#include <reprise/memory.h>
#include <reprise/random.h>
#include <reprise/reprise.h>
#include <reprise/stream.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr size_t kRows = 64;
constexpr size_t kWidth = 256;
constexpr int kLayers = 4;

namespace memory = reprise::device_memory;

void Check(int code) {
  if (code == 0) return;
  std::fprintf(stderr, "%d: %s\n", code, aclGetRecentErrMsg());
  std::exit(1);
}

// Memory that goes back to the cache when it leaves its scope: at once for its own stream, never to another graph.
class Buffer {
 public:
  explicit Buffer(size_t count) : data_(static_cast<float*>(memory::Allocate(count * sizeof(float)))) {}
  ~Buffer() { memory::Free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  operator float*() const { return data_; }

 private:
  float* data_;
};

// y = relu(x · w), as one task.
void Layer(aclrtStream stream, const float* x, const float* w, float* y) {
  Check(reprise::LaunchClosure(stream, "linear_relu", [=] {
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t c = 0; c < kWidth; ++c) y[r * kWidth + c] = 0;
      for (size_t k = 0; k < kWidth; ++k) {
        for (size_t c = 0; c < kWidth; ++c) y[r * kWidth + c] += x[r * kWidth + k] * w[k * kWidth + c];
      }
      for (size_t c = 0; c < kWidth; ++c) y[r * kWidth + c] = y[r * kWidth + c] > 0 ? y[r * kWidth + c] : 0;
    }
    return 0;
  }));
}

void Forward(aclrtStream stream, const float* input, const std::vector<float*>& weights, float* output,
             reprise::Generator* dropout) {
  const Buffer a(kRows * kWidth), b(kRows * kWidth);
  const float* x = input;
  for (int layer = 0; layer < kLayers; ++layer) {
    float* const y = layer % 2 == 0 ? a : b;
    Layer(stream, x, weights[static_cast<size_t>(layer)], y);
    if (dropout != nullptr) {
      reprise::DrawDropout(stream, *dropout, y, y, nullptr, reprise::ElementType::kFloat32, kRows * kWidth, 0.5);
    }
    x = y;
  }
  const size_t bytes = kRows * kWidth * sizeof(float);
  Check(aclrtMemcpyAsync(output, bytes, x, bytes, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
}

double Sum(aclrtStream stream, const float* values) {
  Check(aclrtSynchronizeStream(stream));
  double sum = 0;
  for (size_t i = 0; i < kRows * kWidth; ++i) sum += values[i];  // the CPU device's memory is host memory
  return sum;
}

void Print(const char* name, const reprise::Graph& graph) {
  const reprise::GraphMemory memory = graph.memory();
  std::printf(
      "  %-6s pool (%llu, %llu): %.1f MiB reserved, %.1f KiB live; tasks and plan %.1f KiB\n", name,
      static_cast<unsigned long long>(graph.pool().capture), static_cast<unsigned long long>(graph.pool().handle),
      static_cast<double>(memory.device_reserved_bytes) / (1 << 20),
      static_cast<double>(memory.device_live_bytes) / (1 << 10), static_cast<double>(memory.plan_bytes) / (1 << 10));
}

void Run(const std::string& folder) {
  aclrtStream stream = nullptr;
  Check(aclrtCreateStream(&stream));
  {
    const reprise::StreamGuard current(stream);
    memory::RecordHistory(10'000);
    reprise::Generator generator;
    const Buffer input(kRows * kWidth), output(kRows * kWidth);
    std::vector<float*> weights;
    for (int layer = 0; layer < kLayers; ++layer) {
      weights.push_back(static_cast<float*>(memory::Allocate(kWidth * kWidth * sizeof(float))));
      reprise::DrawNormal(stream, generator, weights.back(), reprise::ElementType::kFloat32, kWidth * kWidth, 0, 0.09);
    }
    reprise::DrawNormal(stream, generator, input, reprise::ElementType::kFloat32, kRows * kWidth);

    reprise::Graph train, infer;
    {
      const reprise::Capture capture(train);
      Forward(stream, input, weights, output, &generator);
    }
    reprise::Graph::CaptureOptions shared;
    shared.pool = train.pool();  // replayed in turn, never at once: the second may use the memory of the first
    {
      const reprise::Capture capture(infer, shared);
      Forward(stream, input, weights, output, nullptr);
    }

    std::printf("sum of the output, replayed in turn\n        train (dropout)      infer\n");
    std::vector<double> first;
    for (int round = 0; round < 2; ++round) {
      generator.ManualSeed(42);
      for (int step = 0; step < 3; ++step) {
        train.Replay();
        const double trained = Sum(stream, output);
        infer.Replay();
        std::printf("  %d.%d %16.3f %14.3f\n", round, step, trained, Sum(stream, output));
        if (round == 0) {
          first.push_back(trained);
        } else if (trained != first[static_cast<size_t>(step)]) {
          std::printf("the same seed has given other numbers\n");
          std::exit(1);
        }
      }
    }
    std::printf("the same seed gives the same numbers; each replay gives others\n\nmemory\n");
    Print("train", train);
    Print("infer", infer);
    const reprise::DeviceStats stats = memory::Stats(0);
    std::printf("  device: %.1f MiB reserved in %lld segments\n",
                static_cast<double>(stats.reserved_bytes.all.current) / (1 << 20),
                static_cast<long long>(stats.segment.all.current));
    const std::string picture = folder + "/graph_pool.svg";
    memory::DumpSnapshot(picture);
    std::printf("  memory over time: %s\n", picture.c_str());
    for (float* block : weights) memory::Free(block);
  }
  Check(aclrtDestroyStream(stream));
}

}  // namespace

int main(int argc, char** argv) {
  Check(aclInit(nullptr));
  Check(aclrtSetDevice(0));
  int result = 0;
  try {
    Run(argc > 1 ? argv[1] : ".");
  } catch (const reprise::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    result = 1;
  }
  Check(aclrtResetDevice(0));
  Check(aclFinalize());
  return result;
}
