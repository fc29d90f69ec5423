// SPDX-License-Identifier: Apache-2.0
//
// The objects of aclnn/acl_meta.h by themselves, and what the libraries export.
#include <dlfcn.h>

#include <memory>

#include "aclnn/aclnn_base.h"
#include "harness.h"

namespace aclnn_test {
namespace {

TEST(MetaTest, ATensorTellsWhatItWasMadeOf) {
  const int64_t dims[] = {2, 3};
  const int64_t strides[] = {1, 2};
  const int64_t storage[] = {20};
  int data = 0;
  aclTensor* tensor = aclCreateTensor(dims, 2, ACL_FLOAT16, strides, 5, ACL_FORMAT_NCHW, storage, 1, &data);
  ASSERT_NE(tensor, nullptr);
  int64_t* values = nullptr;
  uint64_t count = 0;
  ASSERT_EQ(aclGetViewShape(tensor, &values, &count), 0);
  EXPECT_EQ(Shape(values, values + count), (Shape{2, 3}));
  delete[] values;
  ASSERT_EQ(aclGetViewStrides(tensor, &values, &count), 0);
  EXPECT_EQ(Shape(values, values + count), (Shape{1, 2}));
  delete[] values;
  ASSERT_EQ(aclGetStorageShape(tensor, &values, &count), 0);
  EXPECT_EQ(Shape(values, values + count), (Shape{20}));
  delete[] values;
  int64_t offset = 0;
  ASSERT_EQ(aclGetViewOffset(tensor, &offset), 0);
  EXPECT_EQ(offset, 5);
  aclFormat format = ACL_FORMAT_UNDEFINED;
  ASSERT_EQ(aclGetFormat(tensor, &format), 0);
  EXPECT_EQ(format, ACL_FORMAT_NCHW);
  aclDataType type = ACL_DT_UNDEFINED;
  ASSERT_EQ(aclGetDataType(tensor, &type), 0);
  EXPECT_EQ(type, ACL_FLOAT16);
  void* address = nullptr;
  ASSERT_EQ(aclGetRawTensorAddr(tensor, &address), 0);
  EXPECT_EQ(address, &data);

  ASSERT_EQ(aclInitTensor(tensor, storage, 1, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, storage, 1, nullptr), 0);
  ASSERT_EQ(aclGetViewShape(tensor, &values, &count), 0);
  EXPECT_EQ(Shape(values, values + count), (Shape{20}));
  delete[] values;
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST(MetaTest, TenDimsCanBeDescribed) {
  const Shape dims = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  aclTensor* tensor =
      aclCreateTensor(dims.data(), dims.size(), ACL_INT8, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
  ASSERT_NE(tensor, nullptr);
  int64_t* values = nullptr;
  uint64_t count = 0;
  ASSERT_EQ(aclGetViewShape(tensor, &values, &count), 0);
  EXPECT_EQ(Shape(values, values + count), dims);
  delete[] values;
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST(MetaTest, WhatMakesNoSenseIsNull) {
  const int64_t negative[] = {2, -1};
  float value = 1;
  EXPECT_EQ(aclCreateTensor(negative, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr), nullptr);
  EXPECT_NE(RecentMessage().find("viewDims[1] is -1"), std::string::npos);
  EXPECT_EQ(aclCreateTensor(nullptr, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr), nullptr);
  EXPECT_EQ(aclCreateScalar(nullptr, ACL_FLOAT), nullptr);
  EXPECT_EQ(aclCreateScalar(&value, ACL_STRING), nullptr);
  EXPECT_EQ(aclCreateIntArray(nullptr, 3), nullptr);
  EXPECT_EQ(aclCreateTensorList(nullptr, 3), nullptr);
}

TEST(MetaTest, NullObjectsAreErrorsToReadAndFineToDestroy) {
  int64_t* values = nullptr;
  uint64_t count = 0;
  void* address = nullptr;
  EXPECT_EQ(aclGetViewShape(nullptr, &values, &count), 161001);
  EXPECT_EQ(aclGetStorageShape(nullptr, &values, &count), 161001);
  EXPECT_EQ(aclGetIntArraySize(nullptr, &count), 161001);
  EXPECT_EQ(aclGetFloatArraySize(nullptr, &count), 161001);
  EXPECT_EQ(aclGetBoolArraySize(nullptr, &count), 161001);
  EXPECT_EQ(aclGetTensorListSize(nullptr, &count), 161001);
  EXPECT_EQ(aclGetScalarListSize(nullptr, &count), 161001);
  EXPECT_EQ(aclInitTensor(nullptr, nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr), 161001);
  EXPECT_EQ(aclSetRawTensorAddr(nullptr, nullptr), 161001);
  EXPECT_EQ(aclGetRawTensorAddr(nullptr, &address), 161001);
  EXPECT_EQ(aclDestroyTensor(nullptr), 0);
  EXPECT_EQ(aclDestroyScalar(nullptr), 0);
  EXPECT_EQ(aclDestroyIntArray(nullptr), 0);
  EXPECT_EQ(aclDestroyFloatArray(nullptr), 0);
  EXPECT_EQ(aclDestroyBoolArray(nullptr), 0);
  EXPECT_EQ(aclDestroyTensorList(nullptr), 0);
  EXPECT_EQ(aclDestroyScalarList(nullptr), 0);
}

TEST(MetaTest, ArraysAndListsTellTheirSizes) {
  const int64_t ints[] = {1, 2, 3};
  const float floats[] = {1, 2};
  const bool bools[] = {true};
  aclIntArray* a = aclCreateIntArray(ints, 3);
  aclFloatArray* b = aclCreateFloatArray(floats, 2);
  aclBoolArray* c = aclCreateBoolArray(bools, 1);
  aclIntArray* empty = aclCreateIntArray(nullptr, 0);
  uint64_t size = 99;
  EXPECT_EQ(aclGetIntArraySize(a, &size), 0);
  EXPECT_EQ(size, 3u);
  EXPECT_EQ(aclGetFloatArraySize(b, &size), 0);
  EXPECT_EQ(size, 2u);
  EXPECT_EQ(aclGetBoolArraySize(c, &size), 0);
  EXPECT_EQ(size, 1u);
  ASSERT_NE(empty, nullptr);
  EXPECT_EQ(aclGetIntArraySize(empty, &size), 0);
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(aclGetIntArraySize(reinterpret_cast<aclIntArray*>(b), &size), 161002);
  EXPECT_EQ(aclDestroyIntArray(a), 0);
  EXPECT_EQ(aclDestroyFloatArray(b), 0);
  EXPECT_EQ(aclDestroyBoolArray(c), 0);
  EXPECT_EQ(aclDestroyIntArray(empty), 0);

  float value = 1;
  const aclScalar* scalars[] = {aclCreateScalar(&value, ACL_FLOAT), aclCreateScalar(&value, ACL_FLOAT)};
  aclScalarList* list = aclCreateScalarList(scalars, 2);
  EXPECT_EQ(aclGetScalarListSize(list, &size), 0);
  EXPECT_EQ(size, 2u);
  EXPECT_EQ(aclDestroyScalarList(list), 0);
  EXPECT_EQ(aclDestroyScalar(scalars[0]), 161002) << "destroyed with its list";
}

TEST(MetaTest, InitAndFinalizeMayBeCalledAtAnyTime) {
  EXPECT_EQ(aclnnInit(nullptr), 0);
  EXPECT_EQ(aclnnInit(nullptr), 0);
  EXPECT_EQ(aclnnFinalize(), 0);
  EXPECT_EQ(aclnnInit(nullptr), 0);
  EXPECT_EQ(aclDumpOpTensors("Add", "add", nullptr, 0, 0, nullptr), 0);
}

TEST(LibraryTest, MetaFunctionsResolveThroughTheOperatorLibrary) {
  void* library = dlopen("libopapi.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char* name : {"aclnnAdd", "aclnnAddGetWorkspaceSize", "aclCreateTensor", "aclDestroyTensor", "aclnnInit",
                           "aclSetAclOpExecutorRepeatable", "AclSetDynamicTensorAddr"}) {
    EXPECT_NE(dlsym(library, name), nullptr) << name;
  }
  // Operators that are not there are not offered.
  for (const char* name : {"aclnnAcosGrad", "aclnnAcosGradGetWorkspaceSize"})
    EXPECT_EQ(dlsym(library, name), nullptr) << name;
  dlclose(library);
}

// Programs look these up one by one, and take the way without a cache when they find none. One that is there without
// the others would be worse than none.
TEST(LibraryTest, HelpersOfTheCallersCacheAreNotOffered) {
  for (const char* file : {"libopapi.so", "libnnopbase.so"}) {
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    for (const char* name :
         {"InitHugeMemThreadLocal", "UnInitHugeMemThreadLocal", "ReleaseHugeMem", "InitPTACacheThreadLocal",
          "UnInitPTACacheThreadLocal", "SetPTAHashKey", "SetPTACacheHashKey", "PTAGetExecCache", "PTAFindExecCache",
          "CanUsePTACache", "AddTensorAddrToCachedList"}) {
      EXPECT_EQ(dlsym(library, name), nullptr) << name << " in " << file;
    }
    dlclose(library);
  }
}

}  // namespace
}  // namespace aclnn_test
