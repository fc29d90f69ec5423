// SPDX-License-Identifier: Apache-2.0
#include "kernels/text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

std::string TextOfReal(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[400];  // the largest float64 has 309 digits
  std::snprintf(text, sizeof text, value == std::trunc(value) ? "%.0f" : "%.9g", value);
  return text;
}

template <class To>
To Read(const char* data, DType type) {
  return Scalar(type, data).As<To>();
}

std::string TextOfElement(const char* data, DType type) {
  if (type == DType::kBool) return *data != 0 ? "1" : "0";
  switch (CategoryOf(type)) {
    case Category::kComplex: {
      const auto value = Read<std::complex<double>>(data, type);
      std::string text(1, '(');
      text.append(TextOfReal(value.real())).append(1, ',').append(TextOfReal(value.imag())).append(1, ')');
      return text;
    }
    case Category::kFloating: return TextOfReal(Read<double>(data, type));
    default:
      return type == DType::kUInt64 ? std::to_string(Read<uint64_t>(data, type))
                                    : std::to_string(Read<int64_t>(data, type));
  }
}

void AppendDim(const TensorRef& tensor, int dim, const char* data, int64_t ends, std::string& text) {
  if (dim == tensor.rank) {
    text += TextOfElement(data, tensor.dtype);
    return;
  }
  const int64_t size = tensor.sizes[dim];
  const int64_t step = tensor.strides[dim] * ItemSize(tensor.dtype);
  const bool shows_all = ends < 0 || size <= 2 * ends;
  text += '[';
  for (int64_t i = 0; i < size; ++i) {
    if (i != 0) text += dim == tensor.rank - 1 ? " " : "\n ";
    if (!shows_all && i == ends) {
      text += "...";
      i = size - ends - 1;
      continue;
    }
    AppendDim(tensor, dim + 1, data + i * step, ends, text);
  }
  text += ']';
}

}  // namespace

std::string TextOf(const TensorRef& tensor, int64_t ends) {
  std::string text;
  AppendDim(tensor, 0, static_cast<const char*>(tensor.data), ends, text);
  return text;
}

}  // namespace reprise::kernels
