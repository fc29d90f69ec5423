// SPDX-License-Identifier: Apache-2.0
//
// A small net for images, as programs for other frameworks have it: trained with variables of a session, loss and step
// of the optimizer in one graph, and compiled as an offline model. Against plain loops.
#include <acl/acl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "all_ops.h"
#include "ge/ge_api.h"
#include "ge/ge_ir_build.h"
#include "graph/graph.h"

namespace {

using Options = std::map<ge::AscendString, ge::AscendString>;
using Numbers = std::vector<float>;
namespace op = ge::op;

constexpr int64_t kBatch = 4, kSize = 6, kFilters = 2, kHalf = kSize / 2, kFeatures = kFilters * kHalf * kHalf,
                  kClasses = 3;
constexpr float kRate = 0.05F, kMomentum = 0.9F;

size_t CountOf(const std::vector<int64_t>& dims) {
  size_t count = 1;
  for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
  return count;
}

// Reproducible numbers around 0.
Numbers Drawn(const std::vector<int64_t>& dims, uint32_t seed, float scale) {
  Numbers values(CountOf(dims));
  for (float& value : values) {
    seed = seed * 1664525U + 1013904223U;
    value = scale * (static_cast<float>(seed >> 8U) / 8388608.0F - 1.0F);
  }
  return values;
}

ge::TensorDesc Floats(const std::vector<int64_t>& dims, ge::Format format = ge::FORMAT_ND) {
  return ge::TensorDesc(ge::Shape(dims), format, ge::DT_FLOAT);
}

ge::Tensor TensorOf(const std::vector<int64_t>& dims, const Numbers& values) {
  return ge::Tensor(Floats(dims), reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float));
}

op::Const Constant(const char* name, const std::vector<int64_t>& dims, const Numbers& values) {
  op::Const constant(name);
  constant.set_attr_value(TensorOf(dims, values));
  constant.update_output_desc_y(Floats(dims));
  return constant;
}

op::Data Input(const char* name, int64_t index, const std::vector<int64_t>& dims) {
  op::Data data(name);
  data.set_attr_index(index);
  data.update_input_desc_x(Floats(dims));
  data.update_output_desc_y(Floats(dims));
  return data;
}

struct Weights {
  std::array<std::vector<int64_t>, 4> dims = {
      std::vector<int64_t>{kFilters, 1, 3, 3}, {kFilters}, {kFeatures, kClasses}, {kClasses}};
  std::array<const char*, 4> names = {"filter", "filter_bias", "matrix", "matrix_bias"};
  std::array<Numbers, 4> values;
  std::array<Numbers, 4> states;  // of the optimizer

  Weights() {
    for (size_t i = 0; i < 4; ++i) {
      values[i] = Drawn(dims[i], static_cast<uint32_t>(i) + 1, i % 2 == 0 ? 0.5F : 0.1F);
      states[i].assign(values[i].size(), 0);
    }
  }
};

// ---- The net, from whatever gives its weights ----

struct Net {
  op::Conv2D conv{"conv"};
  op::BiasAdd conv_bias{"conv_bias"};
  op::Relu relu{"relu"};
  op::MaxPool pool{"pool"};
  op::FlattenV2 flat{"flat"};
  op::MatMulV2 product{"product"};
  op::BiasAdd scores{"scores"};

  Net(ge::Operator& x, std::array<ge::Operator, 4>& weights) {
    conv.set_input_x(x).set_input_filter(weights[0]);
    conv.set_attr_strides({1, 1, 1, 1}).set_attr_pads({1, 1, 1, 1}).set_attr_data_format("NCHW");
    conv_bias.set_input_x(conv).set_input_bias(weights[1]).set_attr_data_format("NCHW");
    relu.set_input_x(conv_bias);
    pool.set_input_x(relu).set_attr_ksize({1, 1, 2, 2}).set_attr_strides({1, 1, 2, 2});
    pool.set_attr_padding("SAME").set_attr_data_format("NCHW");
    flat.set_input_x(pool);
    product.set_input_x1(flat).set_input_x2(weights[2]);
    scores.set_input_x(product).set_input_bias(weights[3]);
  }
};

// ---- The net in plain loops ----

struct Plain {
  std::vector<double> conv, pool, scores, probabilities;
  std::vector<size_t> chosen;  // of each window, in conv

  Plain(const Weights& w, const Numbers& x) {
    conv.assign(kBatch * kFilters * kSize * kSize, 0);
    for (int64_t n = 0; n < kBatch; ++n) {
      for (int64_t f = 0; f < kFilters; ++f) {
        for (int64_t i = 0; i < kSize; ++i) {
          for (int64_t j = 0; j < kSize; ++j) {
            double sum = w.values[1][f];
            Each3x3(i, j, [&](size_t place, size_t tap) {
              sum += x[n * kSize * kSize + place] * static_cast<double>(w.values[0][f * 9 + tap]);
            });
            conv[((n * kFilters + f) * kSize + i) * kSize + j] = std::max(0.0, sum);
          }
        }
      }
    }
    for (size_t plane = 0; plane < kBatch * kFilters; ++plane) {
      for (size_t i = 0; i < kHalf; ++i) {
        for (size_t j = 0; j < kHalf; ++j) {
          size_t best = (plane * kSize + 2 * i) * kSize + 2 * j;
          for (const size_t step : {size_t{1}, size_t{kSize}, size_t{kSize + 1}}) {
            const size_t place = (plane * kSize + 2 * i) * kSize + 2 * j + step;
            if (conv[place] > conv[best]) best = place;
          }
          chosen.push_back(best);
          pool.push_back(conv[best]);
        }
      }
    }
    for (size_t n = 0; n < kBatch; ++n) {
      std::array<double, kClasses> row{};
      double total = 0;
      for (size_t c = 0; c < kClasses; ++c) {
        row[c] = w.values[3][c];
        for (size_t k = 0; k < kFeatures; ++k) row[c] += pool[n * kFeatures + k] * w.values[2][k * kClasses + c];
      }
      for (const double score : row) total += std::exp(score);
      for (const double score : row) probabilities.push_back(std::exp(score) / total);
    }
  }

  template <class F>
  static void Each3x3(int64_t i, int64_t j, F each) {
    for (int64_t a = 0; a < 3; ++a) {
      for (int64_t b = 0; b < 3; ++b) {
        const int64_t row = i + a - 1;
        const int64_t column = j + b - 1;
        if (row < 0 || row >= kSize || column < 0 || column >= kSize) continue;
        each(static_cast<size_t>(row * kSize + column), static_cast<size_t>(a * 3 + b));
      }
    }
  }

  Numbers Losses(const Numbers& labels) const {
    Numbers losses(kBatch, 0);
    for (size_t n = 0; n < kBatch * kClasses; ++n) {
      losses[n / kClasses] -= labels[n] * static_cast<float>(std::log(probabilities[n]));
    }
    return losses;
  }

  // The gradients of the sum of all losses, then the step.
  void Step(Weights& w, const Numbers& x, const Numbers& labels) const {
    std::array<std::vector<double>, 4> of;
    for (size_t i = 0; i < 4; ++i) of[i].assign(w.values[i].size(), 0);
    for (size_t n = 0; n < kBatch; ++n) {
      for (size_t c = 0; c < kClasses; ++c) {
        const double delta = probabilities[n * kClasses + c] - labels[n * kClasses + c];
        of[3][c] += delta;
        for (size_t k = 0; k < kFeatures; ++k) {
          of[2][k * kClasses + c] += pool[n * kFeatures + k] * delta;
          Back(x, n * kFeatures + k, w.values[2][k * kClasses + c] * delta, of);
        }
      }
    }
    for (size_t i = 0; i < 4; ++i) {
      for (size_t e = 0; e < of[i].size(); ++e) {
        w.states[i][e] = w.states[i][e] * kMomentum + static_cast<float>(of[i][e]);
        w.values[i][e] -= kRate * w.states[i][e];
      }
    }
  }

  // Through the pool and the convolution.
  void Back(const Numbers& x, size_t feature, double delta, std::array<std::vector<double>, 4>& of) const {
    const size_t place = chosen[feature];
    if (conv[place] <= 0) return;
    const size_t plane = place / (kSize * kSize);
    const size_t inner = place % (kSize * kSize);
    const size_t f = plane % kFilters;
    of[1][f] += delta;
    Each3x3(static_cast<int64_t>(inner / kSize), static_cast<int64_t>(inner % kSize), [&](size_t pixel, size_t tap) {
      of[0][f * 9 + tap] += delta * x[plane / kFilters * kSize * kSize + pixel];
    });
  }
};

const std::vector<int64_t> kImages = {kBatch, 1, kSize, kSize};
const std::vector<int64_t> kLabels = {kBatch, kClasses};

Numbers LabelsOf() {
  Numbers labels(kBatch * kClasses, 0);
  for (size_t n = 0; n < kBatch; ++n) labels[n * kClasses + n % kClasses] = 1;
  return labels;
}

class LeNet : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  }
  void TearDown() override {
    aclrtResetDevice(0);
    aclFinalize();
  }

  static std::array<ge::Operator, 4> Variables(const Weights& weights, const std::string& prefix = "") {
    std::array<ge::Operator, 4> found;
    for (size_t i = 0; i < 4; ++i) {
      op::Variable variable((prefix + weights.names[i]).c_str());
      variable.update_output_desc_y(Floats(weights.dims[i]));
      found[i] = variable;
    }
    return found;
  }
  static Numbers Values(const ge::Tensor& tensor) {
    const auto* const data = reinterpret_cast<const float*>(tensor.GetData());
    return {data, data + tensor.GetSize() / sizeof(float)};
  }
  static void ExpectNear(const Numbers& found, const Numbers& expected, float error) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], error) << i;
  }
};

// Weights and states get their first values.
ge::Graph Beginning(const Weights& weights, const std::vector<std::array<ge::Operator, 4>>& variables) {
  std::vector<ge::Operator> outputs;
  for (size_t v = 0; v < variables.size(); ++v) {
    for (size_t i = 0; i < 4; ++i) {
      const std::string name = std::to_string(v) + weights.names[i];
      const Numbers& first = v == 0 ? weights.values[i] : weights.states[i];
      const op::Const value = Constant(("first" + name).c_str(), weights.dims[i], first);
      op::Assign assign(("assign" + name).c_str());
      assign.set_input_ref(variables[v][i]).set_input_value(value);
      outputs.push_back(assign);
    }
  }
  ge::Graph graph("beginning");
  graph.SetInputs({}).SetOutputs(outputs);
  return graph;
}

// Loss, gradients and a step of each weight.
class Training {
 public:
  explicit Training(const std::array<ge::Operator, 4>& weights, const std::array<ge::Operator, 4>& states)
      : weights_(weights), states_(states), net_(x_, weights_) {
    loss_.set_input_features(net_.scores).set_input_labels(labels_);
    of_product_.set_input_x1(net_.flat).set_input_x2_by_name(loss_, "backprop").set_attr_transpose_x1(true);
    of_scores_.set_input_x_by_name(loss_, "backprop");
    of_flat_.set_input_x1_by_name(loss_, "backprop").set_input_x2(weights_[2]).set_attr_transpose_x2(true);
    op::Const shape("shape");
    const std::array<int64_t, 4> sizes = {kBatch, kFilters, kHalf, kHalf};
    const ge::TensorDesc desc(ge::Shape({4}), ge::FORMAT_ND, ge::DT_INT64);
    shape.set_attr_value(ge::Tensor(desc, reinterpret_cast<const uint8_t*>(sizes.data()), sizeof(sizes)));
    shape.update_output_desc_y(desc);
    planes_.set_input_x(of_flat_).set_input_shape(shape);
    of_pool_.set_input_x1(net_.relu).set_input_x2(net_.pool).set_input_grad(planes_);
    of_pool_.set_attr_ksize({1, 1, 2, 2}).set_attr_strides({1, 1, 2, 2}).set_attr_padding("SAME");
    of_pool_.set_attr_data_format("NCHW");
    of_relu_.set_input_gradients(of_pool_).set_input_features(net_.relu);
    of_bias_.set_input_x(of_relu_).set_attr_data_format("NCHW");
    of_filter_.set_input_x(x_).set_input_out_backprop(of_relu_);
    of_filter_.set_attr_filter_size({kFilters, 1, 3, 3}).set_attr_strides({1, 1, 1, 1}).set_attr_pads({1, 1, 1, 1});
    of_filter_.set_attr_data_format("NCHW");
  }

  ge::Graph Build() {
    const op::Const rate = Constant("rate", {}, {kRate});
    const op::Const momentum = Constant("momentum", {}, {kMomentum});
    const std::array<ge::Operator, 4> gradients = {of_filter_, of_bias_, of_product_, of_scores_};
    std::vector<ge::Operator> steps;
    for (size_t i = 0; i < 4; ++i) {
      op::ApplyMomentum step(("step" + std::to_string(i)).c_str());
      step.set_input_var(weights_[i]).set_input_accum(states_[i]).set_input_lr(rate);
      step.set_input_grad(gradients[i]).set_input_momentum(momentum);
      step.AddControlInput(of_filter_);  // all gradients are there
      steps.push_back(step);
    }
    ge::Graph graph("training");
    graph.SetInputs({x_, labels_})
        .SetOutputs(std::vector<std::pair<ge::Operator, std::vector<size_t>>>{{loss_, {0}}})
        .SetTargets(steps);
    return graph;
  }

 private:
  op::Data x_ = Input("x", 0, kImages);
  op::Data labels_ = Input("labels", 1, kLabels);
  std::array<ge::Operator, 4> weights_, states_;
  Net net_;
  op::SoftmaxCrossEntropyWithLogits loss_{"loss"};
  op::MatMulV2 of_product_{"of_product"}, of_flat_{"of_flat"};
  op::BiasAddGrad of_scores_{"of_scores"}, of_bias_{"of_bias"};
  op::Reshape planes_{"planes"};
  op::MaxPoolGrad of_pool_{"of_pool"};
  op::ReluGrad of_relu_{"of_relu"};
  op::Conv2DBackpropFilterD of_filter_{"of_filter"};
};

TEST_F(LeNet, IsTrainedByRunsOfOneGraph) {
  ASSERT_EQ(ge::GEInitialize(Options{{"ge.exec.deviceId", "0"}}), ge::SUCCESS);
  {
    ge::Session session(Options{});
    Weights weights;
    const std::array<ge::Operator, 4> variables = Variables(weights);
    const std::array<ge::Operator, 4> states = Variables(weights, "state_");
    std::vector<ge::Tensor> outputs;
    ASSERT_EQ(session.AddGraph(1, Beginning(weights, {variables, states})), ge::SUCCESS) << aclGetRecentErrMsg();
    ASSERT_EQ(session.RunGraph(1, {}, outputs), ge::SUCCESS) << aclGetRecentErrMsg();
    ASSERT_EQ(session.AddGraph(2, Training(variables, states).Build()), ge::SUCCESS) << aclGetRecentErrMsg();
    const Numbers x = Drawn(kImages, 77, 1);
    const Numbers labels = LabelsOf();
    std::vector<float> totals;
    for (int run = 0; run < 8; ++run) {
      SCOPED_TRACE(run);
      const Plain plain(weights, x);
      ASSERT_EQ(session.RunGraph(2, {TensorOf(kImages, x), TensorOf(kLabels, labels)}, outputs), ge::SUCCESS)
          << aclGetRecentErrMsg();
      const Numbers losses = Values(outputs.at(0));
      ExpectNear(losses, plain.Losses(labels), 1e-4F);
      totals.push_back(losses[0] + losses[1] + losses[2] + losses[3]);
      plain.Step(weights, x, labels);
    }
    EXPECT_LT(totals.back(), 0.5F * totals.front());
    // The weights, and the states of the optimizer that no output names.
    const std::vector<ge::AscendString> names = {"filter", "matrix", "state_filter_bias", "state_matrix"};
    ASSERT_EQ(session.GetVariables(names, outputs), ge::SUCCESS) << aclGetRecentErrMsg();
    ASSERT_EQ(outputs.size(), 4U);
    ExpectNear(Values(outputs[0]), weights.values[0], 1e-3F);
    ExpectNear(Values(outputs[1]), weights.values[2], 1e-3F);
    ExpectNear(Values(outputs[2]), weights.states[1], 1e-3F);
    ExpectNear(Values(outputs[3]), weights.states[2], 1e-3F);
  }
  EXPECT_EQ(ge::GEFinalize(), ge::SUCCESS);
}

TEST_F(LeNet, RunsAsAnOfflineModel) {
  Options global;
  ASSERT_EQ(ge::aclgrphBuildInitialize(global), ge::GRAPH_SUCCESS);
  const Weights weights;
  std::array<ge::Operator, 4> constants;
  for (size_t i = 0; i < 4; ++i) constants[i] = Constant(weights.names[i], weights.dims[i], weights.values[i]);
  op::Data x = Input("x", 0, kImages);
  const Net net(x, constants);
  op::SoftmaxV2 softmax("softmax");
  softmax.set_input_x(net.scores);
  ge::Graph graph("lenet");
  graph.SetInputs({x}).SetOutputs({softmax});
  ge::ModelBufferData model;
  ASSERT_EQ(ge::aclgrphBuildModel(graph, Options{}, model), ge::GRAPH_SUCCESS) << aclGetRecentErrMsg();
  uint32_t id = 0;
  ASSERT_EQ(aclmdlLoadFromMem(model.data.get(), model.length, &id), ACL_SUCCESS) << aclGetRecentErrMsg();

  const Numbers images = Drawn(kImages, 5, 1);
  const size_t bytes[2] = {images.size() * sizeof(float), kBatch * kClasses * sizeof(float)};
  void* memory[2] = {};
  aclDataBuffer* buffers[2] = {};
  aclmdlDataset* lists[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(aclrtMalloc(&memory[i], bytes[i], ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    buffers[i] = aclCreateDataBuffer(memory[i], bytes[i]);
    lists[i] = aclmdlCreateDataset();
    ASSERT_EQ(aclmdlAddDatasetBuffer(lists[i], buffers[i]), ACL_SUCCESS);
  }
  ASSERT_EQ(aclrtMemcpy(memory[0], bytes[0], images.data(), bytes[0], ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
  ASSERT_EQ(aclmdlExecute(id, lists[0], lists[1]), ACL_SUCCESS) << aclGetRecentErrMsg();
  Numbers found(kBatch * kClasses);
  ASSERT_EQ(aclrtMemcpy(found.data(), bytes[1], memory[1], bytes[1], ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
  const Plain plain(weights, images);
  ExpectNear(found, Numbers(plain.probabilities.begin(), plain.probabilities.end()), 1e-5F);

  EXPECT_EQ(aclmdlUnload(id), ACL_SUCCESS);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(aclmdlDestroyDataset(lists[i]), ACL_SUCCESS);
    EXPECT_EQ(aclDestroyDataBuffer(buffers[i]), ACL_SUCCESS);
    aclrtFree(memory[i]);
  }
  ge::aclgrphBuildFinalize();
}

}  // namespace
