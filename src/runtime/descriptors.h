// SPDX-License-Identifier: Apache-2.0
//
// What stands behind aclTensorDesc* and aclDataBuffer*: how single operators and offline models are told about tensors.
// Plain values; a descriptor owns no device memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/handle_table.h"
#include "runtime/objects.h"

namespace reprise::runtime {

/// Threads: thread-compatible.
struct TensorDesc {
  using Range = std::array<int64_t, 2>;

  static constexpr int64_t kUnknownDim = -1;
  static constexpr int64_t kUnknownRank = -2;  ///< as the only dim

  int32_t type = -1;    ///< aclDataType
  int32_t format = -1;  ///< aclFormat, -1: none; so are the next two
  int32_t storage_format = -1;
  int32_t origin_format = -1;
  std::vector<int64_t> dims;
  std::vector<int64_t> storage_dims;
  std::vector<int64_t> origin_dims;
  std::vector<Range> shape_range;
  std::vector<Range> value_range;
  std::string name;
  std::string dynamic_input;
  std::vector<char> constant;  ///< value that is known without the device; empty: none
  int32_t placement = 0;       ///< aclMemType; 0: device

  /// 0 while a dimension is not known; the number saturates instead of wrapping around.
  size_t Elements() const {
    size_t count = 1;
    for (const int64_t dim : dims) {
      if (dim < 0) return 0;
      if (__builtin_mul_overflow(count, static_cast<size_t>(dim), &count)) return SIZE_MAX;
    }
    return count;
  }
};

/// Borrowed memory.
struct DataBuffer {
  void* data = nullptr;
  size_t bytes = 0;
};

HandleTable<TensorDesc, HandleKind::kTensorDesc>& TensorDescs();
HandleTable<DataBuffer, HandleKind::kDataBuffer>& DataBuffers();

}  // namespace reprise::runtime
