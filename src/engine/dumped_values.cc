// SPDX-License-Identifier: Apache-2.0
#include "engine/dumped_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

#include "kernels/dtype.h"
#include "kernels/float16.h"
#include "opdef/graph_op.h"

namespace reprise::engine {
namespace {

using kernels::DType;

// The name that NumPy has for a type; empty where it has none.
std::string_view NumpyName(int32_t dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::kFloat:
    case DType::kBFloat16: return "<f4";
    case DType::kFloat16: return "<f2";
    case DType::kDouble: return "<f8";
    case DType::kInt8: return "|i1";
    case DType::kInt16: return "<i2";
    case DType::kInt32: return "<i4";
    case DType::kInt64: return "<i8";
    case DType::kUInt8: return "|u1";
    case DType::kUInt16: return "<u2";
    case DType::kUInt32: return "<u4";
    case DType::kUInt64: return "<u8";
    case DType::kBool: return "|b1";
    case DType::kComplex64: return "<c8";
    case DType::kComplex128: return "<c16";
    default: return "";
  }
}

float WidenBfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

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
    case DType::kBFloat16: Each<uint16_t>(value, [&](uint16_t bits) { visit(WidenBfloat16(bits)); }); return true;
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
  std::string name(NumpyName(value.dtype));
  std::vector<int64_t> shape = value.shape;
  if (name.empty()) {
    name = "|u1";
    shape = {static_cast<int64_t>(value.bytes)};
  }
  std::string head = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", name,
                                 fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr size_t kLead = 10;  // magic, version, length
  head.resize((kLead + head.size() + 1 + 63) / 64 * 64 - kLead - 1, ' ');
  head += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(head.size() & 0xFF);
  file += static_cast<char>(head.size() >> 8);
  file += head;
  if (value.bytes == 0) return file;
  if (static_cast<DType>(value.dtype) == DType::kBFloat16) {
    Each<uint16_t>(value, [&file](uint16_t bits) {
      const float wide = WidenBfloat16(bits);
      file.append(reinterpret_cast<const char*>(&wide), sizeof wide);
    });
  } else {
    file.append(static_cast<const char*>(value.memory.address), value.bytes);
  }
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
