// SPDX-License-Identifier: Apache-2.0
//
// What operators declare as element-wise: with which operands, and that the declared call computes what the kernel
// does.
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <vector>

#include "ops/executor.h"
#include "ops/tensor.h"

namespace reprise::ops {
namespace {

using kernels::DType;

constexpr int64_t kCount = 700;  // two units and a part

class RowsTest : public testing::Test {
 protected:
  RowsTest() : memory_(size_t{4} * kCount * 32) {
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<char>(i * 37 % 61);
  }
  ~RowsTest() override {
    for (void* executor : executors_) EXPECT_TRUE(DestroyExecutor(executor).ok());
    for (void* tensor : tensors_) EXPECT_TRUE(DestroyTensor(tensor).ok());
    for (void* scalar : scalars_) EXPECT_TRUE(DestroyScalar(scalar).ok());
  }

  char* Place(int slot) { return memory_.data() + slot * kCount * 32; }
  Argument Tensor(DType type, int slot, std::vector<int64_t> sizes = {kCount}, std::vector<int64_t> strides = {1}) {
    auto tensor = CreateTensor({sizes.data(), sizes.size(), static_cast<int32_t>(type), strides.data(), 0, 2,
                                sizes.data(), sizes.size(), Place(slot)});
    EXPECT_TRUE(tensor.ok());
    tensors_.push_back(tensor.value());
    return Argument::Handle(ParamKind::kTensor, tensor.value());
  }
  Argument Scalar(int32_t value) {
    auto scalar = CreateScalar(&value, static_cast<int32_t>(DType::kInt32));
    EXPECT_TRUE(scalar.ok());
    scalars_.push_back(scalar.value());
    return Argument::Handle(ParamKind::kScalar, scalar.value());
  }
  const Launch* Lower(OpId op, std::initializer_list<Argument> args) {
    uint64_t workspace = 0;
    void* executor = nullptr;
    const Status status = Prepare(op, {args.begin(), args.size()}, &workspace, &executor);
    EXPECT_TRUE(status.ok()) << status.detail().what;
    if (!status.ok()) return nullptr;
    executors_.push_back(executor);
    return Executors().Find(executor)->launches[0];
  }
  static bool Declares(const Launch* launch) {
    ir::Elementwise rows;
    return launch->Rows(rows);
  }
  // What the task of the launch tells of its memory.
  static std::vector<ir::Operand> OperandsOf(const Launch* launch) {
    class Collect final : public ir::OperandSink {
     public:
      std::vector<ir::Operand> operands;
      void Take(const ir::Operand& operand) override { operands.push_back(operand); }
      void TakeOpaque() override { ADD_FAILURE() << "an element-wise task tells all"; }
    };
    Collect sink;
    const LaunchTask payload{launch, nullptr, nullptr};
    ir::VisitOperands(TaskTypeOf(*launch), &payload, sink);
    return sink.operands;
  }
  // The declared call, in pieces and from the back, against the kernel in one.
  void ExpectTheSame(const Launch* launch) {
    ASSERT_NE(launch, nullptr);
    ir::Elementwise rows;
    ASSERT_TRUE(launch->Rows(rows));
    ASSERT_EQ(rows.call.count, launch->units);
    const std::vector<char> before = memory_;
    launch->kernel(*launch, {0, launch->units}, {});
    const std::vector<char> expected = memory_;
    EXPECT_NE(before, expected);
    std::copy(before.begin(), before.end(), memory_.begin());
    rows.call.function(rows.call.args, ir::kRangeUnit, rows.call.count);
    rows.call.function(rows.call.args, 0, ir::kRangeUnit);
    EXPECT_EQ(memory_, expected);
    const std::vector<ir::Operand> operands = OperandsOf(launch);
    for (size_t i = 0; i < operands.size(); ++i) {
      EXPECT_EQ(operands[i].is_written(), i == 0);
      EXPECT_TRUE(operands[i].bytes % static_cast<uint64_t>(launch->units) == 0 || operands[i].bytes <= 16)
          << "one after another, or one for all";
      EXPECT_GE(static_cast<const char*>(operands[i].begin), memory_.data());
      EXPECT_LE(static_cast<const char*>(operands[i].begin) + operands[i].bytes, memory_.data() + memory_.size());
    }
    std::copy(before.begin(), before.end(), memory_.begin());
  }

  std::vector<char> memory_;
  std::vector<void*> executors_, tensors_, scalars_;
};

TEST_F(RowsTest, ContiguousOperandsOfEveryTypeAreDeclared) {
  for (const DType type : kernels::kAllDTypes) {
    SCOPED_TRACE(static_cast<int>(type));
    ExpectTheSame(Lower(OpId::kAdd, {Tensor(type, 0), Tensor(type, 1), Scalar(1), Tensor(type, 2)}));
    ExpectTheSame(Lower(OpId::kMul, {Tensor(type, 0), Tensor(type, 1), Tensor(type, 0)}));
    ExpectTheSame(Lower(OpId::kInplaceCopy, {Tensor(type, 2), Tensor(type, 1)}));
    ExpectTheSame(Lower(OpId::kInplaceFillScalar, {Tensor(type, 2), Scalar(1)}));
    if (type == DType::kBool) continue;
    ExpectTheSame(Lower(OpId::kAdd, {Tensor(type, 0), Tensor(type, 1), Scalar(3), Tensor(type, 2)}));
    ExpectTheSame(Lower(OpId::kMuls, {Tensor(type, 0), Scalar(2), Tensor(type, 1)}));
  }
}

TEST_F(RowsTest, MixedTypesAndSinglesAreDeclared) {
  ExpectTheSame(
      Lower(OpId::kAdd, {Tensor(DType::kFloat, 0), Tensor(DType::kInt32, 1), Scalar(2), Tensor(DType::kDouble, 2)}));
  ExpectTheSame(Lower(OpId::kInplaceCopy, {Tensor(DType::kFloat16, 2), Tensor(DType::kFloat, 1)}));
  const Launch* single =
      Lower(OpId::kAdd, {Tensor(DType::kFloat, 0), Tensor(DType::kFloat, 1, {1}), Scalar(1), Tensor(DType::kFloat, 2)});
  ExpectTheSame(single);
  ir::Elementwise rows;
  ASSERT_TRUE(single->Rows(rows));
  EXPECT_EQ(OperandsOf(single)[1].bytes, uint64_t{4} * kCount);
  EXPECT_EQ(OperandsOf(single)[2].bytes, 4u) << "one element for all";
  // Two dims that are one.
  const Launch* square =
      Lower(OpId::kRelu, {Tensor(DType::kFloat, 0, {70, 10}, {10, 1}), Tensor(DType::kFloat, 2, {70, 10}, {10, 1})});
  ASSERT_TRUE(square->Rows(rows));
  EXPECT_EQ(rows.call.count, 700);
}

TEST_F(RowsTest, OneTypeHasAFunctionOfItsOwn) {
  const auto function_of = [](const Launch* launch) {
    ir::Elementwise rows;
    EXPECT_TRUE(launch->Rows(rows));
    return rows.call.function;
  };
  const auto add = [&](DType a, DType out, int32_t alpha) {
    return function_of(Lower(OpId::kAdd, {Tensor(a, 0), Tensor(a, 1), Scalar(alpha), Tensor(out, 2)}));
  };
  const auto general = add(DType::kFloat, DType::kDouble, 1);
  EXPECT_NE(add(DType::kFloat, DType::kFloat, 1), general);
  EXPECT_NE(add(DType::kFloat, DType::kFloat, 2), add(DType::kFloat, DType::kFloat, 1))
      << "no product where alpha is 1";
  EXPECT_EQ(add(DType::kFloat, DType::kFloat, 2), add(DType::kFloat, DType::kFloat, 3));
  EXPECT_NE(add(DType::kInt32, DType::kInt32, 1), general);
}

TEST_F(RowsTest, WhatIsBroadcastIsNamed) {
  const auto f = DType::kFloat;
  const auto broadcast_of = [&](const std::vector<int64_t>& of_a, const std::vector<int64_t>& of_b) {
    const auto matrix = [&](int at, const std::vector<int64_t>& sizes) {
      return Tensor(f, at, sizes, sizes.size() == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{sizes[1], 1});
    };
    ir::Elementwise rows;
    EXPECT_TRUE(Lower(OpId::kAdd, {matrix(0, of_a), matrix(1, of_b), Scalar(1), matrix(2, {7, 100})})->Rows(rows));
    EXPECT_EQ(rows.call.count, 700);
    return rows.broadcast;
  };
  EXPECT_EQ(broadcast_of({7, 100}, {7, 100}), 0U);
  EXPECT_EQ(broadcast_of({7, 100}, {1}), 0U) << "one element for all";
  EXPECT_EQ(broadcast_of({7, 100}, {100}), 0b100U) << "a row for all rows";
  EXPECT_EQ(broadcast_of({7, 1}, {7, 100}), 0b010U) << "an element for each row";
  EXPECT_EQ(broadcast_of({7, 1}, {100}), 0b110U);
}

TEST_F(RowsTest, OtherLayoutsAreNot) {
  const auto f = DType::kFloat;
  EXPECT_FALSE(Declares(Lower(OpId::kRelu, {Tensor(f, 0, {kCount}, {2}), Tensor(f, 2)}))) << "gaps";
  EXPECT_FALSE(Declares(Lower(OpId::kRelu, {Tensor(f, 0), Tensor(f, 2, {kCount}, {2})}))) << "gaps in the output";
  EXPECT_FALSE(Declares(Lower(OpId::kAdd, {Tensor(f, 0, {7, 100}, {100, 1}), Tensor(f, 1, {7, 100}, {1, 7}), Scalar(1),
                                           Tensor(f, 2, {7, 100}, {100, 1})})))
      << "columns behind each other";
  EXPECT_FALSE(Declares(Lower(OpId::kAdd, {Tensor(f, 0, {7, 100}, {100, 1}), Tensor(f, 1, {100}, {2}), Scalar(1),
                                           Tensor(f, 2, {7, 100}, {100, 1})})))
      << "a row with gaps for all rows";
  EXPECT_FALSE(Declares(Lower(OpId::kSoftmax, {Tensor(f, 0), Argument::Integer(ParamKind::kInt, 0), Tensor(f, 2)})));
}

TEST_F(RowsTest, AMovedTensorThatOverlapsTakesTheDeclarationBack) {
  const Argument a = Tensor(DType::kFloat, 0);
  const Launch* launch = Lower(OpId::kRelu, {a, Tensor(DType::kFloat, 2)});
  void* executor = executors_.back();
  ASSERT_TRUE(SetRepeatable(executor).ok());
  const auto move = [&](char* to) {
    ASSERT_TRUE(MoveTensor(executor, TensorRange::kInputs, 0, -1, a.handle, to).ok());
    launch = Executors().Find(executor)->launches[0];
  };
  move(Place(1));
  ExpectTheSame(launch);
  EXPECT_EQ(OperandsOf(launch)[1].begin, Place(1));
  move(Place(2) + 4);
  EXPECT_FALSE(Declares(launch));
  move(Place(2));
  EXPECT_TRUE(Declares(launch)) << "the very same view";
}

}  // namespace
}  // namespace reprise::ops
