// SPDX-License-Identifier: Apache-2.0
//
// The objects that operators take: what stands behind aclTensor*, aclScalar*, the arrays and the lists.
//
// A pointer that the user holds is a handle (base/handle_table.h), so a null, destroyed, foreign or mistaken one
// becomes an error that says so. The objects describe memory and never own it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/handle_table.h"
#include "base/status.h"
#include "kernels/cast.h"
#include "kernels/dtype.h"
#include "ops/inline_vector.h"

namespace reprise::ops {

/// Sizes or strides; up to eight without an allocation, as most operators take.
using Dims = InlineVector<int64_t, 8>;

/// Most dimensions that a description may have. Operators take at most kernels::kMaxRank.
inline constexpr uint64_t kMaxDescribedDims = 64;

/// The arguments of aclCreateTensor; borrowed for the call.
struct TensorSpec {
  const int64_t* view_dims = nullptr;
  uint64_t view_rank = 0;
  int32_t dtype = 0;                 ///< aclDataType
  const int64_t* strides = nullptr;  ///< null: row-major contiguous
  int64_t offset = 0;                ///< elements
  int32_t format = 0;                ///< aclFormat
  const int64_t* storage_dims = nullptr;
  uint64_t storage_rank = 0;
  void* data = nullptr;  ///< of the storage: the view begins `offset` elements behind it
};

/// Strided view of memory. Sizes, offset and the number of elements are valid; strides, type and format are as the
/// user gave them, operators check them.
///
/// Threads: thread-compatible.
struct Tensor {
  Dims sizes;
  Dims strides;  ///< elements
  Dims storage;
  int64_t offset = 0;  ///< elements
  int64_t count = 0;   ///< elements of the view
  void* data = nullptr;
  int32_t dtype_number = -1;  ///< aclDataType as given
  int32_t format = 2;         ///< aclFormat as given

  /// The type as the kernels know it; kUndefined for a number that they do not know.
  kernels::DType dtype() const {
    const auto type = static_cast<kernels::DType>(dtype_number);
    return kernels::IsKnown(type) ? type : kernels::DType::kUndefined;
  }

  /// 161001 when dims are missing, 161002 for negative or too many of them or a negative offset. On failure the tensor
  /// is as before.
  Status Set(const TensorSpec& desc);
};

struct ScalarObject {
  kernels::Scalar value;
};

/// One of the three array types; its alternative says which.
struct ArrayObject {
  std::variant<std::vector<int64_t>, std::vector<float>, std::vector<bool>> values;

  size_t size() const {
    return std::visit([](const auto& v) { return v.size(); }, values);
  }
  /// "aclIntArray" …
  const char* type_name() const;
};

/// Owns the tensors behind its handles. Null entries stand for absent optional tensors.
struct TensorListObject {
  std::vector<const void*> tensors;
};
struct ScalarListObject {
  std::vector<const void*> scalars;
};

HandleTable<Tensor, HandleKind::kTensor>& Tensors();
HandleTable<ScalarObject, HandleKind::kScalar>& Scalars();
HandleTable<ArrayObject, HandleKind::kArray>& Arrays();
HandleTable<TensorListObject, HandleKind::kTensorList>& TensorLists();
HandleTable<ScalarListObject, HandleKind::kScalarList>& ScalarLists();

// ---- Creation: a handle for the user, or why there is none (161001, 161002, 561000 when memory is used up) ----

StatusOr<void*> CreateTensor(const TensorSpec& desc);
StatusOr<void*> CreateScalar(const void* value, int32_t dtype);
StatusOr<void*> CreateIntArray(const int64_t* values, uint64_t size);
StatusOr<void*> CreateFloatArray(const float* values, uint64_t size);
StatusOr<void*> CreateBoolArray(const bool* values, uint64_t size);
StatusOr<void*> CreateTensorList(const void* const* tensors, uint64_t size);
StatusOr<void*> CreateScalarList(const void* const* scalars, uint64_t size);

// ---- Destruction: null is fine; 161002 for anything that is not a live handle of the kind ----

Status DestroyTensor(const void* handle);
Status DestroyScalar(const void* handle);
/// `T` is the element type: int64_t, float or bool.
template <class T>
Status DestroyArray(const void* handle);
/// Destroys what is in the list, too; 161002 when part of it was destroyed before.
Status DestroyTensorList(const void* handle);
Status DestroyScalarList(const void* handle);

// ---- Look-up: 161001 for null, 161002 for anything that is not a live handle of the kind ----

StatusOr<Tensor*> FindTensor(const void* handle);
StatusOr<ScalarObject*> FindScalar(const void* handle);
StatusOr<TensorListObject*> FindTensorList(const void* handle);
StatusOr<ScalarListObject*> FindScalarList(const void* handle);
/// `T` is the element type: int64_t, float or bool.
template <class T>
StatusOr<std::vector<T>*> FindArray(const void* handle);

// ---- Words ----

/// "[4, 3]".
std::string ShapeText(std::span<const int64_t> sizes);
/// "float16", or "type 33" for one that the kernels do not know.
std::string DTypeText(int32_t dtype_number);
/// "ND", "FRACTAL_NZ", "format 77".
std::string FormatText(int32_t format);
/// True for formats that are names for plain strided memory.
bool IsBaseFormat(int32_t format);
/// True for the fractals of matrices: FRACTAL_NZ and those with a width in their names. Here they are plain, too.
bool IsFractalFormat(int32_t format);

}  // namespace reprise::ops
