/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of the transformer library, and what its operations get.
 */
#ifndef ATB_TYPES_H_
#define ATB_TYPES_H_

#include <cstddef>
#include <cstdint>

#include "acl/acl.h"
#include "svector.h"

namespace atb {

/** 0, or the number that aclGetRecentErrMsg explains. */
using Status = int32_t;
enum ErrorType : int { NO_ERROR = 0 };

constexpr std::size_t MAX_DIM = 8;

struct Dims {
  int64_t dims[MAX_DIM];
  uint64_t dimNum = 0;
};

struct TensorDesc {
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  Dims shape;
};

/** Row-major. Lengths, whose values are needed when an operation is set up, have hostData; everything else has
 *  deviceData. A tensor without either is not given. */
struct Tensor {
  TensorDesc desc;
  void* deviceData = nullptr;
  void* hostData = nullptr;
  uint64_t dataSize = 0;
};

/** What an operation reads and writes, in the order that its parameters tell. */
struct VariantPack {
  SVector<Tensor> inTensors;
  SVector<Tensor> outTensors;
};

}  // namespace atb

#endif  // ATB_TYPES_H_
