// SPDX-License-Identifier: Apache-2.0
//
// Tensor descriptors of single operators and offline models: plain values without data.
#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "acl/acl_base_mdl.h"
#include "check.h"
#include "runtime/descriptors.h"
#include "runtime/report.h"

namespace reprise::facade {
namespace {

using runtime::TensorDesc;
using runtime::TensorDescs;
using Range = TensorDesc::Range;

constexpr int kMaxDims = 128;
constexpr int64_t kUnknownDim = TensorDesc::kUnknownDim;
constexpr int64_t kUnknownRank = TensorDesc::kUnknownRank;

StatusOr<TensorDesc*> Find(const aclTensorDesc* desc) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(desc, "desc"));
  return runtime::FindObject(TensorDescs(), desc, "aclTensorDesc");
}

// For getters that return a value: null leaves a message.
TensorDesc* OrNull(const char* api, const aclTensorDesc* desc) {
  TensorDesc* found = nullptr;
  runtime::Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(found, Find(desc));
    return {};
  });
  return found;
}

template <class Change>
aclError Set(const char* api, aclTensorDesc* desc, Change change) {
  return runtime::Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(TensorDesc * found, Find(desc));
    return change(*found);
  });
}

Status ReadDims(int count, const int64_t* dims, std::vector<int64_t>* out) {
  REPRISE_RETURN_IF_ERROR(InRange(count, 0, kMaxDims, "numDims", kInvalidArgument));
  if (count != 0) REPRISE_RETURN_IF_ERROR(runtime::NotNull(dims, "dims"));
  for (int i = 0; i < count; ++i) {
    if (dims[i] < kUnknownRank || (dims[i] == kUnknownRank && count != 1)) {
      return Error(kInvalidArgument,
                   fmt::format("dims[{}] is {}, must be at least 0, or -1 (not known yet), or a single -2", i, dims[i]))
          .Culprit(fmt::format("parameter dims[{}]", i))
          .Hint("pass the sizes of the tensor");
    }
  }
  out->assign(dims, dims + count);
  return {};
}

Status ReadRanges(size_t count, const int64_t (*ranges)[2], const char* parameter, std::vector<Range>* out) {
  REPRISE_RETURN_IF_ERROR(InRange(count, 0, kMaxDims, "count", kInvalidArgument));
  if (count != 0) REPRISE_RETURN_IF_ERROR(runtime::NotNull(ranges, parameter));
  std::vector<Range> read;
  read.reserve(count);
  for (size_t i = 0; i < count; ++i) read.push_back({ranges[i][0], ranges[i][1]});
  *out = std::move(read);
  return {};
}

aclTensorDesc* Keep(std::unique_ptr<TensorDesc> desc, const char* api) {
  void* handle = nullptr;
  runtime::Api(api, [&]() -> Status {
    handle = TensorDescs().Insert(desc.get());
    if (handle == nullptr)
      return Error(kOutOfHostMemory, "the process has too many tensor descriptors")
          .Hint("destroy descriptors that are no longer needed with aclDestroyTensorDesc");
    (void)desc.release();  // the table holds it until aclDestroyTensorDesc
    return {};
  });
  return static_cast<aclTensorDesc*>(handle);
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise::facade;  // NOLINT: a file of C functions
using reprise::Error;
using reprise::Status;
namespace runtime = reprise::runtime;
using runtime::TensorDesc;
using runtime::TensorDescs;

aclTensorDesc* aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t* dims, aclFormat format) {
  auto desc = std::make_unique<TensorDesc>();
  desc->type = dataType;
  desc->format = format;
  if (runtime::Api("aclCreateTensorDesc", [&] { return ReadDims(numDims, dims, &desc->dims); }) != 0) return nullptr;
  return Keep(std::move(desc), "aclCreateTensorDesc");
}

void aclDestroyTensorDesc(const aclTensorDesc* desc) {
  if (desc == nullptr) return;
  runtime::Api("aclDestroyTensorDesc", [&]() -> Status {
    if (TensorDescs().Destroy(desc)) return {};
    return Find(desc).status();
  });
}

aclError aclSetTensorShapeRange(aclTensorDesc* desc, size_t dimsCount,
                                int64_t dimsRange[][ACL_TENSOR_SHAPE_RANGE_NUM]) {
  return Set("aclSetTensorShapeRange", desc,
             [&](TensorDesc& found) { return ReadRanges(dimsCount, dimsRange, "dimsRange", &found.shape_range); });
}

aclError aclSetTensorValueRange(aclTensorDesc* desc, size_t valueCount,
                                int64_t valueRange[][ACL_TENSOR_VALUE_RANGE_NUM]) {
  return Set("aclSetTensorValueRange", desc,
             [&](TensorDesc& found) { return ReadRanges(valueCount, valueRange, "valueRange", &found.value_range); });
}

void aclSetTensorDescName(aclTensorDesc* desc, const char* name) {
  Set("aclSetTensorDescName", desc, [&](TensorDesc& found) -> Status {
    found.name = name != nullptr ? name : "";
    return {};
  });
}

aclError aclSetTensorFormat(aclTensorDesc* desc, aclFormat format) {
  return Set("aclSetTensorFormat", desc, [&](TensorDesc& found) -> Status {
    found.storage_format = format;
    return {};
  });
}

aclError aclSetTensorShape(aclTensorDesc* desc, int numDims, const int64_t* dims) {
  return Set("aclSetTensorShape", desc,
             [&](TensorDesc& found) { return ReadDims(numDims, dims, &found.storage_dims); });
}

aclError aclSetTensorStorageFormat(aclTensorDesc* desc, aclFormat format) {
  return Set("aclSetTensorStorageFormat", desc, [&](TensorDesc& found) -> Status {
    found.storage_format = format;
    return {};
  });
}

aclError aclSetTensorStorageShape(aclTensorDesc* desc, int numDims, const int64_t* dims) {
  return Set("aclSetTensorStorageShape", desc,
             [&](TensorDesc& found) { return ReadDims(numDims, dims, &found.storage_dims); });
}

aclError aclSetTensorOriginFormat(aclTensorDesc* desc, aclFormat format) {
  return Set("aclSetTensorOriginFormat", desc, [&](TensorDesc& found) -> Status {
    found.origin_format = format;
    return {};
  });
}

aclError aclSetTensorOriginShape(aclTensorDesc* desc, int numDims, const int64_t* dims) {
  return Set("aclSetTensorOriginShape", desc,
             [&](TensorDesc& found) { return ReadDims(numDims, dims, &found.origin_dims); });
}

aclError aclSetTensorDynamicInput(aclTensorDesc* desc, const char* dynamicInputName) {
  return Set("aclSetTensorDynamicInput", desc, [&](TensorDesc& found) -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(dynamicInputName, "dynamicInputName"));
    found.dynamic_input = dynamicInputName;
    return {};
  });
}

aclError aclSetTensorConst(aclTensorDesc* desc, void* dataBuffer, size_t length) {
  return Set("aclSetTensorConst", desc, [&](TensorDesc& found) -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(dataBuffer, "dataBuffer"));
    REPRISE_RETURN_IF_ERROR(NotZero(length, "length"));
    REPRISE_RETURN_IF_ERROR(InRange(length, 1, int64_t{1} << 40, "length", kInvalidArgument));
    const auto* from = static_cast<const char*>(dataBuffer);
    found.constant.assign(from, from + length);
    return {};
  });
}

aclError aclSetTensorPlaceMent(aclTensorDesc* desc, aclMemType memType) {
  return Set("aclSetTensorPlaceMent", desc, [&](TensorDesc& found) -> Status {
    REPRISE_RETURN_IF_ERROR(
        InRange(memType, ACL_MEMTYPE_DEVICE, ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT, "memType", kInvalidArgument));
    found.placement = memType;
    return {};
  });
}

aclDataType aclGetTensorDescType(const aclTensorDesc* desc) {
  const TensorDesc* found = OrNull("aclGetTensorDescType", desc);
  return found != nullptr ? static_cast<aclDataType>(found->type) : ACL_DT_UNDEFINED;
}

aclFormat aclGetTensorDescFormat(const aclTensorDesc* desc) {
  const TensorDesc* found = OrNull("aclGetTensorDescFormat", desc);
  return found != nullptr ? static_cast<aclFormat>(found->format) : ACL_FORMAT_UNDEFINED;
}

size_t aclGetTensorDescSize(const aclTensorDesc* desc) {
  const TensorDesc* found = OrNull("aclGetTensorDescSize", desc);
  if (found == nullptr) return 0;
  size_t bytes = 0;
  return __builtin_mul_overflow(found->Elements(), aclDataTypeSize(static_cast<aclDataType>(found->type)), &bytes)
             ? SIZE_MAX
             : bytes;
}

size_t aclGetTensorDescElementCount(const aclTensorDesc* desc) {
  const TensorDesc* found = OrNull("aclGetTensorDescElementCount", desc);
  return found != nullptr ? found->Elements() : 0;
}

size_t aclGetTensorDescNumDims(const aclTensorDesc* desc) {
  const TensorDesc* found = OrNull("aclGetTensorDescNumDims", desc);
  if (found == nullptr) return 0;
  return found->dims.size() == 1 && found->dims[0] == kUnknownRank ? 0 : found->dims.size();
}

int64_t aclGetTensorDescDim(const aclTensorDesc* desc, size_t index) {
  const TensorDesc* found = OrNull("aclGetTensorDescDim", desc);
  return found != nullptr && index < found->dims.size() ? found->dims[index] : kUnknownDim;
}

aclError aclGetTensorDescDimV2(const aclTensorDesc* desc, size_t index, int64_t* dimSize) {
  return runtime::Api("aclGetTensorDescDimV2", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const TensorDesc* found, Find(desc));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(dimSize, "dimSize"));
    if (index >= found->dims.size()) {
      return Error(kInvalidArgument,
                   fmt::format("index is {}, the descriptor has {} dimensions", index, found->dims.size()))
          .Culprit("parameter index")
          .Hint("pass an index below what aclGetTensorDescNumDims returns");
    }
    *dimSize = found->dims[index];
    return {};
  });
}

aclError aclGetTensorDescDimRange(const aclTensorDesc* desc, size_t index, size_t dimRangeNum, int64_t* dimRange) {
  return runtime::Api("aclGetTensorDescDimRange", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const TensorDesc* found, Find(desc));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(dimRange, "dimRange"));
    if (index >= found->shape_range.size()) {
      return Error(kInvalidArgument, fmt::format("index is {}, the descriptor has ranges for {} dimensions", index,
                                                 found->shape_range.size()))
          .Culprit("parameter index")
          .Hint("set the ranges with aclSetTensorShapeRange first");
    }
    for (size_t i = 0; i < std::min<size_t>(dimRangeNum, 2); ++i) dimRange[i] = found->shape_range[index][i];
    return {};
  });
}

const char* aclGetTensorDescName(aclTensorDesc* desc) {
  const TensorDesc* found = OrNull("aclGetTensorDescName", desc);
  return found != nullptr ? found->name.c_str() : "";
}

// Descriptors are made one by one: each is an array of one.
aclTensorDesc* aclGetTensorDescByIndex(aclTensorDesc* desc, size_t index) {
  return OrNull("aclGetTensorDescByIndex", desc) != nullptr && index == 0 ? desc : nullptr;
}

// A descriptor holds no data, except for constants.
void* aclGetTensorDescAddress(const aclTensorDesc* desc) {
  TensorDesc* found = OrNull("aclGetTensorDescAddress", desc);
  return found != nullptr && !found->constant.empty() ? found->constant.data() : nullptr;
}

aclError aclTransTensorDescFormat(const aclTensorDesc* srcDesc, aclFormat dstFormat, aclTensorDesc** dstDesc) {
  return runtime::Api("aclTransTensorDescFormat", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(dstDesc, "dstDesc"));
    REPRISE_ASSIGN_OR_RETURN(const TensorDesc* found, Find(srcDesc));
    if (dstFormat != found->format) {
      return Error(kApiNotSupported, fmt::format("the layout of format {} is not derived from format {}",
                                                 static_cast<int>(dstFormat), found->format))
          .Hint("create the descriptor with the shape of the wanted format");
    }
    *dstDesc = Keep(std::make_unique<TensorDesc>(*found), "aclTransTensorDescFormat");
    return *dstDesc != nullptr ? Status()
                               : Error(kOutOfHostMemory, "the process has too many tensor descriptors")
                                     .Hint("destroy descriptors that are no longer needed with aclDestroyTensorDesc");
  });
}
