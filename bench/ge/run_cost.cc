// SPDX-License-Identifier: Apache-2.0
//
// What a run of a compiled graph costs its caller beside a replay of the same graph from a capture: a chain of small
// operators with many inputs, so that kernels take next to nothing. All ways take turns; the medians of rounds are
// printed, and what each costs more than the replay.
//
//     ge_run_cost [layers] [rounds]
#include <acl/acl.h>
#include <ge/ge_api.h>
#include <ge/ge_api_v2.h>
#include <graph/graph.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "all_ops.h"
#include "exe_graph/runtime/tensor.h"

namespace {

using Options = std::map<ge::AscendString, ge::AscendString>;
constexpr int64_t kElements = 64;
constexpr int kRuns = 200;  // of one sample

void Must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, ge::GEGetErrorMsgV2().GetString());
  std::exit(1);
}

ge::TensorDesc Desc() { return ge::TensorDesc(ge::Shape({1, kElements}), ge::FORMAT_ND, ge::DT_FLOAT); }

ge::op::Data Input(int number) {
  ge::op::Data data(("x" + std::to_string(number)).c_str());
  data.set_attr_index(number);
  data.update_input_desc_x(Desc());
  data.update_output_desc_y(Desc());
  return data;
}

// y = (..((x0 * x1 + x2) * x3 + x4)..)
ge::Graph Chain(int layers) {
  std::vector<ge::Operator> inputs{Input(0)};
  ge::Operator value = inputs[0];
  for (int i = 0; i < layers; ++i) {
    const ge::op::Data by = Input(2 * i + 1);
    const ge::op::Data plus = Input(2 * i + 2);
    ge::op::Mul mul(("mul" + std::to_string(i)).c_str());
    mul.set_input_x1(value, "y").set_input_x2(by);
    ge::op::Add add(("add" + std::to_string(i)).c_str());
    add.set_input_x1(mul).set_input_x2(plus);
    inputs.insert(inputs.end(), {by, plus});
    value = add;
  }
  ge::Graph graph("chain");
  graph.SetInputs(inputs).SetOutputs({value});
  return graph;
}

double NowUs() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

gert::Tensor OnDevice(void* address) {
  gert::Tensor tensor;
  for (gert::Shape* shape : {&tensor.MutableStorageShape(), &tensor.MutableOriginShape()}) {
    shape->SetDimNum(0);
    shape->AppendDim(1);
    shape->AppendDim(kElements);
  }
  tensor.SetDataType(ge::DT_FLOAT);
  tensor.SetPlacement(gert::kOnDeviceHbm);
  tensor.SetData(gert::TensorData(address, nullptr, kElements * 4, gert::kOnDeviceHbm));
  return tensor;
}

}  // namespace

int main(int argc, char** argv) {
  const int layers = argc > 1 ? std::atoi(argv[1]) : 12;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 31;
  Must(aclInit(nullptr) == 0 && aclrtSetDevice(0) == 0, "device");
  aclrtStream stream = nullptr;
  Must(aclrtCreateStream(&stream) == 0, "stream");
  Must(ge::GEInitialize(Options{{"ge.exec.deviceId", "0"}}) == ge::SUCCESS, "GEInitialize");
  {
    const size_t inputs = static_cast<size_t>(2 * layers + 1);
    std::vector<void*> blocks(inputs + 2);
    for (void*& block : blocks) {
      Must(aclrtMalloc(&block, kElements * 4, ACL_MEM_MALLOC_HUGE_FIRST) == 0, "memory");
      for (int64_t i = 0; i < kElements; ++i) static_cast<float*>(block)[i] = 0.5f;
    }
    ge::Session first(Options{});
    ge::GeSession second(Options{});
    Must(first.AddGraphWithCopy(1, Chain(layers)) == ge::SUCCESS && first.CompileGraph(1) == ge::SUCCESS, "compile");
    std::string frozen = "1";
    for (size_t i = 2; i < inputs; ++i) frozen += ";" + std::to_string(i);
    Must(first.LoadGraph(1, Options{{"ge.exec.frozenInputIndexes", frozen.c_str()}}, stream) == ge::SUCCESS, "load");
    Must(first.AddGraphWithCopy(2, Chain(layers)) == ge::SUCCESS, "add");
    Must(second.AddGraphClone(3, Chain(layers)) == ge::SUCCESS, "add");

    std::vector<gert::Tensor> gert_inputs(inputs);
    std::vector<ge::Tensor> ge_inputs;
    for (size_t i = 0; i < inputs; ++i) {
      gert_inputs[i] = OnDevice(blocks[i]);
      ge_inputs.emplace_back(Desc());
      ge_inputs[i].SetData(static_cast<uint8_t*>(blocks[i]), kElements * 4, [](uint8_t*) {});
    }
    std::vector<gert::Tensor> gert_outputs[2];
    std::vector<ge::Tensor> ge_outputs[2];
    for (size_t i = 0; i < 2; ++i) {
      gert_outputs[i].resize(1);
      gert_outputs[i][0] = OnDevice(blocks[inputs + i]);
      ge_outputs[i].emplace_back(Desc());
      ge_outputs[i][0].SetData(static_cast<uint8_t*>(blocks[inputs + i]), kElements * 4, [](uint8_t*) {});
    }
    const auto execute = [&](size_t i) {
      Must(first.ExecuteGraphWithStreamAsync(1, stream, gert_inputs, gert_outputs[i]) == ge::SUCCESS, "execute");
    };
    const auto run = [&](size_t i) {
      Must(first.RunGraphWithStreamAsync(2, stream, ge_inputs, ge_outputs[i]) == ge::SUCCESS, "run");
    };
    const auto run_second = [&](size_t i) {
      Must(second.RunGraphWithStreamAsync(3, stream, gert_inputs, gert_outputs[i]) == ge::SUCCESS, "run");
    };
    execute(0);
    run(0);
    run_second(0);
    Must(aclrtSynchronizeStream(stream) == 0, "run");
    aclmdlRI model = nullptr;
    Must(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED) == 0, "capture");
    execute(0);
    Must(aclmdlRICaptureEnd(stream, &model) == 0, "capture");

    struct Way {
      const char* name;
      std::function<void(int)> launch;
      std::vector<double> whole{};
      std::vector<double> launching{};
    };
    std::vector<Way> ways = {
        {"replay of a capture", [&](int) { Must(aclmdlRIExecuteAsync(model, stream) == 0, "replay"); }},
        {"ExecuteGraphWithStreamAsync", [&](int) { execute(0); }},
        {"the same, outputs in turn", [&](int i) { execute(static_cast<size_t>(i & 1)); }},
        {"RunGraphWithStreamAsync", [&](int) { run(0); }},
        {"the same, outputs in turn", [&](int i) { run(static_cast<size_t>(i & 1)); }},
        {"GeSession::RunGraphWithStreamAsync", [&](int) { run_second(0); }},
        {"the same, outputs in turn", [&](int i) { run_second(static_cast<size_t>(i & 1)); }},
    };
    for (int round = 0; round < rounds; ++round) {
      for (Way& way : ways) {
        double launching = 0;
        const double begin = NowUs();
        for (int i = 0; i < kRuns; ++i) {
          const double before = NowUs();
          way.launch(i);
          launching += NowUs() - before;
          aclrtSynchronizeStream(stream);
        }
        way.whole.push_back((NowUs() - begin) / kRuns);
        way.launching.push_back(launching / kRuns);
      }
    }
    const auto median = [](std::vector<double> values) {
      std::sort(values.begin(), values.end());
      return values[values.size() / 2];
    };
    std::printf("%zu inputs, %d operators; microseconds, median of %d rounds of %d runs\n\n", inputs, 2 * layers,
                rounds, kRuns);
    std::printf("%-40s %10s %10s %12s\n", "", "launching", "until done", "over replay");
    for (const Way& way : ways) {
      std::vector<double> over;
      for (size_t i = 0; i < way.whole.size(); ++i) over.push_back(way.whole[i] - ways[0].whole[i]);
      std::printf("%-40s %10.2f %10.2f %12.2f\n", way.name, median(way.launching), median(way.whole), median(over));
    }
    Must(aclmdlRIDestroy(model) == 0, "destroy");
    ge_outputs[0].clear();
    for (void* block : blocks) aclrtFree(block);
  }
  ge::GEFinalize();
  aclrtDestroyStream(stream);
  aclrtResetDevice(0);
  return aclFinalize();
}
