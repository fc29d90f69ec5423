/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor that is passed to a run of a graph. */
#ifndef REPRISE_EXE_GRAPH_RUNTIME_TENSOR_H_
#define REPRISE_EXE_GRAPH_RUNTIME_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "exe_graph/runtime/shape.h"
#include "exe_graph/runtime/storage_format.h"
#include "exe_graph/runtime/storage_shape.h"
#include "exe_graph/runtime/tensor_data.h"
#include "graph/types.h"

namespace gert {

/* Moved, not copied. */
class Tensor {
 public:
  Tensor() : version_(0), reserved_{}, data_type_(ge::DT_UNDEFINED), reserved_field_{} {}
  Tensor(const StorageShape& storage_shape, const StorageFormat& storage_format, ge::DataType data_type)
      : Tensor(storage_shape, storage_format, kTensorPlacementEnd, data_type) {}
  Tensor(const StorageShape& storage_shape, const StorageFormat& storage_format, TensorPlacement placement,
         ge::DataType data_type, TensorAddress addr = nullptr)
      : storage_shape_(storage_shape),
        storage_format_(storage_format),
        version_(0),
        reserved_{},
        data_type_(data_type),
        tensor_data_(addr, nullptr, 0, placement),
        reserved_field_{} {}

  int64_t GetShapeSize() const { return storage_shape_.GetStorageShape().GetShapeSize(); }
  /* kFollowing: the memory behind this object. */
  const void* GetAddr() const { return GetPlacement() == kFollowing ? this + 1 : tensor_data_.GetAddr(); }
  void* GetAddr() { return GetPlacement() == kFollowing ? this + 1 : tensor_data_.GetAddr(); }
  template <class T>
  const T* GetData() const {
    return static_cast<const T*>(GetAddr());
  }
  template <class T>
  T* GetData() {
    return static_cast<T*>(GetAddr());
  }
  void SetData(TensorData&& data) { tensor_data_ = std::move(data); }
  const TensorData& GetTensorData() const { return tensor_data_; }
  TensorData& MutableTensorData() { return tensor_data_; }
  size_t GetSize() const { return tensor_data_.GetSize(); }
  void SetSize(size_t size) { tensor_data_.SetSize(size); }
  TensorPlacement GetPlacement() const { return tensor_data_.GetPlacement(); }
  void SetPlacement(TensorPlacement placement) { tensor_data_.SetPlacement(placement); }

  ge::DataType GetDataType() const { return data_type_; }
  void SetDataType(ge::DataType data_type) { data_type_ = data_type; }

  const StorageShape& GetShape() const { return storage_shape_; }
  StorageShape& MutableShape() { return storage_shape_; }
  const Shape& GetStorageShape() const { return storage_shape_.GetStorageShape(); }
  const Shape& GetOriginShape() const { return storage_shape_.GetOriginShape(); }
  Shape& MutableStorageShape() { return storage_shape_.MutableStorageShape(); }
  Shape& MutableOriginShape() { return storage_shape_.MutableOriginShape(); }

  const StorageFormat& GetFormat() const { return storage_format_; }
  StorageFormat& MutableFormat() { return storage_format_; }
  ge::Format GetStorageFormat() const { return storage_format_.GetStorageFormat(); }
  ge::Format GetOriginFormat() const { return storage_format_.GetOriginFormat(); }
  void SetStorageFormat(ge::Format format) { storage_format_.SetStorageFormat(format); }
  void SetOriginFormat(ge::Format format) { storage_format_.SetOriginFormat(format); }
  ExpandDimsType GetExpandDimsType() const { return storage_format_.GetExpandDimsType(); }
  void SetExpandDimsType(const ExpandDimsType& type) { storage_format_.SetExpandDimsType(type); }

 private:
  StorageShape storage_shape_;
  StorageFormat storage_format_;
  uint8_t version_;
  uint8_t reserved_[3];
  ge::DataType data_type_;
  TensorData tensor_data_;
  uint8_t reserved_field_[40];
};
static_assert(sizeof(Tensor) == 752, "programs are compiled for this size");

}  // namespace gert

#endif  // REPRISE_EXE_GRAPH_RUNTIME_TENSOR_H_
