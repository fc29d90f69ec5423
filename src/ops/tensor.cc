// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/fault.h"

namespace reprise::ops {
namespace {

Status Invalid(std::string what, std::string hint) {
  return Error(kOperatorArgumentInvalid, std::move(what)).Hint(std::move(hint));
}

// Gives `object` a handle and lets the table own it.
template <class T, HandleKind Kind>
StatusOr<void*> Publish(HandleTable<T, Kind>& table, std::unique_ptr<T> object) {
  void* handle = FaultPoint("ops.object") ? nullptr : table.Insert(object.get());
  if (handle == nullptr) {
    return Error(kOperatorInternalError,
                 fmt::format("the process has too many {} objects", HandleKindName(static_cast<uint8_t>(Kind))))
        .Hint("destroy the argument objects of finished operator calls");
  }
  (void)object.release();
  return handle;
}

// 161001 or 161002 for a handle that is not live.
Status BadHandle(HandleState state, const void* handle, const char* expected) {
  std::string hint =
      fmt::format("pass what aclCreate{} returned, before it is destroyed", std::string_view(expected).substr(3));
  if (state == HandleState::kNull) {
    return Error(kOperatorArgumentNull, fmt::format("the {} pointer is null", expected)).Hint(std::move(hint));
  }
  return Invalid(DescribeBadHandle(state, handle, expected), std::move(hint));
}

template <class T, HandleKind Kind>
StatusOr<T*> FindIn(HandleTable<T, Kind>& table, const void* handle, const char* expected) {
  if (T* object = table.Find(handle)) [[likely]]
    return object;
  return BadHandle(table.Classify(handle), handle, expected);
}

template <class T, HandleKind Kind>
Status DestroyIn(HandleTable<T, Kind>& table, const void* handle, const char* expected) {
  if (handle == nullptr) return {};
  const std::unique_ptr<T> object(table.Erase(handle));
  if (object != nullptr) [[likely]]
    return {};
  return BadHandle(table.Classify(handle), handle, expected);
}

template <class T>
constexpr const char* kArrayName = "aclBoolArray";
template <>
constexpr const char* kArrayName<int64_t> = "aclIntArray";
template <>
constexpr const char* kArrayName<float> = "aclFloatArray";

template <class T>
StatusOr<void*> CreateArray(const T* values, uint64_t size) {
  if (values == nullptr && size != 0) {
    return Error(kOperatorArgumentNull, fmt::format("value is null although size is {}", size))
        .Hint("pass an array, or size 0");
  }
  auto array = std::make_unique<ArrayObject>();
  array->values.emplace<std::vector<T>>(values, values + size);
  return Publish(Arrays(), std::move(array));
}

// Checks that entries are null or live, each only once.
template <class Table>
Status CheckEntries(Table& table, const void* const* entries, uint64_t size, const char* expected) {
  if (entries == nullptr && size != 0) {
    return Error(kOperatorArgumentNull, fmt::format("value is null although size is {}", size))
        .Hint("pass an array, or size 0");
  }
  for (uint64_t i = 0; i < size; ++i) {
    if (entries[i] == nullptr || table.Find(entries[i]) != nullptr) continue;
    const HandleState state = table.Classify(entries[i]);
    return Invalid(fmt::format("element {}: {}", i, DescribeBadHandle(state, entries[i], expected)),
                   HintForBadHandle(state, expected));
  }
  return {};
}

// Destroys the entries of a list. The same handle may stand in it twice.
template <class Destroy>
Status DestroyEntries(std::span<const void* const> entries, Destroy destroy) {
  Status first_error;
  for (size_t i = 0; i < entries.size(); ++i) {
    Status status = destroy(entries[i]);
    if (status.ok() || !first_error.ok()) continue;
    if (std::find(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(i), entries[i]) !=
        entries.begin() + static_cast<std::ptrdiff_t>(i)) {
      continue;
    }
    first_error = Invalid(fmt::format("element {} of the list: {}", i, status.detail().what),
                          "a list owns its elements: destroy the list only");
  }
  return first_error;
}

Status CopyDims(const int64_t* dims, uint64_t rank, const char* name, Dims& copy, int64_t& count) {
  if (rank > kMaxDescribedDims) {
    return Invalid(fmt::format("{} has {} dimensions, at most {} are possible", name, rank, kMaxDescribedDims),
                   "pass the number of dimensions; tensors with many can be reshaped");
  }
  if (dims == nullptr && rank != 0) {
    return Error(kOperatorArgumentNull, fmt::format("{} is null although its length is {}", name, rank))
        .Hint("pass the dimensions, or length 0 for a tensor of one element");
  }
  count = 1;
  bool overflows = false;
  for (uint64_t d = 0; d < rank; ++d) {
    if (dims[d] < 0)
      return Invalid(fmt::format("{}[{}] is {}, it must not be negative", name, d, dims[d]),
                     "pass the sizes of the tensor");
    overflows |= __builtin_mul_overflow(count, dims[d], &count);
  }
  if (std::find(dims, dims + rank, 0) != dims + rank) {
    count = 0;
  } else if (overflows) {
    return Invalid(fmt::format("{} {} has more elements than fit in 64 bits", name, ShapeText({dims, rank})),
                   "pass the sizes of the tensor");
  }
  copy.assign(dims, rank);
  return {};
}

}  // namespace

const char* ArrayObject::type_name() const {
  switch (values.index()) {
    case 0: return kArrayName<int64_t>;
    case 1: return kArrayName<float>;
    default: return kArrayName<bool>;
  }
}

HandleTable<Tensor, HandleKind::kTensor>& Tensors() { return TheTable<Tensor, HandleKind::kTensor>(); }
HandleTable<ScalarObject, HandleKind::kScalar>& Scalars() { return TheTable<ScalarObject, HandleKind::kScalar>(); }
HandleTable<ArrayObject, HandleKind::kArray>& Arrays() { return TheTable<ArrayObject, HandleKind::kArray>(); }
HandleTable<TensorListObject, HandleKind::kTensorList>& TensorLists() {
  return TheTable<TensorListObject, HandleKind::kTensorList>();
}
HandleTable<ScalarListObject, HandleKind::kScalarList>& ScalarLists() {
  return TheTable<ScalarListObject, HandleKind::kScalarList>();
}

Status Tensor::Set(const TensorSpec& desc) {
  Tensor next;
  int64_t storage_count = 0;
  REPRISE_RETURN_IF_ERROR(CopyDims(desc.view_dims, desc.view_rank, "viewDims", next.sizes, next.count));
  REPRISE_RETURN_IF_ERROR(CopyDims(desc.storage_dims, desc.storage_rank, "storageDims", next.storage, storage_count));
  if (desc.offset < 0)
    return Invalid(fmt::format("offset is {}, it must not be negative", desc.offset),
                   "pass the number of elements before the first one of the view");
  if (desc.strides != nullptr) {
    next.strides.assign(desc.strides, desc.view_rank);
  } else {
    next.strides.resize(desc.view_rank);
    int64_t stride = 1;
    for (size_t d = desc.view_rank; d-- > 0;) {
      next.strides[d] = stride;
      // Where another dim is 0 the product may overflow; such strides are never used.
      (void)__builtin_mul_overflow(stride, next.sizes[d], &stride);
    }
  }
  next.offset = desc.offset;
  next.data = desc.data;
  next.dtype_number = desc.dtype;
  next.format = desc.format;
  *this = std::move(next);
  return {};
}

StatusOr<void*> CreateTensor(const TensorSpec& desc) {
  auto tensor = std::make_unique<Tensor>();
  REPRISE_RETURN_IF_ERROR(tensor->Set(desc));
  return Publish(Tensors(), std::move(tensor));
}

StatusOr<void*> CreateScalar(const void* value, int32_t dtype) {
  if (value == nullptr)
    return Error(kOperatorArgumentNull, "value is null").Hint("pass the address of the value on the host");
  const auto type = static_cast<kernels::DType>(dtype);
  if (!kernels::IsKnown(type))
    return Invalid(fmt::format("a scalar of {} is not possible", DTypeText(dtype)),
                   "pass an ACL_* type of data that operators know, as ACL_FLOAT");
  auto scalar = std::make_unique<ScalarObject>();
  scalar->value = kernels::Scalar(type, value);
  return Publish(Scalars(), std::move(scalar));
}

StatusOr<void*> CreateIntArray(const int64_t* values, uint64_t size) { return CreateArray(values, size); }
StatusOr<void*> CreateFloatArray(const float* values, uint64_t size) { return CreateArray(values, size); }
StatusOr<void*> CreateBoolArray(const bool* values, uint64_t size) { return CreateArray(values, size); }

StatusOr<void*> CreateTensorList(const void* const* tensors, uint64_t size) {
  REPRISE_RETURN_IF_ERROR(CheckEntries(Tensors(), tensors, size, "aclTensor"));
  auto list = std::make_unique<TensorListObject>();
  list->tensors.assign(tensors, tensors + size);
  return Publish(TensorLists(), std::move(list));
}

StatusOr<void*> CreateScalarList(const void* const* scalars, uint64_t size) {
  REPRISE_RETURN_IF_ERROR(CheckEntries(Scalars(), scalars, size, "aclScalar"));
  auto list = std::make_unique<ScalarListObject>();
  list->scalars.assign(scalars, scalars + size);
  return Publish(ScalarLists(), std::move(list));
}

Status DestroyTensor(const void* handle) { return DestroyIn(Tensors(), handle, "aclTensor"); }
Status DestroyScalar(const void* handle) { return DestroyIn(Scalars(), handle, "aclScalar"); }

template <class T>
Status DestroyArray(const void* handle) {
  if (handle == nullptr) return {};
  REPRISE_RETURN_IF_ERROR(FindArray<T>(handle).status());
  return DestroyIn(Arrays(), handle, kArrayName<T>);
}
template Status DestroyArray<int64_t>(const void*);
template Status DestroyArray<float>(const void*);
template Status DestroyArray<bool>(const void*);

Status DestroyTensorList(const void* handle) {
  if (handle == nullptr) return {};
  const std::unique_ptr<TensorListObject> list(TensorLists().Erase(handle));
  if (list == nullptr) return BadHandle(TensorLists().Classify(handle), handle, "aclTensorList");
  return DestroyEntries(list->tensors, DestroyTensor);
}

Status DestroyScalarList(const void* handle) {
  if (handle == nullptr) return {};
  const std::unique_ptr<ScalarListObject> list(ScalarLists().Erase(handle));
  if (list == nullptr) return BadHandle(ScalarLists().Classify(handle), handle, "aclScalarList");
  return DestroyEntries(list->scalars, DestroyScalar);
}

StatusOr<Tensor*> FindTensor(const void* handle) { return FindIn(Tensors(), handle, "aclTensor"); }
StatusOr<ScalarObject*> FindScalar(const void* handle) { return FindIn(Scalars(), handle, "aclScalar"); }
StatusOr<TensorListObject*> FindTensorList(const void* handle) {
  return FindIn(TensorLists(), handle, "aclTensorList");
}
StatusOr<ScalarListObject*> FindScalarList(const void* handle) {
  return FindIn(ScalarLists(), handle, "aclScalarList");
}

template <class T>
StatusOr<std::vector<T>*> FindArray(const void* handle) {
  REPRISE_ASSIGN_OR_RETURN(ArrayObject * array, FindIn(Arrays(), handle, kArrayName<T>));
  if (auto* values = std::get_if<std::vector<T>>(&array->values)) return values;
  return Invalid(fmt::format("{} is an {}, not an {}", fmt::ptr(handle), array->type_name(), kArrayName<T>),
                 fmt::format("pass what aclCreate{} returned", std::string_view(kArrayName<T>).substr(3)));
}
template StatusOr<std::vector<int64_t>*> FindArray(const void*);
template StatusOr<std::vector<float>*> FindArray(const void*);
template StatusOr<std::vector<bool>*> FindArray(const void*);

std::string ShapeText(std::span<const int64_t> sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

std::string DTypeText(int32_t dtype_number) {
  const auto type = static_cast<kernels::DType>(dtype_number);
  if (kernels::IsKnown(type)) return std::string(kernels::Name(type));
  return dtype_number == -1 ? "undefined type" : fmt::format("type {}", dtype_number);
}

namespace {
struct FormatRow {
  int32_t number;
  const char* name;
  bool is_base;
};
constexpr FormatRow kFormats[] = {{-1, "UNDEFINED", false}, {0, "NCHW", true},       {1, "NHWC", true},
                                  {2, "ND", true},          {3, "NC1HWC0", false},   {4, "FRACTAL_Z", false},
                                  {16, "HWCN", true},       {27, "NDHWC", true},     {29, "FRACTAL_NZ", false},
                                  {30, "NCDHW", true},      {32, "NDC1HWC0", false}, {33, "FRACTAL_Z_3D", false},
                                  {35, "NC", true},         {47, "NCL", true}};
}  // namespace

std::string FormatText(int32_t format) {
  for (const FormatRow& row : kFormats) {
    if (row.number == format) return row.name;
  }
  return fmt::format("format {}", format);
}

bool IsFractalFormat(int32_t format) { return format == 29 || (format >= 50 && format <= 54); }

bool IsBaseFormat(int32_t format) {
  for (const FormatRow& row : kFormats) {
    if (row.number == format) return row.is_base;
  }
  return false;
}

}  // namespace reprise::ops
