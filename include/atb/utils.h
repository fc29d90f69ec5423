/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ATB_UTILS_H_
#define ATB_UTILS_H_

#include "types.h"

namespace atb {

class __attribute__((visibility("default"))) Utils {
 public:
  /** Bytes of a tensor of this shape and type; 0 for one that no memory holds or whose type is not known. */
  static uint64_t GetTensorSize(const Tensor& tensor);
};

}  // namespace atb

#endif  // ATB_UTILS_H_
