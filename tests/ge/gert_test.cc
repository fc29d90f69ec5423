// SPDX-License-Identifier: Apache-2.0
//
// Tensors that are passed to runs of graphs: where their members lie, and who frees their memory.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "exe_graph/runtime/tensor.h"

namespace {

// By offset, as machine code that was compiled against the reference reads them.
template <class T>
T At(const gert::Tensor& tensor, size_t offset) {
  T value;
  std::memcpy(&value, reinterpret_cast<const char*>(&tensor) + offset, sizeof value);
  return value;
}

int frees = 0;
int shares = 0;
int block = 0;
ge::graphStatus Manage(gert::TensorAddress addr, gert::TensorOperateType type, void** out) {
  if (type == gert::kGetTensorAddress) *out = static_cast<char*>(addr) + 1;
  if (type == gert::kFreeTensor) ++frees;
  if (type == gert::kPlusShareCount) ++shares;
  return ge::GRAPH_SUCCESS;
}

TEST(GertTensor, HasTheLayoutThatProgramsExpect) {
  gert::Tensor tensor({{4, 5}, {6, 7, 8}}, {ge::FORMAT_NCHW, ge::FORMAT_FRACTAL_NZ, gert::ExpandDimsType("10")},
                      gert::kOnHost, ge::DT_BF16, &block);
  tensor.SetSize(99);
  EXPECT_EQ(At<size_t>(tensor, 0), 2u);
  EXPECT_EQ(At<int64_t>(tensor, 8), 4);
  EXPECT_EQ(At<size_t>(tensor, 0xf8), 3u);
  EXPECT_EQ(At<int64_t>(tensor, 0x110), 8);
  EXPECT_EQ(At<int32_t>(tensor, 0x218), ge::FORMAT_NCHW);
  EXPECT_EQ(At<int32_t>(tensor, 0x21c), ge::FORMAT_FRACTAL_NZ);
  EXPECT_EQ(At<int32_t>(tensor, 0x27c), ge::DT_BF16);
  EXPECT_EQ(At<void*>(tensor, 0x280), &block);
  EXPECT_EQ(At<void*>(tensor, 0x288), nullptr);
  EXPECT_EQ(At<size_t>(tensor, 0x290), 99u);
  EXPECT_EQ(At<int32_t>(tensor, 0x298), gert::kOnHost);
  tensor.SetPlacement(gert::kFollowing);
  EXPECT_EQ(tensor.GetAddr(), reinterpret_cast<char*>(&tensor) + 0x2f0);
  EXPECT_TRUE(tensor.GetExpandDimsType().IsExpandIndex(0));
  EXPECT_FALSE(tensor.GetExpandDimsType().IsExpandIndex(1));
}

TEST(GertTensor, FreesItsMemoryOnce) {
  frees = shares = 0;
  {
    gert::TensorData data(&block, Manage, 4, gert::kOnDeviceHbm);
    EXPECT_EQ(data.GetAddr(), reinterpret_cast<char*>(&block) + 1);
    gert::Tensor tensor;
    tensor.SetData(std::move(data));
    EXPECT_EQ(tensor.GetSize(), 4u);
    gert::TensorData shared;
    EXPECT_EQ(shared.ShareFrom(tensor.GetTensorData()), ge::GRAPH_SUCCESS);
    EXPECT_EQ(shares, 1);
    gert::TensorAddrManager manager = nullptr;
    EXPECT_EQ(shared.Release(manager), &block);
    EXPECT_EQ(manager, &Manage);
    EXPECT_EQ(frees, 0);
  }
  EXPECT_EQ(frees, 1);
}

TEST(GertShape, CountsElements) {
  EXPECT_EQ(gert::Shape().GetShapeSize(), 1);
  EXPECT_EQ(gert::Shape({2, 0, 3}).GetShapeSize(), 0);
  EXPECT_EQ(gert::Shape({-1, 3}).GetShapeSize(), -1);
  EXPECT_EQ(gert::Shape({std::numeric_limits<int64_t>::max(), 2}).GetShapeSize(), -1);
  gert::Shape shape;
  for (int i = 0; i < 30; ++i) shape.AppendDim(1);
  EXPECT_EQ(shape.GetDimNum(), 25u);
  EXPECT_EQ(shape.GetDim(25), gert::Shape({1}).GetDim(99));
  EXPECT_NE(gert::Shape({1}), gert::Shape({1, 1}));
}

}  // namespace
