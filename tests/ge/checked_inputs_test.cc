// SPDX-License-Identifier: Apache-2.0
//
// Weights that are inputs: what a compilation makes of them is used while they stay as they are, and never longer.
#include "compiler/checked_inputs.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/verbose.h"
#include "device/write_watch.h"
#include "engine_fixture.h"
#include "ops/digest.h"
#include "ops/prepared_weights.h"

namespace reprise::engine {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kWidth = 128;

constexpr const char* kProductText = R"(graph product
x = Data() : float32 [64, 128]
w = Data() : float32 [128, 128]
b = Data() : float32 [128]
t = MatMulV2(x, w)
y = Add(t, b)
return y
)";

// A convolution with a batch norm behind it: 8 pictures, so that the layout is worth changing.
constexpr const char* kNormText = R"(graph norm
x = Data() : float32 [1, 16, 24, 24]
f = Data() : float32 [32, 16, 3, 3]
mean = Data() : float32 [32]
variance = Data() : float32 [32]
scale = Data() : float32 [32]
offset = Data() : float32 [32]
c = Conv2D(x = x, filter = f) {strides = [1, 1, 1, 1], pads = [1, 1, 1, 1], dilations = [1, 1, 1, 1], data_format = "NCHW"}
n = BNInfer(x = c, scale = scale, offset = offset, mean = mean, variance = variance) {epsilon = 1e-05}
y = Relu(n)
return y
)";

// A transposed convolution and a norm that nothing folds into it, whose statistics and numbers may be the same.
constexpr const char* kTransposedText = R"(graph transposed
x = Data() : float32 [2, 16, 8, 8]
f = Data() : float32 [16, 32, 4, 4]
zeros = Data() : float32 [32]
ones = Data() : float32 [32]
size = Const() : int64 [4] = 2, 32, 16, 16
c = Conv2DBackpropInput(size, f, x) {strides = [1, 1, 2, 2], pads = [1, 1, 1, 1], dilations = [1, 1, 1, 1], data_format = "NCHW"}
r = Relu(c)
offset = Data() : float32 [32]
scale = Data() : float32 [32]
y = BNInfer(x = r, scale = scale, offset = offset, mean = zeros, variance = ones) {epsilon = 1e-05}
return y
)";

// One filter that two transposed convolutions pack, each in its own way.
constexpr const char* kTwoText = R"(graph two
x = Data() : float32 [2, 16, 8, 8]
f = Data() : float32 [16, 32, 4, 4]
large = Const() : int64 [4] = 2, 32, 16, 16
small = Const() : int64 [4] = 2, 32, 9, 9
a = Conv2DBackpropInput(large, f, x) {strides = [1, 1, 2, 2], pads = [1, 1, 1, 1], dilations = [1, 1, 1, 1], data_format = "NCHW"}
b = Conv2DBackpropInput(small, f, x) {strides = [1, 1, 1, 1], pads = [1, 1, 1, 1], dilations = [1, 1, 1, 1], data_format = "NCHW"}
s = ReduceSumD(a) {axes = [2, 3], keep_dims = true}
y = Add(b, s)
return y
)";

constexpr const char* kLayerText = R"(graph layer
x = Data() : float32 [32, 8, 64]
wi = Data() : float32 [256, 64]
wh = Data() : float32 [256, 64]
bi = Data() : float32 [256]
bh = Data() : float32 [256]
y = LSTMFused(x, wi, wh, bi, bh)
return y
)";

class CheckedInputs : public EngineTest {
 protected:
  static inline const std::pair<const std::string, std::string> kOn = {"reprise.preparedInputBytes", "1073741824"};

  void Load(const char* text, const char* weights, const OptionMap& options = {kOn}) {
    AddCompiled(1, text, options);
    ASSERT_EQ(Text(session_->LoadGraph(1, {{"reprise.checkedInputIndexes", weights}}, stream_)), "");
  }
  // The weights are a number; the elements of x are 1.
  void MakeProduct(float weight) {
    inputs_ = {OnDevice(std::vector<float>(kRows * kWidth, 1), {kRows, kWidth}),
               OnDevice(std::vector<float>(kWidth * kWidth, weight), {kWidth, kWidth}),
               OnDevice(std::vector<float>(kWidth, 0.5F), {kWidth})};
  }
  std::vector<float> Execute() {
    std::vector<OutputTensor> outputs;
    EXPECT_EQ(Text(session_->Execute(1, stream_, inputs_, outputs)), "");
    Sync();
    return outputs.empty() ? std::vector<float>() : Floats(outputs[0].data, outputs[0].bytes);
  }
  void ExpectProduct(float weight) {
    const std::vector<float> result = Execute();
    ASSERT_EQ(result.size(), static_cast<size_t>(kRows * kWidth));
    for (const float element : result) ASSERT_EQ(element, kWidth * weight + 0.5F);
  }
  compiler::CheckedRuns Counts() {
    const auto found = (*session_->Compiled(1))->checked_runs();
    return found.value_or(compiler::CheckedRuns());
  }

  std::vector<InputTensor> inputs_;
};

TEST_F(CheckedInputs, AreCompiledInOnceAndUsedWhereverTheyLie) {
  Load(kProductText, "1;2");
  MakeProduct(2);
  for (int run = 0; run < 3; ++run) ExpectProduct(2);
  MakeProduct(2);  // the same values at another place
  ExpectProduct(2);
  EXPECT_EQ(Counts().preparations, 1U);
  EXPECT_EQ(Counts().prepared, 4U);
  EXPECT_EQ(Counts().general, 0U);
}

TEST_F(CheckedInputs, EveryWayToChangeThemIsSeen) {
  const std::vector<float> threes(kWidth * kWidth, 3);
  const std::vector<std::pair<const char*, std::function<void(InputTensor&)>>> ways = {
      {"by the host", [&](InputTensor& w) { std::memcpy(w.data, threes.data(), w.bytes); }},
      {"by a copy",
       [&](InputTensor& w) {
         ASSERT_EQ(aclrtMemcpy(w.data, w.bytes, threes.data(), w.bytes, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
       }},
      {"by a copy that is queued and not waited for",
       [&](InputTensor& w) {
         void* const source = Block(w.bytes);
         std::memcpy(source, threes.data(), w.bytes);
         ASSERT_EQ(aclrtMemcpyAsync(w.data, w.bytes, source, w.bytes, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
                   ACL_SUCCESS);
       }},
      {"by another tensor",
       [&](InputTensor& w) {
         w = OnDevice(threes, {kWidth, kWidth});
       }},
  };
  for (const auto& [name, change] : ways) {
    SCOPED_TRACE(name);
    Load(kProductText, "1;2");
    MakeProduct(1);
    ExpectProduct(1);
    change(inputs_[1]);
    ExpectProduct(3);
    EXPECT_EQ(Counts().prepared, 1U);
    EXPECT_EQ(Counts().general, 1U);
    ASSERT_EQ(session_->RemoveGraph(1).code(), 0);
  }
}

TEST_F(CheckedInputs, OneBitIsEnough) {
  Load(kProductText, "1;2");
  MakeProduct(1);
  ExpectProduct(1);
  float* const last = static_cast<float*>(inputs_[1].data) + kWidth * kWidth - 1;
  *last = std::nextafter(1.0F, 2.0F);
  (void)Execute();
  EXPECT_EQ(Counts().general, 1U);
}

TEST_F(CheckedInputs, ArePreparedAgainWhenTheyStayTheSame) {
  Load(kProductText, "1;2");
  MakeProduct(1);
  ExpectProduct(1);
  MakeProduct(2);
  for (int run = 0; run < 40; ++run) ExpectProduct(2);
  EXPECT_EQ(Counts().preparations, 2U);
  const uint64_t general = Counts().general;
  ExpectProduct(2);
  EXPECT_EQ(Counts().general, general);
}

TEST_F(CheckedInputs, WeightsThatAlwaysChangeAreNotPreparedAgain) {
  Load(kProductText, "1;2");
  for (int run = 0; run < 100; ++run) {
    MakeProduct(static_cast<float>(run));
    ExpectProduct(static_cast<float>(run));
    for (void* block : std::exchange(blocks_, {})) aclrtFree(block);
  }
  EXPECT_EQ(Counts().preparations, 1U);
  EXPECT_EQ(Counts().general, 1U);
}

TEST_F(CheckedInputs, CapturedRunsLookAtEachReplay) {
  Load(kProductText, "1;2");
  MakeProduct(1);
  ExpectProduct(1);
  std::vector<OutputTensor> outputs(1);
  outputs[0].data = Block(kRows * kWidth * 4);
  outputs[0].bytes = kRows * kWidth * 4;
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), ACL_SUCCESS);
  EXPECT_EQ(Text(session_->Execute(1, stream_, inputs_, outputs)), "");
  aclmdlRI graph = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream_, &graph), ACL_SUCCESS);
  for (const float weight : {1.0F, 5.0F, 1.0F}) {
    const std::vector<float> values(kWidth * kWidth, weight);
    std::memcpy(inputs_[1].data, values.data(), inputs_[1].bytes);
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), ACL_SUCCESS);
    Sync();
    EXPECT_EQ(Floats(outputs[0].data, 4)[0], kWidth * weight + 0.5F);
  }
  EXPECT_EQ(Counts().prepared, 3U);
  EXPECT_EQ(Counts().general, 1U);
  // What is stale is dropped by the next run, and still there for the captured one.
  ExpectProduct(1);
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), ACL_SUCCESS);
  Sync();
  EXPECT_EQ(Floats(outputs[0].data, 4)[0], kWidth + 0.5F);
  ASSERT_EQ(aclmdlRIDestroy(graph), ACL_SUCCESS);
}

TEST_F(CheckedInputs, ResultsInTheMemoryOfAnInputAreWrittenOnce) {
  Load(kProductText, "1;2");
  MakeProduct(1);
  ExpectProduct(1);
  std::vector<OutputTensor> outputs(1);
  outputs[0].data = inputs_[0].data;
  outputs[0].bytes = kRows * kWidth * 4;
  EXPECT_EQ(Text(session_->Execute(1, stream_, inputs_, outputs)), "");
  Sync();
  const std::vector<float> result = Floats(outputs[0].data, outputs[0].bytes);
  EXPECT_EQ(result, std::vector<float>(kRows * kWidth, kWidth + 0.5F));
}

TEST_F(CheckedInputs, NormsAreFoldedIntoConvolutions) {
  Load(kNormText, "1;2;3;4;5");
  const auto ramp = [](size_t count, float step) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = step * static_cast<float>(i % 13) - 2 * step;
    return values;
  };
  inputs_ = {OnDevice(ramp(16 * 24 * 24, 0.1F), {1, 16, 24, 24}),
             OnDevice(ramp(32 * 16 * 9, 0.05F), {32, 16, 3, 3}),
             OnDevice(ramp(32, 0.2F), {32}),
             OnDevice(std::vector<float>(32, 2), {32}),
             OnDevice(ramp(32, 0.3F), {32}),
             OnDevice(ramp(32, 0.4F), {32})};
  const std::vector<float> first = Execute();
  EXPECT_EQ(Counts().prepared, 1U);
  // The statistics change: the same numbers as from the graph that reads them.
  const std::vector<float> variance(32, 7);
  std::memcpy(inputs_[3].data, variance.data(), inputs_[3].bytes);
  const std::vector<float> second = Execute();
  EXPECT_EQ(Counts().general, 1U);
  for (size_t i = 0; i < first.size(); i += 97) {
    const float offset = ramp(32, 0.4F)[i / (24 * 24)];
    const float scaled = (first[i] - offset) * std::sqrt((2 + 1e-5F) / (7 + 1e-5F)) + offset;
    if (first[i] > 0 && second[i] > 0) {
      EXPECT_NEAR(second[i], scaled, 1e-3) << i;
    }
  }
}

std::vector<float> Ramp(int64_t count, float step) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = step * static_cast<float>(i % 17) - 8 * step;
  return values;
}

TEST_F(CheckedInputs, EachConvolutionHasItsOwnPackedFilter) {
  const auto feed = [&] {
    inputs_ = {OnDevice(Ramp(2 * 16 * 64, 0.1F), {2, 16, 8, 8}), OnDevice(Ramp(16 * 32 * 16, 0.02F), {16, 32, 4, 4})};
  };
  Load(kTwoText, "1", {{"reprise.preparedInputBytes", "0"}});
  feed();
  const std::vector<float> plain = Execute();
  ASSERT_EQ(session_->RemoveGraph(1).code(), 0);
  Load(kTwoText, "1");
  feed();
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Execute(), plain);
  EXPECT_EQ(Counts().prepared, 3U);
}

// Four forms of one filter take more than a graph may keep of it.
TEST_F(CheckedInputs, GraphsThatReadThemAnewSayWhy) {
  std::string text = "graph four\nx = Data() : float32 [2, 16, 8, 8]\nf = Data() : float32 [16, 32, 4, 4]\n";
  const struct { int stride, pad, size; } forms[] = {{1, 0, 11}, {1, 1, 9}, {2, 0, 18}, {2, 1, 16}};
  for (const auto& [stride, pad, size] : forms) {
    const std::string name = std::to_string(size);
    text += fmt::format("n{0} = Const() : int64 [4] = 2, 32, {0}, {0}\nc{0} = Conv2DBackpropInput(n{0}, f, x) ", name);
    text += fmt::format("{{strides = [1, 1, {0}, {0}], pads = [{1}, {1}, {1}, {1}], dilations = [1, 1, 1, 1], ", stride,
                        pad);
    text +=
        fmt::format("data_format = \"NCHW\"}}\ns{0} = ReduceSumD(c{0}) {{axes = [2, 3], keep_dims = true}}\n", name);
  }
  text += "a = Add(s11, s9)\nb = Add(s18, s16)\ny = Add(a, b)\nreturn y\n";
  Load(text.c_str(), "1", {{"reprise.preparedInputBytes", std::to_string(16 * 32 * 16 * sizeof(float))}});
  inputs_ = {OnDevice(Ramp(2 * 16 * 64, 0.1F), {2, 16, 8, 8}), OnDevice(Ramp(16 * 32 * 16, 0.02F), {16, 32, 4, 4})};
  const uint64_t before = CountOf(VerboseEvent::kWeightsNotCompiledIn);
  const std::vector<float> first = Execute();
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Execute(), first);
  EXPECT_EQ(Counts().preparations, 0U);
  EXPECT_EQ(CountOf(VerboseEvent::kWeightsNotCompiledIn), before + 1);
}

TEST_F(CheckedInputs, TransposedConvolutionsPackTheirWeightOnce) {
  const auto feed = [&](float step) {  // a norm as it is before it has learned anything
    const std::vector<float> zeros(32, 0);
    const std::vector<float> ones(32, 1);
    inputs_ = {OnDevice(Ramp(2 * 16 * 64, 0.1F), {2, 16, 8, 8}),
               OnDevice(Ramp(16 * 32 * 16, step), {16, 32, 4, 4}),
               OnDevice(zeros, {32}),
               OnDevice(ones, {32}),
               OnDevice(zeros, {32}),
               OnDevice(ones, {32})};
  };
  std::vector<std::vector<float>> plain;
  Load(kTransposedText, "1;2;3;4;5", {{"reprise.preparedInputBytes", "0"}});
  for (const float step : {0.02F, 0.03F}) {
    feed(step);
    plain.push_back(Execute());
  }
  EXPECT_NE(plain[0], plain[1]);
  ASSERT_EQ(session_->RemoveGraph(1).code(), 0);
  Load(kTransposedText, "1;2;3;4;5");
  feed(0.02F);
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Execute(), plain[0]);
  EXPECT_EQ(Counts().prepared, 3U);
  const std::vector<float> other = Ramp(16 * 32 * 16, 0.03F);
  std::memcpy(inputs_[1].data, other.data(), inputs_[1].bytes);
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Execute(), plain[1]);
  EXPECT_EQ(Counts().general, 1U);
}

TEST_F(CheckedInputs, RecurrentLayersPackTheirWeightOnce) {
  const auto feed = [&](float step) {
    inputs_ = {OnDevice(Ramp(32 * 8 * 64, 0.1F), {32, 8, 64}), OnDevice(Ramp(256 * 64, 0.02F), {256, 64}),
               OnDevice(Ramp(256 * 64, step), {256, 64}), OnDevice(Ramp(256, 0.1F), {256}),
               OnDevice(Ramp(256, 0.05F), {256})};
  };
  std::vector<std::vector<float>> plain;
  Load(kLayerText, "1;2;3;4", {{"reprise.preparedInputBytes", "0"}});
  for (const float step : {0.02F, 0.03F}) {
    feed(step);
    plain.push_back(Execute());
  }
  EXPECT_NE(plain[0], plain[1]);
  ASSERT_EQ(session_->RemoveGraph(1).code(), 0);
  Load(kLayerText, "1;2;3;4");
  feed(0.02F);
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Execute(), plain[0]);
  EXPECT_EQ(Counts().prepared, 3U);
  const std::vector<float> other = Ramp(256 * 64, 0.03F);
  std::memcpy(inputs_[2].data, other.data(), inputs_[2].bytes);
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Execute(), plain[1]);
  EXPECT_EQ(Counts().general, 1U);
}

TEST_F(CheckedInputs, FrozenInputsAreCheckedToo) {
  AddCompiled(1, kProductText, {kOn});
  ASSERT_EQ(Text(session_->LoadGraph(1, {{"ge.exec.frozenInputIndexes", "1"}}, stream_)), "");
  MakeProduct(1);
  ExpectProduct(1);
  EXPECT_EQ(Counts().prepared, 1U);
  const std::vector<float> twos(kWidth * kWidth, 2);
  std::memcpy(inputs_[1].data, twos.data(), inputs_[1].bytes);
  ExpectProduct(2);
  inputs_[1] = OnDevice(std::vector<float>(kWidth * kWidth, 9), {kWidth, kWidth});  // the address stays the first one
  ExpectProduct(2);
}

TEST_F(CheckedInputs, WeightsThatTheRunWritesAreReadAsTheyAre) {
  Load(R"(graph aliased
x = Data() : float32 [64, 128]
w = Data() : float32 [128, 128]
v = Data() : float32 [128, 128]
n = Data() : float32 [128, 128]
a = Assign(v, n)
y = MatMulV2(x, w)
return y, a
)",
       "1");
  const auto square = [&](float value) {
    return OnDevice(std::vector<float>(kWidth * kWidth, value), {kWidth, kWidth});
  };
  inputs_ = {OnDevice(std::vector<float>(kRows * kWidth, 1), {kRows, kWidth}), square(1), square(5), square(6)};
  for (int run = 0; run < 2; ++run) EXPECT_EQ(Execute().front(), kWidth);
  EXPECT_EQ(Counts().prepared, 2U);
  inputs_[2] = inputs_[1];  // the memory of the weight is that of the variable
  (void)Execute();
  EXPECT_EQ(Counts().prepared, 2U);
  EXPECT_EQ(Execute().front(), 6 * kWidth);
}

TEST_F(CheckedInputs, OnlyWhatIsWorthItIsChecked) {
  const auto chosen = [&](const std::string& text, std::vector<uint32_t> asked, uint64_t most_bytes) {
    auto graph = Parse(text);
    opdef::Facts facts;
    EXPECT_TRUE(compiler::InferShapes(*graph, facts).ok());
    return compiler::ChooseCheckedInputs(*graph, {}, asked, most_bytes);
  };
  using Chosen = std::vector<uint32_t>;
  EXPECT_EQ(chosen(kProductText, {0, 1, 2}, 1 << 20), (Chosen{1, 2})) << "x is no weight of a product";
  EXPECT_EQ(chosen(kProductText, {2}, 1 << 20), Chosen()) << "a bias alone";
  EXPECT_EQ(chosen(kProductText, {1, 2}, 1 << 15), Chosen()) << "more bytes than are allowed";
  std::string short_one = kProductText;
  short_one.replace(short_one.find("[64, 128]"), 9, "[8, 128]");
  EXPECT_EQ(chosen(short_one, {1, 2}, 1 << 20), Chosen()) << "takes less than the check";
  const auto of_rows = [&](int rows) {
    return chosen("graph rows\nx = Data() : float32 [" + std::to_string(rows) +
                      ", 1024]\nw = Data() : float32 [1024, 1024]\ny = MatMulV2(x, w)\nreturn y\n",
                  {1}, 8 << 20);
  };
  EXPECT_EQ(of_rows(3), Chosen()) << "few rows";
  EXPECT_EQ(of_rows(4), Chosen{1});
  EXPECT_EQ(chosen(kLayerText, {2}, 1 << 20), Chosen{2}) << "packed for the steps";
  EXPECT_EQ(chosen(kTransposedText, {0, 1}, 1 << 20), Chosen{1}) << "the first operand is a size, the third no weight";
  EXPECT_EQ(chosen(kLayerText, {1}, 1 << 20), Chosen()) << "read once for all steps";
  const auto of_bits = [&](int64_t rows, const std::string& type, int64_t columns) {
    return chosen("graph bits\nx = Data() : float16 [" + std::to_string(rows) + ", 1024]\nw = Data() : " + type +
                      " [1024, " + std::to_string(columns) +
                      "]\ns = Data() : float16 [1024]\ny = WeightQuantBatchMatmulV2(x, w, s)\nreturn y\n",
                  {1}, 8 << 20);
  };
  const int64_t most = ops::MostPreparedAntiquantRows();
  if (most > 0) {  // of this processor
    EXPECT_EQ(of_bits(1, "int32", 1024), Chosen{1}) << "eight weights of 4 bits in a word";
    EXPECT_EQ(of_bits(most, "int32", 1024), Chosen{1});
  }
  EXPECT_EQ(of_bits(most + 1, "int32", 1024), Chosen()) << "many rows unpack it as it is";
  EXPECT_EQ(of_bits(1, "int8", 1024), Chosen()) << "weights of 8 bits are read where they lie";
  const std::string turned = R"(graph turned
x = Data() : float32 [64, 128]
w = Data() : float32 [128, 128]
p = Const() : int64 [2] = 1, 0
t = Transpose(w, p)
y = MatMulV2(x, t)
return y
)";
  EXPECT_EQ(chosen(turned, {1}, 1 << 20), Chosen{1}) << "through a transpose";
  const std::string written = R"(graph written
x = Data() : float32 [64, 128]
w = Data() : float32 [128, 128]
n = Data() : float32 [128, 128]
a = Assign(w, n)
y = MatMulV2(x, a)
return y
)";
  EXPECT_EQ(chosen(written, {1, 2}, 1 << 20), Chosen()) << "the graph writes it";
  EXPECT_EQ(chosen(kNormText, {1}, 1 << 20), (Chosen{1, 2, 3, 4, 5})) << "statistics, which nobody calls weights";
  EXPECT_EQ(chosen(kNormText, {2, 3, 4, 5}, 1 << 20), Chosen()) << "statistics alone";
}

TEST_F(CheckedInputs, OptionsSwitchThemOn) {
  Load(kProductText, "1;2", {{"reprise.preparedInputBytes", "0"}});
  MakeProduct(1);
  ExpectProduct(1);
  EXPECT_FALSE((*session_->Compiled(1))->checked_runs().has_value());
  AddCompiled(2, kProductText);
  EXPECT_NE(session_->LoadGraph(2, {{"reprise.checkedInputIndexes", "3"}}, stream_).code(), 0);
  EXPECT_NE(session_->LoadGraph(2, {{"reprise.checkedInputIndexes", "x"}}, stream_).code(), 0);
}

// By themselves weights are compiled in where looks cost nothing, and nowhere else.
TEST_F(CheckedInputs, AreOnWhereTheKernelTellsOfWrites) {
  Load(kProductText, "1;2", {});
  MakeProduct(1);
  for (int run = 0; run < 3; ++run) ExpectProduct(1);
  EXPECT_EQ(Counts().prepared, device::WriteWatch::IsPossible() ? 3U : 0U);
  *static_cast<float*>(inputs_[1].data) = 2;
  EXPECT_EQ(Execute().front(), kWidth + 1.5F);
  EXPECT_EQ(Counts().general, device::WriteWatch::IsPossible() ? 1U : 0U);
}

// A bias beside values that each run changes shares their page.
TEST_F(CheckedInputs, WhatLiesBesideThemMayChange) {
  Load(kProductText, "1;2", {});
  MakeProduct(1);
  auto* const beside = static_cast<float*>(Block(4096));
  std::fill_n(beside, kWidth, 0.5F);
  inputs_[2].data = beside;
  for (int run = 0; run < 5; ++run) {
    beside[kWidth + 3] = static_cast<float>(run);
    ExpectProduct(1);
  }
  EXPECT_EQ(Counts().general, 0U);
  beside[kWidth - 1] = 7;
  EXPECT_EQ(Execute().back(), kWidth + 7);
  EXPECT_EQ(Counts().general, device::WriteWatch::IsPossible() ? 1U : 0U);
}

// The memory of a weight becomes memory of several processes, which are not watched.
TEST_F(CheckedInputs, SharedWeightsAreReadAsTheyAre) {
  Load(kProductText, "1;2", {});
  MakeProduct(1);
  for (int run = 0; run < 2; ++run) ExpectProduct(1);
  void* shown = nullptr;
  ASSERT_EQ(aclrtMalloc(&shown, 2 << 20, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
  std::fill_n(static_cast<float*>(shown), kWidth * kWidth, 1.0F);
  inputs_[1].data = shown;
  for (int run = 0; run < 3; ++run) ExpectProduct(1);
  char key[65] = {};
  ASSERT_EQ(aclrtIpcMemGetExportKey(shown, 2 << 20, key, sizeof(key), 1), ACL_SUCCESS);
  ExpectProduct(1);
  std::fill_n(static_cast<float*>(shown), kWidth * kWidth, 2.0F);
  for (int run = 0; run < 20; ++run) ExpectProduct(2);
  std::fill_n(static_cast<float*>(shown), kWidth * kWidth, 3.0F);
  for (int run = 0; run < 20; ++run) ExpectProduct(3);
  (void)aclrtIpcMemClose(key);
  EXPECT_EQ(aclrtFree(shown), ACL_SUCCESS);
}

TEST(Digest, SeesEveryChange) {
  std::vector<char> bytes(64 * 40 + 13);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37);
  const kernels::Digest whole = ops::DigestOf(bytes.data(), bytes.size());
  EXPECT_EQ(whole, ops::DigestOf(std::vector<char>(bytes).data(), bytes.size()));
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int bit : {0, 7}) {
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      EXPECT_FALSE(ops::DigestOf(bytes.data(), bytes.size()) == whole) << i;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
    }
  }
  EXPECT_FALSE(ops::DigestOf(bytes.data(), bytes.size() - 1) == whole);
  const std::vector<char> zeros(4096);
  EXPECT_FALSE(ops::DigestOf(zeros.data(), 64) == ops::DigestOf(zeros.data(), 128));
  std::vector<char> swapped = bytes;
  std::swap_ranges(swapped.begin(), swapped.begin() + 64, swapped.begin() + 640);
  EXPECT_FALSE(ops::DigestOf(swapped.data(), swapped.size()) == whole) << "the order of lines counts";
}

}  // namespace
}  // namespace reprise::engine
