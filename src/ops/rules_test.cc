// SPDX-License-Identifier: Apache-2.0
#include "ops/rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace reprise::ops {
namespace {

struct Case {
  std::vector<int64_t> a, b;
  const char* expected;  // null: they do not broadcast
};

TEST(BroadcastTest, AlignsAtTheLastDimAndRepeatsOnes) {
  const Case cases[] = {
      {{}, {}, "[]"},
      {{3}, {}, "[3]"},
      {{4, 2}, {1, 2}, "[4, 2]"},
      {{4, 1}, {3}, "[4, 3]"},
      {{2, 1, 5}, {7, 1}, "[2, 7, 5]"},
      {{0}, {1}, "[0]"},
      {{3, 0}, {1, 1}, "[3, 0]"},
      {{3}, {4}, nullptr},
      {{0}, {2}, nullptr},
      {{2, 3}, {2, 1, 2}, nullptr},
  };
  for (const Case& c : cases) {
    for (const bool swapped : {false, true}) {
      const auto& a = swapped ? c.b : c.a;
      const auto& b = swapped ? c.a : c.b;
      Dims result;
      const bool fits = Broadcast(a, b, result);
      EXPECT_EQ(fits, c.expected != nullptr) << ShapeText(a) << " and " << ShapeText(b);
      if (fits && c.expected != nullptr) {
        EXPECT_EQ(ShapeText(result), c.expected);
      }
    }
  }
}

TEST(BroadcastTest, TheResultMayBeAnInput) {
  Dims shape;
  shape.push_back(1);
  const int64_t other[] = {5, 4};
  ASSERT_TRUE(Broadcast(shape, other, shape));
  EXPECT_EQ(ShapeText(shape), "[5, 4]");
}

TEST(OpTableTest, EveryRowIsFoundByItsNumber) {
  for (int i = 0; i < static_cast<int>(OpId::kCount); ++i) {
    const OpSchema& op = SchemaOf(static_cast<OpId>(i));
    EXPECT_EQ(static_cast<int>(op.id), i);
    EXPECT_EQ(op.name.substr(0, 5), "aclnn");
    EXPECT_NE(op.computation.lower, nullptr) << op.name;
    EXPECT_NE(op.computation.dtype_rule, nullptr) << op.name;
    EXPECT_NE(op.computation.shape_rule, nullptr) << op.name;
  }
}

TEST(OpTableTest, ComputationsFollowTheRowsOfTheirFunctions) {
  for (int i = 0; i < static_cast<int>(OpId::kCount); ++i) {
    const opdef::Function& function = opdef::FunctionOf(static_cast<OpId>(i));
    const OpSchema& op = SchemaOf(function.id);
    EXPECT_EQ(static_cast<int>(function.id), i);
    EXPECT_EQ(function.name, op.name);
    EXPECT_EQ(opdef::FindFunction(function.name), function.id);
    EXPECT_EQ(function.aliasing, op.computation.aliasing) << op.name;
    EXPECT_EQ(function.engine, op.computation.engine) << op.name;
  }
  EXPECT_EQ(opdef::FindFunction("aclnnNoSuchFunction"), OpId::kCount);
}

TEST(OpTableTest, OneNameOfARuleIsOneFunction) {
  for (int i = 0; i < static_cast<int>(OpId::kCount); ++i) {
    for (int j = 0; j < i; ++j) {
      const opdef::Function& a = opdef::FunctionOf(static_cast<OpId>(i));
      const opdef::Function& b = opdef::FunctionOf(static_cast<OpId>(j));
      const Computation& of_a = SchemaOf(a.id).computation;
      const Computation& of_b = SchemaOf(b.id).computation;
      EXPECT_EQ(a.type_rule == b.type_rule, of_a.dtype_rule == of_b.dtype_rule) << a.name << " and " << b.name;
      EXPECT_EQ(a.shape_rule == b.shape_rule, of_a.shape_rule == of_b.shape_rule) << a.name << " and " << b.name;
    }
  }
}

TEST(OpTableTest, RowsTellWhatToolsAskFor) {
  const opdef::Function& add = opdef::FunctionOf(OpId::kAdd);
  EXPECT_EQ(opdef::NameOf(add.type_rule), "PromoteInputs");
  EXPECT_EQ(opdef::NameOf(add.shape_rule), "BroadcastInputs");
  EXPECT_EQ(add.aliasing, Aliasing::kSameView);
  EXPECT_EQ(add.determinism, opdef::Determinism::kAlways);
  EXPECT_EQ(add.computation, "kAdd");
  EXPECT_EQ(add.graph_op, "Add");
  EXPECT_EQ(add.params[2].default_value, "1");
  EXPECT_EQ(opdef::FunctionOf(OpId::kIndexAdd).determinism, opdef::Determinism::kByOption);
  EXPECT_EQ(opdef::FunctionOf(OpId::kInplaceNormal).determinism, opdef::Determinism::kSampling);
  EXPECT_EQ(opdef::FunctionOf(OpId::kMm).engine, Engine::kCube);
}

}  // namespace
}  // namespace reprise::ops
