// SPDX-License-Identifier: Apache-2.0
#include "engine/dumped_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "kernels/dtype.h"
#include "kernels/float16.h"
#include "opdef/graph_op.h"
#include "runtime/tensor_file.h"

namespace reprise::engine {
namespace {

using kernels::DType;

template <class T, class Visit>
void Each(const DumpedValue& value, Visit visit) {
  const auto* const data = static_cast<const char*>(value.memory.address);
  for (uint64_t at = 0; at + sizeof(T) <= value.bytes; at += sizeof(T)) {
    T element;
    std::memcpy(&element, data + at, sizeof element);
    visit(element);
  }
}

// Whether the elements are numbers.
bool EachNumber(const DumpedValue& value, const std::function<void(double)>& visit) {
  const auto plain = [&](auto element) { visit(static_cast<double>(element)); };
  switch (static_cast<DType>(value.dtype)) {
    case DType::kFloat: Each<float>(value, plain); return true;
    case DType::kDouble: Each<double>(value, plain); return true;
    case DType::kFloat16:
      Each<uint16_t>(value, [&](uint16_t bits) { visit(kernels::HalfBitsToFloat(bits)); });
      return true;
    case DType::kBFloat16:
      Each<uint16_t>(value, [&](uint16_t bits) { visit(kernels::BFloat16BitsToFloat(bits)); });
      return true;
    case DType::kInt8: Each<int8_t>(value, plain); return true;
    case DType::kInt16: Each<int16_t>(value, plain); return true;
    case DType::kInt32: Each<int32_t>(value, plain); return true;
    case DType::kInt64: Each<int64_t>(value, plain); return true;
    case DType::kBool:
    case DType::kUInt8: Each<uint8_t>(value, plain); return true;
    case DType::kUInt16: Each<uint16_t>(value, plain); return true;
    case DType::kUInt32: Each<uint32_t>(value, plain); return true;
    case DType::kUInt64: Each<uint64_t>(value, plain); return true;
    default: return false;
  }
}

}  // namespace

std::string NpyOf(const DumpedValue& value) {
  ir::TensorInfo tensor;
  tensor.data = value.memory.address;
  tensor.dtype = value.dtype;
  tensor.sizes = value.shape;
  if (!kernels::IsKnown(static_cast<DType>(value.dtype))) {
    tensor.dtype = static_cast<int32_t>(DType::kUInt8);
    tensor.sizes = {static_cast<int64_t>(value.bytes)};
  }
  tensor.strides.assign(tensor.sizes.size(), 1);
  for (size_t d = tensor.sizes.size(); d > 1; --d) tensor.strides[d - 2] = tensor.strides[d - 1] * tensor.sizes[d - 1];
  std::string file;
  int64_t read = 0;
  runtime::WriteNpy(
      tensor, [&file](std::string_view bytes) { return file.append(bytes), true; }, &read);
  return file;
}

std::string StatisticsOf(const DumpedValue& value) {
  double most = -std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  double sum = 0;
  uint64_t count = 0;
  uint64_t nans = 0;
  uint64_t infinite = 0;
  const bool is_number = EachNumber(value, [&](double number) {
    ++count;
    if (std::isnan(number)) {
      ++nans;
      return;
    }
    if (std::isinf(number)) ++infinite;
    most = std::max(most, number);
    least = std::min(least, number);
    sum += number;
  });
  std::string line =
      fmt::format("{},{},{},{},{},{},\"[{}]\"", value.type, value.node, value.is_input ? "Input" : "Output",
                  value.index, value.bytes, opdef::TypeName(value.dtype), fmt::join(value.shape, ", "));
  if (!is_number) return line + ",,,,,,\n";
  if (count == nans) return line + fmt::format(",{},nan,nan,nan,{},0\n", count, nans);
  const double average = sum / static_cast<double>(count - nans);
  return line + fmt::format(",{},{:.9g},{:.9g},{:.9g},{},{}\n", count, most, least, average, nans, infinite);
}

}  // namespace reprise::engine
