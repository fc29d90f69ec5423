// SPDX-License-Identifier: Apache-2.0
//
// reprise/operator.h: calls that are made again in other memory.
#include <reprise/operator.h>

#include <array>
#include <numeric>

#include "fixture.h"

namespace reprise::testing {
namespace {

using Kind = OperatorArgument::Kind;

constexpr int64_t kCount = 64;

class Prepared : public GraphTest {
 protected:
  static constexpr int64_t kSizes[1] = {kCount};
  static constexpr int64_t kStrides[1] = {1};

  void SetUp() override {
    GraphTest::SetUp();
    memory_ = Floats(kAll, stream_);
    std::iota(memory_, memory_ + kAll, 0.0F);
  }
  void TearDown() override {
    device_memory::Free(memory_);
    GraphTest::TearDown();
  }

  static std::unique_ptr<PreparedOperator> MakeAdd(void* a, void* b, void* out) {
    const std::array<TensorView, 3> views = {{{a, ACL_FLOAT, 1, kSizes, kStrides},
                                              {b, ACL_FLOAT, 1, kSizes, kStrides},
                                              {out, ACL_FLOAT, 1, kSizes, kStrides}}};
    static const int64_t kOne = 1;
    static const OperatorArgument::ScalarValue kAlpha = {&kOne, ACL_INT64};
    const std::array<OperatorArgument, 4> args = {{{.kind = Kind::kTensor, .values = &views[0], .count = 1},
                                                   {.kind = Kind::kTensor, .values = &views[1], .count = 1},
                                                   {.kind = Kind::kScalar, .values = &kAlpha, .count = 1},
                                                   {.kind = Kind::kTensor, .values = &views[2], .count = 1}}};
    return PreparedOperator::Make(FindOperator("aclnnAdd"), args.data(), args.size());
  }
  static bool Move(PreparedOperator& plan, void* a, void* b, void* out) {
    const std::array<void*, 3> data = {a, b, out};
    return plan.Move(data.data(), data.size());
  }
  float* At(int64_t block) { return memory_ + block * kCount; }
  void ExpectSum(const float* a, const float* b, const float* out) {
    for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(out[i], a[i] + b[i]) << i;
  }

  static constexpr size_t kAll = 16 * kCount;
  float* memory_ = nullptr;
};

TEST_F(Prepared, MovesToOtherMemory) {
  const auto plan = MakeAdd(At(0), At(1), At(8));
  ASSERT_NE(plan, nullptr);
  ASSERT_TRUE(plan->can_move());
  plan->Launch(nullptr, nullptr);
  for (int64_t i = 1; i < 6; ++i) {
    ASSERT_TRUE(Move(*plan, At(i), At(i + 1), At(8 + i)));
    plan->Launch(nullptr, nullptr);
  }
  Wait(stream_);
  for (int64_t i = 0; i < 6; ++i) ExpectSum(At(i), At(i + 1), At(8 + i));
}

TEST_F(Prepared, IsMadeAnewWhereMemoryOverlapsOtherwise) {
  const auto apart = MakeAdd(At(0), At(1), At(8));
  ASSERT_NE(apart, nullptr);
  EXPECT_FALSE(Move(*apart, At(0), At(1), At(0))) << "in place, and it was not";
  EXPECT_FALSE(Move(*apart, At(0), At(1), At(0) + 16)) << "a part of it";
  EXPECT_FALSE(Move(*apart, At(2), At(2), At(8))) << "operands that are one";
  EXPECT_TRUE(Move(*apart, At(2), At(3), At(9))) << "nothing has changed meanwhile";
  apart->Launch(nullptr, nullptr);
  Wait(stream_);
  ExpectSum(At(2), At(3), At(9));

  const auto in_place = MakeAdd(At(0), At(1), At(0));
  ASSERT_NE(in_place, nullptr);
  EXPECT_FALSE(Move(*in_place, At(0), At(1), At(8)));
  EXPECT_TRUE(Move(*in_place, At(4), At(5), At(4)));
}

TEST_F(Prepared, IsMadeAnewForOtherAlignmentAndOtherNumbersOfTensors) {
  const auto plan = MakeAdd(At(0), At(1), At(8));
  ASSERT_NE(plan, nullptr);
  EXPECT_FALSE(Move(*plan, At(0) + 1, At(2), At(8)));
  EXPECT_FALSE(Move(*plan, At(0), nullptr, At(8)));
  const std::array<void*, 4> data = {At(0), At(1), At(8), At(9)};
  EXPECT_FALSE(plan->Move(data.data(), 2));
  EXPECT_FALSE(plan->Move(data.data(), 4));
  EXPECT_TRUE(plan->Move(data.data(), 3));
}

TEST_F(Prepared, AGraphKeepsTheMemoryThatItWasCapturedWith) {
  const auto plan = MakeAdd(At(0), At(1), At(8));
  ASSERT_NE(plan, nullptr);
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
  plan->Launch(stream_, nullptr);
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream_, &model), 0);
  ASSERT_TRUE(Move(*plan, At(2), At(3), At(9)));
  plan->Launch(stream_, nullptr);
  ASSERT_EQ(aclmdlRIExecuteAsync(model, stream_), 0);
  Wait(stream_);
  ExpectSum(At(0), At(1), At(8));
  ExpectSum(At(2), At(3), At(9));
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

}  // namespace
}  // namespace reprise::testing
