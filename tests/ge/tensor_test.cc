// SPDX-License-Identifier: Apache-2.0
//
// Values: texts, shapes, descriptions, tensors, attributes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "graph/attr_value.h"
#include "graph/tensor.h"
#include "graph/types.h"
#include "message.h"

namespace {

using ge::testing::Message;
using testing::ElementsAre;
using testing::HasSubstr;

// Values of the classes have the size that programs were compiled for.
static_assert(sizeof(ge::AscendString) == 16 && sizeof(ge::Shape) == 16 && sizeof(ge::TensorDesc) == 16 &&
              sizeof(ge::Tensor) == 16 && sizeof(ge::AttrValue) == 16);
static_assert(ge::DT_BF16 == 27 && ge::DT_MAX == 42 && ge::FORMAT_FRACTAL_NZ == 29 && ge::FORMAT_NULL == 42);

TEST(GeText, ComparesAndSorts) {
  const ge::AscendString a("a"), b("b"), empty(nullptr);
  EXPECT_STREQ(a.GetString(), "a");
  EXPECT_STREQ(empty.GetString(), "");
  EXPECT_TRUE(a == ge::AscendString("a"));
  EXPECT_TRUE(empty == ge::AscendString(""));
  EXPECT_TRUE(a != b);
  EXPECT_TRUE(a < b && b > a && a <= a && b >= a);
  EXPECT_FALSE(b < a);
  EXPECT_EQ(ge::AscendString("x\0y", 3).GetLength(), 3u);
  EXPECT_EQ(ge::AscendString("abc").Find("c"), 2u);
  EXPECT_EQ(std::hash<ge::AscendString>()(a), a.Hash());
}

TEST(GeTypes, HaveNamesAndSizes) {
  EXPECT_STREQ(ge::GetFormatName(ge::FORMAT_NCHW), "NCHW");
  EXPECT_STREQ(ge::GetFormatName(static_cast<ge::Format>(29 | 4 << 8)), "FRACTAL_NZ");  // with groups
  EXPECT_STREQ(ge::GetFormatName(ge::FORMAT_RESERVED), "RESERVED");
  EXPECT_EQ(ge::GetC0Value(ge::GetFormatFromC0(ge::FORMAT_NC1HWC0, 5)), 16);
  EXPECT_EQ(ge::GetSubFormat(ge::GetFormatFromSub(ge::FORMAT_FRACTAL_Z, 7)), 7);
  const struct {
    ge::DataType type;
    int32_t size;
    int64_t of_five;
  } kCases[] = {{ge::DT_FLOAT, 4, 20},         {ge::DT_BF16, 2, 10},        {ge::DT_HIFLOAT8, 1, 5},
                {ge::DT_DUAL, 5, 25},          {ge::DT_COMPLEX128, 16, 80}, {ge::DT_STRING, -1, -1},
                {ge::DT_INT4, 1004, 3},        {ge::DT_UINT1, 1001, 1},     {ge::DT_INT2, 1002, 2},
                {ge::DT_FLOAT6_E2M3, 1006, 4}, {ge::DT_RESOURCE, 8, 40},    {ge::DT_COMPLEX32, 4, 20}};
  for (const auto& entry : kCases) {
    EXPECT_EQ(ge::GetSizeByDataType(entry.type), entry.size) << entry.type;
    EXPECT_EQ(ge::GetSizeInBytes(5, entry.type), entry.of_five) << entry.type;
  }
  EXPECT_EQ(ge::GetSizeInBytes(-1, ge::DT_FLOAT), -1);
  EXPECT_EQ(ge::GetSizeInBytes(std::numeric_limits<int64_t>::max(), ge::DT_FLOAT), -1);
}

TEST(GeShape, IsAValue) {
  ge::Shape shape({2, 3});
  ge::Shape copy = shape;
  EXPECT_EQ(copy.SetDim(0, 7), ge::GRAPH_SUCCESS);
  EXPECT_THAT(shape.GetDims(), ElementsAre(2, 3));
  EXPECT_THAT(copy.GetDims(), ElementsAre(7, 3));
  EXPECT_EQ(shape.GetShapeSize(), 6);
  EXPECT_EQ(ge::Shape({2, -1}).GetShapeSize(), -1);
  EXPECT_EQ(ge::Shape(ge::UNKNOWN_RANK).GetDimNum(), 0u);
  EXPECT_EQ(shape.SetDim(2, 1), ge::GRAPH_PARAM_OUT_OF_RANGE);
  EXPECT_EQ(shape.GetDim(9), 0);
}

TEST(GeTensorDesc, IsAValueAndKeepsWhatItIsTold) {
  ge::TensorDesc desc(ge::Shape({1, 2}), ge::FORMAT_NCHW, ge::DT_FLOAT16);
  EXPECT_EQ(desc.GetOriginFormat(), ge::FORMAT_NCHW);  // until it is set
  EXPECT_THAT(desc.GetOriginShape().GetDims(), ElementsAre(1, 2));
  const ge::TensorDesc copy = desc;
  desc.SetOriginFormat(ge::FORMAT_ND);
  desc.SetOriginShape(ge::Shape({2}));
  desc.SetShapeRange({{1, 4}, {2, -1}});
  desc.SetName("x");
  desc.SetReuseInputIndex(3);
  desc.SetExpandDimsRule("1100");
  desc.SetUnknownDimNumShape();
  EXPECT_EQ(copy.GetOriginFormat(), ge::FORMAT_NCHW);
  EXPECT_THAT(desc.GetShape().GetDims(), ElementsAre(-2));
  EXPECT_EQ(desc.GetName(), "x");
  uint32_t index = 0;
  EXPECT_TRUE(desc.GetReuseInputIndex(index));
  EXPECT_EQ(index, 3u);
  EXPECT_FALSE(copy.GetReuseInputIndex(index));
  std::vector<std::pair<int64_t, int64_t>> range;
  EXPECT_EQ(desc.GetShapeRange(range), ge::GRAPH_SUCCESS);
  EXPECT_EQ(range.size(), 2u);
  uint8_t* data = nullptr;
  size_t bytes = 0;
  EXPECT_FALSE(desc.GetConstData(&data, bytes));
  desc.SetConstData(std::unique_ptr<uint8_t[]>(new uint8_t[2]{5, 6}), 2);
  EXPECT_TRUE(desc.GetConstData(&data, bytes));
  EXPECT_EQ(bytes, 2u);
  EXPECT_EQ(data[1], 6);
}

TEST(GeTensor, KeepsItsDescription) {
  ge::TensorDesc desc;
  desc.SetDataType(ge::DT_FLOAT16);
  desc.SetFormat(ge::FORMAT_NCHW);
  desc.SetPlacement(ge::kPlacementDevice);
  desc.SetOriginShape(ge::Shape({2, 3}));
  ge::Tensor tensor;
  EXPECT_EQ(tensor.SetTensorDesc(desc), ge::GRAPH_SUCCESS);
  EXPECT_EQ(tensor.GetDataType(), ge::DT_FLOAT16);
  EXPECT_EQ(tensor.GetFormat(), ge::FORMAT_NCHW);
  EXPECT_EQ(tensor.GetPlacement(), ge::kPlacementDevice);
  EXPECT_EQ(tensor.GetOriginShapeDimNum(), 2u);
  EXPECT_EQ(tensor.SetShapeDimNum(3), ge::GRAPH_SUCCESS);
  EXPECT_EQ(tensor.SetShapeDim(1, 7), ge::GRAPH_SUCCESS);
  EXPECT_THAT(tensor.GetTensorDesc().GetShape().GetDims(), ElementsAre(0, 7, 0));
  // The description that came out is a copy.
  tensor.GetTensorDesc().SetDataType(ge::DT_FLOAT);
  EXPECT_EQ(tensor.GetDataType(), ge::DT_FLOAT16);
  EXPECT_EQ(tensor.GetShapeDim(9), 0);
}

TEST(GeTensor, RefusesDimsThatItDoesNotHave) {
  ge::Tensor tensor;
  EXPECT_EQ(tensor.SetShapeDim(0, 1), ge::GRAPH_PARAM_OUT_OF_RANGE);
  EXPECT_THAT(Message(), HasSubstr("idx is 0, but the shape has 0 dimensions"));
  EXPECT_EQ(tensor.SetOriginShapeDimNum(65), ge::GRAPH_PARAM_OUT_OF_RANGE);
  EXPECT_THAT(Message(), HasSubstr("dim_num is 65, must be at most 64"));
}

TEST(GeTensor, FreesItsMemoryOnce) {
  int freed = 0;
  uint8_t bytes[4] = {};
  const ge::Tensor::DeleteFunc deleter = [&](uint8_t* memory) { freed += memory == bytes ? 1 : 100; };
  {
    ge::Tensor tensor;
    EXPECT_EQ(tensor.SetData(bytes, sizeof bytes, deleter), ge::GRAPH_SUCCESS);
    const ge::Tensor same = tensor;
    EXPECT_EQ(same.GetData(), bytes);
    EXPECT_EQ(tensor.ResetData(nullptr, 0, {}), ge::GRAPH_SUCCESS);
    EXPECT_EQ(freed, 1);
    EXPECT_EQ(tensor.SetData(bytes, sizeof bytes, deleter), ge::GRAPH_SUCCESS);
    const auto taken = tensor.ResetData();
    EXPECT_EQ(taken.get(), bytes);
    EXPECT_EQ(tensor.GetData(), nullptr);
    EXPECT_EQ(freed, 1);
  }
  EXPECT_EQ(freed, 2);
  ge::Tensor tensor;
  EXPECT_EQ(tensor.SetData(nullptr, 4, deleter), ge::GRAPH_NULL_PTR);
}

TEST(GeTensor, CopiesDataAndChecksItsSize) {
  const std::vector<uint8_t> bytes = {1, 2, 3, 4, 5, 6, 7, 8};
  ge::Tensor tensor(ge::TensorDesc(ge::Shape({2}), ge::FORMAT_ND, ge::DT_INT32), bytes);
  EXPECT_EQ(tensor.IsValid(), ge::GRAPH_SUCCESS);
  ge::Tensor clone = tensor.Clone();
  clone.GetData()[0] = 9;
  EXPECT_EQ(tensor.GetData()[0], 1);
  EXPECT_EQ(clone.GetSize(), 8u);
  EXPECT_EQ(tensor.SetShapeDim(0, 3), ge::GRAPH_SUCCESS);
  EXPECT_EQ(tensor.IsValid(), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("the tensor has 8 bytes, its shape [3] and type 3 ask for 12"));
  // Texts: where each begins, how long it is, then the texts.
  EXPECT_EQ(tensor.SetData(std::vector<std::string>{"ab", "c"}), ge::GRAPH_SUCCESS);
  uint64_t head[4];
  std::memcpy(head, tensor.GetData(), sizeof head);
  EXPECT_THAT(head, ElementsAre(32, 2, 35, 1));
  EXPECT_STREQ(reinterpret_cast<const char*>(tensor.GetData()) + 35, "c");
}

template <class T>
void ExpectKept(const T& value, T other) {
  ge::AttrValue attribute;
  EXPECT_EQ(attribute.GetAttrValue(other), ge::GRAPH_FAILED);
  EXPECT_EQ(attribute.SetAttrValue(value), ge::GRAPH_SUCCESS);
  const ge::AttrValue copy = attribute;
  EXPECT_EQ(copy.GetAttrValue(other), ge::GRAPH_SUCCESS);
  EXPECT_EQ(other, value);
}

TEST(GeAttrValue, KeepsValuesOfAllKinds) {
  ExpectKept<int64_t>(-5, 0);
  ExpectKept<float>(0.5F, 0);
  ExpectKept<bool>(true, false);
  ExpectKept<ge::AscendString>("text", "");
  ExpectKept<ge::DataType>(ge::DT_BF16, ge::DT_FLOAT);
  ExpectKept<ge::OpBytes>({1, 2}, {});
  ExpectKept<std::vector<int64_t>>({1, 2}, {});
  ExpectKept<std::vector<float>>({1, 2}, {});
  ExpectKept<std::vector<bool>>({true, false}, {});
  ExpectKept<std::vector<ge::AscendString>>({"a", "b"}, {});
  ExpectKept<std::vector<ge::DataType>>({ge::DT_INT4}, {});
  ExpectKept<std::vector<std::vector<int64_t>>>({{1}, {}}, {});
  ExpectKept<std::vector<std::vector<float>>>({{1}, {}}, {});
  ge::AttrValue attribute;
  float real = 0;
  EXPECT_EQ(attribute.SetAttrValue(int64_t{3}), ge::GRAPH_SUCCESS);
  EXPECT_EQ(attribute.GetAttrValue(real), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("the value is of another kind: integer"));

  ge::NamedAttrs named;
  named.SetName("f");
  EXPECT_EQ(named.SetAttr("a", attribute), ge::GRAPH_SUCCESS);
  ge::NamedAttrs other;
  EXPECT_EQ(attribute.SetAttrValue(named), ge::GRAPH_SUCCESS);
  EXPECT_EQ(attribute.GetAttrValue(other), ge::GRAPH_SUCCESS);
  EXPECT_THAT(other.GetAttrNames(), ElementsAre(ge::AscendString("a")));
  EXPECT_EQ(other.GetAttr("b", attribute), ge::GRAPH_FAILED);
}

}  // namespace
