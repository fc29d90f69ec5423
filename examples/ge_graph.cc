// SPDX-License-Identifier: Apache-2.0
//
// A graph of the graph engine: a linear layer, GELU and a layer norm, written as the single operators that front ends
// export. The engine compiles it, puts one operator in the place of many, and plans its memory; it runs twice, with
// other inputs, and is held against plain loops. A picture shows what became of the graph.
//
//   g++ -std=c++17 -O2 ge_graph.cc -I$PREFIX/include -L$PREFIX/lib64 -lge_runner -lgraph -lascendcl
#include <acl/acl.h>
#include <all_ops.h>
#include <ge/ge_api.h>
#include <graph/graph.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

namespace op = ge::op;

constexpr int64_t kRows = 32;
constexpr int64_t kWidth = 64;
constexpr float kEpsilon = 1e-5F;

void Check(uint32_t code, const char* call) {
  if (code == 0) return;
  std::fprintf(stderr, "%s: 0x%x\n%s\n", call, code, ge::GEGetErrorMsgV2().GetString());
  std::exit(1);
}
void CheckAcl(int code) {
  if (code == 0) return;
  std::fprintf(stderr, "%d: %s\n", code, aclGetRecentErrMsg());
  std::exit(1);
}

ge::TensorDesc Floats(const std::vector<int64_t>& dims) {
  return ge::TensorDesc(ge::Shape(dims), ge::FORMAT_ND, ge::DT_FLOAT);
}

template <class T>
std::vector<uint8_t> BytesOf(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

op::Const Constant(const char* name, const std::vector<int64_t>& dims, const std::vector<float>& values) {
  op::Const constant(name);
  constant.set_attr_value(ge::Tensor(Floats(dims), BytesOf(values)));
  constant.update_output_desc_y(Floats(dims));
  return constant;
}

std::vector<float> Numbers(size_t count, uint32_t seed) {
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    seed = seed * 1664525 + 1013904223;
    number = static_cast<float>(seed >> 8) / static_cast<float>(1 << 24) - 0.5F;
  }
  return numbers;
}

struct Weights {
  std::vector<float> w = Numbers(kWidth * kWidth, 1);
  std::vector<float> bias = Numbers(kWidth, 2);
  std::vector<float> gamma = Numbers(kWidth, 3);
  std::vector<float> beta = Numbers(kWidth, 4);
};

ge::Graph Build(const Weights& weights) {
  op::Data x("x");
  x.set_attr_index(0);
  x.update_input_desc_x(Floats({kRows, kWidth}));
  x.update_output_desc_y(Floats({kRows, kWidth}));

  const op::Const w = Constant("w", {kWidth, kWidth}, weights.w);
  const op::Const bias = Constant("bias", {kWidth}, weights.bias);
  op::MatMulV2 product("product");
  product.set_input_x1(x).set_input_x2(w);
  op::Add linear("linear");
  linear.set_input_x1(product).set_input_x2(bias);

  // GELU: x / 2 · (1 + erf(x / √2))
  op::Muls scaled("scaled");
  scaled.set_input_x(linear).set_attr_value(0.70710678F);
  op::Erf erf("erf");
  erf.set_input_x(scaled);
  op::Adds sum("sum");
  sum.set_input_x(erf).set_attr_value(1.0F);
  op::Muls half("half");
  half.set_input_x(linear).set_attr_value(0.5F);
  op::Mul gelu("gelu");
  gelu.set_input_x1(half).set_input_x2(sum);

  // The norm of each row: its mean taken away, divided by its deviation.
  op::ReduceMeanD mean("mean");
  mean.set_input_x(gelu).set_attr_axes({-1}).set_attr_keep_dims(true);
  op::Sub centred("centred");
  centred.set_input_x1(gelu).set_input_x2(mean);
  op::Mul square("square");
  square.set_input_x1(centred).set_input_x2(centred);
  op::ReduceMeanD variance("variance");
  variance.set_input_x(square).set_attr_axes({-1}).set_attr_keep_dims(true);
  op::Adds shifted("shifted");
  shifted.set_input_x(variance).set_attr_value(kEpsilon);
  op::Rsqrt inverse("inverse");
  inverse.set_input_x(shifted);
  op::Mul normal("normal");
  normal.set_input_x1(centred).set_input_x2(inverse);
  op::Mul stretched("stretched");
  stretched.set_input_x1(normal).set_input_x2(Constant("gamma", {kWidth}, weights.gamma));
  op::Add norm("norm");
  norm.set_input_x1(stretched).set_input_x2(Constant("beta", {kWidth}, weights.beta));

  ge::Graph graph("linear_gelu_norm");
  graph.SetInputs({x}).SetOutputs({norm});
  return graph;
}

// The same in loops.
std::vector<float> Expected(const Weights& weights, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  for (int64_t r = 0; r < kRows; ++r) {
    std::vector<double> row(kWidth);
    double mean = 0;
    for (int64_t c = 0; c < kWidth; ++c) {
      double sum = weights.bias[static_cast<size_t>(c)];
      for (int64_t k = 0; k < kWidth; ++k) {
        sum += static_cast<double>(x[static_cast<size_t>(r * kWidth + k)]) *
               weights.w[static_cast<size_t>(k * kWidth + c)];
      }
      row[static_cast<size_t>(c)] = sum / 2 * (1 + std::erf(sum / std::sqrt(2.0)));
      mean += row[static_cast<size_t>(c)] / kWidth;
    }
    double variance = 0;
    for (const double value : row) variance += (value - mean) * (value - mean) / kWidth;
    for (size_t c = 0; c < row.size(); ++c) {
      const double normal = (row[c] - mean) / std::sqrt(variance + kEpsilon);
      y[static_cast<size_t>(r * kWidth) + c] = static_cast<float>(normal * weights.gamma[c] + weights.beta[c]);
    }
  }
  return y;
}

// Types of operators, each with how often it is there; values that do not change are left out.
std::string TypesOf(const ge::Graph& graph) {
  std::map<std::string, int> counts;
  for (const ge::GNode& node : graph.GetDirectNode()) {
    ge::AscendString type;
    static_cast<void>(node.GetType(type));
    const std::string text = type.GetString();
    if (text != "Const" && text != "Data" && text != "NetOutput") ++counts[text];
  }
  std::string text;
  for (const auto& [type, count] : counts) {
    text += (text.empty() ? "" : ", ") + type + (count > 1 ? " x" + std::to_string(count) : "");
  }
  return text;
}

void PrintSummary(ge::Session& session) {
  const ge::CompiledGraphSummaryPtr summary = session.GetCompiledGraphSummary(1);
  if (summary == nullptr) Check(ge::FAILED, "GetCompiledGraphSummary");
  size_t constants = 0, features = 0, streams = 0;
  Check(summary->GetConstMemorySize(constants), "GetConstMemorySize");
  Check(summary->GetFeatureMemorySize(features), "GetFeatureMemorySize");
  Check(summary->GetStreamNum(streams), "GetStreamNum");
  std::printf("shapes %s, constants %.1f KiB, memory between the nodes %.1f KiB, streams %zu\n",
              summary->IsStatic() ? "known" : "open", static_cast<double>(constants) / 1024,
              static_cast<double>(features) / 1024, streams);
}

void Run(ge::Session& session, aclrtStream stream, const Weights& weights, uint32_t seed) {
  const std::vector<float> x = Numbers(kRows * kWidth, seed);
  const std::vector<ge::Tensor> inputs{ge::Tensor(Floats({kRows, kWidth}), BytesOf(x))};
  std::vector<ge::Tensor> outputs;
  Check(session.RunGraphWithStreamAsync(1, stream, inputs, outputs), "RunGraphWithStreamAsync");
  CheckAcl(aclrtSynchronizeStream(stream));
  std::vector<float> y(kRows * kWidth);
  CheckAcl(aclrtMemcpy(y.data(), y.size() * sizeof(float), outputs.at(0).GetData(), outputs[0].GetSize(),
                       ACL_MEMCPY_DEVICE_TO_HOST));
  const std::vector<float> expected = Expected(weights, x);
  float worst = 0;
  for (size_t i = 0; i < y.size(); ++i) worst = std::max(worst, std::fabs(y[i] - expected[i]));
  std::printf("input %u: %.4f %.4f %.4f …, at most %.1e from the loops\n", seed, y[0], y[1], y[2],
              static_cast<double>(worst));
  if (!(worst < 1e-4F)) {
    std::printf("that is wrong\n");
    std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  setenv("REPRISE_GE_PICTURE", folder.c_str(), 1);
  CheckAcl(aclInit(nullptr));
  CheckAcl(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CheckAcl(aclrtCreateStream(&stream));
  Check(ge::GEInitialize(std::map<ge::AscendString, ge::AscendString>()), "GEInitialize");
  {
    const Weights weights;
    ge::Graph graph = Build(weights);
    std::printf("operators as given: %s\n", TypesOf(graph).c_str());
    ge::Session session(std::map<ge::AscendString, ge::AscendString>{});
    Check(session.AddGraph(1, graph), "AddGraph");
    Check(session.CompileGraph(1), "CompileGraph");
    std::printf("operators that run: %s\n", TypesOf(graph).c_str());
    PrintSummary(session);
    Run(session, stream, weights, 5);
    Run(session, stream, weights, 6);
    std::printf("picture of the compilation: %s/linear_gelu_norm_1.svg\n", folder.c_str());
  }
  Check(ge::GEFinalize(), "GEFinalize");
  CheckAcl(aclrtDestroyStream(stream));
  CheckAcl(aclrtResetDevice(0));
  CheckAcl(aclFinalize());
  return 0;
}
