// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/fault.h"

namespace reprise::ops {
namespace {

TensorSpec Describe(const std::vector<int64_t>& sizes) {
  TensorSpec desc;
  desc.view_dims = sizes.data();
  desc.view_rank = sizes.size();
  desc.format = 2;
  return desc;
}

TEST(TensorTest, MissingStridesAreRowMajor) {
  Tensor tensor;
  ASSERT_TRUE(tensor.Set(Describe({2, 3, 4})).ok());
  EXPECT_EQ(ShapeText(tensor.strides), "[12, 4, 1]");
  EXPECT_EQ(tensor.count, 24);
}

TEST(TensorTest, RankZeroIsOneElement) {
  Tensor tensor;
  ASSERT_TRUE(tensor.Set(TensorSpec{}).ok());
  EXPECT_EQ(tensor.count, 1);
}

TEST(TensorTest, ARefusedDescriptionChangesNothing) {
  Tensor tensor;
  ASSERT_TRUE(tensor.Set(Describe({5})).ok());
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(tensor.Set(Describe({2, -1})).code(), 161002);
  EXPECT_EQ(tensor.Set(Describe({huge, huge})).code(), 161002);
  EXPECT_EQ(tensor.Set(Describe(std::vector<int64_t>(65, 1))).code(), 161002);
  TensorSpec no_dims;
  no_dims.view_rank = 2;
  EXPECT_EQ(tensor.Set(no_dims).code(), 161001);
  TensorSpec no_storage;
  no_storage.storage_rank = 1;
  EXPECT_EQ(tensor.Set(no_storage).code(), 161001);
  TensorSpec before_storage;
  before_storage.offset = -1;
  EXPECT_EQ(tensor.Set(before_storage).code(), 161002);
  EXPECT_EQ(ShapeText(tensor.sizes), "[5]");
}

TEST(TensorTest, HugeDimsBesideAZeroAreAnEmptyTensor) {
  const int64_t huge = int64_t{1} << 40;
  Tensor tensor;
  ASSERT_TRUE(tensor.Set(Describe({huge, huge, 0})).ok());
  EXPECT_EQ(tensor.count, 0);
}

TEST(TensorTest, ADestroyedHandleIsRefused) {
  auto handle = CreateTensor(TensorSpec{});
  ASSERT_TRUE(handle.ok());
  EXPECT_TRUE(FindTensor(handle.value()).ok());
  EXPECT_TRUE(DestroyTensor(handle.value()).ok());
  const Status again = DestroyTensor(handle.value());
  EXPECT_EQ(again.code(), 161002);
  EXPECT_NE(again.detail().what.find("was destroyed"), std::string::npos);
  EXPECT_EQ(FindTensor(handle.value()).status().code(), 161002);
  EXPECT_EQ(FindTensor(nullptr).status().code(), 161001);
  int local = 0;
  EXPECT_EQ(FindTensor(&local).status().code(), 161002);
}

TEST(ArrayTest, TheTypesAreKeptApart) {
  const float value = 1;
  auto handle = CreateFloatArray(&value, 1);
  ASSERT_TRUE(handle.ok());
  auto wrong = FindArray<int64_t>(handle.value());
  const Status status = std::move(wrong).status();
  EXPECT_EQ(status.code(), 161002);
  EXPECT_NE(status.detail().what.find("is an aclFloatArray, not an aclIntArray"), std::string::npos);
  EXPECT_EQ(DestroyArray<bool>(handle.value()).code(), 161002);
  EXPECT_TRUE(DestroyArray<float>(handle.value()).ok());
}

TEST(ListTest, DestroysItsElementsOnce) {
  void* tensor = CreateTensor(TensorSpec{}).value();
  const void* const entries[] = {tensor, nullptr, tensor};
  auto list = CreateTensorList(entries, 3);
  ASSERT_TRUE(list.ok());
  EXPECT_TRUE(DestroyTensorList(list.value()).ok());
  EXPECT_EQ(Tensors().Find(tensor), nullptr);
  EXPECT_EQ(DestroyTensorList(list.value()).code(), 161002);
}

TEST(ListTest, SaysWhichElementWasDestroyedBefore) {
  void* first = CreateTensor(TensorSpec{}).value();
  void* second = CreateTensor(TensorSpec{}).value();
  const void* const entries[] = {first, second};
  void* list = CreateTensorList(entries, 2).value();
  EXPECT_TRUE(DestroyTensor(first).ok());
  const Status status = DestroyTensorList(list);
  EXPECT_EQ(status.code(), 161002);
  EXPECT_NE(status.detail().what.find("element 0"), std::string::npos);
  EXPECT_EQ(Tensors().Find(second), nullptr);
  EXPECT_EQ(CreateTensorList(entries, 2).status().code(), 161002);
}

TEST(FaultTest, AnObjectThatCannotBeMadeLeavesNothingBehind) {
  const size_t live = Tensors().live();
  ArmFault("ops.object", 1);
  EXPECT_EQ(CreateTensor(TensorSpec{}).status().code(), 561000);
  EXPECT_TRUE(FaultFired());
  EXPECT_EQ(Tensors().live(), live);
}

TEST(WordsTest, FormatsAndTypesHaveNames) {
  EXPECT_EQ(DTypeText(27), "bfloat16");
  EXPECT_EQ(DTypeText(36), "type 36");
  EXPECT_EQ(FormatText(29), "FRACTAL_NZ");
  EXPECT_EQ(FormatText(77), "format 77");
  EXPECT_TRUE(IsBaseFormat(47));
  EXPECT_FALSE(IsBaseFormat(29));
}

}  // namespace
}  // namespace reprise::ops
