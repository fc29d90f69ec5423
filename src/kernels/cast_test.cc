// SPDX-License-Identifier: Apache-2.0
#include "kernels/cast.h"

#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using namespace testing;

TEST(CastTest, EveryPairOfTypesMatchesTheReference) {
  Rng rng(4);
  for (DType from : kAllDTypes) {
    for (DType to : kAllDTypes) {
      const CastFn cast = FindCast(from, to);
      for (int64_t n : {0, 1, 3, 8, 37, 300}) {
        for (int layout = 0; layout < 4; ++layout) {
          TestTensor src = MakeTensor(rng, from, {2 * n + 1});
          TestTensor dst = MakeTensor(rng, to, {2 * n + 1});
          FillRandom(rng, src.ref);
          const int64_t src_stride = layout == 3 ? 0 : layout & 1 ? 2 : 1;
          const int64_t dst_stride = layout & 2 ? 2 : 1;
          cast(static_cast<char*>(src.ref.data), src_stride * ItemSize(from), static_cast<char*>(dst.ref.data),
               dst_stride * ItemSize(to), n);
          for (int64_t i = 0; i < n; ++i) {
            const Num value = At(src.ref, i * src_stride);
            const Num got = At(dst.ref, i * dst_stride);
            ASSERT_TRUE(Same(got, RefCast(value, from, to)))
                << Name(from) << " " << static_cast<double>(value.re) << " to " << Name(to) << ": "
                << static_cast<double>(got.re);
          }
        }
      }
    }
  }
}

TEST(CastTest, OutOfRangeFloatsSaturate) {
  EXPECT_EQ(CastValue<int8_t>(1e9f), 127);
  EXPECT_EQ(CastValue<int8_t>(-1e9f), -128);
  EXPECT_EQ(CastValue<uint8_t>(-1.0f), 0);
  EXPECT_EQ(CastValue<uint8_t>(255.9), 255);
  EXPECT_EQ(CastValue<int32_t>(std::nan("")), 0);
  EXPECT_EQ(CastValue<int64_t>(INFINITY), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(CastValue<int64_t>(-INFINITY), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(CastValue<uint64_t>(1e30), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(CastValue<int32_t>(-2147483648.5), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(CastValue<int32_t>(-0.9), 0);
  EXPECT_TRUE(static_cast<bool>(CastValue<Bool>(std::nan(""))));
  EXPECT_TRUE(static_cast<bool>(CastValue<Bool>(std::complex<float>(0, 1))));
  EXPECT_EQ(CastValue<int16_t>(int32_t{70000}), 4464);
  EXPECT_EQ(CastValue<int32_t>(std::complex<double>(-3.7, 9)), -3);
}

TEST(CastTest, ATwoStepReaderEqualsTwoCasts) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    const DType from = PickDType(rng);
    const DType middle = PickDType(rng);
    const DType to = PickDType(rng);
    const int64_t n = Pick(rng, 0, 700);
    const TestTensor src = RandomTensor(rng, from, {n}, TestLayout::kContiguous);
    const TestTensor dst = MakeTensor(rng, to, {n});
    RowReader(from, middle, to)
        .Read(static_cast<char*>(src.ref.data), ItemSize(from), static_cast<char*>(dst.ref.data), ItemSize(to), n);
    for (int64_t i = 0; i < n; ++i) {
      const Num expected = RefCast(RefCast(At(src.ref, i), from, middle), middle, to);
      ASSERT_TRUE(Same(At(dst.ref, i), expected)) << Name(from) << Name(middle) << Name(to);
    }
  }
}

TEST(CastTest, AScalarReadsAsAnyType) {
  const Scalar s = Scalar::Of(-2.5);
  EXPECT_EQ(s.dtype, DType::kDouble);
  EXPECT_EQ(s.As<float>(), -2.5f);
  EXPECT_EQ(s.As<int32_t>(), -2);
  EXPECT_EQ(s.As<std::complex<double>>(), std::complex<double>(-2.5, 0));
  EXPECT_EQ(static_cast<float>(s.As<Half>()), -2.5f);
}

}  // namespace
}  // namespace reprise::kernels
