// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "fixture.h"

namespace reprise::testing {
namespace {

TEST(Float16, DecodesTheLargestExponentAsAnOrdinaryOne) {
  EXPECT_EQ(aclFloat16ToFloat(0x7C00), 65536.0f);
  EXPECT_EQ(aclFloat16ToFloat(0xFC00), -65536.0f);
  EXPECT_EQ(aclFloat16ToFloat(0x7E00), 98304.0f);
  EXPECT_EQ(aclFloat16ToFloat(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(aclFloat16ToFloat(0x3C00), 1.0f);
  EXPECT_EQ(aclFloat16ToFloat(0xC000), -2.0f);
  EXPECT_TRUE(std::signbit(aclFloat16ToFloat(0x8000)));
}

TEST(Float16, EncodingSaturatesAndRoundsToNearestEven) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(aclFloatToFloat16(kInf), 0x7BFF);
  EXPECT_EQ(aclFloatToFloat16(-kInf), 0xFBFF);
  EXPECT_EQ(aclFloatToFloat16(std::nanf("")), 0x7BFF);
  EXPECT_EQ(aclFloatToFloat16(70000.0f), 0x7BFF);
  EXPECT_EQ(aclFloatToFloat16(65519.0f), 0x7BFF);
  EXPECT_EQ(aclFloatToFloat16(-1e30f), 0xFBFF);
  EXPECT_EQ(aclFloatToFloat16(1.0f + std::ldexp(1.0f, -11)), 0x3C00);
  EXPECT_EQ(aclFloatToFloat16(1.0f + 3 * std::ldexp(1.0f, -11)), 0x3C02);
  EXPECT_EQ(aclFloatToFloat16(std::ldexp(1.0f, -25)), 0x0000);
  EXPECT_EQ(aclFloatToFloat16(-0.0f), 0x8000);
}

TEST(Float16, EveryFiniteNumberSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    if ((bits & 0x7C00) == 0x7C00) continue;
    EXPECT_EQ(aclFloatToFloat16(aclFloat16ToFloat(static_cast<aclFloat16>(bits))), bits);
  }
}

TEST(DataBuffer, HoldsAddressAndSize) {
  int data = 0;
  aclDataBuffer* buffer = aclCreateDataBuffer(&data, sizeof data);
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(aclGetDataBufferAddr(buffer), &data);
  EXPECT_EQ(aclGetDataBufferSizeV2(buffer), sizeof data);
  EXPECT_EQ(aclGetDataBufferSize(buffer), sizeof data);
  EXPECT_ACL(0, aclUpdateDataBuffer(buffer, nullptr, size_t{5} << 32));
  EXPECT_EQ(aclGetDataBufferAddr(buffer), nullptr);
  EXPECT_EQ(aclGetDataBufferSizeV2(buffer), size_t{5} << 32);
  EXPECT_ACL(0, aclDestroyDataBuffer(buffer));
}

TEST(DataBuffer, SurvivesNullStaleAndForeignPointers) {
  EXPECT_EQ(aclGetDataBufferAddr(nullptr), nullptr);
  EXPECT_EQ(aclGetDataBufferSize(nullptr), 0U);
  EXPECT_EQ(aclGetDataBufferSizeV2(nullptr), 0U);
  EXPECT_ACL(100000, aclDestroyDataBuffer(nullptr));
  EXPECT_ACL(100000, aclUpdateDataBuffer(nullptr, nullptr, 0));
  aclDataBuffer* stale = aclCreateDataBuffer(nullptr, 0);
  EXPECT_ACL(0, aclDestroyDataBuffer(stale));
  EXPECT_ACL(107017, aclDestroyDataBuffer(stale));
  EXPECT_ACL(107017, aclUpdateDataBuffer(stale, nullptr, 0));
  EXPECT_EQ(aclGetDataBufferAddr(stale), nullptr);
  int local = 0;
  EXPECT_ACL(107017, aclDestroyDataBuffer(reinterpret_cast<aclDataBuffer*>(&local)));
}

TEST(DataType, SizesFollowTheTable) {
  const std::pair<aclDataType, size_t> rows[] = {
      {ACL_FLOAT, 4},       {ACL_FLOAT16, 2},       {ACL_INT8, 1},        {ACL_INT32, 4},       {ACL_UINT8, 1},
      {ACL_INT16, 2},       {ACL_UINT16, 2},        {ACL_UINT32, 4},      {ACL_INT64, 8},       {ACL_UINT64, 8},
      {ACL_DOUBLE, 8},      {ACL_BOOL, 1},          {ACL_STRING, 0},      {ACL_COMPLEX64, 8},   {ACL_COMPLEX128, 16},
      {ACL_BF16, 2},        {ACL_INT4, 1},          {ACL_UINT1, 1},       {ACL_COMPLEX32, 4},   {ACL_HIFLOAT8, 1},
      {ACL_FLOAT8_E5M2, 1}, {ACL_FLOAT8_E4M3FN, 1}, {ACL_FLOAT8_E8M0, 1}, {ACL_FLOAT6_E3M2, 8}, {ACL_FLOAT6_E2M3, 8},
      {ACL_FLOAT4_E2M1, 8}, {ACL_FLOAT4_E1M2, 8}};
  for (const auto& [type, bytes] : rows) EXPECT_EQ(aclDataTypeSize(type), bytes) << "type " << type;
}

}  // namespace
}  // namespace reprise::testing
