// SPDX-License-Identifier: Apache-2.0
#include "ops/spatial.h"

namespace reprise::ops {

Status AllOneType(OpCall& call) {
  const Operand* first = nullptr;
  const auto check = [&](const Operand& operand) -> Status {
    if (operand.apart || operand.tensor == nullptr) return {};
    if (first == nullptr) first = &operand;
    if (operand.dtype == first->dtype) return {};
    return call.InvalidOperand(operand, fmt::format("has {}, expected the type {} of {}", kernels::Name(operand.dtype),
                                                    kernels::Name(first->dtype), call.NameOf(*first)));
  };
  for (const Operand& input : call.inputs) REPRISE_RETURN_IF_ERROR(check(input));
  for (const Operand& output : call.outputs) REPRISE_RETURN_IF_ERROR(check(output));
  call.compute = first->dtype;
  return {};
}

Status ReadDims(const OpCall& call, std::string_view name, int dims, int64_t low, bool may_be_empty, int64_t* values) {
  const std::span<const int64_t> given = call.Ints(name);
  if (given.empty() && may_be_empty) return {};
  if (given.size() != 1 && given.size() != static_cast<size_t>(dims)) {
    return call.Invalid(fmt::format("{} is {}, expected one value or {}", name, ShapeText(given), dims),
                        "pass one value for all dims or one for each");
  }
  for (int d = 0; d < dims; ++d) {
    values[d] = given[given.size() == 1 ? 0 : static_cast<size_t>(d)];
    if (values[d] < low || values[d] > INT32_MAX) {
      return call.Invalid(
          fmt::format("{} is {}, expected values from {} to {}", name, ShapeText(given), low, INT32_MAX));
    }
  }
  return {};
}

Status CheckRank(const OpCall& call, const Operand& operand, int low, int high) {
  if (operand.rank() == low || operand.rank() == high) return {};
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected {}{} dims", ShapeText(operand.sizes()), low,
                                                  low == high ? std::string() : fmt::format(" or {}", high)));
}

void InsertDims(kernels::TensorRef& ref, int at, int count) {
  for (int d = ref.rank - 1; d >= at; --d) {
    ref.sizes[d + count] = ref.sizes[d];
    ref.strides[d + count] = ref.strides[d];
  }
  for (int d = at; d < at + count; ++d) {
    ref.sizes[d] = 1;
    ref.strides[d] = 0;
  }
  ref.rank += count;
}

}  // namespace reprise::ops
