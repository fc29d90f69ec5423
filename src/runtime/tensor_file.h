// SPDX-License-Identifier: Apache-2.0
//
// The content of a tensor as bytes of a .npy file and as statistics. The memory may be gone, so it is read through the
// kernel and never through the pointer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "ir/task.h"
#include "ir/task_info.h"

namespace reprise::runtime {

/// Takes bytes; false: the caller shall stop.
using TakeBytes = std::function<bool(std::string_view)>;

/// Product of the sizes; 1 for rank 0.
int64_t CountOf(const ir::TensorInfo& tensor);
/// Bytes of all elements; 0 for a type that the kernels do not know.
uint64_t BytesOf(const ir::TensorInfo& tensor);

/// Hands over the elements in row-major order, in pieces of whole elements. Returns how many: fewer than all when
/// memory behind them cannot be read, or when `take` has had enough.
int64_t ReadElements(const ir::TensorInfo& tensor, const TakeBytes& take);

/// A .npy file, version 1.0. bfloat16, which NumPy does not have, becomes float32. Elements that cannot be read are
/// zeros; *read says how many could. False when `take` refused.
bool WriteNpy(const ir::TensorInfo& tensor, const TakeBytes& take, int64_t* read);

/// Of complex numbers their magnitudes.
struct TensorStatistics {
  int64_t count = 0;  ///< elements that could be read
  int64_t nans = 0;
  int64_t negative_infinities = 0;
  int64_t positive_infinities = 0;
  // Of the finite elements; "nan" where there are none.
  std::string min = "nan";
  std::string max = "nan";
  std::string mean = "nan";
  std::string l2norm = "nan";  ///< square root of the sum of the squares
};
TensorStatistics StatisticsOf(const ir::TensorInfo& tensor);

}  // namespace reprise::runtime
