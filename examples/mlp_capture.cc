// SPDX-License-Identifier: Apache-2.0
//
// A small network, launched operator by operator and then captured once and replayed: the same numbers, at a fraction
// of the host time. Uses only the public C interface, plus <reprise/reprise.h> for the picture at the end.
//
//   g++ -std=c++17 -O2 mlp_capture.cc -I$PREFIX/include -L$PREFIX/lib64 -lascendcl -lnnopbase -lopapi -lreprise
#include <acl/acl.h>
#include <aclnnop/aclnn_add.h>
#include <aclnnop/aclnn_matmul.h>
#include <aclnnop/aclnn_mul.h>
#include <aclnnop/aclnn_relu.h>
#include <aclnnop/aclnn_softmax.h>
#include <reprise/reprise.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int64_t kBatch = 4;
constexpr int64_t kWidth = 32;
constexpr int kLayers = 8;
constexpr int kRounds = 15;  // paired rounds: eager, replay, eager, replay, …
constexpr int kStepsPerRound = 200;

// Every call of the interface returns a number; the words come from aclGetRecentErrMsg.
void Check(int code, const char* call) {
  if (code == 0) return;
  const char* words = aclGetRecentErrMsg();
  std::fprintf(stderr, "%s returned %d\n%s\n", call, code, words != nullptr ? words : "");
  std::exit(1);
}
#define CHECK_ACL(call) Check(call, #call)

struct Tensor {
  void* data = nullptr;
  std::vector<int64_t> shape;
  int64_t count = 1;

  explicit Tensor(std::vector<int64_t> dims) : shape(std::move(dims)) {
    for (const int64_t dim : shape) count *= dim;
    CHECK_ACL(aclrtMalloc(&data, static_cast<size_t>(count) * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST));
  }
  size_t bytes() const { return static_cast<size_t>(count) * sizeof(float); }

  aclTensor* View() const {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    return aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, strides.data(), 0, ACL_FORMAT_ND, shape.data(),
                           shape.size(), data);
  }
};

// Runs both phases of an operator; `plan` is the phase-one call with the executor's place left open.
template <class Plan, class Run>
void Launch(aclrtStream stream, Plan plan, Run run, const char* name) {
  uint64_t workspace_bytes = 0;
  aclOpExecutor* executor = nullptr;
  Check(plan(&workspace_bytes, &executor), name);
  // Every operator of this program computes in place or into its output. A real program would take this from a pool.
  static void* workspace = nullptr;
  static uint64_t have = 0;
  if (workspace_bytes > have) {
    if (workspace != nullptr) CHECK_ACL(aclrtFree(workspace));
    CHECK_ACL(aclrtMalloc(&workspace, workspace_bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    have = workspace_bytes;
  }
  Check(run(workspace, workspace_bytes, executor, stream), name);
}

struct Network {
  Tensor input{{kBatch, kWidth}};
  Tensor output{{kBatch, kWidth}};
  std::vector<Tensor> weights, biases, hidden;
  float* host_input = nullptr;
  float* host_output = nullptr;
  float scale_value = 0.5f;
  float one_value = 1.0f;

  Network() {
    CHECK_ACL(aclrtMallocHost(reinterpret_cast<void**>(&host_input), input.bytes()));
    CHECK_ACL(aclrtMallocHost(reinterpret_cast<void**>(&host_output), output.bytes()));
    uint32_t random = 1;
    for (int layer = 0; layer < kLayers; ++layer) {
      weights.emplace_back(std::vector<int64_t>{kWidth, kWidth});
      biases.emplace_back(std::vector<int64_t>{kWidth});
      hidden.emplace_back(std::vector<int64_t>{kBatch, kWidth});
      for (const Tensor* tensor : {&weights.back(), &biases.back()}) {
        std::vector<float> values(static_cast<size_t>(tensor->count));
        for (float& value : values) {
          random = random * 1664525u + 1013904223u;
          value = static_cast<float>(random >> 8) / 16777216.0f - 0.5f;
        }
        CHECK_ACL(
            aclrtMemcpy(tensor->data, tensor->bytes(), values.data(), tensor->bytes(), ACL_MEMCPY_HOST_TO_DEVICE));
      }
    }
  }

  void SetInput(int step) {
    for (int64_t i = 0; i < input.count; ++i) host_input[i] = std::sin(static_cast<float>(i + step) * 0.1f);
  }

  // One forward pass: copy in, kLayers × (matmul, add, relu, scale), softmax, copy out.
  void Step(aclrtStream stream) {
    CHECK_ACL(
        aclrtMemcpyAsync(input.data, input.bytes(), host_input, input.bytes(), ACL_MEMCPY_HOST_TO_DEVICE, stream));
    const Tensor* previous = &input;
    for (int layer = 0; layer < kLayers; ++layer) {
      aclTensor* in = previous->View();
      aclTensor* weight = weights[static_cast<size_t>(layer)].View();
      aclTensor* bias = biases[static_cast<size_t>(layer)].View();
      aclTensor* out = hidden[static_cast<size_t>(layer)].View();
      aclScalar* one = aclCreateScalar(&one_value, ACL_FLOAT);
      aclScalar* scale = aclCreateScalar(&scale_value, ACL_FLOAT);
      Launch(
          stream, [&](uint64_t* w, aclOpExecutor** e) { return aclnnMatmulGetWorkspaceSize(in, weight, out, 0, w, e); },
          aclnnMatmul, "aclnnMatmul");
      Launch(
          stream, [&](uint64_t* w, aclOpExecutor** e) { return aclnnInplaceAddGetWorkspaceSize(out, bias, one, w, e); },
          aclnnInplaceAdd, "aclnnInplaceAdd");
      Launch(
          stream, [&](uint64_t* w, aclOpExecutor** e) { return aclnnInplaceReluGetWorkspaceSize(out, w, e); },
          aclnnInplaceRelu, "aclnnInplaceRelu");
      Launch(
          stream, [&](uint64_t* w, aclOpExecutor** e) { return aclnnInplaceMulsGetWorkspaceSize(out, scale, w, e); },
          aclnnInplaceMuls, "aclnnInplaceMuls");
      for (aclTensor* tensor : {in, weight, bias, out}) aclDestroyTensor(tensor);  // safe right after the launch
      aclDestroyScalar(one);
      aclDestroyScalar(scale);
      previous = &hidden[static_cast<size_t>(layer)];
    }
    aclTensor* in = previous->View();
    aclTensor* out = output.View();
    Launch(
        stream, [&](uint64_t* w, aclOpExecutor** e) { return aclnnSoftmaxGetWorkspaceSize(in, -1, out, w, e); },
        aclnnSoftmax, "aclnnSoftmax");
    aclDestroyTensor(in);
    aclDestroyTensor(out);
    CHECK_ACL(
        aclrtMemcpyAsync(host_output, output.bytes(), output.data, output.bytes(), ACL_MEMCPY_DEVICE_TO_HOST, stream));
  }
};

double Now() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

struct Timing {
  double submit = 0;  // host time of the launching calls, microseconds for one step
  double whole = 0;   // until the result is there
};

template <class Submit>
Timing Measure(aclrtStream stream, Submit submit) {
  Timing sum;
  for (int i = 0; i < kStepsPerRound; ++i) {
    const double start = Now();
    submit();
    const double submitted = Now();
    CHECK_ACL(aclrtSynchronizeStream(stream));
    sum.submit += submitted - start;
    sum.whole += Now() - start;
  }
  return {sum.submit / kStepsPerRound, sum.whole / kStepsPerRound};
}

struct Spread {
  double least, median, most;
};

Spread Of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

void PrintRow(const char* what, const Spread& s) {
  std::printf("  %-46s %9.2f   (%.2f to %.2f)\n", what, s.median, s.least, s.most);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  CHECK_ACL(aclInit(nullptr));
  CHECK_ACL(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CHECK_ACL(aclrtCreateStream(&stream));
  {
    Network network;

    // Capture: the same calls once more, between Begin and End. Nothing runs.
    network.SetInput(0);
    network.Step(stream);
    CHECK_ACL(aclrtSynchronizeStream(stream));
    aclmdlRI graph = nullptr;
    CHECK_ACL(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    network.Step(stream);
    CHECK_ACL(aclmdlRICaptureEnd(stream, &graph));
    CHECK_ACL(aclmdlRISetName(graph, "mlp"));
    reprise::GraphStats stats{};
    CHECK_ACL(reprise::GetGraphStats(graph, &stats));
    std::printf("captured %u tasks on %u stream (%.1f KiB)\n\n", stats.tasks, stats.streams,
                static_cast<double>(stats.memory_bytes) / 1024);

    // Correctness: fresh inputs, eager against replay, bit for bit.
    int different = 0;
    for (int step = 1; step <= 50; ++step) {
      network.SetInput(step);
      network.Step(stream);
      CHECK_ACL(aclrtSynchronizeStream(stream));
      const std::vector<float> eager(network.host_output, network.host_output + network.output.count);
      std::memset(network.host_output, 0, network.output.bytes());
      CHECK_ACL(aclmdlRIExecuteAsync(graph, stream));
      CHECK_ACL(aclrtSynchronizeStream(stream));
      different += std::memcmp(eager.data(), network.host_output, network.output.bytes()) != 0;
      if (step == 1) {
        std::printf("first row, eager : %.6f %.6f %.6f %.6f …\n", eager[0], eager[1], eager[2], eager[3]);
        std::printf("first row, replay: %.6f %.6f %.6f %.6f …\n", network.host_output[0], network.host_output[1],
                    network.host_output[2], network.host_output[3]);
      }
    }
    std::printf("50 inputs, eager against replay: %s\n\n", different == 0 ? "equal, bit for bit" : "DIFFERENT");

    std::vector<double> eager_submit, eager_whole, replay_submit, replay_whole, submit_gain, whole_gain;
    for (int round = 0; round < kRounds; ++round) {
      const Timing eager = Measure(stream, [&] { network.Step(stream); });
      const Timing replay = Measure(stream, [&] { CHECK_ACL(aclmdlRIExecuteAsync(graph, stream)); });
      eager_submit.push_back(eager.submit);
      eager_whole.push_back(eager.whole);
      replay_submit.push_back(replay.submit);
      replay_whole.push_back(replay.whole);
      submit_gain.push_back(eager.submit / replay.submit);
      whole_gain.push_back(eager.whole / replay.whole);
    }
    std::vector<double> per_launch;
    for (const double us : eager_submit) per_launch.push_back(us / stats.tasks);
    std::printf("host time in microseconds, median of %d paired rounds of %d steps (least to most)\n", kRounds,
                kStepsPerRound);
    PrintRow("eager: launching one step", Of(eager_submit));
    PrintRow("eager: per launch", Of(per_launch));
    PrintRow("replay: launching one step", Of(replay_submit));
    PrintRow("eager: step until its result", Of(eager_whole));
    PrintRow("replay: step until its result", Of(replay_whole));
    std::printf("  %-46s %8.1fx   (%.1f to %.1f)\n", "gain, launching", Of(submit_gain).median, Of(submit_gain).least,
                Of(submit_gain).most);
    std::printf("  %-46s %8.1fx   (%.1f to %.1f)\n\n", "gain, until the result", Of(whole_gain).median,
                Of(whole_gain).least, Of(whole_gain).most);

    const std::string picture = folder + "/mlp.svg", dump = folder + "/mlp.json";
    CHECK_ACL(reprise::WriteGraphPicture(graph, picture.c_str()));
    CHECK_ACL(aclmdlRIDebugJsonPrint(graph, dump.c_str(), ACL_MDLRI_DEBUG_JSON_PRINT_SUMMARY));
    std::printf("picture of the graph: %s\ntrace (chrome://tracing, ui.perfetto.dev): %s\n", picture.c_str(),
                dump.c_str());
    CHECK_ACL(aclmdlRIDestroy(graph));
    if (different != 0) return 1;
  }
  CHECK_ACL(aclrtDestroyStream(stream));
  CHECK_ACL(aclrtResetDevice(0));
  CHECK_ACL(aclFinalize());
  return 0;
}
