// SPDX-License-Identifier: Apache-2.0
//
// Tensors inside boxed values.
#pragma once

#include <ATen/core/ivalue.h>

#include <utility>

namespace torch_npu {

/// Calls visit(tensor) for every defined tensor of a value, in lists, too.
template <class Visit>
void ForEachTensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (const at::Tensor& tensor = value.toTensor(); tensor.defined()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) ForEachTensor(item, visit);
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) ForEachTensor(item, visit);
  }
}

/// Whether it is a list of tensors, or of tensors and None.
inline bool IsListOfTensors(const c10::IValue& value) { return value.isTensorList() || value.isOptionalTensorList(); }

/// The value with every defined tensor replaced by change(tensor).
template <class Change>
c10::IValue WithTensors(const c10::IValue& value, Change&& change) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(change(value.toTensor())) : value;
  if (IsListOfTensors(value)) {
    const c10::ArrayRef<c10::IValue> items = value.toListRef();
    c10::impl::GenericList list(value.type()->expectRef<c10::ListType>().getElementType());
    list.reserve(items.size());
    for (const c10::IValue& item : items) list.push_back(WithTensors(item, change));
    return list;
  }
  return value;
}

}  // namespace torch_npu
