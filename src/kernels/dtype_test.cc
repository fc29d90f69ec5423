// SPDX-License-Identifier: Apache-2.0
#include "kernels/dtype.h"

#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using enum DType;
using testing::RoundFloating;
using testing::SamePart;

TEST(DTypeTest, NumbersSizesAndNamesAreThoseOfTheAbi) {
  struct Case {
    DType dtype;
    int number;
    int64_t bytes;
    const char* name;
    Category category;
  };
  const Case kCases[] = {{kFloat, 0, 4, "float32", Category::kFloating},
                         {kFloat16, 1, 2, "float16", Category::kFloating},
                         {kInt8, 2, 1, "int8", Category::kInteger},
                         {kInt32, 3, 4, "int32", Category::kInteger},
                         {kUInt8, 4, 1, "uint8", Category::kInteger},
                         {kInt16, 6, 2, "int16", Category::kInteger},
                         {kUInt16, 7, 2, "uint16", Category::kInteger},
                         {kUInt32, 8, 4, "uint32", Category::kInteger},
                         {kInt64, 9, 8, "int64", Category::kInteger},
                         {kUInt64, 10, 8, "uint64", Category::kInteger},
                         {kDouble, 11, 8, "float64", Category::kFloating},
                         {kBool, 12, 1, "bool", Category::kBool},
                         {kComplex64, 16, 8, "complex64", Category::kComplex},
                         {kComplex128, 17, 16, "complex128", Category::kComplex},
                         {kBFloat16, 27, 2, "bfloat16", Category::kFloating}};
  ASSERT_EQ(std::size(kCases), kAllDTypes.size());
  for (size_t i = 0; i < kAllDTypes.size(); ++i) {
    const Case& c = kCases[i];
    EXPECT_EQ(kAllDTypes[i], c.dtype);
    EXPECT_EQ(static_cast<int>(c.dtype), c.number);
    EXPECT_EQ(ItemSize(c.dtype), c.bytes);
    EXPECT_EQ(Name(c.dtype), c.name);
    EXPECT_EQ(CategoryOf(c.dtype), c.category);
    EXPECT_EQ(DTypeIndex(c.dtype), static_cast<int>(i));
    DispatchAll(c.dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      EXPECT_EQ(DTypeOf<T>(), c.dtype);
      EXPECT_EQ(static_cast<int64_t>(sizeof(T)), c.bytes);
    });
  }
  for (int number : {-1, 5, 13, 14, 15, 18, 26, 28, 1000}) {
    EXPECT_FALSE(IsKnown(static_cast<DType>(number)));
    EXPECT_EQ(ItemSize(static_cast<DType>(number)), 0);
    EXPECT_EQ(Name(static_cast<DType>(number)), "undefined");
  }
}

TEST(DTypeTest, PromotionIsSymmetricAndIdempotent) {
  for (DType a : kAllDTypes) {
    EXPECT_EQ(Promote(a, a), a);
    EXPECT_EQ(Promote(kBool, a), a);
    EXPECT_EQ(Promote(a, kUndefined), kUndefined);
    for (DType b : kAllDTypes) {
      const DType c = Promote(a, b);
      EXPECT_EQ(c, Promote(b, a));
      if (c == kUndefined) continue;
      EXPECT_EQ(Promote(a, c), c);
      EXPECT_TRUE(CanCast(a, c));
      EXPECT_TRUE(CanCast(b, c));
    }
  }
}

TEST(DTypeTest, PromotionFollowsTheTable) {
  struct Case {
    DType a, b, expected;
  };
  const Case kCases[] = {{kUInt8, kInt8, kInt16},
                         {kUInt8, kInt16, kInt16},
                         {kUInt8, kInt32, kInt32},
                         {kInt8, kInt16, kInt16},
                         {kInt16, kInt32, kInt32},
                         {kInt32, kInt64, kInt64},
                         {kInt64, kFloat16, kFloat16},
                         {kInt64, kFloat, kFloat},
                         {kUInt8, kBFloat16, kBFloat16},
                         {kFloat16, kBFloat16, kFloat},
                         {kFloat16, kFloat, kFloat},
                         {kBFloat16, kDouble, kDouble},
                         {kFloat, kDouble, kDouble},
                         {kFloat, kComplex64, kComplex64},
                         {kFloat16, kComplex64, kComplex64},
                         {kDouble, kComplex64, kComplex128},
                         {kInt64, kComplex64, kComplex64},
                         {kComplex64, kComplex128, kComplex128},
                         {kBool, kUInt32, kUInt32},
                         {kUInt16, kFloat16, kFloat16},
                         {kUInt64, kDouble, kDouble},
                         {kUInt32, kComplex64, kComplex64},
                         {kUInt16, kInt16, kUndefined},
                         {kUInt32, kUInt8, kUndefined},
                         {kUInt64, kInt64, kUndefined},
                         {kUInt16, kUInt32, kUndefined}};
  for (const Case& c : kCases) {
    EXPECT_EQ(Promote(c.a, c.b), c.expected) << Name(c.a) << " with " << Name(c.b);
  }
}

TEST(DTypeTest, AWeakScalarChangesOnlyTheCategory) {
  struct Case {
    DType tensor, scalar, expected;
  };
  const Case kCases[] = {{kFloat16, kDouble, kFloat16},
                         {kInt8, kInt64, kInt8},
                         {kInt32, kDouble, kFloat},
                         {kBool, kInt32, kInt64},
                         {kBool, kBool, kBool},
                         {kFloat, kInt64, kFloat},
                         {kBool, kFloat, kFloat},
                         {kInt64, kComplex128, kComplex64},
                         {kDouble, kComplex64, kComplex128},
                         {kFloat16, kComplex128, kComplex64},
                         {kComplex64, kDouble, kComplex64},
                         {kUInt32, kInt64, kUInt32}};
  for (const Case& c : kCases) {
    EXPECT_EQ(PromoteWithScalar(c.tensor, c.scalar), c.expected) << Name(c.tensor) << " with " << Name(c.scalar);
  }
}

TEST(DTypeTest, CastingNeverLosesACategory) {
  for (DType from : kAllDTypes) {
    for (DType to : kAllDTypes) {
      bool expected = true;
      const Category a = CategoryOf(from);
      const Category b = CategoryOf(to);
      if (a == Category::kComplex && b != Category::kComplex) expected = false;
      if (a == Category::kFloating && b == Category::kInteger) expected = false;
      if (from != kBool && to == kBool) expected = false;
      EXPECT_EQ(CanCast(from, to), expected) << Name(from) << " to " << Name(to);
    }
  }
  EXPECT_FALSE(CanCast(kUndefined, kFloat));
}

TEST(Float16Test, EveryHalfSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 65536; ++bits) {
    const Half half = Half::FromBits(static_cast<uint16_t>(bits));
    const float value = static_cast<float>(half);
    EXPECT_TRUE(SamePart(value, testing::Read(kFloat16, reinterpret_cast<const char*>(&half)).re));
    const bool is_nan = (bits & 0x7fff) > 0x7c00;
    EXPECT_EQ(Half(value).bits, is_nan ? bits | 0x200 : bits);
    const BFloat16 brain = BFloat16::FromBits(static_cast<uint16_t>(bits));
    const bool is_brain_nan = (bits & 0x7fff) > 0x7f80;
    EXPECT_EQ(BFloat16(static_cast<float>(brain)).bits, is_brain_nan ? bits | 0x40 : bits);
  }
}

TEST(Float16Test, FloatsRoundToTheNearestEven) {
  testing::Rng rng(1);
  for (int i = 0; i < 400000; ++i) {
    auto bits = static_cast<uint32_t>(rng());
    if (i % 2 == 0) bits = (bits & 0x8fffffffu) | 0x30000000u;  // within reach of half
    if (i % 4 == 0) bits &= 0xfffff000u;                        // many exact ties
    const float value = std::bit_cast<float>(bits);
    const Half half(value);
    const BFloat16 brain(value);
    const auto read = [](DType t, const void* p) { return testing::Read(t, static_cast<const char*>(p)).re; };
    ASSERT_TRUE(SamePart(read(kFloat16, &half), RoundFloating(value, kFloat16))) << value;
    ASSERT_TRUE(SamePart(read(kBFloat16, &brain), RoundFloating(value, kBFloat16))) << value;
  }
}

}  // namespace
}  // namespace reprise::kernels
