// SPDX-License-Identifier: Apache-2.0
//
// The argument objects of aclnn/acl_meta.h: each function checks its pointers and calls ops/tensor.h.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "aclnn/acl_meta.h"
#include "aclnn/aclnn_base.h"
#include "ops/tensor.h"
#include "runtime/data_dump.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
using reprise::runtime::Api;
namespace ops = reprise::ops;

namespace {

// 161001 naming the parameter.
Status NotNull(const void* pointer, const char* parameter) {
  if (pointer != nullptr) [[likely]]
    return {};
  return Error(kOperatorArgumentNull, std::string(parameter) + " is null").Hint("pass the address of a variable");
}

// Body of the functions that return an object: null when it cannot be made.
template <class Object, class Create>
Object* Make(const char* api, Create create) noexcept {
  void* handle = nullptr;
  Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(handle, create());
    return {};
  });
  return static_cast<Object*>(handle);
}

Status CopyOut(const ops::Dims& dims, int64_t** values, uint64_t* count) {
  REPRISE_RETURN_IF_ERROR(NotNull(values, "the array"));
  REPRISE_RETURN_IF_ERROR(NotNull(count, "the length"));
  auto* copy = new int64_t[dims.size()];  // the caller deletes it
  std::copy(dims.begin(), dims.end(), copy);
  *values = copy;
  *count = dims.size();
  return {};
}

template <class T>
Status ArraySize(const void* array, uint64_t* size) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<T>* values, ops::FindArray<T>(array));
  REPRISE_RETURN_IF_ERROR(NotNull(size, "size"));
  *size = values->size();
  return {};
}

}  // namespace

// ---- Creation ----

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData) {
  return Make<aclTensor>("aclCreateTensor", [&] {
    return ops::CreateTensor(
        {viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum, tensorData});
  });
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  return Make<aclScalar>("aclCreateScalar", [&] { return ops::CreateScalar(value, dataType); });
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  return Make<aclIntArray>("aclCreateIntArray", [&] { return ops::CreateIntArray(value, size); });
}

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  return Make<aclFloatArray>("aclCreateFloatArray", [&] { return ops::CreateFloatArray(value, size); });
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  return Make<aclBoolArray>("aclCreateBoolArray", [&] { return ops::CreateBoolArray(value, size); });
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  return Make<aclTensorList>("aclCreateTensorList",
                             [&] { return ops::CreateTensorList(reinterpret_cast<const void* const*>(value), size); });
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  return Make<aclScalarList>("aclCreateScalarList",
                             [&] { return ops::CreateScalarList(reinterpret_cast<const void* const*>(value), size); });
}

// ---- Destruction ----

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  return Api("aclDestroyTensor", [&] { return ops::DestroyTensor(tensor); });
}
aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
  return Api("aclDestroyScalar", [&] { return ops::DestroyScalar(scalar); });
}
aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
  return Api("aclDestroyIntArray", [&] { return ops::DestroyArray<int64_t>(array); });
}
aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) {
  return Api("aclDestroyFloatArray", [&] { return ops::DestroyArray<float>(array); });
}
aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) {
  return Api("aclDestroyBoolArray", [&] { return ops::DestroyArray<bool>(array); });
}
aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  return Api("aclDestroyTensorList", [&] { return ops::DestroyTensorList(array); });
}
aclnnStatus aclDestroyScalarList(const aclScalarList* array) {
  return Api("aclDestroyScalarList", [&] { return ops::DestroyScalarList(array); });
}

// ---- Tensors ----

aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                          const int64_t* stride, int64_t offset, aclFormat format, const int64_t* storageDims,
                          uint64_t storageDimsNum, void* tensorDataAddr) {
  return Api("aclInitTensor", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(ops::Tensor * object, ops::FindTensor(tensor));
    return object->Set(
        {viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum, tensorDataAddr});
  });
}

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
  return Api("aclGetViewShape", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ops::Tensor* object, ops::FindTensor(tensor));
    return CopyOut(object->sizes, viewDims, viewDimsNum);
  });
}

aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims, uint64_t* storageDimsNum) {
  return Api("aclGetStorageShape", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ops::Tensor* object, ops::FindTensor(tensor));
    return CopyOut(object->storage, storageDims, storageDimsNum);
  });
}

aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue, uint64_t* stridesNum) {
  return Api("aclGetViewStrides", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ops::Tensor* object, ops::FindTensor(tensor));
    return CopyOut(object->strides, stridesValue, stridesNum);
  });
}

aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  return Api("aclGetViewOffset", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ops::Tensor* object, ops::FindTensor(tensor));
    REPRISE_RETURN_IF_ERROR(NotNull(offset, "offset"));
    *offset = object->offset;
    return {};
  });
}

aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  return Api("aclGetFormat", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ops::Tensor* object, ops::FindTensor(tensor));
    REPRISE_RETURN_IF_ERROR(NotNull(format, "format"));
    *format = static_cast<aclFormat>(object->format);
    return {};
  });
}

aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  return Api("aclGetDataType", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ops::Tensor* object, ops::FindTensor(tensor));
    REPRISE_RETURN_IF_ERROR(NotNull(dataType, "dataType"));
    *dataType = static_cast<aclDataType>(object->dtype_number);
    return {};
  });
}

aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr) {
  return Api("aclSetRawTensorAddr", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(ops::Tensor * object, ops::FindTensor(tensor));
    object->data = addr;
    return {};
  });
}

aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** addr) {
  return Api("aclGetRawTensorAddr", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ops::Tensor* object, ops::FindTensor(tensor));
    REPRISE_RETURN_IF_ERROR(NotNull(addr, "addr"));
    *addr = object->data;
    return {};
  });
}

// ---- Arrays and lists ----

aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  return Api("aclGetIntArraySize", [&] { return ArraySize<int64_t>(array, size); });
}
aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size) {
  return Api("aclGetFloatArraySize", [&] { return ArraySize<float>(array, size); });
}
aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size) {
  return Api("aclGetBoolArraySize", [&] { return ArraySize<bool>(array, size); });
}

aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size) {
  return Api("aclGetTensorListSize", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ops::TensorListObject* list, ops::FindTensorList(tensorList));
    REPRISE_RETURN_IF_ERROR(NotNull(size, "size"));
    *size = list->tensors.size();
    return {};
  });
}

aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size) {
  return Api("aclGetScalarListSize", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ops::ScalarListObject* list, ops::FindScalarList(scalarList));
    REPRISE_RETURN_IF_ERROR(NotNull(size, "size"));
    *size = list->scalars.size();
    return {};
  });
}

// ---- The rest ----

aclnnStatus aclDumpOpTensors(const char* opType, const char* opName, aclTensor** tensors, size_t inputTensorNum,
                             size_t outputTensorNum, aclrtStream stream) {
  return Api("aclDumpOpTensors", [&]() -> Status {
    constexpr size_t kMostTensors = 4096;
    constexpr size_t kLongestName = 1024;
    REPRISE_RETURN_IF_ERROR(NotNull(opType, "opType"));
    REPRISE_RETURN_IF_ERROR(NotNull(opName, "opName"));
    if (inputTensorNum > kMostTensors || outputTensorNum > kMostTensors) {
      return Error(kOperatorArgumentInvalid,
                   fmt::format("there are {} inputs and {} outputs, at most {} of each are possible", inputTensorNum,
                               outputTensorNum, kMostTensors))
          .Culprit("parameters inputTensorNum and outputTensorNum")
          .Hint("pass the tensors of one operator");
    }
    if (inputTensorNum + outputTensorNum != 0) REPRISE_RETURN_IF_ERROR(NotNull(tensors, "tensors"));
    reprise::ir::OperatorInfo told;
    told.type.assign(opType, strnlen(opType, kLongestName));
    told.name.assign(opName, strnlen(opName, kLongestName));
    for (size_t i = 0; i < inputTensorNum + outputTensorNum; ++i) {
      REPRISE_ASSIGN_OR_RETURN(const ops::Tensor* tensor, ops::FindTensor(tensors[i]));
      reprise::ir::TensorInfo& info = told.tensors.emplace_back();
      const auto type = tensor->dtype();
      const int64_t item = reprise::kernels::IsKnown(type) ? reprise::kernels::ItemSize(type) : 0;
      info.data = static_cast<const char*>(tensor->data) + tensor->offset * item;
      info.dtype = static_cast<int32_t>(tensor->dtype_number);
      info.sizes.assign(tensor->sizes.begin(), tensor->sizes.end());
      info.strides.assign(tensor->strides.begin(), tensor->strides.end());
      info.is_read = i < inputTensorNum;
      info.is_write = !info.is_read;
    }
    auto& dump = reprise::runtime::DataDump::Get();
    if (!dump.on()) return {};
    REPRISE_ASSIGN_OR_RETURN(reprise::runtime::Stream * on, reprise::runtime::FindStream(stream));
    return dump.SubmitTensors(*on, std::move(told));
  });
}

// Operators need no preparation, so there is nothing to release either.
aclnnStatus aclnnInit(const char*) { return 0; }
aclnnStatus aclnnFinalize(void) { return 0; }
