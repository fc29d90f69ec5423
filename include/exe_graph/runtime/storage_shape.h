/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of a tensor as operators see it, and as its memory is laid out. */
#ifndef REPRISE_EXE_GRAPH_RUNTIME_STORAGE_SHAPE_H_
#define REPRISE_EXE_GRAPH_RUNTIME_STORAGE_SHAPE_H_

#include <cstdint>
#include <initializer_list>

#include "exe_graph/runtime/shape.h"

namespace gert {

class StorageShape {
 public:
  StorageShape() : reserved_{} {}
  StorageShape(const std::initializer_list<int64_t>& origin_shape, const std::initializer_list<int64_t>& storage_shape)
      : origin_shape_(origin_shape), storage_shape_(storage_shape), reserved_{} {}
  StorageShape(const Shape& origin_shape, const Shape& storage_shape)
      : origin_shape_(origin_shape), storage_shape_(storage_shape), reserved_{} {}

  const Shape& GetOriginShape() const { return origin_shape_; }
  const Shape& GetStorageShape() const { return storage_shape_; }
  Shape& MutableOriginShape() { return origin_shape_; }
  Shape& MutableStorageShape() { return storage_shape_; }
  bool operator==(const StorageShape& other) const {
    return origin_shape_ == other.origin_shape_ && storage_shape_ == other.storage_shape_;
  }
  bool operator!=(const StorageShape& other) const { return !(*this == other); }

 private:
  Shape origin_shape_;
  Shape storage_shape_;
  uint8_t reserved_[40];
};
static_assert(sizeof(StorageShape) == 536, "programs are compiled for this size");

}  // namespace gert

#endif  // REPRISE_EXE_GRAPH_RUNTIME_STORAGE_SHAPE_H_
