// SPDX-License-Identifier: Apache-2.0
//
// Compiled graphs that run: memory, addresses that change, shapes that only runs know, branches, loops, captures.
#include <acl/acl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "compiler/picture.h"
#include "compiler/tune.h"
#include "compiler/tuning_bank.h"
#include "compiler_run_fixture.h"
#include "product_generator.h"
#include "runtime/tasks.h"
#include "scale.h"

namespace reprise::compiler {
namespace {

constexpr const char* kChain =
    "graph chain\n"
    "x = Data() : float32 [4]\n"
    "one = Const() : float32 [4] = 1, 1, 1, 1\n"
    "a = Add(x, one)\n"
    "b = Mul(a, a)\n"
    "c = Sub(b, one)\n"
    "d = Abs(c)\n"
    "return d\n";

TEST_F(CompilerRun, AChainTakesOneBlock) {
  EXPECT_OK(Compile(kChain));
  EXPECT_TRUE(executable_->is_static());
  EXPECT_EQ(executable_->needs().features, 512U) << "each value is written over the one before";
  EXPECT_EQ(executable_->needs().constants, 512U);
  const auto out = Run({In({0, 1, -2, 3}, {4})});
  EXPECT_EQ(Values(out[0]), (std::vector<float>{0, 3, 0, 15}));
}

TEST_F(CompilerRun, WithoutReuseEachValueHasABlock) {
  CompileOptions options;
  options.reuses_memory = false;
  EXPECT_OK(Compile(kChain, options));
  EXPECT_EQ(executable_->needs().features, 3U * 512U);
  EXPECT_EQ(Values(Run({In({0, 1, -2, 3}, {4})})[0]), (std::vector<float>{0, 3, 0, 15}));
}

// What is spread over rows or over columns, and what a reduction gave, is read by the tasks of one group.
TEST_F(CompilerRun, GroupsRunAcrossBroadcasts) {
  testing::ProductGenerator generator;
  EXPECT_OK(
      Compile("graph spread\n"
              "x = Data() : float32 [2, 1, 2048]\n"
              "y = Data() : float32 [2, 3, 2048]\n"
              "w = Data() : float32 [2048]\n"
              "axes = Const() : int32 [1] = -1\n"
              "m = ReduceMax(y, axes){keep_dims=true} : float32 [2, 3, 1]\n"
              "a = Mul(x, y)\n"
              "b = Mul(a, w)\n"
              "c = Mul(b, m)\n"
              "return c\n"));
  std::vector<float> x(2 * 2048), y(2 * 3 * 2048), w(2048);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 5) - 2;
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i % 7 + i / 2048);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 3);
  std::vector<float> expected(y.size());
  for (size_t row = 0; row < 6; ++row) {
    const float most = *std::max_element(y.begin() + row * 2048, y.begin() + (row + 1) * 2048);
    for (size_t j = 0; j < 2048; ++j) {
      expected[row * 2048 + j] = x[row / 3 * 2048 + j] * y[row * 2048 + j] * w[j] * most;
    }
  }
  for (int run = 0; run < 5; ++run) {
    ASSERT_EQ(Values(Run({In(x, {2, 1, 2048}), In(y, {2, 3, 2048}), In(w, {2048})})[0]), expected) << run;
  }
  const char* const is_fused = std::getenv("REPRISE_FUSE");
  if (is_fused != nullptr && std::string_view(is_fused) == "0") return;
  EXPECT_GT(generator.made, 0) << "the three products are one group";
  executable_.reset();  // before its generator
}

TEST_F(CompilerRun, EachRunHasAddressesOfItsOwn) {
  EXPECT_OK(Compile(kChain));
  std::vector<std::vector<RunTensor>> outputs(20);
  for (size_t run = 0; run < outputs.size(); ++run) {
    if (run % 3 == 0) EXPECT_OK(executable_->SetFeatures(Block(512), 512));
    const auto value = static_cast<float>(run);
    EXPECT_OK(Queue({In({value, 0, 0, value}, {4})}, outputs[run]));  // no wait in between
  }
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  for (size_t run = 0; run < outputs.size(); ++run) {
    const float value = (static_cast<float>(run) + 1) * (static_cast<float>(run) + 1) - 1;
    EXPECT_EQ(Values(outputs[run][0]), (std::vector<float>{value, 0, 0, value})) << run;
  }
}

TEST_F(CompilerRun, OutputsMayLieWhereInputsAre) {
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [2, 2]\nt = TransposeD(x) {perm = [1, 0]}\nreturn t, x\n"));
  const RunTensor x = In({1, 2, 3, 4}, {2, 2});
  std::vector<RunTensor> outputs(2);
  outputs[0].data = x.data;
  outputs[0].bytes = x.bytes;
  EXPECT_OK(Queue({x}, outputs));
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(Values(outputs[0]), (std::vector<float>{1, 3, 2, 4}));
  EXPECT_EQ(Values(outputs[1]), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(CompilerRun, ViewsAndPiecesAreNoCopies) {
  EXPECT_OK(
      Compile("graph g\n"
              "x = Data() : float32 [4, 2]\n"
              "s = SplitD(x) {split_dim = 0, num_split = 2} : y0 float32 [2, 2], y1 float32 [2, 2]\n"
              "f = FlattenV2(s:1) {axis = 0, end_axis = 1}\n"
              "y = Abs(f)\n"
              "return y, s:0\n"));
  EXPECT_EQ(executable_->needs().features, 0U);
  const auto out = Run({In({1, 2, 3, 4, -5, 6, -7, 8}, {4, 2})});
  EXPECT_EQ(Values(out[0]), (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(Values(out[1]), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(CompilerRun, ReferencesAreWrittenInPlace) {
  EXPECT_OK(
      Compile("graph g\n"
              "v = Data() : float32 [3]\n"
              "x = Data() : float32 [3]\n"
              "w = Assign(ref = v, value = x)\n"
              "y = Abs(w)\n"
              "return y\n"));
  const RunTensor v = In({0, 0, 0}, {3});
  EXPECT_EQ(Values(Run({v, In({1, -2, 3}, {3})})[0]), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(Values(v), (std::vector<float>{1, -2, 3}));
}

TEST_F(CompilerRun, ConstantsAreNotWritten) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [2]\nc = Const() : float32 [2] = 2, 3\n"
              "w = AssignAdd(ref = c, value = x)\nreturn w\n"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Values(Run({In({1, 1}, {2})})[0]), (std::vector<float>{3, 4}));
}

TEST_F(CompilerRun, OperatorsWithoutStepsAreRefusedByName) {
  const Status status = Compile(
      "graph g\nx = Data() : float32 [1]\ny = HcomAllReduce(x) {reduction = \"sum\", group = \"g\"}\nreturn y\n");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), 100024);
  EXPECT_NE(status.detail().what.find("HcomAllReduce"), std::string::npos) << status.detail().what;
}

TEST_F(CompilerRun, WrongTensorsAreRefused) {
  EXPECT_OK(Compile(kChain));
  std::vector<RunTensor> outputs;
  const auto refusal = [&](const std::vector<RunTensor>& inputs) {
    const Status status = Queue(inputs, outputs);
    return status.ok() ? std::string("nothing") : status.detail().what;
  };
  EXPECT_EQ(refusal({}), "the run has 0 inputs, the graph 1");
  EXPECT_EQ(refusal({In({1, 2}, {2})}), "input 0 (x) has the shape [2], the graph takes [4]");
  EXPECT_EQ(refusal({In(std::vector<int32_t>{1, 2, 3, 4}, {4}, kInt32)}),
            "input 0 (x) is int32, the graph takes float32");
  RunTensor none = In({1, 2, 3, 4}, {4});
  none.data = nullptr;
  EXPECT_EQ(refusal({none}), "input 0 (x) has no memory");
  outputs.assign(1, {});
  outputs[0].data = Block(8);
  outputs[0].bytes = 8;
  EXPECT_EQ(refusal({In({1, 2, 3, 4}, {4})}), "output 0 has 8 bytes, 16 are needed for [4]");
}

// ---- Shapes that only runs know ----

TEST_F(CompilerRun, ShapesFollowTheInputs) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [?, 2]\naxes = Const() : int64 [1] = 1\n"
              "s = ReduceSum(x, axes) {keep_dims = false}\nreturn s\n"));
  EXPECT_FALSE(executable_->is_static());
  for (const int64_t rows : {3, 1, 0, 5, 3}) {
    std::vector<float> values(static_cast<size_t>(rows * 2), 1.5F);
    const auto out = Run({In(values, {rows, 2})});
    EXPECT_EQ(out[0].shape, (std::vector<int64_t>{rows}));
    EXPECT_EQ(Values(out[0]), std::vector<float>(static_cast<size_t>(rows), 3));
  }
}

TEST_F(CompilerRun, SizesThatAreNoneAreRefused) {
  for (const std::string shape : {"[?, ?]", "[..]"}) {
    EXPECT_OK(Compile("graph g\nx = Data() : float32 " + shape + "\ny = Abs(x)\nreturn y\n"));
    std::vector<RunTensor> outputs;
    const Status large = Queue({In({1, 2}, {int64_t{1} << 62, 8})}, outputs);
    EXPECT_EQ(large.ok() ? "" : large.detail().what,
              "input 0 (x) has the shape [4611686018427387904, 8], which is too large");
    EXPECT_FALSE(Queue({In({1, 2}, {-1, -2})}, outputs).ok());
  }
}

TEST_F(CompilerRun, RanksMayBeOpen) {
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [..]\ny = Abs(x)\nreturn y\n"));
  EXPECT_EQ(Values(Run({In({-1}, {})})[0]), (std::vector<float>{1}));
  EXPECT_EQ(Values(Run({In({-1, 2}, {1, 2})})[0]), (std::vector<float>{1, 2}));
}

TEST_F(CompilerRun, ValuesOfHostInputsDecideShapes) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [6]\nn = Data() : int64 [2]\ny = Reshape(x, n)\nz = Abs(y)\nreturn z\n"));
  const RunTensor x = In({1, 2, 3, 4, 5, -6}, {6});
  for (const auto& wanted : std::vector<std::vector<int64_t>>{{2, 3}, {3, -1}, {6, 1}}) {
    RunTensor n = In(wanted, {2}, kInt64);
    n.on_host = true;
    const auto out = Run({x, n});
    EXPECT_EQ(out[0].shape[0], wanted[0]);
    EXPECT_EQ(Values(out[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    n.on_host = false;  // on the device: the run waits for it
    EXPECT_EQ(Values(Run({x, n})[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  }
}

TEST_F(CompilerRun, BranchesAndLoops) {
  EXPECT_OK(
      Compile("graph g\n"
              "p = Data() : bool []\n"
              "x = Data() : float32 [2]\n"
              "i = If(p, x) calls (yes, no) : output0 float32 [2]\n"
              "y = Abs(i)\n"
              "return y, i\n"
              "\n"
              "graph yes\na = Data() : float32 [2]\nb = Add(a, a)\nreturn b\n"
              "\n"
              "graph no\na = Data() : float32 [2]\nb = Neg(a)\nreturn b\n"));
  for (const bool yes : {true, false, true}) {
    const auto out = Run({In(std::vector<uint8_t>{yes}, {}, kBool), In({1, -3}, {2})});
    EXPECT_EQ(Values(out[1]), yes ? (std::vector<float>{2, -6}) : (std::vector<float>{-1, 3}));
    EXPECT_EQ(Values(out[0]), yes ? (std::vector<float>{2, 6}) : (std::vector<float>{1, 3}));
  }
  EXPECT_OK(
      Compile("graph g\n"
              "n = Data() : int32 []\n"
              "x = Data() : float32 [2]\n"
              "w = While(n, x) calls (goes_on, body) : output0 int32 [], output1 float32 [2]\n"
              "return w:1\n"
              "\n"
              "graph goes_on\nn = Data() : int32 []\nx = Data() : float32 [2]\nzero = Const() : int32 [] = 0\n"
              "c = Greater(n, zero)\nreturn c\n"
              "\n"
              "graph body\nn = Data() : int32 []\nx = Data() : float32 [2]\none = Const() : int32 [] = 1\n"
              "m = Sub(n, one)\ny = Add(x, x)\nreturn m, y\n"));
  for (const int32_t trips : {0, 1, 5}) {
    const auto out = Run({In(std::vector<int32_t>{trips}, {}, kInt32), In({1, -3}, {2})});
    const auto factor = static_cast<float>(1 << trips);
    EXPECT_EQ(Values(out[0]), (std::vector<float>{factor, -3 * factor})) << trips;
  }
}

TEST_F(CompilerRun, GE_092_BranchesAndLoopsKeepWhatOthersRead) {
  EXPECT_OK(
      Compile("graph g\n"
              "p = Data() : bool []\n"
              "x = Data() : float32 [2]\n"
              "a = Abs(x)\n"
              "i = If(p, a) calls (yes, no) : output0 float32 [2]\n"
              "y = Neg(a)\n"
              "return i, y\n"
              "\n"
              "graph yes\na = Data() : float32 [2]\none = Const() : float32 [2] = 1, 1\n"
              "s = AssignAdd(a, one)\nreturn s\n"
              "\n"
              "graph no\na = Data() : float32 [2]\nb = Exp(a)\nreturn b\n"));
  const auto out = Run({In(std::vector<uint8_t>{1}, {}, kBool), In({1, -3}, {2})});
  EXPECT_EQ(Values(out[0]), (std::vector<float>{2, 4}));
  EXPECT_EQ(Values(out[1]), (std::vector<float>{-1, -3}));
  EXPECT_OK(
      Compile("graph g\n"
              "n = Data() : int32 []\n"
              "x = Data() : float32 [2]\n"
              "one = Const() : float32 [2] = 1, 1\n"
              "w = While(n, x) calls (goes_on, body) : output0 int32 [], output1 float32 [2]\n"
              "s = AssignAdd(w:1, one)\n"
              "return s\n"
              "\n"
              "graph goes_on\nn = Data() : int32 []\nx = Data() : float32 [2]\nzero = Const() : int32 [] = 0\n"
              "c = Greater(n, zero)\nreturn c\n"
              "\n"
              "graph body\nn = Data() : int32 []\nx = Data() : float32 [2]\none = Const() : int32 [] = 1\n"
              "m = Sub(n, one)\ny = Add(x, x)\nreturn m, y\n"));
  for (const int32_t trips : {0, 1, 2}) {
    const RunTensor x = In({1, -3}, {2});
    const auto factor = static_cast<float>(1 << trips);
    EXPECT_EQ(Values(Run({In(std::vector<int32_t>{trips}, {}, kInt32), x})[0]),
              (std::vector<float>{factor + 1, -3 * factor + 1}));
    EXPECT_EQ(Values(x), (std::vector<float>{1, -3})) << "the caller's input, after " << trips << " trips";
  }
}

TEST_F(CompilerRun, CalledGraphsBecomePartOfTheirCaller) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [2]\nc = PartitionedCall(x) calls (inner) : output0 float32 [2]\n"
              "y = Neg(c)\nreturn y\n\ngraph inner\na = Data() : float32 [2]\nb = Abs(a)\nreturn b\n"));
  EXPECT_TRUE(executable_->is_static());
  EXPECT_EQ(Values(Run({In({1, -3}, {2})})[0]), (std::vector<float>{-1, -3}));
}

// ---- Constants in memory of the caller's ----

// Memory that an allocator gives in the order of a stream: what lay there before is still being written.
class UsedMemory : public CompilerRun {
 protected:
  void SetUp() override {
    CompilerRun::SetUp();
    EXPECT_OK(Compile(kChain));
    base_ = Block(executable_->needs().constants);
    ASSERT_GT(executable_->needs().constants, 0u);
    EXPECT_OK(executable_->SetConstants(base_, executable_->needs().constants));
  }
  void TearDown() override {
    Open();
    CompilerRun::TearDown();
  }
  void WriteLater(aclrtStream stream) {
    auto found = runtime::FindStream(stream);
    ASSERT_TRUE(found.ok());
    const auto write = [this](device::RunContext&) -> Status {
      while (!is_open_.load()) std::this_thread::yield();
      std::memset(base_, 0x41, executable_->needs().constants);
      return {};
    };
    EXPECT_OK(runtime::SubmitClosure(*found.value(), "what the block was used for before", write));
  }
  void Open() { is_open_ = true; }

  void* base_ = nullptr;
  std::atomic<bool> is_open_{false};
};

TEST_F(UsedMemory, ConstantsAreWrittenBehindWhatTheStreamStillWrites) {
  WriteLater(stream_);
  const std::vector<RunTensor> x{In({1, -2, 3, 0}, {4})};
  std::vector<RunTensor> first, second;
  EXPECT_OK(Queue(x, first));
  EXPECT_OK(Queue(x, second));
  Open();
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  for (const auto& outputs : {first, second, Run(x)}) {
    EXPECT_EQ(Values(outputs[0]), (std::vector<float>{3, 0, 15, 0}));
  }
}

TEST_F(UsedMemory, OtherStreamsAndCapturesWaitForThem) {
  const std::vector<RunTensor> x{In({1, -2, 3, 0}, {4})};
  for (const bool is_capture : {false, true}) {
    EXPECT_OK(executable_->SetConstants(base_, executable_->needs().constants));
    is_open_ = false;
    WriteLater(stream_);
    std::vector<RunTensor> outputs;
    if (!is_capture) EXPECT_OK(Queue(x, outputs));
    aclrtStream other = nullptr;
    ASSERT_EQ(aclrtCreateStream(&other), ACL_SUCCESS);
    std::thread opens([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Open();
    });
    aclmdlRI model = nullptr;
    if (is_capture) {
      ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), ACL_SUCCESS);
      EXPECT_OK(Queue(x, outputs));
      ASSERT_EQ(aclmdlRICaptureEnd(stream_, &model), ACL_SUCCESS);
      ASSERT_EQ(aclmdlRIExecuteAsync(model, other), ACL_SUCCESS);
    } else {
      std::swap(stream_, other);
      EXPECT_OK(Queue(x, outputs));
      std::swap(stream_, other);
    }
    ASSERT_EQ(aclrtSynchronizeStream(other), ACL_SUCCESS);
    EXPECT_EQ(Values(outputs[0]), (std::vector<float>{3, 0, 15, 0})) << is_capture;
    opens.join();
    ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
    if (model != nullptr) aclmdlRIDestroy(model);
    aclrtDestroyStream(other);
  }
}

// ---- Captures ----

TEST_F(CompilerRun, ARunCanBeCaptured) {
  EXPECT_OK(Compile(kChain));
  const RunTensor x = In({0, 1, -2, 3}, {4});
  std::vector<RunTensor> outputs;
  EXPECT_OK(Queue({x}, outputs));
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), ACL_SUCCESS);
  EXPECT_OK(Queue({x}, outputs));
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream_, &model), ACL_SUCCESS);
  for (float value = 0; value < 5; ++value) {
    static_cast<float*>(x.data)[0] = value;
    ASSERT_EQ(aclmdlRIExecuteAsync(model, stream_), ACL_SUCCESS);
    std::vector<RunTensor> others;
    EXPECT_OK(Queue({In({7, 7, 7, 7}, {4})}, others));  // between two replays, with other addresses
    ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
    EXPECT_EQ(Values(outputs[0])[0], (value + 1) * (value + 1) - 1);
    EXPECT_EQ(Values(others[0])[0], 63);
  }
  ASSERT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
}

TEST_F(CompilerRun, RunsThatWaitCannotBeCaptured) {
  EXPECT_OK(
      Compile("graph g\np = Data() : bool []\nx = Data() : float32 [2]\n"
              "i = If(p, x) calls (yes, yes) : output0 float32 [2]\nreturn i\n\n"
              "graph yes\na = Data() : float32 [2]\nb = Add(a, a)\nreturn b\n"));
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), ACL_SUCCESS);
  std::vector<RunTensor> outputs;
  const Status status = Queue({In(std::vector<uint8_t>{1}, {}, kBool), In({1, -3}, {2})}, outputs);
  EXPECT_FALSE(status.ok());
  aclmdlRI model = nullptr;
  aclmdlRICaptureEnd(stream_, &model);
  if (model != nullptr) aclmdlRIDestroy(model);
  EXPECT_EQ(status.code(), 107027);
}

// ---- Streams ----

TEST_F(CompilerRun, LabelsAreStreams) {
  const std::string text =
      "graph g\n"
      "x = Data() : float32 [64]\n"
      "a = Abs(x) notes {_user_stream_label = \"left\", _user_stream_priority = \"1\"}\n"
      "b = Neg(x) notes {_user_stream_label = \"right\"}\n"
      "c = Mul(a, a) notes {_user_stream_label = \"left\"}\n"
      "d = Add(c, b)\n"
      "e = Sub(d, b)\n"
      "return e\n";
  EXPECT_OK(Compile(text));
  ASSERT_EQ(executable_->streams(), 3U);
  EXPECT_EQ(executable_->logical_streams()[1].label, "left");
  EXPECT_EQ(executable_->logical_streams()[1].priority, "1");
  EXPECT_EQ(executable_->logical_streams()[1].nodes.size(), 2U);
  EXPECT_EQ(executable_->events(), 2U) << "one for each label: the second use of b is covered by the first";
  for (int i = 0; i < 20; ++i) {
    const auto value = static_cast<float>(i);
    const auto out = Run({In(std::vector<float>(64, value), {64})});
    EXPECT_EQ(Values(out[0]), std::vector<float>(64, value * value));
  }
  CompileOptions single;
  single.has_single_stream = true;
  const Status status = Compile(text, single);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.detail().what.find("the stream label left"), std::string::npos) << status.detail().what;
}

// Random graphs on random streams: results are those of one stream, whoever is first.
TEST_F(CompilerRun, StreamsChangeNoResult) {
  std::mt19937 random(11);
  for (int round = 0; round < testing::Loops(25, 8); ++round) {
    std::string plain = "graph g\nx = Data() : float32 [300]\ny = Data() : float32 [300]\n";
    std::string labelled = plain;
    std::vector<std::string> values = {"x", "y"};
    const auto any = [&] { return values[random() % values.size()]; };
    for (int i = 0; i < 25; ++i) {
      const std::string name = "n" + std::to_string(i);
      const char* const types[] = {"Add", "Sub", "Maximum"};
      const std::string line = name + " = " + types[random() % 3] + "(" + any() + ", " + any() + ")";
      plain += line + "\n";
      labelled += line;
      if (random() % 3 != 0) labelled += " notes {_stream_label = \"s" + std::to_string(random() % 3) + "\"}";
      labelled += "\n";
      values.push_back(name);
    }
    const std::string results = "return " + any() + ", " + values.back() + "\n";
    std::vector<float> a(300), b(300);
    for (float& value : a) value = static_cast<float>(static_cast<int>(random() % 9) - 4);
    for (float& value : b) value = static_cast<float>(static_cast<int>(random() % 9) - 4);
    EXPECT_OK(Compile(plain + results));
    const auto expected = Run({In(a, {300}), In(b, {300})});
    EXPECT_OK(Compile(labelled + results));
    for (int again = 0; again < 10; ++again) {
      const auto out = Run({In(a, {300}), In(b, {300})});
      for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(Values(out[i]), Values(expected[i])) << labelled;
    }
  }
}

// ---- Tuning ----

constexpr const char* kLarge =
    "graph large\n"
    "x = Data() : float32 [512, 512]\n"
    "w = Const() : float32 [512, 512] = 0.5 ...\n"
    "p = MatMulV2(x1 = x, x2 = w)\n"
    "y = Abs(p)\n"
    "return y\n";

TEST_F(CompilerRun, TuningKeepsTheBestChoice) {
  const std::string folder = ::testing::TempDir() + "/bank_" + std::to_string(getpid());
  auto bank = TuningBank::Open(folder);
  ASSERT_TRUE(bank.ok());
  auto graph = FromText(kLarge);
  ASSERT_TRUE(graph.ok());
  auto found = runtime::FindStream(stream_);
  ASSERT_TRUE(found.ok());
  const std::vector<RunTensor> inputs = {In(std::vector<float>(512 * 512, 2), {512, 512})};
  TuneOptions options;
  std::vector<std::string> told;
  options.progress = [&](size_t done, size_t total, const std::string&) {
    EXPECT_LT(done, total);
    told.push_back(std::to_string(done));
    return true;
  };
  // One thread is the fastest, says the clock.
  options.measure = [](const std::string&, const std::string& choice) { return choice == "split 0" ? 1.0 : 10.0; };
  auto report = Tune(**graph, {}, *found.value(), inputs, *bank.value(), options);
  ASSERT_TRUE(report.ok()) << std::move(report).status().detail().what;
  if (report->tried == 0) GTEST_SKIP() << "one worker splits nothing";
  EXPECT_EQ(report->improved, report->tried);
  EXPECT_EQ(told.size(), report->tried);
  // Another process reads the file, and compiles with it.
  auto again = TuningBank::Open(folder);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->size(), report->tried);
  CompileOptions compile;
  compile.bank = again.value();
  EXPECT_OK(Compile(kLarge, compile));
  EXPECT_EQ(Values(Run(inputs)[0])[0], 512);
  auto known = Tune(**graph, {}, *found.value(), inputs, *bank.value(), options);
  ASSERT_TRUE(known.ok());
  EXPECT_EQ(known->tried, 0U);
  EXPECT_EQ(known->known, report->tried);
  std::filesystem::remove_all(folder);
}

TEST_F(CompilerRun, TuningIsMeasuredAndEndsWhenAsked) {
  const std::string folder = ::testing::TempDir() + "/bank_ended_" + std::to_string(getpid());
  auto bank = TuningBank::Open(folder);
  ASSERT_TRUE(bank.ok());
  std::ofstream(bank.value()->path(), std::ios::app) << "no entry\n{\"version\":1}\n";
  auto graph = FromText(kLarge);
  ASSERT_TRUE(graph.ok());
  auto found = runtime::FindStream(stream_);
  ASSERT_TRUE(found.ok());
  const std::vector<RunTensor> inputs = {In(std::vector<float>(512 * 512, 2), {512, 512})};
  TuneOptions options;
  options.progress = [](size_t done, size_t, const std::string&) { return done == 0; };
  auto report = Tune(**graph, {}, *found.value(), inputs, *bank.value(), options);
  ASSERT_TRUE(report.ok()) << std::move(report).status().detail().what;
  EXPECT_LE(report->tried, 1U);
  auto again = TuningBank::Open(folder);
  ASSERT_TRUE(again.ok()) << "damaged lines are passed over";
  EXPECT_EQ((*again)->size(), report->tried);
  EXPECT_EQ(Values(std::vector<RunTensor>(inputs)[0])[0], 2) << "the inputs are the caller's";
  std::filesystem::remove_all(folder);
}

// ---- Pictures ----

TEST_F(CompilerRun, PictureOfACompilation) {
  const std::string text =
      "graph picture\n"
      "x = Data() : float32 [16, 32]\n"
      "s = Sigmoid(x)\n"
      "swish = Mul(x, s)\n"
      "soft = SoftmaxV2(swish) {axes = [-1]}\n"
      "y = Mul(soft, swish)\n"
      "return y\n";
  auto given = FromText(text);
  ASSERT_TRUE(given.ok()) << std::move(given).status().detail().what;
  (*given)->name = "a<b";
  EXPECT_OK(Compile(text));
  const std::vector<PlannedBlock> plan = executable_->memory_plan();
  ASSERT_FALSE(plan.empty());
  for (const PlannedBlock& block : plan) {
    EXPECT_LT(block.begin, block.end);
    EXPECT_LE(block.offset + block.bytes, executable_->needs().features);
  }
  const std::string svg = CompilationPicture(**given, executable_->graph(), executable_->pass_records(), plan);
  for (const char* part : {"Graph a&lt;b", "As given: 5 nodes", "As it runs: 4 nodes", "SwishFusionPass × 1",
                           ">Sigmoid<", ">Swish<", "float32 [16, 32]", "Memory between the nodes"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(svg.find("a<b"), std::string::npos);
  const std::string without = CompilationPicture(**given, **given, {}, {});
  EXPECT_NE(without.find("nothing was fused"), std::string::npos);
  EXPECT_EQ(without.find("Memory between"), std::string::npos);
}

// ---- Against loops ----

// Random graphs of element-wise operators, sums over dims and transposes, many values alive at once: with and without
// shared memory the results are those of the operators one by one.
TEST_F(CompilerRun, SharedMemoryChangesNoResult) {
  std::mt19937 random(7);
  for (int round = 0; round < testing::Loops(30, 8); ++round) {
    std::string text = "graph g\nx = Data() : float32 [3, 5]\ny = Data() : float32 [3, 5]\n";
    std::vector<std::string> values = {"x", "y"};
    const auto any = [&] { return values[random() % values.size()]; };
    const int nodes = 3 + static_cast<int>(random() % 20);
    for (int i = 0; i < nodes; ++i) {
      const std::string name = "n" + std::to_string(i);
      switch (random() % 5) {
        case 0: text += name + " = Add(" + any() + ", " + any() + ")\n"; break;
        case 1: text += name + " = Sub(" + any() + ", " + any() + ")\n"; break;
        case 2: text += name + " = Maximum(" + any() + ", " + any() + ")\n"; break;
        case 3: text += name + " = Abs(" + any() + ")\n"; break;
        default: {
          text += name + "t = TransposeD(" + any() + ") {perm = [1, 0]}\n";
          text += name + " = TransposeD(" + name + "t) {perm = [1, 0]}\n";
        }
      }
      values.push_back(name);
    }
    text += "return " + any() + ", " + any() + ", " + values.back() + "\n";
    std::vector<float> a(15), b(15);
    for (float& value : a) value = static_cast<float>(static_cast<int>(random() % 9) - 4);
    for (float& value : b) value = static_cast<float>(static_cast<int>(random() % 9) - 4);
    std::vector<std::vector<float>> expected;
    for (const bool reuses : {false, true}) {
      CompileOptions options;
      options.reuses_memory = reuses;
      EXPECT_OK(Compile(text, options));
      for (int again = 0; again < 2; ++again) {
        const auto out = Run({In(a, {3, 5}), In(b, {3, 5})});
        if (expected.empty()) {
          for (const RunTensor& tensor : out) expected.push_back(Values(tensor));
        }
        for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(Values(out[i]), expected[i]) << text;
      }
    }
  }
}

}  // namespace
}  // namespace reprise::compiler
