// SPDX-License-Identifier: Apache-2.0
//
// The functions of libopapi.so without a second phase (api/single_phase.csv). Most tell how weights lie in memory: on
// this device row by row, whatever they are for.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "aclnnop/aclnn_npu_format_cast.h"
#include "aclnnop/aclnn_reselect_static_kernel.h"
#include "aclnnop/aclnn_trans_matmul_weight.h"
#include "ops/tensor.h"
#include "runtime/report.h"

namespace reprise::opapi {
namespace {

constexpr size_t kMinWeightDims = 2;
constexpr size_t kMaxWeightDims = 6;

Status CountElements(const aclIntArray* shape, uint64_t* count) {
  if (count == nullptr)
    return Error(kOperatorArgumentNull, "weightTensorSize is null")
        .Hint("pass the address of a variable that takes the result");
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t>* sizes, ops::FindArray<int64_t>(shape));
  if (sizes->size() < kMinWeightDims || sizes->size() > kMaxWeightDims) {
    return Error(kOperatorArgumentInvalid,
                 fmt::format("tensorShape {} has {} sizes, expected {} to {}", ops::ShapeText(*sizes), sizes->size(),
                             kMinWeightDims, kMaxWeightDims))
        .Hint("pass the shape of a weight");
  }
  uint64_t product = 1;
  for (int64_t size : *sizes) {
    if (size < 0 || __builtin_mul_overflow(product, static_cast<uint64_t>(size), &product)) {
      return Error(kOperatorArgumentInvalid,
                   fmt::format("tensorShape {} is the shape of no weight", ops::ShapeText(*sizes)))
          .Hint("sizes are not negative, and their product fits 64 bits");
    }
  }
  *count = product;
  return {};
}

Status DescribeTarget(const aclTensor* source, int format, int64_t** shape, uint64_t* shape_size, int* actual) {
  if (shape == nullptr)
    return Error(kOperatorArgumentNull, "dstShape is null")
        .Hint("pass the address of a variable that takes the result");
  if (shape_size == nullptr)
    return Error(kOperatorArgumentNull, "dstShapeSize is null")
        .Hint("pass the address of a variable that takes the result");
  if (actual == nullptr)
    return Error(kOperatorArgumentNull, "actualFormat is null")
        .Hint("pass the address of a variable that takes the result");
  REPRISE_ASSIGN_OR_RETURN(const ops::Tensor* tensor, ops::FindTensor(source));
  constexpr int kFractals[] = {ACL_FORMAT_FRACTAL_NZ,      ACL_FORMAT_FRACTAL_NZ_C0_16, ACL_FORMAT_FRACTAL_NZ_C0_32,
                               ACL_FORMAT_FRACTAL_NZ_C0_2, ACL_FORMAT_FRACTAL_NZ_C0_4,  ACL_FORMAT_FRACTAL_NZ_C0_8};
  const bool is_fractal = std::find(std::begin(kFractals), std::end(kFractals), format) != std::end(kFractals);
  if (format != ACL_FORMAT_ND && !is_fractal) {
    return Error(kOperatorArgumentInvalid,
                 fmt::format("dstFormat is {}, which weights cannot have", ops::FormatText(format)))
        .Hint("pass ACL_FORMAT_ND or ACL_FORMAT_FRACTAL_NZ");
  }
  auto sizes = std::make_unique<int64_t[]>(std::max<size_t>(1, tensor->sizes.size()));
  std::copy(tensor->sizes.begin(), tensor->sizes.end(), sizes.get());
  *shape_size = tensor->sizes.size();
  *actual = ACL_FORMAT_ND;
  *shape = sizes.release();
  return {};
}

}  // namespace
}  // namespace reprise::opapi

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;

aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray* tensorShape, uint64_t* weightTensorSize) {
  return reprise::runtime::Api("aclnnCalculateMatmulWeightSize",
                               [&] { return reprise::opapi::CountElements(tensorShape, weightTensorSize); });
}

aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray* tensorShape, aclDataType dataType,
                                             uint64_t* weightTensorSize) {
  return reprise::runtime::Api("aclnnCalculateMatmulWeightSizeV2", [&]() -> Status {
    if (!reprise::kernels::IsKnown(static_cast<reprise::kernels::DType>(dataType))) {
      return Error(kOperatorArgumentInvalid,
                   fmt::format("dataType is {}, which operators do not know", reprise::ops::DTypeText(dataType)))
          .Hint("pass an ACL_* type of data that operators know, as ACL_FLOAT16");
    }
    return reprise::opapi::CountElements(tensorShape, weightTensorSize);
  });
}

aclnnStatus aclnnNpuFormatCastCalculateSizeAndFormat(const aclTensor* srcTensor, const int dstFormat,
                                                     int /*additionalDtype*/, int64_t** dstShape,
                                                     uint64_t* dstShapeSize, int* actualFormat) {
  return reprise::runtime::Api("aclnnNpuFormatCastCalculateSizeAndFormat", [&] {
    return reprise::opapi::DescribeTarget(srcTensor, dstFormat, dstShape, dstShapeSize, actualFormat);
  });
}

aclnnStatus aclnnReselectStaticKernel() {
  return reprise::runtime::Api("aclnnReselectStaticKernel", []() -> Status { return {}; });
}

aclnnStatus aclnnReselectStaticKernelWithPath(const char* path) {
  return reprise::runtime::Api("aclnnReselectStaticKernelWithPath", [&]() -> Status {
    if (path == nullptr) return Error(kOperatorArgumentNull, "path is null").Hint("pass the folder of the kernels");
    return {};
  });
}
