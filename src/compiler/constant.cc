// SPDX-License-Identifier: Apache-2.0
#include "compiler/constant.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/dtype.h"
#include "ops/named_call.h"

namespace reprise::compiler {
namespace {

using kernels::DType;

bool IsReal(int32_t dtype) {
  const auto type = static_cast<DType>(dtype);
  return kernels::IsKnown(type) && kernels::CategoryOf(type) != kernels::Category::kComplex;
}

bool IsInteger(int32_t dtype) {
  return IsReal(dtype) && kernels::CategoryOf(static_cast<DType>(dtype)) != kernels::Category::kFloating;
}

// fn(TypeTag<T>) with a type of real numbers.
template <class Fn>
void DispatchReal(int32_t dtype, Fn&& fn) {
  kernels::DispatchAll(static_cast<DType>(dtype), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (!kernels::kIsComplex<T>) fn(tag);
  });
}

template <class To, class T>
To Convert(T element) {
  if constexpr (std::is_same_v<T, kernels::Bool>) {
    return static_cast<To>(static_cast<bool>(element));
  } else if constexpr (kernels::kIsReducedFloat<T>) {
    return static_cast<To>(static_cast<float>(element));
  } else {
    return static_cast<To>(element);
  }
}

template <class To>
std::vector<To> ElementsAs(const Constant& constant) {
  std::vector<To> elements;
  DispatchReal(constant.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    elements.resize(constant.bytes.size() / sizeof(T));
    for (size_t i = 0; i < elements.size(); ++i) {
      T element;
      std::memcpy(&element, constant.bytes.data() + i * sizeof(T), sizeof(T));
      elements[i] = Convert<To>(element);
    }
  });
  return elements;
}

template <class From>
std::shared_ptr<const Constant> Make(int32_t dtype, std::vector<int64_t> shape, std::span<const From> elements) {
  auto constant = std::make_shared<Constant>();
  constant->dtype = dtype;
  constant->shape = std::move(shape);
  DispatchReal(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constant->bytes.resize(elements.size() * sizeof(T));
    for (size_t i = 0; i < elements.size(); ++i) {
      T element;
      if constexpr (std::is_same_v<T, kernels::Bool>) {
        element = kernels::Bool(elements[i] != 0);
      } else if constexpr (kernels::kIsReducedFloat<T>) {
        element = T(static_cast<float>(elements[i]));
      } else {
        element = static_cast<T>(elements[i]);
      }
      std::memcpy(constant->bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
  });
  return constant;
}

}  // namespace

int64_t ElementsOf(const Constant& constant) {
  return static_cast<int64_t>(ops::BytesOf(constant.shape, 1).value_or(INT64_MAX));
}

std::optional<std::vector<int64_t>> IntegersOf(const Constant& constant) {
  if (!IsInteger(constant.dtype)) return std::nullopt;
  return ElementsAs<int64_t>(constant);
}

std::optional<std::vector<double>> RealsOf(const Constant& constant) {
  if (!IsReal(constant.dtype)) return std::nullopt;
  return ElementsAs<double>(constant);
}

std::optional<double> UniformValueOf(const Constant& constant) {
  const auto elements = RealsOf(constant);
  if (!elements || elements->empty()) return std::nullopt;
  const double first = elements->front();
  const bool is_uniform = std::all_of(elements->begin(), elements->end(), [&](double e) { return e == first; });
  return is_uniform ? std::optional(first) : std::nullopt;
}

std::shared_ptr<const Constant> MakeConstant(int32_t dtype, std::vector<int64_t> shape,
                                             std::span<const double> elements) {
  return Make(dtype, std::move(shape), elements);
}

std::shared_ptr<const Constant> MakeConstant(int32_t dtype, std::vector<int64_t> shape,
                                             std::span<const int64_t> elements) {
  return Make(dtype, std::move(shape), elements);
}

std::string ElementsText(const Constant& constant) {
  if (!IsReal(constant.dtype)) return {};
  std::string text;
  DispatchReal(constant.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_same_v<T, double>) {
      text = fmt::format("{}", fmt::join(ElementsAs<double>(constant), ", "));
    } else if constexpr (std::is_same_v<T, float> || kernels::kIsReducedFloat<T>) {
      text = fmt::format("{}", fmt::join(ElementsAs<float>(constant), ", "));
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      text = fmt::format("{}", fmt::join(ElementsAs<uint64_t>(constant), ", "));
    } else {
      text = fmt::format("{}", fmt::join(ElementsAs<int64_t>(constant), ", "));
    }
  });
  return text;
}

}  // namespace reprise::compiler
